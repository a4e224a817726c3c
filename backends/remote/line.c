/* A change as a line of the journal, and back. What is read was perhaps damaged by a disk. */
#include "backends/remote/line.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "sandboxfs/cleanup.h"

/* By enum sbx_change_kind. A file that was emptied has contents that are unsent, as any. */
static const char *const words[] = {
        [SBX_CHANGE_DATA] = "data",     [SBX_CHANGE_EMPTIED] = "emptied",
        [SBX_CHANGE_MADE] = "made",     [SBX_CHANGE_GONE] = "gone",
        [SBX_CHANGE_MOVED] = "moved",   [SBX_CHANGE_SWAPPED] = "swapped",
        [SBX_CHANGE_LINKED] = "linked", [SBX_CHANGE_STATUS] = "status",
};

/* By enum remote_tense. */
static const char *const marks[] = {"", "?", "!"};

#define FIELDS 6 /* words of a line at most */

static bool has_other_path(enum sbx_change_kind kind)
{
	return kind == SBX_CHANGE_MOVED || kind == SBX_CHANGE_SWAPPED || kind == SBX_CHANGE_LINKED;
}

static bool has_target(const struct sbx_change *c)
{
	return c->kind == SBX_CHANGE_MADE && S_ISLNK(c->mode);
}

static bool is_plain(unsigned char c)
{
	return c > ' ' && c != 0x7f && c != '%';
}

static void add_word(struct remote_text *t, const char *word)
{
	remote_text_add_n(t, *word ? " " : " .", *word ? 1 : 2);
	if (*word == '.') {
		remote_text_add(t, "%2E");
		word++;
	}
	while (*word) {
		size_t n = 0;

		while (is_plain((unsigned char)word[n]))
			n++;
		remote_text_add_n(t, word, n);
		word += n;
		if (*word)
			remote_text_printf(t, "%%%02X", (unsigned char)*word++);
	}
}

void remote_line_write(struct remote_text *t, uint64_t seq, enum remote_tense tense,
                       const struct sbx_change *c)
{
	remote_text_printf(t, "%" PRIu64 " %s%s %" PRIu64 " %o", seq, marks[tense], words[c->kind],
	                   c->ino, (unsigned)c->mode);
	add_word(t, c->path);
	if (has_other_path(c->kind))
		add_word(t, c->to);
	else if (has_target(c))
		add_word(t, c->target);
	remote_text_add_n(t, "\n", 1);
}

