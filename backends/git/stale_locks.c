/*
 * Lock files of libgit2 say nothing of who made them, so one that a killed daemon has left looks
 * like any other. What tells it is that nobody holds one for long: it was made while the last
 * daemon lived and has been there for longer than git needs it.
 */
#include "backends/git/stale_locks.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/git/repository.h"
#include "backends/support/beneath.h"
#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"
#include "sandboxfs/grow.h"

#define NS_PER_S  1000000000LL
#define LOOSE_NS  (NS_PER_S / 4)
#define PACKED_NS NS_PER_S /* git waits as long for it before it gives up */
#define DEPTH_MAX 16
#define HEAD_MAX  4096

#define INSIDE_MAX 20000 /* names in a sandbox's repository that are looked at */

/* How long NAME has to be watched yet before it counts as left behind: 0 that is so, -1 it is not,
 * or is somebody else's. */
static long long watch_for(int dir, const char *name, long long stale_ns,
                           const struct timespec *since, struct stat *first)
{
	struct stat st;
	long long left;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode) ||
	    sbx_timespec_ns(&st.st_mtim) < sbx_timespec_ns(since))
		return -1;
	if (first->st_ino && (first->st_ino != st.st_ino || first->st_size != st.st_size ||
	                      sbx_timespec_ns(&first->st_mtim) != sbx_timespec_ns(&st.st_mtim)))
		return -1;
	*first = st;
	left = stale_ns - (sbx_real_ns() - sbx_timespec_ns(&st.st_mtim));
	return left < 0 ? 0 : left > stale_ns ? stale_ns : left;
}

static void break_lock(int dir, const char *name, long long stale_ns, const struct timespec *since)
{
	struct stat first = {0};
	long long left = watch_for(dir, name, stale_ns, since, &first);

	if (left > 0) {
		const struct timespec pause = {.tv_sec = left / NS_PER_S,
		                               .tv_nsec = left % NS_PER_S};

		nanosleep(&pause, NULL);
		if (watch_for(dir, name, stale_ns, since, &first) < 0)
			return;
	}
	if (left >= 0)
		unlinkat(dir, name, 0);
}

/* REF is a path below COMMON, whose parts a command could not have made. */
static void break_ref(int common, const char *ref, const struct timespec *since)
{
	_cleanup_free_ char *path = sbx_format("%s.lock", ref), *between = NULL;
	_cleanup_fd_ int dir = -1;
	char *name = path ? strrchr(path, '/') : NULL;

	if (!name)
		return;
	*name++ = '\0';
	dir = sbx_beneath_open(common, path, O_RDONLY | O_DIRECTORY);
	if (dir < 0)
		return;
	break_lock(dir, name, LOOSE_NS, since);
	/* What was to become the lock: sbx_git_durable_spare(). */
	between = sbx_format("%s.lock", name);
	if (between)
		break_lock(dir, between, LOOSE_NS, since);
}

static bool is_lock(const char *name)
{
	size_t n = strlen(name);

	return n > 5 && strcmp(name + n - 5, ".lock") == 0;
}

/* All below DIR, which only daemons of ours write to. */
static void break_below(int dir, const struct timespec *since, int depth)
{
	struct sbx_strings names = {0};

	if (depth < DEPTH_MAX && sbx_dir_names(dir, &names) == 0)
		for (size_t i = 0; i < names.n; i++) {
			_cleanup_fd_ int sub = sbx_dir_open(dir, names.items[i]);

			if (sub >= 0)
				break_below(sub, since, depth + 1);
			else if (is_lock(names.items[i]))
				break_lock(dir, names.items[i], LOOSE_NS, since);
		}
	sbx_strings_release(&names);
}

