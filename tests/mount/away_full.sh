#!/bin/sh
. "$TESTS/lib/mount.sh"
# A machine whose disk is full: who writes is told so, what is removed makes room at once, and what
# was written before arrives then. Who is not root cannot mount such a disk.

on_a_small_disk() {
	mkdir -p "$DIRS"
	mount -t tmpfs -o size=8m none "$DIRS"
	mount_repo
}

fill() {
	refuse run a sh -c 'head -c 20000000 /dev/zero >hog'
	[ -s "$MNT/a/hog" ]
}

removed() {
	fill
	rm "$MNT/a/hog"
	same works "$(run a echo works)"
	refuse test -e "$(machine a)/tree/hog"
}

moved() {
	fill
	mv "$MNT/a/hog" "$MNT/a/big"
	same 0 "$(fsync_errno "$MNT/a")"
	run a rm big
	expect ENOENT stat "$MNT/a/big"
}

# It is in a batch that has no room, before the one that makes some.
written_before() {
	fill
	head -c 100000 /dev/urandom >"$MNT/a/new"
	same ENOSPC "$(fsync_errno "$MNT/a/new")"
	expect ENOSPC write "$MNT/a/ctl/exec" O_WRONLY 'touch never\n'
	error_says a 'ENOSPC: '
	rm "$MNT/a/hog"
	run a cat new >"$ROOM/new"
	cmp "$ROOM/new" "$MNT/a/new"
	same 0 "$(fsync_errno "$MNT/a/new")"
	refuse test -e "$(machine a)/tree/hog"
	expect ENOENT stat "$MNT/a/never"
}

if [ "$(id -u)" != 0 ]; then
	claim "mounting" mount_repo
	finish
	exit
fi
claim "mounting" on_a_small_disk
claim "a sandbox" box a
claim "what the host removes makes room at once" removed
claim "what needs no room is done" moved
claim "who writes is told ENOSPC until something is removed; then it arrives" written_before
finish
umount "$DIRS"
