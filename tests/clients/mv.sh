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

reports() {
	refuse mv missing there
	refuse mv inside missing/there
	refuse mv inside "$MNT/outside"
	same 1 "$(cat inside)"
}

begin mv
claim "mv renames, moves out and in" works
claim "mv reports what failed and loses nothing" reports
end
