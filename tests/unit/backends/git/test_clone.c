#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "backends/git/clone.h"
#include "backends/git/repository.h"
#include "tests/lib/repo.h"
#include "tests/lib/scratch.h"

static char source[512], to[512], first[64];

/* A repository with a branch beside its main one, which stands at its first commit. */
static int set_up(void **state)
{
	(void)state;
	scratch_make();
	snprintf(source, sizeof(source), "%s", scratch_path("source"));
	snprintf(to, sizeof(to), "%s", scratch_path("to"));
	scratch_mkdir(to);
	repo_init(source, false);
	scratch_write(scratch_path("source/one"), "1\n");
	snprintf(first, sizeof(first), "%s", repo_commit(source, "first"));
	repo_make_branch(source, "other", first);
	scratch_write(scratch_path("source/two"), "2\n");
	repo_commit(source, "second");
	scratch_write(scratch_path("source/uncommitted"), "3\n");
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	scratch_remove();
	return 0;
}

static void clone_to(const char *base, const char *branch)
{
	struct sbx_error err = SBX_ERROR_INIT;

	if (sbx_git_clone(source, base, branch, to, NULL, &err))
		fail_msg("%s", err.text);
	assert_false(scratch_exists(scratch_path("to/uncommitted")));
	assert_int_equal(repo_changes(to), 0);
}

static void a_new_branch_begins_at_head(void **state)
{
	(void)state;
	clone_to(NULL, "sandbox/a");
	scratch_expect(scratch_path("to/.git/HEAD"), "ref: refs/heads/sandbox/a\n");
	scratch_expect(scratch_path("to/two"), "2\n");
	assert_null(repo_branch(source, "sandbox/a"));
}

static void a_new_branch_begins_at_a_base(void **state)
{
	(void)state;
	clone_to("other", "sandbox/a");
	assert_string_equal(repo_branch(to, "sandbox/a"), first);
	assert_false(scratch_exists(scratch_path("to/two")));
}

static void a_branch_that_is_there_is_continued(void **state)
{
	(void)state;
	clone_to(NULL, "other");
	scratch_expect(scratch_path("to/.git/HEAD"), "ref: refs/heads/other\n");
	assert_string_equal(repo_branch(to, "other"), first);
	assert_false(scratch_exists(scratch_path("to/two")));
}

static void a_commit_may_be_without_a_branch(void **state)
{
	char head[80];

	(void)state;
	clone_to(first, NULL);
	snprintf(head, sizeof(head), "%s\n", first);
	scratch_expect(scratch_path("to/.git/HEAD"), head);
	assert_false(scratch_exists(scratch_path("to/two")));
}

static void what_cannot_be_is_said(void **state)
{
	struct sbx_error err = SBX_ERROR_INIT;
	atomic_bool cancelled = true;

	(void)state;
	assert_int_equal(sbx_git_clone(source, "nowhere", NULL, to, NULL, &err), -ENOENT);
	assert_non_null(strstr(err.text, "there is no commit nowhere"));
	assert_int_equal(sbx_git_clone(to, NULL, NULL, to, NULL, &err), -ENOENT);
	assert_int_equal(sbx_git_clone(source, NULL, NULL, to, &cancelled, &err), -EINTR);
}

static int begin(void **state)
{
	(void)state;
	repo_setup();
	return sbx_git_init();
}

static int end(void **state)
{
	(void)state;
	sbx_git_shutdown();
	repo_teardown();
	return 0;
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        CASE(a_new_branch_begins_at_head),
	        CASE(a_new_branch_begins_at_a_base),
	        CASE(a_branch_that_is_there_is_continued),
	        CASE(a_commit_may_be_without_a_branch),
	        CASE(what_cannot_be_is_said),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, begin, end);
}
