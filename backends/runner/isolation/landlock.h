/* Landlock: what a process may do with files, by path, whatever its namespaces show. */
#ifndef SANDBOXFS_RUNNER_ISOLATION_LANDLOCK_H
#define SANDBOXFS_RUNNER_ISOLATION_LANDLOCK_H

#include <stdbool.h>

struct isolation_settings;
struct spawn_request;

/* The kernel's ABI, 0 when there is none. */
int landlock_abi(void);

/* Whether a ruleset of ABI keeps commands from sockets of others below what they may only read. */
bool landlock_closes_sockets(int abi);

struct landlock_options {
	const struct isolation_settings *settings;
	const struct spawn_request *req; /* the places that may be written */
	int abi;
	bool own_view;    /* we see what commands see; else the host: only its system may be read */
	bool no_abstract; /* no connection to abstract sockets of processes outside */
	bool no_tcp;
};

/*
 * Makes the ruleset of a sandbox, as far as the ABI goes: files by path, and no signal to processes
 * outside. Returns a descriptor or a negative errno.
 */
int landlock_make(const struct landlock_options *options);
/* Puts the calling thread, which has no_new_privs, under RULESET. Returns 0 or -1 with errno. */
int landlock_enforce(int ruleset);

#endif
