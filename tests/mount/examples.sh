#!/bin/sh
. "$TESTS/lib/mount.sh"
# The short programs of examples/, with nothing but file I/O.

hello() {
	"$@" "$MNT" >"$ROOM/hello.out"
	grep -q '^Hello from' "$ROOM/hello.out"
	grep -q 3 "$ROOM/hello.out"
}

in_c() {
	cc -o "$ROOM/hello" "$ROOM/examples/hello.c"
	hello "$ROOM/hello"
}

claim "mounting" mount_none
claim "hello.sh" hello sh "$ROOM/examples/hello.sh"
claim "hello.py" hello python3 "$ROOM/examples/hello.py"
claim "hello.js" hello node "$ROOM/examples/hello.js"
claim "hello.pl" hello perl "$ROOM/examples/hello.pl"
claim "hello.c" in_c
finish
