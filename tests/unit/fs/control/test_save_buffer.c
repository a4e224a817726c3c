#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fs/control/save_buffer.h"
#include "sandboxfs/clock.h"
#include "tests/lib/control_fixture.h"

#define KEPT_NS (SBX_BUFFER_KEPT_S * UINT64_C(1000000000))

static struct sbx_buffers *buffers;

static int set_up_buffers(void **state)
{
	return set_up(state) < 0 ? -1 : sbx_buffers_create(NULL, &buffers);
}

static int tear_down_buffers(void **state)
{
	sbx_buffers_destroy(buffers);
	return tear_down(state);
}

static int make_in(struct sbx_box *where, const char *name, uid_t uid)
{
	struct sbx_control_node dir, node;
	struct sbx_error err = SBX_ERROR_INIT;
	int r;

	if (where)
		sbx_control_box_node(where, &dir);
	else
		sbx_control_mount_node(&dir);
	r = sbx_buffers_make(buffers, &dir, name, uid, uid, &node, &err);
	sbx_control_node_release(&dir);
	if (r == 0)
		sbx_control_node_release(&node);
	else
		assert_int_equal(err.code, -r);
	return r;
}

/* How many of the next COUNT can be made. */
static int fill(struct sbx_box *where, uid_t uid, int count)
{
	char name[32];
	int i;

	for (i = 0; i < count; i++) {
		snprintf(name, sizeof(name), "new.%d.%d", (int)uid, i);
		if (make_in(where, name, uid) < 0)
			break;
	}
	return i;
}

static int find_buffer(const char *name, uid_t uid, struct sbx_control_node *ret)
{
	struct sbx_control_node dir;
	int r;

	sbx_control_box_node(box, &dir);
	r = sbx_buffers_find(buffers, &dir, name, uid, ret);
	sbx_control_node_release(&dir);
	return r;
}

static void what_nobody_uses_goes(void **state)
{
	struct sbx_control_node node;

	(void)state;
	assert_int_equal(make_in(box, "new.1", 1), 0);
	assert_int_equal(sbx_buffers_sweep(buffers, sbx_now_ns()), 1);
	assert_int_equal(sbx_buffers_sweep(buffers, sbx_now_ns() + KEPT_NS / 2), 1);
	assert_int_equal(sbx_buffers_sweep(buffers, sbx_now_ns() + KEPT_NS), 0);
	assert_int_equal(find_buffer("new.1", 1, &node), -ENOENT);
}

static void what_is_open_stays(void **state)
{
	struct sbx_control_handle *h;
	struct sbx_control_node node;

	(void)state;
	assert_int_equal(make_in(box, "new.1", 1), 0);
	assert_int_equal(find_buffer("new.1", 1, &node), 0);
	assert_int_equal(sbx_control_open(registry_fixture.registry, &node, O_RDWR, &h), 0);
	assert_int_equal(sbx_buffers_sweep(buffers, sbx_now_ns() + 2 * KEPT_NS), 1);
	assert_int_equal(write_text(h, "kept"), 4);
	sbx_control_release(h);
	assert_int_equal(sbx_buffers_sweep(buffers, sbx_now_ns() + KEPT_NS / 2), 1);
	assert_int_equal(sbx_buffers_sweep(buffers, sbx_now_ns() + KEPT_NS), 0);
	sbx_control_node_release(&node);
}

static void another_user_does_not_see_it(void **state)
{
	struct sbx_control_node node;

	(void)state;
	assert_int_equal(make_in(box, "new.1", 1), 0);
	assert_int_equal(find_buffer("new.1", 2, &node), -ENOENT);
	assert_int_equal(find_buffer("new.1", 0, &node), 0);
	sbx_control_node_release(&node);
	assert_int_equal(find_buffer("new.1", 1, &node), 0);
	sbx_control_node_release(&node);
	assert_int_equal(make_in(box, "new.1", 2), -EEXIST);
}

static void a_sandbox_has_so_many(void **state)
{
	(void)state;
	assert_int_equal(fill(box, 1, SBX_BUFFERS_BOX + 1), SBX_BUFFERS_BOX);
	assert_int_equal(make_in(box, "other", 2), -ENOSPC);
	assert_int_equal(make_in(NULL, "other", 1), 0);
	sbx_buffers_drop_box(buffers, box->number);
	assert_int_equal(make_in(box, "other", 2), 0);
}

