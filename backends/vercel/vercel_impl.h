/*
 * Declarations that the files of this folder share: vercel.c has the provider and its table;
 * token.c who we are; api.c asks and reads refusals; box.c reads a sandbox; net.c its network;
 * source.c what is cloned; make.c makes one, and copy.c another like it; machine.c looks at it and
 * keeps it; remove.c removes and finds; send.c sends, and wakes, for scripts (run.c, stream.c) and
 * for files (put.c, tar.c).
 */
#ifndef SANDBOXFS_BACKENDS_VERCEL_VERCEL_IMPL_H
#define SANDBOXFS_BACKENDS_VERCEL_VERCEL_IMPL_H

#include <pthread.h>

#include "backends/support/fsutil.h"
#include "backends/support/members.h"
#include "backends/vercel/vercel.h"
#include "sandboxfs/loop.h"
#include "sandboxfs/strv.h"

#define VERCEL_TAG "sandboxfs" /* of our sandboxes; its value is the daemon's label */

struct sbx_pool;

/* Who asks. */
struct vercel_token {
	const struct sbx_secret *secret;
	const char *variable; /* where it came from */
	char team[128], project[128];
	int64_t expires_s; /* CLOCK_REALTIME; 0: not known */
};

/* The network that is asked for: open, or none but what is listed. */
struct vercel_net {
	bool open;
	struct sbx_strings hosts, addresses;
};

struct vercel {
	struct sbx_provider base;
	struct sbx_provider_impl impl;   /* the table, with what this one can */
	struct sbx_vercel_config config; /* its strings are our own */
	struct vercel_token token;
	struct vercel_net net;
	struct sbx_strings env, ports;
	struct sbx_pool *pool; /* packs what is put */
	char *query;           /* teamId=TEAM */
	char *project;         /* as a word of a query */
	char *wake_query;
	/* A sandbox whose network is closed cannot clone: it is closed afterwards. */
	atomic_bool clones_inside;
};

struct vercel_machine {
	struct sbx_machine base;
	char *name;
	pthread_mutex_t lock; /* all below, and the part of runs and puts */
	char session[64];     /* "": not known, or it has ended */
	uint64_t due_ms;      /* CLOCK_MONOTONIC: when the session ends; 0: not known */
	bool spent;           /* it can be made no longer */
};

static inline struct vercel *vercel_of(struct sbx_provider *p)
{
	return (struct vercel *)p;
}

static inline struct vercel_machine *vercel_machine_of(struct sbx_machine *m)
{
	return (struct vercel_machine *)m;
}

/* ---- token.c ---- */

int vercel_token_choose(const struct sbx_vercel_config *config, struct vercel_token *ret,
                        struct sbx_error *err);
/* Whether it says of itself that it has ended. */
bool vercel_token_expired(const struct vercel_token *token);
/* Until when it holds, in words, the caller's; NULL: it is not known, or no memory. */
char *vercel_token_note(const struct vercel_token *token);
/* The token was refused, or has expired: says what to do about it. Returns -EKEYREJECTED. */
int vercel_token_refused(const struct vercel_token *token, struct sbx_error *err);

/* ---- api.c ---- */

struct vercel_ask {
	const char *op, *method;
	const char *query;        /* behind the team's: "&limit=50"; or NULL */
	struct json_object *body; /* borrowed; or NULL */
	const struct sbx_secret *hidden;
	uint64_t deadline_ms; /* 0: ask_ms of the settings */
	enum sbx_http_repeat repeat;
};

/* What a refusal says. */
struct vercel_said {
	long status; /* 0: there was no whole answer */
	char code[48];
};

/*
 * [wait] Asks at the path of a format. *SAID (may be NULL) tells of a refusal; *RET (may be NULL:
 * whatever is answered is good) is the object of the answer, the caller's.
 */
int vercel_ask(struct vercel *v, const struct vercel_ask *ask, atomic_bool *cancelled,
               struct vercel_said *said, struct json_object **ret, struct sbx_error *err,
               const char *fmt, ...) __attribute__((format(printf, 7, 8)));
/* The URL of PATH, malloc'd; NULL: no memory. */
char *vercel_url(const struct vercel *v, const char *path, const char *query);
/*
 * Reads a refusal of ANSWER, which has a status: what it means becomes CODE and sentence of ERR,
 * which has those of the status. Returns the negative errno.
 */
int vercel_refused(const struct vercel *v, const struct sbx_http_answer *answer,
                   struct vercel_said *said, struct sbx_error *err);

/* ---- box.c ---- */

