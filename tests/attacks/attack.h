/*
 * Declarations that the parts of the attacks' program share: tables of attempts, each answered as
 * a system call is.
 */
#ifndef SANDBOXFS_TESTS_ATTACK_H
#define SANDBOXFS_TESTS_ATTACK_H

#include <stdlib.h>

struct attack {
	const char *name;
	long (*fn)(char **args); /* NULL-terminated; -1 with errno */
};

extern const struct attack attack_calls[]; /* parts of the kernel, namespaces */
extern const struct attack
        attack_procs[]; /* other processes, becoming somebody, taking everything */
extern const struct attack attack_files[];   /* what is not the sandbox's */
extern const struct attack attack_network[]; /* sockets and other ways to talk */
extern const struct attack attack_races[];   /* a check and a use, with something in between */

static inline long attack_number(char **args)
{
	return args[0] ? strtol(args[0], NULL, 0) : 0;
}

#endif
