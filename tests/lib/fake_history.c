#include "tests/lib/fake_history.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sandboxfs/cleanup.h"
#include "tests/lib/fake_backend.h"

/* cmocka.h needs these, and has no include guard for them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct file {
	char path[512];
	mode_t mode;
	char *data; /* NUL-terminated */
	size_t len;
};

struct state {
	char rev[SBX_REV_MAX];
	char message[256];
	struct file *files;
	size_t n;
	unsigned number;
};

struct fake_history {
	struct fake_backend *backend;
	pthread_mutex_t lock;
	char *dir;
	struct state *states[128];
	size_t n;
	unsigned ids, numbers;
};

static struct file *add_file(struct state *s, const char *path, mode_t mode)
{
	struct file *files = realloc(s->files, (s->n + 1) * sizeof(*files));

	assert_non_null(files);
	s->files = files;
	files[s->n] = (struct file){.mode = mode};
	snprintf(files[s->n].path, sizeof(files[s->n].path), "%s", path);
	return &files[s->n++];
}

static void read_file(struct file *f, const char *path, const struct stat *st)
{
	size_t size = (size_t)st->st_size;
	int fd;

	f->data = calloc(1, size + 1);
	assert_non_null(f->data);
	f->len = size;
	if (S_ISLNK(st->st_mode)) {
		assert_int_equal(readlink(path, f->data, size), size);
		return;
	}
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(read(fd, f->data, size), size);
	close(fd);
}

static void capture(struct state *s, const char *dir, const char *below)
{
	struct dirent **names;
	int n = scandir(dir, &names, NULL, alphasort);

	assert_true(n >= 0);
	for (int i = 0; i < n; i++) {
		char path[768], rel[512];
		struct stat st;

		snprintf(path, sizeof(path), "%s/%s", dir, names[i]->d_name);
		snprintf(rel, sizeof(rel), "%s%s%s", below, *below ? "/" : "", names[i]->d_name);
		if (strcmp(names[i]->d_name, ".") != 0 && strcmp(names[i]->d_name, "..") != 0) {
			struct file *f;

			assert_int_equal(lstat(path, &st), 0);
			f = add_file(s, rel, st.st_mode);
			if (S_ISDIR(st.st_mode))
				capture(s, path, rel);
			else
				read_file(f, path, &st);
		}
		free(names[i]);
	}
	free(names);
}

static void state_free(struct state *s)
{
	for (size_t i = 0; i < s->n; i++)
		free(s->files[i].data);
	free(s->files);
	free(s);
}

static struct state *now(struct fake_history *h, const char *rev, const char *message)
{
	struct state *s = calloc(1, sizeof(*s));

	assert_non_null(s);
	snprintf(s->rev, sizeof(s->rev), "%s", rev);
	snprintf(s->message, sizeof(s->message), "%s", message ? message : "");
	s->number = ++h->numbers;
	capture(s, h->dir, "");
	return s;
}

static struct state *find(struct fake_history *h, const char *rev)
{
	bool whole = strcmp(rev, "base") == 0 || strchr(rev, ':');

	for (size_t i = 0; i < h->n; i++)
		if (whole ? strcmp(h->states[i]->rev, rev) == 0
		          : strncmp(h->states[i]->rev, rev, strlen(rev)) == 0)
			return h->states[i];
	return NULL;
}

static void drop(struct fake_history *h, const char *rev)
{
	for (size_t i = 0; i < h->n; i++)
		if (strcmp(h->states[i]->rev, rev) == 0) {
			state_free(h->states[i]);
			h->n--;
			memmove(&h->states[i], &h->states[i + 1],
			        (h->n - i) * sizeof(struct state *));
			return;
		}
}

static void keep(struct fake_history *h, struct state *s)
{
	assert_true(h->n < SBX_ARRAY_SIZE(h->states));
	h->states[h->n++] = s;
}

struct fake_history *fake_history_open(struct fake_backend *b, const char *dir)
{
	struct fake_history *h = calloc(1, sizeof(*h));

	assert_non_null(h);
	h->backend = b;
	h->dir = strdup(dir);
	pthread_mutex_init(&h->lock, NULL);
	keep(h, now(h, "base", NULL));
	return h;
}

void fake_history_close(struct fake_history *h)
{
	if (!h)
		return;
	for (size_t i = 0; i < h->n; i++)
		state_free(h->states[i]);
	pthread_mutex_destroy(&h->lock);
	free(h->dir);
	free(h);
}

/* Writing a state to a directory */

static int unlink_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	return ftw->level ? remove(path) : 0;
}

static void lay_out(const struct state *s, const char *dir)
{
	assert_int_equal(nftw(dir, unlink_one, 16, FTW_DEPTH | FTW_PHYS), 0);
	for (size_t i = 0; i < s->n; i++) {
		const struct file *f = &s->files[i];
		char path[768];
		int fd;

		snprintf(path, sizeof(path), "%s/%s", dir, f->path);
		if (S_ISDIR(f->mode)) {
			assert_int_equal(mkdir(path, 0755), 0);
		} else if (S_ISLNK(f->mode)) {
			assert_int_equal(symlink(f->data, path), 0);
		} else {
			fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, f->mode & 0777);
			assert_int_equal(write(fd, f->data, f->len), f->len);
			close(fd);
		}
	}
}

