#!/bin/sh
. "$TESTS/lib/mount.sh"
# What a new sandbox holds: a copy of a directory, nothing, a commit.

directory() {
	box a b
	same plain "$(cat "$MNT/a/file")"
	echo changed >"$MNT/a/file"
	run a sh -c 'echo more >>sub/x'
	same plain "$(cat "$MNT/b/file")"
	same plain "$(cat "$ROOM/plain/file")"
	expect ENOENT stat "$ROOM/plain/sub/x"
}

special_directory() {
	mkdir "$ROOM/odd"
	mkfifo "$ROOM/odd/pipe"
	ln -s /etc/passwd "$ROOM/odd/out"
	ln "$ROOM/plain/file" "$ROOM/odd/hard" 2>/dev/null || cp "$ROOM/plain/file" "$ROOM/odd/hard"
	printf '#!/bin/sh\necho ran\n' >"$ROOM/odd/script"
	chmod 755 "$ROOM/odd/script"
	touch -d @1000000 "$ROOM/odd/script"
	mount_fs "$ROOM/odd"
	timeout 60 mkdir "$MNT/o"
	same ran "$(run o ./script)"
	same 1000000.000000000 "$("$TOOL" stat "$MNT/o/script" mtime)"
	expect EACCES open "$MNT/o/out" O_RDONLY
	teardown o
	unmount
}

empty() {
	box e
	same '' "$(ls -A "$MNT/e")"
	echo x >"$MNT/e/f"
	same x "$(run e cat f)"
	teardown e
}

memory() {
	mount_none backend=memory
	box m
	echo kept >"$MNT/m/f"
	same kept "$(cat "$MNT/m/f")"
	expect 0 stat "$MNT/m/ctl/status"
	teardown m
	unmount
}

default_place() {
	"$TOOL" mount "$LOG" "$RECORD" "$SANDBOXFS" "$REPO" "$MNT"
	box d
	like "${TMPDIR:-/tmp}/*" "$("$TOOL" json home <"$MNT/d/ctl/info")"
	teardown d
	unmount
}

default_base() {
	new_repo
	git -C "$REPO" tag v1
	echo 2 >"$REPO/two"
	git -C "$REPO" add two
	git -C "$REPO" commit -qm two
	mount_repo 'base=v1,branch=try/{name}'
	box based
	expect ENOENT stat "$MNT/based/two"
	same try/based "$(git -C "$MNT/based" branch --show-current)"
	teardown based
	unmount
	source_is_clean
}

claim "mounting a directory" mount_dir
claim "a directory: sandboxes are copies of it" directory
claim "two are torn down" teardown a b
claim "unmounting" unmount
claim "a directory with links, FIFOs, programs" special_directory
claim "mounting none" mount_none
claim "none: sandboxes start empty" empty
claim "unmounting" unmount
claim "the memory backend serves files and controls" memory
claim "base= and branch= for all sandboxes" default_base
claim "without state_dir the trees are below the temporary directory" default_place
