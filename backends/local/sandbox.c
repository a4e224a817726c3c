/*
 * One opened sandbox: a record, a descriptor of its tree, and a home directory. Only the name
 * ever changes, and it does so under a lock of its own, because commands may be started
 * meanwhile.
 *
 * Writes through the mount matter to what a teardown saves. The removal log is made by the first
 * removal: a sandbox in which nothing is removed has none.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/local/history_ops.h"
#include "backends/local/overlay/overlay.h"
#include "backends/local/overlay/paths.h"
#include "backends/local/private_git.h"
#include "backends/local/programs.h"
#include "backends/local/teardown.h"
#include "backends/local/trash/removal_log.h"
#include "backends/local/trash/save.h"
#include "backends/runner/launch.h"
#include "backends/support/beneath.h"
#include "backends/support/fsutil.h"
#include "backends/support/tree.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"

static struct sbx_removal_batch *kept_row(struct sbx_local_sandbox *s)
{
	const bool limited = s->base.unsaved;
	struct sbx_removal_paths place = {
	        .id = s->base.id, .edits = &s->edits, .shared = limited ? &s->base.busy : NULL};
	struct sbx_removal_batch *row;

	pthread_mutex_lock(&s->lock);
	row = s->kept;
	if (!row) {
		place.root = s->root;
		place.room = limited ? sbx_dir_make(s->disk, "kept", 0700)
		                     : sbx_dir_open(s->backend->state.kept, ".");
		place.own = s->rec.layer ? sbx_local_upper(s->backend, &s->rec, s->disk)
		                         : sbx_dir_open(s->root, ".");
		if (place.room < 0 || place.own < 0 ||
		    sbx_removal_open(s->backend->kept, &place, &row)) {
			sbx_cleanup_fd(&place.room);
			sbx_cleanup_fd(&place.own);
			row = NULL;
		}
		__atomic_store_n(&s->kept, row, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&s->lock);
	return row;
}

static bool sandbox_make_room(struct sbx_sandbox *sb)
{
	struct sbx_local_sandbox *s = sbx_local_downcast(sb);
	struct sbx_removal_batch *row = __atomic_load_n(&s->kept, __ATOMIC_ACQUIRE);

	return row && sbx_removal_make_room(row);
}

static void sandbox_before_write(struct sbx_sandbox *sb, int dirfd, const char *name)
{
	struct sbx_local_sandbox *s = sbx_local_downcast(sb);
	struct sbx_removal_batch *row;

	if (!name) {
		atomic_fetch_add_explicit(&s->edits, 1, memory_order_relaxed);
		return;
	}
	if (!s->backend->kept)
		return;
	row = __atomic_load_n(&s->kept, __ATOMIC_ACQUIRE);
	if (!row)
		row = kept_row(s);
	if (row)
		sbx_removal_removing(row, dirfd, name);
}

#define DAY_MS ((int64_t)24 * 60 * 60 * 1000)

static const struct sbx_sandbox_impl impl;

int sbx_local_sandbox_ready(struct sbx_sandbox *sb, struct sbx_error *err)
{
	struct sbx_local_sandbox *s = sbx_local_downcast(sb);
	int r;

	assert(s->rec.state == SBX_RECORD_CREATING);
	s->rec.state = SBX_RECORD_READY;
	r = sbx_record_store(s->backend->state.meta, &s->rec);
	return r ? sbx_fail(err, -r, "cannot write to the state directory: %s", strerror(-r)) : 0;
}

void sbx_local_sandbox_undo(struct sbx_sandbox *sb)
{
	sbx_sandbox_retire(sb, NULL);
	sbx_sandbox_remove(sb, NULL);
	sbx_sandbox_close(sb);
}

static int sandbox_root(struct sbx_sandbox *sb)
{
	return sbx_local_downcast(sb)->root;
}

static void add_text(struct json_object *obj, const char *key, const char *value)
{
	if (value)
		json_object_object_add(obj, key, json_object_new_string(value));
}

static void add_names(struct json_object *obj, const char *key, unsigned which)
{
	struct json_object *names = which ? json_object_new_array() : NULL;

	for (unsigned i = 0; i < SBX_RESULTS && names; i++)
		if (which & 1u << i)
			json_object_array_add(names, json_object_new_string(sbx_result_names[i]));
	if (names)
		json_object_object_add(obj, key, names);
}

/* The caller's; -1 when the tree is gone. */
static int copy_root(struct sbx_local_sandbox *s)
{
	int fd;

	pthread_mutex_lock(&s->lock);
	fd = s->root < 0 ? -1 : fcntl(s->root, F_DUPFD_CLOEXEC, 3);
	pthread_mutex_unlock(&s->lock);
	return fd;
}

