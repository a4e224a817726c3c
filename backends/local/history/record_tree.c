/* The inputs of a capture of a sandbox: its layers, its index, and the last capture. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/git/git_impl.h"
#include "backends/git/store.h"
#include "backends/local/history/aside.h"
#include "backends/local/history/git_state.h"
#include "backends/local/history/history_impl.h"
#include "backends/local/history/store.h"
#include "backends/local/overlay/base_index.h"
#include "backends/local/overlay/overlay.h"
#include "backends/local/overlay/paths.h"
#include "backends/support/beneath.h"
#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/spawner.h"

/* The inputs of a capture. */
struct sides {
	git_repository *repo;
	bool stored;
	int dir;   /* the history's */
	int upper; /* or -1 */
	struct sbx_local_history_index lower, known, seen;
	git_oid lower_tree;
	struct sbx_strings nested;
};

static void sides_release(struct sides *s)
{
	git_repository_free(s->repo);
	sbx_cleanup_fd(&s->dir);
	sbx_cleanup_fd(&s->upper);
	sbx_local_history_index_release(&s->lower);
	sbx_local_history_index_release(&s->known);
	sbx_local_history_index_release(&s->seen);
	sbx_strings_release(&s->nested);
}

/* ---- layers ---- */

static int open_upper(const struct sbx_snapshot_context *context)
{
	const int rooms[] = {context->b->state.trees, context->b->state.trash};
	int r = -ENOENT;

	if (context->disk >= 0)
		return sbx_beneath_open(context->disk, "upper", O_RDONLY | O_DIRECTORY);
	for (size_t i = 0; i < SBX_ARRAY_SIZE(rooms) && r == -ENOENT; i++) {
		_cleanup_fd_ int dir = sbx_dir_open(rooms[i], context->rec->id);

		r = dir < 0 ? dir : sbx_dir_open(dir, "upper");
	}
	return r;
}

static int open_base(const struct sbx_snapshot_context *context)
{
	_cleanup_free_ char *path =
	        sbx_format("%s/%s", sbx_bases_path(sbx_overlay_bases(context->b->overlay)),
	                   context->rec->layer);

	return path ? sbx_dir_open(AT_FDCWD, path) : -ENOMEM;
}

int sbx_local_history_lower_tree(const struct sbx_snapshot_context *context)
{
	_cleanup_fd_ int base = open_base(context);

	return base < 0 ? base : sbx_dir_open(base, "tree");
}

/* ---- what a sandbox began as ---- */

/* A directory of repositories has much that no snapshot records. */
static int list_left(int dir, const struct sbx_strings *paths)
{
	_cleanup_free_ char *text = NULL;
	size_t len = 0, at = 0;

	for (size_t i = 0; i < paths->n; i++)
		len += strlen(paths->items[i]) + 1;
	text = calloc(1, len + 1);
	if (!text)
		return -ENOMEM;
	for (size_t i = 0; i < paths->n; i++) {
		memcpy(text + at, paths->items[i], strlen(paths->items[i]));
		at += strlen(paths->items[i]) + 1;
	}
	return sbx_locked_replace(dir, SBX_LOCAL_HISTORY_LEFT, text, len, NULL);
}

static int keep_repos(const struct sbx_snapshot_context *context, const struct sbx_strings *paths,
                      const git_oid *commit, atomic_bool *cancelled, struct sbx_error *err)
{
	int r = paths->n ? sbx_repos_copy(context, paths, cancelled, err) : 0;

	if (!r && paths->n && (r = sbx_repos_name(context, commit)))
		sbx_fail(err, -r, "cannot write to the state directory: %s", strerror(-r));
	return r;
}

/* Everything in TREE, as the commit that a sandbox which is not of git began as. LIST: its index is
 * kept as that of what lies below. */
