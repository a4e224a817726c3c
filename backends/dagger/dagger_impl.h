/*
 * Declarations that the files of this folder share: dagger.c has the provider and its table;
 * session.c finds an engine, by way of cli.c; query.c asks it, answer.c reads what it says;
 * machine.c knows a machine's newest container, store.c keeps it; make.c makes one, of what
 * source.c brings, copy.c one that begins as another; run.c and put.c go on from it, flatten.c when
 * it has many layers, states.c goes back, export.c writes it to this host. open.c is where the
 * environment is looked at.
 */
#ifndef SANDBOXFS_BACKENDS_DAGGER_DAGGER_IMPL_H
#define SANDBOXFS_BACKENDS_DAGGER_DAGGER_IMPL_H

#include <json-c/json.h>
#include <pthread.h>
#include <stdio.h>

#include "backends/dagger/dagger.h"

#define DAGGER_WORKDIR    "/work"
#define DAGGER_ROOM       "/.sandboxfs"
#define DAGGER_LABEL_NAME "sandboxfs.id" /* of a container: whose it is */
#define DAGGER_ID_NAME    "SANDBOXFS_ID" /* a variable of it, with the same */
#define DAGGER_ASK_MS     60000
#define DAGGER_NAME_MAX   100 /* bytes of a machine's name */

struct dagger_cli;
struct dagger_query;

/* A session that is open. Constant but for the counters; lock of the provider. */
struct dagger_session {
	unsigned refs;
	uint64_t number; /* 1.. */
	char url[64];
	const struct sbx_secret *token;
	struct sbx_secret *own; /* the token, where we were told it */
	struct dagger_cli *cli; /* its process; NULL: it is not ours */
	bool nodes;             /* ids are handles, and node() finds what they mean */
	char *version, *empty;  /* of the engine; the id of a directory with nothing in it */
};

/* Queries in their order. */
struct dagger_queue {
	struct dagger_query *first, *last;
};

struct dagger {
	struct sbx_provider base;
	struct sbx_dagger_config config; /* its strings are our own */
	struct sbx_pool *pool;           /* reads answers, copies files */
	int dir;                         /* STATE/dagger */
	char *path;                      /* the same */
	char nonce[24];                  /* the start of all of ours */
	atomic_ullong count;             /* of nonces, of stages */
	pthread_mutex_t folders;         /* one machine is unmade at a time; before lock */
	pthread_mutex_t lock;            /* all below, queues and ids of machines */
	unsigned refs;                   /* the owner's, queries', the process being started */
	struct dagger_session *session;  /* NULL: none is open */
	uint64_t sessions;
	struct dagger_queue waiting; /* for one */
	bool starting, leaving;
	struct dagger_query *probe;     /* under way; or NULL */
	struct dagger_session *probing; /* what it asks */
	struct dagger_cli *clis;        /* [loop] all processes */
	char *git_secret;               /* the id of config.git_token in session GIT_SESSION */
	uint64_t git_session;
};

/* Files that were brought to the engine and are in no container yet. */
struct dagger_upload {
	struct dagger_upload *next;
	char *stage;      /* the directory of this host that has them: below STATE/dagger */
	char *id;         /* of the engine's copy */
	uint64_t session; /* which knows it */
};

struct dagger_machine {
	struct sbx_machine base;
	char *name, *label;
	char *owner; /* whom its processes run as, "" for root */
	char *mark;  /* as in struct dagger_kept */
	char *needs; /* the same */
	int64_t made_ms;
	/* Lock of the provider: */
	char *id;
	/* The label of its container, MARK or the name, where that is a copy, or a state that was
	 * gone back to, and nothing has run in it since; else NULL. */
	const char *first;
	unsigned layers;   /* as in struct dagger_kept */
	unsigned not_flat; /* how many it may have besides, as the last time flatten.c failed */
	char *saved; /* the digest of the archive that it can be made anew from; NULL: none is */
	struct dagger_upload *uploads; /* in their order */
	struct dagger_queue turns;     /* the first one is under way */
};

static inline struct dagger *dagger_of(struct sbx_provider *p)
{
	return (struct dagger *)p;
}

static inline struct dagger_machine *dagger_machine_of(struct sbx_machine *m)
{
	return (struct dagger_machine *)m;
}

/* ---- dagger.c ---- */

void dagger_ref(struct dagger *d); /* [any] */
/* [loop] The last one frees it. */
void dagger_unref(struct dagger *d);

/* ---- query.c ---- */

