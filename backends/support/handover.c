/*
 * Sandboxes on their way from a backend to the caller. What the contract demands of the tables is
 * asserted here, once for all backends, so that wrappers need not ask for single members.
 */
#include "sandboxfs/backend.h"

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

static void check_commands(const struct sbx_command_impl *t)
{
	assert(!t || (t->exec && t->signal && !t->stale == !t->sync));
	(void)t;
}

static void check_storage(const struct sbx_storage_impl *t)
{
	assert(!t || (t->barrier && t->resize && t->before_write && t->make_room && t->discard));
	(void)t;
}

static void check_git(const struct sbx_git_impl *t)
{
	assert(!t || (t->gitfile && t->guard && t->nested));
	(void)t;
}

static void check_history(const struct sbx_history_impl *t)
{
	assert(!t || (t->snapshot && t->forget && t->list && t->restore && t->diff && t->tree &&
	              t->entry && t->entries && t->content));
	(void)t;
}

static void check_remote(const struct sbx_remote_impl *t)
{
	assert(!t || (t->url && t->push));
	(void)t;
}

static void check_away(const struct sbx_sandbox *sb)
{
	const struct sbx_away_impl *t = sb->impl->away;

	assert(!t == !sbx_is_away(sb));
	assert(!t || (t->begin && t->rest && t->leave && t->here && t->want && t->unwant &&
	              t->admit && t->changed && t->dropped && t->flush));
	(void)t;
}

static struct sbx_sandbox *checked(struct sbx_sandbox *sb)
{
	const struct sbx_sandbox_impl *t = sb->impl;

	assert(sb->name && sb->id && sb->workdir);
	assert(t->root && t->retire && t->remove && t->close);
	check_commands(t->commands);
	check_storage(t->storage);
	check_git(t->git);
	check_history(t->history);
	check_remote(t->remote);
	check_away(sb);
	return sb;
}

static const struct sbx_recover *caller_of(void *data)
{
	return data;
}

static void found(struct sbx_sandbox *sb, void *data)
{
	caller_of(data)->found(checked(sb), caller_of(data)->data);
}

static void leaving(struct sbx_sandbox *sb, void *data)
{
	caller_of(data)->leaving(checked(sb), caller_of(data)->data);
}

static void note(const char *text, void *data)
{
	caller_of(data)->note(text, caller_of(data)->data);
}

int sbx_backend_recover(struct sbx_backend *b, const struct sbx_recover *r, struct sbx_error *err)
{
	const struct sbx_recover mine = {.found = found,
	                                 .note = r->note ? note : NULL,
	                                 .leaving = r->leaving ? leaving : NULL,
	                                 .data = (void *)(uintptr_t)r};

	return b->impl->recover(b, &mine, err);
}

int sbx_backend_create(struct sbx_backend *b, const struct sbx_create *req,
                       struct sbx_sandbox **ret, struct sbx_error *err)
{
	int r = b->impl->create(b, req, ret, err);

	if (!r)
		checked(*ret);
	return r;
}
