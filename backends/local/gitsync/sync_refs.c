/*
 * Refs and HEAD of both sides. Objects go first, then the ref that needs them by
 * compare-and-swap, then HEAD, and what was agreed on last: after a crash in between, the next
 * pass finds both sides alike, or the same to do. A ref that is about to be set inside is
 * recorded as agreed before. Otherwise a source branch that was copied in, and deleted in the
 * source before the next pass, would look like a branch created by a command.
 *
 * The host's HEAD names a branch only where that is the sandbox's to move: any other may be
 * checked out elsewhere, so there it is the commit alone.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/git/git_impl.h"
#include "backends/git/import_objects.h"
#include "backends/git/store.h"
#include "backends/git/store_walk.h"
#include "backends/local/gitsync/sync_impl.h"
#include "backends/support/beneath.h"
#include "backends/support/fsutil.h"

static const char heads[] = "refs/heads/";

/* Branches whose tips both sides may move: the sandbox's, and what the host has checked out in it.
 */
static bool is_shared(const struct sbx_sync *y, const char *ref)
{
	const char *current = sbx_sync_branch_of(y->head_host);

	if (current && strcmp(current, ref) == 0)
		return true;
	return strncmp(ref, heads, strlen(heads)) == 0 &&
	       strcmp(ref + strlen(heads), y->p->wt.branch) == 0;
}

/*
 * HEAD of inside as the worktree's entry can have it; malloc'd, NULL: it cannot. A branch that is
 * not shared may be checked out elsewhere on the host: there it is the commit alone.
 */
