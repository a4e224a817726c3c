/*
 * The guard that keeps host git from running programs in the trees of one backend's sandboxes
 * (backends/git/programs.h).
 */
#ifndef SANDBOXFS_LOCAL_PROGRAMS_H
#define SANDBOXFS_LOCAL_PROGRAMS_H

#include "backends/local/local_impl.h"

struct sbx_programs;

/*
 * *RET is NULL where there is nothing to guard: SOURCE is no git repository, or -o
 * git_programs=tree was given. 0 or -ENOMEM. Free *ret.
 */
int sbx_programs_new(const struct sbx_local *b, struct sbx_programs **ret);
void sbx_programs_free(struct sbx_programs *programs); /* accepts NULL */

/*
 * Before host git may work in the worktree WORKTREE (NULL: any): as sbx_git_programs_guard.
 * Accepts NULL; any thread, waits for others who do the same.
 */
int sbx_programs_guard(struct sbx_programs *programs, const char *worktree, struct sbx_error *err);
/* A sandbox is gone: without any nothing of ours stays in the source's config. Accepts NULL. */
void sbx_programs_gone(struct sbx_programs *programs);
/* Adds to OBJ, a sandbox's info, what was set to nothing. Accepts NULL. */
void sbx_programs_info(struct sbx_programs *programs, struct json_object *obj);

#endif
