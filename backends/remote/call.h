/*
 * A call of the runner: one request to a machine, in which the runner (*.sh) is sent along
 * with what it is to do, and which answers in frames. Nothing is installed there.
 *
 * The link to a machine sends calls, repeats what may be repeated while the deadline lasts, and
 * tells when the machine turns out to be gone or asleep. It knows nothing of trees and jobs.
 */
#ifndef SANDBOXFS_BACKENDS_REMOTE_CALL_H
#define SANDBOXFS_BACKENDS_REMOTE_CALL_H

#include <stdatomic.h>

#include "backends/remote/provider.h"
#include "backends/remote/text.h"

struct sbx_loop;
struct sbx_pool;

/* The functions of the runner, all parts of it, for the front of a script. */
extern const char remote_runner[];

enum remote_frame_kind {
	REMOTE_OUT = 'O',     /* bytes of a job's stdout, from offset A */
	REMOTE_ERR = 'E',     /* of its stderr */
	REMOTE_STARTED = 'S', /* a job runs, or has run */
	REMOTE_END = 'X',     /* a job has ended: A its exit status (0-255), B user ms, C system
	                       * ms; bytes "oom": memory was short */
	REMOTE_CUT = 'C',     /* what a job that has ended wrote and is not kept: A bytes of stdout,
	                       * B of stderr. Before its end */
	REMOTE_FAILED = 'F',  /* A: errno of Linux, bytes: the sentence; B, where it is not 0: only
	                       * what was to be told of the tree has failed */
	REMOTE_MANIFEST = 'M', /* bytes: as manifest.h; A: when it was begun, ns of the machine's
	                        * clock; B, where it is not 0: all files have other inodes since
	                        * then, which is the ctime of ROOM/renumbered; C, where it is not
	                        * 0: when what it tells was so */
	REMOTE_DATA = 'D',     /* word: as the caller named it; A: offset; bytes */
	REMOTE_STEP = 'N',     /* step A of batch B was refused; bytes: why */
	REMOTE_INFO = 'I',     /* word: a key; bytes: its value */
	REMOTE_TAR = 'T',      /* bytes: a tar of files of the tree */
};

struct remote_frame {
	enum remote_frame_kind kind;
	char word[72]; /* whose it is: a job's id, a key; "" */
	uint64_t a, b, c;
	const char *bytes; /* decoded; NUL-terminated behind len */
	size_t len;
};

#define REMOTE_REPLY_MAX  ((size_t)64 * 1024 * 1024) /* bytes of all frames, decoded */
#define REMOTE_FRAMES_MAX ((size_t)128 * 1024)

struct remote_reply {
	struct remote_frame *frames;
	size_t n;
	char *store; /* what the frames point to */
};
/* Frees it and zeroes it. May be repeated. */
void remote_reply_release(struct remote_reply *reply);
/* Whether TEXT, an answer of the runner, is whole: its last line is ".". Thread-safe. */
bool remote_reply_whole(const char *text, size_t len);
/*
 * Decodes TEXT. EPROTO: it is not whole, or no answer of the runner. EMSGSIZE: it holds more than
 * the limits above. Everything in it is hostile. Thread-safe.
 */
int remote_reply_read(const char *text, size_t len, struct remote_reply *ret,
                      struct sbx_error *err);
/* The first frame of KIND of WORD (NULL: of any) from *AT on, which is moved behind it; or NULL. */
const struct remote_frame *remote_reply_next(const struct remote_reply *reply, size_t *at,
                                             enum remote_frame_kind kind, const char *word);
/*
 * The errno that F, a REMOTE_FAILED, gives: one of those that the runner's scripts name; else 0,
 * because it was not they that said it. Each of them may become the answer of a FUSE operation. By
 * ENOSYS the kernel would never ask for that operation again, in no sandbox, and an answer with an
 * errno that is none (ERESTARTSYS and up) it would refuse, so that the caller waited for ever.
 */
int remote_reply_errno(const struct remote_frame *f);

