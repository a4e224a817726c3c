/*
 * A provider of sandboxes elsewhere: what the remote layer needs of Daytona, Vercel, Dagger. It can
 * make and remove a machine (the word for a sandbox at the provider), run a POSIX shell script in
 * it, and put files into it. All else (trees, jobs, what changed) is built on that, once for all.
 *
 * Calls are marked as in sandboxfs/sandbox.h, and:
 *   [wait]  may wait for a network; on a thread of a wide pool. Polls *CANCELLED (may be NULL), and
 *           then answers EINTR
 * Those that return int answer 0 or a negative errno, and then fill *err with a sentence. What a
 * server answers becomes an errno by sbx_http_errno(); then, of a machine: ESTALE it is gone,
 * EBUSY it is changing, EKEYREJECTED the credentials were refused, ENETUNREACH, ECONNREFUSED,
 * ETIMEDOUT, EREMOTEIO (the server failed), EPROTO (its answer cannot be understood). No sentence
 * has a secret.
 */
#ifndef SANDBOXFS_BACKENDS_REMOTE_PROVIDER_H
#define SANDBOXFS_BACKENDS_REMOTE_PROVIDER_H

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sandboxfs/backend.h"
#include "sandboxfs/error.h"
#include "sandboxfs/http.h"

struct sbx_provider;
struct json_object;

/*
 * A machine. Made by make or adopt; first member of the provider's own object. Constant but for
 * what the provider has beside it, under a lock of its own: several threads use it at once.
 */
struct sbx_machine {
	struct sbx_provider *provider;
	char *handle;  /* what adopt needs: a line of text, kept in the sandbox's record */
	char *workdir; /* absolute path of the tree there */
	char *room;    /* absolute path of a directory for the runner's own files; may have to be
	                * made; not below workdir */
};

/* What is asked of make. Strings are borrowed. */
struct sbx_machine_request {
	const char
	        *name; /* unique for ever, [a-z0-9-]: by it a create without an answer is found */
	const char *label;         /* the daemon's: find lists those that have it */
	const char *source;        /* of the mount: ORG/REPO, a URL, a path; NULL: none */
	const char *base, *branch; /* or NULL. BRANCH is made where it is not there; where the
	                            * source has it, see SBX_PROVIDER_CONTINUES */
	/* [any] What it is at, in a few words: "cloning ORG/REPO". */
	void (*progress)(const char *text, void *data);
	void *data;
};

enum sbx_machine_state {
	SBX_MACHINE_UP,
	SBX_MACHINE_ASLEEP, /* the next run wakes it */
	SBX_MACHINE_CHANGING,
	SBX_MACHINE_FAILED,
	SBX_MACHINE_GONE,
};

struct sbx_machine_look {
	enum sbx_machine_state state;
	char reason[256]; /* of FAILED; else "" */
	double cpus;      /* 0: not known, as all below */
	uint64_t memory_mb, disk_mb;
	char region[64];
	int64_t expires_ms; /* CLOCK_REALTIME */
	uint64_t used_ms;   /* of its processors */
};

/* A script that runs in a machine. The caller's, until done. */
struct sbx_machine_run {
	const char *op;     /* a literal, [a-z_]: MNT/ctl/stats counts by it */
	const char *script; /* for `sh -c`, SBX_SCRIPT_MAX bytes at most; its cwd is anywhere */
	size_t script_len;
	uint64_t deadline_ms;
	size_t answer_max; /* bytes of its output */
	bool safe;         /* it may run twice: repeat it where the answer is lost */
	bool held;         /* it ends when something happens there */
	/*
	 * [loop] Once. CODE 0: the script has run, whatever its exit status; OUT is its standard
	 * output, malloc'd and the caller's.
	 */
	void (*done)(struct sbx_machine_run *run, int code, char *out, size_t len,
	             const struct sbx_error *err);
	void *data;
	bool not_run; /* set before done, where CODE is not 0: it has certainly not run */
	void *part;   /* the provider's */
};
#define SBX_SCRIPT_MAX ((size_t)96 * 1024) /* a word of a command line has 128 KiB at most */

/* A file to be put: its name there is the number. */
struct sbx_machine_file {
	unsigned number;
	struct sbx_http_bytes bytes; /* DATA, or the regular file FD from OFFSET */
};

/* Whether CODE, a negative errno, says by itself that a script which was sent once has not run. */
static inline bool sbx_machine_not_run(int code)
{
	return code == -ECONNREFUSED || code == -ENETUNREACH || code == -EBUSY || code == -EAGAIN ||
	       code == -EKEYREJECTED || code == -EDQUOT || code == -ESTALE || code == -E2BIG ||
	       code == -ENOMEM || code == -EINVAL;
}

/* Files that are written to the directory ROOM/in of a machine, which is made. The caller's, until
 * done. Whole or not at all is not asked: it is done again when it failed. */
struct sbx_machine_put {
	const char *op;
	const struct sbx_machine_file *files;
	size_t n;
	uint64_t deadline_ms;
	void (*done)(struct sbx_machine_put *put, int code,
	             const struct sbx_error *err); /* [loop] */
	void *data;
	void *part; /* the provider's */
};

/* Bits of sbx_provider_impl.can. */
#define SBX_PROVIDER_DETACHES       1u /* what a script starts in the background goes on after it */
#define SBX_PROVIDER_PARALLEL       2u /* scripts may run at once in a machine */
#define SBX_PROVIDER_SLEEPS         4u /* one that is not touched sleeps, and wakes */
#define SBX_PROVIDER_BLOCKS_NETWORK 8u /* net=none is enforced */
#define SBX_PROVIDER_FILTERS_HOSTS  16u  /* net=allow:LIST is enforced */
#define SBX_PROVIDER_EPHEMERAL      32u  /* what stops is gone: there is no waking */
#define SBX_PROVIDER_MERGES         64u  /* a command writes its stderr to its stdout */
#define SBX_PROVIDER_CONTINUES      128u /* a branch that the source has is gone on with */
/* A file may have another inode in the next run. Where all have, by a copy that keeps their times,
 * the empty file ROOM/renumbered is made behind it. */
