/* Objects out of hostile hands: what is read of them, and what the source gets. */
#include "backends/git/import_objects.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "backends/git/pack.h"
#include "sandboxfs/cleanup.h"
#include "tests/lib/repo.h"
#include "tests/lib/scratch.h"

static git_repository *source, *hostile;
static git_odb *odb; /* of the hostile one */
static struct sbx_git_reader *reader;
static int objects;
static struct sbx_error err;

static git_repository *make(const char *name)
{
	git_repository *repo;

	assert_int_equal(git_repository_init(&repo, scratch_path("%s", name), 0), 0);
	return repo;
}

static int setup(void **state)
{
	(void)state;
	assert_non_null(scratch_make());
	source = make("source");
	hostile = make("hostile");
	assert_int_equal(git_repository_odb(&odb, hostile), 0);
	objects = open(scratch_path("hostile/.git/objects"), O_RDONLY | O_DIRECTORY);
	assert_true(objects >= 0);
	assert_int_equal(sbx_git_reader_open(objects, &sbx_git_bounds, &reader), 0);
	err = SBX_ERROR_INIT;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	sbx_git_reader_close(reader);
	close(objects);
	git_odb_free(odb);
	git_repository_free(hostile);
	git_repository_free(source);
	scratch_remove();
	return 0;
}

static git_oid put(git_object_t type, const char *data, size_t len)
{
	git_oid oid;

	assert_int_equal(git_odb_write(&oid, odb, data, len, type), 0);
	return oid;
}

static git_oid put_text(git_object_t type, const char *text)
{
	return put(type, text, strlen(text));
}

static int get(const git_oid *oid, char **data, size_t *len)
{
	git_object_t type;

	*data = NULL;
	return sbx_git_reader_get(reader, oid, &type, data, len, &err);
}

static void expect_unreadable(const git_oid *oid, int code, const char *words)
{
	size_t len;
	char *data;

	assert_int_equal(get(oid, &data, &len), -code);
	assert_null(data);
	assert_non_null(strstr(err.text, words));
}

static const char *loose_path(const git_oid *oid)
{
	char path[GIT_OID_HEXSZ + 2];

	git_oid_pathfmt(path, oid);
	path[GIT_OID_HEXSZ + 1] = '\0';
	return scratch_path("hostile/.git/objects/%s", path);
}

/* Puts LEN bytes, compressed, where OID would be. */
static void plant(const git_oid *oid, const void *data, size_t len)
{
	unsigned char out[4096];
	uLongf n = sizeof(out);
	char dir[5000];
	int fd;

	assert_int_equal(compress(out, &n, data, len), Z_OK);
	snprintf(dir, sizeof(dir), "%s", loose_path(oid));
	*strrchr(dir, '/') = '\0';
	mkdir(dir, 0755);
	unlink(loose_path(oid));
	fd = open(loose_path(oid), O_WRONLY | O_CREAT | O_EXCL, 0644);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, out, n), n);
	close(fd);
}

static git_oid oid_of(unsigned char byte)
{
	git_oid oid;

	memset(oid.id, byte, sizeof(oid.id));
	return oid;
}

static void a_loose_object_is_read(void **state)
{
	git_oid oid = put_text(GIT_OBJECT_BLOB, "hello"), empty = put_text(GIT_OBJECT_BLOB, "");
	size_t len;
	char *data;

	(void)state;
	assert_int_equal(get(&oid, &data, &len), 0);
	assert_int_equal(len, 5);
	assert_string_equal(data, "hello");
	free(data);
	assert_int_equal(get(&empty, &data, &len), 0);
	assert_int_equal(len, 0);
	free(data);
	oid = oid_of(1);
	expect_unreadable(&oid, ENOENT, "missing");
}

static void an_object_that_is_not_what_its_name_says_is_refused(void **state)
{
	git_oid oid = oid_of(2);

	(void)state;
	plant(&oid, "blob 5\0hello", 12);
	expect_unreadable(&oid, EINVAL, "damaged");
}

