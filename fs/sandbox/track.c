/*
 * -o track: what each command changes. The tree is marked before it starts and when it has ended;
 * what lies between is its diff, and the first is where undo goes back to. What the ignore rules
 * name is no part of it. Commands that overlap share what happened meanwhile: it is in the diff of
 * each.
 *
 * Marks have the names of a few places, which are used again and again, so that they never pile up,
 * not even those of a daemon that was killed. A place is given up to the next command when it is
 * the oldest whose command has ended.
 */
#include "fs/sandbox/track.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fs/sandbox/backend_work.h"
#include "fs/sandbox/registry.h"
#include "fs/sandbox/registry_impl.h"
#include "fs/util/name_status.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/strv.h"

#define NAMES_MAX (1024 * 1024) /* bytes of the paths that a job keeps */

static struct box *box_of(struct sbx_box *pub)
{
	return sbx_container_of(pub, struct box, pub);
}

static bool tracks(struct sbx_box *pub)
{
	return pub->registry->config.settings->track && sbx_has_history(pub->sandbox);
}

static void place_name(char name[SBX_REV_MAX], unsigned place, const char *when)
{
	snprintf(name, SBX_REV_MAX, "job-%u-%s", place, when);
}

/* Places; the registry's lock is held. */

static struct tracked *place_of(struct box *box, uint64_t number)
{
	for (unsigned i = 0; number && i < TRACKED; i++)
		if (box->tracked[i].number == number)
			return &box->tracked[i];
	return NULL;
}

/* One that is not in use, the oldest; NULL: all are. */
static struct tracked *take_place(struct box *box)
{
	struct tracked *best = NULL;

	for (unsigned i = 0; i < TRACKED; i++) {
		struct tracked *t = &box->tracked[i];

		if (!t->running && (!best || t->number < best->number))
			best = t;
	}
	if (best)
		*best = (struct tracked){.number = ++box->tracked_numbers, .running = true};
	return best;
}

static unsigned place_index(struct box *box, const struct tracked *t)
{
	return (unsigned)(t - box->tracked);
}

/* Before */

/* [pool] */
static int mark_before(struct sbx_work *w, struct sbx_error *err)
{
	struct sbx_track_start *start = sbx_container_of(w, struct sbx_track_start, work);
	char name[SBX_REV_MAX], id[SBX_REV_MAX];
	const struct sbx_snapshot_options options = {.mark = name, .cancelled = &w->cancelled};

	assert(start->place < TRACKED);
	place_name(name, start->place, "before");
	return sbx_history_snapshot(w->box->sandbox, &options, id, err);
}

/* But not where it was given up, or the sandbox is going. */
static void tell_failure(struct sbx_work *w)
{
	if (atomic_load(&w->cancelled) || sbx_jobs_stopping(w->box->jobs))
		return;
	sbx_error_store(w->box->registry, w->box, &w->err);
	sbx_box_event(w->box->registry, box_of(w->box), "track_failed", w->err.text);
}

/* [loop] A command that cannot be tracked runs all the same. */
static void marked_before(struct sbx_work *w)
{
	struct sbx_track_start *start = sbx_container_of(w, struct sbx_track_start, work);

	if (w->code < 0) {
		sbx_box_track_drop(w->box, start->number);
		start->number = 0;
		tell_failure(w);
	}
	start->then(start->data);
}

/* [loop, any] */
static void mark_first(void *data)
{
	struct sbx_track_start *start = data;

	sbx_box_work(start->box, &start->work);
}

bool sbx_box_track_begin(struct sbx_box *pub, struct sbx_track_start *start,
                         void (*then)(void *data), void *data)
{
	struct box *box = box_of(pub);
	struct tracked *t = NULL;

	*start = (struct sbx_track_start){.box = pub, .then = then, .data = data};
	if (tracks(pub)) {
		pthread_mutex_lock(&pub->registry->lock);
		t = take_place(box);
		if (t) {
			start->number = t->number;
			start->place = place_index(box, t);
		}
		pthread_mutex_unlock(&pub->registry->lock);
	}
	if (!t)
		return sbx_box_sync(pub, then, data);
	start->work.run = mark_before;
	start->work.done = marked_before;
	/* What git's state is by then is marked too. */
	if (!sbx_box_sync(pub, mark_first, start))
		mark_first(start);
	return true;
}

void sbx_box_track_drop(struct sbx_box *pub, uint64_t number)
{
	struct tracked *t;

	pthread_mutex_lock(&pub->registry->lock);
	t = place_of(box_of(pub), number);
	if (t)
		*t = (struct tracked){0};
	pthread_mutex_unlock(&pub->registry->lock);
}

/* After */

struct ending {
	struct sbx_work work;
	struct sbx_box *box;
	struct sbx_jobrec *rec; /* a reference */
	unsigned place;
	struct sbx_strings changed;
	bool cut;
	void (*then)(void *arg);
	void *arg;
};

static int read_names(struct ending *e, int fd)
{
	_cleanup_free_ char *text = malloc(NAMES_MAX);
	ssize_t n = text ? pread(fd, text, NAMES_MAX, 0) : -1;

	if (n < 0)
		return text ? -errno : -ENOMEM;
	/* Not NULL: nothing was changed, which is known. */
	e->changed.items = calloc(1, sizeof(char *));
	if (!e->changed.items)
		return -ENOMEM;
	e->cut = n == NAMES_MAX;
	return sbx_names_read(text, (size_t)n, &e->changed);
}

