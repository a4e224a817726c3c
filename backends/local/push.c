/* The push of a local sandbox: which branch is delivered, and from which repository. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backends/local/local_impl.h"
#include "backends/local/private_git.h"
#include "backends/push/push.h"
#include "sandboxfs/cleanup.h"

static int no_git(struct sbx_error *err)
{
	return sbx_fail(err, EOPNOTSUPP, "this sandbox is not one of a git repository");
}

static int remote_url(struct sbx_sandbox *sb, const char *name, bool written, char **ret,
                      struct sbx_error *err)
{
	struct sbx_local_sandbox *s = sbx_local_downcast(sb);

	return s->git ? sbx_git_remote_url(s->rec.common, name, written, ret, err) : no_git(err);
}

/* Brings commits of commands to the branch, because the push would deliver less otherwise. */
static int bring_over(struct sbx_local_sandbox *s, struct sbx_error *err)
{
	int r = 0;

	pthread_mutex_lock(&s->syncing);
	if (s->retired)
		r = sbx_fail(err, ESTALE, "the sandbox is gone");
	else if (sbx_git_private_made(s->git) && sbx_git_private_stale(s->git))
		sbx_local_git_sync(s, NULL);
	if (!r)
		r = sbx_git_private_apart(s->git, err);
	pthread_mutex_unlock(&s->syncing);
	return r;
}

static int push(struct sbx_sandbox *sb, const struct sbx_push_options *options,
                struct sbx_error *err)
{
	struct sbx_local_sandbox *s = sbx_local_downcast(sb);
	const struct sbx_git_push from = {
	        .common = s->rec.common,
	        .branch = s->rec.branch,
	        .mountpoint = s->backend->host->settings->mountpoint,
	        .state = s->backend->state.path,
	};
	int r = s->git ? bring_over(s, err) : no_git(err);

	return r ? r : sbx_git_push(&from, options, err);
}

const struct sbx_remote_impl sbx_local_remote = {.url = remote_url, .push = push};
