/* The input as what a machine answers. */
#undef NDEBUG /* the assertions are the test */
#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "backends/remote/call.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct remote_reply *reply)
{
	const char *bytes = reply->store;

	assert(reply->n <= REMOTE_FRAMES_MAX);
	for (size_t i = 0; i < reply->n; i++) {
		const struct remote_frame *f = &reply->frames[i];
		size_t at = i;

		assert(f->bytes == bytes && f->bytes[f->len] == '\0');
		assert(strlen(f->word) < sizeof(f->word) && !strpbrk(f->word, " \n"));
		assert(remote_reply_next(reply, &at, f->kind, f->word) == f && at == i + 1);
		bytes += f->len + 1;
	}
	assert((size_t)(bytes - reply->store) <= REMOTE_REPLY_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sbx_error err = SBX_ERROR_INIT;
	struct remote_reply reply;
	const int r = remote_reply_read((const char *)data, size, &reply, &err);

	assert(!r || r == -EPROTO || r == -EMSGSIZE);
	assert(err.code == -r && !r == !*err.text);
	if (r)
		assert(!reply.frames && !reply.store && !reply.n);
	else
		check(&reply);
	if (!remote_reply_whole((const char *)data, size))
		assert(r == -EPROTO);
	remote_reply_release(&reply);
	return 0;
}
