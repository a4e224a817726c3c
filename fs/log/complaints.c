/*
 * A line is judged by the words of an errno in it; what in it begins with a slash, quoted or not,
 * is then a path that may be meant. More than one may be, because only a look at the host tells
 * which.
 */
#include "fs/log/complaints.h"

#include <limits.h>
#include <stdbool.h>
#include <string.h>

#include "sandboxfs/cleanup.h"

#define WORD_MAX  255 /* bytes of a program's name */
#define TRIES_MAX 32  /* slashes of a line that are looked at */

static const struct {
	const char *words;
	enum sbx_complaint_kind kind;
} phrases[] = {
        {"no such file", SBX_COMPLAINT_MISSING},
        {"directory nonexistent", SBX_COMPLAINT_MISSING},
        {"enoent", SBX_COMPLAINT_MISSING},
        {": not found", SBX_COMPLAINT_MISSING},
        {"command not found", SBX_COMPLAINT_MISSING},
        {"read-only file system", SBX_COMPLAINT_READ_ONLY},
        {"erofs", SBX_COMPLAINT_READ_ONLY},
        {"permission denied", SBX_COMPLAINT_REFUSED},
        {"eacces", SBX_COMPLAINT_REFUSED},
};

static void add(struct sbx_complaints *ret, enum sbx_complaint_kind kind, const char *name)
{
	for (size_t i = 0; i < ret->n; i++)
		if (ret->all[i].kind == kind && strcmp(ret->all[i].name, name) == 0)
			return;
	if (ret->n < SBX_COMPLAINTS_MAX)
		ret->all[ret->n++] = (struct sbx_complaint){.kind = kind, .name = name};
}

static bool has_controls(const char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text < ' ' || *text == 127)
			return true;
	return false;
}

/* --- paths ---------------------------------------------------------------------------------- */

/* PATH loses slashes at its end. Whether it is one that means the same wherever it is looked at. */
static bool is_plain(char *path)
{
	size_t n = strlen(path);

	while (n > 1 && path[n - 1] == '/')
		path[--n] = '\0';
	if (n < 2 || n >= PATH_MAX || has_controls(path))
		return false;
	for (const char *part = path; part; part = strchr(part + 1, '/')) {
		const size_t len = strcspn(part + 1, "/");

		if (!len || (len == 1 && part[1] == '.') ||
		    (len == 2 && !strncmp(part + 1, "..", 2)))
			return false;
	}
	return true;
}

/* The end of what begins after a quotation mark that ends at AT; NULL: there is none. */
static char *find_quoted_end(const char *line, const char *at)
{
	static const char *const marks[][2] = {
	        {"'", "'"}, {"\"", "\""}, {"`", "'"}, {"\u2018", "\u2019"}};

	for (size_t i = 0; i < SBX_ARRAY_SIZE(marks); i++) {
		const size_t n = strlen(marks[i][0]);

		if ((size_t)(at - line) >= n && memcmp(at - n, marks[i][0], n) == 0)
			return strstr(at, marks[i][1]);
	}
	return NULL;
}

/* The end of a path that stands bare: a colon, a comma or a bracket, as a name may hold spaces. */
static char *find_bare_end(char *at)
{
	static const char *const ends[] = {": ", ", ", " (", " -> ", " for "};
	char *end = at + strlen(at);

	for (size_t i = 0; i < SBX_ARRAY_SIZE(ends); i++) {
		char *p = strstr(at, ends[i]);

		if (p && p < end)
			end = p;
	}
	return end;
}

/* Each path of LINE, which is cut up. */
static void read_paths(char *line, enum sbx_complaint_kind kind, struct sbx_complaints *ret)
{
	char *next;
	int tries = 0;

	for (char *at = strchr(line, '/'); at && tries++ < TRIES_MAX; at = strchr(next, '/')) {
		char *end = find_quoted_end(line, at);
		bool last;

		next = at + strcspn(at, " ");
		if (!end && at > line && !strchr(" (=", at[-1]))
			continue;
		if (!end)
			end = find_bare_end(at);
		last = !*end;
		*end = '\0';
		next = last ? end : end + 1;
		if (is_plain(at))
			add(ret, kind, at);
	}
}

/* --- programs ------------------------------------------------------------------------------ */

static bool is_word(const char *word)
{
	const size_t n = strlen(word);

	return n && n <= WORD_MAX && !strpbrk(word, "/ '\"") && !has_controls(word);
}

static bool begins_with(const char *line, const char *what)
{
	return strncmp(line, what, strlen(what)) == 0;
}

static bool cut_end(char *line, const char *end)
{
	const size_t n = strlen(line), m = strlen(end);

	if (n < m || strcmp(line + n - m, end) != 0)
		return false;
	line[n - m] = '\0';
	return true;
}

/* Takes the quotation marks of env off. */
static char *unquote(char *word)
{
	char *end = NULL;

	if (*word == '\'' || *word == '`')
		end = strchr(++word, '\'');
	else if (begins_with(word, "\u2018"))
		end = strstr(word += strlen("\u2018"), "\u2019");
	if (end)
		*end = '\0';
	return word;
}

/* The program that a search of PATH failed for, as LINE tells; NULL: none. Else LINE is cut up. */
static char *read_program(char *line)
{
	static const char missing[] = ": No such file or directory",
	                  zsh[] = ": command not found: ", node[] = "spawn ";
	const bool runs = begins_with(line, "env: ") || begins_with(line, "/usr/bin/env: ") ||
	                  begins_with(line, "make: ") || begins_with(line, "xargs: ");
	char *at = strstr(line, zsh);

	if (at)
		return at + strlen(zsh);
	at = strstr(line, node);
	if (at && cut_end(line, " ENOENT"))
		return at + strlen(node);
	if (cut_end(line, ": command not found") || cut_end(line, ": not found") ||
	    (runs && cut_end(line, missing))) {
		at = strrchr(line, ' ');
		at = at ? at + 1 : line;
		return strchr(at, '/') ? NULL : unquote(at);
	}
	return NULL;
}

/* --- lines ---------------------------------------------------------------------------------- */

static void read_line(char *line, struct sbx_complaints *ret)
{
	char *word;

	for (size_t i = 0; i < SBX_ARRAY_SIZE(phrases); i++) {
		if (!strcasestr(line, phrases[i].words))
			continue;
		word = phrases[i].kind == SBX_COMPLAINT_MISSING ? read_program(line) : NULL;
		if (word && is_word(word))
			add(ret, SBX_COMPLAINT_PROGRAM, word);
		else
			read_paths(line, phrases[i].kind, ret);
		return;
	}
}

void sbx_complaints_read(char *text, size_t len, struct sbx_complaints *ret)
{
	char *end = text + len;

	*ret = (struct sbx_complaints){0};
	for (size_t i = 0; i < len; i++)
		if (!text[i])
			text[i] = '\1';
	while (end > text && ret->n < SBX_COMPLAINTS_MAX) {
		char *line = memrchr(text, '\n', (size_t)(end - text));

		*end = '\0';
		if (end > text && end[-1] == '\r')
			end[-1] = '\0';
		read_line(line ? line + 1 : text, ret);
		end = line ? line : text;
	}
}
