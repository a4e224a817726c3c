/*
 * The contract between the file system and the places sandboxes come from.
 *
 * A backend supplies sandboxes; a sandbox supplies a directory tree and runs
 * commands in it. The tree is handed over as a directory descriptor: file
 * operations of the mount work on it directly, with the kernel's own semantics.
 * A backend whose files live elsewhere keeps a local copy there. A backend knows
 * names and paths, never inode numbers or requests.
 *
 * Calls are marked:
 *   [pool]  may block; called on a worker of the pool, never on a FUSE worker or
 *           the event loop
 *   [any]   must not block; called on any thread
 *   [loop]  must not block; called on the event loop thread
 * Different sandboxes may be used at once from several threads. For one sandbox the caller
 * never overlaps [pool] calls. All return 0 or a negative errno and fill *err
 * (which may be NULL) with a sentence.
 */
#ifndef SANDBOXFS_BACKEND_H
#define SANDBOXFS_BACKEND_H

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include "sandboxfs/error.h"
#include "sandboxfs/exec.h"
#include "sandboxfs/history.h"
#include "sandboxfs/identity.h"
#include "sandboxfs/settings.h"

struct json_object;
struct sbx_backend;
struct sbx_job;
struct sbx_loop;
struct sbx_sandbox;

/* A create request; NULL members take the mount's defaults. */
struct sbx_create {
	const char *name; /* valid as by sbx_name_check() */
	const char *base; /* commit-ish */
	const char
	        *branch; /* branch name, used as it is, and continued where it is there already */
	const char *branch_exists; /* "new", "refuse" or "continue", for this one; see settings.h */
	/*
	 * What it starts as; base is NULL then. FROM: a sandbox of this backend, whose [pool] calls the caller keeps away meanwhile, with
	 * all that is in its tree, ignored files too, committed or not (REV NULL), or as REV (history.h) was. TRASH: the entry of that
	 * name that a teardown has left. ENOENT no such REV or entry.
	 */
	struct sbx_sandbox *from;
	const char *rev;
	const char *trash;
	atomic_bool *cancelled; /* polled during long work: -EINTR and nothing left; may be NULL */
};

/* What recover reports. */
struct sbx_recover {
	void (*found)(struct sbx_sandbox *sb, void *data); /* hands the sandbox over */
	void (*note)(const char *text, void *data);        /* one line for `events` */
	/* One whose teardown could not be finished yet: retire is done, remove is to be called. NULL: none is handed over. */
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

	/*
	 * [pool] Brings the state directory into order after whatever happened:
	 * finishes teardowns, rolls back creates, adopts the rest. Called once,
	 * before any other call, single-threaded. Mandatory.
	 */
	int (*recover)(struct sbx_backend *b, const struct sbx_recover *r, struct sbx_error *err);
	/*
	 * [pool] Makes a sandbox. Atomic: on failure nothing is left. The name is not in use.
	 * EINVAL (bad base or branch), ENOENT (base does not exist), EEXIST/EBUSY (branch
	 * checked out elsewhere), ENOSPC, EINTR (cancelled). Mandatory.
	 */
	int (*create)(struct sbx_backend *b, const struct sbx_create *req, struct sbx_sandbox **ret,
	              struct sbx_error *err);
	/*
	 * [disk] Calls fn for each entry of the trash, oldest first: what teardowns saved of work that was not committed. A non-zero return
	 * ends it and is returned. Optional: there is none.
	 */
	int (*trash)(struct sbx_backend *b, int (*fn)(const struct sbx_trash *t, void *data),
	             void *data, struct sbx_error *err);
	/* [any] Releases the backend; its sandboxes have been closed before. Mandatory. */
	void (*destroy)(struct sbx_backend *b);
};

struct sbx_backend {
	const struct sbx_backend_impl *impl; /* first member of every implementation */
};

#define SBX_NESTED_AT ".at" /* see nested */

