#include "sandboxfs/scrub.h"

#include <string.h>

#define SECRET_MIN 6 /* bytes; what is shorter is in every text */

static void hide(char *text, const char *secret)
{
	const size_t n = strlen(secret), stars = n < 3 ? n : 3;

	for (char *at = text; n && (at = strstr(at, secret)); at += stars) {
		memset(at, '*', stars);
		memmove(at + stars, at + n, strlen(at + n) + 1);
	}
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
	if (secret && strlen(secret) >= SECRET_MIN)
		hide(text, secret);
	for (char *at = text; (at = strstr(at, "://"));) {
		at += strlen("://");
		hide_user(at);
	}
}
