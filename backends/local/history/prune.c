/*
 * Objects that no mark and no snapshot leads to any more are taken out of a sandbox's own
 * repository, now and then. What the source has needs no looking into: what it leads to is there as
 * well.
 */
#include <errno.h>
#include <fcntl.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/git/git_impl.h"
#include "backends/local/history/git_state.h"
#include "backends/local/history/history_impl.h"
#include "backends/local/history/store.h"
#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/grow.h"

#define MANY     8 /* objects in one of 256 directories */
#define LAST     "pruned"
#define LAST_MAX 16

struct todo {
	git_oid oid;
	git_object_t type;
};

struct prune {
	int objects; /* the directory */
	git_odb *odb;
	void *kept; /* tree of git_oid */
	struct todo *todo;
	size_t n, cap;
};

static int compare(const void *a, const void *b)
{
	return git_oid_cmp(a, b);
}

/* "12/3456..." */
static void path_of(const git_oid *oid, char ret[GIT_OID_HEXSZ + 2])
{
	git_oid_pathfmt(ret, oid);
	ret[GIT_OID_HEXSZ + 1] = '\0';
}

static int add(struct prune *p, const git_oid *oid, git_object_t type)
{
	char path[GIT_OID_HEXSZ + 2];

	path_of(oid, path);
	if (faccessat(p->objects, path, F_OK, AT_SYMLINK_NOFOLLOW) < 0 ||
	    tfind(oid, &p->kept, compare))
		return 0;
	if (SBX_GROW(p->todo, p->n, p->cap, 64))
		return -ENOMEM;
	p->todo[p->n++] = (struct todo){.oid = *oid, .type = type};
	return 0;
}

static int keep(struct prune *p, const git_oid *oid)
{
	git_oid *copy = malloc(sizeof(*copy));

	if (!copy)
		return -ENOMEM;
	*copy = *oid;
	if (tsearch(copy, &p->kept, compare))
		return 0;
	free(copy);
	return -ENOMEM;
}

/* ---- what leads where ---- */

/*
 * Lines "WORD HEX": the tree and the parents, and in a mark's message those of its index and of
 * what git does not record.
 */
static int add_commit(struct prune *p, const char *data, size_t len)
{
	const char *end = data + len;
	git_oid oid;
	int r = 0;

	while (!r && data < end) {
		const char *eol = memchr(data, '\n', (size_t)(end - data));
		size_t n = eol ? (size_t)(eol - data) : (size_t)(end - data);

		if (n == 5 + GIT_OID_HEXSZ && memcmp(data, "tree ", 5) == 0 &&
		    git_oid_fromstrn(&oid, data + 5, GIT_OID_HEXSZ) == 0)
			r = add(p, &oid, GIT_OBJECT_TREE);
		else if (n == 6 + GIT_OID_HEXSZ &&
		         (memcmp(data, "index ", 6) == 0 || memcmp(data, "exact ", 6) == 0) &&
		         git_oid_fromstrn(&oid, data + 6, GIT_OID_HEXSZ) == 0)
			r = add(p, &oid, GIT_OBJECT_TREE);
		else if (n == 7 + GIT_OID_HEXSZ && memcmp(data, "parent ", 7) == 0 &&
		         git_oid_fromstrn(&oid, data + 7, GIT_OID_HEXSZ) == 0)
			r = add(p, &oid, GIT_OBJECT_COMMIT);
		data += n + 1;
	}
	return r;
}

static int add_tree(struct prune *p, const char *data, size_t len)
{
	const char *end = data + len;
	int r = 0;

	while (!r && data < end) {
		const char *nul = memchr(data, '\0', (size_t)(end - data));
		git_oid oid;

		if (!nul || end - nul <= GIT_OID_RAWSZ)
			return -EBADMSG;
		git_oid_fromraw(&oid, (const unsigned char *)nul + 1);
		r = add(p, &oid, *data == '4' ? GIT_OBJECT_TREE : GIT_OBJECT_BLOB);
		data = nul + 1 + GIT_OID_RAWSZ;
	}
	return r;
}

static int follow(struct prune *p)
{
	const struct todo next = p->todo[--p->n];
	git_odb_object *object = NULL;
	int r;

	if (tfind(&next.oid, &p->kept, compare))
		return 0;
	r = keep(p, &next.oid);
	if (r || next.type == GIT_OBJECT_BLOB)
		return r;
	/* What cannot be read now may be readable later: nothing is removed then. */
	r = git_odb_read(&object, p->odb, &next.oid);
	if (r)
		return sbx_git_fail(NULL, r, "an object that is needed");
	r = next.type == GIT_OBJECT_TREE
	            ? add_tree(p, git_odb_object_data(object), git_odb_object_size(object))
	            : add_commit(p, git_odb_object_data(object), git_odb_object_size(object));
	git_odb_object_free(object);
	return r;
}

/* ---- where it begins ---- */

struct begin {
	struct prune *p;
	int marks;
};

static int add_mark(const char *name, unsigned char type, void *data)
{
	const struct begin *b = data;
	git_oid oid;

	(void)type;
	return sbx_local_history_read_id(b->marks, name, &oid) ? 0
	                                                       : add(b->p, &oid, GIT_OBJECT_COMMIT);
}

