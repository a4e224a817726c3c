/* git's index: what is taken, what is refused, and merging. */
#include "backends/git/index.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <openssl/evp.h>
#include <openssl/sha.h>
#include <stdlib.h>
#include <string.h>

#include "backends/git/index_merge.h"
#include "backends/git/path_rules.h"

#define FILE_MODE 0100644
#define LINK_MODE 0120000

/* Index files put together by hand. */
static unsigned char raw[65536];
static size_t raw_len;

static void add(const void *data, size_t len)
{
	assert_true(raw_len + len <= sizeof(raw));
	memcpy(raw + raw_len, data, len);
	raw_len += len;
}

static void add32(uint32_t v)
{
	unsigned char b[4] = {(unsigned char)(v >> 24), (unsigned char)(v >> 16),
	                      (unsigned char)(v >> 8), (unsigned char)v};

	add(b, sizeof(b));
}

static void begin(uint32_t version, uint32_t n)
{
	raw_len = 0;
	add("DIRC", 4);
	add32(version);
	add32(n);
}

/* All fields of stat but the mode are STAT. */
static void entry(const char *name, uint32_t mode, unsigned char content, unsigned stage,
                  uint32_t stat)
{
	static const char zeros[8];
	size_t start = raw_len, len = strlen(name);
	unsigned char oid[20], flags[2];

	for (int i = 0; i < 10; i++)
		add32(i == 6 ? mode : stat);
	memset(oid, content, sizeof(oid));
	add(oid, sizeof(oid));
	flags[0] = (unsigned char)(stage << 4 | (len >> 8));
	flags[1] = (unsigned char)len;
	add(flags, 2);
	add(name, len);
	add(zeros, 8 - (raw_len - start) % 8);
}

static void finish(void)
{
	unsigned char sum[SHA_DIGEST_LENGTH];

	assert_int_equal(EVP_Digest(raw, raw_len, sum, NULL, EVP_sha1(), NULL), 1);
	add(sum, sizeof(sum));
}

static int parse(struct sbx_index *ret, struct sbx_error *err)
{
	*ret = (struct sbx_index){0};
	return sbx_index_parse(raw, raw_len, ret, err);
}

static void expect_refused(const char *words)
{
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_index index;

	assert_int_equal(parse(&index, &err), -EINVAL);
	if (!strstr(err.text, words))
		fail_msg("want \"%s\", have \"%s\"", words, err.text);
}

static struct sbx_index must_parse(void)
{
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_index index;

	if (parse(&index, &err))
		fail_msg("%s", err.text);
	return index;
}

static void names_for_dot_git_are_known(void **state)
{
	static const char *const bad[] = {
	        ".git",
	        ".GIT",
	        ".Git",
	        ".git ",
	        ".git.",
	        ".git. .",
	        ".git::$INDEX_ALLOCATION",
	        ".git:x",
	        "git~1",
	        "GIT~1",
	        "git~1.",
	        ".g\xe2\x80\x8cit",
	        "\xef\xbb\xbf.git",
	        ".gi\xe2\x81\xaat",
	        "x\\.git",
	        ".git\\hooks",
	        "..",
	        ".",
	        "",
	        "a\\..\\b",
	};
	static const char *const good[] = {
	        ".gitignore", ".gitmodules", "git",      ".gi",    "git~2",  "a.git", ".git-x",
	        "...",        "x y",         "\xc3\xa4", ".gitx.", "git~1x", "..a",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		if (sbx_git_component_ok(bad[i], strlen(bad[i])))
			fail_msg("taken: %s", bad[i]);
	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++)
		if (!sbx_git_component_ok(good[i], strlen(good[i])))
			fail_msg("refused: %s", good[i]);
	assert_false(sbx_git_component_ok("a\0b", 3));
	assert_true(sbx_git_path_ok("a/b/c", 5));
	assert_false(sbx_git_path_ok("a/.git/c", 8));
	assert_false(sbx_git_path_ok("/a", 2));
	assert_false(sbx_git_path_ok("a//b", 4));
	assert_false(sbx_git_path_ok("a/../b", 6));
	assert_false(sbx_git_path_ok("a/", 2));
}

