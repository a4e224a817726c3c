/*
 * Control groups against an imitation of the kernel's, since few machines that run tests delegate
 * theirs; and what can be had of the real ones.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../lib/fake_cgroup.h"
#include "../lib/scratch.h"
#include "sandboxfs/cleanup.h"

#define STRANGER 77777

static struct cgroup group;
static struct cgroup_where where;
static const struct isolation_settings mount_settings;

static void start(const char *controllers, const char *own)
{
	snprintf(where.root, sizeof(where.root), "%s", fake_cgroup_start(controllers));
	snprintf(where.own, sizeof(where.own), "%s", own);
	group = (struct cgroup){.kernel = &fake_cgroup_kernel, .host = -1, .dir = -1};
}

/* /scope, ours alone, as systemd delegates one. */
static void start_in_scope(void)
{
	start("memory pids cpu io", "/scope");
	fake_cgroup_write("", "cgroup.subtree_control", "+memory");
	fake_cgroup_write("", "cgroup.subtree_control", "+pids");
	fake_cgroup_write("", "cgroup.subtree_control", "+cpu");
	fake_cgroup_add("scope");
	fake_cgroup_put("scope", getpid());
}

static void open_group(void)
{
	cgroup_open(&group, &where, (pid_t[]){getpid()}, 1);
}

/* "HOST/sandboxfs.N/REST" */
static const char *ours(const char *host, const char *rest)
{
	static char path[256];

	snprintf(path, sizeof(path), "%s%ssandboxfs.%d%s", host, *host ? "/" : "", getpid(), rest);
	return path;
}

static void assert_file(const char *path, const char *file, const char *text)
{
	const char *have = fake_cgroup_read(path, file);

	assert_non_null(have);
	assert_string_equal(have, text);
}

static void assert_self(const char *path)
{
	char text[16];

	snprintf(text, sizeof(text), "%d", getpid());
	assert_file(path, "cgroup.procs", text);
}

static int set_up(void **state)
{
	(void)state;
	scratch_make();
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	cgroup_close(&group);
	scratch_remove();
	return 0;
}

/* --- finding it ------------------------------------------------------------------------------- */

static int find(const char *mountinfo, const char *self)
{
	scratch_write(scratch_path("mountinfo"), mountinfo);
	scratch_write(scratch_path("self"), self);
	return cgroup_find(scratch_path("mountinfo"), scratch_path("self"), &where);
}

#define TMPFS   "20 1 0:5 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
#define UNIFIED "21 1 0:6 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
#define HYBRID  "22 1 0:7 / /sys/fs/cgroup/unified rw - cgroup2 cgroup rw\n"
#define OTHERS  "23 1 0:8 /other /mnt rw - cgroup2 cgroup rw\n"

static void the_hierarchy_and_our_place_in_it_are_found(void **state)
{
	(void)state;
	assert_int_equal(find(UNIFIED, "0::/user.slice/a.scope\n"), 0);
	assert_string_equal(where.root, "/sys/fs/cgroup");
	assert_string_equal(where.own, "/user.slice/a.scope");
	assert_int_equal(find(TMPFS HYBRID, "8:pids:/x\n0::/\n"), 0);
	assert_string_equal(where.root, "/sys/fs/cgroup/unified");
	assert_string_equal(where.own, "/");
}

static void what_is_no_hierarchy_of_ours_is_not_found(void **state)
{
	(void)state;
	assert_int_equal(find(TMPFS, "0::/\n"), -ENOENT);
	assert_int_equal(find(OTHERS, "0::/\n"), -ENOENT);
	assert_int_equal(find(UNIFIED, "8:pids:/x\n"), -ENOENT);
	assert_int_equal(find(UNIFIED, "0::/../elsewhere\n"), -EXDEV);
}

/* --- a place for ours --------------------------------------------------------------------------
 */

