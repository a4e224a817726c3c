/*
 * What the host may have open. Nobody tells which files it has, and a command replaces or removes them unheard
 * of. So whatever has been read, written or made keeps a descriptor as long as there is room, and so does what was looked
 * up shortly before a job starts, or while one runs. While one runs it only names the file: for each write another
 * is opened. What is large and was removed takes its place until its descriptor is closed, so that is kept no longer than
 * it is used.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>

#include "fs/sandbox/registry.h"
#include "fs/workspace/inode_impl.h"

#define HELD_AT_START 256 /* of each kind: a job waits for it, some microseconds each */
#define SHED_AT_ONCE  512
#define IDLE_MS       10000
#define LARGE         (32 * 1024 * 1024)
#define AWAITED_MS    500
#define WAIT_AT_ONCE  5 /* threads; the kernel is served by ten */

bool sbx_fd_wanted(struct sbx_inodes *tab, struct sbx_node *node)
{
	struct sbx_node *old;

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

/* Takes those of BOX, and what is forgotten, from the recent. Returns the last ones, with a reference each. Lock held. */
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

/* The writers into BOX: the last ones used, with a reference each; the others are dropped. Lock held. */
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

/* Has F, which has a reference, only name its file. What is large and has not been used lately is not kept. */
static void hold_written(struct sbx_inodes *tab, struct sbx_box *box, struct sbx_fd *f)
{
	struct stat st;

	if (fstat(f->fd, &st) == 0 && is_large(box, &st)) {
		sbx_inodes_lock(tab);
		if (f->node && is_idle(f))
			sbx_fd_drop(tab, f);
		sbx_inodes_unlock(tab);
	}
	sbx_fd_narrow(tab, f);
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

static struct timespec from_now(unsigned ms)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	ts.tv_nsec += ms * 1000000L;
	ts.tv_sec += ts.tv_nsec / 1000000000;
	ts.tv_nsec %= 1000000000;
	return ts;
}

void sbx_inodes_await_room(struct sbx_inodes *tab, const struct sbx_box *box)
{
	const struct timespec until = from_now(AWAITED_MS);
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
