#include "tests/lib/fake_backend.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "sandboxfs/cleanup.h"
#include "tests/lib/fake_history.h"
#include "tests/lib/tmp.h"

/* cmocka.h needs these, and has no include guard for them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct fake_sandbox {
	struct sbx_sandbox base;
	struct fake_backend *backend;
	struct fake_history *history; /* or NULL */
	int fd;
};

struct fake_job {
	struct sbx_job *caller;
	struct fake_backend *backend;
	int root;
	char word[32];
	char text[4096];
	int sig;
	bool running, hang;
};

static char *must_print(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

static char *must_print(const char *fmt, ...)
{
	char *s = NULL;
	va_list ap;

	va_start(ap, fmt);
	assert_true(vasprintf(&s, fmt, ap) >= 0);
	va_end(ap);
	return s;
}

/* Commands; all on the loop thread but fake_exec */

static void job_free(void *data)
{
	struct fake_job *job = data;

	atomic_fetch_sub(&job->backend->jobs, 1);
	free(job);
}

static void finish_job(struct fake_job *job, enum sbx_end end, int code)
{
	struct sbx_exit exit = {.end = end, .code = code};

	if (end == SBX_END_FAILED)
		sbx_fail(&exit.error, code, "%s: no such program", job->word);
	job->running = false;
	if (job->backend->last == job)
		job->backend->last = NULL;
	job->caller->part = NULL;
	job->caller->events->ended(job->caller, &exit);
	/* A signal may be on its way. */
	sbx_loop_post(job->backend->loop, job_free, job);
}

/* "PATH TEXT": TEXT becomes all that the file holds. */
static void write_file(struct fake_job *job)
{
	const char *space = strchr(job->text, ' ');
	char path[128];
	int fd;

	assert_non_null(space);
	snprintf(path, sizeof(path), "%.*s", (int)(space - job->text), job->text);
	fd = openat(job->root, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	assert_true(fd >= 0);
	assert_true(write(fd, space + 1, strlen(space + 1)) > 0);
	close(fd);
}

static void run_job(void *data)
{
	struct fake_job *job = data;
	size_t len = strlen(job->text);

	if (strcmp(job->word, "missing") == 0) {
		finish_job(job, SBX_END_FAILED, ENOENT);
		return;
	}
	job->running = true;
	job->backend->last = job;
	job->caller->events->started(job->caller);
	if (strcmp(job->word, "echo") == 0 && len)
		job->caller->events->output(job->caller, 1, job->text, len);
	if (strcmp(job->word, "write") == 0)
		write_file(job);
	if (strcmp(job->word, "err") == 0 && len)
		job->caller->events->output(job->caller, 2, job->text, len);
	if (job->sig)
		finish_job(job, SBX_END_SIGNALED, job->sig);
	else if (!job->hang)
		finish_job(job, SBX_END_EXITED,
		           strcmp(job->word, "exit") == 0 ? atoi(job->text) : 0);
}

static void end_by_signal(void *data)
{
	struct fake_job *job = data;

	if (job->running)
		finish_job(job, SBX_END_SIGNALED, job->sig);
}

static void job_signal(struct sbx_job *caller, int sig)
{
	struct fake_job *job = caller->part;

	if (!job || job->sig)
		return;
	job->sig = sig;
	if (job->running)
		sbx_loop_post(job->backend->loop, end_by_signal, job);
}

static int fake_exec(struct sbx_sandbox *sb, const struct sbx_exec *spec, struct sbx_job *caller,
                     struct sbx_error *err)
{
	struct fake_sandbox *fake = sbx_container_of(sb, struct fake_sandbox, base);
	struct fake_job *job = calloc(1, sizeof(*job));
	size_t used = 0;

	(void)err;
	assert_non_null(job);
	*job = (struct fake_job){.caller = caller, .backend = fake->backend, .root = fake->fd};
	caller->part = job;
	snprintf(job->word, sizeof(job->word), "%s", spec->argv[0]);
	for (int i = 1; spec->argv[i]; i++)
		used += (size_t)snprintf(job->text + used, sizeof(job->text) - used, "%s%s",
		                         spec->argv[i], spec->argv[i + 1] ? " " : "\n");
	job->hang = strcmp(job->word, "hang") == 0 || strcmp(job->word, "slow") == 0;
	atomic_fetch_add(&fake->backend->jobs, 1);
	atomic_fetch_add(&fake->backend->execs, 1);
	sbx_loop_post(fake->backend->loop, run_job, job);
	return 0;
}

struct emission {
	struct fake_backend *b;
	char *text;
	int code;
};

static void emit(void *data)
{
	struct emission *e = data;
	struct fake_job *job = e->b->last;

	if (job && e->text)
		job->caller->events->output(job->caller, 1, e->text, strlen(e->text));
	else if (job)
		finish_job(job, SBX_END_EXITED, e->code);
	free(e->text);
	free(e);
}

static void post_emission(struct fake_backend *b, const char *text, int code)
{
	struct emission *e = calloc(1, sizeof(*e));

	assert_non_null(e);
	e->b = b;
	e->text = text ? must_print("%s", text) : NULL;
	e->code = code;
	sbx_loop_post(b->loop, emit, e);
}

void fake_job_output(struct fake_backend *b, const char *text)
{
	post_emission(b, text, 0);
}

void fake_job_end(struct fake_backend *b, int code)
{
	post_emission(b, NULL, code);
}

/* Sandboxes */

static int fake_root(struct sbx_sandbox *sb)
{
	return sbx_container_of(sb, struct fake_sandbox, base)->fd;
}

static int fake_rename(struct sbx_sandbox *sb, const char *name, struct sbx_error *err)
{
	struct fake_sandbox *fake = sbx_container_of(sb, struct fake_sandbox, base);
	int code = atomic_load(&fake->backend->rename_code);

	if (code)
		return sbx_fail(err, code, "renaming was refused");
	free(sb->name);
	sb->name = must_print("%s", name);
	return 0;
}

static int fake_retire(struct sbx_sandbox *sb, struct sbx_error *err)
{
	struct fake_sandbox *fake = sbx_container_of(sb, struct fake_sandbox, base);
	int code = atomic_load(&fake->backend->retire_code);

	return code ? sbx_fail(err, code, "retiring was refused") : 0;
}

static int fake_barrier(struct sbx_sandbox *sb, bool now, struct sbx_error *err)
{
	struct fake_sandbox *fake = sbx_container_of(sb, struct fake_sandbox, base);
	int code = atomic_load(&fake->backend->barrier_code);

	if (atomic_exchange(&fake->backend->hold_barrier, false)) {
		sem_post(&fake->backend->saving);
		sem_wait(&fake->backend->hold);
	}
	atomic_fetch_add(now ? &fake->backend->barriers_now : &fake->backend->barriers, 1);
	return code ? sbx_fail(err, code, "saving was refused") : 0;
}

static int drop(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

static int fake_remove(struct sbx_sandbox *sb, struct sbx_error *err)
{
	struct fake_backend *b = sbx_container_of(sb, struct fake_sandbox, base)->backend;

	if (atomic_load(&b->hold_remove)) {
		sem_post(&b->removing);
		while (sem_wait(&b->hold) < 0)
			;
	}
	if (atomic_load(&b->remove_failures) > 0) {
		atomic_fetch_sub(&b->remove_failures, 1);
		return sbx_fail(err, atomic_load(&b->remove_code), "removing was refused");
	}
	nftw(sb->workdir, drop, 16, FTW_DEPTH | FTW_PHYS);
	atomic_fetch_sub(&b->sandboxes, 1);
	return 0;
}

static void fake_hurry(struct sbx_sandbox *sb, unsigned ms)
{
	struct fake_backend *b = sbx_container_of(sb, struct fake_sandbox, base)->backend;

	atomic_fetch_add(&b->hurries, ms > 0);
}

static void fake_discard(struct sbx_sandbox *sb)
{
	struct fake_backend *b = sbx_container_of(sb, struct fake_sandbox, base)->backend;

	atomic_fetch_add(&b->discards, 1);
	atomic_store(&b->remove_failures, 0);
}

static void fake_close(struct sbx_sandbox *sb)
{
	struct fake_sandbox *fake = sbx_container_of(sb, struct fake_sandbox, base);

	atomic_fetch_sub(&fake->backend->objects, 1);
	close(fake->fd);
	fake_history_close(fake->history);
	free(sb->name);
	free(sb->id);
	free(sb->workdir);
	free(fake);
}

static int fake_resize(struct sbx_sandbox *sb, uint64_t mb, struct sbx_error *err)
{
	(void)sb;
	(void)mb;
	return sbx_fail(err, EOPNOTSUPP, "no limit of disk_mb");
}

static void fake_changing(struct sbx_sandbox *sb, int dirfd, const char *name)
{
	(void)sb;
	(void)dirfd;
	(void)name;
}

static bool fake_make_room(struct sbx_sandbox *sb)
{
	(void)sb;
	return false;
}

static const struct sbx_command_impl fake_commands = {
        .exec = fake_exec, .signal = job_signal, .hurry = fake_hurry};

static const struct sbx_storage_impl fake_storage = {
        .barrier = fake_barrier,
        .resize = fake_resize,
        .changing = fake_changing,
        .make_room = fake_make_room,
        .discard = fake_discard,
};

static const struct sbx_sandbox_impl fake_sandbox_impl = {
        .root = fake_root,
        .rename = fake_rename,
        .retire = fake_retire,
        .remove = fake_remove,
        .close = fake_close,
        .commands = &fake_commands,
        .storage = &fake_storage,
};

static const struct sbx_sandbox_impl remembering_impl = {
        .root = fake_root,
        .rename = fake_rename,
        .retire = fake_retire,
        .remove = fake_remove,
        .close = fake_close,
        .commands = &fake_commands,
        .storage = &fake_storage,
        .history = &fake_history_impl,
};

struct fake_history *fake_history_of(struct sbx_sandbox *sb)
{
	return sbx_container_of(sb, struct fake_sandbox, base)->history;
}

static struct sbx_sandbox *new_sandbox(struct fake_backend *b, const char *name)
{
	struct fake_sandbox *fake = calloc(1, sizeof(*fake));
	struct timespec now;

	assert_non_null(fake);
	clock_gettime(CLOCK_REALTIME, &now);
	fake->backend = b;
	fake->base.impl = &fake_sandbox_impl;
	fake->base.tree.owner = (struct sbx_identity){.uid = geteuid(), .gid = getegid()};
	fake->base.unsaved = b->unsaved;
	fake->base.created_ms = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
	fake->base.name = must_print("%s", name);
	fake->base.id = must_print("%s-%u", name, __atomic_add_fetch(&b->ids, 1, __ATOMIC_RELAXED));
	fake->base.workdir = must_print("%s/tree-%s", b->dir, fake->base.id);
	assert_int_equal(mkdir(fake->base.workdir, 0700), 0);
	fake->fd = open(fake->base.workdir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(fake->fd >= 0);
	atomic_fetch_add(&b->sandboxes, 1);
	atomic_fetch_add(&b->objects, 1);
	return &fake->base;
}

static void remember(struct sbx_sandbox *sb)
{
	struct fake_sandbox *fake = sbx_container_of(sb, struct fake_sandbox, base);

	fake->history = fake_history_open(fake->backend, sb->workdir);
	sb->impl = &remembering_impl;
}

static int fake_create(struct sbx_backend *base, const struct sbx_create *req,
                       struct sbx_sandbox **ret, struct sbx_error *err)
{
	struct fake_backend *b = sbx_container_of(base, struct fake_backend, base);
	struct sbx_sandbox *from = req->origin.sandbox, *sb;
	const char *rev = req->origin.rev;
	int code;

	if (atomic_load(&b->hold_create)) {
		sem_post(&b->creating);
		while (sem_wait(&b->hold) < 0)
			;
	}
	if (atomic_load(req->cancelled))
		return sbx_fail(err, EINTR, "creating %s was cancelled", req->name);
	code = atomic_load(&b->create_code);
	if (code)
		return sbx_fail(err, code, "creating was refused");
	snprintf(b->made_from, sizeof(b->made_from), "%s|%s|%s|%s", from ? from->name : "-",
	         rev ? rev : "-", req->origin.entry ? req->origin.entry : "-",
	         req->branch ? req->branch : "-");
	sb = new_sandbox(b, req->name);
	if (from && fake_history_copy(fake_history_of(from), rev, sb->workdir) < 0) {
		fake_remove(sb, NULL);
		fake_close(sb);
		return sbx_fail(err, ENOENT, "there is no snapshot %s", rev);
	}
	*ret = sb;
	if (b->history)
		remember(sb);
	return 0;
}

static int fake_trash(struct sbx_backend *base, int (*fn)(const struct sbx_trash *t, void *data),
                      void *data, struct sbx_error *err)
{
	struct fake_backend *b = sbx_container_of(base, struct fake_backend, base);
	int r = 0;

	(void)err;
	for (const struct sbx_trash *const *t = b->trashes; t && *t && r == 0; t++)
		r = fn(*t, data);
	return r;
}

static int fake_recover(struct sbx_backend *base, const struct sbx_recover *r,
                        struct sbx_error *err)
{
	struct fake_backend *b = sbx_container_of(base, struct fake_backend, base);

	(void)err;
	for (const char *const *name = b->found; name && *name; name++)
		r->found(new_sandbox(b, *name), r->data);
	if (b->found)
		r->note("swept the floor", r->data);
	return 0;
}

static void fake_destroy(struct sbx_backend *base)
{
	(void)base;
}

static const struct sbx_backend_impl fake_impl = {
        .name = "fake",
        .recover = fake_recover,
        .create = fake_create,
        .trash = fake_trash,
        .destroy = fake_destroy,
};

void fake_backend_init(struct fake_backend *b, struct sbx_loop *loop, const char *dir)
{
	memset(b, 0, sizeof(*b));
	b->base.impl = &fake_impl;
	b->loop = loop;
	b->dir = dir;
	sem_init(&b->creating, 0, 0);
	sem_init(&b->removing, 0, 0);
	sem_init(&b->remembering, 0, 0);
	sem_init(&b->saving, 0, 0);
	sem_init(&b->hold, 0, 0);
}

void fake_backend_finish(struct fake_backend *b)
{
	sem_destroy(&b->creating);
	sem_destroy(&b->removing);
	sem_destroy(&b->remembering);
	sem_destroy(&b->saving);
	sem_destroy(&b->hold);
}

/* The house */

static void invalidate(struct sbx_box *box, bool busy, void *data)
{
	struct house *h = data;

	assert_non_null(box);
	atomic_fetch_add(&h->busy, busy ? 1 : -1);
}

static void ignore_box(struct sbx_box *box, void *data)
{
	(void)box;
	(void)data;
}

static void ignore(void *data)
{
	(void)data;
}

static const struct sbx_observer observer = {
        .invalidate = invalidate, .wrote = ignore_box, .shown = ignore, .retired = ignore_box};

static void *loop_thread(void *data)
{
	sbx_loop_run(data);
	return NULL;
}

void house_start(struct house *h)
{
	assert_int_equal(pthread_create(&h->thread, NULL, loop_thread, h->loop), 0);
}

void house_open(struct house *h)
{
	memset(h, 0, sizeof(*h));
	assert_non_null(tmp_make(h->dir, sizeof(h->dir), "sandboxfs-test"));
	h->settings = (struct sbx_settings){
	        .backend = "fake",
	        .mountpoint = "/mnt/test",
	        .path = "/usr/bin:/bin",
	        .net = "none",
	        .isolation = "auto",
	        .controls = "linked",
	        .ctl_name = "ctl",
	        .branch = "sandbox/{name}",
	        .operation_timeout_ms = 600000,
	        .limits = {.output_bytes = 64 << 20},
	};
	h->settings.state_dir = h->dir;
	assert_int_equal(sbx_loop_create(&h->loop), 0);
	assert_int_equal(sbx_pool_create(2, &h->pool), 0);
	fake_backend_init(&h->backend, h->loop, h->dir);
	assert_int_equal(sbx_registry_create(
	                         &(struct sbx_registry_config){
	                                 .settings = &h->settings,
	                                 .backend = &h->backend.base,
	                                 .loop = h->loop,
	                                 .pool = h->pool,
	                                 .lane = h->pool,
	                                 .remover = h->pool,
	                                 .observer = &observer,
	                                 .observer_data = h,
	                         },
	                         &h->registry),
	                 0);
}

void house_stop(struct house *h)
{
	sbx_registry_shutdown(h->registry);
	sbx_loop_stop(h->loop);
	pthread_join(h->thread, NULL);
	sbx_pool_destroy(h->pool);
}

void house_close(struct house *h)
{
	house_stop(h);
	sbx_registry_destroy(h->registry);
	assert_int_equal(atomic_load(&h->backend.objects), 0);
	sbx_loop_destroy(h->loop);
	assert_int_equal(atomic_load(&h->backend.jobs), 0);
	assert_int_equal(atomic_load(&h->busy), 0);
	fake_backend_finish(&h->backend);
	assert_int_equal(nftw(h->dir, drop, 16, FTW_DEPTH | FTW_PHYS), 0);
}

static void post_sem(void *data)
{
	sem_post(data);
}

static void wait_sem(sem_t *sem)
{
	struct timespec limit;

	clock_gettime(CLOCK_REALTIME, &limit);
	limit.tv_sec += 20;
	while (sem_timedwait(sem, &limit) < 0)
		assert_int_equal(errno, EINTR);
}

void house_settle(struct house *h)
{
	sem_t sem;

	sem_init(&sem, 0, 0);
	sbx_loop_post(h->loop, post_sem, &sem);
	wait_sem(&sem);
	sem_destroy(&sem);
}

/* Outcomes */

void outcome_init(struct outcome *o)
{
	memset(o, 0, sizeof(*o));
	sem_init(&o->come, 0, 0);
}

void outcome_done(int code, struct sbx_box *box, const struct sbx_error *err, void *data)
{
	struct outcome *o = data;

	o->code = code;
	o->box = box ? sbx_box_ref(box) : NULL;
	o->err = *err;
	sem_post(&o->come);
}

int outcome_wait(struct outcome *o)
{
	wait_sem(&o->come);
	return o->code;
}

void outcome_finish(struct outcome *o)
{
	sbx_box_unref(o->box);
	sem_destroy(&o->come);
}

struct sbx_box *house_make(struct house *h, const char *name)
{
	struct outcome o;
	struct sbx_box *box;

	outcome_init(&o);
	sbx_registry_make(h->registry, &(struct sbx_create_request){.name = (char *)name},
	                  outcome_done, &o);
	assert_int_equal(outcome_wait(&o), 0);
	box = sbx_box_ref(o.box);
	outcome_finish(&o);
	return box;
}

int house_teardown(struct house *h, const char *name, bool complete)
{
	struct outcome o;
	int code;

	outcome_init(&o);
	sbx_registry_teardown(h->registry, name, complete, outcome_done, &o);
	code = outcome_wait(&o);
	outcome_finish(&o);
	return code;
}

/* Answers */

static struct answer *answer_of(struct sbx_pending *p)
{
	return sbx_container_of(p, struct answer, p);
}

static void give_data(struct sbx_pending *p, const void *buf, size_t len)
{
	struct answer *a = answer_of(p);

	a->data = malloc(len + 1);
	assert_non_null(a->data);
	if (len)
		memcpy(a->data, buf, len);
	a->data[len] = '\0';
	a->n = (ssize_t)len;
	sem_post(&a->come);
}

static void give_count(struct sbx_pending *p, size_t n)
{
	struct answer *a = answer_of(p);

	a->n = (ssize_t)n;
	sem_post(&a->come);
}

static void give_error(struct sbx_pending *p, int errnum)
{
	struct answer *a = answer_of(p);

	a->errnum = errnum;
	sem_post(&a->come);
}

static const struct sbx_pending_impl answer_impl = {give_data, give_count, give_error};

void answer_init(struct answer *a, size_t size)
{
	memset(a, 0, sizeof(*a));
	a->p.impl = &answer_impl;
	a->p.size = size;
	a->n = -1;
	sem_init(&a->come, 0, 0);
}

void answer_wait(struct answer *a)
{
	wait_sem(&a->come);
}

bool answer_come(struct answer *a)
{
	int n = 0;

	sem_getvalue(&a->come, &n);
	return n > 0;
}

void answer_finish(struct answer *a)
{
	free(a->data);
	sem_destroy(&a->come);
}

struct cancelling {
	struct answer *a;
	bool fatal;
	sem_t done;
};

static void cancel(void *data)
{
	struct cancelling *c = data;

	/* As FUSE does: one that has been answered is not cancelled any more. */
	if (!answer_come(c->a))
		sbx_pending_cancel(&c->a->p, c->fatal);
	sem_post(&c->done);
}

void answer_cancel(struct house *h, struct answer *a, bool fatal)
{
	struct cancelling c = {.a = a, .fatal = fatal};

	sem_init(&c.done, 0, 0);
	sbx_loop_post(h->loop, cancel, &c);
	wait_sem(&c.done);
	sem_destroy(&c.done);
}
