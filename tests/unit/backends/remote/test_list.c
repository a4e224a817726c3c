/* The part list.sh of the runner, under several shells, with the tools of GNU and of busybox. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/remote/manifest.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/tree.h"
#include "tests/lib/remote_stub.h"
#include "tests/lib/scratch.h"
#include "tests/lib/tmp.h"

static struct remote_link machine;
static struct remote_reply reply;
static char tools[300];

static const struct {
	const char *shell, *option;
	bool busybox; /* its tools */
} shells[] = {
        {"dash", NULL, false},
        {"bash", "--posix", false},
        {"busybox", "sh", false},
        {"busybox", "sh", true},
};

static void run(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void run(const char *fmt, ...)
{
	char *command, *line;
	va_list ap;

	va_start(ap, fmt);
	assert_true(vasprintf(&command, fmt, ap) >= 0);
	va_end(ap);
	assert_true(asprintf(&line, "cd '%s' && { %s\n}", machine.tree, command) >= 0);
	if (system(line) != 0)
		fail_msg("%s", line);
	free(line);
	free(command);
}

/* What the runner answers to BODY is in reply. */
static void ask(const char *body)
{
	char *text = remote_stub_run(&machine, body);
	struct sbx_error err = SBX_ERROR_INIT;

	remote_reply_release(&reply);
	if (remote_reply_read(text, strlen(text), &reply, &err))
		fail_msg("%s: %s", err.text, text);
	free(text);
}

static const struct remote_frame *frame_of(enum remote_frame_kind kind, const char *word)
{
	size_t at = 0;

	return remote_reply_next(&reply, &at, kind, word);
}

/* The manifest that is in the reply, all its frames in one. */
static struct remote_manifest listing(void)
{
	const struct remote_frame *f;
	struct remote_manifest m;
	char *bytes = NULL;
	size_t len = 0, at = 0;

	while ((f = remote_reply_next(&reply, &at, REMOTE_MANIFEST, NULL))) {
		bytes = realloc(bytes, len + f->len + 1);
		memcpy(bytes + len, f->bytes, f->len);
		len += f->len;
	}
	assert_non_null(bytes);
	assert_int_equal(remote_manifest_read(bytes, len, 0, &m, NULL), 0);
	free(bytes);
	return m;
}

/* What was listed, one a line: its kind, "+" behind a directory that is complete, and the path. */
static const char *listed(void)
{
	static char ret[65536];
	struct remote_manifest m = listing();
	size_t n = 0;

	ret[0] = '\0';
	for (size_t i = 0; i < m.n; i++) {
		const struct remote_listed *l = &m.items[i];

		n += (size_t)snprintf(ret + n, sizeof(ret) - n, "%c%s%s%s%s\n",
		                      !l->mode            ? '?'
		                      : S_ISREG(l->mode)  ? 'f'
		                      : S_ISDIR(l->mode)  ? 'd'
		                      : S_ISLNK(l->mode)  ? 'l'
		                      : S_ISFIFO(l->mode) ? 'p'
		                                          : 's',
		                      l->complete ? "+" : " ", l->path[0] ? l->path : ".",
		                      S_ISLNK(l->mode) ? ">" : "",
		                      S_ISLNK(l->mode) ? l->target : "");
		assert_true(n < sizeof(ret));
	}
	remote_manifest_release(&m);
	return ret;
}

/* As the machine has it, whatever told it. */
static void expect_item(const char *path)
{
	struct remote_manifest m = listing();
	const struct remote_listed *l = remote_manifest_find(&m, path);
	char full[600];
	struct stat st;

	snprintf(full, sizeof(full), "%s/%s", machine.tree, path);
	assert_int_equal(lstat(full, &st), 0);
	assert_non_null(l);
	assert_int_equal(l->mode, st.st_mode & (S_IFMT | 0777));
	if (!S_ISDIR(st.st_mode))
		assert_int_equal(l->size, st.st_size);
	assert_true(l->mtime_ns == st.st_mtim.tv_sec * INT64_C(1000000000) + st.st_mtim.tv_nsec);
	assert_int_equal(l->ino, st.st_ino);
	assert_int_equal(l->nlink, st.st_nlink);
	remote_manifest_release(&m);
}

static void each_shell(void (*test)(void))
{
	for (size_t i = 0; i < SBX_ARRAY_SIZE(shells); i++) {
		scratch_make();
		remote_stub_init(&machine, NULL, NULL, scratch_path("tree"), scratch_path("room"));
		machine.shell = shells[i].shell;
		machine.option = shells[i].option;
		machine.path = shells[i].busybox ? tools : NULL;
		print_message("# %s %s%s\n", shells[i].shell,
		              shells[i].option ? shells[i].option : "",
		              shells[i].busybox ? " with tools of busybox" : "");
		test();
		remote_reply_release(&reply);
		scratch_remove();
	}
}

static void list_all_kinds(void)
{
	run("mkdir -p d/e .git/x d/.git; echo f >d/f; chmod 4751 d/f; ln d/f d/e/hard; mkfifo p; "
	    "ln -s 'to/some where' l; ln -s \"$(printf 'a\\nb\\nx')\" d/e/l2; : >d/empty; "
	    "touch -d @1234567.000000001 d/f; touch -d @12 d/empty");
	ask("r_all 100 s1\n");
	assert_string_equal(listed(), "d+.\nd+d\nl l>to/some where\np p\nd+d/e\nf d/empty\nf d/f\n"
	                              "f d/e/hard\nl d/e/l2>a\nb\nx\n");
	assert_string_equal(reply.frames[0].word, "s1");
	assert_true(reply.frames[0].a > UINT64_C(1700000000000000000));
	expect_item("d/f");
	expect_item("d/e");
	expect_item("p");
	expect_item("l");
	expect_item("d/empty");
}

static void test_all_kinds(void **state)
{
	(void)state;
	each_shell(list_all_kinds);
}

static void list_any_names(void)
{
	run("printf 1 >'a b'; printf 2 >\"$(printf 'n\\nl')\"; printf 3 >./-x; "
	    "mkdir \"$(printf 'd\\nd')\" '(' '!' -- -name; printf 4 >\"$(printf 'd\\nd')/it's\"; "
	    "printf 5 >\"$(printf '\\377\\376')\"; printf 6 >'$(x)`y`'; printf 7 >'a\\nb'; "
	    "printf 8 >' '; printf 9 >\"$(printf 'tail\\n.')\"; printf 0 >'%%s'; : >'*'; : "
	    ">-name/x");
	ask("r_list 100 . '-name' '(' '!' 'd\nd'\n");
	assert_string_equal(listed(),
	                    "d+.\nf  \nd+!\nf $(x)`y`\nf %s\nd+(\nf *\nd+-name\nf -x\nf a b\n"
	                    "f a\\nb\nd+d\nd\nf n\nl\nf tail\n.\nf \377\376\nf -name/x\n"
	                    "f d\nd/it's\n");
	expect_item("n\nl");
	expect_item("-x");
	expect_item("a b");
	expect_item("\377\376");
	ask("r_read w 'd\nd/it'\\''s' 0 100\n");
	assert_int_equal(frame_of(REMOTE_DATA, "w")->len, 1);
	assert_string_equal(frame_of(REMOTE_DATA, "w")->bytes, "4");
	ask("r_gather 100 100 -x 'n\nl' '*'\n");
	assert_string_equal(listed(), "f *\nf -x\nf n\nl\n");
	assert_non_null(frame_of(REMOTE_TAR, NULL));
}

static void test_any_names(void **state)
{
	(void)state;
	each_shell(list_any_names);
}

static void list_changes(void)
{
	run("mkdir -p a/b/c kept/x quiet; echo 1 >a/f; echo 2 >a/b/g; echo 3 >kept/k; echo 4 "
	    ">quiet/q");
	/* A stamp is set back one second, and up to one more. */
	sleep(machine.path ? 0 : 2);
	ask("r_all 100 s1\n");
	ask("r_changes s1 s2 . 0/a 1/b 2/c 0/kept 1/x 0/quiet\n");
	if (!machine.path)
		assert_string_equal(listed(), "");
	run("echo changed >kept/k; mkdir -p a/new/deep; echo n >a/new/deep/n; rm a/b/g; rm -r "
	    "quiet");
	ask("r_changes s2 s3 . 0/a 1/b 2/c 0/kept 1/x 0/quiet\n");
	/* Busybox tells more, as it looks at minutes. */
	if (!machine.path)
		assert_string_equal(listed(), "d+.\nd+a\nd kept\n? quiet\nd+a/b\nf a/f\nd+a/new\n"
		                              "d a/b/c\nd+a/new/deep\nf a/new/deep/n\nf kept/k\n");
	else
		assert_string_equal(listed(), "d+.\nd+a\nd+kept\n? quiet\nd+a/b\nf a/f\nd+a/new\n"
		                              "d+a/b/c\nd+a/new/deep\nf a/new/deep/n\nf kept/k\n"
		                              "d+kept/x\n");
	ask("r_changes s2 s4\n");
	if (!machine.path)
		assert_string_equal(listed(), "d+.\nd+a\nd kept\nd+a/b\nf a/f\nd+a/new\nd a/b/c\n"
		                              "d+a/new/deep\nf a/new/deep/n\nf kept/k\n");
	/* Since nothing that is known: all names that are asked for. */
	ask("r_changes '' s5 0/kept\n");
	assert_string_equal(listed(), "d+kept\nf kept/k\nd kept/x\n");
	ask("r_changes none s6 0/kept 0/a/b\n");
	assert_string_equal(listed(), "d+kept\nd+a/b\nd a/b/c\nf kept/k\nd kept/x\n");
}

/* As if the clock had been set back by an hour behind stamp s1. */
static void list_changes_of_an_earlier_time(void)
{
	run("mkdir d; echo 1 >d/f; echo 2 >g");
	ask("r_changes '' s1 . 0/d\n");
	run("read -r t <../room/s.s1; t=${t%%?????????}; echo $((t + 3600))000000000 "
	    ">../room/s.s1; "
	    "touch -d @$((t + 3599)) ../room/s.s1; echo changed >d/f");
	ask("r_changes s1 s2 . 0/d\n");
	assert_string_equal(listed(), "d+.\nd+d\nf g\nf d/f\n");
	ask("r_changes s1 s3\n");
	assert_string_equal(listed(), "d+.\nd+d\nf g\nf d/f\n");
}

static void test_clock_that_is_set_back(void **state)
{
	(void)state;
	each_shell(list_changes_of_an_earlier_time);
}

static void test_changes(void **state)
{
	(void)state;
	each_shell(list_changes);
}

static void list_repeated(void)
{
	uint64_t begun;

	ask("r_changes '' s1 .\n");
	begun = reply.frames[0].a;
	usleep(20000);
	ask("r_changes '' s1 .\n");
	assert_true(reply.frames[0].a == begun);
	run("touch -d @1000 ../room/s.s1");
	ask("r_changes '' s2 .\n");
	assert_false(scratch_exists(scratch_path("room/s.s1")));
	assert_true(scratch_exists(scratch_path("room/s.s2")));
	run("touch -d @1000 ../room/s.s2");
	ask("r_changes s2 s3 .\n");
	assert_true(scratch_exists(scratch_path("room/s.s2")));
}

static void test_repeated(void **state)
{
	(void)state;
	each_shell(list_repeated);
}

static void list_no_link_is_followed(void)
{
	run("mkdir -p ../out/d d; echo secret >../out/d/f; ln -s ../out out; ln -s ../../out/d "
	    "d/d; "
	    "ln -s ../../out/d/f d/f; ln -s . self");
	ask("r_list 100 out out/d d/d self/d\nr_read 0 out/d/f 0 9\nr_read 1 d/f 0 9\n"
	    "r_gather 9 9 out/d/f d/f\nr_changes '' s 0/out 1/d\n");
	assert_string_equal(listed(), "l out>../out\nl d/d>../../out/d\nl d/f>../../out/d/f\n"
	                              "? out/d\n? out/d/f\n? self/d\n");
	assert_null(frame_of(REMOTE_DATA, NULL));
	if (frame_of(REMOTE_TAR, NULL))
		assert_null(memmem(frame_of(REMOTE_TAR, NULL)->bytes,
		                   frame_of(REMOTE_TAR, NULL)->len, "secret", 6));
}

static void test_no_link_is_followed(void **state)
{
	(void)state;
	each_shell(list_no_link_is_followed);
}

static void list_upper_levels(void)
{
	run("mkdir -p a/b/c d; for i in 1 2 3 4 5 6; do : >a/b/$i; done; : >f; mkdir -p "
	    ".git/1/2/3");
	ask("r_all 20\n");
	assert_string_equal(listed(),
	                    "d+.\nd+a\nd+d\nf f\nd+a/b\nf a/b/1\nf a/b/2\nf a/b/3\nf a/b/4\n"
	                    "f a/b/5\nf a/b/6\nd+a/b/c\n");
	ask("r_all 8\n");
	assert_string_equal(listed(), "d+.\nd+a\nd+d\nf f\nd a/b\n");
	ask("r_all 4\n");
	assert_string_equal(listed(), "d+.\nd a\nd d\nf f\n");
	/* There is always the uppermost. */
	ask("r_all 1\n");
	assert_string_equal(listed(), "d+.\nd a\nd d\nf f\n");
	ask("r_list 5 a/b d\n");
	assert_string_equal(listed(), "");
	assert_int_equal(reply.frames[0].len, 3);
	ask("r_list 5 a/b\n");
	assert_int_equal(strlen(listed()), strlen("d+a/b\nd+a/b/c\n") + 6 * 8);
	ask("r_list 5 gone f\n");
	assert_string_equal(listed(), "f f\n? gone\n");
}

static void test_upper_levels(void **state)
{
	(void)state;
	each_shell(list_upper_levels);
}

static void list_bytes(void)
{
	const struct remote_frame *f;

	run("head -c 3000000 /dev/urandom >big; : >empty; printf '\\000\\001x' >nul");
	ask("r_read 0 big 1048576 10\nr_read 1 big 2097152 1048576\nr_read 2 nul 0 3\n"
	    "r_read 3 none 0 1\nr_read 4 big 0 3000000\n");
	f = frame_of(REMOTE_DATA, "0");
	assert_true(f->len == 10 && f->a == 1048576);
	assert_memory_equal(f->bytes, frame_of(REMOTE_DATA, "4")->bytes + 1048576, 10);
	assert_int_equal(frame_of(REMOTE_DATA, "1")->len, 3000000 - 2097152);
	assert_memory_equal(frame_of(REMOTE_DATA, "2")->bytes, "\0\1x", 3);
	assert_null(frame_of(REMOTE_DATA, "3"));
	assert_string_equal(listed(), "f big\n? none\nf nul\n");
}

static void test_bytes(void **state)
{
	(void)state;
	each_shell(list_bytes);
}

static void list_gathered(void)
{
	char few[300];

	run("mkdir d; echo one >d/1; echo two >2; head -c 5000 /dev/zero >big; : >.git");
	ask("r_gather 100 10000\n");
	assert_non_null(memmem(reply.frames[0].bytes, reply.frames[0].len, "one\n", 4));
	assert_non_null(memmem(reply.frames[0].bytes, reply.frames[0].len, "two\n", 4));
	assert_true(reply.frames[0].len < 5000 * 3);
	assert_null(memmem(reply.frames[0].bytes, reply.frames[0].len, ".git", 4));
	ask("r_gather 100 1000\n");
	assert_int_equal(reply.n, 0);
	ask("r_gather 100 10000 d/1 big none 2\n");
	assert_string_equal(listed(), "f 2\nf d/1\n");
	if (!machine.path)
		return;
	run("cp -R '%s' ../few; rm ../few/tar ../few/gzip", tools);
	snprintf(few, sizeof(few), "%s", scratch_path("few"));
	machine.path = few;
	ask("r_gather 100 10000 d/1 big none 2\n");
	assert_string_equal(listed(), "f 2\nf d/1\n");
	assert_string_equal(frame_of(REMOTE_DATA, "0")->bytes, "one\n");
	assert_string_equal(frame_of(REMOTE_DATA, "3")->bytes, "two\n");
	ask("r_gather 100 10000\n");
	assert_int_equal(reply.n, 0);
	machine.path = tools;
}

static void test_gathered(void **state)
{
	(void)state;
	each_shell(list_gathered);
}

static void list_no_tree(void)
{
	run("rmdir '%s'", machine.tree);
	ask("r_all 10 s\n");
	assert_non_null(frame_of(REMOTE_FAILED, NULL));
	assert_int_equal(frame_of(REMOTE_FAILED, NULL)->a, ESTALE);
	assert_null(frame_of(REMOTE_MANIFEST, NULL));
}

static void test_no_tree(void **state)
{
	(void)state;
	each_shell(list_no_tree);
}

/* A directory of links to busybox, which are its tools. */
static int make_tools(void **state)
{
	char *line;
	int r;

	(void)state;
	if (!tmp_make(tools, sizeof(tools), "tools") ||
	    asprintf(&line,
	             "cd '%s' && busybox --install -s . && ln -s \"$(command -v dash)\" . && "
	             "ln -sf \"$(command -v busybox)\" busybox",
	             tools) < 0)
		return -1;
	r = system(line);
	free(line);
	return r;
}

static int remove_tools(void **state)
{
	struct sbx_error err;

	(void)state;
	return sbx_tree_remove(AT_FDCWD, tools, &err);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_all_kinds),
	        cmocka_unit_test(test_any_names),
	        cmocka_unit_test(test_clock_that_is_set_back),
	        cmocka_unit_test(test_changes),
	        cmocka_unit_test(test_repeated),
	        cmocka_unit_test(test_upper_levels),
	        cmocka_unit_test(test_no_link_is_followed),
	        cmocka_unit_test(test_bytes),
	        cmocka_unit_test(test_gathered),
	        cmocka_unit_test(test_no_tree),
	};

	return cmocka_run_group_tests(tests, make_tools, remove_tools);
}
