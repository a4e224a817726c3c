#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <time.h>

#include "backends/support/http_impl.h"

#define PAUSE_MAX_MS 10000
#define AFTER_MAX_S  86400 /* whoever asks for more is not waited for */

static bool is_passing_status(long status)
{
	return status == 500 || status == 502 || status == 503 || status == 504;
}

static bool is_passing_failure(int code)
{
	return code == -ECONNREFUSED || code == -ENETUNREACH || code == -ETIMEDOUT ||
	       code == -EREMOTEIO;
}

bool sbx_http_may_repeat(const struct sbx_http_failure *f)
{
	if (f->repeat == SBX_HTTP_NEVER)
		return false;
	if (f->status == 429)
		return true;
	if (f->repeat == SBX_HTTP_UNSENT && f->sent)
		return false;
	return f->status ? is_passing_status(f->status) : is_passing_failure(f->code);
}

/* VALUE is a number of seconds, or a date. */
static uint64_t seconds_of(const char *value, size_t len)
{
	char text[64];
	time_t then;
	double s;

	snprintf(text, sizeof(text), "%.*s", (int)(len < sizeof(text) ? len : 0), value);
	if (isdigit((unsigned char)*text)) {
		s = strtod(text, NULL);
	} else {
		then = curl_getdate(text, NULL);
		s = then == -1 ? 0 : difftime(then, time(NULL));
	}
	return s <= 0 ? 0 : s < AFTER_MAX_S ? (uint64_t)(s + 0.999) : AFTER_MAX_S;
}

/* The longest of all that are asked for. */
static void look_at(const char *name, size_t name_len, const char *value, size_t len, void *data)
{
	const size_t n = strlen("Retry-After");
	uint64_t *ms = data, asked;

	if (name_len < n || strncasecmp(name, "Retry-After", n) != 0 ||
	    (name_len > n && name[n] != '-'))
		return;
	asked = seconds_of(value, len) * 1000;
	if (asked > *ms)
		*ms = asked;
}

uint64_t sbx_http_retry_after_ms(const struct sbx_http_answer *answer)
{
	uint64_t ms = 0;

	sbx_http_each_header(answer, look_at, &ms);
	return ms;
}

/* Up to N, so that those who failed together do not come together again. */
static uint64_t jitter(uint64_t n)
{
	uint32_t some = 0;

	if (getrandom(&some, sizeof(some), GRND_NONBLOCK) < 0)
		some = UINT32_MAX / 2;
	return n * some / UINT32_MAX;
}

uint64_t sbx_http_pause_ms(unsigned n, uint64_t least_ms, uint64_t after_ms)
{
	uint64_t ms = n < 16 ? least_ms << n : PAUSE_MAX_MS;

	if (after_ms)
		return after_ms + jitter(least_ms);
	if (ms > PAUSE_MAX_MS)
		ms = PAUSE_MAX_MS;
	return ms + jitter(ms);
}
