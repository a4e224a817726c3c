#!/bin/sh
. "$TESTS/lib/mount.sh"
. "$TESTS/lib/attack.sh"
# What other sandboxes never committed, which the source has for the host's git.

NEVER="never committed"

# The blob of a file that was there when a sandbox went.
leave_in_the_trash() {
	box v
	echo "$NEVER" >"$MNT/v/unsaved"
	teardown v
	echo "$NEVER" >"$ROOM/unsaved"
	blob=$(git -C "$REPO" hash-object "$ROOM/unsaved")
	same "$NEVER" "$(git -C "$REPO" cat-file blob "$blob")"
	git -C "$REPO" fsck --no-progress --no-dangling
}

not_read() {
	! grep -q "$NEVER" "$ROOM/said" || unsafe "what another sandbox never committed can be read"
}

by_its_id() {
	leave_in_the_trash
	run a git cat-file blob "$blob" >"$ROOM/said" 2>&1 || true
	not_read
}

# Wherever git finds objects.
among_all() {
	leave_in_the_trash
	run a sh -c 'git cat-file --batch-all-objects --batch-check="%(objectname) %(objecttype)" |
		sed -n "s/ blob//p" | git cat-file --batch' >"$ROOM/said" 2>&1 || true
	not_read
}

# A commit that names it, which the daemon takes for one of the sandbox's.
by_a_commit() {
	leave_in_the_trash
	run a sh -c "t=\$(printf '100644 blob $blob\tunsaved\n' | git mktree --missing) &&
		git reset -q --soft \$(git -c user.name=x -c user.email=x@y commit-tree -p HEAD -m planted \$t)" \
			>"$ROOM/said" 2>&1
	! git -C "$REPO" cat-file -e sandbox/a:unsaved 2>/dev/null || unsafe "the daemon took it over"
	run a git cat-file blob "$blob" >"$ROOM/said" 2>&1 || true
	not_read
	run a git reset -q --soft HEAD~1
}

# And in the index.
by_the_index() {
	leave_in_the_trash
	run a git update-index --add --cacheinfo "100644,$blob,unsaved" >"$ROOM/said" 2>&1
	run a git cat-file blob "$blob" >"$ROOM/said" 2>&1 || true
	not_read
	same '' "$(git -C "$MNT/a" ls-files unsaved)"
	run a git rm -q --cached unsaved
}

# By a snapshot, and by what is committed, by a command and by the host, upon it.
leave_in_a_snapshot() {
	[ -e "$ROOM/blobs" ] || {
		box s
		echo .env >"$MNT/s/.gitignore"
		echo "$NEVER once" >"$MNT/s/.env"
		echo '{"ignored":true}' >"$MNT/s/ctl/snapshot"
		same "$NEVER once" "$(run s git show HEAD:.env)"
		run s sh -c "echo '$NEVER twice' >.env; git -c user.name=x -c user.email=x@y commit -qam inside"
		echo "$NEVER thrice" >"$MNT/s/.env"
		echo >"$MNT/s/ctl/snapshot"
		same '' "$(run s git status --porcelain)"
		same "$NEVER thrice" "$(run s git show HEAD:.env)"
		same "$NEVER twice" "$(run s git show HEAD~1:.env)"
		for at in HEAD HEAD~1 HEAD~2; do git -C "$MNT/s" rev-parse "$at:.env"; done >"$ROOM/blobs"
	}
	same 3 "$(sort -u "$ROOM/blobs" | wc -l | tr -d ' ')"
	same "$NEVER thrice" "$(git -C "$REPO" show sandbox/s:.env)"
	git -C "$REPO" fsck --no-progress --no-dangling
}

snapshot_by_its_id() {
	leave_in_a_snapshot
	while read -r blob; do
		run a git cat-file blob "$blob" </dev/null || true
	done <"$ROOM/blobs" >"$ROOM/said" 2>&1
	not_read
}

snapshot_among_all() {
	leave_in_a_snapshot
	run a sh -c 'git log --all -p --format=
		git cat-file --batch-all-objects --batch-check="%(objectname) %(objecttype)" |
		sed -n "s/ blob//p" | git cat-file --batch' >"$ROOM/said" 2>&1 || true
	not_read
	# And without git.
	run a sh -c 'd=$(cat "$(git rev-parse --git-dir)/objects/info/alternates")
		find "$d" "$d/.." -type f' >"$ROOM/said" 2>&1 || true
	while read -r blob; do
		! grep -q "$(printf %.2s "$blob")/${blob#??}" "$ROOM/said" ||
			unsafe "the file of an object is shown"
	done <"$ROOM/blobs"
}

# What comes from it is its maker's alone as well, until it is merged.
forks_of_a_snapshot() {
	echo '{"name":"f","from":"s"}' >"$MNT/ctl/create"
	same "$NEVER thrice" "$(run f git show HEAD:.env)"
	same '' "$(run f git status --porcelain)"
	run f sh -c 'echo more >more; git add more; git -c user.name=x -c user.email=x@y commit -qm more'
	same more "$(git -C "$REPO" show sandbox/f:more)"
	same '' "$(run a git branch --list sandbox/f sandbox/s)"
	teardown f
	git -C "$REPO" branch -qD sandbox/f
	git -C "$REPO" fsck --no-progress --no-dangling
}

