/*
 * Whoever writes a line has a shell in mind, so what a shell would act upon is refused rather
 * than passed on as text: unquoted operators and substitutions, and also $ and ` between double
 * quotes, where they expand. So are patterns (* ?), a ~ or # that begins a word, and a first word
 * that sets a variable or is a shell's own. [ and what is within a word (HEAD~1, a=b) are text.
 */
#include "fs/util/shell_words.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sandboxfs/cleanup.h"
#include "sandboxfs/strv.h"

struct splitter {
	const char *s, *end;
	char *word; /* room for the whole line */
	size_t len;
	bool open; /* a word has begun, perhaps an empty one */
	struct sbx_strings *ret;
	struct sbx_error *err;
};

size_t sbx_words_line(struct sbx_words_scan *scan, const char *text, size_t from, size_t len)
{
	for (size_t i = from; i < len; i++) {
		char c = text[i];

		if (scan->escape)
			scan->escape = false;
		else if (c == '\\' && scan->quote != '\'')
			scan->escape = true;
		else if (c == '\n')
			return i + 1;
		else if (c == scan->quote)
			scan->quote = 0;
		else if (!scan->quote && (c == '\'' || c == '"'))
			scan->quote = c;
	}
	return 0;
}

static int refuse(struct splitter *sp, char c)
{
	return sbx_fail(sp->err, EINVAL,
	                "%c is for a shell and there is none here: quote it, or use "
	                "[\"sh\",\"-c\",\"...\"]",
	                c);
}

static void put(struct splitter *sp, char c)
{
	sp->word[sp->len++] = c;
	sp->open = true;
}

static int end_word(struct splitter *sp)
{
	size_t len = sp->len;

	if (!sp->open)
		return 0;
	sp->open = false;
	sp->len = 0;
	return sbx_strings_add_n(sp->ret, sp->word, len);
}

static int unclosed(struct splitter *sp)
{
	return sbx_fail(sp->err, EINVAL,
	                "unclosed quote: a line is one request; text with newlines goes as JSON");
}

static int single_quoted(struct splitter *sp)
{
	sp->open = true;
	for (; sp->s < sp->end; sp->s++) {
		if (*sp->s == '\'') {
			sp->s++;
			return 0;
		}
		put(sp, *sp->s);
	}
	return unclosed(sp);
}

static int double_quoted(struct splitter *sp)
{
	sp->open = true;
	while (sp->s < sp->end) {
		char c = *sp->s++;

		if (c == '"')
			return 0;
		if (c == '$' || c == '`')
			return refuse(sp, c);
		if (c == '\\' && sp->s < sp->end && strchr("$`\"\\\n", *sp->s)) {
			c = *sp->s++;
			if (c == '\n')
				continue;
		}
		put(sp, c);
	}
	return unclosed(sp);
}

static int escaped(struct splitter *sp)
{
	if (sp->s == sp->end)
		return sbx_fail(sp->err, EINVAL, "nothing follows the last backslash");
	if (*sp->s != '\n')
		put(sp, *sp->s);
	sp->s++;
	return 0;
}

static int one(struct splitter *sp)
{
	char c = *sp->s++;

	switch (c) {
	case ' ':
	case '\t':
	case '\n':
		return end_word(sp);
	case '\'':
		return single_quoted(sp);
	case '"':
		return double_quoted(sp);
	case '\\':
		return escaped(sp);
	case '~':
	case '#':
		if (!sp->open)
			return refuse(sp, c);
		put(sp, c);
		return 0;
	case '*':
	case '?':
	case '|':
	case '&':
	case ';':
	case '<':
	case '>':
	case '(':
	case ')':
	case '$':
	case '`':
		return refuse(sp, c);
	default:
		put(sp, c);
		return 0;
	}
}

/* The length of the name in NAME=VALUE, 0: it is none. */
static size_t variable_name(const char *word)
{
	size_t n = 0;

	while (word[n] == '_' || (word[n] >= 'a' && word[n] <= 'z') ||
	       (word[n] >= 'A' && word[n] <= 'Z') || (n && word[n] >= '0' && word[n] <= '9'))
		n++;
	return word[n] == '=' ? n : 0;
}

static int check_program(const char *word, struct sbx_error *err)
{
	static const char *const own[] = {".",      "alias", "eval",   "export", "set",  "shift",
	                                  "source", "trap",  "ulimit", "umask",  "unset"};
	int name = (int)variable_name(word);

	if (name > 64)
		name = 64;
	if (name)
		return sbx_fail(
		        err, EINVAL,
		        "%.*s= is for a shell and there is none here: use {\"env\":{\"%.*s\":"
		        "...}}, ctl/env, or [\"env\",\"%.*s=...\",...]",
		        name, word, name, word, name, word);
	if (strcmp(word, "cd") == 0)
		return sbx_fail(err, EINVAL,
		                "cd is for a shell and there is none here: use {\"cwd\":...}, or "
		                "write the directory to ctl/cwd");
	for (size_t i = 0; i < SBX_ARRAY_SIZE(own); i++)
		if (strcmp(word, own[i]) == 0)
			return sbx_fail(err, EINVAL,
			                "%s is for a shell and there is none here: use "
			                "[\"sh\",\"-c\",\"...\"]",
			                word);
	return 0;
}

/* The end of a line as some editors write it is no part of the last word. */
static size_t without_return(const char *line, size_t len)
{
	const size_t newline = len && line[len - 1] == '\n';

	return len > newline && line[len - newline - 1] == '\r' ? len - newline - 1 : len;
}

int sbx_words_split(const char *line, size_t len, struct sbx_strings *ret, struct sbx_error *err)
{
	_cleanup_free_ char *word = malloc(len + 1);
	struct splitter sp = {.s = line,
	                      .end = line + without_return(line, len),
	                      .word = word,
	                      .ret = ret,
	                      .err = err};
	int r = word ? 0 : -ENOMEM;

	while (!r && sp.s < sp.end)
		r = one(&sp);
	if (!r)
		r = end_word(&sp);
	if (!r && ret->n)
		r = check_program(ret->items[0], err);
	return r == -ENOMEM ? sbx_no_memory(err) : r;
}

bool sbx_words_of_shell(const char *name)
{
	static const char *const own[] = {
	        "[[",     "bg",       "break",  "builtin", "case", "command", "continue", "declare",
	        "disown", "exec",     "exit",   "fc",      "fg",   "for",     "function", "getopts",
	        "hash",   "history",  "if",     "jobs",    "let",  "local",   "popd",     "pushd",
	        "read",   "readonly", "return", "shopt",   "time", "times",   "type",     "typeset",
	        "until",  "wait",     "while",  "{",       "!",    ":",
	};

	for (size_t i = 0; i < SBX_ARRAY_SIZE(own); i++)
		if (strcmp(own[i], name) == 0)
			return true;
	return false;
}
