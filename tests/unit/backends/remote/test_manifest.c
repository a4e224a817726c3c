#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "backends/remote/manifest.h"
#include "sandboxfs/clock.h"

/* Reads RECORDS, in which '|' stands for NUL. */
static int read_into(struct remote_manifest *m, const char *records)
{
	char *bytes = strdup(records);
	size_t len = strlen(records);
	int r;

	for (size_t i = 0; i < len; i++)
		bytes[i] = bytes[i] == '|' ? '\0' : bytes[i];
	r = remote_manifest_read(bytes, len, 7, m, NULL);
	free(bytes);
	return r;
}

/* The paths that RECORDS come to be, with a blank behind each. */
static const char *paths_of(const char *records)
{
	static char ret[4096];
	struct remote_manifest m;
	size_t n = 0;

	assert_int_equal(read_into(&m, records), 0);
	ret[0] = '\0';
	for (size_t i = 0; i < m.n; i++) {
		n += (size_t)snprintf(ret + n, sizeof(ret) - n, "%s ",
		                      m.items[i].path[0] ? m.items[i].path : ".");
		assert_true(n < sizeof(ret));
	}
	remote_manifest_release(&m);
	return ret;
}

static const struct remote_listed *one_of(struct remote_manifest *m, const char *records,
                                          const char *path)
{
	const struct remote_listed *l;

	assert_int_equal(read_into(m, records), 0);
	l = remote_manifest_find(m, path);
	assert_non_null(l);
	return l;
}

static void test_all_that_is_told(void **state)
{
	struct remote_manifest m;
	const struct remote_listed *l;

	(void)state;
	l = one_of(&m, "-f 4755 123 1700000000.1234567891,1700000001.5 42 2 ./a b||", "a b");
	assert_true(l->ctime_ns == INT64_C(1700000001500000000));
	assert_int_equal(l->mode, S_IFREG | 0755);
	assert_int_equal(l->size, 123);
	assert_true(l->mtime_ns == INT64_C(1700000000123456789));
	assert_int_equal(l->ino, 42);
	assert_int_equal(l->nlink, 2);
	assert_false(l->complete || l->sent);
	assert_int_equal(m.begun_ns, 7);
	remote_manifest_release(&m);
	l = one_of(&m, "-l 777 3 -5.5 1 1 x/l|a/b|", "x/l");
	assert_string_equal(l->target, "a/b");
	assert_true(l->mtime_ns == INT64_C(-4500000000));
	remote_manifest_release(&m);
	l = one_of(&m, "Ld 755 0 1 1 1 .||", "");
	assert_true(l->complete);
	remote_manifest_release(&m);
	l = one_of(&m, "=f 644 0 1. 1 1 f||", "f");
	assert_true(l->sent && !l->came);
	remote_manifest_release(&m);
	l = one_of(&m, "~f 644 0 1. 1 1 f||", "f");
	assert_true(l->sent && l->came);
	remote_manifest_release(&m);
	l = one_of(&m, "?f 0 0 0 0 0 d/f||", "d/f");
	assert_int_equal(l->mode, 0);
	remote_manifest_release(&m);
}

/* As of touch -d @9999999999, and of more digits than any number has. */
static void test_times_beyond_all(void **state)
{
	const int64_t far = SBX_SECONDS_MAX * INT64_C(1000000000);
	struct remote_manifest m;
	const struct remote_listed *l;

	(void)state;
	l = one_of(&m, "-f 644 1 9999999999.5,99999999999999999999999999999.9 1 1 f||", "f");
	assert_true(l->mtime_ns == far && l->ctime_ns == far);
	remote_manifest_release(&m);
	l = one_of(&m, "-f 644 1 -99999999999999999999999999999.9,9000000000.1 1 1 f||", "f");
	assert_true(l->mtime_ns == -far && l->ctime_ns == far);
	remote_manifest_release(&m);
}

