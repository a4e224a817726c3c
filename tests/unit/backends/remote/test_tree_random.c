/*
 * Random steps of the machine and of the host, whose answers and batches cross; now and then all is
 * told, and both sides are compared. STEPS=N SEED=N of the environment.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
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
#include "tests/lib/fake_machine.h"
#include "tests/lib/tree_fixture.h"

#define REPLIES 4
#define CHANGES 4096
/* Names of a directory that the host has made do not come before that was sent: nobody waits long.
 */
#define NAMES_MS 200

/* What the host has done since the last batch. */
struct host_change {
	enum sbx_change_kind kind;
	char path[120], to[120];
	bool dir;
	uint64_t ino;
};

static struct {
	struct remote_reply reply;
	uint64_t seen;
} replies[REPLIES]; /* that are under way */
static size_t n_replies;
static struct host_change changes[CHANGES];
static size_t n_changes;
static uint64_t state;
static bool loud;

static unsigned any(unsigned n)
{
	state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (unsigned)(state >> 33) % n;
}

static void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *fmt, ...)
{
	va_list ap;

	if (!loud)
		return;
	va_start(ap, fmt);
	vprintf(fmt, ap);
	fflush(stdout);
	va_end(ap);
}

/* A path of up to three parts. */
static void any_path(char *ret)
{
	unsigned parts = 1 + any(3);

	*ret++ = (char)('a' + any(4));
	while (--parts) {
		*ret++ = '/';
		*ret++ = (char)('a' + any(4));
	}
	*ret = '\0';
}

/* Contents that show it when a part of them is missing, or another's. */
static size_t any_text(char *ret)
{
	const unsigned n = any(8) ? 1 + any(3) * 16 : 0;
	const char c = (char)('A' + any(26));

	for (unsigned i = 0; i < n; i++)
		ret[i] = i ? c : (char)('a' + any(26));
	ret[n] = '\0';
	return n;
}

/* ---- the machine ---- */

static void machine_steps(void)
{
	char path[120], to[120], text[64];
	const size_t n = any_text(text);

	any_path(path);
	any_path(to);
	switch (any(9)) {
	case 0:
	case 1:
	case 2:
		say("machine writes %s: %s %d\n", path, text, fake_write(path, text, n));
		break;
	case 3:
		say("machine makes %s %d\n", path, fake_make(path, 'd', NULL));
		break;
	case 4:
		say("machine removes %s %d\n", path, fake_remove(path, any(2)));
		break;
	case 5:
	case 6:
		say("machine moves %s %s %d\n", path, to, fake_move(path, to));
		break;
	case 7:
		say("machine links %s %d\n", path, fake_make(path, 'l', to));
		break;
	default:
		say("machine chmods %s %d\n", path, fake_chmod(path, any(2) ? 0755 : 0700));
	}
	/* Sometimes within one tick of the clock. */
	fake_pass(any(3) ? (int64_t)any(3000) * 1000000 : 0);
}

/* ---- the host ---- */

static void note(enum sbx_change_kind kind, const char *path, const char *to, const struct stat *st)
{
	struct host_change *c = &changes[n_changes++];

	assert_true(n_changes < CHANGES);
	*c = (struct host_change){.kind = kind, .dir = S_ISDIR(st->st_mode), .ino = st->st_ino};
	snprintf(c->path, sizeof(c->path), "%s", path);
	snprintf(c->to, sizeof(c->to), "%s", to ? to : "");
}

/* The file is gone, and its number may be given to another. */
static void forget(uint64_t ino)
{
	for (size_t i = 0; i < n_changes; i++)
		if (changes[i].ino == ino)
			changes[i].ino = 0;
}

static bool look(const char *path, struct stat *st)
{
	_cleanup_fd_ int fd = sbx_beneath_open(tf.root, path, O_PATH);

	return fd >= 0 && fstat(fd, st) == 0;
}

