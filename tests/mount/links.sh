#!/bin/sh
. "$TESTS/lib/mount.sh"
# Hard links, symbolic links, FIFOs and sockets.

hard() {
	echo one >h1
	expect 0 link h1 h2
	same "2 2" "$("$TOOL" stat h1 nlink) $("$TOOL" stat h2 nlink)"
	same "$("$TOOL" stat h1 ino)" "$("$TOOL" stat h2 ino)"
	echo two >>h2
	same 'one
two' "$(cat h1)"
	chmod 600 h1
	same 0600 "$("$TOOL" stat h2 mode)"
	expect 0 unlink h1
	same 1 "$("$TOOL" stat h2 nlink)"
	expect EEXIST link h2 README.md
	expect ENOENT link missing x
	expect EPERM link src srclink
	expect EXDEV link h2 ../b/h2
}

symbolic() {
	expect 0 symlink README.md s
	same README.md "$(readlink s)"
	same hello "$(cat s)"
	same "symlink 9" "$("$TOOL" lstat s type size)"
	expect EEXIST symlink x s
	expect 0 symlink nowhere dangling
	expect ENOENT open dangling O_RDONLY
	expect 0 symlink src dir
	expect 0 stat dir/main.c
	expect ENOTDIR open s/x O_RDONLY
	expect 0 symlink loop loop
	expect ELOOP open loop O_RDONLY
	expect 0 unlink s
	same hello "$(cat README.md)"
}

inner_links_of_all_forms() {
	mkdir -p x/y
	expect 0 symlink ../../README.md x/y/up
	same hello "$(cat x/y/up)"
	expect 0 symlink "$MNT/a/README.md" absolute
	same hello "$(cat absolute)"
}

# Chains of links, of which some are absolute.
chains() {
	expect 0 symlink "$MNT/a/README.md" l2
	expect 0 symlink l2 l1
	expect 0 symlink "$MNT/a/l1" l0
	same hello "$(cat l0)"
	same l2 "$(readlink l1)"
	expect 0 symlink "$MNT/a/src" d2
	expect 0 symlink d2 d1
	same "$(cat src/main.c)" "$(cat d1/main.c)"
	expect 0 symlink d1/main.c through
	same "$(cat src/main.c)" "$(cat through)"
	expect 0 symlink "$MNT/a/later" l3
	expect 0 symlink l3 l4
	expect ENOENT open l4 O_RDONLY
	echo late >l4
	same late "$(cat later)"
	run a sh -c 'ln -s "$PWD/README.md" i2; ln -s i2 i1; ln -s "$PWD/i1" i0'
	same 'hello hello' "$(cat i0) $(run a cat l0)"
	expect 0 symlink "$MNT/a/round2" round1
	expect 0 symlink round1 round2
	expect ELOOP open round1 O_RDONLY
	same "$MNT/a/round2" "$(readlink round1)"
}

# In a machine nothing stands at MNT/NAME.
absolute_there() {
	expect 0 symlink "$MNT/a/README.md" below
	expect 0 symlink "$MNT/a" all
	same 'hello hello' "$(run a cat below all/README.md | paste -sd ' ')"
	like "*/README.md" "$(run a readlink below)"
	refuse [ "$(run a readlink below)" = "$MNT/a/README.md" ]
	same "$MNT/a/README.md $MNT/a" "$(readlink below) $(readlink all)"
	mkdir deep
	mv below all deep
	same 'hello hello' "$(run a cat deep/below deep/all/README.md | paste -sd ' ')"
	drop_caches
	same 'hello hello' "$(cat deep/below deep/all/README.md | paste -sd ' ')"
	rm -r deep
}

