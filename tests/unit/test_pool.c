#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

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

static void destroy_accepts_null(void **state)
{
	(void)state;
	sbx_pool_destroy(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(destroy_runs_everything_submitted),
	        cmocka_unit_test(destroy_accepts_null),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
