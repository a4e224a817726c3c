#!/bin/sh
. "$TESTS/lib/mount.sh"
# spawn, run, numbered and named jobs, their files, killing.

spawns() {
	id=$("$TOOL" result "$MNT/a/ctl/spawn" sh -c 'echo early; cat <go >/dev/null; echo late; exit 4' |
		head -n 1)
	like '[0-9]*' "$id"
	job=$MNT/a/ctl/jobs/$id
	like '- running*' "$(cat "$job/status")"
	ls "$MNT/a/ctl/jobs" | grep -qx "$id"
	same sh "$("$TOOL" json 0 <"$job/argv")"
}

fifo_job() {
	mkfifo "$MNT/a/go" 2>/dev/null || run a mkfifo go
	spawns
	"$TOOL" result "$MNT/a/ctl/exec" sh -c 'echo go >go' >/dev/null
	like '4 exited job=*' "$(cat "$job/wait")"
	like '4 exited job=*' "$(cat "$job/status")"
	same 'early
late' "$(cat "$job/stdout")"
	same 4 "$("$TOOL" json exitCode <"$job/result")"
	rm "$MNT/a/go"
}

does_not_touch_exec_results() {
	run a echo from exec
	"$TOOL" result "$MNT/a/ctl/spawn" echo from spawn >"$ROOM/id"
	cat "$MNT/a/ctl/jobs/$(cat "$ROOM/id")/wait"
	same 'from exec' "$(cat "$MNT/a/ctl/stdout")"
}

last_is_a_link() {
	run a true
	same symlink "$("$TOOL" lstat "$MNT/a/ctl/jobs/last" type)"
	expect 0 stat "$MNT/a/ctl/jobs/last/status"
}

grows_while_running() {
	id=$("$TOOL" result "$MNT/a/ctl/spawn" \
		sh -c 'echo 1; cat >/dev/null; while [ ! -e stop ]; do :; done; echo 2')
	file=$MNT/a/ctl/jobs/$id/stdout
	until [ "$("$TOOL" stat "$file" size)" = 2 ]; do tick; done
	same 1 "$(cat "$file")"
	touch "$MNT/a/stop"
	cat "$MNT/a/ctl/jobs/$id/wait"
	same 4 "$("$TOOL" stat "$file" size)"
	rm "$MNT/a/stop"
}

runs_as_transaction() {
	same 'one
two' "$("$TOOL" run "$MNT/a/ctl/run" printf 'one\ntwo\n')"
	"$TOOL" run "$MNT/a/ctl/run" head -c 3000000 /dev/zero | cmp -n 3000000 - /dev/zero
	for i in 1 2 3 4 5 6 7 8; do
		"$TOOL" run "$MNT/a/ctl/run" echo "mine $i" >"$ROOM/run.$i" &
	done
	wait
	for i in 1 2 3 4 5 6 7 8; do
		same "mine $i" "$(cat "$ROOM/run.$i")"
	done
}

named() {
	mkdir "$MNT/a/ctl/jobs/build"
	echo 'echo built' >"$MNT/a/ctl/jobs/build/exec"
	same built "$(cat "$MNT/a/ctl/jobs/build/stdout")"
	like '0 exited*' "$(cat "$MNT/a/ctl/jobs/build/status")"
	expect EEXIST mkdir "$MNT/a/ctl/jobs/build"
	expect EINVAL\|EPERM\|EEXIST mkdir "$MNT/a/ctl/jobs/last"
	expect EINVAL mkdir "$MNT/a/ctl/jobs/9x"
	expect 0 rmdir "$MNT/a/ctl/jobs/build"
	expect ENOENT stat "$MNT/a/ctl/jobs/build/stdout"
	expect EPERM\|EACCES mkdir "$MNT/a/ctl/other"
}

stdin_before_start() {
	mkdir "$MNT/a/ctl/jobs/in"
	printf 'some input' >"$MNT/a/ctl/jobs/in/stdin"
	echo 'cat' >"$MNT/a/ctl/jobs/in/exec"
	same 'some input' "$(cat "$MNT/a/ctl/jobs/in/stdout")"
	rmdir "$MNT/a/ctl/jobs/in"
}

