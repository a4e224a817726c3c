#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fs/fuse/listing.h"

#define MS UINT64_C(1000000)

static struct sbx_listing *listing_of(size_t n)
{
	struct sbx_listing *l = sbx_listing_create();
	char name[32];

	assert_non_null(l);
	for (size_t i = 0; i < n; i++) {
		snprintf(name, sizeof(name), "name%zu", i);
		assert_int_equal(sbx_listing_add(l, name, S_IFREG, i), 0);
	}
	return l;
}

static size_t ndropped;
static uint64_t last_dropped;

static void dropped(uint64_t id, void *data)
{
	assert_ptr_equal(data, &ndropped);
	ndropped++;
	last_dropped = id;
}

static struct sbx_listing_cache *kept_new(size_t max_bytes)
{
	struct sbx_listing_cache *cache;

	ndropped = 0;
	assert_int_equal(sbx_listing_cache_create(max_bytes, dropped, &ndropped, &cache), 0);
	return cache;
}

static void note_of(struct sbx_listing_cache *cache, uint64_t id, uint64_t box, size_t n,
                    int64_t changed_ns, uint64_t now_ns)
{
	struct sbx_listing *l = listing_of(n);

	sbx_listing_cache_note(cache, id, box, l, changed_ns, now_ns);
	sbx_listing_unref(l);
}

static void note(struct sbx_listing_cache *cache, uint64_t id, size_t n, int64_t changed_ns,
                 uint64_t now_ns)
{
	note_of(cache, id, 1, n, changed_ns, now_ns);
}

static size_t current(struct sbx_listing_cache *cache, uint64_t id, int64_t changed_ns,
                      uint64_t now_ns)
{
	struct sbx_listing *l = sbx_listing_cache_current(cache, id, changed_ns, now_ns);
	size_t n = l ? l->n : 0;

	sbx_listing_unref(l);
	return n;
}

static void names_are_in_the_order_they_were_added(void **state)
{
	struct sbx_listing *l = listing_of(1000);

	(void)state;
	assert_int_equal(l->n, 1000);
	assert_string_equal(l->names + l->entries[0].name, "name0");
	assert_string_equal(l->names + l->entries[999].name, "name999");
	assert_int_equal(l->entries[999].ino, 999);
	sbx_listing_unref(l);
}

static void what_was_noted_is_current_while_unchanged(void **state)
{
	struct sbx_listing_cache *cache = kept_new(1 << 20);

	(void)state;
	note(cache, 5, 3, 77, 1000 * MS);
	assert_int_equal(current(cache, 5, 77, 1001 * MS), 3);
	assert_int_equal(current(cache, 5, 78, 1001 * MS), 0);
	assert_int_equal(current(cache, 6, 77, 1001 * MS), 0);
	/* The same index, another generation. */
	assert_int_equal(current(cache, (UINT64_C(1) << 32) + 5, 77, 1001 * MS), 0);
	sbx_listing_cache_destroy(cache);
}

static void it_is_not_current_for_longer_than_attributes_are(void **state)
{
	struct sbx_listing_cache *cache = kept_new(1 << 20);

	(void)state;
	note(cache, 5, 3, 77, 1000 * MS);
	assert_int_equal(current(cache, 5, 77, (1000 + SBX_LISTING_CACHE_MS - 1) * MS), 3);
	assert_int_equal(current(cache, 5, 77, (1000 + SBX_LISTING_CACHE_MS) * MS), 0);
	sbx_listing_cache_destroy(cache);
}

static void a_listing_of_unknown_state_replaces_and_is_never_current(void **state)
{
	struct sbx_listing_cache *cache = kept_new(1 << 20);

	(void)state;
	note(cache, 5, 3, 77, 1000 * MS);
	note(cache, 5, 4, 0, 1000 * MS);
	assert_int_equal(current(cache, 5, 77, 1000 * MS), 0);
	assert_int_equal(current(cache, 5, 0, 1000 * MS), 0);
	sbx_listing_cache_destroy(cache);
}

