/* The differences of two trees, and the index that follows from them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/git/git_impl.h"
#include "backends/git/index_tree.h"
#include "backends/local/history/tree_changes.h"
#include "tests/lib/repo.h"
#include "tests/lib/scratch.h"

#define ROUNDS 400

/* In the order of an index. Some are files where others have directories, and some sort differently
 * as either. */
static const char *const names[] = {"a",     "a-b",   "a-b/c",   "a.b",       "a/b",       "a/b-c",
                                    "a/b.c", "a/b/c", "a/b/d/e", "a/b0",      "a0",        "b",
                                    "b/a",   "b/b",   "c/d/e",   "c/d/e/f/g", "c/d/e/f/h", "d"};

static const uint32_t modes[] = {0100644, 0100755, 0120000, 0160000};

static git_repository *repo;
static git_odb *odb;

static int setup(void **state)
{
	(void)state;
	repo_setup();
	scratch_make();
	repo_init(scratch_path("repo"), true);
	assert_int_equal(git_repository_open_bare(&repo, scratch_path("repo")), 0);
	assert_int_equal(git_repository_odb(&odb, repo), 0);
	srandom(7);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	git_odb_free(odb);
	git_repository_free(repo);
	scratch_remove();
	repo_teardown();
	return 0;
}

static bool is_above(const struct sbx_index_entry *e, const char *name)
{
	return strncmp(e->name, name, e->len) == 0 && name[e->len] == '/';
}

static bool fits(const struct sbx_index *index, const char *name)
{
	for (size_t i = 0; i < index->n; i++)
		if (is_above(&index->at[i], name))
			return false;
	return true;
}

static void add(struct sbx_index *index, const char *name, uint32_t mode, int content)
{
	struct sbx_index_entry *e = &index->at[index->n++];

	*e = (struct sbx_index_entry){.name = name, .len = (uint32_t)strlen(name)};
	memset(e->oid, content, sizeof(e->oid));
	for (int i = 0; i < 4; i++)
		e->stat[24 + i] = (unsigned char)(mode >> (24 - 8 * i));
}

/* Some of the names; of two rounds many are alike. */
static struct sbx_index some(void)
{
	struct sbx_index index = {.at = calloc(SBX_ARRAY_SIZE(names), sizeof(*index.at))};

	assert_non_null(index.at);
	for (size_t i = 0; i < SBX_ARRAY_SIZE(names); i++)
		if (random() % 3 && fits(&index, names[i]))
			add(&index, names[i], modes[random() % 8 ? 0 : random() % 4],
			    random() % 6 ? 1 : 2);
	return index;
}

static git_oid tree_of(const struct sbx_index *index, const struct sbx_index *base,
                       const git_oid *base_tree)
{
	git_oid oid;

	assert_int_equal(sbx_index_write_tree(index, odb, NULL, base, base_tree, &oid), 0);
	return oid;
}

static struct tree_changes list(const git_oid *from, const git_oid *to)
{
	struct tree_changes a = {.repo = repo};

	assert_int_equal(tree_changes_list(&a, from, to), 0);
	return a;
}

static void an_index_follows_the_trees(void **state)
{
	(void)state;
	for (int i = 0; i < ROUNDS; i++) {
		struct sbx_index from = some(), to = some();
		git_oid x = tree_of(&from, NULL, NULL), y = tree_of(&to, NULL, NULL);
		struct tree_changes a = list(&x, &y);

		assert_int_equal(tree_changes_stage(&a, &from), 0);
		assert_true(sbx_index_equal(&from, &to));
		tree_changes_release(&a);
		sbx_index_release(&from);
		sbx_index_release(&to);
	}
}

static void a_tree_upon_another_is_the_same_as_one_alone(void **state)
{
	(void)state;
	for (int i = 0; i < ROUNDS; i++) {
		struct sbx_index from = some(), to = some();
		git_oid x = tree_of(&from, NULL, NULL), alone = tree_of(&to, NULL, NULL);
		git_oid upon = tree_of(&to, &from, &x);

		assert_true(git_oid_equal(&alone, &upon));
		sbx_index_release(&from);
		sbx_index_release(&to);
	}
}

static void what_a_path_was_goes_before_what_it_is(void **state)
{
	struct sbx_index from = {.at = calloc(4, sizeof(*from.at))};
	struct sbx_index to = {.at = calloc(4, sizeof(*to.at))};
	struct tree_changes a;
	git_oid x, y;

	(void)state;
	add(&from, "d/file", 0100644, 1);
	add(&from, "d/module", 0160000, 1);
	add(&from, "gone", 0100755, 1);
	add(&to, "d/file", 0120000, 2);
	add(&to, "d/module", 0100755, 2);
	x = tree_of(&from, NULL, NULL);
	y = tree_of(&to, NULL, NULL);
	a = list(&x, &y);
	assert_int_equal(a.n, 5);
	assert_string_equal(a.at[0].path, "d/file");
	assert_int_equal(a.at[0].mode, 0);
	assert_false(a.at[0].directory);
	assert_int_equal(a.at[1].mode, 0120000);
	assert_string_equal(a.at[2].path, "d/module");
	assert_true(a.at[2].directory);
	assert_int_equal(a.at[3].mode, 0100755);
	assert_string_equal(a.at[4].path, "gone");
	assert_int_equal(a.at[4].mode, 0);
	tree_changes_release(&a);
	sbx_index_release(&from);
	sbx_index_release(&to);
}

/* Takes the object OID out of the repository and forgets that it was read. */
static void lose(const git_oid *oid)
{
	char hex[GIT_OID_HEXSZ + 1];

	git_oid_tostr(hex, sizeof(hex), oid);
	assert_int_equal(unlink(scratch_path("repo/objects/%.2s/%s", hex, hex + 2)), 0);
	git_odb_free(odb);
	git_repository_free(repo);
	assert_int_equal(git_repository_open_bare(&repo, scratch_path("repo")), 0);
	assert_int_equal(git_repository_odb(&odb, repo), 0);
}

static void what_is_the_same_is_not_read(void **state)
{
	struct sbx_index index = {.at = calloc(4, sizeof(*index.at))};
	struct sbx_index part = {.at = calloc(4, sizeof(*part.at))};
	struct sbx_error err = SBX_ERROR_INIT;
	struct tree_changes a = {.err = &err};
	git_oid x, y, same;

	(void)state;
	add(&part, "only here", 0100644, 9);
	same = tree_of(&part, NULL, NULL);
	add(&index, "other/file", 0100644, 1);
	add(&index, "same/only here", 0100644, 9);
	x = tree_of(&index, NULL, NULL);
	memset(index.at[0].oid, 2, sizeof(index.at[0].oid));
	y = tree_of(&index, NULL, NULL);
	lose(&same);
	a = list(&x, &y);
	assert_int_equal(a.n, 1);
	assert_string_equal(a.at[0].path, "other/file");
	tree_changes_release(&a);
	/* What differs is read, and that it is not there is said. */
	a = (struct tree_changes){.repo = repo, .err = &err};
	assert_true(tree_changes_list(&a, &same, &y) < 0);
	assert_non_null(strstr(err.text, "cannot compare"));
	tree_changes_release(&a);
	sbx_index_release(&index);
	sbx_index_release(&part);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(an_index_follows_the_trees, setup, teardown),
	        cmocka_unit_test_setup_teardown(a_tree_upon_another_is_the_same_as_one_alone, setup,
	                                        teardown),
	        cmocka_unit_test_setup_teardown(what_a_path_was_goes_before_what_it_is, setup,
	                                        teardown),
	        cmocka_unit_test_setup_teardown(what_is_the_same_is_not_read, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
