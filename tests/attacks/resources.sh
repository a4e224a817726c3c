#!/bin/sh
. "$TESTS/lib/mount.sh"
. "$TESTS/lib/attack.sh"
# Taking everything.

fork_bomb() {
	out=$(talk a/ctl/exec '{"argv":["./attack","processes"],"limits":{"procs":20}}')
	n=$(printf '%s' "$out" | "$TOOL" json stdout | cut -d' ' -f1 | head -n 1)
	[ "$n" -lt 20 ] || unsafe "$n processes"
}

fork_bombs_do_not_share_a_limit() {
	id=$("$TOOL" result "$MNT/b/ctl/spawn" \
		sh -c 'i=0; while [ $i -lt 15 ]; do sleep 1000 & i=$((i + 1)); done; : >up; wait')
	until [ -e "$MNT/b/up" ]; do tick; done
	out=$(talk a/ctl/exec '{"argv":["./attack","processes"],"limits":{"procs":10}}')
	n=$(printf '%s' "$out" | "$TOOL" json stdout | cut -d' ' -f1 | head -n 1)
	echo "$id" >"$MNT/b/ctl/kill"
	cat "$MNT/b/ctl/jobs/$id/wait" >/dev/null
	[ "$n" -gt 5 ] || unsafe "only $n processes"
}

memory_hog() {
	out=$(talk a/ctl/exec '{"argv":["./attack","memory","512"],"limits":{"memory_mb":256}}')
	# Where a cgroup limits it, what it uses ends it and not what it asks for.
	if [ "$("$TOOL" json memory <"$MNT/a/ctl/policy")" = cgroup ]; then
		like '137 oom*' "$(cat "$MNT/a/ctl/status")"
	else
		same ENOMEM "$(printf '%s' "$out" | "$TOOL" json stdout | head -n 1)"
	fi
}

file_filler() {
	talk a/ctl/exec '{"argv":["head","-c","5000000","/dev/zero"],"limits":{"file_mb":1}}' >/dev/null
	talk a/ctl/exec \
		'{"argv":["sh","-c","exec head -c 5000000 /dev/zero >big"],"limits":{"file_mb":1}}' >/dev/null
	like '153 signaled*' "$(cat "$MNT/a/ctl/status")"
	same 1048576 "$(wc -c <"$MNT/a/big")"
}

busy_loop() {
	talk a/ctl/exec \
		'{"argv":["sh","-c","while :; do :; done"],"limits":{"cpu_s":1},"timeout_ms":8000}' >/dev/null
	like '152 signaled*' "$(cat "$MNT/a/ctl/status")"
}

all_descriptors() {
	answers 'some EMFILE' files
}

# start_attack NAME ARGUMENT...: as a job of a's, which has made the file up when it is at it.
start_attack() {
	attack_job=$("$TOOL" result "$MNT/a/ctl/spawn" ./attack "$@" up)
	until [ -e "$MNT/a/up" ]; do tick; done
}

end_attack() {
	echo "$attack_job" >"$MNT/a/ctl/kill"
	cat "$MNT/a/ctl/jobs/$attack_job/wait" >/dev/null
	rm -f "$MNT/a/up"
}

descriptors_in_flight() {
	start_attack in-flight
	have=$(run b echo fine) || true
	end_attack
	[ "$have" = fine ] || unsafe "no command runs any more"
}

signals_that_wait() {
	start_attack signals
	have=$("$ROOM/bin/attack" queue)
	end_attack
	[ "$have" = 0 ] || unsafe "$have: the user's other processes can queue none"
}

inotify_instances() {
	cp "$ROOM/bin/attack" "$MNT/b/attack"
	start_attack inotifies
	have=$(run b ./attack inotify)
	end_attack
	rm "$MNT/b/attack"
	same 0 "$have" || unsafe "$have: the user's other processes can have none"
}

output_flood() {
	out=$(talk a/ctl/exec \
		'{"argv":["head","-c","3000000","/dev/zero"],"limits":{"output_bytes":100000}}')
	same true "$(printf '%s' "$out" | "$TOOL" json stdoutTruncated)"
	same 100000 "$(wc -c <"$MNT/a/ctl/stdout")"
}

deaf_and_forked() {
	talk a/ctl/exec '{"argv":["sh","-c","trap \"\" TERM INT HUP; (setsid sh -c \"trap : TERM HUP; '\
'sleep '$LONG'; sleep '$LONG'\" &); sleep '$LONG'"],"timeout_ms":200}' >/dev/null
	like '124 timeout*' "$(cat "$MNT/a/ctl/status")"
	refuse "$TOOL" pids "$LONG"
}

no_core_dump() {
	run a sh -c 'ulimit -c 100; kill -SEGV $$' || true
	same '' "$(find "$MNT/a" -name 'core*')"
	stays_at_one ':'
}

# stays_at_one SCRIPT: after it the limit is one byte, with which the kernel
# starts no program of core_pattern's.
stays_at_one() {
	set -- $(run a sh -c "$1"' && grep -i "core file size" /proc/self/limits' | sed 's/.*size *//')
	case $(ulimit -Hc) in
	0) same '0 0 bytes' "$*" ;;
	*) same '1 1 bytes' "$*" ;;
	esac
}

core_for_the_host() {
	stays_at_one 'ulimit -c 0'
	stays_at_one 'ulimit -c unlimited'
	stays_at_one './attack core-limit 0 >/dev/null'
}

claim "mounting" mount_victims
attack "limits" "a fork bomb ends at its limit" fork_bomb
attack "root:run_as user_ns" "a fork bomb of host uid 0, whom no limit of processes binds" fork_bomb
attack "user_ns" "one sandbox uses up the processes of another" fork_bombs_do_not_share_a_limit
attack "limits" "a memory hog ends at its limit" memory_hog
attack "limits" "a file filler ends at its limit" file_filler
attack "limits" "a busy loop ends at its limit" busy_loop
attack -kernel "all descriptors" all_descriptors
attack "user:limits" "so many descriptors under way that others can send none" descriptors_in_flight
attack "user:limits" "so many signals waiting that others' have no room" signals_that_wait
attack "user_ns" "so many inotify instances that others have none" inotify_instances
attack "seccomp" "so many asynchronous contexts that the machine has none" answers ENOSYS io_setup
attack -daemon "a flood of output is cut and flagged" output_flood
attack -daemon "deaf to SIGTERM and double-forked" deaf_and_forked
attack "limits" "a core dump" no_core_dump
attack "limits seccomp" "a core dump for a program of the host's" core_for_the_host
withstood
