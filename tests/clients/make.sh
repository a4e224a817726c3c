#!/bin/sh
. "$TESTS/lib/client.sh"

works() {
	make -s
	./main
	same "make: Nothing to be done for 'x'." "$(printf 'x:\n' | make -f - x | tail -n 1)"
	touch main
	printf 'main: src/main.c\n\tcc -o main src/main.c\n' >Makefile
	touch -d @1 main
	make -s
	[ "$("$TOOL" stat main mtime | cut -d. -f1)" -gt 1000 ]
	like '*up to date*' "$(make main)"
	rm main
	echo make >ctl/exec
	same 0 "$(cut -d' ' -f1 ctl/status)"
	./main
	like '*up to date*' "$(make main)"
}

reports() {
	echo 'syntax error' >src/main.c
	refuse make main
	echo 'make main' >ctl/exec
	same 2 "$(cut -d' ' -f1 ctl/status)"
	grep -q "$MNT/a\|src/main.c" ctl/stderr
}

begin make
claim "make builds on the mount and inside, and sees what is up to date" works
claim "make reports what failed" reports
end
