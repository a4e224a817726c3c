/* The input as a list of hosts, as a host, and as what a client sends to the proxy. */
#undef NDEBUG /* the assertions are the test */
#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "fs/net/http_head.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What was read is read again as the same, in the form in which it is told to others. */
static void check_target(const struct sbx_target *target)
{
	const bool v6 = target->literal && strchr(target->host, ':');
	struct sbx_target again;
	char text[SBX_HOST_MAX + 16];
	int n = snprintf(text, sizeof(text), "%s%s%s:%u", v6 ? "[" : "", target->host,
	                 v6 ? "]" : "", target->port);

	assert(n > 0 && target->port);
	assert(!strpbrk(target->host, "/@%\\ \r\n"));
	assert(sbx_target_parse(text, (size_t)n, 0, &again) == 0);
	assert(strcmp(again.host, target->host) == 0 && again.port == target->port &&
	       again.literal == target->literal);
}

static void try_list(const char *text, const struct sbx_target *target)
{
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_hosts *hosts;

	if (sbx_hosts_parse(text, &hosts, &err) < 0) {
		assert(err.code && err.text[0]);
		return;
	}
	if (target)
		sbx_hosts_reach(hosts, target);
	sbx_hosts_free(hosts);
}

static const char *end_of_line(const char *p, const char *end)
{
	return memmem(p, (size_t)(end - p), "\r\n", 2);
}

/* One Host, and it is the one that was checked; the head ends where it should. */
static void check_rewritten(const struct sbx_head *head, const char *buf, size_t len)
{
	unsigned hosts = 0;

	assert(sbx_head_length(buf, len) == len);
	for (const char *p = buf; p < buf + len; p = end_of_line(p, buf + len) + 2) {
		if (strncasecmp(p, "Host:", 5) == 0) {
			const char *host = p + 6 + (p[6] == '[');

			hosts++;
			assert(strncmp(host, head->target.host, strlen(head->target.host)) == 0);
		}
	}
	assert(hosts == 1);
}

static void try_head(const char *text, size_t size)
{
	static char out[SBX_HEAD_MAX + 512];
	struct sbx_head head = {0};
	size_t len = sbx_head_length(text, size);
	int status = len ? sbx_head_parse(text, len, &head) : 400;

	assert(len <= size);
	assert(status == 0 || status == 400 || status == 403 || status == 501);
	if (status)
		return;
	check_target(&head.target);
	len = head.connect ? 0 : sbx_head_rewrite(&head, out, sizeof(out));
	if (len)
		check_rewritten(&head, out, len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1); /* exactly: what is read beyond it is noticed */
	struct sbx_target target;
	int r;

	if (!text)
		abort();
	memcpy(text, data, size);
	text[size] = '\0';
	r = sbx_target_parse(text, size, 80, &target);
	assert(r == 0 || r == -EINVAL);
	if (!r)
		check_target(&target);
	try_list(text, r ? NULL : &target);
	try_head(text, size);
	free(text);
	return 0;
}
