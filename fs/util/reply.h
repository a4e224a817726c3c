/*
 * An answer that is owed. Control files never see a FUSE request: they get a
 * pending answer, and give it now, or keep it and give it later from any
 * thread. Exactly one of the answering calls is made for each; it frees p.
 */
#ifndef SANDBOXFS_FS_UTIL_REPLY_H
#define SANDBOXFS_FS_UTIL_REPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct fuse_req;
struct sbx_pending;

struct sbx_pending_impl {
	void (*data)(struct sbx_pending *p, const void *buf, size_t len); /* of a read; 0: EOF */
	void (*count)(struct sbx_pending *p, size_t n);                   /* of a write */
	void (*error)(struct sbx_pending *p, int errnum); /* positive; 0: of a flush */
};

/*
 * Embedded by whoever owes the answer. Whoever keeps an answer that a client may give up waiting
 * for calls sbx_pending_defer before the call that received p returns; from then on the answer is
 * given on the event loop thread only, which is also where cancel is called, so the two never meet.
 * cancel comes when the client has signals pending: FATAL when one of them ends it or asks it to
 * stop (KILL, INT, TERM, QUIT), else any other; perhaps several times. It answers or does not;
 * after FATAL an answer must follow soon.
 */
struct sbx_pending {
	const struct sbx_pending_impl *impl; /* of an answer that a control file gives */
	void (*cancel)(struct sbx_pending *p, bool fatal); /* NULL: the client waits */
	void *owner;                                       /* for cancel */
	struct sbx_pending *next;                          /* for the owner's list */
	size_t size;                                       /* of the read or write */
	pid_t pid;                                         /* of the client, 0 when unknown */
	/* Of fs/fuse/interrupt.h: */
	struct fuse_req *req;
	uint64_t key;
	bool interrupted;
	struct sbx_pending *before, *behind;
};

/* From now on the client may give up; see above. Whoever answers later must be on the loop thread.
 */
static inline void sbx_pending_defer(struct sbx_pending *p,
                                     void (*cancel)(struct sbx_pending *p, bool fatal), void *owner)
{
	p->owner = owner;
	__atomic_store_n(&p->cancel, cancel, __ATOMIC_RELEASE);
}

/* Loop thread: the client has a signal. Nothing happens to an answer that nobody has parked. */
static inline void sbx_pending_cancel(struct sbx_pending *p, bool fatal)
{
	void (*cancel)(struct sbx_pending *, bool) = __atomic_load_n(&p->cancel, __ATOMIC_ACQUIRE);

	if (cancel)
		cancel(p, fatal);
}

/* Answers a read with LEN bytes of BUF, which are copied; 0: end of file. P is gone. */
static inline void sbx_pending_data(struct sbx_pending *p, const void *buf, size_t len)
{
	p->impl->data(p, buf, len);
}

/* Answers a write: N bytes were taken. P is gone. */
static inline void sbx_pending_count(struct sbx_pending *p, size_t n)
{
	p->impl->count(p, n);
}

/* Answers with ERRNUM, a positive errno, or 0 for success without data (a flush). P is gone. */
static inline void sbx_pending_error(struct sbx_pending *p, int errnum)
{
	p->impl->error(p, errnum);
}

#endif