static bool is_dir(const char *path)
{
	const char *slash = strrchr(path, '/');
	char dir[120];
	struct stat st;

	snprintf(dir, sizeof(dir), "%.*s", slash ? (int)(slash - path) : 0, path);
	return !slash || (look(dir, &st) && S_ISDIR(st.st_mode));
}

/* Names on the way to PATH, as the file system asks for them. They may be gone by then. */
static bool can_do(const char *path)
{
	char dir[120];
	const char *slash = strrchr(path, '/');

	snprintf(dir, sizeof(dir), "%.*s", slash ? (int)(slash - path) : 0, path);
	return wait_for(dir, SBX_NEED_NAMES) == 0 && is_dir(path);
}

static bool is_empty(const char *path)
{
	return wait_for(path, SBX_NEED_NAMES) == 0 && count_names(path) == 0;
}

static void host_steps(void)
{
	char path[120], to[120], text[64];
	struct stat st, other;
	bool there, over;

	any_path(path);
	any_path(to);
	any_text(text);
	if (!can_do(path))
		return;
	there = look(path, &st);
	switch (any(6)) {
	case 0:
	case 1:
		if (there && !S_ISREG(st.st_mode))
			return;
		say("host writes %s: %s\n", path, text);
		host_writes(path, text);
		assert_true(look(path, &st));
		note(SBX_CHANGE_DATA, path, NULL, &st);
		return;
	case 2:
		if (there)
			return;
		say("host makes %s\n", path);
		host_makes_dir(path);
		assert_true(look(path, &st));
		note(SBX_CHANGE_MADE, path, NULL, &st);
		return;
	case 3:
		if (!there || (S_ISDIR(st.st_mode) && !is_empty(path)))
			return;
		say("host removes %s\n", path);
		host_removes(path);
		note(SBX_CHANGE_GONE, path, NULL, &st);
		forget(st.st_ino);
		return;
	default:
		if (!there || !can_do(to) || !look(path, &st) || strcmp(path, to) == 0 ||
		    strncmp(to, path, strlen(path)) == 0)
			return;
		over = look(to, &other);
		if (over && (S_ISDIR(other.st_mode) || S_ISDIR(st.st_mode)))
			return;
		say("host moves %s %s\n", path, to);
		host_moves(path, to);
		note(SBX_CHANGE_MOVED, path, to, &st);
		if (over)
			forget(other.st_ino);
	}
}

/* ---- between them ---- */

static void hold(struct remote_reply *reply, uint64_t seen)
{
	struct sbx_error err;
	bool altered;

	if (n_replies == REPLIES) {
		const size_t i = any(REPLIES);

		assert_int_equal(remote_tree_take(tf.tree, &replies[i].reply, replies[i].seen,
		                                  false, &altered, &err),
		                 0);
		remote_reply_release(&replies[i].reply);
		replies[i] = replies[--n_replies];
	}
	replies[n_replies].reply = *reply;
	replies[n_replies++].seen = seen;
}

static void take_all(void)
{
	struct sbx_error err;
	bool altered;

	while (n_replies) {
		const size_t i = any((unsigned)n_replies);

		say("answer %zu of %zu comes\n", i, n_replies);
		if (remote_tree_take(tf.tree, &replies[i].reply, replies[i].seen, false, &altered,
		                     &err))
			fail_msg("%s", err.text);
		remote_reply_release(&replies[i].reply);
		replies[i] = replies[--n_replies];
	}
}

static void ask(void)
{
	struct remote_text body = {0};
	struct remote_reply reply;
	struct sbx_error err;
	char *text;

	remote_tree_ask(tf.tree, &body);
	say("asked: %s", body.at);
	text = fake_answer(body.at);
	assert_int_equal(remote_reply_read(text, strlen(text), &reply, &err), 0);
	free(text);
	remote_text_release(&body);
	hold(&reply, tf.sent);
}