static void an_index_survives_parsing_and_formatting(void **state)
{
	struct sbx_index index;
	void *out;
	size_t len;

	(void)state;
	begin(2, 3);
	entry("a", FILE_MODE, 1, 0, 7);
	entry("dir/b", LINK_MODE, 2, 0, 8);
	entry("sub", 0160000, 3, 0, 0);
	finish();
	index = must_parse();
	assert_int_equal(index.n, 3);
	assert_int_equal(sbx_index_mode(&index.at[1]), LINK_MODE);
	assert_int_equal(sbx_index_format(&index, true, &out, &len), 0);
	assert_int_equal(len, raw_len);
	assert_memory_equal(out, raw, len);
	free(out);
	sbx_index_release(&index);
}

static void version_4_is_read(void **state)
{
	unsigned char oid[20];
	struct sbx_index index;

	(void)state;
	memset(oid, 5, sizeof(oid));
	begin(4, 2);
	for (int i = 0; i < 10; i++)
		add32(i == 6 ? FILE_MODE : 0);
	add(oid, 20);
	add("\0\5", 2);
	add("\0a/one", 7);
	for (int i = 0; i < 10; i++)
		add32(i == 6 ? FILE_MODE : 0);
	add(oid, 20);
	add("\0\5", 2);
	add("\3two", 5);
	finish();
	index = must_parse();
	assert_int_equal(index.n, 2);
	assert_memory_equal(index.at[1].name, "a/two", 5);
	sbx_index_release(&index);
	raw[12 + 62] = 9; /* cuts more than there is */
	raw_len -= SHA_DIGEST_LENGTH;
	finish();
	expect_refused("cut short");
}

static void optional_extensions_are_dropped(void **state)
{
	struct sbx_index index;
	void *out;
	size_t len;

	(void)state;
	begin(2, 1);
	entry("a", FILE_MODE, 1, 0, 0);
	add("TREE", 4);
	add32(5);
	add("junk!", 5);
	add("FSMN", 4);
	add32(0);
	finish();
	index = must_parse();
	assert_int_equal(sbx_index_format(&index, true, &out, &len), 0);
	assert_null(memmem(out, len, "FSMN", 4));
	assert_null(memmem(out, len, "TREE", 4));
	free(out);
	sbx_index_release(&index);
}

static void what_changes_the_meaning_is_refused(void **state)
{
	static const struct {
		const char *name, *words;
	} list[] = {{"link", "split"}, {"sdir", "sparse"}, {"evil", "not known"}};

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		begin(2, 1);
		entry("a", FILE_MODE, 1, 0, 0);
		add(list[i].name, 4);
		add32(0);
		finish();
		expect_refused(list[i].words);
	}
	begin(2, 0);
	add("TREE", 4);
	add32(1000);
	finish();
	expect_refused("does not end");
}

static void one(const char *name, uint32_t mode, unsigned char content)
{
	begin(2, 1);
	entry(name, mode, content, 0, 0);
	finish();
}

static void hostile_entries_are_refused(void **state)
{
	(void)state;
	one(".git/hooks/pre-commit", FILE_MODE, 1);
	expect_refused("name");
	one("a/.GIT", FILE_MODE, 1);
	expect_refused("name");
	one("../x", FILE_MODE, 1);
	expect_refused("name");
	one("/etc/passwd", FILE_MODE, 1);
	expect_refused("name");
	one("", FILE_MODE, 1);
	expect_refused("name");
	one("a", 0040000, 1);
	expect_refused("mode");
	one("a", 0104755, 1);
	expect_refused("mode");
	one("a", FILE_MODE, 0);
	expect_refused("no object");
}

static void order_and_shape_are_checked(void **state)
{
	(void)state;
	begin(2, 2);
	entry("b", FILE_MODE, 1, 0, 0);
	entry("a", FILE_MODE, 1, 0, 0);
	finish();
	expect_refused("order");
	begin(2, 2);
	entry("a", FILE_MODE, 1, 0, 0);
	entry("a", FILE_MODE, 1, 0, 0);
	finish();
	expect_refused("order");
	begin(2, 3);
	entry("a", LINK_MODE, 1, 0, 0);
	entry("a-b", FILE_MODE, 1, 0, 0);
	entry("a/b", FILE_MODE, 1, 0, 0);
	finish();
	expect_refused("directory");
	/* In the middle of a merge both sides may stand there. */
	begin(2, 2);
	entry("a", FILE_MODE, 1, 2, 0);
	entry("a/b", FILE_MODE, 1, 3, 0);
	finish();
	{
		struct sbx_index index = must_parse();

		sbx_index_release(&index);
	}
}