enum dagger_stage {
	DAGGER_IDLE,
	DAGGER_TURN,    /* in the queue of its machine */
	DAGGER_READY,   /* on its way to the loop */
	DAGGER_SESSION, /* waits for one */
	DAGGER_FLYING,
	DAGGER_READING, /* of the answer; cannot be cancelled any more */
};

/* A query. It is its owner's, zeroed but for what is above the line, until ended. */
struct dagger_query {
	struct dagger *d;
	const char *op;           /* as sbx_http_request.op */
	struct dagger_machine *m; /* whose turn it takes; NULL: none */
	uint64_t deadline_ms;     /* from when it is sent; 0: DAGGER_ASK_MS */
	size_t answer_max;        /* 0: 8 MiB */
	enum sbx_http_repeat repeat;
	bool held;                       /* as sbx_http_request.held */
	const struct sbx_secret *hidden; /* that its text has, or NULL */
	/* [loop] Writes the text for SESSION. Other than 0: a negative errno, without a sentence,
	 * by which the query ends. */
	int (*write)(struct dagger_query *q, const struct dagger_session *session, FILE *to);
	/* [pool] Reads the member "data" of the answer. 0, or a negative errno with a sentence. */
	int (*read)(struct dagger_query *q, struct json_object *data, struct sbx_error *err);
	/* [loop] The end, told once; what read has answered, or a failure before. */
	void (*ended)(struct dagger_query *q, int code, const struct sbx_error *err);
	void *data;
	/* ---- */
	struct dagger_query *next;
	enum dagger_stage stage; /* lock of the provider */
	bool given_up;
	bool unsure; /* as in sbx_http_answer, of the last that came; also for ended */
	bool is_probe;
	struct dagger_session *session; /* a reference */
	struct sbx_http_request http;
	struct sbx_http_answer answer;
	char *body;
	int code;
	struct sbx_error err;
};

/* [any] */
void dagger_query_begin(struct dagger_query *q);
/* [any] Under the lock of the provider, before ended. */
void dagger_query_cancel(struct dagger_query *q);
/* [wait] Begins Q, whose ended and data are not used, and waits for its end. */
int dagger_query_perform(struct dagger_query *q, atomic_bool *cancelled, struct sbx_error *err);
/* [loop] Q, which waited for a session, goes on. */
void dagger_query_resume(struct dagger_query *q);
/* [loop] Ends Q, which waited for a session. */
void dagger_query_fail(struct dagger_query *q, int code, const struct sbx_error *err);

void dagger_queue_add(struct dagger_queue *queue, struct dagger_query *q);
struct dagger_query *dagger_queue_take(struct dagger_queue *queue); /* NULL: empty */
/* Whether Q was in it. */
bool dagger_queue_remove(struct dagger_queue *queue, struct dagger_query *q);

/* Writes TEXT as a string of GraphQL, which is one of JSON as well. TEXT is UTF-8. */
void dagger_literal(FILE *to, const char *text);
/* Writes what begins a selection of the container ID; ended by dagger_end_container. */
void dagger_begin_container(const struct dagger_session *session, FILE *to, const char *id);
void dagger_end_container(const struct dagger_session *session, FILE *to);
/* As dagger_begin_container of a machine's id: whose it is by now is asked along. */
void dagger_begin_machine(const struct dagger_session *session, FILE *to, const char *id);

/*
 * Of a container: what tells its files from other ones. The runner's own do not count, nor what the
 * engine has in each that has run.
 */
#define DAGGER_DIGEST                                                                              \
	"rootfs{withoutDirectory(path:\"" DAGGER_ROOM "\"){withoutDirectory(path:\"/dev\"){"       \
	"withoutDirectory(path:\"/proc\"){withoutDirectory(path:\"/sys\"){"                        \
	"withoutFile(path:\"/.init\"){digest}}}}}}"

/* ---- answer.c ---- */

/* The member "data" of BODY, the caller's; *RET is NULL where BODY says why there is none. */
int dagger_answer(const struct dagger_query *q, struct json_object **ret, struct sbx_error *err);
/* The member KEY of OBJ, or of what it has, of type TYPE; NULL: there is none. Borrowed. */
struct json_object *dagger_find(struct json_object *obj, const char *key, enum json_type type);
/* The same of a string; NULL: there is none. */
const char *dagger_find_text(struct json_object *obj, const char *key);
/* The string KEY of DATA, malloc'd: EPROTO where there is none. */
int dagger_steal_text(struct json_object *data, const char *key, char **ret, struct sbx_error *err);
/* ESTALE: DATA, of a query that dagger_begin_machine has begun, is of a container that has another
 * label than MARK. */
