/*
 * A whole backend in one file, to be read beside include/sandboxfs/{backend,sandbox}.h. Each
 * sandbox is a directory of this machine, starts empty, and outlives the daemon:
 *
 *   STATE/sandboxes/ID/tree    the files, which the mount shows as MNT/NAME
 *   STATE/sandboxes/ID/name    NAME, which a rename changes; ID never changes
 *   STATE/sandboxes/.ID        not ready yet, or torn down: whoever finds it removes it
 *
 * So one rename(2) makes a sandbox and one unmakes it, and the daemon may be killed at any moment.
 *
 * A backend is a folder in backends/, a line in the table of backends/backend.c, its name in
 * fs/config/settings.c, and a row in tests/backends/test_behaviours.c, as this one has.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "backends/support/fsutil.h"
#include "sandboxfs/backend.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/own_dir.h"
#include "sandboxfs/tree.h"

#define ID_SIZE 96 /* of the time, a name, and a NUL */

int sbx_example_open(const struct sbx_host *host, struct sbx_backend **ret, struct sbx_error *err);

/* The contract's object comes first: a pointer to it is a pointer to ours. */
struct example {
	struct sbx_backend base;
	char *path; /* STATE/sandboxes */
	int dir;    /* the same, open */
};

struct example_sandbox {
	struct sbx_sandbox base;
	struct example *backend;
	char hidden[ID_SIZE + 1]; /* .ID */
	int dir;                  /* ID */
	int root;                 /* ID/tree */
};

static const struct sbx_sandbox_impl sandbox_impl;

static struct example_sandbox *downcast(struct sbx_sandbox *sb)
{
	assert(sb->impl == &sandbox_impl);
	return (struct example_sandbox *)sb;
}

/* The mount reads and writes beneath this descriptor: no file operation comes to the backend. */
static int sandbox_root(struct sbx_sandbox *sb)
{
	return downcast(sb)->root;
}

static void sandbox_info(struct sbx_sandbox *sb, struct json_object *obj)
{
	json_object_object_add(obj, "kind", json_object_new_string("none"));
	json_object_object_add(obj, "workdir", json_object_new_string(sb->workdir));
}

/* The disk comes first: after a crash, what it says is the name. */
static int sandbox_rename(struct sbx_sandbox *sb, const char *name, struct sbx_error *err)
{
	_cleanup_free_ char *copy = strdup(name);
	int r = copy ? sbx_file_replace(downcast(sb)->dir, "name", "name.new", name) : -ENOMEM;

	if (r)
		return sbx_fail(err, -r, "cannot write down the name: %s", strerror(-r));
	free(sb->name);
	sb->name = sbx_steal_ptr(&copy);
	return 0;
}

/* The first half of a teardown frees the name, the second takes its time; each may come again. */
static int sandbox_retire(struct sbx_sandbox *sb, struct sbx_error *err)
{
	int dir = downcast(sb)->backend->dir;

	if (renameat(dir, sb->id, dir, downcast(sb)->hidden) == 0 || errno == ENOENT)
		return 0;
	return sbx_fail(err, errno, "cannot move the tree away: %s", strerror(errno));
}

static int sandbox_remove(struct sbx_sandbox *sb, struct sbx_error *err)
{
	return sbx_tree_remove(downcast(sb)->backend->dir, downcast(sb)->hidden, err);
}

static void sandbox_close(struct sbx_sandbox *sb)
{
	struct example_sandbox *s = downcast(sb);

	sbx_cleanup_fd(&s->root);
	sbx_cleanup_fd(&s->dir);
	free(sb->name);
	free(sb->workdir);
	free(s);
}

/* No further tables: EOPNOTSUPP. The first is `commands`, as backends/memory/memory.c has it. */
static const struct sbx_sandbox_impl sandbox_impl = {
        .root = sandbox_root,
        .info = sandbox_info,
        .rename = sandbox_rename,
        .retire = sandbox_retire,
        .remove = sandbox_remove,
        .close = sandbox_close,
};

/* -ENOENT: ID is no sandbox, or what was left of one. */
static int open_sandbox(struct example *b, const char *id, struct sbx_sandbox **ret)
{
	struct example_sandbox *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return -ENOMEM;
	s->base.impl = &sandbox_impl;
	s->backend = b;
	snprintf(s->hidden, sizeof(s->hidden), ".%s", id);
	s->base.id = s->hidden + 1;
	s->base.created_ms = strtoll(id, NULL, 10) / 1000000;
	s->base.tree.owner = (struct sbx_identity){.uid = geteuid(), .gid = getegid()};
	s->dir = sbx_dir_open(b->dir, id);
	s->root = s->dir < 0 ? s->dir : sbx_dir_open(s->dir, "tree");
	s->base.workdir = sbx_format("%s/%s/tree", b->path, id);
	r = s->base.workdir ? s->root : -ENOMEM;
	if (r >= 0)
		r = sbx_file_read(s->dir, "name", ID_SIZE, &s->base.name);
	if (r)
		sandbox_close(&s->base);
	else
		*ret = &s->base;
	return r;
}

