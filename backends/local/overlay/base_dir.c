/*
 * A directory is known by what stat(2) tells of all that is in it; the sum does not depend on the
 * order in which names are read. A file that changed a moment ago may change again without showing
 * it (its times have the kernel's tick), so then the tick is awaited and everything looked at
 * again.
 */
#include "backends/local/overlay/base_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "backends/git/bare_config.h"
#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"

#define TICK_NS 20000000
#define LOOKS   5

struct look {
	const struct sbx_base_dir *d;
	struct sbx_levels levels;
	int fd; /* the top level's directory */
	atomic_bool *cancelled;
	uint64_t sum[2];
	uint64_t left_out;
	bool linked;
	int64_t newest_ns;
};

static uint64_t fnv(uint64_t h, const void *data, size_t len)
{
	const unsigned char *c = data;

	for (size_t i = 0; i < len; i++)
		h = (h ^ c[i]) * UINT64_C(0x100000001b3);
	return h;
}

static void add_entry(struct look *l, const char *name, const struct stat *st)
{
	const struct sbx_level *here = sbx_levels_top(&l->levels);
	const uint64_t what[] = {here->dev,
	                         here->ino,
	                         st->st_dev,
	                         st->st_ino,
	                         st->st_mode,
	                         (uint64_t)st->st_size,
	                         (uint64_t)sbx_timespec_ns(&st->st_mtim),
	                         (uint64_t)sbx_timespec_ns(&st->st_ctim)};

	for (int i = 0; i < 2; i++) {
		const uint64_t start =
		        i ? UINT64_C(0x9ae16a3b2f90404f) : UINT64_C(0xcbf29ce484222325);
		uint64_t h = fnv(fnv(start, what, sizeof(what)), name, strlen(name) + 1);

		l->sum[i] += h ^ (h >> 29);
	}
	if (sbx_timespec_ns(&st->st_ctim) > l->newest_ns)
		l->newest_ns = sbx_timespec_ns(&st->st_ctim);
}

static bool is_skipped(const struct look *l, const char *name)
{
	const struct sbx_level *here = sbx_levels_top((struct sbx_levels *)(uintptr_t)&l->levels);

	for (size_t i = 0; i < l->d->nskips; i++) {
		const struct sbx_skip *s = &l->d->skips[i];

		if (s->dev == here->dev && s->ino == here->ino && strcmp(s->name, name) == 0)
			return true;
	}
	return false;
}

/*
 * Whether ST, in the directory that is visited, is an object of git's, which nobody ever writes to:
 * that `git clone` links those of a local repository is not seen by anybody.
 */
static bool is_object(const struct look *l, const struct stat *st)
{
	const struct sbx_level *here = l->levels.items + l->levels.n - 1;
	const size_t len = l->levels.n > 2 ? strlen(here->name) : 0;

	return len && strcmp(here[-1].name, "objects") == 0 &&
	       (len == 2 || !strcmp(here->name, "pack")) && S_ISREG(st->st_mode) &&
	       !(st->st_mode & 0222);
}

static int visit(const char *name, unsigned char type, void *data)
{
	struct look *l = data;
	struct stat st;

	if (l->cancelled && atomic_load(l->cancelled))
		return -EINTR;
	if (is_skipped(l, name))
		return 0;
	if (fstatat(l->fd, name, &st, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) < 0)
		return errno == ENOENT ? 0 : -errno;
	add_entry(l, name, &st);
	if (!S_ISDIR(st.st_mode) && st.st_nlink > 1 && !is_object(l, &st))
		l->linked = true;
	if (type != DT_DIR && type != DT_REG && type != DT_LNK && type != DT_FIFO)
		l->left_out++;
	return type == DT_DIR ? sbx_strings_add(&sbx_levels_top(&l->levels)->todo, name) : 0;
}

static int enter(struct look *l, char *name)
{
	_cleanup_free_ char *owned = name;
	int fd = sbx_dir_open(l->fd, name), r;

	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	r = sbx_levels_push(&l->levels, sbx_steal_ptr(&owned), fd);
	if (r) {
		close(fd);
		return r;
	}
	close(l->fd);
	l->fd = fd;
	return sbx_dir_scan(l->fd, visit, l);
}

static int leave(struct look *l)
{
	int up = sbx_levels_up(&l->levels, l->fd);

	if (up < 0)
		return up;
	close(l->fd);
	l->fd = up;
	sbx_levels_pop(&l->levels);
	return 0;
}

