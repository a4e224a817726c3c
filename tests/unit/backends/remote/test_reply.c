#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/remote/call.h"

static struct remote_reply reply;

static int forget(void **state)
{
	(void)state;
	remote_reply_release(&reply);
	return 0;
}

static int read_text(const char *text)
{
	struct sbx_error err = SBX_ERROR_INIT;
	const int r = remote_reply_read(text, strlen(text), &reply, &err);

	assert_int_equal(err.code, -r);
	assert_int_equal(r < 0, *err.text != '\0');
	return r;
}

static void expect_frame(size_t i, enum remote_frame_kind kind, const char *word, const char *bytes)
{
	const struct remote_frame *f = &reply.frames[i];

	assert_true(i < reply.n);
	assert_int_equal(f->kind, kind);
	assert_string_equal(f->word, word);
	assert_string_equal(f->bytes, bytes);
	assert_int_equal(f->len, strlen(bytes));
}

static void frames_are_read_in_their_order(void **state)
{
	const struct remote_frame *f;
	size_t at = 0;

	(void)state;
	assert_int_equal(read_text("S j-1 0 0 0 \n"
	                           "O j-1 18446744073709551615 2 3 aGVsbG8K\n"
	                           "Oh j-2 0 0 0 6869\n"
	                           "\n"
	                           "Ft - 13 0 0  two words \n"
	                           "E j-1 7 0 0 eA==\r\n"
	                           "X j-1 0 12 34\n"
	                           ".\n"),
	                 0);
	assert_int_equal(reply.n, 6);
	expect_frame(0, REMOTE_STARTED, "j-1", "");
	expect_frame(1, REMOTE_OUT, "j-1", "hello\n");
	assert_true(reply.frames[1].a == UINT64_MAX);
	assert_int_equal(reply.frames[1].b, 2);
	assert_int_equal(reply.frames[1].c, 3);
	expect_frame(2, REMOTE_OUT, "j-2", "hi");
	expect_frame(3, REMOTE_FAILED, "", " two words ");
	expect_frame(4, REMOTE_ERR, "j-1", "x");
	expect_frame(5, REMOTE_END, "j-1", "");
	f = remote_reply_next(&reply, &at, REMOTE_OUT, "j-2");
	assert_ptr_equal(f, &reply.frames[2]);
	assert_null(remote_reply_next(&reply, &at, REMOTE_OUT, NULL));
	at = 0;
	assert_ptr_equal(remote_reply_next(&reply, &at, REMOTE_OUT, NULL), &reply.frames[1]);
	assert_int_equal(at, 2);
}

static uint64_t errno_of(const char *number)
{
	char text[64];
	int code;

	snprintf(text, sizeof(text), "F - %s 0 0 \n.\n", number);
	assert_int_equal(read_text(text), 0);
	code = remote_reply_errno(&reply.frames[0]);
	remote_reply_release(&reply);
	return (uint64_t)code;
}

/* What the kernel would take for more than the failure of one operation, or for no answer. */
static void only_errnos_of_the_runner_are_believed(void **state)
{
	(void)state;
	assert_int_equal(errno_of("2"), ENOENT);
	assert_int_equal(errno_of("116"), ESTALE);
	assert_int_equal(errno_of("121"), EREMOTEIO);
	assert_int_equal(errno_of("0"), 0);
	assert_int_equal(errno_of("4"), 0);
	assert_int_equal(errno_of("38"), 0);
	assert_int_equal(errno_of("512"), 0);
	assert_int_equal(errno_of("4294967298"), 0);
	assert_int_equal(errno_of("18446744073709551615"), 0);
}

static void bytes_may_be_any(void **state)
{
	(void)state;
	assert_int_equal(read_text("D a 0 0 0 AAEC/w==\nDh a 0 0 0 00ff\n.\n"), 0);
	assert_int_equal(reply.frames[0].len, 4);
	assert_memory_equal(reply.frames[0].bytes, "\0\1\2\377", 5);
	assert_memory_equal(reply.frames[1].bytes, "\0\377", 3);
}

/* As `printf hello | gzip -1 | base64` has it. */
#define HELLO   "H4sIAAAAAAAEA8tIzcnJBwCGphA2BQAAAA=="
#define HELLO16 "1f8b0800000000000403cb48cdc9c9070086a6103605000000"

static void compressed_bytes_are_inflated(void **state)
{
	(void)state;
	assert_int_equal(read_text("Mz - 0 0 0 " HELLO "\nS - 0 0 0\nMzh - 1 0 0 " HELLO16 "\n.\n"),
	                 0);
	expect_frame(0, REMOTE_MANIFEST, "", "hello");
	expect_frame(1, REMOTE_STARTED, "", "");
	expect_frame(2, REMOTE_MANIFEST, "", "hello");
}

