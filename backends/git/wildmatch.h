/*
 * One pattern of git's wildmatch with WM_PATHNAME, compiled: "*" and "?" stop at a slash, "**" as a
 * whole component does not. Matching keeps all the ways to match at once, so its time is bounded by
 * the length of the pattern times that of the text, whatever the pattern; it uses room in the
 * compiled pattern: not thread-safe.
 */
#ifndef SANDBOXFS_GIT_WILDMATCH_H
#define SANDBOXFS_GIT_WILDMATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sbx_glob;

/*
 * Compiles LEN bytes of PATTERN, without NUL bytes. ICASE: letters of ASCII match both cases.
 * 0, -EINVAL a pattern that matches nothing (an open "[", a lone "\" at the end), -ENOMEM.
 */
int sbx_glob_compile(const char *pattern, size_t len, bool icase, struct sbx_glob **ret);
void sbx_glob_free(struct sbx_glob *g); /* accepts NULL */
/* Adds to *WORK (may be NULL) how many states were tried, each of which takes some nanoseconds. */
bool sbx_glob_match(struct sbx_glob *g, const char *text, size_t len, uint64_t *work);

#endif
