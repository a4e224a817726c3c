#!/bin/sh
. "$TESTS/lib/mount.sh"
# A plain directory as the source in which directories are git repositories: in a sandbox commands
# use them as in the source, and what they do there stays with the sandbox.
SRC=$ROOM/many

inside() {
	inside_box=$1
	shift
	run "$inside_box" sh -ec "$1"
}

source_of_many() {
	if [ -d "$SRC" ]; then
		mount_fs "$SRC" "${1:-}"
		return
	fi
	mkdir -p "$SRC"
	git init -q "$SRC/a"
	echo a >"$SRC/a/file"
	git -C "$SRC/a" add .
	git -C "$SRC/a" commit -qm a
	git -C "$SRC/a" worktree add -q -b tree "$SRC/deep/tree"
	git clone -q "$SRC/a" "$SRC/clone"
	git -C "$SRC/clone" config user.name Cloner
	git init -q "$SRC/b"
	git -C "$SRC/b" -c protocol.file.allow=always submodule --quiet add "$SRC/a" sub
	git -C "$SRC/b" commit -qm b
	git clone -q --bare "$SRC/a" "$SRC/bare.git"
	find "$SRC" -name '*.sample' -delete
	(cd "$SRC" && find . -type f -exec sha1sum {} + | sort -k 2) >"$ROOM/source"
	mount_fs "$SRC" "${1:-}"
}

source_is_as_it_was() {
	(cd "$SRC" && find . -type f -exec sha1sum {} + | sort -k 2) >"$ROOM/source.now"
	cmp "$ROOM/source" "$ROOM/source.now"
}

# The repositories of a new sandbox.
fresh() {
	for at in a clone b b/sub deep/tree; do
		same '' "$(run "$1" git -C "$at" status --porcelain)"
		same '' "$(run "$1" git -C "$at" fsck --no-progress)"
	done
	same a "$(run "$1" git -C a log --format=%s)"
	same a "$(run "$1" git -C clone log --format=%s)"
	same a "$(run "$1" git -C b/sub log --format=%s)"
	same b "$(run "$1" git -C b log --format=%s)"
	same a "$(run "$1" git -C bare.git log --format=%s)"
	same tree "$(run "$1" git -C deep/tree branch --show-current)"
}

work() {
	for at in a clone b/sub deep/tree; do
		branch=side
		[ $at != deep/tree ] || branch=other
		inside "$1" "cd $at; echo more >>file; git commit -qam more; git checkout -qb $branch
			echo new >new; git add new; git commit -qm side; echo staged >>new; git add new
			echo changed >>new; git gc -q"
	done
	inside "$1" 'cd b; git commit -qam moved'
	inside "$1" 'cd bare.git; git branch other; git config core.x y'
	inside "$1" 'git -C clone fetch -q; git -C clone log -1 --format=%s origin/main | grep -qx more'
	inside "$1" 'git -C a remote add bare ../bare.git; git -C a push -q bare side; git init -q own
		git -C own commit -q --allow-empty -m own'
}

worked() {
	for at in a clone b/sub; do
		same 'side more a' "$(run "$1" git -C "$at" log --format=%s | xargs)"
		same side "$(run "$1" git -C "$at" branch --show-current)"
	done
	for at in a clone b/sub deep/tree; do
		same 'MM new' "$(run "$1" git -C "$at" status --porcelain)"
		same '' "$(run "$1" git -C "$at" fsck --no-progress --no-dangling)"
	done
	same moved "$(run "$1" git -C b log -1 --format=%s)"
	same 'side more a' "$(run "$1" git -C bare.git log --format=%s side | xargs)"
	same own "$(run "$1" git -C own log --format=%s)"
}

commands() {
	box x y
	same "$1" "$("$TOOL" json tree <"$MNT/x/ctl/info")"
	fresh x
	work x
	worked x
	fresh y
	same 'Cloner' "$(run x git -C clone log -1 --format=%an)"
	same "$(git config user.name)" "$(run x git -C a log -1 --format=%an)"
	source_is_as_it_was
}

# Commands may have changed what would run.
on_host() {
	refuse git -C "$MNT/x/a" status
	expect ENOENT stat "$MNT/x/a/.git"
	expect ENOENT stat "$MNT/x/deep/tree/.git"
	inside x 'git -C a config core.fsmonitor "touch ../ran"'
	refuse git -C "$MNT/x/a" status
	inside x 'git -C a config --unset core.fsmonitor'
	expect ENOENT stat "$MNT/x/ran"
}

