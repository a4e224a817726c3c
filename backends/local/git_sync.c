/*
 * Refs and HEAD of both sides. Objects go first, then the ref that needs them by compare-and-swap, then HEAD, and what
 * was agreed on last: after a crash in between, the next pass finds both sides alike, or the same to do.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/local/git_export.h"
#include "backends/local/git_impl.h"
#include "backends/local/git_private_impl.h"
#include "backends/support/beneath.h"
#include "backends/support/fsutil.h"

#define KEPT_MOST  64 /* branches of its own that a sandbox can have in the source */
#define AGREED_MAX ((size_t)64 * 1024 * 1024)

static const char heads[] = "refs/heads/";

static bool same_oid(const git_oid *a, const git_oid *b)
{
	return !a ? !b : b && git_oid_equal(a, b);
}

/* The branch that a HEAD names, or NULL. */
static const char *branch_of(const char *head)
{
	const char *prefix = "ref: refs/heads/";
	size_t n = strlen(prefix);
	int valid = 0;

	if (!head || strncmp(head, prefix, n) != 0)
		return NULL;
	return git_reference_name_is_valid(&valid, head + strlen("ref: ")) == 0 && valid
	               ? head + strlen("ref: ")
	               : NULL;
}

static bool commit_of(const char *head, git_oid *ret)
{
	return head && strlen(head) == GIT_OID_HEXSZ && git_oid_fromstr(ret, head) == 0;
}

/* Branches whose tips both sides may move: the sandbox's, and what the host has checked out in it. */
static bool is_shared(const struct sbx_sync *y, const char *ref)
{
	const char *current = branch_of(y->head_host);

	if (current && strcmp(current, ref) == 0)
		return true;
	return strncmp(ref, heads, strlen(heads)) == 0 &&
	       strcmp(ref + strlen(heads), y->p->wt.branch) == 0;
}

/* ---- reading ---- */

static int read_line(int dir, const char *name, char **ret)
{
	size_t len;
	int r = sbx_beneath_read(dir, name, SBX_GIT_HEAD_MAX, ret, &len, NULL);

	if (!r)
		(*ret)[strcspn(*ret, "\n")] = '\0';
	return r;
}

static int read_list(int dir, const char *name, struct sbx_refs *ret)
{
	_cleanup_free_ char *text = NULL;
	int r = sbx_file_read(dir, name, AGREED_MAX, &text);

	if (!r)
		r = sbx_refs_parse(text, ret);
	sbx_refs_sort(ret);
	return r == -ENOENT ? 0 : r;
}

static int read_agreed(struct sbx_sync *y)
{
	int r = read_line(y->meta, "head", &y->head_base);

	if (!r || r == -ENOENT)
		r = read_list(y->meta, "refs", &y->refs_base);
	return r ? r : read_list(y->meta, "kept", &y->kept_base);
}

static int read_sides(struct sbx_sync *y)
{
	_cleanup_free_ char *own = sbx_format("refs/sandboxfs/%s/", y->name);
	int r = own ? read_line(y->entry, "HEAD", &y->head_host) : -ENOMEM;

	if (r)
		return sbx_fail(y->err, -r, "cannot read HEAD of the worktree: %s", strerror(-r));
	r = sbx_refs_of_source(y->source, NULL, &y->refs_host, y->err);
	if (!r)
		r = sbx_refs_of_source(y->source, own, &y->kept, y->err);
	if (r)
		return r;
	r = sbx_refs_of_private(y->repo, &y->refs_inside);
	if (!r)
		r = read_line(y->repo, "HEAD", &y->head_inside);
	return r ? sbx_fail(y->err, -r, "cannot read the sandbox's repository: %s", strerror(-r))
	         : 0;
}

/* ---- to the source ---- */

static int export_commit(struct sbx_sync *y, const git_oid *oid)
{
	struct sbx_error err = SBX_ERROR_INIT;
	int r = sbx_sync_reader(y);

	if (!r)
		r = sbx_git_export(y->source, y->reader, oid, GIT_OBJECT_COMMIT, &y->taken, &err);
	if (r)
		sbx_sync_note(y, r, &err);
	return r;
}

