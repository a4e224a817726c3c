/*
 * The contract between the file system and the places sandboxes come from. A backend supplies
 * sandboxes (sandbox.h). It knows names and paths, never inode numbers or requests.
 *
 * Calls are marked as in sandbox.h.
 */
#ifndef SANDBOXFS_BACKEND_H
#define SANDBOXFS_BACKEND_H

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include "sandboxfs/away.h"
#include "sandboxfs/commands.h"
#include "sandboxfs/error.h"
#include "sandboxfs/git.h"
#include "sandboxfs/history.h"
#include "sandboxfs/remote.h"
#include "sandboxfs/sandbox.h"
#include "sandboxfs/settings.h"
#include "sandboxfs/storage.h"

struct sbx_backend;
struct sbx_http;
struct sbx_loop;
struct sbx_pool;
struct sbx_secret;
struct sbx_spawner;

/* The origin of a new sandbox's tree. The members that a kind does not name are NULL. */
struct sbx_origin {
	enum sbx_origin_kind {
		SBX_ORIGIN_SOURCE,   /* the mount's source at the commit BASE; empty without one */
		SBX_ORIGIN_SANDBOX,  /* SANDBOX with all that its tree holds, ignored files too */
		SBX_ORIGIN_SNAPSHOT, /* SANDBOX as it was at REV */
		SBX_ORIGIN_TRASH,    /* ENTRY of the trash */
	} kind;
	const char *base; /* commit-ish; NULL: the mount's default */
	/* Of the same backend. The caller makes no [pool] call of it meanwhile. */
	struct sbx_sandbox *sandbox;
	const char *rev;   /* see history.h */
	const char *entry; /* sbx_trash.name */
};

/* A create request; NULL members take the mount's defaults. */
struct sbx_create {
	const char *name; /* valid as by sbx_name_check() */
	struct sbx_origin origin;
	/* Used as it is, and continued where it is there already. */
	const char *branch;
	const char *branch_exists; /* "new", "refuse" or "continue", for this one; see settings.h */
	atomic_bool *cancelled; /* polled during long work: -EINTR and nothing left; may be NULL */
};

/* The reports of recover. */
struct sbx_recover {
	void (*found)(struct sbx_sandbox *sb, void *data); /* hands the sandbox over */
	void (*note)(const char *text, void *data);        /* one line for `events` */
	/*
	 * Hands over a sandbox that is half torn down: retire is done, remove is to be called.
	 * NULL: the caller wants none of them.
	 */
	void (*leaving)(struct sbx_sandbox *sb, void *data);
	void *data;
};

/* An entry of the trash, as listed: borrowed during the call. */
struct sbx_trash {
	const char *name;    /* NAME-TIME: unique, and what create takes */
	const char *sandbox; /* its name then */
	const char *branch;  /* NULL: none */
	int64_t time_ms;     /* of the teardown, CLOCK_REALTIME */
	bool whole;          /* the very files are kept, also those that git does not record */
};

struct sbx_backend_impl {
	const char *name; /* the word used when mounting */
	bool away;        /* files of its sandboxes may be elsewhere: see away.h */
	bool forks_alone; /* create of a fork ends what runs in the origin, so that nothing may */

	/*
	 * [pool] Brings the state directory into order after whatever happened: finishes teardowns,
	 * rolls back creates, adopts the rest. It is called once, before any other call, by one
	 * thread. Mandatory.
	 */
	int (*recover)(struct sbx_backend *b, const struct sbx_recover *r, struct sbx_error *err);
	/*
	 * [any] The mount stands: what the backend does by itself may begin. Once, after recover;
	 * never where the mount fails. Optional.
	 */
	void (*begin)(struct sbx_backend *b);
	/*
	 * [pool] Makes a sandbox, whose name is not in use. On failure nothing is left. EINVAL: bad
	 * base or branch. ENOENT: no such base, rev or entry. EOPNOTSUPP: none can start as that
	 * kind of origin. EEXIST, EBUSY: the branch is checked out elsewhere. ENOSPC. EINTR:
	 * cancelled. Mandatory.
	 */
	int (*create)(struct sbx_backend *b, const struct sbx_create *req, struct sbx_sandbox **ret,
	              struct sbx_error *err);
	/*
	 * [disk] Calls fn for each entry of the trash, oldest first: what teardowns saved of work
	 * that was not committed. A non-zero return of fn ends the walk and is returned. Optional:
	 * the trash is empty.
	 */
	int (*trash)(struct sbx_backend *b, int (*fn)(const struct sbx_trash *t, void *data),
	             void *data, struct sbx_error *err);
	/* [any] Releases the backend; its sandboxes have been closed before. Mandatory. */
	void (*destroy)(struct sbx_backend *b);
};

