#!/bin/sh
. "$TESTS/lib/mount.sh"
# States of a sandbox: recorded, looked at, compared, gone back to, multiplied.
CTL=$MNT/a/ctl

snap() {
	printf '%s\n' "$2" >"$MNT/$1/ctl/snapshot" && cat "$MNT/$1/ctl/snapshot"
}

# refused ERRNO FILE TEXT: the write fails with it.
refused() {
	refuse sh -c 'printf %s "$2" >"$1"' sh "$2" "$3"
	like "$1: *" "$(cat "$(dirname "$2")/error")"
}

clean() {
	same '' "$(git -C "$MNT/$1" status --porcelain)"
}

# same_trees A B: names, modes and content of what is no directory.
listing() {
	(cd "$1" && find . -name .git -prune -o ! -type d -printf '%P %y %l\n' | sort)
	(cd "$1" && find . -name .git -prune -o -type f -print0 | sort -z | xargs -0 sha1sum)
}

make_tree() {
	mkdir -p "$1/d/e" "$1/sp ace"
	echo one >"$1/d/one"
	printf '#!/bin/sh\necho ran\n' >"$1/d/e/tool"
	chmod 755 "$1/d/e/tool"
	ln -s ../one "$1/d/e/in"
	head -c 3000000 /dev/urandom >"$1/big"
	head -c 5000 /dev/urandom >"$1/sp ace/bin ary"
	: >"$1/empty"
}

records() {
	box a
	make_tree "$MNT/a"
	id=$(snap a 'the first')
	same "$id" "$(git -C "$MNT/a" rev-parse HEAD)"
	same 'the first' "$(git -C "$MNT/a" log -1 --format=%s)"
	clean a
	same "$id" "$(ls "$CTL/snapshots")"
	echo >"$CTL/snapshot"
	like 'snapshot-*' "$(git -C "$MNT/a" log -1 --format=%s)"
	same 2 "$(ls "$CTL/snapshots" | wc -l)"
	printf '{"message":"by me","author":"A B <a@b>"}' >"$CTL/snapshot"
	same 'A B <a@b>' "$(git -C "$MNT/a" log -1 --format='%an <%ae>')"
	refused EINVAL "$CTL/snapshot" '{"massage":"x"}'
	same '' "$(cat "$CTL/snapshot")"
	error_says a 'unknown key "massage"; the nearest is "message"'
}

browses() {
	id=$(git -C "$MNT/a" rev-parse HEAD)
	at=$CTL/snapshots/$id
	mkdir "$ROOM/copy"
	git -C "$MNT/a" archive HEAD | tar -x -C "$ROOM/copy"
	same "$(listing "$ROOM/copy")" "$(listing "$at")"
	# Changed since: the snapshot stays what it was.
	echo changed >"$MNT/a/d/one"
	cp -r "$at" "$ROOM/copy2"
	diff -r "$ROOM/copy" "$ROOM/copy2"
	diff -r "$ROOM/copy" "$at"
	same 444 "$(stat -c %a "$at/d/one")"
	same 555 "$(stat -c %a "$at/d/e/tool")"
	same 3000000 "$(stat -c %s "$at/big")"
	same "$(git -C "$MNT/a" log -1 --format=%ct HEAD)" "$(stat -c %Y "$at/d/one")"
	same "$(stat -c %i "$at/d/one")" "$(stat -c %i "$at/d/one")"
	same one "$(cat "$at/d/e/in")"
	same "$(sha1sum <"$ROOM/copy/big")" "$(sha1sum <"$at/big")"
	same "$(tail -c 100 "$ROOM/copy/big" | sha1sum)" "$(tail -c 100 "$at/big" | sha1sum)"
	tar -C "$at" -cf - . | tar -tf - >/dev/null
	python3 -c 'import mmap, sys
with open(sys.argv[1], "rb") as f, mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ) as m:
	assert m[:] == open(sys.argv[2], "rb").read()' "$at/big" "$ROOM/copy/big"
	grep -rq one "$at"
	ls "$CTL/snapshots/base" | grep -q README.md
	refuse test -e "$CTL/snapshots/base/d"
	refuse test -e "$CTL/snapshots/0123456789"
	rm -r "$ROOM/copy" "$ROOM/copy2"
}

