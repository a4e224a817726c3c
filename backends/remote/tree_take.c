/*
 * The copy is made as a manifest says: entry by entry, by descriptors beneath the root, each
 * under the turn and after having asked whether the host has changed it meanwhile. Directories may
 * be moved between two entries: then they were changed by the host, and so is all that is in them.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/remote/tree_impl.h"
#include "backends/support/beneath.h"
#include "backends/support/fsutil.h"
#include "backends/support/tree.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"
#include "sandboxfs/grow.h"

#define SET_BACK_NS INT64_C(1000000000) /* a stamp is at least that much before its time */

/* A file that has several names, of which L tells one or more. */
struct remote_linked {
	uint64_t ino;
	const struct remote_listed *l;
	struct sbx_strings paths; /* of all that were found */
	uint64_t missing;         /* that it has besides */
	bool kept;                /* one of them is to stay as it is */
	int dirfd;                /* where NAME is, the first that was replaced; -1: none was */
	const char *name;
};

/* What is left out of the copy, as the local file system cannot have it. */
static bool cannot_be(int r)
{
	return r == -EFBIG || r == -ENAMETOOLONG || r == -EILSEQ || r == -EINVAL || r == -EPERM ||
	       r == -EOPNOTSUPP;
}

static bool touched(const struct remote_news *w, const char *path)
{
	const struct remote_tree_config *cfg = &w->tree->cfg;

	return cfg->touched(path, w->seen, cfg->data);
}

/* Something in the directory N was left as it is, though the manifest says otherwise. */
static void lag(struct remote_tree *t, struct remote_node *n)
{
	pthread_mutex_lock(&t->lock);
	if (n && n->dir)
		n->dir->lags = true;
	pthread_mutex_unlock(&t->lock);
}

/* An entry of the copy: its node, which is loaded, in the directory PARENT. */
struct entry {
	struct remote_node *parent;
	int dirfd;
	const char *name, *path; /* PATH from the root */
	struct stat st;
	struct remote_node *node;
};

/* 0, -ENOENT, -errno. */
static int look(struct remote_tree *t, struct entry *e)
{
	_cleanup_fd_ int fd = openat(e->dirfd, e->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0 || fstat(fd, &e->st) < 0)
		return -errno;
	e->node = remote_node_load(t, fd, &e->st, e->parent, e->name);
	return e->node ? 0 : -ENOMEM;
}

/* Of a file with other names the change may have been told of one of these. */
static bool is_touched(const struct remote_news *w, const struct entry *e)
{
	const struct remote_tree_config *cfg = &w->tree->cfg;

	return touched(w, e->path) || (!S_ISDIR(e->st.st_mode) && e->st.st_nlink > 1 &&
	                               cfg->touched_file(e->st.st_ino, w->seen, cfg->data));
}

/* Whether the entry is to stay as it is: newer is known of it, or the host has changed it. */
static bool is_kept(struct remote_news *w, const struct entry *e)
{
	const struct remote_node *n = e->node;

	if (n->told_ns > w->begun_ns || (n->dir && n->dir->there_ns > w->begun_ns))
		return true;
	if (!n->dirty && !is_touched(w, e))
		return false;
	lag(w->tree, e->parent);
	return true;
}

static void forget(struct remote_tree *t, const struct entry *e)
{
	pthread_mutex_lock(&t->lock);
	if (S_ISDIR(e->st.st_mode) || e->st.st_nlink <= 1)
		remote_node_gone(t, e->node);
	pthread_mutex_unlock(&t->lock);
}

/* Removes what is no directory. 0, or 1: it stays. */
static int remove_file(struct remote_news *w, struct entry *e)
{
	int r;

	if (is_kept(w, e))
		return 1;
	r = remote_unlink(e->dirfd, e->name, 0);
	if (r)
		return r == -ENOENT ? 0 : r;
	forget(w->tree, e);
	w->altered = true;
	return 0;
}

static int remove_empty(struct remote_news *w, struct entry *e)
{
	int r = remote_unlink(e->dirfd, e->name, AT_REMOVEDIR);

	if (r)
		return r == -ENOTEMPTY || r == -EEXIST ? 1 : r == -ENOENT ? 0 : r;
	forget(w->tree, e);
	w->altered = true;
	return 0;
}

/* Where a removal is: below TOP, a path from the root. */
struct removal {
	struct remote_news *news;
	struct sbx_levels levels;
	const char *top;
	int fd; /* of the directory on top of the levels */
};

/* Fills E for NAME of the directory that the removal is in. *PATH is what it points to. */
static int at_name(struct removal *m, const char *name, struct entry *e, char **path)
{
	struct remote_tree *t = m->news->tree;
	_cleanup_free_ char *below = sbx_levels_path(&m->levels, name);
	struct stat st;

	*path = below ? sbx_format("%s/%s", m->top, below) : NULL;
	if (!*path || fstat(m->fd, &st) < 0)
		return -ENOMEM;
	*e = (struct entry){.dirfd = m->fd, .name = name, .path = *path};
	pthread_mutex_lock(&t->lock);
	e->parent = remote_node_find(t, st.st_ino);
	pthread_mutex_unlock(&t->lock);
	return look(t, e);
}

