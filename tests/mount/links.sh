#!/bin/sh
. "$TESTS/lib/mount.sh"
# Hard links, symbolic links, FIFOs and sockets.

hard() {
	echo one >h1
	expect 0 link h1 h2
	same "2 2" "$("$TOOL" stat h1 nlink) $("$TOOL" stat h2 nlink)"
	same "$("$TOOL" stat h1 ino)" "$("$TOOL" stat h2 ino)"
	echo two >>h2
	same 'one
two' "$(cat h1)"
	chmod 600 h1
	same 0600 "$("$TOOL" stat h2 mode)"
	expect 0 unlink h1
	same 1 "$("$TOOL" stat h2 nlink)"
	expect EEXIST link h2 README.md
	expect ENOENT link missing x
	expect EPERM link src srclink
	expect EXDEV link h2 ../b/h2
}

symbolic() {
	expect 0 symlink README.md s
	same README.md "$(readlink s)"
	same hello "$(cat s)"
	same "symlink 9" "$("$TOOL" lstat s type size)"
	expect EEXIST symlink x s
	expect 0 symlink nowhere dangling
	expect ENOENT open dangling O_RDONLY
	expect 0 symlink src dir
	expect 0 stat dir/main.c
	expect ENOTDIR open s/x O_RDONLY
	expect 0 symlink loop loop
	expect ELOOP open loop O_RDONLY
	expect 0 unlink s
	same hello "$(cat README.md)"
}

inner_links_of_all_forms() {
	mkdir -p x/y
	expect 0 symlink ../../README.md x/y/up
	same hello "$(cat x/y/up)"
	expect 0 symlink "$MNT/a/README.md" absolute
	same hello "$(cat absolute)"
}

fifos() {
	expect 0 mknod pipe f 0600
	same "fifo 0600" "$("$TOOL" lstat pipe type mode)"
	expect 0 mknod plain r 0640
	same "regular 0640" "$("$TOOL" stat plain type mode)"
	expect 0 unlink pipe
}

sockets() {
	expect 0\|EPERM mknod sock s
	rm -f sock
	expect 0\|EPERM\|EINVAL bind here.sock
	rm -f here.sock
}

claim "mounting" mount_repo
claim "two sandboxes" box a b
cd "$MNT/a" || exit 1
claim "hard links: one inode, one count, EPERM for directories, EXDEV between sandboxes" hard
claim "symbolic links: target kept to the byte, dangling, loops" symbolic
claim "links within the sandbox, relative and absolute, are followed" inner_links_of_all_forms
claim "mknod makes FIFOs and plain files" fifos
claim "sockets are made or refused, never a hang" sockets
cd "$ROOM" || exit 1
finish