static void damage_is_refused(void **state)
{
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_index index;
	size_t whole;

	(void)state;
	begin(2, 2);
	entry("a", FILE_MODE, 1, 0, 0);
	entry("b", FILE_MODE, 1, 0, 0);
	finish();
	whole = raw_len;
	raw[20] ^= 1;
	expect_refused("checksum");
	raw[20] ^= 1;
	for (raw_len = 0; raw_len < whole; raw_len++)
		assert_true(parse(&index, &err) < 0);
	begin(2, 0xffffffff);
	entry("a", FILE_MODE, 1, 0, 0);
	finish();
	expect_refused("early");
	begin(5, 0);
	finish();
	expect_refused("version");
	assert_int_equal(sbx_index_parse(raw, SBX_INDEX_MAX + 1, &index, &err), -EFBIG);
}

static struct sbx_index of(const char *spec, uint32_t stat)
{
	begin(2, (uint32_t)strlen(spec) / 2);
	for (; *spec; spec += 2)
		entry((char[]){spec[0], '\0'}, FILE_MODE, (unsigned char)spec[1], 0, stat);
	finish();
	return must_parse();
}

/* A letter is a path and the next its content. */
static void expect_merged(const char *base, const char *a, const char *b, const char *want)
{
	struct sbx_index from[3] = {of(base, 0), of(a, 1), of(b, 2)}, merged = {0};
	int r = sbx_index_merge(&from[0], &from[1], &from[2], &merged);

	assert_int_equal(r, want ? 0 : 1);
	if (want) {
		struct sbx_index expected = of(want, 9);

		assert_true(sbx_index_equal(&merged, &expected));
		sbx_index_release(&expected);
		free(merged.at);
	}
	for (int i = 0; i < 3; i++)
		sbx_index_release(&from[i]);
}

static void each_sides_changes_are_merged(void **state)
{
	(void)state;
	expect_merged("a1b1", "a1b1", "a1b1", "a1b1");
	expect_merged("a1b1", "a2b1", "a1b2", "a2b2");
	expect_merged("a1b1", "b1", "a1b1c1", "b1c1");
	expect_merged("a1", "a2", "a2", "a2");
	expect_merged("", "x1", "y1", "x1y1");
	expect_merged("a1", "", "", "");
	expect_merged("a1", "a2", "a3", NULL);
	expect_merged("a1", "", "a3", NULL);
	expect_merged("", "a2", "a3", NULL);
}

static void a_side_keeps_what_it_knows_of_files(void **state)
{
	struct sbx_index mine = of("a1b1", 1), theirs = of("a1b2", 2);

	(void)state;
	assert_false(sbx_index_equal(&mine, &theirs));
	sbx_index_refresh(&theirs, &mine);
	assert_int_equal(theirs.at[0].stat[3], 1);
	assert_int_equal(theirs.at[1].stat[3], 2);
	sbx_index_release(&mine);
	sbx_index_release(&theirs);
}

