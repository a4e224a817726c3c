/*
 * Taking files out of a tree that the host may be changing. A file is linked first and then renamed
 * to a name of ours: what was renamed is compared with what was linked, and linked too when it is
 * another file that came in between. So a crash at any moment leaves the file in the tree or here,
 * and no writer loses to a race.
 */
#include "backends/local/history/aside.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "backends/git/index_tree.h"
#include "backends/local/history/history_impl.h"
#include "backends/local/overlay/paths.h"
#include "backends/support/beneath.h"
#include "backends/support/tree.h"
#include "sandboxfs/cleanup.h"

#define ASIDE    "aside"
#define REPOS    "repos"
#define UNNAMED  "new" /* in REPOS */
#define ROUNDS   3     /* at a directory in which something new appears */
#define VERSIONS 64    /* of one path */
#define HEEDED   64    /* files */
#define RECENT_S 60    /* since it was written to */
#define LIST_MAX ((size_t)64 << 20)

/* A file that was copied, and its copy. */
struct sbx_aside_copy {
	int fd, copy;
	struct stat st;
};

/* One directory in its three places. */
struct spot {
	int merged, own, kept; /* own: -1 where the sandbox has nothing of its own */
};

static void spot_release(struct spot *s)
{
	sbx_cleanup_fd(&s->merged);
	sbx_cleanup_fd(&s->own);
	sbx_cleanup_fd(&s->kept);
}

static int failed(const struct sbx_aside *a, int r, const char *path)
{
	return a->err->code ? r : sbx_fail(a->err, -r, "cannot keep %s: %s", path, strerror(-r));
}

/* ---- the directory ---- */

void sbx_aside_name(char ret[SBX_ASIDE_NAME_MAX])
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	snprintf(ret, SBX_ASIDE_NAME_MAX, "%" PRIx64 "-%lx", (uint64_t)ts.tv_sec, ts.tv_nsec);
}

const struct sbx_aside sbx_no_aside = {
        .dir = -1, .files = -1, .links = -1, .own = -1, .temp = -1, .own_temp = -1};

/* Of the directories for PLACE the one called HOME. */
static int open_home(const struct sbx_snapshot_context *context, const char *home, bool make)
{
	_cleanup_fd_ int dir = sbx_local_history_dir(context, NULL);

	if (dir < 0)
		return dir;
	return make ? sbx_dir_make(dir, home, 0700) : sbx_dir_open(dir, home);
}

static int open_own(const struct sbx_snapshot_context *context)
{
	return context->rec->layer ? sbx_local_upper(context->b, context->rec, context->disk)
	                           : sbx_beneath_open(context->root, ".", O_RDONLY | O_DIRECTORY);
}

static int open_temp(struct sbx_aside *a)
{
	a->temp = sbx_local_history_temp_open(a->context->root);
	if (a->temp < 0)
		return a->temp;
	a->own_temp = sbx_dir_open(a->own, SBX_CAPTURE_TEMP);
	return a->own_temp < 0 ? a->own_temp : 0;
}

static int open_dirs(const struct sbx_snapshot_context *context, const char *home, const char *name,
                     struct sbx_aside *ret)
{
	_cleanup_fd_ int dir = open_home(context, home, true);

	*ret = sbx_no_aside;
	ret->context = context;
	ret->dir = dir < 0 ? dir : sbx_dir_make(dir, name, 0700);
	ret->files = ret->dir < 0 ? ret->dir : sbx_dir_make(ret->dir, "files", 0700);
	ret->links = ret->files < 0 ? ret->files : sbx_dir_make(ret->dir, "links", 0700);
	return ret->links < 0 ? ret->links : 0;
}

static bool has_entries(int dir)
{
	_cleanup_(sbx_strings_release) struct sbx_strings names = {0};

	return sbx_dir_names(dir, &names) || names.n > 0;
}

int sbx_aside_open(const struct sbx_snapshot_context *context, const char *name,
                   struct sbx_aside *ret, struct sbx_error *err)
{
	int r = open_dirs(context, ASIDE, name, ret);

	ret->err = err;
	/* What one that was broken off has taken. */
	ret->several = !r && has_entries(ret->files);
	ret->own = r ? -1 : open_own(context);
	if (!r)
		r = ret->own < 0 ? ret->own : open_temp(ret);
	return r ? sbx_fail(err, -r, "cannot keep what is replaced: %s", strerror(-r)) : 0;
}

static int find(const struct sbx_snapshot_context *context, const char *home, const char *name,
                struct sbx_aside *ret)
{
	_cleanup_fd_ int dir = open_home(context, home, false);

	*ret = sbx_no_aside;
	ret->context = context;
	ret->dir = dir < 0 ? dir : sbx_dir_open(dir, name);
	ret->files = ret->dir < 0 ? ret->dir : sbx_dir_open(ret->dir, "files");
	return ret->files < 0 ? ret->files : 0;
}

int sbx_aside_find(const struct sbx_snapshot_context *context, const char *name,
                   struct sbx_aside *ret)
{
	return find(context, ASIDE, name, ret);
}

void sbx_aside_drop_others(const struct sbx_snapshot_context *context, const char *keep)
{
	_cleanup_fd_ int home = open_home(context, ASIDE, false);
	_cleanup_(sbx_strings_release) struct sbx_strings names = {0};

	if (home < 0 || sbx_dir_names(home, &names))
		return;
	for (size_t i = 0; i < names.n; i++)
		if (!keep || strcmp(names.items[i], keep) != 0)
			sbx_tree_remove(home, names.items[i], NULL);
}

/* ---- lists ---- */

static int append(const struct sbx_aside *a, const char *list, const char *text, size_t len)
{
	_cleanup_fd_ int fd =
	        openat(a->dir, list, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);

	return fd < 0 ? -errno : sbx_write_all(fd, text, len);
}

int sbx_aside_list(const struct sbx_aside *a, const char *list, char **ret, size_t *len)
{
	int r = sbx_beneath_read(a->dir, list, LIST_MAX, ret, len, NULL);

	if (r != -ENOENT)
		return r;
	*ret = calloc(1, 1);
	*len = 0;
	return *ret ? 0 : -ENOMEM;
}

