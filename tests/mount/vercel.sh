#!/bin/sh
BACKEND=vercel
. "$TESTS/lib/mount.sh"
# Sandboxes at Vercel, which the loopback server stands in for: the operations of an executor of
# commands by the mount, their requests, sessions that end, and a daemon that is killed.

# There is no source but at GitHub.
serve() {
	new_repo
	cloud_source "$REPO" >"$ROOM/source"
	rm -rf "$REPO"
	export VERCEL=1
}

# machine NAME: its name at Vercel
machine() {
	echo "sbx-$("$TOOL" json id <"$MNT/$1/ctl/info")"
}

# --- claims ------------------------------------------------------------------------------

# Without -o backend=, by the environment alone.
is_taken_by_the_environment() {
	"$TOOL" mount "$LOG" "$RECORD" "$SANDBOXFS" acme/widgets "$MNT" -o "state_dir=$STATE"
	box first
	same vercel "$("$TOOL" json backend <"$MNT/first/ctl/info")"
	same hello "$(cat "$MNT/first/README.md")"
}

is_made_in_three_requests() {
	cloud_control reset '{}'
	box a
	same hello "$(cat "$MNT/a/README.md")"
	same 'int main(void)' "$(head -n 1 "$MNT/a/src/main.c")"
	same 3 "$(cloud_control count/all)"
	same 1 "$(cloud_control count/create_runtime)"
}

has_its_options() {
	like '*/vercel/sandbox/src' "$(exec_in a '{"argv":["pwd"],"cwd":"src"}')"
	same y "$(exec_in a '{"argv":["sh","-c","echo $X"],"env":{"X":"y"}}')"
	same '' "$(exec_in a '{"argv":["sleep","60"],"timeout_ms":300}')"
	refuse same 0 "$(cut -d ' ' -f 1 "$MNT/a/status")"
}

runs_python() {
	same 42 "$(exec_in a '{"argv":["python3","-c","print(6 * 7)"]}')"
}

# There is no list of programs that may run.
runs_what_is_there() {
	for words in '"env","true"' '"dd","if=/dev/null"' '"find",".","-maxdepth","0"'; do
		exec_in a "{\"argv\":[$words]}" >"$ROOM/out"
		same 0 "$(cut -d ' ' -f 1 "$MNT/a/status")"
	done
	same '' "$(exec_in a '{"argv":["no-such-program"]}')"
	same 127 "$(cut -d ' ' -f 1 "$MNT/a/status")"
}

lists() {
	mkdir "$MNT/a/list"
	same '' "$(ls -A "$MNT/a/list")"
	exec_in a '{"argv":["touch","list/b","list/a"]}'
	same 'a b' "$(ls "$MNT/a/list" | xargs)"
	expect ENOENT stat "$MNT/a/missing"
	refuse ls "$MNT/a/missing"
}

has_its_branch() {
	same sandbox/a "$(exec_in a '{"argv":["git","symbolic-ref","--short","HEAD"]}')"
	like 'http*://127.0.0.1:*/acme/widgets.git' \
		"$(exec_in a '{"argv":["git","remote","get-url","origin"]}')"
}

is_woken() {
	cloud_control state "{\"name\": \"$(machine a)\", \"to\": \"stopped\"}"
	same theirs "$(exec_in a '{"argv":["cat","d/e/f"]}')"
}

# Look, snapshot and create; its branch is made with the first list.
forks() {
	echo both >"$MNT/a/both"
	sync "$MNT/a/both"
	cloud_control reset '{}'
	echo b >"$MNT/a/ctl/fork"
	same both "$(cat "$MNT/b/both")"
	same 'look snapshot create run' "$(cloud_control log | cut -d ' ' -f 1 | xargs)"
	echo b >"$MNT/b/its"
	same 'sandbox/b b none' "$(exec_in b '{"argv":["git","symbolic-ref","--short","HEAD"]}') $(
		exec_in b '{"argv":["cat","its"]}') $(
		exec_in a '{"argv":["sh","-c","cat its || echo none"]}')"
	refuse [ -e "$MNT/a/its" ]
	teardown b
	same both "$(exec_in a '{"argv":["cat","both"]}')"
}