static void a_user_has_so_many(void **state)
{
	struct sbx_box *others[4];
	char name[8];

	(void)state;
	for (int i = 0; i < 4; i++) {
		snprintf(name, sizeof(name), "b%d", i);
		others[i] = registry_fixture_make(&registry_fixture, name);
		assert_int_equal(fill(others[i], 1, SBX_BUFFERS_BOX), SBX_BUFFERS_BOX);
	}
	assert_int_equal(4 * SBX_BUFFERS_BOX, SBX_BUFFERS_USER);
	assert_int_equal(make_in(box, "one-more", 1), -ENOSPC);
	assert_int_equal(make_in(box, "one-more", 2), 0);
	for (int i = 0; i < 4; i++)
		sbx_box_unref(others[i]);
}

static int resize(const char *name, uint64_t size)
{
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_control_node node;
	int r;

	assert_int_equal(find_buffer(name, 1, &node), 0);
	r = sbx_buffer_resize(node.buffer, size, &err);
	sbx_control_node_release(&node);
	return r;
}

static void all_have_so_many_bytes(void **state)
{
	const int full = SBX_BUFFERS_MAX / SBX_BUFFER_MAX;
	struct sbx_control_node node;
	char name[32];

	(void)state;
	assert_int_equal(fill(box, 1, full + 1), full + 1);
	assert_int_equal(resize("new.1.0", SBX_BUFFER_MAX + 1), -E2BIG);
	for (int i = 0; i < full; i++) {
		snprintf(name, sizeof(name), "new.1.%d", i);
		assert_int_equal(resize(name, SBX_BUFFER_MAX), 0);
	}
	snprintf(name, sizeof(name), "new.1.%d", full);
	assert_int_equal(resize(name, 1), -ENOSPC);
	assert_int_equal(find_buffer("new.1.0", 1, &node), 0);
	sbx_buffers_remove(buffers, node.buffer);
	assert_int_equal(resize(name, 1), -ENOSPC); /* it is held still */
	sbx_control_node_release(&node);
	assert_int_equal(resize(name, 1), 0);
}

static void what_cannot_be_emptied_is_not_open(void **state)
{
	const int full = SBX_BUFFERS_MAX / SBX_BUFFER_MAX;
	struct sbx_control_handle *h;
	struct sbx_control_node node;
	char name[32];

	(void)state;
	assert_int_equal(fill(box, 1, full + 1), full + 1);
	for (int i = 0; i < full; i++) {
		snprintf(name, sizeof(name), "new.1.%d", i);
		assert_int_equal(resize(name, SBX_BUFFER_MAX), 0);
	}
	snprintf(name, sizeof(name), "new.1.%d", full);
	assert_int_equal(find_buffer(name, 1, &node), 0);
	assert_int_equal(sbx_control_open(registry_fixture.registry, &node, O_RDWR | O_TRUNC, &h),
	                 -ENOSPC);
	sbx_control_node_release(&node);
	assert_int_equal(sbx_buffers_sweep(buffers, sbx_now_ns() + 2 * KEPT_NS), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(what_nobody_uses_goes, set_up_buffers,
	                                        tear_down_buffers),
	        cmocka_unit_test_setup_teardown(what_is_open_stays, set_up_buffers,
	                                        tear_down_buffers),
	        cmocka_unit_test_setup_teardown(another_user_does_not_see_it, set_up_buffers,
	                                        tear_down_buffers),
	        cmocka_unit_test_setup_teardown(a_sandbox_has_so_many, set_up_buffers,
	                                        tear_down_buffers),
	        cmocka_unit_test_setup_teardown(a_user_has_so_many, set_up_buffers,
	                                        tear_down_buffers),
	        cmocka_unit_test_setup_teardown(all_have_so_many_bytes, set_up_buffers,
	                                        tear_down_buffers),
	        cmocka_unit_test_setup_teardown(what_cannot_be_emptied_is_not_open, set_up_buffers,
	                                        tear_down_buffers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
