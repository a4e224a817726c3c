/* A line of the journal: a change in words. All are thread-safe. */
#ifndef SANDBOXFS_BACKENDS_REMOTE_LINE_H
#define SANDBOXFS_BACKENDS_REMOTE_LINE_H

#include <stddef.h>
#include <stdint.h>

#include "backends/remote/text.h"
#include "sandboxfs/away.h"
#include "sandboxfs/error.h"

/* What a line says of its change. */
enum remote_tense {
	REMOTE_DONE,
	REMOTE_MEANT,   /* it is to be done, which another line then says */
	REMOTE_DROPPED, /* what was meant was not done after all */
};

/*
 * SEQ OP INO MODE PATH [OTHER]: numbers in decimal, MODE in octal with the file's type. OP is a
 * word, behind "?" what is meant, behind "!" what was dropped. OTHER is where something went, or
 * the text of a link. Bytes of a word up to a blank, 0x7f, "%" and one that begins with "." stand
 * as %XX; "." is the root.
 */
void remote_line_write(struct remote_text *t, uint64_t seq, enum remote_tense tense,
                       const struct sbx_change *c);

/* A line that was read. */
struct remote_line {
	uint64_t seq;
	enum remote_tense tense;
	struct sbx_change change; /* strings are in store */
	char *store;
};

/*
 * Reads TEXT of LEN bytes, which does not have its newline; release *ret. -EUCLEAN: it is no line.
 * -ENOMEM.
 */
int remote_line_read(const char *text, size_t len, struct remote_line *ret);
void remote_line_release(struct remote_line *line);

#define REMOTE_ID_SIZE 17 /* of a journal's id, with its NUL */

/* The first line of a file of the journal. */
void remote_head_write(struct remote_text *t, const char *id);
/*
 * Reads a file of the journal, TEXT of LEN bytes: its ID, which is "" where not even the head is
 * whole, and calls FN for each line that has its newline. *WHOLE: the bytes up to the last of them.
 * *SEQ is what the first line has, or 0 for any; afterwards what the next one has. A non-zero
 * return of FN ends it and is returned. -EUCLEAN with a sentence that names FILE; -ENOMEM.
 */
int remote_lines_read(const char *text, size_t len, const char *file, char id[REMOTE_ID_SIZE],
                      uint64_t *seq, int (*fn)(const struct remote_line *line, void *data),
                      void *data, size_t *whole, struct sbx_error *err);

#endif