static int walk(struct look *l)
{
	struct stat st;
	int r;

	l->fd = openat(l->d->source, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (l->fd < 0 || fstat(l->fd, &st) < 0)
		return -errno;
	r = sbx_levels_push(&l->levels, NULL, l->fd);
	if (!r) {
		add_entry(l, "", &(struct stat){.st_mode = st.st_mode, .st_mtim = st.st_mtim});
		r = sbx_dir_scan(l->fd, visit, l);
	}
	while (!r) {
		char *name = sbx_strings_take(&sbx_levels_top(&l->levels)->todo);

		if (name)
			r = enter(l, name);
		else if (l->levels.n > 1)
			r = leave(l);
		else
			break;
	}
	return r;
}

static int look_once(const struct sbx_base_dir *d, atomic_bool *cancelled, struct look *ret)
{
	int r;

	*ret = (struct look){.d = d, .fd = -1, .cancelled = cancelled};
	r = walk(ret);
	sbx_levels_release(&ret->levels);
	sbx_cleanup_fd(&ret->fd);
	return r;
}

/* Looks until all that is seen has been so for a tick. */
static int look(const struct sbx_base_dir *d, atomic_bool *cancelled, struct look *ret)
{
	const struct timespec tick = {.tv_nsec = TICK_NS};
	int r = 0;

	for (int i = 0; i < LOOKS && !r; i++) {
		const int64_t begun_ns = sbx_real_ns();

		r = look_once(d, cancelled, ret);
		if (r || ret->newest_ns < begun_ns - TICK_NS)
			return r;
		nanosleep(&tick, NULL);
	}
	return r;
}

static void make_key(const struct sbx_base_dir *d, const struct look *l, char key[SBX_BASE_KEY_MAX])
{
	/* The last: how it is copied. */
	const uint32_t owner[] = {d->owner.uid, d->owner.gid, 1};

	snprintf(key, SBX_BASE_KEY_MAX, "dir-%016" PRIx64 "%016" PRIx64,
	         fnv(l->sum[0], owner, sizeof(owner)), fnv(l->sum[1], owner, sizeof(owner)));
}

static int check_unchanged(const struct sbx_base_dir *d, atomic_bool *cancelled,
                           struct sbx_error *err)
{
	char key[SBX_BASE_KEY_MAX];
	struct look l;
	int r = look(d, cancelled, &l);

	if (r)
		return sbx_fail(err, -r, "cannot read the source: %s", strerror(-r));
	make_key(d, &l, key);
	return strcmp(key, d->key) ? sbx_fail(err, EAGAIN, "the source changes while it is copied")
	                           : 0;
}

static int fill(const struct sbx_base_recipe *recipe, int dir, int tree,
                struct sbx_base_facts *facts, atomic_bool *cancelled, struct sbx_error *err)
{
	const struct sbx_base_dir *d = recipe->data;
	_cleanup_fd_ int links = sbx_dir_make(dir, "links", 0700);
	struct sbx_copy copy = {.src = d->source,
	                        .dst = tree,
	                        .links = links,
	                        .skips = d->skips,
	                        .nskips = d->nskips,
	                        .rewrite = sbx_git_bare_copy,
	                        .owner = d->owner.uid != geteuid() ? &d->owner : NULL,
	                        .cancelled = cancelled};
	int r;

	if (links < 0)
		return sbx_fail(err, -links, "cannot write to the cache: %s", strerror(-links));
	r = sbx_tree_copy(&copy, err);
	if (!r)
		r = check_unchanged(d, cancelled, err);
	if (!r)
		r = sbx_tree_remove(dir, "links", err);
	if (r)
		return r;
	*facts = (struct sbx_base_facts){.files = copy.files, .bytes = copy.bytes};
	return 0;
}

int sbx_base_dir_look(struct sbx_base_dir *d, atomic_bool *cancelled, struct sbx_error *err)
{
	struct look l;
	int r = look(d, cancelled, &l);

	if (r == -EINTR)
		return sbx_fail(err, EINTR, "cancelled");
	if (r)
		return sbx_fail(err, -r, "cannot read the source: %s", strerror(-r));
	if (l.linked)
		return sbx_fail(err, EMLINK, "the source has hard links");
	make_key(d, &l, d->key);
	d->left_out = l.left_out;
	d->recipe = (struct sbx_base_recipe){
	        .key = d->key, .fill = fill, .data = d, .uid = d->owner.uid, .gid = d->owner.gid};
	return 0;
}
