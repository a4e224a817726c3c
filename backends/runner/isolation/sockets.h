/*
 * The list of the host's sockets below what commands may read, for kernels that cannot keep
 * commands from connecting to them. Used by the spawner process.
 */
#ifndef SANDBOXFS_RUNNER_ISOLATION_SOCKETS_H
#define SANDBOXFS_RUNNER_ISOLATION_SOCKETS_H

#include <stdint.h>

struct isolation_settings;
struct sockets;

/* SETTINGS must live as long. NULL: the kernel does not tell, or no memory. */
struct sockets *sockets_open(const struct isolation_settings *settings);

void sockets_close(struct sockets *sockets); /* may be NULL */

/*
 * Asks the kernel for those of our network namespace that are bound now. *names, NULL-terminated
 * and the table's until the next call, has the absolute ones below what is shown, as whoever bound
 * them wrote them; *mark is another whenever one of them has come or gone. 0 or a negative errno.
 */
int sockets_look(struct sockets *sockets, char *const **names, uint64_t *mark);

#endif
