/* The engine of files whose writes are requests. */
#ifndef SANDBOXFS_FS_CONTROL_REQUEST_FILE_H
#define SANDBOXFS_FS_CONTROL_REQUEST_FILE_H

#include "fs/control/control_impl.h"

/*
 * A file whose writes are requests: bytes are fed, each complete request starts an action, and the
 * write is answered when the last action has ended. All but cancel, serve are called with the
 * file's lock held, if it is not said otherwise.
 */
struct request_file_impl {
	bool whole; /* a write is one request, however many lines it has */
	int (*feed)(struct sbx_control_handle *h, const void *buf, size_t len,
	            struct sbx_error *err);
	/*
	 * Takes the next request. 1: an action was begun, sbx_request_file_done() follows on the
	 * loop thread; 0: no request is complete; or -errno.
	 */
	int (*start)(struct sbx_control_handle *h, bool final, struct sbx_error *err);
	bool (*unfinished)(struct sbx_control_handle *h);
	void (*drop)(struct sbx_control_handle *h);
	/* [loop] The client is about to die. sbx_request_file_done() must follow soon. */
	void (*cancel)(struct sbx_control_handle *h);
	/*
	 * A write has failed with ERR, and this is not known to anybody yet. No lock is held. May
	 * be NULL.
	 */
	void (*failed)(struct sbx_control_handle *h, const struct sbx_error *err);
	/* Answers a read, now or later. */
	void (*serve)(struct sbx_control_handle *h, struct sbx_pending *p);
};

/*
 * Answers P with LEN when the requests that BUF completes have been carried out, or with an
 * errno. BUF is used during the call. The lock is not held.
 */
void sbx_request_file_write(struct sbx_control_handle *h, const void *buf, size_t len,
                            struct sbx_pending *p);
/*
 * As sbx_control_flush. What follows a request that is under way is not waited for. The lock is
 * not held.
 */
void sbx_request_file_flush(struct sbx_control_handle *h, bool broken, struct sbx_pending *p);
/* -ECANCELED, with the sentence on a request that nobody will complete. */
int sbx_request_file_broken(struct sbx_error *err);
/*
 * Answers P by serve, after the writes that came before and a request that can be completed now.
 * The lock is not held.
 */
void sbx_request_file_read(struct sbx_control_handle *h, struct sbx_pending *p);
/* [loop] The action has ended with CODE. The lock is not held. */
void sbx_request_file_done(struct sbx_control_handle *h, int code, const struct sbx_error *err);

#endif
