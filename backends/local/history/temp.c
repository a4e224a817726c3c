/* Changing a tree that the host may be changing: by way of a directory of ours in its root. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/local/history/history_impl.h"
#include "backends/support/beneath.h"
#include "backends/support/fsutil.h"
#include "backends/support/tree.h"
#include "sandboxfs/cleanup.h"

int sbx_past_temp_open(int root)
{
	_cleanup_fd_ int fd = sbx_beneath_open(root, ".", O_RDONLY | O_DIRECTORY);

	return fd < 0 ? fd : sbx_dir_make(fd, SBX_CAPTURE_TEMP, 0700);
}

int sbx_past_temp_remove(int root, struct sbx_error *err)
{
	_cleanup_fd_ int fd = sbx_beneath_open(root, ".", O_RDONLY | O_DIRECTORY);

	return fd < 0 ? sbx_fail(err, -fd, "cannot open the sandbox: %s", strerror(-fd))
	              : sbx_tree_remove(fd, SBX_CAPTURE_TEMP, err);
}

void sbx_past_make_accessible(int dir, int how)
{
	_cleanup_free_ char *proc = NULL;
	struct stat st;

	if (faccessat(dir, ".", how, AT_EACCESS) == 0 || fstat(dir, &st) < 0)
		return;
	proc = sbx_format("/proc/self/fd/%d", dir);
	if (proc)
		chmod(proc, (st.st_mode & 07777) | 0700);
}
