/*
 * The frames of an answer. Their bytes come to stand one behind the other in a single block, which
 * may move while it grows: so a frame is told where they are when all have been read.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "backends/remote/call.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/grow.h"

#define KINDS     "OESXCFMDNIT"
#define GZIP_BITS (15 + 16) /* of inflateInit2: the largest window, and a head as gzip makes it */
#define CHUNK     ((size_t)64 * 1024)
#define TEXT_MAX  (2 * REMOTE_REPLY_MAX) /* in hexadecimal */

struct reader {
	const char *at, *end; /* of the line */
	struct remote_reply *reply;
	size_t frames_cap, used, store_cap;
	char *packed; /* bytes that are to be inflated; as long as the text */
	size_t text_len;
};

void remote_reply_release(struct remote_reply *reply)
{
	free(reply->frames);
	free(reply->store);
	*reply = (struct remote_reply){0};
}

const struct remote_frame *remote_reply_next(const struct remote_reply *reply, size_t *at,
                                             enum remote_frame_kind kind, const char *word)
{
	while (*at < reply->n) {
		const struct remote_frame *f = &reply->frames[(*at)++];

		if (f->kind == kind && (!word || strcmp(f->word, word) == 0))
			return f;
	}
	return NULL;
}

int remote_reply_errno(const struct remote_frame *f)
{
	static const uint8_t known[] = {ENOENT,  EIO,    ENOEXEC, EACCES,     EBUSY,  EEXIST,
	                                ENOTDIR, ENOSPC, ESTALE,  EOPNOTSUPP, EDQUOT, EREMOTEIO};

	for (size_t i = 0; i < SBX_ARRAY_SIZE(known); i++)
		if (f->a == known[i])
			return known[i];
	return 0;
}

/* ---- bytes ---- */

/* Room for N bytes more in the store, and a NUL. */
static int reserve(struct reader *r, size_t n)
{
	size_t cap = r->store_cap ? r->store_cap : CHUNK;
	char *store;

	if (n > REMOTE_REPLY_MAX - r->used)
		return -EMSGSIZE;
	if (r->used + n < r->store_cap)
		return 0;
	while (cap <= r->used + n)
		cap *= 2;
	store = realloc(r->reply->store, cap);
	if (!store)
		return -ENOMEM;
	r->reply->store = store;
	r->store_cap = cap;
	return 0;
}

/* The value of a digit of base64; 64: it is none. */
static unsigned digit64(unsigned char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26u;
	if (c >= '0' && c <= '9')
		return c - '0' + 52u;
	return c == '+' ? 62 : c == '/' ? 63 : 64;
}

static int from_base64(const char *s, size_t n, char *out, size_t *len)
{
	char *const begin = out;
	unsigned bits = 0;

	if (n % 4)
		return -EPROTO;
	for (int pad = 0; pad < 2 && n && s[n - 1] == '='; pad++)
		n--;
	if (n % 4 == 1)
		return -EPROTO;
	for (size_t i = 0; i < n; i++) {
		const unsigned v = digit64((unsigned char)s[i]);

		if (v > 63)
			return -EPROTO;
		bits = bits << 6 | v;
		if (i % 4)
			*out++ = (char)(bits >> (6 - 2 * (i % 4)));
	}
	*len = (size_t)(out - begin);
	return 0;
}

/* 16: it is none. */
static unsigned digit16(char c)
{
	if (c >= '0' && c <= '9')
		return (unsigned)(c - '0');
	return c >= 'a' && c <= 'f' ? (unsigned)(c - 'a') + 10 : 16;
}

static int from_hex(const char *s, size_t n, char *out, size_t *len)
{
	if (n % 2)
		return -EPROTO;
	for (size_t i = 0; i < n; i += 2) {
		const unsigned high = digit16(s[i]), low = digit16(s[i + 1]);

		if (high > 15 || low > 15)
			return -EPROTO;
		*out++ = (char)(high << 4 | low);
	}
	*len = n / 2;
	return 0;
}

/* Appends to the store what the stream Z, whose input is set, becomes. */
static int inflate_all(struct reader *r, z_stream *z)
{
	int ret = Z_OK, e;

	while (ret != Z_STREAM_END) {
		/* A stream that ends exactly at the limit is told from one that goes on. */
		const size_t left = REMOTE_REPLY_MAX - r->used;

		e = reserve(r, left < CHUNK ? left : CHUNK);
		if (e)
			return e;
		z->next_out = (Bytef *)r->reply->store + r->used;
		z->avail_out = left < CHUNK ? (uInt)left : (uInt)CHUNK;
		ret = inflate(z, Z_NO_FLUSH);
		r->used = (size_t)((char *)z->next_out - r->reply->store);
		if (ret == Z_BUF_ERROR && !left)
			return -EMSGSIZE;
		if (ret != Z_OK && ret != Z_STREAM_END)
			return ret == Z_MEM_ERROR ? -ENOMEM : -EPROTO;
	}
	return z->avail_in ? -EPROTO : 0;
}

static int take_packed(struct reader *r, const char *packed, size_t n)
{
	z_stream z = {.next_in = (z_const Bytef *)packed, .avail_in = (uInt)n};
	int e;

	if (inflateInit2(&z, GZIP_BITS) != Z_OK)
		return -ENOMEM;
	e = inflate_all(r, &z);
	inflateEnd(&z);
	return e;
}

/* How the bytes of a frame stand in its line. */
struct form {
	bool packed, hex, plain;
};

static int decode(const struct form *form, const char *s, size_t n, char *out, size_t *len)
{
	if (form->plain) {
		memcpy(out, s, n);
		*len = n;
		return 0;
	}
	return form->hex ? from_hex(s, n, out, len) : from_base64(s, n, out, len);
}

