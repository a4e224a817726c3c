/* A pause, and one that is given up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <pthread.h>

#include "backends/support/pause.h"
#include "sandboxfs/clock.h"

#define LONG_MS (UINT64_C(3600) * 1000)

static atomic_bool cancelled;

static void *give_up(void *data)
{
	(void)data;
	atomic_store(&cancelled, true);
	return NULL;
}

static void it_takes_its_time(void **state)
{
	const uint64_t begun = sbx_now_ms();

	(void)state;
	assert_int_equal(sbx_pause(150, NULL, NULL), 0);
	assert_true(sbx_now_ms() - begun >= 150);
	atomic_store(&cancelled, false);
	assert_int_equal(sbx_pause(0, &cancelled, NULL), 0);
}

static void it_is_given_up(void **state)
{
	struct sbx_error err = SBX_ERROR_INIT;
	pthread_t thread;

	(void)state;
	atomic_store(&cancelled, false);
	assert_int_equal(pthread_create(&thread, NULL, give_up, NULL), 0);
	assert_int_equal(sbx_pause(LONG_MS, &cancelled, &err), -EINTR);
	assert_int_equal(err.code, EINTR);
	pthread_join(thread, NULL);
	assert_int_equal(sbx_pause(0, &cancelled, NULL), -EINTR);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(it_takes_its_time),
	        cmocka_unit_test(it_is_given_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
