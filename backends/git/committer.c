/*
 * The name and address of the committer inside a sandbox. git keeps the user's in the home
 * directory of the host, and a sandbox has a home directory of its own, so they would be missing
 * there.
 */
#include <errno.h>
#include <fcntl.h>
#include <git2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/git/git_impl.h"
#include "backends/git/repository.h"
#include "sandboxfs/cleanup.h"

/* Writes KEY = "VALUE", quoted as git-config(1) wants it. */
static void put_value(FILE *f, const char *key, const char *value)
{
	fprintf(f, "\t%s = \"", key);
	for (; *value; value++) {
		if (*value == '\n')
			fputs("\\n", f);
		else if (*value == '"' || *value == '\\')
			fprintf(f, "\\%c", *value);
		else
			fputc(*value, f);
	}
	fputs("\"\n", f);
}

static int write_config(int home, const char *name, const char *email, bool others)
{
	int fd = openat(home, ".gitconfig", O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
	                0644);
	FILE *f = fd < 0 ? NULL : fdopen(fd, "w");

	if (!f) {
		if (fd >= 0)
			close(fd);
		return errno == EEXIST ? 0 : -errno;
	}
	if (others)
		fputs("[core]\n\tcheckStat = minimal\n", f);
	if (name || email)
		fputs("[user]\n", f);
	if (name)
		put_value(f, "name", name);
	if (email)
		put_value(f, "email", email);
	return fclose(f) == 0 ? 0 : -errno;
}

static int open_config(const char *source, git_repository **repo, git_config **ret)
{
	int r;

	if (!source)
		return git_config_open_default(ret);
	r = sbx_git_open(source, repo);
	return r ? r : git_repository_config(ret, *repo);
}

int sbx_git_identity(const char *source, int home, bool others)
{
	git_repository *repo = NULL;
	git_config *config = NULL, *snapshot = NULL;
	const char *name = NULL, *email = NULL;
	int r = 0;

	/* Without an identity git inside says what to do; so it is no failure here. */
	if (open_config(source, &repo, &config) == 0 &&
	    git_config_snapshot(&snapshot, config) == 0) {
		git_config_get_string(&name, snapshot, "user.name");
		git_config_get_string(&email, snapshot, "user.email");
	}
	if (name || email || others)
		r = write_config(home, name, email, others);
	git_config_free(snapshot);
	git_config_free(config);
	git_repository_free(repo);
	return r;
}