static void headers_that_lie_are_refused(void **state)
{
	static const struct {
		const char *data;
		size_t len;
		int code;
	} list[] = {
	        {"blob 4\0hello", 12, EINVAL},
	        {"blob 6\0hello", 12, EINVAL},
	        {"blob 05\0hello", 13, EINVAL},
	        {"blob -5\0hello", 13, EINVAL},
	        {"blob \0hello", 11, EINVAL},
	        {"blob 5hello", 11, EINVAL},
	        {"evil 5\0hello", 12, EINVAL},
	        {"blob 1000000000\0hello", 21, EFBIG},
	        {"blob 9223372036854775807\0h", 26, EFBIG},
	        {"blob 99999999999999999999999\0h", 30, EINVAL},
	        {"", 0, EINVAL},
	};
	git_oid oid = oid_of(3);

	(void)state;
	for (size_t i = 0; i < sizeof(list) / sizeof(*list); i++) {
		plant(&oid, list[i].data, list[i].len);
		expect_unreadable(&oid, list[i].code, "object 0303");
	}
}

static void what_is_no_file_is_refused_at_once(void **state)
{
	git_oid oid = put_text(GIT_OBJECT_BLOB, "hello");
	char path[5000];

	(void)state;
	snprintf(path, sizeof(path), "%s", loose_path(&oid));
	assert_int_equal(rename(path, scratch_path("aside")), 0);
	assert_int_equal(symlink(scratch_path("aside"), path), 0);
	expect_unreadable(&oid, EINVAL, "damaged");
	assert_int_equal(unlink(path), 0);
	assert_int_equal(mkfifo(path, 0644), 0);
	expect_unreadable(&oid, EINVAL, "damaged");
	assert_int_equal(unlink(path), 0);
	*strrchr(path, '/') = '\0';
	assert_int_equal(rmdir(path), 0);
	assert_int_equal(symlink("/", path), 0);
	expect_unreadable(&oid, EINVAL, "damaged");
}

static char text[3][20000];

static void make_packed(git_oid oids[3])
{
	git_packbuilder *pb;

	for (int i = 0; i < 3; i++) {
		for (size_t at = 0; at + 16 < sizeof(text[i]); at += 16)
			snprintf(text[i] + at, 17, "%015zu\n", at + (at == 8000 ? (size_t)i : 0));
		oids[i] = put_text(GIT_OBJECT_BLOB, text[i]);
	}
	assert_int_equal(git_packbuilder_new(&pb, hostile), 0);
	git_packbuilder_set_threads(pb, 1);
	for (int i = 0; i < 3; i++)
		assert_int_equal(git_packbuilder_insert(pb, &oids[i], "file"), 0);
	assert_int_equal(git_packbuilder_write(pb, NULL, 0, NULL, NULL), 0);
	git_packbuilder_free(pb);
	for (int i = 0; i < 3; i++)
		assert_int_equal(unlink(loose_path(&oids[i])), 0);
}

static void packed_objects_are_read_deltas_and_all(void **state)
{
	git_oid oids[3];

	(void)state;
	make_packed(oids);
	for (int i = 0; i < 3; i++) {
		size_t len;
		char *data;

		if (get(&oids[i], &data, &len))
			fail_msg("%s", err.text);
		assert_int_equal(len, strlen(text[i]));
		assert_memory_equal(data, text[i], len);
		free(data);
	}
}

static void find_pack(const char *suffix, char *path, size_t size)
{
	char command[6000];
	FILE *f;

	snprintf(command, sizeof(command), "ls %s/*.%s", scratch_path("hostile/.git/objects/pack"),
	         suffix);
	f = popen(command, "r");
	assert_non_null(f);
	assert_non_null(fgets(path, (int)size, f));
	pclose(f);
	path[strcspn(path, "\n")] = '\0';
	chmod(path, 0644);
}

/* Each byte wrong in turn: what is read is right, or nothing is. */
static void spoil(const char *path, const git_oid oids[3], size_t step)
{
	int fd = open(path, O_RDWR);
	struct stat st;

	assert_true(fd >= 0 && fstat(fd, &st) == 0);
	for (off_t at = 0; at < st.st_size; at += (off_t)step) {
		unsigned char was, bad;

		assert_int_equal(pread(fd, &was, 1, at), 1);
		bad = (unsigned char)(was ^ 0x55);
		assert_int_equal(pwrite(fd, &bad, 1, at), 1);
		sbx_git_reader_close(reader);
		assert_int_equal(sbx_git_reader_open(objects, &sbx_git_bounds, &reader), 0);
		for (int i = 0; i < 3; i++) {
			size_t len;
			char *data;

			if (get(&oids[i], &data, &len) == 0)
				assert_memory_equal(data, text[i], strlen(text[i]));
			free(data);
		}
		assert_int_equal(pwrite(fd, &was, 1, at), 1);
	}
	close(fd);
}

