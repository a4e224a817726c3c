#!/bin/sh
. "$TESTS/lib/mount.sh"
# What was not committed outlives a teardown, and comes back.

look() { # what there is, but for what git does not record
	(cd "$MNT/$1" && find . -name .git -prune -o -type f -printf '%P %f ' -exec sha1sum {} \; &&
		find . -type l -printf '%P %l\n') |
		grep -v '\.log ' | sed 's/  .*//' | sort
	(cd "$MNT/$1" && find . -name .git -prune -o -type f -perm -100 -printf 'x %P\n') | sort
	git -C "$MNT/$1" status --porcelain=v2 -uall | grep -v '^#' |
		sed 's/^\(1 .. N... ......\) ...... ......\(.*\)/\1\2/'
}

edit() {
	box "$1"
	echo '*.log' >"$MNT/$1/.gitignore"
	git -C "$MNT/$1" add .gitignore
	# Of two sandboxes in one second the same commit would be both's.
	git -C "$MNT/$1" commit -qm "ignore logs of $1"
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

# The next claim finds the mount as the last one did, also when this
# one fails, and nothing at PLACE.
then_as_before() { # [PLACE]
	away=${1:-}
	trap as_before EXIT
}

as_before() {
	! is_mounted || { teardown_all && unmount; }
	[ ! "$away" ] || ! is_mounted "$away" || umount "$away"
	mount_repo
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

# What git cannot say: ignored files, modes, line ends, times, names that it refuses,
# repositories of the host and of commands.
odd() {
	box "$1"
	echo '*.log' >"$MNT/$1/.gitignore"
	echo '* text=auto' >"$MNT/$1/.gitattributes"
	printf 'a\r\nb\r\n' >"$MNT/$1/crlf"
	echo secret >"$MNT/$1/secret"
	chmod 600 "$MNT/$1/secret"
	mkdir -p "$MNT/$1/empty/er"
	echo noise >"$MNT/$1/noise.log"
	git -c protocol.file.allow=always clone -q "$REPO" "$MNT/$1/host" 2>"$ROOM/clone" ||
		cat "$ROOM/clone"
	echo mine >"$MNT/$1/host/mine"
	run "$1" sh -c 'echo x >.GIT; mkdir "git~1"; echo y >"git~1/y"; git init -q inner; echo i >inner/i
		mkfifo pipe; ln src/main.c hard; ln -s nowhere dead; touch -d "2001-02-03 04:05:06.7" README.md
		chmod 750 src
		git -C inner add i && git -C inner -c user.name=T -c user.email=t@e commit -qm inner'
}

# By a command, which is not shown what stands in place of the host's .git.
all_of() {
	run "$1" \
		sh -c 'find . -path ./.git -prune -o -path ./host/.git -prune -o -printf "%P %y %m %n %l " \
		\( -type d -printf "\n" -o -printf " %s %T@\n" \) | sort
		find . -path ./.git -prune -o -path ./host/.git -prune -o -type f -exec sha1sum {} + | sort -k 2
		git -C inner log --format=%H%s; git --no-optional-locks -C inner status --porcelain'
	git -C "$MNT/$1/host" log --format=%H%s
	git -C "$MNT/$1/host" status --porcelain
}

git_cannot_say() {
	odd w
	all_of w >"$ROOM/before"
	expect 0 rmdir "$MNT/w"
	teardown w
	entry=$(newest w)
	git -C "$REPO" cat-file -e "refs/sandboxfs/trash/$entry:crlf"
	grep -q "\"$entry\".*\"whole\": *true" "$MNT/ctl/trash.json"
	kill_daemon
	remount
	bring_back w "$entry"
	all_of w >"$ROOM/after"
	same_files "$ROOM/before" "$ROOM/after"
	# And once more, as it stays in the trash.
	bring_back w2 "$entry"
	same noise "$(cat "$MNT/w2/noise.log")"
	same mine "$(cat "$MNT/w2/host/mine")"
	teardown w
	teardown w2
}

ignored_alone() {
	box i
	echo '*.log' >"$MNT/i/.gitignore"
	git -C "$MNT/i" add .gitignore
	git -C "$MNT/i" commit -qm 'ignore logs'
	echo noise >"$MNT/i/noise.log"
	teardown i
	bring_back i "$(newest i)"
	same noise "$(cat "$MNT/i/noise.log")"
	teardown i
}

# Without what is kept in the state directory git still has the rest.
git_alone() {
	edit j
	look j >"$ROOM/before"
	teardown j
	unmount
	rm -rf "$STATE/removed"
	remount
	bring_back j "$(newest j)"
	look j >"$ROOM/after"
	same_files "$ROOM/before" "$ROOM/after"
	teardown j
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

# By several processes, one after the other and at once, as long as nothing else is written.
by_many() {
	edit z
	look z >"$ROOM/before"
	rm "$MNT/z/README.md"
	find "$MNT/z/new" -type f -exec rm {} \;
	rm -rf "$MNT/z/src" &
	rm -rf "$MNT/z/new"
	wait $!
	cat "$MNT/z/script"
	rm -rf "$MNT/z"
	expect ENOENT stat "$MNT/z"
	teardown z
	bring_back z "$(newest z)"
	look z >"$ROOM/after"
	same_files "$ROOM/before" "$ROOM/after"
}

# There is no inode left but those of removed files. What has another name or
# mode is copied from the base before.
room_for_each() {
	for i in 1 2 3 4 5; do cp "$REPO/README.md" "$REPO/base$i"; done
	git -C "$REPO" add .
	git -C "$REPO" commit -qm 'base files'
	box v
	echo 4 >"$MNT/v/ctl/limits/disk_mb"
	run v sh -c 'mkdir many; i=0; while : >many/$i; do i=$((i + 1)); done' 2>/dev/null || :
	refuse touch "$MNT/v/more"
	n=0
	for does in 'ln -s target symbolic' 'mkfifo pipe' 'mkdir dir' 'mv base1 moved' 'chmod 600 base2' \
		'truncate -s 3 base3' \
		'touch -d 2001-02-03 base4' 'touch file' 'ln README.md second' 'rm base5'; do
		# A name of the base that goes takes one as well.
		rm "$MNT/v/many/$n" "$MNT/v/many/$((n + 1))" "$MNT/v/many/$((n + 2))" "$MNT/v/many/$((n + 3))"
		n=$((n + 4))
		(cd "$MNT/v" && $does) || fail "$does"
		# The kernel may tell of a removed file that it has forgotten it only now.
		while touch "$MNT/v/filler$n" 2>/dev/null; do n=$((n + 1)); done
	done
}

# Nobody hears that a command finds no room: what was removed is not kept long while one runs.
room_for_who_runs() {
	box v
	dd if=/dev/zero of="$MNT/v/big" bs=1M count=20 status=none
	run v sh -c ': >ready; i=0; until dd if=/dev/zero of=other bs=1M count=20 status=none; do
		i=$((i + 1)); [ $i -lt 200 ] || exit 1; sleep 0.1; done' 2>/dev/null &
	until [ -e "$MNT/v/ready" ]; do tick; done
	rm "$MNT/v/big"
	wait $! || fail "a command that runs finds no room"
	teardown v
}

# What was removed is kept for a while, but never in the way of a write.
room_after_rm() {
	then_as_before
	teardown_all
	unmount
	mount_repo disk_mb=24 || return 0
	box v
	mkdir "$MNT/v/many"
	for i in $(seq 20); do head -c 1048576 /dev/urandom | split -a 3 -b 4096 - "$MNT/v/many/$i-"; done
	refuse dd if=/dev/zero of="$MNT/v/big" bs=1M count=20 status=none
	rm -r "$MNT/v/big" "$MNT/v/many"
	dd if=/dev/zero of="$MNT/v/big" bs=1M count=20 status=none
	rm "$MNT/v/big"
	# A command is not made to wait for what goes in the background.
	run v sh -c 'until [ "$(df -k --output=avail . | tail -n 1)" -ge 20480 ] || [ ${i:=0} = 1200 ]; do
		i=$((i + 1)); sleep 0.05; done; dd if=/dev/zero of=big bs=1M count=20 status=none'
	teardown v
	room_for_who_runs
	room_for_each
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

# Also where nothing is but commits that no ref of the source has: a reflog's,
# or of more branches than it takes.
left_inside() {
	box k
	run k sh -c 'git commit -q --allow-empty -m first; git commit -q --amend --allow-empty -m second
		for i in $(seq 1010); do
			printf "commit refs/heads/aa$i\ncommitter x <x@y> 1 +0000\ndata <<E\nmany $i\nE\n\n"; done |
			git fast-import --quiet'
	teardown k
	git -C "$REPO" log --format=%s "refs/sandboxfs/trash/$(newest k)" >"$ROOM/left"
	grep -qx first "$ROOM/left"
	same 1010 "$(git -C "$REPO" log --format=%s --glob='refs/sandboxfs/heads/k-*' \
		"refs/sandboxfs/trash/$(newest k)" | grep -c '^many ')"
	bring_back k "$(newest k)"
	same second "$(git -C "$MNT/k" log -1 --format=%s)"
	same '' "$(git -C "$MNT/k" status --porcelain)"
	teardown k
	git -C "$REPO" branch -qD sandbox/k
	drop_refs refs/sandboxfs/heads
}

# Without a command there is no reflog inside. Of the last the tree is as it began.
off_the_branch() {
	box off1 off2
	for name in off1 off2; do
		echo one >"$MNT/$name/f"
		echo one >"$MNT/$name/ctl/snapshot"
		one=$(cat "$MNT/$name/ctl/snapshot")
		echo "two of $name" >"$MNT/$name/f"
		echo two >"$MNT/$name/ctl/snapshot"
		two=$(cat "$MNT/$name/ctl/snapshot")
		git -C "$MNT/$name" commit -q --allow-empty -m 'of the host'
		host=$(git -C "$MNT/$name" rev-parse HEAD)
		[ $name = off2 ] && echo 1 >"$MNT/off2/ctl/reset" || echo "$one" >"$MNT/off1/ctl/restore"
		teardown $name
		for commit in "$two" "$host"; do
			git -C "$REPO" merge-base --is-ancestor "$commit" "refs/sandboxfs/trash/$(newest $name)"
		done
	done
	git -C "$REPO" branch -qD sandbox/off1
	box off3
	echo off3 >>"$MNT/off3/README.md"
	echo off3 >"$MNT/off3/ctl/snapshot"
	two=$(cat "$MNT/off3/ctl/snapshot")
	echo 1 >"$MNT/off3/ctl/reset"
	teardown off3
	git -C "$REPO" merge-base --is-ancestor "$two" "refs/sandboxfs/trash/$(newest off3)"
}

# The source takes no entry, and with BOTH the state directory neither.
block() {
	mkdir -p "$REPO/.git/refs/sandboxfs/trash"
	mv "$REPO/.git/refs/sandboxfs/trash" "$REPO/.git/trash.aside"
	: >"$REPO/.git/refs/sandboxfs/trash"
	[ "${1:-}" != both ] || {
		[ ! -d "$STATE/trashed.git" ] || mv "$STATE/trashed.git" "$ROOM/trashed.aside"
		: >"$STATE/trashed.git"
	}
}

unblock() {
	rm "$REPO/.git/refs/sandboxfs/trash"
	# The daemon, which tries again, may have made it.
	mkdir -p "$REPO/.git/refs/sandboxfs/trash"
	find "$REPO/.git/trash.aside" -name '*-*' -exec mv {} "$REPO/.git/refs/sandboxfs/trash" \;
	rm -r "$REPO/.git/trash.aside"
	[ -d "$STATE/trashed.git" ] || rm -f "$STATE/trashed.git"
	[ ! -d "$ROOM/trashed.aside" ] || mv "$ROOM/trashed.aside" "$STATE/trashed.git"
}

elsewhere() {
	edit e
	git -C "$MNT/e" add new
	look e >"$ROOM/before"
	block
	teardown e
	bring_back e "$(newest e)"
	look e >"$ROOM/after"
	same_files "$ROOM/before" "$ROOM/after"
	echo m >"$MNT/e/ctl/snapshot"
	unblock
	git -C "$REPO" fsck --no-progress --no-dangling
	unmount
	remount
	[ -n "$(newest e)" ]
}

# What the entry borrows of the source goes with no gc there.
outlives_gc() {
	edit y
	# The source has them, and no ref of it keeps them.
	git -C "$REPO" hash-object -w "$MNT/y/README.md" "$MNT/y/script"
	head=$(git -C "$MNT/y" rev-parse HEAD)
	(cd "$MNT/y" && find . -name .git -prune -o -type f ! -name '*.log' -exec sha1sum {} + |
		sort) >"$ROOM/before"
	block
	teardown y
	git -C "$REPO" branch -qD sandbox/y
	unblock
	git -C "$REPO" reflog expire --expire=now --all
	git -C "$REPO" gc -q --prune=now
	refuse git -C "$REPO" cat-file -e "$head"
	git --git-dir="$STATE/trashed.git" fsck --no-progress --no-dangling
	rm -rf "$STATE/removed"/y-*
	bring_back y "$(newest y)"
	(cd "$MNT/y" && find . -name .git -prune -o -type f ! -name '*.log' -exec sha1sum {} + |
		sort) >"$ROOM/after"
	same_files "$ROOM/before" "$ROOM/after"
	teardown y
}

read_only() {
	edit r
	look r >"$ROOM/before"
	chmod -R a-w "$REPO/.git/objects" "$REPO/.git/refs"
	expect 0 rmdir "$MNT/r"
	# Saved it is at once; the branch may have to wait until it can be taken back.
	until [ -n "$(newest r)" ]; do tick; done
	chmod -R u+w "$REPO/.git/objects" "$REPO/.git/refs"
	teardown r
	bring_back r "$(newest r)"
	look r >"$ROOM/after"
	same_files "$ROOM/before" "$ROOM/after"
}

pending() {
	edit f
	look f >"$ROOM/before"
	block both
	expect 0 rmdir "$MNT/f"
	expect ENOENT stat "$MNT/f"
	refuse teardown f
	like "f	f-*	*" "$(cat "$MNT/ctl/pending")"
	like '*cannot be saved*' "$(cat "$MNT/ctl/error")"
	box f
	kill_daemon
	remount
	like 'f*' "$(cat "$MNT/ctl/pending")"
	unblock
	# It is tried again by itself: a teardown could join an attempt that began before.
	while [ -n "$(cat "$MNT/ctl/pending")" ]; do tick; done
	teardown f
	bring_back f "$(newest f)"
	look f >"$ROOM/after"
	same_files "$ROOM/before" "$ROOM/after"
}

discarded() {
	edit g
	block both
	expect 0 rmdir "$MNT/g"
	refuse teardown g
	teardown g
	same '' "$(cat "$MNT/ctl/pending")"
	grep -q '"dropped".*not committed in g is lost' "$MNT/ctl/events"
	unblock
	same '' "$(newest g)"
}

too_long() {
	edit h
	block both
	expect 0 rmdir "$MNT/h"
	refuse teardown h
	kill_daemon
	sed -i 's/"removed_ms": *[0-9]*/"removed_ms":1000/' "$STATE"/meta/h-*.json
	remount
	teardown h
	grep -q '"dropped".*not committed in h is lost' "$MNT/ctl/events"
	unblock
}

# Of root's: the source is on a disk of its own.
full_disk() {
	then_as_before "$ROOM/small"
	teardown_all
	unmount
	mkdir "$ROOM/small"
	mount -t tmpfs -o size=4m none "$ROOM/small"
	new_repo "$ROOM/small/repo"
	mount_fs "$ROOM/small/repo"
	box s
	seq 20000 >"$MNT/s/README.md"
	dd if=/dev/zero of="$ROOM/small/fill" bs=4k 2>/dev/null || true
	teardown s
	rm "$ROOM/small/fill"
	bring_back t "$(newest s)"
	same 20000 "$(tail -n 1 "$MNT/t/README.md")"
}

over_time() {
	old=$(newest a)
	python3 "$TESTS/lib/trash_age.py" "$REPO/.git" "refs/sandboxfs/trash/$old" 1000
	unmount
	remount
	refuse grep -q "$old" "$MNT/ctl/trash"
	grep -q "$old.*was dropped" "$MNT/ctl/events"
	refuse git -C "$REPO" show-ref -q "refs/sandboxfs/trash/$old"
	[ "$(wc -l <"$MNT/ctl/trash")" -gt 1 ]
}

# A commit that says all that an entry says, as a fetch of all refs may bring it.
forged() {
	true_one=$(newest a)
	commit=$(git -C "$REPO" cat-file commit "refs/sandboxfs/trash/$true_one" |
		sed 's/^Time-Ms: .*/Time-Ms: 1000/')
	commit=$(echo "$commit" | git -C "$REPO" hash-object -t commit -w --stdin)
	git -C "$REPO" update-ref refs/sandboxfs/trash/forged "$commit"
	git -C "$REPO" update-ref refs/sandboxfs/trash/unsigned HEAD
	unsigned=$(git -C "$REPO" cat-file commit "refs/sandboxfs/trash/$true_one" |
		grep -v '^Signature: ')
	unsigned=$(echo "$unsigned" | git -C "$REPO" hash-object -t commit -w --stdin)
	git -C "$REPO" update-ref refs/sandboxfs/trash/plain "$unsigned"
	for name in forged unsigned plain; do
		refuse grep -q "^$name " "$MNT/ctl/trash"
		expect ENOENT write "$MNT/ctl/create" O_WRONLY \
			"{\"name\":\"of-another\",\"from\":\"trash:$name\"}"
	done
	grep -q "^$true_one " "$MNT/ctl/trash"
	unmount
	remount
	same "$commit" "$(git -C "$REPO" rev-parse refs/sandboxfs/trash/forged)"
	for name in forged unsigned plain; do
		git -C "$REPO" update-ref -d "refs/sandboxfs/trash/$name"
	done
}

# Whoever has read it can sign.
key_is_private() {
	same 600 "$(stat -c %a "$REPO/.git/sandboxfs.key")"
	box v
	refuse run v cat "$REPO/.git/sandboxfs.key"
	same '' "$(run v sh -c 'find / -name sandboxfs.key 2>/dev/null' || true)"
	teardown v
}

off() {
	teardown_all
	unmount
	drop_refs refs/sandboxfs/trash
	mount_repo trash=off
	edit o
	teardown o
	same '' "$(git -C "$REPO" for-each-ref refs/sandboxfs)"
	drop_refs refs/heads/sandbox
}

# What changes is in memory then.
limited() {
	then_as_before
	teardown_all
	unmount
	mount_repo disk_mb=16 || return 0
	odd m
	all_of m >"$ROOM/before"
	expect 0 rmdir "$MNT/m"
	teardown m
	bring_back m "$(newest m)"
	all_of m >"$ROOM/after"
	same_files "$ROOM/before" "$ROOM/after"
}

# Of root's: the state directory is on a disk of its own. The oldest goes, and that is told.
no_room() {
	then_as_before "$STATE"
	teardown_all
	unmount
	rm -rf "$STATE"
	mkdir "$STATE"
	mount -t tmpfs -o size=64m,mode=700 none "$STATE"
	mount_repo
	for name in old new; do
		box $name
		echo '*.log' >"$MNT/$name/.gitignore"
		dd if=/dev/zero of="$MNT/$name/big.log" bs=1M count=20 status=none
		teardown $name
	done
	[ "$(find "$STATE/removed" -mindepth 1 -maxdepth 1 -name 'old-*')" ]
	box full
	dd if=/dev/zero of="$MNT/full/big" bs=1M count=21 status=none || true
	box third
	echo x >"$MNT/third/x"
	teardown third
	timeout 60 grep -q '"dropped".*files of old.*nearly full' "$MNT/ctl/events"
	same '' "$(find "$STATE/removed" -mindepth 1 -maxdepth 1 -name 'old-*')"
	bring_back new "$(newest new)"
	same 20971520 "$(stat -c %s "$MNT/new/big.log")"
}

directory() {
	unmount
	mount_dir
	box p
	rm "$MNT/p/file"
	echo mine >"$MNT/p/sub/mine"
	rm -rf "$MNT/p"
	teardown p
	bring_back q "$(newest p)"
	same mine "$(cat "$MNT/q/sub/mine")"
	expect ENOENT stat "$MNT/q/file"
}

mount_repo || exit 1
claim "what was not committed comes back after rmdir" by_rmdir
claim "what git cannot say comes back as well: ignored files, modes, repositories, odd names" \
	git_cannot_say
claim "so do ignored files beside what is committed" ignored_alone
claim "without what is kept in the state directory git has the rest" git_alone
claim "rm -rf of a sandbox is taken back as it was before the first unlink" by_removing_all
claim "so is one by several processes, in several steps" by_many
claim "a write right after a removal finds the room that it made" room_after_rm
claim "a daemon that is killed after rmdir loses nothing" killed_after
claim "of what was committed or not touched there is no entry" untouched
claim "links are counted as they are" links_are_counted
claim "commits that no ref of the source has are with the entry" left_inside
claim "snapshots that a restore or a reset has taken off the branch are with the entry" \
	off_the_branch
claim "what the source does not take is in the state directory, and comes back" elsewhere
claim "and no gc in the source takes anything of it" outlives_gc
[ "$(id -u)" = 0 ] || claim "a source that cannot be written loses nothing" read_only
[ "$(id -u)" != 0 ] || claim "nor does one on a full disk" full_disk
claim "what can be saved nowhere is pending, also in the next mount, until it can" pending
claim "who was told, and tears it down again, drops it, and that is told" discarded
claim "it is kept for as long as what was saved" too_long
claim "what was not signed is no entry: it is not listed, brought back or dropped" forged
claim "no command sees the key" key_is_private
claim "entries go when their time is over" over_time
claim "so does what was on a limited disk" limited
[ "$(id -u)" != 0 ] ||
	claim "where there is no room the oldest files go first, and that is told" no_room
claim "trash=off saves nothing" off
claim "a copy of a directory comes back" directory
finish
