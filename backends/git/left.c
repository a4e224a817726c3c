/*
 * A commit without files whose parents are what is left, and whose message says where each stood.
 * Of many there is a chain of such commits.
 */
#include "backends/git/left.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/git/git_impl.h"
#include "backends/git/import_objects.h"
#include "backends/git/store.h"
#include "backends/git/store_walk.h"
#include "backends/support/beneath.h"
#include "backends/support/fsutil.h"

SBX_GIT_CLEANUP(packbuilder, git_packbuilder, git_packbuilder_free)

#define LOG_MAX   ((size_t)64 * 1024 * 1024)
#define LOGS_MOST 4096
#define PARENTS   100 /* of one commit */

SBX_GIT_CLEANUP(signature, git_signature, git_signature_free)

static int is_object(const char *name, unsigned char type, void *data)
{
	(void)type;
	(void)data;
	return strcmp(name, "info") != 0 && strcmp(name, "pack") != 0;
}

static int is_file(const char *name, unsigned char type, void *data)
{
	(void)name;
	(void)data;
	return type == DT_REG;
}

bool sbx_git_left_any(int repo)
{
	_cleanup_fd_ int objects = sbx_beneath_open(repo, "objects", O_RDONLY | O_DIRECTORY);
	_cleanup_fd_ int packs = sbx_beneath_open(repo, "objects/pack", O_RDONLY | O_DIRECTORY);

	return (objects >= 0 && sbx_dir_scan(objects, is_object, NULL) > 0) ||
	       (packs >= 0 && sbx_dir_scan(packs, is_file, NULL) > 0);
}

/* ---- what is named ---- */

struct naming {
	int repo;
	const char *path;
	struct sbx_strings dirs;
	size_t seen;
	struct sbx_refs *refs;
};

static int add(struct sbx_refs *refs, const char *where, const git_oid *oid)
{
	return git_oid_is_zero(oid) ? 0 : sbx_refs_add(refs, where, oid);
}

/* Lines follow each other: what one begins with the one before it ended with. */
static int add_log(struct naming *n, const char *path)
{
	_cleanup_free_ char *text = NULL;
	struct sbx_reflog line;
	git_oid last = {0};
	const char *at;
	size_t len;
	int r = sbx_beneath_read(n->repo, path, LOG_MAX, &text, &len, NULL);

	if (r)
		return r == -EFBIG ? r : 0;
	at = text;
	while (!r && sbx_reflog_next(&at, &line)) {
		if (!git_oid_equal(&line.old, &last))
			r = add(n->refs, path, &line.old);
		if (!r)
			r = add(n->refs, path, &line.new);
		last = line.new;
	}
	return r;
}

static int find_log(const char *name, unsigned char type, void *data)
{
	struct naming *n = data;
	_cleanup_free_ char *path = sbx_format("%s/%s", n->path, name);

	if (!path)
		return -ENOMEM;
	if (++n->seen > LOGS_MOST)
		return -E2BIG;
	if (type == DT_DIR)
		return sbx_strings_add(&n->dirs, path);
	return type == DT_REG ? add_log(n, path) : 0;
}

static int add_logs(int repo, struct sbx_refs *refs)
{
	struct naming n = {.repo = repo, .refs = refs};
	int r = sbx_strings_add(&n.dirs, "logs");
	char *path;

	while (!r && (path = sbx_strings_take(&n.dirs))) {
		_cleanup_fd_ int fd = sbx_beneath_open(repo, path, O_RDONLY | O_DIRECTORY);

		n.path = path;
		r = fd < 0 ? 0 : sbx_dir_scan(fd, find_log, &n);
		free(path);
	}
	sbx_strings_release(&n.dirs);
	return r;
}

static int by_oid(const void *a, const void *b)
{
	return git_oid_cmp(&((const struct sbx_ref *)a)->oid, &((const struct sbx_ref *)b)->oid);
}

/* Each commit once. */
static void apply(struct sbx_refs *refs)
{
	size_t kept = 0;

	if (refs->n)
		qsort(refs->at, refs->n, sizeof(*refs->at), by_oid);
	for (size_t i = 0; i < refs->n; i++)
		if (kept && git_oid_equal(&refs->at[kept - 1].oid, &refs->at[i].oid))
			free(refs->at[i].name);
		else
			refs->at[kept++] = refs->at[i];
	refs->n = kept;
}

