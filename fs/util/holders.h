/*
 * A search for processes that can still write to an open file, when one of its descriptors has
 * been closed. The kernel tells of each close, but not of the descriptors that are left, so they
 * are looked for in /proc: in the process that closed, the one that opened, the one that wrote
 * last, and in those that they have started.
 *
 * Links and texts of /proc are read, and nothing is opened through them, because that would ask
 * this file system. All functions are thread-safe and wait for nobody.
 */
#ifndef SANDBOXFS_FS_UTIL_HOLDERS_H
#define SANDBOXFS_FS_UTIL_HOLDERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum sbx_held {
	SBX_HELD_NO,      /* no descriptor is left */
	SBX_HELD_YES,     /* one is */
	SBX_HELD_UNKNOWN, /* a process cannot be looked into, or its file may be another one */
};

struct sbx_holders_query {
	uint64_t ino;    /* of the file, as fdinfo has it */
	uint64_t pos;    /* offset of the open file */
	unsigned others; /* open files besides it with the same ino and pos */
	/* Threads; 0: not known. */
	pid_t closer, opener, writer;
};

/* Looks into at most 128 processes with 4096 descriptors each; beyond that it is UNKNOWN. */
enum sbx_held sbx_holders_find(const struct sbx_holders_query *q);
/* Whether the thread PID is about to end because of a signal. */
bool sbx_holders_killed(pid_t pid);
/* Whether the thread PID is one of the kernel's own. Where /proc does not tell, it is not. */
bool sbx_holders_kernel(pid_t pid);
/* The name of the thread PID, mostly that of its program, at most 15 bytes. False: /proc does not
 * tell. */
bool sbx_holders_name(pid_t pid, char *ret, size_t size);

#endif
