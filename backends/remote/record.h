/*
 * The record of a sandbox, STATE/remote/ID/record.json: what a later daemon needs to have it again,
 * or to remove it. It is written before the machine is asked for. Of one that is being removed it
 * is leaving.json.
 */
#ifndef SANDBOXFS_BACKENDS_REMOTE_RECORD_H
#define SANDBOXFS_BACKENDS_REMOTE_RECORD_H

#include <stdint.h>

#include "sandboxfs/error.h"

enum remote_phase {
	REMOTE_PHASE_CREATING, /* there may be a machine */
	REMOTE_PHASE_UP,
	REMOTE_PHASE_FAILED,  /* there is none, and REASON says why */
	REMOTE_PHASE_LEAVING, /* it is being removed */
};

/* Strings are owned; NULL where there is none. */
struct remote_record {
	enum remote_phase phase;
	char *id, *name;
	char *machine; /* the name at the provider */
	char *handle;  /* sbx_machine.handle, once it was made */
	char *source, *base, *branch;
	char *fork; /* of one that begins as another: the REV of that, "" as it was then */
	char *reason;
	int64_t created_ms; /* CLOCK_REALTIME */
};

/* Writes it in the directory DIR, durably. 0 or -errno. Thread-safe for different DIR. */
int remote_record_store(int dir, const struct remote_record *rec);
/* It is being removed, whatever its phase was. Needs no room on the disk. 0, also where it was
 * noted before, or -errno. -ENOENT: there is none. */
int remote_record_leave(int dir);
/* Reads it. -ENOENT: there is none. -EINVAL: it is none. */
int remote_record_load(int dir, struct remote_record *ret);
/* Frees the strings and zeroes *REC. May be repeated. */
void remote_record_release(struct remote_record *rec);

#endif
