/* Names of sandboxes, and what may not be one. */
#include "sandboxfs/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "sandboxfs/mitigations.h"

#define NAME_LONGEST 63

int sbx_sandbox_rename(struct sbx_sandbox *sb, const char *name, struct sbx_error *err)
{
	int r = sbx_name_check(name, err);

	if (r)
		return r;
	if (!sb->impl->rename)
		return sbx_fail(err, EOPNOTSUPP, "this backend cannot rename a sandbox");
	return sb->impl->rename(sb, name, err);
}

void sbx_sandbox_listening(struct sbx_sandbox *sb, int fd)
{
	if (sb && sb->events && sb->events->listening)
		sb->events->listening(sb, fd, sb->events_data);
	else
		close(fd);
}

void sbx_sandbox_replaced(struct sbx_sandbox *sb, int old, int new)
{
	if (sb->events && sb->events->replaced)
		sb->events->replaced(sb, old, new, sb->events_data);
}

void sbx_sandbox_altered(struct sbx_sandbox *sb)
{
	if (sb->events && sb->events->altered)
		sb->events->altered(sb, sb->events_data);
}

void sbx_sandbox_told(struct sbx_sandbox *sb, const char *event, const char *text)
{
	if (sb->events && sb->events->told)
		sb->events->told(sb, event, text, sb->events_data);
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

/* What stands at the top of the mount beside the sandboxes. */
static bool is_reserved(const char *name)
{
	return strcmp(name, "ctl") == 0 || strcmp(name, "README") == 0 ||
	       strcmp(name, "SKILL.md") == 0;
}

int sbx_name_check(const char *name, struct sbx_error *err)
{
	size_t n = strlen(name);

	if (sbx_mitigation_off("names"))
		return 0;
	if (n == 0)
		return sbx_fail(err, EINVAL, "a sandbox name cannot be empty");
	if (n > NAME_LONGEST)
		return sbx_fail(err, EINVAL, "a sandbox name has at most %d characters",
		                NAME_LONGEST);
	if (is_reserved(name))
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
