/* The table of a sandbox's history, and what its members have in common. */
#include "backends/local/history_ops.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "backends/local/history/history_impl.h"
#include "backends/local/local_impl.h"
#include "sandboxfs/cleanup.h"

#define LOCK_PAUSE_NS 10000000
#define LOCK_TRIES    100

struct sbx_past_place sbx_local_place(struct sbx_sandbox *sb)
{
	struct sbx_local_sandbox *s = sbx_local_downcast(sb);
	struct sbx_past_place place = {.b = s->backend, .rec = &s->rec};

	pthread_mutex_lock(&s->lock);
	place.root = s->root;
	place.disk = s->disk;
	pthread_mutex_unlock(&s->lock);
	return place;
}

/*
 * While a command's git has the index inside, what a snapshot stages could not get there, and the next commit
 * inside would take it back.
 */
static int check_index(struct sbx_local_sandbox *s, struct sbx_error *err)
{
	const struct timespec pause = {.tv_nsec = LOCK_PAUSE_NS};

	for (int i = 0; sbx_git_private_locked(s->git); i++) {
		if (i == LOCK_TRIES)
			return sbx_fail(
			        err, EBUSY,
			        "git is at work inside the sandbox (there is an index.lock)");
		nanosleep(&pause, NULL);
	}
	return 0;
}

int sbx_local_settle(struct sbx_sandbox *sb, bool strict, struct sbx_error *err)
{
	struct sbx_local_sandbox *s = sbx_local_downcast(sb);
	struct sbx_error own = SBX_ERROR_INIT;
	int r;

	if (!s->git || !sbx_git_private_made(s->git))
		return 0;
	r = sbx_git_private_moved_inside(s->git) ? sbx_sandbox_sync(sb, &own) : 0;
	if (!strict)
		return 0;
	if (r != -EEXIST)
		return check_index(s, err);
	if (err)
		*err = own;
	return r;
}

static int take_snapshot(struct sbx_sandbox *sb, const struct sbx_snapshot_wish *wish,
                         char id[SBX_REV_MAX], struct sbx_error *err)
{
	const struct sbx_past_place place = sbx_local_place(sb);
	int r = sbx_local_settle(sb, wish->mark == NULL, err);

	return r ? r : sbx_past_snapshot(&place, wish, id, err);
}

static int list(struct sbx_sandbox *sb, int (*fn)(const struct sbx_snapshot *s, void *data),
                void *data, struct sbx_error *err)
{
	const struct sbx_past_place place = sbx_local_place(sb);

	return sbx_past_list(&place, fn, data, err);
}

static int restore(struct sbx_sandbox *sb, const char *rev, atomic_bool *cancelled,
                   struct sbx_error *err)
{
	const struct sbx_past_place place = sbx_local_place(sb);
	int r = sbx_local_settle(sb, false, err);

	if (!r)
		r = sbx_past_restore(&place, rev, cancelled, err);
	/* What is in memory until it is saved would be lost in a crash with what it replaced. */
	return r ? r : sbx_sandbox_barrier(sb, true, err);
}

static int diff(struct sbx_sandbox *sb, const struct sbx_diff_wish *wish, int fd,
                struct sbx_error *err)
{
	const struct sbx_past_place place = sbx_local_place(sb);
	int r = sbx_local_settle(sb, false, err);

	return r ? r : sbx_past_diff(&place, wish, fd, err);
}

static int forget(struct sbx_sandbox *sb, const char *name, struct sbx_error *err)
{
	const struct sbx_past_place place = sbx_local_place(sb);
	_cleanup_fd_ int dir = sbx_past_dir(&place, err);
	_cleanup_fd_ int marks = dir < 0 ? -1 : sbx_dir_open(dir, "marks");

	if (dir < 0)
		return dir;
	if (marks >= 0 && unlinkat(marks, name, 0) < 0 && errno != ENOENT)
		return sbx_fail(err, errno, "cannot forget a mark: %s", strerror(errno));
	sbx_past_prune(&place, false);
	return 0;
}

const struct sbx_history_impl sbx_local_history = {
        .snapshot = take_snapshot,
        .forget = forget,
        .list = list,
        .restore = restore,
        .diff = diff,
        .tree = sbx_local_tree,
        .entry = sbx_local_entry,
        .entries = sbx_local_entries,
        .content = sbx_local_content,
};
