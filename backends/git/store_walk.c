/*
 * Trees are taken from a list, not by recursion, and each once: a command decides how deep they
 * are and how often they name each other. What a tree has in common with those it is compared with
 * is left to them, so these come first: else two that each leave a directory to the other, as where
 * files are as they once were, would both pass over it.
 */
#include "backends/git/store_walk.h"

#include <search.h>
#include <stdbool.h>
#include <stdlib.h>

#include "backends/git/git_impl.h"
#include "sandboxfs/grow.h"

#define PARENTS 3    /* whose files are compared */
#define CUT     1000 /* commits, where history is cut off and there is no end to be found */

struct step {
	git_oid tree;
	git_oid known[PARENTS];
	unsigned n;
};

struct walk {
	git_repository *repo;
	int (*met)(const git_oid *oid, void *data);
	void *data;
	void *seen; /* tree of git_oid: trees, and commits where there is no revwalk */
	struct step *todo;
	size_t n, cap;
};

int sbx_git_tips_add(struct sbx_git_tips *tips, const git_oid *oid)
{
	if (SBX_GROW(tips->at, tips->n, tips->cap, 16))
		return -ENOMEM;
	tips->at[tips->n++] = *oid;
	return 0;
}

void sbx_git_tips_release(struct sbx_git_tips *tips)
{
	free(tips->at);
	*tips = (struct sbx_git_tips){0};
}

static int compare(const void *a, const void *b)
{
	return git_oid_cmp(a, b);
}

/* 1: for the first time; 0; -ENOMEM. */
static int see(struct walk *w, const git_oid *oid)
{
	git_oid *copy;

	if (tfind(oid, &w->seen, compare))
		return 0;
	copy = malloc(sizeof(*copy));
	if (!copy)
		return -ENOMEM;
	*copy = *oid;
	if (tsearch(copy, &w->seen, compare))
		return 1;
	free(copy);
	return -ENOMEM;
}

/* ---- trees ---- */

static int add_tree(struct walk *w, const struct step *step)
{
	for (unsigned i = 0; i < step->n; i++)
		if (git_oid_equal(&step->tree, &step->known[i]))
			return 0;
	if (SBX_GROW(w->todo, w->n, w->cap, 64))
		return -ENOMEM;
	w->todo[w->n++] = *step;
	return 0;
}

/* Finds the trees below AT at the name of E. True: one of AT has the same entry. */
static bool is_known(git_tree *const at[PARENTS], unsigned n, const git_tree_entry *e,
                     struct step *below)
{
	for (unsigned i = 0; i < n; i++) {
		const git_tree_entry *k =
		        at[i] ? git_tree_entry_byname(at[i], git_tree_entry_name(e)) : NULL;

		if (k && git_oid_equal(git_tree_entry_id(k), git_tree_entry_id(e)))
			return true;
		if (k && git_tree_entry_type(k) == GIT_OBJECT_TREE)
			below->known[below->n++] = *git_tree_entry_id(k);
	}
	return false;
}

static int take_entries(struct walk *w, const git_tree *tree, git_tree *const at[PARENTS],
                        unsigned n)
{
	int r = 0;

	for (size_t i = 0; i < git_tree_entrycount(tree) && !r; i++) {
		const git_tree_entry *e = git_tree_entry_byindex(tree, i);
		struct step below = {.tree = *git_tree_entry_id(e)};

		if (git_tree_entry_type(e) == GIT_OBJECT_COMMIT || is_known(at, n, e, &below))
			continue;
		r = git_tree_entry_type(e) == GIT_OBJECT_TREE
		            ? add_tree(w, &below)
		            : w->met(git_tree_entry_id(e), w->data);
	}
	return r;
}

static int take_tree(struct walk *w)
{
	const struct step step = w->todo[--w->n];
	_cleanup_git_(tree) git_tree *tree = NULL;
	git_tree *at[PARENTS] = {NULL};
	int r = see(w, &step.tree);

	if (r <= 0)
		return r;
	r = w->met(&step.tree, w->data);
	if (r || git_tree_lookup(&tree, w->repo, &step.tree))
		return r;
	for (unsigned i = 0; i < step.n; i++)
		if (git_tree_lookup(&at[i], w->repo, &step.known[i]))
			at[i] = NULL;
	r = take_entries(w, tree, at, step.n);
	for (unsigned i = 0; i < step.n; i++)
		git_tree_free(at[i]);
	return r;
}

static int take_trees(struct walk *w, const struct step *first)
{
	int r = add_tree(w, first);

	while (!r && w->n)
		r = take_tree(w);
	return r;
}

/* ---- commits ---- */

/* The files of C, but for those that the commits whose trees are in STEP have. */
static int take_commit(struct walk *w, const git_commit *c, struct step *step)
{
	const int r = w->met(git_commit_id(c), w->data);

	step->tree = *git_commit_tree_id(c);
	return r ? r : take_trees(w, step);
}

static int take_after_parents(struct walk *w, const git_oid *oid)
{
	git_commit *c = NULL;
	struct step step = {0};
	int r = 0;

	if (git_commit_lookup(&c, w->repo, oid))
		return 0;
	for (unsigned i = 0; i < git_commit_parentcount(c) && step.n < PARENTS; i++) {
		git_commit *parent = NULL;

		if (git_commit_parent(&parent, c, i) == 0)
			step.known[step.n++] = *git_commit_tree_id(parent);
		git_commit_free(parent);
	}
	r = take_commit(w, c, &step);
	git_commit_free(c);
	return r;
}

