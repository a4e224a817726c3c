/* Reading and writing what is not the sandbox's. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "attack.h"
#include "sandboxfs/cleanup.h"

static long try_read(char **args)
{
	char byte;
	_cleanup_fd_ int fd = open(args[0], O_RDONLY | O_CLOEXEC);

	return fd < 0 ? -1 : read(fd, &byte, 1);
}

/* Opening decides; what the file then holds is somebody's. */
static long try_write(char **args)
{
	_cleanup_fd_ int fd = open(args[0], O_WRONLY | O_CLOEXEC);

	return fd;
}

static long try_truncate(char **args)
{
	return truncate(args[0], 0);
}

static long try_create(char **args)
{
	_cleanup_fd_ int fd = open(args[0], O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

	return fd;
}

static long try_create_setuid(char **args)
{
	_cleanup_fd_ int fd = open(args[0], O_WRONLY | O_CREAT | O_CLOEXEC, 04755);

	return fd;
}

static long try_chmod_setuid(char **args)
{
	return chmod(args[0], 04755);
}

static long try_chown_root(char **args)
{
	return chown(args[0], 0, 0);
}

static long try_device(char **args)
{
	return mknod(args[0], S_IFBLK | 0666, makedev(254, 0));
}

static long try_link(char **args)
{
	return link(args[0], "stolen");
}

static long try_unlink(char **args)
{
	return unlink(args[0]);
}

static long try_rename(char **args)
{
	return rename(args[0], args[1]);
}

static long try_setxattr(char **args)
{
	return syscall(SYS_setxattr, "attack", args[0], "x", 1, 0);
}

const struct attack attack_files[] = {
        {"read", try_read},
        {"write", try_write},
        {"truncate", try_truncate},
        {"create", try_create},
        {"create-setuid", try_create_setuid},
        {"chmod-setuid", try_chmod_setuid},
        {"chown-root", try_chown_root},
        {"device", try_device},
        {"link", try_link},
        {"unlink", try_unlink},
        {"rename", try_rename},
        {"setxattr", try_setxattr},
        {0},
};
