/* The entries that a teardown saves, and when it saves none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"
#include "tests/lib/local_fixture.h"
#include "tests/lib/scratch.h"

#define EDITS                                                                                      \
	"echo changed > file; rm sub/gone; echo new > 'sub/a new one'; chmod 755 mode; "           \
	"ln -s file to-file; echo one > one; ln one other; mkfifo pipe; mkdir -p deep/er/est; "    \
	"echo x > deep/er/est/x; echo ignored > x.log; rm -r whole; echo instead > whole; "        \
	"rm -r again; mkdir again; echo fresh > again/z; printf 'quoted\\nname' > 'odd\n\"name'"

static struct {
	int n;
	char name[128], sandbox[64], branch[128];
	int64_t time_ms;
	bool whole;
} last;

static bool is_git(void)
{
	return fixture.row->kind == FIXTURE_GIT;
}

static int note_entry(const struct sbx_trash *t, void *data)
{
	(void)data;
	assert_true(t->time_ms >= last.time_ms);
	last.n++;
	snprintf(last.name, sizeof(last.name), "%s", t->name);
	snprintf(last.sandbox, sizeof(last.sandbox), "%s", t->sandbox);
	snprintf(last.branch, sizeof(last.branch), "%s", t->branch ? t->branch : "");
	last.time_ms = t->time_ms;
	last.whole = t->whole;
	return 0;
}

/* How many entries there are; the newest is LAST. */
static int entries(void)
{
	struct sbx_error err = SBX_ERROR_INIT;

	memset(&last, 0, sizeof(last));
	if (sbx_backend_trash(fixture.backend, note_entry, NULL, &err))
		fail_msg("trash: %s", err.text);
	return last.n;
}

static struct sbx_sandbox *edited(const char *name)
{
	struct sbx_sandbox *sb = fixture_create(name);

	if (fixture.row->kind == FIXTURE_NONE)
		fixture_in(sb, "mkdir sub whole again; echo f > file; echo g > sub/gone; "
		               "echo m > mode; echo '*.log' > .gitignore");
	fixture_in(sb, EDITS);
	return sb;
}

static const char *repository(void)
{
	return is_git() ? scratch_path("source/.git") : scratch_path("state/trashed.git");
}

static void expect_saved(const char *tree)
{
	_cleanup_free_ char *have =
	        fixture_run("git --git-dir=%s rev-parse refs/sandboxfs/trash/%s^{tree}",
	                    repository(), last.name);

	if (strcmp(have, tree) != 0) {
		free(fixture_run("git --git-dir=%s diff-tree -r %.40s %.40s >&2; :", repository(),
		                 tree, have));
		fail_msg("another tree than was there");
	}
}

static void what_was_not_committed_is_saved(void **state)
{
	struct sbx_sandbox *sb = edited("a");
	_cleanup_free_ char *tree = fixture_tree(sb);

	(void)state;
	fixture_take_down(sb);
	assert_int_equal(entries(), 1);
	assert_string_equal(last.sandbox, "a");
	assert_string_equal(last.branch, is_git() ? "sandbox/a" : "");
	assert_int_equal(strncmp(last.name, "a-20", 4), 0);
	expect_saved(tree);
	fixture_expect_empty();
	free(fixture_run("git --git-dir=%s fsck --strict --no-dangling 2>&1", repository()));
}

/* It takes no room and no time to make, and hours to read. */
static void a_file_of_nothing_is_left_out(void **state)
{
	struct sbx_sandbox *sb = edited("a");
	_cleanup_free_ char *tree = fixture_tree(sb);

	(void)state;
	fixture_in(sb, "truncate -s 4T huge; truncate -s 4T again/huge");
	fixture_take_down(sb);
	assert_int_equal(entries(), 1);
	expect_saved(tree);
	fixture_expect_empty();
}

