#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "backends/vercel/vercel_impl.h"
#include "sandboxfs/cleanup.h"
#include "tests/lib/scratch.h"
#include "tests/lib/vercel_fixture.h"

static struct sbx_machine *m;

static const char *put_path(unsigned number)
{
	static char path[512];

	snprintf(path, sizeof(path), "%s/in/%u", m->room, number);
	return path;
}

static int put(const struct sbx_machine_file *files, size_t n)
{
	struct vercel_flight f = {.put = {.files = files, .n = n}};

	vercel_begin_put(m, &f);
	return vercel_await(&f);
}

static struct sbx_machine_file file_of(unsigned number, const char *text)
{
	return (struct sbx_machine_file){number, {.data = text, .size = strlen(text)}};
}

/* ---- files ---- */

static void write_file_takes_one_request(void **state)
{
	const struct sbx_machine_file files[] = {file_of(0, "one\n"), file_of(7, "")};

	(void)state;
	m = vercel_made(NULL);
	vercel_forget();
	assert_int_equal(put(files, 2), 0);
	assert_int_equal(vercel_count("write"), 1);
	assert_int_equal(vercel_count("all"), 1);
	scratch_expect(put_path(0), "one\n");
	scratch_expect(put_path(7), "");
	vercel_runs(m, "cat /var/tmp/sandboxfs-*/in/0 | head -n 1", "one\n");
	vercel_drop(m);
}

static void a_thousand_take_one_request(void **state)
{
	struct sbx_machine_file *files = calloc(1000, sizeof(*files));
	char *text = malloc(4097);

	(void)state;
	memset(text, 'x', 4096);
	text[4096] = '\0';
	for (unsigned i = 0; i < 1000; i++)
		files[i] = file_of(i, text);
	m = vercel_made(NULL);
	vercel_forget();
	assert_int_equal(put(files, 1000), 0);
	assert_int_equal(vercel_count("all"), 1);
	scratch_expect(put_path(999), text);
	free(files);
	free(text);
	vercel_drop(m);
}

/* Bytes of a file, from somewhere in it, of more than one piece. */
static void a_file_is_read_from_its_descriptor(void **state)
{
	struct sbx_machine_file file = {.number = 3};
	_cleanup_fd_ int fd = open(scratch_path("large"), O_CREAT | O_TRUNC | O_RDWR, 0600);
	char *bytes = malloc(300000), *got = malloc(300000);
	FILE *f;

	(void)state;
	for (size_t i = 0; i < 300000; i++)
		bytes[i] = (char)(i * 7 + i / 251);
	assert_int_equal(write(fd, bytes, 300000), 300000);
	file.bytes = (struct sbx_http_bytes){.fd = fd, .offset = 5, .size = 299000};
	m = vercel_made(NULL);
	assert_int_equal(put(&file, 1), 0);
	f = fopen(put_path(3), "r");
	assert_non_null(f);
	assert_int_equal(fread(got, 1, 300000, f), 299000);
	fclose(f);
	assert_memory_equal(got, bytes + 5, 299000);
	free(bytes);
	free(got);
	vercel_drop(m);
}

static void an_upload_may_be_spooled(void **state)
{
	const struct sbx_machine_file file = file_of(1, "spooled");

	(void)state;
	scratch_mkdir(scratch_path("spool"));
	vercel_config.spool = scratch_path("spool");
	vercel_provide();
	m = vercel_made(NULL);
	assert_int_equal(put(&file, 1), 0);
	scratch_expect(put_path(1), "spooled");
	assert_int_equal(scratch_count(scratch_path("spool")), 0);
	vercel_drop(m);
}

static void what_is_there_is_replaced(void **state)
{
	const struct sbx_machine_file first = file_of(1, "a longer text"),
	                              second = file_of(1, "short");

	(void)state;
	m = vercel_made(NULL);
	assert_int_equal(put(&first, 1), 0);
	assert_int_equal(put(&second, 1), 0);
	scratch_expect(put_path(1), "short");
	vercel_drop(m);
}

static void nothing_takes_no_request(void **state)
{
	(void)state;
	m = vercel_made(NULL);
	vercel_forget();
	assert_int_equal(put(NULL, 0), 0);
	assert_int_equal(vercel_count("all"), 0);
	vercel_drop(m);
}

static void a_file_that_has_become_shorter_is_told(void **state)
{
	struct sbx_machine_file file = {.number = 3};
	_cleanup_fd_ int fd = open(scratch_path("short"), O_CREAT | O_TRUNC | O_RDWR, 0600);

	(void)state;
	assert_int_equal(write(fd, "abc", 3), 3);
	file.bytes = (struct sbx_http_bytes){.fd = fd, .size = 100};
	m = vercel_made(NULL);
	vercel_forget();
	assert_int_equal(put(&file, 1), -EIO);
	vercel_said_to(EIO, "it has become shorter");
	assert_int_equal(vercel_count("all"), 0);
	vercel_drop(m);
}

static void packing_is_given_up(void **state)
{
	const struct sbx_machine_file file = file_of(1, "x");
	struct sbx_error err = SBX_ERROR_INIT;
	atomic_bool given_up = true;
	uint64_t size;
	int fd;

	(void)state;
	assert_int_equal(vercel_tar(&file, 1, "/in", NULL, &given_up, &fd, &size, &err), -EINTR);
}

