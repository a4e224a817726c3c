#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "backends/support/fsutil.h"
#include "backends/support/tree.h"
#include "sandboxfs/cleanup.h"
#include "tests/lib/scratch.h"

static int setup(void **state)
{
	(void)state;
	scratch_make();
	scratch_mkdir(scratch_path("src"));
	scratch_mkdir(scratch_path("dst"));
	scratch_mkdir(scratch_path("links"));
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	scratch_remove();
	return 0;
}

static int copy_with(struct sbx_copy *copy, struct sbx_error *err)
{
	int r;

	copy->src = sbx_dir_open(AT_FDCWD, scratch_path("src"));
	copy->dst = sbx_dir_open(AT_FDCWD, scratch_path("dst"));
	copy->links = sbx_dir_open(AT_FDCWD, scratch_path("links"));
	r = sbx_tree_copy(copy, err);
	close(copy->src);
	close(copy->dst);
	close(copy->links);
	return r;
}

static void copy_all(struct sbx_copy *copy)
{
	struct sbx_error err = SBX_ERROR_INIT;

	if (copy_with(copy, &err))
		fail_msg("%s", err.text);
}

static struct stat stat_of(const char *path)
{
	struct stat st;

	assert_int_equal(lstat(path, &st), 0);
	return st;
}

static int count_entry(const char *name, unsigned char type, void *data)
{
	(void)name;
	(void)type;
	++*(int *)data;
	return 0;
}

static void a_directory_that_was_removed_is_empty(void **state)
{
	int n = 0, dir = sbx_dir_open(AT_FDCWD, scratch_path("src"));

	(void)state;
	assert_true(dir >= 0);
	scratch_mkdir(scratch_path("src/in"));
	assert_int_equal(sbx_dir_scan(dir, count_entry, &n), 0);
	assert_int_equal(n, 1);
	assert_int_equal(rmdir(scratch_path("src/in")), 0);
	assert_int_equal(rmdir(scratch_path("src")), 0);
	assert_int_equal(sbx_dir_scan(dir, count_entry, &n), 0);
	assert_int_equal(n, 1);
	close(dir);
}

static void copy_keeps_modes_times_and_links(void **state)
{
	const struct timespec times[2] = {{1000000000, 123456789}, {1100000000, 987654321}};
	struct sbx_copy copy = {0};
	char target[16] = "";
	struct stat st;

	(void)state;
	scratch_mkdir(scratch_path("src/dir"));
	scratch_write(scratch_path("src/dir/run"), "text");
	assert_int_equal(chmod(scratch_path("src/dir/run"), 04751), 0);
	assert_int_equal(symlink("../escape", scratch_path("src/dir/sym")), 0);
	assert_int_equal(utimensat(AT_FDCWD, scratch_path("src/dir/run"), times, 0), 0);
	assert_int_equal(
	        utimensat(AT_FDCWD, scratch_path("src/dir/sym"), times, AT_SYMLINK_NOFOLLOW), 0);
	assert_int_equal(chmod(scratch_path("src/dir"), 0555), 0);
	assert_int_equal(utimensat(AT_FDCWD, scratch_path("src/dir"), times, 0), 0);
	copy_all(&copy);
	scratch_expect(scratch_path("dst/dir/run"), "text");
	st = stat_of(scratch_path("dst/dir/run"));
	assert_int_equal(st.st_mode & 07777, 0751);
	assert_int_equal(st.st_mtim.tv_nsec, 987654321);
	st = stat_of(scratch_path("dst/dir"));
	assert_int_equal(st.st_mode & 07777, 0555);
	assert_int_equal(st.st_mtim.tv_nsec, 987654321);
	st = stat_of(scratch_path("dst/dir/sym"));
	assert_int_equal(st.st_mtim.tv_sec, 1100000000);
	assert_int_equal(readlink(scratch_path("dst/dir/sym"), target, 15), 9);
	assert_string_equal(target, "../escape");
}

