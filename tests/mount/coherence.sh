#!/bin/sh
. "$TESTS/lib/mount.sh"
# What one side wrote, the other sees.

host_to_command() {
	for i in $(seq 30); do
		echo "$i" >"$MNT/a/f"
		same "$i" "$(run a cat f)"
		mkdir "$MNT/a/d$i"
		run a test -d "d$i"
	done
}

command_to_host() {
	for i in $(seq 30); do
		run a sh -c "echo $i >g; mkdir e$i; rm -f h*; touch h$i"
		same "$i" "$(cat "$MNT/a/g")"
		expect 0 stat "$MNT/a/e$i"
		same "h$i" "$(cd "$MNT/a" && ls h*)"
	done
}

negative_names() {
	expect ENOENT stat "$MNT/a/new"
	run a touch new
	expect 0 stat "$MNT/a/new"
	run a rm new
	expect ENOENT stat "$MNT/a/new"
	run a mkdir new
	same directory "$("$TOOL" stat "$MNT/a/new" type)"
}

sizes_and_times() {
	echo 1234567890 >"$MNT/a/s"
	run a sh -c 'echo more >>s'
	same 16 "$("$TOOL" stat "$MNT/a/s" size)"
	run a sh -c 'echo x >s'
	same x "$(cat "$MNT/a/s")"
	same 2 "$("$TOOL" stat "$MNT/a/s" size)"
	run a chmod 600 s
	same 0600 "$("$TOOL" stat "$MNT/a/s" mode)"
	run a touch -d @1000 s
	same 1000.000000000 "$("$TOOL" stat "$MNT/a/s" mtime)"
}

open_descriptor_follows() {
	echo first >"$MNT/a/log"
	exec 8<"$MNT/a/log"
	read -r line <&8
	same first "$line"
	run a sh -c 'echo second >>log'
	until read -r line <&8; do tick; done
	same second "$line"
	exec 8<&-
}

while_running() {
	"$TOOL" result "$MNT/a/ctl/spawn" \
		sh -c 'echo up >up; until [ -e down ]; do sleep 0.02; done; echo end >end' >"$ROOM/id"
	"$TOOL" await "$MNT/a/up"
	touch "$MNT/a/down"
	cat "$MNT/a/ctl/jobs/$(cat "$ROOM/id")/wait"
	same end "$(cat "$MNT/a/end")"
}

# The answer that tells the end may tell what the command wrote by the names of before.
moved_while_running() {
	mkdir "$MNT/a/from"
	id=$("$TOOL" result "$MNT/a/ctl/spawn" sh -c \
		'cd from; echo up >up; until [ -e ../move ]; do sleep 0.02; done; echo end >end; echo w >>up')
	"$TOOL" await "$MNT/a/from/up"
	touch "$MNT/a/move"
	sync "$MNT/a/move"
	mv "$MNT/a/from" "$MNT/a/to"
	like '0 exited*' "$(cat "$MNT/a/ctl/jobs/$id/wait")"
	same end "$(cat "$MNT/a/to/end")"
	same up,w "$(paste -sd, "$MNT/a/to/up")"
	refuse test -e "$MNT/a/from"
}

replaced_by_command() {
	echo old >"$MNT/a/r"
	same old "$(cat "$MNT/a/r")"
	run a sh -c 'echo new >r.tmp; mv r.tmp r'
	same new "$(cat "$MNT/a/r")"
	run a sh -c 'rm r; mkdir r; echo in >r/in'
	same in "$(cat "$MNT/a/r/in")"
}

