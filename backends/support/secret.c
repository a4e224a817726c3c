#include "sandboxfs/secret.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define ROOM 16384 /* a multiple of any page size; longer ones are refused */

/* A mapping of its own. */
struct sbx_secret {
	char text[ROOM];
};

static int keep(const char *value, size_t len, struct sbx_secret **ret)
{
	struct sbx_secret *secret;
	int r;

	if (len >= ROOM)
		return -E2BIG;
	secret = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (secret == MAP_FAILED)
		return -ENOMEM;
	if (madvise(secret, ROOM, MADV_WIPEONFORK) < 0 ||
	    madvise(secret, ROOM, MADV_DONTDUMP) < 0) {
		r = -errno;
		munmap(secret, ROOM);
		return r;
	}
	memcpy(secret->text, value, len + 1);
	*ret = secret;
	return 0;
}

int sbx_secret_make(const char *text, struct sbx_secret **ret)
{
	*ret = NULL;
	return keep(text, strlen(text), ret);
}

int sbx_secret_take(const char *name, struct sbx_secret **ret)
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

void sbx_secret_free(struct sbx_secret *secret)
{
	if (secret) {
		explicit_bzero(secret, ROOM);
		munmap(secret, ROOM);
	}
}

const char *sbx_secret_text(const struct sbx_secret *secret)
{
	return secret ? secret->text : NULL;
}
