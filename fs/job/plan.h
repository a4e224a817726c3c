/*
 * The plan of a command: a request, checked and filled up with the defaults, as the backend gets
 * it.
 */
#ifndef SANDBOXFS_FS_JOB_PLAN_H
#define SANDBOXFS_FS_JOB_PLAN_H

#include "fs/job/job.h"

struct sbx_allow; /* the allowlist with its files, constant */

/* ret NULL: everything is allowed. 0 or -ENOMEM. */
int sbx_allow_create(const struct sbx_settings *settings, struct sbx_allow **ret);
void sbx_allow_destroy(struct sbx_allow *allow); /* accepts NULL */

/* A request with the defaults filled in. */
struct sbx_plan {
	char *cwd; /* relative to the root */
	char **env;
	const char *program; /* of the allowlist or the settings, or NULL */
	uint64_t timeout_ms;
	struct sbx_limits limits;
};

/* -EACCES, -ENOENT, -ENOTDIR, -EPERM, -ENOMEM. Takes the table's lock. */
int sbx_plan_make(struct sbx_jobs *jobs, const struct sbx_request *req, struct sbx_plan *ret,
                  struct sbx_error *err);
/* Frees what *PLAN owns. program is the allowlist's. */
void sbx_plan_release(struct sbx_plan *plan);
/* CWD as a user may write it, checked and made relative to the root; malloc'd. */
int sbx_cwd_resolve(struct sbx_jobs *jobs, const char *cwd, char **ret, struct sbx_error *err);
/* LIMITS, held to those of the mount. */
struct sbx_limits sbx_limits_clamp(const struct sbx_limits *limits, const struct sbx_limits *mount);

#endif
