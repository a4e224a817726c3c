/*
 * The nodes: all that is known of the inodes of the copy. The number of one that is gone may be
 * given to another file at any time, while open descriptors still want the old contents: it is
 * known until then, or until too many are.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backends/remote/tree_impl.h"
#include "sandboxfs/clock.h"

#define GONE_MOST  ((size_t)65536)
#define FIRST_SIZE ((size_t)256)

struct remote_failure *remote_failure_new(int code, uint64_t until_ns, const char *text)
{
	struct remote_failure *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	f->refs = 1;
	f->until_ns = until_ns;
	sbx_fail(&f->err, code, "%s", text);
	return f;
}

void remote_failure_unref(struct remote_failure *f)
{
	if (f && !--f->refs)
		free(f);
}

static size_t mix(uint64_t n, size_t cap)
{
	return (size_t)((n * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & (cap - 1);
}

static size_t place_of_dir(const struct remote_node *parent, const char *name, size_t cap)
{
	uint64_t hash = (uintptr_t)parent >> 4;

	for (; *name; name++)
		hash = (hash ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
	return mix(hash, cap);
}

struct remote_node *remote_node_find(struct remote_tree *t, uint64_t ino)
{
	struct remote_node *n = t->cap ? t->nodes[mix(ino, t->cap)] : NULL;

	while (n && n->ino != ino)
		n = n->next;
	return n;
}

static int grow_nodes(struct remote_tree *t)
{
	const size_t cap = t->cap ? 2 * t->cap : FIRST_SIZE;
	struct remote_node **to;

	if (t->n_nodes < t->cap)
		return 0;
	to = calloc(cap, sizeof(struct remote_node *));
	if (!to)
		return -ENOMEM;
	for (size_t i = 0; i < t->cap; i++)
		for (struct remote_node *n = t->nodes[i], *next; n; n = next) {
			const size_t at = mix(n->ino, cap);

			next = n->next;
			n->next = to[at];
			to[at] = n;
		}
	free(t->nodes);
	t->nodes = to;
	t->cap = cap;
	return 0;
}

static int grow_dirs(struct remote_tree *t)
{
	const size_t cap = t->dirs_cap ? 2 * t->dirs_cap : FIRST_SIZE;
	struct remote_node **to;

	if (t->n_dirs < t->dirs_cap)
		return 0;
	to = calloc(cap, sizeof(struct remote_node *));
	if (!to)
		return -ENOMEM;
	for (size_t i = 0; i < t->dirs_cap; i++)
		for (struct remote_node *n = t->dirs[i], *next; n; n = next) {
			const size_t at = place_of_dir(n->dir->parent, n->dir->name, cap);

			next = n->dir->next;
			n->dir->next = to[at];
			to[at] = n;
		}
	free(t->dirs);
	t->dirs = to;
	t->dirs_cap = cap;
	return 0;
}

static struct remote_node *find_child(struct remote_tree *t, const struct remote_node *parent,
                                      const char *name)
{
	struct remote_node *n =
	        t->dirs_cap ? t->dirs[place_of_dir(parent, name, t->dirs_cap)] : NULL;

	while (n && (n->dir->parent != parent || strcmp(n->dir->name, name) != 0))
		n = n->dir->next;
	return n;
}

/* Takes the directory N away from its parent. */
static void unhang(struct remote_tree *t, struct remote_node *n)
{
	struct remote_dir *d = n->dir;
	struct remote_node **at;

	if (!d->parent)
		return;
	at = &t->dirs[place_of_dir(d->parent, d->name, t->dirs_cap)];
	while (*at != n)
		at = &(*at)->dir->next;
	*at = d->next;
	for (at = &d->parent->dir->child; *at != n;)
		at = &(*at)->dir->sibling;
	*at = d->sibling;
	d->parent = d->sibling = d->next = NULL;
	free(d->name);
	d->name = NULL;
	t->n_dirs--;
}

