#include "tests/lib/tree_fixture.h"

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

#include "backends/support/beneath.h"
#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"

struct tree_fixture tf;

static bool is_above(const char *dir, const char *path)
{
	const size_t n = strlen(dir);

	return !n || (strncmp(dir, path, n) == 0 && (path[n] == '/' || !path[n]));
}

static bool touched(const char *path, uint64_t batch, void *data)
{
	bool ret = false;

	(void)data;
	pthread_mutex_lock(&tf.lock);
	for (size_t i = 0; i < tf.n_touches && !ret; i++) {
		const struct tree_touch *t = &tf.touches[i];

		ret = t->batch > batch &&
		      (is_above(t->path, path) || (t->shaped && is_above(path, t->path)));
	}
	pthread_mutex_unlock(&tf.lock);
	return ret;
}

static bool touched_file(uint64_t ino, uint64_t batch, void *data)
{
	bool ret = false;

	(void)data;
	pthread_mutex_lock(&tf.lock);
	for (size_t i = 0; i < tf.n_touches && !ret; i++)
		ret = tf.touches[i].batch > batch && tf.touches[i].ino == ino;
	pthread_mutex_unlock(&tf.lock);
	return ret;
}

static uint64_t seen(void *data)
{
	uint64_t ret;

	(void)data;
	pthread_mutex_lock(&tf.lock);
	ret = tf.sent;
	pthread_mutex_unlock(&tf.lock);
	return ret;
}

static void awaited(void *data)
{
	(void)data;
	tf.awaited++;
}

static void replaced(struct sbx_sandbox *sb, int old, int new, void *data)
{
	struct stat a, b;

	(void)sb;
	(void)data;
	assert_int_equal(fstat(old, &a), 0);
	assert_int_equal(fstat(new, &b), 0);
	assert_true(a.st_ino != b.st_ino);
	tf.replaced++;
}

static void altered(struct sbx_sandbox *sb, void *data)
{
	(void)sb;
	(void)data;
	tf.altered++;
}

static void told(struct sbx_sandbox *sb, const char *event, const char *text, void *data)
{
	(void)sb;
	(void)data;
	assert_string_equal(event, "stale");
	assert_true(text[0]);
	tf.told++;
}

static const struct sbx_sandbox_events events = {
        .replaced = replaced, .altered = altered, .told = told};

static void *run(void *data)
{
	sbx_loop_run(data);
	return NULL;
}

void tree_open(void)
{
	const struct remote_tree_config config = {.sandbox = &tf.sandbox,
	                                          .dir = tf.dir,
	                                          .loop = tf.loop,
	                                          .pool = tf.pool,
	                                          .cache_mb = tf.cache_mb,
	                                          .renumbers = tf.renumbers,
	                                          .touched = touched,
	                                          .touched_file = touched_file,
	                                          .seen = seen,
	                                          .awaited = awaited};
	struct sbx_error err = SBX_ERROR_INIT;

	if (remote_tree_open(&config, &tf.tree, &err))
		fail_msg("%s", err.text);
	tf.root = remote_tree_root(tf.tree);
}

void tree_connect(void)
{
	remote_tree_connect(tf.tree, &tf.link, tf.link.tree, false);
}

struct failing {
	int code;
	const char *text;
	atomic_bool over;
};

static void fail_tree(void *data)
{
	struct failing *f = data;

	remote_tree_fail(tf.tree, f->code, f->text);
	f->over = true;
}

void tree_fail(int code, const char *text)
{
	struct failing f = {.code = code, .text = text};

	sbx_loop_post(tf.loop, fail_tree, &f);
	while (!f.over)
		usleep(1000);
}

void tree_close(void)
{
	tree_fail(ESTALE, "the test is over");
	remote_tree_await(tf.tree);
	remote_tree_close(tf.tree);
	tf.tree = NULL;
}

