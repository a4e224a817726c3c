/* The log of a sandbox in its files, and the live events. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/log/events.h"
#include "fs/log/log.h"
#include "fs/util/reply.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/loop.h"
#include "tests/lib/tmp.h"

/* ---- the log ---- */

static char dir[64], main_path[128], copy_path[128], logs_dir[128];
static struct sbx_log *a_log;

static int set_up(void **state)
{
	(void)state;
	if (!tmp_make(dir, sizeof(dir), "sbx-log"))
		return -1;
	snprintf(main_path, sizeof(main_path), "%s/log/id1.jsonl", dir);
	snprintf(logs_dir, sizeof(logs_dir), "%s/logs", dir);
	snprintf(copy_path, sizeof(copy_path), "%s/logs/box.jsonl", dir);
	return 0;
}

static int tear_down(void **state)
{
	char path[128];

	(void)state;
	sbx_log_close(a_log);
	a_log = NULL;
	unlink(main_path);
	unlink(copy_path);
	snprintf(path, sizeof(path), "%s/logs/other.jsonl", dir);
	unlink(path);
	rmdir(logs_dir);
	snprintf(path, sizeof(path), "%s/log", dir);
	rmdir(path);
	return rmdir(dir);
}

/* Line N (from 0) of the file at PATH as an object, NULL: there is none. */
static struct json_object *line_of(const char *path, int n)
{
	FILE *f = fopen(path, "re");
	char line[4096];
	struct json_object *obj = NULL;

	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		if (n-- == 0)
			obj = json_tokener_parse(line);
	fclose(f);
	return obj;
}

static void expect_member(struct json_object *obj, const char *key, const char *want)
{
	assert_string_equal(json_object_get_string(json_object_object_get(obj, key)), want);
}

