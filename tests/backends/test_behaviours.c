/*
 * The promises of every backend, whatever its sandboxes are made of. The rows of the table hold
 * the differences.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backends/support/tree.h"
#include "sandboxfs/away.h"
#include "sandboxfs/backend.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/http.h"
#include "sandboxfs/loop.h"
#include "sandboxfs/pool.h"
#include "sandboxfs/secret.h"
#include "tests/lib/cloud_servers.h"
#include "tests/lib/dirs.h"
#include "tests/lib/repo.h"
#include "tests/lib/scratch.h"
#include "tests/lib/spawner_stub.h"

/* examples/backend.c */
int sbx_example_open(const struct sbx_host *host, struct sbx_backend **ret, struct sbx_error *err);

enum table {
	COMMANDS = 1,
	STORAGE = 2,
	GIT = 4,
	HISTORY = 8,
	REMOTE = 16,
	EVERY_TABLE = 31,
	REMOTE_TABLES = EVERY_TABLE & ~STORAGE,
};

struct row {
	const char *label;
	const char *backend; /* NULL: OPEN has no name that a mount may give */
	int (*open)(const struct sbx_host *host, struct sbx_backend **ret, struct sbx_error *err);
	unsigned tables;
	const char *kind; /* as info says; also what the source is */
	bool forks;       /* sandboxes start as others, too */
	bool persistent;  /* sandboxes outlive the daemon */
	bool traced;
	bool overlaid; /* where this machine can */
	/*
	 * Sandboxes are elsewhere: create only begins to make them, their files come when they are
	 * wanted, and commands are run by no spawner. It needs a loop.
	 */
	bool away;
	bool cloud;    /* behind a service, which a server of lib/cloud_servers.h stands in for */
	bool open_net; /* commands cannot be kept from the network: net=none is refused */
};

#define ELSEWHERE(name, of, made, ...)                                                             \
	{                                                                                          \
		.label = name, .backend = of, .tables = REMOTE_TABLES, .kind = made,               \
		.persistent = true, .away = true, __VA_ARGS__                                      \
	}

static const struct row rows[] = {
        {"example", NULL, sbx_example_open, 0, "none", false, true, false},
        {"memory", "memory", NULL, COMMANDS, "none", false, false, false},
        {"local-none", "local", NULL, EVERY_TABLE, "none", true, true, false},
        {"local-dir", "local", NULL, EVERY_TABLE, "dir", true, true, false},
        {"local-git", "local", NULL, EVERY_TABLE, "git", true, true, false},
        {"local-git-traced", "local", NULL, EVERY_TABLE, "git", true, true, true},
        {"local-dir-layered", "local", NULL, EVERY_TABLE, "dir", true, true, false, true},
        {"local-git-layered", "local", NULL, EVERY_TABLE, "git", true, true, false, true},
#ifdef SBX_DIRS
        ELSEWHERE("dirs-none", "dirs", "none", .open_net = true),
        ELSEWHERE("dirs-dir", "dirs", "dir", .open_net = true),
        ELSEWHERE("dirs-git", "dirs", "git", .open_net = true),
        ELSEWHERE("dirs-git-traced", "dirs", "git", .open_net = true, .traced = true),
#endif
        ELSEWHERE("daytona-none", "daytona", "none", .cloud = true),
        ELSEWHERE("daytona-git", "daytona", "git", .cloud = true),
        ELSEWHERE("vercel-none", "vercel", "none", .cloud = true, .forks = true),
        ELSEWHERE("vercel-git", "vercel", "git", .cloud = true, .forks = true),
        ELSEWHERE("dagger-none", "dagger", "none", .cloud = true, .open_net = true, .forks = true),
        ELSEWHERE("dagger-git", "dagger", "git", .cloud = true, .open_net = true, .forks = true),
};

/* A behaviour of a row, and how it went: a letter of the table that is printed in the end. */
struct a_case {
	const struct row *row;
	CMUnitTestFunction fn;
	enum mark { FAILED = '!', PASSED = '+', REFUSED = '-', NOT_ASKED = '.' } mark;
};

/* What one test works with. */
static struct {
	const struct row *row;
	enum mark mark; /* of a test that comes to its end */
	struct {
		const char *name;
		struct sbx_secret *value;
	} secrets[4];
	struct sbx_settings settings;
	struct sbx_host host;
	struct sbx_spawner spawner;
	struct sbx_backend *backend;
	pthread_t loop_thread;
	struct sbx_sandbox *found[8], *leaving[8];
	int nfound, nleaving, notes, fds;
} t;

static bool is_local(void)
{
	return t.row->backend && strcmp(t.row->backend, "local") == 0;
}

static bool is_git(void)
{
	return strcmp(t.row->kind, "git") == 0;
}

/* As the row says; that it is so has been seen. */
static void is_refused(void)
{
	t.mark = REFUSED;
}

/* It is about something that the row has not at all. */
static void is_not_asked(void)
{
	t.mark = NOT_ASKED;
}

static void make_source(void)
{
	const char *path = scratch_path("source");

	if (strcmp(t.row->kind, "none") == 0)
		return;
	if (is_git())
		repo_init(path, false);
	else
		scratch_mkdir(path);
	scratch_write(scratch_path("source/file"), "content\n");
	scratch_mkdir(scratch_path("source/sub"));
	scratch_write(scratch_path("source/sub/run"), "#!/bin/true\n");
	assert_int_equal(chmod(scratch_path("source/sub/run"), 0755), 0);
	assert_int_equal(symlink("file", scratch_path("source/link")), 0);
	if (is_git())
		repo_commit(path, "first");
	if (!t.row->cloud) {
		t.settings.source = t.settings.source_abs = strdup(path);
		return;
	}
	cloud_publish(path);
	t.settings.source = strdup(cloud_source());
}

static int try_open(struct sbx_backend **ret, struct sbx_error *err)
{
	return t.row->open ? t.row->open(&t.host, ret, err) : sbx_backend_open(&t.host, ret, err);
}

static void *run_loop(void *data)
{
	sbx_loop_run(data);
	return NULL;
}

static const struct sbx_secret *find_secret(const char *name, void *data)
{
	(void)data;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(t.secrets); i++)
		if (t.secrets[i].name && strcmp(t.secrets[i].name, name) == 0)
			return t.secrets[i].value;
	return NULL;
}

static void keep_secret(size_t i, const char *name)
{
	const char *text = cloud_secret(name);

	assert_true(i < SBX_ARRAY_SIZE(t.secrets));
	t.secrets[i].name = name;
	if (text)
		assert_int_equal(sbx_secret_make(text, &t.secrets[i].value), 0);
}

/* Anew in each process: a fork does not copy secrets. */
static void keep_secrets(void)
{
	const char *const *names = sbx_backend_secrets(&t.settings);
	size_t n = 0;

	keep_secret(n++, "GITHUB_TOKEN");
	while (*names)
		keep_secret(n++, *names++);
	t.host.secret = find_secret;
}

static void drop_secrets(void)
{
	for (size_t i = 0; i < SBX_ARRAY_SIZE(t.secrets); i++)
		sbx_secret_free(t.secrets[i].value);
	memset(t.secrets, 0, sizeof(t.secrets));
}

