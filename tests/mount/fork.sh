#!/bin/sh
. "$TESTS/lib/mount.sh"
# A fork has what its origin has, and neither sees what the other does from then on.

look() {
	(cd "$MNT/$1" && find . -name .git -prune -o -printf '%P %y %m %n %T@ %l\n' &&
		find . -type f ! -name .git -exec sha1sum {} +) | sort
	[ ! -d "$REPO/.git" ] || git -C "$MNT/$1" status --porcelain=v2 -uall --ignored
}

edit() {
	box "$1"
	echo '*.o' >"$MNT/$1/.gitignore"
	git -C "$MNT/$1" add .gitignore
	git -C "$MNT/$1" commit -qm 'ignore objects'
	run "$1" sh -c 'echo inside >src/inside; ln src/inside src/hard; ln -s inside src/link
		git add src; git commit -qm inside; echo more >>src/inside'
	echo changed >"$MNT/$1/README.md"
	git -C "$MNT/$1" add README.md
	echo 'changed again' >>"$MNT/$1/README.md"
	rm "$MNT/$1/Makefile"
	echo object >"$MNT/$1/main.o"
	mkdir -p "$MNT/$1/a/b"
	echo x >"$MNT/$1/a/b/x"
	chmod 700 "$MNT/$1/a/b/x"
	touch -d '2001-02-03 04:05:06.7' "$MNT/$1/a/b/x"
}

same_look() {
	look "$1" >"$ROOM/one"
	look "$2" >"$ROOM/other"
	diff "$ROOM/one" "$ROOM/other" || fail "$2 is not as $1"
}

whole() {
	edit a
	echo b >"$MNT/a/ctl/fork"
	same_look a b
	same "$(git -C "$MNT/a" rev-parse HEAD)" "$(git -C "$REPO" rev-parse sandbox/b)"
	same "$(git -C "$MNT/b" status --porcelain)" "$(run b git status --porcelain)"
	same "$(git -C "$MNT/a" log --format=%s)" "$(run b git log --format=%s)"
}

apart() {
	echo only-b >"$MNT/b/README.md"
	rm "$MNT/b/src/hard"
	run b sh -c 'git commit -qam b; echo b >new'
	like '*again*' "$(cat "$MNT/a/README.md")"
	same 2 "$(stat -c %h "$MNT/a/src/hard")"
	expect ENOENT stat "$MNT/a/new"
	same inside "$(git -C "$MNT/a" log -1 --format=%s)"
	same b "$(git -C "$REPO" log -1 --format=%s sandbox/b)"
}

of_a_fork() {
	echo '{"name":"c","from":"b"}' >"$MNT/ctl/create"
	same_look b c
	teardown a
	teardown b
	same only-b "$(cat "$MNT/c/README.md")"
	same inside "$(run c head -n 1 src/inside)"
	git -C "$MNT/c" fsck --strict --no-dangling
}

after_a_crash() {
	look c >"$ROOM/one"
	kill_daemon
	remount
	look c >"$ROOM/other"
	diff "$ROOM/one" "$ROOM/other"
}

as_it_was() {
	git -C "$MNT/c" add -A
	talk c/ctl/snapshot then
	id=$(cat "$MNT/c/ctl/snapshot")
	git -C "$MNT/c" stash list
	look c | grep -v '\.o$' >"$ROOM/one"
	echo later >"$MNT/c/later"
	echo "{\"name\":\"d\",\"from\":\"c@$id\"}" >"$MNT/ctl/create"
	same '' "$(git -C "$MNT/d" status --porcelain)"
	same "$(git -C "$MNT/c" rev-parse "$id^{tree}")" "$(git -C "$MNT/d" rev-parse HEAD^{tree})"
	expect ENOENT stat "$MNT/d/later"
	expect ENOENT stat "$MNT/d/main.o"
	echo '{"name":"e","from":"c@base"}' >"$MNT/ctl/create"
	same hello "$(cat "$MNT/e/README.md")"
	same '' "$(git -C "$MNT/e" status --porcelain)"
	teardown d
	teardown e
}

# What runs could change files while they are copied; a snapshot stands still.
while_a_command_runs() {
	talk c/ctl/snapshot still
	id=$(cat "$MNT/c/ctl/snapshot")
	talk c/ctl/spawn "sh -c 'echo late >late; exec sleep $LONG'" >"$ROOM/job"
	until [ -e "$MNT/c/late" ]; do tick; done
	expect EBUSY write "$MNT/c/ctl/fork" O_WRONLY 'g\n'
	error_says c 'EBUSY: a command is running and may change files meanwhile: '\
'wait for it or kill it; or fork a snapshot: "rev":"ID"'
	expect EBUSY write "$MNT/ctl/create" O_WRONLY '{"name":"g","from":"c"}\n'
	like '*fork a snapshot: *"from":"NAME@ID"*' "$(cat "$MNT/ctl/error")"
	expect ENOENT stat "$MNT/g"
	echo "{\"name\":\"g\",\"rev\":\"$id\"}" >"$MNT/c/ctl/fork"
	echo "{\"name\":\"h\",\"from\":\"c@$id\"}" >"$MNT/ctl/create"
	expect ENOENT stat "$MNT/g/late"
	expect ENOENT stat "$MNT/h/late"
	same only-b "$(cat "$MNT/g/README.md")"
	echo 1 >"$MNT/c/ctl/kill"
	teardown g
	teardown h
	cat "$MNT/c/ctl/jobs/last/wait"
	echo g >"$MNT/c/ctl/fork"
	same late "$(cat "$MNT/g/late")"
	teardown g
	rm "$MNT/c/late"
}

nested() {
	git clone -q "$REPO" "$MNT/c/clone"
	echo f >"$MNT/c/ctl/fork"
	same first "$(git -C "$MNT/f/clone" log -1 --format=%s)"
	same '' "$(git -C "$MNT/f/clone" status --porcelain)"
	echo mine >"$MNT/f/clone/README.md"
	git -C "$MNT/f/clone" commit -qam mine
	same first "$(git -C "$MNT/c/clone" log -1 --format=%s)"
	teardown f
}

plain() {
	teardown_all
	unmount
	drop_refs refs/heads/sandbox refs/sandboxfs
	source_is_clean
	mv "$REPO" "$REPO.away"
	mount_dir
	box p
	echo mine >"$MNT/p/mine"
	rm "$MNT/p/file"
	echo q >"$MNT/p/ctl/fork"
	same_look p q
	echo other >"$MNT/q/mine"
	same mine "$(cat "$MNT/p/mine")"
	mv "$REPO.away" "$REPO"
}

mount_repo || exit 1
claim "a fork has files, modes, links, times, commits and what was staged" whole
claim "neither sees what the other does" apart
claim "a fork of a fork outlives both" of_a_fork
claim "it is the same after a crash" after_a_crash
claim "a fork of a snapshot, or of the beginning, is as that was" as_it_was
claim "while a command runs a snapshot is forked, and what is there now is EBUSY in words" \
	while_a_command_runs
claim "repositories of the host's come along" nested
claim "a copy of a directory is forked" plain
finish
