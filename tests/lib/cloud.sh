# Sandboxes at a provider that a loopback server stands in for: BACKEND is daytona, vercel or
# dagger. Sourced by mount.sh, in the shell of the case: its descriptors 7 and 8 keep the servers
# running until the case ends, or cloud_end. CLOUD_ERA says what a server is to be, where it can be
# several.
# shellcheck shell=sh
CLOUD_KEY=key_$$doNotShow0123456789
CLOUD_TOKEN=ghp_$$doNotShow0123456789
CLOUD_BARE=$ROOM/git/acme/widgets.git

# cloud_server DESCRIPTOR SCRIPT ARGUMENT...: starts it, and reads its port into cloud_port. It does
# not have the descriptors of the others.
cloud_server() {
	cloud_fd=$1 cloud_script=$2
	shift 2
	mkfifo "$ROOM/cloud.in" "$ROOM/cloud.out"
	python3 "$TESTS/lib/$cloud_script" "$@" <"$ROOM/cloud.in" >"$ROOM/cloud.out" 7>&- 8>&- &
	eval "exec $cloud_fd>\"\$ROOM/cloud.in\""
	read -r cloud_port <"$ROOM/cloud.out"
	rm "$ROOM/cloud.in" "$ROOM/cloud.out"
}

cloud_begin() {
	rm -rf "$ROOM/boxes"
	mkdir -p "$CLOUD_BARE" "$ROOM/boxes"
	git init -q --bare "$CLOUD_BARE"
	cloud_server 8 git_http.py "$ROOM" "$CLOUD_TOKEN" api
	cloud_git=http://127.0.0.1:$cloud_port
	cloud_server 7 "${BACKEND}_server.py" "$ROOM/boxes" "$CLOUD_KEY" \
		${CLOUD_ERA:+"$CLOUD_ERA"}
	export GITHUB_API_URL="$cloud_git" GITHUB_TOKEN="$CLOUD_TOKEN"
	case $BACKEND in
	daytona) export DAYTONA_API_URL="http://127.0.0.1:$cloud_port/api" DAYTONA_API_KEY="$CLOUD_KEY" ;;
	vercel)
		export VERCEL_API_URL="http://127.0.0.1:$cloud_port/api" VERCEL_TOKEN="$CLOUD_KEY"
		export VERCEL_TEAM_ID=team_test VERCEL_PROJECT_ID=prj_test
		;;
	dagger)
		export DAGGER_SESSION_PORT="$cloud_port" DAGGER_SESSION_TOKEN="$CLOUD_KEY"
		export DAGGER_IMAGE=busybox:1.37
		;;
	esac
}

# cloud_control WORD [JSON]
cloud_control() {
	python3 -c 'import sys, urllib.request as u
data = sys.argv[2].encode() or None
print(u.urlopen(sys.argv[1], data).read().decode(), end="")' \
		"http://127.0.0.1:$cloud_port/control/$1" "${2:-}"
}

# cloud_source DIR: what is to be mounted for the repository DIR. An engine of Dagger reads it here.
cloud_source() {
	if [ "$BACKEND" = dagger ]; then
		echo "$1"
	else
		git -C "$1" push -q "$CLOUD_BARE" HEAD:main && echo acme/widgets
	fi
}

# took REQUESTS COMMAND...: the command makes that many.
took() {
	took_want=$1
	cloud_control reset '{}'
	shift
	"$@"
	same "$took_want" "$(cloud_control count/all)" || {
		cloud_control log
		return 1
	}
}

# took_once REQUESTS COMMAND...: as took, once in six times. On a slow machine changes are sent by
# themselves before the end of what makes them, and a command that lasts a second is polled for.
# Now and then a machine is looked after while the command goes on.
took_once() {
	for try in 1 2 3 4 5 6; do
		! took "$@" || return 0
	done
	return 1
}

# exec_in NAME JSON: runs it, and prints its output.
exec_in() {
	printf '%s\n' "$2" >"$MNT/$1/ctl/exec" || return 1
	cat "$MNT/$1/stdout"
}

# --- claims of each of them ----------------------------------------------------------------

is_read_again() {
	cat "$MNT/a/README.md" "$MNT/a/src/main.c"
	ls -lR "$MNT/a"
}

has_streams_and_a_status() {
	same out "$(exec_in a '{"argv":["sh","-c","echo out; echo err >&2; exit 3"]}')"
	same err "$(cat "$MNT/a/stderr")"
	same 3 "$(cut -d ' ' -f 1 "$MNT/a/status")"
}

writes_and_executes() {
	mkdir -p "$MNT/a/made/here"
	printf 'any\000\377bytes\n' >"$MNT/a/made/here/file"
	same '0000000 a n y \0 377 b y t e s \n' \
		"$(exec_in a '{"argv":["od","-c","made/here/file"]}' | head -n 1 | tr -s ' ')"
}

reads_what_is_made_there() {
	exec_in a '{"argv":["sh","-c","mkdir -p d/e; echo theirs >d/e/f; rm Makefile"]}'
	same theirs "$(cat "$MNT/a/d/e/f")"
	same f "$(ls "$MNT/a/d/e")"
	[ ! -e "$MNT/a/Makefile" ]
	refuse cat "$MNT/a/Makefile"
}

