#!/bin/sh
. "$TESTS/lib/mount.sh"
# Create, exec, teardown, many times: the daemon ends where it began.
# Those that do not belong to a sandbox.
own_processes() {
	for pid in $("$TOOL" pids "$MNT"); do
		[ "$(cat "/proc/$pid/comm" 2>/dev/null)" = sandboxfs-init ] || echo "$pid"
	done | wc -l
}

# What a torn-down sandbox kept ready for its next command may still be on its way out.
processes_are() {
	until [ "$("$TOOL" pids "$MNT" | wc -l)" = "$1" ]; do tick "$1 processes"; done
}

# cycles COUNT [ctl]: torn down by rmdir, or by ctl/teardown
cycles() {
	count=$1
	shift
	"$TOOL" cycles "$MNT" 20 "$@"
	pid=$(daemon_pid)
	until_it_is_ready
	fds=$("$TOOL" fds "$pid")
	rss=$(awk '/^VmRSS/ { print $2 }' "/proc/$pid/status")
	procs=$(own_processes)
	"$TOOL" cycles "$MNT" "$count" "$@"
	fds_after=$("$TOOL" fds "$pid")
	rss_after=$(awk '/^VmRSS/ { print $2 }' "/proc/$pid/status")
	processes_are "$procs"
	echo "$count cycles: descriptors $fds -> $fds_after, RSS $rss -> $rss_after KiB" >"$ROOM/cycles"
	case $fds in
	E*) ;;
	*) [ "$fds_after" -le $((fds + 3)) ] || fail "descriptors $fds -> $fds_after" ;;
	esac
	is_sanitized ||
		[ "$rss_after" -le $((rss + 16384)) ] || fail "RSS $rss -> $rss_after"
}

nothing_is_left() {
	source_is_clean
	same 'README SKILL.md ctl' "$(ls "$MNT" | tr '\n' ' ' | sed 's/ $//')"
	same '' "$(find "$STATE" -name README.md)"
}

# One elsewhere lives for half a second.
is_away && SBX_CYCLES=$((SBX_CYCLES / 10))

claim "mounting" mount_repo
claim "$SBX_CYCLES cycles: descriptors, processes and memory end where they began" cycles \
	"$SBX_CYCLES"
[ ! -f "$ROOM/cycles" ] || echo "# $(cat "$ROOM/cycles")"
claim "torn down by ctl/teardown, and no name asked for: the same" cycles 50 ctl
[ ! -f "$ROOM/cycles" ] || echo "# $(cat "$ROOM/cycles")"
claim "no worktree, branch or directory is left" nothing_is_left
finish
