/*
 * The push of a sandbox elsewhere. Its commits are brought here as a pack, and pushed from here, so
 * that the token never comes near what a command can reach; a provider that pushes by itself is
 * asked instead where it can. They go to the mount's source and nowhere else: the remotes of the
 * machine's repository are a command's to write, and would have the token sent to them.
 */
#include <errno.h>
#include <git2.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/git/git_impl.h"
#include "backends/push/push.h"
#include "backends/remote/ask.h"
#include "backends/remote/history.h"
#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/remote.h"
#include "sandboxfs/tree.h"

#define DEADLINE_MS 300000
#define REPOSITORY  "push.git"

static struct remote_box *box_of(struct sbx_sandbox *sb)
{
	return sbx_container_of(sb, struct remote_box, base);
}

/* Of ORG/REPO at GitHub; a URL or a path as it is. */
static int url_of(struct remote_box *box, char **ret, struct sbx_error *err)
{
	const struct sbx_settings *s = box->backend->host->settings;
	const char *source = s->source_abs ? s->source_abs : box->rec.source;

	if (!source)
		return sbx_fail(err, EOPNOTSUPP, "this sandbox is not one of a git repository");
	*ret = source[0] == '/' || strstr(source, "://") || strncmp(source, "git@", 4) == 0
	               ? strdup(source)
	               : sbx_format("https://github.com/%s.git", source);
	return *ret ? 0 : sbx_no_memory(err);
}

static int url(struct sbx_sandbox *sb, const char *name, bool written, char **ret,
               struct sbx_error *err)
{
	(void)written;
	if (name && strcmp(name, "origin") != 0)
		return sbx_fail(err, ENOENT,
		                "a sandbox elsewhere pushes to the mount's source only: to origin, "
		                "not to %.80s",
		                name);
	return url_of(box_of(sb), ret, err);
}

/* --- from the machine to a repository here ----------------------------------------------------
 */

/* Puts PACK into REPO, and REF at the commit HEX. 0 or what libgit2 says. */
static int fill(git_repository *repo, const struct remote_frame *pack, const char *hex,
                const char *ref)
{
	git_indexer_progress progress = {0};
	git_odb_writepack *writer = NULL;
	git_reference *made = NULL;
	git_odb *odb = NULL;
	git_oid oid;
	int r = git_oid_fromstr(&oid, hex);

	if (!r)
		r = git_repository_odb(&odb, repo);
	if (!r)
		r = git_odb_write_pack(&writer, odb, NULL, NULL);
	if (!r)
		r = writer->append(writer, pack->bytes, pack->len, &progress);
	if (!r)
		r = writer->commit(writer, &progress);
	if (!r)
		r = git_reference_create(&made, repo, ref, &oid, 1, NULL);
	git_reference_free(made);
	if (writer)
		writer->free(writer);
	git_odb_free(odb);
	return r;
}

static int make_repository(const char *path, const char *remote, git_repository **ret)
{
	git_remote *made = NULL;
	int r = git_repository_init(ret, path, 1);

	if (!r)
		r = git_remote_create(&made, *ret, "origin", remote);
	git_remote_free(made);
	return r;
}

static int build(const char *path, const char *remote, const struct remote_frame *pack,
                 const char *hex, const char *branch, struct sbx_error *err)
{
	_cleanup_git_(repository) git_repository *repo = NULL;
	_cleanup_free_ char *ref = sbx_format("refs/heads/%s", branch);
	int r = ref ? make_repository(path, remote, &repo) : GIT_ERROR;

	if (!r)
		r = fill(repo, pack, hex, ref);
	return r ? sbx_git_fail(err, r, "the commits of the sandbox cannot be taken over") : 0;
}

/* Asks for the branch, and makes a repository of it at PATH. */
static int bring_over(struct remote_box *box, const char *path, const char *remote,
                      const struct sbx_push_options *options, struct sbx_error *err)
{
	struct remote_ask ask = {.op = "push", .safe = true, .deadline_ms = DEADLINE_MS};
	_cleanup_(remote_reply_release) struct remote_reply reply = {0};
	const struct remote_frame *commit, *pack;
	size_t at = 0;
	int r;

	remote_text_add(&ask.body, "r_objects");
	remote_text_word(&ask.body, box->rec.branch);
	remote_text_add(&ask.body, "\n");
	r = remote_box_ask(box, &ask, options->cancelled, &reply, err);
	if (r < 0)
		return r;
	commit = remote_reply_next(&reply, &at, REMOTE_INFO, "commit");
	pack = commit ? remote_reply_next(&reply, &at, REMOTE_DATA, "pack") : NULL;
	if (!pack)
		return sbx_fail(err, EPROTO, "the machine did not answer with the commits");
	return build(path, remote, pack, commit->bytes, box->rec.branch, err);
}

static int push_from_here(struct remote_box *box, const char *remote,
                          const struct sbx_push_options *options, struct sbx_error *err)
{
	struct remote *b = box->backend;
	_cleanup_free_ char *path =
	        sbx_format("%s/remote/%s/" REPOSITORY, b->state.path, box->base.id);
	const struct sbx_git_push from = {.common = path,
	                                  .branch = box->rec.branch,
	                                  .mountpoint = b->host->settings->mountpoint,
	                                  .state = b->state.path};
	int r = path ? sbx_tree_remove(box->dir, REPOSITORY, err) : sbx_no_memory(err);

	if (r < 0)
		return r;
	r = bring_over(box, path, remote, options, err);
	if (r == 0)
		r = sbx_git_push(&from, options, err);
	sbx_tree_remove(box->dir, REPOSITORY, NULL);
	return r;
}

static int push(struct sbx_sandbox *sb, const struct sbx_push_options *options,
                struct sbx_error *err)
{
	struct remote_box *box = box_of(sb);
	const struct sbx_provider_impl *impl = box->backend->provider->impl;
	_cleanup_free_ char *remote = NULL;
	int r = url(sb, options->remote, false, &remote, err);

	if (r < 0)
		return r;
	if (!remote_box_is_up(box))
		return sbx_fail(err, EBUSY, "the sandbox is not there yet, or no more");
	return impl->push ? impl->push(box->machine, box->rec.branch, options->cancelled, err)
	                  : push_from_here(box, remote, options, err);
}

const struct sbx_remote_impl remote_push = {.url = url, .push = push};
