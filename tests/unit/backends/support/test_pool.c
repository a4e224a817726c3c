#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "sandboxfs/pool.h"

static atomic_int count;

static void add(void *data)
{
	atomic_fetch_add(&count, (int)(intptr_t)data);
}

static void destroy_runs_everything_submitted(void **state)
{
	struct sbx_pool *pool;

	(void)state;
	count = 0;
	assert_int_equal(sbx_pool_create(3, &pool), 0);
	for (int i = 1; i <= 100; i++)
		sbx_pool_submit(pool, add, (void *)(intptr_t)i);
	sbx_pool_destroy(pool);
	assert_int_equal(count, 5050);
}

static void look_at_priority(void *data)
{
	(void)data;
	atomic_store(&count, getpriority(PRIO_PROCESS, 0));
}

static void a_low_pool_gives_way(void **state)
{
	const int ours = getpriority(PRIO_PROCESS, 0);
	struct sbx_pool *pool;

	(void)state;
	assert_int_equal(sbx_pool_create_wide(1, true, &pool), 0);
	sbx_pool_submit(pool, look_at_priority, NULL);
	sbx_pool_destroy(pool);
	assert_true(count > ours || ours >= 10);
	assert_int_equal(getpriority(PRIO_PROCESS, 0), ours);
}

#define LONG 40

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t moved = PTHREAD_COND_INITIALIZER;
static int begun, ended;
static bool go;

/* Ends when told to. */
static void take_long(void *data)
{
	(void)data;
	pthread_mutex_lock(&lock);
	begun++;
	pthread_cond_broadcast(&moved);
	while (!go)
		pthread_cond_wait(&moved, &lock);
	ended++;
	pthread_mutex_unlock(&lock);
}

static void await_begun(int n)
{
	pthread_mutex_lock(&lock);
	while (begun < n)
		pthread_cond_wait(&moved, &lock);
	pthread_mutex_unlock(&lock);
}

/* Were one to wait for another, this would never end. */
static void nothing_in_a_wide_pool_waits_for_another(void **state)
{
	struct sbx_pool *pool;

	(void)state;
	for (int round = 0; round < 2; round++) {
		begun = ended = 0;
		go = false;
		assert_int_equal(sbx_pool_create_wide(2 * LONG, false, &pool), 0);
		for (int i = 0; i < LONG; i++)
			sbx_pool_submit(pool, take_long, NULL);
		await_begun(LONG);
		sbx_pool_submit(pool, take_long, NULL);
		await_begun(LONG + 1);
		pthread_mutex_lock(&lock);
		assert_int_equal(ended, 0);
		go = true;
		pthread_cond_broadcast(&moved);
		pthread_mutex_unlock(&lock);
		sbx_pool_destroy(pool);
		assert_int_equal(ended, LONG + 1);
	}
}

static void a_wide_pool_has_an_end(void **state)
{
	struct sbx_pool *pool;

	(void)state;
	begun = ended = 0;
	go = false;
	assert_int_equal(sbx_pool_create_wide(3, false, &pool), 0);
	for (int i = 0; i < 10; i++)
		sbx_pool_submit(pool, take_long, NULL);
	await_begun(3);
	pthread_mutex_lock(&lock);
	assert_int_equal(begun, 3);
	go = true;
	pthread_cond_broadcast(&moved);
	pthread_mutex_unlock(&lock);
	sbx_pool_destroy(pool);
	assert_int_equal(ended, 10);
}

static void destroy_accepts_null(void **state)
{
	(void)state;
	sbx_pool_destroy(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(destroy_runs_everything_submitted),
	        cmocka_unit_test(a_low_pool_gives_way),
	        cmocka_unit_test(nothing_in_a_wide_pool_waits_for_another),
	        cmocka_unit_test(a_wide_pool_has_an_end),
	        cmocka_unit_test(destroy_accepts_null),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