int tree_setup(void **state)
{
	pthread_rwlockattr_t attr;

	(void)state;
	scratch_make();
	scratch_mkdir(scratch_path("copy"));
	memset(&tf, 0, sizeof(tf));
	pthread_rwlockattr_init(&attr);
	pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	pthread_rwlock_init(&tf.turn, &attr);
	pthread_rwlockattr_destroy(&attr);
	pthread_mutex_init(&tf.lock, NULL);
	tf.batch = 1;
	tf.sandbox.turn = &tf.turn;
	tf.sandbox.events = &events;
	tf.dir = open(scratch_path("copy"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(sbx_loop_create(&tf.loop), 0);
	assert_int_equal(pthread_create(&tf.thread, NULL, run, tf.loop), 0);
	assert_int_equal(sbx_pool_create_wide(8, false, &tf.pool), 0);
	remote_stub_init(&tf.link, tf.loop, tf.pool, scratch_path("tree"), scratch_path("room"));
	tree_open();
	tree_connect();
	return 0;
}

int tree_teardown(void **state)
{
	(void)state;
	if (tf.tree)
		tree_close();
	sbx_loop_stop(tf.loop);
	pthread_join(tf.thread, NULL);
	sbx_pool_destroy(tf.pool);
	sbx_loop_destroy(tf.loop);
	close(tf.dir);
	pthread_rwlock_destroy(&tf.turn);
	pthread_mutex_destroy(&tf.lock);
	while (tf.n_touches)
		free(tf.touches[--tf.n_touches].path);
	free(tf.touches);
	scratch_remove();
	return 0;
}

void at_machine(const char *fmt, ...)
{
	char *command, *line;
	va_list ap;

	va_start(ap, fmt);
	assert_true(vasprintf(&command, fmt, ap) >= 0);
	va_end(ap);
	assert_true(asprintf(&line, "cd '%s' && { %s\n}", tf.link.tree, command) >= 0);
	if (system(line) != 0)
		fail_msg("%s", line);
	free(line);
	free(command);
	/* What is read in the tick in which it was changed is not trusted. */
	usleep(30000);
}

static uint64_t look(const char *path)
{
	_cleanup_fd_ int fd = sbx_beneath_open(tf.root, *path ? path : ".", O_PATH);
	struct stat st;

	return fd < 0 || fstat(fd, &st) < 0 ? 0 : st.st_ino;
}

uint64_t ino_of(const char *path)
{
	uint64_t ino;

	pthread_rwlock_rdlock(&tf.turn);
	ino = look(path);
	pthread_rwlock_unlock(&tf.turn);
	return ino;
}

bool is_here(const char *path, enum sbx_need need)
{
	bool here;

	pthread_rwlock_rdlock(&tf.turn);
	here = remote_tree_here(tf.tree, look(path), need, 0, 0);
	pthread_rwlock_unlock(&tf.turn);
	return here;
}

struct waiting {
	pthread_mutex_t lock;
	pthread_cond_t over;
	bool ended;
	int code;
};

static void done(struct sbx_want *w, int code, const struct sbx_error *err)
{
	struct waiting *e = w->data;

	assert_true(!code || err->text[0]);
	pthread_mutex_lock(&e->lock);
	e->code = code;
	e->ended = true;
	pthread_cond_signal(&e->over);
	pthread_mutex_unlock(&e->lock);
}

static int wait_once(const char *path, uint64_t ino, enum sbx_need need, uint64_t off, uint64_t len)
{
	struct waiting e = {.lock = PTHREAD_MUTEX_INITIALIZER, .over = PTHREAD_COND_INITIALIZER};
	struct sbx_want w = {.need = need,
	                     .path = path,
	                     .ino = ino,
	                     .off = off,
	                     .len = len,
	                     .done = done,
	                     .data = &e};

	remote_tree_want(tf.tree, &w);
	pthread_mutex_lock(&e.lock);
	while (!e.ended)
		pthread_cond_wait(&e.over, &e.lock);
	pthread_mutex_unlock(&e.lock);
	return e.code;
}

static int wait_need(const char *path, enum sbx_need need, uint64_t off, uint64_t len)
{
	for (int i = 0; i < 20; i++) {
		uint64_t ino;
		bool here;
		int code;

		pthread_rwlock_rdlock(&tf.turn);
		ino = look(path);
		here = ino && remote_tree_here(tf.tree, ino, need, off, len);
		pthread_rwlock_unlock(&tf.turn);
		if (!ino)
			return ENOENT;
		if (here)
			return 0;
		code = wait_once(path, ino, need, off, len);
		if (code)
			return code;
	}
	fail_msg("%s never comes", path);
	return 0;
}

/* The names of the directories above PATH, and of itself with SELF. */
static int wait_names(const char *path, bool self)
{
	char dir[4096] = "";
	int r = wait_need("", SBX_NEED_NAMES, 0, 0);

	for (const char *at = strchr(path, '/'); at && !r; at = strchr(at + 1, '/')) {
		snprintf(dir, sizeof(dir), "%.*s", (int)(at - path), path);
		r = wait_need(dir, SBX_NEED_NAMES, 0, 0);
	}
	return r || !self || !*path ? r : wait_need(path, SBX_NEED_NAMES, 0, 0);
}

int wait_for(const char *path, enum sbx_need need)
{
	int r = wait_names(path, need == SBX_NEED_NAMES);

	return r || need == SBX_NEED_NAMES ? r : wait_need(path, need, 0, 0);
}

int wait_for_range(const char *path, uint64_t off, uint64_t len)
{
	int r = wait_names(path, false);

	return r ? r : wait_need(path, SBX_NEED_DATA, off, len);
}

void expect_file(const char *path, const char *text)
{
	_cleanup_free_ char *have = NULL;
	size_t len;
	int r = wait_for(path, SBX_NEED_DATA);

	if (r)
		fail_msg("%s: %s", path, strerror(r));
	pthread_rwlock_rdlock(&tf.turn);
	r = sbx_beneath_read(tf.root, path, (size_t)1 << 26, &have, &len, NULL);
	pthread_rwlock_unlock(&tf.turn);
	assert_int_equal(r, 0);
	assert_int_equal(len, strlen(text));
	assert_string_equal(have, text);
}

static char *read_whole(int dir, const char *path, size_t *len)
{
	char *ret = NULL;

	assert_int_equal(sbx_beneath_read(dir, path, (size_t)1 << 26, &ret, len, NULL), 0);
	return ret;
}

void expect_same(const char *path)
{
	_cleanup_fd_ int dir = open(tf.link.tree, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_free_ char *here = NULL, *there = NULL;
	size_t n, m;

	assert_int_equal(wait_for(path, SBX_NEED_DATA), 0);
	here = read_whole(tf.root, path, &n);
	there = read_whole(dir, path, &m);
	assert_int_equal(n, m);
	assert_memory_equal(here, there, n);
}

void expect_gone(const char *path)
{
	int r = wait_names(path, false);

	assert_true(r == 0 || r == ENOENT);
	if (ino_of(path))
		fail_msg("%s is still there", path);
}

int count_names(const char *path)
{
	struct sbx_strings names = {0};
	int fd, n;

	assert_int_equal(wait_for(path, SBX_NEED_NAMES), 0);
	fd = sbx_beneath_open(tf.root, *path ? path : ".", O_RDONLY | O_DIRECTORY);
	assert_true(fd >= 0);
	assert_int_equal(sbx_dir_names(fd, &names), 0);
	n = (int)names.n;
	sbx_strings_release(&names);
	close(fd);
	return n;
}

void refresh(bool fill)
{
	struct sbx_error err = SBX_ERROR_INIT;

	if (remote_tree_refresh(tf.tree, fill, NULL, NULL, &err))
		fail_msg("%s", err.text);
}

void ask_changes(struct remote_reply *reply)
{
	struct remote_call call = {.op = "take", .safe = true};
	struct sbx_error err = SBX_ERROR_INIT;

	remote_tree_ask(tf.tree, &call.body);
	if (remote_call_perform(&tf.link, &call, NULL, reply, &err))
		fail_msg("%s", err.text);
}

bool take_changes(void)
{
	struct remote_reply reply = {0};
	struct sbx_error err = SBX_ERROR_INIT;
	const uint64_t sent = seen(NULL);
	bool any = false;

	ask_changes(&reply);
	if (remote_tree_take(tf.tree, &reply, sent, true, &any, &err))
		fail_msg("%s", err.text);
	remote_reply_release(&reply);
	return any;
}

char *reply_of(const char *text, const char *records)
{
	static const char digits[] =
	        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const size_t n = strlen(records);
	char *coded = calloc(1, n * 2 + 8), *to = coded, *ret;
	const char *at;

	for (size_t i = 0; i < n; i += 3) {
		unsigned bits = 0;

		for (size_t j = i; j < i + 3; j++)
			bits = bits << 8 |
			       (j >= n || records[j] == '|' ? 0 : (unsigned char)records[j]);
		for (unsigned j = 0; j < 4; j++)
			*to++ = i + j > n ? '=' : digits[bits >> (18 - 6 * j) & 63];
	}
	at = strchr(text, '%');
	assert_true(asprintf(&ret, "%.*s%s%s", (int)(at - text), text, coded, at + 1) >= 0);
	free(coded);
	return ret;
}

int take_records(uint64_t begun, const char *records)
{
	struct remote_reply reply;
	struct sbx_error err = SBX_ERROR_INIT;
	char format[64], *text;
	bool any;
	int r;

	snprintf(format, sizeof(format), "M - %llu 0 0 %%\n.\n", (unsigned long long)begun);
	text = reply_of(format, records);
	assert_int_equal(remote_reply_read(text, strlen(text), &reply, &err), 0);
	r = remote_tree_take(tf.tree, &reply, seen(NULL), false, &any, &err);
	assert_true(!r || err.text[0]);
	remote_reply_release(&reply);
	free(text);
	return -r;
}

void take_sent(const char *path)
{
	char full[4096], record[4200];
	struct stat st;

	snprintf(full, sizeof(full), "%s/%s", tf.link.tree, path);
	assert_int_equal(stat(full, &st), 0);
	snprintf(record, sizeof(record), "=f %o %lld %lld.%09ld,%lld.%09ld %llu 1 %s||",
	         st.st_mode & 07777, (long long)st.st_size, (long long)st.st_mtim.tv_sec,
	         st.st_mtim.tv_nsec, (long long)st.st_ctim.tv_sec, st.st_ctim.tv_nsec,
	         (unsigned long long)st.st_ino, path);
	assert_int_equal(take_records((uint64_t)sbx_real_ns(), record), 0);
}

static void note(const char *path, uint64_t ino, bool shaped)
{
	pthread_mutex_lock(&tf.lock);
	tf.touches = realloc(tf.touches, (tf.n_touches + 1) * sizeof(*tf.touches));
	assert_non_null(tf.touches);
	tf.touches[tf.n_touches++] = (struct tree_touch){
	        .path = strdup(path), .ino = ino, .batch = tf.batch, .shaped = shaped};
	pthread_mutex_unlock(&tf.lock);
}

static void tell_change(const struct sbx_change *c)
{
	const bool shaped = c->kind != SBX_CHANGE_DATA && c->kind != SBX_CHANGE_EMPTIED &&
	                    c->kind != SBX_CHANGE_STATUS;

	note(c->path, c->ino, shaped);
	if (c->to)
		note(c->to, c->ino, shaped);
	remote_tree_changed(tf.tree, c);
}

static void tell(enum sbx_change_kind kind, const char *path, const char *to, const struct stat *st)
{
	tell_change(&(struct sbx_change){
	        .kind = kind, .path = path, .to = to, .ino = st->st_ino, .mode = st->st_mode});
}

void host_writes(const char *path, const char *text)
{
	struct stat st;
	int fd;
	bool made;

	wait_names(path, false);
	pthread_rwlock_rdlock(&tf.turn);
	made = !look(path);
	fd = openat(tf.root, path, O_RDWR | O_CREAT, 0644);
	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(ftruncate(fd, 0), 0);
	tell(made ? SBX_CHANGE_MADE : SBX_CHANGE_EMPTIED, path, NULL, &st);
	tell(SBX_CHANGE_DATA, path, NULL, &st);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
	pthread_rwlock_unlock(&tf.turn);
}

void host_removes(const char *path)
{
	struct stat st;

	wait_names(path, false);
	pthread_rwlock_rdlock(&tf.turn);
	assert_int_equal(fstatat(tf.root, path, &st, AT_SYMLINK_NOFOLLOW), 0);
	assert_int_equal(unlinkat(tf.root, path, S_ISDIR(st.st_mode) ? AT_REMOVEDIR : 0), 0);
	tell(SBX_CHANGE_GONE, path, NULL, &st);
	pthread_rwlock_unlock(&tf.turn);
}

void host_moves(const char *from, const char *to)
{
	struct stat st, over = {0};

	wait_names(from, false);
	wait_names(to, false);
	pthread_rwlock_wrlock(&tf.turn);
	assert_int_equal(fstatat(tf.root, from, &st, AT_SYMLINK_NOFOLLOW), 0);
	fstatat(tf.root, to, &over, AT_SYMLINK_NOFOLLOW);
	assert_int_equal(renameat(tf.root, from, tf.root, to), 0);
	tell_change(&(struct sbx_change){.kind = SBX_CHANGE_MOVED,
	                                 .path = from,
	                                 .to = to,
	                                 .ino = st.st_ino,
	                                 .over = over.st_ino,
	                                 .mode = st.st_mode});
	pthread_rwlock_unlock(&tf.turn);
}

void host_links(const char *from, const char *to)
{
	struct stat st;

	wait_names(from, false);
	wait_names(to, false);
	pthread_rwlock_rdlock(&tf.turn);
	assert_int_equal(linkat(tf.root, from, tf.root, to, 0), 0);
	assert_int_equal(fstatat(tf.root, from, &st, AT_SYMLINK_NOFOLLOW), 0);
	tell(SBX_CHANGE_LINKED, from, to, &st);
	pthread_rwlock_unlock(&tf.turn);
}

void host_makes_dir(const char *path)
{
	struct stat st;

	wait_names(path, false);
	pthread_rwlock_rdlock(&tf.turn);
	assert_int_equal(mkdirat(tf.root, path, 0755), 0);
	assert_int_equal(fstatat(tf.root, path, &st, 0), 0);
	tell(SBX_CHANGE_MADE, path, NULL, &st);
	pthread_rwlock_unlock(&tf.turn);
}

void host_changes_mode(const char *path, mode_t mode)
{
	struct stat st;

	pthread_rwlock_rdlock(&tf.turn);
	assert_int_equal(fchmodat(tf.root, path, mode, 0), 0);
	assert_int_equal(fstatat(tf.root, path, &st, 0), 0);
	tell(SBX_CHANGE_STATUS, path, NULL, &st);
	pthread_rwlock_unlock(&tf.turn);
}

void host_is_sent(void)
{
	pthread_mutex_lock(&tf.lock);
	tf.sent = tf.batch++;
	pthread_mutex_unlock(&tf.lock);
}

void host_sent_file(const char *path)
{
	const uint64_t ino = ino_of(path);
	int fd = remote_tree_open_file(tf.tree, path, ino);

	assert_true(fd >= 0);
	close(fd);
	remote_tree_sent(tf.tree, ino);
}
