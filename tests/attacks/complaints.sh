#!/bin/sh
. "$TESTS/lib/mount.sh"
. "$TESTS/lib/attack.sh"
# What a failed command says that it could not get at is told as a refusal, when it is true. (Of ten
# lines in a second, all are there: a sandbox of its own for each ten.)

denied() {
	grep '"event":"denied"' "$MNT/$1/ctl/log"
}

# told BOX KIND WHAT: the number of lines with that.
told() {
	denied "$1" | grep -F "\"kind\":\"$2\"" | grep -cF "\"what\":\"$3\"" || true
}

denials() {
	denied a | wc -l
}

# says TEXT [CODE]: a command that writes TEXT to stderr and ends with CODE.
says() {
	run a sh -c 'printf "%s\n" "$1" >&2; exit "$2"' sh "$1" "${2:-1}" || true
}

# as_many COMMAND...: it tells nothing.
as_many() {
	as_many_before=$(denials)
	"$@" || true
	same "$as_many_before" "$(denials)"
}

reads_what_is_hidden() {
	refuse run a cat "$ROOM/home/victim"
	same 1 "$(told a path "$ROOM/home/victim")"
}

with_how_to_show_it() {
	line=$(denied a | grep -F "\"what\":\"$ROOM/home/victim\"" | tail -n 1)
	hint="is there, but not shown to commands: mount with -o ro_paths=$ROOM/home/victim"
	like "*\"program\":\"cat\"*$hint\"*\"job\":*" "$line"
	error_says a "cat: $ROOM/home/victim: it $hint"
	"$TOOL" read-until "$MNT/a/ctl/events" "path: $ROOM/home/victim by cat"
	refuse grep -F 'of the host' "$MNT/a/ctl/log"
}

reads_it_in_other_words() {
	before=$(told a path "$ROOM/home/victim")
	refuse run a python3 -c "open('$ROOM/home/victim')"
	refuse run a sh -c "true <'$ROOM/home/victim'"
	refuse run a sh -c "'$ROOM/home/victim'"
	refuse run a ls "$ROOM/home/victim"
	same $((before + 4)) "$(told a path "$ROOM/home/victim")"
}

writes_what_is_read_only() {
	refuse run a touch /etc/made-inside
	same 1 "$(told a path /etc/made-inside)"
}

with_how_to_write_it() {
	error_says a 'touch: /etc/made-inside: commands see it read-only: mount with -o rw_paths=/etc'
}

what_did_not_fail_tells_nothing() {
	as_many run a sh -c "cat '$ROOM/home/victim'; true"
	as_many says "cat: $ROOM/home/victim: No such file or directory" 0
}

what_is_not_true_tells_nothing() {
	as_many run a cat "$ROOM/home/none" /nowhere/at/all
	as_many says 'cat: /etc/passwd: No such file or directory'
	as_many says "touch: $ROOM/home/none/at/all: Read-only file system"
	as_many says 'cat: /etc/passwd: Permission denied'
	as_many says 'sh: 1: sh: not found'
	as_many says "$ROOM/home/victim is a nice file"
}

# Nobody walks through the mount, or a file system that might never answer.
our_own_places_are_not_looked_at() {
	as_many says "cat: $MNT/b/secret: No such file or directory"
	as_many says "cat: $ROOM/state: No such file or directory"
	as_many says "cat: /proc/1/status: No such file or directory"
	ln -s "$MNT/b/secret" "$ROOM/home/lead"
	as_many says "cat: $ROOM/home/lead: No such file or directory"
}

# asks MOUNT: of the file system next to it.
asks() {
	MNT=$1
	says "cat: $ROOM/other/x: No such file or directory
cat: $ROOM/home/far: No such file or directory"
}

# The names would be looked up by a daemon that is stopped.
a_silent_file_system_is_not_waited_for() {
	ours=$MNT
	mkdir "$ROOM/other"
	ln -s "$ROOM/other/x" "$ROOM/home/far"
	(
		MNT=$ROOM/other STATE=$ROOM/other.state LOG=$ROOM/other.log RECORD=$ROOM/other.record
		mount_none
		as_quick=yes
		frozen asks "$ours" || as_quick=no
		fusermount3 -u "$MNT"
		await_end
		same yes "$as_quick"
	)
}

# A command that asks for them may be after just that.
no_advice_to_show_secrets() {
	mkdir -p "$ROOM/home/.ssh"
	echo key >"$ROOM/home/.ssh/id_rsa"
	says "cat: $ROOM/home/.ssh/id_rsa: No such file or directory"
	error_says a \
		"$ROOM/home/.ssh/id_rsa: it is there, but not shown to commands, as homes and secrets are"
	says "cat: /home: No such file or directory"
	refuse grep -E 'ro_paths=[^ ]*(ssh|/home( |"|$))' "$MNT/a/ctl/error" "$MNT/a/ctl/log"
}

no_more_than_eight() {
	for i in 1 2 3 4 5 6 7 8 9; do
		echo x >"$ROOM/home/victim-$i"
	done
	refuse run b cat "$ROOM/home/victim-1" "$ROOM/home/victim-2" "$ROOM/home/victim-3" \
		"$ROOM/home/victim-4" "$ROOM/home/victim-5" "$ROOM/home/victim-6" \
		"$ROOM/home/victim-7" "$ROOM/home/victim-8" "$ROOM/home/victim-9"
	same 8 "$(denied b | grep -cF "$ROOM/home/victim-")"
	error_says b "$ROOM/home/victim-9"
}

each_once() {
	before=$(told a path "$ROOM/home/victim")
	run a sh -c "for i in \$(seq 20); do echo 'cat: $ROOM/home/victim: No such file' >&2; done
		exit 1" || true
	same $((before + 1)) "$(told a path "$ROOM/home/victim")"
}

claim "mounting" mount_victims
claim "a path that is hidden is one line" reads_what_is_hidden
claim "with the option that would show it" with_how_to_show_it
claim "whatever the words" reads_it_in_other_words
claim "so is one that is read-only" writes_what_is_read_only
claim "with the option that would make it writable" with_how_to_write_it
claim "a command that has not failed tells nothing" what_did_not_fail_tells_nothing
claim "what a command says that is not true is not told" what_is_not_true_tells_nothing
claim "nor what lies in the mount, or behind a link into it" our_own_places_are_not_looked_at
claim "nor on a file system that does not answer" a_silent_file_system_is_not_waited_for
claim "nobody is advised to show secrets, or a home" no_advice_to_show_secrets
claim "each path once for a command" each_once
claim "at most eight for a command" no_more_than_eight
claim "the host is as it was" still_fine
finish