static void start_loop(void)
{
	assert_int_equal(sbx_loop_create(&t.host.loop), 0);
	if (t.row->cloud) {
		const struct sbx_http_config config = {.loop = t.host.loop};

		assert_int_equal(sbx_http_create(&config, &t.host.http), 0);
		assert_int_equal(sbx_pool_create_wide(64, false, &t.host.pool), 0);
		keep_secrets();
	}
	assert_int_equal(pthread_create(&t.loop_thread, NULL, run_loop, t.host.loop), 0);
}

static int try_open_backend(struct sbx_error *err)
{
	if (t.row->away)
		start_loop();
	return try_open(&t.backend, err);
}

static void open_backend(void)
{
	struct sbx_error err = SBX_ERROR_INIT;

	if (try_open_backend(&err))
		fail_msg("open: %s", err.text);
}

/* As the daemon does: nothing runs any more when it goes. */
static void close_backend(void)
{
	sbx_pool_destroy(t.host.pool);
	if (t.host.loop) {
		sbx_loop_stop(t.host.loop);
		pthread_join(t.loop_thread, NULL);
	}
	sbx_http_stop(t.host.http);
	sbx_backend_destroy(t.backend);
	sbx_loop_destroy(t.host.loop);
	sbx_http_destroy(t.host.http);
	drop_secrets();
	t.backend = NULL;
	t.host.loop = NULL;
	t.host.http = NULL;
	t.host.pool = NULL;
}

/* A program that the killed one was about to start has its descriptors, and with them the lock of
 * the state, until it is executed. */
static void open_behind_a_killed(void)
{
	struct sbx_error err = SBX_ERROR_INIT;

	for (int tries = 5000; try_open_backend(&err); tries--) {
		if (err.code != EBUSY || !tries)
			fail_msg("open: %s", err.text);
		close_backend();
		usleep(1000);
	}
}

static void found(struct sbx_sandbox *sb, void *data)
{
	(void)data;
	assert_true(t.nfound < 8);
	sbx_away_begin(sb);
	t.found[t.nfound++] = sb;
}

static void leaving(struct sbx_sandbox *sb, void *data)
{
	(void)data;
	assert_true(t.nleaving < 8);
	sbx_away_begin(sb);
	t.leaving[t.nleaving++] = sb;
}

static void note(const char *text, void *data)
{
	(void)data;
	assert_true(*text != '\0' && !strchr(text, '\n'));
	print_message("# %s\n", text);
	t.notes++;
}

/* What is half torn down goes now, as it does in a mount. */
static void finish_leaving(void)
{
	struct sbx_error err = SBX_ERROR_INIT;

	while (t.nleaving) {
		struct sbx_sandbox *sb = t.leaving[--t.nleaving];

		if (sbx_sandbox_remove(sb, &err))
			fail_msg("remove: %s", err.text);
		sbx_sandbox_close(sb);
	}
}

/* A machine is not asked before there is a mount, so no teardown of one is finished by then. */
static void recover(void)
{
	struct sbx_recover r = {
	        .found = found, .note = note, .leaving = t.row->away ? leaving : NULL};
	struct sbx_error err = SBX_ERROR_INIT;

	t.nfound = t.nleaving = t.notes = 0;
	if (sbx_backend_recover(t.backend, &r, &err))
		fail_msg("recover: %s", err.text);
	sbx_backend_begin(t.backend);
	finish_leaving();
}

/* Frees the object of a sandbox that stays, as the daemon does when its mount ends. */
static void let_go(struct sbx_sandbox *sb)
{
	if (sbx_is_away(sb))
		sb->impl->away->rest(sb, 20000);
	sbx_sandbox_close(sb);
}

static void close_found(void)
{
	while (t.nfound)
		let_go(t.found[--t.nfound]);
}

static int setup(void **state)
{
	memset(&t, 0, sizeof(t));
	t.row = ((const struct a_case *)*state)->row;
	t.mark = PASSED;
	if (t.row->cloud)
		cloud_start(t.row->backend);
	else
		cloud_stop();
	t.fds = scratch_descriptors();
	scratch_make();
	t.settings.backend = t.row->backend ? strdup(t.row->backend) : NULL;
	t.settings.state_dir = strdup(scratch_path("state"));
	t.settings.mountpoint = strdup(scratch_path("mnt"));
	t.settings.debug = t.row->traced;
	t.settings.net = strdup(t.row->open_net ? "host" : "none");
	t.settings.cache_dir = strdup(scratch_path("cache"));
	t.settings.cache_mb = 100;
	t.spawner.has_room = t.row->overlaid;
	setenv("SBX_DIRS", scratch_path("machines"), 1);
	scratch_mkdir(t.settings.mountpoint);
	if (t.row->open)
		scratch_mkdir(t.settings.state_dir);
	make_source();
	t.host = (struct sbx_host){.settings = &t.settings, .spawner = &t.spawner};
	open_backend();
	recover();
	assert_int_equal(t.nfound, 0);
	/* Memory is one place for all daemons of a user: one that was killed may have left
	 * something. */
	assert_true(t.notes == 0 || !t.row->persistent);
	return 0;
}

/* The server has seen the last of the backend. */
static void leave_cloud(void)
{
	const char *left = cloud_living(), *wrong = cloud_violations();

	cloud_clear();
	assert_string_equal(left, "");
	assert_string_equal(wrong, "");
}

/* Nothing may be left of a test that has torn its sandboxes down. */
static int teardown(void **state)
{
	(void)state;
	close_found();
	close_backend();
	if (t.row->cloud)
		leave_cloud();
	assert_int_equal(scratch_descriptors(), t.fds);
	free(t.settings.backend);
	free(t.settings.net);
	free(t.settings.state_dir);
	free(t.settings.mountpoint);
	free(t.settings.cache_dir);
	free(t.settings.source);
	scratch_remove();
	return 0;
}

/* Neither here nor where the machines are. */
static void expect_no_machine(void)
{
	assert_int_equal(scratch_count(scratch_path("state/remote")), 0);
	if (strcmp(t.row->backend, "dirs") == 0)
		assert_int_equal(scratch_count(scratch_path("machines/machines")), 0);
	if (strcmp(t.row->backend, "dagger") == 0)
		assert_int_equal(scratch_count(scratch_path("state/dagger")), 0);
	if (t.row->cloud)
		assert_string_equal(cloud_living(), "");
}

static void expect_empty_state(void)
{
	if (!t.row->persistent)
		return;
	if (t.row->away) {
		expect_no_machine();
		return;
	}
	if (!is_local()) {
		assert_int_equal(scratch_count(scratch_path("state/sandboxes")), 0);
		return;
	}
	assert_int_equal(scratch_count(scratch_path("state/meta")), 0);
	assert_int_equal(scratch_count(scratch_path("state/trees")), 0);
	assert_int_equal(scratch_count(scratch_path("state/trash")), 0);
	assert_int_equal(scratch_count(scratch_path("state/home")), 0);
	assert_int_equal(scratch_count(scratch_path("state/git")), 0);
	assert_int_equal(scratch_count(scratch_path("state/nested")), 0);
	if (is_git()) {
		assert_int_equal(scratch_count(scratch_path("source/.git/worktrees")), -1);
		assert_int_equal(repo_branches(t.settings.source_abs), 1);
	}
}

