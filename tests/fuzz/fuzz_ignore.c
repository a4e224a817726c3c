/* Lines of patterns, up to a NUL byte; then a path. A pattern that escapes the whole path matches
 * it. */
#undef NDEBUG /* the assertions are the test */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "backends/git/gitignore.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* "/" and PATH with a backslash before each byte. */
static char *escaped(const char *path)
{
	char *text = malloc(2 * strlen(path) + 2), *p = text;

	if (!text)
		abort();
	*p++ = '/';
	for (; *path; path++) {
		*p++ = '\\';
		*p++ = *path;
	}
	*p = '\0';
	return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t len = strnlen((const char *)data, size);
	char *path =
	        len < size ? strndup((const char *)data + len + 1, size - len - 1) : strdup("a");
	char *literal;

	if (!path)
		abort();
	literal = escaped(path);
	for (int icase = 0; icase < 2; icase++) {
		struct sbx_ignore *ig;

		assert(sbx_ignore_new(icase, &ig) == 0);
		assert(sbx_ignore_push(ig, "", (const char *)data, len) == 0);
		sbx_ignore_match(ig, path, false);
		sbx_ignore_match(ig, path, true);
		assert(sbx_ignore_push(ig, "", literal, strlen(literal)) == 0);
		if (!icase && path[0] && path[strlen(path) - 1] != '/' && !strchr(path, '\n') &&
		    path[strlen(path) - 1] != '\r')
			assert(sbx_ignore_match(ig, path, false));
		sbx_ignore_pop(ig);
		sbx_ignore_free(ig);
	}
	free(literal);
	free(path);
	return 0;
}
