/* The way from a caller to a sandbox's history: what is asked is checked here, once for all
 * backends. */
#include "sandboxfs/history.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#define MARK "mark:"

static int absent(const char *what, struct sbx_error *err)
{
	return sbx_fail(err, EOPNOTSUPP, "%s is not available with this backend", what);
}

static bool is_mark(const char *name)
{
	size_t n =
	        strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-");

	return n > 0 && !name[n] && name[0] != '.' && name[0] != '-' && !strstr(name, "..") &&
	       n < SBX_REV_MAX - strlen(MARK);
}

int sbx_rev_check(const char *rev, struct sbx_error *err)
{
	size_t n = strspn(rev, "0123456789abcdef");

	if (strcmp(rev, "base") == 0 || (n >= 4 && n <= 64 && !rev[n]))
		return 0;
	if (strncmp(rev, MARK, strlen(MARK)) == 0 && is_mark(rev + strlen(MARK)))
		return 0;
	if (!*rev)
		return sbx_fail(err, EINVAL, "the id of a snapshot is missing");
	return sbx_fail(err, EINVAL, "%.80s is no id of a snapshot", rev);
}

int sbx_history_snapshot(struct sbx_sandbox *sb, const struct sbx_snapshot_options *options,
                         char id[SBX_REV_MAX], struct sbx_error *err)
{
	if (!sbx_has_history(sb))
		return absent("snapshot", err);
	if (options->mark && !is_mark(options->mark))
		return sbx_fail(err, EINVAL, "%.80s is no name of a mark", options->mark);
	return sb->impl->history->snapshot(sb, options, id, err);
}

int sbx_history_forget(struct sbx_sandbox *sb, const char *name, struct sbx_error *err)
{
	if (!sbx_has_history(sb))
		return absent("snapshot", err);
	if (!is_mark(name))
		return sbx_fail(err, EINVAL, "%.80s is no name of a mark", name);
	return sb->impl->history->forget(sb, name, err);
}

int sbx_history_list(struct sbx_sandbox *sb, int (*fn)(const struct sbx_snapshot *s, void *data),
                     void *data, struct sbx_error *err)
{
	return sbx_has_history(sb) ? sb->impl->history->list(sb, fn, data, err)
	                           : absent("snapshot", err);
}

int sbx_history_restore(struct sbx_sandbox *sb, const char *rev, atomic_bool *cancelled,
                        struct sbx_error *err)
{
	int r;

	if (!sbx_has_history(sb))
		return absent("restore", err);
	r = sbx_rev_check(rev, err);
	return r ? r : sb->impl->history->restore(sb, rev, cancelled, err);
}

int sbx_history_diff(struct sbx_sandbox *sb, const struct sbx_diff_options *options, int fd,
                     struct sbx_error *err)
{
	int r;

	if (!sbx_has_history(sb))
		return absent("diff", err);
	r = options->from ? sbx_rev_check(options->from, err) : 0;
	if (!r && options->to)
		r = sbx_rev_check(options->to, err);
	return r ? r : sb->impl->history->diff(sb, options, fd, err);
}

int sbx_history_tree(struct sbx_sandbox *sb, const char *rev, struct sbx_object *ret,
                     struct sbx_error *err)
{
	int r;

	if (!sbx_has_history(sb))
		return absent("snapshot", err);
	r = sbx_rev_check(rev, err);
	return r ? r : sb->impl->history->tree(sb, rev, ret, err);
}
