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
	until [ "$(all_calls)" -ge 100000 ]; do
		sleep 0.1
	done
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

a_socket() {
	expect EPERM mknod "$MNT/a/socket" s
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
claim "and so is following one that a job made" one_line path 'a link to /etc/passwd' out_by_a_planted_link
claim "a working directory outside" one_line path 'path confinement violation' out_by_the_working_directory
claim "a socket file" one_line path 'socket: only files' a_socket
claim "a setuid bit" one_line path 'setuid and setgid' a_setuid_bit
# Of an ordinary user the kernel refuses it before anyone is asked.
[ "$(id -u)" != 0 ] || claim "a security attribute" one_line path 'security.selinux' a_security_attribute
claim "what is merely wrong is no denial" what_is_wrong_is_no_denial
claim "the host is as it was" still_fine
finish
