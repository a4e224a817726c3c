#include "backends/push/protocol.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "sandboxfs/cleanup.h"

const struct push_hello push_hello = {.version = SBX_VERSION ", push 1",
                                      .size = sizeof(struct push_result)};

#define STRINGS 6

int push_send_order(int sock, const struct push_order *order)
{
	const char *const strings[STRINGS] = {
	        order->from.common, order->from.branch, order->from.mountpoint,
	        order->from.state,  order->url,         order->token};
	pid_t daemon = order->daemon;
	struct iovec parts[1 + STRINGS] = {{&daemon, sizeof(daemon)}};
	const struct msghdr msg = {.msg_iov = parts, .msg_iovlen = 1 + STRINGS};
	size_t len = sizeof(daemon);

	for (size_t i = 0; i < STRINGS; i++) {
		const char *text = strings[i] ? strings[i] : "";

		parts[1 + i] = (struct iovec){(void *)text, strlen(text) + 1};
		len += strlen(text) + 1;
	}
	if (len > PUSH_ORDER_MAX)
		return -E2BIG;
	return sendmsg(sock, &msg, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

static const char *or_none(const char *text)
{
	return *text ? text : NULL;
}

int push_receive_order(int sock, char *buf, struct push_order *ret)
{
	const char **const strings[STRINGS] = {
	        &ret->from.common, &ret->from.branch, &ret->from.mountpoint,
	        &ret->from.state,  &ret->url,         &ret->token};
	const ssize_t n = recv(sock, buf, PUSH_ORDER_MAX, 0);
	const char *at = buf + sizeof(ret->daemon), *end;

	if (n < 0)
		return -errno;
	end = buf + n;
	if (n <= (ssize_t)sizeof(ret->daemon) || end[-1])
		return -EPROTO;
	memcpy(&ret->daemon, buf, sizeof(ret->daemon));
	for (size_t i = 0; i < STRINGS; i++) {
		if (at == end)
			return -EPROTO;
		*strings[i] = at;
		at += strlen(at) + 1;
	}
	ret->from.mountpoint = or_none(ret->from.mountpoint);
	ret->from.state = or_none(ret->from.state);
	ret->token = or_none(ret->token);
	return at == end ? 0 : -EPROTO;
}
