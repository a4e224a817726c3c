#!/bin/sh
. "$TESTS/lib/mount.sh"
. "$TESTS/lib/attack.sh"
# Reading and writing what is not the sandbox's.

no_setuid_bit() {
	answers EPERM chmod-setuid attack
	answers EPERM create-setuid made
	case $("$TOOL" stat "$MNT/a/attack" mode) in 4*) fail "setuid was set" ;; esac
	[ ! -e "$MNT/a/made" ] || fail "a setuid file was made"
}

nothing_of_the_host_is_shown() {
	run a sh -c 'cat /proc/self/mountinfo' >"$ROOM/inside.mounts"
	refuse grep -F " $ROOM/home " "$ROOM/inside.mounts"
	refuse grep -w fuse.sandboxfs "$ROOM/inside.mounts"
	refuse grep -wE 'sysfs|cgroup2?|debugfs|securityfs|bpf' "$ROOM/inside.mounts"
}

# Where the mountpoint lies below /tmp the directory around it is the sandbox's own /tmp.
beside() {
	answers 'EROFS|EACCES|0' create "$MNT/attack-file"
	[ ! -e "$MNT/attack-file" ] || fail "it is on the host"
}

# Likewise: what counts is the host.
create_in_the_home() {
	run a ./attack create "$ROOM/home/attack-file" >"$ROOM/answer" || true
	[ ! -e "$ROOM/home/attack-file" ] || { rm "$ROOM/home/attack-file" && unsafe "it is on the host"; }
}

sees_no_other_tree() {
	same 1 "$(run a sh -c "ls '$STATE/trees' | wc -l")"
}

own_root() {
	refuse run a ls /proc/self/root/root/..hidden
	same "$(run a ls /)" "$(run a sh -c 'ls /../../..')"
	refuse run a ls "/proc/self/root$ROOM/home"
}

through_a_planted_link() {
	run a ln -sf "$ROOM/home/secret" planted
	expect EACCES open "$MNT/a/planted" O_RDONLY
	answers ENOENT read planted
	run a rm planted
}

root_cannot_be_given_a_file() {
	run a cp attack gift
	answers 'EPERM|EINVAL' chown-root gift
}

claim "mounting" mount_victims
attack "root:view landlock" "read /etc/shadow" answers 'EACCES|ENOENT' read /etc/shadow
# Shown to need its walls in directories of our own, below.
for dir in / /etc /usr /usr/bin /dev /proc; do
	attack -danger "create a file in $dir" answers 'EROFS|EACCES|EPERM|ENOENT' create \
		"$dir/attack-file"
done
attack -danger "overwrite /etc/passwd" answers 'EROFS|EACCES' write /etc/passwd
attack -danger "remove /etc/passwd" answers 'EROFS|EACCES' unlink /etc/passwd
attack "view landlock" "read the user's home" answers ENOENT read "$ROOM/home/secret"
attack "view landlock" "list the user's home" answers 'ENOENT|EACCES' read "$ROOM/home"
attack "view landlock" "write to a file in the user's home" answers ENOENT write "$ROOM/home/victim"
attack "view landlock" "empty a file in the user's home" answers ENOENT truncate "$ROOM/home/victim"
attack "view landlock" "create a file in the user's home" create_in_the_home
attack "view landlock" "remove a file in the user's home" answers ENOENT unlink "$ROOM/home/victim"
attack "view landlock" "move a file out of the user's home" \
	answers 'ENOENT|EXDEV' rename "$ROOM/home/victim" taken
attack "view landlock" "hard link to a file in the user's home" answers 'ENOENT|EXDEV|EPERM' link \
	"$ROOM/home/secret"
attack "view landlock" "read the host's temporary files" answers ENOENT read "$ROOM/tmp/secret"
attack "view landlock" "read another sandbox" answers ENOENT read "$MNT/b/secret"
attack "view landlock" "write to another sandbox" answers ENOENT write "$MNT/b/secret"
attack "view landlock" "read the records of the sandboxes" \
	answers 'ENOENT|EACCES' read "$STATE/meta"
attack "view landlock" "list the trees of the sandboxes" sees_no_other_tree
attack -daemon "create a file beside the sandbox" beside
attack "view landlock" "read a file of the source" answers 'ENOENT' read "$REPO/README.md"
for file in core_pattern hostname randomize_va_space; do
	attack "root:run_as landlock" "write /proc/sys/kernel/$file" \
		answers 'EACCES|EROFS|EPERM|ENOENT' write /proc/sys/kernel/$file
done
attack -kernel "write /proc/sys/kernel/modprobe" answers 'EACCES|EROFS|EPERM|ENOENT' write \
	/proc/sys/kernel/modprobe
attack -kernel "write /proc/sysrq-trigger" answers 'EACCES|EROFS|EPERM|ENOENT' write \
	/proc/sysrq-trigger
attack -kernel "read /proc/kcore" answers 'EACCES|EPERM|ENOENT' read /proc/kcore
# It would take the kernel's messages away from whom they are for.
attack -danger "read /proc/kmsg" answers 'EACCES|EPERM|ENOENT' read /proc/kmsg
attack "view landlock" "the host's devices: /dev/fuse" answers ENOENT read /dev/fuse
attack -kernel "the host's devices: /dev/mem" answers ENOENT read /dev/mem
attack "user:view landlock" "the host's devices: /dev/kmsg" answers ENOENT read /dev/kmsg
attack "root:run_as capabilities user_ns" "make a device of one's own" \
	answers 'EPERM|EACCES' device disk
attack "view landlock" "the kernel's settings by /sys" answers ENOENT read /sys/kernel
attack -kernel "control groups by /sys" answers ENOENT read /sys/fs/cgroup/cgroup.procs
attack "seccomp" "set setuid" no_setuid_bit
attack "root:run_as" "give a file to root" root_cannot_be_given_a_file
attack "root:run_as capabilities user_ns" "security attributes" \
	answers EPERM setxattr security.attack
attack -kernel "file capabilities" answers 'EPERM|EINVAL' setxattr security.capability
attack "root:run_as capabilities user_ns" "trusted attributes" \
	answers 'EPERM|EOPNOTSUPP' setxattr trusted.x
attack -kernel "hard link to a file of the system" answers 'EXDEV|EPERM|EACCES' link /etc/passwd
attack "links" "a planted link leads the host out" through_a_planted_link
attack "view landlock" "the root by .. and by /proc/self/root" own_root
attack "view" "mounts of the host among the mounts" nothing_of_the_host_is_shown
withstood
