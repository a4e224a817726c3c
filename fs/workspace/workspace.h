/*
 * The workspace connection: MNT with the sandboxes' files. What its FUSE operations share.
 */
#ifndef SANDBOXFS_FS_WORKSPACE_WORKSPACE_H
#define SANDBOXFS_FS_WORKSPACE_WORKSPACE_H

#include <fuse_lowlevel.h>
#include <stdatomic.h>

#include "fs/fuse/connection.h"
#include "fs/fuse/interrupt.h"
#include "fs/fuse/listing.h"
#include "fs/sandbox/registry.h"
#include "fs/workspace/inode.h"
#include "sandboxfs/loop.h"

struct sbx_channel;

struct sbx_workspace {
	struct sbx_channel *channel;
	const struct sbx_settings *settings;
	struct sbx_registry *registry;
	struct sbx_inodes *inodes;
	struct sbx_deferred *deferred;
	struct sbx_listing_cache *kept;      /* which listings the kernel may go on using */
	struct sbx_forgetter *forgetter;     /* has it drop them; NULL before it has any */
	struct sbx_passthrough *passthrough; /* io=passthrough; else NULL */
	struct sbx_controls *nodes;          /* of the controls, on whatever connection */
	char *controls;     /* absolute path at which the control connection is mounted */
	bool inlined;       /* the controls are on this connection */
	bool away;          /* files of sandboxes may be elsewhere */
	bool opens;         /* the kernel asks for every open */
	bool opendirs;      /* and for every opendir */
	bool epochs;        /* the kernel takes INC_EPOCH */
	atomic_bool handed; /* something was given to the kernel's caches since the last epoch */
	struct sbx_timer sweep;        /* takes back listings that are old; loop thread */
	atomic_bool sweeping;          /* it is armed, or going to be */
	struct sbx_timer shed;         /* gives the place of removed files back; loop thread */
	atomic_bool shedding;          /* it is armed, or going to be */
	atomic_bool shed_again;        /* a job has started or ended since */
	bool shed_goes_on;             /* a round has begun; loop thread */
	pthread_rwlock_t serving_lock; /* held to make use of the members above, beside requests */
	bool serving;                  /* they are there */
	atomic_int busy;               /* sandboxes in which jobs run */
	int64_t mounted_ns;            /* CLOCK_REALTIME */
	_Atomic int64_t top_ns;        /* when the set of sandboxes changed last, 0: not since */
};

/* The operations of the connection. */
extern const struct fuse_lowlevel_ops sbx_workspace_ops;

/*
 * ---- shared by the ops_*.c files ----
 * A request is gone once it is answered: take ws from it first.
 */

/* The workspace of the connection that REQ came from. Not once REQ is answered. */
static inline struct sbx_workspace *ws_of(fuse_req_t req)
{
	return ((struct sbx_connection *)fuse_req_userdata(req))->workspace;
}

/* Answers with a negative errno (or 0). */
void ws_reply(fuse_req_t req, int r);
/* As ws_reply, and stores the sentence for BOX (NULL: the mount); EACCES and EPERM are noted as
 * denials. */
void ws_refuse(fuse_req_t req, struct sbx_box *box, const struct sbx_error *err);
/* As ws_refuse where ERR has a sentence, else as ws_reply of R. */
void ws_answer(fuse_req_t req, struct sbx_box *box, int r, const struct sbx_error *err);
/*
 * Answers R, a failure to reach the file of NODE. That it is gone is explained, unless clients need
 * not hear of it, since the kernel looks for the name again (BY_NAME).
 */
void ws_unreached(fuse_req_t req, struct sbx_node *node, int r, bool by_name);
/* The node of INO, or answers ESTALE and returns NULL. Put it. */
struct sbx_node *ws_node(fuse_req_t req, fuse_ino_t ino);
/*
 * The directory INO of a sandbox (its root included) and its descriptor, for making or renaming
 * NAME in it; ws_put both. Or answers and returns NULL: EPERM with a sentence at the top.
 */
struct sbx_node *ws_dir(fuse_req_t req, fuse_ino_t ino, const char *name, struct sbx_fd **ret);
/* The same for removing NAME from it. */
struct sbx_node *ws_parent(fuse_req_t req, fuse_ino_t ino, const char *name, struct sbx_fd **ret);
/* Notes that something else than a removal is going to be written in the sandbox of NODE. */
void ws_edited(const struct sbx_node *node);
/*
 * Whether what a call on BOX came to, R, is to be tried again: there was no room, and some of what
 * is kept of removed files has been given up for it. *LAST is false at first: when there is nothing
 * more to give up, the call is tried once more, as other threads may have made room since it began.
 */
bool ws_make_room(struct sbx_workspace *ws, struct sbx_box *box, int r, bool *last);
/* Answers an fsync of something of BOX that is synced itself, once all that leads to it is. */
void ws_reply_synced(fuse_req_t req, struct sbx_box *box);
/* Gives back NODE and its descriptor FD. Either may be NULL. */
void ws_put(struct sbx_workspace *ws, struct sbx_node *node, struct sbx_fd *fd);

/* Fills e for NODE with attributes ST. */
void ws_entry(struct sbx_workspace *ws, struct sbx_node *node, const struct stat *st,
              struct fuse_entry_param *e);