forks_none_that_runs() {
	id=$("$TOOL" result "$MNT/a/ctl/spawn" sleep "$LONG")
	for asked in b '{"name":"b","rev":"base"}'; do
		refuse sh -c 'echo "$2" >"$1/a/ctl/fork"' sh "$MNT" "$asked"
		error_says a 'EBUSY: a command is running*wait for it or kill it'
	done
	refuse grep -q 'fork a snapshot' "$MNT/a/ctl/error"
	refuse [ -e "$MNT/b" ]
	echo "$id" >"$MNT/a/ctl/kill"
	cat "$MNT/a/ctl/jobs/$id/wait" >/dev/null
	echo b >"$MNT/a/ctl/fork"
	teardown b
}

forks_stay() {
	echo c >"$MNT/a/ctl/fork"
	kill_daemon
	"$TOOL" mount "$LOG" "$RECORD" "$SANDBOXFS" acme/widgets "$MNT" -o "state_dir=$STATE"
	same both "$(cat "$MNT/c/both")"
	same both "$(exec_in c '{"argv":["cat","both"]}')"
	teardown c
}

goes_on_after_a_kill() {
	echo unsent >"$MNT/a/unsent"
	kill_daemon
	"$TOOL" mount "$LOG" "$RECORD" "$SANDBOXFS" acme/widgets "$MNT" -o "state_dir=$STATE"
	same unsent "$(exec_in a '{"argv":["cat","unsent"]}')"
	same theirs "$(cat "$MNT/a/d/e/f")"
}

shows_no_token() {
	shows_no_secret
	for name in first a; do
		cloud_control "commands/$(machine $name)" >"$ROOM/commands"
		refuse grep -F -e "$CLOUD_KEY" -e "$CLOUD_TOKEN" "$ROOM/commands"
	done
}

is_removed() {
	teardown first a
	until [ -z "$(cloud_control living)" ]; do tick; done
	teardown first a
}

serve
claim 'VERCEL=1 takes Vercel' is_taken_by_the_environment
claim 'create: a sandbox with a repository is made and listed in three requests' \
	is_made_in_three_requests
claim 'what was read takes none' took_once 0 is_read_again
claim 'execute: stdout, stderr and exitCode, in one request' took_once 1 has_streams_and_a_status
claim 'execute: cwd, env and timeout' has_its_options
claim 'execute: Python code' runs_python
claim 'execute: whatever is there runs, and what is not is 127' runs_what_is_there
claim 'its branch is checked out, and its remote has no token' has_its_branch
claim 'writeFile: any bytes, and parents are made; with execute, two requests' \
	took_once 2 writes_and_executes
claim 'readFile: what is made there is here, and what is not there is ENOENT' \
	reads_what_is_made_there
claim 'listFiles: names, and none of an empty directory' lists
claim 'a thousand files take two requests' a_thousand_take_two
claim 'a command that is not answered holds no file up, and no other sandbox' stalls_nobody run
claim 'and it ends, as it was killed with its client' runs_nothing
claim 'its commits are brought here and pushed' is_pushed
claim 'a pull request is opened' opens_a_pull_request
claim 'it is against the default branch, which the API is asked for once' \
	is_against_the_default_branch
claim 'one that fails is told, and the push stands' may_fail_to_open_one
claim 'one that has stopped is woken' is_woken
claim 'a fork begins with a snapshot, and neither sees the other' forks
claim 'one that runs a command is not forked' forks_none_that_runs
claim 'a fork outlives a kill' forks_stay
claim 'what was written is there after a kill' goes_on_after_a_kill
claim 'no token is shown' shows_no_token
claim 'cleanup: it is removed there, once and again' is_removed
claim 'nothing was asked that Vercel does not know' asks_for_nothing_unknown
claim 'the mount ends' unmount
