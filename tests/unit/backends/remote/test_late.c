#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/remote/late.h"
#include "backends/remote/provider.h"
#include "sandboxfs/loop.h"
#include "sandboxfs/pool.h"
#include "tests/lib/scratch.h"

/* ---- a provider that has one machine, or none ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the next two */
static const char *there;                                /* its name */
static bool is_used, unmake_fails;
static atomic_uint finds, unmakes, removals;

static int find(struct sbx_provider *p, const char *label,
                int (*fn)(const char *name, const char *handle, int64_t made_ms, void *data),
                void *data, struct sbx_error *err)
{
	const char *name;

	(void)p;
	(void)err;
	pthread_mutex_lock(&lock);
	name = there;
	pthread_mutex_unlock(&lock);
	atomic_fetch_add(&finds, 1);
	if (strcmp(label, "ours") != 0)
		return -EINVAL;
	return name ? fn(name, "handle", 0, data) : 0;
}

static int unmake(struct sbx_provider *p, const char *name, const char *handle,
                  atomic_bool *cancelled, struct sbx_error *err)
{
	bool fails;

	(void)p;
	(void)cancelled;
	(void)err;
	pthread_mutex_lock(&lock);
	fails = unmake_fails || strcmp(handle, "handle") != 0 || strcmp(name, there) != 0;
	if (!fails)
		there = NULL;
	pthread_mutex_unlock(&lock);
	atomic_fetch_add(&unmakes, 1);
	return fails ? -EREMOTEIO : 0;
}

static const struct sbx_provider_impl impl = {.name = "late", .find = find, .unmake = unmake};
static struct sbx_provider provider = {.impl = &impl};

static bool used(const char *name, void *data)
{
	bool r;

	(void)name;
	(void)data;
	pthread_mutex_lock(&lock);
	r = is_used;
	pthread_mutex_unlock(&lock);
	return r;
}

static void removed(const char *name, void *data)
{
	(void)data;
	if (strcmp(name, "sbx-a") == 0)
		atomic_fetch_add(&removals, 1);
}

/* ---- a mount ---- */

static struct sbx_loop *loop;
static struct sbx_pool *pool;
static pthread_t thread;
static struct remote_late *late;
static atomic_bool ending;
static int state_dir;

static void *run_loop(void *data)
{
	sbx_loop_run(data);
	return NULL;
}

static void mount(void)
{
	struct remote_late_config config = {.provider = &provider,
	                                    .label = "ours",
	                                    .state = state_dir,
	                                    .ending = &ending,
	                                    .first_ms = 1,
	                                    .used = used,
	                                    .removed = removed};

	ending = false;
	assert_int_equal(sbx_loop_create(&loop), 0);
	assert_int_equal(sbx_pool_create_wide(8, false, &pool), 0);
	config.loop = loop;
	config.pool = pool;
	assert_int_equal(remote_late_open(&config, &late), 0);
	remote_late_begin(late);
	assert_int_equal(pthread_create(&thread, NULL, run_loop, loop), 0);
}

static void never(struct sbx_timer *t)
{
	(void)t;
	fail();
}

/* What ends behind it has timers as well, which are compared with all that are left. */
static void unmount(void)
{
	struct sbx_timer other = {.fn = never};

	ending = true;
	sbx_loop_stop(loop);
	pthread_join(thread, NULL);
	sbx_pool_destroy(pool);
	remote_late_close(late);
	sbx_loop_timer_set(loop, &other, UINT32_MAX);
	assert_int_equal(other.slot, 0);
	sbx_loop_timer_cancel(loop, &other);
	sbx_loop_destroy(loop);
}

static int set_up(void **state)
{
	(void)state;
	there = NULL;
	is_used = unmake_fails = false;
	finds = unmakes = removals = 0;
	state_dir = open(scratch_make(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	mount();
	return state_dir < 0;
}

static int tear_down(void **state)
{
	(void)state;
	unmount();
	close(state_dir);
	scratch_remove();
	return 0;
}

static void until(const atomic_uint *n, unsigned least)
{
	while (atomic_load(n) < least)
		usleep(1000);
}

static void set(const char *name, bool use, bool fails)
{
	pthread_mutex_lock(&lock);
	there = name;
	is_used = use;
	unmake_fails = fails;
	pthread_mutex_unlock(&lock);
}

/* ---- tests ---- */

static void one_that_comes_late_is_removed(void **state)
{
	(void)state;
	remote_late_note(late, "sbx-a");
	until(&finds, 2);
	assert_true(scratch_exists(scratch_path("late/sbx-a")));
	set("sbx-a", false, false);
	until(&removals, 1);
	assert_int_equal(atomic_load(&unmakes), 1);
	assert_int_equal(scratch_count(scratch_path("late")), 0);
}

static void one_that_cannot_be_removed_is_tried_again(void **state)
{
	(void)state;
	set("sbx-a", false, true);
	remote_late_note(late, "sbx-a");
	until(&unmakes, 2);
	assert_true(scratch_exists(scratch_path("late/sbx-a")));
	set("sbx-a", false, false);
	until(&removals, 1);
	assert_int_equal(scratch_count(scratch_path("late")), 0);
}

static void the_next_mount_looks_for_it(void **state)
{
	(void)state;
	remote_late_note(late, "sbx-a");
	until(&finds, 1);
	unmount();
	set("sbx-a", false, false);
	mount();
	until(&removals, 1);
	assert_int_equal(scratch_count(scratch_path("late")), 0);
}

static void one_that_is_used_is_left(void **state)
{
	(void)state;
	set("sbx-a", true, false);
	remote_late_note(late, "sbx-a");
	until(&finds, 3);
	assert_int_equal(atomic_load(&unmakes), 0);
	assert_true(scratch_exists(scratch_path("late/sbx-a")));
}

static void one_that_was_not_noted_is_left(void **state)
{
	(void)state;
	set("sbx-b", false, false);
	remote_late_note(late, "sbx-a");
	until(&finds, 3);
	assert_int_equal(atomic_load(&unmakes), 0);
	assert_true(scratch_exists(scratch_path("late/sbx-a")));
}

static void after_an_hour_it_is_given_up(void **state)
{
	const struct timespec old[2] = {{.tv_sec = time(NULL) - 3700},
	                                {.tv_sec = time(NULL) - 3700}};

	(void)state;
	remote_late_note(late, "sbx-a");
	until(&finds, 1);
	unmount();
	assert_int_equal(utimensat(state_dir, "late/sbx-a", old, 0), 0);
	mount();
	while (scratch_count(scratch_path("late")) != 0)
		usleep(1000);
	assert_int_equal(atomic_load(&removals), 0);
}

static void without_a_place_for_the_note_it_is_looked_for_by_this_mount(void **state)
{
	(void)state;
	scratch_write(scratch_path("late"), "in the way");
	set("sbx-a", false, false);
	remote_late_note(late, "sbx-a");
	until(&removals, 1);
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        CASE(one_that_comes_late_is_removed),
	        CASE(one_that_cannot_be_removed_is_tried_again),
	        CASE(the_next_mount_looks_for_it),
	        CASE(one_that_is_used_is_left),
	        CASE(one_that_was_not_noted_is_left),
	        CASE(after_an_hour_it_is_given_up),
	        CASE(without_a_place_for_the_note_it_is_looked_for_by_this_mount),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("late", tests, NULL, NULL);
}