is_read_only() {
	at=$CTL/snapshots/$(git -C "$MNT/a" rev-parse HEAD)
	refuse sh -c 'echo x >"$1/d/one"' sh "$at"
	refuse sh -c 'echo x >"$1/d/new"' sh "$at"
	refuse test -w "$at/d"
	refuse mkdir "$at/x"
	refuse mv "$at/d/one" "$at/d/two"
	refuse ln -s x "$at/link"
	refuse chmod 777 "$at/d/one"
	refuse rm -f "$at/d/one"
	grep -q one "$at/d/one"
}

# Links that a command commits.
holds_links() {
	box l
	run l sh -c 'ln -s /etc/passwd abs; ln -s ../../x up; ln -s d/../../.. sly; git add -A
		git commit -qm links'
	at=$MNT/l/ctl/snapshots/$(snap l links)
	for link in abs up sly; do
		same 'Permission denied' "$(LC_ALL=C readlink -v "$at/$link" 2>&1 | sed 's/.*: //')"
	done
	error_says l 'leads out of the snapshot'
}

goes_back() {
	box r
	make_tree "$MNT/r"
	id=$(snap r first)
	cp -r "$MNT/r/ctl/snapshots/$id" "$ROOM/was"
	exec 3<"$MNT/r/d/one"
	rm -r "$MNT/r/d/e" "$MNT/r/sp ace"
	echo two >"$MNT/r/d/one"
	echo new >"$MNT/r/new"
	ln -sf nowhere "$MNT/r/link"
	run r sh -c 'echo three >d/three; rm README.md; git add -A; git commit -qm moved'
	cat "$MNT/r/d/one" "$MNT/r/d/three" >/dev/null
	echo "$id" >"$MNT/r/ctl/restore"
	exec 3<&-
	clean r
	same "$id" "$(git -C "$MNT/r" rev-parse HEAD)"
	diff -r --exclude=.git "$ROOM/was" "$MNT/r"
	same one "$(cat "$MNT/r/d/one")"
	refuse test -e "$MNT/r/new"
	same '' "$(run r git status --porcelain)"
	echo previous >"$MNT/r/ctl/restore"
	same two "$(cat "$MNT/r/d/one")"
	same three "$(cat "$MNT/r/d/three")"
	rm -rf "$ROOM/was"
}

resets() {
	echo ignored >"$MNT/r/out.o"
	echo 1 >"$MNT/r/ctl/reset"
	clean r
	same "$(git -C "$REPO" rev-parse HEAD)" "$(git -C "$MNT/r" rev-parse HEAD)"
	same hello "$(cat "$MNT/r/README.md")"
	refuse test -e "$MNT/r/d"
	refuse test -e "$MNT/r/out.o"
	git -C "$REPO" fsck --strict --no-progress --no-dangling
}

waits_for_commands() {
	id=$(snap r now)
	talk r/ctl/spawn "sleep $LONG"
	refused EBUSY "$MNT/r/ctl/restore" "$id"
	error_says r running
	refused EBUSY "$MNT/r/ctl/fork" r2
	echo x >"$MNT/r/ctl/snapshot"
	echo 1 >"$MNT/r/ctl/kill"
	cat "$MNT/r/ctl/jobs/last/wait"
	echo "$id" >"$MNT/r/ctl/restore"
	refused ENOENT "$MNT/r/ctl/restore" abcdefabcdef
	refused EINVAL "$MNT/r/ctl/restore" 'HEAD~1'
}

# Commands and restores at once: each command sees the whole of one state.
never_half() {
	for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do
		echo one >"$MNT/h/f$i"
	done
	one=$(snap h one)
	for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do
		echo two >"$MNT/h/f$i"
	done
	two=$(snap h two)
	(
		for i in 1 2 3 4 5 6; do
			echo "$one" >"$MNT/h/ctl/restore"
			echo "$two" >"$MNT/h/ctl/restore"
		done 2>/dev/null
	) &
	for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
		same 1 "$(run h sh -c 'cat f* | sort -u | wc -l')"
	done
	wait $! || true
}

