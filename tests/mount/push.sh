#!/bin/sh
. "$TESTS/lib/mount.sh"
# ctl/push, against a real git server by HTTP and an API that checks what it is asked
# (tests/lib/git_http.py, github_api.py).

TOKEN=ghp_$$doNotShow0123456789
NO_TOKEN='{"pushed":false,"error":"GITHUB_TOKEN required for push"}'
PULLED='{"pushed":true,"prUrl":"https://github.com/acme/widgets/pull/7"}'
BARE=$ROOM/git/acme/widgets.git
ELSEWHERE=$ROOM/elsewhere

# --- servers -----------------------------------------------------------------------------

# The descriptors 7, 8, 9 keep the servers running; the servers do not have each other's.
serve() {
	mkdir -p "$BARE" "$ELSEWHERE"
	git init -q --bare "$BARE"
	mkfifo "$ROOM/in.git" "$ROOM/in.api" "$ROOM/in.other" "$ROOM/out"
	python3 "$TESTS/lib/git_http.py" "$ROOM" "$TOKEN" <"$ROOM/in.git" >"$ROOM/out" 7>&- 8>&- 9>&- &
	exec 9>"$ROOM/in.git"
	read -r git_port <"$ROOM/out"
	python3 "$TESTS/lib/github_api.py" "$ROOM" "$TOKEN" <"$ROOM/in.api" >"$ROOM/out" 7>&- 8>&- 9>&- &
	exec 8>"$ROOM/in.api"
	read -r api_port <"$ROOM/out"
	python3 "$TESTS/lib/git_http.py" "$ELSEWHERE" "$TOKEN" <"$ROOM/in.other" >"$ROOM/out" \
		7>&- 8>&- 9>&- &
	exec 7>"$ROOM/in.other"
	read -r other_port <"$ROOM/out"
}

git_is() {
	echo "$*" >"$ROOM/git.mode"
	: >"$ROOM/git.log"
}

api_is() {
	echo "$*" >"$ROOM/api.mode"
	: >"$ROOM/api.log"
}

# --- verbs -------------------------------------------------------------------------------

# push NAME [REQUEST]: the PushResult
push() {
	printf '%s\n' "${2:-}" >"$MNT/$1/ctl/push" || return 1
	cat "$MNT/$1/ctl/push"
}

# commit NAME TEXT: by a command inside
commit() {
	run "$1" sh -c 'echo "$1" >>work && git add work && git commit -qm "$1"' sh "$2"
}

tip() {
	git -C "$1" rev-parse --verify -q "refs/heads/sandbox/$2"
}

# await FILE: waits until there is something in it
await() {
	until [ -s "$1" ]; do tick; done
}

