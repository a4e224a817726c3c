/*
 * The inode is not compared with what was copied: an overlay shows another than its upper layer
 * has. Change time, modification time and size together are as good.
 */
#include "backends/git/index_refresh.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/support/beneath.h"
#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/grow.h"

#define STAGE 0x3000

/* Where the words of an entry's stat data begin (gitformat-index(5)). */
enum { CTIME = 0, MTIME = 8, INODE = 20, SIZE = 36 };

static uint32_t get32(const unsigned char *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void put32(unsigned char *p, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		p[i] = (unsigned char)(v >> (24 - 8 * i));
}

static bool is_time(const unsigned char *p, const struct timespec *ts)
{
	return get32(p) == (uint32_t)ts->tv_sec && get32(p + 4) == (uint32_t)ts->tv_nsec;
}

static bool is_content(const struct sbx_index_entry *e, const struct stat *st)
{
	return is_time(e->stat + MTIME, &st->st_mtim) &&
	       get32(e->stat + SIZE) == (uint32_t)st->st_size &&
	       (sbx_index_mode(e) & S_IFMT) == (st->st_mode & S_IFMT);
}

int sbx_index_carry_read(struct sbx_index_carry *c, int entry)
{
	int r = sbx_beneath_read(entry, "index", SBX_INDEX_MAX, &c->data, &c->len, &c->mtime);

	if (r)
		return r == -ENOENT ? 0 : r;
	/* What is not understood goes along as it is. */
	if (sbx_index_parse(c->data, c->len, &c->index, NULL) == -ENOMEM)
		return -ENOMEM;
	return 0;
}

static const struct sbx_index_entry *find(const struct sbx_index *index, const char *name)
{
	size_t low = 0, high = index->n, len = strlen(name);

	while (low < high) {
		size_t mid = low + (high - low) / 2;
		const struct sbx_index_entry *e = &index->at[mid];
		int order = sbx_index_compare_names(name, len, e->name, e->len);

		if (!order)
			return e->flags & STAGE ? NULL : e;
		if (order < 0)
			high = mid;
		else
			low = mid + 1;
	}
	return NULL;
}

int sbx_index_carry_copied(const char *path, const struct stat *st, void *data)
{
	struct sbx_index_carry *c = data;
	const struct sbx_index_entry *e = find(&c->index, path);

	if (!e || !is_content(e, st) || !is_time(e->stat + CTIME, &st->st_ctim))
		return 0;
	if (SBX_GROW(c->fresh, c->n, c->cap, 256))
		return -ENOMEM;
	c->fresh[c->n++] = (size_t)(e - c->index.at);
	return 0;
}

int sbx_index_carry_write(const struct sbx_index_carry *c, int entry)
{
	return c->data ? sbx_locked_replace(entry, "index", c->data, c->len, &c->mtime) : 0;
}

/* Entries follow their directories: the one of the last is kept open. */
struct places {
	int root, dir;
	char *path; /* of dir */
};

static int dir_of(struct places *p, const char *path, const char **name)
{
	const char *slash = strrchr(path, '/');
	size_t len = slash ? (size_t)(slash - path) : 0;

	*name = slash ? slash + 1 : path;
	if (!slash)
		return p->root;
	if (p->dir >= 0 && strlen(p->path) == len && memcmp(p->path, path, len) == 0)
		return p->dir;
	sbx_cleanup_fd(&p->dir);
	free(p->path);
	p->path = strndup(path, len);
	p->dir = p->path ? sbx_beneath_open(p->root, p->path, O_PATH | O_DIRECTORY) : -ENOMEM;
	return p->dir;
}

static int refresh_entry(struct sbx_index_entry *e, struct places *p)
{
	_cleanup_free_ char *path = strndup(e->name, e->len);
	const char *name;
	struct stat st;
	int dir = path ? dir_of(p, path, &name) : -ENOMEM;

	if (dir < 0)
		return dir;
	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (!is_content(e, &st))
		return 0;
	put32(e->stat + CTIME, (uint32_t)st.st_ctim.tv_sec);
	put32(e->stat + CTIME + 4, (uint32_t)st.st_ctim.tv_nsec);
	put32(e->stat + INODE, (uint32_t)st.st_ino);
	return 0;
}

int sbx_index_carry_refresh(struct sbx_index_carry *c, int entry, int root)
{
	struct places p = {.root = root, .dir = -1};
	_cleanup_free_ void *data = NULL;
	size_t len;
	int r = 0;

	if (!c->n)
		return 0;
	for (size_t i = 0; i < c->n && !r; i++)
		r = refresh_entry(&c->index.at[c->fresh[i]], &p);
	sbx_cleanup_fd(&p.dir);
	free(p.path);
	if (!r)
		r = sbx_index_format(&c->index, true, &data, &len);
	return r ? r : sbx_locked_replace(entry, "index", data, len, &c->mtime);
}

void sbx_index_carry_release(struct sbx_index_carry *c)
{
	sbx_index_release(&c->index);
	free(c->data);
	free(c->fresh);
	*c = (struct sbx_index_carry){0};
}
