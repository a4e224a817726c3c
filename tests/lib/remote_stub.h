/*
 * A machine for tests of what is built on calls: a directory of this host, where the runner really
 * runs. It takes the place of remote_call_begin and its like.
 */
#ifndef SANDBOXFS_TESTS_REMOTE_STUB_H
#define SANDBOXFS_TESTS_REMOTE_STUB_H

#include <stdatomic.h>

#include "backends/remote/call.h"
#include "sandboxfs/loop.h"
#include "sandboxfs/pool.h"

struct remote_link {
	struct sbx_loop *loop;
	struct sbx_pool *pool; /* wide */
	char tree[256], room[256];
	const char *shell;  /* "dash"; NULL: sh */
	const char *option; /* its first argument, or NULL */
	const char *path;   /* PATH, or NULL: as it is */
	/* The test may set these at any time: */
	atomic_uint delay_ms; /* of each answer */
	atomic_int fail;      /* calls end by this errno; 0: they do not */
	atomic_bool held;     /* answers wait until it is taken back, or the call is cancelled */
	/* Answers, malloc'd, in place of the machine; NULL: that does. May be NULL. */
	char *(*answer)(struct remote_link *link, const char *body);
	/* Seen by the test: */
	atomic_uint calls, running;
	atomic_uint by_op[128];  /* by the first letter */
	atomic_uint deadline_ms; /* of the last call */
};

/* TREE and ROOM are made. */
void remote_stub_init(struct remote_link *link, struct sbx_loop *loop, struct sbx_pool *pool,
                      const char *tree, const char *room);
/* What the machine answers to BODY: text, malloc'd. Blocks. */
char *remote_stub_run(struct remote_link *link, const char *body);

#endif
