/*
 * The rules are those of git's convert.c; what has to be known of the whole content is counted
 * first.
 */
#include "backends/git/convert.h"

#include <errno.h>
#include <git2/sys/filter.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/git/filter_encoding.h"
#include "backends/git/git_impl.h"
#include "sandboxfs/cleanup.h"

#define GATHERED ((size_t)64 << 10)
/* An $Id$ that is longer is none. */
#define HELD ((size_t)64 << 10)

/* ---- what is in it ---- */

static void count_byte(struct sbx_convert_stats *s, unsigned char byte)
{
	if (s->cr) {
		s->cr = false;
		if (byte == '\n') {
			s->crlf++;
			return;
		}
		s->lonecr++;
	}
	if (byte == '\r')
		s->cr = true;
	else if (byte == '\n')
		s->lonelf++;
	else if (byte == '\b' || byte == '\t' || byte == '\033' || byte == '\f')
		s->printable++;
	else if (byte < ' ' || byte == 0x7f)
		s->nonprintable++;
	else
		s->printable++;
	s->nul += !byte;
}

void sbx_convert_count(struct sbx_convert_stats *s, const char *data, size_t len)
{
	for (size_t i = 0; i < len; i++)
		count_byte(s, (unsigned char)data[i]);
	if (len)
		s->last = data[len - 1];
}

/* A byte that ends a file in DOS counts for nothing there. */
static bool is_binary(struct sbx_convert_stats *s)
{
	if (s->cr)
		s->lonecr++;
	s->cr = false;
	if (s->last == '\032' && s->nonprintable)
		s->nonprintable--;
	s->last = 0;
	return s->lonecr || s->nul || s->printable >> 7 < s->nonprintable;
}

bool sbx_convert_has_crlf(struct sbx_convert_stats *s)
{
	return !is_binary(s) && s->crlf;
}

/* ---- what is to be done ---- */

/* Whether TEXT is changed by FILTERS. *failed: they refuse it; may be NULL. */
static bool changes(git_filter_list *filters, const char *text, bool *failed)
{
	git_buf out = {0};
	bool changed = false;
	const int r = git_filter_list_apply_to_buffer(&out, filters, text, strlen(text));

	if (failed)
		*failed = r != 0;
	if (!r)
		changed = out.size != strlen(text);
	git_buf_dispose(&out);
	return changed;
}

bool sbx_convert_probe(struct sbx_convert *c, git_filter_list *filters, bool out, const git_oid *id)
{
	const bool lines = git_filter_list_contains(filters, "crlf"),
	           ident = git_filter_list_contains(filters, "ident"),
	           encoding = git_filter_list_contains(filters, SBX_ENCODING_FILTER);

	*c = (struct sbx_convert){.out = out, .ident = ident && (id || !out)};
	if (git_filter_list_length(filters) != (size_t)lines + ident + encoding)
		return false;
	if (id)
		git_oid_tostr(c->id, sizeof(c->id), id);
	sbx_git_encoding_ask(c->encoding);
	/* A CR on its own is in no text, so that what is only guessed to be text stays as it is. */
	if (out) {
		c->lines = changes(filters, "a\n", NULL);
		c->guess = !changes(filters, "a\rb\n", NULL);
	} else {
		c->lines = lines;
		changes(filters, "a\r\n", &c->keep_crlf);
		changes(filters, "a\n", &c->keep_lf);
		c->guess = !changes(filters, "a\rb\r\n", NULL);
	}
	sbx_git_encoding_ask(NULL);
	return true;
}

/* ---- the encoding ---- */

struct encoding {
	struct sbx_encoder encoder;
	sbx_convert_fn fn;
	void *to;
};

static int encode_piece(const char *data, size_t len, void *to)
{
	struct encoding *e = to;

	return sbx_encoder_take(&e->encoder, data, len, e->fn, e->to);
}

