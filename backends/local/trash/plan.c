/* What a teardown notes before anything is taken away. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "backends/git/git_impl.h"
#include "backends/git/left.h"
#include "backends/local/overlay/overlay.h"
#include "backends/local/overlay/paths.h"
#include "backends/local/trash/removal_log.h"
#include "backends/local/trash/save.h"
#include "backends/support/beneath.h"
#include "backends/support/fsutil.h"

#define SUM 20 /* bytes at the end of an index */

static int look_for_more(const char *name, unsigned char type, void *data)
{
	(void)type;
	(void)data;
	return strcmp(name, ".git") != 0;
}

/* Whether DIR has nothing in it but a .git. */
static bool is_bare(int dir)
{
	_cleanup_fd_ int fd = dir < 0 ? -1 : sbx_dir_open(dir, ".");

	return fd >= 0 && sbx_dir_scan(fd, look_for_more, NULL) == 0;
}

static bool read_end(int dir, const char *name, off_t *size, unsigned char sum[SUM])
{
	_cleanup_fd_ int fd = sbx_beneath_open(dir, name, O_RDONLY);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0 || st.st_size < SUM)
		return false;
	*size = st.st_size;
	return pread(fd, sum, SUM, st.st_size - SUM) == SUM;
}

/* Whether the index in ENTRY is that of the base, as both end with the same checksum. */
static bool has_base_index(const struct sbx_local_sandbox *s, int entry)
{
	static const unsigned char none[SUM];
	_cleanup_fd_ int base = sbx_local_base_dir(s->backend, &s->rec);
	unsigned char a[SUM], b[SUM];
	off_t n, m;

	return base >= 0 && read_end(entry, "index", &n, a) && read_end(base, "index", &m, b) &&
	       n == m && memcmp(a, b, SUM) == 0 && memcmp(a, none, SUM) != 0;
}

/* Whether commands have made objects of their own, which may be commits that no ref of the source has. */
/* Snapshots, that is, or a mark of what was before a reset. */
static bool has_history(const struct sbx_local_sandbox *s)
{
	_cleanup_free_ char *path = sbx_format("%s/history", s->rec.id);

	return !path || faccessat(s->backend->state.git, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static bool has_objects(const struct sbx_local_sandbox *s)
{
	_cleanup_fd_ int repo = sbx_local_repo(s->backend, &s->rec, s->disk);

	return repo >= 0 && sbx_git_left_any(repo);
}

/* What can be told at once; in doubt it was touched. */
static bool is_untouched(const struct sbx_local_sandbox *s, int entry, const char *head)
{
	_cleanup_fd_ int upper = -1;

	if (!s->rec.layer)
		return !s->rec.common && strcmp(s->rec.kind, "none") == 0 && is_bare(s->root);
	upper = sbx_local_upper(s->backend, &s->rec, s->disk);
	if (!is_bare(upper))
		return false;
	if (!s->rec.common || entry < 0)
		return true;
	return strcmp(head, s->rec.base) == 0 && has_base_index(s, entry);
}

/* Another link to the index, or a copy: its own goes with the worktree's entry. */
static int put_aside(const struct sbx_local_sandbox *s, int entry)
{
	_cleanup_fd_ int dir = sbx_dir_make(s->backend->state.git, s->rec.id, 0700);
	_cleanup_fd_ int in = -1, out = -1;
	struct stat st;
	int r;

	if (dir < 0)
		return dir;
	unlinkat(dir, SBX_LOCAL_TRASH_INDEX, 0);
	if (linkat(entry, "index", dir, SBX_LOCAL_TRASH_INDEX, 0) == 0 || errno == ENOENT)
		return 0;
	in = sbx_beneath_open(entry, "index", O_RDONLY);
	if (in < 0 || fstat(in, &st) < 0)
		return in < 0 ? in : -errno;
	out = openat(dir, SBX_LOCAL_TRASH_INDEX, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (out < 0)
		return -errno;
	r = sbx_file_copy(in, out);
	if (!r && futimens(out, (struct timespec[2]){st.st_atim, st.st_mtim}) < 0)
		r = -errno;
	return r;
}

static int64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* Once: who tears down again wants it gone. */
static int refuse(struct sbx_local_sandbox *s, int r, const char *what, struct sbx_error *err)
{
	sbx_local_trash_unplan(s);
	s->warned = true;
	return sbx_fail(err, -r,
	                "what was %s %s cannot be put aside: %s; tear it down again to lose it",
	                what, s->rec.name, strerror(-r));
}

/* As sbx_kept_hold, where nothing else is left: TREE, there is. */
static int hold_removed(struct sbx_local_sandbox *s, bool tree)
{
	int lost = 0;
	int r = !tree && s->kept ? sbx_kept_hold(s->kept, &lost) : 0;

	if (r < 0 && s->warned)
		lost = r;
	if (lost)
		sbx_fail(&s->lost, -lost,
		         "some of what was removed from %s file by file could not be kept: %s",
		         s->rec.name, strerror(-lost));
	return r;
}

int sbx_local_trash_plan(struct sbx_local_sandbox *s, struct sbx_error *err)
{
	const bool tree = !is_bare(s->root);
	char head[GIT_OID_HEXSZ + 1] = "";
	_cleanup_fd_ int entry = -1;
	int kept, r = 0;

	if (!s->backend->kept || s->rec.state != SBX_RECORD_READY)
		return 0;
	if (s->rec.common) {
		entry = sbx_local_entry_open(&s->rec, NULL);
		/* Somebody has taken the entry away: then of the commit nothing is known but where all began. */
		if (entry < 0 || sbx_local_head(&s->rec, entry, head, NULL) < 0)
			snprintf(head, sizeof(head), "%s", s->rec.base);
	}
	kept = hold_removed(s, tree);
	if (kept < 0 && !s->warned)
		return refuse(s, kept, "removed from", err);
	if (kept <= 0 && is_untouched(s, entry, head) &&
	    !(s->rec.common && (has_objects(s) || has_history(s))))
		return 0;
	if (entry >= 0)
		r = put_aside(s, entry);
	if (r && !s->warned)
		return refuse(s, r, "staged in", err);
	s->rec.head = *head ? strdup(head) : NULL;
	s->rec.save = strdup(kept > 0 ? "kept" : "tree");
	s->rec.removed_ms = now_ms();
	if (s->rec.save && (!s->rec.common || s->rec.head))
		return 0;
	sbx_local_trash_unplan(s);
	return sbx_fail(err, ENOMEM, "out of memory");
}

void sbx_local_trash_unplan(struct sbx_local_sandbox *s)
{
	free(s->rec.save);
	free(s->rec.head);
	s->rec.save = s->rec.head = NULL;
}