static void nothing_is_saved_of_what_was_not_touched(void **state)
{
	struct sbx_sandbox *sb = fixture_create("a");

	(void)state;
	/* Of a full copy of a directory nobody knows what it was. */
	if (fixture.row->kind == FIXTURE_DIR && !sb->tree.mounted) {
		fixture_take_down(sb);
		return;
	}
	fixture_take_down(sb);
	assert_int_equal(entries(), 0);
	sb = fixture_create("a");
	/* All of it is in a commit. */
	if (is_git() && !sb->tree.mounted) {
		fixture_in(sb, "echo more > file");
		free(fixture_git(sb, "commit -qam all"));
	}
	fixture_take_down(sb);
	assert_int_equal(entries(), 0);
	if (is_git())
		free(fixture_git_source("branch -D sandbox/a 2>&1 || :"));
	fixture_expect_empty();
	assert_int_equal(scratch_count(scratch_path("state/removed")), 0);
}

static struct sbx_sandbox *from_trash(const char *entry, const char *name, const char *branch)
{
	struct sbx_create req = {.name = name,
	                         .origin = {.kind = SBX_ORIGIN_TRASH, .entry = entry},
	                         .branch = branch};
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_sandbox *sb = NULL;

	if (sbx_backend_create(fixture.backend, &req, &sb, &err))
		fail_msg("create from %s: %s", entry, err.text);
	return sb;
}

/* What git has no word for, or says otherwise. */
#define ODD                                                                                        \
	"echo ignored > x.log; mkdir -p empty/er; chmod 700 empty; echo s > secret; "              \
	"chmod 600 secret; printf 'a\\r\\nb\\r\\n' > crlf; echo '* text=auto' > .gitattributes; "  \
	"echo x > .GIT; mkdir 'git~1'; echo y > 'git~1/y'; git init -q inner; echo i > inner/i; "  \
	"git -C inner add i; git -C inner -c user.name=T -c user.email=t@e commit -qm inner; "     \
	"echo h > hard; ln hard link2; ln -s nowhere dead; touch -d '2001-02-03 04:05:06.7' "      \
	"file; "                                                                                   \
	"mkdir closed; echo c > closed/c; chmod 0 closed/c; chmod 500 closed"

/* All that there is in a tree, but for its .git. */
static char *listing(struct sbx_sandbox *sb)
{
	return fixture_run(
	        "cd %s && find . -path ./.git -prune -o -printf '%%P %%y %%m %%n %%l' "
	        "\\( -type d -printf '\\n' -o -printf ' %%s %%T@\\n' \\) | sort; "
	        "find . -path ./.git -prune -o -type f -readable -exec sha1sum {} + | sort -k 2",
	        fixture_path(sb));
}

static void put_odd(struct sbx_sandbox *sb)
{
	fixture_in(sb, ODD);
}

static void what_git_cannot_say_comes_back(void **state)
{
	struct sbx_sandbox *sb = edited("a");
	_cleanup_free_ char *before = NULL, *after = NULL;

	(void)state;
	put_odd(sb);
	before = listing(sb);
	fixture_take_down(sb);
	assert_int_equal(entries(), 1);
	assert_true(last.whole);
	fixture_expect_empty();
	assert_int_equal(scratch_count(scratch_path("state/removed")), 1);
	fixture_reopen();
	sb = from_trash(last.name, "b", NULL);
	after = listing(sb);
	assert_string_equal(after, before);
	/* No process has a working directory in a tree that is mounted nowhere. */
	if (!sb->tree.mounted)
		fixture_in(sb, "git -C inner fsck >&2 && test -z \"$(git -C inner status "
		               "--porcelain)\"");
	fixture_take_down(sb);
}

/* Once it is where removed ones are, or half of the way there, the next mount finishes. */
static void a_crash_while_it_is_kept_loses_nothing(void **state)
{
	struct sbx_sandbox *sb = edited("a");
	struct sbx_error err = SBX_ERROR_INIT;
	_cleanup_free_ char *before = NULL, *after = NULL, *id = strdup(sb->id), *meta = NULL;

	(void)state;
	put_odd(sb);
	before = listing(sb);
	meta = fixture_run("cat %s/%s.json", scratch_path("state/meta"), id);
	assert_int_equal(sbx_sandbox_retire(sb, &err), 0);
	if (sbx_sandbox_remove(sb, &err))
		fail_msg("%s", err.text);
	sbx_sandbox_close(sb);
	/* As if it had been killed before the record went, with the tree not moved yet. */
	free(fixture_run(
	        "cd %s && sed 's/\"state\": *\"[a-z]*\"/\"state\":\"deleting\"/' "
	        "removed/%s/%s.json > meta/%s.json && grep -q '\"keep\": *true' meta/%s.json "
	        "&& mv removed/%s/tree trash/%s && { [ ! -e removed/%s/index ] || "
	        "{ mkdir -p git/%s && mv removed/%s/index git/%s/trashed; }; }; rm -f clean",
	        scratch_path("state"), id, id, id, id, id, id, id, id, id, id));
	fixture_reopen();
	assert_int_equal(fixture.nfound, 0);
	assert_int_equal(entries(), 1);
	fixture_expect_empty();
	sb = from_trash(last.name, "b", NULL);
	after = listing(sb);
	assert_string_equal(after, before);
	fixture_take_down(sb);
}

