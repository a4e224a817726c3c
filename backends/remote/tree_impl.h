/*
 * The parts of the copy among themselves; see tree.h.
 *
 * LOCKS. The turn of the sandbox comes first: held alone by whoever changes the copy for the
 * machine, so that no operation is half done. Then the tree's lock, for what is in memory; no
 * system call is made under it. A node is freed with both held, so who has either may keep one.
 */
#ifndef SANDBOXFS_BACKENDS_REMOTE_TREE_IMPL_H
#define SANDBOXFS_BACKENDS_REMOTE_TREE_IMPL_H

#include <pthread.h>
#include <sys/stat.h>

#include "backends/remote/tree.h"
#include "sandboxfs/loop.h"

#define REMOTE_CHUNK ((uint64_t)1 << 20)
#define REMOTE_WHOLE ((uint64_t)8 << 20)  /* files up to here come as a whole */
#define REMOTE_LARGE ((uint64_t)1 << 40)  /* files above it do not come at all */
#define REMOTE_NODES ((size_t)1 << 20)    /* that a machine may have in a tree */
#define REMOTE_FILL  ((uint64_t)16 << 20) /* contents that come with the first manifest */
#define REMOTE_SMALL ((uint64_t)1 << 20)  /* files that come along with one beside them */

enum remote_state {
	REMOTE_ABSENT,
	REMOTE_PART, /* the chunks that are marked are here */
	REMOTE_HERE,
};

/* A failure that is remembered, for all whom it concerns. */
struct remote_failure {
	unsigned refs;
	uint64_t until_ns;
	struct sbx_error err;
};

/* What is known of a directory besides. */
struct remote_dir {
	struct remote_node *parent; /* NULL: of the root, and of what is nowhere in the tree */
	struct remote_node *child, *sibling;
	struct remote_node *next; /* of the same hash of parent and name */
	char *name;
	bool listed;       /* all its names are here */
	bool lags;         /* and there may be more to know: where it is listed, it is again */
	uint64_t again;    /* the question that last had it listed again: its number */
	bool asked;        /* a listing of it is under way */
	size_t crowd;      /* directories at most in the request that lists it; 0: any number */
	uint64_t turn;     /* when it came to be listed or to be where it is; see remote_ask */
	uint64_t fresh_ns; /* of its last listing, CLOCK_MONOTONIC */
	int64_t there_ns;  /* the manifest that was last heard that has it, listed or not */
};

/* What a machine says of one state of a file. */
struct remote_version {
	uint64_t ino, size; /* ino 0: not known */
	int64_t mtime_ns;
	int64_t ctime_ns; /* 0: not known, as after what the host has done with the file */
};

/* What is known by the number of an inode of the copy. */
struct remote_node {
	struct remote_node *next; /* of the same hash */
	uint64_t ino;
	mode_t type;   /* S_IFMT */
	bool gone;     /* its name is; open descriptors may stay */
	bool replaced; /* and another file took it, at replaced_ns */
	bool dirty;    /* a regular file: the host has changed it, and the machine does not know */
	bool again;    /* since it was opened to be sent */
	bool racy;     /* its contents may be older than its version, though that is the same */
	unsigned lost; /* times that it was not found where it was looked for */
	enum remote_state state;
	struct remote_version version;
	/* The manifest that was last heard about it, or what is in it, as of remote_news.begun_ns.
	 */
	int64_t told_ns;
	uint64_t bytes; /* that are counted in the tree's */
	uint64_t used;
	uint64_t *chunks;               /* of REMOTE_PART: a bit for each */
	uint64_t coming, coming_end;    /* chunks that are under way */
	uint64_t retry_ns;              /* not asked for before; replaced_ns of what is replaced */
	struct remote_failure *failure; /* NULL: none */
	struct remote_dir *dir;         /* NULL: it is none */
	uint64_t astray_ns;             /* when it was last not where it was asked for; 0: never */
	char *elsewhere;                /* the name that it was found by then; or NULL */
	char *heir; /* of a file with several names: the path of one that is another file by now */
	struct remote_node *older, *newer; /* among those that are gone */
};

/*
 * A question for what has changed. Its answer says so of all directories that were listed when it
 * was asked; those that came later are known as of their own listing only.
 */
