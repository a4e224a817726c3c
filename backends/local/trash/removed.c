/*
 * Taking is by rename. Each step finds nothing to do where it was done already, so a teardown that
 * was broken off goes on from its record alone, as ever. Dropping is by rename as well, to a name
 * that nobody opens, and only then file by file.
 */
#include "backends/local/trash/removed.h"

#include <errno.h>
#include <fcntl.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "backends/git/git_impl.h"
#include "backends/local/overlay/overlay.h"
#include "backends/local/overlay/paths.h"
#include "backends/local/trash/save.h"
#include "backends/local/trash/trash.h"
#include "backends/support/tree.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"
#include "sandboxfs/grow.h"
#include "sandboxfs/thread.h"

#define DAY_MS      ((int64_t)24 * 60 * 60 * 1000)
#define PAUSE_S     10  /* between two looks at the room that is left */
#define PASSES_FULL 360 /* of these looks, between two at the entries */
#define RESERVE_MAX (UINT64_C(1) << 30)
#define GONE        ".gone-"   /* before the id of what is being dropped */
#define USER        ".removed" /* behind the id of one that a base is kept for */

struct sbx_removed_watch {
	struct sbx_local *b;
	pthread_t thread;
	sem_t wake;
	atomic_bool stop;
};

/* --- taking ----------------------------------------------------------------------------------- */

static int failed(const struct sbx_record *rec, int r, struct sbx_error *err)
{
	return sbx_fail(err, -r, "the files of %s cannot be kept for the trash: %s", rec->name,
	                strerror(-r));
}

/* The copy of a directory cannot be made again; a checkout of a commit can. */
static int hold_base(struct sbx_local *b, const struct sbx_record *rec, struct sbx_error *err)
{
	const struct sbx_base_recipe there = {.key = rec->layer};
	_cleanup_free_ char *user = sbx_format("%s" USER, rec->id);
	_cleanup_free_ char *path =
	        sbx_format("%s/removed/%s/%s.json", b->state.path, rec->id, rec->id);
	struct sbx_base base;
	int r;

	if (!rec->layer || rec->common || !b->overlay)
		return 0;
	if (!user || !path)
		return sbx_no_memory(err);
	r = sbx_base_acquire(sbx_overlay_bases(b->overlay), &there, user, path, NULL, &base, err);
	if (!r)
		close(base.dir);
	sbx_base_sync_user(sbx_overlay_bases(b->overlay), rec->layer, user);
	/* It stands on nothing any more, so its files alone tell what it was. */
	return r == -ENOENT ? 0 : r;
}

int sbx_local_removed_prepare(struct sbx_local *b, const struct sbx_record *rec,
                              struct sbx_error *err)
{
	_cleanup_fd_ int dir = sbx_dir_make(b->state.removed, rec->id, 0700);
	struct sbx_record lasting = *rec;
	int r = dir;

	lasting.lasting = true;
	if (dir >= 0)
		r = sbx_record_store(dir, &lasting);

	return r ? failed(rec, r, err) : hold_base(b, rec, err);
}

static int take(int room, const char *id, int dir, const char *as)
{
	return renameat(room, id, dir, as) < 0 && errno != ENOENT ? -errno : 0;
}

static int take_index(const struct sbx_local *b, const char *id, int dir)
{
	_cleanup_fd_ int git = sbx_dir_open(b->state.git, id);

	return git < 0 ? 0 : take(git, SBX_LOCAL_TRASH_INDEX, dir, "index");
}

/* Drops what an overlay, or the saving of a disk, has beside the upper layer. */
static void drop_beside(int dir)
{
	static const char *const names[] = {"work", "saving", "links"};
	_cleanup_fd_ int tree = sbx_dir_open(dir, "tree");

	for (size_t i = 0; tree >= 0 && i < SBX_ARRAY_SIZE(names); i++)
		sbx_tree_remove(tree, names[i], NULL);
}

int sbx_local_removed_take(struct sbx_local *b, const struct sbx_record *rec, struct sbx_error *err)
{
	_cleanup_fd_ int dir = sbx_dir_open(b->state.removed, rec->id);
	int r = dir < 0 ? dir : take(b->state.trash, rec->id, dir, "tree");

	if (!r)
		r = take(b->state.nested, rec->id, dir, "nested");
	if (!r)
		r = take_index(b, rec->id, dir);
	if (r)
		return failed(rec, r, err);
	if (rec->layer)
		drop_beside(dir);
	if (b->removed) /* there may be too little room now */
		sem_post(&b->removed->wake);
	return 0;
}

