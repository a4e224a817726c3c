/*
 * gitrepository-layout(5): a ref is a small file of its own, or a line of packed-refs, which the
 * file outranks. Of many we write packed-refs, whole, and take away the files that would outrank
 * it.
 */
#include "backends/git/refs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/git/git_impl.h"
#include "backends/support/beneath.h"
#include "backends/support/fsutil.h"
#include "sandboxfs/grow.h"

#define REFS_MAX   500000
#define DIRS_MAX   4096
#define PACKED_MAX ((size_t)32 * 1024 * 1024)
#define LOOSE_MAX  256
#define HEX        GIT_OID_HEXSZ

/* ---- lists ---- */

int sbx_refs_add(struct sbx_refs *refs, const char *name, const git_oid *oid)
{
	char *copy;

	if (refs->n == REFS_MAX)
		return -E2BIG;
	if (SBX_GROW(refs->at, refs->n, refs->cap, 16))
		return -ENOMEM;
	copy = strdup(name);
	if (!copy)
		return -ENOMEM;
	refs->at[refs->n++] = (struct sbx_ref){.name = copy, .oid = *oid};
	return 0;
}

void sbx_refs_release(struct sbx_refs *refs)
{
	for (size_t i = 0; i < refs->n; i++)
		free(refs->at[i].name);
	free(refs->at);
	*refs = (struct sbx_refs){0};
}

static void merge_halves(struct sbx_ref *at, struct sbx_ref *room, size_t half, size_t n)
{
	size_t a = 0, b = half;

	for (size_t i = 0; i < n; i++)
		room[i] = b == n || (a < half && strcmp(at[a].name, at[b].name) <= 0) ? at[a++]
		                                                                      : at[b++];
	memcpy(at, room, n * sizeof(*at));
}

/* Stable, unlike qsort. */
static void merge_sort(struct sbx_ref *at, struct sbx_ref *room, size_t n)
{
	if (n < 2)
		return;
	merge_sort(at, room, n / 2);
	merge_sort(at + n / 2, room, n - n / 2);
	merge_halves(at, room, n / 2, n);
}

void sbx_refs_sort(struct sbx_refs *refs)
{
	struct sbx_ref *room = calloc(refs->n + 1, sizeof(*room));
	size_t kept = 0;

	if (!room)
		abort();
	merge_sort(refs->at, room, refs->n);
	free(room);
	for (size_t i = 0; i < refs->n; i++) {
		if (kept && strcmp(refs->at[kept - 1].name, refs->at[i].name) == 0)
			free(refs->at[i].name);
		else
			refs->at[kept++] = refs->at[i];
	}
	refs->n = kept;
}