/* 1: there is no walking, as history is cut off. */
static int walk_history(struct walk *w, const struct sbx_git_tips *from,
                        const struct sbx_git_tips *known)
{
	_cleanup_git_(revwalk) git_revwalk *walk = NULL;
	git_oid oid;
	int r = 0, next = 0;

	/* It would also leak memory. */
	if (git_repository_is_shallow(w->repo) == 1 || git_revwalk_new(&walk, w->repo))
		return 1;
	git_revwalk_sorting(walk, GIT_SORT_TOPOLOGICAL | GIT_SORT_REVERSE);
	for (size_t i = 0; i < from->n; i++)
		if (git_revwalk_push(walk, &from->at[i]))
			return 1;
	for (size_t i = 0; i < known->n; i++)
		git_revwalk_hide(walk, &known->at[i]);
	while (!r && (next = git_revwalk_next(&oid, walk)) == 0)
		r = take_after_parents(w, &oid);
	return r ? r : next != GIT_ITEROVER;
}

static int add_parents(const git_commit *c, struct sbx_git_tips *todo)
{
	int r = 0;

	for (unsigned i = 0; i < git_commit_parentcount(c) && !r; i++)
		r = sbx_git_tips_add(todo, git_commit_parent_id(c, i));
	return r;
}

/* Without an order nothing but what KNOWN has is left out. */
static struct step trees_of(const struct walk *w, const struct sbx_git_tips *known)
{
	struct step ret = {0};

	for (size_t i = 0; i < known->n && ret.n < PARENTS; i++) {
		git_commit *c = NULL;

		if (git_commit_lookup(&c, w->repo, &known->at[i]) == 0)
			ret.known[ret.n++] = *git_commit_tree_id(c);
		git_commit_free(c);
	}
	return ret;
}

static int walk_some(struct walk *w, const struct sbx_git_tips *from,
                     const struct sbx_git_tips *known)
{
	_cleanup_(sbx_git_tips_release) struct sbx_git_tips todo = {0};
	struct step step = trees_of(w, known);
	int r = 0;

	for (size_t i = 0; i < known->n && r >= 0; i++)
		r = see(w, &known->at[i]);
	for (size_t i = 0; i < from->n && r >= 0; i++)
		r = sbx_git_tips_add(&todo, &from->at[i]);
	r = r < 0 ? r : 0;
	for (size_t k = 0; k < todo.n && k < CUT && !r; k++) {
		const git_oid oid = todo.at[k];
		git_commit *c = NULL;

		r = see(w, &oid);
		if (r > 0)
			r = git_commit_lookup(&c, w->repo, &oid) ? 0 : take_commit(w, c, &step);
		if (!r && c)
			r = add_parents(c, &todo);
		git_commit_free(c);
	}
	return r;
}

int sbx_git_store_walk_files(git_repository *repo, const git_oid *commit, const git_oid *known,
                             int (*met)(const git_oid *oid, void *data), void *data)
{
	struct walk w = {.repo = repo, .met = met, .data = data};
	git_commit *c = NULL, *k = NULL;
	struct step step = {0};
	int r = 0;

	if (git_commit_lookup(&c, repo, commit) == 0) {
		step.tree = *git_commit_tree_id(c);
		if (known && git_commit_lookup(&k, repo, known) == 0)
			step.known[step.n++] = *git_commit_tree_id(k);
		r = take_trees(&w, &step);
	}
	git_commit_free(k);
	git_commit_free(c);
	tdestroy(w.seen, free);
	free(w.todo);
	return r;
}

/* ---- where it begins ---- */

/* Tags lead to commits, and may lead to trees and files. */
static int add_tip(struct walk *w, const git_oid *oid, struct sbx_git_tips *commits)
{
	_cleanup_git_(object) git_object *o = NULL;
	int r = 0;

	if (git_object_lookup(&o, w->repo, oid, GIT_OBJECT_ANY))
		return 0;
	while (!r && git_object_type(o) == GIT_OBJECT_TAG) {
		git_object *next = NULL;

		r = w->met(git_object_id(o), w->data);
		if (git_tag_target(&next, (git_tag *)o))
			return r;
		git_object_free(o);
		o = next;
	}
	if (r)
		return r;
	if (git_object_type(o) == GIT_OBJECT_COMMIT)
		return sbx_git_tips_add(commits, git_object_id(o));
	return git_object_type(o) == GIT_OBJECT_TREE
	               ? take_trees(w, &(struct step){.tree = *git_object_id(o)})
	               : w->met(git_object_id(o), w->data);
}

/* Commits alone count of what is known. */
static int add_known(git_repository *repo, const struct sbx_git_tips *known,
                     struct sbx_git_tips *commits)
{
	int r = 0;

	for (size_t i = 0; i < known->n && !r; i++) {
		_cleanup_git_(object) git_object *o = NULL, *c = NULL;

		if (git_object_lookup(&o, repo, &known->at[i], GIT_OBJECT_ANY) == 0 &&
		    git_object_peel(&c, o, GIT_OBJECT_COMMIT) == 0)
			r = sbx_git_tips_add(commits, git_object_id(c));
	}
	return r;
}

int sbx_git_store_walk(git_repository *repo, const struct sbx_git_tips *from,
                       const struct sbx_git_tips *known, int (*met)(const git_oid *oid, void *data),
                       void *data)
{
	_cleanup_(sbx_git_tips_release) struct sbx_git_tips commits = {0}, hidden = {0};
	struct walk w = {.repo = repo, .met = met, .data = data};
	int r = 0;

	for (size_t i = 0; i < from->n && !r; i++)
		r = add_tip(&w, &from->at[i], &commits);
	if (!r && commits.n)
		r = add_known(repo, known, &hidden);
	if (!r && commits.n)
		r = walk_history(&w, &commits, &hidden);
	if (r == 1)
		r = walk_some(&w, &commits, &hidden);
	tdestroy(w.seen, free);
	free(w.todo);
	return r;
}
