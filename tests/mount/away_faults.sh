#!/bin/sh
. "$TESTS/lib/mount.sh"
# What can go wrong at a provider, at each verb: nothing is done twice, nothing is lost, the mount
# answers, and who has to be told hears which errno it was, and a sentence.
export SBX_REMOTE_DEADLINE_MS=3000
# The mv of the machines is slow while there is the file "slow".
export SBX_DIRS_PATH="$ROOM/own:${SBX_DIRS_PATH:-/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin}"
mkdir "$ROOM/own"
printf '#!/bin/sh\n[ ! -e "%s/slow" ] || sleep 0.02\nexec %s "$@"\n' "$ROOM" "$(command -v mv)" \
	>"$ROOM/own/mv"
chmod 755 "$ROOM/own/mv"

# once KIND...: a command under such a fault succeeds and has run once.
once() {
	: >"$MNT/a/ran"
	until_quiet a
	faults "$@"
	run a sh -c 'echo ran >>ran; echo out; echo err >&2' >"$ROOM/out"
	faults
	same ran "$(cat "$MNT/a/ran")"
	same out "$(cat "$ROOM/out")"
	same err "$(cat "$MNT/a/ctl/stderr")"
	like '0 exited*' "$(cat "$MNT/a/ctl/status")"
}

run_once() {
	once 'run lost 1'
	once 'run lost 2'
	once 'run cut 1'
	once 'run 429 2'
	once 'run 5xx 2'
	once 'run stall 1'
	once 'run asleep 1 300'
	once 'run latency all 300'
	once 'run lost every 2'
}

# The machine has what the host wrote; the host is told so only with the command that replaces it.
kept_open() {
	run a sh -c 'seq 20000 >numbers' >"$ROOM/out"
	seq 20000 | cmp - "$MNT/a/numbers"
	exec 8<>"$MNT/a/numbers"
	until_quiet a
	faults 'run:sync lost 1'
	before=$(grep -c ' sync ' "$DIRS/requests" || true)
	printf 2 >&8
	until [ "$(grep -c ' sync ' "$DIRS/requests")" -ge $((before + 2)) ]; do tick; done
	until_quiet a
	faults
	run a sed -i s/1/x/ numbers >"$ROOM/out"
	grep -c x /proc/self/fd/8 >"$ROOM/out" || true
	same 0 "$(cat "$ROOM/out")"
	exec 8>&-
	seq 20000 | sed '1s/1/2/;s/1/x/' | cmp - "$MNT/a/numbers"
}

# The answers of a command that goes on are asked for again, by offset.
polled() {
	: >"$MNT/a/ran"
	until_quiet a
	faults 'run lost every 3' 'run cut every 4' 'run 5xx every 5'
	run a sh -c 'echo ran >>ran; i=0; while [ $i -lt 20 ]; do echo $i; i=$((i + 1)); sleep 0.3; done' \
		>"$ROOM/out"
	faults
	seq 0 19 | cmp - "$ROOM/out"
	same ran "$(cat "$MNT/a/ran")"
}

# The machine takes longer for a host copy than a call may that brings none, and does not fall
# silent.
slow() {
	until_quiet a
	mkdir "$MNT/a/many"
	(cd "$MNT/a/many" && seq 600 | xargs mkdir && for i in *; do echo "$i" >"$i/file"; done)
	touch "$ROOM/slow"
	same 600 "$(run a sh -c 'ls many/*/file | wc -l')"
	rm "$ROOM/slow"
	like '0 exited*' "$(cat "$MNT/a/ctl/status")"
	rm -r "$MNT/a/many"
}

# sent KIND...: contents and names arrive all the same.
sent() {
	faults "$@"
	head -c 100000 /dev/urandom >"$MNT/a/data"
	echo one >"$MNT/a/one"
	mv "$MNT/a/one" "$MNT/a/two"
	mkdir "$MNT/a/dir"
	sync "$MNT/a"
	faults
	cmp "$MNT/a/data" "$(machine a)/tree/data"
	same one "$(cat "$(machine a)/tree/two")"
	refuse test -e "$(machine a)/tree/one"
	rm "$MNT/a/two"
	rmdir "$MNT/a/dir"
}

sent_once() {
	until_quiet a
	for fault in 'put lost 1' 'put cut 1' 'put 429 1' 'put 5xx 1' 'put stall 1' 'put asleep 1 300' \
		'run lost 1' 'run cut 1' 'run 5xx 1' 'run stall 1'; do
		sent "$fault"
	done
	sent 'put lost 1' 'run lost 1'
}

