/* The way from a caller to a backend: the answer where a member is absent. */
#include "sandboxfs/backend.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "sandboxfs/walls.h"

#define NAME_LONGEST 63

int sbx_backend_recover(struct sbx_backend *b, const struct sbx_recover *r, struct sbx_error *err)
{
	return b->impl->recover(b, r, err);
}

int sbx_backend_create(struct sbx_backend *b, const struct sbx_create *req,
                       struct sbx_sandbox **ret, struct sbx_error *err)
{
	return b->impl->create(b, req, ret, err);
}

int sbx_backend_trash(struct sbx_backend *b, int (*fn)(const struct sbx_trash *t, void *data),
                      void *data, struct sbx_error *err)
{
	return b->impl->trash ? b->impl->trash(b, fn, data, err) : 0;
}

void sbx_backend_destroy(struct sbx_backend *b)
{
	if (b)
		b->impl->destroy(b);
}

int sbx_sandbox_root(struct sbx_sandbox *sb)
{
	return sb->impl->root(sb);
}

void sbx_sandbox_info(struct sbx_sandbox *sb, struct json_object *obj)
{
	if (sb->impl->info)
		sb->impl->info(sb, obj);
}

void sbx_sandbox_policy(struct sbx_sandbox *sb, struct json_object *obj)
{
	if (sb->impl->policy)
		sb->impl->policy(sb, obj);
}

int sbx_sandbox_rename(struct sbx_sandbox *sb, const char *name, struct sbx_error *err)
{
	int r = sbx_name_check(name, err);

	if (r)
		return r;
	if (!sb->impl->rename)
		return sbx_fail(err, EOPNOTSUPP, "this backend cannot rename a sandbox");
	return sb->impl->rename(sb, name, err);
}

int sbx_sandbox_retire(struct sbx_sandbox *sb, struct sbx_error *err)
{
	return sb->impl->retire(sb, err);
}

int sbx_sandbox_remove(struct sbx_sandbox *sb, struct sbx_error *err)
{
	return sb->impl->remove(sb, err);
}

void sbx_sandbox_hurry(struct sbx_sandbox *sb, unsigned ms)
{
	if (sb->impl->hurry)
		sb->impl->hurry(sb, ms);
}

void sbx_sandbox_discard(struct sbx_sandbox *sb)
{
	if (sb->impl->discard)
		sb->impl->discard(sb);
}

void sbx_sandbox_close(struct sbx_sandbox *sb)
{
	if (sb)
		sb->impl->close(sb);
}

int sbx_sandbox_exec(struct sbx_sandbox *sb, const struct sbx_exec *spec,
                     const struct sbx_exec_events *events, void *data, struct sbx_job **ret,
                     struct sbx_error *err)
{
	if (!sb->impl->exec)
		return sbx_fail(err, EOPNOTSUPP, "this backend cannot run commands");
	return sb->impl->exec(sb, spec, events, data, ret, err);
}

int sbx_sandbox_resize(struct sbx_sandbox *sb, uint64_t mb, struct sbx_error *err)
{
	if (!sb->impl->resize)
		return sbx_fail(err, EOPNOTSUPP, "this backend has no limit of disk_mb");
	return sb->impl->resize(sb, mb, err);
}

bool sbx_sandbox_stale(struct sbx_sandbox *sb)
{
	return sb->impl->stale && sb->impl->stale(sb);
}

int sbx_sandbox_sync(struct sbx_sandbox *sb, struct sbx_error *err)
{
	return sb->impl->sync ? sb->impl->sync(sb, err) : 0;
}

const char *sbx_sandbox_gitfile(struct sbx_sandbox *sb)
{
	return sb->impl->gitfile ? sb->impl->gitfile(sb) : NULL;
}

int sbx_sandbox_guard(struct sbx_sandbox *sb, struct sbx_error *err)
{
	return sb->impl->guard ? sb->impl->guard(sb, err) : 0;
}

void sbx_sandbox_changing(struct sbx_sandbox *sb, int dirfd, const char *name)
{
	if (sb->impl->changing)
		sb->impl->changing(sb, dirfd, name);
}

bool sbx_sandbox_make_room(struct sbx_sandbox *sb)
{
	return sb->impl->make_room && sb->impl->make_room(sb);
}

int sbx_sandbox_nested(struct sbx_sandbox *sb, bool make)
{
	return sb->impl->nested ? sb->impl->nested(sb, make) : -EOPNOTSUPP;
}

bool sbx_sandbox_needs_barrier(const struct sbx_sandbox *sb)
{
	return sb->impl->barrier && (sb->unsaved || !atomic_load(&sb->anchored));
}

int sbx_sandbox_barrier(struct sbx_sandbox *sb, bool now, struct sbx_error *err)
{
	return sb->impl->barrier ? sb->impl->barrier(sb, now, err) : 0;
}

void sbx_job_signal(struct sbx_job *job, int sig)
{
	job->impl->signal(job, sig);
}

void sbx_job_destroy(struct sbx_job *job)
{
	if (job)
		job->impl->destroy(job);
}

const char *const sbx_result_names[SBX_RESULTS] = {"stdout", "stderr", "status"};

unsigned sbx_result_names_in(int dirfd)
{
	unsigned ret = 0;

	for (unsigned i = 0; i < SBX_RESULTS && dirfd >= 0; i++)
		if (faccessat(dirfd, sbx_result_names[i], F_OK, AT_SYMLINK_NOFOLLOW) == 0)
			ret |= 1u << i;
	return ret;
}

static bool is_alnum(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

int sbx_name_check(const char *name, struct sbx_error *err)
{
	size_t n = strlen(name);

	if (sbx_without("names"))
		return 0;
	if (n == 0)
		return sbx_fail(err, EINVAL, "a sandbox name cannot be empty");
	if (n > NAME_LONGEST)
		return sbx_fail(err, EINVAL, "a sandbox name has at most %d characters",
		                NAME_LONGEST);
	if (strcmp(name, "ctl") == 0 || strcmp(name, "README") == 0)
		return sbx_fail(err, EINVAL, "the name %s is reserved", name);
	if (!is_alnum(name[0]))
		return sbx_fail(err, EINVAL, "a sandbox name begins with a letter or a digit");
	for (const char *c = name; *c; c++)
		if (!is_alnum(*c) && *c != '.' && *c != '_' && *c != '-')
			return sbx_fail(
			        err, EINVAL,
			        "a sandbox name consists of letters, digits, '.', '_' and '-'");
	return 0;
}
