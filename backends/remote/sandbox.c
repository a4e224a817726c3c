/* The tables of a sandbox elsewhere, which lead to the parts of its box. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/remote/history.h"
#include "backends/remote/remote_impl.h"
#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"
#include "sandboxfs/tree.h"

static const struct sbx_sandbox_impl sandbox_impl;

static struct remote_box *downcast(struct sbx_sandbox *sb)
{
	assert(sb->impl == &sandbox_impl);
	return (struct remote_box *)sb;
}

static int sandbox_root(struct sbx_sandbox *sb)
{
	return remote_tree_root(downcast(sb)->tree);
}

static void add_string(struct json_object *obj, const char *key, const char *value)
{
	if (value)
		json_object_object_add(obj, key, json_object_new_string(value));
}

static void sandbox_info(struct sbx_sandbox *sb, struct json_object *obj)
{
	struct remote_box *box = downcast(sb);

	add_string(obj, "backend", box->backend->provider->impl->name);
	add_string(obj, "kind", box->rec.source ? "git" : "none");
	add_string(obj, "source", box->rec.source);
	pthread_mutex_lock(&box->lock);
	add_string(obj, "base", box->rec.base);
	pthread_mutex_unlock(&box->lock);
	add_string(obj, "branch", box->rec.branch);
	remote_box_report(box, obj);
}

/* What has failed for this mount only is being made, in its record. Lock held. */
static int store_renamed(struct remote_box *box)
{
	struct remote_record rec = box->rec;

	if (box->spared && rec.phase == REMOTE_PHASE_FAILED) {
		rec.phase = REMOTE_PHASE_CREATING;
		rec.reason = NULL;
	}
	return remote_record_store(box->dir, &rec);
}

static int sandbox_rename(struct sbx_sandbox *sb, const char *name, struct sbx_error *err)
{
	struct remote_box *box = downcast(sb);
	char *copy = strdup(name), *kept = strdup(name), *old = NULL;
	int r = copy && kept ? 0 : -ENOMEM;

	if (r == 0) {
		pthread_mutex_lock(&box->lock);
		old = box->rec.name;
		box->rec.name = kept;
		r = store_renamed(box);
		if (r < 0)
			box->rec.name = old;
		pthread_mutex_unlock(&box->lock);
	}
	if (r < 0) {
		free(copy);
		free(kept);
		return sbx_fail(err, -r, "the record cannot be written: %s", strerror(-r));
	}
	free(old);
	free(sb->name);
	sb->name = copy;
	return 0;
}

/* What is unsent goes with the machine, so it is not sent before. */
static int sandbox_retire(struct sbx_sandbox *sb, struct sbx_error *err)
{
	struct remote_box *box = downcast(sb);
	int r;

	pthread_mutex_lock(&box->lock);
	r = remote_record_leave(box->dir);
	if (r == 0 || r == -ENOENT) {
		atomic_store(&box->cancelled, true);
		box->rec.phase = REMOTE_PHASE_LEAVING;
		r = 0;
	}
	pthread_mutex_unlock(&box->lock);
	return r < 0 ? sbx_fail(err, -r, "the record cannot be written: %s", strerror(-r)) : 0;
}

static int sandbox_remove(struct sbx_sandbox *sb, struct sbx_error *err)
{
	struct remote_box *box = downcast(sb);
	struct remote *b = box->backend;
	int r;

	remote_box_rest(box);
	r = remote_unmake(b, &box->rec, &box->left, err);
	if (r == -EINTR && atomic_load(&box->left))
		return sbx_fail(err, EINTR, "the next mount goes on with removing %s", sb->name);
	if (r == 0 && box->unsure)
		remote_late_note(b->late, box->rec.machine);
	if (r == 0)
		r = sbx_tree_remove(b->state.nested, sb->id, err);
	return r ? r : sbx_tree_remove(b->dir, sb->id, err);
}

static void sandbox_close(struct sbx_sandbox *sb)
{
	remote_box_close(downcast(sb));
}

/* --- commands ---------------------------------------------------------------------------------
 */

static unsigned can_of(const struct remote_box *box)
{
	return box->backend->provider->impl->can;
}

static int sandbox_exec(struct sbx_sandbox *sb, const struct sbx_exec *spec, struct sbx_job *job,
                        struct sbx_error *err)
{
	struct remote_box *box = downcast(sb);

	atomic_store_explicit(&box->used, true, memory_order_relaxed);
	if (spec->background && !(can_of(box) & SBX_PROVIDER_DETACHES))
		return sbx_fail(
		        err, EOPNOTSUPP,
		        "nothing goes on here behind the request that has started it: write the "
		        "command to exec or run");
	return remote_jobs_exec(box->jobs, spec, job, err);
}

