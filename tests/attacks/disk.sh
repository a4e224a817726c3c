#!/bin/sh
. "$TESTS/lib/mount.sh"
. "$TESTS/lib/attack.sh"
# What a sandbox with a disk_mb writes beyond that, wherever it may write.

LIMIT=20 # MiB

mount_limited() {
	mount_victims "disk_mb=$LIMIT${SBX_WEAK:+,cow=require}"
	outside >"$ROOM/outside"
}

# KiB of the disk that the state directory and the source take. What goes meanwhile takes none.
outside() {
	{ du -sk "$STATE" "$REPO" 2>/dev/null || :; } | awk '{ kib += $1 } END { print kib }'
}

# Beyond a copy of what is on its disk, and the one that takes that one's place,
# and some records, there is nothing.
bounded() {
	kib=$(($(outside) - $(cat "$ROOM/outside")))
	[ $kib -le $((2 * LIMIT * 1024 + 4096)) ] || unsafe "$* takes $kib KiB of the disk"
}

others_go_on() {
	mkdir "$MNT/new"
	ls "$MNT" >/dev/null
	same fine "$(run new echo fine)"
	rmdir "$MNT/new"
	git -C "$REPO" branch -qD sandbox/new 2>/dev/null || :
}

# hog PLACE...: each, as the shell of a command says it, is filled again and again until there is a
# file "stop"; the others wait for none of it.
hog() {
	hog_script='g=$(git rev-parse --absolute-git-dir); n=0
		until [ -e stop ]; do
			for place; do eval "head -c 200000000 /dev/zero >\"$place/hog\"" 2>/dev/null; done
			n=$((n + 1)); [ $n -lt 2 ] || mkdir -p up
			for place; do eval "rm -f \"$place/hog\""; done
		done'
	hog_job=$("$TOOL" result "$MNT/a/ctl/spawn" sh -c "$hog_script" hog "$@")
	until [ -d "$MNT/a/up" ]; do
		bounded "$@"
		tick
	done
	for turn in 1 2 3; do
		others_go_on
		bounded "$@"
	done
	like '- running*' "$(cat "$MNT/a/ctl/jobs/$hog_job/status")"
	until : 2>/dev/null >"$MNT/a/stop"; do tick; done
	cat "$MNT/a/ctl/jobs/$hog_job/wait" >/dev/null
	rm -r "$MNT/a/stop" "$MNT/a/up"
	bounded "$@"
}

claim "mounting" mount_limited
attack "places" "fill HOME" hog '$HOME'
attack "places" "fill the repository inside" hog '$g' '$g/objects' '$g/refs'
attack "places" "fill all places where a command may write" hog . '$HOME' /tmp /dev/shm '$g' \
	'$g/objects'
withstood