struct remote_link_config {
	struct sbx_machine *machine;
	struct sbx_loop *loop;
	struct sbx_pool *pool; /* wide; large answers are decoded there */
	uint64_t backoff_ms;   /* the least pause before the first repeat. 0: 400 */
	/* [loop] Once: a call failed because the provider has no such machine (ESTALE). May be
	 * NULL. */
	void (*gone)(void *data);
	/* [loop] remote_link_fail was called, and no call is under way any more. May be NULL. */
	void (*idle)(void *data);
	void *data;
};
struct remote_link;
/* 0 or -ENOMEM. CONFIG is copied; what it points to stays. */
int remote_link_create(const struct remote_link_config *config, struct remote_link **ret);
/* No call is under way. Accepts NULL. */
void remote_link_destroy(struct remote_link *link);
/* [loop] From here on every call ends by CODE (a positive errno) with TEXT, also those under way.
 * CODE 0: no more. */
void remote_link_fail(struct remote_link *link, int code, const char *text);

/* [any] The machine of the configuration. */
struct sbx_machine *remote_link_machine(const struct remote_link *link);
/* What went over the link: each sending counts. Bytes are those of scripts, files and answers. */
struct remote_link_stats {
	uint64_t requests, sent, received;
};
/* [any] */
void remote_link_stats(struct remote_link *link, struct remote_link_stats *ret);
/* [any] A put of SENT bytes was made beside the link, and counts as well. */
void remote_link_count(struct remote_link *link, uint64_t sent);
/* Whether what failed by CODE, a negative errno, may succeed a moment later. */
bool remote_is_passing(int code);
/* How long to wait before it is done again, when it was so REPEATS times. In ms. */
uint64_t remote_pause_ms(const struct remote_link *link, unsigned repeats);
/* The deadline of a put of SIZE bytes, in ms. */
uint64_t remote_put_ms(uint64_t size);

/*
 * One call. It is the caller's, zeroed but for what is set, and lives until done. Where a machine
 * runs one script at a time (no SBX_PROVIDER_PARALLEL), calls wait for each other, in their order.
 * A body that does not fit into a script is put first, at the price of a request.
 */
struct remote_call {
	const char *op;          /* as sbx_machine_run.op */
	struct remote_text body; /* lines, each a function of the runner with its words; released by
	                          * the call before done */
	/* Put before the script runs; borrowed until done. From REMOTE_NUMBERS_LINK on numbers are
	 * the link's own. */
	const struct sbx_machine_file *files;
	size_t files_n;
	/*
	 * It may be sent again when the answer is lost: all that the runner does is done once,
	 * or is the same when done twice. Which is so for all its functions but r_raw.
	 */
	bool safe;
	/* What it does counts, not what it tells of the tree: it succeeds although that failed. */
	bool does;
	/* It is answered when something happens there, and is in the way of no other sandbox. */
	bool held;
	uint64_t deadline_ms; /* of each sending; repeats take until twice that */
	size_t answer_max;    /* 0: 24 MiB */
	/*
	 * [loop] Once. CODE is 0 or a negative errno, with the sentence in ERR. On 0 the reply,
	 * released afterwards unless it was stolen and zeroed; else NULL. The first frame
	 * REMOTE_FAILED without a word has become CODE.
	 */
	void (*done)(struct remote_call *call, int code, struct remote_reply *reply,
	             const struct sbx_error *err);
	void *data;
	/* Set before done: CODE is not 0, and a script that was sent may have run all the same. A
	 * frame that is CODE, and has no B, says that it did not. */
	bool maybe;
	/* private: */
	struct remote_link *link;
	void *part;
	atomic_bool given_up;
};
#define REMOTE_NUMBERS_LINK 2000000u

/* [any] */
void remote_call_begin(struct remote_link *link, struct remote_call *call);
/* [any] done follows soon with EINTR, unless it was called before. */
void remote_call_cancel(struct remote_call *call);
/*
 * [wait] Begins CALL, whose done and data are not used, and waits for its end. *CANCELLED (may be
 * NULL) is looked at ten times a second. On 0 *REPLY is the caller's.
 */
int remote_call_perform(struct remote_link *link, struct remote_call *call, atomic_bool *cancelled,
                        struct remote_reply *reply, struct sbx_error *err);

#endif
