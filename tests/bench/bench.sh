#!/bin/sh
. "$TESTS/lib/mount.sh"
# tests/bench/run does what it says; nothing here depends on how fast anything is.

BUILD=$ROOM/build
export BUILD

bench() {
	"$TESTS/bench/run" --quick --rounds 2 "$@"
}

nothing_left() {
	same '' "$(ls "$ROOM/tmp")"
	refuse grep -F "$ROOM/tmp" /proc/self/mountinfo
}

# the reference is 1 by definition, so that a row that was not measured cannot pass for one that was
has_row() {
	python3 - "$ROOM/bench.json" "$@" <<-'PY'
		import json, sys
		rows = {row["name"]: row for row in json.load(open(sys.argv[1]))["rows"]}
		row = rows[sys.argv[2]]
		for way in sys.argv[3:]:
		    assert len(row["ways"][way]["values"]) == 2, row
		if row["reference"] in row["ways"]:
		    assert row["ways"][row["reference"]]["ratio"] == 1, row
	PY
}

measures() {
	bench --json "$ROOM/bench.json" exec16 idle stat create >"$ROOM/table"
	has_row stat native sandboxfs
	has_row create native sandboxfs inside
	has_row exec16 posix_spawn sandboxfs
	has_row idle RSS 'ls MNT' 'disk each'
	grep -q '^stat: ' "$ROOM/table"
	grep -q 'aim: sandboxfs >= 0.9 x native: [0-9.e-]*, ' "$ROOM/table"
	nothing_left
}

names_what_is_missing() {
	mkdir -p "$ROOM/few"
	for tool in python3 sh env git sync mount umount unshare losetup mkfs.ext4 findmnt fusermount3 \
		chmod sleep; do
		path=$(command -v $tool) || continue
		ln -sf "$path" "$ROOM/few/$tool"
	done
	PATH=$ROOM/few bench --rounds 1 rg >"$ROOM/table"
	grep -q 'bindfs is not installed\|rg is not installed' "$ROOM/table"
	grep -q 'aim: sandboxfs >= 0.8 x native: not measured' "$ROOM/table"
	nothing_left
}

passes_options_on() {
	bench exec16 -- -o nonsense=1 >"$ROOM/table"
	grep -q 'sandboxfs .* unknown key "nonsense"' "$ROOM/table"
	nothing_left
}

refuses() {
	refuse bench no-such-row 2>"$ROOM/said"
	grep -q 'no row no-such-row' "$ROOM/said"
}

# of_the_run WORD: processes of a run by what is in their arguments. In brackets,
# so that grep does not find itself.
of_the_run() {
	grep -lazE "$ROOM/tmp/sandboxfs-benc[h].*$1" /proc/[0-9]*/cmdline 2>/dev/null ||
		true # some end meanwhile
}

# Ended in the middle by SIGNAL; after KILL only the directory may be left.
ended_early() {
	"$TESTS/bench/run" --quick --rounds 50 mkdir &
	bench=$!
	until [ -n "$(of_the_run mnt-large)" ]; do
		kill -0 $bench
		tick
	done
	kill "$1" $bench
	wait $bench || true
	while [ -n "$(of_the_run '')" ]; do tick; done
	refuse grep -F "$ROOM/tmp" /proc/self/mountinfo
	[ "$1" = -KILL ] || nothing_left
	chmod -R u+rwX "$ROOM/tmp"
	rm -rf "$ROOM"/tmp/*
}

claim "rows are measured for every way, in every round" measures
claim "what is not installed is said, and its rows are skipped" names_what_is_missing
claim "options after -- reach sandboxfs" passes_options_on
claim "a row that there is not is refused" refuses
claim "ended by TERM it leaves nothing" ended_early -TERM
claim "ended by KILL it leaves no process and no mount" ended_early -KILL