struct waiting {
	struct sbx_want want;
	sem_t ended;
	int code;
	struct sbx_error err;
};

static void on_wanted(struct sbx_want *w, int code, const struct sbx_error *err)
{
	struct waiting *waiting = w->data;

	waiting->code = -abs(code);
	if (err)
		waiting->err = *err;
	sem_post(&waiting->ended);
}

/* Waits until it is here. A want that ends well may be too early, so it is looked again. */
static int want(struct sbx_sandbox *sb, enum sbx_need need, const char *path, struct sbx_error *err)
{
	struct waiting w = {.want = {.need = need, .path = path, .done = on_wanted, .data = &w}};
	struct stat st = {0};

	if (!sbx_is_away(sb))
		return 0;
	sem_init(&w.ended, 0, 0);
	while (w.code == 0) {
		if (need != SBX_NEED_UP &&
		    fstatat(sbx_sandbox_root(sb), path, &st, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW))
			return -errno;
		w.want.ino = st.st_ino;
		if (sbx_away_here(sb, w.want.ino, need, 0, 0))
			break;
		sb->impl->away->want(sb, &w.want);
		while (sem_wait(&w.ended) < 0)
			;
	}
	sem_destroy(&w.ended);
	if (err)
		*err = w.err;
	return w.code;
}

static void take_down(struct sbx_sandbox *sb);

/* Creates a sandbox, and waits until it is made, which elsewhere comes later. */
static int try_create(const struct sbx_create *req, struct sbx_sandbox **ret, struct sbx_error *err)
{
	int r = sbx_backend_create(t.backend, req, ret, err);

	if (r == 0) {
		sbx_away_begin(*ret);
		r = want(*ret, SBX_NEED_UP, "", err);
	}
	if (r < 0 && *ret) {
		take_down(*ret);
		*ret = NULL;
	}
	return r;
}

static struct sbx_sandbox *create(const char *name)
{
	struct sbx_create req = {.name = name};
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_sandbox *sb = NULL;

	if (try_create(&req, &sb, &err) || want(sb, SBX_NEED_NAMES, "", &err))
		fail_msg("create %s: %s", name, err.text);
	return sb;
}

static void take_down(struct sbx_sandbox *sb)
{
	struct sbx_error err = SBX_ERROR_INIT;

	if (sbx_sandbox_retire(sb, &err))
		fail_msg("retire: %s", err.text);
	if (sbx_sandbox_remove(sb, &err))
		fail_msg("remove: %s", err.text);
	sbx_sandbox_close(sb);
}

/* The tree as it is seen by path, if only by the root's descriptor. */
static const char *seen_at(struct sbx_sandbox *sb)
{
	static char buf[4][64];
	static int turn;
	char *p = buf[turn++ % 4];

	if (!sb->tree.mounted && !t.row->away)
		return sb->workdir;
	snprintf(p, sizeof(buf[0]), "/proc/self/fd/%d", sbx_sandbox_root(sb));
	return p;
}

/* libgit2 looks for the files of a worktree where its entry says, which is nowhere on the host. */
static void expect_clean(struct sbx_sandbox *sb)
{
	if (is_git() && !sb->tree.mounted && !t.row->away)
		assert_int_equal(repo_changes(repo_link(sb->workdir, sbx_sandbox_gitfile(sb))), 0);
}

static const char *inside(struct sbx_sandbox *sb, const char *path)
{
	static char buf[4][8192];
	static int turn;
	char *p = buf[turn++ % 4];

	snprintf(p, sizeof(buf[0]), "%s/%s", seen_at(sb), path);
	return p;
}

/* Has the file PATH here; its directory comes first. */
static void bring(struct sbx_sandbox *sb, const char *dir, const char *path)
{
	struct sbx_error err = SBX_ERROR_INIT;

	if (want(sb, SBX_NEED_NAMES, dir, &err) || want(sb, SBX_NEED_DATA, path, &err))
		fail_msg("%s: %s", path, err.text);
}

/* Makes the file NAME as the mount does, which tells of it. */
static void write_file(struct sbx_sandbox *sb, const char *name, const char *text)
{
	struct sbx_change c = {.path = name, .mode = S_IFREG | 0644};
	struct stat st;

	if (!sbx_is_away(sb)) {
		scratch_write(inside(sb, name), text);
		return;
	}
	pthread_rwlock_rdlock(sb->turn);
	assert_int_equal(sb->impl->away->admit(sb, NULL, NULL), 0);
	scratch_write(inside(sb, name), "");
	assert_int_equal(fstatat(sbx_sandbox_root(sb), name, &st, 0), 0);
	c.ino = st.st_ino;
	c.kind = SBX_CHANGE_MADE;
	sb->impl->away->changed(sb, &c);
	assert_int_equal(sb->impl->away->admit(sb, NULL, NULL), 0);
	c.kind = SBX_CHANGE_DATA;
	sb->impl->away->changed(sb, &c);
	scratch_write(inside(sb, name), text);
	pthread_rwlock_unlock(sb->turn);
}

static void create_gives_a_tree_that_root_and_workdir_both_name(void **state)
{
	struct sbx_sandbox *sb = create("one");
	struct stat by_fd, by_path;

	(void)state;
	assert_string_equal(sb->name, "one");
	assert_int_equal(strspn(sb->id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	                                "0123456789._-"),
	                 strlen(sb->id));
	assert_int_equal(sb->workdir[0], '/');
	assert_true(sb->created_ms > 1500000000000);
	assert_int_equal(fstat(sbx_sandbox_root(sb), &by_fd), 0);
	assert_int_equal(stat(seen_at(sb), &by_path), 0);
	assert_true(S_ISDIR(by_fd.st_mode));
	assert_int_equal(by_fd.st_ino, by_path.st_ino);
	scratch_write(inside(sb, "new"), "mine");
	assert_int_equal(faccessat(sbx_sandbox_root(sb), "new", F_OK, 0), 0);
	take_down(sb);
	expect_empty_state();
}

static void create_fills_the_tree_from_the_source(void **state)
{
	struct sbx_sandbox *sb = create("one");
	struct stat st;
	char target[8] = "";

	(void)state;
	if (strcmp(t.row->kind, "none") == 0) {
		assert_int_equal(scratch_count(inside(sb, ".")), 0);
	} else {
		bring(sb, "", "file");
		bring(sb, "sub", "sub/run");
		scratch_expect(inside(sb, "file"), "content\n");
		assert_int_equal(lstat(inside(sb, "sub/run"), &st), 0);
		assert_int_equal(st.st_mode & 0111, 0111);
		assert_int_equal(readlink(inside(sb, "link"), target, sizeof(target)), 4);
		assert_string_equal(target, "file");
	}
	expect_clean(sb);
	take_down(sb);
	expect_empty_state();
}