static void a_spoilt_pack_is_not_believed(void **state)
{
	git_oid oids[3];
	char path[5000];

	(void)state;
	make_packed(oids);
	find_pack("pack", path, sizeof(path));
	spoil(path, oids, 1);
	find_pack("idx", path, sizeof(path));
	spoil(path, oids, 1);
}

#define HOLLOW 64

static long peak_kb(void)
{
	struct rusage usage;

	assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
	return usage.ru_maxrss;
}

/* Made in no time, each of them is of 256 MiB. */
static void indexes_of_packs_take_no_memory(void **state)
{
	const off_t size = (off_t)256 << 20;
	git_oid nothing = {{9}};
	long before;

	(void)state;
	for (int i = 0; i < HOLLOW; i++) {
		int fd;

		scratch_write(scratch_path("hostile/.git/objects/pack/pack-%02d.pack", i), "PACK");
		fd = open(scratch_path("hostile/.git/objects/pack/pack-%02d.idx", i),
		          O_WRONLY | O_CREAT, 0600);
		assert_true(fd >= 0);
		assert_int_equal(write(fd, "\377tOc\0\0\0\2", 8), 8);
		assert_int_equal(ftruncate(fd, size), 0);
		close(fd);
	}
	before = peak_kb();
	expect_unreadable(&nothing, ENOENT, "missing");
	assert_true(peak_kb() - before < 16 * 1024);
}

static void deltas_stay_within_their_bounds(void **state)
{
	static const struct {
		const char *delta;
		size_t len;
		int code;
	} list[] = {
	        {"\4\4\x90\4", 4, 0},        /* copy all */
	        {"\4\2\2ab", 5, 0},          /* insert two */
	        {"\5\4\x90\4", 4, EINVAL},   /* of another base */
	        {"\4\4\x90\5", 4, EINVAL},   /* more than the base has */
	        {"\4\4\x91\1\4", 5, EINVAL}, /* from beyond its end */
	        {"\4\2\x90\4", 4, EINVAL},   /* more than it said */
	        {"\4\5\x90\4", 4, EINVAL},   /* less */
	        {"\4\2\3ab", 5, EINVAL},     /* more to insert than there is */
	        {"\4\1\0", 3, EINVAL},       /* reserved */
	        {"\4\x80", 2, EINVAL},       /* no end of the number */
	        {"\4\xff\xff\xff\xff\x7f", 6, EFBIG},
	        {"", 0, EINVAL},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(list) / sizeof(*list); i++) {
		struct sbx_git_budget budget = {.object = 1000, .volume = 1000};
		char *out = NULL;
		size_t len;

		assert_int_equal(
		        sbx_git_delta("base", 4, list[i].delta, list[i].len, &budget, &out, &len),
		        -list[i].code);
		free(out);
	}
}

static void what_is_unpacked_is_bounded_altogether(void **state)
{
	const struct sbx_git_bounds bounds = {.object = 10, .volume = 12};
	git_oid a = put_text(GIT_OBJECT_BLOB, "0123456789"), b = put_text(GIT_OBJECT_BLOB, "abc"),
	        c = put_text(GIT_OBJECT_BLOB, "0123456789a");
	size_t len;
	char *data;

	(void)state;
	sbx_git_reader_close(reader);
	assert_int_equal(sbx_git_reader_open(objects, &bounds, &reader), 0);
	expect_unreadable(&c, EFBIG, "too large");
	assert_int_equal(get(&a, &data, &len), 0);
	free(data);
	expect_unreadable(&b, EFBIG, "too large");
}

/* ---- what is well-formed ---- */

static char tree[4096];
static size_t tree_len;

static void tree_add(const char *mode, const char *name, const git_oid *oid)
{
	const int n = snprintf(tree + tree_len, sizeof(tree) - tree_len, "%s %s", mode, name);

	assert_in_range(n, 1, sizeof(tree) - tree_len - 21);
	tree_len += (size_t)n + 1;
	memcpy(tree + tree_len, oid->id, 20);
	tree_len += 20;
}