# refused WANT KIND: an fsync fails so, says why, and nothing is lost by it.
refused() {
	faults "$2"
	echo "$2" >"$MNT/a/kept"
	same "$1" "$(fsync_errno "$MNT/a/kept")"
	same "$2" "$(cat "$MNT/a/kept")"
	same hello "$(cat "$MNT/b/README.md")"
	faults
	same 0 "$(fsync_errno "$MNT/a/kept")"
	same "$2" "$(cat "$(machine a)/tree/kept")"
}

lasting_refusals() {
	until_quiet a b
	refused EREMOTEIO 'put 5xx'
	refused EREMOTEIO 'put lost'
	refused EAGAIN 'put 429'
	refused ETIMEDOUT 'put stall'
	refused ETIMEDOUT 'put blackhole'
	refused EREMOTEIO 'run 5xx'
}

# What was put is lost before it is used: the next attempt but one has it put again.
lost_there() {
	until_quiet a
	faults 'run 5xx'
	echo lost >"$MNT/a/lost"
	same EREMOTEIO "$(fsync_errno "$MNT/a/lost")"
	rm -r "$(machine a)/room/in"
	mkdir "$(machine a)/room/in"
	faults
	fsync_errno "$MNT/a/lost" >/dev/null
	same 0 "$(fsync_errno "$MNT/a/lost")"
	same lost "$(cat "$(machine a)/tree/lost")"
}

# A command whose start nobody answers to is lost, and one that is refused is not written. Neither
# has run.
not_started() {
	until_quiet a
	faults 'run 5xx'
	echo 'touch never' >"$MNT/a/ctl/exec"
	faults
	like '- lost *' "$(cat "$MNT/a/ctl/status")"
	until_quiet a
	faults 'run 429'
	expect EAGAIN write "$MNT/a/ctl/exec" O_WRONLY 'touch never\n'
	faults
	error_says a 'EAGAIN: '
	expect ENOENT stat "$MNT/a/never"
}

lasting_at_commands() {
	not_started
	# It was written before, so it has to be there before.
	echo x >"$MNT/a/first"
	faults 'put 5xx'
	expect EREMOTEIO write "$MNT/a/ctl/exec" O_WRONLY 'touch never\n'
	faults
	same x "$(run a cat first)"
	expect ENOENT stat "$MNT/a/never"
}

# What is not here is fetched, whatever happens on the way.
fetched() {
	for fault in 'run lost 1' 'run cut 1' 'run 429 1' 'run 5xx 1' 'run stall 1' 'run asleep 1 200'; do
		run a sh -c 'head -c 3000000 /dev/urandom >far'
		faults "$fault"
		cat "$MNT/a/far" >"$ROOM/far"
		faults
		cmp "$ROOM/far" "$(machine a)/tree/far"
	done
	run a sh -c 'head -c 3000000 /dev/urandom >far'
	faults 'run 5xx'
	like "*EREMOTEIO*" "$("$TOOL" read-once "$MNT/a/far" O_RDONLY 2>&1)"
	faults
	until cat "$MNT/a/far" 2>/dev/null >"$ROOM/far"; do tick; done
	cmp "$ROOM/far" "$(machine a)/tree/far"
}

# The machine sleeps when nobody uses it, which ends commands, and the next use wakes it.
asleep() {
	id=$("$TOOL" result "$MNT/a/ctl/spawn" sleep "$LONG")
	faults 'run asleep 1 100'
	echo x >"$MNT/a/awake"
	same x "$(run a cat awake)"
	faults
	like '*' "$(cat "$MNT/a/ctl/jobs/$id/wait")"
	refuse "$TOOL" pids "$LONG"
}

vanished() {
	box v
	# What was fetched in the moment in which it was written is fetched again behind a command.
	run v true
	until_quiet v
	same hello "$(cat "$MNT/v/README.md")"
	id=$("$TOOL" result "$MNT/v/ctl/spawn" sh -c 'echo kept; sleep '"$LONG")
	until [ -s "$MNT/v/ctl/jobs/$id/stdout" ]; do tick; done
	faults 'run vanish 1'
	echo lost >"$MNT/v/lost"
	same ESTALE "$(fsync_errno "$MNT/v/lost")"
	faults
	like '*lost*ESTALE *gone*' "$(cat "$MNT/v/ctl/jobs/$id/wait")"
	error_says v '*gone*'
	same kept "$(cat "$MNT/v/ctl/jobs/$id/stdout")"
	expect ESTALE write "$MNT/v/ctl/exec" O_WRONLY 'true\n'
	same hello "$(cat "$MNT/v/README.md")"
	same lost "$(cat "$MNT/v/lost")"
	like '*gone*' "$(cat "$MNT/v/ctl/info")"
	rmdir "$MNT/v"
}

