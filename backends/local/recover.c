/*
 * Bringing the state directory into order at the start. Records decide; what no record knows is an
 * orphan and goes. A record that cannot be read is left alone with all that carries its id: it may
 * describe somebody's work.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "backends/git/stale_locks.h"
#include "backends/git/worktree.h"
#include "backends/local/create.h"
#include "backends/local/overlay/create_overlay.h"
#include "backends/local/private_git.h"
#include "backends/local/syncer.h"
#include "backends/local/teardown.h"
#include "backends/local/trash/removed.h"
#include "backends/local/trash/save.h"
#include "backends/support/fsutil.h"
#include "backends/support/tree.h"
#include "sandboxfs/cleanup.h"

#define HEAD_MAX 4096

struct recovery {
	struct sbx_local *b;
	const struct sbx_recover *r;
	struct sbx_strings ids;       /* of all records there are */
	struct sbx_strings worktrees; /* of those that use the source's repository */
	struct sbx_strings commons;   /* other repositories */
};

static void note(const struct recovery *rv, const char *name, const char *text)
{
	_cleanup_free_ char *line = sbx_format("%s: %s", name, text);

	if (line && rv->r->note)
		rv->r->note(line, rv->r->data);
}

static bool contains(const struct sbx_strings *names, const char *name)
{
	for (size_t i = 0; i < names->n; i++)
		if (strcmp(names->items[i], name) == 0)
			return true;
	return false;
}

static bool has_suffix(const char *text, const char *suffix)
{
	size_t n = strlen(text), m = strlen(suffix);

	return n > m && strcmp(text + n - m, suffix) == 0;
}

/* Brings over commits that commands made before the daemon died. */
static void bring_over(struct recovery *rv, const struct sbx_record *rec)
{
	struct sbx_error err = SBX_ERROR_INIT;
	_cleanup_free_ char *repo = sbx_format("%s/repo", rec->id);
	struct sbx_git_private *git;
	struct sbx_git_idle idle = {0};

	if (!repo || faccessat(rv->b->state.git, repo, F_OK, AT_SYMLINK_NOFOLLOW) < 0 ||
	    sbx_local_git_open(rv->b, rec, &git) || !git)
		return;
	/* Of one being torn down the source may have nothing left. */
	clock_gettime(CLOCK_REALTIME_COARSE, &idle.since);
	if (sbx_git_private_sync(git, &idle, &err) && rec->state == SBX_RECORD_READY)
		note(rv, rec->name, err.text);
	sbx_git_private_close(git);
}

/* A step that cannot be done now is tried again later. */
static void leave(struct recovery *rv, struct sbx_record *rec)
{
	struct sbx_sandbox *sb;

	if (rv->r->leaving && sbx_local_sandbox_leaving(rv->b, rec, &sb) == 0)
		rv->r->leaving(sb, rv->r->data);
}

static void reap(struct recovery *rv, struct sbx_record *rec, const char *why)
{
	struct sbx_error err = SBX_ERROR_INIT;
	int r;

	note(rv, rec->name, why);
	bring_over(rv, rec);
	r = rec->save ? sbx_local_trash_recover(rv->b, rec, &err) : 0;
	if (err.code)
		note(rv, rec->name, err.text);
	if (r) {
		note(rv, rec->name,
		     "what was not committed cannot be saved now; it was left alone");
		leave(rv, rec);
		return;
	}
	sbx_local_retire(rv->b, rec, NULL);
	if (sbx_local_remove(rv->b, rec, &err)) {
		note(rv, rec->name, err.text);
		leave(rv, rec);
	}
}

static int keep(struct recovery *rv, const struct sbx_record *rec)
{
	if (rec->worktree && sbx_strings_add(&rv->worktrees, rec->worktree))
		return -ENOMEM;
	if (rec->common && !contains(&rv->commons, rec->common))
		return sbx_strings_add(&rv->commons, rec->common);
	return 0;
}

static int recover_record(struct recovery *rv, struct sbx_record *rec, struct sbx_error *err)
{
	struct sbx_error why = SBX_ERROR_INIT;
	struct sbx_sandbox *sb;
	int r = keep(rv, rec);

	if (r)
		return r;
	if (rec->state == SBX_RECORD_CREATING) {
		reap(rv, rec, "an unfinished create was rolled back");
		return 0;
	}
	if (rec->state == SBX_RECORD_DELETING) {
		reap(rv, rec, "an unfinished teardown was finished");
		return 0;
	}
	if (!sbx_state_has_tree(&rv->b->state, rec->id)) {
		reap(rv, rec, "the working tree was gone; the sandbox was removed");
		return 0;
	}
	if (!rv->b->clean) {
		sbx_local_git_mend_entry(rv->b, rec);
		bring_over(rv, rec);
	}
	if (rec->layer && sbx_local_overlay_adopt(rv->b, rec, &why) < 0) {
		note(rv, rec->name, why.text);
		note(rv, rec->name, "its tree cannot be shown now; it was left alone");
		return 0;
	}
	/* Removals end with the daemon that saw them. */
	sbx_tree_remove(rv->b->state.kept, rec->id, NULL);
	r = sbx_local_sandbox_open(rv->b, rec, &sb, err);
	if (!r)
		rv->r->found(sb, rv->r->data);
	return r;
}

