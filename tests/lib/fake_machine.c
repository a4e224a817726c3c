#include "tests/lib/fake_machine.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/remote/text.h"

#define MOST   600
#define STAMPS 4096

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct fake_file files[MOST];
static size_t n_files;
static uint64_t last_ino;
static int64_t now;
static struct {
	char name[64];
	int64_t at;
} stamps[STAMPS];
static size_t n_stamps;

static void drop(size_t i)
{
	free(files[i].data);
	files[i] = files[--n_files];
}

void fake_reset(void)
{
	pthread_mutex_lock(&lock);
	while (n_files)
		drop(0);
	now = INT64_C(1700000000000000000);
	files[n_files++] =
	        (struct fake_file){.type = 'd', .mode = 0755, .ino = ++last_ino, .ctime = now};
	n_stamps = 0;
	pthread_mutex_unlock(&lock);
}

static struct fake_file *find(const char *path)
{
	for (size_t i = 0; i < n_files; i++)
		if (strcmp(files[i].path, path) == 0)
			return &files[i];
	return NULL;
}

/* The directory of PATH, if there is one. */
static struct fake_file *dir_of(const char *path)
{
	const char *slash = strrchr(path, '/');
	char dir[120];
	struct fake_file *f;

	snprintf(dir, sizeof(dir), "%.*s", slash ? (int)(slash - path) : 0, path);
	f = find(dir);
	return f && f->type == 'd' ? f : NULL;
}

static bool is_below(const char *path, const char *dir)
{
	const size_t n = strlen(dir);

	return n ? strncmp(path, dir, n) == 0 && path[n] == '/' : path[0] != '\0';
}

static bool is_in(const char *path, const char *dir)
{
	const size_t n = strlen(dir);

	return is_below(path, dir) && !strchr(path + n + (n > 0), '/');
}

static bool is_empty(const char *dir)
{
	for (size_t i = 0; i < n_files; i++)
		if (is_below(files[i].path, dir))
			return false;
	return true;
}

static void touch_dir(const char *path)
{
	struct fake_file *dir = dir_of(path);

	dir->mtime = dir->ctime = now;
}

static struct fake_file *add(const char *path, char type)
{
	struct fake_file *f;

	if (n_files == MOST || find(path) || !dir_of(path))
		return NULL;
	touch_dir(path);
	f = &files[n_files++];
	*f = (struct fake_file){.type = type,
	                        .mode = type == 'f' ? 0644 : 0755,
	                        .ino = ++last_ino,
	                        .mtime = now,
	                        .ctime = now};
	snprintf(f->path, sizeof(f->path), "%s", path);
	return f;
}

static void set_data(struct fake_file *f, const char *data, size_t size)
{
	free(f->data);
	f->data = malloc(size + 1);
	memcpy(f->data, data, size);
	f->data[size] = '\0';
	f->size = size;
	f->mtime = f->ctime = now;
}

bool fake_write(const char *path, const char *data, size_t size)
{
	struct fake_file *f;

	pthread_mutex_lock(&lock);
	f = find(path);
	if (!f)
		f = add(path, 'f');
	if (f && f->type == 'f')
		set_data(f, data, size);
	else
		f = NULL;
	pthread_mutex_unlock(&lock);
	return f != NULL;
}

bool fake_make(const char *path, char type, const char *target)
{
	struct fake_file *f;

	pthread_mutex_lock(&lock);
	f = add(path, type);
	if (f && target)
		set_data(f, target, strlen(target));
	pthread_mutex_unlock(&lock);
	return f != NULL;
}

static bool remove_one(const char *path, bool all)
{
	struct fake_file *f = path[0] ? find(path) : NULL;

	if (!f || (f->type == 'd' && !all && !is_empty(path)))
		return false;
	touch_dir(path);
	for (size_t i = 0; i < n_files;)
		if (is_below(files[i].path, path))
			drop(i);
		else
			i++;
	drop((size_t)(find(path) - files));
	return true;
}

