/*
 * Objects that are written beside the thread that finds them. To compress an object, and to have
 * its file on the way to the disk, takes longer than to read what it is made of.
 */
#ifndef SANDBOXFS_GIT_OBJECT_WRITER_H
#define SANDBOXFS_GIT_OBJECT_WRITER_H

#include <git2.h>
#include <stddef.h>

#include "sandboxfs/error.h"

struct sbx_object_writer;

/*
 * ODB and COMMON, whose owner owns what is written (NULL: the daemon does), are borrowed until
 * close. The thread comes with the first object. 0 or -ENOMEM. One thread at a time.
 */
int sbx_object_writer_open(git_odb *odb, const char *common, struct sbx_object_writer **ret);
/* Frees W; objects that were put and are not written yet never will be. Accepts NULL. */
void sbx_object_writer_close(struct sbx_object_writer *w);
/*
 * Has the LEN bytes at DATA, which are copied, written as an object: *RET is its id. NAME is what
 * an error is said of. It cannot be read before sbx_object_writer_wait(). 0 or -ENOMEM; waits where
 * much is put that is not written yet.
 */
int sbx_object_writer_put(struct sbx_object_writer *w, git_object_t type, const void *data,
                          size_t len, const char *name, git_oid *ret);
/*
 * All that was put is in the objects, and on the disk when sbx_git_durable_end() of this thread
 * returns, or at once without its begin. 0 or a negative errno: an object could not be written, and
 * those after it were not tried. That stays so.
 */
int sbx_object_writer_wait(struct sbx_object_writer *w, struct sbx_error *err);

#endif