static void copy_keeps_hard_links_among_the_copies(void **state)
{
	struct sbx_copy copy = {0};
	struct stat a, b, src;

	(void)state;
	scratch_mkdir(scratch_path("src/dir"));
	scratch_write(scratch_path("src/a"), "shared");
	assert_int_equal(link(scratch_path("src/a"), scratch_path("src/dir/b")), 0);
	assert_int_equal(link(scratch_path("src/a"), scratch_path("outside")), 0);
	copy_all(&copy);
	assert_int_equal(sbx_tree_remove(AT_FDCWD, scratch_path("links"), NULL), 0);
	a = stat_of(scratch_path("dst/a"));
	b = stat_of(scratch_path("dst/dir/b"));
	src = stat_of(scratch_path("src/a"));
	assert_int_equal(a.st_ino, b.st_ino);
	assert_int_equal(a.st_nlink, 2);
	assert_int_not_equal(a.st_ino, src.st_ino);
}

static void copy_makes_fifos_and_leaves_sockets_out(void **state)
{
	struct sbx_copy copy = {0};
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void)state;
	assert_int_equal(mkfifo(scratch_path("src/pipe"), 0640), 0);
	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", scratch_path("src/sock"));
	assert_int_equal(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
	copy_all(&copy);
	close(fd);
	assert_true(S_ISFIFO(stat_of(scratch_path("dst/pipe")).st_mode));
	assert_int_equal(stat_of(scratch_path("dst/pipe")).st_mode & 0777, 0640);
	assert_false(scratch_exists(scratch_path("dst/sock")));
	assert_int_equal(copy.skipped, 1);
}

static void copy_keeps_user_attributes(void **state)
{
	struct sbx_copy copy = {0};
	char value[8] = "";

	(void)state;
	scratch_write(scratch_path("src/file"), "x");
	if (setxattr(scratch_path("src/file"), "user.note", "hello", 5, 0) < 0)
		skip_because("no user attributes on this file system");
	assert_int_equal(chmod(scratch_path("src/file"), 0444), 0);
	copy_all(&copy);
	assert_int_equal(getxattr(scratch_path("dst/file"), "user.note", value, sizeof(value)), 5);
	assert_string_equal(value, "hello");
}

