/*
 * libgit2 has no hook for this but the C library's fsync, which it calls for each file before its
 * rename and for the directory after it. A program's own definition of a function comes before
 * the library's.
 */
#include "backends/git/durable.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"

#define REF_MAX     128
#define PROC_FD_MAX 32

static atomic_bool hardens;
/* Of the files that are waited for later. */
static _Thread_local unsigned depth, n_later;
static _Thread_local int later[SBX_GIT_TOGETHER];
static _Thread_local unsigned count;
static _Thread_local int spare = -1;

static int wait_for_all(void)
{
	int r = 0;

	while (n_later) {
		const int fd = later[--n_later];
		const int one = sbx_write_out(fd);

		close(fd);
		r = r ? r : one;
	}
	return r;
}

/* FD, which is ours from here on, is on its way. 0 or -errno. */
static int wait_later(int fd)
{
	later[n_later++] = fd;
	return n_later == SBX_GIT_TOGETHER ? wait_for_all() : 0;
}

static int put_off(int fd)
{
	const int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);

	if (own < 0)
		return sbx_write_out(fd) < 0 ? -1 : 0;
	sync_file_range(own, 0, 0, SYNC_FILE_RANGE_WRITE);
	return wait_later(own) < 0 ? -1 : 0;
}

void sbx_git_durable_begin(void)
{
	depth++;
}

int sbx_git_durable_end(void)
{
	return --depth ? 0 : wait_for_all();
}

int sbx_git_durable_add(int fd)
{
	if (!depth)
		return sbx_write_out(fd);
	return put_off(fd) < 0 ? -errno : 0;
}

unsigned sbx_git_durable_take(int fds[SBX_GIT_TOGETHER])
{
	const unsigned n = n_later;

	memcpy(fds, later, n * sizeof(*fds));
	n_later = 0;
	return n;
}

int sbx_git_durable_give(const int *fds, unsigned n)
{
	int r = 0, rest;

	for (unsigned i = 0; i < n; i++) {
		const int one = wait_later(fds[i]);

		r = r ? r : one;
	}
	if (depth)
		return r;
	rest = wait_for_all();
	return r ? r : rest;
}

void sbx_git_durable_spare(int fd)
{
	spare = fd;
}

/* Of the few bytes of a ref: what FD writes to, by the path PROC. */
static bool is_alike(int fd, const char *proc)
{
	_cleanup_fd_ int reader = open(proc, O_RDONLY | O_CLOEXEC);
	struct stat own, st;
	char has[REF_MAX], wants[REF_MAX];

	if (reader < 0 || fstat(spare, &own) < 0 || fstat(fd, &st) < 0 || own.st_nlink ||
	    own.st_mode != st.st_mode || own.st_uid != st.st_uid || own.st_gid != st.st_gid ||
	    own.st_size != st.st_size || st.st_size > REF_MAX)
		return false;
	return pread(spare, has, REF_MAX, 0) == st.st_size &&
	       pread(reader, wants, REF_MAX, 0) == st.st_size &&
	       memcmp(has, wants, (size_t)st.st_size) == 0;
}

/* Gives the spare the name of FD, the lock that the ref is renamed from, if it is as good. */
static bool use_spare(int fd)
{
	char self[PROC_FD_MAX], own[PROC_FD_MAX], path[PATH_MAX];
	_cleanup_free_ char *between = NULL;
	ssize_t n;

	snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
	snprintf(own, sizeof(own), "/proc/self/fd/%d", spare);
	n = readlink(self, path, sizeof(path) - 1);
	if (n <= 0 || !is_alike(fd, self) || sbx_write_out(spare))
		return false;
	path[n] = '\0';
	/* git takes no name that ends so for a ref's. */
	between = sbx_format("%s.lock", path);
	if (!between || linkat(AT_FDCWD, own, AT_FDCWD, between, AT_SYMLINK_FOLLOW) < 0)
		return false;
	if (rename(between, path) == 0)
		return true;
	unlink(between);
	return false;
}

/* A directory's entries are in the journal, which keeps its order. */
static int write_out(int fd)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -1;
	if (S_ISDIR(st.st_mode))
		return 0;
	/* A reflog, which nothing needs to be whole, is on its way. */
	if (fcntl(fd, F_GETFL) & O_APPEND)
		return sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE) < 0 ? -1 : 0;
	if (spare >= 0 && use_spare(fd))
		return 0;
	if (depth)
		return put_off(fd);
	return sbx_write_out(fd) < 0 ? -1 : 0;
}

int fsync(int fd)
{
	if (!sbx_git_call_runs())
		return (int)syscall(SYS_fsync, fd);
	count++;
	return atomic_load(&hardens) ? (int)syscall(SYS_fsync, fd) : write_out(fd);
}

unsigned sbx_git_durable_count(void)
{
	return count;
}

void sbx_git_durable_init(void)
{
	git_libgit2_opts(GIT_OPT_ENABLE_FSYNC_GITDIR, 1);
}

/* git's components that loose objects or refs are part of. */
static bool is_hard(const char *word, size_t n)
{
	static const char *const words[] = {"loose-object", "reference", "objects",
	                                    "committed",    "added",     "all"};

	for (size_t i = 0; i < SBX_ARRAY_SIZE(words); i++)
		if (strlen(words[i]) == n && memcmp(words[i], word, n) == 0)
			return true;
	return false;
}

bool sbx_git_durable_hardens(const char *value, const char *method, bool objects)
{
	bool hard = objects;

	if (method && strcmp(method, "writeout-only") == 0)
		return false;
	/*
	 * Each word adds components or takes some away; without loose objects git's default is
	 * not hard.
	 */
	for (const char *at = value ? value : ""; *at;) {
		const size_t n = strcspn(at, ", ");
		const bool minus = *at == '-';

		if (n == 4 && memcmp(at, "none", n) == 0)
			hard = false;
		else if (is_hard(at + minus, n - minus))
			hard = !minus;
		at += n + strspn(at + n, ", ");
	}
	return hard;
}

void sbx_git_durable_as(git_repository *repo)
{
	git_config *config = NULL, *snapshot = NULL;
	const char *value = NULL, *method = NULL;
	int objects = 0;

	if (git_repository_config(&config, repo) == 0 &&
	    git_config_snapshot(&snapshot, config) == 0) {
		if (git_config_get_string(&value, snapshot, "core.fsync"))
			value = NULL;
		if (git_config_get_string(&method, snapshot, "core.fsyncmethod"))
			method = NULL;
		if (git_config_get_bool(&objects, snapshot, "core.fsyncobjectfiles"))
			objects = 0;
	}
	atomic_store(&hardens, sbx_git_durable_hardens(value, method, objects != 0));
	git_config_free(snapshot);
	git_config_free(config);
}

int sbx_git_durable_ref(const char *common, const char *name)
{
	_cleanup_fd_ int dir = open(common, O_PATH | O_DIRECTORY | O_CLOEXEC);
	_cleanup_fd_ int ref = dir < 0 ? -1 : openat(dir, name, O_RDONLY | O_CLOEXEC);
	_cleanup_free_ char *path = strdup(name);
	_cleanup_fd_ int above = -1;

	if (dir < 0 || !path)
		return path ? -errno : -ENOMEM;
	if (ref < 0 && errno == ENOENT)
		ref = openat(dir, "packed-refs", O_RDONLY | O_CLOEXEC);
	if (ref < 0)
		return -errno;
	if (strrchr(path, '/'))
		*strrchr(path, '/') = '\0';
	above = openat(dir, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fsync(ref) < 0 || (above >= 0 && fsync(above) < 0))
		return -errno;
	return 0;
}
