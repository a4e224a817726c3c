#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "backends/remote/line.h"

static void expect_same(enum remote_tense tense, const struct sbx_change *c)
{
	struct remote_text t = {0};
	struct remote_line line;

	remote_line_write(&t, 7, tense, c);
	assert_int_equal(t.at[t.n - 1], '\n');
	assert_null(memchr(t.at, '\n', t.n - 1));
	assert_int_equal(remote_line_read(t.at, t.n - 1, &line), 0);
	assert_int_equal(line.seq, 7);
	assert_int_equal(line.tense, tense);
	assert_int_equal(line.change.kind, c->kind);
	assert_int_equal(line.change.ino, c->ino);
	assert_int_equal(line.change.mode, c->mode);
	assert_string_equal(line.change.path, c->path);
	assert_int_equal(!line.change.to, !c->to);
	if (c->to)
		assert_string_equal(line.change.to, c->to);
	if (c->target)
		assert_string_equal(line.change.target, c->target);
	remote_line_release(&line);
	remote_text_release(&t);
}

static void a_change_is_read_as_it_was(void **state)
{
	char odd[256];

	(void)state;
	for (int i = 1; i < 256; i++)
		odd[i - 1] = (char)(i == '/' ? '_' : i);
	odd[255] = '\0';
	expect_same(REMOTE_DONE, &(struct sbx_change){.kind = SBX_CHANGE_DATA,
	                                              .path = odd,
	                                              .ino = UINT64_MAX,
	                                              .mode = 0100644});
	for (enum remote_tense tense = REMOTE_DONE; tense <= REMOTE_DROPPED; tense++)
		expect_same(tense, &(struct sbx_change){.kind = SBX_CHANGE_MOVED,
		                                        .path = ".a/.b",
		                                        .to = "%41 b",
		                                        .mode = 040755});
	expect_same(REMOTE_DONE, &(struct sbx_change){.kind = SBX_CHANGE_MADE,
	                                              .path = "l",
	                                              .target = ".",
	                                              .mode = S_IFLNK | 0777});
	expect_same(REMOTE_DONE,
	            &(struct sbx_change){.kind = SBX_CHANGE_STATUS, .path = "", .mode = 040700});
}

static void what_is_no_line_is_refused(void **state)
{
	static const char *const bad[] = {
	        "",
	        "7",
	        "7 data 1 644",
	        "7 ?data 1 644 a",
	        "7 ?!gone 1 644 a",
	        "x data 1 644 a",
	        "7 other 1 644 a",
	        "7 data 1 648 a",
	        "7 data 1 644 a b",
	        "7 moved 1 644 a",
	        "7 data 1 644 ..",
	        "7 data 1 644 %2E%2E/a",
	        "7 data 1 644 a//b",
	        "7 data 1 644 /a",
	        "7 data 1 644 a/",
	        "7 data 1 644 a/./b",
	        "7 data 1 644 .",
	        "7 moved 1 644 a .",
	        "7 data 1 644 %",
	        "7 data 1 644 %0",
	        "7 data 1 644 %00",
	        "7 data 1 644 %zz",
	        "07 data 1 644 a",
	        "7 data -1 644 a",
	        "7 made 1 120777 a",
	        "7 data 99999999999999999999 644 a",
	        "7  data 1 644 a",
	        "7 data 1 644 a ",
	};
	struct remote_line line;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (remote_line_read(bad[i], strlen(bad[i]), &line) != -EUCLEAN)
			fail_msg("taken: %s", bad[i]);
	assert_int_equal(remote_line_read("7 data 1 644 a\0b", 16, &line), -EUCLEAN);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(a_change_is_read_as_it_was),
	        cmocka_unit_test(what_is_no_line_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
