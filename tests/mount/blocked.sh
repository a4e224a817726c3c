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
	"$TOOL" parallel "$MNT/a/ctl/exec" 24 sh -c 'until [ -e go ]; do sleep 0.05; done' >"$ROOM/twelve" &
	until [ "$(grep -l running "$MNT/a"/ctl/jobs/*/status 2>/dev/null | wc -l)" -ge 12 ]; do :; done
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

claim "mounting" mount_repo
claim "two sandboxes" box a b
claim "64 readers wait; stat, ls and exec stay as quick" stays_quick
[ ! -f "$ROOM/ratios" ] || echo "# p50 during against before: $(cat "$ROOM/ratios")"
claim "4 clients that wait 1 s in exec of one sandbox take 1 s together" slow_writers
claim "24 execs under way, more than the workers: the mount answers" twelve_execs
claim "24 wait for a lock (flock): all else goes on, they can be interrupted and killed" waiters flock "$MNT/a/locked"
claim "24 wait for a lock (fcntl): the same" waiters fcntl "$MNT/a/locked"
claim "24 wait at a FIFO that nobody writes: the same" fifo_waiters
finish
