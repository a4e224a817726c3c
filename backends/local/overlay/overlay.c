/*
 * The parts of an overlay tree and how they are taken back: the cache counts its base as used by
 * the sandbox's record, the mounter process holds its mount, and its files are in the state
 * directory. Each part is taken back by itself, in any order.
 */
#include "backends/local/overlay/overlay.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/runner/isolation/mounter.h"
#include "backends/support/fsutil.h"
#include "backends/support/tree.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/mitigations.h"
#include "sandboxfs/settings.h"

#define TRIAL_ID ".trial"

struct sbx_overlay {
	struct sbx_bases *bases;
	struct sbx_mounter *mounter;
	struct sbx_identity owner;
	bool splits; /* as in struct sbx_tree */
	bool houses;
};

static char *record_path(const struct sbx_state *state, const char *id)
{
	return sbx_format("%s/meta/%s.json", state->path, id);
}

static int own(const struct sbx_overlay *overlay, int fd)
{
	if (overlay->owner.uid == geteuid())
		return 0;
	return fchown(fd, overlay->owner.uid, overlay->owner.gid) < 0 ? -errno : 0;
}

int sbx_overlay_make(const struct sbx_overlay *overlay, const struct sbx_state *state,
                     const char *id, const struct stat *like)
{
	_cleanup_fd_ int dir = sbx_dir_open(state->trees, id);
	_cleanup_fd_ int upper = dir < 0 ? dir : sbx_dir_make(dir, "upper", 0755);
	const struct timespec times[2] = {like->st_atim, like->st_mtim};
	int r;

	if (upper < 0)
		return upper;
	/* git would take a place without .git for an abandoned worktree, and repair, prune or
	 * remove it. */
	if (mkdirat(dir, "work", 0700) < 0 || mkdirat(dir, ".git", 0755) < 0)
		return -errno;
	r = own(overlay, upper);
	if (!r && (fchmod(upper, like->st_mode & 03777) < 0 || futimens(upper, times) < 0))
		r = -errno;
	return r ? r : sbx_steal_fd(&upper);
}

int sbx_overlay_acquire(struct sbx_overlay *overlay, const struct sbx_state *state,
                        const struct sbx_record *rec, const struct sbx_base_recipe *recipe,
                        atomic_bool *cancelled, struct sbx_base *ret, struct sbx_error *err)
{
	_cleanup_free_ char *path = record_path(state, rec->id);

	if (!path)
		return sbx_no_memory(err);
	return sbx_base_acquire(overlay->bases, recipe, rec->id, path, cancelled, ret, err);
}

int sbx_overlay_mount(struct sbx_overlay *overlay, const struct sbx_record *rec,
                      struct sbx_error *err)
{
	return sbx_mounter_mount(overlay->mounter, rec->id, rec->layer, err);
}

void sbx_overlay_forget(struct sbx_overlay *overlay, const struct sbx_record *rec)
{
	sbx_mounter_unmount(overlay->mounter, rec->id);
	sbx_base_release(overlay->bases, rec->layer, rec->id);
}

/* --- the trial
 * ------------------------------------------------------------------------------------- */

static int fill_trial(const struct sbx_base_recipe *recipe, int dir, int tree,
                      struct sbx_base_facts *facts, atomic_bool *cancelled, struct sbx_error *err)
{
	_cleanup_fd_ int fd = -1;
	int r = sbx_file_create(tree, "f", "trial\n");

	(void)dir;
	(void)facts;
	(void)cancelled;
	if (!r)
		fd = openat(tree, "f", O_WRONLY | O_CLOEXEC);
	if (!r &&
	    (fd < 0 || (recipe->uid != geteuid() && fchown(fd, recipe->uid, recipe->gid) < 0)))
		r = -errno;
	return r ? sbx_fail(err, -r, "cannot make a base: %s", strerror(-r)) : 0;
}

/*
 * What everything else relies on: a file that is changed is copied up and stays the same file.
 * Without trusted attributes an overlay does not know later from where: another name then leads to
 * another file than the one that is known.
 */
