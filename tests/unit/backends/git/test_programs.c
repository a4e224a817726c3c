/* Git's settings of programs, and which of them lead into a tree. */
#include "backends/git/programs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "backends/git/config.h"
#include "sandboxfs/cleanup.h"

static const char *const paths[] = {"/mnt/m", "/state", NULL};
static const struct sbx_git_trees trees = {.paths = paths, .home = "/mnt/m/home"};
static const struct sbx_git_trees at_home = {.paths = paths, .home = "/home/u"};

static char said[4096];

static int note(const char *key, const char *value, void *data)
{
	const size_t n = strlen(said);

	(void)data;
	snprintf(said + n, sizeof(said) - n, "%s=%s|", key, value ? value : "(none)");
	return 0;
}

static void reads_as(const char *text, const char *want)
{
	said[0] = '\0';
	assert_int_equal(sbx_git_config_parse(text, note, NULL), 0);
	assert_string_equal(said, want);
}

static void texts(void **state)
{
	(void)state;
	reads_as("", "");
	reads_as("\xef\xbb\xbf[Core]\n\tBare = false\n", "core.bare=false|");
	reads_as("[a \"B.c\"] X=1 # no\n y ; no\n", "a.B.c.x=1|a.B.c.y=(none)|");
	reads_as("[a \"q\\\"\\\\z\"]\nx=1", "a.q\"\\z.x=1|");
	reads_as("[A.B]\nx = a  b  \n", "a.b.x=a  b|");
	reads_as("[a]\nx = \" a # b \" ; c\n", "a.x= a # b |");
	reads_as("[a]\nx = one \\\n two\\t\\\"\n", "a.x=one  two\t\"|");
	reads_as("[a]\r\nx = y\r\nz\r\n", "a.x=y|a.z=(none)|");
	reads_as("[a]\nx =\n", "a.x=|");
}

static void no_texts(void **state)
{
	static const char *const bad[] = {"x = 1",           "[a\nx=1",        "[a \"b]\nx=1",
	                                  "[a]\nx = \"open", "[a]\nx = \\q\n", "[a]\n= 1\n",
	                                  "[a]\nx y\n",      "[a \"b\" c]"};

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(bad); i++)
		assert_int_equal(sbx_git_config_parse(bad[i], note, NULL), -EINVAL);
}

static void lines(void **state)
{
	static const char *const in[] = {
	        "./x",
	        "../x",
	        "tools/x %f",
	        "node_modules/.bin/x",
	        "/mnt/m/a/x",
	        "/mnt//m/./a/x",
	        "/usr/../mnt/m/a/x",
	        "/state/trees/a/x",
	        "sh ./x",
	        "sh x",
	        "sh",
	        "sh -c ./x",
	        "sh -ec 'cat | tools/x'",
	        "bash --norc -c \"a; ./x\"",
	        "env A=1 ./x",
	        "nice -n 5 tools/x",
	        "A=1 ./x",
	        "A=./x y",
	        "cat | ./x",
	        "a && ./x",
	        "a; ./x",
	        "a\n./x",
	        "(./x)",
	        "{ ./x; }",
	        "if a; then ./x; fi",
	        "! ./x",
	        "f() { ./x; }; f",
	        "$(./x)",
	        "echo $(./x)",
	        "echo \"$(./x)\"",
	        "echo `tools/x`",
	        "$X",
	        "\"$X\" y",
	        "${X}/y",
	        "\"./x\"",
	        "'tools/x'",
	        "to\\ols/x",
	        "python3 x.py",
	        "python3 -m x",
	        "/usr/bin/python3.11 -m x",
	        "python3 -c 'import x'",
	        "node x",
	        "perl x.pl",
	        "perl -I. -e x",
	        "npx x",
	        "npm run x",
	        "make x",
	        "prog ./x",
	        "prog --file=./x",
	        "prog --file=a/x",
	        "prog a/x",
	        "ssh -F .ssh/config",
	        "git -c core.pager=./x log",
	        ". ./x",
	        ". x",
	        "eval './x'",
	        "xargs ./x",
	        "~/x",
	};
	static const char *const out[] = {
	        "",
	        "x",
	        "git-lfs smudge -- %f",
	        "git-lfs filter-process",
	        "less -R",
	        "delta --dark | less --tabs=4 -RFX",
	        "vim",
	        "code --wait",
	        "/usr/bin/vim",
	        "/mnt/more/x",
	        "/opt/my\\ tools/x",
	        "\"/opt/my tools/x\"",
	        "sed -e s/a/b/",
	        "sed 's/a\\/b/c/' | tr a b",
	        "sh -c 'cat | x'",
	        "sh /opt/x",
	        "python3 /opt/x.py %f",
	        "perl -pe 's/a/b/'",
	        "git log origin/main..",
	        "f() { git log \"$@\"; }; f",
	        "ssh -i /home/x/.ssh/id -o BatchMode=yes",
	        "gh auth git-credential",
	        "test -z \"$x\" && cat >/dev/null",
	        "openssl enc -d -aes-256-cbc",
	};

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(in); i++)
		if (!sbx_git_command_leads_in(&trees, in[i]))
			fail_msg("leads in: %s", in[i]);
	for (size_t i = 0; i < SBX_ARRAY_SIZE(out); i++)
		if (sbx_git_command_leads_in(&trees, out[i]))
			fail_msg("leads nowhere: %s", out[i]);
	assert_false(sbx_git_command_leads_in(&at_home, "~/x"));
	assert_false(sbx_git_command_leads_in(&at_home, "$HOME/x"));
	assert_true(sbx_git_command_leads_in(&trees, "$HOME/x"));
}

