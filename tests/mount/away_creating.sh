#!/bin/sh
. "$TESTS/lib/mount.sh"
# A sandbox elsewhere is there at once, and is waited for by who needs it.

state() {
	"$TOOL" json state <"$MNT/$1/ctl/info"
}

shown_at_once() {
	faults 'make latency all 10000'
	mkdir "$MNT/a"
	same creating "$(state a)"
	ls "$MNT" | grep -qx a
	like '*creating*' "$(cat "$MNT/ctl/list.json")"
	run a cat README.md >"$ROOM/by.command" &
	command=$!
	cat "$MNT/a/README.md" >"$ROOM/by.cat" &
	reader=$!
	cat "$MNT/a/ctl/workdir" >"$ROOM/workdir" &
	asker=$!
	same creating "$(state a)"
	same absent "$("$TOOL" json workdir <"$MNT/a/ctl/info")"
	wait $command
	wait $reader
	wait $asker
	same "$(run a pwd)" "$(cat "$ROOM/workdir")"
	same ready "$(state a)"
	same 'hello hello' "$(cat "$ROOM/by.command" "$ROOM/by.cat" | paste -sd ' ')"
}

# Who is tired of waiting ends alone.
interrupted() {
	mkdir "$MNT/i"
	cat "$MNT/i/README.md" &
	reader=$!
	run i true &
	client=$!
	cat "$MNT/i/ctl/workdir" &
	asker=$!
	until grep -q '^State:.*[SD] ' "/proc/$reader/status"; do tick; done
	kill $reader
	wait $reader && fail "it was read" || true
	kill $client
	wait $client && fail "it ran" || true
	kill $asker
	wait $asker && fail "it was told" || true
	same creating "$(state i)"
	same hello "$(cat "$MNT/i/README.md")"
	teardown i
}

cancelled() {
	faults 'make latency all 60000'
	mkdir "$MNT/c"
	cat "$MNT/c/README.md" 2>"$ROOM/cancelled" &
	reader=$!
	rmdir "$MNT/c"
	wait $reader && fail "it was read" || true
	expect ENOENT stat "$MNT/c"
	mkdir "$MNT/c"
	rmdir "$MNT/c"
	faults
	teardown a
	until_removed
	box a
}

failed() {
	faults 'make 5xx'
	mkdir "$MNT/f"
	expect EREMOTEIO open "$MNT/f/README.md" O_RDONLY
	expect EREMOTEIO write "$MNT/f/ctl/exec" O_WRONLY 'true\n'
	same failed "$(state f)"
	like '*the server has failed*' "$(cat "$MNT/f/ctl/info")"
	like '*the server has failed*' "$(cat "$MNT/f/ctl/error")"
	ls "$MNT" | grep -qx f
	faults
	expect EREMOTEIO open "$MNT/f/README.md" O_RDONLY
	rmdir "$MNT/f"
	mkdir "$MNT/f"
	same hello "$(cat "$MNT/f/README.md")"
	teardown f
}

# Who renames keeps everybody from the top of the mount, and so does not wait for the machine; nor
# does who removes.
renamed() {
	faults 'make latency all 60000'
	mkdir "$MNT/r"
	echo x >"$MNT/r/ctl/snapshot" &
	writer=$!
	for sure in 1 2 3; do
		tick
		until grep -q '^\(1\|64\) ' "/proc/$writer/syscall"; do tick; done
	done
	expect EBUSY rename "$MNT/r" "$MNT/s"
	like '*another operation of r is under way*' "$(cat "$MNT/ctl/error")"
	mkdir "$MNT/t"
	mv "$MNT/t" "$MNT/s"
	rmdir "$MNT/s"
	grep '^State:.*[SD] ' "/proc/$writer/status"
	rmdir "$MNT/r"
	wait $writer && fail "it was recorded" || true
	faults
	mkdir "$MNT/r"
	mv "$MNT/r" "$MNT/s"
	echo x >"$MNT/s/ctl/snapshot"
	mv "$MNT/s" "$MNT/r"
	teardown r
}

create_waits() {
	faults 'make latency all 500'
	echo w >"$MNT/ctl/create"
	same ready "$(state w)"
	teardown w
	faults 'make 5xx'
	expect EREMOTEIO write "$MNT/ctl/create" O_WRONLY 'w\n'
	like '*the server has failed*' "$(cat "$MNT/ctl/error")"
	faults
	teardown w
	expect ENOENT write "$MNT/ctl/create" O_WRONLY '{"name":"w","base":"no-such-commit"}'
	grep -q no-such-commit "$MNT/ctl/error"
	teardown w
}

# Who is killed while it waits has given it up.
writer_killed() {
	faults 'make latency all 600000'
	sh -c 'echo w >"$1"' sh "$MNT/ctl/create" &
	writer=$!
	until [ -d "$MNT/w" ]; do tick; done
	kill -9 $writer
	wait $writer && fail "it was made" || true
	until [ ! -e "$MNT/w" ]; do tick; done
	faults
}

# progress: what it is at stands in events.
told() {
	faults 'make latency all 300'
	"$TOOL" read-until "$MNT/ctl/events" 'copying ' &
	reader=$!
	mkdir "$MNT/t"
	wait $reader
	teardown t
	faults
}

