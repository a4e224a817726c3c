/*
 * The way out of a sandbox with net=allow: an HTTP proxy that listens in the sandbox's network
 * namespace, where there is nothing else, and connects from the daemon's. It answers CONNECT and
 * plain requests by absolute URI, for the hosts of the list; what it denies it tells in one
 * sentence (403) and as a denial.
 *
 * Everything happens on the loop thread, unless a function says otherwise, and nothing waits: names
 * are resolved on the pool, and the very addresses that were checked are connected to. Connections,
 * their buffers and their waits are bounded; who is not read from is not read for.
 */
#ifndef SANDBOXFS_FS_NET_PROXY_H
#define SANDBOXFS_FS_NET_PROXY_H

#include "sandboxfs/error.h"

struct sbx_denials;
struct sbx_egress; /* what the proxies of a mount share */
struct sbx_loop;
struct sbx_pool;
struct sbx_proxy; /* a sandbox's */

/* HOSTS as in net=allow:HOSTS. -EINVAL with a sentence, -ENOMEM. Any thread. */
int sbx_egress_create(const char *hosts, struct sbx_loop *loop, struct sbx_pool *pool,
                      struct sbx_egress **ret, struct sbx_error *err);
/* The pool is about to go: nothing more is given to it. Any thread. Accepts NULL. */
void sbx_egress_close(struct sbx_egress *egress);
/* Closed, its proxies destroyed; on the loop thread or after it stopped. Accepts NULL. */
void sbx_egress_destroy(struct sbx_egress *egress);

/* DENIALS must live as long. NULL: no memory. */
struct sbx_proxy *sbx_proxy_create(struct sbx_egress *egress, struct sbx_denials *denials);
/*
 * Serves FD, the proxy's from now on: it listens and does not block. Those it had before are still
 * served, for jobs that began earlier, unless there are too many.
 */
void sbx_proxy_listen(struct sbx_proxy *proxy, int fd);
/* Closes everything. Also after the loop stopped. Accepts NULL. */
void sbx_proxy_destroy(struct sbx_proxy *proxy);

#endif
