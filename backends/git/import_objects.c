/*
 * A walk in depth with a stack of its own; blobs are written when they are met, trees and commits
 * when all they name is there. So an object that the source has need not be entered.
 */
#include "backends/git/import_objects.h"

#include <errno.h>
#include <limits.h>
#include <search.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/stat.h>

#include "backends/git/durable.h"
#include "backends/git/git_impl.h"
#include "backends/git/path_rules.h"
#include "backends/git/store.h"
#include "backends/support/fsutil.h"
#include "sandboxfs/clock.h"
#include "sandboxfs/grow.h"

#define HEX GIT_OID_HEXSZ

/* ---- what is well-formed ---- */

struct tree_entry {
	unsigned mode;
	const char *name;
	size_t len;
	git_oid oid;
};

#define MODE_TREE 040000
#define MODE_LINK 0160000

/* The entry at *AT, which moves behind it. */
static bool tree_next(const char *data, size_t len, size_t *at, struct tree_entry *ret)
{
	const char *p = data + *at, *end = data + len, *nul;

	*ret = (struct tree_entry){0};
	for (; p < end && *p >= '0' && *p <= '7' && ret->mode < 0200000; p++)
		ret->mode = ret->mode * 8 + (unsigned)(*p - '0');
	if (p == data + *at || p >= end || *p++ != ' ')
		return false;
	nul = memchr(p, '\0', (size_t)(end - p));
	if (!nul || end - nul <= GIT_OID_RAWSZ)
		return false;
	ret->name = p;
	ret->len = (size_t)(nul - p);
	memcpy(ret->oid.id, nul + 1, GIT_OID_RAWSZ);
	*at = (size_t)(nul - data) + 1 + GIT_OID_RAWSZ;
	return true;
}

/* git's order: a tree sorts as if its name ended with a slash. */
static int tree_order(const struct tree_entry *a, const struct tree_entry *b)
{
	size_t n = a->len < b->len ? a->len : b->len;
	int r = memcmp(a->name, b->name, n);
	unsigned char x = 0, y = 0;

	if (r)
		return r;
	x = (unsigned char)(n < a->len ? a->name[n] : a->mode == MODE_TREE ? '/' : 0);
	y = (unsigned char)(n < b->len ? b->name[n] : b->mode == MODE_TREE ? '/' : 0);
	return (x > y) - (x < y);
}

static bool tree_mode_ok(unsigned mode)
{
	return mode == MODE_TREE || mode == 0100644 || mode == 0100755 || mode == 0100664 ||
	       mode == 0120000 || mode == MODE_LINK;
}

/*
 * The files whose names all entries since begin with. Each is longer than the one before, so no
 * file system has names for more of them.
 */
struct prefixes {
	struct tree_entry at[NAME_MAX];
	size_t n;
};

/* A tree and a file of the same name are apart in the order when other names lie between them. */
static bool prefixes_take(struct prefixes *p, const struct tree_entry *e)
{
	const struct tree_entry *last;

	for (; p->n; p->n--) {
		last = &p->at[p->n - 1];
		if (last->len <= e->len && memcmp(last->name, e->name, last->len) == 0)
			break;
	}
	if (e->mode == MODE_TREE)
		return !p->n || p->at[p->n - 1].len != e->len;
	if (p->n == SBX_ARRAY_SIZE(p->at))
		return false;
	p->at[p->n++] = *e;
	return true;
}

static bool tree_ok(const char *data, size_t len)
{
	struct tree_entry before = {0}, e;
	struct prefixes prefixes;

	prefixes.n = 0;
	for (size_t at = 0; at < len; before = e) {
		if (!tree_next(data, len, &at, &e) || !tree_mode_ok(e.mode) ||
		    !sbx_git_component_ok(e.name, e.len) ||
		    (before.name && tree_order(&before, &e) >= 0) || !prefixes_take(&prefixes, &e))
			return false;
	}
	return true;
}

/* The line "WORD HEX" at *P; OID may be NULL. */
static bool take_oid(const char **p, const char *end, const char *word, git_oid *oid)
{
	size_t n = strlen(word);
	git_oid dummy;

	if ((size_t)(end - *p) < n + HEX + 1 || memcmp(*p, word, n) != 0 || (*p)[n + HEX] != '\n' ||
	    git_oid_fromstrn(oid ? oid : &dummy, *p + n, HEX))
		return false;
	*p += n + HEX + 1;
	return true;
}

