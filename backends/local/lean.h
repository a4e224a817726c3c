/* Forking less. */
#ifndef SANDBOXFS_BACKENDS_LOCAL_LEAN_H
#define SANDBOXFS_BACKENDS_LOCAL_LEAN_H

/*
 * From now on children of the calling process do not get the shared libraries, but for the C library
 * and the dynamic linker: they must call nothing of the others, and nothing that is
 * not bound yet. What cannot be left out is copied as ever.
 */
void lean_forks(void);

#endif
