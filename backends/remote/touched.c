/*
 * By path, for each of which there are three batches: see struct spot. A file, which may have other
 * names than the one that a change told of, stands at the path of its number, which no path is.
 */
#include "backends/remote/touched.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sandboxfs/cleanup.h"

/* The last batch in which ... */
struct spot {
	struct remote_index_item by_path;
	uint64_t changed; /* anything of it was changed */
	uint64_t shaped;  /* it was made, moved or removed */
	uint64_t below;   /* something below it was */
	size_t n;
	char path[];
};

static struct spot *find(const struct remote_touched *t, const char *path, size_t n)
{
	struct remote_index_item *item =
	        remote_index_first(&t->by_path, remote_index_hash(0, path, n));

	for (; item; item = remote_index_next(item)) {
		struct spot *spot = sbx_container_of(item, struct spot, by_path);

		if (spot->n == n && memcmp(spot->path, path, n) == 0)
			return spot;
	}
	return NULL;
}

static struct spot *find_or_add(struct remote_touched *t, const char *path, size_t n)
{
	struct spot *spot = find(t, path, n);

	if (spot)
		return spot;
	spot = remote_index_reserve(&t->by_path) ? NULL : calloc(1, sizeof(*spot) + n);
	if (!spot)
		return NULL;
	memcpy(spot->path, path, n);
	spot->n = n;
	remote_index_add(&t->by_path, &spot->by_path, remote_index_hash(0, path, n));
	return spot;
}

/* The length of the directory's path that PATH[0..N) is in. */
static size_t parent_of(const char *path, size_t n)
{
	while (n && path[n - 1] != '/')
		n--;
	return n ? n - 1 : 0;
}

static int touch(struct remote_touched *t, const char *path, bool shaped, uint64_t batch)
{
	size_t n = strlen(path);
	struct spot *spot = find_or_add(t, path, n);

	if (!spot)
		return -ENOMEM;
	spot->changed = batch;
	if (!shaped)
		return 0;
	spot->shaped = batch;
	while (n) {
		n = parent_of(path, n);
		spot = find_or_add(t, path, n);
		if (!spot)
			return -ENOMEM;
		/* Then those above have it as well. */
		if (spot->below == batch)
			break;
		spot->below = batch;
	}
	return 0;
}

#define FILE_PATH 24

static void file_path(char path[FILE_PATH], uint64_t ino)
{
	snprintf(path, FILE_PATH, "/%" PRIu64, ino);
}

/* Whether C changes a file by one of its names. */
static bool is_of_file(const struct sbx_change *c)
{
	return c->ino && (c->kind == SBX_CHANGE_DATA || c->kind == SBX_CHANGE_EMPTIED ||
	                  c->kind == SBX_CHANGE_STATUS);
}

int remote_touched_add(struct remote_touched *t, const struct sbx_change *c, uint64_t batch)
{
	const bool shaped = c->kind == SBX_CHANGE_MADE || c->kind == SBX_CHANGE_GONE ||
	                    c->kind == SBX_CHANGE_MOVED || c->kind == SBX_CHANGE_SWAPPED;
	char path[FILE_PATH];
	int r = touch(t, c->path, shaped, batch);

	if (!r && c->to)
		r = touch(t, c->to, true, batch);
	if (!r && is_of_file(c)) {
		file_path(path, c->ino);
		r = touch(t, path, false, batch);
	}
	if (r)
		t->floor = batch;
	return r;
}

bool remote_touched_since(const struct remote_touched *t, const char *path, uint64_t seen)
{
	size_t n = strlen(path);
	const struct spot *spot;

	if (seen < t->floor)
		return true;
	if (!t->by_path.n)
		return false;
	spot = find(t, path, n);
	if (spot && (spot->changed > seen || spot->below > seen))
		return true;
	while (n) {
		n = parent_of(path, n);
		spot = find(t, path, n);
		if (spot && spot->shaped > seen)
			return true;
	}
	return false;
}

bool remote_touched_file_since(const struct remote_touched *t, uint64_t ino, uint64_t seen)
{
	char path[FILE_PATH];
	const struct spot *spot;

	file_path(path, ino);
	spot = find(t, path, strlen(path));
	return seen < t->floor || (spot && spot->changed > seen);
}

void remote_touched_forget(struct remote_touched *t, uint64_t floor)
{
	if (floor <= t->floor)
		return;
	t->floor = floor;
	for (size_t i = 0; i < t->by_path.cap; i++)
		for (struct remote_index_item **at = &t->by_path.slots[i]; *at;) {
			struct spot *spot = sbx_container_of(*at, struct spot, by_path);

			if (spot->changed > floor || spot->below > floor) {
				at = &(*at)->next;
				continue;
			}
			*at = (*at)->next;
			t->by_path.n--;
			free(spot);
		}
}

static void free_spot(struct remote_index_item *item)
{
	free(sbx_container_of(item, struct spot, by_path));
}

void remote_touched_release(struct remote_touched *t)
{
	remote_index_drain(&t->by_path, free_spot);
	t->floor = 0;
}
