/*
 * Bringing files of the source's working tree into a new sandbox that git does not: those that git ignores and the file
 * .worktreeinclude at the top of the source names. Nothing is followed on the way: what is a link, or becomes one, is not gone through.
 */
#ifndef SANDBOXFS_LOCAL_WORKTREEINCLUDE_FIND_H
#define SANDBOXFS_LOCAL_WORKTREEINCLUDE_FIND_H

#include <stdatomic.h>
#include <stdint.h>

#include "backends/support/tree.h"
#include "sandboxfs/error.h"
#include "sandboxfs/identity.h"

#define SBX_WORKTREE_INCLUDE ".worktreeinclude"

struct sbx_include {
	const char *source; /* top of the working tree */
	int tree;  /* what is checked out in the sandbox, open; nothing that is there is replaced */
	int dst;   /* where files are put: an upper layer over tree, or tree itself */
	int links; /* an empty directory on the file system of dst for our own use */
	const struct sbx_identity *owner; /* of the copies; NULL: the caller's */
	const struct sbx_skip *skips;     /* left out; may be NULL */
	size_t nskips;
	atomic_bool *cancelled; /* polled; may be NULL */
	uint64_t files;         /* result: brought, links among them */
	uint64_t
	        left_out; /* result: FIFOs, sockets, devices, links that lead out, paths too long */
};

/*
 * Brings each file and link of the working tree that a pattern of .worktreeinclude (gitignore(5)) fits, or a directory that it is in;
 * that git ignores, in the source and in the sandbox, so that `git status` is clean; that is tracked in neither; and that
 * belongs to no repository of its own in there. Data is shared with the source where the file system can, mode (without setuid and setgid),
 * times, user.* attributes and hard links among them are kept. What vanishes meanwhile is left out. ENOENT: there is no
 * .worktreeinclude and nothing was done. EINVAL it, or the source's index, cannot be read; EINTR cancelled; as sbx_tree_copy. On failure
 * what was copied stays. Blocks; several threads work. Thread-safe for distinct dst.
 */
int sbx_include_files(struct sbx_include *in, struct sbx_error *err);

#endif
