/*
 * A machine of tests: scripts run by a shell on this host, in directories below a temporary one.
 * Answers come late, cut, or never, as a test asks.
 */
#ifndef SANDBOXFS_TESTS_SHELL_MACHINE_H
#define SANDBOXFS_TESTS_SHELL_MACHINE_H

#include <stdatomic.h>

#include "backends/remote/provider.h"

struct sbx_loop;

struct shell_machine {
	struct sbx_machine machine;
	struct sbx_provider provider;
	struct sbx_provider_impl impl; /* can: DETACHES and PARALLEL; may be changed before a run */
	struct sbx_loop *loop;
	char *const *shell; /* before "-c" and the script; NULL: sh */
	char *const *env;   /* NULL: as ours */
	/* Each is of the next so many runs: */
	atomic_int lose;  /* they run, and fail by EREMOTEIO */
	atomic_int cut;   /* they run, and half of the answer comes */
	atomic_int twice; /* they run twice, one after the other, and the second answers */
	atomic_int fail;  /* they do not run, and fail by FAIL_CODE */
	atomic_int stall; /* they run, and nothing comes until they are cancelled */
	atomic_int fail_puts;
	int fail_code;       /* positive */
	atomic_int delay_ms; /* before each */
	/* Counts: */
	atomic_int runs, puts, at_once, most_at_once;
	atomic_int held;       /* runs */
	atomic_size_t longest; /* script */
	atomic_int threads;
};

/* Makes DIR/room and DIR/tree, that are the machine's. DIR stays the caller's. */
void shell_machine_init(struct shell_machine *m, const char *dir, struct sbx_loop *loop);
/* Waits until nothing is under way. The loop may still run. */
void shell_machine_finish(struct shell_machine *m);

/* The shells that there are to test with, each an argv; ended by NULL. */
extern char *const *const shell_machine_shells[];

#endif
