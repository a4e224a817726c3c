#!/bin/sh
. "$TESTS/lib/mount.sh"
. "$TESTS/lib/attack.sh"
# What is refused is told: one line each, and never too many.

denied() {
	grep '"event":"denied"' "$MNT/$1/ctl/log"
}

# told BOX KIND WHAT: the number of lines with that.
told() {
	denied "$1" | grep -F "\"kind\":\"$2\"" | grep -cF "\"what\":\"$3" || true
}

# one_line KIND WHAT COMMAND...: the command, which is refused, makes one such line.
one_line() {
	one_kind=$1 one_what=$2
	one_before=$(told a "$one_kind" "$one_what")
	shift 2
	"$@"
	same $((one_before + 1)) "$(told a "$one_kind" "$one_what")"
}

with_its_class_and_program() {
	line=$(denied a | grep -F '"what":"keyctl"' | tail -n 1)
	like '*"class":"kernel"*' "$line"
	like '*"program":"attack"*' "$line"
	like '*"job":*' "$line"
}

in_events() {
	"$TOOL" read-until "$MNT/a/ctl/events" 'syscall: keyctl by attack job='
}

# Another program's name is its own choice.
a_name_cannot_forge_a_line() {
	before=$(wc -l <"$MNT/a/ctl/log")
	cp "$MNT/a/attack" "$MNT/a/$(printf 'x\n{"a":1}')"
	run a "$(printf './x\n{"a":1}')" reboot
	same $((before + 2)) "$(wc -l <"$MNT/a/ctl/log")"
	while read -r line; do
		printf '%s' "$line" | "$TOOL" json event
	done <"$MNT/a/ctl/log"
}

# Those told and those suppressed.
all_calls() {
	denied b | awk -F '"suppressed":' '/keyctl/ { n++ } NF > 1 { n += $2 + 0 } END { print n + 0 }'
}

flooding_the_log() {
	before=$(date +%s)
	same EPERM "$(run b ./attack flood 100000)"
	seconds=$(($(date +%s) - before + 2))
	"$TOOL" read-until "$MNT/b/ctl/events" 'more suppressed'
	[ "$(denied b | wc -l)" -le $((11 * seconds)) ] || fail "$(denied b | wc -l) lines in $seconds s"
	until [ "$(all_calls)" -ge 100000 ]; do tick; done
	same 100000 "$(all_calls)"
}

the_mount_goes_on() {
	talk b/ctl/spawn '["./attack","flood","100000000"]' >"$ROOM/job"
	"$TOOL" read-until "$MNT/b/ctl/events" 'more suppressed'
	for i in 1 2 3 4 5; do
		same "$i" "$(run a echo "$i")"
		mkdir "$MNT/a/made-$i"
	done
	echo 1 >"$MNT/b/ctl/kill"
	like '137 killed *' "$(cat "$MNT/b/ctl/jobs/$(tr -d '\n' <"$ROOM/job")/wait")"
}

out_by_a_link() {
	expect EACCES symlink /etc/passwd "$MNT/a/way-out"
}

out_by_a_planted_link() {
	run a ln -s /etc/passwd planted
	expect EACCES open "$MNT/a/planted" O_RDONLY
}

out_by_the_working_directory() {
	expect EACCES write "$MNT/a/ctl/exec" O_WRONLY '{"argv":["true"],"cwd":"/etc"}'
}

a_device() {
	expect EPERM mknod "$MNT/a/device" c
}

a_setuid_bit() {
	expect EPERM chmod "$MNT/a/attack" 4755
}

a_security_attribute() {
	expect EPERM setxattr "$MNT/a/attack" security.selinux x
}

what_is_wrong_is_no_denial() {
	before=$(denied a | wc -l)
	expect ENOENT write "$MNT/a/ctl/exec" O_WRONLY 'no-such-program\n'
	expect EINVAL write "$MNT/a/ctl/exec" O_WRONLY '"unfinished\n\n'
	same "$before" "$(denied a | wc -l)"
}

# --- the network, which there is none of --------------------------------------------------------

to_an_address() {
	answers ENETUNREACH internet 80
	answers ENETUNREACH internet 80
	same 2 "$(told a network 192.0.2.1:80)"
	line=$(denied a | grep -F '"kind":"network"' | tail -n 1)
	like '*"program":"attack"*net=none*-o net=allow:HOST*"job":*' "$line"
	error_says a \
		'attack tried to reach 192.0.2.1:80: commands have no network (net=none): mount with -o net='
}

networks() {
	denied a | grep -cF '"kind":"network"' || true
}

# python LINES: in a job of its own
python() {
	run a python3 -c "import socket, os
def tcp(family, *to):
    try: socket.socket(family, socket.SOCK_STREAM).connect(to)
    except OSError: pass
def udp(family, *to):
    try: socket.socket(family, socket.SOCK_DGRAM).sendto(b'x', to)
    except OSError: pass
$1"
}