static void bytes_are_bounded_but_for_what_is_in_use(void **state)
{
	struct sbx_listing_cache *cache = kept_new(64 << 10);
	size_t found = 0;

	(void)state;
	for (uint64_t id = 1; id <= 1000; id++)
		note(cache, id, 20, 77, 1000 * MS);
	assert_int_equal(ndropped, 0);
	for (uint64_t id = 1001; id <= 1040; id++)
		note(cache, id, 20, 77, 3500 * MS);
	for (uint64_t id = 1; id <= 1000; id++)
		found += current(cache, id, 77, 3500 * MS) > 0;
	assert_in_range(found, 0, 64);
	assert_int_equal(ndropped, 1000 - found);
	note(cache, 2000, 100000, 77, 3500 * MS);
	assert_int_equal(current(cache, 2000, 77, 3500 * MS), 100000);
	assert_int_equal(current(cache, 1040, 77, 3500 * MS), 20);
	sbx_listing_cache_destroy(cache);
}

static void one_that_gives_way_is_taken_back(void **state)
{
	struct sbx_listing_cache *cache = kept_new(1 << 20);
	uint64_t ids[1];

	(void)state;
	note(cache, 5, 3, 77, 1000 * MS);
	note(cache, 5, 3, 78, 1000 * MS); /* the same directory's: the kernel's is replaced */
	assert_int_equal(ndropped, 0);
	note(cache, 5 + 8192, 3, 77, 1000 * MS);
	assert_int_equal(ndropped, 1);
	assert_int_equal(last_dropped, 5);
	assert_int_equal(sbx_listing_cache_take_box(cache, 1, 1000 * MS, ids, 1), 1);
	note(cache, 5, 3, 77, 1000 * MS);
	assert_int_equal(ndropped, 1); /* it had been taken back */
	sbx_listing_cache_destroy(cache);
}

static void the_kernel_may_use_it_until_it_is_outdated(void **state)
{
	struct sbx_listing_cache *cache = kept_new(1 << 20);

	(void)state;
	assert_int_equal(sbx_listing_cache_left(cache, 5, 77, 1000 * MS), 0);
	note(cache, 5, 3, 77, 1000 * MS);
	assert_int_equal(sbx_listing_cache_left(cache, 5, 77, 1500 * MS), 3500 * MS);
	assert_int_equal(sbx_listing_cache_left(cache, 5, 78, 1500 * MS), -1);
	assert_int_equal(sbx_listing_cache_left(cache, 5, 78, 1500 * MS),
	                 0);                                   /* it was taken back */
	assert_int_equal(current(cache, 5, 77, 1500 * MS), 3); /* and given again */
	assert_int_equal(sbx_listing_cache_left(cache, 5, 0, 1500 * MS), -1);
	note(cache, 5, 3, 0, 1000 * MS);
	assert_int_equal(sbx_listing_cache_left(cache, 5, 0, 1500 * MS), -1);
	note(cache, 5, 3, 77, 1000 * MS);
	assert_int_equal(sbx_listing_cache_left(cache, 5, 77, 5000 * MS), -1);
	sbx_listing_cache_destroy(cache);
}

static void a_sandbox_s_are_taken_back_once(void **state)
{
	struct sbx_listing_cache *cache = kept_new(1 << 20);
	uint64_t ids[2];

	(void)state;
	for (uint64_t id = 1; id <= 3; id++)
		note_of(cache, id, 7, 3, 77, 1000 * MS);
	note_of(cache, 4, 8, 3, 77, 1000 * MS);
	assert_int_equal(sbx_listing_cache_take_box(cache, 7, 1000 * MS, ids, 2), 2);
	assert_int_equal(ids[0], 3);
	assert_int_equal(ids[1], 2);
	assert_int_equal(sbx_listing_cache_take_box(cache, 7, 1000 * MS, ids, 2), 1);
	assert_int_equal(ids[0], 1);
	assert_int_equal(sbx_listing_cache_take_box(cache, 7, 1000 * MS, ids, 2), 0);
	assert_int_equal(current(cache, 2, 77, 1000 * MS), 3);
	assert_int_equal(sbx_listing_cache_take_box(cache, 7, 1000 * MS, ids, 2), 1);
	/* What was listed long ago has no attributes that let it be used. */
	assert_int_equal(sbx_listing_cache_take_box(cache, 8, 6000 * MS, ids, 2), 0);
	sbx_listing_cache_destroy(cache);
}

