/* The kernel's caches of the workspace: names, attributes, listings, and how long they hold. */
#ifndef SANDBOXFS_FS_WORKSPACE_KERNEL_CACHE_H
#define SANDBOXFS_FS_WORKSPACE_KERNEL_CACHE_H

#include "fs/workspace/workspace.h"

/*
 * How long the kernel may keep the name of NODE and its attributes ST, in seconds; noted as told.
 * Takes a listing back from it that is outdated; for contents that are, ST is changed so that the
 * kernel sees it. Just before it is told. ANSWER: to what; no client sees ST itself that answers a
 * lookup.
 */
void ws_hand(struct sbx_workspace *ws, struct sbx_node *node, struct stat *st,
             enum sbx_answer answer, double *entry, double *attr);
/* How long it may keep that a name is not in DIR. */
double ws_absent_timeout(struct sbx_workspace *ws, struct sbx_node *dir);
/* The kernel is going to have a listing that is kept. */
void ws_listing_handed(struct sbx_workspace *ws);
/* For sbx_listing_cache_create: the listing of the directory ID is kept no longer. WS is the
 * workspace. */
void ws_listing_dropped(uint64_t id, void *ws);
/*
 * For sbx_forgetter_create: has the kernel drop its copy of the listing of ID. It may wait for a
 * client.
 */
void ws_listing_forget(uint64_t id, void *ws);
/* Has the kernel ask again for every name it keeps, before the next step of any path. Takes no lock
 * of the kernel's. */
void ws_look_again(struct sbx_workspace *ws);
/*
 * Has the kernel ask again when what it keeps is outdated; its data is the workspace. Takes locks
 * only that nobody holds who waits for an answer.
 */
extern const struct sbx_observer ws_observer;

/* The connection serves from now on, or does no more: backends are heard only meanwhile. Blocks. */
void ws_serve(struct sbx_workspace *ws, bool serving);

/*
 * When the status of what ST describes changed last; 0 when that is so short ago that a change yet
 * to come could leave the same time, since file systems may count in ticks.
 */
int64_t ws_changed_ns(const struct stat *st);

#endif