static void in_a_scope_of_our_own_we_make_room_and_switch_on(void **state)
{
	(void)state;
	start_in_scope();
	open_group();
	assert_true(group.features.memory && group.features.pids && group.features.cpu);
	assert_string_equal(group.features.reason, "");
	assert_file("scope", "cgroup.procs", "");
	assert_file("scope", "cgroup.subtree_control", "memory pids cpu");
	assert_self(ours("scope", "/self"));
	assert_file(ours("scope", ""), "cgroup.subtree_control", "memory pids cpu");
}

static void closing_leaves_the_scope_as_it_was(void **state)
{
	(void)state;
	start_in_scope();
	open_group();
	close(cgroup_job_make(&group, "x", 1, &mount_settings));
	cgroup_close(&group);
	assert_self("scope");
	assert_file("scope", "cgroup.subtree_control", "");
	assert_null(fake_cgroup_read(ours("scope", ""), "cgroup.procs"));
}

static void with_a_stranger_in_it_the_scope_is_left_alone(void **state)
{
	(void)state;
	start_in_scope();
	fake_cgroup_put("scope", STRANGER);
	fake_cgroup_write("", "cgroup.subtree_control", "-memory");
	open_group();
	assert_file("scope", "cgroup.subtree_control", "");
	assert_non_null(strchr(fake_cgroup_read("scope", "cgroup.procs"), '\n'));
	/* but beside it there is room, with what is on there */
	assert_true(!group.features.memory && group.features.pids);
	assert_non_null(fake_cgroup_read(ours("", "/self"), "cgroup.procs"));
	assert_int_equal(cgroup_join(&group), 0);
	assert_self(ours("", "/self"));
	fake_cgroup_put("scope", getpid());
}

static void the_root_may_keep_its_processes(void **state)
{
	(void)state;
	start("memory pids", "/");
	fake_cgroup_put("", STRANGER);
	fake_cgroup_put("", getpid());
	open_group();
	assert_true(group.features.memory && group.features.pids && !group.features.cpu);
	assert_non_null(strchr(fake_cgroup_read("", "cgroup.procs"), '\n'));
}

static void without_memory_and_pids_there_is_a_reason_and_no_change(void **state)
{
	(void)state;
	start("hugetlb", "/");
	open_group();
	assert_int_equal(group.dir, -1);
	assert_true(!group.features.memory && !group.features.pids && !group.features.cpu);
	assert_non_null(strstr(group.features.reason, "ours is /"));
	assert_null(fake_cgroup_read(ours("", ""), "cgroup.procs"));
}

static int make_but_no_self(int dirfd, const char *path)
{
	return strcmp(path, "self") == 0 ? -EAGAIN : fake_cgroup_kernel.make(dirfd, path);
}

/* As with cgroup.max.descendants. */
static void where_there_is_room_for_one_alone_nothing_is_kept(void **state)
{
	struct cgroup_kernel kernel = fake_cgroup_kernel;

	(void)state;
	start_in_scope();
	kernel.make = make_but_no_self;
	group.kernel = &kernel;
	open_group();
	assert_int_equal(group.dir, -1);
	assert_true(!group.features.memory && *group.features.reason);
	assert_null(fake_cgroup_read(ours("scope", ""), "cgroup.procs"));
	group.kernel = &fake_cgroup_kernel;
}

static void probing_tells_the_same_and_changes_nothing(void **state)
{
	struct sbx_cgroup_features features;

	(void)state;
	start_in_scope();
	cgroup_probe(&where, (pid_t[]){getpid()}, 1, &features);
	assert_true(features.memory && features.pids && features.cpu);
	assert_self("scope");
	assert_file("scope", "cgroup.subtree_control", "");
	fake_cgroup_write("", "cgroup.subtree_control", "-memory");
	fake_cgroup_write("", "cgroup.subtree_control", "-pids");
	cgroup_probe(&where, (pid_t[]){STRANGER}, 1, &features);
	assert_true(!features.memory && *features.reason);
}

