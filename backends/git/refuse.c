/* Repositories that libgit2 has no use for, or that lack what is wanted of them: what their owner can do about it. */
#include <errno.h>
#include <string.h>

#include "backends/git/git_impl.h"

#define OF_SHA256                                                                                  \
	"its objects are named by SHA-256, which is not supported; convert it to SHA-1 or give a " \
	"clone that is"

/* By what libgit2 says. */
static const struct {
	const char *said, *sentence;
} advice[] = {
        {"extensions.objectformat", OF_SHA256},
        {"unknown object format", OF_SHA256}, /* since 1.7 */
        {"extensions.refstorage", "its refs are not kept in files, which is not supported; convert "
                                  "them: git refs migrate --ref-format=files"},
};

int sbx_git_refuse(const char *source, int code, struct sbx_error *err)
{
	const git_error *last = sbx_git_said();
	const char *said = last ? last->message : "";

	for (size_t i = 0; i < SBX_ARRAY_SIZE(advice); i++)
		if (strstr(said, advice[i].said))
			return sbx_fail(err, EOPNOTSUPP, "the repository %s: %s", source,
			                advice[i].sentence);
	return sbx_git_fail(err, code, "cannot open the repository %s", source);
}

static bool is_promisor(const char *name)
{
	size_t len = strlen(name), n = strlen(".promisor");

	if (strcmp(name, "extensions.partialclone") == 0)
		return true;
	return strncmp(name, "remote.", 7) == 0 && len > n &&
	       strcmp(name + len - n, ".promisor") == 0;
}

/* Some remote has what is not here, and git fetches it at need. libgit2's own search by a pattern leaks memory. */
static bool is_partial(const char *source)
{
	_cleanup_git_(repository) git_repository *repo = NULL;
	git_config *config = NULL;
	git_config_iterator *it = NULL;
	git_config_entry *entry;
	bool partial = false;

	if (sbx_git_open(source, &repo) == 0 && git_repository_config(&config, repo) == 0 &&
	    git_config_iterator_new(&it, config) == 0)
		while (!partial && git_config_next(&entry, it) == 0)
			partial = is_promisor(entry->name);
	git_config_iterator_free(it);
	git_config_free(config);
	return partial;
}

int sbx_git_explain_missing(const char *source, const char *commit, int r, struct sbx_error *err)
{
	if ((r != -ENOENT && r != -EBADMSG && r != -EIO) || !is_partial(source))
		return r;
	return sbx_fail(
	        err, ENOENT,
	        "the source is a partial clone and lacks objects of %.12s; fetch them by "
	        "checking it out there once (git checkout %.12s), or clone without --filter",
	        commit, commit);
}
