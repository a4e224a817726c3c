/* Sources, worktrees and branches of sandboxes, against repositories that git itself has made. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <git2.h>
#include <json-c/json.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/git/git_impl.h"
#include "backends/git/worktree.h"
#include "backends/support/tree.h"
#include "sandboxfs/backend.h"
#include "sandboxfs/cleanup.h"
#include "tests/lib/repo.h"
#include "tests/lib/scratch.h"

static struct sbx_settings settings;
static struct sbx_host host = {.settings = &settings};
static struct sbx_backend *backend;
static char source[4096], first[65];

static int setup(void **state)
{
	(void)state;
	scratch_make();
	snprintf(source, sizeof(source), "%s", scratch_path("repo"));
	repo_init(source, false);
	scratch_write(scratch_path("repo/file"), "one\n");
	snprintf(first, sizeof(first), "%s", repo_commit(source, "first"));
	settings = (struct sbx_settings){
	        .source = source, .source_abs = source, .state_dir = strdup(scratch_path("state"))};
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	sbx_backend_destroy(backend);
	backend = NULL;
	free(settings.state_dir);
	scratch_remove();
	return 0;
}

static int notes;

static void note(const char *text, void *data)
{
	(void)text;
	(void)data;
	notes++;
}

static void unexpected(struct sbx_sandbox *sb, void *data)
{
	(void)data;
	fail_msg("found %s", sb->id);
}

static void open_backend(void)
{
	struct sbx_recover r = {.found = unexpected, .note = note};
	struct sbx_error err = SBX_ERROR_INIT;

	if (sbx_backend_open(&host, &backend, &err) || sbx_backend_recover(backend, &r, &err))
		fail_msg("%s", err.text);
}

static void refuse_open(int r, const char *words)
{
	struct sbx_error err = SBX_ERROR_INIT;

	assert_int_equal(sbx_backend_open(&host, &backend, &err), r);
	assert_non_null(strstr(err.text, words));
	assert_null(backend);
	assert_false(scratch_exists(scratch_path("state")));
}

static struct sbx_sandbox *create(const char *name, const char *base, const char *branch)
{
	struct sbx_create req = {.name = name, .origin.base = base, .branch = branch};
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_sandbox *sb = NULL;

	if (sbx_backend_create(backend, &req, &sb, &err))
		fail_msg("%s", err.text);
	return sb;
}

/* The refusal names WORDS and leaves nothing. */
static void refuse(const char *name, const char *base, const char *branch, int r, const char *words)
{
	struct sbx_create req = {.name = name, .origin.base = base, .branch = branch};
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_sandbox *sb = NULL;
	int branches = repo_branches(source);
	int entries = scratch_count(scratch_path("repo/.git/worktrees"));

	assert_int_equal(sbx_backend_create(backend, &req, &sb, &err), r);
	if (!strstr(err.text, words))
		fail_msg("no \"%s\" in \"%s\"", words, err.text);
	assert_int_equal(repo_branches(source), branches);
	assert_int_equal(scratch_count(scratch_path("repo/.git/worktrees")), entries);
}

static void take_down(struct sbx_sandbox *sb)
{
	struct sbx_error err = SBX_ERROR_INIT;

	if (sbx_sandbox_retire(sb, &err) || sbx_sandbox_remove(sb, &err))
		fail_msg("%s", err.text);
	sbx_sandbox_close(sb);
}

/* The tree as host git has it through the mount. */
static const char *on_host(struct sbx_sandbox *sb)
{
	return repo_link(sb->workdir, sbx_sandbox_gitfile(sb));
}

static const char *in(const struct sbx_sandbox *sb, const char *path)
{
	static char buf[8192];

	snprintf(buf, sizeof(buf), "%s/%s", sb->workdir, path);
	return buf;
}

