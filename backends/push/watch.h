/*
 * sandboxfs-push, watched. libgit2 waits for a server for ever, so a second thread looks ten times
 * a second at the connections of the process. How long nothing has moved is the kernel's to tell,
 * as TLS and SSH libraries read and write by themselves.
 */
#ifndef SANDBOXFS_PUSH_WATCH_H
#define SANDBOXFS_PUSH_WATCH_H

#include <stdbool.h>

/*
 * From now on, and once, GIVE_UP is called by the second thread with a sentence when no connection
 * is had within 15 s, or when nothing has moved for 60 s. 0 or -errno.
 */
int push_watch_start(void (*give_up)(const char *why));
/* Work goes on. Thread-safe. */
void push_watch_moved(void);

/* SIGTERM is noted from now on and ends nothing: files of a remote are put away before the end. */
void push_heed_term(void);
/* Whether it came. */
bool push_is_given_up(void);

#endif
