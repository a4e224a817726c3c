/*
 * An entry is a commit that we have signed, by whatever name: what somebody has put among them is
 * left alone.
 */
#include "backends/local/trash/trash.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backends/git/durable.h"
#include "backends/git/git_impl.h"
#include "backends/git/import_objects.h"
#include "backends/local/trash/sign.h"
#include "backends/support/fsutil.h"

#define PREFIX "refs/sandboxfs/trash/"
#define TRIES  100

#define PARENTS 3

SBX_GIT_CLEANUP(signature, git_signature, git_signature_free)

void sbx_trash_release(struct sbx_trash_entry *e)
{
	free(e->name);
	free(e->sandbox);
	free(e->id);
	free(e->branch);
	free(e->base);
	*e = (struct sbx_trash_entry){0};
}

/* --- writing
 * --------------------------------------------------------------------------------------- */

static char *message_of(const struct sbx_trash_entry *e, const char *what)
{
	char hex[GIT_OID_HEXSZ + 1] = "";
	const bool left = e->has_head && e->has_left;
	_cleanup_free_ char *git =
	        e->branch && e->base
	                ? sbx_format("Branch: %s\nBase: %s\n%s%s%s", e->branch, e->base,
	                             left ? "Left: " : "",
	                             left ? git_oid_tostr(hex, sizeof(hex), &e->left) : "",
	                             left ? "\n" : "")
	                : strdup("");

	return git ? sbx_format("%s %s\n\nSandbox: %s\nId: %s\nTime-Ms: %" PRId64 "\n%s", what,
	                        e->sandbox, e->sandbox, e->id, e->time_ms, git)
	           : NULL;
}

static int make_commit(git_repository *repo, const char *message, const git_oid *tree,
                       const git_oid *parents, size_t n, git_oid *ret)
{
	_cleanup_git_(signature) git_signature *who = NULL;
	_cleanup_git_(tree) git_tree *files = NULL;
	git_commit *commits[PARENTS] = {NULL};
	int r = git_signature_default(&who, repo);

	if (r)
		r = git_signature_now(&who, "sandboxfs", "sandboxfs@localhost");
	if (!r)
		r = git_tree_lookup(&files, repo, tree);
	for (size_t i = 0; i < n && !r; i++)
		r = git_commit_lookup(&commits[i], repo, &parents[i]);
	if (!r)
		r = git_commit_create(ret, repo, NULL, who, who, NULL, message, files, n,
		                      (const git_commit **)commits);
	for (size_t i = 0; i < n; i++)
		git_commit_free(commits[i]);
	return r;
}

static int make_signed(git_repository *repo, const char *text, const git_oid *tree,
                       const git_oid *parents, size_t n, git_oid *ret)
{
	const struct sbx_trash_signed what = {.message = text,
	                                      .len = strlen(text),
	                                      .tree = tree,
	                                      .parents = parents,
	                                      .n_parents = n};
	_cleanup_free_ char *message = NULL;
	int r = sbx_trash_sign(repo, &what, &message);

	return r ? r : make_commit(repo, message, tree, parents, n, ret);
}

static int make_commits(git_repository *repo, const struct sbx_trash_entry *e, git_oid *ret)
{
	_cleanup_free_ char *text = message_of(e, "Uncommitted work in");
	_cleanup_free_ char *staged = message_of(e, "Staged in");
	git_oid parents[PARENTS] = {e->head};
	size_t n = e->has_head ? 1U + e->has_staged : 0;
	int r = text && staged ? 0 : -1;

	if (!r && e->has_head && e->has_staged)
		r = make_commit(repo, staged, &e->staged, parents, 1, &parents[1]);
	if (n && e->has_left)
		parents[n++] = e->left;
	return r ? r : make_signed(repo, text, &e->tree, parents, n, ret);
}

/* Two dots are not allowed in refs. */
static char *ref_name(const struct sbx_trash_entry *e, int try)
{
	time_t at = (time_t)(e->time_ms / 1000);
	char when[32], suffix[16] = "";
	struct tm tm;
	char *ref;

	gmtime_r(&at, &tm);
	strftime(when, sizeof(when), "%Y%m%dT%H%M%SZ", &tm);
	if (try)
		snprintf(suffix, sizeof(suffix), "-%d", try + 1);
	ref = sbx_format(PREFIX "%s-%s%s", e->sandbox, when, suffix);
	for (char *c = ref; c && *c; c++)
		if (c[0] == '.' && c[1] == '.')
			*c = '-';
	return ref;
}

static bool is_of(git_repository *repo, const char *ref, const char *id)
{
	struct sbx_trash_entry e = {0};
	bool same = sbx_trash_find(repo, ref + strlen(PREFIX), &e) == 0 && strcmp(e.id, id) == 0;

	sbx_trash_release(&e);
	return same;
}

/* What it is of goes next, maybe from another disk. */
static int make_last(git_repository *repo, const char *name)
{
	const int r = sbx_git_durable_ref(git_repository_commondir(repo), name);

	if (r)
		git_error_set_str(GIT_ERROR_OS, strerror(-r));
	return r ? GIT_ERROR : 0;
}

static int write_entry(git_repository *repo, const struct sbx_trash_entry *e)
{
	git_oid commit;
	int r = make_commits(repo, e, &commit);

	for (int i = 0; i < TRIES && !r; i++) {
		_cleanup_git_(reference) git_reference *ref = NULL;
		_cleanup_free_ char *name = ref_name(e, i);

		r = name ? git_reference_create(&ref, repo, name, &commit, 0,
		                                "sandboxfs: torn down")
		         : -1;
		if (r == GIT_EEXISTS && is_of(repo, name, e->id))
			r = 0;
		if (r != GIT_EEXISTS)
			return r ? r : make_last(repo, name);
		r = 0;
	}
	return r ? r : GIT_EEXISTS;
}