int dagger_check_machine(const char *mark, struct json_object *data, struct sbx_error *err);
/* Takes secrets out of TEXT. */
void dagger_scrub(const struct dagger_query *q, char *text);
/* Whether LEN bytes of TEXT are UTF-8, without NUL. */
bool dagger_is_utf8(const char *text, size_t len);

/* ---- session.c, cli.c ---- */

/* [loop] Under the lock: somebody waits for a session. */
void dagger_session_start(struct dagger *d);
/* [any] Under the lock. */
struct dagger_session *dagger_session_ref(struct dagger_session *session);
void dagger_session_unref(struct dagger_session *session); /* accepts NULL */
/* [loop] SESSION has failed as one does whose engine or process is gone: another is started when
 * one is needed next, if it was ours. */
void dagger_session_lost(struct dagger *d, struct dagger_session *session);
/* [loop] Those who wait for a session are told that there is none. */
void dagger_session_failed(struct dagger *d, int code, const struct sbx_error *err);
/* [loop] One is to be had at PORT: it is asked what it can. OWN (may be NULL) is taken over. */
void dagger_session_found(struct dagger *d, unsigned port, const struct sbx_secret *token,
                          struct sbx_secret *own, struct dagger_cli *cli);

/* [loop] Starts a process `dagger session`: dagger_session_found or dagger_session_failed follows.
 */
void dagger_cli_start(struct dagger *d);
/* [loop] Has CLI end. */
void dagger_cli_end(struct dagger_cli *cli);
/* [loop] Has all end, and forgets them. */
void dagger_cli_end_all(struct dagger *d);

/* ---- machine.c, store.c ---- */

struct dagger_kept;

/* As KEPT has it, which gives its id and digest away. NULL: no memory. */
struct dagger_machine *dagger_machine_new(struct dagger *d, const char *name,
                                          struct dagger_kept *kept);
/*
 * [pool] ID is the newest container of M, durably, which has its label, and DIGEST (NULL: not
 * known) that of its files; both malloc'd, and M's from here on. What was saved stands for it as
 * long as the files are the same. LAYERS are above those of the container before.
 */
int dagger_machine_advance(struct dagger_machine *m, char *id, char *digest, unsigned layers,
                           struct sbx_error *err);
/* [pool] The same of a container that was SAVED, or is made from what was, with the label that the
 * newest one has. */
int dagger_machine_set(struct dagger_machine *m, char *id, char *saved, struct sbx_error *err);
/* [pool] ID, malloc'd and M's from here on, has the same files in LAYERS layers. */
int dagger_machine_flatten(struct dagger_machine *m, char *id, unsigned layers,
                           struct sbx_error *err);
/* [pool] ID, malloc'd and M's from here on, is the container of M, whose label is M's, and which
 * was that of M before, with LAYERS layers. */
int dagger_machine_return(struct dagger_machine *m, char *id, unsigned layers,
                          struct sbx_error *err);
/* A copy of the newest id, NULL: no memory; *MARK (may be NULL) is the label that the container
 * has, borrowed from M; *LAYERS (may be NULL) how many it has. */
char *dagger_machine_id(struct dagger_machine *m, const char **mark, unsigned *layers);
/* Under the lock: that label. */
const char *dagger_machine_mark(const struct dagger_machine *m);
int dagger_adopt(struct sbx_provider *p, const char *handle, struct sbx_machine **ret,
                 struct sbx_error *err);
void dagger_release(struct sbx_machine *m);
int dagger_look(struct sbx_machine *m, struct sbx_machine_look *ret, atomic_bool *cancelled,
                struct sbx_error *err);
int dagger_touch(struct sbx_machine *m, atomic_bool *cancelled, struct sbx_error *err);

/* What is kept of a machine: STATE/dagger/NAME. */
struct dagger_kept {
	char *id, *label, *owner;
	char *saved; /* as in struct dagger_machine */
	char *mark;  /* the label that the container has; NULL: NAME */
	/* The names of machines whose folders its id may name, with spaces between; NULL: none. */
	char *needs;
	unsigned layers; /* that runs have added since it was made; 0 where nothing tells */
	int64_t made_ms;
};
void dagger_kept_release(struct dagger_kept *kept);
int dagger_store(struct dagger *d, const char *name, const struct dagger_kept *kept,
                 struct sbx_error *err);
