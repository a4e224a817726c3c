/* Snapshots, marks, restores and diffs of the local backend, compared with what git itself says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "backends/local/history/history_impl.h"
#include "backends/local/history/store.h"
#include "backends/local/history_ops.h"
#include "backends/support/fsutil.h"
#include "backends/support/tree.h"
#include "sandboxfs/cleanup.h"
#include "tests/lib/local_fixture.h"
#include "tests/lib/scratch.h"

#define EDITS                                                                                      \
	"mkdir -p sub; echo changed > file; rm -f sub/gone; echo new > 'sub/a new one'; "          \
	"touch mode; chmod 755 mode; ln -sfn sub to-dir; ln -sf nowhere sub/dangling; "            \
	"printf 'a\\0b' > binary; : > empty; mkdir -p deep/er/est; echo x > deep/er/est/x; "       \
	"rm -rf whole; echo instead > whole; rm -rf again; mkdir again; echo fresh > again/z; "    \
	"rm -f link; mkdir link; echo l > link/l; echo n > \"$(printf 'new\\nline')\"; "           \
	"echo d > ./-dash; echo u > '\303\274ber'; echo '*.log' > .gitignore; echo i > x.log; "    \
	"mkfifo pipe"

static bool is_git(void)
{
	return fixture.row->kind == FIXTURE_GIT;
}

/* ---- git, on a copy of the tree ---- */

/* Where the git state of the host's side is. */
static char *git_dir(const struct sbx_sandbox *sb)
{
	const char *link = sbx_sandbox_gitfile((struct sbx_sandbox *)(uintptr_t)sb);
	const char *prefix = "gitdir: ";

	if (link)
		return strndup(link + strlen(prefix), strcspn(link + strlen(prefix), "\n"));
	return sbx_format("%s/git/%s/history", scratch_path("state"), sb->id);
}

/* What SCRIPT (sh) prints where PREPARE (sh) leads; T is the scratch directory, G the git state;
 * malloc'd. */
static char *ask_in(const struct sbx_sandbox *sb, const char *prepare, const char *script)
{
	_cleanup_free_ char *dir = git_dir(sb);
	_cleanup_free_ char *command = sbx_format(
	        "set -e; T=%s; G=%s; S=%s; %s; "
	        "g() { git -c core.bare=false --git-dir=$G --work-tree=$PWD \"$@\"; }\n%s",
	        scratch_path("."), dir, fixture_path(sb), prepare, script);
	FILE *p = popen(command, "re");
	char *text = NULL, buf[4096];
	size_t len = 0, n;
	FILE *out = open_memstream(&text, &len);

	assert_non_null(p);
	while ((n = fread(buf, 1, sizeof(buf), p)) > 0)
		fwrite(buf, 1, n, out);
	fclose(out);
	if (pclose(p) != 0)
		fail_msg("failed: %s: %s", script, text);
	if (len && text[len - 1] == '\n')
		text[len - 1] = '\0';
	return text;
}

/* In a copy of the tree, with g for git on it and on a copy of the index; malloc'd. */
static char *ask(const struct sbx_sandbox *sb, const char *script)
{
	sbx_tree_remove(AT_FDCWD, scratch_path("copy"), NULL);
	unlink(scratch_path("index"));
	return ask_in(sb,
	              "cp -a $S/. $T/copy; test ! -e $T/copy/.git || rm -rf $T/copy/.git; "
	              "test ! -e $G/index || cp -p $G/index $T/index; cd $T/copy; "
	              "export GIT_INDEX_FILE=$T/index",
	              script);
}

static void expect(const struct sbx_sandbox *sb, const char *script, const char *want)
{
	_cleanup_free_ char *have = ask(sb, script);

	if (strcmp(have, want) != 0)
		fail_msg("%s: want \"%s\", have \"%s\"", script, want, have);
}

static void expect_sound(const struct sbx_sandbox *sb)
{
	free(ask_in(sb, "cd $T", "test ! -e $G || g fsck --strict --no-dangling >&2"));
}

/* The tree that git would record, ours to free. */
static char *as_git_adds(const struct sbx_sandbox *sb)
{
	return ask(sb, "g add -A >&2; g write-tree");
}

/* Names, types, modes and contents; neither times nor what is not recorded. */
static char *contents(struct sbx_sandbox *sb)
{
	return ask(sb, "find . -name '*.log' -prune -o \\( -type f -o -type l \\) -printf '%P %y "
	               "%m %l\\n' | sort; "
	               "find . -type f ! -name '*.log' -exec sha1sum {} + | sort");
}

/* ---- the calls ---- */

static char id[SBX_REV_MAX];

static const char *snapshot(struct sbx_sandbox *sb, const char *message)
{
	const struct sbx_snapshot_options options = {.message = message};
	struct sbx_error err = SBX_ERROR_INIT;

	if (sbx_history_snapshot(sb, &options, id, &err))
		fail_msg("snapshot: %s", err.text);
	return id;
}

static void mark(struct sbx_sandbox *sb, const char *name)
{
	const struct sbx_snapshot_options options = {.mark = name};
	struct sbx_error err = SBX_ERROR_INIT;
	char ret[SBX_REV_MAX];

	if (sbx_history_snapshot(sb, &options, ret, &err))
		fail_msg("mark: %s", err.text);
	assert_string_equal(ret + 5, name);
}

static void restore(struct sbx_sandbox *sb, const char *rev)
{
	struct sbx_error err = SBX_ERROR_INIT;

	if (sbx_history_restore(sb, rev, NULL, &err))
		fail_msg("restore: %s", err.text);
}

