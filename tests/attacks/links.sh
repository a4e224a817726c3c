#!/bin/sh
. "$TESTS/lib/mount.sh"
. "$TESTS/lib/attack.sh"
# Links of every kind, and a check and a use with something in between.

OUT=$ROOM/tmp/outside
# Rounds of a dozen operations each.
ROUNDS=500

put_outside() {
	mkdir -p "$OUT"
	echo "of the host" >"$OUT/keep"
	chmod 640 "$OUT/keep"
	find "$OUT" -printf '%P %m %i %s %n\n' | sort >"$ROOM/outside.before"
}

outside_is_untouched() {
	find "$OUT" -printf '%P %m %i %s %n\n' | sort >"$ROOM/outside.after"
	cmp "$ROOM/outside.before" "$ROOM/outside.after" >&2 || unsafe "something outside is not as it was"
	[ "$(cat "$OUT/keep")" = "of the host" ] || unsafe "a file outside was written to"
}

# What a storm of the host's on one and two, a KIND each, has seen is in $ROOM/storm.
storm() {
	timeout ${storm_limit:-100} "$ROOM/bin/attack" storm "${storm_rounds:-$ROUNDS}" "$1" "$MNT/a/one" \
		"$MNT/a/two" >"$ROOM/storm" || storm_hangs=1
}

# Whether it saw no more than it may.
is_withstood() {
	[ -z "${storm_hangs:-}" ] && (outside_is_untouched) 2>/dev/null &&
		grep -q ' leaked 0 ' "$ROOM/storm"
}

# swap_while KIND SETUP: runs SETUP in the sandbox, then swaps one and two there while the host
# works on both. Without the wall it may take more than one storm until the two meet.
swap_while() {
	rm -rf "$OUT"
	put_outside
	run a sh -c "rm -rf one two; $2"
	id=$("$TOOL" result "$MNT/a/ctl/spawn" ./attack swap one two)
	storm "$1"
	for _ in ${SBX_WEAK:+1 2 3 4 5 6 7 8}; do
		! is_withstood || storm "$1"
	done
	echo "$id" >"$MNT/a/ctl/kill"
	cat "$MNT/a/ctl/jobs/$id/wait" >/dev/null
	[ -z "${storm_hangs:-}" ] || unsafe "the host hangs"
	outside_is_untouched
	case $(cat "$ROOM/storm") in
	'done '*' leaked 0 0') ;;
	*' leaked 0 '*) fail "nothing was swapped: $(cat "$ROOM/storm")" ;;
	*) unsafe "read: $(cat "$ROOM/storm")" ;;
	esac
	run a sh -c 'rm -rf one two'
}

a_directory_and_a_link_out() {
	swap_while directory "mkdir one; echo inside >one/keep; ln -s '$OUT' two"
}

a_directory_and_a_link_up() {
	swap_while directory "mkdir one; echo inside >one/keep; ln -s ../../tmp/outside two"
}

a_file_and_a_link_out() {
	swap_while file "echo inside >one; ln -s '$OUT/keep' two"
}

a_file_and_a_directory() {
	swap_while file "echo inside >one; mkdir two"
}

a_file_and_a_fifo() {
	# Without the wall the host hangs sooner or later.
	storm_limit=${SBX_WEAK:+10}
	storm_rounds=${SBX_WEAK:+100000000}
	swap_while file "echo inside >one; mkfifo two"
}

# The link leads nowhere from where it was followed, and out from where it then stands.
a_link_that_climbs() {
	put_outside
	run a sh -c 'mkdir -p d/e/f; ln -s ../../../tmp/outside/keep d/e/f/climbs'
	expect ENOENT open "$MNT/a/d/e/f/climbs" O_RDONLY
	for to in d/e/climbs d/climbs climbs; do
		run a sh -c "mv d/e/f/climbs $to"
		expect EACCES\|ENOENT open "$MNT/a/$to" O_RDONLY
		run a sh -c "mv $to d/e/f/climbs"
	done
	run a mv d/e/f f
	expect EACCES open "$MNT/a/f/climbs" O_RDONLY
	run a sh -c 'rm -rf d f'
}

# An absolute link into its own tree leads into another sandbox when that has the name.
a_name_that_becomes_anothers() {
	box c e
	echo "of the first" >"$MNT/c/file"
	echo "of the second" >"$MNT/e/file"
	run c ln -s "$MNT/c/file" own
	same "of the first" "$(cat "$MNT/c/own")"
	mv "$MNT/c" "$MNT/d"
	mv "$MNT/e" "$MNT/c"
	have=$("$TOOL" open "$MNT/d/own" O_RDONLY)
	teardown c d
	same EACCES "$have"
}

