#!/bin/sh
. "$TESTS/lib/mount.sh"
# A provider of whom nothing is heard. Nothing waits for it but what needs it, and not for ever.
export SBX_REMOTE_DEADLINE_MS=3000

# In a: a file that is here, and one of 20 MB that is not; b is another machine.
prepare() {
	box a b
	until_quiet a b
	run a sh -c 'mkdir far; head -c 20000000 /dev/urandom >far/large'
	same hello "$(cat "$MNT/a/README.md")"
	until_quiet a
	rm -f "$ROOM/started"
	(cd "$MNT/b" && seq 200 | xargs touch)
}

silence() {
	basename "$(machine a)" >"$ROOM/silent"
	faults "*@$(cat "$ROOM/silent") blackhole all 5000"
}

# read_errno FILE, fsync_errno FILE: the errno of that call.
read_errno() {
	python3 -c 'import errno, os, sys
try: os.pread(os.open(sys.argv[1], os.O_RDONLY), 4096, 10000000); print(0)
except OSError as e: print(errno.errorcode[e.errno])' "$1"
}

fsync_errno() {
	python3 -c 'import errno, os, sys
try: os.fsync(os.open(sys.argv[1], os.O_RDONLY)); print(0)
except OSError as e: print(errno.errorcode[e.errno])' "$1"
}

what_is_here_works() {
	drop_caches
	same hello "$(cat "$MNT/a/README.md")"
	same 'Makefile README.md far link src' "$(ls "$MNT/a" | paste -sd ' ')"
	same 20000000 "$("$TOOL" stat "$MNT/a/far/large" size)"
	echo written >"$MNT/a/written"
	same written "$(cat "$MNT/a/written")"
	mv "$MNT/a/written" "$MNT/a/renamed"
	rm "$MNT/a/link"
	ls "$MNT" | grep -qx a
}

ends_at_its_deadline() {
	same ETIMEDOUT "$(read_errno "$MNT/a/far/large")"
	# It is remembered for a moment: nobody waits twice for what has just failed.
	same ETIMEDOUT "$(read_errno "$MNT/a/far/large")"
	same ETIMEDOUT "$(fsync_errno "$MNT/a/renamed")"
}

# 100 readers wait; meanwhile b is looked at, read, written and asked to run commands.
nobody_is_stalled() {
	rm -f "$ROOM/quick"
	readers=
	for i in $(seq 100); do
		dd if="$MNT/a/far/large" of=/dev/null bs=4096 count=1 skip=$((i * 40)) 2>/dev/null &
		readers="$readers $!"
	done
	python3 - "$MNT/b" <<'END' >"$ROOM/quick"
import os, subprocess, sys, time
took = []
for i in range(2000):
    at = time.perf_counter()
    os.stat(f"{sys.argv[1]}/{i % 200 + 1}")
    with open(f"{sys.argv[1]}/README.md") as f:
        assert f.read() == "hello\n"
    took.append(time.perf_counter() - at)
with open(f"{sys.argv[1]}/made", "w") as f:
    f.write("x")
took.sort()
p50, p99 = (took[i] * 1e6 for i in (1000, 1980))
print(f"stat, open and read meanwhile: p50 {p50:.0f} us, p99 {p99:.0f} us")
END
	same x "$(run b cat made)"
	# They had been waiting all the time.
	waiting=0
	for pid in $readers; do ! kill -0 "$pid" 2>/dev/null || waiting=$((waiting + 1)); done
	[ $waiting -gt 50 ] || fail "only $waiting of them wait"
	mkdir "$MNT/c"
	rmdir "$MNT/c"
	for pid in $readers; do kill -9 "$pid" 2>/dev/null || true; done
	wait
}

# A reader that is killed does not wait for the answer.
killed_reader() {
	cat "$MNT/a/far/large" >/dev/null &
	reader=$!
	until grep -q '^State:.*[SD] ' "/proc/$reader/status"; do tick; done
	kill -9 $reader
	wait $reader && fail "it was read" || true
}

