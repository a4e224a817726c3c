/*
 * Made from the same base as what it is to be, and then only what differs is written: so it costs what was changed. The record says
 * ready when all of it is done.
 */
#include "backends/local/create_from.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/git/git_impl.h"
#include "backends/local/fork.h"
#include "backends/local/history/aside.h"
#include "backends/local/history/history_impl.h"
#include "backends/local/history_ops.h"
#include "backends/local/trash/save.h"
#include "backends/local/trash/trash.h"

SBX_GIT_CLEANUP(packbuilder, git_packbuilder, git_packbuilder_free)

void sbx_local_seed_release(struct sbx_local_seed *seed)
{
	free(seed->branch);
	git_repository_free(seed->objects);
	if (seed->repos)
		sbx_aside_close(seed->repos);
	free(seed->repos);
	*seed = (struct sbx_local_seed){0};
}

/* --- from the trash --------------------------------------------------------------------------------- */

static bool has_commit(git_repository *repo, const char *hex)
{
	_cleanup_git_(object) git_object *c = NULL;
	git_oid oid;

	return git_oid_fromstr(&oid, hex) == 0 &&
	       git_object_lookup(&c, repo, &oid, GIT_OBJECT_COMMIT) == 0;
}

/* OWN: it is in the state directory. */
static int find_entry(struct sbx_local *b, const char *name, git_repository **repo,
                      struct sbx_trash_entry *e, bool *own)
{
	int r = b->common ? sbx_local_trash_repo(b, b->common, false, repo) : GIT_ENOTFOUND;

	if (!r)
		r = sbx_trash_find(*repo, name, e);
	if (r != GIT_ENOTFOUND)
		return r;
	*own = true;
	git_repository_free(*repo);
	*repo = NULL;
	r = sbx_local_trash_repo(b, NULL, false, repo);
	return r ? r : sbx_trash_find(*repo, name, e);
}

/* Where the commits that it stood on are gone it begins as any other, with the same files. */
static int seed_git(struct sbx_local *b, const struct sbx_trash_entry *e,
                    struct sbx_local_seed *seed, struct sbx_error *err)
{
	_cleanup_git_(repository) git_repository *repo = NULL;
	char head[GIT_OID_HEXSZ + 1] = "";
	int r = sbx_git_open(b->common, &repo);

	if (r)
		return sbx_git_fail(err, r, "cannot open the repository %s", b->common);
	if (e->has_head)
		git_oid_tostr(head, sizeof(head), &e->head);
	else if (e->base)
		snprintf(head, sizeof(head), "%.*s", GIT_OID_HEXSZ, e->base);
	if (!has_commit(repo, head))
		return 0;
	memcpy(seed->head, head, sizeof(head));
	snprintf(seed->base, sizeof(seed->base), "%.*s", GIT_OID_HEXSZ,
	         e->base && has_commit(repo, e->base) ? e->base : head);
	seed->has_staged = e->has_staged;
	seed->staged = e->staged;
	seed->branch = e->branch ? strdup(e->branch) : NULL;
	return e->branch && !seed->branch ? sbx_fail(err, ENOMEM, "out of memory") : 0;
}

/* *ID is the sandbox's that the entry is of, the caller's. */
static int seed_trash(struct sbx_local *b, const char *name, struct sbx_local_seed *seed, char **id,
                      struct sbx_error *err)
{
	_cleanup_(sbx_trash_release) struct sbx_trash_entry e = {0};
	git_repository *repo = NULL;
	bool own = false;
	int r = find_entry(b, name, &repo, &e, &own);

	if (r == GIT_ENOTFOUND)
		r = sbx_fail(err, ENOENT, "there is no %s in the trash", name);
	else if (r)
		r = sbx_git_fail(err, r, "the trash cannot be read");
	if (r) {
		git_repository_free(repo);
		return r;
	}
	*id = sbx_steal_ptr(&e.id);
	seed->commit = e.commit;
	seed->tree = e.tree;
	seed->objects = repo;
	r = b->common ? seed_git(b, &e, seed, err) : 0;
	/* The source's own objects need not be brought. */
	if (b->common && e.has_head && !own) {
		git_repository_free(seed->objects);
		seed->objects = NULL;
	}
	return r;
}

static bool is_final(int r)
{
	return r == -EINTR || r == -ENOSPC || r == -EDQUOT || r == -ENOMEM || r == -EMFILE ||
	       r == -ENFILE;
}

/*
 * From the very files. 1: there are none, or they do not do here, and what git has of them is to.
 */
static int create_whole(struct sbx_local *b, const struct sbx_create *req,
                        const struct sbx_local_seed *seed, const char *id, struct sbx_sandbox **ret,
                        struct sbx_error *err)
{
	struct sbx_error why = SBX_ERROR_INIT;
	struct sbx_removed of;
	_cleanup_free_ char *text = NULL;
	int r = sbx_local_removed_open(b, id, &of);

	if (r)
		return 1;
	r = sbx_local_fork_removed(b, req, seed, &of, ret, &why);
	sbx_local_removed_close(b, &of);
	if (!r)
		return 0;
	if (is_final(r))
		return sbx_fail(err, why.code, "%s", why.text);
	text = sbx_format("%s was made from what git has of %s alone: %s", req->name,
	                  req->origin.entry, why.text);
	if (text && b->host->dropped)
		b->host->dropped(req->name, text, b->host->data);
	return 1;
}

