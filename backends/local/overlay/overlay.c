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
#include "sandboxfs/settings.h"
#include "sandboxfs/walls.h"

#define TRIAL_ID ".trial"

struct sbx_layers {
	struct sbx_bases *bases;
	struct sbx_room *room;
	struct sbx_identity owner;
	bool splits; /* as in struct sbx_tree */
	bool houses;
};

static char *record_path(const struct sbx_state *state, const char *id)
{
	return sbx_format("%s/meta/%s.json", state->path, id);
}

static int own(const struct sbx_layers *layers, int fd)
{
	if (layers->owner.uid == geteuid())
		return 0;
	return fchown(fd, layers->owner.uid, layers->owner.gid) < 0 ? -errno : 0;
}

int sbx_layers_make(const struct sbx_layers *layers, const struct sbx_state *state, const char *id,
                    const struct stat *like)
{
	_cleanup_fd_ int dir = sbx_dir_open(state->trees, id);
	_cleanup_fd_ int upper = dir < 0 ? dir : sbx_dir_make(dir, "upper", 0755);
	const struct timespec times[2] = {like->st_atim, like->st_mtim};
	int r;

	if (upper < 0)
		return upper;
	/* git would take a place without .git for an abandoned worktree, and repair, prune or remove it. */
	if (mkdirat(dir, "work", 0700) < 0 || mkdirat(dir, ".git", 0755) < 0)
		return -errno;
	r = own(layers, upper);
	if (!r && (fchmod(upper, like->st_mode & 03777) < 0 || futimens(upper, times) < 0))
		r = -errno;
	return r ? r : sbx_steal_fd(&upper);
}

int sbx_layers_stand(struct sbx_layers *layers, const struct sbx_state *state,
                     const struct sbx_record *rec, const struct sbx_base_recipe *recipe,
                     atomic_bool *cancelled, struct sbx_base *ret, struct sbx_error *err)
{
	_cleanup_free_ char *path = record_path(state, rec->id);

	if (!path)
		return sbx_no_memory(err);
	return sbx_base_acquire(layers->bases, recipe, rec->id, path, cancelled, ret, err);
}

int sbx_layers_mount(struct sbx_layers *layers, const struct sbx_record *rec, struct sbx_error *err)
{
	return sbx_room_mount(layers->room, rec->id, rec->layer, err);
}

void sbx_layers_forget(struct sbx_layers *layers, const struct sbx_record *rec)
{
	sbx_room_unmount(layers->room, rec->id);
	sbx_base_release(layers->bases, rec->layer, rec->id);
}

