/*
 * Names to addresses: getaddrinfo(3) on the pool, a few at a time, so that slow names leave workers
 * for everything else. Loop thread, unless a function says otherwise.
 */
#ifndef SANDBOXFS_FS_NET_RESOLVER_H
#define SANDBOXFS_FS_NET_RESOLVER_H

#include "fs/net/host_rules.h"

struct addrinfo;
struct sbx_lookup;
struct sbx_loop;
struct sbx_pool;
struct sbx_resolver;

/* ERROR: 0 with LIST, the callee's to free, or EAI_*. */
typedef void (*sbx_resolved)(int error, struct addrinfo *list, void *data);

/* 0 or -ENOMEM. Any thread. */
int sbx_resolver_create(struct sbx_loop *loop, struct sbx_pool *pool, struct sbx_resolver **ret);
/* Nothing more is given to the pool, which may be destroyed; what waits is never answered. Any
 * thread. */
void sbx_resolver_close(struct sbx_resolver *r);
/* Closed, and all lookups cancelled. Also after the loop stopped. Accepts NULL. */
void sbx_resolver_destroy(struct sbx_resolver *r);
/* Calls fn once, later. NULL: no memory. */
struct sbx_lookup *sbx_resolve(struct sbx_resolver *r, const struct sbx_target *target,
                               sbx_resolved fn, void *data);
/* fn will not be called; before it was. */
void sbx_lookup_cancel(struct sbx_lookup *lookup);

#endif
