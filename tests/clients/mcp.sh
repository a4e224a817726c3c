#!/bin/sh
. "$TESTS/lib/client.sh"
# The reference MCP file-system server, as it is published. It resolves the
# directories that it is allowed when it starts and each path before it is used,
# writes a new file of another name, and renames it.

server=$ROOM/prepared/node_modules/@modelcontextprotocol/server-filesystem/dist/index.js

# call TOOL ARGUMENT=VALUE...
call() {
	python3 "$TESTS/clients/mcp/call.py" call "$ROOM/mcp" "$@"
}

write_request() {
	call write_file "path=$MNT/a/ctl/exec" "content=$1"
}

starts() {
	until [ -S "$ROOM/mcp" ]; do
		kill -0 $! || fail "$(cat "$ROOM/mcp.log")" || return 1
		tick
	done
}

stops() {
	call end
	rm "$ROOM/mcp"
}

lists() {
	call tools >"$ROOM/tools"
	grep -qx edit_file "$ROOM/tools"
	call list_directory "path=$MNT/a" >"$ROOM/listed"
	grep -qFx '[FILE] README.md' "$ROOM/listed"
	grep -qFx '[DIR] src' "$ROOM/listed"
	refuse grep -qF ' ctl' "$ROOM/listed"
	call list_directory "path=$MNT/a/ctl" >"$ROOM/listed"
	grep -qFx '[FILE] exec' "$ROOM/listed"
	refuse grep -F .tmp "$ROOM/listed"
	call directory_tree "path=$MNT/a" | grep -qF main.c
	call search_files "path=$MNT/a" 'pattern=**/*.c' | grep -qF main.c
}

edits() {
	same hello "$(call read_text_file "path=$MNT/a/README.md")"
	call edit_file "path=$MNT/a/README.md" 'edits=[{"oldText": "hello", "newText": "edited"}]' |
		grep -qx '+edited'
	same edited "$(cat README.md)"
	call write_file "path=$MNT/a/new" 'content=one'
	call write_file "path=$MNT/a/new" 'content=another'
	same another "$(cat new)"
	call move_file "source=$MNT/a/new" "destination=$MNT/a/src/new"
	same another "$(cat src/new)"
	same '' "$(find . -name '*.tmp')"
}

runs() {
	write_request 'sh -c "cat README.md; echo to stderr >&2; exit 7"'
	same edited "$(call read_text_file "path=$MNT/a/ctl/stdout")"
	same 'to stderr' "$(call read_text_file "path=$MNT/a/ctl/stderr")"
	like '7 exited*' "$(call read_text_file "path=$MNT/a/ctl/status")"
	write_request '["sh", "-c", "seq 3 >made"]'
	same '1
2
3' "$(call read_text_file "path=$MNT/a/made")"

	call read_multiple_files "paths=[\"$MNT/a/ctl/status\", \"$MNT/a/ctl/error\"]" | grep -q '0 exited'
}

settings() {
	call write_file "path=$MNT/a/ctl/cwd" 'content=src'
	same src "$(call read_text_file "path=$MNT/a/ctl/cwd")"
	call edit_file "path=$MNT/a/ctl/cwd" 'edits=[{"oldText": "src", "newText": "."}]'
	same . "$(cat ctl/cwd)"
}

reports() {
	refuse write_request no-such-program >"$ROOM/said"
	grep -F ENOENT "$ROOM/said"
	call read_text_file "path=$MNT/a/ctl/error" | grep -F 'no-such-program: program not found'
	like '127 failed*' "$(call read_text_file "path=$MNT/a/ctl/status")"
	refuse write_request 'echo a | b' >"$ROOM/said"
	grep -F EINVAL "$ROOM/said"
	refuse call write_file "path=$MNT/a/ctl/status" 'content=0 exited' >"$ROOM/said"
	grep -F EACCES "$ROOM/said"
	refuse call edit_file "path=$MNT/a/README.md" 'edits=[{"oldText": "missing", "newText": "x"}]'
	refuse call read_text_file "path=$MNT/a/missing"
}

# all OPTIONS ALLOWED
all() {
	claim "${1:-by default}: mounting" mount_repo "$1"
	claim "${1:-by default}: mkdir" box a
	cd "$MNT/a" || exit 1
	# shellcheck disable=SC2086
	python3 "$TESTS/clients/mcp/call.py" serve "$ROOM/mcp" "$server" $2 >"$ROOM/mcp.log" 2>&1 &
	claim "${1:-by default}: the server starts" starts
	claim "${1:-by default}: lists files and controls" lists
	claim "${1:-by default}: reads, edits, writes, moves files" edits
	claim "${1:-by default}: runs a command and reads its result" runs
	claim "${1:-by default}: a request is carried out once" saves write_request
	claim "${1:-by default}: edits a setting" settings
	claim \
		"${1:-by default}: what is refused is an error with its errno, and ctl/error has the reason" \
		reports
	claim "${1:-by default}: the server ends" stops
	wait $! || echo "not ok - the server ends well"
	end
	git -C "$REPO" branch -qD sandbox/a 2>/dev/null || true
}

claim "node is installed" command -v node
all '' "$MNT/a $MNT/a/ctl"
all controls=inline "$MNT"
