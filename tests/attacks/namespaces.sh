#!/bin/sh
. "$TESTS/lib/mount.sh"
. "$TESTS/lib/attack.sh"
# Leaving the namespaces, and the parts of the kernel that have been ways out of them.

claim "mounting" mount_victims
for call in mount umount2 pivot_root chroot move_mount fsopen fspick open_tree mount_setattr setns \
	open_by_handle_at quotactl bpf perf_event_open userfaultfd io_uring_setup keyctl add_key request_key \
	init_module finit_module delete_module kexec_load reboot swapon acct settimeofday clock_settime \
	syslog sethostname fanotify_init; do
	claim "attack: the call $call" answers EPERM $call
done
claim "attack: unshare a user namespace" answers EPERM unshare 0x10000000
claim "attack: unshare a mount namespace" answers EPERM unshare 0x00020000
claim "attack: unshare a network namespace" answers EPERM unshare 0x40000000
claim "attack: unshare a time namespace" answers EPERM unshare 0x80
claim "attack: clone into a user namespace" answers EPERM clone 0x10000000
claim "attack: clone into a pid namespace" answers EPERM clone 0x20000000
claim "attack: clone3, whose flags no filter sees" answers ENOSYS clone3
claim "attack: openat2, whose mode no filter sees" answers ENOSYS openat2 file
claim "attack: calls by the numbers of i386" answers 'EPERM|ENOSYS' i386
claim "attack: calls by the numbers of x32" answers 'EPERM|ENOSYS' x32
claim "attack: unsharing what is no namespace still works" answers 0 unshare 0x400
claim "the host is as it was" still_fine
finish