static void each_code_has_its_errno(void **state)
{
	static const struct {
		int code, klass;
		const char *message;
		int err;
	} rows[] = {
	        {GIT_ENOTFOUND, GIT_ERROR_ODB, "object not found", ENOENT},
	        {GIT_EEXISTS, GIT_ERROR_REFERENCE, "exists", EEXIST},
	        {GIT_EAMBIGUOUS, GIT_ERROR_ODB, "ambiguous", EINVAL},
	        {GIT_EBUFS, 0, "short", ENOBUFS},
	        {GIT_EUSER, 0, "", EINTR},
	        {GIT_EBAREREPO, 0, "", EINVAL},
	        {GIT_EUNBORNBRANCH, 0, "", EINVAL},
	        {GIT_EUNMERGED, 0, "", EBUSY},
	        {GIT_ENONFASTFORWARD, 0, "", EEXIST},
	        {GIT_EINVALIDSPEC, GIT_ERROR_REFERENCE, "", EINVAL},
	        {GIT_ECONFLICT, GIT_ERROR_CHECKOUT, "", EEXIST},
	        {GIT_ELOCKED, GIT_ERROR_OS, "failed to lock file", EBUSY},
	        {GIT_EMODIFIED, 0, "", EAGAIN},
	        {GIT_EAUTH, 0, "", EKEYREJECTED},
	        {GIT_ECERTIFICATE, 0, "", EKEYREJECTED},
	        {GIT_EPEEL, 0, "", EINVAL},
	        {GIT_EEOF, 0, "", EBADMSG},
	        {GIT_EINVALID, 0, "", EINVAL},
	        {GIT_EUNCOMMITTED, 0, "", EBUSY},
	        {GIT_EDIRECTORY, 0, "", EISDIR},
	        {GIT_EMERGECONFLICT, 0, "", EEXIST},
	        {GIT_EMISMATCH, 0, "", EBADMSG},
	        {GIT_EINDEXDIRTY, 0, "", EBUSY},
	        {GIT_EOWNER, GIT_ERROR_CONFIG, "", EACCES},
	        {GIT_ERROR, GIT_ERROR_NOMEMORY, "Out of memory", ENOMEM},
	        {GIT_ERROR, GIT_ERROR_INVALID, "", EINVAL},
	        {GIT_ERROR, GIT_ERROR_REFERENCE, "", EINVAL},
	        {GIT_ERROR, GIT_ERROR_REPOSITORY, "", EINVAL},
	        {GIT_ERROR, GIT_ERROR_CONFIG, "", EINVAL},
	        {GIT_ERROR, GIT_ERROR_ZLIB, "", EBADMSG},
	        {GIT_ERROR, GIT_ERROR_ODB, "", EBADMSG},
	        {GIT_ERROR, GIT_ERROR_INDEX, "", EBADMSG},
	        {GIT_ERROR, GIT_ERROR_OBJECT, "", EBADMSG},
	        {GIT_ERROR, GIT_ERROR_TREE, "", EBADMSG},
	        {GIT_ERROR, GIT_ERROR_CHECKOUT, "", EEXIST},
	        {GIT_ERROR, GIT_ERROR_SSL, "", ECONNREFUSED},
	        {GIT_ERROR, GIT_ERROR_NET, "", ECONNREFUSED},
	        {GIT_ERROR, GIT_ERROR_OS, "could not write: No space left on device", ENOSPC},
	        {GIT_ERROR, GIT_ERROR_OS, "could not write: Disk quota exceeded", EDQUOT},
	        {GIT_ERROR, GIT_ERROR_OS, "failed to open 'x': Too many open files", EMFILE},
	        {GIT_ERROR, GIT_ERROR_OS, "failed to open 'x': Permission denied", EACCES},
	        {GIT_ERROR, GIT_ERROR_OS, "failed to open 'x': Read-only file system", EROFS},
	        {GIT_ERROR, GIT_ERROR_ODB, "cannot write: No space left on device", ENOSPC},
	        {GIT_ERROR, GIT_ERROR_OS, "something else", EIO},
	        {GIT_ERROR, GIT_ERROR_OS, NULL, EIO},
	        {GIT_ERROR, GIT_ERROR_FILESYSTEM, "path too long: x", EINVAL},
	        {GIT_ERROR, GIT_ERROR_OS, "failed: Invalid cross-device link", EXDEV},
	        {GIT_ERROR, GIT_ERROR_HTTP, "unexpected http status code: 500", EREMOTEIO},
	        {GIT_ERROR, GIT_ERROR_MERGE, "", EINVAL},
	        {-9999, 0, "", EINVAL},
	};

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(rows); i++)
		assert_int_equal(sbx_git_errno(rows[i].code, rows[i].klass, rows[i].message),
		                 rows[i].err);
}

/* As a full disk does it: the write fails, and libgit2 says nothing. */
static int write_too_much(git_odb *odb)
{
	static char data[1 << 20];
	git_odb_stream *stream;
	struct rlimit before, small;
	int r = git_odb_open_wstream(&stream, odb, sizeof(data), GIT_OBJECT_BLOB);

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (char)(i * i * 2654435761U >> 13);
	getrlimit(RLIMIT_FSIZE, &before);
	small = before;
	small.rlim_cur = 4096;
	signal(SIGXFSZ, SIG_IGN);
	setrlimit(RLIMIT_FSIZE, &small);
	if (!r)
		r = git_odb_stream_write(stream, data, sizeof(data));
	setrlimit(RLIMIT_FSIZE, &before);
	git_odb_stream_free(stream);
	return r;
}

