#!/bin/sh
. "$TESTS/lib/mount.sh"
# Commands elsewhere do not outlive the daemon that has started them.

# A command in a, and what it has started in a session of its own: first, second.
begin() {
	rm -f "$MNT/a/first" "$MNT/a/second"
	# shellcheck disable=SC2016
	"$TOOL" result "$MNT/a/ctl/spawn" sh -c 'setsid sh -c '\''echo $$ >second.new
		mv second.new second
		exec sleep "$0"'\'' "$0" &
		echo $$ >first
		exec sleep "$0"' "$LONG" >/dev/null
	far=$(cat "$MNT/a/ctl/workdir")
	until [ -s "$far/first" ] && [ -s "$far/second" ]; do tick; done
	first=$(cat "$far/first")
	second=$(cat "$far/second")
	goes_on "$first"
	goes_on "$second"
}

goes_on() {
	grep -q '^State:.*[SDR] ' "/proc/$1/status" 2>/dev/null
}

unmounted() {
	begin
	unmount
	! goes_on "$first"
	! goes_on "$second"
	remount
}

# The end is what the next mount does first of all, and tells.
killed() {
	begin
	kill_daemon
	goes_on "$first"
	goes_on "$second"
	remount
	while goes_on "$first" || goes_on "$second"; do tick; done
	same hello "$(cat "$MNT/a/README.md")"
	timeout 60 "$TOOL" read-until "$MNT/a/ctl/events" 'commands of an earlier mount were ended'
	same ran "$(run a echo ran)"
}

claim "mounting" mount_repo
faults
claim "mkdir" box a
claim "an unmount ends them, and what they have started" unmounted
claim "so does the mount that follows a daemon that was killed" killed
finish
