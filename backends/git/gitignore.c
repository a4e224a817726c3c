/*
 * Patterns are kept in the order in which they were pushed, and tried from the last to the first.
 * Most are plain names or "*.suffix": they are compared, not matched. Where gitignore(5) leaves
 * room, it is done as git does it.
 */
#include "backends/git/gitignore.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "backends/git/wildmatch.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/grow.h"

struct pattern {
	const char *text; /* of len bytes, without "!" and the slashes at both ends; in the file's
	                     text */
	size_t len, literal;    /* as many bytes from its start are compared, not matched */
	struct sbx_glob *glob;  /* the rest; NULL: nothing is left */
	bool negated, dir_only; /* "!" before it, "/" behind it */
	bool name_only;         /* no slash in it: goes by the last component, at any depth */
	bool suffix;            /* "*" and then no more than text */
};

/* The patterns of one push. */
struct file {
	char *dir, *text;
	size_t dir_len, first; /* index of its first pattern */
};

struct sbx_ignore {
	bool icase;
	struct pattern *patterns;
	size_t count, room;
	struct file *files;
	size_t file_count, file_room;
	uint64_t work;
};

int sbx_ignore_new(bool icase, struct sbx_ignore **ret)
{
	struct sbx_ignore *ig = calloc(1, sizeof(*ig));

	if (!ig)
		return -ENOMEM;
	ig->icase = icase;
	*ret = ig;
	return 0;
}

void sbx_ignore_free(struct sbx_ignore *ig)
{
	if (!ig)
		return;
	while (ig->file_count)
		sbx_ignore_pop(ig);
	free(ig->patterns);
	free(ig->files);
	free(ig);
}

void sbx_ignore_pop(struct sbx_ignore *ig)
{
	struct file *file = &ig->files[--ig->file_count];

	while (ig->count > file->first)
		sbx_glob_free(ig->patterns[--ig->count].glob);
	free(file->dir);
	free(file->text);
}

/* Length of a line without the spaces at its end; one behind a backslash stays. */
static size_t trimmed(const char *line, size_t len)
{
	size_t keep = 0;

	for (size_t i = 0; i < len; i++) {
		if (line[i] == '\\') {
			if (++i == len)
				return len;
			keep = i + 1;
		} else if (line[i] != ' ') {
			keep = i + 1;
		}
	}
	return keep;
}

static size_t literal_length(const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (strchr("*?[\\", text[i]))
			return i;
	return len;
}

/* Takes a line apart; no pattern at all has the length 0. */
static void parse(struct pattern *p, const char *line, size_t len)
{
	p->negated = len && line[0] == '!';
	line += p->negated;
	len -= p->negated;
	p->dir_only = len && line[len - 1] == '/';
	len -= p->dir_only;
	p->name_only = !memchr(line, '/', len);
	if (!p->name_only && line[0] == '/')
		line++, len--;
	p->text = line;
	p->len = len;
	p->literal = literal_length(line, len);
	p->suffix = p->name_only && len && line[0] == '*' &&
	            literal_length(line + 1, len - 1) == len - 1;
}

static int add_line(struct sbx_ignore *ig, const char *line, size_t len)
{
	struct pattern p = {0};
	int r = 0;

	parse(&p, line, trimmed(line, len));
	if (!p.len)
		return 0;
	/* A name is matched whole, a path only behind what is compared: this decides what "a**"
	 * means. */
	if (p.name_only && p.literal < p.len)
		p.literal = 0;
	if (p.literal < p.len && !p.suffix)
		r = sbx_glob_compile(p.text + p.literal, p.len - p.literal, ig->icase, &p.glob);
	if (r == -EINVAL)
		return 0;
	if (r == 0)
		r = SBX_GROW(ig->patterns, ig->count, ig->room, 16);
	if (r < 0) {
		sbx_glob_free(p.glob);
		return r;
	}
	ig->patterns[ig->count++] = p;
	return 0;
}

/* Without the carriage return before the newline, and what a NUL byte hides from git. */
static size_t line_length(const char *line, size_t len)
{
	if (len && line[len - 1] == '\r')
		len--;
	return strnlen(line, len);
}

