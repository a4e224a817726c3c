#!/bin/sh
. "$TESTS/lib/mount.sh"
# Host git in MNT/NAME as in any worktree, alone and while commands use git too, and what
# git in the source does to sandboxes.

on_host() {
	git -C "$MNT/a" "$@"
}

inside() {
	run a sh -ec "$1"
}

# subject of HEAD, then of what else is asked for: the same on both sides and in the source.
subject_is() {
	same "$1" "$(on_host log -1 --format=%s)"
	same "$1" "$(inside 'git log -1 --format=%s')"
	same "$1" "$(git -C "$REPO" log -1 --format=%s sandbox/a)"
	same '' "$(on_host status --porcelain)"
	same '' "$(inside 'git status --porcelain')"
}

commits() {
	for i in 1 2 3; do
		echo "$i" >"$MNT/a/f$i"
		on_host add "f$i"
		on_host commit -qm "host $i"
	done
	on_host diff --quiet HEAD
	same 4 "$(on_host log --format=%s | wc -l)"
	subject_is 'host 3'
	echo more >>"$MNT/a/f1"
	same '+more' "$(on_host diff | tail -n 1)"
	on_host checkout -q f1
	on_host mv f1 g1
	on_host rm -q f2
	on_host commit -qm 'moved and removed'
	subject_is 'moved and removed'
	inside 'test -e g1; test ! -e f1; test ! -e f2'
	on_host reset -q --hard HEAD~1
	subject_is 'host 3'
}

stash() {
	echo work >>"$MNT/a/f1"
	echo new >"$MNT/a/new"
	on_host stash push -q -u
	same '' "$(on_host status --porcelain)"
	inside 'test ! -e new; grep -qx 1 f1'
	on_host stash pop -q
	same ' M f1
?? new' "$(on_host status --porcelain)"
	same ' M f1
?? new' "$(inside 'git status --porcelain')"
	on_host checkout -q f1
	rm "$MNT/a/new"
}

rebase() {
	GIT_SEQUENCE_EDITOR="sed -i -e '1s/^pick/reword/' -e '2s/^pick/fixup/'" \
		GIT_EDITOR="sed -i 's/^host 1/changed &/'" on_host rebase -q -i HEAD~3
	same 3 "$(on_host rev-list --count HEAD)"
	same 'changed host 1' "$(on_host log -1 --format=%s HEAD~1)"
	subject_is 'host 3'
	inside 'grep -qx 2 f2'
	# One that stops, and is seen inside as it is, and is taken back.
	on_host checkout -q -b topic HEAD~1
	echo other >"$MNT/a/f3"
	on_host add f3
	on_host commit -qm topic
	refuse on_host rebase sandbox/a
	like '*AA f3*' "$(on_host status --porcelain)"
	on_host rebase --abort
	same topic "$(on_host log -1 --format=%s)"
	same topic "$(inside 'git log -1 --format=%s')"
	on_host checkout -q sandbox/a
	subject_is 'host 3'
}

cherry_pick() {
	on_host checkout -q -b pick topic~1
	echo picked >"$MNT/a/picked"
	on_host add picked
	on_host commit -qm picked
	on_host checkout -q sandbox/a
	on_host cherry-pick pick
	subject_is picked
	refuse on_host cherry-pick topic
	on_host cherry-pick --abort
	subject_is picked
	on_host branch -q -D pick
}

merge() {
	refuse on_host merge topic
	like '*AA f3*' "$(on_host status --porcelain)"
	inside 'grep -q "<<<<<<<" f3'
	on_host merge --abort
	subject_is picked
	refuse on_host merge -q topic
	printf 'both\n' >"$MNT/a/f3"
	on_host add f3
	on_host commit -qm merged
	same 2 "$(on_host log -1 --format=%P | wc -w)"
	subject_is merged
	on_host branch -q -D topic
}

