#!/bin/sh
. "$TESTS/lib/client.sh"

# on FILE STEP...: nano with that file on a terminal.
on() {
	file=$1
	shift
	printf '%s\n' "$@" | python3 "$TESTS/lib/keys.py" 60 nano -I "$file"
}

works() {
	on README.md 'hello	by nano \x0f' 'Write	\r' 'Wrote 	\x18'
	same 'by nano hello' "$(cat README.md)"
	on new 'GNU nano	new\x0f' 'Write	\r' 'Wrote 	\x18'
	same new "$(cat new)"
	echo 'cat new' >ctl/exec
	ran new
	on ctl/exec 'GNU nano	echo from nano\x0f' 'Write	\r' 'Wrote 	\x18'
	ran 'from nano'
	like '0 exited*' "$(cat ctl/status)"
	on ctl/stdout 'from nano	\x18'
	on ctl/cwd 'GNU nano	\x0bsrc\x0f' 'Write	\r' 'Wrote 	\x18'
	same src "$(cat ctl/cwd)"
	on ctl/cwd 'src	\x0b.\x0f' 'Write	\r' 'Wrote 	\x18'
	same . "$(cat ctl/cwd)"
}

reports() {
	on ctl/exec 'GNU nano	no-such-program\x0f' 'Write	\r' 'No such file or directory	\x18' 'Save	n'
	error_says a no-such-program
	like '127 failed*' "$(cat ctl/status)"
	on ctl/exec 'GNU nano	echo a | b\x0f' 'Write	\r' 'Invalid argument	\x18' 'Save	n'
}

begin nano
claim "nano edits, writes new files, requests and settings, shows results" works
claim "nano shows why a request was refused" reports
end
