/* One file is told from another by where it is kept, its number and when it was born. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "fs/sandbox/registry.h"
#include "fs/workspace/inode_impl.h"
#include "fs/workspace/owner.h"
#include "sandboxfs/mitigations.h"

static int64_t stamp_ns(const struct statx_timestamp *t)
{
	return t->tv_sec * 1000000000 + t->tv_nsec;
}

static struct timespec stamp(const struct statx_timestamp *t)
{
	return (struct timespec){.tv_sec = t->tv_sec, .tv_nsec = t->tv_nsec};
}

/* Never 0 for a sandbox. */
static uint32_t changes_of(const struct sbx_box *box)
{
	return box ? __atomic_load_n(&box->changes, __ATOMIC_SEQ_CST) * 2 + 1 : 0;
}

static bool is_split(const struct sbx_box *box, const struct stat *st)
{
	return S_ISREG(st->st_mode) && st->st_nlink > 1 && box && box->sandbox &&
	       box->sandbox->tree.splits_links;
}

static bool quiet_since(const struct sbx_box *box, uint32_t changes)
{
	return box && !__atomic_load_n(&box->busy, __ATOMIC_SEQ_CST) && changes_of(box) == changes;
}

int sbx_ident_at(const struct sbx_box *box, int dirfd, const char *name, struct stat *st,
                 struct sbx_ident *id)
{
	const int nofollow = sbx_mitigation_off("identity") ? 0 : AT_SYMLINK_NOFOLLOW;
	const uint32_t changes = changes_of(box);
	struct statx x;

	if (statx(dirfd, name, nofollow | AT_EMPTY_PATH | AT_NO_AUTOMOUNT,
	          STATX_BASIC_STATS | STATX_BTIME, &x) < 0)
		return -errno;
	*st = (struct stat){
	        .st_dev = makedev(x.stx_dev_major, x.stx_dev_minor),
	        .st_ino = x.stx_ino,
	        .st_mode = x.stx_mode,
	        .st_nlink = x.stx_nlink,
	        .st_uid = x.stx_uid,
	        .st_gid = x.stx_gid,
	        .st_rdev = makedev(x.stx_rdev_major, x.stx_rdev_minor),
	        .st_size = (off_t)x.stx_size,
	        .st_blksize = (blksize_t)x.stx_blksize,
	        .st_blocks = (blkcnt_t)x.stx_blocks,
	        .st_atim = stamp(&x.stx_atime),
	        .st_mtim = stamp(&x.stx_mtime),
	        .st_ctim = stamp(&x.stx_ctime),
	};
	sbx_owner_show(box, st);
	*id = (struct sbx_ident){
	        .dev = st->st_dev,
	        .ino = st->st_ino,
	        .born = x.stx_mask & STATX_BTIME ? stamp_ns(&x.stx_btime) : 0,
	        .type = st->st_mode & S_IFMT,
	        .changes = quiet_since(box, changes) && !is_split(box, st) ? changes : 0,
	};
	return 0;
}

/*
 * Overlayfs tells the birth of what is copied up as that of the copy. The number of a file of the
 * base is no other's as long as the base is there.
 */
static bool is_copied_up(const struct sbx_node *node, const struct sbx_ident *id)
{
	const struct sbx_sandbox *sandbox = node->box ? node->box->sandbox : NULL;

	return sandbox && node->born <= sandbox->tree.unstable_before_ns && id->born > node->born;
}

bool sbx_node_is(const struct sbx_node *node, const struct sbx_ident *id)
{
	return node->ino == id->ino && node->dev == id->dev && node->type == id->type &&
	       (node->born == id->born || is_copied_up(node, id));
}

bool sbx_node_split(struct sbx_node *node, const struct stat *st)
{
	if (is_split(node->box, st))
		__atomic_store_n(&node->split, true, __ATOMIC_RELAXED);
	return __atomic_load_n(&node->split, __ATOMIC_RELAXED);
}

void sbx_node_note_copy(struct sbx_node *node, const struct sbx_ident *id)
{
	if (node->born != id->born && sbx_node_is(node, id))
		node->copied = id->born;
}

bool sbx_node_may_be_copied(const struct sbx_node *node)
{
	const struct sbx_sandbox *sandbox = node->box ? node->box->sandbox : NULL;

	return sandbox && S_ISREG(node->type) && !node->copied &&
	       node->born <= sandbox->tree.unstable_before_ns;
}

bool sbx_node_is_still(const struct sbx_node *node, const struct sbx_ident *id)
{
	return sbx_node_is(node, id) || (node->copied && node->copied == id->born &&
	                                 node->dev == id->dev && node->type == id->type);
}
