#!/bin/sh
. "$TESTS/lib/mount.sh"
# A daemon that is killed at each step of a command elsewhere: the next one has what was written
# there once and whole, and no command has run twice.

# The tree of the machine.
far() {
	echo "$(machine a)/tree"
}

# killed_at FAULT PATTERN: a file is written and a command is asked for, whose answer does not come;
# the daemon is killed when a request like PATTERN is under way and is there again.
killed_at() {
	rm -f "$MNT/a/ran" "$MNT/a/large"
	sync "$MNT/a"
	there=$(far)
	faults "$1"
	mark
	cp "$ROOM/large" "$MNT/a/large"
	"$TOOL" write "$MNT/a/ctl/exec" O_WRONLY 'sh -c "cmp large known && echo ran >>ran"' \
		>"$ROOM/answer" &
	until asked "$2" >/dev/null; do tick; done
	[ -z "${3:-}" ] || until [ -s "$there/$3" ]; do tick; done
	kill_daemon
	wait $!
	refuse grep -qx 0 "$ROOM/answer"
	faults
	remount
	cmp "$ROOM/large" "$MNT/a/large"
	sync "$MNT/a"
	cmp "$ROOM/large" "$there/large"
}

# The machine has run it, as the mount says without another command.
has_run() {
	same ran "$(cat "$there/ran")"
	until [ "$(cat "$MNT/a/ran" 2>/dev/null)" = ran ]; do tick; done
	same ran "$(run a cat ran)"
}

has_not_run() {
	expect ENOENT stat "$MNT/a/ran"
	refuse test -e "$there/ran"
	same '' "$(run a sh -c 'cat ran 2>/dev/null || :')"
}

prepare() {
	box a
	head -c 300000 /dev/urandom >"$ROOM/large"
	cp "$ROOM/large" "$MNT/a/known"
}

contents_are_under_way() {
	killed_at 'put blackhole all' '^put'
	has_not_run
	killed_at 'put stall all' '^put'
	has_not_run
	killed_at 'put cut all' '^put'
	has_not_run
}

is_not_there() {
	killed_at 'run blackhole all' '^run'
	has_not_run
}

answer_is_under_way() {
	killed_at 'run stall all' '^run' ran
	has_run
}

answer_was_lost() {
	killed_at 'run lost all' '^run' ran
	has_run
}

# What it has written by then is there and here, and so is what comes of the next one.
goes_on() {
	"$TOOL" write "$MNT/a/ctl/exec" O_WRONLY \
		"sh -c \"seq 20000 >lines.new; mv lines.new lines; exec sleep $LONG\"" >"$ROOM/answer" &
	until [ -s "$(far)/lines" ]; do tick; done
	kill_daemon
	wait $!
	remount
	until [ -s "$MNT/a/lines" ]; do tick; done
	seq 20000 | cmp - "$MNT/a/lines"
	run a seq 50000 >"$ROOM/out"
	seq 50000 | cmp - "$ROOM/out"
	while "$TOOL" pids "$LONG" >/dev/null; do tick; done
}

# The line of a snapshot was cut, which nobody was told of. The next one has a line of its own.
list_was_torn() {
	echo one >"$MNT/a/ctl/snapshot"
	cat "$MNT/a/ctl/snapshot" >"$ROOM/ids"
	for list in "$STATE"/remote/*/snapshots; do
		printf '{"id":"0123' >>"$list"
	done
	echo two >"$MNT/a/ctl/snapshot"
	sort -u "$ROOM/ids" - <"$MNT/a/ctl/snapshot" >"$ROOM/snapshots"
	same 2 "$(wc -l <"$ROOM/snapshots")"
	ls "$MNT/a/ctl/snapshots" | sort | diff "$ROOM/snapshots" -
}

# The controls cannot be mounted, which shows when all of them have been taken up. One is up, one is
# being made and one is being removed: no request is made for any, and the next mount has them.
not_mounted() {
	echo mine >"$MNT/a/mine"
	sync "$MNT/a"
	box l
	same hello "$(cat "$MNT/l/README.md")"
	faults 'make blackhole all 600000' 'unmake blackhole all 600000'
	mkdir "$MNT/c"
	rmdir "$MNT/l"
	kill_daemon
	! is_mounted "$STATE/ctl" || fusermount3 -u -z "$STATE/ctl"
	[ ! -d "$STATE/ctl" ] || rmdir "$STATE/ctl"
	echo >"$STATE/ctl"
	mark
	refused_mount "$STATE/ctl" "$(cat "$ROOM/mounted.source")" "$MNT" \
		-o "state_dir=$STATE,backend=dirs,net=host"
	same '' "$(asked)"
	rm "$STATE/ctl"
	faults
	remount
	same mine "$(cat "$MNT/a/mine")"
	same hello "$(cat "$MNT/c/README.md")"
	same hello "$(run c cat README.md)"
	expect ENOENT stat "$MNT/l"
	teardown c
	until [ "$(ls "$DIRS/machines" | wc -l)" = 1 ]; do tick; done
}

claim "mounting" mount_repo
faults
claim "mkdir" prepare
claim "killed while contents go there: they arrive, and the command has not run" \
	contents_are_under_way
claim "killed before the command is there: it has not run" is_not_there
claim "killed before it is answered: it has run once, and here is what it did" answer_is_under_way
claim "killed while it is asked for again: the same" answer_was_lost
claim "killed while it runs: what it did is here, it is ended, and the next one is whole" goes_on
claim "a list of snapshots that was cut takes the next one" list_was_torn
claim "a mount that fails behind that asks for nothing, and the next one has all" not_mounted
finish
