/*
 * An unlink must stay about as quick as it is: the directory that the last one was in is
 * remembered, with its path and its counterpart in the sandbox's own layer, so that another in the
 * same costs a link. What is noted is in memory until there is much of it, or a teardown wants it:
 * nobody reads it before, and a daemon that dies has no row to go on with. Rows have numbers, so
 * that a new one need not wait for the links of the last to go.
 */
#include "backends/local/trash/removal_log.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "backends/support/beneath.h"
#include "backends/support/fsutil.h"
#include "backends/support/tree.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"
#include "sandboxfs/thread.h"

#define QUIET_NS  UINT64_C(60000000000)
#define EDITED_NS UINT64_C(5000000000)
#define SHARED_NS UINT64_C(1000000000)
#define NOTED     ((size_t)64 << 10) /* bytes of notes that are written at once */
#define NOTED_MAX ((size_t)16 << 20) /* that are kept in memory where they cannot be written */
#define AT_ONCE   512 /* links that go to make room for a write, before it is tried again */

struct sbx_removal_log {
	pthread_mutex_t lock; /* rows; held while links are dropped, so no removal takes it */
	sem_t wake;
	pthread_t thread;
	atomic_bool stop;
	struct sbx_removal_batch *rows;
};

struct sbx_removal_batch {
	struct sbx_removal_log *kept;
	struct sbx_removal_batch *next, **prev; /* under its lock */
	struct sbx_removal_paths place;
	char *id;
	char prefix[PATH_MAX]; /* of paths in the tree */
	size_t prefix_len;

	pthread_mutex_t dropping; /* held while one link is dropped; taken last */

	pthread_mutex_t lock; /* what follows; taken after the other */
	int dir, log;         /* -1: nothing is there */
	unsigned row, n;      /* this row's number, the removals in it */
	unsigned links;       /* made in it */
	unsigned old;         /* rows whose links may be there still */
	char *notes;          /* not written to the log yet */
	size_t noted, notes_cap;
	int failed; /* why some of the row is lost, or 0 */
	bool held;
	bool urgent; /* what is kept goes as soon as may be */
	unsigned edits;
	uint64_t last_ns;
	/* The directory of the last removal. */
	dev_t dev;
	ino_t ino;
	int own; /* -1: it is the base's alone */
	char path[PATH_MAX];
};

/* --- dropping
 * -------------------------------------------------------------------------------------- */

struct dropping {
	int dir;
	unsigned row; /* from this one on links stay */
	unsigned n;   /* that were dropped */
	pthread_mutex_t *one;
};

static int drop_link(const char *name, unsigned char type, void *data)
{
	struct dropping *d = data;
	char *end;
	unsigned long row = strtoul(name, &end, 10);

	(void)type;
	if (*end != '-' || row >= d->row)
		return 0;
	pthread_mutex_lock(d->one);
	d->n += unlinkat(d->dir, name, 0) == 0;
	pthread_mutex_unlock(d->one);
	return 0;
}

/* The lock of ROW is held; it is let go while links are unlinked. */
static void drop_old(struct sbx_removal_batch *row)
{
	struct dropping d = {.row = row->row, .one = &row->dropping};
	_cleanup_fd_ int dir = sbx_dir_open(row->dir, ".");

	if (dir < 0)
		return;
	d.dir = dir;
	pthread_mutex_unlock(&row->lock);
	sbx_dir_scan(dir, drop_link, &d);
	pthread_mutex_lock(&row->lock);
	row->old = d.row;
}

static void forget_place(struct sbx_removal_batch *row)
{
	sbx_cleanup_fd(&row->own);
	row->ino = 0;
}

static void close_dir(struct sbx_removal_batch *row)
{
	forget_place(row);
	sbx_cleanup_fd(&row->log);
	sbx_cleanup_fd(&row->dir);
}

static void begin_row(struct sbx_removal_batch *row)
{
	assert(!row->held);
	row->row++;
	row->n = row->links = 0;
	row->noted = 0;
	row->failed = 0;
	row->urgent = false;
	forget_place(row);
	if (row->log >= 0 && ftruncate(row->log, 0) < 0)
		row->held = true;
}

/*
 * A batch that a write has ended waits a little, so as not to be in the write's way. Nobody hears
 * of a command that finds no room.
 */