struct sbx_sandbox_impl {
	/*
	 * [any] The root of the tree: an O_PATH or O_RDONLY directory descriptor that belongs to the
	 * sandbox and stays valid until remove has succeeded, or close. Mandatory.
	 */
	int (*root)(struct sbx_sandbox *sb);
	/* [any] Adds what describes the sandbox ("source", "branch", "base", ...) to OBJ. Optional. */
	void (*info)(struct sbx_sandbox *sb, struct json_object *obj);
	/* [any] Adds what is in force ("isolation": {...}, ...) to OBJ. Optional. */
	void (*policy)(struct sbx_sandbox *sb, struct json_object *obj);
	/* [pool] Gives the sandbox another name, durably. Optional: -EOPNOTSUPP. */
	int (*rename)(struct sbx_sandbox *sb, const char *name, struct sbx_error *err);
	/*
	 * [pool] First half of teardown, quick: journals the intent, takes the tree out of the
	 * way so that the name is free. Never fails because something is gone. Mandatory.
	 */
	int (*retire)(struct sbx_sandbox *sb, struct sbx_error *err);
	/*
	 * [pool] Second half: removes everything. May be repeated after a failure, and
	 * is finished by recover after a crash. All jobs have ended. What is to be saved and cannot be is such a
	 * failure. 1: all is gone, and *err says what was not saved. Mandatory.
	 */
	int (*remove)(struct sbx_sandbox *sb, struct sbx_error *err);
	/* [any] The next remove goes on without what it cannot save. Optional: nothing is ever saved. */
	void (*discard)(struct sbx_sandbox *sb);
	/* [any] Frees the object (not the sandbox). All its jobs are destroyed. Mandatory. */
	void (*close)(struct sbx_sandbox *sb);

	/*
	 * [any] Starts a command. On 0, *ret is the job and EVENTS will be called with DATA
	 * (possibly before this returns, on the loop thread). A command that cannot be started is
	 * reported by ended with SBX_END_FAILED, or by a negative errno here.
	 * ENOENT program or cwd missing, EACCES not executable or cwd escapes, EAGAIN,
	 * E2BIG. Optional: -EOPNOTSUPP.
	 */
	int (*exec)(struct sbx_sandbox *sb, const struct sbx_exec *spec,
	            const struct sbx_exec_events *events, void *data, struct sbx_job **ret,
	            struct sbx_error *err);

	/*
	 * [any] Whether sync may have something to do, or a barrier under way has to end first; microseconds. Asked before each
	 * command. Optional: no.
	 */
	bool (*stale)(struct sbx_sandbox *sb);
	/*
	 * [pool] Brings what commands see of state that is kept twice (git's) in step with what the host
	 * sees. Called before a command starts and after one has ended, when stale; others may be running.
	 * EEXIST: both sides moved apart, and both stay; else what kept them from agreeing. Commands go on
	 * in any case. Optional.
	 */
	int (*sync)(struct sbx_sandbox *sb, struct sbx_error *err);
	/*
	 * [any] Somebody waits for the end of the sandbox, or of the mount: a sync, and one that
	 * retire makes, gives up MS milliseconds from now; what it has not brought over stays, and
	 * retire answers EBUSY. 0: it need not any more. Optional.
	 */
	void (*hurry)(struct sbx_sandbox *sb, unsigned ms);
	/*
	 * [any] What the file .git in the root says to the host, whatever the tree holds there; constant.
	 * NULL (also when absent): the tree's own.
	 */
	const char *(*gitfile)(struct sbx_sandbox *sb);
	/*
	 * [pool] Before the host goes by gitfile: sees to it that nothing in the tree is run for
	 * that. EPERM: it cannot be done, and the file is not to be had; another errno likewise.
	 * Optional: there is nothing to see to.
	 */
	int (*guard)(struct sbx_sandbox *sb, struct sbx_error *err);