stdin_while_running() {
	mkdir "$MNT/a/ctl/jobs/pipe"
	(
		exec 7>"$MNT/a/ctl/jobs/pipe/stdin"
		echo 'first' >&7
		(
			exec 7>&-
			echo cat >"$MNT/a/ctl/jobs/pipe/exec"
		) &
		until [ "$("$TOOL" stat "$MNT/a/ctl/jobs/pipe/stdout" size)" = 6 ]; do tick; done
		echo 'second' >&7
		exec 7>&-
		wait
	)
	same 'first
second' "$(cat "$MNT/a/ctl/jobs/pipe/stdout")"
}

# Elsewhere there is no pipe into a command.
stdin_still_open() {
	mkdir "$MNT/a/ctl/jobs/pipe"
	(
		exec 7>"$MNT/a/ctl/jobs/pipe/stdin"
		echo 'first' >&7
		expect EOPNOTSUPP write "$MNT/a/ctl/jobs/pipe/exec" O_WRONLY 'cat\n'
	)
	error_says a stdin
	rmdir "$MNT/a/ctl/jobs/pipe"
}

stdin_is_null() {
	same '' "$(run a cat)"
}

kills_one() {
	id=$("$TOOL" result "$MNT/a/ctl/spawn" sleep "$LONG")
	other=$("$TOOL" result "$MNT/a/ctl/spawn" sleep "$LONG")
	echo "$id" >"$MNT/a/ctl/kill"
	like '1?? killed*' "$(cat "$MNT/a/ctl/jobs/$id/wait")"
	like '- running*' "$(cat "$MNT/a/ctl/jobs/$other/status")"
	echo "$other INT" >"$MNT/a/ctl/kill"
	like '130 killed*' "$(cat "$MNT/a/ctl/jobs/$other/wait")"
}

kills_by_its_own_file() {
	id=$("$TOOL" result "$MNT/a/ctl/spawn" sleep "$LONG")
	echo 1 >"$MNT/a/ctl/jobs/$id/kill"
	like '1?? *' "$(cat "$MNT/a/ctl/jobs/$id/wait")"
}

kills_all() {
	ids=
	for i in 1 2 3 4 5; do
		ids="$ids $("$TOOL" result "$MNT/a/ctl/spawn" sleep "$LONG")"
	done
	echo 1 >"$MNT/a/ctl/kill"
	for id in $ids; do
		like '1?? killed*' "$(cat "$MNT/a/ctl/jobs/$id/wait")"
	done
	refuse "$TOOL" pids "$LONG"
}

many_waiters() {
	id=$("$TOOL" result "$MNT/a/ctl/spawn" sleep "$LONG")
	for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
		cat "$MNT/a/ctl/jobs/$id/wait" >"$ROOM/waiter.$i" &
	done
	echo "$id KILL" >"$MNT/a/ctl/kill"
	wait
	for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
		like '137 killed*' "$(cat "$ROOM/waiter.$i")"
	done
}

result_is_bounded() {
	out=$("$TOOL" result "$MNT/a/ctl/exec" head -c 3000000 /dev/zero)
	[ "${#out}" -lt 8000000 ]
	same 3000000 "$("$TOOL" stat "$MNT/a/ctl/stdout" size)"
	same 3000000 "$("$TOOL" json stdoutBytes <"$MNT/a/ctl/jobs/last/result")"
}

claim "mounting" mount_repo
claim "mkdir" box a
claim "spawn returns an id; wait blocks until the end; result and status follow" fifo_job
claim "ctl/stdout stays with exec" does_not_touch_exec_results
claim "jobs/last is a symlink" last_is_a_link
claim "stdout has its true size while it grows" grows_while_running
claim "run: request in, output out, on one open file each" runs_as_transaction
claim "mkdir jobs/NAME names a job first, rmdir forgets it" named
claim "stdin written before the start" stdin_before_start
claim_here "stdin while it runs, to the last close" stdin_while_running
claim_away "stdin that is still open is refused in words" stdin_still_open
claim "stdin is empty unless given" stdin_is_null
claim "ctl/kill ends one job, with a signal by name" kills_one
claim "jobs/ID/kill" kills_by_its_own_file
claim "ctl/kill 1 ends all" kills_all
claim "twelve waiters get the same line" many_waiters
claim "a result embeds at most 1 MiB, stdout keeps all" result_is_bounded
finish
