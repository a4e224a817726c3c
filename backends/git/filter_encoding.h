/* The attribute working-tree-encoding, piece by piece. */
#ifndef SANDBOXFS_GIT_FILTER_ENCODING_H
#define SANDBOXFS_GIT_FILTER_ENCODING_H

#include <iconv.h>

#include "backends/git/convert.h"

#define SBX_ENCODING_FILTER "sandboxfs-encoding"

struct sbx_encoder {
	iconv_t cd;
	bool out, begun;
	const char *mark; /* of byte order, which is to stand first */
	char cut[16];     /* the begin of a character, N bytes of it */
	size_t n;
};

/*
 * Until it is called with NULL the filter of this thread converts nothing, and writes the name of
 * its encoding to RET.
 */
void sbx_git_encoding_ask(char ret[SBX_ENCODING_MAX]);

/* From UTF-8 to NAME if OUT, else back. -EILSEQ: there is no such encoding. */
int sbx_encoder_open(struct sbx_encoder *e, const char *name, bool out);
/* Releases E. Accepts one that could not be opened. */
void sbx_encoder_close(struct sbx_encoder *e);
/* Gives what the LEN bytes at DATA become to FN. -EILSEQ: they are nothing in this encoding. */
int sbx_encoder_take(struct sbx_encoder *e, const char *data, size_t len, sbx_convert_fn fn,
                     void *to);
/* The content is complete: gives its last bytes to FN. -EILSEQ: it ends within a character. */
int sbx_encoder_finish(struct sbx_encoder *e, sbx_convert_fn fn, void *to);

#endif
