/*
 * The push to a repository of this host that somebody works in. libgit2 pushes to bare ones only.
 * The objects are a command's to make, so that they come over as those of a sandbox of this host
 * do: each is looked at. Then the branch is moved, unless it is checked out.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "backends/git/durable.h"
#include "backends/git/git_impl.h"
#include "backends/git/import_objects.h"
#include "backends/push/remote.h"
#include "backends/remote/history.h"
#include "backends/support/beneath.h"
#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"

struct delivery {
	git_repository *to;
	const char *common; /* of TO */
	const char *branch;
	char *ref; /* refs/heads/BRANCH */
	git_oid oid;
};

static int bring_objects(const struct delivery *d, int from, uint64_t until_ms,
                         struct sbx_error *err)
{
	const _Atomic uint64_t until = until_ms;
	struct sbx_git_taken taken = {.most = sbx_git_bounds.taken,
	                              .until = until_ms ? &until : NULL};
	_cleanup_fd_ int objects = sbx_beneath_open(from, "objects", O_RDONLY | O_DIRECTORY);
	struct sbx_git_reader *reader = NULL;
	int r = objects < 0 ? objects : sbx_git_reader_open(objects, &sbx_git_bounds, &reader);

	if (r)
		return sbx_fail(err, -r, "the commits of the sandbox cannot be read: %s",
		                strerror(-r));
	r = sbx_git_export(d->to, reader, &d->oid, GIT_OBJECT_COMMIT, &taken, err);
	sbx_git_taken_release(&taken);
	sbx_git_reader_close(reader);
	return r;
}

/* Moves the ref from OLD (NULL: it is not there yet), or not at all. libgit2's code. */
static int move_from(const struct delivery *d, const git_oid *old)
{
	_cleanup_git_(reference) git_reference *made = NULL;

	if (old)
		return git_reference_create_matching(&made, d->to, d->ref, &d->oid, 1, old, "push");
	return git_reference_create(&made, d->to, d->ref, &d->oid, 0, "push");
}

static int move_branch(const struct delivery *d, struct sbx_error *err)
{
	git_oid old;
	int r = git_reference_name_to_id(&old, d->to, d->ref);

	if (r && r != GIT_ENOTFOUND)
		return sbx_git_fail(err, r, "%s", d->branch);
	if (!r && git_oid_equal(&old, &d->oid))
		return 0;
	if (!r && git_graph_descendant_of(d->to, &d->oid, &old) != 1)
		return sbx_fail(err, EEXIST,
		                "%s of the remote has commits that %s here does not contain "
		                "(not a fast-forward)",
		                d->branch, d->branch);
	r = move_from(d, r ? NULL : &old);
	return r ? sbx_git_fail(err, r, "%s", d->branch) : 0;
}

/* What is checked out would show the difference as a change of its user's. */
static int check_free(const struct delivery *d, struct sbx_error *err)
{
	_cleanup_free_ char *where = NULL;
	int r = sbx_git_checked_out(d->common, d->branch, &where);

	if (r < 0)
		return sbx_fail(err, -r, "it cannot be seen where %s is checked out: %s", d->branch,
		                strerror(-r));
	return where ? sbx_fail(err, EBUSY, "%s is checked out in %s of the remote", d->branch,
	                        where)
	             : 0;
}

static int deliver(const struct delivery *d, int from, uint64_t until_ms, struct sbx_error *err)
{
	_cleanup_fd_ int lock = sbx_git_lock(d->common);
	struct sbx_git_owner owner;
	int r = lock < 0 ? sbx_fail(err, -lock, "the remote cannot be locked: %s", strerror(-lock))
	                 : check_free(d, err);

	if (r < 0)
		return r;
	sbx_git_durable_as(d->to);
	owner = sbx_git_owner_begin(d->common);
	r = bring_objects(d, from, until_ms, err);
	if (r == 0)
		r = move_branch(d, err);
	sbx_git_owner_end(&owner);
	return r;
}

bool remote_is_worked_in(const char *url)
{
	const char *path = push_path_of(url);
	_cleanup_git_(repository) git_repository *repo = NULL;

	return path && sbx_git_open(path, &repo) == 0 && !git_repository_is_bare(repo);
}

int remote_push_here(const struct sbx_git_push *from, const char *url, uint64_t until_ms,
                     struct sbx_error *err)
{
	_cleanup_free_ char *ref = sbx_format("refs/heads/%s", from->branch);
	_cleanup_git_(repository) git_repository *brought = NULL, *to = NULL;
	_cleanup_fd_ int dir = open(from->common, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct delivery d = {.branch = from->branch, .ref = ref};
	int r = push_check_path(from, url, err);

	if (r < 0)
		return r;
	if (!ref)
		return sbx_no_memory(err);
	if (dir < 0)
		return sbx_fail(err, errno, "the commits of the sandbox: %s", strerror(errno));
	r = git_repository_open_bare(&brought, from->common);
	if (!r)
		r = git_reference_name_to_id(&d.oid, brought, ref);
	if (r)
		return sbx_git_fail(err, r, "the commits of the sandbox");
	r = sbx_git_open(push_path_of(url), &to);
	if (r)
		return sbx_git_fail(err, r, "the remote cannot be opened");
	d.to = to;
	d.common = git_repository_commondir(to);
	return deliver(&d, dir, until_ms, err);
}
