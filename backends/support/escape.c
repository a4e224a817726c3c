#include "backends/support/escape.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static char *put_percent(char *to, unsigned char c)
{
	static const char digits[] = "0123456789ABCDEF";

	*to++ = '%';
	*to++ = digits[c >> 4];
	*to++ = digits[c & 15];
	return to;
}

char *sbx_escape_percent(const char *text, const char *keep)
{
	char *escaped = malloc(3 * strlen(text) + 1), *to = escaped;

	if (!escaped)
		return NULL;
	for (; *text; text++) {
		const unsigned char c = (unsigned char)*text;

		if ((c < 0x80 && isalnum(c)) || strchr("-._~", c) || strchr(keep, c))
			*to++ = (char)c;
		else
			to = put_percent(to, c);
	}
	*to = '\0';
	return escaped;
}

char *sbx_put_octal(char *to, unsigned char c)
{
	*to++ = '\\';
	*to++ = (char)('0' + (c >> 6));
	*to++ = (char)('0' + (c >> 3 & 7));
	*to++ = (char)('0' + (c & 7));
	return to;
}
