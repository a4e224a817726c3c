/*
 * The reference backend: every sandbox an empty directory on a file system in memory. Nothing
 * outlives the daemon. What one that was killed has left is recognised by its lock being free, and
 * removed by the next.
 *
 *   BASE/ID/tree   the sandbox's root; BASE/ID/gone once it is retired
 *   BASE/ID/home   HOME of its commands
 */
#include "backends/memory/memory.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/runner/launch.h"
#include "backends/support/fsutil.h"
#include "backends/support/tree.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"

struct memory {
	struct sbx_backend base;
	const struct sbx_host *host;
	char *path; /* of the base directory */
	int parent; /* the directory it lies in */
	int dir;
	atomic_uint made; /* makes ids unique */
};

struct memory_sandbox {
	struct sbx_sandbox base;
	struct memory *backend;
	char *home;
	int dir; /* BASE/ID */
	int root;
	pthread_mutex_t lock; /* base.name */
};

static const struct sbx_sandbox_impl sandbox_impl;

static struct memory_sandbox *downcast(struct sbx_sandbox *sb)
{
	assert(sb->impl == &sandbox_impl);
	return (struct memory_sandbox *)sb;
}

static int sandbox_root(struct sbx_sandbox *sb)
{
	return downcast(sb)->root;
}

static void sandbox_info(struct sbx_sandbox *sb, struct json_object *obj)
{
	json_object_object_add(obj, "backend", json_object_new_string("memory"));
	json_object_object_add(obj, "kind", json_object_new_string("none"));
	json_object_object_add(obj, "workdir", json_object_new_string(sb->workdir));
	json_object_object_add(obj, "home", json_object_new_string(downcast(sb)->home));
}

static void sandbox_policy(struct sbx_sandbox *sb, struct json_object *obj)
{
	struct sbx_spawner *sp = downcast(sb)->backend->host->spawner;

	if (sp)
		sbx_spawner_policy(sp, obj);
}

static int sandbox_rename(struct sbx_sandbox *sb, const char *name, struct sbx_error *err)
{
	struct memory_sandbox *s = downcast(sb);
	char *copy = strdup(name), *old;

	if (!copy)
		return sbx_no_memory(err);
	pthread_mutex_lock(&s->lock);
	old = sb->name;
	sb->name = copy;
	pthread_mutex_unlock(&s->lock);
	free(old);
	return 0;
}

static int sandbox_retire(struct sbx_sandbox *sb, struct sbx_error *err)
{
	struct memory_sandbox *s = downcast(sb);

	if (renameat(s->dir, "tree", s->dir, "gone") < 0 && errno != ENOENT)
		return sbx_fail(err, errno, "cannot move the tree away: %s", strerror(errno));
	return 0;
}

static int sandbox_remove(struct sbx_sandbox *sb, struct sbx_error *err)
{
	struct memory *b = downcast(sb)->backend;

	if (b->host->spawner)
		sbx_spawner_forget(b->host->spawner, sb->id);
	return sbx_tree_remove(b->dir, sb->id, err);
}

static void sandbox_close(struct sbx_sandbox *sb)
{
	struct memory_sandbox *s = (struct memory_sandbox *)sb;

	sbx_cleanup_fd(&s->root);
	sbx_cleanup_fd(&s->dir);
	pthread_mutex_destroy(&s->lock);
	free(s->home);
	free(sb->name);
	free(sb->id);
	free(sb->workdir);
	free(s);
}

static int sandbox_exec(struct sbx_sandbox *sb, const struct sbx_exec *spec, struct sbx_job *job,
                        struct sbx_error *err)
{
	struct memory_sandbox *s = downcast(sb);
	_cleanup_free_ char *name = NULL;

	pthread_mutex_lock(&s->lock);
	name = strdup(sb->name);
	pthread_mutex_unlock(&s->lock);
	if (!name)
		return sbx_no_memory(err);
	return sbx_launch(&(struct sbx_launch){.host = s->backend->host,
	                                       .name = name,
	                                       .home = s->home,
	                                       .place = {.id = sb->id, .workdir = sb->workdir}},
	                  spec, job, err);
}

static const struct sbx_command_impl commands = {.exec = sandbox_exec,
                                                 .signal = sbx_spawner_signal};

static const struct sbx_sandbox_impl sandbox_impl = {
        .root = sandbox_root,
        .info = sandbox_info,
        .policy = sandbox_policy,
        .rename = sandbox_rename,
        .retire = sandbox_retire,
        .remove = sandbox_remove,
        .close = sandbox_close,
        .commands = &commands,
};

static int make_dirs(struct memory_sandbox *s)
{
	_cleanup_fd_ int home = -1;

	s->dir = sbx_dir_make(s->backend->dir, s->base.id, 0700);
	if (s->dir < 0)
		return s->dir;
	home = sbx_dir_make(s->dir, "home", 0700);
	if (home < 0)
		return home;
	s->root = sbx_dir_make(s->dir, "tree", 0755);
	return s->root < 0 ? s->root : 0;
}

static int fill_in(struct memory_sandbox *s, const char *name)
{
	struct memory *b = s->backend;

	s->base.created_ms = sbx_real_ms();
	s->base.tree.owner = (struct sbx_identity){.uid = geteuid(), .gid = getegid()};
	s->base.name = strdup(name);
	s->base.id = sbx_format("%s-%d-%u", name, (int)getpid(), atomic_fetch_add(&b->made, 1));
	if (!s->base.id)
		return -ENOMEM;
	s->base.workdir = sbx_format("%s/%s/tree", b->path, s->base.id);
	s->home = sbx_format("%s/%s/home", b->path, s->base.id);
	return s->base.name && s->base.workdir && s->home ? make_dirs(s) : -ENOMEM;
}