static void sandboxes_do_not_see_each_other(void **state)
{
	struct sbx_sandbox *a = create("a"), *b = create("b");

	(void)state;
	assert_string_not_equal(a->id, b->id);
	scratch_write(inside(a, "only-in-a"), "");
	assert_false(scratch_exists(inside(b, "only-in-a")));
	take_down(a);
	assert_true(scratch_exists(b->workdir));
	take_down(b);
	expect_empty_state();
}

static void a_bad_name_is_refused(void **state)
{
	static const char *const names[] = {"",    ".",      "..",       "-a",  "a/b",
	                                    "ctl", "README", "SKILL.md", "a\nb"};

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(names); i++) {
		struct sbx_error err = SBX_ERROR_INIT;
		struct sbx_sandbox *sb = NULL;

		assert_int_equal(sbx_backend_create(t.backend,
		                                    &(struct sbx_create){.name = names[i]}, &sb,
		                                    &err),
		                 -EINVAL);
		assert_int_equal(err.code, EINVAL);
		assert_true(err.text[0] != '\0');
		assert_null(sb);
	}
	expect_empty_state();
}

static void base_and_branch_need_a_repository(void **state)
{
	struct sbx_sandbox *sb = NULL;
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_create base = {.name = "x", .origin.base = "no-such-commit"};
	struct sbx_create branch = {.name = "x", .branch = "bad..branch"};

	(void)state;
	assert_int_equal(try_create(&base, &sb, &err), is_git() ? -ENOENT : -EINVAL);
	assert_true(err.text[0] != '\0');
	assert_int_equal(try_create(&branch, &sb, &err), -EINVAL);
	assert_null(sb);
	expect_empty_state();
}

/* KNOWN: there are such origins, and this one is not there. */
static void expect_refused(struct sbx_origin origin, bool known)
{
	struct sbx_create req = {.name = "x", .origin = origin};
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_sandbox *sb = NULL;

	assert_int_equal(sbx_backend_create(t.backend, &req, &sb, &err),
	                 known ? -ENOENT : -EOPNOTSUPP);
	assert_true(err.text[0] != '\0');
	assert_null(sb);
}

/* Nothing is kept here of one that was elsewhere. */
static void an_origin_that_is_not_there_is_refused(void **state)
{
	struct sbx_sandbox *sb = create("a");

	(void)state;
	expect_refused((struct sbx_origin){.kind = SBX_ORIGIN_SNAPSHOT,
	                                   .sandbox = sb,
	                                   .rev = "0123456789"},
	               t.row->forks);
	expect_refused((struct sbx_origin){.kind = SBX_ORIGIN_TRASH, .entry = "a-20260101T000000Z"},
	               t.row->forks && !t.row->away);
	take_down(sb);
	expect_empty_state();
}

static struct sbx_sandbox *fork_of(struct sbx_sandbox *sb, const char *name, const char *rev)
{
	struct sbx_create req = {.name = name,
	                         .origin = {.kind = rev ? SBX_ORIGIN_SNAPSHOT : SBX_ORIGIN_SANDBOX,
	                                    .sandbox = sb,
	                                    .rev = rev}};
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_sandbox *ret = NULL;

	if (try_create(&req, &ret, &err) || want(ret, SBX_NEED_NAMES, "", &err))
		fail_msg("fork %s of %s: %s", name, rev ? rev : "all", err.text);
	return ret;
}

/* Elsewhere git knows what it was. */
static void a_fork_starts_as_its_origin_is_or_was(void **state)
{
	struct sbx_sandbox *a, *now, *then;

	(void)state;
	a = create("a");
	if (!t.row->forks) {
		expect_refused((struct sbx_origin){.kind = SBX_ORIGIN_SANDBOX, .sandbox = a},
		               false);
		is_refused();
		take_down(a);
		return;
	}
	write_file(a, "new", "mine");
	now = fork_of(a, "now", NULL);
	bring(now, "", "new");
	scratch_expect(inside(now, "new"), "mine");
	write_file(now, "its own", "x");
	assert_false(scratch_exists(inside(a, "its own")));
	if (t.row->away && !is_git()) {
		expect_refused((struct sbx_origin){.kind = SBX_ORIGIN_SNAPSHOT,
		                                   .sandbox = a,
		                                   .rev = "base"},
		               false);
	} else {
		then = fork_of(a, "then", "base");
		assert_false(scratch_exists(inside(then, "new")));
		take_down(then);
	}
	take_down(a);
	scratch_expect(inside(now, "new"), "mine");
	take_down(now);
	expect_empty_state();
}

static void a_cancelled_create_leaves_nothing(void **state)
{
	atomic_bool cancelled = true;
	struct sbx_create req = {.name = "x", .cancelled = &cancelled};
	struct sbx_sandbox *sb = NULL;
	struct sbx_error err = SBX_ERROR_INIT;

	(void)state;
	assert_int_equal(sbx_backend_create(t.backend, &req, &sb, &err), -EINTR);
	assert_int_equal(err.code, EINTR);
	assert_null(sb);
	expect_empty_state();
}

static void a_create_without_descriptors_says_so_and_leaves_nothing(void **state)
{
	struct rlimit old, few;
	int tried = 0, r;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	few = old;
	do {
		struct sbx_sandbox *sb = NULL;
		struct sbx_error err = SBX_ERROR_INIT;

		few.rlim_cur = (rlim_t)(scratch_descriptors() - 1 + tried);
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
		r = sbx_backend_create(t.backend, &(struct sbx_create){.name = "x"}, &sb, &err);
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
		if (r) {
			assert_int_equal(r, -EMFILE);
			expect_empty_state();
		} else {
			take_down(sb);
		}
	} while (r && tried++ < 50);
	assert_int_equal(r, 0);
	assert_true(tried > 0);
	expect_empty_state();
}

static void rename_changes_nothing_but_the_name(void **state)
{
	struct sbx_sandbox *sb = create("old");
	struct sbx_error err = SBX_ERROR_INIT;
	char *id = strdup(sb->id), *workdir = strdup(sb->workdir);

	(void)state;
	assert_int_equal(sbx_sandbox_rename(sb, "new", &err), 0);
	assert_string_equal(sb->name, "new");
	assert_string_equal(sb->id, id);
	assert_string_equal(sb->workdir, workdir);
	assert_true(scratch_exists(workdir));
	assert_int_equal(sbx_sandbox_rename(sb, "ctl", &err), -EINVAL);
	assert_string_equal(sb->name, "new");
	take_down(sb);
	expect_empty_state();
	free(id);
	free(workdir);
}

static void a_retired_name_is_free_at_once(void **state)
{
	struct sbx_sandbox *old = create("x"), *new;

	(void)state;
	assert_int_equal(sbx_sandbox_retire(old, NULL), 0);
	/* A machine is removed in the second half. */
	assert_true(t.row->away || !scratch_exists(old->workdir));
	new = create("x");
	assert_int_equal(sbx_sandbox_remove(old, NULL), 0);
	sbx_sandbox_close(old);
	assert_true(scratch_exists(new->workdir));
	if (is_git() && is_local())
		assert_non_null(repo_branch(t.settings.source_abs, "sandbox/x"));
	take_down(new);
	expect_empty_state();
}

