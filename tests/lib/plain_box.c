#include "tests/lib/plain_box.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/sandbox/registry.h"
#include "sandboxfs/cleanup.h"
#include "tests/lib/tmp.h"

struct plain_box {
	struct sbx_sandbox sandbox;
	struct sbx_box box;
	char dir[256];
	int root;
	bool alive;
};

static int root_of(struct sbx_sandbox *sb)
{
	return sbx_container_of(sb, struct plain_box, sandbox)->root;
}

static const struct sbx_sandbox_impl impl = {.root = root_of};

/* What the inode table needs of fs/sandbox/registry.c. */
bool sbx_box_alive(struct sbx_box *box)
{
	return sbx_container_of(box, struct plain_box, box)->alive;
}

int sbx_box_root(struct sbx_box *box)
{
	return fcntl(sbx_container_of(box, struct plain_box, box)->root, F_DUPFD_CLOEXEC, 3);
}

struct sbx_box *sbx_box_ref(struct sbx_box *box)
{
	return box;
}

void sbx_box_unref(struct sbx_box *box)
{
	(void)box;
}

struct plain_box *plain_box_create(void)
{
	struct plain_box *pb = calloc(1, sizeof(*pb));

	if (!pb)
		return NULL;
	*pb = (struct plain_box){.sandbox = {.impl = &impl}, .alive = true};
	pb->sandbox.tree.owner = (struct sbx_identity){.uid = geteuid(), .gid = getegid()};
	pb->box.number = 1;
	pb->box.sandbox = &pb->sandbox;
	pb->root = tmp_make(pb->dir, sizeof(pb->dir), "sandboxfs-box")
	                   ? open(pb->dir, O_PATH | O_DIRECTORY | O_CLOEXEC)
	                   : -1;
	return pb;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

void plain_box_destroy(struct plain_box *pb)
{
	close(pb->root);
	nftw(pb->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	free(pb);
}

struct sbx_box *plain_box_get(struct plain_box *pb)
{
	return &pb->box;
}

int plain_box_root(struct plain_box *pb)
{
	return pb->root;
}

void plain_box_set_alive(struct plain_box *pb, bool alive)
{
	pb->alive = alive;
}
