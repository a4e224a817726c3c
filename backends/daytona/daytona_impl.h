/*
 * Declarations that the files of this folder share: daytona.c has the provider and its table; api.c
 * asks and reads answers; box.c reads a sandbox, waits for it and wakes it; make.c makes one, git.c
 * what is in it; remove.c removes and finds; send.c sends scripts (run.c) and files (put.c).
 */
#ifndef SANDBOXFS_BACKENDS_DAYTONA_DAYTONA_IMPL_H
#define SANDBOXFS_BACKENDS_DAYTONA_DAYTONA_IMPL_H

#include <json-c/json.h>
#include <pthread.h>

#include "backends/daytona/daytona.h"
#include "sandboxfs/github.h"

#define DAYTONA_LABEL   "sandboxfs" /* of our sandboxes; its value is the daemon's */
#define DAYTONA_DEPTH   32          /* of a JSON text */
#define DAYTONA_KEY_MAX 255         /* bytes of the name of a variable */

/* The network that is asked for. */
struct daytona_net {
	bool open;
	char *hosts, *addresses; /* else: lists with commas, NULL: none of them */
};

struct daytona {
	struct sbx_provider base;
	struct sbx_provider_impl impl;    /* the table, with what this one can */
	struct sbx_daytona_config config; /* its strings are our own, or literals */
	struct daytona_net net;
	char *organization_header; /* or NULL */
	const char *headers[6];    /* of a body of JSON; from the second on, of any */
};

struct daytona_machine {
	struct sbx_machine base;
	char *id, *name;
	char *toolbox;            /* its URL, without a slash at the end */
	atomic_bool looked_after; /* by whoever finds out why it does not answer */
	uint64_t woken_ms;        /* when it last came up; of who looks after it */
	atomic_bool net_unsure;   /* an earlier mount has set its network */
	pthread_mutex_t lock;     /* the part of runs and puts, as long as it can be cancelled */
};

static inline struct daytona *daytona_of(struct sbx_provider *p)
{
	return (struct daytona *)p;
}

static inline struct daytona_machine *daytona_machine_of(struct sbx_machine *m)
{
	return (struct daytona_machine *)m;
}

/* ---- api.c ---- */

/* A request to the control plane, or to a toolbox. */
struct daytona_ask {
	const char *op, *method;
	const char *base;         /* URL */
	const char *path;         /* behind it */
	struct json_object *body; /* borrowed; or NULL */
	const struct sbx_secret *hidden;
	uint64_t deadline_ms; /* 0: ask_ms of the settings */
	enum sbx_http_repeat repeat;
};

/*
 * [wait] Asks. *STATUS (may be NULL) is that of the answer, 0 where there was none; *RET (may be
 * NULL: whatever was answered is good) the object that it has, the caller's. The sentence of a
 * refusal has what the server says.
 */
int daytona_ask(struct daytona *d, const struct daytona_ask *ask, atomic_bool *cancelled,
                long *status, struct json_object **ret, struct sbx_error *err);
/* As daytona_ask, with the path of a format. */
int daytona_askf(struct daytona *d, struct daytona_ask ask, atomic_bool *cancelled, long *status,
                 struct json_object **ret, struct sbx_error *err, const char *fmt, ...)
        __attribute__((format(printf, 7, 8)));
/* The object that TEXT is, or NULL. */
struct json_object *daytona_parse(const char *text, size_t len);
/* Members of OBJ (may be NULL); "" and 0 where it has none of that type. Borrowed. */
const char *daytona_text(struct json_object *obj, const char *key);
double daytona_number(struct json_object *obj, const char *key);
bool daytona_flag(struct json_object *obj, const char *key);
struct json_object *daytona_member(struct json_object *obj, const char *key, enum json_type type);
void daytona_add(struct json_object *obj, const char *key, const char *value); /* NULL: not added */
/* The text of OBJ, borrowed of it; and its length. */
const char *daytona_json(struct json_object *obj, size_t *len);
/* As json_object_put(), of what has a secret: nothing of it stays in memory. */
void daytona_put_secret(struct json_object *obj);
/* Puts what the server says of its refusal of STATUS into ERR, whose code stays. */
void daytona_refused(const char *body, size_t len, long status, struct sbx_error *err);