static void teardown_may_be_repeated(void **state)
{
	struct sbx_sandbox *sb = create("x");

	(void)state;
	assert_int_equal(sbx_sandbox_retire(sb, NULL), 0);
	assert_int_equal(sbx_sandbox_retire(sb, NULL), 0);
	assert_int_equal(sbx_sandbox_remove(sb, NULL), 0);
	assert_int_equal(sbx_sandbox_remove(sb, NULL), 0);
	assert_int_equal(sbx_sandbox_retire(sb, NULL), 0);
	assert_int_equal(sbx_sandbox_remove(sb, NULL), 0);
	sbx_sandbox_close(sb);
	expect_empty_state();
}

static void teardown_does_not_mind_a_tree_removed_by_hand(void **state)
{
	struct sbx_sandbox *sb = create("x");

	(void)state;
	assert_int_equal(sbx_tree_remove(AT_FDCWD, sb->workdir, NULL), 0);
	take_down(sb);
	expect_empty_state();
}

static void teardown_removes_what_resists(void **state)
{
	struct sbx_sandbox *sb = create("x");

	(void)state;
	scratch_deep(inside(sb, "deep"), 200);
	scratch_mkdir(inside(sb, "locked"));
	scratch_mkdir(inside(sb, "locked/in"));
	scratch_write(inside(sb, "locked/in/file"), "");
	assert_int_equal(mkfifo(inside(sb, "pipe"), 0600), 0);
	assert_int_equal(symlink("/", inside(sb, "host")), 0);
	assert_int_equal(chmod(inside(sb, "locked/in"), 0000), 0);
	assert_int_equal(chmod(inside(sb, "locked"), 0500), 0);
	assert_int_equal(chmod(sb->workdir, 0000), 0);
	take_down(sb);
	expect_empty_state();
	assert_true(scratch_exists("/usr"));
}

static void info_describes_the_sandbox(void **state)
{
	struct sbx_sandbox *sb = create("x");
	struct json_object *obj = json_object_new_object();
	/* Of a provider a source is a repository, though the one of the tests copies others. */
	const bool copied = t.row->away && strcmp(t.row->kind, "dir") == 0;

	(void)state;
	sbx_sandbox_info(sb, obj);
	assert_string_equal(json_object_get_string(json_object_object_get(obj, "kind")),
	                    copied ? "git" : t.row->kind);
	/* Elsewhere it is the machine's. */
	if (!sb->tree.mounted && !t.row->away)
		assert_string_equal(json_object_get_string(json_object_object_get(obj, "workdir")),
		                    sb->workdir);
	if (is_local())
		assert_string_equal(json_object_get_string(json_object_object_get(obj, "tree")),
		                    sb->tree.mounted ? "overlay" : "checkout");
	if (t.row->overlaid && !sb->tree.mounted)
		print_message("# skipped: no layers here\n");
	if (is_git())
		assert_string_equal(json_object_get_string(json_object_object_get(obj, "branch")),
		                    "sandbox/x");
	sbx_sandbox_policy(sb, obj);
	if (t.row->tables & COMMANDS && !t.row->away)
		assert_string_equal(
		        json_object_get_string(json_object_object_get(obj, "isolation")), "stub");
	json_object_put(obj);
	take_down(sb);
}

static int seen_started, seen_output, seen_ended;

static void on_started(struct sbx_job *job)
{
	(void)job;
	seen_started++;
}

static void on_output(struct sbx_job *job, int stream, const void *buf, size_t len)
{
	(void)job;
	(void)buf;
	seen_output += stream == 1 ? (int)len : 0;
}

/* The job is the caller's again: nobody else may use it from here on. */
static void on_ended(struct sbx_job *job, const struct sbx_exit *exit)
{
	seen_ended += exit->end == SBX_END_EXITED;
	assert_null(job->part);
	memset(job, 0xa5, sizeof(*job));
}

static const struct sbx_job_events events = {
        .started = on_started, .output = on_output, .ended = on_ended};

static bool has_env(const char *assignment)
{
	for (int i = 0; t.spawner.env[i][0]; i++)
		if (strcmp(t.spawner.env[i], assignment) == 0)
			return true;
	return false;
}

static int run_true(struct sbx_sandbox *sb, char *const *env, struct sbx_error *err)
{
	char *argv[] = {(char *)"true", NULL};
	struct sbx_exec spec = {.argv = argv, .env = env, .cwd = "sub", .stdin_fd = -1};

	struct sbx_job job = {.events = &events};
	int r = sbx_sandbox_exec(sb, &spec, &job, err);

	if (r)
		assert_null(job.part);
	return r;
}

static bool has_spawner(void)
{
	return t.row->tables & COMMANDS && !t.row->away;
}

static void exec_tells_the_spawner_where(void **state)
{
	struct sbx_sandbox *sb = create("x");
	struct sbx_error err = SBX_ERROR_INIT;
	char view[8192], pwd[8300];

	(void)state;
	if (!has_spawner()) {
		is_not_asked();
		take_down(sb);
		return;
	}
	seen_started = seen_output = seen_ended = 0;
	assert_int_equal(sbx_sandbox_sync(sb, &err), 0);
	snprintf(view, sizeof(view), "%s/y", t.settings.mountpoint);
	snprintf(pwd, sizeof(pwd), "PWD=%s/sub", view);
	assert_int_equal(sbx_sandbox_rename(sb, "y", &err), 0);
	assert_int_equal(
	        run_true(sb, (char *[]){(char *)"TMPDIR=/var/tmp", (char *)"HOMER=1", NULL}, &err),
	        0);
	assert_string_equal(t.spawner.id, sb->id);
	assert_string_equal(t.spawner.workdir, sb->workdir);
	assert_string_equal(t.spawner.view, view);
	assert_true(has_env("TMPDIR=/var/tmp") && !has_env("TMPDIR=/tmp"));
	assert_true(has_env("HOMER=1") && has_env(pwd));
	assert_string_equal(t.spawner.env[2] + strlen("HOME="), t.spawner.rw[0]);
	assert_true(scratch_exists(t.spawner.rw[0]));
	if (is_git()) {
		assert_string_equal(t.spawner.rw[1], scratch_path("state/git/%s/repo", sb->id));
		assert_string_equal(t.spawner.ro[0], scratch_path("source/.git/objects"));
		assert_string_equal(t.spawner.ro[1], "");
	} else {
		assert_string_equal(t.spawner.rw[1], "");
		assert_string_equal(t.spawner.ro[0], "");
	}
	assert_int_equal(seen_started + seen_output + seen_ended, 5);
	take_down(sb);
	assert_int_equal(t.spawner.forgotten, 1);
}

static void exec_passes_the_spawners_refusal_on(void **state)
{
	struct sbx_sandbox *sb = create("x");
	struct sbx_error err = SBX_ERROR_INIT;

	(void)state;
	if (!has_spawner()) {
		is_not_asked();
		take_down(sb);
		return;
	}
	t.spawner.answer = -EAGAIN;
	assert_int_equal(run_true(sb, NULL, &err), -EAGAIN);
	assert_int_equal(err.code, EAGAIN);
	t.host.spawner = NULL;
	assert_int_equal(run_true(sb, NULL, &err), -EOPNOTSUPP);
	take_down(sb);
}

