#include "backends/git/bare_config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/git/config.h"
#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/mitigations.h"
#include "sandboxfs/scrub.h"

#define CONFIG_MAX ((size_t)1 << 20)

/* Not http, credential, url, include, alias, sendemail and what other programs keep in it. */
static const char *const sections[] = {
        "apply",      "branch",    "checkout", "color", "commit", "core",    "diff",
        "extensions", "fetch",     "format",   "gc",    "i18n",   "index",   "init",
        "log",        "merge",     "pack",     "pull",  "push",   "rerere",  "remote",
        "status",     "submodule", "tag",      "user",  "rebase", "feature", "status",
};

/* A program, whose words may be secrets, or a proxy, which may have a password. */
static const char *const left_out[] = {
        "core.askpass",   "core.sshcommand", "core.gitproxy", "core.alternaterefscommand",
        "core.fsmonitor", "core.editor",     "core.pager",    "user.signingkey",
};

static bool is_one_of(const char *word, size_t n, const char *const *list, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (strlen(list[i]) == n && memcmp(list[i], word, n) == 0)
			return true;
	return false;
}

static bool is_shown(const char *key)
{
	const char *name = strrchr(key, '.');

	return is_one_of(key, strcspn(key, "."), sections, SBX_ARRAY_SIZE(sections)) &&
	       !is_one_of(key, strlen(key), left_out, SBX_ARRAY_SIZE(left_out)) &&
	       strncmp(name, ".proxy", 6) != 0;
}

static void put_quoted(FILE *f, const char *text, size_t n)
{
	putc('"', f);
	for (size_t i = 0; i < n; i++) {
		if (text[i] == '"' || text[i] == '\\')
			putc('\\', f);
		if (text[i] == '\n')
			fputs("\\n", f);
		else
			putc(text[i], f);
	}
	putc('"', f);
}

static void put_section(FILE *f, const char *key, const char *name)
{
	const char *sub = strchr(key, '.');

	fprintf(f, "[%.*s", (int)(sub - key), key);
	if (sub != name) {
		putc(' ', f);
		put_quoted(f, sub + 1, (size_t)(name - sub - 1));
	}
	fputs("]\n", f);
}

static int put(const char *key, const char *value, void *data)
{
	FILE *f = data;
	_cleanup_free_ char *plain = value ? strdup(value) : NULL, *place = NULL;
	const char *name;

	if (!is_shown(key))
		return 0;
	place = strdup(key);
	if (!place || (value && !plain))
		return -ENOMEM;
	sbx_scrub(place, NULL);
	name = strrchr(place, '.');
	if (!name || !strchr(place, '.'))
		return 0;
	put_section(f, place, name);
	fprintf(f, "\t%s", name + 1);
	if (plain) {
		sbx_scrub(plain, NULL);
		fputs(" = ", f);
		put_quoted(f, plain, strlen(plain));
	}
	putc('\n', f);
	return 0;
}

int sbx_git_bare_config(const char *text, char **ret)
{
	char *out = NULL;
	size_t len;
	FILE *f = open_memstream(&out, &len);
	int r = f ? sbx_git_config_parse(text, put, f) : -ENOMEM;

	if (f && fclose(f) && !r)
		r = -ENOMEM;
	if (!r) {
		*ret = out;
		return 0;
	}
	free(out);
	if (r == -ENOMEM)
		return r;
	*ret = strdup("");
	return *ret ? 0 : -ENOMEM;
}

/* A repository has HEAD beside it; what a worktree has of its own too. */
int sbx_git_bare_copy(int dir, const char *name, int in, char **ret)
{
	_cleanup_free_ char *text = NULL;
	ssize_t n;

	if ((strcmp(name, "config") != 0 && strcmp(name, "config.worktree") != 0) ||
	    faccessat(dir, "HEAD", F_OK, AT_SYMLINK_NOFOLLOW) < 0 ||
	    sbx_mitigation_off("bare_config"))
		return 0;
	text = calloc(1, CONFIG_MAX + 1);
	n = text ? pread(in, text, CONFIG_MAX, 0) : -1;
	if (n < 0)
		return text ? -errno : -ENOMEM;
	return sbx_git_bare_config(n < (ssize_t)CONFIG_MAX ? text : "", ret) ? -ENOMEM : 1;
}
