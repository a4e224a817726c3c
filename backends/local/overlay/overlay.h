/*
 * Trees in layers: a base of the cache below, what the sandbox changed above, put together by
 * overlayfs. On disk a layered tree is trees/ID/upper and trees/ID/work (and an empty
 * trees/ID/.git), so that it is moved away, swept and removed like any other. Only the sandbox's
 * root descriptor, and the views of its commands, show the whole.
 */
#ifndef SANDBOXFS_LOCAL_OVERLAY_OVERLAY_H
#define SANDBOXFS_LOCAL_OVERLAY_OVERLAY_H

#include "backends/local/overlay/base.h"
#include "backends/local/state/objects.h"
#include "sandboxfs/identity.h"

struct sbx_overlay;
struct sbx_mounter;
struct stat;

/*
 * Opens cache and room and makes a trial tree. EOPNOTSUPP, EPERM, EINVAL... : this machine has no
 * overlay for us. [pool]
 */
int sbx_overlay_open(const struct sbx_host *host, const struct sbx_state *state,
                     struct sbx_overlay **ret, struct sbx_error *err);
/* Accepts NULL. */
void sbx_overlay_close(struct sbx_overlay *overlay);
/* Whom the files belong to. */
const struct sbx_identity *sbx_overlay_owner(const struct sbx_overlay *overlay);
/* Whether names of one file may show as several: see struct sbx_sandbox. */
bool sbx_overlay_splits(const struct sbx_overlay *overlay);
/* The cache of bases, borrowed. */
struct sbx_bases *sbx_overlay_bases(const struct sbx_overlay *overlay);
/* The process that mounts, borrowed. */
struct sbx_mounter *sbx_overlay_mounter(const struct sbx_overlay *overlay);

/*
 * Makes the upper layer of REC, whose directory in trees/ is there and empty, like a directory with
 * attributes LIKE. Returns it, open, or a negative errno.
 */
int sbx_overlay_make(const struct sbx_overlay *overlay, const struct sbx_state *state,
                     const char *id, const struct stat *like);
/*
 * Has REC stand on the base of RECIPE, whose key is REC's, as sbx_base_acquire. The base's
 * directory stays open in *ret.
 */
int sbx_overlay_acquire(struct sbx_overlay *overlay, const struct sbx_state *state,
                        const struct sbx_record *rec, const struct sbx_base_recipe *recipe,
                        atomic_bool *cancelled, struct sbx_base *ret, struct sbx_error *err);
/* Mounts the tree of REC. Returns the root, O_PATH, or a negative errno. */
int sbx_overlay_mount(struct sbx_overlay *overlay, const struct sbx_record *rec,
                      struct sbx_error *err);
/*
 * For a REC of limited size, before it is mounted: makes its disk and puts what is saved of it
 * there. Returns its root, open, or a negative errno.
 */
int sbx_overlay_load(struct sbx_overlay *overlay, const struct sbx_state *state,
                     const struct sbx_record *rec, struct sbx_error *err);
/*
 * Saves what is on DISK, to where a power cut does not lose it; what was saved before is there
 * until then. EINTR: CANCELLED, which may be NULL. Blocks.
 */
int sbx_overlay_save(const struct sbx_overlay *overlay, const struct sbx_state *state,
                     const char *id, int disk, atomic_bool *cancelled, struct sbx_error *err);
/*
 * Whether homes and repositories are on the disk of a sandbox of limited size: where commands are
 * to be somebody else than their owner the kernel must be able to show files in memory as those of
 * somebody else (Linux 6.3).
 */
bool sbx_overlay_holds_home(const struct sbx_overlay *overlay);
/* ENOSPC: more is in use. */
int sbx_overlay_resize(struct sbx_overlay *overlay, const char *id, uint64_t mb,
                       struct sbx_error *err);
/* Takes the mount away and counts REC among the base's users no more. Its files are not touched.
 * May be repeated. */
void sbx_overlay_forget(struct sbx_overlay *overlay, const struct sbx_record *rec);

#endif
