/*
 * A line becomes words by the quoting rules of the POSIX shell (XCU 2.2) and nothing else of a
 * shell: no expansion, no globbing, no operators. Whoever writes them is told. A carriage return at
 * the end of the line is dropped.
 */
#ifndef SANDBOXFS_FS_UTIL_SHELL_WORDS_H
#define SANDBOXFS_FS_UTIL_SHELL_WORDS_H

#include <stdbool.h>
#include <stddef.h>

#include "sandboxfs/error.h"
#include "sandboxfs/settings.h"

struct sbx_words_scan { /* zeroed at the beginning of a line */
	char quote;     /* inside ' or ", else 0 */
	bool escape;    /* after a backslash */
};

/*
 * Looks for the newline that ends the line TEXT[0..LEN), one that no backslash continues. A
 * quote does not carry a line on: its error belongs to this write. FROM bytes were looked at
 * before. Returns the length of the line with its newline, 0 when there is no end yet.
 */
size_t sbx_words_line(struct sbx_words_scan *scan, const char *text, size_t from, size_t len);

/*
 * Splits one line, with or without its newline, and adds the words to RET (to be released after a
 * failure too). -EINVAL for what a shell would act upon, or an unclosed quote; -ENOMEM.
 */
int sbx_words_split(const char *line, size_t len, struct sbx_strings *ret, struct sbx_error *err);

/* Whether NAME is a command of shells that need not exist as a program. Thread-safe. */
bool sbx_words_of_shell(const char *name);

#endif