static int digit_of(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Decodes WORD where it stands. */
static bool decode(char *word)
{
	char *out = word;

	if (strcmp(word, ".") == 0)
		word++;
	else if (*word == '.')
		return false;
	for (; *word; word++) {
		const bool coded = *word == '%';
		const int high = coded ? digit_of(word[1]) : 0;
		const int low = coded && high >= 0 ? digit_of(word[2]) : 0;

		if (high < 0 || low < 0 || (coded && !high && !low))
			return false;
		if (!coded && !is_plain((unsigned char)*word))
			return false;
		*out++ = coded ? (char)(high * 16 + low) : *word;
		word += coded ? 2 : 0;
	}
	*out = '\0';
	return true;
}

/* Whether PATH has no empty part, no "." and no "..". "" is the root. */
static bool is_path(const char *path)
{
	while (*path) {
		const size_t n = strcspn(path, "/");

		if (!n || (n <= 2 && strncmp(path, "..", n) == 0) || (path[n] && !path[n + 1]))
			return false;
		path += n + (path[n] != '\0');
	}
	return true;
}

static bool read_number(const char *word, int base, uint64_t *ret)
{
	char *end;

	if (*word < '0' || *word > '9' || (word[0] == '0' && word[1]))
		return false;
	errno = 0;
	*ret = strtoull(word, &end, base);
	return !errno && !*end;
}

/* Only what takes a name from something is meant before. */
static bool is_meant(enum sbx_change_kind kind)
{
	return kind == SBX_CHANGE_GONE || kind == SBX_CHANGE_MOVED || kind == SBX_CHANGE_SWAPPED;
}

static bool read_op(const char *word, enum remote_tense *tense, enum sbx_change_kind *kind)
{
	*tense = *word == '?' ? REMOTE_MEANT : *word == '!' ? REMOTE_DROPPED : REMOTE_DONE;
	word += strlen(marks[*tense]);
	for (size_t i = 0; i < SBX_ARRAY_SIZE(words); i++)
		if (strcmp(words[i], word) == 0) {
			*kind = (enum sbx_change_kind)i;
			return *tense == REMOTE_DONE || is_meant(*kind);
		}
	return false;
}

/* Cuts TEXT at its blanks. How many words there are; 0: too many. */
static size_t split(char *text, char *fields[FIELDS])
{
	size_t n = 0;

	for (char *at = text; at; n++) {
		if (n == FIELDS)
			return 0;
		fields[n] = at;
		at = strchr(at, ' ');
		if (at)
			*at++ = '\0';
	}
	return n;
}

static bool read_fields(char *fields[FIELDS], size_t n, struct remote_line *line)
{
	struct sbx_change *c = &line->change;
	uint64_t mode;

	if (n < 5 || !read_number(fields[0], 10, &line->seq) ||
	    !read_op(fields[1], &line->tense, &c->kind) || !read_number(fields[2], 10, &c->ino) ||
	    !read_number(fields[3], 8, &mode) || mode > (S_IFMT | 07777))
		return false;
	c->mode = (mode_t)mode;
	if (n != (has_other_path(c->kind) || has_target(c) ? 6 : 5))
		return false;
	for (size_t i = 4; i < n; i++)
		if (!decode(fields[i]))
			return false;
	c->path = fields[4];
	if (!is_path(c->path) || (!*c->path && c->kind != SBX_CHANGE_STATUS))
		return false;
	if (has_target(c))
		c->target = fields[5];
	else if (n == 6)
		c->to = fields[5];
	return !c->to || (*c->to && is_path(c->to));
}

int remote_line_read(const char *text, size_t len, struct remote_line *ret)
{
	_cleanup_free_ char *store = NULL;
	struct remote_line line = {0};
	char *fields[FIELDS];

	if (memchr(text, '\0', len))
		return -EUCLEAN;
	store = strndup(text, len);
	if (!store)
		return -ENOMEM;
	if (!read_fields(fields, split(store, fields), &line))
		return -EUCLEAN;
	*ret = line;
	ret->store = sbx_steal_ptr(&store);
	return 0;
}

void remote_line_release(struct remote_line *line)
{
	free(line->store);
	*line = (struct remote_line){0};
}

static const char head[] = "sandboxfs-journal 1 ";

void remote_head_write(struct remote_text *t, const char *id)
{
	remote_text_printf(t, "%s%s\n", head, id);
}

static int damaged(const char *file, size_t line, struct sbx_error *err)
{
	return sbx_fail(err, EUCLEAN, "the journal is damaged: line %zu of %s", line, file);
}

/* TEXT of LEN bytes is the first line. */
static bool read_head(const char *text, size_t len, char id[REMOTE_ID_SIZE])
{
	const size_t n = sizeof(head) - 1;

	if (len != n + REMOTE_ID_SIZE - 1 || memcmp(text, head, n) != 0)
		return false;
	memcpy(id, text + n, REMOTE_ID_SIZE - 1);
	id[REMOTE_ID_SIZE - 1] = '\0';
	return strspn(id, "0123456789abcdef") == REMOTE_ID_SIZE - 1;
}

int remote_lines_read(const char *text, size_t len, const char *file, char id[REMOTE_ID_SIZE],
                      uint64_t *seq, int (*fn)(const struct remote_line *line, void *data),
                      void *data, size_t *whole, struct sbx_error *err)
{
	const char *end;
	size_t lines = 0;

	id[0] = '\0';
	*whole = 0;
	while ((end = memchr(text + *whole, '\n', len - *whole))) {
		const char *at = text + *whole;
		struct remote_line line;
		int r;

		*whole = (size_t)(end + 1 - text);
		if (lines++ == 0) {
			if (!read_head(at, (size_t)(end - at), id))
				return damaged(file, lines, err);
			continue;
		}
		r = remote_line_read(at, (size_t)(end - at), &line);
		if (r == -ENOMEM)
			return sbx_no_memory(err);
		if (r || (*seq && line.seq != *seq) || !line.seq || line.seq == UINT64_MAX) {
			if (!r)
				remote_line_release(&line);
			return damaged(file, lines, err);
		}
		*seq = line.seq + 1;
		r = fn(&line, data);
		remote_line_release(&line);
		if (r)
			return r;
	}
	return 0;
}
