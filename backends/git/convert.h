/*
 * Git's conversions of a file's content on its way in and out (encoding, line ends, $Id$). They
 * work piece by piece, because libgit2's filters hold the whole content in memory, several times
 * over. The object ids are the ones that git computes.
 */
#ifndef SANDBOXFS_GIT_CONVERT_H
#define SANDBOXFS_GIT_CONVERT_H

#include <git2.h>
#include <stdbool.h>
#include <stddef.h>

/* Takes the LEN bytes at DATA; 0 or -errno, which ends it. */
typedef int (*sbx_convert_fn)(const char *data, size_t len, void *to);
/* Gives all of a content to FN, the same each time it is called; 0 or -errno. */
typedef int (*sbx_convert_source)(sbx_convert_fn fn, void *to, void *source);

#define SBX_ENCODING_MAX 64

struct sbx_convert {
	bool out;   /* into a working tree; else into an object */
	bool lines; /* line ends are converted */
	bool guess; /* only of what looks like text */
	/* core.safecrlf: content with line ends of this kind stays as it is. */
	bool keep_crlf, keep_lf;
	bool ident;
	char encoding[SBX_ENCODING_MAX]; /* of the working tree; "" as it is */
	char id[GIT_OID_HEXSZ + 1];      /* what $Id$ becomes on the way out */
};

/* Counts of the bytes of a content that decide about conversions. */
struct sbx_convert_stats {
	size_t nul, lonecr, lonelf, crlf, printable, nonprintable;
	bool cr; /* it has ended with a CR so far */
	char last;
};

/* Counts LEN more bytes of a content into S, which is zero at its beginning. */
void sbx_convert_count(struct sbx_convert_stats *s, const char *data, size_t len);
/*
 * Call it when the whole content has been counted. Whether it looks like text with line ends of
 * two bytes.
 */
bool sbx_convert_has_crlf(struct sbx_convert_stats *s);

/*
 * Finds the conversions that FILTERS do by trying them on a few bytes. ID is the object's, or
 * NULL. False: there are others among them, which are not known here.
 */
bool sbx_convert_probe(struct sbx_convert *c, git_filter_list *filters, bool out,
                       const git_oid *id);
/* Looks through a content: lines and encoding are then what it is to be converted by. */
int sbx_convert_look(struct sbx_convert *c, sbx_convert_source fn, void *source);
/* Gives the converted content to TO. */
int sbx_convert_run(const struct sbx_convert *c, sbx_convert_source fn, void *source,
                    sbx_convert_fn sink, void *to);
/* How long it is when it is converted. */
int sbx_convert_length(const struct sbx_convert *c, sbx_convert_source fn, void *source,
                       size_t *ret);

#endif