static void await_removed(int n)
{
	for (int i = 0; i < 600 && scratch_count(scratch_path("state/removed")) != n; i++)
		usleep(50000);
	assert_int_equal(scratch_count(scratch_path("state/removed")), n);
}

static pthread_mutex_t dropped_lock = PTHREAD_MUTEX_INITIALIZER;
static char dropped[512]; /* what was told last */

/* On a thread of the backend's. */
static void note_dropped(const char *name, const char *text, void *data)
{
	(void)name;
	(void)data;
	pthread_mutex_lock(&dropped_lock);
	snprintf(dropped, sizeof(dropped), "%s", text);
	pthread_mutex_unlock(&dropped_lock);
}

static void expect_dropped(const char *text)
{
	pthread_mutex_lock(&dropped_lock);
	assert_non_null(strstr(dropped, text));
	dropped[0] = '\0';
	pthread_mutex_unlock(&dropped_lock);
}

static void files_go_with_their_entry(void **state)
{
	(void)state;
	fixture_take_down(edited("a"));
	assert_int_equal(entries(), 1);
	assert_int_equal(scratch_count(scratch_path("state/removed")), 1);
	free(fixture_run("git --git-dir=%s update-ref -d refs/sandboxfs/trash/%s", repository(),
	                 last.name));
	fixture_close();
	fixture.host.dropped = note_dropped;
	fixture_reopen();
	await_removed(0);
	expect_dropped("the entry is gone");
	fixture_take_down(edited("a"));
	fixture_take_down(edited("a"));
	assert_int_equal(scratch_count(scratch_path("state/removed")), 2);
	fixture_close();
	fixture.settings.trash_days = 1;
	fixture_age_trash(repository(), 2);
	fixture_reopen();
	await_removed(0);
	expect_dropped("the files of a, removed as a-");
}

/* As a removal of everything through the mount: each name is told of before it goes. */
static void remove_below(struct sbx_sandbox *sb, int fd)
{
	DIR *dir = fdopendir(fd);
	struct dirent *d;

	assert_non_null(dir);
	while ((d = readdir(dir))) {
		struct stat st;

		if (!strcmp(d->d_name, ".") || !strcmp(d->d_name, "..") ||
		    (is_git() && !strcmp(d->d_name, ".git")))
			continue;
		assert_int_equal(fstatat(fd, d->d_name, &st, AT_SYMLINK_NOFOLLOW), 0);
		if (S_ISDIR(st.st_mode)) {
			remove_below(sb, openat(fd, d->d_name, O_RDONLY | O_DIRECTORY));
			assert_int_equal(unlinkat(fd, d->d_name, AT_REMOVEDIR), 0);
			continue;
		}
		sbx_sandbox_before_write(sb, fd, d->d_name);
		assert_int_equal(unlinkat(fd, d->d_name, 0), 0);
	}
	closedir(dir);
}

static void remove_all(struct sbx_sandbox *sb)
{
	remove_below(sb, openat(sbx_sandbox_root(sb), ".", O_RDONLY | O_DIRECTORY));
}

static void a_tree_that_was_removed_file_by_file_is_saved_as_it_was(void **state)
{
	struct sbx_sandbox *sb = edited("a");
	_cleanup_free_ char *tree = fixture_tree(sb);

	(void)state;
	remove_all(sb);
	fixture_take_down(sb);
	assert_int_equal(entries(), 1);
	expect_saved(tree);
	fixture_expect_empty();
}