	/*
	 * [any] A descriptor, the caller's, of a directory on the tree's file system that no command reaches and that goes
	 * with the sandbox, for what the host keeps of names that it shares with commands; made when MAKE.
	 * A symbolic link X.at in it tells where in the tree X has its place, so that commands see it there, read only.
	 * -ENOENT not made yet. Optional: -EOPNOTSUPP, and no name is kept apart.
	 */
	int (*nested)(struct sbx_sandbox *sb, bool make);

	const struct sbx_history_impl *history; /* snapshots, diff, push. Optional */

	/*
	 * [any] What is going to be written through the mount: NAME in the directory DIRFD of the
	 * tree is about to be removed, or with NAME NULL anything else. Microseconds. So that what
	 * a removal of all takes with it can be saved as it was. Optional.
	 */
	void (*changing)(struct sbx_sandbox *sb, int dirfd, const char *name);
	/*
	 * [any] A write found no room (ENOSPC, EDQUOT): gives some of it back that is taken by what
	 * was removed. Whether it did, so that the write is to be tried again; and once more
	 * when not, as another thread may have done so just before. Milliseconds. Optional.
	 */
	bool (*make_room)(struct sbx_sandbox *sb);
	/* [any] Gives the sandbox another limit of MB MiB on what it may hold. Optional: -EOPNOTSUPP. */
	int (*resize)(struct sbx_sandbox *sb, uint64_t mb, struct sbx_error *err);
	/*
	 * [pool] Returns when all that was written is on disk together with what
	 * leads to it, so that neither the daemon's death nor a power cut loses it. Without NOW it
	 * gives up (0) while the sandbox is busy, and as soon as a command starts. The content of
	 * regular files that are on disk anyhow is the caller's to sync. Optional.
	 */
	int (*barrier)(struct sbx_sandbox *sb, bool now, struct sbx_error *err);
};

/*
 * First member of every implementation. name, id and workdir are filled by
 * the backend and freed by its close. name changes only in rename, under the caller's lock.
 */
struct sbx_sandbox {
	const struct sbx_sandbox_impl *impl;
	char *name;         /* as in MNT/NAME */
	char *id;           /* unique for ever, [A-Za-z0-9._-]+; never changes */
	char *workdir;      /* absolute path of the tree on the host */
	int64_t created_ms; /* CLOCK_REALTIME, ms */
	/* The tree is put together by an overlay: the host has it at MNT/NAME only, commands at workdir as well. */
	bool layered;
	uint64_t disk_mb; /* limit of what it may hold when it was opened; 0: none */
	/* Set by the caller while jobs run: then a barrier that is not NOW gives up. */
	atomic_bool busy;
	bool unsaved; /* what changes is in memory until barrier is called */
	atomic_bool
	        anchored; /* set by barrier: what leads to the tree is on disk, and stays there */
	bool splits;      /* layered: each name of a file may have an inode number of its own */
	int64_t base_ns;  /* layered: a file born up to then may be copied up, and so born again */
	struct sbx_identity owner; /* of the files; the mount shows them as the daemon's own */
	/*
	 * By index of sbx_result_names, a bit for each of them that the tree had before anybody
	 * could have made it: there the file is what the name means, else the result. Never
	 * changes, whatever becomes of the file.
	 */
	unsigned own_results;
};

/*
 * Names in a sandbox's root by which the results of its last command are read as well: stdout,
 * stderr, status.
 */
#define SBX_RESULTS 3
extern const char *const sbx_result_names[SBX_RESULTS];
/* Those of them that are in the directory DIRFD (-1: none), as bits. Thread-safe. */
unsigned sbx_result_names_in(int dirfd);

struct sbx_job_impl {
	/*
	 * [loop] Sends SIG to everything the job started; SIGKILL leaves nothing alive. A job that
	 * has ended ignores it. Mandatory.
	 */
	void (*signal)(struct sbx_job *job, int sig);
	/* [loop] Frees the job, after ended. Mandatory. */
	void (*destroy)(struct sbx_job *job);
};

