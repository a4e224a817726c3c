/* A sandbox that is made by a write, which is answered when it works where it really is. */
#ifndef SANDBOXFS_FS_CONTROL_CREATION_H
#define SANDBOXFS_FS_CONTROL_CREATION_H

#include "fs/control/control_impl.h"
#include "fs/sandbox/await.h"

/* Part of the state of an open file, one write after another; zeroed, but for what is set. */
struct control_creation {
	struct sbx_control_handle *h;
	/* [loop] It works, and the write is answered next. NULL: nothing is done. */
	void (*works)(struct sbx_control_handle *h, struct sbx_box *box);
	/* private: */
	struct sbx_creation *creation; /* while it goes on; under the file's lock */
	struct sbx_await up;           /* until it is there where it really is; loop thread */
	bool coming;                   /* the same */
	bool given_up;                 /* by who has written; the same */
};

/* As sbx_registry_make, or as sbx_registry_fork of the file's sandbox. sbx_request_file_done
 * follows. The file's lock is held. */
void sbx_control_make(struct control_creation *c, const struct sbx_create_request *req);
void sbx_control_fork(struct control_creation *c, const struct sbx_create_request *req,
                      const char *rev);
/*
 * [loop] Who has written is about to die: what is made is removed, however far it has come. Also
 * where nothing goes on. The lock is not held.
 */
void sbx_control_creation_cancel(struct control_creation *c);

#endif
