/*
 * Room for other contents: files that are here, are the machine's own, and were not read for the
 * longest time become absent again, which takes a new file for each. All of the copy is walked for
 * that; therefore a quarter is cleared at once.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/remote/tree_impl.h"
#include "backends/support/beneath.h"
#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"
#include "sandboxfs/grow.h"
#include "sandboxfs/pool.h"

#define PAUSE_NS UINT64_C(10000000000)

struct candidate {
	char *path;
	uint64_t ino, used;
};

struct eviction {
	struct remote_tree *tree;
	struct candidate *at;
	size_t n, cap;
};

static bool is_over(struct remote_tree *t, uint64_t limit)
{
	bool ret;

	pthread_mutex_lock(&t->lock);
	ret = t->clean_bytes > limit;
	pthread_mutex_unlock(&t->lock);
	return ret;
}

/* Whether N may be made absent. With the lock held. */
static bool can_go(const struct remote_node *n)
{
	return S_ISREG(n->type) && !n->gone && !n->dirty && n->state != REMOTE_ABSENT && n->bytes &&
	       n->version.ino && n->coming == n->coming_end;
}

static int consider(const char *path, int opath, const struct stat *st, void *data)
{
	struct eviction *e = data;
	struct remote_node *n = remote_node_load(e->tree, opath, st, NULL, NULL);
	struct candidate c = {.ino = st->st_ino};
	bool can;

	if (!n)
		return -ENOMEM;
	pthread_mutex_lock(&e->tree->lock);
	can = can_go(n);
	c.used = n->used;
	pthread_mutex_unlock(&e->tree->lock);
	if (!can)
		return 0;
	if (SBX_GROW(e->at, e->n, e->cap, 64))
		return -ENOMEM;
	c.path = strdup(path);
	if (!c.path)
		return -ENOMEM;
	e->at[e->n++] = c;
	return 0;
}

/* What is to stand in for the file ST. False: it is to stay. With the turn held. */
static bool stand_in(struct remote_tree *t, const struct candidate *c, const struct stat *st,
                     struct remote_listed *ret, int64_t *told_ns)
{
	struct remote_node *n;
	bool go;

	if (t->cfg.touched(c->path, t->cfg.seen(t->cfg.data), t->cfg.data))
		return false;
	pthread_mutex_lock(&t->lock);
	n = remote_node_find(t, st->st_ino);
	/* Another name of it would be another file by then. */
	go = n && n->ino == c->ino && n->used == c->used && st->st_nlink == 1 && can_go(n);
	if (go) {
		*ret = (struct remote_listed){.path = c->path,
		                              .mode = st->st_mode,
		                              .size = n->version.size,
		                              .mtime_ns = n->version.mtime_ns,
		                              .ctime_ns = n->version.ctime_ns,
		                              .ino = n->version.ino};
		*told_ns = n->told_ns;
	}
	pthread_mutex_unlock(&t->lock);
	return go;
}

static int evict(struct remote_tree *t, const struct candidate *c)
{
	const char *slash = strrchr(c->path, '/');
	const char *name = slash ? slash + 1 : c->path;
	_cleanup_free_ char *dir = strndup(c->path, slash ? (size_t)(slash - c->path) : 0);
	_cleanup_fd_ int fd = -1;
	struct remote_listed l;
	struct remote_node *n;
	int64_t told_ns;
	struct stat st;
	int r;

	if (!dir)
		return -ENOMEM;
	fd = sbx_beneath_open(t->root, *dir ? dir : ".", O_RDONLY | O_DIRECTORY);
	/* What has several names would become several files. */
	if (fd < 0 || fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || st.st_nlink > 1 ||
	    !stand_in(t, c, &st, &l, &told_ns))
		return 0;
	r = remote_replace(t, fd, name, &l, true, NULL, &n);
	if (r)
		return r;
	pthread_mutex_lock(&t->lock);
	n->told_ns = told_ns;
	pthread_mutex_unlock(&t->lock);
	/* It may have been given another time here. */
	utimensat(fd, name, (const struct timespec[2]){st.st_atim, st.st_mtim},
	          AT_SYMLINK_NOFOLLOW);
	return 0;
}

static int by_use(const void *a, const void *b)
{
	const struct candidate *x = a, *y = b;

	return x->used < y->used ? -1 : x->used > y->used;
}

static int evict_oldest(struct eviction *e, uint64_t limit)
{
	struct remote_hold hold;
	int r = 0;

	if (e->n)
		qsort(e->at, e->n, sizeof(*e->at), by_use);
	remote_hold_begin(&hold, e->tree);
	for (size_t i = 0; i < e->n && !r && is_over(e->tree, limit); i++) {
		r = evict(e->tree, &e->at[i]);
		remote_hold_breathe(&hold);
	}
	remote_hold_end(&hold);
	return r;
}

static void work(void *data)
{
	struct eviction e = {.tree = data};
	struct remote_tree *t = data;
	const uint64_t limit = t->cfg.cache_mb << 20;
	int r = remote_walk(t, consider, &e);

	if (!r && is_over(t, limit))
		evict_oldest(&e, limit / 4 * 3);
	for (size_t i = 0; i < e.n; i++)
		free(e.at[i].path);
	free(e.at);
	pthread_mutex_lock(&t->lock);
	t->evicting = false;
	/* What could not be cleared is not looked through all the time. */
	t->evict_ns = t->clean_bytes > limit ? sbx_now_ns() + PAUSE_NS : 0;
	pthread_mutex_unlock(&t->lock);
	remote_under_way(t, -1);
}

void remote_evict(struct remote_tree *t, bool look)
{
	const uint64_t limit = t->cfg.cache_mb << 20;
	bool begin;

	if (!limit)
		return;
	pthread_mutex_lock(&t->lock);
	begin = !t->evicting && (look || t->clean_bytes > limit) && sbx_now_ns() >= t->evict_ns;
	t->evicting |= begin;
	t->under_way += begin;
	pthread_mutex_unlock(&t->lock);
	if (begin)
		sbx_pool_submit(t->cfg.pool, work, t);
}
