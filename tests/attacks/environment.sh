#!/bin/sh
. "$TESTS/lib/mount.sh"
. "$TESTS/lib/attack.sh"
# What the daemon's environment and descriptors hold.

GITHUB_TOKEN=token-of-host AWS_SECRET_ACCESS_KEY=key-of-host SSH_AUTH_SOCK=$ROOM/agent
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

three_descriptors() {
	exec 8<"$ROOM/home/secret"
	same '0 1 2 3' "$(run a ls /proc/self/fd | tr '\n' ' ' | sed 's/ $//')"
	exec 8<&-
}

user_is_who_runs() {
	same "$(run a id -un)" "$(run a sh -c 'echo $USER')"
	like "$STATE/home/*" "$(run a sh -c 'echo $HOME')"
	refuse run a ls "$ROOM/home"
}

claim "mounting" mount_victims
claim "attack: secrets in the environment" nothing_in_the_environment
claim "attack: secrets in policy, info, config and log" nothing_in_policy_and_logs
claim "attack: variables of the loader" loader_variables_stay_inside
claim "attack: keys that are no keys" bad_keys_are_refused
claim "attack: descriptors of the daemon" three_descriptors
claim "USER and HOME are the command's own" user_is_who_runs
claim "the host is as it was" still_fine
finish