static int add_lines(struct sbx_ignore *ig, const char *text, size_t len)
{
	const char *end = text + len;
	int r = 0;

	if (len >= 3 && !memcmp(text, "\xef\xbb\xbf", 3))
		text += 3;
	while (r == 0 && text < end) {
		const char *newline = memchr(text, '\n', (size_t)(end - text));
		const char *stop = newline ? newline : end;

		if (text[0] != '#')
			r = add_line(ig, text, line_length(text, (size_t)(stop - text)));
		text = stop + 1;
	}
	return r;
}

int sbx_ignore_push(struct sbx_ignore *ig, const char *dir, const char *text, size_t len)
{
	struct file *file;
	int r = SBX_GROW(ig->files, ig->file_count, ig->file_room, 16);

	if (r < 0)
		return r;
	file = &ig->files[ig->file_count];
	file->dir = strdup(dir);
	file->dir_len = strlen(dir);
	file->text = malloc(len ? len : 1);
	file->first = ig->count;
	ig->file_count++;
	r = file->dir && file->text ? 0 : -ENOMEM;
	if (r == 0 && len) {
		memcpy(file->text, text, len);
		r = add_lines(ig, file->text, len);
	}
	if (r < 0)
		sbx_ignore_pop(ig);
	return r;
}

static bool same(const struct sbx_ignore *ig, const char *a, const char *b, size_t len)
{
	return ig->icase ? !strncasecmp(a, b, len) : !memcmp(a, b, len);
}

static bool matches_name(struct sbx_ignore *ig, const struct pattern *p, const char *name,
                         size_t len)
{
	if (p->suffix)
		return len >= p->len - 1 &&
		       same(ig, name + len - (p->len - 1), p->text + 1, p->len - 1);
	if (p->glob)
		return sbx_glob_match(p->glob, name, len, &ig->work);
	return len == p->len && same(ig, name, p->text, len);
}

/* PATH is from the directory of the pattern's file. */
static bool matches_path(struct sbx_ignore *ig, const struct pattern *p, const char *path,
                         size_t len)
{
	if (len < p->literal || !same(ig, path, p->text, p->literal))
		return false;
	if (p->glob)
		return sbx_glob_match(p->glob, path + p->literal, len - p->literal, &ig->work);
	return len == p->literal;
}

/* The last pattern of FILE, of those before END, that fits; NULL: none does. */
static const struct pattern *find(struct sbx_ignore *ig, const struct file *file, size_t end,
                                  const char *path, bool directory)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	size_t name_len = strlen(name), len = (size_t)(name - path) + name_len;

	for (size_t i = end; i > file->first; i--) {
		const struct pattern *p = &ig->patterns[i - 1];

		ig->work++;
		if (p->dir_only && !directory)
			continue;
		if (p->name_only ? matches_name(ig, p, name, name_len)
		                 : matches_path(ig, p, path, len))
			return p;
	}
	return NULL;
}

/* PATH as FILE's directory sees it; NULL: it is not below. */
static const char *below(const struct sbx_ignore *ig, const struct file *file, const char *path)
{
	if (!file->dir_len)
		return path;
	if (strnlen(path, file->dir_len + 1) <= file->dir_len || path[file->dir_len] != '/' ||
	    !same(ig, path, file->dir, file->dir_len))
		return NULL;
	return path + file->dir_len + 1;
}

bool sbx_ignore_match(struct sbx_ignore *ig, const char *path, bool directory)
{
	size_t end = ig->count;

	for (size_t i = ig->file_count; i > 0; i--) {
		const struct file *file = &ig->files[i - 1];
		const char *inside = below(ig, file, path);
		const struct pattern *p = NULL;

		if (inside)
			p = find(ig, file, end, inside, directory);
		if (p)
			return !p->negated;
		end = file->first;
	}
	return false;
}

uint64_t sbx_ignore_work(const struct sbx_ignore *ig)
{
	return ig->work;
}

bool sbx_ignore_reaches(const struct sbx_ignore *ig, const char *dir)
{
	for (size_t i = 0; i < ig->file_count; i++) {
		const struct file *file = &ig->files[i];
		size_t end = i + 1 < ig->file_count ? file[1].first : ig->count;
		const char *inside = below(ig, file, dir);

		for (size_t j = file->first; j < end; j++) {
			const struct pattern *p = &ig->patterns[j];
			size_t len = inside ? strlen(inside) : 0;

			if (p->negated)
				continue;
			if (!inside || p->name_only ||
			    (same(ig, inside, p->text, len < p->literal ? len : p->literal) &&
			     (len >= p->literal || p->text[len] == '/')))
				return true;
		}
	}
	return false;
}
