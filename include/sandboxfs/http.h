/*
 * The HTTP client of the daemon, and its only one: libcurl's multi interface on the event loop.
 * Connections are kept and used again, by HTTP/2 where the server speaks it.
 *
 * Certificates are always verified. No redirect is followed, so that a secret goes to the host of
 * the URL only. A secret is in no error text, and is taken out of the headers and of the bodies of
 * refusals before anyone sees them; what a body of a 2xx answer holds is handed on as it is.
 *
 * sbx_http_perform() blocks for as long as a server takes: it is for threads of a pool that is wide
 * enough for all who may wait at once (sbx_pool_create_wide), never for the loop's or a FUSE
 * worker's. The functions of a request are called on the loop: a body above SBX_HTTP_INLINE_MAX is
 * handed to a pool to be parsed.
 */
#ifndef SANDBOXFS_HTTP_H
#define SANDBOXFS_HTTP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sandboxfs/error.h"
#include "sandboxfs/loop.h"

#define SBX_HTTP_INLINE_MAX ((size_t)256 * 1024)

struct sbx_http;
struct sbx_http_request;
struct sbx_secret;

/* Whether a request that failed is sent again, after a pause that grows, or that the server asks
 * for. */
enum sbx_http_repeat {
	SBX_HTTP_NEVER,
	/* When no connection was made, or the server did nothing because it is asked too often
	   (429). */
	SBX_HTTP_UNSENT,
	/* Also after 5xx, a cut answer, or silence: twice does what once does. */
	SBX_HTTP_SAFE,
};

enum sbx_http_auth {
	SBX_HTTP_BEARER,
	SBX_HTTP_BASIC, /* the secret is the user, without a password */
};

/* SIZE bytes: of DATA or, where that is NULL, of the regular file FD from OFFSET. */
struct sbx_http_bytes {
	const void *data;
	int fd;
	uint64_t offset, size;
};

/* A field of multipart/form-data, or a file where FILENAME is not NULL. */
struct sbx_http_part {
	const char *name, *filename;
	const char *type; /* NULL: none is said */
	struct sbx_http_bytes bytes;
};

struct sbx_http_answer {
	long status;   /* 0: there was no whole answer */
	char *headers; /* lines NAME: VALUE, or NULL; malloc'd, as is the body */
	char *body;    /* NUL-terminated; NULL: empty, or streamed */
	size_t len;    /* of body */
	bool unsure;   /* whatever the status says: it may have been carried out, as it was sent
	                * without an answer, or repeated */
};

/* The value of the header NAME, up to the end of its line (*LEN bytes), borrowed; NULL: none. */
const char *sbx_http_header(const struct sbx_http_answer *answer, const char *name, size_t *len);
/* Whether the server has certainly not done what ended by CODE and ANSWER. */
bool sbx_http_not_done(int code, const struct sbx_http_answer *answer);
/* Frees the strings and zeroes *ANSWER. May be repeated. */
void sbx_http_answer_release(struct sbx_http_answer *answer);

/*
 * A request. It and all that it points to live until done is called, in the caller's object.
 */
