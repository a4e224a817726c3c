#!/bin/sh
. "$TESTS/lib/mount.sh"
# From mkdir to nothing left: creating, renaming, tearing down from any state, undoing.

creates_a_worktree() {
	box a
	same sandbox/a "$(git -C "$REPO" for-each-ref --format='%(refname:short)' refs/heads/sandbox)"
	git -C "$REPO" worktree list | grep 'sandbox/a' | grep -q locked
	same '' "$(git -C "$MNT/a" status --porcelain)"
	same sandbox/a "$(git -C "$MNT/a" branch --show-current)"
	workdir=$(cat "$MNT/a/ctl/workdir")
	like '/*' "$workdir"
}

removes_it() {
	[ -d "$MNT/a" ] || box a
	echo dirty >"$MNT/a/dirty"
	expect 0 rmdir "$MNT/a"
	expect ENOENT stat "$MNT/a"
	expect ENOENT rmdir "$MNT/a"
	teardown a
	source_is_clean
}

name_is_free_at_once() {
	for i in 1 2 3 4 5; do
		mkdir "$MNT/again"
		echo $i >"$MNT/again/round"
		rmdir "$MNT/again"
	done
	mkdir "$MNT/again"
	expect ENOENT stat "$MNT/again/round"
	teardown again
}

rm_rf() {
	box r
	echo x >"$MNT/r/new"
	rm -rf "$MNT/r"
	expect ENOENT stat "$MNT/r"
	teardown r
	source_is_clean
}

moves() {
	box old
	echo kept >"$MNT/old/f"
	run old sh -c 'echo job >>f'
	mv "$MNT/old" "$MNT/new"
	expect ENOENT stat "$MNT/old"
	same 'kept
job' "$(cat "$MNT/new/f")"
	same 'kept
job' "$(run new cat f)"
	box taken
	expect EEXIST\|ENOTEMPTY rename "$MNT/new" "$MNT/taken"
	is_away || git -C "$MNT/new" status --porcelain | grep -q f
	teardown new taken
}

moves_out_by_copying() {
	box out
	echo content >"$MNT/out/file"
	mv "$MNT/out" "$ROOM/elsewhere"
	same content "$(cat "$ROOM/elsewhere/file")"
	expect ENOENT stat "$MNT/out"
	rm -rf "$ROOM/elsewhere"
}

create_with_json() {
	git -C "$REPO" branch side
	git -C "$REPO" tag v1
	echo second >"$REPO/second"
	git -C "$REPO" add second
	git -C "$REPO" commit -qm second
	echo '{"name":"j","base":"v1","branch":"my/branch"}' >"$MNT/ctl/create"
	expect ENOENT stat "$MNT/j/second"
	same my/branch "$(run j git branch --show-current)"
	box head
	same second "$(cat "$MNT/head/second")"
	echo plainname >"$MNT/ctl/create"
	expect 0 stat "$MNT/plainname/second"
	teardown j head plainname
	git -C "$REPO" branch -D side
	source_is_clean
}

controls_are_seen_at_once() {
	expect ENOENT stat "$MNT/seen"
	echo seen >"$MNT/ctl/create"
	expect 0 stat "$MNT/seen/README.md"
	teardown seen
	expect ENOENT stat "$MNT/seen"
	expect ENOENT stat "$MNT/seen/README.md"
	echo seen >"$MNT/ctl/create"
	expect 0 stat "$MNT/seen/README.md"
	teardown seen
}

refuses_bad_create() {
	expect ENOENT\|EINVAL write "$MNT/ctl/create" O_WRONLY '{"name":"x","base":"no-such-commit"}'
	grep -q no-such-commit "$MNT/ctl/error"
	# A machine has a clone, in which no other has checked the branch out.
	is_away || expect EEXIST\|EBUSY write "$MNT/ctl/create" O_WRONLY '{"name":"x","branch":"main"}'
	is_away || grep -q main "$MNT/ctl/error"
	# That there is no such commit turned out when there was a sandbox already, which tells it.
	! is_away || teardown x
	expect EINVAL write "$MNT/ctl/create" O_WRONLY '{"name":"x","branch":"bad..branch"}'
	expect EINVAL\|EOPNOTSUPP write "$MNT/ctl/create" O_WRONLY '{"name":"x","backend":"nonsense"}'
	expect ENOENT stat "$MNT/x"
	source_is_clean
}

branch_with_commits_stays() {
	box w
	echo work >"$MNT/w/work"
	run w git add work
	run w git -c user.name=T -c user.email=t@example.org commit -qm work
	teardown w
	same work "$(git -C "$REPO" show sandbox/w:work)"
	echo '{"name":"w","branch_exists":"continue"}' >"$MNT/ctl/create"
	same work "$(cat "$MNT/w/work")"
	teardown w
	git -C "$REPO" branch -D sandbox/w
	source_is_clean
}

worktree_removed_by_hand() {
	box h
	rm -rf "$REPO/.git/worktrees"
	expect 0 rmdir "$MNT/h"
	teardown h
	box h
	same hello "$(cat "$MNT/h/README.md")"
	teardown h
	source_is_clean
}

branch_deleted_by_hand() {
	box h
	git -C "$REPO" update-ref -d refs/heads/sandbox/h
	teardown h
	source_is_clean
}

directory_half_gone() {
	box h
	workdir=$(cat "$MNT/h/ctl/workdir")
	rm -rf "$workdir" 2>/dev/null || true
	teardown h
	expect ENOENT stat "$MNT/h"
	source_is_clean
}