static char *diff(struct sbx_sandbox *sb, const char *from, const char *to,
                  enum sbx_diff_format format)
{
	const struct sbx_diff_options options = {.from = from, .to = to, .format = format};
	struct sbx_error err = SBX_ERROR_INIT;
	int fd = open(scratch_path("diff"), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	off_t len;
	char *text;

	assert_true(fd >= 0);
	if (sbx_history_diff(sb, &options, fd, &err))
		fail_msg("diff: %s", err.text);
	len = lseek(fd, 0, SEEK_END);
	text = calloc(1, (size_t)len + 1);
	assert_int_equal(pread(fd, text, (size_t)len, 0), len);
	close(fd);
	return text;
}

/* ---- snapshots ---- */

static void a_snapshot_is_what_git_would_commit(void **state)
{
	struct sbx_sandbox *sb = fixture_create("a");
	_cleanup_free_ char *want = NULL;

	(void)state;
	fixture_in(sb, EDITS);
	snapshot(sb, "one");
	want = as_git_adds(sb);
	expect(sb, "g rev-parse HEAD^{tree}", want);
	expect(sb, "g rev-parse HEAD", id);
	expect(sb, "g log -1 --format=%B", "one\n");
	expect(sb, "g status --porcelain", "");
	/* A second one, of a little more, and one of nothing. */
	fixture_in(sb, "echo more >> file; rm -r deep; echo t > x.log; rm again/z");
	snapshot(sb, NULL);
	expect(sb, "g status --porcelain", "");
	expect(sb, "g log -1 --format=%s | sed 's/[0-9a-f]\\{12\\}$/ID/'", "snapshot-ID");
	snapshot(sb, "");
	expect(sb, "g diff --stat HEAD~1 HEAD", "");
	expect(sb, "g rev-list --count HEAD", "4");
	expect(sb, "g cat-file -t HEAD:file", "blob");
	expect_sound(sb);
	fixture_take_down(sb);
	/* On its branch; what was ignored is in the trash. */
	if (is_git()) {
		free(fixture_git_source(
		        "for-each-ref refs/heads refs/tags | grep -c . | grep -qx 2"));
		free(fixture_git_source("branch -D -q sandbox/a"));
	}
	fixture_expect_empty();
}

struct listed {
	int n;
	char ids[4][SBX_REV_MAX], messages[4][64];
};

static int add_listed(const struct sbx_snapshot *s, void *data)
{
	struct listed *l = data;

	assert_true(l->n < 4 && s->time_ms > 1500000000000);
	snprintf(l->ids[l->n], SBX_REV_MAX, "%s", s->id);
	snprintf(l->messages[l->n++], 64, "%s", s->message);
	return 0;
}

static void snapshots_are_listed_and_kept(void **state)
{
	struct sbx_sandbox *sb = fixture_create("a");
	struct sbx_error err = SBX_ERROR_INIT;
	struct listed l = {0};
	char first[SBX_REV_MAX];

	(void)state;
	assert_int_equal(sbx_history_list(sb, add_listed, &l, &err), 0);
	assert_int_equal(l.n, 0);
	fixture_in(sb, "echo 1 > n");
	snprintf(first, sizeof(first), "%s", snapshot(sb, "one\n\nmore of it"));
	fixture_in(sb, "echo 2 > n");
	snapshot(sb, "two");
	restore(sb, "base");
	fixture_in(sb, "echo 3 > n");
	snapshot(sb, "three");
	if (is_git()) {
		free(fixture_git_source("reflog expire --expire=now --all"));
		free(fixture_git_source("gc -q --prune=now"));
	}
	sbx_sandbox_close(sb);
	fixture_reopen();
	sb = fixture_found("a");
	assert_int_equal(sbx_history_list(sb, add_listed, &l, &err), 0);
	assert_int_equal(l.n, 3);
	assert_string_equal(l.messages[0], "one");
	assert_string_equal(l.messages[2], "three");
	assert_string_equal(l.ids[0], first);
	first[7] = '\0';
	restore(sb, first);
	fixture_in(sb, "test \"$(cat n)\" = 1");
	restore(sb, l.ids[1]);
	fixture_in(sb, "test \"$(cat n)\" = 2");
	assert_int_equal(sbx_history_restore(sb, "0123456", NULL, &err), -ENOENT);
	restore(sb, "base");
	fixture_take_down(sb);
	fixture_expect_empty();
}

static int keep_time(const struct sbx_snapshot *s, void *data)
{
	*(int64_t *)data = s->time_ms;
	return 0;
}

/* Its line may be written when the next second has begun. */
static void the_time_of_a_snapshot_is_its_commits(void **state)
{
	struct sbx_sandbox *sb = fixture_create("a");
	struct sbx_error err = SBX_ERROR_INIT;
	_cleanup_free_ char *dir = sbx_format("%s/git/%s/history", scratch_path("state"), sb->id);
	int64_t written, late, shown;
	git_oid oid;
	int fd;

	(void)state;
	fixture_in(sb, "echo 1 > n");
	assert_int_equal(git_oid_fromstr(&oid, snapshot(sb, "one")), 0);
	assert_int_equal(sbx_history_list(sb, keep_time, &written, &err), 0);
	late = (written / 1000 + 1) * 1000;
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	sbx_local_history_drop_line(fd, &oid);
	assert_int_equal(sbx_local_history_add_line(fd, &oid, late), 0);
	assert_int_equal(sbx_history_list(sb, keep_time, &shown, &err), 0);
	assert_int_equal(shown / 1000, written / 1000);
	close(fd);
	restore(sb, "base");
	fixture_take_down(sb);
	fixture_expect_empty();
}

static void what_keeps_snapshots_goes_with_the_sandbox(void **state)
{
	struct sbx_sandbox *sb;
	struct sbx_error err = SBX_ERROR_INIT;
	_cleanup_free_ char *refs = NULL, *lock = NULL;

	(void)state;
	if (!is_git())
		return;
	sb = fixture_create("a");
	fixture_in(sb, "echo 1 > n");
	snapshot(sb, "one");
	free(fixture_git_source("pack-refs --all"));
	lock = sbx_format("%s/.git/packed-refs.lock", fixture.settings.source_abs);
	scratch_write(lock, "");
	assert_int_equal(sbx_sandbox_retire(sb, &err), 0);
	assert_int_equal(sbx_sandbox_remove(sb, &err), -EBUSY);
	assert_int_equal(unlink(lock), 0);
	assert_int_equal(sbx_sandbox_remove(sb, &err), 0);
	sbx_sandbox_close(sb);
	refs = fixture_git_source("for-each-ref refs/sandboxfs/snapshots");
	assert_string_equal(refs, "");
	assert_int_equal(scratch_count(scratch_path("state/meta")), 0);
}

static int count_snapshot(const struct sbx_snapshot *s, void *data)
{
	(void)s;
	++*(int *)data;
	return 0;
}

static void *list_it(void *data)
{
	struct sbx_error err = SBX_ERROR_INIT;
	int n = 0;

	return sbx_history_list(data, count_snapshot, &n, &err) ? data : NULL;
}

/* What holds it is made by the first. */
static void many_may_look_at_once(void **state)
{
	(void)state;
	for (int round = 0; round < 20; round++) {
		struct sbx_sandbox *sb = fixture_create("a");
		pthread_t threads[6];
		int failed = 0;

		for (size_t i = 0; i < SBX_ARRAY_SIZE(threads); i++)
			assert_int_equal(pthread_create(&threads[i], NULL, list_it, sb), 0);
		for (size_t i = 0; i < SBX_ARRAY_SIZE(threads); i++) {
			void *result;

			pthread_join(threads[i], &result);
			failed += result != NULL;
		}
		assert_int_equal(failed, 0);
		if (!is_git() && !sb->tree.mounted)
			fixture_in(sb, "rm -rf ./*");
		fixture_take_down(sb);
		fixture_expect_empty();
	}
}

static void an_author_can_be_given(void **state)
{
	struct sbx_sandbox *sb = fixture_create("a");
	struct sbx_snapshot_options options = {.author = "A U Thor <a@example.org>"};
	struct sbx_error err = SBX_ERROR_INIT;

	(void)state;
	assert_int_equal(sbx_history_snapshot(sb, &options, id, &err), 0);
	expect(sb, "g log -1 --format='%an <%ae>'", options.author);
	options.author = "no mail";
	assert_int_equal(sbx_history_snapshot(sb, &options, id, &err), -EINVAL);
	snapshot(sb, "x");
	expect(sb, "g log -1 --format='%an <%ae>'",
	       is_git() ? "T <t@example.org>" : "sandboxfs <sandboxfs@localhost>");
	restore(sb, "base");
	fixture_take_down(sb);
	fixture_expect_empty();
}

static void ignored_files_are_recorded_when_asked(void **state)
{
	struct sbx_sandbox *sb = fixture_create("a");
	struct sbx_snapshot_options options = {.ignored = true};
	struct sbx_error err = SBX_ERROR_INIT;

	(void)state;
	fixture_in(sb, EDITS);
	assert_int_equal(sbx_history_snapshot(sb, &options, id, &err), 0);
	expect(sb, "g show HEAD:x.log", "i");
	expect(sb, "g status --porcelain", "");
	restore(sb, "base");
	fixture_take_down(sb);
	fixture_expect_empty();
}

/* ---- the way back ---- */

static void a_restore_makes_the_tree_what_it_was(void **state)
{
	struct sbx_sandbox *sb = fixture_create("a");
	_cleanup_free_ char *before = NULL, *edited = NULL, *after = NULL, *again = NULL;
	char first[SBX_REV_MAX];

	(void)state;
	fixture_in(sb, "echo '*.log' > .gitignore");
	snprintf(first, sizeof(first), "%s", snapshot(sb, "first"));
	before = contents(sb);
	fixture_in(sb, EDITS "; rm pipe");
	snapshot(sb, "edited");
	edited = contents(sb);
	fixture_in(sb, "rm -rf sub file '\303\274ber'; mkdir file; echo w > file/w; rm whole; ln "
	               "-s / whole");
	restore(sb, first);
	after = contents(sb);
	assert_string_equal(after, before);
	expect(sb, "g status --porcelain", "");
	expect(sb, "g rev-parse HEAD", first);
	fixture_in(sb, "test \"$(cat x.log)\" = i");
	/* What was there before is not lost. */
	restore(sb, "mark:restore");
	fixture_in(sb, "test -d file && test -L whole && test ! -e sub");
	expect(sb, "g rev-parse HEAD", id);
	restore(sb, id);
	again = contents(sb);
	assert_string_equal(again, edited);
	expect(sb, "g status --porcelain", "");
	expect_sound(sb);
	restore(sb, "base");
	fixture_take_down(sb);
	fixture_expect_empty();
}

static void line_ends_are_as_the_restored_attributes_say(void **state)
{
	struct sbx_sandbox *sb = fixture_create("a");
	char first[SBX_REV_MAX];

	(void)state;
	fixture_in(
	        sb,
	        "mkdir -p d; printf 'a\\r\\nb\\r\\n' > d/t; echo '*.bin -text' > d/.gitattributes; "
	        "echo '* text eol=crlf' > .gitattributes; printf 'x\\r\\n' > d/y.bin");
	snprintf(first, sizeof(first), "%s", snapshot(sb, "crlf"));
	expect(sb, "g show HEAD:d/t | tr '\\r' R | tr '\\n' N; g show HEAD:d/y.bin | tr '\\r' R",
	       "aNbNxR");
	fixture_in(sb, "rm .gitattributes d/.gitattributes; echo plain > d/t; rm d/y.bin");
	snapshot(sb, "plain");
	restore(sb, first);
	expect(sb, "cat d/t d/y.bin | tr '\\r' R; g status --porcelain", "aR\nbR\nxR");
	restore(sb, id);
	expect(sb, "cat d/t; test ! -e .gitattributes; g status --porcelain", "plain");
	restore(sb, "base");
	fixture_take_down(sb);
	fixture_expect_empty();
}

/* A sanitizer keeps what was freed. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED true
#else
#define SANITIZED false
#endif

static long peak_kb(void)
{
	struct rusage usage;

	assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
	return usage.ru_maxrss;
}

static void large_text_is_restored_as_git_does(void **state)
{
	struct sbx_sandbox *sb = fixture_create("a");
	char first[SBX_REV_MAX];
	long before;

	(void)state;
	/* git takes long for each byte of another encoding: it has few for what is large as UTF-8.
	 */
	fixture_in(sb, "yes 'a line' | head -c 12000000 > x.t; head -c 4300000 x.t > x.a; "
	               "(cat x.a; printf '\\0') > nul.a; (printf '\\r.'; cat x.a) > cr.a; "
	               "(cat x.a; printf '\\0a\\r') > nul.t; cp x.a none; "
	               "yes \"$(printf '\\343\\201\\202%.0s' $(seq 20))\" | head -n 70000 | "
	               "sed 's/$/\\r/' | iconv -f UTF-8 -t UTF-16LE > x.w; "
	               "printf '*.t text eol=crlf\\n*.a text=auto eol=crlf\\n*.w text eol=crlf "
	               "working-tree-encoding=UTF-16LE\\n' > .gitattributes; "
	               "test $(stat -c %s x.w) = 3080000");
	before = peak_kb();
	snprintf(first, sizeof(first), "%s", snapshot(sb, "large"));
	fixture_in(sb, "rm x.* nul.* cr.a none");
	restore(sb, first);
	assert_true(SANITIZED || peak_kb() - before < 20 * 1024);
	expect(sb,
	       "for f in x.t x.a x.w nul.a cr.a nul.t none; do "
	       "g cat-file --filters HEAD:$f | cmp - $f; done; g status --porcelain; "
	       "head -n 1 x.t | tr '\\r' R",
	       "a lineR");
	restore(sb, "base");
	fixture_take_down(sb);
	fixture_expect_empty();
}

