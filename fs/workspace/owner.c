#include "fs/workspace/owner.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/sandbox/registry.h"

static bool is_translated(const struct sbx_box *box)
{
	return box && box->sandbox->tree.owner.uid != geteuid();
}

void sbx_owner_show(const struct sbx_box *box, struct stat *st)
{
	if (!is_translated(box))
		return;
	if (st->st_uid == box->sandbox->tree.owner.uid)
		st->st_uid = geteuid();
	if (st->st_gid == box->sandbox->tree.owner.gid)
		st->st_gid = getegid();
}

void sbx_owner_hide(const struct sbx_box *box, uid_t *uid, gid_t *gid)
{
	if (!is_translated(box))
		return;
	if (*uid == geteuid())
		*uid = box->sandbox->tree.owner.uid;
	if (*gid == getegid())
		*gid = box->sandbox->tree.owner.gid;
}

int sbx_owner_give(const struct sbx_box *box, int dir, int dirfd, const char *name)
{
	gid_t gid = box && box->sandbox ? box->sandbox->tree.owner.gid : (gid_t)-1;
	struct stat st;

	if (!is_translated(box))
		return 0;
	/* A file that is made in a setgid directory has its group already. */
	if (dir >= 0 && fstat(dir, &st) == 0 && st.st_mode & S_ISGID)
		gid = (gid_t)-1;
	return fchownat(dirfd, name, box->sandbox->tree.owner.uid, gid,
	                AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) < 0
	               ? -errno
	               : 0;
}