static int name_all(int repo, struct sbx_refs *refs)
{
	_cleanup_free_ char *head = NULL;
	git_oid oid;
	size_t len;
	int r = sbx_refs_of_private(repo, refs);

	if (!r && sbx_beneath_read(repo, "HEAD", GIT_OID_HEXSZ + 2, &head, &len, NULL) == 0 &&
	    len >= GIT_OID_HEXSZ && git_oid_fromstrn(&oid, head, GIT_OID_HEXSZ) == 0)
		r = add(refs, "HEAD", &oid);
	if (!r)
		r = add_logs(repo, refs);
	apply(refs);
	return r;
}

static int name_matching(git_repository *source, const char *glob, struct sbx_refs *refs)
{
	_cleanup_git_(iterator) git_reference_iterator *it = NULL;
	int r = git_reference_iterator_glob_new(&it, source, glob);

	while (!r) {
		_cleanup_git_(reference) git_reference *ref = NULL;

		r = git_reference_next(&ref, it);
		if (!r && git_reference_target(ref))
			r = add(refs, "snapshot", git_reference_target(ref)) ? GIT_ERROR : 0;
	}
	return r == GIT_ITEROVER ? 0 : r;
}

/*
 * Adds the snapshots. A restore or a reset takes commits off the branch, which are in no reflog
 * where no command has run. The refs that keep them, as a snapshot or for a mark, go with the
 * sandbox.
 */
static int name_snapshots(git_repository *source, const char *worktree, struct sbx_refs *refs)
{
	_cleanup_free_ char *snapshots = sbx_format(SBX_GIT_SNAPSHOTS "%s/*", worktree);
	_cleanup_free_ char *marks = sbx_format(SBX_GIT_MARKS "%s/*", worktree);
	int r = snapshots && marks ? name_matching(source, snapshots, refs) : GIT_ERROR;

	if (!r)
		r = name_matching(source, marks, refs);
	apply(refs);
	return r;
}

/* ---- bringing ---- */

/* Objects of the sandbox's that the daemon has brought over need not be read again. */
static int trust(git_repository *source, const struct sbx_git_left *of, struct sbx_git_taken *taken)
{
	static const char *const kinds[] = {"heads", "stash", "detached"};
	_cleanup_(sbx_git_tips_release) struct sbx_git_tips tips = {0};
	_cleanup_free_ char *branch = of->branch ? sbx_format("refs/heads/%s", of->branch) : NULL;
	struct sbx_refs refs = {0};
	git_oid oid;
	int r = 0;

	if (branch && git_reference_name_to_id(&oid, source, branch) == 0)
		r = sbx_git_tips_add(&tips, &oid);
	for (size_t i = 0; i < SBX_ARRAY_SIZE(kinds) && of->worktree && !r; i++) {
		_cleanup_free_ char *glob =
		        sbx_format("refs/sandboxfs/%s/%s/*", kinds[i], of->worktree);

		r = glob ? name_matching(source, glob, &refs) : -ENOMEM;
	}
	for (size_t i = 0; i < refs.n && !r; i++)
		r = sbx_git_tips_add(&tips, &refs.at[i].oid);
	sbx_refs_release(&refs);
	return r || !tips.n ? r : sbx_git_store_trust(source, &tips, taken);
}

static void drop(struct sbx_refs *refs, size_t i)
{
	free(refs->at[i].name);
	refs->at[i].name = NULL;
}

static void squeeze(struct sbx_refs *refs)
{
	size_t kept = 0;

	for (size_t i = 0; i < refs->n; i++)
		if (refs->at[i].name)
			refs->at[kept++] = refs->at[i];
	refs->n = kept;
}

/* A reflog may name what is not there any more. */
static int bring_one(git_repository *target, struct sbx_git_reader *reader, const git_oid *oid,
                     struct sbx_git_taken *taken, bool *lost, struct sbx_error *err)
{
	struct sbx_error why = SBX_ERROR_INIT;
	int r = sbx_git_export(target, reader, oid, GIT_OBJECT_COMMIT, taken, &why);

	if (r == -EINVAL || r == -E2BIG || r == -EFBIG)
		*lost = true;
	if (r == -ENOENT || r == -EINVAL || r == -E2BIG || r == -EFBIG)
		return 0;
	return r ? sbx_fail(err, why.code, "%s", why.text) : 1;
}

static int bring(git_repository *target, git_repository *source, const struct sbx_git_left *of,
                 struct sbx_refs *refs, bool *lost, struct sbx_error *err)
{
	_cleanup_fd_ int objects = sbx_beneath_open(of->repo, "objects", O_RDONLY | O_DIRECTORY);
	struct sbx_git_reader *reader = NULL;
	struct sbx_git_taken taken = {.most = sbx_git_bounds.taken};
	int r = objects < 0 ? objects : sbx_git_reader_open(objects, &sbx_git_bounds, &reader);