/* Makes all of .ID, and only then ID of it. */
static int make(struct example *b, const char *hidden, const char *name, struct sbx_sandbox **ret)
{
	_cleanup_fd_ int dir = sbx_dir_make(b->dir, hidden, 0700);
	int r = dir < 0 ? dir : sbx_file_create(dir, "name", name);

	if (!r && (mkdirat(dir, "tree", 0755) < 0 || renameat(b->dir, hidden, b->dir, hidden + 1)))
		r = -errno;
	if (!r)
		r = open_sandbox(b, hidden + 1, ret);
	if (!r)
		return 0;
	/* Where no descriptor can be had, sbx_tree_remove() can do nothing. */
	renameat(b->dir, hidden + 1, b->dir, hidden);
	unlinkat(dir, "name", 0);
	unlinkat(dir, "tree", AT_REMOVEDIR);
	unlinkat(b->dir, hidden, AT_REMOVEDIR);
	return r;
}

static int example_create(struct sbx_backend *base, const struct sbx_create *req,
                          struct sbx_sandbox **ret, struct sbx_error *err)
{
	struct example *b = (struct example *)base;
	char hidden[ID_SIZE + 1];
	struct timespec now;
	int r = sbx_name_check(req->name, err);

	if (r)
		return r;
	if (req->origin.kind != SBX_ORIGIN_SOURCE)
		return sbx_fail(err, EOPNOTSUPP, "fork is not available with this backend");
	if (req->origin.base || req->branch)
		return sbx_fail(err, EINVAL, "sandboxes start empty here: no base, no branch");
	if (req->cancelled && atomic_load(req->cancelled))
		return sbx_fail(err, EINTR, "cancelled");
	clock_gettime(CLOCK_REALTIME, &now);
	snprintf(hidden, sizeof(hidden), ".%lld%09ld-%s", (long long)now.tv_sec, now.tv_nsec,
	         req->name);
	r = make(b, hidden, req->name, ret);
	return r ? sbx_fail(err, -r, "cannot make the tree: %s", strerror(-r)) : 0;
}

static int adopt_or_remove(struct example *b, const char *name, const struct sbx_recover *r)
{
	struct sbx_sandbox *sb = NULL;
	int code = name[0] == '.' ? -ENOENT : open_sandbox(b, name, &sb);

	if (!code)
		r->found(sb, r->data);
	if (code != -ENOENT)
		return code;
	r->note("what a killed daemon had left was removed", r->data);
	return sbx_tree_remove(b->dir, name, NULL);
}

static int example_recover(struct sbx_backend *base, const struct sbx_recover *r,
                           struct sbx_error *err)
{
	struct example *b = (struct example *)base;
	_cleanup_(sbx_strings_release) struct sbx_strings names = {0};
	int code = sbx_dir_names(b->dir, &names);

	for (size_t i = 0; i < names.n && !code; i++)
		code = adopt_or_remove(b, names.items[i], r);
	return code ? sbx_fail(err, -code, "cannot look at %s: %s", b->path, strerror(-code)) : 0;
}

static void example_destroy(struct sbx_backend *base)
{
	struct example *b = (struct example *)base;

	sbx_cleanup_fd(&b->dir);
	free(b->path);
	free(b);
}

static const struct sbx_backend_impl impl = {
        .name = "example",
        .recover = example_recover,
        .create = example_create,
        .destroy = example_destroy,
};

/* The lock goes with the descriptor, so that no daemon can leave it behind. */
int sbx_example_open(const struct sbx_host *host, struct sbx_backend **ret, struct sbx_error *err)
{
	struct example *b = calloc(1, sizeof(*b));
	int r = 0;

	if (!b)
		return sbx_no_memory(err);
	b->base.impl = &impl;
	b->path = sbx_format("%s/sandboxes", host->settings->state_dir);
	b->dir = b->path ? sbx_dir_own(b->path, "state", err) : sbx_no_memory(err);
	if (b->dir < 0)
		r = b->dir;
	else if (flock(b->dir, LOCK_EX | LOCK_NB) < 0)
		r = sbx_fail(err, EBUSY, "%s is in use by another daemon", b->path);
	if (r)
		example_destroy(&b->base);
	else
		*ret = &b->base;
	return r;
}
