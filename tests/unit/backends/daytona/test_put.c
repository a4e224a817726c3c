#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "backends/daytona/daytona_impl.h"
#include "sandboxfs/cleanup.h"
#include "tests/lib/daytona_fixture.h"
#include "tests/lib/scratch.h"

#define MANY 1000

static int try_put(struct sbx_machine *m, const struct sbx_machine_file *files, size_t n)
{
	struct daytona_flight f = {.put = {.files = files, .n = n}};

	daytona_begin_put(m, &f);
	return daytona_await(&f);
}

static const struct sbx_machine_file one = {.number = 1, .bytes = {.data = "one", .size = 3}};

static const char *room(struct sbx_machine *m, const char *name)
{
	return scratch_path("boxes/%s/in/%s", m->room + strlen(scratch_path("boxes/")), name);
}

static void files_are_put_under_numbers(void **state)
{
	struct sbx_machine *m = daytona_made(NULL);
	_cleanup_fd_ int fd = memfd_create("test", MFD_CLOEXEC);
	const struct sbx_machine_file files[] = {
	        {.number = 7, .bytes = {.data = "seven\0\r\n--\xff", .size = 11}},
	        {.number = 4294967295u, .bytes = {.fd = fd, .offset = 4, .size = 6}},
	        {.number = 0, .bytes = {.data = "", .size = 0}},
	};

	(void)state;
	assert_int_equal(write(fd, "the middle of it", 16), 16);
	assert_int_equal(try_put(m, files, SBX_ARRAY_SIZE(files)), 0);
	assert_int_equal(daytona_count("upload"), 1);
	daytona_runs(m, "cd ~/.sandboxfs/in && ls && od -An -c 7",
	             "0\n4294967295\n7\n   s   e   v   e   n  \\0  \\r  \\n   -   - 377\n");
	scratch_expect(room(m, "4294967295"), "middle");
	scratch_expect(room(m, "0"), "");
	daytona_drop(m);
}

static void many_are_one_request(void **state)
{
	static struct sbx_machine_file files[MANY];
	static char text[4096];
	struct sbx_machine *m = daytona_made(NULL);

	(void)state;
	memset(text, 'x', sizeof(text));
	for (unsigned i = 0; i < MANY; i++)
		files[i] = (struct sbx_machine_file){.number = i,
		                                     .bytes = {.data = text, .size = sizeof(text)}};
	daytona_forget();
	assert_int_equal(try_put(m, files, MANY), 0);
	assert_int_equal(daytona_count("all"), 1);
	daytona_runs(m, "cd ~/.sandboxfs/in && ls | wc -l && cat * | wc -c", "1000\n4096000\n");
	daytona_drop(m);
}

static void none_is_no_request(void **state)
{
	struct sbx_machine *m = daytona_made(NULL);

	(void)state;
	daytona_forget();
	assert_int_equal(try_put(m, NULL, 0), 0);
	assert_int_equal(daytona_count("all"), 0);
	daytona_drop(m);
}

static void a_lost_answer_is_asked_for_again(void **state)
{
	static const char *const faults[] = {"lost", "cut", "reset"};
	struct sbx_machine *m = daytona_made(NULL);

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(faults); i++) {
		daytona_forget();
		daytona_tell("fault", "{\"op\": \"upload\", \"fault\": \"%s\"}", faults[i]);
		assert_int_equal(try_put(m, &one, 1), 0);
		assert_int_equal(daytona_count("upload"), 2);
	}
	daytona_drop(m);
}

static void what_is_refused_is_told(void **state)
{
	static const struct {
		const char *fault;
		int code;
	} rows[] = {
	        {"\"status\", \"status\": 500, \"times\": 3", EREMOTEIO},
	        {"\"status\", \"status\": 413", EFBIG},
	        {"\"status\", \"status\": 401", EKEYREJECTED},
	        {"\"html\"", EPROTO},
	        {"\"answer\", \"body\": \"{}\"", EREMOTEIO},
	        {"\"answer\", \"body\": \"{\\\"files\\\": null}\"", EREMOTEIO},
	        {"\"answer\", \"body\": \"{\\\"files\\\": [7]}\"", EREMOTEIO},
	        {"\"answer\", \"body\": \"{\\\"files\\\": [{\\\"bytes\\\": 2}]}\"", EREMOTEIO},
	        {"\"echo\"", EREMOTEIO},
	        {"\"status\", \"status\": 400, \"body\": \"{\\\"errors\\\": [\\\"/x: write: no "
	         "space "
	         "left on device\\\"], \\\"files\\\": null}\"",
	         ENOSPC},
	};
	struct sbx_machine *m = daytona_made(NULL);

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(rows); i++) {
		daytona_forget();
		daytona_tell("fault", "{\"op\": \"upload\", \"fault\": %s}", rows[i].fault);
		if (try_put(m, &one, 1) != -rows[i].code)
			fail_msg("%s: %s", rows[i].fault, daytona_error()->text);
	}
	daytona_drop(m);
}

