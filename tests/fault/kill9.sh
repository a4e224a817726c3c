#!/bin/sh
. "$TESTS/lib/mount.sh"
# The daemon is killed at random moments; the driver knows what had returned by then.

prepare() {
	new_repo
	git clone -q --bare "$REPO" "$ROOM/origin.git"
	git -C "$REPO" remote add origin "$ROOM/origin.git"
}

# What was committed outlives its sandbox.
leave_nothing() {
	teardown_all
	unmount
	git -C "$REPO" for-each-ref --format='delete %(refname)' refs/heads/sandbox refs/sandboxfs |
		git -C "$REPO" update-ref --stdin
	source_is_clean
	same '' "$(find "$STATE" -path "$STATE/removed" -prune -o -name README.md -print)"
}

claim "a repository" prepare
claim "kill -9 at $SBX_KILLS random moments loses nothing that had returned" \
	python3 "$TESTS/fault/kill9.py" "$SBX_KILLS" "$ROOM/kill9.summary"
[ ! -f "$ROOM/kill9.summary" ] || sed 's/^/# /' "$ROOM/kill9.summary"
claim "mounting" mount_repo
claim "teardown and unmounting leave nothing behind" leave_nothing
