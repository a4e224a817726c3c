#include "tests/lib/registry_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sandboxfs/cleanup.h"
#include "sandboxfs/tree.h"
#include "tests/lib/tmp.h"

/* cmocka.h needs these, and has no include guard for them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void invalidate(struct sbx_box *box, bool busy, void *data)
{
	struct registry_fixture *h = data;

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

static void altered(struct sbx_box *box, void *data)
{
	struct registry_fixture *h = data;

	assert_non_null(box);
	atomic_fetch_add(&h->altered, 1);
}

static void replaced(struct sbx_box *box, int old, int new, void *data)
{
	struct registry_fixture *h = data;

	assert_non_null(box);
	assert_int_not_equal(old, new);
	atomic_fetch_add(&h->replaced, 1);
}

static const struct sbx_observer observer = {
        .invalidate = invalidate,
        .wrote = ignore_box,
        .altered = altered,
        .replaced = replaced,
        .shown = ignore,
        .retired = ignore_box,
        .removed = ignore_box,
};

static void *loop_thread(void *data)
{
	sbx_loop_run(data);
	return NULL;
}

void registry_fixture_start(struct registry_fixture *h)
{
	assert_int_equal(pthread_create(&h->thread, NULL, loop_thread, h->loop), 0);
	sbx_registry_resume(h->registry);
}

static void say_words(char *const *argv, char text[4096])
{
	size_t used = 0;

	*text = '\0';
	for (int i = 1; argv[i]; i++)
		used += (size_t)snprintf(text + used, 4096 - used, "%s%s", argv[i],
		                         argv[i + 1] ? " " : "\n");
}

static void write_file(const struct played_job *job, const char *text)
{
	_cleanup_free_ char *path = NULL;
	_cleanup_file_ FILE *f = NULL;

	assert_true(asprintf(&path, "%s/%s", job->workdir, job->argv[1]) > 0);
	f = fopen(path, "we");
	assert_non_null(f);
	assert_true(fputs(text, f) > 0);
}

static void obey(struct played_job *job)
{
	const char *word = job->argv[0];
	char text[4096];

	say_words(job->argv, text);
	if (strcmp(word, "missing") == 0) {
		played_ended(job, SBX_END_FAILED, ENOENT);
		return;
	}
	played_started(job);
	if (strcmp(word, "echo") == 0 && *text)
		played_output(job, 1, text, strlen(text));
	if (strcmp(word, "err") == 0 && *text)
		played_output(job, 2, text, strlen(text));
	if (strcmp(word, "write") == 0)
		write_file(job, text + strlen(job->argv[1]) + 1);
	if (strcmp(word, "hang") != 0 && strcmp(word, "slow") != 0)
		played_ended(job, SBX_END_EXITED, strcmp(word, "exit") == 0 ? atoi(text) : 0);
}

void registry_fixture_print(struct registry_fixture *h, const char *text)
{
	played_output(atomic_load(&h->runner.last), 1, text, strlen(text));
}

void registry_fixture_end(struct registry_fixture *h, int code)
{
	played_ended(atomic_load(&h->runner.last), SBX_END_EXITED, code);
}

static void open_backend(struct registry_fixture *h)
{
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_backend *inner;

	played_init(&h->runner, h->loop);
	h->runner.on_exec = obey;
	h->host = (struct sbx_host){
	        .settings = &h->settings, .loop = h->loop, .spawner = &h->runner.base};
	if (sbx_backend_open(&h->host, &inner, &err))
		fail_msg("open: %s", err.text);
	faults_wrap(&h->backend, inner);
}

void registry_fixture_open(struct registry_fixture *h, const char *backend, const char *source)
{
	memset(h, 0, sizeof(*h));
	assert_non_null(tmp_make(h->dir, sizeof(h->dir), "sandboxfs-test"));
	h->settings = (struct sbx_settings){
	        .backend = (char *)backend,
	        .source = (char *)source,
	        .source_abs = (char *)source,
	        .mountpoint = "/mnt/test",
	        .path = "/usr/bin:/bin",
	        .net = "none",
	        .isolation = "auto",
	        .controls = "linked",
	        .ctl_name = "ctl",
	        .branch = "sandbox/{name}",
	        .operation_timeout_ms = 600000,
	        .trash_days = 7,
	        .limits = {.output_bytes = 64 << 20},
	};
	h->settings.state_dir = h->dir;
	assert_int_equal(sbx_loop_create(&h->loop), 0);
	assert_int_equal(sbx_pool_create(2, &h->pool), 0);
	played_away_init(&h->away, h->loop);
	open_backend(h);
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

void registry_fixture_stop(struct registry_fixture *h)
{
	sbx_registry_shutdown(h->registry);
	sbx_loop_stop(h->loop);
	pthread_join(h->thread, NULL);
	sbx_pool_destroy(h->pool);
}

void registry_fixture_close(struct registry_fixture *h)
{
	registry_fixture_stop(h);
	sbx_registry_destroy(h->registry);
	assert_int_equal(atomic_load(&h->backend.objects), 0);
	sbx_backend_destroy(&h->backend.base);
	sbx_loop_destroy(h->loop);
	assert_int_equal(atomic_load(&h->busy), 0);
	played_finish(&h->runner);
	played_away_finish(&h->away);
	assert_int_equal(sbx_tree_remove(AT_FDCWD, h->dir, NULL), 0);
}

static void post_sem(void *data)
{
	sem_post(data);
}

void wait_sem(sem_t *sem)
{
	struct timespec limit;

	clock_gettime(CLOCK_REALTIME, &limit);
	limit.tv_sec += 20;
	while (sem_timedwait(sem, &limit) < 0)
		assert_int_equal(errno, EINTR);
}

void registry_fixture_settle(struct registry_fixture *h)
{
	sem_t sem;

	sem_init(&sem, 0, 0);
	sbx_loop_post(h->loop, post_sem, &sem);
	wait_sem(&sem);
	sem_destroy(&sem);
}

void registry_fixture_play_away(struct registry_fixture *h)
{
	h->backend.away = &h->away;
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

struct sbx_box *registry_fixture_make(struct registry_fixture *h, const char *name)
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

int registry_fixture_teardown(struct registry_fixture *h, const char *name, bool complete)
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

void answer_cancel(struct registry_fixture *h, struct answer *a, bool fatal)
{
	struct cancelling c = {.a = a, .fatal = fatal};

	sem_init(&c.done, 0, 0);
	sbx_loop_post(h->loop, cancel, &c);
	wait_sem(&c.done);
	sem_destroy(&c.done);
}
