#!/bin/sh
. "$TESTS/lib/mount.sh"
# Sandboxes in layers: one base, what changes is kept apart, and nobody can tell.
CACHE=$XDG_CACHE_HOME/sandboxfs
BASES=$CACHE/bases

tree_of() {
	"$TOOL" json tree <"$MNT/$1/ctl/info"
}

bases() {
	find "$BASES" -mindepth 1 -maxdepth 1 -name "${1:-git}-*" | wc -l
}

big_repo() {
	new_repo
	i=0
	while [ $i -lt 40 ]; do
		mkdir -p "$REPO/d$i/e"
		echo "$i" >"$REPO/d$i/one"
		echo "$i" >"$REPO/d$i/e/two"
		i=$((i + 1))
	done
	mkdir "$REPO/run" "$REPO/deep"
	mkdir "$REPO/deep/a" "$REPO/deep/b"
	echo x >"$REPO/deep/a/f"
	echo y >"$REPO/deep/b/g"
	printf '#!/bin/sh\necho ran\n' >"$REPO/run/tool"
	chmod 755 "$REPO/run/tool"
	git -C "$REPO" add .
	git -C "$REPO" commit -qm second
}

says_overlay() {
	box a
	same overlay "$(tree_of a)"
	same 1 "$(bases)"
	same "$MNT/a" "$(cat "$MNT/a/ctl/workdir")"
	same '' "$(find "$STATE/trees" -path '*/upper/*' ! -name .git)"
}

# git compares times in seconds: of what changed in the second of a sandbox's
# first command it has to read all.
await_the_next_second() {
	begun=$(date +%s)
	while [ "$(date +%s)" = "$begun" ]; do sleep 0.02; done
}

status_reads_nothing() {
	box s
	await_the_next_second
	index=$(echo "$REPO"/.git/worktrees/s-*/index)
	before=$(stat -c '%i %Y %s' "$index")
	same '' "$(git -C "$MNT/s" status --porcelain)"
	same '' "$(run s git status --porcelain)"
	same "$before" "$(stat -c '%i %Y %s' "$index")"
	# What the index says of each file is what the mount says: git need not look into any.
	same '' "$(git -C "$MNT/s" ls-files --debug | awk '
		/^[^ ]/ { file = $0 }
		/mtime:/ { split($2, t, ":"); mtime = t[1] }
		/ino:/ { print $4, mtime, file }' |
		while read -r ino mtime file; do
			[ "$ino $mtime" = "$(stat -c '%i %Y' "$MNT/s/$file")" ] || echo "$file"
		done)"
	rmdir "$MNT/s"
}

differs_between() {
	box b
	echo a >"$MNT/a/README.md"
	run b sh -c 'echo b >README.md; rm d1/one'
	same a "$(cat "$MNT/a/README.md")"
	same b "$(cat "$MNT/b/README.md")"
	same 1 "$(cat "$MNT/a/d1/one")"
	expect ENOENT stat "$MNT/b/d1/one"
	box c
	same hello "$(cat "$MNT/c/README.md")"
	same ' M README.md' "$(git -C "$MNT/a" status --porcelain)"
}

keeps_identity() {
	ino=$("$TOOL" stat "$MNT/c/d2/one" ino)
	exec 3<"$MNT/c/d2/one"
	run c sh -c 'echo more >>d2/one'
	same "2 more" "$(tr '\n' ' ' <"$MNT/c/d2/one" | sed 's/ $//')"
	same "2 more" "$(tr '\n' ' ' <&3 | sed 's/ $//')"
	exec 3<&-
	same "$ino" "$("$TOOL" stat "$MNT/c/d2/one" ino)"
	same "$ino" "$(run c stat -c %i d2/one)"
	echo host >"$MNT/c/d3/one"
	same host "$(run c cat d3/one)"
	chmod 600 "$MNT/c/d4/one"
	same 600 "$(run c stat -c %a d4/one)"
}