/* Gives the content to SINK, on its way in as UTF-8. */
static int give_all(const struct sbx_convert *c, sbx_convert_source fn, void *source,
                    sbx_convert_fn sink, void *to)
{
	struct encoding e = {.fn = sink, .to = to};
	int r;

	if (c->out || !c->encoding[0])
		return fn(sink, to, source);
	r = sbx_encoder_open(&e.encoder, c->encoding, false);
	if (!r)
		r = fn(encode_piece, &e, source);
	if (!r)
		r = sbx_encoder_finish(&e.encoder, sink, to);
	sbx_encoder_close(&e.encoder);
	return r;
}

/* A content that cannot be converted stays as it is. */
static int look_at_encoding(struct sbx_convert *c, sbx_convert_source fn, void *source)
{
	struct sbx_convert alone = {.out = c->out};
	size_t len;
	int r;

	if (!c->encoding[0])
		return 0;
	memcpy(alone.encoding, c->encoding, sizeof(alone.encoding));
	r = sbx_convert_length(&alone, fn, source, &len);
	if (r == -EILSEQ)
		c->encoding[0] = '\0';
	return r == -EILSEQ ? 0 : r;
}

/* ---- what is to be done with this one ---- */

static int count_piece(const char *data, size_t len, void *to)
{
	sbx_convert_count(to, data, len);
	return 0;
}

int sbx_convert_look(struct sbx_convert *c, sbx_convert_source fn, void *source)
{
	struct sbx_convert_stats s = {0};
	bool binary;
	int r = look_at_encoding(c, fn, source);

	if (!r && c->lines)
		r = give_all(c, fn, source, count_piece, &s);
	if (r || !c->lines)
		return r;
	binary = is_binary(&s);
	if (c->out)
		c->lines = s.lonelf && !(c->guess && (binary || s.crlf));
	else
		c->lines = s.crlf && !(c->guess && binary) && !c->keep_crlf &&
		           !(c->keep_lf && s.lonelf);
	return 0;
}

/* ---- doing it ---- */

struct running {
	const struct sbx_convert *c;
	sbx_convert_fn sink;
	void *to;
	bool cr;     /* what was taken last is a CR */
	char *held;  /* HELD bytes: what may be an $Id$, as far as it was taken */
	size_t n;    /* of these */
	char *ready; /* GATHERED bytes that are to be given to TO */
	size_t len;
};

static int give(struct running *r)
{
	const int result = r->len ? r->sink(r->ready, r->len, r->to) : 0;

	r->len = 0;
	return result;
}

static int gather(struct running *r, const char *data, size_t len)
{
	int result = 0;

	while (len && !result) {
		const size_t n = len < GATHERED - r->len ? len : GATHERED - r->len;

		memcpy(r->ready + r->len, data, n);
		r->len += n;
		data += n;
		len -= n;
		if (r->len == GATHERED)
			result = give(r);
	}
	return result;
}

/* LF becomes CR LF; one that has a CR stays as it is. */
static int add_crs(struct running *r, const char *data, size_t len)
{
	const char *end = data + len, *lf;
	int result = 0;

	while (!result && data < end && (lf = memchr(data, '\n', (size_t)(end - data)))) {
		const bool has = lf > data ? lf[-1] == '\r' : r->cr;

		result = gather(r, data, (size_t)(lf - data));
		if (!result)
			result = gather(r, has ? "\n" : "\r\n", has ? 1 : 2);
		data = lf + 1;
		r->cr = false;
	}
	if (!result && data < end) {
		r->cr = end[-1] == '\r';
		result = gather(r, data, (size_t)(end - data));
	}
	return result;
}

/* ---- $Id$ ---- */

/* To the stage that comes after this one. */
static int put(struct running *r, const char *data, size_t len)
{
	return r->c->out && r->c->lines ? add_crs(r, data, len) : gather(r, data, len);
}

static int put_held(struct running *r)
{
	const size_t n = r->n;

	r->n = 0;
	return n ? put(r, r->held, n) : 0;
}

static int put_id(struct running *r)
{
	char text[GIT_OID_HEXSZ + 16] = "$Id$";

	if (r->c->out)
		snprintf(text, sizeof(text), "$Id: %s $", r->c->id);
	r->n = 0;
	return put(r, text, strlen(text));
}

