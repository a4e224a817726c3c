/*
 * Opening and closing the local backend. The kind of source is decided here, once, so that an
 * unusable source is refused at the mount and not at the first mkdir.
 */
#include "backends/local/local.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/git/spare.h"
#include "backends/local/create.h"
#include "backends/local/overlay/overlay.h"
#include "backends/local/programs.h"
#include "backends/local/syncer.h"
#include "backends/local/trash/removal_log.h"
#include "backends/local/trash/removed.h"
#include "backends/local/trash/save.h"
#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/state.h"

static void destroy(struct sbx_backend *base)
{
	struct sbx_local *b = (struct sbx_local *)base;

	if (b->recovered)
		sbx_state_set_clean(&b->state);
	sbx_local_removed_unwatch(b->removed);
	sbx_local_syncer_stop(b->syncer);
	sbx_git_spares_free(b->spares);
	sbx_programs_free(b->programs);
	sbx_removal_free(b->kept);
	sbx_overlay_close(b->overlay);
	sbx_git_shutdown();
	sbx_state_close(&b->state);
	pthread_rwlock_destroy(&b->removing);
	free(b->flat);
	free(b->fleeting);
	free(b->common);
	free(b->surrounding);
	free(b);
}

static const struct sbx_backend_impl impl = {
        .name = "local",
        .recover = sbx_local_recover,
        .create = sbx_local_create,
        .trash = sbx_local_trash_list,
        .destroy = destroy,
};

/* Below the mountpoint a path leads to this very daemon, which would wait for itself. */
static int check_paths(const struct sbx_settings *s, struct sbx_error *err)
{
	if (!s->state_dir)
		return sbx_fail(err, EINVAL, "no state directory was given");
	if (!s->mountpoint)
		return 0;
	if (s->source_abs && sbx_path_within(s->source_abs, s->mountpoint))
		return sbx_fail(err, EINVAL, "the source %s lies below the mountpoint",
		                s->source_abs);
	if (sbx_path_within(s->state_dir, s->mountpoint))
		return sbx_fail(err, EINVAL, "the state directory %s lies below the mountpoint",
		                s->state_dir);
	return 0;
}

static int find_kind(struct sbx_local *b, struct sbx_error *err)
{
	const struct sbx_settings *s = b->host->settings;
	struct stat st;
	int r;

	if (!s->source_abs && s->source && strcmp(s->source, "none") != 0)
		return sbx_fail(err, EINVAL, "the local backend needs a path as its source, not %s",
		                s->source);
	if (!s->source_abs)
		return 0;
	if (stat(s->source_abs, &st) < 0)
		return sbx_fail(err, errno, "source %s: %s", s->source_abs, strerror(errno));
	if (!S_ISDIR(st.st_mode))
		return sbx_fail(err, ENOTDIR, "the source %s is not a directory", s->source_abs);
	r = sbx_git_probe(s->source_abs, s->base, &b->common, err);
	if (r < 0)
		return r;
	b->kind = r ? SBX_LOCAL_GIT : SBX_LOCAL_DIR;
	if (!r)
		sbx_git_surrounded(s->source_abs, &b->surrounding);
	return 0;
}

/* A base that nothing will ever look at is a mistake somebody should hear of. */
static int check_base(struct sbx_local *b, struct sbx_error *err)
{
	if (b->host->settings->base && b->kind != SBX_LOCAL_GIT)
		return sbx_fail(err, EINVAL, "base needs a git repository as the source");
	return b->kind == SBX_LOCAL_GIT ? sbx_local_check_pattern(b, err) : 0;
}

/*
 * Whether trees can be layered is found by trying. Where cow=auto a machine that cannot has full
 * copies.
 */
static int open_overlay(struct sbx_local *b, struct sbx_error *err)
{
	const struct sbx_settings *s = b->host->settings;
	struct sbx_error why = SBX_ERROR_INIT;
	int r;

	if (s->cow && strcmp(s->cow, "off") == 0) {
		b->flat = strdup("cow=off");
		return b->flat ? 0 : sbx_no_memory(err);
	}
	r = sbx_overlay_open(b->host, &b->state, &b->overlay, &why);
	if (!r)
		return 0;
	if (s->cow && strcmp(s->cow, "require") == 0)
		return sbx_fail(err, -r, "cow=require cannot be met: %s", why.text);
	b->flat = strdup(why.text);
	return b->flat ? 0 : sbx_no_memory(err);
}

/* No sandbox could be made. */
static int check_disk(const struct sbx_local *b, struct sbx_error *err)
{
	if (!b->host->settings->limits.disk_mb || (b->kind != SBX_LOCAL_NONE && !b->flat))
		return 0;
	return sbx_fail(err, EOPNOTSUPP, "disk_mb cannot be kept here: trees are no overlays (%s)",
	                b->kind == SBX_LOCAL_NONE ? "the source is none" : b->flat);
}

/* Whoever looks at a sandbox is told where it is kept, and that it may be gone tomorrow. */
static int note_fleeting(struct sbx_local *b, struct sbx_error *err)
{
	const char *why = sbx_state_fleeting(b->state.path);

	if (!why)
		return 0;
	b->fleeting = sbx_format("%s; -o state_dir=persistent outlives that", why);
	return b->fleeting ? 0 : sbx_no_memory(err);
}

static int open_kept(struct sbx_local *b, struct sbx_error *err)
{
	int r = sbx_removal_new(&b->kept);

	return r ? sbx_fail(err, -r, "cannot start a thread: %s", strerror(-r)) : 0;
}

int sbx_local_open(const struct sbx_host *host, struct sbx_backend **ret, struct sbx_error *err)
{
	struct sbx_local *b;
	int r = check_paths(host->settings, err);

	if (r)
		return r;
	b = calloc(1, sizeof(*b));
	if (!b)
		return sbx_no_memory(err);
	b->base.impl = &impl;
	b->host = host;
	b->state = SBX_STATE_CLOSED;
	pthread_rwlock_init(&b->removing, NULL);
	r = sbx_git_init();
	if (r) {
		pthread_rwlock_destroy(&b->removing);
		free(b);
		return sbx_fail(err, -r, "cannot start libgit2");
	}
	r = find_kind(b, err);
	if (!r)
		r = check_base(b, err);
	if (!r)
		r = sbx_state_open(host->settings->state_dir, &b->state, err);
	if (!r)
		r = sbx_state_sign(&b->state, host->settings->source_abs,
		                   host->settings->mountpoint, err);
	if (!r)
		r = note_fleeting(b, err);
	if (!r)
		r = open_overlay(b, err);
	if (!r)
		r = check_disk(b, err);
	if (!r && host->settings->trash_days)
		r = open_kept(b, err);
	if (!r)
		r = sbx_programs_new(b, &b->programs);
	if (r) {
		destroy(&b->base);
		return r;
	}
	*ret = &b->base;
	return 0;
}