static void of_a_commands_index_no_flag_and_no_stat_data_counts(void **state)
{
	struct sbx_index own = of("a1b2c3d4", 7), host = of("a1b1c3", 9), bare, dressed;

	(void)state;
	own.at[0].flags |= SBX_INDEX_VALID;
	own.at[2].extended = SBX_INDEX_SKIP;
	own.at[3].extended = SBX_INDEX_INTENT;
	host.at[1].flags |= SBX_INDEX_VALID;
	host.at[2].extended = SBX_INDEX_SKIP;
	assert_int_equal(sbx_index_bare(&own, &host, &bare), 0);
	assert_int_equal(bare.n, 3);
	for (size_t i = 0; i < bare.n; i++) {
		assert_int_equal(bare.at[i].stat[3], 0);
		assert_int_equal(sbx_index_mode(&bare.at[i]), FILE_MODE);
		assert_int_equal(bare.at[i].flags, 0);
	}
	assert_int_equal(bare.at[0].extended, 0);
	assert_int_equal(bare.at[2].extended, SBX_INDEX_SKIP);
	/* Inside they are as they were, but for those that the host has changed. */
	assert_int_equal(sbx_index_dress(&bare, &own, &host, &host, &dressed), 0);
	assert_true(sbx_index_equal(&dressed, &own));
	assert_int_equal(dressed.at[0].stat[3], 7);
	free(dressed.at);
	assert_false(sbx_index_flags_differ(&host, &host));
	assert_int_equal(sbx_index_dress(&bare, &own, &bare, &host, &dressed), 0);
	assert_true(sbx_index_flags_differ(&own, &host));
	assert_int_equal(dressed.at[2].extended, SBX_INDEX_SKIP);
	free(dressed.at);
	free(bare.at);
	sbx_index_release(&own);
	sbx_index_release(&host);
}

static void what_the_host_announces_may_be_added_inside(void **state)
{
	struct sbx_index own = of("a2b1", 7), host = of("a1b1", 9), bare;

	(void)state;
	host.at[0].extended = host.at[1].extended = SBX_INDEX_INTENT;
	own.at[1].extended = SBX_INDEX_INTENT;
	assert_int_equal(sbx_index_bare(&own, &host, &bare), 0);
	assert_int_equal(bare.n, 2);
	assert_int_equal(bare.at[0].extended, 0);
	assert_int_equal(bare.at[1].extended, SBX_INDEX_INTENT);
	free(bare.at);
	sbx_index_release(&own);
	sbx_index_release(&host);
}

static void a_file_that_was_changed_since_is_doubted(void **state)
{
	struct sbx_index index = of("a1", 100);

	(void)state;
	assert_false(sbx_index_doubt(&index.at[0], 101));
	assert_true(sbx_index_doubt(&index.at[0], 100));
	assert_int_equal(index.at[0].stat[39], 0);
	assert_int_equal(index.at[0].stat[3], 100);
	assert_false(sbx_index_doubt(&index.at[0], 100));
	sbx_index_release(&index);
}

static void long_names_are_refused_before_they_are_kept(void **state)
{
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_index index = {0};
	unsigned char oid[20];
	char name[1001];

	(void)state;
	memset(oid, 5, sizeof(oid));
	memset(name, 'n', sizeof(name));
	begin(4, 100);
	for (int k = 0; k < 100; k++) {
		for (int i = 0; i < 10; i++)
			add32(i == 6 ? FILE_MODE : 0);
		add(oid, 20);
		add("\17\377", 2);
		name[0] = (char)(k ? 1 : 0);
		add(name, 1);
		if (!k)
			add(name + 1, 1000);
		name[0] = (char)('A' + k / 10);
		name[1] = 0;
		add(name, 2);
		memset(name, 'n', sizeof(name));
	}
	finish();
	assert_int_equal(sbx_index_parse_most(raw, raw_len, 2 * raw_len, &index, &err), -EFBIG);
	assert_null(index.names);
	assert_int_equal(sbx_index_parse_most(raw, raw_len, raw_len - 1, &index, &err), -EFBIG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(names_for_dot_git_are_known),
	        cmocka_unit_test(an_index_survives_parsing_and_formatting),
	        cmocka_unit_test(version_4_is_read),
	        cmocka_unit_test(optional_extensions_are_dropped),
	        cmocka_unit_test(what_changes_the_meaning_is_refused),
	        cmocka_unit_test(hostile_entries_are_refused),
	        cmocka_unit_test(order_and_shape_are_checked),
	        cmocka_unit_test(damage_is_refused),
	        cmocka_unit_test(each_sides_changes_are_merged),
	        cmocka_unit_test(a_side_keeps_what_it_knows_of_files),
	        cmocka_unit_test(of_a_commands_index_no_flag_and_no_stat_data_counts),
	        cmocka_unit_test(what_the_host_announces_may_be_added_inside),
	        cmocka_unit_test(a_file_that_was_changed_since_is_doubted),
	        cmocka_unit_test(long_names_are_refused_before_they_are_kept),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
