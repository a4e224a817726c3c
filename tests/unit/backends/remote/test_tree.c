#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"
#include "tests/lib/tree_fixture.h"

static void test_filled_at_once(void **state)
{
	struct remote_tree_stats stats;
	struct stat st;

	(void)state;
	at_machine("mkdir -p a/b; echo one >a/f; echo two >a/b/g; : >empty; chmod 755 a/f;"
	           "ln -s f a/link; ln -s '%s/a/f' absolute; mkfifo pipe; touch -d @1000.5 a/f",
	           tf.link.tree);
	refresh(true);
	assert_int_equal(tf.link.calls, 1);
	assert_int_equal(count_names(""), 4);
	expect_file("a/f", "one\n");
	expect_file("a/b/g", "two\n");
	expect_file("empty", "");
	assert_int_equal(tf.link.calls, 1);
	assert_int_equal(fstatat(tf.root, "a/f", &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 0755);
	assert_int_equal(sbx_timespec_ns(&st.st_mtim), INT64_C(1000500000000));
	assert_int_equal(fstatat(tf.root, "absolute", &st, 0), 0);
	assert_int_equal(fstatat(tf.root, "pipe", &st, 0), 0);
	assert_true(S_ISFIFO(st.st_mode));
	remote_tree_stats(tf.tree, &stats);
	assert_int_equal(stats.files, 3);
	assert_int_equal(stats.here, 3);
	assert_int_equal(stats.bytes, 8);
}

static void test_names_then_data(void **state)
{
	struct stat st;

	(void)state;
	at_machine("mkdir -p a/b/c/d/e; echo deep >a/b/c/d/e/f; echo hello >top");
	assert_false(is_here("", SBX_NEED_NAMES));
	assert_int_equal(wait_for("top", SBX_NEED_ATTR), 0);
	assert_int_equal(fstatat(tf.root, "top", &st, 0), 0);
	assert_int_equal(st.st_size, 6);
	assert_false(is_here("top", SBX_NEED_DATA));
	expect_file("top", "hello\n");
	expect_file("a/b/c/d/e/f", "deep\n");
}

static void test_whole_names_of_any_bytes(void **state)
{
	(void)state;
	at_machine("printf 1 >'a b'; printf 2 >\"$(printf 'n\\nl')\"; printf 3 >./-x; mkdir "
	           "\"$(printf 'd\\nd')\";"
	           "printf 4 >\"$(printf 'd\\nd')/it's\"; printf 5 >\"$(printf '\\377\\376')\"; "
	           "printf 6 >'$(x)`y`'");
	expect_file("a b", "1");
	expect_file("n\nl", "2");
	expect_file("-x", "3");
	expect_file("d\nd/it's", "4");
	expect_file("\377\376", "5");
	expect_file("$(x)`y`", "6");
	assert_int_equal(count_names(""), 6);
}

static void test_git_is_hidden(void **state)
{
	(void)state;
	at_machine("mkdir -p .git/objects sub/.git x; echo ref >.git/HEAD; echo gitdir >x/.git; "
	           "echo f >sub/f");
	refresh(true);
	assert_int_equal(count_names(""), 2);
	assert_int_equal(count_names("sub"), 1);
	assert_int_equal(count_names("x"), 0);
	/* One of this side is left alone. */
	assert_int_equal(mkdirat(tf.root, ".git", 0700), 0);
	at_machine("echo new >g");
	take_changes();
	expect_file("g", "new\n");
	assert_true(ino_of(".git") != 0);
}

static void test_chunks(void **state)
{
	unsigned calls;

	(void)state;
	at_machine("head -c 20000001 /dev/urandom >big");
	assert_int_equal(wait_for_range("big", 5 << 20, 4096), 0);
	assert_true(remote_tree_here(tf.tree, ino_of("big"), SBX_NEED_DATA, 5 << 20, 4096));
	assert_false(remote_tree_here(tf.tree, ino_of("big"), SBX_NEED_DATA, 4 << 20, 4096));
	assert_int_equal(wait_for_range("big", 20000000, 4096), 0);
	assert_false(is_here("big", SBX_NEED_DATA));
	calls = tf.link.calls;
	assert_int_equal(wait_for("big", SBX_NEED_DATA), 0);
	assert_true(tf.link.calls - calls <= 4);
	expect_same("big");
}

static void test_end_of_what_is_cut_meanwhile(void **state)
{
	(void)state;
	at_machine("head -c 12000000 /dev/urandom >log");
	refresh(false);
	/* As logrotate does by copytruncate. */
	at_machine("head -c 9500000 /dev/urandom >log.1; cat log.1 >log");
	assert_int_equal(wait_for_range("log", 11 << 20, 4096), 0);
	expect_same("log");
}

static void test_siblings_come_along(void **state)
{
	(void)state;
	at_machine("mkdir d; i=0; while [ $i -lt 100 ]; do echo text $i >d/$i; i=$((i+1)); done; "
	           "head -c 3000000 /dev/zero >d/large");
	refresh(false);
	tf.link.calls = 0;
	expect_file("d/50", "text 50\n");
	for (int i = 0; i < 500 && !is_here("d/49", SBX_NEED_DATA); i++)
		usleep(10000);
	for (int i = 0; i < 100; i++) {
		char path[16], text[16];

		snprintf(path, sizeof(path), "d/%d", i);
		snprintf(text, sizeof(text), "text %d\n", i);
		expect_file(path, text);
	}
	assert_false(is_here("d/large", SBX_NEED_DATA));
	assert_int_equal(tf.link.calls, 2);
}

static void test_many_files_quickly(void **state)
{
	uint64_t begun;
	unsigned ms;

	(void)state;
	at_machine("i=0; while [ $i -lt 20 ]; do mkdir d$i; j=0; while [ $j -lt 100 ]; do echo $i "
	           "$j >d$i/$j; j=$((j+1)); done; i=$((i+1)); done");
	begun = sbx_now_ms();
	refresh(true);
	for (int i = 0; i < 20; i++)
		for (int j = 0; j < 100; j++) {
			char path[16], text[16];

			snprintf(path, sizeof(path), "d%d/%d", i, j);
			snprintf(text, sizeof(text), "%d %d\n", i, j);
			expect_file(path, text);
		}
	ms = (unsigned)(sbx_now_ms() - begun);
	print_message("# 2000 files in %u ms, %u requests\n", ms, tf.link.calls);
	assert_true(tf.link.calls <= 3);
}

static void test_changes(void **state)
{
	char text[8];

	(void)state;
	at_machine("mkdir -p a/b gone/x; echo 1 >a/f; echo 2 >a/b/g; echo 3 >gone/x/h; echo 4 "
	           ">kept; ln -s a l; echo 5 >turns; mkdir into; echo 6 >into/f");
	refresh(true);
	assert_false(take_changes());
	at_machine("echo changed >a/f; rm -r gone; mkdir -p new/deep; echo n >new/deep/n; rm "
	           "turns; mkdir turns; echo t >turns/t;"
	           "rm -r into; echo file >into; ln -sfn kept l; chmod 600 kept; mv a/b a/c");
	tf.link.calls = 0;
	assert_true(take_changes());
	assert_int_equal(tf.link.calls, 1);
	expect_gone("gone");
	expect_gone("a/b");
	assert_int_equal(count_names(""), 6);
	assert_int_equal(count_names("new"), 1);
	assert_int_equal(count_names("new/deep"), 1);
	assert_int_equal(count_names("turns"), 1);
	/* For names no more was asked. */
	assert_int_equal(tf.link.calls, 1);
	expect_file("a/f", "changed\n");
	expect_file("a/c/g", "2\n");
	expect_file("new/deep/n", "n\n");
	expect_file("turns/t", "t\n");
	expect_file("into", "file\n");
	expect_file("kept", "4\n");
	assert_true(readlinkat(tf.root, "l", text, sizeof(text)) == 4);
}

/* ---- who waits ---- */

/* Someone who waits, and does not do anything else meanwhile. */
struct waiter {
	struct sbx_want w;
	atomic_int code; /* -1: not yet */
	char text[1024];
};

static void waiter_done(struct sbx_want *w, int code, const struct sbx_error *err)
{
	struct waiter *e = w->data;

	snprintf(e->text, sizeof(e->text), "%s", err->text);
	e->code = code;
}

static void begin_waiting(struct waiter *e, const char *path, enum sbx_need need)
{
	*e = (struct waiter){.w = {.need = need,
	                           .path = path,
	                           .ino = ino_of(path),
	                           .done = waiter_done,
	                           .data = e},
	                     .code = -1};
	remote_tree_want(tf.tree, &e->w);
}

static int end_waiting(struct waiter *e)
{
	while (e->code < 0)
		usleep(1000);
	return e->code;
}

static void unwant(void *data)
{
	remote_tree_unwant(tf.tree, data);
}

static void test_many_wait_for_one_request(void **state)
{
	static struct waiter e[100];
	char path[100][8];

	(void)state;
	at_machine("i=0; while [ $i -lt 50 ]; do mkdir -p d$i/a/b/c; echo $i >d$i/f; i=$((i+1)); "
	           "done; head -c 1500000 /dev/zero >big");
	assert_int_equal(count_names(""), 51);
	tf.link.held = true;
	tf.link.calls = 0;
	for (int i = 0; i < 50; i++) {
		snprintf(path[i], sizeof(path[i]), "d%d/a/b", i);
		assert_int_equal(wait_for("d1", SBX_NEED_NAMES), 0);
		begin_waiting(&e[i], path[i], SBX_NEED_NAMES);
	}
	for (int i = 50; i < 100; i++)
		begin_waiting(&e[i], "big", SBX_NEED_DATA);
	usleep(50000);
	tf.link.held = false;
	for (int i = 0; i < 100; i++)
		assert_int_equal(end_waiting(&e[i]), 0);
	assert_true(tf.link.calls <= 4);
}

static void test_nobody_waits_any_more(void **state)
{
	struct waiter e;

	(void)state;
	tf.link.held = true;
	begin_waiting(&e, "", SBX_NEED_NAMES);
	usleep(20000);
	sbx_loop_post(tf.loop, unwant, &e.w);
	assert_int_equal(end_waiting(&e), EINTR);
	tf.link.held = false;
}

static void test_failure_is_remembered(void **state)
{
	struct waiter e;

	(void)state;
	tf.tree->times.failed_ms = 1000;
	tf.link.fail = ENETUNREACH;
	begin_waiting(&e, "", SBX_NEED_NAMES);
	assert_int_equal(end_waiting(&e), ENETUNREACH);
	assert_string_equal(e.text, "played: Network is unreachable");
	assert_int_equal(tf.link.calls, 1);
	tf.link.fail = 0;
	begin_waiting(&e, "", SBX_NEED_NAMES);
	assert_int_equal(end_waiting(&e), ENETUNREACH);
	assert_string_equal(e.text, "played: Network is unreachable");
	assert_int_equal(tf.link.calls, 1);
	usleep(1000000);
	assert_int_equal(wait_for("", SBX_NEED_NAMES), 0);
}

static void test_deadlines(void **state)
{
	struct waiter names, data;

	(void)state;
	at_machine("echo f >f; mkdir d");
	refresh(false);
	pthread_mutex_lock(&tf.tree->lock);
	remote_dir_find(tf.tree, "d")->dir->listed = false;
	pthread_mutex_unlock(&tf.tree->lock);
	tf.tree->times.names_ms = 100;
	tf.tree->times.data_ms = 1000;
	tf.link.held = true;
	begin_waiting(&names, "d", SBX_NEED_NAMES);
	begin_waiting(&data, "f", SBX_NEED_DATA);
	assert_int_equal(end_waiting(&names), ETIMEDOUT);
	assert_int_equal(data.code, -1);
	assert_int_equal(end_waiting(&data), ETIMEDOUT);
	tf.link.held = false;
}

static void test_large_files_have_more_time(void **state)
{
	struct waiter small, large;

	(void)state;
	at_machine("mkdir a b; echo f >a/f; head -c 3000000 /dev/zero >b/large");
	refresh(false);
	/* The one ends before the answer comes; the other is still waited for. */
	tf.tree->times.data_ms = 100;
	tf.link.held = true;
	begin_waiting(&small, "a/f", SBX_NEED_DATA);
	begin_waiting(&large, "b/large", SBX_NEED_DATA);
	assert_int_equal(end_waiting(&small), ETIMEDOUT);
	tf.link.held = false;
	assert_int_equal(end_waiting(&large), 0);
}

static void test_request_has_time_for_its_bytes(void **state)
{
	unsigned little;

	(void)state;
	at_machine("mkdir a b; echo f >a/f; head -c 3000000 /dev/zero >b/large");
	refresh(false);
	expect_file("a/f", "f\n");
	little = tf.link.deadline_ms;
	assert_int_equal(little, tf.tree->times.data_ms / 2);
	assert_int_equal(wait_for("b/large", SBX_NEED_DATA), 0);
	assert_true(tf.link.deadline_ms > little);
}

/* As where the listing of all comes in time, and contents with it do not. */
static char *too_slow_to_fill(struct remote_link *link, const char *body)
{
	(void)link;
	return strstr(body, "r_gather") ? reply_of("F - 110 0 0 %\n.\n", "too slow") : NULL;
}

static void test_slow_line_is_not_filled(void **state)
{
	(void)state;
	at_machine("echo f >f");
	tf.link.answer = too_slow_to_fill;
	refresh(true);
	tf.link.answer = NULL;
	assert_int_equal(count_names(""), 1);
	expect_file("f", "f\n");
}

static void test_all_end_when_it_is_gone(void **state)
{
	struct waiter a, b;

	(void)state;
	at_machine("echo f >f; echo here >here");
	refresh(false);
	expect_file("here", "here\n");
	for (int i = 0; i < 200 && !is_here("f", SBX_NEED_DATA); i++)
		usleep(10000);
	at_machine("echo g >g");
	take_changes();
	tf.link.held = true;
	begin_waiting(&a, "g", SBX_NEED_DATA);
	usleep(20000);
	tree_fail(ESTALE, "the machine is gone");
	assert_int_equal(end_waiting(&a), ESTALE);
	assert_string_equal(a.text, "the machine is gone");
	begin_waiting(&b, "g", SBX_NEED_DATA);
	assert_int_equal(end_waiting(&b), ESTALE);
	expect_file("here", "here\n");
	tf.link.held = false;
}

static void test_waits_for_the_machine(void **state)
{
	struct waiter e;

	(void)state;
	tree_close();
	tree_open();
	at_machine("echo f >f");
	begin_waiting(&e, "", SBX_NEED_NAMES);
	usleep(30000);
	assert_int_equal(e.code, -1);
	tree_connect();
	assert_int_equal(end_waiting(&e), 0);
	expect_file("f", "f\n");
}

/* ---- what changes there ---- */

static void test_new_while_commands_run(void **state)
{
	static struct waiter e[20];

	(void)state;
	at_machine("echo 1 >f");
	refresh(true);
	tf.tree->times.fresh_ms = 100;
	tf.link.calls = 0;
	tf.altered = 0; /* the root got its mode */
	assert_true(is_here("f", SBX_NEED_ATTR));
	remote_tree_busy(tf.tree, true);
	usleep(110000);
	assert_false(is_here("f", SBX_NEED_ATTR));
	assert_false(is_here("", SBX_NEED_NAMES));
	at_machine("echo changed >f");
	tf.link.held = true;
	for (int i = 0; i < 20; i++)
		begin_waiting(&e[i], i % 2 ? "f" : "", i % 2 ? SBX_NEED_ATTR : SBX_NEED_NAMES);
	usleep(20000);
	tf.link.held = false;
	for (int i = 0; i < 20; i++)
		assert_int_equal(end_waiting(&e[i]), 0);
	assert_int_equal(tf.link.calls, 1);
	assert_int_equal(tf.altered, 1);
	remote_tree_busy(tf.tree, false);
	expect_file("f", "changed\n");
	tf.link.calls = 0;
	expect_file("f", "changed\n");
	assert_int_equal(tf.link.calls, 0);
}

/* Who waited would be told of nothing but yet another question. */
static void test_taken_over_for_longer_than_it_is_new(void **state)
{
	struct waiter e;

	(void)state;
	at_machine("echo 1 >f");
	refresh(true);
	tf.tree->times.fresh_ms = 500;
	remote_tree_busy(tf.tree, true);
	usleep(510000);
	at_machine("echo changed >f");
	tf.link.calls = 0;
	tf.link.held = true;
	begin_waiting(&e, "f", SBX_NEED_ATTR);
	pthread_rwlock_rdlock(&tf.turn);
	tf.link.held = false;
	while (!tf.link.calls || tf.link.running)
		usleep(1000);
	usleep(600000);
	pthread_rwlock_unlock(&tf.turn);
	assert_int_equal(end_waiting(&e), 0);
	assert_int_equal(tf.link.calls, 1);
	remote_tree_busy(tf.tree, false);
}

static void test_open_file_follows(void **state)
{
	char text[8] = "";
	int fd;

	(void)state;
	at_machine("echo old >f");
	refresh(true);
	fd = openat(tf.root, "f", O_RDONLY);
	at_machine("echo newer >f");
	take_changes();
	assert_int_equal(tf.replaced, 1);
	/* Who reads it goes on reading the old. */
	assert_int_equal(read(fd, text, sizeof(text)), 4);
	assert_string_equal(text, "old\n");
	close(fd);
	expect_file("f", "newer\n");
	/* Nobody has seen anything of a file that is absent. */
	at_machine("echo again >f");
	take_changes();
	assert_int_equal(tf.replaced, 2);
	at_machine("echo and again >f");
	take_changes();
	assert_int_equal(tf.replaced, 2);
	expect_file("f", "and again\n");
}

/* FLAG as in a manifest, of the file PATH as it is there, but for its inode. */
static void take_with_inode(char flag, const char *path, uint64_t ino)
{
	char record[4200];
	struct stat st;

	assert_int_equal(stat(scratch_path("tree/f"), &st), 0);
	snprintf(record, sizeof(record), "%cf 644 %lld %lld.%09ld,%lld.%09ld %llu 1 %s||", flag,
	         (long long)st.st_size, (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec,
	         (long long)st.st_ctim.tv_sec, st.st_ctim.tv_nsec, (unsigned long long)ino, path);
	assert_int_equal(take_records((uint64_t)sbx_real_ns(), record), 0);
}

static void give_the_time_of_the_host(void)
{
	struct timespec times[2];
	struct stat st;

	assert_int_equal(fstatat(tf.root, "f", &st, 0), 0);
	times[0] = times[1] = st.st_mtim;
	assert_int_equal(utimensat(AT_FDCWD, scratch_path("tree/f"), times, 0), 0);
}

/* It is the same file all the same: who writes to it goes on doing so. */
static void test_another_inode_of_the_same_times(void **state)
{
	uint64_t ino;

	(void)state;
	tree_close();
	tf.renumbers = true;
	tree_open();
	tree_connect();
	at_machine("echo one >f");
	refresh(true);
	expect_file("f", "one\n");
	ino = ino_of("f");
	take_with_inode('-', "f", 1);
	assert_int_equal(ino_of("f"), ino);
	host_writes("f", "two");
	host_is_sent();
	at_machine("printf two >f");
	give_the_time_of_the_host();
	take_with_inode('=', "f", 2);
	assert_int_equal(ino_of("f"), ino);
	take_with_inode('-', "f", 3);
	assert_int_equal(ino_of("f"), ino);
	assert_int_equal(tf.replaced, 0);
	expect_file("f", "two");
}

/* It is told of again where the first answer was lost, and a command has replaced it by then. */
static void test_what_came_before_another(void **state)
{
	uint64_t ino;

	(void)state;
	at_machine("echo one >f");
	refresh(true);
	expect_file("f", "one\n");
	host_writes("f", "two");
	host_is_sent();
	host_sent_file("f");
	ino = ino_of("f");
	/* What it does not know as its own tells it nothing. */
	at_machine("echo another >f");
	take_with_inode('~', "f", 2);
	at_machine("printf 222 >f");
	take_with_inode('~', "f", 2);
	assert_int_equal(ino_of("f"), ino);
	expect_file("f", "two");
	at_machine("printf two >f");
	give_the_time_of_the_host();
	take_with_inode('~', "f", 2);
	at_machine("echo another >g; mv g f");
	assert_true(take_changes());
	assert_true(ino_of("f") != ino);
	assert_int_equal(tf.replaced, 0);
	expect_file("f", "another\n");
	/* Newer is known by now. */
	ino = ino_of("f");
	at_machine("printf two >f");
	take_with_inode('~', "f", 2);
	assert_int_equal(ino_of("f"), ino);
	expect_file("f", "another\n");
	take_with_inode('~', "none", 2);
	expect_gone("none");
}

static void test_all_inodes_are_new(void **state)
{
	uint64_t f, g;

	(void)state;
	at_machine("echo one >f; echo two >g");
	refresh(true);
	expect_file("f", "one\n");
	expect_file("g", "two\n");
	f = ino_of("f");
	g = ino_of("g");
	at_machine("cp -p f t; mv t f; cp -p g t; mv t g; : >../room/renumbered");
	/* What comes behind that is told by its ctime alone. */
	at_machine("touch -r g t; echo TWO >g; touch -r t g; rm t");
	take_changes();
	assert_int_equal(ino_of("f"), f);
	assert_true(ino_of("g") != g);
	expect_file("g", "TWO\n");
	/* It is said once. */
	at_machine("cp -p f t; mv t f");
	take_changes();
	assert_true(ino_of("f") != f);
	expect_file("f", "one\n");
}

static void test_other_contents_of_the_same_time(void **state)
{
	(void)state;
	at_machine("echo one >f; touch -d @1000 f");
	refresh(true);
	expect_file("f", "one\n");
	at_machine("echo two >f; touch -d @1000 f");
	assert_true(take_changes());
	expect_file("f", "two\n");
	/* Neither a command's mode nor the host's says that the contents are the same. */
	at_machine("echo two >f; chmod 644 f; touch -d @1000 f");
	host_changes_mode("f", 0600);
	at_machine("echo ten >f; chmod 600 f; touch -d @1000 f");
	host_is_sent();
	assert_true(take_changes());
	expect_file("f", "ten\n");
	at_machine("echo six >f; chmod 755 f; touch -d @1000 f");
	assert_true(take_changes());
	expect_file("f", "six\n");
}

static void test_what_the_host_does_is_no_reason_to_ask(void **state)
{
	unsigned calls;
	uint64_t ino;

	(void)state;
	at_machine("echo one >f; touch -d @1000 f");
	refresh(true);
	expect_file("f", "one\n");
	ino = ino_of("f");
	host_changes_mode("f", 0600);
	at_machine("chmod 600 f");
	host_is_sent();
	take_sent("f");
	calls = tf.link.calls;
	take_changes();
	expect_file("f", "one\n");
	assert_int_equal(ino_of("f"), ino);
	assert_int_equal(tf.link.calls, calls + 1);
	at_machine("echo two >f; touch -d @1000 f");
	assert_true(take_changes());
	expect_file("f", "two\n");
}

/* It is asked for by a name that another file has by then. */
static void test_who_asks_by_an_old_name_asks_again(void **state)
{
	struct waiter e = {.w = {.need = SBX_NEED_DATA, .path = "f", .done = waiter_done},
	                   .code = -1};

	(void)state;
	at_machine("echo one >f");
	refresh(false);
	host_links("f", "g");
	at_machine("ln f g");
	host_is_sent();
	at_machine("rm f; echo another >f");
	take_changes();
	assert_int_not_equal(ino_of("f"), ino_of("g"));
	e.w.ino = ino_of("g");
	e.w.data = &e;
	remote_tree_want(tf.tree, &e.w);
	assert_int_equal(end_waiting(&e), 0);
	/* The name that is left was found meanwhile. */
	e.code = -1;
	remote_tree_want(tf.tree, &e.w);
	assert_int_equal(end_waiting(&e), 0);
	assert_true(is_here("g", SBX_NEED_DATA));
	expect_file("g", "one\n");
}

/* HERE: the contents are. */
static void names_become_another(bool here)
{
	uint64_t ino;

	at_machine("mkdir a b; echo one >a/f");
	refresh(here);
	host_links("a/f", "b/g");
	at_machine("ln a/f b/g");
	host_is_sent();
	ino = ino_of("a/f");
	at_machine("cp -p a/f t; ln t u; mv t a/f; mv u b/g");
	assert_true(take_changes());
	assert_int_not_equal(ino_of("a/f"), ino);
	assert_int_equal(ino_of("a/f"), ino_of("b/g"));
	expect_file("b/g", "one\n");
}

static void test_names_of_one_file_become_another(void **state)
{
	(void)state;
	names_become_another(true);
}

static void test_absent_names_of_one_file_become_another(void **state)
{
	(void)state;
	names_become_another(false);
}

static void test_names_of_one_file_stay_one(void **state)
{
	(void)state;
	at_machine("mkdir a b; echo one >a/f; ln a/f b/g");
	refresh(true);
	host_removes("b/g");
	host_links("a/f", "b/g");
	host_is_sent();
	take_sent("a/f");
	assert_int_equal(ino_of("a/f"), ino_of("b/g"));
	at_machine("echo other >a/f");
	assert_true(take_changes());
	expect_file("a/f", "other\n");
	assert_int_equal(ino_of("a/f"), ino_of("b/g"));
	at_machine("echo longer >a/f");
	take_sent("a/f");
	assert_int_equal(ino_of("a/f"), ino_of("b/g"));
	expect_file("b/g", "longer\n");
	at_machine("rm b/g; echo third >b/g");
	assert_true(take_changes());
	expect_file("a/f", "longer\n");
	expect_file("b/g", "third\n");
}

static void test_mode_is_changed(void **state)
{
	struct stat st;
	uint64_t ino;

	(void)state;
	at_machine("echo f >f; mkdir d");
	refresh(true);
	ino = ino_of("d");
	at_machine("chmod 755 f; chmod 500 d");
	assert_true(take_changes());
	assert_int_equal(ino_of("d"), ino);
	assert_int_equal(fstatat(tf.root, "f", &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 0755);
	assert_int_equal(fstatat(tf.root, "d", &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 0500);
	expect_file("f", "f\n");
}

/* The change was told of the one name, and an older answer tells of the other. */
static void test_mode_of_a_file_with_two_names(void **state)
{
	char record[200];
	struct stat there, st;

	(void)state;
	at_machine("echo f >f; ln f g; chmod 644 f");
	refresh(true);
	expect_file("f", "f\n");
	host_removes("g");
	assert_int_equal(linkat(tf.root, "f", tf.root, "g", 0), 0);
	host_is_sent();
	assert_int_equal(stat(scratch_path("tree/f"), &there), 0);
	host_changes_mode("f", 0755);
	snprintf(record, sizeof(record), "-f 644 %lld %lld.%09ld %llu 2 g||",
	         (long long)there.st_size, (long long)there.st_mtim.tv_sec, there.st_mtim.tv_nsec,
	         (unsigned long long)there.st_ino);
	assert_int_equal(take_records((uint64_t)sbx_real_ns(), record), 0);
	assert_int_equal(fstatat(tf.root, "g", &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 0755);
}

static void test_directory_in_place_of_another(void **state)
{
	(void)state;
	at_machine("mkdir -p build/sub/deep other/sub/deep; echo 1 >build/sub/f; echo 2 "
	           ">build/sub/deep/g;"
	           "echo 3 >other/sub/f; echo 4 >other/sub/deep/g; echo 5 >other/sub/h");
	sleep(2);
	refresh(true);
	at_machine("rm -r build; mv other build");
	assert_true(take_changes());
	expect_file("build/sub/f", "3\n");
	expect_file("build/sub/deep/g", "4\n");
	assert_int_equal(count_names("build/sub"), 3);
	expect_gone("other");
}

/* The command that found it there was the first that did. */
static void test_directory_in_place_of_the_hosts(void **state)
{
	(void)state;
	at_machine("mkdir -p other/sub/deep; echo 1 >other/sub/f; echo 2 >other/sub/deep/g");
	sleep(2);
	refresh(true);
	host_makes_dir("d");
	host_makes_dir("d/sub");
	host_makes_dir("d/sub/deep");
	host_makes_dir("kept");
	host_makes_dir("kept/sub");
	host_is_sent();
	at_machine("mkdir -p made/sub/deep kept/sub; mv other d");
	assert_true(take_changes());
	expect_file("d/sub/f", "1\n");
	expect_file("d/sub/deep/g", "2\n");
	assert_int_equal(count_names("d/sub"), 2);
	assert_true(is_here("kept/sub", SBX_NEED_NAMES));
}

/* By the name that the host has given it the machine knows no file before it is told of that. */
static void test_what_waits_for_the_host(void **state)
{
	struct waiter e;

	(void)state;
	at_machine("mkdir d; echo 1 >d/f; echo 2 >g");
	refresh(false);
	assert_int_equal(wait_for("g", SBX_NEED_DATA), 0);
	host_moves("d", "e");
	tf.awaited = 0;
	begin_waiting(&e, "e/f", SBX_NEED_DATA);
	while (!tf.awaited)
		usleep(1000);
	assert_int_equal(e.code, -1);
	at_machine("mv d e");
	host_is_sent();
	assert_int_equal(end_waiting(&e), 0);
	expect_file("e/f", "1\n");
}

static void test_host_wins(void **state)
{
	(void)state;
	at_machine("mkdir d e; echo 1 >d/f; echo 2 >d/g; echo 3 >d/h; echo 4 >e/f; echo 5 >moved");
	refresh(true);
	host_writes("d/f", "mine");
	host_removes("d/h");
	host_writes("d/made", "made");
	host_moves("moved", "e/moved");
	at_machine("echo theirs >d/f; echo theirs >d/h; rm -r e; echo theirs >moved; echo theirs "
	           ">d/g; rm d/g");
	take_changes();
	expect_file("d/f", "mine");
	expect_file("d/made", "made");
	expect_file("e/moved", "5\n");
	expect_gone("d/g");
	expect_gone("d/h");
	expect_gone("moved");
	/* What was passed over is told again once the machine knows. */
	at_machine("echo mine >d/f; rm d/h; echo made >d/made; mkdir e; mv moved e/moved");
	host_is_sent();
	host_sent_file("d/f");
	host_sent_file("d/made");
	take_changes();
	take_changes();
	expect_file("d/f", "mine\n");
	expect_file("d/made", "made\n");
	expect_file("e/moved", "theirs\n");
	assert_int_equal(count_names(""), 2);
	assert_int_equal(count_names("d"), 2);
	assert_int_equal(count_names("e"), 1);
}

static void test_dirty_beats_removal_of_its_directory(void **state)
{
	(void)state;
	at_machine("mkdir -p d/e/f; echo 1 >d/e/x; echo 2 >d/e/f/y; echo 3 >d/z");
	refresh(true);
	host_writes("d/e/x", "mine");
	at_machine("rm -r d");
	take_changes();
	expect_file("d/e/x", "mine");
	assert_int_equal(count_names("d"), 1);
	assert_int_equal(count_names("d/e"), 1);
	host_is_sent();
	/* It was refused there. */
	host_sent_file("d/e/x");
	at_machine("touch .");
	take_changes();
	take_changes();
	expect_gone("d");
}

/* d is not there any more but for d/f, which the host has changed; its names are not known. */
static void keep_dirty_in_what_is_gone(void)
{
	at_machine("mkdir d; echo 1 >d/f");
	refresh(true);
	host_writes("d/f", "mine");
	tree_close();
	at_machine("rm -r d");
	tree_open();
	remote_tree_dirty(tf.tree, "d/f", ino_of("d/f"));
	tree_connect();
	refresh(false);
	assert_false(is_here("d", SBX_NEED_NAMES));
	tf.tree->times.retry_ms = 20;
}

static void test_names_of_what_is_gone_are_waited_for(void **state)
{
	struct waiter e;

	(void)state;
	keep_dirty_in_what_is_gone();
	begin_waiting(&e, "d", SBX_NEED_NAMES);
	usleep(200000);
	assert_int_equal(e.code, -1);
	at_machine("mkdir d; echo 2 >d/g");
	assert_int_equal(end_waiting(&e), 0);
	assert_int_equal(count_names("d"), 2);
	expect_file("d/f", "mine");
}

/* Whether it asks for the names of a directory once more. */
static bool asks_again(void)
{
	struct remote_text body = {0};
	bool ret;

	remote_tree_ask(tf.tree, &body);
	ret = strstr(body.at, "r_list ") != NULL;
	remote_text_release(&body);
	return ret;
}

static void test_refused_does_not_keep_what_is_gone(void **state)
{
	(void)state;
	keep_dirty_in_what_is_gone();
	host_is_sent();
	host_sent_file("d/f");
	/* Nothing changes there any more, by which it would be told. */
	assert_true(asks_again());
	take_changes();
	expect_gone("d");
}

static void test_refused_is_told_again(void **state)
{
	(void)state;
	at_machine("mkdir -p a/b e g; echo 1 >a/b/f");
	/* What has changed within a second would be told without being asked for. */
	usleep(2100000);
	refresh(true);
	host_writes("new", "n");
	host_removes("e");
	host_moves("a/b/f", "g/f");
	host_is_sent();
	host_sent_file("new");
	take_changes();
	assert_true(ino_of("new") && ino_of("g/f"));
	remote_tree_refused(tf.tree, "new");
	remote_tree_refused(tf.tree, "e");
	remote_tree_refused(tf.tree, "a/b/f");
	remote_tree_refused(tf.tree, "g/f");
	take_changes();
	expect_gone("new");
	expect_gone("g/f");
	assert_int_equal(count_names("e"), 0);
	expect_file("a/b/f", "1\n");
}

/* The host's directory is as empty as it was made, and the machine's is not. In a large tree the
 * list of one directory has nothing of those in it. */
static void test_refused_is_listed_where_a_directory_is(void **state)
{
	(void)state;
	at_machine("echo 1 >b; mkdir large; cd large; seq 1001 | xargs touch");
	refresh(true);
	host_removes("b");
	at_machine("rm b; mkdir b; echo 2 >b/c");
	usleep(2100000);
	refresh(true);
	host_makes_dir("b");
	host_is_sent();
	take_changes();
	assert_int_equal(count_names("b"), 0);
	remote_tree_refused(tf.tree, "b");
	take_changes();
	expect_file("b/c", "2\n");
}

static void test_refused_in_what_is_not_known(void **state)
{
	(void)state;
	at_machine("echo 1 >f");
	refresh(true);
	remote_tree_refused(tf.tree, "none/at/all");
	assert_true(asks_again());
	refresh(true);
	assert_false(asks_again());
	remote_tree_refused(tf.tree, "/");
	remote_tree_refused(tf.tree, "");
	take_changes();
	expect_file("f", "1\n");
}

static void test_moved_directory_is_asked_for_where_it_is(void **state)
{
	struct waiter e;

	(void)state;
	at_machine("mkdir -p a/b/c/d; echo f >a/b/c/d/f; echo big >a/b/g");
	assert_int_equal(count_names("a"), 1);
	pthread_mutex_lock(&tf.tree->lock);
	remote_dir_find(tf.tree, "a/b")->dir->listed = false;
	pthread_mutex_unlock(&tf.tree->lock);
	tf.tree->times.retry_ms = 20;
	host_moves("a", "z");
	begin_waiting(&e, "z/b", SBX_NEED_NAMES);
	usleep(200000);
	assert_int_equal(e.code, -1);
	at_machine("mv a z");
	host_is_sent();
	assert_int_equal(end_waiting(&e), 0);
	expect_file("z/b/g", "big\n");
	expect_file("z/b/c/d/f", "f\n");
	at_machine("echo more >z/b/c/d/f; echo new >z/b/new");
	take_changes();
	take_changes();
	expect_file("z/b/c/d/f", "more\n");
	expect_file("z/b/new", "new\n");
}

/* As the machine does with what it is sent. */
static void give_our_time(const char *path)
{
	char there[4096];
	struct stat st;

	snprintf(there, sizeof(there), "%s/%s", tf.link.tree, path);
	assert_int_equal(fstatat(tf.root, path, &st, 0), 0);
	assert_int_equal(utimensat(AT_FDCWD, there, (struct timespec[]){st.st_atim, st.st_mtim}, 0),
	                 0);
}

static void test_what_was_sent_is_known(void **state)
{
	struct remote_version v;
	unsigned calls;
	uint64_t ino;

	(void)state;
	at_machine(":");
	refresh(true);
	host_writes("f", "mine");
	assert_int_equal(remote_tree_open_file(tf.tree, "g", ino_of("f")), -ESTALE);
	at_machine("printf mine >f");
	give_our_time("f");
	host_is_sent();
	host_sent_file("f");
	take_sent("f");
	calls = tf.link.calls;
	expect_file("f", "mine");
	assert_int_equal(tf.link.calls, calls);
	ino = ino_of("f");
	pthread_mutex_lock(&tf.tree->lock);
	v = remote_node_find(tf.tree, ino)->version;
	pthread_mutex_unlock(&tf.tree->lock);
	assert_true(v.ino != 0);
	assert_int_equal(v.size, 4);
	at_machine("printf mind >f");
	take_changes();
	expect_file("f", "mind");
}

/* ---- order ---- */

static off_t size_of(const char *path)
{
	struct stat st;

	assert_int_equal(fstatat(tf.root, path, &st, AT_SYMLINK_NOFOLLOW), 0);
	return st.st_size;
}

static mode_t mode_of(const char *path)
{
	struct stat st;

	assert_int_equal(fstatat(tf.root, path, &st, AT_SYMLINK_NOFOLLOW), 0);
	return st.st_mode & 07777;
}

static void test_newest_counts_in_any_order(void **state)
{
	(void)state;
	assert_int_equal(
	        take_records(100, "Ld 755 0 1 1 1 .||-f 644 5 1.5 2 1 f||-d 755 0 1 3 1 d||"), 0);
	assert_int_equal(count_names(""), 2);
	/* Older: f had other contents, x was still there, d was not yet. */
	assert_int_equal(
	        take_records(90, "Ld 755 0 1 1 1 .||-f 644 9 1.4 9 1 f||-f 644 5 1 4 1 x||"), 0);
	assert_int_equal(count_names(""), 2);
	assert_int_equal(size_of("f"), 5);
	assert_int_equal(take_records(110, "-f 644 7 1.6 2 1 f||"), 0);
	assert_int_equal(size_of("f"), 7);
	assert_int_equal(take_records(105, "Ld 755 0 1 1 1 .||"), 0);
	assert_int_equal(count_names(""), 1);
	assert_int_equal(size_of("f"), 7);
}

static void test_older_removal_of_a_directory(void **state)
{
	(void)state;
	assert_int_equal(take_records(100, "Ld 755 0 1 1 1 .||Ld 755 0 1 3 1 d||"), 0);
	assert_int_equal(take_records(110, "Ld 755 0 1 3 1 d||-d 755 0 1 4 1 d/e||"), 0);
	assert_int_equal(take_records(105, "?f 0 0 0 0 0 d/e||"), 0);
	assert_int_equal(count_names("d"), 1);
	assert_int_equal(take_records(107, "-f 644 0 1 5 1 d/e||"), 0);
	assert_int_equal(count_names("d"), 1);
	assert_int_equal(mode_of("d/e"), 0755);
	assert_int_equal(take_records(120, "?f 0 0 0 0 0 d/e||"), 0);
	assert_int_equal(count_names("d"), 0);
}

/* The older answer saw the directory elsewhere, and nothing where it was. */
static void test_older_removal_in_a_directory_that_has_come_back(void **state)
{
	(void)state;
	assert_int_equal(take_records(100, "Ld 755 0 1 1 1 .||Ld 755 0 1 3 1 d||Ld 755 0 1 4 1 "
	                                   "d/e||Ld 755 0 1 5 1 d/e/x||"),
	                 0);
	assert_int_equal(take_records(120, "-d 755 0 1 3 1 d||"), 0);
	assert_false(asks_again());
	assert_int_equal(take_records(110, "?f 0 0 0 0 0 d/e||?f 0 0 0 0 0 d/e/x||"), 0);
	assert_int_equal(count_names("d/e"), 1);
	assert_true(asks_again());
	/* Or another one of its name, in which there was one as well. */
	assert_int_equal(take_records(115, "Ld 755 0 1 6 1 d||Ld 755 0 1 7 1 d/e||-f 644 0 1 8 1 "
	                                   "d/e/t||"),
	                 0);
	assert_int_equal(count_names("d/e"), 1);
	assert_int_equal(mode_of("d/e/x"), 0755);
	assert_int_equal(take_records(130, "?f 0 0 0 0 0 d/e/x||"), 0);
	assert_int_equal(count_names("d/e"), 0);
}

/* That nothing has changed, to the question that was asked last. */
static void take_nothing_changed(uint64_t begun)
{
	char text[120];
	struct remote_reply reply;
	struct sbx_error err;
	bool any;

	snprintf(text, sizeof(text), "M %s %llu 0 0 \n.\n", tf.tree->asks->stamp,
	         (unsigned long long)begun);
	assert_int_equal(remote_reply_read(text, strlen(text), &reply, &err), 0);
	assert_int_equal(remote_tree_take(tf.tree, &reply, 0, true, &any, &err), 0);
	remote_reply_release(&reply);
}

static void test_listing_older_than_the_last_answer(void **state)
{
	(void)state;
	assert_int_equal(take_records(100, "Ld 755 0 1 1 1 .||-d 755 0 1 3 1 d||"), 0);
	assert_false(asks_again());
	/* The question was not for d, in which something may have changed since it was listed. */
	assert_int_equal(take_records(110, "Ld 755 0 1 3 1 d||"), 0);
	take_nothing_changed(130);
	assert_true(asks_again());
	assert_int_equal(take_records(120, "Ld 755 0 1 3 1 d||"), 0);
	assert_true(asks_again());
	assert_int_equal(take_records(140, "Ld 755 0 1 3 1 d||"), 0);
	assert_false(asks_again());
}

/* The directory d was listed behind the question that is answered now. */
static void let_lag(const char *records)
{
	assert_int_equal(take_records(100, "Ld 755 0 1 1 1 .||"), 0);
	assert_false(asks_again());
	assert_int_equal(take_records(110, records), 0);
	take_nothing_changed(130);
	assert_true(remote_tree_lags(tf.tree));
}

static bool is_listed(const char *dir)
{
	const struct remote_node *n;

	pthread_mutex_lock(&tf.tree->lock);
	n = remote_dir_find(tf.tree, dir);
	pthread_mutex_unlock(&tf.tree->lock);
	return n && n->dir->listed;
}

static void test_what_does_not_come_when_asked_again(void **state)
{
	(void)state;
	let_lag("Ld 755 0 1 1 1 .||Ld 755 0 1 3 1 d||");
	assert_true(asks_again());
	take_nothing_changed(150);
	assert_false(remote_tree_lags(tf.tree));
	assert_false(asks_again());
	assert_false(is_listed("d"));
	assert_int_equal(take_records(160, "Ld 755 0 1 3 1 d||"), 0);
	assert_true(is_listed("d"));
	assert_false(remote_tree_lags(tf.tree));
}

#define MANY_DIRS 500

/* Tells of many directories, and lists ALL of them, or those that are still listed. */
static void list_many(struct remote_text *to, bool all)
{
	char path[80];

	remote_text_add(to, "Ld 755 0 1 1 1 .||");
	for (int i = 0; i < MANY_DIRS; i++) {
		snprintf(path, sizeof(path), "a-directory-with-some-name-that-is-long-%d", i);
		remote_text_printf(to, "%cd 755 0 1 %d 1 %s||", all || is_listed(path) ? 'L' : '-',
		                   i + 10, path);
	}
}

/* More than are asked for again at once: who looks at the others asks for them. */
static void test_many_that_lag_at_once(void **state)
{
	struct remote_text all = {0}, listed = {0};

	(void)state;
	list_many(&all, true);
	let_lag(all.at);
	assert_true(asks_again());
	list_many(&listed, false);
	assert_int_equal(take_records(150, listed.at), 0);
	assert_false(remote_tree_lags(tf.tree));
	assert_false(asks_again());
	remote_text_release(&all);
	remote_text_release(&listed);
}

static void test_clock_that_is_set_back(void **state)
{
	(void)state;
	at_machine("echo 1 >f");
	refresh(true);
	pthread_mutex_lock(&tf.tree->lock);
	tf.tree->known_ns += INT64_C(3600000000000);
	tf.tree->top->told_ns += INT64_C(3600000000000);
	tf.tree->offset_ns = 0;
	pthread_mutex_unlock(&tf.tree->lock);
	at_machine("echo 2 >g; echo new >f");
	take_changes();
	expect_file("g", "2\n");
	expect_file("f", "new\n");
}

/* By a listing it is known before the next question, which the clock may have overtaken. */
static void test_clock_that_was_set_back_asks_for_all(void **state)
{
	(void)state;
	at_machine("echo 1 >f");
	refresh(true);
	expect_file("f", "1\n");
	at_machine("echo 2 >f; touch -d @$(($(date +%%s) + 3600)) ../room/s.*");
	pthread_mutex_lock(&tf.tree->lock);
	tf.tree->known_ns += INT64_C(3600000000000);
	pthread_mutex_unlock(&tf.tree->lock);
	take_changes();
	assert_false(is_here("", SBX_NEED_NAMES));
	expect_file("f", "2\n");
}

/* ---- room ---- */

static uint64_t clean_bytes(void)
{
	uint64_t n;

	pthread_mutex_lock(&tf.tree->lock);
	n = tf.tree->clean_bytes;
	pthread_mutex_unlock(&tf.tree->lock);
	return n;
}

static void test_oldest_is_evicted(void **state)
{
	char text[16] = "";
	struct stat st;
	int fd;

	(void)state;
	tree_close();
	tf.cache_mb = 4;
	tree_open();
	tree_connect();
	at_machine("for i in 1 2 3 4 5 6; do head -c 1500000 /dev/urandom >$i; done; chmod 640 1");
	refresh(false);
	host_writes("mine", "mine");
	assert_int_equal(wait_for("1", SBX_NEED_DATA), 0);
	fd = openat(tf.root, "1", O_RDONLY);
	assert_int_equal(wait_for("2", SBX_NEED_DATA), 0);
	assert_true(is_here("1", SBX_NEED_DATA));
	for (int i = 3; i <= 6; i++) {
		snprintf(text, sizeof(text), "%d", i);
		assert_int_equal(wait_for(text, SBX_NEED_DATA), 0);
		/* What could not be cleared yet is looked through again ten seconds later. */
		for (int j = 0; j < 3000 && clean_bytes() > 4 << 20; j++)
			usleep(10000);
	}
	assert_true(clean_bytes() <= 4 << 20);
	assert_false(is_here("1", SBX_NEED_DATA));
	assert_true(is_here("6", SBX_NEED_DATA));
	assert_true(is_here("mine", SBX_NEED_DATA));
	assert_true(tf.replaced >= 1);
	assert_int_equal(pread(fd, text, 4, 0), 4);
	assert_true(memcmp(text, "\0\0\0\0", 4) != 0);
	close(fd);
	assert_int_equal(fstatat(tf.root, "1", &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 0640);
	assert_int_equal(st.st_size, 1500000);
	assert_int_equal(wait_for("1", SBX_NEED_DATA), 0);
	expect_same("1");
}

/* ---- another daemon ---- */

static void test_restart_has_what_was_fetched(void **state)
{
	(void)state;
	at_machine("mkdir -p d/e; echo 1 >d/e/f; echo 2 >d/g; echo 3 >cut; echo 4 >mine; head -c "
	           "100 /dev/zero >absent");
	refresh(true);
	host_writes("mine", "dirty");
	tree_close();
	/* An operation that was never answered. */
	scratch_write(scratch_path("copy/tree/cut"), "xx");
	at_machine("echo five >d/g");
	tree_open();
	remote_tree_dirty(tf.tree, "mine", ino_of("mine"));
	expect_file("d/e/f", "1\n");
	expect_file("mine", "dirty");
	expect_file("d/g", "2\n");
	assert_int_equal(tf.link.calls, 1);
	tree_connect();
	refresh(false);
	expect_file("d/e/f", "1\n");
	assert_int_equal(tf.link.calls, 2);
	expect_file("d/g", "five\n");
	expect_file("cut", "3\n");
	expect_file("mine", "dirty");
}

static void test_restart_before_the_first_listing(void **state)
{
	(void)state;
	at_machine("mkdir d; echo 1 >d/f");
	assert_int_equal(wait_for("", SBX_NEED_NAMES), 0);
	tree_close();
	tree_open();
	tree_connect();
	expect_file("d/f", "1\n");
}

static void test_power_cut_leaves_no_holes(void **state)
{
	unsigned boot;

	(void)state;
	at_machine("echo 1 >f");
	refresh(true);
	tree_close();
	tree_open();
	boot = tf.tree->boot;
	tf.tree->boot = boot + 1;
	assert_int_equal(wait_for("", SBX_NEED_NAMES), 0);
	assert_false(is_here("f", SBX_NEED_DATA));
	tree_connect();
	expect_file("f", "1\n");
}

/* ---- what cannot be true ---- */

static void test_hostile_records(void **state)
{
	(void)state;
	scratch_mkdir(scratch_path("outside"));
	scratch_write(scratch_path("outside/f"), "outside");
	assert_int_equal(take_records(10, "Ld 755 0 1 1 1 .||-l 777 1 1 2 1 link|../../outside|"
	                                  "-d 755 0 1 3 1 dir||-f 644 1 1 9 1 f||"),
	                 0);
	take_records(
	        20, "Ld 755 0 1 1 1 .||-f 644 9 1 2 1 ../x||-f 644 9 1 2 1 /etc/x||"
	            "-f 644 9 1 2 1 dir/../../x||-f 644 9 1 2 1 a//b||-f 644 9 1 2 1 dir/.||"
	            "-l 777 1 1 2 1 link|../../outside|Ld 755 0 1 1 1 link||-f 644 9 1 2 1 link/f||"
	            "-f 644 9 1 2 1 f||-f 644 9 1 2 1 f/below||-f 644 9 1 2 1 f/deep/below||"
	            "-f 644 9 1 2 1 .git/config||-d 755 1 1 1 1 dir||-f 644 1 1 1 1 dir||"
	            "-f 644 4611686018427387903 1 5 1 huge||-f 644 9999999999999999999999 1 5 1 "
	            "more||"
	            "-b 644 9 1 2 1 device||-f 7777 0 1 77 1 suid||-s 644 0 1 8 1 sock||");
	scratch_expect(scratch_path("outside/f"), "outside");
	assert_int_equal(scratch_count(scratch_path("outside")), 1);
	assert_false(scratch_exists(scratch_path("copy/x")));
	assert_false(scratch_exists(scratch_path("copy/tree/device")));
	assert_true(count_names("") <= 6);
	assert_int_equal(mode_of("suid"), 0777);
	assert_int_equal(take_records(30, "garbage||"), EPROTO);
	assert_int_equal(take_records(30, "X f 644 1 1 1 1 a||"), EPROTO);
}

static void test_listing_that_was_cut(void **state)
{
	(void)state;
	assert_int_equal(take_records(10, "Ld 755 0 1 1 1 .||-f 644 1 1 2 1 a||-f 644 1 1 3 1 b||"),
	                 0);
	assert_int_equal(count_names(""), 2);
	assert_int_equal(take_records(20, "Ld 755 0 1 1 1 .||-f 644 1 1 2 1 a||-f 644 1 1"), 0);
	assert_int_equal(count_names(""), 2);
	assert_int_equal(take_records(20, "Ld 755 0 1 1 1 .||-f 644 1 1 2 1 a||!||"), 0);
	assert_int_equal(count_names(""), 2);
}

static char *answer_lies(struct remote_link *link, const char *body)
{
	(void)link;
	if (strncmp(body, "r_gather", 8) == 0)
		return strdup(".\n");
	if (strncmp(body, "r_read", 6) != 0)
		return NULL;
	/* Another file than was listed, of another length, at another place. */
	return reply_of("M 0 5 0 0 %\nD 0 1048576 0 0 AAAA\nD 0 1 0 0 AAAA\nD 0 0 0 0 AAAA\n"
	                "D 7 0 0 0 AAAA\nT - 0 0 0 AAAA\n.\n",
	                "-f 644 1000 1 4 1 f||");
}

static void test_contents_that_are_lies(void **state)
{
	struct waiter e;

	(void)state;
	at_machine("echo f >f");
	refresh(false);
	tf.tree->times.data_ms = 300;
	tf.tree->times.retry_ms = 20;
	tf.link.answer = answer_lies;
	begin_waiting(&e, "f", SBX_NEED_DATA);
	assert_int_equal(end_waiting(&e), ETIMEDOUT);
	assert_false(is_here("f", SBX_NEED_DATA));
	tf.link.answer = NULL;
	usleep(30000);
	tf.tree->times.data_ms = 60000;
	take_changes();
	expect_file("f", "f\n");
}

/* As if the limit were 5. */
static char *small_limit(struct remote_link *link, const char *body)
{
	_cleanup_free_ char *other = NULL;

	if (asprintf(&other, "r_all 5%s", strstr(body, " '")) < 0)
		return NULL;
	return remote_stub_run(link, other);
}

static void test_tree_too_large_to_be_listed(void **state)
{
	(void)state;
	at_machine("mkdir -p a/b/c; for i in 1 2 3 4 5 6 7 8; do echo $i >a/b/c/$i; done; echo top "
	           ">top");
	tf.link.answer = small_limit;
	refresh(false);
	tf.link.calls = 0;
	assert_int_equal(count_names("a"), 1);
	assert_int_equal(tf.link.calls, 0);
	tf.link.answer = NULL;
	expect_file("a/b/c/5", "5\n");
	expect_file("top", "top\n");
	at_machine("echo changed >a/b/c/5; rm a/b/c/6; echo new >a/b/c/9");
	take_changes();
	expect_file("a/b/c/5", "changed\n");
	assert_int_equal(count_names("a/b/c"), 8);
}

/* As the machine answers where ten names are too many for a listing of several directories. */
static char *few_at_once(struct remote_link *link, const char *body)
{
	_cleanup_free_ char *other = NULL;

	if (asprintf(&other, "r_list 10%s", strstr(body, " '")) < 0)
		return NULL;
	return remote_stub_run(link, other);
}

static void test_directories_too_large_to_be_listed_together(void **state)
{
	struct waiter e[6];
	char path[6][3];

	(void)state;
	at_machine("for i in 0 1 2 3 4 5; do mkdir d$i; touch d$i/a d$i/b d$i/c; done");
	refresh(false);
	pthread_mutex_lock(&tf.tree->lock);
	for (int i = 0; i < 6; i++) {
		snprintf(path[i], sizeof(path[i]), "d%d", i);
		remote_dir_find(tf.tree, path[i])->dir->listed = false;
	}
	pthread_mutex_unlock(&tf.tree->lock);
	tf.link.calls = 0;
	tf.link.answer = few_at_once;
	tf.link.held = true;
	/* Two are on their way while the others come to be asked for together. */
	for (unsigned i = 0; i < 6; i++) {
		begin_waiting(&e[i], path[i], SBX_NEED_NAMES);
		while (i < 2 && tf.link.calls <= i)
			usleep(1000);
	}
	tf.link.held = false;
	for (int i = 0; i < 6; i++)
		assert_int_equal(end_waiting(&e[i]), 0);
	/* The four in one, and then by halves. */
	assert_true(tf.link.calls <= 2 + 1 + 2);
	tf.link.answer = NULL;
}

/* As the machine answers of a directory that has more names than a listing may have. */
static char *answer_cut(struct remote_link *link, const char *body)
{
	(void)link;
	if (strncmp(body, "r_list", 6) != 0)
		return NULL;
	return reply_of("M - 5 0 0 %\n.\n",
	                "Ld 755 0 1 3 1 d||-f 644 1 1 4 1 d/f||-d 755 0 1 5 1 d/closed||!||");
}

static void test_directory_too_large_to_be_listed(void **state)
{
	struct waiter e;

	(void)state;
	at_machine("mkdir -p d/closed; echo f >d/f");
	refresh(false);
	pthread_mutex_lock(&tf.tree->lock);
	remote_dir_find(tf.tree, "d")->dir->listed = false;
	remote_dir_find(tf.tree, "d/closed")->dir->listed = false;
	pthread_mutex_unlock(&tf.tree->lock);
	tf.link.answer = answer_cut;
	begin_waiting(&e, "d", SBX_NEED_NAMES);
	assert_int_equal(end_waiting(&e), EFBIG);
	assert_non_null(strstr(e.text, "200000 names"));
	begin_waiting(&e, "d/closed", SBX_NEED_NAMES);
	assert_int_equal(end_waiting(&e), EACCES);
	tf.link.answer = NULL;
}

static void test_time_that_is_far_away(void **state)
{
	struct stat st;

	(void)state;
	at_machine("mkdir d; echo one >d/f; touch -d @9999999999.5 d/f; echo g >d/g");
	refresh(false);
	expect_file("d/f", "one\n");
	assert_int_equal(fstatat(tf.root, "d/f", &st, 0), 0);
	assert_true(st.st_mtim.tv_sec == SBX_SECONDS_MAX);
	/* A listing of all that is in the directory does not take it away. */
	at_machine("echo new >d/new");
	take_changes();
	assert_int_equal(count_names("d"), 3);
	expect_file("d/f", "one\n");
	tf.link.calls = 0;
	expect_file("d/f", "one\n");
	assert_int_equal(tf.link.calls, 0);
}

/* ---- what cannot be taken over ---- */

/* Takes REPLY over, and releases it; *ANY as remote_tree_take. 0 or an errno. */
static int take_reply(struct remote_reply *reply, bool *any)
{
	struct sbx_error err = SBX_ERROR_INIT;
	int r = remote_tree_take(tf.tree, reply, tf.sent, true, any, &err);

	assert_true(!r || err.text[0]);
	remote_reply_release(reply);
	return -r;
}

/* The same where no file can be opened any more. */
static int take_without_descriptors(struct remote_reply *reply, bool *any)
{
	const int lowest = dup(tf.root);
	struct rlimit limit, none;
	int r;

	assert_true(lowest >= 0);
	close(lowest);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	none = limit;
	none.rlim_cur = (rlim_t)lowest;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	r = take_reply(reply, any);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	return r;
}

static void test_failed_take_is_made_up_for(void **state)
{
	struct remote_reply reply = {0};
	bool any;

	(void)state;
	at_machine("mkdir -p a/b z; echo old >z/f; echo gone >a/b/g");
	refresh(true);
	expect_file("z/f", "old\n");
	for (unsigned i = 0; i < 2; i++) {
		at_machine("echo new >z/f; echo %u >z/g; rm -f a/b/g", i);
		ask_changes(&reply);
		assert_int_equal(take_without_descriptors(&reply, &any), EMFILE);
		assert_true(any);
		assert_false(is_here("z", SBX_NEED_NAMES));
	}
	assert_int_equal(tf.told, 1);
	expect_file("z/f", "new\n");
	expect_file("z/g", "1\n");
	expect_gone("a/b/g");
	/* It was well in between. */
	at_machine("echo newer >z/f");
	take_changes();
	expect_file("z/f", "newer\n");
	at_machine("echo newest >z/f");
	ask_changes(&reply);
	assert_int_equal(take_without_descriptors(&reply, &any), EMFILE);
	assert_int_equal(tf.told, 2);
	expect_file("z/f", "newest\n");
}

/* Takes over what has changed as one for whom the modes of his directories count. */
static void take_as_ordinary_user(void)
{
	const bool root = geteuid() == 0;
	struct remote_reply reply = {0};
	bool any;
	int r;

	ask_changes(&reply);
	if (root) {
		at_machine("chown -R 65534:65534 '%s'", scratch_path("copy"));
		assert_int_equal(seteuid(65534), 0);
		prctl(PR_SET_DUMPABLE, 1);
	}
	r = take_reply(&reply, &any);
	if (root)
		assert_int_equal(seteuid(0), 0);
	assert_int_equal(r, 0);
}

static void close_dir(const char *path)
{
	host_changes_mode(path, 0);
	host_is_sent();
}

static void test_closed_directory_becomes_a_file(void **state)
{
	(void)state;
	at_machine("mkdir -p d/e gone/x z; echo old >z/f; echo x >d/e/x");
	refresh(true);
	close_dir("d/e");
	close_dir("d");
	close_dir("gone");
	at_machine("rm -r d gone; echo x >d; echo new >z/f");
	take_as_ordinary_user();
	expect_file("d", "x\n");
	expect_file("z/f", "new\n");
	expect_gone("gone");
}

/* From here on nothing is told that was so by now: a stamp is a second before its time. */
static void forget_the_last_second(void)
{
	at_machine("touch ../room/s.*");
}

static void test_changes_in_a_closed_directory(void **state)
{
	(void)state;
	at_machine("mkdir -p d/e; echo old >d/e/f; echo gone >d/e/g");
	refresh(true);
	expect_file("d/e/f", "old\n");
	forget_the_last_second();
	close_dir("d/e");
	close_dir("d");
	at_machine("echo new >d/e/f; rm d/e/g");
	take_as_ordinary_user();
	expect_file("d/e/f", "new\n");
	expect_gone("d/e/g");
}

static void test_changes_in_a_directory_that_is_being_closed(void **state)
{
	(void)state;
	at_machine("mkdir -p d/e; echo old >d/e/f");
	refresh(true);
	expect_file("d/e/f", "old\n");
	forget_the_last_second();
	host_changes_mode("d/e", 0);
	at_machine("echo new >d/e/f");
	take_as_ordinary_user();
	assert_int_equal(mode_of("d/e"), 0);
	host_is_sent();
	assert_true(remote_tree_lags(tf.tree));
	take_as_ordinary_user();
	expect_file("d/e/f", "new\n");
}

static void test_lost_answer_is_asked_for(void **state)
{
	struct remote_reply reply = {0};
	bool any;

	(void)state;
	at_machine("mkdir d; echo old >d/f");
	refresh(true);
	expect_file("d/f", "old\n");
	ask_changes(&reply);
	at_machine("echo new >d/f");
	remote_tree_distrust(tf.tree);
	assert_false(is_here("d", SBX_NEED_NAMES));
	assert_false(is_here("d/f", SBX_NEED_ATTR));
	/* That was asked before, so it says nothing of what was done then. */
	assert_int_equal(take_reply(&reply, &any), 0);
	assert_false(is_here("d", SBX_NEED_NAMES));
	tf.link.calls = 0;
	expect_file("d/f", "new\n");
	assert_int_equal(tf.link.by_op['c'], 1);
	/* What is here stays in the hands of the host when the machine is gone. */
	remote_tree_distrust(tf.tree);
	tree_fail(ESTALE, "the machine is gone");
	expect_file("d/f", "new\n");
}

static void test_no_answer_is_a_failure(void **state)
{
	struct remote_reply reply = {0};
	struct sbx_error err;
	bool any;

	(void)state;
	at_machine("echo old >f");
	refresh(true);
	assert_int_equal(remote_reply_read("I x 0 0 0 \n.\n", 14, &reply, &err), 0);
	at_machine("echo new >f");
	assert_int_equal(take_reply(&reply, &any), EPROTO);
	assert_false(is_here("", SBX_NEED_NAMES));
	expect_file("f", "new\n");
}

static void limit_nodes(size_t most)
{
	pthread_mutex_lock(&tf.tree->lock);
	tf.tree->nodes_most = most;
	pthread_mutex_unlock(&tf.tree->lock);
}

/* What the host makes is its own; and what the machine has changed is no more than it was. */
static void test_full_tree_goes_on(void **state)
{
	struct sbx_error err = SBX_ERROR_INIT;
	struct remote_reply reply = {0};
	bool any;
	int fd;

	(void)state;
	at_machine("echo old >f; mkdir d");
	refresh(true);
	limit_nodes(1);
	tf.tree->times.data_ms = 500;
	tf.link.calls = 0;
	host_writes("d/made", "mine");
	expect_file("d/made", "mine");
	fd = remote_tree_open_file(tf.tree, "d/made", ino_of("d/made"));
	assert_true(fd >= 0);
	close(fd);
	host_makes_dir("d/dir");
	assert_int_equal(count_names("d/dir"), 0);
	assert_int_equal(tf.link.calls, 0);
	tf.tree->times.data_ms = 60000;
	at_machine("echo new >f; mkdir d/dir; printf mine >d/made");
	host_sent_file("d/made");
	host_is_sent();
	take_changes();
	expect_file("f", "new\n");
	expect_file("d/made", "mine");
	at_machine("echo more >more");
	ask_changes(&reply);
	assert_int_equal(remote_tree_take(tf.tree, &reply, tf.sent, true, &any, &err), -ENOSPC);
	assert_non_null(strstr(err.text, "more than 1 files"));
	remote_reply_release(&reply);
	limit_nodes(REMOTE_NODES);
	expect_file("more", "more\n");
}

static void test_failed_listing_lags_as_before(void **state)
{
	(void)state;
	assert_int_equal(take_records(100, "Ld 755 0 1 1 1 .||Ld 755 0 1 3 1 d||"), 0);
	remote_tree_refused(tf.tree, "d/x");
	assert_true(remote_tree_lags(tf.tree));
	/* More than the copy may have. */
	limit_nodes(1);
	assert_true(take_records(110, "Ld 755 0 1 3 1 d||-f 644 0 1 9 1 d/new||") != 0);
	limit_nodes(REMOTE_NODES);
	assert_true(remote_tree_lags(tf.tree));
}

#define case_of(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        case_of(test_filled_at_once),
	        case_of(test_names_then_data),
	        case_of(test_whole_names_of_any_bytes),
	        case_of(test_git_is_hidden),
	        case_of(test_chunks),
	        case_of(test_end_of_what_is_cut_meanwhile),
	        case_of(test_siblings_come_along),
	        case_of(test_many_files_quickly),
	        case_of(test_changes),
	        case_of(test_many_wait_for_one_request),
	        case_of(test_nobody_waits_any_more),
	        case_of(test_failure_is_remembered),
	        case_of(test_deadlines),
	        case_of(test_large_files_have_more_time),
	        case_of(test_request_has_time_for_its_bytes),
	        case_of(test_slow_line_is_not_filled),
	        case_of(test_all_end_when_it_is_gone),
	        case_of(test_waits_for_the_machine),
	        case_of(test_new_while_commands_run),
	        case_of(test_taken_over_for_longer_than_it_is_new),
	        case_of(test_open_file_follows),
	        case_of(test_another_inode_of_the_same_times),
	        case_of(test_what_came_before_another),
	        case_of(test_all_inodes_are_new),
	        case_of(test_other_contents_of_the_same_time),
	        case_of(test_what_the_host_does_is_no_reason_to_ask),
	        case_of(test_who_asks_by_an_old_name_asks_again),
	        case_of(test_names_of_one_file_stay_one),
	        case_of(test_names_of_one_file_become_another),
	        case_of(test_absent_names_of_one_file_become_another),
	        case_of(test_mode_is_changed),
	        case_of(test_mode_of_a_file_with_two_names),
	        case_of(test_directory_in_place_of_another),
	        case_of(test_directory_in_place_of_the_hosts),
	        case_of(test_what_waits_for_the_host),
	        case_of(test_host_wins),
	        case_of(test_dirty_beats_removal_of_its_directory),
	        case_of(test_names_of_what_is_gone_are_waited_for),
	        case_of(test_refused_does_not_keep_what_is_gone),
	        case_of(test_refused_is_told_again),
	        case_of(test_refused_is_listed_where_a_directory_is),
	        case_of(test_refused_in_what_is_not_known),
	        case_of(test_moved_directory_is_asked_for_where_it_is),
	        case_of(test_what_was_sent_is_known),
	        case_of(test_newest_counts_in_any_order),
	        case_of(test_older_removal_of_a_directory),
	        case_of(test_older_removal_in_a_directory_that_has_come_back),
	        case_of(test_listing_older_than_the_last_answer),
	        case_of(test_what_does_not_come_when_asked_again),
	        case_of(test_many_that_lag_at_once),
	        case_of(test_clock_that_is_set_back),
	        case_of(test_clock_that_was_set_back_asks_for_all),
	        case_of(test_oldest_is_evicted),
	        case_of(test_restart_has_what_was_fetched),
	        case_of(test_restart_before_the_first_listing),
	        case_of(test_power_cut_leaves_no_holes),
	        case_of(test_hostile_records),
	        case_of(test_listing_that_was_cut),
	        case_of(test_contents_that_are_lies),
	        case_of(test_tree_too_large_to_be_listed),
	        case_of(test_directories_too_large_to_be_listed_together),
	        case_of(test_directory_too_large_to_be_listed),
	        case_of(test_time_that_is_far_away),
	        case_of(test_failed_take_is_made_up_for),
	        case_of(test_closed_directory_becomes_a_file),
	        case_of(test_changes_in_a_closed_directory),
	        case_of(test_changes_in_a_directory_that_is_being_closed),
	        case_of(test_lost_answer_is_asked_for),
	        case_of(test_no_answer_is_a_failure),
	        case_of(test_full_tree_goes_on),
	        case_of(test_failed_listing_lags_as_before),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