/* All of a large source would have to be read for it. */
static void looking_for_the_base_does_not_record_it(void **state)
{
	struct sbx_sandbox *sb = fixture_create("a");
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_object top;
	const bool known = is_git() || (fixture.row->kind == FIXTURE_DIR && !sb->tree.mounted);

	(void)state;
	assert_int_equal(sbx_history_tree(sb, "base", &top, &err), known ? 0 : -EBUSY);
	free(diff(sb, "base", NULL, SBX_DIFF_NAMES));
	assert_int_equal(sbx_history_tree(sb, "base", &top, &err), 0);
	fixture_take_down(sb);
	fixture_expect_empty();
}

static void the_base_is_as_it_was_made(void **state)
{
	struct sbx_sandbox *sb = fixture_create("a");
	_cleanup_free_ char *before =
	        ask(sb, "find . -printf '%P %y %l\\n' | sort; find . -type f -printf '%P %m\\n' | "
	                "sort; find . -type f -exec sha1sum {} + | sort");
	_cleanup_free_ char *after = NULL;

	(void)state;
	fixture_in(sb,
	           EDITS "; mkdir -p void/of/all; mkdir logs; echo x > logs/a.log; chmod 555 sub");
	snapshot(sb, "one");
	fixture_in(sb, "echo more > more");
	restore(sb, "base");
	after = ask(sb, "find . -printf '%P %y %l\\n' | sort; find . -type f -printf '%P %m\\n' | "
	                "sort; find . -type f -exec sha1sum {} + | sort");
	assert_string_equal(after, before);
	expect(sb, "g status --porcelain --ignored", "");
	if (is_git())
		free(fixture_git_source("rev-parse main sandbox/a | uniq | wc -l | grep -qx 1"));
	fixture_take_down(sb);
	fixture_expect_empty();
}

