/* The parser of requests to snapshot, restore, reset and fork. */
#ifndef SANDBOXFS_FS_CONTROL_HISTORY_ARGS_H
#define SANDBOXFS_FS_CONTROL_HISTORY_ARGS_H

#include <stdbool.h>

#include "fs/job/request.h"
#include "sandboxfs/error.h"

enum { DEED_SNAPSHOT, DEED_RESTORE, DEED_RESET, DEED_UNDO, DEED_FORK };

struct wish {
	char *text; /* message, or the state that is meant; NULL: none is given */
	char *author;
	bool ignored;
	struct sbx_create_request create; /* of fork: name, branch */
};

/* Reads TEXT as DEED's; release *ret, which is zeroed before, in any case. -EINVAL, -ENOMEM. */
int sbx_wish_read(int deed, const char *text, struct wish *ret, struct sbx_error *err);
/* Frees what *WISH owns. */
void sbx_wish_release(struct wish *wish);

#endif
