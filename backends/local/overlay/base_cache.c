/*
 * Opening the cache, and the thread that does what nobody waits for: preparing the base that will be wanted, seeing
 * that new ones reach the disk, dropping old ones.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "backends/local/overlay/base_impl.h"
#include "backends/support/fsutil.h"
#include "backends/support/tree.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/grow.h"
#include "sandboxfs/own_dir.h"
#include "sandboxfs/thread.h"

#define SYNC_AFTER_MS 5000 /* without news */

/* --- trimming -------------------------------------------------------------------------------------- */

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
	if (sbx_base_marker_read(dir, &m) || fstatat(dir, "marker", &st, AT_SYMLINK_NOFOLLOW) < 0)
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
	_cleanup_fd_ int lock = sbx_base_lock(s->bases, c->key, false, NULL);

	if (lock >= 0 && !sbx_base_is_used(s->bases, c->key) &&
	    sbx_base_discard(s->bases, c->key) == 0)
		s->bytes -= c->bytes;
}

void sbx_bases_trim(struct sbx_bases *bases)
{
	/* One at a time: two that count the same bases would drop twice as much. */
	_cleanup_fd_ int lock = sbx_base_lock(bases, "trim", true, &bases->cancelled);
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

/* --- reaching the disk -------------------------------------------------------------------------------- */

static void mark_synced(struct sbx_bases *bases, const char *key)
{
	_cleanup_fd_ int lock = sbx_base_lock(bases, key, true, &bases->cancelled);
	_cleanup_fd_ int dir = lock < 0 ? -1 : sbx_dir_open(bases->bases, key);
	struct sbx_base_marker m;

	if (dir < 0 || sbx_base_marker_read(dir, &m) || m.synced)
		return;
	m.synced = true;
	sbx_base_marker_write(dir, &m);
}

int sbx_base_sync(struct sbx_bases *bases, const char *key)
{
	_cleanup_fd_ int dir = sbx_dir_open(bases->bases, key);
	struct sbx_base_marker m;

	if (dir < 0)
		return dir;
	if (sbx_base_marker_read(dir, &m) == 0 && !m.synced) {
		if (syncfs(dir) < 0)
			return -errno;
		mark_synced(bases, key);
	}
	return fsync(dir) < 0 || fsync(bases->bases) < 0 ? -errno : 0;
}

void sbx_base_settle_user(struct sbx_bases *bases, const char *key, const char *id)
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
	if (dir < 0 || strlen(name) >= SBX_BASE_KEY_MAX || sbx_base_marker_read(dir, &m) ||
	    m.synced || strcmp(m.boot, s->bases->boot) != 0)
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

/* --- the thread --------------------------------------------------------------------------------------- */

/* What a daemon that was killed left half made, and what was replaced while it was in use. */
static int clear_stale(const char *name, unsigned char type, void *data)
{
	struct sbx_bases *bases = data;
	const char *dot = strchr(name, '.');
	_cleanup_free_ char *key = dot ? strndup(name, (size_t)(dot - name)) : NULL;
	_cleanup_fd_ int lock = key ? sbx_base_lock(bases, key, false, NULL) : -1;

	(void)type;
	if (lock >= 0 && !sbx_base_is_used(bases, key))
		sbx_tree_remove(bases->tmp, name, NULL);
	return 0;
}

static int replace(struct sbx_bases *bases, const char *key)
{
	_cleanup_fd_ int lock = sbx_base_lock(bases, key, true, &bases->cancelled);

	return lock < 0 ? lock : sbx_base_discard(bases, key);
}

/* What a use looks at is quick; here each file is. */
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

int64_t sbx_base_now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
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
	int64_t now = sbx_base_now_ms();
	bool dirty = bases->dirty, sync = bases->sync_ms && bases->sync_ms <= now;

	if (!wanted && !dirty && bases->spare.from >= 0 && bases->spare.due_ms <= now) {
		sbx_base_make_spare(bases);
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

void sbx_bases_wake(struct sbx_bases *bases)
{
	pthread_mutex_lock(&bases->lock);
	bases->dirty = true;
	pthread_cond_signal(&bases->more);
	pthread_mutex_unlock(&bases->lock);
}

void sbx_bases_prepare(struct sbx_bases *bases, struct sbx_base_recipe *recipe,
                       void (*free_recipe)(struct sbx_base_recipe *recipe))
{
	struct sbx_base_recipe *before;

	pthread_mutex_lock(&bases->lock);
	before = bases->wanted;
	bases->wanted = recipe;
	bases->free_wanted = free_recipe;
	pthread_cond_signal(&bases->more);
	pthread_mutex_unlock(&bases->lock);
	if (before)
		free_recipe(before);
}

/* --- opening ------------------------------------------------------------------------------------------ */

static int open_rooms(struct sbx_bases *b)
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
		return sbx_fail(err, ENOMEM, "out of memory");
	pthread_mutex_init(&b->lock, NULL);
	pthread_cond_init(&b->more, NULL);
	b->limit_mb = limit_mb;
	b->dir = b->bases = b->users = b->locks = b->tmp = -1;
	b->spare.fd = b->spare.from = b->spare.at = -1;
	b->dirty = true;
	sbx_base_boot_id(b->boot);
	b->path = sbx_format("%s/bases", path);
	r = b->dir = sbx_dir_own(path, "cache", err);
	if (r >= 0) {
		r = sbx_dir_hold(b->dir);
		if (!r)
			r = b->path ? open_rooms(b) : -ENOMEM;
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
	sbx_base_spare_release(b);
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
