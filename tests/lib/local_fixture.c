#include "tests/lib/local_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"
#include "tests/lib/repo.h"
#include "tests/lib/scratch.h"

struct fixture fixture;

#define SOURCE                                                                                     \
	"mkdir sub whole again; echo content > file; echo gone > sub/gone; echo stays > "          \
	"sub/stays; "                                                                              \
	"echo m > mode; echo a > whole/a; echo b > whole/b; echo y > again/y; ln -s file link; "   \
	"echo '*.log' > .gitignore; touch -d '1 hour ago' file sub/* mode"

#define TESTS_MAX 64 /* of a group */

static const struct fixture_row rows[] = {
        {"git", FIXTURE_GIT, false},   {"git-layered", FIXTURE_GIT, true},
        {"dir", FIXTURE_DIR, false},   {"dir-layered", FIXTURE_DIR, true},
        {"none", FIXTURE_NONE, false},
};

static int set_up_group(void **state)
{
	(void)state;
	setenv("GIT_CONFIG_GLOBAL", "/dev/null", 1);
	setenv("GIT_CONFIG_SYSTEM", "/dev/null", 1);
	setenv("LC_ALL", "C", 1);
	setenv("TZ", "UTC", 1);
	repo_setup();
	return 0;
}

static int set_up(void **state)
{
	fixture_begin(*state);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	fixture_end();
	return 0;
}

int fixture_main(const char *group, const struct fixture_test *tests, size_t n)
{
	static struct CMUnitTest all[SBX_ARRAY_SIZE(rows) * TESTS_MAX];
	static char names[SBX_ARRAY_SIZE(all)][96];
	size_t k = 0;

	if (n > TESTS_MAX)
		return 1;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(rows); i++)
		for (size_t j = 0; j < n; j++, k++) {
			snprintf(names[k], sizeof(names[k]), "%s: %s", rows[i].label,
			         tests[j].name);
			all[k] = (struct CMUnitTest){.name = names[k],
			                             .test_func = tests[j].fn,
			                             .setup_func = set_up,
			                             .teardown_func = tear_down,
			                             .initial_state = (void *)(uintptr_t)&rows[i]};
		}
	/* Those that are left without a name are passed over. */
	return cmocka_run_group_tests_name(group, all, set_up_group, NULL);
}

/* What COMMAND (sh) prints; it must succeed. */
static char *run(const char *command)
{
	char *text = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&text, &len);
	FILE *p = popen(command, "re");
	char buf[4096];
	size_t n;
	int status;

	assert_non_null(out);
	assert_non_null(p);
	while ((n = fread(buf, 1, sizeof(buf), p)) > 0)
		fwrite(buf, 1, n, out);
	status = pclose(p);
	fclose(out);
	if (status)
		fail_msg("%s: status %x: %s", command, (unsigned)status, text);
	return text;
}

char *fixture_run(const char *fmt, ...)
{
	_cleanup_free_ char *command = NULL;
	va_list ap;

	va_start(ap, fmt);
	assert_true(vasprintf(&command, fmt, ap) > 0);
	va_end(ap);
	return run(command);
}

static void make_source(void)
{
	const char *path = scratch_path("source");

	if (fixture.row->kind == FIXTURE_NONE)
		return;
	scratch_mkdir(path);
	free(fixture_run("cd %s && { %s; }", path, SOURCE));
	if (fixture.row->kind == FIXTURE_GIT)
		free(fixture_run(
		        "cd %s && git init -q -b main && git config user.name T && "
		        "git config user.email t@example.org && git add -A && git commit -qm first",
		        path));
	fixture.settings.source = fixture.settings.source_abs = strdup(path);
}

static void found(struct sbx_sandbox *sb, void *data)
{
	(void)data;
	assert_true(fixture.nfound < FIXTURE_MAX);
	fixture.found[fixture.nfound++] = sb;
}

static void note(const char *text, void *data)
{
	(void)data;
	print_message("# %s\n", text);
}

static void open_backend(void)
{
	struct sbx_recover r = {.found = found, .note = note};
	struct sbx_error err = SBX_ERROR_INIT;

	if (sbx_backend_open(&fixture.host, &fixture.backend, &err))
		fail_msg("open: %s", err.text);
	fixture.nfound = 0;
	if (sbx_backend_recover(fixture.backend, &r, &err))
		fail_msg("recover: %s", err.text);
}

void fixture_begin(const struct fixture_row *row)
{
	struct sbx_settings *s = &fixture.settings;

	fixture = (struct fixture){.row = row, .fds = scratch_descriptors()};
	scratch_make();
	s->backend = strdup("local");
	s->state_dir = strdup(scratch_path("state"));
	s->mountpoint = strdup(scratch_path("mnt"));
	s->cache_dir = strdup(scratch_path("cache"));
	s->cache_mb = 100;
	s->trash_days = 7;
	fixture.spawner.has_room = row->layered;
	scratch_mkdir(s->mountpoint);
	make_source();
	fixture.host = (struct sbx_host){.settings = s, .spawner = &fixture.spawner};
	open_backend();
	assert_int_equal(fixture.nfound, 0);
}