bool fake_put(const char *path, const char *data, size_t size)
{
	struct fake_file *f;
	bool ret;

	pthread_mutex_lock(&lock);
	f = find(path);
	if (f && f->type != 'd')
		remove_one(path, false);
	f = add(path, 'f');
	ret = f != NULL;
	if (f) {
		set_data(f, data, size);
		f->mtime -= 500000000;
	}
	pthread_mutex_unlock(&lock);
	return ret;
}

bool fake_remove(const char *path, bool all)
{
	bool ret;

	pthread_mutex_lock(&lock);
	ret = remove_one(path, all);
	pthread_mutex_unlock(&lock);
	return ret;
}

static bool move(const char *from, const char *to)
{
	struct fake_file *f = from[0] ? find(from) : NULL, *over = find(to);
	const size_t n = strlen(from);
	char path[120];

	if (!f || !dir_of(to) || is_below(to, from) || strcmp(from, to) == 0 || !to[0])
		return false;
	if (over && ((over->type == 'd') != (f->type == 'd') || !is_empty(to)))
		return false;
	for (size_t i = 0; i < n_files; i++)
		if (is_below(files[i].path, from) &&
		    strlen(files[i].path) - n + strlen(to) >= sizeof(path))
			return false;
	if (over)
		remove_one(to, false);
	touch_dir(from);
	touch_dir(to);
	for (size_t i = 0; i < n_files; i++) {
		if (strcmp(files[i].path, from) == 0)
			files[i].ctime = now;
		else if (!is_below(files[i].path, from))
			continue;
		snprintf(path, sizeof(path), "%s%s", to, files[i].path + n);
		memcpy(files[i].path, path, sizeof(path));
	}
	return true;
}

bool fake_move(const char *from, const char *to)
{
	bool ret;

	pthread_mutex_lock(&lock);
	ret = move(from, to);
	pthread_mutex_unlock(&lock);
	return ret;
}

bool fake_chmod(const char *path, unsigned mode)
{
	struct fake_file *f;

	pthread_mutex_lock(&lock);
	f = find(path);
	if (f) {
		f->mode = mode;
		f->ctime = now;
	}
	pthread_mutex_unlock(&lock);
	return f != NULL;
}

void fake_pass(int64_t ns)
{
	pthread_mutex_lock(&lock);
	now += ns;
	pthread_mutex_unlock(&lock);
}

uint64_t fake_now(void)
{
	uint64_t ret;

	pthread_mutex_lock(&lock);
	ret = (uint64_t)now;
	pthread_mutex_unlock(&lock);
	return ret;
}

bool fake_get(size_t i, struct fake_file *copy)
{
	bool ret;

	pthread_mutex_lock(&lock);
	ret = i < n_files;
	if (ret)
		*copy = files[i];
	pthread_mutex_unlock(&lock);
	return ret;
}

bool fake_find(const char *path, struct fake_file *copy)
{
	struct fake_file *f;

	pthread_mutex_lock(&lock);
	f = find(path);
	if (f)
		*copy = *f;
	pthread_mutex_unlock(&lock);
	return f != NULL;
}

/* ---- answers ---- */

static void record(struct remote_text *t, char flag, const struct fake_file *f)
{
	remote_text_printf(t, "%c%c %o %zu %lld.%09lld0 %llu 1 %s%c", flag, f->type, f->mode,
	                   f->size, (long long)(f->mtime / 1000000000),
	                   (long long)(f->mtime % 1000000000), (unsigned long long)f->ino,
	                   f->path[0] ? f->path : ".", 0);
	remote_text_printf(t, "%s%c", f->type == 'l' ? f->data : "", 0);
}

static void gone(struct remote_text *t, const char *path)
{
	remote_text_printf(t, "?f 0 0 0 0 0 %s%c%c", path, 0, 0);
}

