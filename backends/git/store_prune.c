/*
 * Removal of unreachable objects from the store, when there is much in it. An object goes at the
 * age at which git prunes: by then whoever wrote it has made its ref, or never will. The roots
 * are refs, reflogs, HEADs and indexes of the source and of all its worktrees.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "backends/git/git_impl.h"
#include "backends/git/import_objects.h"
#include "backends/git/index.h"
#include "backends/git/store.h"
#include "backends/git/store_walk.h"
#include "backends/support/beneath.h"
#include "backends/support/fsutil.h"

#define AGE      ((time_t)14 * 24 * 60 * 60)
#define MANY     8 /* objects in one of 256 directories */
#define LAST     "pruned"
#define LAST_MAX 16
#define LOG_MAX  ((size_t)64 << 20)
#define HEAD_MAX ((size_t)4096)

struct prune {
	int store, room;
	struct sbx_git_tips tips;
	void *kept; /* tree of git_oid */
};

static int compare(const void *a, const void *b)
{
	return git_oid_cmp(a, b);
}

static int keep(const git_oid *oid, void *data)
{
	struct prune *p = data;
	git_oid *copy;
	const git_oid *const *at;

	if (!sbx_git_store_has(p->store, oid))
		return 0;
	copy = malloc(sizeof(*copy));
	if (!copy)
		return -ENOMEM;
	*copy = *oid;
	at = tsearch(copy, &p->kept, compare);
	if (!at || *at != copy)
		free(copy);
	return at ? 0 : -ENOMEM;
}

/* ---- where it begins ---- */

static int add_refs(struct prune *p, git_repository *repo)
{
	struct sbx_refs refs = {0};
	int r = sbx_refs_of_source(repo, "refs/", &refs, NULL);

	for (size_t i = 0; i < refs.n && !r; i++)
		r = sbx_git_tips_add(&p->tips, &refs.at[i].oid);
	sbx_refs_release(&refs);
	return r;
}

/* A log that is too large to be read may name anything. */
static int add_log(struct prune *p, int dir, const char *name)
{
	_cleanup_free_ char *text = NULL;
	struct sbx_reflog line;
	const char *at;
	int r = sbx_file_read(dir, name, LOG_MAX, &text);

	for (at = text; at && !r && sbx_reflog_next(&at, &line);) {
		r = sbx_git_tips_add(&p->tips, &line.old);
		if (!r)
			r = sbx_git_tips_add(&p->tips, &line.new);
	}
	return r == -ENOENT ? 0 : r;
}

struct below {
	struct prune *p;
	int dir;
};

static int add_logs(struct prune *p, int dir, const char *name);

static int add_logs_in(const char *name, unsigned char type, void *data)
{
	const struct below *b = data;

	return type == DT_DIR   ? add_logs(b->p, b->dir, name)
	       : type == DT_REG ? add_log(b->p, b->dir, name)
	                        : 0;
}

static int add_logs(struct prune *p, int dir, const char *name)
{
	_cleanup_fd_ int logs = sbx_dir_open(dir, name);
	struct below b = {.p = p, .dir = logs};

	return logs < 0 ? 0 : sbx_dir_scan(logs, add_logs_in, &b);
}

static int add_index(struct prune *p, int dir)
{
	_cleanup_free_ char *data = NULL;
	struct sbx_index index = {0};
	size_t len;
	git_oid oid;
	int r = sbx_beneath_read(dir, "index", SBX_INDEX_MAX, &data, &len, NULL);

	if (r)
		return r == -ENOENT ? 0 : r;
	r = sbx_index_parse(data, len, &index, NULL);
	for (size_t i = 0; i < index.n && !r; i++) {
		memcpy(oid.id, index.at[i].oid, sizeof(index.at[i].oid));
		r = keep(&oid, p);
	}
	sbx_index_release(&index);
	return r;
}

/* The source's own directory, or the entry of a worktree. */
static int add_place(struct prune *p, int dir)
{
	static const char *const heads[] = {"HEAD", "ORIG_HEAD", "MERGE_HEAD", "CHERRY_PICK_HEAD",
	                                    "REVERT_HEAD"};
	int r = add_logs(p, dir, "logs");

	for (size_t i = 0; i < SBX_ARRAY_SIZE(heads) && !r; i++) {
		_cleanup_free_ char *text = NULL;
		git_oid oid;

		if (sbx_file_read(dir, heads[i], HEAD_MAX, &text) == 0 &&
		    strlen(text) >= GIT_OID_HEXSZ &&
		    git_oid_fromstrn(&oid, text, GIT_OID_HEXSZ) == 0)
			r = sbx_git_tips_add(&p->tips, &oid);
	}
	return r ? r : add_index(p, dir);
}

