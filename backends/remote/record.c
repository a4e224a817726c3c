/*
 * One table names each member of the record, so that writing and reading cannot drift apart.
 * Unknown members are ignored, because an older daemon may meet a newer one's record.
 */
#include "backends/remote/record.h"

#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"

#define RECORD_MAX ((size_t)64 * 1024)

static const char file[] = "record.json", leaving_file[] = "leaving.json";

static const char *const phases[] = {
        [REMOTE_PHASE_CREATING] = "creating",
        [REMOTE_PHASE_UP] = "up",
        [REMOTE_PHASE_FAILED] = "failed",
        [REMOTE_PHASE_LEAVING] = "leaving",
};

static const struct {
	const char *key;
	size_t offset;
	bool mandatory;
} texts[] = {
        {"id", offsetof(struct remote_record, id), true},
        {"name", offsetof(struct remote_record, name), true},
        {"machine", offsetof(struct remote_record, machine), true},
        {"handle", offsetof(struct remote_record, handle), false},
        {"source", offsetof(struct remote_record, source), false},
        {"base", offsetof(struct remote_record, base), false},
        {"branch", offsetof(struct remote_record, branch), false},
        {"fork", offsetof(struct remote_record, fork), false},
        {"reason", offsetof(struct remote_record, reason), false},
};

static char **text_of(const struct remote_record *rec, size_t i)
{
	return (char **)((char *)(uintptr_t)rec + texts[i].offset);
}

static void put_json(json_object **obj)
{
	json_object_put(*obj);
}

void remote_record_release(struct remote_record *rec)
{
	for (size_t i = 0; i < SBX_ARRAY_SIZE(texts); i++)
		free(*text_of(rec, i));
	*rec = (struct remote_record){0};
}

int remote_record_store(int dir, const struct remote_record *rec)
{
	_cleanup_(put_json) json_object *obj = json_object_new_object();

	json_object_object_add(obj, "phase", json_object_new_string(phases[rec->phase]));
	json_object_object_add(obj, "created_ms", json_object_new_int64(rec->created_ms));
	for (size_t i = 0; i < SBX_ARRAY_SIZE(texts); i++)
		if (*text_of(rec, i))
			json_object_object_add(obj, texts[i].key,
			                       json_object_new_string(*text_of(rec, i)));
	return sbx_file_replace(dir, rec->phase == REMOTE_PHASE_LEAVING ? leaving_file : file,
	                        "record.tmp",
	                        json_object_to_json_string_ext(obj, JSON_C_TO_STRING_PRETTY));
}

int remote_record_leave(int dir)
{
	if (renameat(dir, file, dir, leaving_file) < 0 &&
	    (errno != ENOENT || faccessat(dir, leaving_file, F_OK, 0) < 0))
		return -errno;
	return 0;
}

static const char *string_of(json_object *obj, const char *key)
{
	json_object *value;

	return json_object_object_get_ex(obj, key, &value) &&
	                       json_object_is_type(value, json_type_string)
	               ? json_object_get_string(value)
	               : NULL;
}

static int read_phase(json_object *obj, enum remote_phase *ret)
{
	const char *word = string_of(obj, "phase");

	for (size_t i = 0; word && i < SBX_ARRAY_SIZE(phases); i++)
		if (strcmp(word, phases[i]) == 0) {
			*ret = (enum remote_phase)i;
			return 0;
		}
	return -EINVAL;
}

static int read_members(json_object *obj, struct remote_record *rec)
{
	json_object *value;
	int r = read_phase(obj, &rec->phase);

	for (size_t i = 0; r == 0 && i < SBX_ARRAY_SIZE(texts); i++) {
		const char *text = string_of(obj, texts[i].key);

		if (!text && texts[i].mandatory)
			return -EINVAL;
		*text_of(rec, i) = text ? strdup(text) : NULL;
		if (text && !*text_of(rec, i))
			return -ENOMEM;
	}
	if (json_object_object_get_ex(obj, "created_ms", &value))
		rec->created_ms = json_object_get_int64(value);
	return r;
}

int remote_record_load(int dir, struct remote_record *ret)
{
	_cleanup_(remote_record_release) struct remote_record rec = {0};
	_cleanup_(put_json) json_object *obj = NULL;
	_cleanup_free_ char *text = NULL;
	bool leaving = false;
	int r = sbx_file_read(dir, file, RECORD_MAX, &text);

	if (r == -ENOENT) {
		leaving = true;
		r = sbx_file_read(dir, leaving_file, RECORD_MAX, &text);
	}
	if (r < 0)
		return r;
	obj = json_tokener_parse(text);
	if (!json_object_is_type(obj, json_type_object))
		return -EINVAL;
	r = read_members(obj, &rec);
	if (r < 0)
		return r;
	if (leaving)
		rec.phase = REMOTE_PHASE_LEAVING;
	*ret = rec;
	rec = (struct remote_record){0};
	return 0;
}
