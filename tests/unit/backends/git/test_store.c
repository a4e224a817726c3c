/* The store beside a source's objects: what is written to it, moves out of it, and is taken out. */
#include "backends/git/store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/git/git_impl.h"
#include "backends/git/store_walk.h"
#include "backends/support/fsutil.h"
#include "tests/lib/repo.h"
#include "tests/lib/scratch.h"

static git_repository *repo; /* writes to the store */
static int store;

static char *common(void)
{
	return (char *)(uintptr_t)scratch_path("src/.git");
}

static int setup(void **state)
{
	(void)state;
	assert_non_null(scratch_make());
	repo_init(scratch_path("src"), false);
	scratch_write(scratch_path("src/file"), "committed\n");
	repo_commit(scratch_path("src"), "first");
	assert_int_equal(git_repository_open_bare(&repo, common()), 0);
	assert_int_equal(sbx_git_store_use(repo), 0);
	store = sbx_git_store_open(common());
	assert_true(store >= 0);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	close(store);
	git_repository_free(repo);
	repo = NULL;
	scratch_remove();
	return 0;
}

static git_oid put_blob(const char *text)
{
	git_oid oid;

	assert_int_equal(git_blob_create_from_buffer(&oid, repo, text, strlen(text)), 0);
	return oid;
}

/* With a FILE next to it, or NULL. */
static git_oid put_tree_with(const char *name, const git_oid *oid, git_filemode_t mode,
                             const git_oid *file)
{
	git_treebuilder *b;
	git_oid tree;

	assert_int_equal(git_treebuilder_new(&b, repo, NULL), 0);
	assert_int_equal(git_treebuilder_insert(NULL, b, name, oid, mode), 0);
	if (file)
		assert_int_equal(git_treebuilder_insert(NULL, b, "beside", file, GIT_FILEMODE_BLOB),
		                 0);
	assert_int_equal(git_treebuilder_write(&tree, b), 0);
	git_treebuilder_free(b);
	return tree;
}

static git_oid put_tree(const char *name, const git_oid *oid, git_filemode_t mode)
{
	return put_tree_with(name, oid, mode, NULL);
}

/* Upon where REF's branch main stands, or PARENT. */
static git_oid put_commit(const git_oid *tree_oid, const git_oid *parent_oid, const char *ref)
{
	git_signature *who;
	git_commit *parent;
	git_tree *tree;
	git_oid oid, main_oid;

	assert_int_equal(git_reference_name_to_id(&main_oid, repo, "HEAD"), 0);
	assert_int_equal(git_signature_new(&who, "x", "x@y", 1000, 0), 0);
	assert_int_equal(git_tree_lookup(&tree, repo, tree_oid), 0);
	assert_int_equal(git_commit_lookup(&parent, repo, parent_oid ? parent_oid : &main_oid), 0);
	assert_int_equal(git_commit_create(&oid, repo, NULL, who, who, NULL, "m", tree, 1,
	                                   (const git_commit **)&parent),
	                 0);
	git_commit_free(parent);
	git_tree_free(tree);
	git_signature_free(who);
	if (ref) {
		git_reference *r;

		assert_int_equal(git_reference_create(&r, repo, ref, &oid, 1, NULL), 0);
		git_reference_free(r);
	}
	return oid;
}

/* As git without our knowledge of it sees the source. */
static bool in_source(const git_oid *oid)
{
	git_repository *other;
	git_odb *odb;
	bool there;

	assert_int_equal(git_repository_open_bare(&other, common()), 0);
	assert_int_equal(git_repository_odb(&odb, other), 0);
	there = git_odb_exists(odb, oid);
	git_odb_free(odb);
	git_repository_free(other);
	return there;
}

static bool in_objects(const git_oid *oid)
{
	char hex[GIT_OID_HEXSZ + 1];

	git_oid_tostr(hex, sizeof(hex), oid);
	return scratch_exists(scratch_path("src/.git/objects/%.2s/%s", hex, hex + 2));
}

static void yield(void)
{
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_refs refs = {0};

	assert_int_equal(sbx_refs_of_source(repo, NULL, &refs, NULL), 0);
	assert_int_equal(sbx_git_store_yield(repo, &refs, &err), 0);
	sbx_refs_release(&refs);
}

