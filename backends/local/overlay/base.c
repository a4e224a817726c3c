/*
 * A marker says of a base what can be looked at quickly: the identity and change time of the tree's root and
 * of the index. It also says in which boot the base was made and whether it has reached the disk since:
 * after a power failure a base that had not is made again.
 */
#include "backends/local/overlay/base.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "backends/local/overlay/base_impl.h"
#include "backends/support/fsutil.h"
#include "backends/support/tree.h"
#include "sandboxfs/cleanup.h"

#define LOCK_PAUSE_NS 2000000
#define MARKER_MAX    4096
#define USER_MAX      8192

/* --- markers -------------------------------------------------------------------------------------- */

void sbx_base_boot_id(char ret[SBX_BOOT_ID])
{
	_cleanup_file_ FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");

	if (!f || !fgets(ret, SBX_BOOT_ID, f))
		ret[0] = '\0';
	ret[strcspn(ret, "\n")] = '\0';
}

static int64_t ns_of(const struct timespec *ts)
{
	return (int64_t)ts->tv_sec * 1000000000 + ts->tv_nsec;
}

/* What is looked at, in words: the same words, the same base. */
static int look(int dir, char *ret, size_t size)
{
	struct stat tree, index;

	if (fstatat(dir, "tree", &tree, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(tree.st_mode))
		return -ENOENT;
	if (fstatat(dir, "index", &index, AT_SYMLINK_NOFOLLOW) < 0)
		index = (struct stat){0};
	snprintf(ret, size,
	         "tree %" PRIu64 " %u %u %" PRId64 " index %" PRIu64 " %" PRIu64 " %" PRId64,
	         (uint64_t)tree.st_ino, tree.st_uid, tree.st_gid, ns_of(&tree.st_ctim),
	         (uint64_t)index.st_ino, (uint64_t)index.st_size, ns_of(&index.st_ctim));
	return 0;
}

int sbx_base_marker_write(int dir, const struct sbx_base_marker *m)
{
	char seen[SBX_BASE_SEEN];
	_cleanup_free_ char *text = NULL;
	int r = look(dir, seen, sizeof(seen));

	if (r)
		return r;
	text = sbx_format("sandboxfs base 1\nfiles %" PRIu64 "\nbytes %" PRIu64 "\nborn %" PRId64
	                  "\nboot %s\nsynced %d\n%s\n",
	                  m->facts.files, m->facts.bytes, m->born_ns, *m->boot ? m->boot : "-",
	                  m->synced, seen);
	return text ? sbx_file_replace(dir, "marker", "marker.tmp", text) : -ENOMEM;
}

int sbx_base_marker_read(int dir, struct sbx_base_marker *ret)
{
	_cleanup_free_ char *text = NULL;
	char seen[SBX_BASE_SEEN], now[SBX_BASE_SEEN];
	struct sbx_base_marker m = {0};
	int r = sbx_file_read(dir, "marker", MARKER_MAX, &text), synced;

	if (r)
		return r;
	if (sscanf(text,
	           "sandboxfs base 1\nfiles %" SCNu64 "\nbytes %" SCNu64 "\nborn %" SCNd64
	           "\nboot %63s\nsynced %d\n%255[^\n]",
	           &m.facts.files, &m.facts.bytes, &m.born_ns, m.boot, &synced, seen) != 6)
		return -EINVAL;
	m.synced = synced;
	r = look(dir, now, sizeof(now));
	if (!r && strcmp(seen, now) != 0)
		r = -EINVAL;
	if (!r)
		*ret = m;
	return r;
}

static bool is_whole(const struct sbx_bases *bases, const struct sbx_base_marker *m)
{
	return m->synced || strcmp(m->boot, bases->boot) == 0;
}

/* --- locks and users ------------------------------------------------------------------------------- */

int sbx_base_lock(struct sbx_bases *bases, const char *key, bool wait, atomic_bool *cancelled)
{
	const struct timespec pause = {.tv_nsec = LOCK_PAUSE_NS};
	_cleanup_fd_ int fd =
	        openat(bases->locks, key, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd < 0)
		return -errno;
	/* Not a waiting flock: whoever waits for another's checkout can be told to give up. */
	while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		if (errno != EWOULDBLOCK && errno != EINTR)
			return -errno;
		if (!wait)
			return -EBUSY;
		if (cancelled && atomic_load(cancelled))
			return -EINTR;
		nanosleep(&pause, NULL);
	}
	return sbx_steal_fd(&fd);
}

