/*
 * The records are copied once and then pointed into. Sorted by directory, the names of one stand
 * together, so that it is opened once, and a directory is made before what lies in it.
 */
#include "backends/remote/manifest.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "backends/remote/plan.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"
#include "sandboxfs/grow.h"

#define STAGE      ".sandboxfs-stage" /* where the runner has files for a moment */
#define SIZE_LIMIT ((uint64_t)1 << 62)

void remote_manifest_release(struct remote_manifest *m)
{
	free(m->items);
	free(m->store);
	*m = (struct remote_manifest){0};
}

/* The length of the directory of PATH; that of a name in the root is 0. */
static size_t dir_length(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? (size_t)(slash - path) : 0;
}

/* A byte of a directory's path as it sorts: the end first, then the slash. */
static unsigned weight(const char *dir, size_t len, size_t at)
{
	const unsigned char c = at < len ? (unsigned char)dir[at] : 0;

	return at >= len ? 0 : c == '/' ? 1 : c + 2u;
}

static int order_dirs(const char *a, size_t a_len, const char *b, size_t b_len)
{
	size_t i = 0;

	while (i < a_len && i < b_len && a[i] == b[i])
		i++;
	if (i == a_len && i == b_len)
		return 0;
	return weight(a, a_len, i) < weight(b, b_len, i) ? -1 : 1;
}

int remote_path_order(const char *a, const char *b)
{
	const size_t a_len = dir_length(a), b_len = dir_length(b);
	int r = order_dirs(a, a_len, b, b_len);

	if (r)
		return r;
	return strcmp(a + a_len, b + b_len);
}

static int order_items(const void *a, const void *b)
{
	const struct remote_listed *x = a, *y = b;
	int r = remote_path_order(x->path, y->path);

	/* Of what is told twice the later counts: paths point into the text in its order. */
	if (!r)
		r = x->path < y->path ? -1 : x->path > y->path;
	return r;
}

static int order_key(const void *key, const void *item)
{
	return remote_path_order(key, ((const struct remote_listed *)item)->path);
}

const struct remote_listed *remote_manifest_find(const struct remote_manifest *m, const char *path)
{
	if (!m->n)
		return NULL;
	return bsearch(path, m->items, m->n, sizeof(*m->items), order_key);
}

