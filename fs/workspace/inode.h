/*
 * Identity: kernel node ids to what they mean.
 *
 * A node id is a table index with a generation, never a pointer: a guessed or forgotten id
 * answers ESTALE. A file is known by its backing (device, inode, birth time) and found again by
 * parent and name, opened without following links and compared with that identity; no descriptor is
 * kept per inode, only a bounded least-recently-used set of them. What is
 * unlinked or replaced through the mount is held open until the kernel forgets it,
 * since no name leads to it any more. What a command does that to is reached as long as it is in
 * that set (sbx_inodes_job_starts); then it is stale, and never another file.
 *
 * All functions are thread-safe. A struct sbx_node is used between sbx_node_get (or lookup) and
 * sbx_node_put; a struct sbx_fd until sbx_fd_put.
 */
#ifndef SANDBOXFS_FS_WORKSPACE_INODE_H
#define SANDBOXFS_FS_WORKSPACE_INODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

struct sbx_box;
struct sbx_inodes;
struct sbx_node;

enum sbx_node_kind {
	SBX_NODE_ROOT,    /* MNT */
	SBX_NODE_TEXT,    /* MNT/README, MNT/SKILL.md: which of sbx_top_files */
	SBX_NODE_CTL,     /* MNT/ctl and NAME/ctl: a link to the controls */
	SBX_NODE_ALIAS,   /* NAME/stdout, stderr, status: links to the control files */
	SBX_NODE_BOX,     /* MNT/NAME */
	SBX_NODE_FILE,    /* everything below it */
	SBX_NODE_GITFILE, /* NAME/.git, as the daemon wrote it */
};

#define SBX_NODE_ROOT_ID 1 /* FUSE_ROOT_ID */

/* An open descriptor of a node, kept while it is used and for some time after. */
struct sbx_fd {
	int fd;
	int mode; /* O_PATH, O_RDONLY, O_WRONLY or O_RDWR */
	int refs;
	bool pinned;               /* not to be dropped: no name leads to the file */
	bool awaited;              /* somebody has waited in vain for it to be closed */
	uint32_t pinned_ms;        /* since when; of sbx_inodes_now_ms */
	uint32_t used_ms;          /* when it was asked for last; of sbx_inodes_now_ms */
	uint32_t round;            /* of sbx_inodes_shed, that has seen it last */
	struct sbx_node *node;     /* NULL once it is no longer the node's descriptor */
	const struct sbx_box *box; /* whose it was then; only to be compared */
	struct sbx_fd *lru_prev, *lru_next;
	struct sbx_fd *dead_next;
};

enum sbx_fd_want { SBX_FD_PATH, SBX_FD_READ, SBX_FD_WRITE };

/* MAX_FDS descriptors are kept at most (pinned ones beside them, at most as many). */
int sbx_inodes_create(unsigned max_fds, struct sbx_inodes **ret);
/*
 * Has FN called with the id of each node that goes because the kernel has forgotten it: the id
 * means nothing any more. FN is quick and calls nothing of this file. Before the first lookup.
 */
void sbx_inodes_on_gone(struct sbx_inodes *tab, void (*fn)(uint64_t id, void *data), void *data);
/* No node is in use any more. Accepts NULL. */
void sbx_inodes_destroy(struct sbx_inodes *tab);

/* -ESTALE: no such node (any more), or its sandbox is gone. */
int sbx_node_get(struct sbx_inodes *tab, uint64_t id, struct sbx_node **ret);
void sbx_node_put(struct sbx_inodes *tab, struct sbx_node *node); /* accepts NULL */
/* The kernel forgets N lookups of ID. */
void sbx_node_forget(struct sbx_inodes *tab, uint64_t id, uint64_t n);

/* The id of NODE that the kernel is told; constant, and never used again. */
uint64_t sbx_node_id(const struct sbx_node *node);
/* How often the table's place of NODE has been used; part of its id. */
uint32_t sbx_node_generation(const struct sbx_node *node);
enum sbx_node_kind sbx_node_kind(const struct sbx_node *node);
struct sbx_box *sbx_node_box(const struct sbx_node *node); /* borrowed; NULL at the top */
unsigned sbx_node_which(const struct sbx_node *node);      /* of an alias or a text */

/*
 * The node for something that is not a backing file: KIND with BOX (NULL at the top) and WHICH.
 * Counts a lookup; put it as well.
 */
int sbx_node_special(struct sbx_inodes *tab, enum sbx_node_kind kind, struct sbx_box *box,
                     unsigned which, struct sbx_node **ret);
