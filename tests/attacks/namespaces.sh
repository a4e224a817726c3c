#!/bin/sh
. "$TESTS/lib/mount.sh"
. "$TESTS/lib/attack.sh"
# Leaving the namespaces, and the parts of the kernel that have been ways out of them.

claim "mounting" mount_victims
for call in mount umount2 chroot open_tree mount_setattr setns open_by_handle_at quotactl bpf \
	perf_event_open io_uring_setup keyctl add_key request_key clock_settime; do
	attack "seccomp" "the call $call" answers EPERM $call
done
# These ask for capabilities before they look at anything.
for call in pivot_root move_mount fsopen fspick userfaultfd swapon settimeofday syslog sethostname \
	fanotify_init; do
	attack "root:seccomp run_as capabilities user_ns" "the call $call" answers EPERM $call
done
for call in acct init_module finit_module delete_module kexec_load reboot; do
	attack -danger "the call $call" answers EPERM $call
done
attack "root:seccomp run_as capabilities user_ns" "a file by its handle" \
	answers EPERM handle /usr/bin/env
attack "seccomp user_ns" "unshare a user namespace" answers 'EPERM|ENOSPC' unshare 0x10000000
attack "root:seccomp run_as capabilities user_ns" "unshare a mount namespace" \
	answers EPERM unshare 0x00020000
attack "root:seccomp run_as capabilities user_ns" "unshare a network namespace" \
	answers EPERM unshare 0x40000000
attack "root:seccomp run_as capabilities user_ns" "unshare a time namespace" \
	answers EPERM unshare 0x80
attack "seccomp user_ns" "clone into a user namespace" answers 'EPERM|ENOSPC' clone 0x10000000
attack "root:seccomp run_as capabilities user_ns" "clone into a pid namespace" \
	answers EPERM clone 0x20000000
attack "seccomp" "clone3, whose flags no filter sees" answers ENOSYS clone3
attack "seccomp" "openat2, whose mode no filter sees" answers ENOSYS openat2 file
attack "seccomp" "calls by the numbers of i386" answers 'EPERM|ENOSYS' i386
attack -kernel "calls by the numbers of x32" answers 'EPERM|ENOSYS' x32
holds "unsharing what is no namespace still works" answers 0 unshare 0x400
withstood