/* Removes the files of the directory that was entered, and notes the directories. */
static int remove_files(struct removal *m)
{
	struct sbx_strings names = {0};
	int r = sbx_dir_names(m->fd, &names);

	for (size_t i = 0; i < names.n && r >= 0; i++) {
		_cleanup_free_ char *path = NULL;
		struct entry e;

		remote_hold_breathe(&m->news->hold);
		r = at_name(m, names.items[i], &e, &path);
		if (r == -ENOENT)
			r = 0;
		else if (!r && S_ISDIR(e.st.st_mode))
			r = sbx_strings_add(&sbx_levels_top(&m->levels)->todo, names.items[i]);
		else if (!r)
			r = remove_file(m->news, &e);
	}
	sbx_strings_release(&names);
	return r < 0 ? r : 0;
}

/* The directory NAME, also where the host has closed it to its owner; nobody can put a link there
 * while the turn is held. */
static int open_closed(int dirfd, const char *name)
{
	int fd = sbx_dir_open(dirfd, name);
	struct stat st;

	if (fd >= 0 && fstatat(fd, ".", &st, 0) < 0) {
		close(fd);
		fd = -EACCES;
	}
	if (fd != -EACCES)
		return fd;
	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (!S_ISDIR(st.st_mode) || fchmodat(dirfd, name, remote_mode_of_dir(st.st_mode), 0) < 0)
		return fd;
	return sbx_dir_open(dirfd, name);
}

static int enter(struct removal *m, char *name)
{
	_cleanup_free_ char *owned = name, *path = NULL;
	struct entry e;
	int fd, r = at_name(m, name, &e, &path);

	if (r)
		return r == -ENOENT ? 0 : r;
	/* The host has not closed it: that would keep it, too. */
	fd = is_kept(m->news, &e) ? sbx_dir_open(m->fd, name) : open_closed(m->fd, name);
	if (fd == -EACCES)
		return 0;

	/* It was moved away by the host meanwhile. */
	if (fd < 0)
		return fd == -ENOENT || fd == -ENOTDIR || fd == -ELOOP ? 0 : fd;
	r = sbx_levels_push(&m->levels, sbx_steal_ptr(&owned), fd);
	if (r) {
		close(fd);
		return r;
	}
	close(m->fd);
	m->fd = fd;
	return remove_files(m);
}

static int leave(struct removal *m)
{
	_cleanup_free_ char *name = strdup(sbx_levels_top(&m->levels)->name);
	_cleanup_free_ char *path = NULL;
	struct entry e;
	int r, up = sbx_levels_up(&m->levels, m->fd);

	if (up < 0)
		return up;
	sbx_levels_pop(&m->levels);
	close(m->fd);
	m->fd = up;
	if (!name)
		return -ENOMEM;
	r = at_name(m, name, &e, &path);
	if (!r && !is_kept(m->news, &e))
		r = remove_empty(m->news, &e);
	return r == -ENOENT || r > 0 ? 0 : r;
}

/* Removes the directory E with all in it that the host has not changed. 0, or 1: it stays. */
static int remove_dir(struct remote_news *w, struct entry *e)
{
	struct removal m = {.news = w, .top = e->path};
	int r;

	if (is_kept(w, e))
		return 1;
	m.fd = open_closed(e->dirfd, e->name);
	if (m.fd < 0)
		return m.fd;
	r = sbx_levels_push(&m.levels, NULL, m.fd);
	if (!r)
		r = remove_files(&m);
	while (!r && (m.levels.n > 1 || sbx_levels_top(&m.levels)->todo.n)) {
		char *name = sbx_strings_take(&sbx_levels_top(&m.levels)->todo);

		r = name ? enter(&m, name) : leave(&m);
	}
	sbx_levels_release(&m.levels);
	close(m.fd);
	/* It was moved away by the host meanwhile. */
	if (r == -ESTALE || (!r && is_kept(w, e)))
		return 1;
	if (!r)
		r = remove_empty(w, e);
	/* What was kept in it may be refused there, and nobody would tell again that it is gone. */
	if (r == 1)
		lag(w->tree, e->parent);
	return r;
}

/* Removes the entry, which is there. 0, or 1: it, or something in it, stays. */
static int remove_entry(struct remote_news *w, struct entry *e)
{
	return S_ISDIR(e->st.st_mode) ? remove_dir(w, e) : remove_file(w, e);
}

static void note_told(struct remote_news *w, struct remote_node *n)
{
	pthread_mutex_lock(&w->tree->lock);
	*(n->dir ? &n->dir->there_ns : &n->told_ns) = w->begun_ns;
	pthread_mutex_unlock(&w->tree->lock);
}

