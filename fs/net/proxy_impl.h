/* What proxy.c (who listens), connection.c (one connection) and relay.c (its bytes) share. */
#ifndef SANDBOXFS_FS_NET_PROXY_IMPL_H
#define SANDBOXFS_FS_NET_PROXY_IMPL_H

#include "fs/log/denials.h"
#include "fs/net/host_rules.h"
#include "fs/net/proxy.h"
#include "fs/net/resolver.h"
#include "sandboxfs/loop.h"

#define LISTENERS 4
#define BUFFER    ((size_t)64 * 1024)

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

enum { CLIENT, SERVER, ENDS };

enum state { HEAD, LOOKUP, CONNECT, RELAY, REFUSED };

/* From the end of the same number to the other. */
struct flow {
	size_t off, len; /* what of buf is still to be written */
	bool eof;        /* nothing more comes */
	bool shut;       /* and the other end was told */
	char buf[BUFFER];
};

struct conn {
	struct conn *prev, *next;
	struct sbx_proxy *proxy;
	enum state state;
	int fds[ENDS];
	struct sbx_watch watches[ENDS];
	uint32_t masks[ENDS];
	struct sbx_timer timer;
	uint64_t active_ns; /* when bytes last went, while RELAY */
	struct sbx_lookup *lookup;
	struct addrinfo *list, *next_address;
	enum sbx_reach reach;
	bool connect;
	struct sbx_target target;
	struct flow flows[ENDS];
};

static inline struct sbx_loop *loop_of(const struct conn *c)
{
	return c->proxy->egress->loop;
}

/* Serves the client FD, which is taken, until either side or a timer ends it. No memory: FD is closed. */
void conn_start(struct sbx_proxy *proxy, int fd);
void conn_close(struct conn *c);
/* A connection of the proxy's is gone. */
void proxy_conn_gone(struct sbx_proxy *proxy);

/* --- relay.c --- */

/* Watches an end for MASK; 0: not at all, since a hangup would be told again and again. */
bool conn_watch(struct conn *c, int end, uint32_t mask);
void conn_close_server(struct conn *c);
/* Moves what can be moved, and closes the connection when there will be no more. */
void conn_relay(struct conn *c);
/* Answers the client in the server's place, and no more. SENTENCE is printable. */
void conn_answer(struct conn *c, int status, const char *sentence);
/* 403, and a denial. HOST: LEN bytes, printable. */
void conn_deny(struct conn *c, const char *host, size_t len, const char *reason);
void conn_deny_target(struct conn *c, const char *reason);

#endif