shared() {
	unmount
	source_of_many nested_git=shared
	box s
	same '' "$(git -C "$MNT/s/a" status --porcelain)"
	echo host >"$MNT/s/a/file"
	git -C "$MNT/s/a" commit -qam host
	same host "$(run s git -C a log -1 --format=%s)"
	same '' "$(run s git -C a status --porcelain)"
	inside s 'echo inside >a/file; git -C a commit -qam inside'
	same inside "$(git -C "$MNT/s/a" log -1 --format=%s)"
	teardown s
	source_is_as_it_was
}

# Paths of the source lead to the tree all the same.
mounted_inside() {
	unmount
	mkdir "$SRC/mnt"
	MNT=$SRC/mnt
	mount_fs "$SRC"
	box i
	fresh i
	inside i 'git -C deep/tree commit -q --allow-empty -m inside'
	same inside "$(run i git -C a log -1 --format=%s tree)"
	refuse run i test -e "$SRC/mnt/i/mnt"
	teardown i
	unmount
	rmdir "$SRC/mnt"
	source_is_as_it_was
}

forks() {
	echo z >"$MNT/x/ctl/fork"
	worked z
	inside z 'git -C a commit -qam z'
	worked x
	teardown z
}

snapshots() {
	echo one >"$MNT/x/ctl/snapshot"
	id=$(cat "$MNT/x/ctl/snapshot")
	inside x 'git -C a commit -qam later; git -C b/sub checkout -q -f side~1; rm -rf clone'
	echo "$id" >"$MNT/x/ctl/restore"
	worked x
	printf '{"name":"f","rev":"%s"}' "$id" >"$MNT/x/ctl/fork"
	worked f
	teardown f
}

# What a restore did not find in a snapshot was then as in the source.
unchanged_then() {
	echo clean >"$MNT/y/ctl/snapshot"
	id=$(cat "$MNT/y/ctl/snapshot")
	work y
	echo "$id" >"$MNT/y/ctl/restore"
	fresh y
	refuse inside y 'git -C bare.git rev-parse -q --verify side'
	echo previous >"$MNT/y/ctl/restore"
	worked y
	echo previous >"$MNT/y/ctl/restore"
	fresh y
}

resets() {
	box x
	work x
	files_of x >"$ROOM/before"
	echo 1 >"$MNT/x/ctl/reset"
	fresh x
	refuse inside x 'test -e own'
	(cd "$SRC" && find . ! -type d -printf '%P %m\n' | sort) >"$ROOM/want"
	run x sh -c 'find . ! -type d -printf "%P %m\n" | sort' >"$ROOM/have"
	diff "$ROOM/want" "$ROOM/have"
	echo previous >"$MNT/x/ctl/restore"
	worked x
	files_of x | diff "$ROOM/before" -
	inside x 'mv a aa; rm -rf deep; rm clone/file b/sub/.git; chmod 700 b; mkdir clone/other'
	files_of x >"$ROOM/before"
	echo 1 >"$MNT/x/ctl/reset"
	fresh x
	refuse inside x 'test -e aa || test -e clone/other'
	echo previous >"$MNT/x/ctl/restore"
	files_of x | diff "$ROOM/before" -
	echo previous >"$MNT/x/ctl/restore"
	fresh x
	echo previous >"$MNT/x/ctl/restore"
	files_of x | diff "$ROOM/before" -
	teardown x
}

# But for indexes, which git refreshes when it looks.
files_of() {
	run "$1" sh -c 'find . -type f ! -name index -printf "%P %m\n" -exec sha1sum {} + | sort'
}

again() {
	unmount
	remount
	worked x
	fresh y
}

trash() {
	expect 0 rmdir "$MNT/x"
	teardown x
	entry=$(sed -n "s/^\(x-[0-9]*T[0-9]*Z[^ 	]*\).*/\1/p" "$MNT/ctl/trash" | tail -n 1)
	echo "{\"name\":\"back\",\"from\":\"trash:$entry\"}" >"$MNT/ctl/create"
	worked back
	echo 1 >"$MNT/back/ctl/reset"
	# What a full copy that came back began as is what came back.
	if [ "$1" = overlay ]; then
		fresh back
	else
		worked back
	fi
	teardown back
	expect 0 rmdir "$MNT/y"
	source_is_as_it_was
}

all_claims() {
	claim "commands use them$1" commands "${2:-overlay}"
	claim "the host does not see them$1" on_host
	claim "a fork has them$1" forks
	claim "a snapshot and its forks have them$1" snapshots
	claim "what was as in the source when a snapshot was made is so again$1" unchanged_then
	claim "they outlive the daemon$1" again
	claim "they are in the trash$1" trash "${2:-overlay}"
	claim "reset makes them what the source had, and previous what they were$1" resets
}

claim "mounting a directory of repositories" source_of_many
all_claims ''
claim "nested_git=shared: host and commands use them" shared
claim "the mountpoint in the source" mounted_inside
claim "mounting with full copies" source_of_many cow=off
all_claims ', full copies' checkout
finish
