/* The tables of a sandbox elsewhere whose members ask its machine's git. */
#ifndef SANDBOXFS_BACKENDS_REMOTE_HISTORY_H
#define SANDBOXFS_BACKENDS_REMOTE_HISTORY_H

struct sbx_history_impl;
struct sbx_remote_impl;

extern const struct sbx_history_impl remote_history; /* history.c */
extern const struct sbx_remote_impl remote_push;     /* push.c */

#endif
