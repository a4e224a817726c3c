/*
 * A pattern becomes a row of tokens, each of which takes one character (or, a star, any number of
 * them); state I of the match means that the tokens before I have been matched. git's own matcher
 * tries one way after the other, which a pattern like "*a*a*a*b" makes exponential.
 */
#include "backends/git/wildmatch.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "sandboxfs/cleanup.h"

enum token_kind {
	TOKEN_CHAR,
	TOKEN_ANY,       /* ? */
	TOKEN_CLASS,     /* [...] */
	TOKEN_STAR,      /* any number, but no slash */
	TOKEN_STAR_STAR, /* any number */
	TOKEN_SKIP,      /* takes nothing: goes on here, or behind the "**" and "/" that follow */
};

struct token {
	uint8_t kind;
	uint8_t c;            /* TOKEN_CHAR */
	uint32_t class_index; /* TOKEN_CLASS */
};

struct class
{
	uint8_t bits[32];
};

struct sbx_glob {
	bool icase;
	size_t least; /* characters that any match has */
	size_t token_count, class_count;
	struct token *tokens;
	struct class *classes;
	uint8_t *states[2]; /* token_count + 1 each */
};

/* The pattern that is being compiled: P[at..len). */
struct source {
	const uint8_t *p;
	size_t at, len;
};

static bool is_upper(int c)
{
	return c >= 'A' && c <= 'Z';
}

static bool is_lower(int c)
{
	return c >= 'a' && c <= 'z';
}

static bool is_alpha(int c)
{
	return is_upper(c) || is_lower(c);
}

static bool is_digit(int c)
{
	return c >= '0' && c <= '9';
}

static bool is_alnum(int c)
{
	return is_alpha(c) || is_digit(c);
}

static bool is_blank(int c)
{
	return c == ' ' || c == '\t';
}

static bool is_cntrl(int c)
{
	return c < ' ' || c == 127;
}

static bool is_graph(int c)
{
	return c > ' ' && c < 127;
}

static bool is_print(int c)
{
	return c >= ' ' && c < 127;
}

static bool is_punct(int c)
{
	return is_graph(c) && !is_alnum(c);
}

/* As git has it: without form feed and vertical tab. */
static bool is_space(int c)
{
	return is_blank(c) || c == '\n' || c == '\r';
}

