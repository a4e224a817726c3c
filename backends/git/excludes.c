/*
 * The ignore rules that hold everywhere in a repository, as one text. A later line outranks an
 * earlier one, so the user's rules come first.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "backends/git/git_impl.h"
#include "backends/support/fsutil.h"

#define EXCLUDES_MAX ((size_t)1 << 20)

/* PATH is one that the user or git has chosen: links are followed. "" where there is no file. */
static char *read_text(const char *path)
{
	_cleanup_free_ char *real = path && *path ? realpath(path, NULL) : NULL, *text = NULL;

	if (real && sbx_file_read(AT_FDCWD, real, EXCLUDES_MAX, &text) == 0)
		return sbx_steal_ptr(&text);
	return strdup("");
}

static char *user_text(git_repository *repo)
{
	const char *xdg = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
	_cleanup_free_ char *usual =
	        xdg && *xdg ? sbx_format("%s/git/ignore", xdg)
	                    : sbx_format("%s/.config/git/ignore", home ? home : "");
	git_config *config = NULL, *snapshot = NULL;
	git_buf path = {0};
	char *text;

	if (git_repository_config(&config, repo) < 0 ||
	    git_config_snapshot(&snapshot, config) < 0 ||
	    git_config_get_path(&path, snapshot, "core.excludesfile") < 0)
		text = read_text(usual);
	else
		text = read_text(path.ptr);
	git_buf_dispose(&path);
	git_config_free(snapshot);
	git_config_free(config);
	return text;
}

char *sbx_git_excludes(const char *source)
{
	_cleanup_git_(repository) git_repository *repo = NULL;
	_cleanup_free_ char *path = NULL, *user = NULL, *own = NULL;

	if (sbx_git_open(source, &repo) < 0)
		return strdup("");
	path = sbx_format("%sinfo/exclude", git_repository_commondir(repo));
	user = user_text(repo);
	own = read_text(path);
	return path && user && own ? sbx_format("%s\n%s", user, own) : NULL;
}
