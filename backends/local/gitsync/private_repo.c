/*
 * The directory itself, what of the source it may use, and when it has to be looked at. It is made
 * by the first sync: a sandbox without commands costs nothing here.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/git/git_impl.h"
#include "backends/git/stale_locks.h"
#include "backends/git/store.h"
#include "backends/local/gitsync/sync_impl.h"
#include "backends/support/beneath.h"
#include "backends/support/fsutil.h"
#include "backends/support/tree.h"
#include "sandboxfs/clock.h"
#include "sandboxfs/mitigations.h"

#define SMALL_MAX 65536 /* files of info/ */
#define PASSES    4

enum { IN_SOURCE, IN_ENTRY, IN_REPO, IN_TREE, PLACES };

/* ---- opening ---- */

int sbx_git_private_open(const struct sbx_git_worktree *wt, const char *room, const char *id,
                         struct sbx_git_private **ret)
{
	struct sbx_git_private *p = calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	p->wt = *wt;
	pthread_mutex_init(&p->lock, NULL);
	p->room = strdup(room);
	p->id = strdup(id);
	p->repo = sbx_format("%s/%s/repo", room, id);
	p->seen = sbx_format("%s/%s/repo", room, id);
	p->disk = -1;
	p->workdir = strdup(wt->workdir);
	p->flat = wt->link != NULL;
	p->wt.link = NULL;
	if (!p->room || !p->id || !p->repo || !p->seen || !p->workdir) {
		sbx_git_private_close(p);
		return -ENOMEM;
	}
	*ret = p;
	return 0;
}

int sbx_git_private_use_disk(struct sbx_git_private *p, int disk)
{
	int fd = fcntl(disk, F_DUPFD_CLOEXEC, 3);
	char *repo = fd < 0 ? NULL : sbx_format("/proc/self/fd/%d/git/repo", fd);

	if (!repo) {
		int r = fd < 0 ? -errno : -ENOMEM;

		sbx_cleanup_fd(&fd);
		return r;
	}
	free(p->repo);
	p->repo = repo;
	p->disk = fd;
	return 0;
}

/* Its number stays taken: who has just read the path must not come to something else by it. */
void sbx_git_private_leave_disk(struct sbx_git_private *p)
{
	_cleanup_fd_ int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);

	if (p->disk >= 0 && nothing >= 0)
		dup3(nothing, p->disk, O_CLOEXEC);
}

static void forget_objects(struct sbx_git_private *p)
{
	for (size_t i = 0; i < SBX_GIT_ALTERNATES; i++) {
		free(p->objects[i]);
		p->objects[i] = NULL;
	}
}

void sbx_git_private_close(struct sbx_git_private *p)
{
	if (!p)
		return;
	sbx_git_watch_release(&p->watch);
	pthread_mutex_destroy(&p->lock);
	forget_objects(p);
	sbx_cleanup_fd(&p->disk);
	free(p->repo);
	free(p->seen);
	free(p->workdir);
	free(p->room);
	free(p->id);
	free(p);
}

const char *const *sbx_git_private_ro(struct sbx_git_private *p)
{
	static const char *const none[] = {NULL};

	return atomic_load(&p->ready) ? (const char *const *)p->objects : none;
}

const char *const *sbx_git_private_rw(struct sbx_git_private *p)
{
	static const char *const none[] = {NULL};

	return atomic_load(&p->ready) ? p->shown : none;
}

/* ---- objects to borrow ---- */

static int add_objects(struct sbx_git_private *p, size_t *n, const char *base, const char *path)
{
	_cleanup_free_ char *full = path[0] == '/' ? strdup(path) : sbx_format("%s/%s", base, path);
	char *real = full ? realpath(full, NULL) : NULL;

	/* git goes on without an alternate that is not there. */
	if (!real)
		return full ? 0 : -ENOMEM;
	if (sbx_git_store_is(real) && !sbx_mitigation_off("store")) {
		free(real);
		return 0;
	}
	if (*n == SBX_GIT_ALTERNATES || strchr(real, '\n')) {
		free(real);
		return -E2BIG;
	}
	p->objects[(*n)++] = real;
	return 0;
}

/*
 * Those of the source, and those that it borrows in turn: commands must see them all, but nothing
 * of the work of others.
 */
