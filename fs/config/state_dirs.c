/* --list-state and --prune: the state directories of this user, where mounts put them by
 * themselves. */
#include "fs/config/state_dirs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "fs/config/paths.h"
#include "fs/config/settings.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/state.h"

/* The action on each state directory; PARENT is DIR, open. Returns the exit code. */
typedef int (*state_fn)(int parent, const char *dir, const char *name);

static void print_path(const char *path)
{
	for (; *path; path++)
		putchar((unsigned char)*path < ' ' || *path == 0x7f ? '?' : *path);
}

static bool is_gone(const char *path)
{
	return path && access(path, F_OK) < 0 && errno == ENOENT;
}

static void print_whose(const char *dir, const char *name, const struct sbx_state_info *info)
{
	print_path(dir);
	printf("/%s: ", name);
	print_path(info->source ? info->source : "no source");
	printf("%s at ", is_gone(info->source) ? " (gone)" : "");
	print_path(info->mountpoint ? info->mountpoint : "an unknown place");
	fputs(is_gone(info->mountpoint) ? " (gone)" : "", stdout);
}

static int fail(const char *dir, const char *name, const struct sbx_error *err)
{
	fprintf(stderr, "sandboxfs: %s/%s: %s\n", dir, name, err->text);
	return 1;
}

static int list(int parent, const char *dir, const char *name)
{
	_cleanup_(sbx_state_info_release) struct sbx_state_info info = {0};
	struct sbx_error err = SBX_ERROR_INIT;
	char used[32];
	struct tm tm;
	time_t at;
	int r = sbx_state_inspect(parent, name, &info, &err);

	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return fail(dir, name, &err);
	at = (time_t)(info.used_ms / 1000);
	strftime(used, sizeof(used), "%F %R", localtime_r(&at, &tm));
	print_whose(dir, name, &info);
	if (info.busy && info.pid)
		printf("; mounted (process %d)", (int)info.pid);
	else
		fputs(info.busy ? "; mounted" : "; not mounted", stdout);
	printf("; %zu sandbox%s%s%s%s", info.sandboxes, info.sandboxes == 1 ? "" : "es",
	       info.names ? " (" : "", info.names ? info.names : "", info.names ? ")" : "");
	if (info.removed)
		printf("; files of %zu removed", info.removed);
	printf("; used %s\n", used);
	return 0;
}

static int prune(int parent, const char *dir, const char *name)
{
	_cleanup_(sbx_state_info_release) struct sbx_state_info info = {0};
	struct sbx_error err = SBX_ERROR_INIT;
	int r = sbx_state_inspect(parent, name, &info, &err);

	if (r == -ENOENT)
		return 0;
	if (!r)
		r = sbx_state_prune(parent, name, &err);
	if (r && r != -EBUSY && r != -ENOTEMPTY)
		return fail(dir, name, &err);
	fputs(r ? "kept    " : "removed ", stdout);
	print_whose(dir, name, &info);
	printf("%s%s\n", r ? ": " : "", r ? err.text : "");
	return 0;
}

/* As paths.c names them: 16 hexadecimal digits. */
static bool is_state(const char *name)
{
	return strlen(name) == 16 && strspn(name, "0123456789abcdef") == 16;
}

/* BASE was looked at by its path: what is opened now is looked at again. */
static DIR *open_base(const char *base)
{
	_cleanup_fd_ int fd = open(base, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;
	DIR *dir;

	if (fd < 0 || fstat(fd, &st) < 0 || st.st_uid != geteuid())
		return NULL;
	dir = fdopendir(fd);
	if (dir)
		sbx_steal_fd(&fd);
	return dir;
}

static int each(const char *base, state_fn fn)
{
	DIR *dir = open_base(base);
	int code = 0;

	for (struct dirent *e; dir && (e = readdir(dir));)
		if (is_state(e->d_name))
			code |= fn(dirfd(dir), base, e->d_name);
	if (dir)
		closedir(dir);
	return code;
}

int sbx_states(bool remove)
{
	int (*const places[])(char **, struct sbx_error *) = {sbx_paths_temporary,
	                                                      sbx_paths_persistent};
	int code = 0;

	for (size_t i = 0; i < SBX_ARRAY_SIZE(places); i++) {
		_cleanup_free_ char *base = NULL;
		struct sbx_error err = SBX_ERROR_INIT;

		if (places[i](&base, &err) == 0)
			code |= each(base, remove ? prune : list);
	}
	return code;
}
