#!/bin/sh
. "$TESTS/lib/mount.sh"
. "$TESTS/lib/away.sh"
# What is elsewhere comes when it is asked for, and nobody else waits for it.

not_passed_through() {
	! "$SANDBOXFS" --doctor | grep -q '^ok .*FUSE passthrough' || refused_mount \
		'io=passthrough is not available' none "$MNT" \
		-o "state_dir=$STATE,backend=memory,io=passthrough"
}

# --- coming --------------------------------------------------------------------------------------

names_and_contents_come() {
	made a
	same 'big empty file link run src' "$(echo $(ls "$MNT/a"))"
	same hello "$(cat "$MNT/a/file")"
	same 'int main;' "$(cat "$MNT/a/link")"
	same deep "$(cat "$MNT/a/src/deep/down")"
	same ran "$("$MNT/a/run")"
	logged a 'want names' 'want data file 0+4096' 'want names src' 'want data src/main.c 0+4096' \
		'want names src/deep' 'want data src/deep/down 0+4096' 'want data run 0+4096'
	same_trees a
}

what_is_here_is_not_asked_for() {
	forget_log a
	drop_caches
	same_trees a
	silent a
}

attributes_come_with_names() {
	made b
	same '2020-02-02 6' "$(stat -c '%.10y %s' "$MNT/b/file")"
	same src/main.c "$(readlink "$MNT/b/link")"
	same 3000000 "$(stat -c %s "$MNT/b/big")"
	logged b 'want names'
}

# Else who copies holes as such copies nothing.
absent_is_no_hole() {
	made holes
	same 5860 "$(stat -c %b "$MNT/holes/big")"
	cp --sparse=auto "$MNT/holes/big" "$ROOM/copied"
	cmp "$ROOM/copied" "$FAR/holes/far/big"
	rm "$ROOM/copied"
	made archived
	(cd "$MNT/archived" && tar -S -cf "$ROOM/archive.tar" .)
	mkdir "$ROOM/unpacked"
	tar -xf "$ROOM/archive.tar" -C "$ROOM/unpacked"
	diff -r --no-dereference "$ROOM/unpacked" "$FAR/archived/far"
	rm -r "$ROOM/unpacked" "$ROOM/archive.tar"
	made searched
	same "$FAR/searched/far/src/main.c" "$(grep -rl 'int main' "$FAR/searched/far")"
	same "$MNT/searched/src/main.c" "$(grep -rl 'int main' "$MNT/searched")"
	made sought
	expect 0 seek "$MNT/sought/big" data 0
	asked sought 'want data big 0+0'
	teardown holes archived searched sought
}

# --- waiting -------------------------------------------------------------------------------------

# Waits as far as the machine is asked, and no further.
parked_calls() {
	made c
	ls "$MNT/c" >"$ROOM/names"
	cat "$MNT/c/file" >/dev/null
	hold c
	ls "$MNT/c/empty" >"$ROOM/listed" &
	asked c 'want names empty'
	stat -c %s "$MNT/c/src/main.c" >"$ROOM/looked" &
	asked c 'want names src'
	cat "$MNT/c/run" >"$ROOM/read" &
	asked c 'want data run 0+4096'
	printf X | dd of="$MNT/c/big" bs=1 seek=2000000 conv=notrunc 2>/dev/null &
	asked c 'want data big 0+0'
}

others_go_on() {
	same hello "$(timeout 60 cat "$MNT/c/file")"
	timeout 60 ls "$MNT/c" | diff - "$ROOM/names"
	same 3000000 "$(timeout 60 stat -c %s "$MNT/c/big")"
	echo new >"$MNT/c/new"
	same new "$(timeout 60 cat "$MNT/c/new")"
	mv "$MNT/c/new" "$MNT/c/newer"
	rm "$MNT/c/newer"
	timeout 60 cat "$MNT/c/ctl/info" >/dev/null
	timeout 60 ls "$MNT" >/dev/null
	made d
	same hello "$(timeout 60 cat "$MNT/d/file")"
	rmdir "$MNT/d"
}

what_was_parked_ends() {
	let_go c
	until [ -s "$ROOM/looked" ] && [ -s "$ROOM/read" ]; do tick; done
	same '' "$(cat "$ROOM/listed")"
	same 10 "$(cat "$ROOM/looked")"
	cmp "$ROOM/read" "$FAR/c/far/run"
	same X "$(dd if="$MNT/c/big" bs=1 skip=2000000 count=1 2>/dev/null)"
	brought c
}

# A fatal signal ends who waits, at once, and the machine is told.
killed_while_parked() {
	made killed
	hold killed
	ls "$MNT/killed/src" 2>/dev/null &
	client=$!
	asked killed 'want names'
	kill -9 $client
	wait $client && fail "it succeeded"
	asked killed unwant
	let_go killed
	ls "$MNT/killed" >/dev/null
	hold killed
	cat "$MNT/killed/file" &
	client=$!
	asked killed 'want data file 0+4096'
	kill -9 $client
	wait $client && fail "it succeeded"
	let_go killed
	same hello "$(cat "$MNT/killed/file")"
}

# As ordinary disks do: a handled signal does not interrupt who waits.
handled_while_parked() {
	made handled
	ls "$MNT/handled" >/dev/null
	hold handled
	sh -c 'trap : USR1; cat "$1"' sh "$MNT/handled/file" >"$ROOM/handled" &
	client=$!
	asked handled 'want data file 0+4096'
	kill -USR1 $client
	sleep 0.3
	let_go handled
	wait $client
	same hello "$(cat "$ROOM/handled")"
}

