/*
 * One FUSE connection: its session, mount and end.
 *
 * Three things libfuse 3.14 does not do are done here, by looking at what passes:
 * HANDLE_KILLPRIV_V2 is agreed on in the INIT exchange (without it the kernel asks for
 * security.capability before every write), and so is PARALLEL_DIROPS, which libfuse takes and
 * leaves out of its answer (without it a LOOKUP or READDIR that waits holds up all others in its
 * directory); INC_EPOCH is sent as a bare notification.
 */
#ifndef SANDBOXFS_FS_FUSE_SESSION_H
#define SANDBOXFS_FS_FUSE_SESSION_H

#include <fuse_lowlevel.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include "sandboxfs/error.h"
#include "sandboxfs/settings.h"

struct sbx_channel {
	struct fuse_session *session;
	char *mountpoint;
	pthread_t thread;
	bool started;
	atomic_bool unmounted; /* set on the loop thread as well */
	/* Called on the session's thread when the kernel has closed the connection. */
	void (*ended)(void *data);
	void *data;
};

struct sbx_channel_config {
	const char *mountpoint;
	const char *fsname;
	const struct sbx_strings *options; /* further -o words, or NULL */
	bool allow_other;
	bool own_checks; /* OPS has access, and answers it, when nobody else may enter */
	bool agree;      /* on HANDLE_KILLPRIV_V2 and PARALLEL_DIROPS where the kernel has them */
	const struct fuse_lowlevel_ops *ops;
	size_t ops_size;
	void *userdata;
};

/*
 * Makes the session and mounts it. -EBUSY, -EACCES, -ENOENT, -EPERM (fusermount3 missing or
 * /dev/fuse closed to us) with a sentence. *ret must stay where it is. Not thread-safe.
 */
int sbx_channel_open(struct sbx_channel *ret, const struct sbx_channel_config *config,
                     struct sbx_error *err);
/* Serves on threads of its own until the connection ends. 0 or -errno. */
int sbx_channel_start(struct sbx_channel *ch);
/* Unmounts, lazily where it is in use; what is parked can still be answered. Repeatable. */
void sbx_channel_unmount(struct sbx_channel *ch);
/* Ends the session's threads: no operation runs any more. After sbx_channel_unmount. Repeatable. */
void sbx_channel_stop(struct sbx_channel *ch);
/* Frees the session; nothing may be answered after. Any state, repeatable. */
void sbx_channel_close(struct sbx_channel *ch);

/*
 * Makes FD, a regular file, a backing file of the connection: its id, under which the kernel keeps
 * it until sbx_channel_unback. -EOPNOTSUPP, -EPERM (passthrough was not agreed on), -ELOOP (on a
 * file system that is stacked twice already), -ENOMEM. Any thread.
 */
int sbx_channel_back(struct sbx_channel *ch, int fd);
/* Takes back the id of sbx_channel_back. Files that are open by it stay so. Any thread. */
void sbx_channel_unback(struct sbx_channel *ch, int id);

/* Has every cached name and attribute asked for again: 0, or -EINVAL when the kernel is older
 * than 6.16. Any thread. */
int sbx_channel_epoch(struct sbx_channel *ch);

/* Has the attributes of node INO asked for again. Takes no lock of the kernel's. Any thread. */
void sbx_channel_forget_attr(struct sbx_channel *ch, uint64_t ino);
/*
 * And the listing of the directory INO dropped. Takes the locks of its pages: not by a thread that
 * anybody waits for (fs/fuse/invalidator.h). CH is not used any more once the kernel has been
 * asked.
 */
void sbx_channel_forget(struct sbx_channel *ch, uint64_t ino);
/*
 * Whether something is mounted at PATH, by /proc/self/mountinfo, so that a dead or busy mount is
 * not waited for: 1 a sandboxfs mount, 2 another, 0 none, -errno. Not through symlinks.
 */
int sbx_mounted(const char *path);
/* The device number of the sandboxfs mount on top at PATH; 0 when there is none or nobody can tell.
 */
dev_t sbx_mount_device(const char *path);
/* Whether a file system of that device is mounted anywhere in this namespace: 1, 0, or -errno. */
int sbx_device_mounted(dev_t dev);
/* Takes a mount at PATH away, lazily, as root or by fusermount3. 0 or -errno. */
int sbx_unmount(const char *path);

#endif
