/*
 * The head of a request to the proxy: CONNECT HOST:PORT, or METHOD http://HOST[:PORT]/... for what
 * goes in the clear. Pure functions on hostile bytes, thread-safe.
 */
#ifndef SANDBOXFS_FS_NET_HTTP_HEAD_H
#define SANDBOXFS_FS_NET_HTTP_HEAD_H

#include "fs/net/host_rules.h"

#define SBX_HEAD_MAX ((size_t)16 * 1024)

struct sbx_head {
	bool connect;
	struct sbx_target target;
	/* Slices of what was parsed. */
	const char *host; /* HOST[:PORT] as it was written */
	size_t host_len;
	const char *method;
	size_t method_len;
	const char *path; /* what follows the host in the URI, perhaps nothing */
	size_t path_len;
	const char *version; /* HTTP/1.0 or HTTP/1.1 */
	const char *fields;  /* the lines after the first, each with its end */
	size_t fields_len;
};

/* The length of the head in BUF, with its empty line; 0: it is not complete. */
size_t sbx_head_length(const char *buf, size_t len);
/*
 * Takes a complete head apart. 0, or the status to be answered: 400 not a request that we know,
 * 403 a host in a form that no rule can have (host is set, target is not), 501 not by http.
 */
int sbx_head_parse(const char *buf, size_t len, struct sbx_head *ret);
/*
 * Writes the head that the server gets (not for CONNECT): the path alone, the host as it was
 * checked, the connection for this request only. Returns its length, 0 when SIZE is too small.
 */
size_t sbx_head_rewrite(const struct sbx_head *head, char *buf, size_t size);

#endif
