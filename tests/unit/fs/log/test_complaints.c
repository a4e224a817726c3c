#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fs/log/complaints.h"

/* EXPECTED: of each, the last first, m(issing), r(ead-only), d(enied) or p(rogram), the name, a
 * bar. */
static void expect(const char *text, const char *expected)
{
	struct sbx_complaints c;
	char *copy = strdup(text), have[1024] = "";
	size_t used = 0;

	assert_non_null(copy);
	sbx_complaints_read(copy, strlen(copy), &c);
	for (size_t i = 0; i < c.n; i++)
		used += (size_t)snprintf(have + used, sizeof(have) - used, "%c%s|",
		                         "mrdp"[c.all[i].kind], c.all[i].name);
	assert_string_equal(have, expected);
	free(copy);
}

static void programs_of_c(void **state)
{
	(void)state;
	expect("cat: /home/u/x: No such file or directory\n", "m/home/u/x|");
	expect("cat: /home/u/my file: No such file or directory\r\n", "m/home/u/my file|");
	expect("ls: cannot access '/home/u/x y': No such file or directory", "m/home/u/x y|");
	expect("touch: cannot touch \u2018/etc/x\u2019: Read-only file system\n", "r/etc/x|");
	expect("/usr/bin/cat: /root/x: Permission denied\n", "d/usr/bin/cat|d/root/x|");
	expect("fatal: could not open /a/b for reading: No such file or directory\n", "m/a/b|");
	expect("open /a/b: no such file or directory\n", "m/a/b|");
	expect("java.io.FileNotFoundException: /a/b (No such file or directory)\n", "m/a/b|");
	expect("cp: cannot create '/a/' from \"/b\": No such file or directory\n", "m/a|m/b|");
}

static void shells(void **state)
{
	(void)state;
	expect("sh: 1: tool: not found\n", "ptool|");
	expect("bash: line 1: tool-2: command not found\n", "ptool-2|");
	expect("zsh:1: command not found: tool\n", "ptool|");
	expect("env: \u2018tool\u2019: No such file or directory\n", "ptool|");
	expect("/usr/bin/env: 'tool': No such file or directory\n", "ptool|");
	expect("make: tool: No such file or directory\n", "ptool|");
	expect("sh: 1: /home/u/tool: not found\n", "m/home/u/tool|");
	expect("sh: 1: cannot create /etc/x: Read-only file system\n", "r/etc/x|");
	expect("sh: 1: cannot create /home/u/x: Directory nonexistent\n", "m/home/u/x|");
	expect("sh: 1: cannot open /home/u/x: No such file\n", "m/home/u/x|");
	expect("bash: line 1: /etc/x: Read-only file system\n", "r/etc/x|");
}

static void other_languages(void **state)
{
	(void)state;
	expect("FileNotFoundError: [Errno 2] No such file or directory: '/home/u/x'\n",
	       "m/home/u/x|");
	expect("OSError: [Errno 30] Read-only file system: '/etc/a' -> '/etc/b'\n",
	       "r/etc/a|r/etc/b|");
	expect("Error: ENOENT: no such file or directory, open '/x/y'\n", "m/x/y|");
	expect("Error: EROFS: read-only file system, mkdir '/etc/x'\n", "r/etc/x|");
	expect("Error: spawn tool ENOENT\n", "ptool|");
	expect("Error: spawn /x/tool ENOENT\n", "m/x/tool|");
}

static void the_last_comes_first_and_once(void **state)
{
	char text[2048] = "";

	(void)state;
	expect("cat: /a: No such file\ncat: /b: No such file\ncat: /a: No such file\n", "m/a|m/b|");
	for (int i = 0; i < 20; i++)
		snprintf(text + strlen(text), 64, "cat: /%d: No such file\n", i);
	expect(text, "m/19|m/18|m/17|m/16|m/15|m/14|m/13|m/12|");
}

static void what_says_nothing_names_nothing(void **state)
{
	char text[PATH_MAX + 64];

	(void)state;
	expect("", "");
	expect("\n\n", "");
	expect("all is well in /home/u/x\n", "");
	expect("cat: x/y: No such file or directory\n", "");
	expect("cat: /: No such file or directory\n", "");
	expect("cat: //a: No such file\ncat: /a/../b: No such file\ncat: /./a: No such file\n", "");
	expect("cat: /a\tb: No such file or directory\n", "");
	expect("ls: cannot access '/home/u: No such file or directory\n", "");
	expect("sh: 1: : not found\n: not found\n: command not found\n", "");
	snprintf(text, sizeof(text), "cat: /%0*d: No such file\n", PATH_MAX, 0);
	expect(text, "");
}

static void bytes_are_bytes(void **state)
{
	char text[] = "cat: /a\0b: No such file\ncat: /c\xff: No such file\0";
	struct sbx_complaints c;

	(void)state;
	sbx_complaints_read(text, sizeof(text) - 1, &c);
	assert_int_equal(c.n, 1);
	assert_string_equal(c.all[0].name, "/c\xff");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(programs_of_c),
	        cmocka_unit_test(shells),
	        cmocka_unit_test(other_languages),
	        cmocka_unit_test(the_last_comes_first_and_once),
	        cmocka_unit_test(what_says_nothing_names_nothing),
	        cmocka_unit_test(bytes_are_bytes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
