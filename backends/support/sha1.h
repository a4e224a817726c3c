/* SHA-1 of bytes, as git's index ends with one. libgit2 only hashes objects. */
#ifndef SANDBOXFS_SUPPORT_SHA1_H
#define SANDBOXFS_SUPPORT_SHA1_H

#include <stddef.h>

#define SBX_SHA1_SIZE 20

void sbx_sha1(const void *data, size_t len, unsigned char ret[SBX_SHA1_SIZE]);
/* The same by portable means, whatever the processor has: for tests. */
void sbx_sha1_plain(const void *data, size_t len, unsigned char ret[SBX_SHA1_SIZE]);

#endif
