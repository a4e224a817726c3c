#!/bin/sh
. "$TESTS/lib/mount.sh"
# Nothing reachable through a sandbox leads out of it.

refused_links() {
	for target in /etc/passwd / /etc .. ../b ../b/README.md src/../../b "$MNT" "$MNT/b" \
		"$MNT/b/README.md" \
		"$MNT/a/../b" /proc/self/root ../../../etc/passwd "$MNT/ax" "$MNT/ctl" ../ctl ../a/../b; do
		expect EACCES symlink "$target" escape
		expect ENOENT lstat escape
	done
	same 0 "$(find . -name 'escape*' | wc -l)"
}

refused_from_below() {
	mkdir -p deep/er
	expect 0 symlink ../../README.md deep/er/fine
	expect EACCES symlink ../../../b deep/er/escape
	expect 0 symlink ./../README.md deep/fine2
	expect 0\|EACCES symlink ../deep/../README.md deep/fine3
	expect 0 symlink nowhere/yet deep/dangling
}

planted_by_a_command() {
	run a ln -s /etc/passwd planted
	run a ln -s /etc planted.d
	run a ln -s ../b planted.b
	run a ln -s / planted.root
	expect EACCES open planted O_RDONLY
	expect EACCES open planted O_WRONLY\|O_TRUNC
	expect EACCES open planted.d/passwd O_RDONLY
	expect EACCES open planted.b/README.md O_RDONLY
	expect EACCES open planted.root/etc/passwd O_RDONLY
	expect EACCES open planted.d/new O_CREAT\|O_WRONLY
	expect EACCES stat planted
	expect EACCES truncate planted.b/README.md 0
	same hello "$(cat ../b/README.md)"
	same symlink "$("$TOOL" lstat planted type)"
	rm planted planted.d planted.b planted.root
}

planted_through_a_link() {
	run a sh -c 'mkdir way; ln -s /etc way/out; ln -s way/out in'
	expect EACCES open in/passwd O_RDONLY
	expect EACCES open way/out/passwd O_RDONLY
	rm -rf way in
}

dangling_creation() {
	run a ln -s "$ROOM/tmp/made-outside" dangle
	expect EACCES open dangle O_CREAT\|O_WRONLY
	expect ENOENT stat "$ROOM/tmp/made-outside"
	rm dangle
}

moved_links() {
	mkdir -p l/l
	expect 0 symlink ../../tmp l/l/up
	expect ENOENT stat l/l/up
	# The same text leads out, to what is there, when the link stands higher.
	expect 0 rename l/l/up up
	expect EACCES open up O_RDONLY
	expect 0 rename up l/l/up
	mkdir l/l/d
	expect 0 symlink ../../../tmp l/l/d/up
	expect ENOENT stat l/l/d/up
	expect 0 rename l/l/d d
	expect EACCES stat d/up
}

dotdot_ends_at_the_mount() {
	same "$("$TOOL" stat "$MNT" ino)" "$("$TOOL" stat .. ino)"
	expect 0 open ../b/README.md O_RDONLY
}

devices() {
	expect EPERM mknod dev c
	expect EPERM mknod blk b
	expect ENOENT lstat dev
}

hardlinks_out() {
	expect EXDEV link ../b/README.md stolen
	expect EXDEV link /etc/passwd stolen
	expect EXDEV\|EPERM link ctl/stdout stolen
}

claim "mounting" mount_repo
claim "two sandboxes" box a b
cd "$MNT/a" || exit 1
claim "symlink with a target outside: EACCES" refused_links
claim "depth counts: what leads out from here may be fine below, and only that" refused_from_below
claim "a link that a command planted is not followed: EACCES" planted_by_a_command
claim "nor through another link" planted_through_a_link
claim "nor to create a file outside" dangling_creation
claim "nor after a rename gave it another meaning" moved_links
claim ".. of a sandbox is the mount" dotdot_ends_at_the_mount
claim "device nodes: EPERM" devices
claim "hard links do not leave or enter" hardlinks_out
cd "$ROOM" || exit 1
finish