writes_through_an_open_file() {
	exec 3<>"$MNT/c/d5/one"
	echo first >&3
	same first "$(cat "$MNT/c/d5/one")"
	run c sh -c 'echo second >>d5/one'
	echo third >>"$MNT/c/d5/one"
	exec 3>&-
	same 'first second third' "$(tr '\n' ' ' <"$MNT/c/d5/one" | sed 's/ $//')"
}

hard_links() {
	ln "$MNT/c/d6/one" "$MNT/c/d6/two"
	run c sh -c 'ln d7/one d7/two; echo x >d6/two'
	same x "$(cat "$MNT/c/d6/one")"
	same 2 "$(stat -c %h "$MNT/c/d7/one")"
	run c sh -c 'echo y >d7/one'
	same y "$(cat "$MNT/c/d7/two")"
	# The host has asked for all of them before, so that it could go on as it knows them.
	same 1 "$(stat -c %h "$MNT/c/d12/one")"
	cat "$MNT/c/d12/one" >/dev/null
	ln "$MNT/c/d12/one" "$MNT/c/d12/two"
	same '2 2' "$(echo $(stat -c %h "$MNT/c/d12/one" "$MNT/c/d12/two"))"
	cat "$MNT/c/d12/two" >/dev/null
	echo longer than it was >>"$MNT/c/d12/one"
	same "$(cat "$MNT/c/d12/one")" "$(cat "$MNT/c/d12/two")"
	touch -r "$MNT/c/d12/one" "$ROOM/when"
	printf L 1<>"$MNT/c/d12/two"
	touch -r "$ROOM/when" "$MNT/c/d12/two"
	like 'L*' "$(cat "$MNT/c/d12/one")"
	exec 3<>"$MNT/c/d12/two"
	rm "$MNT/c/d12/two"
	same 1 "$(stat -c %h "$MNT/c/d12/one")"
	cat "$MNT/c/d12/one" >/dev/null
	echo by a descriptor >&3
	exec 3>&-
	like 'by a descriptor*' "$(cat "$MNT/c/d12/one")"
}

removed_and_made_again() {
	rm -r "$MNT/c/d8"
	expect ENOENT stat "$MNT/c/d8"
	mkdir "$MNT/c/d8"
	same '' "$(ls "$MNT/c/d8")"
	same '' "$(run c ls d8)"
	run c sh -c 'rm -r d9; mkdir d9; echo n >d9/new; rm d10/one; mkdir d10/one'
	same new "$(ls "$MNT/c/d9")"
	same directory "$(stat -c %F "$MNT/c/d10/one")"
	rm "$MNT/c/d11/one"
	echo again >"$MNT/c/d11/one"
	same again "$(run c cat d11/one)"
	same '' "$(find "$MNT/c" -type c)"
}

# An ordinary user's overlay cannot rename a directory of its base; the mount does.
directories_are_renamed() {
	chmod 750 "$MNT/c/d14"
	touch -d '2020-01-01 00:00:00' "$MNT/c/d14"
	exec 3<"$MNT/c/d14/e/two"
	expect 0 rename "$MNT/c/d14" "$MNT/c/moved"
	same 14 "$(cat "$MNT/c/moved/e/two")"
	same 14 "$(cat <&3)"
	exec 3<&-
	same '750 1577836800' "$(TZ=UTC stat -c '%a %Y' "$MNT/c/moved")"
	expect ENOENT stat "$MNT/c/d14"
	same 'e one' "$(ls "$MNT/c/moved" | tr '\n' ' ' | sed 's/ $//')"
	same 14 "$(run c cat moved/one)"
	echo more >>"$MNT/c/moved/one"
	mkdir "$MNT/c/empty" "$MNT/c/full"
	echo x >"$MNT/c/full/x"
	expect 'ENOTEMPTY|EEXIST' rename "$MNT/c/d15" "$MNT/c/full"
	same 15 "$(cat "$MNT/c/d15/e/two")"
	expect 0 rename "$MNT/c/d15" "$MNT/c/empty"
	same 15 "$(run c cat empty/e/two)"
	(
		cd "$MNT/c/d16"
		mv ../d16 ../d16.moved
		same 16 "$(cat one)"
		same 16 "$(cat e/two)"
		echo here >new
	)
	same here "$(cat "$MNT/c/d16.moved/new")"
	mv "$MNT/c/d17" "$MNT/c/empty/inner"
	same 17 "$(cat "$MNT/c/empty/inner/one")"
	git -C "$MNT/c" mv d18 renamed
	same 'R  d18/one -> renamed/one' "$(git -C "$MNT/c" status --porcelain | grep renamed/one)"
	run c sh -c 'mv d19 d19.moved; cat d19.moved/one'
}

