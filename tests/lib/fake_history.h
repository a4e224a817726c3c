/*
 * The history of a fake sandbox: states of its directory, copied whole into memory. An object's id is the state's number
 * and the path; a directory NAME.sub stands for a submodule. Ids of snapshots are abcd0001, abcd0002, ...
 */
#ifndef SANDBOXFS_TESTS_FAKE_HISTORY_H
#define SANDBOXFS_TESTS_FAKE_HISTORY_H

#include "sandboxfs/backend.h"

struct fake_backend;
struct fake_history;

/* DIR is the tree, as it is at creation. */
struct fake_history *fake_history_open(struct fake_backend *b, const char *dir);
void fake_history_close(struct fake_history *h); /* accepts NULL */
/* Makes the directory DIR what REV of H was; -ENOENT. */
int fake_history_copy(struct fake_history *h, const char *rev, const char *dir);
/* Of the sandbox; fake_backend.c. */
struct fake_history *fake_history_of(struct sbx_sandbox *sb);

extern const struct sbx_history_impl fake_history_impl;

#endif