void sbx_git_break_locks(const char *common, const struct timespec *since)
{
	_cleanup_fd_ int dir = open(common, O_RDONLY | O_DIRECTORY | O_CLOEXEC), own = -1;

	if (dir < 0)
		return;
	own = sbx_beneath_open(dir, "refs/sandboxfs", O_RDONLY | O_DIRECTORY);
	if (own >= 0)
		break_below(own, since, 0);
	/* git at work on it has this one too, and may take long. */
	if (faccessat(dir, "packed-refs.new", F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		break_lock(dir, "packed-refs.lock", PACKED_NS, since);
}

/* Where a push has noted that it succeeded. */
static void break_tracking(int common, const char *branch, const struct timespec *since)
{
	_cleanup_fd_ int remotes = sbx_beneath_open(common, "refs/remotes", O_RDONLY | O_DIRECTORY);
	struct sbx_strings names = {0};

	if (remotes >= 0 && sbx_dir_names(remotes, &names) == 0)
		for (size_t i = 0; i < names.n; i++) {
			_cleanup_free_ char *ref = sbx_format("%s/%s", names.items[i], branch);

			if (ref)
				break_ref(remotes, ref, since);
		}
	sbx_strings_release(&names);
}

static long long boot_ns(void)
{
	return sbx_real_ns() - sbx_clock_ns(CLOCK_BOOTTIME);
}

/*
 * Removes the locks in DIR that are older than the machine's start. Nobody holds them, because
 * git of the host was killed with it.
 */
static void break_older(int dir)
{
	_cleanup_fd_ int fd = sbx_dir_open(dir, ".");
	struct sbx_strings names = {0};
	const long long boot = boot_ns();
	struct stat st;

	if (fd >= 0 && sbx_dir_names(fd, &names) == 0)
		for (size_t i = 0; i < names.n; i++)
			if (is_lock(names.items[i]) &&
			    fstatat(fd, names.items[i], &st, AT_SYMLINK_NOFOLLOW) == 0 &&
			    S_ISREG(st.st_mode) && sbx_timespec_ns(&st.st_mtim) < boot)
				unlinkat(fd, names.items[i], 0);
	sbx_strings_release(&names);
}

void sbx_git_break_own_locks(const struct sbx_git_worktree *wt, const struct timespec *since)
{
	const char *prefix = "ref: refs/heads/";
	_cleanup_free_ char *own = sbx_format("refs/heads/%s", wt->branch);
	_cleanup_free_ char *entry = sbx_format("worktrees/%s", wt->worktree), *head = NULL;
	_cleanup_fd_ int common = open(wt->common, O_RDONLY | O_DIRECTORY | O_CLOEXEC), dir = -1;

	if (common < 0 || !own || !entry)
		return;
	break_ref(common, own, since);
	break_tracking(common, wt->branch, since);
	dir = sbx_beneath_open(common, entry, O_RDONLY | O_DIRECTORY);
	if (dir < 0)
		return;
	break_older(dir);
	/* The host may have checked out another there, which commands move too. */
	if (sbx_file_read(dir, "HEAD", HEAD_MAX, &head) == 0) {
		head[strcspn(head, "\n")] = '\0';
		if (strncmp(head, prefix, strlen(prefix)) == 0 &&
		    strcmp(head + strlen(prefix), wt->branch) != 0)
			break_ref(common, head + strlen("ref: "), since);
	}
}

/* ---- in a sandbox's own repository ---- */

/* One that was made in the tick of the clock in which commands were last alive. */
struct young {
	uint64_t ino;
	long long ctime;
};

struct clearing {
	long long before;
	size_t seen;
	struct young *young;
	size_t n, cap;
	bool again; /* the young ones go as well */
	bool left;
};

/* Objects by the first byte of their names: what is there is never locked. */
static bool is_fan(const char *name)
{
	return strlen(name) == 2 && strspn(name, "0123456789abcdef") == 2;
}

static bool is_young(const struct clearing *c, const struct stat *st)
{
	for (size_t i = 0; i < c->n; i++)
		if (c->young[i].ino == st->st_ino &&
		    c->young[i].ctime == sbx_timespec_ns(&st->st_ctim))
			return true;
	return false;
}

static void clear_lock(struct clearing *c, int dir, const char *name)
{
	struct stat st;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
		return;
	if (sbx_timespec_ns(&st.st_ctim) < c->before || (c->again && is_young(c, &st))) {
		c->left |= unlinkat(dir, name, 0) < 0;
		return;
	}
	c->left = true;
	if (!c->again && SBX_GROW(c->young, c->n, c->cap, 8) == 0)
		c->young[c->n++] = (struct young){st.st_ino, sbx_timespec_ns(&st.st_ctim)};
}

static void clear_below(struct clearing *c, int dir, int depth)
{
	struct sbx_strings names = {0};

	if (depth < DEPTH_MAX && sbx_dir_names(dir, &names) == 0)
		for (size_t i = 0; i < names.n && ++c->seen <= INSIDE_MAX; i++) {
			const char *name = names.items[i];
			_cleanup_fd_ int sub = -1;

			if (is_lock(name))
				clear_lock(c, dir, name);
			if (!is_lock(name) && !is_fan(name))
				sub = sbx_beneath_open(dir, name, O_RDONLY | O_DIRECTORY);
			if (sub >= 0)
				clear_below(c, sub, depth + 1);
		}
	sbx_strings_release(&names);
}

/*
 * Two commands may follow each other within one tick, so the time of a lock does not always tell
 * whose it is. What was there before the sandbox was seen idle is of a command that is gone.
 */
bool sbx_git_clear_inside(int repo, const struct sbx_git_idle *idle)
{
	struct clearing c = {.before = idle ? sbx_timespec_ns(&idle->since) : LLONG_MIN};

	clear_below(&c, repo, 0);
	if (c.n && idle && (!idle->still || idle->still(idle->data))) {
		c.again = true;
		c.left = false;
		c.seen = 0;
		clear_below(&c, repo, 0);
	}
	free(c.young);
	return c.left;
}
