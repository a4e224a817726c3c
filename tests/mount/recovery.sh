#!/bin/sh
. "$TESTS/lib/mount.sh"
# Sandboxes outlive the mount; a crashed daemon is healed; a state directory has one daemon.

reappear() {
	box a b
	echo kept >"$MNT/a/f"
	run a sh -c 'echo inside >g; ln -s g h; chmod 700 g'
	echo staged >"$MNT/a/staged"
	run a git add staged
	unmount
	same '' "$(ls -A "$MNT")"
	remount
	same 'README SKILL.md a b ctl' "$(ls "$MNT" | tr '\n' ' ' | sed 's/ $//')"
	same kept "$(cat "$MNT/a/f")"
	same inside "$(cat "$MNT/a/h")"
	same 0700 "$("$TOOL" stat "$MNT/a/g" mode)"
	same 'A  staged' "$(git -C "$MNT/a" status --porcelain staged)"
	same inside "$(run a cat g)"
}

removed_before_unmount() {
	rmdir "$MNT/b"
	unmount
	remount
	expect ENOENT stat "$MNT/b"
	box b
}

second_refused() {
	mkdir "$ROOM/other"
	if timeout 60 "$SANDBOXFS" "$REPO" "$ROOM/other" -o "state_dir=$STATE" 2>"$ROOM/refused.log"; then
		fail "a second daemon on one state directory"
	fi
	grep -q "in use by the mount at $MNT (process $(daemon_pid))" "$ROOM/refused.log"
	refuse is_mounted "$ROOM/other"
	same kept "$(cat "$MNT/a/f")"
}

# As systemd-tmpfiles asks before it clears a directory.
not_aged_away() {
	for dir in "$STATE" "$ROOM/cache/sandboxfs"; do
		[ ! -d "$dir" ] || refuse flock -n -x "$dir" true
		[ ! -d "$dir" ] || flock -n -s "$dir" true
	done
}

busy_mountpoint() {
	if timeout 60 "$SANDBOXFS" "$REPO" "$MNT" -o "state_dir=$STATE.2" 2>"$ROOM/refused.log"; then
		fail "mounted twice on one place"
	fi
	same kept "$(cat "$MNT/a/f")"
}

# Small files that were made a moment before are empty then.
power_cut() {
	kill_daemon
	links=$(find "$STATE/trees" -maxdepth 3 -name .git -type f)
	[ -n "$links" ]
	for file in $links "$REPO"/.git/worktrees/*/index "$REPO"/.git/worktrees/*/gitdir \
		"$REPO"/.git/worktrees/*/commondir "$REPO"/.git/worktrees/*/HEAD; do
		: >"$file"
	done
	remount
	same sandbox/a "$(run a git rev-parse --abbrev-ref HEAD)"
	same sandbox/a "$(git -C "$MNT/a" rev-parse --abbrev-ref HEAD)"
	git -C "$REPO" worktree list | grep -q 'sandbox/a' || fail "the source does not list it"
	same '?? g' "$(run a git status --porcelain g)"
	same '?? g' "$(git -C "$MNT/a" status --porcelain g)"
}

# What git of the host had locked was locked before the machine was started again.
power_cut_beside() {
	kill_daemon
	for file in "$STATE"/home/*/.gitconfig; do
		: >"$file"
	done
	for entry in "$REPO"/.git/worktrees/*; do
		touch -d @1 "$entry/index.lock" "$entry/HEAD.lock"
		: >"$entry/logs.lock"
	done
	remount
	same test@example.org "$(run a git config user.email)"
	git -C "$MNT/a" add g
	git -C "$MNT/a" reset -q
	for entry in "$REPO"/.git/worktrees/*; do
		same '' "$(find "$entry" -name HEAD.lock)"
		rm "$entry/logs.lock"
	done
}

# blank empty|zeros FILE...: without what was written; ext4 keeps the size where it
# has found a place for it already.
blank() {
	how=$1
	shift
	for file; do
		size=$(stat -c %s "$file")
		: >"$file"
		[ "$how" = empty ] || truncate -s "$size" "$file"
	done
}

# half empty|zeros FILE...: so are the records, and FILES in the entry of one that has work in it.
half() {
	how=$1
	shift
	box half
	box work
	echo work >"$MNT/work/file"
	kill_daemon
	blank "$how" "$STATE"/meta/half-*.json "$STATE"/meta/work-*.json
	for file; do
		blank "$how" "$REPO"/.git/worktrees/work-*/"$file"
	done
	remount
	expect ENOENT stat "$MNT/half"
	refuse git -C "$REPO" rev-parse -q --verify sandbox/half
	same '' "$(find "$REPO/.git/worktrees" "$STATE" -name 'half-*' ! -path "$STATE/log*")"
	# What may be somebody's work is left alone.
	same work "$(cat "$STATE"/trees/work-*/upper/file 2>/dev/null || cat "$STATE"/trees/work-*/file)"
	git -C "$REPO" fsck --no-progress --no-dangling
	case "$*" in
	*index) same '' "$(find "$REPO/.git/worktrees" -name 'work-*')" ;;
	*) git -C "$REPO" worktree list | grep -q 'sandbox/work' || fail "the source does not list it" ;;
	esac
	kill_daemon
	rm -r "$STATE"/meta/work-*.json
	remount
	same '' "$(find "$REPO/.git/worktrees" "$STATE" -name 'work-*' ! -path "$STATE/log*")"
	git -C "$REPO" update-ref -d refs/heads/sandbox/work
}