struct remote_ask {
	struct remote_ask *next;
	uint64_t number;
	char stamp[48];   /* its name there */
	uint64_t turn;    /* of the last directory it asks for */
	int64_t floor_ns; /* the greatest begun_ns of what was known by then */
};

struct remote_fetch;

struct remote_times {
	uint64_t names_ms, data_ms; /* deadlines */
	uint64_t failed_ms;         /* so long a failure is remembered */
	uint64_t fresh_ms;
	uint64_t retry_ms; /* after what the host has changed and the machine does not know */
	uint64_t slice_us; /* so long the turn is held */
};

struct remote_tree {
	struct remote_tree_config cfg;
	struct remote_times times;
	int root, temp;
	unsigned boot; /* of this run of the system: what was written before it may be lost */
	char run[24];  /* begins the names of stamps */
	char *workdir; /* there; NULL: not known */
	struct remote_link *link;

	pthread_mutex_t taking; /* one at a time takes over what a manifest says */

	pthread_mutex_t lock; /* all below */
	pthread_cond_t idle;
	unsigned under_way;
	struct remote_node **nodes, **dirs; /* by hash */
	size_t n_nodes, n_dirs, cap, dirs_cap;
	size_t nodes_most;       /* from there on nothing more is taken over from the machine */
	struct remote_node *top; /* of the root */
	struct remote_node *oldest_gone, *newest_gone;
	size_t n_gone;
	struct remote_tree_stats stats;
	uint64_t clean_bytes, uses, turns, temps, stamps, evict_ns;

	bool busy, refreshed, refreshing, evicting;
	uint64_t fresh_ns; /* of the last manifest of changes */
	struct remote_ask *asks;
	size_t n_asks;
	char old[48];     /* the stamp since which changes are asked for; "" none */
	int64_t old_ns;   /* and when it was made */
	int64_t known_ns; /* the greatest begun_ns */
	/* When all files there had other inodes than before: as begun_ns, and of the machine's
	 * clock. 0: never. */
	int64_t renumbered_ns, renumbered;
	int64_t offset_ns; /* added to the machine's clock, which may be set back */
	/* Nothing counts as new before a question with a greater number was answered. */
	bool doubted;
	uint64_t doubted_at;
	bool told_failed; /* the user was told that the copy is not what the machine has */

	struct remote_failure *failed;  /* NULL: not */
	struct remote_failure *changes; /* of the last question for changes */
	struct sbx_want *incoming, **incoming_end, *wants, **wants_end;
	struct remote_fetch *fetches; /* calls that are under way */
	bool kicked;

	/* Of the loop thread alone: */
	struct sbx_timer timer;
	unsigned names_calls, data_calls, changes_calls, ahead_calls, loads;
};

/* tree_node.c. With the lock held, unless a function says otherwise. */
struct remote_node *remote_node_find(struct remote_tree *t, uint64_t ino);
/* A new node, or what INO was known as is forgotten. NULL: no memory. */
struct remote_node *remote_node_put(struct remote_tree *t, uint64_t ino, mode_t type);
/* PARENT and NAME of the directory N from now on; PARENT may be NULL. 0 or -ENOMEM. */
int remote_node_hang(struct remote_tree *t, struct remote_node *n, struct remote_node *parent,
                     const char *name);
/* Its name is gone, and it is known for whoever has it open; or it has one after all. */
void remote_node_gone(struct remote_tree *t, struct remote_node *n);
void remote_node_back(struct remote_tree *t, struct remote_node *n);
void remote_node_set(struct remote_tree *t, struct remote_node *n, enum remote_state state,
                     uint64_t bytes);