int sbx_trash_write(git_repository *repo, const char *common, const struct sbx_trash_entry *e,
                    struct sbx_error *err)
{
	struct sbx_git_owner owner = sbx_git_owner_begin(common);
	int r = write_entry(repo, e);

	if (r)
		r = sbx_git_fail(err, r, "the uncommitted work of %s cannot be saved", e->sandbox);
	sbx_git_owner_end(&owner);
	return r;
}

/* --- reading
 * --------------------------------------------------------------------------------------- */

/* The rest of the line that begins with KEY; malloc'd, or NULL. */
static char *line_of(const char *message, const char *key)
{
	const char *at = strstr(message, key);

	return at && at > message && at[-1] == '\n'
	               ? strndup(at + strlen(key), strcspn(at + strlen(key), "\n"))
	               : NULL;
}

static int read_parents(const git_commit *c, struct sbx_trash_entry *e)
{
	_cleanup_git_(object) git_object *staged = NULL;
	int r;

	if (git_commit_parentcount(c) < 1)
		return 0;
	e->has_head = true;
	e->head = *git_commit_parent_id(c, 0);
	if (git_commit_parentcount(c) < 2U + e->has_left)
		return 0;
	r = git_commit_parent((git_commit **)&staged, c, 1);
	if (r)
		return r;
	e->has_staged = true;
	e->staged = *git_commit_tree_id((git_commit *)staged);
	return 0;
}

static int read_entry(git_repository *repo, const char *ref, struct sbx_trash_entry *e)
{
	_cleanup_git_(object) git_object *c = NULL;
	_cleanup_free_ char *time = NULL, *left = NULL;
	const char *message;
	git_oid oid;
	int r = git_reference_name_to_id(&oid, repo, ref);

	if (!r)
		r = git_commit_lookup((git_commit **)&c, repo, &oid);
	if (r)
		return r;
	if (!sbx_trash_is_signed(repo, (git_commit *)c))
		return GIT_ENOTFOUND;
	message = git_commit_message((git_commit *)c);
	time = line_of(message, "Time-Ms: ");
	left = line_of(message, "Left: ");
	e->has_left = left && git_oid_fromstr(&e->left, left) == 0;
	e->name = strdup(ref + strlen(PREFIX));
	e->sandbox = line_of(message, "Sandbox: ");
	e->id = line_of(message, "Id: ");
	e->branch = line_of(message, "Branch: ");
	e->base = line_of(message, "Base: ");
	e->time_ms = time ? strtoll(time, NULL, 10) : 0;
	e->commit = oid;
	e->tree = *git_commit_tree_id((git_commit *)c);
	if (!e->name || !e->sandbox || !e->id || !time)
		return GIT_ENOTFOUND;
	return read_parents((git_commit *)c, e);
}

int sbx_trash_find(git_repository *repo, const char *name, struct sbx_trash_entry *ret)
{
	_cleanup_free_ char *ref = sbx_format(PREFIX "%s", name);
	struct sbx_trash_entry e = {0};
	int valid = 0, r = ref ? git_reference_name_is_valid(&valid, ref) : -1;

	if (!r)
		r = valid ? read_entry(repo, ref, &e) : GIT_ENOTFOUND;
	if (r) {
		sbx_trash_release(&e);
		return r;
	}
	*ret = e;
	return 0;
}

int sbx_trash_each(git_repository *repo, int (*fn)(const struct sbx_trash_entry *e, void *data),
                   void *data)
{
	_cleanup_git_(iterator) git_reference_iterator *it = NULL;
	const char *ref;
	int r = git_reference_iterator_glob_new(&it, repo, PREFIX "*");

	while (!r && (r = git_reference_next_name(&ref, it)) == 0) {
		struct sbx_trash_entry e = {0};

		/* Something else under our prefix is left alone. */
		if (read_entry(repo, ref, &e) == 0)
			r = fn(&e, data);
		sbx_trash_release(&e);
	}
	return r == GIT_ITEROVER ? 0 : r;
}

/* --- dropping
 * -------------------------------------------------------------------------------------- */

struct expiry {
	int64_t before_ms;
	struct sbx_strings names;
	size_t left;
};

/* All that is there, and of it what is old. What cannot be read stays. */
static int look(git_repository *repo, struct expiry *x)
{
	_cleanup_git_(iterator) git_reference_iterator *it = NULL;
	const char *ref;
	int r = git_reference_iterator_glob_new(&it, repo, PREFIX "*");

	while (!r && (r = git_reference_next_name(&ref, it)) == 0) {
		struct sbx_trash_entry e = {0};

		x->left++;
		if (read_entry(repo, ref, &e) == 0 && e.time_ms < x->before_ms)
			r = sbx_strings_add(&x->names, ref);
		sbx_trash_release(&e);
	}
	return r == GIT_ITEROVER ? 0 : r;
}

int sbx_trash_expire(git_repository *repo, const char *common, int64_t before_ms, size_t *left,
                     void (*told)(const char *name, void *data), void *data)
{
	struct expiry x = {.before_ms = before_ms};
	struct sbx_git_owner owner = sbx_git_owner_begin(common);
	int r = look(repo, &x);

	for (size_t i = 0; i < x.names.n; i++) {
		if (git_reference_remove(repo, x.names.items[i]))
			continue;
		x.left--;
		if (told)
			told(x.names.items[i] + strlen(PREFIX), data);
	}
	sbx_git_owner_end(&owner);
	sbx_strings_release(&x.names);
	*left = x.left;
	return r;
}
