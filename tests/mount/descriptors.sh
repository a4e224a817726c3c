#!/bin/sh
. "$TESTS/lib/mount.sh"
# An open descriptor is the file that it was opened on, whatever a
# command does to its name meanwhile.

LINES=60000

prepare() {
	new_repo
	seq $LINES >"$REPO/big"
	seq $LINES >"$REPO/other"
	for i in 1 2 3 4 5 6 7 8 9; do
		mkdir "$REPO/d$i"
		echo "base $i" | tee "$REPO/f$i" >"$REPO/d$i/f"
	done
	git -C "$REPO" add .
	git -C "$REPO" commit -qm 'more'
}

# Each begins without anything in the caches of the kernel.
fresh() {
	cd "$ROOM"
	drop_caches
}

replaced_unread() {
	fresh
	exec 8<"$MNT/a/f1"
	run a sed -i s/base/new/ f1
	same 'new 1' "$(cat "$MNT/a/f1")"
	same 'base 1' "$(cat <&8)"
	exec 8<&-
}

# The kernel then knows the names without having asked for one.
replaced_after_a_listing() {
	fresh
	ls -l "$MNT/a" >/dev/null
	exec 8<"$MNT/a/f2"
	run a sed -i s/base/new/ f2
	same 'base 2' "$(cat <&8)"
	same 'new 2' "$(cat "$MNT/a/f2")"
	exec 8<&-
}

# A base file that a command has written to stands in the overlay under its former number.
replaced_after_copying() {
	fresh
	exec 8<>"$MNT/a/f3"
	run a sh -c 'echo more >>f3'
	run a sed -i s/base/new/ f3
	printf BASE >&8
	same 'new 3
more' "$(cat "$MNT/a/f3")"
	same 'new 3
more' "$(run a cat f3)"
	same 'BASE 3
more' "$(cat "/proc/self/fd/8")"
	exec 8>&-
}

# One whose copy would be made by the first write only.
replaced_then_written() {
	fresh
	exec 8<>"$MNT/a/f4"
	run a sed -i s/base/new/ f4
	printf BASE >&8
	same 'BASE 4' "$(cat "/proc/self/fd/8")"
	same 'new 4' "$(run a cat f4)"
	run a sh -c 'echo again >f4'
	printf xx >&8
	same 'BASExx' "$(cat "/proc/self/fd/8")"
	same 'again' "$(cat "$MNT/a/f4")"
	exec 8>&-
}

replaced_then_changed() {
	fresh
	exec 8<"$MNT/a/f8"
	mode=$("$TOOL" stat "$MNT/a/f8" mode)
	run a sed -i s/base/new/ f8
	chmod 600 /proc/self/fd/8
	touch -d @1000 /proc/self/fd/8
	same '600 1000 7' "$(stat -L -c '%a %Y %s' /proc/self/fd/8)"
	same 'base 8' "$(cat <&8)"
	same "$mode" "$("$TOOL" stat "$MNT/a/f8" mode)"
	exec 8<&-
}