static int record_base(const struct sbx_snapshot_context *context, int tree, bool list,
                       atomic_bool *cancelled, struct sbx_error *err)
{
	_cleanup_git_(repository) git_repository *repo = NULL;
	_cleanup_fd_ int dir = sbx_local_history_dir(context, err);
	static const struct sbx_index none;
	struct sbx_captured captured;
	_cleanup_free_ void *data = NULL;
	struct sbx_capture_options options = {.root = tree,
	                                      .upper = -1,
	                                      .known = &none,
	                                      .owner = sbx_local_owner(context->b, context->rec),
	                                      .ignored = true,
	                                      .spare = true,
	                                      .cancelled = cancelled};
	git_oid commit;
	size_t len;
	int r = dir < 0 ? dir : sbx_local_history_open(context, false, &repo, err);

	if (r)
		return r;
	options.repo = repo;
	r = sbx_capture(&options, &captured, err);
	if (r)
		return r;
	r = sbx_local_history_commit(repo, &captured.tree, NULL, "as it was made", NULL, &commit,
	                             err);
	if (!r) {
		r = sbx_index_format(&captured.index, true, &data, &len);
		if (!r && list)
			r = sbx_locked_replace(dir, "lower", data, len, &captured.begun);
		if (!r)
			r = sbx_locked_replace(dir, "index", data, len, &captured.begun);
		if (!r)
			r = list_left(dir, &captured.left_out);
		if (r)
			sbx_fail(err, -r, "cannot write to the state directory: %s", strerror(-r));
	}
	/* A lower layer has them. */
	if (!r && !list)
		r = keep_repos(context, &captured.nested, &commit, cancelled, err);
	if (!r)
		r = sbx_local_history_move(context, SBX_LOCAL_HISTORY_BRANCH, NULL, &commit,
		                           "sandboxfs: created", err);
	if (!r && (r = sbx_local_history_write_id(dir, "base", &commit)))
		sbx_fail(err, -r, "cannot write to the state directory: %s", strerror(-r));
	sbx_captured_release(&captured);
	return r;
}

/* The tree of nothing: what a sandbox of the source `none` began as. */
static int record_nothing(const struct sbx_snapshot_context *context, struct sbx_error *err)
{
	_cleanup_git_(repository) git_repository *repo = NULL;
	_cleanup_git_(odb) git_odb *odb = NULL;
	_cleanup_fd_ int dir = sbx_local_history_dir(context, err);
	git_oid tree, commit;
	int r = dir < 0 ? dir : sbx_local_history_open(context, false, &repo, err);

	if (r)
		return r;
	if (git_repository_odb(&odb, repo) || git_odb_write(&tree, odb, "", 0, GIT_OBJECT_TREE))
		return sbx_git_fail(err, GIT_ERROR, "cannot write to the state directory");
	r = sbx_local_history_commit(repo, &tree, NULL, "as it was made", NULL, &commit, err);
	if (!r)
		r = sbx_local_history_move(context, SBX_LOCAL_HISTORY_BRANCH, NULL, &commit,
		                           "sandboxfs: created", err);
	if (!r && (r = sbx_local_history_write_id(dir, "base", &commit)))
		sbx_fail(err, -r, "cannot write to the state directory: %s", strerror(-r));
	return r;
}

static int make_base(const struct sbx_snapshot_context *context, atomic_bool *cancelled,
                     struct sbx_error *err)
{
	_cleanup_fd_ int tree = -1;

	if (strcmp(context->rec->kind, "none") == 0)
		return record_nothing(context, err);
	if (!context->rec->layer)
		return sbx_fail(err, ENOENT, "it is not known what the sandbox began as");
	tree = sbx_local_history_lower_tree(context);
	if (tree < 0)
		return sbx_fail(err, -tree, "cannot open the base: %s", strerror(-tree));
	return record_base(context, tree, true, cancelled, err);
}

int sbx_local_history_begin(const struct sbx_snapshot_context *context, atomic_bool *cancelled,
                            struct sbx_error *err)
{
	return record_base(context, context->root, false, cancelled, err);
}

/* Of a sandbox that is not of git: sees to it that there is what it began as. */
static int need_base(const struct sbx_snapshot_context *context, int dir, atomic_bool *cancelled,
                     struct sbx_error *err)
{
	git_oid oid;

	if (context->rec->common || sbx_local_history_read_id(dir, "base", &oid) == 0)
		return 0;
	return make_base(context, cancelled, err);
}

int sbx_local_history_base(const struct sbx_snapshot_context *context, git_oid *ret,
                           struct sbx_error *err)
{
	_cleanup_fd_ int dir = -1;
	int r;

	if (context->rec->common)
		return git_oid_fromstr(ret, context->rec->base) ? sbx_fail(err, EINVAL, "no base")
		                                                : 0;
	dir = sbx_local_history_dir(context, err);
	r = dir < 0 ? dir : need_base(context, dir, NULL, err);
	if (!r && (r = sbx_local_history_read_id(dir, "base", ret)))
		sbx_fail(err, -r, "it is not known what the sandbox began as");
	return r;
}

