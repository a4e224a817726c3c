/* Messages that carry descriptors over a socket (unix(7), SCM_RIGHTS). Thread-safe. */
#ifndef SANDBOXFS_DESCRIPTORS_H
#define SANDBOXFS_DESCRIPTORS_H

#include <stddef.h>
#include <sys/types.h>

#define SBX_FDS_MAX 8 /* of one message */

/*
 * Sends LEN bytes with copies of the N descriptors FDS, which stay the caller's; FLAGS as of
 * send(2), never with a signal. 0 or -errno; -EAGAIN with MSG_DONTWAIT: not now.
 */
int sbx_send_fds(int sock, const void *bytes, size_t len, const int *fds, size_t n, int flags);
/*
 * Receives at most LEN bytes, and N descriptors in FDS, closed on exec and the caller's whatever
 * the answer; -1 where none came. FLAGS as of recv(2). The number of bytes, 0 at the end, or
 * -errno.
 */
ssize_t sbx_receive_fds(int sock, void *bytes, size_t len, int *fds, size_t n, int flags);

#endif
