/* Around each call of libgit2: see calls.h. */
#include "backends/git/calls.h"

#include <errno.h>
#include <string.h>

/* Calls of libgit2 that this thread is in: one may call back who calls another. */
static _Thread_local unsigned inside;

bool sbx_git_call_runs(void)
{
	return inside > 0;
}

void sbx_git_call_begin(void)
{
	inside++;
	git_error_clear();
	errno = 0;
}

const git_error *sbx_git_said(void)
{
	const git_error *last = git_error_last();

	return last && last->klass != GIT_ERROR_NONE && last->message ? last : NULL;
}

int sbx_git_call_end(int r)
{
	const int e = errno;
	char buf[128];

	inside--;
	if (r >= 0)
		git_error_clear();
	else if (!sbx_git_said())
		git_error_set_str(GIT_ERROR_OS, strerror_r(e ? e : EIO, buf, sizeof(buf)));
	errno = e;
	return r;
}