	if (r)
		return sbx_fail(err, -r, "the sandbox's repository cannot be read: %s",
		                strerror(-r));
	/* Where that fails all of it is read. */
	if (refs->n)
		trust(source, of, &taken);
	for (size_t i = 0; i < refs->n && r >= 0; i++) {
		r = bring_one(target, reader, &refs->at[i].oid, &taken, lost, err);
		if (!r)
			drop(refs, i);
	}
	squeeze(refs);
	sbx_git_taken_release(&taken);
	sbx_git_reader_close(reader);
	return r < 0 ? r : 0;
}

/* ---- what nothing else leads to ---- */

/* Snapshots and marks go with their sandbox. */
static bool is_lasting(const char *ref)
{
	return strncmp(ref, "refs/sandboxfs/trash/", 21) != 0 &&
	       strncmp(ref, SBX_GIT_SNAPSHOTS, strlen(SBX_GIT_SNAPSHOTS)) != 0 &&
	       strncmp(ref, SBX_GIT_MARKS, strlen(SBX_GIT_MARKS)) != 0 &&
	       strcmp(ref, "refs/stash") != 0;
}

/* The commits of lasting refs, but for EXCEPT, which may be NULL. */
static int name_lasting(git_repository *source, const char *except, struct sbx_refs *ret)
{
	_cleanup_git_(iterator) git_reference_iterator *it = NULL;
	int r = git_reference_iterator_new(&it, source);

	while (!r) {
		_cleanup_git_(reference) git_reference *ref = NULL;
		_cleanup_git_(object) git_object *commit = NULL;

		r = git_reference_next(&ref, it);
		if (!r && is_lasting(git_reference_name(ref)) &&
		    (!except || strcmp(git_reference_name(ref), except) != 0) &&
		    git_reference_peel(&commit, ref, GIT_OBJECT_COMMIT) == 0)
			r = sbx_refs_add(ret, "", git_object_id(commit)) ? GIT_ERROR : 0;
	}
	apply(ret);
	return r == GIT_ITEROVER ? 0 : r;
}

static const struct sbx_ref *find(const struct sbx_refs *refs, const git_oid *oid)
{
	const struct sbx_ref key = {.oid = *oid};

	return refs->n ? bsearch(&key, refs->at, refs->n, sizeof(*refs->at), by_oid) : NULL;
}

/* Sets LEFT, one for each of REFS, where no commit of LASTING leads to it. */
static int walk(git_repository *repo, const struct sbx_refs *refs, const struct sbx_refs *lasting,
                bool *left)
{
	_cleanup_git_(revwalk) git_revwalk *walk = NULL;
	git_oid oid;
	int r = git_revwalk_new(&walk, repo);

	for (size_t i = 0; i < refs->n && !r; i++)
		r = git_revwalk_push(walk, &refs->at[i].oid);
	for (size_t i = 0; i < lasting->n && !r; i++)
		r = git_revwalk_hide(walk, &lasting->at[i].oid);
	while (!r && (r = git_revwalk_next(&oid, walk)) == 0) {
		const struct sbx_ref *at = find(refs, &oid);

		if (at)
			left[at - refs->at] = true;
	}
	return r == GIT_ITEROVER ? 0 : r;
}

/* Where history was cut off there is no walking: what no ref names itself may be left. */
static void guess(const struct sbx_refs *refs, const struct sbx_refs *lasting, bool *left)
{
	for (size_t i = 0; i < refs->n; i++)
		left[i] = !find(lasting, &refs->at[i].oid);
}

/* Only what no lasting ref leads to stays in REFS. */
static int choose(git_repository *target, git_repository *source, struct sbx_refs *refs)
{
	_cleanup_free_ bool *left = calloc(refs->n + 1, sizeof(*left));
	struct sbx_refs lasting = {0};
	int r = left ? name_lasting(source, NULL, &lasting) : GIT_ERROR;
	bool cut = !r && git_repository_is_shallow(source) == 1;

	if (!r && !cut) {
		r = walk(target, refs, &lasting, left);
		cut = r == GIT_ENOTFOUND;
	}
	if (cut) {
		guess(refs, &lasting, left);
		r = 0;
	}
	for (size_t i = 0; i < refs->n && !r; i++)
		if (!left[i])
			drop(refs, i);
	squeeze(refs);
	sbx_refs_release(&lasting);
	return r;
}

/* ---- the commits ---- */

