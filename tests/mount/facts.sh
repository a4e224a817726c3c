#!/bin/sh
. "$TESTS/lib/mount.sh"
# Measured facts about kernels and clients that the design rests on, where no other case has them.

bash_writes_line_by_line() {
	bash -c "printf 'touch b1\ntouch b2\n' >'$MNT/a/ctl/exec'"
	expect 0 stat "$MNT/a/b1"
	expect 0 stat "$MNT/a/b2"
}

flush_before_the_first_byte() {
	same once "$(bash -c "exec 5<>'$MNT/a/ctl/exec'; : >&5; echo 'echo once' >&5; cat <&5" |
		"$TOOL" json stdout)"
}

errors_come_from_write() {
	for shell in bash dash; do
		refuse $shell -c "echo no-such-program >'$MNT/a/ctl/exec'"
	done
	refuse sh -c "echo no-such-program | cat >'$MNT/a/ctl/exec'"
	refuse sh -c "echo no-such-program | tee '$MNT/a/ctl/exec'"
	refuse sh -c "echo no-such-program | dd of='$MNT/a/ctl/exec' 2>/dev/null"
	echo no-such-program >"$ROOM/request"
	refuse cp "$ROOM/request" "$MNT/a/ctl/exec"
}

tools_split_at_128k() {
	{
		printf '["echo"'
		seq -f ',"%.0f"' 40000 | tr -d '\n'
		printf ']'
	} >"$ROOM/long"
	cat "$ROOM/long" >"$MNT/a/ctl/exec"
	same 40000 "$(wc -w <"$MNT/a/ctl/stdout")"
	cp "$ROOM/long" "$MNT/a/ctl/exec"
	same 40000 "$(wc -w <"$MNT/a/ctl/stdout")"
}

one_write_from_stdio() {
	awk -v f="$MNT/a/ctl/exec" 'BEGIN { printf "echo one\n" > f; close(f) }'
	same one "$(cat "$MNT/a/ctl/stdout")"
	python3 -c 'open("'"$MNT"'/a/ctl/exec", "w").write("echo a\necho b\n")'
	same b "$(cat "$MNT/a/ctl/stdout")"
}

removal_of_everything() {
	box victim
	rm -rf "$MNT/victim"
	expect ENOENT stat "$MNT/victim"
}

listed_removal() {
	box victim2
	rm -rf "$MNT/victim2"
	expect ENOENT stat "$MNT/victim2"
	teardown victim2
}

ends_at_unmount() {
	run a true
	unmount
}

daemon_does_not_visit_itself() {
	mkdir -p "$ROOM/self/mnt"
	echo x >"$ROOM/self/file"
	if "$TOOL" mount "$LOG" "$RECORD" "$SANDBOXFS" "$ROOM/self" "$ROOM/self/mnt" \
		-o "state_dir=$STATE.self"; then
		timeout 60 mkdir "$ROOM/self/mnt/a"
		same x "$(timeout 60 cat "$ROOM/self/mnt/a/file")"
		timeout 60 rmdir "$ROOM/self/mnt/a"
		fusermount3 -u "$ROOM/self/mnt"
		await_end
	fi
}

unmounts_while_used_inside() {
	"$TOOL" result "$MNT/a/ctl/spawn" sleep "$LONG" >/dev/null
	unmount
	refuse "$TOOL" pids "$LONG"
}

mkdir_does_not_wait() {
	box w
	seq 2000 | (cd "$MNT/w" && xargs touch)
	expect 0 rmdir "$MNT/w"
	timeout 60 ls "$MNT"
	teardown w
}

# Again, should attributes have run out in between.
listings_need_no_daemon() {
	cd "$MNT/a"
	mkdir -p still/1 still/2
	touch still/f still/1/f still/2/f
	sleep 0.1
	for attempt in 1 2 3; do
		ls -RF still >/dev/null
		ls -RF still >/dev/null
		! frozen sh -c '[ "$(ls -RF still | grep -c f)" = 3 ]' || return 0
	done
	fail "the daemon was asked, $attempt times"
}

claim "mounting" mount_repo
claim "mkdir" box a
claim "1: bash writes line by line, each line is a request" bash_writes_line_by_line
claim "1: a flush before the first byte is no request" flush_before_the_first_byte
claim "2: shells, cat, tee, dd and cp report a command that cannot start" errors_come_from_write
claim "1: a request of several writes is put together" tools_split_at_128k
claim "1: stdio clients send a request in one write" one_write_from_stdio
claim "5: rm -rf of a sandbox" removal_of_everything
claim "26: rmdir of 2000 files does not make ls wait" mkdir_does_not_wait
! "$SANDBOXFS" --doctor | grep -q 'refreshed at once' ||
	claim "22: directories are listed without asking the daemon while nothing changes" \
		listings_need_no_daemon
claim "19: after a command the mount ends at once, the daemon too" ends_at_unmount
claim "mounting again" remount
claim "19: unmounting while a command runs ends both" unmounts_while_used_inside
claim "mounting with ctl=listed" remount ctl=listed
claim "5: rm -rf although the controls are listed" listed_removal
claim "unmounting" unmount
claim "27: a mountpoint inside its source is handled or refused" daemon_does_not_visit_itself
claim "mounting as before" remount ''
finish