# with_token OPTIONS: mounts with the token; the API is the loopback's.
with_token() {
	GITHUB_TOKEN=$TOKEN GITHUB_API_URL=${api_url:-http://127.0.0.1:$api_port} mount_repo "${1:-}"
}

# writer NAME: writes to push in the background; its outcome goes to the file writer.NAME.
writer() {
	python3 -c '
import errno, os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
try:
    with open(sys.argv[1], "wb", buffering=0) as f:
        f.write(b"\n")
    text = "written"
except OSError as e:
    text = errno.errorcode[e.errno]
with open(sys.argv[2], "w") as f:
    f.write(text)' "$MNT/$1/ctl/push" "$ROOM/writer.$1" &
}

# --- the four states ---------------------------------------------------------------------

without_a_token() {
	mount_repo
	box a
	same "$NO_TOKEN" "$(push a)"
	same "$NO_TOKEN" "$(push a '{"pr":true,"intent":"x"}')"
	same "$NO_TOKEN" "$(push a '{"pr":true,"remote":"path"}')"
	same 'EACCES: GITHUB_TOKEN required for push' "$(cat "$MNT/a/ctl/error")"
	refuse tip "$BARE" a
	same '' "$(cat "$ROOM/git.log" "$ROOM/api.log" 2>/dev/null)"
}

by_path_without_a_token() {
	same '{"pushed":true}' "$(push a '{"remote":"path"}')"
	same "$(tip "$REPO" a)" "$(tip "$ROOM/plain.git" a)"
	same '{"pushed":true}' "$(push a '{"remote":"relative"}')"
}

# What git itself makes of the same settings.
the_url_is_gits() {
	for setting in '' 'remote.x.pushurl p:two' 'url.wrong.insteadOf two' "url.$ROOM/.insteadOf p:" \
		"url.$ROOM/push-.pushInsteadOf f:" "url.$ROOM/longer-.pushInsteadOf f:o" \
		'remote.x.pushurl f:one'; do
		[ -n "$setting" ] || setting="url.$ROOM/plain-.insteadOf f:"
		git -C "$REPO" config remote.x.url f:one
		git -C "$REPO" config "${setting% *}" "${setting#* }"
		want=$(git -C "$REPO" remote get-url --push x)
		case $want in
		/*) said="the remote $want: No such file or directory" ;;
		*) said='' ;;
		esac
		like "*git push failed: $said*" "$(push a '{"remote":"x"}')"
	done
	git -C "$REPO" config --remove-section remote.x
	git -C "$REPO" config --get-regexp --name-only '^url' |
		while read -r key; do git -C "$REPO" config --unset "$key"; done
	unmount
}

it_pushes() {
	with_token
	commit a one
	same '{"pushed":true}' "$(push a)"
	same one "$(git -C "$BARE" log -1 --format=%s sandbox/a)"
	same "$(tip "$REPO" a)" "$(tip "$BARE" a)"
	same "$(tip "$REPO" a)" "$(git -C "$REPO" rev-parse refs/remotes/origin/sandbox/a)"
	same '{"pushed":true}' "$(push a)"
	git -C "$BARE" fsck --strict --no-progress
}

no_other_ref_moves() {
	same 'refs/remotes/origin/main refs/remotes/origin/sandbox/a' \
		"$(git -C "$REPO" for-each-ref --format='%(refname)' refs/remotes/origin | xargs)"
	same 'main sandbox/a' "$(git -C "$BARE" for-each-ref --format='%(refname:short)' | xargs)"
	same "$(git -C "$REPO" rev-parse main)" "$(git -C "$REPO" rev-parse origin/main)"
	refuse test -e "$ROOM/hook.ran"
}

a_pull_request() {
	: >"$ROOM/api.log"
	same "$PULLED" "$(push a '{"pr":true,"intent":"Mend it","blueprint":"fix","run":"r-1"}')"
	same '{"title": "[harness] Mend it", "body": "Blueprint: fix\nBranch: sandbox/a\nRun: r-1", '\
'"head": "sandbox/a", "base": "trunk"}' \
		"$(cat "$ROOM/pull.json")"
	same "$PULLED" "$(push a '{"pr":true,"title":"Mine"}')"
	like '{"title": "Mine", "body": "Blueprint: sandboxfs*' "$(cat "$ROOM/pull.json")"
	# The default branch was asked for once.
	same 'GET POST POST' "$(cut -d' ' -f1 "$ROOM/api.log" | xargs)"
}

# counted NAME: one of the mount's numbers, of the pull requests
counted() {
	sed -n "s/^sandboxfs_http_$1{op=\"github_pull\"} //p" "$MNT/ctl/stats"
}

requests_are_counted() {
	before=$(counted requests_total) failed=$(counted failures_total)
	same "$PULLED" "$(push a '{"pr":true}')"
	api_is exists
	push a '{"pr":true}'
	api_is serve
	same $((before + 2)) "$(counted requests_total)"
	same $((failed + 1)) "$(counted failures_total)"
	[ "$(counted sent_bytes_total)" -gt 500 ]
	[ "$(counted received_bytes_total)" -gt 500 ]
	[ "$(counted milliseconds_total)" -gt 0 ]
}

a_long_title() {
	same "$PULLED" \
		"$(push a "$(python3 -c 'print("{\"pr\":true,\"intent\":\"" + "ä" * 400 + "\"}")')")"
	python3 -c '
import json, sys
title = json.load(open(sys.argv[1]))["title"]
assert title == "[harness] " + "ä" * 246, title' "$ROOM/pull.json"
}

a_pull_request_that_fails() {
	api_is exists
	same '{"pushed":true,"error":"PR creation failed: Validation Failed: '\
'A pull request already exists for acme:sandbox/a. (HTTP 422)"}' \
		"$(push a '{"pr":true,"intent":"x"}')"
	error_says a 'PR creation failed: Validation Failed'
	api_is fail
	like '{"pushed":true,"error":"PR creation failed: *(HTTP 500)"}' "$(push a '{"pr":true}')"
	api_is junk
	like '{"pushed":true,"error":"PR creation failed: *no html_url*' "$(push a '{"pr":true}')"
	api_is big
	like '{"pushed":true,"error":"PR creation failed: *too long"}' "$(push a '{"pr":true}')"
	for there in localhost 127.0.0.1; do
		api_is redirect "http://$there:$other_port"
		like '{"pushed":true,"error":"PR creation failed: *(HTTP 302)"}' "$(push a '{"pr":true}')"
		refuse grep -q . "$ELSEWHERE/git.log"
	done
	api_is echo
	result=$(push a '{"pr":true}')
	like '{"pushed":true,"error":"PR creation failed: no, Bearer \*\*\*?forged*(HTTP 422)"}' "$result"
	error_says a 'PR creation failed: no, Bearer \*\*\*?forged'
	refuse grep -qF "$TOKEN" "$MNT/a/ctl/error"
	api_is serve
}

not_of_github() {
	like '{"pushed":true,"error":"PR creation failed: *is no repository of GitHub*' \
		"$(push a '{"pr":true,"remote":"path"}')"
}

# Where it is pushed to is a path; what the settings call it is a repository of GitHub.
of_github_by_another_way() {
	git -C "$REPO" config "url.$ROOM/plain.git.pushInsteadOf" https://github.com/acme/widgets.git
	git -C "$REPO" remote add mirrored https://github.com/acme/widgets.git
	same "$PULLED" "$(push a '{"pr":true,"remote":"mirrored"}')"
	same "$(tip "$REPO" a)" "$(tip "$ROOM/plain.git" a)"
	git -C "$REPO" remote remove mirrored
	git -C "$REPO" config --remove-section "url.$ROOM/plain.git"
}

no_such_remote() {
	same '{"pushed":false,"error":"git push failed: the source has no remote \"nowhere\""}' \
		"$(push a '{"remote":"nowhere"}')"
	like '{"pushed":false,"error":"git push failed: *' "$(push a '{"remote":"../../x"}')"
}

not_a_fast_forward() {
	git clone -q "$BARE" "$ROOM/clone"
	git -C "$ROOM/clone" checkout -q sandbox/a
	git -C "$ROOM/clone" commit -q --amend -m other
	git -C "$ROOM/clone" push -qf origin sandbox/a
	theirs=$(tip "$BARE" a)
	like '{"pushed":false,"error":"git push failed: *not a fast-forward)"}' "$(push a)"
	same "$theirs" "$(tip "$BARE" a)"
	like 'EEXIST: git push failed: *not a fast-forward)' "$(cat "$MNT/a/ctl/error")"
	git -C "$REPO" push -qf "$BARE" sandbox/a
}

a_protected_branch() {
	printf '#!/bin/sh\necho "error: GH006: Protected branch" >&2\nexit 1\n' >"$BARE/hooks/pre-receive"
	chmod +x "$BARE/hooks/pre-receive"
	commit a two
	before=$(tip "$BARE" a)
	like '{"pushed":false,"error":"git push failed: the server refused sandbox/a: '\
'pre-receive hook declined (*GH006: Protected branch)"}' \
		"$(push a)"
	same "$before" "$(tip "$BARE" a)"
	same "$before" "$(git -C "$REPO" rev-parse refs/remotes/origin/sandbox/a)"
	# By path nobody would ask it.
	git -C "$REPO" remote set-url path "$BARE"
	like '{"pushed":false,"error":"git push failed: the remote has a pre-receive hook*' \
		"$(push a '{"remote":"path"}')"
	same "$before" "$(tip "$BARE" a)"
	rm "$BARE/hooks/pre-receive"
	git -C "$REPO" remote set-url path "$ROOM/plain.git"
	same '{"pushed":true}' "$(push a)"
}

what_is_apart_is_not_pushed() {
	box apart
	run apart sh -c 'echo inside >x && git add x && git commit -qm inside'
	same '{"pushed":true}' "$(push apart)"
	# Both sides commit while a command runs.
	echo 'sh -c "git commit -q --allow-empty -m in; echo >committed; sleep '"$LONG"'"' \
		>"$MNT/apart/ctl/spawn"
	await "$MNT/apart/committed"
	tree=$(git -C "$REPO" rev-parse 'sandbox/apart^{tree}')
	git -C "$REPO" update-ref refs/heads/sandbox/apart \
		"$(git -C "$REPO" commit-tree -p sandbox/apart -m out "$tree")"
	like '{"pushed":false,"error":"git push failed: branch sandbox/apart was moved on both sides*' \
		"$(push apart)"
	teardown apart
	git -C "$REPO" branch -D -q sandbox/apart
	drop_refs refs/sandboxfs
}

a_remote_in_a_sandbox() {
	box trap
	git init -q --bare "$MNT/trap/bare.git"
	git -C "$REPO" remote add trap "$MNT/trap/bare.git"
	like '{"pushed":false,"error":"git push failed: *leads into a sandbox"}' \
		"$(push a '{"remote":"trap"}')"
	git -C "$REPO" remote remove trap
	teardown trap
}

# --- requests ----------------------------------------------------------------------------

bad_requests() {
	for request in '{"pr":1}' '{"prs":true}' '{"pr":true,"pr":true}' '{"intent":7}' '[]' 'origin' \
		'{"pr":true} x'; do
		expect EINVAL write "$MNT/a/ctl/push" O_WRONLY "$request
"
	done
	error_says a 'trailing data'
	like '{"pushed":false,"error":"trailing data*' "$(cat "$MNT/a/ctl/push")"
	like 'close EINVAL*' "$(talk a/ctl/push '{"pr":' @close)"
}

on_one_open_file() {
	commit a three
	like '*"pushed":true}' "$(talk a/ctl/push '
')"
	like '*"pull/7"}' "$(talk a/ctl/push '{"pr":true,' '"intent":"y"}' '
' | sed 's|https://github.com/acme/widgets/||')"
	grep -qF pull/7 "$MNT/a/ctl/push"
	[ "$(stat -c %s "$MNT/a/ctl/push")" -gt 0 ]
}

noted() {
	grep -qF '"event":"push","pushed":true,"prUrl":"https://github.com/acme/widgets/pull/7"' \
		"$MNT/a/ctl/log"
	grep -qF '"event":"push","pushed":false,"error":"git push failed: ' "$MNT/a/ctl/log"
	"$TOOL" read-until "$MNT/a/ctl/events" 'pushed: https://github.com/acme/widgets/pull/7'
	"$TOOL" read-until "$MNT/ctl/events" 'git push failed: '
}

of_a_directory() {
	unmount
	GITHUB_TOKEN=$TOKEN "$TOOL" mount "$LOG" "$RECORD" "$SANDBOXFS" "$ROOM/plain" "$MNT" \
		-o "state_dir=$ROOM/state.plain"
	box p
	like '{"pushed":false,"error":"git push failed: *not one of a git repository"}' "$(push p)"
	teardown p
	unmount
	with_token
}

# --- servers that do not do as they should -----------------------------------------------

a_wrong_token() {
	git_is serve
	GITHUB_TOKEN=wrong GITHUB_API_URL=http://127.0.0.1:$api_port mount_repo
	same '{"pushed":false,"error":"git push failed: the server refused GITHUB_TOKEN"}' "$(push a)"
	error_says a 'the server refused GITHUB_TOKEN'
	# Once without, as every client asks, and once with it.
	same '- Basic' "$(cut -d' ' -f3 "$ROOM/git.log" | xargs)"
	unmount
}

no_api() {
	api_url=http://127.0.0.1:1
	with_token
	like "{\"pushed\":true,\"error\":\"PR creation failed: GitHub's API cannot be reached*" \
		"$(push a '{"pr":true}')"
	unmount
	api_url=ftp://127.0.0.1
	with_token
	like '{"pushed":true,"error":"PR creation failed: GITHUB_API_URL is no http or https URL"}' \
		"$(push a '{"pr":true,"remote":"path"}')"
	unmount
	# Of another server than the source's remote, which is none that the token is for.
	api_url=http://localhost:$api_port
	git_is serve
	with_token
	like '{"pushed":false,"error":"git push failed: *none of those that get GITHUB_TOKEN"}' \
		"$(push a)"
	refuse grep -v ' -$' "$ROOM/git.log"
	unmount
	api_url=
	with_token
}

# To another host, and to what may be another's by its port alone; before and after
# the token was shown to the first.
redirected() {
	for there in "http://localhost:$other_port" "http://127.0.0.1:$other_port"; do
		for when in '' known post; do
			git_is redirect "$there" $when
			: >"$ELSEWHERE/git.log"
			push a |
				grep -E '"pushed":false,"error":"git push failed: .*(redirect|another one, which gets no)'
			grep -E 'redirect|another one' "$MNT/a/ctl/error"
			refuse grep -v ' -$' "$ELSEWHERE/git.log"
		done
	done
	git_is serve
}

dropped() {
	git_is drop
	like '{"pushed":false,"error":"git push failed: *' "$(push a)"
	error_says a 'git push failed'
	refuse grep -q '^EIO' "$MNT/a/ctl/error"
	git_is serve
	same '{"pushed":true}' "$(push a)"
}

nobody_there() {
	git -C "$REPO" remote add dead http://127.0.0.1:1/acme/widgets.git
	like '{"pushed":false,"error":"git push failed: *Connection refused"}' \
		"$(push a '{"remote":"dead"}')"
	git -C "$REPO" remote set-url dead http://user:hunter2@127.0.0.1:1/acme/widgets.git
	refuse grep -q hunter2 <<END
$(push a '{"remote":"dead"}'; cat "$MNT/a/ctl/error")
END
	error_says a 'git push failed'
	git -C "$REPO" remote remove dead
}

# More silent servers than threads for them: all else goes on.
silent_ones() {
	git_is hang
	for name in h1 h2 h3 h4; do
		box $name
		writer $name
	done
	await "$ROOM/git.log"
	box meanwhile
	run meanwhile true
	run h1 sh -c 'echo x >y && git add y && git commit -qm y'
	teardown meanwhile
	ls "$MNT/h1" >/dev/null
}

interrupted_writer() {
	pid=$(pgrep -f "$MNT/h4/ctl/push")
	kill -INT "$pid"
	wait "$pid" || true
	# It did not end by itself.
	refuse test -e "$ROOM/writer.h4"
}

torn_down_writer() {
	rmdir "$MNT/h1"
	await "$ROOM/writer.h1"
	same ESTALE "$(cat "$ROOM/writer.h1")"
}

unmounted_meanwhile() {
	unmount
	while pgrep -f "$MNT/h.*/ctl/push" >/dev/null; do tick "a writer is left"; done
}

# With every call of the backend written down.
not_in_a_trace() {
	GITHUB_TOKEN=$TOKEN GITHUB_API_URL=http://127.0.0.1:$api_port "$TOOL" mount "$LOG" "$RECORD" \
		"$SANDBOXFS" "$REPO" "$MNT" -d -o "state_dir=$STATE${SBX_WEAK:+,cow=off}" &
	await "$MNT/README"
	same '{"pushed":true}' "$(push a)"
	git_is redirect "http://$TOKEN@localhost:1"
	like '{"pushed":false*' "$(push a)"
	git_is serve
	unmount
	grep -qF 'remote.push(' "$LOG"
	is_not_in "$LOG"
}

unmounted_while_the_api_is_silent() {
	git_is serve
	api_is hang
	with_token
	printf '{"pr":true}\n' 2>/dev/null >"$MNT/a/ctl/push" &
	await "$ROOM/api.log"
	unmount
	wait $! || true
	api_is serve
}

too_long() {
	git_is hang
	with_token operation_timeout_ms=1500
	same '{"pushed":false,"error":"git push failed: it took longer than it may"}' "$(push a)"
	git_is serve
}

# --- sandboxfs-push ------------------------------------------------------------------------

PUSHER=$ROOM/bin/sandboxfs-push

pusher_pid() {
	for pid in $("$TOOL" pids "$MNT"); do
		[ "$(cat "/proc/$pid/comm" 2>/dev/null)" != sandboxfs-push ] || echo "$pid"
	done
}

# begin_push_to_silence NAME: the program waits for the server, and a writer for it.
begin_push_to_silence() {
	git_is hang
	writer "$1"
	await "$ROOM/git.log"
}

no_pusher_is_left() {
	while [ -n "$(pusher_pid)" ]; do tick; done
}

waits_in_a_process_of_its_own() {
	with_token
	box own
	begin_push_to_silence own
	pid=$(pusher_pid)
	[ -n "$pid" ]
	[ "$(id -u)" = 0 ] || refuse cat "/proc/$pid/environ"
	cat "/proc/$pid/cmdline" "/proc/$pid/environ" 2>/dev/null >"$ROOM/shown" || true
	[ -s "$ROOM/shown" ]
	is_not_in "$ROOM/shown"
}

ends_with_the_sandbox() {
	rmdir "$MNT/own"
	await "$ROOM/writer.own"
	same '' "$(pusher_pid)"
}

dies_with_the_daemon() {
	box killed
	begin_push_to_silence killed
	[ -n "$(pusher_pid)" ]
	kill -9 "$(daemon_pid)"
	no_pusher_is_left
	await_end
	git_is serve
	with_token
	same '{"pushed":true}' "$(push a)"
	unmount
}

# instead_of_it TEXT: a script in its place, in which its process is noted.
instead_of_it() {
	printf '#!/bin/sh\necho $$ >%s\n%s\n' "$ROOM/instead" "$1" >"$PUSHER.new"
	chmod 755 "$PUSHER.new"
	mv "$PUSHER.new" "$PUSHER"
}

killed_when_it_hangs() {
	mv "$PUSHER" "$PUSHER.own"
	instead_of_it "trap '' TERM; exec sleep $LONG"
	with_token operation_timeout_ms=1500
	same '{"pushed":false,"error":"git push failed: it took longer than it may"}' "$(push a)"
	refuse test -e "/proc/$(cat "$ROOM/instead")"
}

of_our_build_or_none() {
	instead_of_it 'exit 0'
	same '{"pushed":false,"error":"git push failed: sandboxfs-push died"}' "$(push a)"
	rm "$PUSHER"
	like '{"pushed":false,"error":"git push failed: sandboxfs-push, which pushes, is neither '\
'beside sandboxfs nor in /*' "$(push a)"
	version=$("$SANDBOXFS" --version | cut -d ' ' -f 2)
	sed "s/$version, push/9.9.9, push/" "$PUSHER.own" >"$PUSHER"
	chmod 755 "$PUSHER"
	like "{\"pushed\":false,\"error\":\"git push failed: sandboxfs-push is of another build: \
it is 9.9.9, push *, sandboxfs is $version, push *" \
		"$(push a)"
	mv "$PUSHER.own" "$PUSHER"
	unmount
	refuse "$PUSHER" 2>"$ROOM/said"
	same 'sandboxfs-push is started by sandboxfs' "$(cat "$ROOM/said")"
}

one_after_the_other() {
	for i in 1 2 3 4; do
		(push a >"$ROOM/turn.$i") &
	done
	wait_for_turns=$(jobs -p)
	# shellcheck disable=SC2086
	wait $wait_for_turns
	for i in 1 2 3 4; do
		same '{"pushed":true}' "$(cat "$ROOM/turn.$i")"
	done
}

# --- the token ---------------------------------------------------------------------------

# Nothing that FILE... hold is the token, as it is or as HTTP has it.
is_not_in() {
	refuse grep -rqaF -e "$TOKEN" -e "$(printf 'git:%s' "$TOKEN" | base64 -w0)" "$@"
}

nowhere() {
	spawned=$(talk a/ctl/spawn "sleep $LONG
")
	for dir in "$MNT/a/ctl" "$MNT/ctl"; do
		for file in log error config stats info policy list list.json push; do
			[ ! -e "$dir/$file" ] || is_not_in "$dir/$file"
		done
		: >"$ROOM/events"
		until [ -s "$ROOM/events" ]; do
			timeout 1 cat "$dir/events" >"$ROOM/events" || tick
		done
		is_not_in "$ROOM/events"
	done
	is_not_in "$STATE" "$LOG" "$REPO" "$BARE" "$ROOM/plain.git"
	git -C "$BARE" cat-file --batch --batch-all-objects >"$ROOM/objects"
	is_not_in "$ROOM/objects"
	[ -n "$spawned" ]
	for pid in $("$TOOL" pids "$MNT"); do
		cat "/proc/$pid/cmdline" "/proc/$pid/environ" 2>/dev/null >"$ROOM/shown" || true
		is_not_in "$ROOM/shown"
	done
	run a sh -c 'cat /proc/*/environ /proc/*/cmdline; env' 2>/dev/null >"$ROOM/shown" || true
	is_not_in "$ROOM/shown"
	echo 1 >"$MNT/a/ctl/kill"
}

# Root may read the memory of the spawner and of what it has started.
in_no_childs_memory() {
	daemon=$(daemon_pid)
	for pid in $("$TOOL" pids "$MNT"); do
		[ "$pid" = "$daemon" ] || python3 - "$pid" "$TOKEN" <<'END'
import sys
pid, token = sys.argv[1], sys.argv[2].encode()
try:
    maps, mem = open(f"/proc/{pid}/maps").read(), open(f"/proc/{pid}/mem", "rb", 0)
except OSError:
    sys.exit(0)
for line in maps.splitlines():
    start, end = (int(x, 16) for x in line.split()[0].split("-"))
    if line.split()[1][0] != "r" or "[v" in line or end - start > 1 << 28:
        continue
    try:
        mem.seek(start)
        assert token not in mem.read(end - start), line
    except OSError:
        pass
END
	done
}

# --- the case ----------------------------------------------------------------------------

tidy() {
	teardown_all
	git -C "$REPO" for-each-ref --format='%(refname)' refs/heads/sandbox |
		while read -r ref; do git -C "$REPO" update-ref -d "$ref"; done
}

serve
new_repo
mkdir "$ROOM/plain" && echo plain >"$ROOM/plain/file"
git init -q --bare "$ROOM/plain.git"
git -C "$REPO" push -q "$BARE" main
git -C "$REPO" remote add origin "http://127.0.0.1:$git_port/acme/widgets.git"
git -C "$REPO" remote add path "$ROOM/plain.git"
git -C "$REPO" remote add relative ../plain.git
git -C "$REPO" update-ref refs/remotes/origin/main main
mkdir -p "$REPO/.git/hooks"
printf '#!/bin/sh\ntouch %s/hook.ran\n' "$ROOM" >"$REPO/.git/hooks/pre-push"
chmod +x "$REPO/.git/hooks/pre-push"

claim "without a token nothing is sent" without_a_token
claim "a remote that is a path needs none" by_path_without_a_token
claim "a remote's URL is what git makes of it" the_url_is_gits
claim "the branch is pushed, with what a command has committed" it_pushes
claim "no other ref moves and no hook of the source runs" no_other_ref_moves
claim "a pull request is opened" a_pull_request
claim "its requests are counted" requests_are_counted
claim "its title is cut to 256 characters" a_long_title
claim "a pull request that fails is told with its reason" a_pull_request_that_fails
claim "a remote that is not of GitHub has no pull requests" not_of_github
claim "one that is, pushed to in another way, has" of_github_by_another_way
claim "a remote that is not there" no_such_remote
claim "a push that is not a fast-forward is refused" not_a_fast_forward
claim "a branch that the server protects" a_protected_branch
claim "a branch that was moved on both sides is not pushed" what_is_apart_is_not_pushed
claim "a remote inside a sandbox is refused" a_remote_in_a_sandbox
claim "requests that cannot be read are refused" bad_requests
claim "requests in pieces, and the outcome on the same open file" on_one_open_file
claim "pushes are in log and events" noted
claim "four at once go one after the other" one_after_the_other
claim "a server that redirects is not followed, and the other host gets no token" redirected
claim "a server that hangs up" dropped
claim "a server that is not there, and no password in what is said of it" nobody_there
claim "the token is in no control file, log, object, command line or environment" nowhere
[ "$(id -u)" != 0 ] || is_sanitized ||
	claim "nor in the memory of a process that the daemon has started" in_no_childs_memory
claim "a sandbox of a directory has nothing to push" of_a_directory
claim "silent servers hold nothing else up" silent_ones
claim "a writer that is interrupted is let go" interrupted_writer
claim "the end of a sandbox ends its push" torn_down_writer
claim "an unmount ends those that wait" unmounted_meanwhile
claim "and those that wait for the API" unmounted_while_the_api_is_silent
claim "a wrong token is tried once" a_wrong_token
claim "an API that is not there, or none" no_api
claim "unmounting" unmount
claim "the token is in no trace" not_in_a_trace
claim "a push has a time limit" too_long
claim "unmounting" unmount
claim "what waits is a process that has the token in neither arguments nor environment" \
	waits_in_a_process_of_its_own
claim "it has ended when the sandbox has" ends_with_the_sandbox
claim "and it dies with the daemon" dies_with_the_daemon
claim "one that hangs is killed when the time is up" killed_when_it_hangs
claim "one that dies, is of another build or is not there is told" of_our_build_or_none
claim "mounting again" with_token
claim "and all is well again" tidy
finish
exec 7>&- 8>&- 9>&-
wait