static char *message_of(const char *whose, const struct sbx_ref *at, size_t n)
{
	char *text = NULL, hex[GIT_OID_HEXSZ + 1];
	size_t len;
	FILE *f = open_memstream(&text, &len);

	if (!f)
		return NULL;
	fprintf(f, "Left in %s\n\n", whose);
	for (size_t i = 0; i < n; i++)
		fprintf(f, "%s %s\n", git_oid_tostr(hex, sizeof(hex), &at[i].oid), at[i].name);
	if (fclose(f) == 0)
		return text;
	free(text);
	return NULL;
}

/* Upon the N commits of AT and, where LINK is not zero, that. */
static int join(git_repository *repo, const char *whose, const struct sbx_ref *at, size_t n,
                git_oid *link)
{
	_cleanup_git_(signature) git_signature *who = NULL;
	_cleanup_git_(tree) git_tree *none = NULL;
	_cleanup_git_(odb) git_odb *odb = NULL;
	_cleanup_free_ char *text = message_of(whose, at, n);
	git_commit *parents[PARENTS + 1] = {NULL};
	const bool linked = !git_oid_is_zero(link);
	git_oid empty;
	int r = text ? git_repository_odb(&odb, repo) : GIT_ERROR;

	assert(n > 0 && n <= PARENTS);
	if (!r)
		r = git_odb_write(&empty, odb, "", 0, GIT_OBJECT_TREE);
	if (!r)
		r = git_tree_lookup(&none, repo, &empty);
	if (!r)
		r = git_signature_now(&who, "sandboxfs", "sandboxfs@localhost");
	for (size_t i = 0; i < n && !r; i++)
		r = git_commit_lookup(&parents[i], repo, &at[i].oid);
	if (!r && linked)
		r = git_commit_lookup(&parents[n], repo, link);
	if (!r)
		r = git_commit_create(link, repo, NULL, who, who, NULL, text, none, n + linked,
		                      (const git_commit **)parents);
	for (size_t i = 0; i <= n; i++)
		git_commit_free(parents[i]);
	return r;
}

int sbx_git_left_bring(git_repository *target, git_repository *source,
                       const struct sbx_git_left *of, git_oid *ret, bool *lost,
                       struct sbx_error *err)
{
	struct sbx_refs refs = {0};
	git_oid link = {0};
	int r = of->repo < 0 ? 0 : name_all(of->repo, &refs);
	size_t n = 0;

	if (r)
		r = sbx_fail(err, -r, "the sandbox's repository cannot be read: %s", strerror(-r));
	else if (of->repo >= 0)
		r = bring(target, source, of, &refs, lost, err);
	if (!r && of->worktree && name_snapshots(source, of->worktree, &refs))
		r = sbx_git_fail(err, GIT_ERROR, "the snapshots of %s cannot be read", of->whose);
	if (!r && refs.n) {
		r = choose(target, source, &refs);
		for (size_t i = 0; i < refs.n && !r; i += n) {
			n = refs.n - i < PARENTS ? refs.n - i : PARENTS;
			r = join(target, of->whose, &refs.at[i], n, &link);
		}
		if (r)
			r = sbx_git_fail(err, r, "what was committed in %s cannot be saved",
			                 of->whose);
	}
	*ret = link;
	r = r ? r : refs.n > 0;
	sbx_refs_release(&refs);
	return r;
}

static int write_pack(git_repository *target, git_revwalk *walk)
{
	_cleanup_git_(packbuilder) git_packbuilder *pack = NULL;
	_cleanup_free_ char *path = sbx_format("%sobjects/pack", git_repository_path(target));
	int r = path ? git_packbuilder_new(&pack, target) : GIT_ERROR;

	if (!r)
		r = git_packbuilder_insert_walk(pack, walk);
	if (!r && git_packbuilder_object_count(pack))
		r = git_packbuilder_write(pack, path, 0, NULL, NULL);
	return r;
}

int sbx_git_left_own(git_repository *target, git_repository *source, const char *branch,
                     const git_oid *commit)
{
	_cleanup_git_(revwalk) git_revwalk *walk = NULL;
	_cleanup_free_ char *own = branch ? sbx_format("refs/heads/%s", branch) : NULL;
	struct sbx_refs lasting = {0};
	int r = name_lasting(source, own, &lasting);

	if (!r)
		r = git_revwalk_new(&walk, target);
	if (!r)
		r = git_revwalk_push(walk, commit);
	for (size_t i = 0; i < lasting.n && !r; i++)
		r = git_revwalk_hide(walk, &lasting.at[i].oid);
	if (!r)
		r = write_pack(target, walk);
	sbx_refs_release(&lasting);
	return r;
}
