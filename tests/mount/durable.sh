#!/bin/sh
. "$TESTS/lib/mount.sh"
# What the host synced, or wrote seconds ago, outlives kill -9 of the daemon where changes are in
# memory (disk_mb). That they outlive a power cut, and elsewhere, is shown by fault/power.

# kept NAME/FILE TEXT: after kill -9 and another mount.
kept() {
	kill_daemon
	remount
	same "$2" "$(cat "$MNT/$1")"
}

synced_file() {
	box a
	echo synced >"$MNT/a/file"
	sync "$MNT/a/file"
	kept a/file synced
	echo other >"$MNT/a/file"
	sync -d "$MNT/a/file"
	kept a/file other
}

synced_directory() {
	mkdir -p "$MNT/a/deep/er"
	echo named >"$MNT/a/deep/er/file"
	mv "$MNT/a/README.md" "$MNT/a/deep/moved"
	rm "$MNT/a/Makefile"
	sync "$MNT/a/deep"
	kept a/deep/er/file named
	same hello "$(cat "$MNT/a/deep/moved")"
	expect ENOENT stat "$MNT/a/Makefile"
	expect ENOENT stat "$MNT/a/README.md"
}

synced_write() {
	expect 0 write "$MNT/a/at-once" 'O_WRONLY|O_CREAT|O_SYNC' written
	kept a/at-once written
}

synced_beside_a_command() {
	"$TOOL" result "$MNT/a/ctl/spawn" sleep "$LONG" >"$ROOM/spawned"
	echo beside >"$MNT/a/beside"
	sync "$MNT/a/beside"
	kept a/beside beside
}

# Of the saved layer, where the mount cannot be asked before the kill.
await_saved() {
	until [ "$(cat "$STATE"/trees/a-*/upper/"$1" 2>/dev/null)" = "$2" ]; do
		tick "$1 was not saved"
	done
}

written_a_while_ago() {
	echo late >"$MNT/a/late"
	await_saved late late
	rm "$MNT/a/late"
	await_saved late ''
	"$TOOL" result "$MNT/a/ctl/spawn" sleep "$LONG" >"$ROOM/spawned"
	echo later >"$MNT/a/late"
	await_saved late later
	kept a/late later
}

# Where the state directory takes nothing more.
lock_state() {
	state_of_a=$(ls -d "$STATE"/trees/a-*)
	if [ "$(id -u)" = 0 ]; then
		mount -t tmpfs -o ro,size=64k none "$state_of_a"
	else
		chmod 500 "$state_of_a"
	fi
}

unlock_state() {
	if [ "$(id -u)" = 0 ]; then
		umount "$state_of_a"
	else
		chmod 755 "$state_of_a"
	fi
}

failing() {
	echo failing >"$MNT/a/failing"
	lock_state
	sync "$MNT/a/failing" 2>"$ROOM/failing.log" && echo synced >"$ROOM/failing.log"
	unlock_state
	grep -qE 'Read-only file system|Permission denied' "$ROOM/failing.log"
	error_says a "$(sed 's/.*: //' "$ROOM/failing.log")"
	sync "$MNT/a/failing"
	kept a/failing failing
}

claim "mounting" mount_repo disk_mb=40
claim "a file that was synced outlives kill -9 at once" synced_file
claim "a directory that was synced does, with all that is below it" synced_directory
claim "what was written with O_SYNC does" synced_write
claim "what was synced while a command runs does" synced_beside_a_command
claim "what was written is saved by itself, also while a command runs" written_a_while_ago
claim "a sync that cannot save says why, and the next one can" failing
finish