/* The ref NAME of the source becomes NEW, where it still is OLD (NULL: not there). */
static int swap_source(struct sbx_sync *y, const char *name, const git_oid *old, const git_oid *new)
{
	_cleanup_git_(reference) git_reference *ref = NULL;
	struct sbx_git_owner owner = sbx_git_owner_begin(y->p->wt.common);
	struct sbx_error err = SBX_ERROR_INIT;
	int r = old ? git_reference_create_matching(&ref, y->source, name, new, 1, old,
	                                            "sandboxfs: from inside")
	            : git_reference_create(&ref, y->source, name, new, 0, "sandboxfs: from inside");

	sbx_git_owner_end(&owner);
	y->moved = true;
	/* Moved just now: the next pass sees where. */
	if (r == GIT_EMODIFIED || (!old && r == GIT_EEXISTS))
		return -EAGAIN;
	if (r) {
		r = sbx_git_fail(&err, r, "cannot move %s", name);
		y->moved = false;
		sbx_sync_note(y, r, &err);
	}
	return r;
}

/* Has what only the sandbox knows as its ref NAME stand in the source, in the sandbox's own room there. */
static void keep_in_source(struct sbx_sync *y, const char *name, const git_oid *oid)
{
	_cleanup_free_ char *kept = sbx_format("refs/sandboxfs/%s/%s", y->name, name);
	const git_oid *old = kept ? sbx_refs_find(&y->kept, kept) : NULL;

	if (!kept || y->kept_now.n >= KEPT_MOST || sbx_refs_add(&y->kept_now, kept, oid) ||
	    same_oid(old, oid))
		return;
	if (!export_commit(y, oid))
		swap_source(y, kept, old, oid);
}

/* Whether all of the commit OID is on the sandbox's branch, as the source has it. */
static bool is_on_branch(struct sbx_sync *y, const git_oid *oid)
{
	_cleanup_free_ char *branch = sbx_format("%s%s", heads, y->p->wt.branch);
	const git_oid *tip = branch ? sbx_refs_find(&y->agreed, branch) : NULL;

	return tip &&
	       (git_oid_equal(tip, oid) || git_graph_descendant_of(y->source, tip, oid) == 1);
}

/* Takes back what the sandbox has no more: a branch it removed, a stash it popped, commits that were merged. */
static int drop_kept(struct sbx_sync *y)
{
	size_t n = strlen("/diverged");
	int r = 0;

	sbx_refs_sort(&y->kept_now);
	for (size_t i = 0; i < y->kept_base.n && !r; i++) {
		const struct sbx_ref *was = &y->kept_base.at[i];
		struct sbx_git_owner owner;
		size_t len = strlen(was->name);

		if (sbx_refs_find(&y->kept_now, was->name))
			continue;
		if (len > n && strcmp(was->name + len - n, "/diverged") == 0 &&
		    !is_on_branch(y, &was->oid)) {
			r = sbx_refs_add(&y->kept_now, was->name, &was->oid);
			continue;
		}
		owner = sbx_git_owner_begin(y->p->wt.common);
		git_reference_remove(y->source, was->name);
		sbx_git_owner_end(&owner);
	}
	sbx_refs_sort(&y->kept_now);
	return r;
}

/* ---- deciding ---- */

static int put(struct sbx_refs *refs, const char *name, const git_oid *oid)
{
	return oid ? sbx_refs_add(refs, name, oid) : 0;
}

static char *host_copy(const char *name)
{
	return sbx_format("refs/remotes/host/%s", name + strlen(heads));
}

/* Both moved apart: neither is touched, each side is shown what the other has. */
static int diverged(struct sbx_sync *y, const char *name, const git_oid *host,
                    const git_oid *inside)
{
	_cleanup_free_ char *copy = host_copy(name);
	struct sbx_error err = SBX_ERROR_INIT;
	int r = copy ? 0 : -ENOMEM;

	if (!r && host)
		r = sbx_refs_add(&y->want, copy, host);
	if (inside)
		keep_in_source(y, "diverged", inside);
	sbx_fail(&err, EEXIST,
	         "branch %s was moved on both sides: what was committed inside is "
	         "refs/sandboxfs/%s/diverged in the source, and what was committed outside is "
	         "host/%s inside; commit what is there and merge one into the other",
	         name + strlen(heads), y->name, name + strlen(heads));
	sbx_sync_note(y, -EEXIST, &err);
	return r;
}

/* Where a shared ref is to stand: WANT inside, and AGREED when the source has it too. */
static int decide_shared(struct sbx_sync *y, const char *name)
{
	const git_oid *base = sbx_refs_find(&y->refs_base, name);
	const git_oid *host = sbx_refs_find(&y->refs_host, name);
	const git_oid *inside = sbx_refs_find(&y->refs_inside, name);
	const git_oid *want = inside, *agreed = base;
	int r = 0;

	if (same_oid(host, inside)) {
		agreed = host;
	} else if (!inside || same_oid(inside, base)) {
		want = agreed = host;
	} else if (export_commit(y, inside)) {
		/* Noted; both stay where they are. */
	} else if (same_oid(host, base) ||
	           (host && git_graph_descendant_of(y->source, inside, host) == 1)) {
		if (!swap_source(y, name, host, inside))
			agreed = inside;
	} else if (host && git_graph_descendant_of(y->source, host, inside) == 1) {
		want = agreed = host;
	} else {
		r = diverged(y, name, host, inside);
	}
	if (!r)
		r = put(&y->want, name, want);
	return r ? r : put(&y->agreed, name, agreed);
}