compares() {
	box c
	cp "$MNT/c/src/main.c" "$ROOM/main.c"
	one=$(snap c one)
	sed -i 's/return 0/return 1/' "$MNT/c/src/main.c"
	head -c 2000 /dev/urandom >"$MNT/c/bin"
	two=$(snap c two)
	git -C "$MNT/c" mv Makefile Makefile.am
	echo more >"$MNT/c/un tracked"
	rm "$MNT/c/link"
	git clone -q "$REPO" "$ROOM/clone"
	cat "$MNT/c/ctl/diff" >"$ROOM/patch"
	git -C "$ROOM/clone" apply "$ROOM/patch"
	same "$(listing "$MNT/c")" "$(listing "$ROOM/clone")"
	same 'A	bin
A	un tracked
D	link
M	src/main.c
R100	Makefile	Makefile.am' "$(LC_ALL=C sort "$MNT/c/ctl/changes")"
	same 'A	bin
M	src/main.c' "$(LC_ALL=C sort "$MNT/c/ctl/diffs/$one..$two.changes")"
	git -C "$MNT/c" diff --binary "$one" "$two" >"$ROOM/want"
	grep '^[-+@]' "$ROOM/want" >"$ROOM/want.lines"
	grep '^[-+@]' "$MNT/c/ctl/diffs/$one..$two" >"$ROOM/have.lines"
	cmp "$ROOM/want.lines" "$ROOM/have.lines"
	same '' "$(cat "$MNT/c/ctl/diffs/$two..$two")"
	grep -q '^R100' "$MNT/c/ctl/diffs/$two.changes"
	refuse cat "$MNT/c/ctl/diffs/$one..abcdefabcdef"
	same 0 "$(stat -c %s "$MNT/c/ctl/diff")"
	rm -rf "$ROOM/clone"
}

forks() {
	echo work >"$MNT/c/work"
	echo d >"$MNT/c/ctl/fork"
	same "$(listing "$MNT/c")" "$(listing "$MNT/d")"
	same "$(git -C "$MNT/c" status --porcelain)" "$(git -C "$MNT/d" status --porcelain)"
	like '*/d' "$(git -C "$MNT/d" symbolic-ref HEAD)"
	echo other >"$MNT/d/work"
	same work "$(cat "$MNT/c/work")"
	same other "$(run d cat work)"
	refused ENOENT "$MNT/ctl/create" '{"name":"g","from":"nobody"}'
	like '*nobody*' "$(cat "$MNT/ctl/error")"
	refuse test -e "$MNT/g"
	git -C "$REPO" fsck --strict --no-progress --no-dangling
}

forks_states() {
	# Oldest first.
	one=$(ls -U "$MNT/c/ctl/snapshots" | head -n 1)
	two=$(ls -U "$MNT/c/ctl/snapshots" | tail -n 1)
	printf '{"name":"e","rev":"%s","branch":"mine"}' "$one" >"$MNT/c/ctl/fork"
	clean e
	same "$one" "$(git -C "$MNT/e" rev-parse HEAD)"
	same refs/heads/mine "$(git -C "$MNT/e" symbolic-ref HEAD)"
	printf '{"name":"f","from":"c@%s"}' "$two" >"$MNT/ctl/create"
	same "$two" "$(git -C "$MNT/f" rev-parse HEAD)"
}

without_track() {
	run a true
	refused EOPNOTSUPP "$CTL/undo" 1
	error_says a '-o track'
	refuse cat "$CTL/jobs/last/diff"
	refuse sh -c 'ls "$1" | grep -q diff' sh "$CTL/jobs/last/"
}