struct sbx_http_request {
	const char *op;                  /* a literal, [a-z_]: ctl/stats counts by it */
	const char *method;              /* "GET", "POST"... */
	const char *url;                 /* https; http to this host, elsewhere with PLAIN only */
	const char *peer;                /* the server in sentences; NULL: the host of the URL */
	const char *const *headers;      /* lines NAME: VALUE, ended by NULL; or NULL */
	const struct sbx_secret *secret; /* or NULL */
	const struct sbx_secret *hidden; /* another, which the body has; or NULL */
	struct sbx_http_bytes body;      /* size 0: none */
	const struct sbx_http_part *parts;
	size_t parts_n;       /* not 0: the body is these */
	uint64_t deadline_ms; /* for everything, pauses too; not 0 */
	uint64_t quiet_ms;    /* without a byte in either direction; 0: as long as it likes */
	uint64_t answer_max;  /* bytes of a 2xx answer; 0: 1 MiB, any of what is streamed */
	enum sbx_http_auth auth;
	enum sbx_http_repeat repeat;
	unsigned repeats; /* at most; 0: 2 */
	bool json;        /* a 2xx answer that is not JSON is -EPROTO */
	bool plain;
	bool held; /* it is answered when something happens there, and is in nobody's way until
	            * then: it takes no turn but of those that are as this one */
	/*
	 * Where the body of a 2xx answer goes, if not to memory. [loop] TAKE gets it piece by
	 * piece, and ends the request by a negative errno; after the first piece nothing is sent
	 * again. ANSWER_FD (above 0) is a regular file, which the body replaces.
	 */
	int (*take)(struct sbx_http_request *req, const void *data, size_t len);
	int answer_fd;
	/*
	 * [loop] The end, told once. CODE: 0 for a 2xx answer; else a negative errno with its
	 * sentence, by sbx_http_errno() where ANSWER has a status. ANSWER is released afterwards;
	 * what is wanted of it is stolen.
	 *
	 * Without a whole answer: ECONNREFUSED. ENETUNREACH no route, no such host. EKEYREJECTED
	 * TLS. ETIMEDOUT. EREMOTEIO it was cut. EPROTO it is no HTTP, or no JSON. EMSGSIZE longer
	 * than answer_max. EINTR given up. EINVAL the request. EIO a file of the request. ENOMEM.
	 */
	void (*done)(struct sbx_http_request *req, int code, struct sbx_http_answer *answer,
	             const struct sbx_error *err);
	void *data; /* for done and take */
	/* Private: */
	struct sbx_http *http;
	void *waiter;
	atomic_bool *cancelled;
	atomic_bool given_up;
};

struct sbx_http_config {
	struct sbx_loop *loop;
	unsigned per_host;   /* requests at once, and 8 times as many that are held; others wait,
	                      * in their order. 0: 128 */
	uint64_t backoff_ms; /* the least pause before the first repeat. 0: 400 */
};

/* Starts nothing: libcurl is initialised by the first request. 0 or -ENOMEM. */
int sbx_http_create(const struct sbx_http_config *config, struct sbx_http **ret);
/*
 * After the loop has stopped: ends by EINTR what is under way, and what is begun from now on; of
 * sbx_http_begin() by the time that the loop is destroyed. So those who still wait in another
 * thread come to their end. Accepts NULL, and may be repeated.
 */
void sbx_http_stop(struct sbx_http *http);
/* Stops it. Nobody begins a request any more; who may have done so after sbx_http_stop() destroys
 * the loop before. Accepts NULL. */
void sbx_http_destroy(struct sbx_http *http);

/* [any] Begins REQ; never fails nor calls done itself. */
void sbx_http_begin(struct sbx_http *http, struct sbx_http_request *req);
/* [any] Has done called soon, with EINTR unless it ended otherwise before. It is called while REQ
 * lives, as the caller sees to. */
void sbx_http_cancel(struct sbx_http_request *req);
/*
 * [wait] Begins REQ, whose done is not used, and waits for its end. *CANCELLED (may be NULL) is
 * looked at ten times a second. Release *ANSWER in any case. Returns CODE as done gets it.
 */
int sbx_http_perform(struct sbx_http *http, struct sbx_http_request *req, atomic_bool *cancelled,
                     struct sbx_http_answer *answer, struct sbx_error *err);

/* The positive errno of an HTTP status; 0 for 2xx. */
int sbx_http_errno(long status);

/* What was done under one name. */
struct sbx_http_count {
	const char *op;
	uint64_t requests, failed; /* each repeat counts */
	uint64_t sent, received;   /* bytes, headers too */
	uint64_t ns;               /* all of them together, without pauses */
};

/* [any] The counts by name, in order of first use; *ret is the caller's. 0 or -ENOMEM. */
int sbx_http_counts(struct sbx_http *http, struct sbx_http_count **ret, size_t *n);

#endif