# Its create had returned, and nothing in it was synced.
power_cut_half() {
	for how in empty zeros; do
		half $how
		half $how locked gitdir commondir HEAD
		half $how locked gitdir commondir HEAD index
	done
}

killed_daemon_is_healed() {
	echo closed >"$MNT/a/closed"
	id=$("$TOOL" result "$MNT/a/ctl/spawn" sleep "$LONG")
	kill_daemon
	refuse "$TOOL" pids "$LONG"
	# Attributes may still come from the kernel's cache.
	expect ENOTCONN open "$MNT" O_DIRECTORY
	remount
	same closed "$(cat "$MNT/a/closed")"
	same kept "$(cat "$MNT/a/f")"
	same works "$(run a echo works)"
	same 1 "$(awk -v p="$MNT" '$5 == p' /proc/self/mountinfo | wc -l)"
}

# killed_alone [OPTIONS]: only the daemon is killed; returns when all
# that it started has ended as well.
killed_alone() {
	unmount
	remount "${1:-}"
	kill -9 "$(daemon_pid)"
	await_end
}

controls_go_with_the_daemon() {
	killed_alone controls=linked
	is_mounted
	refuse is_mounted "$STATE/ctl"
	# Who mounts at once waits for what clears up, and is not unmounted by it.
	for _ in 1 2 3 4 5; do
		remount controls=linked
		same works "$(run a echo works)"
		kill -9 "$(daemon_pid)"
	done
	await_end
	remount ''
	same works "$(run a echo works)"
	same kept "$(cat "$MNT/a/f")"
}

auto_unmount() {
	for controls in linked inline; do
		killed_alone auto_unmount,controls=$controls
		refuse is_mounted
		refuse is_mounted "$STATE/ctl"
		remount ''
	done
	same kept "$(cat "$MNT/a/f")"
}

ephemeral() {
	unmount
	remount ephemeral
	box e
	echo x >"$MNT/e/x"
	unmount
	source_is_clean
	remount ''
	same 'README SKILL.md ctl' "$(ls "$MNT" | tr '\n' ' ' | sed 's/ $//')"
}

terminated() {
	box t
	echo x >"$MNT/t/x"
	kill "$(daemon_pid)"
	await_end
	refuse is_mounted
	remount
	same x "$(cat "$MNT/t/x")"
}

# As a container that was started after the mount does.
copied_elsewhere() {
	mkfifo "$ROOM/copied"
	if [ "$(id -u)" = 0 ]; then own=-m; else own=-Urm; fi
	unshare $own sh -c 'echo >"$0"; exec sleep 1000' "$ROOM/copied" &
	holder=$!
	read -r _ <"$ROOM/copied"
	rm "$ROOM/copied"
	grep -qF " $MNT " "/proc/$holder/mountinfo"
	fusermount3 -u "$MNT"
	await_end
	code=$?
	kill $holder
	[ $code = 0 ] && ended_well && remount
}

covered_or_bound() {
	[ "$(id -u)" = 0 ] || return 0
	pid=$(daemon_pid)
	mkdir "$ROOM/bound"
	mount -t tmpfs none "$MNT"
	umount "$MNT"
	mount --bind "$MNT" "$ROOM/bound"
	umount "$MNT"
	# Mounts that come and go later are looked at after those.
	mount -t tmpfs none "$MNT"
	umount "$MNT"
	[ -s "$ROOM/bound/README" ] && kill -0 "$pid"
	umount "$ROOM/bound"
	await_end
	rmdir "$ROOM/bound"
	remount
}

claim "mounting" mount_repo
claim "unmounted while another namespace has a copy of the mount, the daemon ends" copied_elsewhere
claim "a mount that is covered, or bound elsewhere, is not over" covered_or_bound
claim "sandboxes reappear with files, modes, links, index" reappear
claim "what was torn down does not" removed_before_unmount
claim "a second daemon on the same state is refused" second_refused
claim "what clears temporary files by age finds the directories locked" not_aged_away
claim "a busy mountpoint is refused" busy_mountpoint
claim "after kill -9 the stale mount is healed, jobs are gone, files are there" \
	killed_daemon_is_healed
claim "what is mounted in the state directory goes when the daemon is killed" \
	controls_go_with_the_daemon
claim "-o auto_unmount: so does the mount" auto_unmount
claim "what leads to its repository is written again when a power cut left it empty" power_cut
claim "a sandbox whose record a power cut left empty is not there" power_cut_half
claim "who commits inside is known, and git of the host not locked out, after a power cut" \
	power_cut_beside
claim "ephemeral: everything is torn down at unmount" ephemeral
claim "SIGTERM unmounts and keeps the sandboxes" terminated
finish