static bool tree_ok(const char *first, ...)
{
	git_oid oid = oid_of(9);
	va_list ap;

	tree_len = 0;
	va_start(ap, first);
	for (const char *mode = first; mode; mode = va_arg(ap, const char *))
		tree_add(mode, va_arg(ap, const char *), &oid);
	va_end(ap);
	return sbx_git_object_ok(GIT_OBJECT_TREE, tree, tree_len);
}

static void trees_are_checked(void **state)
{
	(void)state;
	assert_true(tree_ok("100644", "a", "40000", "b", "120000", "c", "160000", "d", NULL));
	assert_true(tree_ok("100644", "a", "100644", "a.b", "40000", "ab", NULL));
	assert_true(tree_ok("100644", "a-b", "40000", "a", "100644", "a0", NULL));
	assert_true(tree_ok(NULL));
	assert_false(tree_ok("100644", ".git", NULL));
	assert_false(tree_ok("40000", ".GIT", NULL));
	assert_false(tree_ok("100644", "..", NULL));
	assert_false(tree_ok("100644", "a/b", NULL));
	assert_false(tree_ok("100644", "", NULL));
	assert_false(tree_ok("100777", "a", NULL));
	assert_false(tree_ok("104755", "a", NULL));
	assert_false(tree_ok("", "a", NULL));
	assert_false(tree_ok("100644", "b", "100644", "a", NULL));
	assert_false(tree_ok("100644", "a", "100644", "a", NULL));
	assert_false(tree_ok("100644", "a", "40000", "a", NULL));
	assert_false(tree_ok("120000", "a", "100644", "a-b", "40000", "a", NULL));
	assert_false(
	        tree_ok("100644", "a", "100644", "a-b", "40000", "a-b!", "40000", "a-b", NULL));
	assert_false(tree_ok("100644", "a", "100644", "a-b", "40000", "a-c", "40000", "a", NULL));
	assert_true(tree_ok("100644", "a-b", "40000", "a-c", "40000", "a", "100644", "a0", NULL));
	tree_ok("100644", "a", NULL);
	assert_false(sbx_git_object_ok(GIT_OBJECT_TREE, tree, tree_len - 1));
	assert_false(sbx_git_object_ok(GIT_OBJECT_TREE, "100644", 6));
}

/* 600 000 directories that a file might stand before: to look from the start for each would take
 * hours. */
static void a_large_tree_is_checked_in_one_pass(void **state)
{
	enum { PAIRS = 600000, SIZE = 80 };
	char *data = calloc(PAIRS, SIZE);
	size_t len = 0;

	(void)state;
	assert_non_null(data);
	for (int i = 0; i < PAIRS; i++) {
		len += (size_t)snprintf(data + len, SIZE, "100644 %06d-", i) + 21;
		len += (size_t)snprintf(data + len, SIZE, "40000 %06d", i) + 21;
	}
	assert_true(sbx_git_object_ok(GIT_OBJECT_TREE, data, len));
	free(data);
}

#define ID     "0123456789012345678901234567890123456789"
#define PERSON "A <a@b> 1 +0000\n"

static bool commit_ok(const char *text_)
{
	return sbx_git_object_ok(GIT_OBJECT_COMMIT, text_, strlen(text_));
}

static void commits_are_checked(void **state)
{
	static const char nul[] = "tree " ID "\nauthor " PERSON "committer " PERSON "x y\0z\n\nm";

	(void)state;
	assert_true(commit_ok("tree " ID "\nauthor " PERSON "committer " PERSON "\nmessage"));
	assert_true(commit_ok("tree " ID "\nparent " ID "\nparent " ID "\nauthor " PERSON
	                      "committer " PERSON "gpgsig x\n y\n\nmessage"));
	assert_false(commit_ok("author " PERSON "committer " PERSON "\n"));
	assert_false(commit_ok("tree 0123\nauthor " PERSON "committer " PERSON "\n"));
	assert_false(commit_ok("tree " ID "\nauthor x\ncommitter " PERSON "\n"));
	assert_false(commit_ok("tree " ID "\nauthor " PERSON "\n"));
	assert_false(commit_ok("tree " ID "\nauthor A <a> now +0000\ncommitter " PERSON "\n"));
	assert_false(commit_ok(""));
	assert_false(sbx_git_object_ok(GIT_OBJECT_COMMIT, nul, sizeof(nul) - 1));
	assert_false(sbx_git_object_ok(GIT_OBJECT_TAG, "x", 1));
	assert_true(sbx_git_object_ok(GIT_OBJECT_BLOB, "", 0));
}

