/*
 * Refs in the source for commits that only the sandbox has. They are named by its id, because a
 * sandbox's name may be used again, and the commits of the first must not be lost by that.
 *
 *   refs/sandboxfs/heads/ID/BRANCH      branches of its own
 *   refs/sandboxfs/stash/ID/N           stash@{N}
 *   refs/sandboxfs/detached/ID/COMMIT   commits made where no branch was checked out
 *   refs/sandboxfs/diverged/ID          its branch, where both sides moved that
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backends/git/git_impl.h"
#include "backends/git/import_objects.h"
#include "backends/local/gitsync/sync_impl.h"
#include "backends/support/beneath.h"
#include "backends/support/fsutil.h"

#define KEPT_MOST 1000 /* refs that a sandbox can have here */
#define LOG_MAX   ((size_t)16 * 1024 * 1024)
#define ROOM      "refs/sandboxfs/"
#define HEX       GIT_OID_HEXSZ

static const char *const kinds[] = {"heads", "stash", "detached", "diverged"};

static char *name_of(const struct sbx_sync *y, const char *kind, const char *rest)
{
	return sbx_format(ROOM "%s/%s%s%s", kind, y->p->wt.worktree, rest ? "/" : "",
	                  rest ? rest : "");
}

int sbx_sync_keep(struct sbx_sync *y, const char *kind, const char *rest, const git_oid *oid)
{
	_cleanup_free_ char *name = name_of(y, kind, rest);

	return name ? sbx_refs_add(&y->kept_want, name, oid) : -ENOMEM;
}

static bool is_of(const char *name, const char *kind)
{
	size_t n = strlen(ROOM), m = strlen(kind);

	return strncmp(name, ROOM, n) == 0 && strncmp(name + n, kind, m) == 0 && name[n + m] == '/';
}

/* ---- reflogs ---- */

/* malloc'd; empty when there is none, or it cannot be read. */
static char *read_log(struct sbx_sync *y, const char *path)
{
	struct sbx_error err = SBX_ERROR_INIT;
	char *text;
	size_t len;
	int r = sbx_beneath_read(y->repo, path, LOG_MAX, &text, &len, NULL);

	if (!r)
		return text;
	if (r == -EFBIG) {
		sbx_fail(&err, E2BIG, "%s inside is too large to be read", path);
		sbx_sync_leave(y, &err);
	}
	return strdup("");
}

/* The log has the top as its last line. */
static int want_stashes(struct sbx_sync *y)
{
	const git_oid *top = sbx_refs_find(&y->refs_inside, "refs/stash");
	_cleanup_free_ char *text = top ? read_log(y, "logs/refs/stash") : NULL;
	const char *at = text;
	struct sbx_reflog line;
	char number[32];
	size_t n = 0;
	int r = !top ? 0 : text ? sbx_sync_keep(y, "stash", "0", top) : -ENOMEM;

	while (text && sbx_reflog_next(&at, &line))
		n++;
	at = text;
	while (!r && text && n > 1 && sbx_reflog_next(&at, &line)) {
		snprintf(number, sizeof(number), "%zu", --n);
		r = sbx_sync_keep(y, "stash", number, &line.new);
	}
	return r;
}

/* A commit that the source has already is its own affair, unless it has it from here. */
static int want_detached(struct sbx_sync *y, git_odb *odb, const git_oid *oid)
{
	char hex[HEX + 1];
	_cleanup_free_ char *name = name_of(y, "detached", git_oid_tostr(hex, sizeof(hex), oid));

	if (!name)
		return -ENOMEM;
	if (git_oid_is_zero(oid) || (git_odb_exists_ext(odb, oid, GIT_ODB_LOOKUP_NO_REFRESH) &&
	                             !sbx_refs_find(&y->kept, name)))
		return 0;
	return sbx_refs_add(&y->kept_want, name, oid);
}

/* Where HEAD was left that named a commit, as git notes it. */
static bool is_left(const struct sbx_reflog *line)
{
	static const char said[] = "checkout: moving from ";
	git_oid oid;

	return strncmp(line->text, said, strlen(said)) == 0 &&
	       strspn(line->text + strlen(said), "0123456789abcdef") == HEX &&
	       git_oid_fromstrn(&oid, line->text + strlen(said), HEX) == 0;
}

static int open_objects(const struct sbx_sync *y, git_odb **ret)
{
	const int r = git_repository_odb(ret, y->source);

	return r ? sbx_git_fail(NULL, r, "the objects of the source") : 0;
}

