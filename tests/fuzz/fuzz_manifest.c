/* The input as a manifest. */
#undef NDEBUG /* the assertions are the test */
#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "backends/remote/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* No part of it leads up, or is the machine's own. */
static void check_path(const char *path)
{
	assert(path[0] != '/' && strlen(path) < PATH_MAX);
	while (*path) {
		const size_t len = strcspn(path, "/");

		assert(len && len <= NAME_MAX);
		assert(strncmp(path, ".", len) != 0 && strncmp(path, "..", len) != 0);
		assert(len != 4 || memcmp(path, ".git", 4) != 0);
		path += len;
		assert(*path != '/' || path[1]);
		path += *path == '/';
	}
}

static void check_item(const struct remote_manifest *m, size_t i)
{
	const struct remote_listed *l = &m->items[i], *dir;
	const char *slash = strrchr(l->path, '/');
	char parent[PATH_MAX];
	size_t at, end;

	check_path(l->path);
	assert(!(l->mode & 07000) && l->size < (uint64_t)1 << 62);
	assert(!l->complete || (S_ISDIR(l->mode) && !m->more));
	assert(!S_ISLNK(l->mode) || l->target[0]);
	assert(l->path[0] || S_ISDIR(l->mode));
	assert(!i || remote_path_order(m->items[i - 1].path, l->path) < 0);
	assert(remote_manifest_find(m, l->path) == l);
	if (slash) {
		memcpy(parent, l->path, (size_t)(slash - l->path));
		parent[slash - l->path] = '\0';
		dir = remote_manifest_find(m, parent);
		assert(!dir || dir < l);
		assert(!dir || S_ISDIR(dir->mode) || !l->mode);
		at = remote_manifest_within(m, parent, &end);
		assert(at <= i && i < end);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sbx_error err = SBX_ERROR_INIT;
	struct remote_manifest m;
	int r = remote_manifest_read(data, size, 1, &m, &err);

	assert(r == 0 || (r == -EPROTO && err.text[0]));
	if (r)
		return 0;
	assert(m.n <= REMOTE_NAMES_MAX);
	for (size_t i = 0; i < m.n; i++)
		check_item(&m, i);
	remote_manifest_release(&m);
	return 0;
}
