/*
 * The journal of an earlier daemon. Each file that has a line is a batch as that daemon cut it,
 * perhaps sent in part: lines go on in a new one.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/remote/journal_impl.h"
#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/grow.h"

#define FILE_MAX_BYTES ((uint64_t)1024 * 1024 * 1024)

static const char prefix[] = "journal.";

void remote_journal_name(char name[REMOTE_JOURNAL_NAME], uint64_t number)
{
	snprintf(name, REMOTE_JOURNAL_NAME, "%s%" PRIu64, prefix, number);
}

/* Numbers of the files that there are. */
struct numbers {
	uint64_t *at;
	size_t n, cap;
};

static void release_numbers(struct numbers *numbers)
{
	free(numbers->at);
}

static int add_number(const char *name, unsigned char type, void *data)
{
	struct numbers *numbers = data;
	char again[REMOTE_JOURNAL_NAME];
	uint64_t number;

	(void)type;
	if (strncmp(name, prefix, sizeof(prefix) - 1) != 0)
		return 0;
	number = strtoull(name + sizeof(prefix) - 1, NULL, 10);
	remote_journal_name(again, number);
	if (!number || number == UINT64_MAX || strcmp(name, again) != 0)
		return 0;
	if (SBX_GROW(numbers->at, numbers->n, numbers->cap, 8))
		return -ENOMEM;
	numbers->at[numbers->n++] = number;
	return 0;
}

static int compare_numbers(const void *one, const void *other)
{
	const uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;

	return a < b ? -1 : a > b;
}

static int find_numbers(struct remote_journal *j, struct numbers *numbers, struct sbx_error *err)
{
	_cleanup_fd_ int fd = openat(j->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r = fd < 0 ? -errno : sbx_dir_scan(fd, add_number, numbers);

	if (r)
		return sbx_fail(err, -r, "cannot list the journal: %s", strerror(-r));
	if (numbers->n)
		qsort(numbers->at, numbers->n, sizeof(*numbers->at), compare_numbers);
	for (size_t i = 1; i < numbers->n; i++)
		if (numbers->at[i] != numbers->at[i - 1] + 1)
			return sbx_fail(err, EUCLEAN,
			                "the journal is damaged: %s%" PRIu64 " is missing", prefix,
			                numbers->at[i - 1] + 1);
	return 0;
}

/* The bytes of the file NAME; *RET is malloc'd. */
static int read_file(struct remote_journal *j, const char *name, char **ret, size_t *len)
{
	_cleanup_fd_ int fd = openat(j->dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;
	ssize_t n;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size > FILE_MAX_BYTES)
		return -EUCLEAN;
	*ret = malloc((size_t)st.st_size + 1);
	if (!*ret)
		return -ENOMEM;
	n = sbx_read_all(fd, *ret, (size_t)st.st_size);
	*len = n < 0 ? 0 : (size_t)n;
	return n < 0 ? (int)n : 0;
}

int remote_journal_read(struct remote_journal *j, uint64_t number, uint64_t *seq,
                        int (*fn)(const struct remote_line *line, void *data), void *data,
                        size_t *whole, struct sbx_error *err)
{
	char name[REMOTE_JOURNAL_NAME], id[REMOTE_ID_SIZE];
	_cleanup_free_ char *text = NULL;
	size_t len = 0;
	int r;

	remote_journal_name(name, number);
	r = read_file(j, name, &text, &len);
	if (r)
		return sbx_fail(err, -r, "cannot read %s: %s", name, strerror(-r));
	r = remote_lines_read(text, len, name, id, seq, fn, data, whole, err);
	if (r)
		return r;
	if (*id && *j->id && strcmp(id, j->id) != 0)
		return sbx_fail(err, EUCLEAN, "the journal is damaged: %s is of another", name);
	if (*id)
		memcpy(j->id, id, sizeof(id));
	return 0;
}

static int take_line(const struct remote_line *line, void *data)
{
	struct remote_journal *j = data;

	if (line->tense == REMOTE_MEANT)
		return remote_meant_add(&j->meant, &line->change);
	remote_meant_remove(&j->meant, &line->change);
	if (line->tense == REMOTE_DONE) {
		j->open->lines++;
		remote_journal_take(j, &line->change);
	}
	return 0;
}

/* The batch behind those that have lines, with its file (FD: -1, it is still to be made). */
static int begin(struct remote_journal *j, uint64_t number, int fd, size_t size,
                 struct sbx_error *err)
{
	unsigned char bytes[(REMOTE_ID_SIZE - 1) / 2];

	j->fd = fd;
	j->size = size;
	if (!remote_journal_append(j, number))
		return sbx_no_memory(err);
	if (*j->id)
		return 0;
	if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes))
		return sbx_fail(err, errno, "there are no random numbers: %s", strerror(errno));
	for (size_t i = 0; i < sizeof(bytes); i++)
		snprintf(j->id + 2 * i, 3, "%02x", bytes[i]);
	return 0;
}

