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

# Each of these takes a minute: holes are made in no time, and hashed like everything else.
start_hogs() {
	hog_pids=
	for hog in $HOGS; do
		[ -d "$MNT/$hog" ] || box "$hog"
		run "$hog" truncate -s 15G hole
		echo holes >"$MNT/$hog/ctl/snapshot" &
		hog_pids="$hog_pids $!"
	done
	for pid in $hog_pids; do
		until waits "$pid"; do tick; done
	done
}

end_hogs() {
	for pid in $hog_pids; do
		kill "$pid" 2>/dev/null || true
	done
	wait
	# Else the trash would record them.
	for hog in $HOGS; do
		rm -f "$MNT/$hog/hole"
	done
}

still_busy() {
	for pid in $hog_pids; do
		kill -0 "$pid" || unsafe "$* waited for the end of what other sandboxes do"
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

commit_inside() {
	run p sh -c 'head -c 3000 /dev/urandom >random; git add random; git -c user.name=p -c user.email=p@localhost commit -qm '"$1"
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
attack -daemon "holes in six sandboxes that are recorded at once" holes_hold_nobody_up
attack -daemon "packs of little that unpack to much" packs_have_an_end
withstood
