#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sandboxfs/cleanup.h"
#include "sandboxfs/own_dir.h"
#include "tests/lib/scratch.h"

#define ANOTHER 12345 /* a user that is neither root nor the one of the test */

static int setup(void **state)
{
	(void)state;
	scratch_make();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	scratch_remove();
	return 0;
}

static void expect_made(const char *path)
{
	struct sbx_error err = SBX_ERROR_INIT;
	_cleanup_fd_ int fd = sbx_dir_own(path, "state", &err);
	struct stat st, at;

	assert_string_equal(err.text, "");
	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(lstat(path, &at), 0);
	assert_int_equal(st.st_ino, at.st_ino);
	assert_int_equal(st.st_mode & 07777, 0700);
}

static void expect_refused(const char *path, int errnum, const char *why)
{
	struct sbx_error err = SBX_ERROR_INIT;

	assert_int_equal(sbx_dir_own(path, "state", &err), -errnum);
	assert_non_null(strstr(err.text, why));
	assert_non_null(strstr(err.text, path));
}

static void what_is_missing_is_made_for_its_owner_alone(void **state)
{
	mode_t before = umask(0);
	struct stat st;

	(void)state;
	expect_made(scratch_path("a/b//c/"));
	assert_int_equal(lstat(scratch_path("a"), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	expect_made(scratch_path("a/b/c"));
	umask(before);
}

/* As in /tmp, where the first to come may make the directory that the state lies in. */
static void a_parent_of_another_user_is_refused(void **state)
{
	(void)state;
	if (geteuid() != 0)
		skip_because("only root gives a directory to another user");
	scratch_mkdir(scratch_path("tmp"));
	assert_int_equal(chmod(scratch_path("tmp"), 01777), 0);
	scratch_mkdir(scratch_path("tmp/theirs"));
	assert_int_equal(chown(scratch_path("tmp/theirs"), ANOTHER, ANOTHER), 0);
	expect_refused(scratch_path("tmp/theirs/state"), EACCES, "belongs to another user");
	assert_int_equal(access(scratch_path("tmp/theirs/state"), F_OK), -1);
	scratch_mkdir(scratch_path("tmp/theirs/state"));
	expect_refused(scratch_path("tmp/theirs/state"), EACCES, "belongs to another user");
	expect_made(scratch_path("tmp/mine/state"));
}

/*
 * Its owner is this user, and yet another may move the state away and put a directory in its place.
 */
static void a_parent_that_others_write_to_is_refused(void **state)
{
	(void)state;
	scratch_mkdir(scratch_path("open"));
	assert_int_equal(chmod(scratch_path("open"), 0777), 0);
	expect_refused(scratch_path("open/state"), EACCES, "writable by others");
	assert_int_equal(access(scratch_path("open/state"), F_OK), -1);
	assert_int_equal(chmod(scratch_path("open"), 01777), 0);
	expect_made(scratch_path("open/state"));
	if (geteuid() != 0)
		return;
	scratch_mkdir(scratch_path("theirs"));
	assert_int_equal(chown(scratch_path("theirs"), ANOTHER, ANOTHER), 0);
	expect_refused(scratch_path("theirs/state"), EACCES, "belongs to another user");
}

static void the_directory_itself_is_nobody_elses(void **state)
{
	(void)state;
	scratch_mkdir(scratch_path("state"));
	assert_int_equal(chmod(scratch_path("state"), 0770), 0);
	expect_refused(scratch_path("state"), EACCES, "writable by others (chmod 700 mends it)");
}

static void no_link_is_followed(void **state)
{
	(void)state;
	scratch_mkdir(scratch_path("real"));
	assert_int_equal(symlink("real", scratch_path("link")), 0);
	assert_int_equal(symlink("nowhere", scratch_path("dangling")), 0);
	expect_refused(scratch_path("link"), ENOTDIR, "link: Not a directory");
	expect_refused(scratch_path("link/state"), ENOTDIR, "link: Not a directory");
	expect_refused(scratch_path("dangling/state"), ENOTDIR, "dangling: Not a directory");
	assert_int_equal(access(scratch_path("real/state"), F_OK), -1);
	assert_int_equal(access(scratch_path("nowhere"), F_OK), -1);
}

struct swapper {
	char link[300], place[300];
	atomic_bool done;
};

static void *swap(void *data)
{
	struct swapper *s = data;

	while (!atomic_load(&s->done)) {
		unlink(s->place);
		rmdir(s->place);
		if (symlink(s->link, s->place) < 0)
			usleep(1);
	}
	return NULL;
}

/*
 * Whatever is put in the place of a directory while it is made: what was answered is no link's
 * target.
 */
static void a_link_put_there_meanwhile_is_not_followed(void **state)
{
	struct swapper s = {0};
	struct stat there;
	pthread_t thread;

	(void)state;
	scratch_mkdir(scratch_path("victim"));
	snprintf(s.link, sizeof(s.link), "%s", scratch_path("victim"));
	snprintf(s.place, sizeof(s.place), "%s", scratch_path("place"));
	assert_int_equal(pthread_create(&thread, NULL, swap, &s), 0);
	for (int i = 0; i < 2000; i++) {
		struct sbx_error err = SBX_ERROR_INIT;
		_cleanup_fd_ int fd = -1;

		fd = sbx_dir_own(scratch_path("place/state"), "state", &err);
	}
	atomic_store(&s.done, true);
	pthread_join(thread, NULL);
	assert_int_equal(lstat(scratch_path("victim/state"), &there), -1);
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        CASE(what_is_missing_is_made_for_its_owner_alone),
	        CASE(a_parent_of_another_user_is_refused),
	        CASE(a_parent_that_others_write_to_is_refused),
	        CASE(the_directory_itself_is_nobody_elses),
	        CASE(no_link_is_followed),
	        CASE(a_link_put_there_meanwhile_is_not_followed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
