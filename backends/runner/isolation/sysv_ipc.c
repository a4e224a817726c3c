/*
 * System V shared memory that no process has attached. It belongs to no process, so the memory
 * limit of the job would miss it, and it would outlive the job.
 */
#include "backends/runner/isolation/sysv_ipc.h"
#include "backends/runner/isolation/kernel_file.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backends/runner/isolation/userns.h"
#include "sandboxfs/cleanup.h"

static bool set_here(void)
{
	return !kernel_file_write(AT_FDCWD, "/proc/sys/kernel/shm_rmid_forced", "1");
}

/* In the descriptors of the caller. */
static _Noreturn void child_main(int owner, int ns)
{
	int made;

	if (setns(owner, CLONE_NEWUSER) < 0 || unshare(CLONE_NEWIPC) < 0 || !set_here())
		_exit(1);
	made = open("/proc/self/ns/ipc", O_RDONLY | O_CLOEXEC);
	if (made >= 0) {
		dup3(made, ns, O_CLOEXEC);
		close(made);
	}
	_exit(0);
}

void ipcns_drop_unused(int ns, struct sbx_identity who)
{
	_cleanup_fd_ int owner = -1;
	pid_t pid;

	if (set_here())
		return;
	owner = userns_make((struct sbx_identity){.uid = 0}, who, false);
	if (owner < 0)
		return;
	pid = (pid_t)syscall(SYS_clone, (unsigned long)(CLONE_FILES | SIGCHLD), NULL, NULL, NULL,
	                     0UL);
	if (pid == 0)
		child_main(owner, ns);
	if (pid > 0)
		waitpid(pid, NULL, 0);
}