/* A sandbox, as Vercel shows it. */
struct vercel_box {
	char name[132], session[64], cwd[400], label[260];
	char snapshot[64]; /* the last one; "": there is none */
	bool persistent;
	bool left;        /* its session has ended, and can be started anew */
	int64_t made_ms;  /* CLOCK_REALTIME */
	uint64_t left_ms; /* until its session ends */
	enum {
		VERCEL_NET_UNSAID,
		VERCEL_NET_RIGHT,
		VERCEL_NET_WRONG,
	} net,
	        net_later; /* of the session, and of those to come */
	struct sbx_machine_look look;
};

/* Reads "sandbox" and "session" of OBJ, or OBJ itself where it is an item of a list. EPROTO: it
 * shows no sandbox. */
int vercel_box_read(const struct vercel *v, struct json_object *obj, struct vercel_box *ret,
                    struct sbx_error *err);
/* [wait] Looks at the one called NAME, and wakes nobody; SBX_MACHINE_GONE where there is none. */
int vercel_box_look(struct vercel *v, const char *name, struct vercel_box *ret,
                    atomic_bool *cancelled, struct sbx_error *err);
/* Whether WORD is a name or an id, which can stand in a path. */
bool vercel_is_word(const char *word, size_t most);

/* ---- net.c ---- */

/* EOPNOTSUPP: a rule that Vercel has no word for. TEXT as sbx_settings.net. */
int vercel_net_parse(const char *text, struct vercel_net *ret, struct sbx_error *err);
void vercel_net_release(struct vercel_net *net);
/* What is asked for, and with HOST (not NULL) that one besides. The caller's. */
struct json_object *vercel_net_body(const struct vercel_net *net, const char *host);
/* Whether SHOWN, of an answer, is that network: it lets nothing through that NET does not. */
bool vercel_net_holds(const struct vercel_net *net, struct json_object *shown);
/* Whether SHOWN (NULL: nothing was shown) is that network, and no more closed either. */
bool vercel_net_is(const struct vercel_net *net, struct json_object *shown);
/* [wait] Sets the network of SESSION of the sandbox NAME, and with LATER of those to come. */
int vercel_net_set(struct vercel *v, const char *name, const char *session, bool later,
                   atomic_bool *cancelled, struct sbx_error *err);

/* ---- source.c ---- */

struct vercel_source {
	char *url;       /* NULL: none */
	char shown[280]; /* in sentences */
	char host[256];
};
int vercel_source_parse(const char *text, const char *github_api, struct vercel_source *ret,
                        struct sbx_error *err);
void vercel_source_release(struct vercel_source *source);

/* ---- make.c, copy.c, machine.c, remove.c ---- */

int vercel_make(struct sbx_provider *p, const struct sbx_machine_request *req,
                struct sbx_machine **ret, atomic_bool *cancelled, struct sbx_error *err);
/* [wait] As make, of a snapshot of a machine whose tree is at WORKDIR. */
int vercel_make_of(struct vercel *v, const struct sbx_machine_request *req, const char *snapshot,
                   const char *workdir, struct sbx_machine **ret, atomic_bool *cancelled,
                   struct sbx_error *err);
int vercel_copy(struct sbx_machine *m, const char *name, struct sbx_machine **ret,
                atomic_bool *cancelled, struct sbx_error *err);
/* NULL: no memory. */
struct vercel_machine *vercel_machine_new(struct vercel *v, const char *name, const char *workdir);
/* BOX runs: its session is the machine's from now on. */
void vercel_machine_runs(struct vercel_machine *m, const struct vercel_box *box);
/* SESSION has ended. */
void vercel_machine_stopped(struct vercel_machine *m, const char *session);
/* By how much the session is to live longer so that NEED_MS are left; 0: they are. */
uint64_t vercel_machine_short(struct vercel_machine *m, uint64_t need_ms);
/* The session lives longer by MS; 0: it cannot. */
void vercel_machine_extended(struct vercel_machine *m, uint64_t ms);
int vercel_adopt(struct sbx_provider *p, const char *handle, struct sbx_machine **ret,
                 struct sbx_error *err);
void vercel_release(struct sbx_machine *m);
int vercel_look(struct sbx_machine *m, struct sbx_machine_look *ret, atomic_bool *cancelled,
                struct sbx_error *err);
int vercel_touch(struct sbx_machine *m, atomic_bool *cancelled, struct sbx_error *err);
int vercel_unmake(struct sbx_provider *p, const char *name, const char *handle,
                  atomic_bool *cancelled, struct sbx_error *err);
int vercel_find(struct sbx_provider *p, const char *label,
                int (*fn)(const char *name, const char *handle, int64_t made_ms, void *data),
                void *data, struct sbx_error *err);