static int make(struct remote_news *w, struct entry *e, const struct remote_listed *l)
{
	int r;

	/* Newer is known of the directory: that it has no such name; or nothing at all. */
	if (e->parent->told_ns > w->begun_ns || !(e->parent->dir->listed || w->listing))
		return 0;
	r = remote_place(w->tree, e->dirfd, e->name, l, e->parent, &e->node);
	if (r)
		return cannot_be(r) ? 0 : r;
	note_told(w, e->node);
	w->altered |= e->parent->dir->listed;
	return 0;
}

/*
 * Whether L may be the file E. Of what is not here no descriptor has anything: there the name
 * counts, unless it is one of several.
 */
static bool is_same_file(const struct entry *e, const struct remote_listed *l)
{
	const struct remote_node *n = e->node;

	return !n->version.ino || n->version.ino == l->ino ||
	       (n->state != REMOTE_HERE && e->st.st_nlink == 1);
}

/* Whether L, which has another inode, may be the file E all the same: they all have. */
static bool is_renumbered(const struct remote_tree *t, const struct entry *e,
                          const struct remote_listed *l)
{
	return e->node->told_ns < t->renumbered_ns && l->ctime_ns <= t->renumbered;
}

/*
 * Notes that the file E, which has other names, is to be replaced by L. 1, or 0: by one of these it
 * is to be another file already; or -ENOMEM.
 */
static int note_linked(struct remote_news *w, const struct entry *e, const struct remote_listed *l)
{
	for (size_t i = 0; i < w->n_linked; i++)
		if (w->linked[i].ino == e->st.st_ino)
			return w->linked[i].l->ino == l->ino;
	if (SBX_GROW(w->linked, w->n_linked, w->linked_cap, 4))
		return -ENOMEM;
	w->linked[w->n_linked++] = (struct remote_linked){.ino = e->st.st_ino, .l = l};
	return 1;
}

/* The directory of PATH, malloc'd: "" for one in the root. */
static char *dir_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return strndup(path, slash ? (size_t)(slash - path) : 0);
}

/* Whether a directory that cannot be opened for R is none of those that were told of. */
static bool is_none(int r)
{
	return r == -ENOENT || r == -ENOTDIR || r == -ELOOP || r == -ENAMETOOLONG;
}

/*
 * PATH cannot be looked into for R (negative). What the machine tells of it is told again where the
 * host has closed it; anything else would be lost: R.
 */
static int pass_over(struct remote_news *w, const char *path, int r)
{
	if (r == -EACCES)
		remote_tree_refused(w->tree, path);
	return r == -EACCES || is_none(r) ? 0 : r;
}

/* What is open at FD (O_PATH) gets what its owner needs to look into it, as it has when the machine
 * has told of it; but what the host has done is kept until that is sent. */
static void open_up(struct remote_news *w, const char *path, int fd)
{
	char proc[40];
	struct stat st;

	if (fstat(fd, &st) < 0 || remote_mode_of_dir(st.st_mode) == (st.st_mode & 07777) ||
	    touched(w, path))
		return;
	snprintf(proc, sizeof(proc), "/proc/self/fd/%d", fd);
	chmod(proc, remote_mode_of_dir(st.st_mode));
}

static int try_dir(struct remote_tree *t, const char *path)
{
	_cleanup_fd_ int fd = sbx_beneath_open(t->root, *path ? path : ".", O_RDONLY | O_DIRECTORY);
	struct stat st;

	/* Its names may be there to be read, and not to be looked up. */
	if (fd >= 0 && fstatat(fd, ".", &st, 0) < 0)
		return -errno;
	return sbx_steal_fd(&fd);
}

/* The directory PATH, with all that it is in open to its owner. With the turn held. */
static int open_dir(struct remote_news *w, const char *path)
{
	int fd = try_dir(w->tree, path);

	if (fd != -EACCES)
		return fd;
	for (size_t n = strcspn(path, "/");; n += 1 + strcspn(path + n + 1, "/")) {
		_cleanup_free_ char *part = strndup(path, n);
		_cleanup_fd_ int at = -1;

		if (!part)
			return -ENOMEM;
		at = sbx_beneath_open(w->tree->root, *part ? part : ".", O_PATH | O_DIRECTORY);
		if (at < 0)
			return at;
		open_up(w, part, at);
		if (!path[n])
			break;
	}
	return try_dir(w->tree, path);
}

/* Notes that a name of the file E is what L says by now, and another file. */
static void keep_heir(struct remote_tree *t, const struct entry *e, const struct remote_listed *l)
{
	struct remote_node *n;

	pthread_mutex_lock(&t->lock);
	n = remote_node_find(t, e->st.st_ino);
	if (n) {
		free(n->heir);
		n->heir = strdup(l->path);
	}
	pthread_mutex_unlock(&t->lock);
}

/*
 * Whether L is the file that took another name of E, and takes this one as well. Who has E open
 * goes along where this is the last of its names, and nothing of it is here.
 */
