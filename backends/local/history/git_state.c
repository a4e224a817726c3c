/* The host's side of the git state: HEAD, the branch, the index. For sandboxes that are not of git
 * the same in their own repository. */
#include "backends/local/history/git_state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "backends/git/git_impl.h"
#include "backends/git/import_objects.h"
#include "backends/local/gitsync/sync_impl.h"
#include "backends/local/history/history_impl.h"
#include "backends/local/overlay/base_index.h"
#include "backends/support/beneath.h"
#include "sandboxfs/cleanup.h"

#define NO_NAME "sandboxfs"
#define NO_MAIL "sandboxfs@localhost"

#define LOCK_PAUSE_NS 10000000
#define LOCK_TRIES    100

/* ---- the index ---- */

int sbx_local_history_index_dir(const struct sbx_snapshot_context *context, struct sbx_error *err)
{
	const struct sbx_record *rec = context->rec;
	_cleanup_free_ char *path = NULL;
	int fd;

	if (!rec->common)
		return sbx_local_history_dir(context, err);
	path = sbx_format("%s/worktrees/%s", rec->common, rec->worktree);
	fd = path ? sbx_dir_open(AT_FDCWD, path) : -ENOMEM;
	return fd < 0 ? sbx_fail(err, -fd, "cannot open the worktree's entry: %s", strerror(-fd))
	              : fd;
}

int sbx_local_history_read_index(int dir, const char *name, struct sbx_local_history_index *ret,
                                 struct sbx_error *err)
{
	_cleanup_free_ char *data = NULL;
	size_t len;
	int r = sbx_beneath_read(dir, name, SBX_INDEX_MAX, &data, &len, &ret->at);

	ret->index = (struct sbx_index){0};
	ret->shared = NULL;
	if (r == -ENOENT)
		return 0;
	if (r)
		return sbx_fail(err, -r, "the index cannot be read: %s", strerror(-r));
	return sbx_index_parse(data, len, &ret->index, err);
}

void sbx_local_history_index_release(struct sbx_local_history_index *index)
{
	if (!index->shared)
		sbx_index_release(&index->index);
	sbx_base_index_put(index->shared);
	*index = (struct sbx_local_history_index){0};
}

static int busy(struct sbx_error *err)
{
	return sbx_fail(err, EBUSY, "git is at work on the sandbox (there is an index.lock)");
}

/* Whether it is worth another try: what looks at a worktree now and then (an editor, a prompt) has
 * the lock for a moment. */
static bool again(int r, int *tries)
{
	const struct timespec pause = {.tv_nsec = LOCK_PAUSE_NS};

	if (r != -EBUSY || ++*tries > LOCK_TRIES)
		return false;
	nanosleep(&pause, NULL);
	return true;
}

int sbx_local_history_lock_index(const struct sbx_snapshot_context *context, struct sbx_error *err)
{
	_cleanup_fd_ int dir = sbx_local_history_index_dir(context, err);
	struct sbx_git_owner owner = {0};
	int r, tries = 0;

	if (dir < 0)
		return dir;
	if (context->rec->common)
		owner = sbx_git_owner_begin(context->rec->common);
	do
		r = sbx_locked_begin(dir, "index");
	while (again(r, &tries));
	sbx_git_owner_end(&owner);
	if (r == -EBUSY)
		return busy(err);
	return r ? sbx_fail(err, -r, "the index cannot be written: %s", strerror(-r)) : 0;
}

void sbx_local_history_unlock_index(const struct sbx_snapshot_context *context)
{
	_cleanup_fd_ int dir = sbx_local_history_index_dir(context, NULL);

	if (dir >= 0)
		sbx_locked_end(dir, "index");
}

static int fail_index(int r, struct sbx_error *err)
{
	if (r == -EBUSY)
		return busy(err);
	return r ? sbx_fail(err, -r, "the index cannot be written: %s", strerror(-r)) : 0;
}

int sbx_local_history_take_index(const struct sbx_snapshot_context *context,
                                 const struct sbx_index *index, const struct timespec *at,
                                 struct sbx_error *err)
{
	_cleanup_fd_ int dir = sbx_local_history_index_dir(context, err);
	_cleanup_free_ void *data = NULL;
	struct sbx_git_owner owner = {0};
	size_t len;
	int r, tries = 0;

	if (dir < 0)
		return dir;
	r = sbx_index_format(index, true, &data, &len);
	if (context->rec->common)
		owner = sbx_git_owner_begin(context->rec->common);
	if (!r)
		do
			r = sbx_locked_take(dir, "index", data, len, at);
		while (again(r, &tries));
	sbx_git_owner_end(&owner);
	return fail_index(r, err);
}

int sbx_local_history_put_index(const struct sbx_snapshot_context *context, struct sbx_error *err)
{
	_cleanup_fd_ int dir = sbx_local_history_index_dir(context, err);

	return dir < 0 ? dir : fail_index(sbx_locked_put(dir, "index"), err);
}