void fixture_end(void)
{
	struct sbx_settings *s = &fixture.settings;

	sbx_backend_destroy(fixture.backend);
	assert_int_equal(scratch_descriptors(), fixture.fds);
	free(s->backend);
	free(s->state_dir);
	free(s->mountpoint);
	free(s->cache_dir);
	free(s->source);
	scratch_remove();
}

void fixture_reopen(void)
{
	sbx_backend_destroy(fixture.backend);
	open_backend();
}

void fixture_reopen_killed(void)
{
	sbx_backend_destroy(fixture.backend);
	unlink(scratch_path("state/clean"));
	open_backend();
}

struct sbx_sandbox *fixture_found(const char *name)
{
	for (int i = 0; i < fixture.nfound; i++)
		if (strcmp(fixture.found[i]->name, name) == 0)
			return fixture.found[i];
	fail_msg("%s was not found again", name);
	return NULL;
}

struct sbx_sandbox *fixture_create(const char *name)
{
	struct sbx_create req = {.name = name};
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_sandbox *sb = NULL;

	if (sbx_backend_create(fixture.backend, &req, &sb, &err))
		fail_msg("create %s: %s", name, err.text);
	return sb;
}

void fixture_take_down(struct sbx_sandbox *sb)
{
	struct sbx_error err = SBX_ERROR_INIT;

	if (sbx_sandbox_retire(sb, &err))
		fail_msg("retire: %s", err.text);
	if (sbx_sandbox_remove(sb, &err))
		fail_msg("remove: %s", err.text);
	for (int i = 0; i < fixture.nfound; i++)
		if (fixture.found[i] == sb)
			fixture.found[i] = fixture.found[--fixture.nfound];
	sbx_sandbox_close(sb);
}

void fixture_expect_empty(void)
{
	static const char *const rooms[] = {"meta", "trees", "trash", "home", "git", "nested"};

	for (size_t i = 0; i < SBX_ARRAY_SIZE(rooms); i++)
		if (scratch_count(scratch_path("state/%s", rooms[i])) > 0)
			fail_msg("something is left in %s", rooms[i]);
	if (fixture.row->kind != FIXTURE_GIT)
		return;
	assert_int_equal(scratch_count(scratch_path("source/.git/worktrees")), -1);
	assert_int_equal(repo_branches(fixture.settings.source_abs), 1);
}

const char *fixture_path(const struct sbx_sandbox *sb)
{
	static char buf[4][4096];
	static int turn;
	char *p = buf[turn++ % 4];

	if (sb->layered)
		snprintf(p, sizeof(buf[0]), "/proc/%d/fd/%d", (int)getpid(),
		         sbx_sandbox_root((struct sbx_sandbox *)(uintptr_t)sb));
	else
		snprintf(p, sizeof(buf[0]), "%s", sb->workdir);
	return p;
}

void fixture_in(struct sbx_sandbox *sb, const char *command)
{
	free(fixture_run("cd %s && { %s; } 2>&1", fixture_path(sb), command));
}

char *fixture_manifest(struct sbx_sandbox *sb)
{
	return fixture_run(
	        "cd %s && { find . -name .git -prune -o -printf '%%P %%y %%m %%n %%T@ %%l\\n'; "
	        "find . -type f ! -name .git -exec sha1sum {} +; "
	        "getfattr -R -d . 2>/dev/null; } | sort",
	        fixture_path(sb));
}

char *fixture_git(struct sbx_sandbox *sb, const char *args)
{
	const char *link = sbx_sandbox_gitfile(sb), *prefix = "gitdir: ";

	assert_non_null(link);
	return fixture_run("cd %s && git --git-dir=%.*s --work-tree=. %s 2>&1", fixture_path(sb),
	                   (int)strcspn(link + strlen(prefix), "\n"), link + strlen(prefix), args);
}

char *fixture_git_source(const char *args)
{
	return fixture_run("git -C %s %s 2>&1", fixture.settings.source_abs, args);
}

char *fixture_tree(struct sbx_sandbox *sb)
{
	const char *copy = scratch_path("copy"), *repo = scratch_path("copy.git");
	char *tree;

	free(fixture_run("mkdir %s && cp -a %s/. %s && rm -rf %s/.git", copy, fixture_path(sb),
	                 copy, copy));
	if (fixture.row->kind == FIXTURE_GIT)
		free(fixture_run("git clone -q --bare %s %s", fixture.settings.source_abs, repo));
	else
		free(fixture_run("git init -q --bare %s", repo));
	tree = fixture_run(
	        "cd %s && export GIT_DIR=%s && git --work-tree=. add -A && git write-tree", copy,
	        repo);
	free(fixture_run("rm -rf %s %s", copy, repo));
	return tree;
}

void fixture_age_trash(const char *repo, int days)
{
	free(fixture_run(
	        "export GIT_DIR=%s; git for-each-ref --format='%%(refname)' refs/sandboxfs/trash |"
	        "while read ref; do"
	        "  old=$(git cat-file commit $ref | sed -n 's/^Time-Ms: //p');"
	        "  new=$((old - %d * 86400000));"
	        "  git update-ref $ref $(git cat-file commit $ref |"
	        "    sed \"s/^Time-Ms: .*/Time-Ms: $new/\" | git hash-object -t commit -w --stdin);"
	        "done",
	        repo, days));
}
