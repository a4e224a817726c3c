/* A file that is replaced under its lock is the old one or the new one, and the lock is given back.
 */
#include "backends/support/beneath.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sandboxfs/cleanup.h"
#include "tests/lib/scratch.h"

#define MAX_BYTES 1024

static int dir;

static int setup(void **state)
{
	(void)state;
	dir = open(scratch_make(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return dir < 0 ? -1 : 0;
}

static int teardown(void **state)
{
	(void)state;
	close(dir);
	scratch_remove();
	return 0;
}

static void expect(const char *name, const char *text)
{
	_cleanup_free_ char *data = NULL;
	size_t len;

	assert_int_equal(sbx_beneath_read(dir, name, MAX_BYTES, &data, &len, NULL), 0);
	assert_string_equal(data, text);
}

static void expect_nothing_beside(const char *name)
{
	static const char *const suffixes[] = {".lock", SBX_LOCKED_SUFFIX};
	char path[MAX_BYTES];

	for (size_t i = 0; i < SBX_ARRAY_SIZE(suffixes); i++) {
		snprintf(path, sizeof(path), "%s%s", name, suffixes[i]);
		assert_int_equal(faccessat(dir, path, F_OK, AT_SYMLINK_NOFOLLOW), -1);
	}
}

static void what_is_taken_is_seen_when_it_is_put(void **state)
{
	const struct timespec at = {.tv_sec = 12345};
	struct stat st;

	(void)state;
	assert_int_equal(sbx_locked_replace(dir, "index", "old", 3, NULL), 0);
	assert_int_equal(sbx_locked_take(dir, "index", "new", 3, &at), 0);
	expect("index", "old");
	expect("index.lock", "new");
	assert_int_equal(sbx_locked_put(dir, "index"), 0);
	expect("index", "new");
	assert_int_equal(fstatat(dir, "index", &st, 0), 0);
	assert_int_equal(st.st_mtim.tv_sec, at.tv_sec);
	expect_nothing_beside("index");
}

static void what_is_given_up_was_never_there(void **state)
{
	(void)state;
	assert_int_equal(sbx_locked_replace(dir, "index", "old", 3, NULL), 0);
	assert_int_equal(sbx_locked_take(dir, "index", "new", 3, NULL), 0);
	sbx_locked_end(dir, "index");
	expect("index", "old");
	expect_nothing_beside("index");
}

static void a_lock_of_another_stays(void **state)
{
	_cleanup_fd_ int fd = openat(dir, "index.lock", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(sbx_locked_take(dir, "index", "new", 3, NULL), -EBUSY);
	assert_int_equal(sbx_locked_replace(dir, "index", "new", 3, NULL), -EBUSY);
	sbx_locked_clear(dir, "index");
	assert_int_equal(faccessat(dir, "index.lock", F_OK, 0), 0);
	assert_int_equal(unlinkat(dir, "index.lock", 0), 0);
}

static void what_a_crash_has_left_is_replaced(void **state)
{
	(void)state;
	assert_int_equal(sbx_locked_take(dir, "index", "lost", 4, NULL), 0);
	assert_int_equal(sbx_locked_take(dir, "index", "new", 3, NULL), 0);
	assert_int_equal(sbx_locked_put(dir, "index"), 0);
	expect("index", "new");
	expect_nothing_beside("index");
}

static void a_name_without_room_for_a_lock_is_refused(void **state)
{
	char name[NAME_MAX + 1];

	(void)state;
	memset(name, 'n', NAME_MAX);
	name[NAME_MAX] = '\0';
	assert_int_equal(sbx_locked_take(dir, name, "", 0, NULL), -ENAMETOOLONG);
	assert_int_equal(sbx_locked_put(dir, name), -ENAMETOOLONG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(what_is_taken_is_seen_when_it_is_put),
	        cmocka_unit_test(what_is_given_up_was_never_there),
	        cmocka_unit_test(a_lock_of_another_stays),
	        cmocka_unit_test(what_a_crash_has_left_is_replaced),
	        cmocka_unit_test(a_name_without_room_for_a_lock_is_refused),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
