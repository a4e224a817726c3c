#!/bin/sh
. "$TESTS/lib/mount.sh"
# Whose branch a new sandbox is on, where one of that name is there already.

info() {
	"$TOOL" json "$2" <"$MNT/$1/ctl/info"
}

created() {
	timeout 60 grep -m 1 '"event":"create"' "$MNT/$1/ctl/events"
}

commit() {
	echo "$2" >"$MNT/$1/work"
	git -C "$MNT/$1" add work
	git -C "$MNT/$1" commit -qm "$2"
}

yesterday() {
	box a
	same sandbox/a "$(info a branch)"
	refuse grep -q branch_exists "$MNT/a/ctl/info"
	commit a yesterday
	teardown a
	box a
	same sandbox/a-2 "$(info a branch)"
	same sandbox/a "$(info a branch_wanted)"
	same new "$(info a branch_exists)"
	same sandbox/a-2 "$(git -C "$MNT/a" branch --show-current)"
	expect ENOENT stat "$MNT/a/work"
	like '*on branch sandbox/a-2, as there is a branch sandbox/a already*' "$(created a)"
	unmount
	remount
	same sandbox/a-2 "$(info a branch)"
	same new "$(info a branch_exists)"
	teardown a
	same yesterday "$(git -C "$REPO" log -1 --format=%s sandbox/a)"
	refuse git -C "$REPO" rev-parse -q --verify sandbox/a-2
}

asked_for() {
	echo '{"name":"b","branch":"sandbox/a"}' >"$MNT/ctl/create"
	same yesterday "$(cat "$MNT/b/work")"
	same continue "$(info b branch_exists)"
	like '*continues branch sandbox/a, which was there already*' "$(created b)"
	teardown b
	echo '{"name":"a","branch_exists":"continue"}' >"$MNT/ctl/create"
	same yesterday "$(cat "$MNT/a/work")"
	teardown a
	expect EEXIST write "$MNT/ctl/create" O_WRONLY '{"name":"a","branch_exists":"refuse"}'
	like '*sandbox/a is there already*' "$(cat "$MNT/ctl/error")"
	expect EINVAL write "$MNT/ctl/create" O_WRONLY '{"name":"a","branch_exists":"perhaps"}'
	like '*new|refuse|continue*' "$(cat "$MNT/ctl/error")"
	expect ENOENT stat "$MNT/a"
}

renamed() {
	box r
	mv "$MNT/r" "$MNT/s"
	same sandbox/r "$(info s branch)"
	box r
	same sandbox/r-2 "$(info r branch)"
	teardown r s
}

# What it was on is the branch of another now.
brought_back() {
	box t
	echo unsaved >"$MNT/t/unsaved"
	teardown t
	entry=$(sed -n 's/^\(t-[^ ]*\) .*/\1/p' "$MNT/ctl/trash")
	git -C "$REPO" branch -q sandbox/t sandbox/a
	echo "{\"name\":\"t\",\"from\":\"trash:$entry\"}" >"$MNT/ctl/create"
	same unsaved "$(cat "$MNT/t/unsaved")"
	same sandbox/t-2 "$(info t branch)"
	same t "$(info t name)"
	like '*from trash:*; on branch sandbox/t-2*' "$(created t)"
	rm "$MNT/t/unsaved"
	teardown t
	git -C "$REPO" branch -q -D sandbox/t
}

forked() {
	box f
	git -C "$REPO" branch -q sandbox/g sandbox/a
	echo g >"$MNT/f/ctl/fork"
	same sandbox/g-2 "$(info g branch)"
	teardown f g
	git -C "$REPO" branch -q -D sandbox/g
}

# Two mounts of one source.
elsewhere() {
	box e
	mkdir "$ROOM/other"
	"$TOOL" mount "$LOG.2" "$RECORD.2" "$SANDBOXFS" "$REPO" "$ROOM/other" -o "state_dir=$STATE.2"
	mkdir "$ROOM/other/e"
	same sandbox/e-2 "$("$TOOL" json branch <"$ROOM/other/e/ctl/info")"
	expect EBUSY write "$ROOM/other/ctl/create" O_WRONLY '{"name":"x","branch":"sandbox/e"}\n'
	like "*branch sandbox/e is checked out in sandbox e of the mount at $MNT (*" \
		"$(cat "$ROOM/other/ctl/error")"
	rmdir "$ROOM/other/e"
	fusermount3 -u "$ROOM/other"
	flock -w 60 "$RECORD.2" true
	teardown e
}

refusing() {
	unmount
	remount branch_exists=refuse
	expect EEXIST mkdir "$MNT/a"
	like '*sandbox/a is there already*branch_exists=*' "$(cat "$MNT/ctl/error")"
	box b
	same sandbox/b "$(info b branch)"
	teardown b
	unmount
	remount branch_exists=continue
	box a
	same yesterday "$(cat "$MNT/a/work")"
	same continue "$(info a branch_exists)"
	teardown a
	unmount
	remount ''
	git -C "$REPO" branch -q -D sandbox/a
}

claim "mounting" mount_repo
claim "a branch that was kept is not continued: another is taken, and said" yesterday
claim "who names it continues it; a create request decides for itself" asked_for
claim "the branch of a renamed sandbox is not another's" renamed
claim "what comes from the trash takes another branch where its own has gone on" brought_back
claim "a fork takes another branch as well" forked
claim "and so does a sandbox of another mount" elsewhere
claim "branch_exists=refuse and continue" refusing
finish
