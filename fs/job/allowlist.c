/*
 * The allowlist. Each entry is resolved once, when the table is made, to the file it then meant; what
 * a client asks for must be that file, by device and inode, and is executed by the path found then, so
 * neither PATH nor a link decides what runs. The name must match as well: one binary
 * often serves many commands (busybox) and chooses by the name it is called by.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/job/job_table.h"
#include "sandboxfs/cleanup.h"

struct entry {
	char *name; /* as it is called */
	char *file; /* canonical absolute path */
	dev_t dev;
	ino_t ino;
};

struct sbx_allow {
	size_t n;
	const char *mountpoint;
	struct entry entry[];
};

static const char *last_part(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* The daemon must not look for a program through its own mount: it would wait for itself. */
static bool is_below(const char *path, const char *dir)
{
	size_t n = dir ? strlen(dir) : 0;

	return n > 1 && strncmp(path, dir, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

static bool is_program(const char *path, struct stat *st)
{
	return stat(path, st) == 0 && S_ISREG(st->st_mode) && access(path, X_OK) == 0;
}

/* Finds WORD as execvp would, but only in absolute directories outside of the mount. */
static bool find_program(const char *word, const char *path, const char *mountpoint,
                         char file[PATH_MAX], struct stat *st)
{
	if (word[0] == '/')
		return snprintf(file, PATH_MAX, "%s", word) < PATH_MAX &&
		       !is_below(word, mountpoint) && is_program(word, st);
	if (strchr(word, '/'))
		return false;
	while (path && *path) {
		size_t n = strcspn(path, ":");
		int len = snprintf(file, PATH_MAX, "%.*s/%s", (int)n, path, word);

		if (*path == '/' && len < PATH_MAX && !is_below(file, mountpoint) &&
		    is_program(file, st))
			return true;
		path += n + (path[n] == ':');
	}
	return false;
}

static int resolve(const struct sbx_settings *settings, const char *word, struct entry *ret)
{
	char file[PATH_MAX];
	struct stat st;

	if (!find_program(word, settings->path, settings->mountpoint, file, &st))
		return 0;
	*ret = (struct entry){.dev = st.st_dev, .ino = st.st_ino};
	ret->name = strdup(last_part(word));
	ret->file = realpath(file, NULL);
	if (ret->name && ret->file)
		return 1;
	free(ret->name);
	free(ret->file);
	return errno == ENOMEM ? -ENOMEM : 0;
}

int sbx_allow_create(const struct sbx_settings *settings, struct sbx_allow **ret)
{
	const struct sbx_strings *words = &settings->allow;
	struct sbx_allow *allow;

	if (!words->n) {
		*ret = NULL;
		return 0;
	}
	allow = calloc(1, sizeof(*allow) + words->n * sizeof(struct entry));
	if (!allow)
		return -ENOMEM;
	allow->mountpoint = settings->mountpoint;
	for (size_t i = 0; i < words->n; i++) {
		int r = resolve(settings, words->items[i], &allow->entry[allow->n]);

		if (r < 0) {
			sbx_allow_destroy(allow);
			return r;
		}
		allow->n += (size_t)r;
	}
	*ret = allow;
	return 0;
}

void sbx_allow_destroy(struct sbx_allow *allow)
{
	if (!allow)
		return;
	for (size_t i = 0; i < allow->n; i++) {
		free(allow->entry[i].name);
		free(allow->entry[i].file);
	}
	free(allow);
}

int sbx_allow_check(const struct sbx_allow *allow, const char *word, const char *path,
                    const char **ret, struct sbx_error *err)
{
	char file[PATH_MAX];
	struct stat st;

	if (find_program(word, path, allow->mountpoint, file, &st))
		for (size_t i = 0; i < allow->n; i++) {
			const struct entry *e = &allow->entry[i];

			if (e->dev == st.st_dev && e->ino == st.st_ino &&
			    strcmp(e->name, last_part(word)) == 0) {
				*ret = e->file;
				return 0;
			}
		}
	return sbx_fail(err, EPERM, "\"%s\" is not in the allowlist", word);
}
