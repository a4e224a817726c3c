/* The copy as others ask it, and tell it. */
#include "backends/remote/tree.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/remote/deadline.h"
#include "backends/remote/tree_impl.h"
#include "backends/support/beneath.h"
#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"
#include "sandboxfs/tree.h"

/* A number for this run of the system; 0: there is none to be had. */
static unsigned read_boot(void)
{
	_cleanup_free_ char *text = NULL;
	unsigned ret = 0;

	if (sbx_file_read(AT_FDCWD, "/proc/sys/kernel/random/boot_id", 64, &text) == 0)
		sscanf(text, "%8x", &ret);
	return ret;
}

/* The directories; what an earlier daemon has begun is of no use. */
static int open_dirs(struct remote_tree *t, struct sbx_error *err)
{
	int r = sbx_tree_remove(t->cfg.dir, "temp", err);

	if (r)
		return r;
	t->root = sbx_dir_make(t->cfg.dir, "tree", 0700);
	t->temp = sbx_dir_make(t->cfg.dir, "temp", 0700);
	if (t->root < 0 || t->temp < 0)
		return sbx_fail(err, t->root < 0 ? -t->root : -t->temp,
		                "the directory for the copy of a sandbox cannot be made");
	return 0;
}

static int open_root(struct remote_tree *t, struct sbx_error *err)
{
	const struct remote_version none = {0};
	_cleanup_fd_ int fd = openat(t->temp, "try", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	struct stat st;
	int r = fd < 0 || fstat(t->root, &st) < 0 ? -errno : 0;

	if (!r)
		r = remote_node_keep(t, fd, REMOTE_ABSENT, &none, 0);
	unlinkat(t->temp, "try", 0);
	if (r)
		return sbx_fail(err, -r,
		                "the file system of the state directory keeps no attributes of "
		                "files (user.*)");
	t->top = remote_node_load(t, t->root, &st, NULL, NULL);
	return t->top ? 0 : sbx_no_memory(err);
}

static void init(struct remote_tree *t)
{
	pthread_mutex_init(&t->taking, NULL);
	pthread_mutex_init(&t->lock, NULL);
	pthread_cond_init(&t->idle, NULL);
	t->root = t->temp = -1;
	t->boot = read_boot();
	t->times = (struct remote_times){.names_ms = remote_deadline(30000),
	                                 .data_ms = remote_deadline(60000),
	                                 .failed_ms = 2000,
	                                 .fresh_ms = 1000,
	                                 .retry_ms = 500,
	                                 .slice_us = 2000};
	snprintf(t->run, sizeof(t->run), "%llx", (unsigned long long)sbx_real_ns());
	t->nodes_most = REMOTE_NODES;
	t->incoming_end = &t->incoming;
	t->wants_end = &t->wants;
	remote_fetch_init(t);
}

int remote_tree_open(const struct remote_tree_config *config, struct remote_tree **ret,
                     struct sbx_error *err)
{
	struct remote_tree *t = calloc(1, sizeof(*t));
	int r;

	if (!t)
		return sbx_no_memory(err);
	t->cfg = *config;
	init(t);
	r = open_dirs(t, err);
	if (!r)
		r = open_root(t, err);
	if (r) {
		remote_tree_close(t);
		return r;
	}
	*ret = t;
	return 0;
}

static void free_asks(struct remote_tree *t)
{
	while (t->asks) {
		struct remote_ask *next = t->asks->next;

		free(t->asks);
		t->asks = next;
	}
}

void remote_tree_await(struct remote_tree *t)
{
	pthread_mutex_lock(&t->lock);
	while (t->under_way)
		pthread_cond_wait(&t->idle, &t->lock);
	pthread_mutex_unlock(&t->lock);
}

void remote_tree_close(struct remote_tree *t)
{
	if (!t)
		return;
	assert(!t->incoming && !t->wants && !t->under_way);
	free_asks(t);
	remote_nodes_free(t);
	remote_failure_unref(t->failed);
	remote_failure_unref(t->changes);
	sbx_cleanup_fd(&t->root);
	sbx_cleanup_fd(&t->temp);
	pthread_cond_destroy(&t->idle);
	pthread_mutex_destroy(&t->lock);
	pthread_mutex_destroy(&t->taking);
	free(t->workdir);
	free(t);
}

int remote_tree_root(struct remote_tree *t)
{
	return t->root;
}

void remote_under_way(struct remote_tree *t, int n)
{
	pthread_mutex_lock(&t->lock);
	assert(n > 0 || t->under_way);
	t->under_way += (unsigned)n;
	if (!t->under_way)
		pthread_cond_broadcast(&t->idle);
	pthread_mutex_unlock(&t->lock);
}

/* Whether what was heard at AT (CLOCK_MONOTONIC) is as new as a caller may expect. */
static bool is_new(const struct remote_tree *t, uint64_t at)
{
	if (t->failed || (!t->busy && !t->doubted))
		return true;
	return !t->doubted && at && sbx_now_ns() - at < t->times.fresh_ms * 1000000;
}

bool remote_is_here(const struct remote_tree *t, const struct remote_node *n, enum sbx_need need,
                    uint64_t off, uint64_t len)
{
	switch (need) {
	case SBX_NEED_NAMES:
		return n && n->dir && n->dir->listed &&
		       (is_new(t, t->fresh_ns) || is_new(t, n->dir->fresh_ns));
	case SBX_NEED_ATTR:
		return is_new(t, t->fresh_ns);
	case SBX_NEED_DATA:
		return n && (!S_ISREG(n->type) || remote_node_has(n, off, len));
	default:
		return true;
	}
}

bool remote_tree_here(struct remote_tree *t, uint64_t ino, enum sbx_need need, uint64_t off,
                      uint64_t len)
{
	struct remote_node *n;
	bool here;

	pthread_mutex_lock(&t->lock);
	n = remote_node_find(t, ino);
	here = remote_is_here(t, n, need, off, len);
	if (here && n && need == SBX_NEED_DATA)
		n->used = ++t->uses;
	pthread_mutex_unlock(&t->lock);
	return here;
}

/* The contents of N are the host's from now on. */
static void change_data(struct remote_tree *t, struct remote_node *n)
{
	remote_node_dirty(t, n, true);
	remote_node_set(t, n, REMOTE_HERE, n->bytes);
	n->version = (struct remote_version){0};
	n->again = true;
	n->racy = false;
}

/* The directory that PATH lies in, or NULL. *NAME is its last part. */
static struct remote_node *find_parent(struct remote_tree *t, const char *path, const char **name)
{
	const char *slash = strrchr(path, '/');
	char dir[PATH_MAX];

	*name = slash ? slash + 1 : path;
	if (!slash)
		return t->top;
	if ((size_t)(slash - path) >= sizeof(dir))
		return NULL;
	memcpy(dir, path, (size_t)(slash - path));
	dir[slash - path] = '\0';
	return remote_dir_find(t, dir);
}

static void note_made(struct remote_tree *t, const struct sbx_change *c)
{
	struct remote_node *n = remote_node_put(t, c->ino, c->mode);
	struct remote_node *parent;
	const char *name;

	if (!n)
		return;
	n->used = ++t->uses;
	if (S_ISREG(n->type))
		change_data(t, n);
	if (!n->dir)
		return;
	parent = find_parent(t, c->path, &name);
	n->dir->listed = parent && remote_node_hang(t, n, parent, name) == 0;
	remote_dir_moved(t, n);
}

/* The directory N is PATH from now on. */
static void move_dir(struct remote_tree *t, struct remote_node *n, const char *path)
{
	struct remote_node *parent;
	const char *name;

	if (!n || !n->dir)
		return;
	parent = find_parent(t, path, &name);
	remote_node_hang(t, n, parent, name);
	remote_dir_moved(t, n);
}

/* INO has lost a name. By another one, if there is any, it will be found again. */
static void lose_name(struct remote_tree *t, uint64_t ino)
{
	struct remote_node *n = remote_node_find(t, ino);

	if (n)
		remote_node_gone(t, n);
}

static void note_swapped(struct remote_tree *t, const struct sbx_change *c)
{
	struct remote_node *n = remote_node_find(t, c->ino);
	struct remote_node *other = remote_dir_find(t, c->to);

	if (other == n)
		other = NULL;
	if (other)
		remote_node_hang(t, other, NULL, NULL);
	move_dir(t, n, c->to);
	move_dir(t, other, c->path);
}

void remote_tree_changed(struct remote_tree *t, const struct sbx_change *c)
{
	struct remote_node *n;

	pthread_mutex_lock(&t->lock);
	n = remote_node_find(t, c->ino);
	if (n)
		n->version.ctime_ns = 0;
	switch (c->kind) {
	case SBX_CHANGE_DATA:
	case SBX_CHANGE_EMPTIED:
		if (!n)
			n = remote_node_put(t, c->ino, S_IFREG);
		if (n)
			change_data(t, n);
		break;
	case SBX_CHANGE_MADE:
		note_made(t, c);
		break;
	case SBX_CHANGE_GONE:
		lose_name(t, c->ino);
		break;
	case SBX_CHANGE_MOVED:
		if (c->over)
			lose_name(t, c->over);
		move_dir(t, n, c->to);
		break;
	case SBX_CHANGE_SWAPPED:
		note_swapped(t, c);
		break;
	case SBX_CHANGE_LINKED:
	case SBX_CHANGE_STATUS:
		break;
	}
	pthread_mutex_unlock(&t->lock);
}

void remote_tree_busy(struct remote_tree *t, bool busy)
{
	pthread_mutex_lock(&t->lock);
	t->busy = busy;
	pthread_mutex_unlock(&t->lock);
}

void remote_tree_distrust(struct remote_tree *t)
{
	pthread_mutex_lock(&t->lock);
	t->doubted = true;
	t->doubted_at = t->stamps;
	pthread_mutex_unlock(&t->lock);
	sbx_sandbox_altered(t->cfg.sandbox);
}

int remote_tree_open_file(struct remote_tree *t, const char *path, uint64_t ino)
{
	_cleanup_fd_ int opath = sbx_beneath_open(t->root, path, O_PATH);
	struct remote_node *n;
	struct stat st;
	bool loosened = false;
	int fd = -EAGAIN;

	if (opath < 0 && opath != -ENOENT && opath != -ENOTDIR && opath != -ELOOP)
		return opath;
	if (opath < 0 || fstat(opath, &st) < 0 || st.st_ino != ino || !S_ISREG(st.st_mode))
		return -ESTALE;
	pthread_mutex_lock(&t->lock);
	n = remote_node_find(t, ino);
	if (n && n->state == REMOTE_HERE) {
		n->again = false;
		fd = 0;
	}
	pthread_mutex_unlock(&t->lock);
	if (fd)
		return fd;
	fd = remote_open_changing(opath, &st, &loosened);
	if (fd >= 0 && loosened)
		fchmod(fd, st.st_mode & 07777);
	return fd;
}

void remote_tree_sent(struct remote_tree *t, uint64_t ino)
{
	struct remote_node *n;

	pthread_mutex_lock(&t->lock);
	n = remote_node_find(t, ino);
	if (n && !n->again)
		remote_node_dirty(t, n, false);
	pthread_mutex_unlock(&t->lock);
}

void remote_tree_refused(struct remote_tree *t, const char *path)
{
	_cleanup_free_ char *above = strdup(path);
	struct remote_node *n = NULL;
	const char *name;
	char *slash;

	if (!above)
		return;
	pthread_mutex_lock(&t->lock);
	/* The directory may be gone as well. */
	while (!(n = find_parent(t, above, &name)) && (slash = strrchr(above, '/')))
		*slash = '\0';
	if (n)
		n->dir->lags = true;
	/* A directory that the host has made since may be another's there, with more in it. */
	n = remote_dir_find(t, path);
	if (n && n->dir->listed)
		n->dir->lags = true;
	pthread_mutex_unlock(&t->lock);
}

void remote_tree_dirty(struct remote_tree *t, const char *path, uint64_t ino)
{
	_cleanup_fd_ int opath = sbx_beneath_open(t->root, path, O_PATH);
	struct remote_node *n;
	struct stat st;

	if (opath < 0 || fstat(opath, &st) < 0 || st.st_ino != ino || !S_ISREG(st.st_mode))
		return;
	pthread_mutex_lock(&t->lock);
	n = remote_node_find(t, ino);
	if (!n)
		n = remote_node_put(t, ino, S_IFREG);
	if (n) {
		remote_node_set(t, n, REMOTE_HERE, (uint64_t)st.st_size);
		change_data(t, n);
	}
	pthread_mutex_unlock(&t->lock);
}

void remote_tree_stats(struct remote_tree *t, struct remote_tree_stats *ret)
{
	pthread_mutex_lock(&t->lock);
	*ret = t->stats;
	pthread_mutex_unlock(&t->lock);
}
