#!/bin/sh
. "$TESTS/lib/mount.sh"
# The daemon of sandboxes elsewhere is killed at every record of its journal in turn, and at every
# step of sending it. SBX_KILLS=1000 takes more of them.

claim "a repository" new_repo
SOURCE=$REPO LIVING=
if is_cloud; then
	SOURCE=$(cloud_source "$REPO")
	[ "$BACKEND" = dagger ] || LIVING=http://127.0.0.1:$cloud_port/control/living
fi
export SOURCE LIVING
claim "kill -9 at $SBX_KILLS steps of the journal: all that had returned arrives, and once" \
	python3 "$TESTS/fault/remote_kill9.py" "$SBX_KILLS" "$ROOM/kill9.summary"
[ ! -f "$ROOM/kill9.summary" ] || sed 's/^/# /' "$ROOM/kill9.summary"
claim "mounting" mount_repo
finish