/* The line "WORD NAME <ADDRESS> SECONDS ZONE". */
static bool take_person(const char **p, const char *end, const char *word)
{
	size_t n = strlen(word), digits = 0;
	const char *eol = memchr(*p, '\n', (size_t)(end - *p)), *at;

	if (!eol || (size_t)(eol - *p) < n || memcmp(*p, word, n) != 0)
		return false;
	at = memrchr(*p, '>', (size_t)(eol - *p));
	if (!at || !memchr(*p, '<', (size_t)(at - *p)) || at[1] != ' ')
		return false;
	for (at += 2; *at >= '0' && *at <= '9'; at++)
		digits++;
	if (!digits || digits > 18 || at[0] != ' ' || (at[1] != '+' && at[1] != '-'))
		return false;
	for (at += 2, digits = 0; *at >= '0' && *at <= '9'; at++)
		digits++;
	*p = eol + 1;
	return at == eol && digits == 4;
}

static bool commit_ok(const char *data, size_t len)
{
	const char *p = data, *end = data + len, *body;

	if (!take_oid(&p, end, "tree ", NULL))
		return false;
	while (take_oid(&p, end, "parent ", NULL))
		;
	if (!take_person(&p, end, "author ") || !take_person(&p, end, "committer "))
		return false;
	body = memmem(p - 1, (size_t)(end - p) + 1, "\n\n", 2);
	return !memchr(data, '\0', body ? (size_t)(body - data) : len);
}

bool sbx_git_object_ok(git_object_t type, const char *data, size_t len)
{
	switch (type) {
	case GIT_OBJECT_COMMIT:
		return commit_ok(data, len);
	case GIT_OBJECT_TREE:
		return tree_ok(data, len);
	default:
		return type == GIT_OBJECT_BLOB;
	}
}

/* ---- whose files these become ---- */

struct sbx_git_owner sbx_git_owner_begin(const char *path)
{
	struct sbx_git_owner before = {0};
	struct stat st;

	if (geteuid() != 0 || stat(path, &st) < 0 || st.st_uid == 0)
		return before;
	before.gid = (unsigned)setfsgid(st.st_gid);
	before.uid = (unsigned)setfsuid(st.st_uid);
	before.changed = true;
	return before;
}

void sbx_git_owner_end(const struct sbx_git_owner *before)
{
	if (!before->changed)
		return;
	setfsuid(before->uid);
	setfsgid(before->gid);
}

/* ---- the walk ---- */

struct frame {
	git_oid oid;
	git_object_t type;
	char *data;
	size_t len, at;
};

/*
 * Objects that the source was found to have, because trees that follow each other name mostly the
 * same.
 */
struct sure {
	git_oid oid;
	git_object_t type;
};

struct walk {
	git_repository *source;
	git_odb *odb;
	git_odb *own; /* the source's objects without the store; NULL until they are asked for */
	int store;    /* or negative */
	const char *common;
	struct sbx_git_reader *reader;
	struct frame *stack;
	size_t n, cap, held;
	struct sbx_git_taken *taken;
	struct sure sure[1024];
	struct sbx_error *err;
};

/* Those that have nothing in them git may leave out, as it knows the tree without having it; the
 * source gets them. */
static bool is_empty_one(const git_oid *oid, git_object_t type)
{
	git_oid empty;

	return type != GIT_OBJECT_COMMIT && git_odb_hash(&empty, "", 0, type) == 0 &&
	       git_oid_equal(&empty, oid);
}

static int too_much(const struct walk *w)
{
	return sbx_fail(w->err, E2BIG,
	                "the source takes over %llu MiB of objects of a sandbox and has them: what "
	                "was committed since stays inside",
	                (unsigned long long)(w->taken->most >> 20));
}

static int check_time(const struct walk *w)
{
	const uint64_t until = w->taken->until ? atomic_load(w->taken->until) : 0;

	if (!until || sbx_now_ms() < until)
		return 0;
	return sbx_fail(w->err, ETIMEDOUT,
	                "there is much that was committed inside, and not all of it is in the "
	                "source yet");
}

static int compare(const void *a, const void *b)
{
	return git_oid_cmp(a, b);
}

void sbx_git_taken_release(struct sbx_git_taken *taken)
{
	tdestroy(taken->had, free);
	taken->had = NULL;
}

void sbx_git_taken_trust(struct sbx_git_taken *taken, const git_oid *oid)
{
	git_oid *copy = malloc(sizeof(*copy));
	const git_oid *const *at;

	if (!copy)
		return;
	*copy = *oid;
	at = tsearch(copy, &taken->had, compare);
	if (!at || *at != copy)
		free(copy);
}