static bool inherit(struct remote_news *w, struct entry *e, const struct remote_listed *l)
{
	struct remote_tree *t = w->tree;
	_cleanup_free_ char *path = NULL, *dir = NULL;
	_cleanup_fd_ int fd = -1, dirfd = -1;
	struct remote_node *n;
	const char *slash;
	struct stat st;

	pthread_mutex_lock(&t->lock);
	path = e->node->heir ? strdup(e->node->heir) : NULL;
	pthread_mutex_unlock(&t->lock);
	dir = path ? dir_of(path) : NULL;
	dirfd = dir ? open_dir(w, dir) : -1;
	if (dirfd < 0)
		return false;
	slash = strrchr(path, '/');
	fd = openat(dirfd, slash ? slash + 1 : path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return false;
	pthread_mutex_lock(&t->lock);
	n = remote_node_find(t, st.st_ino);
	if (n && (n == e->node || !remote_version_is(&n->version, l)))
		n = NULL;
	pthread_mutex_unlock(&t->lock);
	if (!n || remote_replace_as(t, e->dirfd, e->name, dirfd, slash ? slash + 1 : path,
	                            is_same_file(e, l)))
		return false;
	e->node = n;
	note_told(w, n);
	w->altered = true;
	return true;
}

static int replace(struct remote_news *w, struct entry *e, const struct remote_listed *l)
{
	const struct entry old = *e;
	bool same = is_same_file(e, l);
	int r;

	if (same && S_ISREG(l->mode) && e->st.st_nlink > 1) {
		r = note_linked(w, e, l);
		if (r)
			return r < 0 ? r : 0;
		same = false;
	}
	r = remote_replace(w->tree, e->dirfd, e->name, l, same, e->parent, &e->node);
	if (r)
		return cannot_be(r) ? 0 : r;
	if (old.st.st_nlink > 1)
		keep_heir(w->tree, &old, l);
	note_told(w, e->node);
	w->altered = true;
	return 0;
}

/* Nobody has put a link in place of it, because the turn is held. */
static int set_mode(struct remote_news *w, struct entry *e, mode_t mode)
{
	if ((e->st.st_mode & 07777) == mode)
		return 0;
	w->altered = true;
	return fchmodat(e->dirfd, e->name, mode, 0) < 0 ? -errno : 0;
}

/* Whether L has the time of the file here, perhaps without its fraction. */
static bool has_our_time(const struct entry *e, const struct remote_listed *l)
{
	const int64_t here = sbx_timespec_ns(&e->st.st_mtim), second = 1000000000;

	return l->mtime_ns == here ||
	       (l->mtime_ns % second == 0 && l->mtime_ns / second == here / second);
}

/*
 * Whether these are the contents that are here: the machine was just sent them, or the file's mode,
 * times or name; or the host has given it other times where no ctime tells contents that have the
 * size and time of those before.
 */
static bool is_ours(const struct remote_tree *t, const struct entry *e,
                    const struct remote_listed *l)
{
	const struct remote_node *n = e->node;

	return n->state == REMOTE_HERE && !n->racy && (uint64_t)e->st.st_size == l->size &&
	       has_our_time(e, l) &&
	       (!n->version.ino || n->version.ino == l->ino || (t->cfg.renumbers && l->sent)) &&
	       (l->sent || (n->version.ino && !n->version.ctime_ns && !l->ctime_ns));
}

/*
 * Whether L is the version that is known. A mode, or a name, that is new has another ctime as well,
 * but so have new contents that were given the size and the time of those before. Where a machine's
 * files are an overlay, one that was written in place has another inode in the next container, and
 * the same times. Elsewhere two files may have these as well, which were made one after the other.
 */
static bool is_known(const struct remote_tree *t, const struct entry *e,
                     const struct remote_listed *l)
{
	const struct remote_version *v = &e->node->version;
	const bool timely = v->ctime_ns == l->ctime_ns;

	if (v->size != l->size || v->mtime_ns != l->mtime_ns || e->node->racy)
		return false;
	return v->ino == l->ino
	               ? timely || e->node->state == REMOTE_ABSENT
	               : (t->cfg.renumbers && timely && l->ctime_ns) || is_renumbered(t, e, l);
}

/* Notes that the contents that are here are what L says. */
static int adopt(struct remote_news *w, struct entry *e, const struct remote_listed *l)
{
	struct remote_tree *t = w->tree;
	int r = remote_refit(t, e->dirfd, e->name, l, REMOTE_HERE);

	if (r)
		return r;
	w->altered |= (e->st.st_mode & 0777) != (l->mode & 0777);
	pthread_mutex_lock(&t->lock);
	e->node->version = remote_version_of(l);
	/* It has the time that it had here, which is older, unless it was written in place. */
	e->node->racy = remote_is_racy(l, w->begun, REMOTE_TICK_NS);
	remote_node_set(t, e->node, REMOTE_HERE, l->size);
	pthread_mutex_unlock(&t->lock);
	return 0;
}

/* Of a version that is known the mode may be another, and the inode. */
static int keep(struct remote_news *w, struct entry *e, const struct remote_listed *l)
{
	pthread_mutex_lock(&w->tree->lock);
	if (l->ctime_ns)
		e->node->version.ctime_ns = l->ctime_ns;
	e->node->version.ino = l->ino;
	pthread_mutex_unlock(&w->tree->lock);
	return set_mode(w, e, l->mode & 0777);
}

/* A file of which nothing is here yet can be changed in place: nobody has seen any contents. */
static int refit(struct remote_news *w, struct entry *e, const struct remote_listed *l)
{
	struct remote_tree *t = w->tree;
	int r = remote_refit(t, e->dirfd, e->name, l, REMOTE_ABSENT);

	if (r)
		return cannot_be(r) ? 0 : r;
	pthread_mutex_lock(&t->lock);
	e->node->version = remote_version_of(l);
	remote_node_set(t, e->node, l->size ? REMOTE_ABSENT : REMOTE_HERE, 0);
	remote_node_fail(t, e->node, NULL);
	pthread_mutex_unlock(&t->lock);
	w->altered = true;
	return 0;
}

/*
 * What was sent by this name has other names there, which a command has made, and which are files
 * of their own here: what they are now is asked for soon.
 */
static void ask_for_others(struct remote_news *w, const struct entry *e,
                           const struct remote_listed *l)
{
	if (l->sent && l->nlink > e->st.st_nlink)
		lag(w->tree, w->tree->top);
}

static int update_file(struct remote_news *w, struct entry *e, const struct remote_listed *l)
{
	struct remote_node *n = e->node;
	int r = 0;

	ask_for_others(w, e, l);
	if (is_ours(w->tree, e, l))
		r = adopt(w, e, l);
	else if (is_known(w->tree, e, l))
		r = keep(w, e, l);
	else if (n->heir && inherit(w, e, l))
		return 0;
	else if (n->state == REMOTE_ABSENT && is_same_file(e, l))
		r = refit(w, e, l);
	else
		return replace(w, e, l);
	if (!r)
		note_told(w, n);
	return r;
}

static int update_link(struct remote_news *w, struct entry *e, const struct remote_listed *l)
{
	_cleanup_free_ char *text = remote_text_of_link(w->tree, l->path, l->target);
	_cleanup_free_ char *there = NULL;
	char here[PATH_MAX];
	ssize_t n;

	if (!text)
		return -ENOMEM;
	n = readlinkat(e->dirfd, e->name, here, sizeof(here) - 1);
	if (n < 0)
		return -errno;
	here[n] = '\0';
	if (strcmp(here, text) != 0) {
		there = remote_tree_text_there(w->tree, here);
		if (!there)
			return -ENOMEM;
		if (strcmp(there, l->target) != 0)
			return replace(w, e, l);
	}
	note_told(w, e->node);
	return 0;
}

/*
 * Another directory may have come to the place of one: by its contents nobody would see that, as
 * those below it were not changed when it was moved. Nothing that was listed there counts. Which is
 * which of those that the host has made nobody knows before they are told of; the first time those
 * below do not count, of which all that are new there are told of as well.
 */
static void check_dir(struct remote_news *w, struct remote_node *n, const struct remote_listed *l)
{
	struct remote_tree *t = w->tree;

	pthread_mutex_lock(&t->lock);
	if (n->told_ns <= w->begun_ns && n->dir->there_ns <= w->begun_ns) {
		if (n->version.ino && n->version.ino != l->ino) {
			remote_dir_void(t, n, w->begun_ns);
			w->altered = true;
		} else if (!n->version.ino) {
			for (struct remote_node *i = n->dir->child; i; i = i->dir->sibling) {
				remote_dir_void(t, i, w->begun_ns);
				w->altered = true;
			}
		}
		n->version.ino = l->ino;
	}
	if (n->dir->there_ns < w->begun_ns)
		n->dir->there_ns = w->begun_ns;
	pthread_mutex_unlock(&t->lock);
}

static int update(struct remote_news *w, struct entry *e, const struct remote_listed *l)
{
	int r;

	switch (l->mode & S_IFMT) {
	case S_IFREG:
		return update_file(w, e, l);
	case S_IFLNK:
		return update_link(w, e, l);
	case S_IFDIR:
		check_dir(w, e->node, l);
		return set_mode(w, e, remote_mode_of_dir(l->mode));
	default:
		r = set_mode(w, e, l->mode & 0777);
		if (!r)
			note_told(w, e->node);
		return r;
	}
}

/*
 * Whether newer is known of the directory N, or of one that it is in. That may have been elsewhere
 * for the manifest, with all that is in it, and have come back since; so N is listed anew.
 */
static bool is_overtaken(const struct remote_news *w, struct remote_node *n)
{
	struct remote_tree *t = w->tree;
	const struct remote_node *at = n;

	pthread_mutex_lock(&t->lock);
	while (at && at->dir->there_ns <= w->begun_ns)
		at = at->dir->parent;
	if (at && n->dir->listed)
		n->dir->lags = true;
	pthread_mutex_unlock(&t->lock);
	return at;
}

/* What is gone there, or there was changed by the host and is not there yet. */
static int apply_gone(struct remote_news *w, struct entry *e)
{
	int r = look(w->tree, e);

	if (r)
		return r == -ENOENT ? 0 : r;
	if (e->node->dir && touched(w, e->path))
		lag(w->tree, e->node);
	r = remove_entry(w, e);
	return r < 0 ? r : 0;
}

/*
 * What the host had sent, as it was when it came. By its inode it is seen later whether a command
 * has written to it or has put another in its place. Where anything newer is known it says nothing.
 */
static int apply_came(struct remote_news *w, struct entry *e, const struct remote_listed *l)
{
	int r;

	if (touched(w, l->path))
		return 0;
	r = look(w->tree, e);
	if (r)
		return r == -ENOENT ? 0 : r;
	if (!S_ISREG(e->st.st_mode) || e->node->version.ino || is_kept(w, e) ||
	    !is_ours(w->tree, e, l))
		return 0;
	return adopt(w, e, l);
}

static int apply_one(struct remote_news *w, struct entry *e, const struct remote_listed *l)
{
	int r;

	if (is_overtaken(w, e->parent))
		return 0;
	if (l->came)
		return apply_came(w, e, l);
	if (!l->mode)
		return apply_gone(w, e);
	if (touched(w, l->path)) {
		lag(w->tree, e->parent);
		return 0;
	}
	r = look(w->tree, e);
	if (r == -ENOENT)
		return make(w, e, l);
	if (r)
		return r;
	if ((e->st.st_mode & S_IFMT) != (l->mode & S_IFMT)) {
		r = remove_entry(w, e);
		return r ? (r < 0 ? r : 0) : make(w, e, l);
	}
	return S_ISDIR(l->mode) || !is_kept(w, e) ? update(w, e, l) : 0;
}

/* The items from I on that lie in one directory; *I is moved behind them. */
static int apply_group(struct remote_news *w, const struct remote_manifest *m, size_t *i)
{
	_cleanup_free_ char *dir = dir_of(m->items[*i].path);
	const struct remote_listed *self;
	struct remote_node *parent;
	_cleanup_fd_ int fd = -1;
	size_t at, end;
	int r = 0;

	if (!dir)
		return -ENOMEM;
	at = remote_manifest_within(m, dir, &end);
	*i = end;
	self = remote_manifest_find(m, dir);
	w->listing = self && self->complete;
	remote_hold_begin(&w->hold, w->tree);
	fd = open_dir(w, dir);
	parent = fd < 0 ? NULL : remote_dir_load(w->tree, dir);
	if (!parent)
		r = pass_over(w, dir, fd < 0 ? fd : -errno);
	for (; parent && at < end && !r; at++) {
		const char *slash = strrchr(m->items[at].path, '/');
		struct entry e = {.parent = parent,
		                  .dirfd = fd,
		                  .path = m->items[at].path,
		                  .name = slash ? slash + 1 : m->items[at].path};

		r = apply_one(w, &e, &m->items[at]);
		remote_hold_breathe(&w->hold);
	}
	remote_hold_end(&w->hold);
	return r;
}

/* The names of a directory that a manifest does not have. */
struct surplus {
	const struct remote_manifest *manifest;
	const char *dir;
	struct sbx_strings names;
};

static int add_surplus(const char *name, unsigned char type, void *data)
{
	struct surplus *s = data;
	_cleanup_free_ char *path = sbx_format("%s%s%s", s->dir, *s->dir ? "/" : "", name);

	(void)type;
	if (!path)
		return -ENOMEM;
	if (strcmp(name, ".git") == 0 || remote_manifest_find(s->manifest, path))
		return 0;
	return sbx_strings_add(&s->names, name);
}

static int remove_surplus(struct remote_news *w, struct remote_node *dir, int fd,
                          const struct surplus *s)
{
	int r = 0;

	for (size_t i = 0; i < s->names.n && r >= 0; i++) {
		const char *name = s->names.items[i];
		_cleanup_free_ char *path = sbx_format("%s%s%s", s->dir, *s->dir ? "/" : "", name);
		struct entry e = {.parent = dir, .dirfd = fd, .name = name, .path = path};

		r = path ? look(w->tree, &e) : -ENOMEM;
		if (!r)
			r = remove_entry(w, &e);
		if (r == -ENOENT)
			r = 0;
		remote_hold_breathe(&w->hold);
	}
	return r < 0 ? r : 0;
}

/* Adds the name PATH of a file that is to be replaced. */
static int add_name(const char *path, int fd, const struct stat *st, void *data)
{
	const struct remote_news *w = data;

	(void)fd;
	for (size_t i = 0; i < w->n_linked; i++)
		if (w->linked[i].ino == st->st_ino)
			return sbx_strings_add(&w->linked[i].paths, path);
	return 0;
}

typedef int name_fn(struct remote_news *w, struct remote_linked *k, struct entry *e);

/* Does FN for each name that the file K still has. With the turn held. */
static int each_name(struct remote_news *w, struct remote_linked *k, name_fn *fn)
{
	int r = 0;

	for (size_t i = 0; i < k->paths.n && !r; i++) {
		const char *path = k->paths.items[i], *slash = strrchr(path, '/');
		_cleanup_free_ char *dir = dir_of(path);
		_cleanup_fd_ int fd = dir ? open_dir(w, dir) : -ENOMEM;
		struct entry e = {.dirfd = fd, .name = slash ? slash + 1 : path, .path = path};

		if (!dir)
			return -ENOMEM;
		e.parent = fd < 0 ? NULL : remote_dir_load(w->tree, dir);
		if (!e.parent) {
			r = pass_over(w, dir, fd < 0 ? fd : -errno);
			continue;
		}
		r = look(w->tree, &e);
		if (!r && e.st.st_ino == k->ino)
			r = fn(w, k, &e);
		else if (r == -ENOENT)
			r = 0;
	}
	return r;
}

static int check_name(struct remote_news *w, struct remote_linked *k, struct entry *e)
{
	k->missing = k->missing ? k->missing - 1 : e->st.st_nlink - 1;
	k->kept |= is_kept(w, e);
	return 0;
}

static int lag_name(struct remote_news *w, struct remote_linked *k, struct entry *e)
{
	(void)k;
	lag(w->tree, e->parent);
	return 0;
}

static int replace_name(struct remote_news *w, struct remote_linked *k, struct entry *e)
{
	int r;

	if (k->dirfd >= 0)
		return remote_replace_as(w->tree, e->dirfd, e->name, k->dirfd, k->name, true);
	r = remote_replace(w->tree, e->dirfd, e->name, k->l, true, e->parent, &e->node);
	if (r)
		return cannot_be(r) ? 0 : r;
	note_told(w, e->node);
	w->altered = true;
	k->name = e->name;
	k->dirfd = fcntl(e->dirfd, F_DUPFD_CLOEXEC, 0);
	return k->dirfd < 0 ? -errno : 0;
}

/* ALL: only when all names of the file K were found. 0, or 1: they were not, because some were
 * moved meanwhile; or -errno. */
static int replace_names(struct remote_news *w, struct remote_linked *k, bool all)
{
	int r;

	k->kept = false;
	k->missing = 0;
	k->dirfd = -1;
	r = each_name(w, k, check_name);
	if (r || (k->missing && all))
		return r ? r : 1;
	r = each_name(w, k, k->kept ? lag_name : replace_name);
	if (k->dirfd >= 0)
		close(k->dirfd);
	return r;
}

/*
 * By one name alone the host would change another file from then on, and what it wrote would go
 * with a name that it removes. Which names are one file here no manifest says, so the copy is
 * walked.
 */
static int replace_linked(struct remote_news *w)
{
	int r = 0;

	for (unsigned tries = 3; tries && w->n_linked && r >= 0; tries--) {
		size_t n = 0;

		r = remote_walk(w->tree, add_name, w);
		remote_hold_begin(&w->hold, w->tree);
		for (size_t i = 0; i < w->n_linked && r >= 0; i++) {
			struct remote_linked *k = &w->linked[i];

			r = replace_names(w, k, tries > 1);
			sbx_strings_release(&k->paths);
			if (r > 0)
				w->linked[n++] = *k;
			remote_hold_breathe(&w->hold);
		}
		remote_hold_end(&w->hold);
		if (r >= 0)
			w->n_linked = n;
	}
	for (size_t i = 0; i < w->n_linked; i++)
		sbx_strings_release(&w->linked[i].paths);
	free(w->linked);
	w->linked = NULL;
	w->n_linked = w->linked_cap = 0;
	return r < 0 ? r : 0;
}

/*
 * The root was seen before the machine told of it: who reads all of a new sandbox would take that
 * its time becomes the machine's for a change.
 */
static int64_t time_of(const struct remote_news *w, const struct remote_node *n, int fd,
                       const struct remote_listed *l)
{
	struct statx x;

	if (n != w->tree->top || n->dir->listed ||
	    statx(fd, "", AT_EMPTY_PATH, STATX_BTIME, &x) < 0 || !(x.stx_mask & STATX_BTIME))
		return l->mtime_ns;
	return x.stx_btime.tv_sec * INT64_C(1000000000) + x.stx_btime.tv_nsec;
}

static int note_listed(struct remote_news *w, struct remote_node *n, int fd,
                       const struct remote_listed *l)
{
	const int64_t time = time_of(w, n, fd, l);
	const struct timespec times[2] = {
	        {.tv_nsec = UTIME_OMIT},
	        {.tv_sec = time / 1000000000, .tv_nsec = time % 1000000000}};
	const bool ours = touched(w, l->path);
	struct remote_tree *t = w->tree;
	int r = 0;

	/* What was changed may be that another directory has this path by now. */
	if (ours && !n->dir->listed)
		return 0;
	if (!n->dir->listed)
		r = remote_dir_keep(fd);
	if (!ours && time >= 0)
		futimens(fd, times);
	pthread_mutex_lock(&t->lock);
	if (!r && !n->dir->listed) {
		n->dir->turn = ++t->turns;
		/* What changed in it until then nobody asks for any more. */
		n->dir->lags |= w->begun_ns < t->old_ns;
	}
	n->dir->listed |= !r;
	n->told_ns = w->begun_ns;
	n->dir->fresh_ns = sbx_now_ns();
	remote_node_fail(t, n, NULL);
	pthread_mutex_unlock(&t->lock);
	return r;
}

/* The directory L is as the manifest has it. */
static int complete(struct remote_news *w, const struct remote_manifest *m,
                    const struct remote_listed *l)
{
	struct surplus s = {.manifest = m, .dir = l->path};
	_cleanup_fd_ int fd = -1;
	struct remote_node *n;
	int r;

	remote_hold_begin(&w->hold, w->tree);
	fd = open_dir(w, l->path);
	remote_hold_end(&w->hold);
	r = fd < 0 ? pass_over(w, l->path, fd) : sbx_dir_scan(fd, add_surplus, &s);
	if (fd >= 0 && !r) {
		remote_hold_begin(&w->hold, w->tree);
		n = remote_dir_load(w->tree, l->path);
		if (!n) {
			r = pass_over(w, l->path, -errno);
		} else if (n->told_ns <= w->begun_ns && !is_overtaken(w, n)) {
			r = remove_surplus(w, n, fd, &s);
			if (!r)
				r = note_listed(w, n, fd, l);
		}
		remote_hold_end(&w->hold);
	}
	sbx_strings_release(&s.names);
	return r;
}

/* All that is left to know of it is being told, unless changes that are asked for are newer. */
static void catch_up(struct remote_news *w, const char *path)
{
	struct remote_tree *t = w->tree;
	struct remote_node *n;

	pthread_mutex_lock(&t->lock);
	n = remote_dir_find(t, path);
	if (n && n->told_ns <= w->begun_ns && t->old_ns <= w->begun_ns)
		n->dir->lags = false;
	pthread_mutex_unlock(&t->lock);
}

/* It was not told after all. */
static void undo_catch_up(struct remote_news *w, const struct remote_manifest *m)
{
	struct remote_tree *t = w->tree;

	pthread_mutex_lock(&t->lock);
	for (size_t i = 0; i < m->n; i++) {
		struct remote_node *n =
		        m->items[i].complete ? remote_dir_find(t, m->items[i].path) : NULL;

		if (n && n->told_ns <= w->begun_ns)
			n->dir->lags = true;
	}
	pthread_mutex_unlock(&t->lock);
}

/* The root, which lies in no directory, has its mode there too. */
static int apply_root(struct remote_news *w, const struct remote_listed *l)
{
	struct entry e = {.dirfd = w->tree->root, .name = ".", .path = "", .node = w->tree->top};
	int r = 0;

	if (!S_ISDIR(l->mode) || touched(w, ""))
		return 0;
	remote_hold_begin(&w->hold, w->tree);
	if (e.node->told_ns <= w->begun_ns)
		r = fstat(e.dirfd, &e.st) < 0 ? -errno
		                              : set_mode(w, &e, remote_mode_of_dir(l->mode));
	remote_hold_end(&w->hold);
	return r;
}

int remote_apply(struct remote_news *w, const struct remote_manifest *m)
{
	int r = 0, replaced;

	for (size_t i = 0; i < m->n; i++)
		if (m->items[i].complete)
			catch_up(w, m->items[i].path);
	if (m->n && !m->items[0].path[0])
		r = apply_root(w, &m->items[0]);
	for (size_t i = m->n && !m->items[0].path[0]; i < m->n && !r;)
		r = apply_group(w, m, &i);
	for (size_t i = 0; i < m->n && !r; i++)
		if (m->items[i].complete)
			r = complete(w, m, &m->items[i]);
	replaced = replace_linked(w);
	if (!r)
		r = replaced;
	if (r)
		undo_catch_up(w, m);
	return r;
}

int64_t remote_machine_time(struct remote_tree *t, uint64_t begun, int64_t floor_ns)
{
	const int64_t most = INT64_MAX / 2;
	int64_t at = begun < (uint64_t)most ? (int64_t)begun : most;

	pthread_mutex_lock(&t->lock);
	at = t->offset_ns < most - at ? at + t->offset_ns : most;
	if (at < floor_ns) {
		/* What has changed since is not newer than the stamp: all is to be told. */
		if (floor_ns - at >= SET_BACK_NS) {
			t->old[0] = '\0';
			t->doubted = true;
			t->doubted_at = t->stamps;
		}
		t->offset_ns += floor_ns - at;
		at = floor_ns;
	}
	if (at > t->known_ns)
		t->known_ns = at;
	pthread_mutex_unlock(&t->lock);
	return at;
}
