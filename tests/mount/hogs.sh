#!/bin/sh
. "$TESTS/lib/mount.sh"
# Commands that want everything: each ends at its limit with the right
# word, and meanwhile the mount answers.

ended() {
	want=$1
	# shellcheck disable=SC2254
	case "$(cat "$MNT/a/ctl/status")" in
	$want) ;;
	*) fail \
		"want like '$want', have '$(cat "$MNT/a/ctl/status")': $(tail -c 300 "$MNT/a/ctl/stderr")" ;;
	esac
	# Only what would be felt as a hang is wrong; how much it is depends on the machine.
	echo "$p99" | awk -F x '{ exit !($2 < 2000) }'
	refuse "$TOOL" pids "$mark"
}

# hog TEXT WANT REQUEST: the request is carried out in a while stat is measured
# in b; WANT is a pattern of status.
hog() {
	p99=$("$TOOL" p99 "$MNT/b" "$MNT/a/ctl/exec" "$3")
	claim "$1: ${2%\*} (stat $p99)" ended "$2"
}

prepare() {
	mount_repo
	until_it_is_ready
	held >"$ROOM/start"
	box a b
	cp "$ROOM/bin/tool" "$MNT/a/tool"
}

# Of each process of the mount that we may look into: its descriptors.
held() {
	for pid in $("$TOOL" pids "$MNT"); do
		echo "$(cat "/proc/$pid/comm" 2>/dev/null) $("$TOOL" fds "$pid")"
	done
}

no_more_than() {
	awk 'NR == FNR { had[$1] = $2; next }
		!($1 in had) || ($2 ~ /^[0-9]+$/ && $2 + 0 > had[$1] + 0) { more = 1 }
		END { exit more }' "$1" "$2"
}

flag() {
	same "$2" "$("$TOOL" json "$1" <"$MNT/a/ctl/jobs/last/result")"
}

disk_is_bounded() {
	same 1048576 "$(wc -c <"$MNT/a/big")"
}

files_were_open() {
	same '10000 files' "$(cat "$MNT/a/ctl/stdout")"
}

others_go_on() {
	same there "$(run b echo there)"
	same hello "$(cat "$MNT/a/README.md")"
}

spilled() {
	find "$STATE/jobs" -type f 2>/dev/null
}

# What is dismissed ends a moment later.
nothing_is_left() {
	teardown a b
	until held >"$ROOM/end" && no_more_than "$ROOM/start" "$ROOM/end" && [ -z "$(spilled)" ]; do
		tick "$(cat "$ROOM/start") -> $(cat "$ROOM/end") $(spilled)"
	done
}

mark=hog-$$
claim "mounting" prepare
# The last argument is there to be found by.
hog "a fork bomb is refused at procs and ends in time" '124 timeout*' \
	'{"argv":["./tool","hog","processes","'$mark'"],"limits":{"procs":100},"timeout_ms":700}'
hog "so it is when it may have what it may have by default" '124 timeout*' \
	'{"argv":["./tool","hog","processes","'$mark'"],"timeout_ms":700}'
if [ "$("$TOOL" json memory <"$MNT/a/ctl/policy")" = cgroup ]; then
	hog "a process that takes all memory is ended" '137 oom*' \
		'{"argv":["./tool","hog","memory","'$mark'"],"limits":{"memory_mb":64}}'
else
	hog "a process that takes all memory is told ENOMEM" '3 exited*' \
		'{"argv":["./tool","hog","memory","'$mark'"],"limits":{"memory_mb":64}}'
	claim "it was" same ENOMEM "$(cat "$MNT/a/ctl/stdout")"
fi
hog "many processes that take it together are ended" '137 oom*' \
	'{"argv":["./tool","hog","pieces","'$mark'"],"limits":{"memory_mb":64}}'
claim "and the result says so" flag oomKilled true
hog "processor time" '152 signaled*' \
	'{"argv":["sh","-c","for i in 1 2 3; do (while :; do :; done) & done; while :; do :; done",'\
'"'$mark'"],"limits":{"cpu_s":1}}'
hog "a file that grows" '153 signaled*' \
	'{"argv":["sh","-c","exec cat /dev/zero >big","'$mark'"],"limits":{"file_mb":1}}'
claim "it has its limit's size" disk_is_bounded
hog "a flood of output is cut" '0 exited*' \
	'{"argv":["./tool","hog","output","'$mark'"],"limits":{"output_bytes":1000000}}'
claim "and flagged" flag stdoutTruncated true
hog "10 000 open files" '0 exited*' '{"argv":["./tool","hog","files","'$mark'"]}'
claim "they were open at once" files_were_open
hog "deaf to SIGTERM and double-forked" '124 timeout*' \
	'{"argv":["./tool","hog","time","'$mark'"],"timeout_ms":300}'
claim "the sandboxes are as they were" others_go_on
claim "no descriptor, process or spilled output is left" nothing_is_left
finish