static int use_store(struct walk *w)
{
	const int r = sbx_git_store_use(w->source);

	if (r)
		return sbx_git_fail(w->err, r, "the store of the source cannot be used");
	w->taken->uses = true;
	if (w->store < 0)
		w->store = sbx_git_store_open(w->common);
	return 0;
}

static int write_object(struct walk *w, const struct frame *f)
{
	struct sbx_git_owner owner;
	git_oid written;
	int r;

	/* It has been read as the sandbox has it, that was all. */
	if (sbx_git_store_has(w->store, &f->oid)) {
		sbx_git_store_touch(w->store, &f->oid);
		sbx_git_taken_trust(w->taken, &f->oid);
		return 0;
	}
	if (f->len > w->taken->most - w->taken->bytes)
		return too_much(w);
	if (w->taken->apart && !w->taken->uses && (r = use_store(w)))
		return r;
	w->taken->bytes += f->len;
	owner = sbx_git_owner_begin(w->common);
	r = git_odb_write(&written, w->odb, f->data, f->len, f->type);
	sbx_git_owner_end(&owner);
	if (!r && w->store >= 0)
		sbx_git_taken_trust(w->taken, &written);
	return r ? sbx_git_fail(w->err, r, "cannot write an object to the source") : 0;
}

static int not_well_formed(struct walk *w, const git_oid *oid)
{
	char hex[HEX + 1];

	return sbx_fail(w->err, EINVAL, "object %s is not well-formed",
	                git_oid_tostr(hex, sizeof(hex), oid));
}

static int write_piece(const char *data, size_t len, void *to)
{
	return git_odb_stream_write(to, data, len) ? -EIO : 0;
}

static int stream_blob(struct walk *w, const git_oid *oid, size_t len, git_oid *written)
{
	git_odb_stream *stream = NULL;
	int r = git_odb_open_wstream(&stream, w->odb, (git_object_size_t)len, GIT_OBJECT_BLOB);

	if (r)
		return sbx_git_fail(w->err, r, "cannot write an object to the source");
	r = sbx_git_reader_pieces(w->reader, oid, write_piece, stream, w->err);
	if (!r && (r = git_odb_stream_finalize_write(written, stream)))
		r = sbx_git_fail(w->err, r, "cannot write an object to the source");
	git_odb_stream_free(stream);
	return r;
}

/*
 * A large blob is not held in memory: its hash is known once it is written. Under another name than
 * its own it is one more object that nothing names.
 */
static int take_large(struct walk *w, const git_oid *oid, size_t len)
{
	const bool stored = sbx_git_store_has(w->store, oid);
	struct sbx_git_owner owner;
	git_oid written;
	int r = w->taken->apart && !w->taken->uses ? use_store(w) : 0;

	if (r)
		return r;
	if (!stored && len > w->taken->most - w->taken->bytes)
		return too_much(w);
	w->taken->bytes += stored ? 0 : len;
	owner = sbx_git_owner_begin(w->common);
	r = stream_blob(w, oid, len, &written);
	sbx_git_owner_end(&owner);
	if (r)
		return r;
	if (!git_oid_equal(&written, oid))
		return not_well_formed(w, oid);
	if (w->store >= 0)
		sbx_git_taken_trust(w->taken, oid);
	return 0;
}

static int push(struct walk *w, const struct frame *f)
{
	if (f->len > sbx_git_bounds.held - w->held)
		return sbx_fail(w->err, E2BIG,
		                "trees and commits that lead to each other have more than %zu MiB",
		                sbx_git_bounds.held >> 20);
	if (SBX_GROW(w->stack, w->n, w->cap, 64))
		return sbx_no_memory(w->err);
	w->stack[w->n++] = *f;
	w->held += f->len;
	return 0;
}

/*
 * An object of the store counts only where the sandbox has it as well. Otherwise a command that
 * names an object of another sandbox, whose id it knows, would be given it.
 */
static bool is_of_others(struct walk *w, const git_oid *oid)
{
	struct sbx_git_taken *taken = w->taken;

	if (!sbx_git_store_has(w->store, oid))
		return false;
	/* Most that is met is in the files of the last commit. */
	while (!tfind(oid, &taken->had, compare) && taken->n)
		sbx_git_store_trust_files(w->source, &taken->tips[--taken->n],
		                          taken->has_base ? &taken->base : NULL, taken);
	if (tfind(oid, &taken->had, compare))
		return false;
	if (!w->own && sbx_git_store_without(w->common, &w->own))
		return true;
	return !git_odb_exists_ext(w->own, oid, GIT_ODB_LOOKUP_NO_REFRESH);
}

