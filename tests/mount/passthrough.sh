#!/bin/sh
. "$TESTS/lib/mount.sh"
# -o io=passthrough: where it can be had, what differs from the page cache; else that it is refused.

refused() {
	like '*FUSE passthrough*io=passthrough *' "$("$SANDBOXFS" --doctor)"
	refused_mount 'io=passthrough ' none "$MNT" -o "state_dir=$STATE,io=passthrough"
}

if ! "$SANDBOXFS" --doctor | grep -q '^ok .*FUSE passthrough'; then
	claim "where it cannot be had, a mount is refused with a sentence" refused
	exit 0
fi

says_so() {
	like '*"io":*"passthrough"*' "$(cat "$MNT/a/ctl/info")"
	like '*"io":*"passthrough"*' "$(cat "$MNT/ctl/config")"
}

# Nobody answers: what is read and written does not pass through the daemon.
without_the_daemon() {
	run a sh -c 'head -c 300000 /dev/zero | tr "\0" x >large'
	exec 8<"$MNT/a/large" 9<>"$MNT/a/written"
	echo first >&9 # the first write has the kernel look for capabilities
	frozen sh -c 'head -c 300000 <&8 | cmp - "$1" && echo through >&9' sh "$ROOM/large" ||
		fail "the daemon was asked"
	same 'first through' "$(echo $(cat "$MNT/a/written"))"
	same 'first through' "$(echo $(run a cat written))"
}

# The first open decides for all: each order works, and each reader sees what was written.
kinds_mix() {
	echo one >"$MNT/a/m"
	teardown_cache
	exec 8<"$MNT/a/m"
	echo two >>"$MNT/a/m"
	same 'one two' "$(echo $(cat <&8))"
	exec 9<>"$MNT/a/m"
	exec 8<&-
	echo three >>"$MNT/a/m"
	same 'one two three' "$(echo $(cat "$MNT/a/m"))"
	exec 9<&-
	same 'one two three' "$(echo $(cat "$MNT/a/m"))"
	same 'one two three' "$(echo $(run a cat m))"
}

# More files than ids are kept of, so that the others are read through the cache again.
teardown_cache() {
	mkdir -p "$MNT/a/many"
	(cd "$MNT/a/many" && for i in $(seq 1100); do : >>"$i"; done)
}

after_the_cache() {
	printf aaaa >"$MNT/a/c"
	for text in bbbb cccc dddd; do
		teardown_cache
		cat "$MNT/a/c"
		printf $text 1<>"$MNT/a/c"
		teardown_cache
		same $text "$(cat "$MNT/a/c")"
	done
}

programs() {
	cp "$(command -v sleep)" "$MNT/a/program"
	run a ./program 0
	exec 9>>"$MNT/a/program"
	like '*ETXTBSY*' "$(run a ./program 0 2>&1 || true) $(cat "$MNT/a/ctl/error")"
	exec 9>&-
	run a ./program 0
	"$TOOL" result "$MNT/a/ctl/spawn" ./program "$LONG" >"$ROOM/id"
	expect ETXTBSY open "$MNT/a/program" O_WRONLY
	expect 0 open "$MNT/a/program" O_RDONLY
	echo 1 >"$MNT/a/ctl/kill"
}

set_id() {
	echo x >"$MNT/a/s"
	find "$STATE" -name s -exec chmod 6755 {} +
	run a true # the kernel asks again
	same 6755 "$("$TOOL" stat "$MNT/a/s" mode)"
	echo y >>"$MNT/a/s"
	same 0755 "$("$TOOL" stat "$MNT/a/s" mode)"
}

gone_while_open() {
	box b
	echo x >"$MNT/b/f"
	exec 9<>"$MNT/b/f"
	teardown b
	exec 9>&-
	refuse test -e "$MNT/b"
}

# The backing files are then those of a stacked file system.
on_an_overlay() {
	(cd "$ROOM" && mkdir lower upper work over)
	mount -t overlay -o "lowerdir=$ROOM/lower,upperdir=$ROOM/upper,workdir=$ROOM/work" overlay \
		"$ROOM/over" || {
		echo "no overlay can be mounted here"
		return 0
	}
	STATE=$ROOM/over/state
	mount_none io=passthrough,isolation=none
	box a
	(without_the_daemon)
	tear_and_unmount
	umount "$ROOM/over"
}

head -c 300000 /dev/zero | tr '\0' x >"$ROOM/large"
claim "mounting" mount_repo io=passthrough
claim "mkdir" box a
claim "info and config say so" says_so
claim "large files and files open for writing do not pass through the daemon" without_the_daemon
claim "a file open in one way is opened by others" kinds_mix
claim "the page cache does not show what was there before" after_the_cache
claim "a program can be run once it is written, and not be written while it runs" programs
claim "opening for writing takes setuid and setgid away" set_id
claim "an unlinked file works until it is closed" expect 0 unlinked "$MNT/a/gone"
claim "shared maps" expect 0 mmap "$MNT/a/mapped"
claim "O_APPEND from 4 processes loses nothing" expect 0 append-race "$MNT/a/appended" 4 200
claim "a sandbox is torn down while a file of it is open" gone_while_open
claim "unmounting" tear_and_unmount
claim "mounting with the controls inline" mount_repo io=passthrough,controls=inline
claim "mkdir" box a
claim "no daemon is needed there either" without_the_daemon
claim "unmounting" tear_and_unmount
claim "nor above overlayfs" on_an_overlay
