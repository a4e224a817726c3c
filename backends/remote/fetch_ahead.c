/* Small files beside one that is wanted: who reads one of a directory mostly reads the next. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "backends/remote/fetch.h"
#include "backends/support/beneath.h"
#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/pool.h"

#define FILES_MOST 256
#define LOOKS_MOST 4096
#define BYTES_MOST ((uint64_t)4 << 20)
#define TEXT_MOST  ((size_t)32 << 10)

struct remote_ahead *remote_ahead_new(struct remote_tree *t, const char *path)
{
	struct remote_ahead *a = calloc(1, sizeof(*a));
	const char *slash = strrchr(path, '/');

	if (!a)
		return NULL;
	a->tree = t;
	a->dir = strndup(path, slash ? (size_t)(slash - path) : 0);
	a->name = strdup(slash ? slash + 1 : path);
	if (!a->dir || !a->name) {
		remote_ahead_free(a);
		return NULL;
	}
	return a;
}

void remote_ahead_free(struct remote_ahead *a)
{
	if (!a)
		return;
	free(a->dir);
	free(a->name);
	free(a);
}

/* Adds NAME in the directory FD, if it is missing and small. Its bytes, or 0. */
static uint64_t add(struct remote_ahead *a, struct remote_fetch *f, int fd, const char *name)
{
	_cleanup_fd_ int opath = openat(fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	_cleanup_free_ char *path = NULL;
	struct remote_node *n;
	uint64_t bytes = 0;
	struct stat st;

	if (opath < 0 || fstat(opath, &st) < 0 || !S_ISREG(st.st_mode))
		return 0;
	path = sbx_format("%s%s%s", a->dir, *a->dir ? "/" : "", name);
	n = remote_node_load(a->tree, opath, &st, NULL, NULL);
	if (!n || !path)
		return 0;
	pthread_mutex_lock(&a->tree->lock);
	if (n->state == REMOTE_ABSENT && n->coming == n->coming_end && !n->failure &&
	    n->version.size && n->version.size <= REMOTE_SMALL &&
	    remote_fetch_add(f, n->ino, path)) {
		bytes = n->version.size;
		f->bytes += bytes;
		n->coming = 0;
		n->coming_end = remote_chunks(bytes);
	}
	pthread_mutex_unlock(&a->tree->lock);
	return bytes;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* What comes behind the wanted one comes first. */
static void choose(struct remote_ahead *a, struct remote_fetch *f, int fd,
                   struct sbx_strings *names)
{
	struct remote_hold hold;
	uint64_t bytes = 0;
	size_t first = 0;

	if (names->n)
		qsort(names->items, names->n, sizeof(*names->items), by_name);
	while (first < names->n && strcmp(names->items[first], a->name) < 0)
		first++;
	remote_hold_begin(&hold, a->tree);
	for (size_t i = 0; i < names->n && i < LOOKS_MOST && f->n < FILES_MOST &&
	                   bytes < BYTES_MOST && f->text < TEXT_MOST;
	     i++) {
		bytes += add(a, f, fd, names->items[(first + i) % names->n]);
		remote_hold_breathe(&hold);
	}
	remote_hold_end(&hold);
}

static void ended(void *data)
{
	remote_fetch_ended(data);
}

static void look(void *data)
{
	struct remote_ahead *a = data;
	struct remote_tree *t = a->tree;
	struct remote_fetch *f = remote_fetch_new(t, FETCH_AHEAD);
	struct sbx_strings names = {0};
	_cleanup_fd_ int fd =
	        sbx_beneath_open(t->root, *a->dir ? a->dir : ".", O_RDONLY | O_DIRECTORY);

	if (f && fd >= 0 && sbx_dir_names(fd, &names) == 0)
		choose(a, f, fd, &names);
	sbx_strings_release(&names);
	remote_ahead_free(a);
	if (f && f->n) {
		remote_fetch_begin(f);
		remote_under_way(t, -1);
	} else if (f) {
		sbx_loop_post(t->cfg.loop, ended, f);
	}
}

void remote_ahead_begin(struct remote_ahead *a)
{
	remote_under_way(a->tree, 1);
	sbx_pool_submit(a->tree->cfg.pool, look, a);
}
