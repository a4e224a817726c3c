/*
 * Tools in a home directory are found once, before the mount: what is told in ctl/policy is then
 * what every view shows, and no search ever walks through our own mount.
 *
 * Of an installation the parts are shown that its programs read (bin, lib, share), never the
 * directory that holds them: beside them lie etc/npmrc, .env and whatever else belongs to the user.
 */
#include "fs/config/toolchains.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/config/credentials.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/strv.h"
#include "sandboxfs/system_dirs.h"

#define HOPS_MAX     8     /* of links that lead to links, and of interpreters of interpreters */
#define PROGRAMS_MAX 1024  /* of a directory that are looked at */
#define DEPTH_MAX    8     /* of directories in which secrets are looked for */
#define COVERED_MAX  20000 /* files of a shown directory that are looked at for that */

struct finder {
	struct sbx_settings *settings;
	const char *home; /* the user's, "" when there is none */
	int error;        /* negative: the first */
};

/* --- what may be shown --------------------------------------------------------------------- */

static bool is_within(const char *path, const char *top)
{
	size_t n = strlen(top);

	return strncmp(path, top, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

static bool is_system(const char *path)
{
	/* Commands have these too, though not as the host has them. */
	static const char *const own[] = {"/proc", "/dev", "/sys"};

	for (const char *const *dir = sbx_system_dirs; *dir; dir++)
		if (is_within(path, *dir))
			return true;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(own); i++)
		if (is_within(path, own[i]))
			return true;
	return false;
}

/* A file that is asked for by its name may have one of these (a certificate's), no directory may.
 */
static bool passes_credentials(const char *path, bool dir)
{
	char name[NAME_MAX + 1];

	while (*path) {
		size_t n = strcspn(path, "/");

		snprintf(name, sizeof(name), "%.*s", (int)n, path);
		if ((path[n] || dir) && sbx_is_credential(name))
			return true;
		path += n + (path[n] == '/');
	}
	return false;
}

static const char *home_of(void)
{
	const char *home = getenv("HOME");
	const struct passwd *pw;

	if (home && *home == '/')
		return home;
	pw = getpwuid(geteuid());
	return pw && pw->pw_dir ? pw->pw_dir : "";
}

bool sbx_holds_home(const char *path)
{
	static const char *const homes[] = {"/home", "/root", "/Users", "/var/home"};
	const char *home = home_of();

	if (strcmp(path, "/") == 0 || is_within(home, path))
		return true;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(homes); i++) {
		size_t n = strlen(homes[i]);

		if (is_within(homes[i], path))
			return true;
		if (i != 1 && strncmp(path, homes[i], n) == 0 && path[n] == '/' &&
		    !strchr(path + n + 1, '/'))
			return true;
	}
	return false;
}

static bool is_avoided(const struct sbx_settings *s, const char *path)
{
	const char *const all[] = {s->mountpoint, s->state_dir, s->source_abs, s->cache_dir};

	for (size_t i = 0; i < SBX_ARRAY_SIZE(all); i++)
		if (all[i] && is_within(path, all[i]))
			return true;
	return false;
}

static bool is_shown(const struct sbx_settings *s, const char *path)
{
	for (size_t i = 0; i < s->shown.n; i++)
		if (is_within(path, s->shown.items[i]))
			return true;
	return false;
}

bool sbx_toolchains_sees(const struct sbx_settings *s, const char *path)
{
	return is_system(path) || is_shown(s, path);
}

/*
 * Covers the credentials in the shown directory PATH, by their names: directly in it any name,
 * DEPTH further down only names that nothing else has. *LEFT is how many files are still looked
 * at.
 */
