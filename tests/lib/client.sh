# The body shared by the cases of clients: a sandbox to work in, and what every client must do with
# it: write, read, run a command through ctl/exec, and report a failing write.
# shellcheck shell=sh
. "$TESTS/lib/mount.sh"

exec_file=$MNT/a/ctl/exec

# begin CLIENT: mounts; fails where the client is not installed.
begin() {
	client=$1
	claim "$client is installed" command -v "${2:-$client}"
	claim "$client: mounting" mount_repo
	claim "$client: mkdir" box a
	cd "$MNT/a" || exit 1
}

end() {
	cd "$ROOM" || exit 1
	finish
}

ran() {
	same "$1" "$(cat "$MNT/a/ctl/stdout")"
}

# saves COMMAND...: the command, with a text as one more argument, puts it onto
# ctl/exec its own way. That is a request, carried out once; where it is refused the
# command says so, and ctl/error why.
saves() {
	"$@" 'sh -c "echo x >>saves; echo saved"'
	ran saved
	like '0 exited*' "$(cat ctl/status)"
	same x "$(cat saves)"
	rm saves
	"$@" 'sh -c "exit 7"'
	like '7 exited*' "$(cat ctl/status)"
	refuse "$@" no-such-program
	error_says a no-such-program
	like '127 failed*' "$(cat ctl/status)"
	ran ''
	refuse "$@" 'echo a | b'
	error_says a 'sh'
}

# A shell that understands POSIX syntax: shell_client COMMAND...
shell_client() {
	"$@" -c 'echo one >f && echo two >>f && printf "%s\n" three >>f'
	same 'one
two
three' "$(cat f)"
	same 'one two three ' "$("$@" -c 'while read -r l; do printf "%s " "$l"; done <f')"
	"$@" -c 'echo "echo run by shell" >ctl/exec && read -r line <ctl/stdout &&
			[ "$line" = "run by shell" ]'
	"$@" -c 'echo "[\"sh\",\"-c\",\"exit 3\"]" >ctl/exec; read -r code how rest <ctl/status
		[ "$code $how" = "3 exited" ]'
	"$@" -c 'printf "echo a\necho b\n" >ctl/exec; [ "$(cat ctl/stdout)" = b ]'
	"$@" -c 'cat <<END >here
line $((1 + 1))
END
[ "$(cat here)" = "line 2" ]'
	"$@" -c 'mkdir d && cd d && echo x >y && cd .. && rm -r d && [ ! -e d ]'
	"$@" -c 'for f in *.md; do [ "$f" = README.md ] || exit 1; done'
}

shell_reports() {
	refuse "$@" -c 'echo no-such-program >ctl/exec'
	refuse "$@" -c 'echo "a | b" >ctl/exec'
	refuse "$@" -c 'echo x >/proc/self/cwd/missing/file'
	grep -q . ctl/error
}