# ".." behind a name.
climbing_and_returning() {
	mkdir -p c/d/e
	expect 0 symlink c/.. root
	expect 0 symlink c/d/../../README.md climbs
	expect 0 symlink ../d/e/../../../README.md c/d/climbs
	expect 0 symlink "$MNT/a/c/../README.md" c/d/e/absolute
	expect 0 symlink ../a/README.md around
	for link in root/README.md climbs c/d/climbs c/d/e/absolute around; do
		same hello "$(cat $link)"
	done
	same c/d/../../README.md "$(readlink climbs)"
	run a ln -s c/./d/.. made
	same "$("$TOOL" stat c ino)" "$("$TOOL" stat made ino)"
	expect 0 symlink missing/../README.md dangles
	expect ENOENT open dangles O_RDONLY
	expect EACCES symlink c/../.. out
	expect EACCES symlink c/../../b/README.md out
	expect EACCES symlink c/d/../../../a/README.md out
	expect EACCES symlink root/.. out
	expect EACCES symlink ../a/../b out
	expect 0 rename climbs c/climbs
	expect ENOENT open c/climbs O_RDONLY
}

# The same text leads elsewhere as soon as the name in it is another's,
# and nobody goes by what it was.
climbing_is_judged_anew() {
	mkdir -p n/d/d
	expect 0 symlink d/d/../../../README.md n/l
	same hello "$(cat n/l)"
	mv n/d/d n/d/was
	expect 0 symlink .. n/d/d
	expect EACCES open n/l O_RDONLY
	rm n/d/d
	mv n/d/was n/d/d
	same hello "$(cat n/l)"
	run a sh -c 'rm -r n/d/d; ln -s .. n/d/d'
	expect EACCES open n/l O_RDONLY
	run a sh -c 'rm n/d/d; mkdir n/d/d'
	same hello "$(cat n/l)"
}

# A command could put a link in the way of whoever follows it.
climbing_waits_for_commands() {
	id=$("$TOOL" result ctl/spawn sleep "$LONG")
	expect EACCES open n/l O_RDONLY
	error_says a 'while no command runs'
	expect 0 symlink d/d/../../../README.md n/m
	echo "$id" >ctl/kill
	cat "ctl/jobs/$id/wait" >/dev/null
	same 'hello hello' "$(cat n/l) $(cat n/m)"
}

longest_targets() {
	mkdir -p deep/er
	for length in 4095 4094 255; do
		target=$(python3 -c "print(('x' * 200 + '/') * 21, end='')" | cut -c1-$length)
		expect 0 symlink "$target" deep/er/long
		same "$target" "$(readlink deep/er/long)"
		same "$target" "$(run a readlink deep/er/long)"
		same $length "$("$TOOL" lstat deep/er/long size)"
		expect ENOENT open deep/er/long O_RDONLY
		rm deep/er/long
	done
	target=$(python3 -c "print('./' * 2040 + '../../README.md', end='')")
	expect 0 symlink "$target" deep/er/long
	same hello "$(cat deep/er/long)"
}

fifos() {
	expect 0 mknod pipe f 0600
	same "fifo 0600" "$("$TOOL" lstat pipe type mode)"
	expect 0 mknod plain r 0640
	same "regular 0640" "$("$TOOL" stat plain type mode)"
	expect 0 unlink pipe
}