static int find_snapshot(int dir, const char *prefix, git_oid *ret, struct sbx_error *err)
{
	_cleanup_free_ char *text = NULL;
	char hex[GIT_OID_HEXSZ + 1], *at;
	int64_t ms;
	git_oid oid;
	bool found = false;
	int r = sbx_local_history_lines(dir, &text);

	if (r)
		return sbx_fail(err, -r, "cannot read the list of snapshots: %s", strerror(-r));
	for (at = text; sbx_local_history_line(&at, &oid, &ms);) {
		if (strncasecmp(git_oid_tostr(hex, sizeof(hex), &oid), prefix, strlen(prefix)) != 0)
			continue;
		if (found && !git_oid_equal(&oid, ret))
			return sbx_fail(err, EINVAL, "more than one snapshot begins with %s",
			                prefix);
		*ret = oid;
		found = true;
	}
	return found ? 0 : sbx_fail(err, ENOENT, "there is no snapshot %s", prefix);
}

static int find_mark(int dir, const char *name, git_oid *ret, struct sbx_error *err)
{
	_cleanup_fd_ int marks = sbx_dir_open(dir, "marks");
	int r = marks < 0 ? marks : sbx_local_history_read_id(marks, name, ret);

	if (r == -ENOENT && strcmp(name, "restore") == 0)
		return sbx_fail(err, ENOENT, "nothing was restored here, so nothing was before it");
	return r ? sbx_fail(err, -r, "there is no mark %s", name) : 0;
}

int sbx_local_history_resolve(const struct sbx_snapshot_context *context, git_repository *all,
                              const char *rev, struct sbx_local_history_rev *ret,
                              struct sbx_error *err)
{
	_cleanup_fd_ int dir = sbx_local_history_dir(context, err);
	int r;

	if (dir < 0)
		return dir;
	*ret = (struct sbx_local_history_rev){.mark = strncmp(rev, "mark:", 5) == 0};
	if (strcmp(rev, "base") == 0)
		r = sbx_local_history_base(context, &ret->commit, err);
	else if (ret->mark)
		r = find_mark(dir, rev + 5, &ret->commit, err);
	else
		r = find_snapshot(dir, rev, &ret->commit, err);
	return r ? r : sbx_local_history_tree_of(all, &ret->commit, &ret->tree, err);
}

/* ---- the sides ---- */

static int share(struct sbx_local_history_index *ret, const struct sbx_snapshot_context *context,
                 int base, struct sbx_error *err)
{
	int r = sbx_base_index_get(sbx_overlay_bases(context->b->overlay), base, &ret->shared, err);

	if (!r)
		ret->index = ret->shared->index;
	return r;
}

/* The host's side, which says what the base does until somebody changes it. */
static int read_known(const struct sbx_snapshot_context *context, struct sides *s,
                      struct sbx_error *err)
{
	_cleanup_fd_ int dir = sbx_local_history_index_dir(context, err);

	if (dir < 0)
		return dir;
	if (s->lower.shared)
		s->known.shared = sbx_base_index_same(s->lower.shared, dir, &s->known.at);
	if (!s->known.shared)
		return sbx_local_history_read_index(dir, "index", &s->known, err);
	s->known.index = s->known.shared->index;
	return 0;
}

static int read_lower(const struct sbx_snapshot_context *context, struct sides *s,
                      struct sbx_error *err)
{
	_cleanup_fd_ int base = context->rec->common ? open_base(context) : -1;
	git_oid commit;
	int r;

	s->upper = open_upper(context);
	if (s->upper < 0)
		return sbx_fail(err, -s->upper, "cannot open the upper layer: %s",
		                strerror(-s->upper));
	if (context->rec->common && base < 0)
		return sbx_fail(err, -base, "cannot open the base: %s", strerror(-base));
	r = base < 0 ? sbx_local_history_read_index(s->dir, "lower", &s->lower, err)
	             : share(&s->lower, context, base, err);
	if (!r)
		r = sbx_local_history_base(context, &commit, err);
	return r ? r : sbx_local_history_tree_of(s->repo, &commit, &s->lower_tree, err);
}

