#!/bin/sh
# Its jobs rename directories.
export SERVER_REDIRECTS=1
. "$TESTS/lib/mount.sh"
# Host and jobs on one tree, by turns and at once: what either did last is what both see
# (tests/lib/tool_coherence.c). SBX_STEPS=100000 tests/run.sh --suite mount takes more of them.

prepare() {
	box a
	cp "$TOOL" "$MNT/a/tool"
}

# Elsewhere it is now and then forgotten what is here, and the copy may be no larger than 1 MiB.
# A directory gets its time there when what the host did in it is done there. Files are known by
# their names there, so a descriptor does not follow what a job moves.
! is_away || export SBX_ABSENT=7 SBX_DIR_TIMES=0 SBX_FOLLOWED=0

# What is spawned would outlive its query there.
[ "$BACKEND" != dagger ] || export SBX_SPAWNS=0

claim "mounting" mount_none "$(! is_away || echo cache_mb=1)"
claim "mkdir" prepare
claim "$SBX_STEPS random steps of host and jobs: nothing old is seen after a barrier" expect 0 \
	coherence "$MNT/a" "$SBX_STEPS"
finish