runs_programs() {
	same ran "$(run c run/tool)"
	printf '#!/bin/sh\necho changed\n' >"$MNT/c/run/tool"
	same changed "$(run c run/tool)"
}

base_is_untouched() {
	base=$(find "$BASES" -mindepth 1 -maxdepth 1 -name 'git-*')
	same hello "$(cat "$base/tree/README.md")"
	same 2 "$(cat "$base/tree/d2/one")"
	same '' "$(find "$base/tree" -newer "$base/index" ! -type d)"
}

git_goes_on() {
	run b sh -c 'git commit -qam inside'
	git -C "$MNT/b" commit -q --allow-empty -m outside
	git -C "$REPO" fsck --no-progress --no-dangling
	git -C "$REPO" gc -q --prune=now
	git -C "$REPO" worktree prune
	same 2 "$(git -C "$REPO" log --oneline main..sandbox/b | wc -l)"
	same '' "$(git -C "$MNT/b" status --porcelain)"
	git -C "$MNT/b" checkout -q main~1
	same hello "$(cat "$MNT/b/README.md")"
	expect ENOENT stat "$MNT/b/d0"
	git -C "$MNT/b" checkout -q sandbox/b
	same 0 "$(run b cat d0/one)"
}

after_a_kill() {
	id=$("$TOOL" result "$MNT/c/ctl/spawn" sleep "$LONG")
	kill_daemon
	remount
	same overlay "$(tree_of c)"
	same host "$(cat "$MNT/c/d3/one")"
	same new "$(run c ls d9)"
	expect ENOENT stat "$MNT/b/d1/one"
	same a "$(cat "$MNT/a/README.md")"
	unmount
	remount
	same a "$(run a cat README.md)"
}

# What goes on in the background has no end that could be waited for.
await_that() {
	until "$@"; do tick "$*"; done
}

made_again() {
	[ "$(cat "$base/tree/deep/b/g" 2>/dev/null)" = y ]
}

one_base() {
	[ "$(bases)" = 1 ]
}

base_made_again() {
	unmount
	rm -rf "$BASES"/git-*
	remount
	same a "$(cat "$MNT/a/README.md")"
	same 12 "$(run a cat d12/one)"
	unmount
	# Half of it is gone: the tree is not the one that the marker tells of.
	base=$(find "$BASES" -mindepth 1 -maxdepth 1 -name 'git-*')
	rm -r "$base/tree/d13"
	touch "$base/tree"
	remount
	same 13 "$(run a cat d13/one)"
	unmount
	# So deep down only a look at every file tells, which is taken in the background.
	base=$(find "$BASES" -mindepth 1 -maxdepth 1 -name 'git-*')
	echo changed >"$base/tree/deep/b/g"
	remount
	await_that made_again
	box v
	same y "$(cat "$MNT/v/deep/b/g")"
	teardown v
}

many_at_once() {
	git -C "$REPO" commit -q --allow-empty -m third
	echo new >"$REPO/new"
	git -C "$REPO" add new
	git -C "$REPO" commit -qm fourth
	pids=
	for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
		mkdir "$MNT/m$i" &
		pids="$pids $!"
	done
	for pid in $pids; do
		wait "$pid"
	done
	same 2 "$(bases)"
	for i in 1 20; do
		same new "$(cat "$MNT/m$i/new")"
		same '' "$(git -C "$MNT/m$i" status --porcelain)"
	done
	for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
		rmdir "$MNT/m$i"
	done
}