static bool is_over(const struct sbx_removal_batch *row)
{
	const struct sbx_removal_paths *place = &row->place;
	uint64_t quiet = QUIET_NS;

	if (place->shared && atomic_load(place->shared))
		quiet = SHARED_NS;
	else if (atomic_load(place->edits) != row->edits)
		quiet = EDITED_NS;
	return row->urgent || sbx_now_ns() - row->last_ns > quiet;
}

/* Whether there is nothing more to do for ROW. Its lock is held. */
static bool tend(struct sbx_removal_batch *row)
{
	if (row->dir < 0 || row->held)
		return true;
	if (row->n && is_over(row))
		begin_row(row);
	if (row->old < row->row)
		drop_old(row);
	if (row->n || row->held || row->old < row->row)
		return row->held;
	/* Idle: as if there had been nothing. */
	unlinkat(row->dir, "log", 0);
	unlinkat(row->place.room, row->id, AT_REMOVEDIR);
	close_dir(row);
	return true;
}

/* The lock is held. */
static bool tend_all(struct sbx_removal_log *kept)
{
	bool idle = true;

	for (struct sbx_removal_batch *row = kept->rows; row; row = row->next) {
		pthread_mutex_lock(&row->lock);
		idle &= tend(row);
		pthread_mutex_unlock(&row->lock);
	}
	return idle;
}

static void *keeper_main(void *data)
{
	struct sbx_removal_log *kept = data;
	bool idle = true;

	while (!atomic_load(&kept->stop)) {
		const struct timespec ts = sbx_clock_after(CLOCK_REALTIME, 1000000000);

		if (idle)
			sem_wait(&kept->wake);
		else
			sem_timedwait(&kept->wake, &ts);
		pthread_mutex_lock(&kept->lock);
		idle = tend_all(kept);
		pthread_mutex_unlock(&kept->lock);
	}
	return NULL;
}

int sbx_removal_new(struct sbx_removal_log **ret)
{
	struct sbx_removal_log *kept = calloc(1, sizeof(*kept));
	int r;

	if (!kept)
		return -ENOMEM;
	pthread_mutex_init(&kept->lock, NULL);
	sem_init(&kept->wake, 0, 0);
	r = sbx_thread_start(&kept->thread, keeper_main, kept);
	if (r) {
		free(kept);
		return r;
	}
	*ret = kept;
	return 0;
}

void sbx_removal_free(struct sbx_removal_log *kept)
{
	if (!kept)
		return;
	assert(!kept->rows);
	atomic_store(&kept->stop, true);
	sem_post(&kept->wake);
	pthread_join(kept->thread, NULL);
	pthread_mutex_destroy(&kept->lock);
	sem_destroy(&kept->wake);
	free(kept);
}

/* --- rows
 * ------------------------------------------------------------------------------------------ */

/* The path of FD as the kernel tells it, wherever its mount is; 0: unknown. */
static size_t name_of(int fd, char ret[PATH_MAX])
{
	char link[40];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, ret, PATH_MAX - 1);
	ret[n > 0 ? n : 0] = '\0';
	return n > 0 && ret[0] == '/' ? (size_t)n : 0;
}

int sbx_removal_open(struct sbx_removal_log *kept, const struct sbx_removal_paths *place,
                     struct sbx_removal_batch **ret)
{
	struct sbx_removal_batch *row = calloc(1, sizeof(*row));

	assert(place->room >= 0 && place->own >= 0);
	if (!row)
		return -ENOMEM;
	row->kept = kept;
	row->place = *place;
	row->id = strdup(place->id);
	row->dir = row->log = row->own = -1;
	if (!row->id) {
		free(row);
		return -ENOMEM;
	}
	row->place.id = row->id;
	pthread_mutex_init(&row->dropping, NULL);
	pthread_mutex_init(&row->lock, NULL);
	pthread_mutex_lock(&kept->lock);
	row->next = kept->rows;
	row->prev = &kept->rows;
	if (row->next)
		row->next->prev = &row->next;
	kept->rows = row;
	pthread_mutex_unlock(&kept->lock);
	*ret = row;
	return 0;
}

void sbx_removal_close(struct sbx_removal_batch *row)
{
	if (!row)
		return;
	pthread_mutex_lock(&row->kept->lock);
	assert(*row->prev == row);
	*row->prev = row->next;
	if (row->next)
		row->next->prev = row->prev;
	pthread_mutex_unlock(&row->kept->lock);
	if (row->dir >= 0 && !row->held)
		sbx_tree_remove(row->place.room, row->id, NULL);
	close_dir(row);
	close(row->place.room);
	close(row->place.own);
	pthread_mutex_destroy(&row->lock);
	pthread_mutex_destroy(&row->dropping);
	free(row->notes);
	free(row->id);
	free(row);
}

