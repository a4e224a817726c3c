/* openat2(2), which the C library has no function for. */
#ifndef SANDBOXFS_OPENAT2_H
#define SANDBOXFS_OPENAT2_H

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

/*
 * Opens PATH from DIRFD, closed on exec. RESOLVE: RESOLVE_*; with FLAGS none that create. The
 * descriptor or -errno; -EAGAIN: a rename or a mount somewhere made the answer uncertain, a hundred
 * times.
 */
static inline int sbx_openat2(int dirfd, const char *path, int flags, uint64_t resolve)
{
	const struct open_how how = {.flags = (uint64_t)(flags | O_CLOEXEC), .resolve = resolve};
	int fd, tries = 100;

	do
		fd = (int)syscall(SYS_openat2, dirfd, path, &how, sizeof(how));
	while (fd < 0 && (errno == EAGAIN || errno == EINTR) && --tries);
	return fd < 0 ? -errno : fd;
}

#endif
