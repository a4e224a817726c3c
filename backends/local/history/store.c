/* The repository beside a sandbox, and how revisions are found in it. */
#include "backends/local/history/store.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <git2/sys/repository.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/git/durable.h"
#include "backends/git/git_impl.h"
#include "backends/git/import_objects.h"
#include "backends/git/store.h"
#include "backends/local/history/git_state.h"
#include "backends/local/history/history_impl.h"
#include "backends/support/fsutil.h"
#include "backends/support/tree.h"
#include "sandboxfs/cleanup.h"

#define LIST_MAX    ((size_t)16 << 20)
#define ID_FILE_MAX 128

/* ---- the directory ---- */

char *sbx_local_history_branch(const struct sbx_snapshot_context *context)
{
	return context->rec->common ? sbx_format("refs/heads/%s", context->rec->branch)
	                            : strdup(SBX_LOCAL_HISTORY_BRANCH);
}

static int make_dirs(int dir)
{
	static const char *const names[] = {"objects", "objects/info", "objects/pack",
	                                    "refs",    "refs/heads",   "marks"};

	for (size_t i = 0; i < SBX_ARRAY_SIZE(names); i++)
		if (mkdirat(dir, names[i], 0700) < 0)
			return -errno;
	return 0;
}

static int fill(const struct sbx_snapshot_context *context, int dir)
{
	const char *common = context->rec->common;
	_cleanup_free_ char *alternates = common ? sbx_format("%s/objects\n", common) : NULL;
	int r = make_dirs(dir);

	if (!r && common)
		r = alternates ? sbx_file_create(dir, "objects/info/alternates", alternates)
		               : -ENOMEM;
	if (!r)
		r = sbx_file_create(dir, "config",
		                    "[core]\n\trepositoryformatversion = 0\n\tbare = true\n");
	return r ? r : sbx_file_create(dir, "HEAD", "ref: " SBX_LOCAL_HISTORY_BRANCH "\n");
}

/* Who only looks may be here at the same time as who records: the first to be done has made it. */
static int make(const struct sbx_snapshot_context *context, int own)
{
	_cleanup_fd_ int dir = -1;
	char name[32];
	int r;

	snprintf(name, sizeof(name), "history.%d", (int)gettid());
	r = sbx_tree_remove(own, name, NULL);
	if (r)
		return r;
	dir = sbx_dir_make(own, name, 0700);
	r = dir < 0 ? dir : fill(context, dir);
	if (!r)
		r = sbx_dir_write_out(dir);
	if (!r && renameat(own, name, own, "history") < 0)
		r = errno == EEXIST || errno == ENOTEMPTY ? -EEXIST : -errno;
	if (r)
		sbx_tree_remove(own, name, NULL);
	return r == -EEXIST ? 0 : r;
}

int sbx_local_history_dir(const struct sbx_snapshot_context *context, struct sbx_error *err)
{
	_cleanup_fd_ int own = sbx_dir_make(context->b->state.git, context->rec->id, 0700);
	int r = own, dir = -1;

	if (own >= 0) {
		dir = sbx_dir_open(own, "history");
		r = dir == -ENOENT ? make(context, own) : dir;
		if (dir < 0 && r >= 0)
			r = dir = sbx_dir_open(own, "history");
	}
	return r < 0 ? sbx_fail(err, -r, "cannot write to the state directory: %s", strerror(-r))
	             : dir;
}

/* ---- repositories ---- */

static char *own_path(const struct sbx_snapshot_context *context, const char *name)
{
	return sbx_format("%s/git/%s/history%s", context->b->state.path, context->rec->id, name);
}

static int see_all(const struct sbx_snapshot_context *context, git_repository *repo)
{
	_cleanup_free_ char *path = own_path(context, "/objects");
	_cleanup_git_(odb) git_odb *odb = NULL;
	int r = path ? git_odb_open(&odb, path) : GIT_ERROR;

	if (!r)
		r = sbx_git_store_see(odb, context->rec->common);
	return r ? r : git_repository_set_odb(repo, odb);
}

/*
 * The settings stay what they are while REPO is open. libgit2 looks at the files of its settings
 * again for each value that it reads, and reads several for each file of a tree.
 */
static int freeze_config(git_repository *repo)
{
	git_config *config = NULL, *snapshot = NULL;
	int r = git_repository_config(&config, repo);

	if (!r)
		r = git_config_snapshot(&snapshot, config);
	if (!r)
		r = git_repository_set_config(repo, snapshot);
	git_config_free(snapshot);
	git_config_free(config);
	return r;
}

