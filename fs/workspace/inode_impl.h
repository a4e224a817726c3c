/*
 * Declarations that the files inode*.c share: inode.c is the table of nodes, inode_fd.c their
 * descriptors, inode_lookup.c their names, inode_ident.c the identity of a file.
 *
 * One mutex guards the table, the names and the descriptor lists. It is never held over a system
 * call that can wait. So files are opened outside it, and a thread that finds another was quicker
 * drops its own descriptor.
 */
#ifndef SANDBOXFS_FS_WORKSPACE_INODE_IMPL_H
#define SANDBOXFS_FS_WORKSPACE_INODE_IMPL_H

#include <fcntl.h>
#include <pthread.h>
#include <sys/types.h>

#include "fs/sandbox/registry.h"
#include "fs/workspace/inode.h"
#include "sandboxfs/clock.h"
#include "sandboxfs/loop.h"

#define RECENT 4096

/*
 * The attributes of a regular file that the kernel was told last. It compares them with those
 * that its copy of the contents has.
 */
struct sbx_told {
	int64_t ctime; /* ns; 0: what changes yet may leave the same */
	int64_t mtime; /* ns, as it was told, which may be one off */
	off_t size;
	uint32_t changes;  /* sbx_ident.changes then */
	uint32_t again_ms; /* since when it is to be told again, if AGAIN */
	bool any, again;
};

struct sbx_node {
	uint32_t index, generation;
	uint8_t kind, which;
	bool hashed, own_fifo;
	bool nameless; /* its last name was taken away through the mount */
	bool steep;    /* a link with ".." behind a name: see sbx_node_steep */
	bool apart;    /* its descriptor is a copy, which is no other's */
	bool paged;    /* the kernel may have contents of it: they were asked for */
	bool split;    /* others may be the same file: see sbx_node_split; atomic */
	bool recent;   /* it is among the recent ones of the table */
	mode_t type;   /* S_IFMT of a file */
	uint32_t refs;
	uint32_t seen_ms; /* when it was looked up last */
	uint64_t nlookup;
	struct sbx_box *box;     /* a reference */
	struct sbx_node *parent; /* a reference */
	char *name;
	dev_t dev;
	ino_t ino;
	int64_t born;          /* birth time, ns */
	int64_t copied;        /* that of its copy, once it was seen copied up; else 0 */
	uint32_t seen_changes; /* sbx_ident.changes of what was seen last */
	struct sbx_told told;
	struct sbx_node *hash_next;
	/* Where the link to it is in the list of its sandbox's nodes; NULL: it is in none. */
	struct sbx_node **box_link;
	struct sbx_node *box_next;
	struct sbx_fd *fd;
};

struct sbx_inodes {
	pthread_mutex_t lock; /* everything below */
	struct sbx_node **slot;
	uint32_t slots, used, free_head; /* 0: none */
	uint32_t *next_free;
	uint32_t *generation;
	struct sbx_node **hash;
	uint32_t buckets; /* a power of two */
	uint64_t nodes;
	uint32_t renewed_ms;   /* what was looked up before is looked up again */
	uint32_t round;        /* of sbx_inodes_shed */
	struct sbx_fd lru;     /* ring of unpinned descriptors, most recent first */
	struct sbx_fd pins;    /* ring of pinned ones, the last one pinned first */
	struct sbx_fd leaving; /* ring of those that are no node's any more and not closed yet */
	pthread_cond_t closed; /* one of them is */
	unsigned waiting;      /* for that */
	unsigned nfds, npinned, max_fds;
	/* Ids of files without a descriptor that were looked up while no job ran; a ring. */
	uint64_t recent[RECENT];
	uint32_t recent_at, nrecent;           /* where the next one goes; how many there are */
	struct sbx_fd *dead;                   /* by dead_next; closed when the lock is given up */
	void (*gone)(uint64_t id, void *data); /* or NULL */
	void *gone_data;
};

/* The identity of a file. */
struct sbx_ident {
	dev_t dev;
	ino_t ino;
	int64_t born;
	mode_t type;
	/* Of sbx_ident_child only: as of a node; directories that a link climbs, UINT_MAX: all. */
	bool steep;
	unsigned climbs;
	/* sbx_box.changes, the same before and after, while no job ran; else 0: others may have
	 * been changing it. */
	uint32_t changes;
	bool planted; /* set by who looks at directories: fs/workspace/gitdir.h */
};

/* Whether F is open for writing. */
static inline bool sbx_fd_writes(const struct sbx_fd *f)
{
	return f->mode == O_WRONLY || f->mode == O_RDWR;
}

