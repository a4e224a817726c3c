/*
 * The kept output of one stream of a job: byte-exact up to a limit, readable while it grows.
 *
 * One thread appends and seals (the event loop); any thread reads. An output is reference
 * counted, so that a reader need not know when the job is forgotten.
 */
#ifndef SANDBOXFS_FS_JOB_OUTPUT_H
#define SANDBOXFS_FS_JOB_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define SBX_OUTPUT_MEMORY (64 * 1024) /* bytes kept in memory before the file is used */

struct sbx_output;

/*
 * PATH (copied) is the file used past SBX_OUTPUT_MEMORY; it and the two directories above it are
 * made when needed, and it is unlinked with the last reference. LIMIT: bytes kept, 0 for no limit.
 * Returns 0 or -ENOMEM; *ret is a reference. Thread-safe.
 */
int sbx_output_create(const char *path, uint64_t limit, struct sbx_output **ret);
/* Takes one more reference and returns O. Any thread. */
struct sbx_output *sbx_output_ref(struct sbx_output *o);
void sbx_output_unref(struct sbx_output *o); /* accepts NULL */

/*
 * Takes LEN bytes: keeps what the limit and the disk allow and counts all. Never fails: what cannot
 * be kept is discarded, from then on, and sbx_output_truncated tells. One thread at a time.
 */
void sbx_output_append(struct sbx_output *o, const void *buf, size_t len);
/* N bytes more were produced and discarded by who would have brought them. That thread. */
void sbx_output_discard(struct sbx_output *o, uint64_t n);
/* No more comes: gives back the descriptor and spare memory. The thread that appends. */
void sbx_output_seal(struct sbx_output *o);

/* Bytes kept. Any thread. */
uint64_t sbx_output_size(struct sbx_output *o);
/* Bytes produced, kept or not. Any thread. */
uint64_t sbx_output_total(struct sbx_output *o);
/* Bytes discarded. Any thread. */
uint64_t sbx_output_cut(struct sbx_output *o);
/* Whether bytes were discarded. Any thread. */
bool sbx_output_truncated(struct sbx_output *o);
/* Up to LEN of the kept bytes at OFF: the count (0 at the end) or a negative errno. Any thread. */
ssize_t sbx_output_read(struct sbx_output *o, void *buf, size_t len, uint64_t off);

#endif
