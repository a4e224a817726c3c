/*
 * An upper layer of limited size lies on a tmpfs of its own, as nothing else that an ordinary user
 * can have refuses a write by size. What is on it is kept in the state directory, where an upper
 * layer always is: copied there when told, and from there when the sandbox is taken up again. The
 * copy replaces the last one whole.
 *
 * What else a command may write is on that disk too: its home, its repository, /tmp and /dev/shm.
 * The last two are of no more use when the disk is gone; of the others there is a copy, made with
 * that of the upper layer.
 *
 *   STATE/home/ID/saved       the home
 *   STATE/git/ID/saved/repo   the repository
 *   STATE/git/ID/saved/       what it and the source had agreed on then (private_repo.h): with what
 *                             was agreed on later an older repository would tell another story
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/local/overlay/overlay.h"
#include "backends/runner/isolation/mounter.h"
#include "backends/support/beneath.h"
#include "backends/support/fsutil.h"
#include "backends/support/tree.h"
#include "sandboxfs/cleanup.h"

/* Of backends/local/gitsync/private_repo.h; a repository of which nothing is agreed on is as good
 * as new. */
static const char *const agreed[] = {"head", "refs", "refs.next", "kept", "index"};

static int copy_tree(int from, int to, int at, const char *but, atomic_bool *cancelled,
                     struct sbx_error *err)
{
	_cleanup_fd_ int links = sbx_dir_make(at, "links", 0700);
	struct sbx_skip skip = {.name = but};
	struct sbx_copy copy = {.src = from,
	                        .dst = to,
	                        .links = links,
	                        .skips = &skip,
	                        .nskips = but != NULL,
	                        .ours = true,
	                        .cancelled = cancelled};
	struct stat st;
	int r;

	if (links < 0 || fstat(from, &st) < 0)
		return sbx_fail(err, links < 0 ? -links : errno, "cannot copy: %s",
		                strerror(links < 0 ? -links : errno));
	skip.dev = st.st_dev;
	skip.ino = st.st_ino;
	r = sbx_tree_copy(&copy, err);
	return r ? r : sbx_tree_remove(at, "links", err);
}

/* Objects last: those that refs name are there then, even if a command goes on committing. */
static int copy_repo(int from, int to, int at, atomic_bool *cancelled, struct sbx_error *err)
{
	_cleanup_fd_ int objects = sbx_dir_open(from, "objects"), copies = -1;
	int r = copy_tree(from, to, at, "objects", cancelled, err);

	if (r || objects == -ENOENT)
		return r;
	copies = objects < 0 ? objects : sbx_dir_make(to, "objects", 0755);
	if (copies < 0)
		return sbx_fail(err, -copies, "cannot copy a repository: %s", strerror(-copies));
	return copy_tree(objects, copies, at, NULL, cancelled, err);
}

