/* The tables of a sandbox elsewhere whose members ask its machine's git. */
#ifndef SANDBOXFS_BACKENDS_REMOTE_HISTORY_H
#define SANDBOXFS_BACKENDS_REMOTE_HISTORY_H

#include <stdbool.h>
#include <stdint.h>

#include "sandboxfs/error.h"

struct sbx_git_push;
struct sbx_history_impl;
struct sbx_remote_impl;

extern const struct sbx_history_impl remote_history; /* history.c */
extern const struct sbx_remote_impl remote_push;     /* push.c */

/* push_here.c. Whether URL is a path of a repository with a working tree. */
bool remote_is_worked_in(const char *url);
/*
 * Moves the branch there to where it is in FROM, a bare repository on this host. EBUSY: it is
 * checked out; EEXIST: that is no fast-forward; else as sbx_git_push. UNTIL_MS 0: whenever.
 */
int remote_push_here(const struct sbx_git_push *from, const char *url, uint64_t until_ms,
                     struct sbx_error *err);

#endif