static char *host_form(struct sbx_sync *y)
{
	const char *branch = sbx_sync_branch_of(y->head_inside);
	const git_oid *tip = branch ? sbx_refs_find(&y->want, branch) : NULL;
	char hex[GIT_OID_HEXSZ + 1];
	git_oid oid;

	if (branch && is_shared(y, branch))
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

/* Whether the host, who saw the commit BASE of a branch that only the sandbox has, went on from
 * there. */
static bool went_on(struct sbx_sync *y, const char *base, git_oid *ret)
{
	git_oid old;

	return sbx_sync_commit_of(base, &old) && sbx_sync_commit_of(y->head_host, ret) &&
	       git_graph_descendant_of(y->source, ret, &old) == 1;
}

/* The host moved. What it committed on a branch that only the sandbox has belongs on that branch.
 */
static bool follow_host(struct sbx_sync *y, const char *base)
{
	const char *branch = sbx_sync_branch_of(y->head_inside);
	git_oid oid;

	if (y->lacks)
		return false;
	if (branch && !is_shared(y, branch) && went_on(y, base, &oid)) {
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

/* Brings HEAD over, and decides what is agreed on. */
static void bring_head(struct sbx_sync *y)
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

#define AGREED_MAX ((size_t)64 * 1024 * 1024)

#define NEXT "refs.next" /* beside "refs": what is agreed on once all is set inside */

static int put(struct sbx_refs *refs, const char *name, const git_oid *oid)
{
	return oid ? sbx_refs_add(refs, name, oid) : 0;
}

/* The branch that a HEAD names, or NULL. */
const char *sbx_sync_branch_of(const char *head)
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

bool sbx_sync_commit_of(const char *head, git_oid *ret)
{
	return head && strlen(head) == GIT_OID_HEXSZ && git_oid_fromstr(ret, head) == 0;
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

static int read_agreed(struct sbx_sync *y)
{
	int r = read_line(y->meta, "head", &y->head_base);

	if (!r || r == -ENOENT)
		r = sbx_refs_read(y->meta, "refs", AGREED_MAX, &y->refs_base);
	return r ? r : sbx_refs_read(y->meta, "kept", AGREED_MAX, &y->kept_base);
}

/* A pass was broken off while it set refs inside: those that it had come to are agreed on. */
static int take_up(struct sbx_sync *y)
{
	struct sbx_refs next = {0}, base = {0};
	const struct sbx_refs *from[] = {&next, &y->refs_base};
	_cleanup_free_ char *text = NULL;
	int r;

	if (faccessat(y->meta, NEXT, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	r = sbx_refs_read(y->meta, NEXT, AGREED_MAX, &next);
	for (size_t i = 0; i < SBX_ARRAY_SIZE(from); i++)
		for (size_t k = 0; k < from[i]->n && !r; k++) {
			const char *name = from[i]->at[k].name;
			const git_oid *then = sbx_refs_find(&next, name);

			if (!sbx_sync_same(sbx_refs_find(&y->refs_inside, name), then))
				then = sbx_refs_find(&y->refs_base, name);
			r = put(&base, name, then);
		}
	sbx_refs_sort(&base);
	text = r ? NULL : sbx_refs_format(&base);
	if (!r)
		r = text ? sbx_locked_replace(y->meta, "refs", text, strlen(text), NULL) : -ENOMEM;
	if (!r) {
		unlinkat(y->meta, NEXT, 0);
		sbx_refs_release(&y->refs_base);
		y->refs_base = base;
		base = (struct sbx_refs){0};
	}
	sbx_refs_release(&next);
	sbx_refs_release(&base);
	return r;
}

static int read_sides(struct sbx_sync *y)
{
	int r;

	y->seen_host = sbx_seen_now(y->entry, "HEAD");
	r = read_line(y->entry, "HEAD", &y->head_host);
	if (r)
		return sbx_fail(y->err, -r, "cannot read HEAD of the worktree: %s", strerror(-r));
	r = sbx_refs_of_source(y->source, NULL, &y->refs_host, y->err);
	if (!r)
		r = sbx_sync_read_kept(y);
	if (r)
		return r;
	r = sbx_refs_of_private(y->repo, &y->refs_inside);
	y->seen_inside = sbx_seen_now(y->repo, "HEAD");
	if (!r)
		r = read_line(y->repo, "HEAD", &y->head_inside);
	if (!r)
		r = take_up(y);
	return r ? sbx_fail(y->err, -r, "cannot read the sandbox's repository: %s", strerror(-r))
	         : 0;
}

static bool is_apart(const struct sbx_sync *y, const char *ref)
{
	return sbx_git_store_mark_of(&y->apart_from, ref) != NULL;
}

static bool is_others(const struct sbx_sync *y, const char *ref)
{
	const char *branch = sbx_git_store_mark_of(&y->apart_from, ref);

	return branch && strcmp(branch, y->p->wt.branch) != 0 && !is_shared(y, ref);
}

/* Of other sandboxes' branches those that are theirs alone are not seen. */
static int drop_others(struct sbx_sync *y)
{
	size_t kept = 0;
	int r = sbx_git_store_marked(y->p->wt.common, &y->apart_from);

	if (r)
		return sbx_fail(y->err, -r, "cannot read whose the branches are: %s", strerror(-r));
	for (size_t i = 0; i < y->refs_host.n; i++)
		if (is_others(y, y->refs_host.at[i].name))
			free(y->refs_host.at[i].name);
		else
			y->refs_host.at[kept++] = y->refs_host.at[i];
	y->refs_host.n = kept;
	return 0;
}

/* Inside has all that its refs lead to, and the source what others see. */
static int add_known(const struct sbx_sync *y, struct sbx_git_tips *ret)
{
	int r = 0;

	for (size_t i = 0; i < y->refs_inside.n && !r; i++)
		r = sbx_git_tips_add(ret, &y->refs_inside.at[i].oid);
	for (size_t i = 0; i < y->refs_host.n && !r; i++)
		if (!is_apart(y, y->refs_host.at[i].name))
			r = sbx_git_tips_add(ret, &y->refs_host.at[i].oid);
	return r;
}

/* BEFORE: where the same stands inside, which is mostly next to it, or NULL. */
static int give(struct sbx_sync *y, const git_oid *oid, const git_oid *before)
{
	_cleanup_(sbx_git_tips_release) struct sbx_git_tips known = {0};
	int r = sbx_sync_reader(y);

	if (!r && before)
		r = sbx_git_tips_add(&known, before);
	else if (!r)
		r = add_known(y, &known);
	return r ? r : sbx_git_store_give_all(y->source, y->objects, oid, &known);
}

/* Gives the sandbox the objects that are its alone from the store, which commands are not shown. */
static int give_own(struct sbx_sync *y)
{
	git_oid head, at;
	int r = 0;

	for (size_t i = 0; i < y->refs_host.n && !r; i++) {
		const struct sbx_ref *ref = &y->refs_host.at[i];

		const git_oid *inside = sbx_refs_find(&y->refs_inside, ref->name);

		if (is_apart(y, ref->name) && !sbx_sync_same(&ref->oid, inside))
			r = give(y, &ref->oid,
			         sbx_sync_same(inside, sbx_refs_find(&y->refs_base, ref->name))
			                 ? inside
			                 : NULL);
	}
	if (!r && sbx_sync_commit_of(y->head_host, &head) &&
	    !(sbx_sync_commit_of(y->head_inside, &at) && git_oid_equal(&head, &at)))
		r = give(y, &head, NULL);
	return r;
}

/* Whatever else sandboxes are to see goes out of the store. */
static void take_from_store(struct sbx_sync *y)
{
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_refs refs = {0};
	int r = 0;

	for (size_t i = 0; i < y->refs_host.n && !r; i++)
		if (!is_apart(y, y->refs_host.at[i].name))
			r = put(&refs, y->refs_host.at[i].name, &y->refs_host.at[i].oid);
	sbx_refs_sort(&refs);
	if (!r)
		r = sbx_git_store_yield(y->source, &refs, &err);
	sbx_refs_release(&refs);
	if (!r && (r = give_own(y)))
		sbx_fail(&err, -r, "what is the sandbox's cannot be brought inside: %s",
		         strerror(-r));
	y->lacks = r;
	if (r)
		sbx_sync_note(y, r, &err);
}

/*
 * Has objects that the sandbox commits, stages and keeps go to the store. Both sides have all
 * that was agreed on.
 */
static void begin_taking(struct sbx_sync *y)
{
	const char *current = sbx_sync_branch_of(y->head_host);
	_cleanup_free_ char *own = sbx_format("refs/heads/%s", y->p->wt.branch);
	const git_oid *tips[] = {own ? sbx_refs_find(&y->refs_base, own) : NULL,
	                         current ? sbx_refs_find(&y->refs_base, current) : NULL};
	struct sbx_git_taken *taken = &y->taken;

	if (taken->apart)
		return;
	taken->apart = true;
	taken->has_base = git_oid_fromstr(&taken->base, y->p->wt.base) == 0;
	for (size_t i = 0; i < y->kept_base.n; i++) {
		sbx_git_taken_trust(taken, &y->kept_base.at[i].oid);
		if (taken->n < SBX_GIT_TIPS - SBX_ARRAY_SIZE(tips))
			taken->tips[taken->n++] = y->kept_base.at[i].oid;
	}
	/* The last is the first that is looked at. */
	for (size_t i = SBX_ARRAY_SIZE(tips); i-- > 0;)
		if (tips[i]) {
			sbx_git_taken_trust(taken, tips[i]);
			taken->tips[taken->n++] = *tips[i];
		}
}

/* ---- to the source ---- */

int sbx_sync_take(struct sbx_sync *y, const git_oid *oid, git_object_t type, struct sbx_error *err)
{
	int r = sbx_sync_reader(y);

	if (r)
		return r;
	begin_taking(y);
	return sbx_git_export(y->source, y->reader, oid, type, &y->taken, err);
}

int sbx_sync_export(struct sbx_sync *y, const git_oid *oid)
{
	struct sbx_error err = SBX_ERROR_INIT;
	int r = sbx_sync_take(y, oid, GIT_OBJECT_COMMIT, &err);

	if (r) {
		y->behind = true;
		sbx_sync_note(y, r, &err);
	}
	return r;
}

/* From its first commit on the branch that was made for the sandbox is the sandbox's alone. */
static int note_own(struct sbx_sync *y, const char *name)
{
	const struct sbx_git_worktree *wt = &y->p->wt;
	struct sbx_error err = SBX_ERROR_INIT;
	int r;

	if (!wt->branch_created || strncmp(name, heads, strlen(heads)) != 0 ||
	    strcmp(name + strlen(heads), wt->branch) != 0 || is_apart(y, name))
		return 0;
	r = sbx_git_store_mark(y->source, wt->branch, false);
	if (!r)
		return 0;
	sbx_fail(&err, -r, "cannot note whose %s is: %s", name, strerror(-r));
	y->behind = true;
	sbx_sync_note(y, r, &err);
	return r;
}

int sbx_sync_swap(struct sbx_sync *y, const char *name, const git_oid *old, const git_oid *new)
{
	_cleanup_git_(reference) git_reference *ref = NULL;
	struct sbx_git_owner owner = {0};
	struct sbx_error err = SBX_ERROR_INIT;
	int r = note_own(y, name);

	if (r)
		return r;
	owner = sbx_git_owner_begin(y->p->wt.common);
	r = old ? git_reference_create_matching(&ref, y->source, name, new, 1, old,
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
		y->behind = true;
		sbx_sync_note(y, r, &err);
	}
	return r;
}

/* ---- deciding ---- */

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

	if (!r && host && !y->lacks)
		r = sbx_refs_add(&y->want, copy, host);
	if (!r && inside)
		r = sbx_sync_keep(y, "diverged", NULL, inside);
	sbx_fail(&err, EEXIST,
	         "branch %s was moved on both sides: what was committed inside is "
	         "refs/sandboxfs/diverged/%s in the source, and what was committed outside is "
	         "host/%s inside; commit what is there and merge one into the other",
	         name + strlen(heads), y->p->wt.worktree, name + strlen(heads));
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

	if (sbx_sync_same(host, inside)) {
		agreed = host;
	} else if (!inside || sbx_sync_same(inside, base)) {
		if (!y->lacks)
			want = agreed = host;
	} else if (sbx_sync_export(y, inside)) {
		/* Noted; both stay where they are. */
	} else if (sbx_sync_same(host, base) ||
	           (host && git_graph_descendant_of(y->source, inside, host) == 1)) {
		if (!sbx_sync_swap(y, name, host, inside))
			agreed = inside;
	} else if (host && git_graph_descendant_of(y->source, host, inside) == 1) {
		if (!y->lacks)
			want = agreed = host;
	} else {
		r = diverged(y, name, host, inside);
	}
	if (!r)
		r = put(&y->want, name, want);
	return r ? r : put(&y->agreed, name, agreed);
}

/* Any other ref: inside shows the source's, until a command moves it; then it is the sandbox's own.
 */
static int decide_seen(struct sbx_sync *y, const char *name)
{
	const git_oid *base = sbx_refs_find(&y->refs_base, name);
	const git_oid *host = sbx_refs_find(&y->refs_host, name);
	const git_oid *inside = sbx_refs_find(&y->refs_inside, name);
	bool untouched = sbx_sync_same(inside, base), follows = untouched && !y->lacks;
	int r = put(&y->want, name, follows ? host : inside);

	if (!r && inside && !untouched && !sbx_sync_same(inside, host) &&
	    strncmp(name, heads, strlen(heads)) == 0)
		r = sbx_sync_keep(y, "heads", name + strlen(heads), inside);
	if (!r)
		r = put(&y->agreed, name, follows || sbx_sync_same(inside, host) ? host : base);
	return r;
}

/* refs/remotes/host/ is ours: what diverged() puts there. */
static bool is_copy(const char *name)
{
	return strncmp(name, "refs/remotes/host/", strlen("refs/remotes/host/")) == 0;
}

static int no_refs(struct sbx_sync *y, int r)
{
	return sbx_fail(y->err, -r, "the refs cannot be brought over: %s", strerror(-r));
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
	return r ? no_refs(y, r) : 0;
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

/* SET: the refs are inside. If not, HEAD counts as little as they do: it may name one of them. */
static int store_agreed(struct sbx_sync *y, bool set)
{
	_cleanup_free_ char *head = sbx_format("%s\n", y->head_agreed ? y->head_agreed : "");
	int r = head && y->head_agreed ? 0 : -ENOMEM;

	if (!r && set)
		r = store_list(y, "refs", &y->agreed, &y->refs_base);
	if (!r && set)
		unlinkat(y->meta, NEXT, 0);
	if (!r)
		r = store_list(y, "kept", &y->kept_now, &y->kept_base);
	if (!r && set && (!y->head_base || strcmp(y->head_base, y->head_agreed) != 0))
		r = sbx_locked_replace(y->meta, "head", head, strlen(head), NULL);
	return r ? sbx_fail(y->err, -r, "cannot write to the state directory: %s", strerror(-r))
	         : 0;
}

/* Those that both sides move: what a command does with one meanwhile must not pass for done on top
 * of what we put there. */
static int move_shared(struct sbx_sync *y)
{
	int r = 0;

	for (size_t i = 0; i < y->want.n && !r; i++) {
		const struct sbx_ref *ref = &y->want.at[i];
		const git_oid *old = sbx_refs_find(&y->refs_inside, ref->name);

		if (!sbx_sync_same(old, &ref->oid) && is_shared(y, ref->name))
			r = sbx_refs_move_private(y->repo, ref->name, old, &ref->oid);
	}
	return r;
}

/* Whether what is checked out inside is going to be another commit. */
static bool moves_checkout(const struct sbx_sync *y)
{
	const char *branch = sbx_sync_branch_of(y->head_inside);

	return branch && !sbx_sync_same(sbx_refs_find(&y->refs_inside, branch),
	                                sbx_refs_find(&y->want, branch));
}

/* Whether all is inside now; what is not, the next pass finds as one that was broken off. */
static bool set_inside(struct sbx_sync *y)
{
	struct sbx_error err = SBX_ERROR_INIT;
	int r;

	if (sbx_refs_equal(&y->want, &y->refs_inside))
		return true;
	r = moves_checkout(y) ? sbx_sync_hold_index(y) : 0;
	if (!r)
		r = store_list(y, NEXT, &y->agreed, &y->refs_base);
	if (!r)
		r = move_shared(y);
	if (!r)
		r = sbx_refs_set_private(y->repo, &y->refs_inside, &y->want);
	y->moved = !r || r == -EAGAIN;
	/* Moved just now: the next pass sees where. */
	if (y->moved)
		return !r;
	sbx_fail(&err, -r, "refs cannot be brought inside: %s",
	         r == -EBUSY ? "git is at work there" : strerror(-r));
	sbx_sync_note(y, r, &err);
	return false;
}

/* Those that a daemon that was killed had of us: git would wait for it. */
static void clear_locks(struct sbx_sync *y)
{
	static const char *const names[] = {"HEAD", "index", "packed-refs"};

	for (size_t i = 0; i < SBX_ARRAY_SIZE(names); i++) {
		sbx_locked_clear(y->entry, names[i]);
		sbx_locked_clear(y->repo, names[i]);
	}
}

int sbx_sync_refs(struct sbx_sync *y)
{
	int r = read_agreed(y);

	if (r)
		return sbx_fail(y->err, -r, "cannot read the state directory: %s", strerror(-r));
	clear_locks(y);
	r = read_sides(y);
	if (!r)
		r = drop_others(y);
	if (r)
		return r;
	take_from_store(y);
	r = sbx_sync_want_kept(y);
	r = r ? no_refs(y, r) : decide(y);
	if (r)
		return r;
	bring_head(y);
	r = sbx_sync_bring_kept(y);
	return r ? no_refs(y, r) : store_agreed(y, set_inside(y));
}
