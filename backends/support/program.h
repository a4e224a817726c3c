/*
 * Starting the other programs of sandboxfs. One lies beside the program that we are, or where it
 * was installed; PATH has no say. Thread-safe. posix_spawn(3).
 */
#ifndef SANDBOXFS_SUPPORT_PROGRAM_H
#define SANDBOXFS_SUPPORT_PROGRAM_H

#include <sys/types.h>

#include "sandboxfs/error.h"

#define SBX_PROGRAM_SOCKET 3 /* the descriptor of the program's end */

struct sbx_program {
	const char *name;
	const char *does;       /* "runs commands", for the sentence when it is not there */
	const char *mountpoint; /* its argument, by which it is known whose it is; NULL: none */
	char **env;
};

/*
 * Starts a process *ret with SOCK and the standard streams, all signals as they are by default. 0
 * or a negative errno with a sentence.
 */
int sbx_program_start(const struct sbx_program *program, int sock, pid_t *ret,
                      struct sbx_error *err);

#endif