/* Where the inode is in the copy now, below DIR; contents in *TEXT. */
static bool find_ino(const char *dir, uint64_t ino, char *path, char **text, size_t *len)
{
	struct sbx_strings names = {0};
	_cleanup_fd_ int fd = sbx_beneath_open(tf.root, *dir ? dir : ".", O_RDONLY | O_DIRECTORY);
	bool found = false;

	assert_true(fd >= 0 && sbx_dir_names(fd, &names) == 0);
	for (size_t i = 0; i < names.n && !found; i++) {
		struct stat st;

		snprintf(path, 120, "%s%s%s", dir, *dir ? "/" : "", names.items[i]);
		assert_int_equal(fstatat(fd, names.items[i], &st, AT_SYMLINK_NOFOLLOW), 0);
		if (st.st_ino == ino && S_ISREG(st.st_mode)) {
			found = true;
			assert_int_equal(sbx_beneath_read(tf.root, path, 1 << 20, text, len, NULL),
			                 0);
		} else if (S_ISDIR(st.st_mode)) {
			_cleanup_free_ char *below = strdup(path);

			found = find_ino(below, ino, path, text, len);
		}
	}
	sbx_strings_release(&names);
	return found;
}

/* The contents are those of now, as they would be put. False: it is refused. */
static bool put_there(const struct host_change *c)
{
	_cleanup_free_ char *text = NULL;
	char path[120];
	size_t len;
	int fd;

	if (!find_ino("", c->ino, path, &text, &len))
		return true;
	fd = remote_tree_open_file(tf.tree, path, c->ino);
	/* It was removed, and its number is another's by now. */
	if (fd < 0)
		return true;
	close(fd);
	say("batch: put %s %s\n", c->path, text);
	return fake_put(c->path, text, len);
}

static bool move_there(const struct host_change *c)
{
	struct fake_file from, to;

	say("batch: mv %s %s\n", c->path, c->to);
	if (!fake_find(c->path, &from))
		return false;
	/* A directory takes the place of a file, and of an empty one. */
	if (from.type == 'd' && fake_find(c->to, &to) && !fake_remove(c->to, false))
		return false;
	return fake_move(c->path, c->to);
}

/* As apply.sh does it. False: it is refused. */
static bool do_there(const struct host_change *c)
{
	struct fake_file f;

	switch (c->kind) {
	case SBX_CHANGE_DATA:
		return put_there(c);
	case SBX_CHANGE_MADE:
		say("batch: mkdir %s\n", c->path);
		return (fake_find(c->path, &f) && f.type == 'd') || fake_make(c->path, 'd', NULL);
	case SBX_CHANGE_GONE:
		say("batch: rm %s\n", c->path);
		return !fake_find(c->path, &f) ||
		       ((f.type == 'd') == c->dir && fake_remove(c->path, false));
	default:
		return move_there(c);
	}
}

/* A reply that tells how the files that were put are now. */
static void tell_sent(void)
{
	struct remote_text all = {0};
	struct remote_reply reply;
	struct sbx_error err;
	struct fake_file f;
	char record[512], format[80];
	char *answer;

	remote_text_add(&all, "");
	for (size_t i = 0; i < n_changes; i++) {
		if (changes[i].kind != SBX_CHANGE_DATA || !fake_find(changes[i].path, &f) ||
		    f.type != 'f')
			continue;
		fake_record('=', changes[i].path, record, sizeof(record));
		remote_text_add(&all, record);
	}
	snprintf(format, sizeof(format), "M - %llu 0 0 %%\n.\n", (unsigned long long)fake_now());
	answer = reply_of(format, all.at);
	assert_int_equal(remote_reply_read(answer, strlen(answer), &reply, &err), 0);
	free(answer);
	remote_text_release(&all);
	hold(&reply, tf.sent);
}

static void tell_refused(const struct host_change *c)
{
	say("refused: %s %s\n", c->path, c->to);
	remote_tree_refused(tf.tree, c->path);
	if (c->to[0])
		remote_tree_refused(tf.tree, c->to);
}

