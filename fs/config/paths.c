/*
 * The paths of a mount. They are resolved once, before the mount is there, because a path that
 * leads through our own mount would have the daemon wait for itself. A mount left behind by a
 * daemon that died answers ENOTCONN; it is to be healed, so it must not stop us here.
 */
#include "fs/config/paths.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/config/settings.h"
#include "sandboxfs/backend.h"
#include "sandboxfs/cleanup.h"

static bool is_dead(int errnum)
{
	return errnum == ENOTCONN || errnum == ECONNABORTED;
}

/* DIR/NAME, however many slashes there are between. */
static char *join(const char *dir, const char *name)
{
	char *path;

	while (*name == '/')
		name++;
	if (strcmp(dir, "/") == 0)
		dir = "";
	return asprintf(&path, "%s/%s", dir, name) < 0 ? NULL : path;
}

/* The length of PATH without its last component and the slashes before and after that. */
static size_t parent_length(const char *path, size_t len)
{
	while (len > 0 && path[len - 1] == '/')
		len--;
	while (len > 0 && path[len - 1] != '/')
		len--;
	while (len > 1 && path[len - 1] == '/')
		len--;
	return len;
}

static char *resolve_prefix(const char *path, size_t len)
{
	_cleanup_free_ char *head = len ? strndup(path, len) : strdup(".");

	return head ? realpath(head, NULL) : NULL;
}

static bool has_dotdot(const char *path)
{
	for (const char *p = strstr(path, ".."); p; p = strstr(p + 1, ".."))
		if ((p == path || p[-1] == '/') && (p[2] == '/' || p[2] == '\0'))
			return true;
	return false;
}

/* As realpath(3), for a directory that may have to be made: its last components may be missing. */
static int resolve_new(const char *key, char **path, struct sbx_error *err)
{
	size_t len = strlen(*path);
	_cleanup_free_ char *head = resolve_prefix(*path, len);
	char *full;

	while (!head && errno == ENOENT && len > 0) {
		len = parent_length(*path, len);
		head = resolve_prefix(*path, len);
	}
	if (!head)
		return sbx_fail(err, errno, "\"%s\": %s: %s", key, *path, strerror(errno));
	if (has_dotdot(*path + len))
		return sbx_fail(err, EINVAL, "\"%s\" must not contain ..", key);
	full = (*path)[len] ? join(head, *path + len) : strdup(head);
	if (!full)
		return sbx_no_memory(err);
	free(*path);
	*path = full;
	return 0;
}

/* A directory that is to be written to: what of PATH there is must be one, and ours to write to. */
static int check_writable(const char *key, const char *path, struct sbx_error *err)
{
	size_t len = strlen(path);
	_cleanup_free_ char *at = resolve_prefix(path, len);
	struct stat st;

	while (!at && errno == ENOENT && len > 0) {
		len = parent_length(path, len);
		at = resolve_prefix(path, len);
	}
	if (!at || stat(at, &st) < 0)
		return sbx_fail(err, errno, "\"%s\": %s: %s", key, path, strerror(errno));
	if (!S_ISDIR(st.st_mode))
		return sbx_fail(err, ENOTDIR, "\"%s\": %s is not a directory", key, at);
	if (faccessat(AT_FDCWD, at, W_OK | X_OK, AT_EACCESS) < 0)
		return sbx_fail(err, errno, "\"%s\": nothing can be written in %s: %s", key, at,
		                strerror(errno));
	return 0;
}

static int resolve_writable(const char *key, char **path, struct sbx_error *err)
{
	int r = resolve_new(key, path, err);

	return r ? r : check_writable(key, *path, err);
}

/* A dead mount can be neither entered nor asked, so only what is above it is resolved. */
static char *resolve_dead(const char *path)
{
	size_t len = strlen(path), cut = parent_length(path, len);
	_cleanup_free_ char *parent = resolve_prefix(path, cut);
	_cleanup_free_ char *name = NULL;

	while (len > 0 && path[len - 1] == '/')
		len--;
	name = strndup(path + cut, len - cut);
	return parent && name ? join(parent, name) : NULL;
}

static int resolve_mountpoint(struct sbx_settings *s, const char *path, struct sbx_error *err)
{
	_cleanup_free_ char *real = realpath(path, NULL);
	struct stat st;

	if (!real && is_dead(errno))
		real = resolve_dead(path);
	if (!real)
		return sbx_fail(err, errno, "mountpoint %s: %s", path, strerror(errno));
	if (stat(real, &st) < 0) {
		if (!is_dead(errno))
			return sbx_fail(err, errno, "mountpoint %s: %s", path, strerror(errno));
	} else if (!S_ISDIR(st.st_mode)) {
		return sbx_fail(err, ENOTDIR, "mountpoint %s is not a directory", path);
	}
	s->mountpoint = sbx_steal_ptr(&real);
	return 0;
}

