/*
 * Control files: what stands in MNT/ctl and NAME/ctl. One table per directory
 * (fs/control/control.c) with a row per file: name, mode, how it is read and written. Nothing here
 * knows FUSE; fs/control/ops.c translates.
 *
 * A control node names a directory or a file of the tree:
 *   the controls root            (SBX_CTL_ROOT: holds ".mount" and one directory per sandbox, by
 * name when listed and by ".NUMBER" when looked up, stable under mv) .mount/... MNT/ctl NAME/...,
 * NAME/jobs/ID/..., NAME/limits/..., NAME/snapshots/ID/..., NAME/diffs/RANGE
 */
#ifndef SANDBOXFS_FS_CONTROL_CONTROL_H
#define SANDBOXFS_FS_CONTROL_CONTROL_H

#include <sys/stat.h>

#include "fs/sandbox/registry.h"
#include "fs/util/reply.h"

struct sbx_control_row; /* one line of a table */
struct sbx_item;        /* what is named below snapshots/ and diffs/ */
struct sbx_buffer;      /* a client's own file beside the controls, see fs/control/save_buffer.h */

/* Value type: which node. Holds references; copy with sbx_control_node_copy. */
struct sbx_control_node {
	const struct sbx_control_row *row;
	struct sbx_box *box;       /* NULL in .mount and the root */
	struct sbx_jobrec *job;    /* NULL outside jobs/ID */
	struct sbx_item *item;     /* NULL outside snapshots/ID and diffs/ */
	struct sbx_buffer *buffer; /* NULL unless it is one */
};

struct sbx_control_handle; /* an open file or directory */

/* The controls root, which belongs to no sandbox. */
void sbx_control_root(struct sbx_control_node *ret);
/* The directory NAME/ctl of BOX. Takes a reference; release *ret. */
void sbx_control_box_node(struct sbx_box *box, struct sbx_control_node *ret);
/* The directory MNT/ctl. Release *ret. */
void sbx_control_mount_node(struct sbx_control_node *ret);
/* Makes *RET the same node as *FROM, with references of its own. */
void sbx_control_node_copy(const struct sbx_control_node *from, struct sbx_control_node *ret);
/* Drops the node's references. */
void sbx_control_node_release(struct sbx_control_node *node);
/* Whether both name the same file. */
bool sbx_control_node_same(const struct sbx_control_node *a, const struct sbx_control_node *b);

/* Each returns 0 or -errno and is called on FUSE workers: none waits for more than the local disk.
 */
int sbx_control_lookup(struct sbx_registry *reg, const struct sbx_control_node *dir,
                       const char *name, struct sbx_control_node *ret);
/* Mode, size (true), nlink, times, blksize 1 MiB. Not st_ino, st_uid, st_gid. */
int sbx_control_getattr(struct sbx_registry *reg, const struct sbx_control_node *node,
                        struct stat *st);
/* Whether NODE is a directory of a snapshot that git takes for a repository. */
bool sbx_control_planted(const struct sbx_control_node *node);
/* Calls fn(name, mode, data) for each listed entry. */
int sbx_control_list(struct sbx_registry *reg, const struct sbx_control_node *dir,
                     void (*fn)(const char *name, mode_t mode, void *data), void *data);
/*
 * Answers P with the target of a symlink node: jobs/last, or a link of a snapshot. -EACCES where
 * that would lead out of the snapshot.
 */
void sbx_control_readlink(struct sbx_registry *reg, const struct sbx_control_node *node,
                          struct sbx_pending *p);
/* Whether NODE is a directory of the controls. */
bool sbx_control_is_dir(const struct sbx_control_node *node);
/* Whether a write to the file may wait: each lookup then gets a node id of its own,
 * because the kernel holds the lock of an inode while it is written to. */
bool sbx_control_waits(const struct sbx_control_node *node);
/* Whether its attributes never change, so that a path through it need not ask for them. */
bool sbx_control_steady(const struct sbx_control_node *node);
/* Whether its name means the same for as long as the sandbox is there. */
bool sbx_control_kept(const struct sbx_control_node *node);
/* Whether its content never changes and is as long as its attributes say: the kernel may keep it.
 */
bool sbx_control_constant(const struct sbx_control_node *node);
/* 64-bit number that is the same for the same file every time (st_ino). */
uint64_t sbx_control_ino(const struct sbx_control_node *node);

/*
 * mkdir jobs/NAME, which prepares a job; elsewhere -EPERM. Release *ret. -EEXIST, -EINVAL,
 * -ESTALE.
 */
int sbx_control_mkdir(struct sbx_registry *reg, const struct sbx_control_node *dir,
                      const char *name, struct sbx_control_node *ret);
/*
 * rmdir jobs/ID, which forgets the job; elsewhere -EPERM, but with ctl_listed it does nothing
 * there. -EBUSY: the job is running. -ENOENT.
 */
int sbx_control_rmdir(struct sbx_registry *reg, const struct sbx_control_node *dir,
                      const char *name);

/*
 * Opens a file. FLAGS as in open(2). -EACCES against the mode (root too), -EOPNOTSUPP for a feature
 * that this backend does not have (with a sentence in error), -ESTALE sandbox gone.
 */
int sbx_control_open(struct sbx_registry *reg, const struct sbx_control_node *node, int flags,
                     struct sbx_control_handle **ret);
/* Reads up to p->size bytes at OFF; offset-free files (exec, spawn, run, events, wait) ignore off.
 */
void sbx_control_read(struct sbx_control_handle *h, uint64_t off, struct sbx_pending *p);
/* Writes; the answer is the count LEN or the errno (and the sentence is stored). */
void sbx_control_write(struct sbx_control_handle *h, const void *buf, size_t len, uint64_t off,
                       struct sbx_pending *p);
/* Whether a part of a request has been written, and nothing is under way. */
bool sbx_control_unfinished(struct sbx_control_handle *h);
/*
 * Takes what is unfinished, if there is anything; error(p, 0) when all is well. Also for fsync.
 * BROKEN: whoever wrote it has died meanwhile, so it is no request: it is refused with ECANCELED.
 */
void sbx_control_flush(struct sbx_control_handle *h, bool broken, struct sbx_pending *p);
/*
 * Writes DATA, taken over, malloc'd, as all that the file NODE is to hold: what has no final
 * newline is whole as well. The answer is error(p, 0) when it has been carried out, or the errno
 * that opening, writing or closing would have got; the sentence is stored. -EOPNOTSUPP also for
 * run, whose answer is read on the file that was written.
 */
void sbx_control_save(struct sbx_registry *reg, const struct sbx_control_node *node, char *data,
                      size_t len, struct sbx_pending *p);
/* truncate(2) of a control file: accepted and ignored (O_TRUNC of a redirection). */
int sbx_control_truncate(struct sbx_registry *reg, const struct sbx_control_node *node);
/* Closes H and drops what is unfinished. Nothing may be under way. */
void sbx_control_release(struct sbx_control_handle *h);
/* As sbx_control_flush, with nobody to answer, and then sbx_control_release, perhaps later. */
void sbx_control_close(struct sbx_control_handle *h, bool broken);
/* sbx_control_ino of the file. */
uint64_t sbx_control_handle_ino(const struct sbx_control_handle *h);

/* MNT/README and MNT/SKILL.md, as they stand in fs/control/mnt. */
extern const char sbx_readme[], sbx_skill[];

/* The text files at the top of the mount. */
struct sbx_top_file {
	const char *name;
	const char *text;
};
#define SBX_TOP_FILES 2
extern const struct sbx_top_file sbx_top_files[SBX_TOP_FILES];

#endif