const git_oid *sbx_refs_find(const struct sbx_refs *refs, const char *name)
{
	size_t lo = 0, hi = refs->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		int c = strcmp(name, refs->at[mid].name);

		if (!c)
			return &refs->at[mid].oid;
		if (c > 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return NULL;
}

bool sbx_refs_equal(const struct sbx_refs *a, const struct sbx_refs *b)
{
	if (a->n != b->n)
		return false;
	for (size_t i = 0; i < a->n; i++)
		if (strcmp(a->at[i].name, b->at[i].name) != 0 ||
		    !git_oid_equal(&a->at[i].oid, &b->at[i].oid))
			return false;
	return true;
}

char *sbx_refs_format(const struct sbx_refs *refs)
{
	char *text = NULL, hex[HEX + 1];
	size_t len;
	FILE *f = open_memstream(&text, &len);

	if (!f)
		return NULL;
	fputs("# pack-refs with: sorted \n", f);
	for (size_t i = 0; i < refs->n; i++)
		fprintf(f, "%s %s\n", git_oid_tostr(hex, sizeof(hex), &refs->at[i].oid),
		        refs->at[i].name);
	if (fclose(f) != 0) {
		free(text);
		return NULL;
	}
	return text;
}

static const char *const seen[] = {"refs/heads/", "refs/tags/", "refs/remotes/", "refs/notes/",
                                   "refs/replace/"};

static bool is_seen(const char *name)
{
	int valid = 0;

	for (size_t i = 0; i < SBX_ARRAY_SIZE(seen); i++)
		if (strncmp(name, seen[i], strlen(seen[i])) == 0)
			return git_reference_name_is_valid(&valid, name) == 0 && valid;
	return strcmp(name, "refs/stash") == 0;
}

static int parse_line(const char *line, size_t len, struct sbx_refs *ret)
{
	_cleanup_free_ char *name = NULL;
	int valid = 0;
	git_oid oid;

	if (len < HEX + 2 || line[HEX] != ' ' || git_oid_fromstrn(&oid, line, HEX))
		return 0;
	name = strndup(line + HEX + 1, len - HEX - 1);
	if (!name)
		return -ENOMEM;
	if (git_reference_name_is_valid(&valid, name) < 0 || !valid)
		return 0;
	return sbx_refs_add(ret, name, &oid);
}

int sbx_refs_parse(const char *text, struct sbx_refs *ret)
{
	int r = 0;

	while (*text && !r) {
		size_t len = strcspn(text, "\n");

		r = parse_line(text, len, ret);
		text += len + (text[len] == '\n');
	}
	return r;
}

int sbx_refs_read(int dir, const char *name, size_t most, struct sbx_refs *ret)
{
	_cleanup_free_ char *text = NULL;
	int r = sbx_file_read(dir, name, most, &text);

	if (!r)
		r = sbx_refs_parse(text, ret);
	sbx_refs_sort(ret);
	return r == -ENOENT ? 0 : r;
}

bool sbx_reflog_next(const char **at, struct sbx_reflog *ret)
{
	while (**at) {
		const char *line = *at, *end = line + strcspn(line, "\n");
		const char *tab = memchr(line, '\t', (size_t)(end - line));

		*at = end + (*end == '\n');
		if (end - line < 2 * HEX + 2 || git_oid_fromstrn(&ret->old, line, HEX) ||
		    git_oid_fromstrn(&ret->new, line + HEX + 1, HEX))
			continue;
		ret->text = tab ? tab + 1 : end;
		return true;
	}
	return false;
}

/* ---- of the source ---- */

/*
 * By a pattern: of what it does not begin with libgit2 then opens no file, and others may have
 * thousands.
 */
static int add_below(git_repository *source, const char *prefix, bool all, struct sbx_refs *ret,
                     struct sbx_error *err)
{
	_cleanup_free_ char *glob = sbx_format("%s*", prefix);
	_cleanup_git_(iterator) git_reference_iterator *it = NULL;
	int r = glob ? git_reference_iterator_glob_new(&it, source, glob) : GIT_ERROR, added = 0;

	while (!r && !added) {
		_cleanup_git_(reference) git_reference *ref = NULL;
		const char *name;

		r = git_reference_next(&ref, it);
		if (r || git_reference_type(ref) != GIT_REFERENCE_DIRECT)
			continue;
		name = git_reference_name(ref);
		if (strncmp(name, prefix, strlen(prefix)) == 0 && (all || is_seen(name)))
			added = sbx_refs_add(ret, name, git_reference_target(ref));
	}
	if (added)
		return sbx_fail(err, -added, "the source has too many refs");
	return r == GIT_ITEROVER ? 0 : sbx_git_fail(err, r, "cannot read the refs of the source");
}

int sbx_refs_of_source(git_repository *source, const char *prefix, struct sbx_refs *ret,
                       struct sbx_error *err)
{
	int r = prefix ? add_below(source, prefix, true, ret, err) : 0;

	/* The source's stash is not the sandbox's. */
	for (size_t i = 0; !prefix && !r && i < SBX_ARRAY_SIZE(seen); i++)
		r = add_below(source, seen[i], false, ret, err);
	sbx_refs_sort(ret);
	return r;
}

/* ---- of a private repository ---- */

struct loose {
	int dirfd;
	const char *path; /* of the directory that is being read */
	struct sbx_strings dirs;
	size_t seen;
	struct sbx_refs *refs;
};

/* 0 with the oid, or negative: no direct ref stands there. */
static int read_loose(int dirfd, const char *path, git_oid *oid)
{
	_cleanup_free_ char *text = NULL;
	size_t len;
	int r = sbx_beneath_read(dirfd, path, LOOSE_MAX, &text, &len, NULL);

	if (r)
		return r;
	if (len < HEX || (text[HEX] && text[HEX] != '\n') || git_oid_fromstrn(oid, text, HEX))
		return -EINVAL;
	return 0;
}

/* PATH is what a crash of ours has left beside a ref. */
static void clear_lock(const struct loose *l, const char *path)
{
	const char *name;
	_cleanup_fd_ int dir = sbx_beneath_parent(l->dirfd, path, &name);
	_cleanup_free_ char *ref = strndup(name, strlen(name) - strlen(SBX_LOCKED_SUFFIX));

	if (dir >= 0 && ref)
		sbx_locked_clear(dir, ref);
}

static int find_loose(const char *name, unsigned char type, void *data)
{
	struct loose *l = data;
	_cleanup_free_ char *path = sbx_format("%s/%s", l->path, name);
	size_t n = strlen(name), suffix = strlen(SBX_LOCKED_SUFFIX);
	git_oid oid;

	if (!path)
		return -ENOMEM;
	if (type == DT_REG && n > suffix && !strcmp(name + n - suffix, SBX_LOCKED_SUFFIX)) {
		clear_lock(l, path);
		return 0;
	}
	if (type == DT_DIR)
		return ++l->seen > DIRS_MAX ? -E2BIG : sbx_strings_add(&l->dirs, path);
	if (type != DT_REG || !is_seen(path) || read_loose(l->dirfd, path, &oid))
		return 0;
	return sbx_refs_add(l->refs, path, &oid);
}

static int read_all_loose(int dirfd, struct sbx_refs *ret)
{
	struct loose l = {.dirfd = dirfd, .refs = ret};
	int r = sbx_strings_add(&l.dirs, "refs");
	char *path;

	while (!r && (path = sbx_strings_take(&l.dirs))) {
		_cleanup_fd_ int fd = sbx_beneath_open(dirfd, path, O_RDONLY | O_DIRECTORY);

		l.path = path;
		r = fd < 0 ? 0 : sbx_dir_scan(fd, find_loose, &l);
		free(path);
	}
	sbx_strings_release(&l.dirs);
	return r;
}

static void drop_unseen(struct sbx_refs *refs)
{
	size_t kept = 0;

	for (size_t i = 0; i < refs->n; i++)
		if (is_seen(refs->at[i].name))
			refs->at[kept++] = refs->at[i];
		else
			free(refs->at[i].name);
	refs->n = kept;
}

/* 0 also when there is none. */
static int read_packed(int dirfd, struct sbx_refs *ret)
{
	_cleanup_free_ char *packed = NULL;
	size_t len;
	int r = sbx_beneath_read(dirfd, "packed-refs", PACKED_MAX, &packed, &len, NULL);

	if (r)
		return r == -ENOENT ? 0 : r;
	return sbx_refs_parse(packed, ret);
}

int sbx_refs_of_private(int dirfd, struct sbx_refs *ret)
{
	int r = read_all_loose(dirfd, ret);

	if (!r)
		r = read_packed(dirfd, ret);
	drop_unseen(ret);
	if (!r)
		sbx_refs_sort(ret);
	return r;
}

/* Takes the file of PATH away as long as it says WAS, under git's lock of it. */
static int remove_loose(int dirfd, const char *path, const git_oid *was)
{
	_cleanup_fd_ int dir = -1;
	const char *name;
	git_oid now;
	int r;

	if (read_loose(dirfd, path, &now) || !git_oid_equal(&now, was))
		return 0;
	dir = sbx_beneath_parent(dirfd, path, &name);
	r = dir < 0 ? dir : sbx_locked_begin(dir, name);
	if (r)
		return r;
	if (!read_loose(dirfd, path, &now) && git_oid_equal(&now, was))
		unlinkat(dir, name, 0);
	sbx_locked_end(dir, name);
	return 0;
}

static bool differs(const git_oid *a, const git_oid *b)
{
	return !a != !b || (a && !git_oid_equal(a, b));
}

/* Whether the ref stands at OID (NULL: is not there). */
static bool stands_at(int dirfd, const char *ref, const git_oid *oid)
{
	struct sbx_refs packed = {0};
	git_oid now;
	bool same;

	if (!read_loose(dirfd, ref, &now))
		return !differs(&now, oid);
	same = !read_packed(dirfd, &packed);
	sbx_refs_sort(&packed);
	same = same && !differs(sbx_refs_find(&packed, ref), oid);
	sbx_refs_release(&packed);
	return same;
}

int sbx_refs_move_private(int dirfd, const char *ref, const git_oid *old, const git_oid *new)
{
	_cleanup_fd_ int dir = -1, lock = -1;
	char line[HEX + 2];
	const char *name;

	dir = sbx_beneath_parent(dirfd, ref, &name);
	lock = dir < 0 ? dir : sbx_locked_open(dir, name);
	if (lock < 0)
		return lock;
	if (!stands_at(dirfd, ref, old)) {
		sbx_locked_end(dir, name);
		return -EAGAIN;
	}
	git_oid_tostr(line, sizeof(line), new);
	line[HEX] = '\n';
	return sbx_locked_commit(dir, name, lock, line, HEX + 1, NULL);
}

/* WANT, but what commands have changed since HAVE was read stays as it is NOW. */
static int resolve(const struct sbx_refs *have, const struct sbx_refs *want,
                   const struct sbx_refs *now, struct sbx_refs *ret)
{
	const struct sbx_refs *from[] = {want, now};
	int r = 0;

	for (size_t i = 0; i < SBX_ARRAY_SIZE(from); i++)
		for (size_t k = 0; k < from[i]->n && !r; k++) {
			const char *name = from[i]->at[k].name;
			const git_oid *is = sbx_refs_find(now, name);
			const git_oid *to = differs(is, sbx_refs_find(have, name))
			                            ? is
			                            : sbx_refs_find(want, name);

			r = to ? sbx_refs_add(ret, name, to) : 0;
		}
	sbx_refs_sort(ret);
	return r;
}

/* Under the lock, without which no command's git packs or removes a ref. */
static char *resolved_text(int dirfd, const struct sbx_refs *have, const struct sbx_refs *want,
                           int *r)
{
	struct sbx_refs now = {0}, to = {0};
	char *text = NULL;

	*r = sbx_refs_of_private(dirfd, &now);
	if (!*r)
		*r = resolve(have, want, &now, &to);
	if (!*r) {
		text = sbx_refs_format(&to);
		*r = text ? 0 : -ENOMEM;
	}
	sbx_refs_release(&now);
	sbx_refs_release(&to);
	return text;
}

int sbx_refs_set_private(int dirfd, const struct sbx_refs *have, const struct sbx_refs *want)
{
	_cleanup_fd_ int lock = sbx_locked_open(dirfd, "packed-refs");
	_cleanup_free_ char *text = NULL;
	int r;

	if (lock < 0)
		return lock;
	text = resolved_text(dirfd, have, want, &r);
	if (r)
		sbx_locked_end(dirfd, "packed-refs");
	else
		r = sbx_locked_commit(dirfd, "packed-refs", lock, text, strlen(text), NULL);
	for (size_t i = 0; i < have->n && !r; i++)
		if (differs(&have->at[i].oid, sbx_refs_find(want, have->at[i].name)))
			r = remove_loose(dirfd, have->at[i].name, &have->at[i].oid);
	return r;
}
