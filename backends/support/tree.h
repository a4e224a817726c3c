/*
 * Whole directory trees: removing (sandboxfs/tree.h) and copying. Both operations use a handful of
 * descriptors and no recursion however deep the tree is, never build a path, and never follow a
 * symlink.
 */
#ifndef SANDBOXFS_SUPPORT_TREE_H
#define SANDBOXFS_SUPPORT_TREE_H

#include <stdatomic.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "backends/support/fsutil.h"
#include "sandboxfs/error.h"
#include "sandboxfs/identity.h"
#include "sandboxfs/tree.h"

/* An entry that a copy leaves out: NAME in the directory with this identity. */
struct sbx_skip {
	dev_t dev;
	ino_t ino;
	const char *name;
};

/* Identifies PATH by its parent, so that PATH itself, which may be a mount, is not touched. The
 * name points into PATH. Returns 0 or -errno. */
int sbx_skip_path(const char *path, struct sbx_skip *ret);

struct sbx_copy {
	int src;                      /* directories open for reading, borrowed */
	int dst;                      /* empty; receives mode and times of src */
	int links;                    /* an empty directory beside dst for the copy's own use */
	const struct sbx_skip *skips; /* may be NULL */
	size_t nskips;
	bool ours;  /* what is copied is a sandbox's: a file that its mode closes to its owner is
	               opened all the same */
	bool layer; /* an upper layer of overlayfs: whiteouts and its attributes too */
	const struct sbx_identity *owner; /* of the copies; NULL: the caller's */
	atomic_bool *cancelled;           /* polled; may be NULL */
	/*
	 * Called for each file and link whose copy is that of ST, which it was all the while, at
	 * PATH from the top. Non-zero ends the copy and is returned. May be NULL.
	 */
	int (*copied)(const char *path, const struct stat *st, void *data);
	void *data;
	/*
	 * Called for each file NAME in the directory DIR, open as IN: 1, and *RET, malloc'd, is
	 * what its copy has instead, 0 or -errno. May be NULL.
	 */
	int (*rewrite)(int dir, const char *name, int in, char **ret);
	uint64_t skipped;      /* result: sockets and devices left out */
	uint64_t files, bytes; /* result: copied, on disk */
};

/*
 * Copies the contents of src: data (shared with the source where the file system can), mode without
 * setuid and, but for directories, setgid, times in ns, symlinks as they are, hard links among
 * themselves, user.* attributes, FIFOs. Crosses into other file systems. On failure what was copied
 * stays, for the caller to remove. EINTR cancelled, ESTALE the source was moved about meanwhile,
 * ENOSPC, EDQUOT, EMFILE, EACCES. Blocks.
 */
int sbx_tree_copy(struct sbx_copy *copy, struct sbx_error *err);

/*
 * Copies the entry NAME of copy->src to copy->dst, which has none of that name, as sbx_tree_copy
 * would: TYPE is its d_type, and no directory's. 0 or a negative errno: ESTALE it is something else
 * by now. Threads may copy at once with a struct sbx_copy of their own, also into one directory.
 */
int sbx_copy_entry(struct sbx_copy *copy, const char *name, unsigned char type);

/* A stack of the directories above the current one, each with the subdirectories still to be
 * visited; shared by the two operations. */
struct sbx_level {
	char *name;              /* of this directory in the one above; NULL at the top */
	struct sbx_strings todo; /* subdirectories */
	dev_t dev;               /* identity, to know it again when coming back through ".." */
	ino_t ino;
};

struct sbx_levels {
	struct sbx_level *items;
	size_t n, cap;
};

/* Enters the directory FD. NAME is taken over, also on failure. 0 or -errno. */
int sbx_levels_push(struct sbx_levels *levels, char *name, int fd);
/* Leaves the top directory, which is there. Opens nothing. */
void sbx_levels_pop(struct sbx_levels *levels);
/* Frees all levels; the stack is empty. */
void sbx_levels_release(struct sbx_levels *levels);
/* The directory on top of a stack that is not empty; valid until the next push or pop. */
struct sbx_level *sbx_levels_top(struct sbx_levels *levels);
/* Opens ".." of FD, the directory above the top; ESTALE when that is another one. Descriptor or
 * -errno. */
int sbx_levels_up(const struct sbx_levels *levels, int fd);
/* "a/b/NAME" from the top of the tree; the caller's, NULL without memory. */
char *sbx_levels_path(const struct sbx_levels *levels, const char *name);

#endif