/* ---- box.c ---- */

/* A sandbox, as the control plane shows it. */
struct daytona_box {
	char id[64], name[128], label[128];
	char toolbox[512]; /* URL of all toolboxes, "" where it is not said */
	bool checks_out;   /* its daemon checks out the branch that it makes */
	bool net_is;       /* its network is the mount's; false also where nobody has looked */
	int64_t made_ms;
	struct sbx_machine_look look;
};

/* EPROTO: OBJ is no sandbox. */
int daytona_box_read(struct json_object *obj, struct daytona_box *ret, struct sbx_error *err);
/* [wait] Looks at the one that WORD, an id or a name, means; SBX_MACHINE_GONE where there is none.
 */
int daytona_box_look(struct daytona *d, const char *word, struct daytona_box *ret,
                     atomic_bool *cancelled, struct sbx_error *err);
/*
 * [wait] Waits until BOX, which was looked at, is up, and wakes it when it sleeps. EREMOTEIO: it
 * failed. ESTALE: it is gone. ETIMEDOUT.
 */
int daytona_box_await(struct daytona *d, struct daytona_box *box, uint64_t most_ms,
                      atomic_bool *cancelled, struct sbx_error *err);
/*
 * [wait] What a refusal of M's toolbox (ERR, of *STATUS, to what was begun at BEGUN_MS) comes to.
 * 0: it was not up and is now, so that what was asked may be asked once more. Else the error;
 * *STATUS is 0 where it is another, and of the machine.
 */
int daytona_box_recover(struct daytona_machine *m, uint64_t begun_ms, long *status,
                        atomic_bool *cancelled, struct sbx_error *err);
/*
 * [wait] Before an adopted M is used: gives it the network of this mount where it has another, and
 * wakes it for that. Nobody asks anything of a sandbox that is more open than the mount says.
 */
int daytona_box_renew(struct daytona_machine *m, atomic_bool *cancelled, struct sbx_error *err);
/*
 * [wait] As daytona_ask, of M's toolbox, whose URL is the base. Where M is asleep it is woken, and
 * asked once more. *STATUS is 0 also where M is to blame.
 */
int daytona_ask_toolbox(struct daytona_machine *m, const struct daytona_ask *ask,
                        atomic_bool *cancelled, long *status, struct json_object **ret,
                        struct sbx_error *err);
/* Whether an answer of the toolbox of STATUS may mean that the sandbox is not up. */
bool daytona_maybe_down(long status);

/* ---- make.c, machine.c ---- */

int daytona_make(struct sbx_provider *p, const struct sbx_machine_request *req,
                 struct sbx_machine **ret, atomic_bool *cancelled, struct sbx_error *err);
/* NULL: no memory. It has no place yet, nor a handle. */
struct daytona_machine *daytona_machine_new(struct daytona *d, const struct daytona_box *box,
                                            const char *toolbox);
/* Says where its tree and the runner's files are. 0 or -ENOMEM. */
int daytona_machine_place(struct daytona_machine *m, const char *workdir, const char *room);
int daytona_adopt(struct sbx_provider *p, const char *handle, struct sbx_machine **ret,
                  struct sbx_error *err);
void daytona_release(struct sbx_machine *m);
int daytona_look(struct sbx_machine *m, struct sbx_machine_look *ret, atomic_bool *cancelled,
                 struct sbx_error *err);
int daytona_touch(struct sbx_machine *m, atomic_bool *cancelled, struct sbx_error *err);
/* What names a machine in a record, malloc'd; NULL: no memory. Arguments may be NULL: then it can
 * be removed by it, and not adopted. */
char *daytona_handle(const char *id, const char *name, const char *toolbox, const char *workdir,
                     const char *room);

/* ---- net.c ---- */

