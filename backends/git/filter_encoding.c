/*
 * The attribute working-tree-encoding, which libgit2 does not know: a file is kept as UTF-8 and
 * checked out in another encoding. A filter of ours does it wherever libgit2 filters, which is in
 * the order of gitattributes(5): last on the way out.
 */
#include <errno.h>
#include <git2/sys/filter.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "backends/git/filter_encoding.h"
#include "backends/git/git_impl.h"

#define NAME     SBX_ENCODING_FILTER
#define PRIORITY (GIT_FILTER_DRIVER_PRIORITY + 100)

/* Encodings that are another with a byte order mark before it. */
static const struct {
	const char *name, *plain, *mark;
} marked[] = {
        {"UTF-16LE-BOM", "UTF-16LE", "\xff\xfe"},
        {"UTF-16BE-BOM", "UTF-16BE", "\xfe\xff"},
};

static git_filter encoding_filter;

static int check(git_filter *self, void **payload, const git_filter_source *src,
                 const char **attr_values)
{
	const char *name = attr_values[0];

	(void)self;
	(void)src;
	if (git_attr_value(name) != GIT_ATTR_VALUE_STRING || !*name || !strcasecmp(name, "UTF-8") ||
	    !strcasecmp(name, "UTF8"))
		return GIT_PASSTHROUGH;
	*payload = strdup(name);
	return *payload ? 0 : GIT_PASSTHROUGH;
}

static void forget(git_filter *self, void *payload)
{
	(void)self;
	free(payload);
}

/* ---- piece by piece ---- */

static _Thread_local char *asked;

void sbx_git_encoding_ask(char ret[SBX_ENCODING_MAX])
{
	asked = ret;
}

int sbx_encoder_open(struct sbx_encoder *e, const char *name, bool out)
{
	*e = (struct sbx_encoder){.out = out, .mark = ""};
	for (size_t i = 0; i < SBX_ARRAY_SIZE(marked); i++) {
		if (strcasecmp(name, marked[i].name) != 0)
			continue;
		e->mark = marked[i].mark;
		name = marked[i].plain;
	}
	e->cd = out ? iconv_open(name, "UTF-8") : iconv_open("UTF-8", name);
	return e->cd == (iconv_t)-1 ? -EILSEQ : 0;
}

void sbx_encoder_close(struct sbx_encoder *e)
{
	if (e->cd != (iconv_t)-1)
		iconv_close(e->cd);
}

/* Of the *LEN bytes at *IN all that can be converted; what is cut off at the end stays. */
static int encode(struct sbx_encoder *e, char **in, size_t *len, sbx_convert_fn fn, void *to)
{
	size_t n = 0;
	int r = 0, code;

	do {
		char buf[8192], *out = buf;
		size_t left = sizeof(buf);

		n = iconv(e->cd, in, len, &out, &left);
		code = n == (size_t)-1 ? errno : 0;
		if (code == EILSEQ)
			return -EILSEQ;
		if (out > buf)
			r = fn(buf, (size_t)(out - buf), to);
	} while (!r && code == E2BIG);
	return r;
}

static int begin(struct sbx_encoder *e, const char **data, size_t *len, sbx_convert_fn fn, void *to)
{
	const size_t n = strlen(e->mark);

	e->begun = true;
	if (e->out)
		return n ? fn(e->mark, n, to) : 0;
	if (n && *len >= n && memcmp(*data, e->mark, n) == 0) {
		*data += n;
		*len -= n;
	}
	return 0;
}

int sbx_encoder_take(struct sbx_encoder *e, const char *data, size_t len, sbx_convert_fn fn,
                     void *to)
{
	char *joined, *in;
	int r = !e->begun && len ? begin(e, &data, &len, fn, to) : 0;

	if (r || !len)
		return r;
	in = joined = malloc(e->n + len);
	if (!joined)
		return -ENOMEM;
	memcpy(joined, e->cut, e->n);
	memcpy(joined + e->n, data, len);
	len += e->n;
	r = encode(e, &in, &len, fn, to);
	if (!r && len > sizeof(e->cut))
		r = -EILSEQ;
	if (!r)
		memcpy(e->cut, in, e->n = len);
	free(joined);
	return r;
}

int sbx_encoder_finish(struct sbx_encoder *e, sbx_convert_fn fn, void *to)
{
	return e->n ? -EILSEQ : encode(e, NULL, NULL, fn, to);
}

/* ---- at once ---- */

/* Converts LEN bytes at DATA behind MARK; *ret is malloc'd. 0 or -errno. */
static int convert(const char *to, const char *from, const char *mark, const char *data, size_t len,
                   char **ret, size_t *ret_len)
{
	size_t room = 4 * len + 16, left, n = strlen(mark);
	char *in = (char *)(uintptr_t)data, *buf, *out;
	iconv_t cd = iconv_open(to, from);
	int r = 0;

	if (cd == (iconv_t)-1)
		return -errno;
	buf = malloc(room);
	if (buf) {
		memcpy(buf, mark, n);
		out = buf + n;
		left = room - n;
		if (iconv(cd, &in, &len, &out, &left) == (size_t)-1 ||
		    iconv(cd, NULL, NULL, &out, &left) == (size_t)-1)
			r = -errno;
		*ret_len = (size_t)(out - buf);
	} else {
		r = -ENOMEM;
	}
	iconv_close(cd);
	if (r)
		free(buf);
	else
		*ret = buf;
	return r;
}

/* A content that cannot be converted stays as it is, as in git. */
static int apply(git_filter *self, void **payload, git_buf *to, const git_buf *from,
                 const git_filter_source *src)
{
	bool out = git_filter_source_mode(src) == GIT_FILTER_TO_WORKTREE;
	const char *name = *payload, *mark = "", *data = from->ptr;
	size_t len = from->size, converted_len;
	_cleanup_free_ char *converted = NULL;
	int r;

	(void)self;
	if (asked)
		snprintf(asked, SBX_ENCODING_MAX, "%s", name);
	if (!len || asked)
		return GIT_PASSTHROUGH;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(marked); i++) {
		if (strcasecmp(name, marked[i].name) != 0)
			continue;
		mark = marked[i].mark;
		name = marked[i].plain;
		if (!out && len >= 2 && memcmp(data, mark, 2) == 0) {
			data += 2;
			len -= 2;
		}
	}
	r = out ? convert(name, "UTF-8", mark, data, len, &converted, &converted_len)
	        : convert("UTF-8", name, "", data, len, &converted, &converted_len);
	if (r)
		return GIT_PASSTHROUGH;
	return git_buf_set(to, converted, converted_len);
}

int sbx_git_encoding_init(void)
{
	if (git_filter_lookup(NAME))
		return 0;
	git_filter_init(&encoding_filter, GIT_FILTER_VERSION);
	encoding_filter.attributes = "working-tree-encoding";
	encoding_filter.check = check;
	encoding_filter.apply = apply;
	encoding_filter.cleanup = forget;
	return git_filter_register(NAME, &encoding_filter, PRIORITY) < 0 ? -ENOMEM : 0;
}