int sbx_local_create_trash(struct sbx_local *b, const struct sbx_create *req,
                           struct sbx_sandbox **ret, struct sbx_error *err)
{
	_cleanup_(sbx_local_seed_release) struct sbx_local_seed seed = {0};
	_cleanup_free_ char *id = NULL;
	int r = seed_trash(b, req->origin.entry, &seed, &id, err);

	if (!r)
		r = create_whole(b, req, &seed, id, ret, err);
	return r <= 0 ? r : sbx_local_create_as(b, req, &seed, ret, err);
}

/* --- as another was ---------------------------------------------------------------------------------- */

static int seed_rev(struct sbx_sandbox *from, const char *rev, struct sbx_local_seed *seed,
                    struct sbx_error *err)
{
	const struct sbx_past_place place = sbx_local_place(from);
	struct sbx_past_rev found;
	int r = sbx_past_open(&place, true, &seed->objects, err);

	if (!r)
		r = sbx_past_resolve(&place, seed->objects, rev, &found, err);
	if (r)
		return r;
	if (found.mark)
		return sbx_fail(err, EINVAL, "a mark is nothing that another sandbox can begin as");
	seed->commit = found.commit;
	seed->tree = found.tree;
	seed->repos = malloc(sizeof(*seed->repos));
	if (!seed->repos)
		return sbx_fail(err, ENOMEM, "out of memory");
	sbx_repos_find(&place, &found.commit, seed->repos);
	seed->repos->place = NULL;
	if (!place.rec->common)
		return 0;
	git_oid_tostr(seed->head, sizeof(seed->head), &found.commit);
	snprintf(seed->base, sizeof(seed->base), "%s", place.rec->base);
	git_repository_free(seed->objects);
	seed->objects = NULL;
	return 0;
}

int sbx_local_create_rev(struct sbx_local *b, const struct sbx_create *req,
                         struct sbx_sandbox **ret, struct sbx_error *err)
{
	_cleanup_(sbx_local_seed_release) struct sbx_local_seed seed = {0};
	int r = seed_rev(req->origin.sandbox, req->origin.rev, &seed, err);

	return r ? r : sbx_local_create_as(b, req, &seed, ret, err);
}

/* --- the last step ----------------------------------------------------------------------------------- */

/* Brings the commit, with all that it leads to, to where the sandbox's own objects are. */
static int bring(const struct sbx_past_place *place, const struct sbx_local_seed *seed,
                 struct sbx_error *err)
{
	_cleanup_git_(packbuilder) git_packbuilder *pack = NULL;
	_cleanup_free_ char *path =
	        sbx_format("%s/git/%s/history/objects/pack", place->b->state.path, place->rec->id);
	_cleanup_fd_ int dir = sbx_past_dir(place, err);
	int r = path ? 0 : -1;

	if (dir < 0)
		return dir;
	if (!r)
		r = git_packbuilder_new(&pack, seed->objects);
	if (!r)
		r = git_packbuilder_insert_tree(pack, &seed->tree);
	if (!r && seed->has_staged)
		r = git_packbuilder_insert_tree(pack, &seed->staged);
	if (!r)
		r = git_packbuilder_write(pack, path, 0, NULL, NULL);
	return r ? sbx_git_fail(err, r, "what it is to be cannot be read") : 0;
}

static int stage(const struct sbx_past_place *place, git_repository *repo,
                 const struct sbx_local_seed *seed, struct sbx_captured *now, struct sbx_error *err)
{
	git_oid head = seed->staged, commit;
	int r = 0;

	if (!seed->has_staged) {
		r = git_oid_fromstr(&commit, seed->head);
		r = r ? sbx_git_fail(err, r, "commit %s", seed->head)
		      : sbx_past_tree_of(repo, &commit, &head, err);
	}
	if (!r)
		r = sbx_past_stage(repo, &now->index, &seed->tree, &head, err);
	return r ? r : sbx_past_write_index(place, &now->index, &now->begun, err);
}

static int give_repos(const struct sbx_past_place *place, const struct sbx_aside *repos,
                      struct sbx_error *err)
{
	_cleanup_(sbx_aside_close) struct sbx_aside aside = sbx_no_aside;
	struct sbx_error own = SBX_ERROR_INIT;
	int r = sbx_aside_open(place, "fork", &aside, &own);

	if (!r)
		r = sbx_repos_give_back(repos, &aside);
	sbx_past_temp_remove(place->root, NULL);
	sbx_aside_drop_others(place, NULL);
	if (r && err)
		*err = own;
	return r;
}

int sbx_local_grow(struct sbx_sandbox *sb, const struct sbx_local_seed *seed,
                   atomic_bool *cancelled, struct sbx_error *err)
{
	const struct sbx_past_place place = sbx_local_place(sb);
	const struct sbx_past_wish wish = {.cancelled = cancelled};
	_cleanup_(sbx_captured_release) struct sbx_captured now = {0};
	_cleanup_git_(repository) git_repository *repo = NULL;
	int r = seed->objects ? bring(&place, seed, err) : 0;

	if (!r)
		r = sbx_past_open(&place, true, &repo, err);
	if (!r)
		r = sbx_past_capture(&place, &wish, &now, err);
	if (!r)
		r = sbx_past_apply(&place, repo, &now, &seed->tree, NULL, err);
	if (!r && seed->repos && seed->repos->files >= 0)
		r = give_repos(&place, seed->repos, err);
	if (!r && *seed->head)
		r = stage(&place, repo, seed, &now, err);
	return r;
}
