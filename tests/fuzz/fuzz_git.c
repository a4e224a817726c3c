/*
 * The whole input as an index, as a tree and as a commit; then as a loose object, as a pack and as
 * a pack's index, each read where a private repository would have it. What is taken must survive
 * being written and read again.
 */
#undef NDEBUG /* the assertions are the test */
#include <assert.h>
#include <fcntl.h>
#include <git2.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/git/import_objects.h"
#include "backends/git/index.h"
#include "backends/git/index_merge.h"
#include "backends/git/pack.h"
#include "backends/git/refs.h"
#include "tests/lib/tmp.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void as_index(const void *data, size_t size)
{
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_index first = {0}, second = {0}, merged = {0}, bare, dressed;
	static const struct sbx_index none;
	void *text;
	size_t len;
	int r = sbx_index_parse(data, size, &first, &err);

	assert(r == -err.code);
	if (r)
		return;
	assert(sbx_index_format(&first, true, &text, &len) == 0);
	assert(sbx_index_parse(text, len, &second, &err) == 0);
	assert(sbx_index_equal(&first, &second));
	assert(sbx_index_merge(&first, &second, &first, &merged) == 0);
	sbx_index_refresh(&merged, &second);
	assert(sbx_index_bare(&first, &none, &bare) == 0 && bare.n <= first.n);
	for (size_t i = 0; i < bare.n; i++)
		assert(!bare.at[i].extended && !(bare.at[i].flags & SBX_INDEX_VALID));
	assert(sbx_index_dress(&bare, &first, &first, &second, &dressed) == 0);
	assert(dressed.n >= bare.n && dressed.n <= first.n);
	assert(dressed.n < first.n || sbx_index_equal(&dressed, &first));
	free(dressed.at);
	free(bare.at);
	free(merged.at);
	free(text);
	sbx_index_release(&first);
	sbx_index_release(&second);
}

static void as_refs(const uint8_t *data, size_t size)
{
	char *text = strndup((const char *)data, size), *again;
	struct sbx_refs refs = {0};

	assert(text);
	if (sbx_refs_parse(text, &refs) == 0) {
		sbx_refs_sort(&refs);
		again = sbx_refs_format(&refs);
		assert(again);
		free(again);
	}
	sbx_refs_release(&refs);
	free(text);
}

static void put(int dir, const char *path, const uint8_t *data, size_t size)
{
	int fd = openat(dir, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	assert(fd >= 0 && write(fd, data, size) == (ssize_t)size);
	close(fd);
}

static int objects_dir(char *path, size_t size)
{
	char *made = tmp_make(path, size, "sandboxfs-fuzz");
	int dir;

	assert(made);
	dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert(dir >= 0 && mkdirat(dir, "pack", 0755) == 0 && mkdirat(dir, "00", 0755) == 0);
	return dir;
}

/* Half of it is the pack, half its index, whose first name is asked for. */
static void as_objects(const uint8_t *data, size_t size)
{
	static const struct sbx_git_bounds small = {.object = 65536, .volume = 262144};
	char path[256];
	int dir = objects_dir(path, sizeof(path));
	struct sbx_git_reader *reader;
	git_object_t type;
	git_oid oid = {{0}};
	char *found;
	size_t len;

	put(dir, "pack/pack-x.idx", data, size);
	put(dir, "pack/pack-x.pack", data, size);
	put(dir, "00/00000000000000000000000000000000000000", data, size);
	assert(sbx_git_reader_open(dir, &small, &reader) == 0);
	for (int i = 0; i < 2; i++) {
		if (sbx_git_reader_get(reader, &oid, &type, &found, &len, NULL) == 0)
			free(found);
		if (size >= 1032 + 20)
			memcpy(oid.id, data + 1032, 20);
	}
	sbx_git_reader_close(reader);
	unlinkat(dir, "pack/pack-x.idx", 0);
	unlinkat(dir, "pack/pack-x.pack", 0);
	unlinkat(dir, "00/00000000000000000000000000000000000000", 0);
	unlinkat(dir, "pack", AT_REMOVEDIR);
	unlinkat(dir, "00", AT_REMOVEDIR);
	close(dir);
	rmdir(path);
}

static void as_delta(const uint8_t *data, size_t size)
{
	struct sbx_git_budget budget = {.object = 65536, .volume = 65536};
	size_t base = size / 2, len;
	char *out;

	if (sbx_git_delta((const char *)data, base, (const char *)data + base, size - base, &budget,
	                  &out, &len) == 0)
		free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static bool begun;
	char *copy = malloc(size + 1);

	assert(copy);
	if (!begun)
		begun = git_libgit2_init() > 0;
	memcpy(copy, data, size);
	copy[size] = '\0';
	as_index(copy, size);
	sbx_git_object_ok(GIT_OBJECT_TREE, copy, size);
	sbx_git_object_ok(GIT_OBJECT_COMMIT, copy, size);
	as_refs(data, size);
	as_objects(data, size);
	as_delta(data, size);
	free(copy);
	return 0;
}
