/*
 * System calls and not the C library's wrappers: those would have all threads follow, by means of
 * memory that a child of vfork shares with its parent.
 */
#include "backends/local/privileges.h"

#include <errno.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sandboxfs/walls.h"

/* EINVAL: that was the last. EPERM: we have none to begin with. */
int privileges_bound(void)
{
	int cap = 0;

	if (sbx_without("capabilities"))
		return 0;
	while (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) == 0)
		cap++;
	return errno == EINVAL || errno == EPERM ? 0 : -1;
}

static int become(const struct sbx_identity *who)
{
	if (syscall(SYS_setgroups, 0, NULL) < 0 ||
	    syscall(SYS_setresgid, who->gid, who->gid, who->gid) < 0)
		return -1;
	return (int)syscall(SYS_setresuid, who->uid, who->uid, who->uid);
}

int privileges_give_up(const struct sbx_identity *who)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {{0}};

	if (who && become(who) < 0)
		return -1;
	if (sbx_without("capabilities"))
		return 0;
	prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	return (int)syscall(SYS_capset, &head, none);
}