static int cover(struct sbx_settings *s, const char *path, int depth, unsigned *left)
{
	_cleanup_dir_ DIR *dir = opendir(path);
	struct dirent *e;
	char full[PATH_MAX];
	int r = 0;

	while (dir && !r && *left && (e = readdir(dir))) {
		--*left;
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
		    snprintf(full, sizeof(full), "%s/%s", path, e->d_name) >= (int)sizeof(full))
			continue;
		if (depth ? sbx_is_secret_store(e->d_name)
		          : sbx_is_credential(e->d_name) &&
		                    !sbx_is_tool_of_store(e->d_name, e->d_type))
			r = sbx_strings_add(&s->covered, full);
		else if (e->d_type == DT_DIR && depth < DEPTH_MAX)
			r = cover(s, full, depth + 1, left);
	}
	return r;
}

int sbx_toolchains_show(struct sbx_settings *s, const char *path, const char *why, bool *shown)
{
	const size_t n = s->shown.n;
	unsigned left = COVERED_MAX;
	bool dummy;
	struct stat st;
	int r;

	if (!shown)
		shown = &dummy;
	*shown = sbx_toolchains_sees(s, path);
	if (*shown || *path != '/' || strstr(path, "/../") || sbx_holds_home(path) ||
	    is_avoided(s, path) || stat(path, &st) < 0 ||
	    (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode)) ||
	    passes_credentials(path + 1, S_ISDIR(st.st_mode)))
		return 0;
	r = sbx_strings_add(&s->shown, path);
	if (!r)
		r = sbx_strings_add(&s->shown_why, why);
	if (!r && S_ISDIR(st.st_mode))
		r = cover(s, path, 0, &left);
	*shown = !r && s->shown.n > n;
	return r;
}

static void show(struct finder *f, const char *path, const char *why)
{
	if (!f->error)
		f->error = sbx_toolchains_show(f->settings, path, why, NULL);
}

static void set_env(struct finder *f, const char *key, const char *value)
{
	char text[PATH_MAX + 64];

	if (!f->error && snprintf(text, sizeof(text), "%s=%s", key, value) < (int)sizeof(text))
		f->error = sbx_strings_add(&f->settings->tool_env, text);
}

/* --- installations -----------------------------------------------------------------------------
 */

static bool exists(const char *dir, const char *name)
{
	char path[PATH_MAX];

	return snprintf(path, sizeof(path), "%s/%s", dir, name) < (int)sizeof(path) &&
	       access(path, F_OK) == 0;
}

/* Has all sorts of things beside its bin. */
static bool is_mixed(const char *dir)
{
	static const char *const mixed[] = {".local", ".cargo", ".config", "go", ".go"};
	const char *name = strrchr(dir, '/');

	for (size_t i = 0; name && i < SBX_ARRAY_SIZE(mixed); i++)
		if (strcmp(name + 1, mixed[i]) == 0 && !exists(dir, "pkg/tool"))
			return true;
	return sbx_holds_home(dir);
}

/* Whether programs in DIR/bin have a part of theirs beside it. */
static bool is_installation(const char *dir)
{
	static const char *const parts[] = {"lib",        "lib64",   "libexec", "versions",
	                                    "installs",   "install", "tools",   "store",
	                                    "pyvenv.cfg", "pkg/tool"};

	for (size_t i = 0; i < SBX_ARRAY_SIZE(parts); i++)
		if (exists(dir, parts[i]))
			return true;
	return false;
}

/* Of DIR, when MARK is in it: what lies in the parts is read by programs, and is no one's
 * configuration. */
static const struct {
	const char *mark, *parts[16];
} layouts[] = {
        {"", {"bin", "sbin", "shims", "lib", "lib64", "libexec", "share", "include"}},
        {"pyvenv.cfg", {"pyvenv.cfg"}},
        {"pkg/tool", {"pkg", "src", "go.env", "VERSION"}},
        {"lib/modules", {"conf", "jmods", "legal", "release"}},
        {"conda-meta", {"conda-meta", "condabin", "ssl", "etc/conda", "compiler_compat"}},
        {"shims", {"version", "completions", "pyenv.d", "rbenv.d", "defaults"}},
        {"bin/volta-shim", {"layout.v4", "layout.v3"}},
        {"conf/groovy-starter.conf", {"conf"}},
        {"boot", {"boot", "conf/logging"}},
};

