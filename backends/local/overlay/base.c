/*
 * A marker says of a base what can be looked at quickly: the identity and change time of the tree's
 * root and of the index. It also says in which boot the base was made and whether it has reached
 * the disk since: after a power failure a base that had not is made again.
 *
 * A thread does what nobody waits for: preparing the base that will be wanted, seeing that new ones
 * reach the disk, dropping old ones. And it makes a copy of the index before it is wanted, because
 * of a large base that takes longer than the rest of a create does: as a file without a name, which
 * gets one when it is taken, and goes with the daemon when it is not.
 */
#include "backends/local/overlay/base.h"

#include <assert.h>
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
#include "sandboxfs/clock.h"
#include "sandboxfs/grow.h"
#include "sandboxfs/own_dir.h"
#include "sandboxfs/thread.h"

#define SBX_BASE_SEEN 256
#define LOCK_PAUSE_NS 2000000
#define MARKER_MAX    4096
#define USER_MAX      8192

/* --- markers
 * -------------------------------------------------------------------------------------- */

struct sbx_base_marker {
	struct sbx_base_facts facts;
	int64_t born_ns;
	char boot[SBX_BOOT_ID]; /* in which it was made */
	bool synced;            /* it has reached the disk */
};

/* Has the keeper look after the cache. */
static void bases_wake(struct sbx_bases *bases)
{
	pthread_mutex_lock(&bases->lock);
	bases->dirty = true;
	pthread_cond_signal(&bases->more);
	pthread_mutex_unlock(&bases->lock);
}

static void read_boot_id(char ret[SBX_BOOT_ID])
{
	_cleanup_file_ FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");

	if (!f || !fgets(ret, SBX_BOOT_ID, f))
		ret[0] = '\0';
	ret[strcspn(ret, "\n")] = '\0';
}

/* Describes in words what decides about a base: the same words, the same base. */
static int look(int dir, char *ret, size_t size)
{
	struct stat tree, index;

	if (fstatat(dir, "tree", &tree, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(tree.st_mode))
		return -ENOENT;
	if (fstatat(dir, "index", &index, AT_SYMLINK_NOFOLLOW) < 0)
		index = (struct stat){0};
	snprintf(ret, size,
	         "tree %" PRIu64 " %u %u %" PRId64 " index %" PRIu64 " %" PRIu64 " %" PRId64,
	         (uint64_t)tree.st_ino, tree.st_uid, tree.st_gid, sbx_timespec_ns(&tree.st_ctim),
	         (uint64_t)index.st_ino, (uint64_t)index.st_size, sbx_timespec_ns(&index.st_ctim));
	return 0;
}

static int marker_write(int dir, const struct sbx_base_marker *m)
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

static int marker_read(int dir, struct sbx_base_marker *ret)
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

/* --- locks and users
 * ------------------------------------------------------------------------------- */

/* A descriptor to close; -EBUSY: taken, and WAIT is false; -EINTR cancelled. */
static int lock_base(struct sbx_bases *bases, const char *key, bool wait, atomic_bool *cancelled)
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
	struct sbx_strings gone;
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
	return sbx_strings_add(&c->gone, name);
}

/* Under the lock of KEY. Forgets users that are no more. */
static bool is_used(struct sbx_bases *bases, const char *key)
{
	_cleanup_fd_ int dir = sbx_dir_open(bases->users, key);
	struct census c = {.dir = dir};
	int r = dir == -ENOENT ? 0 : dir < 0 ? dir : sbx_dir_scan(dir, look_at_user, &c);

	for (size_t i = 0; i < c.gone.n; i++)
		unlinkat(dir, c.gone.items[i], 0);
	sbx_strings_release(&c.gone);
	return r != 0;
}

/* --- making and taking away
 * ------------------------------------------------------------------------- */

