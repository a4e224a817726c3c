/*
 * The plan of a batch: what its changes come to. Directories are made, moved and removed step by
 * step as the host did it; files have no one below them, so of those that were born in the batch
 * only where they end counts. Not thread-safe.
 *
 * A change is told of one name. A file whose other names are from before the batch keeps the one by
 * which it was changed until that is sent, because who removes it waits (SBX_NEED_SENT). What a
 * command of the machine has linked are files of their own for the host.
 */
#ifndef SANDBOXFS_BACKENDS_REMOTE_PLAN_H
#define SANDBOXFS_BACKENDS_REMOTE_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "backends/remote/names.h"
#include "sandboxfs/away.h"

/* Begins the name that a file has while two swap theirs; a number follows. */
#define REMOTE_SWAP ".sandboxfs-swap-"

enum remote_step_kind {
	REMOTE_STEP_MKDIR,
	REMOTE_STEP_RM,
	REMOTE_STEP_RMDIR,
	REMOTE_STEP_MV, /* PATH becomes TO, over what may be there */
	REMOTE_STEP_LN, /* TO becomes another name of PATH */
	REMOTE_STEP_MODE,
};

/* Its number is its place in the array, counted from 1. */
struct remote_step {
	enum remote_step_kind kind;
	bool dropped;    /* it turned out not to be needed */
	bool maybe;      /* there may be nothing to be removed */
	char *path, *to; /* as they were then */
	mode_t mode;
	/* The entries it is about. */
	struct remote_name *at[2];
	struct remote_node *node;
	size_t before; /* the step before of the same node, counted from 1; 0: none */
};

/* Zero it to start. */
struct remote_plan {
	struct remote_names names;
	struct remote_step *steps;
	size_t n, cap;
	bool ready; /* names are */
};

/* Adds a change. 0 or -ENOMEM: then the plan is of no use any more. */
int remote_plan_add(struct remote_plan *plan, const struct sbx_change *c);
/* Whether C, of which nothing was told yet, would add nothing to the plan. */
bool remote_plan_has(const struct remote_plan *plan, const struct sbx_change *c);
/*
 * Whether what was changed of the file INO is told of one name alone: *HANGS becomes true. It
 * becomes false where the names are told of by which it arrives, with what earlier batches have
 * changed.
 */
void remote_plan_hangs(const struct remote_plan *plan, uint64_t ino, bool *hangs);
/* All changes were added: drops what later ones, and the files put in the end, make needless. */
void remote_plan_end(struct remote_plan *plan);
void remote_plan_release(struct remote_plan *plan);

#endif
