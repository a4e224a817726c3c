#!/bin/sh
. "$TESTS/lib/client.sh"

works() {
	tar -cf "$ROOM/a.tar" .
	tar -tf "$ROOM/a.tar" >"$ROOM/listing"
	refuse grep -q 'ctl\|stdout' "$ROOM/listing"
	grep -q src/main.c "$ROOM/listing"
	mkdir unpacked
	tar -C unpacked -xf "$ROOM/a.tar"
	diff README.md unpacked/README.md
	same src/main.c "$(readlink unpacked/link)"
	echo 'tar -cf inside.tar src' >ctl/exec
	tar -tf inside.tar | grep -qx src/main.c
	echo 'tar -C unpacked -xf inside.tar' >ctl/exec
	same 0 "$(cut -d' ' -f1 ctl/status)"
}

reports() {
	mkdir "$ROOM/evil"
	ln -s /etc "$ROOM/evil/out"
	tar -C "$ROOM/evil" -cf "$ROOM/evil.tar" out
	refuse tar -xf "$ROOM/evil.tar"
	refuse tar -xf missing.tar
}

begin tar
claim "tar packs the user's files only, unpacks them, also inside" works
claim "tar reports an escaping link and what is missing" reports
end