/* Under the lock of KEY. Out of sight at once, then removed unless it is in use. */
static int discard(struct sbx_bases *bases, const char *key)
{
	_cleanup_free_ char *name = sbx_format("%s.%d.%" PRIu64, key, (int)getpid(),
	                                       (uint64_t)atomic_fetch_add(&bases->serial, 1));

	if (!name)
		return -ENOMEM;
	if (renameat(bases->bases, key, bases->tmp, name) < 0)
		return errno == ENOENT ? 0 : -errno;
	/* Trees that stand on it are still to be read; it goes when the last of them has. */
	if (!is_used(bases, key)) {
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
	int r;

	if (tree < 0 || fchmod(tree, 0755) < 0)
		return sbx_fail(err, errno, "cannot make a base: %s", strerror(errno));
	if (recipe->uid != geteuid() && fchown(tree, recipe->uid, recipe->gid) < 0)
		return sbx_fail(err, errno, "cannot make a base: %s", strerror(errno));
	r = recipe->fill(recipe, dir, tree, &m.facts, cancelled, err);
	if (r)
		return r;
	m.born_ns = sbx_real_ns();
	snprintf(m.boot, sizeof(m.boot), "%s", bases->boot);
	r = marker_write(dir, &m);
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
	int r = dir < 0 ? dir : marker_read(dir, &m);

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

	return dir < 0 || marker_read(dir, &m) < 0 ? 0 : m.born_ns;
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
	r = discard(bases, recipe->key);
	if (r)
		return sbx_fail(err, -r, "cannot clear the cache: %s", strerror(-r));
	r = make(bases, recipe, cancelled, err);
	if (r)
		return r;
	r = open_base(bases, recipe->key, ret);
	if (r)
		return sbx_fail(err, -r, "the base cannot be used: %s", strerror(-r));
	bases_wake(bases);
	return 0;
}

int sbx_base_acquire(struct sbx_bases *bases, const struct sbx_base_recipe *recipe, const char *id,
                     const char *record, atomic_bool *cancelled, struct sbx_base *ret,
                     struct sbx_error *err)
{
	_cleanup_fd_ int lock = lock_base(bases, recipe->key, true, cancelled);
	struct sbx_base base;
	int r;

	assert(!id == !record);
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

#define SMALL    ((off_t)256 << 10) /* is copied as quickly */
#define AFTER_MS 50                 /* the create that asks is over by then */

static bool is_of(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
	       a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

/* A copy of what ST tells, or -1; the caller's. */
static int take(struct sbx_bases *bases, const struct stat *st)
{
	int fd = -1;

	pthread_mutex_lock(&bases->lock);
	if (bases->spare.fd >= 0 && is_of(&bases->spare.of, st))
		fd = sbx_steal_fd(&bases->spare.fd);
	pthread_mutex_unlock(&bases->lock);
	return fd;
}

static int give_name(int fd, const char *path)
{
	_cleanup_free_ char *proc = sbx_format("/proc/self/fd/%d", fd);

	if (!proc)
		return -ENOMEM;
	return linkat(AT_FDCWD, proc, AT_FDCWD, path, AT_SYMLINK_FOLLOW) < 0 ? -errno : 0;
}

static int copy(int in, const char *path)
{
	_cleanup_fd_ int out =
	        open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);

	return out < 0 ? -errno : sbx_file_copy(in, out);
}

/* Has another made of IN. */
static void want(struct sbx_bases *bases, int in, const char *near)
{
	_cleanup_fd_ int at = open(near, O_PATH | O_DIRECTORY | O_CLOEXEC);
	_cleanup_fd_ int from = fcntl(in, F_DUPFD_CLOEXEC, 0);

	if (at < 0 || from < 0)
		return;
	pthread_mutex_lock(&bases->lock);
	sbx_cleanup_fd(&bases->spare.from);
	sbx_cleanup_fd(&bases->spare.at);
	bases->spare.from = sbx_steal_fd(&from);
	bases->spare.at = sbx_steal_fd(&at);
	bases->spare.due_ms = sbx_real_ms() + AFTER_MS;
	pthread_cond_signal(&bases->more);
	pthread_mutex_unlock(&bases->lock);
}

int sbx_base_copy_index(struct sbx_bases *bases, int base, const char *near, const char *path)
{
	_cleanup_fd_ int in = openat(base, "index", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	_cleanup_fd_ int spare = -1;
	struct stat st;
	int r;

	if (in < 0 || fstat(in, &st) < 0)
		return -errno;
	spare = take(bases, &st);
	r = spare < 0 ? -ENOENT : give_name(spare, path);
	/* What cannot be used once is not made again. */
	if (r && (spare >= 0 || st.st_size < SMALL))
		return copy(in, path);
	if (r)
		r = copy(in, path);
	if (!r)
		want(bases, in, near);
	return r;
}

/* Under bases->lock, which it gives up while it copies. */
static void make_spare(struct sbx_bases *bases)
{
	_cleanup_fd_ int from = sbx_steal_fd(&bases->spare.from);
	_cleanup_fd_ int at = sbx_steal_fd(&bases->spare.at);
	_cleanup_fd_ int fd = -1;
	struct stat st;

	assert(from >= 0 && at >= 0);
	pthread_mutex_unlock(&bases->lock);
	fd = openat(at, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0644);
	if (fd >= 0 &&
	    (fstat(from, &st) < 0 || lseek(from, 0, SEEK_SET) < 0 || sbx_file_copy(from, fd) < 0))
		sbx_cleanup_fd(&fd);
	pthread_mutex_lock(&bases->lock);
	if (fd < 0)
		return;
	sbx_cleanup_fd(&bases->spare.fd);
	bases->spare.fd = sbx_steal_fd(&fd);
	bases->spare.of = st;
}

static void spare_release(struct sbx_bases *bases)
{
	sbx_cleanup_fd(&bases->spare.fd);
	sbx_cleanup_fd(&bases->spare.from);
	sbx_cleanup_fd(&bases->spare.at);
}

#define SYNC_AFTER_MS 5000 /* without news */

/* --- trimming
 * -------------------------------------------------------------------------------------- */

struct candidate {
	char key[SBX_BASE_KEY_MAX];
	uint64_t bytes;
	struct timespec used;
};

struct survey {
	struct sbx_bases *bases;
	struct candidate *items;
	size_t n, cap;
	uint64_t bytes;
};

static int survey_base(const char *name, unsigned char type, void *data)
{
	struct survey *s = data;
	_cleanup_fd_ int dir = sbx_dir_open(s->bases->bases, name);
	struct sbx_base_marker m = {0};
	struct candidate *c;
	struct stat st;

	(void)type;
	if (dir < 0 || strlen(name) >= sizeof(c->key))
		return 0;
	/* One that is damaged counts as never used. */
	if (marker_read(dir, &m) || fstatat(dir, "marker", &st, AT_SYMLINK_NOFOLLOW) < 0)
		st = (struct stat){0};
	if (SBX_GROW(s->items, s->n, s->cap, 16))
		return -ENOMEM;
	c = &s->items[s->n++];
	*c = (struct candidate){.bytes = m.facts.bytes, .used = st.st_mtim};
	memcpy(c->key, name, strlen(name) + 1);
	s->bytes += c->bytes;
	return 0;
}

static int by_use(const void *a, const void *b)
{
	const struct candidate *x = a, *y = b;

	if (x->used.tv_sec != y->used.tv_sec)
		return x->used.tv_sec < y->used.tv_sec ? -1 : 1;
	return (x->used.tv_nsec > y->used.tv_nsec) - (x->used.tv_nsec < y->used.tv_nsec);
}

static void drop(struct survey *s, const struct candidate *c)
{
	_cleanup_fd_ int lock = lock_base(s->bases, c->key, false, NULL);

	if (lock >= 0 && !is_used(s->bases, c->key) && discard(s->bases, c->key) == 0)
		s->bytes -= c->bytes;
}

void sbx_bases_trim(struct sbx_bases *bases)
{
	/* One at a time: two that count the same bases would drop twice as much. */
	_cleanup_fd_ int lock = lock_base(bases, "trim", true, &bases->cancelled);
	const uint64_t limit = bases->limit_mb << 20;
	struct survey s = {.bases = bases};

	if (lock >= 0 && sbx_dir_scan(bases->bases, survey_base, &s) == 0) {
		if (s.n)
			qsort(s.items, s.n, sizeof(*s.items), by_use);
		for (size_t i = 0; i < s.n && s.bytes > limit; i++)
			drop(&s, &s.items[i]);
	}
	free(s.items);
}

/* --- reaching the disk
 * -------------------------------------------------------------------------------- */

static void mark_synced(struct sbx_bases *bases, const char *key)
{
	_cleanup_fd_ int lock = lock_base(bases, key, true, &bases->cancelled);
	_cleanup_fd_ int dir = lock < 0 ? -1 : sbx_dir_open(bases->bases, key);
	struct sbx_base_marker m;

	if (dir < 0 || marker_read(dir, &m) || m.synced)
		return;
	m.synced = true;
	marker_write(dir, &m);
}

int sbx_base_sync(struct sbx_bases *bases, const char *key)
{
	_cleanup_fd_ int dir = sbx_dir_open(bases->bases, key);
	struct sbx_base_marker m;

	if (dir < 0)
		return dir;
	if (marker_read(dir, &m) == 0 && !m.synced) {
		if (syncfs(dir) < 0)
			return -errno;
		mark_synced(bases, key);
	}
	return fsync(dir) < 0 || fsync(bases->bases) < 0 ? -errno : 0;
}

void sbx_base_sync_user(struct sbx_bases *bases, const char *key, const char *id)
{
	_cleanup_fd_ int dir = sbx_dir_open(bases->users, key);
	_cleanup_fd_ int fd =
	        dir < 0 ? -1 : openat(dir, id, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

	if (fd >= 0)
		sbx_write_out(fd);
}

static int find_unsynced(const char *name, unsigned char type, void *data)
{
	struct survey *s = data;
	_cleanup_fd_ int dir = sbx_dir_open(s->bases->bases, name);
	struct sbx_base_marker m;

	(void)type;
	if (dir < 0 || strlen(name) >= SBX_BASE_KEY_MAX || marker_read(dir, &m) || m.synced ||
	    strcmp(m.boot, s->bases->boot) != 0)
		return 0;
	return survey_base(name, type, data);
}

static void sync_new(struct sbx_bases *bases)
{
	struct survey s = {.bases = bases};

	if (sbx_dir_scan(bases->bases, find_unsynced, &s) == 0 && s.n && syncfs(bases->dir) == 0)
		for (size_t i = 0; i < s.n; i++)
			mark_synced(bases, s.items[i].key);
	free(s.items);
}

/* --- the thread
 * --------------------------------------------------------------------------------------- */

/*
 * Removes what a killed daemon left half made, and bases that were replaced while they were in
 * use.
 */
static int clear_stale(const char *name, unsigned char type, void *data)
{
	struct sbx_bases *bases = data;
	const char *dot = strchr(name, '.');
	_cleanup_free_ char *key = dot ? strndup(name, (size_t)(dot - name)) : NULL;
	_cleanup_fd_ int lock = key ? lock_base(bases, key, false, NULL) : -1;

	(void)type;
	if (lock >= 0 && !is_used(bases, key))
		sbx_tree_remove(bases->tmp, name, NULL);
	return 0;
}

static int replace(struct sbx_bases *bases, const char *key)
{
	_cleanup_fd_ int lock = lock_base(bases, key, true, &bases->cancelled);

	return lock < 0 ? lock : discard(bases, key);
}

/* A use checks only what is quick to look at; here each file is checked. */
static void make_wanted(struct sbx_bases *bases, struct sbx_base_recipe *wanted,
                        void (*free_wanted)(struct sbx_base_recipe *recipe))
{
	struct sbx_base base;
	bool damaged = false;

	if (sbx_base_acquire(bases, wanted, NULL, NULL, &bases->cancelled, &base, NULL) == 0) {
		damaged =
		        wanted->check && wanted->check(wanted, base.dir, &bases->cancelled) == -EIO;
		close(base.dir);
	}
	if (damaged && replace(bases, wanted->key) == 0 &&
	    sbx_base_acquire(bases, wanted, NULL, NULL, &bases->cancelled, &base, NULL) == 0)
		close(base.dir);
	free_wanted(wanted);
}

static void look_after(struct sbx_bases *bases)
{
	sbx_dir_scan(bases->tmp, clear_stale, bases);
	sbx_bases_trim(bases);
}

/* Until there is news, or it is time for what waits for none. */
static void await_more(struct sbx_bases *bases)
{
	int64_t until = bases->sync_ms;
	struct timespec ts;

	if (bases->spare.from >= 0 && (!until || bases->spare.due_ms < until))
		until = bases->spare.due_ms;
	ts = (struct timespec){.tv_sec = until / 1000, .tv_nsec = until % 1000 * 1000000};
	if (until)
		pthread_cond_timedwait(&bases->more, &bases->lock, &ts);
	else
		pthread_cond_wait(&bases->more, &bases->lock);
}

/* One thing that is to be done, without the lock. */
static void keep_one(struct sbx_bases *bases)
{
	struct sbx_base_recipe *wanted = bases->wanted;
	void (*free_wanted)(struct sbx_base_recipe * recipe) = bases->free_wanted;
	int64_t now = sbx_real_ms();
	bool dirty = bases->dirty, sync = bases->sync_ms && bases->sync_ms <= now;

	if (!wanted && !dirty && bases->spare.from >= 0 && bases->spare.due_ms <= now) {
		make_spare(bases);
		return;
	}
	if (!wanted && !dirty && !sync) {
		await_more(bases);
		return;
	}
	bases->wanted = NULL;
	bases->dirty = wanted ? dirty : false;
	bases->sync_ms = wanted || dirty ? now + SYNC_AFTER_MS : 0;
	pthread_mutex_unlock(&bases->lock);
	if (wanted)
		make_wanted(bases, wanted, free_wanted);
	else if (dirty)
		look_after(bases);
	else
		sync_new(bases);
	pthread_mutex_lock(&bases->lock);
}

static void *keep(void *data)
{
	struct sbx_bases *bases = data;

	pthread_mutex_lock(&bases->lock);
	while (!bases->ending)
		keep_one(bases);
	pthread_mutex_unlock(&bases->lock);
	return NULL;
}

void sbx_bases_prepare(struct sbx_bases *bases, struct sbx_base_recipe *recipe,
                       void (*free_recipe)(struct sbx_base_recipe *recipe))
{
	struct sbx_base_recipe *before;

	assert(free_recipe);
	pthread_mutex_lock(&bases->lock);
	before = bases->wanted;
	bases->wanted = recipe;
	bases->free_wanted = free_recipe;
	pthread_cond_signal(&bases->more);
	pthread_mutex_unlock(&bases->lock);
	if (before)
		free_recipe(before);
}

/* --- opening
 * ------------------------------------------------------------------------------------------ */

static int open_mounters(struct sbx_bases *b)
{
	const struct {
		const char *name;
		int *fd;
	} rooms[] = {
	        {"bases", &b->bases},
	        {"users", &b->users},
	        {"locks", &b->locks},
	        {"tmp", &b->tmp},
	};

	for (size_t i = 0; i < SBX_ARRAY_SIZE(rooms); i++) {
		*rooms[i].fd = sbx_dir_make(b->dir, rooms[i].name, 0700);
		if (*rooms[i].fd < 0)
			return *rooms[i].fd;
	}
	return 0;
}

static int start_keeper(struct sbx_bases *b)
{
	int r = sbx_thread_start(&b->keeper, keep, b);

	b->keeping = r == 0;
	return r;
}

int sbx_bases_open(const char *path, uint64_t limit_mb, struct sbx_bases **ret,
                   struct sbx_error *err)
{
	struct sbx_bases *b = calloc(1, sizeof(*b));
	int r;

	if (!b)
		return sbx_no_memory(err);
	pthread_mutex_init(&b->lock, NULL);
	pthread_cond_init(&b->more, NULL);
	b->limit_mb = limit_mb;
	b->dir = b->bases = b->users = b->locks = b->tmp = -1;
	b->spare.fd = b->spare.from = b->spare.at = -1;
	b->dirty = true;
	read_boot_id(b->boot);
	b->path = sbx_format("%s/bases", path);
	r = b->dir = sbx_dir_own(path, "cache", err);
	if (r >= 0) {
		r = sbx_dir_hold(b->dir);
		if (!r)
			r = b->path ? open_mounters(b) : -ENOMEM;
		if (!r)
			r = start_keeper(b);
		if (r)
			sbx_fail(err, -r, "cannot use the cache directory %s: %s", path,
			         strerror(-r));
	}
	if (r < 0) {
		sbx_bases_close(b);
		return r;
	}
	*ret = b;
	return 0;
}

void sbx_bases_close(struct sbx_bases *b)
{
	if (!b)
		return;
	if (b->keeping) {
		pthread_mutex_lock(&b->lock);
		b->ending = true;
		atomic_store(&b->cancelled, true);
		pthread_cond_signal(&b->more);
		pthread_mutex_unlock(&b->lock);
		pthread_join(b->keeper, NULL);
	}
	if (b->wanted)
		b->free_wanted(b->wanted);
	spare_release(b);
	sbx_base_index_put(b->index);
	sbx_cleanup_fd(&b->bases);
	sbx_cleanup_fd(&b->users);
	sbx_cleanup_fd(&b->locks);
	sbx_cleanup_fd(&b->tmp);
	sbx_cleanup_fd(&b->dir);
	pthread_cond_destroy(&b->more);
	pthread_mutex_destroy(&b->lock);
	free(b->path);
	free(b);
}

const char *sbx_bases_path(const struct sbx_bases *bases)
{
	return bases->path;
}
