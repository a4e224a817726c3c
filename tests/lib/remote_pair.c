#include "tests/lib/remote_pair.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backends/remote/call.h"
#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"
#include "tests/lib/scratch.h"

static int open_made(const char *name)
{
	int fd;

	scratch_mkdir(scratch_path("%s", name));
	fd = open(scratch_path("%s", name), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(fd >= 0);
	return fd;
}

void pair_begin(struct pair *p, const char *shell)
{
	struct sbx_error err = SBX_ERROR_INIT;

	*p = (struct pair){.shell = shell};
	p->here = open_made("here");
	p->there = open_made("there");
	p->state = open_made("state");
	scratch_mkdir(scratch_path("room"));
	pair_set_room(p, scratch_path("room"));
	if (remote_journal_open(p->state, &p->journal, &err))
		fail_msg("%s", err.text);
}

void pair_set_room(struct pair *p, const char *room)
{
	char in[300];

	snprintf(p->room, sizeof(p->room), "%s", room);
	snprintf(in, sizeof(in), "%s/in", p->room);
	scratch_mkdir(in);
}

void pair_end(struct pair *p)
{
	remote_journal_close(p->journal);
	close(p->here);
	close(p->there);
	close(p->state);
	free(p->answer);
	free(p->script);
	*p = (struct pair){0};
}

void pair_reopen(struct pair *p)
{
	struct sbx_error err = SBX_ERROR_INIT;

	remote_journal_close(p->journal);
	if (remote_journal_open(p->state, &p->journal, &err))
		fail_msg("%s", err.text);
}

static void admit(struct pair *p)
{
	struct sbx_error err = SBX_ERROR_INIT;

	if (remote_journal_admit(p->journal, NULL, &err))
		fail_msg("%s", err.text);
}

static bool note(struct pair *p, bool done, const struct sbx_change *c)
{
	if (done)
		remote_journal_note(p->journal, c);
	else
		remote_journal_drop(p->journal, NULL);
	return done;
}

static struct stat look(struct pair *p, const char *path)
{
	struct stat st = {0};

	if (fstatat(p->here, path, &st, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) < 0)
		st = (struct stat){0};
	return st;
}

static bool note_about(struct pair *p, bool done, enum sbx_change_kind kind, const char *path,
                       const char *to, const struct stat *st)
{
	const struct sbx_change c = {
	        .kind = kind, .path = path, .to = to, .ino = st->st_ino, .mode = st->st_mode};

	return note(p, done, &c);
}

bool pair_create(struct pair *p, const char *path, const char *text)
{
	struct stat st;
	int fd;

	admit(p);
	fd = openat(p->here, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
	st = look(p, path);
	if (!note_about(p, fd >= 0, SBX_CHANGE_MADE, path, NULL, &st))
		return false;
	close(fd);
	return !*text || pair_write(p, path, 0, text, strlen(text));
}

bool pair_write(struct pair *p, const char *path, off_t at, const char *text, size_t n)
{
	_cleanup_fd_ int fd = openat(p->here, path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	struct stat st = look(p, path);

	if (fd < 0 || !S_ISREG(st.st_mode))
		return false;
	admit(p);
	note_about(p, true, SBX_CHANGE_DATA, path, NULL, &st);
	assert_int_equal(pwrite(fd, text, n, at), n);
	return true;
}

bool pair_empty(struct pair *p, const char *path)
{
	_cleanup_fd_ int fd = openat(p->here, path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	struct stat st = look(p, path);

	if (fd < 0 || !S_ISREG(st.st_mode))
		return false;
	admit(p);
	assert_int_equal(ftruncate(fd, 0), 0);
	return note_about(p, true, SBX_CHANGE_EMPTIED, path, NULL, &st);
}

/* As the file system: two names of one file stay as they are, and nothing was changed. */
bool pair_rename(struct pair *p, const char *path, const char *to, unsigned flags)
{
	const struct stat st = look(p, path), over = look(p, to);
	bool done;

	admit(p);
	done = renameat2(p->here, path, p->here, to, flags) == 0 && st.st_ino != over.st_ino;
	return note_about(p, done, flags ? SBX_CHANGE_SWAPPED : SBX_CHANGE_MOVED, path, to, &st);
}

bool pair_link(struct pair *p, const char *path, const char *to)
{
	const struct stat st = look(p, path);
	bool done;

	admit(p);
	done = linkat(p->here, path, p->here, to, 0) == 0;
	return note_about(p, done, SBX_CHANGE_LINKED, path, to, &st);
}

bool pair_unlink(struct pair *p, const char *path)
{
	const struct stat st = look(p, path);

	admit(p);
	return note_about(p, unlinkat(p->here, path, 0) == 0, SBX_CHANGE_GONE, path, NULL, &st);
}

bool pair_mkdir(struct pair *p, const char *path)
{
	bool done;
	struct stat st;

	admit(p);
	done = mkdirat(p->here, path, 0755) == 0;
	st = look(p, path);
	return note_about(p, done, SBX_CHANGE_MADE, path, NULL, &st);
}

bool pair_rmdir(struct pair *p, const char *path)
{
	const struct stat st = look(p, path);

	admit(p);
	return note_about(p, unlinkat(p->here, path, AT_REMOVEDIR) == 0, SBX_CHANGE_GONE, path,
	                  NULL, &st);
}

bool pair_symlink(struct pair *p, const char *target, const char *path)
{
	struct sbx_change c = {.kind = SBX_CHANGE_MADE, .path = path, .target = target};
	bool done;

	admit(p);
	done = symlinkat(target, p->here, path) == 0;
	c.ino = look(p, path).st_ino;
	c.mode = S_IFLNK | 0777;
	return note(p, done, &c);
}

bool pair_node(struct pair *p, const char *path, mode_t type)
{
	struct stat st;
	bool done;

	admit(p);
	done = mknodat(p->here, path, type | 0644, 0) == 0;
	st = look(p, path);
	return note_about(p, done, SBX_CHANGE_MADE, path, NULL, &st);
}

bool pair_chmod(struct pair *p, const char *path, mode_t mode)
{
	struct stat st = look(p, path);
	bool done;

	admit(p);
	done = !S_ISLNK(st.st_mode) && st.st_ino &&
	       fchmodat(p->here, *path ? path : ".", mode, 0) == 0;
	st = look(p, path);
	return note_about(p, done, SBX_CHANGE_STATUS, path, NULL, &st);
}

bool pair_utimes(struct pair *p, const char *path, int64_t mtime_ns)
{
	const struct timespec t = {.tv_sec = mtime_ns / 1000000000,
	                           .tv_nsec = mtime_ns % 1000000000};
	const struct stat st = look(p, path);
	bool done;

	admit(p);
	done = utimensat(p->here, path, (struct timespec[2]){t, t}, AT_SYMLINK_NOFOLLOW) == 0;
	return note_about(p, done, SBX_CHANGE_STATUS, path, NULL, &st);
}

static int open_here(const char *path, uint64_t ino, void *data)
{
	const struct pair *p = data;
	int fd = openat(p->here, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	struct stat st;

	if (fd >= 0 && fstat(fd, &st) == 0 && st.st_ino == ino)
		return fd;
	if (fd >= 0)
		close(fd);
	return -ESTALE;
}

static void put(const struct pair *p, const struct sbx_machine_file *file)
{
	_cleanup_fd_ int fd = -1;
	char buf[65536];
	off_t at = (off_t)file->bytes.offset;
	ssize_t n;

	snprintf(buf, sizeof(buf), "%s/in/%u", p->room, file->number);
	fd = open(buf, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	if (file->bytes.data) {
		assert_int_equal(sbx_write_all(fd, file->bytes.data, file->bytes.size), 0);
		return;
	}
	while ((n = pread(file->bytes.fd, buf, sizeof(buf), at)) > 0) {
		assert_int_equal(sbx_write_all(fd, buf, (size_t)n), 0);
		at += n;
	}
}

static void put_all(struct pair *p, struct remote_batch *b)
{
	const struct remote_source from = {.root = p->here, .open = open_here, .data = p};
	struct sbx_error err = SBX_ERROR_INIT;
	struct remote_load load;

	p->files = 0;
	for (;;) {
		if (remote_batch_load(p->journal, b, &from, &load, &err))
			fail_msg("%s", err.text);
		if (!load.n)
			break;
		p->files += load.n;
		for (size_t i = 0; i < load.n; i++)
			put(p, &load.files[i]);
		remote_load_release(&load);
	}
	remote_load_release(&load);
}

static void read_answer(struct pair *p, int fd)
{
	struct remote_text t = {0};
	char buf[65536];
	ssize_t n;

	while ((n = read(fd, buf, sizeof(buf))) > 0)
		remote_text_add_n(&t, buf, (size_t)n);
	remote_text_add(&t, "");
	free(p->answer);
	p->answer = t.at;
	p->answer_n = t.n;
}

/* Of what this process executes, which root owns as well: for others than root nothing changes. */
static void bind_by_modes(void)
{
	prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE);
	prctl(PR_CAPBSET_DROP, CAP_DAC_READ_SEARCH);
}

/* The runner's process, in a group of its own. */
static pid_t start(struct pair *p, const char *script, int *out)
{
	char word[2][64] = {"", ""};
	int fds[2];
	pid_t pid;

	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	sscanf(p->shell, "%63s %63s", word[0], word[1]);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		char *argv[] = {word[0], "-c", (char *)script, NULL, NULL};

		if (*word[1])
			memcpy(argv, (char *[]){word[0], word[1], "-c", (char *)script},
			       4 * sizeof(*argv));
		setpgid(0, 0);
		if (p->bound)
			bind_by_modes();
		if (chdir("/") < 0 || dup2(fds[1], 1) < 0)
			_exit(127);
		execvpe(argv[0], argv, environ);
		_exit(127);
	}
	setpgid(pid, pid);
	close(fds[1]);
	*out = fds[0];
	return pid;
}

/* The whole script, as the link makes it. PATH is set behind the shell's start. */
static char *whole_script(struct pair *p)
{
	struct remote_text t = {0};

	if (p->path) {
		remote_text_add(&t, "PATH=");
		remote_text_add(&t, p->path);
		remote_text_add(&t, "\n");
	}
	remote_text_add(&t, "R_ROOM=");
	remote_text_add(&t, p->room);
	remote_text_add(&t, " R_TREE=");
	remote_text_add(&t, scratch_path("there"));
	remote_text_add(&t, "\n");
	remote_text_add(&t, remote_runner);
	/* As r_note, but that the line is done and not noted. */
	if (p->break_at)
		remote_text_printf(&t,
		                   "r_k=0\nr_note() {\nr_k=$((r_k + 1))\n"
		                   "[ $r_k -lt %zu ] || kill -9 $$\n"
		                   "r_progress \"$R_NUMBER\"\n}\n",
		                   p->break_at);
	remote_text_add(&t, p->script);
	remote_text_add(&t, "r_end\n");
	assert_false(t.failed);
	return t.at;
}

/* Whether it ran to its end. */
static bool run(struct pair *p)
{
	_cleanup_free_ char *script = whole_script(p);
	_cleanup_fd_ int out = -1;
	const int kill_us = p->kill_us;
	pid_t pid = start(p, script, &out);
	int status;

	p->kill_us = 0;
	if (kill_us) {
		usleep((useconds_t)kill_us);
		kill(-pid, SIGKILL);
	}
	read_answer(p, out);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFSIGNALED(status))
		return false;
	if (pair_frames(p, 'F') || p->answer_n < 2 ||
	    strcmp(p->answer + p->answer_n - 2, ".\n") != 0)
		fail_msg("the answer of\n%s\nis\n%s", p->script, p->answer);
	return true;
}

/* Loads the oldest batch, and has its script. False: there is none. */
static bool prepare(struct pair *p)
{
	struct sbx_error err = SBX_ERROR_INIT;
	struct remote_text body = {0};
	struct remote_batch *b;

	if (remote_journal_cut(p->journal, &b, &err))
		fail_msg("%s", err.text);
	if (!b)
		return false;
	put_all(p, b);
	remote_batch_script(b, &body);
	assert_false(body.failed);
	free(p->script);
	p->script = body.at;
	return true;
}

bool pair_send(struct pair *p)
{
	return prepare(p) && run(p);
}

void pair_send_twice(struct pair *p)
{
	_cleanup_free_ char *script = prepare(p) ? whole_script(p) : NULL;
	pid_t pids[2];
	int outs[2];

	assert_non_null(script);
	for (int i = 0; i < 2; i++)
		pids[i] = start(p, script, &outs[i]);
	for (int i = 0; i < 2; i++) {
		int status;

		read_answer(p, outs[i]);
		close(outs[i]);
		assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
		assert_int_equal(status, 0);
		assert_int_equal(pair_frames(p, 'F'), 0);
		assert_int_equal(pair_frames(p, 'N'), 0);
		assert_true(pair_frames(p, 'M') > 0);
	}
}

void pair_sent(struct pair *p)
{
	remote_journal_sent(p->journal, remote_journal_seen(p->journal) + 1);
}

void pair_send_all(struct pair *p)
{
	while (remote_journal_pending(p->journal))
		if (pair_send(p))
			pair_sent(p);
}

static size_t count_lines(const char *text, const char *word)
{
	const size_t len = strlen(word);
	size_t n = 0;

	for (const char *at = text; at; at = strchr(at, '\n')) {
		at += at != text;
		n += strncmp(at, word, len) == 0 && (at[len] == ' ' || at[len] == '\n');
	}
	return n;
}

size_t pair_frames(const struct pair *p, char kind)
{
	static const char *const forms[] = {"", "t", "h", "z", "zh"};
	size_t n = 0;

	for (size_t i = 0; p->answer && i < SBX_ARRAY_SIZE(forms); i++) {
		char word[8];

		snprintf(word, sizeof(word), "%c%s", kind, forms[i]);
		n += count_lines(p->answer, word);
	}
	return n;
}

size_t pair_lines(const struct pair *p, const char *word)
{
	return count_lines(p->script, word);
}

/* An entry of a tree, and how it was met. */
struct seen {
	char *path;
	struct stat st;
};

struct seen_list {
	struct seen at[4096];
	size_t n;
};

static void list(int dir, const char *path, struct seen_list *ret)
{
	_cleanup_fd_ int fd =
	        openat(dir, *path ? path : ".", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct sbx_strings names = {0};

	assert_true(fd >= 0);
	assert_int_equal(sbx_dir_names(fd, &names), 0);
	for (size_t i = 0; i < names.n; i++) {
		struct seen *seen = &ret->at[ret->n++];

		assert_true(ret->n < SBX_ARRAY_SIZE(ret->at));
		assert_true(asprintf(&seen->path, "%s%s%s", path, *path ? "/" : "",
		                     names.items[i]) > 0);
		assert_int_equal(fstatat(dir, seen->path, &seen->st, AT_SYMLINK_NOFOLLOW), 0);
		if (S_ISDIR(seen->st.st_mode))
			list(dir, seen->path, ret);
	}
	sbx_strings_release(&names);
}

static int by_path(const void *one, const void *other)
{
	return strcmp(((const struct seen *)one)->path, ((const struct seen *)other)->path);
}

static void release(struct seen_list *list)
{
	for (size_t i = 0; i < list->n; i++)
		free(list->at[i].path);
	list->n = 0;
}

static char *contents(int dir, const struct seen *seen)
{
	char *text = NULL;

	if (S_ISLNK(seen->st.st_mode)) {
		text = calloc(1, 4096);
		assert_true(readlinkat(dir, seen->path, text, 4095) >= 0);
	} else if (S_ISREG(seen->st.st_mode)) {
		_cleanup_fd_ int fd = openat(dir, seen->path, O_RDONLY | O_CLOEXEC);

		text = calloc(1, (size_t)seen->st.st_size + 1);
		assert_int_equal(sbx_read_all(fd, text, (size_t)seen->st.st_size),
		                 seen->st.st_size);
	}
	return text;
}

static bool same_time(const struct pair *p, const struct seen *a, const struct seen *b)
{
	if (!S_ISREG(a->st.st_mode))
		return true;
	return a->st.st_mtim.tv_sec == b->st.st_mtim.tv_sec &&
	       (p->seconds || a->st.st_mtim.tv_nsec == b->st.st_mtim.tv_nsec);
}

/* NULL, or how B is not as A. */
static const char *difference(struct pair *p, const struct seen *a, const struct seen *b)
{
	_cleanup_free_ char *mine = NULL, *theirs = NULL;

	if (a->st.st_mode != b->st.st_mode)
		return "its mode";
	if (!S_ISDIR(a->st.st_mode) && a->st.st_size != b->st.st_size)
		return "its size";
	if (!S_ISDIR(a->st.st_mode) && a->st.st_nlink != b->st.st_nlink)
		return "the number of its names";
	if (!same_time(p, a, b))
		return "its time";
	mine = contents(p->here, a);
	theirs = contents(p->there, b);
	return mine && memcmp(mine, theirs, (size_t)a->st.st_size) != 0 ? "its contents" : NULL;
}

static void compare_links(const struct seen_list *a, const struct seen_list *b)
{
	for (size_t i = 0; i < a->n; i++)
		for (size_t k = 0; k < i; k++)
			if ((a->at[i].st.st_ino == a->at[k].st.st_ino) !=
			    (b->at[i].st.st_ino == b->at[k].st.st_ino))
				fail_msg("%s and %s: one file or two", a->at[i].path,
				         a->at[k].path);
}

void pair_compare(struct pair *p)
{
	static struct seen_list a, b;

	list(p->here, "", &a);
	list(p->there, "", &b);
	qsort(a.at, a.n, sizeof(*a.at), by_path);
	qsort(b.at, b.n, sizeof(*b.at), by_path);
	for (size_t i = 0; i < a.n || i < b.n; i++) {
		const int r = i == a.n ? 1 : i == b.n ? -1 : strcmp(a.at[i].path, b.at[i].path);
		const char *what;

		if (r)
			fail_msg("%s is only %s", r < 0 ? a.at[i].path : b.at[i].path,
			         r < 0 ? "here" : "there");
		what = difference(p, &a.at[i], &b.at[i]);
		if (what)
			fail_msg("of %s, %s is not the same there, after\n%s", a.at[i].path, what,
			         p->script ? p->script : "");
	}
	compare_links(&a, &b);
	release(&a);
	release(&b);
}
