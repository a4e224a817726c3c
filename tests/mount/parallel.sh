#!/bin/sh
. "$TESTS/lib/mount.sh"
# 200 jobs at once in 20 sandboxes, each with 100 KiB on stdout and on stderr. Machines are this
# host, and each job there has processes that look at all others: 60.
jobs=200
! is_away || jobs=60

prepare() {
	i=0
	while [ $i -lt 20 ]; do
		box "storm-$i"
		cp "$TOOL" "$MNT/storm-$i/tool"
		i=$((i + 1))
	done
}

claim "mounting" mount_repo
claim "20 sandboxes" prepare
claim "$jobs jobs at once: every byte of their output is right" \
	expect 0 storm "$MNT" 20 "$jobs" 102400
finish