/* ---- send.c ---- */

enum vercel_next {
	VERCEL_END,   /* by code and err */
	VERCEL_AGAIN, /* prepare is called */
	VERCEL_LATER, /* the same, after a pause */
};

/*
 * Requests to the session of a machine, one after another, which make one thing. A session that
 * turns out to have ended is started anew, once.
 * Allocated by its owner, who sets what is above the line.
 */
struct vercel_send {
	struct vercel_machine *m;
	struct sbx_http_request http; /* what prepare leaves as it is */
	const char *type;             /* of the body */
	const char *header;           /* one more; or NULL */
	uint64_t budget_ms;           /* for all requests, but not for waking */
	/* [loop] The next request: sets path, query and wakes, and what changes in http. */
	void (*prepare)(struct vercel_send *s);
	/* [loop] It has ended by code, err and answer. */
	enum vercel_next (*answered)(struct vercel_send *s);
	/* [loop] The end; frees S. */
	void (*ended)(struct vercel_send *s);
	/* ---- */
	char path[96];     /* behind the session's */
	const char *query; /* or NULL */
	bool wakes;        /* where the session has ended, the request is sent to the next */
	int code;
	struct sbx_error err;
	struct sbx_http_answer answer;
	struct vercel_said said;
	char session[64];
	uint64_t until_ms; /* CLOCK_MONOTONIC */
	/* private: */
	void (*then)(struct vercel_send *s);
	char *url;
	char *body;
	const char *headers[3];
	struct sbx_http_request own; /* of waking, and of what else is asked here */
	struct sbx_timer timer;
	struct vercel_box box;
	uint64_t wake_until_ms, extend_ms;
	bool woken;
	struct sbx_http_request *flying; /* lock of m */
	atomic_bool given_up;
	bool maybe; /* what wakes may have been carried out */
};
/* [any] */
void vercel_send_begin(struct vercel_send *s);
/* [any] Ends S by CODE (negative) and ERR, without a request. */
void vercel_send_fail(struct vercel_send *s, int code, const struct sbx_error *err);
/* [any] Under the lock of its machine. */
void vercel_send_cancel(struct vercel_send *s);
/* Milliseconds until its budget is used up. */
uint64_t vercel_send_left(const struct vercel_send *s);

/* ---- stream.c ---- */

/* The stream of a command: lines of JSON, in pieces. Zero it to start, with most set. */
struct vercel_stream {
	size_t most;      /* bytes of output */
	char command[64]; /* its id, once it is known */
	bool ended;       /* the command has */
	bool closed;      /* by the server */
	char *out;        /* standard output, NUL-terminated; NULL: none */
	size_t len;
	/* private: */
	size_t cap;
	char *line;
	size_t line_len, line_cap;
};
/* 0, -EPROTO, -EMSGSIZE or -ENOMEM. */
int vercel_stream_take(struct vercel_stream *st, const void *data, size_t len);
/* Whether it ends behind a whole line. */
bool vercel_stream_is_whole(const struct vercel_stream *st);
void vercel_stream_release(struct vercel_stream *st);

/* ---- run.c ---- */

void vercel_run(struct sbx_machine *m, struct sbx_machine_run *run);
void vercel_cancel_run(struct sbx_machine *m, struct sbx_machine_run *run);
/*
 * [wait] Runs SCRIPT by the default user, with ARGS (ended by NULL) as $1 and on. *OUT is the
 * caller's.
 */
int vercel_run_wait(struct vercel_machine *m, const char *op, const char *script,
                    const char *const *args, uint64_t deadline_ms, char **out,
                    atomic_bool *cancelled, struct sbx_error *err);
/* The words of a command that runs SCRIPT, with ARGS (or NULL; then it is ASCII): an array, the
 * caller's. NULL: no memory. */
struct json_object *vercel_command_words(const char *script, size_t len, const char *const *args);

/* ---- put.c, tar.c ---- */

void vercel_put(struct sbx_machine *m, struct sbx_machine_put *put);
void vercel_cancel_put(struct sbx_machine *m, struct sbx_machine_put *put);
/*
 * [pool] Packs FILES as DIR/NUMBER (DIR absolute) into a file without a name, in the directory
 * SPOOL (NULL: in memory). *FD is the caller's. EINTR: *GIVEN_UP has become true.
 */
int vercel_tar(const struct sbx_machine_file *files, size_t n, const char *dir, const char *spool,
               atomic_bool *given_up, int *fd, uint64_t *size, struct sbx_error *err);

#endif
