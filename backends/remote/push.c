/*
 * The push of a sandbox elsewhere. Its commits are brought here as a pack, in pieces, and pushed
 * from here, so that the token never comes near what a command can reach, and no network of the
 * machine's is needed. They go to the source that the machine was made of and nowhere else: the
 * remotes of its repository are a command's to write.
 */
#include <ctype.h>
#include <errno.h>
#include <git2.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "backends/git/git_impl.h"
#include "backends/push/push.h"
#include "backends/remote/ask.h"
#include "backends/remote/history.h"
#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"
#include "sandboxfs/github.h"
#include "sandboxfs/remote.h"
#include "sandboxfs/tree.h"

#define DEADLINE_MS 300000
#define PIECE       ((size_t)8 * 1024 * 1024) /* of a pack, in an answer */
#define REPOSITORY  "push.git"

static struct remote_box *box_of(struct sbx_sandbox *sb)
{
	return sbx_container_of(sb, struct remote_box, base);
}

/* Of a repository of GitHub's as it was cloned, a URL or a path as it is. */
static int url_of(struct remote_box *box, char **ret, struct sbx_error *err)
{
	const char *source = box->rec.source;

	if (!source)
		return sbx_fail(err, EOPNOTSUPP, "this sandbox is not one of a git repository");
	if (*source != '/') {
		int r = sbx_github_clone_url(source, sbx_github_api_url(), ret, err);

		if (r != -EINVAL || !strchr(source, ':'))
			return r;
	}
	*ret = strdup(source);
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

struct bringing {
	struct remote_box *box;
	const struct sbx_push_options *options;
	uint64_t until_ms; /* 0: whenever */
	const char *path;  /* of the repository here */
	char name[32];     /* of the pack there */
	char *commit;
	uint64_t size; /* of the pack, in bytes */
};

/* *RET: what is left of the time, MOST at most; 0, here and there: no end. */
static int time_left(const struct bringing *b, uint64_t most, uint64_t *ret, struct sbx_error *err)
{
	const uint64_t now = sbx_now_ms();

	*ret = most;
	if (!b->until_ms)
		return 0;
	if (now >= b->until_ms)
		return sbx_fail(err, ETIMEDOUT, "it took longer than it may");
	if (!most || b->until_ms - now < most)
		*ret = b->until_ms - now;
	return 0;
}

/* Asks for FUNCTION, which is called with the pack's name and the words in REST. */
static int ask(const struct bringing *b, const char *function, const char *rest,
               struct remote_reply *reply, struct sbx_error *err)
{
	struct remote_ask ask = {.op = "push", .safe = true};
	int r = time_left(b, DEADLINE_MS, &ask.deadline_ms, err);

	if (r < 0)
		return r;
	remote_text_add(&ask.body, function);
	remote_text_add(&ask.body, rest);
	remote_text_add(&ask.body, "\n");
	return remote_box_ask(b->box, &ask, b->options->cancelled, reply, err);
}

static const char *info_of(const struct remote_reply *reply, const char *key)
{
	size_t at = 0;
	const struct remote_frame *f = remote_reply_next(reply, &at, REMOTE_INFO, key);

	return f ? f->bytes : "";
}

static int check_size(const struct bringing *b, struct sbx_error *err)
{
	struct statvfs fs;

	/* It lies here beside its index, and what says its size is the sandbox. */
	if (fstatvfs(b->box->dir, &fs) == 0 && b->size / fs.f_frsize >= fs.f_bavail / 2)
		return sbx_fail(err, ENOSPC,
		                "its commits take %" PRIu64 " MiB, for which the state directory "
		                "has no room",
		                b->size >> 20);
	return 0;
}

/* Has the machine pack the branch. */
static int pack(struct bringing *b, struct sbx_error *err)
{
	_cleanup_(remote_reply_release) struct remote_reply reply = {0};
	_cleanup_(remote_text_release) struct remote_text words = {0};
	const char *size;
	char *end;
	int r;

	remote_text_word(&words, b->box->rec.branch);
	remote_text_word(&words, b->name);
	if (words.failed)
		return sbx_no_memory(err);
	r = ask(b, "r_objects", words.at, &reply, err);
	if (r < 0)
		return r;
	size = info_of(&reply, "size");
	b->size = strtoull(size, &end, 10);
	b->commit = strdup(info_of(&reply, "commit"));
	if (!b->commit)
		return sbx_no_memory(err);
	if (!isdigit((unsigned char)*size) || *end || !*b->commit)
		return sbx_fail(err, EPROTO, "the machine did not say which commits it packed");
	return check_size(b, err);
}

static int bring_piece(const struct bringing *b, uint64_t number, git_odb_writepack *writer,
                       git_indexer_progress *progress, struct sbx_error *err)
{
	_cleanup_(remote_reply_release) struct remote_reply reply = {0};
	const uint64_t rest = b->size - number * PIECE;
	const struct remote_frame *f;
	size_t at = 0;
	char words[80];
	int r;

	snprintf(words, sizeof(words), " %s %zu %" PRIu64, b->name, PIECE, number);
	r = ask(b, "r_objects_piece", words, &reply, err);
	if (r < 0)
		return r;
	f = remote_reply_next(&reply, &at, REMOTE_DATA, "piece");
	if (!f || f->a != number || f->len != (rest < PIECE ? rest : PIECE))
		return sbx_fail(err, EPROTO, "the machine did not answer with the commits");
	r = writer->append(writer, f->bytes, f->len, progress);
	return r ? sbx_git_fail(err, r, "the commits of the sandbox cannot be taken over") : 0;
}

static int bring_pack(const struct bringing *b, git_odb *odb, struct sbx_error *err)
{
	git_indexer_progress progress = {0};
	git_odb_writepack *writer = NULL;
	int code = git_odb_write_pack(&writer, odb, NULL, NULL), r = 0;

	for (uint64_t i = 0; !code && !r && i * PIECE < b->size; i++)
		r = bring_piece(b, i, writer, &progress, err);
	if (!code && !r)
		code = writer->commit(writer, &progress);
	if (writer)
		writer->free(writer);
	return code ? sbx_git_fail(err, code, "the commits of the sandbox cannot be taken over")
	            : r;
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

static int make_branch(const struct bringing *b, git_repository *repo)
{
	_cleanup_free_ char *name = sbx_format("refs/heads/%s", b->box->rec.branch);
	git_reference *made = NULL;
	git_oid oid;
	int r = name ? git_oid_fromstr(&oid, b->commit) : GIT_ERROR;

	if (!r)
		r = git_reference_create(&made, repo, name, &oid, 1, NULL);
	git_reference_free(made);
	return r;
}

/* Makes a repository of the pack. */
static int build(const struct bringing *b, const char *remote, struct sbx_error *err)
{
	_cleanup_git_(repository) git_repository *repo = NULL;
	git_odb *odb = NULL;
	int code = make_repository(b->path, remote, &repo), r = 0;

	if (!code)
		code = git_repository_odb(&odb, repo);
	if (!code)
		r = bring_pack(b, odb, err);
	git_odb_free(odb);
	if (!code && !r)
		code = make_branch(b, repo);
	return code ? sbx_git_fail(err, code, "the commits of the sandbox cannot be taken over")
	            : r;
}

/* What is not dropped, as the daemon ended, is by the next push. */
static void drop(const struct bringing *b)
{
	struct remote_reply reply = {0};
	char words[40];

	snprintf(words, sizeof(words), " %s", b->name);
	if (ask(b, "r_objects_drop", words, &reply, NULL) == 0)
		remote_reply_release(&reply);
}

static int bring_over(struct bringing *b, const char *remote, struct sbx_error *err)
{
	int r;

	snprintf(b->name, sizeof(b->name), "%" PRIx64, sbx_now_ns());
	r = pack(b, err);
	if (r == 0)
		r = build(b, remote, err);
	if (r == 0 || b->commit)
		drop(b);
	free(b->commit);
	return r;
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
	struct bringing bringing = {.box = box, .options = options, .path = path};
	struct sbx_push_options rest = *options;
	int r = path ? sbx_tree_remove(box->dir, REPOSITORY, err) : sbx_no_memory(err);

	if (r < 0)
		return r;
	if (options->timeout_ms)
		bringing.until_ms = sbx_now_ms() + options->timeout_ms;
	r = bring_over(&bringing, remote, err);
	if (r == 0)
		r = time_left(&bringing, 0, &rest.timeout_ms, err);
	if (r == 0)
		r = remote_is_worked_in(remote)
		            ? remote_push_here(&from, remote, bringing.until_ms, err)
		            : sbx_git_push(&from, &rest, err);
	sbx_tree_remove(box->dir, REPOSITORY, NULL);
	return r;
}

static int push(struct sbx_sandbox *sb, const struct sbx_push_options *options,
                struct sbx_error *err)
{
	struct remote_box *box = box_of(sb);
	_cleanup_free_ char *remote = NULL;
	int r = url(sb, options->remote, false, &remote, err);

	if (r < 0)
		return r;
	if (!remote_box_is_up(box))
		return sbx_fail(err, EBUSY, "the sandbox is not there yet, or no more");
	return push_from_here(box, remote, options, err);
}

const struct sbx_remote_impl remote_push = {.url = url, .push = push};
