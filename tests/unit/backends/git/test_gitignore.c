/* Patterns of .gitignore: what git says of generated ones is what we say. */
#include "backends/git/gitignore.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backends/git/wildmatch.h"
#include "sandboxfs/cleanup.h"
#include "tests/lib/scratch.h"

/* What patterns are put together from. */
static const char *const pieces[] = {
        "a",   "b",     "ab",      "B",          "*",    "*",        "**", "**/",     "/**",
        "/",   "/",     "?",       "[ab]",       "[!a]", "[^b]",     "\\", "\\*",     "!",
        " ",   "\\ ",   "#",       ".o",         "[a-c", "]",        "-",  "[]a]",    "[[:alpha:]]",
        "[a-", "[a-b]", "[A-B]b",  "[[:upper:]", "]",    "[\\]a]",   "[b", "/**/",    "***",
        "\r",  "\t",    "[!]a-]b", "[[:space:]", "]b",   "[[:no:]]", "[",  "[*-\\]]", "\303\244",
};

static const char *const names[] = {
        "a", "b", "ab", "B", "ba", "a.o", "*", "a b", " ", "#a", "!a", "]", "a-", "\303\244",
};

static char paths[4096][64];
static bool directory[4096];
static int path_count;

static void make_tree(const char *top, const char *below, int depth)
{
	for (size_t i = 0; i < SBX_ARRAY_SIZE(names); i++) {
		char *path = paths[path_count];
		bool dir = depth > 0 && (i == 0 || i == 2 || i == 3 || i == 7);

		snprintf(path, sizeof(paths[0]), "%s%s%s", below, *below ? "/" : "", names[i]);
		directory[path_count++] = dir;
		if (dir) {
			scratch_mkdir(scratch_path("%s/%s", top, path));
			make_tree(top, path, depth - 1);
		} else {
			scratch_write(scratch_path("%s/%s", top, path), "");
		}
	}
}

/* Runs a git command line in the scratch repository; its exit status. */
static int git(const char *args)
{
	_cleanup_free_ char *line = NULL;

	assert_true(
	        asprintf(&line,
	                 "cd '%s' && env -u GIT_DIR HOME=/nonexistent GIT_CONFIG_NOSYSTEM=1 git %s",
	                 scratch_path("top"), args) > 0);
	return system(line);
}

static bool have_git(void)
{
	return system("git --version >/dev/null 2>&1") == 0;
}

static int setup(void **state)
{
	(void)state;
	scratch_make();
	scratch_mkdir(scratch_path("top"));
	path_count = 0;
	make_tree("top", "", 2);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	scratch_remove();
	return 0;
}

static void write_paths(void)
{
	_cleanup_file_ FILE *f = fopen(scratch_path("paths"), "w");

	assert_non_null(f);
	for (int i = 0; i < path_count; i++)
		assert_true(fwrite(paths[i], 1, strlen(paths[i]) + 1, f) > 0);
}

static uint32_t origin;

static uint32_t pick(uint32_t n)
{
	origin = origin * 1664525 + 1013904223;
	return (origin >> 8) % n;
}

static void make_patterns(char *text, size_t size)
{
	text[0] = '\0';
	for (uint32_t line = 2 + pick(5); line; line--) {
		for (uint32_t piece = 1 + pick(5); piece; piece--)
			strncat(text, pieces[pick(SBX_ARRAY_SIZE(pieces))],
			        size - strlen(text) - 1);
		if (line > 1 || pick(2))
			strncat(text, "\n", size - strlen(text) - 1);
	}
}

/* Whether PATH, or a directory that it is in, is ignored by the files of the top and of "a". */
static bool ignored(struct sbx_ignore *ig, const char *path, bool dir, const char *inner)
{
	char part[64];
	bool pushed = false, yes = false;

	for (const char *slash = path; !yes && slash; slash = *slash ? slash + 1 : NULL) {
		slash = strchrnul(slash, '/');
		memcpy(part, path, (size_t)(slash - path));
		part[slash - path] = '\0';
		yes = sbx_ignore_match(ig, part, *slash || dir);
		if (!strcmp(part, "a") && *slash && !yes) {
			assert_int_equal(sbx_ignore_push(ig, "a", inner, strlen(inner)), 0);
			pushed = true;
		}
	}
	if (pushed)
		sbx_ignore_pop(ig);
	return yes;
}

/* Reads what git has printed and compares it, path by path. */
static void compare(const char *text, const char *inner, bool icase)
{
	_cleanup_file_ FILE *f = fopen(scratch_path("out"), "r");
	_cleanup_free_ char *line = NULL;
	struct sbx_ignore *ig;
	size_t size = 0;
	bool more;

	assert_non_null(f);
	assert_int_equal(sbx_ignore_new(icase, &ig), 0);
	assert_int_equal(sbx_ignore_push(ig, "", text, strlen(text)), 0);
	more = getdelim(&line, &size, '\0', f) > 0;
	for (int i = 0; i < path_count; i++) {
		bool theirs = more && !strcmp(line, paths[i]);

		if (ignored(ig, paths[i], directory[i], inner) != theirs)
			fail_msg("\"%s\", git %s; patterns:\n%s\nand in a:\n%s", paths[i],
			         theirs ? "ignores it" : "does not ignore it", text, inner);
		if (theirs)
			more = getdelim(&line, &size, '\0', f) > 0;
	}
	assert_false(more);
	sbx_ignore_free(ig);
}

