/*
 * An upper layer of limited size lies on a tmpfs of its own, as nothing else that an ordinary user can have refuses a write by size. What
 * is on it is kept in the state directory, where an upper layer always is: copied there when told, and from there
 * when the sandbox is taken up again. The copy replaces the last one whole.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/local/overlay/overlay.h"
#include "backends/local/overlay/ram_disk_places.h"
#include "backends/runner/isolation/mounter.h"
#include "backends/support/fsutil.h"
#include "backends/support/tree.h"
#include "sandboxfs/cleanup.h"

/* What FROM holds, a layer's directory, to TO; AT is where to keep links meanwhile. */
static int copy_layer(const struct sbx_layers *layers, int from, int to, int at,
                      atomic_bool *cancelled, struct sbx_error *err)
{
	const struct sbx_identity *owner = sbx_layers_owner(layers);
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
static int fill_disk(const struct sbx_layers *layers, const struct sbx_state *state, const char *id,
                     int disk, struct sbx_error *err)
{
	_cleanup_fd_ int dir = sbx_dir_open(state->trees, id);
	_cleanup_fd_ int saved = dir < 0 ? dir : sbx_dir_open(dir, "upper");
	_cleanup_fd_ int upper = saved < 0 ? saved : sbx_dir_make(disk, "upper", 0700);

	if (upper < 0)
		return sbx_fail(err, -upper, "cannot fill the disk: %s", strerror(-upper));
	if (mkdirat(disk, "work", 0700) < 0)
		return sbx_fail(err, errno, "cannot fill the disk: %s", strerror(errno));
	return copy_layer(layers, saved, upper, disk, NULL, err);
}

int sbx_layers_load(struct sbx_layers *layers, const struct sbx_state *state,
                    const struct sbx_record *rec, struct sbx_error *err)
{
	_cleanup_fd_ int root =
	        sbx_room_disk(sbx_layers_room(layers), rec->id, (uint64_t)rec->disk_mb, err);
	_cleanup_fd_ int disk = -1;
	int r;

	if (root < 0)
		return root;
	disk = sbx_dir_open(root, ".");
	if (disk < 0)
		return sbx_fail(err, -disk, "cannot open the disk: %s", strerror(-disk));
	r = fill_disk(layers, state, rec->id, disk, err);
	if (!r)
		r = sbx_layers_load_places(layers, state, rec->id, disk, err);
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

int sbx_layers_save(const struct sbx_layers *layers, const struct sbx_state *state, const char *id,
                    int disk, atomic_bool *cancelled, struct sbx_error *err)
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
	r = copy_layer(layers, upper, saving, dir, cancelled, err);
	if (!r) {
		r = keep(dir, err);
		return r ? r : sbx_layers_save_places(state, id, disk, cancelled, err);
	}
	/* Half of it would only take up the room that was too little. */
	sbx_tree_remove(dir, "saving", NULL);
	sbx_tree_remove(dir, "links", NULL);
	return r;
}
