/* Taking secrets out of texts that others wrote, before anyone reads them. */
#ifndef SANDBOXFS_SCRUB_H
#define SANDBOXFS_SCRUB_H

#include <stddef.h>

/*
 * In place: each SECRET (may be NULL; of six bytes or more) becomes "***", and what stands before
 * the @ of a URL's host is taken out, as it may be a password. What an ssh URL has there is a name,
 * and goes as well. Thread-safe for distinct texts.
 */
void sbx_scrub(char *text, const char *secret);
/* In place: each SECRET, as above, of the LEN bytes at DATA. Returns how many bytes there are now.
 */
size_t sbx_scrub_bytes(char *data, size_t len, const char *secret);

#endif
