#include "tests/lib/local_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "backends/local/trash/sign.h"
#include "backends/support/fsutil.h"
#include "backends/support/tree.h"
#include "sandboxfs/cleanup.h"
#include "tests/lib/repo.h"
#include "tests/lib/scratch.h"
#include "tests/lib/tmp.h"

struct fixture fixture;

#define SOURCE                                                                                     \
	"mkdir sub whole again; echo content > file; echo gone > sub/gone; echo stays > "          \
	"sub/stays; "                                                                              \
	"echo m > mode; echo a > whole/a; echo b > whole/b; echo y > again/y; ln -s file link; "   \
	"echo '*.log' > .gitignore; touch -d '1 hour ago' file sub/* mode"

#define TESTS_MAX 64 /* of a group */

/* Source of the row, made once; every test gets a copy, which takes a tenth of the processes. */
static char template[4096];
static const struct fixture_row *template_row;

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

static void drop_template(void)
{
	if (template_row && sbx_tree_remove(AT_FDCWD, template, NULL))
		print_message("# %s cannot be removed\n", template);
	template_row = NULL;
}

static int tear_down_group(void **state)
{
	(void)state;
	drop_template();
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

static int run_row(const char *group, const struct fixture_row *row,
                   const struct fixture_test *tests, size_t n)
{
	static struct CMUnitTest all[TESTS_MAX];
	static char names[TESTS_MAX][96];

	for (size_t i = 0; i < n; i++) {
		snprintf(names[i], sizeof(names[i]), "%s: %s", row->label, tests[i].name);
		all[i] = (struct CMUnitTest){.name = names[i],
		                             .test_func = tests[i].fn,
		                             .setup_func = set_up,
		                             .teardown_func = tear_down,
		                             .initial_state = (void *)(uintptr_t)row};
	}
	/* Those that are left without a name are passed over. */
	return cmocka_run_group_tests_name(group, all, set_up_group, tear_down_group);
}

/*
 * Passes on what a row said, with its results numbered after the *DONE of the rows before. In a TAP
 * stream all else, a program's words on stderr among it, is a comment.
 */
static void relay(FILE *from, bool tap, size_t *done)
{
	_cleanup_free_ char *line = NULL;
	size_t size = 0;
	int skip;

	rewind(from);
	while (getline(&line, &size, from) > 0) {
		skip = strncmp(line, "not ok ", 7) == 0 ? 7 : strncmp(line, "ok ", 3) == 0 ? 3 : 0;
		if (skip)
			printf("%.*s%zu%s", skip, line, ++*done,
			       line + skip + strspn(line + skip, "0123456789"));
		else if (strncmp(line, "1..", 3) != 0)
			printf("%s%s", tap && *line != '#' ? "# " : "", line);
	}
}

/* ---- in memory ---- */

#define MEMORY       "/dev/shm"
#define MEMORY_LEAST (2ULL << 30) /* some four times what the largest group takes */

static char memory[] = MEMORY "/sandboxfs-test-XXXXXX";

static bool is_memory_with_room(void)
{
	struct statfs fs;

	return !statfs(MEMORY, &fs) && fs.f_type == TMPFS_MAGIC &&
	       (unsigned long long)fs.f_bavail * (unsigned long long)fs.f_bsize >= MEMORY_LEAST;
}

/*
 * Where there is a tmpfs that has all that the tests need of a disk, they are made there: on a disk
 * most of the time goes to waiting for its journal. A user's overlay needs attributes (Linux 6.6).
 */
static bool enter_memory(void)
{
	if (!is_memory_with_room() || !mkdtemp(memory))
		return false;
	if (setxattr(memory, "user.test", "", 0, 0) || setenv("TMPDIR", memory, 1)) {
		rmdir(memory);
		return false;
	}
	return true;
}

/* False: the tests left something. */
static bool leave_memory(void)
{
	if (!rmdir(memory))
		return true;
	print_message("# something was left in %s\n", memory);
	sbx_tree_remove(AT_FDCWD, memory, NULL);
	return false;
}

/* A process for each row, all at once: most of the time goes to processes of git and the shell, one
 * after the other. */
int fixture_main(const char *group, const struct fixture_test *tests, size_t n)
{
	const char *mode = getenv("CMOCKA_MESSAGE_OUTPUT");
	const bool tap = mode && strcasecmp(mode, "TAP") == 0;
	FILE *said[SBX_ARRAY_SIZE(rows)];
	pid_t pids[SBX_ARRAY_SIZE(rows)];
	int status, failed = n > TESTS_MAX;
	size_t done = 0;
	const bool in_memory = enter_memory();

	for (size_t i = 0; !failed && i < SBX_ARRAY_SIZE(rows); i++) {
		said[i] = tmpfile();
		pids[i] = said[i] ? fork() : -1;
		if (pids[i] < 0)
			abort();
		if (!pids[i])
			exit(dup2(fileno(said[i]), 1) < 0 || dup2(1, 2) < 0 ||
			     run_row(group, &rows[i], tests, n) || fflush(stdout));
	}
	if (tap)
		printf("1..%zu\n", n * SBX_ARRAY_SIZE(rows));
	for (size_t i = 0; n <= TESTS_MAX && i < SBX_ARRAY_SIZE(rows); i++) {
		if (waitpid(pids[i], &status, 0) != pids[i] || status)
			failed = 1;
		relay(said[i], tap, &done);
		fclose(said[i]);
	}
	if (in_memory && !leave_memory())
		failed = 1;
	return failed;
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

static void make_template(void)
{
	drop_template();
	assert_non_null(tmp_make(template, sizeof(template), "sandboxfs-test"));
	template_row = fixture.row;
	free(fixture_run("cd %s && mkdir -m 755 source && cd source && { %s; }", template, SOURCE));
	if (fixture.row->kind == FIXTURE_GIT)
		free(fixture_run("cd %s/source && git init -q -b main && "
		                 "printf '[user]\\n\\tname = T\\n\\temail = t@example.org\\n' >> "
		                 ".git/config && "
		                 "git add -A && git -c maintenance.auto=false commit -qm first",
		                 template));
}

static void make_source(void)
{
	if (fixture.row->kind == FIXTURE_NONE)
		return;
	if (template_row != fixture.row)
		make_template();
	free(fixture_run("cp -a %s/source %s", template, scratch_path("source")));
	fixture.settings.source = fixture.settings.source_abs = strdup(scratch_path("source"));
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
	fixture.spawner.has_room = row->overlaid;
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

void fixture_close(void)
{
	sbx_backend_destroy(fixture.backend);
	fixture.backend = NULL;
}

void fixture_reopen(void)
{
	fixture_close();
	open_backend();
}

void fixture_reopen_killed(void)
{
	fixture_close();
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

	if (sb->tree.mounted)
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

/* The message, without its signature, of an entry that is DAYS older; the caller's. */
static char *aged(const char *message, int days)
{
	const char *time = strstr(message, "Time-Ms: "),
	           *end = strstr(message, SBX_TRASH_SIGNATURE);
	char *rest;
	long long ms;

	assert_non_null(time);
	assert_non_null(end);
	ms = strtoll(time + strlen("Time-Ms: "), &rest, 10);
	return sbx_format("%.*sTime-Ms: %lld%.*s", (int)(time - message), message,
	                  ms - days * 86400000LL, (int)(end - rest), rest);
}

static int age(git_repository *repo, const char *ref, int days)
{
	git_commit *c = NULL, *parents[4];
	git_reference *moved = NULL;
	git_tree *tree = NULL;
	git_oid ids[4], oid;
	struct sbx_trash_signed what = {.parents = ids};
	char *text, *message = NULL;
	int r;

	assert_int_equal(git_reference_name_to_id(&oid, repo, ref), 0);
	assert_int_equal(git_commit_lookup(&c, repo, &oid), 0);
	assert_int_equal(git_commit_tree(&tree, c), 0);
	text = aged(git_commit_message(c), days);
	what.n_parents = git_commit_parentcount(c);
	what.tree = git_tree_id(tree);
	what.message = text;
	what.len = strlen(text);
	for (unsigned i = 0; i < what.n_parents; i++) {
		ids[i] = *git_commit_parent_id(c, i);
		assert_int_equal(git_commit_parent(&parents[i], c, i), 0);
	}
	assert_int_equal(sbx_trash_sign(repo, &what, &message), 0);
	assert_int_equal(git_commit_create(&oid, repo, NULL, git_commit_author(c),
	                                   git_commit_committer(c), NULL, message, tree,
	                                   what.n_parents, (const git_commit **)parents),
	                 0);
	for (unsigned i = 0; i < what.n_parents; i++)
		git_commit_free(parents[i]);
	free(text);
	free(message);
	git_tree_free(tree);
	git_commit_free(c);
	r = git_reference_create(&moved, repo, ref, &oid, 1, NULL);
	git_reference_free(moved);
	return r;
}

void fixture_age_trash(const char *path, int days)
{
	git_strarray refs;
	git_repository *repo;

	assert_int_equal(git_repository_open_bare(&repo, path), 0);
	assert_int_equal(git_reference_list(&refs, repo), 0);
	for (size_t i = 0; i < refs.count; i++)
		if (strncmp(refs.strings[i], "refs/sandboxfs/trash/", 21) == 0)
			assert_int_equal(age(repo, refs.strings[i], days), 0);
	git_strarray_dispose(&refs);
	git_repository_free(repo);
}
