#include "backends/remote/meant.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "backends/support/beneath.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/grow.h"

static void free_item(struct sbx_change *c)
{
	free((char *)c->path);
	free((char *)c->to);
}

int remote_meant_add(struct remote_meant *m, const struct sbx_change *c)
{
	struct sbx_change copy = *c;

	if (SBX_GROW(m->items, m->n, m->cap, 4))
		return -ENOMEM;
	copy.path = strdup(c->path);
	copy.to = c->to ? strdup(c->to) : NULL;
	if (!copy.path || (c->to && !copy.to)) {
		free_item(&copy);
		return -ENOMEM;
	}
	m->items[m->n++] = copy;
	return 0;
}

static bool is_same(const struct sbx_change *a, const struct sbx_change *b)
{
	return a->kind == b->kind && a->ino == b->ino && strcmp(a->path, b->path) == 0 &&
	       (!a->to || strcmp(a->to, b->to) == 0);
}

void remote_meant_remove(struct remote_meant *m, const struct sbx_change *c)
{
	for (size_t i = 0; i < m->n; i++)
		if (is_same(&m->items[i], c)) {
			free_item(&m->items[i]);
			m->items[i] = m->items[--m->n];
			return;
		}
}

/* The inode at PATH; 0: there is none. -errno where that cannot be told. */
static int inode_at(int root, const char *path, uint64_t *ret)
{
	const char *name;
	_cleanup_fd_ int dir = sbx_beneath_parent(root, path, &name);
	struct stat st;

	*ret = 0;
	if (dir < 0)
		return dir;
	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
		*ret = st.st_ino;
	else if (errno != ENOENT)
		return -errno;
	return 0;
}

/* The directories of a change that was under way are where they were: none was moved meanwhile. */
bool remote_meant_was_done(int root, const struct sbx_change *c)
{
	uint64_t ino;

	if (c->kind == SBX_CHANGE_GONE)
		return inode_at(root, c->path, &ino) == 0 && ino != c->ino;
	return inode_at(root, c->to, &ino) == 0 && ino == c->ino;
}

void remote_meant_release(struct remote_meant *m)
{
	for (size_t i = 0; i < m->n; i++)
		free_item(&m->items[i]);
	free(m->items);
	*m = (struct remote_meant){0};
}
