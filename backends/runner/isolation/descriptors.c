#include "sandboxfs/descriptors.h"

#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

union control {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(SBX_FDS_MAX * sizeof(int))];
};

int sbx_send_fds(int sock, const void *bytes, size_t len, const int *fds, size_t n, int flags)
{
	union control control = {0};
	struct iovec iov = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = len};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

	assert(n <= SBX_FDS_MAX);
	if (n) {
		struct cmsghdr *c;

		msg.msg_control = control.bytes;
		msg.msg_controllen = CMSG_SPACE(n * sizeof(int));
		c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(n * sizeof(int));
		memcpy(CMSG_DATA(c), fds, n * sizeof(int));
	}
	return sendmsg(sock, &msg, flags | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

ssize_t sbx_receive_fds(int sock, void *bytes, size_t len, int *fds, size_t n, int flags)
{
	union control control;
	struct iovec iov = {.iov_base = bytes, .iov_len = len};
	/* Not CMSG_SPACE: in its padding there is room for one more. */
	struct msghdr msg = {.msg_iov = &iov,
	                     .msg_iovlen = 1,
	                     .msg_control = control.bytes,
	                     .msg_controllen = CMSG_LEN(n * sizeof(int))};
	struct cmsghdr *c;
	ssize_t got;

	assert(n <= SBX_FDS_MAX);
	for (size_t i = 0; i < n; i++)
		fds[i] = -1;
	do
		got = recvmsg(sock, &msg, flags | MSG_CMSG_CLOEXEC);
	while (got < 0 && errno == EINTR);
	if (got < 0)
		return -errno;
	c = CMSG_FIRSTHDR(&msg);
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
		memcpy(fds, CMSG_DATA(c), c->cmsg_len - CMSG_LEN(0));
	return got;
}
