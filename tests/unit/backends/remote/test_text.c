#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/remote/text.h"

static void pieces_are_joined(void **state)
{
	struct remote_text t = {0};

	(void)state;
	remote_text_add(&t, "");
	assert_string_equal(t.at, "");
	remote_text_add(&t, "r_list");
	remote_text_add_n(&t, " a b c", 4);
	remote_text_printf(&t, " %d %s\n", 12, "x");
	assert_string_equal(t.at, "r_list a b 12 x\n");
	assert_int_equal(t.n, strlen(t.at));
	assert_false(t.failed);
	remote_text_release(&t);
	assert_null(t.at);
	remote_text_add(&t, "again");
	assert_string_equal(t.at, "again");
	remote_text_release(&t);
}

/* Each length meets each border of what was reserved. */
static void it_grows_as_it_must(void **state)
{
	struct remote_text t = {0};
	char piece[301];

	(void)state;
	memset(piece, 'x', sizeof(piece));
	for (size_t n = 0, sum = 0; n <= 300; sum += n++) {
		assert_int_equal(t.n, sum);
		if (n % 2)
			remote_text_add_n(&t, piece, n);
		else
			remote_text_printf(&t, "%.*s", (int)n, piece);
	}
	assert_int_equal(strspn(t.at, "x"), t.n);
	remote_text_release(&t);
}

/* One step at a time that no memory holds. */
static void what_does_not_fit_is_told(void **state)
{
	struct remote_text t = {0};

	(void)state;
	remote_text_add(&t, "a");
	remote_text_add_n(&t, "b", SIZE_MAX - 1);
	assert_true(t.failed);
	remote_text_add(&t, "c");
	remote_text_printf(&t, "%d", 1);
	assert_string_equal(t.at, "a");
	remote_text_release(&t);
	assert_false(t.failed);
}

/* The bytes that SHELL gives `printf %s` for WORD. */
static void expect_word(const char *shell, const char *word)
{
	struct remote_text t = {0}, line = {0};
	char got[1024];
	FILE *f;
	size_t n;

	remote_text_add(&t, "printf '%s|'");
	remote_text_word(&t, word);
	remote_text_word(&t, "end");
	remote_text_printf(&line, "%s -c", shell);
	remote_text_word(&line, t.at);
	f = popen(line.at, "r");
	assert_non_null(f);
	n = fread(got, 1, sizeof(got) - 1, f);
	got[n] = '\0';
	assert_int_equal(pclose(f), 0);
	assert_int_equal(n, strlen(word) + 5);
	assert_memory_equal(got, word, strlen(word));
	assert_string_equal(got + strlen(word), "|end|");
	remote_text_release(&t);
	remote_text_release(&line);
}

static void a_shell_reads_a_word_as_it_was(void **state)
{
	static const char *const shells[] = {"sh", "bash --posix", "busybox sh"};
	static const char *const words[] = {
	        "",      "-n",  "a b", "'",         "''",    "a'b'c",       "\\",   "\\'",
	        "$(x)",  "`x`", "!!",  "a\nb",      "\n",    "~",           "*",    "a\\\nb",
	        "$HOME", "\"",  "#",   "a;b&c|d<e", "{a,b}", "caf\xc3\xa9", "\xff", "%s\\n",
	};
	char all[256];

	(void)state;
	for (int c = 1; c < 256; c++)
		all[c - 1] = (char)c;
	all[255] = '\0';
	for (size_t s = 0; s < sizeof(shells) / sizeof(shells[0]); s++) {
		char probe[64];

		snprintf(probe, sizeof(probe), "%s -c : 2>/dev/null", shells[s]);
		if (system(probe) != 0)
			continue;
		for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
			expect_word(shells[s], words[i]);
		expect_word(shells[s], all);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(pieces_are_joined),
	        cmocka_unit_test(it_grows_as_it_must),
	        cmocka_unit_test(what_does_not_fit_is_told),
	        cmocka_unit_test(a_shell_reads_a_word_as_it_was),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
