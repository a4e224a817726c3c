/*
 * net=allow: which hosts a sandbox may talk to. A list of rules HOST[:PORT][/private], separated by
 * commas. HOST is a name, *.NAME for all names below it, an IPv4 address or an IPv6 address in
 * brackets. Without PORT: 80 and 443. A name leads to public addresses only, unless /private is
 * added; an address that is listed is allowed whatever it is.
 *
 * Pure functions, thread-safe.
 */
#ifndef SANDBOXFS_FS_NET_HOST_RULES_H
#define SANDBOXFS_FS_NET_HOST_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "sandboxfs/error.h"

#define SBX_HOST_MAX 254 /* bytes of a host, with its NUL */

/*
 * A host in its one form: a name in lower case without a dot at its end, or an address (literal) as
 * inet_ntop writes it, without brackets, an IPv4 one mapped into IPv6 as IPv4.
 */
struct sbx_target {
	char host[SBX_HOST_MAX];
	uint16_t port;
	bool literal;
};

/*
 * Reads HOST[:PORT] (LEN bytes, any). Anything that is neither a name of letters, digits, - and _
 * nor an address in its usual form is -EINVAL: users, percent signs, other scripts than ASCII,
 * numbers in odd forms (2130706433, 0x7f.1, 127.1), zones, port 0. DEFAULT_PORT 0: there must be a
 * port.
 */
int sbx_target_parse(const char *text, size_t len, uint16_t default_port, struct sbx_target *ret);

/* The addresses that a target may lead to, in rising order. */
enum sbx_reach {
	SBX_REACH_NONE,    /* it is not in the list */
	SBX_REACH_PUBLIC,  /* public addresses */
	SBX_REACH_PRIVATE, /* those of private networks and this machine too, but no link's
	                      (metadata services) */
	SBX_REACH_LITERAL, /* the address that it is */
};

struct sbx_hosts;

/* -EINVAL with a sentence that names the rule, -ENOMEM. */
int sbx_hosts_parse(const char *list, struct sbx_hosts **ret, struct sbx_error *err);
void sbx_hosts_free(struct sbx_hosts *hosts); /* accepts NULL */
enum sbx_reach sbx_hosts_reach(const struct sbx_hosts *hosts, const struct sbx_target *target);

/* Whether a target of REACH may be connected to at ADDRESS (IPv4 or IPv6; anything else may not).
 */
bool sbx_address_allowed(const struct sockaddr *address, enum sbx_reach reach);

#endif