/* --- opening ---------------------------------------------------------------------------------- */

static int load(int room, const char *id, int *dir, struct sbx_record *rec)
{
	_cleanup_free_ char *file = sbx_format("%s.json", id);
	_cleanup_fd_ int fd = sbx_dir_open(room, id);
	int r = fd < 0 ? fd : file ? sbx_record_load(fd, file, rec) : -ENOMEM;

	if (!r)
		*dir = sbx_steal_fd(&fd);
	return r;
}

int sbx_local_removed_open(struct sbx_local *b, const char *id, struct sbx_removed *ret)
{
	int r = id[0] == '.' || strchr(id, '/') ? -ENOENT : 0;

	*ret = (struct sbx_removed){.dir = -1};
	if (r)
		return r;
	pthread_rwlock_rdlock(&b->removing);
	r = load(b->state.removed, id, &ret->dir, &ret->rec);
	if (r)
		pthread_rwlock_unlock(&b->removing);
	return r;
}

void sbx_local_removed_close(struct sbx_local *b, struct sbx_removed *removed)
{
	if (removed->dir < 0)
		return;
	sbx_cleanup_fd(&removed->dir);
	sbx_record_release(&removed->rec);
	pthread_rwlock_unlock(&b->removing);
}

bool sbx_local_removed_has(const struct sbx_local *b, const char *id)
{
	_cleanup_free_ char *path = sbx_format("%s/tree", id);

	return path && !strchr(id, '/') &&
	       faccessat(b->state.removed, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* --- dropping --------------------------------------------------------------------------------- */

/* One that is kept. */
struct kept {
	char *id, *name, *common;
	int64_t time_ms;
};

struct look {
	struct sbx_local *b;
	struct kept *at;
	size_t n, cap;
	struct sbx_strings entries; /* ids of those that the trash has */
};

static void look_release(struct look *l)
{
	for (size_t i = 0; i < l->n; i++) {
		free(l->at[i].id);
		free(l->at[i].name);
		free(l->at[i].common);
	}
	free(l->at);
	sbx_strings_release(&l->entries);
}

static int add(struct look *l, const char *id, const struct sbx_record *rec)
{
	struct kept *k;

	if (SBX_GROW(l->at, l->n, l->cap, 16))
		return -ENOMEM;
	k = &l->at[l->n++];
	*k = (struct kept){.id = strdup(id),
	                   .name = strdup(rec->name),
	                   .common = rec->common ? strdup(rec->common) : NULL,
	                   .time_ms = rec->removed_ms};
	return k->id && k->name ? 0 : -ENOMEM;
}

/* Whether a teardown takes ID just now. Then it is the teardown's. */
static bool is_torn_down(const struct sbx_local *b, const char *id)
{
	_cleanup_free_ char *file = sbx_format("%s.json", id);

	return !file || faccessat(b->state.meta, file, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static int note(const char *id, unsigned char type, void *data)
{
	_cleanup_(sbx_record_release) struct sbx_record rec = {0};
	struct look *l = data;
	_cleanup_fd_ int dir = -1;

	(void)type;
	if (id[0] == '.') {
		sbx_tree_remove(l->b->state.removed, id, NULL);
		return 0;
	}
	if (is_torn_down(l->b, id) || load(l->b->state.removed, id, &dir, &rec))
		return 0;
	return add(l, id, &rec);
}

static int by_time(const void *a, const void *b)
{
	const struct kept *x = a, *y = b;

	return (x->time_ms > y->time_ms) - (x->time_ms < y->time_ms);
}

static int look(struct look *l)
{
	_cleanup_fd_ int dir = sbx_dir_open(l->b->state.removed, ".");
	int r = dir < 0 ? dir : sbx_dir_scan(dir, note, l);

	if (!r && l->n)
		qsort(l->at, l->n, sizeof(*l->at), by_time);
	return r;
}

static void drop(struct sbx_local *b, const struct kept *k, const char *why)
{
	_cleanup_free_ char *gone = sbx_format(GONE "%s", k->id);
	_cleanup_free_ char *text =
	        sbx_format("the files of %s, removed as %s, are no longer kept beside its entry in "
	                   "the trash: %s",
	                   k->name, k->id, why);
	int r = gone && text ? 0 : -ENOMEM;

	if (r)
		return;
	pthread_rwlock_wrlock(&b->removing);
	r = renameat(b->state.removed, k->id, b->state.removed, gone) < 0 ? -errno : 0;
	pthread_rwlock_unlock(&b->removing);
	if (r)
		return;
	if (b->host->dropped)
		b->host->dropped(k->name, text, b->host->data);
	sbx_tree_remove(b->state.removed, gone, NULL);
}

static int note_entry(const struct sbx_trash_entry *e, void *data)
{
	return sbx_strings_add(data, e->id);
}

/* Whether it is known which entries there are. */
static bool read_entries(struct look *l)
{
	const char *const places[] = {l->b->common, NULL};

	for (size_t i = !l->b->common; i < SBX_ARRAY_SIZE(places); i++) {
		_cleanup_git_(repository) git_repository *repo = NULL;
		int r = sbx_local_trash_repo(l->b, places[i], false, &repo);

		if (!r)
			r = sbx_trash_each(repo, note_entry, &l->entries);
		if (r && (places[i] || r != GIT_ENOTFOUND))
			return false;
	}
	return true;
}

static bool has_entry(const struct look *l, const char *id)
{
	for (size_t i = 0; i < l->entries.n; i++)
		if (strcmp(l->entries.items[i], id) == 0)
			return true;
	return false;
}

/* Of one of another source the entry is not seen. */
static bool may_have_entry(const struct look *l, const struct kept *k, bool known)
{
	const bool other = k->common && (!l->b->common || strcmp(k->common, l->b->common) != 0);

	return !known || other || has_entry(l, k->id);
}

static void drop_old(struct sbx_local *b)
{
	const int64_t days = (int64_t)b->host->settings->trash_days;
	_cleanup_(look_release) struct look l = {.b = b};
	int64_t now_ms;
	bool known;

	/* First what is kept: what comes later has an entry that was read. */
	if (look(&l) || !l.n)
		return;
	known = read_entries(&l);
	now_ms = sbx_real_ms();
	for (size_t i = 0; i < l.n; i++) {
		const int64_t age = now_ms - l.at[i].time_ms;

		if (age > days * DAY_MS)
			drop(b, &l.at[i], "they were there for as long as trash= says");
		else if (!may_have_entry(&l, &l.at[i], known))
			drop(b, &l.at[i], "the entry is gone");
	}
}

static bool is_short(const struct sbx_local *b)
{
	struct statvfs vfs;
	uint64_t reserve;

	if (fstatvfs(b->state.removed, &vfs) < 0)
		return false;
	reserve = (uint64_t)vfs.f_blocks * vfs.f_frsize / 20;
	return (uint64_t)vfs.f_bavail * vfs.f_frsize <
	       (reserve < RESERVE_MAX ? reserve : RESERVE_MAX);
}

/* Whether there is nothing, so that nothing need be looked at. */
static bool make_room(struct sbx_local *b)
{
	_cleanup_(look_release) struct look l = {.b = b};

	if (look(&l))
		return false;
	for (size_t i = 0; i < l.n && is_short(b); i++)
		drop(b, &l.at[i], "the disk is nearly full");
	return !l.n;
}

/* --- watching --------------------------------------------------------------------------------- */

static void pause_for(struct sbx_removed_watch *w, bool idle)
{
	const struct timespec until =
	        sbx_clock_after(CLOCK_REALTIME, PAUSE_S * INT64_C(1000000000));

	if (idle)
		sem_wait(&w->wake);
	else
		sem_timedwait(&w->wake, &until);
}

static void *watch_main(void *data)
{
	struct sbx_removed_watch *w = data;

	for (unsigned pass = 0; !atomic_load(&w->stop); pass++) {
		bool idle;

		if (pass % PASSES_FULL == 0)
			drop_old(w->b);
		idle = make_room(w->b);
		pause_for(w, idle);
	}
	return NULL;
}

int sbx_local_removed_watch(struct sbx_local *b, struct sbx_error *err)
{
	struct sbx_removed_watch *w = calloc(1, sizeof(*w));
	int r;

	if (!w)
		return sbx_no_memory(err);
	w->b = b;
	sem_init(&w->wake, 0, 0);
	r = sbx_thread_start(&w->thread, watch_main, w);
	if (r) {
		sem_destroy(&w->wake);
		free(w);
		return sbx_fail(err, -r, "cannot start a thread: %s", strerror(-r));
	}
	b->removed = w;
	return 0;
}

void sbx_local_removed_unwatch(struct sbx_removed_watch *watch)
{
	if (!watch)
		return;
	atomic_store(&watch->stop, true);
	sem_post(&watch->wake);
	pthread_join(watch->thread, NULL);
	sem_destroy(&watch->wake);
	free(watch);
}
