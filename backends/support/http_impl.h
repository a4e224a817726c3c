/*
 * Declarations that the files of the HTTP client share: http.c leads a request from its beginning
 * to its end, http_url.c looks at it before, http_attempt.c sends it once, http_body.c its body,
 * http_repeat.c says whether and when again; http_answer.c has the tables of errors, reads headers
 * and takes secrets out; http_loop.c has libcurl wait on the event loop.
 */
#ifndef SANDBOXFS_BACKENDS_SUPPORT_HTTP_IMPL_H
#define SANDBOXFS_BACKENDS_SUPPORT_HTTP_IMPL_H

#include <curl/curl.h>

#include "sandboxfs/http.h"

/* ---- answers ---- */

/* Without an answer: -errno by CODE, of a connection by OS_ERRNO; a sentence on PEER. */
int sbx_http_no_answer(CURLcode code, long os_errno, const char *peer, struct sbx_error *err);
/* With an answer of STATUS: 0 for 2xx, else -errno and a sentence on PEER. */
int sbx_http_refusal(long status, const char *peer, struct sbx_error *err);
/* Calls fn for each line NAME: VALUE of the headers; both are borrowed. */
void sbx_http_each_header(const struct sbx_http_answer *answer,
                          void (*fn)(const char *name, size_t name_len, const char *value,
                                     size_t len, void *data),
                          void *data);
/* Takes the secrets of REQ out of ERR and of ANSWER, whose body is left where nothing failed. */
void sbx_http_hide(const struct sbx_http_request *req, struct sbx_http_answer *answer,
                   struct sbx_error *err);

/* ---- servers ---- */

struct sbx_http_server {
	bool local;     /* this host */
	char peer[256]; /* what sentences call it */
	char key[512];  /* SCHEME://HOST:PORT */
};

/* -EINVAL: a URL or header that is none, or that is not to be sent. */
int sbx_http_look_at(const struct sbx_http_request *req, struct sbx_http_server *ret,
                     struct sbx_error *err);

/* ---- the loop ---- */

struct sbx_http_socket;

struct sbx_http_multi {
	CURLM *curl; /* NULL: none of this is there */
	struct sbx_loop *loop;
	struct sbx_timer timer;
	struct sbx_http_socket *sockets;
	/* [loop] A handle has ended, whose CURLOPT_PRIVATE is DATA. */
	void (*ended)(void *data, CURLcode code);
};

/* *M stays where it is. Keeps at most CONNECTIONS. 0 or -ENOMEM. */
int sbx_http_multi_init(struct sbx_http_multi *m, struct sbx_loop *loop, long connections,
                        void (*ended)(void *data, CURLcode code));
/* No handle is left in it. */
void sbx_http_multi_finish(struct sbx_http_multi *m);

/* ---- bodies ---- */

/* What is sent in one attempt. */
struct sbx_http_body {
	struct sbx_http_source *sources; /* of the body, or of each part */
	curl_mime *mime;
	uint64_t read_ns; /* when bytes were last taken; 0: never */
	int fault;        /* negative errno of a file, which ended the attempt */
};

/* Has EASY send the body of REQ by its method. Release *BODY, zeroed before. 0 or -ENOMEM. */
int sbx_http_body_set(struct sbx_http_body *body, const struct sbx_http_request *req, CURL *easy);
/* After EASY is gone. */
void sbx_http_body_release(struct sbx_http_body *body);

/* ---- attempts ---- */

struct sbx_http_attempt {
	struct sbx_http_request *req; /* borrowed, as is the server */
	const struct sbx_http_server *server;
	CURL *easy; /* NULL: none is under way */
	struct curl_slist *headers;
	struct sbx_http_body body;
	uint64_t begun_ns;
	uint64_t got_ns;        /* when bytes last came, or it was about to be sent */
	bool sent;              /* the server may have got it */
	bool handed;            /* a part of the answer's body, to req->take */
	bool enough;            /* of a refusal was read */
	struct sbx_error fault; /* that a function of libcurl's has met */
	struct sbx_http_answer answer;
	size_t headers_len, headers_cap, body_cap;
	uint64_t received; /* of a 2xx body */
};

/* Begins *A, whose first two members are set, with DATA for sbx_http_multi.ended. 0, or a negative
 * errno and it is not under way. */
int sbx_http_attempt_begin(struct sbx_http_attempt *a, CURLM *multi, void *data,
                           struct sbx_error *err);
/* What it has come to by CODE: 0, or a negative errno with a sentence. */
int sbx_http_attempt_judge(struct sbx_http_attempt *a, CURLcode code, struct sbx_error *err);
/* Ends it, if it is under way; the answer stays. */
void sbx_http_attempt_end(struct sbx_http_attempt *a, CURLM *multi);
/* When a byte was last sent or came; now, while there is no connection. */
uint64_t sbx_http_attempt_last_ns(const struct sbx_http_attempt *a);

/* ---- repeats ---- */

/* An attempt that failed. */
struct sbx_http_failure {
	enum sbx_http_repeat repeat; /* of the request */
	int code;                    /* negative errno */
	long status;                 /* 0: no whole answer */
	bool sent;                   /* the server may have got it */
};

/* Whether it is to be sent again. */
bool sbx_http_may_repeat(const struct sbx_http_failure *failure);
/* What the server asks for by Retry-After and Retry-After-BUCKET; 0: nothing. */
uint64_t sbx_http_retry_after_ms(const struct sbx_http_answer *answer);
/* The pause before the repeat N (0..), at least LEAST_MS, or behind AFTER_MS if that is not 0. */
uint64_t sbx_http_pause_ms(unsigned n, uint64_t least_ms, uint64_t after_ms);

#endif