static void send_all(void)
{
	fake_pass(1000000000);
	for (size_t i = 0; i < n_changes; i++)
		if (!do_there(&changes[i]))
			tell_refused(&changes[i]);
	for (size_t i = 0; i < n_changes; i++)
		if (changes[i].kind == SBX_CHANGE_DATA)
			remote_tree_sent(tf.tree, changes[i].ino);
	host_is_sent();
	if (n_changes)
		tell_sent();
	n_changes = 0;
	fake_pass(any(2) ? 1000000000 : 0);
}

static void read_one(void)
{
	_cleanup_free_ char *text = NULL;
	char path[120];
	struct stat st;
	size_t len;

	any_path(path);
	if (!can_do(path) || !look(path, &st) || !S_ISREG(st.st_mode))
		return;
	/* A file that the host has moved is there by another name. */
	if (n_changes && !is_here(path, SBX_NEED_DATA))
		send_all();
	say("host reads %s\n", path);
	/* It may have turned out to be something else by now. */
	if (wait_for(path, SBX_NEED_DATA) ||
	    sbx_beneath_read(tf.root, path, 1 << 20, &text, &len, NULL))
		return;
	if (memchr(text, '\0', len))
		fail_msg("%s has holes", path);
}

static void restart(void)
{
	const size_t n = n_changes;

	say("restart\n");
	take_all();
	tree_close();
	tree_open();
	for (size_t i = 0; i < n; i++) {
		_cleanup_free_ char *text = NULL;
		char path[120];
		size_t len;

		if (changes[i].kind == SBX_CHANGE_DATA &&
		    find_ino("", changes[i].ino, path, &text, &len))
			remote_tree_dirty(tf.tree, path, changes[i].ino);
	}
	tf.tree->times.retry_ms = 1;
	tf.tree->times.names_ms = NAMES_MS;
	tree_connect();
	refresh(false);
}

/* ---- the comparison ---- */

static const char *known_of(uint64_t ino)
{
	static char ret[256];
	const struct remote_node *n;

	pthread_mutex_lock(&tf.tree->lock);
	n = remote_node_find(tf.tree, ino);
	snprintf(ret, sizeof(ret),
	         "gone %d state %d dirty %d racy %d listed %d lags %d version %llu %llu %lld "
	         "told %lld",
	         n && n->gone, n ? (int)n->state : -1, n && n->dirty, n && n->racy,
	         n && n->dir && n->dir->listed, n && n->dir && n->dir->lags,
	         n ? (unsigned long long)n->version.ino : 0,
	         n ? (unsigned long long)n->version.size : 0,
	         n ? (long long)n->version.mtime_ns : 0, n ? (long long)n->told_ns : 0);
	pthread_mutex_unlock(&tf.tree->lock);
	return ret;
}

static void compare_item(const struct fake_file *f)
{
	_cleanup_free_ char *text = NULL;
	char target[120] = "";
	struct stat st;
	size_t len;
	int code;

	if (!look(f->path, &st))
		fail_msg("%s is not here", f->path);
	if ((S_ISREG(st.st_mode) ? 'f' : S_ISDIR(st.st_mode) ? 'd' : 'l') != f->type)
		fail_msg("%s is of mode %o and not %c: %s", f->path, st.st_mode, f->type,
		         known_of(ino_of(f->path)));
	switch (f->type) {
	case 'f':
		code = wait_for(f->path, SBX_NEED_DATA);
		if (code)
			fail_msg("%s: %s: %s", f->path, strerror(code), known_of(ino_of(f->path)));
		assert_int_equal(sbx_beneath_read(tf.root, f->path, 1 << 20, &text, &len, NULL), 0);
		if (len != f->size || memcmp(text, f->data, len) != 0)
			fail_msg("%s has \"%s\" and not \"%s\": %s", f->path, text, f->data,
			         known_of(ino_of(f->path)));
		break;
	case 'd':
		code = wait_for(f->path, SBX_NEED_NAMES);
		if (code)
			fail_msg("%s/: %s: %s", f->path, strerror(code), known_of(ino_of(f->path)));
		break;
	default:
		assert_true(readlinkat(tf.root, f->path, target, sizeof(target) - 1) > 0);
		assert_string_equal(target, f->data);
	}
}

