#!/bin/sh
. "$TESTS/lib/mount.sh"
. "$TESTS/lib/attack.sh"
# What a command makes expensive for the daemon is for no other sandbox to wait for.

HOGS="h1 h2 h3 h4 h5 h6"

# Whether process $1 waits for the answer to what it wrote to a control.
waits() {
	case $(readlink "/proc/$1/fd/1") in
	*/ctl/*) grep -qE '^State:.*(sleeping|disk)' "/proc/$1/status" ;;
	*) return 1 ;;
	esac
}

# The objects that the daemon is about to write.
unfinished() {
	find "$REPO/.git/sandboxfs/objects" -name 'tmp_object*' 2>/dev/null || true
}

# Whether one is among them that was not there for start_hog.
is_hashed() {
	unfinished | grep -qvxF "$hog_before"
}

# start_hog NAME GIB: holes are made in no time, and hashed like everything else:
# 15 GiB take a minute. Before the daemon has begun the request is cheap, because
# a hole that is gone is not hashed.
start_hog() {
	[ -d "$MNT/$1" ] || box "$1"
	run "$1" truncate -s "$2G" hole
	hog_before="none
$(unfinished)"
	echo holes >"$MNT/$1/ctl/snapshot" &
	hog_pid=$!
	until waits "$hog_pid"; do tick; done
	until is_hashed; do tick; done
}

start_hogs() {
	hog_pids=
	for hog in $HOGS; do
		start_hog "$hog" 15
		hog_pids="$hog_pids $hog_pid"
	done
}

end_hogs() {
	for pid in $hog_pids; do
		kill "$pid" 2>/dev/null || true
	done
	wait
	# Else the trash would record them.
	rm -f "$MNT"/*/hole
}

# A process that nobody has waited for yet has no files.
goes_on() {
	[ -L "/proc/$1/fd/1" ]
}

still_busy() {
	for pid in $hog_pids; do
		goes_on "$pid" || unsafe "$* waited for the end of what other sandboxes do"
	done
}

# ended PID WHAT: it has before the end of what others do.
ended() {
	while goes_on "$1"; do
		still_busy "$2"
		tick
	done
	still_busy "$2"
}

# The other one has little to do beside it.
killed_writers_end() {
	start_hog other 2
	hog_pids=$hog_pid
	start_hog given-up 15
	kill "$hog_pid"
	ended "$hog_pid" "a writer that was killed"
	# And it is not in the way of what its sandbox does next.
	rm "$MNT/given-up/hole"
	echo next >"$MNT/given-up/ctl/snapshot" &
	ended $! "the next snapshot"
	rmdir "$MNT/given-up"
	git -C "$REPO" branch -qD sandbox/given-up
	end_hogs
}

removals_give_up() {
	start_hog beside 2
	hog_pids=$hog_pid
	start_hog removed 15
	rm "$MNT/removed/hole"
	rmdir "$MNT/removed" &
	ended $! "rmdir of what has a snapshot made"
	ended "$hog_pid" "whoever waited for that"
	end_hogs
}

