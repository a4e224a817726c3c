/*
 * An object is moved by a second name and then by the removal of the first, so that it is never
 * nowhere. All have their second name before the first is removed of any, because a git that looks
 * for one now looks in the source's own objects first.
 */
#include "backends/git/store.h"

#include <errno.h>
#include <fcntl.h>
#include <git2/sys/odb_backend.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/git/durable.h"
#include "backends/git/git_impl.h"
#include "backends/git/import_objects.h"
#include "backends/git/store_walk.h"
#include "backends/support/beneath.h"
#include "backends/support/fsutil.h"

#define ROOM     "sandboxfs"
#define OBJECTS  ROOM "/objects"
#define LINE     "../" OBJECTS "\n"
#define WHOLE    "whole"
#define BEGUN    "begun"
#define BRANCHES "branches"
#define LIST_MAX ((size_t)1 << 20)
#define TIPS_MAX ((size_t)64 << 20)
#define FIRST    100 /* above libgit2's own */
#define LAST     1

/* "12/3456..." */
static void path_of(const git_oid *oid, char ret[GIT_OID_HEXSZ + 2])
{
	git_oid_pathfmt(ret, oid);
	ret[GIT_OID_HEXSZ + 1] = '\0';
}

bool sbx_git_store_is(const char *objects)
{
	const size_t n = strlen(objects), m = strlen("/" OBJECTS);

	return n > m && strcmp(objects + n - m, "/" OBJECTS) == 0;
}

static int open_below(const char *common, const char *name)
{
	_cleanup_free_ char *path = sbx_format("%s/%s", common, name);

	return path ? sbx_dir_open(AT_FDCWD, path) : -ENOMEM;
}

int sbx_git_store_open(const char *common)
{
	return open_below(common, OBJECTS);
}