/* What is in the way is the upload's own matter: nobody looks whether the sandbox is up. */
static void a_directory_in_the_way_is_told(void **state)
{
	struct sbx_machine *m = daytona_made(NULL);

	(void)state;
	daytona_runs(m, "mkdir -p ~/.sandboxfs/in/1", "");
	daytona_forget();
	assert_int_equal(try_put(m, &one, 1), -EREMOTEIO);
	assert_non_null(strstr(daytona_error()->text, "is a directory"));
	assert_int_equal(daytona_count("look"), 0);
	daytona_drop(m);
}

static void a_file_that_has_become_shorter_is_told(void **state)
{
	struct sbx_machine *m = daytona_made(NULL);
	_cleanup_fd_ int fd = memfd_create("test", MFD_CLOEXEC);
	const struct sbx_machine_file file = {.number = 1, .bytes = {.fd = fd, .size = 10}};

	(void)state;
	assert_int_equal(try_put(m, &file, 1), -EIO);
	daytona_drop(m);
}

static void one_that_is_gone_is_told(void **state)
{
	struct sbx_machine *m = daytona_made(NULL);

	(void)state;
	daytona_tell("fault", "{\"op\": \"upload\", \"fault\": \"gone\"}");
	assert_int_equal(try_put(m, &one, 1), -ESTALE);
	daytona_provider->impl->release(m);
}

static void one_that_sleeps_is_woken(void **state)
{
	struct sbx_machine *m;

	(void)state;
	daytona_config.kept = true;
	daytona_provide();
	m = daytona_made(NULL);
	daytona_tell("fault", "{\"op\": \"upload\", \"fault\": \"asleep\"}");
	assert_int_equal(try_put(m, &one, 1), 0);
	assert_int_equal(daytona_count("start"), 1);
	scratch_expect(room(m, "1"), "one");
	daytona_drop(m);
}

static void it_is_given_up(void **state)
{
	struct sbx_machine *m = daytona_made(NULL);
	struct daytona_flight f = {.put = {.files = &one, .n = 1}};

	(void)state;
	daytona_tell("fault", "{\"op\": \"upload\", \"fault\": \"stall\"}");
	daytona_begin_put(m, &f);
	while (daytona_count("upload") == 0)
		usleep(10000);
	m->provider->impl->cancel_put(m, &f.put);
	assert_int_equal(daytona_await(&f), -EINTR);
	m->provider->impl->cancel_put(m, &f.put);
	daytona_drop(m);
}

static void silence_has_an_end(void **state)
{
	struct sbx_machine *m = daytona_made(NULL);
	struct daytona_flight f = {.put = {.files = &one, .n = 1, .deadline_ms = 300}};

	(void)state;
	daytona_tell("fault", "{\"op\": \"upload\", \"fault\": \"stall\"}");
	daytona_begin_put(m, &f);
	assert_int_equal(daytona_await(&f), -ETIMEDOUT);
	daytona_drop(m);
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, daytona_set_up, daytona_tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        CASE(files_are_put_under_numbers),
	        CASE(many_are_one_request),
	        CASE(none_is_no_request),
	        CASE(a_lost_answer_is_asked_for_again),
	        CASE(what_is_refused_is_told),
	        CASE(a_directory_in_the_way_is_told),
	        CASE(a_file_that_has_become_shorter_is_told),
	        CASE(one_that_is_gone_is_told),
	        CASE(one_that_sleeps_is_woken),
	        CASE(it_is_given_up),
	        CASE(silence_has_an_end),
	};

	return cmocka_run_group_tests(tests, daytona_servers_start, daytona_servers_stop);
}