static int add_user(struct sbx_bases *bases, const char *key, const char *id, const char *record)
{
	_cleanup_fd_ int dir = sbx_dir_make(bases->users, key, 0700);
	_cleanup_free_ char *temp = sbx_format("%s.tmp", id);

	if (dir < 0)
		return dir;
	return temp ? sbx_file_replace_soon(dir, id, temp, record) : -ENOMEM;
}

void sbx_base_release(struct sbx_bases *bases, const char *key, const char *id)
{
	_cleanup_fd_ int dir = sbx_dir_open(bases->users, key);

	if (dir >= 0)
		unlinkat(dir, id, 0);
}

struct census {
	int dir;
	struct sbx_names gone;
};

static int look_at_user(const char *name, unsigned char type, void *data)
{
	struct census *c = data;
	_cleanup_free_ char *record = NULL;

	(void)type;
	if (sbx_file_read(c->dir, name, USER_MAX, &record))
		return 1;
	if (faccessat(AT_FDCWD, record, F_OK, AT_SYMLINK_NOFOLLOW) == 0 || errno != ENOENT)
		return 1;
	return sbx_names_add(&c->gone, name);
}

bool sbx_base_is_used(struct sbx_bases *bases, const char *key)
{
	_cleanup_fd_ int dir = sbx_dir_open(bases->users, key);
	struct census c = {.dir = dir};
	int r = dir == -ENOENT ? 0 : dir < 0 ? dir : sbx_dir_scan(dir, look_at_user, &c);

	for (size_t i = 0; i < c.gone.n; i++)
		unlinkat(dir, c.gone.items[i], 0);
	sbx_names_release(&c.gone);
	return r != 0;
}

/* --- making and taking away ------------------------------------------------------------------------- */

int sbx_base_discard(struct sbx_bases *bases, const char *key)
{
	_cleanup_free_ char *name = sbx_format("%s.%d.%" PRIu64, key, (int)getpid(),
	                                       (uint64_t)atomic_fetch_add(&bases->serial, 1));

	if (!name)
		return -ENOMEM;
	if (renameat(bases->bases, key, bases->tmp, name) < 0)
		return errno == ENOENT ? 0 : -errno;
	/* Trees that stand on it are still to be read; it goes when the last of them has. */
	if (!sbx_base_is_used(bases, key)) {
		unlinkat(bases->users, key, AT_REMOVEDIR);
		sbx_tree_remove(bases->tmp, name, NULL);
	}
	return 0;
}

/* In an empty directory DIR. */
static int make_in(struct sbx_bases *bases, const struct sbx_base_recipe *recipe, int dir,
                   atomic_bool *cancelled, struct sbx_error *err)
{
	struct sbx_base_marker m = {0};
	_cleanup_fd_ int tree = sbx_dir_make(dir, "tree", 0755);
	struct timespec now;
	int r;

	if (tree < 0 || fchmod(tree, 0755) < 0)
		return sbx_fail(err, errno, "cannot make a base: %s", strerror(errno));
	if (recipe->uid != geteuid() && fchown(tree, recipe->uid, recipe->gid) < 0)
		return sbx_fail(err, errno, "cannot make a base: %s", strerror(errno));
	r = recipe->fill(recipe, dir, tree, &m.facts, cancelled, err);
	if (r)
		return r;
	clock_gettime(CLOCK_REALTIME, &now);
	m.born_ns = ns_of(&now);
	snprintf(m.boot, sizeof(m.boot), "%s", bases->boot);
	r = sbx_base_marker_write(dir, &m);
	return r ? sbx_fail(err, -r, "cannot make a base: %s", strerror(-r)) : 0;
}

