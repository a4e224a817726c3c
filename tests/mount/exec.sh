#!/bin/sh
. "$TESTS/lib/mount.sh"
# Requests in their three encodings, and results.

text_lines() {
	echo 'echo one  two "three  four" '"'"'$five'"'" >"$MNT/a/ctl/exec"
	same 'one two three  four $five' "$(cat "$MNT/a/ctl/stdout")"
	printf 'printf %%s a\\ b' >"$MNT/a/ctl/exec"
	same 'a b' "$(cat "$MNT/a/ctl/stdout")"
	printf '%s\n' 'echo \* \~ a\b' >"$MNT/a/ctl/exec"
	same '* ~ ab' "$(cat "$MNT/a/ctl/stdout")"
}

several_lines() {
	printf 'touch l1\ntouch l2\n' >"$MNT/a/ctl/exec"
	expect 0 stat "$MNT/a/l1"
	expect 0 stat "$MNT/a/l2"
	expect ENOENT write "$MNT/a/ctl/exec" O_WRONLY 'touch l3\nno-such-program\ntouch l4\n'
	expect 0 stat "$MNT/a/l3"
	expect ENOENT stat "$MNT/a/l4"
}

json_arrays() {
	echo '["echo","a  b","c\"d"]' >"$MNT/a/ctl/exec"
	same 'a  b c"d' "$(cat "$MNT/a/ctl/stdout")"
	printf '["sh","-c","echo $((6*7)) | cat"]' >"$MNT/a/ctl/exec"
	same 42 "$(cat "$MNT/a/ctl/stdout")"
}

json_objects() {
	out=$(talk a/ctl/exec '{"argv":["sh","-c","pwd; echo $K; cat"],"cwd":"src","env":{"K":"V"},' \
		'"timeout_ms":5000,"stdin":"given"}')
	same "$(seen_at a)/src
V
given" "$(printf '%s' "$out" | "$TOOL" json stdout)"
	same 0 "$(printf '%s' "$out" | "$TOOL" json exitCode)"
}

nul_separated() {
	same 'x y
z' "$("$TOOL" exec "$MNT/a/ctl/exec" printf '%s\n' 'x y' z)"
	printf 'echo\0no end' >"$MNT/a/ctl/exec" || true
	printf 'echo\0by flush\0' >"$MNT/a/ctl/exec"
	same 'by flush' "$(cat "$MNT/a/ctl/stdout")"
}

incremental() {
	same 'pieces' "$(talk a/ctl/exec '["ec' 'ho", "pie' 'ces"' ']' | "$TOOL" json stdout | head -n 1)"
	same 'no newline' "$(talk a/ctl/exec 'echo "no' ' newline"' @flush | "$TOOL" json stdout)"
	same 'synced' "$(talk a/ctl/exec 'echo synced' @fsync | "$TOOL" json stdout)"
	same 'read' "$(talk a/ctl/exec 'echo read' | "$TOOL" json stdout)"
	same 'nul' "$(talk a/ctl/exec 'echo\0n' 'ul\0\0' | "$TOOL" json stdout)"
}

results() {
	out=$("$TOOL" result "$MNT/a/ctl/exec" sh -c 'echo o; echo e >&2; exit 7')
	for pair in exitCode=7 signal=null timedOut=false oomKilled=false stdoutTruncated=false \
		stderrTruncated=false stdoutBytes=2 stderrBytes=2 argv.0=sh; do
		same "${pair#*=}" "$(printf '%s' "$out" | "$TOOL" json "${pair%%=*}")"
	done
	printf '%s' "$out" | "$TOOL" json durationMs | grep -qx '[0-9.]*'
	id=$(printf '%s' "$out" | "$TOOL" json id)
	same "$(printf '%s' "$out" | "$TOOL" json stdout)" \
		"$("$TOOL" json stdout <"$MNT/a/ctl/jobs/$id/result")"
}

statuses() {
	status_after 'exit 0' '0 exited'
	status_after 'exit 255' '255 exited'
	# A shell elsewhere tells of a signal that nobody here has sent as of an exit by 128 and more.
	how=signaled
	! is_away || how=exited
	status_after 'kill -9 $$' "137 $how"
	status_after 'kill -15 $$' "143 $how"
}

status_after() {
	"$TOOL" result "$MNT/a/ctl/exec" sh -c "$1" >/dev/null
	read -r code how _ <"$MNT/a/ctl/status"
	same "$2" "$code $how"
}

