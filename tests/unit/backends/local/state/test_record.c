#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/local/state/record.h"
#include "backends/local/state/state.h"
#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"
#include "tests/lib/scratch.h"

static int dir;

static int setup(void **state)
{
	(void)state;
	scratch_make();
	dir = sbx_dir_open(AT_FDCWD, scratch_path("."));
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	close(dir);
	scratch_remove();
	return 0;
}

static void what_is_stored_is_loaded(void **state)
{
	struct sbx_record rec = {.state = SBX_RECORD_DELETING,
	                         .id = (char *)"a-1",
	                         .name = (char *)"a",
	                         .kind = (char *)"git",
	                         .source = (char *)"/with \"quotes\" and\nline",
	                         .common = (char *)"/r/.git",
	                         .worktree = (char *)"a-1",
	                         .branch = (char *)"b/\xc3\xa9",
	                         .base = (char *)"0123",
	                         .branch_created = true,
	                         .created_ms = 1700000000123,
	                         .skipped = 3};
	struct sbx_record got = {0};

	(void)state;
	assert_int_equal(sbx_record_store(dir, &rec), 0);
	assert_int_equal(scratch_count(scratch_path(".")), 1);
	assert_int_equal(sbx_record_load(dir, "a-1.json", &got), 0);
	assert_int_equal(got.state, SBX_RECORD_DELETING);
	assert_string_equal(got.id, rec.id);
	assert_string_equal(got.name, rec.name);
	assert_string_equal(got.kind, rec.kind);
	assert_string_equal(got.source, rec.source);
	assert_string_equal(got.common, rec.common);
	assert_string_equal(got.worktree, rec.worktree);
	assert_string_equal(got.branch, rec.branch);
	assert_string_equal(got.base, rec.base);
	assert_true(got.branch_created);
	assert_int_equal(got.created_ms, rec.created_ms);
	assert_int_equal(got.skipped, 3);
	sbx_record_release(&got);
	sbx_record_release(&got);
}

static void absent_members_stay_absent(void **state)
{
	struct sbx_record rec = {.id = (char *)"n", .name = (char *)"n", .kind = (char *)"none"};
	struct sbx_record got = {0};

	(void)state;
	assert_int_equal(sbx_record_store(dir, &rec), 0);
	assert_int_equal(sbx_record_load(dir, "n.json", &got), 0);
	assert_null(got.branch);
	assert_null(got.common);
	assert_false(got.branch_created);
	sbx_record_release(&got);
}

static void what_is_not_a_record_is_refused(void **state)
{
	static const char *const texts[] = {
	        "",
	        "{",
	        "[]",
	        "\"x\"",
	        "null",
	        "{\"id\":\"x\",\"name\":\"x\",\"kind\":\"none\"}",
	        "{\"id\":\"x\",\"name\":\"x\",\"kind\":\"none\",\"state\":\"odd\"}",
	        "{\"id\":\"x\",\"name\":\"x\",\"kind\":\"none\",\"state\":1}",
	        "{\"id\":\"x\",\"kind\":\"none\",\"state\":\"ready\"}",
	        "{\"id\":\"x\",\"name\":7,\"kind\":\"none\",\"state\":\"ready\"}",
	        "{\"id\":\"other\",\"name\":\"x\",\"kind\":\"none\",\"state\":\"ready\"}",
	        "{\"id\":\"../x\",\"name\":\"x\",\"kind\":\"none\",\"state\":\"ready\"}",
	        ("{\"id\":\"x\",\"name\":\"x\",\"kind\":\"git\",\"worktree\":\"a/b\","
	         "\"state\":\"ready\"}"),
	};

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(texts); i++) {
		struct sbx_record got = {0};

		scratch_write(scratch_path("x.json"), texts[i]);
		assert_int_equal(sbx_record_load(dir, "x.json", &got), -EINVAL);
		assert_null(got.id);
	}
}

static void unlink_accepts_what_is_not_there(void **state)
{
	struct sbx_record rec = {.id = (char *)"n", .name = (char *)"n", .kind = (char *)"none"};
	struct sbx_record got = {0};

	(void)state;
	assert_int_equal(sbx_record_store(dir, &rec), 0);
	assert_int_equal(sbx_record_unlink(dir, "n"), 0);
	assert_int_equal(sbx_record_unlink(dir, "n"), 0);
	assert_int_equal(sbx_record_load(dir, "n.json", &got), -ENOENT);
}

