#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "fs/net/host_rules.h"

static struct sbx_hosts *hosts;

static void use(const char *list)
{
	struct sbx_error err = SBX_ERROR_INIT;

	sbx_hosts_free(hosts);
	hosts = NULL;
	if (sbx_hosts_parse(list, &hosts, &err) < 0)
		fail_msg("%s", err.text);
}

static int finish(void **state)
{
	(void)state;
	sbx_hosts_free(hosts);
	hosts = NULL;
	return 0;
}

static enum sbx_reach reach(const char *text)
{
	struct sbx_target target;

	if (sbx_target_parse(text, strlen(text), 443, &target) < 0)
		return SBX_REACH_NONE;
	return sbx_hosts_reach(hosts, &target);
}

#define ALLOWED(text, how) assert_int_equal(reach(text), SBX_REACH_##how)

/* --- targets
 * ---------------------------------------------------------------------------------------- */

static void assert_target(const char *text, const char *host, uint16_t port, bool literal)
{
	struct sbx_target target;

	if (sbx_target_parse(text, strlen(text), 80, &target) < 0)
		fail_msg("%s is refused", text);
	assert_string_equal(target.host, host);
	assert_int_equal(target.port, port);
	assert_int_equal(target.literal, literal);
}

static void a_target_has_one_form(void **state)
{
	(void)state;
	assert_target("example.org", "example.org", 80, false);
	assert_target("EXAMPLE.Org.", "example.org", 80, false);
	assert_target("example.org:8443", "example.org", 8443, false);
	assert_target("a_b.xn--bcher-kva.example", "a_b.xn--bcher-kva.example", 80, false);
	assert_target("1.2.3.4:1", "1.2.3.4", 1, true);
	assert_target("[2001:DB8:0::1]:65535", "2001:db8::1", 65535, true);
	assert_target("[::ffff:127.0.0.1]", "127.0.0.1", 80, true);
	assert_target("[::ffff:7f00:1]", "127.0.0.1", 80, true);
	assert_target("1.2.3.example", "1.2.3.example", 80, false);
}

static void what_is_read_differently_by_others_is_refused(void **state)
{
	static const char *const bad[] = {
	        "",
	        ".",
	        "a..b",
	        ".a",
	        "a:",
	        "a:0",
	        "a:65536",
	        "a:80x",
	        "a:+80",
	        "a: 80",
	        "a:000080",
	        "user@a",
	        "user:pass@a:80",
	        "a/b",
	        "a\\b",
	        "a%2eb",
	        "a b",
	        "a\tb",
	        "b\303\274cher.example",
	        "2130706433",
	        "0x7f000001",
	        "0x7f.1",
	        "0X7F.1",
	        "127.1",
	        "127.0.0.01",
	        "0177.0.0.1",
	        "1.2.3.4.5",
	        "1.2.3.256",
	        "example.123",
	        "example.0x1",
	        "::1",
	        "[::1",
	        "::1]",
	        "[]",
	        "[fe80::1%eth0]",
	        "[1.2.3.4]",
	        "[example.org]",
	        "[::1]x",
	        "[::1]:80]",
	        "-a.example",
	        "a-.example",
	        "*.example.org",
	        "a..",
	};
	static const char nul[] = "example.org\0.evil.test";
	char text[300];
	struct sbx_target target;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (sbx_target_parse(bad[i], strlen(bad[i]), 80, &target) != -EINVAL)
			fail_msg("%s is taken for %s", bad[i], target.host);
	assert_int_equal(sbx_target_parse(nul, sizeof(nul) - 1, 80, &target), -EINVAL);
	memset(text, 'a', sizeof(text));
	assert_int_equal(sbx_target_parse(text, 64, 80, &target), -EINVAL);
	for (size_t i = 50; i < sizeof(text); i += 50)
		text[i] = '.';
	assert_int_equal(sbx_target_parse(text, 253, 80, &target), 0);
	assert_int_equal(sbx_target_parse(text, 254, 80, &target), -EINVAL);
	assert_int_equal(sbx_target_parse("a", 1, 0, &target), -EINVAL);
}

