/* Delivering what a sandbox has committed to a remote. Calls are marked as in sandbox.h. */
#ifndef SANDBOXFS_REMOTE_H
#define SANDBOXFS_REMOTE_H

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "sandboxfs/error.h"
#include "sandboxfs/sandbox.h"

struct sbx_push_options {
	const char *remote; /* NULL: "origin" */
	const char
	        *token;  /* of GitHub, for no other server's; never in an error text. NULL: none */
	const char *api; /* URL of GitHub's API; NULL: as sbx_github_token_is_for() has it */
	uint64_t timeout_ms; /* for all of it: -ETIMEDOUT; 0: none */
	/* Polled: -EINTR; also ends waiting for a server. May be NULL. */
	atomic_bool *cancelled;
};

/* All are mandatory. */
struct sbx_remote_impl {
	/*
	 * [disk] The URL that a push to the remote NAME (NULL: "origin") goes to, or, when WRITTEN,
	 * the one that the settings give the remote before it is rewritten. Name and password are
	 * taken out of it. *RET is the caller's. ENOENT: no such remote.
	 */
	int (*url)(struct sbx_sandbox *sb, const char *name, bool written, char **ret,
	           struct sbx_error *err);
	/*
	 * Pushes the sandbox's branch to a branch of the same name, after bringing over what
	 * commands have committed. It may wait for the network: it is called on a thread that may,
	 * and beside all other calls but close. No error text has a secret in it. EACCES: refused
	 * credentials. EEXIST: not a fast-forward. EPERM: refused by the server. ECONNREFUSED,
	 * ETIMEDOUT, EINTR...
	 */
	int (*push)(struct sbx_sandbox *sb, const struct sbx_push_options *options,
	            struct sbx_error *err);
};

/* [any] Whether there is a table. */
static inline bool sbx_has_remote(const struct sbx_sandbox *sb)
{
	return sb->impl->remote != NULL;
}

/* [disk] As the member; -EOPNOTSUPP without a table. */
static inline int sbx_remote_url(struct sbx_sandbox *sb, const char *name, bool written, char **ret,
                                 struct sbx_error *err)
{
	if (!sbx_has_remote(sb))
		return sbx_fail(err, EOPNOTSUPP, "push is not available with this backend");
	return sb->impl->remote->url(sb, name, written, ret, err);
}

/* As the member, on a thread that may wait for the network; -EOPNOTSUPP without a table. */
static inline int sbx_remote_push(struct sbx_sandbox *sb, const struct sbx_push_options *options,
                                  struct sbx_error *err)
{
	if (!sbx_has_remote(sb))
		return sbx_fail(err, EOPNOTSUPP, "push is not available with this backend");
	return sb->impl->remote->push(sb, options, err);
}

#endif