struct sbx_backend {
	const struct sbx_backend_impl *impl; /* first member of every implementation */
};

/* The part of the daemon that a backend may use. Lives as long as the backend. */
struct sbx_host {
	const struct sbx_settings *settings;
	struct sbx_loop *loop;
	struct sbx_spawner *spawner; /* of sbx_backend_start_early; NULL: no command is run here */
	struct sbx_http *http;       /* NULL: no service is asked */
	struct sbx_pool *pool;       /* wide; it outlives the sandboxes */
	/*
	 * [any] What the environment had as NAME, which is GITHUB_TOKEN or one of
	 * sbx_backend_secrets; NULL: it was not set. Borrowed, as long as the backend.
	 */
	const struct sbx_secret *(*secret)(const char *name, void *data);
	/*
	 * [any] Tells in a sentence that something that was kept of the removed sandbox NAME is
	 * kept no longer. NULL: nobody wants to know.
	 */
	void (*dropped)(const char *name, const char *text, void *data);
	void *data;
};

/*
 * Starts what the backend that settings->backend names has to have running before it is opened:
 * *ret runs commands on this host (sandboxfs/spawner.h says how, and for how long), NULL where none
 * are run here. EINVAL: unknown name. EOPNOTSUPP: not available in this build; or as
 * sbx_spawner_start(). Not thread-safe.
 */
int sbx_backend_start_early(const struct sbx_settings *settings, struct sbx_spawner **ret,
                            struct sbx_error *err);
/*
 * The names of the environment variables that hold secrets of the backend that settings->backend
 * names, ended by NULL. They are taken out of the environment before there is another process.
 * Thread-safe.
 */
const char *const *sbx_backend_secrets(const struct sbx_settings *settings);
/* The names of all backends, with "|" between them; what they are, for --help; and those of them
 * that fetch a source from elsewhere, in words. */
extern const char sbx_backend_names[], sbx_backend_help[], sbx_backend_elsewhere[];
/*
 * The backend of a mount that names none: that to which the environment belongs, or local. *WHY, in
 * words. Both are literals. Not thread-safe.
 */
const char *sbx_backend_default(const char **why);
#define SBX_SOURCE_PATHS 1u /* a directory of this host may be the source */
#define SBX_SOURCE_URLS  2u /* ORG/REPO or a URL may be */
/*
 * Which sources the backend that settings->backend names has. Without SBX_SOURCE_PATHS the source
 * is left as it is written, and the backend says what is wrong with it. Thread-safe.
 */
unsigned sbx_backend_sources(const struct sbx_settings *settings);
/*
 * What a user may want to know of what the backend found in the environment, in words; the
 * caller's, NULL: nothing. HOST as for sbx_backend_check(), which has succeeded. Not thread-safe.
 */
char *sbx_backend_note(const struct sbx_host *host);
/*
 * Whether the backend that settings->backend names has what it needs of the settings and of the
 * environment; HOST needs no more than these and secrets. It asks nobody. Answers as
 * sbx_backend_open(). Not thread-safe.
 */
int sbx_backend_check(const struct sbx_host *host, struct sbx_error *err);
/*
 * Opens the backend that settings->backend names. With settings->debug the result is wrapped in
 * the tracer. EINVAL: unknown name, or a source that cannot be used (no repository, bare, empty).
 * EOPNOTSUPP: not available in this build. Not thread-safe.
 */
int sbx_backend_open(const struct sbx_host *host, struct sbx_backend **ret, struct sbx_error *err);

/* As the member. It is asserted that each table of a recovered sandbox is whole. */
int sbx_backend_recover(struct sbx_backend *b, const struct sbx_recover *r, struct sbx_error *err);
/* As the member. *RET is the caller's; it is asserted that each of its tables is whole. */
int sbx_backend_create(struct sbx_backend *b, const struct sbx_create *req,
                       struct sbx_sandbox **ret, struct sbx_error *err);

/* [any] As the member; nothing where there is none. */
static inline void sbx_backend_begin(struct sbx_backend *b)
{
	if (b->impl->begin)
		b->impl->begin(b);
}

/* As the member; 0 without a call of fn where the backend has no trash. */
static inline int sbx_backend_trash(struct sbx_backend *b,
                                    int (*fn)(const struct sbx_trash *t, void *data), void *data,
                                    struct sbx_error *err)
{
	return b->impl->trash ? b->impl->trash(b, fn, data, err) : 0;
}

/* [any] As the member; NULL where there are none. */
static inline const struct sbx_secret *sbx_host_secret(const struct sbx_host *host,
                                                       const char *name)
{
	return host->secret ? host->secret(name, host->data) : NULL;
}

/* Accepts NULL. */
static inline void sbx_backend_destroy(struct sbx_backend *b)
{
	if (b)
		b->impl->destroy(b);
}

#endif