worktrees() {
	same 2 "$(on_host worktree list | wc -l)"
	on_host worktree list --porcelain | grep -qx 'branch refs/heads/sandbox/a'
	git -C "$REPO" worktree list | grep 'locked$'
	on_host worktree add -q -b second "$ROOM/second"
	same 3 "$(git -C "$REPO" worktree list | wc -l)"
	on_host worktree remove "$ROOM/second"
	on_host branch -q -D second
	refuse git -C "$REPO" checkout -q sandbox/a
	refuse git -C "$REPO" branch -q -D sandbox/a
	subject_is merged
}

# Neither side's commits are lost, whoever is first, and the source is whole.
both_at_once() {
	inside 'i=0; while [ $i -lt 15 ]; do
		i=$((i + 1)); echo $i >c$i; git add c$i && git commit -qm "inside $i"; done || true' &
	i=0
	while [ $i -lt 15 ]; do
		i=$((i + 1))
		echo "$i" >"$MNT/a/h$i"
		on_host status --porcelain >/dev/null
		on_host log -3 --format=%s >/dev/null
		on_host diff >/dev/null || true
		# A commit of the other side may have come between.
		on_host add "h$i" && on_host commit -qm "host $i again" -- "h$i" || true
	done
	wait
	inside true
	run a git status --porcelain >/dev/null
	git -C "$REPO" fsck --no-progress --no-dangling
	git -C "$REPO" rev-parse -q --verify "$(ref_of a diverged)" >"$ROOM/diverged" || true
	tips=$(git -C "$REPO" rev-parse sandbox/a; cat "$ROOM/diverged")
	# shellcheck disable=SC2086
	git -C "$REPO" log --format=%s $tips >"$ROOM/subjects"
	for i in $(seq 15); do
		[ ! -e "$MNT/a/h$i" ] || grep -qx "host $i again" "$ROOM/subjects" ||
			on_host status --porcelain | grep -q " h$i$"
		grep -qx "inside $i" "$ROOM/subjects"
	done
}

# What was told of both sides is put together, here by the host.
put_together() {
	if [ -s "$ROOM/diverged" ]; then
		error_says a 'was moved on both sides'
		on_host add -A
		on_host commit -qm 'rest' || true
		on_host merge -q -m together "$(cat "$ROOM/diverged")"
	fi
	on_host add -A
	on_host commit -q --allow-empty -m together
	inside 'git reset -q --hard' || true
	subject_is together
	for i in $(seq 15); do
		test -e "$MNT/a/h$i"
		test -e "$MNT/a/c$i"
	done
}

# moved on both sides for certain
moved_apart() {
	"$TOOL" result "$MNT/a/ctl/spawn" sh -c "until [ -e go ]; do :; done; echo i >i; git add i
		git commit -qm 'by the command'; touch done; exec sleep $LONG" >"$ROOM/job"
	echo h >"$MNT/a/h"
	on_host add h
	on_host commit -qm 'by the host'
	touch "$MNT/a/go"
	until [ -e "$MNT/a/done" ]; do tick; done
	echo 1 >"$MNT/a/ctl/kill"
	inside true
	error_says a 'was moved on both sides'
	timeout 60 grep -m 1 -q '"git".*moved on both sides' "$MNT/a/ctl/events"
	same 'by the host' "$(on_host log -1 --format=%s)"
	same 'by the command' "$(inside 'git log -1 --format=%s')"
	same 'by the command' "$(git -C "$REPO" log -1 --format=%s "$(ref_of a diverged)")"
	inside 'rm -f go done; git add -A; git commit -qm "what is there"
		git merge -q -m "put together" host/sandbox/a'
	on_host reset -q --hard
	subject_is 'put together'
	refuse git -C "$REPO" rev-parse -q --verify "$(ref_of a diverged)"
}

entry() {
	basename "$(git -C "$MNT/a" rev-parse --git-dir)"
}