int sbx_sync_want_kept(struct sbx_sync *y)
{
	_cleanup_free_ char *text = read_log(y, "logs/HEAD");
	_cleanup_git_(odb) git_odb *odb = NULL;
	const char *at = text;
	struct sbx_reflog line;
	git_oid head;
	int r = text ? 0 : -ENOMEM;

	if (!r)
		r = open_objects(y, &odb);
	if (!r && sbx_sync_commit_of(y->head_inside, &head))
		r = want_detached(y, odb, &head);
	while (!r && sbx_reflog_next(&at, &line))
		if (is_left(&line))
			r = want_detached(y, odb, &line.old);
	return r ? r : want_stashes(y);
}

/* ---- bringing ---- */

/* A reflog may name what is not there any more, and a command may write there what it likes. */
static bool is_hint(const char *name)
{
	const char *slash = strrchr(name, '/');

	return is_of(name, "detached") || (is_of(name, "stash") && strcmp(slash, "/0") != 0);
}

/* 0 the source has it, 1 there is no such commit, or -errno, noted. */
static int export(struct sbx_sync *y, const struct sbx_ref *ref)
{
	int r;

	if (!is_hint(ref->name))
		return sbx_sync_export(y, &ref->oid);
	r = sbx_sync_take(y, &ref->oid, GIT_OBJECT_COMMIT, NULL);
	if (r == -ENOENT || r == -EINVAL)
		return 1;
	return r ? sbx_sync_export(y, &ref->oid) : 0;
}

/* Where it cannot be moved it is what it was. */
static int bring(struct sbx_sync *y, const struct sbx_ref *ref)
{
	const git_oid *old = sbx_refs_find(&y->kept, ref->name), *stands = &ref->oid;

	if (!sbx_sync_same(old, &ref->oid) &&
	    (export(y, ref) || sbx_sync_swap(y, ref->name, old, &ref->oid)))
		stands = old;
	return stands ? sbx_refs_add(&y->kept_now, ref->name, stands) : 0;
}

/* Those that are there stay, whatever else there is: there is no room for all. */
static int bring_all(struct sbx_sync *y)
{
	struct sbx_error err = SBX_ERROR_INIT;
	size_t left = 0;
	int r = 0;

	for (int fresh = 0; fresh < 2; fresh++)
		for (size_t i = 0; i < y->kept_want.n && !r; i++) {
			const struct sbx_ref *ref = &y->kept_want.at[i];

			if ((sbx_refs_find(&y->kept, ref->name) == NULL) != fresh)
				continue;
			if (y->kept_now.n >= KEPT_MOST)
				left++;
			else
				r = bring(y, ref);
		}
	if (r || !left)
		return r;
	sbx_fail(&err, E2BIG,
	         "%zu branches and stashes that were made inside are not in the source: it takes "
	         "%d of "
	         "a sandbox; remove some",
	         left, KEPT_MOST);
	sbx_sync_leave(y, &err);
	return 0;
}

/* ---- taking back ---- */

static bool is_branch(const char *name)
{
	return strncmp(name, "refs/heads/", strlen("refs/heads/")) == 0 || is_of(name, "heads");
}

/*
 * Whether one of the N commits AT has OID in its history. git_graph_reachable_from_any says it in
 * one call, but libgit2 1.5 loses memory there when a parent is missing, and a command can see to
 * that at every sync.
 */
static bool is_reachable(git_repository *repo, const git_oid *oid, const git_oid *at, size_t n)
{
	git_revwalk *walk = NULL;
	git_oid next;
	int r = git_revwalk_new(&walk, repo);

	if (!r)
		r = git_revwalk_push(walk, oid);
	for (size_t i = 0; i < n && !r; i++)
		r = git_revwalk_hide(walk, &at[i]);
	if (!r)
		r = git_revwalk_next(&next, walk);
	git_revwalk_free(walk);
	return r == GIT_ITEROVER;
}

/* Whether a branch, or a later commit that no branch names, has OID as well. */
static bool is_contained(struct sbx_sync *y, const git_oid *oid)
{
	const struct sbx_refs *from[] = {&y->refs_host, &y->agreed, &y->kept_now};
	_cleanup_free_ git_oid *at =
	        calloc(y->refs_host.n + y->agreed.n + y->kept_now.n + 1, sizeof(*at));
	size_t n = 0;

	for (size_t i = 0; at && i < SBX_ARRAY_SIZE(from); i++)
		for (size_t k = 0; k < from[i]->n; k++) {
			const struct sbx_ref *ref = &from[i]->at[k];
			const bool branch = is_branch(ref->name),
			           same = git_oid_equal(&ref->oid, oid);

			if (branch && same)
				return true;
			if (!same && (branch || is_of(ref->name, "detached")))
				at[n++] = ref->oid;
		}
	return n && is_reachable(y->source, oid, at, n);
}

