#include "backends/support/members.h"

#include <math.h>
#include <stdint.h>

#define DEPTH 32

void sbx_object_cleanup(struct json_object **obj)
{
	json_object_put(*obj);
}

struct json_object *sbx_object_read(const char *text, size_t len)
{
	struct json_tokener *tok = text && len <= INT32_MAX ? json_tokener_new_ex(DEPTH) : NULL;
	struct json_object *obj = NULL;

	if (tok) {
		obj = json_tokener_parse_ex(tok, text, (int)len);
		json_tokener_free(tok);
	}
	if (obj && !json_object_is_type(obj, json_type_object)) {
		json_object_put(obj);
		obj = NULL;
	}
	return obj;
}

const char *sbx_object_text(struct json_object *obj, size_t *len)
{
	return json_object_to_json_string_length(
	        obj, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE, len);
}

struct json_object *sbx_member(struct json_object *obj, const char *key, enum json_type type)
{
	struct json_object *value;

	return obj && json_object_object_get_ex(obj, key, &value) &&
	                       json_object_is_type(value, type)
	               ? value
	               : NULL;
}

const char *sbx_member_text(struct json_object *obj, const char *key)
{
	struct json_object *value = sbx_member(obj, key, json_type_string);

	return value ? json_object_get_string(value) : "";
}

double sbx_member_number(struct json_object *obj, const char *key)
{
	struct json_object *value = sbx_member(obj, key, json_type_int);
	double number;

	if (!value)
		value = sbx_member(obj, key, json_type_double);
	number = value ? json_object_get_double(value) : 0;
	return isfinite(number) ? number : 0;
}

bool sbx_member_flag(struct json_object *obj, const char *key)
{
	struct json_object *value = sbx_member(obj, key, json_type_boolean);

	return value && json_object_get_boolean(value);
}

void sbx_member_add(struct json_object *obj, const char *key, const char *value)
{
	if (value)
		json_object_object_add(obj, key, json_object_new_string(value));
}