static int try_tree(struct sbx_overlay *overlay, int root)
{
	_cleanup_fd_ int before = openat(root, "f", O_PATH | O_NOFOLLOW | O_CLOEXEC);
	_cleanup_fd_ int fd = openat(root, "f", O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	struct stat was, is;

	if (before < 0 || fd < 0 || fstat(before, &was) < 0 || write(fd, "T", 1) != 1 ||
	    fstatat(root, "f", &is, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (was.st_ino != is.st_ino || was.st_dev != is.st_dev || is.st_uid != overlay->owner.uid)
		return -EOPNOTSUPP;
	if (linkat(root, "f", root, "g", 0) < 0 ||
	    fstatat(root, "g", &is, AT_SYMLINK_NOFOLLOW) < 0 || unlinkat(root, "g", 0) < 0)
		return -errno;
	overlay->splits = was.st_ino != is.st_ino;
	return mkdirat(root, "d", 0755) < 0 || renameat(root, "d", root, "e") < 0 ||
	                       unlinkat(root, "f", 0) < 0
	               ? -errno
	               : 0;
}

static int mount_trial(struct sbx_overlay *overlay, const struct sbx_state *state, char *key,
                       struct sbx_error *err)
{
	const struct sbx_record rec = {.id = (char *)(uintptr_t)TRIAL_ID, .layer = key};
	_cleanup_fd_ int upper = -1, root = -1;
	int r;

	if (mkdirat(state->trees, TRIAL_ID, 0755) < 0)
		return sbx_fail(err, errno, "cannot write to the state directory: %s",
		                strerror(errno));
	upper = sbx_overlay_make(overlay, state, TRIAL_ID, &(struct stat){.st_mode = 0755});
	if (upper < 0)
		return sbx_fail(err, -upper, "cannot make layers: %s", strerror(-upper));
	root = sbx_overlay_mount(overlay, &rec, err);
	if (root < 0)
		return root;
	r = try_tree(overlay, root);
	sbx_mounter_unmount(overlay->mounter, TRIAL_ID);
	return r ? sbx_fail(err, -r, "overlayfs does not do what is needed: %s", strerror(-r)) : 0;
}

static int make_trial(struct sbx_overlay *overlay, const struct sbx_state *state,
                      struct sbx_error *err)
{
	_cleanup_free_ char *key =
	        sbx_format("trial-%u-%u", overlay->owner.uid, overlay->owner.gid);
	_cleanup_free_ char *lock = sbx_format("%s/lock", state->path);
	const struct sbx_base_recipe recipe = {.key = key,
	                                       .fill = fill_trial,
	                                       .uid = overlay->owner.uid,
	                                       .gid = overlay->owner.gid};
	struct sbx_base base;
	int r;

	if (!key || !lock)
		return sbx_no_memory(err);
	r = sbx_tree_remove(state->trees, TRIAL_ID, err);
	if (!r)
		r = sbx_base_acquire(overlay->bases, &recipe, TRIAL_ID, lock, NULL, &base, err);
	if (r)
		return r;
	close(base.dir);
	r = mount_trial(overlay, state, key, err);
	sbx_tree_remove(state->trees, TRIAL_ID, NULL);
	sbx_base_release(overlay->bases, key, TRIAL_ID);
	return r;
}

/* --- opening
 * --------------------------------------------------------------------------------------- */

static int open_parts(struct sbx_overlay *overlay, const struct sbx_host *host,
                      const struct sbx_state *state, struct sbx_error *err)
{
	const struct sbx_settings *s = host->settings;
	_cleanup_free_ char *trees = sbx_format("%s/trees", state->path);
	int r;

	if (!host->spawner || !s->cache_dir)
		return sbx_fail(err, EOPNOTSUPP, "commands cannot be run here");
	if (!trees)
		return sbx_no_memory(err);
	overlay->houses = sbx_spawner_maps_memory(host->spawner);
	r = sbx_identity_find(s, &overlay->owner, err);
	if (!r)
		r = sbx_bases_open(s->cache_dir, s->cache_mb, &overlay->bases, err);
	if (!r)
		r = sbx_mounter_open(host->spawner, sbx_bases_path(overlay->bases), trees,
		                     &overlay->mounter, err);
	return r ? r : make_trial(overlay, state, err);
}

int sbx_overlay_open(const struct sbx_host *host, const struct sbx_state *state,
                     struct sbx_overlay **ret, struct sbx_error *err)
{
	struct sbx_overlay *overlay = calloc(1, sizeof(*overlay));
	int r;

	if (!overlay)
		return sbx_no_memory(err);
	r = open_parts(overlay, host, state, err);
	if (r) {
		sbx_overlay_close(overlay);
		return r;
	}
	*ret = overlay;
	return 0;
}

void sbx_overlay_close(struct sbx_overlay *overlay)
{
	if (!overlay)
		return;
	sbx_mounter_close(overlay->mounter);
	sbx_bases_close(overlay->bases);
	free(overlay);
}

const struct sbx_identity *sbx_overlay_owner(const struct sbx_overlay *overlay)
{
	return &overlay->owner;
}

bool sbx_overlay_splits(const struct sbx_overlay *overlay)
{
	return overlay->splits;
}

bool sbx_overlay_holds_home(const struct sbx_overlay *overlay)
{
	return overlay->houses && !sbx_mitigation_off("places");
}

struct sbx_bases *sbx_overlay_bases(const struct sbx_overlay *overlay)
{
	return overlay->bases;
}

struct sbx_mounter *sbx_overlay_mounter(const struct sbx_overlay *overlay)
{
	return overlay->mounter;
}

int sbx_overlay_resize(struct sbx_overlay *overlay, const char *id, uint64_t mb,
                       struct sbx_error *err)
{
	return sbx_mounter_resize(overlay->mounter, id, mb, err);
}