static void an_answer_without_its_last_line_is_cut(void **state)
{
	const char *const cut[] = {
	        "",    "\n", "S - 0 0 0\n", "O j 0 0 0 aGVs", "O j 0 0 0 aGVs.\n", ".\nS - 0 0 0\n",
	        "..\n"};
	const char *const whole[] = {".", ".\n", ".\r\n\n ", "S - 0 0 0\n."};

	(void)state;
	for (size_t i = 0; i < sizeof(cut) / sizeof(*cut); i++) {
		assert_false(remote_reply_whole(cut[i], strlen(cut[i])));
		assert_int_equal(read_text(cut[i]), -EPROTO);
		assert_null(reply.frames);
	}
	for (size_t i = 0; i < sizeof(whole) / sizeof(*whole); i++) {
		assert_true(remote_reply_whole(whole[i], strlen(whole[i])));
		assert_int_equal(read_text(whole[i]), 0);
		remote_reply_release(&reply);
	}
}

static void what_is_no_frame_is_refused(void **state)
{
	const char *const wrong[] = {
	        "hello",
	        "Q - 0 0 0 ",
	        "Oy j 0 0 0 ",
	        "Otz j 0 0 0 ",
	        "O",
	        "O j",
	        "O j 0 0",
	        "O j 0 0 x",
	        "O j 0 -1 0 ",
	        "O j 0  0 0 ",
	        "O  0 0 0 ",
	        "O j 18446744073709551616 0 0 ",
	        "O j 99999999999999999999 0 0 ",
	        "O j\t 0 0 0 ",
	        "O j\303\244 0 0 0 ",
	        "O 0123456789012345678901234567890123456789012345678901234567890123456789ab 0 0 0 ",
	        "O j 0 0 0 a",
	        "O j 0 0 0 aGV",
	        "O j 0 0 0 aGVsb===",
	        "O j 0 0 0 a===",
	        "O j 0 0 0 aG=s",
	        "O j 0 0 0 aG s",
	        "O j 0 0 0 aGVs ",
	        "Oh j 0 0 0 6",
	        "Oh j 0 0 0 6G",
	        "Oz j 0 0 0 aGVsbG8K",
	        "Oz j 0 0 0 ",
	        "Oz j 0 0 0 H4sIAAAAAAAEA8tIzcnJ",
	        "Ozh j 0 0 0 " HELLO16 "00",
	        ".",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		char text[256];

		snprintf(text, sizeof(text), "S - 0 0 0\n%s\n.\n", wrong[i]);
		if (read_text(text) != -EPROTO)
			fail_msg("taken: %s", wrong[i]);
		assert_null(reply.frames);
		assert_null(reply.store);
	}
}

/* LEN bytes of a letter, as gzip makes them of themselves. */
static char *bomb(size_t len)
{
	char command[200];
	char *text = malloc(1 << 20);
	size_t n;
	FILE *f;

	snprintf(command, sizeof(command),
	         "printf 'Dz - 0 0 0 '; head -c %zu /dev/zero | gzip | base64 | tr -d '\\n'; "
	         "printf '\\n.\\n'",
	         len);
	f = popen(command, "re");
	assert_non_null(f);
	n = fread(text, 1, (1 << 20) - 1, f);
	text[n] = '\0';
	pclose(f);
	return text;
}

static void what_is_inflated_has_a_limit(void **state)
{
	char *text = bomb(REMOTE_REPLY_MAX + 1);

	(void)state;
	assert_int_equal(read_text(text), -EMSGSIZE);
	free(text);
	text = bomb(REMOTE_REPLY_MAX - 1);
	assert_int_equal(read_text(text), 0);
	assert_int_equal(reply.frames[0].len, REMOTE_REPLY_MAX - 1);
	free(text);
}

static void frames_have_a_limit(void **state)
{
	const char line[] = "S - 0 0 0\n";
	const size_t n = sizeof(line) - 1;
	char *text = malloc((REMOTE_FRAMES_MAX + 1) * n + 3), *at = text;

	(void)state;
	for (size_t i = 0; i <= REMOTE_FRAMES_MAX; i++, at += n)
		memcpy(at, line, n);
	memcpy(at, ".\n", 3);
	assert_int_equal(read_text(text), -EMSGSIZE);
	assert_int_equal(read_text(text + n), 0);
	assert_int_equal(reply.n, REMOTE_FRAMES_MAX);
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_teardown(frames_are_read_in_their_order, forget),
	        cmocka_unit_test_teardown(only_errnos_of_the_runner_are_believed, forget),
	        cmocka_unit_test_teardown(bytes_may_be_any, forget),
	        cmocka_unit_test_teardown(compressed_bytes_are_inflated, forget),
	        cmocka_unit_test_teardown(an_answer_without_its_last_line_is_cut, forget),
	        cmocka_unit_test_teardown(what_is_no_frame_is_refused, forget),
	        cmocka_unit_test_teardown(what_is_inflated_has_a_limit, forget),
	        cmocka_unit_test_teardown(frames_have_a_limit, forget),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