static int add_listed(struct prune *p, int dir)
{
	_cleanup_free_ char *text = NULL;
	char *at;
	int64_t ms;
	git_oid oid;
	int r = sbx_local_history_lines(dir, &text);

	for (at = text; !r && sbx_local_history_line(&at, &oid, &ms);)
		r = add(p, &oid, GIT_OBJECT_COMMIT);
	return r;
}

/*
 * Adds the objects that are staged, because they are believed to be there: where the host's side
 * is in this repository, no commit may have come of them.
 */
static int add_staged(const struct sbx_snapshot_context *context, struct prune *p, int dir)
{
	struct sbx_local_history_index staged = {0};
	git_oid oid;
	int r = context->rec->common ? 0
	                             : sbx_local_history_read_index(dir, "index", &staged, NULL);

	for (size_t i = 0; i < staged.index.n && !r; i++) {
		memcpy(oid.id, staged.index.at[i].oid, sizeof(staged.index.at[i].oid));
		r = add(p, &oid, GIT_OBJECT_BLOB);
	}
	sbx_local_history_index_release(&staged);
	return r;
}

static int open_objects(struct prune *p, git_repository *all)
{
	const int r = git_repository_odb(&p->odb, all);

	return r ? sbx_git_fail(NULL, r, "the objects of snapshots") : 0;
}

static int add_beginnings(const struct sbx_snapshot_context *context, struct prune *p, int dir)
{
	_cleanup_fd_ int marks = sbx_dir_open(dir, "marks");
	_cleanup_git_(repository) git_repository *all = NULL;
	struct begin b = {.p = p, .marks = marks};
	_cleanup_free_ char *branch = sbx_local_history_branch(context);
	git_oid oid;
	int r = marks < 0 ? marks : sbx_dir_scan(marks, add_mark, &b);

	if (!r)
		r = add_listed(p, dir);
	if (!r && sbx_local_history_read_id(dir, "base", &oid) == 0)
		r = add(p, &oid, GIT_OBJECT_COMMIT);
	if (!r)
		r = add_staged(context, p, dir);
	if (!r)
		r = branch ? sbx_local_history_open(context, true, &all, NULL) : -ENOMEM;
	if (!r && git_reference_name_to_id(&oid, all, branch) == 0)
		r = add(p, &oid, GIT_OBJECT_COMMIT);
	if (!r)
		r = open_objects(p, all);
	while (!r && p->n)
		r = follow(p);
	return r;
}

/* ---- taking out ---- */

struct sweep {
	struct prune *p;
	int dir;
	const char *prefix;
};

static int remove_one(const char *name, unsigned char type, void *data)
{
	const struct sweep *s = data;
	char hex[GIT_OID_HEXSZ + 1];
	git_oid oid;

	(void)type;
	if (strlen(name) != GIT_OID_HEXSZ - 2)
		return 0;
	snprintf(hex, sizeof(hex), "%.2s%s", s->prefix, name);
	if (git_oid_fromstr(&oid, hex) == 0 && !tfind(&oid, &s->p->kept, compare))
		unlinkat(s->dir, name, 0);
	return 0;
}

static int remove_in(const char *name, unsigned char type, void *data)
{
	struct prune *p = data;
	_cleanup_fd_ int dir = -1;
	struct sweep s = {.p = p, .prefix = name};

	(void)type;
	if (strlen(name) != 2)
		return 0;
	dir = s.dir = sbx_dir_open(p->objects, name);
	return dir < 0 ? 0 : sbx_dir_scan(dir, remove_one, &s);
}

static int count(const char *name, unsigned char type, void *data)
{
	(void)name;
	(void)type;
	++*(unsigned long *)data;
	return 0;
}

/* As git guesses it: objects are spread evenly. */
static unsigned long guess(int objects)
{
	_cleanup_fd_ int dir = sbx_dir_open(objects, "17");
	unsigned long n = 0;

	if (dir >= 0)
		sbx_dir_scan(dir, count, &n);
	return n;
}

/* Twice as many and some more than what the last time left: so all that is there is looked through
 * now and then. */
static bool has_many(int dir, int objects)
{
	_cleanup_free_ char *text = NULL;
	unsigned long last =
	        sbx_file_read(dir, LAST, LAST_MAX, &text) ? 0 : strtoul(text, NULL, 10);

	return guess(objects) > 2 * last + MANY;
}

static void note(int dir, unsigned long left)
{
	char text[LAST_MAX];

	snprintf(text, sizeof(text), "%lu\n", left < 1000000 ? left : 1000000);
	sbx_file_replace(dir, LAST, LAST ".new", text);
}

void sbx_local_history_prune(const struct sbx_snapshot_context *context, bool now)
{
	_cleanup_fd_ int dir = sbx_local_history_dir(context, NULL);
	_cleanup_fd_ int objects = dir < 0 ? -1 : sbx_dir_open(dir, "objects");
	struct prune p = {.objects = objects};

	if (objects < 0 || (!now && !has_many(dir, objects)))
		return;
	if (add_beginnings(context, &p, dir) == 0)
		sbx_dir_scan(objects, remove_in, &p);
	/* Also where it could not be done: not at each turn again. */
	note(dir, guess(objects));
	tdestroy(p.kept, free);
	git_odb_free(p.odb);
	free(p.todo);
}
