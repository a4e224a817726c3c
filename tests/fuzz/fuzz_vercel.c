/* Answers of Vercel, and URLs of sources: the first byte says which. */
#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "backends/vercel/vercel_impl.h"

#define MOST 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int take(struct vercel_stream *st, const char *text, size_t len, size_t piece)
{
	int r = 0;

	for (size_t i = 0; !r && i < len; i += piece)
		r = vercel_stream_take(st, text + i, len - i < piece ? len - i : piece);
	assert(r == 0 || r == -EPROTO || r == -EMSGSIZE);
	assert(st->len <= MOST && (!st->out || st->out[st->len] == '\0'));
	assert(!*st->command || vercel_is_word(st->command, sizeof(st->command) - 1));
	return r;
}

/* Byte by byte it is the same. */
static void fuzz_stream(const char *text, size_t len)
{
	struct vercel_stream whole = {.most = MOST}, pieces = {.most = MOST};

	assert(take(&whole, text, len, len ? len : 1) == take(&pieces, text, len, 1));
	assert(whole.len == pieces.len && whole.ended == pieces.ended);
	assert(vercel_stream_is_whole(&whole) == vercel_stream_is_whole(&pieces));
	vercel_stream_release(&whole);
	vercel_stream_release(&pieces);
}

static void fuzz_box(const char *text, size_t len)
{
	struct vercel v = {0};
	struct json_object *obj = sbx_object_read(text, len);
	struct vercel_box box;

	if (obj && vercel_box_read(&v, obj, &box, NULL) == 0) {
		assert(vercel_is_word(box.name, 131));
		assert(!*box.session || (*box.cwd == '/' && !strchr(box.cwd, '\n')));
		assert(box.net != VERCEL_NET_RIGHT || box.net_later <= VERCEL_NET_WRONG);
	}
	json_object_put(obj);
}

static void fuzz_refusal(char *text, size_t len)
{
	const struct vercel v = {.token.variable = "VERCEL_TOKEN"};
	const struct sbx_http_answer answer = {.status = 400, .body = text, .len = len};
	struct sbx_error err = {.code = EINVAL};
	struct vercel_said said;

	assert(vercel_refused(&v, &answer, &said, &err) == -err.code && err.code > 0);
	assert(strlen(err.text) < 512 && !strchr(err.text, '\n'));
}

static void fuzz_source(const char *text)
{
	struct vercel_source source;

	if (vercel_source_parse(text, "https://api.github.com", &source, NULL) == 0)
		assert(strncasecmp(source.url, "https://", 8) == 0 && *source.host);
	vercel_source_release(&source);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const size_t len = size ? size - 1 : 0;
	char *text = malloc(len + 1);

	if (!text)
		abort();
	if (len)
		memcpy(text, data + 1, len);
	text[len] = '\0';
	switch (size ? *data : 0) {
	case 'b':
		fuzz_box(text, len);
		break;
	case 'r':
		fuzz_refusal(text, len);
		break;
	case 'u':
		fuzz_source(text);
		break;
	default:
		fuzz_stream(text, len);
	}
	free(text);
	return 0;
}