static void old_ones_are_taken_back(void **state)
{
	struct sbx_listing_cache *cache = kept_new(1 << 20);
	uint64_t ids[2];
	bool more;

	(void)state;
	for (uint64_t id = 1; id <= 4; id++)
		note(cache, id, 3, 77, (1000 + 100 * id) * MS);
	assert_int_equal(sbx_listing_cache_take_old(cache, 4050 * MS, ids, 2, &more), 0);
	assert_true(more);
	assert_int_equal(sbx_listing_cache_take_old(cache, 4300 * MS, ids, 2, &more), 2);
	assert_int_equal(ids[0], 1);
	assert_int_equal(ids[1], 2);
	assert_true(more);
	assert_int_equal(sbx_listing_cache_take_old(cache, 9000 * MS, ids, 2, &more), 2);
	assert_false(more);
	assert_int_equal(sbx_listing_cache_take_old(cache, 9000 * MS, ids, 2, &more), 0);
	assert_false(more);
	sbx_listing_cache_destroy(cache);
}

/* Though nobody lists anything any more. */
static void too_much_is_dropped_when_it_is_no_longer_in_use(void **state)
{
	struct sbx_listing_cache *cache = kept_new(64 << 10);
	uint64_t ids[4];
	bool more;

	(void)state;
	note(cache, 5, 100000, 77, 1000 * MS);
	assert_int_equal(sbx_listing_cache_take_box(cache, 1, 1000 * MS, ids, 4), 1);
	assert_int_equal(sbx_listing_cache_take_old(cache, 2000 * MS, ids, 4, &more), 0);
	assert_true(more);
	assert_int_equal(current(cache, 5, 77, 2000 * MS), 100000);
	assert_int_equal(sbx_listing_cache_take_old(cache, 4050 * MS, ids, 4, &more), 1);
	assert_false(more);
	assert_null(sbx_listing_cache_latest(cache, 5, 4050 * MS));
	note(cache, 6, 3, 77, 4050 * MS);
	assert_int_equal(sbx_listing_cache_take_old(cache, 9000 * MS, ids, 4, &more), 1);
	assert_false(more);
	assert_int_equal(current(cache, 6, 77, 4051 * MS), 3);
	sbx_listing_cache_destroy(cache);
}

static void the_latest_is_gone_on_with_whatever_its_state(void **state)
{
	struct sbx_listing_cache *cache = kept_new(1 << 20);
	struct sbx_listing *l;

	(void)state;
	assert_null(sbx_listing_cache_latest(cache, 5, 1000 * MS));
	note(cache, 5, 3, 0, 1000 * MS);
	l = sbx_listing_cache_latest(cache, 5, 9000 * MS);
	assert_non_null(l);
	assert_int_equal(l->n, 3);
	sbx_listing_unref(l);
	sbx_listing_cache_destroy(cache);
}

static void places_rise_and_fixed_entries_stay_in_front(void **state)
{
	struct sbx_listing *l = sbx_listing_create();
	char name[32];

	(void)state;
	assert_non_null(l);
	assert_int_equal(sbx_listing_add(l, ".", S_IFDIR, 1), 0);
	assert_int_equal(sbx_listing_add(l, "..", S_IFDIR, 1), 0);
	for (int i = 0; i < 20000; i++) {
		snprintf(name, sizeof(name), "link%d", i);
		assert_int_equal(sbx_listing_add(l, name, S_IFREG, UINT64_MAX), 0);
	}
	sbx_listing_order(l, 2);
	assert_string_equal(l->names + l->entries[0].name, ".");
	assert_string_equal(l->names + l->entries[1].name, "..");
	for (size_t i = 0; i < l->n; i++) {
		assert_int_equal(sbx_listing_behind(l, l->entries[i].place), i + 1);
		assert_true(l->entries[i].place > (i ? l->entries[i - 1].place : 0));
	}
	assert_true(l->entries[l->n - 1].place < UINT64_C(1) << 63);
	assert_int_equal(sbx_listing_behind(l, 0), 0);
	assert_int_equal(sbx_listing_behind(l, INT64_MAX), l->n);
	sbx_listing_unref(l);
}

