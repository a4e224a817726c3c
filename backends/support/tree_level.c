/*
 * Walking without recursion: on the way down only names are kept, on the way up the parent is
 * opened through ".." and recognised by its identity. So neither the stack, nor the descriptor
 * limit, nor PATH_MAX bounds the depth of a tree that a hostile command made.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "backends/support/tree.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/grow.h"

struct sbx_level *sbx_levels_top(struct sbx_levels *levels)
{
	assert(levels->n > 0);
	return &levels->items[levels->n - 1];
}

int sbx_levels_push(struct sbx_levels *levels, char *name, int fd)
{
	_cleanup_free_ char *owned = name;
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (SBX_GROW(levels->items, levels->n, levels->cap, 32))
		return -ENOMEM;
	levels->items[levels->n++] = (struct sbx_level){
	        .name = sbx_steal_ptr(&owned), .dev = st.st_dev, .ino = st.st_ino};
	return 0;
}

void sbx_levels_pop(struct sbx_levels *levels)
{
	struct sbx_level *level;

	assert(levels->n > 0);
	level = &levels->items[--levels->n];
	sbx_strings_release(&level->todo);
	free(level->name);
}

void sbx_levels_release(struct sbx_levels *levels)
{
	while (levels->n)
		sbx_levels_pop(levels);
	free(levels->items);
	levels->items = NULL;
	levels->cap = 0;
}

int sbx_levels_up(const struct sbx_levels *levels, int fd)
{
	const struct sbx_level *above = &levels->items[levels->n - 2];
	_cleanup_fd_ int up = sbx_dir_open(fd, "..");
	struct stat st;

	assert(levels->n > 1);
	if (up < 0)
		return up;
	if (fstat(up, &st) < 0)
		return -errno;
	if (st.st_dev != above->dev || st.st_ino != above->ino)
		return -ESTALE;
	return sbx_steal_fd(&up);
}

char *sbx_levels_path(const struct sbx_levels *levels, const char *name)
{
	size_t len = strlen(name) + 1;
	char *path, *at;

	for (size_t i = 1; i < levels->n; i++)
		len += strlen(levels->items[i].name) + 1;
	path = at = malloc(len);
	if (!path)
		return NULL;
	for (size_t i = 1; i < levels->n; i++) {
		at = stpcpy(at, levels->items[i].name);
		*at++ = '/';
	}
	memcpy(at, name, strlen(name) + 1);
	return path;
}
