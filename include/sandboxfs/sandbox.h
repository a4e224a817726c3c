/*
 * A sandbox, as a backend hands it over: a directory tree, and tables of what can be done with it.
 *
 * The tree is handed over as a directory descriptor: file operations of the mount work on it
 * directly, with the kernel's own semantics. A backend whose files live elsewhere keeps a local
 * copy there.
 *
 * Calls are marked:
 *   [pool]  may block; called on a worker of the pool, never on a FUSE worker or the event loop
 *   [disk]  may wait for the local disk, as a FUSE worker may; never for a network or a client
 *   [any]   must not block; called on any thread
 *   [loop]  must not block; called on the event loop thread
 * Different sandboxes may be used at once from several threads. For one sandbox the caller never
 * overlaps [pool] calls. All that return int answer 0 or a negative errno, and then fill *err
 * (which may be NULL) with a sentence.
 */
#ifndef SANDBOXFS_SANDBOX_H
#define SANDBOXFS_SANDBOX_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "sandboxfs/error.h"
#include "sandboxfs/identity.h"

struct json_object;
struct sbx_away_impl;
struct sbx_command_impl;
struct sbx_git_impl;
struct sbx_history_impl;
struct sbx_job;
struct sbx_remote_impl;
struct sbx_sandbox;
struct sbx_storage_impl;

struct sbx_sandbox_impl {
	/*
	 * [any] The root of the tree: an O_PATH or O_RDONLY directory descriptor. It belongs to the
	 * sandbox, and stays valid until remove has succeeded, or close. Mandatory.
	 */
	int (*root)(struct sbx_sandbox *sb);
	/* [any] Adds what describes the sandbox ("source", "branch", ...) to OBJ. Optional. */
	void (*info)(struct sbx_sandbox *sb, struct json_object *obj);
	/* [any] Adds what is in force ("isolation": {...}, ...) to OBJ. Optional. */
	void (*policy)(struct sbx_sandbox *sb, struct json_object *obj);
	/* [pool] Gives the sandbox another name, durably. Optional: -EOPNOTSUPP. */
	int (*rename)(struct sbx_sandbox *sb, const char *name, struct sbx_error *err);
	/*
	 * [pool] The first half of a teardown, quick: journals the intent and takes the tree out of
	 * the way, so that the name is free. It never fails because something is gone. Mandatory.
	 */
	int (*retire)(struct sbx_sandbox *sb, struct sbx_error *err);
	/*
	 * [pool] The second half: removes everything, when all jobs have ended. It may be repeated
	 * after a failure, and is finished by recover after a crash. What is to be saved and cannot
	 * be is such a failure. 1: all is gone, and *err says what was not saved. Mandatory.
	 */
	int (*remove)(struct sbx_sandbox *sb, struct sbx_error *err);
	/* [any] Frees the object, not the sandbox. All its jobs have ended. Mandatory. */
	void (*close)(struct sbx_sandbox *sb);

	/* Each NULL where the backend has none of it. */
	const struct sbx_command_impl *commands; /* commands.h: it runs commands */
	const struct sbx_storage_impl *storage; /* storage.h: the tree is on this machine's disks */
	const struct sbx_git_impl *git;         /* git.h: .git is not the tree's own */
	const struct sbx_history_impl *history; /* history.h: snapshots, diff, restore */
	const struct sbx_remote_impl *remote;   /* remote.h: push */
	const struct sbx_away_impl *away;       /* away.h: files may be elsewhere */
};

/* Properties of a sandbox's tree. The backend fills them in once; they never change. */
struct sbx_tree {
	struct sbx_identity owner; /* of its files; the mount shows them as the daemon's own */
	bool mounted; /* the host has it at MNT/NAME only, commands at workdir as well */
	/* rename(2) of a directory may answer EXDEV, and the mount moves it entry by entry. */
	bool emulate_dir_rename;
	bool splits_links; /* each name of a file may have an inode number of its own */
	/*
	 * A file that was born up to then may be copied when it is first written, and so born
	 * again. Ns of CLOCK_REALTIME; 0: none is.
	 */
	int64_t unstable_before_ns;
	/*
	 * By index of sbx_result_names, a bit for each of them that the tree had before anybody
	 * could have made it: there the file is what the name means, else the result. Never
	 * changes, whatever becomes of the file.
	 */
	unsigned own_results;
};

/* Below 1024: no command can take it. */
#define SBX_PROXY_PORT 808
#define SBX_PROXY_URL  "http://127.0.0.1:808"

/*
 * Events of a sandbox. The backend calls them on the event loop thread, holding no lock of its
 * own.
 */
