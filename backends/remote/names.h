/*
 * A batch's knowledge of a tree: the names that its changes have mentioned, what stands at them
 * now, and what stood there when it began. All else is as it was, below whatever it was below. The
 * objects live as long as the names do. Not thread-safe.
 */
#ifndef SANDBOXFS_BACKENDS_REMOTE_NAMES_H
#define SANDBOXFS_BACKENDS_REMOTE_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "backends/remote/index.h"

struct remote_name;

/* A file or directory that was mentioned. */
struct remote_node {
	struct remote_index_item by_ino; /* while indexed */
	struct remote_node *next;        /* in the order in which they were first mentioned */
	struct remote_name *names;       /* those it has now, the one last told of first */
	uint64_t ino;
	mode_t type; /* S_IFMT; 0: not known */
	bool indexed;
	bool born;    /* made in the batch */
	bool data;    /* its contents were changed, and it is not born */
	bool status;  /* its mode or times were set */
	char *target; /* of a link that is born */
	/* Of the plan: */
	bool fixed;  /* its steps stay as they are */
	size_t uses; /* steps that need this directory */
	size_t step; /* the last one that made or moved it, counted from 1; 0: none */
	mode_t mode; /* that a step gives it; 0: none does */
};

/* An entry of a directory that was mentioned, also one that is empty by now. */
struct remote_name {
	struct remote_index_item by_name;
	struct remote_node *dir;
	struct remote_node *now, *first; /* NULL: nothing, or not known */
	struct remote_name *next;        /* of the same node */
	bool empty;                      /* nothing is there, for sure */
	size_t later; /* of the plan: the next step that is about it, counted from 1 */
	char text[];
};

struct remote_names {
	struct remote_index by_name, by_ino;
	struct remote_node *root, *nodes, **last;
	size_t n; /* of nodes */
};

/* 0 or -ENOMEM; release in either case. */
int remote_names_init(struct remote_names *names);
void remote_names_release(struct remote_names *names);

/*
 * The entry that PATH, which is not the root, names now; directories on the way that were not
 * mentioned before are from here on. 0 or -ENOMEM.
 */
int remote_names_entry(struct remote_names *names, const char *path, struct remote_name **ret);
/* A new node of inode INO, which is not at any name. NULL: no memory. */
struct remote_node *remote_names_add(struct remote_names *names, uint64_t ino, mode_t type);
/* The node of the inode that has a name; NULL: none is known. */
struct remote_node *remote_names_of_ino(const struct remote_names *names, uint64_t ino);
/* Another one of the same inode, as of a file that was told of before its number was. NULL: none.
 */
struct remote_node *remote_names_next_of_ino(const struct remote_node *node);
/* NODE is known by INO from here on. */
void remote_names_set_ino(struct remote_names *names, struct remote_node *node, uint64_t ino);
/* NODE is at NAME from here on, where nothing is. */
void remote_names_attach(struct remote_names *names, struct remote_name *name,
                         struct remote_node *node);
/* Nothing is at NAME from here on. A node without a name is no longer found by its inode. */
void remote_names_detach(struct remote_names *names, struct remote_name *name);

/* Where NAME is now: *ret is malloc'd, NULL when a directory above it is gone. 0 or -ENOMEM. */
int remote_name_path(const struct remote_names *names, const struct remote_name *name, char **ret);
/*
 * Where what was at PATH when the batch began is now: calls FN for each of its names, not at all
 * when it is gone. A non-zero return of FN ends it and is returned. -ENOMEM.
 */
int remote_names_where(const struct remote_names *names, const char *path,
                       int (*fn)(const char *path, void *data), void *data);

#endif
