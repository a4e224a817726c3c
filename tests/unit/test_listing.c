#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "fs/listing.h"

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

static struct sbx_kept *kept_new(size_t max_bytes)
{
	struct sbx_kept *kept;

	assert_int_equal(sbx_kept_create(max_bytes, &kept), 0);
	return kept;
}

static void note(struct sbx_kept *kept, uint64_t id, size_t n, int64_t changed_ns, uint64_t now_ns)
{
	struct sbx_listing *l = listing_of(n);

	sbx_kept_note(kept, id, l, changed_ns, now_ns);
	sbx_listing_unref(l);
}

static size_t current(struct sbx_kept *kept, uint64_t id, int64_t changed_ns, uint64_t now_ns)
{
	struct sbx_listing *l = sbx_kept_current(kept, id, changed_ns, now_ns);
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
	struct sbx_kept *kept = kept_new(1 << 20);

	(void)state;
	note(kept, 5, 3, 77, 1000 * MS);
	assert_int_equal(current(kept, 5, 77, 1001 * MS), 3);
	assert_int_equal(current(kept, 5, 78, 1001 * MS), 0);
	assert_int_equal(current(kept, 6, 77, 1001 * MS), 0);
	/* The same index, another generation. */
	assert_int_equal(current(kept, (UINT64_C(1) << 32) + 5, 77, 1001 * MS), 0);
	sbx_kept_destroy(kept);
}

static void it_is_not_current_for_longer_than_attributes_are(void **state)
{
	struct sbx_kept *kept = kept_new(1 << 20);

	(void)state;
	note(kept, 5, 3, 77, 1000 * MS);
	assert_int_equal(current(kept, 5, 77, (1000 + SBX_KEPT_MS - 1) * MS), 3);
	assert_int_equal(current(kept, 5, 77, (1000 + SBX_KEPT_MS) * MS), 0);
	sbx_kept_destroy(kept);
}

static void a_listing_of_unknown_state_replaces_and_is_never_current(void **state)
{
	struct sbx_kept *kept = kept_new(1 << 20);

	(void)state;
	note(kept, 5, 3, 77, 1000 * MS);
	note(kept, 5, 4, 0, 1000 * MS);
	assert_int_equal(current(kept, 5, 77, 1000 * MS), 0);
	assert_int_equal(current(kept, 5, 0, 1000 * MS), 0);
	sbx_kept_destroy(kept);
}

static void bytes_are_bounded_and_the_last_one_stays(void **state)
{
	struct sbx_kept *kept = kept_new(64 << 10);
	size_t found = 0;

	(void)state;
	for (uint64_t id = 1; id <= 1000; id++)
		note(kept, id, 20, 77, 1000 * MS);
	assert_int_equal(current(kept, 1000, 77, 1000 * MS), 20);
	for (uint64_t id = 1; id <= 1000; id++)
		found += current(kept, id, 77, 1000 * MS) > 0;
	assert_in_range(found, 2, 64);
	note(kept, 2000, 100000, 77, 1000 * MS);
	assert_int_equal(current(kept, 2000, 77, 1000 * MS), 0);
	sbx_kept_destroy(kept);
}

static void destroy_accepts_null(void **state)
{
	(void)state;
	sbx_kept_destroy(NULL);
	sbx_listing_unref(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(names_are_in_the_order_they_were_added),
	        cmocka_unit_test(what_was_noted_is_current_while_unchanged),
	        cmocka_unit_test(it_is_not_current_for_longer_than_attributes_are),
	        cmocka_unit_test(a_listing_of_unknown_state_replaces_and_is_never_current),
	        cmocka_unit_test(bytes_are_bounded_and_the_last_one_stays),
	        cmocka_unit_test(destroy_accepts_null),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
