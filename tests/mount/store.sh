#!/bin/sh
. "$TESTS/lib/mount.sh"
# The store of a source: what is in the trash is there, and what the
# source's branches come to lead to is not.

in_store() {
	find "$REPO/.git/sandboxfs/objects" -type f | tr -d / | grep -c "sandboxfsobjects$1$"
}

blob_of() {
	printf '%s\n' "$1" | git hash-object --stdin
}

last_entry() {
	tail -n 1 "$MNT/ctl/trash" | cut -d' ' -f1
}

bring_back() {
	printf '{"name":"%s","from":"trash:%s"}\n' "$1" "$(last_entry)" >"$MNT/ctl/create"
}

looked_into() {
	echo >"$MNT/w/ctl/snapshot"
	ls "$MNT/w/ctl/snapshots/$(cat "$MNT/w/ctl/snapshot")"
}

# Each begins the store where there is none yet.
removed_at_once() {
	box w
	echo first >"$MNT/w/unsaved"
	looked_into
	for name in p q r s t u; do
		box $name
		echo "of $name" >"$MNT/$name/unsaved"
	done
	for name in p q r s t u; do teardown $name & done
	wait
	same 6 "$(git -C "$REPO" for-each-ref refs/sandboxfs/trash | wc -l)"
	same 1 "$(grep -c sandboxfs "$REPO/.git/objects/info/alternates")"
}

# Who has looked into snapshots before there was a store.
snapshot_of_what_the_store_has() {
	echo "of p" >"$MNT/w/unsaved"
	looked_into | grep -x unsaved
	same "of p" "$(cat "$MNT/w/ctl/snapshots/$(cat "$MNT/w/ctl/snapshot")/unsaved")"
	git -C "$MNT/w" reset -q --hard main
	teardown w
}

the_trash_is_in_the_store() {
	box a
	echo unsaved >"$MNT/a/unsaved"
	echo staged >"$MNT/a/staged"
	git -C "$MNT/a" add staged
	echo "staged once more" >"$MNT/a/staged"
	run a git add staged
	teardown a
	same 1 "$(in_store "$(blob_of unsaved)")"
	same unsaved "$(git -C "$REPO" cat-file blob "$(blob_of unsaved)")"
	git -C "$REPO" gc -q --prune=now
	same 1 "$(in_store "$(blob_of unsaved)")"
	git -C "$REPO" fsck --no-progress --no-dangling
	git -C "$REPO" show "refs/sandboxfs/trash/$(last_entry):unsaved" >/dev/null
}

# Where other alternates are, and once only.
alternates_stay() {
	same 1 "$(grep -c sandboxfs "$REPO/.git/objects/info/alternates")"
	box a
	echo again >"$MNT/a/again"
	teardown a
	same 1 "$(grep -c sandboxfs "$REPO/.git/objects/info/alternates")"
}

# Inside and outside, and git inside can read it.
staged_again() {
	box a
	echo "to be staged" >"$MNT/a/staged"
	git -C "$MNT/a" add staged
	teardown a
	bring_back x
	same "to be staged" "$(git -C "$MNT/x" show :staged)"
	same "to be staged" "$(run x git show :staged)"
	same "A  staged" "$(run x git status --porcelain)"
}

# The host's git writes no file that the store has already.
host_commits() {
	box a
	echo "the host's" >"$MNT/a/file"
	teardown a
	bring_back y
	git -C "$MNT/y" add file
	git -C "$MNT/y" commit -qm "by the host"
	same 1 "$(in_store "$(blob_of "the host's")")"
	git -C "$REPO" merge -q --ff-only "$(git -C "$MNT/y" symbolic-ref --short HEAD)"
	same "the host's" "$(run y git show HEAD:file)"
	same "the host's" "$(run x git show main:file)"
	same '' "$(run x sh -c 'git -c core.commitGraph=false fsck --no-dangling --no-progress' 2>&1)"
	same 0 "$(in_store "$(blob_of "the host's")")"
	git -C "$REPO" gc -q --prune=now
	same "the host's" "$(git -C "$REPO" show main:file)"
	git -C "$REPO" fsck --no-progress --no-dangling
	box z
	same "the host's" "$(cat "$MNT/z/file")"
	same '' "$(run z git status --porcelain)"
}

# Until then it is the sandbox's alone.
merged() {
	box m
	echo .env >"$MNT/m/.gitignore"
	echo "an ignored file" >"$MNT/m/.env"
	echo '{"ignored":true}' >"$MNT/m/ctl/snapshot"
	same 1 "$(in_store "$(blob_of "an ignored file")")"
	same "an ignored file" "$(run m git show HEAD:.env)"
	refuse run x git cat-file -e "$(blob_of "an ignored file")"
	git -C "$REPO" merge -q --no-edit "$(git -C "$MNT/m" symbolic-ref --short HEAD)"
	same "an ignored file" "$(run x git show main:.env)"
	same 0 "$(in_store "$(blob_of "an ignored file")")"
	git -C "$REPO" gc -q --prune=now
	git -C "$REPO" fsck --no-progress --no-dangling
	same "an ignored file" "$(run m git show HEAD:.env)"
	same '' "$(run m git status --porcelain)"
}