/*
 * Where NAME/status and the like are files of the source, and where there are files behind them
 * that are only seen otherwise.
 */
static void add_results(struct sbx_local_sandbox *s, struct json_object *obj)
{
	_cleanup_fd_ int root = copy_root(s);
	const unsigned own = s->base.tree.own_results;
	const unsigned behind = sbx_result_names_in(root) & ~own;

	add_names(obj, "aliases_off", own);
	add_names(obj, "aliases_hide", behind);
	if (own)
		add_text(obj, "aliases_off_note",
		         "the sandbox was made with files of these names: results are read in ctl");
	if (behind)
		add_text(obj, "aliases_hide_note",
		         "the tree has files of these names, which commands, git, ctl/diff and "
		         "ctl/snapshots see");
}

static void sandbox_info(struct sbx_sandbox *sb, struct json_object *obj)
{
	struct sbx_local_sandbox *s = sbx_local_downcast(sb);

	add_text(obj, "backend", "local");
	add_text(obj, "kind", s->rec.kind);
	add_text(obj, "source", s->rec.source);
	add_text(obj, "branch", s->rec.branch);
	if (s->rec.wanted) {
		const bool same = strcmp(s->rec.wanted, s->rec.branch) == 0;

		add_text(obj, "branch_exists", same ? "continue" : "new");
		add_text(obj, "branch_wanted", s->rec.wanted);
	}
	add_text(obj, "base", s->rec.base);
	if (s->rec.worktree) {
		_cleanup_free_ char *refs = sbx_format("refs/sandboxfs/*/%s", s->rec.worktree);

		add_text(obj, "refs", refs);
	}
	if (!sb->tree.mounted)
		add_text(obj, "workdir", sb->workdir);
	add_text(obj, "tree", s->rec.layer ? "overlay" : "checkout");
	add_text(obj, "layer", s->rec.layer);
	if (!s->rec.layer)
		add_text(obj, "no_overlay", s->backend->flat);
	add_text(obj, "home", s->home);
	add_text(obj, "state_dir", s->backend->state.path);
	add_text(obj, "state_note", s->backend->fleeting);
	add_results(s, obj);
	sbx_programs_info(s->backend->programs, obj);
	if (s->rec.included >= 0)
		json_object_object_add(obj, "included", json_object_new_int64(s->rec.included));
	if (s->rec.skipped)
		json_object_object_add(obj, "skipped", json_object_new_int64(s->rec.skipped));
	if (s->backend->surrounding) {
		_cleanup_free_ char *note =
		        sbx_format("the source lies in the repository %s but is not its top: "
		                   "sandboxes are plain copies",
		                   s->backend->surrounding);

		add_text(obj, "note", note);
	}
}

/* Whether home and repository are on the disk. */
static bool holds_home(const struct sbx_local_sandbox *s)
{
	return s->base.unsaved && sbx_overlay_holds_home(s->backend->overlay);
}

static struct sbx_launch launch_of(const struct sbx_local_sandbox *s, const char *name,
                                   const struct sbx_strings *over)
{
	return (struct sbx_launch){.host = s->backend->host,
	                           .name = name,
	                           .home = s->home,
	                           .place = {.id = s->base.id,
	                                     .workdir = s->base.workdir,
	                                     .overlaid = s->rec.layer != NULL,
	                                     .as_source = s->rec.source && !s->rec.common,
	                                     .on_disk = s->base.unsaved,
	                                     .ro = s->git ? sbx_git_private_ro(s->git) : NULL,
	                                     .rw = s->git ? sbx_git_private_rw(s->git) : NULL,
	                                     .over = (const char *const *)over->items}};
}

static char *copy_name(struct sbx_local_sandbox *s)
{
	char *name;

	pthread_mutex_lock(&s->lock);
	name = strdup(s->base.name);
	pthread_mutex_unlock(&s->lock);
	return name;
}

