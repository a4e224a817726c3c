#!/bin/sh
. "$TESTS/lib/mount.sh"
# How often a provider is asked: over a network each request is time that somebody waits.

prepare() {
	new_repo
	mkdir "$REPO/many"
	for i in $(seq 2000); do echo "$i" >"$REPO/many/$i"; done
	git -C "$REPO" add .
	git -C "$REPO" commit -qm many
}

exec_clean() {
	until_quiet a
	mark
	run a true
	cost 1
}

exec_after_writes() {
	until_quiet a
	mark
	echo one >"$MNT/a/one"
	echo two >"$MNT/a/two"
	same 'one two' "$(run a cat one two | paste -sd ' ')"
	cost 2
}

# Without contents there is nothing to put.
exec_after_names() {
	until_quiet a
	mark
	mkdir "$MNT/a/dir"
	mv "$MNT/a/one" "$MNT/a/dir/one"
	ln -s one "$MNT/a/dir/link"
	chmod 600 "$MNT/a/two"
	rm "$MNT/a/two"
	same 'link one' "$(run a ls dir | paste -sd ' ')"
	cost 1
}

# Each MiB of its output is a request more.
exec_with_output() {
	until_quiet a
	mark
	run a head -c 3000000 /dev/zero | cmp -n 3000000 - /dev/zero
	[ "$(asked | wc -l)" -le 4 ] || fail "$(asked)"
}

# And each 20 seconds of its life.
exec_for_long() {
	until_quiet a
	mark
	run a sleep 25
	[ "$(asked | wc -l)" -le 3 ] || fail "$(asked)"
}

# However many run at once: one for each start, and each start and end has the poll answered anew.
spawned_at_once() {
	until_quiet a
	mark
	for i in 1 2 3 4 5 6 7 8; do
		id=$("$TOOL" result "$MNT/a/ctl/spawn" sleep 8)
		echo "$id" >>"$ROOM/spawned"
	done
	while read -r id; do like '0 exited*' "$(cat "$MNT/a/ctl/jobs/$id/wait")"; done <"$ROOM/spawned"
	[ "$(asked run | wc -l)" -le 25 ] || fail "$(asked)"
}

many_files_then_fsync() {
	mkdir "$ROOM/files"
	head -c 4096 /dev/urandom >"$ROOM/files/0"
	for i in $(seq 999); do cp "$ROOM/files/0" "$ROOM/files/$i"; done
	tar -C "$ROOM" -cf "$ROOM/files.tar" files
	until_quiet a
	mark
	tar -C "$MNT/a" -xf "$ROOM/files.tar"
	sync "$MNT/a/files"
	cost 2
	diff -r "$ROOM/files" "$(machine a)/tree/files"
}

# Nothing is sent by itself as long as changes follow each other.
written_slowly() {
	until_quiet a
	mark
	for i in $(seq 30); do
		echo "$i" >"$MNT/a/slow$i"
		sleep 0.1
	done
	sync "$MNT/a/slow1"
	cost 2
}

# The timer of what is written during a flush ends before the flush does.
written_during_a_flush() {
	until_quiet a
	faults 'run:sync latency 1 6000'
	mark
	echo one >"$MNT/a/during1"
	until asked sync >/dev/null; do tick; done
	echo two >"$MNT/a/during2"
	late=$(($(date +%s) + 60))
	until [ -e "$(machine a)/tree/during2" ]; do
		[ "$(date +%s)" -lt $late ] || fail 'it was not sent by itself'
		tick
	done
	faults
}

second_walk() {
	find "$MNT/a" -type f -exec cat {} + >"$ROOM/first"
	until_quiet a
	drop_caches
	mark
	same 2000 "$(find "$MNT/a/many" -type f | wc -l)"
	find "$MNT/a" -type f -exec cat {} + | cmp - "$ROOM/first"
	ls -lR "$MNT/a" >/dev/null
	cost 0
}

