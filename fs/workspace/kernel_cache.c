/*
 * The kernel's caches of the workspace: how long it may use names, attributes and listings
 * without asking, and how they are taken back when a job may have changed files.
 *
 * We never send FUSE_NOTIFY_INVAL_ENTRY. It takes the lock of the parent directory
 * uninterruptibly, and a lookup or mkdir holds that lock until we reply. If the daemon were
 * killed in between, neither it nor its clients could die.
 */
#include "fs/workspace/kernel_cache.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/control/ops.h"
#include "fs/fuse/invalidator.h"
#include "fs/fuse/passthrough.h"
#include "fs/fuse/session.h"
#include "fs/workspace/workspace.h"
#include "sandboxfs/away.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"
#include "sandboxfs/loop.h"

#define TICK_NS  (20 * INT64_C(1000000)) /* longer than that of any file system worth keeping */
#define SWEEP_MS 500
#define SHED_MS  12000 /* longer than what is removed is kept for who does not use it */

/*
 * With epochs everything may be kept until a job starts; while one runs a path shows nothing older
 * than a second. Without them no name is: to have one forgotten takes the lock of its directory,
 * which a client may hold until we answer, so a daemon that is killed meanwhile could not die.
 * Being asked for, names bring their attributes up to date; those that are kept serve descriptors
 * and, with the contents, are compared then. What is kept of a sandbox's root survives the start of
 * a job, so it is never kept for longer than that second.
 */
static void timeouts(struct sbx_workspace *ws, struct sbx_node *node, double *entry, double *attr)
{
	struct sbx_box *box = sbx_node_box(node);

	if (box && __atomic_load_n(&box->busy, __ATOMIC_RELAXED)) {
		*entry = 0.5;
		*attr = 0.5;
	} else {
		*entry = 3600;
		*attr = sbx_node_kind(node) == SBX_NODE_BOX ? 1 : 4;
	}
	if (!ws->epochs)
		*entry = 0;
}

int64_t ws_changed_ns(const struct stat *st)
{
	const int64_t at = sbx_timespec_ns(&st->st_ctim);

	return sbx_real_ns() - at > TICK_NS ? at : 0;
}

/*
 * Notes that the kernel was given something to keep that a job can change. The root of a sandbox
 * is remembered apart, because every path to its controls goes through it: its attributes can be
 * taken back alone, and are when they have changed; its name and links do not depend on jobs.
 */
static void note_handed(struct sbx_workspace *ws, struct sbx_node *node, const struct stat *st)
{
	struct sbx_box *box = sbx_node_box(node);

	if (sbx_node_kind(node) == SBX_NODE_FILE) {
		atomic_store(&ws->handed, true);
	} else if (sbx_node_kind(node) == SBX_NODE_BOX) {
		__atomic_store_n(&box->root_changed_ns, ws_changed_ns(st), __ATOMIC_SEQ_CST);
		__atomic_store_n(&box->root_handed, sbx_node_id(node), __ATOMIC_SEQ_CST);
	}
}

/*
 * Takes the listings of IDS back. Without their attributes the kernel sees by itself that a
 * directory has another time, so what is seldom left is a change that shows in no time: for that
 * its copies are dropped.
 */
static void take_back(struct sbx_workspace *ws, const uint64_t *ids, size_t n)
{
	for (size_t i = 0; i < n; i++)
		sbx_channel_forget_attr(ws->channel, ids[i]);
	sbx_forgetter_add(ws->forgetter, ids, n, SBX_FORGET_WAIT_MS);
}

/*
 * The kernel goes on using a listing that it has as long as the attributes hold, and the directory
 * has not been changed through it. So those hold no longer than the listing is worth keeping, and
 * one that is outdated is taken back; here, since all attributes come by.
 */