void remote_node_dirty(struct remote_tree *t, struct remote_node *n, bool dirty);
void remote_node_fail(struct remote_tree *t, struct remote_node *n, struct remote_failure *f);
bool remote_node_has(const struct remote_node *n, uint64_t off, uint64_t len);
/* The directory PATH, as far as it is in memory; or NULL. */
struct remote_node *remote_dir_find(struct remote_tree *t, const char *path);
/* The path of the directory N, malloc'd; NULL: it is nowhere, or there is no memory. */
char *remote_dir_path(const struct remote_tree *t, const struct remote_node *n);
/* The directory behind N from above, names in any order; NULL: there is none. */
struct remote_node *remote_dir_next(const struct remote_tree *t, const struct remote_node *n);
/* It, and all below, came here just now: what was asked before does not speak of them. */
void remote_dir_moved(struct remote_tree *t, struct remote_node *n);
/* What was told before of the directory N, and of all below, does not count. */
void remote_dir_void(struct remote_tree *t, struct remote_node *n, int64_t told_ns);
void remote_nodes_free(struct remote_tree *t);
/* Whether the machine may have nothing more in it; what the host makes is bounded by its own disk.
 * Without the lock. */
bool remote_nodes_full(struct remote_tree *t);
static inline uint64_t remote_chunks(uint64_t size)
{
	return (size + REMOTE_CHUNK - 1) / REMOTE_CHUNK;
}
struct remote_failure *remote_failure_new(int code, uint64_t until_ns, const char *text);
static inline struct remote_failure *remote_failure_ref(struct remote_failure *f)
{
	f->refs++;
	return f;
}
void remote_failure_unref(struct remote_failure *f); /* accepts NULL */

/* tree_load.c. With the turn held, and without the lock, which they take. */
/*
 * The node of what is open at FD (O_PATH), of which ST was told; what is kept of a file is read.
 * PARENT and NAME of a directory. NULL: no memory.
 */
struct remote_node *remote_node_load(struct remote_tree *t, int fd, const struct stat *st,
                                     struct remote_node *parent, const char *name);
/* The directory PATH with those above it. NULL with errno: it is none. */
struct remote_node *remote_dir_load(struct remote_tree *t, const char *path);
/* Keeps what is known of the file FD, whose mode lets it be written, and which has this time. 0 or
 * -errno. */
int remote_node_keep(struct remote_tree *t, int fd, enum remote_state state,
                     const struct remote_version *version, int64_t mtime_ns);
/* Keeps that all names are in the directory FD. 0 or -errno. */
int remote_dir_keep(int fd);

/* tree_place.c. With the turn held alone, and without the lock. */
struct remote_hold {
	struct remote_tree *tree;
	uint64_t until_ns;
};
/* Takes the turn; gives it back; lets others have it where it was held for long. */
void remote_hold_begin(struct remote_hold *h, struct remote_tree *t);
void remote_hold_end(struct remote_hold *h);
void remote_hold_breathe(struct remote_hold *h);
/*
 * A directory of the copy whose owner may not write, because at the machine he may not. R is the
 * result of a change to it: whether that was refused for this, and is to be done once more. With
 * the turn held from the change to tighten, which gives the directory its mode back.
 */
struct remote_loosened {
	mode_t mode;
	bool is;
};
bool remote_loosen(struct remote_loosened *l, int dirfd, int r);
void remote_tighten(const struct remote_loosened *l, int dirfd);
/* As unlinkat(2), also in such a directory. 0 or -errno. */
int remote_unlink(int dirfd, const char *name, int flags);
/* That of the copy of a directory which has MODE there: its owner may look into it. */
mode_t remote_mode_of_dir(mode_t mode);
/* Whether L is of the version V, by all but ctime_ns. */
bool remote_version_is(const struct remote_version *v, const struct remote_listed *l);
struct remote_version remote_version_of(const struct remote_listed *l);
/* What the link at PATH says here; malloc'd, NULL without memory. What is absolute and lies in the
 * tree is made relative. */
char *remote_text_of_link(const struct remote_tree *t, const char *path, const char *target);
/* Makes what L says as NAME, which is free, in DIRFD, whose node is PARENT. 0 or -errno: -ENOSPC
 * also where there are too many. */
int remote_place(struct remote_tree *t, int dirfd, const char *name, const struct remote_listed *l,
                 struct remote_node *parent, struct remote_node **ret);
/*
 * Has what L says take the name; neither is a directory. SAME: it is the same file, so who has it
 * open has what takes the name. 0 or -errno.
 */
int remote_replace(struct remote_tree *t, int dirfd, const char *name,
                   const struct remote_listed *l, bool same, struct remote_node *parent,
                   struct remote_node **ret);