static bool sandbox_takes(struct sbx_sandbox *sb, int sig)
{
	return remote_jobs_take(can_of(downcast(sb)), sig);
}

static bool sandbox_alone(struct sbx_sandbox *sb)
{
	return remote_jobs_alone(can_of(downcast(sb)));
}

static uint64_t sandbox_output_max(struct sbx_sandbox *sb)
{
	return remote_jobs_output(can_of(downcast(sb)));
}

static void sandbox_hurry(struct sbx_sandbox *sb, unsigned ms)
{
	remote_jobs_abandon(downcast(sb)->jobs, ms != 0);
}

static const struct sbx_command_impl commands = {
        .exec = sandbox_exec,
        .signal = remote_jobs_signal,
        .takes = sandbox_takes,
        .alone = sandbox_alone,
        .output_max = sandbox_output_max,
        .hurry = sandbox_hurry,
};

/* --- files that are elsewhere -----------------------------------------------------------------
 */

static void away_begin(struct sbx_sandbox *sb)
{
	remote_box_begin(downcast(sb));
}

/* A flush that somebody waits for, but not for ever. */
struct last_flush {
	struct sbx_want want;
	pthread_mutex_t lock;
	pthread_cond_t ended;
	bool done;
};

/* [loop] */
static void last_flush_done(struct sbx_want *w, int code, const struct sbx_error *err)
{
	struct last_flush *f = sbx_container_of(w, struct last_flush, want);

	(void)code;
	(void)err;
	pthread_mutex_lock(&f->lock);
	f->done = true;
	pthread_cond_signal(&f->ended);
	pthread_mutex_unlock(&f->lock);
}

/* What is not sent in time is sent by the next mount, which ends what commands go on. */
static void away_rest(struct sbx_sandbox *sb, unsigned ms)
{
	struct remote_box *box = downcast(sb);
	const struct timespec until = sbx_clock_after(CLOCK_REALTIME, (int64_t)ms * 1000000);
	struct last_flush f = {.want = {.need = SBX_NEED_SENT, .done = last_flush_done},
	                       .lock = PTHREAD_MUTEX_INITIALIZER,
	                       .ended = PTHREAD_COND_INITIALIZER};
	bool saves;
	/* Of one that is still being made the next mount sends it all. */
	int r = remote_box_is_up(box) ? 0 : ETIMEDOUT;

	remote_sync_flush(box->sync, &f.want);
	pthread_mutex_lock(&f.lock);
	while (!f.done && r != ETIMEDOUT)
		r = pthread_cond_timedwait(&f.ended, &f.lock, &until);
	pthread_mutex_unlock(&f.lock);
	remote_jobs_await_kills(box->jobs, &until);
	saves = box->backend->host->settings->durable && remote_box_is_up(box);
	/* This tells who waits still. */
	remote_box_rest(box);
	assert(f.done);
	if (saves)
		remote_box_save(box);
}

static void away_leave(struct sbx_sandbox *sb)
{
	struct remote_box *box = downcast(sb);

	atomic_store(&box->left, true);
	atomic_store(&box->cancelled, true);
}

static bool away_here(struct sbx_sandbox *sb, uint64_t ino, enum sbx_need need, uint64_t off,
                      uint64_t len)
{
	struct remote_box *box = downcast(sb);

	if (!atomic_load_explicit(&box->used, memory_order_relaxed))
		atomic_store_explicit(&box->used, true, memory_order_relaxed);
	if (need == SBX_NEED_UP)
		return remote_box_is_up(box);
	if (need == SBX_NEED_SENT)
		return !remote_journal_hangs(box->journal, ino);
	return remote_tree_here(box->tree, ino, need, off, len);
}

static void away_want(struct sbx_sandbox *sb, struct sbx_want *w)
{
	struct remote_box *box = downcast(sb);

	if (w->need == SBX_NEED_UP)
		remote_box_want_up(box, w);
	else
		remote_tree_want(box->tree, w);
}

static void away_unwant(struct sbx_sandbox *sb, struct sbx_want *w)
{
	struct remote_box *box = downcast(sb);

	if (w->need == SBX_NEED_UP)
		remote_box_unwant_up(box, w);
	else if (w->need == SBX_NEED_SENT)
		remote_sync_unwant(box->sync, w);
	else
		remote_tree_unwant(box->tree, w);
}

static int away_admit(struct sbx_sandbox *sb, const struct sbx_change *meant, struct sbx_error *err)
{
	return remote_journal_admit(downcast(sb)->journal, meant, err);
}

