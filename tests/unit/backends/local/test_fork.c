/* Sandboxes that begin as copies of others: the tree, and what git says of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "sandboxfs/cleanup.h"
#include "sandboxfs/history.h"
#include "tests/lib/local_fixture.h"
#include "tests/lib/scratch.h"

#define EDITS                                                                                      \
	"echo changed > file; rm sub/gone; echo new > 'sub/a new one'; chmod 755 mode; "           \
	"ln -s file to-file; echo one > one; ln one other; mkfifo pipe; mkdir -p deep/er/est; "    \
	"echo x > deep/er/est/x; echo ignored > x.log; rm -r whole; echo instead > whole; "        \
	"rm -r again; mkdir again; echo fresh > again/z; touch -d '2001-02-03 04:05:06.789' one; " \
	"truncate -s 1M sparse; setfattr -n user.tag -v t file 2>/dev/null; :"

/* A program cannot work in a layered tree without the mount: it has no path here. */
static bool has_git(void)
{
	return fixture.row->kind == FIXTURE_GIT && !fixture.row->overlaid;
}

static int try_fork(struct sbx_sandbox *from, struct sbx_create req, struct sbx_sandbox **ret,
                    struct sbx_error *err)
{
	req.origin.kind = req.origin.rev ? SBX_ORIGIN_SNAPSHOT : SBX_ORIGIN_SANDBOX;
	req.origin.sandbox = from;
	*err = SBX_ERROR_INIT;
	return sbx_backend_create(fixture.backend, &req, ret, err);
}

static struct sbx_sandbox *fork_of(struct sbx_sandbox *from, const char *name)
{
	struct sbx_sandbox *sb = NULL;
	struct sbx_error err;

	if (try_fork(from, (struct sbx_create){.name = name}, &sb, &err))
		fail_msg("fork: %s", err.text);
	return sb;
}

static struct sbx_sandbox *edited(const char *name)
{
	struct sbx_sandbox *sb = fixture_create(name);

	if (fixture.row->kind == FIXTURE_NONE)
		fixture_in(
		        sb,
		        "mkdir sub whole again; echo f > file; echo g > sub/gone; echo m > mode");
	fixture_in(sb, EDITS);
	return sb;
}

/* What is there, by content, mode, links, times and attributes. */
static void expect_same_tree(struct sbx_sandbox *a, struct sbx_sandbox *b)
{
	_cleanup_free_ char *one = fixture_manifest(a), *other = fixture_manifest(b);

	assert_string_equal(one, other);
}

static void a_fork_has_all_that_the_tree_has(void **state)
{
	struct sbx_sandbox *a = edited("a"), *b = fork_of(a, "b");

	(void)state;
	assert_int_equal(a->tree.mounted, b->tree.mounted);
	expect_same_tree(a, b);
	fixture_in(b, "echo mine > file; rm one; echo b > only-b");
	fixture_in(a, "test \"$(cat file)\" = changed && test -e one && test ! -e only-b");
	fixture_take_down(a);
	fixture_in(b, "test \"$(cat file)\" = mine && test \"$(cat other)\" = one");
	fixture_take_down(b);
	fixture_expect_empty();
}

static void a_fork_of_a_fork_is_the_same_after_a_restart(void **state)
{
	struct sbx_sandbox *a = edited("a"), *b = fork_of(a, "b"), *c;
	_cleanup_free_ char *before = NULL, *after = NULL;

	(void)state;
	fixture_in(b, "echo more > more; rm mode");
	c = fork_of(b, "c");
	expect_same_tree(b, c);
	before = fixture_manifest(c);
	sbx_sandbox_close(a);
	sbx_sandbox_close(b);
	sbx_sandbox_close(c);
	fixture_reopen();
	assert_int_equal(fixture.nfound, 3);
	after = fixture_manifest(fixture_found("c"));
	assert_string_equal(before, after);
	for (const char *name = "abc"; *name; name++)
		fixture_take_down(fixture_found((char[]){*name, '\0'}));
	fixture_expect_empty();
}

