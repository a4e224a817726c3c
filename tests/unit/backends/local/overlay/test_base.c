/* The cache of bases: how each is made, found again, checked and dropped. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <git2.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "backends/git/repository.h"
#include "backends/local/overlay/base_dir.h"
#include "backends/local/overlay/base_git.h"
#include "backends/local/overlay/base_impl.h"
#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"
#include "tests/lib/repo.h"
#include "tests/lib/scratch.h"

/* libgit2 forgets the path of a tree that it refuses. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
	return "leak:libgit2";
}

static struct sbx_bases *bases;
static char top[256];
static struct sbx_identity me;
static atomic_int fills;

static void open_bases(uint64_t limit_mb)
{
	struct sbx_error err = SBX_ERROR_INIT;

	if (sbx_bases_open(scratch_path("cache"), limit_mb, &bases, &err))
		fail_msg("%s", err.text);
}

static int setup(void **state)
{
	(void)state;
	snprintf(top, sizeof(top), "%s", scratch_make());
	me = (struct sbx_identity){.uid = geteuid(), .gid = getegid()};
	atomic_store(&fills, 0);
	open_bases(1000);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	sbx_bases_close(bases);
	bases = NULL;
	scratch_remove();
	return 0;
}

/* --- the cache, with a recipe of our own
 * ----------------------------------------------------------- */

static int fill_one(const struct sbx_base_recipe *recipe, int dir, int tree,
                    struct sbx_base_facts *facts, atomic_bool *cancelled, struct sbx_error *err)
{
	(void)dir;
	(void)cancelled;
	atomic_fetch_add(&fills, 1);
	if (sbx_file_create(tree, "file", recipe->data) || sbx_file_create(dir, "index", "index"))
		return sbx_fail(err, EIO, "cannot write");
	*facts = (struct sbx_base_facts){.files = 1, .bytes = 600 << 10};
	return 0;
}

static int fill_none(const struct sbx_base_recipe *recipe, int dir, int tree,
                     struct sbx_base_facts *facts, atomic_bool *cancelled, struct sbx_error *err)
{
	fill_one(recipe, dir, tree, facts, cancelled, err);
	return sbx_fail(err, ENOSPC, "told to fail");
}

static struct sbx_base_recipe recipe_for(const char *key)
{
	return (struct sbx_base_recipe){
	        .key = key, .fill = fill_one, .data = "text", .uid = me.uid, .gid = me.gid};
}

static int acquire(const char *key, const char *id)
{
	const struct sbx_base_recipe recipe = recipe_for(key);
	_cleanup_free_ char *record = id ? sbx_format("%s/%s.json", top, id) : NULL;
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_base base;
	int r = sbx_base_acquire(bases, &recipe, id, record, NULL, &base, &err);

	if (!r)
		close(base.dir);
	assert_int_equal(err.code, -r);
	return r;
}

static bool is_there(const char *key)
{
	return scratch_exists(scratch_path("cache/bases/%s/marker", key));
}

static void a_base_is_made_once(void **state)
{
	(void)state;
	assert_int_equal(acquire("k", "a"), 0);
	assert_int_equal(acquire("k", "b"), 0);
	assert_int_equal(atomic_load(&fills), 1);
	scratch_expect(scratch_path("cache/bases/k/tree/file"), "text");
	assert_int_equal(scratch_count(scratch_path("cache/users/k")), 2);
	assert_int_equal(scratch_count(scratch_path("cache/tmp")), 0);
}

static void *acquire_it(void *data)
{
	acquire("k", data);
	return NULL;
}

