#include "backends/git/library.h"

#include <errno.h>
#include <git2.h>

#include "backends/git/durable.h"
#include "sandboxfs/cleanup.h"

int sbx_git_library_begin(void)
{
	/* What these extensions ask for makes no difference to what is done here. */
	const char *extensions[] = {"worktreeconfig", "preciousobjects", "partialclone",
	                            "relativeworktrees"};

	if (git_libgit2_init() < 0)
		return -ENOMEM;
	sbx_git_durable_init();
	git_libgit2_opts(GIT_OPT_SET_EXTENSIONS, extensions, SBX_ARRAY_SIZE(extensions));
	return 0;
}
