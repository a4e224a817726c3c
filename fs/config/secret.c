#include "fs/config/secret.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define ROOM 16384 /* a multiple of any page size; longer ones are refused */

static int keep(const char *value, size_t len, char **ret)
{
	char *room;

	if (len >= ROOM)
		return -E2BIG;
	room = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (room == MAP_FAILED)
		return -ENOMEM;
	if (madvise(room, ROOM, MADV_WIPEONFORK) < 0 || madvise(room, ROOM, MADV_DONTDUMP) < 0) {
		munmap(room, ROOM);
		return -errno;
	}
	memcpy(room, value, len + 1);
	*ret = room;
	return 0;
}

int sbx_secret_take(const char *name, char **ret)
{
	char *value = getenv(name);
	const size_t len = value ? strlen(value) : 0;
	int r = 0;

	*ret = NULL;
	if (len)
		r = keep(value, len, ret);
	if (len)
		explicit_bzero(value, len);
	unsetenv(name);
	return r;
}

void sbx_secret_free(char *secret)
{
	if (secret) {
		explicit_bzero(secret, ROOM);
		munmap(secret, ROOM);
	}
}