static bool aside_lists(const char *text, size_t len, const char *path)
{
	for (const char *at = text; at && at < text + len; at += strlen(at) + 1)
		if (strcmp(at, path) == 0)
			return true;
	return false;
}

/* ---- directories ---- */

static int compare(const void *a, const void *b)
{
	return strcmp(a, b);
}

/* Notes what the directory PATH of the tree is like; FD is its. */
static int note_dir(struct sbx_aside *a, const char *path, int fd)
{
	_cleanup_free_ char *line = NULL, *copy = NULL;
	struct stat st;
	int r;

	if (tfind(path, &a->noted, compare))
		return 0;
	if (fstat(fd, &st) < 0)
		return -errno;
	copy = strdup(path);
	line = sbx_format("%o %lld %ld %s", st.st_mode & 07777, (long long)st.st_mtim.tv_sec,
	                  st.st_mtim.tv_nsec, path);
	if (!line || !copy)
		return -ENOMEM;
	r = append(a, "dirs", line, strlen(line) + 1);
	if (!r && !tsearch(copy, &a->noted, compare))
		r = -ENOMEM;
	if (!r)
		sbx_steal_ptr(&copy);
	return r;
}

/* Makes the counterpart of the directory PATH. */
static int keep_dir(struct sbx_aside *a, const char *path)
{
	_cleanup_fd_ int fd = sbx_beneath_open(a->context->root, path, O_PATH | O_DIRECTORY);
	int r = fd < 0 ? fd : note_dir(a, path, fd);

	if (!r && mkdirat(a->files, path, 0700) < 0 && errno != EEXIST)
		r = -errno;
	if (!r)
		sbx_local_history_make_accessible(fd, R_OK | W_OK | X_OK);
	return r;
}

int sbx_aside_note(struct sbx_aside *a, const char *path)
{
	_cleanup_free_ char *part = strdup(path);
	char *slash = part ? strrchr(part, '/') : NULL;

	if (!part)
		return -ENOMEM;
	for (; slash; slash = strrchr(part, '/')) {
		_cleanup_fd_ int fd = -1;
		int r;

		*slash = '\0';
		if (tfind(part, &a->noted, compare))
			return 0;
		fd = sbx_beneath_open(a->context->root, part, O_PATH | O_DIRECTORY);
		r = fd == -ENOENT || fd == -ENOTDIR || fd == -ELOOP ? 0
		    : fd < 0                                        ? fd
		                                                    : note_dir(a, part, fd);
		if (r)
			return r;
	}
	return 0;
}

/* A file that was taken from where a directory is by now gets another name. */
static int clear_way(const struct sbx_aside *a, const char *path)
{
	struct stat st;

	if (fstatat(a->files, path, &st, AT_SYMLINK_NOFOLLOW) < 0 || S_ISDIR(st.st_mode))
		return 0;
	for (int i = 1; i < VERSIONS; i++) {
		_cleanup_free_ char *to = sbx_format("%s.~%d~", path, i);

		if (!to)
			return -ENOMEM;
		if (renameat2(a->files, path, a->files, to, RENAME_NOREPLACE) == 0)
			return 0;
		if (errno != EEXIST)
			return -errno;
	}
	return -EEXIST;
}