int remote_node_hang(struct remote_tree *t, struct remote_node *n, struct remote_node *parent,
                     const char *name)
{
	struct remote_dir *d = n->dir;
	struct remote_node *other;
	char *copy;
	size_t at;

	if (d->parent == parent && (!parent || strcmp(d->name, name) == 0))
		return 0;
	unhang(t, n);
	if (!parent)
		return 0;
	copy = strdup(name);
	if (!copy || grow_dirs(t)) {
		free(copy);
		return -ENOMEM;
	}
	/* Of two by one name the older cannot be there any more. */
	other = find_child(t, parent, name);
	if (other)
		unhang(t, other);
	at = place_of_dir(parent, name, t->dirs_cap);
	d->name = copy;
	d->parent = parent;
	d->next = t->dirs[at];
	t->dirs[at] = n;
	d->sibling = parent->dir->child;
	parent->dir->child = n;
	t->n_dirs++;
	return 0;
}

static bool counts(const struct remote_node *n)
{
	return S_ISREG(n->type) && !n->gone;
}

void remote_node_set(struct remote_tree *t, struct remote_node *n, enum remote_state state,
                     uint64_t bytes)
{
	if (counts(n)) {
		t->stats.here += (state == REMOTE_HERE);
		t->stats.here -= (n->state == REMOTE_HERE);
		t->stats.bytes += (state == REMOTE_HERE ? bytes : 0);
		t->stats.bytes -= (n->state == REMOTE_HERE ? n->bytes : 0);
		if (!n->dirty)
			t->clean_bytes += bytes - n->bytes;
	}
	n->state = state;
	n->bytes = bytes;
	if (state != REMOTE_PART) {
		free(n->chunks);
		n->chunks = NULL;
	}
}

void remote_node_dirty(struct remote_tree *t, struct remote_node *n, bool dirty)
{
	if (counts(n) && dirty != n->dirty)
		t->clean_bytes += dirty ? -n->bytes : n->bytes;
	n->dirty = dirty;
}

void remote_node_fail(struct remote_tree *t, struct remote_node *n, struct remote_failure *f)
{
	(void)t;
	remote_failure_unref(n->failure);
	n->failure = f;
}

static void leave_gone(struct remote_tree *t, struct remote_node *n)
{
	*(n->older ? &n->older->newer : &t->oldest_gone) = n->newer;
	*(n->newer ? &n->newer->older : &t->newest_gone) = n->older;
	n->older = n->newer = NULL;
	t->n_gone--;
}

/* Nothing is counted of N and nothing points to it, but for the hash. */
static void empty(struct remote_tree *t, struct remote_node *n)
{
	remote_node_set(t, n, REMOTE_ABSENT, 0);
	remote_node_dirty(t, n, false);
	if (n->gone)
		leave_gone(t, n);
	else
		t->stats.files -= counts(n);
	remote_node_fail(t, n, NULL);
	free(n->heir);
	free(n->elsewhere);
	n->heir = n->elsewhere = NULL;
	if (n->dir) {
		while (n->dir->child)
			unhang(t, n->dir->child);
		unhang(t, n);
		free(n->dir);
		n->dir = NULL;
	}
}

static void drop(struct remote_tree *t, struct remote_node *n)
{
	struct remote_node **at = &t->nodes[mix(n->ino, t->cap)];

	while (*at != n)
		at = &(*at)->next;
	*at = n->next;
	t->n_nodes--;
	empty(t, n);
	free(n);
}

static struct remote_node *add(struct remote_tree *t, uint64_t ino)
{
	struct remote_node *n;
	size_t at;

	if (grow_nodes(t))
		return NULL;
	n = calloc(1, sizeof(*n));
	if (!n)
		return NULL;
	at = mix(ino, t->cap);
	n->ino = ino;
	n->next = t->nodes[at];
	t->nodes[at] = n;
	t->n_nodes++;
	return n;
}

bool remote_nodes_full(struct remote_tree *t)
{
	bool full;

	pthread_mutex_lock(&t->lock);
	full = t->n_nodes - t->n_gone >= t->nodes_most;
	pthread_mutex_unlock(&t->lock);
	return full;
}

struct remote_node *remote_node_put(struct remote_tree *t, uint64_t ino, mode_t type)
{
	struct remote_node *n = remote_node_find(t, ino);
	struct remote_dir *dir = NULL;

	if (S_ISDIR(type) && !(dir = calloc(1, sizeof(*dir))))
		return NULL;
	if (n) {
		struct remote_node *next = n->next;

		empty(t, n);
		*n = (struct remote_node){.next = next, .ino = ino};
	} else {
		n = add(t, ino);
	}
	if (!n) {
		free(dir);
		return NULL;
	}
	n->type = type & S_IFMT;
	n->dir = dir;
	t->stats.files += counts(n);
	return n;
}

