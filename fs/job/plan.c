/*
 * From a request to what the backend is told: the program, the working directory, the environment,
 * the limits. The kernel decides whether a directory is inside (openat2, beneath the root); the
 * names by which users know the tree are only taken off its front. The environment is built from
 * nothing, so that it holds no more than what stands here.
 *
 * Each entry of the allowlist is resolved once, when the table is made, to the file it then meant;
 * what a client asks for must be that file, by device and inode, and is executed by the path found
 * then, so neither PATH nor a link decides what runs. The name must match as well: one binary often
 * serves many commands (busybox) and chooses by the name it is called by.
 *
 * Commands of a sandbox that is elsewhere see another machine: of this one neither files nor
 * variables mean anything to them. So words are compared there, and that machine decides.
 */
#include "fs/job/plan.h"

#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/job/job_table.h"
#include "sandboxfs/away.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/grow.h"
#include "sandboxfs/mitigations.h"
#include "sandboxfs/openat2.h"
#include "sandboxfs/strv.h"

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

/*
 * The file to execute for WORD, searched along PATH; it belongs to ALLOW. -EPERM. Thread-safe.
 */
static int allow_check(const struct sbx_allow *allow, const char *word, const char *path,
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

/* ---- working directory ---- */

static const char *skip_slashes(const char *path)
{
	while (path[0] == '/' || (path[0] == '.' && (path[1] == '/' || path[1] == '\0')))
		path++;
	return path;
}

/* The rest of the absolute PATH behind DIR, part by part, or NULL when it does not begin so. */
static const char *below(const char *path, const char *dir)
{
	path = skip_slashes(path);
	for (dir = skip_slashes(dir); *dir; dir = skip_slashes(dir)) {
		size_t n = strcspn(dir, "/");

		if (strcspn(path, "/") != n || memcmp(path, dir, n) != 0)
			return NULL;
		path = skip_slashes(path + n);
		dir += n;
	}
	return path;
}

/* RESOLVE_NO_MAGICLINKS answers ELOOP, as does an honest loop of links; the latter stays one
 * without. */
static int check_beneath(int root, const char *path)
{
	int fd = sbx_openat2(root, path, O_PATH | O_DIRECTORY,
	                     RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS);

	if (fd == -ELOOP) {
		fd = sbx_openat2(root, path, O_PATH | O_DIRECTORY, RESOLVE_BENEATH);
		if (fd != -ELOOP) {
			sbx_cleanup_fd(&fd);
			return -EXDEV;
		}
	}
	if (fd < 0)
		return fd;
	close(fd);
	return 0;
}

/* Whether PATH, if it has no links in it, leaves the directory that it begins in. */
static bool climbs_out(const char *path)
{
	size_t depth = 0;

	for (path = skip_slashes(path); *path; path = skip_slashes(path)) {
		const size_t n = strcspn(path, "/");

		if (n == 2 && memcmp(path, "..", 2) == 0) {
			if (depth-- == 0)
				return true;
		} else {
			depth++;
		}
		path += n;
	}
	return false;
}

/*
 * A descriptor of its own: the sandbox may be removed meanwhile, and its number be given to
 * another.
 */
static int check_here(struct sbx_jobs *jobs, const char *path)
{
	_cleanup_fd_ int root =
	        jobs->root ? jobs->root(jobs->data)
	                   : fcntl(sbx_sandbox_root(jobs->sandbox), F_DUPFD_CLOEXEC, 3);

	return root < 0 ? (jobs->root ? root : -errno) : check_beneath(root, path);
}

/* What is elsewhere may not be here yet: the command's machine decides whether it is there. */
static int check_cwd(struct sbx_jobs *jobs, const char *path)
{
	if (sbx_is_away(jobs->sandbox))
		return climbs_out(path) ? -EXDEV : 0;
	return check_here(jobs, path);
}

static int cwd_error(int code, const char *cwd, struct sbx_error *err)
{
	switch (code) {
	case -EXDEV:
		return sbx_fail(err, EACCES,
		                "path confinement violation: %s is outside the sandbox", cwd);
	case -ENOENT:
		return sbx_fail(err, ENOENT, "working directory %s does not exist", cwd);
	case -ENOTDIR:
		return sbx_fail(err, ENOTDIR, "working directory %s is not a directory", cwd);
	default:
		return sbx_fail(err, -code, "working directory %s cannot be entered: %s", cwd,
		                strerror(-code));
	}
}

/* The part of CWD below where commands have the tree, which a machine tells of itself; or NULL. */
static const char *below_workdir(struct sbx_sandbox *sandbox, const char *cwd)
{
	struct json_object *info, *dir = NULL;
	const char *rest;

	if (!sbx_is_away(sandbox))
		return below(cwd, sandbox->workdir);
	info = json_object_new_object();
	sbx_sandbox_info(sandbox, info);
	json_object_object_get_ex(info, "workdir", &dir);
	rest = dir ? below(cwd, json_object_get_string(dir)) : NULL;
	json_object_put(info);
	return rest;
}

int sbx_cwd_resolve(struct sbx_jobs *jobs, const char *cwd, char **ret, struct sbx_error *err)
{
	_cleanup_free_ char *view = NULL;
	const char *rest = skip_slashes(cwd);
	char *copy;
	int r;

	if (cwd[0] == '/') {
		pthread_mutex_lock(&jobs->lock);
		view = strdup(jobs->view);
		pthread_mutex_unlock(&jobs->lock);
		if (!view)
			return sbx_no_memory(err);
		rest = below(cwd, view);
		if (!rest)
			rest = below_workdir(jobs->sandbox, cwd);
		if (!rest)
			return cwd_error(-EXDEV, cwd, err);
	}
	r = *rest && !sbx_mitigation_off("cwd") ? check_cwd(jobs, rest) : 0;
	if (r < 0)
		return cwd_error(r, cwd, err);
	copy = strdup(rest);
	if (!copy)
		return sbx_no_memory(err);
	*ret = copy;
	return 0;
}

/* ---- environment ---- */

struct var {
	const char *text; /* KEY=VALUE */
	size_t key;       /* length of KEY */
	size_t rank;      /* the highest of a key counts */
};

struct vars {
	struct var *v;
	size_t n, cap;
	bool failed; /* out of memory */
};

static bool is_proxy(const char *text, size_t key)
{
	static const char *const names[] = {"http_proxy", "https_proxy", "all_proxy", "ftp_proxy"};

	for (size_t i = 0; i < SBX_ARRAY_SIZE(names); i++)
		if (strlen(names[i]) == key && strncasecmp(names[i], text, key) == 0)
			return true;
	return false;
}

static void add_var(struct vars *vars, const char *text)
{
	if (SBX_GROW(vars->v, vars->n, vars->cap, 32)) {
		vars->failed = true;
		return;
	}
	vars->v[vars->n] = (struct var){.text = text, .key = strcspn(text, "="), .rank = vars->n};
	vars->n++;
}

static void add_list(struct vars *vars, char *const *list)
{
	for (size_t i = 0; list && list[i]; i++)
		add_var(vars, list[i]);
}

static int same_key(const struct var *x, const struct var *y)
{
	size_t n = x->key < y->key ? x->key : y->key;
	int c = memcmp(x->text, y->text, n);

	return c ? c : (x->key > y->key) - (x->key < y->key);
}

static int by_key_and_rank(const void *a, const void *b)
{
	const struct var *x = a, *y = b;
	int c = same_key(x, y);

	return c ? c : (x->rank > y->rank) - (x->rank < y->rank);
}

/* Copies the last of each key. */
static char **pick(struct vars *vars, bool proxies)
{
	char **env = calloc(vars->n + 1, sizeof(*env));
	size_t n = 0;

	if (!env || vars->failed)
		goto err_free;
	qsort(vars->v, vars->n, sizeof(*vars->v), by_key_and_rank);
	for (size_t i = 0; i < vars->n; i++) {
		const struct var *v = &vars->v[i];

		if (i + 1 < vars->n && same_key(v, v + 1) == 0)
			continue;
		if (!proxies && is_proxy(v->text, v->key))
			continue;
		env[n] = strdup(v->text);
		if (!env[n++])
			goto err_free;
	}
	return env;
err_free:
	sbx_strv_free(env);
	return NULL;
}

/* Of net=allow. Both ways of writing: curl and others heed only one for http. */
static char *const proxies[] = {
        "HTTP_PROXY=" SBX_PROXY_URL,    "HTTPS_PROXY=" SBX_PROXY_URL,   "ALL_PROXY=" SBX_PROXY_URL,
        "http_proxy=" SBX_PROXY_URL,    "https_proxy=" SBX_PROXY_URL,   "all_proxy=" SBX_PROXY_URL,
        "NO_PROXY=localhost,127.0.0.1", "no_proxy=localhost,127.0.0.1", NULL};

/* What was set, and nothing of this machine. Lock held. */
static char **make_env_away(struct sbx_jobs *jobs, char *const *asked)
{
	struct vars vars = {0};
	char **env;

	add_var(&vars, "LANG=C.UTF-8");
	add_var(&vars, "TERM=dumb");
	add_list(&vars, jobs->settings->env.items);
	add_list(&vars, jobs->defaults.env);
	add_list(&vars, asked);
	env = pick(&vars, true);
	free(vars.v);
	return env;
}

/* Lock held: the defaults may change. */
static char **make_env(struct sbx_jobs *jobs, char *const *asked)
{
	const struct sbx_settings *s = jobs->settings;
	const bool net = strcmp(s->net, "none") != 0;
	_cleanup_free_ char *path = NULL, *user = NULL;
	struct vars vars = {0};
	char **env = NULL;

	if (asprintf(&path, "PATH=%s", s->path) < 0)
		path = NULL;
	if (asprintf(&user, "USER=%s", jobs->user) < 0)
		user = NULL;
	if (!path || !user)
		return NULL;
	if (sbx_mitigation_off("environment"))
		add_list(&vars, environ);
	add_var(&vars, path);
	add_var(&vars, user);
	add_var(&vars, "LANG=C.UTF-8");
	add_var(&vars, "TERM=dumb");
	if (sbx_settings_hosts(s))
		add_list(&vars, proxies);
	add_list(&vars, s->tool_env.items);
	add_list(&vars, s->env.items);
	add_list(&vars, jobs->defaults.env);
	add_list(&vars, asked);
	if (!net)
		add_var(&vars, "NO_PROXY=*");
	env = pick(&vars, net);
	free(vars.v);
	return env;
}

static const char *search_path(char *const *env)
{
	for (size_t i = 0; env && env[i]; i++)
		if (strncmp(env[i], "PATH=", 5) == 0)
			return env[i] + 5;
	return "";
}

/*
 * By name, on a machine whose files nobody here knows: an entry with a path allows what is called
 * so, or by its last part, and is that file in either case. The others are searched for, by a PATH
 * that no client has set.
 */
static int allow_word(const struct sbx_settings *settings, const char *word, char *const *env,
                      const char **ret, struct sbx_error *err)
{
	const bool searched = strcmp(search_path(env), search_path(settings->env.items)) == 0;

	for (size_t i = 0; i < settings->allow.n; i++) {
		const char *entry = settings->allow.items[i];

		if (entry[0] == '/' ? strcmp(entry, word) != 0 && strcmp(last_part(entry), word)
		                    : !searched || strcmp(entry, word) != 0)
			continue;
		*ret = entry[0] == '/' ? entry : NULL;
		return 0;
	}
	return sbx_fail(err, EPERM, "\"%s\" is not in the allowlist", word);
}

/* ---- limits ---- */

static uint64_t lower(uint64_t want, uint64_t mount)
{
	return mount && (!want || want > mount) ? mount : want;
}

struct sbx_limits sbx_limits_clamp(const struct sbx_limits *l, const struct sbx_limits *mount)
{
	return (struct sbx_limits){
	        .cpu_s = lower(l->cpu_s, mount->cpu_s),
	        .memory_mb = lower(l->memory_mb, mount->memory_mb),
	        .procs = lower(l->procs, mount->procs),
	        .file_mb = lower(l->file_mb, mount->file_mb),
	        .disk_mb = lower(l->disk_mb, mount->disk_mb),
	        .output_bytes = lower(l->output_bytes, mount->output_bytes),
	        .jobs = lower(l->jobs, mount->jobs),
	};
}

static struct sbx_limits overlay(struct sbx_limits l, const struct sbx_request *req)
{
	if (req->set & SBX_REQ_CPU)
		l.cpu_s = req->limits.cpu_s;
	if (req->set & SBX_REQ_MEMORY)
		l.memory_mb = req->limits.memory_mb;
	if (req->set & SBX_REQ_PROCS)
		l.procs = req->limits.procs;
	if (req->set & SBX_REQ_FILE)
		l.file_mb = req->limits.file_mb;
	if (req->set & SBX_REQ_DISK)
		l.disk_mb = req->limits.disk_mb;
	if (req->set & SBX_REQ_OUTPUT)
		l.output_bytes = req->limits.output_bytes;
	return l;
}

/* ---- all of it ---- */

/* Fills in the defaults, in one look at them. *CWD: where the request names none. */
static int fill_in(struct sbx_jobs *jobs, const struct sbx_request *req, struct sbx_plan *plan,
                   char **cwd)
{
	bool given = req->set & SBX_REQ_CWD && req->cwd;
	struct sbx_limits l;

	pthread_mutex_lock(&jobs->lock);
	plan->env = sbx_is_away(jobs->sandbox) ? make_env_away(jobs, req->env)
	                                       : make_env(jobs, req->env);
	plan->timeout_ms = req->set & SBX_REQ_TIMEOUT ? req->timeout_ms : jobs->defaults.timeout_ms;
	l = overlay(jobs->defaults.limits, req);
	*cwd = strdup(given ? req->cwd : jobs->defaults.cwd);
	pthread_mutex_unlock(&jobs->lock);
	plan->limits = sbx_limits_clamp(&l, &jobs->settings->limits);
	plan->limits.output_bytes =
	        lower(plan->limits.output_bytes, sbx_sandbox_output_max(jobs->sandbox));
	return plan->env && *cwd ? 0 : -ENOMEM;
}

static int check_program(struct sbx_jobs *jobs, const struct sbx_request *req,
                         struct sbx_plan *plan, struct sbx_error *err)
{
	const struct sbx_settings *settings = jobs->settings;

	if (sbx_is_away(jobs->sandbox))
		return settings->allow.n
		               ? allow_word(settings, req->argv[0], plan->env, &plan->program, err)
		               : 0;
	return jobs->allow ? allow_check(jobs->allow, req->argv[0], search_path(plan->env),
	                                 &plan->program, err)
	                   : 0;
}

int sbx_plan_make(struct sbx_jobs *jobs, const struct sbx_request *req, struct sbx_plan *ret,
                  struct sbx_error *err)
{
	_cleanup_free_ char *cwd = NULL;
	struct sbx_plan plan = {0};
	int r = fill_in(jobs, req, &plan, &cwd);

	if (r < 0)
		sbx_fail(err, -r, "out of memory");
	else
		r = sbx_cwd_resolve(jobs, cwd, &plan.cwd, err);
	if (!r)
		r = check_program(jobs, req, &plan, err);
	if (r < 0) {
		sbx_plan_release(&plan);
		return r;
	}
	*ret = plan;
	return 0;
}

void sbx_plan_release(struct sbx_plan *plan)
{
	free(plan->cwd);
	sbx_strv_free(plan->env);
	*plan = (struct sbx_plan){0};
}
