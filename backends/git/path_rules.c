/*
 * The spellings are those that git itself refuses (core.protectNTFS, core.protectHFS), whatever the
 * source's configuration says: the files may be copied to another file system later.
 */
#include "backends/git/path_rules.h"

#include <string.h>
#include <strings.h>

/* After ".git" or "git~1": NTFS drops trailing dots and spaces, and a colon begins a stream. */
static bool ends_for_ntfs(const char *rest, size_t n)
{
	for (; n; rest++, n--) {
		if (*rest == ':')
			return true;
		if (*rest != '.' && *rest != ' ')
			return false;
	}
	return true;
}

static bool is_ntfs_dotgit(const char *name, size_t n)
{
	if (n >= 4 && strncasecmp(name, ".git", 4) == 0 && ends_for_ntfs(name + 4, n - 4))
		return true;
	return n >= 5 && strncasecmp(name, "git~1", 5) == 0 && ends_for_ntfs(name + 5, n - 5);
}

/* Bytes of a code point that HFS+ ignores when it compares: U+200C..F, U+202A..E, U+206A..F,
 * U+FEFF. */
static size_t ignored(const unsigned char *p, size_t n)
{
	if (n < 3)
		return 0;
	if (p[0] == 0xe2 && p[1] == 0x80)
		return (p[2] >= 0x8c && p[2] <= 0x8f) || (p[2] >= 0xaa && p[2] <= 0xae) ? 3 : 0;
	if (p[0] == 0xe2 && p[1] == 0x81)
		return p[2] >= 0xaa && p[2] <= 0xaf ? 3 : 0;
	return p[0] == 0xef && p[1] == 0xbb && p[2] == 0xbf ? 3 : 0;
}

static bool is_hfs_dotgit(const char *name, size_t n)
{
	char plain[5];
	size_t have = 0;

	for (size_t at = 0; at < n;) {
		size_t skip = ignored((const unsigned char *)name + at, n - at);

		if (!skip && have == sizeof(plain))
			return false;
		if (!skip)
			plain[have++] = name[at];
		at += skip ? skip : 1;
	}
	return have == 4 && strncasecmp(plain, ".git", 4) == 0;
}

static bool is_dots(const char *name, size_t n)
{
	return (n == 1 && name[0] == '.') || (n == 2 && name[0] == '.' && name[1] == '.');
}

/* Nearly all names are: nothing in them, and nothing that they begin with, needs a closer look. */
static bool is_plain(const char *name, size_t n)
{
	const unsigned char first = n ? (unsigned char)name[0] : '.';

	return first != '.' && first != 'g' && first != 'G' && first < 0x80 &&
	       !memchr(name, '\\', n) && !memchr(name, '/', n) && !memchr(name, '\0', n);
}

bool sbx_git_component_ok(const char *name, size_t n)
{
	size_t begin = 0;

	if (is_plain(name, n))
		return true;
	if (!n || is_dots(name, n) || memchr(name, '/', n) || memchr(name, '\0', n) ||
	    is_hfs_dotgit(name, n))
		return false;
	/* To Windows a backslash separates as well. */
	for (size_t at = 0; at <= n; at++) {
		if (at < n && name[at] != '\\')
			continue;
		if (is_ntfs_dotgit(name + begin, at - begin) || is_dots(name + begin, at - begin))
			return false;
		begin = at + 1;
	}
	return true;
}

bool sbx_git_path_ok(const char *path, size_t n)
{
	size_t begin = 0;

	for (size_t at = 0; at <= n; at++) {
		if (at < n && path[at] != '/')
			continue;
		if (!sbx_git_component_ok(path + begin, at - begin))
			return false;
		begin = at + 1;
	}
	return true;
}
