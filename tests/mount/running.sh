#!/bin/sh
. "$TESTS/lib/mount.sh"
# What a command gets, and how it ends.

clean_environment() {
	run a env >"$ROOM/env"
	refuse grep -qi 'SECRET_OF_HOST\|GITHUB_TOKEN\|HTTPS*_PROXY\|^ROOM=\|^SANDBOXFS=' "$ROOM/env"
	# Elsewhere they are the machine's, which need not have all.
	for key in PATH HOME $(is_away || echo LANG TERM TMPDIR USER); do
		grep -q "^$key=." "$ROOM/env" || fail "no $key"
	done
}

configured_environment() {
	printf 'A=1\nB=two words\n' >"$MNT/a/ctl/env"
	same '1 two words' "$(run a sh -c 'echo $A $B')"
	printf '\n' >"$MNT/a/ctl/env"
}

no_descriptors() {
	exec 9<"$ROOM/env"
	# 3 is the directory that ls reads.
	same '0 1 2 3' "$(run a ls /proc/self/fd | tr '\n' ' ' | sed 's/ $//')"
	exec 9<&-
}

written_then_executed() {
	i=0
	while [ $i -lt 20 ]; do
		cp "$TOOL" "$MNT/a/fresh"
		same regular "$(run a ./fresh stat fresh type)"
		rm "$MNT/a/fresh"
		i=$((i + 1))
	done
	id=$("$TOOL" result "$MNT/a/ctl/spawn" \
		sh -c 'until [ -e ready ]; do :; done; ./fresh stat fresh type')
	cp "$TOOL" "$MNT/a/fresh"
	touch "$MNT/a/ready"
	like '0 exited*' "$(cat "$MNT/a/ctl/jobs/$id/wait")"
	rm "$MNT/a/fresh" "$MNT/a/ready"
}

own_session() {
	run a sh -c 'read pid comm state ppid pgrp session rest </proc/self/stat; [ "$pgrp" = "$session" ]'
	refuse run a sh -c 'exec 3</dev/tty'
}

no_core() {
	same 0 "$(run a sh -c 'ulimit -c')"
}

same_path_inside() {
	same "$MNT/a" "$(run a pwd)"
	same "$MNT/a/src" "$(run a sh -c 'cd src; pwd')"
}

no_controls_inside() {
	refuse run a ls "$MNT/b"
	refuse run a test -e "$MNT/a/ctl/exec"
	refuse run a test -e "$MNT/ctl/create"
}

times_out() {
	out=$(talk a/ctl/exec '{"argv":["sh","-c","echo partial; sleep '"$LONG"'"],"timeout_ms":200}')
	same true "$(printf '%s' "$out" | "$TOOL" json timedOut)"
	like '124 timeout*' "$(cat "$MNT/a/ctl/status")"
	same partial "$(cat "$MNT/a/ctl/stdout")"
	refuse "$TOOL" pids "$LONG"
}

default_timeout() {
	same 600000 "$(cat "$MNT/a/ctl/timeout_ms")"
	echo 150 >"$MNT/a/ctl/timeout_ms"
	same 150 "$(cat "$MNT/a/ctl/timeout_ms")"
	talk a/ctl/exec 'sleep '"$LONG"'\n' >/dev/null
	like '124 timeout*' "$(cat "$MNT/a/ctl/status")"
	echo 600000 >"$MNT/a/ctl/timeout_ms"
}

nothing_survives_a_timeout() {
	out=$(talk a/ctl/exec '{"argv":["sh","-c","trap \"\" TERM INT HUP; (setsid sh -c \"trap : TERM; '\
'sleep '"$LONG"'; sleep '"$LONG"'\" &) ; sleep '"$LONG"'; sleep '"$LONG"'"],"timeout_ms":200}')
	like '124 timeout*' "$(cat "$MNT/a/ctl/status")"
	refuse "$TOOL" pids "$LONG"
}

end_is_the_leaders() {
	start=$(date +%s)
	run a sh -c '(setsid sleep '"$LONG"' &) ; echo done'
	[ $(($(date +%s) - start)) -lt 60 ]
	like '0 exited*' "$(cat "$MNT/a/ctl/status")"
	refuse "$TOOL" pids "$LONG"
}