# alive NAME: both sides work, and nothing of the tree is gone.
alive() {
	echo "$1" >"$MNT/a/alive"
	on_host add alive
	on_host commit -qm "$1"
	inside "grep -qx '$1' alive"
	subject_is "$1"
	test -e "$MNT/a/README.md"
}

# Refused, or without effect: the entry is locked.
prune_and_remove() {
	path=$(git -C "$REPO" worktree list --porcelain | sed -n 's/^worktree //p' | tail -n 1)
	git -C "$REPO" worktree prune --expire=now
	alive prune
	for force in '' --force '--force --force'; do
		# shellcheck disable=SC2086
		refuse git -C "$REPO" worktree remove $force "$path"
		# shellcheck disable=SC2086
		refuse git -C "$REPO" worktree remove $force "$MNT/a"
		alive "remove${force:+ }$force"
	done
	refuse git -C "$REPO" worktree move "$path" "$ROOM/elsewhere"
	refuse git -C "$REPO" worktree move --force --force "$path" "$ROOM/elsewhere"
	alive move
	git -C "$REPO" worktree repair || true
	alive repair
	git -C "$REPO" gc -q --prune=now
	alive gc
}

# Whoever insists takes the entry away: it is told, and made again.
unlocked() {
	path=$(git -C "$REPO" worktree list --porcelain | sed -n 's/^worktree //p' | tail -n 1)
	git -C "$REPO" worktree unlock "$path"
	git -C "$REPO" worktree prune --expire=now || true
	git -C "$REPO" worktree remove --force "$path" || true
	inside true
	alive unlocked
	git -C "$REPO" worktree list | grep 'locked$'
}

# As a daemon that was killed while it made the entry again leaves it.
half_made() {
	entry=$(echo "$REPO"/.git/worktrees/a-*)
	kill_daemon
	rm -r "$entry"
	mkdir "$entry"
	echo sandboxfs >"$entry/locked"
	remount
	same '' "$(on_host status --porcelain)"
	alive half-made
}

entry_removed() {
	echo staged >"$MNT/a/staged"
	rm -rf "$REPO/.git/worktrees"
	inside 'test -e staged'
	error_says a 'was removed in the source'
	timeout 60 grep -m 1 -q '"git".*was removed in the source' "$MNT/a/ctl/events"
	on_host add staged
	same 'A  staged' "$(on_host status --porcelain)"
	on_host commit -qm 'entry removed'
	subject_is 'entry removed'
	rm -rf "$REPO/.git/worktrees"
	git -C "$REPO" branch -q -D sandbox/a
	inside true
	subject_is 'entry removed'
	alive 'branch removed'
}

renamed() {
	mv "$MNT/a" "$MNT/b"
	same 'branch removed' "$(git -C "$MNT/b" log -1 --format=%s)"
	mv "$MNT/b" "$MNT/a"
	unmount
	remount
	alive renamed
	# Then the source has the worktree at the mount.
	on_host worktree repair
	alive 'repair from within'
	git -C "$REPO" worktree list | grep "$MNT/a .*locked$"
	refuse git -C "$REPO" worktree remove --force "$MNT/a"
	alive 'remove at the mount'
}

ends() {
	teardown a
	git -C "$REPO" branch -q -D sandbox/a
}

claim "mounting" mount_repo
claim "mkdir" box a
claim "add, commit, log, diff, mv, rm, reset" commits
claim "stash" stash
claim "rebase, also interactively and when it stops" rebase
claim "cherry-pick" cherry_pick
claim "merge, with conflicts and taken back" merge
claim "worktree list, add, remove" worktrees
claim "host and command commit at once" both_at_once
claim "what both did is put together" put_together
claim "the branch moved on both sides: told, kept, merged" moved_apart
claim "worktree prune, remove, move, repair and gc in the source harm nothing" prune_and_remove
claim "worktree unlock and what follows it" unlocked
claim "a daemon killed while it made the entry again" half_made
claim "the entry is removed in the source, then the branch" entry_removed
claim "another name, another mount" renamed
claim "the branch is removed" ends
finish
