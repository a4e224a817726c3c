#!/bin/sh
. "$TESTS/lib/client.sh"

works() {
	rsync -a --exclude .git "$MNT/a/" "$ROOM/synced/"
	diff -r --exclude=.git . "$ROOM/synced"
	echo new >"$ROOM/synced/new"
	rsync -a "$ROOM/synced/" "$MNT/a/"
	same new "$(cat new)"
	echo changed >"$ROOM/synced/new"
	rsync -ac --inplace "$ROOM/synced/" "$MNT/a/"
	same changed "$(cat new)"
	rm "$ROOM/synced/new"
	rsync -a --delete --exclude .git "$ROOM/synced/" "$MNT/a/"
	[ ! -e new ]
	same '' "$(rsync -ain --exclude .git "$ROOM/synced/" "$MNT/a/" | grep -v '/$' || true)"
	echo 'cat README.md' >ctl/exec
	ran hello
}

reports() {
	refuse rsync -a missing "$MNT/a/"
	refuse rsync -a README.md "$MNT/nonesuch/deeper/x"
}

begin rsync
claim "rsync both ways, in place, with deletion, and finds nothing left to do" works
claim "rsync reports what failed" reports
end
