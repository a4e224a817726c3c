/*
 * The messages between the daemon and sandboxfs-push, on a SOCK_SEQPACKET pair: the program sends
 * its hello, the daemon its order, the program its result, and then the program ends. The structs
 * travel as they are, because both are of one build; that is checked before the token is sent.
 */
#ifndef SANDBOXFS_PUSH_PROTOCOL_H
#define SANDBOXFS_PUSH_PROTOCOL_H

#include <git2.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "backends/push/push.h"
#include "backends/support/program.h"

#define PUSH_PROGRAM   "sandboxfs-push"
#define PUSH_ORDER_MAX ((size_t)64 * 1024)

struct push_hello {
	char version[48];
	uint32_t size; /* of the result: a change that was not counted */
};

/* Ours. */
extern const struct push_hello push_hello;

/* Travels as the daemon's pid and the strings one after the other, "" for NULL. */
struct push_order {
	pid_t daemon;
	struct sbx_git_push from;
	const char *url, *token;
};

struct push_result {
	struct sbx_error err; /* code 0: it is pushed */
	git_oid oid;          /* what the ref is now; zero: not known */
};

/* 0 or a negative errno; -E2BIG past PUSH_ORDER_MAX. */
int push_send_order(int sock, const struct push_order *order);
/* The strings are in BUF, of PUSH_ORDER_MAX bytes. 0 or a negative errno; -EPROTO: it is no order.
 */
int push_receive_order(int sock, char *buf, struct push_order *ret);

#endif
