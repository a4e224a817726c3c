#!/bin/sh
. "$TESTS/lib/mount.sh"
# Snapshots and git on both sides of a sandbox; commands that work against them; a daemon that dies.
CTL=$MNT/a/ctl

snap() {
	echo "$1" >"$CTL/snapshot" && cat "$CTL/snapshot"
}

inside() {
	run a sh -ec "$1"
}

on_host() {
	git -C "$MNT/a" "$@"
}

clean() {
	same '' "$(on_host status --porcelain)"
	same '' "$(inside 'git status --porcelain')"
	same "$(on_host rev-parse HEAD)" "$(inside 'git rev-parse HEAD')"
}

# refused FILE WORDS
refused() {
	refuse sh -c 'echo x >"$1"' sh "$CTL/$1"
	error_says a "$2"
}

entry() {
	echo "$REPO"/.git/worktrees/a-*
}

both_sides() {
	box a
	inside 'echo 1 >one; git add one; git commit -qm one; echo 2 >two; git add two; echo 3 >three'
	id=$(snap whole)
	clean
	same "whole one first" "$(inside 'git log --format=%s | tr "\n" " " | sed "s/ $//"')"
	same "Makefile README.md link one src three two " \
		"$(on_host ls-tree --name-only HEAD | tr '\n' ' ')"
	# And back, from what a command committed since.
	inside 'git rm -q one; echo 4 >>two; git commit -qam less; echo 5 >untracked'
	echo "$id" >"$CTL/restore"
	clean
	same "$id" "$(on_host rev-parse HEAD)"
	refuse test -e "$MNT/a/untracked"
	echo 1 >"$CTL/reset"
	clean
	same first "$(inside 'git log --format=%s')"
}

unfinished() {
	on_host checkout -q -b side
	echo side >"$MNT/a/README.md"
	on_host commit -qam side
	on_host checkout -q sandbox/a
	echo main >"$MNT/a/README.md"
	on_host commit -qam main
	refuse on_host merge side
	refused snapshot 'merge is unfinished'
	echo 1 >"$CTL/reset"
	clean
	refuse test -e "$(entry)/MERGE_HEAD"
	on_host branch -qD side
}

detached() {
	was=$(on_host rev-parse sandbox/a)
	on_host checkout -q --detach
	echo d >"$MNT/a/detached"
	id=$(snap detached)
	same "$id" "$(on_host rev-parse HEAD)"
	same "$was" "$(on_host rev-parse sandbox/a)"
	clean
	# Back to the beginning is back on the branch.
	echo 1 >"$CTL/reset"
	same refs/heads/sandbox/a "$(on_host symbolic-ref HEAD)"
	clean
	echo "$id" >"$CTL/restore"
	same d "$(cat "$MNT/a/detached")"
	clean
}

at_work() {
	: >"$(entry)/index.lock"
	was=$(on_host rev-parse HEAD)
	refused snapshot 'git is at work'
	same "$was" "$(on_host rev-parse HEAD)"
	# Not half of it either.
	echo kept >"$MNT/a/kept"
	refused reset 'git is at work'
	same kept "$(cat "$MNT/a/kept")"
	rm "$(entry)/index.lock"
	snap works >"$ROOM/id"
}

collected() {
	echo c1 >"$MNT/a/c"
	one=$(snap c1)
	echo c2 >"$MNT/a/c"
	two=$(snap c2)
	echo 1 >"$CTL/reset"
	git -C "$REPO" reflog expire --expire=now --all
	git -C "$REPO" gc -q --prune=now
	echo "$two" >"$CTL/restore"
	same c2 "$(cat "$MNT/a/c")"
	echo "$one" >"$CTL/restore"
	same c1 "$(cat "$MNT/a/c")"
	clean
	git -C "$REPO" fsck --strict --no-dangling
}

hostile() {
	echo secret-of-the-host >"$ROOM/secret"
	secret=$(git hash-object "$ROOM/secret")
	mkdir "$MNT/a/swap"
	echo in >"$MNT/a/swap/secret"
	cat >"$ROOM/swapper" <<-'END'
		while :; do
			mv swap w; ln -s "../../../../../../..$0" swap; rm swap; mkfifo swap; rm swap; mv w swap
			echo x >>f; mkdir -p p/.git q; echo $$ >q/z; rm -rf p q
		done
	END
	python3 -c 'import json, sys
print(json.dumps({"argv": ["sh", "-c", open(sys.argv[1]).read(), sys.argv[2]]}))' "$ROOM/swapper" \
	"$ROOM" >"$CTL/spawn"
	for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
		snap "busy $i" >"$ROOM/id" || fail "$(cat "$CTL/error")"
	done
	echo 1 >"$CTL/kill"
	cat "$CTL/jobs/last/wait" >"$ROOM/waited"
	git -C "$REPO" fsck --strict --no-dangling
	refuse git -C "$REPO" cat-file -e "$secret"
	# A link that leads out cannot be read from here: git would call it changed
	# until it is older than the index.
	[ ! -L "$MNT/a/swap" ] || rm "$MNT/a/swap"
	snap calm >"$ROOM/id"
	clean
}

# The daemon dies while it restores, at whatever moment: the tree is
# one of the two, and git knows which.
dies() {
	mkdir -p "$MNT/a/many"
	for i in $(seq 150); do echo "one $i" >"$MNT/a/many/$i"; done
	one=$(snap one)
	for i in $(seq 1 2 150); do echo "two $i" >>"$MNT/a/many/$i"; done
	rm "$MNT/a/many/2"
	two=$(snap two)
	for round in 1 2 3 4 5 6; do
		(
			while echo "$one" >"$CTL/restore" && echo "$two" >"$CTL/restore"; do :; done
		) 2>/dev/null &
		writer=$!
		sleep "0.0$((round * 13 % 10))"
		kill_daemon
		wait $writer || :
		remount
		same '' "$(on_host status --porcelain)"
		case $(on_host rev-parse HEAD) in
		"$one" | "$two") ;;
		*) fail "HEAD is neither" ;;
		esac
		refuse test -e "$MNT/a/.sandboxfs-restore"
	done
	echo "$one" >"$CTL/restore"
	same 150 "$(ls "$MNT/a/many" | wc -l)"
	clean
}

leaves_a_branch() {
	teardown a
	# What restores have taken off the branch is in the trash.
	same '' "$(git -C "$REPO" for-each-ref refs/sandboxfs | grep -v refs/sandboxfs/trash/)"
	git -C "$REPO" branch -qD sandbox/a
}

claim "mounting" mount_repo
claim "both sides see a snapshot, and the way back" both_sides
claim "an unfinished merge is not cut short, but for a reset" unfinished
claim "a detached HEAD gets it, and no branch" detached
claim "git at work there is waited for, not for ever" at_work
claim "git gc in the source takes no snapshot away" collected
claim "a command that swaps everything about shows nothing from outside" hostile
claim "killed while it restores, it is one state or the other" dies
claim "with the sandbox all goes but its branch and what the trash has" leaves_a_branch
finish
