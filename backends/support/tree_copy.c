/*
 * Copying a plain directory. Hard links among the copied files are found again through a
 * side directory that holds one more link to each copy under the identity of its
 * source: the file system is the table, so memory does not grow with the tree.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "backends/support/tree.h"
#include "sandboxfs/cleanup.h"

#define CHUNK     (16u << 20) /* copied between two looks at cancelled */
#define BUFFER    (256u << 10)
#define XATTR_MAX 65536
#define TRIES     3 /* at a file that is written meanwhile */

struct copying {
	struct sbx_copy *spec;
	struct sbx_error *err;
	struct sbx_levels from, to;
	int src, dst; /* the top levels' directories */
};

int sbx_skip_path(const char *path, struct sbx_skip *ret)
{
	const char *slash = strrchr(path, '/');
	_cleanup_free_ char *parent = NULL;
	struct stat st;

	if (!slash || !slash[1])
		return -EINVAL;
	parent = strndup(path, slash == path ? 1 : (size_t)(slash - path));
	if (!parent)
		return -ENOMEM;
	if (stat(parent, &st) < 0)
		return -errno;
	*ret = (struct sbx_skip){.dev = st.st_dev, .ino = st.st_ino, .name = slash + 1};
	return 0;
}

static int check_cancelled(const struct sbx_copy *spec)
{
	return spec->cancelled && atomic_load(spec->cancelled) ? -EINTR : 0;
}

static int fail_at(struct copying *c, const char *name, int r)
{
	_cleanup_free_ char *path = NULL;

	if (r == -EINTR)
		return sbx_fail(c->err, EINTR, "cancelled");
	path = sbx_levels_path(&c->from, name);
	return sbx_fail(c->err, -r, "cannot copy %s: %s", path ? path : name, strerror(-r));
}

static bool unsupported(int e)
{
	return e == EXDEV || e == EINVAL || e == EOPNOTSUPP || e == ENOSYS || e == ENOTTY ||
	       e == EBADF;
}

static int copy_buffered(int in, int out, off_t at, off_t end, const struct sbx_copy *spec)
{
	_cleanup_free_ char *buf = malloc(BUFFER);

	if (!buf)
		return -ENOMEM;
	while (at < end) {
		size_t want = end - at < BUFFER ? (size_t)(end - at) : BUFFER;
		ssize_t n = pread(in, buf, want, at);

		if (n < 0)
			return -errno;
		if (!n)
			break;
		for (ssize_t done = 0; done < n;) {
			ssize_t w = pwrite(out, buf + done, (size_t)(n - done), at + done);

			if (w < 0)
				return -errno;
			done += w;
		}
		at += n;
		if (check_cancelled(spec))
			return -EINTR;
	}
	return 0;
}

static int copy_range(int in, int out, off_t at, off_t end, const struct sbx_copy *spec)
{
	off_t from = at, to = at;

	while (from < end) {
		size_t want = end - from < CHUNK ? (size_t)(end - from) : CHUNK;
		ssize_t n = copy_file_range(in, &from, out, &to, want, 0);

		if (n < 0 && unsupported(errno))
			return copy_buffered(in, out, from, end, spec);
		if (n < 0)
			return -errno;
		/* Nothing although the size says otherwise: a file whose data only read tells. */
		if (!n)
			return copy_buffered(in, out, from, end, spec);
		if (check_cancelled(spec))
			return -EINTR;
	}
	return 0;
}

static int copy_data(int in, int out, off_t size, const struct sbx_copy *spec)
{
	off_t data, hole = 0;
	int r;

	if (ioctl(out, FICLONE, in) == 0)
		return 0;
	if (ftruncate(out, size) < 0)
		return -errno;
	while (hole < size) {
		data = lseek(in, hole, SEEK_DATA);
		if (data < 0 && errno == ENXIO)
			break;
		if (data < 0)
			return copy_range(in, out, hole, size, spec);
		hole = lseek(in, data, SEEK_HOLE);
		if (hole < 0)
			hole = size;
		r = copy_range(in, out, data, hole, spec);
		if (r)
			return r;
	}
	return 0;
}

