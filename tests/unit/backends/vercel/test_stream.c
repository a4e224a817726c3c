#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backends/vercel/vercel_impl.h"

static struct vercel_stream st;

static int set_up(void **state)
{
	(void)state;
	st = (struct vercel_stream){.most = 100};
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	vercel_stream_release(&st);
	return 0;
}

static int take(const char *text)
{
	return vercel_stream_take(&st, text, strlen(text));
}

#define BEGINS "{\"command\":{\"id\":\"cmd_1\",\"exitCode\":null}}\n"
#define ENDS   "{\"command\":{\"id\":\"cmd_1\",\"exitCode\":0}}\n"
#define OUT    "{\"data\":\"a\\u0000\\u00e4\\n\",\"stream\":\"stdout\"}\n"

static void lines_become_output(void **state)
{
	(void)state;
	assert_int_equal(take(BEGINS), 0);
	assert_string_equal(st.command, "cmd_1");
	assert_false(st.ended);
	assert_int_equal(take("{\"data\":\"err\",\"stream\":\"stderr\"}\n" OUT "\n" ENDS), 0);
	assert_true(st.ended && vercel_stream_is_whole(&st));
	assert_int_equal(st.len, 5);
	assert_memory_equal(st.out, "a\0\xc3\xa4\n", 6);
}

static void a_piece_may_be_a_byte(void **state)
{
	static const char text[] = BEGINS OUT OUT ENDS;

	(void)state;
	for (size_t i = 0; i + 1 < sizeof(text); i++)
		assert_int_equal(vercel_stream_take(&st, text + i, 1), 0);
	assert_true(st.ended && vercel_stream_is_whole(&st));
	assert_int_equal(st.len, 10);
}

static void what_is_not_ended_is_not_whole(void **state)
{
	(void)state;
	assert_int_equal(take(BEGINS OUT "{\"data\":"), 0);
	assert_false(vercel_stream_is_whole(&st));
	assert_int_equal(st.len, 5);
}

static void what_was_closed_is_not_whole(void **state)
{
	(void)state;
	assert_int_equal(take("{\"stream\":\"error\",\"data\":{\"code\":\"x\"}}\n"), 0);
	assert_true(st.closed && !vercel_stream_is_whole(&st));
}

static void kinds_that_nobody_knows_pass(void **state)
{
	(void)state;
	assert_int_equal(take("{\"later\":[1,{\"x\":null}]}\n{\"data\":7,\"stream\":\"stdout\"}\n"),
	                 0);
	assert_int_equal(st.len, 0);
}

static void what_is_no_line_is_refused(void **state)
{
	static const char *const lines[] = {"x\n",
	                                    "[1]\n",
	                                    "{\"command\":{}}\n",
	                                    "{\"command\":{\"id\":\"a/b\"}}\n",
	                                    "{\"command\":{\"id\":7}}\n",
	                                    "<!doctype html>\n"};

	(void)state;
	for (size_t i = 0; i < sizeof(lines) / sizeof(*lines); i++) {
		assert_int_equal(take(lines[i]), -EPROTO);
		vercel_stream_release(&st);
	}
}

static void more_than_is_taken_is_refused(void **state)
{
	char text[200];

	(void)state;
	snprintf(text, sizeof(text), "{\"data\":\"%0100d\",\"stream\":\"stdout\"}\n", 0);
	assert_int_equal(take(text), 0);
	assert_int_equal(take("{\"data\":\"x\",\"stream\":\"stdout\"}\n"), -EMSGSIZE);
}

static void a_line_without_an_end_is_refused(void **state)
{
	char *text = malloc(70000);

	(void)state;
	memset(text, 'x', 70000);
	assert_int_equal(vercel_stream_take(&st, text, 70000), -EMSGSIZE);
	free(text);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        CASE(lines_become_output),
	        CASE(a_piece_may_be_a_byte),
	        CASE(what_is_not_ended_is_not_whole),
	        CASE(what_was_closed_is_not_whole),
	        CASE(kinds_that_nobody_knows_pass),
	        CASE(what_is_no_line_is_refused),
	        CASE(more_than_is_taken_is_refused),
	        CASE(a_line_without_an_end_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
