/*
 * A queue and one thread. Whoever waits for the queue to be empty writes what is left of it as
 * well.
 *
 * libgit2 holds a lock of the odb while it writes an object, and looks through the packs anew for
 * each that is not there yet. So an object goes straight to the backend that writes, where it is
 * known which one that is: the first, if it can. What another backend has may so be written twice.
 */
#include "backends/git/object_writer.h"

#include <assert.h>
#include <errno.h>
#include <git2/sys/odb_backend.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "backends/git/durable.h"
#include "backends/git/git_impl.h"
#include "backends/git/import_objects.h"

#define ROOM ((size_t)8 << 20) /* bytes that wait to be written */

struct object {
	struct object *next;
	git_oid oid;
	git_object_t type;
	size_t len;
	const char *name; /* behind the data */
	char data[];
};

struct sbx_object_writer {
	git_odb *odb;
	git_odb_backend *straight; /* of ODB; NULL: not known */
	const char *common;
	pthread_t thread;
	bool started;
	pthread_mutex_t lock; /* all below */
	pthread_cond_t more, done;
	struct object *head, **tail;
	size_t queued;             /* bytes */
	unsigned busy;             /* objects that are being written */
	bool unsynced;             /* the thread has written some that nobody has waited for */
	int fds[SBX_GIT_TOGETHER]; /* those, when the thread has handed them over */
	unsigned n;
	bool waited, ending;
	int r;
	struct sbx_error err;
};

static void fail(struct sbx_object_writer *w, int r, const struct sbx_error *err)
{
	if (w->r)
		return;
	w->r = r;
	w->err = *err;
}

static int write_object(struct sbx_object_writer *w, const struct object *o)
{
	git_odb_backend *b = w->straight;
	git_oid oid;

	if (!b)
		return git_odb_write(&oid, w->odb, o->data, o->len, o->type);
	return SBX_GIT(b->freshen(b, &o->oid)) == 0
	               ? 0
	               : SBX_GIT(b->write(b, &o->oid, o->data, o->len, o->type));
}

/* Lock held, and again afterwards. */
static void write_next(struct sbx_object_writer *w)
{
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_git_owner owner = {0};
	struct object *o = w->head;
	int r = w->r;

	assert(o && w->queued >= o->len);
	w->head = o->next;
	if (!w->head)
		w->tail = &w->head;
	w->busy++;
	pthread_mutex_unlock(&w->lock);
	if (!r) {
		if (w->common)
			owner = sbx_git_owner_begin(w->common);
		r = write_object(w, o);
		sbx_git_owner_end(&owner);
		if (r)
			r = sbx_git_fail(&err, r, "cannot record %s", o->name);
	}
	pthread_mutex_lock(&w->lock);
	fail(w, r, &err);
	w->busy--;
	w->queued -= o->len;
	free(o);
	pthread_cond_broadcast(&w->done);
}

/* Lock held. */
static void hand_over(struct sbx_object_writer *w)
{
	assert(!w->n);
	w->n = sbx_git_durable_take(w->fds);
	w->unsynced = false;
	pthread_cond_broadcast(&w->done);
}

static void *writer_main(void *data)
{
	struct sbx_object_writer *w = data;

	sbx_git_durable_begin();
	pthread_mutex_lock(&w->lock);
	while (!w->ending) {
		if (w->head) {
			w->unsynced = true;
			write_next(w);
		} else if (w->unsynced && w->waited) {
			hand_over(w);
		} else {
			pthread_cond_wait(&w->more, &w->lock);
		}
	}
	pthread_mutex_unlock(&w->lock);
	sbx_git_durable_end();
	return NULL;
}

int sbx_object_writer_open(git_odb *odb, const char *common, struct sbx_object_writer **ret)
{
	struct sbx_object_writer *w = calloc(1, sizeof(*w));

	if (!w)
		return -ENOMEM;
	w->odb = odb;
	w->common = common;
	if (git_odb_get_backend(&w->straight, odb, 0) || !w->straight->write ||
	    !w->straight->freshen)
		w->straight = NULL;
	w->tail = &w->head;
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->more, NULL);
	pthread_cond_init(&w->done, NULL);
	*ret = w;
	return 0;
}

void sbx_object_writer_close(struct sbx_object_writer *w)
{
	struct object *o;

	if (!w)
		return;
	pthread_mutex_lock(&w->lock);
	w->ending = true;
	pthread_cond_signal(&w->more);
	pthread_mutex_unlock(&w->lock);
	if (w->started)
		pthread_join(w->thread, NULL);
	assert(!w->busy && !w->n);
	while ((o = w->head)) {
		w->head = o->next;
		free(o);
	}
	pthread_cond_destroy(&w->done);
	pthread_cond_destroy(&w->more);
	pthread_mutex_destroy(&w->lock);
	free(w);
}

static struct object *new_object(git_object_t type, const void *data, size_t len, const char *name)
{
	const size_t n = strlen(name) + 1;
	struct object *o = malloc(sizeof(*o) + len + n);

	if (!o)
		return NULL;
	*o = (struct object){.type = type, .len = len, .name = o->data + len};
	memcpy(o->data, data, len);
	memcpy(o->data + len, name, n);
	return o;
}

int sbx_object_writer_put(struct sbx_object_writer *w, git_object_t type, const void *data,
                          size_t len, const char *name, git_oid *ret)
{
	struct object *o = new_object(type, data, len, name);

	if (!o || git_odb_hash(&o->oid, data, len, type)) {
		free(o);
		return -ENOMEM;
	}
	*ret = o->oid;
	/* Without a thread it is written by wait, or here where there is no room. */
	if (!w->started)
		w->started = pthread_create(&w->thread, NULL, writer_main, w) == 0;
	pthread_mutex_lock(&w->lock);
	*w->tail = o;
	w->tail = &o->next;
	w->queued += len;
	pthread_cond_signal(&w->more);
	while (w->queued > ROOM && w->head)
		write_next(w);
	pthread_mutex_unlock(&w->lock);
	return 0;
}

int sbx_object_writer_wait(struct sbx_object_writer *w, struct sbx_error *err)
{
	struct sbx_error unwritten = SBX_ERROR_INIT;
	int fds[SBX_GIT_TOGETHER], r, written;
	unsigned n;

	pthread_mutex_lock(&w->lock);
	w->waited = true;
	while (w->head)
		write_next(w);
	pthread_cond_signal(&w->more);
	while (w->busy || w->unsynced)
		pthread_cond_wait(&w->done, &w->lock);
	w->waited = false;
	n = w->n;
	memcpy(fds, w->fds, n * sizeof(*fds));
	w->n = 0;
	pthread_mutex_unlock(&w->lock);
	written = sbx_git_durable_give(fds, n);
	if (written)
		sbx_fail(&unwritten, -written, "cannot write the objects: %s", strerror(-written));
	pthread_mutex_lock(&w->lock);
	fail(w, written, &unwritten);
	r = w->r;
	if (r && err)
		*err = w->err;
	pthread_mutex_unlock(&w->lock);
	return r;
}