two_mounts() {
	mkdir "$ROOM/mnt2"
	"$TOOL" mount "$LOG.2" "$RECORD.2" "$SANDBOXFS" "$REPO" "$ROOM/mnt2" -o "state_dir=$STATE.2"
	mkdir "$ROOM/mnt2/z"
	same new "$(cat "$ROOM/mnt2/z/new")"
	same 2 "$(bases)"
	rmdir "$ROOM/mnt2/z"
	fusermount3 -u "$ROOM/mnt2"
	flock -w 60 "$RECORD.2" true
}

least_used_is_dropped() {
	teardown_all
	git -C "$REPO" branch -q -D sandbox/b
	unmount
	remount cache_mb=0
	box a
	await_that one_base
	same new "$(cat "$MNT/a/new")"
	unmount
	remount cache_mb=0
	same new "$(run a cat new)"
	teardown a
	unmount
	remount ''
}

plain_directory() {
	unmount
	mount_dir
	box p
	same overlay "$(tree_of p)"
	echo changed >"$MNT/p/file"
	same plain "$(cat "$ROOM/plain/file")"
	echo other >"$ROOM/plain/file"
	box q
	same other "$(cat "$MNT/q/file")"
	box r
	same 2 "$(bases dir)"
	same changed "$(run p cat file)"
	ln "$ROOM/plain/file" "$ROOM/plain/linked"
	box l
	same checkout "$(tree_of l)"
	echo both >"$MNT/l/file"
	same both "$(run l cat linked)"
	rm "$ROOM/plain/linked"
	teardown_all
	unmount
}

switched_off() {
	mount_repo cow=off
	box o
	same checkout "$(tree_of o)"
	same cow=off "$("$TOOL" json no_overlay <"$MNT/o/ctl/info")"
	same new "$(run o cat new)"
	unmount
	remount cow=require
	box n
	same overlay "$(tree_of n)"
	same checkout "$(tree_of o)"
	unmount
	remount cow=off
	same overlay "$(tree_of n)"
	same new "$(run n cat new)"
	box f
	same checkout "$(tree_of f)"
}

# Nothing is lost: it waits for a mount that can show it.
left_alone() {
	unmount
	remount isolation=none
	expect ENOENT stat "$MNT/n"
	same new "$(cat "$MNT/o/new")"
	unmount
	if [ "$(id -u)" = 0 ]; then
		remount run_as=games
		expect ENOENT stat "$MNT/n"
		unmount
	fi
	remount cow=off
	same new "$(run n cat new)"
}

required_and_impossible() {
	unmount
	refused_mount "cow=require" "$REPO" "$MNT" -o "state_dir=$STATE.3,isolation=none,cow=require"
	remount ''
}

claim "mounting" eval 'big_repo; mount_repo'
claim "a sandbox is an overlay, and nothing is copied" says_overlay
claim "git status is clean from the index alone" status_reads_nothing
claim "sandboxes of one base differ" differs_between
claim "a file that is changed stays the same file, for open ones too" keeps_identity
claim "an open file of the host sees and makes changes" writes_through_an_open_file
claim "hard links hold" hard_links
claim "what is removed and made again is new" removed_and_made_again
claim "directories of the base are renamed" directories_are_renamed
claim "programs of the base run, and run changed" runs_programs
claim "the base is as it was" base_is_untouched
claim "git works, and the source can be collected" git_goes_on
claim "kill -9 and unmount keep every change" after_a_kill
claim "a base that is gone or damaged is made again" base_made_again
claim "twenty at once of a new commit share one base" many_at_once
claim "two mounts share the cache" two_mounts
claim "what is not in use is dropped from the cache" least_used_is_dropped
claim "plain directories are layered, unless they have hard links" plain_directory
claim "cow=off makes copies, and still shows layers" switched_off
claim "what cannot be shown is left alone" left_alone
claim "cow=require refuses where layers cannot be" required_and_impossible
finish
