/*
 * The name comes from a hostile text. It is resolved within one mount, of a kind whose answers come
 * from this machine: the way there leads over mounts of such kinds alone, and no link leaves it.
 */
#include "fs/sandbox/unshown.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "fs/config/credentials.h"
#include "fs/config/toolchains.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/openat2.h"

#define TOLD_MAX 400 /* bytes of a path that a sentence has room for */

struct place {
	char *path;
	bool local; /* its file system needs nobody's answer */
};

struct sbx_unshown {
	const struct sbx_settings *settings;
	bool landlock;
	struct place *places; /* every mount */
	size_t n;
};

/* --- mounts ------------------------------------------------------------------------------ */

static bool is_local(const char *type)
{
	static const char *const types[] = {"ext2",     "ext3",     "ext4",    "xfs",   "btrfs",
	                                    "f2fs",     "bcachefs", "zfs",     "tmpfs", "ramfs",
	                                    "overlay",  "squashfs", "erofs",   "jfs",   "vfat",
	                                    "exfat",    "ntfs3",    "iso9660", "udf",   "rootfs",
	                                    "reiserfs", "nilfs2",   "devtmpfs"};

	for (size_t i = 0; i < SBX_ARRAY_SIZE(types); i++)
		if (strcmp(types[i], type) == 0)
			return true;
	return false;
}

/* Undoes \040 and its kin in place. */
static void unescape(char *text)
{
	char *to = text;

	while (*text) {
		unsigned c;

		if (*text == '\\' && sscanf(text + 1, "%3o", &c) == 1 && strlen(text) >= 4) {
			*to++ = (char)c;
			text += 4;
		} else {
			*to++ = *text++;
		}
	}
	*to = '\0';
}

/* LINE is one of mountinfo. False: no memory. */
static bool add_place(struct sbx_unshown *u, char *line)
{
	char *save = NULL, *path = NULL, *type, *end = strstr(line, " - ");
	struct place *grown;

	if (!end)
		return true;
	*end = '\0';
	type = end + 3;
	type[strcspn(type, " ")] = '\0';
	for (int i = 0; i < 5; i++)
		path = strtok_r(i ? NULL : line, " ", &save);
	grown = path ? reallocarray(u->places, u->n + 1, sizeof(*grown)) : NULL;
	if (!grown)
		return !path;
	u->places = grown;
	unescape(path);
	u->places[u->n] = (struct place){.path = strdup(path), .local = is_local(type)};
	return u->places[u->n++].path != NULL;
}

struct sbx_unshown *sbx_unshown_open(const struct sbx_settings *settings, bool landlock)
{
	FILE *file = fopen("/proc/self/mountinfo", "re");
	struct sbx_unshown *u = file ? calloc(1, sizeof(*u)) : NULL;
	_cleanup_free_ char *line = NULL;
	size_t size = 0;
	bool ok = u != NULL;

	if (u)
		*u = (struct sbx_unshown){.settings = settings, .landlock = landlock};
	while (ok && getline(&line, &size, file) > 0)
		ok = add_place(u, line);
	if (file)
		fclose(file);
	if (ok)
		return u;
	sbx_unshown_close(u);
	return NULL;
}

void sbx_unshown_close(struct sbx_unshown *u)
{
	if (!u)
		return;
	for (size_t i = 0; i < u->n; i++)
		free(u->places[i].path);
	free(u->places);
	free(u);
}

