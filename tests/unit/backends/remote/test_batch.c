#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <linux/fs.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/remote/call.h"
#include "backends/remote/pack.h"
#include "backends/support/tree.h"
#include "sandboxfs/cleanup.h"
#include "tests/lib/remote_pair.h"
#include "tests/lib/scratch.h"

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

static void an_empty_journal_has_no_batch(void **state)
{
	struct pair p;

	(void)state;
	pair_begin(&p, "sh");
	assert_false(pair_send(&p));
	assert_false(remote_journal_pending(p.journal));
	pair_end(&p);
}

static void files_and_directories_arrive(void **state)
{
	struct pair p;

	(void)state;
	pair_begin(&p, "sh");
	assert_true(pair_mkdir(&p, "d"));
	assert_true(pair_mkdir(&p, "d/e"));
	assert_true(pair_create(&p, "d/e/it's", "one\n"));
	assert_true(pair_create(&p, "-n", ""));
	assert_true(pair_symlink(&p, "d/e", "link"));
	assert_true(pair_node(&p, "fifo", S_IFIFO));
	assert_true(pair_link(&p, "d/e/it's", "other"));
	pair_send_all(&p);
	pair_compare(&p);
	assert_int_equal(pair_frames(&p, 'N'), 0);
	assert_int_equal(pair_frames(&p, 'M'), 1);
	pair_end(&p);
}

/*
 * Random steps. The names are few, so that they meet.
 */
static uint64_t seed;

static uint32_t dice(uint32_t n)
{
	seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
	return (uint32_t)(seed >> 33) % n;
}

static const char *const names[] = {
        "a",
        "b",
        "c",
        "d",
        "e",
        "it's",
        "-f",
        "x y",
        "new\nline",
        "*",
        "long-0123456789-0123456789-0123456789-0123456789-0123456789-0123456789-0123456789-0123",
};

/* What there is, as a flat list of paths. */
static struct {
	char *at[512];
	struct stat st[512];
	size_t n;
} all;

