/*
 * Tests of the provider for Vercel: the loopback Vercel and a repository on a server, both programs
 * of their own; a client on a loop; a provider. One at a time. What fails, fails the test.
 */
#ifndef SANDBOXFS_TESTS_VERCEL_FIXTURE_H
#define SANDBOXFS_TESTS_VERCEL_FIXTURE_H

#include <stdbool.h>

#include "backends/vercel/vercel.h"

#define VERCEL_KEY            "vcp_averysecretkey"
#define VERCEL_GIT_TOKEN      "ghp_verysecrettoken"
#define VERCEL_TEAM           "team_test"
#define VERCEL_PROJECT        "prj_test"
#define VERCEL_LABEL_OF_TESTS "0123456789abcdef"

/* For a group: starts and ends the servers. */
int vercel_servers_start(void **state);
int vercel_servers_stop(void **state);
/* At most so many requests of those that are not held are under way at once; 0: as ever. */
extern unsigned vercel_per_host;
/* For a case: a provider with the network open. It is asserted that no sandbox is left, that
 * nothing that was asked was wrong, and that no sentence had a secret. */
int vercel_set_up(void **state);
int vercel_tear_down(void **state);

/* What the provider of the case is made by, to be changed and made anew by vercel_provide. */
extern struct sbx_vercel_config vercel_config;
extern struct sbx_provider *vercel_provider;
void vercel_provide(void);
/* The URL of the repository acme/widgets, which the token opens; its branches are trunk, other. */
const char *vercel_source(void);
/* A secret of VALUE, as long as the case. */
const struct sbx_secret *vercel_secret(const char *value);

/* Asks the server; the answer in one of a few buffers. */
const char *vercel_control(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Tells it, in JSON. */
void vercel_tell(const char *word, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Tells it of a fault that the next request of OP meets; MORE: members, each behind a comma. */
void vercel_fault(const char *op, const char *fault, const char *more);
/* How many requests an operation had since vercel_forget, OP "all": all of them. */
int vercel_count(const char *op);
void vercel_forget(void);

/* A name that nobody had. */
const char *vercel_name(void);
/* The name of M. */
const char *vercel_name_of(const struct sbx_machine *m);
/* NAME in the tree of M, as the server has it; in one of a few buffers. */
const char *vercel_file(const struct sbx_machine *m, const char *name);
/* The error of the last call; looked through for secrets by each use. */
struct sbx_error *vercel_error(void);
/* Fails unless the last error is CODE, and its sentence has TEXT in it. */
void vercel_said_to(int code, const char *text);

/* Makes a machine of the source (NULL: none) on the branch "work". */
int vercel_try_make(const char *name, const char *source, struct sbx_machine **ret);
struct sbx_machine *vercel_made(const char *source);
/* Removes and releases it. */
void vercel_drop(struct sbx_machine *m);

/* A run, begun and awaited. *OUT is the caller's. */
int vercel_try_run(struct sbx_machine *m, struct sbx_machine_run *run, const char *script,
                   char **out);
/* The code of one that is not safe, or is. */
int vercel_tries(struct sbx_machine *m, const char *script, bool safe);
/* One that has to succeed, with this output. */
void vercel_runs(struct sbx_machine *m, const char *script, const char *want);
/* Begins it; the code is 1 until its end. */
struct vercel_flight {
	struct sbx_machine_run run;
	struct sbx_machine_put put;
	int code;
	char *out;
	size_t len;
};
void vercel_begin_run(struct sbx_machine *m, struct vercel_flight *f, const char *script);
void vercel_begin_put(struct sbx_machine *m, struct vercel_flight *f);
int vercel_await(struct vercel_flight *f);

#endif