static void renew_listing(struct sbx_workspace *ws, struct sbx_node *node, const struct stat *st,
                          double *attr)
{
	const uint64_t id = sbx_node_id(node);
	int64_t left;

	if (ws->opendirs || !S_ISDIR(st->st_mode))
		return;
	left = sbx_listing_cache_left(ws->kept, id, ws_changed_ns(st), sbx_now_ns());
	if (left < 0)
		take_back(ws, &id, 1);
	else if (left > 0 && (double)left / 1e9 < *attr)
		*attr = (double)left / 1e9;
}

/*
 * The kernel drops what it has of the contents when the size or the time of modification has
 * changed, which a command can undo (touch -r, cp -p, rsync -t); not so the time of the change of
 * status. Such a file is shown with a time of modification that is a nanosecond off, not to be
 * kept: so the kernel itself drops its copy, and asks again at once. To drop it by a notification
 * would mean to wait for its pages, which clients lock until we answer, without a way out: see
 * above.
 */
static void renew_contents(struct sbx_workspace *ws, struct sbx_node *node, struct stat *st,
                           enum sbx_answer answer, double *attr)
{
	if (sbx_node_kind(node) == SBX_NODE_FILE && S_ISREG(st->st_mode) &&
	    sbx_node_told(ws->inodes, node, st, ws_changed_ns(st), answer))
		*attr = 0;
}

/*
 * A directory whose names are elsewhere may turn out to be a repository that a command made
 * (fs/sandbox/gitdir.h). Host git looks at its owner after it has looked into it, so that has to be
 * asked for then.
 */
static bool is_unlisted(struct sbx_workspace *ws, struct sbx_node *node, const struct stat *st)
{
	const struct sbx_box *box = sbx_node_box(node);

	return box && box->hides_git && sbx_is_away(box->sandbox) && S_ISDIR(st->st_mode) &&
	       !sbx_away_here(box->sandbox, st->st_ino, SBX_NEED_NAMES, 0, 0) &&
	       !sbx_node_stored(ws->inodes, node);
}

#define DIR_SIZE 4096

/*
 * That contents or names have come changes the status of the copy, and how large a directory of it
 * is, not what it is a copy of: who reads it all (tar) would take that for a change.
 */
static void show_copy(const struct sbx_node *node, struct stat *st)
{
	const struct sbx_box *box = sbx_node_box(node);

	if (!box || !sbx_is_away(box->sandbox))
		return;
	st->st_ctim = st->st_mtim;
	if (S_ISDIR(st->st_mode))
		st->st_size = DIR_SIZE;
}

void ws_hand(struct sbx_workspace *ws, struct sbx_node *node, struct stat *st,
             enum sbx_answer answer, double *entry, double *attr)
{
	timeouts(ws, node, entry, attr);
	note_handed(ws, node, st);
	renew_listing(ws, node, st, attr);
	renew_contents(ws, node, st, answer, attr);
	if (sbx_node_split(node, st)) {
		*entry = 0;
		*attr = 0;
	}
	if (is_unlisted(ws, node, st))
		*attr = 0;
	show_copy(node, st);
}

double ws_absent_timeout(struct sbx_workspace *ws, struct sbx_node *dir)
{
	double entry, attr;

	timeouts(ws, dir, &entry, &attr);
	return entry;
}

static bool root_current(struct sbx_box *box)
{
	_cleanup_fd_ int root = sbx_box_root(box);
	const int64_t known = __atomic_load_n(&box->root_changed_ns, __ATOMIC_SEQ_CST);
	struct stat st;

	return known && root >= 0 && fstat(root, &st) == 0 && ws_changed_ns(&st) == known;
}

void ws_look_again(struct sbx_workspace *ws)
{
	/* Else nothing is kept. */
	if (!ws->epochs)
		return;
	sbx_inodes_renewed(ws->inodes);
	sbx_channel_epoch(ws->channel);
}