static int copy_agreed(int from, int to)
{
	for (size_t i = 0; i < SBX_ARRAY_SIZE(agreed); i++) {
		_cleanup_fd_ int in = sbx_beneath_open(from, agreed[i], O_RDONLY), out = -1;
		int r;

		if (unlinkat(to, agreed[i], 0) < 0 && errno != ENOENT)
			return -errno;
		if (in == -ENOENT)
			continue;
		out = in < 0 ? in
		             : openat(to, agreed[i], O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		r = out < 0 ? (in < 0 ? in : -errno) : sbx_file_copy(in, out);
		if (r < 0)
			return r;
	}
	return 0;
}

static void forget_agreed(int meta)
{
	for (size_t i = 0; i < SBX_ARRAY_SIZE(agreed); i++)
		unlinkat(meta, agreed[i], 0);
}

/*
 * --- onto the disk
 * ---------------------------------------------------------------------------------
 */

static int make_open(int disk, const char *name)
{
	_cleanup_fd_ int fd = sbx_dir_make(disk, name, 0700);

	return fd < 0 ? fd : fchmod(fd, 01777) < 0 ? -errno : 0;
}

static int load_home(const struct sbx_state *state, const char *id, int disk)
{
	_cleanup_fd_ int home = sbx_dir_make(disk, "home", 0700);
	_cleanup_fd_ int dir = sbx_dir_open(state->home, id);
	_cleanup_fd_ int saved = dir < 0 ? dir : sbx_dir_open(dir, "saved");

	if (home < 0)
		return home;
	/* Where it does not fit, a command begins with what does. */
	if (saved >= 0)
		copy_tree(saved, home, disk, NULL, NULL, NULL);
	return 0;
}

/* One that was on no disk is as it was when it was last used. */
static int load_repo(const struct sbx_state *state, const char *id, int disk)
{
	_cleanup_fd_ int holder = sbx_dir_make(disk, "git", 0700);
	_cleanup_fd_ int meta = sbx_dir_open(state->git, id);
	_cleanup_fd_ int saved = meta < 0 ? meta : sbx_dir_open(meta, "saved");
	_cleanup_fd_ int from = meta < 0 ? meta : sbx_dir_open(saved < 0 ? meta : saved, "repo");
	_cleanup_fd_ int repo = -1;
	int r;

	if (holder < 0 || meta < 0)
		return holder < 0 ? holder : 0;
	if (from >= 0)
		repo = sbx_dir_make(holder, "repo", 0755);
	r = from < 0 ? from : repo;
	if (r >= 0 && saved >= 0)
		r = copy_agreed(saved, meta);
	if (r >= 0)
		r = copy_repo(from, repo, disk, NULL, NULL);
	if (r < 0) {
		forget_agreed(meta);
		sbx_tree_remove(holder, "repo", NULL);
		sbx_tree_remove(disk, "links", NULL);
	}
	return 0;
}

/* [pool] */
static int load_places(const struct sbx_overlay *overlay, const struct sbx_state *state,
                       const char *id, int disk, struct sbx_error *err)
{
	int r = make_open(disk, "tmp");

	if (!r)
		r = make_open(disk, "shm");
	if (!r && sbx_overlay_holds_home(overlay))
		r = load_home(state, id, disk);
	if (!r && sbx_overlay_holds_home(overlay))
		r = load_repo(state, id, disk);
	return r ? sbx_fail(err, -r, "cannot fill the disk: %s", strerror(-r)) : 0;
}

/*
 * --- from the disk
 * ---------------------------------------------------------------------------------
 */

/* The copy takes the place of the last one at once. */
static int replace(int dir, struct sbx_error *err)
{
	int r = syncfs(dir) < 0 ? -errno : 0;

	if (!r && renameat(dir, "saving", dir, "saved") < 0 &&
	    renameat2(dir, "saving", dir, "saved", RENAME_EXCHANGE) < 0)
		r = -errno;
	if (!r && fsync(dir) < 0)
		r = -errno;
	return r ? sbx_fail(err, -r, "cannot keep what was saved: %s", strerror(-r))
	         : sbx_tree_remove(dir, "saving", err);
}

/* An empty STATE/ROOM/ID/saving; *DIR is what it is in. Descriptor or negative errno. */
static int begin(int mounter, const char *id, int *dir, struct sbx_error *err)
{
	int fd = *dir = sbx_dir_make(mounter, id, 0700), r = fd < 0 ? fd : 0;

	if (!r)
		r = sbx_tree_remove(fd, "saving", err);
	if (!r)
		r = sbx_tree_remove(fd, "links", err);
	if (!r)
		r = sbx_dir_make(fd, "saving", 0700);
	return r < 0 ? sbx_fail(err, -r, "cannot save the disk: %s", strerror(-r)) : r;
}

static int end(int dir, int r, struct sbx_error *err)
{
	if (!r)
		return replace(dir, err);
	sbx_tree_remove(dir, "saving", NULL);
	sbx_tree_remove(dir, "links", NULL);
	return r;
}

static int save_home(const struct sbx_state *state, const char *id, int disk,
                     atomic_bool *cancelled, struct sbx_error *err)
{
	_cleanup_fd_ int home = sbx_dir_open(disk, "home"), dir = -1, saving = -1;

	if (home < 0)
		return 0;
	saving = begin(state->home, id, &dir, err);
	if (saving < 0)
		return saving;
	return end(dir, copy_tree(home, saving, dir, NULL, cancelled, err), err);
}

/*
 * What is agreed on first: what a repository has beyond that was made inside, and is brought over.
 */
static int save_repo(const struct sbx_state *state, const char *id, int disk,
                     atomic_bool *cancelled, struct sbx_error *err)
{
	_cleanup_fd_ int repo = sbx_beneath_open(disk, "git/repo", O_RDONLY | O_DIRECTORY);
	_cleanup_fd_ int dir = -1, saving = -1, copy = -1;
	int r;

	if (repo < 0)
		return 0;
	saving = begin(state->git, id, &dir, err);
	if (saving < 0)
		return saving;
	r = copy_agreed(dir, saving);
	if (!r)
		r = copy = sbx_dir_make(saving, "repo", 0755);
	if (r < 0)
		return end(dir, sbx_fail(err, -r, "cannot save the disk: %s", strerror(-r)), err);
	return end(dir, copy_repo(repo, copy, dir, cancelled, err), err);
}

static int save_places(const struct sbx_state *state, const char *id, int disk,
                       atomic_bool *cancelled, struct sbx_error *err)
{
	int r = save_home(state, id, disk, cancelled, err);

	return r ? r : save_repo(state, id, disk, cancelled, err);
}

/* What FROM holds, a layer's directory, to TO; AT is where to keep links meanwhile. */
static int copy_layer(const struct sbx_overlay *overlay, int from, int to, int at,
                      atomic_bool *cancelled, struct sbx_error *err)
{
	const struct sbx_identity *owner = sbx_overlay_owner(overlay);
	_cleanup_fd_ int links = sbx_dir_make(at, "links", 0700);
	struct sbx_copy copy = {.src = from,
	                        .dst = to,
	                        .links = links,
	                        .layer = true,
	                        .cancelled = cancelled,
	                        .owner = owner->uid != geteuid() ? owner : NULL};
	int r;

	if (links < 0)
		return sbx_fail(err, -links, "cannot copy a layer: %s", strerror(-links));
	r = sbx_tree_copy(&copy, err);
	return r ? r : sbx_tree_remove(at, "links", err);
}

/* DISK is the root of an empty one. */
static int fill_disk(const struct sbx_overlay *overlay, const struct sbx_state *state,
                     const char *id, int disk, struct sbx_error *err)
{
	_cleanup_fd_ int dir = sbx_dir_open(state->trees, id);
	_cleanup_fd_ int saved = dir < 0 ? dir : sbx_dir_open(dir, "upper");
	_cleanup_fd_ int upper = saved < 0 ? saved : sbx_dir_make(disk, "upper", 0700);

	if (upper < 0)
		return sbx_fail(err, -upper, "cannot fill the disk: %s", strerror(-upper));
	if (mkdirat(disk, "work", 0700) < 0)
		return sbx_fail(err, errno, "cannot fill the disk: %s", strerror(errno));
	return copy_layer(overlay, saved, upper, disk, NULL, err);
}

int sbx_overlay_load(struct sbx_overlay *overlay, const struct sbx_state *state,
                     const struct sbx_record *rec, struct sbx_error *err)
{
	_cleanup_fd_ int root = sbx_mounter_disk(sbx_overlay_mounter(overlay), rec->id,
	                                         (uint64_t)rec->disk_mb, err);
	_cleanup_fd_ int disk = -1;
	int r;

	if (root < 0)
		return root;
	disk = sbx_dir_open(root, ".");
	if (disk < 0)
		return sbx_fail(err, -disk, "cannot open the disk: %s", strerror(-disk));
	r = fill_disk(overlay, state, rec->id, disk, err);
	if (!r)
		r = load_places(overlay, state, rec->id, disk, err);
	return r ? r : sbx_steal_fd(&disk);
}

/*
 * The copy takes the place of the last one at once; that is removed then. Each step is on disk
 * before the next: a power cut leaves the one or the other, whole.
 */
static int keep(int dir, struct sbx_error *err)
{
	if (syncfs(dir) < 0 || renameat2(dir, "saving", dir, "upper", RENAME_EXCHANGE) < 0 ||
	    fsync(dir) < 0)
		return sbx_fail(err, errno, "cannot keep what was saved: %s", strerror(errno));
	return sbx_tree_remove(dir, "saving", err);
}

int sbx_overlay_save(const struct sbx_overlay *overlay, const struct sbx_state *state,
                     const char *id, int disk, atomic_bool *cancelled, struct sbx_error *err)
{
	_cleanup_fd_ int dir = sbx_dir_open(state->trees, id);
	_cleanup_fd_ int upper = sbx_dir_open(disk, "upper"), saving = -1;
	int r;

	if (dir == -ENOENT)
		dir = sbx_dir_open(state->trash, id);
	if (dir < 0 || upper < 0)
		return sbx_fail(err, dir < 0 ? -dir : -upper, "cannot save the disk: %s",
		                strerror(dir < 0 ? -dir : -upper));
	r = sbx_tree_remove(dir, "saving", err);
	if (!r)
		r = sbx_tree_remove(dir, "links", err);
	if (r)
		return r;
	saving = sbx_dir_make(dir, "saving", 0700);
	if (saving < 0)
		return sbx_fail(err, -saving, "cannot save the disk: %s", strerror(-saving));
	r = copy_layer(overlay, upper, saving, dir, cancelled, err);
	if (!r) {
		r = keep(dir, err);
		return r ? r : save_places(state, id, disk, cancelled, err);
	}
	/* Half of it would only take up the room that was too little. */
	sbx_tree_remove(dir, "saving", NULL);
	sbx_tree_remove(dir, "links", NULL);
	return r;
}
