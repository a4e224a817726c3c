#!/bin/sh
. "$TESTS/lib/mount.sh"
# 200 jobs at once in 20 sandboxes, each with 100 KiB on stdout and on stderr.

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
claim "200 jobs at once: every byte of their output is right" expect 0 storm "$MNT" 20 200 102400
finish
