/*
 * Most commands print little, so the first bytes stay in memory and no file is made. Past that all
 * goes to a file of its own. A reader opens that file for itself on each read: an ended job
 * then holds no descriptor, however many are kept, and nobody has to guard one
 * that may be closed under a reader. The writer is alone, so it writes first and then
 * publishes the new size.
 */
#include "fs/job/output.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sandboxfs/cleanup.h"

struct sbx_output {
	atomic_int refs;
	uint64_t limit;
	int fd;               /* of the file while it is written; the appending thread's alone */
	pthread_mutex_t lock; /* all below */
	char *mem;
	size_t cap;
	uint64_t size, total;
	bool spilled; /* all is in the file, mem is gone */
	bool full;    /* nothing more is kept */
	char path[];
};

int sbx_output_create(const char *path, uint64_t limit, struct sbx_output **ret)
{
	size_t n = strlen(path) + 1;
	struct sbx_output *o = calloc(1, sizeof(*o) + n);

	if (!o)
		return -ENOMEM;
	atomic_init(&o->refs, 1);
	o->limit = limit ? limit : UINT64_MAX;
	o->fd = -1;
	pthread_mutex_init(&o->lock, NULL);
	memcpy(o->path, path, n);
	*ret = o;
	return 0;
}

struct sbx_output *sbx_output_ref(struct sbx_output *o)
{
	assert(atomic_load(&o->refs) > 0);
	atomic_fetch_add(&o->refs, 1);
	return o;
}

void sbx_output_unref(struct sbx_output *o)
{
	if (!o || atomic_fetch_sub(&o->refs, 1) > 1)
		return;
	if (o->spilled)
		unlink(o->path);
	sbx_cleanup_fd(&o->fd);
	pthread_mutex_destroy(&o->lock);
	free(o->mem);
	free(o);
}

/* Makes the directory that holds PATH, and the one above it. */
static void make_parents(const char *path)
{
	_cleanup_free_ char *dir = strdup(path);
	char *leaf = dir ? strrchr(dir, '/') : NULL;
	char *mid;

	if (!leaf)
		return;
	*leaf = '\0';
	mid = strrchr(dir, '/');
	if (mid && mid > dir) {
		*mid = '\0';
		mkdir(dir, 0700);
		*mid = '/';
	}
	mkdir(dir, 0700);
}

static int open_file(const char *path)
{
	const int flags = O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC;
	int fd = open(path, flags, 0600);

	if (fd < 0 && errno == ENOENT) {
		make_parents(path);
		fd = open(path, flags, 0600);
	}
	return fd;
}

/* Returns how many of the LEN bytes reached the file. */
static size_t write_at(int fd, const char *buf, size_t len, uint64_t off)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = pwrite(fd, buf + done, len - done, (off_t)(off + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		done += (size_t)n;
	}
	return done;
}

/* Moves what is in memory to the file. */
static bool spill(struct sbx_output *o)
{
	char *mem = o->mem;
	int fd = open_file(o->path);

	assert(!o->spilled && o->fd < 0);
	if (fd < 0)
		return false;
	if (write_at(fd, mem, o->size, 0) < o->size) {
		close(fd);
		unlink(o->path);
		return false;
	}
	o->fd = fd;
	pthread_mutex_lock(&o->lock);
	o->spilled = true;
	o->mem = NULL;
	o->cap = 0;
	pthread_mutex_unlock(&o->lock);
	free(mem);
	return true;
}

static bool grow(struct sbx_output *o, size_t need)
{
	size_t cap = o->cap ? o->cap : 1024;
	char *mem;

	while (cap < need)
		cap *= 2;
	if (cap == o->cap)
		return true;
	mem = realloc(o->mem, cap);
	if (!mem)
		return false;
	o->mem = mem;
	o->cap = cap;
	return true;
}

static size_t keep_in_memory(struct sbx_output *o, const char *buf, size_t len)
{
	bool ok;

	pthread_mutex_lock(&o->lock);
	ok = grow(o, o->size + len);
	if (ok)
		memcpy(o->mem + o->size, buf, len);
	pthread_mutex_unlock(&o->lock);
	return ok ? len : 0;
}

static size_t keep(struct sbx_output *o, const char *buf, size_t len)
{
	if (o->fd >= 0)
		return write_at(o->fd, buf, len, o->size);
	if (o->size + len <= SBX_OUTPUT_MEMORY)
		return keep_in_memory(o, buf, len);
	return spill(o) ? write_at(o->fd, buf, len, o->size) : 0;
}

void sbx_output_append(struct sbx_output *o, const void *buf, size_t len)
{
	uint64_t room = o->full ? 0 : o->limit - o->size;
	size_t want = len < room ? len : (size_t)room;
	size_t kept = want ? keep(o, buf, want) : 0;

	assert(o->size <= o->limit);
	pthread_mutex_lock(&o->lock);
	o->size += kept;
	o->total += len;
	o->full = kept < len;
	pthread_mutex_unlock(&o->lock);
}

void sbx_output_discard(struct sbx_output *o, uint64_t n)
{
	pthread_mutex_lock(&o->lock);
	o->total = n < UINT64_MAX - o->total ? o->total + n : UINT64_MAX;
	o->full = true;
	pthread_mutex_unlock(&o->lock);
}

void sbx_output_seal(struct sbx_output *o)
{
	sbx_cleanup_fd(&o->fd);
	pthread_mutex_lock(&o->lock);
	if (o->mem && o->size < o->cap) {
		char *mem = realloc(o->mem, o->size);

		o->mem = mem ? mem : o->mem;
		o->cap = mem ? o->size : o->cap;
	}
	pthread_mutex_unlock(&o->lock);
}

uint64_t sbx_output_size(struct sbx_output *o)
{
	uint64_t n;

	pthread_mutex_lock(&o->lock);
	n = o->size;
	pthread_mutex_unlock(&o->lock);
	return n;
}

uint64_t sbx_output_total(struct sbx_output *o)
{
	uint64_t n;

	pthread_mutex_lock(&o->lock);
	n = o->total;
	pthread_mutex_unlock(&o->lock);
	return n;
}

uint64_t sbx_output_cut(struct sbx_output *o)
{
	uint64_t n;

	pthread_mutex_lock(&o->lock);
	n = o->total - o->size;
	pthread_mutex_unlock(&o->lock);
	return n;
}

bool sbx_output_truncated(struct sbx_output *o)
{
	bool full;

	pthread_mutex_lock(&o->lock);
	full = o->full;
	pthread_mutex_unlock(&o->lock);
	return full;
}

static ssize_t read_file(const char *path, void *buf, size_t len, uint64_t off)
{
	_cleanup_fd_ int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -errno;
	do
		n = pread(fd, buf, len, (off_t)off);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

ssize_t sbx_output_read(struct sbx_output *o, void *buf, size_t len, uint64_t off)
{
	bool spilled;

	pthread_mutex_lock(&o->lock);
	if (off >= o->size)
		len = 0;
	else if (len > o->size - off)
		len = (size_t)(o->size - off);
	spilled = o->spilled;
	if (len && !spilled)
		memcpy(buf, o->mem + off, len);
	pthread_mutex_unlock(&o->lock);
	return len && spilled ? read_file(o->path, buf, len, off) : (ssize_t)len;
}
