/*
 * The user that commands run as. A user who is named wins; one that is found must still not be
 * root.
 */
#include "sandboxfs/identity.h"

#include <errno.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NOBODY 65534

/* A decimal number up to END; false when there is none. 2^32-1 means "no change" to the kernel. */
static bool read_id(const char *text, char end, unsigned *ret)
{
	char *rest;
	unsigned long long value;

	if (!text || *text < '0' || *text > '9')
		return false;
	errno = 0;
	value = strtoull(text, &rest, 10);
	if (errno || *rest != end || value >= UINT32_MAX)
		return false;
	*ret = (unsigned)value;
	return true;
}

static bool find_name(const char *name, struct sbx_identity *ret)
{
	struct passwd pw, *found = NULL;
	char buf[4096];

	if (getpwnam_r(name, &pw, buf, sizeof(buf), &found) != 0 || !found)
		return false;
	*ret = (struct sbx_identity){.uid = pw.pw_uid, .gid = pw.pw_gid};
	return true;
}

static bool find_uid(unsigned uid, struct sbx_identity *ret)
{
	struct passwd pw, *found = NULL;
	char buf[4096];

	getpwuid_r(uid, &pw, buf, sizeof(buf), &found);
	*ret = (struct sbx_identity){.uid = uid, .gid = found ? pw.pw_gid : uid};
	return true;
}

static bool read_word(const char *word, struct sbx_identity *ret)
{
	const char *colon = strchr(word, ':');
	unsigned uid, gid;

	if (colon && read_id(word, ':', &uid) && read_id(colon + 1, 0, &gid)) {
		*ret = (struct sbx_identity){.uid = uid, .gid = gid};
		return true;
	}
	return read_id(word, 0, &uid) ? find_uid(uid, ret) : find_name(word, ret);
}

static void find_default(struct sbx_identity *ret)
{
	unsigned uid, gid;

	if (read_id(getenv("SUDO_UID"), 0, &uid) && read_id(getenv("SUDO_GID"), 0, &gid) && uid &&
	    gid)
		*ret = (struct sbx_identity){.uid = uid, .gid = gid};
	else if (!find_name("sandboxfs", ret) || ret->uid == 0 || ret->gid == 0)
		*ret = (struct sbx_identity){.uid = NOBODY, .gid = NOBODY};
}

int sbx_identity_find(const struct sbx_settings *settings, struct sbx_identity *ret,
                      struct sbx_error *err)
{
	const bool root = geteuid() == 0;
	const bool none = settings->isolation && strcmp(settings->isolation, "none") == 0;
	struct sbx_identity own = {.uid = geteuid(), .gid = getegid()}, found = own;

	if (settings->run_as && !read_word(settings->run_as, &found))
		return sbx_fail(err, EINVAL, "run_as=%s: no such user", settings->run_as);
	if (settings->run_as && (found.uid == 0 || found.gid == 0))
		return sbx_fail(err, EINVAL, "run_as=%s: commands never run as root",
		                settings->run_as);
	if (settings->run_as && found.uid != own.uid && (!root || none))
		return sbx_fail(err, EPERM, "run_as=%s needs %s", settings->run_as,
		                root ? "isolation" : "a mount made by root");
	if (root && !none && !settings->run_as)
		find_default(&found);
	*ret = root && !none ? found : own;
	return 0;
}