static void forget_contained(struct sbx_sync *y)
{
	size_t kept = 0;

	for (size_t i = 0; i < y->kept_now.n; i++)
		if (is_of(y->kept_now.at[i].name, "detached") &&
		    is_contained(y, &y->kept_now.at[i].oid))
			y->kept_now.at[i].oid = (git_oid){0};
	for (size_t i = 0; i < y->kept_now.n; i++)
		if (git_oid_is_zero(&y->kept_now.at[i].oid))
			free(y->kept_now.at[i].name);
		else
			y->kept_now.at[kept++] = y->kept_now.at[i];
	y->kept_now.n = kept;
}

/* Whether all of the commit OID is on the sandbox's branch, as the source has it. */
static bool is_on_branch(struct sbx_sync *y, const git_oid *oid)
{
	_cleanup_free_ char *branch = sbx_format("refs/heads/%s", y->p->wt.branch);
	const git_oid *tip = branch ? sbx_refs_find(&y->agreed, branch) : NULL;

	return tip &&
	       (git_oid_equal(tip, oid) || git_graph_descendant_of(y->source, tip, oid) == 1);
}

/*
 * Before there were ids it was refs/sandboxfs/NAME/diverged; a branch of that name stands deeper.
 */
static bool is_diverged(const char *name)
{
	const bool ours = strncmp(name, ROOM, strlen(ROOM)) == 0;
	const char *slash = ours ? strchr(name + strlen(ROOM), '/') : NULL;

	return is_of(name, "diverged") || (slash && strcmp(slash, "/diverged") == 0);
}

static int drop(struct sbx_sync *y, const struct sbx_ref *was)
{
	const git_oid *is = sbx_refs_find(&y->kept, was->name);
	struct sbx_git_owner owner;
	int r;

	if (is_diverged(was->name) && !is_on_branch(y, &was->oid))
		return sbx_refs_add(&y->kept_now, was->name, &was->oid);
	/* Somebody else's by now. */
	if (!sbx_sync_same(is, &was->oid))
		return 0;
	owner = sbx_git_owner_begin(y->p->wt.common);
	r = git_reference_remove(y->source, was->name);
	sbx_git_owner_end(&owner);
	return r && r != GIT_ENOTFOUND ? sbx_refs_add(&y->kept_now, was->name, &was->oid) : 0;
}

static bool is_own(const struct sbx_sync *y, const char *name)
{
	for (size_t i = 0; i < SBX_ARRAY_SIZE(kinds); i++) {
		_cleanup_free_ char *own = name_of(y, kinds[i], NULL);
		size_t n = own ? strlen(own) : 0;

		if (own && strncmp(name, own, n) == 0 && (!name[n] || name[n] == '/'))
			return true;
	}
	return false;
}

int sbx_sync_read_kept(struct sbx_sync *y)
{
	int r = 0;

	for (size_t i = 0; i < SBX_ARRAY_SIZE(kinds) && !r; i++) {
		/* Of these there is one, of the others any number below. */
		const bool single = strcmp(kinds[i], "diverged") == 0;
		_cleanup_free_ char *prefix = name_of(y, kinds[i], single ? NULL : "");

		r = prefix ? sbx_refs_of_source(y->source, prefix, &y->kept, y->err) : -ENOMEM;
	}
	/* Of before there were kinds: by the name of the sandbox. */
	for (size_t i = 0; i < y->kept_base.n && !r; i++)
		if (!is_own(y, y->kept_base.at[i].name))
			r = sbx_refs_of_source(y->source, y->kept_base.at[i].name, &y->kept,
			                       y->err);
	return r;
}

/* A branch that was removed inside, a stash that was popped, commits that were merged. */
static int drop_others(struct sbx_sync *y)
{
	struct sbx_refs was = {0};
	int r = 0;

	for (size_t i = 0; i < y->kept.n && !r; i++)
		if (is_own(y, y->kept.at[i].name))
			r = sbx_refs_add(&was, y->kept.at[i].name, &y->kept.at[i].oid);
	for (size_t i = 0; i < y->kept_base.n && !r; i++)
		r = sbx_refs_add(&was, y->kept_base.at[i].name, &y->kept_base.at[i].oid);
	sbx_refs_sort(&was);
	sbx_refs_sort(&y->kept_now);
	for (size_t i = 0, n = y->kept_now.n; i < was.n && !r; i++) {
		struct sbx_refs now = {.at = y->kept_now.at, .n = n};

		if (!sbx_refs_find(&now, was.at[i].name))
			r = drop(y, &was.at[i]);
	}
	sbx_refs_release(&was);
	sbx_refs_sort(&y->kept_now);
	return r;
}

int sbx_sync_bring_kept(struct sbx_sync *y)
{
	int r;

	sbx_refs_sort(&y->kept_want);
	r = bring_all(y);
	if (r)
		return r;
	forget_contained(y);
	return drop_others(y);
}
