#!/bin/sh
. "$TESTS/lib/mount.sh"
# Where the sandboxes of a mount are kept between mounts, and what becomes of that.

XDG_STATE_HOME=$ROOM/lasting
export XDG_STATE_HOME

# mount_own SOURCE [OPTIONS]: the mount itself chooses its state directory.
mount_own() {
	"$TOOL" mount "$LOG" "$RECORD" "$SANDBOXFS" "$1" "$MNT" ${2:+-o "$2"}
}

info() {
	"$TOOL" json "$2" <"$MNT/$1/ctl/info"
}

states() {
	"$SANDBOXFS" --list-state >"$ROOM/states"
}

# Whether a reboot may empty the directory of the tests.
is_emptied() {
	case $TMPDIR in
	/tmp/* | /run/* | /dev/shm/*) ;;
	*) [ "$(stat -f -c %T "$TMPDIR")" = tmpfs ] ;;
	esac
}

temporary() {
	new_repo
	mount_own "$REPO"
	box a
	dir=$(info a state_dir)
	like "$TMPDIR/sandboxfs-$(id -u)/????????????????" "$dir"
	! is_emptied || like '*; -o state_dir=persistent*' "$(info a state_note)"
	states
	same "$dir: $REPO at $MNT; mounted (process $(daemon_pid)); 1 sandbox (a); used $(date +%F)" \
		"$(sed 's/ [0-9:]*$//' "$ROOM/states")"
	"$SANDBOXFS" --prune >"$ROOM/pruned"
	same "kept    $dir: $REPO at $MNT: it is mounted" "$(cat "$ROOM/pruned")"
	unmount
	states
	like "$dir: $REPO at $MNT; not mounted; 1 sandbox (a); used *" "$(cat "$ROOM/states")"
	"$SANDBOXFS" --prune >"$ROOM/pruned"
	same "kept    $dir: $REPO at $MNT: it holds 1 sandbox (a)" "$(cat "$ROOM/pruned")"
	"$SANDBOXFS" --doctor >"$ROOM/doctor" || true
	! is_emptied ||
		grep -q "^warn  sandboxes are kept in $TMPDIR/.*-o state_dir=persistent" "$ROOM/doctor"
}

# Source and mountpoint may be gone: what a sandbox holds is there.
work_is_kept() {
	mv "$REPO" "$REPO.away"
	"$SANDBOXFS" --prune >"$ROOM/pruned"
	like "kept *: $REPO (gone) at $MNT: it holds 1 sandbox (a)" "$(cat "$ROOM/pruned")"
	mv "$REPO.away" "$REPO"
	mount_own "$REPO"
	same hello "$(cat "$MNT/a/README.md")"
	teardown a
	unmount
	"$SANDBOXFS" --prune >"$ROOM/pruned"
	like "removed $TMPDIR/*: $REPO at $MNT" "$(cat "$ROOM/pruned")"
	same '' "$(ls "$TMPDIR/sandboxfs-$(id -u)")"
	states
	same '' "$(cat "$ROOM/states")"
	mount_own "$REPO"
	box a
	teardown a
	unmount
}

trash_is_kept() {
	"$SANDBOXFS" --prune
	mkdir "$ROOM/plain"
	echo plain >"$ROOM/plain/file"
	mount_own "$ROOM/plain"
	box p
	echo unsaved >"$MNT/p/unsaved"
	teardown p
	unmount
	"$SANDBOXFS" --prune >"$ROOM/pruned"
	like 'kept *: its trash holds work of 1 removed sandbox' "$(cat "$ROOM/pruned")"
	mount_own "$ROOM/plain"
	entry=$(sed -n 's/^\(p-[^ ]*\) .*/\1/p' "$MNT/ctl/trash")
	echo "{\"name\":\"q\",\"from\":\"trash:$entry\"}" >"$MNT/ctl/create"
	same unsaved "$(cat "$MNT/q/unsaved")"
	teardown q
	unmount
}

# Of a repository it is the files alone: git's part is in the source.
files_are_kept() {
	mount_own "$REPO"
	box t
	echo unsaved >"$MNT/t/unsaved"
	teardown t
	unmount
	states
	like '*; 0 sandboxes; files of 1 removed; used *' "$(cat "$ROOM/states")"
	"$SANDBOXFS" --prune >"$ROOM/pruned"
	like '*kept *it holds the files of 1 removed sandbox, *' "$(cat "$ROOM/pruned")"
	drop_refs refs/sandboxfs/trash
	mount_own "$REPO"
	timeout 60 grep -q '"dropped".*files of t' "$MNT/ctl/events"
	unmount
	"$SANDBOXFS" --prune >"$ROOM/pruned"
	like "*removed $TMPDIR/*: $REPO at $MNT*" "$(cat "$ROOM/pruned")"
}