static bool is_url(const char *source)
{
	return strstr(source, "://") || strncmp(source, "git@", 4) == 0;
}

/* org/repo, or a URL */
static bool is_remote(const char *source)
{
	static const char word[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	                           "0123456789._-";
	size_t n = strspn(source, word), m;

	if (is_url(source))
		return true;
	if (n == 0 || source[0] == '.' || source[n] != '/')
		return false;
	m = strspn(source + n + 1, word);
	return m > 0 && source[n + 1 + m] == '\0';
}

static bool holds_password(const char *source)
{
	const char *host = strstr(source, "://");
	size_t len = host ? strcspn(host + 3, "/?#") : 0;
	const char *at = host ? memrchr(host + 3, '@', len) : NULL;

	return at && !(at - host == 6 && strncmp(host + 3, "git", 3) == 0);
}

static int resolve_source(struct sbx_settings *s, struct sbx_error *err)
{
	const unsigned kinds = sbx_backend_sources(s);
	_cleanup_free_ char *real = NULL;
	struct stat st;

	if (!s->source)
		return 0;
	if (holds_password(s->source))
		return sbx_fail(err, EINVAL,
		                "the source's URL holds credentials: they belong in the "
		                "environment (GITHUB_TOKEN)");
	if (!(kinds & SBX_SOURCE_PATHS))
		return 0;
	real = realpath(s->source, NULL);
	if (real) {
		if (stat(real, &st) < 0)
			return sbx_fail(err, errno, "source %s: %s", s->source, strerror(errno));
		if (!S_ISDIR(st.st_mode))
			return sbx_fail(err, ENOTDIR, "source %s is not a directory", s->source);
		s->source_abs = sbx_steal_ptr(&real);
		return 0;
	}
	if (errno != ENOENT || !is_remote(s->source))
		return sbx_fail(err, errno, "source %s: %s", s->source, strerror(errno));
	if (!(kinds & SBX_SOURCE_URLS))
		return sbx_fail(err, EOPNOTSUPP,
		                "there is no directory %s; for a repository elsewhere use a remote "
		                "backend (backend=%s), or clone it first",
		                s->source, sbx_backend_elsewhere);
	return 0;
}

/* FNV-1a, 64 bits */
static uint64_t hash(uint64_t h, const char *s)
{
	do {
		h ^= (unsigned char)*s;
		h *= UINT64_C(0x100000001b3);
	} while (*s++);
	return h;
}

/* A look, for the sentence: sbx_dir_own decides when the directory is made and opened. */
static int check_own(const char *dir, struct sbx_error *err)
{
	struct stat st;

	if (lstat(dir, &st) < 0)
		return errno == ENOENT ? 0 : sbx_fail(err, errno, "%s: %s", dir, strerror(errno));
	if (S_ISDIR(st.st_mode) && st.st_uid == geteuid())
		return 0;
	return sbx_fail(err, EACCES, "%s is not a directory of yours; choose a \"state_dir\"", dir);
}

int sbx_paths_temporary(char **ret, struct sbx_error *err)
{
	const char *tmp = getenv("TMPDIR");
	_cleanup_free_ char *base = realpath(tmp && tmp[0] == '/' ? tmp : "/tmp", NULL);

	if (!base)
		return sbx_fail(err, errno, "temporary directory: %s", strerror(errno));
	if (asprintf(ret, "%s/sandboxfs-%u", strcmp(base, "/") ? base : "", (unsigned)geteuid()) >=
	    0)
		return check_own(*ret, err);
	*ret = NULL;
	return sbx_no_memory(err);
}

int sbx_paths_persistent(char **ret, struct sbx_error *err)
{
	const char *xdg = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
	_cleanup_free_ char *base = NULL;
	int r, n;

	if (xdg && xdg[0] == '/')
		n = asprintf(&base, "%s/sandboxfs", xdg);
	else if (geteuid() == 0)
		n = asprintf(&base, "/var/lib/sandboxfs");
	else if (home && home[0] == '/')
		n = asprintf(&base, "%s/.local/state/sandboxfs", home);
	else
		return sbx_fail(err, EINVAL,
		                "\"state_dir\": persistent needs HOME or XDG_STATE_HOME");
	if (n < 0) {
		base = NULL;
		return sbx_no_memory(err);
	}
	r = resolve_new("state_dir", &base, err);
	if (!r)
		r = check_own(base, err);
	if (!r)
		*ret = sbx_steal_ptr(&base);
	return r;
}

/* The same SOURCE and MOUNTPOINT find the same state again. */
static int own_state_dir(struct sbx_settings *s, int (*find)(char **ret, struct sbx_error *err),
                         struct sbx_error *err)
{
	const char *source = s->source_abs ? s->source_abs : s->source ? s->source : "";
	uint64_t h = hash(hash(UINT64_C(0xcbf29ce484222325), source), s->mountpoint);
	_cleanup_free_ char *base = NULL;
	char *dir;
	int r = find(&base, err);

	if (r < 0)
		return r;
	if (asprintf(&dir, "%s/%016llx", base, (unsigned long long)h) < 0)
		return sbx_no_memory(err);
	free(s->state_dir);
	s->state_dir = dir;
	return 0;
}

static int resolve_state_dir(struct sbx_settings *s, struct sbx_error *err)
{
	if (!s->state_dir)
		return own_state_dir(s, sbx_paths_temporary, err);
	if (strcmp(s->state_dir, SBX_STATE_PERSISTENT) == 0)
		return own_state_dir(s, sbx_paths_persistent, err);
	return resolve_writable("state_dir", &s->state_dir, err);
}

/*
 * Whether A is B or below it, both absolute and resolved. Spares people a mistake and
 * confines nothing.
 */
static bool is_within(const char *a, const char *b)
{
	size_t len = strcmp(b, "/") == 0 ? 0 : strlen(b);

	return strncmp(a, b, len) == 0 && (a[len] == '/' || a[len] == '\0');
}

/*
 * One cache for all mounts of a user. Where that cannot be had, what is kept for this mount alone
 * must do: a cache below /tmp would be for anybody to make first.
 */
static int default_cache_dir(struct sbx_settings *s, struct sbx_error *err)
{
	const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	int n = 0;

	if (xdg && xdg[0] == '/')
		n = asprintf(&s->cache_dir, "%s/sandboxfs", xdg);
	else if (geteuid() == 0)
		n = asprintf(&s->cache_dir, "/var/cache/sandboxfs");
	else if (home && home[0] == '/')
		n = asprintf(&s->cache_dir, "%s/.cache/sandboxfs", home);
	if (n > 0 && resolve_new("cache_dir", &s->cache_dir, NULL) == 0 &&
	    !is_within(s->cache_dir, s->mountpoint) && !is_within(s->mountpoint, s->cache_dir))
		return 0;
	if (n > 0)
		free(s->cache_dir);
	if (asprintf(&s->cache_dir, "%s/cache", s->state_dir) >= 0)
		return 0;
	s->cache_dir = NULL;
	return sbx_no_memory(err);
}

static int check_apart(const struct sbx_settings *s, struct sbx_error *err)
{
	if (is_within(s->state_dir, s->mountpoint) || is_within(s->mountpoint, s->state_dir))
		return sbx_fail(err, EINVAL,
		                "\"state_dir\" and the mountpoint must not lie in each other");
	if (is_within(s->cache_dir, s->mountpoint) || is_within(s->mountpoint, s->cache_dir))
		return sbx_fail(err, EINVAL,
		                "\"cache_dir\" and the mountpoint must not lie in each other");
	if (s->logs_dir && is_within(s->logs_dir, s->mountpoint))
		return sbx_fail(err, EINVAL, "\"logs_dir\" must not lie in the mountpoint");
	return 0;
}

/*
 * Refuses a path that is to be shown to commands, or hidden from them, and is not there: it would
 * be neither, without a word.
 */
static int check_shown(const char *key, const struct sbx_strings *paths, struct sbx_error *err)
{
	for (size_t i = 0; i < paths->n; i++) {
		struct stat st;

		if (has_dotdot(paths->items[i]))
			return sbx_fail(err, EINVAL, "\"%s\" must not contain ..: %s", key,
			                paths->items[i]);
		if (stat(paths->items[i], &st) < 0 && !is_dead(errno))
			return sbx_fail(err, errno, "\"%s\": %s: %s", key, paths->items[i],
			                strerror(errno));
	}
	return 0;
}

static int check_all_shown(const struct sbx_settings *s, struct sbx_error *err)
{
	int r = check_shown("ro_paths", &s->ro_paths, err);

	if (!r)
		r = check_shown("rw_paths", &s->rw_paths, err);
	return r ? r : check_shown("hide_paths", &s->hide_paths, err);
}

int sbx_settings_resolve(struct sbx_settings *settings, const char *mountpoint,
                         struct sbx_error *err)
{
	int r = resolve_source(settings, err);

	if (!r)
		r = resolve_mountpoint(settings, mountpoint, err);
	if (!r)
		r = resolve_state_dir(settings, err);
	if (!r && settings->logs_dir)
		r = resolve_writable("logs_dir", &settings->logs_dir, err);
	if (!r)
		r = settings->cache_dir ? resolve_writable("cache_dir", &settings->cache_dir, err)
		                        : default_cache_dir(settings, err);
	if (!r)
		r = check_all_shown(settings, err);
	return r ? r : check_apart(settings, err);
}