static int find_objects(struct sbx_git_private *p, struct sbx_error *err)
{
	size_t n = 0;
	int r = add_objects(p, &n, p->wt.common, "objects");

	for (size_t i = 0; i < n && !r; i++) {
		_cleanup_free_ char *list = NULL;
		_cleanup_fd_ int fd = open(p->objects[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		char *save = NULL;

		if (fd < 0 || sbx_file_read(fd, "info/alternates", SMALL_MAX, &list))
			continue;
		for (char *line = strtok_r(list, "\n", &save); line && !r;
		     line = strtok_r(NULL, "\n", &save))
			r = line[0] == '#' ? 0 : add_objects(p, &n, p->objects[i], line);
	}
	if (!r && !n)
		r = -ENOENT;
	return r ? sbx_fail(err, -r, "cannot use the objects of %s: %s", p->wt.common, strerror(-r))
	         : 0;
}

/* ---- making it ---- */

/*
 * The settings that decide how files and index entries compare. None names a program or a secret.
 */
static char *config_text(const char *common)
{
	static const char *const keys[] = {
	        "core.filemode",    "core.autocrlf",          "core.eol",
	        "core.symlinks",    "core.safecrlf",          "core.ignorecase",
	        "core.quotepath",   "core.precomposeunicode", "core.fsync",
	        "core.fsyncmethod", "core.fsyncobjectfiles",
	};
	_cleanup_git_(repository) git_repository *repo = NULL;
	git_config *config = NULL, *snapshot = NULL;
	char *text = strdup("[core]\n\trepositoryformatversion = 0\n\tbare = false\n"
	                    "\tlogallrefupdates = true\n");
	const char *value;

	if (sbx_git_open(common, &repo) || git_repository_config(&config, repo) ||
	    git_config_snapshot(&snapshot, config))
		snapshot = NULL;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(keys) && snapshot && text; i++) {
		_cleanup_free_ char *before = text;

		if (git_config_get_string(&value, snapshot, keys[i]) || strpbrk(value, "\n\"\\"))
			before = NULL;
		else
			text = sbx_format("%s\t%s = \"%s\"\n", before, strchr(keys[i], '.') + 1,
			                  value);
	}
	git_config_free(snapshot);
	git_config_free(config);
	if (text) {
		_cleanup_free_ char *before = text;

		text = sbx_format("%s[gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n", before);
	}
	return text;
}

static int put(int dir, const char *name, const char *text)
{
	return text ? sbx_file_create(dir, name, text) : -ENOMEM;
}

/* A small file of the source that git has in every repository; it may be missing. */
static int copy_small(const struct sbx_git_private *p, int dir, const char *from, const char *name)
{
	_cleanup_fd_ int common = open(p->wt.common, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_free_ char *text = NULL;

	if (common < 0 || sbx_file_read(common, from, SMALL_MAX, &text))
		return 0;
	return put(dir, name, text);
}

static int make_sub(int dir, const char *name)
{
	return mkdirat(dir, name, 0755) < 0 ? -errno : 0;
}

static int fill(const struct sbx_git_private *p, int dir)
{
	_cleanup_free_ char *config = config_text(p->wt.common);
	_cleanup_free_ char *excludes = sbx_git_excludes(p->wt.common);
	_cleanup_free_ char *head = sbx_format("ref: refs/heads/%s\n", p->wt.branch);
	_cleanup_free_ char *alternates = sbx_format("%s\n", p->objects[0]);
	_cleanup_fd_ int info = -1;
	int r = make_sub(dir, "objects");

	if (!r)
		r = make_sub(dir, "objects/info");
	if (!r)
		r = make_sub(dir, "objects/pack");
	if (!r)
		r = make_sub(dir, "refs");
	if (!r)
		r = make_sub(dir, "refs/heads");
	if (!r)
		r = make_sub(dir, "refs/tags");
	if (!r)
		r = info = sbx_dir_make(dir, "info", 0755);
	if (r < 0)
		return r;
	r = put(dir, "objects/info/alternates", alternates);
	if (!r)
		r = put(dir, "config", config);
	if (!r)
		r = put(info, "exclude", excludes);
	if (!r)
		r = copy_small(p, info, "info/attributes", "attributes");
	if (!r)
		r = copy_small(p, dir, "shallow", "shallow");
	return r ? r : put(dir, "HEAD", head);
}

/* The directory that repo is in, which is META unless there is a disk. */
static int open_holder(const struct sbx_git_private *p, int meta)
{
	return p->disk < 0 ? sbx_dir_open(meta, ".") : sbx_dir_open(p->disk, "git");
}

static int make_repo(const struct sbx_git_private *p, int holder, struct sbx_error *err)
{
	_cleanup_fd_ int dir = -1;
	int r;

	if (faccessat(holder, "repo", F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return 0;
	r = sbx_tree_remove(holder, "new", err);
	if (r)
		return r;
	r = dir = sbx_dir_make(holder, "new", 0755);
	if (dir >= 0)
		r = fill(p, dir);
	if (r >= 0)
		r = sbx_dir_write_out(dir);
	if (r >= 0 && renameat(holder, "new", holder, "repo") < 0)
		r = -errno;
	return r < 0 ? sbx_fail(err, -r, "cannot make the sandbox's repository: %s", strerror(-r))
	             : 0;
}

static int open_meta(const struct sbx_git_private *p, struct sbx_error *err)
{
	_cleanup_fd_ int room = open(p->room, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	int fd = room < 0 ? -errno : sbx_dir_make(room, p->id, 0700);

	return fd < 0 ? sbx_fail(err, -fd, "cannot use %s: %s", p->room, strerror(-fd)) : fd;
}

/* ---- when to look ---- */

static void open_places(const struct sbx_git_private *p, int dirs[PLACES])
{
	_cleanup_free_ char *entry = sbx_format("%s/worktrees/%s", p->wt.common, p->wt.worktree);

	dirs[IN_SOURCE] = open(p->wt.common, O_PATH | O_DIRECTORY | O_CLOEXEC);
	dirs[IN_ENTRY] = entry ? open(entry, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
	dirs[IN_REPO] = open(p->repo, O_PATH | O_DIRECTORY | O_CLOEXEC);
	dirs[IN_TREE] = p->flat ? open(p->workdir, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
}

static void close_places(int dirs[PLACES])
{
	for (int i = 0; i < PLACES; i++)
		sbx_cleanup_fd(&dirs[i]);
}

static int watch_all(const struct sbx_git_private *p, struct sbx_git_watch *w)
{
	static const struct {
		int where;
		const char *path;
		bool deep;
	} list[] = {
	        {IN_ENTRY, "HEAD", false},
	        {IN_ENTRY, "index", false},
	        {IN_REPO, ".", false}, /* locks */
	        {IN_REPO, "HEAD", false},
	        {IN_REPO, "index", false},
	        {IN_REPO, "packed-refs", false},
	        {IN_REPO, "refs", true},
	        {IN_SOURCE, "packed-refs", false},
	        {IN_SOURCE, "refs/heads", true},
	        {IN_SOURCE, "refs/tags", true},
	        {IN_SOURCE, "refs/remotes", true},
	};
	int dirs[PLACES], r = 0;

	open_places(p, dirs);
	for (size_t i = 0; i < SBX_ARRAY_SIZE(list) && !r; i++)
		r = sbx_git_watch_add(w, list[i].where, dirs[list[i].where], list[i].path,
		                      list[i].deep);
	if (p->flat && !r)
		r = sbx_git_watch_add(w, IN_TREE, dirs[IN_TREE], ".git", false);
	close_places(dirs);
	return r;
}

static bool has_moved(struct sbx_git_private *p, int where)
{
	int dirs[PLACES];
	bool moved;

	if (!atomic_load(&p->ready))
		return true;
	open_places(p, dirs);
	pthread_mutex_lock(&p->lock);
	moved = sbx_git_watch_moved(&p->watch, dirs, where);
	pthread_mutex_unlock(&p->lock);
	close_places(dirs);
	return moved;
}

bool sbx_git_private_made(struct sbx_git_private *p)
{
	return atomic_load(&p->ready) || access(p->repo, F_OK) == 0;
}

void sbx_git_private_hurry(struct sbx_git_private *p, unsigned ms)
{
	atomic_store(&p->until, ms ? sbx_now_ms() + ms : 0);
}

bool sbx_git_private_locked(struct sbx_git_private *p)
{
	_cleanup_free_ char *path = sbx_format("%s/index.lock", p->repo);

	return path && faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

bool sbx_git_private_stale(struct sbx_git_private *p)
{
	return has_moved(p, -1);
}

bool sbx_git_private_moved_inside(struct sbx_git_private *p)
{
	return has_moved(p, IN_REPO);
}

static void keep_watch(struct sbx_git_private *p, struct sbx_git_watch *w)
{
	struct sbx_git_watch old;

	pthread_mutex_lock(&p->lock);
	old = p->watch;
	p->watch = *w;
	pthread_mutex_unlock(&p->lock);
	*w = old;
}

/* ---- one pass ---- */

/* Anything but a number is nothing. */
static void read_taken(struct sbx_sync *y)
{
	_cleanup_free_ char *text = NULL;

	y->taken.most = sbx_git_bounds.taken;
	y->taken.until = &y->p->until;
	if (sbx_file_read(y->meta, "taken", SMALL_MAX, &text) == 0)
		y->taken.bytes = strtoull(text, NULL, 10);
	if (y->taken.bytes > y->taken.most)
		y->taken.bytes = y->taken.most;
	y->taken_before = y->taken.bytes;
}

/* Where it cannot be written the disk is full, and nothing is taken over either. */
static void keep_taken(const struct sbx_sync *y)
{
	char text[32];
	int len;

	if (y->meta < 0 || y->taken.bytes == y->taken_before)
		return;
	len = snprintf(text, sizeof(text), "%llu\n", (unsigned long long)y->taken.bytes);
	sbx_locked_replace(y->meta, "taken", text, (size_t)len, NULL);
}

static void sync_finish(struct sbx_sync *y)
{
	keep_taken(y);
	if (y->index_lock >= 0)
		sbx_locked_end(y->repo, "index");
	sbx_cleanup_fd(&y->index_lock);
	sbx_git_reader_close(y->reader);
	sbx_git_taken_release(&y->taken);
	git_repository_free(y->source);
	sbx_cleanup_fd(&y->objects);
	sbx_cleanup_fd(&y->entry);
	sbx_cleanup_fd(&y->repo);
	sbx_cleanup_fd(&y->meta);
	free(y->head_base);
	free(y->head_host);
	free(y->head_inside);
	free(y->head_agreed);
	sbx_refs_release(&y->refs_base);
	sbx_refs_release(&y->refs_host);
	sbx_refs_release(&y->refs_inside);
	sbx_refs_release(&y->kept);
	sbx_refs_release(&y->kept_base);
	sbx_refs_release(&y->kept_want);
	sbx_refs_release(&y->kept_now);
	sbx_strings_release(&y->apart_from);
	sbx_refs_release(&y->want);
	sbx_refs_release(&y->agreed);
}

/* Descriptor, or -ENOENT also for one that nobody has finished making. */
static int open_entry(const char *path)
{
	int fd = path ? sbx_dir_open(AT_FDCWD, path) : -ENOMEM;

	if (fd < 0 || faccessat(fd, "HEAD", F_OK, AT_SYMLINK_NOFOLLOW) == 0 || errno != ENOENT)
		return fd;
	close(fd);
	return -ENOENT;
}

static int sync_open(struct sbx_sync *y)
{
	struct sbx_git_private *p = y->p;
	_cleanup_free_ char *entry = sbx_format("%s/worktrees/%s", p->wt.common, p->wt.worktree);
	_cleanup_fd_ int holder = -1;
	int r = y->meta = open_meta(p, y->err);

	if (r < 0)
		return r;
	read_taken(y);
	holder = open_holder(p, y->meta);
	if (holder < 0)
		return sbx_fail(y->err, -holder, "cannot open the sandbox's repository: %s",
		                strerror(-holder));
	r = make_repo(p, holder, y->err);
	if (r)
		return r;
	r = sbx_git_open(p->wt.common, &y->source);
	if (r)
		return sbx_git_fail(y->err, r, "cannot open the repository %s", p->wt.common);
	if (p->flat)
		sbx_sync_mend_link(y);
	y->repo = sbx_dir_open(holder, "repo");
	y->entry = open_entry(entry);
	if (y->entry == -ENOENT && y->repo >= 0) {
		r = sbx_sync_reattach(y, entry);
		if (r)
			return r;
		p->remade = y->moved = true;
		y->entry = sbx_dir_open(AT_FDCWD, entry);
	}
	if (y->repo < 0 || y->entry < 0)
		return sbx_fail(y->err, y->repo < 0 ? -y->repo : -y->entry,
		                "cannot open the worktree's entry %s", entry ? entry : "");
	return sbx_sync_lock_entry(y);
}

/* Whether something was moved, so that another look is due; negative: it cannot be done. */
static int pass(struct sbx_git_private *p, const struct sbx_git_idle *idle, struct sbx_error *err)
{
	struct sbx_sync y = {.p = p,
	                     .err = err,
	                     .meta = -1,
	                     .repo = -1,
	                     .entry = -1,
	                     .objects = -1,
	                     .index_lock = -1};
	int r = sync_open(&y);

	/* What there is of a sandbox before its first command, no command has changed. */
	if (!p->quiet.tv_sec)
		clock_gettime(CLOCK_REALTIME_COARSE, &p->quiet);
	if (!r) {
		p->locked = sbx_git_clear_inside(y.repo, idle);
		r = sbx_sync_refs(&y);
	}
	p->apart = r || y.apart;
	p->behind = r || y.behind;
	p->left = y.left;
	p->lacks = y.lacks;
	if (!r)
		sbx_sync_index(&y);
	if (!r && idle && y.sure)
		p->quiet = idle->since;
	sync_finish(&y);
	if (r)
		return r;
	return y.code ? y.code : y.moved;
}

/* Whether it may well go better next time, though nothing moves until then. */
static bool may_pass(int r)
{
	return r < 0 && r != -EEXIST && r != -EINVAL && r != -ENOENT && r != -EFBIG && r != -E2BIG;
}

static int repeat(struct sbx_git_private *p, const struct sbx_git_idle *idle, struct sbx_error *err)
{
	int r = 1;

	for (int i = 0; i < PASSES && r > 0; i++) {
		struct sbx_git_watch w = {0};

		/* Before reading: what moves meanwhile will show. */
		r = watch_all(p, &w);
		if (!r)
			r = pass(p, idle, err);
		w.vague |= may_pass(r) || p->locked || p->lacks;
		keep_watch(p, &w);
		sbx_git_watch_release(&w);
	}
	return r > 0 ? 0 : r;
}

static int prepare(struct sbx_git_private *p, struct sbx_error *err)
{
	_cleanup_fd_ int meta = -1, holder = -1;
	int r;

	if (atomic_load(&p->ready))
		return 0;
	r = find_objects(p, err);
	if (!r)
		r = meta = open_meta(p, err);
	if (r >= 0)
		r = holder = open_holder(p, meta);
	if (r >= 0)
		r = make_repo(p, holder, err);
	/* The next sync tries again. */
	if (r < 0) {
		forget_objects(p);
		return r;
	}
	p->shown[0] = p->seen;
	atomic_store(&p->ready, true);
	return 0;
}

int sbx_git_private_sync(struct sbx_git_private *p, const struct sbx_git_idle *idle,
                         struct sbx_error *err)
{
	struct sbx_error own = SBX_ERROR_INIT;
	int r = prepare(p, &own);
	bool again;

	p->apart = p->behind = true; /* until a pass knows better */
	p->remade = false;
	if (!r)
		r = repeat(p, idle, &own);
	if (!r && p->remade)
		r = sbx_fail(
		        &own, ENOENT,
		        "the worktree's entry %s was removed in the source (git worktree prune or "
		        "remove); it was made again",
		        p->wt.worktree);
	again = r && p->said.code == own.code && strcmp(p->said.text, own.text) == 0;
	p->said = own;
	if (!r || again)
		return 0;
	if (err)
		*err = own;
	return r;
}

int sbx_git_private_apart(const struct sbx_git_private *p, struct sbx_error *err)
{
	return p->apart ? sbx_fail(err, p->said.code, "%s", p->said.text) : 0;
}

int sbx_git_private_behind(const struct sbx_git_private *p, bool all, struct sbx_error *err)
{
	bool is = p->behind && may_pass(-p->said.code);

	if (all)
		is = p->behind || p->left;
	return is && p->said.code ? sbx_fail(err, p->said.code, "%s", p->said.text) : 0;
}
