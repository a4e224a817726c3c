/*
 * Repositories that the host made below the root of a sandbox, as commands see them: over the
 * placeholder in the tree, read only, and without the secrets of their configuration. What is shown
 * of that is a file beside them, named after the state of the one that it is made from.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/git/bare_config.h"
#include "backends/local/local_impl.h"
#include "backends/support/beneath.h"
#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/mitigations.h"

#define COVERS     256 /* two for each */
#define CONFIG_MAX ((size_t)1 << 20)
#define SHOWN      ".shown-"
#define MODULES    "modules"
#define DEEP       16 /* names of submodules may have slashes, and they submodules of their own */

struct covering {
	const struct sbx_local *b;
	const char *id;
	int dir;
	struct sbx_strings pairs;
	/* The repository that is looked at. */
	const char *key, *at;
	int repo;
};

static int add_pair(struct covering *c, const char *name, const char *at)
{
	_cleanup_free_ char *path = sbx_format("%s/nested/%s/%s", c->b->state.path, c->id, name);
	int r = path ? sbx_strings_add(&c->pairs, path) : -ENOMEM;

	return r ? r : sbx_strings_add(&c->pairs, at);
}

/* ---- configurations ---- */

struct stale {
	int dir;
	const char *prefix, *name;
};

static int drop_stale(const char *name, unsigned char type, void *data)
{
	const struct stale *s = data;

	(void)type;
	if (strncmp(name, s->prefix, strlen(s->prefix)) == 0 && strcmp(name, s->name) != 0)
		unlinkat(s->dir, name, 0);
	return 0;
}

/* A file that cannot be read is shown as empty. */
static int make_shown(const struct covering *c, const char *path, const struct stat *st,
                      const char *prefix, const char *name)
{
	const struct timespec times[2] = {st->st_atim, st->st_mtim};
	_cleanup_fd_ int dir = sbx_dir_open(c->dir, ".");
	_cleanup_free_ char *text = NULL, *bare = NULL, *temp = sbx_format("%s.new", name);
	struct stale stale = {.dir = dir, .prefix = prefix, .name = name};
	size_t len;
	int r = dir < 0 ? dir : temp ? 0 : -ENOMEM;

	if (r)
		return r;
	if (sbx_beneath_read(c->repo, path, CONFIG_MAX, &text, &len, NULL))
		text = strdup("");
	r = text ? sbx_git_bare_config(text, &bare) : -ENOMEM;
	if (!r)
		r = sbx_file_replace_soon(c->dir, name, temp, bare);
	/* It says what the other does, to who only looks. */
	if (!r && utimensat(c->dir, name, times, AT_SYMLINK_NOFOLLOW) < 0)
		r = -errno;
	if (!r)
		sbx_dir_scan(dir, drop_stale, &stale);
	return r;
}

static int add_config(struct covering *c, const char *path)
{
	_cleanup_fd_ int fd = sbx_beneath_open(c->repo, path, O_PATH);
	_cleanup_free_ char *prefix = NULL, *name = NULL, *at = NULL;
	struct stat st;
	int r = 0;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) ||
	    sbx_mitigation_off("bare_config"))
		return 0;
	/* An inode number may be another's before long: of that the path is part. */
	prefix = sbx_format("%s" SHOWN "%s-", c->key, path);
	for (char *p = prefix; p && *p; p++)
		if (*p == '/')
			*p = '+';
	name = prefix ? sbx_format("%s%llx-%llx-%lx-%llx", prefix, (unsigned long long)st.st_ino,
	                           (unsigned long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec,
	                           (unsigned long long)st.st_size)
	              : NULL;
	at = sbx_format("%s/%s", c->at, path);
	if (!name || !at)
		return -ENOMEM;
	if (faccessat(c->dir, name, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		r = make_shown(c, path, &st, prefix, name);
	return r ? r : add_pair(c, name, at);
}

struct below {
	struct covering *c;
	const char *path;
	int depth;
};

static int add_configs(struct covering *c, const char *path, int depth);

static int add_below(const char *name, unsigned char type, void *data)
{
	const struct below *b = data;
	_cleanup_free_ char *path = type == DT_DIR ? sbx_format("%s/%s", b->path, name) : NULL;

	if (type != DT_DIR)
		return 0;
	return path ? add_configs(b->c, path, b->depth + 1) : -ENOMEM;
}

static int scan(struct covering *c, const char *path, int depth)
{
	_cleanup_fd_ int dir = sbx_beneath_open(c->repo, path, O_RDONLY | O_DIRECTORY);
	struct below b = {.c = c, .path = path, .depth = depth};

	return dir < 0 ? 0 : depth > DEEP ? -ELOOP : sbx_dir_scan(dir, add_below, &b);
}

/* Of the repository at PATH, and of its submodules; else of those below. */
static int add_configs(struct covering *c, const char *path, int depth)
{
	static const char *const names[] = {"config", "config.worktree"};
	_cleanup_free_ char *head = sbx_format("%s/HEAD", path);
	_cleanup_free_ char *modules = sbx_format("%s/" MODULES, path);
	int r = head && modules ? 0 : -ENOMEM;

	if (r || faccessat(c->repo, head, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		return r ? r : scan(c, path, depth);
	for (size_t i = 0; i < SBX_ARRAY_SIZE(names) && !r; i++) {
		_cleanup_free_ char *config = strcmp(path, ".") == 0
		                                      ? strdup(names[i])
		                                      : sbx_format("%s/%s", path, names[i]);

		r = config ? add_config(c, config) : -ENOMEM;
	}
	return r ? r : scan(c, strncmp(modules, "./", 2) == 0 ? modules + 2 : modules, depth + 1);
}

/* ---- repositories ---- */

static int add_cover(const char *name, unsigned char type, void *data)
{
	struct covering *c = data;
	const size_t n = strlen(name), suffix = strlen(SBX_NESTED_PATH_SUFFIX);
	_cleanup_free_ char *key = NULL;
	_cleanup_fd_ int repo = -1;
	char at[PATH_MAX];
	ssize_t len;
	int r;

	(void)type;
	if (n <= suffix || strcmp(name + n - suffix, SBX_NESTED_PATH_SUFFIX) != 0 ||
	    c->pairs.n >= COVERS)
		return 0;
	len = readlinkat(c->dir, name, at, sizeof(at) - 1);
	if (len <= 0)
		return 0;
	at[len] = '\0';
	key = strndup(name, n - suffix);
	r = key ? add_pair(c, key, at) : -ENOMEM;
	repo = r ? -1 : sbx_dir_open(c->dir, key);
	if (repo < 0)
		return r;
	c->key = key;
	c->at = at;
	c->repo = repo;
	return add_configs(c, ".", 0);
}

int sbx_local_covers(const struct sbx_local *b, const char *id, struct sbx_strings *ret)
{
	_cleanup_fd_ int dir = sbx_dir_open(b->state.nested, id);
	_cleanup_fd_ int again = dir < 0 ? -1 : sbx_dir_open(dir, ".");
	struct covering c = {.b = b, .id = id, .dir = again};
	int r = dir == -ENOENT ? 0 : dir < 0 ? dir : sbx_dir_scan(dir, add_cover, &c);

	if (r) {
		sbx_strings_release(&c.pairs);
		return r;
	}
	*ret = c.pairs;
	return 0;
}
