/* The parser of requests to snapshot, restore, reset and fork. */
#ifndef SANDBOXFS_FS_CONTROL_HISTORY_ARGS_H
#define SANDBOXFS_FS_CONTROL_HISTORY_ARGS_H

#include <stdbool.h>

#include "fs/job/request.h"
#include "sandboxfs/error.h"

enum {
	HISTORY_OP_SNAPSHOT,
	HISTORY_OP_RESTORE,
	HISTORY_OP_RESET,
	HISTORY_OP_UNDO,
	HISTORY_OP_FORK
};

struct args {
	char *text; /* message, or the state that is meant; NULL: none is given */
	char *author;
	bool ignored;
	struct sbx_create_request create; /* of fork: name, branch */
};

/* Reads TEXT as OP's; release *ret, which is zeroed before, in any case. -EINVAL, -ENOMEM. */
int sbx_history_args_read(int op, const char *text, struct args *ret, struct sbx_error *err);
/* Frees what *OPTIONS owns. */
void sbx_history_args_release(struct args *args);

#endif
