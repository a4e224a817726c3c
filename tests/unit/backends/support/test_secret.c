#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "sandboxfs/secret.h"

static void a_secret_leaves_the_environment(void **state)
{
	char variable[] = "SBX_TEST_SECRET=value";
	struct sbx_secret *secret = NULL;

	(void)state;
	putenv(variable);
	assert_int_equal(sbx_secret_take("SBX_TEST_SECRET", &secret), 0);
	assert_string_equal(sbx_secret_text(secret), "value");
	assert_null(getenv("SBX_TEST_SECRET"));
	for (size_t i = strlen("SBX_TEST_SECRET="); i < sizeof(variable); i++)
		assert_int_equal(variable[i], 0);
	sbx_secret_free(secret);
}

static void a_secret_is_not_forked(void **state)
{
	struct sbx_secret *secret = NULL;
	int status;
	pid_t pid;

	(void)state;
	setenv("SBX_TEST_SECRET", "value", 1);
	assert_int_equal(sbx_secret_take("SBX_TEST_SECRET", &secret), 0);
	pid = fork();
	if (pid == 0)
		_exit(*sbx_secret_text(secret) ? 1 : 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_string_equal(sbx_secret_text(secret), "value");
	sbx_secret_free(secret);
}

static void a_secret_may_come_later(void **state)
{
	struct sbx_secret *secret = NULL;
	char text[20001] = "told";

	(void)state;
	assert_int_equal(sbx_secret_make(text, &secret), 0);
	*text = 'x';
	assert_string_equal(sbx_secret_text(secret), "told");
	sbx_secret_free(secret);
	memset(text, 'x', sizeof(text) - 1);
	assert_int_equal(sbx_secret_make(text, &secret), -E2BIG);
	assert_null(secret);
}

static void no_secret_is_none(void **state)
{
	struct sbx_secret *secret = NULL;
	char *huge = calloc(1, 20000);

	(void)state;
	unsetenv("SBX_TEST_SECRET");
	assert_int_equal(sbx_secret_take("SBX_TEST_SECRET", &secret), 0);
	assert_null(secret);
	setenv("SBX_TEST_SECRET", "", 1);
	assert_int_equal(sbx_secret_take("SBX_TEST_SECRET", &secret), 0);
	assert_null(secret);
	memset(huge, 'x', 19999);
	setenv("SBX_TEST_SECRET", huge, 1);
	assert_int_equal(sbx_secret_take("SBX_TEST_SECRET", &secret), -E2BIG);
	assert_null(secret);
	assert_null(getenv("SBX_TEST_SECRET"));
	free(huge);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_secret_leaves_the_environment),
	        cmocka_unit_test(a_secret_is_not_forked),
	        cmocka_unit_test(a_secret_may_come_later),
	        cmocka_unit_test(no_secret_is_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