# What may have changed is asked for again and again while a command runs: two seconds of that.
nameless_while_running() {
	box n
	echo gone >"$MNT/n/gone"
	echo old >"$MNT/n/replaced"
	exec 8<"$MNT/n/gone" 9<"$MNT/n/replaced"
	rm "$MNT/n/gone"
	job=$("$TOOL" result "$MNT/n/ctl/spawn" sh -c 'echo new >x; mv x replaced; : >done
		exec sleep "$0"' "$LONG")
	until [ -e "$MNT/n/done" ]; do tick; done
	for i in $(seq 40); do
		same '5 4' "$(stat -L -c %s /dev/fd/8 /dev/fd/9 | tr '\n' ' ' | sed 's/ $//')"
		tick
	done
	same 'gone old' "$(cat <&8) $(cat <&9)"
	exec 8<&- 9<&-
	echo KILL >"$MNT/n/ctl/jobs/$job/kill"
	teardown n
}

unlinked_then_written() {
	fresh
	exec 8<>"$MNT/a/f5" 9<>"$MNT/a/f6"
	rm "$MNT/a/f5"
	run a rm f6
	printf BASE >&8
	printf BASE >&9
	same 'BASE 5' "$(cat "/proc/self/fd/8")"
	same 'BASE 6' "$(cat "/proc/self/fd/9")"
	expect ENOENT stat "$MNT/a/f5"
	run a test ! -e f5 -a ! -e f6
	exec 8>&- 9>&-
}

one_read_loop() {
	fresh
	exec 8<>"$MNT/a/big"
	printf 1 >&8
	printf 1 >"$ROOM/read"
	dd bs=4096 count=3 <&8 >>"$ROOM/read" 2>/dev/null
	run a sed -i s/1/x/ big
	cat <&8 >>"$ROOM/read"
	cmp "$REPO/big" "$ROOM/read"
	exec 8<&-
}

replaced_while_running() {
	fresh
	rm -f "$MNT/a/go"
	id=$("$TOOL" result "$MNT/a/ctl/spawn" \
		sh -c 'echo up >up; until [ -e go ]; do sleep 0.02; done; sed -i s/1/x/ other')
	"$TOOL" await "$MNT/a/up"
	exec 8<"$MNT/a/other" 9<>"$MNT/a/f7"
	touch "$MNT/a/go"
	like '0 exited*' "$(cat "$MNT/a/ctl/jobs/$id/wait")"
	cmp "$REPO/other" - <&8
	run a sed -i s/base/new/ f7
	printf BASE >&9
	same 'new 7' "$(cat "$MNT/a/f7")"
	exec 8<&- 9>&-
	rm "$MNT/a/up" "$MNT/a/go"
}

written_while_running() {
	fresh
	rm -f "$MNT/a/go"
	exec 8<>"$MNT/a/f9"
	id=$("$TOOL" result "$MNT/a/ctl/spawn" \
		sh -c 'sed -i s/base/new/ f9; echo >done; until [ -e go ]; do sleep 0.02; done')
	"$TOOL" await "$MNT/a/done"
	printf BA >&8
	printf SE >&8
	same 'BASE 9' "$(cat /proc/self/fd/8)"
	touch "$MNT/a/go"
	like '0 exited*' "$(cat "$MNT/a/ctl/jobs/$id/wait")"
	same 'BASE 9' "$(cat /proc/self/fd/8)"
	same 'new 9' "$(cat "$MNT/a/f9")"
	exec 8>&-
	rm "$MNT/a/done" "$MNT/a/go"
}

# There the file is replaced, so that it is never half written. The command looks for it by name.
kept_by_a_command() {
	fresh
	id=$("$TOOL" result "$MNT/a/ctl/spawn" sh -c 'exec >>held; echo one
		until grep -q host held; do sleep 0.02; done; echo two
		held=$(readlink "/proc/$$/fd/1"); echo "$held" >&2')
	until [ "$(cat "$MNT/a/held" 2>/dev/null)" = one ]; do tick; done
	echo host >>"$MNT/a/held"
	like '0 exited*' "$(cat "$MNT/a/ctl/jobs/$id/wait")"
	same 'one
host' "$(cat "$MNT/a/held")"
	same 'one
host' "$(run a cat held)"
	like '*(deleted)' "$(cat "$MNT/a/ctl/jobs/$id/stderr")"
}

moved_log() {
	fresh
	exec 8>>"$MNT/a/log"
	echo one >&8
	run a mv log log.1
	echo two >&8
	run a sh -c 'echo new >log; mkdir old; mv log.1 old'
	echo three >&8
	same 'one two three' "$(run a cat old/log.1 | tr '\n' ' ' | sed 's/ $//')"
	same new "$(cat "$MNT/a/log")"
	exec 8>&-
	exec 8>>"$MNT/a/log" # not made by this one, nor written to
	run a mv log log.2
	echo four >&8
	same 'new four' "$(run a cat log.2 | tr '\n' ' ' | sed 's/ $//')"
	exec 8>&-
}

made_by_a_command() {
	fresh
	run a sh -c 'echo first >made'
	exec 8<>"$MNT/a/made"
	run a sh -c 'echo second >made.tmp; mv made.tmp made'
	same first "$(cat <&8)"
	echo third >&8
	same second "$(cat "$MNT/a/made")"
	exec 8>&-
}

swap() {
	python3 -c 'import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
if libc.renameat2(-100, os.fsencode(sys.argv[1]), -100, os.fsencode(sys.argv[2]), 2):
    sys.exit(os.strerror(ctypes.get_errno()))' "$@"
}

# copied_up N COMMAND...: the command has dN/f copied up, and nobody looks
# at it before the kernel forgets it.
copied_up() {
	exec 8<"$MNT/a/d$1/f"
	copied=$1
	shift
	"$@"
	drop_caches
	same "base $copied" "$(cat <&8)"
	exec 8<&-
}

copied_unseen() {
	fresh
	copied_up 1 mv "$MNT/a/d1/f" "$MNT/a/d1/g"
	copied_up 2 mv "$MNT/a/d2" "$MNT/a/moved"
	copied_up 3 swap "$MNT/a/d3/f" "$MNT/a/d4/f"
	copied_up 5 truncate -s +0 "$MNT/a/d5/f"
	copied_up 6 chmod 600 "$MNT/a/d6/f"
	copied_up 7 touch "$MNT/a/d7/f"
	copied_up 8 ln "$MNT/a/d8/f" "$MNT/a/d8/g"
	copied_up 9 run a mv d9/f d9/g
}

# What may still be executed although it was written through the mount a moment ago.
written_and_executed() {
	fresh
	exec 8<>"$MNT/a/program"
	cat "$TOOL" >&8
	chmod 755 "$MNT/a/program"
	run a ./program stat program type
	exec 8>&-
}

working_directory() {
	fresh
	mkdir "$MNT/a/d" "$MNT/a/e"
	run a sh -c 'echo 1 >d/f'
	cd "$MNT/a/d"
	run a mv d d2
	same f "$(ls)"
	same 1 "$(cat f)"
	echo x >new
	run a test -e d2/new
	cd "$MNT/a/e"
	run a sh -c 'rmdir e; mkdir e; touch e/other'
	same '' "$(ls)"
	cd "$ROOM"
	same other "$(ls "$MNT/a/e")"
}

space_is_given_back() {
	fresh
	run a sh -c 'head -c 100000000 /dev/zero >large'
	stat "$MNT/a/large" >/dev/null
	run a rm large
	while ls -l "/proc/$(daemon_pid)/fd" | grep -q large; do
		tick "what a command removed still takes its place"
	done
}

few_descriptors() {
	(
		ulimit -n 300
		remount
	)
	expect ESTALE unlinked-many "$MNT/a" 150
	error_says a 'files that have been removed'
	error_says a '100'
}

# Elsewhere a file is known by its name: where nothing of it is here, an open one is what a command
# has put in its place, and none follows what a command moves.
claim "a repository" prepare
claim "mounting" mount_repo
claim "mkdir" box a
claim "a file that a command replaces is still what was opened" replaced_unread
claim "also when only a listing was asked for" replaced_after_a_listing
claim_here "one of the base that was copied up first is not the new one" replaced_after_copying
claim "nor is one that is written to only after" replaced_then_written
claim "nor is one whose mode and times are set" replaced_then_changed
claim "files of the base that were copied up unseen are still known" copied_unseen
claim "files of the base that were removed are written to" unlinked_then_written
claim "one read loop gives one file" one_read_loop
claim "files opened while the command runs" replaced_while_running
claim "files written to while it runs" written_while_running
claim "and files without a name" nameless_while_running
claim_away "a command keeps the file that it had open when the host writes to it" kept_by_a_command
claim_here "a log that a command moves away is written on" moved_log
claim_here "a file that a command had made" made_by_a_command
claim "what is held is executed" written_and_executed
claim_here "a working directory that a command moves or replaces" working_directory
claim "what was merely looked at does not take space when it is removed" space_is_given_back
claim "unmounting" unmount
claim "more removed files are open than there are descriptors: it is said" few_descriptors
finish