/* Has the kernel ask again for every name and attribute it keeps; nothing when it keeps none. */
static void new_epoch(struct sbx_workspace *ws)
{
	if (ws->epochs && atomic_exchange(&ws->handed, false))
		ws_look_again(ws);
}

/*
 * The kernel goes on using listings of BOX (0: of the top) by what needs no name to be looked up,
 * the working directory of a process.
 */
static void renew_listings(struct sbx_workspace *ws, uint64_t box)
{
	uint64_t ids[64];
	size_t n;

	if (ws->opendirs)
		return;
	do {
		n = sbx_listing_cache_take_box(ws->kept, box, sbx_now_ns(), ids,
		                               SBX_ARRAY_SIZE(ids));
		take_back(ws, ids, n);
	} while (n == SBX_ARRAY_SIZE(ids));
}

static void renew_files(struct sbx_box *box, void *data)
{
	struct sbx_workspace *ws = data;

	__atomic_add_fetch(&box->changes, 1, __ATOMIC_SEQ_CST);
	new_epoch(ws);
	renew_listings(ws, box->number);
}

/* Again and again while jobs run, and once more after. */
static void shed(struct sbx_timer *t)
{
	struct sbx_workspace *ws = t->data;
	bool again;

	ws->shed_goes_on = sbx_inodes_shed(ws->inodes, !ws->shed_goes_on);
	if (ws->shed_goes_on) {
		sbx_loop_timer_set(sbx_registry_loop(ws->registry), t, 1);
		return;
	}
	again = atomic_exchange(&ws->shed_again, false) || atomic_load(&ws->busy) > 0;
	atomic_store(&ws->shedding, again);
	if (again || atomic_load(&ws->shed_again))
		sbx_loop_timer_set(sbx_registry_loop(ws->registry), t, SHED_MS);
}

/* [loop] */
static void shed_begin(void *data)
{
	struct sbx_workspace *ws = data;

	ws->shed.fn = shed;
	ws->shed.data = ws;
	sbx_loop_timer_set(sbx_registry_loop(ws->registry), &ws->shed, SHED_MS);
}

static void shed_later(struct sbx_workspace *ws)
{
	atomic_store(&ws->shed_again, true);
	if (!atomic_exchange(&ws->shedding, true))
		sbx_loop_post(sbx_registry_loop(ws->registry), shed_begin, ws);
}

static void renew(struct sbx_box *box, bool busy, void *data)
{
	struct sbx_workspace *ws = data;
	uint64_t root;

	if (busy)
		__atomic_fetch_add(&box->begun, 1, __ATOMIC_SEQ_CST);
	/* Before it is seen to have begun or ended: see sbx_ident. */
	__atomic_add_fetch(&box->changes, 1, __ATOMIC_SEQ_CST);
	if (__atomic_exchange_n(&box->busy, busy, __ATOMIC_SEQ_CST) != busy)
		atomic_fetch_add(&ws->busy, busy ? 1 : -1);
	shed_later(ws);
	if (busy)
		sbx_inodes_job_starts(ws->inodes, box);
	renew_files(box, ws);
	if (busy || root_current(box))
		return;
	root = __atomic_exchange_n(&box->root_handed, 0, __ATOMIC_SEQ_CST);
	if (root)
		sbx_channel_forget_attr(ws->channel, root);
}

/*
 * A listing that was read before and arrives at the kernel after it was taken back is known by the
 * time of the directory, as everywhere.
 */
static void renew_top(void *data)
{
	struct sbx_workspace *ws = data;
	const int64_t at = sbx_real_ns();
	int64_t was = atomic_load(&ws->top_ns), now;

	do
		now = at > was ? at : was + 1;
	while (!atomic_compare_exchange_weak(&ws->top_ns, &was, now));
	/* Before there is a channel nothing is kept. */
	if (!ws->channel)
		return;
	sbx_channel_forget_attr(ws->channel, SBX_NODE_ROOT_ID);
	renew_listings(ws, 0);
}

