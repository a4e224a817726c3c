/*
 * Files of libgit2 are written out, or synced, before they have their names; files that we sync
 * ourselves always are.
 */
#include "backends/git/durable.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/git/repository.h"
#include "backends/git/spare.h"
#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"
#include "tests/lib/repo.h"
#include "tests/lib/scratch.h"

static git_repository *repo;

static int setup(void **state)
{
	(void)state;
	assert_non_null(scratch_make());
	repo_setup();
	assert_int_equal(sbx_git_init(), 0);
	repo_init(scratch_path("r"), true);
	assert_int_equal(git_repository_open_bare(&repo, scratch_path("r")), 0);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	git_repository_free(repo);
	sbx_git_shutdown();
	repo_teardown();
	scratch_remove();
	return 0;
}

static void test_objects_and_refs(void **state)
{
	git_signature *who = NULL;
	git_reference *ref = NULL;
	git_tree *tree = NULL;
	git_odb *odb = NULL;
	git_oid oid;
	unsigned n = sbx_git_durable_count();

	(void)state;
	assert_int_equal(git_repository_odb(&odb, repo), 0);
	assert_int_equal(git_odb_write(&oid, odb, "x", 1, GIT_OBJECT_BLOB), 0);
	assert_true(sbx_git_durable_count() > n);
	assert_int_equal(git_odb_write(&oid, odb, "", 0, GIT_OBJECT_TREE), 0);
	assert_int_equal(git_tree_lookup(&tree, repo, &oid), 0);
	assert_int_equal(git_signature_new(&who, "a", "a@b", 1, 0), 0);
	n = sbx_git_durable_count();
	assert_int_equal(git_commit_create(&oid, repo, NULL, who, who, NULL, "m", tree, 0, NULL),
	                 0);
	assert_true(sbx_git_durable_count() > n);
	n = sbx_git_durable_count();
	assert_int_equal(git_reference_create(&ref, repo, "refs/heads/deep/x", &oid, 0, "m"), 0);
	assert_true(sbx_git_durable_count() > n);
	assert_int_equal(sbx_git_durable_ref(scratch_path("r"), "refs/heads/deep/x"), 0);
	assert_int_equal(sbx_git_durable_ref(scratch_path("r"), "refs/heads/none"), -ENOENT);
	git_reference_free(ref);
	git_signature_free(who);
	git_tree_free(tree);
	git_odb_free(odb);
}

static git_oid a_commit(void)
{
	git_signature *who = NULL;
	git_tree *tree = NULL;
	git_odb *odb = NULL;
	git_oid oid;

	assert_int_equal(git_repository_odb(&odb, repo), 0);
	assert_int_equal(git_odb_write(&oid, odb, "", 0, GIT_OBJECT_TREE), 0);
	assert_int_equal(git_tree_lookup(&tree, repo, &oid), 0);
	assert_int_equal(git_signature_new(&who, "a", "a@b", 1, 0), 0);
	assert_int_equal(git_commit_create(&oid, repo, NULL, who, who, NULL, "m", tree, 0, NULL),
	                 0);
	git_signature_free(who);
	git_tree_free(tree);
	git_odb_free(odb);
	return oid;
}

/* Makes the branch NAME at OID with SPARE; whether its file is that one. */
static bool is_made_of(int spare, const char *name, const git_oid *oid)
{
	_cleanup_free_ char *ref = sbx_format("refs/heads/%s", name),
	                    *path = sbx_format("%s/%s", scratch_path("r"), ref),
	                    *lock = sbx_format("%s.lock", path);
	git_reference *made = NULL;
	struct stat st, own;
	git_oid have;

	sbx_git_durable_spare(spare);
	assert_int_equal(git_reference_create(&made, repo, ref, oid, 0, "m"), 0);
	sbx_git_durable_spare(-1);
	git_reference_free(made);
	assert_int_equal(git_reference_name_to_id(&have, repo, ref), 0);
	assert_true(git_oid_equal(&have, oid));
	assert_int_equal(access(lock, F_OK), -1);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(fstat(spare, &own), 0);
	return st.st_ino == own.st_ino;
}

static void test_spares(void **state)
{
	struct sbx_git_spares *spares = sbx_git_spares_new(scratch_path("r"));
	const git_oid oid = a_commit();
	char hex[GIT_OID_HEXSZ + 1];
	int fds[SBX_GIT_SPARES], other;

	(void)state;
	git_oid_tostr(hex, sizeof(hex), &oid);
	assert_int_equal(sbx_git_spares_take(spares, hex), -1);
	sbx_git_spares_fill(spares, "0123");
	sbx_git_spares_fill(spares, hex);
	assert_int_equal(sbx_git_spares_take(spares, "0123"), -1);
	for (int i = 0; i < SBX_GIT_SPARES; i++)
		assert_true((fds[i] = sbx_git_spares_take(spares, hex)) >= 0);
	assert_int_equal(sbx_git_spares_take(spares, hex), -1);
	sbx_git_spares_fill(spares, "0123");
	assert_true((other = sbx_git_spares_take(spares, "0123")) >= 0);

	assert_true(is_made_of(fds[0], "made", &oid));
	assert_false(is_made_of(fds[0], "made-again", &oid));
	assert_false(is_made_of(other, "of-another", &oid));
	assert_int_equal(fchmod(fds[1], 0600), 0);
	assert_false(is_made_of(fds[1], "secret", &oid));
	for (int i = 0; i < SBX_GIT_SPARES; i++)
		close(fds[i]);
	close(other);
	sbx_git_spares_free(spares);
}

static void test_own_sync(void **state)
{
	_cleanup_fd_ int fd = open(scratch_path("r/HEAD"), O_RDONLY | O_CLOEXEC);
	const unsigned n = sbx_git_durable_count();

	(void)state;
	assert_int_equal(fsync(fd), 0);
	assert_int_equal(sbx_git_durable_count(), n);
	assert_int_equal(fsync(-1), -1);
	assert_int_equal(sbx_write_out(fd), 0);
	assert_true(sbx_write_out(-1) < 0);
}

static void test_settings(void **state)
{
	static const struct {
		const char *fsync, *method;
		bool objects, hard;
	} cases[] = {
	        {NULL, NULL, false, false},
	        {NULL, NULL, true, true},
	        {"all", NULL, false, true},
	        {"committed", "fsync", false, true},
	        {"committed,-loose-object", NULL, false, false},
	        {"committed, -loose-object, reference", "batch", false, true},
	        {"none", NULL, true, false},
	        {"none,loose-object", NULL, false, true},
	        {"all", "writeout-only", false, false},
	        {"pack,pack-metadata,index", NULL, false, false},
	        {"unknown,-,,", NULL, false, false},
	};

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(cases); i++)
		if (sbx_git_durable_hardens(cases[i].fsync, cases[i].method, cases[i].objects) !=
		    cases[i].hard)
			fail_msg("%zu: %s", i, cases[i].fsync ? cases[i].fsync : "-");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_objects_and_refs, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_spares, setup, teardown),
	        cmocka_unit_test_setup_teardown(test_own_sync, setup, teardown),
	        cmocka_unit_test(test_settings),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