int sbx_local_history_open(const struct sbx_snapshot_context *context, bool all,
                           git_repository **ret, struct sbx_error *err)
{
	_cleanup_git_(repository) git_repository *repo = NULL;
	_cleanup_fd_ int dir = sbx_local_history_dir(context, err);
	_cleanup_free_ char *path = own_path(context, "");
	const char *common = context->rec->common;
	int r;

	if (dir < 0)
		return dir;
	if (!path)
		return sbx_no_memory(err);
	r = git_repository_open_bare(&repo, common ? common : path);
	if (!r)
		r = freeze_config(repo);
	if (!r && common && all)
		r = see_all(context, repo);
	if (r)
		return sbx_git_fail(err, r, "cannot open the repository %s",
		                    common ? common : path);
	*ret = sbx_steal_ptr(&repo);
	return 0;
}

bool sbx_local_history_is_apart(const struct sbx_snapshot_context *context, bool ignored)
{
	_cleanup_(sbx_strings_release) struct sbx_strings marked = {0};
	_cleanup_free_ char *branch = sbx_local_history_branch(context);

	if (!context->rec->common || ignored || context->rec->branch_created)
		return context->rec->common != NULL;
	/* What is not known is not shown. */
	return sbx_git_store_marked(context->rec->common, &marked) || !branch ||
	       sbx_git_store_mark_of(&marked, branch);
}

/* ---- small files of ids ---- */

int sbx_local_history_read_id(int dir, const char *name, git_oid *ret)
{
	_cleanup_free_ char *text = NULL;
	int r = sbx_file_read(dir, name, ID_FILE_MAX, &text);

	if (!r && git_oid_fromstrn(ret, text, strcspn(text, "\n")))
		r = -EINVAL;
	return r;
}

int sbx_local_history_write_id(int dir, const char *name, const git_oid *oid)
{
	_cleanup_free_ char *temp = sbx_format(".%s", name);
	char text[GIT_OID_HEXSZ + 2];

	git_oid_tostr(text, GIT_OID_HEXSZ + 1, oid);
	text[GIT_OID_HEXSZ] = '\n';
	text[GIT_OID_HEXSZ + 1] = '\0';
	return temp ? sbx_file_replace(dir, name, temp, text) : -ENOMEM;
}

/* ---- the list of snapshots ---- */

int sbx_local_history_lines(int dir, char **ret)
{
	int r = sbx_file_read(dir, "snapshots", LIST_MAX, ret);

	if (r != -ENOENT)
		return r;
	*ret = strdup("");
	return *ret ? 0 : -ENOMEM;
}

bool sbx_local_history_line(char **at, git_oid *oid, int64_t *ms)
{
	char *line = *at, *end = line + strcspn(line, "\n");

	if (!*line)
		return false;
	*at = end + (*end == '\n');
	*end = '\0';
	if (strlen(line) <= GIT_OID_HEXSZ || git_oid_fromstrn(oid, line, GIT_OID_HEXSZ))
		return sbx_local_history_line(at, oid, ms);
	*ms = strtoll(line + GIT_OID_HEXSZ, NULL, 10);
	return true;
}

/* Whether what is written to FD next begins a line. */
static bool is_at_line(int fd)
{
	const off_t end = lseek(fd, 0, SEEK_END);
	char last;

	return end <= 0 || (pread(fd, &last, 1, end - 1) == 1 && last == '\n');
}

