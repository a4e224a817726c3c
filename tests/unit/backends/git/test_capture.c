/*
 * A capture records what git itself would add, and nothing else, whatever happens to the tree
 * meanwhile.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <git2.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "backends/git/capture_impl.h"
#include "backends/git/git_impl.h"
#include "backends/git/index_tree.h"
#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"
#include "tests/lib/repo.h"
#include "tests/lib/scratch.h"

/* A repository `repo` whose working tree is `tree`, apart from it so that no .git is in the way. */
static int setup(void **state)
{
	(void)state;
	scratch_make();
	scratch_mkdir(scratch_path("tree"));
	scratch_mkdir(scratch_path("home"));
	setenv("TOP", scratch_path("."), 1);
	setenv("HOME", scratch_path("home"), 1);
	setenv("GIT_CONFIG_NOSYSTEM", "1", 1);
	setenv("GIT_AUTHOR_NAME", "a", 1);
	setenv("GIT_AUTHOR_EMAIL", "a@b", 1);
	setenv("GIT_COMMITTER_NAME", "a", 1);
	setenv("GIT_COMMITTER_EMAIL", "a@b", 1);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	scratch_remove();
	return 0;
}

/* SCRIPT with g for git on tree and repo, in the tree; what it prints without the last newline. */
static char *ask(const char *script)
{
	static char outs[4][4096];
	static unsigned turn;
	char *out = outs[turn++ % 4];
	_cleanup_free_ char *text = sbx_format(
	        "set -e; g() { git --git-dir=\"$TOP/repo\" --work-tree=\"$TOP/tree\" \"$@\"; }\n"
	        "cd \"$TOP/tree\"\n%s",
	        script);
	FILE *f = popen(text, "r");
	size_t n;

	assert_non_null(f);
	n = fread(out, 1, sizeof(outs[0]) - 1, f);
	out[n] = '\0';
	if (pclose(f) != 0)
		fail_msg("failed: %s", script);
	out[strcspn(out, "\n")] = '\0';
	return out;
}

#define SOME_FILES                                                                                 \
	"git init -q --bare $TOP/repo; g config core.bare false; "                                 \
	"mkdir -p a/b/c d e empty; echo 1 >a/1; echo 2 >a/b/2; echo 3 >a/b/c/3; echo x >a-b; "     \
	"echo y >a.b; echo run >d/run; chmod +x d/run; ln -s ../a/1 e/link; ln -s /etc/passwd "    \
	"e/out; "                                                                                  \
	"ln -s a/b dirlink; printf 'a\\0b' >bin; : >none; echo n >\"$(printf 'new\\nline')\"; "    \
	"echo u >'\303\274ber'; echo d >-dash; echo s >' space '; echo q >'q\"uo\\te'; "           \
	"printf '*.o\\nbuild/\\n!keep.o\\n/top\\n' >.gitignore; echo o >x.o; echo k >keep.o; "     \
	"mkdir build; echo b >build/b; echo t >top; mkdir a/top; echo t >a/top/t; "                \
	"echo '*.log' >a/.gitignore; echo l >a/z.log; echo l >d/z.log; "

/* ---- capturing ---- */

static git_repository *repo;
static struct sbx_index lower, known;
static git_oid lower_tree;
static atomic_bool cancelled;

static void open_repo(void)
{
	assert_int_equal(git_repository_open_bare(&repo, scratch_path("repo")), 0);
}

static void close_repo(void)
{
	git_repository_free(repo);
	repo = NULL;
	sbx_index_release(&lower);
	sbx_index_release(&known);
}

static struct timespec read_index(const char *path, struct sbx_index *ret)
{
	struct sbx_error err = SBX_ERROR_INIT;
	struct stat st;
	FILE *f = fopen(path, "re");
	char *data;

