/*
 * Servers on the loopback, which are programs of python3: they print their port and serve until
 * their stdin ends. Failures end the test.
 */
#ifndef SANDBOXFS_TESTS_PYTHON_SERVER_H
#define SANDBOXFS_TESTS_PYTHON_SERVER_H

#include <sys/types.h>

struct python_server {
	pid_t pid;
	int in; /* it serves while this is open */
	int port;
};

/* Starts PROGRAM with the arguments ARGS, up to a NULL. It serves when this returns. */
void python_server_start(struct python_server *s, const char *program, const char *const *args);
/* Returns when it has ended. */
void python_server_stop(struct python_server *s);

#endif
