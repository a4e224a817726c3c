/*
 * Settings by which git on the host runs a program in the tree of a sandbox, and the block of
 * config that disarms them. A command may have put any program there.
 *
 * The settings are the source's and the user's. Their files are left as they are, except for one
 * block at the end of the source's config. For the worktrees of sandboxes alone (includeIf
 * "gitdir:...") it includes a file of ours in which the same settings lead nowhere. The block is
 * there only as long as some setting leads into a tree. A setting that cannot be disarmed that
 * way is an error: then host git has to be kept from the sandbox's branch.
 */
#ifndef SANDBOXFS_GIT_PROGRAMS_H
#define SANDBOXFS_GIT_PROGRAMS_H

#include <stdbool.h>
#include <stddef.h>

#include "backends/git/command.h"
#include "backends/support/fsutil.h"
#include "sandboxfs/error.h"

/* How a value names a program. */
enum sbx_git_value {
	SBX_GIT_SHELL,    /* a line for a shell */
	SBX_GIT_CHOICE,   /* yes, no or such a line */
	SBX_GIT_BANG,     /* such a line behind "!"; else no program */
	SBX_GIT_HELPER,   /* the same; else the end of a program's name, or its absolute path */
	SBX_GIT_PROGRAM,  /* a program's path, or its name in PATH */
	SBX_GIT_DIR,      /* a path of a directory or file with programs in it */
	SBX_GIT_TOOL,     /* a word that git knows a program for; a path leads to a script */
	SBX_GIT_TRANSPORT /* "ext::" and such a line; else no program */
};

/* One kind of setting. "*" in KEY stands for anything but nothing. */
struct sbx_git_program {
	const char *key; /* in small letters */
	enum sbx_git_value value;
	/* What it is set to when it leads in; NULL: another setting cannot undo it. */
	const char *nothing;
	const char *then; /* what that means to git, for people */
};

/* The kind that KEY is of, or NULL. */
const struct sbx_git_program *sbx_git_program_find(const char *key);

/*
 * Whether VALUE of a setting of kind PROGRAM leads into TREES. KEY is the whole, as a URL may
 * stand in it.
 */
bool sbx_git_program_leads_in(const struct sbx_git_program *program, const char *key,
                              const char *value, const struct sbx_git_trees *trees);

struct sbx_git_guard {
	const char *common; /* the source's common directory */
	/* The sandbox's entry in its worktrees/, or NULL: all that share its config. */
	const char *worktree;
	/* Names our file: [A-Za-z0-9]+, the same as long as the state directory is. */
	const char *mark;
	struct sbx_git_trees trees;
	const char *other_home; /* of another who uses git here, or NULL */
};

/*
 * Reads the configuration that git would, all that it includes (on whatever condition) too, and
 * sees to it that no program it names lies in the trees when git works in the worktree. KEYS,
 * which is empty, becomes those that were set to nothing; a value never stands there. 0; EPERM:
 * it cannot be done, with a sentence; EBUSY: somebody has locked the source's config; or why it
 * cannot be written. Not concurrently for one COMMON; waits for nobody.
 */
int sbx_git_programs_guard(const struct sbx_git_guard *guard, struct sbx_strings *keys,
                           struct sbx_error *err);

/* Likewise, but changes nothing. */
int sbx_git_programs_look(const struct sbx_git_guard *guard, struct sbx_strings *keys);

/* Takes the block and the file away. 0 or -errno. */
int sbx_git_programs_forget(const char *common, const char *mark);

/* The end of the name of each entry in worktrees/ that is a sandbox's, as a pattern. */
#define SBX_GIT_ENTRIES "*-[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]"

#endif