static sem_t ran;

static void on_ran(struct sbx_job *job, const struct sbx_exit *exit)
{
	on_ended(job, exit);
	seen_ended += exit->end == SBX_END_EXITED && exit->code == 3 ? 10 : 0;
	sem_post(&ran);
}

/* Bytes of the path that the tree has for commands. */
static size_t workdir_len(struct sbx_sandbox *sb)
{
	struct json_object *obj = json_object_new_object();
	size_t n;

	sbx_sandbox_info(sb, obj);
	n = (size_t)json_object_get_string_len(json_object_object_get(obj, "workdir"));
	json_object_put(obj);
	return n;
}

static void a_command_runs_where_its_sandbox_is(void **state)
{
	static const struct sbx_job_events told = {
	        .started = on_started, .output = on_output, .ended = on_ran};
	char *argv[] = {(char *)"sh", (char *)"-c", (char *)"pwd; echo made >made; exit 3", NULL};
	char *env[] = {NULL};
	struct sbx_exec spec = {.argv = argv, .env = env, .cwd = "", .stdin_fd = -1};
	struct sbx_job job = {.events = &told};
	struct sbx_sandbox *sb = create("x");
	struct sbx_error err = SBX_ERROR_INIT;

	(void)state;
	if (!t.row->away) {
		is_not_asked();
		take_down(sb);
		return;
	}
	seen_started = seen_output = seen_ended = 0;
	sem_init(&ran, 0, 0);
	if (sbx_sandbox_exec(sb, &spec, &job, &err))
		fail_msg("exec: %s", err.text);
	while (sem_wait(&ran) < 0)
		;
	sem_destroy(&ran);
	assert_int_equal(t.spawner.calls, 0);
	assert_int_equal(seen_output, workdir_len(sb) + 1);
	assert_int_equal(seen_ended, 11);
	assert_int_equal(sbx_sandbox_sync(sb, &err), 0);
	bring(sb, "", "made");
	scratch_expect(inside(sb, "made"), "made\n");
	take_down(sb);
	expect_empty_state();
}

/* --- tables: what a sandbox has, and what of the others a caller gets ---------------------------
 */

static void commands_are_refused(struct sbx_sandbox *sb)
{
	assert_int_equal(run_true(sb, NULL, NULL), -EOPNOTSUPP);
	assert_false(sbx_sandbox_stale(sb));
	assert_int_equal(sbx_sandbox_sync(sb, NULL), 0);
	sbx_sandbox_hurry(sb, 1);
}

static void storage_is_refused(struct sbx_sandbox *sb)
{
	assert_int_equal(sbx_sandbox_resize(sb, 1, NULL), -EOPNOTSUPP);
	assert_false(sbx_sandbox_needs_barrier(sb));
	assert_int_equal(sbx_sandbox_barrier(sb, true, NULL), 0);
	assert_false(sbx_sandbox_make_room(sb));
	sbx_sandbox_before_write(sb, sbx_sandbox_root(sb), NULL);
	sbx_sandbox_discard(sb);
}

static void git_is_refused(struct sbx_sandbox *sb)
{
	assert_int_equal(sbx_sandbox_nested(sb, true), -EOPNOTSUPP);
	assert_null(sbx_sandbox_gitfile(sb));
	assert_int_equal(sbx_sandbox_guard(sb, NULL), 0);
}

static int no_snapshot(const struct sbx_snapshot *s, void *data)
{
	(void)s;
	(void)data;
	return 1;
}

static int no_object(const char *name, const struct sbx_object *o, void *data)
{
	(void)name;
	(void)o;
	(void)data;
	return 1;
}

static void history_is_refused(struct sbx_sandbox *sb)
{
	const struct sbx_snapshot_options snapshot = {0};
	const struct sbx_diff_options diff = {.from = "base"};
	struct sbx_object object;
	char id[SBX_REV_MAX];

	assert_false(sbx_has_history(sb));
	assert_int_equal(sbx_history_snapshot(sb, &snapshot, id, NULL), -EOPNOTSUPP);
	assert_int_equal(sbx_history_forget(sb, "mark", NULL), -EOPNOTSUPP);
	assert_int_equal(sbx_history_list(sb, no_snapshot, NULL, NULL), -EOPNOTSUPP);
	assert_int_equal(sbx_history_restore(sb, "base", NULL, NULL), -EOPNOTSUPP);
	assert_int_equal(sbx_history_diff(sb, &diff, -1, NULL), -EOPNOTSUPP);
	assert_int_equal(sbx_history_tree(sb, "base", &object, NULL), -EOPNOTSUPP);
	assert_int_equal(sbx_history_entry(sb, "0123", "file", &object), -EOPNOTSUPP);
	assert_int_equal(sbx_history_entries(sb, "0123", no_object, NULL), -EOPNOTSUPP);
	assert_int_equal(sbx_history_content(sb, "0123", -1), -EOPNOTSUPP);
}

static void remote_is_refused(struct sbx_sandbox *sb)
{
	char *url = NULL;

	assert_false(sbx_has_remote(sb));
	assert_int_equal(sbx_remote_url(sb, NULL, false, &url, NULL), -EOPNOTSUPP);
	assert_int_equal(sbx_remote_push(sb, &(struct sbx_push_options){0}, NULL), -EOPNOTSUPP);
	assert_null(url);
}

static void a_table_is_there_as_the_row_says_or_refused(void **state)
{
	struct sbx_sandbox *sb = create("x");
	const struct sbx_sandbox_impl *impl = sb->impl;
	const struct {
		enum table table;
		const void *there;
		void (*refused)(struct sbx_sandbox *sb);
	} tables[] = {
	        {COMMANDS, impl->commands, commands_are_refused},
	        {STORAGE, impl->storage, storage_is_refused},
	        {GIT, impl->git, git_is_refused},
	        {HISTORY, impl->history, history_is_refused},
	        {REMOTE, impl->remote, remote_is_refused},
	};

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(tables); i++) {
		assert_int_equal(tables[i].there != NULL, (t.row->tables & tables[i].table) != 0);
		if (!tables[i].there)
			tables[i].refused(sb);
	}
	take_down(sb);
	expect_empty_state();
}

static void sandboxes_reappear_exactly_where_they_persist(void **state)
{
	struct sbx_sandbox *sb = create("old");
	char *id = strdup(sb->id);

	(void)state;
	write_file(sb, "work", "kept");
	assert_int_equal(sbx_sandbox_rename(sb, "new", NULL), 0);
	let_go(sb);
	close_backend();
	open_backend();
	recover();
	assert_int_equal(t.notes, 0);
	assert_int_equal(t.nfound, t.row->persistent ? 1 : 0);
	if (!t.row->persistent)
		is_refused();
	if (t.nfound) {
		sb = t.found[--t.nfound];
		assert_string_equal(sb->name, "new");
		assert_string_equal(sb->id, id);
		bring(sb, "", "work");
		scratch_expect(inside(sb, "work"), "kept");
		take_down(sb);
	}
	free(id);
	expect_empty_state();
}