static void compare_rounds(int rounds, bool icase)
{
	char text[256], inner[256];

	if (!have_git())
		skip_because("no git here");
	assert_int_equal(git("init -q"), 0);
	assert_int_equal(
	        git(icase ? "config core.ignorecase true" : "config core.ignorecase false"), 0);
	write_paths();
	for (int i = 0; i < rounds; i++) {
		origin = (uint32_t)i;
		make_patterns(text, sizeof(text));
		make_patterns(inner, sizeof(inner));
		scratch_write(scratch_path("top/.gitignore"), text);
		scratch_write(scratch_path("top/a/.gitignore"), inner);
		assert_true(git("check-ignore --no-index --stdin -z <../paths >../out") >= 0);
		compare(text, inner, icase);
	}
}

static void generated_patterns_match_as_in_git(void **state)
{
	(void)state;
	compare_rounds(300, false);
}

static void generated_patterns_match_as_in_git_without_case(void **state)
{
	(void)state;
	compare_rounds(200, true);
}

static bool match(const char *text, const char *path, bool dir)
{
	struct sbx_ignore *ig;
	bool yes;

	assert_int_equal(sbx_ignore_new(false, &ig), 0);
	assert_int_equal(sbx_ignore_push(ig, "", text, strlen(text)), 0);
	yes = sbx_ignore_match(ig, path, dir);
	sbx_ignore_free(ig);
	return yes;
}

static void patterns_mean_what_the_manual_says(void **state)
{
	(void)state;
	assert_true(match("*.o", "a/b/c.o", false));
	assert_false(match("/*.o", "a/c.o", false));
	assert_true(match("a/**/z", "a/z", false));
	assert_true(match("a/**/z", "a/b/c/z", false));
	assert_true(match("**/z", "z", false));
	assert_true(match("a/**", "a/b/c", false));
	assert_false(match("a/**", "a", true));
	assert_false(match("build/", "build", false));
	assert_true(match("build/", "x/build", true));
	assert_false(match("*.o\n!keep.o\n", "keep.o", false));
	assert_true(match("!keep.o\n*.o", "keep.o", false));
	assert_true(match("\\#x\r\n", "#x", false));
	assert_true(match("x  \n", "x", false));
	assert_true(match("x\\ \n", "x ", false));
	assert_true(match("\xef\xbb\xbf"
	                  "x\n",
	                  "x", false));
	assert_false(match("[x\nx\\", "x", false));
	assert_false(match("", "x", false));
}

static void later_files_outrank_and_are_taken_back(void **state)
{
	struct sbx_ignore *ig;

	(void)state;
	assert_int_equal(sbx_ignore_new(false, &ig), 0);
	assert_int_equal(sbx_ignore_push(ig, "", "*.o\n", 4), 0);
	assert_int_equal(sbx_ignore_push(ig, "d/e", "!x.o\n/y\n", 8), 0);
	assert_false(sbx_ignore_match(ig, "d/e/x.o", false));
	assert_true(sbx_ignore_match(ig, "d/x.o", false));
	assert_true(sbx_ignore_match(ig, "d/e/y", false));
	assert_false(sbx_ignore_match(ig, "d/ey", false));
	assert_false(sbx_ignore_match(ig, "d/e", true));
	sbx_ignore_pop(ig);
	assert_true(sbx_ignore_match(ig, "d/e/x.o", false));
	assert_false(sbx_ignore_match(ig, "d/e/y", false));
	sbx_ignore_free(ig);
}

/* One way after the other would take longer than any of us lives. */
static void hostile_patterns_end(void **state)
{
	char pattern[4097] = "", path[4096];

	(void)state;
	memset(path, 'a', sizeof(path) - 1);
	path[sizeof(path) - 1] = '\0';
	for (size_t i = 0; i < 1000; i++)
		memcpy(pattern + 2 * i, "*a", 2);
	memcpy(pattern + 2000, "*b", 3);
	assert_false(match(pattern, path, false));
	for (size_t i = 0; i < 800; i++)
		memcpy(pattern + 4 * i, "**/*", 4);
	memcpy(pattern + 3200, "/b", 3);
	for (size_t i = 1; i < sizeof(path) - 1; i += 2)
		path[i] = '/';
	assert_false(match(pattern, path, false));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(generated_patterns_match_as_in_git, setup,
	                                        teardown),
	        cmocka_unit_test_setup_teardown(generated_patterns_match_as_in_git_without_case,
	                                        setup, teardown),
	        cmocka_unit_test(patterns_mean_what_the_manual_says),
	        cmocka_unit_test(later_files_outrank_and_are_taken_back),
	        cmocka_unit_test(hostile_patterns_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