static bool pages_filled(size_t n, size_t len)
{
	struct sbx_listing *l = sbx_listing_create();
	char name[256];
	bool filled;

	assert_non_null(l);
	for (size_t i = 0; i < n; i++) {
		snprintf(name, sizeof(name), "%0*zu", (int)len, i);
		assert_int_equal(sbx_listing_add(l, name, S_IFREG, i), 0);
	}
	sbx_listing_order(l, 0);
	filled = sbx_listing_fills_pages(l, 4096);
	sbx_listing_unref(l);
	return filled;
}

/* An entry takes 24 bytes and its name, rounded up to 8; none crosses the end of a page. */
static void a_copy_that_ends_with_a_page_is_known(void **state)
{
	(void)state;
	assert_false(pages_filled(1, 8));
	assert_false(pages_filled(127, 8));
	assert_true(pages_filled(128, 8));
	assert_false(pages_filled(129, 8));
	assert_true(pages_filled(384, 1 + 4));
	/* 102 of 40 bytes to a page: 4096 of them end within the 41st. */
	assert_false(pages_filled(4096, 16));
	assert_true(pages_filled(16, 225));
	assert_true(pages_filled(160, 232));
}

/* A reader who stopped somewhere goes on in a listing that was taken after others went and came, or
 * became other files. */
static void what_was_there_all_the_time_comes_once(void **state)
{
	struct sbx_listing *before = sbx_listing_create(), *after = sbx_listing_create();
	bool seen[2000] = {false};
	size_t stop = 700;
	char name[32];

	(void)state;
	assert_non_null(before);
	assert_non_null(after);
	for (unsigned i = 0; i < 2000; i++) {
		snprintf(name, sizeof(name), "n%u", i);
		if (i % 3)
			assert_int_equal(sbx_listing_add(before, name, S_IFREG, i * 7919 % 997), 0);
		if (i % 5)
			assert_int_equal(sbx_listing_add(after, name, S_IFREG, i * 7907 % 997), 0);
	}
	sbx_listing_order(before, 0);
	sbx_listing_order(after, 0);
	for (size_t i = 0; i < stop; i++)
		seen[atoi(before->names + before->entries[i].name + 1)] = true;
	for (size_t i = sbx_listing_behind(after, before->entries[stop - 1].place); i < after->n;
	     i++) {
		unsigned which = (unsigned)atoi(after->names + after->entries[i].name + 1);

		assert_false(seen[which]);
		seen[which] = true;
	}
	for (unsigned i = 0; i < 2000; i++)
		if (i % 3 && i % 5)
			assert_true(seen[i]);
	sbx_listing_unref(before);
	sbx_listing_unref(after);
}

static void destroy_accepts_null(void **state)
{
	(void)state;
	sbx_listing_cache_destroy(NULL);
	sbx_listing_unref(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(names_are_in_the_order_they_were_added),
	        cmocka_unit_test(what_was_noted_is_current_while_unchanged),
	        cmocka_unit_test(it_is_not_current_for_longer_than_attributes_are),
	        cmocka_unit_test(a_listing_of_unknown_state_replaces_and_is_never_current),
	        cmocka_unit_test(bytes_are_bounded_but_for_what_is_in_use),
	        cmocka_unit_test(one_that_gives_way_is_taken_back),
	        cmocka_unit_test(the_kernel_may_use_it_until_it_is_outdated),
	        cmocka_unit_test(a_sandbox_s_are_taken_back_once),
	        cmocka_unit_test(old_ones_are_taken_back),
	        cmocka_unit_test(too_much_is_dropped_when_it_is_no_longer_in_use),
	        cmocka_unit_test(the_latest_is_gone_on_with_whatever_its_state),
	        cmocka_unit_test(places_rise_and_fixed_entries_stay_in_front),
	        cmocka_unit_test(a_copy_that_ends_with_a_page_is_known),
	        cmocka_unit_test(what_was_there_all_the_time_comes_once),
	        cmocka_unit_test(destroy_accepts_null),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
