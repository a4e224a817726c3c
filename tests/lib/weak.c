/* The walls that sandboxfs-weak does without: SANDBOXFS_WITHOUT="seccomp landlock". */
#include <stdlib.h>
#include <string.h>

#include "sandboxfs/mitigations.h"

bool sbx_mitigation_off(const char *wall)
{
	const char *at = getenv("SANDBOXFS_WITHOUT");
	size_t len = strlen(wall);

	for (; at && *at; at += strspn(at, " ")) {
		size_t n = strcspn(at, " ");

		if (n == len && memcmp(at, wall, n) == 0)
			return true;
		at += n;
	}
	return false;
}
