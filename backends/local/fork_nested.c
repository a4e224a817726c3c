/*
 * A repository that the host made below the root of a sandbox stands in a store, under a name that is the identity of its placeholder
 * in the tree (fs/workspace/nested_git.h). The placeholder's copy has another, so the repository is copied to the name that is its.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/local/fork.h"
#include "backends/support/beneath.h"
#include "backends/support/tree.h"
#include "sandboxfs/cleanup.h"

struct moving {
	int from, to; /* the stores */
	int links;
	int root;
	atomic_bool *cancelled;
	struct sbx_error *err;
};

/* As fs/workspace/nested_git.c has it. */
static int key_of(int root, const char *path, char *ret, size_t size)
{
	_cleanup_fd_ int fd = sbx_beneath_open(root, path, O_PATH);
	struct statx st;

	if (fd < 0)
		return fd;
	if (statx(fd, "", AT_EMPTY_PATH, STATX_INO | STATX_BTIME, &st) < 0)
		return -errno;
	snprintf(ret, size, "%" PRIx64 "-%" PRIx64 "-%x", (uint64_t)st.stx_ino,
	         (uint64_t)st.stx_btime.tv_sec, st.stx_btime.tv_nsec);
	return 0;
}

/* Whatever NAME is, by way of a directory that holds nothing else. */
static int copy_dir(struct moving *m, const char *name, const char *as)
{
	_cleanup_fd_ int src = sbx_dir_open(m->from, name);
	_cleanup_fd_ int dst = src < 0 ? -1 : sbx_dir_make(m->to, as, 0700);
	struct sbx_copy c = {.src = src, .dst = dst, .links = m->links, .cancelled = m->cancelled};

	if (src < 0 || dst < 0)
		return src < 0 ? src : dst;
	return sbx_tree_copy(&c, m->err);
}

static int copy_text(struct moving *m, const char *name, const char *as)
{
	_cleanup_free_ char *text = NULL;
	int r = sbx_file_read(m->from, name, PATH_MAX, &text);

	return r ? r : sbx_file_create(m->to, as, text);
}

static int move(const char *name, unsigned char type, void *data)
{
	struct moving *m = data;
	size_t n = strlen(name), suffix = strlen(SBX_NESTED_AT);
	char key[64], path[PATH_MAX], old[NAME_MAX + 1], at[80];
	struct stat st;
	ssize_t len;
	int r;

	if (type != DT_LNK || n <= suffix || strcmp(name + n - suffix, SBX_NESTED_AT) != 0)
		return 0;
	len = readlinkat(m->from, name, path, sizeof(path) - 1);
	if (len <= 0)
		return 0;
	path[len] = '\0';
	snprintf(old, sizeof(old), "%.*s", (int)(n - suffix), name);
	/* What has lost its place, or is no more, does not come along. */
	if (key_of(m->root, path, key, sizeof(key)) < 0 ||
	    fstatat(m->from, old, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	r = S_ISDIR(st.st_mode) ? copy_dir(m, old, key) : copy_text(m, old, key);
	snprintf(at, sizeof(at), "%s%s", key, SBX_NESTED_AT);
	if (!r && symlinkat(path, m->to, at) < 0)
		r = -errno;
	return r;
}

static int move_all(struct moving *m, struct sbx_local *b, const char *to)
{
	int r;

	m->to = sbx_dir_make(b->state.nested, to, 0700);
	if (m->to < 0)
		return m->to;
	m->links = sbx_dir_make(b->state.trash, to, 0700);
	if (m->links < 0)
		return m->links;
	r = sbx_dir_scan(m->from, move, m);
	return r ? r : sbx_tree_remove(b->state.trash, to, m->err);
}

int sbx_local_fork_nested(struct sbx_local *b, int from, const char *to, int root,
                          atomic_bool *cancelled, struct sbx_error *err)
{
	struct sbx_error own = SBX_ERROR_INIT;
	struct moving m = {.from = from,
	                   .to = -1,
	                   .links = -1,
	                   .root = root,
	                   .cancelled = cancelled,
	                   .err = &own};
	int r = move_all(&m, b, to);

	sbx_cleanup_fd(&m.to);
	sbx_cleanup_fd(&m.links);
	if (!r)
		return 0;
	return own.code ? sbx_fail(err, -r, "%s", own.text)
	                : sbx_fail(err, -r, "cannot copy the repositories in the tree: %s",
	                           strerror(-r));
}