/* Has the file FROM, which took one name of what NAME is another of, take NAME as well. SAME: as
 * above. 0 or -errno. */
int remote_replace_as(struct remote_tree *t, int dirfd, const char *name, int from_dirfd,
                      const char *from, bool same);
/* Gives the regular file NAME the size, mode and time that L says, and keeps that: of contents that
 * are HERE the size is that already, and the time stays. 0 or -errno. */
int remote_refit(struct remote_tree *t, int dirfd, const char *name, const struct remote_listed *l,
                 enum remote_state state);
/*
 * Opens the regular file that is open at OPATH, O_PATH, for reading and writing. Where its mode
 * forbids that to its owner, it is changed, *LOOSENED, and the caller puts it back. Or -errno.
 */
int remote_open_changing(int opath, const struct stat *st, bool *loosened);
/* Whether L may have been changed once more within its tick of the machine's clock, of GRAIN_NS,
 * after it was told at BEGUN. */
bool remote_is_racy(const struct remote_listed *l, uint64_t begun, int64_t grain_ns);
#define REMOTE_TICK_NS INT64_C(20000000)
/*
 * Writes contents of what L says to where they are still missing. BEGUN: when L was told, of the
 * machine's clock. 1: they are here now; 0: the file is another by now, or needs none; -errno. The
 * turn is not held, but taken.
 */
int remote_fill(struct remote_tree *t, const struct remote_listed *l, uint64_t begun, uint64_t off,
                const char *bytes, size_t len);

/* tree_walk.c. Without the turn. */
/* PATH from the root, whose regular file FD (O_PATH) is as ST says. With the turn held alone. */
typedef int remote_visit_fn(const char *path, int fd, const struct stat *st, void *data);
/* All regular files; what is moved meanwhile may be left out. 0, -errno, or what FN returns but 0.
 */
int remote_walk(struct remote_tree *t, remote_visit_fn *fn, void *data);

/* tree_take.c. Without the turn. */
struct remote_linked;
struct remote_news {
	struct remote_tree *tree;
	uint64_t seen;    /* the batch up to which the machine had everything */
	uint64_t begun;   /* when it was told, of the machine's clock */
	int64_t begun_ns; /* the same, put forward where that was put back */
	bool altered;     /* result: what somebody may have seen is another by now */
	bool listing;     /* private, as all below */
	struct remote_hold hold;
	struct remote_linked *linked; /* that are to be replaced */
	size_t n_linked, linked_cap;
};
/* Does what M says. 0, or -errno where the copy could not be changed. */
int remote_apply(struct remote_news *w, const struct remote_manifest *m);
/* begun_ns of an answer that says BEGUN to a question that was asked when FLOOR_NS was known. */
int64_t remote_machine_time(struct remote_tree *t, uint64_t begun, int64_t floor_ns);

/* tree_ask.c */
/* As remote_tree_ask, for all of the tree. */
void remote_ask_all(struct remote_tree *t, struct remote_text *body);
/* What the call of a reply has asked. */
enum remote_asked {
	REMOTE_ASKED_NOTHING,
	REMOTE_ASKED_CHANGES, /* remote_tree_ask */
	REMOTE_ASKED_ALL,     /* remote_ask_all */
};
/* As remote_tree_take, without a look at who waits. FLOOR_NS: known_ns when it was asked. *ALTERED
 * is set, or stays. */
int remote_take(struct remote_tree *t, const struct remote_reply *reply, uint64_t seen,
                int64_t floor_ns, enum remote_asked asked, bool *altered, struct sbx_error *err);

/* tree_evict.c. [any] Makes room where too much is here; LOOK: counts first what is here. */
void remote_evict(struct remote_tree *t, bool look);

/* tree.c */
/* Something is under way, N 1, or has ended, N -1. [any] */
void remote_under_way(struct remote_tree *t, int n);
/* As remote_tree_here; N, of INO, may be NULL. With the lock held. */
bool remote_is_here(const struct remote_tree *t, const struct remote_node *n, enum sbx_need need,
                    uint64_t off, uint64_t len);

/* fetch.c */
void remote_fetch_init(struct remote_tree *t);
/* [any] Has all who wait looked at. */
void remote_fetch_kick(struct remote_tree *t);

#endif