/* --- the list
 * --------------------------------------------------------------------------------------- */

static void a_name_allows_itself_at_the_webs_ports(void **state)
{
	(void)state;
	use("Example.org.,other.test");
	ALLOWED("example.org", PUBLIC);
	ALLOWED("EXAMPLE.ORG.:80", PUBLIC);
	ALLOWED("other.test:443", PUBLIC);
	ALLOWED("example.org:8080", NONE);
	ALLOWED("www.example.org", NONE);
	ALLOWED("badexample.org", NONE);
	ALLOWED("example.org.evil.test", NONE);
	ALLOWED("1.2.3.4", NONE);
}

static void a_port_allows_only_itself(void **state)
{
	(void)state;
	use("example.org:8443");
	ALLOWED("example.org:8443", PUBLIC);
	ALLOWED("example.org:443", NONE);
}

static void a_star_allows_what_is_below(void **state)
{
	(void)state;
	use("*.example.org");
	ALLOWED("a.example.org", PUBLIC);
	ALLOWED("a.b.example.org", PUBLIC);
	ALLOWED("example.org", NONE);
	ALLOWED("badexample.org", NONE);
	ALLOWED("a.example.org.evil.test", NONE);
	use("*.example.org:22/private,x.example.org");
	ALLOWED("x.example.org:22", PRIVATE);
	ALLOWED("x.example.org:443", PUBLIC);
}

static void addresses_are_allowed_as_they_are(void **state)
{
	(void)state;
	use("127.0.0.1:3000,[::1]:3000,[2001:db8::0:1]");
	ALLOWED("127.0.0.1:3000", LITERAL);
	ALLOWED("[::ffff:127.0.0.1]:3000", LITERAL);
	ALLOWED("[0:0:0:0:0:0:0:1]:3000", LITERAL);
	ALLOWED("[2001:db8::1]", LITERAL);
	ALLOWED("127.0.0.1", NONE);
	ALLOWED("127.0.0.2:3000", NONE);
	ALLOWED("127.1:3000", NONE);
	ALLOWED("localhost:3000", NONE);
}

static void assert_refused(const char *list, const char *part)
{
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_hosts *none = NULL;

	assert_int_equal(sbx_hosts_parse(list, &none, &err), -EINVAL);
	assert_null(none);
	if (!strstr(err.text, part))
		fail_msg("\"%s\" does not say \"%s\"", err.text, part);
}

static void what_is_no_rule_is_refused(void **state)
{
	(void)state;
	assert_refused("", "an empty rule");
	assert_refused("a.org,", "an empty rule");
	assert_refused("a.org,,b.org", "an empty rule");
	assert_refused("*", "\"*\" is not");
	assert_refused("*.", "\"*.\" is not");
	assert_refused("a.*.org", "\"a.*.org\"");
	assert_refused("**.org", "\"**.org\"");
	assert_refused("*.1.2.3.4", "\"*.1.2.3.4\"");
	assert_refused("https://a.org", "\"https://a.org\"");
	assert_refused("a.org/path", "\"a.org/path\"");
	assert_refused("10.0.0.0/8", "\"10.0.0.0/8\"");
	assert_refused("10.0.0.1/private", "\"10.0.0.1/private\"");
	assert_refused("a.org:http", "\"a.org:http\"");
	assert_refused("a.org b.org", "\"a.org b.org\"");
	assert_refused("b\303\274cher.example", "xn--");
	assert_refused("0x7f.1", "\"0x7f.1\"");
}

/* --- addresses
 * --------------------------------------------------------------------------------------- */

static bool may(const char *text, enum sbx_reach how)
{
	struct sockaddr_in v4 = {.sin_family = AF_INET};
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};

	if (inet_pton(AF_INET, text, &v4.sin_addr) == 1)
		return sbx_address_allowed((struct sockaddr *)&v4, how);
	assert_int_equal(inet_pton(AF_INET6, text, &v6.sin6_addr), 1);
	return sbx_address_allowed((struct sockaddr *)&v6, how);
}