static void add_shown(struct sbx_local_sandbox *s, struct json_object *obj)
{
	_cleanup_(sbx_strings_release) struct sbx_strings over = {0};
	_cleanup_free_ char *name = copy_name(s);
	struct json_object *paths;
	struct sbx_launch launch;

	if (!name || sbx_local_covers(s->backend, s->base.id, &over) != 0 ||
	    !json_object_object_get_ex(obj, "paths", &paths))
		return;
	launch = launch_of(s, name, &over);
	json_object_object_add(paths, "shown", sbx_launch_shown(&launch));
}

static void sandbox_policy(struct sbx_sandbox *sb, struct json_object *obj)
{
	struct sbx_local_sandbox *s = sbx_local_downcast(sb);
	struct sbx_spawner *sp = s->backend->host->spawner;

	add_text(obj, "tree", sb->tree.mounted ? "overlay" : "checkout");
	if (sb->unsaved)
		add_text(obj, "disk",
		         holds_home(s)
		                 ? "limited, in memory, with HOME, /tmp and the repository "
		                   "inside; saved at an fsync, within seconds of a write "
		                   "through the mount, when the last command has ended and at "
		                   "unmount"
		                 : "limited, in memory, with /tmp, but not HOME and the "
		                   "repository inside (Linux 6.3); saved at an fsync, within "
		                   "seconds of a write through the mount, when the last "
		                   "command has ended and at unmount");
	if (sp)
		sbx_spawner_policy(sp, obj);
	if (sp && sbx_spawner_views(sp))
		add_shown(s, obj);
	if (s->git)
		add_text(obj, "git", "a repository of its own; the source's objects read only");
	add_text(obj, "nested_git",
	         s->backend->host->settings->nested_shared ? "shared" : "private");
	if (s->git)
		add_text(obj, "git_programs", s->backend->programs ? "none" : "tree");
}

static int sandbox_rename(struct sbx_sandbox *sb, const char *name, struct sbx_error *err)
{
	struct sbx_local_sandbox *s = sbx_local_downcast(sb);
	_cleanup_free_ char *shown = strdup(name);
	_cleanup_free_ char *recorded = strdup(name);
	struct sbx_record renamed;
	int r;

	if (!shown || !recorded)
		return sbx_no_memory(err);
	pthread_mutex_lock(&s->storing);
	renamed = s->rec;
	renamed.name = recorded;
	/* The new name is on disk with the next barrier. */
	atomic_store(&sb->anchored, false);
	r = sbx_record_store(s->backend->state.meta, &renamed);
	pthread_mutex_unlock(&s->storing);
	if (r)
		return sbx_fail(err, -r, "cannot write to the state directory: %s", strerror(-r));
	pthread_mutex_lock(&s->lock);
	recorded = s->rec.name;
	s->rec.name = renamed.name;
	renamed.name = sb->name;
	sb->name = shown;
	shown = renamed.name;
	pthread_mutex_unlock(&s->lock);
	return 0;
}

static int sandbox_resize(struct sbx_sandbox *sb, uint64_t mb, struct sbx_error *err)
{
	struct sbx_local_sandbox *s = sbx_local_downcast(sb);
	struct sbx_record resized;
	int r;

	if (!sb->unsaved || !mb)
		return sbx_fail(err, EOPNOTSUPP, "disk_mb is decided when a sandbox is made: %s",
		                sb->unsaved ? "this one has a limit" : "this one has no limit");
	r = sbx_overlay_resize(s->backend->overlay, sb->id, mb, err);
	if (r)
		return r;
	pthread_mutex_lock(&s->storing);
	s->rec.disk_mb = (int64_t)mb;
	resized = s->rec;
	r = sbx_record_store(s->backend->state.meta, &resized);
	pthread_mutex_unlock(&s->storing);
	return r ? sbx_fail(err, -r, "cannot write to the state directory: %s", strerror(-r)) : 0;
}

/*
 * A job that starts meanwhile puts it off and waits for its end: a file that is being saved takes
 * up room even after it was removed. It will be asked for again when that job has ended.
 */
static int save_at_leisure(struct sbx_local_sandbox *s, struct sbx_error *err)
{
	int r;

	s->put_off = false;
	s->saving = true;
	r = s->base.busy ? -EINTR
	                 : sbx_overlay_save(s->backend->overlay, &s->backend->state, s->base.id,
	                                    s->disk, &s->put_off, err);
	s->saving = false;
	return r == -EINTR ? 0 : r;
}

