#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <semaphore.h>

#include "fs/fuse/invalidator.h"

#define HELD     UINT64_MAX /* the directory that cannot be forgotten yet */
#define LONG_MS  60000      /* longer than a loaded machine keeps a thread from running */
#define SHORT_MS 1

static struct seen {
	pthread_mutex_t lock;
	uint64_t ids[20000];
	size_t n;
	sem_t begun, go, passed;
} seen;

static void forget(uint64_t id, void *data)
{
	struct seen *s = data;

	if (id == HELD) {
		sem_post(&s->begun);
		sem_wait(&s->go);
	}
	pthread_mutex_lock(&s->lock);
	s->ids[s->n++] = id;
	pthread_mutex_unlock(&s->lock);
	if (id == HELD)
		sem_post(&s->passed);
}

static size_t count(void)
{
	size_t n;

	pthread_mutex_lock(&seen.lock);
	n = seen.n;
	pthread_mutex_unlock(&seen.lock);
	return n;
}

static struct sbx_forgetter *forgetter_new(void)
{
	struct sbx_forgetter *f;

	seen.n = 0;
	pthread_mutex_init(&seen.lock, NULL);
	sem_init(&seen.begun, 0, 0);
	sem_init(&seen.go, 0, 0);
	sem_init(&seen.passed, 0, 0);
	assert_int_equal(sbx_forgetter_create(forget, &seen, &f), 0);
	return f;
}

static void who_waits_finds_it_done(void **state)
{
	struct sbx_forgetter *f = forgetter_new();
	const uint64_t ids[] = {5, 6, 7};

	(void)state;
	sbx_forgetter_add(f, ids, 3, LONG_MS);
	assert_int_equal(count(), 3);
	sbx_forgetter_add(f, ids, 2, 0);
	sbx_forgetter_add(f, ids, 0, LONG_MS);
	sbx_forgetter_add(f, ids + 2, 1, LONG_MS);
	assert_int_equal(count(), 6);
	for (size_t i = 0; i < 6; i++)
		assert_int_equal(seen.ids[i], 5 + i % 3);
	sbx_forgetter_destroy(f);
}

static void who_waits_is_not_held_up(void **state)
{
	struct sbx_forgetter *f = forgetter_new();
	const uint64_t held = HELD, other = 5;

	(void)state;
	sbx_forgetter_add(f, &held, 1, 0);
	sem_wait(&seen.begun);
	sbx_forgetter_add(f, &other, 1, SHORT_MS);
	/* More than can be remembered. */
	for (int i = 0; i < 10000; i++)
		sbx_forgetter_add(f, &other, 1, LONG_MS);
	assert_int_equal(count(), 0);
	sem_post(&seen.go);
	sem_wait(&seen.passed);
	/* As soon as it goes on, it is waited for again. */
	while (count() < 8192)
		;
	sbx_forgetter_add(f, &other, 1, LONG_MS);
	assert_int_equal(count(), 8193);
	sbx_forgetter_destroy(f);
}

static void one_that_is_held_up_is_left_to_itself(void **state)
{
	struct sbx_forgetter *f = forgetter_new();
	const uint64_t ids[] = {HELD, 5};

	(void)state;
	sbx_forgetter_add(f, ids, 2, 0);
	sem_wait(&seen.begun);
	sbx_forgetter_destroy(f);
	assert_int_equal(count(), 0);
	sem_post(&seen.go);
	sem_wait(&seen.passed);
	assert_int_equal(count(), 1);
}

static void destroy_accepts_null(void **state)
{
	(void)state;
	sbx_forgetter_destroy(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(who_waits_finds_it_done),
	        cmocka_unit_test(who_waits_is_not_held_up),
	        cmocka_unit_test(one_that_is_held_up_is_left_to_itself),
	        cmocka_unit_test(destroy_accepts_null),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
