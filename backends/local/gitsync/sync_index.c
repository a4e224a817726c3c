/*
 * The index of both sides, compared with the one they last agreed on. Host git gets what was taken
 * apart and put together here, never the bytes that a command wrote, and the objects that it names.
 * By stat data and flags an index says that a file need not be looked at: of those of a command's
 * nothing counts outside (sbx_index_bare), so host git reads once what a command has staged, and
 * keeps what it knows of all else. What the host's index says of that goes inside, where nobody is
 * misled by it but commands.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/git/git_impl.h"
#include "backends/git/import_objects.h"
#include "backends/git/index_merge.h"
#include "backends/git/store.h"
#include "backends/git/store_walk.h"
#include "backends/local/gitsync/sync_impl.h"
#include "backends/support/beneath.h"
#include "sandboxfs/mitigations.h"

#define GITLINK 0160000
#define FEW     32 /* entries that are looked up one by one */

/* A command's index may be this large, or as many times as large as the host's. */
#define INSIDE_MOST  ((size_t)6 << 20)
#define INSIDE_TIMES 4

struct side {
	struct sbx_index index;
	struct sbx_index raw; /* inside: as it is there; the names of index are its */
	struct timespec mtime;
	size_t len;
	struct sbx_seen seen;
	bool there;
};

/* The index that one side is to have instead. DATA is NULL where it has it. */
struct writing {
	int dir, lock;
	const struct side *known;
	struct timespec mtime;
	void *data;
	size_t len;
};

static void side_release(struct side *s)
{
	sbx_index_release(&s->index);
	sbx_index_release(&s->raw);
}

/* 0 also when there is none. */
static int read_side(int dir, struct side *ret, struct sbx_error *err)
{
	_cleanup_free_ char *data = NULL;
	int r;

	ret->seen = sbx_seen_now(dir, "index");
	r = sbx_beneath_read(dir, "index", SBX_INDEX_MAX, &data, &ret->len, &ret->mtime);
	if (r == -ENOENT)
		return 0;
	if (!r)
		r = sbx_index_parse(data, ret->len, &ret->index, err);
	else
		sbx_fail(err, -r, "the index cannot be read: %s", strerror(-r));
	ret->there = !r;
	return r;
}

/*
 * How much of the host's index is its own: what it had before any command ran, and what it has come
 * to have beyond what was agreed on. By all of it a command's could grow with each time that it is
 * brought over.
 */
static void note_own(struct sbx_sync *y, const struct side *base, const struct side *host)
{
	const size_t n = host->index.n, before = base->index.n;

	if (!y->p->own_index)
		y->p->own_index = host->len;
	else if (base->there && n > before)
		y->p->own_index += host->len / n * (n - before);
}

static size_t inside_most(const struct sbx_sync *y)
{
	const size_t own = y->p->own_index;
	const size_t most = own > INSIDE_MOST / INSIDE_TIMES ? INSIDE_TIMES * own : INSIDE_MOST;

	return most < SBX_INDEX_MAX ? most : SBX_INDEX_MAX;
}

/* As much of what commands wrote as may count beside the host's. */
static int read_inside(const struct sbx_sync *y, const struct side *host, struct side *ret,
                       struct sbx_error *err)
{
	const size_t most = inside_most(y);
	const int dir = y->repo;
	_cleanup_free_ char *data = NULL;
	int r;

	if (sbx_mitigation_off("bare_index"))
		return read_side(dir, ret, err);
	ret->seen = sbx_seen_now(dir, "index");
	r = sbx_beneath_read(dir, "index", most, &data, &ret->len, &ret->mtime);
	if (r == -ENOENT)
		return 0;
	if (r)
		return sbx_fail(err, -r, "the index inside cannot be brought over: %s",
		                strerror(-r));
	r = sbx_index_parse_most(data, ret->len, most, &ret->raw, err);
	if (!r && (r = sbx_index_bare(&ret->raw, &host->index, &ret->index)))
		sbx_no_memory(err);
	ret->there = !r;
	return r;
}

/*
 * git compares times in seconds, and what a command has mapped it changes without a change of time:
 * what the host's git found out about a file that was changed since no command ran, or in the
 * second when that was, may be true no more. It looks again.
 */