void fake_record(char flag, const char *path, char *ret, size_t size)
{
	struct remote_text t = {0};
	struct fake_file *f;

	pthread_mutex_lock(&lock);
	f = find(path);
	if (f)
		record(&t, f->type == 'f' ? flag : '-', f);
	else
		gone(&t, path);
	pthread_mutex_unlock(&lock);
	for (size_t i = 0; i < t.n; i++)
		t.at[i] = t.at[i] ? t.at[i] : '|';
	snprintf(ret, size, "%s", t.at);
	remote_text_release(&t);
}

/* The directory with its names, and DEPTH - 1 levels of those below. */
static void list(struct remote_text *t, const struct fake_file *dir, int depth)
{
	record(t, 'L', dir);
	for (size_t i = 0; i < n_files; i++)
		if (is_in(files[i].path, dir->path)) {
			if (files[i].type == 'd' && depth > 1)
				list(t, &files[i], depth - 1);
			else
				record(t, '-', &files[i]);
		}
}

/* DIR, which has changed since, and what is below it and has. */
static void list_changed(struct remote_text *t, const struct fake_file *dir, int64_t since)
{
	record(t, 'L', dir);
	for (size_t i = 0; i < n_files; i++)
		if (is_in(files[i].path, dir->path)) {
			if (files[i].type == 'd' && files[i].ctime > since)
				list_changed(t, &files[i], since);
			else
				record(t, '-', &files[i]);
		}
}

static void changes_in(struct remote_text *t, const char *path, int64_t since)
{
	struct fake_file *dir = find(path);

	if (!dir) {
		gone(t, path);
	} else if (dir->type != 'd') {
		record(t, '-', dir);
	} else if (!since) {
		list(t, dir, 1);
	} else if (dir->ctime > since) {
		list_changed(t, dir, since);
	} else {
		for (size_t i = 0; i < n_files; i++)
			if (is_in(files[i].path, path) && files[i].ctime > since)
				record(t, '-', &files[i]);
	}
}

static void frame(struct remote_text *out, char kind, const char *word, uint64_t a,
                  const char *bytes, size_t n)
{
	static const char digits[] =
	        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

	remote_text_printf(out, "%c %s %llu 0 0 ", kind, word[0] ? word : "-",
	                   (unsigned long long)a);
	for (size_t i = 0; i < n; i += 3) {
		unsigned bits = 0;

		for (size_t j = i; j < i + 3; j++)
			bits = bits << 8 | (j < n ? (unsigned char)bytes[j] : 0);
		for (unsigned j = 0; j < 4; j++)
			remote_text_printf(out, "%c",
			                   i + j > n ? '=' : digits[bits >> (18 - 6 * j) & 63]);
	}
	remote_text_add(out, "\n");
}

/* Of a word like "2/a/b" the path, as r_unfold has it. */
static void unfold(const char *word, char *path, size_t size)
{
	char *at = path, rest[120];
	long keep = strtol(word, NULL, 10);

	if (strcmp(word, ".") == 0) {
		path[0] = '\0';
		return;
	}
	for (; keep; keep--) {
		char *slash = strchr(at, '/');

		at = slash ? slash + 1 : at + strlen(at);
	}
	snprintf(rest, sizeof(rest), "%s", strchr(word, '/') + 1);
	*at = '\0';
	snprintf(at, size - (size_t)(at - path), "%s%s", at > path && at[-1] != '/' ? "/" : "",
	         rest);
}

static int64_t since(const char *name)
{
	for (size_t i = 0; i < n_stamps; i++)
		if (strcmp(stamps[i].name, name) == 0)
			return (stamps[i].at / 1000000000 - 1) * 1000000000;
	return 0;
}

static void stamp(const char *name)
{
	if (since(name))
		return;
	if (n_stamps == STAMPS)
		n_stamps = 0;
	snprintf(stamps[n_stamps].name, sizeof(stamps[0].name), "%s", name);
	stamps[n_stamps++].at = now;
}

/* The words of a line, quotes taken off. */
static size_t split(char *line, char **words, size_t most)
{
	size_t n = 0;
	char *word, *save = NULL;

	for (word = strtok_r(line, " ", &save); word && n < most;
	     word = strtok_r(NULL, " ", &save)) {
		if (*word == '\'') {
			word++;
			word[strlen(word) - 1] = '\0';
		}
		words[n++] = word;
	}
	return n;
}

