/* Repositories that libgit2 has no use for, or that lack what is wanted of them: what their owner
 * can do about it. */
#include "backends/git/repository.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "backends/git/durable.h"
#include "backends/git/git_impl.h"
#include "backends/local/state/state.h"
#include "backends/support/fsutil.h"

#define OF_SHA256                                                                                  \
	"its objects are named by SHA-256, which is not supported; convert it to SHA-1 or give a " \
	"clone that is"

/* By what libgit2 says. */
static const struct {
	const char *said, *sentence;
} advice[] = {
        {"extensions.objectformat", OF_SHA256},
        {"unknown object format", OF_SHA256}, /* since 1.7 */
        {"extensions.refstorage", "its refs are not kept in files, which is not supported; convert "
                                  "them: git refs migrate --ref-format=files"},
};

/* Fills ERR: SOURCE could not be opened, for libgit2's code CODE; where it can be told, with what
 * to do about it. */
static int refuse(const char *source, int code, struct sbx_error *err)
{
	const git_error *last = sbx_git_said();
	const char *said = last ? last->message : "";

	for (size_t i = 0; i < SBX_ARRAY_SIZE(advice); i++)
		if (strstr(said, advice[i].said))
			return sbx_fail(err, EOPNOTSUPP, "the repository %s: %s", source,
			                advice[i].sentence);
	return sbx_git_fail(err, code, "cannot open the repository %s", source);
}

static bool is_promisor(const char *name)
{
	size_t len = strlen(name), n = strlen(".promisor");

	if (strcmp(name, "extensions.partialclone") == 0)
		return true;
	return strncmp(name, "remote.", 7) == 0 && len > n &&
	       strcmp(name + len - n, ".promisor") == 0;
}

/* Some remote has what is not here, and git fetches it at need. libgit2's own search by a pattern
 * leaks memory. */
static bool is_partial(const char *source)
{
	_cleanup_git_(repository) git_repository *repo = NULL;
	git_config *config = NULL;
	git_config_iterator *it = NULL;
	git_config_entry *entry;
	bool partial = false;

	if (sbx_git_open(source, &repo) == 0 && git_repository_config(&config, repo) == 0 &&
	    git_config_iterator_new(&it, config) == 0)
		while (!partial && git_config_next(&entry, it) == 0)
			partial = is_promisor(entry->name);
	git_config_iterator_free(it);
	git_config_free(config);
	return partial;
}

int sbx_git_explain_missing(const char *source, const char *commit, int r, struct sbx_error *err)
{
	if ((r != -ENOENT && r != -EBADMSG && r != -EIO) || !is_partial(source))
		return r;
	return sbx_fail(
	        err, ENOENT,
	        "the source is a partial clone and lacks objects of %.12s; fetch them by "
	        "checking it out there once (git checkout %.12s), or clone without --filter",
	        commit, commit);
}

#define HEAD_MAX     4096
#define BRANCHES_MAX 9999 /* of one name */

int sbx_git_open(const char *path, git_repository **ret)
{
	return git_repository_open_ext(ret, path, GIT_REPOSITORY_OPEN_NO_SEARCH, NULL);
}

static int pass_by(const char *root, const git_tree_entry *entry, void *data)
{
	(void)root;
	(void)entry;
	(void)data;
	return 0;
}

int sbx_git_read_tree(git_index *index, const git_tree *tree)
{
	int r = git_tree_walk(tree, GIT_TREEWALK_PRE, pass_by, NULL);

	return r ? r : git_index_read_tree(index, tree);
}

/* libgit2 1.5 answers "config value 'safe.directory' was not found" where it means GIT_EOWNER. */
static bool is_owner_error(int code)
{
	const git_error *last = sbx_git_said();

	return code == GIT_EOWNER ||
	       (code == GIT_ENOTFOUND && last && last->klass == GIT_ERROR_CONFIG);
}

static int open_failed(const char *source, int code, struct sbx_error *err)
{
	if (is_owner_error(code))
		return sbx_fail(
		        err, EACCES,
		        "the repository %s belongs to another user (to trust it: git config "
		        "--global --add safe.directory %s)",
		        source, source);
	return refuse(source, code, err);
}

