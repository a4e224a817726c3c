#!/bin/sh
. "$TESTS/lib/mount.sh"
# Bad requests: each is refused with its errno and a sentence, and runs nothing.

# bad ERRNO CHUNK
bad() {
	expect "$1" write "$MNT/a/ctl/exec" O_WRONLY "$2"
	[ -s "$MNT/a/ctl/error" ] || fail "no sentence for $2"
	same 1 "$(wc -l <"$MNT/a/ctl/error")"
	expect ENOENT stat "$MNT/a/ran"
}

empty_argv() {
	bad EINVAL '[]'
	bad EINVAL '{"argv":[]}'
	bad EINVAL '{}'
	bad EINVAL '[""]'
	bad EINVAL '\0\0'
	bad EINVAL '"" ran\n'
	expect 0 write "$MNT/a/ctl/exec" O_WRONLY '\n'
	expect 0 write "$MNT/a/ctl/exec" O_WRONLY '  \n\n'
}

unclosed_quotes() {
	like '*EINVAL*' "$(talk a/ctl/exec 'touch "ran' @close)"
	like '*EINVAL*' "$(talk a/ctl/exec "touch 'ran" @close)"
	like '*EINVAL*' "$(talk a/ctl/exec 'touch ran\\' @close)"
	expect ENOENT stat "$MNT/a/ran"
}

operators() {
	for line in 'touch ran | cat' 'touch ran; true' 'touch ran & true' 'echo x > ran' 'cat < ran' \
		'(touch ran)' 'touch $x' 'touch `x`' 'true && touch ran' 'touch ran) '; do
		bad EINVAL "$line\\n"
		error_says a 'sh'
	done
	echo "echo '|&;<>()\$\`' \"|\" \\;" >"$MNT/a/ctl/exec"
	same '|&;<>()$` | ;' "$(cat "$MNT/a/ctl/stdout")"
}

# What only a shell would understand, and what others than shells put around a line.
not_a_shell() {
	for line in 'ls *.c' 'ls a?' 'ls ~' 'make # all' 'cd src' 'FOO=1 make' 'export A=1'; do
		bad EINVAL "$line\\n"
		error_says a 'for a shell'
	done
	for line in '[ -f x ]' '[ "$a" = b ]'; do
		bad EINVAL "$line\\n"
		error_says a 'use test -f x'
	done
	for line in exit 'wait 1' ': ran'; do
		bad ENOENT "$line\\n"
		error_says a "a shell's own"
	done
	printf '\357\273\277# a comment | *\r\necho a\r\n' >"$MNT/a/ctl/exec"
	same a "$(tr '\r' '?' <"$MNT/a/ctl/stdout")"
}

too_big() {
	expect 0 big-request "$MNT/a/ctl/exec" 1048576 131072
	expect E2BIG big-request "$MNT/a/ctl/exec" 1048577 131072
	expect E2BIG big-request "$MNT/a/ctl/exec" 1048577 1048577
}

deep_json() {
	deep=$(printf '%01000d' 0 | tr 0 '[')
	bad EINVAL "$deep"
	bad EINVAL "{\"argv\":$deep"
}

bad_json() {
	bad EINVAL '{"argv":["touch","ran"],"argv":["true"]}'
	bad EINVAL '{"argv":["touch","ran"],"nonsense":1}'
	error_says a nonsense
	bad EINVAL '{"argv":"touch ran"}'
	bad EINVAL '{"argv":["touch",1]}'
	bad EINVAL '{"argv":["touch","ran"],"cwd":1}'
	bad EINVAL '{"argv":["touch","ran"],"timeout_ms":"5"}'
	bad EINVAL '{"argv":["touch","ran"],"timeout_ms":-1}'
	bad EINVAL '{"argv":["touch","ran"],"env":["K=V"]}'
	bad EINVAL '{"argv":["touch","ran"],"env":{"K":1}}'
	bad EINVAL '{"argv":["touch","ran"],"limits":{"nonsense":1}}'
	bad EINVAL '["touch","ran",]'
	bad EINVAL '["touch" "ran"]'
	bad EINVAL '["touch","\xff\xfe"]'
	bad EINVAL '["touch","a\\u0000b"]'
	bad EINVAL '["touch","a\\ud800b"]'
	bad EINVAL '["touch","ran"] trailing\n'
	like '*EINVAL*' "$(talk a/ctl/exec '["touch","ran"' @close)"
	expect ENOENT stat "$MNT/a/ran"
}

