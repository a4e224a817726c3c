#!/bin/sh
. "$TESTS/lib/mount.sh"
# -o controls=inline: files and controls on one connection, for a container that sees MNT alone.

one_mount() {
	same 1 "$(awk -v p="$ROOM/" 'index($5, p) == 1' /proc/self/mountinfo | wc -l)"
	same directory "$("$TOOL" lstat "$MNT/a/ctl" type)"
	same directory "$("$TOOL" lstat "$MNT/ctl" type)"
}

works() {
	same hi "$(run a echo hi)"
	echo x >"$MNT/a/f"
	same x "$(run a cat f)"
	run a sh -c 'echo y >>f'
	same 'x
y' "$(cat "$MNT/a/f")"
	same 'mine' "$("$TOOL" run "$MNT/a/ctl/run" echo mine)"
	is_away || same 0 "$(git -C "$MNT/a" status --porcelain | grep -vc 'f$')"
	refuse sh -c "ls -a '$MNT/a' | grep -x ctl"
}

claim "mounting" mount_repo controls=inline
claim "mkdir" box a
claim "there is one mount, ctl is a directory in it" one_mount
claim "files, exec and run work" works
claim "an unlinked file works until it is closed" expect 0 unlinked "$MNT/a/gone"
claim "shared maps" expect 0 mmap "$MNT/a/mapped"
claim "O_APPEND from 4 processes loses nothing" expect 0 append-race "$MNT/a/appended" 4 200
finish
