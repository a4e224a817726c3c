/* A text that grows, and the one function that quotes a word for a shell. */
#include "backends/remote/text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_ROOM 256

/* Makes room for N bytes more, and a NUL. False: no memory, or there was none before. */
static bool reserve(struct remote_text *t, size_t n)
{
	size_t cap = t->cap ? t->cap : FIRST_ROOM;
	char *at;

	if (t->failed || n < t->cap - t->n)
		return !t->failed;
	while (cap - t->n <= n && cap <= SIZE_MAX / 2)
		cap *= 2;
	at = cap - t->n > n ? realloc(t->at, cap) : NULL;
	if (!at) {
		t->failed = true;
		return false;
	}
	t->at = at;
	t->cap = cap;
	return true;
}

void remote_text_add_n(struct remote_text *t, const char *s, size_t n)
{
	if (!reserve(t, n))
		return;
	if (n)
		memcpy(t->at + t->n, s, n);
	t->n += n;
	t->at[t->n] = '\0';
}

void remote_text_add(struct remote_text *t, const char *s)
{
	remote_text_add_n(t, s, strlen(s));
}

void remote_text_printf(struct remote_text *t, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (n < 0 || !reserve(t, (size_t)n)) {
		t->failed = true;
		return;
	}
	va_start(ap, fmt);
	vsnprintf(t->at + t->n, (size_t)n + 1, fmt, ap);
	va_end(ap);
	t->n += (size_t)n;
}

/*
 * Between single quotes a shell takes every byte as it is, but a single quote, which stands outside
 * of them.
 */
void remote_text_word(struct remote_text *t, const char *word)
{
	remote_text_add(t, " '");
	for (;;) {
		const size_t n = strcspn(word, "'");

		remote_text_add_n(t, word, n);
		if (!word[n])
			break;
		remote_text_add(t, "'\\''");
		word += n + 1;
	}
	remote_text_add(t, "'");
}

/* "-1.5" is one and a half second before the beginning, of which the kernel says -2 and +0.5. */
void remote_text_time(struct remote_text *t, struct timespec at)
{
	const bool before = at.tv_sec < 0 && at.tv_nsec > 0;
	const int64_t s = at.tv_sec + before;

	remote_text_printf(t, "%s%" PRId64 ".%09ld", before && s == 0 ? "-" : "", s,
	                   before ? 1000000000L - at.tv_nsec : at.tv_nsec);
}

void remote_text_release(struct remote_text *t)
{
	free(t->at);
	*t = (struct remote_text){0};
}
