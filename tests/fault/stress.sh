#!/bin/sh
. "$TESTS/lib/mount.sh"
# All that is done with sandboxes, by many processes at once on the same few. SBX_STRESS says for
# how many seconds: 20, and 60 where CI is set.

all_at_once() {
	python3 "$TESTS/fault/stress.py" "$MNT" "${SBX_STRESS:-20}" 12
}

# The daemon, asked by its own sandbox, has not lost count of anything.
all_is_well() {
	for name in s1 s2 s3 s4; do
		teardown $name
	done
	box after
	same well "$(run after echo well)"
	same README.md "$(cd "$MNT/after" && ls README.md)"
	[ ! -s "$MNT/ctl/pending" ] || cat "$MNT/ctl/pending"
}

# Branches with snapshots stay in the source.
end_all() {
	teardown_all
	unmount
	git -C "$REPO" fsck --no-progress --no-dangling
	same '' "$(find "$STATE/trees" "$STATE/trash" -mindepth 1 -maxdepth 1)"
	same 1 "$(git -C "$REPO" worktree list | wc -l)"
}

mount_repo || exit 1
claim "create, exec, kill, rename, remove and fork at once: each has an answer" all_at_once
claim "and then there is a sandbox as ever" all_is_well
claim "teardown and unmounting, with no complaint of the daemon" end_all
