#include "tests/lib/faults.h"

#include <assert.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sandboxfs/cleanup.h"

struct wrapped {
	struct sbx_sandbox base; /* its strings belong to inner */
	struct sbx_sandbox_impl impl;
	struct sbx_sandbox *inner;
	struct faults *f;
	atomic_bool used; /* by a [pool] call, which no other may overlap */
};

static struct wrapped *downcast(struct sbx_sandbox *sb)
{
	return (struct wrapped *)sb;
}

static struct sbx_sandbox *inner_of(struct sbx_sandbox *sb)
{
	return downcast(sb)->inner;
}

void faults_fail(struct faults *f, enum fault op, int n, int many, int code)
{
	struct fault_point *p = &f->points[op];

	pthread_mutex_lock(&f->lock);
	p->spared = n - 1;
	p->failing = many;
	p->code = code;
	pthread_mutex_unlock(&f->lock);
}

static void set_gate(struct faults *f, enum fault op, int gate)
{
	pthread_mutex_lock(&f->lock);
	f->points[op].gate = gate;
	pthread_cond_broadcast(&f->changed);
	pthread_mutex_unlock(&f->lock);
}

void faults_hold(struct faults *f, enum fault op)
{
	set_gate(f, op, CLOSED);
}

void faults_let_go(struct faults *f, enum fault op)
{
	set_gate(f, op, OPEN);
}

void faults_await(struct faults *f, enum fault op)
{
	struct timespec limit;
	int r = 0;

	clock_gettime(CLOCK_REALTIME, &limit);
	limit.tv_sec += 20;
	pthread_mutex_lock(&f->lock);
	while (!r && f->points[op].gate == CLOSED)
		r = pthread_cond_timedwait(&f->changed, &f->lock, &limit);
	pthread_mutex_unlock(&f->lock);
	assert(!r);
}

int faults_calls(struct faults *f, enum fault op)
{
	int calls;

	pthread_mutex_lock(&f->lock);
	calls = f->points[op].calls;
	pthread_mutex_unlock(&f->lock);
	return calls;
}

const char *faults_asked(struct faults *f, enum fault op)
{
	return f->points[op].asked;
}

/* 0: the call goes on to the inner backend. */
static int pass(struct faults *f, enum fault op, struct sbx_error *err)
{
	static const char *const names[FAULTS] = {
	        "creating", "renaming", "retiring",  "removing",  "hurrying",  "discarding",
	        "saving",   "saving",   "recording", "restoring", "comparing", "reading"};
	struct fault_point *p = &f->points[op];
	int code = 0;

	pthread_mutex_lock(&f->lock);
	p->calls++;
	if (p->gate == CLOSED) {
		p->gate = OCCUPIED;
		pthread_cond_broadcast(&f->changed);
		while (p->gate == OCCUPIED)
			pthread_cond_wait(&f->changed, &f->lock);
	}
	if (p->spared > 0)
		p->spared--;
	else if (p->failing > 0 && p->failing--)
		code = p->code;
	pthread_mutex_unlock(&f->lock);
	return code ? sbx_fail(err, code, "%s was refused", names[op]) : 0;
}

static int enter(struct wrapped *w, enum fault op, struct sbx_error *err)
{
	const bool overlaps = atomic_exchange(&w->used, true);
	int r = pass(w->f, op, err);

	assert(!overlaps);
	if (r)
		atomic_store(&w->used, false);
	return r;
}

static int leave(struct wrapped *w, enum fault op, int r)
{
	atomic_store(&w->used, false);
	if (op == RENAME)
		w->base.name = w->inner->name;
	if (op == REMOVE && r >= 0)
		atomic_fetch_sub(&w->f->sandboxes, 1);
	if (atomic_load(&w->inner->anchored))
		atomic_store(&w->base.anchored, true);
	return r;
}