# A server and its client, both on the host; neither side of the sandbox reaches the other's.
sockets() {
	expect 0 mknod sock s 0700
	same "socket 0700" "$("$TOOL" lstat sock type mode)"
	expect EPERM mknod sock2 s 04755
	rm sock
	cat >client.py <<'END'
import socket, sys
s = socket.socket(socket.AF_UNIX)
try: s.connect(sys.argv[1]); print(s.recv(9).decode())
except OSError as e: print(e.strerror)
END
	cat >"$ROOM/server.py" <<'END'
import os, socket, sys
s = socket.socket(socket.AF_UNIX); s.bind("here.sock"); s.listen()
print("ready", flush=True)
while True: s.accept()[0].send(b"hello")
END
	python3 "$ROOM/server.py" >"$ROOM/server" &
	server=$!
	until [ -s "$ROOM/server" ]; do kill -0 $server || return 1; tick; done
	same hello "$(python3 client.py here.sock)"
	same socket "$("$TOOL" lstat here.sock type)"
	like '*refused*' "$(run a python3 client.py here.sock)"
	mv here.sock moved.sock
	same hello "$(python3 client.py moved.sock)"
	id=$("$TOOL" result ctl/spawn python3 -c 'import socket
s = socket.socket(socket.AF_UNIX); s.bind("inner.sock"); s.listen(); open("bound", "w").close()
while True: s.accept()')
	until [ -e bound ]; do tick; done
	like '*refused*' "$(python3 client.py inner.sock)"
	echo "$id" >ctl/kill
	cat "ctl/jobs/$id/wait" >/dev/null
	same hello "$(python3 client.py moved.sock)"
	kill $server
	rm moved.sock inner.sock
}

# Each name is told of, or was told of before the last sync, and then goes.
one_of_two_names() {
	echo 1 >first
	ln first second
	sync "$MNT/a"
	echo 2 >second
	rm second
	same 2 "$(run a cat first)"
	ln first second
	sync "$MNT/a"
	echo 3 >second
	chmod 600 second
	echo other >third
	mv third second
	same '3 600' "$(run a sh -c 'cat first; stat -c %a first' | xargs)"
	same other "$(run a cat second)"
	rm first second
}

# Which names are one file a command alone knows, where it made them elsewhere.
linked_by_a_command() {
	echo one >"$MNT/a/by-host"
	run a ln by-host by-command
	same one "$(cat "$MNT/a/by-command")"
	echo host >"$MNT/a/by-command"
	until [ "$(cat "$MNT/a/by-host")" = host ]; do tick; done
	same 'host host' "$(run a cat by-host by-command | xargs)"
	same 2 "$(run a stat -c %h by-host)"
	same 'host host' "$(cat "$MNT/a/by-host" "$MNT/a/by-command" | xargs)"
}

# taken_over NAME...: of three names of one file, which are looked up in this order, n3 goes to
# another file: each of the others still means the file, whether it is written or read.
taken_over() {
	box over
	(
		cd "$MNT/over"
		head -c 300000 /dev/zero | tr '\0' x >n1
		ln n1 n2
		ln n1 n3
		echo other >other
		ln other another
		run over sh -c 'echo more >>n1'
		stat "$@" >"$ROOM/looked.up"
		mv other n3
		truncate -s 5 n1
		cmp n1 n2
		same 5 "$(wc -c <n2)"
		same other "$(cat n3)"
		echo more >>n2
		cmp n1 n2
	)
	same '10
other' "$(run over sh -c 'wc -c <n1; cat n3')"
	teardown over
}

names_taken_over() {
	taken_over n1 n2 n3
	taken_over n2 n1 n3
	taken_over n3 n1 n2
	taken_over n3
}

claim "mounting" mount_repo
claim "two sandboxes" box a b
cd "$MNT/a" || exit 1
claim "hard links: one inode, one count, EPERM for directories, EXDEV between sandboxes" hard
claim "what was written by a name stays when that is removed and another is left" one_of_two_names
claim "symbolic links: target kept to the byte, dangling, loops" symbolic
claim "links within the sandbox, relative and absolute, are followed" inner_links_of_all_forms
claim "through chains of them, absolute ones too" chains
claim_away "and what is made absolute is so for commands as well" absolute_there
claim "climbing behind a name, as long as it comes back" climbing_and_returning
claim "which is judged each time" climbing_is_judged_anew
claim "and while no command runs" climbing_waits_for_commands
claim "targets of 4095 bytes" longest_targets
claim "what is written by one name that a command has made, the other has" linked_by_a_command
claim "mknod makes FIFOs and plain files" fifos
# A machine's sockets are not named here, nor ours there.
claim_here "sockets of the host serve the host, those of commands commands" sockets
cd "$ROOM" || exit 1
claim "a name that another file takes over is none of the others" names_taken_over
finish
