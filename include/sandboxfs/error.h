/*
 * An errno together with the one plain sentence that stands in ctl/error.
 * Whoever first understands a failure fills it in; everyone else forwards the
 * negative errno unchanged. A text never contains a secret, a newline, or what
 * the caller knows already.
 */
#ifndef SANDBOXFS_ERROR_H
#define SANDBOXFS_ERROR_H

struct sbx_error {
	int code;        /* positive errno, 0 while nothing failed */
	char text[1024]; /* one sentence, NUL-terminated, "" while nothing failed */
};

#define SBX_ERROR_INIT ((struct sbx_error){0})

/*
 * Records CODE (a positive errno) and the formatted text in err and returns
 * -CODE. err may be NULL. Control characters in the text become '?', so that a
 * hostile name cannot forge a second line. Thread-safe for distinct err.
 */
int sbx_fail(struct sbx_error *err, int code, const char *fmt, ...)
        __attribute__((format(printf, 3, 4)));

/* sbx_fail for what only memory is missing to. Returns -ENOMEM. */
int sbx_no_memory(struct sbx_error *err);

#endif
