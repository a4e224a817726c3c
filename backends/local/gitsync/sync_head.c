/*
 * HEAD of both sides. The host's names a branch only where that is the sandbox's to move: any other may be checked out
 * elsewhere, so there it is the commit alone.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backends/git/git_impl.h"
#include "backends/git/import_objects.h"
#include "backends/local/gitsync/sync_impl.h"
#include "backends/support/beneath.h"
#include "backends/support/fsutil.h"

/*
 * HEAD of inside as the worktree's entry can have it; malloc'd, NULL: it cannot. A branch that is not shared
 * may be checked out elsewhere on the host: there it is the commit alone.
 */
static char *host_form(struct sbx_sync *y)
{
	const char *branch = sbx_sync_branch_of(y->head_inside);
	const git_oid *tip = branch ? sbx_refs_find(&y->want, branch) : NULL;
	char hex[GIT_OID_HEXSZ + 1];
	git_oid oid;

	if (branch && sbx_sync_is_shared(y, branch))
		return strdup(y->head_inside);
	if (!tip && sbx_sync_commit_of(y->head_inside, &oid))
		tip = &oid;
	if (!tip || sbx_sync_export(y, tip))
		return NULL;
	return strdup(git_oid_tostr(hex, sizeof(hex), tip));
}

static int write_head(int dir, const struct sbx_seen *seen, const char *text)
{
	_cleanup_free_ char *line = sbx_format("%s\n", text);
	_cleanup_fd_ int lock = line ? sbx_locked_open_seen(dir, "HEAD", seen) : -ENOMEM;

	return lock < 0 ? lock : sbx_locked_commit(dir, "HEAD", lock, line, strlen(line), NULL);
}

/* False: it stays as it is, for the next pass. */
static bool replace_head(struct sbx_sync *y, int dir, const char *text)
{
	struct sbx_git_owner owner = {0};
	struct sbx_error err = SBX_ERROR_INIT;
	int r = dir == y->repo ? sbx_sync_hold_index(y) : 0;

	if (dir == y->entry)
		owner = sbx_git_owner_begin(y->p->wt.common);
	if (!r)
		r = write_head(dir, dir == y->entry ? &y->seen_host : &y->seen_inside, text);
	sbx_git_owner_end(&owner);
	y->moved = !r || r == -EAGAIN;
	if (y->moved)
		return !r;
	sbx_fail(&err, -r, "HEAD cannot be brought over: %s",
	         r == -EBUSY ? "git is at work there" : strerror(-r));
	sbx_sync_note(y, r, &err);
	return false;
}

/* Whether the host, who saw the commit BASE of a branch that only the sandbox has, went on from there. */
static bool went_on(struct sbx_sync *y, const char *base, git_oid *ret)
{
	git_oid old;

	return sbx_sync_commit_of(base, &old) && sbx_sync_commit_of(y->head_host, ret) &&
	       git_graph_descendant_of(y->source, ret, &old) == 1;
}

/* The host moved. What it committed on a branch that only the sandbox has belongs on that branch. */
static bool follow_host(struct sbx_sync *y, const char *base)
{
	const char *branch = sbx_sync_branch_of(y->head_inside);
	git_oid oid;

	if (y->lacks)
		return false;
	if (branch && !sbx_sync_is_shared(y, branch) && went_on(y, base, &oid)) {
		for (size_t i = 0; i < y->want.n; i++)
			if (strcmp(y->want.at[i].name, branch) == 0)
				y->want.at[i].oid = oid;
		return true;
	}
	if (!replace_head(y, y->repo, y->head_host))
		return false;
	free(y->head_inside);
	y->head_inside = strdup(y->head_host);
	return true;
}

static bool follow_inside(struct sbx_sync *y, const char *form)
{
	if (!replace_head(y, y->entry, form))
		return false;
	free(y->head_host);
	y->head_host = strdup(form);
	return true;
}

void sbx_sync_head(struct sbx_sync *y)
{
	_cleanup_free_ char *form = host_form(y);
	/* Nothing agreed yet: both began on the sandbox's branch. */
	_cleanup_free_ char *first = sbx_format("ref: refs/heads/%s", y->p->wt.branch);
	const char *base = y->head_base ? y->head_base : first ? first : y->head_host;
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
		if (follow_host(y, base))
			base = y->head_host;
	} else if (inside_moved && follow_inside(y, form)) {
		base = form;
	}
	y->head_agreed = strdup(base);
}

bool sbx_sync_tips(struct sbx_sync *y, git_oid *host, git_oid *inside)
{
	const char *branch = sbx_sync_branch_of(y->head_host);
	git_oid tip;

	if (branch && git_reference_name_to_id(host, y->source, branch))
		return false;
	if (!branch && !sbx_sync_commit_of(y->head_host, host))
		return false;
	branch = sbx_sync_branch_of(y->head_inside);
	if (branch) {
		const git_oid *found = sbx_refs_find(&y->want, branch);

		if (!found)
			return false;
		tip = *found;
	} else if (!sbx_sync_commit_of(y->head_inside, &tip)) {
		return false;
	}
	*inside = tip;
	return true;
}
