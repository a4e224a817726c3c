/* Taking a sandbox down. */
#ifndef SANDBOXFS_BACKENDS_LOCAL_TEARDOWN_H
#define SANDBOXFS_BACKENDS_LOCAL_TEARDOWN_H

#include "backends/local/local_impl.h"

/*
 * The first half of taking a sandbox down, from whatever state it is in. REC's state is changed
 * and, as far as the disk allows, stored. May be repeated.
 */
int sbx_local_retire(struct sbx_local *b, struct sbx_record *rec, struct sbx_error *err);
/*
 * The second half: removes all that there is of REC, at last its record. May be repeated after a
 * failure.
 */
int sbx_local_remove(struct sbx_local *b, struct sbx_record *rec, struct sbx_error *err);
/*
 * Both halves, for a create that failed. It tries again for a moment while descriptors or memory
 * are short.
 */
int sbx_local_undo(struct sbx_local *b, struct sbx_record *rec, struct sbx_error *err);

#endif