static void what_killed_mounts_left_is_removed_and_the_living_stay(void **state)
{
	(void)state;
	start("memory pids", "/");
	fake_cgroup_add("sandboxfs.1");
	fake_cgroup_add("sandboxfs.1/self");
	fake_cgroup_add("sandboxfs.1/box-a");
	fake_cgroup_add("sandboxfs.1/box-a/job-7");
	fake_cgroup_add("sandboxfs.2");
	fake_cgroup_write("sandboxfs.2", "cgroup.events", "populated 1\nfrozen 0");
	fake_cgroup_add("other");
	open_group();
	assert_null(fake_cgroup_read("sandboxfs.1", "cgroup.procs"));
	assert_non_null(fake_cgroup_read("sandboxfs.2", "cgroup.procs"));
	assert_non_null(fake_cgroup_read("other", "cgroup.procs"));
}

/* --- jobs ---------------------------------------------------------------------------------------
 */

static void a_job_gets_a_leaf_with_its_limits(void **state)
{
	const struct sbx_limits limits = {.memory_mb = 64, .procs = 20};
	const struct isolation_settings settings = {.memory_mb = 256, .cpu_percent = 150};
	int leaf;

	(void)state;
	start_in_scope();
	open_group();
	leaf = cgroup_job_make(&group, "x", 7, &settings);
	assert_true(leaf >= 0);
	assert_int_equal(cgroup_job_limit(&group, leaf, &limits), 0);
	assert_file(ours("scope", "/box-x"), "memory.max", "268435456");
	assert_file(ours("scope", "/box-x"), "cpu.max", "150000 100000");
	assert_file(ours("scope", "/box-x"), "cgroup.subtree_control", "memory pids");
	assert_file(ours("scope", "/box-x/job-7"), "memory.max", "67108864");
	assert_file(ours("scope", "/box-x/job-7"), "memory.swap.max", "0");
	assert_file(ours("scope", "/box-x/job-7"), "memory.oom.group", "1");
	assert_file(ours("scope", "/box-x/job-7"), "pids.max", "21");
	close(leaf);
	cgroup_job_remove(&group, "x", 7);
	assert_null(fake_cgroup_read(ours("scope", "/box-x/job-7"), "cgroup.procs"));
	assert_null(fake_cgroup_read(ours("scope", "/box-x"), "cgroup.procs"));
}

static void no_limit_writes_nothing(void **state)
{
	int leaf;

	(void)state;
	start_in_scope();
	open_group();
	leaf = cgroup_job_make(&group, "x", 1, &mount_settings);
	assert_true(leaf >= 0);
	assert_int_equal(cgroup_job_limit(&group, leaf, &(struct sbx_limits){0}), 0);
	assert_file(ours("scope", "/box-x"), "memory.max", "max");
	assert_file(ours("scope", "/box-x"), "cpu.max", "max 100000");
	assert_file(ours("scope", "/box-x/job-1"), "memory.max", "max");
	assert_file(ours("scope", "/box-x/job-1"), "pids.max", "max");
	close(leaf);
}

static void a_limit_that_cannot_be_set_is_an_error(void **state)
{
	const struct isolation_settings settings = {.memory_mb = 256};
	int leaf;

	(void)state;
	start_in_scope();
	open_group();
	leaf = cgroup_job_make(&group, "x", 1, &mount_settings);
	fake_cgroup_write(ours("scope", "/box-x"), "cgroup.subtree_control", "-pids");
	assert_int_equal(cgroup_job_limit(&group, leaf, &(struct sbx_limits){.procs = 5}), -ENOENT);
	close(leaf);
	fake_cgroup_write(ours("scope", ""), "cgroup.subtree_control", "-memory");
	assert_int_equal(cgroup_job_make(&group, "y", 2, &settings), -ENOENT);
	assert_null(fake_cgroup_read(ours("scope", "/box-y"), "cgroup.procs"));
}