struct sbx_sandbox_events {
	/*
	 * With net=allow: FD, the callee's, is a non-blocking TCP socket that listens at
	 * SBX_PROXY_PORT of the sandbox's own loopback. It is the only way out that its commands
	 * have. Comes once for each namespace that the sandbox is given, before the first command
	 * in it has started.
	 */
	void (*listening)(struct sbx_sandbox *sb, int fd, void *data);
	/*
	 * [any] The file or directory open at NEW has taken the name of the one open at OLD: who
	 * has that means this one from now on. The turn is held alone.
	 */
	void (*replaced)(struct sbx_sandbox *sb, int old, int new, void *data);
	/*
	 * [any] Names, attributes or contents are others than they were, and not by the mount. The
	 * turn is not held.
	 */
	void (*altered)(struct sbx_sandbox *sb, void *data);
	/* [any] Something that its user may want to hear of: a word for `events`, and a sentence.
	 */
	void (*told)(struct sbx_sandbox *sb, const char *event, const char *text, void *data);
};

/*
 * First member of every implementation. The backend fills all but what is set by the caller, and
 * its close frees the strings. name changes in rename only, under the caller's lock.
 */
struct sbx_sandbox {
	const struct sbx_sandbox_impl *impl;
	char *name;         /* as in MNT/NAME */
	char *id;           /* unique for ever, [A-Za-z0-9._-]+; never changes */
	char *workdir;      /* absolute path of the tree on the host */
	int64_t created_ms; /* CLOCK_REALTIME, ms */
	struct sbx_tree tree;
	uint64_t disk_mb; /* limit of what it may hold when it was opened; 0: none */
	/* Set by the caller while jobs run: then a barrier that is not NOW gives up. */
	atomic_bool busy;
	bool unsaved; /* what changes is in memory until barrier is called */
	/* Set by barrier: what leads to the tree is on disk, and stays there. */
	atomic_bool anchored;
	/* away.h; NULL: all files are here. */
	pthread_rwlock_t *turn;
	/* Set by the caller before the first command. NULL: nobody wants to know. */
	const struct sbx_sandbox_events *events;
	void *events_data;
};

/* For backends: calls the event. Where nobody wants to know, FD is closed. [loop] */
void sbx_sandbox_listening(struct sbx_sandbox *sb, int fd);
/* For backends: as the events; nothing where nobody wants to know. */
void sbx_sandbox_replaced(struct sbx_sandbox *sb, int old, int new);
void sbx_sandbox_altered(struct sbx_sandbox *sb);
void sbx_sandbox_told(struct sbx_sandbox *sb, const char *event, const char *text);

/* [any] As the member: borrowed, not to be closed. */
static inline int sbx_sandbox_root(struct sbx_sandbox *sb)
{
	return sb->impl->root(sb);
}

/* [any] As the member; adds nothing where the backend has none. OBJ stays the caller's. */
static inline void sbx_sandbox_info(struct sbx_sandbox *sb, struct json_object *obj)
{
	if (sb->impl->info)
		sb->impl->info(sb, obj);
}

/* [any] As the member; adds nothing where the backend has none. OBJ stays the caller's. */
static inline void sbx_sandbox_policy(struct sbx_sandbox *sb, struct json_object *obj)
{
	if (sb->impl->policy)
		sb->impl->policy(sb, obj);
}

/*
 * [pool] As the member. 0 or a negative errno; -EBUSY where a hurried sync has not brought
 * everything over.
 */
static inline int sbx_sandbox_retire(struct sbx_sandbox *sb, struct sbx_error *err)
{
	return sb->impl->retire(sb, err);
}

/* [pool] As the member, after retire. 0, 1 or a negative errno. */
static inline int sbx_sandbox_remove(struct sbx_sandbox *sb, struct sbx_error *err)
{
	return sb->impl->remove(sb, err);
}

/* Accepts NULL. */
static inline void sbx_sandbox_close(struct sbx_sandbox *sb)
{
	if (sb)
		sb->impl->close(sb);
}

/* As the member; -EINVAL where NAME is no name of a sandbox. */
int sbx_sandbox_rename(struct sbx_sandbox *sb, const char *name, struct sbx_error *err);

/*
 * 0 when NAME is a sandbox name: [A-Za-z0-9][A-Za-z0-9._-]{0,62}, not "ctl", "README" or
 * "SKILL.md"; else -EINVAL with the reason. Thread-safe.
 */
int sbx_name_check(const char *name, struct sbx_error *err);

/*
 * Names in a sandbox's root by which the results of its last command are read as well: stdout,
 * stderr, status.
 */
#define SBX_RESULTS 3
extern const char *const sbx_result_names[SBX_RESULTS];
/* Those of them that are in the directory DIRFD (-1: none), as bits. Thread-safe. */
unsigned sbx_result_names_in(int dirfd);

#endif
