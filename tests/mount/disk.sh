#!/bin/sh
. "$TESTS/lib/mount.sh"
# disk_mb: what a sandbox may hold is limited by the file system, inside and through the mount.

within_the_limit() {
	box a
	same overlay "$("$TOOL" json tree <"$MNT/a/ctl/info")"
	same 40 "$(cat "$MNT/a/ctl/limits/disk_mb")"
	echo 8 >"$MNT/a/ctl/limits/disk_mb"
	same 8 "$(cat "$MNT/a/ctl/limits/disk_mb")"
	grep -q 'in memory' "$MNT/a/ctl/policy"
	same hello "$(cat "$MNT/a/README.md")"
	same '' "$(git -C "$MNT/a" status --porcelain)"
	run a sh -c 'head -c 2000000 /dev/zero >two; rm Makefile; echo x >>README.md; ln two three'
}

full_inside() {
	like '*No space left on device*' "$(run a sh -c 'head -c 20000000 /dev/zero >big' 2>&1)"
	run a sh -c 'rm big; head -c 1000000 /dev/zero >one'
}

full_through_the_mount() {
	refuse head -c 20000000 /dev/zero >"$MNT/a/big" 2>"$ROOM/full.log"
	grep -q 'No space left on device' "$ROOM/full.log"
	rm "$MNT/a/big"
	same works "$(run a echo works)"
}

# full_at PLACE, as a command sees it: there is room for what the tree
# leaves, and the tree has as much less.
full_at() {
	like '*No space left on device*' "$(run a sh -c 'head -c 20000000 /dev/zero >"'"$1"'/big"' 2>&1)"
	run a sh -c '[ "$(stat -c %s "'"$1"'/big")" -gt 1000000 ] &&
			[ "$(stat -c %s "'"$1"'/big")" -lt 8400000 ]'
	like '*No space left on device*' "$(run a sh -c 'head -c 3000000 /dev/zero >rest' 2>&1)"
	run a sh -c 'rm "'"$1"'/big" rest; head -c 3000000 /dev/zero >rest; rm rest'
}

full_elsewhere() {
	run a git status --porcelain
	full_at '$HOME'
	full_at /tmp
	full_at /dev/shm
	full_at '$(git rev-parse --absolute-git-dir)'
	full_at '$(git rev-parse --absolute-git-dir)/objects'
	same works "$(run a sh -c 'git status --porcelain >/dev/null; echo works')"
	same '' "$(ls "$STATE"/home/a-*/big "$STATE"/git/a-*/repo 2>/dev/null)"
}

names_are_limited_too() {
	run a sh -c 'i=0; mkdir many; while [ $i -lt 4000 ] && : >many/$i; do i=$((i + 1)); done' \
		2>/dev/null || true
	[ "$(find "$MNT/a/many" -type f | wc -l)" -lt 3000 ]
	rm -r "$MNT/a/many"
}

resized() {
	echo 40 >"$MNT/a/ctl/limits/disk_mb"
	run a sh -c 'head -c 20000000 /dev/zero >big'
	like '*ENOSPC*' "$(talk a/ctl/limits/disk_mb 10 2>&1)"
	error_says a "in use"
	same 40 "$(cat "$MNT/a/ctl/limits/disk_mb")"
	run a rm big
	# A file that was being saved takes up room until the saving has noticed.
	until echo 8 >"$MNT/a/ctl/limits/disk_mb"; do tick "the room is not given back"; done
}

# What it takes away makes room, and still comes back.
reset_when_full() {
	box r
	echo '*.o' >"$MNT/r/.gitignore"
	run r sh -c 'echo 1 >a; chmod 600 a; ln a b.o; head -c 60000000 /dev/zero >big.o' \
		2>"$ROOM/full.log" || :
	size=$(stat -c %s "$MNT/r/big.o")
	[ "$size" -gt 30000000 ] || fail "$size"
	echo 1 >"$MNT/r/ctl/reset" || fail "$(cat "$MNT/r/ctl/error")"
	refuse test -e "$MNT/r/big.o"
	refuse test -e "$MNT/r/a"
	wait_for_room r 30000000
	run r sh -c 'head -c 30000000 /dev/zero >room'
	echo previous >"$MNT/r/ctl/restore" || fail "$(cat "$MNT/r/ctl/error")"
	same "$size" "$(stat -c %s "$MNT/r/big.o")"
	same '600 2' "$(stat -c '%a %h' "$MNT/r/a")"
	same 1 "$(cat "$MNT/r/b.o")"
	refuse test -e "$MNT/r/room"
	teardown r
}