/* ---- bringing over ---- */

static bool in_source(const git_oid *oid)
{
	git_odb *of_source;
	bool there;

	assert_int_equal(git_repository_odb(&of_source, source), 0);
	there = git_odb_exists(of_source, oid);
	git_odb_free(of_source);
	return there;
}

static git_oid put_commit(const git_oid *of_tree, const git_oid *parent)
{
	char hex[2][GIT_OID_HEXSZ + 1], body[500];

	snprintf(body, sizeof(body), "tree %s\n%s%s%sauthor " PERSON "committer " PERSON "\nm\n",
	         git_oid_tostr(hex[0], sizeof(hex[0]), of_tree), parent ? "parent " : "",
	         parent ? git_oid_tostr(hex[1], sizeof(hex[1]), parent) : "", parent ? "\n" : "");
	return put_text(GIT_OBJECT_COMMIT, body);
}

static int export(const git_oid *oid, git_object_t type)
{
	struct sbx_git_taken taken = {.most = sbx_git_bounds.taken};

	return sbx_git_export(source, reader, oid, type, &taken, &err);
}

/* What a commit leads to comes first: what was written before the time was up stays. */
static void what_takes_too_long_goes_on_with_the_next_try(void **state)
{
	_Atomic uint64_t until = 1;
	struct sbx_git_taken taken = {.most = sbx_git_bounds.taken, .until = &until};
	const git_oid of_tree = put_text(GIT_OBJECT_TREE, "");
	const git_oid commit = put_commit(&of_tree, NULL);

	(void)state;
	assert_int_equal(sbx_git_export(source, reader, &commit, GIT_OBJECT_COMMIT, &taken, &err),
	                 -ETIMEDOUT);
	assert_false(in_source(&commit));
	atomic_store(&until, UINT64_MAX);
	assert_int_equal(sbx_git_export(source, reader, &commit, GIT_OBJECT_COMMIT, &taken, &err),
	                 0);
	assert_true(in_source(&commit));
	sbx_git_taken_release(&taken);
}

static void what_is_taken_over_is_bounded_for_ever(void **state)
{
	struct sbx_git_taken taken = {.most = 16};
	git_oid first = put_text(GIT_OBJECT_BLOB, "ten bytes."),
	        second = put_text(GIT_OBJECT_BLOB, "ten more ."),
	        small = put_text(GIT_OBJECT_BLOB, "six by");

	(void)state;
	assert_int_equal(sbx_git_export(source, reader, &first, GIT_OBJECT_BLOB, &taken, &err), 0);
	assert_int_equal(sbx_git_export(source, reader, &second, GIT_OBJECT_BLOB, &taken, &err),
	                 -E2BIG);
	assert_non_null(strstr(err.text, "stays inside"));
	assert_false(in_source(&second));
	assert_int_equal(sbx_git_export(source, reader, &small, GIT_OBJECT_BLOB, &taken, &err), 0);
	assert_int_equal(taken.bytes, 16);
	assert_int_equal(sbx_git_export(source, reader, &second, GIT_OBJECT_BLOB, &taken, &err),
	                 -E2BIG);
	/* What is there already costs nothing. */
	assert_int_equal(sbx_git_export(source, reader, &first, GIT_OBJECT_BLOB, &taken, &err), 0);
}

#define LARGE ((size_t)24 << 20)

/* A blob that no other resembles. */
static git_oid put_large(unsigned origin)
{
	char *data = malloc(LARGE);
	git_oid oid;

	assert_non_null(data);
	for (size_t i = 0; i < LARGE; i++) {
		origin = origin * 1103515245 + 12345;
		data[i] = (char)(origin >> 24 & 0x3f);
	}
	oid = put(GIT_OBJECT_BLOB, data, LARGE);
	free(data);
	return oid;
}

static void pack_alone(const git_oid *oid)
{
	git_packbuilder *pb;

	assert_int_equal(git_packbuilder_new(&pb, hostile), 0);
	assert_int_equal(git_packbuilder_insert(pb, oid, "file"), 0);
	assert_int_equal(git_packbuilder_write(pb, NULL, 0, NULL, NULL), 0);
	git_packbuilder_free(pb);
	assert_int_equal(unlink(loose_path(oid)), 0);
}