bad_environment() {
	for key in '' 1A 'A-B' 'A B' 'A=B' 'Ü'; do
		bad EINVAL "{\"argv\":[\"touch\",\"ran\"],\"env\":{\"$key\":\"v\"}}"
		error_says a 'Invalid env key'
	done
	bad EINVAL '{"argv":["touch","ran"],"env":{"K":"a\\u0000b"}}'
	expect EINVAL write "$MNT/a/ctl/env" O_WRONLY '1BAD=x\n'
	error_says a 'Invalid env key'
}

bad_cwd() {
	for cwd in .. /etc / ../b src/../.. "$MNT" "$MNT/b" "$MNT/ax" /proc/self/cwd; do
		bad EACCES "{\"argv\":[\"touch\",\"ran\"],\"cwd\":\"$cwd\"}"
		error_says a 'path confinement violation'
	done
	bad ENOENT '{"argv":["touch","ran"],"cwd":"missing"}'
	bad ENOTDIR '{"argv":["touch","ran"],"cwd":"README.md"}'
	run a ln -s /etc out
	bad EACCES '{"argv":["touch","ran"],"cwd":"out"}'
	expect EACCES write "$MNT/a/ctl/cwd" O_WRONLY '../b\n'
	# Elsewhere it is looked for when a command starts.
	is_away || expect ENOENT write "$MNT/a/ctl/cwd" O_WRONLY 'missing\n'
	run a rm out
}

good_cwd() {
	top=$(seen_at a)
	for cwd in src ./src src/ "$MNT/a/src" "$(cat "$MNT/a/ctl/workdir")/src"; do
		out=$(talk a/ctl/exec "{\"argv\":[\"pwd\"],\"cwd\":\"$cwd\"}" | "$TOOL" json stdout)
		same "$top/src" "$out"
	done
	echo src >"$MNT/a/ctl/cwd"
	same "$top/src" "$(run a pwd)"
	same src "$(cat "$MNT/a/ctl/cwd")"
	: >"$MNT/a/ctl/cwd"
	printf '\n' >"$MNT/a/ctl/cwd"
	same "$top" "$(run a pwd)"
}

bad_programs() {
	bad ENOENT 'no-such-program ran\n'
	error_says a no-such-program
	bad ENOENT './missing ran\n'
	bad EACCES './README.md ran\n'
	bad EACCES './src ran\n'
	# Machines of dirs see this host.
	is_away || bad ENOENT "$ROOM/bin/tool touch ran\\n"
	printf 'not a program\n' >"$MNT/a/garbage"
	chmod +x "$MNT/a/garbage"
	bad ENOEXEC './garbage ran\n'
	printf '#!/no/such/interpreter\n' >"$MNT/a/garbage"
	bad ENOENT './garbage ran\n'
	rm "$MNT/a/garbage"
}

bad_tty_and_limits() {
	bad EOPNOTSUPP\|EINVAL '{"argv":["touch","ran"],"tty":true}'
	expect EINVAL write "$MNT/a/ctl/limits/procs" O_WRONLY 'many\n'
	expect EINVAL write "$MNT/a/ctl/limits/cpu_s" O_WRONLY '-1\n'
	expect EINVAL write "$MNT/a/ctl/timeout_ms" O_WRONLY 'soon\n'
	expect EINVAL write "$MNT/a/ctl/kill" O_WRONLY 'x y z\n'
	expect ESRCH\|ENOENT\|EINVAL write "$MNT/a/ctl/kill" O_WRONLY '9999\n'
}

