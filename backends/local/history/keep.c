/*
 * Objects of the source that a mark needs, kept from `git gc` there. The commits where HEAD and
 * the branch stood are kept by refs/sandboxfs/marks/ID/COMMIT. Files that are in none of these
 * commits are copied into the sandbox's own repository.
 */
#include "backends/local/history/keep.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backends/git/git_impl.h"
#include "backends/git/import_objects.h"
#include "backends/git/store.h"
#include "backends/local/history/history_impl.h"
#include "backends/local/history/store.h"
#include "sandboxfs/cleanup.h"

#define KNOWN 3

struct owning {
	git_repository *all;
	git_odb *from, *own;
	int r; /* of libgit2 */
};

static int copy_object(struct owning *o, const git_oid *oid)
{
	git_odb_object *object = NULL;
	git_oid written;
	int r = git_odb_exists(o->own, oid) ? 0 : git_odb_read(&object, o->from, oid);

	if (!r && object)
		r = git_odb_write(&written, o->own, git_odb_object_data(object),
		                  git_odb_object_size(object), git_odb_object_type(object));
	git_odb_object_free(object);
	return r;
}

static int own_tree(struct owning *o, const git_oid *oid, const git_oid *const known[KNOWN]);

/*
 * Finds the trees below KNOWN at the name of ENTRY. True: one of KNOWN has the same entry, so
 * there is nothing to look at below it.
 */
static bool descend(git_tree *const trees[KNOWN], const git_tree_entry *entry,
                    const git_oid *below[KNOWN])
{
	for (int i = 0; i < KNOWN; i++) {
		const git_tree_entry *e =
		        trees[i] ? git_tree_entry_byname(trees[i], git_tree_entry_name(entry))
		                 : NULL;

		if (e && git_oid_equal(git_tree_entry_id(e), git_tree_entry_id(entry)))
			return true;
		below[i] = e && git_tree_entry_type(e) == GIT_OBJECT_TREE ? git_tree_entry_id(e)
		                                                          : NULL;
	}
	return false;
}

static int own_entries(struct owning *o, const git_tree *tree, git_tree *const trees[KNOWN])
{
	int r = 0;

	for (size_t i = 0; i < git_tree_entrycount(tree) && !r; i++) {
		const git_tree_entry *e = git_tree_entry_byindex(tree, i);
		const git_oid *below[KNOWN];

		if (git_tree_entry_type(e) == GIT_OBJECT_COMMIT || descend(trees, e, below))
			continue;
		r = git_tree_entry_type(e) == GIT_OBJECT_TREE
		            ? own_tree(o, git_tree_entry_id(e), below)
		            : copy_object(o, git_tree_entry_id(e));
	}
	return r;
}

/* Copies what the tree OID has and none of KNOWN, which are of commits that are kept. */
static int own_tree(struct owning *o, const git_oid *oid, const git_oid *const known[KNOWN])
{
	_cleanup_git_(tree) git_tree *tree = NULL;
	git_tree *trees[KNOWN] = {0};
	int r = 0;

	for (int i = 0; i < KNOWN; i++)
		if (known[i] && git_oid_equal(known[i], oid))
			return 0;
	for (int i = 0; i < KNOWN && !r; i++)
		if (known[i])
			r = git_tree_lookup(&trees[i], o->all, known[i]);
	if (!r)
		r = git_tree_lookup(&tree, o->all, oid);
	if (!r)
		r = own_entries(o, tree, trees);
	if (!r)
		r = copy_object(o, oid);
	for (int i = 0; i < KNOWN; i++)
		git_tree_free(trees[i]);
	return r;
}

static int open_own(const struct sbx_snapshot_context *context, struct owning *o)
{
	_cleanup_free_ char *path =
	        sbx_format("%s/git/%s/history/objects", context->b->state.path, context->rec->id);
	git_odb_backend *loose = NULL;
	int r = path ? git_odb_new(&o->own) : GIT_ERROR;

	if (!r)
		r = git_odb_backend_loose(&loose, path, -1, 0, 0, 0);
	if (!r)
		r = git_odb_add_backend(o->own, loose, 1);
	return r ? r : git_repository_odb(&o->from, o->all);
}

static const git_oid *tree_of(git_repository *all, const git_oid *commit, git_oid *ret)
{
	return sbx_local_history_tree_of(all, commit, ret, NULL) ? NULL : ret;
}

static int own_objects(const struct sbx_snapshot_context *context, git_repository *all,
                       const struct sbx_local_history_marked *marked, const git_oid *tree,
                       const git_oid *head)
{
	struct owning o = {.all = all};
	git_oid base, trees[KNOWN];
	const git_oid *const known[KNOWN] = {
	        git_oid_fromstr(&base, context->rec->base) ? NULL : tree_of(all, &base, &trees[0]),
	        head ? tree_of(all, head, &trees[1]) : NULL,
	        marked->has_branch ? tree_of(all, &marked->branch, &trees[2]) : NULL,
	};
	int r = open_own(context, &o);

	if (!r)
		r = own_tree(&o, tree, known);
	if (!r && marked->has_index)
		r = own_tree(&o, &marked->index, known);
	if (!r && marked->has_exact)
		r = own_tree(&o, &marked->exact, known);
	git_odb_free(o.from);
	git_odb_free(o.own);
	return r;
}