static void a_file_that_is_closed_to_its_owner_comes_along(void **state)
{
	struct sbx_sandbox *a = fixture_create("a"), *b;

	(void)state;
	fixture_in(a, "echo closed > closed; chmod 000 closed");
	b = fork_of(a, "b");
	fixture_in(a, "test \"$(stat -c %a closed)\" = 0");
	fixture_in(b, "test \"$(stat -c %a closed)\" = 0; chmod 400 closed; grep -q closed closed");
	fixture_take_down(a);
	fixture_take_down(b);
	fixture_expect_empty();
}

static void git_says_the_same_of_a_fork(void **state)
{
	struct sbx_sandbox *a, *b;
	_cleanup_free_ char *one = NULL, *other = NULL, *old = NULL, *new = NULL;

	(void)state;
	if (!has_git())
		return;
	a = edited("a");
	free(fixture_git(a, "add -A sub"));
	free(fixture_git(a, "commit -qm mine"));
	free(fixture_git(a, "add whole"));
	fixture_in(a, "echo later >> file");
	b = fork_of(a, "b");
	one = fixture_git(a, "status --porcelain=v2 -uall");
	other = fixture_git(b, "status --porcelain=v2 -uall");
	assert_true(strlen(one) > 100);
	assert_string_equal(one, other);
	old = fixture_git(a, "rev-parse HEAD");
	new = fixture_git(b, "rev-parse HEAD refs/heads/sandbox/b^{commit}");
	assert_memory_equal(old, new, 40);
	assert_memory_equal(old, new + 41, 40);
	fixture_take_down(a);
	/* The fork's branch has what the origin committed: it stays. */
	fixture_take_down(b);
	free(fixture_git_source("branch -D sandbox/b"));
	fixture_expect_empty();
}

/* Until the clock has gone on to another second, which is as exactly as git compares times. */
static void await_the_next_second(void)
{
	const time_t begun = time(NULL);

	while (time(NULL) == begun)
		usleep(1000);
}

/* The index knows the files: git does not have to read one. */
static void the_index_of_a_fork_is_up_to_date(void **state)
{
	struct sbx_sandbox *a, *b;
	_cleanup_free_ char *out = NULL;

	(void)state;
	if (!has_git())
		return;
	a = edited("a");
	/* Not as fresh as the index, so that git believes it. */
	fixture_in(a, "find . -type f -exec touch -d '1 hour ago' {} +");
	free(fixture_git(a, "add -A"));
	free(fixture_git(a, "update-index -q --refresh"));
	await_the_next_second();
	b = fork_of(a, "b");
	out = fixture_git(b, "diff-files --name-only");
	assert_string_equal(out, "");
	fixture_take_down(a);
	fixture_take_down(b);
	fixture_expect_empty();
}

static void a_fork_of_a_detached_head_stands_on_its_commit(void **state)
{
	struct sbx_sandbox *a, *b;
	_cleanup_free_ char *old = NULL, *new = NULL;

	(void)state;
	if (!has_git())
		return;
	a = fixture_create("a");
	free(fixture_git(a, "checkout -q --detach"));
	free(fixture_git(a, "commit -q --allow-empty -m detached"));
	old = fixture_git(a, "rev-parse HEAD");
	b = fork_of(a, "b");
	new = fixture_git(b, "rev-parse refs/heads/sandbox/b");
	assert_string_equal(old, new);
	fixture_take_down(b);
	fixture_take_down(a);
	free(fixture_git_source("branch -D sandbox/b"));
	fixture_expect_empty();
}

static void snapshot(struct sbx_sandbox *sb, char id[SBX_REV_MAX])
{
	struct sbx_error err = SBX_ERROR_INIT;

	if (sbx_history_snapshot(sb, &(struct sbx_snapshot_options){.message = "then"}, id, &err))
		fail_msg("snapshot: %s", err.text);
}

