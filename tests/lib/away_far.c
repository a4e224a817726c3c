/* The played machine's tree: brought over as it is asked for, and made to follow what is told. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"
#include "tests/lib/away.h"

static int tree_of(struct away_sandbox *s)
{
	return sbx_sandbox_root(s->inner);
}

static int place(int root, const char *path)
{
	return openat(root, *path ? path : ".", O_PATH | O_NOFOLLOW | O_CLOEXEC);
}

unsigned away_chunks(uint64_t size)
{
	return (unsigned)((size + AWAY_CHUNK - 1) / AWAY_CHUNK);
}

/* --- what comes --------------------------------------------------------------------------------
 */

static int set_times(int dirfd, const char *name, const struct stat *st)
{
	const struct timespec t[2] = {st->st_atim, st->st_mtim};

	return utimensat(dirfd, name, t, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
}

/* A hole of the right size. */
static int make_absent(int dirfd, const char *name, const struct stat *st)
{
	_cleanup_fd_ int fd =
	        openat(dirfd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, st->st_mode & 0777);

	return fd < 0 || ftruncate(fd, st->st_size) < 0 ? -errno : 0;
}

static int make_like(int from, int to, const char *name, const struct stat *st)
{
	char target[PATH_MAX];
	ssize_t n;

	if (S_ISDIR(st->st_mode))
		return mkdirat(to, name, st->st_mode & 0777) < 0 ? -errno : 0;
	if (S_ISREG(st->st_mode))
		return make_absent(to, name, st);
	if (!S_ISLNK(st->st_mode))
		return mknodat(to, name, st->st_mode & (S_IFMT | 0777), 0) < 0 ? -errno : 0;
	n = readlinkat(from, name, target, sizeof(target) - 1);
	if (n < 0)
		return -errno;
	target[n] = '\0';
	return symlinkat(target, to, name) < 0 ? -errno : 0;
}

static void note_entry(struct away_sandbox *s, int dirfd, const char *name)
{
	struct away_file *f;
	struct stat st;

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return;
	pthread_mutex_lock(&s->lock);
	f = away_file_of(s, st.st_ino);
	f->names = f->dirty = f->restated = false;
	f->have = 0;
	f->chunks = S_ISREG(st.st_mode) ? away_chunks((uint64_t)st.st_size) : 0;
	pthread_mutex_unlock(&s->lock);
}

struct bringing {
	struct away_sandbox *s;
	int from, to;
};

static int bring_entry(const char *name, unsigned char type, void *data)
{
	const struct bringing *b = data;
	struct stat st, old;
	int r;

	(void)type;
	if (fstatat(b->to, name, &old, AT_SYMLINK_NOFOLLOW) == 0)
		return 0;
	if (fstatat(b->from, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	r = make_like(b->from, b->to, name, &st);
	if (r < 0)
		return r;
	note_entry(b->s, b->to, name);
	return set_times(b->to, name, &st);
}

static int open_dir(int root, const char *path)
{
	int fd = openat(root, *path ? path : ".", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

int away_fetch_names(struct away_sandbox *s, const char *path)
{
	_cleanup_fd_ int from = open_dir(s->far, path), to = open_dir(tree_of(s), path);
	struct bringing b = {.s = s, .from = from, .to = to};
	struct stat st;
	int r;

	if (from < 0 || to < 0)
		return -ESTALE;
	pthread_rwlock_wrlock(&s->turn);
	r = sbx_dir_scan(from, bring_entry, &b);
	if (r == 0 &&
	    (fstat(from, &st) < 0 ||
	     futimens(to, (struct timespec[]){st.st_atim, st.st_mtim}) < 0 || fstat(to, &st) < 0))
		r = -errno;
	if (r == 0) {
		pthread_mutex_lock(&s->lock);
		away_file_of(s, st.st_ino)->names = true;
		pthread_mutex_unlock(&s->lock);
	}
	pthread_rwlock_unlock(&s->turn);
	return r;
}

static int copy_part(int from, int to, uint64_t off, uint64_t len)
{
	_cleanup_free_ char *buf = malloc(AWAY_CHUNK);

	for (uint64_t end = off + len; buf && off < end;) {
		ssize_t n = pread(from, buf, AWAY_CHUNK, (off_t)off);

		if (n <= 0)
			return n < 0 ? -errno : 0;
		if (pwrite(to, buf, (size_t)n, (off_t)off) != n)
			return -errno;
		off += (uint64_t)n;
	}
	return buf ? 0 : -ENOMEM;
}

int away_fetch_data(struct away_sandbox *s, const char *path, uint64_t off, uint64_t len)
{
	_cleanup_fd_ int from = openat(s->far, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	_cleanup_fd_ int to = openat(tree_of(s), path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	uint64_t last;
	struct stat st, far;
	int r;

	if (from < 0 || to < 0 || fstat(to, &st) < 0 || fstat(from, &far) < 0)
		return -ESTALE;
	last = len ? off + len : (uint64_t)st.st_size;
	off -= off % AWAY_CHUNK;
	if (last > (uint64_t)st.st_size)
		last = (uint64_t)st.st_size;
	r = off < last ? copy_part(from, to, off, last - off) : 0;
	if (r == 0 && futimens(to, (struct timespec[]){far.st_atim, far.st_mtim}) < 0)
		r = -errno;
	if (r < 0)
		return r;
	pthread_mutex_lock(&s->lock);
	for (uint64_t c = off / AWAY_CHUNK; c < away_chunks(last); c++)
		away_file_of(s, st.st_ino)->have |= UINT64_C(1) << c;
	pthread_mutex_unlock(&s->lock);
	return 0;
}

static int put_new(struct away_sandbox *s, const char *path, const struct stat *st)
{
	_cleanup_fd_ int old = -1, new = -1;
	int tree = tree_of(s), r;

	unlinkat(s->temp, "new", 0);
	r = make_absent(s->temp, "new", st);
	if (r == 0)
		r = set_times(s->temp, "new", st);
	if (r < 0)
		return r;
	note_entry(s, s->temp, "new");
	new = place(s->temp, "new");
	pthread_rwlock_wrlock(&s->turn);
	old = place(tree, path);
	r = renameat(s->temp, "new", tree, path) < 0 ? -errno : 0;
	if (r == 0 && old >= 0)
		sbx_sandbox_replaced(&s->base, old, new);
	pthread_rwlock_unlock(&s->turn);
	return r;
}

int away_take_over(struct away_sandbox *s, const char *path)
{
	struct stat st;
	int r = 0;

	if (fstatat(s->far, path, &st, AT_SYMLINK_NOFOLLOW) == 0) {
		r = put_new(s, path, &st);
	} else {
		pthread_rwlock_wrlock(&s->turn);
		if (unlinkat(tree_of(s), path, 0) < 0)
			r = -errno;
		pthread_rwlock_unlock(&s->turn);
	}
	sbx_sandbox_altered(&s->base);
	return r;
}

/* --- what goes ---------------------------------------------------------------------------------
 */

void away_changes_free(struct away_change *changes, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		free(changes[i].path);
		free(changes[i].to);
		free(changes[i].target);
	}
	free(changes);
}

static int do_made(int far, const struct away_change *c)
{
	const mode_t bits = c->mode & 07777;

	if (S_ISDIR(c->mode))
		return mkdirat(far, c->path, bits);
	if (S_ISLNK(c->mode))
		return symlinkat(c->target, far, c->path);
	return mknodat(far, c->path, c->mode & (S_IFMT | 07777), 0);
}

static int do_change(int far, const struct away_change *c)
{
	switch (c->kind) {
	case SBX_CHANGE_MADE:
		return do_made(far, c);
	case SBX_CHANGE_GONE:
		return unlinkat(far, c->path, S_ISDIR(c->mode) ? AT_REMOVEDIR : 0);
	case SBX_CHANGE_MOVED:
		return renameat(far, c->path, far, c->to);
	case SBX_CHANGE_SWAPPED:
		return renameat2(far, c->path, far, c->to, RENAME_EXCHANGE);
	case SBX_CHANGE_LINKED:
		return linkat(far, c->path, far, c->to, 0);
	default:
		return 0;
	}
}

static int copy_status(int from, int to, const char *path, const struct stat *st)
{
	(void)from;
	if (!S_ISLNK(st->st_mode) && fchmodat(to, path, st->st_mode & 07777, 0) < 0)
		return -errno;
	return set_times(to, path, st);
}

static int copy_contents(int from, int to, const char *path, const struct stat *st)
{
	_cleanup_fd_ int in = openat(from, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	_cleanup_fd_ int out = openat(to, path, O_WRONLY | O_TRUNC | O_NOFOLLOW | O_CLOEXEC);

	if (in < 0 || out < 0)
		return -errno;
	return copy_part(in, out, 0, (uint64_t)st->st_size);
}

static int send_file(struct away_sandbox *s, const char *path, const struct stat *st)
{
	struct away_file was, *f;
	int r = 0;

	pthread_mutex_lock(&s->lock);
	f = away_file_of(s, st->st_ino);
	was = *f;
	f->dirty = f->restated = false;
	pthread_mutex_unlock(&s->lock);
	if (was.dirty && S_ISREG(st->st_mode))
		r = copy_contents(tree_of(s), s->far, path, st);
	if (r == 0 && (was.dirty || was.restated))
		r = copy_status(tree_of(s), s->far, path, st);
	return r;
}

struct sending {
	struct away_sandbox *s;
	int dir;
	const char *path;
	int result;
};

static int send_below(struct away_sandbox *s, const char *path);

static int send_entry(const char *name, unsigned char type, void *data)
{
	struct sending *w = data;
	char path[PATH_MAX];
	struct stat st;
	int r = 0;

	(void)type;
	snprintf(path, sizeof(path), "%s%s%s", w->path, *w->path ? "/" : "", name);
	if (fstatat(w->dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	if (S_ISDIR(st.st_mode))
		r = send_below(w->s, path);
	/* Last of all: a directory's times change with what is in it. */
	if (r == 0)
		r = send_file(w->s, path, &st);
	return r;
}

static int send_below(struct away_sandbox *s, const char *path)
{
	_cleanup_fd_ int dir = open_dir(tree_of(s), path);
	struct sending w = {.s = s, .dir = dir, .path = path};

	return dir < 0 ? dir : sbx_dir_scan(dir, send_entry, &w);
}

int away_send(struct away_sandbox *s, struct away_change *changes, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (do_change(s->far, &changes[i]) < 0)
			return -errno;
		pthread_mutex_lock(&s->lock);
		if (changes[i].kind == SBX_CHANGE_DATA || changes[i].kind == SBX_CHANGE_EMPTIED)
			away_file_of(s, changes[i].ino)->dirty = true;
		if (changes[i].kind == SBX_CHANGE_STATUS ||
		    (changes[i].kind == SBX_CHANGE_MADE && !S_ISDIR(changes[i].mode)))
			away_file_of(s, changes[i].ino)->restated = true;
		pthread_mutex_unlock(&s->lock);
	}
	return n ? send_below(s, "") : 0;
}
