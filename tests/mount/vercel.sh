#!/bin/sh
. "$TESTS/lib/mount.sh"
# Sandboxes at Vercel, which the loopback server stands in for: the operations of an executor of
# commands by the mount, their requests, sessions that end, and a daemon that is killed.

TOKEN=vcp_$$doNotShow0123456789
BARE=$ROOM/git/acme/widgets.git

# The descriptors 7 and 8 keep the servers running; they do not have each other's.
serve() {
	mkdir -p "$BARE" "$ROOM/boxes"
	git init -q --bare "$BARE"
	new_repo
	git -C "$REPO" push -q "$BARE" main
	rm -rf "$REPO"
	mkfifo "$ROOM/in.git" "$ROOM/in.api" "$ROOM/out"
	python3 "$TESTS/lib/git_http.py" "$ROOM" "$TOKEN" <"$ROOM/in.git" >"$ROOM/out" 7>&- 8>&- &
	exec 8>"$ROOM/in.git"
	read -r git_port <"$ROOM/out"
	python3 "$TESTS/lib/vercel_server.py" "$ROOM/boxes" "$TOKEN" <"$ROOM/in.api" >"$ROOM/out" \
		7>&- 8>&- &
	exec 7>"$ROOM/in.api"
	read -r api_port <"$ROOM/out"
	export GITHUB_API_URL="http://127.0.0.1:$git_port" GITHUB_TOKEN="$TOKEN"
	export VERCEL_API_URL="http://127.0.0.1:$api_port/api" VERCEL_TOKEN="$TOKEN"
	export VERCEL_TEAM_ID=team_test VERCEL_PROJECT_ID=prj_test VERCEL=1
}

# control WORD [JSON]
control() {
	python3 -c 'import sys, urllib.request as u
data = sys.argv[2].encode() or None
print(u.urlopen(sys.argv[1], data).read().decode(), end="")' \
		"http://127.0.0.1:$api_port/control/$1" "${2:-}"
}

# took REQUESTS COMMAND...: the command makes that many
took() {
	took_want=$1
	control reset '{}'
	shift
	"$@"
	same "$took_want" "$(control count/all)" || {
		control log
		return 1
	}
}

# machine NAME: its name at Vercel
machine() {
	echo "sbx-$("$TOOL" json id <"$MNT/$1/ctl/info")"
}

# exec_in NAME JSON: runs it, and prints its output
exec_in() {
	printf '%s\n' "$2" >"$MNT/$1/ctl/exec" || return 1
	cat "$MNT/$1/stdout"
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
	control reset '{}'
	box a
	same hello "$(cat "$MNT/a/README.md")"
	same 'int main(void)' "$(head -n 1 "$MNT/a/src/main.c")"
	same 3 "$(control count/all)"
	same 1 "$(control count/create_runtime)"
}

is_read_again() {
	cat "$MNT/a/README.md" "$MNT/a/src/main.c"
	ls -lR "$MNT/a"
}

executes() {
	same out "$(exec_in a '{"argv":["sh","-c","echo out; echo err >&2; exit 3"]}')"
	same err "$(cat "$MNT/a/stderr")"
	same 3 "$(cut -d ' ' -f 1 "$MNT/a/status")"
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

has_its_branch() {
	same sandbox/a "$(exec_in a '{"argv":["git","symbolic-ref","--short","HEAD"]}')"
	like 'http*://127.0.0.1:*/acme/widgets.git' \
		"$(exec_in a '{"argv":["git","remote","get-url","origin"]}')"
}

writes_and_executes() {
	mkdir "$MNT/a/made"
	printf 'any\000\377bytes\n' >"$MNT/a/made/file"
	same '0000000 a n y \0 377 b y t e s \n' \
		"$(exec_in a '{"argv":["od","-c","made/file"]}' | head -n 1 | tr -s ' ')"
}

reads_what_is_made_there() {
	exec_in a '{"argv":["sh","-c","mkdir -p d/e; echo theirs >d/e/f; rm Makefile"]}'
	same theirs "$(cat "$MNT/a/d/e/f")"
	same f "$(ls "$MNT/a/d/e")"
	[ ! -e "$MNT/a/Makefile" ]
}

thousand_files() {
	mkdir "$ROOM/many"
	for i in $(seq 1000); do
		printf '%4096d' "$i" >"$ROOM/many/$i"
	done
	tar -cf "$ROOM/many.tar" -C "$ROOM" many
}

extracts_them() {
	mkdir "$MNT/a/$1"
	tar -xf "$ROOM/many.tar" -C "$MNT/a/$1"
	sync "$MNT/a/$1/many"
}

# What has waited for two seconds is sent by itself, so that a slow machine has to be tried again.
a_thousand_take_two() {
	for try in 1 2 3 4 5 6 7 8; do
		sleep 2
		! took 2 extracts_them "try$try" || return 0
	done
	return 1
}

is_woken() {
	control state "{\"name\": \"$(machine a)\", \"to\": \"stopped\"}"
	same theirs "$(exec_in a '{"argv":["cat","d/e/f"]}')"
}

goes_on_after_a_kill() {
	echo unsent >"$MNT/a/unsent"
	kill_daemon
	"$TOOL" mount "$LOG" "$RECORD" "$SANDBOXFS" acme/widgets "$MNT" -o "state_dir=$STATE"
	same unsent "$(exec_in a '{"argv":["cat","unsent"]}')"
	same theirs "$(cat "$MNT/a/d/e/f")"
}

shows_no_token() {
	refuse grep -rF "$TOKEN" "$LOG" "$STATE" "$MNT/a/ctl/info" "$MNT/ctl/stats" "$MNT/ctl/config"
	refuse grep -F "$TOKEN" "/proc/$(daemon_pid)/environ"
	refuse grep -rF "$TOKEN" "$ROOM/boxes"
	for name in first a; do
		control "commands/$(machine $name)" >"$ROOM/commands"
		refuse grep -F "$TOKEN" "$ROOM/commands"
	done
}

is_removed() {
	teardown first a
	until [ -z "$(control living)" ]; do tick; done
}

asks_for_nothing_unknown() {
	same '' "$(control violations)"
}

serve
claim 'VERCEL=1 takes Vercel' is_taken_by_the_environment
claim 'a sandbox with a repository is made and listed in three requests' is_made_in_three_requests
claim 'what was read takes none' took 0 is_read_again
claim 'a command has streams apart and a status, in one request' took 1 executes
claim 'a command has a directory, variables and a timeout' has_its_options
claim 'Python code runs' runs_python
claim 'its branch is checked out, and its remote has no token' has_its_branch
claim 'what is written here is there, in two requests' took 2 writes_and_executes
claim 'what is made there is here' reads_what_is_made_there
thousand_files
claim 'a thousand files take two requests' a_thousand_take_two
claim 'one that has stopped is woken' is_woken
claim 'what was written is there after a kill' goes_on_after_a_kill
claim 'no token is shown' shows_no_token
claim 'it is removed there' is_removed
claim 'nothing was asked that Vercel does not know' asks_for_nothing_unknown
claim 'the mount ends' unmount
exec 7>&- 8>&-
wait
