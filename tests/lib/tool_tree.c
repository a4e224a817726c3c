/* The tree of `tool coherence`, as host and jobs touch it and see it. */
#include "tool_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sandboxfs/cleanup.h"
#include "tool.h"

const char *tree_root;
bool tree_dir_times = true;
long tree_steps;

void tree_differs(const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "step %ld: ", tree_steps);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(1);
}

int tree_top(int i)
{
	return i < TOPS ? i : (i - TOPS) / SUBS;
}

void tree_name(int i, char name[NAME_SIZE])
{
	if (i < TOPS)
		snprintf(name, NAME_SIZE, "t%d", i);
	else
		snprintf(name, NAME_SIZE, "t%d/s%d", tree_top(i), (i - TOPS) % SUBS);
}

int tree_item(const char *name)
{
	int top, sub, n = sscanf(name, "t%d/s%d", &top, &sub);

	return n == 2 ? TOPS + top * SUBS + sub : top;
}

unsigned char tree_pattern(unsigned origin, size_t k)
{
	return (unsigned char)(origin * 31 + k * 7 + (k >> 8));
}

uint64_t tree_hash(const unsigned char *data, size_t size)
{
	uint64_t h = 0xcbf29ce484222325ull;

	for (size_t i = 0; i < size; i++)
		h = (h ^ data[i]) * 0x100000001b3ull;
	return h;
}

static void put(int fd, size_t size, unsigned origin)
{
	unsigned char buf[CONTENT_MAX];

	for (size_t k = 0; k < size; k++)
		buf[k] = tree_pattern(origin, k);
	if (write(fd, buf, size) != (ssize_t)size)
		tool_die("write");
}

static int write_file(const char *path, int flags, off_t at, size_t size, unsigned origin)
{
	_cleanup_fd_ int fd = open(path, O_WRONLY | O_CLOEXEC | flags, 0600);

	if (fd < 0 || (at && lseek(fd, at, SEEK_SET) < 0))
		return -1;
	put(fd, size, origin);
	return flags & O_CREAT ? fchmod(fd, 0644) : 0;
}

static int save_file(const char *path, size_t size, unsigned origin)
{
	char tmp[4096];

	snprintf(tmp, sizeof(tmp), "%s~", path);
	return write_file(tmp, O_CREAT | O_EXCL, 0, size, origin) < 0 ? -1 : rename(tmp, path);
}

static int set_mtime(const char *path, long seconds)
{
	const struct timespec t[2] = {{.tv_nsec = UTIME_OMIT},
	                              {.tv_sec = seconds, .tv_nsec = seconds % 1000}};

	return utimensat(AT_FDCWD, path, t, AT_SYMLINK_NOFOLLOW);
}

/* Another content, of the size and time of the former. */
static int write_unseen(const char *path, size_t size, unsigned origin)
{
	struct stat st;

	if (stat(path, &st) < 0 || write_file(path, 0, 0, size, origin) < 0)
		return -1;
	return utimensat(AT_FDCWD, path, (struct timespec[]){st.st_atim, st.st_mtim}, 0);
}

void tree_take(const char *line)
{
	char op, name[NAME_SIZE], path[2048], to[2048], other[NAME_SIZE];
	unsigned a, b;
	int r = -1;

	if (sscanf(line, "%c %15s %u %u", &op, name, &a, &b) != 4)
		tool_die("odd step %s", line);
	snprintf(path, sizeof(path), "%s/%s", tree_root, name);
	switch (op) {
	case 'w':
		r = write_file(path, O_CREAT | O_TRUNC, 0, a, b);
		break;
	case 's':
		r = save_file(path, a, b);
		break;
	case 'a':
		r = write_file(path, O_APPEND, 0, a, b);
		break;
	case 'p':
		r = write_file(path, 0, (off_t)a, 100, b);
		break;
	case 'e':
		r = write_unseen(path, a, b);
		break;
	case 't':
		r = truncate(path, (off_t)a);
		break;
	case 'c':
		r = chmod(path, a);
		break;
	case 'u':
		r = set_mtime(path, a);
		break;
	case 'x':
		r = unlink(path);
		break;
	case 'm':
		r = mkdir(path, 0700) < 0 ? -1 : chmod(path, 0755);
		break;
	case 'd':
		r = rmdir(path);
		break;
	case 'r':
		tree_name((int)a, other);
		snprintf(to, sizeof(to), "%s/%s", tree_root, other);
		r = rename(path, to);
		break;
	}
	if (r < 0)
		tree_differs("%s fails with %s", line, tool_errno_name(errno));
}

