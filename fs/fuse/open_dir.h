/*
 * Directories that are open on a connection. The kernel does not tell of those that are closed
 * while it lets go of the mount, so the connection knows all of them. Thread-safe.
 */
#ifndef SANDBOXFS_FS_FUSE_OPEN_DIR_H
#define SANDBOXFS_FS_FUSE_OPEN_DIR_H

#include <fuse_lowlevel.h>
#include <pthread.h>

#include "fs/fuse/listing.h"

/* Its listing is taken at the first read and again after rewinddir. */
struct sbx_open_dir {
	pthread_mutex_t lock;        /* listing */
	struct sbx_listing *listing; /* or NULL */
	/* private: */
	struct sbx_open_dir *prev, *next;
};

struct sbx_open_dirs {
	pthread_mutex_t lock;
	struct sbx_open_dir *first;
};

/* An empty set; finish it. */
void sbx_open_dirs_init(struct sbx_open_dirs *dirs);
/* Closes all. No request is being served any more. */
void sbx_open_dirs_finish(struct sbx_open_dirs *dirs);

/* One more, with LISTING (NULL: not taken yet), whose reference becomes its own, as FI's handle.
 * NULL: no memory. */
struct sbx_open_dir *sbx_open_dir_add(struct sbx_open_dirs *dirs, struct sbx_listing *listing,
                                      struct fuse_file_info *fi);
/* The open directory that FI's handle is. */
struct sbx_open_dir *sbx_open_dir_of(const struct fuse_file_info *fi);
/* Takes D out of the set and frees it with its reference to the listing. */
void sbx_open_dir_close(struct sbx_open_dirs *dirs, struct sbx_open_dir *d);

#endif
