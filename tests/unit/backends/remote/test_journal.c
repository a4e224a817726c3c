#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backends/remote/journal.h"
#include "tests/lib/scratch.h"

static int dir;

static int setup(void **state)
{
	(void)state;
	scratch_make();
	dir = open(scratch_path("."), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	close(dir);
	scratch_remove();
	return 0;
}

static struct remote_journal *opened(void)
{
	struct sbx_error err = SBX_ERROR_INIT;
	struct remote_journal *j = NULL;

	if (remote_journal_open(dir, &j, &err))
		fail_msg("%s", err.text);
	return j;
}

static void note(struct remote_journal *j, enum sbx_change_kind kind, const char *path,
                 uint64_t ino)
{
	const struct sbx_change c = {.kind = kind, .path = path, .ino = ino, .mode = 0100644};

	assert_int_equal(remote_journal_admit(j, NULL, NULL), 0);
	remote_journal_note(j, &c);
}

static void append(const char *name, const char *text)
{
	int fd = open(scratch_path("%s", name), O_WRONLY | O_APPEND | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

static uint64_t cut(struct remote_journal *j, size_t *places)
{
	struct remote_batch *b;

	assert_int_equal(remote_journal_cut(j, &b, NULL), 0);
	*places = b ? b->n : 0;
	return b ? b->number : 0;
}

static void batches_come_in_order_and_go(void **state)
{
	struct remote_journal *j = opened();
	size_t n;

	(void)state;
	note(j, SBX_CHANGE_DATA, "a", 1);
	note(j, SBX_CHANGE_DATA, "a", 1);
	assert_int_equal(remote_journal_noted(j), 1);
	assert_int_equal(cut(j, &n), 1);
	note(j, SBX_CHANGE_DATA, "a", 1);
	assert_int_equal(remote_journal_noted(j), 2);
	assert_int_equal(cut(j, &n), 1);
	assert_true(remote_journal_touched(j, "a", 1));
	remote_journal_sent(j, 1);
	assert_int_equal(remote_journal_seen(j), 1);
	assert_int_equal(cut(j, &n), 2);
	remote_journal_sent(j, 2);
	assert_false(remote_journal_pending(j));
	assert_int_equal(cut(j, &n), 0);
	assert_true(remote_journal_touched(j, "a", 1));
	assert_false(remote_journal_touched(j, "a", 2));
	remote_journal_close(j);
}

static void a_torn_line_is_dropped(void **state)
{
	struct remote_journal *j = opened();
	size_t n;

	(void)state;
	note(j, SBX_CHANGE_DATA, "a", 1);
	remote_journal_close(j);
	append("journal.1", "2 data 5 100644 b");
	j = opened();
	assert_int_equal(cut(j, &n), 1);
	assert_int_equal(n, 1);
	note(j, SBX_CHANGE_DATA, "c", 3);
	remote_journal_close(j);
	j = opened();
	assert_int_equal(remote_journal_noted(j), 2);
	remote_journal_close(j);
}

/* The numbers of the inodes of files of the copy. */
static uint64_t made(const char *name)
{
	struct stat st;
	int fd = openat(dir, name, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &st), 0);
	close(fd);
	return st.st_ino;
}

static void mean(struct remote_journal *j, const struct sbx_change *c)
{
	assert_int_equal(remote_journal_admit(j, c, NULL), 0);
}

static void collect_path(const char *path, uint64_t ino, void *data)
{
	const size_t n = strlen(data);

	(void)ino;
	snprintf((char *)data + n, 200 - n, "%s;", path);
}

/* Where the contents of the batch of an earlier daemon are looked for. */
static void expect_where(struct remote_journal *j, const char *want)
{
	char found[200] = "";

	remote_journal_resolve(j, dir);
	assert_int_equal(remote_journal_walk(j, collect_path, found), 0);
	assert_string_equal(found, want);
}

/* The file "a", whose inode is INO, goes to "to". */
static struct sbx_change moved_away(uint64_t ino)
{
	return (struct sbx_change){
	        .kind = SBX_CHANGE_MOVED, .path = "a", .to = "to", .ino = ino, .mode = 0100644};
}

static void what_was_done_and_not_noted_is_found(void **state)
{
	const uint64_t a = made("a"), b = made("b"), gone = made("gone"), c = made("c");
	const struct sbx_change moved = moved_away(a);
	const struct sbx_change swapped = {
	        .kind = SBX_CHANGE_SWAPPED, .path = "b", .to = "c", .ino = b, .mode = 0100644};
	const struct sbx_change removed = {
	        .kind = SBX_CHANGE_GONE, .path = "gone", .ino = gone, .mode = 0100644};
	struct remote_journal *j = opened();

	(void)state;
	note(j, SBX_CHANGE_DATA, "a", a);
	note(j, SBX_CHANGE_DATA, "b", b);
	note(j, SBX_CHANGE_DATA, "c", c);
	note(j, SBX_CHANGE_DATA, "gone", gone);
	mean(j, &moved);
	mean(j, &swapped);
	mean(j, &removed);
	assert_int_equal(renameat(dir, "a", dir, "to"), 0);
	assert_int_equal(renameat2(dir, "b", dir, "c", RENAME_EXCHANGE), 0);
	assert_int_equal(unlinkat(dir, "gone", 0), 0);
	remote_journal_close(j);
	/* It has its line by then, so it is so once more. */
	for (int i = 0; i < 2; i++) {
		j = opened();
		expect_where(j, "to;c;b;");
		remote_journal_close(j);
	}
}

static void what_was_meant_and_not_done_is_not(void **state)
{
	const uint64_t a = made("a"), b = made("b");
	const struct sbx_change moved = moved_away(a);
	const struct sbx_change removed = {
	        .kind = SBX_CHANGE_GONE, .path = "b", .ino = b, .mode = 0100644};
	struct remote_journal *j = opened();

	(void)state;
	note(j, SBX_CHANGE_DATA, "a", a);
	note(j, SBX_CHANGE_DATA, "b", b);
	mean(j, &moved);
	mean(j, &removed);
	remote_journal_close(j);
	j = opened();
	expect_where(j, "a;b;");
	remote_journal_close(j);
	/* And that is not asked again. */
	assert_int_equal(renameat(dir, "a", dir, "to"), 0);
	j = opened();
	expect_where(j, "a;b;");
	remote_journal_close(j);
}

static void what_was_dropped_is_in_no_doubt(void **state)
{
	const uint64_t a = made("a");
	const struct sbx_change moved = moved_away(a);
	struct remote_journal *j = opened();

	(void)state;
	note(j, SBX_CHANGE_DATA, "a", a);
	mean(j, &moved);
	remote_journal_drop(j, &moved);
	remote_journal_close(j);
	assert_int_equal(renameat(dir, "a", dir, "to"), 0);
	j = opened();
	expect_where(j, "a;");
	remote_journal_close(j);
}

static void a_killed_daemon_loses_no_line(void **state)
{
	struct remote_journal *j;
	int status;
	size_t n;
	pid_t pid = fork();

	(void)state;
	if (pid == 0) {
		j = opened();
		for (unsigned i = 1; i <= 100; i++)
			note(j, SBX_CHANGE_DATA, "a", i);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	j = opened();
	assert_int_equal(remote_journal_noted(j), 1);
	assert_int_equal(cut(j, &n), 1);
	note(j, SBX_CHANGE_DATA, "b", 200);
	assert_int_equal(remote_journal_noted(j), 2);
	remote_journal_close(j);
}

static void expect_damaged(const char *what)
{
	struct sbx_error err = SBX_ERROR_INIT;
	struct remote_journal *j = NULL;

	assert_int_equal(remote_journal_open(dir, &j, &err), -EUCLEAN);
	assert_non_null(strstr(err.text, what));
}

static void a_damaged_line_is_told(void **state)
{
	struct remote_journal *j = opened();

	(void)state;
	note(j, SBX_CHANGE_DATA, "a", 1);
	remote_journal_close(j);
	append("journal.1", "2 data 5 100644 ../b\n");
	expect_damaged("line 3 of journal.1");
}

static void a_missing_line_or_file_is_told(void **state)
{
	struct remote_journal *j = opened();
	size_t n;

	(void)state;
	note(j, SBX_CHANGE_DATA, "a", 1);
	assert_int_equal(cut(j, &n), 1);
	note(j, SBX_CHANGE_DATA, "b", 2);
	remote_journal_close(j);
	append("journal.2", "4 data 5 100644 c\n");
	expect_damaged("line 3 of journal.2");
	assert_int_equal(rename(scratch_path("journal.2"), scratch_path("journal.3")), 0);
	expect_damaged("journal.2 is missing");
}

static void add_path(const char *path, uint64_t ino, void *data)
{
	snprintf(data, 64, "%s %d", path, (int)ino);
}

static void what_is_unsent_is_found_where_it_is_now(void **state)
{
	struct remote_journal *j = opened();
	struct sbx_change c = {
	        .kind = SBX_CHANGE_MOVED, .path = "d", .to = "e", .ino = 9, .mode = 040755};
	char found[64] = "";
	size_t n;

	(void)state;
	note(j, SBX_CHANGE_DATA, "d/a", 1);
	assert_int_equal(cut(j, &n), 1);
	assert_int_equal(remote_journal_admit(j, NULL, NULL), 0);
	remote_journal_note(j, &c);
	remote_journal_close(j);
	j = opened();
	assert_int_equal(remote_journal_walk(j, add_path, found), 0);
	assert_string_equal(found, "e/a 1");
	remote_journal_close(j);
}

static void link_to(struct remote_journal *j, const char *path, const char *to, uint64_t ino)
{
	const struct sbx_change c = {
	        .kind = SBX_CHANGE_LINKED, .path = path, .to = to, .ino = ino, .mode = 0100644};

	assert_int_equal(remote_journal_admit(j, NULL, NULL), 0);
	remote_journal_note(j, &c);
}

static void a_change_hangs_on_the_only_name_that_was_told(void **state)
{
	struct remote_journal *j = opened();
	size_t n;

	(void)state;
	assert_false(remote_journal_hangs(j, 1));
	note(j, SBX_CHANGE_DATA, "a", 1);
	note(j, SBX_CHANGE_STATUS, "b", 2);
	note(j, SBX_CHANGE_MADE, "c", 3);
	assert_true(remote_journal_hangs(j, 1));
	assert_true(remote_journal_hangs(j, 2));
	assert_false(remote_journal_hangs(j, 3));
	cut(j, &n);
	assert_true(remote_journal_hangs(j, 1));
	link_to(j, "a", "other", 1);
	assert_false(remote_journal_hangs(j, 1));
	assert_int_equal(cut(j, &n), 1);
	remote_journal_sent(j, 1);
	assert_false(remote_journal_hangs(j, 2));
	cut(j, &n);
	note(j, SBX_CHANGE_DATA, "other", 1);
	assert_true(remote_journal_hangs(j, 1));
	remote_journal_close(j);
}

static void note_mode(struct remote_journal *j, enum sbx_change_kind kind, const char *path,
                      uint64_t ino, mode_t mode)
{
	const struct sbx_change c = {.kind = kind, .path = path, .ino = ino, .mode = mode};

	assert_int_equal(remote_journal_admit(j, NULL, NULL), 0);
	remote_journal_note(j, &c);
}

/* WANT: the names that are removed early, each in quotes with a blank before it. */
static void expect_cleared(struct remote_journal *j, const char *want)
{
	struct remote_text out = {0};
	const char *names;

	remote_journal_clear(j, dir, &out);
	assert_false(out.failed);
	names = out.at ? strstr(out.at, " './") : NULL;
	assert_int_equal(names && strlen(names) == strlen(want) + 1 &&
	                         strncmp(names, want, strlen(want)) == 0,
	                 *want != '\0');
	if (!*want && out.n)
		fail_msg("%s", out.at);
	remote_text_release(&out);
}

static void what_is_removed_may_go_first(void **state)
{
	struct remote_journal *j = opened();
	const struct sbx_change moved = {
	        .kind = SBX_CHANGE_MOVED, .path = "was", .to = "is", .ino = 7, .mode = 0100644};
	size_t n;

	(void)state;
	note(j, SBX_CHANGE_DATA, "written", 1);
	assert_int_equal(cut(j, &n), 1);
	expect_cleared(j, "");
	note(j, SBX_CHANGE_GONE, "hog", 2);
	note(j, SBX_CHANGE_GONE, "d/one", 3);
	note_mode(j, SBX_CHANGE_GONE, "d", 4, 040755);
	expect_cleared(j, " './hog' './d/one'");
	/* It came again, unsent as yet or from there. */
	scratch_write(scratch_path("hog"), "new");
	expect_cleared(j, " './d/one'");
	/* There it has its first name still. */
	assert_int_equal(remote_journal_admit(j, NULL, NULL), 0);
	remote_journal_note(j, &moved);
	note(j, SBX_CHANGE_GONE, "is", 7);
	expect_cleared(j, " './d/one' './was'");
	remote_journal_close(j);
}

/* There the name leads through what the host has replaced, or is needed still. */
static void what_else_is_unsent_keeps_a_file(void **state)
{
	struct remote_journal *j = opened();
	const struct sbx_change moved = {
	        .kind = SBX_CHANGE_MOVED, .path = "was", .to = "is", .ino = 7, .mode = 0100644};
	size_t n;

	(void)state;
	note_mode(j, SBX_CHANGE_GONE, "data", 1, 0120777);
	note_mode(j, SBX_CHANGE_MADE, "data", 2, 040755);
	note(j, SBX_CHANGE_MADE, "data/big", 3);
	note(j, SBX_CHANGE_MADE, "a", 4);
	link_to(j, "a", "b", 4);
	assert_int_equal(remote_journal_admit(j, NULL, NULL), 0);
	remote_journal_note(j, &moved);
	assert_int_equal(cut(j, &n), 1);
	note(j, SBX_CHANGE_GONE, "data/big", 3);
	note(j, SBX_CHANGE_GONE, "a", 4);
	note(j, SBX_CHANGE_GONE, "is", 7);
	assert_int_equal(mkdir(scratch_path("data"), 0755), 0);
	expect_cleared(j, "");
	remote_journal_close(j);
}

#define THREADS 4
#define EACH    500

static void *note_many(void *data)
{
	static atomic_uint next;
	const unsigned me = atomic_fetch_add(&next, 1);

	for (unsigned i = 0; i < EACH; i++) {
		char path[32];

		snprintf(path, sizeof(path), "t%u/f%u", me, i);
		note(data, SBX_CHANGE_DATA, path, 1 + me * EACH + i);
	}
	return NULL;
}

static void threads_lose_no_line(void **state)
{
	struct remote_journal *j = opened();
	pthread_t threads[THREADS];
	size_t n;

	(void)state;
	for (size_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, note_many, j), 0);
	for (size_t i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	remote_journal_close(j);
	j = opened();
	assert_int_equal(cut(j, &n), 1);
	assert_int_equal(n, THREADS * EACH);
	remote_journal_close(j);
}

/* A full disk of 3 MiB, in a mount namespace of this process alone. False: there is no such. */
static bool small_disk(void)
{
	const uid_t uid = geteuid();

	if (unshare(uid ? CLONE_NEWUSER | CLONE_NEWNS : CLONE_NEWNS) < 0 ||
	    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return false;
	return mount("none", scratch_path("disk"), "tmpfs", 0, "size=3m") == 0;
}

static void fill_disk(void)
{
	static const char block[4096];
	int fd = open(scratch_path("disk/filler"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

	while (write(fd, block, sizeof(block)) > 0)
		continue;
	close(fd);
}

/* 0: what was admitted before the disk was full had room, and nothing was admitted after. */
static int play_full_disk(void)
{
	struct remote_journal *j;
	struct remote_batch *b;
	size_t admitted = 0, refused = 0;

	if (!small_disk())
		return 2;
	dir = open(scratch_path("disk"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0 || remote_journal_open(dir, &j, NULL) || remote_journal_admit(j, NULL, NULL))
		return 3;
	fill_disk();
	for (admitted = 1; admitted < 100000; admitted++) {
		struct sbx_error err = SBX_ERROR_INIT;
		const int r = remote_journal_admit(j, NULL, &err);

		if (r && (r != -ENOSPC || !*err.text))
			return 4;
		refused += r != 0;
		if (r)
			break;
	}
	for (size_t i = 0; i < admitted; i++) {
		char path[4096];
		const struct sbx_change c = {
		        .kind = SBX_CHANGE_DATA, .path = path, .ino = i + 1, .mode = 0100644};

		/* As long as a word can be. */
		memset(path, ' ', sizeof(path));
		snprintf(path + 4080, 16, "%zu", i);
		remote_journal_note(j, &c);
	}
	remote_journal_close(j);
	if (remote_journal_open(dir, &j, NULL) || remote_journal_cut(j, &b, NULL))
		return 5;
	return refused && admitted > 1 && b->n == admitted ? 0 : 6;
}

static void what_was_admitted_has_room_on_a_full_disk(void **state)
{
	int status;
	pid_t pid;

	(void)state;
	scratch_mkdir(scratch_path("disk"));
	pid = fork();
	if (pid == 0)
		_exit(play_full_disk());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 2)
		skip_because("no file system can be mounted");
	assert_int_equal(WEXITSTATUS(status), 0);
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        CASE(batches_come_in_order_and_go),
	        CASE(a_torn_line_is_dropped),
	        CASE(a_killed_daemon_loses_no_line),
	        CASE(a_damaged_line_is_told),
	        CASE(a_missing_line_or_file_is_told),
	        CASE(what_is_unsent_is_found_where_it_is_now),
	        CASE(a_change_hangs_on_the_only_name_that_was_told),
	        CASE(what_is_removed_may_go_first),
	        CASE(what_else_is_unsent_keeps_a_file),
	        CASE(what_was_admitted_has_room_on_a_full_disk),
	        CASE(what_was_done_and_not_noted_is_found),
	        CASE(what_was_meant_and_not_done_is_not),
	        CASE(what_was_dropped_is_in_no_doubt),
	        CASE(threads_lose_no_line),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
