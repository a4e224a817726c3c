#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "fs/net/http_head.h"

static struct sbx_head head;
static char rewritten[1024];

static int parse(const char *text)
{
	size_t len = strlen(text);

	assert_int_equal(sbx_head_length(text, len), len);
	return sbx_head_parse(text, len, &head);
}

static const char *rewrite(const char *text)
{
	size_t n;

	assert_int_equal(parse(text), 0);
	n = sbx_head_rewrite(&head, rewritten, sizeof(rewritten) - 1);
	assert_int_not_equal(n, 0);
	rewritten[n] = '\0';
	return rewritten;
}

static void connect_names_a_host_and_a_port(void **state)
{
	(void)state;
	assert_int_equal(parse("CONNECT Example.org:443 HTTP/1.1\r\nHost: x\r\n\r\n"), 0);
	assert_true(head.connect);
	assert_string_equal(head.target.host, "example.org");
	assert_int_equal(head.target.port, 443);
	assert_int_equal(parse("CONNECT [::1]:1 HTTP/1.0\r\n\r\n"), 0);
	assert_string_equal(head.target.host, "::1");
	assert_int_equal(parse("CONNECT example.org HTTP/1.1\r\n\r\n"), 403);
	assert_int_equal(parse("CONNECT user@example.org:443 HTTP/1.1\r\n\r\n"), 403);
	assert_int_equal(parse("CONNECT http://example.org:443 HTTP/1.1\r\n\r\n"), 403);
}

static void the_server_gets_the_path_and_the_checked_host(void **state)
{
	(void)state;
	assert_string_equal(
	        rewrite("GET http://Example.org/a?b=http://c/ HTTP/1.1\r\n"
	                "host: evil.test\r\nA: b\r\nProxy-Connection: keep-alive\r\n"
	                "Connection: keep-alive\r\nProxy-Authorization: x\r\nHostile: h\r\n\r\n"),
	        "GET /a?b=http://c/ HTTP/1.1\r\nHost: example.org\r\nConnection: close\r\n"
	        "A: b\r\nHostile: h\r\n\r\n");
	assert_string_equal(rewrite("POST HTTP://a.test:8080?q HTTP/1.0\r\n\r\n"),
	                    "POST /?q HTTP/1.0\r\nHost: a.test:8080\r\nConnection: close\r\n\r\n");
	assert_string_equal(rewrite("GET http://[::1]:3000 HTTP/1.1\r\n\r\n"),
	                    "GET / HTTP/1.1\r\nHost: [::1]:3000\r\nConnection: close\r\n\r\n");
	assert_int_equal(head.target.port, 3000);
}

static void a_head_that_does_not_fit_is_not_written(void **state)
{
	char small[64];
	size_t full;

	(void)state;
	full = strlen(rewrite("GET http://a.test/ HTTP/1.1\r\nA: b\r\n\r\n"));
	assert_int_equal(sbx_head_rewrite(&head, small, full - 1), 0);
	for (size_t size = 0; size < full; size++)
		assert_int_equal(sbx_head_rewrite(&head, rewritten, size), 0);
	assert_int_equal(sbx_head_rewrite(&head, rewritten, full), full);
}

static void hosts_in_odd_forms_are_403(void **state)
{
	static const char *const hosts[] = {
	        "a@b.test", "a:b@c.test", "2130706433", "0x7f.1", "127.1",
	        "a%2etest", "",           "a.test:",    "[::1",   "a.test\\@b.test"};
	char text[256];

	(void)state;
	for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]); i++) {
		snprintf(text, sizeof(text), "GET http://%s/ HTTP/1.1\r\n\r\n", hosts[i]);
		if (parse(text) != 403)
			fail_msg("%s", hosts[i]);
	}
}

static void what_is_no_request_of_ours_is_refused(void **state)
{
	static const char *const bad[] = {
	        "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n",
	        "GET http://a.test/\r\n\r\n",
	        "GET  http://a.test/ HTTP/1.1\r\n\r\n",
	        "GET http://a.test/ x HTTP/1.1\r\n\r\n",
	        "GET http://a.test/ HTTP/2.0\r\n\r\n",
	        "GET http://a.test/ HTTP/1.1 \r\n\r\n",
	        "G(T http://a.test/ HTTP/1.1\r\n\r\n",
	        "GET http://a.test/#b HTTP/1.1\r\n\r\n",
	        "GET http://a.test/\001 HTTP/1.1\r\n\r\n",
	        "GET http://a.test/ HTTP/1.1\nHost: b\r\n\r\n",
	        "GET http://a.test/ HTTP/1.1\r\nNo colon\r\n\r\n",
	        "GET http://a.test/ HTTP/1.1\r\nA: b\r\n folded\r\n\r\n",
	        "GET http://a.test/ HTTP/1.1\r\nA : b\r\n\r\n",
	        "GET http://a.test/ HTTP/1.1\r\nA: b\rHost: c\r\n\r\n",
	        "GET http://a.test/ HTTP/1.1\r\nA: b\nHost: c\r\n\r\n",
	        "GET http://a.test/ HTTP/1.1\r\n: b\r\n\r\n",
	        "\r\n\r\n",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (parse(bad[i]) != 400)
			fail_msg("%s", bad[i]);
	assert_int_equal(parse("GET https://a.test/ HTTP/1.1\r\n\r\n"), 501);
	assert_int_equal(parse("GET ftp://a.test/ HTTP/1.1\r\n\r\n"), 501);
}

static void a_head_ends_with_an_empty_line(void **state)
{
	(void)state;
	assert_int_equal(sbx_head_length("GET", 3), 0);
	assert_int_equal(sbx_head_length("a\r\n\r", 4), 0);
	assert_int_equal(sbx_head_length("a\r\n\r\nbody", 9), 5);
	assert_int_equal(sbx_head_length("a\n\nb\r\n\r\n", 8), 8);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(connect_names_a_host_and_a_port),
	        cmocka_unit_test(the_server_gets_the_path_and_the_checked_host),
	        cmocka_unit_test(a_head_that_does_not_fit_is_not_written),
	        cmocka_unit_test(hosts_in_odd_forms_are_403),
	        cmocka_unit_test(what_is_no_request_of_ours_is_refused),
	        cmocka_unit_test(a_head_ends_with_an_empty_line),
	};

	return cmocka_run_group_tests_name("proxy_head", tests, NULL, NULL);
}