/*
 * Attributes for overlayfs are copied for layers alone, because elsewhere they would say what is
 * not so.
 */
static bool is_copied(const struct copying *c, const char *name)
{
	if (strncmp(name, "user.overlay.", 13) == 0 || strncmp(name, "trusted.overlay.", 16) == 0)
		return c->spec->layer;
	return strncmp(name, "user.", 5) == 0;
}

static int copy_xattrs(const struct copying *c, int in, int out)
{
	char names[XATTR_MAX], value[XATTR_MAX];
	ssize_t len = flistxattr(in, names, sizeof(names));

	for (ssize_t at = 0; at < len; at += (ssize_t)strlen(names + at) + 1) {
		ssize_t n;

		if (!is_copied(c, names + at))
			continue;
		n = fgetxattr(in, names + at, value, sizeof(value));
		if (n >= 0 && fsetxattr(out, names + at, value, (size_t)n, 0) < 0 &&
		    errno != EOPNOTSUPP)
			return -errno;
	}
	return 0;
}

/* Last of all: writing and adding entries move the times, and a mode may forbid both. */
static int copy_attributes(struct copying *c, int in, int out, const struct stat *st)
{
	const struct sbx_identity *owner = c->spec->owner;
	const struct timespec times[2] = {st->st_atim, st->st_mtim};
	struct stat copied;
	int r = copy_xattrs(c, in, out);

	if (r)
		return r;
	if (owner && fchown(out, owner->uid, owner->gid) < 0)
		return -errno;
	if (fstat(out, &copied) == 0)
		c->spec->bytes += (uint64_t)copied.st_blocks * 512;
	c->spec->files++;
	if (fchmod(out, st->st_mode & (S_ISDIR(st->st_mode) ? 03777 : 01777)) < 0 ||
	    futimens(out, times) < 0)
		return -errno;
	return 0;
}

static void link_name(const struct stat *st, char buf[48])
{
	snprintf(buf, 48, "%" PRIx64 "-%" PRIx64, (uint64_t)st->st_dev, (uint64_t)st->st_ino);
}

/* 1: NAME is now a link to the copy made before. */
static int link_known(struct copying *c, const char *name, const struct stat *st)
{
	char known[48];

	if (st->st_nlink < 2)
		return 0;
	link_name(st, known);
	return linkat(c->spec->links, known, c->dst, name, 0) == 0;
}

/* Where links cannot be made the files become separate ones. */
static int remember_link(struct copying *c, const char *name, const struct stat *st)
{
	char known[48];

	if (st->st_nlink < 2)
		return 0;
	link_name(st, known);
	if (linkat(c->dst, name, c->spec->links, known, 0) == 0 || errno == EMLINK ||
	    errno == EPERM || errno == EEXIST)
		return 0;
	return -errno;
}