/* Whoever removes, in as many steps as there are, while nothing else is written. */
static void several_removals_are_one(void **state)
{
	struct sbx_sandbox *sb = edited("a");
	int fd = openat(sbx_sandbox_root(sb), ".", O_RDONLY | O_DIRECTORY);
	_cleanup_free_ char *tree = fixture_tree(sb);

	(void)state;
	sbx_sandbox_before_write(sb, fd, "one");
	sbx_sandbox_before_write(sb, fd, "file");
	fixture_in(sb, "rm one file");
	close(fd);
	remove_all(sb);
	fixture_take_down(sb);
	assert_int_equal(entries(), 1);
	expect_saved(tree);
	fixture_expect_empty();
}

/* A write that finds no room takes it from what was removed. */
static void there_is_room_for_a_write(void **state)
{
	struct sbx_sandbox *sb = edited("a");
	char kept[600];

	(void)state;
	assert_false(sbx_sandbox_make_room(sb));
	fixture_in(sb, "for i in $(seq 700); do echo $i > again/$i; done");
	remove_all(sb);
	snprintf(kept, sizeof(kept), "%s", scratch_path("state/kept/%s", sb->id));
	assert_true(scratch_count(kept) > 700);
	sbx_sandbox_before_write(sb, -1, NULL);
	assert_true(sbx_sandbox_make_room(sb));
	while (sbx_sandbox_make_room(sb))
		;
	assert_true(scratch_count(kept) <= 1);
	fixture_in(sb, "echo begun anew > file");
	fixture_take_down(sb);
	assert_int_equal(entries(), 1);
	fixture_expect_empty();
}

static void what_is_written_ends_a_row(void **state)
{
	struct sbx_sandbox *sb = edited("a");
	_cleanup_free_ char *tree = NULL;

	(void)state;
	remove_all(sb);
	sbx_sandbox_before_write(sb, -1, NULL);
	fixture_in(sb, "echo begun anew > file");
	tree = fixture_tree(sb);
	fixture_take_down(sb);
	assert_int_equal(entries(), 1);
	expect_saved(tree);
	fixture_expect_empty();
}

/* A daemon that dies between the two halves: the next finishes, and has the same to save. */
static void a_crash_after_rmdir_loses_nothing(void **state)
{
	struct sbx_sandbox *a = edited("a"), *b = edited("b");
	_cleanup_free_ char *tree = fixture_tree(a);
	struct sbx_error err = SBX_ERROR_INIT;

	(void)state;
	remove_all(b);
	assert_int_equal(sbx_sandbox_retire(a, &err), 0);
	assert_int_equal(sbx_sandbox_retire(b, &err), 0);
	sbx_sandbox_close(a);
	sbx_sandbox_close(b);
	fixture_reopen();
	assert_int_equal(fixture.nfound, 0);
	assert_int_equal(entries(), 2);
	expect_saved(tree);
	fixture_expect_empty();
	fixture_reopen();
	assert_int_equal(entries(), 2);
}

/* Nothing is left to be saved: then it is removed without. */
static void what_was_kept_and_is_lost_keeps_nothing(void **state)
{
	struct sbx_sandbox *sb = edited("a");
	struct sbx_error err = SBX_ERROR_INIT;
	_cleanup_free_ char *kept = sbx_format("%s/%s", scratch_path("state/kept"), sb->id);

	(void)state;
	remove_all(sb);
	assert_int_equal(sbx_sandbox_retire(sb, &err), 0);
	sbx_sandbox_close(sb);
	free(fixture_run("test -d %s && rm -r %s", kept, kept));
	fixture_reopen();
	assert_int_equal(fixture.nfound, 0);
	assert_int_equal(entries(), 0);
	fixture_expect_empty();
}

static void what_was_staged_is_saved_beside_it(void **state)
{
	struct sbx_sandbox *sb;
	_cleanup_free_ char *staged = NULL, *have = NULL;

	(void)state;
	if (!is_git() || fixture.row->overlaid)
		return;
	sb = edited("a");
	free(fixture_git(sb, "add file sub"));
	staged = fixture_git(sb, "write-tree");
	fixture_take_down(sb);
	assert_int_equal(entries(), 1);
	have = fixture_run("git --git-dir=%s rev-parse refs/sandboxfs/trash/%s^2^{tree}",
	                   repository(), last.name);
	assert_string_equal(have, staged);
	fixture_expect_empty();
}

