#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/job/output.h"
#include "tests/lib/tmp.h"

static char dir[64];
static char path[128];
static struct sbx_output *out;

static int set_up(void **state)
{
	(void)state;
	if (!tmp_make(dir, sizeof(dir), "sbx-output"))
		return -1;
	snprintf(path, sizeof(path), "%s/jobs/id/1.1", dir);
	return sbx_output_create(path, 0, &out);
}

static int tear_down(void **state)
{
	char sub[128];

	(void)state;
	sbx_output_unref(out);
	out = NULL;
	snprintf(sub, sizeof(sub), "%s/jobs/id", dir);
	rmdir(sub);
	snprintf(sub, sizeof(sub), "%s/jobs", dir);
	rmdir(sub);
	return rmdir(dir);
}

/* Byte I of everything that is produced here. */
static char byte_at(uint64_t i)
{
	return (char)('a' + i % 23);
}

static void produce(struct sbx_output *o, size_t len)
{
	uint64_t from = sbx_output_total(o);
	char *buf = malloc(len);

	for (size_t i = 0; i < len; i++)
		buf[i] = byte_at(from + i);
	sbx_output_append(o, buf, len);
	free(buf);
}

static void expect_bytes(struct sbx_output *o, uint64_t off, size_t len, size_t want)
{
	char *buf = malloc(len + 1);

	assert_int_equal(sbx_output_read(o, buf, len, off), want);
	for (size_t i = 0; i < want; i++)
		if (buf[i] != byte_at(off + i))
			fail_msg("byte %zu differs", i);
	free(buf);
}

static void small_output_makes_no_file(void **state)
{
	(void)state;
	produce(out, SBX_OUTPUT_MEMORY);
	sbx_output_seal(out);
	assert_int_equal(access(path, F_OK), -1);
	expect_bytes(out, 0, SBX_OUTPUT_MEMORY + 10, SBX_OUTPUT_MEMORY);
	expect_bytes(out, SBX_OUTPUT_MEMORY - 3, 10, 3);
}

static void nothing_reads_as_the_end(void **state)
{
	char c;

	(void)state;
	assert_int_equal(sbx_output_read(out, &c, 1, 0), 0);
	sbx_output_seal(out);
	assert_int_equal(sbx_output_read(out, &c, 1, 99), 0);
	assert_int_equal(sbx_output_size(out), 0);
	assert_false(sbx_output_truncated(out));
}

static void large_output_goes_to_a_private_file_byte_exact(void **state)
{
	struct stat st;

	(void)state;
	produce(out, 1000);
	produce(out, SBX_OUTPUT_MEMORY);
	produce(out, 300000);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	expect_bytes(out, 0, 400000, 301000 + SBX_OUTPUT_MEMORY);
	sbx_output_seal(out);
	expect_bytes(out, 65000, 2000, 2000);
	assert_int_equal(sbx_output_size(out), 301000 + SBX_OUTPUT_MEMORY);
}

static void the_file_goes_with_the_last_reference(void **state)
{
	struct sbx_output *mine;

	(void)state;
	produce(out, 100000);
	mine = sbx_output_ref(out);
	sbx_output_unref(out);
	expect_bytes(mine, 0, 100000, 100000);
	assert_int_equal(access(path, F_OK), 0);
	sbx_output_unref(mine);
	assert_int_equal(access(path, F_OK), -1);
	out = NULL;
}

static void past_the_limit_bytes_are_counted_and_not_kept(void **state)
{
	struct sbx_output *o;

	(void)state;
	assert_int_equal(sbx_output_create(path, 100, &o), 0);
	produce(o, 100);
	assert_false(sbx_output_truncated(o));
	produce(o, 1);
	assert_true(sbx_output_truncated(o));
	produce(o, 5000);
	assert_int_equal(sbx_output_size(o), 100);
	assert_int_equal(sbx_output_total(o), 5101);
	expect_bytes(o, 0, 200, 100);
	sbx_output_unref(o);
}

