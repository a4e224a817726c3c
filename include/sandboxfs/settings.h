/*
 * The settings of a mount: built-in defaults, then the JSON configuration file, then -o options
 * (rising priority). They are filled in once before any thread starts and are constant from then
 * on, so any thread may read them without a lock.
 */
#ifndef SANDBOXFS_SETTINGS_H
#define SANDBOXFS_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "sandboxfs/strv.h"

/* No number in a request or a setting is larger: as MiB it still counts in 63 bits of bytes. */
#define SBX_NUMBER_MAX ((UINT64_C(1) << 43) - 1)

/* Without being told otherwise; more than builds, browsers' tests or a JVM take. */
#define SBX_PROCS_DEFAULT UINT64_C(4096)

/* The words of branch_exists, in the mount's settings and in a create request. */
#define SBX_BRANCH_EXISTS "new|refuse|continue"

/* Resource limits; 0 means none. See design: limits/ in a sandbox's controls. */
struct sbx_limits {
	uint64_t cpu_s;        /* seconds of processor time per process */
	uint64_t memory_mb;    /* MiB of memory per job, as ctl/policy says */
	uint64_t procs;        /* processes and threads */
	uint64_t file_mb;      /* MiB per file written */
	uint64_t disk_mb;      /* MiB per sandbox */
	uint64_t output_bytes; /* kept of each of stdout and stderr */
	uint64_t jobs;         /* running at once in one sandbox */
};

struct sbx_settings {
	char *source;     /* as given; NULL for "none" */
	char *source_abs; /* absolute path without symlinks, NULL for "none" or a remote source */
	char *mountpoint; /* absolute path without symlinks */
	char *state_dir;  /* absolute; owned by the daemon, mode 0700 */
	char *logs_dir;   /* absolute or NULL */
	char *cache_dir;  /* absolute; checkouts that sandboxes share; may have to be made */
	char *backend;    /* "local", "memory", ... */
	char *base;       /* commit-ish new sandboxes start from; NULL: HEAD */
	char *branch;     /* pattern of the branch, "{name}" is replaced; "sandbox/{name}" */
	char *branch_exists; /* that branch is there already: "new" (another), "refuse", "continue"
	                      */
	char *path;          /* PATH of commands */
	char *isolation;     /* "auto", "require", "none" */
	char *run_as;   /* whom commands run as under a daemon of root's; NULL: see identity.h */
	char *net;      /* "none", "host", "allow:HOST,..." as fs/net/host_rules.h has it */
	char *cow;      /* "auto", "off", "require": sandboxes share what they did not change */
	char *controls; /* "linked", "inline" */
	char *io;       /* "cached", "passthrough" */
	char *ctl_name; /* name of the control directory in a sandbox: "ctl" */
	bool nested_shared; /* a .git that commands make is shown as it is */
	bool tree_programs; /* host git goes by settings that name programs in a tree */
	bool ctl_listed;    /* readdir of a sandbox lists it */
	bool track;         /* what each command changes is recorded */
	bool ephemeral;     /* sandboxes are torn down at unmount */
	bool durable;       /* those of a provider that may forget them are kept here at unmount */
	bool user_xattr; /* serve user.* xattrs, which costs a request for each file that is written
	                    or listed */
	bool allow_other;              /* as mount.fuse */
	bool exec_fail_errno;          /* a non-zero exit fails the write with EREMOTEIO */
	bool foreground;               /* -f */
	bool debug;                    /* -d: trace backend calls to stderr */
	uint64_t operation_timeout_ms; /* of one job; 0: none; default 600 000 */
	uint64_t run_timeout_ms;       /* lifetime of a sandbox; 0: none (default) */
	uint64_t cache_mb;             /* MiB that unused checkouts in cache_dir may take */
	struct sbx_limits limits;      /* of each sandbox; output_bytes defaults to 64 MiB */
	uint64_t trash_days;  /* how long what was not committed is kept after a teardown; 0: not at
	                         all */
	uint64_t cpu_percent; /* of one processor, for a sandbox; 0: no limit */
	struct sbx_strings allow;    /* binaries that may run; empty: any */
	struct sbx_strings env;      /* KEY=VALUE for every command */
	struct sbx_strings ro_paths; /* additionally visible to commands, read only */
	struct sbx_strings rw_paths;
	struct sbx_strings hide_paths;
	/* Found at the mount (fs/config/toolchains.h), not set: */
	struct sbx_strings shown,
	        shown_why; /* of tools in a home: absolute, read only; the reason of each */
	struct sbx_strings covered;  /* what lies in one of these and is not shown */
	struct sbx_strings tool_env; /* KEY=VALUE for every command, before those of env */
	struct sbx_strings carried;  /* of each file: its path below a sandbox's home, its text */
	struct sbx_strings not_carried; /* sentences: what else was found, and stays out */
};

/* The list of net=allow:LIST, NULL: the network is another. */
static inline const char *sbx_settings_hosts(const struct sbx_settings *settings)
{
	const bool allow = settings->net && strncmp(settings->net, "allow:", 6) == 0;

	return allow ? settings->net + 6 : NULL;
}

#endif
