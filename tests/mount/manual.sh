#!/bin/sh
. "$TESTS/lib/mount.sh"
# The manual: each EXAMPLE is run as it stands in the page, and each control file is in one.
export PATH="$ROOM/bin:$PATH"

project() {
	new_repo "$HOME/src/project"
	mkdir "$HOME/mnt"
}

examples() {
	"$TESTS/lib/transcript.py" "$ROOM/man/$1"
}

mounted() {
	sandboxfs "$HOME/src/project" "$HOME/mnt" -o "$1"
}

unmounted() {
	fusermount3 -u "$HOME/mnt"
}

# fusermount3 returns before the daemon has ended.
ended() {
	while [ -n "$("$TOOL" pids "$HOME/mnt")" ]; do
		tick
	done
}

# Whether sandboxfs-tree(5) has an item for the control $1.
has_item() {
	grep -qE "^\.It Pa (.* , |.*/)?$1/?( ,|\$|/)" "$ROOM/man/sandboxfs-tree.5" || fail "no item: $1"
}

controls_are_described() {
	mkdir "$HOME/mnt/a" "$HOME/mnt/a/ctl/jobs/named"
	echo true >"$HOME/mnt/a/ctl/exec"
	for dir in "$HOME/mnt/ctl/" "$HOME/mnt/a/ctl/" "$HOME/mnt/a/ctl/limits" \
		"$HOME/mnt/a/ctl/jobs/named"; do
		for name in $(ls "$dir"); do
			has_item "$name"
		done
	done
	echo a >"$HOME/mnt/ctl/teardown"
}

claim "a project" project
claim "the examples of sandboxfs(1)" examples sandboxfs.1
claim "mounting" mounted track
claim "the examples of sandboxfs-tree(5)" examples sandboxfs-tree.5
claim "each control is described in sandboxfs-tree(5)" controls_are_described
claim "unmounting" unmounted
claim "the examples of sandboxfs(7)" examples sandboxfs.7
claim "the daemons have ended" ended
