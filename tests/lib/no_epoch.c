/* Linked with --wrap into sandboxfs-no-epoch: the kernel answers as one before 6.16 does. */
#include <errno.h>

struct sbx_channel;

int __wrap_sbx_channel_epoch(struct sbx_channel *ch);

int __wrap_sbx_channel_epoch(struct sbx_channel *ch)
{
	(void)ch;
	return -EINVAL;
}