int sbx_local_history_write_index(const struct sbx_snapshot_context *context,
                                  const struct sbx_index *index, const struct timespec *at,
                                  struct sbx_error *err)
{
	const int r = sbx_local_history_take_index(context, index, at, err);

	return r ? r : sbx_local_history_put_index(context, err);
}

/* ---- HEAD ---- */

int sbx_local_history_read_head(const struct sbx_snapshot_context *context, git_repository *repo,
                                struct sbx_local_history_head *ret, struct sbx_error *err)
{
	_cleanup_fd_ int dir = sbx_local_history_index_dir(context, err);
	size_t len;
	int r;

	*ret = (struct sbx_local_history_head){0};
	if (dir < 0)
		return dir;
	r = sbx_beneath_read(dir, "HEAD", SBX_GIT_HEAD_MAX, &ret->text, &len, NULL);
	if (r)
		return sbx_fail(err, -r, "HEAD cannot be read: %s", strerror(-r));
	ret->text[strcspn(ret->text, "\n")] = '\0';
	ret->ref = sbx_sync_branch_of(ret->text);
	ret->born = ret->ref ? git_reference_name_to_id(&ret->oid, repo, ret->ref) == 0
	                     : sbx_sync_commit_of(ret->text, &ret->oid);
	if (!ret->born && !ret->ref)
		r = sbx_fail(err, EINVAL, "HEAD of the worktree names nothing: %.80s", ret->text);
	if (r)
		sbx_local_history_head_release(ret);
	return r;
}

void sbx_local_history_head_release(struct sbx_local_history_head *head)
{
	free(head->text);
	*head = (struct sbx_local_history_head){0};
}

int sbx_local_history_set_head(const struct sbx_snapshot_context *context, const char *text,
                               struct sbx_error *err)
{
	_cleanup_fd_ int dir = sbx_local_history_index_dir(context, err);
	_cleanup_free_ char *line = sbx_format("%s\n", text);
	struct sbx_git_owner owner = {0};
	int r;

	if (dir < 0)
		return dir;
	if (context->rec->common)
		owner = sbx_git_owner_begin(context->rec->common);
	r = line ? sbx_locked_replace(dir, "HEAD", line, strlen(line), NULL) : -ENOMEM;
	sbx_git_owner_end(&owner);
	return r ? sbx_fail(err, -r, "HEAD cannot be moved: %s",
	                    r == -EBUSY ? "git is at work there" : strerror(-r))
	         : 0;
}

/* ---- refs ---- */

/* For reflogs the source has to be opened as what it is. */
static int open_for_refs(const struct sbx_snapshot_context *context, git_repository **ret,
                         struct sbx_error *err)
{
	int r;

	if (!context->rec->common)
		return sbx_local_history_open(context, false, ret, err);
	r = sbx_git_open(context->rec->common, ret);
	return r ? sbx_git_fail(err, r, "cannot open the repository %s", context->rec->common) : 0;
}

static int move_ref(git_repository *repo, const char *name, const git_oid *old, const git_oid *new,
                    const char *text, struct sbx_error *err)
{
	_cleanup_git_(reference) git_reference *ref = NULL;
	int r;

	if (old)
		r = git_reference_create_matching(&ref, repo, name, new, 1, old, text);
	else
		r = git_reference_create(&ref, repo, name, new, 1, text);
	if (r == GIT_EMODIFIED || (old && r == GIT_ENOTFOUND))
		return sbx_fail(err, EAGAIN, "%s has moved meanwhile", name);
	return r ? sbx_git_fail(err, r, "cannot move %s", name) : 0;
}

/* ---- who ---- */

/* libgit2's own asks for the time zone in a way that threads must not. */
static int signature(git_signature **ret, const char *name, const char *mail)
{
	time_t now = time(NULL);
	struct tm tm = {0};

	localtime_r(&now, &tm);
	return git_signature_new(ret, name, mail, now, (int)(tm.tm_gmtoff / 60));
}

/* Who commits on the host. */
static int host_signature(git_repository *repo, git_signature **ret)
{
	git_config *config = NULL, *snapshot = NULL;
	const char *name, *mail;
	int r = GIT_ENOTFOUND;

	if (git_repository_config(&config, repo) == 0 &&
	    git_config_snapshot(&snapshot, config) == 0 &&
	    git_config_get_string(&name, snapshot, "user.name") == 0 &&
	    git_config_get_string(&mail, snapshot, "user.email") == 0)
		r = signature(ret, name, mail);
	git_config_free(snapshot);
	git_config_free(config);
	return r ? signature(ret, NO_NAME, NO_MAIL) : 0;
}

/* ---- moving refs ---- */