/*
 * Looks NAME up in DIR (a box or a directory below one): stats the backing file and gives its node,
 * counting a lookup. -ENOENT, -ESTALE, -ENOTDIR, -ENOMEM, -EMFILE...
 */
int sbx_node_lookup(struct sbx_inodes *tab, struct sbx_node *dir, const char *name, struct stat *st,
                    struct sbx_node **ret);
/*
 * Whether the kernel knows the file numbered INO as NAME in DIR from a lookup less than a second
 * ago, so that it has no use for another. May say no.
 */
bool sbx_node_fresh(struct sbx_inodes *tab, const struct sbx_node *dir, const char *name,
                    ino_t ino);
/*
 * Whether NODE is a link with ".." behind a name (fs/util/symlink.h), or one that begins above the
 * sandbox's root. It is another node at each lookup, because the kernel keeps the text of a node,
 * and this text is to be judged each time that it is followed.
 */
bool sbx_node_steep(const struct sbx_node *node);
/* The kernel has been told to look everything up again. */
void sbx_inodes_renewed(struct sbx_inodes *tab);
/*
 * As lookup for a file just created whose descriptor FD (MODE, taken over) is kept with it.
 * -ESTALE: it is no regular file; somebody was quicker to make the name.
 */
int sbx_node_adopt(struct sbx_inodes *tab, struct sbx_node *dir, const char *name, int fd, int mode,
                   struct stat *st, struct sbx_node **ret);
/*
 * A FIFO shows as a socket, which fails with ENXIO to open where a FIFO waits for a partner:
 * commands make FIFOs, and whoever reads their files is not to hang. One that was made through the
 * mount and is marked by this stays what it is, as long as the kernel remembers it.
 */
void sbx_node_own_fifo(struct sbx_inodes *tab, struct sbx_node *node, struct stat *st);
/* Whether the file's last name was taken away through the mount. */
bool sbx_node_nameless(struct sbx_inodes *tab, struct sbx_node *node);
/* Attributes of the backing file of a box or file node. */
int sbx_node_stat(struct sbx_inodes *tab, struct sbx_node *node, struct stat *st);

/*
 * Whether NODE, which is as ST says, has or had another name that may show as a file of its own,
 * with a node of its own: what changes by the one is to be asked for by the other, also when a
 * descriptor is all that is left of that. Any thread.
 */
bool sbx_node_split(struct sbx_node *node, const struct stat *st);

/*
 * Which answer of ours has attributes. GETATTR is asked for a program (STAT), or by the kernel for
 * itself before it reads by a descriptor, which it names (READ).
 */
enum sbx_answer { SBX_ANSWER_LOOKUP, SBX_ANSWER_STAT, SBX_ANSWER_READ, SBX_ANSWER_SETATTR };

/*
 * The kernel is going to be told ST, which was just found, of the regular file NODE, changed last
 * at CHANGED_NS (0: a change yet to come may leave the same). It drops what it has of the contents
 * when it is told another size or time of modification than before, but not by the answer to a
 * SETATTR. Where it may have contents (a descriptor for them was asked for), others may have
 * changed those and neither shows it, ST gets a time of modification that is a nanosecond off; but
 * not for a program, which would take it for the file's: then the next answer of another kind has
 * to show it. Requests that overtake each other may keep the kernel from noticing: so one of the
 * later lookups gets such a time as well. Returns whether ST is not to be kept. Any thread.
 */
bool sbx_node_told(struct sbx_inodes *tab, struct sbx_node *node, struct stat *st,
                   int64_t changed_ns, enum sbx_answer answer);

/*
 * A descriptor of the node's backing file, good for WANT. PATH: any kind, also usable with
 * AT_EMPTY_PATH. READ and WRITE: a regular file or directory, opened with the daemon's rights
 * (permission was checked by the kernel when the client opened): a mode that keeps its own owner
 * out is lifted for the moment of opening. -ESTALE no longer where it was, -EMFILE, -EACCES,
 * -EISDIR...
 */
int sbx_node_fd(struct sbx_inodes *tab, struct sbx_node *node, enum sbx_fd_want want,
                struct sbx_fd **ret);
void sbx_fd_put(struct sbx_inodes *tab, struct sbx_fd *fd); /* accepts NULL */

/*
 * Bracket an operation that takes NAME in DIR away (unlink, rmdir, a rename onto it): hold
 * keeps what stands there reachable, if the kernel knows it. Then release it with DONE true
 * when the name is gone: the file stays open until it is forgotten.
 */
struct sbx_hold {
	struct sbx_node *node; /* NULL: the kernel does not know the file */
	struct sbx_fd *fd;
	bool last; /* it is the file's only name */
	/* Where it was seen before, when that was another name of it; a reference, and the
	 * caller's. */
	struct sbx_node *was_in;
	char *was;
};
/*
 * Holds what stands at NAME in DIR. *RET is to be released; its node is NULL where there is
 * nothing to hold.
 */