/* A line that a crash has cut off is none, and harms no other. */
int sbx_local_history_add_line(int dir, const git_oid *oid, int64_t ms)
{
	_cleanup_fd_ int fd = openat(dir, "snapshots",
	                             O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
	_cleanup_free_ char *text = NULL;
	char hex[GIT_OID_HEXSZ + 1];
	int r;

	if (fd < 0)
		return -errno;
	text = sbx_format("%s%s %lld\n", is_at_line(fd) ? "" : "\n",
	                  git_oid_tostr(hex, sizeof(hex), oid), (long long)ms);
	r = text ? sbx_write_all(fd, text, strlen(text)) : -ENOMEM;
	return r ? r : sbx_git_durable_add(fd);
}

void sbx_local_history_drop_line(int dir, const git_oid *oid)
{
	_cleanup_free_ char *text = NULL;
	char hex[GIT_OID_HEXSZ + 1], *at;

	git_oid_tostr(hex, sizeof(hex), oid);
	if (sbx_local_history_lines(dir, &text) || !(at = strstr(text, hex)))
		return;
	memmove(at, at + strcspn(at, "\n") + 1, strlen(at + strcspn(at, "\n")));
	sbx_file_replace(dir, "snapshots", "snapshots.new", text);
}

/* ---- revisions ---- */

int sbx_local_history_tree_of(git_repository *repo, const git_oid *commit, git_oid *tree,
                              struct sbx_error *err)
{
	git_commit *object = NULL;
	int r = git_commit_lookup(&object, repo, commit);

	if (r)
		return sbx_git_fail(err, r, "a snapshot cannot be read");
	*tree = *git_commit_tree_id(object);
	git_commit_free(object);
	return 0;
}

/* ---- in the source ---- */

char *sbx_local_history_ref(const struct sbx_record *rec, const git_oid *oid)
{
	char hex[GIT_OID_HEXSZ + 1] = "";

	if (oid)
		git_oid_tostr(hex, sizeof(hex), oid);
	return sbx_format(SBX_GIT_SNAPSHOTS "%s/%s", rec->worktree, hex);
}

int sbx_local_history_make_ref(const struct sbx_snapshot_context *context, git_repository *repo,
                               const char *name, const git_oid *oid, const char *log,
                               const char *what, struct sbx_error *err)
{
	_cleanup_git_(reference) git_reference *ref = NULL;
	struct sbx_git_owner owner;
	int r;

	if (!name)
		return sbx_no_memory(err);
	owner = sbx_git_owner_begin(context->rec->common);
	r = git_reference_create(&ref, repo, name, oid, 1, log);
	sbx_git_owner_end(&owner);
	return r ? sbx_git_fail(err, r, "cannot keep %s", what) : 0;
}

int sbx_local_history_find_refs(git_repository *repo, const char *prefix, struct sbx_strings *ret)
{
	_cleanup_free_ char *glob = sbx_format("%s*", prefix);
	git_reference_iterator *it = NULL;
	const char *name;
	int r = glob ? git_reference_iterator_glob_new(&it, repo, glob) : GIT_ERROR;

	while (!r && (r = git_reference_next_name(&name, it)) == 0)
		r = sbx_strings_add(ret, name) ? GIT_ERROR : 0;
	git_reference_iterator_free(it);
	return r == GIT_ITEROVER ? 0 : r;
}

static int remove_refs(git_repository *repo, const char *prefix)
{
	_cleanup_(sbx_strings_release) struct sbx_strings names = {0};
	int r = sbx_local_history_find_refs(repo, prefix, &names);

	for (size_t i = 0; !r && i < names.n; i++) {
		r = git_reference_remove(repo, names.items[i]);
		r = r == GIT_ENOTFOUND ? 0 : r;
	}
	return r;
}

/* Which have been kept is written in the sandbox's own directory: without that there is nothing to
 * look for. */
int sbx_local_history_forget(const struct sbx_snapshot_context *context, struct sbx_error *err)
{
	const struct sbx_record *rec = context->rec;
	_cleanup_git_(repository) git_repository *repo = NULL;
	_cleanup_free_ char *prefix = rec->worktree ? sbx_local_history_ref(rec, NULL) : NULL;
	_cleanup_free_ char *marks =
	        rec->worktree ? sbx_format(SBX_GIT_MARKS "%s/", rec->worktree) : NULL;
	_cleanup_free_ char *path = own_path(context, "/snapshots");
	_cleanup_free_ char *marked = own_path(context, "/marks/restore");
	_cleanup_free_ char *marking = own_path(context, "/marks/restoring");
	struct sbx_git_owner owner;
	int r;

	if (!rec->common || !rec->worktree)
		return 0;
	if (!prefix || !path || !marks || !marked || !marking)
		return sbx_no_memory(err);
	if (access(path, F_OK) < 0 && access(marked, F_OK) < 0 && access(marking, F_OK) < 0)
		return 0;
	r = sbx_git_open(rec->common, &repo);
	if (r == GIT_ENOTFOUND)
		return 0;
	owner = sbx_git_owner_begin(rec->common);
	r = r ? r : remove_refs(repo, prefix);
	r = r ? r : remove_refs(repo, marks);
	sbx_git_owner_end(&owner);
	return r ? sbx_git_fail(err, r, "cannot let go of the snapshots of %s", rec->name) : 0;
}