# An answer that is lost leaves a machine, which is found by its name.
unanswered() {
	teardown a
	until_removed
	faults 'make lost 1'
	box a
	same hello "$(cat "$MNT/a/README.md")"
	same 1 "$(ls "$DIRS/machines" | wc -l)"
	faults
}

# milliseconds until all of these sandboxes have been used
creation_of() {
	from=$(date +%s%N)
	box "$@"
	for name; do
		cat "$MNT/$name/README.md" >/dev/null &
	done
	wait
	echo $((($(date +%s%N) - from) / 1000000))
	teardown "$@"
}

twenty_at_once() {
	faults 'make latency all 2000'
	one=$(creation_of n0)
	twenty=$(creation_of n1 n2 n3 n4 n5 n6 n7 n8 n9 n10 n11 n12 n13 n14 n15 n16 n17 n18 n19 n20)
	echo "one in $one ms, twenty in $twenty ms" >"$ROOM/twenty"
	[ "$twenty" -lt $((3 * one)) ] || fail "$(cat "$ROOM/twenty")"
	faults
}

# What waits for the provider leaves room for what does not: more are made than wait at once.
behind_creations() {
	box h
	same hello "$(cat "$MNT/h/README.md")"
	faults 'make latency all 30000'
	for number in $(seq 70); do mkdir "$MNT/s$number"; done
	same made "$(run h sh -c 'echo made >by-command; cat by-command')"
	same made "$(cat "$MNT/h/by-command")"
	same creating "$(state s1)"
	for number in $(seq 70); do rmdir "$MNT/s$number"; done
	faults
	teardown h
}

hundred_commands() {
	box h
	until_quiet h
	like '*ok' "$("$TOOL" parallel "$MNT/h/ctl/exec" 100 \
		sh -c 'echo >>began; until [ "$(wc -l <began)" = 100 ]; do sleep 0.1; done')"
	teardown h
}

# A daemon that dies meanwhile: what it had begun is gone on with, or removed.
killed_while_creating() {
	faults 'make latency all 2000'
	mkdir "$MNT/k"
	kill_daemon
	faults
	remount
	same hello "$(cat "$MNT/k/README.md")"
	teardown k
	faults 'unmake 5xx'
	mkdir "$MNT/l"
	same hello "$(cat "$MNT/l/README.md")"
	rmdir "$MNT/l"
	kill_daemon
	faults
	remount
	teardown a
	until_removed
}

# What a provider does when nobody waits for it any more is found, and removed again.
late() {
	teardown a
	until_removed
	faults 'make late 1 5000'
	mkdir "$MNT/l"
	until [ -n "$(find "$DIRS" -maxdepth 1 -name 'late-*')" ]; do tick; done
	rmdir "$MNT/l"
	while [ -n "$(find "$DIRS" -maxdepth 1 -name 'late-*')" ]; do tick; done
	until_removed
	faults
	box a
}

# What a provider takes too long for is in the record, and the next mount goes on with it.
unmounted_meanwhile() {
	teardown a
	box u
	same hello "$(cat "$MNT/u/README.md")"
	faults 'make latency all 600000' 'unmake blackhole all 600000'
	rmdir "$MNT/u"
	mkdir "$MNT/v"
	unmount
	[ -n "$(ls "$DIRS/machines")" ] || fail "it was removed"
	faults
	remount
	same hello "$(cat "$MNT/v/README.md")"
	teardown v
	until_removed
}

# Nobody who uses it has given it up, so that it has failed for this mount only.
given_up_by_nobody() {
	faults 'make given_up'
	mkdir "$MNT/g"
	expect EREMOTEIO open "$MNT/g/README.md" O_RDONLY
	same failed "$(state g)"
	mv "$MNT/g" "$MNT/h"
	unmount
	faults
	remount
	same hello "$(cat "$MNT/h/README.md")"
	teardown h
}

claim "mounting" mount_repo
faults
claim "it is shown as creating; files and commands wait for it" shown_at_once
claim "who waits can be interrupted, and the sandbox comes all the same" interrupted
claim "rmdir of it cancels, and frees the name" cancelled
claim "one that cannot be made stays, with the reason, until rmdir" failed
claim "mv and rmdir of one that is asked for a snapshot wait for no machine" renamed
claim "ctl/create waits for the end, and answers how it ended" create_waits
claim "a writer of ctl/create that is killed has given the sandbox up" writer_killed
claim "what it is at is told" told
claim "a create whose answer is lost makes one machine" unanswered
claim "twenty are made in about the time of one" twenty_at_once
[ ! -f "$ROOM/twenty" ] || sed 's/^/# /' "$ROOM/twenty"
claim "a command ends, however many others are being made" behind_creations
claim "a hundred commands run at once" hundred_commands
claim "a daemon that is killed while one is made or removed leaves none" killed_while_creating
claim "one that comes when its create was given up is removed" late
claim "one that was given up by nobody is made by the next mount" given_up_by_nobody
claim "an unmount waits for neither of both, and the next mount goes on" unmounted_meanwhile
finish
