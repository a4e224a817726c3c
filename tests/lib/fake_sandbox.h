/*
 * A sandbox whose commands are played by the test: exec only takes note of what was asked, and the test
 * says what the backend reports, when. For programs that test what stands above a backend.
 *
 * Reports are posted to the loop and come there in the order of the calls; the calls may be made on any
 * thread, also from on_exec, that is before exec has returned.
 */
#ifndef SANDBOXFS_TESTS_FAKE_SANDBOX_H
#define SANDBOXFS_TESTS_FAKE_SANDBOX_H

#include <stdatomic.h>
#include <stdint.h>

#include "sandboxfs/backend.h"

struct sbx_loop;

struct fake_job {
	struct sbx_job *caller;
	struct fake_sandbox *sandbox;
	struct fake_job *older;
	/* What was asked, in copies. */
	char **argv;
	char **env;
	char *program; /* NULL: none */
	char *cwd;
	int stdin_fd; /* a duplicate, -1: none; the test may close it and set it to -1 */
	struct sbx_limits limits;
	_Atomic uint64_t signals; /* got so far, bit n for signal n + 1 */
	bool ending;              /* loop thread only */
};

struct fake_sandbox {
	struct sbx_sandbox base;
	struct sbx_loop *loop;
	int root;
	/* The test may set these while no command is being started: */
	int refuse;              /* exec fails with this negative errno, 0: it does not */
	const char *refuse_text; /* and with this sentence, NULL: none */
	uint64_t survives;       /* signals that do not end a job, bits as above; never KILL */
	void (*on_exec)(struct fake_job *job, void *data); /* within exec; may be NULL */
	void *on_exec_data;
	/* Seen by the test: */
	struct fake_job *_Atomic last; /* the last one started; all are freed with the sandbox */
	atomic_uint live;              /* jobs that have not ended */
	atomic_uint execs;             /* calls of exec that were not refused */
};

/* ROOT is a directory that exists. The working directory of the sandbox is called ROOT too. Aborts on failure. */
struct fake_sandbox *fake_sandbox_create(struct sbx_loop *loop, const char *root);
/* As sbx_sandbox_close; all jobs have ended. */
void fake_sandbox_destroy(struct fake_sandbox *fake);

void fake_job_started(struct fake_job *job);
void fake_job_output(struct fake_job *job, int stream, const void *buf, size_t len);
void fake_job_ended(struct fake_job *job, enum sbx_end end, int code);
/* The value of KEY in what the job was given, or NULL. */
const char *fake_job_env(const struct fake_job *job, const char *key);

#endif
