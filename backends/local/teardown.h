/* Taking a sandbox down. */
#ifndef SANDBOXFS_BACKENDS_LOCAL_TEARDOWN_H
#define SANDBOXFS_BACKENDS_LOCAL_TEARDOWN_H

#include "backends/local/local_impl.h"

/*
 * The two halves of taking a sandbox down, from whatever state it is in. Both may be repeated; undo
 * is both, for a create that failed. REC's state is changed and, as far as the disk allows, stored.
 */
int sbx_local_retire(struct sbx_local *b, struct sbx_record *rec, struct sbx_error *err);
int sbx_local_remove(struct sbx_local *b, struct sbx_record *rec, struct sbx_error *err);
int sbx_local_undo(struct sbx_local *b, struct sbx_record *rec, struct sbx_error *err);

#endif
