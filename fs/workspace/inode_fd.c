/*
 * The descriptors of nodes. Each node has at most one, of the least mode that has served so far; a
 * wider one replaces it. Files that were created keep the descriptor they were created with, which
 * can write even where the mode says otherwise.
 *
 * A command may replace or remove files that the host has open, and nobody tells which those are.
 * So whatever has been read, written or made keeps its descriptor as long as there is room, and so
 * does what was looked up shortly before a job starts, or while one runs. While one runs the
 * descriptor only names the file: each write opens another. A large file that was removed takes its
 * place until its descriptor is closed, so that is kept no longer than it is used.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "fs/sandbox/registry.h"
#include "fs/workspace/inode_impl.h"
#include "fs/workspace/nested_git.h"
#include "fs/workspace/owner.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"
#include "sandboxfs/mitigations.h"

#define COPIED_AT_ONCE (1 << 30)

static void ring_init(struct sbx_fd *ring)
{
	ring->lru_prev = ring->lru_next = ring;
}

static void ring_remove(struct sbx_fd *f)
{
	f->lru_prev->lru_next = f->lru_next;
	f->lru_next->lru_prev = f->lru_prev;
}

static void ring_push(struct sbx_fd *ring, struct sbx_fd *f)
{
	f->lru_prev = ring;
	f->lru_next = ring->lru_next;
	ring->lru_next->lru_prev = f;
	ring->lru_next = f;
}

void sbx_fds_init(struct sbx_inodes *tab)
{
	ring_init(&tab->lru);
	ring_init(&tab->pins);
	ring_init(&tab->leaving);
}

void sbx_fd_free(struct sbx_fd *f)
{
	assert(!f->refs && !f->node);
	ring_remove(f);
	free(f);
}

/*
 * Nobody uses F, nor finds it, any more. What could keep a file from being executed is closed at
 * once: whoever has made sure that no such descriptor is left need not wait for another thread.
 * Lock held.
 */
static void fd_close(struct sbx_inodes *tab, struct sbx_fd *f)
{
	assert(f->refs == 0 && !f->node);
	if (sbx_fd_writes(f) && !f->pinned) {
		close(f->fd);
		sbx_fd_free(f);
		pthread_cond_broadcast(&tab->closed);
		return;
	}
	f->dead_next = tab->dead;
	tab->dead = f;
}

void sbx_fd_drop(struct sbx_inodes *tab, struct sbx_fd *f)
{
	assert(f->node && f->node->fd == f);
	assert(f->pinned ? tab->npinned > 0 : tab->nfds > 0);
	ring_remove(f);
	if (f->pinned)
		tab->npinned--;
	else
		tab->nfds--;
	f->box = f->node->box;
	f->node->fd = NULL;
	f->node = NULL;
	ring_push(&tab->leaving, f);
	if (f->refs == 0)
		fd_close(tab, f);
}

static void fds_trim(struct sbx_inodes *tab, unsigned max)
{
	struct sbx_fd *f = tab->lru.lru_prev, *prev;

	for (; tab->nfds > max && f != &tab->lru; f = prev) {
		prev = f->lru_prev;
		if (f->refs == 0)
			sbx_fd_drop(tab, f);
	}
	if (tab->npinned > tab->max_fds)
		sbx_fd_drop(tab, tab->pins.lru_prev);
}

struct sbx_fd *sbx_fd_install(struct sbx_inodes *tab, struct sbx_node *node, int fd, int mode)
{
	struct sbx_fd *f = malloc(sizeof(*f));
	bool pinned = node->fd && node->fd->pinned;

	assert(fd >= 0);
	assert(node->refs || node->nlookup);
	if (!f) {
		close(fd);
		return NULL;
	}
	if (node->fd)
		sbx_fd_drop(tab, node->fd);
	*f = (struct sbx_fd){.fd = fd,
	                     .mode = mode,
	                     .refs = 1,
	                     .pinned = pinned,
	                     .used_ms = sbx_inodes_now_ms(),
	                     .node = node};
	f->pinned_ms = f->used_ms;
	node->fd = f;
	ring_push(pinned ? &tab->pins : &tab->lru, f);
	if (pinned)
		tab->npinned++;
	else
		tab->nfds++;
	fds_trim(tab, tab->max_fds);
	return f;
}