static void doubt(struct sbx_sync *y, struct side *host)
{
	for (size_t i = 0; i < host->index.n && !sbx_mitigation_off("bare_index"); i++)
		y->doubted |= sbx_index_doubt(&host->index.at[i], y->p->quiet.tv_sec);
}

/*
 * Brings over the objects that new entries name, because the source must have them before host
 * git sees the entries.
 */
static int export_blobs(struct sbx_sync *y, const struct sbx_index *index,
                        const struct sbx_index *known, struct sbx_error *err)
{
	size_t k = 0;
	int r = 0;

	for (size_t i = 0; i < index->n && !r; i++) {
		const struct sbx_index_entry *e = &index->at[i];
		git_oid oid;

		while (k < known->n && sbx_index_compare(&known->at[k], e) < 0)
			k++;
		if (sbx_index_mode(e) == GITLINK ||
		    (k < known->n && memcmp(known->at[k].oid, e->oid, sizeof(e->oid)) == 0))
			continue;
		memcpy(oid.id, e->oid, sizeof(e->oid));
		r = sbx_sync_take(y, &oid, GIT_OBJECT_BLOB, err);
	}
	return r;
}

/*
 * Brings over objects that were staged and not committed: before the sandbox was in the trash, or
 * by a snapshot.
 */
static int give_blobs(struct sbx_sync *y, const struct sbx_index *index,
                      const struct sbx_index *known, struct sbx_error *err)
{
	_cleanup_fd_ int store = sbx_git_store_open(y->p->wt.common);
	_cleanup_(sbx_git_tips_release) struct sbx_git_tips listed = {0};
	/* The first time nothing is known. */
	const bool lists = index->n > known->n + FEW;
	size_t k = 0;
	int r = store >= 0 && lists ? sbx_git_store_list(store, &listed) : 0;

	if (r)
		return sbx_fail(err, -r, "the store of the source cannot be read: %s",
		                strerror(-r));
	for (size_t i = 0; i < index->n && !r && store >= 0; i++) {
		const struct sbx_index_entry *e = &index->at[i];
		git_oid oid;

		while (k < known->n && sbx_index_compare(&known->at[k], e) < 0)
			k++;
		memcpy(oid.id, e->oid, sizeof(e->oid));
		if ((k < known->n && memcmp(known->at[k].oid, e->oid, sizeof(e->oid)) == 0) ||
		    !(lists ? sbx_git_store_lists(&listed, &oid) : sbx_git_store_has(store, &oid)))
			continue;
		r = sbx_sync_reader(y);
		if (!r && (r = sbx_git_store_give(store, y->objects, &oid)))
			sbx_fail(err, -r, "what is staged cannot be brought inside: %s",
			         strerror(-r));
	}
	return r;
}

static bool is_older(struct timespec a, struct timespec b)
{
	return a.tv_sec != b.tv_sec ? a.tv_sec < b.tv_sec : a.tv_nsec < b.tv_nsec;
}

/*
 * INDEX for the host, with what its own says of the files. The time of the file tells git which
 * entries were too fresh to be sure of: it stays.
 */
static int prepare_host(struct writing *w, struct sbx_index *index, const struct timespec *theirs)
{
	if (w->known->there) {
		w->mtime = sbx_mitigation_off("bare_index") ? *theirs : w->known->mtime;
		sbx_index_refresh(index, &w->known->index);
	} else {
		clock_gettime(CLOCK_REALTIME_COARSE, &w->mtime);
	}
	return sbx_index_format(index, true, &w->data, &w->len);
}

/* Merged entries may be a file and a directory of the same name. */
static int check_merged(const struct sbx_index *index, struct sbx_error *err)
{
	struct sbx_index again = {0};
	_cleanup_free_ void *data = NULL;
	size_t len;
	int r = sbx_index_format(index, false, &data, &len);

	if (!r)
		r = sbx_index_parse(data, len, &again, err);
	sbx_index_release(&again);
	return r;
}