source_moved_away() {
	box h
	workdir=$(git -C "$REPO" worktree list --porcelain | sed -n 's/^worktree //p' | tail -n 1)
	mv "$REPO" "$REPO.away"
	expect 0 rmdir "$MNT/h"
	teardown h
	mv "$REPO.away" "$REPO"
	# What is in a repository that cannot be found stays there; its owner clears it.
	git -C "$REPO" worktree unlock "$workdir" || true
	git -C "$REPO" worktree prune
	git -C "$REPO" branch -D sandbox/h 2>/dev/null || true
	source_is_clean
}

kills_jobs() {
	box k
	"$TOOL" result "$MNT/k/ctl/spawn" sleep "$LONG" >/dev/null
	expect 0 rmdir "$MNT/k"
	teardown k
	refuse "$TOOL" pids "$LONG"
}

hard_to_remove() {
	box d
	"$TOOL" deep "$MNT/d" "$(is_away && echo 500 || echo 3000)"
	mkdir "$MNT/d/closed"
	touch "$MNT/d/closed/x"
	run d sh -c 'mkdir -p inner/closed; touch inner/closed/f; chmod 000 inner/closed'
	chmod 000 "$MNT/d/closed"
	expect 0 rmdir "$MNT/d"
	teardown d
	same '' "$(cat "$MNT/ctl/pending")"
}

# Only root of the host can set these, and only on some file systems.
flagged_files() {
	box f
	mkdir "$MNT/f/kept"
	touch "$MNT/f/kept/immutable" "$MNT/f/kept/append"
	tree=$(cat "$MNT/f/ctl/workdir")
	if chattr +i "$tree/kept/immutable" && chattr +a "$tree/kept/append" &&
		chattr +i "$tree/kept"; then
		refuse rm "$tree/kept/immutable"
	else
		echo "# no flags here" >&2
	fi 2>/dev/null
	expect 0 rmdir "$MNT/f"
	teardown f
	same '' "$(cat "$MNT/ctl/pending")"
	[ ! -e "$tree" ]
}

all_of_it_with_a_command_at_work() {
	box w
	id=$("$TOOL" result "$MNT/w/ctl/spawn" sh -c "trap '' TERM; : >up; while :; do
		mkdir -p x/y/z; echo x >x/y/z/f; chmod 000 x/y; chmod 700 x/y; rm -rf x; done; : $LONG")
	[ -n "$id" ]
	until [ -e "$MNT/w/up" ]; do tick; done
	"$TOOL" deep "$MNT/w" 100
	expect 0 rmdir "$MNT/w"
	teardown w
	same '' "$(cat "$MNT/ctl/pending")"
	refuse "$TOOL" pids "$LONG"
}

# Eight make and remove the same name as fast as they can: each call
# succeeds or says that another was first.
one_name_for_all() {
	for i in 1 2 3 4 5 6 7 8; do
		(
			for round in 1 2 3 4 5 6 7 8 9 10; do
				expect '0|EEXIST|EBUSY' mkdir "$MNT/one"
				expect '0|ENOENT|EBUSY' rmdir "$MNT/one"
			done
		) 2>>"$ROOM/one" &
	done
	wait
	same '' "$(cat "$ROOM/one")"
	teardown one
	box one
	same hello "$(cat "$MNT/one/README.md")"
	teardown one
}

parallel_lives() {
	for i in 1 2 3 4 5 6 7 8; do
		(
			for round in 1 2 3; do
				mkdir "$MNT/p$i" && rmdir "$MNT/p$i" || echo bad >>"$ROOM/parallel"
				mkdir "$MNT/shared" 2>/dev/null && rmdir "$MNT/shared" 2>/dev/null
			done
			true
		) &
	done
	wait
	[ ! -e "$ROOM/parallel" ]
	teardown shared
}

claim "mounting" mount_repo
# Only on this host is a sandbox a worktree of the source.
claim_here "mkdir makes a worktree on branch sandbox/NAME, clean for git" creates_a_worktree
claim "rmdir removes it with uncommitted work; a second teardown succeeds" removes_it
claim "the name is free at once" name_is_free_at_once
claim "rm -rf is the same as rmdir" rm_rf
claim "mv within the mount renames" moves
claim "mv out of the mount copies and removes" moves_out_by_copying
claim "ctl/create takes base and branch, or a bare name" create_with_json
claim "what ctl/create and ctl/teardown did is seen at once" controls_are_seen_at_once
claim "what cannot be created leaves nothing, and says why" refuses_bad_create
claim_here "a branch with commits of its own stays and is continued where that is asked for" \
	branch_with_commits_stays
claim_here "teardown after the worktree entry was removed by hand" worktree_removed_by_hand
claim_here "teardown after the branch was deleted" branch_deleted_by_hand
claim "teardown after the directory was removed" directory_half_gone
claim_here "teardown after the source repository moved" source_moved_away
claim "teardown kills the jobs" kills_jobs
claim "teardown of 3000 levels and directories of mode 000" hard_to_remove
claim "teardown of files and directories that are immutable or append-only" flagged_files
claim "teardown with a command that goes on making and closing directories" \
	all_of_it_with_a_command_at_work
claim "many lives in parallel" parallel_lives
claim "mkdir and rmdir of one name at once by eight" one_name_for_all
finish