static int add_worktree(const char *name, unsigned char type, void *data)
{
	const struct below *b = data;
	_cleanup_fd_ int dir = type == DT_DIR ? sbx_dir_open(b->dir, name) : -1;

	return dir < 0 ? 0 : add_place(b->p, dir);
}

static int mark(struct prune *p, git_repository *repo, int common)
{
	_cleanup_fd_ int worktrees = sbx_dir_open(common, "worktrees");
	_cleanup_(sbx_git_tips_release) struct sbx_git_tips known = {0};
	struct below b = {.p = p, .dir = worktrees};
	int r = add_refs(p, repo);

	if (!r)
		r = add_place(p, common);
	if (!r && worktrees >= 0)
		r = sbx_dir_scan(worktrees, add_worktree, &b);
	if (!r)
		r = sbx_git_store_begun(p->room, &known);
	return r ? r : sbx_git_store_walk(repo, &p->tips, &known, keep, p);
}

/* ---- taking out ---- */

struct sweep {
	const struct prune *p;
	int dir;
	const char *prefix;
	time_t before;
};

static int remove_one(const char *name, unsigned char type, void *data)
{
	const struct sweep *s = data;
	char hex[GIT_OID_HEXSZ + 1];
	struct stat st;
	git_oid oid;

	(void)type;
	if (strlen(name) != GIT_OID_HEXSZ - 2)
		return 0;
	snprintf(hex, sizeof(hex), "%.2s%s", s->prefix, name);
	/* Who finds that it is there touches it. */
	if (git_oid_fromstr(&oid, hex) == 0 && !tfind(&oid, &s->p->kept, compare) &&
	    fstatat(s->dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_mtime < s->before)
		unlinkat(s->dir, name, 0);
	return 0;
}

static int remove_in(const char *name, unsigned char type, void *data)
{
	struct sweep *s = data;
	_cleanup_fd_ int dir = -1;

	(void)type;
	if (strlen(name) != 2)
		return 0;
	dir = s->dir = sbx_dir_open(s->p->store, name);
	s->prefix = name;
	return dir < 0 ? 0 : sbx_dir_scan(dir, remove_one, s);
}

static int count(const char *name, unsigned char type, void *data)
{
	(void)name;
	(void)type;
	++*(unsigned long *)data;
	return 0;
}

/* As git guesses it: objects are spread evenly. */
static unsigned long guess(int store)
{
	_cleanup_fd_ int dir = sbx_dir_open(store, "17");
	unsigned long n = 0;

	if (dir >= 0)
		sbx_dir_scan(dir, count, &n);
	return n;
}

static bool has_many(int room, int store)
{
	_cleanup_free_ char *text = NULL;
	const unsigned long last =
	        sbx_file_read(room, LAST, LAST_MAX, &text) ? 0 : strtoul(text, NULL, 10);

	return guess(store) > 2 * last + MANY;
}

static void note(int room, unsigned long left)
{
	char text[LAST_MAX];

	snprintf(text, sizeof(text), "%lu\n", left < 1000000 ? left : 1000000);
	sbx_file_replace_soon(room, LAST, LAST ".new", text);
}

static void prune(struct prune *p, const char *common)
{
	_cleanup_fd_ int dir = sbx_dir_open(AT_FDCWD, common);
	_cleanup_git_(repository) git_repository *repo = NULL;
	struct sweep s = {.p = p, .before = time(NULL) - AGE};

	if (dir >= 0 && git_repository_open_bare(&repo, common) == 0 && mark(p, repo, dir) == 0)
		sbx_dir_scan(p->store, remove_in, &s);
	/* Also where it could not be done: not at each turn again. */
	note(p->room, guess(p->store));
	tdestroy(p->kept, free);
	sbx_git_tips_release(&p->tips);
}

void sbx_git_store_prune(const char *common, bool now)
{
	_cleanup_fd_ int store = sbx_git_store_open(common);
	_cleanup_fd_ int room = store < 0 ? -1 : sbx_dir_open(store, "..");
	struct prune p = {.store = store, .room = room};
	struct sbx_git_owner owner;

	if (room < 0 || (!now && !has_many(room, store)))
		return;
	owner = sbx_git_owner_begin(common);
	prune(&p, common);
	sbx_git_owner_end(&owner);
}