static void one_state_serves_one_daemon(void **state)
{
	struct sbx_backend *second = NULL;
	struct sbx_error err = SBX_ERROR_INIT;
	int r = try_open(&second, &err);

	(void)state;
	if (t.row->persistent) {
		assert_int_equal(r, -EBUSY);
		assert_non_null(strstr(err.text, "in use"));
		assert_null(second);
	} else {
		is_not_asked();
		assert_int_equal(r, 0);
		sbx_backend_destroy(second);
	}
}

static void commands_are_kept_from_the_network_or_that_is_refused(void **state)
{
	char *net = t.settings.net;
	struct sbx_error err = SBX_ERROR_INIT;
	int r;

	(void)state;
	close_backend();
	t.settings.net = (char *)"none";
	r = try_open_backend(&err);
	close_backend();
	t.settings.net = net;
	open_backend();
	assert_int_equal(r, t.row->open_net ? -EOPNOTSUPP : 0);
	if (t.row->open_net) {
		is_refused();
		assert_non_null(strstr(err.text, "net=host"));
	}
}

/* Runs fn in a process that then dies without any clean-up, having the state to itself. */
static void in_a_process_that_is_killed(void (*fn)(void))
{
	pid_t pid;
	int status;

	close_backend();
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		/* A failure here must not run the rest of the list a second time. */
		setenv("CMOCKA_TEST_ABORT", "1", 1);
		open_backend();
		recover();
		fn();
		raise(SIGKILL);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	open_behind_a_killed();
	recover();
}

static void create_two_retire_one(void)
{
	create("kept");
	assert_int_equal(sbx_sandbox_retire(create("gone"), NULL), 0);
}

static void a_killed_daemon_leaves_what_was_ready(void **state)
{
	(void)state;
	in_a_process_that_is_killed(create_two_retire_one);
	assert_int_equal(t.notes, t.row->away ? 0 : 1);
	assert_int_equal(t.nfound, t.row->persistent ? 1 : 0);
	if (!t.row->persistent)
		is_refused();
	if (t.nfound) {
		assert_string_equal(t.found[0]->name, "kept");
		take_down(t.found[--t.nfound]);
	}
	expect_empty_state();
}

static void fork_and_die(void)
{
	struct sbx_sandbox *a = create("a"), *b = NULL;
	struct sbx_create req = {.name = "b", .origin = {.kind = SBX_ORIGIN_SANDBOX, .sandbox = a}};
	struct sbx_error err = SBX_ERROR_INIT;

	write_file(a, "new", "mine");
	if (sbx_backend_create(t.backend, &req, &b, &err))
		fail_msg("fork: %s", err.text);
}

/* Elsewhere the machine is copied, and nothing else has been asked of it. */
static void a_killed_daemon_leaves_a_fork(void **state)
{
	(void)state;
	if (!t.row->forks || !t.row->persistent) {
		is_refused();
		return;
	}
	in_a_process_that_is_killed(fork_and_die);
	assert_int_equal(t.nfound, 2);
	while (t.nfound) {
		struct sbx_sandbox *sb = t.found[--t.nfound];
		struct sbx_error err = SBX_ERROR_INIT;

		if (want(sb, SBX_NEED_UP, "", &err) || want(sb, SBX_NEED_NAMES, "", &err))
			fail_msg("%s: %s", sb->name, err.text);
		bring(sb, "", "new");
		scratch_expect(inside(sb, "new"), "mine");
		take_down(sb);
	}
	expect_empty_state();
}

static void create_and_lose(void)
{
	assert_int_equal(sbx_tree_remove(AT_FDCWD, create("lost")->workdir, NULL), 0);
}

static void a_sandbox_without_its_tree_is_reaped(void **state)
{
	(void)state;
	in_a_process_that_is_killed(create_and_lose);
	/* Elsewhere nobody is asked before the mount is there. */
	assert_int_equal(t.nfound, t.row->away ? 1 : 0);
	assert_int_equal(t.notes, t.row->away ? 0 : 1);
	if (t.nfound)
		take_down(t.found[--t.nfound]);
	expect_empty_state();
}

/* Creates and removes for ever, telling each step through the pipe. */
static void churn(int out)
{
	for (;;) {
		struct sbx_sandbox *sb = create("churn");

		if (write(out, "c", 1) < 0)
			_exit(1);
		take_down(sb);
		if (write(out, "r", 1) < 0)
			_exit(1);
	}
}

static pid_t start_churn(int *out)
{
	int fds[2];
	pid_t pid;

	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		/* A failure here must not run the rest of the list a second time. */
		setenv("CMOCKA_TEST_ABORT", "1", 1);
		open_backend();
		recover();
		close_found();
		churn(fds[1]);
	}
	close(fds[1]);
	*out = fds[0];
	return pid;
}

static void kill_somewhere(unsigned spin)
{
	int out, status;
	pid_t pid = start_churn(&out);
	char step;

	/* After the first step any moment is as good as another: the spinning only varies it. */
	assert_int_equal(read(out, &step, 1), 1);
	for (volatile unsigned i = 0; i < spin; i++)
		;
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	close(out);
}

static void a_kill_at_any_moment_is_recovered_from(void **state)
{
	unsigned origin = 1;
	const int rounds = t.row->cloud ? 8 : 20; /* a server has to answer each of them */

	(void)state;
	for (int round = 0; round < rounds; round++) {
		close_backend();
		kill_somewhere((unsigned)rand_r(&origin) % 3000000);
		open_behind_a_killed();
		recover();
		assert_true(t.nfound <= 1);
		while (t.nfound) {
			expect_clean(t.found[0]);
			take_down(t.found[--t.nfound]);
		}
		expect_empty_state();
	}
}