/* Answers with the entry NAME in DIR, looking it up. */
void ws_reply_lookup(fuse_req_t req, struct sbx_node *dir, const char *name);
/* Attributes of what is no backing file: top, texts, links. */
void ws_special_stat(struct sbx_workspace *ws, struct sbx_node *node, struct stat *st);
/* Target of a control link, malloc'd; NULL when out of memory. */
char *ws_special_target(struct sbx_workspace *ws, struct sbx_node *node);
/* Looks NAME up at the top or in a box: 0 with the node and st, -ENOENT, ... */
int ws_lookup(struct sbx_workspace *ws, struct sbx_node *dir, const char *name, struct stat *st,
              struct sbx_node **ret);
/* Whether NAME in DIR is the control directory, or the link to it. */
bool ws_is_ctl(struct sbx_workspace *ws, struct sbx_node *dir, const char *name);
/*
 * Whether NAME in DIR is that, a result's name that is shown as a link (stdout, ...), or a text
 * at the top.
 */
bool ws_is_control(struct sbx_workspace *ws, struct sbx_node *dir, const char *name);
/* Whether NAME in DIR is the .git that the daemon shows in a sandbox's root. */
bool ws_is_gitfile(const struct sbx_node *dir, const char *name);
/* The text of that .git, borrowed; NULL where the tree's own is shown. NODE is of a sandbox. */
const char *ws_gitfile(const struct sbx_node *node);
/* Answers a read of TEXT. */
void ws_reply_text(fuse_req_t req, const char *text, size_t size, off_t off);

/* The operations, as struct fuse_lowlevel_ops has them. Each answers REQ once, now or later. */

/*
 * A lookup of a sandbox's .git is answered once the tree is guarded against host git, because host
 * git goes by that file.
 */
void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name);
/* The kernel drops N lookups of INO; nothing is answered. */
void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t n);
/* The same of COUNT nodes. */
void op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets);
/*
 * ENOSYS where the kernel need not ask for opens of directories. Else tells it whether it may use
 * its copy of the listing.
 */
void op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
/*
 * The names in INO from OFF on. Controls are not among them unless ctl_listed is set, because
 * `rm -rf` would meet them.
 */
void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
/* The same with attributes; an entry that has them counts as a lookup. */
void op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                    struct fuse_file_info *fi);
/* Has nothing to give back. */
void op_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
/* Syncs the directory, then all that leads to it. At the top it does nothing. */
void op_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);
/* At the top it makes a sandbox, and the answer is deferred. */
void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode);
/* At the top it tears a sandbox down, and the answer is deferred. */
void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name);
/* Makes a file, FIFO or socket. EPERM with a sentence for devices, setuid and setgid. */
void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev);
/* EACCES with a sentence where the link would lead out of the sandbox. */
void op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name);
/* EPERM for what is no file of the tree; EXDEV between sandboxes. */
void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t newparent, const char *newname);
/* The file is held while it is removed, since it stays open where the kernel knows it. */
void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name);
/*
 * At the top it renames a sandbox, and the answer is deferred. EINVAL for other flags than
 * RENAME_NOREPLACE and RENAME_EXCHANGE.
 */
void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t newparent,
               const char *newname, unsigned flags);
/* EACCES with a sentence for a link that leads out of the sandbox. */
void op_readlink(fuse_req_t req, fuse_ino_t ino);
/*
 * Makes and opens a regular file; the descriptor is always for reading and writing, since others
 * may read back by mmap what is written.
 */
void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
               struct fuse_file_info *fi);
/* ENOSYS where the kernel need not ask for opens. An open for writing counts as a write. */
void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
/* Has nothing to write out. ENOSYS where opens are not asked for. */
void op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
/* Counts one open of INO less, for io=passthrough. */
void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
/* Spliced from the file where its descriptor is read only, else copied. */
void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
/*
 * With O_APPEND the file itself appends, since a command may append at the same time. Tries again
 * when room could be made.
 */
void op_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off,
              struct fuse_file_info *fi);
/* Syncs the file, then all that leads to it. */
void op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);
/* As fallocate(2); tries again when room could be made. */
void op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off, off_t len,
                  struct fuse_file_info *fi);
/* As copy_file_range(2), also between sandboxes; tries again when room could be made. */
void op_copy_file_range(fuse_req_t req, fuse_ino_t in, off_t in_off, struct fuse_file_info *in_fi,
                        fuse_ino_t out, off_t out_off, struct fuse_file_info *out_fi, size_t len,
                        int flags);
/* As lseek(2), for SEEK_DATA and SEEK_HOLE; others are the kernel's. */
void op_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi);
/* Of a file of the tree from its descriptor; others are made up. */
void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
/*
 * EPERM for what is no file of the tree. Tries again when room could be made, since a file of the
 * base is copied first.
 */
void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int set,
                struct fuse_file_info *fi);
/*
 * Comes on a mount of root's that others may enter: EACCES for X_OK of a file that nobody may
 * execute.
 */
void op_access(fuse_req_t req, fuse_ino_t ino, int mask);
/* Of the file system that INO is on; at the top, of the state directory's. */
void op_statfs(fuse_req_t req, fuse_ino_t ino);
/* EOPNOTSUPP for all but user.*. */
void op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size);
/*
 * EOPNOTSUPP for system.*, EPERM with a sentence for others but user.*. Tries again when room
 * could be made.
 */
void op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size,
                 int flags);
/* Only names in user.*. */
void op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size);
/* EPERM with a sentence for all but user.*. */
void op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name);

#endif