static size_t read_file(const char *path, unsigned char buf[CONTENT_MAX + 1])
{
	_cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t n = 0;
	ssize_t r;

	if (fd < 0)
		tree_differs("%s cannot be opened: %s", path, tool_errno_name(errno));
	while ((r = read(fd, buf + n, CONTENT_MAX + 1 - n)) > 0)
		n += (size_t)r;
	if (r < 0)
		tree_differs("%s cannot be read: %s", path, tool_errno_name(errno));
	return n;
}

static int64_t time_of(const struct stat *st)
{
	return st->st_mtim.tv_sec * INT64_C(1000000000) + st->st_mtim.tv_nsec;
}

void tree_look(int i, struct sight *ret)
{
	unsigned char buf[CONTENT_MAX + 1];
	char name[NAME_SIZE], path[2048];
	struct stat st;
	size_t n;

	*ret = (struct sight){.kind = '-'};
	tree_name(i, name);
	snprintf(path, sizeof(path), "%s/%s", tree_root, name);
	if (lstat(path, &st) < 0) {
		if (errno != ENOENT && errno != ENOTDIR)
			tree_differs("%s: lstat fails with %s", name, tool_errno_name(errno));
		return;
	}
	ret->kind = S_ISREG(st.st_mode) ? 'f' : S_ISDIR(st.st_mode) ? 'd' : '?';
	ret->mode = st.st_mode & 07777;
	ret->mtime = time_of(&st);
	if (ret->kind == 'd' && !tree_dir_times)
		ret->mtime = 0;
	if (ret->kind != 'f')
		return;
	ret->size = (uint64_t)st.st_size;
	n = read_file(path, buf);
	if (n != ret->size)
		tree_differs("%s: stat says %llu bytes, read gives %zu", name,
		             (unsigned long long)ret->size, n);
	ret->hash = tree_hash(buf, n);
}

/* Times are compared only where both have one. */
void tree_compare(int i, const struct sight *want, const struct sight *have, const char *who)
{
	char name[NAME_SIZE];

	tree_name(i, name);
	if (want->kind != have->kind || want->mode != have->mode || want->size != have->size ||
	    want->hash != have->hash || (want->mtime && have->mtime && want->mtime != have->mtime))
		tree_differs("%s: %s sees %c %o %llu %llx %lld, it is %c %o %llu %llx %lld", name,
		             who, have->kind, have->mode, (unsigned long long)have->size,
		             (unsigned long long)have->hash, (long long)have->mtime, want->kind,
		             want->mode, (unsigned long long)want->size,
		             (unsigned long long)want->hash, (long long)want->mtime);
}

void tree_print(FILE *out, int i, const struct sight *s)
{
	char name[NAME_SIZE];

	tree_name(i, name);
	fprintf(out, "k %s %c %u %llu %llu %lld\n", name, s->kind, s->mode,
	        (unsigned long long)s->size, (unsigned long long)s->hash, (long long)s->mtime);
}

int tree_scan(const char *line, struct sight *ret)
{
	unsigned long long size, hash;
	long long mtime;
	char name[NAME_SIZE];

	if (sscanf(line, "k %15s %c %u %llu %llu %lld", name, &ret->kind, &ret->mode, &size, &hash,
	           &mtime) != 6)
		tool_die("odd line %s", line);
	ret->size = size;
	ret->hash = hash;
	ret->mtime = mtime;
	return tree_item(name);
}