#define SBX_PROVIDER_RENUMBERS 256u
#define SBX_PROVIDER_COPY_ENDS 512u /* copy ends what runs in the machine */

struct sbx_provider_impl {
	const char *name; /* the backend's, as when mounting */
	unsigned can;
	uint64_t idle_ms; /* without a touch, after which a machine stops or ends; 0: never */
	/*
	 * [wait] Makes a machine: there is the source at the base, on the branch, in its workdir.
	 * On failure nothing is left, or what is left has the label and is found later. EEXIST: one
	 * of that name is there already (and is adopted: *ret is set). EINTR: what there is of it
	 * is the caller's to unmake.
	 */
	int (*make)(struct sbx_provider *p, const struct sbx_machine_request *req,
	            struct sbx_machine **ret, atomic_bool *cancelled, struct sbx_error *err);
	/*
	 * [wait] A machine that begins as M is by now, with all that is in it but its room, which
	 * is empty; from then on neither has anything of the other. NAME as in the request of make;
	 * the label is M's. It is kept as one that was made, and found. A run or put of M that is
	 * under way is in it wholly or not at all, but with SBX_PROVIDER_COPY_ENDS: what the host
	 * writes meanwhile may be in it by halves. On failure as make, but EEXIST: there is no
	 * machine then. Optional: sandboxes start as the source only.
	 */
	int (*copy)(struct sbx_machine *m, const char *name, struct sbx_machine **ret,
	            atomic_bool *cancelled, struct sbx_error *err);
	/* [any] The machine that HANDLE, of an earlier daemon, names. Asks nobody. */
	int (*adopt)(struct sbx_provider *p, const char *handle, struct sbx_machine **ret,
	             struct sbx_error *err);
	/* [any] Frees the object, not what it stands for. No run or put of it is under way. */
	void (*release)(struct sbx_machine *m);
	/* [wait] How it is. 0 with SBX_MACHINE_GONE where it is no more. */
	int (*look)(struct sbx_machine *m, struct sbx_machine_look *ret, atomic_bool *cancelled,
	            struct sbx_error *err);
	/* [wait] Removes the machine that was made as NAME; success when there is none. HANDLE may
	 * be NULL: its create was not answered. EINTR: it may go on there. */
	int (*unmake)(struct sbx_provider *p, const char *name, const char *handle,
	              atomic_bool *cancelled, struct sbx_error *err);
	/*
	 * [wait] Calls fn for each machine that has LABEL: the name it was made by, its handle,
	 * when it was made (CLOCK_REALTIME, ms). A non-zero return of fn ends the walk, and is
	 * returned.
	 */
	int (*find)(struct sbx_provider *p, const char *label,
	            int (*fn)(const char *name, const char *handle, int64_t made_ms, void *data),
	            void *data, struct sbx_error *err);
	/* [wait] It is in use: its life is counted from now on. Optional. */
	int (*touch)(struct sbx_machine *m, atomic_bool *cancelled, struct sbx_error *err);
	/*
	 * [wait] Keeps M on this host as it is, so that look makes it anew where the provider has
	 * forgotten it, which it may between two mounts. It may take minutes. Before look was
	 * called once, nothing else is asked of a machine that was adopted. Optional.
	 */
	int (*save)(struct sbx_machine *m, atomic_bool *cancelled, struct sbx_error *err);
	/*
	 * [disk] Keeps what M is by now under the name KEY, [A-Za-z0-9._:-]+, which it takes from
	 * what had it. A run or put that is under way is in it wholly or not at all. It goes with
	 * M. Optional, as both below: all three, or none.
	 */
	int (*keep)(struct sbx_machine *m, const char *key, struct sbx_error *err);
	/* [disk] Forgets what was kept as KEY; success when there is nothing. */
	int (*drop)(struct sbx_machine *m, const char *key, struct sbx_error *err);
	/*
	 * [wait] M is what was kept as KEY, with all that was in it but its room, which is empty;
	 * what it was is kept as WAS. ENOENT: nothing is kept as KEY. ESTALE: the provider has
	 * forgotten that; M is as it was.
	 */
	int (*back)(struct sbx_machine *m, const char *key, const char *was, atomic_bool *cancelled,
	            struct sbx_error *err);
	/* [any] Begins RUN; done follows in any case. */
	void (*run)(struct sbx_machine *m, struct sbx_machine_run *run);
	/* [any] Has done called soon, if it was not yet; the script may go on. */
	void (*cancel_run)(struct sbx_machine *m, struct sbx_machine_run *run);
	/* [any] Begins PUT; done follows in any case. */
	void (*put)(struct sbx_machine *m, struct sbx_machine_put *put);
	void (*cancel_put)(struct sbx_machine *m, struct sbx_machine_put *put);
	/* [any] Adds what a user may want to know of the provider ("url", "target") to OBJ. */
	void (*info)(struct sbx_provider *p, struct json_object *obj);
	/* [any] No machine of it is left. */
	void (*destroy)(struct sbx_provider *p);
};

struct sbx_provider {
	const struct sbx_provider_impl *impl; /* first member of every implementation */
};

/* The backend whose sandboxes are machines of P, which is taken over. As sbx_backend_open(). */
int sbx_remote_open(const struct sbx_host *host, struct sbx_provider *p, struct sbx_backend **ret,
                    struct sbx_error *err);

#endif
