/* Remotes' URLs, GitHub's answers, and what is written to ctl/push: the first byte says which. */
#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/github/text.h"
#include "fs/job/request.h"
#include "fs/util/utf8.h"
#include "sandboxfs/github.h"
#include "sandboxfs/scrub.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_word(const char *word)
{
	assert(*word && *word != '.' && *word != '-');
	for (; *word; word++)
		assert(isalnum((unsigned char)*word) || strchr("._-", *word));
}

static void check_clone_url(const char *text, const char *api)
{
	char *url = NULL;
	int r = sbx_github_clone_url(text, api, &url, NULL);

	assert(r == 0 || r == -EINVAL);
	assert(r < 0 || (strncmp(url, "http", 4) == 0 && !strchr(url, '@')));
	free(url);
}

static void fuzz_url(const char *text)
{
	static const char *const apis[] = {SBX_GITHUB_API, "https://git.example.org/api/v3",
	                                   "http://127.0.0.1:8080", "https://", ""};
	struct sbx_github_repo repo;

	for (size_t i = 0; i < sizeof(apis) / sizeof(*apis); i++) {
		struct sbx_error err = SBX_ERROR_INIT;
		int r = sbx_github_parse(text, apis[i], &repo, &err);

		assert(r == -err.code && (r == 0 || r == -EINVAL));
		if (r == 0) {
			check_word(repo.owner);
			check_word(repo.name);
			check_clone_url(text, apis[i]);
		}
	}
}

static void fuzz_scrub(const char *text)
{
	char *copy = strdup(text);

	sbx_scrub(copy, "secret");
	assert(strlen(copy) <= strlen(text));
	assert(!strstr(copy, "secret") || strstr(copy, "***") || strstr(copy, "://"));
	free(copy);
}

static void fuzz_title(const char *text, size_t len)
{
	char *title = sbx_github_title("[harness]", text);
	size_t n = strlen(title);

	assert(sbx_utf8_span(text, len) < len || sbx_utf8_span(title, n) == n);
	for (const char *c = title; *c; c++)
		assert((unsigned char)*c >= 0x20);
	free(title);
}

static void fuzz_answer(const char *body, size_t len)
{
	struct sbx_error err = SBX_ERROR_INIT;
	char *value = NULL;

	if (sbx_github_member(body, len, "html_url", &value, &err) == 0) {
		assert(*value && !strchr(value, '\n'));
		free(value);
	} else {
		assert(err.code == EBADMSG && *err.text);
	}
	assert(sbx_github_refusal(422, body, len, &err) == -EINVAL && *err.text);
}

static void fuzz_request(const char *text, size_t len)
{
	struct sbx_request_parser whole, pieces;
	struct sbx_push_request req = {0};
	struct sbx_error err = SBX_ERROR_INIT;
	int n = 0, m = 0, r = 1;

	sbx_request_parser_init(&whole);
	if (sbx_request_parser_feed(&whole, text, len, &err) == 0)
		while ((r = sbx_push_parser_next(&whole, false, &req, &err)) == 1) {
			sbx_push_request_release(&req);
			n++;
		}
	assert(r == 0 || (r == -err.code && *err.text));
	sbx_request_parser_finish(&whole);
	if (r < 0)
		return;
	/* Byte by byte it is the same. */
	sbx_request_parser_init(&pieces);
	for (size_t i = 0; i < len; i++) {
		assert(sbx_request_parser_feed(&pieces, text + i, 1, &err) == 0);
		while ((r = sbx_push_parser_next(&pieces, false, &req, &err)) == 1) {
			sbx_push_request_release(&req);
			m++;
		}
		assert(r == 0);
	}
	assert(n == m);
	sbx_request_parser_finish(&pieces);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = size ? strndup((const char *)data + 1, size - 1) : strdup("");

	if (!text)
		abort();
	switch (size ? *data : 0) {
	case 'u':
		fuzz_url(text);
		fuzz_scrub(text);
		break;
	case 't':
		fuzz_title(text, strlen(text));
		break;
	case 'r':
		fuzz_request((const char *)data + 1, size - 1);
		break;
	default:
		fuzz_answer((const char *)data + (size > 0), size ? size - 1 : 0);
	}
	free(text);
	return 0;
}
