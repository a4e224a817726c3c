/* The work of sandboxfs-push: one push with libgit2. */
#ifndef SANDBOXFS_PUSH_UPLOAD_H
#define SANDBOXFS_PUSH_UPLOAD_H

#include "backends/push/protocol.h"

/* Pushes, and fills RET, which is zeroed. */
void push_upload(const struct push_order *order, struct push_result *ret);

#endif