static void write_file(const char *path, const char *text)
{
	FILE *f = fopen(path, "we");

	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static void a_record_stands_in_both_files(void **state)
{
	const char *const paths[] = {main_path, copy_path};
	struct json_object *extra = json_object_new_object();

	(void)state;
	json_object_object_add(extra, "exit_code", json_object_new_int(3));
	assert_int_equal(sbx_log_open(dir, logs_dir, "id1", "box", &a_log), 0);
	sbx_log_record(a_log, "exec", extra);
	for (int i = 0; i < 2; i++) {
		struct json_object *obj = line_of(paths[i], 0);
		const char *stamp =
		        json_object_get_string(json_object_object_get(obj, "timestamp"));

		assert_int_equal(strlen(stamp), strlen("2026-01-01T00:00:00.000Z"));
		assert_int_equal(stamp[10], 'T');
		assert_int_equal(stamp[19], '.');
		assert_int_equal(stamp[23], 'Z');
		expect_member(obj, "task_id", "box");
		expect_member(obj, "event", "exec");
		expect_member(obj, "exit_code", "3");
		json_object_put(obj);
	}
}

static void files_are_private_and_the_copy_survives_removal(void **state)
{
	struct stat st;

	(void)state;
	assert_int_equal(sbx_log_open(dir, logs_dir, "id1", "box", &a_log), 0);
	sbx_log_record(a_log, "create", NULL);
	assert_int_equal(stat(main_path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	sbx_log_remove(a_log);
	sbx_log_close(a_log);
	a_log = NULL;
	assert_int_equal(stat(main_path, &st), -1);
	assert_int_equal(stat(copy_path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
}

static void an_existing_log_is_continued_after_a_torn_line(void **state)
{
	char path[128];
	struct json_object *obj;

	(void)state;
	snprintf(path, sizeof(path), "%s/log", dir);
	assert_int_equal(mkdir(path, 0700), 0);
	write_file(main_path, "{\"event\":\"create\"}\n{\"event\":\"ex");
	assert_int_equal(sbx_log_open(dir, NULL, "id1", "box", &a_log), 0);
	sbx_log_record(a_log, "cleanup", NULL);
	obj = line_of(main_path, 0);
	expect_member(obj, "event", "create");
	json_object_put(obj);
	obj = line_of(main_path, 2);
	expect_member(obj, "event", "cleanup");
	json_object_put(obj);
}

static void size_and_read_agree_with_the_file(void **state)
{
	char buf[512];
	uint64_t size;

	(void)state;
	assert_int_equal(sbx_log_open(dir, NULL, "id1", "box", &a_log), 0);
	assert_int_equal(sbx_log_size(a_log), 0);
	sbx_log_record(a_log, "create", NULL);
	size = sbx_log_size(a_log);
	assert_true(size > 20);
	assert_int_equal(sbx_log_read(a_log, buf, sizeof(buf), 0), size);
	assert_int_equal(buf[size - 1], '\n');
	assert_int_equal(sbx_log_read(a_log, buf, 5, size - 5), 5);
	assert_int_equal(sbx_log_read(a_log, buf, 5, size), 0);
}

static void text_that_is_not_utf8_leaves_the_line_valid(void **state)
{
	struct json_object *obj;

	(void)state;
	assert_int_equal(sbx_log_open(dir, NULL, "id1", "b\xff", &a_log), 0);
	sbx_log_record(a_log, "create", NULL);
	obj = line_of(main_path, 0);
	expect_member(obj, "task_id", "b\xef\xbf\xbd");
	json_object_put(obj);
}

static void a_renamed_sandbox_goes_on_under_its_new_name(void **state)
{
	struct json_object *obj;
	char path[128];

	(void)state;
	snprintf(path, sizeof(path), "%s/logs/other.jsonl", dir);
	assert_int_equal(sbx_log_open(dir, logs_dir, "id1", "box", &a_log), 0);
	sbx_log_record(a_log, "create", NULL);
	assert_int_equal(sbx_log_rename(a_log, "other"), 0);
	sbx_log_record(a_log, "exec", NULL);
	obj = line_of(main_path, 1);
	expect_member(obj, "task_id", "other");
	json_object_put(obj);
	obj = line_of(path, 0);
	expect_member(obj, "event", "exec");
	json_object_put(obj);
	assert_null(line_of(copy_path, 1));
}

static void a_link_or_fifo_in_the_place_of_a_log_is_refused(void **state)
{
	(void)state;
	assert_int_equal(mkdir(logs_dir, 0700), 0);
	assert_int_equal(symlink("/etc/passwd", copy_path), 0);
	assert_int_equal(sbx_log_open(dir, logs_dir, "id1", "box", &a_log), -ELOOP);
	assert_int_equal(unlink(copy_path), 0);
	assert_int_equal(mkfifo(copy_path, 0600), 0);
	assert_int_equal(sbx_log_open(dir, logs_dir, "id1", "box", &a_log), -EINVAL);
}

static void a_state_directory_that_is_not_there_is_an_error(void **state)
{
	(void)state;
	assert_int_equal(sbx_log_open("/proc/nowhere", NULL, "id1", "box", &a_log), -ENOENT);
}

static void *record_many(void *data)
{
	for (int i = 0; i < 200; i++)
		sbx_log_record(data, "exec", NULL);
	return NULL;
}

static void records_of_several_threads_do_not_mix(void **state)
{
	pthread_t threads[4];

	(void)state;
	assert_int_equal(sbx_log_open(dir, NULL, "id1", "box", &a_log), 0);
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, record_many, a_log);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < 800; i += 100) {
		struct json_object *obj = line_of(main_path, i);

		expect_member(obj, "event", "exec");
		json_object_put(obj);
	}
	assert_null(line_of(main_path, 800));
}

/* ---- events ---- */

struct answer {
	struct sbx_pending base;
	bool given;
	int error;
	size_t len;
	char buf[8192];
};

static void got_data(struct sbx_pending *p, const void *buf, size_t len)
{
	struct answer *a = (struct answer *)p;

	assert_false(a->given);
	assert_true(len <= p->size);
	a->given = true;
	a->len = len;
	if (len)
		memcpy(a->buf, buf, len);
	a->buf[len] = '\0';
}

static void got_error(struct sbx_pending *p, int errnum)
{
	struct answer *a = (struct answer *)p;

	assert_false(a->given);
	a->given = true;
	a->error = errnum;
}

static const struct sbx_pending_impl answer_impl = {.data = got_data, .error = got_error};

static struct answer new_answer(size_t size)
{
	return (struct answer){.base = {.impl = &answer_impl, .size = size}};
}

static struct sbx_loop *loop;
static struct sbx_events *events;

static int set_up_events(void **state)
{
	(void)state;
	return sbx_loop_create(&loop) || sbx_events_create(loop, &events) ? -1 : 0;
}

static int tear_down_events(void **state)
{
	(void)state;
	sbx_events_destroy(events);
	sbx_loop_destroy(loop);
	events = NULL;
	return 0;
}

static void stop_posted(void *data)
{
	(void)data;
	sbx_loop_stop(loop);
}

/* Runs what is posted; once per test. */
static void turn_loop(void)
{
	sbx_loop_post(loop, stop_posted, NULL);
	sbx_loop_run(loop);
}

static void a_reader_gets_what_was_before_it(void **state)
{
	struct answer a = new_answer(4096);
	struct sbx_events_reader cursor = {0};
	char *second;

	(void)state;
	sbx_events_add(events, "create", "box", NULL);
	sbx_events_add(events, "recovery", NULL, "two \"things\"");
	sbx_events_read(events, &cursor, &a.base, 0);
	assert_true(a.given);
	assert_non_null(strstr(a.buf, "\"sandbox\":\"box\",\"event\":\"create\"}\n"));
	second = strchr(a.buf, '\n') + 1;
	assert_non_null(
	        strstr(second, "\"event\":\"recovery\",\"text\":\"two \\\"things\\\"\"}\n"));
	assert_null(strstr(second, "sandbox"));
	assert_int_equal(cursor.at, a.len);
	a = new_answer(4096);
	sbx_events_read(events, &cursor, &a.base, 1);
	assert_int_equal(a.error, EAGAIN);
}

/* Reads PIECE bytes at a time all that there is for R, into BUF. */
static void read_all(struct sbx_events_reader *r, size_t piece, char buf[4096])
{
	size_t n = 0;

	for (;;) {
		struct answer a = new_answer(piece);

		sbx_events_read(events, r, &a.base, 1);
		assert_true(a.given);
		if (a.error == EAGAIN)
			return;
		assert_in_range(a.len, 1, 4095 - n);
		memcpy(buf + n, a.buf, a.len + 1);
		n += a.len;
	}
}

/* Where the word is in TEXT; fails without it. */
static const char *find(const char *text, const char *word)
{
	const char *at = strstr(text, word);

	assert_non_null(at);
	return at;
}

static void a_mark_is_between_what_was_and_what_comes(void **state)
{
	static const size_t pieces[] = {1, 7, 100, 4096};

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(pieces); i++) {
		struct sbx_events_reader r;
		char buf[4096] = "";
		const char *was, *live, *comes;

		sbx_events_add(events, "create", "was", NULL);
		sbx_events_reader_init(events, &r);
		sbx_events_add(events, "create", "comes", NULL);
		read_all(&r, pieces[i], buf);
		was = find(buf, "\"was\"");
		live = find(buf, "\"event\":\"live\"}\n");
		comes = find(live, "\"comes\"");
		assert_true(was < live && live < comes);
		assert_null(strstr(comes, "live"));
		sbx_events_reader_release(&r);
		sbx_events_destroy(events);
		assert_int_equal(sbx_events_create(loop, &events), 0);
	}
}

static void where_nothing_was_the_mark_comes_at_once(void **state)
{
	struct sbx_events_reader r;
	struct answer first = new_answer(4096), waiting = new_answer(4096);

	(void)state;
	sbx_events_reader_init(events, &r);
	sbx_events_read(events, &r, &first.base, 1);
	assert_non_null(strstr(first.buf, "\"event\":\"live\""));
	sbx_events_read(events, &r, &waiting.base, 0);
	assert_false(waiting.given);
	sbx_events_add(events, "create", "box", NULL);
	turn_loop();
	assert_non_null(strstr(waiting.buf, "create"));
	assert_null(strstr(waiting.buf, "live"));
	sbx_events_reader_release(&r);
}

static void who_fell_behind_still_gets_the_mark(void **state)
{
	struct sbx_events_reader r;
	struct answer a = new_answer(4096);

	(void)state;
	sbx_events_add(events, "create", "lost", NULL);
	sbx_events_reader_init(events, &r);
	for (int i = 0; i < 1001; i++)
		sbx_events_add(events, "create", "box", NULL);
	sbx_events_read(events, &r, &a.base, 0);
	assert_null(strstr(a.buf, "lost"));
	assert_true(find(a.buf, "\"live\"") < find(a.buf, "\"box\""));
	sbx_events_reader_release(&r);
}

static void both_get_the_same_line(void **state)
{
	struct answer a = new_answer(4096), b = new_answer(4096);
	struct sbx_events *other;
	struct sbx_events_reader from = {0}, there = {0};

	(void)state;
	assert_int_equal(sbx_events_create(loop, &other), 0);
	sbx_events_add_both(events, other, "create", "box", "text");
	sbx_events_read(events, &from, &a.base, 0);
	sbx_events_read(other, &there, &b.base, 0);
	assert_non_null(strstr(a.buf, "\"event\":\"create\",\"text\":\"text\"}\n"));
	assert_string_equal(a.buf, b.buf);
	sbx_events_destroy(other);
}

static void a_line_may_be_read_in_pieces(void **state)
{
	struct answer whole = new_answer(4096);
	struct sbx_events_reader cursor = {0}, other = {0};
	char joined[4096] = "";

	(void)state;
	sbx_events_add(events, "create", "one", NULL);
	sbx_events_add(events, "create", "two", NULL);
	sbx_events_read(events, &other, &whole.base, 0);
	read_all(&cursor, 7, joined);
	assert_string_equal(joined, whole.buf);
}

static void a_waiting_read_is_answered_by_the_loop(void **state)
{
	struct answer a = new_answer(4096), b = new_answer(4096);
	struct sbx_events_reader ca = {0}, cb = {0};

	(void)state;
	sbx_events_read(events, &ca, &a.base, 0);
	sbx_events_read(events, &cb, &b.base, 0);
	sbx_events_add(events, "create", "box", NULL);
	assert_false(a.given);
	turn_loop();
	assert_non_null(strstr(a.buf, "create"));
	assert_string_equal(a.buf, b.buf);
	assert_int_equal(ca.at, a.len);
}

static void nonblocking_read_answers_eagain(void **state)
{
	struct answer a = new_answer(4096);
	struct sbx_events_reader cursor = {0};

	(void)state;
	sbx_events_read(events, &cursor, &a.base, 1);
	assert_int_equal(a.error, EAGAIN);
}

static void a_signal_ends_the_wait_with_eintr(void **state)
{
	struct answer a = new_answer(4096), b = new_answer(4096);
	struct sbx_events_reader ca = {0}, cb = {0};

	(void)state;
	sbx_events_read(events, &ca, &a.base, 0);
	sbx_events_read(events, &cb, &b.base, 0);
	a.base.cancel(&a.base, false);
	assert_int_equal(a.error, EINTR);
	sbx_events_add(events, "create", "box", NULL);
	turn_loop();
	assert_true(b.len > 0);
}

static void only_the_last_thousand_are_kept(void **state)
{
	struct answer a = new_answer(200);
	struct sbx_events_reader cursor = {0};
	char name[16];

	(void)state;
	for (int i = 0; i < 1005; i++) {
		snprintf(name, sizeof(name), "box%d", i);
		sbx_events_add(events, "create", name, NULL);
	}
	sbx_events_read(events, &cursor, &a.base, 0);
	assert_non_null(strstr(a.buf, "\"box5\""));
	assert_null(strstr(a.buf, "\"box4\""));
}

static void after_close_the_end_is_reached(void **state)
{
	struct answer waiting = new_answer(4096), late = new_answer(4096), end = new_answer(4096);
	struct sbx_events_reader cursor = {0}, other = {0};

	(void)state;
	sbx_events_read(events, &cursor, &waiting.base, 0);
	sbx_events_add(events, "teardown", "box", NULL);
	sbx_events_close(events);
	assert_non_null(strstr(waiting.buf, "teardown"));
	sbx_events_read(events, &other, &late.base, 0);
	assert_non_null(strstr(late.buf, "teardown"));
	sbx_events_read(events, &other, &end.base, 0);
	assert_true(end.given);
	assert_int_equal(end.len, 0);
}

static void destroy_answers_who_waits_with_eof(void **state)
{
	struct answer a = new_answer(4096);
	struct sbx_events_reader cursor = {0};

	(void)state;
	sbx_events_read(events, &cursor, &a.base, 0);
	sbx_events_destroy(events);
	events = NULL;
	assert_true(a.given);
	assert_int_equal(a.len, 0);
	assert_int_equal(a.error, 0);
}

#define LOG(fn)    cmocka_unit_test_setup_teardown(fn, set_up, tear_down)
#define EVENTS(fn) cmocka_unit_test_setup_teardown(fn, set_up_events, tear_down_events)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        LOG(a_record_stands_in_both_files),
	        LOG(files_are_private_and_the_copy_survives_removal),
	        LOG(an_existing_log_is_continued_after_a_torn_line),
	        LOG(size_and_read_agree_with_the_file),
	        LOG(text_that_is_not_utf8_leaves_the_line_valid),
	        LOG(a_renamed_sandbox_goes_on_under_its_new_name),
	        LOG(a_link_or_fifo_in_the_place_of_a_log_is_refused),
	        LOG(a_state_directory_that_is_not_there_is_an_error),
	        LOG(records_of_several_threads_do_not_mix),
	        EVENTS(a_reader_gets_what_was_before_it),
	        EVENTS(a_mark_is_between_what_was_and_what_comes),
	        EVENTS(where_nothing_was_the_mark_comes_at_once),
	        EVENTS(who_fell_behind_still_gets_the_mark),
	        EVENTS(both_get_the_same_line),
	        EVENTS(a_line_may_be_read_in_pieces),
	        EVENTS(a_waiting_read_is_answered_by_the_loop),
	        EVENTS(nonblocking_read_answers_eagain),
	        EVENTS(a_signal_ends_the_wait_with_eintr),
	        EVENTS(only_the_last_thousand_are_kept),
	        EVENTS(after_close_the_end_is_reached),
	        EVENTS(destroy_answers_who_waits_with_eof),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
