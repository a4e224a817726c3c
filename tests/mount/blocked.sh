#!/bin/sh
. "$TESTS/lib/mount.sh"
# No worker waits: 64 blocked readers slow nobody down.

stays_quick() {
	id=$("$TOOL" result "$MNT/a/ctl/spawn" sleep "$LONG")
	ratios=$("$TOOL" blocked "$MNT/b" "$MNT/a/ctl/jobs/$id" 64)
	echo "# with 64 readers blocked on wait, p50 against before: $ratios" >&2
	echo "$ratios" >"$ROOM/ratios"
	echo "$ratios" | awk '{ for (i = 2; i <= NF; i += 2) if ($i > 3) exit 1 }'
}

slow_writers() {
	rounds=0
	while [ $rounds -lt 4 ]; do
		elapsed=$("$TOOL" parallel "$MNT/a/ctl/exec" 4 sleep 1 | cut -d' ' -f1)
		[ "$elapsed" -lt 2500 ] && return 0
		rounds=$((rounds + 1))
	done
	fail "four writers of one second took $elapsed ms"
}

twelve_execs() {
	"$TOOL" parallel "$MNT/a/ctl/exec" 24 \
		sh -c 'until [ -e go ]; do sleep 0.05; done' >"$ROOM/twelve" &
	until [ "$(grep -l running "$MNT/a"/ctl/jobs/*/status 2>/dev/null | wc -l)" -ge 12 ]; do tick; done
	same hello "$(cat "$MNT/b/README.md")"
	same quick "$(run b echo quick)"
	touch "$MNT/a/go"
	wait
	like '*ok' "$(cat "$ROOM/twelve")"
}

# waiters KIND PATH: 24 wait, half are interrupted and half are killed
waiters() {
	expect 0 waiters "$1" "$2" "$MNT/b" 24
	# None of them is left in the queue: the next one gets it at once.
	same free "$(flock -w 60 "$MNT/a/locked" echo free)"
}

fifo_waiters() {
	run a mkfifo pipe
	waiters fifo "$MNT/a/pipe"
}

# A listing is read into memory that comes from another mount, which does not answer: the
# kernel's copy is locked meanwhile.
reader_without_memory() {
	(
		MNT=$ROOM/other STATE=$ROOM/other.state LOG=$ROOM/other.log RECORD=$ROOM/other.record
		mkdir "$MNT"
		mount_none
		box m
		run m sh -c 'head -c 65536 /dev/zero >memory'
	)
	mkdir "$MNT/a/held"
	(cd "$MNT/a/held" && seq 1 200 | xargs touch)
	sleep 0.1
	ls "$MNT/a/held" >/dev/null
	ls "$MNT/a/held" >/dev/null
	exec 8<"$MNT/a/held" 9<"$ROOM/other/m/memory"
	other=$(MNT=$ROOM/other daemon_pid)
	kill -STOP "$other"
	python3 - >"$ROOM/reader" <<-'END' &
		import ctypes, mmap
		memory = mmap.mmap(9, 65536, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
		at = ctypes.addressof(ctypes.c_char.from_buffer(memory))
		print("reads", flush=True)
		print(ctypes.CDLL(None).getdents64(8, ctypes.c_void_p(at), 65536))
	END
	until [ -s "$ROOM/reader" ]; do tick; done
	sleep 0.1
	(run a touch held/x && run b true && stat "$MNT/b" && echo quick >"$ROOM/held") &
	tries=0
	until [ -s "$ROOM/held" ] || [ $tries = 100 ]; do
		tries=$((tries + 1))
		sleep 0.1
	done
	held=$(cat "$ROOM/held" 2>/dev/null) || true
	reader=$(cat "$ROOM/reader")
	kill -CONT "$other"
	wait
	exec 8<&- 9<&-
	(
		MNT=$ROOM/other STATE=$ROOM/other.state LOG=$ROOM/other.log RECORD=$ROOM/other.record
		teardown m
		fusermount3 -u "$MNT"
		await_end
	)
	same quick "$held"
	same reads "$reader"
	ls "$MNT/a/held" | grep -qx x
}

claim "mounting" mount_repo
claim "two sandboxes" box a b
claim "64 readers wait; stat, ls and exec stay as quick" stays_quick
[ ! -f "$ROOM/ratios" ] || echo "# p50 during against before: $(cat "$ROOM/ratios")"
claim "4 clients that wait 1 s in exec of one sandbox take 1 s together" slow_writers
claim "24 execs under way, more than the workers: the mount answers" twelve_execs
claim "24 wait for a lock (flock): all else goes on, they can be interrupted and killed" waiters \
	flock "$MNT/a/locked"
claim "24 wait for a lock (fcntl): the same" waiters fcntl "$MNT/a/locked"
claim "24 wait at a FIFO that nobody writes: the same" fifo_waiters
claim "one reads a listing into memory that does not come: nobody waits for it" \
	reader_without_memory
finish