static void away_changed(struct sbx_sandbox *sb, const struct sbx_change *c)
{
	struct remote_box *box = downcast(sb);

	remote_journal_note(box->journal, c);
	remote_tree_changed(box->tree, c);
	remote_sync_changed(box->sync);
}

static void away_dropped(struct sbx_sandbox *sb, const struct sbx_change *meant)
{
	remote_journal_drop(downcast(sb)->journal, meant);
}

static void away_flush(struct sbx_sandbox *sb, struct sbx_want *w)
{
	remote_sync_flush(downcast(sb)->sync, w);
}

static const struct sbx_away_impl away = {.begin = away_begin,
                                          .rest = away_rest,
                                          .leave = away_leave,
                                          .here = away_here,
                                          .want = away_want,
                                          .unwant = away_unwant,
                                          .admit = away_admit,
                                          .changed = away_changed,
                                          .dropped = away_dropped,
                                          .flush = away_flush};

/* --- the host's own .git ----------------------------------------------------------------------
 */

/*
 * A .git of the machine is not listed at all (list.sh), and one that the host makes stands in a
 * store on this machine, because either side's configuration is hostile to the other's git.
 */
static const char *git_gitfile(struct sbx_sandbox *sb)
{
	(void)sb;
	return NULL;
}

static int git_guard(struct sbx_sandbox *sb, struct sbx_error *err)
{
	(void)sb;
	(void)err;
	return 0;
}

static int git_nested(struct sbx_sandbox *sb, bool make)
{
	const int nested = downcast(sb)->backend->state.nested;

	return make ? sbx_dir_make(nested, sb->id, 0700) : sbx_dir_open(nested, sb->id);
}

static const struct sbx_git_impl git = {
        .gitfile = git_gitfile, .guard = git_guard, .nested = git_nested};

static const struct sbx_sandbox_impl sandbox_impl = {
        .root = sandbox_root,
        .info = sandbox_info,
        .policy = remote_sandbox_policy,
        .rename = sandbox_rename,
        .retire = sandbox_retire,
        .remove = sandbox_remove,
        .close = sandbox_close,
        .commands = &commands,
        .git = &git,
        .history = &remote_history,
        .remote = &remote_push,
        .away = &away,
};

/* --- a box ------------------------------------------------------------------------------------
 */

void remote_box_close(struct remote_box *box)
{
	struct remote *b = box->backend;

	pthread_mutex_lock(&b->lock);
	for (struct remote_box **at = &b->boxes; *at; at = &(*at)->next)
		if (*at == box) {
			*at = box->next;
			break;
		}
	pthread_mutex_unlock(&b->lock);
	remote_jobs_destroy(box->jobs);
	remote_sync_destroy(box->sync);
	remote_tree_close(box->tree);
	remote_journal_close(box->journal);
	remote_link_destroy(box->link);
	if (box->machine)
		b->provider->impl->release(box->machine);
	sbx_cleanup_fd(&box->dir);
	remote_record_release(&box->rec);
	remote_works_finish(&box->works);
	pthread_mutex_destroy(&box->lock);
	pthread_rwlock_destroy(&box->turn);
	free(box->base.name);
	free(box->base.id);
	free(box->base.workdir);
	free(box);
}

static bool touched(const char *path, uint64_t seen, void *data)
{
	return remote_journal_touched(((struct remote_box *)data)->journal, path, seen);
}

static uint64_t seen(void *data)
{
	return remote_journal_seen(((struct remote_box *)data)->journal);
}

static bool touched_file(uint64_t ino, uint64_t seen, void *data)
{
	return remote_journal_touched_file(((struct remote_box *)data)->journal, ino, seen);
}

static void dirty(const char *path, uint64_t ino, void *data)
{
	remote_tree_dirty(((struct remote_box *)data)->tree, path, ino);
}

static void awaited(void *data)
{
	remote_sync_awaited(((struct remote_box *)data)->sync);
}

/* As remote_tree_config.view. */
static char *view(void *data)
{
	struct remote_box *box = data;
	const char *mountpoint = box->backend->host->settings->mountpoint;
	char *path;

	pthread_mutex_lock(&box->lock);
	path = mountpoint ? sbx_format("%s/%s", mountpoint, box->rec.name) : NULL;
	pthread_mutex_unlock(&box->lock);
	return path;
}