/* INDEX for inside, with what commands' own says besides; its time is that of the older one. */
static int prepare_inside(struct writing *w, const struct sbx_index *index, const struct side *host,
                          const struct side *base)
{
	static const struct sbx_index none;
	const struct side *own = w->known;
	struct sbx_index dressed;
	int r = sbx_index_dress(index, &own->raw, base->there ? &base->index : &none, &host->index,
	                        &dressed);

	if (r)
		return r;
	w->mtime = own->there && is_older(own->mtime, host->mtime) ? own->mtime : host->mtime;
	/* What is only announced may be in the way of a file by now. */
	if (dressed.n > index->n && check_merged(&dressed, NULL))
		r = sbx_index_format(index, true, &w->data, &w->len);
	else
		r = sbx_index_format(&dressed, true, &w->data, &w->len);
	free(dressed.at);
	return r;
}

/* EAGAIN: it is another than was read. HELD is its lock where we have that already, else -1. */
static int lock_side(struct writing *w, int *held)
{
	if (!w->data)
		return 0;
	if (*held >= 0) {
		w->lock = sbx_steal_fd(held);
		return sbx_seen_same(w->dir, "index", &w->known->seen) ? 0 : -EAGAIN;
	}
	w->lock = sbx_locked_open_seen(w->dir, "index", &w->known->seen);
	return w->lock < 0 ? w->lock : 0;
}

static int put_side(struct writing *w)
{
	int r = w->data ? sbx_locked_commit(w->dir, "index", w->lock, w->data, w->len, &w->mtime)
	                : 0;

	sbx_cleanup_fd(&w->lock);
	return r;
}

static void writing_release(struct writing *w)
{
	if (w->lock >= 0)
		sbx_locked_end(w->dir, "index");
	sbx_cleanup_fd(&w->lock);
	free(w->data);
}

/* Both locks first: what only one side got would pass for staged there when the other goes on. */
static int put_both(struct sbx_sync *y, struct writing *host, struct writing *inside)
{
	struct sbx_git_owner owner = sbx_git_owner_begin(y->p->wt.common);
	int none = -1, r = lock_side(host, &none);

	sbx_git_owner_end(&owner);
	if (!r)
		r = lock_side(inside, &y->index_lock);
	if (!r)
		r = put_side(inside);
	return r ? r : put_side(host);
}

/* Whether inside has to be written: the host's flags go there too, when they change. */
static bool is_behind(const struct sbx_index *index, const struct side *base,
                      const struct side *host, const struct side *inside)
{
	return host->there &&
	       !(inside->there && sbx_index_equal(index, &inside->index) &&
	         !(base->there && sbx_index_flags_differ(&base->index, &host->index)));
}

static int carry_to(struct sbx_sync *y, struct sbx_index *index, const struct side *base,
                    const struct side *host, const struct side *inside, struct sbx_error *err)
{
	_cleanup_(writing_release) struct writing out = {
	        .dir = y->entry, .lock = -1, .known = host};
	_cleanup_(writing_release) struct writing in = {
	        .dir = y->repo, .lock = -1, .known = inside};
	static const struct sbx_index none;
	int r = 0;

	if (inside->there && !(host->there && sbx_index_equal(index, &host->index))) {
		r = export_blobs(y, index, &host->index, err);
		if (!r)
			r = prepare_host(&out, index, &inside->mtime);
	} else if (host->there && y->doubted) {
		r = prepare_host(&out, index, &inside->mtime);
	}
	if (!r && is_behind(index, base, host, inside)) {
		r = give_blobs(y, index, base->there ? &base->index : &none, err);
		if (!r)
			r = prepare_inside(&in, index, host, base);
	}
	y->moved = out.data || in.data;
	return r ? r : put_both(y, &out, &in);
}

/* The host's side by itself, whatever is inside. */
static int put_doubts(struct sbx_sync *y, struct side *host)
{
	_cleanup_(writing_release) struct writing out = {
	        .dir = y->entry, .lock = -1, .known = host};
	int none = -1, r = prepare_host(&out, &host->index, &host->mtime);
	struct sbx_git_owner owner;

	if (r)
		return r;
	owner = sbx_git_owner_begin(y->p->wt.common);
	r = lock_side(&out, &none);
	sbx_git_owner_end(&owner);
	return r ? r : put_side(&out);
}

static int store_agreed(struct sbx_sync *y, const struct sbx_index *index, const struct side *base)
{
	_cleanup_free_ void *data = NULL;
	size_t len;
	int r;

	if (base->there && sbx_index_equal(index, &base->index))
		return 0;
	r = sbx_index_format(index, false, &data, &len);
	return r ? r : sbx_locked_replace(y->meta, "index", data, len, NULL);
}

