/* Objects that are written beside are there when they have been waited for, or one that is not is
 * named. */
#include "backends/git/object_writer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/git/durable.h"
#include "backends/git/repository.h"
#include "sandboxfs/cleanup.h"
#include "tests/lib/repo.h"
#include "tests/lib/scratch.h"

#define MANY  200
#define BYTES ((size_t)100000) /* all of them: more than waits in memory */

static git_repository *repo;
static git_odb *odb;
static struct sbx_object_writer *writer;

static int setup(void **state)
{
	(void)state;
	assert_non_null(scratch_make());
	repo_setup();
	assert_int_equal(sbx_git_init(), 0);
	repo_init(scratch_path("r"), true);
	assert_int_equal(git_repository_open_bare(&repo, scratch_path("r")), 0);
	assert_int_equal(git_repository_odb(&odb, repo), 0);
	assert_int_equal(sbx_object_writer_open(odb, NULL, &writer), 0);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	sbx_object_writer_close(writer);
	git_odb_free(odb);
	git_repository_free(repo);
	sbx_git_shutdown();
	repo_teardown();
	scratch_remove();
	return 0;
}

static git_oid put(const char *data, size_t len, const char *name)
{
	git_oid oid;

	assert_int_equal(sbx_object_writer_put(writer, GIT_OBJECT_BLOB, data, len, name, &oid), 0);
	return oid;
}

static void assert_has(const git_oid *oid, const char *data, size_t len)
{
	git_odb_object *object;

	assert_int_equal(git_odb_read(&object, odb, oid), 0);
	assert_int_equal(git_odb_object_size(object), len);
	assert_memory_equal(git_odb_object_data(object), data, len);
	git_odb_object_free(object);
}

static void what_was_put_is_there_after_waiting(void **state)
{
	_cleanup_free_ char *data = calloc(1, BYTES);
	struct sbx_error err = SBX_ERROR_INIT;
	git_oid oids[MANY], empty;

	(void)state;
	assert_int_equal(sbx_object_writer_wait(writer, &err), 0);
	for (int i = 0; i < MANY; i++) {
		snprintf(data, BYTES, "%d", i);
		oids[i] = put(data, BYTES, "many");
	}
	empty = put("", 0, "empty");
	assert_int_equal(sbx_object_writer_wait(writer, &err), 0);
	for (int i = 0; i < MANY; i++) {
		memset(data, 0, 16);
		snprintf(data, BYTES, "%d", i);
		assert_has(&oids[i], data, BYTES);
	}
	assert_has(&empty, "", 0);
	oids[0] = put("again", 5, "again");
	assert_int_equal(sbx_object_writer_wait(writer, &err), 0);
	assert_has(&oids[0], "again", 5);
}

/* Its bytes are the caller's again as soon as it has been put. */
static void data_is_copied(void **state)
{
	char data[] = "mine";
	git_oid oid = put(data, 4, "x");

	(void)state;
	memset(data, 0, sizeof(data));
	assert_int_equal(sbx_object_writer_wait(writer, NULL), 0);
	assert_has(&oid, "mine", 4);
}

static void what_fails_is_named(void **state)
{
	struct sbx_error err = SBX_ERROR_INIT;
	char *objects = strdup(scratch_path("r/objects")), *aside = strdup(scratch_path("r/aside"));

	(void)state;
	assert_int_equal(rename(objects, aside), 0);
	scratch_write(objects, "");
	put("1", 1, "src/first");
	assert_true(sbx_object_writer_wait(writer, &err) < 0);
	assert_non_null(strstr(err.text, "src/first"));
	/* And so it stays, because what was put before is not there. */
	assert_int_equal(unlink(objects), 0);
	assert_int_equal(rename(aside, objects), 0);
	put("3", 1, "src/third");
	assert_true(sbx_object_writer_wait(writer, &err) < 0);
	free(objects);
	free(aside);
}

static void closing_does_not_wait_for_what_is_left(void **state)
{
	_cleanup_free_ char *data = calloc(1, BYTES);

	(void)state;
	for (int i = 0; i < 50; i++)
		put(data, BYTES - (size_t)i, "left");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(what_was_put_is_there_after_waiting, setup,
	                                        teardown),
	        cmocka_unit_test_setup_teardown(data_is_copied, setup, teardown),
	        cmocka_unit_test_setup_teardown(what_fails_is_named, setup, teardown),
	        cmocka_unit_test_setup_teardown(closing_does_not_wait_for_what_is_left, setup,
	                                        teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