/* Of a directory that a manager of versions keeps to itself; in a project these may be anything. */
static const char *const managed[] = {"versions", "installs", "install", "tools",
                                      "store",    "plugins",  NULL};

static void show_each(struct finder *f, const char *dir, const char *const *part, const char *why)
{
	char path[PATH_MAX];

	for (; *part; part++)
		if (snprintf(path, sizeof(path), "%s/%s", dir, *part) < (int)sizeof(path))
			show(f, path, why);
}

static void show_parts(struct finder *f, const char *dir, const char *why)
{
	const char *name = strrchr(dir, '/') + 1;

	for (size_t i = 0; i < SBX_ARRAY_SIZE(layouts); i++)
		if (!*layouts[i].mark || exists(dir, layouts[i].mark))
			show_each(f, dir, layouts[i].parts, why);
	if (*name == '.' || strcmp(name, "mise") == 0)
		show_each(f, dir, managed, why);
}

static bool is_bin(const char *name)
{
	return strcmp(name, "bin") == 0 || strcmp(name, "sbin") == 0 || strcmp(name, "shims") == 0;
}

/* The installation that the directory DIR is the bin of; false: it is none's. */
static bool installation_of(const char *dir, char ret[PATH_MAX])
{
	char *slash;

	snprintf(ret, PATH_MAX, "%s", dir);
	slash = strrchr(ret, '/');
	if (!slash || slash == ret || !is_bin(slash + 1))
		return false;
	*slash = '\0';
	return !is_mixed(ret) && is_installation(ret);
}

/* --- what a program needs ---------------------------------------------------------------- */

static void show_chain(struct finder *f, const char *path, const char *why, int depth);

/* The interpreter that a virtual environment was made with. */
static void show_python(struct finder *f, const char *venv, int depth)
{
	char path[PATH_MAX];

	if (exists(venv, "pyvenv.cfg") &&
	    snprintf(path, sizeof(path), "%s/bin/python", venv) < (int)sizeof(path))
		show_chain(f, path, "the interpreter of a virtual environment", depth + 1);
}

/* The program PATH, with the installation or the packages that it belongs to. */
static void show_program(struct finder *f, const char *path, const char *why, int depth)
{
	static const char packages[] = "/node_modules/";
	const char *modules = strstr(path, packages);
	char dir[PATH_MAX], root[PATH_MAX];

	if (is_system(path))
		return;
	if (modules) {
		snprintf(dir, sizeof(dir), "%.*s",
		         (int)(modules - path) + (int)sizeof(packages) - 2, path);
		show(f, dir, why);
		return;
	}
	snprintf(dir, sizeof(dir), "%s", path);
	*strrchr(dir, '/') = '\0';
	if (!installation_of(dir, root)) {
		show(f, path, why);
		return;
	}
	show_parts(f, root, why);
	show_python(f, root, depth);
}

/* The target of the link PATH, as an absolute path. */
static bool next_hop(const char *path, char ret[PATH_MAX])
{
	char target[PATH_MAX], *name;
	_cleanup_free_ char *dir = NULL;
	ssize_t n = readlink(path, target, sizeof(target) - 1);

	if (n <= 0)
		return false;
	target[n] = '\0';
	if (*target == '/')
		return snprintf(ret, PATH_MAX, "%s", target) < PATH_MAX;
	snprintf(ret, PATH_MAX, "%s", path);
	*strrchr(ret, '/') = '\0';
	/* Only ".." at the beginning is taken off by name, as what is above a real directory is its
	 * parent. */
	dir = realpath(ret, NULL);
	if (!dir)
		return false;
	name = target;
	while (strncmp(name, "../", 3) == 0 && *dir) {
		*strrchr(dir, '/') = '\0';
		name += 3;
	}
	return !strstr(name, "/../") && snprintf(ret, PATH_MAX, "%s/%s", dir, name) < PATH_MAX;
}