static void test_order(void **state)
{
	(void)state;
	/* By directory; one before those in it, whatever sorts between them. */
	assert_string_equal(paths_of("-f 1 1 1 1 1 b/c/d||-f 1 1 1 1 1 b-c||-d 1 1 1 1 1 b||"
	                             "-f 1 1 1 1 1 b/z||Ld 1 1 1 1 1 .||-d 1 1 1 1 1 b/c||"
	                             "-d 1 1 1 1 1 b-||-f 1 1 1 1 1 b-/x||-f 1 1 1 1 1 a||"),
	                    ". a b b- b-c b/c b/z b/c/d b-/x ");
	assert_true(remote_path_order("a", "a") == 0);
	assert_true(remote_path_order("a/b/c", "a-/b") < 0);
	assert_true(remote_path_order("z", "a/b") < 0);
}

static void test_each_path_once(void **state)
{
	struct remote_manifest m;
	const struct remote_listed *l;

	(void)state;
	l = one_of(&m, "Ld 700 0 1 1 1 d||-d 755 0 2 1 1 ./d||-f 644 1 1 1 1 f||-f 644 2 1 1 1 f||",
	           "d");
	assert_int_equal(m.n, 2);
	assert_int_equal(l->mode & 07777, 0755);
	assert_true(l->complete);
	assert_int_equal(remote_manifest_find(&m, "f")->size, 2);
	remote_manifest_release(&m);
	l = one_of(&m, "Ld 6755 0 1 1 1 d||", "d");
	assert_int_equal(l->mode & 07777, 02755);
	remote_manifest_release(&m);
	l = one_of(&m, "-f 644 2 1 1 1 f||?f 0 0 0 0 0 f||", "f");
	assert_int_equal(l->size, 2);
	remote_manifest_release(&m);
	l = one_of(&m, "?f 0 0 0 0 0 f||-f 644 2 1 1 1 f||", "f");
	assert_int_equal(l->size, 2);
	remote_manifest_release(&m);
	l = one_of(&m, "Ld 700 0 1 1 1 d||-f 755 0 2 1 1 d||", "d");
	assert_false(l->complete);
	assert_true(S_ISREG(l->mode));
	remote_manifest_release(&m);
}

static void test_impossible_paths(void **state)
{
	static const char *const bad[] = {
	        "",
	        "/",
	        "/etc/passwd",
	        "..",
	        "../x",
	        "a/..",
	        "a/../b",
	        "a/./b",
	        "a//b",
	        "a/",
	        "./",
	        "././a",
	        "./../a",
	        ".git",
	        ".git/config",
	        "a/.git",
	        "a/.git/HEAD",
	        "./.git",
	        "a/.sandboxfs-swap-3",
	        ".sandboxfs-swap-12/a",
	};
	char record[8192];

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		snprintf(record, sizeof(record), "-f 644 1 1 1 1 %s||-f 644 1 1 1 1 ok||", bad[i]);
		assert_string_equal(paths_of(record), "ok ");
	}
	assert_string_equal(paths_of("-f 1 1 1 1 1 .gitignore||-f 1 1 1 1 1 ...||-f 1 1 1 1 1  ||"),
	                    "  ... .gitignore ");
	snprintf(record, sizeof(record), "-f 1 1 1 1 1 %0*d||", 256, 0);
	assert_string_equal(paths_of(record), "");
	snprintf(record, sizeof(record), "-f 1 1 1 1 1 %0*d||", 255, 0);
	assert_int_equal(strlen(paths_of(record)), 256);
	/* The root is a directory. */
	assert_string_equal(paths_of("-f 1 1 1 1 1 .||"), "");
}

static void test_nothing_lies_in_a_file(void **state)
{
	(void)state;
	assert_string_equal(
	        paths_of("-f 1 1 1 1 1 a||-f 1 1 1 1 1 a/b||-f 1 1 1 1 1 a/b/c||"
	                 "-l 1 1 1 1 1 l|x|-f 1 1 1 1 1 l/f||?f 0 0 0 0 0 g||?f 0 0 0 0 0 g/i||"
	                 "-f 1 1 1 1 1 g/h||-f 1 1 1 1 1 d/f||"),
	        "a g l d/f g/i ");
}

