/*
 * Files are opened by the record's names: a sandbox that is gone meanwhile has none.
 */
#include "backends/local/syncer.h"

#include <errno.h>
#include <fcntl.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "backends/git/spare.h"
#include "backends/git/store.h"
#include "backends/local/overlay/base_git.h"
#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"
#include "sandboxfs/thread.h"

#define PAUSE_NS 300000000L

struct asked {
	struct asked *next;
	char *id;
	char *entry; /* directory of the worktree's entry, or NULL */
	char *base;  /* commit that the branch begins at, or NULL */
};

struct sbx_syncer {
	struct sbx_local *b;
	pthread_t thread;
	pthread_mutex_t lock;
	sem_t wake;
	bool stop;           /* lock, as the next three */
	struct asked *asked; /* the newest first */
	bool spread;         /* the store has its directories, or that is asked for */
	bool spreading;      /* that is asked for */
};

static void write_out(int dir, const char *name)
{
	_cleanup_fd_ int fd =
	        dir < 0 ? -1 : openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

	if (fd >= 0)
		sbx_write_out(fd);
}

static void sync_one(struct sbx_local *b, const struct asked *a)
{
	_cleanup_free_ char *record = sbx_format("%s.json", a->id);
	_cleanup_fd_ int tree = sbx_dir_open(b->state.trees, a->id);
	_cleanup_fd_ int upper = tree < 0 ? -1 : sbx_dir_open(tree, "upper");
	_cleanup_fd_ int entry = a->entry ? sbx_dir_open(AT_FDCWD, a->entry) : -1;

	if (entry >= 0)
		sbx_dir_write_out(entry);
	write_out(upper >= 0 ? upper : tree, ".git");
	/* The last: it says that all the rest is there. */
	if (record)
		write_out(b->state.meta, record);
}

/* The next sandbox most likely begins where the last has. */
static void fill_spares(struct sbx_local *b, const char *base)
{
	if (b->spares && base)
		sbx_git_spares_fill(b->spares, base);
}

static void prepare(struct sbx_local *b)
{
	char commit[65];

	if (b->spares && sbx_base_commit_resolve(b->common, b->host->settings->base, commit) == 0)
		sbx_git_spares_fill(b->spares, commit);
}

static void release(struct asked *a)
{
	free(a->id);
	free(a->entry);
	free(a->base);
	free(a);
}

static void sync_all(struct sbx_local *b, struct asked *list)
{
	if (list)
		fill_spares(b, list->base);
	for (struct asked *next; list; list = next) {
		next = list->next;
		sync_one(b, list);
		release(list);
	}
}

static bool is_stopped(struct sbx_syncer *s)
{
	bool stop;

	pthread_mutex_lock(&s->lock);
	stop = s->stop;
	pthread_mutex_unlock(&s->lock);
	return stop;
}

/*
 * Waits a moment: the files of a sandbox that is removed at once need not be written at all, and
 * its removal would wait for that.
 */
static void pause_for(struct sbx_syncer *s)
{
	const struct timespec until = sbx_clock_after(CLOCK_REALTIME, PAUSE_NS);

	while (!is_stopped(s) && (sem_timedwait(&s->wake, &until) == 0 || errno == EINTR))
		;
}

static void *syncer_main(void *data)
{
	struct sbx_syncer *s = data;
	bool stop = false, spreads;

	prepare(s->b);
	while (!stop) {
		struct asked *list;

		sem_wait(&s->wake);
		pause_for(s);
		pthread_mutex_lock(&s->lock);
		list = s->asked;
		s->asked = NULL;
		stop = s->stop;
		spreads = s->spreading && !stop;
		s->spreading = false;
		pthread_mutex_unlock(&s->lock);
		sync_all(s->b, list);
		if (spreads)
			sbx_git_store_spread(s->b->common);
	}
	return NULL;
}

int sbx_local_syncer_start(struct sbx_local *b, struct sbx_error *err)
{
	struct sbx_syncer *s = calloc(1, sizeof(*s));
	int r = s ? 0 : -ENOMEM;

	if (!r && b->kind == SBX_LOCAL_GIT)
		b->spares = sbx_git_spares_new(b->common);
	if (!r) {
		s->b = b;
		pthread_mutex_init(&s->lock, NULL);
		sem_init(&s->wake, 0, 0);
		r = sbx_thread_start(&s->thread, syncer_main, s);
		if (r) {
			sem_destroy(&s->wake);
			pthread_mutex_destroy(&s->lock);
			free(s);
		}
	}
	if (r)
		return sbx_fail(err, -r, "cannot start a thread: %s", strerror(-r));
	b->syncer = s;
	return 0;
}

void sbx_local_sync_soon(struct sbx_local *b, const struct sbx_record *rec)
{
	struct sbx_syncer *s = b->syncer;
	struct asked *a = s ? calloc(1, sizeof(*a)) : NULL;

	if (!a)
		return;
	a->id = strdup(rec->id);
	if (rec->common && rec->worktree)
		a->entry = sbx_format("%s/worktrees/%s", rec->common, rec->worktree);
	if (rec->base && rec->branch_created)
		a->base = strdup(rec->base);
	if (!a->id) {
		release(a);
		return;
	}
	pthread_mutex_lock(&s->lock);
	a->next = s->asked;
	s->asked = a;
	pthread_mutex_unlock(&s->lock);
	sem_post(&s->wake);
}

void sbx_local_sync_store(struct sbx_local *b)
{
	struct sbx_syncer *s = b->syncer;
	bool asks;

	if (!s || b->kind != SBX_LOCAL_GIT)
		return;
	pthread_mutex_lock(&s->lock);
	asks = !s->spread;
	if (asks)
		s->spread = s->spreading = true;
	pthread_mutex_unlock(&s->lock);
	if (asks)
		sem_post(&s->wake);
}

void sbx_local_syncer_stop(struct sbx_syncer *s)
{
	if (!s)
		return;
	pthread_mutex_lock(&s->lock);
	s->stop = true;
	pthread_mutex_unlock(&s->lock);
	sem_post(&s->wake);
	pthread_join(s->thread, NULL);
	sync_all(s->b, s->asked);
	sem_destroy(&s->wake);
	pthread_mutex_destroy(&s->lock);
	free(s);
}