/* 1: the source has it, 0: it has not. As something else it would make what names it worthless. */
static int is_there(struct walk *w, const git_oid *oid, git_object_t type)
{
	struct sure *sure = &w->sure[oid->id[0] | (oid->id[1] & 3) << 8];
	git_object_t is;
	size_t len;

	if (sure->type == type && git_oid_equal(&sure->oid, oid))
		return 1;
	if (!git_odb_exists_ext(w->odb, oid, GIT_ODB_LOOKUP_NO_REFRESH) || is_of_others(w, oid))
		return 0;
	/* One that is damaged was so before. */
	if (git_odb_read_header(&len, &is, w->odb, oid) == 0 && is != type)
		return not_well_formed(w, oid);
	*sure = (struct sure){.oid = *oid, .type = type};
	return 1;
}

/* Takes the object up unless the source has it. */
static int meet(struct walk *w, const git_oid *oid, git_object_t type)
{
	struct frame f = {.oid = *oid};
	size_t len;
	int r = is_there(w, oid, type);

	if (r)
		return r < 0 ? r : 0;
	/* Before it is unpacked only to find that there is no room. */
	if (w->taken->bytes >= w->taken->most)
		return too_much(w);
	if (++w->taken->objects > sbx_git_bounds.objects)
		return sbx_fail(w->err, E2BIG, "there are more than %zu new objects",
		                sbx_git_bounds.objects);
	if (type == GIT_OBJECT_BLOB && sbx_git_reader_is_large(w->reader, oid, &len))
		return take_large(w, oid, len);
	r = sbx_git_reader_get(w->reader, oid, &f.type, &f.data, &f.len, w->err);
	if (r == -ENOENT && is_empty_one(oid, type))
		return write_object(
		        w, &(struct frame){.oid = *oid, .type = type, .data = (char[]){""}});
	if (r)
		return r;
	if (f.type != type || !sbx_git_object_ok(f.type, f.data, f.len))
		r = not_well_formed(w, oid);
	else if (type == GIT_OBJECT_BLOB)
		r = write_object(w, &f);
	else
		r = push(w, &f);
	if (r || type == GIT_OBJECT_BLOB)
		free(f.data);
	return r;
}

/*
 * Finds the next object that the tree or commit names: 1, or 0 at the end. It was found
 * well-formed.
 */
static int next_child(struct frame *f, git_oid *oid, git_object_t *type)
{
	const char *p = f->data + f->at, *end = f->data + f->len;
	struct tree_entry e;

	if (f->type == GIT_OBJECT_COMMIT) {
		*type = f->at ? GIT_OBJECT_COMMIT : GIT_OBJECT_TREE;
		if (!take_oid(&p, end, f->at ? "parent " : "tree ", oid))
			return 0;
		f->at = (size_t)(p - f->data);
		return 1;
	}
	while (f->at < f->len && tree_next(f->data, f->len, &f->at, &e)) {
		if (e.mode == MODE_LINK)
			continue;
		*oid = e.oid;
		*type = e.mode == MODE_TREE ? GIT_OBJECT_TREE : GIT_OBJECT_BLOB;
		return 1;
	}
	return 0;
}

static int step(struct walk *w)
{
	struct frame *f = &w->stack[w->n - 1];
	git_object_t type;
	git_oid oid;
	int r;

	if (next_child(f, &oid, &type))
		return meet(w, &oid, type);
	r = write_object(w, f);
	w->held -= f->len;
	free(f->data);
	w->n--;
	return r;
}

int sbx_git_export(git_repository *source, struct sbx_git_reader *reader, const git_oid *oid,
                   git_object_t type, struct sbx_git_taken *taken, struct sbx_error *err)
{
	struct walk w = {.source = source,
	                 .common = git_repository_commondir(source),
	                 .store = -1,
	                 .reader = reader,
	                 .taken = taken,
	                 .err = err};
	int r = git_repository_odb(&w.odb, source), written;

	if (r)
		return sbx_git_fail(err, r, "cannot open the objects of the source");
	/* After the objects: of a store that they know it is looked up whose it is. */
	w.store = sbx_git_store_open(w.common);
	sbx_git_durable_begin();
	r = meet(&w, oid, type);
	while (!r && w.n) {
		r = check_time(&w);
		if (!r)
			r = step(&w);
	}
	written = sbx_git_durable_end();
	if (!r && written)
		r = sbx_fail(err, -written, "cannot write to the source: %s", strerror(-written));
	while (w.n)
		free(w.stack[--w.n].data);
	free(w.stack);
	sbx_cleanup_fd(&w.store);
	git_odb_free(w.own);
	git_odb_free(w.odb);
	return r;
}