	sbx_index_release(ret);
	if (!f)
		return (struct timespec){0};
	assert_int_equal(fstat(fileno(f), &st), 0);
	data = malloc((size_t)st.st_size);
	assert_int_equal(fread(data, 1, (size_t)st.st_size, f), st.st_size);
	fclose(f);
	if (sbx_index_parse(data, (size_t)st.st_size, ret, &err))
		fail_msg("%s", err.text);
	free(data);
	return st.st_mtim;
}

/* The index of the repository, as it is on disk. */
static struct timespec read_known(void)
{
	return read_index(scratch_path("repo/index"), &known);
}

static struct sbx_captured capture(bool ignored)
{
	struct sbx_error err = SBX_ERROR_INIT;
	_cleanup_fd_ int root = open(scratch_path("tree"), O_PATH | O_DIRECTORY | O_CLOEXEC);
	_cleanup_fd_ int upper = open(scratch_path("upper"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct sbx_capture_options options = {
	        .repo = repo,
	        .root = root,
	        .upper = upper,
	        .lower = upper >= 0 ? &lower : NULL,
	        .lower_tree = upper >= 0 ? &lower_tree : NULL,
	        .known = &known,
	        .known_at = read_known(),
	        .believe = true,
	        .owner = {.uid = geteuid(), .gid = getegid()},
	        .ignored = ignored,
	        .cancelled = &cancelled,
	};
	struct sbx_captured ret;

	if (sbx_capture(&options, &ret, &err))
		fail_msg("%s", err.text);
	return ret;
}

static void expect_tree(const char *hex)
{
	struct sbx_captured c;
	char have[GIT_OID_HEXSZ + 1];

	open_repo();
	c = capture(false);
	git_oid_tostr(have, sizeof(have), &c.tree);
	if (strcmp(have, hex) != 0) {
		_cleanup_free_ char *script = sbx_format("g diff --stat %s %s >&2", hex, have);

		ask(script);
	}
	assert_string_equal(have, hex);
	sbx_captured_release(&c);
	close_repo();
}

/* What git makes of it, without leaving its index changed. */
#define AS_GIT_ADDS                                                                                \
	"cp -p $TOP/repo/index $TOP/kept 2>/dev/null || :; g add -A 2>/dev/null; g write-tree; "   \
	"if test -e $TOP/kept; then mv $TOP/kept $TOP/repo/index; else rm $TOP/repo/index; fi"

static void all_that_git_would_add_is_recorded(void **state)
{
	(void)state;
	expect_tree(ask(SOME_FILES AS_GIT_ADDS));
	/* With an index that knows some, some of them ignored. */
	expect_tree(
	        ask("g add a d; g add -f x.o build/b; echo more >>a/1; rm a/b/2; chmod +x a/b/c/3; "
	            "chmod -x d/run; " AS_GIT_ADDS));
	/* Files, links and directories in each other's places. */
	expect_tree(ask(
	        "g add -A; rm -r a/b e/link none; echo f >a/b; mkdir e/link none; echo g >none/g; "
	        "ln -s x e/link/h; ln -sf y a-b; rm dirlink; cp a.b dirlink; " AS_GIT_ADDS));
	expect_tree(ask("g add -A; rm -rf ./* .gitignore; " AS_GIT_ADDS));
	expect_tree(ask("g read-tree --empty; " AS_GIT_ADDS));
}

static void line_ends_are_converted_as_git_does(void **state)
{
	(void)state;
	expect_tree(
	        ask("git init -q --bare $TOP/repo; g config core.bare false; g config "
	            "core.autocrlf true; "
	            "mkdir d; printf 'a\\r\\nb\\r\\n' >t; printf 'a\\r\\n\\0' >b; "
	            "printf '*.u text eol=lf\\n*.x -text\\n*.i ident\\n' >.gitattributes; "
	            "printf 'a\\r\\n' >d/y.u; printf 'a\\r\\n' >d/y.x; echo '$Id: 123$' >d/y.i; "
	            "echo '*.u -text' >d/.gitattributes; " AS_GIT_ADDS));
	/* Text that has CRs in the index keeps them. */
	expect_tree(ask("g config core.autocrlf false; g add t; g config core.autocrlf input; "
	                "printf 'c\\r\\n' >>t; " AS_GIT_ADDS));
}

/* What is large is converted by and by, with the same ids. In L a line of CR LF, very often. */
#define LARGE_FILES                                                                                \
	"git init -q --bare $TOP/repo; g config core.bare false; "                                 \
	"yes \"$(printf 'a line\\r')\" | head -c 1500000 >L; "                                     \
	"printf '*.t text\\n*.a text=auto\\n*.i ident\\n*.b text=auto ident\\n"                    \
	"*.e eol=crlf\\n*.n -text\\n' >.gitattributes; "                                           \
	"cp L plain; cp L x.t; cp L x.a; cp L x.e; cp L x.n; "                                     \
	"(cat L; printf 'a\\rb\\r') >cr.t; cp cr.t cr.a; (cat L; printf '\\0') >nul.t; "           \
	"cp nul.t nul.a; (printf '\\0'; cat L) >head.t; cp head.t head.a; "                        \
	"(cat L; head -c 20000 /dev/zero | tr '\\0' '\\1') >odd.a; "                               \
	"(cat L; printf 'end\\032') >dos.a; tr -d '\\r' <L >lf.a; cp lf.a lf.t; "                  \
	"(head -c 262143 L | tr '\\r' x; printf '\\r\\n'; cat L; printf '\\r') >edge.t; "          \
	"(printf '$Id: old$ $Id$ $Id: no\\r\\n$ $I $Id:$Id: x$$Id: y$'; cat L; "                   \
	"head -c 262140 L | tr '\\r\\n' xx; printf '$Id: 1234$ $Id: '; cat L; printf '$Id: z') "   \
	">k.i; cp k.i k.b; "

static void large_files_are_converted_as_git_does(void **state)
{
	(void)state;
	expect_tree(ask(LARGE_FILES AS_GIT_ADDS));
	expect_tree(ask("g config core.autocrlf input; " AS_GIT_ADDS));
	/* What was recorded with CR LF keeps them; small ones that were large, and the other way.
	 */
	ask("g -c core.autocrlf=false -c core.attributesFile= add L plain; "
	    "(cat .gitattributes; echo x.a -text; echo cr.a -text) >$TOP/a; mv .gitattributes "
	    "$TOP/was; cp $TOP/a .gitattributes; g add x.a cr.a x.t nul.a; mv $TOP/was "
	    ".gitattributes");
	expect_tree(
	        ask("for f in L plain x.a cr.a x.t nul.a; do echo more >>$f; done; " AS_GIT_ADDS));
	expect_tree(ask("for f in L x.a cr.a; do printf 'a\\r\\nb\\r\\n' >$f; done; " AS_GIT_ADDS));
}

/* What is of another encoding than it is said to be git does not take; here it stays as it is. */
static void large_files_of_other_encodings_are_converted_as_git_does(void **state)
{
	(void)state;
	expect_tree(ask("git init -q --bare $TOP/repo; g config core.bare false; "
	                "printf '*.l working-tree-encoding=ISO-8859-1\\n*.w text "
	                "working-tree-encoding=UTF-16\\n*.b text=auto "
	                "working-tree-encoding=UTF-16LE-BOM\\n*.j "
	                "working-tree-encoding=SHIFT-JIS\\n' >.gitattributes; "
	                "yes \"$(printf 'a\\303\\274b\\r')\" | head -c 2999997 >utf8; "
	                "for e in ISO-8859-1=x.l UTF-16=x.w; do "
	                "iconv -f UTF-8 -t ${e%=*} utf8 >${e#*=}; done; "
	                "(printf '\\377\\376'; iconv -f UTF-8 -t UTF-16LE utf8) >x.b; "
	                "yes \"$(printf '\\343\\201\\202a')\" | head -c 1999999 | "
	                "iconv -f UTF-8 -t SHIFT-JIS >x.j || :; " AS_GIT_ADDS));
}

static long peak_kb(void)
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

static void large_text_is_not_held_in_memory(void **state)
{
	const char *want;
	long before;

	(void)state;
	want = ask("git init -q --bare $TOP/repo; g config core.bare false; "
	           "yes \"$(printf 'a line\\r')\" | head -c 80000000 >large; "
	           "echo '* text=auto' >.gitattributes; " AS_GIT_ADDS);
	scratch_write("/proc/self/clear_refs", "5");
	before = peak_kb();
	expect_tree(want);
	assert_in_range(peak_kb() - before, 0, 16 << 10);
}

static void what_is_ignored_is_recorded_when_asked(void **state)
{
	struct sbx_captured c;
	char have[GIT_OID_HEXSZ + 1];
	const char *want;

	(void)state;
	want = ask(SOME_FILES "g add -Af; g write-tree; rm $TOP/repo/index");
	open_repo();
	c = capture(true);
	assert_string_equal(git_oid_tostr(have, sizeof(have), &c.tree), want);
	sbx_captured_release(&c);
	close_repo();
}

static void special_files_and_repositories_are_passed_over(void **state)
{
	struct sbx_captured c;
	const char *want;
	char tree[GIT_OID_HEXSZ + 1];

	(void)state;
	want = strdup(ask(SOME_FILES AS_GIT_ADDS));
	ask("mkfifo fifo a/fifo; mkdir .git sub fake fake/.git; echo '[core]' >.git/config; "
	    "git init -q sub; echo s >sub/s; mkdir -p a/.GIT; echo x >a/.GIT/x; mkdir unread; "
	    "chmod 0 unread");
	open_repo();
	c = capture(false);
	assert_string_equal(git_oid_tostr(tree, sizeof(tree), &c.tree), want);
	sbx_captured_release(&c);
	close_repo();
	free((void *)(uintptr_t)want);
	ask("chmod 700 unread");
}

static void a_submodule_stays_as_the_index_has_it(void **state)
{
	(void)state;
	expect_tree(ask(
	        SOME_FILES
	        "g update-index --add --cacheinfo "
	        "160000,1111111111111111111111111111111111111111,sub; mkdir sub; " AS_GIT_ADDS));
	expect_tree(ask("rmdir sub; " AS_GIT_ADDS));
}

/* git does not look into it. */
static void a_directory_with_files_is_no_submodule(void **state)
{
	const char *want;

	(void)state;
	want = ask(SOME_FILES AS_GIT_ADDS);
	ask("g add -A; g rm -rq --cached d; g update-index --add --cacheinfo "
	    "160000,1111111111111111111111111111111111111111,d");
	expect_tree(want);
}

static void unreadable_files_are_read_all_the_same(void **state)
{
	const char *want;

	(void)state;
	want = ask(SOME_FILES AS_GIT_ADDS "; chmod 0 a/1 a/b; chmod 400 d");
	expect_tree(want);
	assert_string_equal(ask("stat -c %a a/b d | tr '\n' ' '"), "0 400 ");
	ask("chmod 644 a/1; chmod 755 a/b d");
}

/* ---- an upper layer ---- */

/* `upper` becomes what makes `tree` of what `was`. */
#define MAKE_UPPER                                                                                 \
	"mkdir $TOP/upper; cd $TOP/tree; find . -mindepth 1 ! -path ./.git | sort | while IFS= "   \
	"read -r p; do "                                                                           \
	"if test -d \"$p\" && ! test -L \"$p\"; then continue; fi; "                               \
	"if test -L \"$p\" || ! cmp -s \"$p\" \"$TOP/was/$p\" || test -L \"$TOP/was/$p\"; then "   \
	"mkdir -p \"$TOP/upper/$(dirname \"$p\")\"; cp -a \"$p\" \"$TOP/upper/$p\"; fi; done; "    \
	"cd $TOP/was; find . -mindepth 1 | sort -r | while IFS= read -r p; do "                    \
	"if ! test -e \"$TOP/tree/$p\" && ! test -L \"$TOP/tree/$p\"; then "                       \
	"d=$(dirname \"$p\"); if test -d \"$TOP/tree/$d\" && ! test -L \"$TOP/tree/$d\"; then "    \
	"mkdir -p \"$TOP/upper/$d\"; rm -rf \"$TOP/upper/$p\"; mknod \"$TOP/upper/$p\" c 0 0; "    \
	"fi; fi; done; "

static void commit_lower(void)
{
	const char *tree = ask(
	        "cp -a $TOP/tree $TOP/was; g add -A; g write-tree; cp $TOP/repo/index $TOP/lower");

	assert_int_equal(git_oid_fromstr(&lower_tree, tree), 0);
	read_index(scratch_path("lower"), &lower);
}

static void expect_overlaid(const char *change)
{
	_cleanup_free_ char *script =
	        sbx_format("%s\nrm -rf $TOP/upper\n(" MAKE_UPPER ")\n" AS_GIT_ADDS, change);
	const char *want = ask(script);
	struct sbx_captured c;
	char have[GIT_OID_HEXSZ + 1];

	open_repo();
	c = capture(false);
	assert_string_equal(git_oid_tostr(have, sizeof(have), &c.tree), want);
	sbx_captured_release(&c);
	git_repository_free(repo);
	repo = NULL;
}

static void an_upper_layer_tells_what_changed(void **state)
{
	(void)state;
	ask("rm -rf $TOP/tree/* $TOP/repo; " SOME_FILES
	    "rm x.o top a/z.log d/z.log new*; rm -r build");
	commit_lower();
	expect_overlaid("echo more >>a/1; echo new >a/b/new; mkdir -p n/m; echo f >n/m/f");
	expect_overlaid("rm a/b/2; rm -r d; echo o >more.o; mkdir build; echo b >build/x");
	/* What the index says of the files below counts too. */
	expect_overlaid("g rm -q --cached a-b; g rm -q --cached keep.o; echo '*.b' >>.gitignore");
	expect_overlaid("g read-tree --empty");
	expect_overlaid("g add -A; rm -r a/b; echo f >a/b; rm a.b; mkdir a.b; echo g >a.b/g");
	expect_overlaid("g update-index --index-info <<E\n100644 "
	                "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391 0\ta/1\nE\n");
	close_repo();
}

static void a_directory_that_hides_what_is_below_is_read_as_a_whole(void **state)
{
	struct sbx_captured c;
	char have[GIT_OID_HEXSZ + 1];
	const char *want;

	(void)state;
	ask(SOME_FILES);
	commit_lower();
	/* a/b is new, a/moved is what a/b was: as overlayfs says it, without the files. */
	want = ask("mv a/b a/moved; mkdir a/b; echo new >a/b/new; mkdir -p $TOP/upper/a/b "
	           "$TOP/upper/a/moved; "
	           "cp -a a/b/new $TOP/upper/a/b/; " AS_GIT_ADDS);
	if (setxattr(scratch_path("upper/a/b"), "user.overlay.opaque", "y", 1, 0) ||
	    setxattr(scratch_path("upper/a/moved"), "user.overlay.redirect", "b", 1, 0))
		skip_because("no user attributes here");
	open_repo();
	c = capture(false);
	assert_string_equal(git_oid_tostr(have, sizeof(have), &c.tree), want);
	sbx_captured_release(&c);
	close_repo();
}

/* ---- what it costs, and what it does not believe ---- */

static void a_file_that_did_not_change_is_not_read(void **state)
{
	struct sbx_captured c;
	size_t i;

	(void)state;
	ask(SOME_FILES "touch -d '1 hour ago' a/1; g add -A; g update-index --refresh; "
	               /* Other content that only reading could tell. */
	               "was=$(stat -c %y a/1); printf '9\\n' >a/1; touch -d \"$was\" a/1");
	open_repo();
	c = capture(false);
	/* Its change time tells. */
	i = sbx_index_at(&c.index, "a/1", 3);
	assert_memory_not_equal(c.index.at[i].oid, known.at[sbx_index_at(&known, "a/1", 3)].oid,
	                        20);
	sbx_captured_release(&c);
	close_repo();
	ask("rm $TOP/repo/index; g add -A; touch -d '+1 hour' $TOP/repo/index; find "
	    "$TOP/repo/objects -type f | xargs rm -f");
	open_repo();
	c = capture(false);
	/* Not one was written anew. */
	assert_string_equal(ask("g cat-file --batch-all-objects --batch-check='%(objecttype)' | "
	                        "grep -c blob || :"),
	                    "0");
	sbx_captured_release(&c);
	close_repo();
}

static void a_cancelled_one_ends(void **state)
{
	struct sbx_error err = SBX_ERROR_INIT;
	_cleanup_fd_ int root = -1;
	struct sbx_captured c;
	struct sbx_capture_options options;

	(void)state;
	ask(SOME_FILES);
	open_repo();
	root = open(scratch_path("tree"), O_PATH | O_DIRECTORY | O_CLOEXEC);
	options = (struct sbx_capture_options){
	        .repo = repo, .root = root, .upper = -1, .known = &known, .cancelled = &cancelled};
	atomic_store(&cancelled, true);
	assert_int_equal(sbx_capture(&options, &c, &err), -EINTR);
	atomic_store(&cancelled, false);
	close_repo();
}

/* Rules for all names that there can be cost more than a command's making them. */
static void more_rules_than_can_be_tried_are_refused_or_left(void **state)
{
	const uint64_t usual = capture_ignore_work;
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_captured c;
	struct sbx_capture_options options;
	_cleanup_fd_ int root = -1;

	(void)state;
	ask(SOME_FILES "echo '*k*e*p*o*' >>.gitignore");
	open_repo();
	root = open(scratch_path("tree"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	options = (struct sbx_capture_options){.repo = repo,
	                                       .root = root,
	                                       .upper = -1,
	                                       .known = &known,
	                                       .owner = {.uid = geteuid(), .gid = getegid()}};
	capture_ignore_work = 10;
	assert_int_equal(sbx_capture(&options, &c, &err), -EFBIG);
	assert_non_null(strstr(err.text, ".gitignore"));
	options.spare = true;
	assert_int_equal(sbx_capture(&options, &c, &err), 0);
	sbx_captured_release(&c);
	capture_ignore_work = usual;
	close_repo();
}

static atomic_bool swapping;

/* A directory that is now what it was, now a link out; a file that is now a FIFO. */
static void *swap(void *data)
{
	(void)data;
	while (atomic_load(&swapping)) {
		if (rename("swap", "aside") == 0 && symlink("../outside", "swap") == 0) {
			unlink("swap");
			rename("aside", "swap");
		}
		if (rename("file", "was") == 0 && mkfifo("file", 0644) == 0) {
			unlink("file");
			rename("was", "file");
		}
	}
	return NULL;
}

static void nothing_from_outside_is_ever_recorded(void **state)
{
	char hex[GIT_OID_HEXSZ + 1];
	_cleanup_free_ char *script = NULL;
	pthread_t thread;
	git_oid secret;

	(void)state;
	ask("git init -q --bare $TOP/repo; mkdir $TOP/outside swap; echo secret >$TOP/outside/f; "
	    "echo inside >swap/f; echo file >file; mkdir $TOP/outside/sub; echo secret "
	    ">$TOP/outside/sub/f");
	assert_int_equal(git_odb_hash(&secret, "secret\n", 7, GIT_OBJECT_BLOB), 0);
	assert_int_equal(chdir(scratch_path("tree")), 0);
	atomic_store(&swapping, true);
	assert_int_equal(pthread_create(&thread, NULL, swap, NULL), 0);
	open_repo();
	for (int i = 0; i < 300; i++) {
		struct sbx_captured c = capture(false);

		sbx_captured_release(&c);
	}
	atomic_store(&swapping, false);
	pthread_join(thread, NULL);
	close_repo();
	script = sbx_format(
	        "g cat-file -e %s 2>/dev/null && echo there || echo none; g fsck --strict >&2",
	        git_oid_tostr(hex, sizeof(hex), &secret));
	assert_string_equal(ask(script), "none");
	assert_int_equal(chdir("/"), 0);
}

static void large_files_are_not_held_in_memory(void **state)
{
	(void)state;
	expect_tree(ask("git init -q --bare $TOP/repo; g config core.bare false; "
	                "head -c 30000000 /dev/urandom >big; head -c 1048577 /dev/zero "
	                ">zeros; " AS_GIT_ADDS));
}

/* What this process has asked for by read() and its kin. */
static unsigned long long bytes_read(void)
{
	FILE *f = fopen("/proc/self/io", "re");
	unsigned long long n = 0;

	assert_non_null(f);
	assert_int_equal(fscanf(f, "rchar: %llu", &n), 1);
	fclose(f);
	return n;
}

static void what_is_a_hole_is_not_read(void **state)
{
	unsigned long long before;
	const char *want;

	(void)state;
	ask("git init -q --bare $TOP/repo; g config core.bare false; truncate -s 40M nothing; "
	    "echo begin >some; truncate -s 20M some; echo middle >>some; truncate -s 30000000 "
	    "some; cp --sparse=always some ended; echo end >>ended; "
	    "truncate -s 2000000 text; yes line | head -n 9999 >>text");
	want = ask(AS_GIT_ADDS);
	before = bytes_read();
	expect_tree(want);
	assert_in_range(bytes_read() - before, 0, (unsigned long long)8 << 20);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(all_that_git_would_add_is_recorded, setup,
	                                        teardown),
	        cmocka_unit_test_setup_teardown(line_ends_are_converted_as_git_does, setup,
	                                        teardown),
	        cmocka_unit_test_setup_teardown(what_is_ignored_is_recorded_when_asked, setup,
	                                        teardown),
	        cmocka_unit_test_setup_teardown(special_files_and_repositories_are_passed_over,
	                                        setup, teardown),
	        cmocka_unit_test_setup_teardown(a_directory_with_files_is_no_submodule, setup,
	                                        teardown),
	        cmocka_unit_test_setup_teardown(a_submodule_stays_as_the_index_has_it, setup,
	                                        teardown),
	        cmocka_unit_test_setup_teardown(unreadable_files_are_read_all_the_same, setup,
	                                        teardown),
	        cmocka_unit_test_setup_teardown(an_upper_layer_tells_what_changed, setup, teardown),
	        cmocka_unit_test_setup_teardown(
	                a_directory_that_hides_what_is_below_is_read_as_a_whole, setup, teardown),
	        cmocka_unit_test_setup_teardown(a_file_that_did_not_change_is_not_read, setup,
	                                        teardown),
	        cmocka_unit_test_setup_teardown(a_cancelled_one_ends, setup, teardown),
	        cmocka_unit_test_setup_teardown(more_rules_than_can_be_tried_are_refused_or_left,
	                                        setup, teardown),
	        cmocka_unit_test_setup_teardown(nothing_from_outside_is_ever_recorded, setup,
	                                        teardown),
	        cmocka_unit_test_setup_teardown(large_files_are_converted_as_git_does, setup,
	                                        teardown),
	        cmocka_unit_test_setup_teardown(
	                large_files_of_other_encodings_are_converted_as_git_does, setup, teardown),
	        cmocka_unit_test_setup_teardown(large_text_is_not_held_in_memory, setup, teardown),
	        cmocka_unit_test_setup_teardown(what_is_a_hole_is_not_read, setup, teardown),
	        cmocka_unit_test_setup_teardown(large_files_are_not_held_in_memory, setup,
	                                        teardown),
	};
	int r;

	repo_setup();
	assert_int_equal(sbx_git_encoding_init(), 0);
	r = cmocka_run_group_tests_name("capture", tests, NULL, NULL);
	repo_teardown();
	return r;
}
