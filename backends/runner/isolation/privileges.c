/*
 * System calls and not the C library's wrappers: those would have all threads follow, by means of
 * memory that a child of vfork shares with its parent.
 */
#include "backends/runner/isolation/privileges.h"

#include <errno.h>
#include <linux/capability.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sandboxfs/mitigations.h"

/* EINVAL: that was the last. EPERM: we have none to begin with. */
int privileges_bound(void)
{
	int cap = 0;

	if (sbx_mitigation_off("capabilities"))
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

typedef struct __user_cap_data_struct cap_sets[_LINUX_CAPABILITY_U32S_3];

static int give_up(const struct sbx_identity *who, const cap_sets kept)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};

	if (who && become(who) < 0)
		return -1;
	if (sbx_mitigation_off("capabilities"))
		return 0;
	prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	return (int)syscall(SYS_capset, &head, kept);
}

int privileges_give_up(const struct sbx_identity *who)
{
	const cap_sets none = {{0}};

	return give_up(who, none);
}

/* Without the flag a change of users takes them all. */
int privileges_give_up_but(const struct sbx_identity *who, int cap)
{
	const uint32_t bit = UINT32_C(1) << cap % 32;
	cap_sets kept = {{0}};
	int r;

	kept[cap / 32].permitted = kept[cap / 32].effective = bit;
	if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) < 0)
		return -1;
	r = give_up(who, kept);
	prctl(PR_SET_KEEPCAPS, 0, 0, 0, 0);
	return r;
}
