#!/bin/sh
. "$TESTS/lib/mount.sh"
# The daemon is killed at random moments; the driver knows what had returned by then.

prepare() {
	new_repo
	git clone -q --bare "$REPO" "$ROOM/origin.git"
	git -C "$REPO" remote add origin "$ROOM/origin.git"
}

claim "a repository" prepare
claim "kill -9 at $SBX_KILLS random moments loses nothing that had returned" \
	python3 "$TESTS/fault/kill9.py" "$SBX_KILLS" "$ROOM/kill9.summary"
[ ! -f "$ROOM/kill9.summary" ] || sed 's/^/# /' "$ROOM/kill9.summary"
claim "mounting" mount_repo
finish_committed