once_for_a_job() {
	before=$(networks)
	python \
		'for i in range(50): tcp(socket.AF_INET, "192.0.2.7", 443); udp(socket.AF_INET, "192.0.2.8", 443)'
	same $((before + 1)) "$(networks)"
	same 1 "$(told a network 192.0.2.7:443)"
}

in_other_ways() {
	python 'udp(socket.AF_INET, "192.0.2.9", 123)'
	same 1 "$(told a network 192.0.2.9:123)"
	python 'tcp(socket.AF_INET6, "2001:db8::1", 443)'
	same 1 "$(told a network '[2001:db8::1]:443')"
	python 'tcp(socket.AF_INET6, "::ffff:192.0.2.1", 443)'
	same 1 "$(told a network '[::ffff:192.0.2.1]:443')"
}

a_name() {
	run a getent hosts name.invalid || true
	error_says a 'getent tried to reach *:53: names cannot be looked up*net='
}

while_it_runs() {
	printf '%s\n' 'import socket, time' 'try: socket.create_connection(("192.0.2.5", 80))' \
		'except OSError: pass' "time.sleep($LONG)" >"$MNT/a/waits.py"
	echo 'python3 waits.py' >"$MNT/a/ctl/spawn"
	"$TOOL" read-until "$MNT/a/ctl/events" 'network: 192.0.2.5:80 by python3'
	echo 1 >"$MNT/a/ctl/kill"
	like '137 killed *' "$(cat "$MNT/a/ctl/jobs/last/wait")"
}

what_stays_inside_is_none() {
	before=$(networks)
	python 'import threading
s = socket.create_server(("127.0.0.1", 0))
for i in range(200):
    c = socket.create_connection(s.getsockname()); s.accept()[0].close(); c.close()
u = socket.socket(socket.AF_UNIX); u.bind("u"); u.listen()
socket.socket(socket.AF_UNIX).connect("u")
tcp(socket.AF_INET, "0.0.0.0", 9); tcp(socket.AF_INET, "127.1.2.3", 9)
tcp(socket.AF_INET6, "::1", 9)
tcp(socket.AF_INET6, "::ffff:127.0.0.1", 9); udp(socket.AF_INET, "127.0.0.1", 9)
socket.getaddrinfo("localhost", 80)'
	same "$before" "$(networks)"
}

# Addresses that are none reach the kernel as they are.
bad_addresses_are_errors_of_their_own() {
	same "14 22 97" "$(run a python3 -c '
import ctypes, socket
libc = ctypes.CDLL(None, use_errno=True)
got = []
for address, size in ((None, 16), (b"\2\0\0\1", 4), (b"\x09\0" + b"\1" * 14, 16)):
    s = socket.socket()
    libc.connect(s.fileno(), address, size)
    got.append(ctypes.get_errno())
print(*got)')"
}

claim "mounting" mount_victims user_xattr
cp "$ROOM/bin/attack" "$MNT/b/attack"
claim "a refused call is one line in the log" one_line syscall keyctl answers EPERM keyctl
claim "with its class, the program and the job" with_its_class_and_program
claim "and one in the events" in_events
claim "a refused namespace" one_line syscall unshare answers EPERM unshare 0x10000000
claim "a refused mount" one_line syscall mount answers EPERM mount
claim "a refused socket" one_line syscall socket answers EPERM socket packet
claim "a refused setuid bit" one_line syscall chmod answers EPERM chmod-setuid attack
attack -daemon "a program's name that holds a line" a_name_cannot_forge_a_line
attack -daemon "a hundred thousand refused calls in a row" flooding_the_log
attack -daemon "a job that only makes refused calls" the_mount_goes_on
claim "a link that leads out is one line" one_line path 'a link to /etc/passwd' out_by_a_link
claim "and so is following one that a job made" one_line path 'a link to /etc/passwd' \
	out_by_a_planted_link
claim "a working directory outside" one_line path 'path confinement violation' \
	out_by_the_working_directory
claim "a setuid bit" one_line path 'setuid and setgid' a_setuid_bit
# Of an ordinary user the kernel refuses these before anyone is asked.
[ "$(id -u)" != 0 ] || claim "a device" one_line path 'device: devices cannot be made' a_device
[ "$(id -u)" != 0 ] ||
	claim "a security attribute" one_line path 'security.selinux' a_security_attribute
claim "an attempt to reach the network is told, with how to have one" to_an_address
claim "once for each job" once_for_a_job
claim "also one without a connection, and one of the newer kind" in_other_ways
claim "so is looking up a name" a_name
claim "at once, while the command runs" while_it_runs
claim "what stays inside is no such attempt" what_stays_inside_is_none
claim "a bad address is the kernel's to refuse" bad_addresses_are_errors_of_their_own
claim "what is merely wrong is no denial" what_is_wrong_is_no_denial
claim "the host is as it was" still_fine
finish