static void what_an_earlier_call_said_is_not_told(void **state)
{
	_cleanup_git_(repository) git_repository *repo = NULL;
	_cleanup_git_(odb) git_odb *odb = NULL;
	struct sbx_error err = SBX_ERROR_INIT;
	git_oid oid;

	(void)state;
	sbx_git_init();
	assert_int_equal(sbx_git_open(source, &repo), 0);
	assert_int_equal(git_repository_odb(&odb, repo), 0);
	git_error_set_str(GIT_ERROR_CONFIG, "config value 'core.attributesfile' was not found");
	assert_int_equal(sbx_git_fail(&err, write_too_much(odb), "a file"), -EFBIG);
	assert_string_equal(err.text, "a file: File too large");
	assert_int_equal(git_reference_name_to_id(&oid, repo, "HEAD"), 0);
	assert_null(sbx_git_said());
	assert_int_equal(sbx_git_fail(&err, -1, "ours"), -ENOMEM);
	sbx_git_shutdown();
}

static void unusable_sources_are_refused_at_open(void **state)
{
	(void)state;
	settings.source_abs = (char *)(uintptr_t)scratch_path("bare");
	repo_init(settings.source_abs, true);
	refuse_open(-EINVAL, "bare");
	settings.source_abs = (char *)(uintptr_t)scratch_path("empty");
	repo_init(settings.source_abs, false);
	refuse_open(-EINVAL, "empty");
	settings.base = (char *)"main";
	refuse_open(-ENOENT, "main");
	settings.base = NULL;
	settings.source_abs = (char *)(uintptr_t)scratch_path("broken");
	scratch_mkdir(settings.source_abs);
	scratch_write(scratch_path("broken/.git"), "gitdir: /nonexistent\n");
	refuse_open(-EINVAL, "not a usable repository");
	settings.source_abs = (char *)(uintptr_t)scratch_path("missing");
	refuse_open(-ENOENT, "missing");
	settings.source_abs = (char *)(uintptr_t)scratch_path("repo/file");
	refuse_open(-ENOTDIR, "not a directory");
	settings.source_abs = NULL;
	settings.source = (char *)"org/repo";
	refuse_open(-EINVAL, "needs a path");
}

static void a_base_is_checked_at_open(void **state)
{
	(void)state;
	settings.base = (char *)"no-such";
	refuse_open(-ENOENT, "no-such");
	settings.base = (char *)"HEAD:file";
	refuse_open(-EINVAL, "not a commit");
	settings.source = settings.source_abs = NULL;
	settings.base = (char *)"main";
	refuse_open(-EINVAL, "git repository");
}

static void paths_through_the_own_mount_are_refused(void **state)
{
	(void)state;
	settings.mountpoint = (char *)(uintptr_t)scratch_path(".");
	settings.mountpoint[strlen(settings.mountpoint) - 2] = '\0';
	refuse_open(-EINVAL, "below the mountpoint");
	settings.source = settings.source_abs = NULL;
	refuse_open(-EINVAL, "below the mountpoint");
	settings.mountpoint = NULL;
}

static void somebody_elses_repository_is_refused_with_advice(void **state)
{
	(void)state;
	if (geteuid() != 0)
		skip_because("only root can give files away");
	assert_int_equal(chown(source, 4321, 4321), 0);
	assert_int_equal(chown(scratch_path("repo/.git"), 4321, 4321), 0);
	refuse_open(-EACCES, "safe.directory");
}

static void a_subdirectory_is_a_plain_directory(void **state)
{
	struct json_object *obj = json_object_new_object();
	struct sbx_sandbox *sb;

	(void)state;
	scratch_mkdir(scratch_path("repo/sub"));
	scratch_write(scratch_path("repo/sub/x"), "y");
	settings.source_abs = (char *)(uintptr_t)scratch_path("repo/sub");
	open_backend();
	sb = create("a", NULL, NULL);
	scratch_expect(in(sb, "x"), "y");
	assert_false(scratch_exists(in(sb, ".git")));
	sbx_sandbox_info(sb, obj);
	assert_string_equal(json_object_get_string(json_object_object_get(obj, "kind")), "dir");
	assert_non_null(
	        strstr(json_object_get_string(json_object_object_get(obj, "note")), "not its top"));
	json_object_put(obj);
	take_down(sb);
}

static void a_sandbox_can_be_the_source_of_another_mount(void **state)
{
	struct sbx_settings outer = settings;
	struct sbx_host other = {.settings = &outer};
	struct sbx_backend *second;
	struct sbx_sandbox *a, *b = NULL;

	(void)state;
	open_backend();
	a = create("a", NULL, NULL);
	outer.source_abs = (char *)(uintptr_t)on_host(a);
	outer.state_dir = (char *)(uintptr_t)scratch_path("state2");
	assert_int_equal(sbx_backend_open(&other, &second, NULL), 0);
	assert_int_equal(sbx_backend_create(second, &(struct sbx_create){.name = "b"}, &b, NULL),
	                 0);
	scratch_expect(in(b, "file"), "one\n");
	assert_non_null(repo_branch(source, "sandbox/b"));
	take_down(b);
	take_down(a);
	sbx_backend_destroy(second);
}