# behind CALL NAME FILE: begins CALL of NAME, after which FILE is there. Returns when it waits.
# The kernel does one fsync of a file at a time.
behind() {
	python3 -c 'import os, sys
f = os.open(sys.argv[2], os.O_WRONLY if sys.argv[1] == "write" else os.O_RDONLY)
open(sys.argv[3] + ".begun", "w")
try: os.write(f, b"{}\n") if sys.argv[1] == "write" else os.fsync(f)
except OSError: pass
open(sys.argv[3], "w")' "$1" "$MNT/a/$2" "$3" &
	behind=$!
	until [ -f "$3.begun" ]; do tick; done
	until grep -q '^State:.*[SD] ' "/proc/$behind/status"; do
		refuse test -f "$3"
		tick
	done
}

# killed CALL NAME: who is killed does not wait for the end of what another still waits for.
killed() {
	rm -f "$ROOM/first"* "$ROOM/second"*
	behind fsync renamed "$ROOM/first"
	first=$behind
	behind "$1" "$2" "$ROOM/second"
	kill -9 "$behind"
	wait "$behind" || true
	refuse test -f "$ROOM/first"
	wait "$first"
	test -f "$ROOM/first"
	refuse test -f "$ROOM/second"
}

# A command that has said something runs in a, and its machine falls silent.
silenced_while() {
	until grep -q said "$MNT/a/ctl/jobs/$1/stdout" 2>/dev/null; do tick; done
	silence
}

# A dev server, whose client is killed: neither goes on for longer than the machine is silent.
killed_client() {
	rm -f "$ROOM/silenced"
	mkdir "$MNT/a/ctl/jobs/server"
	"$TOOL" kill-client "$MNT/a/ctl/jobs/server/exec" 9 "$ROOM/silenced" \
		sh -c "echo said; exec sleep $LONG" >"$ROOM/client" &
	silenced_while server
	touch "$ROOM/silenced"
	until [ -s "$ROOM/client" ]; do tick; done
	same 'signal 9 quickly' "$(cat "$ROOM/client")"
	like 'ETIMEDOUT: * was killed with its client*' "$(cat "$MNT/a/ctl/error")"
	like '* lost *' "$(cat "$MNT/a/ctl/jobs/server/wait")"
	like '*"error":"the machine does not answer; the command is killed there*' \
		"$(cat "$MNT/a/ctl/jobs/server/result")"
	same said "$(cat "$MNT/a/ctl/jobs/server/stdout")"
	"$TOOL" pids "$LONG" >/dev/null
	faults
	while "$TOOL" pids "$LONG" >/dev/null; do tick; done
}

# What it had said is told, though its end is not.
timed_out() {
	mkdir "$MNT/a/ctl/jobs/timed"
	printf '{"argv":["sh","-c","echo said; exec sleep %s"],"timeout_ms":20000}' "$LONG" \
		>"$ROOM/request"
	(cat "$ROOM/request" >"$MNT/a/ctl/jobs/timed/exec" && touch "$ROOM/over") &
	silenced_while timed
	until [ -f "$ROOM/over" ]; do tick; done
	like '124 timeout *' "$(cat "$MNT/a/ctl/jobs/timed/status")"
	same said "$(cat "$MNT/a/ctl/jobs/timed/stdout")"
	while "$TOOL" pids "$LONG" >/dev/null; do tick; done
	faults
	until sync "$MNT/a" 2>/dev/null; do tick; done
}