static int sandbox_barrier(struct sbx_sandbox *sb, bool now, struct sbx_error *err)
{
	struct sbx_local_sandbox *s = sbx_local_downcast(sb);
	int r = now && !atomic_load(&sb->anchored) ? sbx_local_anchor(s, err) : 0;

	if (r || s->disk < 0)
		return r;
	return now ? sbx_overlay_save(s->backend->overlay, &s->backend->state, sb->id, s->disk,
	                              NULL, err)
	           : save_at_leisure(s, err);
}

/* It is what it was, also to a recovery, and to the next attempt. */
static void stay(struct sbx_local_sandbox *s, enum sbx_record_state state)
{
	sbx_local_trash_unplan(s);
	s->rec.state = state;
	sbx_record_store(s->backend->state.meta, &s->rec);
}

/*
 * Brings over what a command that was killed had committed. Commits that the source cannot take
 * now would be lost, so the first teardown is refused; whoever wants it all the same tears down
 * again.
 */
static int bring_last(struct sbx_local_sandbox *s, struct sbx_error *err)
{
	struct sbx_error why = SBX_ERROR_INIT;

	if (!s->git || !sbx_git_private_made(s->git) || !sbx_git_private_stale(s->git))
		return 0;
	sbx_local_git_sync(s, NULL);
	if (!sbx_git_private_behind(s->git, !s->backend->kept, &why))
		return 0;
	if (why.code == ETIMEDOUT)
		return sbx_fail(err, EBUSY, "%s stays for now: %s; tear it down again to go on",
		                s->base.name, why.text);
	if (s->warned)
		return 0;
	s->warned = true;
	return sbx_fail(
	        err, why.code,
	        "what was committed inside %s is not in the source: %s; tear it down again to "
	        "lose it",
	        s->base.name, why.text);
}

static int sandbox_retire(struct sbx_sandbox *sb, struct sbx_error *err)
{
	struct sbx_local_sandbox *s = sbx_local_downcast(sb);
	const enum sbx_record_state state = s->rec.state;
	int r;

	pthread_mutex_lock(&s->syncing);
	r = bring_last(s, err);
	if (!r)
		r = sbx_local_trash_plan(s, err);
	if (!r) {
		r = sbx_local_retire(s->backend, &s->rec, err);
		s->retired = !r;
		if (r)
			stay(s, state);
	}
	pthread_mutex_unlock(&s->syncing);
	return r;
}

static void unlink_blank(int dir, const char *name)
{
	if (sbx_file_is_blank(dir, name))
		unlinkat(dir, name, 0);
}

/*
 * The user's settings of tools; what is there already is the sandbox's own, unless it is what a
 * power cut (CUT) leaves. It works without them.
 */
static void carry_settings(const struct sbx_settings *settings, int home, bool cut)
{
	const struct sbx_strings *carried = &settings->carried;

	for (size_t i = 0; i + 1 < carried->n; i += 2) {
		const char *name;
		_cleanup_fd_ int dir = sbx_beneath_parent(home, carried->items[i], &name);

		if (dir >= 0 && cut)
			unlink_blank(dir, name);
		if (dir >= 0)
			sbx_file_create(dir, name, carried->items[i + 1]);
	}
}

/* The home, which is made with the sandbox. */
static int open_home(const struct sbx_local_sandbox *s)
{
	return holds_home(s) ? sbx_dir_open(s->disk, "home")
	                     : sbx_dir_open(s->backend->state.home, s->rec.id);
}

/* Puts into its home what only commands look for, so not before the first. S->syncing is held. */
static void furnish(struct sbx_local_sandbox *s)
{
	const struct sbx_local *b = s->backend;
	_cleanup_fd_ int home = open_home(s);

	if (home < 0)
		return;
	if (!b->clean)
		unlink_blank(home, ".gitconfig");
	if (s->rec.source)
		sbx_git_identity(s->rec.common, home,
		                 s->rec.layer && sbx_overlay_owner(b->overlay)->uid != geteuid());
	carry_settings(b->host->settings, home, !b->clean);
	atomic_store(&s->furnished, true);
}

static bool sandbox_stale(struct sbx_sandbox *sb)
{
	struct sbx_local_sandbox *s = sbx_local_downcast(sb);

	if (s->saving) {
		s->put_off = true;
		return true;
	}
	return !atomic_load(&s->furnished) || (s->git && sbx_git_private_stale(s->git));
}