static void what_is_written_is_in_the_store_and_found_in_the_source(void **state)
{
	_cleanup_(sbx_git_tips_release) struct sbx_git_tips listed = {0};
	git_oid oid = put_blob("ours"), theirs = put_blob("committed\n");

	(void)state;
	assert_true(sbx_git_store_has(store, &oid));
	assert_true(in_source(&oid));
	assert_false(in_objects(&oid));
	/* The source has it. */
	assert_false(sbx_git_store_has(store, &theirs));
	assert_int_equal(sbx_git_store_list(store, &listed), 0);
	assert_int_equal(listed.n, 1);
	assert_true(sbx_git_store_lists(&listed, &oid));
	assert_false(sbx_git_store_lists(&listed, &theirs));
}

static void other_alternates_stay(void **state)
{
	git_repository *again;

	(void)state;
	scratch_expect(scratch_path("src/.git/objects/info/alternates"), "../sandboxfs/objects\n");
	unlink(scratch_path("src/.git/objects/info/alternates"));
	scratch_write(scratch_path("src/.git/objects/info/alternates"), "/elsewhere");
	for (int i = 0; i < 2; i++) {
		assert_int_equal(git_repository_open_bare(&again, common()), 0);
		assert_int_equal(sbx_git_store_use(again), 0);
		git_repository_free(again);
		scratch_expect(scratch_path("src/.git/objects/info/alternates"),
		               "/elsewhere\n../sandboxfs/objects\n");
	}
}

static void what_a_branch_leads_to_goes_to_the_source(void **state)
{
	git_oid blob = put_blob("ours"), other = put_blob("other"),
	        sub = put_tree("file", &blob, GIT_FILEMODE_BLOB),
	        tree = put_tree("sub", &sub, GIT_FILEMODE_TREE),
	        first = put_commit(&tree, NULL, NULL),
	        trash = put_commit(&tree, &first, "refs/sandboxfs/trash/x");

	(void)state;
	yield();
	assert_true(sbx_git_store_has(store, &blob));
	put_commit(&tree, &first, "refs/heads/merged");
	yield();
	assert_false(sbx_git_store_has(store, &blob) || sbx_git_store_has(store, &sub) ||
	             sbx_git_store_has(store, &tree) || sbx_git_store_has(store, &first));
	assert_true(in_objects(&blob) && in_objects(&sub) && in_objects(&tree) &&
	            in_objects(&first));
	assert_true(sbx_git_store_has(store, &other) && in_source(&other) && in_source(&trash));
}

struct party {
	pthread_barrier_t start;
	struct sbx_refs refs;
	int r[2];
};

struct guest {
	struct party *party;
	int *r;
};

static void *yield_at_once(void *data)
{
	const struct guest *g = data;
	struct sbx_error err = SBX_ERROR_INIT;
	git_repository *own = NULL;

	*g->r = git_repository_open_bare(&own, common());
	pthread_barrier_wait(&g->party->start);
	if (!*g->r)
		*g->r = sbx_git_store_yield(own, &g->party->refs, &err);
	git_repository_free(own);
	return NULL;
}

static void yield_from_two_threads(void)
{
	struct party p = {.r = {-1, -1}};
	struct guest guests[2];
	pthread_t threads[2];

	assert_int_equal(sbx_refs_of_source(repo, NULL, &p.refs, NULL), 0);
	pthread_barrier_init(&p.start, NULL, 2);
	for (size_t i = 0; i < SBX_ARRAY_SIZE(threads); i++) {
		guests[i] = (struct guest){&p, &p.r[i]};
		assert_int_equal(pthread_create(&threads[i], NULL, yield_at_once, &guests[i]), 0);
	}
	for (size_t i = 0; i < SBX_ARRAY_SIZE(threads); i++)
		pthread_join(threads[i], NULL);
	pthread_barrier_destroy(&p.start);
	sbx_refs_release(&p.refs);
	assert_int_equal(p.r[0], 0);
	assert_int_equal(p.r[1], 0);
}