/* Appends the bytes of the rest of the line, and a NUL. *LEN: how many these are. */
static int take_bytes(struct reader *r, const struct form *form, size_t *len)
{
	const size_t n = (size_t)(r->end - r->at), begin = r->used;
	size_t got = 0;
	int e;

	if (form->packed) {
		if (!r->packed)
			r->packed = malloc(r->text_len + 1);
		e = r->packed ? decode(form, r->at, n, r->packed, &got) : -ENOMEM;
		if (!e)
			e = take_packed(r, r->packed, got);
	} else {
		e = reserve(r, n);
		if (!e)
			e = decode(form, r->at, n, r->reply->store + r->used, &got);
		r->used += got;
	}
	if (!e)
		e = reserve(r, 1);
	if (e)
		return e;
	*len = r->used - begin;
	r->reply->store[r->used++] = '\0';
	return 0;
}

/* ---- lines ---- */

/* The next part of the line, up to a blank, which is passed. */
static const char *take_part(struct reader *r, size_t *n)
{
	const char *begin = r->at, *blank = memchr(begin, ' ', (size_t)(r->end - begin));

	r->at = blank ? blank + 1 : r->end;
	*n = (size_t)((blank ? blank : r->end) - begin);
	return begin;
}

static int take_number(struct reader *r, uint64_t *ret)
{
	size_t n;
	const char *s = take_part(r, &n);

	*ret = 0;
	for (size_t i = 0; i < n; i++)
		if (s[i] < '0' || s[i] > '9' || __builtin_mul_overflow(*ret, (uint64_t)10, ret) ||
		    __builtin_add_overflow(*ret, (uint64_t)(s[i] - '0'), ret))
			return -EPROTO;
	return n ? 0 : -EPROTO;
}

static int take_word(struct reader *r, struct remote_frame *f)
{
	size_t n;
	const char *s = take_part(r, &n);

	if (!n || n >= sizeof(f->word))
		return -EPROTO;
	for (size_t i = 0; i < n; i++)
		if (s[i] <= ' ' || s[i] > '~')
			return -EPROTO;
	if (n > 1 || *s != '-')
		memcpy(f->word, s, n);
	return 0;
}

static int take_kind(struct reader *r, struct remote_frame *f, struct form *form)
{
	size_t n;
	const char *s = take_part(r, &n);

	if (!n || !memchr(KINDS, *s, strlen(KINDS)))
		return -EPROTO;
	f->kind = (enum remote_frame_kind)(unsigned char)*s;
	for (size_t i = 1; i < n; i++) {
		form->packed |= s[i] == 'z';
		form->hex |= s[i] == 'h';
		form->plain |= s[i] == 't';
		if (!memchr("zht", s[i], 3))
			return -EPROTO;
	}
	return form->plain && (form->packed || form->hex) ? -EPROTO : 0;
}

static int take_line(struct reader *r)
{
	struct remote_reply *reply = r->reply;
	struct remote_frame f = {0};
	struct form form = {0};
	int e;

	if (reply->n >= REMOTE_FRAMES_MAX)
		return -EMSGSIZE;
	e = take_kind(r, &f, &form);
	if (!e)
		e = take_word(r, &f);
	if (!e)
		e = take_number(r, &f.a);
	if (!e)
		e = take_number(r, &f.b);
	if (!e)
		e = take_number(r, &f.c);
	if (!e)
		e = take_bytes(r, &form, &f.len);
	if (!e)
		e = SBX_GROW(reply->frames, reply->n, r->frames_cap, 8);
	if (e)
		return e;
	reply->frames[reply->n++] = f;
	return 0;
}

/* The length of what stands in front of the last line, which is "."; SIZE_MAX: it is another. */
static size_t length_of_frames(const char *text, size_t len)
{
	while (len && memchr(" \t\r\n", text[len - 1], 4))
		len--;
	if (!len || text[len - 1] != '.' || (len > 1 && text[len - 2] != '\n'))
		return SIZE_MAX;
	return len - 1;
}

bool remote_reply_whole(const char *text, size_t len)
{
	return length_of_frames(text, len) != SIZE_MAX;
}

static int take_lines(struct reader *r, const char *text, size_t len)
{
	const char *const end = text + len;
	int e = 0;

	while (text < end && !e) {
		const char *line = memchr(text, '\n', (size_t)(end - text));

		r->at = text;
		r->end = line ? line : end;
		text = line ? line + 1 : end;
		/* As a terminal would have it. */
		if (r->end > r->at && r->end[-1] == '\r')
			r->end--;
		if (r->end > r->at)
			e = take_line(r);
	}
	return e;
}

int remote_reply_read(const char *text, size_t len, struct remote_reply *ret, struct sbx_error *err)
{
	const size_t n = length_of_frames(text, len);
	struct reader r = {.reply = ret, .text_len = len};
	char *bytes;
	int e;

	*ret = (struct remote_reply){0};
	if (n == SIZE_MAX)
		return sbx_fail(err, EPROTO, "the answer of the machine was cut off");
	e = n > TEXT_MAX ? -EMSGSIZE : take_lines(&r, text, n);
	free(r.packed);
	bytes = ret->store;
	for (size_t i = 0; i < ret->n; i++) {
		ret->frames[i].bytes = bytes;
		bytes += ret->frames[i].len + 1;
	}
	if (!e)
		return 0;
	remote_reply_release(ret);
	if (e == -ENOMEM)
		return sbx_no_memory(err);
	if (e == -EMSGSIZE)
		return sbx_fail(err, EMSGSIZE, "the machine answers with more than is taken");
	return sbx_fail(err, EPROTO, "what the machine answers cannot be understood");
}