# What a command made and changed stands in its own answer.
changed_by_a_command() {
	until_quiet a
	mark
	run a sh -c 'for i in 1 2 3 4 5 6 7 8 9 10; do echo x >many/$i; echo y >new$i; done
		rm Makefile'
	same 10 "$(ls "$MNT/a" | grep -c '^new')"
	expect ENOENT stat "$MNT/a/Makefile"
	same 2 "$("$TOOL" stat "$MNT/a/many/1" size)"
	same 2000 "$(ls "$MNT/a/many" | wc -l)"
	cost 1
}

# What nobody changed is not fetched again, whatever else ran.
kept_over_commands() {
	until_quiet a
	cat "$MNT/a/README.md" "$MNT/a/many/77" >/dev/null
	run a sh -c 'echo x >elsewhere; cat many/77'
	drop_caches
	mark
	same hello "$(cat "$MNT/a/README.md")"
	same 77 "$(cat "$MNT/a/many/77")"
	cost 0
}

# One after the other they would be a hundred.
written_in_a_row() {
	until_quiet a
	mark
	for i in $(seq 100); do echo "$i" >"$MNT/a/row"; done
	sync "$MNT/a/row"
	cost 2
	same 100 "$(cat "$(machine a)/tree/row")"
}

made_and_removed() {
	until_quiet a
	mark
	for i in $(seq 50); do
		echo "$i" >"$MNT/a/temp$i"
		rm "$MNT/a/temp$i"
	done
	sync "$MNT/a"
	[ "$(asked | wc -l)" -le 1 ] || fail "$(asked)"
	refuse asked put
}

# Machines live for six seconds from their last touch, as they say; a file that is here takes no
# request, and is use.
lives_on() {
	unmount
	export SBX_DIRS_LIFE=6000
	remount
	cat "$MNT/a/README.md"
	mark
	until [ "$(asked touch | wc -l)" -ge 2 ]; do
		cat "$MNT/a/README.md" >"$ROOM/read"
		tick
	done
	timeout 60 "$TOOL" read-until "$MNT/a/ctl/events" expiring
	unmount
	unset SBX_DIRS_LIFE
	remount
}

kept_here() {
	sed 's/.*"files_here": *\([0-9]*\).*/\1/' "$MNT/a/ctl/info"
}

# One MiB is kept at least, which is the last one read.
little_is_kept() {
	unmount
	remount cache_mb=0
	run a sh -c 'for i in 1 2 3 4 5 6 7 8; do
		dd if=/dev/urandom bs=1000000 count=1 of=large$i; done 2>/dev/null; sha1sum large? >sums'
	before=$(kept_here)
	for i in 1 2; do
		(cd "$MNT/a" && sha1sum -c sums) >/dev/null
		until [ "$(kept_here)" -le $((before + 1)) ]; do tick; done
	done
}

claim "a repository of 2000 files" prepare
claim "mounting" mount_repo
claim "mkdir" box a
claim "a command costs one request" exec_clean
claim "two after contents were written" exec_after_writes
claim "one after names and modes were changed" exec_after_names
claim "and one more for each MiB of output" exec_with_output
claim "and for each 20 seconds" exec_for_long
claim "commands that run at once are asked for together" spawned_at_once
claim "1000 files by tar, then fsync: two" many_files_then_fsync
claim "files that are written one by one for three seconds, then fsync: two" written_slowly
claim "what is written while others are sent is sent by itself as well" written_during_a_flush
claim "a second walk of all names and contents: none" second_walk
claim "what a command changed comes with its answer" changed_by_a_command
claim "what it did not change stays here" kept_over_commands
claim "a file that is written a hundred times is sent once" written_in_a_row
claim "what was made and removed is not sent" made_and_removed
claim "a machine that is used is touched, and the end of another is told before" lives_on
claim "with cache_mb=0 hardly anything that was read is kept" little_is_kept
finish
