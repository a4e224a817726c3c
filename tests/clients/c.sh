#!/bin/sh
. "$TESTS/lib/client.sh"

works() {
	cp "$ROOM/examples/hello.c" hello.c
	cc -o "$ROOM/hello" hello.c
	"$ROOM/hello" "$MNT" | grep -q Hello
	expect 0 write f O_CREAT\|O_WRONLY 'by write'
	same 'by write' "$(cat f)"
	same 'from c' "$("$TOOL" exec ctl/exec echo 'from c')"
}

compiled_inside() {
	echo 'cc -o main src/main.c' >ctl/exec
	same 0 "$(cut -d' ' -f1 ctl/status)"
	./main
	echo './main' >ctl/exec
	same 0 "$(cut -d' ' -f1 ctl/status)"
}

reports() {
	expect ENOENT write ctl/exec O_WRONLY 'no-such-program\n'
	expect EINVAL write ctl/exec O_WRONLY 'a | b\n'
}

begin C cc
claim "C: the example with nothing but file I/O, and system calls" works
claim "C: compiled inside, run outside and inside" compiled_inside
claim "C gets the errno" reports
end