/* Whether a job runs. */
static inline bool sbx_node_busy(const struct sbx_node *node)
{
	return __atomic_load_n(&node->box->busy, __ATOMIC_SEQ_CST);
}

/* Of a clock that wraps around: good for differences. */
static inline uint32_t sbx_inodes_now_ms(void)
{
	return (uint32_t)sbx_now_ms();
}

/* Takes the table's lock. Nothing that can wait may be done until sbx_inodes_unlock. */
void sbx_inodes_lock(struct sbx_inodes *tab);
/* Closes what was given up while the lock was held. */
void sbx_inodes_unlock(struct sbx_inodes *tab);

/* ---- inode.c; with the lock held ---- */

/* The hash of an identity: KIND and WHICH, and of a file its BOX (NULL at the top), DEV and INO. */
uint64_t sbx_node_hash(unsigned kind, unsigned which, const struct sbx_box *box, dev_t dev,
                       ino_t ino);
/* Puts NODE where its identity is looked for. */
void sbx_inodes_hash(struct sbx_inodes *tab, struct sbx_node *node);
/* Takes NODE away from where its identity is looked for. Accepts one that is not there. */
void sbx_inodes_unhash(struct sbx_inodes *tab, struct sbx_node *node);
/* The known file node with that identity; one that merely had the number before is unhashed. */
struct sbx_node *sbx_node_find_file(struct sbx_inodes *tab, struct sbx_box *box,
                                    const struct sbx_ident *id);
/* A zeroed node in a slot of its own, with one reference: 0 or -ENOMEM. */
int sbx_node_new(struct sbx_inodes *tab, enum sbx_node_kind kind, struct sbx_box *box,
                 struct sbx_node **ret);
/* The node with that id, or NULL. */
struct sbx_node *sbx_node_at(struct sbx_inodes *tab, uint64_t id);
/* Frees nodes that nobody needs, from NODE up through its parents. */
void sbx_node_release(struct sbx_inodes *tab, struct sbx_node *node);

/* ---- inode_fd.c; with the lock held ---- */

/* Sets up the empty rings of a new table. */
void sbx_fds_init(struct sbx_inodes *tab);
/* Frees F, which is closed. */
void sbx_fd_free(struct sbx_fd *f);
/* Takes the descriptor out of its ring; it is closed by sbx_inodes_unlock, or by the last put. */
void sbx_fd_drop(struct sbx_inodes *tab, struct sbx_fd *f);
/*
 * Makes FD the node's descriptor and returns it with a reference; a narrower one the node had
 * is dropped. Takes FD over, also on failure: NULL.
 */
struct sbx_fd *sbx_fd_install(struct sbx_inodes *tab, struct sbx_node *node, int fd, int mode);
/* Gives the node the descriptor F, which has a reference, for as long as it lives; or no longer
 * than others. */
void sbx_fd_pin(struct sbx_inodes *tab, struct sbx_node *node, struct sbx_fd *f);
/* Makes F, which is pinned, one of the descriptors that go when they are not used. */
void sbx_fd_unpin(struct sbx_inodes *tab, struct sbx_fd *f);
/*
 * A new node without a descriptor was looked up. Returns whether it is to have one at once
 * (sbx_node_fd), because a job runs; else it is remembered as recent.
 */
bool sbx_fd_wanted(struct sbx_inodes *tab, struct sbx_node *node);

/* ---- inode_ident.c; any thread ---- */

/* The status and identity of NAME in DIRFD ("": of DIRFD itself), a file of BOX: 0 or -errno. */
int sbx_ident_at(const struct sbx_box *box, int dirfd, const char *name, struct stat *st,
                 struct sbx_ident *id);
/* Whether ID is one of the node's file. */
bool sbx_node_is(const struct sbx_node *node, const struct sbx_ident *id);
/* Notes the birth of the copy if ID is one of the node's file, which was in the base. Lock held. */
void sbx_node_note_copy(struct sbx_node *node, const struct sbx_ident *id);
/* Whether the node's file is in the base, as far as is known. */
bool sbx_node_may_be_copied(const struct sbx_node *node);
/*
 * Whether what is found where the node was seen last is still its file. An ordinary user's overlay
 * forgets, when the kernel is short of memory, which number a copied-up file had in the base: it
 * then has that of the copy, which is known by its birth.
 */
bool sbx_node_is_still(const struct sbx_node *node, const struct sbx_ident *id);

#endif
