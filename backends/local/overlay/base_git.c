/*
 * The key of the base that a commit has. All that influences a checkout beside the tree goes into
 * it: the settings and attribute files that decide on line ends and identifiers. Filter drivers
 * are programs and are never run.
 */
#include "backends/local/overlay/base_git.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/git/git_impl.h"
#include "backends/local/overlay/checkout.h"
#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"

#define ATTRIBUTES_MAX ((size_t)1 << 20)

void sbx_base_commit_free(struct sbx_base_recipe *recipe)
{
	struct sbx_base_commit *c = (struct sbx_base_commit *)recipe;

	if (!c)
		return;
	free(c->source);
	free(c);
}

int sbx_base_commit_resolve(const char *source, const char *base, char ret[65])
{
	_cleanup_git_(repository) git_repository *repo = NULL;
	_cleanup_git_(object) git_object *found = NULL;
	_cleanup_git_(object) git_object *commit = NULL;

	if (sbx_git_open(source, &repo) < 0 ||
	    git_revparse_single(&found, repo, base ? base : "HEAD") < 0 ||
	    git_object_peel(&commit, found, GIT_OBJECT_COMMIT) < 0)
		return -ENOENT;
	git_oid_tostr(ret, 65, git_object_id(commit));
	return 0;
}

/* The value of KEY as a word of the base's key. */
static const char *setting(git_config *config, const char *key)
{
	const char *value;

	return git_config_get_string(&value, config, key) == 0 ? value : "";
}

static char *read_attributes(const char *path)
{
	_cleanup_free_ char *text = NULL;

	if (path && *path && sbx_file_read(AT_FDCWD, path, ATTRIBUTES_MAX, &text) == 0)
		return sbx_steal_ptr(&text);
	return strdup("");
}

static char *user_attributes(git_config *config)
{
	git_buf path = {0};
	char *text;

	if (git_config_get_path(&path, config, "core.attributesfile") < 0) {
		const char *xdg = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
		_cleanup_free_ char *found =
		        xdg && *xdg ? sbx_format("%s/git/attributes", xdg)
		                    : sbx_format("%s/.config/git/attributes", home ? home : "");

		return read_attributes(found);
	}
	text = read_attributes(path.ptr);
	git_buf_dispose(&path);
	return text;
}

static int make_key(struct sbx_base_commit *c, const char *what)
{
	git_oid oid;
	char hex[65];

	if (git_odb_hash(&oid, what, strlen(what), GIT_OBJECT_BLOB) < 0)
		return -ENOMEM;
	git_oid_tostr(hex, sizeof(hex), &oid);
	snprintf(c->key, sizeof(c->key), "git-%.40s", hex);
	return 0;
}

static int describe(struct sbx_base_commit *c, git_repository *repo)
{
	git_config *config = NULL, *snapshot = NULL;
	_cleanup_free_ char *info = NULL, *user = NULL, *what = NULL, *path = NULL;
	int r = git_repository_config(&config, repo);

	if (!r)
		r = git_config_snapshot(&snapshot, config);
	if (r) {
		git_config_free(config);
		return -EINVAL;
	}
	path = sbx_format("%sinfo/attributes", git_repository_commondir(repo));
	info = read_attributes(path);
	user = user_attributes(snapshot);
	if (info && user) {
		const char *crlf = setting(snapshot, "core.autocrlf"),
		           *eol = setting(snapshot, "core.eol");

		what = sbx_format("3\n%s\n%u:%u\n%s\n%s\n%s\n%s\n", c->tree, c->owner.uid,
		                  c->owner.gid, crlf, eol, info, user);
		c->filtered = (*crlf && strcmp(crlf, "false") != 0) || *info || *user;
	}
	git_config_free(snapshot);
	git_config_free(config);
	if (!what)
		return -ENOMEM;
	return make_key(c, what);
}

static int find_tree(git_repository *repo, const char *commit, git_tree **tree)
{
	_cleanup_git_(object) git_object *object = NULL;
	git_oid oid;
	int r = git_oid_fromstr(&oid, commit);

	if (!r)
		r = git_object_lookup(&object, repo, &oid, GIT_OBJECT_COMMIT);
	return r ? r : git_commit_tree(tree, (git_commit *)object);
}

static int fill(const struct sbx_base_recipe *recipe, int dir, int tree,
                struct sbx_base_facts *facts, atomic_bool *cancelled, struct sbx_error *err)
{
	const struct sbx_base_commit *c = recipe->data;
	_cleanup_git_(repository) git_repository *repo = NULL;
	_cleanup_git_(tree) git_tree *root = NULL;
	struct sbx_fill f = {.commit = c,
	                     .dir = dir,
	                     .tree = tree,
	                     .filtered = c->filtered,
	                     .cancelled = cancelled};
	int r = sbx_git_open(c->source, &repo);

	if (!r)
		r = find_tree(repo, c->commit, &root);
	if (r)
		return sbx_git_fail(err, r, "cannot read commit %s", c->commit);
	return sbx_base_fill(&f, repo, root, facts, err);
}

static int check(const struct sbx_base_recipe *recipe, int dir, atomic_bool *cancelled)
{
	(void)recipe;
	return sbx_base_verify(dir, cancelled);
}

int sbx_base_commit_new(const char *source, git_repository *repo, const char *commit,
                        const struct sbx_identity *owner, struct sbx_base_commit **ret,
                        struct sbx_error *err)
{
	_cleanup_git_(repository) git_repository *own = NULL;
	_cleanup_git_(tree) git_tree *tree = NULL;
	struct sbx_base_commit *c = calloc(1, sizeof(*c));
	int r;

	if (!c || !(c->source = strdup(source))) {
		free(c);
		return sbx_no_memory(err);
	}
	snprintf(c->commit, sizeof(c->commit), "%s", commit);
	c->owner = *owner;
	r = repo ? 0 : sbx_git_open(source, &own);
	if (!r)
		r = find_tree(repo ? repo : own, commit, &tree);
	if (r) {
		r = sbx_git_fail(err, r, "cannot read commit %s", commit);
	} else {
		git_oid_tostr(c->tree, sizeof(c->tree), git_tree_id(tree));
		r = describe(c, repo ? repo : own);
		if (r)
			sbx_fail(err, -r, "cannot read the settings of %s: %s", source,
			         strerror(-r));
	}
	if (r) {
		sbx_base_commit_free(&c->recipe);
		return r;
	}
	c->recipe = (struct sbx_base_recipe){.key = c->key,
	                                     .fill = fill,
	                                     .check = check,
	                                     .data = c,
	                                     .uid = owner->uid,
	                                     .gid = owner->gid};
	*ret = c;
	return 0;
}
