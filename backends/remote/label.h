/*
 * The label of all machines of a state directory, by which those are found that no record names. It
 * is made of a word that is drawn once and kept in the state directory, because nothing else tells
 * daemons from each other for certain: containers and copied machines may have the same machine-id,
 * or none, and the same path. A copy of a state directory elsewhere has another label.
 */
#ifndef SANDBOXFS_BACKENDS_REMOTE_LABEL_H
#define SANDBOXFS_BACKENDS_REMOTE_LABEL_H

#include "sandboxfs/error.h"

/*
 * The label of the state directory open at DIR, whose path is PATH; the caller's. The first call
 * keeps the word, durably: a label whose word is lost finds nothing again.
 */
int remote_label(int dir, const char *path, char **ret, struct sbx_error *err);

#endif