static void collect(int dir, const char *path)
{
	_cleanup_dir_ DIR *d = NULL;
	int fd = openat(dir, *path ? path : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	assert_true(fd >= 0);
	d = fdopendir(fd);
	for (struct dirent *e; (e = readdir(d));) {
		char *full;

		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		assert_true(asprintf(&full, "%s%s%s", path, *path ? "/" : "", e->d_name) > 0);
		all.at[all.n] = full;
		assert_int_equal(fstatat(dir, full, &all.st[all.n], AT_SYMLINK_NOFOLLOW), 0);
		assert_true(++all.n < SBX_ARRAY_SIZE(all.at));
		if (S_ISDIR(all.st[all.n - 1].st_mode))
			collect(dir, full);
	}
}

static void forget(void)
{
	for (size_t i = 0; i < all.n; i++)
		free(all.at[i]);
	all.n = 0;
}

static int compare_strings(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* A path that is there; of a directory where DIR says so ("" the root). */
static const char *some(bool dir)
{
	for (int tries = 0; all.n && tries < 20; tries++) {
		size_t i = dice((uint32_t)all.n);

		if (!dir || S_ISDIR(all.st[i].st_mode))
			return all.at[i];
	}
	return dir ? "" : NULL;
}

/* A path that may be there. */
static void any(char buf[1024])
{
	const char *dir = dice(3) ? some(true) : "";

	snprintf(buf, 1024, "%s%s%s", dir, *dir ? "/" : "",
	         names[dice(dice(2) ? 5 : SBX_ARRAY_SIZE(names))]);
}

/* Inodes of the files that were changed since the last cut. */
static struct {
	uint64_t at[512];
	size_t n;
} written;

/* A file of several names that was changed keeps the one by which that was told, see plan.h. */
static bool is_held(const struct pair *p, const char *path)
{
	struct stat st;

	if (fstatat(p->here, path, &st, AT_SYMLINK_NOFOLLOW) < 0 || st.st_nlink < 2)
		return false;
	for (size_t i = 0; i < written.n; i++)
		if (written.at[i] == st.st_ino)
			return true;
	return false;
}

static void hold(const struct pair *p, const char *path)
{
	struct stat st;

	if (fstatat(p->here, path, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	    written.n < SBX_ARRAY_SIZE(written.at))
		written.at[written.n++] = st.st_ino;
}

static void step(struct pair *p)
{
	char to[1024], text[64];
	const char *path;
	uint32_t kind = dice(34);

	for (int i = 0; i < 63; i++)
		text[i] = (char)('a' + dice(26));
	text[63] = '\0';
	collect(p->here, "");
	/* The order of a directory is the file system's. */
	qsort(all.at, all.n, sizeof(*all.at), compare_strings);
	for (size_t i = 0; i < all.n; i++)
		fstatat(p->here, all.at[i], &all.st[i], AT_SYMLINK_NOFOLLOW);
	path = some(false);
	any(to);
	if (kind < 7) {
		pair_create(p, to, text + dice(63));
	} else if (kind < 10) {
		pair_mkdir(p, to);
	} else if (!path) {
	} else if (kind < 13) {
		if (pair_write(p, path, dice(50), text, 1 + dice(60)))
			hold(p, path);
	} else if (kind < 14) {
		if (pair_empty(p, path))
			hold(p, path);
	} else if (kind < 22) {
		if (!is_held(p, to))
			pair_rename(p, path, to, 0);
	} else if (kind < 23) {
		pair_rename(p, path, to, RENAME_EXCHANGE);
	} else if (kind < 25) {
		pair_link(p, path, to);
	} else if (kind < 28) {
		if (!is_held(p, path))
			pair_unlink(p, path);
	} else if (kind < 30) {
		pair_rmdir(p, path);
	} else if (kind < 31) {
		pair_symlink(p, names[dice(5)], to);
	} else if (kind < 32) {
		pair_node(p, to, S_IFIFO);
	} else if (kind < 33) {
		static const mode_t modes[] = {0644, 0600, 0755, 0444, 0700};

		if (pair_chmod(p, path, modes[dice(5)]))
			hold(p, path);
	} else if (pair_utimes(p, path,
	                       (int64_t)dice(2000000000) * 1000000000 + dice(1000000000))) {
		hold(p, path);
	}
	forget();
}

static void play(struct pair *p, bool kills)
{
	const uint32_t cuts = 1 + dice(4);

	for (uint32_t i = 0; i < cuts; i++) {
		const uint32_t steps = 1 + dice(dice(3) ? 12 : 60);

		written.n = 0;
		for (uint32_t k = 0; k < steps; k++)
			step(p);
		while (remote_journal_pending(p->journal)) {
			p->kill_us = kills && dice(2) ? 1 + (int)dice(30000) : 0;
			if (dice(4) == 0)
				pair_reopen(p);
			if (pair_send(p)) {
				if (pair_frames(p, 'N'))
					fail_msg("refused:\n%s\n%s", p->script, p->answer);
				if (dice(4))
					pair_sent(p);
			}
		}
		pair_compare(p);
	}
}

static void random_steps(const char *shell, const char *path, bool seconds)
{
	const char *rounds = getenv("ROUNDS"), *first = getenv("SEED");
	const uint64_t from = first ? strtoull(first, NULL, 0) : 1;
	const uint64_t n = rounds ? strtoull(rounds, NULL, 0) : 6;

	for (uint64_t i = from; i < from + n; i++) {
		struct pair p;

		seed = i * 0x9e3779b97f4a7c15ULL;
		print_message("# seed %llu\n", (unsigned long long)i);
		scratch_make();
		pair_begin(&p, shell);
		p.path = path;
		p.seconds = seconds;
		play(&p, i % 2);
		pair_end(&p);
		scratch_remove();
	}
}

static void random_steps_in_sh(void **state)
{
	(void)state;
	random_steps("sh", NULL, false);
}

static void random_steps_in_bash(void **state)
{
	(void)state;
	random_steps("bash --posix", NULL, false);
}

/* A PATH that has nothing but the commands of busybox, less the one named. False: there is none. */
static bool only_busybox(char path[1024], const char *less)
{
	struct remote_text t = {0};
	bool ok;

	snprintf(path, 1024, "%s", scratch_path("bin"));
	scratch_mkdir(path);
	remote_text_add(&t, "busybox --install -s");
	remote_text_word(&t, path);
	remote_text_add(&t, " 2>/dev/null && rm -f");
	remote_text_word(&t, scratch_path("bin/%s", less));
	ok = system(t.at) == 0;
	remote_text_release(&t);
	return ok;
}

static void steps_with_busybox(const char *less)
{
	char path[1024], top[1024];

	snprintf(top, sizeof(top), "%s", scratch_make());
	if (!only_busybox(path, less)) {
		scratch_remove();
		skip_because("there is no busybox");
	}
	random_steps("busybox sh", path, true);
	assert_int_equal(sbx_tree_remove(AT_FDCWD, top, NULL), 0);
}

static void random_steps_in_busybox(void **state)
{
	(void)state;
	steps_with_busybox("none");
}

static void random_steps_without_tar(void **state)
{
	(void)state;
	steps_with_busybox("tar");
}

/* The runner is killed right behind each line in turn, by the line itself. */
static void a_break_behind_each_step_changes_nothing(void **state)
{
	size_t breaks = 0;

	(void)state;
	for (size_t at = 1; at < 40; at++) {
		struct pair p;

		scratch_make();
		pair_begin(&p, "sh");
		pair_create(&p, "a", "a");
		pair_create(&p, "b", "b");
		pair_mkdir(&p, "old");
		pair_create(&p, "old/x", "x");
		pair_link(&p, "old/x", "old/y");
		pair_send_all(&p);
		pair_rename(&p, "a", "b", RENAME_EXCHANGE);
		pair_mkdir(&p, "new");
		pair_rename(&p, "old/x", "new/x", 0);
		pair_rename(&p, "old", "older", 0);
		pair_link(&p, "b", "older/b");
		pair_mkdir(&p, "old");
		pair_create(&p, "old/t", "t");
		pair_rename(&p, "old/t", "a", 0);
		pair_write(&p, "new/x", 0, "X", 1);
		pair_create(&p, "c", "c");
		pair_link(&p, "c", "new/c");
		pair_chmod(&p, "old", 0700);
		p.break_at = at;
		if (!pair_send(&p))
			breaks++;
		p.break_at = 0;
		pair_send_all(&p);
		assert_int_equal(pair_frames(&p, 'N'), 0);
		pair_compare(&p);
		pair_end(&p);
		scratch_remove();
	}
	assert_true(breaks > 8);
}

/* Then what is put is brought to the tree's file system before it is moved into place. */
static void the_room_may_be_on_another_file_system(void **state)
{
	char room[] = "/dev/shm/sandboxfs-test-room-XXXXXX";
	struct stat a, b;

	(void)state;
	if (!mkdtemp(room) || stat(room, &a) < 0 || stat(scratch_path("."), &b) < 0 ||
	    a.st_dev == b.st_dev)
		skip_because("there is no other file system");
	for (int i = 0; i < 6; i++) {
		struct pair p;

		scratch_remove();
		scratch_make();
		seed = 77 + (uint64_t)i;
		pair_begin(&p, "sh");
		pair_set_room(&p, room);
		play(&p, i % 2);
		assert_false(scratch_exists(scratch_path("there/.sandboxfs-stage")));
		pair_end(&p);
		assert_int_equal(sbx_tree_remove(AT_FDCWD, room, NULL), 0);
		assert_int_equal(mkdir(room, 0700), 0);
	}
	assert_int_equal(rmdir(room), 0);
}

/* The whole of an editor's save is one file that is put. */
static void a_save_by_another_name_is_one_placement(void **state)
{
	struct pair p;

	(void)state;
	pair_begin(&p, "sh");
	pair_create(&p, "t", "old");
	pair_send_all(&p);
	pair_create(&p, "t.tmp", "new");
	pair_rename(&p, "t.tmp", "t", 0);
	pair_send_all(&p);
	pair_compare(&p);
	assert_int_equal(pair_lines(&p, "r_do_place"), 1);
	assert_int_equal(pair_lines(&p, "r_do_rm") + pair_lines(&p, "r_do_mv"), 0);
	pair_end(&p);
}

/* What is made as another name, and moved over one of before the batch, is made there. */
static void a_new_directory_over_an_old_one_has_its_own_mode(void **state)
{
	struct pair p;

	(void)state;
	pair_begin(&p, "sh");
	pair_mkdir(&p, "d");
	pair_chmod(&p, "d", 0700);
	pair_send_all(&p);
	pair_mkdir(&p, "d.tmp");
	assert_true(pair_rename(&p, "d.tmp", "d", 0));
	pair_send_all(&p);
	pair_compare(&p);
	pair_mkdir(&p, "d.tmp");
	assert_true(pair_rename(&p, "d.tmp", "not there", 0));
	assert_true(pair_send(&p));
	assert_int_equal(pair_frames(&p, 'N'), 0);
	pair_sent(&p);
	pair_compare(&p);
	pair_end(&p);
}

static void a_batch_that_is_done_is_not_done_again(void **state)
{
	struct pair p;

	(void)state;
	pair_begin(&p, "sh");
	pair_create(&p, "a", "a");
	assert_true(pair_send(&p));
	assert_int_equal(unlink(scratch_path("there/a")), 0);
	assert_true(pair_send(&p));
	assert_false(scratch_exists(scratch_path("there/a")));
	pair_end(&p);
}

/* The numbers of files that were put, which are of a round, become zeros. */
static char *without_rounds(const char *script)
{
	char *copy = strdup(script);

	for (char *at = copy; at && (at = strpbrk(at, "23456789")); at += strspn(at, "0123456789"))
		if (strspn(at, "0123456789") == 10 && at[-1] == ' ')
			memset(at, '0', 10);
	return copy;
}

static void another_daemon_sends_the_same_steps(void **state)
{
	(void)state;
	for (uint64_t i = 1; i <= 20; i++) {
		_cleanup_free_ char *before = NULL, *after = NULL;
		struct pair p;

		scratch_remove();
		scratch_make();
		seed = 5000 + i;
		pair_begin(&p, "sh");
		play(&p, false);
		written.n = 0;
		for (int k = 0; k < 20; k++)
			step(&p);
		pair_create(&p, "last", "");
		assert_true(pair_send(&p));
		before = without_rounds(p.script);
		pair_reopen(&p);
		assert_true(pair_send(&p));
		after = without_rounds(p.script);
		assert_string_equal(before, after);
		pair_end(&p);
	}
}

/* A move that was done twice would be refused. */
static void two_runners_do_it_once(void **state)
{
	struct pair p;

	(void)state;
	pair_begin(&p, "sh");
	for (int i = 0; i < 10; i++) {
		char path[32], to[32];

		for (int k = 0; k < 20; k++) {
			snprintf(path, sizeof(path), "f%d-%d", i, k);
			pair_create(&p, path, "contents");
			if (i == 0)
				continue;
			snprintf(path, sizeof(path), "f%d-%d", i - 1, k);
			snprintf(to, sizeof(to), "g%d-%d", i - 1, k);
			pair_rename(&p, path, to, 0);
		}
		pair_send_twice(&p);
		pair_sent(&p);
		pair_compare(&p);
	}
	pair_end(&p);
}

/* With the commands of busybox as well, if there are any. */
static void with_each_shell(void (*play_in)(struct pair *p))
{
	char path[1024];
	struct pair p;

	pair_begin(&p, "sh");
	p.bound = true;
	play_in(&p);
	pair_end(&p);
	scratch_remove();
	scratch_make();
	if (!only_busybox(path, "none"))
		return;
	pair_begin(&p, "busybox sh");
	p.bound = p.seconds = true;
	p.path = path;
	play_in(&p);
	pair_end(&p);
}

static void write_below_a_closed_directory(struct pair *p)
{
	static const char *const paths[] = {"d/f", "d/-n", "d/new\nline", "d/shut", "d/big"};
	_cleanup_free_ char *big = calloc(1, REMOTE_PACK_FILE_MAX + 1);

	memset(big, 'b', REMOTE_PACK_FILE_MAX);
	assert_true(pair_mkdir(p, "d"));
	assert_true(pair_mkdir(p, "e"));
	for (size_t i = 0; i < SBX_ARRAY_SIZE(paths); i++)
		assert_true(pair_create(p, paths[i], "old\n"));
	assert_true(pair_create(p, "d/two", "old\n"));
	assert_true(pair_link(p, "d/two", "e/names"));
	assert_true(pair_chmod(p, "d/shut", 0444));
	assert_true(pair_chmod(p, "d", 0555));
	pair_send_all(p);
	assert_true(pair_chmod(p, "d/shut", 0644));
	for (size_t i = 0; i < SBX_ARRAY_SIZE(paths); i++)
		assert_true(pair_write(p, paths[i], 0, "new\n", 4));
	assert_true(pair_chmod(p, "d/shut", 0444));
	assert_true(pair_write(p, "d/big", 4, big, REMOTE_PACK_FILE_MAX));
	assert_true(pair_write(p, "d/two", 0, "new\n", 4));
	pair_send_all(p);
	assert_int_equal(pair_frames(p, 'N'), 0);
	pair_compare(p);
}

static void a_file_in_a_directory_that_may_not_be_written_to_is_written(void **state)
{
	(void)state;
	with_each_shell(write_below_a_closed_directory);
}

static const char old_input[] = "1000001", new_input[] = "1000002";

static void put_input(struct pair *p, const char *name, time_t age_s)
{
	const time_t then = time(NULL) - age_s;
	const struct timespec times[2] = {{.tv_sec = then}, {.tv_sec = then}};
	char path[512];

	snprintf(path, sizeof(path), "%s/in/%s", p->room, name);
	scratch_write(path, "input\n");
	assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static bool has_input(const struct pair *p, const char *name)
{
	char path[512];

	snprintf(path, sizeof(path), "%s/in/%s", p->room, name);
	return scratch_exists(path);
}

/* Of calls that never came. No test can set a ctime: a find of its own looks at the mtime. */
static void what_was_put_in_vain_is_removed(void **state)
{
	char path[1024], find[1024];
	struct pair p;

	(void)state;
	pair_begin(&p, "sh");
	snprintf(find, sizeof(find), "%s", scratch_path("bin/find"));
	scratch_mkdir(scratch_path("bin"));
	scratch_write(find, "#!/bin/sh\nfor a; do\n\tshift\n\t[ \"$a\" != -ctime ] || a=-mtime\n"
	                    "\tset -- \"$@\" \"$a\"\ndone\nexec /usr/bin/find \"$@\"\n");
	assert_int_equal(chmod(find, 0755), 0);
	snprintf(path, sizeof(path), "%s:/usr/bin:/bin", scratch_path("bin"));
	p.path = path;
	assert_true(pair_create(&p, "a", "a\n"));
	pair_send_all(&p);
	put_input(&p, old_input, 100000);
	put_input(&p, new_input, 70000);
	assert_true(pair_create(&p, "b", "b\n"));
	pair_send_all(&p);
	assert_false(has_input(&p, old_input));
	assert_true(has_input(&p, new_input));
	pair_compare(&p);
	pair_end(&p);
}

static mode_t mode_there(const struct pair *p)
{
	struct stat st;

	assert_int_equal(fstat(p->there, &st), 0);
	return st.st_mode & 07777;
}

static void close_the_tree(struct pair *p)
{
	assert_true(pair_create(p, "f", "f"));
	assert_true(pair_chmod(p, "", 0600));
	pair_send_all(p);
	/* The file is told of, and the directory may be looked into. */
	assert_int_equal(pair_frames(p, 'M'), 1);
	assert_int_equal(mode_there(p), 0700);
	assert_int_equal(chmod(scratch_path("there"), 0), 0);
	assert_true(pair_write(p, "f", 0, "new", 3));
	assert_true(pair_chmod(p, "", 0755));
	pair_send_all(p);
	assert_int_equal(pair_frames(p, 'N'), 0);
	assert_int_equal(mode_there(p), 0755);
	pair_compare(p);
}

static void a_tree_that_its_owner_may_not_enter_is_changed(void **state)
{
	(void)state;
	with_each_shell(close_the_tree);
}

static void what_cannot_be_done_is_told_and_passed_over(void **state)
{
	struct pair p;

	(void)state;
	pair_begin(&p, "sh");
	pair_create(&p, "a", "a");
	pair_send_all(&p);
	assert_int_equal(unlink(scratch_path("there/a")), 0);
	pair_rename(&p, "a", "b", 0);
	pair_create(&p, "c", "c");
	assert_true(pair_send(&p));
	assert_int_equal(pair_frames(&p, 'N'), 1);
	assert_true(scratch_exists(scratch_path("there/c")));
	/* Also when its answer was lost. */
	assert_true(pair_send(&p));
	assert_int_equal(pair_frames(&p, 'N'), 1);
	pair_end(&p);
}

/* A runner is killed while it writes down what was refused. */
static void a_torn_refusal_is_not_told(void **state)
{
	const struct remote_frame *f;
	struct remote_reply reply;
	struct sbx_error err;
	struct pair p;
	struct stat st;
	size_t at = 0;

	(void)state;
	pair_begin(&p, "sh");
	pair_create(&p, "a", "a");
	pair_create(&p, "b", "b");
	pair_send_all(&p);
	assert_int_equal(unlink(scratch_path("there/a")), 0);
	assert_int_equal(unlink(scratch_path("there/b")), 0);
	pair_rename(&p, "a", "c", 0);
	pair_rename(&p, "b", "d", 0);
	p.break_at = 1;
	assert_false(pair_send(&p));
	assert_int_equal(stat(scratch_path("room/refused"), &st), 0);
	assert_int_equal(truncate(scratch_path("room/refused"), st.st_size - 5), 0);
	p.break_at = 0;
	assert_true(pair_send(&p));
	if (remote_reply_read(p.answer, p.answer_n, &reply, &err))
		fail_msg("%s:\n%s", err.text, p.answer);
	f = remote_reply_next(&reply, &at, REMOTE_STEP, NULL);
	assert_non_null(f);
	assert_string_equal(f->bytes, "b");
	assert_null(remote_reply_next(&reply, &at, REMOTE_STEP, NULL));
	remote_reply_release(&reply);
	pair_end(&p);
}

static void a_move_that_cannot_be_done_is_known_by_its_number(void **state)
{
	const struct remote_frame *f;
	const char *from, *to;
	struct remote_reply reply;
	struct remote_batch *b;
	struct sbx_error err;
	struct pair p;
	size_t at = 0;

	(void)state;
	pair_begin(&p, "sh");
	pair_create(&p, "a", "a");
	pair_send_all(&p);
	assert_int_equal(unlink(scratch_path("there/a")), 0);
	pair_mkdir(&p, "d");
	pair_rename(&p, "a", "d/b", 0);
	assert_true(pair_send(&p));
	assert_int_equal(remote_reply_read(p.answer, p.answer_n, &reply, &err), 0);
	f = remote_reply_next(&reply, &at, REMOTE_STEP, NULL);
	assert_non_null(f);
	assert_string_equal(f->bytes, "a");
	assert_int_equal(remote_journal_cut(p.journal, &b, &err), 0);
	assert_true(remote_batch_moves(b, f->a, &from, &to));
	assert_string_equal(from, "a");
	assert_string_equal(to, "d/b");
	assert_false(remote_batch_moves(b, f->a - 1, &from, &to));
	assert_false(remote_batch_moves(b, 0, &from, &to));
	assert_false(remote_batch_moves(b, UINT64_MAX, &from, &to));
	remote_reply_release(&reply);
	pair_end(&p);
}

static void a_socket_that_is_refused_is_known_by_its_number(void **state)
{
	const struct remote_frame *f;
	struct remote_reply reply;
	struct remote_batch *b;
	struct sbx_error err;
	struct pair p;
	size_t at = 0;

	(void)state;
	pair_begin(&p, "sh");
	assert_true(pair_mkdir(&p, "d"));
	assert_true(pair_create(&p, "d/f", "f"));
	assert_true(pair_node(&p, "d/s", S_IFSOCK));
	assert_true(pair_send(&p));
	assert_int_equal(remote_reply_read(p.answer, p.answer_n, &reply, &err), 0);
	f = remote_reply_next(&reply, &at, REMOTE_STEP, NULL);
	assert_non_null(f);
	assert_string_equal(f->bytes, "d/s");
	assert_int_equal(remote_journal_cut(p.journal, &b, &err), 0);
	assert_true(remote_batch_is_socket(b, f->a));
	assert_false(remote_batch_is_socket(b, f->a - 1));
	assert_false(remote_batch_is_socket(b, 0));
	assert_false(remote_batch_is_socket(b, UINT64_MAX));
	remote_reply_release(&reply);
	pair_end(&p);
}

/* ---- a full disk there ---- */

/* Tree and room of P are on a disk of 3 MiB. False: there is no such. */
static bool small_disk(struct pair *p)
{
	static bool apart;
	const char *const parts[] = {"there", "room"};

	if (!apart && (unshare(geteuid() ? CLONE_NEWUSER | CLONE_NEWNS : CLONE_NEWNS) < 0 ||
	               mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0))
		return false;
	apart = true;
	scratch_mkdir(scratch_path("disk"));
	if (mount("none", scratch_path("disk"), "tmpfs", 0, "size=3m") < 0)
		return false;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(parts); i++) {
		char path[256];

		snprintf(path, sizeof(path), "%s", scratch_path("%s", parts[i]));
		scratch_mkdir(scratch_path("disk/%s", parts[i]));
		assert_int_equal(
		        mount(scratch_path("disk/%s", parts[i]), path, NULL, MS_BIND, NULL), 0);
	}
	pair_set_room(p, scratch_path("room"));
	close(p->there);
	p->there = open(scratch_path("there"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(p->there >= 0);
	return true;
}

static void drop_disk(void)
{
	umount2(scratch_path("there"), MNT_DETACH);
	umount2(scratch_path("room"), MNT_DETACH);
	umount2(scratch_path("disk"), MNT_DETACH);
}

/* Until the disk has no block left. */
static void fill_there(const struct pair *p, const char *name)
{
	static const char block[4096];
	int fd = openat(p->there, name, O_WRONLY | O_APPEND | O_CLOEXEC);

	assert_true(fd >= 0);
	while (write(fd, block, sizeof(block)) > 0)
		continue;
	close(fd);
}

static const char *const disk_shells[] = {"sh", "bash --posix", "busybox sh"};

/* With each shell there is. */
static void on_small_disks(void (*play_on)(struct pair *p))
{
	for (size_t i = 0; i < SBX_ARRAY_SIZE(disk_shells); i++) {
		struct pair p;
		bool ok;

		scratch_remove();
		scratch_make();
		pair_begin(&p, disk_shells[i]);
		ok = small_disk(&p);
		if (ok) {
			play_on(&p);
			pair_compare(&p);
		}
		pair_end(&p);
		drop_disk();
		if (!ok)
			skip_because("no file system can be mounted");
	}
}

static void remove_from_full_disk(struct pair *p)
{
	assert_true(pair_create(p, "hog", ""));
	assert_true(pair_create(p, "a", "a"));
	assert_true(pair_mkdir(p, "d"));
	pair_send_all(p);
	fill_there(p, "hog");
	/* What needs no block is done as well. */
	assert_true(pair_rename(p, "a", "b", 0));
	assert_true(pair_mkdir(p, "e"));
	pair_send_all(p);
	assert_int_equal(pair_frames(p, 'N'), 0);
	assert_true(pair_unlink(p, "hog"));
	assert_true(pair_rmdir(p, "d"));
	pair_send_all(p);
	assert_int_equal(pair_frames(p, 'N'), 0);
}

static void what_needs_no_block_is_done_on_a_full_disk(void **state)
{
	(void)state;
	on_small_disks(remove_from_full_disk);
}

/* As where the runner's own file could not be written before. */
static void remove_unnoted(struct pair *p)
{
	char path[300];

	assert_true(pair_create(p, "hog", ""));
	assert_true(pair_create(p, "a", "a"));
	pair_send_all(p);
	snprintf(path, sizeof(path), "%s/progress", p->room);
	assert_int_equal(truncate(path, 0), 0);
	fill_there(p, "hog");
	assert_true(pair_unlink(p, "hog"));
	assert_true(pair_rename(p, "a", "b", 0));
	pair_send_all(p);
	assert_int_equal(pair_frames(p, 'N'), 0);
}

static void what_is_removed_need_not_be_noted(void **state)
{
	(void)state;
	on_small_disks(remove_unnoted);
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        CASE(an_empty_journal_has_no_batch),
	        CASE(files_and_directories_arrive),
	        CASE(the_room_may_be_on_another_file_system),
	        CASE(a_save_by_another_name_is_one_placement),
	        CASE(a_new_directory_over_an_old_one_has_its_own_mode),
	        CASE(a_batch_that_is_done_is_not_done_again),
	        CASE(another_daemon_sends_the_same_steps),
	        CASE(two_runners_do_it_once),
	        CASE(a_file_in_a_directory_that_may_not_be_written_to_is_written),
	        CASE(what_was_put_in_vain_is_removed),
	        CASE(a_tree_that_its_owner_may_not_enter_is_changed),
	        CASE(what_cannot_be_done_is_told_and_passed_over),
	        CASE(a_torn_refusal_is_not_told),
	        CASE(a_move_that_cannot_be_done_is_known_by_its_number),
	        CASE(a_socket_that_is_refused_is_known_by_its_number),
	        CASE(what_needs_no_block_is_done_on_a_full_disk),
	        CASE(what_is_removed_need_not_be_noted),
	        cmocka_unit_test(a_break_behind_each_step_changes_nothing),
	        cmocka_unit_test(random_steps_in_sh),
	        cmocka_unit_test(random_steps_in_bash),
	        cmocka_unit_test(random_steps_in_busybox),
	        cmocka_unit_test(random_steps_without_tar),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
