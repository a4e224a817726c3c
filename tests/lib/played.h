/*
 * A runner that the test plays: what is to be run is noted, and the test says what becomes of it,
 * when. It takes the place of exec and signal; the rest is that of spawner_stub.c.
 *
 * Reports are posted to the loop and come there in the order of the calls; the calls may be made on
 * any thread, also from on_exec, that is before exec has returned.
 */
#ifndef SANDBOXFS_TESTS_PLAYED_H
#define SANDBOXFS_TESTS_PLAYED_H

#include <stdatomic.h>
#include <stdint.h>

#include "tests/lib/spawner_stub.h"

struct played_job {
	struct sbx_job *caller;
	struct played *by;
	struct played_job *older;
	/* What was asked, in copies. */
	char **argv;
	char **env;
	char *program; /* NULL: none */
	char *cwd;
	char *workdir;
	int stdin_fd; /* a duplicate, -1: none; the test may close it and set it to -1 */
	uint64_t timeout_ms;
	struct sbx_limits limits;
	_Atomic uint64_t signals; /* got so far, bit n for signal n + 1 */
	bool ending;              /* loop thread only */
};

struct played {
	struct sbx_spawner base;
	struct sbx_loop *loop;
	/* The test may set these while no command is being started: */
	int refuse;              /* exec fails with this negative errno, 0: it does not */
	const char *refuse_text; /* and with this sentence, NULL: none */
	uint64_t survives;       /* signals that do not end a job, bits as above */
	void (*on_exec)(struct played_job *job); /* within exec; may be NULL */
	/* Seen by the test: */
	struct played_job *_Atomic last; /* the last one started; all are freed at the end */
	atomic_uint live;                /* jobs that have not ended */
	atomic_uint execs;               /* calls of exec that were not refused */
};

/* All else is zero. */
void played_init(struct played *p, struct sbx_loop *loop);
/* All jobs have ended. */
void played_finish(struct played *p);

void played_started(struct played_job *job);
void played_output(struct played_job *job, int stream, const void *buf, size_t len);
void played_ended(struct played_job *job, enum sbx_end end, int code);
/* The value of KEY in what the job was given, or NULL. */
const char *played_env(const struct played_job *job, const char *key);

#endif
