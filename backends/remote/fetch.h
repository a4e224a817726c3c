/* Requests for what is missing in a copy; see tree_impl.h. */
#ifndef SANDBOXFS_BACKENDS_REMOTE_FETCH_H
#define SANDBOXFS_BACKENDS_REMOTE_FETCH_H

#include "backends/remote/tree_impl.h"

enum remote_fetch_kind {
	FETCH_LOAD, /* no request: what is known here of a path, and not yet in memory */
	FETCH_NAMES,
	FETCH_DATA,
	FETCH_AHEAD, /* files beside one that is wanted */
	FETCH_CHANGES,
};

struct remote_item {
	uint64_t ino;
	char *path;
	uint64_t offset, length;
	/* Of the answer: */
	int code;    /* errno; 0: it has what was asked for; -1: it is to be asked again */
	bool filled; /* contents came */
};

/* One request. It is freed when it has ended. */
struct remote_fetch {
	struct remote_fetch *next; /* of tree->fetches */
	struct remote_tree *tree;
	enum remote_fetch_kind kind;
	struct remote_item *items;
	size_t n, cap, text; /* TEXT: bytes of their paths */
	uint64_t bytes;      /* of contents that are asked for */
	size_t crowd;        /* of FETCH_NAMES: items at most; 0: any number */
	uint64_t seen;
	int64_t floor_ns;
	struct remote_call call;
	struct remote_reply reply;
	int code;
	struct sbx_error err;
	bool altered;
};

/* [any] NULL: no memory. */
struct remote_fetch *remote_fetch_new(struct remote_tree *t, enum remote_fetch_kind kind);
void remote_fetch_free(struct remote_fetch *f); /* accepts NULL */
struct remote_item *remote_fetch_add(struct remote_fetch *f, uint64_t ino, const char *path);
/* [any] Sends it; it is not the caller's any more. */
void remote_fetch_begin(struct remote_fetch *f);
/* [any] The same of FETCH_LOAD. */
void remote_fetch_load(struct remote_fetch *f);
/* [loop] It has ended, and is freed: who waited is looked at. */
void remote_fetch_ended(struct remote_fetch *f);
/* [pool] Takes over what was answered. */
void remote_fetch_apply(struct remote_fetch *f);

/* fetch_ahead.c: a look for what lies beside a file that is wanted. */
struct remote_ahead {
	struct remote_tree *tree;
	char *dir, *name; /* of the file */
};
struct remote_ahead *remote_ahead_new(struct remote_tree *t, const char *path); /* or NULL */
void remote_ahead_free(struct remote_ahead *a);                                 /* accepts NULL */
/* [loop] Looks in the pool, and asks. */
void remote_ahead_begin(struct remote_ahead *a);

/* fetch_tar.c. [pool] Fills the files that M lists, as of BEGUN, from the tar. 0 or -errno. */
int remote_fill_tar(struct remote_tree *t, const struct remote_manifest *m, uint64_t begun,
                    const char *bytes, size_t len, struct sbx_error *err);

#endif
