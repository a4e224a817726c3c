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

# onto OPTION TEXT: as rsync does it, a temporary file beside the control is
# renamed onto it; or as the option says.
onto() {
	printf '%s\n' "$2" >"$ROOM/exec"
	rsync -I "$1" "$ROOM/exec" ctl/exec
}

reports() {
	refuse onto --times no-such-program 2>"$ROOM/said"
	grep -F 'No such file or directory' "$ROOM/said"
	refuse rsync -a missing "$MNT/a/"
	refuse rsync -a README.md "$MNT/nonesuch/deeper/x"
}

begin rsync
claim "rsync both ways, in place, with deletion, and finds nothing left to do" works
claim "rsync of a request onto ctl/exec, by a renamed file" saves onto --times
claim "rsync -a of it" saves onto -a
claim "rsync --inplace of it" saves onto --inplace
claim "rsync reports what failed" reports
end