static bool is_within(const char *path, const char *top)
{
	size_t n = strlen(top);

	if (n == 1)
		return true;
	return strncmp(path, top, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

/* The mount that PATH lies in, when every one on the way is local. */
static const char *find_mount(const struct sbx_unshown *u, const char *path)
{
	const char *ret = NULL;

	for (size_t i = 0; i < u->n; i++) {
		if (!is_within(path, u->places[i].path))
			continue;
		if (!u->places[i].local)
			return NULL;
		if (!ret || strlen(u->places[i].path) > strlen(ret))
			ret = u->places[i].path;
	}
	return ret;
}

/* PATH as a handle that only names it; or -errno. */
static int look(const struct sbx_unshown *u, const char *path)
{
	const char *mount = find_mount(u, path), *rest;
	_cleanup_fd_ int top = mount ? open(mount, O_PATH | O_CLOEXEC) : -1;

	if (top < 0)
		return -ENOENT;
	rest = path + (mount[1] ? strlen(mount) : 0);
	rest += strspn(rest, "/");
	return sbx_openat2(top, *rest ? rest : ".", O_PATH,
	                   RESOLVE_NO_XDEV | RESOLVE_NO_MAGICLINKS);
}

/* --- what commands see --------------------------------------------------------------------- */

static bool is_in(const struct sbx_strings *list, const char *path)
{
	for (size_t i = 0; i < list->n; i++)
		if (is_within(path, list->items[i]))
			return true;
	return false;
}

static bool is_source(const struct sbx_settings *s, const char *path)
{
	return s->source_abs && is_within(path, s->source_abs);
}

static bool sees(const struct sbx_settings *s, const char *path)
{
	/* Memory of their own, or of the kernel's. */
	static const char *const own[] = {"/proc", "/dev", "/sys"};

	for (size_t i = 0; i < SBX_ARRAY_SIZE(own); i++)
		if (is_within(path, own[i]))
			return true;
	if (is_in(&s->hide_paths, path))
		return false;
	if (is_in(&s->ro_paths, path) || is_in(&s->rw_paths, path))
		return true;
	return sbx_toolchains_sees(s, path) && !is_in(&s->covered, path) && !is_source(s, path);
}

/* Ours: what lies there is never told. */
static bool is_ours(const struct sbx_settings *s, const char *path)
{
	const char *const all[] = {s->mountpoint, s->state_dir, s->cache_dir};

	for (size_t i = 0; i < SBX_ARRAY_SIZE(all); i++)
		if (all[i] && is_within(path, all[i]))
			return true;
	return false;
}

/* Whoever asks for one of these may be after just that. */
static bool is_delicate(const char *path)
{
	char name[NAME_MAX + 1];

	if (sbx_holds_home(path))
		return true;
	while (*path) {
		const size_t n = strcspn(path, "/");

		snprintf(name, sizeof(name), "%.*s", (int)n, path);
		if (n && sbx_is_credential(name))
			return true;
		path += n + (path[n] == '/');
	}
	return false;
}

/* Which option would change that PATH is not shown, if it is for anyone to advise. */
static void explain_hidden(const struct sbx_settings *s, const char *path, char *ret, size_t size)
{
	if (is_source(s, path))
		snprintf(ret, size,
		         "it is the source's, of which commands have a copy: name it relative to "
		         "the sandbox");
	else if (is_in(&s->hide_paths, path))
		snprintf(ret, size, "it is there, but not shown to commands: hide_paths");
	else if (is_delicate(path))
		snprintf(ret, size,
		         "it is there, but not shown to commands, as homes and secrets are");
	else if (strlen(path) > TOLD_MAX || strpbrk(path, ",:"))
		snprintf(ret, size, "it is there, but not shown to commands: ro_paths");
	else
		snprintf(ret, size,
		         "it is there, but not shown to commands: mount with -o ro_paths=%s", path);
}

/* --- complaints ----------------------------------------------------------------------------- */

/* Where the open FD lies; links on the way to it are gone. */
static bool name_of(int fd, char ret[PATH_MAX])
{
	char link[40];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, ret, PATH_MAX - 1);
	ret[n < 0 ? 0 : n] = '\0';
	return n > 0;
}

static bool find_hidden(const struct sbx_unshown *u, const char *path, struct sbx_refusal *ret)
{
	const struct sbx_settings *s = u->settings;
	char real[PATH_MAX];
	_cleanup_fd_ int fd = is_ours(s, path) ? -1 : look(u, path);

	if (fd < 0 || !name_of(fd, real) || is_ours(s, real) || (sees(s, path) && sees(s, real)))
		return false;
	ret->code = u->landlock ? EACCES : ENOENT;
	snprintf(ret->what, sizeof(ret->what), "%s", path);
	explain_hidden(s, sees(s, path) ? real : path, ret->reason, sizeof(ret->reason));
	return true;
}

/* PATH, or where it would be made. */
static int look_nearest(const struct sbx_unshown *u, const char *path)
{
	char dir[PATH_MAX];
	int fd = look(u, path);

	if (fd != -ENOENT)
		return fd;
	snprintf(dir, sizeof(dir), "%s", path);
	*strrchr(dir, '/') = '\0';
	return look(u, *dir ? dir : "/");
}

/* Whether the host would have it: its own file systems may be read only as well. */
static bool find_read_only(const struct sbx_unshown *u, const char *path, struct sbx_refusal *ret)
{
	const struct sbx_settings *s = u->settings;
	char real[PATH_MAX];
	struct statvfs fs;
	_cleanup_fd_ int fd = is_ours(s, path) ? -1 : look_nearest(u, path);

	if (fd < 0 || !name_of(fd, real) || is_ours(s, real) || is_in(&s->rw_paths, path) ||
	    is_in(&s->rw_paths, real) || is_within(path, "/proc") || is_within(path, "/sys") ||
	    is_within(path, "/dev") || fstatvfs(fd, &fs) < 0 || fs.f_flag & ST_RDONLY)
		return false;
	ret->code = EROFS;
	snprintf(ret->what, sizeof(ret->what), "%s", path);
	if (is_source(s, path) || !sees(s, path))
		explain_hidden(s, path, ret->reason, sizeof(ret->reason));
	else if (is_delicate(path) || strlen(real) > TOLD_MAX || strpbrk(real, ",:"))
		snprintf(ret->reason, sizeof(ret->reason), "commands see it read-only: rw_paths");
	else
		snprintf(ret->reason, sizeof(ret->reason),
		         "commands see it read-only: mount with -o rw_paths=%s", real);
	return true;
}

/* Only Landlock refuses so; else it is a matter of the host's own rights. */
static bool find_refused(const struct sbx_unshown *u, const char *path, struct sbx_refusal *ret)
{
	_cleanup_fd_ int fd = -1;

	if (!u->landlock)
		return false;
	if (find_hidden(u, path, ret))
		return true;
	/* Root, who may all, does not know whether another might. */
	fd = geteuid() && !is_ours(u->settings, path) ? look_nearest(u, path) : -1;
	return fd >= 0 && faccessat(fd, "", W_OK, AT_EMPTY_PATH | AT_EACCESS) == 0 &&
	       find_read_only(u, path, ret);
}

static bool is_program(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_mode & 0111;
}

/* The first of that name in PATH: one that the command's shell would have seen is no reason. */
static bool find_program(const struct sbx_unshown *u, const char *word, struct sbx_refusal *ret)
{
	const char *path = u->settings->path;
	char file[PATH_MAX];

	while (path && *path) {
		const size_t n = strcspn(path, ":");

		if (*path == '/' &&
		    snprintf(file, sizeof(file), "%.*s/%s", (int)n, path, word) < PATH_MAX) {
			_cleanup_fd_ int fd = look(u, file);

			if (fd >= 0 && is_program(fd))
				return find_hidden(u, file, ret);
		}
		path += n + (path[n] == ':');
	}
	return false;
}

bool sbx_unshown_find(const struct sbx_unshown *u, const struct sbx_complaint *complaint,
                      struct sbx_refusal *ret)
{
	switch (complaint->kind) {
	case SBX_COMPLAINT_MISSING:
		return find_hidden(u, complaint->name, ret);
	case SBX_COMPLAINT_READ_ONLY:
		return find_read_only(u, complaint->name, ret);
	case SBX_COMPLAINT_REFUSED:
		return find_refused(u, complaint->name, ret);
	case SBX_COMPLAINT_PROGRAM:
		return find_program(u, complaint->name, ret);
	}
	return false;
}