magic_links() {
	run a sh -c 'for name in root cwd exe fd/0 ns/mnt task; do
			ln -sfn /proc/self/$name magic; ln -sfn /proc/1/$name magic1; done
		ln -sfn /proc/self/root magic; ln -sfn /dev/fd/0 magic1'
	expect EACCES open "$MNT/a/magic/etc/passwd" O_RDONLY
	expect EACCES open "$MNT/a/magic1" O_RDONLY
	run a rm magic magic1
}

# Through a descriptor of its own root a command sees no more than by name.
own_descriptors() {
	refuse run a sh -c "cat /proc/self/fd/3/../../..$ROOM/home/secret 3<."
	refuse run a sh -c "cat /proc/self/cwd/../../..$ROOM/home/secret"
	refuse run a sh -c "cat /proc/self/root$ROOM/home/secret"
}

hard_link_across() {
	answers 'EXDEV|EPERM|EACCES' link /usr/bin/env
	answers 'ENOENT|EXDEV|EPERM' link "$ROOM/home/secret"
	expect EXDEV link "$MNT/b/secret" "$MNT/a/stolen"
	expect EXDEV link "$ROOM/home/secret" "$MNT/a/stolen"
}

recursive_removal() {
	put_outside
	run a sh -c "mkdir tree; ln -s '$OUT' tree/out; ln -s ../../b tree/b; ln -s / tree/root"
	rm -rf "$MNT/a/tree"
	[ ! -e "$MNT/a/tree" ]
	outside_is_untouched
}

recursive_reading() {
	put_outside
	run a sh -c "mkdir tree; ln -s '$OUT/keep' tree/out; ln -s ../../b/secret tree/b"
	grep -r 'of the' "$MNT/a/tree" >"$ROOM/found" 2>/dev/null || true
	cp -rL "$MNT/a/tree" "$ROOM/copied" 2>/dev/null || true
	[ ! -s "$ROOM/found" ] || unsafe "found: $(cat "$ROOM/found")"
	[ -z "$(find "$ROOM/copied" -type f)" ] || unsafe "copied: $(ls "$ROOM/copied")"
	rm -rf "$ROOM/copied"
	run a rm -rf tree
}

# Whether the daemon may ask what a process is about to do (ptrace(2), Yama).
may_look() {
	[ "$(id -u)" = 0 ] || [ "$(cat /proc/sys/kernel/yama/ptrace_scope 2>/dev/null || echo 0)" = 0 ]
}

# What takes a tree as it is takes links that lead out as links, with their own text.
tools_that_do_not_follow() {
	may_look || return 0
	put_outside
	run a sh -c "mkdir tree; cd tree; echo x >file; ln -s '$OUT/keep' out
		ln -s ../../../tmp/outside up; ln -s ../tree/../../b steep
		ln -s out gentle; ln -s /nowhere/at/all nowhere"
	for name in out up steep gentle nowhere; do
		want=$(run a readlink "tree/$name")
		same "$want" "$(readlink "$MNT/a/tree/$name")"
		expect EACCES\|ENOENT open "$MNT/a/tree/$name" O_RDONLY
		same "$want" "$(readlink "$MNT/a/tree/$name")"
	done
	git -C "$MNT/a" add -A
	same '' "$(git -C "$MNT/a" status --porcelain | grep -v '^A ' || true)"
	same "$OUT/keep" "$(git -C "$MNT/a" cat-file blob :tree/out)"
	same '' "$(run a git status --porcelain | grep -v '^A ' || true)"
	tar -C "$MNT/a" -cf "$ROOM/tree.tar" tree
	cp -r "$MNT/a/tree" "$ROOM/copied"
	same "$OUT/keep" "$(readlink "$ROOM/copied/out")"
	same x "$(cat "$ROOM/copied/file")"
	rm -rf "$ROOM/copied" "$ROOM/tree.tar"
	outside_is_untouched
	git -C "$MNT/a" reset -q
	run a rm -rf tree
}

# The text that one thread is told is kept for no other.
reading_while_others_follow() {
	put_outside
	run a sh -c "mkdir tree; ln -s '$OUT/keep' tree/out; ln -s '$OUT' tree/dir"
	timeout 60 python3 - "$MNT/a/tree" >"$ROOM/found" <<-'END'
		import os, sys, threading
		top, led, left = sys.argv[1], 0, [True]
		def read():
		    fd = os.open(top + "/out", os.O_PATH | os.O_NOFOLLOW)
		    while left[0]:
		        for at in (top + "/out", top + "/dir"):
		            try: os.readlink(at)
		            except OSError: pass
		        try: os.readlink("", dir_fd=fd)
		        except OSError: pass
		threads = [threading.Thread(target=read) for _ in range(3)]
		for t in threads: t.start()
		for _ in range(3000):
		    for at in (top + "/out", top + "/dir/keep"):
		        try: os.close(os.open(at, os.O_RDONLY)); led += 1
		        except OSError: pass
		left[0] = False
		for t in threads: t.join()
		print(led)
	END
	[ "$(cat "$ROOM/found")" = 0 ] || unsafe "led out $(cat "$ROOM/found") times"
	run a rm -rf tree
}