static void a_mark_keeps_what_was_staged_too(void **state)
{
	struct sbx_sandbox *sb;
	_cleanup_free_ char *before = NULL;

	(void)state;
	if (!is_git() || fixture.row->overlaid)
		return;
	sb = fixture_create("a");
	fixture_in(sb, "echo staged > file; echo s > new");
	free(fixture_git(sb, "add file new"));
	fixture_in(sb, "echo unstaged > file; echo u > untracked; rm mode");
	before = ask(sb, "g status --porcelain; g diff --cached; g diff");
	mark(sb, "m");
	fixture_in(sb, "rm file new; echo x > untracked");
	snapshot(sb, "in between");
	restore(sb, "mark:m");
	expect(sb, "g status --porcelain; g diff --cached; g diff", before);
	expect(sb, "test $(g rev-parse HEAD) = $(g rev-parse main)", "");
	expect_sound(sb);
	restore(sb, "base");
	fixture_take_down(sb);
	fixture_expect_empty();
}

static void a_snapshot_is_whole_whatever_was_seen_before(void **state)
{
	struct sbx_sandbox *sb = fixture_create("a");
	struct sbx_snapshot_context context = sbx_local_snapshot_context(sb);
	struct sbx_error err = SBX_ERROR_INIT;

	(void)state;
	/* Old enough to be believed: not read again, neither by the snapshot nor by the second
	 * mark. */
	fixture_in(sb, EDITS "; echo marked > marked; touch -d '1 hour ago' marked file binary");
	mark(sb, "m");
	snapshot(sb, "whole");
	expect(sb, "g show HEAD:marked", "marked");
	expect_sound(sb);
	fixture_in(sb, "echo gone > gone; touch -d '1 hour ago' gone");
	mark(sb, "m");
	assert_int_equal(sbx_history_forget(sb, "m", &err), 0);
	sbx_local_history_prune(&context, true);
	mark(sb, "n");
	fixture_in(sb, "rm gone");
	restore(sb, "mark:n");
	fixture_in(sb, "test \"$(cat gone)\" = gone");
	restore(sb, "base");
	fixture_take_down(sb);
	fixture_expect_empty();
}

static void marks_are_seen_by_nobody_and_can_be_forgotten(void **state)
{
	struct sbx_sandbox *sb = fixture_create("a");
	struct sbx_error err = SBX_ERROR_INIT;
	_cleanup_free_ char *before = NULL, *after = NULL;

	(void)state;
	fixture_in(sb, EDITS);
	if (is_git())
		before = fixture_git_source("count-objects");
	mark(sb, "job-1");
	if (is_git()) {
		free(fixture_git_source("for-each-ref | wc -l | grep -qx 2"));
		after = fixture_git_source("count-objects");
		assert_string_equal(before, after);
	}
	mark(sb, "job-1");
	assert_int_equal(sbx_history_forget(sb, "job-1", &err), 0);
	assert_int_equal(sbx_history_forget(sb, "job-1", &err), 0);
	assert_int_equal(sbx_history_restore(sb, "mark:job-1", NULL, &err), -ENOENT);
	restore(sb, "base");
	fixture_take_down(sb);
	fixture_expect_empty();
}

/* ---- differences ---- */