static void the_entry_is_locked_and_leads_to_the_tree(void **state)
{
	struct sbx_sandbox *sb;
	char text[5000];

	(void)state;
	open_backend();
	sb = create("a", NULL, NULL);
	scratch_expect(scratch_path("repo/.git/worktrees/%s/locked", sb->id), "sandboxfs\n");
	snprintf(text, sizeof(text), "%s/.git\n", sb->workdir);
	scratch_expect(scratch_path("repo/.git/worktrees/%s/gitdir", sb->id), text);
	scratch_expect(scratch_path("repo/.git/worktrees/%s/HEAD", sb->id),
	               "ref: refs/heads/sandbox/a\n");
	assert_string_equal(repo_branch(source, "sandbox/a"), first);
	assert_string_equal(repo_branch(on_host(sb), "sandbox/a"), first);
	take_down(sb);
}

static void who_commits_on_the_host_commits_inside(void **state)
{
	_cleanup_fd_ int home = -1;

	(void)state;
	scratch_write(scratch_path("repo/.git/config"),
	              "[core]\nrepositoryformatversion = 0\n"
	              "[user]\nname = \"A \\\"B\\\" \\\\C\"\nemail = a@example.org\n");
	scratch_mkdir(scratch_path("home"));
	home = open(scratch_path("home"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(sbx_git_identity(source, home, false), 0);
	scratch_expect(scratch_path("home/.gitconfig"),
	               "[user]\n\tname = \"A \\\"B\\\" \\\\C\"\n\temail = \"a@example.org\"\n");
	/* What is there is the sandbox's. */
	scratch_write(scratch_path("home/.gitconfig"), "mine");
	assert_int_equal(sbx_git_identity(source, home, false), 0);
	scratch_expect(scratch_path("home/.gitconfig"), "mine");
	assert_int_equal(unlink(scratch_path("home/.gitconfig")), 0);
	assert_int_equal(sbx_git_identity(source, home, true), 0);
	scratch_expect(scratch_path("home/.gitconfig"),
	               "[core]\n\tcheckStat = minimal\n"
	               "[user]\n\tname = \"A \\\"B\\\" \\\\C\"\n\temail = \"a@example.org\"\n");
	/* Outside of repositories. */
	assert_int_equal(unlink(scratch_path("home/.gitconfig")), 0);
	scratch_write(scratch_path(".gitconfig"), "[user]\n\tname = User\n");
	assert_int_equal(git_libgit2_opts(GIT_OPT_SET_SEARCH_PATH, GIT_CONFIG_LEVEL_GLOBAL,
	                                  scratch_path(".")),
	                 0);
	assert_int_equal(sbx_git_identity(NULL, home, false), 0);
	scratch_expect(scratch_path("home/.gitconfig"), "[user]\n\tname = \"User\"\n");
	git_libgit2_opts(GIT_OPT_SET_SEARCH_PATH, GIT_CONFIG_LEVEL_GLOBAL, "/nonexistent");
}

static void base_may_be_any_name_of_a_commit(void **state)
{
	struct sbx_sandbox *sb;
	char brief[8];

	(void)state;
	scratch_write(scratch_path("repo/file"), "two\n");
	repo_commit(source, "second");
	open_backend();
	sb = create("a", "HEAD~1", NULL);
	scratch_expect(in(sb, "file"), "one\n");
	take_down(sb);
	snprintf(brief, sizeof(brief), "%.7s", first);
	sb = create("a", brief, NULL);
	scratch_expect(in(sb, "file"), "one\n");
	take_down(sb);
	sb = create("a", NULL, NULL);
	scratch_expect(in(sb, "file"), "two\n");
	take_down(sb);
	refuse("a", "no-such", NULL, -ENOENT, "no-such");
	refuse("a", "HEAD:file", NULL, -EINVAL, "not a commit");
}

static void the_mounts_base_is_the_default(void **state)
{
	struct sbx_sandbox *sb;

	(void)state;
	scratch_write(scratch_path("repo/file"), "two\n");
	repo_commit(source, "second");
	settings.base = first;
	open_backend();
	sb = create("a", NULL, NULL);
	scratch_expect(in(sb, "file"), "one\n");
	take_down(sb);
	sb = create("a", "HEAD", NULL);
	scratch_expect(in(sb, "file"), "two\n");
	take_down(sb);
	settings.base = NULL;
}

static void branch_names_come_from_pattern_or_request(void **state)
{
	struct sbx_sandbox *a, *b;

	(void)state;
	settings.branch = (char *)"wip/{name}/{name}";
	open_backend();
	a = create("a", NULL, NULL);
	assert_non_null(repo_branch(source, "wip/a/a"));
	b = create("b", NULL, "as-it-is-{name}");
	assert_non_null(repo_branch(source, "as-it-is-{name}"));
	refuse("c", NULL, "sp ace", -EINVAL, "not a valid branch name");
	refuse("c", NULL, "", -EINVAL, "not a valid branch name");
	refuse("c", NULL, "-x", -EINVAL, "not a valid branch name");
	refuse("c", NULL, "../../x", -EINVAL, "not a valid branch name");
	refuse("a..b", NULL, NULL, -EINVAL, "not a valid branch name");
	refuse("c", NULL, "wip/a/a/deeper", -EEXIST, "collides");
	refuse("c", NULL, "wip/a", -EEXIST, "wip/a");
	take_down(a);
	take_down(b);
	assert_int_equal(repo_branches(source), 1);
	settings.branch = NULL;
}

static void a_name_with_dots_makes_a_valid_entry(void **state)
{
	struct sbx_sandbox *sb;

	(void)state;
	open_backend();
	sb = create("a..b", NULL, "fine");
	assert_int_equal(scratch_count(scratch_path("repo/.git/worktrees")), 1);
	assert_false(scratch_exists(scratch_path("repo/.git/worktrees/%s", sb->id)));
	assert_int_equal(repo_changes(on_host(sb)), 0);
	take_down(sb);
	assert_int_equal(scratch_count(scratch_path("repo/.git/worktrees")), -1);
}

static void a_branch_checked_out_elsewhere_is_busy(void **state)
{
	struct sbx_sandbox *sb;

	(void)state;
	repo_make_branch(source, "taken", "HEAD");
	open_backend();
	sb = create("a", NULL, "taken");
	refuse("b", NULL, "taken", -EBUSY, sb->workdir);
	refuse("b", NULL, "master", -EBUSY, "the repository itself");
	take_down(sb);
	assert_non_null(repo_branch(source, "taken"));
}

static void a_free_branch_is_continued_and_kept(void **state)
{
	struct sbx_sandbox *sb;

	(void)state;
	repo_make_branch(source, "old", "HEAD");
	scratch_write(scratch_path("repo/file"), "two\n");
	repo_commit(source, "second");
	settings.base = (char *)"HEAD";
	open_backend();
	sb = create("a", NULL, "old");
	scratch_expect(in(sb, "file"), "one\n");
	take_down(sb);
	assert_string_equal(repo_branch(source, "old"), first);
	sb = create("a", first, "old");
	take_down(sb);
	refuse("a", "HEAD", "old", -EINVAL, "stands elsewhere");
	refuse("a", "no-such", "old", -ENOENT, "no-such");
	settings.base = NULL;
}

static void a_branch_with_commits_of_its_own_outlives_the_sandbox(void **state)
{
	struct sbx_sandbox *sb;
	char tip[65];

	(void)state;
	open_backend();
	sb = create("a", NULL, NULL);
	scratch_write(in(sb, "file"), "mine\n");
	snprintf(tip, sizeof(tip), "%s", repo_commit(on_host(sb), "work"));
	take_down(sb);
	assert_string_equal(repo_branch(source, "sandbox/a"), tip);
	settings.branch_exists = (char *)"continue";
	sb = create("a", NULL, NULL);
	scratch_expect(in(sb, "file"), "mine\n");
	take_down(sb);
	settings.branch_exists = NULL;
	assert_string_equal(repo_branch(source, "sandbox/a"), tip);
}

static void expect_info(struct sbx_sandbox *sb, const char *key, const char *value)
{
	struct json_object *info = json_object_new_object(), *have;

	sbx_sandbox_info(sb, info);
	assert_int_equal(json_object_object_get_ex(info, key, &have), value != NULL);
	if (value)
		assert_string_equal(json_object_get_string(have), value);
	json_object_put(info);
}

static void expect_branch(struct sbx_sandbox *sb, const char *branch, const char *wanted)
{
	expect_info(sb, "branch", branch);
	expect_info(sb, "branch_wanted", wanted);
}

static void a_branch_that_was_kept_is_not_taken_for_another_sandbox(void **state)
{
	struct sbx_sandbox *sb, *other;

	(void)state;
	repo_make_branch(source, "sandbox/a", "HEAD");
	repo_make_branch(source, "sandbox/a-2", "HEAD");
	scratch_write(scratch_path("repo/file"), "two\n");
	repo_commit(source, "second");
	open_backend();
	sb = create("a", NULL, NULL);
	expect_branch(sb, "sandbox/a-3", "sandbox/a");
	expect_info(sb, "branch_exists", "new");
	scratch_expect(in(sb, "file"), "two\n");
	other = create("a-3", NULL, NULL);
	expect_branch(other, "sandbox/a-3-2", "sandbox/a-3");
	take_down(other);
	take_down(sb);
	assert_null(repo_branch(source, "sandbox/a-3"));
	assert_string_equal(repo_branch(source, "sandbox/a"), first);
	sb = create("a", first, NULL);
	expect_branch(sb, "sandbox/a", NULL);
	take_down(sb);
	assert_string_equal(repo_branch(source, "sandbox/a"), first);
	sb = create("a", NULL, "sandbox/a");
	expect_branch(sb, "sandbox/a", "sandbox/a");
	expect_info(sb, "branch_exists", "continue");
	take_down(sb);
	settings.branch_exists = (char *)"refuse";
	refuse("a", NULL, NULL, -EEXIST, "sandbox/a is there already");
	sb = create("b", NULL, NULL);
	expect_branch(sb, "sandbox/b", NULL);
	take_down(sb);
	settings.branch_exists = NULL;
}

static void a_branch_below_the_name_leaves_it_to_another(void **state)
{
	struct sbx_sandbox *sb;

	(void)state;
	repo_make_branch(source, "sandbox/a/x", "HEAD");
	open_backend();
	sb = create("a", NULL, NULL);
	expect_branch(sb, "sandbox/a-2", "sandbox/a");
	take_down(sb);
	repo_delete_branch(source, "sandbox/a/x");
	repo_make_branch(source, "top", "HEAD");
	refuse("b", NULL, "top/b", -EEXIST, "top");
}

/* As `git stash` in the sandbox leaves it: the stash hangs on the branch's last commit. */
static void a_stash_is_no_reason_to_drop_a_branch(void **state)
{
	git_reference *ref, *moved;
	struct sbx_sandbox *sb;
	git_repository *repo;
	git_oid oid;
	char tip[65];

	(void)state;
	open_backend();
	sb = create("a", NULL, NULL);
	scratch_write(in(sb, "file"), "mine\n");
	snprintf(tip, sizeof(tip), "%s", repo_commit(on_host(sb), "work"));
	scratch_write(in(sb, "file"), "stashed\n");
	git_oid_fromstr(&oid, repo_commit(on_host(sb), "WIP"));
	assert_int_equal(git_repository_open(&repo, source), 0);
	assert_int_equal(git_reference_create(&ref, repo, "refs/stash", &oid, 0, NULL), 0);
	git_reference_free(ref);
	git_oid_fromstr(&oid, tip);
	assert_int_equal(git_reference_lookup(&ref, repo, "refs/heads/sandbox/a"), 0);
	assert_int_equal(git_reference_set_target(&moved, ref, &oid, NULL), 0);
	git_reference_free(moved);
	git_reference_free(ref);
	git_repository_free(repo);
	take_down(sb);
	assert_string_equal(repo_branch(source, "sandbox/a"), tip);
}

static void a_branch_that_another_one_contains_goes(void **state)
{
	struct sbx_sandbox *sb;

	(void)state;
	open_backend();
	sb = create("a", NULL, NULL);
	scratch_write(in(sb, "file"), "mine\n");
	repo_make_branch(source, "merged", repo_commit(on_host(sb), "work"));
	take_down(sb);
	assert_null(repo_branch(source, "sandbox/a"));
	assert_non_null(repo_branch(source, "merged"));
}

static void teardown_accepts_a_branch_deleted_by_hand(void **state)
{
	struct sbx_sandbox *sb;

	(void)state;
	open_backend();
	sb = create("a", NULL, NULL);
	repo_delete_branch(source, "sandbox/a");
	take_down(sb);
	assert_int_equal(repo_branches(source), 1);
}

static void teardown_accepts_a_half_removed_worktree(void **state)
{
	struct sbx_sandbox *sb;

	(void)state;
	open_backend();
	sb = create("a", NULL, NULL);
	assert_int_equal(unlink(in(sb, ".git")), 0);
	assert_int_equal(unlink(scratch_path("repo/.git/worktrees/%s/gitdir", sb->id)), 0);
	take_down(sb);
	assert_int_equal(scratch_count(scratch_path("repo/.git/worktrees")), -1);
	assert_int_equal(repo_branches(source), 1);
}

static void teardown_accepts_that_the_source_is_gone(void **state)
{
	struct sbx_sandbox *a, *b;

	(void)state;
	open_backend();
	a = create("a", NULL, NULL);
	b = create("b", NULL, NULL);
	assert_int_equal(rename(source, scratch_path("moved")), 0);
	take_down(a);
	assert_int_equal(sbx_tree_remove(AT_FDCWD, scratch_path("moved"), NULL), 0);
	take_down(b);
	assert_int_equal(scratch_count(scratch_path("state/meta")), 0);
	assert_int_equal(scratch_count(scratch_path("state/trash")), 0);
}

static void teardown_leaves_a_branch_that_moved_into_another_worktree(void **state)
{
	struct sbx_sandbox *sb;

	(void)state;
	open_backend();
	sb = create("a", NULL, NULL);
	assert_int_equal(unlink(scratch_path("repo/.git/HEAD")), 0);
	scratch_write(scratch_path("repo/.git/HEAD"), "ref: refs/heads/sandbox/a\n");
	take_down(sb);
	assert_non_null(repo_branch(source, "sandbox/a"));
}

static void recovery_removes_entries_nobody_knows(void **state)
{
	char gitdir[5000];

	(void)state;
	scratch_mkdir(scratch_path("repo/.git/worktrees"));
	scratch_mkdir(scratch_path("repo/.git/worktrees/ours-1"));
	scratch_mkdir(scratch_path("repo/.git/worktrees/theirs"));
	snprintf(gitdir, sizeof(gitdir), "%s/trees/ours-1/.git\n", settings.state_dir);
	scratch_write(scratch_path("repo/.git/worktrees/ours-1/gitdir"), gitdir);
	scratch_write(scratch_path("repo/.git/worktrees/theirs/gitdir"), "/elsewhere/.git\n");
	open_backend();
	assert_false(scratch_exists(scratch_path("repo/.git/worktrees/ours-1")));
	assert_true(scratch_exists(scratch_path("repo/.git/worktrees/theirs")));
}

static void recovery_leaves_an_unreadable_record_alone(void **state)
{
	char gitdir[5000];

	(void)state;
	scratch_mkdir(scratch_path("repo/.git/worktrees"));
	scratch_mkdir(scratch_path("repo/.git/worktrees/x-1"));
	snprintf(gitdir, sizeof(gitdir), "%s/trees/x-1/.git\n", settings.state_dir);
	scratch_write(scratch_path("repo/.git/worktrees/x-1/gitdir"), gitdir);
	scratch_mkdir(settings.state_dir);
	scratch_mkdir(scratch_path("state/meta"));
	scratch_mkdir(scratch_path("state/trees"));
	scratch_mkdir(scratch_path("state/trees/x-1"));
	scratch_mkdir(scratch_path("state/trees/stray"));
	scratch_write(scratch_path("state/meta/x-1.json"), "{");
	scratch_write(scratch_path("state/meta/y-1.tmp"), "{");
	notes = 0;
	open_backend();
	assert_int_equal(notes, 2);
	assert_true(scratch_exists(scratch_path("state/trees/x-1")));
	assert_true(scratch_exists(scratch_path("repo/.git/worktrees/x-1")));
	assert_false(scratch_exists(scratch_path("state/trees/stray")));
	assert_int_equal(scratch_count(scratch_path("state/meta")), 1);
}

static void recovery_breaks_the_lock_of_a_dead_daemon(void **state)
{
	struct sbx_sandbox *sb;

	(void)state;
	open_backend();
	sb = create("a", NULL, NULL);
	assert_int_equal(sbx_sandbox_retire(sb, NULL), 0);
	sbx_sandbox_close(sb);
	sbx_backend_destroy(backend);
	assert_int_equal(unlink(scratch_path("state/clean")), 0);
	scratch_mkdir(scratch_path("repo/.git/refs/heads/sandbox"));
	scratch_write(scratch_path("repo/.git/refs/heads/sandbox/a.lock"), "");
	open_backend();
	take_down(create("a", NULL, NULL));
}

static void a_locked_branch_is_busy(void **state)
{
	(void)state;
	open_backend();
	scratch_mkdir(scratch_path("repo/.git/refs/heads/sandbox"));
	scratch_write(scratch_path("repo/.git/refs/heads/sandbox/a.lock"), "");
	refuse("a", NULL, NULL, -EBUSY, "sandbox/a");
	assert_int_equal(unlink(scratch_path("repo/.git/refs/heads/sandbox/a.lock")), 0);
	take_down(create("a", NULL, NULL));
}

static void line_endings_and_submodules_leave_the_status_clean(void **state)
{
	struct sbx_sandbox *sb;
	git_repository *repo;
	git_index *index;
	git_index_entry link = {.mode = GIT_FILEMODE_COMMIT, .path = "module"};

	(void)state;
	scratch_write(scratch_path("repo/.gitattributes"), "*.dos text eol=crlf\n");
	scratch_write(scratch_path("repo/a.dos"), "x\r\ny\r\n");
	assert_int_equal(git_repository_open(&repo, source), 0);
	assert_int_equal(git_repository_index(&index, repo), 0);
	assert_int_equal(git_oid_fromstr(&link.id, first), 0);
	assert_int_equal(git_index_add(index, &link), 0);
	assert_int_equal(git_index_write(index), 0);
	git_index_free(index);
	git_repository_free(repo);
	scratch_mkdir(scratch_path("repo/module"));
	repo_commit(source, "second");
	open_backend();
	sb = create("a", NULL, NULL);
	scratch_expect(in(sb, "a.dos"), "x\r\ny\r\n");
	assert_int_equal(scratch_count(in(sb, "module")), 0);
	assert_int_equal(repo_changes(on_host(sb)), 0);
	take_down(sb);
}

static void hooks_and_filter_programs_do_not_run(void **state)
{
	struct sbx_sandbox *sb;
	char hook[5000];

	(void)state;
	snprintf(hook, sizeof(hook), "#!/bin/sh\ntouch %s\n", scratch_path("ran"));
	scratch_write(scratch_path("repo/.git/hooks/post-checkout"), hook);
	assert_int_equal(chmod(scratch_path("repo/.git/hooks/post-checkout"), 0755), 0);
	snprintf(hook, sizeof(hook), "[filter \"evil\"]\n\tsmudge = touch %s\n\trequired = true\n",
	         scratch_path("ran"));
	scratch_write(scratch_path("repo/.gitattributes"), "* filter=evil\n");
	repo_commit(source, "second");
	scratch_write(scratch_path("config"), hook);
	assert_int_equal(git_libgit2_opts(GIT_OPT_SET_SEARCH_PATH, GIT_CONFIG_LEVEL_GLOBAL,
	                                  scratch_path(".")),
	                 0);
	open_backend();
	sb = create("a", NULL, NULL);
	assert_false(scratch_exists(scratch_path("ran")));
	scratch_expect(in(sb, "file"), "one\n");
	take_down(sb);
	git_libgit2_opts(GIT_OPT_SET_SEARCH_PATH, GIT_CONFIG_LEVEL_GLOBAL, "/nonexistent");
}

static void a_checkout_under_way_can_be_cancelled(void **state)
{
	struct sbx_git_worktree wt = {
	        .workdir = scratch_path("tree"), .worktree = "w", .base = first};
	atomic_bool cancelled = true;
	struct sbx_error err = SBX_ERROR_INIT;
	char common[5000], workdir[5000];
	int tree;

	(void)state;
	for (int i = 0; i < 10; i++)
		scratch_write(scratch_path("repo/file%d", i), "x");
	snprintf(first, sizeof(first), "%s", repo_commit(source, "second"));
	snprintf(common, sizeof(common), "%s", scratch_path("repo/.git"));
	snprintf(workdir, sizeof(workdir), "%s", scratch_path("tree"));
	wt.common = common;
	wt.workdir = workdir;
	wt.branch = "b";
	wt.branch_created = true;
	scratch_mkdir(wt.workdir);
	assert_int_equal(sbx_git_init(), 0);
	tree = open(wt.workdir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(sbx_git_attach(&wt, tree, &err), 0);
	assert_int_equal(sbx_git_attach(&wt, tree, &err), -EEXIST);
	assert_int_equal(sbx_git_checkout(source, &wt, &cancelled, &err), -EINTR);
	assert_true(scratch_count(scratch_path("tree")) <= 2);
	cancelled = false;
	assert_int_equal(sbx_git_checkout(source, &wt, &cancelled, &err), 0);
	assert_true(scratch_exists(scratch_path("tree/file")));
	assert_int_equal(sbx_git_detach(&wt, &err), 0);
	assert_int_equal(sbx_git_detach(&wt, &err), 0);
	assert_null(repo_branch(source, "b"));
	close(tree);
	sbx_git_shutdown();
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(each_code_has_its_errno),
	        CASE(what_an_earlier_call_said_is_not_told),
	        CASE(unusable_sources_are_refused_at_open),
	        CASE(a_base_is_checked_at_open),
	        CASE(paths_through_the_own_mount_are_refused),
	        CASE(somebody_elses_repository_is_refused_with_advice),
	        CASE(a_subdirectory_is_a_plain_directory),
	        CASE(a_sandbox_can_be_the_source_of_another_mount),
	        CASE(the_entry_is_locked_and_leads_to_the_tree),
	        CASE(who_commits_on_the_host_commits_inside),
	        CASE(base_may_be_any_name_of_a_commit),
	        CASE(the_mounts_base_is_the_default),
	        CASE(branch_names_come_from_pattern_or_request),
	        CASE(a_name_with_dots_makes_a_valid_entry),
	        CASE(a_branch_checked_out_elsewhere_is_busy),
	        CASE(a_free_branch_is_continued_and_kept),
	        CASE(a_branch_that_was_kept_is_not_taken_for_another_sandbox),
	        CASE(a_branch_below_the_name_leaves_it_to_another),
	        CASE(a_branch_with_commits_of_its_own_outlives_the_sandbox),
	        CASE(a_stash_is_no_reason_to_drop_a_branch),
	        CASE(a_branch_that_another_one_contains_goes),
	        CASE(teardown_accepts_a_branch_deleted_by_hand),
	        CASE(teardown_accepts_a_half_removed_worktree),
	        CASE(teardown_accepts_that_the_source_is_gone),
	        CASE(teardown_leaves_a_branch_that_moved_into_another_worktree),
	        CASE(recovery_removes_entries_nobody_knows),
	        CASE(recovery_leaves_an_unreadable_record_alone),
	        CASE(recovery_breaks_the_lock_of_a_dead_daemon),
	        CASE(a_locked_branch_is_busy),
	        CASE(line_endings_and_submodules_leave_the_status_clean),
	        CASE(hooks_and_filter_programs_do_not_run),
	        CASE(a_checkout_under_way_can_be_cancelled),
	};
	int r;

	repo_setup();
	r = cmocka_run_group_tests(tests, NULL, NULL);
	repo_teardown();
	return r;
}
