/* Records of sandboxes elsewhere: what is written is read again, and what is none is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/remote/record.h"
#include "backends/support/fsutil.h"
#include "sandboxfs/state.h"
#include "tests/lib/scratch.h"

static int dir = -1;

static int setup(void **state)
{
	(void)state;
	scratch_make();
	dir = sbx_dir_open(-1, scratch_path("."));
	return dir < 0;
}

static int teardown(void **state)
{
	(void)state;
	close(dir);
	scratch_remove();
	return 0;
}

static void a_record_is_read_as_it_was_written(void **state)
{
	struct remote_record rec = {.phase = REMOTE_PHASE_UP,
	                            .id = (char *)"a-1",
	                            .name = (char *)"a",
	                            .machine = (char *)"sbx-a-1",
	                            .handle = (char *)"{\"id\":\"x\\\"y\"}",
	                            .source = (char *)"org/repo",
	                            .created_ms = 1700000000123};
	struct remote_record back = {0};

	(void)state;
	assert_int_equal(remote_record_store(dir, &rec), 0);
	assert_int_equal(remote_record_load(dir, &back), 0);
	assert_int_equal(back.phase, REMOTE_PHASE_UP);
	assert_string_equal(back.id, rec.id);
	assert_string_equal(back.name, rec.name);
	assert_string_equal(back.machine, rec.machine);
	assert_string_equal(back.handle, rec.handle);
	assert_string_equal(back.source, rec.source);
	assert_null(back.base);
	assert_null(back.reason);
	assert_int_equal(back.created_ms, rec.created_ms);
	remote_record_release(&back);
	assert_null(back.id);
}

static void a_later_record_replaces_it(void **state)
{
	struct remote_record rec = {.phase = REMOTE_PHASE_CREATING,
	                            .id = (char *)"a-1",
	                            .name = (char *)"a",
	                            .machine = (char *)"m"};
	struct remote_record back = {0};

	(void)state;
	assert_int_equal(remote_record_store(dir, &rec), 0);
	rec.phase = REMOTE_PHASE_FAILED;
	rec.reason = (char *)"no quota";
	assert_int_equal(remote_record_store(dir, &rec), 0);
	assert_int_equal(remote_record_load(dir, &back), 0);
	assert_int_equal(back.phase, REMOTE_PHASE_FAILED);
	assert_string_equal(back.reason, "no quota");
	remote_record_release(&back);
}

/* Of whatever phase it was: a full disk has no room for another. */
static void one_that_leaves_stays_so(void **state)
{
	struct remote_record rec = {.phase = REMOTE_PHASE_CREATING,
	                            .id = (char *)"a-1",
	                            .name = (char *)"a",
	                            .machine = (char *)"m"};
	struct remote_record back = {0};

	(void)state;
	assert_int_equal(remote_record_leave(dir), -ENOENT);
	assert_int_equal(remote_record_store(dir, &rec), 0);
	assert_int_equal(remote_record_leave(dir), 0);
	assert_int_equal(remote_record_leave(dir), 0);
	assert_int_equal(remote_record_load(dir, &back), 0);
	assert_int_equal(back.phase, REMOTE_PHASE_LEAVING);
	remote_record_release(&back);
	/* Its machine was made after all. */
	rec.phase = REMOTE_PHASE_LEAVING;
	rec.handle = (char *)"h";
	assert_int_equal(remote_record_store(dir, &rec), 0);
	assert_int_equal(remote_record_load(dir, &back), 0);
	assert_int_equal(back.phase, REMOTE_PHASE_LEAVING);
	assert_string_equal(back.handle, "h");
	remote_record_release(&back);
}

static void what_is_no_record_is_refused(void **state)
{
	static const char *const texts[] = {
	        "",
	        "[]",
	        "{",
	        "{\"phase\":\"up\"}",
	        "{\"phase\":\"down\",\"id\":\"a\",\"name\":\"a\",\"machine\":\"m\"}",
	        "{\"phase\":\"up\",\"id\":1,\"name\":\"a\",\"machine\":\"m\"}",
	};
	struct remote_record back = {0};

	(void)state;
	assert_int_equal(remote_record_load(dir, &back), -ENOENT);
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		scratch_write(scratch_path("record.json"), texts[i]);
		assert_int_equal(remote_record_load(dir, &back), -EINVAL);
		assert_null(back.id);
	}
}

/* What is unsent of such a sandbox is nowhere else. */
static void a_state_that_has_one_is_not_pruned(void **state)
{
	struct sbx_state_info info;
	struct sbx_error err;
	int remote;

	(void)state;
	scratch_mkdir(scratch_path("state"));
	scratch_mkdir(scratch_path("state/meta"));
	scratch_write(scratch_path("state/lock"), "");
	scratch_mkdir(scratch_path("state/remote"));
	scratch_mkdir(scratch_path("state/remote/a-1"));
	remote = sbx_dir_open(-1, scratch_path("state/remote/a-1"));
	assert_true(remote >= 0);
	assert_int_equal(
	        remote_record_store(remote, &(struct remote_record){.phase = REMOTE_PHASE_UP,
	                                                            .id = (char *)"a-1",
	                                                            .name = (char *)"fix",
	                                                            .machine = (char *)"m"}),
	        0);
	close(remote);
	assert_int_equal(sbx_state_inspect(dir, "state", &info, &err), 0);
	assert_int_equal(info.sandboxes, 1);
	assert_string_equal(info.names, "fix");
	sbx_state_info_release(&info);
	assert_int_equal(sbx_state_prune(dir, "state", &err), -ENOTEMPTY);
	assert_non_null(strstr(err.text, "fix"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(a_record_is_read_as_it_was_written, setup,
	                                        teardown),
	        cmocka_unit_test_setup_teardown(a_later_record_replaces_it, setup, teardown),
	        cmocka_unit_test_setup_teardown(one_that_leaves_stays_so, setup, teardown),
	        cmocka_unit_test_setup_teardown(what_is_no_record_is_refused, setup, teardown),
	        cmocka_unit_test_setup_teardown(a_state_that_has_one_is_not_pruned, setup,
	                                        teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