static int sandbox_sync(struct sbx_sandbox *sb, struct sbx_error *err)
{
	struct sbx_local_sandbox *s = sbx_local_downcast(sb);
	int r;

	pthread_mutex_lock(&s->syncing);
	if (!atomic_load(&s->furnished) && !s->retired)
		furnish(s);
	r = s->git && !s->retired ? sbx_local_git_sync(s, err) : 0;
	pthread_mutex_unlock(&s->syncing);
	return r;
}

static int sandbox_nested(struct sbx_sandbox *sb, bool make)
{
	const struct sbx_state *st = &sbx_local_downcast(sb)->backend->state;

	return make ? sbx_dir_make(st->nested, sb->id, 0700) : sbx_dir_open(st->nested, sb->id);
}

static const char *sandbox_gitfile(struct sbx_sandbox *sb)
{
	return sbx_local_downcast(sb)->gitfile;
}

static int sandbox_guard(struct sbx_sandbox *sb, struct sbx_error *err)
{
	struct sbx_local_sandbox *s = sbx_local_downcast(sb);

	return s->gitfile ? sbx_programs_guard(s->backend->programs, s->rec.worktree, err) : 0;
}

/* Whether what could not be saved until now has been kept for as long as what is. */
static bool is_over(const struct sbx_local_sandbox *s)
{
	const int64_t days = (int64_t)s->backend->host->settings->trash_days;

	return days && sbx_real_ms() - s->rec.removed_ms > days * DAY_MS;
}

/*
 * Saves the work of a sandbox that goes. If it cannot be saved the sandbox stays, for days,
 * unless somebody wants it gone all the same. 1: the work was dropped, and ERR says why.
 */
static int save_work(struct sbx_local_sandbox *s, struct sbx_error *err)
{
	struct sbx_error why = SBX_ERROR_INIT;
	int r = 0;

	if (!s->rec.save)
		return 0;
	if (s->root >= 0)
		r = sbx_local_trash_save(s->backend, &s->rec, s->root, s->disk, &why);
	else
		r = sbx_local_trash_recover(s->backend, &s->rec, &why);
	if (!r && why.code && err)
		*err = why;
	if (!r)
		return why.code != 0;
	if (!atomic_load(&s->discard) && !is_over(s)) {
		if (err)
			*err = why;
		return r;
	}
	sbx_local_trash_unplan(s);
	sbx_record_store(s->backend->state.meta, &s->rec);
	sbx_fail(err, -r, "what was not committed in %s is lost: %s", s->rec.name, why.text);
	return 1;
}

static void sandbox_hurry(struct sbx_sandbox *sb, unsigned ms)
{
	struct sbx_local_sandbox *s = sbx_local_downcast(sb);

	if (s->git)
		sbx_git_private_hurry(s->git, ms);
}

static void sandbox_discard(struct sbx_sandbox *sb)
{
	atomic_store(&sbx_local_downcast(sb)->discard, true);
}

/*
 * With its files, which have an entry in the trash; where they cannot be kept, that keeps the
 * sandbox from going as well, unless somebody wants it gone. ERR then says what was dropped.
 */
static int remove_all(struct sbx_local_sandbox *s, struct sbx_error *err)
{
	struct sbx_error why = SBX_ERROR_INIT;
	int r = sbx_local_remove(s->backend, &s->rec, &why);

	if (r && s->rec.keep && (atomic_load(&s->discard) || is_over(s))) {
		s->rec.keep = false;
		sbx_tree_remove(s->backend->state.removed, s->rec.id, NULL);
		r = sbx_local_remove(s->backend, &s->rec, err);
		if (!r)
			s->lost = why;
		return r;
	}
	if (r && err)
		*err = why;
	return r;
}

static int sandbox_remove(struct sbx_sandbox *sb, struct sbx_error *err)
{
	struct sbx_local_sandbox *s = sbx_local_downcast(sb);
	_cleanup_fd_ int root = -1, disk = -1;
	struct sbx_error lost = SBX_ERROR_INIT;
	int r, dropped;

	/* The last to let go of an overlay writes out what is dirty below it: that shall not be the
	 * spawner. */
	if (s->backend->host->spawner && s->rec.layer)
		sbx_spawner_forget_now(s->backend->host->spawner, sb->id);
	else if (s->backend->host->spawner)
		sbx_spawner_forget(s->backend->host->spawner, sb->id);
	dropped = save_work(s, &lost);
	if (dropped > 0)
		s->lost = lost;
	r = dropped < 0 ? sbx_fail(err, lost.code, "%s", lost.text) : 0;
	/* To be shown it was put back. */
	if (!r && s->root < 0)
		r = sbx_local_retire(s->backend, &s->rec, err);
	if (!r)
		r = remove_all(s, err);
	if (r)
		return r;
	/* Snapshots may still be looked into, which do not need them. */
	pthread_mutex_lock(&s->lock);
	root = sbx_steal_fd(&s->root);
	disk = sbx_steal_fd(&s->disk);
	pthread_mutex_unlock(&s->lock);
	if (s->git)
		sbx_git_private_leave_disk(s->git);
	if (s->lost.code && err)
		*err = s->lost;
	return s->lost.code ? 1 : 0;
}

