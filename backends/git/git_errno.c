/*
 * libgit2 answers with a code and, for the general one, with the class of the error; the errno
 * of a failed system call survives only as the end of the message.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "backends/git/git_impl.h"

#define ANY        (-1)
#define LAST_ERRNO EHWPOISON

static const struct {
	int code;
	int klass;
	int err;
} rows[] = {
        {GIT_ENOTFOUND, ANY, ENOENT},
        {GIT_EEXISTS, ANY, EEXIST},
        {GIT_EAMBIGUOUS, ANY, EINVAL},
        {GIT_EBUFS, ANY, ENOBUFS},
        {GIT_EUSER, ANY, EINTR},
        {GIT_EBAREREPO, ANY, EINVAL},
        {GIT_EUNBORNBRANCH, ANY, EINVAL},
        {GIT_EUNMERGED, ANY, EBUSY},
        {GIT_ENONFASTFORWARD, ANY, EEXIST},
        {GIT_EINVALIDSPEC, ANY, EINVAL},
        {GIT_ECONFLICT, ANY, EEXIST},
        {GIT_ELOCKED, ANY, EBUSY},
        {GIT_EMODIFIED, ANY, EAGAIN},
        {GIT_EAUTH, ANY, EKEYREJECTED},
        {GIT_ECERTIFICATE, ANY, EKEYREJECTED},
        {GIT_EPEEL, ANY, EINVAL},
        {GIT_EEOF, ANY, EBADMSG},
        {GIT_EINVALID, ANY, EINVAL},
        {GIT_EUNCOMMITTED, ANY, EBUSY},
        {GIT_EDIRECTORY, ANY, EISDIR},
        {GIT_EMERGECONFLICT, ANY, EEXIST},
        {GIT_EMISMATCH, ANY, EBADMSG},
        {GIT_EINDEXDIRTY, ANY, EBUSY},
        {GIT_EOWNER, ANY, EACCES},
        {GIT_ERROR, GIT_ERROR_NOMEMORY, ENOMEM},
        {GIT_ERROR, GIT_ERROR_INVALID, EINVAL},
        {GIT_ERROR, GIT_ERROR_REFERENCE, EINVAL},
        {GIT_ERROR, GIT_ERROR_REPOSITORY, EINVAL},
        {GIT_ERROR, GIT_ERROR_CONFIG, EINVAL},
        {GIT_ERROR, GIT_ERROR_ZLIB, EBADMSG},
        {GIT_ERROR, GIT_ERROR_ODB, EBADMSG},
        {GIT_ERROR, GIT_ERROR_INDEX, EBADMSG},
        {GIT_ERROR, GIT_ERROR_OBJECT, EBADMSG},
        {GIT_ERROR, GIT_ERROR_TREE, EBADMSG},
        {GIT_ERROR, GIT_ERROR_CHECKOUT, EEXIST},
        {GIT_ERROR, GIT_ERROR_SSL, ECONNREFUSED},
        {GIT_ERROR, GIT_ERROR_NET, ECONNREFUSED},
        {GIT_ERROR, GIT_ERROR_HTTP, EREMOTEIO},
        {GIT_ERROR, GIT_ERROR_SSH, EREMOTEIO},
};

static int from_message(const char *message)
{
	size_t len = strlen(message);

	for (int e = 1; e <= LAST_ERRNO; e++) {
		char buf[128];
		const char *text = strerror_r(e, buf, sizeof(buf));
		size_t n = strlen(text);

		if (n <= len && strcmp(message + len - n, text) == 0)
			return e;
	}
	return 0;
}

int sbx_git_errno(int code, int klass, const char *message)
{
	int e = message && (klass == GIT_ERROR_OS || code == GIT_ERROR) ? from_message(message) : 0;

	if (e)
		return e;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(rows); i++)
		if (rows[i].code == code && (rows[i].klass == ANY || rows[i].klass == klass))
			return rows[i].err;
	/*
	 * EIO is for a system call that failed and does not say how, not for what libgit2 refuses.
	 */
	return klass == GIT_ERROR_OS ? EIO : EINVAL;
}

bool sbx_git_lacks_descriptors(void)
{
	int fds[8], n = 0;
	bool out = false;

	for (; n < 8 && !out; n += !out) {
		fds[n] = open("/", O_PATH | O_CLOEXEC);
		out = fds[n] < 0;
	}
	while (n)
		close(fds[--n]);
	return out;
}

int sbx_git_fail(struct sbx_error *err, int code, const char *fmt, ...)
{
	const git_error *last = sbx_git_said();
	int e = last                ? sbx_git_errno(code, last->klass, last->message)
	        : code == GIT_ERROR ? ENOMEM
	                            : sbx_git_errno(code, GIT_ERROR_NONE, NULL);
	char text[512], buf[128];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (e != EMFILE && e != ENOSPC && sbx_git_lacks_descriptors())
		return sbx_fail(err, EMFILE, "%s: too many open files", text);
	return sbx_fail(err, e, "%s: %s", text,
	                last ? last->message : strerror_r(e, buf, sizeof(buf)));
}
