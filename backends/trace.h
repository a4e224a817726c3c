/* The -d decorator: a backend around another that writes each call and its result to stderr. */
#ifndef SANDBOXFS_TRACE_H
#define SANDBOXFS_TRACE_H

#include "sandboxfs/backend.h"

/*
 * Wraps INNER, which then belongs to the wrapper; so do the sandboxes and jobs that come out of it.
 * *ret may be where INNER stood. Arguments of commands beyond the program and values of the
 * environment are not written: they may be secrets. 0 or -ENOMEM (INNER stays the caller's).
 */
int sbx_trace_wrap(struct sbx_backend *inner, struct sbx_backend **ret);

#endif