/* Snapshots: abcd, and the number or a part of it. */
static const char *plain(struct sbx_sandbox *sb, const char *rev)
{
	struct faults *f = downcast(sb)->f;
	size_t n = rev && strncmp(rev, "abcd", 4) == 0 ? strtoul(rev + 4, NULL, 16) : f->nids + 1;

	n += n == 0;
	return n <= f->nids ? f->ids[n - 1] : rev;
}

/* Of what goes through, and of what is a point. */
#define FORWARD(type, name, args, call)                                                            \
	static type do_##name args                                                                 \
	{                                                                                          \
		return call;                                                                       \
	}
#define GUARD(op, name, args, call)                                                                \
	static int do_##name args                                                                  \
	{                                                                                          \
		int r = enter(downcast(sb), op, err);                                              \
                                                                                                   \
		return r ? r : leave(downcast(sb), op, call);                                      \
	}

#define SANDBOX struct sbx_sandbox *sb
#define ERROR   struct sbx_error *err

FORWARD(int, root, (SANDBOX), sbx_sandbox_root(inner_of(sb)))

static void do_info(SANDBOX, struct json_object *obj)
{
	const struct played_away *away = downcast(sb)->f->away;

	sbx_sandbox_info(inner_of(sb), obj);
	if (away && away->state)
		json_object_object_add(obj, "state", json_object_new_string(away->state));
}

FORWARD(void, policy, (SANDBOX, struct json_object *obj), sbx_sandbox_policy(inner_of(sb), obj))
GUARD(RENAME, rename, (SANDBOX, const char *name, ERROR),
      sbx_sandbox_rename(inner_of(sb), name, err))
GUARD(RETIRE, retire, (SANDBOX, ERROR), sbx_sandbox_retire(inner_of(sb), err))
GUARD(REMOVE, remove, (SANDBOX, ERROR), sbx_sandbox_remove(inner_of(sb), err))

static void do_close(struct sbx_sandbox *sb)
{
	atomic_fetch_sub(&downcast(sb)->f->objects, 1);
	sbx_sandbox_close(inner_of(sb));
	free(sb);
}

FORWARD(int, exec, (SANDBOX, const struct sbx_exec *spec, struct sbx_job *job, ERROR),
        inner_of(sb)->impl->commands->exec(inner_of(sb), spec, job, err))
FORWARD(void, signal, (struct sbx_job * job, int sig),
        inner_of(job->sandbox)->impl->commands->signal(job, sig))
FORWARD(bool, takes, (SANDBOX, int sig), sbx_sandbox_takes(inner_of(sb), sig))
FORWARD(bool, alone, (SANDBOX), sbx_sandbox_alone(inner_of(sb)))
FORWARD(uint64_t, output_max, (SANDBOX), sbx_sandbox_output_max(inner_of(sb)))
FORWARD(bool, stale, (SANDBOX), sbx_sandbox_stale(inner_of(sb)))
FORWARD(int, sync, (SANDBOX, ERROR), sbx_sandbox_sync(inner_of(sb), err))

static void do_hurry(struct sbx_sandbox *sb, unsigned ms)
{
	if (ms)
		pass(downcast(sb)->f, HURRY, NULL);
	sbx_sandbox_hurry(inner_of(sb), ms);
}

static int pass_barrier(struct sbx_sandbox *sb, bool now, struct sbx_error *err)
{
	struct sbx_sandbox *inner = inner_of(sb);
	const bool busy = atomic_load(&sb->busy);

	snprintf(downcast(sb)->f->points[BARRIER].asked, 5, "%s", busy ? "busy" : "idle");
	atomic_store(&inner->busy, busy);
	return sbx_sandbox_barrier(inner, now, err);
}

GUARD(now ? BARRIER_NOW : BARRIER, barrier, (SANDBOX, bool now, ERROR), pass_barrier(sb, now, err))
FORWARD(int, resize, (SANDBOX, uint64_t mb, ERROR), sbx_sandbox_resize(inner_of(sb), mb, err))
FORWARD(void, before_write, (SANDBOX, int dirfd, const char *name),
        sbx_sandbox_before_write(inner_of(sb), dirfd, name))