/* [pool] */
static int mark_after(struct sbx_work *w, struct sbx_error *err)
{
	struct ending *e = sbx_container_of(w, struct ending, work);
	char name[SBX_REV_MAX], from[SBX_REV_MAX + 8], to[SBX_REV_MAX];
	const struct sbx_snapshot_options options = {.mark = name, .cancelled = &w->cancelled};
	const struct sbx_diff_options diff = {
	        .from = from, .to = to, .format = SBX_DIFF_NAMES, .cancelled = &w->cancelled};
	_cleanup_fd_ int fd = memfd_create("sandboxfs-names", MFD_CLOEXEC);
	int r;

	assert(e->place < TRACKED);
	if (fd < 0)
		return sbx_fail(err, errno, "what changed cannot be kept: %s", strerror(errno));
	place_name(name, e->place, "after");
	r = sbx_history_snapshot(w->box->sandbox, &options, to, err);
	if (r < 0)
		return r;
	place_name(name, e->place, "before");
	snprintf(from, sizeof(from), "mark:%s", name);
	r = sbx_history_diff(w->box->sandbox, &diff, fd, err);
	return r < 0 ? r : read_names(e, fd);
}

/* [loop] */
static void marked_after(struct sbx_work *w)
{
	struct ending *e = sbx_container_of(w, struct ending, work);
	struct box *box = box_of(w->box);

	pthread_mutex_lock(&w->box->registry->lock);
	assert(box->tracked[e->place].running);
	box->tracked[e->place].running = false;
	box->tracked[e->place].ended = w->code >= 0;
	pthread_mutex_unlock(&w->box->registry->lock);
	if (w->code < 0) {
		sbx_strings_release(&e->changed);
		tell_failure(w);
	} else {
		sbx_job_set_changed(e->rec, e->changed.items, e->cut);
	}
	e->then(e->arg);
	sbx_job_unref(e->rec);
	free(e);
}

/* [loop] */
static void mark_last(void *data)
{
	struct ending *e = data;

	sbx_box_work(e->box, &e->work);
}

bool sbx_box_track_end(struct sbx_box *pub, struct sbx_jobrec *rec, bool failed,
                       void (*then)(void *arg), void *arg)
{
	const uint64_t number = sbx_job_track(rec);
	struct box *box = box_of(pub);
	struct ending *e;

	if (failed)
		sbx_box_track_drop(pub, number);
	if (failed || !number)
		return sbx_box_sync(pub, then, arg);
	e = sbx_must_alloc(sizeof(*e));
	*e = (struct ending){.box = pub, .rec = sbx_job_ref(rec), .then = then, .arg = arg};
	e->work.run = mark_after;
	e->work.done = marked_after;
	pthread_mutex_lock(&pub->registry->lock);
	e->place = place_index(box, place_of(box, number));
	pthread_mutex_unlock(&pub->registry->lock);
	if (!sbx_box_sync(pub, mark_last, e))
		mark_last(e);
	return true;
}

/* What is known of them */

static int not_kept(const char *name, struct sbx_error *err)
{
	return sbx_fail(err, ENOENT,
	                "what job %.70s changed is not known: it has not run, or is not among the "
	                "last %u",
	                name, TRACKED);
}

int sbx_box_track_marks(struct sbx_box *pub, struct sbx_jobrec *rec, char from[SBX_REV_MAX],
                        char to[SBX_REV_MAX], struct sbx_error *err)
{
	struct box *box = box_of(pub);
	struct tracked *t;
	bool ended = false;
	unsigned place = 0;

	pthread_mutex_lock(&pub->registry->lock);
	t = place_of(box, sbx_job_track(rec));
	if (t) {
		place = place_index(box, t);
		ended = t->ended;
	}
	pthread_mutex_unlock(&pub->registry->lock);
	if (!t)
		return not_kept(sbx_job_name(rec), err);
	snprintf(from, SBX_REV_MAX, "mark:job-%u-before", place);
	to[0] = '\0';
	if (ended)
		snprintf(to, SBX_REV_MAX, "mark:job-%u-after", place);
	return 0;
}

/* The youngest that was not undone. The lock is held. */
static struct tracked *last_place(struct box *box)
{
	struct tracked *best = NULL;

	for (unsigned i = 0; i < TRACKED; i++) {
		struct tracked *t = &box->tracked[i];

		if (t->number && !t->undone && (!best || t->number > best->number))
			best = t;
	}
	return best;
}

int sbx_box_track_undo(struct sbx_box *pub, const char *job, atomic_bool *cancelled,
                       struct sbx_error *err)
{
	struct box *box = box_of(pub);
	struct sbx_jobrec *rec = job ? sbx_job_find(pub->jobs, job) : NULL;
	char rev[SBX_REV_MAX];
	struct tracked *t;
	uint64_t number = 0;
	int r;

	pthread_mutex_lock(&pub->registry->lock);
	t = job ? place_of(box, rec ? sbx_job_track(rec) : 0) : last_place(box);
	if (t) {
		number = t->number;
		snprintf(rev, sizeof(rev), "mark:job-%u-before", place_index(box, t));
	}
	pthread_mutex_unlock(&pub->registry->lock);
	sbx_job_unref(rec);
	if (!t)
		return job ? not_kept(job, err) : sbx_fail(err, ENOENT, "there is nothing to undo");
	r = sbx_history_restore(pub->sandbox, rev, cancelled, err);
	if (r < 0)
		return r;
	pthread_mutex_lock(&pub->registry->lock);
	for (unsigned i = 0; i < TRACKED; i++)
		if (box->tracked[i].number >= number)
			box->tracked[i].undone = true;
	pthread_mutex_unlock(&pub->registry->lock);
	return 0;
}
