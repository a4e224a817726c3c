#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
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
	assert_int_equal(sbx_pool_create_low(1, &pool), 0);
	sbx_pool_submit(pool, look_at_priority, NULL);
	sbx_pool_destroy(pool);
	assert_true(count > ours || ours >= 10);
	assert_int_equal(getpriority(PRIO_PROCESS, 0), ours);
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
	        cmocka_unit_test(destroy_accepts_null),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