static void a_diff_is_one_that_git_applies(void **state)
{
	struct sbx_sandbox *sb = fixture_create("a");
	_cleanup_free_ char *tree = NULL, *applied = NULL, *patch = NULL, *script = NULL;
	char first[SBX_REV_MAX];

	(void)state;
	fixture_in(sb, "mkdir -p d; seq 100 > d/moving; head -c 5000 /dev/urandom > bin");
	snprintf(first, sizeof(first), "%s", snapshot(sb, "first"));
	fixture_in(sb,
	           EDITS "; mv d/moving moved; echo 101 >> moved; head -c 5000 /dev/urandom > bin");
	tree = as_git_adds(sb);
	free(diff(sb, first, NULL, SBX_DIFF_PATCH));
	script = sbx_format("g read-tree %s; g apply --cached $T/diff; g write-tree", first);
	applied = ask(sb, script);
	assert_string_equal(applied, tree);
	/* Nobody sees that it was taken. */
	expect(sb, "g rev-parse HEAD", first);
	free(patch);
	patch = diff(sb, NULL, first, SBX_DIFF_PATCH);
	free(applied);
	free(script);
	script = sbx_format("g add -A; g apply --cached $T/diff; g write-tree; "
	                    "g rev-parse %s^{tree}",
	                    first);
	applied = ask(sb, script);
	assert_memory_equal(applied, applied + 41, 40);
	free(patch);
	patch = diff(sb, first, NULL, SBX_DIFF_NAMES);
	assert_non_null(strstr(patch, "R099\td/moving\tmoved\n"));
	assert_non_null(strstr(patch, "A\tdeep/er/est/x\n"));
	assert_non_null(strstr(patch, "A\t\"new\\nline\"\n"));
	assert_non_null(strstr(patch, "M\tbin\n"));
	restore(sb, "base");
	free(patch);
	patch = diff(sb, "base", NULL, SBX_DIFF_NAMES);
	assert_string_equal(patch, "");
	fixture_take_down(sb);
	fixture_expect_empty();
}

/* libgit2 takes some hundred bytes for each line. */
static void a_diff_of_very_many_lines_takes_little_memory(void **state)
{
	struct sbx_sandbox *sb = fixture_create("a");
	_cleanup_free_ char *applied = NULL, *patch = NULL, *script = NULL, *tree = NULL;
	char first[SBX_REV_MAX];
	long before;

	(void)state;
	fixture_in(sb, "yes '' | head -c 3000000 > lines");
	snprintf(first, sizeof(first), "%s", snapshot(sb, "first"));
	fixture_in(sb, "yes x | head -c 3000000 > lines; echo more >> file");
	tree = as_git_adds(sb);
	before = peak_kb();
	patch = diff(sb, first, NULL, SBX_DIFF_PATCH);
	assert_true(peak_kb() - before < 128 * 1024);
	assert_non_null(strstr(patch, "+more\n"));
	script = sbx_format("g read-tree %s; g apply --cached $T/diff; g write-tree", first);
	applied = ask(sb, script);
	assert_string_equal(applied, tree);
	restore(sb, "base");
	fixture_take_down(sb);
	fixture_expect_empty();
}

static void a_diff_of_a_very_large_file_says_that_it_differs(void **state)
{
	struct sbx_sandbox *sb = fixture_create("a");
	_cleanup_free_ char *patch = NULL;
	char first[SBX_REV_MAX];
	long before;

	(void)state;
	fixture_in(sb, "echo small > large; echo small > small");
	snprintf(first, sizeof(first), "%s", snapshot(sb, "first"));
	fixture_in(sb, "truncate -s 100M large; mv small renamed; echo more >> file");
	before = peak_kb();
	patch = diff(sb, first, NULL, SBX_DIFF_PATCH);
	assert_true(peak_kb() - before < 64 * 1024);
	assert_non_null(strstr(patch, "Binary files a/large and b/large differ\n"));
	assert_non_null(strstr(patch, "rename from small\n"));
	assert_non_null(strstr(patch, "+more\n"));
	restore(sb, "base");
	fixture_take_down(sb);
	fixture_expect_empty();
}

/* ---- looking in ---- */

static int count_entry(const char *name, const struct sbx_object *o, void *data)
{
	assert_true(*name && o->mode);
	++*(int *)data;
	return 0;
}

