#!/bin/sh
. "$TESTS/lib/client.sh"

by_install() {
	printf '%s\n' "$1" >"$ROOM/request"
	install -m 600 "$ROOM/request" ctl/exec
}

works() {
	install -D -m 755 README.md bin/readme
	cmp README.md bin/readme
	same 755 "$(stat -c %a bin/readme)"
	echo other >bin/other
	install -p bin/other bin/readme
	same other "$(cat bin/readme)"
	echo 'install README.md inside' >ctl/exec
	cmp README.md inside
}

reports() {
	refuse install missing there
	refuse install README.md missing/there
	refuse by_install no-such-program 2>"$ROOM/said"
	grep -F 'No such file or directory' "$ROOM/said"
}

begin install
claim "install copies with modes and directories, over what is there" works
claim "install of a request onto ctl/exec" saves by_install
claim "install reports what failed" reports
end
