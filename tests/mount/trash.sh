#!/bin/sh
. "$TESTS/lib/mount.sh"
# What was not committed outlives a teardown, and comes back.

look() { # what there is, but for what git does not record
	(cd "$MNT/$1" && find . -name .git -prune -o -type f -printf '%P %f ' -exec sha1sum {} \; && find . -type l -printf '%P %l\n') |
		grep -v '\.log ' | sed 's/  .*//' | sort
	(cd "$MNT/$1" && find . -name .git -prune -o -type f -perm -100 -printf 'x %P\n') | sort
	git -C "$MNT/$1" status --porcelain=v2 -uall | grep -v '^#' | sed 's/^\(1 .. N... ......\) ...... ......\(.*\)/\1\2/'
}

edit() {
	box "$1"
	echo '*.log' >"$MNT/$1/.gitignore"
	git -C "$MNT/$1" add .gitignore
	git -C "$MNT/$1" commit -qm 'ignore logs'
	echo changed >"$MNT/$1/README.md"
	git -C "$MNT/$1" add README.md
	echo 'changed again' >>"$MNT/$1/README.md"
	rm "$MNT/$1/Makefile"
	mkdir -p "$MNT/$1/new/er"
	echo new >"$MNT/$1/new/er/it's \"odd\""
	echo '#!/bin/sh' >"$MNT/$1/script"
	chmod 755 "$MNT/$1/script"
	echo x >"$MNT/$1/noise.log"
	run "$1" sh -c 'echo inside >src/inside; ln -s inside src/link; ln src/inside src/hard'
	ln -sf README.md "$MNT/$1/link"
}

newest() { # SANDBOX
	sed -n "s/^\($1-[0-9]*T[0-9]*Z[^ 	]*\).*/\1/p" "$MNT/ctl/trash" | tail -n 1
}

bring_back() { # SANDBOX ENTRY
	echo "{\"name\":\"$1\",\"from\":\"trash:$2\"}" >"$MNT/ctl/create"
}

same_files() {
	diff "$1" "$2" || fail "it came back as something else"
}

by_rmdir() {
	edit a
	look a >"$ROOM/before"
	expect 0 rmdir "$MNT/a"
	box a2
	teardown a
	bring_back a "$(newest a)"
	look a >"$ROOM/after"
	same_files "$ROOM/before" "$ROOM/after"
	same "refs/heads/sandbox/a" "$(git -C "$MNT/a" symbolic-ref HEAD)"
	same inside "$(run a cat src/link)"
	same "$(git -C "$MNT/a" status --porcelain)" "$(run a git status --porcelain)"
	git -C "$MNT/a" fsck --strict --no-dangling
	teardown a2
}

by_removing_all() {
	edit b
	look b >"$ROOM/before"
	rm -rf "$MNT/b"
	expect ENOENT stat "$MNT/b"
	teardown b
	bring_back b "$(newest b)"
	look b >"$ROOM/after"
	same_files "$ROOM/before" "$ROOM/after"
}

killed_after() {
	edit c
	edit d
	look c >"$ROOM/before"
	look d >>"$ROOM/before"
	rm -rf "$MNT/c"
	expect 0 rmdir "$MNT/d"
	kill_daemon
	remount
	expect ENOENT stat "$MNT/c"
	bring_back c "$(newest c)"
	bring_back d "$(newest d)"
	look c >"$ROOM/after"
	look d >>"$ROOM/after"
	same_files "$ROOM/before" "$ROOM/after"
}

untouched() {
	count=$(wc -l <"$MNT/ctl/trash")
	box u
	run u true
	git -C "$MNT/u" status
	echo committed >"$MNT/u/file"
	git -C "$MNT/u" add file
	git -C "$MNT/u" commit -qm all
	echo x >"$MNT/u/.git-no" && rm "$MNT/u/.git-no"
	teardown u
	same "$count" "$(wc -l <"$MNT/ctl/trash")"
	git -C "$REPO" branch -qD sandbox/u
}

# Another name is given up while the file is there by the first.
links_are_counted() {
	box l
	echo 1 >"$MNT/l/one"
	ln "$MNT/l/one" "$MNT/l/two"
	rm "$MNT/l/one"
	same 1 "$(stat -c %h "$MNT/l/two")"
	teardown l
}

over_time() {
	old=$(newest a)
	commit=$(git -C "$REPO" cat-file commit "refs/sandboxfs/trash/$old" | sed 's/^Time-Ms: .*/Time-Ms: 1000/')
	git -C "$REPO" update-ref "refs/sandboxfs/trash/$old" "$(echo "$commit" | git -C "$REPO" hash-object -t commit -w --stdin)"
	unmount
	remount
	refuse grep -q "$old" "$MNT/ctl/trash"
	refuse git -C "$REPO" show-ref -q "refs/sandboxfs/trash/$old"
	[ "$(wc -l <"$MNT/ctl/trash")" -gt 1 ]
}

off() {
	teardown_all
	unmount
	git -C "$REPO" for-each-ref --format='delete %(refname)' refs/sandboxfs/trash | git -C "$REPO" update-ref --stdin
	mount_repo trash=off
	edit o
	teardown o
	same '' "$(git -C "$REPO" for-each-ref refs/sandboxfs)"
	git -C "$REPO" for-each-ref --format='delete %(refname)' refs/heads/sandbox | git -C "$REPO" update-ref --stdin
}

directory() {
	unmount
	mount_dir
	box p
	echo mine >"$MNT/p/sub/mine"
	rm "$MNT/p/file"
	rm -rf "$MNT/p"
	teardown p
	bring_back q "$(newest p)"
	same mine "$(cat "$MNT/q/sub/mine")"
	expect ENOENT stat "$MNT/q/file"
}

mount_repo || exit 1
claim "what was not committed comes back after rmdir" by_rmdir
claim "rm -rf of a sandbox is taken back as it was before the first unlink" by_removing_all
claim "a daemon that is killed after rmdir loses nothing" killed_after
claim "of what was committed or not touched there is no entry" untouched
claim "links are counted as they are" links_are_counted
claim "entries go when their time is over" over_time
claim "trash=off saves nothing" off
claim "a copy of a directory comes back" directory
finish
