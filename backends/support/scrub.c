#include "sandboxfs/scrub.h"

#include <string.h>

#define SECRET_MIN 6 /* bytes; what is shorter is in every text */

size_t sbx_scrub_bytes(char *data, size_t len, const char *secret)
{
	const size_t n = secret ? strlen(secret) : 0, stars = strlen("***");
	char *at = data, *end = data + len;

	while (n >= SECRET_MIN && (at = memmem(at, (size_t)(end - at), secret, n))) {
		memset(at, '*', stars);
		memmove(at + stars, at + n, (size_t)(end - at) - n);
		at += stars;
		end -= n - stars;
	}
	return (size_t)(end - data);
}

/* A password may hold an @ that ought to be escaped: the last one before the path counts. */
static void hide_user(char *authority)
{
	const size_t n = strcspn(authority, "/?# \t\r\n'\"");
	const char *at = memrchr(authority, '@', n);

	if (at)
		memmove(authority, at + 1, strlen(at + 1) + 1);
}

void sbx_scrub(char *text, const char *secret)
{
	sbx_scrub_bytes(text, strlen(text) + 1, secret);
	for (char *at = text; (at = strstr(at, "://"));) {
		at += strlen("://");
		hide_user(at);
	}
}
