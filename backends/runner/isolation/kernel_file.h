/* Files of /proc and of cgroups, which take their text in one write(2). Thread-safe. */
#ifndef SANDBOXFS_RUNNER_ISOLATION_KERNEL_FILE_H
#define SANDBOXFS_RUNNER_ISOLATION_KERNEL_FILE_H

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "sandboxfs/cleanup.h"

/* Writes TEXT to FILE, beneath DIRFD unless it is absolute. 0 or -errno. */
static inline int kernel_file_write(int dirfd, const char *file, const char *text)
{
	_cleanup_fd_ int fd = openat(dirfd, file, O_WRONLY | O_CLOEXEC);

	return fd < 0 || write(fd, text, strlen(text)) < 0 ? -errno : 0;
}

#endif
