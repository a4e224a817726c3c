/*
 * The verbs of the provider dirs that make, find and remove machines. A machine is made by a
 * process of its own, which goes on when nobody waits for it any more, as a service does.
 */
#include "tests/lib/dirs.h"

#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"
#include "sandboxfs/pool.h"
#include "sandboxfs/tree.h"
#include "tests/lib/dirs_impl.h"

#define DEFAULT_PATH "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
#define RUNS_MOST    256
#define MAKE_MS      120000
#define SILENT_MS    30000 /* how long a client waits for a server that says nothing */
#define STEP_MS      5

/* MACHINE SOURCE BASE BRANCH. It has ended when the state is another than "making". */
static const char maker[] =
        "cd \"$1\" || exit\n"
        "say() { printf '%s\\n' \"$*\" >state.new && mv state.new state; }\n"
        "fail() { say failed \"$@\"; exit; }\n"
        "g() { git -C tree \"$@\"; }\n"
        "mkdir tree room home || fail 5 'the machine has no room'\n"
        "if [ -z \"$2\" ]; then say up; exit; fi\n"
        "if [ -d \"$2\" ] && [ ! -e \"$2/.git\" ] && [ ! -d \"$2/objects\" ]; then\n"
        "  [ -z \"$3\" ] || fail 22 'the source is no repository, so there is no base'\n"
        "  cp -a \"$2/.\" tree || fail 5 'the source cannot be copied'\n"
        "  say up; exit\n"
        "fi\n"
        "git clone -q -- \"$2\" tree || fail 2 'the source cannot be cloned'\n"
        "rev=$(g rev-parse -q --verify \"${3:-HEAD}^{commit}\" ||\n"
        "  g rev-parse -q --verify \"origin/${3:-HEAD}^{commit}\")\n"
        "[ -n \"$rev\" ] || [ -z \"$3\" ] || fail 2 \"there is no commit $3\"\n"
        "[ -z \"$4\" ] || git check-ref-format \"refs/heads/$4\" || fail 22 'no name of a branch'\n"
        "if [ -z \"$rev\" ]; then g symbolic-ref HEAD \"refs/heads/${4:-main}\"\n"
        "elif [ -z \"$4\" ]; then g checkout -q --detach \"$rev\"\n"
        "elif g rev-parse -q --verify \"refs/heads/$4\" || g rev-parse -q --verify "
        "\"refs/remotes/origin/$4\"; then g checkout -q \"$4\"\n"
        "else g checkout -q -b \"$4\" \"$rev\"\n"
        "fi || fail 5 'the branch cannot be checked out'\n"
        "say up\n";
static const char in_background[] = "sh -c \"$0\" sh \"$@\" >log 2>&1 </dev/null &";

/* ---- requests ---- */

static bool is_cancelled(atomic_bool *cancelled)
{
	return cancelled && atomic_load(cancelled);
}

/* -EINTR when it was cancelled meanwhile. */
static int pause_for(uint64_t ms, atomic_bool *cancelled, struct sbx_error *err)
{
	const uint64_t until = sbx_now_ms() + ms;

	for (uint64_t now = sbx_now_ms(); now < until; now = sbx_now_ms()) {
		const uint64_t step = until - now < STEP_MS ? until - now : STEP_MS;

		if (is_cancelled(cancelled))
			return sbx_fail(err, EINTR, "cancelled");
		nanosleep(&(struct timespec){.tv_nsec = (long)step * 1000000}, NULL);
	}
	return 0;
}