FORWARD(bool, make_room, (SANDBOX), sbx_sandbox_make_room(inner_of(sb)))

static void do_discard(struct sbx_sandbox *sb)
{
	pass(downcast(sb)->f, DISCARD, NULL);
	faults_mend(downcast(sb)->f, REMOVE);
	sbx_sandbox_discard(inner_of(sb));
}

static int take_snapshot(struct wrapped *w, const struct sbx_snapshot_options *options,
                         char id[SBX_REV_MAX], struct sbx_error *err)
{
	struct faults *f = w->f;
	int r = sbx_history_snapshot(w->inner, options, id, err);

	if (r || options->mark)
		return r;
	assert(f->nids < SBX_ARRAY_SIZE(f->ids));
	memcpy(f->ids[f->nids++], id, SBX_REV_MAX);
	snprintf(id, SBX_REV_MAX, "abcd%04zx", f->nids);
	snprintf(f->points[SNAPSHOT].asked, 256, "%s|%s|%d",
	         options->message ? options->message : "-", options->author ? options->author : "-",
	         options->ignored);
	return 0;
}

struct listing {
	struct faults *f;
	int (*fn)(const struct sbx_snapshot *s, void *data);
	void *data;
};

static int list_one(const struct sbx_snapshot *s, void *data)
{
	const struct listing *l = data;
	struct sbx_snapshot told = *s;
	char id[SBX_REV_MAX];

	for (size_t i = 0; i < l->f->nids; i++)
		if (strcmp(l->f->ids[i], s->id) == 0) {
			snprintf(id, sizeof(id), "abcd%04zx", i + 1);
			told.id = id;
		}
	return l->fn(&told, l->data);
}

static int compare(struct sbx_sandbox *sb, struct sbx_diff_options options, int fd,
                   struct sbx_error *err)
{
	options.from = plain(sb, options.from);
	options.to = plain(sb, options.to);
	return sbx_history_diff(inner_of(sb), &options, fd, err);
}

GUARD(SNAPSHOT, snapshot,
      (SANDBOX, const struct sbx_snapshot_options *options, char id[SBX_REV_MAX], ERROR),
      take_snapshot(downcast(sb), options, id, err))
FORWARD(int, forget, (SANDBOX, const char *name, ERROR),
        sbx_history_forget(inner_of(sb), name, err))
FORWARD(int, list,
        (SANDBOX, int (*fn)(const struct sbx_snapshot *s, void *data), void *data, ERROR),
        sbx_history_list(inner_of(sb), list_one, &(struct listing){downcast(sb)->f, fn, data}, err))
GUARD(RESTORE, restore, (SANDBOX, const char *rev, atomic_bool *cancelled, ERROR),
      sbx_history_restore(inner_of(sb), plain(sb, rev), cancelled, err))
GUARD(DIFF, diff, (SANDBOX, const struct sbx_diff_options *options, int fd, ERROR),
      compare(sb, *options, fd, err))
FORWARD(int, tree, (SANDBOX, const char *rev, struct sbx_object *ret, ERROR),
        sbx_history_tree(inner_of(sb), plain(sb, rev), ret, err))
FORWARD(int, entry, (SANDBOX, const char *dir, const char *name, struct sbx_object *ret),
        sbx_history_entry(inner_of(sb), dir, name, ret))
FORWARD(int, entries,
        (SANDBOX, const char *dir, int (*fn)(const char *name, const struct sbx_object *o, void *),
         void *data),
        sbx_history_entries(inner_of(sb), dir, fn, data))

static int do_content(struct sbx_sandbox *sb, const char *id, int fd)
{
	int r = enter(downcast(sb), CONTENT, NULL);

	return r ? r : leave(downcast(sb), CONTENT, sbx_history_content(inner_of(sb), id, fd));
}

static const struct sbx_command_impl commands = {do_exec,       do_signal, do_takes, do_alone,
                                                 do_output_max, do_stale,  do_sync,  do_hurry};