# What a command commits, and what is recorded upon it, is the sandbox's alone until it is merged.
committed() {
	box k
	run k sh -c 'echo "by a command" >k; git add k; git commit -qm k'
	echo "recorded upon it" >"$MNT/k/l"
	echo >"$MNT/k/ctl/snapshot"
	branch=$(git -C "$MNT/k" symbolic-ref --short HEAD)
	for text in "by a command" "recorded upon it"; do
		same 1 "$(in_store "$(blob_of "$text")")"
		refuse run x git cat-file -e "$(blob_of "$text")"
	done
	same "recorded upon it" "$(run k git show HEAD:l)"
	same '' "$(run k git -c core.commitGraph=false fsck --no-dangling --no-progress 2>&1)"
	same '' "$(run x git branch --list "$branch")"
	# What follows it in a remote the sandbox itself sees.
	git -C "$REPO" update-ref "refs/remotes/origin/$branch" "$branch"
	same "recorded upon it" "$(run k git show "origin/$branch:l")"
	refuse run x git rev-parse -q --verify "origin/$branch"
	git -C "$REPO" update-ref -d "refs/remotes/origin/$branch"
	git -C "$REPO" merge -q --no-edit "$branch"
	for text in "by a command" "recorded upon it"; do
		same "$text" "$(run x git cat-file blob "$(blob_of "$text")")"
		same 0 "$(in_store "$(blob_of "$text")")"
	done
	same '' "$(run k git status --porcelain)"
}

# A branch of the host's is everybody's, whoever commits on it.
on_a_branch_of_the_host() {
	git -C "$REPO" branch -q hosts
	echo '{"name":"h","branch":"hosts"}' >"$MNT/ctl/create"
	run h sh -c 'echo "on a branch of the host" >h; git add h; git commit -qm h'
	echo "and more" >"$MNT/h/more"
	echo >"$MNT/h/ctl/snapshot"
	same "on a branch of the host" "$(run x git show hosts:h)"
	same "and more" "$(run x git show hosts:more)"
	same 0 "$(in_store "$(blob_of "and more")")"
	teardown h
	git -C "$REPO" branch -qD hosts
}

# The branch came inside without its commits, which did not follow.
brought_back_while_the_store_cannot_be_noted() {
	box l
	run l sh -ec 'echo w >w; git add w; git commit -qm "of l"; echo unsaved >u'
	teardown l
	git -C "$REPO" branch moved "$(git -C "$REPO" commit-tree -m moved -p main 'main^{tree}')"
	bring_back again
	mkdir "$REPO/.git/sandboxfs/whole.sandboxfs"
	run again true
	rmdir "$REPO/.git/sandboxfs/whole.sandboxfs"
	same 'of l' "$(run again git log -1 --format=%s)"
	same 'of l' "$(git -C "$MNT/again" log -1 --format=%s)"
	same '?? u' "$(run again git status --porcelain)"
	teardown again
	git -C "$REPO" branch -q -D moved sandbox/l
}

# A repository that was moved, and a clone.
elsewhere() {
	git clone -q "file://$REPO" "$ROOM/clone"
	git -C "$ROOM/clone" fsck --no-progress --no-dangling
	git clone -q "$REPO" "$ROOM/local"
	git -C "$ROOM/local" fsck --no-progress --no-dangling
	unmount
	mv "$REPO" "$REPO.moved"
	git -C "$REPO.moved" fsck --no-progress --no-dangling
	same unsaved "$(git -C "$REPO.moved" cat-file blob "$(blob_of unsaved)")"
	mv "$REPO.moved" "$REPO"
	mount_repo
}

claim "mounting" mount_repo
claim "sandboxes removed at once: each is in the trash of the source" removed_at_once
claim "a snapshot of what the store has can be looked into" snapshot_of_what_the_store_has
claim "the trash is in the store" the_trash_is_in_the_store
claim "it is an alternate once" alternates_stay
claim "what was staged is staged again" staged_again
claim "what the host commits is the source's" host_commits
claim "what the host merges is everybody's" merged
claim "what is committed inside is its sandbox's until it is merged" committed
claim "what is committed on a branch of the host is everybody's" on_a_branch_of_the_host
claim "a branch is not shown inside before its commits are there" \
	brought_back_while_the_store_cannot_be_noted
claim "clones, and a repository that was moved" elsewhere
finish