static long high_water_kb(void)
{
	FILE *f = fopen("/proc/self/status", "re");
	char line[256];
	long kb = -1;

	assert_non_null(f);
	while (kb < 0 && fgets(line, sizeof(line), f))
		if (sscanf(line, "VmHWM: %ld", &kb) != 1)
			kb = -1;
	fclose(f);
	return kb;
}

static void large_blobs_are_not_held_in_memory(void **state)
{
	const git_oid loose = put_large(1), packed = put_large(2), other = oid_of(7);
	struct sbx_git_taken taken = {.most = 2 * LARGE};
	char path[5000];
	long before;

	(void)state;
	pack_alone(&packed);
	plant(&other, "blob 1", 7);
	snprintf(path, sizeof(path), "%s", loose_path(&other));
	malloc_trim(0);
	scratch_write("/proc/self/clear_refs", "5");
	before = high_water_kb();
	for (int i = 0; i < 2; i++)
		assert_int_equal(sbx_git_export(source, reader, i ? &packed : &loose,
		                                GIT_OBJECT_BLOB, &taken, &err),
		                 0);
	assert_true(in_source(&loose) && in_source(&packed));
	assert_in_range(high_water_kb() - before, 0, 8 << 10);
	assert_int_equal(taken.bytes, 2 * LARGE);
	/* By another's name, with no room left, and cut short. */
	assert_int_equal(rename(loose_path(&loose), path), 0);
	assert_int_equal(sbx_git_export(source, reader, &other, GIT_OBJECT_BLOB, &taken, &err),
	                 -E2BIG);
	assert_int_equal(export(&other, GIT_OBJECT_BLOB), -EINVAL);
	assert_false(in_source(&other));
	assert_int_equal(chmod(path, 0600), 0);
	assert_int_equal(truncate(path, 1 << 20), 0);
	assert_int_equal(export(&other, GIT_OBJECT_BLOB), -EINVAL);
	assert_non_null(strstr(err.text, "damaged"));
	sbx_git_taken_release(&taken);
}

/* Trees wait in memory for what they name. */
static void what_waits_for_others_is_bounded(void **state)
{
	const size_t entry = strlen("100644 f0000000") + 1 + GIT_OID_RAWSZ,
	             n = sbx_git_bounds.held / entry + 1;
	_cleanup_free_ char *large = malloc(n * entry);
	git_oid blob = put_text(GIT_OBJECT_BLOB, "content"), top;

	(void)state;
	assert_non_null(large);
	for (size_t i = 0; i < n; i++) {
		char *at = large + i * entry;

		snprintf(at, entry, "100644 f%07zu", i);
		memcpy(at + entry - GIT_OID_RAWSZ, blob.id, GIT_OID_RAWSZ);
	}
	top = put(GIT_OBJECT_TREE, large, n * entry);
	assert_int_equal(export(&top, GIT_OBJECT_TREE), -E2BIG);
	assert_false(in_source(&top));
}

static void a_commit_comes_with_all_it_names(void **state)
{
	git_oid blob = put_text(GIT_OBJECT_BLOB, "content"), sub, top, first, second;

	(void)state;
	tree_len = 0;
	tree_add("100644", "file", &blob);
	sub = put(GIT_OBJECT_TREE, tree, tree_len);
	tree_len = 0;
	tree_add("160000", "link", &(git_oid){{7}});
	tree_add("40000", "sub", &sub);
	top = put(GIT_OBJECT_TREE, tree, tree_len);
	first = put_commit(&top, NULL);
	second = put_commit(&top, &first);
	if (export(&second, GIT_OBJECT_COMMIT))
		fail_msg("%s", err.text);
	assert_true(in_source(&blob) && in_source(&sub) && in_source(&top) && in_source(&first) &&
	            in_source(&second));
}

static void nothing_incomplete_is_written(void **state)
{
	git_oid blob = put_text(GIT_OBJECT_BLOB, "content"), missing = oid_of(5), top, commit;

	(void)state;
	tree_len = 0;
	tree_add("100644", "a", &blob);
	tree_add("100644", "b", &missing);
	top = put(GIT_OBJECT_TREE, tree, tree_len);
	commit = put_commit(&top, NULL);
	assert_int_equal(export(&commit, GIT_OBJECT_COMMIT), -ENOENT);
	assert_false(in_source(&top) || in_source(&commit));
}