/* With all that carries its id: in the worktree's entry is what was staged, and what is checked
 * out. */
static int keep_entry(struct recovery *rv, const char *id)
{
	_cleanup_free_ char *name = sbx_local_entry_name(id);

	return name ? sbx_strings_add(&rv->worktrees, name) : -ENOMEM;
}

static int find_work(const char *name, unsigned char type, void *data)
{
	(void)type;
	(void)data;
	return strcmp(name, ".git") != 0;
}

/* Whether there is more in the tree than what a create makes. */
static bool has_work(const struct recovery *rv, const char *id)
{
	_cleanup_fd_ int tree = sbx_dir_open(rv->b->state.trees, id);
	_cleanup_fd_ int upper = tree < 0 ? tree : sbx_dir_open(tree, "upper");

	return tree != -ENOENT && (upper < 0 || sbx_dir_scan(upper, find_work, NULL) != 0);
}

/* In the source, of one whose record a power cut has left empty. */
struct half {
	char *entry, *workdir, *head;
	struct sbx_git_worktree wt; /* the branch is "" unless HEAD says it */
};

static void release_half(struct half *h)
{
	free(h->entry);
	free(h->workdir);
	free(h->head);
}

/* False: it has nothing there. */
static bool find_half(const struct recovery *rv, const char *id, struct half *ret)
{
	const char *const prefix = "ref: refs/heads/", *const common = rv->b->common;
	_cleanup_free_ char *path = NULL;
	_cleanup_fd_ int dir = -1;

	ret->entry = sbx_local_entry_name(id);
	ret->workdir = sbx_format("%s/trees/%s", rv->b->state.path, id);
	if (!common || !ret->entry || !ret->workdir)
		return false;
	path = sbx_format("%s/worktrees/%s", common, ret->entry);
	dir = path ? sbx_dir_open(AT_FDCWD, path) : -1;
	if (dir >= 0 && sbx_file_read(dir, "HEAD", HEAD_MAX, &ret->head) == 0)
		ret->head[strcspn(ret->head, "\n")] = '\0';
	ret->wt = (struct sbx_git_worktree){.common = common,
	                                    .worktree = ret->entry,
	                                    .workdir = ret->workdir,
	                                    .base = "",
	                                    .branch = ""};
	if (ret->head && strncmp(ret->head, prefix, strlen(prefix)) == 0)
		ret->wt.branch = ret->head + strlen(prefix);
	return true;
}

/* Its branch, which begins where another ends, goes with it if that is known. */
static void drop_half(struct recovery *rv, const char *file, const char *id)
{
	_cleanup_(release_half) struct half h = {0};
	struct sbx_error err = SBX_ERROR_INIT;

	note(rv, id, "a power cut left its record empty; nothing in it had been synced");
	if (find_half(rv, id, &h)) {
		h.wt.branch_created = *h.wt.branch;
		if (sbx_git_detach(&h.wt, &err))
			note(rv, id, err.text);
	}
	if (sbx_state_erase(&rv->b->state, id, &err))
		note(rv, id, err.text);
	else
		unlinkat(rv->b->state.meta, file, 0);
}

/* The source is to be whole. Where nothing is said of the branch it is the one that a create takes.
 */
static void mend_half(struct recovery *rv, const char *id)
{
	const char *const suffix = strrchr(id, '-');
	_cleanup_free_ char *name = suffix ? strndup(id, (size_t)(suffix - id)) : NULL;
	_cleanup_free_ char *branch = name ? sbx_local_branch_for(rv->b, name) : NULL;
	_cleanup_(release_half) struct half h = {0};
	struct sbx_error err = SBX_ERROR_INIT;

	if (!find_half(rv, id, &h) || !branch)
		return;
	if (!*h.wt.branch)
		h.wt.branch = branch;
	if (!sbx_git_entry_is_blank(&h.wt))
		sbx_git_mend_entry(&h.wt);
	else if (sbx_git_detach(&h.wt, &err))
		note(rv, id, err.text);
}

static int recover_file(struct recovery *rv, const char *file, struct sbx_error *err)
{
	_cleanup_(sbx_record_release) struct sbx_record rec = {0};
	_cleanup_free_ char *id = NULL;
	int r;

	if (!has_suffix(file, ".json")) {
		unlinkat(rv->b->state.meta, file, 0);
		return 0;
	}
	id = strndup(file, strlen(file) - strlen(".json"));
	r = id ? sbx_strings_add(&rv->ids, id) : -ENOMEM;
	if (!r)
		r = sbx_record_load(rv->b->state.meta, file, &rec);
	if (r == -EINVAL && sbx_file_is_blank(rv->b->state.meta, file)) {
		if (!has_work(rv, id)) {
			drop_half(rv, file, id);
			return 0;
		}
		mend_half(rv, id);
	}
	if (r == -EINVAL || r == -EFBIG) {
		note(rv, id, "its record cannot be read; it was left alone");
		return keep_entry(rv, id);
	}
	if (r)
		return sbx_fail(err, -r, "cannot read the record of %s: %s", file, strerror(-r));
	return recover_record(rv, &rec, err);
}