/* Where the host made a repository of a directory: X.at leads to its place. */
static int add_nested(const char *name, unsigned char type, void *data)
{
	const int *dir = ((void **)data)[0];
	struct sbx_strings *names = ((void **)data)[1];
	size_t n = strlen(name), suffix = strlen(SBX_NESTED_PATH_SUFFIX);
	char at[PATH_MAX], *slash;
	ssize_t len;

	(void)type;
	if (n <= suffix || strcmp(name + n - suffix, SBX_NESTED_PATH_SUFFIX) != 0)
		return 0;
	len = readlinkat(*dir, name, at, sizeof(at) - 1);
	if (len <= 0)
		return 0;
	at[len] = '\0';
	slash = strrchr(at, '/');
	if (!slash || strcmp(slash, "/.git") != 0)
		return 0;
	*slash = '\0';
	return sbx_strings_add(names, at);
}

static int read_nested(const struct sbx_snapshot_context *context, struct sides *s)
{
	_cleanup_fd_ int dir = sbx_dir_open(context->b->state.nested, context->rec->id);
	void *data[2] = {&dir, &s->nested};

	return dir < 0 ? 0 : sbx_dir_scan(dir, add_nested, data);
}

static int read_sides(const struct sbx_snapshot_context *context,
                      const struct sbx_local_history_options *options, struct sides *s,
                      struct sbx_error *err)
{
	int r;

	s->dir = sbx_local_history_dir(context, err);
	if (s->dir < 0)
		return s->dir;
	r = need_base(context, s->dir, options->cancelled, err);
	if (!r)
		r = sbx_local_history_open(context, !options->keep, &s->repo, err);
	if (!r && options->keep && sbx_local_history_is_apart(context, options->ignored)) {
		r = sbx_git_store_use(s->repo);
		s->stored = !r;
		if (r)
			r = sbx_git_fail(err, r, "the store of the source cannot be used");
	}
	if (!r && context->rec->layer)
		r = read_lower(context, s, err);
	if (!r)
		r = read_known(context, s, err);
	/* Only a cache. */
	if (!r && sbx_local_history_read_index(s->dir, "seen", &s->seen, NULL))
		sbx_local_history_index_release(&s->seen);
	if (!r && (r = read_nested(context, s)))
		sbx_fail(err, -r, "cannot read the state directory: %s", strerror(-r));
	return r;
}

void sbx_local_history_keep_seen(const struct sbx_snapshot_context *context,
                                 const struct sbx_captured *captured)
{
	_cleanup_fd_ int dir = sbx_local_history_dir(context, NULL);
	_cleanup_free_ void *data = NULL;
	size_t len;

	if (dir < 0 ||
	    (!captured->found.n && faccessat(dir, "seen", F_OK, AT_SYMLINK_NOFOLLOW) < 0))
		return;
	if (sbx_index_format(&captured->found, false, &data, &len) == 0)
		sbx_locked_replace_soon(dir, "seen", data, len, &captured->begun);
}

int sbx_local_history_capture(const struct sbx_snapshot_context *context,
                              const struct sbx_local_history_options *options,
                              struct sbx_captured *ret, struct sbx_error *err)
{
	_cleanup_(sides_release) struct sides s = {.dir = -1, .upper = -1};
	struct sbx_spawner *spawner = context->b->host->spawner;
	struct sbx_capture_options how;
	int r = read_sides(context, options, &s, err);

	if (r)
		return r;
	how = (struct sbx_capture_options){
	        .repo = s.repo,
	        .common = options->keep ? context->rec->common : NULL,
	        .root = context->root,
	        .upper = s.upper,
	        .lower = s.upper < 0 ? NULL : &s.lower.index,
	        .lower_tree = s.upper < 0 ? NULL : &s.lower_tree,
	        .known = &s.known.index,
	        .known_at = s.known.at,
	        .believe = s.upper < 0,
	        .seen = &s.seen.index,
	        .seen_at = s.seen.at,
	        .nested = &s.nested,
	        .owner = sbx_local_owner(context->b, context->rec),
	        .ignored = options->ignored,
	        .busy = spawner && sbx_spawner_runs(spawner, context->rec->id),
	        .exact = options->exact,
	        .cancelled = options->cancelled,
	};
	r = sbx_capture(&how, ret, err);
	if (r)
		return r;
	if (!options->awaited)
		sbx_local_history_keep_seen(context, ret);
	if (options->known) {
		*options->known = s.known;
		s.known = (struct sbx_local_history_index){0};
	}
	if (options->repo)
		*options->repo = (struct sbx_local_history_repo){sbx_steal_ptr(&s.repo), s.stored};
	return 0;
}