# What is no state directory, or nobody understands, is not touched.
foreign_is_kept() {
	base=$TMPDIR/sandboxfs-$(id -u)
	mkdir "$base/0123456789abcdef" "$base/mine"
	echo x >"$base/0123456789abcdef/x"
	mkdir -p "$base/fedcba9876543210/meta" "$base/fedcba9876543210/trees/odd-1"
	: >"$base/fedcba9876543210/lock"
	chmod 700 "$base/fedcba9876543210"
	mkdir -p "$base/fedcba9876543211/meta"
	chmod 700 "$base/fedcba9876543211"
	: >"$base/fedcba9876543211/lock"
	echo '{' >"$base/fedcba9876543211/meta/odd-1.json"
	"$SANDBOXFS" --prune >"$ROOM/pruned"
	grep -q 'kept .*3210: .*: what is in trees belongs to no sandbox' "$ROOM/pruned"
	grep -q 'kept .*3211: .*: it holds 1 sandbox (odd-1.json)' "$ROOM/pruned"
	same x "$(cat "$base/0123456789abcdef/x")"
	[ -d "$base/mine" ] && [ -d "$base/fedcba9876543210/trees/odd-1" ]
	rm -r "$base/0123456789abcdef" "$base/mine" "$base/fedcba987654321"?
}

lasting() {
	"$SANDBOXFS" --prune
	mount_own "$REPO" state_dir=persistent
	box l
	like "$XDG_STATE_HOME/sandboxfs/????????????????" "$(info l state_dir)"
	echo kept >"$MNT/l/f"
	refuse flock -n -x "$(info l state_dir)" true
	unmount
	states
	like "$XDG_STATE_HOME/sandboxfs/*: $REPO at $MNT; not mounted; 1 sandbox (l); *" \
		"$(grep lasting "$ROOM/states")"
	mount_own "$REPO" state_dir=persistent
	same kept "$(cat "$MNT/l/f")"
	rm "$MNT/l/f"
	teardown l
	unmount
	"$SANDBOXFS" --prune
	same '' "$(ls "$XDG_STATE_HOME/sandboxfs")"
	unset XDG_STATE_HOME
	[ "$(id -u)" = 0 ] || {
		mount_own "$REPO" state_dir=persistent
		same "$HOME/.local/state/sandboxfs" \
			"$("$TOOL" json state_dir <"$MNT/ctl/config" | sed 's|/[^/]*$||')"
		unmount
		HOME='' refused_mount persistent "$REPO" "$MNT" -o state_dir=persistent
	}
}

# Only root can mount what is in memory here.
in_memory() {
	mkdir "$ROOM/memory"
	mount -t tmpfs -o size=64m none "$ROOM/memory"
	trap 'umount -l "$ROOM/memory"' EXIT
	mount_own "$REPO" "state_dir=$ROOM/memory/state"
	box m
	like '*in memory*gone after a reboot*' "$(info m state_note)"
	teardown m
	unmount
	TMPDIR=$ROOM/memory "$SANDBOXFS" --doctor >"$ROOM/doctor" || true
	grep -q '^warn  sandboxes are kept in .*in memory' "$ROOM/doctor"
}

killed() {
	mount_own "$REPO"
	box k
	kill_daemon
	states
	like "*; not mounted; 1 sandbox (k); *" "$(cat "$ROOM/states")"
	"$SANDBOXFS" --prune | grep -q '^kept .*(k)'
	mount_own "$REPO"
	same hello "$(cat "$MNT/k/README.md")"
	teardown k
	unmount
	"$SANDBOXFS" --prune
}

claim "kept in the temporary directory, which info and --doctor say; --list-state, --prune" \
	temporary
claim "--prune removes no sandbox, whatever is gone, and all that holds none" work_is_kept
claim "--prune removes no trash" trash_is_kept
claim "--prune removes no files that the trash has an entry for" files_are_kept
claim "--prune touches nothing that it does not understand" foreign_is_kept
claim "state_dir=persistent is where things last" lasting
[ "$(id -u)" != 0 ] || claim "a state directory in memory is told" in_memory
claim "after kill -9 work is kept as well" killed
claim "nothing is left" source_is_clean