/* Any other ref: inside shows the source's, until a command moves it; then it is the sandbox's own. */
static int decide_seen(struct sbx_sync *y, const char *name)
{
	const git_oid *base = sbx_refs_find(&y->refs_base, name);
	const git_oid *host = sbx_refs_find(&y->refs_host, name);
	const git_oid *inside = sbx_refs_find(&y->refs_inside, name);
	bool untouched = same_oid(inside, base);
	int r = put(&y->want, name, untouched ? host : inside);

	if (inside && !untouched && !same_oid(inside, host) &&
	    (strncmp(name, heads, strlen(heads)) == 0 || strcmp(name, "refs/stash") == 0))
		keep_in_source(y, name + strlen("refs/"), inside);
	if (!r)
		r = put(&y->agreed, name, untouched || same_oid(inside, host) ? host : base);
	return r;
}

/* refs/remotes/host/ is ours: what diverged() puts there. */
static bool is_copy(const char *name)
{
	return strncmp(name, "refs/remotes/host/", strlen("refs/remotes/host/")) == 0;
}

static int decide(struct sbx_sync *y)
{
	const struct sbx_refs *from[] = {&y->refs_base, &y->refs_host, &y->refs_inside};
	size_t at[SBX_ARRAY_SIZE(from)] = {0};
	int r = 0;

	for (;;) {
		const char *name = NULL;

		for (size_t i = 0; i < SBX_ARRAY_SIZE(from); i++)
			if (at[i] < from[i]->n &&
			    (!name || strcmp(from[i]->at[at[i]].name, name) < 0))
				name = from[i]->at[at[i]].name;
		if (!name || r)
			break;
		if (!is_copy(name))
			r = is_shared(y, name) ? decide_shared(y, name) : decide_seen(y, name);
		for (size_t i = 0; i < SBX_ARRAY_SIZE(from); i++)
			if (at[i] < from[i]->n && strcmp(from[i]->at[at[i]].name, name) == 0)
				at[i]++;
	}
	sbx_refs_sort(&y->want);
	sbx_refs_sort(&y->agreed);
	return r ? sbx_fail(y->err, -r, "the refs cannot be brought over: %s", strerror(-r)) : 0;
}

/* ---- HEAD ---- */

/*
 * HEAD of inside as the worktree's entry can have it; malloc'd, NULL: it cannot. A branch that is not shared
 * may be checked out elsewhere on the host: there it is the commit alone.
 */
static char *host_form(struct sbx_sync *y)
{
	const char *branch = branch_of(y->head_inside);
	const git_oid *tip = branch ? sbx_refs_find(&y->want, branch) : NULL;
	char hex[GIT_OID_HEXSZ + 1];
	git_oid oid;

	if (branch && is_shared(y, branch))
		return strdup(y->head_inside);
	if (!tip && commit_of(y->head_inside, &oid))
		tip = &oid;
	if (!tip || export_commit(y, tip))
		return NULL;
	return strdup(git_oid_tostr(hex, sizeof(hex), tip));
}

static void replace_head(struct sbx_sync *y, int dir, const char *text)
{
	_cleanup_free_ char *line = sbx_format("%s\n", text);
	struct sbx_git_owner owner = {0};
	struct sbx_error err = SBX_ERROR_INIT;
	int r;

	if (dir == y->entry)
		owner = sbx_git_owner_begin(y->p->wt.common);
	r = line ? sbx_locked_replace(dir, "HEAD", line, strlen(line), NULL) : -ENOMEM;
	sbx_git_owner_end(&owner);
	y->moved = true;
	if (!r)
		return;
	y->moved = false;
	sbx_fail(&err, -r, "HEAD cannot be brought over: %s",
	         r == -EBUSY ? "git is at work there" : strerror(-r));
	sbx_sync_note(y, r, &err);
}

/* Whether the host, who saw the commit BASE of a branch that only the sandbox has, went on from there. */
static bool went_on(struct sbx_sync *y, const char *base, git_oid *ret)
{
	git_oid old;

	return commit_of(base, &old) && commit_of(y->head_host, ret) &&
	       git_graph_descendant_of(y->source, ret, &old) == 1;
}