outlives() {
	id=$(git -C "$MNT/a" rev-parse HEAD)
	ls "$CTL/snapshots" >"$ROOM/before"
	unmount
	remount track
	ls "$CTL/snapshots" | cmp - "$ROOM/before"
	echo 1 >"$CTL/reset"
	echo "$id" >"$CTL/restore"
	clean a
}

tracks() {
	run a sh -c 'echo made >made; echo more >>README.md'
	same '["README.md","made"]' "$("$TOOL" json changedFiles <"$CTL/jobs/last/result" | tr -d ' ')"
	same 'A	made
M	README.md' "$(LC_ALL=C sort "$CTL/jobs/last/changes")"
	grep -q '^+more$' "$CTL/jobs/last/diff"
	echo mine >"$MNT/a/mine"
	run a sh -c 'echo x >"tab	and \"quotes\" here"'
	same 'tab	and "quotes" here' "$("$TOOL" json changedFiles.0 <"$CTL/jobs/last/result")"
	echo 1 >"$CTL/undo"
	run a rm README.md
	same '["README.md"]' "$("$TOOL" json changedFiles <"$CTL/jobs/last/result" | tr -d ' ')"
	run a true
	same '[]' "$("$TOOL" json changedFiles <"$CTL/jobs/last/result" | tr -d ' ')"
	echo 1 >"$CTL/undo"
	echo 1 >"$CTL/undo"
	same "hello
more" "$(cat "$MNT/a/README.md")"
	same mine "$(cat "$MNT/a/mine")"
	echo 1 >"$CTL/undo"
	same hello "$(cat "$MNT/a/README.md")"
	refuse test -e "$MNT/a/made"
	refused ENOENT "$CTL/undo" 1
}

# No git in sight: the states are kept all the same.
elsewhere() {
	box p
	echo one >"$MNT/p/f"
	id=$(snap p one)
	echo two >"$MNT/p/f"
	same 'M	f' "$(cat "$MNT/p/ctl/diffs/$id.changes")"
	same one "$(cat "$MNT/p/ctl/snapshots/$id/f")"
	echo "$id" >"$MNT/p/ctl/restore"
	same one "$(cat "$MNT/p/f")"
	run p sh -c 'echo three >f'
	same '["f"]' "$("$TOOL" json changedFiles <"$MNT/p/ctl/jobs/last/result" | tr -d ' ')"
	echo 1 >"$MNT/p/ctl/undo"
	same one "$(cat "$MNT/p/f")"
	echo q >"$MNT/p/ctl/fork"
	same one "$(cat "$MNT/q/f")"
	echo 1 >"$MNT/p/ctl/reset"
	refuse test -e "$MNT/p/f"
	same '' "$(cat "$MNT/p/ctl/diff")"
	refuse test -e "$MNT/p/.git"
	teardown p q
}

# With commits of their own they outlive their sandboxes.
keeps_branches() {
	teardown_all
	git -C "$REPO" for-each-ref --format='%(refname:short)' refs/heads |
		grep -v '^main$' >"$ROOM/branches"
	grep -q '^sandbox/h$' "$ROOM/branches"
	xargs git -C "$REPO" branch -D <"$ROOM/branches"
}

claim "mounting" mount_repo
claim "snapshots are commits" records
claim "snapshots/ID is the tree as it was" browses
claim "and cannot be changed" is_read_only
claim "no link leads out of it" holds_links
claim "restore goes back, git and all" goes_back
claim "reset goes back to the beginning" resets
claim "neither happens while commands run" waits_for_commands
box h
claim "no command sees a tree half restored" never_half
claim "diff and changes are what git says" compares
claim "forks have the same content and a life of their own" forks
claim "so have forks of a state" forks_states
claim "without -o track it says what it takes" without_track
claim "snapshots outlive the mount" outlives
claim "-o track: each command's changes, and undo" tracks
claim "branches with snapshots are kept" keeps_branches
claim "and that is all they leave" tear_and_unmount
claim "mounting a plain directory" mount_dir track
claim "a copy of it has states too" elsewhere
claim "unmounting it" unmount
claim "mounting nothing" mount_none track
claim "what began empty has states too" elsewhere
finish