/* The interpreter of a script that lies below a home as well. */
static void show_interpreter(struct finder *f, const char *path, int depth)
{
	char line[PATH_MAX];
	_cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	ssize_t n = fd < 0 ? -1 : read(fd, line, sizeof(line) - 1);
	const char *word = line + 2;

	if (n < 4 || memcmp(line, "#!", 2) != 0)
		return;
	line[n] = '\0';
	word += strspn(word, " \t");
	line[(word - line) + (ssize_t)strcspn(word, " \t\r\n")] = '\0';
	if (*word == '/' && !is_system(word) && access(word, X_OK) == 0)
		show_chain(f, word, "the interpreter of a program of PATH", depth + 1);
}

/* Each link on the way is followed by its name, so each place that one names has to be there. */
static void show_chain(struct finder *f, const char *path, const char *why, int depth)
{
	_cleanup_free_ char *real = realpath(path, NULL);
	char at[PATH_MAX], next[PATH_MAX];

	if (!real || depth > HOPS_MAX || f->error)
		return;
	snprintf(at, sizeof(at), "%s", path);
	for (int hops = 0; hops < HOPS_MAX; hops++) {
		show_program(f, at, why, depth);
		if (!next_hop(at, next))
			break;
		memcpy(at, next, sizeof(at));
	}
	show_program(f, real, why, depth);
	show_interpreter(f, real, depth);
}

static void show_programs(struct finder *f, const char *dir, bool project)
{
	_cleanup_dir_ DIR *d = opendir(dir);
	char path[PATH_MAX], target[PATH_MAX];
	struct dirent *e;
	int seen = 0;

	while (d && !f->error && (e = readdir(d)) && seen++ < PROGRAMS_MAX) {
		struct stat st;

		if (snprintf(path, sizeof(path), "%s/%s", dir, e->d_name) >= (int)sizeof(path) ||
		    lstat(path, &st) < 0 || access(path, X_OK) < 0)
			continue;
		if (S_ISLNK(st.st_mode) && next_hop(path, target))
			show_chain(f, target, "a link in a directory of PATH leads there", 0);
		if (S_ISREG(st.st_mode))
			show_interpreter(f, path, 0);
		if (S_ISREG(st.st_mode) && project)
			show(f, path, "a program in a project that PATH leads to");
	}
}

/* --- what tools know themselves by
 * ------------------------------------------------------------------ */

static const char *given(const char *key, char buf[PATH_MAX], const char *dir, const char *name)
{
	const char *value = getenv(key);

	if (value && *value == '/')
		return value;
	snprintf(buf, PATH_MAX, "%.*s/%s", (int)(PATH_MAX - 64), dir, name);
	return buf;
}

/* Its proxies, all of ~/.cargo/bin, choose a toolchain by settings.toml. */
static void find_rustup(struct finder *f, const char *user)
{
	/* It would make the second where that is missing. */
	static const char *const parts[] = {"settings.toml", "update-hashes", NULL};
	char buf[PATH_MAX], path[PATH_MAX + 32], target[PATH_MAX];
	const char *root = given("RUSTUP_HOME", buf, user, ".rustup");
	_cleanup_dir_ DIR *dir = NULL;
	struct dirent *e;

	snprintf(path, sizeof(path), "%s/toolchains", root);
	dir = opendir(path);
	if (!dir || strlen(root) > PATH_MAX - 300)
		return;
	show(f, path, "toolchains of rustup");
	while ((e = readdir(dir))) {
		snprintf(path, sizeof(path), "%.3700s/toolchains/%.255s", root, e->d_name);
		if (next_hop(path, target))
			show_parts(f, target, "a toolchain that rustup links to");
	}
	show_each(f, root, parts, "toolchains of rustup");
	set_env(f, "RUSTUP_HOME", root);
}