void remote_node_gone(struct remote_tree *t, struct remote_node *n)
{
	const enum remote_state state = n->state;
	const uint64_t bytes = n->bytes;
	uint64_t *chunks = n->chunks;

	if (n->gone)
		return;
	n->chunks = NULL;
	remote_node_set(t, n, REMOTE_ABSENT, 0);
	remote_node_dirty(t, n, false);
	t->stats.files -= counts(n);
	n->gone = true;
	n->state = state;
	n->bytes = bytes;
	n->chunks = chunks;
	if (n->dir)
		unhang(t, n);
	n->older = t->newest_gone;
	*(t->newest_gone ? &t->newest_gone->newer : &t->oldest_gone) = n;
	t->newest_gone = n;
	t->n_gone++;
	if (t->n_gone > GONE_MOST)
		drop(t, t->oldest_gone);
}

void remote_node_back(struct remote_tree *t, struct remote_node *n)
{
	const enum remote_state state = n->state;
	const uint64_t bytes = n->bytes;
	uint64_t *chunks = n->chunks;

	if (!n->gone)
		return;
	leave_gone(t, n);
	n->chunks = NULL;
	remote_node_set(t, n, REMOTE_ABSENT, 0);
	n->gone = n->replaced = false;
	t->stats.files += counts(n);
	remote_node_set(t, n, state, bytes);
	n->chunks = chunks;
}

bool remote_node_has(const struct remote_node *n, uint64_t off, uint64_t len)
{
	const uint64_t size = n->version.size;
	uint64_t end = len && len < size - off ? off + len : size;

	if (n->state == REMOTE_HERE || off >= size)
		return n->state == REMOTE_HERE || size > 0;
	if (n->state == REMOTE_ABSENT)
		return false;
	for (uint64_t i = off / REMOTE_CHUNK; i < remote_chunks(end); i++)
		if (!(n->chunks[i / 64] >> (i % 64) & 1))
			return false;
	return true;
}

struct remote_node *remote_dir_find(struct remote_tree *t, const char *path)
{
	struct remote_node *n = t->top;
	char name[256];

	while (n && *path) {
		const size_t len = strcspn(path, "/");

		if (len >= sizeof(name))
			return NULL;
		memcpy(name, path, len);
		name[len] = '\0';
		n = find_child(t, n, name);
		path += len + (path[len] == '/');
	}
	return n;
}

char *remote_dir_path(const struct remote_tree *t, const struct remote_node *n)
{
	size_t len = 0;
	char *path, *at;

	for (const struct remote_node *i = n; i != t->top; i = i->dir->parent) {
		if (!i->dir->parent)
			return NULL;
		len += strlen(i->dir->name) + 1;
	}
	path = malloc(len + 1);
	if (!path)
		return NULL;
	at = path + (len ? len - 1 : 0);
	*at = '\0';
	for (; n != t->top; n = n->dir->parent) {
		const size_t part = strlen(n->dir->name);

		at -= part;
		memcpy(at, n->dir->name, part);
		if (at > path)
			*--at = '/';
	}
	return path;
}

/* The directory behind N in the part of the tree that TOP is above. */
static struct remote_node *next_in(const struct remote_node *top, const struct remote_node *n)
{
	if (n->dir->child)
		return n->dir->child;
	while (n != top && !n->dir->sibling)
		n = n->dir->parent;
	return n == top ? NULL : n->dir->sibling;
}

struct remote_node *remote_dir_next(const struct remote_tree *t, const struct remote_node *n)
{
	return next_in(t->top, n);
}

void remote_dir_moved(struct remote_tree *t, struct remote_node *n)
{
	const uint64_t turn = ++t->turns;

	for (struct remote_node *i = n; i; i = next_in(n, i))
		i->dir->turn = turn;
}

void remote_dir_void(struct remote_tree *t, struct remote_node *n, int64_t told_ns)
{
	(void)t;
	for (struct remote_node *i = n; i; i = next_in(n, i)) {
		i->dir->listed = false;
		if (i->told_ns < told_ns)
			i->told_ns = told_ns;
	}
}

void remote_nodes_free(struct remote_tree *t)
{
	for (size_t i = 0; i < t->cap; i++)
		while (t->nodes[i])
			drop(t, t->nodes[i]);
	free(t->nodes);
	free(t->dirs);
}