static bool fd_serves(const struct sbx_fd *f, enum sbx_fd_want want)
{
	switch (want) {
	case SBX_FD_PATH:
		return true;
	case SBX_FD_READ:
		return f->mode == O_RDONLY || f->mode == O_RDWR;
	case SBX_FD_WRITE:
		return f->mode == O_WRONLY || f->mode == O_RDWR;
	}
	return false;
}

/* Drops what can be dropped after EMFILE. */
static void make_room(struct sbx_inodes *tab)
{
	sbx_inodes_lock(tab);
	fds_trim(tab, 0);
	sbx_inodes_unlock(tab);
}

static int open_again(struct sbx_inodes *tab, int dirfd, const char *name, int flags)
{
	int fd;

	if (sbx_mitigation_off("identity"))
		flags &= ~O_NOFOLLOW;
	fd = openat(dirfd, name, flags | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (fd < 0 && (errno == EMFILE || errno == ENFILE)) {
		make_room(tab);
		fd = openat(dirfd, name, flags | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	}
	return fd < 0 ? -errno : fd;
}

/*
 * A file whose mode keeps its owner out was open when the client got its descriptor; we open only
 * now. The owner may change the mode, so it is lifted for the moment of opening.
 */
static int open_lifted(struct sbx_inodes *tab, int path_fd, int flags)
{
	char proc[32];
	struct stat st;
	int fd;

	snprintf(proc, sizeof(proc), "/proc/self/fd/%d", path_fd);
	fd = open_again(tab, AT_FDCWD, proc, flags);
	if (fd != -EACCES || fstat(path_fd, &st) < 0 || st.st_uid != geteuid())
		return fd;
	if (chmod(proc, (st.st_mode & 07777) | S_IRUSR | S_IWUSR) < 0)
		return -EACCES;
	fd = open_again(tab, AT_FDCWD, proc, flags);
	chmod(proc, st.st_mode & 07777);
	return fd;
}

static int open_child(struct sbx_inodes *tab, const struct sbx_node *dir, int dirfd,
                      const char *name)
{
	struct sbx_nested n;
	int fd = sbx_nested_find(dir->box, dirfd, name, &n);

	if (fd < 0)
		return fd;
	fd = open_again(tab, n.dirfd, n.name, O_PATH | O_NOFOLLOW);
	sbx_nested_release(&n);
	return fd;
}

/* Has TO, which is empty, hold what FROM holds. */
static int copy_data(int from, int to)
{
	ssize_t n;

	while ((n = copy_file_range(from, NULL, to, NULL, COPIED_AT_ONCE, 0)) > 0)
		;
	if (n == 0)
		return 0;
	if (lseek(from, 0, SEEK_SET) < 0 || ftruncate(to, 0) < 0 || lseek(to, 0, SEEK_SET) < 0)
		return -errno;
	while ((n = sendfile(to, from, NULL, COPIED_AT_ONCE)) > 0)
		;
	return n < 0 ? -errno : 0;
}

/*
 * Overlayfs makes a file of the base writable under its name, and fails where another has that by
 * now. Who has the file open gets a copy without a name, as if it had been copied when it was
 * opened.
 */
static int open_copy(struct sbx_inodes *tab, const struct sbx_node *node, int path_fd)
{
	_cleanup_fd_ int root = sbx_box_root(node->box), from = -1, to = -1;
	struct stat st;
	char proc[32];
	int r;

	snprintf(proc, sizeof(proc), "/proc/self/fd/%d", path_fd);
	from = open_again(tab, AT_FDCWD, proc, O_RDONLY);
	if (from < 0 || fstat(from, &st) < 0)
		return -ESTALE;
	to = openat(root, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (to < 0)
		return errno == ENOSPC || errno == EDQUOT ? -errno : -ESTALE;
	r = sbx_owner_give(node->box, root, to, "");
	if (r == 0)
		r = copy_data(from, to);
	if (r == 0 && (fchmod(to, st.st_mode & 07777) < 0 ||
	               futimens(to, (struct timespec[]){st.st_atim, st.st_mtim}) < 0))
		r = -errno;
	return r < 0 ? r : sbx_steal_fd(&to);
}

/* Whether FD is the node's file, which another may take the place of at any time. */
static bool is_its_file(struct sbx_inodes *tab, struct sbx_node *node, int fd)
{
	struct sbx_ident id;
	struct stat st;
	bool is;

	if (sbx_mitigation_off("identity"))
		return true;
	if (sbx_ident_at(node->box, fd, "", &st, &id) < 0)
		return false;
	sbx_inodes_lock(tab);
	is = sbx_node_is_still(node, &id);
	sbx_inodes_unlock(tab);
	return is;
}

/* Opens the node's file by parent and name as O_PATH and compares the identity. */
static int open_path(struct sbx_inodes *tab, struct sbx_node *node)
{
	struct sbx_node *dir;
	struct sbx_fd *dfd;
	char *name;
	int fd, r;

	if (node->kind == SBX_NODE_BOX)
		return sbx_box_root(node->box);
	sbx_inodes_lock(tab);
	dir = node->parent;
	if (dir)
		dir->refs++;
	name = node->name ? strdup(node->name) : NULL;
	sbx_inodes_unlock(tab);
	if (!dir || !name) {
		free(name);
		sbx_node_put(tab, dir);
		return -ESTALE;
	}
	r = sbx_node_fd(tab, dir, SBX_FD_PATH, &dfd);
	fd = r < 0 ? r : open_child(tab, dir, dfd->fd, name);
	if (r == 0)
		sbx_fd_put(tab, dfd);
	sbx_node_put(tab, dir);
	free(name);
	if (fd == -ENOENT || fd == -ENOTDIR)
		return -ESTALE;
	if (fd >= 0 && !is_its_file(tab, node, fd)) {
		close(fd);
		return -ESTALE;
	}
	return fd;
}

static int open_wanted(struct sbx_inodes *tab, struct sbx_node *node, struct sbx_fd *have,
                       enum sbx_fd_want want, int *mode, bool *copied)
{
	_cleanup_fd_ int own = -1;
	int fd, path_fd = have ? have->fd : (own = open_path(tab, node));

	*mode = O_PATH;
	*copied = false;
	if (path_fd < 0)
		return path_fd;
	if (want == SBX_FD_PATH)
		return sbx_steal_fd(&own);
	if (node->kind == SBX_NODE_BOX || S_ISDIR(node->type)) {
		if (want == SBX_FD_WRITE)
			return -EISDIR;
	} else if (!S_ISREG(node->type)) {
		return -ENXIO; /* never open a FIFO, socket or device on a client's behalf */
	}
	*mode = want == SBX_FD_READ ? O_RDONLY : O_RDWR;
	fd = open_lifted(tab, path_fd, *mode);
	if (fd != -EEXIST)
		return fd;
	*copied = true;
	return open_copy(tab, node, path_fd);
}

/* The node's file is open as F, and nowhere else any more. Lock held. */
static void set_apart(struct sbx_inodes *tab, struct sbx_node *node, struct sbx_fd *f)
{
	assert(f->node == node);
	node->apart = true;
	sbx_inodes_unhash(tab, node);
	sbx_fd_pin(tab, node, f);
}

/* A descriptor that is nobody's: for one write, while a job runs. Takes FD over. */
static struct sbx_fd *fd_for_now(int fd, int mode)
{
	struct sbx_fd *f = malloc(sizeof(*f));

	if (!f) {
		close(fd);
		return NULL;
	}
	*f = (struct sbx_fd){.fd = fd, .mode = mode, .refs = 1};
	ring_init(f);
	return f;
}

/* What NODE has, with a reference, or NULL. Lock held. */
static struct sbx_fd *fd_in_use(struct sbx_inodes *tab, struct sbx_node *node)
{
	struct sbx_fd *f = node->fd;

	if (!f)
		return NULL;
	f->refs++;
	f->used_ms = sbx_inodes_now_ms();
	if (!f->pinned && tab->lru.lru_next != f) {
		ring_remove(f);
		ring_push(&tab->lru, f);
	}
	return f;
}

/*
 * Gives NODE the descriptor FD that was opened for WANT, with a reference; NULL: no memory. Lock
 * held.
 */
static struct sbx_fd *fd_keep(struct sbx_inodes *tab, struct sbx_node *node, enum sbx_fd_want want,
                              int fd, int mode, bool copied)
{
	struct sbx_fd *f = node->fd;

	if (f && fd_serves(f, want)) { /* another thread was quicker */
		close(fd);
		f->refs++;
		return f;
	}
	if (!copied && f && !f->pinned && want == SBX_FD_WRITE && sbx_node_busy(node))
		return fd_for_now(fd, mode);
	f = sbx_fd_install(tab, node, fd, mode);
	if (f && copied)
		set_apart(tab, node, f);
	return f;
}

/* 1: another file has taken the place of NODE's meanwhile. */
static int find_fd(struct sbx_inodes *tab, struct sbx_node *node, enum sbx_fd_want want,
                   struct sbx_fd **ret)
{
	struct sbx_fd *f;
	int fd, mode;
	bool copied;
	ino_t ino;

	sbx_inodes_lock(tab);
	assert(node->refs > 0);
	node->paged |= want != SBX_FD_PATH;
	ino = node->ino;
	f = fd_in_use(tab, node);
	sbx_inodes_unlock(tab);
	if (f && fd_serves(f, want)) {
		*ret = f;
		return 0;
	}
	fd = open_wanted(tab, node, f, want, &mode, &copied);
	sbx_fd_put(tab, f);
	if (fd < 0)
		return fd;
	if (want == SBX_FD_WRITE && sbx_node_may_be_copied(node))
		sbx_node_copied_up(tab, node->box, fd);

	sbx_inodes_lock(tab);
	if (node->ino != ino) {
		sbx_inodes_unlock(tab);
		close(fd);
		return 1;
	}
	f = fd_keep(tab, node, want, fd, mode, copied);
	sbx_inodes_unlock(tab);
	if (!f)
		return -ENOMEM;
	*ret = f;
	return 0;
}

int sbx_node_fd(struct sbx_inodes *tab, struct sbx_node *node, enum sbx_fd_want want,
                struct sbx_fd **ret)
{
	int r;

	do
		r = find_fd(tab, node, want, ret);
	while (r > 0);
	return r;
}

/* Has the node of F, which has a reference that is given up, keep one that only names the file.
 * Without the lock. */
static void fd_narrow(struct sbx_inodes *tab, struct sbx_fd *f)
{
	struct sbx_fd *named;
	char proc[32];
	int fd;

	snprintf(proc, sizeof(proc), "/proc/self/fd/%d", f->fd);
	fd = open_again(tab, AT_FDCWD, proc, O_PATH);
	sbx_inodes_lock(tab);
	assert(f->refs > 0);
	named = f->node && fd >= 0 ? sbx_fd_install(tab, f->node, fd, O_PATH) : NULL;
	if (named)
		named->refs--;
	else if (f->node)
		sbx_fd_drop(tab, f);
	else if (fd >= 0)
		close(fd);
	if (--f->refs == 0 && !f->node)
		fd_close(tab, f);
	sbx_inodes_unlock(tab);
}

void sbx_fd_put(struct sbx_inodes *tab, struct sbx_fd *f)
{
	bool narrow;

	if (!f)
		return;
	sbx_inodes_lock(tab);
	assert(f->refs > 0);
	narrow =
	        f->refs == 1 && f->node && !f->pinned && sbx_fd_writes(f) && sbx_node_busy(f->node);
	if (!narrow && --f->refs == 0 && !f->node)
		fd_close(tab, f);
	sbx_inodes_unlock(tab);
	if (narrow)
		fd_narrow(tab, f);
}

void sbx_fd_pin(struct sbx_inodes *tab, struct sbx_node *node, struct sbx_fd *f)
{
	assert(f->refs > 0);
	assert(!f->node || f->node == node);
	if (node->fd && node->fd != f)
		f = node->fd;
	if (f->pinned)
		return;
	ring_remove(f);
	if (f->node)
		tab->nfds--;
	f->node = node;
	node->fd = f;
	f->pinned = true;
	f->pinned_ms = sbx_inodes_now_ms();
	tab->npinned++;
	ring_push(&tab->pins, f);
	fds_trim(tab, tab->max_fds);
}

void sbx_fd_unpin(struct sbx_inodes *tab, struct sbx_fd *f)
{
	assert(f->node && tab->npinned > 0);
	assert(f->pinned);
	ring_remove(f);
	tab->npinned--;
	f->pinned = false;
	tab->nfds++;
	ring_push(&tab->lru, f);
}

static void ring_drop_box(struct sbx_inodes *tab, struct sbx_fd *ring, struct sbx_box *box)
{
	struct sbx_fd *f, *next;

	for (f = ring->lru_next; f != ring; f = next) {
		next = f->lru_next;
		if (f->node->box == box)
			sbx_fd_drop(tab, f);
	}
}

void sbx_inodes_drop_box(struct sbx_inodes *tab, struct sbx_box *box)
{
	sbx_inodes_lock(tab);
	ring_drop_box(tab, &tab->lru, box);
	ring_drop_box(tab, &tab->pins, box);
	sbx_inodes_unlock(tab);
}

#define HELD_AT_START 256 /* of each kind: a job waits for it, some microseconds each */
#define SHED_AT_ONCE  512
#define IDLE_MS       10000
#define LARGE         (32 * 1024 * 1024)
#define AWAITED_MS    500
#define WAIT_AT_ONCE  5 /* threads; the kernel is served by ten */

bool sbx_fd_wanted(struct sbx_inodes *tab, struct sbx_node *node)
{
	struct sbx_node *old;

	assert(tab->recent_at < RECENT && tab->nrecent <= RECENT);
	if ((!S_ISREG(node->type) && !S_ISDIR(node->type)) || node->fd)
		return false;
	if (sbx_node_busy(node))
		return true;
	if (node->recent)
		return false;
	old = sbx_node_at(tab, tab->recent[tab->recent_at]);
	if (old)
		old->recent = false;
	tab->nrecent += !tab->recent[tab->recent_at];
	tab->recent[tab->recent_at] = sbx_node_id(node);
	tab->recent_at = (tab->recent_at + 1) % RECENT;
	node->recent = true;
	return false;
}

/* Takes those of BOX, and what is forgotten, from the recent. Returns the last ones, with a
 * reference each. Lock held. */
static size_t take_recent(struct sbx_inodes *tab, struct sbx_box *box, struct sbx_node **ret)
{
	size_t n = 0;

	for (uint32_t i = 1; i <= RECENT && tab->nrecent > 0; i++) {
		uint64_t *id = &tab->recent[(tab->recent_at + RECENT - i) % RECENT];
		struct sbx_node *node = *id ? sbx_node_at(tab, *id) : NULL;

		if (!*id || (node && node->box != box))
			continue;
		*id = 0;
		tab->nrecent--;
		if (!node)
			continue;
		node->recent = false;
		if (node->fd || n == HELD_AT_START)
			continue;
		node->refs++;
		ret[n++] = node;
	}
	return n;
}

static bool is_idle(const struct sbx_fd *f)
{
	return sbx_inodes_now_ms() - f->used_ms > IDLE_MS;
}

/* Whether what is held takes a lot of place once it has no name. */
static bool is_large(const struct sbx_box *box, const struct stat *st)
{
	const uint64_t mb = box->sandbox->disk_mb;

	return (uint64_t)st->st_blocks * 512 > (mb ? mb * (1024 * 1024) / 16 : LARGE);
}

static void hold_recent(struct sbx_inodes *tab, struct sbx_box *box)
{
	struct sbx_node *nodes[HELD_AT_START];
	struct sbx_fd *f;
	size_t n;

	sbx_inodes_lock(tab);
	n = take_recent(tab, box, nodes);
	sbx_inodes_unlock(tab);
	while (n-- > 0) {
		if (sbx_node_fd(tab, nodes[n], SBX_FD_PATH, &f) == 0)
			sbx_fd_put(tab, f);
		sbx_node_put(tab, nodes[n]);
	}
}

/* The writers into BOX: the last ones used, with a reference each; the others are dropped. Lock
 * held. */
static size_t take_writers(struct sbx_inodes *tab, struct sbx_box *box, struct sbx_fd **ret)
{
	struct sbx_fd *f, *next;
	size_t n = 0;

	for (f = tab->lru.lru_next; f != &tab->lru; f = next) {
		next = f->lru_next;
		if (f->node->box != box || !sbx_fd_writes(f))
			continue;
		if (n == HELD_AT_START) {
			sbx_fd_drop(tab, f);
			continue;
		}
		f->refs++;
		ret[n++] = f;
	}
	return n;
}

/* Has F, which has a reference, only name its file. What is large and has not been used lately is
 * not kept. */
static void hold_written(struct sbx_inodes *tab, struct sbx_box *box, struct sbx_fd *f)
{
	struct stat st;

	if (fstat(f->fd, &st) == 0 && is_large(box, &st)) {
		sbx_inodes_lock(tab);
		if (f->node && is_idle(f))
			sbx_fd_drop(tab, f);
		sbx_inodes_unlock(tab);
	}
	fd_narrow(tab, f);
}

void sbx_inodes_job_starts(struct sbx_inodes *tab, struct sbx_box *box)
{
	struct sbx_fd *writers[HELD_AT_START];
	size_t n;

	sbx_inodes_lock(tab);
	n = take_writers(tab, box, writers);
	sbx_inodes_unlock(tab);
	while (n-- > 0)
		hold_written(tab, box, writers[n]);
	hold_recent(tab, box);
}

/* Idle descriptors that this round has not seen yet, with a reference each. Lock held. */
static size_t take_idle(struct sbx_inodes *tab, struct sbx_fd **ret)
{
	size_t n = 0;

	for (struct sbx_fd *f = tab->lru.lru_prev; f != &tab->lru && n < SHED_AT_ONCE;
	     f = f->lru_prev) {
		if (f->round == tab->round || !is_idle(f) || !S_ISREG(f->node->type))
			continue;
		f->round = tab->round;
		f->refs++;
		ret[n++] = f;
	}
	return n;
}

bool sbx_inodes_shed(struct sbx_inodes *tab, bool begin)
{
	struct sbx_fd *idle[SHED_AT_ONCE];
	struct stat st;
	size_t n;

	sbx_inodes_lock(tab);
	tab->round += begin;
	n = take_idle(tab, idle);
	sbx_inodes_unlock(tab);
	for (size_t i = 0; i < n; i++) {
		struct sbx_fd *f = idle[i];
		const bool gone = fstat(f->fd, &st) == 0 && st.st_nlink == 0;

		sbx_inodes_lock(tab);
		if (gone && f->node && is_idle(f) && is_large(f->node->box, &st))
			sbx_fd_drop(tab, f);
		sbx_inodes_unlock(tab);
		sbx_fd_put(tab, f);
	}
	return n == SHED_AT_ONCE;
}

/* --- awaiting room --------------------------------------------------------------------------- */

/*
 * The kernel may have forgotten the file of F, which is pinned, without our having read that. It
 * has not forgotten what an operation is at.
 */
static bool may_go(const struct sbx_fd *f, const struct sbx_box *box)
{
	return f->node->box == box && f->node->refs == 0 && !f->awaited;
}

/* The ring of pinned ones begins with the last. Lock held. */
static bool any_goes(const struct sbx_inodes *tab, const struct sbx_box *box)
{
	const uint32_t now = sbx_inodes_now_ms();
	const struct sbx_fd *f;

	for (f = tab->leaving.lru_next; f != &tab->leaving; f = f->lru_next)
		if (f->box == box)
			return true;
	for (f = tab->pins.lru_next; f != &tab->pins; f = f->lru_next) {
		if (now - f->pinned_ms > AWAITED_MS)
			return false;
		if (may_go(f, box))
			return true;
	}
	return false;
}

/* Nobody waits again for what is there. Lock held. */
static void give_up(struct sbx_inodes *tab, const struct sbx_box *box)
{
	struct sbx_fd *f;

	for (f = tab->leaving.lru_next; f != &tab->leaving; f = f->lru_next)
		if (f->box == box)
			f->box = NULL;
	for (f = tab->pins.lru_next; f != &tab->pins; f = f->lru_next)
		f->awaited |= f->node->box == box;
}

void sbx_inodes_await_room(struct sbx_inodes *tab, const struct sbx_box *box)
{
	const struct timespec until = sbx_clock_after(CLOCK_MONOTONIC, AWAITED_MS * 1000000L);
	int r = 0;

	sbx_inodes_lock(tab);
	if (tab->waiting < WAIT_AT_ONCE) {
		tab->waiting++;
		while (r != ETIMEDOUT && any_goes(tab, box))
			r = pthread_cond_timedwait(&tab->closed, &tab->lock, &until);
		if (r == ETIMEDOUT)
			give_up(tab, box);
		tab->waiting--;
	}
	sbx_inodes_unlock(tab);
}