# A weak daemon would go on, and lets nobody into the directory before its rmdir is done.
drop_hogs() {
	[ -z "${SBX_WEAK:-}" ] || weaken ''
	rm -f "$MNT"/*/hole
	for hog in other given-up beside removed; do
		# When that is written all of it is gone, so that nothing is at work on its refs.
		[ ! -d "$MNT/$hog" ] || echo "$hog" >"$MNT/ctl/teardown"
		drop_refs "refs/heads/sandbox/$hog"
	done
}

holes_hold_nobody_up() {
	start_hogs
	mkdir "$MNT/new"
	still_busy mkdir
	ls "$MNT" >/dev/null
	still_busy ls
	run new true
	still_busy exec
	echo x >"$MNT/new/file"
	echo mine >"$MNT/new/ctl/snapshot"
	still_busy snapshot
	rmdir "$MNT/new"
	still_busy rmdir
	git -C "$REPO" branch -qD sandbox/new
	end_hogs
}

# --- without timing ---------------------------------------------------------------------

# The number behind $1 in file $2 of the daemon's /proc.
of_daemon() {
	awk -v what="$1" '$1 == what { print $2 }' "/proc/$(daemon_pid)/$2"
}

# What a hostile command can have the daemon hold: KiB.
MEMORY=65536

remember_idle() {
	box m
	run m true
	echo idle >"$MNT/m/ctl/snapshot"
	rmdir "$MNT/m"
	git -C "$REPO" branch -qD sandbox/m
	of_daemon VmRSS: status >"$ROOM/idle"
}

# Since its start the daemon has never been much larger than it was when it had nothing to do.
memory_is_bounded() {
	peak=$(of_daemon VmHWM: status)
	is_sanitized || [ $((peak - $(cat "$ROOM/idle"))) -le $MEMORY ] ||
		unsafe "$peak KiB, of $(cat "$ROOM/idle") when idle"
}

holes_are_not_read() {
	box r
	run r truncate -s 1G hole
	# Nobody but root is told what the daemon reads.
	before=$(of_daemon rchar: io) || [ "$(id -u)" != 0 ]
	echo holes >"$MNT/r/ctl/snapshot"
	read=0
	[ -z "$before" ] || read=$(($(of_daemon rchar: io) - before))
	[ $read -le 50000000 ] || unsafe "$read bytes were read"
	run r rm hole
	echo none >"$MNT/r/ctl/snapshot"
	rmdir "$MNT/r"
	git -C "$REPO" branch -qD sandbox/r
	memory_is_bounded
}

holes_have_an_end() {
	box r
	run r truncate -s 1T hole
	like '*EFBIG*' "$(talk r/ctl/snapshot x 2>&1)"
	error_says r "hole is too large"
	run r rm hole
	rmdir "$MNT/r"
}

recorded() {
	echo "$2" >"$MNT/$1/ctl/snapshot" || fail "$(cat "$MNT/$1/ctl/error")"
	git -C "$REPO" rev-parse "sandbox/$1:large"
}

large_text_takes_no_memory() {
	box t
	run t sh -c 'echo "* text=auto eol=crlf" >.gitattributes
		yes "$(printf "a line\r")" | head -c 200000000 >large'
	large=$(recorded t crlf)
	memory_is_bounded
	run t sh -c 'tr -d "\r" <large >.lf; mv .lf large'
	same "$large" "$(recorded t lf)"
	run t sh -c 'echo x >x; rm large'
	echo "$(git -C "$REPO" rev-parse sandbox/t)" >"$MNT/t/ctl/restore" ||
		fail "$(cat "$MNT/t/ctl/error")"
	same 200000000 "$(stat -c %s "$MNT/t/large")"
	memory_is_bounded
	grep -q 'large differ' "$MNT/t/ctl/diff"
	rm "$MNT/t/large"
	rmdir "$MNT/t"
	git -C "$REPO" branch -qD sandbox/t
	memory_is_bounded
}

commit_inside() {
	run p sh -c 'head -c 3000 /dev/urandom >random; git add random
		git -c user.name=p -c user.email=p@localhost commit -qm '"$1"
}

# git adds it to a pack at once.
large_commits_take_no_memory() {
	box c
	run c sh -c 'head -c 80000000 /dev/urandom >large
		git -c core.bigFileThreshold=1m add large
		git -c user.name=c -c user.email=c@localhost commit -qm large'
	same 80000000 "$(git -C "$REPO" cat-file -s sandbox/c:large)"
	memory_is_bounded
	run c sh -c 'git rm -qf large; git -c user.name=c -c user.email=c@localhost commit -qm gone'
	rmdir "$MNT/c"
	git -C "$REPO" branch -qD sandbox/c
	memory_is_bounded
}

many_branches_take_no_memory() {
	box c
	run c sh -c 'i=0; while [ $i -lt 3000 ]; do i=$((i + 1)); echo "create refs/heads/b$i HEAD"; done |
		git update-ref --stdin'
	memory_is_bounded
	rmdir "$MNT/c"
}

# What a command says is kept up to a limit, wherever the rest goes.
output_has_an_end() {
	box c
	run c sh -c 'head -c 200000000 /dev/zero' | head -c 1 >/dev/null || :
	memory_is_bounded
	rmdir "$MNT/c"
}

# A pack of some KB may unpack to GiB: what the source takes over of a sandbox has an end.
packs_have_an_end() {
	box p
	commit_inside before
	same before "$(git -C "$REPO" log -1 --format=%s sandbox/p)"
	[ "$(cat "$STATE"/git/p-*/taken)" -ge 3000 ] || unsafe "what came over is not counted"
	echo 1073741000 >"$(echo "$STATE"/git/p-*/taken)"
	commit_inside beyond
	error_says p "stays inside"
	same before "$(git -C "$REPO" log -1 --format=%s sandbox/p)" || unsafe "it came over all the same"
	# Nothing of it is lost, and its neighbours notice nothing.
	same beyond "$(run p git log -1 --format=%s)"
	run b true
	echo 0 >"$(echo "$STATE"/git/p-*/taken)"
	commit_inside after
	same after "$(git -C "$REPO" log -1 --format=%s sandbox/p)"
	rmdir "$MNT/p"
	git -C "$REPO" branch -qD sandbox/p
}

claim "mounting" mount_victims
holds "a daemon that is idle" remember_idle
attack -daemon "a file of holes that is recorded" holes_are_not_read
attack -daemon "a file of more holes than can be recorded" holes_have_an_end
attack -daemon "a large file of text whose line ends are converted" large_text_takes_no_memory
attack -daemon "a large file that is committed inside" large_commits_take_no_memory
attack -daemon "very many branches" many_branches_take_no_memory
attack -daemon "output without an end" output_has_an_end
attack -daemon "holes in six sandboxes that are recorded at once" holes_hold_nobody_up
attack cancel "the writer of an expensive request is killed" killed_writers_end
attack cancel "a sandbox with an expensive request is removed" removals_give_up
claim "what they hold is gone" drop_hogs
attack -daemon "packs of little that unpack to much" packs_have_an_end
withstood
