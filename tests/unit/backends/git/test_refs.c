/* Refs of a private repository, in which a command may be at work while they are set. */
#include "backends/git/refs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "tests/lib/repo.h"
#include "tests/lib/scratch.h"

#define A "1111111111111111111111111111111111111111"
#define B "2222222222222222222222222222222222222222"
#define C "3333333333333333333333333333333333333333"

static struct sbx_refs have, want;
static int repo;

static int setup(void **state)
{
	(void)state;
	assert_non_null(scratch_make());
	scratch_mkdir(scratch_path("repo"));
	scratch_mkdir(scratch_path("repo/refs"));
	scratch_mkdir(scratch_path("repo/refs/heads"));
	repo = open(scratch_path("repo"), O_RDONLY | O_DIRECTORY);
	assert_true(repo >= 0);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	sbx_refs_release(&have);
	sbx_refs_release(&want);
	close(repo);
	scratch_remove();
	return 0;
}

static void loose(const char *name, const char *hex)
{
	unlink(scratch_path("repo/refs/heads/%s", name));
	if (hex)
		scratch_write(scratch_path("repo/refs/heads/%s", name), hex);
}

static void packed(const char *lines)
{
	unlink(scratch_path("repo/packed-refs"));
	scratch_write(scratch_path("repo/packed-refs"), lines);
}

static void options(const char *name, const char *hex)
{
	git_oid oid;

	git_oid_fromstr(&oid, hex);
	assert_int_equal(sbx_refs_add(&want, name, &oid), 0);
	sbx_refs_sort(&want);
}

static void look(void)
{
	assert_int_equal(sbx_refs_of_private(repo, &have), 0);
}

/* HEX, or NULL: the branch is not there. */
static void expect(const char *name, const char *hex)
{
	struct sbx_refs now = {0};
	const git_oid *oid;

	assert_int_equal(sbx_refs_of_private(repo, &now), 0);
	oid = sbx_refs_find(&now, name);
	if (hex)
		assert_true(oid && git_oid_streq(oid, hex) == 0);
	else
		assert_null(oid);
	sbx_refs_release(&now);
}

static void refs_become_what_is_wanted(void **state)
{
	(void)state;
	loose("a", A);
	loose("b", A);
	packed(A " refs/heads/c\n");
	look();
	options("refs/heads/a", B);
	options("refs/heads/d", B);
	assert_int_equal(sbx_refs_set_private(repo, &have, &want), 0);
	expect("refs/heads/a", B);
	expect("refs/heads/b", NULL);
	expect("refs/heads/c", NULL);
	expect("refs/heads/d", B);
	assert_false(scratch_exists(scratch_path("repo/packed-refs.lock")));
}

/* `git commit; git pack-refs --all` after they were read. */
static void what_was_packed_meanwhile_stays(void **state)
{
	(void)state;
	loose("a", A);
	look();
	options("refs/heads/a", A);
	options("refs/heads/d", B);
	loose("a", NULL);
	packed(B " refs/heads/a\n" C " refs/heads/new\n");
	assert_int_equal(sbx_refs_set_private(repo, &have, &want), 0);
	expect("refs/heads/a", B);
	expect("refs/heads/new", C);
	expect("refs/heads/d", B);
}

static void what_was_removed_meanwhile_stays_away(void **state)
{
	(void)state;
	loose("a", A);
	packed(A " refs/heads/b\n");
	look();
	options("refs/heads/a", A);
	options("refs/heads/b", A);
	options("refs/heads/d", B);
	loose("a", NULL);
	packed("");
	assert_int_equal(sbx_refs_set_private(repo, &have, &want), 0);
	expect("refs/heads/a", NULL);
	expect("refs/heads/b", NULL);
	expect("refs/heads/d", B);
}

static int move(const char *old, const char *new)
{
	git_oid from, to;

	git_oid_fromstr(&to, new);
	if (old)
		git_oid_fromstr(&from, old);
	return sbx_refs_move_private(repo, "refs/heads/x/a", old ? &from : NULL, &to);
}

static void a_ref_moves_from_where_it_stands(void **state)
{
	(void)state;
	assert_int_equal(move(A, B), -EAGAIN);
	expect("refs/heads/x/a", NULL);
	assert_int_equal(move(NULL, A), 0);
	expect("refs/heads/x/a", A);
	assert_int_equal(move(NULL, B), -EAGAIN);
	assert_int_equal(move(B, C), -EAGAIN);
	expect("refs/heads/x/a", A);
	assert_int_equal(move(A, B), 0);
	loose("x/a", NULL);
	packed(A " refs/heads/x/a\n");
	assert_int_equal(move(B, C), -EAGAIN);
	assert_int_equal(move(A, C), 0);
	expect("refs/heads/x/a", C);
	scratch_write(scratch_path("repo/refs/heads/x/a.lock"), "");
	assert_int_equal(move(C, A), -EBUSY);
	expect("refs/heads/x/a", C);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        CASE(refs_become_what_is_wanted),
	        CASE(what_was_packed_meanwhile_stays),
	        CASE(what_was_removed_meanwhile_stays_away),
	        CASE(a_ref_moves_from_where_it_stands),
	};
	int r;

	repo_setup();
	r = cmocka_run_group_tests(tests, NULL, NULL);
	repo_teardown();
	return r;
}