static void a_kill_for_memory_is_read_from_the_events(void **state)
{
	int leaf, events;

	(void)state;
	start_in_scope();
	open_group();
	leaf = cgroup_job_make(&group, "x", 1, &mount_settings);
	events = cgroup_job_events(leaf);
	assert_true(events >= 0);
	assert_false(cgroup_was_oom(events));
	assert_false(cgroup_was_oom(-1));
	fake_cgroup_write(ours("scope", "/box-x/job-1"), "memory.events",
	                  "oom 1\noom_kill 3\noom_group_kill 1");
	assert_true(cgroup_was_oom(events));
	close(events);
	close(leaf);
}

static void killing_and_entering_write_what_the_kernel_wants(void **state)
{
	int leaf;

	(void)state;
	start_in_scope();
	open_group();
	leaf = cgroup_job_make(&group, "x", 1, &mount_settings);
	assert_int_equal(cgroup_job_enter(&group, leaf, STRANGER), 0);
	assert_file(ours("scope", "/box-x/job-1"), "cgroup.procs", "77777");
	assert_int_equal(cgroup_job_kill(&group, leaf), 0);
	assert_file(ours("scope", "/box-x/job-1"), "cgroup.kill", "1");
	fake_cgroup_put("", STRANGER);
	close(leaf);
}

/* --- the kernel's
 * --------------------------------------------------------------------------------- */

/* Without controllers a cgroup can still hold a job, end it and be removed. */
static bool start_real(void)
{
	group = CGROUP_NONE;
	if (geteuid() != 0 || cgroup_find("/proc/self/mountinfo", "/proc/self/cgroup", &where) < 0)
		return false;
	group.host = open(where.root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	snprintf(group.name, sizeof(group.name), "sandboxfs-test.%d", getpid());
	if (group.host < 0 || cgroup_kernel.make(group.host, group.name) < 0)
		return false;
	group.dir = openat(group.host, group.name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return true;
}

static void a_real_leaf_is_born_into_killed_and_removed(void **state)
{
	struct clone_args args = {.flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD};
	int leaf, status;
	pid_t pid;

	(void)state;
	if (!start_real())
		skip_because("no cgroup v2 that is ours to change");
	leaf = cgroup_job_make(&group, "x", 1, &mount_settings);
	assert_true(leaf >= 0);
	args.cgroup = (uint64_t)leaf;
	pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));
	if (pid == 0)
		for (;;)
			pause();
	assert_true(pid > 0);
	assert_int_equal(cgroup_job_kill(&group, leaf), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	close(leaf);
	cgroup_job_remove(&group, "x", 1);
	assert_int_equal(faccessat(group.dir, "box-x/job-1", F_OK, 0), -1);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        CASE(the_hierarchy_and_our_place_in_it_are_found),
	        CASE(what_is_no_hierarchy_of_ours_is_not_found),
	        CASE(in_a_scope_of_our_own_we_make_room_and_switch_on),
	        CASE(closing_leaves_the_scope_as_it_was),
	        CASE(with_a_stranger_in_it_the_scope_is_left_alone),
	        CASE(the_root_may_keep_its_processes),
	        CASE(without_memory_and_pids_there_is_a_reason_and_no_change),
	        CASE(where_there_is_room_for_one_alone_nothing_is_kept),
	        CASE(probing_tells_the_same_and_changes_nothing),
	        CASE(what_killed_mounts_left_is_removed_and_the_living_stay),
	        CASE(a_job_gets_a_leaf_with_its_limits),
	        CASE(no_limit_writes_nothing),
	        CASE(a_limit_that_cannot_be_set_is_an_error),
	        CASE(a_kill_for_memory_is_read_from_the_events),
	        CASE(killing_and_entering_write_what_the_kernel_wants),
	        CASE(a_real_leaf_is_born_into_killed_and_removed),
	};

	group = CGROUP_NONE;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