static void what_was_saved_comes_back(void **state)
{
	struct sbx_sandbox *sb = edited("a");
	_cleanup_free_ char *tree = fixture_tree(sb), *again = NULL;

	(void)state;
	remove_all(sb);
	fixture_take_down(sb);
	assert_int_equal(entries(), 1);
	sb = from_trash(last.name, "b", NULL);
	again = fixture_tree(sb);
	assert_string_equal(again, tree);
	fixture_in(sb, "test \"$(stat -c %a mode)\" = 755 && test -L to-file && test ! -e x.log");
	assert_int_equal(entries(), 1);
	fixture_take_down(sb);
	assert_int_equal(entries(), 2);
	fixture_expect_empty();
}

static void git_says_the_same_of_what_came_back(void **state)
{
	struct sbx_sandbox *sb;
	_cleanup_free_ char *one = NULL, *other = NULL, *branch = NULL;

	(void)state;
	if (!is_git() || fixture.row->overlaid)
		return;
	sb = edited("a");
	free(fixture_git(sb, "add -A sub"));
	free(fixture_git(sb, "commit -qm mine"));
	free(fixture_git(sb, "add file whole"));
	fixture_in(sb, "echo later >> file");
	one = fixture_git(sb, "status --porcelain=v2 -uall");
	assert_true(strlen(one) > 100);
	fixture_take_down(sb);
	assert_int_equal(entries(), 1);
	sb = from_trash(last.name, "a", NULL);
	other = fixture_git(sb, "status --porcelain=v2 -uall");
	assert_string_equal(other, one);
	branch = fixture_git(sb, "symbolic-ref HEAD");
	assert_string_equal(branch, "refs/heads/sandbox/a\n");
	fixture_take_down(sb);
	/* The branch has gone on: then it is another's. */
	free(fixture_git_source("update-ref refs/heads/sandbox/a main"));
	sb = from_trash(last.name, "c", NULL);
	free(branch);
	branch = fixture_git(sb, "symbolic-ref HEAD");
	assert_string_equal(branch, "refs/heads/sandbox/c\n");
	fixture_take_down(sb);
	free(fixture_git_source("branch -D sandbox/a sandbox/c"));
	fixture_expect_empty();
}

static void what_is_not_in_the_trash_is_refused(void **state)
{
	static const char *const names[] = {"a-20260101T000000Z", "../heads/main", "", "a..b"};

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(names); i++) {
		struct sbx_create req = {.name = "a",
		                         .origin = {.kind = SBX_ORIGIN_TRASH, .entry = names[i]}};
		struct sbx_error err = SBX_ERROR_INIT;
		struct sbx_sandbox *sb = NULL;

		assert_int_equal(sbx_backend_create(fixture.backend, &req, &sb, &err), -ENOENT);
		assert_true(err.text[0] != '\0');
	}
	fixture_expect_empty();
}

static void entries_go_when_their_time_is_over(void **state)
{
	_cleanup_free_ char *refs = NULL;

	(void)state;
	fixture_take_down(edited("a"));
	fixture_take_down(edited("a"));
	assert_int_equal(entries(), 2);
	fixture_reopen();
	assert_int_equal(entries(), 2);
	/* As if they were from the day before yesterday. */
	fixture_close();
	fixture.settings.trash_days = 1;
	fixture_age_trash(repository(), 2);
	fixture_reopen();
	assert_int_equal(entries(), 0);
	if (is_git()) {
		refs = fixture_run("git --git-dir=%s for-each-ref refs/sandboxfs", repository());
		assert_string_equal(refs, "");
	} else {
		assert_false(scratch_exists(repository()));
	}
}