holds() {
	same 2000000 "$(stat -c %s "$MNT/a/two")"
	same 2 "$(stat -c %h "$MNT/a/three")"
	expect ENOENT stat "$MNT/a/Makefile"
	same 'hello x' "$(tr '\n' ' ' <"$MNT/a/README.md" | sed 's/ $//')"
	same 'D Makefile M README.md ?? one ?? three ?? two' \
		"$(git -C "$MNT/a" status --porcelain | tr '\n' ' ' | sed 's/^ //; s/ $//; s/  / /')"
}

kept_over_unmount() {
	run a sh -c 'echo mine >"$HOME/of-mine"; git config a.b c; git add one; git stash list >/dev/null'
	unmount
	remount ''
	same 8 "$(cat "$MNT/a/ctl/limits/disk_mb")"
	same mine "$(run a sh -c 'cat "$HOME/of-mine"')"
	same c "$(run a git config a.b)"
	like '*A  one*' "$(run a git status --porcelain)"
	run a git reset -q
	holds
	like '*No space left on device*' "$(run a sh -c 'head -c 20000000 /dev/zero >big' 2>&1)"
	rm "$MNT/a/big"
	wait_for_room a 1000000
}

# The kernel tells a little later that it has forgotten a file; until then it has its room.
wait_for_room() { # SANDBOX BYTES
	until run "$1" sh -c 'head -c "$1" /dev/zero >probe; code=$?; rm probe; exit $code' \
		sh "$2" 2>/dev/null; do
		tick "no room"
	done
}

# What the last job left is saved in the background; the event of the next one comes after.
kept_over_a_kill() {
	run a sh -c 'echo saved >late; rm -r src; mkdir src; echo n >src/new'
	wait_for_saved
	kill_daemon
	remount
	holds_late
}

wait_for_saved() {
	until [ "$(cat "$STATE"/trees/a-*/upper/late 2>/dev/null)" = saved ] &&
		[ -z "$(ls -d "$STATE"/trees/a-*/saving 2>/dev/null)" ]; do
		tick "was not saved"
	done
}

commit_inside() {
	run k sh -c 'echo "$1" >c; git add c
		git -c user.name=k -c user.email=k@localhost commit -qm "$1"' sh "$1"
}

# What a command committed is in the source; the repository inside,
# which is older, does not take it back.
committed_over_a_kill() {
	box k
	commit_inside first
	sync "$MNT/k/c"
	commit_inside second
	kill_daemon
	remount
	same second "$(git -C "$REPO" log -1 --format=%s sandbox/k)"
	same second "$(run k git log -1 --format=%s)"
	same second "$(git -C "$REPO" log -1 --format=%s sandbox/k)"
	run k git fsck --connectivity-only
	teardown k
	git -C "$REPO" branch -qD sandbox/k
}

holds_late() {
	same saved "$(cat "$MNT/a/late")"
	same new "$(ls "$MNT/a/src")"
	same new "$(run a ls src)"
	same 2000000 "$(stat -c %s "$MNT/a/two")"
}

refused_without_layers() {
	unmount
	refused_mount 'disk_mb cannot be kept here: *cow=off' "$REPO" "$MNT" \
		-o "state_dir=$STATE,disk_mb=8,cow=off"
	refused_mount 'disk_mb cannot be kept here: *the source is none' none "$MNT" \
		-o "state_dir=$STATE.2,disk_mb=8"
	remount ''
	box c
	like '*EOPNOTSUPP*' "$(talk c/ctl/limits/disk_mb 5)"
	error_says c "no limit"
}

claim "mounting" mount_repo disk_mb=40
claim "a sandbox works within the limit" within_the_limit
claim "a command that fills it gets ENOSPC" full_inside
claim "a client of the mount gets ENOSPC" full_through_the_mount
claim "so do HOME, /tmp, /dev/shm and the repository inside, all together" full_elsewhere
claim "names are limited as well" names_are_limited_too
claim "a reset of a full one makes room, and previous brings it back" reset_when_full
claim "limits/disk_mb gives another size, not less than is in use" resized
claim "unmounting keeps it all" kept_over_unmount
claim "kill -9 keeps what the last job left" kept_over_a_kill
claim "after a kill -9 the repository inside goes by the source, not back" committed_over_a_kill
claim "where it cannot be kept it is refused" refused_without_layers
finish
