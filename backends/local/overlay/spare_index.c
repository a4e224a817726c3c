/*
 * The index of a large base takes longer to copy than the rest of a create does. So a copy is made before it is wanted, as a file without
 * a name: it gets one when it is taken, and goes with the daemon when it is not.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/local/overlay/base_impl.h"
#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"

#define SMALL    ((off_t)256 << 10) /* is copied as quickly */
#define AFTER_MS 50                 /* the create that asks is over by then */

static bool is_of(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
	       a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

/* A copy of what ST tells, or -1; the caller's. */
static int take(struct sbx_bases *bases, const struct stat *st)
{
	int fd = -1;

	pthread_mutex_lock(&bases->lock);
	if (bases->spare.fd >= 0 && is_of(&bases->spare.of, st))
		fd = sbx_steal_fd(&bases->spare.fd);
	pthread_mutex_unlock(&bases->lock);
	return fd;
}

static int give_name(int fd, const char *path)
{
	_cleanup_free_ char *proc = sbx_format("/proc/self/fd/%d", fd);

	if (!proc)
		return -ENOMEM;
	return linkat(AT_FDCWD, proc, AT_FDCWD, path, AT_SYMLINK_FOLLOW) < 0 ? -errno : 0;
}

static int copy(int in, const char *path)
{
	_cleanup_fd_ int out =
	        open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);

	return out < 0 ? -errno : sbx_file_copy(in, out);
}

/* Has another made of IN. */
static void want(struct sbx_bases *bases, int in, const char *near)
{
	_cleanup_fd_ int at = open(near, O_PATH | O_DIRECTORY | O_CLOEXEC);
	_cleanup_fd_ int from = fcntl(in, F_DUPFD_CLOEXEC, 0);

	if (at < 0 || from < 0)
		return;
	pthread_mutex_lock(&bases->lock);
	sbx_cleanup_fd(&bases->spare.from);
	sbx_cleanup_fd(&bases->spare.at);
	bases->spare.from = sbx_steal_fd(&from);
	bases->spare.at = sbx_steal_fd(&at);
	bases->spare.due_ms = sbx_base_now_ms() + AFTER_MS;
	pthread_cond_signal(&bases->more);
	pthread_mutex_unlock(&bases->lock);
}

int sbx_base_copy_index(struct sbx_bases *bases, int base, const char *near, const char *path)
{
	_cleanup_fd_ int in = openat(base, "index", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	_cleanup_fd_ int spare = -1;
	struct stat st;
	int r;

	if (in < 0 || fstat(in, &st) < 0)
		return -errno;
	spare = take(bases, &st);
	r = spare < 0 ? -ENOENT : give_name(spare, path);
	/* What cannot be used once is not made again. */
	if (r && (spare >= 0 || st.st_size < SMALL))
		return copy(in, path);
	if (r)
		r = copy(in, path);
	if (!r)
		want(bases, in, near);
	return r;
}

void sbx_base_make_spare(struct sbx_bases *bases)
{
	_cleanup_fd_ int from = sbx_steal_fd(&bases->spare.from);
	_cleanup_fd_ int at = sbx_steal_fd(&bases->spare.at);
	_cleanup_fd_ int fd = -1;
	struct stat st;

	pthread_mutex_unlock(&bases->lock);
	fd = openat(at, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0644);
	if (fd >= 0 &&
	    (fstat(from, &st) < 0 || lseek(from, 0, SEEK_SET) < 0 || sbx_file_copy(from, fd) < 0))
		sbx_cleanup_fd(&fd);
	pthread_mutex_lock(&bases->lock);
	if (fd < 0)
		return;
	sbx_cleanup_fd(&bases->spare.fd);
	bases->spare.fd = sbx_steal_fd(&fd);
	bases->spare.of = st;
}

void sbx_base_spare_release(struct sbx_bases *bases)
{
	sbx_cleanup_fd(&bases->spare.fd);
	sbx_cleanup_fd(&bases->spare.from);
	sbx_cleanup_fd(&bases->spare.at);
}