static int open_dir(struct sbx_removal_batch *row)
{
	int r;

	assert(row->dir < 0 && row->log < 0);
	r = row->dir = sbx_dir_make(row->place.room, row->id, 0700);
	if (r < 0)
		return r;
	row->log = openat(row->dir, "log",
	                  O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (row->log < 0) {
		r = -errno;
		close_dir(row);
		return r;
	}
	row->prefix_len = name_of(row->place.root, row->prefix);
	if (row->prefix_len == 1)
		row->prefix_len = 0;
	return 0;
}

/* Has path and own be those of DIRFD. */
static int enter(struct sbx_removal_batch *row, int dirfd)
{
	char path[PATH_MAX];
	const char *at;
	struct stat st;

	if (fstat(dirfd, &st) < 0)
		return -errno;
	if (st.st_ino == row->ino && st.st_dev == row->dev)
		return 0;
	forget_place(row);
	if (!name_of(dirfd, path) || strncmp(path, row->prefix, row->prefix_len) != 0)
		return -ENOENT;
	at = path + row->prefix_len;
	if (*at && *at != '/')
		return -ENOENT;
	snprintf(row->path, sizeof(row->path), "%s%s", *at ? at + 1 : "",
	         at[0] && at[1] ? "/" : "");
	row->own = *at && at[1] ? sbx_beneath_open(row->place.own, at + 1, O_PATH | O_DIRECTORY)
	                        : sbx_dir_open(row->place.own, ".");
	row->ino = st.st_ino;
	row->dev = st.st_dev;
	return 0;
}

/*
 * Fills E, the record of NAME: of the base, kept, or kept only when the last of its names goes,
 * because one more link would be seen in the others.
 */
static int keep(struct sbx_removal_batch *row, int dirfd, const char *name,
                struct sbx_removal_entry *e, char link[32])
{
	struct stat st;

	e->kind = SBX_REMOVAL_BASE;
	if (row->own < 0 ||
	    (fstatat(row->own, name, &st, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT)) {
		if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			return -errno;
		e->ino = st.st_ino;
		return 0;
	}
	e->ino = st.st_ino;
	e->kind = st.st_nlink > 1 ? SBX_REMOVAL_NAME : SBX_REMOVAL_FILE;
	if (e->kind == SBX_REMOVAL_NAME)
		return 0;
	if (!S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode))
		return -EINVAL;
	snprintf(link, 32, "%u-%u", row->row, row->links++);
	e->link = link;
	return linkat(row->own, name, row->dir, link, 0) < 0 ? -errno : 0;
}

/* Appended whole, or what is there of it taken back. */
static int write_notes(struct sbx_removal_batch *row)
{
	struct stat st;
	int r = fstat(row->log, &st) < 0 ? -errno : 0;

	if (!r)
		r = sbx_write_all(row->log, row->notes, row->noted);
	if (!r)
		row->noted = 0;
	else if (ftruncate(row->log, st.st_size) < 0)
		row->failed = r;
	return r;
}

static int make_space(struct sbx_removal_batch *row, size_t len)
{
	size_t cap = row->notes_cap ? row->notes_cap : 4096;
	char *notes;

	while (cap < row->noted + len)
		cap *= 2;
	if (cap == row->notes_cap)
		return 0;
	notes = cap <= NOTED_MAX ? realloc(row->notes, cap) : NULL;
	if (!notes)
		return -ENOMEM;
	row->notes = notes;
	row->notes_cap = cap;
	return 0;
}

static int note(struct sbx_removal_batch *row, const char *name, const struct sbx_removal_entry *e)
{
	char head[64];
	int n = snprintf(head, sizeof(head), "%c %" PRIu64 " %s ", "BFN"[e->kind], e -> ino,
	                 e -> link ? e -> link : "-");
	const size_t path = strlen(row->path), last = strlen(name) + 1;
	char *at;

	if (row->noted > NOTED)
		write_notes(row);
	if (make_space(row, (size_t)n + path + last))
		return -ENOMEM;
	at = row->notes + row->noted;
	memcpy(at, head, (size_t)n);
	memcpy(at + n, row->path, path);
	memcpy(at + n + path, name, last);
	row->noted += (size_t)n + path + last;
	row->n++;
	return 0;
}

/* Notes NAME in the batch, unless it is no file or link, or is gone already. */
static void remember(struct sbx_removal_batch *row, int dirfd, const char *name)
{
	struct sbx_removal_entry e = {0};
	char link[32];
	int r = enter(row, dirfd);

	assert(row->dir >= 0);
	if (!r)
		r = keep(row, dirfd, name, &e, link);
	if (!r)
		r = note(row, name, &e);
	if (r && r != -ENOENT && r != -EINVAL)
		row->failed = r;
}

void sbx_removal_removing(struct sbx_removal_batch *row, int dirfd, const char *name)
{
	const uint64_t now = sbx_now_ns();
	const unsigned edits = atomic_load(row->place.edits);
	bool first;

	pthread_mutex_lock(&row->lock);
	first = row->dir < 0;
	if (!row->held && (!first || open_dir(row) == 0)) {
		if (first || row->edits != edits || now - row->last_ns > QUIET_NS) {
			begin_row(row);
			row->edits = edits;
		}
		row->last_ns = now;
		remember(row, dirfd, name);
	}
	pthread_mutex_unlock(&row->lock);
	if (first)
		sem_post(&row->kept->wake);
}

int sbx_removal_hold(struct sbx_removal_batch *row, int *lost)
{
	int r = 0;

	pthread_mutex_lock(&row->lock);
	if (row->dir >= 0 && row->n && row->edits == atomic_load(row->place.edits)) {
		r = row->noted ? write_notes(row) : 0;
		row->held = row->held || !r;
		*lost = row->failed;
		r = r ? r : 1;
	}
	pthread_mutex_unlock(&row->lock);
	return r;
}

/* --- making room ------------------------------------------------------------------------------ */

void sbx_removal_over(struct sbx_removal_batch *row)
{
	bool any;

	pthread_mutex_lock(&row->lock);
	any = row->links > 0 && !row->held;
	row->urgent = any;
	pthread_mutex_unlock(&row->lock);
	if (any)
		sem_post(&row->kept->wake);
}

static int drop_few(const char *name, unsigned char type, void *data)
{
	struct dropping *d = data;
	const unsigned before = d->n;

	drop_link(name, type, data);
	return d->n > before && d->n == AT_ONCE;
}

/* A link that is not found any more has made its room once that call returns. */
static void await_drop(struct sbx_removal_batch *row)
{
	pthread_mutex_lock(&row->dropping);
	pthread_mutex_unlock(&row->dropping);
}

bool sbx_removal_make_room(struct sbx_removal_batch *row)
{
	struct dropping d = {.dir = -1, .one = &row->dropping};

	pthread_mutex_lock(&row->lock);
	if (row->dir >= 0 && !row->held) {
		if (row->n)
			begin_row(row);
		d.row = row->row;
		d.dir = row->old < row->row ? sbx_dir_open(row->dir, ".") : -1;
	}
	pthread_mutex_unlock(&row->lock);
	if (d.dir < 0)
		return false;
	sbx_dir_scan(d.dir, drop_few, &d);
	close(d.dir);
	if (d.n == 0)
		await_drop(row);
	sem_post(&row->kept->wake);
	return d.n > 0;
}

/* --- reading
 * --------------------------------------------------------------------------------------- */

static int tell(char *text, int (*fn)(const struct sbx_removal_entry *e, void *data), void *data)
{
	struct sbx_removal_entry e = {0};
	const char *kinds = "BFN", *kind = text[0] ? strchr(kinds, text[0]) : NULL;
	char *link, *path;

	if (!kind || text[1] != ' ')
		return 0;
	e.kind = (enum sbx_removal_kind)(kind - kinds);
	e.ino = strtoull(text + 2, &link, 10);
	path = *link == ' ' ? strchr(link + 1, ' ') : NULL;
	if (!path)
		return 0;
	*path = '\0';
	e.link = link + 1;
	e.path = path + 1;
	return fn(&e, data);
}

int sbx_removal_each(int dir, int (*fn)(const struct sbx_removal_entry *e, void *data), void *data)
{
	_cleanup_fd_ int fd = openat(dir, "log", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	_cleanup_file_ FILE *f = fd < 0 ? NULL : fdopen(fd, "r");
	_cleanup_free_ char *text = NULL;
	size_t size = 0;
	int r = 0;

	if (!f)
		return -errno;
	fd = -1;
	while (!r && getdelim(&text, &size, '\0', f) > 0)
		r = tell(text, fn, data);
	return r ? r : ferror(f) ? -errno : 0;
}