static void a_fork_of_a_snapshot_is_as_that_was(void **state)
{
	struct sbx_sandbox *a = edited("a"), *b = NULL, *c = NULL;
	_cleanup_free_ char *tree = fixture_tree(a), *forked = NULL, *status = NULL, *began = NULL;
	char id[SBX_REV_MAX];
	struct sbx_error err;

	(void)state;
	snapshot(a, id);
	fixture_in(a, "echo later > file; rm one; echo ignored > y.log");
	if (try_fork(a, (struct sbx_create){.name = "b", .origin.rev = id}, &b, &err))
		fail_msg("fork: %s", err.text);
	forked = fixture_tree(b);
	assert_string_equal(forked, tree);
	fixture_in(b, "test ! -e y.log");
	if (has_git()) {
		status = fixture_git(b, "status --porcelain");
		assert_string_equal(status, "");
	}
	assert_int_equal(
	        try_fork(a, (struct sbx_create){.name = "c", .origin.rev = "base"}, &c, &err), 0);
	free(forked);
	forked = fixture_tree(c);
	fixture_take_down(c);
	c = fixture_create("c");
	began = fixture_tree(c);
	assert_string_equal(forked, began);
	assert_int_equal(
	        try_fork(a, (struct sbx_create){.name = "d", .origin.rev = "0123456789"}, &c, &err),
	        -ENOENT);
	fixture_take_down(c);
	fixture_take_down(a);
	fixture_take_down(b);
	if (fixture.row->kind == FIXTURE_GIT)
		free(fixture_git_source("branch -D sandbox/b"));
	fixture_expect_empty();
}

static void what_cannot_be_forked_is_refused_and_leaves_nothing(void **state)
{
	struct sbx_sandbox *a = edited("a"), *b = NULL;
	atomic_bool cancelled = true;
	struct sbx_error err;

	(void)state;
	assert_int_equal(
	        try_fork(a, (struct sbx_create){.name = "b", .cancelled = &cancelled}, &b, &err),
	        -EINTR);
	assert_int_equal(
	        try_fork(a, (struct sbx_create){.name = "b", .branch = "bad..name"}, &b, &err),
	        -EINVAL);
	if (has_git()) {
		free(fixture_git_source("branch sandbox/b"));
		fixture_in(a, "echo 1 > committed");
		free(fixture_git(a, "add committed"));
		free(fixture_git(a, "commit -qm mine"));
		assert_int_equal(
		        try_fork(a, (struct sbx_create){.name = "b", .branch_exists = "continue"},
		                 &b, &err),
		        -EINVAL);
		assert_non_null(strstr(err.text, "sandbox/b exists and stands elsewhere"));
		assert_int_equal(
		        try_fork(a, (struct sbx_create){.name = "b", .branch_exists = "refuse"}, &b,
		                 &err),
		        -EEXIST);
		free(fixture_git_source("branch -D sandbox/b"));
	}
	assert_null(b);
	fixture_take_down(a);
	if (has_git())
		free(fixture_git_source("branch -D sandbox/a"));
	fixture_expect_empty();
}

static const struct fixture_test tests[] = {
        {"a fork has all that the tree has", a_fork_has_all_that_the_tree_has},
        {"a fork of a fork is the same after a restart",
         a_fork_of_a_fork_is_the_same_after_a_restart},
        {"a file that is closed to its owner comes along",
         a_file_that_is_closed_to_its_owner_comes_along},
        {"git says the same of a fork", git_says_the_same_of_a_fork},
        {"the index of a fork is up to date", the_index_of_a_fork_is_up_to_date},
        {"a fork of a detached HEAD stands on its commit",
         a_fork_of_a_detached_head_stands_on_its_commit},
        {"a fork of a snapshot is as that was", a_fork_of_a_snapshot_is_as_that_was},
        {"what cannot be forked is refused and leaves nothing",
         what_cannot_be_forked_is_refused_and_leaves_nothing},
};

int main(void)
{
	return fixture_main("fork", tests, SBX_ARRAY_SIZE(tests));
}