static void sandbox_close(struct sbx_sandbox *sb)
{
	struct sbx_local_sandbox *s = (struct sbx_local_sandbox *)sb;

	sbx_removal_close(s->kept);
	sbx_cleanup_fd(&s->root);
	sbx_cleanup_fd(&s->disk);
	pthread_mutex_destroy(&s->lock);
	pthread_mutex_destroy(&s->storing);
	pthread_mutex_destroy(&s->syncing);
	git_repository_free(s->past);
	sbx_git_private_close(s->git);
	sbx_record_release(&s->rec);
	free(s->gitfile);
	free(s->home);
	free(sb->name);
	free(sb->id);
	free(sb->workdir);
	free(s);
}

static int sandbox_exec(struct sbx_sandbox *sb, const struct sbx_exec *spec, struct sbx_job *job,
                        struct sbx_error *err)
{
	struct sbx_local_sandbox *s = sbx_local_downcast(sb);
	_cleanup_free_ char *name = NULL;
	_cleanup_(sbx_strings_release) struct sbx_strings over = {0};
	struct sbx_launch launch;
	struct sbx_removal_batch *row;
	int r;

	s->put_off = true;
	atomic_fetch_add(&s->edits, 1);
	row = __atomic_load_n(&s->kept, __ATOMIC_ACQUIRE);
	if (row)
		sbx_removal_over(row);
	name = copy_name(s);
	if (!name)
		return sbx_no_memory(err);
	r = sbx_local_covers(s->backend, sb->id, &over);
	if (r)
		return sbx_fail(err, -r, "cannot read the state directory: %s", strerror(-r));
	launch = launch_of(s, name, &over);
	return sbx_launch(&launch, spec, job, err);
}

static const struct sbx_command_impl commands = {
        .exec = sandbox_exec,
        .signal = sbx_spawner_signal,
        .stale = sandbox_stale,
        .sync = sandbox_sync,
        .hurry = sandbox_hurry,
};

static const struct sbx_storage_impl storage = {
        .barrier = sandbox_barrier,
        .resize = sandbox_resize,
        .before_write = sandbox_before_write,
        .make_room = sandbox_make_room,
        .discard = sandbox_discard,
};

static const struct sbx_git_impl git = {
        .gitfile = sandbox_gitfile,
        .guard = sandbox_guard,
        .nested = sandbox_nested,
};

static const struct sbx_sandbox_impl impl = {
        .root = sandbox_root,
        .info = sandbox_info,
        .policy = sandbox_policy,
        .rename = sandbox_rename,
        .retire = sandbox_retire,
        .remove = sandbox_remove,
        .close = sandbox_close,
        .commands = &commands,
        .storage = &storage,
        .git = &git,
        .history = &sbx_local_history,
        .remote = &sbx_local_remote,
};

static int open_overlaid(struct sbx_local_sandbox *s, struct sbx_error *err)
{
	struct sbx_overlay *overlay = s->backend->overlay;
	const struct sbx_identity *owner = sbx_overlay_owner(overlay);
	int r;

	s->base.tree.mounted = s->base.tree.emulate_dir_rename = true;
	s->base.tree.owner = *owner;
	if (s->rec.disk_mb) {
		s->disk = sbx_overlay_load(overlay, &s->backend->state, &s->rec, err);
		if (s->disk < 0)
			return s->disk;
		s->base.unsaved = true;
		r = s->git && holds_home(s) ? sbx_git_private_use_disk(s->git, s->disk) : 0;
		if (r)
			return sbx_fail(err, -r, "cannot open the sandbox: %s", strerror(-r));
		s->base.disk_mb = (uint64_t)s->rec.disk_mb;
	}
	s->base.tree.splits_links = sbx_overlay_splits(overlay);
	s->base.tree.unstable_before_ns = sbx_base_born(sbx_overlay_bases(overlay), s->rec.layer);
	s->root = sbx_overlay_mount(overlay, &s->rec, err);
	return s->root < 0 ? s->root : 0;
}