/* What is held, "$Id:...", is of another system of versions: it has spaces where git has none. */
static bool is_foreign(const struct running *r)
{
	const char *space = r->n > 5 ? memchr(r->held + 5, ' ', r->n - 5) : NULL;

	return r->c->out && space && space < r->held + r->n - 1;
}

/* BYTE comes after what is held. *again: it does not belong to that. */
static int hold(struct running *r, char byte, bool *again)
{
	static const char begin[] = "$Id:";

	*again = false;
	if (r->n == 3 && byte == '$' && r->c->out)
		return put_id(r);
	if (r->n >= 4 && byte == '$' && !is_foreign(r))
		return put_id(r);
	if (r->n < 4 ? byte != begin[r->n] : byte == '$' || byte == '\n' || r->n == HELD) {
		*again = true;
		return put_held(r);
	}
	r->held[r->n++] = byte;
	return 0;
}

static int replace_ids(struct running *r, const char *data, size_t len)
{
	const char *end = data + len;
	int result = 0;
	bool again;

	while (data < end && !result) {
		const char *dollar = r->n ? data : memchr(data, '$', (size_t)(end - data));

		if (!r->n)
			result = put(r, data, (size_t)((dollar ? dollar : end) - data));
		if (result || !dollar)
			break;
		data = dollar;
		result = hold(r, *data, &again);
		data += !again;
	}
	return result;
}

/* ---- line ends on the way in ---- */

static int after_lines(struct running *r, const char *data, size_t len)
{
	return r->c->ident ? replace_ids(r, data, len) : gather(r, data, len);
}

/* Of CR LF the CR goes; any other stays. */
static int drop_crs(struct running *r, const char *data, size_t len)
{
	const char *end = data + len, *cr;
	int result = 0;

	if (r->cr && len && *data != '\n')
		result = after_lines(r, "\r", 1);
	r->cr = r->cr && !len;
	while (!result && data < end && (cr = memchr(data, '\r', (size_t)(end - data)))) {
		result = after_lines(r, data, (size_t)(cr - data));
		data = cr + 1;
		r->cr = data == end;
		if (!result && data < end && *data != '\n')
			result = after_lines(r, "\r", 1);
	}
	return result || data == end ? result : after_lines(r, data, (size_t)(end - data));
}

/* ---- all of it ---- */

static int take(const char *data, size_t len, void *to)
{
	struct running *r = to;

	if (!r->c->out && r->c->lines)
		return drop_crs(r, data, len);
	return r->c->ident ? replace_ids(r, data, len) : put(r, data, len);
}

static int finish(struct running *r)
{
	int result = 0;

	if (r->cr && !r->c->out)
		result = after_lines(r, "\r", 1);
	if (!result)
		result = put_held(r);
	return result ? result : give(r);
}

int sbx_convert_run(const struct sbx_convert *c, sbx_convert_source fn, void *source,
                    sbx_convert_fn sink, void *to)
{
	_cleanup_free_ char *held = malloc(HELD), *ready = malloc(GATHERED);
	struct running r = {.c = c, .sink = sink, .to = to, .held = held, .ready = ready};
	struct encoding e = {.fn = sink, .to = to};
	const bool encoded = c->out && c->encoding[0];
	int result = held && ready ? 0 : -ENOMEM;

	if (!result && encoded) {
		result = sbx_encoder_open(&e.encoder, c->encoding, true);
		r.sink = encode_piece;
		r.to = &e;
	}
	if (!result)
		result = give_all(c, fn, source, take, &r);
	if (!result)
		result = finish(&r);
	if (!result && encoded)
		result = sbx_encoder_finish(&e.encoder, sink, to);
	if (encoded && r.to == &e)
		sbx_encoder_close(&e.encoder);
	return result;
}

static int add_length(const char *data, size_t len, void *to)
{
	(void)data;
	*(size_t *)to += len;
	return 0;
}

int sbx_convert_length(const struct sbx_convert *c, sbx_convert_source fn, void *source,
                       size_t *ret)
{
	*ret = 0;
	return sbx_convert_run(c, fn, source, add_length, ret);
}
