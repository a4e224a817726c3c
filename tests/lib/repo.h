/* Git repositories for tests, made with libgit2, so that no git program is needed. Failing fails
 * the test. */
#ifndef SANDBOXFS_TESTS_REPO_H
#define SANDBOXFS_TESTS_REPO_H

#include <stdbool.h>

/* Keeps the configuration of whoever runs the tests out of them. Initialises libgit2. */
void repo_setup(void);
void repo_teardown(void);

/* An empty repository at PATH, with a working tree unless BARE. */
void repo_init(const char *path, bool bare);
/* Adds everything in the working tree and commits it; the hexadecimal id in a static buffer. */
const char *repo_commit(const char *path, const char *message);
/* Where BRANCH stands, in a static buffer, or NULL when there is none. */
const char *repo_branch(const char *path, const char *branch);
void repo_make_branch(const char *path, const char *branch, const char *commit);
void repo_delete_branch(const char *path, const char *branch);
/* Has the .git of the tree at PATH say TEXT, as the mount shows it to the host; returns PATH. */
const char *repo_link(const char *path, const char *text);
/* Number of local branches. */
int repo_branches(const char *path);
/* Entries that git status would list, ignored ones aside. */
int repo_changes(const char *path);

#endif