static void test_numbers(void **state)
{
	static const char *const bad[] = {
	        "f 8 1 1 1 1",
	        "f 10000 1 1 1 1",
	        "f 644 -1 1 1 1",
	        "f 644 4611686018427387904 1 1 1",
	        "f 644 1 x 1 1",
	        "f 644 1 1.x 1 1",
	        "f 644 1 1 1",
	        "f 644  1 1 1 1",
	        "b 644 1 1 1 1",
	        "f 644 1 1 18446744073709551616 1",
	        "f 644 1 1 1 4294967296",
	};
	char record[256];

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		snprintf(record, sizeof(record), "-%s x||", bad[i]);
		assert_string_equal(paths_of(record), "");
	}
	assert_string_equal(paths_of("-f 0 4611686018427387903 9000000000 0 0 x||"), "x ");
}

static void test_what_was_cut(void **state)
{
	struct remote_manifest m;

	(void)state;
	assert_int_equal(read_into(&m, ""), 0);
	assert_false(m.more);
	remote_manifest_release(&m);
	assert_int_equal(read_into(&m, "Ld 1 1 1 1 1 d||-f 1 1 1 1 1 d/f||!||"), 0);
	assert_true(m.more && m.n == 2 && !m.items[0].complete);
	assert_true(m.items[0].cut && !m.items[1].cut);
	remote_manifest_release(&m);
	assert_int_equal(read_into(&m, "Ld 1 1 1 1 1 d||-f 1 1 1 1 1 d/f|"), 0);
	assert_true(m.more && m.n == 1 && !m.items[0].complete);
	remote_manifest_release(&m);
	assert_int_equal(read_into(&m, "Ld 1 1 1 1 1 d||-f 1 1 1 "), 0);
	assert_true(m.more);
	remote_manifest_release(&m);
	assert_int_equal(read_into(&m, "hello||"), -EPROTO);
	assert_int_equal(read_into(&m, "||"), -EPROTO);
	assert_int_equal(read_into(&m, "-f644 1 1 1 1 x||"), -EPROTO);
	assert_int_equal(read_into(&m, "Lxd 1 1 1 1 1 d||"), -EPROTO);
}

static void test_more_than_anybody_wants(void **state)
{
	const char record[] = "-f 1 1 1 1 1 ";
	const size_t most = REMOTE_NAMES_MAX + 10, each = sizeof(record) + 12;
	char *bytes = malloc(most * each), *at = bytes;
	struct remote_manifest m;

	(void)state;
	for (size_t i = 0; i < most; i++) {
		at += snprintf(at, each, "%s%zu", record, i) + 1;
		*at++ = '\0';
	}
	assert_int_equal(remote_manifest_read(bytes, (size_t)(at - bytes), 0, &m, NULL), 0);
	assert_int_equal(m.n, REMOTE_NAMES_MAX);
	assert_true(m.more);
	remote_manifest_release(&m);
	free(bytes);
}

static void test_within(void **state)
{
	struct remote_manifest m;
	size_t at, end;

	(void)state;
	assert_int_equal(read_into(&m, "Ld 1 1 1 1 1 .||-d 1 1 1 1 1 d||-f 1 1 1 1 1 d/a||"
	                               "-f 1 1 1 1 1 d/b||-f 1 1 1 1 1 e||-f 1 1 1 1 1 d-/x||"),
	                 0);
	at = remote_manifest_within(&m, "", &end);
	assert_true(end - at == 2 && strcmp(m.items[at].path, "d") == 0);
	at = remote_manifest_within(&m, "d", &end);
	assert_true(end - at == 2 && strcmp(m.items[at].path, "d/a") == 0);
	at = remote_manifest_within(&m, "none", &end);
	assert_true(at == end);
	assert_null(remote_manifest_find(&m, "d/c"));
	remote_manifest_release(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_all_that_is_told),
	        cmocka_unit_test(test_times_beyond_all),
	        cmocka_unit_test(test_order),
	        cmocka_unit_test(test_each_path_once),
	        cmocka_unit_test(test_impossible_paths),
	        cmocka_unit_test(test_nothing_lies_in_a_file),
	        cmocka_unit_test(test_numbers),
	        cmocka_unit_test(test_what_was_cut),
	        cmocka_unit_test(test_more_than_anybody_wants),
	        cmocka_unit_test(test_within),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
