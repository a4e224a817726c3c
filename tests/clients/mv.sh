#!/bin/sh
. "$TESTS/lib/client.sh"

works() {
	echo 1 >f
	mv f g
	same 1 "$(cat g)"
	mv src moved
	same 'main.c' "$(ls moved)"
	mv -n g README.md || true
	same hello "$(cat README.md)"
	mv g "$ROOM/g"
	same 1 "$(cat "$ROOM/g")"
	mv "$ROOM/g" back
	same 1 "$(cat back)"
	echo 'mv back inside' >ctl/exec
	same 1 "$(cat inside)"
	[ ! -e back ]
}

by_mv() {
	printf '%s\n' "$1" >"$ROOM/request"
	mv -f "$ROOM/request" ctl/exec
}

# The file and the control are on one filesystem: one rename.
within() {
	printf '%s\n' "$1" >ctl/request.tmp
	mv -f ctl/request.tmp ctl/exec
}

reports() {
	refuse mv missing there
	refuse by_mv no-such-program
	same no-such-program "$(cat "$ROOM/request")"
	refuse within no-such-program 2>"$ROOM/said"
	grep -F 'No such file or directory' "$ROOM/said"
	refuse mv inside missing/there
	refuse mv inside "$MNT/outside"
	same 1 "$(cat inside)"
}

begin mv
claim "mv renames, moves out and in" works
claim "mv of a request onto ctl/exec" saves by_mv
claim "mv of a file in ctl onto ctl/exec" saves within
claim "mv reports what failed and loses nothing" reports
end
