#include "backends/git/config.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"

struct parser {
	const char *at;
	char *section; /* as it begins a key */
	char *buf;     /* as long as the text */
	sbx_git_config_fn fn;
	void *data;
};

static void skip_line(struct parser *p)
{
	p->at += strcspn(p->at, "\n");
}

static void skip_blanks(struct parser *p)
{
	while (*p->at == ' ' || *p->at == '\t' || *p->at == '\r')
		p->at++;
}

/* Appends the text in quotes behind the name of a section to OUT. */
static int parse_subsection(struct parser *p, char **out)
{
	skip_blanks(p);
	if (*p->at++ != '"')
		return -EINVAL;
	*(*out)++ = '.';
	while (*p->at != '"') {
		if (*p->at == '\\')
			p->at++;
		if (!*p->at || *p->at == '\n')
			return -EINVAL;
		*(*out)++ = *p->at++;
	}
	p->at++;
	return 0;
}

/* From behind the bracket. */
static int parse_section(struct parser *p)
{
	char *out = p->buf;

	while (isalnum((unsigned char)*p->at) || *p->at == '-' || *p->at == '.')
		*out++ = (char)tolower((unsigned char)*p->at++);
	if (*p->at != ']' && parse_subsection(p, &out))
		return -EINVAL;
	if (*p->at++ != ']')
		return -EINVAL;
	*out = '\0';
	free(p->section);
	p->section = strdup(p->buf);
	return p->section ? 0 : -ENOMEM;
}

/* The character after a backslash, or -1. A line's end is none at all: 0. */
static int unescape(char c)
{
	switch (c) {
	case '\n':
		return 0;
	case 'n':
		return '\n';
	case 't':
		return '\t';
	case 'b':
		return '\b';
	case '"':
	case '\\':
		return c;
	default:
		return -1;
	}
}

/* From behind the '=' to the end of the line, into the buffer. */
static int parse_value(struct parser *p)
{
	char *out = p->buf, *end = p->buf; /* END: behind what is no blank or is quoted */
	bool quoted = false;

	skip_blanks(p);
	for (; *p->at && (*p->at != '\n' || quoted); p->at++) {
		int c = *p->at;

		if (c == '\n')
			return -EINVAL;
		if (!quoted && (c == '#' || c == ';')) {
			skip_line(p);
			break;
		}
		if (c == '"') {
			quoted = !quoted;
			end = out;
			continue;
		}
		if (c == '\\') {
			if (p->at[1] == '\r' && p->at[2] == '\n')
				p->at++;
			c = p->at[1] ? unescape(*++p->at) : -1;
			if (c < 0)
				return -EINVAL;
			if (!c)
				continue;
			end = out + 1;
		}
		*out++ = (char)c;
		if (quoted || !isspace(c))
			end = out;
	}
	*end = '\0';
	return quoted ? -EINVAL : 0;
}

static int parse_variable(struct parser *p)
{
	const size_t n = strspn(p->at, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	                               "0123456789-");
	_cleanup_free_ char *key =
	        p->section && n ? sbx_format("%s.%.*s", p->section, (int)n, p->at) : NULL;
	int r;

	if (!key)
		return p->section && n ? -ENOMEM : -EINVAL;
	for (char *c = key + strlen(key) - n; *c; c++)
		*c = (char)tolower((unsigned char)*c);
	p->at += n;
	skip_blanks(p);
	if (*p->at != '=') {
		if (*p->at && !strchr("\n#;", *p->at))
			return -EINVAL;
		skip_line(p);
		return p->fn(key, NULL, p->data);
	}
	p->at++;
	r = parse_value(p);
	return r ? r : p->fn(key, p->buf, p->data);
}

static int parse(struct parser *p)
{
	int r = 0;

	while (!r && *p->at) {
		if (isspace((unsigned char)*p->at))
			p->at++;
		else if (*p->at == '#' || *p->at == ';')
			skip_line(p);
		else if (*p->at == '[') {
			p->at++;
			r = parse_section(p);
		} else {
			r = parse_variable(p);
		}
	}
	return r;
}

int sbx_git_config_parse(const char *text, sbx_git_config_fn fn, void *data)
{
	static const char bom[] = "\xef\xbb\xbf";
	struct parser p = {.at = text, .fn = fn, .data = data, .buf = malloc(strlen(text) + 2)};
	int r;

	if (strncmp(text, bom, 3) == 0)
		p.at += 3;
	r = p.buf ? parse(&p) : -ENOMEM;
	free(p.section);
	free(p.buf);
	return r;
}

bool sbx_git_config_is_bool(const char *value)
{
	static const char *const words[] = {"true", "false", "yes", "no", "on", "off", ""};

	for (size_t i = 0; value && i < sizeof(words) / sizeof(words[0]); i++)
		if (strcasecmp(value, words[i]) == 0)
			return true;
	return !value || strspn(value, "0123456789") == strlen(value);
}