/* Nothing that a line can say takes more than its length. */
static void long_lines(void **state)
{
	char text[4096];

	(void)state;
	memset(text, '(', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	assert_false(sbx_git_command_leads_in(&trees, text));
	for (size_t i = 0; i + 2 < sizeof(text); i += 2)
		memcpy(text + i, "$(", 3);
	assert_true(sbx_git_command_leads_in(&trees, text));
	memset(text, '`', sizeof(text) - 2);
	sbx_git_command_leads_in(&trees, text);
	assert_false(sbx_git_command_leads_in(&trees, "'"));
	assert_false(sbx_git_command_leads_in(&trees, "\"\\"));
}

static bool leads_in(const char *key, const char *value)
{
	const struct sbx_git_program *program = sbx_git_program_find(key);

	assert_non_null(program);
	return sbx_git_program_leads_in(program, key, value, &trees);
}

static void kinds(void **state)
{
	(void)state;
	assert_true(leads_in("core.hookspath", ".husky"));
	assert_true(leads_in("core.hookspath", "hooks"));
	assert_false(leads_in("core.hookspath", "/etc/hooks"));
	assert_false(leads_in("core.hookspath", "~u/hooks"));
	assert_false(leads_in("core.hookspath", NULL));
	assert_false(leads_in("core.fsmonitor", "true"));
	assert_true(leads_in("core.fsmonitor", ".git-hooks/x"));
	assert_true(leads_in("core.fsmonitor", "./x"));
	assert_false(leads_in("pager.log", "0"));
	assert_false(leads_in("alias.x", "log ./x"));
	assert_true(leads_in("alias.x", "!./x"));
	assert_true(leads_in("alias.x.command", "!./x"));
	assert_false(leads_in("credential.helper", "store"));
	assert_true(leads_in("credential.https://a.b/.helper", "!x/y"));
	assert_false(leads_in("gpg.program", "gpg2"));
	assert_true(leads_in("gpg.program", "bin/gpg2"));
	assert_true(leads_in("merge.tool", "../x"));
	assert_false(leads_in("merge.tool", "meld"));
	assert_false(leads_in("submodule.a.b.update", "rebase"));
	assert_true(leads_in("submodule.a.b.update", "!./x"));
	assert_false(leads_in("remote.x.url", "../x"));
	assert_true(leads_in("remote.x.url", "ext::./x"));
	assert_true(leads_in("url.ext::./x .insteadof", "y"));
	assert_null(sbx_git_program_find("core.bare"));
	assert_null(sbx_git_program_find("diff.a.b.binary"));
	assert_null(sbx_git_program_find("pager.a.b"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(texts), cmocka_unit_test(no_texts),   cmocka_unit_test(lines),
	        cmocka_unit_test(kinds), cmocka_unit_test(long_lines),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
