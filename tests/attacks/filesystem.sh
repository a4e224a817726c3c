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

own_root() {
	refuse run a ls /proc/self/root/root/..hidden
	same "$(run a ls /)" "$(run a sh -c 'ls /../../..')"
	refuse run a ls "/proc/self/root$ROOM/home"
}

through_a_planted_link() {
	run a ln -s "$ROOM/home/secret" planted
	answers ENOENT read planted
	expect EACCES open "$MNT/a/planted" O_RDONLY
	run a rm planted
}

claim "mounting" mount_victims
claim "attack: read /etc/shadow" answers 'EACCES|ENOENT' read /etc/shadow
for dir in / /etc /usr /usr/bin /dev /proc; do
	claim "attack: create a file in $dir" answers 'EROFS|EACCES|EPERM|ENOENT' create "$dir/attack-file"
done
claim "attack: overwrite /etc/passwd" answers 'EROFS|EACCES' write /etc/passwd
claim "attack: remove /etc/passwd" answers 'EROFS|EACCES' unlink /etc/passwd
claim "attack: read the user's home" answers ENOENT read "$ROOM/home/secret"
claim "attack: read the host's temporary files" answers ENOENT read "$ROOM/tmp/secret"
claim "attack: read another sandbox" answers ENOENT read "$MNT/b/secret"
claim "attack: read another sandbox by its directory in the state" answers 'ENOENT|EACCES' read "$STATE/meta"
claim "attack: create a file beside the sandbox" beside
claim "attack: read a file of the source" answers 'ENOENT' read "$REPO/README.md"
for file in core_pattern modprobe hostname randomize_va_space; do
	claim "attack: write /proc/sys/kernel/$file" answers 'EACCES|EROFS|EPERM|ENOENT' write /proc/sys/kernel/$file
done
claim "attack: write /proc/sysrq-trigger" answers 'EACCES|EROFS|EPERM|ENOENT' write /proc/sysrq-trigger
claim "attack: read /proc/kcore" answers 'EACCES|EPERM|ENOENT' read /proc/kcore
claim "attack: read /proc/kmsg" answers 'EACCES|EPERM|ENOENT' read /proc/kmsg
claim "attack: the host by /proc/1/root" answers 'EACCES|ENOENT|EPERM' read /proc/1/root/etc/passwd
claim "attack: the host's devices: /dev/fuse" answers ENOENT read /dev/fuse
claim "attack: the host's devices: /dev/mem" answers ENOENT read /dev/mem
claim "attack: the host's devices: /dev/kmsg" answers ENOENT read /dev/kmsg
claim "attack: make a device of one's own" answers 'EPERM|EACCES' device disk
claim "attack: control groups by /sys" answers ENOENT read /sys/fs/cgroup/cgroup.procs
claim "attack: set setuid" no_setuid_bit
claim "attack: give a file to root" answers 'EPERM|EINVAL' chown-root attack
claim "attack: file capabilities" answers 'EPERM|EINVAL' setxattr security.capability
claim "attack: trusted attributes" answers 'EPERM|EOPNOTSUPP' setxattr trusted.x
claim "attack: hard link to a file of the system" answers 'EXDEV|EPERM|EACCES' link /etc/passwd
claim "attack: a planted link leads the host out" through_a_planted_link
claim "attack: the root by .. and by /proc/self/root" own_root
claim "attack: mounts of the host among the mounts" nothing_of_the_host_is_shown
claim "the host is as it was" still_fine
finish