static bool has_dot_git(const char *source)
{
	_cleanup_free_ char *path = sbx_format("%s/.git", source);

	return path && faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static int resolve(git_repository *repo, const char *spec, git_oid *ret, struct sbx_error *err)
{
	_cleanup_git_(object) git_object *found = NULL;
	_cleanup_git_(object) git_object *commit = NULL;
	int r = git_revparse_single(&found, repo, spec);

	if (r == GIT_ENOTFOUND && !sbx_git_lacks_descriptors())
		return sbx_fail(err, ENOENT, "base %s does not exist", spec);
	if (r)
		return sbx_git_fail(err, r, "base %s", spec);
	r = git_object_peel(&commit, found, GIT_OBJECT_COMMIT);
	if (r)
		return sbx_git_fail(err, r, "base %s is not a commit", spec);
	*ret = *git_object_id(commit);
	return 0;
}

static int check_source(git_repository *repo, const char *source, const char *base,
                        struct sbx_error *err)
{
	git_oid oid;

	if (git_repository_is_bare(repo))
		return sbx_fail(err, EINVAL,
		                "%s is a bare repository; give one with a working tree", source);
	if (base)
		return resolve(repo, base, &oid, err);
	if (git_repository_head_unborn(repo) == 1)
		return sbx_fail(
		        err, EINVAL,
		        "the repository %s is empty; make a first commit or give base=", source);
	return 0;
}

int sbx_git_probe(const char *source, const char *base, char **common, struct sbx_error *err)
{
	_cleanup_git_(repository) git_repository *repo = NULL;
	int r = sbx_git_open(source, &repo);

	if (r == GIT_ENOTFOUND && !is_owner_error(r) && !sbx_git_lacks_descriptors())
		return has_dot_git(source)
		               ? sbx_fail(err, EINVAL, "%s/.git is not a usable repository", source)
		               : 0;
	if (r)
		return open_failed(source, r, err);
	r = check_source(repo, source, base, err);
	if (r)
		return r;
	sbx_git_durable_as(repo);
	*common = strdup(git_repository_commondir(repo));
	if (!*common)
		return -ENOMEM;
	if (strchr(*common, '\n')) {
		free(*common);
		*common = NULL;
		return sbx_fail(err, EINVAL,
		                "the path %s has a line break in it, which git's files cannot "
		                "tell; move the repository",
		                source);
	}
	/* libgit2 ends it with a slash. */
	if (strlen(*common) > 1)
		(*common)[strlen(*common) - 1] = '\0';
	return 1;
}

bool sbx_git_surrounded(const char *source, char **top)
{
	git_buf path = {0};

	if (git_repository_discover(&path, source, 0, NULL) < 0)
		return false;
	*top = strdup(path.ptr);
	git_buf_dispose(&path);
	return *top != NULL;
}

int sbx_git_lock(const char *common)
{
	_cleanup_fd_ int fd = open(common, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	/* Some network file systems cannot lock a directory; then git's own lock files must do. */
	while (flock(fd, LOCK_EX) < 0 && errno == EINTR)
		;
	return sbx_steal_fd(&fd);
}

/* Whether the HEAD in DIRFD is on BRANCH. */
static bool head_is_on(int dirfd, const char *branch)
{
	_cleanup_free_ char *head = NULL;
	const char *prefix = "ref: refs/heads/";

	if (sbx_file_read(dirfd, "HEAD", HEAD_MAX, &head))
		return false;
	head[strcspn(head, "\n")] = '\0';
	return strncmp(head, prefix, strlen(prefix)) == 0 &&
	       strcmp(head + strlen(prefix), branch) == 0;
}

struct search {
	int worktrees;
	const char *branch;
	char *where;
};

static int look_at_entry(const char *name, unsigned char type, void *data)
{
	struct search *s = data;
	_cleanup_fd_ int dir = sbx_dir_open(s->worktrees, name);
	_cleanup_free_ char *gitdir = NULL, *locked = NULL;
	char *end;

	(void)type;
	if (dir < 0 || !head_is_on(dir, s->branch))
		return 0;
	if (sbx_file_read(dir, "gitdir", HEAD_MAX, &gitdir)) {
		s->where = sbx_format("worktree %s", name);
		return 1;
	}
	end = strstr(gitdir, "/.git");
	if (end)
		*end = '\0';
	/* Only of ours the path is known not to lead through a mount of ours. */
	if (sbx_file_read(dir, "locked", HEAD_MAX, &locked) == 0 &&
	    strcmp(locked, SBX_GIT_LOCKED) == 0)
		s->where = sbx_state_whose(gitdir);
	if (!s->where)
		s->where = strdup(gitdir);
	return 1;
}

int sbx_git_checked_out(const char *common, const char *branch, char **where)
{
	_cleanup_fd_ int dir = open(common, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_fd_ int worktrees = -1;
	struct search s = {.branch = branch};
	int r;

	if (dir < 0)
		return -errno;
	if (head_is_on(dir, branch)) {
		*where = strdup("the repository itself");
		return *where ? 0 : -ENOMEM;
	}
	worktrees = sbx_dir_open(dir, "worktrees");
	if (worktrees == -ENOENT)
		return 0;
	if (worktrees < 0)
		return worktrees;
	s.worktrees = worktrees;
	r = sbx_dir_scan(worktrees, look_at_entry, &s);
	if (r < 0)
		return r;
	*where = s.where;
	return r > 0 && !s.where ? -ENOMEM : 0;
}

static int check_free(const char *common, const char *branch, struct sbx_error *err)
{
	_cleanup_free_ char *where = NULL;
	int r = sbx_git_checked_out(common, branch, &where);

	if (r)
		return sbx_fail(err, -r, "cannot read the worktrees of %s: %s", common,
		                strerror(-r));
	if (where)
		return sbx_fail(err, EBUSY, "branch %s is checked out in %s", branch, where);
	return 0;
}

/* One branch that a sandbox may have, while it is looked at. */
struct candidate {
	git_repository *repo;
	const struct sbx_git_plan_options *options;
	const char *common;
	const char *branch;
	git_oid oid; /* where it stands; of a new one, where it is to begin */
	bool exists;
};

/* The commit that a new branch begins at. */
static int find_base(struct candidate *c, git_oid *ret, struct sbx_error *err)
{
	const char *base = c->options->base ? c->options->base : c->options->fallback;

	if (!base && git_repository_head_unborn(c->repo) == 1)
		return sbx_fail(err, EINVAL, "the repository %s is empty", c->options->source);
	return resolve(c->repo, base ? base : "HEAD", ret, err);
}

static int find_branch(struct candidate *c, struct sbx_error *err)
{
	_cleanup_git_(reference) git_reference *ref = NULL;
	_cleanup_git_(object) git_object *commit = NULL;
	int r = git_branch_lookup(&ref, c->repo, c->branch, GIT_BRANCH_LOCAL);

	c->exists = r == 0;
	if (r == GIT_ENOTFOUND)
		return 0;
	if (!r)
		r = git_reference_peel(&commit, ref, GIT_OBJECT_COMMIT);
	if (r)
		return sbx_git_fail(err, r, "branch %s", c->branch);
	c->oid = *git_object_id(commit);
	return 0;
}

/* The branch is there: it is continued from where it stands. */
static int check_stands(struct candidate *c, struct sbx_error *err)
{
	git_oid asked;
	int r;

	if (!c->options->base)
		return 0;
	r = resolve(c->repo, c->options->base, &asked, err);
	if (r || git_oid_equal(&asked, &c->oid))
		return r;
	if (c->options->fixed)
		return sbx_fail(err, EINVAL,
		                "branch %s exists and stands elsewhere than what this begins as; "
		                "name another branch",
		                c->branch);
	return sbx_fail(err, EINVAL,
	                "branch %s exists and stands elsewhere than base %s; omit the base to "
	                "continue it or name another branch",
	                c->branch, c->options->base);
}

/* Whether a branch BRANCH/... leaves no room for BRANCH. */
static int has_below(struct candidate *c, bool *ret)
{
	_cleanup_git_(iterator) git_reference_iterator *it = NULL;
	_cleanup_free_ char *pattern = sbx_format("refs/heads/%s/*", c->branch);
	const char *name;
	int r = pattern ? git_reference_iterator_glob_new(&it, c->repo, pattern) : GIT_ERROR;

	if (!r)
		r = git_reference_next_name(&name, it);
	*ret = r == 0;
	return r == GIT_ITEROVER ? 0 : r;
}

/* 0 it is to be had, 1 another is to be looked at. */
static int try_new(struct candidate *c, struct sbx_error *err)
{
	_cleanup_free_ char *where = NULL;
	bool below = false;
	git_oid base;
	int r = find_base(c, &base, err);

	if (r)
		return r;
	if (c->exists && !git_oid_equal(&base, &c->oid))
		return 1;
	r = sbx_git_checked_out(c->common, c->branch, &where);
	if (r)
		return sbx_fail(err, -r, "cannot read the worktrees of %s: %s", c->common,
		                strerror(-r));
	if (where)
		return 1;
	r = c->exists ? 0 : has_below(c, &below);
	if (r)
		return sbx_git_fail(err, r, "the branches of %s cannot be read", c->common);
	c->oid = base;
	return below;
}

static int try_same(struct candidate *c, struct sbx_error *err)
{
	int r;

	if (c->exists && c->options->exists == SBX_GIT_REFUSE)
		return sbx_fail(err, EEXIST,
		                "branch %s is there already; branch_exists=continue goes on with "
		                "it, branch_exists=new takes another",
		                c->branch);
	r = check_free(c->common, c->branch, err);
	if (r)
		return r;
	return c->exists ? check_stands(c, err) : find_base(c, &c->oid, err);
}

bool sbx_git_branch_ok(const char *branch)
{
	int valid = 0;

	return git_branch_name_is_valid(&valid, branch) == 0 && valid;
}

static int try_branch(struct candidate *c, struct sbx_error *err)
{
	int r;

	if (!sbx_git_branch_ok(c->branch))
		return sbx_fail(err, EINVAL, "%s is not a valid branch name", c->branch);
	r = find_branch(c, err);
	if (r)
		return r;
	return c->options->exists == SBX_GIT_NEW ? try_new(c, err) : try_same(c, err);
}

static int fill_plan(const struct candidate *c, bool another, struct sbx_git_plan *ret)
{
	char hex[GIT_OID_HEXSZ + 1];
	struct sbx_git_plan plan = {
	        .branch = strdup(c->branch),
	        .base = strdup(git_oid_tostr(hex, sizeof(hex), &c->oid)),
	        .exists = c->exists,
	        .told = another || (c->exists && c->options->exists == SBX_GIT_CONTINUE),
	};

	if (plan.branch && plan.base) {
		*ret = plan;
		return 0;
	}
	free(plan.branch);
	free(plan.base);
	return -ENOMEM;
}

int sbx_git_plan(const struct sbx_git_plan_options *options, const char *common,
                 struct sbx_git_plan *ret, struct sbx_error *err)
{
	_cleanup_git_(repository) git_repository *repo = NULL;
	int r = sbx_git_open(options->source, &repo);

	if (r)
		return open_failed(options->source, r, err);
	for (unsigned n = 1; n <= BRANCHES_MAX; n++) {
		_cleanup_free_ char *branch =
		        n == 1 ? strdup(options->branch) : sbx_format("%s-%u", options->branch, n);
		struct candidate c = {
		        .repo = repo, .options = options, .common = common, .branch = branch};

		r = branch ? try_branch(&c, err) : -ENOMEM;
		if (r == 0)
			r = fill_plan(&c, n > 1, ret);
		if (r == 0 && options->opened && !git_repository_is_worktree(repo))
			*options->opened = sbx_steal_ptr(&repo);
		if (r == 0)
			return 0;
		if (r < 0)
			return r;
	}
	return sbx_fail(err, EEXIST, "branch %s and all up to %s-%d are there already",
	                options->branch, options->branch, BRANCHES_MAX);
}