int fake_history_copy(struct fake_history *h, const char *rev, const char *dir)
{
	struct state *s;

	pthread_mutex_lock(&h->lock);
	s = rev ? find(h, rev) : now(h, "", NULL);
	if (s)
		lay_out(s, dir);
	if (!rev)
		state_free(s);
	pthread_mutex_unlock(&h->lock);
	return s ? 0 : -ENOENT;
}

/* The table */

/* Waits where the test wants it; -EINTR when it was cancelled meanwhile. */
static int hold(struct fake_history *h, atomic_bool *cancelled, struct sbx_error *err)
{
	struct fake_backend *b = h->backend;

	if (atomic_fetch_add(&b->overlapping, 1))
		fail_msg("two calls for one sandbox at once");
	if (atomic_load(&b->hold_history)) {
		sem_post(&b->remembering);
		while (sem_wait(&b->hold) < 0)
			;
	}
	atomic_fetch_sub(&b->overlapping, 1);
	if (cancelled && atomic_load(cancelled))
		return sbx_fail(err, EINTR, "given up");
	return 0;
}

static int fake_snapshot(struct sbx_sandbox *sb, const struct sbx_snapshot_wish *wish,
                         char id[SBX_REV_MAX], struct sbx_error *err)
{
	struct fake_history *h = fake_history_of(sb);
	char rev[SBX_REV_MAX];
	int r = hold(h, wish->cancelled, err), code = atomic_load(&h->backend->history_code);

	if (r < 0)
		return r;
	if (code)
		return sbx_fail(err, code, "recording was refused");
	pthread_mutex_lock(&h->lock);
	if (wish->mark)
		snprintf(rev, sizeof(rev), "mark:%.60s", wish->mark);
	else
		snprintf(rev, sizeof(rev), "abcd%04x", ++h->ids);
	drop(h, rev);
	keep(h, now(h, rev, wish->message));
	if (!wish->mark)
		snprintf(h->backend->told, sizeof(h->backend->told), "%s|%s|%d",
		         wish->message ? wish->message : "-", wish->author ? wish->author : "-",
		         wish->ignored);
	pthread_mutex_unlock(&h->lock);
	snprintf(id, SBX_REV_MAX, "%s", rev);
	return 0;
}

static int fake_forget(struct sbx_sandbox *sb, const char *name, struct sbx_error *err)
{
	struct fake_history *h = fake_history_of(sb);
	char rev[SBX_REV_MAX];

	(void)err;
	snprintf(rev, sizeof(rev), "mark:%.60s", name);
	pthread_mutex_lock(&h->lock);
	drop(h, rev);
	pthread_mutex_unlock(&h->lock);
	return 0;
}

static int fake_list(struct sbx_sandbox *sb, int (*fn)(const struct sbx_snapshot *s, void *data),
                     void *data, struct sbx_error *err)
{
	struct fake_history *h = fake_history_of(sb);
	int r = 0;

	(void)err;
	pthread_mutex_lock(&h->lock);
	for (size_t i = 0; i < h->n && r == 0; i++) {
		const struct state *s = h->states[i];
		const struct sbx_snapshot told = {
		        .id = s->rev, .message = s->message, .time_ms = s->number * INT64_C(1000)};

		if (strncmp(s->rev, "abcd", 4) == 0)
			r = fn(&told, data);
	}
	pthread_mutex_unlock(&h->lock);
	return r;
}

static int fake_restore(struct sbx_sandbox *sb, const char *rev, atomic_bool *cancelled,
                        struct sbx_error *err)
{
	struct fake_history *h = fake_history_of(sb);
	struct state *s, *before;
	int r = hold(h, cancelled, err);

	if (r < 0)
		return r;
	pthread_mutex_lock(&h->lock);
	s = find(h, rev);
	if (s) {
		before = now(h, "mark:restore", NULL);
		lay_out(s, h->dir);
		drop(h, "mark:restore");
		keep(h, before);
		atomic_fetch_add(&h->backend->restores, 1);
	}
	pthread_mutex_unlock(&h->lock);
	return s ? 0 : sbx_fail(err, ENOENT, "there is no snapshot %s", rev);
}

static const struct file *file_at(const struct state *s, const char *path)
{
	for (size_t i = 0; i < s->n; i++)
		if (strcmp(s->files[i].path, path) == 0)
			return &s->files[i];
	return NULL;
}

static bool same(const struct file *a, const struct file *b)
{
	return a->len == b->len && a->mode == b->mode &&
	       (!a->len || memcmp(a->data, b->data, a->len) == 0);
}

