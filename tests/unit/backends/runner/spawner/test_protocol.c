/* The settings of the mount, as the daemon sends them to the process that runs commands. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "backends/runner/spawner/protocol.h"
#include "sandboxfs/cleanup.h"

static void assert_list(const struct sbx_strings *list, size_t n, const char *first)
{
	assert_int_equal(list->n, n);
	if (n)
		assert_string_equal(list->items[0], first);
	assert_null(list->items[n]);
}

static void settings_arrive_as_they_are(void **state)
{
	char *shown[] = {"/home/u/.cargo", "/home/u/go", NULL}, *hidden[] = {"/etc/ssh", NULL};
	const struct sbx_settings settings = {.isolation = "require",
	                                      .net = "allow:example.org",
	                                      .mountpoint = "/mnt",
	                                      .state_dir = "/state",
	                                      .shown = {.items = shown, .n = 2},
	                                      .hide_paths = {.items = hidden, .n = 1},
	                                      .limits.memory_mb = 256,
	                                      .cpu_percent = 150};
	struct isolation_settings got;
	struct spawn_start start = {0};
	_cleanup_fd_ int fd = -1;

	(void)state;
	assert_int_equal(spawn_encode_settings(&settings, &start, &fd), 0);
	assert_int_equal(spawn_decode_settings(&start, fd, &got), 0);
	assert_true(isolation_is(&got, "require") && isolation_net_is_allow(&got));
	assert_string_equal(got.mountpoint, "/mnt");
	assert_string_equal(got.state_dir, "/state");
	assert_null(got.source_abs);
	assert_null(got.cache_dir);
	assert_list(&got.shown, 2, "/home/u/.cargo");
	assert_string_equal(got.shown.items[1], "/home/u/go");
	assert_list(&got.covered, 0, NULL);
	assert_list(&got.ro_paths, 0, NULL);
	assert_list(&got.rw_paths, 0, NULL);
	assert_list(&got.hide_paths, 1, "/etc/ssh");
	assert_int_equal(got.memory_mb, 256);
	assert_int_equal(got.cpu_percent, 150);
	spawn_settings_release(&got);
}

static void what_was_not_set_is_the_default(void **state)
{
	const struct sbx_settings settings = {0};
	struct isolation_settings got;
	struct spawn_start start = {0};
	_cleanup_fd_ int fd = -1;

	(void)state;
	assert_int_equal(spawn_encode_settings(&settings, &start, &fd), 0);
	assert_int_equal(spawn_decode_settings(&start, fd, &got), 0);
	assert_true(isolation_is(&got, "auto"));
	assert_false(isolation_net_is_host(&got) || isolation_net_is_allow(&got));
	spawn_settings_release(&got);
}

static void counts_that_disagree_with_the_strings_are_refused(void **state)
{
	char *paths[] = {"/a", "/b", NULL};
	const struct sbx_settings settings = {.ro_paths = {.items = paths, .n = 2}};
	struct isolation_settings got;
	struct spawn_start start = {0}, wrong;
	_cleanup_fd_ int fd = -1;

	(void)state;
	assert_int_equal(spawn_encode_settings(&settings, &start, &fd), 0);
	wrong = start;
	wrong.n_ro = 1;
	assert_int_equal(spawn_decode_settings(&wrong, fd, &got), -EPROTO);
	wrong.n_ro = 3;
	assert_int_equal(spawn_decode_settings(&wrong, fd, &got), -EPROTO);
	wrong.n_ro = UINT32_MAX;
	assert_int_equal(spawn_decode_settings(&wrong, fd, &got), -EPROTO);
	wrong = start;
	wrong.payload--;
	assert_int_equal(spawn_decode_settings(&wrong, fd, &got), -EPROTO);
	wrong.payload = SPAWN_MAX + 1;
	assert_int_equal(spawn_decode_settings(&wrong, fd, &got), -EPROTO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(settings_arrive_as_they_are),
	        cmocka_unit_test(what_was_not_set_is_the_default),
	        cmocka_unit_test(counts_that_disagree_with_the_strings_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
