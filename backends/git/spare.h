/*
 * Files with the content of a ref that is not there yet. A new sandbox's branch begins at a commit
 * that is known before, so its content is on the disk before it is asked for, and mkdir(2) does not
 * wait for the disk. A spare has no name: it is gone with the daemon.
 */
#ifndef SANDBOXFS_GIT_SPARE_H
#define SANDBOXFS_GIT_SPARE_H

#define SBX_GIT_SPARES 8

struct sbx_git_spares;

/*
 * One that names COMMIT (hexadecimal), on its way to the disk, in the repository in COMMON: a
 * descriptor of the caller's, or -1. Best effort: not every file system has files without a name.
 */
int sbx_git_spare_make(const char *common, const char *commit);

/* Of the repository in COMMON, an absolute path. NULL without memory. */
struct sbx_git_spares *sbx_git_spares_new(const char *common);
void sbx_git_spares_free(struct sbx_git_spares *s); /* accepts NULL */
/*
 * Has SBX_GIT_SPARES that name COMMIT, instead of those of another commit. Blocks. Any thread, one
 * at a time. Best effort.
 */
void sbx_git_spares_fill(struct sbx_git_spares *s, const char *commit);
/* Closes them all, for who lacks descriptors. Any thread; accepts NULL. */
void sbx_git_spares_drop(struct sbx_git_spares *s);
/* One that names COMMIT, a descriptor of the caller's, or -1. Any thread. */
int sbx_git_spares_take(struct sbx_git_spares *s, const char *commit);

#endif