static void threads_that_want_one_base_share_the_work(void **state)
{
	static const char *const ids[] = {"a", "b", "c", "d", "e", "f", "g", "h"};
	pthread_t threads[8];

	(void)state;
	for (int i = 0; i < 8; i++)
		assert_int_equal(
		        pthread_create(&threads[i], NULL, acquire_it, (void *)(uintptr_t)ids[i]),
		        0);
	for (int i = 0; i < 8; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(atomic_load(&fills), 1);
	assert_int_equal(scratch_count(scratch_path("cache/users/k")), 8);
}

static void what_cannot_be_made_leaves_nothing(void **state)
{
	struct sbx_base_recipe recipe = recipe_for("k");
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_base base;

	(void)state;
	recipe.fill = fill_none;
	assert_int_equal(sbx_base_acquire(bases, &recipe, "a", "r", NULL, &base, &err), -ENOSPC);
	assert_string_equal(err.text, "told to fail");
	assert_false(scratch_exists(scratch_path("cache/bases/k")));
	assert_int_equal(scratch_count(scratch_path("cache/tmp")), 0);
	assert_int_equal(scratch_count(scratch_path("cache/users")), 0);
	recipe.fill = NULL;
	assert_int_equal(sbx_base_acquire(bases, &recipe, "a", "r", NULL, &base, &err), -ENOENT);
}

static pthread_barrier_t filling;
static atomic_bool go_on;

static int fill_slowly(const struct sbx_base_recipe *recipe, int dir, int tree,
                       struct sbx_base_facts *facts, atomic_bool *cancelled, struct sbx_error *err)
{
	pthread_barrier_wait(&filling);
	while (!atomic_load(&go_on))
		sched_yield();
	return fill_one(recipe, dir, tree, facts, cancelled, err);
}

static void *acquire_slowly(void *data)
{
	struct sbx_base_recipe recipe = recipe_for("k");
	struct sbx_base base;

	(void)data;
	recipe.fill = fill_slowly;
	if (sbx_base_acquire(bases, &recipe, "slow", "r", NULL, &base, NULL) == 0)
		close(base.dir);
	return NULL;
}

static void who_waits_for_another_can_give_up(void **state)
{
	const struct sbx_base_recipe recipe = recipe_for("k");
	struct sbx_error err = SBX_ERROR_INIT;
	atomic_bool cancelled = true;
	struct sbx_base base;
	pthread_t thread;

	(void)state;
	atomic_store(&go_on, false);
	pthread_barrier_init(&filling, NULL, 2);
	assert_int_equal(pthread_create(&thread, NULL, acquire_slowly, NULL), 0);
	pthread_barrier_wait(&filling);
	assert_int_equal(sbx_base_acquire(bases, &recipe, "a", "r", &cancelled, &base, &err),
	                 -EINTR);
	atomic_store(&go_on, true);
	pthread_join(thread, NULL);
	assert_true(is_there("k"));
	pthread_barrier_destroy(&filling);
}

static void a_damaged_base_is_made_again(void **state)
{
	(void)state;
	acquire("k", "a");
	assert_int_equal(unlink(scratch_path("cache/bases/k/tree/file")), 0);
	acquire("k", "a");
	assert_int_equal(atomic_load(&fills), 2);
	scratch_expect(scratch_path("cache/bases/k/tree/file"), "text");
	scratch_write(scratch_path("cache/bases/k/index"), "other");
	acquire("k", "a");
	assert_int_equal(atomic_load(&fills), 3);
	scratch_write(scratch_path("cache/bases/k/marker"), "sandboxfs base 1\nfiles x\n");
	acquire("k", "a");
	assert_int_equal(atomic_load(&fills), 4);
	acquire("k", "a");
	assert_int_equal(atomic_load(&fills), 4);
}

/* With as many descriptors as the lock of a base needs, and no more. */
static int acquire_short(void)
{
	struct rlimit all, few;
	int next = dup(0), r;

	assert_true(next >= 0);
	close(next);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &all), 0);
	few = (struct rlimit){.rlim_cur = (rlim_t)next + 1, .rlim_max = all.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	r = acquire("k", "b");
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &all), 0);
	return r;
}

static void a_base_that_cannot_be_opened_now_is_not_damaged(void **state)
{
	int refused = 0;

	(void)state;
	acquire("k", "a");
	/* The keeper opens and closes meanwhile. */
	for (int i = 0; i < 20; i++)
		refused += acquire_short() == -EMFILE;
	assert_true(refused > 0);
	assert_int_equal(acquire("k", "b"), 0);
	assert_int_equal(atomic_load(&fills), 1);
}

/* Whether the disk has it is known for this boot only. */
static void a_base_that_may_not_have_reached_the_disk_is_made_again(void **state)
{
	_cleanup_free_ char *text = NULL;
	char *boot;

	(void)state;
	acquire("k", "a");
	assert_int_equal(sbx_file_read(AT_FDCWD, scratch_path("cache/bases/k/marker"), 4096, &text),
	                 0);
	boot = strstr(text, "boot ");
	assert_non_null(boot);
	boot[5] = boot[5] == '0' ? '1' : '0';
	scratch_write(scratch_path("cache/bases/k/marker"), text);
	acquire("k", "a");
	assert_int_equal(atomic_load(&fills), 2);
	free(sbx_steal_ptr(&text));
	sbx_file_read(AT_FDCWD, scratch_path("cache/bases/k/marker"), 4096, &text);
	boot = strstr(text, "boot ");
	boot[5] = boot[5] == '0' ? '1' : '0';
	*strstr(text, "synced 0") = 's';
	strstr(text, "synced 0")[7] = '1';
	scratch_write(scratch_path("cache/bases/k/marker"), text);
	acquire("k", "a");
	assert_int_equal(atomic_load(&fills), 2);
}

