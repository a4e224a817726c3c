#!/bin/sh
. "$TESTS/lib/mount.sh"
# The backend of backends/README.md, which the build takes from that text.

lists_two_files() {
	same "one two" "$(ls "$MNT/a" | paste -sd ' ')"
	same 1 "$(cat "$MNT/a/one")"
	same 2 "$(cat "$MNT/a/two")"
}

runs_commands() {
	echo 'echo hello' >"$MNT/a/ctl/exec"
	same hello "$(cat "$MNT/a/ctl/stdout")"
	like '0 exited*' "$(cat "$MNT/a/ctl/status")"
	echo 'cat one two' >"$MNT/a/ctl/exec"
	same "1 2" "$(paste -sd ' ' "$MNT/a/ctl/stdout")"
}

has_files_of_its_own() {
	echo mine >"$MNT/a/one"
	mkdir "$MNT/b"
	same 1 "$(cat "$MNT/b/one")"
	same mine "$(cat "$MNT/a/one")"
	rmdir "$MNT/b"
}

says_what_it_lacks() {
	like '*EOPNOTSUPP*' "$(talk a/ctl/snapshot 'message' 2>&1)"
	error_says a 'snapshot is not available'
}

claim "mounting" mount_none backend=memory
claim "mkdir makes a sandbox" mkdir "$MNT/a"
claim "it has the two files" lists_two_files
claim "it runs commands" runs_commands
claim "another has files of its own" has_files_of_its_own
claim "a table that it has not is refused in words" says_what_it_lacks
finish