static void fill_disk(void)
{
	static const char zeros[4096];
	int fd =
	        open(scratch_path("state/filler"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	while (write(fd, zeros, sizeof(zeros)) > 0)
		;
	assert_int_equal(errno, ENOSPC);
	close(fd);
}

/* In a process with mounts of its own: the state directory on a file system of 128 KiB. */
static void use_up_the_disk(void)
{
	struct sbx_sandbox *sb = NULL;
	struct sbx_error err = SBX_ERROR_INIT;

	assert_int_equal(mount("tmpfs", t.settings.state_dir, "tmpfs", 0, "size=128k,mode=0700"),
	                 0);
	open_backend();
	recover();
	fill_disk();
	assert_int_equal(
	        sbx_backend_create(t.backend, &(struct sbx_create){.name = "x"}, &sb, &err),
	        -ENOSPC);
	assert_non_null(strstr(err.text, strerror(ENOSPC)));
	expect_empty_state();
	assert_int_equal(unlink(scratch_path("state/filler")), 0);
	sb = create("x");
	fill_disk();
	take_down(sb);
	expect_empty_state();
	close_backend();
}

static bool write_to(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool ok = fd >= 0 && write(fd, text, strlen(text)) > 0;

	if (fd >= 0)
		close(fd);
	return ok;
}

static bool have_own_mounts(void)
{
	unsigned uid = geteuid(), gid = getegid();
	char uids[32], gids[32];

	snprintf(uids, sizeof(uids), "%u %u 1", uid, uid);
	snprintf(gids, sizeof(gids), "%u %u 1", gid, gid);
	if (unshare(uid ? CLONE_NEWUSER | CLONE_NEWNS : CLONE_NEWNS) < 0)
		return false;
	if (uid &&
	    !(write_to("/proc/self/uid_map", uids) && write_to("/proc/self/setgroups", "deny") &&
	      write_to("/proc/self/gid_map", gids)))
		return false;
	return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
}

/* 77: this process may not have mounts of its own. */
static int with_own_mounts(void (*fn)(void))
{
	pid_t pid = fork();
	int status;

	assert_true(pid >= 0);
	if (pid == 0) {
		setenv("CMOCKA_TEST_ABORT", "1", 1);
		if (!have_own_mounts())
			_exit(77);
		fn();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void a_full_disk_is_reported_and_does_not_stop_a_teardown(void **state)
{
	int r;

	(void)state;
	if (!t.row->persistent) {
		is_not_asked();
		return;
	}
	close_backend();
	r = with_own_mounts(use_up_the_disk);
	if (r == 77) {
		is_not_asked();
		skip_because("no mounts of one's own here");
	}
	assert_int_equal(r, 0);
}

static void *create_and_remove(void *data)
{
	for (int i = 0; i < 5; i++)
		take_down(create(data));
	return NULL;
}

static void creates_may_run_at_once(void **state)
{
	static const char *const names[] = {"p", "q", "r", "s"};
	pthread_t threads[4];

	(void)state;
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, create_and_remove,
		                                (void *)(uintptr_t)names[i]),
		                 0);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	expect_empty_state();
}

#define BEHAVIOUR(fn)                                                                              \
	{                                                                                          \
#fn, fn                                                                            \
	}
static const struct {
	const char *name;
	CMUnitTestFunction fn;
} behaviours[] = {
        BEHAVIOUR(create_gives_a_tree_that_root_and_workdir_both_name),
        BEHAVIOUR(create_fills_the_tree_from_the_source),
        BEHAVIOUR(sandboxes_do_not_see_each_other),
        BEHAVIOUR(a_bad_name_is_refused),
        BEHAVIOUR(base_and_branch_need_a_repository),
        BEHAVIOUR(an_origin_that_is_not_there_is_refused),
        BEHAVIOUR(a_fork_starts_as_its_origin_is_or_was),
        BEHAVIOUR(a_killed_daemon_leaves_a_fork),
        BEHAVIOUR(a_cancelled_create_leaves_nothing),
        BEHAVIOUR(a_create_without_descriptors_says_so_and_leaves_nothing),
        BEHAVIOUR(rename_changes_nothing_but_the_name),
        BEHAVIOUR(a_retired_name_is_free_at_once),
        BEHAVIOUR(teardown_may_be_repeated),
        BEHAVIOUR(teardown_does_not_mind_a_tree_removed_by_hand),
        BEHAVIOUR(teardown_removes_what_resists),
        BEHAVIOUR(info_describes_the_sandbox),
        BEHAVIOUR(exec_tells_the_spawner_where),
        BEHAVIOUR(exec_passes_the_spawners_refusal_on),
        BEHAVIOUR(a_command_runs_where_its_sandbox_is),
        BEHAVIOUR(a_table_is_there_as_the_row_says_or_refused),
        BEHAVIOUR(sandboxes_reappear_exactly_where_they_persist),
        BEHAVIOUR(one_state_serves_one_daemon),
        BEHAVIOUR(commands_are_kept_from_the_network_or_that_is_refused),
        BEHAVIOUR(a_killed_daemon_leaves_what_was_ready),
        BEHAVIOUR(a_sandbox_without_its_tree_is_reaped),
        BEHAVIOUR(a_kill_at_any_moment_is_recovered_from),
        BEHAVIOUR(a_full_disk_is_reported_and_does_not_stop_a_teardown),
        BEHAVIOUR(creates_may_run_at_once),
};

#define NBEHAVIOURS SBX_ARRAY_SIZE(behaviours)
#define NTESTS      (SBX_ARRAY_SIZE(rows) * NBEHAVIOURS)

static struct a_case cases[SBX_ARRAY_SIZE(rows)][NBEHAVIOURS];

/* A test that fails does not come to its end. */
static void run_case(void **state)
{
	struct a_case *c = *state;

	c->fn(state);
	c->mark = t.mark;
}

/* The best of its rows, if none failed. ' ': none of BACKEND was run. */
static char mark_of(const char *backend, size_t behaviour)
{
	static const char order[] = {' ', NOT_ASKED, REFUSED, PASSED, FAILED, '\0'};
	char mark = ' ';

	for (size_t i = 0; i < SBX_ARRAY_SIZE(rows); i++) {
		const struct a_case *c = &cases[i][behaviour];

		if (!c->row || !c->row->backend || strcmp(c->row->backend, backend) != 0)
			continue;
		if (strchr(order, (char)c->mark) > strchr(order, mark))
			mark = (char)c->mark;
	}
	return mark;
}

/* For who describes the backends. */
static void print_table(void)
{
	static const char *const backends[] = {"memory",  "local",  "dirs",
	                                       "daytona", "vercel", "dagger"};

	printf("# %-64s", "+ passed, - refused as its row says, . not asked of it, ! failed");
	for (size_t i = 0; i < SBX_ARRAY_SIZE(backends); i++)
		printf(" %s", backends[i]);
	printf("\n");
	for (size_t j = 0; j < NBEHAVIOURS; j++) {
		printf("# %-64s", behaviours[j].name);
		for (size_t i = 0; i < SBX_ARRAY_SIZE(backends); i++)
			printf(" %*c", (int)strlen(backends[i]), mark_of(backends[i], j));
		printf("\n");
	}
	fflush(stdout);
}

int main(void)
{
	static struct CMUnitTest tests[NTESTS];
	static char names[NTESTS][128];
	/* One row alone, by hand. */
	const char *only = getenv("SBX_ROW");
	size_t n = 0;
	int r;

	for (size_t i = 0; i < SBX_ARRAY_SIZE(rows); i++) {
		if (only && strcmp(only, rows[i].label) != 0)
			continue;
		for (size_t j = 0; j < NBEHAVIOURS; j++, n++) {
			cases[i][j] = (struct a_case){&rows[i], behaviours[j].fn, FAILED};
			snprintf(names[n], sizeof(names[n]), "%s: %s", rows[i].label,
			         behaviours[j].name);
			tests[n] = (struct CMUnitTest){.name = names[n],
			                               .test_func = run_case,
			                               .setup_func = setup,
			                               .teardown_func = teardown,
			                               .initial_state = &cases[i][j]};
		}
	}
	repo_setup();
	r = _cmocka_run_group_tests("behaviours", tests, n, NULL, NULL);
	repo_teardown();
	cloud_stop();
	print_table();
	return r;
}