static void no_descriptor_is_left(void **state)
{
	const struct sbx_machine_file file = file_of(1, "x");
	int before;

	(void)state;
	m = vercel_made(NULL);
	assert_int_equal(put(&file, 1), 0);
	before = scratch_descriptors();
	for (unsigned i = 0; i < 5; i++)
		assert_int_equal(put(&file, 1), 0);
	assert_true(scratch_descriptors() <= before + 1);
	vercel_drop(m);
}

/* ---- faults ---- */

static void it_is_repeated(void **state)
{
	static const char *const faults[] = {"lost", "reset", "cut"};
	const struct sbx_machine_file file = file_of(1, "x");

	(void)state;
	m = vercel_made(NULL);
	for (size_t i = 0; i < SBX_ARRAY_SIZE(faults); i++) {
		vercel_forget();
		vercel_fault("write", faults[i], "");
		assert_int_equal(put(&file, 1), 0);
		assert_int_equal(vercel_count("write"), 2);
	}
	vercel_fault("write", "status", ", \"status\": 502");
	assert_int_equal(put(&file, 1), 0);
	vercel_fault("write", "later", ", \"seconds\": 1");
	assert_int_equal(put(&file, 1), 0);
	vercel_drop(m);
}

static void a_full_disk_is_told(void **state)
{
	const struct sbx_machine_file file = file_of(1, "x");

	(void)state;
	m = vercel_made(NULL);
	vercel_fault("write", "status",
	             ", \"status\": 400, \"body\": \"{\\\"error\\\": {\\\"code\\\": "
	             "\\\"file_error\\\", \\\"message\\\": \\\"error writing file: No space left "
	             "on device\\\"}}\"");
	assert_int_equal(put(&file, 1), -ENOSPC);
	vercel_said_to(ENOSPC, "No space left on device");
	vercel_fault("write", "status",
	             ", \"status\": 400, \"body\": \"{\\\"error\\\": {\\\"code\\\": "
	             "\\\"file_error\\\", \\\"message\\\": \\\"error writing file\\\"}}\"");
	assert_int_equal(put(&file, 1), -EREMOTEIO);
	vercel_drop(m);
}

static void too_much_at_once_is_told(void **state)
{
	const struct sbx_machine_file file = file_of(1, "x");

	(void)state;
	m = vercel_made(NULL);
	vercel_fault("write", "status", ", \"status\": 413");
	assert_int_equal(put(&file, 1), -EFBIG);
	vercel_drop(m);
}

static void one_that_has_stopped_is_woken(void **state)
{
	const struct sbx_machine_file file = file_of(1, "awake");

	(void)state;
	m = vercel_made(NULL);
	vercel_tell("state", "{\"name\": \"%s\", \"to\": \"stopped\"}", vercel_name_of(m));
	vercel_forget();
	assert_int_equal(put(&file, 1), 0);
	assert_int_equal(vercel_count("write"), 2);
	assert_int_equal(vercel_count("all"), 3);
	scratch_expect(put_path(1), "awake");
	vercel_drop(m);
}

static void one_that_is_gone_is_told(void **state)
{
	const struct sbx_machine_file file = file_of(1, "x");

	(void)state;
	m = vercel_made(NULL);
	vercel_fault("write", "gone", "");
	assert_int_equal(put(&file, 1), -ESTALE);
	vercel_said_to(ESTALE, "the sandbox is no more at Vercel");
	vercel_drop(m);
}

static void it_is_given_up(void **state)
{
	const struct sbx_machine_file file = file_of(1, "x");
	struct vercel_flight f = {.put = {.files = &file, .n = 1}};

	(void)state;
	m = vercel_made(NULL);
	vercel_forget();
	vercel_fault("write", "stall", "");
	vercel_begin_put(m, &f);
	while (vercel_count("write") == 0)
		usleep(1000);
	m->provider->impl->cancel_put(m, &f.put);
	assert_int_equal(vercel_await(&f), -EINTR);
	vercel_drop(m);
}

static void a_deadline_ends_it(void **state)
{
	const struct sbx_machine_file file = file_of(1, "x");
	struct vercel_flight f = {.put = {.files = &file, .n = 1, .deadline_ms = 300}};

	(void)state;
	m = vercel_made(NULL);
	vercel_fault("write", "stall", "");
	vercel_begin_put(m, &f);
	assert_int_equal(vercel_await(&f), -ETIMEDOUT);
	vercel_drop(m);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, vercel_set_up, vercel_tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        CASE(write_file_takes_one_request),
	        CASE(a_thousand_take_one_request),
	        CASE(a_file_is_read_from_its_descriptor),
	        CASE(an_upload_may_be_spooled),
	        CASE(what_is_there_is_replaced),
	        CASE(nothing_takes_no_request),
	        CASE(a_file_that_has_become_shorter_is_told),
	        cmocka_unit_test(packing_is_given_up),
	        CASE(no_descriptor_is_left),
	        CASE(it_is_repeated),
	        CASE(a_full_disk_is_told),
	        CASE(too_much_at_once_is_told),
	        CASE(one_that_has_stopped_is_woken),
	        CASE(one_that_is_gone_is_told),
	        CASE(it_is_given_up),
	        CASE(a_deadline_ends_it),
	};

	return cmocka_run_group_tests(tests, vercel_servers_start, vercel_servers_stop);
}