static int open_files(struct remote_box *box, struct sbx_error *err)
{
	struct remote *b = box->backend;
	/* Who sets 0 wants to keep nothing, which for a tree is no limit. */
	const uint64_t cache_mb = b->host->settings->cache_mb ? b->host->settings->cache_mb : 1;
	const struct remote_tree_config config = {.sandbox = &box->base,
	                                          .dir = box->dir,
	                                          .loop = b->host->loop,
	                                          .pool = b->pool,
	                                          .cache_mb = cache_mb,
	                                          .renumbers = can_of(box) & SBX_PROVIDER_RENUMBERS,
	                                          .touched = touched,
	                                          .touched_file = touched_file,
	                                          .seen = seen,
	                                          .awaited = awaited,
	                                          .view = view,
	                                          .data = box};
	int r = remote_journal_open(box->dir, &box->journal, err);

	if (r == 0)
		r = remote_tree_open(&config, &box->tree, err);
	if (r < 0)
		return r;
	remote_journal_resolve(box->journal, remote_tree_root(box->tree));
	remote_journal_walk(box->journal, dirty, box);
	return 0;
}

static int open_parts(struct remote_box *box, struct sbx_error *err)
{
	struct remote *b = box->backend;
	static atomic_uint boxes;
	_cleanup_free_ char *prefix = sbx_format("%sx%x", b->daemon, atomic_fetch_add(&boxes, 1));
	struct remote_sync_config sync = {.sandbox = &box->base,
	                                  .loop = b->host->loop,
	                                  .pool = b->pool,
	                                  .works = &box->works};
	struct remote_jobs_config jobs = {.sandbox = &box->base,
	                                  .loop = b->host->loop,
	                                  .pool = b->pool,
	                                  .prefix = prefix,
	                                  .seen = seen,
	                                  .idle = remote_box_jobs_idle,
	                                  .data = box};
	int r = prefix ? open_files(box, err) : sbx_no_memory(err);

	if (r < 0)
		return r;
	sync.journal = box->journal;
	sync.tree = jobs.tree = box->tree;
	r = remote_sync_create(&sync, &box->sync);
	jobs.sync = box->sync;
	if (r == 0)
		r = remote_jobs_create(&jobs, &box->jobs);
	return r < 0 ? sbx_no_memory(err) : 0;
}

/* A waiting rename goes before readers that come later, or it might never have its turn. */
static void init_turn(pthread_rwlock_t *turn)
{
	pthread_rwlockattr_t attr;

	pthread_rwlockattr_init(&attr);
	pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	pthread_rwlock_init(turn, &attr);
	pthread_rwlockattr_destroy(&attr);
}

static int copy_record(const struct remote_record *from, struct remote_record *to)
{
	const struct {
		const char *from;
		char **to;
	} texts[] = {{from->id, &to->id},           {from->name, &to->name},
	             {from->machine, &to->machine}, {from->handle, &to->handle},
	             {from->source, &to->source},   {from->base, &to->base},
	             {from->branch, &to->branch},   {from->fork, &to->fork},
	             {from->reason, &to->reason}};

	to->phase = from->phase;
	to->created_ms = from->created_ms;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(texts); i++) {
		*texts[i].to = texts[i].from ? strdup(texts[i].from) : NULL;
		if (texts[i].from && !*texts[i].to)
			return -ENOMEM;
	}
	return 0;
}

int remote_box_open(struct remote *b, const struct remote_record *rec, struct remote_box **ret,
                    struct sbx_error *err)
{
	struct remote_box *box = calloc(1, sizeof(*box));
	int r;

	if (!box)
		return sbx_no_memory(err);
	box->backend = b;
	box->base.impl = &sandbox_impl;
	box->base.turn = &box->turn;
	box->base.created_ms = rec->created_ms;
	box->base.tree.owner = (struct sbx_identity){.uid = geteuid(), .gid = getegid()};
	init_turn(&box->turn);
	pthread_mutex_init(&box->lock, NULL);
	remote_works_init(&box->works);
	box->base.name = strdup(rec->name);
	box->base.id = strdup(rec->id);
	box->base.workdir = sbx_format("%s/remote/%s/tree", b->state.path, rec->id);
	box->dir = sbx_dir_open(b->dir, rec->id);
	r = copy_record(rec, &box->rec);
	if (r < 0 || !box->base.name || !box->base.id || !box->base.workdir)
		r = sbx_no_memory(err);
	else if (box->dir < 0)
		r = sbx_fail(err, -box->dir, "the directory of %s cannot be opened: %s", rec->name,
		             strerror(-box->dir));
	else
		r = open_parts(box, err);
	if (r < 0) {
		remote_box_close(box);
		return r;
	}
	pthread_mutex_lock(&b->lock);
	box->next = b->boxes;
	b->boxes = box;
	pthread_mutex_unlock(&b->lock);
	*ret = box;
	return 0;
}
