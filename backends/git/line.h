/*
 * The connections that libgit2 makes to a server, watched. libgit2 itself waits for a server for ever, so a second
 * thread looks ten times a second whether it is to be given up, and then shuts the connection, which ends
 * every wait, that of a TLS or SSH library too.
 */
#ifndef SANDBOXFS_GIT_LINE_H
#define SANDBOXFS_GIT_LINE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "sandboxfs/error.h"

struct sbx_git_line;

/*
 * From now on connections of the calling thread are watched. They are given up when *CANCELLED (may be NULL) is set,
 * after TIMEOUT_MS (0: none) in all, when no connection is had within 15 s, and when nothing has moved
 * for 60 s. 0 or -errno.
 */
int sbx_git_line_open(atomic_bool *cancelled, uint64_t timeout_ms, struct sbx_git_line **ret);
/* By the calling thread: work goes on. False: it is to be given up. */
bool sbx_git_line_move(struct sbx_git_line *line);
/* Why it was given up: -EINTR or -ETIMEDOUT with a sentence; 0: it was not. */
int sbx_git_line_cut(struct sbx_git_line *line, struct sbx_error *err);
/* Ends the watch; no connection is open any more. Accepts NULL. */
void sbx_git_line_close(struct sbx_git_line *line);

#endif
