/* Where the local backend keeps what git_private.c works on. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "backends/local/layers.h"
#include "backends/local/local_impl.h"
#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/spawner.h"

#define COVERS 256 /* two for each */

char *sbx_local_git_link(const struct sbx_local *b, const struct sbx_record *rec)
{
	_cleanup_free_ char *room = sbx_format("%s/git", b->state.path);

	return room ? sbx_git_private_link(room, rec->id) : NULL;
}

void sbx_local_git_mend_entry(const struct sbx_local *b, const struct sbx_record *rec)
{
	_cleanup_free_ char *workdir = NULL;
	struct sbx_git_worktree wt;

	if (sbx_local_worktree(b, rec, &workdir, &wt))
		sbx_git_mend_entry(&wt);
}

void sbx_local_git_mend_link(const struct sbx_local *b, const struct sbx_record *rec, int root)
{
	_cleanup_free_ char *link = rec->common ? sbx_local_git_link(b, rec) : NULL;
	const struct sbx_identity *owner;

	if (!link || !sbx_file_is_blank(root, ".git") ||
	    sbx_file_replace(root, ".git", ".git.sandboxfs", link) || !rec->layer)
		return;
	owner = sbx_layers_owner(b->layers);
	/* Where it fails the file can be read all the same. */
	if (owner->uid != geteuid() &&
	    fchownat(root, ".git", owner->uid, owner->gid, AT_SYMLINK_NOFOLLOW) < 0)
		return;
}

int sbx_local_git_open(const struct sbx_local *b, const struct sbx_record *rec,
                       struct sbx_git_private **ret)
{
	_cleanup_free_ char *room = sbx_format("%s/git", b->state.path);
	_cleanup_free_ char *workdir = sbx_format("%s/trees/%s", b->state.path, rec->id);
	_cleanup_free_ char *link = rec->layer ? NULL : sbx_local_git_link(b, rec);
	const struct sbx_git_worktree wt = {
	        .workdir = workdir,
	        .link = link,
	        .common = rec->common,
	        .worktree = rec->worktree,
	        .branch = rec->branch,
	        .base = rec->base,
	        .branch_created = rec->branch_created,
	};

	*ret = NULL;
	if (!wt.common || !wt.worktree || !wt.branch)
		return 0;
	return room && workdir ? sbx_git_private_open(&wt, room, rec->id, ret) : -ENOMEM;
}

int sbx_local_git_sync(struct sbx_local_sandbox *s, struct sbx_error *err)
{
	struct sbx_spawner *sp = s->backend->host->spawner;
	struct timespec now;
	bool idle;

	/* Before it is asked: who starts after that has locks that are younger. */
	clock_gettime(CLOCK_REALTIME_COARSE, &now);
	idle = !sp || !sbx_spawner_runs(sp, s->base.id);
	return sbx_git_private_sync(s->git, idle ? &now : NULL, err);
}

struct covering {
	const struct sbx_local *b;
	const char *id;
	int dir;
	struct sbx_names pairs;
};

static int add_cover(const char *name, unsigned char type, void *data)
{
	struct covering *c = data;
	size_t n = strlen(name), suffix = strlen(SBX_NESTED_AT);
	_cleanup_free_ char *path = NULL;
	char at[PATH_MAX];
	ssize_t len;
	int r;

	(void)type;
	if (n <= suffix || strcmp(name + n - suffix, SBX_NESTED_AT) != 0 || c->pairs.n >= COVERS)
		return 0;
	len = readlinkat(c->dir, name, at, sizeof(at) - 1);
	if (len <= 0)
		return 0;
	at[len] = '\0';
	path = sbx_format("%s/nested/%s/%.*s", c->b->state.path, c->id, (int)(n - suffix), name);
	r = path ? sbx_names_add(&c->pairs, path) : -ENOMEM;
	return r ? r : sbx_names_add(&c->pairs, at);
}

int sbx_local_covers(const struct sbx_local *b, const char *id, struct sbx_names *ret)
{
	_cleanup_fd_ int dir = sbx_dir_open(b->state.nested, id);
	struct covering c = {.b = b, .id = id, .dir = dir};
	int r = dir == -ENOENT ? 0 : dir < 0 ? dir : sbx_dir_scan(dir, add_cover, &c);

	/* The list ends with a NULL. */
	if (!r && c.pairs.n)
		r = sbx_names_add(&c.pairs, "");
	if (r) {
		sbx_names_release(&c.pairs);
		return r;
	}
	free(sbx_names_take(&c.pairs));
	if (c.pairs.items)
		c.pairs.items[c.pairs.n] = NULL;
	*ret = c.pairs;
	return 0;
}