/* The worktree's own log of HEAD, as git keeps it where there is one. */
static void log_head(const struct sbx_snapshot_context *context, git_repository *repo,
                     const git_oid *old, const git_oid *new, const char *text)
{
	static const git_oid none;
	_cleanup_fd_ int dir = sbx_local_history_index_dir(context, NULL);
	_cleanup_fd_ int fd = -1;
	char from[GIT_OID_HEXSZ + 1], to[GIT_OID_HEXSZ + 1];
	git_signature *who = NULL;

	if (dir >= 0)
		fd = sbx_beneath_open(dir, "logs/HEAD", O_WRONLY | O_APPEND);
	if (fd < 0)
		return;
	if (host_signature(repo, &who))
		return;
	dprintf(fd, "%s %s %s <%s> %lld %c%02d%02d\t%s\n",
	        git_oid_tostr(from, sizeof(from), old ? old : &none),
	        git_oid_tostr(to, sizeof(to), new), who->name, who->email,
	        (long long)who->when.time, who->when.offset < 0 ? '-' : '+',
	        abs(who->when.offset) / 60, abs(who->when.offset) % 60, text);
	git_signature_free(who);
}

void sbx_local_history_break_locks(const struct sbx_snapshot_context *context)
{
	_cleanup_fd_ int entry = sbx_local_history_index_dir(context, NULL);

	if (entry < 0)
		return;
	sbx_locked_clear(entry, "index");
	sbx_locked_clear(entry, "HEAD");
	/* In a repository that is the sandbox's own nobody else locks anything. */
	if (!context->rec->common)
		unlinkat(entry, SBX_LOCAL_HISTORY_BRANCH ".lock", 0);
}

int sbx_local_history_move(const struct sbx_snapshot_context *context, const char *ref,
                           const git_oid *old, const git_oid *new, const char *text,
                           struct sbx_error *err)
{
	_cleanup_git_(repository) git_repository *repo = NULL;
	char hex[GIT_OID_HEXSZ + 1];
	int r = open_for_refs(context, &repo, err);

	if (r)
		return r;
	if (ref) {
		struct sbx_git_owner owner = {0};

		if (context->rec->common)
			owner = sbx_git_owner_begin(context->rec->common);
		r = move_ref(repo, ref, old, new, text, err);
		sbx_git_owner_end(&owner);
	} else {
		r = sbx_local_history_set_head(context, git_oid_tostr(hex, sizeof(hex), new), err);
	}
	if (!r)
		log_head(context, repo, old, new, text);
	return r;
}

/* ---- commits ---- */

static int author_of(git_repository *repo, const char *author, git_signature **ret,
                     struct sbx_error *err)
{
	const char *open = author ? strrchr(author, '<') : NULL;
	const char *close = open ? strchr(open, '>') : NULL;
	_cleanup_free_ char *name = NULL, *mail = NULL;

	if (!author)
		return host_signature(repo, ret) ? sbx_no_memory(err) : 0;
	if (close && !close[1]) {
		name = strndup(author, (size_t)(open - author));
		mail = strndup(open + 1, (size_t)(close - open - 1));
	}
	if (!name || !mail || strpbrk(author, "\n\r") || signature(ret, name, mail))
		return sbx_fail(err, EINVAL, "an author is \"Name <mail>\"");
	return 0;
}

static char *default_message(const git_oid *tree)
{
	struct timespec now;
	char hex[GIT_OID_HEXSZ + 1];
	_cleanup_free_ char *what = NULL;
	git_oid oid;

	clock_gettime(CLOCK_REALTIME, &now);
	what = sbx_format("%s %lld.%09ld", git_oid_tostr(hex, sizeof(hex), tree),
	                  (long long)now.tv_sec, now.tv_nsec);
	if (!what || git_odb_hash(&oid, what, strlen(what), GIT_OBJECT_BLOB))
		return NULL;
	return sbx_format("snapshot-%.12s\n", git_oid_tostr(hex, sizeof(hex), &oid));
}

static char *message_of(const char *message, const git_oid *tree)
{
	size_t n = message ? strlen(message) : 0;

	if (!n)
		return default_message(tree);
	return sbx_format("%s%s", message, message[n - 1] == '\n' ? "" : "\n");
}

int sbx_local_history_commit(git_repository *repo, const git_oid *tree, const git_oid *parent,
                             const char *message, const char *author, git_oid *ret,
                             struct sbx_error *err)
{
	_cleanup_free_ char *text = message_of(message, tree);
	_cleanup_git_(tree) git_tree *root = NULL;
	git_commit *above = NULL;
	const git_commit *parents[1];
	git_signature *who = NULL, *us = NULL;
	int r = author_of(repo, author, &who, err);

	if (r)
		return r;
	r = author_of(repo, NULL, &us, err);
	if (!r && !text)
		r = sbx_no_memory(err);
	if (!r) {
		r = git_tree_lookup(&root, repo, tree);
		if (!r && parent)
			r = git_commit_lookup(&above, repo, parent);
		parents[0] = above;
		if (!r)
			r = git_commit_create(ret, repo, NULL, who, us, NULL, text, root,
			                      parent ? 1 : 0, parents);
		if (r)
			r = sbx_git_fail(err, r, "cannot make a commit");
	}
	git_commit_free(above);
	git_signature_free(who);
	git_signature_free(us);
	return r;
}