# Before it has started, in a call that is given minutes for what it brings.
killed_start() {
	mkdir "$MNT/a/many" "$MNT/a/ctl/jobs/late"
	echo x >"$MNT/a/many/file"
	python3 -c 'import os, sys
for i in range(4000): os.link(f"{sys.argv[1]}/file", f"{sys.argv[1]}/{i}")' "$MNT/a/many"
	faults "run@$(cat "$ROOM/silent") blackhole all 5000"
	mark
	(echo true >"$MNT/a/ctl/jobs/late/exec") 2>/dev/null &
	until asked '^run:exec' >"$ROOM/asked"; do tick; done
	like '- running *' "$(cat "$MNT/a/ctl/jobs/late/status")"
	echo KILL >"$MNT/a/ctl/jobs/late/kill"
	until like '* lost *' "$(cat "$MNT/a/ctl/jobs/late/status")" 2>/dev/null; do tick; done
	like '*"error":"the machine does not answer; *"errno":"ETIMEDOUT"*' \
		"$(cat "$MNT/a/ctl/jobs/late/result")"
	faults
	until sync "$MNT/a" 2>/dev/null; do tick; done
}

# milliseconds COMMAND...
milliseconds() {
	from=$(date +%s%N)
	"$@" >&2
	echo $((($(date +%s%N) - from) / 1000000))
}

unmounts() {
	echo unsent >"$MNT/a/unsent"
	unmount
}

# A mount asks nobody.
mounts_at_once() {
	faults '* blackhole all 5000'
	took=$(milliseconds remount)
	echo "$took" >"$ROOM/took"
	is_sanitized || [ "$took" -lt 1000 ] || fail "the mount took $took ms"
	same 'a b' "$(ls "$MNT" | grep -x '[ab]' | paste -sd ' ')"
}

rmdir_is_quick() {
	rmdir "$MNT/b"
	expect ENOENT stat "$MNT/b"
}

# When it is heard of again, what was written meanwhile arrives, and what was removed goes.
is_back() {
	faults
	until sync "$MNT/a" 2>/dev/null; do tick; done
	same unsent "$(cat "$(machine a)/tree/unsent")"
	same written "$(cat "$(machine a)/tree/renamed")"
	refuse test -L "$(machine a)/tree/link"
	cmp "$MNT/a/far/large" "$(machine a)/tree/far/large"
	until [ "$(ls "$DIRS/machines" | wc -l)" = 1 ]; do tick; done
}

# Machines live for three seconds, so that the keeper looks after them all the time.
verified_once() {
	unmount
	silent=$(cat "$ROOM/silent")
	faults "look@$silent blackhole all 600000"
	mark
	export SBX_DIRS_LIFE=3000
	remount
	unset SBX_DIRS_LIFE
	until [ "$(asked touch | grep -vc "@$silent")" -ge 3 ]; do
		cat "$MNT/b/README.md" >"$ROOM/read"
		tick
	done
	same 1 "$(asked look | grep -c "@$silent")"
	unmount
	faults
	remount
	until sync "$MNT/a" 2>/dev/null; do tick; done
}

claim "mounting" mount_repo
claim "two sandboxes" prepare
silence
claim "what is here can be read, changed and listed" what_is_here_works
claim "100 readers wait, and nobody else" nobody_is_stalled
[ ! -f "$ROOM/quick" ] || sed 's/^/# /' "$ROOM/quick"
claim "a read of what is not here, and an fsync, end with ETIMEDOUT" ends_at_its_deadline
claim "a reader that is killed ends at once" killed_reader
claim "an fsync that is killed ends at once" killed fsync README.md
claim "and a snapshot" killed write ctl/snapshot
faults
claim "it is verified once at a time, however long that takes" verified_once
claim "a client that is killed does not wait for its command, which dies there" killed_client
claim "what is over its time ends" timed_out
claim "what is killed before it has started ends" killed_start
silence
claim "unmounting does not wait for it" unmounts
claim "the next mount is there within a second" mounts_at_once
[ ! -f "$ROOM/took" ] || echo "# mounted in $(cat "$ROOM/took") ms"
claim "rmdir does not wait for it" rmdir_is_quick
claim "once it is back, all that was done meanwhile is done there" is_back
finish