bool sbx_git_store_has(int fd, const git_oid *oid)
{
	char path[GIT_OID_HEXSZ + 2];

	path_of(oid, path);
	return fd >= 0 && faccessat(fd, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

void sbx_git_store_touch(int fd, const git_oid *oid)
{
	char path[GIT_OID_HEXSZ + 2];

	path_of(oid, path);
	utimensat(fd, path, NULL, AT_SYMLINK_NOFOLLOW);
}

static int by_oid(const void *a, const void *b)
{
	return git_oid_cmp(a, b);
}

bool sbx_git_store_lists(const struct sbx_git_tips *sorted, const git_oid *oid)
{
	return sorted->n && bsearch(oid, sorted->at, sorted->n, sizeof(*oid), by_oid);
}

struct listing {
	int fd;
	const char *prefix;
	struct sbx_git_tips *ret;
};

static int list_one(const char *name, unsigned char type, void *data)
{
	const struct listing *l = data;
	char hex[GIT_OID_HEXSZ + 1];
	git_oid oid;

	(void)type;
	if (strlen(name) != GIT_OID_HEXSZ - 2)
		return 0;
	snprintf(hex, sizeof(hex), "%.2s%s", l->prefix, name);
	return git_oid_fromstr(&oid, hex) ? 0 : sbx_git_tips_add(l->ret, &oid);
}

static int list_in(const char *name, unsigned char type, void *data)
{
	struct listing *l = data;
	_cleanup_fd_ int dir = strlen(name) == 2 ? sbx_dir_open(l->fd, name) : -1;

	(void)type;
	l->prefix = name;
	return dir < 0 ? 0 : sbx_dir_scan(dir, list_one, l);
}

int sbx_git_store_list(int fd, struct sbx_git_tips *ret)
{
	_cleanup_fd_ int dir = sbx_dir_open(fd, ".");
	struct listing l = {.fd = fd, .ret = ret};
	int r = dir < 0 ? dir : sbx_dir_scan(dir, list_in, &l);

	if (!r && ret->n)
		qsort(ret->at, ret->n, sizeof(*ret->at), by_oid);
	return r;
}

/* ---- refs that lead to nothing of the store ---- */

static int put_refs(int room, const char *name, const struct sbx_refs *refs)
{
	_cleanup_free_ char *text = sbx_refs_format(refs);

	return text ? sbx_locked_replace(room, name, text, strlen(text), NULL) : -ENOMEM;
}

int sbx_git_store_begun(int room, struct sbx_git_tips *ret)
{
	struct sbx_refs refs = {0};
	int r = sbx_refs_read(room, BEGUN, TIPS_MAX, &refs);

	for (size_t i = 0; i < refs.n && !r; i++)
		r = sbx_git_tips_add(ret, &refs.at[i].oid);
	sbx_refs_release(&refs);
	return r;
}

/* ---- making it ---- */

static bool has_line(const char *list)
{
	return list && (strncmp(list, LINE, strlen(LINE)) == 0 || strstr(list, "\n" LINE));
}

static int add_line(const char *common)
{
	_cleanup_fd_ int objects = open_below(common, "objects"), info = -1;
	_cleanup_free_ char *known = NULL, *text = NULL;
	int fd, r;

	if (objects < 0)
		return objects;
	info = sbx_dir_make(objects, "info", 0777);
	r = info < 0 ? info : sbx_file_read(info, "alternates", LIST_MAX, &known);
	if (r && r != -ENOENT)
		return r;
	if (has_line(known))
		return 0;
	/* git's own lock of it, under which it is read again. */
	fd = sbx_locked_open(info, "alternates");
	if (fd < 0)
		return fd;
	free(known);
	known = NULL;
	r = sbx_file_read(info, "alternates", LIST_MAX, &known);
	if ((!r || r == -ENOENT) && !has_line(known))
		text = sbx_format("%s%s" LINE, known ? known : "",
		                  known && *known && known[strlen(known) - 1] != '\n' ? "\n" : "");
	if (text)
		r = sbx_locked_commit(info, "alternates", fd, text, strlen(text), NULL);
	else
		sbx_locked_end(info, "alternates");
	close(fd);
	return text || has_line(known) ? r : r && r != -ENOENT ? r : -ENOMEM;
}

/*
 * Two sandboxes that are removed at once both begin with it, and each would take the other's lock
 * for one that a dead daemon left. Held wherever a file of the room is locked.
 */
static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;

/* The one that was made last, and the alternates that named it then. */
static struct {
	char *common;
	struct sbx_seen seen;
} made;

static bool is_made(int dir, const char *common)
{
	return made.common && strcmp(made.common, common) == 0 &&
	       sbx_seen_same(dir, "objects/info/alternates", &made.seen) &&
	       faccessat(dir, OBJECTS, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static void note_made(int dir, const char *common)
{
	char *copy = strdup(common);

	if (!copy)
		return;
	free(made.common);
	made.common = copy;
	made.seen = sbx_seen_now(dir, "objects/info/alternates");
}

static int make(git_repository *repo, const char *common)
{
	_cleanup_fd_ int dir = sbx_dir_open(AT_FDCWD, common), room = -1, objects = -1;
	struct sbx_refs refs = {0};
	int r;

	if (dir >= 0 && is_made(dir, common))
		return 0;
	if (dir < 0)
		return dir;
	room = sbx_dir_make(dir, ROOM, 0777);
	if (room < 0)
		return room;
	/* Nothing is in it yet that a ref could lead to. */
	if (faccessat(room, WHOLE, F_OK, AT_SYMLINK_NOFOLLOW) < 0 &&
	    faccessat(room, "objects", F_OK, AT_SYMLINK_NOFOLLOW) < 0) {
		r = sbx_refs_of_source(repo, NULL, &refs, NULL);
		if (!r)
			r = put_refs(room, BEGUN, &refs);
		if (!r)
			r = put_refs(room, WHOLE, &refs);
		sbx_refs_release(&refs);
		if (r)
			return r;
	}
	objects = sbx_dir_make(room, "objects", 0777);
	r = objects < 0 ? objects : add_line(common);
	if (!r)
		note_made(dir, common);
	return r;
}

static int fail(int r)
{
	git_error_set_str(GIT_ERROR_OS, strerror(-r));
	return GIT_ERROR;
}

static int use(git_repository *repo, const char *path)
{
	_cleanup_git_(odb) git_odb *odb = NULL;
	git_odb_backend *loose = NULL;
	int r = git_repository_odb(&odb, repo);

	if (!r)
		r = git_odb_backend_loose(&loose, path, -1, 0, 0, 0);
	return r ? r : git_odb_add_backend(odb, loose, FIRST);
}

int sbx_git_store_use(git_repository *repo)
{
	const char *common = git_repository_commondir(repo);
	_cleanup_free_ char *path = sbx_format("%s" OBJECTS, common);
	struct sbx_git_owner owner = sbx_git_owner_begin(common);
	int r = -ENOMEM;

	if (path) {
		pthread_mutex_lock(&making);
		r = make(repo, common);
		pthread_mutex_unlock(&making);
	}
	sbx_git_owner_end(&owner);
	return r ? fail(r) : use(repo, path);
}

void sbx_git_store_spread(const char *common)
{
	_cleanup_fd_ int objects = sbx_git_store_open(common);
	struct sbx_git_owner owner;
	char name[3];

	if (objects < 0)
		return;
	owner = sbx_git_owner_begin(common);
	for (unsigned i = 0; i < 256; i++) {
		snprintf(name, sizeof(name), "%02x", i);
		mkdirat(objects, name, 0777);
	}
	sbx_git_owner_end(&owner);
}

int sbx_git_store_see(git_odb *odb, const char *common)
{
	_cleanup_free_ char *path = sbx_format("%s/" OBJECTS, common);
	git_odb_backend *loose = NULL;
	int r;

	if (!path)
		return fail(-ENOMEM);
	/* Not git_odb_add_disk_alternate: it passes over a directory that is made later. */
	r = git_odb_backend_loose(&loose, path, -1, 0, 0, 0);
	return r ? r : git_odb_add_alternate(odb, loose, LAST);
}

/* What the source borrows from elsewhere is its own. */
static int add_alternates(git_odb *odb, const char *path)
{
	_cleanup_fd_ int objects = sbx_dir_open(AT_FDCWD, path);
	_cleanup_free_ char *list = NULL;
	char *save = NULL;
	int r = 0;

	if (objects < 0 || sbx_file_read(objects, "info/alternates", LIST_MAX, &list))
		return 0;
	for (char *line = strtok_r(list, "\n", &save); line && !r;
	     line = strtok_r(NULL, "\n", &save)) {
		_cleanup_free_ char *at =
		        line[0] == '/' ? strdup(line) : sbx_format("%s/%s", path, line);

		if (line[0] != '#' && at && !sbx_git_store_is(at))
			r = git_odb_add_disk_alternate(odb, at);
	}
	return r;
}

int sbx_git_store_without(const char *common, git_odb **ret)
{
	_cleanup_free_ char *path = sbx_format("%s/objects", common);
	_cleanup_git_(odb) git_odb *odb = NULL;
	git_odb_backend *loose = NULL, *packed = NULL;
	int r = path ? git_odb_new(&odb) : GIT_ERROR;

	if (!r)
		r = git_odb_backend_loose(&loose, path, -1, 0, 0, 0);
	if (!r)
		r = git_odb_add_backend(odb, loose, 1);
	if (!r)
		r = git_odb_backend_pack(&packed, path);
	if (!r)
		r = git_odb_add_backend(odb, packed, 2);
	if (!r)
		r = add_alternates(odb, path);
	if (!r)
		*ret = sbx_steal_ptr(&odb);
	return r;
}

/* ---- to the source ---- */

struct yielding {
	int store, objects;
	struct sbx_git_tips taken;
	int r; /* of what could not be moved */
};

static int give_name(struct yielding *y, const char *path)
{
	char dir[3] = {path[0], path[1]};

	if (linkat(y->store, path, y->objects, path, 0) == 0 || errno == EEXIST)
		return 0;
	if (errno == ENOENT && mkdirat(y->objects, dir, 0777) < 0 && errno != EEXIST)
		return -errno;
	if (linkat(y->store, path, y->objects, path, 0) == 0 || errno == EEXIST)
		return 0;
	return renameat(y->store, path, y->objects, path) < 0 && errno != ENOENT ? -errno : 0;
}

static int take(const git_oid *oid, void *data)
{
	struct yielding *y = data;
	char path[GIT_OID_HEXSZ + 2];
	int r;

	if (!sbx_git_store_has(y->store, oid))
		return 0;
	path_of(oid, path);
	r = give_name(y, path);
	if (!r)
		return sbx_git_tips_add(&y->taken, oid);
	y->r = y->r ? y->r : r;
	return 0;
}

static void drop_taken(struct yielding *y)
{
	char path[GIT_OID_HEXSZ + 2];

	for (size_t i = 0; i < y->taken.n; i++) {
		path_of(&y->taken.at[i], path);
		unlinkat(y->store, path, 0);
	}
}

static int all_of(const struct sbx_refs *refs, struct sbx_git_tips *ret)
{
	int r = 0;

	for (size_t i = 0; i < refs->n && !r; i++)
		r = sbx_git_tips_add(ret, &refs->at[i].oid);
	if (ret->n)
		qsort(ret->at, ret->n, sizeof(*ret->at), by_oid);
	return r;
}

/*
 * What of REFS is not WHOLE, and what its history ends at. Of a ref that has moved that is
 * where it stood; another may have begun anywhere.
 */
static int find_fresh(const struct sbx_refs *refs, const struct sbx_refs *whole,
                      struct sbx_git_tips *fresh, struct sbx_git_tips *known)
{
	_cleanup_(sbx_git_tips_release) struct sbx_git_tips all = {0};
	bool new = false;
	int r = all_of(whole, &all);

	for (size_t i = 0; i < refs->n && !r; i++) {
		const git_oid *old = sbx_refs_find(whole, refs->at[i].name);

		if (sbx_git_store_lists(&all, &refs->at[i].oid))
			continue;
		r = sbx_git_tips_add(fresh, &refs->at[i].oid);
		if (!r && old)
			r = sbx_git_tips_add(known, old);
		new |= !old;
	}
	return r || !new ? r : all_of(whole, known);
}

static int yield(git_repository *source, const struct sbx_git_tips *fresh,
                 const struct sbx_git_tips *known)
{
	const char *common = git_repository_commondir(source);
	_cleanup_fd_ int store = sbx_git_store_open(common);
	_cleanup_fd_ int objects = open_below(common, "objects");
	struct yielding y = {.store = store, .objects = objects};
	int r = store < 0 ? store : objects < 0 ? objects : 0;

	if (!r)
		r = sbx_git_store_walk(source, fresh, known, take, &y);
	drop_taken(&y);
	sbx_git_tips_release(&y.taken);
	return r ? r : y.r;
}

int sbx_git_store_yield(git_repository *source, const struct sbx_refs *refs, struct sbx_error *err)
{
	const char *common = git_repository_commondir(source);
	_cleanup_fd_ int room = open_below(common, ROOM);
	_cleanup_(sbx_git_tips_release) struct sbx_git_tips fresh = {0}, known = {0};
	struct sbx_refs whole = {0};
	struct sbx_git_owner owner;
	int r = room < 0 ? room : sbx_refs_read(room, WHOLE, TIPS_MAX, &whole);

	if (r)
		return r == -ENOENT ? 0 : sbx_fail(err, -r, "cannot read %s/" ROOM, common);
	r = find_fresh(refs, &whole, &fresh, &known);
	sbx_refs_release(&whole);
	if (r || !fresh.n)
		return r;
	owner = sbx_git_owner_begin(common);
	r = yield(source, &fresh, &known);
	if (!r) {
		pthread_mutex_lock(&making);
		r = put_refs(room, WHOLE, refs);
		pthread_mutex_unlock(&making);
	}
	sbx_git_owner_end(&owner);
	/* Another daemon has just done the same, or took the lock for one that a dead one left. */
	if (r == -EBUSY || r == -ENOENT)
		r = 0;
	return r ? sbx_fail(err, -r, "cannot move objects of %s out of " ROOM ": %s", common,
	                    strerror(-r))
	         : 0;
}

/* ---- to a sandbox ---- */

int sbx_git_store_give(int fd, int objects, const git_oid *oid)
{
	_cleanup_fd_ int from = -1, dir = -1, to = -1;
	char path[GIT_OID_HEXSZ + 2], temp[32];
	const char *name;
	int r;

	path_of(oid, path);
	from = openat(fd, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (from < 0)
		return -errno;
	dir = sbx_beneath_parent(objects, path, &name);
	if (dir < 0)
		return dir;
	if (faccessat(dir, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return 0;
	snprintf(temp, sizeof(temp), "tmp_obj_%.12s", name);
	unlinkat(dir, temp, 0);
	to = openat(dir, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0444);
	r = to < 0 ? -errno : sbx_file_copy(from, to);
	/* Else a power cut leaves the name and nothing in it, which git takes for damage. */
	if (!r && (fsync(to) < 0 || renameat(dir, temp, dir, name) < 0))
		r = -errno;
	if (r && to >= 0)
		unlinkat(dir, temp, 0);
	return r;
}

struct giving {
	int store, objects;
};

static int give(const git_oid *oid, void *data)
{
	const struct giving *g = data;
	const int r = sbx_git_store_has(g->store, oid)
	                      ? sbx_git_store_give(g->store, g->objects, oid)
	                      : 0;

	return r == -ENOENT ? 0 : r;
}

int sbx_git_store_give_all(git_repository *source, int objects, const git_oid *from,
                           const struct sbx_git_tips *known)
{
	_cleanup_fd_ int store = sbx_git_store_open(git_repository_commondir(source));
	struct giving g = {.store = store, .objects = objects};
	git_oid first = *from;
	const struct sbx_git_tips tips = {.at = &first, .n = 1};
	int r, end;

	if (store < 0)
		return store == -ENOENT ? 0 : store;
	sbx_git_durable_begin();
	r = sbx_git_store_walk(source, &tips, known, give, &g);
	end = sbx_git_durable_end();
	return r ? r : end;
}

/* ---- branches of sandboxes ---- */

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

int sbx_git_store_marked(const char *common, struct sbx_strings *ret)
{
	_cleanup_fd_ int room = open_below(common, ROOM);
	_cleanup_free_ char *text = NULL;
	char *save = NULL;
	int r = room < 0 ? room : sbx_file_read(room, BRANCHES, LIST_MAX, &text);

	if (r)
		return r == -ENOENT ? 0 : r;
	for (char *line = strtok_r(text, "\n", &save); line && !r;
	     line = strtok_r(NULL, "\n", &save))
		r = sbx_strings_add(ret, line);
	if (ret->n)
		qsort(ret->items, ret->n, sizeof(*ret->items), by_name);
	return r;
}

static const char *find_mark(const struct sbx_strings *marked, const char *branch)
{
	char *const *at = marked->n ? bsearch(&branch, marked->items, marked->n,
	                                      sizeof(*marked->items), by_name)
	                            : NULL;

	return at ? *at : NULL;
}

const char *sbx_git_store_mark_of(const struct sbx_strings *marked, const char *name)
{
	const char *found = NULL;

	if (strncmp(name, "refs/heads/", 11) == 0)
		return find_mark(marked, name + 11);
	if (strncmp(name, "refs/remotes/", 13) != 0)
		return NULL;
	/* A remote may have a slash in its name. */
	for (const char *at = strchr(name + 13, '/'); at && !found; at = strchr(at + 1, '/'))
		found = find_mark(marked, at + 1);
	return found;
}

/* Those that are gone are dropped with SOURCE. */
static char *marked_text(git_repository *source, const struct sbx_strings *marked,
                         const char *branch)
{
	char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	for (size_t i = 0; i < marked->n && f; i++) {
		_cleanup_free_ char *ref = sbx_format("refs/heads/%s", marked->items[i]);
		git_oid oid;

		if (!source || (ref && git_reference_name_to_id(&oid, source, ref) == 0))
			fprintf(f, "%s\n", marked->items[i]);
	}
	if (!f)
		return NULL;
	fprintf(f, "%s\n", branch);
	if (fclose(f) == 0)
		return text;
	free(text);
	return NULL;
}

/* Looking at all of them each time would cost the more the more there are. */
static bool is_due(size_t n)
{
	return n >= 16 && (n & (n - 1)) == 0;
}

static int add_mark(git_repository *source, int room, const char *branch, bool locked)
{
	_cleanup_(sbx_strings_release) struct sbx_strings marked = {0};
	_cleanup_free_ char *text = NULL;
	int fd = sbx_locked_open(room, BRANCHES), r;

	if (fd < 0)
		return fd;
	r = sbx_git_store_marked(git_repository_commondir(source), &marked);
	if (!r && find_mark(&marked, branch)) {
		sbx_locked_end(room, BRANCHES);
		close(fd);
		return 0;
	}
	text = r ? NULL : marked_text(locked && is_due(marked.n) ? source : NULL, &marked, branch);
	if (text)
		r = sbx_locked_commit(room, BRANCHES, fd, text, strlen(text), NULL);
	else
		sbx_locked_end(room, BRANCHES);
	close(fd);
	return text ? r : r ? r : -ENOMEM;
}

int sbx_git_store_mark(git_repository *source, const char *branch, bool locked)
{
	const char *common = git_repository_commondir(source);
	_cleanup_(sbx_strings_release) struct sbx_strings marked = {0};
	_cleanup_fd_ int room = -1;
	struct sbx_git_owner owner;
	int r = sbx_git_store_marked(common, &marked);

	if (r || find_mark(&marked, branch))
		return r;
	owner = sbx_git_owner_begin(common);
	pthread_mutex_lock(&making);
	r = make(source, common);
	if (!r)
		r = room = open_below(common, ROOM);
	if (r >= 0)
		r = add_mark(source, room, branch, locked);
	pthread_mutex_unlock(&making);
	sbx_git_owner_end(&owner);
	return r;
}

static int find_any(const git_oid *oid, void *data)
{
	return sbx_git_store_has(*(const int *)data, oid) ? -EEXIST : 0;
}

int sbx_git_store_leads(git_repository *source, const git_oid *commit)
{
	const char *common = git_repository_commondir(source);
	_cleanup_fd_ int store = sbx_git_store_open(common);
	_cleanup_fd_ int room = store < 0 ? -1 : open_below(common, ROOM);
	_cleanup_(sbx_git_tips_release) struct sbx_git_tips known = {0};
	struct sbx_refs whole = {0};
	git_oid first = *commit;
	const struct sbx_git_tips tips = {.at = &first, .n = 1};
	int r;

	if (store < 0)
		return store == -ENOENT ? 0 : store;
	r = room < 0 ? room : sbx_refs_read(room, WHOLE, TIPS_MAX, &whole);
	if (!r)
		r = all_of(&whole, &known);
	sbx_refs_release(&whole);
	if (r || sbx_git_store_lists(&known, commit))
		return r;
	r = sbx_git_store_walk(source, &tips, &known, find_any, &store);
	return r == -EEXIST ? 1 : r;
}

int sbx_git_store_mark_led(git_repository *source, const char *branch, const git_oid *commit)
{
	const int leads = sbx_git_store_leads(source, commit);

	return leads == 1 ? sbx_git_store_mark(source, branch, true) : leads;
}

static int trust(const git_oid *oid, void *data)
{
	sbx_git_taken_trust(data, oid);
	return 0;
}

int sbx_git_store_trust(git_repository *source, const struct sbx_git_tips *tips,
                        struct sbx_git_taken *taken)
{
	const char *common = git_repository_commondir(source);
	_cleanup_fd_ int room = open_below(common, ROOM);
	_cleanup_(sbx_git_tips_release) struct sbx_git_tips known = {0};
	struct sbx_refs whole = {0};
	int r;

	if (room < 0)
		return room == -ENOENT ? 0 : room;
	r = sbx_refs_read(room, WHOLE, TIPS_MAX, &whole);
	if (!r)
		r = all_of(&whole, &known);
	sbx_refs_release(&whole);
	return r ? r : sbx_git_store_walk(source, tips, &known, trust, taken);
}

int sbx_git_store_trust_files(git_repository *source, const git_oid *commit, const git_oid *base,
                              struct sbx_git_taken *taken)
{
	_cleanup_fd_ int store = sbx_git_store_open(git_repository_commondir(source));

	/* What the base has was never read of the sandbox where that is another's alone. */
	return sbx_git_store_walk_files(source, commit,
	                                base && !sbx_git_store_has(store, base) ? base : NULL,
	                                trust, taken);
}