static bool is_xdigit(int c)
{
	return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static const struct {
	const char *name;
	bool (*has)(int c);
} named_classes[] = {
        {"alnum", is_alnum}, {"alpha", is_alpha}, {"blank", is_blank}, {"cntrl", is_cntrl},
        {"digit", is_digit}, {"graph", is_graph}, {"lower", is_lower}, {"print", is_print},
        {"punct", is_punct}, {"space", is_space}, {"upper", is_upper}, {"xdigit", is_xdigit},
};

static uint8_t fold(const struct sbx_glob *g, uint8_t c)
{
	return g->icase && is_upper(c) ? c | 0x20 : c;
}

static void class_add(struct class *class, int c)
{
	class->bits[c >> 3] |= 1U << (c & 7);
}

static bool class_has(const struct class *class, uint8_t c)
{
	return class->bits[c >> 3] >> (c & 7) & 1;
}

/* Characters of the text arrive folded: a range of capitals then stands for small letters too. */
static void class_add_range(struct sbx_glob *g, struct class *class, int from, int to)
{
	for (int c = from; c <= to; c++) {
		class_add(class, c);
		if (g->icase && is_upper(c))
			class_add(class, c | 0x20);
	}
}

/* The name in "[:name:]", of LEN bytes. */
static int class_add_named(struct sbx_glob *g, struct class *class, const uint8_t *name, size_t len)
{
	for (size_t i = 0; i < SBX_ARRAY_SIZE(named_classes); i++) {
		if (strlen(named_classes[i].name) != len ||
		    memcmp(named_classes[i].name, name, len))
			continue;
		for (int c = 0; c < 256; c++)
			if (named_classes[i].has(c) ||
			    (g->icase && named_classes[i].has == is_upper && is_lower(c)))
				class_add(class, c);
		return 0;
	}
	return -EINVAL;
}

static int peek(const struct source *s, size_t ahead)
{
	return s->at + ahead < s->len ? s->p[s->at + ahead] : -1;
}

/* At "[:" inside a class: 1 and past ":]", 0 when it is no such thing, -EINVAL. */
static int compile_named(struct sbx_glob *g, struct class *class, struct source *s)
{
	size_t start = s->at + 2, end = start;
	int r;

	while (end < s->len && s->p[end] != ']')
		end++;
	if (end == s->len)
		return -EINVAL;
	if (end == start || s->p[end - 1] != ':')
		return 0;
	r = class_add_named(g, class, s->p + start, end - 1 - start);
	if (r < 0)
		return r;
	s->at = end + 1;
	return 1;
}

/* One character of a class, which a backslash may stand before; -EINVAL at the end. */
static int class_char(struct source *s)
{
	int c = peek(s, 0);

	if (c == '\\')
		c = peek(s, 1);
	s->at += 1 + (peek(s, 0) == '\\');
	return c < 0 ? -EINVAL : c;
}

/* One member of a class. *BEFORE: the character before it, from which a range may start; 0: none.
 */
static int compile_member(struct sbx_glob *g, struct class *class, struct source *s, int *before)
{
	int c = peek(s, 0), r;

	if (c == '-' && *before && peek(s, 1) >= 0 && peek(s, 1) != ']') {
		s->at++;
		r = class_char(s);
		if (r >= 0)
			class_add_range(g, class, *before, r);
		*before = 0;
		return r < 0 ? r : 0;
	}
	if (c == '[' && peek(s, 1) == ':') {
		r = compile_named(g, class, s);
		if (r != 0) {
			*before = 0;
			return r < 0 ? r : 0;
		}
	}
	r = class_char(s);
	if (r < 0)
		return r;
	class_add(class, r);
	*before = r;
	return 0;
}

/* Behind "[": the members up to "]". */
static int compile_class(struct sbx_glob *g, struct source *s)
{
	struct class *class = &g->classes[g->class_count];
	bool negated = peek(s, 0) == '!' || peek(s, 0) == '^';
	int before = 0;

	s->at += negated;
	do {
		int r = compile_member(g, class, s, &before);

		if (r < 0)
			return r;
	} while (peek(s, 0) != ']');
	s->at++;
	if (negated)
		for (size_t i = 0; i < sizeof(class->bits); i++)
			class->bits[i] = (uint8_t) ~class->bits[i];
	class->bits['/' >> 3] &= (uint8_t) ~(1U << ('/' & 7));
	g->class_count++;
	return 0;
}

static void add_token(struct sbx_glob *g, enum token_kind kind, uint8_t c)
{
	g->tokens[g->token_count++] = (struct token){kind, c, (uint32_t)g->class_count};
	g->least += kind == TOKEN_CHAR || kind == TOKEN_ANY || kind == TOKEN_CLASS;
}

static bool ends_in_skip(const struct sbx_glob *g)
{
	return g->token_count >= 3 && g->tokens[g->token_count - 3].kind == TOKEN_SKIP;
}

/* A run of stars. Two or more that are a component of their own go over slashes. */
static void compile_stars(struct sbx_glob *g, struct source *s)
{
	size_t start = s->at;
	bool whole;

	while (peek(s, 0) == '*')
		s->at++;
	whole = s->at - start > 1 && (start == 0 || s->p[start - 1] == '/') &&
	        (peek(s, 0) < 0 || peek(s, 0) == '/' || (peek(s, 0) == '\\' && peek(s, 1) == '/'));
	if (!whole) {
		add_token(g, TOKEN_STAR, 0);
	} else if (peek(s, 0) == '/') {
		s->at++;
		if (ends_in_skip(g)) /* a second such component adds nothing */
			return;
		add_token(g, TOKEN_SKIP, 0);
		add_token(g, TOKEN_STAR_STAR, 0);
		add_token(g, TOKEN_CHAR, '/');
		g->least--;
	} else {
		add_token(g, TOKEN_STAR_STAR, 0);
	}
}

static int compile_one(struct sbx_glob *g, struct source *s)
{
	int c = peek(s, 0), r;

	switch (c) {
	case '*':
		compile_stars(g, s);
		return 0;
	case '?':
		s->at++;
		add_token(g, TOKEN_ANY, 0);
		return 0;
	case '[':
		s->at++;
		add_token(g, TOKEN_CLASS, 0);
		return compile_class(g, s);
	case '\\':
		r = class_char(s);
		if (r >= 0)
			add_token(g, TOKEN_CHAR, (uint8_t)r);
		return r < 0 ? r : 0;
	default:
		s->at++;
		add_token(g, TOKEN_CHAR, fold(g, (uint8_t)c));
		return 0;
	}
}

/* No byte of a pattern makes more than one token, nor more than one class, but "**" and "/" make
 * three. */
static struct sbx_glob *glob_alloc(const char *pattern, size_t len)
{
	struct sbx_glob *g = calloc(1, sizeof(*g));
	size_t classes = 0, tokens = len + 1;

	for (size_t i = 0; i < len; i++)
		classes += pattern[i] == '[';
	if (!g)
		return NULL;
	g->tokens = calloc(tokens, sizeof(*g->tokens));
	g->classes = calloc(classes + 1, sizeof(*g->classes));
	g->states[0] = calloc(2, tokens + 1);
	if (!g->tokens || !g->classes || !g->states[0]) {
		sbx_glob_free(g);
		return NULL;
	}
	g->states[1] = g->states[0] + tokens + 1;
	return g;
}

int sbx_glob_compile(const char *pattern, size_t len, bool icase, struct sbx_glob **ret)
{
	struct source s = {(const uint8_t *)pattern, 0, len};
	struct sbx_glob *g = glob_alloc(pattern, len);

	if (!g)
		return -ENOMEM;
	g->icase = icase;
	while (s.at < s.len) {
		int r = compile_one(g, &s);

		if (r < 0) {
			sbx_glob_free(g);
			return r;
		}
	}
	*ret = g;
	return 0;
}

void sbx_glob_free(struct sbx_glob *g)
{
	if (!g)
		return;
	free(g->tokens);
	free(g->classes);
	free(g->states[0]);
	free(g);
}

/* Enters state I, and those that are reached from it without a character. Returns the furthest. */
static size_t enter(const struct sbx_glob *g, uint8_t *states, size_t i)
{
	size_t last = i, further;

	states[i] = 1;
	if (i == g->token_count)
		return i;
	switch (g->tokens[i].kind) {
	case TOKEN_SKIP:
		enter(g, states, i + 1);
		further = enter(g, states, i + 3);
		break;
	case TOKEN_STAR:
	case TOKEN_STAR_STAR:
		further = enter(g, states, i + 1);
		break;
	default:
		further = i;
	}
	return further > last ? further : last;
}

/* Whether token I takes the character; *STAY: and the state is the same as before. */
static bool takes(const struct sbx_glob *g, size_t i, uint8_t c, bool *stay)
{
	const struct token *token = &g->tokens[i];

	*stay = token->kind == TOKEN_STAR || token->kind == TOKEN_STAR_STAR;
	switch (token->kind) {
	case TOKEN_CHAR:
		return token->c == c;
	case TOKEN_ANY:
	case TOKEN_STAR:
		return c != '/';
	case TOKEN_CLASS:
		return class_has(&g->classes[token->class_index], c);
	case TOKEN_STAR_STAR:
		return true;
	default:
		return false;
	}
}

bool sbx_glob_match(struct sbx_glob *g, const char *text, size_t len, uint64_t *work)
{
	uint8_t *now = g->states[0], *next = g->states[1];
	size_t last;

	if (len < g->least)
		return false;
	memset(now, 0, g->token_count + 1);
	memset(next, 0, g->token_count + 1);
	last = enter(g, now, 0);
	for (size_t at = 0; at < len; at++) {
		uint8_t c = fold(g, (uint8_t)text[at]), *was = now;
		size_t furthest = 0;
		bool any = false, stay;

		if (work)
			*work += last + 1;
		for (size_t i = 0; i <= last && i < g->token_count; i++) {
			if (now[i] && takes(g, i, c, &stay)) {
				size_t to = enter(g, next, stay ? i : i + 1);

				furthest = to > furthest ? to : furthest;
				any = true;
			}
		}
		if (!any)
			return false;
		memset(was, 0, last + 1);
		now = next;
		next = was;
		last = furthest;
	}
	return now[g->token_count];
}