void sbx_hold_name(struct sbx_inodes *tab, struct sbx_node *dir, const char *name,
                   struct sbx_hold *ret);
/* Ends the hold. DONE: the name is gone, and the file stays open until the kernel forgets it. */
void sbx_hold_release(struct sbx_inodes *tab, struct sbx_hold *hold, bool done);
/* The directory NODE was last seen in, to be put; NULL for a box and above. */
struct sbx_node *sbx_node_parent(struct sbx_inodes *tab, struct sbx_node *node);
/*
 * Notes that the file NAME in DIR was moved through the mount and is NEWNAME in NEWDIR now.
 * Returns whether links moved along, as in sbx_inodes_renew_links.
 */
bool sbx_node_moved(struct sbx_inodes *tab, struct sbx_node *dir, const char *name,
                    struct sbx_node *newdir, const char *newname);
/*
 * The file open at FD may have been copied up by what was done to it. Called before FD is closed:
 * after that an ordinary user's overlay may forget that the copy is the file of the base.
 */
void sbx_node_copied_up(struct sbx_inodes *tab, struct sbx_box *box, int fd);
/*
 * The file or directory open at NEW takes the place of the one open at OLD: who knows that one
 * means this one from now on. Who is reading it goes on with the old. What the kernel has of its
 * contents is outdated, which the next answer shows. Returns the node's id; 0: nobody knows it.
 */
uint64_t sbx_node_replace(struct sbx_inodes *tab, struct sbx_box *box, int old, int new);
/*
 * The links of BOX may mean something else now: each is found as another node from here on. The
 * kernel keeps the texts of those it knows, so it has to be told to look again. Returns whether
 * there are any.
 */
bool sbx_inodes_renew_links(struct sbx_inodes *tab, struct sbx_box *box);
/*
 * A job starts in BOX (box->busy is set). Closes what is open for writing, since the kernel
 * executes no file that is (ETXTBSY), and no client's close is heard of; while the box is busy such
 * descriptors are closed after each use. What the host may have open, as far as it was used or
 * looked up lately, is held by descriptors that only name the file: then it stays what it was when
 * a command moves, replaces or removes it.
 */
void sbx_inodes_job_starts(struct sbx_inodes *tab, struct sbx_box *box);
/*
 * Closes descriptors of large files that have been removed by commands and not been used through
 * the mount for some seconds: they take their place. Looks at some of them, in BEGIN a new round;
 * returns whether it is to be called again. Less than a millisecond.
 */
bool sbx_inodes_shed(struct sbx_inodes *tab, bool begin);
/*
 * A write into BOX found no room. What was removed a moment ago takes its place until the kernel
 * has said that nobody has it open, and a thread has read that: waits until no such file is left,
 * half a second at most, and once for each. Half of the threads that serve the kernel never wait,
 * so that one is there to read it. Any thread.
 */
void sbx_inodes_await_room(struct sbx_inodes *tab, const struct sbx_box *box);
/* Closes every descriptor into BOX that is not in use: it is being torn down. */
void sbx_inodes_drop_box(struct sbx_inodes *tab, struct sbx_box *box);
/*
 * Frees every node of BOX, which is retired, except those that are in use, which go when they are
 * put: their ids mean nothing any more. The kernel may know them for as long as it has the memory,
 * and each refers to BOX. Takes the lock for some of them at a time. Any thread.
 */
void sbx_inodes_forget_box(struct sbx_inodes *tab, struct sbx_box *box);

/*
 * The path of NODE from the root of its sandbox, "" for the box itself, as last seen; for
 * resolving beneath the root. -ENAMETOOLONG, -ESTALE. Writes at most SIZE bytes.
 */
int sbx_node_path(struct sbx_inodes *tab, struct sbx_node *node, char *buf, size_t size);

/* The number of the backing file of a box or file node. Constant while its sandbox's turn is held.
 */
ino_t sbx_node_ino(struct sbx_inodes *tab, struct sbx_node *node);
/* Whether NODE is in a .git that the host made (nested_git.h), out of the commands' reach. */
bool sbx_node_stored(struct sbx_inodes *tab, struct sbx_node *node);

/* For ctl/stats and tests. */
struct sbx_inode_stats {
	uint64_t nodes, fds, pinned;
	unsigned max_fds;
};
/* Counts what the table holds now. */
void sbx_inodes_stats(struct sbx_inodes *tab, struct sbx_inode_stats *ret);

#endif
