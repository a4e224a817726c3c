#!/bin/sh
. "$TESTS/lib/mount.sh"
# A daemon can be killed between any two system calls of libgit2: its lock files are
# put where such a moment leaves them.

DOT=$REPO/.git

lock() {
	mkdir -p "$(dirname "$DOT/$1")"
	: >"$DOT/$1.lock"
	[ "$(id -u)" != 0 ] || chown --reference="$REPO" "$DOT/$1.lock"
}

prepare() {
	box a b c
	run a sh -c 'echo one >f; git add f; git commit -qm one'
	echo "first" >"$MNT/a/ctl/snapshot"
	echo work >"$MNT/b/work"
	git -C "$REPO" pack-refs --all
	id_of_a=$(ls "$DOT/worktrees" | grep '^a-')
	id_of_b=$(ls "$DOT/worktrees" | grep '^b-')
}

leave() {
	prepare
	kill_daemon
	touch -d '1 hour ago' "$STATE/lock"
	lock refs/heads/sandbox/a
	lock refs/heads/sandbox/b
	lock refs/heads/sandbox/b.lock
	lock packed-refs
	lock "refs/sandboxfs/heads/$id_of_a/topic"
	lock "refs/sandboxfs/snapshots/$id_of_b/0123"
	lock "refs/sandboxfs/trash/b-20260101T000000Z"
	lock refs/remotes/origin/sandbox/a
	lock refs/heads/theirs
	lock refs/heads/sandbox/c
	touch -d '2 hours ago' "$DOT/refs/heads/sandbox/c.lock"
	remount
}

gone() {
	leave
	same "$(printf 'refs/heads/sandbox/c.lock\nrefs/heads/theirs.lock')" \
		"$(cd "$DOT" && find refs packed-refs.lock -name '*.lock' 2>/dev/null | sort)"
	rm "$DOT/refs/heads/sandbox/c.lock" "$DOT/refs/heads/theirs.lock"
}

usable() {
	run a sh -c 'echo two >f; git commit -qam two'
	same two "$(git -C "$REPO" log -1 --format=%s sandbox/a)"
	echo again >"$MNT/a/ctl/snapshot"
	run a git branch topic
	same "$(git -C "$REPO" rev-parse sandbox/a)" \
		"$(git -C "$REPO" rev-parse "$(ref_of a heads/topic)")"
	rmdir "$MNT/b"
	teardown b
	same 1 "$(grep -c '^b-' "$MNT/ctl/trash")"
	refuse git -C "$REPO" rev-parse -q --verify refs/heads/sandbox/b
}

# Another git that packs the refs of a large repository has its lock for long.
respected() {
	kill_daemon
	lock packed-refs
	: >"$DOT/packed-refs.new"
	remount
	[ -e "$DOT/packed-refs.lock" ]
	rm "$DOT/packed-refs.lock" "$DOT/packed-refs.new"
}

# After an orderly end no lock is ours.
orderly() {
	unmount
	lock refs/heads/sandbox/a
	remount
	[ -e "$DOT/refs/heads/sandbox/a.lock" ]
	rm "$DOT/refs/heads/sandbox/a.lock"
	git -C "$REPO" merge -q sandbox/a
}

claim "mounting" mount_repo
claim "locks that a killed daemon can have left are gone, others are not" gone
claim "what they kept from moving moves: commits, snapshots, teardown" usable
claim "a lock of a git that is packing refs stays" respected
claim "after an orderly end every lock stays" orderly
finish
