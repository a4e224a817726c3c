/* The whole input as a configuration file, then each of its lines as a word of -o. */
#undef NDEBUG /* the assertions are the test */
#include <assert.h>
#include <json-c/json.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fs/config/options.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct sbx_settings *settings)
{
	struct json_object *obj = sbx_settings_json(settings);

	assert(obj && json_object_to_json_string(obj));
	assert(settings->backend && settings->path && settings->ctl_name);
	json_object_put(obj);
}

static void set_lines(struct sbx_settings *settings, char *text)
{
	for (char *save, *line = strtok_r(text, "\n", &save); line;
	     line = strtok_r(NULL, "\n", &save)) {
		char *value = strchr(line, '=');
		struct sbx_error err = SBX_ERROR_INIT;
		int r;

		if (value)
			*value++ = '\0';
		r = sbx_settings_set(settings, line, value, &err);
		assert(r == -err.code && (r == 0 || err.text[0]));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = strndup((const char *)data, size);
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_settings settings;
	int r;

	if (!text || sbx_settings_defaults(&settings) < 0)
		abort();
	r = sbx_settings_load(&settings, (const char *)data, size, &err);
	assert(r == -err.code && (r == 0 || err.text[0]));
	check(&settings);
	set_lines(&settings, text);
	check(&settings);
	sbx_settings_release(&settings);
	free(text);
	return 0;
}
