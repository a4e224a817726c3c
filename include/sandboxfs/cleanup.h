/*
 * Scope-exit attributes. A local marked with one of these is released when it
 * goes out of scope; on success hand the value over with sbx_steal_fd() or
 * sbx_steal_ptr(), which leave an empty value behind.
 */
#ifndef SANDBOXFS_CLEANUP_H
#define SANDBOXFS_CLEANUP_H

#include <dirent.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define _cleanup_(fn)  __attribute__((cleanup(fn)))
#define _cleanup_free_ _cleanup_(sbx_cleanup_free)
#define _cleanup_fd_   _cleanup_(sbx_cleanup_fd)
#define _cleanup_file_ _cleanup_(sbx_cleanup_file)
#define _cleanup_dir_  _cleanup_(sbx_cleanup_dir)

/* Frees the pointer at P, which may be NULL; the variable keeps its value. */
static inline void sbx_cleanup_free(void *p)
{
	free(*(void **)p);
}

/* Closes *fd when it is open (>= 0), sets it to -1; errno is kept. */
static inline void sbx_cleanup_fd(int *fd)
{
	if (*fd >= 0) {
		int saved = errno;

		close(*fd);
		errno = saved;
		*fd = -1;
	}
}

/*
 * Closes *F unless it is NULL. Errors of the last write are lost: close by hand what was written.
 */
static inline void sbx_cleanup_file(FILE **f)
{
	if (*f)
		fclose(*f);
}

/* Closes *D unless it is NULL, and its descriptor with it. */
static inline void sbx_cleanup_dir(DIR **d)
{
	if (*d)
		closedir(*d);
}

/* The descriptor at FD, which is the caller's from here on; *FD becomes -1. */
static inline int sbx_steal_fd(int *fd)
{
	int stolen = *fd;

	*fd = -1;
	return stolen;
}

/* Use sbx_steal_ptr(), which keeps the type. The pointer at P; *P becomes NULL. */
static inline void *sbx_steal_ptr_(void **p)
{
	void *stolen = *p;

	*p = NULL;
	return stolen;
}
#define sbx_steal_ptr(pp) ((__typeof__(*(pp)))sbx_steal_ptr_((void **)(pp)))

#define SBX_ARRAY_SIZE(a)                 (sizeof(a) / sizeof((a)[0]))
#define sbx_container_of(p, type, member) ((type *)((char *)(p)-offsetof(type, member)))

#endif