/* --- the trial ------------------------------------------------------------------------------------- */

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
static int try_tree(struct sbx_layers *layers, int root)
{
	_cleanup_fd_ int before = openat(root, "f", O_PATH | O_NOFOLLOW | O_CLOEXEC);
	_cleanup_fd_ int fd = openat(root, "f", O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	struct stat was, is;

	if (before < 0 || fd < 0 || fstat(before, &was) < 0 || write(fd, "T", 1) != 1 ||
	    fstatat(root, "f", &is, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (was.st_ino != is.st_ino || was.st_dev != is.st_dev || is.st_uid != layers->owner.uid)
		return -EOPNOTSUPP;
	if (linkat(root, "f", root, "g", 0) < 0 ||
	    fstatat(root, "g", &is, AT_SYMLINK_NOFOLLOW) < 0 || unlinkat(root, "g", 0) < 0)
		return -errno;
	layers->splits = was.st_ino != is.st_ino;
	return mkdirat(root, "d", 0755) < 0 || renameat(root, "d", root, "e") < 0 ||
	                       unlinkat(root, "f", 0) < 0
	               ? -errno
	               : 0;
}

static int mount_trial(struct sbx_layers *layers, const struct sbx_state *state, char *key,
                       struct sbx_error *err)
{
	const struct sbx_record rec = {.id = (char *)(uintptr_t)TRIAL_ID, .layer = key};
	_cleanup_fd_ int upper = -1, root = -1;
	int r;

	if (mkdirat(state->trees, TRIAL_ID, 0755) < 0)
		return sbx_fail(err, errno, "cannot write to the state directory: %s",
		                strerror(errno));
	upper = sbx_layers_make(layers, state, TRIAL_ID, &(struct stat){.st_mode = 0755});
	if (upper < 0)
		return sbx_fail(err, -upper, "cannot make layers: %s", strerror(-upper));
	root = sbx_layers_mount(layers, &rec, err);
	if (root < 0)
		return root;
	r = try_tree(layers, root);
	sbx_room_unmount(layers->room, TRIAL_ID);
	return r ? sbx_fail(err, -r, "overlayfs does not do what is needed: %s", strerror(-r)) : 0;
}

static int make_trial(struct sbx_layers *layers, const struct sbx_state *state,
                      struct sbx_error *err)
{
	_cleanup_free_ char *key = sbx_format("trial-%u-%u", layers->owner.uid, layers->owner.gid);
	_cleanup_free_ char *lock = sbx_format("%s/lock", state->path);
	const struct sbx_base_recipe recipe = {
	        .key = key, .fill = fill_trial, .uid = layers->owner.uid, .gid = layers->owner.gid};
	struct sbx_base base;
	int r;

	if (!key || !lock)
		return sbx_no_memory(err);
	r = sbx_tree_remove(state->trees, TRIAL_ID, err);
	if (!r)
		r = sbx_base_acquire(layers->bases, &recipe, TRIAL_ID, lock, NULL, &base, err);
	if (r)
		return r;
	close(base.dir);
	r = mount_trial(layers, state, key, err);
	sbx_tree_remove(state->trees, TRIAL_ID, NULL);
	sbx_base_release(layers->bases, key, TRIAL_ID);
	return r;
}

/* --- opening --------------------------------------------------------------------------------------- */

static int open_parts(struct sbx_layers *layers, const struct sbx_host *host,
                      const struct sbx_state *state, struct sbx_error *err)
{
	const struct sbx_settings *s = host->settings;
	_cleanup_free_ char *trees = sbx_format("%s/trees", state->path);
	int r;

	if (!host->spawner || !s->cache_dir)
		return sbx_fail(err, EOPNOTSUPP, "commands cannot be run here");
	if (!trees)
		return sbx_no_memory(err);
	layers->houses = sbx_spawner_maps_memory(host->spawner);
	r = sbx_identity_find(s, &layers->owner, err);
	if (!r)
		r = sbx_bases_open(s->cache_dir, s->cache_mb, &layers->bases, err);
	if (!r)
		r = sbx_room_open(host->spawner, sbx_bases_path(layers->bases), trees,
		                  &layers->room, err);
	return r ? r : make_trial(layers, state, err);
}

int sbx_layers_open(const struct sbx_host *host, const struct sbx_state *state,
                    struct sbx_layers **ret, struct sbx_error *err)
{
	struct sbx_layers *layers = calloc(1, sizeof(*layers));
	int r;

	if (!layers)
		return sbx_no_memory(err);
	r = open_parts(layers, host, state, err);
	if (r) {
		sbx_layers_close(layers);
		return r;
	}
	*ret = layers;
	return 0;
}

void sbx_layers_close(struct sbx_layers *layers)
{
	if (!layers)
		return;
	sbx_room_close(layers->room);
	sbx_bases_close(layers->bases);
	free(layers);
}

const struct sbx_identity *sbx_layers_owner(const struct sbx_layers *layers)
{
	return &layers->owner;
}

bool sbx_layers_splits(const struct sbx_layers *layers)
{
	return layers->splits;
}

bool sbx_layers_houses(const struct sbx_layers *layers)
{
	return layers->houses && !sbx_without("places");
}

struct sbx_bases *sbx_layers_bases(const struct sbx_layers *layers)
{
	return layers->bases;
}

struct sbx_room *sbx_layers_room(const struct sbx_layers *layers)
{
	return layers->room;
}

int sbx_layers_resize(struct sbx_layers *layers, const char *id, uint64_t mb, struct sbx_error *err)
{
	return sbx_room_resize(layers->room, id, mb, err);
}
