#!/bin/sh
. "$TESTS/lib/mount.sh"
. "$TESTS/lib/away.sh"
# A sandbox on another machine, from before that is made to after it is gone, and its commands.

state_of() {
	"$TOOL" json state <"$MNT/$1/ctl/info"
}

# --- being made ----------------------------------------------------------------------------------

mkdir_answers_at_once() {
	machine a
	touch "$FAR/a/down"
	timeout 60 mkdir "$MNT/a"
	same creating "$(state_of a)"
	like 'a *creating*' "$(grep '^a ' "$MNT/ctl/list")"
	cat "$MNT/a/file" >"$ROOM/read" &
	asked a 'want names'
	timeout 60 cat "$MNT/a/ctl/policy" >/dev/null
	timeout 60 stat "$MNT/a" >/dev/null
	made b
	same hello "$(timeout 60 cat "$MNT/b/file")"
	rm "$FAR/a/down"
	wait
	same hello "$(cat "$ROOM/read")"
	same ready "$(state_of a)"
}

create_waits() {
	machine c
	touch "$FAR/c/down"
	sh -c 'echo c >"$1"; touch "$2"' sh "$MNT/ctl/create" "$ROOM/created" &
	asked c 'want up'
	same creating "$(state_of c)"
	[ ! -e "$ROOM/created" ]
	rm "$FAR/c/down"
	wait
	[ -e "$ROOM/created" ]
	same hello "$(cat "$MNT/c/file")"
}

failures_stay_until_rmdir() {
	machine d
	echo "122 *" >"$FAR/d/fail"
	refuse sh -c 'echo d >"$1"' sh "$MNT/ctl/create"
	like 'EDQUOT: the played machine says*' "$(cat "$MNT/ctl/error")"
	same failed "$(state_of d)"
	refuse cat "$MNT/d/file"
	rmdir "$MNT/d"
	refuse ls "$MNT/d"
}

rmdir_ends_a_creation() {
	machine e
	touch "$FAR/e/down"
	mkdir "$MNT/e"
	sh -c 'echo f >"$1"' sh "$MNT/ctl/create" &
	timeout 60 rmdir "$MNT/e"
	machine g
	touch "$FAR/g/down"
	mkdir "$MNT/g"
	cat "$MNT/g/file" 2>"$ROOM/gone" &
	asked g 'want names'
	timeout 60 sh -c 'echo g >"$1"' sh "$MNT/ctl/teardown"
	wait
	like '*No such file or directory' "$(cat "$ROOM/gone")"
	asked g unwant
}

teardown_ends_who_waits() {
	made h
	exec 7<"$MNT/h/file"
	hold h
	cat <&7 2>"$ROOM/stale" &
	asked h 'want data file 0+4096'
	timeout 60 rmdir "$MNT/h"
	wait
	exec 7<&-
	like '*Stale file handle' "$(cat "$ROOM/stale")"
}

# --- commands ------------------------------------------------------------------------------------

commands_know_their_own_machine_only() {
	made x
	forget_log x
	echo '{"argv":["/bin/sh","-c","pwd"],"cwd":"","env":{"A":"b"},"timeout_ms":4321}' \
		>"$MNT/x/ctl/exec"
	printf '%s\n' 'env A=b' 'env LANG=C.UTF-8' 'env TERM=dumb' \
		'exec /bin/sh in "" timeout 4321 stdin none' >"$ROOM/want"
	grep '^exec\|^env' "$FAR/x/log" | sort | diff "$ROOM/want" -
	forget_log x
	refuse sh -c 'echo "{\"argv\":[\"true\"],\"cwd\":\"../y\"}" >"$1"' sh "$MNT/x/ctl/exec"
	error_says x 'path confinement violation'
	silent x
	refuse sh -c 'echo "{\"argv\":[\"/bin/true\"],\"cwd\":\"not/here\"}" >"$1"' sh "$MNT/x/ctl/exec"
	grep -q '^exec /bin/true in "not/here"' "$FAR/x/log"
}

stdin_is_kept_or_refused() {
	mkdir "$MNT/x/ctl/jobs/kept"
	echo text >"$MNT/x/ctl/jobs/kept/stdin"
	echo /bin/cat >"$MNT/x/ctl/jobs/kept/exec"
	same text "$(cat "$MNT/x/ctl/jobs/kept/stdout")"
	mkdir "$MNT/x/ctl/jobs/live"
	exec 7>"$MNT/x/ctl/jobs/live/stdin"
	refuse sh -c 'echo /bin/cat >"$1"' sh "$MNT/x/ctl/jobs/live/exec"
	error_says x 'EOPNOTSUPP: a command of this backend reads no stdin'
	exec 7>&-
}

signals_that_are_not_taken_are_refused() {
	mkdir "$MNT/x/ctl/jobs/sleeps"
	job=$MNT/x/ctl/jobs/sleeps
	"$TOOL" result "$job/exec" /bin/sleep "$LONG" >"$ROOM/slept" &
	until [ "$("$TOOL" write "$job/kill" O_WRONLY STOP)" = EOPNOTSUPP ]; do tick; done
	error_says x 'takes no signal but those that end it'
	same ESRCH "$("$TOOL" write "$MNT/x/ctl/jobs/kept/kill" O_WRONLY STOP)"
	echo TERM >"$job/kill"
	wait $! || :
	like '143 *' "$(cat "$job/status")"
}

# --- the end -------------------------------------------------------------------------------------

renaming_a_sandbox() {
	mv "$MNT/b" "$MNT/bb"
	same hello "$(cat "$MNT/bb/file")"
	echo x >"$MNT/bb/new"
	echo 1 >"$MNT/bb/ctl/sync"
	same x "$(cat "$FAR/b/far/new")"
}

unmounting_ends_who_waits() {
	hold c
	cat "$MNT/c/run" 2>"$ROOM/ended" &
	asked_of c 'want data run'
	fusermount3 -u -z "$MNT"
	wait
	[ -s "$ROOM/ended" ]
	await_end
	ended_well
}

claim "mounting" mount_none backend=memory
claim "mkdir answers before the machine is there, and files wait for it" mkdir_answers_at_once
claim "ctl/create waits for it" create_waits
claim "and says what is wrong with it, which stays until rmdir" failures_stay_until_rmdir
claim "rmdir and teardown end a creation, and who waits for it" rmdir_ends_a_creation
claim "rmdir ends who waits for contents" teardown_ends_who_waits
claim "commands get nothing of this machine" commands_know_their_own_machine_only
claim "their stdin is what was kept" stdin_is_kept_or_refused
claim "signals that they do not take are refused" signals_that_are_not_taken_are_refused
claim "mv of a sandbox" renaming_a_sandbox
claim "unmounting ends who waits" unmounting_ends_who_waits
claim "nothing is left" source_and_state_are_clean
