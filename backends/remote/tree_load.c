/*
 * The attribute in which a file keeps what is known of it, so that a restart has what was fetched:
 *   STATE INO SIZE MTIME LOCAL-MTIME BOOT CTIME
 * STATE is A or H; INO, SIZE, MTIME and CTIME (ns) are the machine's. What has another size or time
 * by now was perhaps changed by an operation that was never answered: nothing is known of it, and a
 * manifest makes it anew. What an earlier run of the system wrote is absent, because a power cut
 * may have left holes. A directory that was listed has L.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>

#include "backends/remote/tree_impl.h"
#include "backends/support/beneath.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"

#define ATTRIBUTE "user.sandboxfs.of"

int remote_node_keep(struct remote_tree *t, int fd, enum remote_state state,
                     const struct remote_version *version, int64_t mtime_ns)
{
	char text[160];
	int n = snprintf(text, sizeof(text),
	                 "%c %" PRIu64 " %" PRIu64 " %" PRId64 " %" PRId64 " %x %" PRId64,
	                 state == REMOTE_HERE ? 'H' : 'A', version->ino, version->size,
	                 version->mtime_ns, mtime_ns, t->boot, version->ctime_ns);

	return fsetxattr(fd, ATTRIBUTE, text, (size_t)n, 0) < 0 ? -errno : 0;
}

int remote_dir_keep(int fd)
{
	struct remote_loosened l = {0};
	int r;

	do
		r = fsetxattr(fd, ATTRIBUTE, "L", 1, 0) < 0 ? -errno : 0;
	while (remote_loosen(&l, fd, r));
	remote_tighten(&l, fd);
	return r;
}

/* The attribute of what is open at FD, O_PATH; "" where there is none. */
static void read_kept(int fd, char *text, size_t size)
{
	char proc[40];
	ssize_t n;

	snprintf(proc, sizeof(proc), "/proc/self/fd/%d", fd);
	n = getxattr(proc, ATTRIBUTE, text, size - 1);
	text[n > 0 ? n : 0] = '\0';
}

static enum remote_state read_file(const struct remote_tree *t, int fd, const struct stat *st,
                                   struct remote_version *ret)
{
	char text[160], state = 'A';
	unsigned boot = 0;
	int64_t mtime_ns = 0;

	*ret = (struct remote_version){.size = (uint64_t)st->st_size};
	read_kept(fd, text, sizeof(text));
	if (sscanf(text, "%c %" SCNu64 " %" SCNu64 " %" SCNd64 " %" SCNd64 " %x %" SCNd64, &state,
	           &ret->ino, &ret->size, &ret->mtime_ns, &mtime_ns, &boot, &ret->ctime_ns) != 7 ||
	    ret->size != (uint64_t)st->st_size || mtime_ns != sbx_timespec_ns(&st->st_mtim)) {
		*ret = (struct remote_version){.size = (uint64_t)st->st_size};
		return REMOTE_ABSENT;
	}
	return state == 'H' && boot == t->boot ? REMOTE_HERE : REMOTE_ABSENT;
}

static bool read_dir(int fd)
{
	char text[4];

	read_kept(fd, text, sizeof(text));
	return strcmp(text, "L") == 0;
}

struct remote_node *remote_node_load(struct remote_tree *t, int fd, const struct stat *st,
                                     struct remote_node *parent, const char *name)
{
	struct remote_version version = {0};
	enum remote_state state = REMOTE_ABSENT;
	bool listed = false;
	struct remote_node *n;

	pthread_mutex_lock(&t->lock);
	n = remote_node_find(t, st->st_ino);
	if (!n || n->type != (st->st_mode & S_IFMT)) {
		pthread_mutex_unlock(&t->lock);
		if (S_ISREG(st->st_mode))
			state = read_file(t, fd, st, &version);
		else if (S_ISDIR(st->st_mode))
			listed = read_dir(fd);
		pthread_mutex_lock(&t->lock);
		n = remote_node_find(t, st->st_ino);
	}
	if (!n || n->type != (st->st_mode & S_IFMT)) {
		n = remote_node_put(t, st->st_ino, st->st_mode);
		if (n) {
			n->version = version;
			remote_node_set(t, n, state, state == REMOTE_HERE ? version.size : 0);
			if (n->dir)
				n->dir->listed = listed && !t->refreshed;
		}
	}
	if (n)
		remote_node_back(t, n);
	if (n && n->dir && parent && remote_node_hang(t, n, parent, name))
		n = NULL;
	pthread_mutex_unlock(&t->lock);
	if (!n)
		errno = ENOMEM;
	return n;
}

/* The directory that is the first LEN bytes of PATH, in the directory ABOVE. */
static struct remote_node *load_one(struct remote_tree *t, const char *path, size_t len,
                                    struct remote_node *above)
{
	_cleanup_free_ char *part = strndup(path, len);
	_cleanup_fd_ int fd = -1;
	const char *slash;
	struct stat st;

	if (!part)
		return NULL;
	fd = sbx_beneath_open(t->root, part, O_PATH | O_DIRECTORY);
	if (fd < 0) {
		errno = -fd;
		return NULL;
	}
	if (fstat(fd, &st) < 0)
		return NULL;
	slash = strrchr(part, '/');
	return remote_node_load(t, fd, &st, above, slash ? slash + 1 : part);
}

struct remote_node *remote_dir_load(struct remote_tree *t, const char *path)
{
	struct remote_node *n;

	pthread_mutex_lock(&t->lock);
	n = remote_dir_find(t, path);
	pthread_mutex_unlock(&t->lock);
	if (n)
		return n;
	n = t->top;
	for (size_t len = strcspn(path, "/"); n; len += 1 + strcspn(path + len + 1, "/")) {
		n = load_one(t, path, len, n);
		if (!path[len])
			break;
	}
	return n;
}