static void two_sandboxes_that_see_the_same_branch_at_once(void **state)
{
	(void)state;
	for (int i = 0; i < 50; i++) {
		char text[16], ref[32];
		git_oid blob, tree;

		snprintf(text, sizeof(text), "%d", i);
		snprintf(ref, sizeof(ref), "refs/heads/b%d", i);
		blob = put_blob(text);
		tree = put_tree("file", &blob, GIT_FILEMODE_BLOB);
		put_commit(&tree, NULL, ref);
		yield_from_two_threads();
		assert_true(in_objects(&blob) && !sbx_git_store_has(store, &blob));
	}
}

static void check_files_that_are_as_they_once_were(bool shallow)
{
	git_oid blob = put_blob("ours"), more = put_blob("more"),
	        sub = put_tree("file", &blob, GIT_FILEMODE_BLOB),
	        tree = put_tree("sub", &sub, GIT_FILEMODE_TREE),
	        other = put_tree_with("sub", &sub, GIT_FILEMODE_TREE, &more),
	        first = put_commit(&tree, NULL, NULL), second = put_commit(&other, &first, NULL);

	put_commit(&tree, &second, "refs/heads/merged");
	if (shallow) {
		char hex[GIT_OID_HEXSZ + 1];

		git_oid_tostr(hex, sizeof(hex), &more);
		scratch_write(scratch_path("src/.git/shallow"), hex);
	}
	yield();
	assert_false(sbx_git_store_has(store, &sub) || sbx_git_store_has(store, &blob));
	assert_true(in_objects(&tree) && in_objects(&other) && in_objects(&sub) &&
	            in_objects(&blob) && in_objects(&more));
}

static void files_that_are_as_they_once_were(void **state)
{
	(void)state;
	check_files_that_are_as_they_once_were(false);
}

static void files_as_they_once_were_where_history_is_cut_off(void **state)
{
	(void)state;
	check_files_that_are_as_they_once_were(true);
}