static void changes(struct remote_text *out, char **words, size_t n)
{
	const int64_t old = since(words[1]);
	struct remote_text t = {0};
	char path[120] = "";

	stamp(words[2]);
	remote_text_add(&t, "");
	for (size_t i = 3; i < n; i++) {
		char last[120] = "";

		snprintf(last, sizeof(last), "%s", path);
		unfold(words[i], path, sizeof(path));
		changes_in(&t, path, old);
		if (!path[0])
			snprintf(path, sizeof(path), "%s", last);
	}
	for (size_t i = 0; n == 3 && i < n_files; i++)
		if (files[i].type == 'd')
			changes_in(&t, files[i].path, old);
	frame(out, 'M', words[2], (uint64_t)now, t.at, t.n);
	remote_text_release(&t);
}

static void list_dirs(struct remote_text *out, char **words, size_t n)
{
	struct remote_text t = {0};

	remote_text_add(&t, "");
	for (size_t i = 2; i < n; i++) {
		const char *path = strcmp(words[i], ".") == 0 ? "" : words[i];
		struct fake_file *f = find(path);

		if (f && f->type != 'd')
			record(&t, '-', f);
		else if (f)
			list(&t, f, (int)(now / 1000 % 3) + 1);
		else
			gone(&t, path);
	}
	frame(out, 'M', "", (uint64_t)now, t.at, t.n);
	remote_text_release(&t);
}

static void read_file(struct remote_text *out, const char *word, const char *path, size_t from,
                      size_t n)
{
	struct fake_file *f = find(path);
	struct remote_text t = {0};

	if (f)
		record(&t, '-', f);
	else
		gone(&t, path);
	frame(out, 'M', word, (uint64_t)now, t.at, t.n);
	remote_text_release(&t);
	if (!f || f->type != 'f' || from > f->size)
		return;
	frame(out, 'D', word, from, f->data + from, n < f->size - from ? n : f->size - from);
}

static void gather(struct remote_text *out, char **words, size_t n)
{
	struct remote_text t = {0};

	remote_text_add(&t, "");
	for (size_t i = 3; i < n; i++)
		if (find(words[i]) && find(words[i])->type == 'f')
			record(&t, '-', find(words[i]));
	frame(out, 'M', "", (uint64_t)now, t.at, t.n);
	remote_text_release(&t);
	for (size_t i = 3; i < n; i++) {
		struct fake_file *f = find(words[i]);
		char word[16];

		snprintf(word, sizeof(word), "%zu", i - 3);
		if (f && f->type == 'f')
			frame(out, 'D', word, 0, f->data, f->size);
	}
}

static void answer_line(struct remote_text *out, char *line)
{
	static char *words[1000];
	const size_t n = split(line, words, 1000);
	struct remote_text t = {0};

	if (strcmp(words[0], "r_changes") == 0) {
		changes(out, words, n);
	} else if (strcmp(words[0], "r_list") == 0) {
		list_dirs(out, words, n);
	} else if (strcmp(words[0], "r_read") == 0) {
		read_file(out, words[1], words[2], strtoul(words[3], NULL, 10),
		          strtoul(words[4], NULL, 10));
	} else if (strcmp(words[0], "r_gather") == 0) {
		gather(out, words, n);
	} else if (strcmp(words[0], "r_all") == 0) {
		stamp(words[2]);
		list(&t, find(""), 100);
		frame(out, 'M', words[2], (uint64_t)now, t.at, t.n);
		remote_text_release(&t);
	}
}

char *fake_answer(const char *body)
{
	struct remote_text out = {0};
	char *copy = strdup(body), *line, *save = NULL;

	pthread_mutex_lock(&lock);
	for (line = strtok_r(copy, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		answer_line(&out, line);
	now += 1000;
	pthread_mutex_unlock(&lock);
	free(copy);
	remote_text_add(&out, ".\n");
	return out.at;
}