static void names_lead_to_public_addresses(void **state)
{
	static const char *const public[] = {
	        "1.1.1.1",         "9.255.255.255",   "11.0.0.0",    "100.63.255.255",
	        "100.128.0.0",     "126.0.0.1",       "128.0.0.1",   "172.15.0.1",
	        "172.32.0.0",      "169.253.1.1",     "192.167.1.1", "192.169.0.0",
	        "223.1.1.1",       "2606:4700::1111", "2a00::1",     "64:ff9b::101:101",
	        "2002:101:101::1", "::ffff:1.1.1.1",  "2001:200::1"};

	(void)state;
	for (size_t i = 0; i < sizeof(public) / sizeof(public[0]); i++) {
		if (!may(public[i], SBX_REACH_PUBLIC))
			fail_msg("%s", public[i]);
		assert_false(may(public[i], SBX_REACH_NONE));
	}
}

static void private_addresses_take_the_word(void **state)
{
	static const char *const private[] = {"10.0.0.1",         "10.255.255.255",
	                                      "127.0.0.1",        "127.255.255.254",
	                                      "172.16.0.1",       "172.31.1.1",
	                                      "192.168.1.1",      "100.64.0.1",
	                                      "100.127.255.255",  "198.18.0.1",
	                                      "198.19.1.1",       "192.0.0.1",
	                                      "203.0.113.7",      "::1",
	                                      "fc00::1",          "fdff::1",
	                                      "::ffff:127.0.0.1", "::ffff:10.1.1.1",
	                                      "64:ff9b::7f00:1",  "2002:7f00:1::",
	                                      "2001::1",          "fec0::1",
	                                      "2001:db8::1"};

	(void)state;
	for (size_t i = 0; i < sizeof(private) / sizeof(private[0]); i++) {
		if (may(private[i], SBX_REACH_PUBLIC) || !may(private[i], SBX_REACH_PRIVATE))
			fail_msg("%s", private[i]);
	}
}

static void no_name_leads_to_links_and_metadata(void **state)
{
	static const char *const never[] = {"0.0.0.0",
	                                    "0.1.2.3",
	                                    "169.254.169.254",
	                                    "169.254.0.1",
	                                    "100.100.100.200",
	                                    "224.0.0.1",
	                                    "239.1.1.1",
	                                    "240.0.0.1",
	                                    "255.255.255.255",
	                                    "192.0.0.192",
	                                    "168.63.129.16",
	                                    "::",
	                                    "::7f00:1",
	                                    "fe80::1",
	                                    "febf::1",
	                                    "ff02::1",
	                                    "fd00:ec2::254",
	                                    "::ffff:169.254.169.254",
	                                    "64:ff9b::a9fe:a9fe",
	                                    "2002:a9fe:a9fe::"};

	(void)state;
	for (size_t i = 0; i < sizeof(never) / sizeof(never[0]); i++) {
		if (may(never[i], SBX_REACH_PRIVATE) || !may(never[i], SBX_REACH_LITERAL))
			fail_msg("%s", never[i]);
	}
}

static void other_families_are_not_allowed(void **state)
{
	const struct sockaddr other = {.sa_family = AF_UNIX};

	(void)state;
	assert_false(sbx_address_allowed(&other, SBX_REACH_LITERAL));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_target_has_one_form),
	        cmocka_unit_test(what_is_read_differently_by_others_is_refused),
	        cmocka_unit_test(a_name_allows_itself_at_the_webs_ports),
	        cmocka_unit_test(a_port_allows_only_itself),
	        cmocka_unit_test(a_star_allows_what_is_below),
	        cmocka_unit_test(addresses_are_allowed_as_they_are),
	        cmocka_unit_test(what_is_no_rule_is_refused),
	        cmocka_unit_test(names_lead_to_public_addresses),
	        cmocka_unit_test(private_addresses_take_the_word),
	        cmocka_unit_test(no_name_leads_to_links_and_metadata),
	        cmocka_unit_test(other_families_are_not_allowed),
	};

	return cmocka_run_group_tests_name("hosts", tests, NULL, finish);
}
