#include "fs/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sandboxfs/walls.h"

static unsigned depth_of(const char *dir)
{
	unsigned depth = *dir ? 1 : 0;

	for (; *dir; dir++)
		depth += *dir == '/';
	return depth;
}

bool sbx_confine_climbs(const char *target, unsigned depth)
{
	bool named = false;

	while (*target) {
		size_t len = strcspn(target, "/");

		if (len == 2 && !memcmp(target, "..", 2)) {
			if (named || depth == 0)
				return false;
			depth--;
		} else if (len > 1 || (len == 1 && *target != '.')) {
			named = true;
		}
		target += len + strspn(target + len, "/");
	}
	return true;
}

/* The part of the absolute TARGET below VIEW, or NULL. */
static const char *below_view(const char *target, const char *view)
{
	size_t len = strlen(view);

	if (strncmp(target, view, len) != 0 || (target[len] != '/' && target[len] != '\0'))
		return NULL;
	target += len;
	return target + strspn(target, "/");
}

/* Whether the kernel gets from ROOT_FD along PATH without leaving it, as far as PATH exists. */
static bool resolves_beneath(int root_fd, const char *path)
{
	struct open_how how = {
	        .flags = O_PATH | O_CLOEXEC,
	        .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS,
	};
	int fd = -1;

	/* EAGAIN: a rename or mount somewhere made the answer uncertain. */
	for (int i = 0; i < 100; i++) {
		fd = (int)syscall(SYS_openat2, root_fd, *path ? path : ".", &how, sizeof(how));
		if (fd >= 0 || errno != EAGAIN)
			break;
	}
	if (fd >= 0) {
		close(fd);
		return true;
	}
	return errno != EXDEV && errno != EAGAIN;
}

int sbx_confine_link(int root_fd, const char *dir, const char *target, const char *view,
                     struct sbx_error *err)
{
	char path[PATH_MAX];
	const char *rest = target;
	unsigned depth = depth_of(dir);
	int n;

	if (sbx_without("links"))
		return 0;
	if (*target == '/') {
		rest = below_view(target, view);
		dir = "";
		depth = 0;
	}
	if (!rest || !sbx_confine_climbs(rest, depth))
		return sbx_fail(err, EACCES, "a link to %s would lead out of the sandbox", target);
	n = snprintf(path, sizeof(path), "%s%s%s", dir, *dir && *rest ? "/" : "", rest);
	if (n < 0 || (size_t)n >= sizeof(path))
		return sbx_fail(err, ENAMETOOLONG, "the path of the link's target is too long");
	if (!resolves_beneath(root_fd, path))
		return sbx_fail(err, EACCES, "a link to %s would lead out of the sandbox", target);
	return 0;
}
