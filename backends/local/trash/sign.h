/*
 * Entries of the trash are signed with a key that lies in the repository's directory, beside its
 * configuration. A ref can come from anywhere (a fetch of all refs, a push, a name that a sandbox
 * was given), so that it stands among the trash does not make it an entry. The key is read by
 * nobody but the owner of the repository, no command sees it, and no git carries it over; like the
 * entries it outlives the state directory. Thread-safe.
 */
#ifndef SANDBOXFS_LOCAL_TRASH_SIGN_H
#define SANDBOXFS_LOCAL_TRASH_SIGN_H

#include <git2.h>
#include <stdbool.h>
#include <stddef.h>

#define SBX_TRASH_SIGNATURE "Signature: "

/* The contents of a commit of the trash. MESSAGE: without the line of the signature. */
struct sbx_trash_signed {
	const char *message;
	size_t len;
	const git_oid *tree, *parents;
	size_t n_parents;
};

/*
 * MESSAGE with its signature as the last line; the caller's. Makes the key where there is none. 0
 * or libgit2's code.
 */
int sbx_trash_sign(git_repository *repo, const struct sbx_trash_signed *what, char **ret);
/* Whether the commit C of REPO has a signature that is right. */
bool sbx_trash_is_signed(git_repository *repo, const git_commit *c);

#endif