int dirs_request(struct dirs *d, const char *machine, const char *verb, const char *op,
                 uint64_t bytes, struct dirs_fault *fault, struct sbx_error *err)
{
	int r = dirs_faults_next(&d->faults, d->dir, machine, verb, op, fault, err);
	_cleanup_free_ char *line =
	        sbx_format("%lld %s %s %s %llu %s\n", (long long)sbx_real_ms(), machine, verb,
	                   *op ? op : "-", (unsigned long long)bytes, dirs_fault_word(fault->kind));
	_cleanup_fd_ int log =
	        openat(d->dir, "requests", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

	if (line && log >= 0)
		sbx_write_all(log, line, strlen(line));
	fault->latency_ms += d->latency_ms;
	return r;
}

/* A request of a verb that waits, up to when it is done there. */
static int begin(struct dirs *d, const char *machine, const char *verb, atomic_bool *cancelled,
                 struct dirs_fault *fault, struct sbx_error *err)
{
	int r = dirs_request(d, machine, verb, "", 0, fault, err);

	if (r == 0)
		r = pause_for(fault->latency_ms, cancelled, err);
	if (r < 0)
		return r;
	switch (fault->kind) {
	case DIRS_BUSY:
		return sbx_fail(err, EAGAIN, "the server is asked too often");
	case DIRS_BROKEN:
		return sbx_fail(err, EREMOTEIO, "the server has failed (500)");
	case DIRS_GIVEN_UP:
		return sbx_fail(err, EINTR, "it was given up");
	case DIRS_BLACKHOLE:
		r = pause_for(dirs_fault_number(fault, SILENT_MS), cancelled, err);
		return r ? r : sbx_fail(err, ETIMEDOUT, "the server does not answer");
	case DIRS_VANISH:
		return dirs_machine_remove(d, machine, err);
	case DIRS_ASLEEP:
		dirs_machine_sleep(d, machine);
		return 0;
	default:
		return 0;
	}
}

/* What becomes of the answer, which is CODE by itself. */
static int end(const struct dirs_fault *fault, int code, atomic_bool *cancelled,
               struct sbx_error *err)
{
	int r;

	if (code)
		return code;
	switch (fault->kind) {
	case DIRS_LOST:
	case DIRS_CUT:
		return sbx_fail(err, EREMOTEIO, "the server's answer was cut");
	case DIRS_STALL:
		r = pause_for(dirs_fault_number(fault, SILENT_MS), cancelled, err);
		return r ? r : sbx_fail(err, ETIMEDOUT, "the server does not answer");
	default:
		return 0;
	}
}

/* ---- making ---- */

static bool is_name(const char *name)
{
	const size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-");

	return n > 0 && n < 128 && name[n] == '\0';
}

static void release(struct sbx_machine *base)
{
	struct dirs_machine *m = dirs_machine_of(base);

	free(m->base.handle);
	free(m->base.workdir);
	free(m->base.room);
	free(m->name);
	free(m->path);
	free(m->home);
	free(m);
}

static int adopt(struct sbx_provider *p, const char *handle, struct sbx_machine **ret,
                 struct sbx_error *err)
{
	struct dirs *d = (struct dirs *)p;
	struct dirs_machine *m;

	if (!is_name(handle))
		return sbx_fail(err, EINVAL, "no handle of a machine: %s", handle);
	m = calloc(1, sizeof(*m));
	if (!m)
		return sbx_no_memory(err);
	m->base.provider = p;
	m->dirs = d;
	m->name = strdup(handle);
	m->base.handle = strdup(handle);
	m->path = sbx_format("%s/machines/%s", d->path, handle);
	m->home = sbx_format("%s/machines/%s/home", d->path, handle);
	m->base.workdir = sbx_format("%s/machines/%s/tree", d->path, handle);
	m->base.room = sbx_format("%s/machines/%s/room", d->path, handle);
	if (!m->name || !m->path || !m->home || !m->base.handle || !m->base.workdir ||
	    !m->base.room) {
		release(&m->base);
		return sbx_no_memory(err);
	}
	*ret = &m->base;
	return 0;
}

/* The directory with its record takes its name whole, so that find never meets half of one. */
static int record(struct dirs *d, const struct sbx_machine_request *req)
{
	_cleanup_free_ char *temp =
	        sbx_format("new-%s-%llu", req->name, (unsigned long long)sbx_now_ns());
	_cleanup_free_ char *meta = sbx_format("name %s\nlabel %s\nmade %lld\n", req->name,
	                                       req->label, (long long)sbx_real_ms());
	_cleanup_fd_ int dir = temp && meta ? sbx_dir_make(d->dir, temp, 0700) : -ENOMEM;
	int r = dir < 0 ? dir : sbx_file_create(dir, "meta", meta);

	if (r == 0)
		r = sbx_file_create(dir, "state", "making\n");
	if (r == 0 && renameat2(d->dir, temp, d->machines, req->name, RENAME_NOREPLACE) < 0)
		r = -errno;
	if (r < 0 && temp)
		sbx_tree_remove(d->dir, temp, NULL);
	return r;
}

static int start_maker(const struct dirs_machine *m, const struct sbx_machine_request *req,
                       struct sbx_error *err)
{
	const char *argv[] = {"sh",
	                      "-c",
	                      in_background,
	                      maker,
	                      m->path,
	                      req->source ? req->source : "",
	                      req->base ? req->base : "",
	                      req->branch ? req->branch : "",
	                      NULL};
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	pid_t pid;
	int r = posix_spawn_file_actions_init(&actions);

	if (r == 0)
		r = posix_spawnattr_init(&attr);
	if (r)
		return sbx_fail(err, r, "a process cannot be made: %s", strerror(r));
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSID);
	posix_spawn_file_actions_addchdir_np(&actions, m->path);
	posix_spawn_file_actions_addclosefrom_np(&actions, 3);
	r = posix_spawnp(&pid, "sh", &actions, &attr, (char *const *)argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	posix_spawnattr_destroy(&attr);
	if (r)
		return sbx_fail(err, r, "sh cannot be started: %s", strerror(r));
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return 0;
}

static int await_made(struct dirs *d, const char *name, atomic_bool *cancelled,
                      struct sbx_error *err)
{
	const uint64_t until = sbx_now_ms() + MAKE_MS;
	char reason[256];
	int code = EREMOTEIO;

	while (sbx_now_ms() < until) {
		if (is_cancelled(cancelled))
			return sbx_fail(err, EINTR, "cancelled");
		switch (dirs_state(d, name, reason, &code)) {
		case SBX_MACHINE_CHANGING:
			break;
		case SBX_MACHINE_FAILED:
			return sbx_fail(err, code, "%s", reason);
		case SBX_MACHINE_GONE:
			return sbx_fail(err, ESTALE, "the machine is gone");
		default:
			return 0;
		}
		pause_for(STEP_MS, NULL, NULL);
	}
	return sbx_fail(err, ETIMEDOUT, "the machine is still being made");
}

static void tell(const struct sbx_machine_request *req)
{
	_cleanup_free_ char *text = sbx_format("copying %s", req->source ? req->source : "nothing");

	if (req->progress && text)
		req->progress(text, req->data);
}

static int make_it(struct dirs *d, const struct sbx_machine_request *req,
                   const struct dirs_machine *m, atomic_bool *cancelled, bool *existed,
                   struct sbx_error *err)
{
	int r = record(d, req);

	*existed = r == -EEXIST;
	if (r < 0 && !*existed)
		return sbx_fail(err, -r, "%s: %s", req->name, strerror(-r));
	tell(req);
	r = *existed ? 0 : start_maker(m, req, err);
	if (r == 0)
		r = await_made(d, req->name, cancelled, err);
	/* One that somebody else makes, or that goes on being made, is left. */
	if (r < 0 && r != -EINTR && r != -ETIMEDOUT && !*existed)
		dirs_machine_remove(d, req->name, NULL);
	return r;
}

/* One whose making was not answered is looked for by its name, and not made again. */
static int look_for(struct dirs *d, const char *name, atomic_bool *cancelled, struct sbx_error *err)
{
	struct sbx_error own = SBX_ERROR_INIT;
	struct dirs_fault fault;
	char reason[256];
	int r = begin(d, name, "find", cancelled, &fault, &own);

	if (r == 0 && dirs_state(d, name, reason, NULL) == SBX_MACHINE_GONE)
		r = -ESTALE;
	if (end(&fault, r, cancelled, &own) < 0)
		return -EREMOTEIO;
	*err = SBX_ERROR_INIT;
	return 0;
}

/* ARG ms later there is the directory TEMP as machines/NAME. */
static const char come[] = "(sleep $(($0 / 1000)).$(($0 % 1000 / 100)); mv -T \"$1\" "
                           "\"machines/$2\") >/dev/null 2>&1 </dev/null &";

/* The request is carried out when nobody waits for it any more. */
static int make_late(struct dirs *d, const struct sbx_machine_request *req,
                     const struct dirs_fault *fault, atomic_bool *cancelled, struct sbx_error *err)
{
	_cleanup_free_ char *temp = sbx_format("late-%s", req->name);
	_cleanup_free_ char *machine = sbx_format("machines/%s", req->name);
	const char *argv[] = {"sh", "-c", come, fault->arg, temp, req->name, NULL};
	posix_spawn_file_actions_t actions;
	pid_t pid;
	int r = record(d, req);

	if (r < 0 || renameat(d->dir, machine, d->dir, temp) < 0)
		return sbx_fail(err, EIO, "no machine can be made late");
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addchdir_np(&actions, d->path);
	posix_spawn_file_actions_addclosefrom_np(&actions, 3);
	r = posix_spawnp(&pid, "sh", &actions, NULL, (char *const *)argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	if (r)
		return sbx_fail(err, r, "sh cannot be started: %s", strerror(r));
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	r = pause_for(SILENT_MS, cancelled, err);
	return r ? r : sbx_fail(err, ETIMEDOUT, "the server does not answer");
}

static int make(struct sbx_provider *p, const struct sbx_machine_request *req,
                struct sbx_machine **ret, atomic_bool *cancelled, struct sbx_error *err)
{
	struct dirs *d = (struct dirs *)p;
	struct sbx_machine *m = NULL;
	struct dirs_fault fault;
	bool existed = false;
	int r = adopt(p, req->name, &m, err);

	if (r < 0)
		return r;
	r = begin(d, req->name, "make", cancelled, &fault, err);
	if (r == 0 && fault.kind == DIRS_LATE)
		r = make_late(d, req, &fault, cancelled, err);
	else if (r == 0)
		r = make_it(d, req, dirs_machine_of(m), cancelled, &existed, err);
	if (r == 0 && fault.kind == DIRS_VANISH)
		r = dirs_machine_remove(d, req->name, err);
	r = end(&fault, r, cancelled, err);
	if (r < 0 && (fault.kind == DIRS_LOST || fault.kind == DIRS_CUT) && !existed)
		r = look_for(d, req->name, cancelled, err);
	if (r < 0) {
		release(m);
		return r;
	}
	*ret = m;
	return existed ? sbx_fail(err, EEXIST, "there is a machine %s already", req->name) : 0;
}

/* ---- looking and removing ---- */

static int look(struct sbx_machine *base, struct sbx_machine_look *ret, atomic_bool *cancelled,
                struct sbx_error *err)
{
	struct dirs_machine *m = dirs_machine_of(base);
	_cleanup_free_ char *meta = sbx_format("%s/meta", m->name);
	struct dirs_fault fault;
	struct stat st;
	int r = begin(m->dirs, m->name, "look", cancelled, &fault, err);

	if (r < 0)
		return r;
	*ret = (struct sbx_machine_look){
	        .cpus = 2, .memory_mb = 1024, .disk_mb = 8192, .region = "here"};
	ret->state = dirs_state(m->dirs, m->name, ret->reason, NULL);
	if (m->dirs->impl.idle_ms && meta && fstatat(m->dirs->machines, meta, &st, 0) == 0)
		ret->expires_ms = (int64_t)(sbx_timespec_ns(&st.st_mtim) / 1000000) +
		                  (int64_t)m->dirs->impl.idle_ms;
	return end(&fault, 0, cancelled, err);
}

static int unmake(struct sbx_provider *p, const char *name, const char *handle,
                  atomic_bool *cancelled, struct sbx_error *err)
{
	struct dirs *d = (struct dirs *)p;
	struct dirs_fault fault;
	int r;

	(void)handle;
	if (!is_name(name))
		return sbx_fail(err, EINVAL, "no name of a machine: %s", name);
	r = begin(d, name, "unmake", cancelled, &fault, err);
	if (r == 0)
		r = dirs_machine_remove(d, name, err);
	return end(&fault, r, cancelled, err);
}

static int touch(struct sbx_machine *base, atomic_bool *cancelled, struct sbx_error *err)
{
	struct dirs_machine *m = dirs_machine_of(base);
	_cleanup_free_ char *meta = sbx_format("%s/meta", m->name);
	struct dirs_fault fault;
	int r = begin(m->dirs, m->name, "touch", cancelled, &fault, err);

	if (r == 0 && !meta)
		r = sbx_no_memory(err);
	if (r == 0 && utimensat(m->dirs->machines, meta, NULL, 0) < 0)
		r = sbx_fail(err, ESTALE, "the machine is gone");
	return end(&fault, r, cancelled, err);
}

struct finding {
	struct dirs *dirs;
	const char *label;
	int (*fn)(const char *name, const char *handle, int64_t made_ms, void *data);
	void *data;
};

static int find_one(const char *name, unsigned char type, void *data)
{
	struct finding *f = data;
	_cleanup_free_ char *path = sbx_format("%s/meta", name), *text = NULL;
	char label[128] = "";
	long long made;

	(void)type;
	if (!path || sbx_file_read(f->dirs->machines, path, 4096, &text) < 0 ||
	    sscanf(text, "name %*s label %127s made %lld", label, &made) != 2 ||
	    strcmp(label, f->label) != 0)
		return 0;
	return f->fn(name, name, made, f->data);
}

static int find(struct sbx_provider *p, const char *label,
                int (*fn)(const char *name, const char *handle, int64_t made_ms, void *data),
                void *data, struct sbx_error *err)
{
	struct dirs *d = (struct dirs *)p;
	struct finding f = {d, label, fn, data};
	struct dirs_fault fault;
	_cleanup_fd_ int dir = -1;
	int r = begin(d, "-", "find", NULL, &fault, err);

	if (r == 0)
		r = end(&fault, 0, NULL, err);
	if (r < 0)
		return r;
	dir = sbx_dir_open(d->dir, "machines");
	return dir < 0 ? sbx_fail(err, -dir, "%s: %s", d->path, strerror(-dir))
	               : sbx_dir_scan(dir, find_one, &f);
}

static void info(struct sbx_provider *p, struct json_object *obj)
{
	json_object_object_add(obj, "base", json_object_new_string(((struct dirs *)p)->path));
}

/* ---- the provider ---- */

static void destroy(struct sbx_provider *p)
{
	struct dirs *d = (struct dirs *)p;

	sbx_pool_destroy(d->pool);
	dirs_faults_release(&d->faults);
	sbx_cleanup_fd(&d->dir);
	sbx_cleanup_fd(&d->machines);
	free(d->path);
	free(d->shell);
	free(d->search);
	free(d);
}

static const struct sbx_provider_impl verbs = {
        .name = "dirs",
        .make = make,
        .adopt = adopt,
        .release = release,
        .look = look,
        .unmake = unmake,
        .find = find,
        .touch = touch,
        .run = dirs_run,
        .cancel_run = dirs_cancel_run,
        .put = dirs_put,
        .cancel_put = dirs_cancel_put,
        .info = info,
        .destroy = destroy,
};

/* Of the words of SBX_DIRS_CAN. */
static unsigned read_can(const char *words)
{
	static const char *const names[] = {"detaches",       "parallel",      "sleeps",
	                                    "blocks_network", "filters_hosts", "ephemeral",
	                                    "merges",         "continues"};
	unsigned can = 0;

	for (; *words; words += strspn(words, " ")) {
		const size_t n = strcspn(words, " ");

		for (size_t i = 0; i < SBX_ARRAY_SIZE(names); i++)
			if (strlen(names[i]) == n && strncmp(names[i], words, n) == 0)
				can |= 1u << i;
		words += n;
	}
	return can;
}

static const char *setting(const char *name, const char *fallback)
{
	const char *value = getenv(name);

	return value ? value : fallback;
}

static int open_base(struct dirs *d, const char *base)
{
	if (mkdir(base, 0700) < 0 && errno != EEXIST)
		return -errno;
	d->dir = sbx_dir_open(AT_FDCWD, base);
	if (d->dir < 0)
		return d->dir;
	d->machines = sbx_dir_make(d->dir, "machines", 0700);
	if (d->machines < 0)
		return d->machines;
	d->path = realpath(base, NULL);
	return d->path ? 0 : -errno;
}

int dirs_create(const char *base, struct sbx_loop *loop, struct sbx_provider **ret,
                struct sbx_error *err)
{
	struct dirs *d = calloc(1, sizeof(*d));
	int r;

	if (!d)
		return sbx_no_memory(err);
	d->impl = verbs;
	d->impl.can = read_can(setting("SBX_DIRS_CAN", "detaches parallel sleeps continues"));
	d->base.impl = &d->impl;
	d->loop = loop;
	d->dir = d->machines = -1;
	d->impl.idle_ms = strtoull(setting("SBX_DIRS_LIFE", "0"), NULL, 10);
	d->latency_ms = strtoull(setting("SBX_DIRS_LATENCY", "0"), NULL, 10);
	d->shell = strdup(setting("SBX_DIRS_SHELL", "sh"));
	d->search = strdup(setting("SBX_DIRS_PATH", DEFAULT_PATH));
	pthread_mutex_init(&d->faults.lock, NULL);
	r = d->shell && d->search ? open_base(d, base) : -ENOMEM;
	if (r == 0)
		r = sbx_pool_create_wide(RUNS_MOST, false, &d->pool);
	if (r < 0) {
		destroy(&d->base);
		return sbx_fail(err, -r, "%s: %s", base, strerror(-r));
	}
	*ret = &d->base;
	return 0;
}