/* The first item from FROM on whose directory is not before DIR, or with PAST, behind it. */
static size_t bound(const struct remote_manifest *m, size_t from, const char *dir, size_t len,
                    bool past)
{
	size_t low = from, high = m->n;

	while (low < high) {
		const size_t mid = low + (high - low) / 2;
		const char *path = m->items[mid].path;
		const int r = order_dirs(path, dir_length(path), dir, len);

		if (r < 0 || (past && !r))
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

size_t remote_manifest_within(const struct remote_manifest *m, const char *path, size_t *end)
{
	const size_t len = strlen(path);
	size_t first = bound(m, 0, path, len, false);

	*end = bound(m, first, path, len, true);
	/* The root lies in no directory, but sorts as if in itself. */
	if (!len && first < *end && !m->items[first].path[0])
		first++;
	return first;
}

/* A number of BASE below LIMIT, that a blank ends. */
static bool take_number(const char **at, unsigned base, uint64_t limit, uint64_t *ret)
{
	const char *c = *at;
	uint64_t n = 0;

	for (; *c >= '0' && *c < (char)('0' + base); c++) {
		if (n > (UINT64_MAX - 9) / base)
			return false;
		n = n * base + (uint64_t)(*c - '0');
	}
	if (c == *at || *c != ' ' || n >= limit)
		return false;
	*ret = n;
	*at = c + 1;
	return true;
}

/*
 * Up to what is behind it. Digits behind the ninth, which find(1) prints, are none of a nanosecond.
 * A time that is too far away is as far as can be: a file that is left out is gone.
 */
static bool take_time(const char **at, int64_t *ret)
{
	const bool before = **at == '-';
	const char *c = *at + before;
	int64_t seconds = 0, ns = 0, unit = 100000000;

	if (!isdigit((unsigned char)*c))
		return false;
	for (; isdigit((unsigned char)*c); c++)
		if ((seconds = seconds * 10 + (*c - '0')) > SBX_SECONDS_MAX)
			seconds = SBX_SECONDS_MAX;
	if (*c == '.')
		for (c++; isdigit((unsigned char)*c); c++, unit /= 10)
			ns += (*c - '0') * unit;
	if (seconds == SBX_SECONDS_MAX)
		ns = 0;
	*ret = (before ? -seconds : seconds) * INT64_C(1000000000) + ns;
	*at = c;
	return true;
}

static bool take_times(const char **at, struct remote_listed *ret)
{
	if (!take_time(at, &ret->mtime_ns))
		return false;
	if (**at == ',') {
		++*at;
		if (!take_time(at, &ret->ctime_ns))
			return false;
	}
	return *(*at)++ == ' ';
}

static bool take_type(char c, mode_t *ret)
{
	switch (c) {
	case 'f':
		*ret = S_IFREG;
		return true;
	case 'd':
		*ret = S_IFDIR;
		return true;
	case 'l':
		*ret = S_IFLNK;
		return true;
	case 'p':
		*ret = S_IFIFO;
		return true;
	case 's':
		*ret = S_IFSOCK;
		return true;
	default:
		return false;
	}
}

/* PATH as it stands in an item; NULL where it cannot be one of the tree, or is the machine's own.
 */
static const char *clean_path(const char *path)
{
	const char *part;

	if (strcmp(path, ".") == 0)
		return path + 1;
	if (strncmp(path, "./", 2) == 0)
		path += 2;
	if (strlen(path) >= PATH_MAX || strncmp(path, STAGE, strlen(STAGE)) == 0)
		return NULL;
	for (part = path;; part++) {
		const size_t len = strcspn(part, "/");

		if (!len || len > NAME_MAX || (len == 1 && part[0] == '.') ||
		    (len == 2 && part[0] == '.' && part[1] == '.') ||
		    (len == 4 && memcmp(part, ".git", 4) == 0) ||
		    strncmp(part, REMOTE_SWAP, strlen(REMOTE_SWAP)) == 0)
			return NULL;
		part += len;
		if (!*part)
			return path;
	}
}

/* What a record has before its path; *AT is moved there. */
static bool take_head(const char **at, struct remote_listed *ret)
{
	const char flag = **at;
	uint64_t mode, nlink;
	mode_t type = 0;

	if (!flag || !strchr("L=~?-", flag) || !take_type((*at)[1], &type) || (*at)[2] != ' ')
		return false;
	*at += 3;
	if (!take_number(at, 8, 010000, &mode) || !take_number(at, 10, SIZE_LIMIT, &ret->size) ||
	    !take_times(at, ret) || !take_number(at, 10, UINT64_MAX - 9, &ret->ino) ||
	    !take_number(at, 10, UINT32_MAX, &nlink))
		return false;
	ret->mode = flag == '?' ? 0 : type | (mode & (type == S_IFDIR ? 03777 : 0777));
	ret->nlink = (uint32_t)nlink;
	ret->complete = flag == 'L' && type == S_IFDIR;
	ret->came = flag == '~';
	ret->sent = flag == '=' || ret->came;
	return true;
}

/* 1: RET is an item; 0: the record is left out; -EPROTO: it is none. */
static int read_record(const char *record, const char *target, struct remote_listed *ret)
{
	const char *at = record;

	*ret = (struct remote_listed){.target = target};
	if (!take_head(&at, ret))
		/* Of a kind or a size that is left out there are records too. */
		return record[0] && strchr("L=~?-", record[0]) && record[1] && record[2] == ' '
		               ? 0
		               : -EPROTO;
	ret->path = clean_path(at);
	if (!ret->path)
		return 0;
	if (!ret->path[0] && !S_ISDIR(ret->mode))
		return 0;
	if (S_ISLNK(ret->mode) && (!target[0] || strlen(target) >= PATH_MAX))
		return 0;
	return 1;
}

static int add(struct remote_manifest *m, size_t *cap, const struct remote_listed *item)
{
	if (m->n == REMOTE_NAMES_MAX) {
		m->more = true;
		return 0;
	}
	if (SBX_GROW(m->items, m->n, *cap, 64))
		return -ENOMEM;
	m->items[m->n++] = *item;
	return 0;
}

static int read_records(struct remote_manifest *m, size_t len)
{
	const char *at = m->store, *end = m->store + len;
	size_t cap = 0;

	while (at < end && m->n <= REMOTE_NAMES_MAX) {
		const char *target = memchr(at, '\0', (size_t)(end - at));
		const char *next;
		struct remote_listed item;
		int r;

		next = target ? memchr(target + 1, '\0', (size_t)(end - target - 1)) : NULL;
		if (!next || strcmp(at, "!") == 0) {
			m->more = true;
			return 0;
		}
		r = read_record(at, target + 1, &item);
		if (r > 0)
			r = add(m, &cap, &item);
		if (r < 0)
			return r;
		at = next + 1;
	}
	return 0;
}

/* Whether the directory that the items from I on lie in is none, as they themselves say. */
static bool lies_in_file(const struct remote_manifest *m, size_t i)
{
	const size_t len = dir_length(m->items[i].path);
	const struct remote_listed *dir;
	char path[PATH_MAX];

	if (!len)
		return false;
	memcpy(path, m->items[i].path, len);
	path[len] = '\0';
	dir = remote_manifest_find(m, path);
	return dir && !S_ISDIR(dir->mode);
}

static bool same_dir(const struct remote_listed *a, const struct remote_listed *b)
{
	const size_t len = dir_length(a->path);

	return len == dir_length(b->path) && memcmp(a->path, b->path, len) == 0;
}

/*
 * Of what stands there twice the later is kept, and that one of both was complete. That nothing is
 * there may have been said of a directory which another thing had taken the place of.
 */
static void keep_one_each(struct remote_manifest *m)
{
	size_t n = 0;

	for (size_t i = 0; i < m->n; i++) {
		if (n && strcmp(m->items[n - 1].path, m->items[i].path) == 0) {
			m->items[i].complete |=
			        m->items[n - 1].complete && S_ISDIR(m->items[i].mode);
			if (!m->items[i].mode)
				continue;
			n--;
		}
		m->items[n++] = m->items[i];
	}
	m->n = n;
}

static void drop_impossible(struct remote_manifest *m)
{
	bool drop = false;
	size_t kept = 0;

	/* A search needs the whole array: what is dropped is marked first. */
	for (size_t i = 0; i < m->n; i++) {
		if (!i || !same_dir(&m->items[i - 1], &m->items[i]))
			drop = lies_in_file(m, i);
		if (drop && m->items[i].mode)
			m->items[i].nlink = UINT32_MAX;
	}
	for (size_t i = 0; i < m->n; i++)
		if (m->items[i].nlink != UINT32_MAX)
			m->items[kept++] = m->items[i];
	m->n = kept;
}

int remote_manifest_read(const void *bytes, size_t len, int64_t begun_ns,
                         struct remote_manifest *ret, struct sbx_error *err)
{
	struct remote_manifest m = {.begun_ns = begun_ns};
	int r;

	m.store = malloc(len + 1);
	if (!m.store)
		return sbx_no_memory(err);
	memcpy(m.store, bytes, len);
	m.store[len] = '\0';
	r = read_records(&m, len);
	if (r) {
		remote_manifest_release(&m);
		return r == -EPROTO ? sbx_fail(err, EPROTO,
		                               "the machine's listing of its tree "
		                               "cannot be understood")
		                    : sbx_no_memory(err);
	}
	if (m.n)
		qsort(m.items, m.n, sizeof(*m.items), order_items);
	keep_one_each(&m);
	drop_impossible(&m);
	for (size_t i = 0; m.more && i < m.n; i++) {
		m.items[i].cut = m.items[i].complete;
		m.items[i].complete = false;
	}
	*ret = m;
	return 0;
}