static void age(const char *key, int seconds)
{
	struct timespec times[2];

	clock_gettime(CLOCK_REALTIME, &times[0]);
	times[0].tv_sec -= seconds;
	times[1] = times[0];
	assert_int_equal(utimensat(AT_FDCWD, scratch_path("cache/bases/%s/marker", key), times, 0),
	                 0);
}

/* Each of 600 KiB. */
static void what_is_not_in_use_is_dropped_least_recently_used_first(void **state)
{
	(void)state;
	acquire("old", NULL);
	acquire("used", "u");
	scratch_write(scratch_path("u.json"), "{}");
	acquire("dead", "d");
	acquire("new", NULL);
	age("used", 400);
	age("old", 300);
	age("dead", 200);
	sbx_bases_close(bases);
	open_bases(2);
	sbx_bases_trim(bases);
	assert_true(is_there("used"));
	assert_false(is_there("old"));
	assert_true(is_there("dead"));
	assert_true(is_there("new"));
	sbx_bases_close(bases);
	open_bases(0);
	sbx_bases_trim(bases);
	assert_true(is_there("used"));
	assert_false(is_there("dead"));
	assert_false(is_there("new"));
	sbx_base_release(bases, "used", "u");
	sbx_bases_trim(bases);
	assert_false(is_there("used"));
}

static void a_cache_of_somebody_elses_is_refused(void **state)
{
	struct sbx_bases *other;
	struct sbx_error err = SBX_ERROR_INIT;

	(void)state;
	scratch_mkdir(scratch_path("open"));
	assert_int_equal(chmod(scratch_path("open"), 0777), 0);
	assert_int_equal(sbx_bases_open(scratch_path("open"), 1, &other, &err), -EACCES);
	scratch_write(scratch_path("file"), "");
	assert_int_equal(sbx_bases_open(scratch_path("file"), 1, &other, &err), -ENOTDIR);
}

/* --- commits
 * ---------------------------------------------------------------------------------------- */

static char commit[65];

static void commit_source(void)
{
	snprintf(commit, sizeof(commit), "%s", repo_commit(scratch_path("repo"), "c"));
}

static void make_source(void)
{
	repo_init(scratch_path("repo"), false);
	scratch_write(scratch_path("repo/a"), "a\n");
	scratch_mkdir(scratch_path("repo/dir"));
	scratch_mkdir(scratch_path("repo/dir/sub"));
	scratch_write(scratch_path("repo/dir/sub/run"), "#!/bin/sh\n");
	assert_int_equal(chmod(scratch_path("repo/dir/sub/run"), 0755), 0);
	assert_int_equal(symlink("/etc/passwd", scratch_path("repo/dir/link")), 0);
	scratch_write(scratch_path("repo/empty"), "");
	for (int i = 0; i < 200; i++)
		scratch_write(scratch_path("repo/dir/f%d", i), "text\n");
}

static struct sbx_base_commit *plan(void)
{
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_base_commit *c;

	if (sbx_base_commit_new(scratch_path("repo"), NULL, commit, &me, &c, &err))
		fail_msg("%s", err.text);
	return c;
}

/* The tree of the commit's base. */
static const char *check_out(struct sbx_base_commit *c)
{
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_base base;

	if (sbx_base_acquire(bases, &c->recipe, NULL, NULL, NULL, &base, &err))
		fail_msg("%s", err.text);
	close(base.dir);
	return scratch_path("cache/bases/%s", c->key);
}