thousand_files() {
	mkdir "$ROOM/many"
	for i in $(seq 1000); do
		printf '%4096d' "$i" >"$ROOM/many/$i"
	done
	tar -cf "$ROOM/many.tar" -C "$ROOM" many
	rm -r "$ROOM/many"
}

extracts_them() {
	mkdir "$MNT/a/$1"
	tar -xf "$ROOM/many.tar" -C "$MNT/a/$1"
	sync "$MNT/a/$1/many"
}

# pushed [REQUEST]: the outcome of a push of a
pushed() {
	echo "${1:-}" >"$MNT/a/ctl/push"
	cat "$MNT/a/ctl/push"
}

is_pushed() {
	exec_in a '{"argv":["sh","-c","git config user.name a; git config user.email a@b"]}'
	exec_in a '{"argv":["sh","-c","echo work >work; git add work; git commit -qm work"]}'
	same '{"pushed":true}' "$(pushed)"
	same work "$(git -C "$CLOUD_BARE" log -1 --format=%s sandbox/a)"
}

opens_a_pull_request() {
	same '{"pushed":true,"prUrl":"https://github.com/acme/widgets/pull/7"}' \
		"$(pushed '{"pr":true,"intent":"Mend it","blueprint":"fix","run":"r-1"}')"
	like '{"title": "\[harness\] Mend it", "body": "Blueprint: fix*Branch: sandbox/a*Run: r-1"*' \
		"$(cat "$ROOM/pull.json")"
	like '*"head": "sandbox/a"*' "$(cat "$ROOM/pull.json")"
}

# The API's default branch is another than that of the repository which was cloned.
is_against_the_default_branch() {
	like '*"base": "trunk"*' "$(cat "$ROOM/pull.json")"
	like '*"prUrl":*' "$(pushed '{"pr":true}')"
	same 'GET /repos/acme/widgets POST /repos/acme/widgets/pulls POST /repos/acme/widgets/pulls' \
		"$(cut -d ' ' -f 1,2 "$ROOM/api.log" | xargs)"
}

may_fail_to_open_one() {
	echo exists >"$ROOM/api.mode"
	like '{"pushed":true,"error":"PR creation failed: Validation Failed: *(HTTP 422)"}' \
		"$(pushed '{"pr":true}')"
	rm "$ROOM/api.mode"
}

# A command whose request OP is not answered holds up neither the files of its sandbox, nor another
# one; and who waits for it is let go.
stalls_nobody() {
	box q
	exec_in a '{"argv":["true"]}'
	cat "$MNT/q/README.md" "$MNT/a/README.md"
	ls -lR "$MNT/a" >"$ROOM/listed"
	sync "$MNT/a" "$MNT/q"
	cloud_control reset '{}'
	cloud_control fault "{\"op\": \"$1\", \"fault\": \"stall\"}"
	"$TOOL" result "$MNT/a/ctl/exec" echo stalled &
	waits=$!
	until [ "$(cloud_control "count/$1")" -ge 1 ]; do tick; done
	ls -lR "$MNT/a" >"$ROOM/listed"
	same hello "$(cat "$MNT/a/README.md")"
	echo meanwhile >"$MNT/a/meanwhile"
	same meanwhile "$(cat "$MNT/a/meanwhile")"
	same other "$(exec_in q '{"argv":["echo","other"]}')"
	teardown q
	kill "$waits" || :
	wait "$waits" || :
	echo KILL >"$MNT/a/ctl/jobs/last/kill" || :
	same meanwhile "$(exec_in a '{"argv":["cat","meanwhile"]}')"
	rm "$MNT/a/meanwhile"
}

# While a command runs, changes are sent sooner, in more requests.
runs_nothing() {
	until grep -q '"running": *0' "$MNT/a/ctl/info"; do tick; done
}

# A pause of two seconds has changes sent, so that a slow machine may have to be tried again.
a_thousand_take_two() {
	[ -e "$ROOM/many.tar" ] || thousand_files
	for try in 1 2 3 4 5 6 7 8; do
		sleep 2
		! took 2 extracts_them "try$try" || return 0
	done
	return 1
}

# Neither the daemon, nor what it keeps, nor the provider's sandboxes show the key or the token.
shows_no_secret() {
	for secret in "$CLOUD_KEY" "$CLOUD_TOKEN"; do
		refuse grep -rF "$secret" "$LOG" "$STATE" "$MNT/a/ctl/info" "$MNT/ctl/stats" \
			"$MNT/ctl/config"
		refuse grep -F "$secret" "/proc/$(daemon_pid)/environ"
		refuse grep -rF "$secret" "$ROOM/boxes"
	done
}

asks_for_nothing_unknown() {
	same '' "$(cloud_control violations)"
}

# And it has no sandbox any more.
cloud_is_clean() {
	asks_for_nothing_unknown
	[ "$BACKEND" = dagger ] || until [ -z "$(cloud_control living)" ]; do tick; done
}

cloud_end() {
	exec 7>&- 8>&-
	wait
}

trap cloud_end EXIT
cloud_begin
