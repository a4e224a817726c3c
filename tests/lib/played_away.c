#include "tests/lib/played_away.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sandboxfs/cleanup.h"

static struct played_away *away_of(struct sbx_sandbox *sb)
{
	return sbx_container_of(sb->turn, struct played_away, turn);
}

static bool away_here(struct sbx_sandbox *sb, uint64_t ino, enum sbx_need need, uint64_t off,
                      uint64_t len)
{
	struct played_away *a = away_of(sb);
	bool here;

	(void)ino;
	(void)need;
	(void)off;
	(void)len;
	pthread_mutex_lock(&a->lock);
	here = a->here;
	pthread_mutex_unlock(&a->lock);
	return here;
}

static void take(struct played_away *a, struct sbx_want *w, unsigned *count)
{
	pthread_mutex_lock(&a->lock);
	w->next = a->wants;
	a->wants = w;
	++*count;
	pthread_cond_broadcast(&a->came);
	pthread_mutex_unlock(&a->lock);
}

static void away_want(struct sbx_sandbox *sb, struct sbx_want *w)
{
	take(away_of(sb), w, &away_of(sb)->asked);
}

static void away_flush(struct sbx_sandbox *sb, struct sbx_want *w)
{
	assert(w->need == SBX_NEED_SENT);
	take(away_of(sb), w, &away_of(sb)->flushed);
}

struct answer {
	struct sbx_want *w;
	struct sbx_error err;
};

static void tell(void *data)
{
	struct answer *t = data;

	t->w->done(t->w, t->err.code, &t->err);
	free(t);
}

static void tell_later(struct played_away *a, struct sbx_want *w, int code, const char *text)
{
	struct answer *t = calloc(1, sizeof(*t));

	assert(t);
	t->w = w;
	if (code)
		sbx_fail(&t->err, code, "%s", text);
	sbx_loop_post(a->loop, tell, t);
}

static void away_unwant(struct sbx_sandbox *sb, struct sbx_want *w)
{
	struct played_away *a = away_of(sb);
	struct sbx_want **at = &a->wants;

	pthread_mutex_lock(&a->lock);
	a->given_up++;
	while (*at && *at != w)
		at = &(*at)->next;
	if (*at) {
		*at = w->next;
		tell_later(a, w, EINTR, "unwanted");
	}
	pthread_mutex_unlock(&a->lock);
}

static int away_admit(struct sbx_sandbox *sb, const struct sbx_change *meant, struct sbx_error *err)
{
	struct played_away *a = away_of(sb);
	bool full;

	(void)meant;
	pthread_mutex_lock(&a->lock);
	full = a->full;
	a->admitted += !full;
	pthread_mutex_unlock(&a->lock);
	return full ? sbx_fail(err, ENOSPC, "no room") : 0;
}

static void away_changed(struct sbx_sandbox *sb, const struct sbx_change *c)
{
	struct played_away *a = away_of(sb);
	size_t n;

	pthread_mutex_lock(&a->lock);
	assert(a->admitted > 0);
	a->admitted--;
	n = strlen(a->log);
	snprintf(a->log + n, sizeof(a->log) - n, "%d %s;", c->kind, c->path);
	pthread_mutex_unlock(&a->lock);
}

static void away_dropped(struct sbx_sandbox *sb, const struct sbx_change *meant)
{
	struct played_away *a = away_of(sb);

	(void)meant;
	pthread_mutex_lock(&a->lock);
	assert(a->admitted > 0);
	a->admitted--;
	pthread_mutex_unlock(&a->lock);
}

/* Nothing goes on by itself. */
static void away_begin(struct sbx_sandbox *sb)
{
	(void)sb;
}

static void away_rest(struct sbx_sandbox *sb, unsigned ms)
{
	(void)sb;
	(void)ms;
}

static void away_leave(struct sbx_sandbox *sb)
{
	(void)sb;
}

const struct sbx_away_impl played_away_impl = {
        .begin = away_begin,
        .rest = away_rest,
        .leave = away_leave,
        .here = away_here,
        .want = away_want,
        .unwant = away_unwant,
        .admit = away_admit,
        .changed = away_changed,
        .dropped = away_dropped,
        .flush = away_flush,
};

void played_away_init(struct played_away *a, struct sbx_loop *loop)
{
	*a = (struct played_away){.loop = loop};
	pthread_rwlock_init(&a->turn, NULL);
	pthread_mutex_init(&a->lock, NULL);
	pthread_cond_init(&a->came, NULL);
}

void played_away_finish(struct played_away *a)
{
	assert(!a->wants && !a->admitted);
	pthread_cond_destroy(&a->came);
	pthread_mutex_destroy(&a->lock);
	pthread_rwlock_destroy(&a->turn);
}

void played_away_await(struct played_away *a, unsigned count)
{
	struct timespec limit;
	int r = 0;

	clock_gettime(CLOCK_REALTIME, &limit);
	limit.tv_sec += 20;
	pthread_mutex_lock(&a->lock);
	while (!r && a->asked + a->flushed < count)
		r = pthread_cond_timedwait(&a->came, &a->lock, &limit);
	pthread_mutex_unlock(&a->lock);
	assert(!r);
}

void played_away_answer(struct played_away *a, int code, const char *text)
{
	struct sbx_want *w, *next;

	pthread_mutex_lock(&a->lock);
	w = a->wants;
	a->wants = NULL;
	for (; w; w = next) {
		next = w->next;
		tell_later(a, w, code, text);
	}
	pthread_mutex_unlock(&a->lock);
}