static int recover_records(struct recovery *rv, struct sbx_error *err)
{
	struct sbx_strings files = {0};
	int r = sbx_dir_names(rv->b->state.meta, &files);

	if (r)
		sbx_fail(err, -r, "cannot read the state directory: %s", strerror(-r));
	for (size_t i = 0; i < files.n && !r; i++)
		r = recover_file(rv, files.items[i], err);
	sbx_strings_release(&files);
	return r;
}

static void break_locks_of(struct recovery *rv, const char *file)
{
	_cleanup_(sbx_record_release) struct sbx_record rec = {0};
	_cleanup_free_ char *workdir = NULL;
	struct sbx_git_worktree wt;

	if (!has_suffix(file, ".json") || sbx_record_load(rv->b->state.meta, file, &rec) ||
	    !sbx_local_worktree(rv->b, &rec, &workdir, &wt))
		return;
	sbx_git_break_own_locks(&wt, &rv->b->state.since);
	if (!contains(&rv->commons, rec.common))
		sbx_strings_add(&rv->commons, rec.common);
}

/* Before anything else, as all that follows may need what is locked. */
static void break_locks(struct recovery *rv)
{
	_cleanup_free_ char *own = sbx_format("%s/" SBX_TRASHED, rv->b->state.path);
	struct sbx_strings files = {0};

	if (sbx_dir_names(rv->b->state.meta, &files) == 0)
		for (size_t i = 0; i < files.n; i++)
			break_locks_of(rv, files.items[i]);
	sbx_strings_release(&files);
	if (rv->b->common && !contains(&rv->commons, rv->b->common))
		sbx_strings_add(&rv->commons, rv->b->common);
	for (size_t i = 0; i < rv->commons.n; i++)
		sbx_git_break_locks(rv->commons.items[i], &rv->b->state.since);
	if (own)
		sbx_git_break_locks(own, &rv->b->state.since);
}

static void sweep_room(struct recovery *rv, int room)
{
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_strings found = {0};

	if (sbx_dir_names(room, &found) == 0)
		for (size_t i = 0; i < found.n; i++) {
			if (contains(&rv->ids, found.items[i]))
				continue;
			note(rv, found.items[i], "leftovers without a record were removed");
			if (sbx_tree_remove(room, found.items[i], &err))
				note(rv, found.items[i], err.text);
		}
	sbx_strings_release(&found);
}

static bool is_known(const char *worktree, void *data)
{
	struct recovery *rv = data;

	return contains(&rv->worktrees, worktree);
}

static void sweep_repositories(struct recovery *rv)
{
	_cleanup_free_ char *trees = sbx_format("%s/trees", rv->b->state.path);
	struct sbx_error err = SBX_ERROR_INIT;

	if (rv->b->common && !contains(&rv->commons, rv->b->common) &&
	    sbx_strings_add(&rv->commons, rv->b->common))
		return;
	for (size_t i = 0; trees && i < rv->commons.n; i++)
		if (sbx_git_sweep(rv->commons.items[i], trees, is_known, rv, &err))
			note(rv, rv->commons.items[i], err.text);
}

static void tell_expired(const char *name, void *data)
{
	note(data, name, "it was in the trash for as long as trash= says, and was dropped");
}

int sbx_local_recover(struct sbx_backend *base, const struct sbx_recover *r, struct sbx_error *err)
{
	struct recovery rv = {.b = (struct sbx_local *)base, .r = r};
	int result;

	rv.b->clean = sbx_state_take_clean(&rv.b->state);
	if (!rv.b->clean)
		break_locks(&rv);
	result = recover_records(&rv, err);
	rv.b->recovered = !result;

	if (!result) {
		sweep_room(&rv, rv.b->state.trees);
		sweep_room(&rv, rv.b->state.trash);
		sweep_room(&rv, rv.b->state.home);
		sweep_room(&rv, rv.b->state.git);
		sweep_room(&rv, rv.b->state.nested);
		sweep_room(&rv, rv.b->state.kept);
		sweep_repositories(&rv);
		sbx_local_trash_expire(rv.b, tell_expired, &rv);
		if (rv.b->host->settings->trash_days)
			result = sbx_local_removed_watch(rv.b, err);
		if (!result)
			result = sbx_local_syncer_start(rv.b, err);
		sbx_local_overlay_prepare(rv.b);
	}
	sbx_strings_release(&rv.ids);
	sbx_strings_release(&rv.worktrees);
	sbx_strings_release(&rv.commons);
	return result;
}