static void files_modes_and_links_are_those_of_the_commit(void **state)
{
	struct sbx_base_commit *c;
	char target[32] = "";
	struct stat st;

	(void)state;
	make_source();
	commit_source();
	c = plan();
	check_out(c);
	scratch_expect(scratch_path("cache/bases/%s/tree/a", c->key), "a\n");
	scratch_expect(scratch_path("cache/bases/%s/tree/dir/f199", c->key), "text\n");
	scratch_expect(scratch_path("cache/bases/%s/tree/empty", c->key), "");
	assert_int_equal(stat(scratch_path("cache/bases/%s/tree/dir/sub/run", c->key), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0755);
	assert_int_equal(stat(scratch_path("cache/bases/%s/tree/a", c->key), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0644);
	assert_int_equal(readlink(scratch_path("cache/bases/%s/tree/dir/link", c->key), target, 31),
	                 11);
	assert_string_equal(target, "/etc/passwd");
	sbx_base_commit_free(&c->recipe);
}

static long high_water_kib(void)
{
	_cleanup_file_ FILE *f = fopen("/proc/self/status", "re");
	char line[256];
	long kib = -1;

	while (f && kib < 0 && fgets(line, sizeof(line), f))
		sscanf(line, "VmHWM: %ld", &kib);
	return kib;
}

static void forget_high_water(void)
{
	_cleanup_fd_ int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);

	if (fd >= 0)
		assert_int_equal(write(fd, "5", 1), 1);
}

/* A snapshot of holes is of no size on disk: what is made of it takes no memory either. */
static void a_large_file_is_written_by_and_by(void **state)
{
	const off_t size = (off_t)96 << 20;
	struct sbx_base_commit *c;
	struct stat st;
	long before;

	(void)state;
	repo_init(scratch_path("repo"), false);
	scratch_write(scratch_path("repo/large"), "");
	assert_int_equal(truncate(scratch_path("repo/large"), size), 0);
	commit_source();
	c = plan();
	forget_high_water();
	before = high_water_kib();
	check_out(c);
	assert_int_equal(stat(scratch_path("cache/bases/%s/tree/large", c->key), &st), 0);
	assert_int_equal(st.st_size, size);
	assert_in_range(high_water_kib() - before, 0, 48 << 10);
	sbx_base_commit_free(&c->recipe);
}

/* Of each file the index says what stat says, and none is as young as the index. */
static void the_index_needs_no_look_into_files(void **state)
{
	struct sbx_base_commit *c;
	git_index *index;

	(void)state;
	make_source();
	commit_source();
	c = plan();
	check_out(c);
	assert_int_equal(git_index_open(&index, scratch_path("cache/bases/%s/index", c->key)), 0);
	assert_int_equal(git_index_entrycount(index), 204);
	for (size_t i = 0; i < 204; i++) {
		const git_index_entry *e = git_index_get_byindex(index, i);
		struct stat st;

		assert_int_equal(
		        lstat(scratch_path("cache/bases/%s/tree/%s", c->key, e->path), &st), 0);
		assert_int_equal(e->ino, (uint32_t)st.st_ino);
		assert_int_equal(e->file_size, (uint32_t)st.st_size);
		assert_int_equal(e->mtime.seconds, st.st_mtim.tv_sec);
		assert_int_equal(e->ctime.seconds, st.st_ctim.tv_sec);
		assert_int_equal(e->ctime.nanoseconds, st.st_ctim.tv_nsec);
		assert_int_equal(e->uid, st.st_uid);
		assert_true(st.st_mtim.tv_sec < st.st_ctim.tv_sec);
	}
	git_index_free(index);
	sbx_base_commit_free(&c->recipe);
}

static void each_file_is_compared_with_the_index(void **state)
{
	atomic_bool cancelled = false;
	struct sbx_base_commit *c;
	_cleanup_fd_ int dir = -1;

	(void)state;
	make_source();
	commit_source();
	c = plan();
	dir = sbx_dir_open(AT_FDCWD, check_out(c));
	assert_true(dir >= 0);
	assert_int_equal(c->recipe.check(&c->recipe, dir, &cancelled), 0);
	scratch_write(scratch_path("cache/bases/%s/tree/dir/f7", c->key), "other");
	assert_int_equal(c->recipe.check(&c->recipe, dir, &cancelled), -EIO);
	assert_int_equal(unlink(scratch_path("cache/bases/%s/tree/dir/f7", c->key)), 0);
	assert_int_equal(c->recipe.check(&c->recipe, dir, &cancelled), -EIO);
	cancelled = true;
	assert_int_equal(c->recipe.check(&c->recipe, dir, &cancelled), -EINTR);
	sbx_base_commit_free(&c->recipe);
}

/* What stands on it goes on reading it. */
static void a_damaged_base_in_use_is_replaced_and_kept(void **state)
{
	_cleanup_fd_ int used = -1;

	(void)state;
	scratch_write(scratch_path("u.json"), "{}");
	acquire("k", "u");
	used = sbx_dir_open(AT_FDCWD, scratch_path("cache/bases/k/tree"));
	scratch_write(scratch_path("cache/bases/k/index"), "other");
	acquire("k", "u");
	assert_int_equal(atomic_load(&fills), 2);
	assert_int_equal(faccessat(used, "file", F_OK, 0), 0);
	assert_int_equal(scratch_count(scratch_path("cache/tmp")), 1);
}

static void key_of_now(char ret[SBX_BASE_KEY_MAX])
{
	struct sbx_base_commit *c = plan();

	memcpy(ret, c->key, SBX_BASE_KEY_MAX);
	sbx_base_commit_free(&c->recipe);
}

static void what_decides_on_line_ends_is_in_the_key(void **state)
{
	char before[SBX_BASE_KEY_MAX], after[SBX_BASE_KEY_MAX];
	struct sbx_base_commit *c;

	(void)state;
	repo_init(scratch_path("repo"), false);
	scratch_write(scratch_path("repo/a.txt"), "one\ntwo\n");
	scratch_write(scratch_path("repo/b.bin"), "one\ntwo\n");
	commit_source();
	key_of_now(before);
	scratch_write(scratch_path("repo/.git/info/attributes"), "*.txt eol=crlf\n");
	key_of_now(after);
	assert_string_not_equal(before, after);
	c = plan();
	check_out(c);
	scratch_expect(scratch_path("cache/bases/%s/tree/a.txt", c->key), "one\r\ntwo\r\n");
	scratch_expect(scratch_path("cache/bases/%s/tree/b.bin", c->key), "one\ntwo\n");
	sbx_base_commit_free(&c->recipe);
}

static void attributes_of_the_commit_are_applied(void **state)
{
	struct sbx_base_commit *c;

	(void)state;
	repo_init(scratch_path("repo"), false);
	scratch_write(scratch_path("repo/.gitattributes"), "*.txt eol=crlf\n");
	scratch_write(scratch_path("repo/a.txt"), "one\n");
	commit_source();
	c = plan();
	check_out(c);
	scratch_expect(scratch_path("cache/bases/%s/tree/a.txt", c->key), "one\r\n");
	sbx_base_commit_free(&c->recipe);
}

/* As libgit2 does it with small ones. */
static void large_text_is_converted_by_and_by(void **state)
{
	static const char line[] = "sixteen letters\n";
	const size_t lines = (size_t)1 << 20;
	struct sbx_base_commit *c;
	char want[128], begin[128] = "", end[8] = "";
	git_oid id;
	long before;
	FILE *f;

	(void)state;
	repo_init(scratch_path("repo"), false);
	scratch_write(scratch_path("repo/.gitattributes"), "*.txt text eol=crlf ident\n");
	f = fopen(scratch_path("repo/a.txt"), "we");
	assert_non_null(f);
	fputs("$Id$ $Id: not one\n", f);
	for (size_t i = 0; i < lines; i++)
		fputs(line, f);
	fclose(f);
	assert_int_equal(git_odb_hashfile(&id, scratch_path("repo/a.txt"), GIT_OBJECT_BLOB), 0);
	commit_source();
	c = plan();
	forget_high_water();
	before = high_water_kib();
	check_out(c);
	assert_in_range(high_water_kib() - before, 0, 24 << 10);
	f = fopen(scratch_path("cache/bases/%s/tree/a.txt", c->key), "re");
	assert_non_null(f);
	assert_int_equal(fread(begin, 1, 62, f), 62);
	snprintf(want, sizeof(want), "$Id: %s $ $Id: not one\r\n", git_oid_tostr_s(&id));
	assert_string_equal(begin, want);
	assert_int_equal(fseek(f, -6, SEEK_END), 0);
	assert_int_equal(ftell(f), 62 + 17 * (long)lines - 6);
	assert_int_equal(fread(end, 1, 6, f), 6);
	assert_string_equal(end, "ters\r\n");
	fclose(f);
	sbx_base_commit_free(&c->recipe);
}

/* A commit of one tree of our own making. */
static void commit_tree(const char *bytes, size_t len)
{
	git_repository *repo;
	git_odb *odb;
	git_oid tree, id;
	git_signature *who;
	git_tree *found;

	assert_int_equal(git_repository_open(&repo, scratch_path("repo")), 0);
	assert_int_equal(git_repository_odb(&odb, repo), 0);
	assert_int_equal(git_odb_write(&tree, odb, bytes, len, GIT_OBJECT_TREE), 0);
	assert_int_equal(git_tree_lookup(&found, repo, &tree), 0);
	assert_int_equal(git_signature_now(&who, "a", "b@c"), 0);
	assert_int_equal(git_commit_create_v(&id, repo, NULL, who, who, NULL, "m", found, 0), 0);
	git_oid_tostr(commit, sizeof(commit), &id);
	git_signature_free(who);
	git_tree_free(found);
	git_odb_free(odb);
	git_repository_free(repo);
}

static size_t add_entry(char *at, const char *mode_and_name, const git_oid *id)
{
	size_t n = strlen(mode_and_name) + 1;

	memcpy(at, mode_and_name, n);
	memcpy(at + n, id->id, 20);
	return n + 20;
}

static void expect_refused(const char *first, const char *second)
{
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_base_commit *c;
	struct sbx_base base;
	git_repository *repo;
	char bytes[256];
	git_oid blob, tree;
	size_t n;

	assert_int_equal(git_repository_open(&repo, scratch_path("repo")), 0);
	assert_int_equal(git_blob_create_from_buffer(&blob, repo, "/tmp", 4), 0);
	git_repository_free(repo);
	n = add_entry(bytes, "100644 x", &blob);
	commit_tree(bytes, n);
	assert_int_equal(git_repository_open(&repo, scratch_path("repo")), 0);
	{
		git_object *found;

		assert_int_equal(git_revparse_single(&found, repo, commit), 0);
		tree = *git_commit_tree_id((git_commit *)found);
		git_object_free(found);
	}
	git_repository_free(repo);
	n = add_entry(bytes, first, strncmp(first, "40000", 5) ? &blob : &tree);
	if (second)
		n += add_entry(bytes + n, second, strncmp(second, "40000", 5) ? &blob : &tree);
	commit_tree(bytes, n);
	c = plan();
	assert_true(sbx_base_acquire(bases, &c->recipe, NULL, NULL, NULL, &base, &err) < 0);
	assert_true(err.text[0] != '\0');
	assert_false(scratch_exists(scratch_path("cache/bases/%s", c->key)));
	sbx_base_commit_free(&c->recipe);
}

static void a_commit_that_leads_out_is_refused(void **state)
{
	(void)state;
	repo_init(scratch_path("repo"), false);
	expect_refused("40000 .git", NULL);
	expect_refused("100644 ..", NULL);
	expect_refused("120000 a", "40000 a");
	assert_false(scratch_exists("/tmp/x"));
}

/* --- directories
 * ------------------------------------------------------------------------------------ */

static void look_at(struct sbx_base_dir *d, int r)
{
	struct sbx_error err = SBX_ERROR_INIT;

	*d = (struct sbx_base_dir){.owner = me};
	d->source = open(scratch_path("src"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(d->source >= 0);
	assert_int_equal(sbx_base_dir_look(d, NULL, &err), r);
}

static bool is_changed(char key[SBX_BASE_KEY_MAX])
{
	struct sbx_base_dir d;
	bool changed;

	look_at(&d, 0);
	close(d.source);
	changed = strcmp(key, d.key) != 0;
	memcpy(key, d.key, SBX_BASE_KEY_MAX);
	return changed;
}

static void whatever_changes_in_a_directory_makes_another_key(void **state)
{
	char key[SBX_BASE_KEY_MAX] = "";

	(void)state;
	scratch_mkdir(scratch_path("src"));
	scratch_mkdir(scratch_path("src/sub"));
	scratch_write(scratch_path("src/sub/f"), "one");
	assert_true(is_changed(key));
	assert_false(is_changed(key));
	scratch_write(scratch_path("src/sub/f"), "two");
	assert_true(is_changed(key));
	assert_int_equal(chmod(scratch_path("src/sub/f"), 0600), 0);
	assert_true(is_changed(key));
	{
		_cleanup_free_ char *to = strdup(scratch_path("src/g"));

		assert_int_equal(rename(scratch_path("src/sub/f"), to), 0);
	}
	assert_true(is_changed(key));
	scratch_mkdir(scratch_path("src/empty"));
	assert_true(is_changed(key));
	assert_int_equal(chmod(scratch_path("src"), 0700), 0);
	assert_true(is_changed(key));
	assert_false(is_changed(key));
}

static void hard_links_are_told(void **state)
{
	struct sbx_base_dir d;

	(void)state;
	scratch_mkdir(scratch_path("src"));
	scratch_write(scratch_path("src/f"), "one");
	{
		_cleanup_free_ char *to = strdup(scratch_path("src/g"));

		assert_int_equal(link(scratch_path("src/f"), to), 0);
	}
	look_at(&d, -EMLINK);
	close(d.source);
}

/* As `git clone` makes them of a repository beside. */
static void hard_links_among_objects_of_git_are_none(void **state)
{
	struct sbx_base_dir d;
	_cleanup_free_ char *to = NULL;

	(void)state;
	scratch_mkdir(scratch_path("src"));
	scratch_mkdir(scratch_path("src/g"));
	scratch_mkdir(scratch_path("src/g/objects"));
	scratch_mkdir(scratch_path("src/g/objects/ab"));
	scratch_write(scratch_path("src/g/objects/ab/f"), "one");
	assert_int_equal(chmod(scratch_path("src/g/objects/ab/f"), 0444), 0);
	to = strdup(scratch_path("elsewhere"));
	assert_int_equal(link(scratch_path("src/g/objects/ab/f"), to), 0);
	look_at(&d, 0);
	close(d.source);
	assert_int_equal(chmod(to, 0644), 0);
	look_at(&d, -EMLINK);
	close(d.source);
}

static void a_directory_that_changes_while_it_is_copied_is_not_kept(void **state)
{
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_base_dir d;
	struct sbx_base base;

	(void)state;
	scratch_mkdir(scratch_path("src"));
	scratch_write(scratch_path("src/f"), "one");
	look_at(&d, 0);
	scratch_write(scratch_path("src/f"), "other");
	assert_int_equal(sbx_base_acquire(bases, &d.recipe, "a", "r", NULL, &base, &err), -EAGAIN);
	close(d.source);
	assert_int_equal(scratch_count(scratch_path("cache/bases")), 0);
	look_at(&d, 0);
	assert_int_equal(sbx_base_acquire(bases, &d.recipe, "a", "r", NULL, &base, &err), 0);
	close(base.dir);
	close(d.source);
	scratch_expect(scratch_path("cache/bases/%s/tree/f", d.key), "other");
	assert_false(scratch_exists(scratch_path("cache/bases/%s/links", d.key)));
}

/* --- the copy of an index that is made before it is wanted
 * ---------------------------------------------- */

static int open_with_index(const char *key, int megabytes)
{
	_cleanup_free_ char *text = malloc(((size_t)megabytes << 20) + 1);
	const char *path = scratch_path("cache/bases/%s", key);
	int fd;

	assert_non_null(text);
	memset(text, 'x', (size_t)megabytes << 20);
	text[(size_t)megabytes << 20] = '\0';
	assert_int_equal(acquire(key, NULL), 0);
	scratch_write(scratch_path("cache/bases/%s/index", key), text);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(fd >= 0);
	return fd;
}

static ino_t copy_index(int base, const char *path, off_t size)
{
	struct stat st;

	assert_int_equal(sbx_base_copy_index(bases, base, top, path), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_size, size);
	assert_int_equal(st.st_mode & 0777, 0644);
	assert_int_equal(st.st_nlink, 1);
	return st.st_ino;
}

/* The inode of the file that is to be the next copy, once the keeper has made it; 0: there will be
 * none. */
static ino_t spare(void)
{
	struct stat st = {0};
	bool busy = true;

	while (busy) {
		pthread_mutex_lock(&bases->lock);
		busy = bases->spare.from >= 0;
		if (bases->spare.fd >= 0)
			assert_int_equal(fstat(bases->spare.fd, &st), 0);
		pthread_mutex_unlock(&bases->lock);
		sched_yield();
	}
	return st.st_ino;
}

static void the_next_copy_of_a_large_index_is_ready(void **state)
{
	_cleanup_fd_ int base = open_with_index("k", 1), open_one = -1;
	ino_t first, ready = 0;

	(void)state;
	/* Where it was wanted may be gone by then; the number of an open file is no other's. */
	scratch_mkdir(scratch_path("gone"));
	first = copy_index(base, scratch_path("gone/one"), 1 << 20);
	open_one = open(scratch_path("gone/one"), O_RDONLY | O_CLOEXEC);
	assert_true(open_one >= 0);
	assert_int_equal(unlink(scratch_path("gone/one")), 0);
	assert_int_equal(rmdir(scratch_path("gone")), 0);
	while (!ready)
		ready = spare();
	assert_true(ready != first);
	assert_true(copy_index(base, scratch_path("two"), 1 << 20) == ready);
	assert_int_equal(sbx_base_copy_index(bases, base, top, scratch_path("two")), -EEXIST);
}

static void a_copy_of_another_index_is_not_taken(void **state)
{
	_cleanup_fd_ int base = open_with_index("k", 1), other = open_with_index("o", 2);
	ino_t ready = 0;

	(void)state;
	copy_index(base, scratch_path("one"), 1 << 20);
	while (!ready)
		ready = spare();
	assert_true(copy_index(other, scratch_path("two"), 2 << 20) != ready);
}

static void a_small_index_is_just_copied(void **state)
{
	_cleanup_fd_ int base = -1;

	(void)state;
	assert_int_equal(acquire("k", NULL), 0);
	base = open(scratch_path("cache/bases/k"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	copy_index(base, scratch_path("one"), 5);
	scratch_expect(scratch_path("one"), "index");
	assert_int_equal(spare(), 0);
	assert_int_equal(sbx_base_copy_index(bases, base, top, scratch_path("none/one")), -ENOENT);
}

/* --- the index in memory
 * --------------------------------------------------------------------------------- */

/* An index of one file, with its checksum if SUM. */
static void write_index(const char *path, unsigned char content, bool sum)
{
	struct sbx_index_entry entry = {.name = "file", .len = 4};
	const struct sbx_index index = {.at = &entry, .n = 1};
	_cleanup_free_ void *data = NULL;
	_cleanup_fd_ int fd = -1;
	size_t len;

	memset(entry.oid, content, sizeof(entry.oid));
	entry.stat[26] = 0x81;
	entry.stat[27] = 0xa4;
	assert_int_equal(sbx_index_format(&index, sum, &data, &len), 0);
	unlink(path);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	assert_int_equal(write(fd, data, len), len);
}

static struct sbx_base_index *get_index(int base)
{
	struct sbx_base_index *index;
	struct sbx_error err = SBX_ERROR_INIT;

	if (sbx_base_index_get(bases, base, &index, &err))
		fail_msg("%s", err.text);
	return index;
}

static int open_base_dir(const char *key)
{
	assert_int_equal(acquire(key, NULL), 0);
	return open(scratch_path("cache/bases/%s", key), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static void an_index_is_read_once_for_all(void **state)
{
	_cleanup_fd_ int base = open_base_dir("k"), other = open_base_dir("o");
	struct sbx_base_index *one, *two, *three;

	(void)state;
	write_index(scratch_path("cache/bases/k/index"), 1, true);
	write_index(scratch_path("cache/bases/o/index"), 2, true);
	one = get_index(base);
	two = get_index(base);
	assert_ptr_equal(one, two);
	assert_int_equal(one->index.n, 1);
	three = get_index(other);
	assert_int_equal(three->index.at[0].oid[0], 2);
	/* Whoever has it keeps it. */
	assert_int_equal(one->index.at[0].oid[0], 1);
	sbx_base_index_put(one);
	sbx_base_index_put(two);
	sbx_base_index_put(three);
	sbx_base_index_put(NULL);
	write_index(scratch_path("cache/bases/o/index"), 3, true);
	one = get_index(other);
	assert_int_equal(one->index.at[0].oid[0], 3);
	sbx_base_index_put(one);
	assert_int_equal(unlink(scratch_path("cache/bases/o/index")), 0);
	assert_int_equal(sbx_base_index_get(bases, other, &one, NULL), -ENOENT);
}

static bool is_same(struct sbx_base_index *index, int dir)
{
	struct timespec at = {0};
	struct sbx_base_index *again = sbx_base_index_same(index, dir, &at);

	assert_true(!again || (again == index && at.tv_sec));
	sbx_base_index_put(again);
	return again != NULL;
}

static void another_file_with_the_same_checksum_is_the_same(void **state)
{
	_cleanup_fd_ int base = open_base_dir("k"), dir = open(top, O_RDONLY | O_DIRECTORY);
	struct sbx_base_index *index;

	(void)state;
	write_index(scratch_path("cache/bases/k/index"), 1, true);
	index = get_index(base);
	assert_false(is_same(index, dir));
	write_index(scratch_path("index"), 1, true);
	assert_true(is_same(index, dir));
	write_index(scratch_path("index"), 2, true);
	assert_false(is_same(index, dir));
	sbx_base_index_put(index);
	/* One without a checksum tells nothing. */
	write_index(scratch_path("cache/bases/k/index"), 1, false);
	write_index(scratch_path("index"), 2, false);
	index = get_index(base);
	assert_false(is_same(index, dir));
	sbx_base_index_put(index);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(a_base_is_made_once),
	        TEST(threads_that_want_one_base_share_the_work),
	        TEST(what_cannot_be_made_leaves_nothing),
	        TEST(who_waits_for_another_can_give_up),
	        TEST(a_damaged_base_is_made_again),
	        TEST(a_base_that_cannot_be_opened_now_is_not_damaged),
	        TEST(a_base_that_may_not_have_reached_the_disk_is_made_again),
	        TEST(what_is_not_in_use_is_dropped_least_recently_used_first),
	        TEST(a_cache_of_somebody_elses_is_refused),
	        TEST(files_modes_and_links_are_those_of_the_commit),
	        TEST(a_large_file_is_written_by_and_by),
	        TEST(the_index_needs_no_look_into_files),
	        TEST(each_file_is_compared_with_the_index),
	        TEST(a_damaged_base_in_use_is_replaced_and_kept),
	        TEST(what_decides_on_line_ends_is_in_the_key),
	        TEST(attributes_of_the_commit_are_applied),
	        TEST(large_text_is_converted_by_and_by),
	        TEST(a_commit_that_leads_out_is_refused),
	        TEST(whatever_changes_in_a_directory_makes_another_key),
	        TEST(hard_links_are_told),
	        TEST(hard_links_among_objects_of_git_are_none),
	        TEST(a_directory_that_changes_while_it_is_copied_is_not_kept),
	        TEST(the_next_copy_of_a_large_index_is_ready),
	        TEST(a_copy_of_another_index_is_not_taken),
	        TEST(a_small_index_is_just_copied),
	        TEST(an_index_is_read_once_for_all),
	        TEST(another_file_with_the_same_checksum_is_the_same),
	};
	int r;

	repo_setup();
	r = cmocka_run_group_tests_name("base", tests, NULL, NULL);
	repo_teardown();
	return r;
}