/* EOPNOTSUPP: a rule that Daytona has no word for. TEXT as sbx_settings.net. */
int daytona_net_parse(const char *text, struct daytona_net *ret, struct sbx_error *err);
void daytona_net_release(struct daytona_net *net);
/* Adds what closes the network to the body of a request. */
void daytona_net_add(const struct daytona_net *net, struct json_object *body);
/* Whether the sandbox that OBJ shows has that network, and no other. */
bool daytona_net_is(const struct daytona_net *net, struct json_object *obj);
/* [wait] Gives the sandbox ID the network of D. As daytona_net_check. */
int daytona_net_set(struct daytona *d, const char *id, atomic_bool *cancelled,
                    struct sbx_error *err);
/* EOPNOTSUPP: the sandbox that OBJ shows is open though it should not be. */
int daytona_net_check(const struct daytona_net *net, struct json_object *obj,
                      struct sbx_error *err);

/* ---- git.c ---- */

/* A repository that is to be cloned. */
struct daytona_source {
	char *url; /* NULL: none */
	struct sbx_github_repo repo;
};
int daytona_source_parse(const char *text, const char *github_api, struct daytona_source *ret,
                         struct sbx_error *err);
void daytona_source_release(struct daytona_source *source);
/* [wait] Clones it to M's workdir. BASE NULL: the default branch. */
int daytona_clone(struct daytona_machine *m, const struct daytona_source *source, const char *base,
                  atomic_bool *cancelled, struct sbx_error *err);
/* [wait] Makes BRANCH, unless it is there, and checks it out. CHECKS_OUT: to make it does both. */
int daytona_branch(struct daytona_machine *m, const char *branch, bool checks_out,
                   atomic_bool *cancelled, struct sbx_error *err);

/* ---- remove.c ---- */

/* [wait] Removes the sandbox ID. Success where there is none. */
int daytona_remove(struct daytona *d, const char *id, atomic_bool *cancelled,
                   struct sbx_error *err);
int daytona_unmake(struct sbx_provider *p, const char *name, const char *handle,
                   atomic_bool *cancelled, struct sbx_error *err);
int daytona_find(struct sbx_provider *p, const char *label,
                 int (*fn)(const char *name, const char *handle, int64_t made_ms, void *data),
                 void *data, struct sbx_error *err);

/* ---- send.c ---- */

/*
 * A request to the toolbox of a machine. Where it turns out to be asleep it is woken, and the
 * request sent once more. Allocated by its owner, who sets what is above the line.
 */
struct daytona_send {
	struct daytona_machine *m;
	struct sbx_http_request http; /* all but url, peer, headers, secret, done, data */
	const char *path;
	/* Whether the refusal is of what was asked, whatever its status. */
	bool (*own_refusal)(const struct sbx_http_answer *answer);
	/* [loop] Or in the pool, when the body is long: then ended is called on the loop after
	 * it. 0, or a negative errno with a sentence. */
	int (*read)(struct daytona_send *s, const struct sbx_http_answer *answer,
	            struct sbx_error *err);
	/* [loop] The end; frees S. */
	void (*ended)(struct daytona_send *s, int code, const struct sbx_error *err);
	/* ---- */
	char *url;
	bool flying; /* http is under way; lock of m */
	atomic_bool given_up;
	bool again; /* it was woken */
	bool maybe; /* it may have been carried out */
	uint64_t begun_ms;
	int code;
	struct sbx_error err;
	struct sbx_http_answer answer;
};
/* [any] */
void daytona_send_begin(struct daytona_send *s);
/* [any] Under the lock of its machine. */
void daytona_send_cancel(struct daytona_send *s);
/* Has ended called on the loop, with CODE (negative) and the sentence; or 0. [any] */
void daytona_send_fail(struct daytona_send *s, int code, const struct sbx_error *err);

void daytona_run(struct sbx_machine *m, struct sbx_machine_run *run);
void daytona_cancel_run(struct sbx_machine *m, struct sbx_machine_run *run);
void daytona_put(struct sbx_machine *m, struct sbx_machine_put *put);
void daytona_cancel_put(struct sbx_machine *m, struct sbx_machine_put *put);
/* The command by which a toolbox runs SCRIPT, malloc'd; NULL: no memory. */
char *daytona_command(const char *script, size_t len);

#endif