static void state_directory_is_made_private_with_its_parents(void **state)
{
	struct sbx_state st;
	struct sbx_error err = SBX_ERROR_INIT;
	struct stat sb;

	(void)state;
	assert_int_equal(sbx_state_open(scratch_path("new/deep/state"), &st, &err), 0);
	assert_string_equal(st.path, scratch_path("new/deep/state"));
	assert_int_equal(stat(st.path, &sb), 0);
	assert_int_equal(sb.st_mode & 0777, 0700);
	sbx_state_close(&st);
}

static void state_directory_that_is_not_safe_is_refused(void **state)
{
	struct sbx_state st;
	struct sbx_error err = SBX_ERROR_INIT;

	(void)state;
	scratch_mkdir(scratch_path("open"));
	assert_int_equal(chmod(scratch_path("open"), 0777), 0);
	assert_int_equal(sbx_state_open(scratch_path("open"), &st, &err), -EACCES);
	assert_non_null(strstr(err.text, "chmod"));
	scratch_mkdir(scratch_path("real"));
	assert_int_equal(symlink("real", scratch_path("link")), 0);
	assert_int_equal(sbx_state_open(scratch_path("link"), &st, &err), -ENOTDIR);
	scratch_write(scratch_path("file"), "");
	assert_int_equal(sbx_state_open(scratch_path("file"), &st, &err), -ENOTDIR);
	if (geteuid() == 0) {
		scratch_mkdir(scratch_path("theirs"));
		assert_int_equal(chown(scratch_path("theirs"), 1234, 1234), 0);
		assert_int_equal(sbx_state_open(scratch_path("theirs"), &st, &err), -EACCES);
		assert_non_null(strstr(err.text, "another user"));
	}
}

static void state_is_locked_while_open(void **state)
{
	struct sbx_state st, second;
	struct sbx_error err = SBX_ERROR_INIT;
	char process[80];

	(void)state;
	assert_int_equal(sbx_state_open(scratch_path("s"), &st, &err), 0);
	assert_int_equal(sbx_state_open(scratch_path("s"), &second, &err), -EBUSY);
	assert_non_null(strstr(err.text, "another mount"));
	assert_int_equal(sbx_state_sign(&st, "/src", "/the/mount", &err), 0);
	assert_int_equal(sbx_state_open(scratch_path("s"), &second, &err), -EBUSY);
	snprintf(process, sizeof(process), "the mount at /the/mount (process %d)", (int)getpid());
	assert_non_null(strstr(err.text, process));
	sbx_state_close(&st);
	assert_int_equal(sbx_state_open(scratch_path("s"), &second, &err), 0);
	sbx_state_close(&second);
}

/* As systemd-tmpfiles asks before it clears a directory. */
static void state_is_not_cleared_by_age_while_open(void **state)
{
	int fd = -1;
	struct sbx_state st;

	(void)state;
	assert_int_equal(sbx_state_open(scratch_path("s"), &st, NULL), 0);
	fd = open(scratch_path("s"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), -1);
	sbx_state_close(&st);
	assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
	assert_int_equal(sbx_state_open(scratch_path("s"), &st, NULL), -EBUSY);
	close(fd);
	assert_int_equal(sbx_state_open(scratch_path("s"), &st, NULL), 0);
	sbx_state_close(&st);
}

static void ids_carry_the_name_and_differ(void **state)
{
	struct sbx_state st;
	char *a, *b;

	(void)state;
	assert_int_equal(sbx_state_open(scratch_path("s"), &st, NULL), 0);
	assert_int_equal(sbx_state_new_id(&st, "x.y", &a), 0);
	assert_int_equal(sbx_state_new_id(&st, "x.y", &b), 0);
	assert_int_equal(strncmp(a, "x.y-", 4), 0);
	assert_int_equal(strlen(a), 4 + 8);
	assert_string_not_equal(a, b);
	free(a);
	free(b);
	sbx_state_close(&st);
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        CASE(what_is_stored_is_loaded),
	        CASE(absent_members_stay_absent),
	        CASE(what_is_not_a_record_is_refused),
	        CASE(unlink_accepts_what_is_not_there),
	        CASE(state_directory_is_made_private_with_its_parents),
	        CASE(state_directory_that_is_not_safe_is_refused),
	        CASE(state_is_locked_while_open),
	        CASE(state_is_not_cleared_by_age_while_open),
	        CASE(ids_carry_the_name_and_differ),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
