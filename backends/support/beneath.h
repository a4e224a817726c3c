/*
 * Files in a directory that a command can change at any moment: opened by the kernel beneath it,
 * through no symbolic link, and never waiting (a FIFO). All are thread-safe.
 */
#ifndef SANDBOXFS_SUPPORT_BENEATH_H
#define SANDBOXFS_SUPPORT_BENEATH_H

#include <stdbool.h>
#include <stddef.h>
#include <time.h>

/* Opens PATH (relative) beneath DIRFD with FLAGS. Descriptor or -errno; ELOOP, EXDEV: a link or a
 * way out. */
int sbx_beneath_open(int dirfd, const char *path, int flags);
/*
 * Reads the regular file PATH of at most MAX bytes; *ret is malloc'd, with a NUL after the LEN
 * bytes. MTIME may be NULL. 0 or -errno: EINVAL not a regular file, EFBIG.
 */
int sbx_beneath_read(int dirfd, const char *path, size_t max, char **ret, size_t *len,
                     struct timespec *mtime);
/* Opens the directory that PATH lies in, making what is missing of it, and points *name at the last
 * part. */
int sbx_beneath_parent(int dirfd, const char *path, const char **name);
/*
 * Puts DATA at NAME in DIRFD as git does: NAME.lock keeps others away, and a reader sees the old or
 * the new. MTIME (may be NULL) becomes the file's. EBUSY: somebody else has the lock. What a crash
 * leaves the next call clears away, but never a lock that is not ours.
 */
int sbx_locked_replace(int dirfd, const char *name, const void *data, size_t len,
                       const struct timespec *mtime);
/* The same of DATA that shows whether it is whole: a power cut may leave it damaged, but no wait.
 */
int sbx_locked_replace_soon(int dirfd, const char *name, const void *data, size_t len,
                            const struct timespec *mtime);
/*
 * The first step of the same in two: writes DATA into the lock, which put or sbx_locked_end gives
 * back. 0, -EBUSY, -errno.
 */
int sbx_locked_take(int dirfd, const char *name, const void *data, size_t len,
                    const struct timespec *mtime);
/* The second step: the lock becomes NAME. 0 or -errno; the lock is given back in either case. */
int sbx_locked_put(int dirfd, const char *name);
/* Takes NAME.lock alone. 0, -EBUSY, -errno. */
int sbx_locked_begin(int dirfd, const char *name);
/* Gives NAME.lock back; NAME stays as it was. */
void sbx_locked_end(int dirfd, const char *name);
/*
 * The first half of sbx_locked_replace, so that NAME can be looked at under the lock: a
 * descriptor, the caller's to close, -EBUSY or -errno. Then either commit or sbx_locked_end
 * follows.
 */
int sbx_locked_open(int dirfd, const char *name);
/*
 * The second half: writes DATA to FD, which stays open, and puts it at NAME. 0 or -errno; the
 * lock is given back in either case.
 */
int sbx_locked_commit(int dirfd, const char *name, int fd, const void *data, size_t len,
                      const struct timespec *mtime);
/* Which file, in which state, stands at NAME, so that it can be told later whether it still does.
 * All zero: none. */
struct sbx_seen {
	unsigned long long ino, size;
	struct timespec mtime, ctime;
};
/* How NAME in DIRFD stands now; all zero when nothing is there or it cannot be looked at. */
struct sbx_seen sbx_seen_now(int dirfd, const char *name);
/* Whether NAME still is what was SEEN. */
bool sbx_seen_same(int dirfd, const char *name, const struct sbx_seen *seen);
/* sbx_locked_open where NAME still is what was SEEN; else -EAGAIN. */
int sbx_locked_open_seen(int dirfd, const char *name, const struct sbx_seen *seen);
/* Ends the name of the file beside NAME that is linked to a lock of ours, and tells it is ours. */
#define SBX_LOCKED_SUFFIX ".sandboxfs"
/* Removes NAME.lock in DIRFD if a crash of ours has left it. */
void sbx_locked_clear(int dirfd, const char *name);

#endif