/* Returns how many names there are. */
static size_t compare_names(const char *dir)
{
	struct sbx_strings names = {0};
	size_t ret = 0;
	_cleanup_fd_ int fd = sbx_beneath_open(tf.root, *dir ? dir : ".", O_RDONLY | O_DIRECTORY);

	assert_true(fd >= 0 && sbx_dir_names(fd, &names) == 0);
	for (size_t i = 0; i < names.n; i++) {
		struct fake_file f;
		char path[120];

		snprintf(path, sizeof(path), "%s%s%s", dir, *dir ? "/" : "", names.items[i]);
		if (!fake_find(path, &f))
			fail_msg("%s is not there", path);
		if (f.type == 'd')
			ret += compare_names(path);
	}
	ret += names.n;
	sbx_strings_release(&names);
	return ret;
}

static void count(const struct remote_node *n, struct remote_tree_stats *stats, uint64_t *clean)
{
	if (!S_ISREG(n->type) || n->gone)
		return;
	stats->files++;
	*clean += n->dirty ? 0 : n->bytes;
	if (n->state != REMOTE_HERE)
		return;
	stats->here++;
	stats->bytes += n->bytes;
}

/* Of what has no name any more nothing is kept, but among the last that are gone. */
static void compare_counts(size_t names)
{
	struct remote_tree *t = tf.tree;
	struct remote_tree_stats stats = {0};
	uint64_t clean = 0;

	pthread_mutex_lock(&t->lock);
	for (size_t i = 0; i < t->cap; i++)
		for (const struct remote_node *n = t->nodes[i]; n; n = n->next)
			count(n, &stats, &clean);
	assert_memory_equal(&stats, &t->stats, sizeof(stats));
	assert_int_equal(clean, t->clean_bytes);
	/* The root has no name. */
	assert_in_range(t->n_nodes - t->n_gone, 1, names + 1);
	pthread_mutex_unlock(&t->lock);
}

static int by_path(const void *a, const void *b)
{
	return strcmp(((const struct fake_file *)a)->path, ((const struct fake_file *)b)->path);
}

static void tell_all(void)
{
	static struct fake_file all[600];
	size_t n = 0;

	say("tell_all\n");
	take_all();
	send_all();
	take_all();
	tf.tree->times.names_ms = 30000;
	for (int i = 0; i < 3; i++) {
		ask();
		take_all();
	}
	while (fake_get(n, &all[n]))
		n++;
	qsort(all, n, sizeof(*all), by_path);
	for (size_t i = 0; i < n; i++)
		if (all[i].path[0])
			compare_item(&all[i]);
	compare_counts(compare_names(""));
	tf.tree->times.names_ms = NAMES_MS;
}

static char *answer(struct remote_link *link, const char *body)
{
	(void)link;
	say("called: %s", body);
	return fake_answer(body);
}

static void step(void)
{
	const unsigned what = any(100);

	if (what < 40)
		machine_steps();
	else if (what < 60)
		host_steps();
	else if (what < 72)
		ask();
	else if (what < 80)
		take_all();
	else if (what < 86)
		send_all();
	else if (what < 97)
		read_one();
	else if (what < 99)
		tell_all();
	else if (any(4) == 0)
		restart();
}

static void test_random(void **unused)
{
	const char *steps = getenv("STEPS"), *seed = getenv("SEED");
	const unsigned n = steps ? (unsigned)atoi(steps) : 10000;

	(void)unused;
	state = seed ? strtoull(seed, NULL, 10) : (uint64_t)sbx_real_ns() % 1000000;
	loud = getenv("LOUD") != NULL;
	print_message("# SEED=%llu STEPS=%u\n", (unsigned long long)state, n);
	fake_reset();
	tf.link.answer = answer;
	tf.tree->times.retry_ms = 1;
	tf.tree->times.names_ms = NAMES_MS;
	for (unsigned i = 0; i < n; i++) {
		say("step %u\n", i);
		step();
	}
	tell_all();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_random, tree_setup, tree_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