limits_output() {
	echo 1000 >"$MNT/a/ctl/limits/output_bytes"
	out=$("$TOOL" result "$MNT/a/ctl/exec" sh -c 'head -c 5000 /dev/zero | tr "\0" x; exit 6')
	same 1000 "$("$TOOL" stat "$MNT/a/ctl/stdout" size)"
	same true "$(printf '%s' "$out" | "$TOOL" json stdoutTruncated)"
	same false "$(printf '%s' "$out" | "$TOOL" json stderrTruncated)"
	same 6 "$(printf '%s' "$out" | "$TOOL" json exitCode)"
	like "6 exited job=* max_rss_kb=*[0-9] stdout_cut=4000" "$(cat "$MNT/a/status")"
	run a sh -c 'head -c 1500 /dev/zero; head -c 1001 /dev/zero >&2'
	like "0 exited *[0-9] stdout_cut=500 stderr_cut=1" "$(cat "$MNT/a/ctl/jobs/last/status")"
	run a head -c 1000 /dev/zero
	like '0 exited * max_rss_kb=*' "$(cat "$MNT/a/ctl/status")"
	refuse grep -q cut "$MNT/a/ctl/status"
	printf '\n' >"$MNT/a/ctl/limits/output_bytes"
}

limits_files() {
	echo 1 >"$MNT/a/ctl/limits/file_mb"
	"$TOOL" result "$MNT/a/ctl/exec" dd if=/dev/zero of=big bs=1M count=3 >/dev/null
	[ "$("$TOOL" stat "$MNT/a/big" size)" = 1048576 ]
	printf '\n' >"$MNT/a/ctl/limits/file_mb"
	same '' "$(tr -d '\n' <"$MNT/a/ctl/limits/file_mb")"
}

limits_cpu() {
	echo 1 >"$MNT/a/ctl/limits/cpu_s"
	"$TOOL" result "$MNT/a/ctl/exec" sh -c 'while :; do :; done' >/dev/null
	like '152 *' "$(cat "$MNT/a/ctl/status")"
	printf '\n' >"$MNT/a/ctl/limits/cpu_s"
}

limits_memory() {
	echo 64 >"$MNT/a/ctl/limits/memory_mb"
	refuse run a dd if=/dev/zero of=/dev/null bs=200M count=1
	printf '\n' >"$MNT/a/ctl/limits/memory_mb"
	run a dd if=/dev/zero of=/dev/null bs=200M count=1
}

limits_jobs() {
	echo 2 >"$MNT/a/ctl/limits/jobs"
	one=$("$TOOL" result "$MNT/a/ctl/spawn" sleep "$LONG")
	two=$("$TOOL" result "$MNT/a/ctl/spawn" sleep "$LONG")
	expect EAGAIN write "$MNT/a/ctl/exec" O_WRONLY 'true\n'
	echo 1 >"$MNT/a/ctl/kill"
	cat "$MNT/a/ctl/jobs/$one/wait" "$MNT/a/ctl/jobs/$two/wait"
	expect 0 write "$MNT/a/ctl/exec" O_WRONLY 'true\n'
	printf '\n' >"$MNT/a/ctl/limits/jobs"
}

allowlist() {
	same hi "$(run a echo hi)"
	expect EPERM write "$MNT/a/ctl/exec" O_WRONLY 'ls\n'
	[ -s "$MNT/a/ctl/error" ]
	cp /bin/ls "$MNT/a/echo"
	expect EPERM write "$MNT/a/ctl/exec" O_WRONLY './echo\n'
	same hi "$(run a echo hi)"
	rm "$MNT/a/echo"
}

# Of the daemon, too.
export SECRET_OF_HOST=1 GITHUB_TOKEN=x HTTP_PROXY=http://p
claim "mounting" mount_repo
claim "two sandboxes" box a b
claim "the environment is clean" clean_environment
claim "ctl/env adds to it" configured_environment
claim "no descriptor is inherited" no_descriptors
claim "a program written through the mount can be executed at once" written_then_executed
claim "a process group and session of its own, no terminal" own_session
claim "core dumps are off" no_core
# A machine has a path of its own for it; those of dirs are on this host, and so see it.
claim_here "the tree has the same path inside and outside" same_path_inside
claim_here "other sandboxes and control files are not there inside" no_controls_inside
claim "a timeout ends it with 124 and keeps partial output" times_out
claim "ctl/timeout_ms is the default of the next" default_timeout
claim "what ignored SIGTERM, forked twice and left the session dies too" nothing_survives_a_timeout
claim "the end of a job is the end of its leader" end_is_the_leaders
claim "output beyond the limit is discarded and flagged" limits_output
claim "file size limit" limits_files
claim "processor time limit" limits_cpu
claim "memory limit" limits_memory
claim "jobs at once: EAGAIN" limits_jobs
claim "unmounting" unmount
claim "mounting with an allowlist" remount allow=echo
claim "other programs are EPERM, also under an allowed name" allowlist
claim "unmounting" unmount
claim "mounting as before" remount ''
finish