static int check_request(const struct sbx_create *req, struct sbx_error *err)
{
	int r = sbx_name_check(req->name, err);

	if (r)
		return r;
	if (req->origin.kind != SBX_ORIGIN_SOURCE)
		return sbx_fail(err, EOPNOTSUPP, "fork is not available with the memory backend");
	if (req->origin.base || req->branch)
		return sbx_fail(err, EINVAL, "sandboxes in memory start empty: no base, no branch");
	if (req->cancelled && atomic_load(req->cancelled))
		return sbx_fail(err, EINTR, "cancelled");
	return 0;
}

static int backend_create(struct sbx_backend *base, const struct sbx_create *req,
                          struct sbx_sandbox **ret, struct sbx_error *err)
{
	struct memory *b = (struct memory *)base;
	struct memory_sandbox *s;
	int r = check_request(req, err);

	if (r)
		return r;
	s = malloc(sizeof(*s));
	if (!s)
		return sbx_no_memory(err);
	*s = (struct memory_sandbox){
	        .base.impl = &sandbox_impl, .backend = b, .dir = -1, .root = -1};
	pthread_mutex_init(&s->lock, NULL);
	r = fill_in(s, req->name);
	if (r) {
		if (s->base.id)
			sbx_tree_remove(b->dir, s->base.id, NULL);
		sandbox_close(&s->base);
		return sbx_fail(err, -r, "cannot make the tree: %s", strerror(-r));
	}
	*ret = &s->base;
	return 0;
}

static void own_prefix(char buf[40])
{
	snprintf(buf, 40, "sandboxfs-memory-%u-", (unsigned)geteuid());
}

/* Whether FD is still what NAME in PARENT leads to. */
static bool is_same(int parent, const char *name, int fd)
{
	struct stat a, b;

	return fstat(fd, &a) == 0 && fstatat(parent, name, &b, AT_SYMLINK_NOFOLLOW) == 0 &&
	       a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

struct sweep {
	const struct memory *b;
	const struct sbx_recover *r;
};

static int remove_if_dead(const char *name, unsigned char type, void *data)
{
	struct sweep *sw = data;
	_cleanup_fd_ int fd = -1;
	char prefix[40];
	struct stat st;

	(void)type;
	own_prefix(prefix);
	if (strncmp(name, prefix, strlen(prefix)) != 0)
		return 0;
	fd = sbx_dir_open(sw->b->parent, name);
	if (fd < 0 || fstat(fd, &st) < 0 || st.st_uid != geteuid() ||
	    flock(fd, LOCK_EX | LOCK_NB) < 0)
		return 0;
	if (sbx_tree_remove(sw->b->parent, name, NULL) == 0 && sw->r->note)
		sw->r->note("what a killed daemon had left in memory was removed", sw->r->data);
	return 0;
}

static int backend_recover(struct sbx_backend *base, const struct sbx_recover *r,
                           struct sbx_error *err)
{
	struct memory *b = (struct memory *)base;
	struct sweep sw = {.b = b, .r = r};
	int result = sbx_dir_scan(b->parent, remove_if_dead, &sw);

	return result ? sbx_fail(err, -result, "cannot look for leftovers: %s", strerror(-result))
	              : 0;
}

static void backend_destroy(struct sbx_backend *base)
{
	struct memory *b = (struct memory *)base;

	if (b->path && b->dir >= 0)
		sbx_tree_remove(b->parent, strrchr(b->path, '/') + 1, NULL);
	sbx_cleanup_fd(&b->dir);
	sbx_cleanup_fd(&b->parent);
	free(b->path);
	free(b);
}

static const struct sbx_backend_impl impl = {
        .name = "memory",
        .recover = backend_recover,
        .create = backend_create,
        .destroy = backend_destroy,
};

/* A sweep of another daemon may take the new directory for a dead one's before the lock is on it.
 */
static int make_base(struct memory *b, const char *parent)
{
	char prefix[40];

	own_prefix(prefix);
	b->parent = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (b->parent < 0)
		return -errno;
	for (int tries = 0; tries < 100; tries++) {
		free(b->path);
		b->path = sbx_format("%s/%sXXXXXX", parent, prefix);
		if (!b->path)
			return -ENOMEM;
		if (!mkdtemp(b->path))
			return -errno;
		b->dir = sbx_dir_open(b->parent, strrchr(b->path, '/') + 1);
		if (b->dir >= 0 && flock(b->dir, LOCK_EX | LOCK_NB) == 0 &&
		    is_same(b->parent, strrchr(b->path, '/') + 1, b->dir))
			return 0;
		sbx_cleanup_fd(&b->dir);
	}
	return -EBUSY;
}

static int make_base_somewhere(struct memory *b)
{
	const char *tmp = getenv("TMPDIR");
	int r = make_base(b, "/dev/shm");

	if (!r)
		return 0;
	sbx_cleanup_fd(&b->parent);
	return make_base(b, tmp && tmp[0] == '/' ? tmp : "/tmp");
}

int sbx_memory_open(const struct sbx_host *host, struct sbx_backend **ret, struct sbx_error *err)
{
	const struct sbx_settings *s = host->settings;
	struct memory *b;
	int r;

	if (s->source && strcmp(s->source, "none") != 0)
		return sbx_fail(err, EINVAL,
		                "the memory backend has no source; give none instead of %s",
		                s->source);
	b = calloc(1, sizeof(*b));
	if (!b)
		return sbx_no_memory(err);
	b->base.impl = &impl;
	b->host = host;
	b->parent = b->dir = -1;
	r = make_base_somewhere(b);
	if (r) {
		backend_destroy(&b->base);
		return sbx_fail(err, -r, "cannot make a directory in memory: %s", strerror(-r));
	}
	*ret = &b->base;
	return 0;
}
