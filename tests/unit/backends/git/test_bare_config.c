/* The part of a git configuration that commands are shown. */
#include "backends/git/bare_config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

static void expect(const char *text, const char *want)
{
	char *have;

	assert_int_equal(sbx_git_bare_config(text, &have), 0);
	assert_string_equal(have, want);
	free(have);
}

static void what_a_repository_is_used_by_stays(void **state)
{
	(void)state;
	expect("[core]\n\tbare = false\n\tfileMode\n[remote \"or\\\"i\"]\n\turl = /x # y\n"
	       "[branch \"a.b\"]\n\tmerge = refs/heads/a.b\n",
	       "[core]\n\tbare = \"false\"\n[core]\n\tfilemode\n[remote \"or\\\"i\"]\n\turl = "
	       "\"/x\"\n"
	       "[branch \"a.b\"]\n\tmerge = \"refs/heads/a.b\"\n");
	expect("[user]\n\tname = \"A \\\"B\\\" \\\\ C\"\n",
	       "[user]\n\tname = \"A \\\"B\\\" \\\\ C\"\n");
}

static void urls_lose_who_stands_in_them(void **state)
{
	(void)state;
	expect("[remote \"o\"]\n\turl = https://user:pass@host/x.git\n\tpushurl = "
	       "https://tok@host/x\n",
	       "[remote \"o\"]\n\turl = \"https://host/x.git\"\n"
	       "[remote \"o\"]\n\tpushurl = \"https://host/x\"\n");
	expect("[remote \"o\"]\n\turl = git@host:x.git\n",
	       "[remote \"o\"]\n\turl = \"git@host:x.git\"\n");
	expect("[submodule \"https://u:p@h/s.x\"]\n\tactive = true\n",
	       "[submodule \"https://h/s.x\"]\n\tactive = \"true\"\n");
}

static void what_may_be_a_secret_is_left_out(void **state)
{
	(void)state;
	expect("[http]\n\textraHeader = x\n[http \"https://h/\"]\n\textraHeader = y\n"
	       "[credential]\n\thelper = !echo password=x\n[url \"https://tok@h/\"]\n\tinsteadOf = "
	       "h:\n"
	       "[include]\n\tpath = /x\n[alias]\n\tx = !curl tok\n[sendemail]\n\tsmtpPass = x\n"
	       "[core]\n\tsshCommand = ssh -i x\n\taskPass = x\n[remote \"o\"]\n\tproxy = "
	       "http://u:p@h\n"
	       "[lfs \"https://tok@h\"]\n\taccess = basic\n[github]\n\ttoken = x\n",
	       "");
}

static void what_is_no_configuration_is_nothing(void **state)
{
	(void)state;
	expect("[remote \"o\"]\n\turl = /x\nhttps://user:pass@host\n", "");
	expect("", "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(what_a_repository_is_used_by_stays),
	        cmocka_unit_test(urls_lose_who_stands_in_them),
	        cmocka_unit_test(what_may_be_a_secret_is_left_out),
	        cmocka_unit_test(what_is_no_configuration_is_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
