/*
 * The first byte chooses the parser and the size of the pieces, the rest is what a client writes.
 * JSON must mean the same however it is cut.
 */
#undef NDEBUG /* the assertions are the test */
#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fs/job/request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_request(const struct sbx_request *req)
{
	assert(req->argv && req->argv[0] && req->argv[0][0]);
	for (char **e = req->env; e && *e; e++)
		assert(strchr(*e, '=') && sbx_env_key_check(*e, strcspn(*e, "="), NULL) == 0);
	assert(!req->id || sbx_job_id_check(req->id, NULL) == 0);
	assert(req->timeout_ms <= SBX_NUMBER_MAX);
	assert(!req->stdin_data || strlen(req->stdin_data) == req->stdin_len);
}

static int take_command(struct sbx_request_parser *p, bool final)
{
	struct sbx_request req = {0};
	struct sbx_error err = SBX_ERROR_INIT;
	int r = sbx_request_parser_next(p, final, &req, &err);

	assert(r == 1 || (r == 0 && !err.code) || (r == -err.code && err.text[0]));
	if (r == 1)
		check_request(&req);
	else
		assert(!req.argv);
	sbx_request_release(&req);
	return r;
}

static int take_create(struct sbx_request_parser *p, bool final)
{
	struct sbx_create_request req = {0};
	struct sbx_error err = SBX_ERROR_INIT;
	int r = sbx_create_parser_next(p, final, &req, &err);

	assert(r == 1 || (r == 0 && !err.code) || (r == -err.code && err.text[0]));
	assert((r == 1) == (req.name && *req.name));
	sbx_create_request_release(&req);
	return r;
}

/* A number that tells apart what came of the bytes: requests, and how it ended. */
static int run(const uint8_t *data, size_t size, size_t piece, bool create)
{
	int (*take)(struct sbx_request_parser *, bool) = create ? take_create : take_command;
	struct sbx_request_parser p;
	int count = 0, r = 0;

	sbx_request_parser_init(&p);
	for (size_t at = 0; r >= 0 && at < size; at += piece) {
		size_t n = size - at < piece ? size - at : piece;

		r = sbx_request_parser_feed(&p, data + at, n, NULL);
		while (r >= 0 && (r = take(&p, false)) == 1)
			count++;
	}
	while (r >= 0 && (r = take(&p, true)) == 1)
		count++;
	assert(!sbx_request_parser_pending(&p));
	sbx_request_parser_finish(&p);
	return 2 * count + (r < 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	bool create, cut_matters;
	int whole, pieces;

	if (size < 1)
		return 0;
	create = data[0] & 1;
	whole = run(data + 1, size - 1, size, create);
	pieces = run(data + 1, size - 1, (data[0] >> 1) + 1u, create);
	/* NUL-separated requests end with a piece, and JSON may be followed by more in the next. */
	cut_matters = memchr(data + 1, '\0', size - 1) || memchr(data + 1, '}', size - 1) ||
	              memchr(data + 1, ']', size - 1);
	assert(cut_matters || whole == pieces);
	return 0;
}