static const struct sbx_storage_impl storage = {do_barrier, do_resize, do_before_write,
                                                do_make_room, do_discard};
static const struct sbx_history_impl history = {do_snapshot, do_forget,  do_list,
                                                do_restore,  do_diff,    do_tree,
                                                do_entry,    do_entries, do_content};

static struct sbx_sandbox *wrap(struct faults *f, struct sbx_sandbox *inner)
{
	struct wrapped *w = malloc(sizeof(*w));

	assert(w);
	*w = (struct wrapped){
	        .base = *inner,
	        .impl = {do_root, do_info, do_policy, do_rename, do_retire, do_remove, do_close,
	                 .commands = inner->impl->commands ? &commands : NULL, .storage = &storage,
	                 .history = inner->impl->history ? &history : NULL},
	        .inner = inner,
	        .f = f};
	w->base.impl = &w->impl;
	if (f->away) {
		w->impl.away = &played_away_impl;
		w->base.turn = &f->away->turn;
	}
	atomic_fetch_add(&f->sandboxes, 1);
	atomic_fetch_add(&f->objects, 1);
	return &w->base;
}

static int do_create(struct sbx_backend *base, const struct sbx_create *req,
                     struct sbx_sandbox **ret, struct sbx_error *err)
{
	struct faults *f = sbx_container_of(base, struct faults, base);
	struct sbx_origin o = req->origin;
	struct sbx_create inner = *req;
	int r = pass(f, CREATE, err);

	snprintf(f->points[CREATE].asked, 256, "%s|%s|%s|%s", o.sandbox ? o.sandbox->name : "-",
	         o.rev ? o.rev : "-", o.entry ? o.entry : "-", req->branch ? req->branch : "-");
	if (o.sandbox) {
		inner.origin.rev = plain(o.sandbox, o.rev);
		inner.origin.sandbox = inner_of(o.sandbox);
	}
	r = r ? r : sbx_backend_create(f->inner, &inner, ret, err);
	if (r)
		return r;
	*ret = f->made = wrap(f, *ret);
	return 0;
}

static int do_recover(struct sbx_backend *base, const struct sbx_recover *r, struct sbx_error *err)
{
	struct faults *f = sbx_container_of(base, struct faults, base);
	int code = sbx_backend_recover(f->inner, r, err);

	for (size_t i = 0; !code && f->left[i]; i++) {
		r->note("something was left", r->data);
		r->found(f->left[i], r->data);
	}
	return code;
}

static int do_trash(struct sbx_backend *base, int (*fn)(const struct sbx_trash *t, void *data),
                    void *data, struct sbx_error *err)
{
	return sbx_backend_trash(sbx_container_of(base, struct faults, base)->inner, fn, data, err);
}

static void do_destroy(struct sbx_backend *base)
{
	struct faults *f = sbx_container_of(base, struct faults, base);

	sbx_backend_destroy(f->inner);
	pthread_cond_destroy(&f->changed);
	pthread_mutex_destroy(&f->lock);
}

struct sbx_sandbox *faults_leave(struct faults *f, const char *name)
{
	struct sbx_sandbox **left = f->left;

	while (*left)
		left++;
	assert(left < &f->left[SBX_ARRAY_SIZE(f->left) - 1]);
	if (sbx_backend_create(&f->base, &(struct sbx_create){.name = name}, left, NULL))
		abort();
	return *left;
}

void faults_wrap(struct faults *f, struct sbx_backend *inner)
{
	*f = (struct faults){.impl = {.name = inner->impl->name,
	                              .away = inner->impl->away,
	                              .forks_alone = inner->impl->forks_alone,
	                              .recover = do_recover,
	                              .create = do_create,
	                              .trash = do_trash,
	                              .destroy = do_destroy},
	                     .inner = inner};
	f->base.impl = &f->impl;
	pthread_mutex_init(&f->lock, NULL);
	pthread_cond_init(&f->changed, NULL);
}