# As touch -r, cp -p, rsync -t and builds that are to give the same each time do it.
rewritten_with_its_time() {
	for i in $(seq 20); do
		text=$(printf '%05d' "$i")
		run a sh -c "echo $text >t; touch -d @1000 t"
		same "$text" "$(cat "$MNT/a/t")"
		same '6 1000.000000000' "$("$TOOL" stat "$MNT/a/t" size mtime)"
		[ "$i" != 1 ] || exec 8<"$MNT/a/t"
		[ "$i" != 9 ] || exec 8<&-
	done
	echo host1 >"$MNT/a/t"
	touch -d @1000 "$MNT/a/t"
	same host1 "$(cat "$MNT/a/t")"
	run a sh -c 'echo inner >u; touch -r t u; cp -p u t'
	same inner "$(cat "$MNT/a/t")"
	same inner "$(run a cat t)"
}

rewritten_under_a_descriptor() {
	echo first >"$MNT/a/v"
	touch -d @1000 "$MNT/a/v"
	exec 8<"$MNT/a/v"
	same first "$(cat /proc/self/fd/8)"
	run a sh -c 'echo later >v; touch -d @1000 v'
	until [ "$(cat /proc/self/fd/8)" = later ]; do tick; done
	same 1000.000000000 "$("$TOOL" stat "$MNT/a/v" mtime)"
	exec 8<&-
}

rewritten_while_running() {
	rm -f "$MNT/a/go"
	echo first >"$MNT/a/w"
	touch -d @1000 "$MNT/a/w"
	exec 8<"$MNT/a/w"
	same first "$(cat "$MNT/a/w")"
	id=$("$TOOL" result "$MNT/a/ctl/spawn" \
		sh -c 'echo later >w; touch -d @1000 w; echo >done; until [ -e go ]; do sleep 0.02; done')
	"$TOOL" await "$MNT/a/done"
	until [ "$(cat "$MNT/a/w")" = later ]; do tick; done
	touch "$MNT/a/go"
	like '0 exited*' "$(cat "$MNT/a/ctl/jobs/$id/wait")"
	exec 8<&-
}

# What only the host does shows in nothing that would have it read again.
own_changes_keep_contents() {
	echo mine >"$MNT/a/own"
	cat "$MNT/a/own" >/dev/null
	chmod 640 "$MNT/a/own"
	stat "$MNT/a/own" >/dev/null
	for attempt in 1 2 3; do
		exec 8<"$MNT/a/own"
		chmod 600 "$MNT/a/own"
		stat "$MNT/a/own" >/dev/null
		! frozen sh -c '[ "$(cat <&8)" = mine ]' || return 0
	done
	fail "the daemon was asked, $attempt times"
}

mapped_writes() {
	expect 0 mmap "$MNT/a/m"
	same 12388 "$(run a wc -c m | cut -d' ' -f1)"
	run a sh -c 'head -c 3 m' | grep -qx abc
}

# Again, should attributes have run out in between.
kept_while_idle() {
	run a sh -c 'echo kept >k'
	for attempt in 1 2 3; do
		exec 8<"$MNT/a/k"
		cat "$MNT/a/k" "$MNT/a/k" # the first has the kernel look for the time of access
		! frozen sh -c '[ "$(cat <&8)" = kept ]' || return 0
	done
	fail "the daemon was asked, $attempt times"
}

claim "mounting" mount_repo
claim "mkdir" box a
claim "what was written through the mount is seen by the next command" host_to_command
claim "what a command wrote is seen when exec returns" command_to_host
claim "names that were not there appear and vanish" negative_names
claim "sizes, modes and times follow" sizes_and_times
claim "an open descriptor follows within 5 s" open_descriptor_follows
claim "both see each other while the job runs" while_running
claim "what a command wrote in a directory that was moved is there at its end" moved_while_running
claim "files and directories replaced by a command" replaced_by_command
claim "another content of the same size and time is seen" rewritten_with_its_time
claim "also by a descriptor opened before" rewritten_under_a_descriptor
claim "also while the job runs" rewritten_while_running
claim "what the host itself changes of a file does not have it read again" own_changes_keep_contents
claim "writes through a shared map are seen inside" mapped_writes
claim "contents and attributes are kept while no job runs" kept_while_idle
finish