# refused CODE-AND-ERRNO CHUNK: the job that failed is the last one everywhere, with one number.
refused() {
	echo echo good >"$MNT/a/ctl/exec"
	same good "$(cat "$MNT/a/ctl/stdout")"
	"$TOOL" write "$MNT/a/ctl/exec" O_WRONLY "$2"
	code=${1% *}
	like "$code failed job=* ${1#* } *" "$(cat "$MNT/a/ctl/status")"
	same '' "$(cat "$MNT/a/ctl/stdout")"
	number=$(sed 's/.*job=\([0-9]*\).*/\1/' "$MNT/a/ctl/status")
	last=$(readlink "$MNT/a/ctl/jobs/last")
	same "$(cat "$MNT/a/ctl/status")" "$(cat "$MNT/a/ctl/jobs/last/status")"
	same "$(cat "$MNT/a/ctl/status")" "$(cat "$MNT/a/ctl/jobs/$last/wait")"
	same "$code" "$("$TOOL" json exitCode <"$MNT/a/ctl/jobs/$last/result")"
	same "${1#* }" "$("$TOOL" json errno <"$MNT/a/ctl/jobs/$last/result")"
	"$TOOL" read-until "$MNT/a/ctl/events" "exec job=$number: "
}

no_success_before() {
	refused '127 ENOENT' 'no-such-program\n'
	refused '127 ENOENT' '{"argv":["true"],"cwd":"nowhere"}'
	refused '127 ENOENT' '{"argv":["no-such-program"],"id":"again"}'
	echo '{"argv":["echo","x"],"id":"again"}' >"$MNT/a/ctl/exec"
	same x "$(cat "$MNT/a/ctl/jobs/again/stdout")"
	refused '126 EEXIST' '{"argv":["echo","y"],"id":"again"}'
	same x "$(cat "$MNT/a/ctl/jobs/again/stdout")"
	refused '126 EACCES' '{"argv":["true"],"cwd":"/"}'
	refused '126 EINVAL' 'touch ran | cat\n'
	refused '126 EINVAL' '{"argv":["true"],"nonsense":1}'
	echo echo good >"$MNT/a/ctl/exec"
	printf '{"argv":["true"' >"$MNT/a/ctl/exec" || true
	like '126 failed job=* EINVAL incomplete JSON' "$(cat "$MNT/a/ctl/status")"
	echo echo good >"$MNT/a/ctl/exec"
	printf no-such-program >"$MNT/a/ctl/exec" || true
	like '127 failed *' "$(cat "$MNT/a/ctl/status")"
}

nothing_was_lost() {
	expect 0 write "$MNT/a/ctl/exec" O_WRONLY 'echo still here\n'
	same 'still here' "$(cat "$MNT/a/ctl/stdout")"
	same 'Makefile README.md link src' "$(ls "$MNT/a" | tr '\n' ' ' | sed 's/ $//')"
}

claim "mounting" mount_repo
claim "two sandboxes" box a b
claim "empty argv is EINVAL, an empty line is nothing" empty_argv
claim "unclosed quotes" unclosed_quotes
claim "shell operators are EINVAL with a hint, quoted they are text" operators
claim "patterns, ~, #, cd, variables are EINVAL with a hint; CR, BOM, comments are dropped" \
	not_a_shell
claim "1 MiB is taken, one byte more is E2BIG" too_big
claim "1000 levels of JSON" deep_json
claim "unknown, repeated and mistyped keys, bad UTF-8, NUL, trailing text" bad_json
claim "environment keys and values" bad_environment
claim "cwd outside is a path confinement violation, missing ENOENT, a file ENOTDIR" bad_cwd
claim "cwd inside, relative and absolute, for one request and as default" good_cwd
claim "programs missing, not executable, outside the view" bad_programs
claim "tty, limits, timeout, kill" bad_tty_and_limits
claim "what cannot be started is a job that failed, and not the success before it" no_success_before
claim "after all that the sandbox works as before" nothing_was_lost
finish