# More than the kernel and the daemon have threads for, and more than it reads at once by default.
many_reads() {
	made many
	for i in $(seq 100); do
		cp "$FAR/many/far/big" "$FAR/many/far/big$i"
	done
	ls "$MNT/many" >/dev/null
	cat "$MNT/many/file" "$MNT/a/file" >/dev/null
	drop_caches
	hold many
	for i in $(seq 100); do
		cat "$MNT/many/big$i" >"$ROOM/big$i" &
	done
	for i in $(seq 100); do
		asked_of many "want data big$i 0+"
	done
	same hello "$(timeout 60 cat "$MNT/many/file")"
	timeout 60 ls "$MNT/many" >/dev/null
	timeout 60 cmp "$MNT/a/big" "$FAR/a/far/big"
	let_go many
	wait
	for i in $(seq 100); do
		cmp "$ROOM/big$i" "$FAR/many/far/big"
		rm "$ROOM/big$i"
	done
	teardown many
}

# --- failing -------------------------------------------------------------------------------------

# cut WORDS...: what a program says of an errno, without who and what.
cut_reason() {
	sed 's/.*: //'
}

failures_come_through() {
	made failing
	ls "$MNT/failing" >/dev/null
	echo "110 file" >"$FAR/failing/fail"
	same 'Connection timed out' "$(cat "$MNT/failing/file" 2>&1 | cut_reason)"
	error_says failing 'ETIMEDOUT: the played machine says: Connection timed out'
	echo "121 src" >"$FAR/failing/fail"
	same 'Remote I/O error' "$(ls "$MNT/failing/src" 2>&1 | cut_reason)"
	same 'Remote I/O error' "$(stat "$MNT/failing/src/main.c" 2>&1 | cut_reason)"
	echo "121 *" >"$FAR/failing/fail"
	expect EREMOTEIO write "$MNT/failing/file" O_APPEND\|O_WRONLY more
	expect 0 truncate "$MNT/failing/file" 0
	expect EREMOTEIO truncate "$MNT/failing/run" 5
	same 19 "$(stat -c %s "$MNT/failing/run")"
	rm "$FAR/failing/fail"
	same 'int main;' "$(cat "$MNT/failing/src/main.c")"
	brought failing
}

# --- becoming different --------------------------------------------------------------------------

open_files_follow() {
	made followed
	exec 7<"$MNT/followed/file"
	same hello "$(cat <&7)"
	become followed file 'HELLO
'
	same HELLO "$(cat /dev/fd/7)"
	same HELLO "$(cat "$MNT/followed/file")"
	become followed file 'longer by far'
	same 'longer by far' "$(cat /dev/fd/7)"
	exec 7<&-
	rm "$FAR/followed/far/file"
	refresh followed file
	expect ENOENT stat "$MNT/followed/file"
	echo again >"$FAR/followed/far/file"
	refresh followed file
	same again "$(cat "$MNT/followed/file")"
	same_trees followed
}

# A reader has the old contents or the new ones, and never what is not here yet.
readers_see_no_hole() {
	made raced
	become raced file aaaa
	touch "$FAR/raced/doze"
	(
		while [ ! -e "$ROOM/stop" ]; do
			like '[ab][ab][ab][ab]' "$(tr '\000' 0 <"$MNT/raced/file")" || touch "$ROOM/seen"
		done
	) &
	reader=$!
	for i in $(seq 15); do
		become raced file bbbb
		become raced file aaaa
	done
	touch "$ROOM/stop"
	wait $reader
	rm "$ROOM/stop"
	[ ! -e "$ROOM/seen" ]
}

# What a command may have changed is asked for again, but no path to the controls waits for that.
old_attributes_are_asked_for() {
	made old
	ls "$MNT/old/src" >/dev/null
	touch "$FAR/old/old"
	hold old
	forget_log old
	drop_caches
	exec 7<"$MNT/old/src/main.c"
	# The kernel has asked a moment ago.
	until grep -qxF 'want attr src/main.c' "$FAR/old/log"; do
		tick
		stat -L -c %s /dev/fd/7 >"$ROOM/old" &
	done
	timeout 60 cat "$MNT/old/ctl/info" >/dev/null
	timeout 60 stat "$MNT/old" >/dev/null
	let_go old
	wait
	exec 7<&-
	same 10 "$(cat "$ROOM/old")"
}

claim "reads by the kernel itself are refused at the mount" not_passed_through
claim "mounting" mount_none backend=memory
claim "names and contents come when they are asked for" names_and_contents_come
claim "what is here is not asked for again" what_is_here_is_not_asked_for
claim "names bring attributes, and no contents" attributes_come_with_names
claim "what has not come yet is copied, packed and searched as what it is" absent_is_no_hole
claim "lookups, listings, reads and writes wait for the machine" parked_calls
claim "others go on, in the same directory and in others" others_go_on
claim "and they end as if they had not waited" what_was_parked_ends
claim "kill -9 ends who waits" killed_while_parked
claim "another signal does not" handled_while_parked
claim "a hundred reads that wait hold up nobody" many_reads
claim "a failure reaches who asked, with its errno and its sentence" failures_come_through
claim "open files follow what the machine's become, whatever their size and time" open_files_follow
claim "a reader sees the old or the new, and no hole" readers_see_no_hole
claim "attributes are asked for again, but not on the way to the controls" \
	old_attributes_are_asked_for
finish