static void a_branch_that_is_a_sandboxs_alone(void **state)
{
	_cleanup_(sbx_strings_release) struct sbx_strings marked = {0};
	const git_oid blob = put_blob("ours"), tree = put_tree("file", &blob, GIT_FILEMODE_BLOB),
	              commit = put_commit(&tree, NULL, "refs/heads/sandbox/a");
	git_oid first;

	(void)state;
	assert_int_equal(git_reference_name_to_id(&first, repo, "HEAD"), 0);
	assert_int_equal(sbx_git_store_leads(repo, &commit), 1);
	assert_int_equal(sbx_git_store_leads(repo, &first), 0);
	for (int i = 0; i < 16; i++)
		assert_int_equal(sbx_git_store_mark(repo, scratch_path("gone%d", i), true), 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(sbx_git_store_mark(repo, "sandbox/a", true), 0);
	scratch_expect(scratch_path("src/.git/sandboxfs/branches"), "sandbox/a\n");
	assert_int_equal(sbx_git_store_marked(common(), &marked), 0);
	assert_string_equal(sbx_git_store_mark_of(&marked, "refs/heads/sandbox/a"), "sandbox/a");
	assert_string_equal(sbx_git_store_mark_of(&marked, "refs/remotes/up/stream/sandbox/a"),
	                    "sandbox/a");
	assert_null(sbx_git_store_mark_of(&marked, "refs/heads/sandbox/ab"));
	assert_null(sbx_git_store_mark_of(&marked, "refs/tags/sandbox/a"));
}

static void the_source_without_it(void **state)
{
	git_oid oid = put_blob("ours"), theirs = put_blob("committed\n");
	git_odb *odb;

	(void)state;
	assert_int_equal(sbx_git_store_without(common(), &odb), 0);
	assert_false(git_odb_exists(odb, &oid));
	assert_true(git_odb_exists(odb, &theirs));
	git_odb_free(odb);
}

static void a_sandbox_is_given_a_copy(void **state)
{
	git_oid oid = put_blob("ours"), none = put_blob("committed\n");
	git_odb *odb;
	int objects;

	(void)state;
	scratch_mkdir(scratch_path("own"));
	objects = open(scratch_path("own"), O_RDONLY | O_DIRECTORY);
	assert_true(objects >= 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(sbx_git_store_give(store, objects, &oid), 0);
	assert_int_equal(sbx_git_store_give(store, objects, &none), -ENOENT);
	assert_int_equal(git_odb_open(&odb, scratch_path("own")), 0);
	assert_true(git_odb_exists(odb, &oid));
	git_odb_free(odb);
	close(objects);
	/* No way out of it. */
	scratch_mkdir(scratch_path("bad"));
	scratch_mkdir(scratch_path("out"));
	for (int i = 0; i < 256; i++)
		assert_int_equal(symlink("../out", scratch_path("bad/%02x", (unsigned)i)), 0);
	objects = open(scratch_path("bad"), O_RDONLY | O_DIRECTORY);
	assert_true(sbx_git_store_give(store, objects, &oid) < 0);
	assert_int_equal(scratch_count(scratch_path("out")), 0);
	close(objects);
}

static void age(const git_oid *oid)
{
	const struct timespec long_ago[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
	char hex[GIT_OID_HEXSZ + 1];

	git_oid_tostr(hex, sizeof(hex), oid);
	assert_int_equal(utimensat(AT_FDCWD,
	                           scratch_path("src/.git/sandboxfs/objects/%.2s/%s", hex, hex + 2),
	                           long_ago, 0),
	                 0);
}

static void what_nothing_leads_to_is_taken_out_when_it_is_old(void **state)
{
	git_oid blob = put_blob("ours"), tree = put_tree("file", &blob, GIT_FILEMODE_BLOB),
	        commit = put_commit(&tree, NULL, "refs/sandboxfs/trash/x"), old = put_blob("old"),
	        fresh = put_blob("fresh"), logged = put_blob("logged"),
	        logged_tree = put_tree("file", &logged, GIT_FILEMODE_BLOB),
	        logged_commit = put_commit(&logged_tree, NULL, "refs/heads/moved");

	(void)state;
	put_commit(&tree, NULL, "refs/heads/moved");
	age(&blob);
	age(&tree);
	age(&commit);
	age(&old);
	age(&logged);
	age(&logged_tree);
	age(&logged_commit);
	sbx_git_store_prune(common(), false);
	assert_true(sbx_git_store_has(store, &old));
	sbx_git_store_prune(common(), true);
	assert_true(sbx_git_store_has(store, &blob) && sbx_git_store_has(store, &tree) &&
	            sbx_git_store_has(store, &commit));
	assert_true(sbx_git_store_has(store, &fresh) && sbx_git_store_has(store, &logged));
	assert_false(sbx_git_store_has(store, &old));
}

/* The host's git has found it there when it staged it. */
static void what_is_staged_stays(void **state)
{
	git_oid oid = put_blob("ours");
	git_index *index;
	git_index_entry e = {.mode = GIT_FILEMODE_BLOB, .id = oid, .path = "file"};

	(void)state;
	age(&oid);
	assert_int_equal(git_index_open(&index, scratch_path("src/.git/index")), 0);
	assert_int_equal(git_index_add(index, &e), 0);
	assert_int_equal(git_index_write(index), 0);
	git_index_free(index);
	sbx_git_store_prune(common(), true);
	assert_true(sbx_git_store_has(store, &oid));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        CASE(what_is_written_is_in_the_store_and_found_in_the_source),
	        CASE(other_alternates_stay),
	        CASE(what_a_branch_leads_to_goes_to_the_source),
	        CASE(two_sandboxes_that_see_the_same_branch_at_once),
	        CASE(files_that_are_as_they_once_were),
	        CASE(files_as_they_once_were_where_history_is_cut_off),
	        CASE(a_branch_that_is_a_sandboxs_alone),
	        CASE(the_source_without_it),
	        CASE(a_sandbox_is_given_a_copy),
	        CASE(what_nothing_leads_to_is_taken_out_when_it_is_old),
	        CASE(what_is_staged_stays),
	};
	int r;

	repo_setup();
	r = cmocka_run_group_tests(tests, NULL, NULL);
	repo_teardown();
	return r;
}
