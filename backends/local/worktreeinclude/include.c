/* Where .worktreeinclude finds what it works on: the upper layer and the base below it, or the tree itself. */
#include "backends/local/worktreeinclude/include.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "backends/git/capture.h"
#include "backends/local/overlay/base_dir.h"
#include "backends/local/overlay/create_overlay.h"
#include "backends/local/overlay/overlay.h"
#include "backends/local/overlay/paths.h"
#include "backends/local/worktreeinclude/find.h"
#include "backends/support/beneath.h"
#include "sandboxfs/cleanup.h"

static int open_base(const struct sbx_local *b, const struct sbx_record *rec)
{
	_cleanup_free_ char *path =
	        sbx_format("%s/%s/tree", sbx_bases_path(sbx_layers_bases(b->layers)), rec->layer);

	return path ? sbx_dir_open(AT_FDCWD, path) : -ENOMEM;
}

static int open_upper(const struct sbx_local *b, const struct sbx_record *rec)
{
	_cleanup_free_ char *path = sbx_format(rec->layer ? "%s/upper" : "%s", rec->id);

	return path ? sbx_dir_open(b->state.trees, path) : -ENOMEM;
}

static int include(struct sbx_local *b, struct sbx_record *rec, atomic_bool *cancelled,
                   struct sbx_error *err)
{
	_cleanup_fd_ int dst = open_upper(b, rec);
	_cleanup_fd_ int base = rec->layer && dst >= 0 ? open_base(b, rec) : -1;
	_cleanup_fd_ int links = sbx_dir_make(b->state.trash, rec->id, 0700);
	struct sbx_skip skips[SBX_BASE_SKIPS];
	struct sbx_include in = {.source = b->host->settings->source_abs,
	                         .tree = rec->layer ? base : dst,
	                         .dst = dst,
	                         .links = links,
	                         .owner = rec->layer ? sbx_layers_owner(b->layers) : NULL,
	                         .skips = skips,
	                         .nskips = sbx_local_skips(b, skips),
	                         .cancelled = cancelled};
	int r = dst < 0 ? dst : in.tree < 0 ? in.tree : links < 0 ? links : 0;

	if (r)
		return sbx_fail(err, -r, "cannot open the sandbox: %s", strerror(-r));
	r = sbx_include_files(&in, err);
	if (r == -ENOENT)
		return 0;
	rec->included = (int64_t)in.files;
	rec->skipped = (int64_t)in.left_out;
	return r;
}

int sbx_local_include(struct sbx_local *b, struct sbx_record *rec, atomic_bool *cancelled,
                      struct sbx_error *err)
{
	_cleanup_free_ char *path =
	        sbx_format("%s/" SBX_WORKTREE_INCLUDE, b->host->settings->source_abs);
	int r;

	if (!path)
		return sbx_fail(err, ENOMEM, "out of memory");
	if (faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	r = include(b, rec, cancelled, err);
	return r ? r : sbx_tree_remove(b->state.trash, rec->id, err);
}

/* By way of the mounted tree, in which a directory of ours is where links are kept meanwhile. */
static int include_again(const struct sbx_local *b, const struct sbx_record *rec, int root,
                         int links, struct sbx_error *err)
{
	const struct sbx_identity owner = sbx_local_owner(b, rec);
	struct sbx_skip skips[SBX_BASE_SKIPS];
	struct sbx_include in = {.source = b->host->settings->source_abs,
	                         .tree = root,
	                         .dst = root,
	                         .links = links,
	                         .owner = owner.uid == geteuid() ? NULL : &owner,
	                         .skips = skips,
	                         .nskips = sbx_local_skips(b, skips)};
	int r = sbx_include_files(&in, err);

	return r == -ENOENT ? 0 : r;
}

int sbx_local_include_again(const struct sbx_local *b, const struct sbx_record *rec, int tree,
                            struct sbx_error *err)
{
	_cleanup_fd_ int root = -1, links = -1;
	int r;

	if (rec->included < 0 || !b->host->settings->source_abs)
		return 0;
	root = sbx_beneath_open(tree, ".", O_RDONLY | O_DIRECTORY);
	links = root < 0 ? root : sbx_dir_make(root, SBX_CAPTURE_TEMP, 0700);
	if (links < 0)
		return sbx_fail(err, -links, "cannot open the sandbox: %s", strerror(-links));
	r = include_again(b, rec, root, links, err);
	sbx_tree_remove(root, SBX_CAPTURE_TEMP, NULL);
	return r;
}