static bool is_same_time(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

/* 1: it is written all the time, and was taken as it was passed over. ST is of the end then. */
static int copy_still(int in, int out, struct stat *st, const struct sbx_copy *spec)
{
	for (int i = 0; i < TRIES; i++) {
		struct stat now;
		bool same;
		int r = i && ftruncate(out, 0) < 0 ? -errno : copy_data(in, out, st->st_size, spec);

		if (!r && fstat(in, &now) < 0)
			r = -errno;
		if (r)
			return r;
		same = now.st_size == st->st_size && is_same_time(&now.st_mtim, &st->st_mtim) &&
		       is_same_time(&now.st_ctim, &st->st_ctim);
		*st = now;
		if (same)
			return 0;
	}
	return 1;
}

/* What its copy has instead is of one moment, as it is small. */
static int fill_file(struct copying *c, const char *name, int in, int out, struct stat *st)
{
	_cleanup_free_ char *text = NULL;
	int r = c->spec->rewrite ? c->spec->rewrite(c->src, name, in, &text) : 0;

	if (r <= 0)
		return r ? r : copy_still(in, out, st, c->spec);
	return sbx_write_all(out, text, strlen(text));
}

static int tell_copied(struct copying *c, const char *name, const struct stat *st)
{
	_cleanup_free_ char *path = NULL;

	if (!c->spec->copied)
		return 0;
	path = sbx_levels_path(&c->from, name);
	return path ? c->spec->copied(path, st, c->spec->data) : -ENOMEM;
}

/* Its mode is another for as long as it takes to open it. */
static int open_closed(int dir, const char *name)
{
	_cleanup_fd_ int fd = openat(dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	char link[40];
	struct stat st;
	int in, r;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -ESTALE;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	if (chmod(link, (st.st_mode & 07777) | 0400) < 0)
		return -errno;
	in = open(link, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	r = -errno;
	chmod(link, st.st_mode & 07777);
	return in < 0 ? r : in;
}

static int open_file(const struct copying *c, const char *name)
{
	int fd = openat(c->src, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0 && errno == EACCES && c->spec->ours)
		return open_closed(c->src, name);
	return fd < 0 ? -errno : fd;
}

static int copy_file(struct copying *c, const char *name)
{
	_cleanup_fd_ int in = open_file(c, name);
	_cleanup_fd_ int out = -1;
	struct stat st;
	int r, still;

	if (in < 0)
		return in;
	if (fstat(in, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -ESTALE;
	if (link_known(c, name, &st))
		return tell_copied(c, name, &st);
	out = openat(c->dst, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (out < 0)
		return -errno;
	still = fill_file(c, name, in, out, &st);
	r = still < 0 ? still : copy_attributes(c, in, out, &st);
	if (!r)
		r = remember_link(c, name, &st);
	return r || still ? r : tell_copied(c, name, &st);
}

static int own(struct copying *c, const char *name)
{
	const struct sbx_identity *owner = c->spec->owner;

	return owner && fchownat(c->dst, name, owner->uid, owner->gid, AT_SYMLINK_NOFOLLOW) < 0
	               ? -errno
	               : 0;
}

static int copy_symlink(struct copying *c, const char *name, const struct stat *st)
{
	const struct timespec times[2] = {st->st_atim, st->st_mtim};
	char target[4096];
	ssize_t n = readlinkat(c->src, name, target, sizeof(target) - 1);

	if (n < 0)
		return -errno;
	target[n] = '\0';
	if (symlinkat(target, c->dst, name) < 0 || own(c, name) < 0 ||
	    utimensat(c->dst, name, times, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	return 0;
}

static int copy_fifo(struct copying *c, const char *name, const struct stat *st)
{
	const struct timespec times[2] = {st->st_atim, st->st_mtim};

	if (mkfifoat(c->dst, name, 0600) < 0 || own(c, name) < 0 ||
	    fchmodat(c->dst, name, st->st_mode & 0777, 0) < 0 ||
	    utimensat(c->dst, name, times, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	return 0;
}

/* Of a base's file that was removed: a device that anybody may make, as it leads nowhere. */
static int copy_whiteout(struct copying *c, const char *name)
{
	struct stat st;

	if (fstatat(c->src, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (st.st_rdev != 0) {
		c->spec->skipped++;
		return 0;
	}
	return mknodat(c->dst, name, S_IFCHR | (st.st_mode & 0777), 0) < 0 ? -errno : 0;
}

static int copy_special(struct copying *c, const char *name, unsigned char type)
{
	struct stat st;
	int r;

	if (c->spec->layer && type == DT_CHR)
		return copy_whiteout(c, name);
	if (type != DT_LNK && type != DT_FIFO) {
		c->spec->skipped++;
		return 0;
	}
	if (fstatat(c->src, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (link_known(c, name, &st))
		return 0;
	r = type == DT_LNK ? copy_symlink(c, name, &st) : copy_fifo(c, name, &st);
	if (!r)
		r = remember_link(c, name, &st);
	return r || type != DT_LNK ? r : tell_copied(c, name, &st);
}

static bool is_skipped(struct copying *c, const char *name)
{
	const struct sbx_level *here = sbx_levels_top(&c->from);

	for (size_t i = 0; i < c->spec->nskips; i++) {
		const struct sbx_skip *s = &c->spec->skips[i];

		if (s->dev == here->dev && s->ino == here->ino && strcmp(s->name, name) == 0)
			return true;
	}
	return false;
}

static int visit(const char *name, unsigned char type, void *data)
{
	struct copying *c = data;
	int r = check_cancelled(c->spec);

	if (!r && is_skipped(c, name))
		return 0;
	if (!r && type == DT_DIR)
		r = sbx_strings_add(&sbx_levels_top(&c->from)->todo, name);
	else if (!r && type == DT_REG)
		r = copy_file(c, name);
	else if (!r)
		r = copy_special(c, name, type);
	/* Gone since the scan began: as if it had never been there. */
	if (r == -ENOENT)
		return 0;
	return r ? fail_at(c, name, r) : 0;
}

static int enter(struct copying *c, char *name)
{
	_cleanup_free_ char *owned = name;
	_cleanup_fd_ int src = sbx_dir_open(c->src, name), dst = -1;
	char *again;
	int r;

	if (src == -ENOENT)
		return 0;
	if (src < 0)
		return fail_at(c, name, src);
	if (mkdirat(c->dst, name, 0700) < 0)
		return fail_at(c, name, -errno);
	dst = sbx_dir_open(c->dst, name);
	if (dst < 0)
		return fail_at(c, name, dst);
	again = strdup(name);
	if (!again)
		return fail_at(c, name, -ENOMEM);
	r = sbx_levels_push(&c->to, again, dst);
	if (!r)
		r = sbx_levels_push(&c->from, sbx_steal_ptr(&owned), src);
	if (r)
		return fail_at(c, ".", r);
	close(c->src);
	close(c->dst);
	c->src = sbx_steal_fd(&src);
	c->dst = sbx_steal_fd(&dst);
	return sbx_dir_scan(c->src, visit, c);
}

static int finish_dir(struct copying *c)
{
	struct stat st;

	if (fstat(c->src, &st) < 0)
		return -errno;
	if (c->from.n == 1)
		st.st_mode |= 0700;
	return copy_attributes(c, c->src, c->dst, &st);
}

static int leave(struct copying *c)
{
	_cleanup_fd_ int src = sbx_levels_up(&c->from, c->src), dst = -1;
	int r;

	if (src < 0)
		return fail_at(c, "..", src);
	dst = sbx_levels_up(&c->to, c->dst);
	if (dst < 0)
		return fail_at(c, "..", dst);
	r = finish_dir(c);
	if (r)
		return fail_at(c, ".", r);
	close(c->src);
	close(c->dst);
	c->src = sbx_steal_fd(&src);
	c->dst = sbx_steal_fd(&dst);
	sbx_levels_pop(&c->from);
	sbx_levels_pop(&c->to);
	return 0;
}

static int copy_tree(struct copying *c)
{
	int r;

	if (c->src < 0 || c->dst < 0)
		return c->src < 0 ? c->src : c->dst;
	r = sbx_levels_push(&c->to, NULL, c->dst);
	if (!r)
		r = sbx_levels_push(&c->from, NULL, c->src);
	if (!r)
		r = sbx_dir_scan(c->src, visit, c);
	while (!r) {
		char *name = sbx_strings_take(&sbx_levels_top(&c->from)->todo);

		if (name)
			r = enter(c, name);
		else if (c->from.n > 1)
			r = leave(c);
		else
			return finish_dir(c);
	}
	return r;
}

int sbx_copy_entry(struct sbx_copy *copy, const char *name, unsigned char type)
{
	struct copying c = {.spec = copy, .src = copy->src, .dst = copy->dst};

	return type == DT_REG ? copy_file(&c, name) : copy_special(&c, name, type);
}

int sbx_tree_copy(struct sbx_copy *copy, struct sbx_error *err)
{
	struct sbx_error first = SBX_ERROR_INIT;
	struct copying c = {.spec = copy,
	                    .err = &first,
	                    .src = sbx_dir_open(copy->src, "."),
	                    .dst = sbx_dir_open(copy->dst, ".")};
	int r = copy_tree(&c);

	sbx_levels_release(&c.from);
	sbx_levels_release(&c.to);
	sbx_cleanup_fd(&c.src);
	sbx_cleanup_fd(&c.dst);
	if (r)
		return sbx_fail(err, -r, "%s", first.code ? first.text : strerror(-r));
	return 0;
}
