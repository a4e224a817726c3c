#!/bin/sh
. "$TESTS/lib/client.sh"

works() {
	cp README.md copy
	cmp README.md copy
	cp -a src src2
	diff -r src src2
	cp -r . "$ROOM/all"
	[ ! -e "$ROOM/all/ctl" ]
	diff -r . "$ROOM/all"
	cp --reflink=auto --sparse=always copy copy2
	cmp copy copy2
	touch -d @12345 copy
	cp -p copy kept
	same 12345.000000000 "$("$TOOL" stat kept mtime)"
	echo 'cp copy inside' >ctl/exec
	cmp copy inside
	printf 'echo by cp\n' >"$ROOM/request"
	cp "$ROOM/request" ctl/exec
	ran 'by cp'
	cp ctl/stdout "$ROOM/out"
	same 'by cp' "$(cat "$ROOM/out")"
}

archived() {
	printf '%s\n' "$1" >"$ROOM/request"
	cp -a "$ROOM/request" ctl/exec
}

reports() {
	echo no-such-program >"$ROOM/request"
	refuse cp "$ROOM/request" ctl/exec
	refuse cp README.md missing/there
}

begin cp
claim "cp copies files, trees, times, requests, results" works
claim "cp -a of a request onto ctl/exec" saves archived
claim "cp reports what failed" reports
end