binary_output() {
	run a sh -c 'i=0; while [ $i -lt 256 ]; do printf "\\$(printf %03o $i)"; i=$((i+1)); done' \
		>"$ROOM/bytes"
	same 256 "$(wc -c <"$ROOM/bytes")"
	same 256 "$(od -An -v -tu1 -w1 "$ROOM/bytes" | sort -un | wc -l)"
	out=$("$TOOL" result "$MNT/a/ctl/exec" printf '\377\376')
	same '//4=' "$(printf '%s' "$out" | "$TOOL" json stdoutBase64)"
}

nonzero_is_no_error() {
	expect 0 write "$MNT/a/ctl/exec" O_WRONLY 'false\n'
	read -r code _ <"$MNT/a/ctl/status"
	same 1 "$code"
}

visible_at_once() {
	i=0
	while [ $i -lt 50 ]; do
		echo "from host $i" >"$MNT/a/shared"
		run a sh -c 'cat shared >copy; echo inside >>shared'
		same "from host $i" "$(cat "$MNT/a/copy")"
		same 'inside' "$(tail -n 1 "$MNT/a/shared")"
		i=$((i + 1))
	done
}

repeated_id() {
	talk a/ctl/exec '{"argv":["sh","-c","echo ran >>ids; cat ids"],"id":"once"}' >"$ROOM/r1"
	talk a/ctl/exec '{"argv":["sh","-c","echo ran >>ids; cat ids"],"id":"once"}' >"$ROOM/r2"
	same ran "$(cat "$MNT/a/ids")"
	cmp "$ROOM/r1" "$ROOM/r2"
	like '*EEXIST*' "$(talk a/ctl/exec '{"argv":["true"],"id":"once"}')"
}

several_on_one_open_file() {
	out=$(talk a/ctl/exec 'echo first\n' @read 'echo second\n')
	like '*first*second*' "$out"
}

exec_fail_errno() {
	expect EREMOTEIO write "$MNT/a/ctl/exec" O_WRONLY 'false\n'
	expect 0 write "$MNT/a/ctl/exec" O_WRONLY 'true\n'
	expect EREMOTEIO write "$MNT/a/ctl/exec" O_WRONLY 'sh -c "exit 3"\n'
	read -r code _ <"$MNT/a/ctl/status"
	same 3 "$code"
}

# The code alone would not say what to do about it.
exec_fail_keeps_the_hint() {
	echo hidden >"$ROOM/home/hidden"
	expect EREMOTEIO write "$MNT/a/ctl/exec" O_WRONLY "cat $ROOM/home/hidden\n"
	error_says a 'EREMOTEIO: job '
	hint="it is there, but not shown to commands: mount with -o ro_paths="
	error_says a " ended with code 1; cat: $ROOM/home/hidden: $hint"
	same 1 "$(wc -l <"$MNT/a/ctl/error")"
	expect EREMOTEIO write "$MNT/a/ctl/exec" O_WRONLY '["bash", "-c", "exec 3<>/dev/tcp/192.0.2.1/80"]'
	error_says a ' ended with code 1; '
	error_says a ' net='
	expect EREMOTEIO write "$MNT/a/ctl/exec" O_WRONLY 'false\n'
	like 'EREMOTEIO: job * ended with code 1' "$(cat "$MNT/a/ctl/error")"
	rm "$ROOM/home/hidden"
}

claim "mounting" mount_repo
claim "mkdir" box a
claim "nothing has run: status is '- idle'" like '- idle*' "$(cat "$MNT/a/ctl/status")"
claim "a text line is split as a shell quotes, nothing expands" text_lines
claim "several lines run in order, up to the first that cannot start" several_lines
claim "JSON arrays" json_arrays
claim "JSON objects with cwd, env, stdin, timeout" json_objects
claim "NUL-separated" nul_separated
claim "a request may come in pieces; flush, fsync or read ends it" incremental
claim "the result as JSON, also in jobs/ID/result" results
claim "status: exit codes and signals" statuses
claim "output is byte-exact; in JSON as base64 when it is not UTF-8" binary_output
claim "a non-zero exit is not a write error" nonzero_is_no_error
claim "what was written is seen inside, and back, at once" visible_at_once
claim "a repeated id runs nothing and gives the first result; EEXIST for another request" \
	repeated_id
claim "one open file carries several requests" several_on_one_open_file
claim "unmounting" unmount
claim "mounting with exec_fail=errno" remount exec_fail=errno
claim "a non-zero exit is EREMOTEIO with exec_fail=errno" exec_fail_errno
# Elsewhere nobody knows what this host hides, or what a machine was refused.
claim_here "and what the command was refused stands behind it" exec_fail_keeps_the_hint
finish