/*
 * Of the files from I on, none of which has a line, the first goes on, if its head is whole, as
 * WHOLE says of the last file. The others are made anew.
 */
static int go_on(struct remote_journal *j, const struct numbers *numbers, size_t i,
                 const size_t *whole, struct sbx_error *err)
{
	const uint64_t number = i < numbers->n ? numbers->at[i] : i ? numbers->at[i - 1] + 1 : 1;
	char name[REMOTE_JOURNAL_NAME];
	int fd = -1;

	for (size_t k = i + (whole[i] > 0); k < numbers->n; k++) {
		remote_journal_name(name, numbers->at[k]);
		if (unlinkat(j->dir, name, 0) < 0 && errno != ENOENT)
			return sbx_fail(err, errno, "cannot remove %s: %s", name, strerror(errno));
	}
	if (whole[i]) {
		remote_journal_name(name, number);
		fd = openat(j->dir, name, O_RDWR | O_APPEND | O_NOFOLLOW | O_CLOEXEC);
		if (fd < 0 || ftruncate(fd, (off_t)whole[i]) < 0) {
			const int code = errno;

			sbx_cleanup_fd(&fd);
			return sbx_fail(err, code, "cannot write %s: %s", name, strerror(code));
		}
	}
	return begin(j, number, fd, whole[i], err);
}

/* Forgets all batches but the first KEEP. */
static void drop_tail(struct remote_journal *j, size_t keep)
{
	struct remote_batch_all **at = &j->first;

	j->open = NULL;
	for (; keep; keep--) {
		j->open = *at;
		at = &(*at)->next;
	}
	while (*at) {
		struct remote_batch_all *b = *at;

		*at = b->next;
		remote_batch_free(b);
	}
}

int remote_journal_load(struct remote_journal *j, struct sbx_error *err)
{
	_cleanup_(release_numbers) struct numbers numbers = {0};
	_cleanup_free_ size_t *whole = NULL;
	size_t lines = 0;
	int r = find_numbers(j, &numbers, err);

	if (r)
		return r;
	/* One more, which is 0: there is no file. */
	whole = calloc(numbers.n + 1, sizeof(*whole));
	if (!whole)
		return sbx_no_memory(err);
	for (size_t i = 0; i < numbers.n; i++) {
		if (!remote_journal_append(j, numbers.at[i]))
			return sbx_no_memory(err);
		r = remote_journal_read(j, numbers.at[i], &j->seq, take_line, j, &whole[i], err);
		if (r || j->open->damaged)
			return r && r != -ENOMEM ? r : sbx_no_memory(err);
		if (j->open->lines)
			lines = i + 1;
	}
	j->seq = j->seq ? j->seq : 1;
	j->seen = numbers.n ? numbers.at[0] - 1 : 0;
	j->touched.floor = j->seen;
	drop_tail(j, lines);
	return go_on(j, &numbers, lines, whole, err);
}