static int open_kept(struct sbx_aside *a, const char *path)
{
	_cleanup_free_ char *part = strdup(path);
	int fd = *path ? sbx_beneath_open(a->files, path, O_PATH | O_DIRECTORY)
	               : sbx_dir_open(a->files, ".");
	int r = 0;

	if (fd != -ENOENT && fd != -ENOTDIR)
		return fd;
	if (!part)
		return -ENOMEM;
	for (char *at = part; !r && at; at = strchr(at + 1, '/')) {
		char *slash = strchr(at + 1, '/');

		if (slash)
			*slash = '\0';
		r = clear_way(a, part);
		if (!r && faccessat(a->files, part, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
			r = keep_dir(a, part);
		if (slash)
			*slash = '/';
	}
	return r ? r : sbx_beneath_open(a->files, path, O_PATH | O_DIRECTORY);
}

static int enter(struct sbx_aside *a, const char *path, struct spot *ret)
{
	const char *at = *path ? path : ".";

	*ret = (struct spot){.merged = -1, .own = -1, .kept = -1};
	ret->merged = sbx_beneath_open(a->context->root, at, O_PATH | O_DIRECTORY);
	if (ret->merged < 0)
		return ret->merged;
	ret->kept = open_kept(a, path);
	if (ret->kept < 0)
		return ret->kept;
	sbx_local_history_make_accessible(ret->merged, R_OK | W_OK | X_OK);
	ret->own = sbx_beneath_open(a->own, at, O_PATH | O_DIRECTORY);
	return ret->own == -EMFILE || ret->own == -ENFILE || ret->own == -ENOMEM ? ret->own : 0;
}

/* The directory that PATH lies in, and its last part. */
static int enter_parent(struct sbx_aside *a, const char *path, struct spot *ret, const char **name)
{
	const char *slash = strrchr(path, '/');
	_cleanup_free_ char *dir = strndup(path, slash ? (size_t)(slash - path) : 0);

	*name = slash ? slash + 1 : path;
	*ret = (struct spot){.merged = -1, .own = -1, .kept = -1};
	return dir ? enter(a, dir, ret) : -ENOMEM;
}

/* ---- a file ---- */

static bool is_same_state(const struct stat *a, const struct stat *b)
{
	return a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
	       a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static bool is_same(const struct stat *a, const struct stat *b)
{
	return a->st_ino == b->st_ino && a->st_dev == b->st_dev;
}

/* One more link to NAME in FROM, as NAME in KEPT or, where that is another file's, beside it. */
static int link_beside(int from, const char *name, const struct spot *at, const char *as)
{
	struct stat here, there;

	if (fstatat(from, name, &here, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	for (int i = 0; i < VERSIONS; i++) {
		_cleanup_free_ char *to = i ? sbx_format("%s.~%d~", as, i) : strdup(as);

		if (!to)
			return -ENOMEM;
		if (linkat(from, name, at->kept, to, 0) == 0)
			return 0;
		if (errno != EEXIST)
			return -errno;
		if (fstatat(at->kept, to, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
		    is_same(&here, &there))
			return 0;
	}
	return -EEXIST;
}

static unsigned char type_of(const struct stat *st)
{
	return (unsigned char)((st->st_mode & S_IFMT) >> 12);
}

static int copy_kept(const struct sbx_aside *a, const struct spot *at, const char *name,
                     const struct stat *st)
{
	struct sbx_copy copy = {
	        .src = at->merged, .dst = at->kept, .links = a->links, .ours = true};

	if (unlinkat(at->kept, name, 0) < 0 && errno != ENOENT)
		return -errno;
	return sbx_copy_entry(&copy, name, type_of(st));
}

/*
 * NAME is at "new" or "away" in the directory of ours now: it is what was linked, or it is linked
 * too.
 */
static int check_taken(struct sbx_aside *a, const struct spot *at, const char *name,
                       const char *now, const struct stat *linked)
{
	struct stat st;
	int r = 0;

	if (fstatat(a->own_temp, now, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (!linked || !is_same(&st, linked))
		r = link_beside(a->own_temp, now, at, name);
	if (!r && unlinkat(a->temp, now, 0) < 0)
		r = -errno;
	return r;
}

/* REPLACED: by "new"; else it just goes. 1: there is nothing, or a directory by now. */
static int move_off(struct sbx_aside *a, const struct spot *at, const char *name, bool replaced)
{
	int r = replaced ? renameat2(a->temp, "new", at->merged, name, RENAME_EXCHANGE)
	                 : renameat(at->merged, name, a->temp, "away");

	if (r == 0)
		return 0;
	return errno == ENOENT || errno == EISDIR || errno == ENOTDIR || errno == ENOTEMPTY
	               ? 1
	               : -errno;
}

/*
 * Waits for what is still written to the file FD, of which KEPT has a copy NAME. FD is taken over.
 */
static void heed(struct sbx_aside *a, int fd, int kept, const char *name)
{
	struct sbx_aside_copy *copies;
	struct timespec now;
	struct stat st;
	int copy = -1;

	assert(a->ncopies <= HEEDED);
	clock_gettime(CLOCK_REALTIME, &now);
	if (fd >= 0 && a->ncopies < HEEDED && fstat(fd, &st) == 0 &&
	    now.tv_sec - st.st_mtim.tv_sec < RECENT_S)
		copy = openat(kept, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	copies = copy < 0 ? NULL : realloc(a->copies, (a->ncopies + 1) * sizeof(*copies));
	if (copies) {
		a->copies = copies;
		copies[a->ncopies++] = (struct sbx_aside_copy){.fd = fd, .copy = copy, .st = st};
	} else {
		sbx_cleanup_fd(&copy);
		sbx_cleanup_fd(&fd);
	}
}

/* Once more, if it was written to since. */
static void bring_up(const struct sbx_aside_copy *c)
{
	_cleanup_free_ char *proc = sbx_format("/proc/self/fd/%d", c->copy);
	_cleanup_fd_ int out = -1;
	struct timespec times[2];
	struct stat st;

	if (!proc || fstat(c->fd, &st) < 0 || is_same_state(&st, &c->st))
		return;
	chmod(proc, 0600);
	out = open(proc, O_WRONLY | O_CLOEXEC);
	if (out >= 0 && lseek(c->fd, 0, SEEK_SET) == 0 && ftruncate(out, 0) == 0)
		sbx_file_copy(c->fd, out);
	times[0] = st.st_atim;
	times[1] = st.st_mtim;
	if (out >= 0)
		futimens(out, times);
	chmod(proc, st.st_mode & 01777);
}

/*
 * A file that was another name of one that was copied before, and is still the same, is a link to
 * that copy.
 */
static int link_copy(const struct sbx_aside *a, int kept, const struct stat *st, const char *as)
{
	char key[48];
	struct stat copy;

	snprintf(key, sizeof(key), "%" PRIx64 "-%" PRIx64, (uint64_t)st->st_dev,
	         (uint64_t)st->st_ino);
	if (fstatat(a->links, key, &copy, AT_SYMLINK_NOFOLLOW) < 0 || copy.st_size != st->st_size ||
	    copy.st_mtim.tv_sec != st->st_mtim.tv_sec ||
	    copy.st_mtim.tv_nsec != st->st_mtim.tv_nsec)
		return -ENOENT;
	return linkat(a->links, key, kept, as, 0) < 0 ? -errno : 0;
}

/* A copy of NOW in the directory of ours becomes NAME in KEPT, or another name beside it: AS. */
static int copy_moved(struct sbx_aside *a, int kept, const char *now, const char *name,
                      char as[NAME_MAX + 1])
{
	struct sbx_copy copy = {.src = a->temp, .dst = a->dir, .links = a->links, .ours = true};
	struct stat st;
	int r;

	if (fstatat(a->temp, now, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	for (int i = 0; i < VERSIONS; i++) {
		if (snprintf(as, NAME_MAX + 1, i ? "%s.~%d~" : "%s", name, i) > NAME_MAX)
			return -ENAMETOOLONG;
		if (faccessat(kept, as, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
			break;
	}
	if (link_copy(a, kept, &st, as) == 0)
		return 0;
	unlinkat(a->dir, now, 0);
	r = sbx_copy_entry(&copy, now, type_of(&st));
	return !r && renameat2(a->dir, now, kept, as, RENAME_NOREPLACE) < 0 && errno != ENOENT
	               ? -errno
	               : r;
}

/*
 * The same where it cannot be linked: it lies on a disk of its own, or has as many links as there
 * can be.
 */
static int take_copied(struct sbx_aside *a, const struct spot *at, const char *name, bool replaced)
{
	const char *now = replaced ? "new" : "away";
	int fd = openat(at->merged, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	char as[NAME_MAX + 1];
	int r = move_off(a, at, name, replaced);

	if (!r) {
		r = copy_moved(a, at->kept, now, name, as);
		if (r && replaced)
			renameat2(a->temp, now, at->merged, name, RENAME_EXCHANGE);
		else if (r)
			renameat2(a->temp, now, at->merged, name, RENAME_NOREPLACE);
		else if (unlinkat(a->temp, now, 0) < 0)
			r = -errno;
	}
	if (r)
		sbx_cleanup_fd(&fd);
	else
		heed(a, fd, at->kept, as);
	return r;
}

/* The sandbox's own file. */
static int take_own(struct sbx_aside *a, const struct spot *at, const char *name,
                    const struct stat *st, bool replaced)
{
	int r = link_beside(at->own, name, at, name);

	a->several |= st->st_nlink > 1;
	if (r == -EXDEV || r == -EMLINK)
		return take_copied(a, at, name, replaced);
	if (!r)
		r = move_off(a, at, name, replaced);
	return r ? r : check_taken(a, at, name, replaced ? "new" : "away", st);
}

static int copy_open(int fd, int to, const char *name)
{
	_cleanup_fd_ int out = -1;
	struct stat st;
	int r;

	if (unlinkat(to, name, 0) < 0 && errno != ENOENT)
		return -errno;
	out = openat(to, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (out < 0 || lseek(fd, 0, SEEK_SET) < 0)
		return -errno;
	r = sbx_file_copy(fd, out);
	if (!r && (fstat(fd, &st) < 0 || fchmod(out, st.st_mode & 01777) < 0))
		r = -errno;
	return r;
}

/* A file of the base: copied, and once more if somebody wrote to it just then. */
static int take_lower(struct sbx_aside *a, const struct spot *at, const char *name,
                      const struct stat *st, bool replaced)
{
	_cleanup_fd_ int fd =
	        S_ISREG(st->st_mode)
	                ? openat(at->merged, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
	                : -1;
	struct stat now;
	int r = copy_kept(a, at, name, st);

	if (r)
		return r;
	if ((replaced ? renameat(a->temp, "new", at->merged, name)
	              : unlinkat(at->merged, name, 0)) < 0)
		return errno == ENOENT || errno == EISDIR || errno == ENOTEMPTY ? 1 : -errno;
	return fd < 0 || (fstat(fd, &now) == 0 && is_same_state(&now, st))
	               ? 0
	               : copy_open(fd, at->kept, name);
}

static int take_file(struct sbx_aside *a, const struct spot *at, const char *name, bool replaced)
{
	struct stat st, own;

	if (fstatat(at->merged, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 1 : -errno;
	if (S_ISDIR(st.st_mode))
		return 1;
	if (at->own >= 0 && fstatat(at->own, name, &own, AT_SYMLINK_NOFOLLOW) == 0)
		return take_own(a, at, name, &own, replaced);
	return take_lower(a, at, name, &st, replaced);
}

bool sbx_aside_make_room(struct sbx_aside *a)
{
	const bool any = a->ncopies > 0;

	for (size_t i = 0; i < a->ncopies; i++) {
		bring_up(&a->copies[i]);
		sbx_cleanup_fd(&a->copies[i].fd);
		sbx_cleanup_fd(&a->copies[i].copy);
	}
	free(a->copies);
	a->copies = NULL;
	a->ncopies = 0;
	return any;
}

void sbx_aside_close(struct sbx_aside *a)
{
	sbx_aside_make_room(a);
	sbx_cleanup_fd(&a->dir);
	sbx_cleanup_fd(&a->files);
	sbx_cleanup_fd(&a->own);
	sbx_cleanup_fd(&a->temp);
	sbx_cleanup_fd(&a->own_temp);
	sbx_cleanup_fd(&a->links);
	tdestroy(a->noted, free);
	a->noted = NULL;
}

/* ---- repositories of the host's ---- */

static int key_of(int dir, const char *name, char ret[64])
{
	struct statx st;

	if (statx(dir, name, AT_SYMLINK_NOFOLLOW, STATX_TYPE | STATX_INO | STATX_BTIME, &st) < 0)
		return -errno;
	snprintf(ret, 64, "%" PRIx64 "-%" PRIx64 "-%x", (uint64_t)st.stx_ino,
	         (uint64_t)st.stx_btime.tv_sec, st.stx_btime.tv_nsec);
	return 0;
}

static int open_store(const struct sbx_snapshot_context *context, bool make)
{
	return make ? sbx_dir_make(context->b->state.nested, context->rec->id, 0700)
	            : sbx_dir_open(context->b->state.nested, context->rec->id);
}

/* Whatever NAME in FROM is becomes AS in TO, on another file system by copying. */
static int copy_any(const struct sbx_snapshot_context *context, int from, const char *name, int to,
                    const char *as, struct sbx_error *err)
{
	_cleanup_fd_ int src = sbx_dir_open(from, name);
	_cleanup_fd_ int dst = -1, links = -1;
	struct sbx_copy copy = {0};
	struct stat st;
	int r;

	if (src == -ENOTDIR || src == -ELOOP) {
		_cleanup_free_ char *text = NULL;

		if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			return -errno;
		r = sbx_file_read(from, name, PATH_MAX, &text);
		return r ? r : sbx_file_create(to, as, text);
	}
	dst = src < 0 ? src : sbx_dir_make(to, as, 0700);
	links = dst < 0 ? dst : sbx_dir_make(context->b->state.trash, context->rec->id, 0700);
	if (links < 0)
		return links;
	copy = (struct sbx_copy){.src = src, .dst = dst, .links = links, .ours = true};
	r = sbx_tree_copy(&copy, err);
	sbx_tree_remove(context->b->state.trash, context->rec->id, NULL);
	return r;
}

/* 1: it is none of the host's. */
static int take_nested(struct sbx_aside *a, const struct spot *at, const char *path)
{
	_cleanup_fd_ int store = open_store(a->context, false);
	char key[64], link[80];
	int r;

	if (store < 0 || key_of(at->merged, ".git", key) ||
	    faccessat(store, key, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		return 1;
	r = append(a, "nested", path, strlen(path) + 1);
	if (!r && renameat(store, key, at->kept, ".git") < 0)
		r = errno == EXDEV ? copy_any(a->context, store, key, at->kept, ".git", a->err)
		                   : -errno;
	if (r)
		return r;
	sbx_tree_remove(store, key, NULL);
	snprintf(link, sizeof(link), "%s" SBX_NESTED_PATH_SUFFIX, key);
	unlinkat(store, link, 0);
	if (unlinkat(at->merged, ".git", 0) < 0 && errno == EISDIR)
		unlinkat(at->merged, ".git", AT_REMOVEDIR);
	return 0;
}

static int put_nested(const struct sbx_aside *from, struct sbx_aside *a, const char *path, int kept,
                      int merged)
{
	_cleanup_fd_ int store = open_store(a->context, true);
	struct sbx_identity owner = sbx_local_owner(a->context->b, a->context->rec);
	char key[64], link[80];
	struct stat st;
	int r;

	(void)from;
	if (store < 0)
		return store;
	if (fstatat(kept, ".git", &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	r = sbx_aside_take(a, path);
	if (!r && (S_ISDIR(st.st_mode) ? mkdirat(merged, ".git", 0755)
	                               : mknodat(merged, ".git", S_IFREG | 0644, 0)) < 0)
		r = -errno;
	if (!r && owner.uid != geteuid() &&
	    fchownat(merged, ".git", owner.uid, owner.gid, AT_SYMLINK_NOFOLLOW) < 0)
		r = -errno;
	if (!r)
		r = key_of(merged, ".git", key);
	if (!r)
		r = copy_any(a->context, kept, ".git", store, key, a->err);
	if (r)
		return r;
	snprintf(link, sizeof(link), "%s" SBX_NESTED_PATH_SUFFIX, key);
	return symlinkat(path, store, link) < 0 && errno != EEXIST ? -errno : 0;
}

/* ---- a directory ---- */

/* Takes what one directory holds: files go, directories are added to DIRS. */
static int take_listed(struct sbx_aside *a, const char *dir, struct sbx_strings *dirs)
{
	_cleanup_(spot_release) struct spot at = {.merged = -1, .own = -1, .kept = -1};
	_cleanup_(sbx_strings_release) struct sbx_strings names = {0};
	_cleanup_fd_ int list = -1;
	int r = enter(a, dir, &at);

	if (r)
		return r == -ENOENT || r == -ENOTDIR ? 0 : r;
	list = sbx_beneath_open(at.merged, ".", O_RDONLY | O_DIRECTORY);
	r = list < 0 ? list : sbx_dir_names(list, &names);
	for (size_t i = 0; i < names.n && !r; i++) {
		_cleanup_free_ char *path = sbx_format("%s/%s", dir, names.items[i]);
		struct stat st;

		if (!path)
			return -ENOMEM;
		r = strcmp(names.items[i], ".git") == 0 ? take_nested(a, &at, path) : 1;
		if (r <= 0)
			continue;
		r = 0;
		if (fstatat(at.merged, names.items[i], &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		if (S_ISDIR(st.st_mode))
			r = sbx_strings_add(dirs, path);
		else
			r = take_file(a, &at, names.items[i], false);
		r = r > 0 ? 0 : r;
		if (r)
			failed(a, r, path);
	}
	return r;
}

static int remove_dir(const struct sbx_aside *a, const char *path)
{
	const char *slash = strrchr(path, '/');
	_cleanup_free_ char *dir = slash ? strndup(path, (size_t)(slash - path)) : strdup(".");
	_cleanup_fd_ int fd =
	        dir ? sbx_beneath_open(a->context->root, dir, O_PATH | O_DIRECTORY) : -ENOMEM;

	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	if (unlinkat(fd, slash ? slash + 1 : path, AT_REMOVEDIR) == 0 || errno == ENOENT)
		return 0;
	return -errno;
}

static int take_tree(struct sbx_aside *a, const char *path)
{
	int r = 0;

	for (int round = 0; round < ROUNDS && (!round || r == -ENOTEMPTY); round++) {
		_cleanup_(sbx_strings_release) struct sbx_strings dirs = {0};

		r = sbx_strings_add(&dirs, path);
		for (size_t i = 0; i < dirs.n && !r; i++)
			r = take_listed(a, dirs.items[i], &dirs);
		for (size_t i = dirs.n; i-- > 0 && !r;)
			r = remove_dir(a, dirs.items[i]);
	}
	return r;
}

/* ---- one path ---- */

/* The directory of PATH in the tree alone. */
static int open_parent(const struct sbx_aside *a, const char *path, const char **name)
{
	const char *slash = strrchr(path, '/');
	_cleanup_free_ char *dir = slash ? strndup(path, (size_t)(slash - path)) : strdup(".");

	*name = slash ? slash + 1 : path;
	return dir ? sbx_beneath_open(a->context->root, dir, O_PATH | O_DIRECTORY) : -ENOMEM;
}

static int take(struct sbx_aside *a, const char *path, bool directory)
{
	_cleanup_(spot_release) struct spot at;
	const char *name;
	int r = enter_parent(a, path, &at, &name);

	if (!r)
		r = strcmp(name, ".git") == 0 ? take_nested(a, &at, path) : 1;
	if (r <= 0)
		return r;
	return directory ? take_tree(a, path) : take_file(a, &at, name, false);
}

int sbx_aside_take(struct sbx_aside *a, const char *path)
{
	const char *name;
	_cleanup_fd_ int dir = open_parent(a, path, &name);
	struct stat st;
	int r;

	if (dir < 0)
		return dir == -ENOENT || dir == -ENOTDIR ? 0 : failed(a, dir, path);
	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : failed(a, -errno, path);
	r = take(a, path, S_ISDIR(st.st_mode));
	/* Something new is in there, or instead of it: it stays. */
	if (r > 0 || r == -ENOTEMPTY)
		r = 0;
	return r ? failed(a, r, path) : 0;
}

static int replace(struct sbx_aside *a, const char *path)
{
	_cleanup_(spot_release) struct spot at;
	const char *name;
	int r = enter_parent(a, path, &at, &name);

	return r ? r : take_file(a, &at, name, true);
}

int sbx_aside_replace(struct sbx_aside *a, const char *path)
{
	const char *name;
	_cleanup_fd_ int dir = open_parent(a, path, &name);
	int r = dir < 0 ? dir : sbx_aside_note(a, path);

	for (int round = 0; round < ROUNDS && !r; round++) {
		if (renameat2(a->temp, "new", dir, name, RENAME_NOREPLACE) == 0)
			return 0;
		r = errno == EEXIST ? replace(a, path) : -errno;
		if (r <= 0)
			return r;
		r = sbx_aside_take(a, path);
	}
	return r ? r : -EEXIST;
}

bool sbx_aside_has(const struct sbx_aside *a, const char *path)
{
	const char *slash = strrchr(path, '/');
	_cleanup_free_ char *dir = slash ? strndup(path, (size_t)(slash - path)) : strdup(".");
	_cleanup_fd_ int fd = dir ? sbx_beneath_open(a->files, dir, O_PATH | O_DIRECTORY) : -1;
	struct stat st;

	return fd >= 0 && fstatat(fd, slash ? slash + 1 : path, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	       !S_ISDIR(st.st_mode);
}

/* ---- giving back ---- */

struct giving {
	const struct sbx_aside *from;
	struct sbx_aside *a;
	struct sbx_strings dirs;
	int fresh, links; /* in a->temp */
	struct sbx_identity owner;
	char *nested, *lowered; /* lists of FROM's */
	size_t nested_len, lowered_len;
};

/* Has PATH be a directory of the tree. */
static int put_dir(struct giving *g, const char *path)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	_cleanup_free_ char *dir = slash ? strndup(path, (size_t)(slash - path)) : strdup(".");
	_cleanup_fd_ int fd =
	        dir ? sbx_beneath_open(g->a->context->root, dir, O_PATH | O_DIRECTORY) : -ENOMEM;
	struct stat st;
	int r;

	if (fd < 0)
		return fd;
	r = sbx_aside_note(g->a, path);
	if (r)
		return r;
	sbx_local_history_make_accessible(fd, R_OK | W_OK | X_OK);
	if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
		if (S_ISDIR(st.st_mode))
			return 0;
		r = sbx_aside_take(g->a, path);
		if (r)
			return r;
	}
	if (mkdirat(fd, name, 0755) < 0 && errno != EEXIST)
		return -errno;
	return g->owner.uid != geteuid() && fchownat(fd, name, g->owner.uid, g->owner.gid,
	                                             AT_SYMLINK_NOFOLLOW) < 0
	               ? -errno
	               : 0;
}

static int note_made(struct sbx_aside *a, const char *path)
{
	return append(a, "made", path, strlen(path) + 1);
}

int sbx_aside_lowered(struct sbx_aside *a, const char *path)
{
	return append(a, "lowered", path, strlen(path) + 1);
}

/* Nothing else tells that a file was not there which no index knows. */
static int note_absent(struct giving *g, const char *path)
{
	const char *name;
	struct stat st;

	for (const char *at = g->lowered; at && at < g->lowered + g->lowered_len;
	     at += strlen(at) + 1) {
		const size_t len = strlen(at);

		if (strncmp(path, at, len) == 0 && path[len] == '/') {
			_cleanup_fd_ int dir = open_parent(g->a, path, &name);

			return dir >= 0 && fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0
			               ? note_made(g->a, path)
			               : 0;
		}
	}
	return 0;
}

static int put_file(struct giving *g, int kept, const char *name, unsigned char type,
                    const char *path)
{
	struct sbx_copy copy = {.src = kept,
	                        .dst = g->fresh,
	                        .links = g->links,
	                        .ours = true,
	                        .owner = g->owner.uid == geteuid() ? NULL : &g->owner};
	int r = sbx_copy_entry(&copy, name, type);

	if (r == -ENOSPC && sbx_aside_make_room(g->a)) {
		unlinkat(g->fresh, name, 0);
		r = sbx_copy_entry(&copy, name, type);
	}

	/* What is no file of a kind that can be copied, a socket, has nothing in it. */
	if (!r && renameat(g->fresh, name, g->a->temp, "new") < 0)
		return errno == ENOENT ? 0 : -errno;
	if (!r)
		r = note_absent(g, path);
	return r ? r : sbx_aside_replace(g->a, path);
}

static int put_listed(struct giving *g, const char *dir)
{
	const char *at = *dir ? dir : ".";
	_cleanup_(sbx_strings_release) struct sbx_strings names = {0};
	_cleanup_fd_ int kept = sbx_beneath_open(g->from->files, at, O_RDONLY | O_DIRECTORY);
	int r = kept < 0 ? kept : sbx_dir_names(kept, &names);

	if (!r && *dir)
		r = put_dir(g, dir);
	for (size_t i = 0; i < names.n && !r; i++) {
		_cleanup_free_ char *path =
		        sbx_format("%s%s%s", dir, *dir ? "/" : "", names.items[i]);
		struct stat st;

		if (!path)
			return -ENOMEM;
		if (fstatat(kept, names.items[i], &st, AT_SYMLINK_NOFOLLOW) < 0)
			r = -errno;
		else if (aside_lists(g->nested, g->nested_len, path)) {
			_cleanup_fd_ int merged =
			        sbx_beneath_open(g->a->context->root, at, O_PATH | O_DIRECTORY);

			r = merged < 0 ? merged : put_nested(g->from, g->a, path, kept, merged);
		} else if (S_ISDIR(st.st_mode))
			r = sbx_strings_add(&g->dirs, path);
		else
			r = put_file(g, kept, names.items[i], type_of(&st), path);
		if (r)
			return g->a->err->code ? r
			                       : sbx_fail(g->a->err, -r, "cannot give %s back: %s",
			                                  path, strerror(-r));
	}
	return r;
}

/* "MODE SECONDS NANOSECONDS PATH" */
static void set_dir(struct giving *g, const char *line)
{
	unsigned mode;
	long long sec;
	long nsec;
	int at = 0;
	_cleanup_fd_ int fd = -1;
	_cleanup_free_ char *proc = NULL;
	struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}};

	if (sscanf(line, "%o %lld %ld %n", &mode, &sec, &nsec, &at) < 3 || !at)
		return;
	fd = sbx_beneath_open(g->a->context->root, line + at, O_PATH | O_DIRECTORY);
	proc = sbx_format("/proc/self/fd/%d", fd);
	if (fd < 0 || !proc)
		return;
	chmod(proc, mode & 03777);
	times[1] = (struct timespec){.tv_sec = sec, .tv_nsec = nsec};
	utimensat(AT_FDCWD, proc, times, 0);
}

/*
 * From the last to the first: so the first of a path counts, and the mode of a directory comes
 * after what is in it.
 */
static int set_dirs(struct giving *g)
{
	_cleanup_free_ char *text = NULL;
	size_t len;
	int r = sbx_aside_list(g->from, "dirs", &text, &len);

	for (size_t at = len; !r && at > 0;) {
		size_t begin = at - 1;

		while (begin > 0 && text[begin - 1])
			begin--;
		set_dir(g, text + begin);
		at = begin;
	}
	return r;
}

static int giving_open(struct giving *g, const struct sbx_aside *from, struct sbx_aside *a)
{
	*g = (struct giving){
	        .from = from, .a = a, .owner = sbx_local_owner(a->context->b, a->context->rec)};
	g->fresh = sbx_dir_make(a->temp, "fresh", 0700);
	g->links = g->fresh < 0 ? g->fresh : sbx_dir_make(a->temp, "links", 0700);
	return g->links < 0 ? g->links : 0;
}

static void giving_release(struct giving *g)
{
	sbx_cleanup_fd(&g->fresh);
	sbx_cleanup_fd(&g->links);
	sbx_strings_release(&g->dirs);
	free(g->nested);
	free(g->lowered);
}

/* Takes what stands at PATH, for something else to come there. */
static int make_way(struct sbx_aside *a, const char *path)
{
	int r = sbx_aside_take(a, path);

	return r ? r : note_made(a, path);
}

/* Whether INDEX tells of PATH or of what is below. */
static bool is_recorded(const struct sbx_index *index, const char *path)
{
	const size_t len = strlen(path);
	size_t lo, hi;

	sbx_index_below(index, path, len, &lo, &hi);
	return hi > lo || sbx_index_find(index, path, len);
}

int sbx_aside_take_made(const struct sbx_aside *from, struct sbx_aside *a,
                        const struct sbx_index *now)
{
	_cleanup_free_ char *made = NULL;
	size_t len;
	int r = sbx_aside_list(from, "made", &made, &len);

	for (const char *at = made; !r && at < made + len; at += strlen(at) + 1)
		if (!is_recorded(now, at))
			r = make_way(a, at);
	return r;
}

int sbx_aside_give_back(const struct sbx_aside *from, struct sbx_aside *a)
{
	struct giving g;
	int r = giving_open(&g, from, a);

	if (!r)
		r = sbx_aside_list(from, "nested", &g.nested, &g.nested_len);
	if (!r)
		r = sbx_aside_list(from, "lowered", &g.lowered, &g.lowered_len);
	for (const char *at = g.lowered; !r && at < g.lowered + g.lowered_len; at += strlen(at) + 1)
		r = sbx_aside_lowered(a, at);
	if (!r)
		r = sbx_strings_add(&g.dirs, "");
	for (size_t i = 0; i < g.dirs.n && !r; i++)
		r = put_listed(&g, g.dirs.items[i]);
	if (!r)
		r = set_dirs(&g);
	giving_release(&g);
	return r && !a->err->code ? sbx_fail(a->err, -r, "cannot give back what was taken away: %s",
	                                     strerror(-r))
	                          : r;
}

/* ---- giving what never was taken ---- */

static int put_parents(struct giving *g, const char *path)
{
	_cleanup_free_ char *part = strdup(path);
	int r = part ? 0 : -ENOMEM;

	for (char *slash = part ? strchr(part, '/') : NULL; slash && !r;
	     slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		r = put_dir(g, part);
		*slash = '/';
	}
	return r;
}

/* Mode and time of the directory PATH, as FROM has them. */
static void set_like(const struct giving *g, const char *path)
{
	_cleanup_fd_ int like = sbx_beneath_open(g->from->files, path, O_PATH | O_DIRECTORY);
	_cleanup_fd_ int fd = sbx_beneath_open(g->a->context->root, path, O_PATH | O_DIRECTORY);
	_cleanup_free_ char *proc = sbx_format("/proc/self/fd/%d", fd);
	struct stat st;

	if (like < 0 || fd < 0 || !proc || fstat(like, &st) < 0)
		return;
	chmod(proc, st.st_mode & 03777);
	utimensat(AT_FDCWD, proc, (struct timespec[]){{.tv_nsec = UTIME_OMIT}, st.st_mtim}, 0);
}

static int put_tree(struct giving *g, const char *path)
{
	int r = make_way(g->a, path);

	if (!r)
		r = sbx_strings_add(&g->dirs, path);
	for (size_t i = 0; i < g->dirs.n && !r; i++)
		r = put_listed(g, g->dirs.items[i]);
	for (size_t i = g->dirs.n; i-- > 0 && !r;)
		set_like(g, g->dirs.items[i]);
	return r;
}

static int put_one(struct giving *g, const char *path)
{
	const char *name;
	_cleanup_fd_ int to = open_parent(g->a, path, &name);
	const char *slash = strrchr(path, '/');
	_cleanup_free_ char *dir = slash ? strndup(path, (size_t)(slash - path)) : strdup(".");
	_cleanup_fd_ int from =
	        dir ? sbx_beneath_open(g->from->files, dir, O_RDONLY | O_DIRECTORY) : -ENOMEM;
	struct stat st, now;

	if (from < 0)
		return from;
	if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (S_ISDIR(st.st_mode))
		return put_tree(g, path);
	if (to < 0 || fstatat(to, name, &now, AT_SYMLINK_NOFOLLOW) < 0 || S_ISDIR(now.st_mode)) {
		int r = make_way(g->a, path);

		if (r)
			return r;
	}
	return put_file(g, from, name, type_of(&st), path);
}

int sbx_aside_put(const struct sbx_aside *from, struct sbx_aside *a, const char *path)
{
	struct giving g;
	int r = giving_open(&g, from, a);

	if (!r)
		r = put_parents(&g, path);
	if (!r)
		r = put_one(&g, path);
	giving_release(&g);
	return r && !a->err->code
	               ? sbx_fail(a->err, -r, "cannot restore %s: %s", path, strerror(-r))
	               : r;
}

/* ---- repositories of a snapshot ---- */

struct storing {
	struct sbx_aside *a;
	const char *top;
	int store;
};

/*
 * Where KEY.at says that the .git in the store belongs below the top, it takes the place of its
 * placeholder.
 */
static int copy_stored(const char *name, unsigned char type, void *data)
{
	const struct storing *s = data;
	const size_t n = strlen(name), suffix = strlen(SBX_NESTED_PATH_SUFFIX),
	             top = strlen(s->top);
	_cleanup_free_ char *key = n > suffix ? strndup(name, n - suffix) : NULL;
	_cleanup_fd_ int dir = -1;
	char path[PATH_MAX];
	ssize_t len;
	int r;

	if (type != DT_LNK || !key || strcmp(name + n - suffix, SBX_NESTED_PATH_SUFFIX) != 0)
		return 0;
	len = readlinkat(s->store, name, path, sizeof(path) - 1);
	if (len <= 5)
		return 0;
	path[len] = '\0';
	if (strncmp(path, s->top, top) != 0 || path[top] != '/' ||
	    strcmp(path + len - 5, "/.git") != 0 ||
	    faccessat(s->store, key, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	path[len - 5] = '\0';
	dir = sbx_beneath_open(s->a->files, path, O_RDONLY | O_DIRECTORY);
	path[len - 5] = '/';
	if (dir < 0)
		return 0;
	r = append(s->a, "nested", path, strlen(path) + 1);
	if (!r)
		r = sbx_tree_remove(dir, ".git", s->a->err);
	return r ? r : copy_any(s->a->context, s->store, key, dir, ".git", s->a->err);
}

static int copy_repo(struct sbx_aside *a, const char *path, atomic_bool *cancelled)
{
	_cleanup_fd_ int src = sbx_beneath_open(a->context->root, path, O_RDONLY | O_DIRECTORY);
	_cleanup_fd_ int dst = -1, store = -1;
	struct sbx_copy copy = {
	        .src = src, .links = a->links, .ours = true, .cancelled = cancelled};
	struct storing s = {.a = a, .top = path};
	int r;

	if (src < 0)
		return src == -ENOENT ? 0 : src;
	r = sbx_aside_note(a, path);
	dst = r ? r : open_kept(a, path);
	if (dst < 0)
		return dst;
	sbx_cleanup_fd(&dst);
	copy.dst = dst = sbx_beneath_open(a->files, path, O_RDONLY | O_DIRECTORY);
	r = dst < 0 ? dst : sbx_tree_copy(&copy, a->err);
	if (!r)
		r = append(a, "tops", path, strlen(path) + 1);
	s.store = store = open_store(a->context, false);
	return r || store < 0 ? r : sbx_dir_scan(store, copy_stored, &s);
}

int sbx_repos_copy(const struct sbx_snapshot_context *context, const struct sbx_strings *paths,
                   atomic_bool *cancelled, struct sbx_error *err)
{
	_cleanup_fd_ int home = open_home(context, REPOS, true);
	_cleanup_(sbx_aside_close) struct sbx_aside a = sbx_no_aside;
	struct sbx_error own = SBX_ERROR_INIT;
	size_t i;
	int r = home < 0 ? home : sbx_tree_remove(home, UNNAMED, &own);

	if (!r)
		r = open_dirs(context, REPOS, UNNAMED, &a);
	a.err = &own;
	for (i = 0; i < paths->n && !r; i++)
		r = copy_repo(&a, paths->items[i], cancelled);
	if (!r)
		return 0;
	if (home >= 0)
		sbx_tree_remove(home, UNNAMED, NULL);
	return sbx_fail(err, -r, "the repository %s cannot be kept in a snapshot: %s",
	                i ? paths->items[i - 1] : "", own.code ? own.text : strerror(-r));
}

int sbx_repos_name(const struct sbx_snapshot_context *context, const git_oid *commit)
{
	_cleanup_fd_ int home = open_home(context, REPOS, false);
	char hex[GIT_OID_HEXSZ + 1];

	if (home < 0)
		return home;
	git_oid_tostr(hex, sizeof(hex), commit);
	return renameat(home, UNNAMED, home, hex) < 0 ? -errno : 0;
}

int sbx_repos_find(const struct sbx_snapshot_context *context, const git_oid *commit,
                   struct sbx_aside *ret)
{
	char hex[GIT_OID_HEXSZ + 1];

	return find(context, REPOS, git_oid_tostr(hex, sizeof(hex), commit), ret);
}

int sbx_repos_give_back(const struct sbx_aside *repos, struct sbx_aside *a)
{
	_cleanup_free_ char *tops = NULL;
	size_t len;
	int r = sbx_aside_list(repos, "tops", &tops, &len);

	for (const char *at = tops; !r && at < tops + len; at += strlen(at) + 1)
		r = make_way(a, at);
	return r ? r : sbx_aside_give_back(repos, a);
}