/* ROOT has bin or shims in PATH. */
static void find_root(struct finder *f, const char *root)
{
	static const struct {
		const char *name, *part, *key;
	} known[] = {{".pyenv", "versions", "PYENV_ROOT"},   {".rbenv", "versions", "RBENV_ROOT"},
	             {".nodenv", "versions", "NODENV_ROOT"}, {".goenv", "versions", "GOENV_ROOT"},
	             {".jenv", "versions", "JENV_ROOT"},     {".plenv", "versions", "PLENV_ROOT"},
	             {".asdf", "installs", "ASDF_DATA_DIR"}, {"mise", "installs", "MISE_DATA_DIR"},
	             {".volta", "tools", "VOLTA_HOME"},      {".bun", "install", "BUN_INSTALL"}};
	const char *name = strrchr(root, '/');

	for (size_t i = 0; name && i < SBX_ARRAY_SIZE(known); i++) {
		const char *value = getenv(known[i].key);
		const bool told = value && strcmp(value, root) == 0;

		if (exists(root, known[i].part) && (told || strcmp(name + 1, known[i].name) == 0))
			set_env(f, known[i].key, root);
	}
}

/*
 * Packages of pip install --user. Python looks for them in the private home: a file there leads on,
 * so that what is installed inside goes into the private home and not here.
 */
static void find_user_packages(struct finder *f, const char *local)
{
	char lib[PATH_MAX], site[2 * PATH_MAX], name[PATH_MAX], text[3 * PATH_MAX];
	_cleanup_dir_ DIR *dir = NULL;
	struct sbx_strings *carried = &f->settings->carried;
	struct dirent *e;

	snprintf(lib, sizeof(lib), "%s/lib", local);
	dir = opendir(lib);
	while (dir && !f->error && (e = readdir(dir))) {
		bool shown;

		if (strncmp(e->d_name, "python", 6) != 0 || strchr(local, '\''))
			continue;
		snprintf(site, sizeof(site), "%s/%s/site-packages", lib, e->d_name);
		f->error = sbx_toolchains_show(f->settings, site, "packages of pip install --user",
		                               &shown);
		if (f->error || !shown)
			continue;
		snprintf(name, sizeof(name), ".local/lib/%s/site-packages/host-packages.pth",
		         e->d_name);
		snprintf(text, sizeof(text), "import site; site.addsitedir('%s')\n", site);
		f->error = sbx_strings_add(carried, name);
		if (!f->error)
			f->error = sbx_strings_add(carried, text);
	}
}

static bool ends_with(const char *text, const char *end)
{
	size_t n = strlen(text), m = strlen(end);

	return n >= m && strcmp(text + n - m, end) == 0;
}

/* --- PATH
 * ---------------------------------------------------------------------------------------------- */

static void show_directory(struct finder *f, const char *dir, const char *why)
{
	char root[PATH_MAX];

	if (installation_of(dir, root)) {
		show_parts(f, root, why);
		find_root(f, root);
	}
	show(f, dir, why);
}

static void find_specials(struct finder *f, const char *entry)
{
	char dir[PATH_MAX];

	snprintf(dir, sizeof(dir), "%s", entry);
	if (ends_with(entry, "/.cargo/bin")) {
		dir[strlen(dir) - strlen("/.cargo/bin")] = '\0';
		find_rustup(f, dir);
	} else if (ends_with(entry, "/.local/bin")) {
		dir[strlen(dir) - strlen("/bin")] = '\0';
		find_user_packages(f, dir);
	}
}

/* Somebody's sources, with what belongs to them, instead of programs alone. */
static bool is_project(const char *dir)
{
	static const char *const marks[] = {".git",
	                                    ".env",
	                                    "package.json",
	                                    "Cargo.toml",
	                                    "go.mod",
	                                    "pyproject.toml",
	                                    "setup.py",
	                                    "Gemfile",
	                                    "pom.xml",
	                                    "build.gradle",
	                                    "CMakeLists.txt",
	                                    "Makefile",
	                                    "docker-compose.yml",
	                                    "compose.yaml"};

	if (is_bin(strrchr(dir, '/') + 1))
		return false;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(marks); i++)
		if (exists(dir, marks[i]))
			return true;
	return false;
}