/* The state directory's repository goes when it is empty, not when it cannot be read. */
static void what_cannot_be_read_does_not_go(void **state)
{
	const char *damage = "[ -f packed-refs ] || git --git-dir=. pack-refs --all; "
	                     "mv packed-refs aside; echo nonsense > packed-refs";

	(void)state;
	if (is_git())
		return;
	fixture_take_down(edited("a"));
	free(fixture_run("cd %s && { %s; }", repository(), damage));
	fixture_reopen();
	free(fixture_run("cd %s && mv aside packed-refs", repository()));
	fixture_reopen();
	assert_int_equal(entries(), 1);
	/* Something that is no entry. */
	free(fixture_run("cd %s && r=$(git for-each-ref --format='%%(refname)') && "
	                 "git update-ref refs/sandboxfs/trash/other $r^{tree} && "
	                 "git update-ref -d $r",
	                 repository()));
	fixture_reopen();
	assert_true(scratch_exists(repository()));
	/* Taken away before, but for the last of it. */
	free(fixture_run("mkdir -p %s.gone/objects", repository()));
	free(fixture_run("cd %s && git update-ref -d refs/sandboxfs/trash/other", repository()));
	fixture_reopen();
	assert_false(scratch_exists(repository()));
	assert_false(scratch_exists(scratch_path("state/trashed.git.gone")));
	assert_int_equal(entries(), 0);
}

static void a_teardown_that_is_refused_leaves_all_as_it_was(void **state)
{
	struct sbx_sandbox *sb = edited("a");
	_cleanup_free_ char *tree = fixture_tree(sb);
	_cleanup_free_ char *in_the_way = sbx_format("%s/%s", scratch_path("state/trash"), sb->id);
	struct sbx_error err = SBX_ERROR_INIT;

	(void)state;
	scratch_write(in_the_way, "");
	assert_int_equal(sbx_sandbox_retire(sb, &err), -ENOTDIR);
	assert_int_equal(unlink(in_the_way), 0);
	if (is_git())
		assert_int_equal(scratch_count(scratch_path("source/.git/worktrees")), 1);
	sbx_sandbox_close(sb);
	fixture_reopen();
	sb = fixture_found("a");
	/* The next is not refused, and saves what there is. */
	scratch_write(in_the_way, "");
	assert_int_equal(sbx_sandbox_retire(sb, &err), -ENOTDIR);
	assert_int_equal(unlink(in_the_way), 0);
	fixture_take_down(sb);
	assert_int_equal(entries(), 1);
	expect_saved(tree);
	fixture_expect_empty();
}

static void without_a_trash_nothing_is_saved(void **state)
{
	(void)state;
	fixture_close();
	fixture.settings.trash_days = 0;
	fixture_reopen();
	fixture_take_down(edited("a"));
	assert_int_equal(entries(), 0);
	fixture_expect_empty();
}

#define TRASH_TESTS(X)                                                                             \
	X(what_was_not_committed_is_saved)                                                         \
	X(a_file_of_nothing_is_left_out)                                                           \
	X(nothing_is_saved_of_what_was_not_touched)                                                \
	X(what_git_cannot_say_comes_back)                                                          \
	X(a_crash_while_it_is_kept_loses_nothing)                                                  \
	X(files_go_with_their_entry)                                                               \
	X(a_tree_that_was_removed_file_by_file_is_saved_as_it_was)                                 \
	X(several_removals_are_one)                                                                \
	X(there_is_room_for_a_write)                                                               \
	X(what_is_written_ends_a_row)                                                              \
	X(a_crash_after_rmdir_loses_nothing)                                                       \
	X(what_was_kept_and_is_lost_keeps_nothing)                                                 \
	X(what_was_staged_is_saved_beside_it)                                                      \
	X(what_was_saved_comes_back)                                                               \
	X(git_says_the_same_of_what_came_back)                                                     \
	X(what_is_not_in_the_trash_is_refused)                                                     \
	X(entries_go_when_their_time_is_over)                                                      \
	X(what_cannot_be_read_does_not_go)                                                         \
	X(a_teardown_that_is_refused_leaves_all_as_it_was)                                         \
	X(without_a_trash_nothing_is_saved)

static const struct fixture_test tests[] = {
#define ROW(fn) {#fn, fn},
        TRASH_TESTS(ROW)
#undef ROW
};

int main(void)
{
	return fixture_main("trash", tests, SBX_ARRAY_SIZE(tests));
}
