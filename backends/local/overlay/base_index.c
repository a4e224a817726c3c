/* Files of the cache do not change: one that looks the same says the same. */
#include "backends/local/overlay/base_index.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/local/overlay/base_impl.h"
#include "backends/support/beneath.h"
#include "sandboxfs/cleanup.h"

#define KEPT_MAX ((size_t)32 << 20) /* bytes of a file; larger ones do not stay in memory */

static bool same_file(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
	       a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

static struct sbx_base_index *find(struct sbx_bases *bases, const struct stat *st)
{
	struct sbx_base_index *found = NULL;

	pthread_mutex_lock(&bases->lock);
	if (bases->index && same_file(&bases->index->of, st)) {
		found = bases->index;
		atomic_fetch_add(&found->users, 1);
	}
	pthread_mutex_unlock(&bases->lock);
	return found;
}

static void keep(struct sbx_bases *bases, struct sbx_base_index *index)
{
	struct sbx_base_index *before;

	atomic_fetch_add(&index->users, 1);
	pthread_mutex_lock(&bases->lock);
	before = bases->index;
	bases->index = index;
	pthread_mutex_unlock(&bases->lock);
	sbx_base_index_put(before);
}

static int read_index(int base, const struct stat *st, struct sbx_base_index **ret,
                      struct sbx_error *err)
{
	struct sbx_base_index *index = calloc(1, sizeof(*index));
	_cleanup_free_ char *data = NULL;
	size_t len;
	int r = index ? sbx_beneath_read(base, "index", SBX_INDEX_MAX, &data, &len, NULL) : -ENOMEM;

	if (r)
		sbx_fail(err, -r, "the index cannot be read: %s", strerror(-r));
	else
		r = sbx_index_parse(data, len, &index->index, err);
	if (r) {
		free(index);
		return r;
	}
	index->of = *st;
	atomic_init(&index->users, 1);
	memcpy(index->end, data + len - sizeof(index->end), sizeof(index->end));
	*ret = index;
	return 0;
}

int sbx_base_index_get(struct sbx_bases *bases, int base, struct sbx_base_index **ret,
                       struct sbx_error *err)
{
	struct stat st;
	int r;

	if (fstatat(base, "index", &st, AT_SYMLINK_NOFOLLOW) < 0)
		return sbx_fail(err, errno, "the index cannot be read: %s", strerror(errno));
	*ret = find(bases, &st);
	if (*ret)
		return 0;
	r = read_index(base, &st, ret, err);
	if (!r && (size_t)st.st_size <= KEPT_MAX)
		keep(bases, *ret);
	return r;
}

void sbx_base_index_put(struct sbx_base_index *index)
{
	assert(!index || atomic_load(&index->users) > 0);
	if (!index || atomic_fetch_sub(&index->users, 1) > 1)
		return;
	sbx_index_release(&index->index);
	free(index);
}

struct sbx_base_index *sbx_base_index_same(struct sbx_base_index *index, int dir,
                                           struct timespec *at)
{
	static const unsigned char none[sizeof(index->end)]; /* index.skipHash */
	_cleanup_fd_ int fd = sbx_beneath_open(dir, "index", O_RDONLY);
	unsigned char end[sizeof(index->end)];
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) ||
	    st.st_size != index->of.st_size || memcmp(index->end, none, sizeof(none)) == 0 ||
	    pread(fd, end, sizeof(end), st.st_size - (off_t)sizeof(end)) != (ssize_t)sizeof(end) ||
	    memcmp(end, index->end, sizeof(end)) != 0)
		return NULL;
	*at = st.st_mtim;
	atomic_fetch_add(&index->users, 1);
	return index;
}
