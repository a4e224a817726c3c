/*
 * The test whether a git setting that names a program leads into a tree that commands write to.
 * git runs the program with the top of the tree as current directory, so a relative path does; a
 * bare name is looked for in PATH and does not.
 */
#ifndef SANDBOXFS_GIT_COMMAND_H
#define SANDBOXFS_GIT_COMMAND_H

#include <stdbool.h>

struct sbx_git_trees {
	const char *const *paths; /* absolute; commands write below them; ends with NULL */
	const char *home;         /* what ~ stands for; may be NULL */
};

/*
 * A path. NAMED: one without a slash is looked for in PATH; else it is relative to the tree as
 * well. An absolute one that goes up (..) is taken for one that leads in.
 */
bool sbx_git_path_leads_in(const struct sbx_git_trees *trees, const char *path, bool named);

/*
 * A line for a shell. It leads in when
 * - a program of it does, or one is only known when it runs ($X);
 * - what a shell or interpreter is to run (sh FILE, python FILE) is not an absolute path
 *   elsewhere, or is looked for in the current directory too (python -m);
 * - the program takes what it runs from the current directory (make, npm, npx, ...);
 * - an argument is a relative path (./X, ../X, DIR/X), but for programs that only filter text and
 *   for git. A program that none of this is true of may still read settings in the tree that name
 *   others: that is not seen.
 */
bool sbx_git_command_leads_in(const struct sbx_git_trees *trees, const char *line);

#endif
