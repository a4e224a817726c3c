#include "backends/git/clone.h"

#include <errno.h>
#include <stdlib.h>

#include "backends/git/git_impl.h"

static int poll_checkout(git_checkout_notify_t why, const char *path, const git_diff_file *baseline,
                         const git_diff_file *target, const git_diff_file *workdir, void *data)
{
	atomic_bool *cancelled = data;

	(void)why;
	(void)path;
	(void)baseline;
	(void)target;
	(void)workdir;
	return cancelled && atomic_load(cancelled) ? GIT_EUSER : 0;
}

static int poll_copy(const git_indexer_progress *stats, void *data)
{
	atomic_bool *cancelled = data;

	(void)stats;
	return cancelled && atomic_load(cancelled) ? GIT_EUSER : 0;
}

/* Names of SOURCE's own: those of its clone are others. */
static int find_start(const char *source, const char *base, const char *branch, git_oid *ret,
                      struct sbx_error *err)
{
	_cleanup_git_(repository) git_repository *repo = NULL;
	_cleanup_git_(reference) git_reference *ref = NULL;
	_cleanup_git_(object) git_object *object = NULL, *commit = NULL;
	int r = sbx_git_open(source, &repo);

	if (r)
		return sbx_git_fail(err, r, "cannot open the repository %s", source);
	if (branch && git_branch_lookup(&ref, repo, branch, GIT_BRANCH_LOCAL) == 0)
		r = git_reference_peel(&commit, ref, GIT_OBJECT_COMMIT);
	else
		r = git_revparse_single(&object, repo, base ? base : "HEAD");
	if (!r && !commit)
		r = git_object_peel(&commit, object, GIT_OBJECT_COMMIT);
	if (r)
		return sbx_git_fail(err, r, "there is no commit %s", base ? base : "HEAD");
	git_oid_cpy(ret, git_object_id(commit));
	return 0;
}

static int set_head(git_repository *repo, const char *branch, const git_oid *start,
                    struct sbx_error *err)
{
	_cleanup_git_(reference) git_reference *ref = NULL;
	_cleanup_free_ char *name = NULL;
	int r;

	if (!branch) {
		r = SBX_GIT(git_repository_set_head_detached(repo, start));
		return r ? sbx_git_fail(err, r, "cannot check out the commit") : 0;
	}
	if (asprintf(&name, "refs/heads/%s", branch) < 0) {
		name = NULL;
		return sbx_no_memory(err);
	}
	r = git_reference_create(&ref, repo, name, start, true, NULL);
	if (!r)
		r = SBX_GIT(git_repository_set_head(repo, name));
	return r ? sbx_git_fail(err, r, "cannot make the branch %s", branch) : 0;
}

static int check_out(git_repository *repo, const git_oid *start, atomic_bool *cancelled,
                     struct sbx_error *err)
{
	_cleanup_git_(object) git_object *commit = NULL;
	git_checkout_options options = GIT_CHECKOUT_OPTIONS_INIT;
	int r = git_object_lookup(&commit, repo, start, GIT_OBJECT_COMMIT);

	options.checkout_strategy = GIT_CHECKOUT_FORCE;
	options.dir_mode = 0755;
	options.notify_flags = GIT_CHECKOUT_NOTIFY_UPDATED;
	options.notify_cb = poll_checkout;
	options.notify_payload = cancelled;
	if (!r)
		r = git_checkout_tree(repo, commit, &options);
	return r ? sbx_git_fail(err, r, "cannot check out the commit") : 0;
}

static int clone_to(const char *source, const char *branch, const git_oid *start, const char *to,
                    atomic_bool *cancelled, struct sbx_error *err)
{
	_cleanup_git_(repository) git_repository *repo = NULL;
	git_clone_options options = GIT_CLONE_OPTIONS_INIT;
	int r;

	options.checkout_opts.checkout_strategy = GIT_CHECKOUT_NONE;
	options.local = GIT_CLONE_LOCAL;
	options.fetch_opts.callbacks.transfer_progress = poll_copy;
	options.fetch_opts.callbacks.payload = cancelled;
	r = SBX_GIT(git_clone(&repo, source, to, &options));
	if (r)
		return sbx_git_fail(err, r, "cannot copy the repository %s", source);
	r = set_head(repo, branch, start, err);
	return r ? r : check_out(repo, start, cancelled, err);
}

int sbx_git_clone(const char *source, const char *base, const char *branch, const char *to,
                  atomic_bool *cancelled, struct sbx_error *err)
{
	git_oid start;
	int r = find_start(source, base, branch, &start, err);

	if (!r)
		r = clone_to(source, branch, &start, to, cancelled, err);
	if (r && cancelled && atomic_load(cancelled))
		return sbx_fail(err, EINTR, "cancelled");
	return r;
}
