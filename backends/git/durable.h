/*
 * The order in which parts of a repository reach the disk. libgit2 syncs every file that it
 * writes, or none. With none, a power cut may leave a ref without its object, or an empty ref.
 * With every file, a snapshot costs one flush of the disk for each.
 *
 * So we do as git does with core.fsyncMethod=writeout-only: the content of a file is written out
 * before the file gets its name. A file system with a journal keeps that order on the disk. The
 * journal itself is committed in its own time, within some seconds.
 *
 * Each file is synced before the call returns where the source's core.fsync hardens loose objects
 * or refs, or core.fsyncObjectFiles is true.
 */
#ifndef SANDBOXFS_GIT_DURABLE_H
#define SANDBOXFS_GIT_DURABLE_H

#include <stdbool.h>

#include "backends/git/git_impl.h"

/* Once, after libgit2 has begun: it syncs what it writes from then on, as fsync below does. */
void sbx_git_durable_init(void);

/* From then on what is written is as REPO's settings have it; for all threads. */
void sbx_git_durable_as(git_repository *repo);
/*
 * As VALUE, core.fsync, METHOD, core.fsyncMethod, and OBJECTS, core.fsyncObjectFiles have it;
 * NULL: not set.
 */
bool sbx_git_durable_hardens(const char *value, const char *method, bool objects);

/*
 * Between the two this thread's files are begun to be written out when they are written, and waited
 * for at the end, all together: for objects that nothing leads to before. May be nested. End: 0 or
 * a negative errno.
 */
void sbx_git_durable_begin(void);
/*
 * Ends one sbx_git_durable_begin. The outermost waits until the files are written out: 0 or
 * -errno.
 */
int sbx_git_durable_end(void);
/*
 * FD, which was written by this thread, gets to the disk: between begin and end it is waited for
 * with the rest. 0 or -errno. FD stays the caller's.
 */
int sbx_git_durable_add(int fd);
#define SBX_GIT_TOGETHER 64 /* files that are waited for at once */
/*
 * Hands files that this thread would wait for to another thread. Take moves them to FDS and
 * returns how many there are. Give takes N of FDS over and closes them when they have been waited
 * for: at once without a begin. 0 or -errno.
 */
unsigned sbx_git_durable_take(int fds[SBX_GIT_TOGETHER]);
/* Takes over N descriptors of sbx_git_durable_take, also on failure. 0 or -errno. */
int sbx_git_durable_give(const int *fds, unsigned n);

/*
 * FD, a file without a name that is on its way to the disk (-1: none): where this thread's libgit2
 * is about to write out a file of the same content, mode and owner before it gets its name, that is
 * FD itself, and it is FD that is waited for. Borrowed, until it is set to -1.
 */
void sbx_git_durable_spare(int fd);

/* Files that libgit2 has had written out or synced on this thread. For tests. */
unsigned sbx_git_durable_count(void);

/*
 * Has the ref NAME of the repository in COMMON, with all that was written for it before, on the
 * disk. What is not a loose ref is as old as the file of packed ones. 0 or a negative errno.
 */
int sbx_git_durable_ref(const char *common, const char *name);

#endif