static void compare(const struct state *from, const struct state *to, enum sbx_diff_format format,
                    int fd)
{
	for (size_t i = 0; i < from->n; i++)
		if (!S_ISDIR(from->files[i].mode) && !file_at(to, from->files[i].path))
			dprintf(fd, format == SBX_DIFF_NAMES ? "D\t%s\n" : "--- a/%s\n",
			        from->files[i].path);
	for (size_t i = 0; i < to->n; i++) {
		const struct file *f = &to->files[i], *old = file_at(from, f->path);

		if (S_ISDIR(f->mode) || (old && same(old, f)))
			continue;
		if (format == SBX_DIFF_NAMES)
			dprintf(fd, "%c\t%s\n", old ? 'M' : 'A', f->path);
		else
			dprintf(fd, "+++ b/%s\n%s", f->path, f->data);
	}
}

static int fake_diff(struct sbx_sandbox *sb, const struct sbx_diff_wish *wish, int fd,
                     struct sbx_error *err)
{
	struct fake_history *h = fake_history_of(sb);
	struct state *current, *from, *to;
	int r = hold(h, wish->cancelled, err);

	if (r < 0)
		return r;
	pthread_mutex_lock(&h->lock);
	current = now(h, "", NULL);
	from = wish->from ? find(h, wish->from) : current;
	to = wish->to ? find(h, wish->to) : current;
	if (from && to)
		compare(from, to, wish->format, fd);
	else
		r = sbx_fail(err, ENOENT, "there is no such state");
	state_free(current);
	pthread_mutex_unlock(&h->lock);
	return r;
}

/* Objects; the lock is held. */

static struct state *state_of(struct fake_history *h, const char *id, const char **path)
{
	char *end;
	unsigned long number = strtoul(id, &end, 10);

	*path = *end == '/' ? end + 1 : "";
	for (size_t i = 0; i < h->n; i++)
		if (h->states[i]->number == number)
			return h->states[i];
	return NULL;
}

static void describe(const struct state *s, const struct file *f, struct sbx_object *ret)
{
	*ret = (struct sbx_object){.mode = f->mode, .size = f->len};
	if (!S_ISDIR(f->mode) || !strstr(f->path, ".sub"))
		snprintf(ret->id, sizeof(ret->id), "%u/%.60s", s->number, f->path);
}

static int fake_tree(struct sbx_sandbox *sb, const char *rev, struct sbx_object *ret,
                     struct sbx_error *err)
{
	struct fake_history *h = fake_history_of(sb);
	struct state *s;

	pthread_mutex_lock(&h->lock);
	s = find(h, rev);
	if (s) {
		*ret = (struct sbx_object){.mode = S_IFDIR | 0755};
		snprintf(ret->id, sizeof(ret->id), "%u", s->number);
	}
	pthread_mutex_unlock(&h->lock);
	return s ? 0 : sbx_fail(err, ENOENT, "there is no snapshot %s", rev);
}

static int fake_entries(struct sbx_sandbox *sb, const char *dir,
                        int (*fn)(const char *name, const struct sbx_object *o, void *data),
                        void *data)
{
	struct fake_history *h = fake_history_of(sb);
	const char *path;
	struct state *s;
	int r = -ENOENT;

	pthread_mutex_lock(&h->lock);
	s = state_of(h, dir, &path);
	r = s ? 0 : r;
	for (size_t i = 0; s && i < s->n && r == 0; i++) {
		const struct file *f = &s->files[i];
		size_t len = strlen(path);
		const char *name = len ? f->path + len + 1 : f->path;
		struct sbx_object object;

		if (strncmp(f->path, path, len) != 0 || (len && f->path[len] != '/') ||
		    strchr(name, '/'))
			continue;
		describe(s, f, &object);
		r = fn(name, &object, data);
	}
	pthread_mutex_unlock(&h->lock);
	return r;
}

struct seeking {
	const char *name;
	struct sbx_object *ret;
};

static int seek(const char *name, const struct sbx_object *o, void *data)
{
	struct seeking *s = data;

	if (strcmp(name, s->name) != 0)
		return 0;
	*s->ret = *o;
	return 1;
}

static int fake_entry(struct sbx_sandbox *sb, const char *dir, const char *name,
                      struct sbx_object *ret)
{
	struct seeking s = {name, ret};
	int r = fake_entries(sb, dir, seek, &s);

	return r > 0 ? 0 : r < 0 ? r : -ENOENT;
}

static int fake_content(struct sbx_sandbox *sb, const char *id, int fd)
{
	struct fake_history *h = fake_history_of(sb);
	const struct file *f;
	const char *path;
	struct state *s;
	int r = hold(h, NULL, NULL);

	assert_int_equal(r, 0);
	pthread_mutex_lock(&h->lock);
	s = state_of(h, id, &path);
	f = s ? file_at(s, path) : NULL;
	if (f)
		assert_int_equal(write(fd, f->data, f->len), f->len);
	atomic_fetch_add(&h->backend->contents, 1);
	pthread_mutex_unlock(&h->lock);
	return f ? 0 : -ENOENT;
}

const struct sbx_history_impl fake_history_impl = {
        .snapshot = fake_snapshot,
        .forget = fake_forget,
        .list = fake_list,
        .restore = fake_restore,
        .diff = fake_diff,
        .tree = fake_tree,
        .entry = fake_entry,
        .entries = fake_entries,
        .content = fake_content,
};
