#!/bin/sh
. "$TESTS/lib/mount.sh"
. "$TESTS/lib/attack.sh"
# What the daemon's environment and descriptors hold.

GITHUB_TOKEN=a-token-of-host AWS_SECRET_ACCESS_KEY=key-of-host SSH_AUTH_SOCK=$ROOM/agent
HTTPS_PROXY=http://user:pass@proxy.example LD_PRELOAD_OF_HOST=x
export GITHUB_TOKEN AWS_SECRET_ACCESS_KEY SSH_AUTH_SOCK HTTPS_PROXY LD_PRELOAD_OF_HOST

nothing_in_the_environment() {
	run a sh -c 'env; cat /proc/[0-9]*/environ 2>/dev/null' | tr '\0' '\n' >"$ROOM/env"
	refuse grep -E 'of-host|AWS_|SSH_AUTH|proxy.example|_OF_HOST' "$ROOM/env"
}

nothing_in_policy_and_logs() {
	cat "$MNT/a/ctl/policy" "$MNT/a/ctl/info" "$MNT/ctl/config" "$LOG" >"$ROOM/told"
	refuse grep -E 'of-host' "$ROOM/told"
}

loader_variables_stay_inside() {
	refuse "$TOOL" exec "$MNT/a/ctl/exec" ./no-such-program
	talk a/ctl/exec '{"argv":["true"],"env":{"LD_PRELOAD":"/nowhere.so"}}' >/dev/null
	like '0 exited*' "$(cat "$MNT/a/ctl/status")"
}

bad_keys_are_refused() {
	for key in 'A=B' '1A' 'A B' ''; do
		talk a/ctl/exec "{\"argv\":[\"true\"],\"env\":{\"$key\":\"x\"}}" >"$ROOM/talked" 2>&1 || true
		error_says a 'Invalid env key'
	done
}

# The daemon is started with another one open.
with_a_descriptor() {
	cat >"$ROOM/bin/holding" <<END
#!/bin/bash
exec 30</etc/hostname
exec "$SANDBOXFS" "\$@"
END
	chmod 755 "$ROOM/bin/holding"
}

three_descriptors() {
	[ "$(id -u)" != 0 ] || [ -e "/proc/$(daemon_pid)/fd/30" ]
	same '0 1 2 3' "$(run a ls /proc/self/fd | tr '\n' ' ' | sed 's/ $//')"
}

# The kernel keeps 15 bytes of a process's name. Only root may look.
runner_has_nothing() {
	[ "$(id -u)" = 0 ] || return 0
	runners=0
	for pid in $("$TOOL" pids "$MNT"); do
		[ "$(cat "/proc/$pid/comm")" = sandboxfs-runne ] || continue
		runners=$((runners + 1))
		same '' \
			"$(tr '\0' '\n' <"/proc/$pid/environ" | grep -v '^[A-Z]*SAN_OPTIONS=\|^SANDBOXFS_WITHOUT=')"
		refuse [ -e "/proc/$pid/fd/30" ]
	done
	[ $runners -gt 0 ]
}

nothing_in_error() {
	refuse talk_create '{"name":"x","base":"token-of-host-no"}'
	refuse run a ./no-such-program
	refuse grep -F "$GITHUB_TOKEN" "$MNT/ctl/error" "$MNT/a/ctl/error"
	cat "$MNT/a/ctl/log" "$MNT/a/ctl/error" "$MNT/ctl/list.json" >"$ROOM/told"
	refuse grep -E "$GITHUB_TOKEN|$AWS_SECRET_ACCESS_KEY" "$ROOM/told"
}

nothing_in_command_lines() {
	for pid in $("$TOOL" pids "$MNT"); do
		tr '\0' '\n' <"/proc/$pid/cmdline"
	done >"$ROOM/told"
	refuse grep -E "$GITHUB_TOKEN|$AWS_SECRET_ACCESS_KEY" "$ROOM/told"
}

talk_create() {
	printf '%s\n' "$1" >"$MNT/ctl/create"
}

user_is_who_runs() {
	same "$(run a id -un)" "$(run a sh -c 'echo $USER')"
	like "$STATE/home/*" "$(run a sh -c 'echo $HOME')"
	refuse run a ls "$ROOM/home"
}

with_a_descriptor
SANDBOXFS=$ROOM/bin/holding
claim "mounting" mount_victims
attack "environment" "secrets in the environment" nothing_in_the_environment
attack -daemon "secrets in policy, info, config and log" nothing_in_policy_and_logs
attack -daemon "secrets in errors and lists" nothing_in_error
attack -daemon "secrets in command lines" nothing_in_command_lines
attack -daemon "variables of the loader" loader_variables_stay_inside
attack -daemon "keys that are no keys" bad_keys_are_refused
attack -daemon "descriptors of the daemon" three_descriptors
holds "the process that runs commands has neither environment nor descriptors of the daemon" \
	runner_has_nothing
holds "USER and HOME are the command's own" user_is_who_runs
withstood
