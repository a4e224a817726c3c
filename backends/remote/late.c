/*
 * A file is empty, so that it needs no room on a full disk: its time is when it was noted. All that
 * are noted are looked for by one request, the list of the machines that have our label.
 */
#include "backends/remote/late.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/remote/provider.h"
#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"
#include "sandboxfs/loop.h"
#include "sandboxfs/pool.h"

#define FIRST_MS 2000
#define LAST_MS  300000
#define OVER_MS  3600000 /* no create takes longer */

struct name {
	struct name *next;
	int64_t noted_ms; /* CLOCK_REALTIME */
	char text[];
};

struct remote_late {
	struct remote_late_config config;
	struct sbx_timer timer; /* loop */
	pthread_mutex_t lock;   /* all below */
	struct name *names;
	uint64_t pause_ms; /* before the next look */
	bool looking;
};

int remote_late_open(const struct remote_late_config *config, struct remote_late **ret)
{
	struct remote_late *l = calloc(1, sizeof(*l));

	if (!l)
		return -ENOMEM;
	l->config = *config;
	if (!l->config.first_ms)
		l->config.first_ms = FIRST_MS;
	pthread_mutex_init(&l->lock, NULL);
	*ret = l;
	return 0;
}

void remote_late_close(struct remote_late *l)
{
	if (!l)
		return;
	sbx_loop_timer_cancel(l->config.loop, &l->timer);
	while (l->names) {
		struct name *n = l->names;

		l->names = n->next;
		free(n);
	}
	pthread_mutex_destroy(&l->lock);
	free(l);
}

/* --- names ------------------------------------------------------------------------------------
 */

/* Lock held. */
static struct name **place_of(struct remote_late *l, const char *text)
{
	struct name **at = &l->names;

	while (*at && strcmp((*at)->text, text) != 0)
		at = &(*at)->next;
	return at;
}

/* One that is there already is noted anew. Lock held. */
static void add(struct remote_late *l, const char *text, int64_t noted_ms)
{
	const size_t size = strlen(text) + 1;
	struct name **at = place_of(l, text);

	if (!*at) {
		*at = calloc(1, sizeof(**at) + size);
		if (!*at)
			abort();
		memcpy((*at)->text, text, size);
	}
	(*at)->noted_ms = noted_ms;
}

static void drop(struct remote_late *l, const char *text)
{
	_cleanup_fd_ int dir = sbx_dir_open(l->config.state, "late");
	struct name **at;

	if (dir >= 0)
		unlinkat(dir, text, 0);
	pthread_mutex_lock(&l->lock);
	at = place_of(l, text);
	if (*at) {
		struct name *n = *at;

		*at = n->next;
		free(n);
	}
	pthread_mutex_unlock(&l->lock);
}

/* Creates the file, or gives it the present time, durably. What fails is told by nobody. */
static void write_down(struct remote_late *l, const char *text)
{
	_cleanup_fd_ int dir = sbx_dir_make(l->config.state, "late", 0700);
	_cleanup_fd_ int fd =
	        dir < 0 ? -1 : openat(dir, text, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0)
		return;
	futimens(fd, NULL);
	fsync(fd);
	fsync(dir);
}

/* --- looking ----------------------------------------------------------------------------------
 */

static int meet(const char *text, const char *handle, int64_t made_ms, void *data)
{
	struct remote_late *l = data;
	const struct remote_late_config *c = &l->config;
	bool noted;

	(void)made_ms;
	pthread_mutex_lock(&l->lock);
	noted = *place_of(l, text) != NULL;
	pthread_mutex_unlock(&l->lock);
	if (!noted || c->used(text, c->data) ||
	    c->provider->impl->unmake(c->provider, text, handle, c->ending, NULL) < 0)
		return atomic_load(c->ending);
	drop(l, text);
	c->removed(text, c->data);
	return 0;
}

/* The name of one whose time is over; the caller's. NULL: there is none. */
static char *next_over(struct remote_late *l)
{
	const int64_t now = sbx_real_ms();
	char *text = NULL;

	pthread_mutex_lock(&l->lock);
	for (struct name *n = l->names; n && !text; n = n->next)
		if (now - n->noted_ms > OVER_MS || n->noted_ms - now > OVER_MS)
			text = strdup(n->text);
	pthread_mutex_unlock(&l->lock);
	return text;
}

/* [wait] What its time ends is looked for once more before. */
static void look_work(void *data)
{
	struct remote_late *l = data;
	const struct remote_late_config *c = &l->config;
	char *over;

	if (c->provider->impl->find(c->provider, c->label, meet, l, NULL) == 0)
		while ((over = next_over(l))) {
			drop(l, over);
			free(over);
		}
	pthread_mutex_lock(&l->lock);
	l->looking = false;
	pthread_mutex_unlock(&l->lock);
}

/* [loop] */
static void on_timer(struct sbx_timer *t)
{
	struct remote_late *l = t->data;
	bool go;

	pthread_mutex_lock(&l->lock);
	go = l->names && !l->looking;
	l->looking |= go;
	l->pause_ms = 2 * l->pause_ms < LAST_MS ? 2 * l->pause_ms : LAST_MS;
	if (l->names)
		sbx_loop_timer_set(l->config.loop, t, l->pause_ms);
	pthread_mutex_unlock(&l->lock);
	if (go)
		sbx_pool_submit(l->config.pool, look_work, l);
}

/* [loop] */
static void arm(void *data)
{
	struct remote_late *l = data;

	pthread_mutex_lock(&l->lock);
	l->timer.fn = on_timer;
	l->timer.data = l;
	l->pause_ms = l->config.first_ms;
	sbx_loop_timer_set(l->config.loop, &l->timer, l->pause_ms);
	pthread_mutex_unlock(&l->lock);
}

static int read_one(const char *text, unsigned char type, void *data)
{
	struct remote_late *l = data;
	_cleanup_fd_ int dir = sbx_dir_open(l->config.state, "late");
	struct stat st;

	(void)type;
	if (dir >= 0 && fstatat(dir, text, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
		add(l, text, (int64_t)(sbx_timespec_ns(&st.st_mtim) / 1000000));
	return 0;
}

void remote_late_begin(struct remote_late *l)
{
	_cleanup_fd_ int dir = sbx_dir_open(l->config.state, "late");
	bool any;

	pthread_mutex_lock(&l->lock);
	if (dir >= 0)
		sbx_dir_scan(dir, read_one, l);
	any = l->names != NULL;
	pthread_mutex_unlock(&l->lock);
	if (any)
		sbx_loop_post(l->config.loop, arm, l);
}

void remote_late_note(struct remote_late *l, const char *name)
{
	write_down(l, name);
	pthread_mutex_lock(&l->lock);
	add(l, name, sbx_real_ms());
	pthread_mutex_unlock(&l->lock);
	sbx_loop_post(l->config.loop, arm, l);
}