# Whoever looks after the machines is refused, and does it again.
removed_in_the_end() {
	box r
	until_quiet r
	machine r >"$ROOM/machine"
	faults 'unmake 5xx 2' 'unmake lost 1'
	rmdir "$MNT/r"
	while [ -e "$(cat "$ROOM/machine")" ]; do tick; done
	faults
}

# The next mount is there although it cannot look after anything.
mounted_all_the_same() {
	unmount
	faults 'look 5xx' 'find 5xx' 'touch 5xx' 'unmake 5xx'
	remount
	same hello "$(cat "$MNT/a/README.md")"
	faults
	same hi "$(run a echo hi)"
}

# A removal that cannot be noted does not begin: the sandbox goes on. For root, who may say that a
# directory is not to be changed.
not_noted() {
	box n
	run n sh -c 'echo before >f'
	until_quiet n
	there=$(cat "$MNT/n/ctl/workdir")
	dir=$(dirname "$(grep -l '"name": *"n"' "$STATE"/remote/*/record.json)")
	chattr +i "$dir" || {
		echo "# no flags here" >&2
		teardown n
		return 0
	}
	expect EPERM rmdir "$MNT/n"
	chattr -i "$dir"
	like '*record cannot be written*' "$(cat "$MNT/ctl/error")"
	same before "$(run n cat f)"
	echo after >"$MNT/n/f"
	same 0 "$(fsync_errno "$MNT/n/f")"
	same after "$(run n cat f)"
	same "$there" "$(cat "$MNT/n/ctl/workdir")"
	teardown n
}

# One of ours that no sandbox stands for: its daemon died before it was noted that it was to go.
orphans() {
	like '*' "$(machine a)"
	unmount
	cp -r "$DIRS/machines/$(ls "$DIRS/machines" | head -n 1)" "$DIRS/machines/sbx-orphan"
	sed -i 's/^name .*/name sbx-orphan/; s/^made .*/made 1500000000000/' \
		"$DIRS/machines/sbx-orphan/meta"
	remount
	while [ -e "$DIRS/machines/sbx-orphan" ]; do tick; done
}

# Another daemon's, with the same source, mountpoint and path of the state directory, on a machine
# that is told from ours by nothing, as containers and copied machines are.
another_ours() {
	box o
	echo kept >"$MNT/o/kept"
	sync "$MNT/o"
	there=$(machine o)
	unmount
	sed -i 's/^made .*/made 1500000000000/' "$there/meta"
	mv "$STATE" "$ROOM/another"
	remount
	box p
	like '*' "$(machine p)"
	cp -r "$(machine p)" "$DIRS/machines/sbx-orphan"
	sed -i 's/^name .*/name sbx-orphan/; s/^made .*/made 1500000000000/' \
		"$DIRS/machines/sbx-orphan/meta"
	unmount
	remount
	while [ -e "$DIRS/machines/sbx-orphan" ]; do tick; done
	teardown p
	unmount
	[ -e "$there" ]
	rm -rf "$STATE"
	mv "$ROOM/another" "$STATE"
	remount
	same kept "$(run o cat kept)"
	teardown o
}

# Its sandbox is not there, and yet it is somebody's.
unreadable() {
	box u
	echo kept >"$MNT/u/kept"
	sync "$MNT/u"
	there=$(machine u)
	record=$(grep -l '"name": *"u"' "$STATE"/remote/*/record.json)
	unmount
	mv "$record" "$ROOM/record"
	echo damaged >"$record"
	sed -i 's/^made .*/made 1500000000000/' "$there/meta"
	remount
	expect ENOENT stat "$MNT/u"
	orphans
	unmount
	mv "$ROOM/record" "$record"
	remount
	same kept "$(run u cat kept)"
	teardown u
}

claim "mounting" mount_repo
claim "two sandboxes" box a b
faults
claim "a command runs once, whichever answer is lost, cut or refused" run_once
claim "also while its output comes" polled
claim "an open file stays what it was though an answer was lost" kept_open
claim "a command waits for what the host has changed, however much that is" slow
claim "what was written arrives whole" sent_once
claim "a lasting fault is told by its errno, and loses nothing" lasting_refusals
claim "what was put and is lost there is put again" lost_there
claim "a command that could not be sent has not run" lasting_at_commands
claim "contents are fetched again" fetched
claim "a machine that slept is woken" asleep
claim "one that is gone: what is here can be read, all else says so" vanished
claim "removing is repeated until it is done" removed_in_the_end
claim "a removal that cannot be noted leaves all as it was" not_noted
claim "a mount does not need the provider" mounted_all_the_same
claim "a machine of ours that belongs to nobody is removed" orphans
claim "one of another daemon's is not, though all that we were told is the same" another_ours
claim "that of a sandbox whose record cannot be read stays" unreadable
finish
