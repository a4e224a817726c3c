/* A process that forks often, and its size. */
#ifndef SANDBOXFS_RUNNER_SPAWNER_LEAN_H
#define SANDBOXFS_RUNNER_SPAWNER_LEAN_H

/*
 * Takes the shared libraries but the C library and the dynamic linker out of the calling process's
 * memory: from now on it must call nothing of theirs, nor anything that is not bound yet, and end by
 * _exit(2). Single-threaded.
 */
void lean_become(void);

#endif
