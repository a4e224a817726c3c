#!/bin/sh
. "$TESTS/lib/mount.sh"
. "$TESTS/lib/attack.sh"
# Other users of the machine, who come first to where the daemon keeps what it trusts.

OTHER=12345

# planted NAME: a directory that another user has made, or as an
# ordinary user can see it, may replace.
planted() {
	rm -rf "$ROOM/tmp/$1"
	mkdir "$ROOM/tmp/$1"
	if [ "$(id -u)" = 0 ]; then
		chown "$OTHER" "$ROOM/tmp/$1"
	else
		chmod 777 "$ROOM/tmp/$1"
	fi
}

# mount_there OPTIONS: a second mount; what it did not need is taken down.
mount_there() {
	mkdir -p "$ROOM/second"
	if timeout 60 "$SANDBOXFS" "$REPO" "$ROOM/second" -o "$1" >"$ROOM/there.log" 2>&1; then
		fusermount3 -u "$ROOM/second"
		flock -w 60 "${2:-$ROOM/second.state}/lock" true
		return 0
	fi
	cat "$ROOM/there.log"
	return 1
}

state_below() {
	planted taken
	refuse mount_there "state_dir=$ROOM/tmp/taken/state" "$ROOM/tmp/taken/state"
	refuse test -e "$ROOM/tmp/taken/state"
	grep -q "state directory .*tmp/taken.*\(another user\|others\)" "$ROOM/there.log"
}

state_of_the_temporary_directory() {
	planted "sandboxfs-$(id -u)"
	refuse mount_there "cache_dir=$ROOM/cache" "$(echo "$ROOM/tmp/sandboxfs-$(id -u)"/*)"
	rm -rf "$ROOM/tmp/sandboxfs-$(id -u)"
}

# The mount goes on without a cache.
cache_below() {
	planted taken
	mount_there "state_dir=$ROOM/second.state,cache_dir=$ROOM/tmp/taken/cache"
	refuse test -e "$ROOM/tmp/taken/cache"
}

logs_below() {
	planted taken
	refuse mount_there "state_dir=$ROOM/second.state,logs_dir=$ROOM/tmp/taken/logs"
	refuse test -e "$ROOM/tmp/taken/logs"
}

deep_below() {
	planted taken
	mkdir -p "$ROOM/tmp/taken/mine/deep"
	refuse mount_there "state_dir=$ROOM/tmp/taken/mine/deep/state" "$ROOM/tmp/taken/mine/deep/state"
}

# As /tmp is: anybody makes entries, nobody replaces those of others.
shared() {
	rm -rf "$ROOM/tmp/shared"
	mkdir "$ROOM/tmp/shared"
	chmod 1777 "$ROOM/tmp/shared"
	mount_there "state_dir=$ROOM/tmp/shared/mine/state,logs_dir=$ROOM/tmp/shared/logs" \
		"$ROOM/tmp/shared/mine/state"
	same 700 "$(stat -c %a "$ROOM/tmp/shared/mine")"
	same 700 "$(stat -c %a "$ROOM/tmp/shared/logs")"
}

claim "mounting" mount_victims
attack "own_parents" "the state directory in one that another user made" state_below
attack -daemon "the state directory of the temporary directory, made by another user" \
	state_of_the_temporary_directory
attack "own_parents" "the cache in a directory that another user made" cache_below
attack "own_parents" "the logs in a directory that another user made" logs_below
attack "own_parents" "a state directory that is ours, below one that is another user's" deep_below
holds "in a directory as /tmp all of it can be made" shared
withstood