static void find_entry(struct finder *f, const char *entry)
{
	_cleanup_free_ char *real = NULL;
	char path[PATH_MAX];
	size_t n = strlen(entry);
	bool project;
	struct stat st;

	while (n > 1 && entry[n - 1] == '/')
		n--;
	if (*entry != '/' || n >= PATH_MAX - 300)
		return;
	snprintf(path, sizeof(path), "%.*s", (int)n, entry);
	if (is_system(path) || is_avoided(f->settings, path) || sbx_holds_home(path) ||
	    stat(path, &st) < 0 || !S_ISDIR(st.st_mode))
		return;
	real = realpath(path, NULL);
	project = is_project(path);
	if (!project)
		show_directory(f, path, "PATH");
	if (!project && real && strcmp(real, path) != 0)
		show_directory(f, real, "a directory of PATH is a link to it");
	show_programs(f, path, project);
	find_specials(f, path);
}

int sbx_toolchains_find(struct sbx_settings *settings)
{
	struct finder f = {.settings = settings, .home = home_of()};
	_cleanup_free_ char *path = settings->path ? strdup(settings->path) : NULL;
	char *save = NULL;

	for (char *e = path ? strtok_r(path, ":", &save) : NULL; e; e = strtok_r(NULL, ":", &save))
		find_entry(&f, e);
	return f.error ? f.error : sbx_carried_find(settings, f.home);
}

/* --- what is not shown ---------------------------------------------------------------------- */

static void directory_of(const char *path, char ret[PATH_MAX])
{
	char *slash;

	snprintf(ret, PATH_MAX, "%s", path);
	slash = strrchr(ret, '/');
	slash[slash == ret] = '\0';
}

/* FILE is a program of the host's, which commands lack. */
static bool is_hidden(const struct sbx_settings *s, const char *file, char dir[PATH_MAX])
{
	_cleanup_free_ char *real = NULL;
	struct stat st;

	if (is_avoided(s, file) || stat(file, &st) < 0 || !S_ISREG(st.st_mode) ||
	    access(file, X_OK) < 0)
		return false;
	directory_of(file, dir);
	if (!sbx_toolchains_sees(s, dir))
		return true;
	real = realpath(file, NULL);
	if (!real)
		return false;
	directory_of(real, dir);
	return !sbx_toolchains_sees(s, dir);
}

bool sbx_toolchains_hidden(const struct sbx_settings *s, const char *word, char file[PATH_MAX],
                           char dir[PATH_MAX])
{
	const char *path = s->path;

	if (*word == '/')
		return snprintf(file, PATH_MAX, "%s", word) < PATH_MAX && is_hidden(s, file, dir);
	while (path && *path && *word && !strchr(word, '/')) {
		size_t n = strcspn(path, ":");

		if (*path == '/' &&
		    snprintf(file, PATH_MAX, "%.*s/%s", (int)n, path, word) < PATH_MAX &&
		    is_hidden(s, file, dir))
			return true;
		path += n + (path[n] == ':');
	}
	return false;
}

void sbx_toolchains_tell(const struct sbx_settings *settings)
{
	for (size_t i = 0; i < settings->shown.n; i++)
		printf("ok    commands see %s: %s\n", settings->shown.items[i],
		       settings->shown_why.items[i]);
	for (size_t i = 0; i + 1 < settings->carried.n; i += 2)
		printf("ok    a new sandbox's home gets %s, without secrets\n",
		       settings->carried.items[i]);
	for (size_t i = 0; i < settings->not_carried.n; i++)
		printf("warn  %s  - what commands need of it: -o env=KEY=VALUE, or a file in the "
		       "sandbox's home (ctl/info)\n",
		       settings->not_carried.items[i]);
}