struct sbx_job {
	const struct sbx_job_impl *impl; /* first member of every implementation */
};

/* What a backend may use of the daemon. Lives as long as the backend. */
struct sbx_host {
	const struct sbx_settings *settings;
	struct sbx_loop *loop;
	struct sbx_spawner *spawner; /* NULL where no command is ever run (tests) */
	/*
	 * [any] Tells that something kept of the removed sandbox NAME is kept no longer, in a
	 * sentence. NULL: nobody wants to know.
	 */
	void (*dropped)(const char *name, const char *text, void *data);
	void *data;
};

/*
 * Opens the backend that settings->backend names. EINVAL unknown name or unusable source
 * (not a repository, bare, empty), EOPNOTSUPP not available in this build. With
 * settings->debug the result is wrapped in the tracer. Not thread-safe.
 */
int sbx_backend_open(const struct sbx_host *host, struct sbx_backend **ret, struct sbx_error *err);

/* Wrappers that supply the answer for absent members; see the members. */
int sbx_backend_recover(struct sbx_backend *b, const struct sbx_recover *r, struct sbx_error *err);
int sbx_backend_create(struct sbx_backend *b, const struct sbx_create *req,
                       struct sbx_sandbox **ret, struct sbx_error *err);
int sbx_backend_trash(struct sbx_backend *b, int (*fn)(const struct sbx_trash *t, void *data),
                      void *data, struct sbx_error *err);
void sbx_backend_destroy(struct sbx_backend *b); /* accepts NULL */

int sbx_sandbox_root(struct sbx_sandbox *sb);
void sbx_sandbox_info(struct sbx_sandbox *sb, struct json_object *obj);
void sbx_sandbox_policy(struct sbx_sandbox *sb, struct json_object *obj);
int sbx_sandbox_rename(struct sbx_sandbox *sb, const char *name, struct sbx_error *err);
int sbx_sandbox_retire(struct sbx_sandbox *sb, struct sbx_error *err);
int sbx_sandbox_remove(struct sbx_sandbox *sb, struct sbx_error *err);
void sbx_sandbox_discard(struct sbx_sandbox *sb);
void sbx_sandbox_hurry(struct sbx_sandbox *sb, unsigned ms);
void sbx_sandbox_close(struct sbx_sandbox *sb); /* accepts NULL */
int sbx_sandbox_exec(struct sbx_sandbox *sb, const struct sbx_exec *spec,
                     const struct sbx_exec_events *events, void *data, struct sbx_job **ret,
                     struct sbx_error *err);
int sbx_sandbox_resize(struct sbx_sandbox *sb, uint64_t mb, struct sbx_error *err);
bool sbx_sandbox_stale(struct sbx_sandbox *sb);
int sbx_sandbox_sync(struct sbx_sandbox *sb, struct sbx_error *err);
const char *sbx_sandbox_gitfile(struct sbx_sandbox *sb);
int sbx_sandbox_guard(struct sbx_sandbox *sb, struct sbx_error *err);
int sbx_sandbox_nested(struct sbx_sandbox *sb, bool make);
void sbx_sandbox_changing(struct sbx_sandbox *sb, int dirfd, const char *name);
bool sbx_sandbox_make_room(struct sbx_sandbox *sb);
/* Whether a synced file of the tree needs a barrier to be safe. [any] */
bool sbx_sandbox_needs_barrier(const struct sbx_sandbox *sb);
int sbx_sandbox_barrier(struct sbx_sandbox *sb, bool now, struct sbx_error *err);

void sbx_job_signal(struct sbx_job *job, int sig);
void sbx_job_destroy(struct sbx_job *job); /* accepts NULL */

/*
 * 0 when NAME is a sandbox name: [A-Za-z0-9][A-Za-z0-9._-]{0,62}, not "ctl", not "README"; else
 * -EINVAL with the reason. Thread-safe.
 */
int sbx_name_check(const char *name, struct sbx_error *err);

#endif