# What another sandbox has, of each kind: KIND BLOB.
leave_work() {
	[ ! -e "$ROOM/kinds" ] || return 0
	box w
	echo "$NEVER snapshot" >"$MNT/w/snapshot"
	echo >"$MNT/w/ctl/snapshot"
	run w sh -c "g() { git -c user.name=x -c user.email=x@y \"\$@\"; }
		echo '$NEVER commit' >commit; git add commit; g commit -qm commit
		git checkout -qb own; echo '$NEVER branch' >branch; git add branch; g commit -qm branch
		git checkout -q -
		git checkout -q --detach; echo '$NEVER detached' >detached; git add detached
		g commit -qm detached; git checkout -q -
		echo '$NEVER stash' >commit; g stash -q
		echo '$NEVER previous' >previous; git add previous"
	echo 1 >"$MNT/w/ctl/reset"
	same '' "$(git -C "$MNT/w" ls-files previous)"
	echo previous >"$MNT/w/ctl/restore"
	same "$NEVER previous" "$(git -C "$MNT/w" show :previous)"
	run w sh -c "echo '$NEVER staged' >staged; git add staged"
	for kind in snapshot commit branch detached stash previous staged; do
		echo "$NEVER $kind" >"$ROOM/of"
		echo "$kind $(git -C "$REPO" hash-object "$ROOM/of")"
	done >"$ROOM/kinds"
	while read -r kind blob; do
		same "$NEVER $kind" "$(git -C "$REPO" cat-file blob "$blob")"
		same "$NEVER $kind" "$(run w git cat-file blob "$blob" </dev/null)"
	done <"$ROOM/kinds"
	git -C "$REPO" fsck --no-progress --no-dangling
	same "$NEVER commit" "$(git -C "$REPO" show sandbox/w:commit)"
}

work_by_its_id() {
	leave_work
	run a git cat-file blob "$(sed -n "s/^$1 //p" "$ROOM/kinds")" >"$ROOM/said" 2>&1 || true
	not_read
}

work_among_all() {
	leave_work
	run a sh -c 'git log --all -p --format=
		git cat-file --batch-all-objects --batch-check="%(objectname) %(objecttype)" |
		sed -n "s/ blob//p" | git cat-file --batch' >"$ROOM/said" 2>&1 || true
	not_read
	same '' "$(run a git branch --list sandbox/w)"
}

# A commit upon the other's, whose id is known.
work_by_a_commit() {
	leave_work
	commit=$(git -C "$REPO" rev-parse sandbox/w)
	person='x <x@y> 1 +0000'
	run a sh -c "d=\$(git rev-parse --git-dir) && t=\$(git rev-parse HEAD^{tree}) &&
		c=\$(printf 'tree %s\nparent $commit\nauthor $person\ncommitter $person\n\nplanted\n' \$t |
			git hash-object -t commit -w --stdin) && b=\$(git symbolic-ref HEAD) &&
		mkdir -p \"\$d/\${b%/*}\" && echo \$c >\"\$d/\$b\"" >"$ROOM/said" 2>&1 || true
	! git -C "$REPO" merge-base --is-ancestor "$commit" sandbox/a || unsafe "the daemon took it over"
	work_by_its_id commit
	run a sh -c \
		"d=\$(git rev-parse --git-dir)
		echo $(git -C "$REPO" rev-parse sandbox/a) >\"\$d/\$(git symbolic-ref HEAD)\""
}

# A sandbox that is to begin as the other has it all the same, and the host merges it.
begun_as_another() {
	echo '{"name":"n","base":"sandbox/w"}' >"$MNT/ctl/create"
	same "$NEVER commit" "$(run n git show HEAD:commit)"
	same '' "$(run n git status --porcelain)"
	run n sh -c 'echo more >more; git add more; git -c user.name=x -c user.email=x@y commit -qm more
		git fsck --no-dangling --no-progress'
	same more "$(git -C "$REPO" show sandbox/n:more)"
	same '' "$(run a git branch --list sandbox/n)"
	teardown n
	git -C "$REPO" branch -qD sandbox/n
}

let_work_go() {
	teardown w
	git -C "$REPO" branch -qD sandbox/w
}

let_go() {
	teardown s
	git -C "$REPO" branch -qD sandbox/s
}

# git inside says nothing of what it is not shown.
git_is_quiet() {
	same '' \
		"$(run a sh -c 'git fsck --no-dangling --no-progress && git log -1 --format= && git gc -q' 2>&1)"
}

claim "mounting" mount_victims
claim "something is in the trash" leave_in_the_trash
attack store "read what the trash has by its id" by_its_id
attack store "read what the trash has among all objects" among_all
holds "git inside is quiet" git_is_quiet
claim "an ignored file is in a snapshot" leave_in_a_snapshot
attack store "read an ignored file of a snapshot by its id" snapshot_by_its_id
attack store "read an ignored file of a snapshot among all objects" snapshot_among_all
holds "forks have it" forks_of_a_snapshot
claim "its branch is removed" let_go
claim "another sandbox has work of all kinds" leave_work
attack store "read a snapshot of another by its id" work_by_its_id snapshot
attack store "read a commit of another by its id" work_by_its_id commit
attack store "read a branch of another by its id" work_by_its_id branch
attack store "read a commit on no branch of another by its id" work_by_its_id detached
attack store "read the stash of another by its id" work_by_its_id stash
attack store "read what another has staged by its id" work_by_its_id staged
attack store "read what another has as previous by its id" work_by_its_id previous
attack store "read the work of another among all objects" work_among_all
attack -daemon "have the work of another brought over by a commit" work_by_a_commit
holds "one that begins as another has its work" begun_as_another
claim "its branch is removed as well" let_work_go
attack -daemon "have what the trash has brought over by a commit" by_a_commit
attack -daemon "have what the trash has brought over by the index" by_the_index
withstood
