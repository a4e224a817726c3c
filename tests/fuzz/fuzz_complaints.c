/* The whole input is what a command wrote to stderr. */
#undef NDEBUG /* the assertions are the test */
#include <assert.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fs/log/complaints.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct sbx_complaint *c, const char *text, size_t size)
{
	assert(c->name >= text && c->name + strlen(c->name) <= text + size);
	for (const char *p = c->name; *p; p++)
		assert((unsigned char)*p >= ' ');
	if (c->kind == SBX_COMPLAINT_PROGRAM) {
		assert(*c->name && !strchr(c->name, '/'));
		return;
	}
	assert(c->name[0] == '/' && c->name[1] && strlen(c->name) < PATH_MAX);
	assert(!strstr(c->name, "//") && !strstr(c->name, "/../") && !strstr(c->name, "/./"));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sbx_complaints complaints;
	char *text = malloc(size + 1);

	if (!text)
		return 0;
	memcpy(text, data, size);
	text[size] = '\0';
	sbx_complaints_read(text, size, &complaints);
	assert(complaints.n <= SBX_COMPLAINTS_MAX);
	for (size_t i = 0; i < complaints.n; i++)
		check(&complaints.all[i], text, size);
	free(text);
	return 0;
}
