/* A text that grows: a script for the other side. Not thread-safe. */
#ifndef SANDBOXFS_BACKENDS_REMOTE_TEXT_H
#define SANDBOXFS_BACKENDS_REMOTE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <time.h>

/* Zero it to start. */
struct remote_text {
	char *at; /* NUL-terminated; NULL while empty */
	size_t n, cap;
	bool failed; /* out of memory once; what is added since is lost */
};

void remote_text_add(struct remote_text *t, const char *s);
void remote_text_add_n(struct remote_text *t, const char *s, size_t n);
void remote_text_printf(struct remote_text *t, const char *fmt, ...)
        __attribute__((format(printf, 2, 3)));
/*
 * Adds a blank and WORD, quoted so that a POSIX shell reads it as that one word, whatever bytes it
 * has. It is the only way in which a name gets into a script.
 */
void remote_text_word(struct remote_text *t, const char *word);
/* Adds AT as seconds with nine digits behind the point, as `touch -d @` and tar take it. */
void remote_text_time(struct remote_text *t, struct timespec at);
/* Frees it; it is empty and usable again. */
void remote_text_release(struct remote_text *t);

#endif