# A command hands its output and its directory to another one and ends.
descriptors_handed_on() {
	cat >"$MNT/a/take.py" <<'END'
import array, os, socket
s = socket.socket(socket.AF_UNIX); s.bind("handover"); s.listen(); open("listening", "w").close()
c = s.accept()[0]
fds = array.array("i", [0, 0, 0])
m, a, f, _ = c.recvmsg(1, socket.CMSG_SPACE(12)); fds.frombytes(a[0][2])
while c.recv(1): pass
open("alone", "w").close()
while not os.path.exists("go"): pass
try: os.write(fds[0], b"late\n")
except OSError: pass
for path, fd in ("../secret", fds[1]), ("1/environ", fds[2]), ("self/root", fds[2]):
    try: os.open(path, os.O_RDONLY, dir_fd=fd); print(path, "opened")
    except OSError as e: print(path, e.strerror)
END
	cat >"$MNT/a/give.py" <<'END'
import array, os, socket
s = socket.socket(socket.AF_UNIX); s.connect("handover")
fds = array.array("i", [1, os.open(".", os.O_RDONLY), os.open("/proc", os.O_RDONLY)])
s.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
print("given", flush=True)
END
	id=$("$TOOL" result "$MNT/a/ctl/spawn" python3 take.py)
	until [ -e "$MNT/a/listening" ]; do tick; done
	same given "$(run a python3 give.py)"
	like '0 exited*' "$(cat "$MNT/a/ctl/status")"
	last=$(readlink "$MNT/a/ctl/jobs/last")
	until [ -e "$MNT/a/alone" ]; do tick; done
	: >"$MNT/a/go"
	like '0 exited*' "$(cat "$MNT/a/ctl/jobs/$id/wait")"
	same given "$(cat "$MNT/a/ctl/jobs/$last/stdout")"
	same 3 "$(wc -l <"$MNT/a/ctl/jobs/$id/stdout")"
	refuse grep opened "$MNT/a/ctl/jobs/$id/stdout"
	rm -f "$MNT/a/listening" "$MNT/a/alone" "$MNT/a/go" "$MNT/a/handover"
}

# As a client that stays in a directory while the sandbox is taken from around it.
standing_in_what_is_removed() {
	mkdir "$MNT/c" "$MNT/c/deep"
	(
		cd "$MNT/c/deep" || exit 1
		teardown c || exit 1
		mkdir "$MNT/c" || exit 1
		echo lost >here && exit 1
		exit 0
	)
	[ ! -e "$MNT/c/here" ] && [ ! -e "$MNT/c/deep" ]
	teardown c
}

one_count_for_all_names() {
	run a sh -c 'echo x >n1; ln n1 n2'
	same "2 2" "$("$TOOL" stat "$MNT/a/n1" nlink) $("$TOOL" stat "$MNT/a/n2" nlink)"
	ln "$MNT/a/n2" "$MNT/a/n3"
	same "3 3 3" "$("$TOOL" stat "$MNT/a/n1" nlink) $("$TOOL" stat "$MNT/a/n2" nlink)\
 $("$TOOL" stat "$MNT/a/n3" nlink)"
	rm "$MNT/a/n1"
	same "2 2" "$("$TOOL" stat "$MNT/a/n3" nlink) $("$TOOL" stat "$MNT/a/n2" nlink)"
	chmod 600 "$MNT/a/n2"
	same 0600 "$("$TOOL" stat "$MNT/a/n3" mode)"
	run a rm n2 n3
}

claim "mounting" mount_victims
attack "links" "a directory swapped for a link out while the host works in it" \
	a_directory_and_a_link_out
attack "identity" "the same, for who follows links himself" a_directory_and_a_link_out
attack "links" "a directory swapped for a link up" a_directory_and_a_link_up
attack "links" "a file swapped for a link out while the host writes it" a_file_and_a_link_out
attack "identity" "the same, for who follows links himself" a_file_and_a_link_out
attack -daemon "a file swapped for a directory" a_file_and_a_directory
attack "fifos" "a file swapped for a FIFO" a_file_and_a_fifo
attack "links" "a link that climbs after it was followed" a_link_that_climbs
attack "links" "a link to its own name, which becomes another's" a_name_that_becomes_anothers
attack "links" "magic links of /proc" magic_links
attack "view landlock" "its own descriptors as ways up" own_descriptors
attack -kernel "hard links across" hard_link_across
attack -kernel "removing a tree with links out" recursive_removal
attack "links" "reading a tree with links out" recursive_reading
attack "links" "following a link out while others read it" reading_while_others_follow
holds "git add, tar and cp go on at links that lead out" tools_that_do_not_follow
attack -daemon "descriptors handed on outlive their command" descriptors_handed_on
attack -daemon "standing in a directory of what is torn down" standing_in_what_is_removed
holds "hard links show one count and one mode at once" one_count_for_all_names
withstood