int sbx_local_history_give_staged(const struct sbx_snapshot_context *context, git_repository *all,
                                  const git_oid *staged, const git_oid *head, struct sbx_error *err)
{
	_cleanup_git_(repository) git_repository *source = NULL;
	struct owning o = {.all = all};
	struct sbx_git_owner owner;
	git_oid tree;
	const git_oid *const known[KNOWN] = {head ? tree_of(all, head, &tree) : NULL};
	int r = context->rec->common ? sbx_git_open(context->rec->common, &source) : 0;

	if (!source)
		return r ? sbx_git_fail(err, r, "cannot open the repository %s",
		                        context->rec->common)
		         : 0;
	r = sbx_git_store_use(source);
	if (!r)
		r = git_repository_odb(&o.own, source);
	if (!r)
		r = git_repository_odb(&o.from, all);
	owner = sbx_git_owner_begin(context->rec->common);
	if (!r)
		r = own_tree(&o, staged, known);
	sbx_git_owner_end(&owner);
	git_odb_free(o.from);
	git_odb_free(o.own);
	return r ? sbx_git_fail(err, r, "cannot stage what was staged") : 0;
}

/* ---- refs ---- */

static char *ref_of(const struct sbx_snapshot_context *context, const git_oid *oid)
{
	char hex[GIT_OID_HEXSZ + 1] = "";

	if (oid)
		git_oid_tostr(hex, sizeof(hex), oid);
	return sbx_format(SBX_GIT_MARKS "%s/%s", context->rec->worktree, hex);
}

static int keep_commit(const struct sbx_snapshot_context *context, git_repository *source,
                       const git_oid *oid, struct sbx_error *err)
{
	_cleanup_free_ char *name = ref_of(context, oid);

	return sbx_local_history_make_ref(context, source, name, oid, NULL, "what was before", err);
}

/* A mark: what it says, its tree, and where HEAD stood. */
struct mark {
	struct sbx_local_history_marked marked;
	git_oid tree, head;
	bool has_head;
};

static int read_mark(git_repository *all, const git_oid *mark, struct mark *ret,
                     struct sbx_error *err)
{
	git_commit *commit = NULL;
	int r = sbx_local_history_read_mark(all, mark, &ret->marked, err);

	if (r)
		return r;
	r = git_commit_lookup(&commit, all, mark);
	if (r)
		return sbx_git_fail(err, r, "a mark cannot be read");
	ret->tree = *git_commit_tree_id(commit);
	ret->has_head = git_commit_parentcount(commit) > 0;
	if (ret->has_head)
		ret->head = *git_commit_parent_id(commit, 0);
	git_commit_free(commit);
	return 0;
}

static int keep_commits(const struct sbx_snapshot_context *context, git_repository *all,
                        const struct mark *m, struct sbx_error *err)
{
	int r = m->has_head ? keep_commit(context, all, &m->head, err) : 0;

	if (!r && m->marked.has_branch)
		r = keep_commit(context, all, &m->marked.branch, err);
	return r;
}

int sbx_local_history_keep(const struct sbx_snapshot_context *context, git_repository *all,
                           const git_oid *mark, struct sbx_error *err)
{
	struct mark m = {0};
	int r;

	if (!context->rec->common || !context->rec->worktree)
		return 0;
	r = read_mark(all, mark, &m, err);
	if (!r)
		r = keep_commits(context, all, &m, err);
	if (!r) {
		int g = own_objects(context, all, &m.marked, &m.tree, m.has_head ? &m.head : NULL);

		r = g ? sbx_git_fail(err, g, "cannot keep what was before") : 0;
	}
	sbx_local_history_marked_release(&m.marked);
	return r;
}

void sbx_local_history_keep_only(const struct sbx_snapshot_context *context, git_repository *all,
                                 const git_oid *mark)
{
	_cleanup_(sbx_strings_release) struct sbx_strings names = {0};
	_cleanup_free_ char *prefix = NULL, *head = NULL, *branch = NULL;
	struct sbx_git_owner owner;
	struct mark m = {0};

	if (!context->rec->common || !context->rec->worktree)
		return;
	if (mark && read_mark(all, mark, &m, NULL))
		return;
	prefix = ref_of(context, NULL);
	head = ref_of(context, m.has_head ? &m.head : NULL);
	branch = ref_of(context, m.marked.has_branch ? &m.marked.branch : NULL);
	if (prefix && head && branch && sbx_local_history_find_refs(all, prefix, &names) == 0) {
		owner = sbx_git_owner_begin(context->rec->common);
		for (size_t i = 0; i < names.n; i++)
			if (strcmp(names.items[i], head) != 0 &&
			    strcmp(names.items[i], branch) != 0)
				git_reference_remove(all, names.items[i]);
		sbx_git_owner_end(&owner);
	}
	sbx_local_history_marked_release(&m.marked);
}
