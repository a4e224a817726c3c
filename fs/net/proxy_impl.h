/* Declarations that proxy.c (who listens) and connection.c (one connection) share. */
#ifndef SANDBOXFS_FS_NET_PROXY_IMPL_H
#define SANDBOXFS_FS_NET_PROXY_IMPL_H

#include "fs/log/denials.h"
#include "fs/net/host_rules.h"
#include "fs/net/proxy.h"
#include "fs/net/resolver.h"
#include "sandboxfs/loop.h"

#define LISTENERS 4

struct conn;

struct sbx_egress {
	struct sbx_hosts *hosts;
	struct sbx_loop *loop;
	struct sbx_resolver *resolver;
	unsigned conns, most; /* of all proxies */
};

struct sbx_proxy {
	struct sbx_egress *egress;
	struct sbx_denials *denials;
	int listeners[LISTENERS]; /* the youngest first; -1: none */
	struct sbx_watch watches[LISTENERS];
	struct sbx_timer pause; /* armed: nobody is accepted, or not by all */
	struct conn *first;
	unsigned conns;
};

/* Serves the client FD, which is taken, until either side or a timer ends it. No memory: FD is
 * closed. */
void conn_start(struct sbx_proxy *proxy, int fd);
/*
 * Closes both sides at once and frees C; proxy_conn_gone follows, which may start the next. Loop
 * thread.
 */
void conn_close(struct conn *c);
/* A connection of the proxy's is gone. */
void proxy_conn_gone(struct sbx_proxy *proxy);

#endif
