/*
 * Denials: what a sandbox was refused, told where people and programs look. Each is one line in
 * its log and its events. At most ten of each kind are told in a second, then one line with the
 * number of the others.
 */
#ifndef SANDBOXFS_FS_LOG_DENIALS_H
#define SANDBOXFS_FS_LOG_DENIALS_H

#include <stdint.h>

struct json_object;
struct sbx_denials;
struct sbx_loop;

enum sbx_denied_kind {
	SBX_DENIED_PATH,    /* by the confinement of the tree */
	SBX_DENIED_PROGRAM, /* by the allowlist */
	SBX_DENIED_SYSCALL, /* by the filter of a job */
	SBX_DENIED_HOST,    /* by the proxy */
	SBX_DENIED_NETWORK, /* where there is none: the first attempt of a job */
	SBX_DENIED_KINDS
};

/* Members that are NULL or "" are left out. */
struct sbx_denial_report {
	enum sbx_denied_kind kind;
	const char
	        *what; /* the sentence, the call, HOST:PORT, ADDRESS:PORT; NULL: only MORE counts */
	const char *class;   /* of the call */
	const char *program; /* any bytes */
	const char *reason;
	const char *job; /* its name */
	uint64_t more;   /* others of the kind, known by number only */
};

/*
 * A line: the members of its record ("kind", "what", ... or "kind", "suppressed"; borrowed) and the
 * same in words. Any thread, holding no lock.
 */
typedef void (*sbx_denials_tell)(struct json_object *members, const char *text, void *data);

/* 0 or -ENOMEM. */
int sbx_denials_create(struct sbx_loop *loop, sbx_denials_tell tell, void *data,
                       struct sbx_denials **ret);
/* Numbers that are owed are dropped. Loop thread, or after the loop stopped. Accepts NULL. */
void sbx_denials_destroy(struct sbx_denials *d);
/* Any thread; not during or after destroy. */
void sbx_denials_add(struct sbx_denials *d, const struct sbx_denial_report *denied);

#endif
