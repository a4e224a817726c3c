#include "fs/util/name_status.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sandboxfs/cleanup.h"
#include "sandboxfs/strv.h"

static bool is_octal(const char *s, const char *end)
{
	return end - s >= 3 && s[0] >= '0' && s[0] <= '3' && s[1] >= '0' && s[1] <= '7' &&
	       s[2] >= '0' && s[2] <= '7';
}

/* One escape at S, which begins behind the backslash; returns where it ends. */
static const char *unescape(const char *s, const char *end, char *ret)
{
	if (is_octal(s, end)) {
		*ret = (char)((s[0] - '0') << 6 | (s[1] - '0') << 3 | (s[2] - '0'));
		return s + 3;
	}
	*ret = *s == 'n' ? '\n' : *s == 't' ? '\t' : *s;
	return s + 1;
}

/* NAME is in quotes, as git puts those with a quote, a backslash or a control character in them. */
static int add_quoted(const char *name, size_t len, struct sbx_strings *ret)
{
	const char *s = name + 1, *end = name + len;
	_cleanup_free_ char *buf = malloc(len);
	size_t n = 0;

	if (!buf)
		return -ENOMEM;
	while (s < end && *s != '"')
		if (*s == '\\' && s + 1 < end)
			s = unescape(s + 1, end, &buf[n++]);
		else
			buf[n++] = *s++;
	return sbx_strings_add_n(ret, buf, n);
}

static int add_name(const char *name, size_t len, struct sbx_strings *ret)
{
	return len && *name == '"' ? add_quoted(name, len, ret) : sbx_strings_add_n(ret, name, len);
}

/* The rest of a line behind the word: one path or (renamed) two. */
static int add_line(const char *line, const char *end, struct sbx_strings *ret)
{
	const char *tab = memchr(line, '\t', (size_t)(end - line));

	while (tab) {
		const char *name = tab + 1;

		tab = memchr(name, '\t', (size_t)(end - name));
		if (add_name(name, (size_t)((tab ? tab : end) - name), ret) < 0)
			return -ENOMEM;
	}
	return 0;
}

int sbx_names_read(const char *text, size_t len, struct sbx_strings *ret)
{
	const char *end;

	while ((end = memchr(text, '\n', len))) {
		if (add_line(text, end, ret) < 0)
			return -ENOMEM;
		len -= (size_t)(end + 1 - text);
		text = end + 1;
	}
	return 0;
}
