/*
 * Placeholders of the machine's files. Their size is a hole, which the contents are written into;
 * other contents come in a new file, which takes the name.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/remote/tree_impl.h"
#include "backends/support/beneath.h"
#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"

void remote_hold_begin(struct remote_hold *h, struct remote_tree *t)
{
	h->tree = t;
	pthread_rwlock_wrlock(t->cfg.sandbox->turn);
	h->until_ns = sbx_now_ns() + t->times.slice_us * 1000;
}

void remote_hold_end(struct remote_hold *h)
{
	pthread_rwlock_unlock(h->tree->cfg.sandbox->turn);
}

void remote_hold_breathe(struct remote_hold *h)
{
	if (sbx_now_ns() < h->until_ns)
		return;
	remote_hold_end(h);
	sched_yield();
	remote_hold_begin(h, h->tree);
}

bool remote_loosen(struct remote_loosened *l, int dirfd, int r)
{
	struct stat st;

	if (r != -EACCES || l->is || fstat(dirfd, &st) < 0 || (st.st_mode & 0300) == 0300)
		return false;
	l->mode = st.st_mode & 07777;
	l->is = fchmod(dirfd, l->mode | 0700) == 0;
	return l->is;
}

void remote_tighten(const struct remote_loosened *l, int dirfd)
{
	if (l->is)
		fchmod(dirfd, l->mode);
}

int remote_unlink(int dirfd, const char *name, int flags)
{
	struct remote_loosened l = {0};
	int r;

	do
		r = unlinkat(dirfd, name, flags) < 0 ? -errno : 0;
	while (remote_loosen(&l, dirfd, r));
	remote_tighten(&l, dirfd);
	return r;
}

mode_t remote_mode_of_dir(mode_t mode)
{
	return (mode & 07777) | 0500;
}

static struct timespec time_of(int64_t ns)
{
	int64_t seconds = ns / 1000000000, rest = ns % 1000000000;

	if (rest < 0) {
		seconds--;
		rest += 1000000000;
	}
	return (struct timespec){.tv_sec = seconds, .tv_nsec = rest};
}

struct remote_version remote_version_of(const struct remote_listed *l)
{
	return (struct remote_version){
	        .ino = l->ino, .size = l->size, .mtime_ns = l->mtime_ns, .ctime_ns = l->ctime_ns};
}

bool remote_version_is(const struct remote_version *v, const struct remote_listed *l)
{
	return v->ino == l->ino && v->size == l->size && v->mtime_ns == l->mtime_ns;
}

/*
 * A file of a size, a mode and a time, without contents. It is opened by its owner only until its
 * attribute is there, which cannot be written where the mode forbids to write.
 */