/* ENOENT: nothing is kept. */
int dagger_load(struct dagger *d, const char *name, struct dagger_kept *ret, struct sbx_error *err);
bool dagger_name_ok(const char *name);
/* EINVAL, in words: it is none. */
int dagger_name_check(const char *name, struct sbx_error *err);
int dagger_find_all(struct sbx_provider *p, const char *label,
                    int (*fn)(const char *name, const char *handle, int64_t made_ms, void *data),
                    void *data, struct sbx_error *err);
/*
 * Makes the directory NAME.d/WORD, which goes with the machine NAME; *RET is its path, the
 * caller's.
 */
int dagger_stage_make(struct dagger *d, const char *name, const char *word, char **ret,
                      struct sbx_error *err);
void dagger_stage_remove(struct dagger *d, const char *stage); /* what cannot be goes later */

/* ---- make.c, source.c ---- */

int dagger_make(struct sbx_provider *p, const struct sbx_machine_request *req,
                struct sbx_machine **ret, atomic_bool *cancelled, struct sbx_error *err);

/* The files that a tree begins with. */
struct dagger_source {
	char *id;     /* of a directory of the engine; NULL: none */
	char *commit; /* hexadecimal; NULL: it is no repository, or already on the branch */
};
void dagger_source_release(struct dagger_source *source);
/* [wait] Brings the source of REQ to the engine. */
int dagger_source_bring(struct dagger *d, const struct sbx_machine_request *req,
                        struct dagger_source *ret, atomic_bool *cancelled, struct sbx_error *err);
/* [wait] Brings the directory or, FILE, the file PATH of this host; *RET is its id. */
int dagger_bring(struct dagger *d, const char *path, bool file, char **ret, atomic_bool *cancelled,
                 struct sbx_error *err);

/* ---- copy.c ---- */

/* As the members of sbx_provider_impl. */
int dagger_copy(struct sbx_machine *m, const char *name, struct sbx_machine **ret,
                atomic_bool *cancelled, struct sbx_error *err);
int dagger_unmake(struct sbx_provider *p, const char *name, const char *handle,
                  atomic_bool *cancelled, struct sbx_error *err);

/* ---- states.c ---- */

#define DAGGER_STATES "states" /* in the folder of a machine */

/* As the members of sbx_provider_impl. */
int dagger_keep(struct sbx_machine *m, const char *key, struct sbx_error *err);
int dagger_drop(struct sbx_machine *m, const char *key, struct sbx_error *err);
int dagger_back(struct sbx_machine *m, const char *key, const char *was, atomic_bool *cancelled,
                struct sbx_error *err);

/* ---- run.c, put.c ---- */

void dagger_run(struct sbx_machine *m, struct sbx_machine_run *run);
void dagger_cancel_run(struct sbx_machine *m, struct sbx_machine_run *run);
void dagger_put(struct sbx_machine *m, struct sbx_machine_put *put);
void dagger_cancel_put(struct sbx_machine *m, struct sbx_machine_put *put);
/* The words of a command that runs SCRIPT whatever bytes it has: *FORMAT says that it is the format
 * of printf(1). malloc'd; NULL: no memory. */
char *dagger_script(const char *script, size_t len, bool *format);

/* Writes the query that brings the directory or, FILE, the file PATH of this host. */
void dagger_write_upload(FILE *to, const char *path, bool file);

/* ---- flatten.c ---- */

/* A machine's container with many layers becomes one with few. Its owner's, zeroed but for what is
 * above the line, until ended. */
struct dagger_flatten {
	struct dagger_machine *m;
	struct dagger_query **current; /* which is under way: lock of the provider */
	/* [loop] The end; what could not be done is tried again by a later run. */
	void (*ended)(struct dagger_flatten *f);
	/* ---- */
	struct dagger_query copy, change;
	char *of, *root; /* the container it begins with; a directory with its files */
};
/* Under the lock. */
bool dagger_flatten_due(const struct dagger_machine *m);
/* [any] *F->current is &F->copy. */
void dagger_flatten_begin(struct dagger_flatten *f);
void dagger_upload_free(struct dagger_upload *upload);

/* ---- export.c ---- */

#define DAGGER_ARCHIVE "archive.tar" /* in the folder of a machine */

/* As sbx_provider_impl.save. */
int dagger_save(struct sbx_machine *m, atomic_bool *cancelled, struct sbx_error *err);
/* [wait] Makes M, which the engine has forgotten, anew. ESTALE, without a sentence: it was not
 * saved as it was. */
int dagger_revive(struct dagger_machine *m, atomic_bool *cancelled, struct sbx_error *err);

#endif
