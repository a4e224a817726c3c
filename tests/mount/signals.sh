#!/bin/sh
. "$TESTS/lib/mount.sh"
# A client's signals: a handled one never runs the command twice, a fatal one ends client and job.

handled() {
	: >"$MNT/a/ran"
	same 'writes 1 ok interrupted' \
		"$("$TOOL" signals "$MNT/a/ctl/exec" "$1" 20 sh -c 'echo x >>ran; sleep 0.5')"
	same x "$(cat "$MNT/a/ran")"
	like '0 exited*' "$(cat "$MNT/a/ctl/status")"
}

fatal() {
	rm -f "$MNT/a/started"
	like "signal $1 quickly" "$("$TOOL" kill-client "$MNT/a/ctl/exec" "$1" "$MNT/a/started" \
		sh -c "touch started; sleep $LONG")"
	while "$TOOL" pids "$LONG" >/dev/null; do tick; done
	# The client waits for that end for a second.
	how=running
	while [ "$how" = running ]; do
		read -r code how rest <"$MNT/a/ctl/status"
		tick
	done
	same killed "$how"
}

python_handler() {
	: >"$MNT/a/ran"
	python3 - "$MNT/a" <<'END'
import signal, sys
count = 0
def handler(*_):
    global count
    count += 1
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
with open(sys.argv[1] + "/ctl/exec", "wb", buffering=0) as f:
    f.write(b'["sh","-c","echo x >>ran; sleep 0.4"]')
signal.setitimer(signal.ITIMER_REAL, 0)
assert count > 0
END
	same x "$(cat "$MNT/a/ran")"
}

# held COMMAND...: what holds the source up while it runs holds up what makes and removes sandboxes.
held() {
	exec 8<"$REPO/.git"
	flock 8
	"$@"
	exec 8<&-
}

# killed_while_held SIGNAL COMMAND...: the command waits for an answer,
# and ends by the signal without one.
killed_while_held() {
	signal=$1
	shift
	"$@" 8<&- 2>/dev/null &
	client=$!
	for sure in 1 2 3; do
		tick
		until grep -q '^State:.*[SD] ' "/proc/$client/status"; do tick; done
	done
	kill -"$signal" $client
	wait $client && fail "$* succeeded" || true
}

killed_rmdir() {
	box gone
	held killed_while_held KILL rmdir "$MNT/gone"
	while [ -d "$MNT/gone" ]; do tick; done
	expect ENOENT rmdir "$MNT/gone"
	box gone
	held killed_while_held TERM python3 -c 'import os, sys; os.rmdir(sys.argv[1])' "$MNT/gone"
	while [ -d "$MNT/gone" ]; do tick; done
}

killed_mkdir() {
	held killed_while_held KILL mkdir "$MNT/made"
	until mkdir "$MNT/made" 2>/dev/null; do tick; done
	teardown made
}

killed_reader() {
	id=$("$TOOL" result "$MNT/a/ctl/spawn" sleep "$LONG")
	cat "$MNT/a/ctl/jobs/$id/wait" &
	reader=$!
	kill -9 $reader
	wait $reader || true
	like '- running*' "$(cat "$MNT/a/ctl/jobs/$id/status")"
	echo 1 >"$MNT/a/ctl/kill"
	like '1?? *' "$(cat "$MNT/a/ctl/jobs/$id/wait")"
}

killed_event_reader() {
	cat "$MNT/ctl/events" >/dev/null &
	reader=$!
	box made
	kill -9 $reader
	wait $reader || true
	teardown made
}

# As soon as the controls are mounted, and the workspace perhaps not yet.
ended_while_starting() {
	new_repo
	for _ in $(seq 20); do
		"$SANDBOXFS" "$REPO" "$MNT" -f -o "state_dir=$STATE" &
		daemon=$!
		until is_mounted "$STATE/ctl"; do
			kill -0 $daemon
		done
		kill -TERM $daemon
		wait $daemon
		refuse is_mounted "$STATE/ctl"
		refuse is_mounted
	done
}

claim "a daemon that is ended while it starts takes its mounts along" ended_while_starting
claim "mounting" mount_repo
claim "mkdir" box a
claim "SIGWINCH during exec: one write, one run" handled WINCH
claim "SIGALRM every 20 ms during exec: one write, one run" handled ALRM
claim "a Python handler during exec: one run" python_handler
claim "SIGKILL of the client ends it quickly and kills the job" fatal 9
claim "SIGTERM of the client too" fatal 15
claim "SIGINT too" fatal 2
# Elsewhere neither waits for anything (away_creating.sh).
claim_here "a killed rmdir ends at once, and the sandbox goes all the same" killed_rmdir
claim_here "a killed mkdir ends, and leaves nothing" killed_mkdir
claim "a killed reader of wait leaves the job alone" killed_reader
claim "a killed reader of events is forgotten" killed_event_reader
finish