static int make_file(struct remote_tree *t, int dirfd, const char *name,
                     const struct remote_version *v, mode_t mode, int64_t mtime_ns)
{
	const struct timespec times[2] = {time_of(mtime_ns), time_of(mtime_ns)};
	_cleanup_fd_ int fd =
	        openat(dirfd, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	int r;

	if (fd < 0)
		return -errno;
	r = ftruncate(fd, (off_t)v->size) < 0 ? -errno : 0;
	if (!r)
		r = remote_node_keep(t, fd, v->size ? REMOTE_ABSENT : REMOTE_HERE, v, mtime_ns);
	if (!r && (fchmod(fd, mode & 0777) < 0 || futimens(fd, times) < 0))
		r = -errno;
	if (r) {
		unlinkat(dirfd, name, 0);
		return r;
	}
	return sbx_steal_fd(&fd);
}

/* What stands in PATH behind the directory ABOVE: "", or "/" and more. NULL: it is not below. */
static const char *below(const char *path, const char *above)
{
	const size_t len = strlen(above);

	return len > 1 && strncmp(path, above, len) == 0 && (path[len] == '/' || !path[len])
	               ? path + len
	               : NULL;
}

char *remote_text_of_link(const struct remote_tree *t, const char *path, const char *target)
{
	const char *rest = t->workdir ? below(target, t->workdir) : NULL;
	size_t up = 0, n;
	char *text;

	if (!rest)
		return strdup(target);
	target = rest + strspn(rest, "/");
	if (!*target)
		target = ".";
	for (const char *c = path; *c; c++)
		up += *c == '/';
	text = malloc(3 * up + strlen(target) + 1);
	if (!text)
		return NULL;
	for (n = 0; n < 3 * up; n += 3)
		memcpy(text + n, "../", 3);
	memcpy(text + n, target, strlen(target) + 1);
	return text;
}

char *remote_tree_text_there(struct remote_tree *t, const char *target)
{
	_cleanup_free_ char *view = *target == '/' && t->cfg.view ? t->cfg.view(t->cfg.data) : NULL;
	const char *rest = view ? below(target, view) : NULL;

	return rest && t->workdir ? sbx_format("%s%s", t->workdir, rest) : strdup(target);
}

static int make_link(struct remote_tree *t, int dirfd, const char *name,
                     const struct remote_listed *l)
{
	_cleanup_free_ char *text = remote_text_of_link(t, l->path, l->target);

	if (!text)
		return -ENOMEM;
	return symlinkat(text, dirfd, name) < 0 ? -errno : 0;
}

static int make_other(struct remote_tree *t, int dirfd, const char *name,
                      const struct remote_listed *l)
{
	const mode_t mode = l->mode & 07777;
	int r;

	switch (l->mode & S_IFMT) {
	case S_IFLNK:
		return make_link(t, dirfd, name, l);
	case S_IFDIR:
		r = mkdirat(dirfd, name, 0700);
		break;
	default:
		r = mknodat(dirfd, name, (l->mode & S_IFMT) | mode, 0);
	}
	/* The umask took something; nobody has put a link there, because the turn is held. */
	if (r < 0 ||
	    fchmodat(dirfd, name, S_ISDIR(l->mode) ? remote_mode_of_dir(mode) : mode, 0) < 0)
		return -errno;
	return 0;
}

static int make_one(struct remote_tree *t, int dirfd, const char *name,
                    const struct remote_listed *l)
{
	const struct remote_version v = remote_version_of(l);
	int fd;

	if (!S_ISREG(l->mode))
		return make_other(t, dirfd, name, l);
	fd = make_file(t, dirfd, name, &v, l->mode, l->mtime_ns);
	if (fd < 0)
		return fd;
	close(fd);
	return 0;
}

static int make(struct remote_tree *t, int dirfd, const char *name, const struct remote_listed *l)
{
	const struct timespec times[2] = {time_of(l->mtime_ns), time_of(l->mtime_ns)};
	struct remote_loosened loosened = {0};
	int r;

	do
		r = make_one(t, dirfd, name, l);
	while (remote_loosen(&loosened, dirfd, r));
	remote_tighten(&loosened, dirfd);
	if (!r && !S_ISREG(l->mode))
		utimensat(dirfd, name, times, AT_SYMLINK_NOFOLLOW);
	return r;
}

/* Notes what was made as NAME in the directory PARENT. */
static int note_made(struct remote_tree *t, int dirfd, const char *name,
                     const struct remote_version *v, struct remote_node *parent,
                     struct remote_node **ret)
{
	struct remote_node *n;
	struct stat st;
	int r = 0;

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	pthread_mutex_lock(&t->lock);
	n = remote_node_put(t, st.st_ino, st.st_mode);
	if (n && n->dir)
		r = remote_node_hang(t, n, parent, name);
	if (n && S_ISREG(st.st_mode)) {
		n->version = *v;
		remote_node_set(t, n, v->size ? REMOTE_ABSENT : REMOTE_HERE, 0);
	} else if (n) {
		n->version.ino = v->ino;
	}
	pthread_mutex_unlock(&t->lock);
	*ret = n;
	return n ? r : -ENOMEM;
}

int remote_place(struct remote_tree *t, int dirfd, const char *name, const struct remote_listed *l,
                 struct remote_node *parent, struct remote_node **ret)
{
	const struct remote_version v = remote_version_of(l);
	int r = remote_nodes_full(t) ? -ENOSPC : make(t, dirfd, name, l);

	if (r)
		return r;
	r = note_made(t, dirfd, name, &v, parent, ret);
	if (r)
		remote_unlink(dirfd, name, S_ISDIR(l->mode) ? AT_REMOVEDIR : 0);
	return r;
}

static void temp_name(struct remote_tree *t, char *ret, size_t size)
{
	pthread_mutex_lock(&t->lock);
	snprintf(ret, size, "%llu", (unsigned long long)++t->temps);
	pthread_mutex_unlock(&t->lock);
}

/* What stands as TEMP takes the name of the file or link OLD. */
static int take_name(struct remote_tree *t, const char *temp, int dirfd, const char *name, int old,
                     bool same)
{
	_cleanup_fd_ int new = sbx_beneath_open(t->temp, temp, O_PATH);
	struct remote_loosened loosened = {0};
	int r;

	if (new < 0)
		return new;
	do
		r = renameat(t->temp, temp, dirfd, name) < 0 ? -errno : 0;
	while (remote_loosen(&loosened, dirfd, r));
	remote_tighten(&loosened, dirfd);
	if (r)
		return r;
	if (same)
		sbx_sandbox_replaced(t->cfg.sandbox, old, new);
	return 0;
}

/* OLD, whose name was taken. */
static void note_replaced(struct remote_tree *t, const struct stat *old, bool same)
{
	struct remote_node *n;

	pthread_mutex_lock(&t->lock);
	n = remote_node_find(t, old->st_ino);
	if (n && old->st_nlink <= 1) {
		n->replaced = same;
		n->retry_ns = same ? sbx_now_ns() : 0;
		remote_node_gone(t, n);
	}
	pthread_mutex_unlock(&t->lock);
}

int remote_replace(struct remote_tree *t, int dirfd, const char *name,
                   const struct remote_listed *l, bool same, struct remote_node *parent,
                   struct remote_node **ret)
{
	_cleanup_fd_ int old = openat(dirfd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	const struct remote_version v = remote_version_of(l);
	struct stat st;
	char temp[32];
	int r;

	if (old < 0 || fstat(old, &st) < 0)
		return -errno;
	assert(!S_ISDIR(st.st_mode) && !S_ISDIR(l->mode));
	temp_name(t, temp, sizeof(temp));
	r = make(t, t->temp, temp, l);
	if (!r)
		r = take_name(t, temp, dirfd, name, old, same);
	if (r) {
		unlinkat(t->temp, temp, 0);
		return r;
	}
	note_replaced(t, &st, same);
	return note_made(t, dirfd, name, &v, parent, ret);
}

int remote_replace_as(struct remote_tree *t, int dirfd, const char *name, int from_dirfd,
                      const char *from, bool same)
{
	_cleanup_fd_ int old = openat(dirfd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;
	char temp[32];
	int r;

	if (old < 0 || fstat(old, &st) < 0)
		return -errno;
	temp_name(t, temp, sizeof(temp));
	if (linkat(from_dirfd, from, t->temp, temp, 0) < 0)
		return -errno;
	r = take_name(t, temp, dirfd, name, old, same);
	if (r)
		unlinkat(t->temp, temp, 0);
	else
		note_replaced(t, &st, same);
	return r;
}

int remote_open_changing(int opath, const struct stat *st, bool *loosened)
{
	char proc[40];
	int fd;

	*loosened = false;
	snprintf(proc, sizeof(proc), "/proc/self/fd/%d", opath);
	fd = open(proc, O_RDWR | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0 && errno == EACCES && chmod(proc, st->st_mode | 0600) == 0) {
		*loosened = true;
		fd = open(proc, O_RDWR | O_CLOEXEC | O_NONBLOCK);
		if (fd < 0)
			chmod(proc, st->st_mode & 07777);
	}
	return fd < 0 ? -errno : fd;
}

int remote_refit(struct remote_tree *t, int dirfd, const char *name, const struct remote_listed *l,
                 enum remote_state state)
{
	const struct timespec times[2] = {time_of(l->mtime_ns), time_of(l->mtime_ns)};
	_cleanup_fd_ int opath = openat(dirfd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	const struct remote_version v = remote_version_of(l);
	_cleanup_fd_ int fd = -1;
	bool loosened;
	struct stat st;
	int r = 0;

	if (opath < 0 || fstat(opath, &st) < 0)
		return -errno;
	fd = remote_open_changing(opath, &st, &loosened);
	if (fd < 0)
		return fd;
	if (state == REMOTE_ABSENT &&
	    (ftruncate(fd, (off_t)l->size) < 0 || futimens(fd, times) < 0))
		r = -errno;
	if (!r && state == REMOTE_HERE)
		r = remote_node_keep(t, fd, state, &v, sbx_timespec_ns(&st.st_mtim));
	else if (!r)
		r = remote_node_keep(t, fd, l->size ? state : REMOTE_HERE, &v, l->mtime_ns);
	if (fchmod(fd, (r ? st.st_mode : l->mode) & 0777) < 0 && !r)
		r = -errno;
	return r;
}

/* Puts back what filling the file has changed of it. */
static int finish_filling(struct remote_tree *t, int fd, const struct stat *st, bool loosened,
                          bool whole, const struct remote_version *v)
{
	const struct timespec times[2] = {st->st_atim, st->st_mtim};
	int r = 0;

	if (futimens(fd, times) < 0)
		r = -errno;
	if (!r && whole)
		r = remote_node_keep(t, fd, REMOTE_HERE, v, sbx_timespec_ns(&st->st_mtim));
	if (loosened && fchmod(fd, st->st_mode & 07777) < 0 && !r)
		r = -errno;
	return r;
}

/* Marks the chunks that LEN bytes from OFF on have filled; whether none is missing. */
static int mark(struct remote_node *n, uint64_t off, uint64_t len, bool *whole)
{
	const uint64_t chunks = remote_chunks(n->version.size);

	if (!n->chunks)
		n->chunks = calloc((size_t)(chunks + 63) / 64, sizeof(*n->chunks));
	if (!n->chunks)
		return -ENOMEM;
	for (uint64_t i = off / REMOTE_CHUNK; i < chunks; i++) {
		const uint64_t end = (i + 1) * REMOTE_CHUNK;

		if ((end < n->version.size ? end : n->version.size) > off + len)
			break;
		n->chunks[i / 64] |= UINT64_C(1) << (i % 64);
	}
	*whole = true;
	for (uint64_t i = 0; i < chunks && *whole; i++)
		*whole = n->chunks[i / 64] >> (i % 64) & 1;
	return 0;
}

/* Whether N waits for these contents; and for how many of the LEN bytes. */
static bool waits_for(const struct remote_node *n, const struct remote_listed *l, uint64_t off,
                      size_t *len)
{
	const uint64_t size = n->version.size;

	if (n->state == REMOTE_HERE || n->dirty || !remote_version_is(&n->version, l))
		return false;
	if (off % REMOTE_CHUNK || off >= size || size > REMOTE_LARGE)
		return false;
	if (*len > size - off)
		*len = (size_t)(size - off);
	/* Part of a chunk is of no use. */
	if (*len < size - off)
		*len -= *len % REMOTE_CHUNK;
	return *len > 0;
}

static int write_at(int fd, const char *bytes, size_t len, uint64_t off)
{
	while (len) {
		ssize_t n = pwrite(fd, bytes, len, (off_t)off);

		if (n < 0 && errno != EINTR)
			return -errno;
		if (n > 0) {
			bytes += n;
			off += (uint64_t)n;
			len -= (size_t)n;
		}
	}
	return 0;
}

static int fill(struct remote_tree *t, struct remote_node *n, int opath, const struct stat *st,
                uint64_t off, const char *bytes, size_t len)
{
	const bool at_once = !off && len == n->version.size;
	bool loosened, whole = at_once;
	_cleanup_fd_ int fd = remote_open_changing(opath, st, &loosened);
	int r;

	if (fd < 0)
		return fd;
	r = write_at(fd, bytes, len, off);
	pthread_mutex_lock(&t->lock);
	if (!r && !at_once)
		r = mark(n, off, len, &whole);
	pthread_mutex_unlock(&t->lock);
	r = finish_filling(t, fd, st, loosened, !r && whole, &n->version) ?: r;
	if (r)
		return r;
	pthread_mutex_lock(&t->lock);
	remote_node_set(t, n, whole ? REMOTE_HERE : REMOTE_PART,
	                whole ? n->version.size : n->bytes + len);
	remote_node_fail(t, n, NULL);
	pthread_mutex_unlock(&t->lock);
	return 1;
}

bool remote_is_racy(const struct remote_listed *l, uint64_t begun, int64_t grain_ns)
{
	return begun < INT64_MAX && l->mtime_ns > (int64_t)begun - grain_ns;
}

/* A time in whole seconds is from a file system that has no finer ones. */
static int64_t grain_of(const struct remote_listed *l)
{
	return l->mtime_ns % 1000000000 ? REMOTE_TICK_NS : INT64_C(2000000000);
}

static int fill_one(struct remote_tree *t, const struct remote_listed *l, uint64_t begun,
                    uint64_t off, const char *bytes, size_t len)
{
	_cleanup_fd_ int opath = sbx_beneath_open(t->root, l->path, O_PATH);
	struct remote_node *n;
	struct stat st;
	bool wanted;

	if (opath < 0 || fstat(opath, &st) < 0 || !S_ISREG(st.st_mode))
		return 0;
	n = remote_node_load(t, opath, &st, NULL, NULL);
	if (!n)
		return -ENOMEM;
	pthread_mutex_lock(&t->lock);
	wanted = waits_for(n, l, off, &len);
	if (wanted)
		n->racy |= remote_is_racy(l, begun, grain_of(l));
	pthread_mutex_unlock(&t->lock);
	return wanted ? fill(t, n, opath, &st, off, bytes, len) : 0;
}

int remote_fill(struct remote_tree *t, const struct remote_listed *l, uint64_t begun, uint64_t off,
                const char *bytes, size_t len)
{
	struct remote_hold hold;
	int r;

	remote_hold_begin(&hold, t);
	r = fill_one(t, l, begun, off, bytes, len);
	remote_hold_end(&hold);
	return r;
}