static int merge(const struct side *base, const struct side *host, const struct side *inside,
                 struct sbx_index *ret, struct sbx_error *err)
{
	/* Nothing agreed: what inside has is what it got from the host, which may have gone on. */
	const struct sbx_index *common = base->there ? &base->index : &inside->index;
	int r;

	if (!host->there || !inside->there) {
		common = host->there ? &host->index : &inside->index;
		return sbx_index_merge(common, common, common, ret);
	}
	r = sbx_index_merge(common, &host->index, &inside->index, ret);
	if (r > 0)
		return sbx_fail(err, EEXIST, "the same file was staged differently on both sides");
	/* What is one side's as it is was checked when it was read. */
	if (r || sbx_index_equal(ret, &host->index) || sbx_index_equal(ret, &inside->index))
		return r;
	return check_merged(ret, err);
}

static int carry(struct sbx_sync *y, const struct side *base, const struct side *host,
                 const struct side *inside, struct sbx_error *err)
{
	struct sbx_index merged = {0};
	int r = merge(base, host, inside, &merged, err);

	if (!r)
		r = carry_to(y, &merged, base, host, inside, err);
	if (!r)
		r = store_agreed(y, &merged, base);
	free(merged.at);
	return r;
}

/* How an index ends: git's checksum of it, unless it was told to leave that out. False: unknown. */
static bool read_end(int dir, struct sbx_index_end *ret)
{
	static const struct sbx_index_end none;
	_cleanup_fd_ int fd = sbx_beneath_open(dir, "index", O_RDONLY);
	struct stat st;

	*ret = none;
	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size < 32 ||
	    pread(fd, ret->sum, sizeof(ret->sum), st.st_size - (off_t)sizeof(ret->sum)) !=
	            (ssize_t)sizeof(ret->sum))
		return false;
	ret->size = (uint64_t)st.st_size;
	return memcmp(ret->sum, none.sum, sizeof(none.sum)) != 0;
}

/* Whether both are as they were when they last agreed. A command that fakes that has its own not
 * brought over. */
static bool is_as_agreed(struct sbx_sync *y)
{
	struct sbx_index_end end[2];

	return read_end(y->entry, &end[0]) && read_end(y->repo, &end[1]) &&
	       memcmp(end, y->p->ends, sizeof(end)) == 0;
}

void sbx_sync_index(struct sbx_sync *y)
{
	_cleanup_(side_release) struct side base = {0};
	_cleanup_(side_release) struct side host = {0};
	_cleanup_(side_release) struct side inside = {0};
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_index_end ends[2];
	git_oid host_tip, inside_tip;
	bool before = y->moved;
	int r;

	if (!sbx_sync_tips(y, &host_tip, &inside_tip) || !git_oid_equal(&host_tip, &inside_tip))
		return;
	y->sure = is_as_agreed(y);
	if (y->sure)
		return;
	/* As it is read now; what is written below is looked at by the next pass. */
	if (!read_end(y->entry, &ends[0]) || !read_end(y->repo, &ends[1]))
		memset(ends, 0, sizeof(ends));
	y->moved = false;
	y->doubted = false;
	r = read_side(y->entry, &host, &err);
	/* Damaged: as if nothing had been agreed. */
	if (!r && read_side(y->meta, &base, NULL))
		base.there = false;
	if (!r) {
		note_own(y, &base, &host);
		doubt(y, &host);
		r = read_inside(y, &host, &inside, &err);
		/* What kept it from being brought over is told all the same. */
		before |= r && y->doubted && put_doubts(y, &host) == 0;
		y->sure = !y->doubted;
	}
	if (!r && (host.there || inside.there) && (inside.there || !base.there))
		r = carry(y, &base, &host, &inside, &err);
	/* Moved just now: the next pass sees where. */
	if (r == -EAGAIN && y->moved)
		r = 0;
	if (r == -EBUSY && !err.code)
		sbx_fail(&err, EBUSY, "the index cannot be brought over: git is at work there");
	if (r)
		sbx_sync_note(y, r, &err);
	else if (!y->moved)
		memcpy(y->p->ends, ends, sizeof(ends));
	y->moved |= before;
}