/* The host moved. What it committed on a branch that only the sandbox has belongs on that branch. */
static void follow_host(struct sbx_sync *y, const char *base)
{
	const char *branch = branch_of(y->head_inside);
	git_oid oid;

	if (branch && !is_shared(y, branch) && went_on(y, base, &oid)) {
		for (size_t i = 0; i < y->want.n; i++)
			if (strcmp(y->want.at[i].name, branch) == 0)
				y->want.at[i].oid = oid;
		return;
	}
	replace_head(y, y->repo, y->head_host);
	free(y->head_inside);
	y->head_inside = strdup(y->head_host);
}

static void follow_inside(struct sbx_sync *y, const char *form)
{
	replace_head(y, y->entry, form);
	free(y->head_host);
	y->head_host = strdup(form);
}

static void sync_head(struct sbx_sync *y)
{
	_cleanup_free_ char *form = host_form(y);
	const char *base = y->head_base ? y->head_base : y->head_host;
	struct sbx_error err = SBX_ERROR_INIT;
	bool host_moved = strcmp(y->head_host, base) != 0;
	bool inside_moved = form && strcmp(form, base) != 0 && strcmp(y->head_inside, base) != 0;

	if (form && strcmp(form, y->head_host) == 0) {
		base = form;
	} else if (inside_moved && host_moved) {
		sbx_fail(&err, EEXIST,
		         "something else was checked out on both sides: %s inside, %s outside",
		         y->head_inside, y->head_host);
		sbx_sync_note(y, -EEXIST, &err);
	} else if (host_moved) {
		follow_host(y, base);
		base = y->head_host;
	} else if (inside_moved) {
		follow_inside(y, form);
		base = form;
	}
	y->head_agreed = strdup(base);
}

bool sbx_sync_tips(struct sbx_sync *y, git_oid *host, git_oid *inside)
{
	const char *branch = branch_of(y->head_host);
	git_oid tip;

	if (branch && git_reference_name_to_id(host, y->source, branch))
		return false;
	if (!branch && !commit_of(y->head_host, host))
		return false;
	branch = branch_of(y->head_inside);
	if (branch) {
		const git_oid *found = sbx_refs_find(&y->want, branch);

		if (!found)
			return false;
		tip = *found;
	} else if (!commit_of(y->head_inside, &tip)) {
		return false;
	}
	*inside = tip;
	return true;
}

/* ---- all of it ---- */

static int store_list(struct sbx_sync *y, const char *name, const struct sbx_refs *refs,
                      const struct sbx_refs *before)
{
	_cleanup_free_ char *text = NULL;

	if (sbx_refs_equal(refs, before))
		return 0;
	text = sbx_refs_format(refs);
	return text ? sbx_locked_replace(y->meta, name, text, strlen(text), NULL) : -ENOMEM;
}

static int store_agreed(struct sbx_sync *y)
{
	_cleanup_free_ char *head = sbx_format("%s\n", y->head_agreed ? y->head_agreed : "");
	int r = head && y->head_agreed ? drop_kept(y) : -ENOMEM;

	if (!r)
		r = store_list(y, "refs", &y->agreed, &y->refs_base);
	if (!r)
		r = store_list(y, "kept", &y->kept_now, &y->kept_base);
	if (!r && (!y->head_base || strcmp(y->head_base, y->head_agreed) != 0))
		r = sbx_locked_replace(y->meta, "head", head, strlen(head), NULL);
	return r ? sbx_fail(y->err, -r, "cannot write to the state directory: %s", strerror(-r))
	         : 0;
}

static void set_inside(struct sbx_sync *y)
{
	struct sbx_error err = SBX_ERROR_INIT;
	int r;

	if (sbx_refs_equal(&y->want, &y->refs_inside))
		return;
	r = sbx_refs_set_private(y->repo, &y->refs_inside, &y->want);
	y->moved = true;
	if (!r)
		return;
	y->moved = false;
	sbx_fail(&err, -r, "refs cannot be brought inside: %s",
	         r == -EBUSY ? "git is at work there" : strerror(-r));
	sbx_sync_note(y, r, &err);
}

int sbx_sync_refs(struct sbx_sync *y)
{
	int r = read_agreed(y);

	if (r)
		return sbx_fail(y->err, -r, "cannot read the state directory: %s", strerror(-r));
	sbx_locked_clear(y->entry, "HEAD");
	sbx_locked_clear(y->entry, "index");
	r = read_sides(y);
	if (!r)
		r = decide(y);
	if (r)
		return r;
	sync_head(y);
	set_inside(y);
	return store_agreed(y);
}
