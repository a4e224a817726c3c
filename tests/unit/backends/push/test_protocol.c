#include "backends/push/protocol.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static int pair[2];

static int set_up(void **state)
{
	(void)state;
	return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair);
}

static int tear_down(void **state)
{
	(void)state;
	return close(pair[0]) | close(pair[1]);
}

static const struct push_order whole = {
        .daemon = 7,
        .from = {.common = "/r/.git", .branch = "b", .mountpoint = "/m", .state = "/s"},
        .url = "https://host/x",
        .token = "secret",
};

static void an_order_arrives_as_it_was(void **state)
{
	static char buf[PUSH_ORDER_MAX];
	struct push_order order;

	(void)state;
	assert_int_equal(push_send_order(pair[0], &whole), 0);
	assert_int_equal(push_receive_order(pair[1], buf, &order), 0);
	assert_int_equal(order.daemon, 7);
	assert_string_equal(order.from.common, "/r/.git");
	assert_string_equal(order.from.branch, "b");
	assert_string_equal(order.from.mountpoint, "/m");
	assert_string_equal(order.from.state, "/s");
	assert_string_equal(order.url, "https://host/x");
	assert_string_equal(order.token, "secret");
}

static void what_is_not_there_stays_away(void **state)
{
	static char buf[PUSH_ORDER_MAX];
	struct push_order order = whole;

	(void)state;
	order.from.mountpoint = order.token = NULL;
	order.url = "";
	assert_int_equal(push_send_order(pair[0], &order), 0);
	assert_int_equal(push_receive_order(pair[1], buf, &order), 0);
	assert_null(order.from.mountpoint);
	assert_null(order.token);
	assert_string_equal(order.url, "");
}

static void an_order_that_is_too_long_is_not_sent(void **state)
{
	static char url[PUSH_ORDER_MAX];
	struct push_order order = whole;

	(void)state;
	memset(url, 'x', sizeof(url) - 1);
	order.url = url;
	assert_int_equal(push_send_order(pair[0], &order), -E2BIG);
}

static void what_is_no_order_is_refused(void **state)
{
	static const struct {
		const char *bytes;
		size_t len;
	} rows[] = {
	        {"abc", 3},                            /* shorter than a pid */
	        {"\1\0\0\0", 4},                       /* no string */
	        {"\1\0\0\0a\0b\0c\0d\0e\0", 14},       /* one is missing */
	        {"\1\0\0\0a\0b\0c\0d\0e\0f", 15},      /* the last has no end */
	        {"\1\0\0\0a\0b\0c\0d\0e\0f\0g\0", 18}, /* one too many */
	};
	static char buf[PUSH_ORDER_MAX];
	struct push_order order;

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		assert_int_equal(send(pair[0], rows[i].bytes, rows[i].len, 0), rows[i].len);
		assert_int_equal(push_receive_order(pair[1], buf, &order), -EPROTO);
	}
}

static void the_end_is_no_order(void **state)
{
	static char buf[PUSH_ORDER_MAX];
	struct push_order order;

	(void)state;
	shutdown(pair[0], SHUT_WR);
	assert_int_equal(push_receive_order(pair[1], buf, &order), -EPROTO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(an_order_arrives_as_it_was, set_up, tear_down),
	        cmocka_unit_test_setup_teardown(what_is_not_there_stays_away, set_up, tear_down),
	        cmocka_unit_test_setup_teardown(an_order_that_is_too_long_is_not_sent, set_up,
	                                        tear_down),
	        cmocka_unit_test_setup_teardown(what_is_no_order_is_refused, set_up, tear_down),
	        cmocka_unit_test_setup_teardown(the_end_is_no_order, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
