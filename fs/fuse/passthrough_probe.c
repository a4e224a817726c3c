/*
 * The probe for passthrough. The first message of a FUSE connection tells whether the kernel
 * offers it: a child that has a mount namespace of its own makes a connection, reads that
 * message, and ends the connection by its exit.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fs/fuse/passthrough.h"
#include "sandboxfs/cleanup.h"

#ifdef HAVE_PASSTHROUGH

/* Exit status: 0 the kernel offers it, 1 it does not, 2 there is no connection. */
static int probe_child(void)
{
	char options[64], buf[FUSE_MIN_READ_BUFFER];
	struct fuse_init_in in = {0};
	const size_t head = sizeof(struct fuse_in_header);
	int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	ssize_t n;

	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0", fd);
	if (fd < 0 || unshare(CLONE_NEWNS) < 0 ||
	    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("probe", "/", "fuse", MS_NOSUID | MS_NODEV, options) < 0)
		return 2;
	n = read(fd, buf, sizeof(buf));
	if (n <= (ssize_t)head)
		return 2;
	memcpy(&in, buf + head, (size_t)n - head < sizeof(in) ? (size_t)n - head : sizeof(in));
	return (uint64_t)in.flags2 << 32 & FUSE_PASSTHROUGH ? 0 : 1;
}

static int probe(struct sbx_error *err)
{
	int status = 0;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid == 0)
		_exit(probe_child());
	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (pid < 0 || !WIFEXITED(status) || WEXITSTATUS(status) == 2)
		return sbx_fail(
		        err, EPERM,
		        "io=passthrough cannot be had: a FUSE connection could not be tried");
	if (WEXITSTATUS(status))
		return sbx_fail(
		        err, EOPNOTSUPP,
		        "io=passthrough takes Linux 6.9 or newer with CONFIG_FUSE_PASSTHROUGH");
	return 0;
}

#else

static int probe(struct sbx_error *err)
{
	return sbx_fail(err, EOPNOTSUPP,
	                "io=passthrough takes a sandboxfs built with libfuse 3.17 "
	                "or newer");
}

#endif

int sbx_passthrough_probe(struct sbx_error *err)
{
	if (geteuid() != 0)
		return sbx_fail(err, EPERM, "io=passthrough is for root only");
	return probe(err);
}