static void copy_keeps_holes_and_the_data_around_them(void **state)
{
	struct sbx_copy copy = {0};
	char end[4] = "";
	int fd = open(scratch_path("src/sparse"), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	struct stat st;

	(void)state;
	assert_int_equal(pwrite(fd, "abc", 3, 40 << 20), 3);
	assert_int_equal(ftruncate(fd, 80 << 20), 0);
	close(fd);
	copy_all(&copy);
	st = stat_of(scratch_path("dst/sparse"));
	assert_int_equal(st.st_size, 80 << 20);
	assert_true(st.st_blocks < (10 << 20) / 512);
	fd = open(scratch_path("dst/sparse"), O_RDONLY | O_CLOEXEC);
	assert_int_equal(pread(fd, end, 3, 40 << 20), 3);
	assert_string_equal(end, "abc");
	close(fd);
}

static void copy_leaves_skipped_paths_alone(void **state)
{
	struct sbx_skip skips[2];
	struct sbx_copy copy = {.skips = skips, .nskips = 2};

	(void)state;
	scratch_mkdir(scratch_path("src/mnt"));
	scratch_mkdir(scratch_path("src/sub"));
	scratch_mkdir(scratch_path("src/sub/mnt"));
	scratch_mkdir(scratch_path("src/sub/state"));
	assert_int_equal(sbx_skip_path(scratch_path("src/mnt"), &skips[0]), 0);
	assert_int_equal(sbx_skip_path(scratch_path("src/sub/state"), &skips[1]), 0);
	copy_all(&copy);
	assert_false(scratch_exists(scratch_path("dst/mnt")));
	assert_true(scratch_exists(scratch_path("dst/sub/mnt")));
	assert_false(scratch_exists(scratch_path("dst/sub/state")));
	assert_int_equal(sbx_skip_path(scratch_path("none/x"), &skips[0]), -ENOENT);
	assert_int_equal(sbx_skip_path("/", &skips[0]), -EINVAL);
}

static void copy_stops_when_cancelled(void **state)
{
	atomic_bool cancelled = true;
	struct sbx_copy copy = {.cancelled = &cancelled};
	struct sbx_error err = SBX_ERROR_INIT;

	(void)state;
	scratch_write(scratch_path("src/file"), "x");
	assert_int_equal(copy_with(&copy, &err), -EINTR);
	assert_int_equal(err.code, EINTR);
	assert_false(scratch_exists(scratch_path("dst/file")));
}

static void copy_names_what_it_could_not_copy(void **state)
{
	struct sbx_copy copy = {0};
	struct sbx_error err = SBX_ERROR_INIT;

	(void)state;
	scratch_mkdir(scratch_path("src/dir"));
	scratch_write(scratch_path("src/dir/file"), "x");
	scratch_mkdir(scratch_path("dst/dir"));
	assert_int_equal(copy_with(&copy, &err), -EEXIST);
	assert_non_null(strstr(err.text, "dir"));
}

static void depth_is_no_limit(void **state)
{
	struct sbx_copy copy = {0};
	struct sbx_error err = SBX_ERROR_INIT;
	int fds = scratch_descriptors();

	(void)state;
	scratch_deep(scratch_path("src/deep"), 3000);
	copy_all(&copy);
	assert_int_equal(sbx_tree_remove(AT_FDCWD, scratch_path("src/deep"), &err), 0);
	assert_true(scratch_exists(scratch_path("dst/deep")));
	assert_int_equal(sbx_tree_remove(AT_FDCWD, scratch_path("dst"), &err), 0);
	assert_false(scratch_exists(scratch_path("dst")));
	assert_int_equal(scratch_descriptors(), fds);
}

static void remove_accepts_what_is_not_there(void **state)
{
	struct sbx_error err = SBX_ERROR_INIT;

	(void)state;
	assert_int_equal(sbx_tree_remove(AT_FDCWD, scratch_path("nothing"), &err), 0);
}

static void remove_takes_a_link_and_not_its_target(void **state)
{
	(void)state;
	scratch_write(scratch_path("src/file"), "x");
	assert_int_equal(symlink(scratch_path("src"), scratch_path("dst/link")), 0);
	assert_int_equal(symlink(scratch_path("src"), scratch_path("top")), 0);
	assert_int_equal(sbx_tree_remove(AT_FDCWD, scratch_path("dst"), NULL), 0);
	assert_int_equal(sbx_tree_remove(AT_FDCWD, scratch_path("top"), NULL), 0);
	assert_true(scratch_exists(scratch_path("src/file")));
}

static void remove_takes_many_entries(void **state)
{
	(void)state;
	for (int i = 0; i < 3000; i++)
		scratch_write(scratch_path("src/file-with-a-rather-long-name-%d", i), "");
	for (int i = 0; i < 300; i++)
		scratch_mkdir(scratch_path("src/dir-%d", i));
	assert_int_equal(sbx_tree_remove(AT_FDCWD, scratch_path("src"), NULL), 0);
	assert_false(scratch_exists(scratch_path("src")));
}

static void remove_takes_immutable_flags_off(void **state)
{
	int flags, fd;

	(void)state;
	scratch_write(scratch_path("src/file"), "x");
	fd = open(scratch_path("src/file"), O_RDONLY | O_CLOEXEC);
	if (ioctl(fd, FS_IOC_GETFLAGS, &flags) < 0 ||
	    (flags |= FS_IMMUTABLE_FL, ioctl(fd, FS_IOC_SETFLAGS, &flags)) < 0) {
		close(fd);
		skip_because("no immutable files here");
	}
	close(fd);
	fd = open(scratch_path("src"), O_RDONLY | O_CLOEXEC);
	assert_int_equal(ioctl(fd, FS_IOC_GETFLAGS, &flags), 0);
	flags |= FS_IMMUTABLE_FL;
	assert_int_equal(ioctl(fd, FS_IOC_SETFLAGS, &flags), 0);
	close(fd);
	assert_int_equal(sbx_tree_remove(AT_FDCWD, scratch_path("src"), NULL), 0);
	assert_false(scratch_exists(scratch_path("src")));
}

static void file_replace_leaves_no_temporary(void **state)
{
	int dir = sbx_dir_open(AT_FDCWD, scratch_path("src"));

	(void)state;
	assert_int_equal(sbx_file_replace(dir, "f", "f.tmp", "one"), 0);
	assert_int_equal(sbx_file_replace(dir, "f", "f.tmp", "two"), 0);
	scratch_expect(scratch_path("src/f"), "two");
	assert_int_equal(scratch_count(scratch_path("src")), 1);
	assert_int_equal(sbx_file_create(dir, "f", "three"), -EEXIST);
	scratch_mkdir(scratch_path("src/d"));
	assert_int_equal(sbx_file_replace(dir, "d", "d.tmp", "x"), -EISDIR);
	assert_int_equal(scratch_count(scratch_path("src")), 2);
	close(dir);
}

static void file_read_refuses_the_large_and_the_strange(void **state)
{
	int dir = sbx_dir_open(AT_FDCWD, scratch_path("src"));
	char *text = NULL;

	(void)state;
	scratch_write(scratch_path("src/f"), "12345");
	assert_int_equal(symlink("f", scratch_path("src/l")), 0);
	assert_int_equal(mkfifo(scratch_path("src/p"), 0600), 0);
	assert_int_equal(sbx_file_read(dir, "f", 4, &text), -EFBIG);
	assert_int_equal(sbx_file_read(dir, "l", 99, &text), -ELOOP);
	assert_int_equal(sbx_file_read(dir, "p", 99, &text), -EINVAL);
	assert_int_equal(sbx_file_read(dir, "x", 99, &text), -ENOENT);
	assert_null(text);
	assert_int_equal(sbx_file_read(dir, "f", 5, &text), 0);
	assert_string_equal(text, "12345");
	free(text);
	close(dir);
}

static void path_within_compares_whole_components(void **state)
{
	(void)state;
	assert_true(sbx_path_within("/a/b", "/a"));
	assert_true(sbx_path_within("/a", "/a"));
	assert_true(sbx_path_within("/a/b", "/a/"));
	assert_true(sbx_path_within("/a", "/"));
	assert_false(sbx_path_within("/ab", "/a"));
	assert_false(sbx_path_within("/", "/a"));
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        CASE(a_directory_that_was_removed_is_empty),
	        CASE(copy_keeps_modes_times_and_links),
	        CASE(copy_keeps_hard_links_among_the_copies),
	        CASE(copy_makes_fifos_and_leaves_sockets_out),
	        CASE(copy_keeps_user_attributes),
	        CASE(copy_keeps_holes_and_the_data_around_them),
	        CASE(copy_leaves_skipped_paths_alone),
	        CASE(copy_stops_when_cancelled),
	        CASE(copy_names_what_it_could_not_copy),
	        CASE(depth_is_no_limit),
	        CASE(remove_accepts_what_is_not_there),
	        CASE(remove_takes_a_link_and_not_its_target),
	        CASE(remove_takes_many_entries),
	        CASE(remove_takes_immutable_flags_off),
	        CASE(file_replace_leaves_no_temporary),
	        CASE(file_read_refuses_the_large_and_the_strange),
	        cmocka_unit_test(path_within_compares_whole_components),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
