/*
 * Tests of the provider for Daytona: the loopback Daytona and a repository on a server, both
 * programs of their own; a client on a loop; a provider. One at a time. What fails, fails the test.
 */
#ifndef SANDBOXFS_TESTS_DAYTONA_FIXTURE_H
#define SANDBOXFS_TESTS_DAYTONA_FIXTURE_H

#include <stdbool.h>

#include "backends/daytona/daytona.h"

#define DAYTONA_KEY            "dtn_averysecretkey"
#define DAYTONA_TOKEN          "ghp_verysecrettoken"
#define DAYTONA_LABEL_OF_TESTS "0123456789abcdef"

/* For a group: starts and ends the servers. The environment's DAYTONA_ERA says which it plays. */
int daytona_servers_start(void **state);
int daytona_servers_stop(void **state);
/* At most so many requests of those that are not held are under way at once; 0: as ever. */
extern unsigned daytona_per_host;
/* For a case: a provider with the network open. It is asserted that no sandbox is left, that
 * nothing that was asked was wrong, and that no sentence had a secret. */
int daytona_set_up(void **state);
int daytona_tear_down(void **state);

bool daytona_is_new(void); /* the era */
/* What the provider of the case is made by, to be changed and made anew by daytona_provide. */
extern struct sbx_daytona_config daytona_config;
extern struct sbx_provider *daytona_provider;
void daytona_provide(void);
/* The URL of the repository acme/widgets, which the token opens. */
const char *daytona_source(void);
/* Its directory on the server. */
const char *daytona_repository(void);

/* Asks the server; the answer in one of a few buffers. */
const char *daytona_control(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Tells it, in JSON. */
void daytona_tell(const char *word, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* How many requests an operation had since daytona_forget, OP "all": all of them. */
int daytona_count(const char *op);
void daytona_forget(void);

/* A name that nobody had. */
const char *daytona_name(void);
/* The error of the last call; looked through for secrets by each use. */
struct sbx_error *daytona_error(void);

/* Makes a machine of the source (NULL: none) on the branch "work". */
int daytona_try_make(const char *name, const char *source, struct sbx_machine **ret);
struct sbx_machine *daytona_made(const char *source);
/* Removes and releases it. */
void daytona_drop(struct sbx_machine *m);

/* A run, begun and awaited. *OUT is the caller's. */
int daytona_try_run(struct sbx_machine *m, struct sbx_machine_run *run, const char *script,
                    char **out);
/* One that has to succeed, with this output. */
void daytona_runs(struct sbx_machine *m, const char *script, const char *want);
/* Begins it; the code is 1 until its end. */
struct daytona_flight {
	struct sbx_machine_run run;
	struct sbx_machine_put put;
	int code;
	char *out;
	size_t len;
};
void daytona_begin_run(struct sbx_machine *m, struct daytona_flight *f, const char *script);
void daytona_begin_put(struct sbx_machine *m, struct daytona_flight *f);
int daytona_await(struct daytona_flight *f);

#endif
