#include "tests/lib/repo.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <git2.h>
#include <stdio.h>
#include <string.h>

static void ok(int code)
{
	const git_error *e = git_error_last();

	if (code < 0)
		fail_msg("libgit2: %d %s", code, e && e->message ? e->message : "");
}

void repo_setup(void)
{
	const int levels[] = {GIT_CONFIG_LEVEL_SYSTEM, GIT_CONFIG_LEVEL_XDG,
	                      GIT_CONFIG_LEVEL_GLOBAL, GIT_CONFIG_LEVEL_PROGRAMDATA};

	git_libgit2_init();
	for (size_t i = 0; i < 4; i++)
		git_libgit2_opts(GIT_OPT_SET_SEARCH_PATH, levels[i], "/nonexistent");
}

void repo_teardown(void)
{
	git_libgit2_shutdown();
}

const char *repo_link(const char *path, const char *text)
{
	char name[5000];
	FILE *f;

	snprintf(name, sizeof(name), "%s/.git", path);
	f = fopen(name, "w");
	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
	return path;
}

void repo_init(const char *path, bool bare)
{
	git_repository *repo;

	ok(git_repository_init(&repo, path, bare));
	git_repository_free(repo);
}

static git_repository *open_repo(const char *path)
{
	git_repository *repo;

	ok(git_repository_open(&repo, path));
	return repo;
}

static void write_tree(git_repository *repo, git_oid *ret)
{
	git_index *index;

	ok(git_repository_index(&index, repo));
	ok(git_index_add_all(index, NULL, 0, NULL, NULL));
	ok(git_index_update_all(index, NULL, NULL, NULL));
	ok(git_index_write(index));
	ok(git_index_write_tree(ret, index));
	git_index_free(index);
}

const char *repo_commit(const char *path, const char *message)
{
	static char hex[65];
	git_repository *repo = open_repo(path);
	git_object *parent = NULL;
	git_signature *who;
	git_oid tree_id, id;
	git_tree *tree;

	write_tree(repo, &tree_id);
	ok(git_tree_lookup(&tree, repo, &tree_id));
	ok(git_signature_new(&who, "Test", "test@example.org", 1000000000, 0));
	git_revparse_single(&parent, repo, "HEAD");
	ok(git_commit_create_v(&id, repo, "HEAD", who, who, NULL, message, tree, parent ? 1 : 0,
	                       (git_commit *)parent));
	git_oid_tostr(hex, sizeof(hex), &id);
	git_signature_free(who);
	git_tree_free(tree);
	git_object_free(parent);
	git_repository_free(repo);
	return hex;
}

const char *repo_branch(const char *path, const char *branch)
{
	static char hex[65];
	git_repository *repo = open_repo(path);
	git_reference *ref;
	int r = git_branch_lookup(&ref, repo, branch, GIT_BRANCH_LOCAL);

	if (!r) {
		git_oid_tostr(hex, sizeof(hex), git_reference_target(ref));
		git_reference_free(ref);
	}
	git_repository_free(repo);
	return r ? NULL : hex;
}

void repo_make_branch(const char *path, const char *branch, const char *commit)
{
	git_repository *repo = open_repo(path);
	git_object *at;
	git_reference *ref;

	ok(git_revparse_single(&at, repo, commit));
	ok(git_branch_create(&ref, repo, branch, (git_commit *)at, 0));
	git_reference_free(ref);
	git_object_free(at);
	git_repository_free(repo);
}

void repo_delete_branch(const char *path, const char *branch)
{
	git_repository *repo = open_repo(path);
	char name[256];

	snprintf(name, sizeof(name), "refs/heads/%s", branch);
	ok(git_reference_remove(repo, name));
	git_repository_free(repo);
}

int repo_branches(const char *path)
{
	git_repository *repo = open_repo(path);
	git_branch_iterator *it;
	git_reference *ref;
	git_branch_t type;
	int n = 0;

	ok(git_branch_iterator_new(&it, repo, GIT_BRANCH_LOCAL));
	while (git_branch_next(&ref, &type, it) == 0) {
		git_reference_free(ref);
		n++;
	}
	git_branch_iterator_free(it);
	git_repository_free(repo);
	return n;
}

int repo_changes(const char *path)
{
	git_repository *repo = open_repo(path);
	git_status_options opts = GIT_STATUS_OPTIONS_INIT;
	git_status_list *list;
	int n;

	opts.flags = GIT_STATUS_OPT_INCLUDE_UNTRACKED;
	ok(git_status_list_new(&list, repo, &opts));
	n = (int)git_status_list_entrycount(list);
	git_status_list_free(list);
	git_repository_free(repo);
	return n;
}