static int make(struct sbx_bases *bases, const struct sbx_base_recipe *recipe,
                atomic_bool *cancelled, struct sbx_error *err)
{
	_cleanup_free_ char *name = sbx_format("%s.%d.%" PRIu64, recipe->key, (int)getpid(),
	                                       (uint64_t)atomic_fetch_add(&bases->serial, 1));
	_cleanup_fd_ int dir = name ? sbx_dir_make(bases->tmp, name, 0700) : -ENOMEM;
	int r;

	if (dir < 0)
		return sbx_fail(err, -dir, "cannot write to the cache: %s", strerror(-dir));
	r = make_in(bases, recipe, dir, cancelled, err);
	if (!r && renameat(bases->tmp, name, bases->bases, recipe->key) < 0)
		r = sbx_fail(err, errno, "cannot keep the base: %s", strerror(errno));
	if (r)
		sbx_tree_remove(bases->tmp, name, NULL);
	return r;
}

/* The base, looked at. ENOENT, EINVAL: there is none that could be used. */
static int open_base(struct sbx_bases *bases, const char *key, struct sbx_base *ret)
{
	_cleanup_fd_ int dir = sbx_dir_open(bases->bases, key);
	struct sbx_base_marker m;
	int r = dir < 0 ? dir : sbx_base_marker_read(dir, &m);

	if (!r && !is_whole(bases, &m))
		r = -EINVAL;
	if (r)
		return r;
	utimensat(dir, "marker", NULL, 0);
	*ret = (struct sbx_base){.dir = sbx_steal_fd(&dir), .born_ns = m.born_ns};
	return 0;
}

int64_t sbx_base_born(struct sbx_bases *bases, const char *key)
{
	_cleanup_fd_ int dir = sbx_dir_open(bases->bases, key);
	struct sbx_base_marker m;

	return dir < 0 || sbx_base_marker_read(dir, &m) < 0 ? 0 : m.born_ns;
}

/* It may be as good as ever, and of a directory that has changed since it is the last copy. */
static bool is_short(int r)
{
	return r == -EMFILE || r == -ENFILE || r == -ENOMEM;
}

static int open_or_make(struct sbx_bases *bases, const struct sbx_base_recipe *recipe,
                        atomic_bool *cancelled, struct sbx_base *ret, struct sbx_error *err)
{
	int r = open_base(bases, recipe->key, ret);

	if (!r)
		return 0;
	if (is_short(r))
		return sbx_fail(err, -r, "the cache cannot be read: %s", strerror(-r));
	if (!recipe->fill)
		return sbx_fail(err, ENOENT, "the base %s is not in the cache", recipe->key);
	r = sbx_base_discard(bases, recipe->key);
	if (r)
		return sbx_fail(err, -r, "cannot clear the cache: %s", strerror(-r));
	r = make(bases, recipe, cancelled, err);
	if (r)
		return r;
	r = open_base(bases, recipe->key, ret);
	if (r)
		return sbx_fail(err, -r, "the base cannot be used: %s", strerror(-r));
	sbx_bases_wake(bases);
	return 0;
}

int sbx_base_acquire(struct sbx_bases *bases, const struct sbx_base_recipe *recipe, const char *id,
                     const char *record, atomic_bool *cancelled, struct sbx_base *ret,
                     struct sbx_error *err)
{
	_cleanup_fd_ int lock = sbx_base_lock(bases, recipe->key, true, cancelled);
	struct sbx_base base;
	int r;

	if (lock == -EINTR)
		return sbx_fail(err, EINTR, "cancelled");
	if (lock < 0)
		return sbx_fail(err, -lock, "cannot lock the cache: %s", strerror(-lock));
	r = open_or_make(bases, recipe, cancelled, &base, err);
	if (!r && id) {
		r = add_user(bases, recipe->key, id, record);
		if (r) {
			close(base.dir);
			return sbx_fail(err, -r, "cannot write to the cache: %s", strerror(-r));
		}
	}
	if (!r)
		*ret = base;
	return r;
}
