#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "fs/util/rounds.h"
#include "sandboxfs/cleanup.h"

struct client {
	struct sbx_waiting in;
	char name;
	int code;
	bool again; /* joins again when it is answered */
};

static struct sbx_rounds rounds;
static char said[64]; /* names in the order of answers, each followed by a bar from after */
static bool begins;   /* of who joined again */

static void say(char c)
{
	const size_t n = strlen(said);

	assert_true(n + 1 < sizeof(said));
	said[n] = c;
	said[n + 1] = '\0';
}

static void answered(struct sbx_waiting *w, int code)
{
	struct client *c = sbx_container_of(w, struct client, in);

	say(c->name);
	c->code = code;
	if (c->again) {
		c->again = false;
		begins = sbx_rounds_join(&rounds, w);
	}
}

static void after(void *data)
{
	assert_ptr_equal(data, &rounds);
	say('|');
}

static struct client client(char name)
{
	return (struct client){.in.answer = answered, .name = name, .code = 1};
}

/* Ends a round with CODE; whether another is to be begun. */
static bool end_round(int code)
{
	struct sbx_waiting *list = sbx_rounds_end(&rounds);
	const bool more = rounds.now;

	said[0] = '\0';
	sbx_rounds_answer(list, code, after, &rounds);
	return more;
}

static int setup(void **state)
{
	(void)state;
	rounds = (struct sbx_rounds){0};
	begins = false;
	return 0;
}

static void who_comes_first_begins(void **state)
{
	struct client a = client('a');

	(void)state;
	assert_true(sbx_rounds_join(&rounds, &a.in));
	assert_false(end_round(-5));
	assert_string_equal(said, "a|");
	assert_int_equal(a.code, -5);
	assert_true(sbx_rounds_join(&rounds, &a.in));
	assert_false(end_round(0));
	assert_int_equal(a.code, 0);
}

static void who_comes_meanwhile_shares_the_next(void **state)
{
	struct client a = client('a'), b = client('b'), c = client('c'), d = client('d');

	(void)state;
	assert_true(sbx_rounds_join(&rounds, &a.in));
	assert_false(sbx_rounds_join(&rounds, &b.in));
	assert_false(sbx_rounds_join(&rounds, &c.in));
	assert_true(end_round(0));
	assert_string_equal(said, "a|");
	assert_int_equal(b.code, 1);
	assert_false(sbx_rounds_join(&rounds, &d.in));
	assert_true(end_round(-28));
	assert_string_equal(said, "b|c|");
	assert_int_equal(a.code, 0);
	assert_int_equal(b.code, -28);
	assert_int_equal(c.code, -28);
	assert_int_equal(d.code, 1);
	assert_false(end_round(0));
	assert_string_equal(said, "d|");
}

static void who_is_answered_may_come_again(void **state)
{
	struct client a = client('a'), b = client('b');

	(void)state;
	a.again = true;
	assert_true(sbx_rounds_join(&rounds, &a.in));
	assert_false(end_round(0));
	assert_true(begins);
	a.again = true;
	assert_false(sbx_rounds_join(&rounds, &b.in));
	assert_true(end_round(0));
	assert_false(begins);
	assert_string_equal(said, "a|");
	assert_true(end_round(0));
	assert_string_equal(said, "b|");
	assert_false(end_round(0));
	assert_string_equal(said, "a|");
}

static void nobody_is_answered_where_nobody_waits(void **state)
{
	(void)state;
	assert_false(end_round(0));
	assert_string_equal(said, "");
}

#define CASE(fn) cmocka_unit_test_setup(fn, setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        CASE(who_comes_first_begins),
	        CASE(who_comes_meanwhile_shares_the_next),
	        CASE(who_is_answered_may_come_again),
	        CASE(nobody_is_answered_where_nobody_waits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