static void what_others_have_discarded_counts_as_well(void **state)
{
	(void)state;
	produce(out, 100);
	sbx_output_discard(out, 50);
	assert_int_equal(sbx_output_size(out), 100);
	assert_int_equal(sbx_output_total(out), 150);
	assert_int_equal(sbx_output_cut(out), 50);
	assert_true(sbx_output_truncated(out));
	sbx_output_discard(out, UINT64_MAX);
	assert_true(sbx_output_total(out) == UINT64_MAX);
}

static void the_limit_cuts_inside_a_write_to_the_file(void **state)
{
	struct sbx_output *o;

	(void)state;
	assert_int_equal(sbx_output_create(path, 70000, &o), 0);
	produce(o, 69999);
	produce(o, 2);
	assert_true(sbx_output_truncated(o));
	assert_int_equal(sbx_output_size(o), 70000);
	assert_int_equal(sbx_output_total(o), 70001);
	expect_bytes(o, 0, 80000, 70000);
	sbx_output_unref(o);
}

static void a_disk_that_fails_truncates_and_says_so(void **state)
{
	struct sbx_output *o;

	(void)state;
	assert_int_equal(sbx_output_create("/proc/nowhere/1.1", 0, &o), 0);
	produce(o, 60000);
	produce(o, 60000);
	assert_true(sbx_output_truncated(o));
	assert_int_equal(sbx_output_size(o), 60000);
	assert_int_equal(sbx_output_total(o), 120000);
	expect_bytes(o, 0, 120000, 60000);
	sbx_output_unref(o);
}

static void a_link_in_the_place_of_the_file_is_not_followed(void **state)
{
	char victim[128], sub[128];
	struct stat st;

	(void)state;
	snprintf(victim, sizeof(victim), "%s/victim", dir);
	snprintf(sub, sizeof(sub), "%s/jobs", dir);
	assert_int_equal(mkdir(sub, 0700), 0);
	snprintf(sub, sizeof(sub), "%s/jobs/id", dir);
	assert_int_equal(mkdir(sub, 0700), 0);
	assert_int_equal(symlink(victim, path), 0);
	produce(out, 100000);
	assert_int_equal(stat(victim, &st), -1);
	assert_true(sbx_output_truncated(out));
	assert_int_equal(unlink(path), 0);
}

#define GROWN 2000000u

static void *watch_it_grow(void *data)
{
	uint64_t at = 0;
	char buf[5000];

	(void)data;
	while (at < GROWN) {
		ssize_t n = sbx_output_read(out, buf, sizeof(buf), at);

		if (n < 0)
			return (void *)"failed";
		for (ssize_t i = 0; i < n; i++)
			if (buf[i] != byte_at(at + (uint64_t)i))
				return (void *)"differs";
		at += (uint64_t)n;
	}
	return NULL;
}

static void a_reader_follows_while_it_grows(void **state)
{
	pthread_t thread;
	void *wrong = NULL;

	(void)state;
	assert_int_equal(pthread_create(&thread, NULL, watch_it_grow, NULL), 0);
	for (uint64_t done = 0; done < GROWN; done += 4000)
		produce(out, 4000);
	sbx_output_seal(out);
	assert_int_equal(pthread_join(thread, &wrong), 0);
	if (wrong)
		fail_msg("%s", (const char *)wrong);
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        CASE(small_output_makes_no_file),
	        CASE(nothing_reads_as_the_end),
	        CASE(large_output_goes_to_a_private_file_byte_exact),
	        CASE(the_file_goes_with_the_last_reference),
	        CASE(past_the_limit_bytes_are_counted_and_not_kept),
	        CASE(what_others_have_discarded_counts_as_well),
	        CASE(the_limit_cuts_inside_a_write_to_the_file),
	        CASE(a_disk_that_fails_truncates_and_says_so),
	        CASE(a_link_in_the_place_of_the_file_is_not_followed),
	        CASE(a_reader_follows_while_it_grows),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