static void what_is_not_well_formed_is_refused(void **state)
{
	git_oid blob = put_text(GIT_OBJECT_BLOB, "x"), top, commit;

	(void)state;
	tree_len = 0;
	tree_add("100755", ".git", &blob);
	top = put(GIT_OBJECT_TREE, tree, tree_len);
	commit = put_commit(&top, NULL);
	assert_int_equal(export(&commit, GIT_OBJECT_COMMIT), -EINVAL);
	assert_non_null(strstr(err.text, "not well-formed"));
	assert_false(in_source(&commit));
	/* A blob where a tree is named. */
	commit = put_commit(&blob, NULL);
	assert_int_equal(export(&commit, GIT_OBJECT_COMMIT), -EINVAL);
	assert_int_equal(export(&blob, GIT_OBJECT_COMMIT), -EINVAL);
}

/* The source has all that is named, but as something else. */
static void what_the_source_has_is_taken_for_what_it_is(void **state)
{
	git_oid blob = put_text(GIT_OBJECT_BLOB, "x"), top, good, commit;

	(void)state;
	tree_len = 0;
	tree_add("100644", "a", &blob);
	top = put(GIT_OBJECT_TREE, tree, tree_len);
	good = put_commit(&top, NULL);
	assert_int_equal(export(&good, GIT_OBJECT_COMMIT), 0);
	commit = put_commit(&blob, NULL);
	assert_int_equal(export(&commit, GIT_OBJECT_COMMIT), -EINVAL);
	assert_false(in_source(&commit));
	commit = put_commit(&top, &top);
	assert_int_equal(export(&commit, GIT_OBJECT_COMMIT), -EINVAL);
	assert_int_equal(export(&blob, GIT_OBJECT_COMMIT), -EINVAL);
	tree_len = 0;
	tree_add("100644", "a", &good);
	top = put(GIT_OBJECT_TREE, tree, tree_len);
	assert_int_equal(export(&top, GIT_OBJECT_TREE), -EINVAL);
}

static void what_is_empty_need_not_be_there(void **state)
{
	git_oid blob, top, commit;

	(void)state;
	git_oid_fromstr(&blob, "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
	git_oid_fromstr(&top, "4b825dc642cb6eb9a060e54bf8d69288fbee4904");
	commit = put_commit(&blob, NULL);
	assert_int_equal(export(&commit, GIT_OBJECT_COMMIT), -ENOENT);
	assert_int_equal(export(&blob, GIT_OBJECT_BLOB), 0);
	commit = put_commit(&top, NULL);
	assert_int_equal(export(&commit, GIT_OBJECT_COMMIT), 0);
	assert_true(in_source(&blob) && in_source(&top) && in_source(&commit));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        CASE(a_loose_object_is_read),
	        CASE(an_object_that_is_not_what_its_name_says_is_refused),
	        CASE(headers_that_lie_are_refused),
	        CASE(what_is_no_file_is_refused_at_once),
	        CASE(packed_objects_are_read_deltas_and_all),
	        CASE(a_spoilt_pack_is_not_believed),
	        CASE(indexes_of_packs_take_no_memory),
	        CASE(deltas_stay_within_their_bounds),
	        CASE(what_is_unpacked_is_bounded_altogether),
	        CASE(trees_are_checked),
	        CASE(a_large_tree_is_checked_in_one_pass),
	        CASE(commits_are_checked),
	        CASE(what_takes_too_long_goes_on_with_the_next_try),
	        CASE(what_is_taken_over_is_bounded_for_ever),
	        CASE(large_blobs_are_not_held_in_memory),
	        CASE(what_waits_for_others_is_bounded),
	        CASE(a_commit_comes_with_all_it_names),
	        CASE(nothing_incomplete_is_written),
	        CASE(what_is_not_well_formed_is_refused),
	        CASE(what_the_source_has_is_taken_for_what_it_is),
	        CASE(what_is_empty_need_not_be_there),
	};
	int r;

	repo_setup();
	r = cmocka_run_group_tests(tests, NULL, NULL);
	repo_teardown();
	return r;
}
