#!/bin/sh
. "$TESTS/lib/client.sh"

works() {
	sed -i s/hello/edited/ README.md
	same edited "$(cat README.md)"
	run a grep -q edited README.md
	sed -i.bak 1d src/main.c
	same '{' "$(head -n 1 src/main.c)"
	[ -e src/main.c.bak ]
	echo 'sed -i s/edited/inside/ README.md' >ctl/exec
	same inside "$(cat README.md)"
	same "" "$(sed -i s/a/a/ README.md 2>&1)"
	sed -n 1p ctl/status | grep -q exited
	echo 'echo from sed' | sed 'w ctl/exec' >/dev/null
	ran 'from sed'
}

reports() {
	refuse sed -i s/a/b/ missing
}

begin sed
claim "sed -i edits in place, seen inside, and back" works
claim "sed reports what failed" reports
end