static void retire(struct sbx_box *box, void *data)
{
	struct sbx_workspace *ws = data;

	sbx_inodes_drop_box(ws->inodes, box);
	if (ws->passthrough)
		sbx_passthrough_drop_box(ws->passthrough, box->number);
	sbx_controls_drop_box(ws->nodes, box);
	/* Even if only its name was handed to the kernel. */
	atomic_store(&ws->handed, true);
	new_epoch(ws);
	renew_top(ws);
}

static void removed(struct sbx_box *box, void *data)
{
	struct sbx_workspace *ws = data;

	sbx_inodes_forget_box(ws->inodes, box);
}

/*
 * Beside requests and jobs there is somebody to tell, and something to tell it with, between the
 * mount and its end only. Before and after the kernel has nothing.
 */
static bool enter(struct sbx_workspace *ws)
{
	pthread_rwlock_rdlock(&ws->serving_lock);
	if (ws->serving)
		return true;
	pthread_rwlock_unlock(&ws->serving_lock);
	return false;
}

static void leave(struct sbx_workspace *ws)
{
	pthread_rwlock_unlock(&ws->serving_lock);
}

static void alter(struct sbx_box *box, void *data)
{
	if (!enter(data))
		return;
	renew_files(box, data);
	leave(data);
}

/* Who has the file open looks at no name of it. */
static void replace(struct sbx_box *box, int old, int new, void *data)
{
	struct sbx_workspace *ws = data;
	uint64_t id;

	if (!enter(ws))
		return;
	id = sbx_node_replace(ws->inodes, box, old, new);
	if (id)
		sbx_channel_forget_attr(ws->channel, id);
	leave(ws);
}

void ws_serve(struct sbx_workspace *ws, bool serving)
{
	pthread_rwlock_wrlock(&ws->serving_lock);
	ws->serving = serving;
	pthread_rwlock_unlock(&ws->serving_lock);
}

const struct sbx_observer ws_observer = {
        .invalidate = renew,
        .wrote = renew_files,
        .altered = alter,
        .replaced = replace,
        .shown = renew_top,
        .retired = retire,
        .removed = removed,
};

void ws_listing_dropped(uint64_t id, void *data)
{
	struct sbx_workspace *ws = data;

	if (!ws->opendirs)
		sbx_forgetter_add(ws->forgetter, &id, 1, 0);
}

void ws_listing_forget(uint64_t id, void *data)
{
	struct sbx_workspace *ws = data;

	sbx_channel_forget(ws->channel, id);
}

/* Whoever lists a directory that was listed long ago gets all attributes with it again. */
static void sweep(struct sbx_timer *t)
{
	struct sbx_workspace *ws = t->data;
	uint64_t ids[64];
	bool more;
	size_t n;

	atomic_store(&ws->sweeping, false);
	n = sbx_listing_cache_take_old(ws->kept, sbx_now_ns(), ids, SBX_ARRAY_SIZE(ids), &more);
	sbx_forgetter_add(ws->forgetter, ids, n, 0);
	if (!more)
		return;
	atomic_store(&ws->sweeping, true);
	sbx_loop_timer_set(sbx_registry_loop(ws->registry), t,
	                   n == SBX_ARRAY_SIZE(ids) ? 1 : SWEEP_MS);
}

/* [loop] */
static void sweep_begin(void *data)
{
	struct sbx_workspace *ws = data;

	ws->sweep.fn = sweep;
	ws->sweep.data = ws;
	sbx_loop_timer_set(sbx_registry_loop(ws->registry), &ws->sweep, SBX_LISTING_CACHE_MS);
}

void ws_listing_handed(struct sbx_workspace *ws)
{
	if (!ws->opendirs && !atomic_load(&ws->sweeping) && !atomic_exchange(&ws->sweeping, true))
		sbx_loop_post(sbx_registry_loop(ws->registry), sweep_begin, ws);
}
