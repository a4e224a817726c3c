#!/bin/sh
. "$TESTS/lib/mount.sh"
# What a person or a program can read about what happened.

log_lines() {
	run a true
	run a sh -c 'exit 5' || true
	talk a/ctl/exec '{"argv":["sleep","9"],"timeout_ms":100}' >/dev/null
	while read -r line; do
		printf '%s' "$line" | "$TOOL" json timestamp | grep -q '^20..-..-..T..:..:..'
		same a "$(printf '%s' "$line" | "$TOOL" json task_id)"
		printf '%s' "$line" | "$TOOL" json event >/dev/null
	done <"$MNT/a/ctl/log"
	grep -q '"event": *"create"' "$MNT/a/ctl/log"
	grep '"exit_code": *5' "$MNT/a/ctl/log" | "$TOOL" json duration_sec
	grep -q '"timed_out": *true' "$MNT/a/ctl/log"
}

no_output_in_logs() {
	run a echo private-words-of-a-command
	refuse sh -c "grep -o 'stdout.*private-words' '$MNT/a/ctl/log'"
}

durable_copies() {
	teardown a
	grep -q '"event": *"create"' "$ROOM/logs/a.jsonl"
	grep -q '"event": *"cleanup"' "$ROOM/logs/a.jsonl"
}

events() {
	"$TOOL" read-until "$MNT/ctl/events" '"b"' &
	reader=$!
	box b
	wait $reader
	"$TOOL" read-until "$MNT/b/ctl/events" job_end &
	reader=$!
	run b true
	wait $reader
}

# A reader can tell what was before it came from what came since.
live_mark() {
	for file in "$MNT/ctl/events" "$MNT/b/ctl/events"; do
		timeout 60 python3 - "$file" "$MNT/b/ctl/exec" <<'END'
import json, sys
with open(sys.argv[1]) as f:
    seen = []
    while not seen or seen[-1] != "live":
        seen.append(json.loads(f.readline())["event"])
    assert "create" in seen, seen
    with open(sys.argv[2], "w") as e:
        e.write("true\n")
    since = []
    while not since or since[-1] != "job_end":
        since.append(json.loads(f.readline())["event"])
    assert "live" not in since, since
END
	done
}

info() {
	same b "$("$TOOL" json name <"$MNT/b/ctl/info")"
	same sandbox/b "$("$TOOL" json branch <"$MNT/b/ctl/info")"
	"$TOOL" json workdir <"$MNT/b/ctl/info" | grep -q '^/'
	same "$(git -C "$REPO" rev-parse HEAD)" "$("$TOOL" json base <"$MNT/b/ctl/info")"
	! is_away || grep -q '"isolation": *"the machine' "$MNT/b/ctl/policy"
	is_away || "$TOOL" json isolation <"$MNT/b/ctl/policy" >/dev/null
}

errors() {
	expect ENOENT write "$MNT/b/ctl/exec" O_WRONLY 'no-such-program\n'
	same 1 "$(wc -l <"$MNT/b/ctl/error")"
	expect EINVAL mkdir "$MNT/.bad"
	same 1 "$(wc -l <"$MNT/ctl/error")"
	expect ENOENT write "$MNT/b/ctl/exec" O_WRONLY '"no\x01such\\nprogram"\n'
	same 1 "$(wc -l <"$MNT/b/ctl/error")"
}

statistics() {
	grep -q '^[a-z_]*{*.*}* *[0-9]' "$MNT/ctl/stats"
	grep -i 'sandboxes' "$MNT/ctl/stats"
}

claim "mounting with logs_dir" mount_repo "logs_dir=$ROOM/logs"
claim "mkdir" box a
claim "every line of the log is JSON with timestamp, task_id and event" log_lines
claim "no output of commands in the log" no_output_in_logs
claim "the copy in logs_dir outlives the sandbox" durable_copies
claim "events come as they happen" events
claim "a line says where what was ends and what comes begins" live_mark
claim "info and policy" info
claim "error holds one sentence on one line" errors
claim "stats" statistics
finish