static int open_flat(struct sbx_local_sandbox *s, struct sbx_error *err)
{
	s->base.tree.owner = (struct sbx_identity){.uid = geteuid(), .gid = getegid()};
	s->root = openat(s->backend->state.trees, s->rec.id,
	                 O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return s->root < 0 ? sbx_fail(err, errno, "cannot open the sandbox: %s", strerror(errno))
	                   : 0;
}

static int open_places(struct sbx_local_sandbox *s, struct sbx_error *err)
{
	const struct sbx_state *st = &s->backend->state;
	int r = s->rec.layer ? open_overlaid(s, err) : open_flat(s, err);
	_cleanup_fd_ int home = r || !holds_home(s) ? -1 : sbx_dir_open(s->disk, "home");

	if (r)
		return r;
	if (home < 0)
		home = sbx_dir_make(st->home, s->rec.id, 0700);
	if (home < 0)
		return sbx_fail(err, -home, "cannot open the sandbox: %s", strerror(-home));
	return 0;
}

static int fill_in(struct sbx_local_sandbox *s)
{
	const char *state = s->backend->state.path;
	int r;

	s->base.created_ms = s->rec.created_ms;
	s->base.tree.own_results = s->rec.own_results > 0 ? (unsigned)s->rec.own_results : 0;
	s->base.name = strdup(s->rec.name);
	s->base.id = strdup(s->rec.id);
	s->base.workdir = sbx_format("%s/trees/%s", state, s->rec.id);
	s->home = sbx_format("%s/home/%s", state, s->rec.id);
	if (!s->base.name || !s->base.id || !s->base.workdir || !s->home)
		return -ENOMEM;
	r = sbx_local_git_open(s->backend, &s->rec, &s->git);
	if (r || !s->git)
		return r;
	s->gitfile = sbx_format("gitdir: %s/worktrees/%s\n", s->rec.common, s->rec.worktree);
	return s->gitfile ? 0 : -ENOMEM;
}

/* Completes a restore that was broken off. */
static void recover_past(struct sbx_local_sandbox *s)
{
	const struct sbx_snapshot_context place = sbx_local_snapshot_context(&s->base);

	sbx_local_history_recover(&place);
}

static struct sbx_local_sandbox *sandbox_new(struct sbx_local *b, const struct sbx_record *rec)
{
	struct sbx_local_sandbox *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	*s = (struct sbx_local_sandbox){
	        .base.impl = &impl, .backend = b, .rec = *rec, .root = -1, .disk = -1};
	pthread_mutex_init(&s->lock, NULL);
	pthread_mutex_init(&s->storing, NULL);
	pthread_mutex_init(&s->syncing, NULL);
	return s;
}

int sbx_local_sandbox_leaving(struct sbx_local *b, struct sbx_record *rec, struct sbx_sandbox **ret)
{
	struct sbx_local_sandbox *s = sandbox_new(b, rec);
	int r = s ? fill_in(s) : -ENOMEM;

	if (r) {
		if (s) {
			s->rec = (struct sbx_record){0};
			sandbox_close(&s->base);
		}
		return r;
	}
	s->retired = true;
	*rec = (struct sbx_record){0};
	*ret = &s->base;
	return 0;
}

int sbx_local_sandbox_open(struct sbx_local *b, struct sbx_record *rec, struct sbx_sandbox **ret,
                           struct sbx_error *err)
{
	struct sbx_local_sandbox *s = sandbox_new(b, rec);
	int r;

	assert(rec->state != SBX_RECORD_DELETING);
	if (!s)
		return sbx_no_memory(err);
	/* Of before this was recorded: what there is of it, once and for all. */
	if (s->rec.own_results < 0) {
		s->rec.own_results = sbx_local_results(b, &s->rec, false);
		sbx_record_store(b->state.meta, &s->rec);
	}
	r = fill_in(s);
	r = r ? sbx_fail(err, -r, "out of memory") : open_places(s, err);
	if (r) {
		s->rec = (struct sbx_record){0};
		sandbox_close(&s->base);
		return r;
	}
	*rec = (struct sbx_record){0};
	*ret = &s->base;
	if (!b->clean && !b->recovered)
		sbx_local_git_mend_link(b, &s->rec, s->root);
	recover_past(s);
	return 0;
}
