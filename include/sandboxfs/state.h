/*
 * State directories as one who mounts none of them sees them: for --list-state, --prune, --doctor.
 * Thread-safe.
 */
#ifndef SANDBOXFS_STATE_H
#define SANDBOXFS_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "sandboxfs/error.h"

/*
 * Why what is kept at PATH, absolute and resolved, need not be there after the machine has started
 * anew, in words; NULL: nothing is known that would take it away. Its last components may be
 * missing.
 */
const char *sbx_state_fleeting(const char *path);

/* Strings are owned. */
struct sbx_state_info {
	char *source;     /* NULL: none, or not known */
	char *mountpoint; /* NULL: not known */
	bool busy;        /* a daemon has it */
	pid_t pid;        /* which; 0: not known */
	size_t sandboxes;
	size_t removed;  /* sandboxes that are gone and whose files are kept for the trash */
	char *names;     /* theirs, separated by spaces; of some only when there are many */
	int64_t used_ms; /* when it was last mounted or changed, CLOCK_REALTIME */
};

/*
 * Looks at the state directory NAME in the directory PARENT; release *ret. -ENOENT it is none;
 * -EACCES not ours.
 */
int sbx_state_inspect(int parent, const char *name, struct sbx_state_info *ret,
                      struct sbx_error *err);
/* Frees the strings and zeroes *INFO. May be repeated. */
void sbx_state_info_release(struct sbx_state_info *info);

/*
 * Removes it where no work is in it. -EBUSY a daemon has it, or a mount lies below; -ENOTEMPTY
 * there are sandboxes, entries of the trash, or what cannot be understood: err says which. Nothing
 * is removed then.
 */
int sbx_state_prune(int parent, const char *name, struct sbx_error *err);

#endif