static void a_snapshot_can_be_looked_into(void **state)
{
	struct sbx_sandbox *sb = fixture_create("a");
	struct sbx_object top, o, file;
	struct sbx_error err = SBX_ERROR_INIT;
	char buf[16] = "";
	int fd, n = 0;

	(void)state;
	fixture_in(sb, "rm -rf ./*; mkdir s; echo hello > s/f; chmod +x s/f; ln -s s l");
	snapshot(sb, "x");
	fixture_in(sb, "rm -r s");
	assert_int_equal(sbx_history_tree(sb, id, &top, &err), 0);
	assert_int_equal(sbx_history_entry(sb, top.id, "s", &o), 0);
	assert_int_equal(o.mode, S_IFDIR | 0755);
	assert_int_equal(sbx_history_entry(sb, o.id, "f", &file), 0);
	assert_int_equal(file.mode, S_IFREG | 0755);
	assert_int_equal(file.size, 6);
	assert_int_equal(sbx_history_entry(sb, top.id, "l", &o), 0);
	assert_int_equal(o.mode, S_IFLNK | 0777);
	assert_int_equal(sbx_history_entry(sb, top.id, "x", &o), -ENOENT);
	assert_int_equal(sbx_history_entries(sb, top.id, count_entry, &n), 0);
	assert_true(n >= 2);
	fd = open(scratch_path("out"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	assert_int_equal(sbx_history_content(sb, file.id, fd), 0);
	assert_int_equal(pread(fd, buf, sizeof(buf), 0), 6);
	assert_string_equal(buf, "hello\n");
	close(fd);
	restore(sb, "base");
	fixture_take_down(sb);
	fixture_expect_empty();
}

/* ---- crashes ---- */

static void a_restore_that_was_broken_off_is_completed(void **state)
{
	struct sbx_sandbox *sb = fixture_create("a");
	_cleanup_free_ char *want = NULL, *have = NULL, *journal = NULL, *path = NULL;
	char commit[SBX_REV_MAX];

	(void)state;
	fixture_in(sb, "echo 1 > one; echo 2 > two");
	snprintf(commit, sizeof(commit), "%s", snapshot(sb, "x"));
	want = contents(sb);
	fixture_in(sb, "rm one; echo 3 > two; echo 4 > three; echo half > .sandboxfs-restore");
	/* As it is in the middle. */
	path = sbx_format("%s/git/%s/history/restoring", scratch_path("state"), sb->id);
	journal = sbx_format("%s commit keep\n", commit);
	scratch_write(path, journal);
	sbx_sandbox_close(sb);
	fixture_reopen();
	sb = fixture_found("a");
	have = contents(sb);
	assert_string_equal(have, want);
	expect(sb, "g status --porcelain", "");
	assert_false(scratch_exists(path));
	restore(sb, "base");
	fixture_take_down(sb);
	fixture_expect_empty();
}

/* Runs FN in a child that is killed after a while; false: it was done by then. */
static bool killed_in(struct sbx_sandbox *sb, void (*fn)(struct sbx_sandbox *sb), unsigned after_us)
{
	const struct timespec pause = {.tv_nsec = (long)after_us * 1000};
	pid_t pid = fork();
	int status;

	assert_true(pid >= 0);
	if (!pid) {
		fn(sb);
		_exit(0);
	}
	nanosleep(&pause, NULL);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFSIGNALED(status);
}

static void do_snapshot(struct sbx_sandbox *sb)
{
	const struct sbx_snapshot_options options = {.message = "two"};
	char ret[SBX_REV_MAX];

	sbx_history_snapshot(sb, &options, ret, NULL);
}

static char goal[SBX_REV_MAX];

static void do_restore(struct sbx_sandbox *sb)
{
	sbx_history_restore(sb, goal, NULL, NULL);
}

static struct sbx_sandbox *taken_up_again(struct sbx_sandbox *sb)
{
	sbx_sandbox_close(sb);
	fixture_reopen_killed();
	return fixture_found("a");
}

static void killed_in_a_snapshot_nothing_is_lost(void **state)
{
	struct sbx_sandbox *sb = fixture_create("a");
	struct sbx_error err = SBX_ERROR_INIT;
	_cleanup_free_ char *want = NULL;

	(void)state;
	fixture_in(sb, "for i in $(seq 40); do echo $i > f$i; done");
	want = contents(sb);
	for (unsigned us = 500; us < 40000; us += us / 2) {
		_cleanup_free_ char *have = NULL;

		killed_in(sb, do_snapshot, us);
		sb = taken_up_again(sb);
		have = contents(sb);
		assert_string_equal(have, want);
		expect_sound(sb);
	}
	snapshot(sb, "whole");
	expect(sb, "g status --porcelain", "");
	assert_int_equal(sbx_history_restore(sb, "base", NULL, &err), 0);
	fixture_take_down(sb);
	fixture_expect_empty();
}

static void killed_in_a_restore_it_is_as_before_or_as_after(void **state)
{
	struct sbx_sandbox *sb = fixture_create("a");
	_cleanup_free_ char *one = NULL, *two = NULL;
	char ids[2][SBX_REV_MAX];

	(void)state;
	fixture_in(sb, "mkdir d; for i in $(seq 60); do echo $i > d/f$i; done");
	snprintf(ids[0], SBX_REV_MAX, "%s", snapshot(sb, "one"));
	one = contents(sb);
	fixture_in(sb, "for i in $(seq 1 2 60); do rm d/f$i; echo $i > g$i; done; for i in $(seq 2 "
	               "2 60); do "
	               "echo more >> d/f$i; done");
	snprintf(ids[1], SBX_REV_MAX, "%s", snapshot(sb, "two"));
	two = contents(sb);
	for (unsigned us = 500, i = 0; us < 60000; us += us / 3, i++) {
		_cleanup_free_ char *have = NULL;

		snprintf(goal, sizeof(goal), "%s", ids[i % 2]);
		killed_in(sb, do_restore, us);
		sb = taken_up_again(sb);
		have = contents(sb);
		if (strcmp(have, one) != 0 && strcmp(have, two) != 0)
			fail_msg("after %u us it is neither", us);
		expect(sb, "g status --porcelain", "");
		restore(sb, goal);
	}
	expect_sound(sb);
	restore(sb, "base");
	fixture_take_down(sb);
	fixture_expect_empty();
}

/* The name of the file that is being restored, taken by a command. */
static void what_is_in_the_way_of_a_restore_goes(void **state)
{
	struct sbx_sandbox *sb = fixture_create("a");
	static const char *const ways[] = {"mkdir -p $n/x/y", "ln -s /etc $n", "mkfifo $n",
	                                   "echo > $n"};
	_cleanup_free_ char *want = NULL;

	(void)state;
	fixture_in(sb, "echo x > x");
	snapshot(sb, "x");
	want = contents(sb);
	for (size_t i = 0; i < SBX_ARRAY_SIZE(ways); i++) {
		_cleanup_free_ char *have = NULL;

		fixture_in(sb, "echo y > x");
		free(fixture_run("cd %s && n=.sandboxfs-restore && %s", fixture_path(sb), ways[i]));
		restore(sb, id);
		have = contents(sb);
		assert_string_equal(have, want);
	}
	restore(sb, "base");
	fixture_take_down(sb);
	fixture_expect_empty();
}

/* Has the content of NAME in the snapshot REV be nowhere. */
static void lose(const struct sbx_sandbox *sb, const char *rev, const char *name)
{
	_cleanup_free_ char *script =
	        sbx_format("o=$(g rev-parse %s:%s); c=$(g rev-parse --git-common-dir); "
	                   "f=objects/$(echo $o | cut -c1-2)/$(echo $o | cut -c3-); "
	                   "rm -f \"$c/$f\" \"$c/sandboxfs/$f\"",
	                   rev, name);

	free(ask(sb, script));
}

static void a_restore_that_fails_is_taken_back(void **state)
{
	struct sbx_sandbox *sb = fixture_create("a");
	_cleanup_free_ char *work = NULL, *base = NULL, *failed = NULL, *back = NULL, *dir = NULL;
	struct sbx_error err = SBX_ERROR_INIT;
	char rev[SBX_REV_MAX];

	(void)state;
	fixture_in(sb, "mkdir d; echo 1 > d/one; echo precious > zz");
	snprintf(rev, sizeof(rev), "%s", snapshot(sb, "x"));
	fixture_in(sb, "echo 2 > d/one; echo other > zz; echo work > work");
	work = contents(sb);
	restore(sb, "base");
	fixture_in(sb, "echo later > later");
	base = contents(sb);
	/* Before anything was changed. */
	dir = git_dir(sb);
	free(fixture_run("touch %s/index.lock", dir));
	assert_int_equal(sbx_history_restore(sb, "mark:restore", NULL, &err), -EBUSY);
	free(fixture_run("rm %s/index.lock", dir));
	/* And in the middle. */
	lose(sb, rev, "zz");
	assert_true(sbx_history_restore(sb, rev, NULL, &err) < 0);
	assert_non_null(strstr(err.text, "zz"));
	failed = contents(sb);
	assert_string_equal(failed, base);
	expect(sb, "g status --porcelain", "?? later");
	/* What was before is still the same. */
	restore(sb, "mark:restore");
	back = contents(sb);
	assert_string_equal(back, work);
	restore(sb, "base");
	fixture_take_down(sb);
	fixture_expect_empty();
}

static void what_no_snapshot_records_was_made_with_it_stays(void **state)
{
	struct sbx_sandbox *sb;

	(void)state;
	if (fixture.row->kind != FIXTURE_DIR)
		return;
	scratch_mkdir(scratch_path("source/clone"));
	scratch_mkdir(scratch_path("source/clone/.git"));
	scratch_mkdir(scratch_path("source/clone/.git/objects"));
	scratch_mkdir(scratch_path("source/clone/.git/refs"));
	scratch_write(scratch_path("source/clone/.git/HEAD"), "ref: refs/heads/main\n");
	scratch_write(scratch_path("source/clone/f"), "f");
	scratch_mkdir(scratch_path("source/nothing"));
	sb = fixture_create("a");
	snapshot(sb, "x");
	fixture_in(sb, "mkdir more; cp -a clone more/clone; echo x > clone/f");
	restore(sb, "base");
	fixture_in(
	        sb,
	        "test -d nothing && test -e clone/f && test -e clone/.git/HEAD && test ! -e more");
	fixture_take_down(sb);
	fixture_expect_empty();
}

/* ---- what is hostile, large, or not needed any more ---- */

static void a_large_file_comes_back(void **state)
{
	struct sbx_sandbox *sb;
	_cleanup_free_ char *before = NULL, *after = NULL;

	(void)state;
	if (!is_git() || !fixture.row->overlaid)
		return;
	sb = fixture_create("a");
	fixture_in(sb, "head -c 32000000 /dev/urandom > big; chmod +x big");
	before = contents(sb);
	snapshot(sb, "large");
	fixture_in(sb, "echo small > big");
	restore(sb, id);
	after = contents(sb);
	assert_string_equal(after, before);
	restore(sb, "base");
	fixture_take_down(sb);
	fixture_expect_empty();
}

static void a_file_of_nothing_is_refused(void **state)
{
	struct sbx_sandbox *sb = fixture_create("a");
	const struct sbx_snapshot_options options = {.message = "huge"};
	struct sbx_error err = SBX_ERROR_INIT;
	char ret[SBX_REV_MAX];

	(void)state;
	fixture_in(sb, "echo x > x; truncate -s 4T huge");
	assert_int_equal(sbx_history_snapshot(sb, &options, ret, &err), -EFBIG);
	assert_int_equal(strncmp(err.text, "huge is too large", 17), 0);
	assert_int_equal(sbx_history_restore(sb, "base", NULL, &err), -EFBIG);
	fixture_in(sb, "rm huge; truncate -s 40M less; echo end >> less");
	snprintf(ret, sizeof(ret), "%s", snapshot(sb, "less"));
	restore(sb, "base");
	/* What took no room takes none when it is back. */
	restore(sb, ret);
	fixture_in(sb, "test $(stat -c %s less) = $((40 * 1024 * 1024 + 4)); tail -c 4 less | "
	               "grep -qx end; test $(stat -c %b less) -lt 8000");
	restore(sb, "base");
	fixture_take_down(sb);
	fixture_expect_empty();
}

static atomic_bool swapping;

/* The directory that is restored is now itself, now a link out. */
static void *swap(void *data)
{
	const char *const *names = data;
	const char *dir = names[0], *aside = names[1], *outside = names[2];

	while (atomic_load(&swapping))
		if (rename(dir, aside) == 0) {
			if (symlink(outside, dir) == 0)
				unlink(dir);
			rename(aside, dir);
		}
	return NULL;
}

static void nothing_outside_is_touched(void **state)
{
	struct sbx_sandbox *sb = fixture_create("a");
	_cleanup_free_ char *dir = sbx_format("%s/swap", fixture_path(sb));
	_cleanup_free_ char *aside = sbx_format("%s/aside", fixture_path(sb));
	_cleanup_free_ char *outside = strdup(scratch_path("outside"));
	const char *names[] = {dir, aside, outside};
	char first[SBX_REV_MAX];
	pthread_t thread;

	(void)state;
	scratch_mkdir(scratch_path("outside"));
	scratch_write(scratch_path("outside/f"), "outside");
	fixture_in(sb, "mkdir swap; echo 1 > swap/f; echo 1 > swap/g");
	snprintf(first, sizeof(first), "%s", snapshot(sb, "one"));
	fixture_in(sb, "rm swap/g; echo 2 > swap/f; mkdir swap/h; echo 2 > swap/h/h");
	snapshot(sb, "two");
	atomic_store(&swapping, true);
	assert_int_equal(pthread_create(&thread, NULL, swap, names), 0);
	for (int i = 0; i < 40; i++)
		sbx_history_restore(sb, i % 2 ? id : first, NULL, NULL);
	atomic_store(&swapping, false);
	pthread_join(thread, NULL);
	scratch_expect(scratch_path("outside/f"), "outside");
	assert_int_equal(scratch_count(scratch_path("outside")), 1);
	fixture_in(sb, "rm -rf aside");
	restore(sb, first);
	/* A directory that could not be removed meanwhile may be left, empty. */
	expect(sb, "cat swap/f swap/g; test ! -e swap/h/h; g status --porcelain", "1\n1");
	restore(sb, "base");
	fixture_take_down(sb);
	fixture_expect_empty();
}

/* Objects of the sandbox's own repository. */
static int own_objects(const struct sbx_sandbox *sb)
{
	_cleanup_free_ char *script = sbx_format("find %s/git/%s/history/objects -type f -links 1 "
	                                         "! -path '*/info/*' ! -path '*/pack/*' | wc -l",
	                                         scratch_path("state"), sb->id);
	_cleanup_free_ char *n = ask(sb, script);

	return atoi(n);
}

static void what_no_mark_leads_to_is_taken_out(void **state)
{
	struct sbx_sandbox *sb = fixture_create("a");
	_cleanup_free_ char *kept = NULL, *again = NULL, *script = NULL;
	struct sbx_snapshot_context context = sbx_local_snapshot_context(sb);
	struct sbx_error err = SBX_ERROR_INIT;
	int few, many;

	(void)state;
	fixture_in(sb, "mkdir d; echo kept > d/f");
	mark(sb, "kept");
	kept = contents(sb);
	few = own_objects(sb);
	fixture_in(sb, EDITS);
	mark(sb, "gone");
	many = own_objects(sb);
	assert_true(many > few + 5);
	snapshot(sb, "one");
	assert_int_equal(sbx_history_forget(sb, "gone", &err), 0);
	sbx_local_history_prune(&context, true);
	if (is_git())
		assert_int_equal(own_objects(sb), few);
	else
		expect_sound(sb);
	script = sbx_format(
	        "git --git-dir=%s/git/%s/history fsck --strict --connectivity-only $(cat "
	        "%s/git/%s/history/marks/kept) >&2",
	        scratch_path("state"), sb->id, scratch_path("state"), sb->id);
	free(ask(sb, script));
	restore(sb, "mark:kept");
	again = contents(sb);
	assert_string_equal(again, kept);
	restore(sb, "base");
	fixture_take_down(sb);
	if (is_git())
		assert_int_equal(scratch_count(scratch_path("state/git")), 0);
}

/* By a snapshot that came to nothing: the next does not read it again. */
static void what_is_staged_is_not_taken_out(void **state)
{
	struct sbx_sandbox *sb = fixture_create("a");
	const struct sbx_snapshot_context context = sbx_local_snapshot_context(sb);
	const struct sbx_snapshot_options options = {.message = "x"};
	struct sbx_error err = SBX_ERROR_INIT;
	_cleanup_free_ char *dir = git_dir(sb),
	                    *lock = sbx_format("%s/refs/heads/sandbox.lock", dir);
	char ret[SBX_REV_MAX];

	(void)state;
	if (!is_git()) {
		mark(sb, "m");
		fixture_in(sb, "echo precious > p; touch -d '1 hour ago' p");
		scratch_write(lock, "");
		assert_true(sbx_history_snapshot(sb, &options, ret, &err) < 0);
		assert_int_equal(unlink(lock), 0);
		sbx_local_history_prune(&context, true);
		snapshot(sb, "again");
		expect_sound(sb);
		restore(sb, "base");
		restore(sb, id);
		expect(sb, "cat p", "precious");
		restore(sb, "base");
	}
	fixture_take_down(sb);
	fixture_expect_empty();
}

/* Of marks that were replaced, and of diffs, nobody tells that they are not needed. */
static void what_is_recorded_does_not_pile_up(void **state)
{
	struct sbx_sandbox *sb;

	(void)state;
	/* What is taken out is the same whether the tree is an overlay or not. */
	if (fixture.row->overlaid)
		return;
	sb = fixture_create("a");
	fixture_in(sb, "mkdir many; echo s > staged");
	snapshot(sb, "x");
	for (int i = 0; i < 16; i++) {
		_cleanup_free_ char *edit = sbx_format(
		        "i=0; while [ $i -lt 250 ]; do echo %d.$i > many/$i; i=$((i + 1)); done",
		        i);

		fixture_in(sb, edit);
		if (i % 2)
			mark(sb, "m");
		else
			free(diff(sb, "base", NULL, SBX_DIFF_NAMES));
	}
	/* 4000 files were recorded, of which 500 can still be asked for. */
	assert_in_range(own_objects(sb), 250, 3000);
	snapshot(sb, "last");
	expect_sound(sb);
	restore(sb, "base");
	restore(sb, id);
	expect(sb, "cat many/99", "15.99");
	restore(sb, "base");
	fixture_take_down(sb);
	fixture_expect_empty();
}

static void what_was_included_comes_back_with_the_base(void **state)
{
	struct sbx_sandbox *sb;

	(void)state;
	if (!is_git())
		return;
	scratch_write(scratch_path("source/keep.log"), "kept\n");
	scratch_write(scratch_path("source/other.log"), "other\n");
	scratch_write(scratch_path("source/.worktreeinclude"), "keep.log\n");
	sb = fixture_create("a");
	fixture_in(sb, "test \"$(cat keep.log)\" = kept; echo changed > keep.log; echo x > x.log");
	restore(sb, "base");
	fixture_in(sb,
	           "test \"$(cat keep.log)\" = kept && test ! -e x.log && test ! -e other.log && "
	           "test ! -e .sandboxfs-restore");
	expect(sb, "g status --porcelain", "");
	fixture_take_down(sb);
	fixture_expect_empty();
}

#define TEST(fn)                                                                                   \
	{                                                                                          \
#fn, fn                                                                            \
	}

static const struct fixture_test tests[] = {
        TEST(a_snapshot_is_what_git_would_commit),
        TEST(snapshots_are_listed_and_kept),
        TEST(the_time_of_a_snapshot_is_its_commits),
        TEST(what_keeps_snapshots_goes_with_the_sandbox),
        TEST(many_may_look_at_once),
        TEST(an_author_can_be_given),
        TEST(ignored_files_are_recorded_when_asked),
        TEST(a_restore_makes_the_tree_what_it_was),
        TEST(large_text_is_restored_as_git_does),
        TEST(line_ends_are_as_the_restored_attributes_say),
        TEST(looking_for_the_base_does_not_record_it),
        TEST(the_base_is_as_it_was_made),
        TEST(a_mark_keeps_what_was_staged_too),
        TEST(a_snapshot_is_whole_whatever_was_seen_before),
        TEST(marks_are_seen_by_nobody_and_can_be_forgotten),
        TEST(a_diff_is_one_that_git_applies),
        TEST(a_diff_of_very_many_lines_takes_little_memory),
        TEST(a_diff_of_a_very_large_file_says_that_it_differs),
        TEST(a_snapshot_can_be_looked_into),
        TEST(a_restore_that_was_broken_off_is_completed),
        TEST(killed_in_a_snapshot_nothing_is_lost),
        TEST(killed_in_a_restore_it_is_as_before_or_as_after),
        TEST(a_restore_that_fails_is_taken_back),
        TEST(what_is_in_the_way_of_a_restore_goes),
        TEST(what_no_snapshot_records_was_made_with_it_stays),
        TEST(a_file_of_nothing_is_refused),
        TEST(a_large_file_comes_back),
        TEST(nothing_outside_is_touched),
        TEST(what_no_mark_leads_to_is_taken_out),
        TEST(what_is_staged_is_not_taken_out),
        TEST(what_is_recorded_does_not_pile_up),
        TEST(what_was_included_comes_back_with_the_base),
};

int main(void)
{
	return fixture_main("past", tests, SBX_ARRAY_SIZE(tests));
}
