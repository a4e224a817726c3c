/*
 * One table names each member of the record, so that writing and reading cannot drift apart.
 * Unknown members are ignored: an older daemon may meet a newer one's record.
 */
#include "backends/local/state/record.h"

#include <errno.h>
#include <json-c/json.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"

#define RECORD_MAX 65536

static const char *const state_words[] = {
        [SBX_RECORD_CREATING] = "creating",
        [SBX_RECORD_READY] = "ready",
        [SBX_RECORD_DELETING] = "deleting",
};

static const struct {
	const char *key;
	size_t offset;
	bool mandatory;
} texts[] = {
        {"id", offsetof(struct sbx_record, id), true},
        {"name", offsetof(struct sbx_record, name), true},
        {"kind", offsetof(struct sbx_record, kind), true},
        {"source", offsetof(struct sbx_record, source), false},
        {"common", offsetof(struct sbx_record, common), false},
        {"worktree", offsetof(struct sbx_record, worktree), false},
        {"branch", offsetof(struct sbx_record, branch), false},
        {"branch_wanted", offsetof(struct sbx_record, wanted), false},
        {"base", offsetof(struct sbx_record, base), false},
        {"layer", offsetof(struct sbx_record, layer), false},
        {"save", offsetof(struct sbx_record, save), false},
        {"head", offsetof(struct sbx_record, head), false},
};

static char **text_of(const struct sbx_record *rec, size_t i)
{
	return (char **)((char *)rec + texts[i].offset);
}

static void put_json(json_object **obj)
{
	json_object_put(*obj);
}

void sbx_record_release(struct sbx_record *rec)
{
	for (size_t i = 0; i < SBX_ARRAY_SIZE(texts); i++)
		free(*text_of(rec, i));
	*rec = (struct sbx_record){0};
}

static json_object *to_json(const struct sbx_record *rec)
{
	json_object *obj = json_object_new_object();

	json_object_object_add(obj, "state", json_object_new_string(state_words[rec->state]));
	for (size_t i = 0; i < SBX_ARRAY_SIZE(texts); i++)
		if (*text_of(rec, i))
			json_object_object_add(obj, texts[i].key,
			                       json_object_new_string(*text_of(rec, i)));
	json_object_object_add(obj, "branch_created", json_object_new_boolean(rec->branch_created));
	json_object_object_add(obj, "keep", json_object_new_boolean(rec->keep));
	json_object_object_add(obj, "created_ms", json_object_new_int64(rec->created_ms));
	json_object_object_add(obj, "removed_ms", json_object_new_int64(rec->removed_ms));
	json_object_object_add(obj, "disk_mb", json_object_new_int64(rec->disk_mb));
	json_object_object_add(obj, "skipped", json_object_new_int64(rec->skipped));
	if (rec->own_results >= 0)
		json_object_object_add(obj, "own_results", json_object_new_int64(rec->own_results));
	if (rec->included >= 0)
		json_object_object_add(obj, "included", json_object_new_int64(rec->included));
	return obj;
}

int sbx_record_store(int metafd, const struct sbx_record *rec)
{
	_cleanup_(put_json) json_object *obj = to_json(rec);
	_cleanup_free_ char *name = sbx_format("%s.json", rec->id);
	_cleanup_free_ char *temp = sbx_format("%s.tmp", rec->id);
	int (*replace)(int dirfd, const char *name, const char *to, const char *text);

	if (!obj || !name || !temp)
		return -ENOMEM;
	replace = rec->lasting ? sbx_file_replace : sbx_file_replace_soon;
	return replace(metafd, name, temp,
	               json_object_to_json_string_ext(obj, JSON_C_TO_STRING_PRETTY));
}

static int read_state(json_object *obj, enum sbx_record_state *ret)
{
	json_object *value;

	if (!json_object_object_get_ex(obj, "state", &value) ||
	    !json_object_is_type(value, json_type_string))
		return -EINVAL;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(state_words); i++)
		if (strcmp(json_object_get_string(value), state_words[i]) == 0) {
			*ret = (enum sbx_record_state)i;
			return 0;
		}
	return -EINVAL;
}

static int read_texts(json_object *obj, struct sbx_record *rec)
{
	for (size_t i = 0; i < SBX_ARRAY_SIZE(texts); i++) {
		json_object *value;

		if (!json_object_object_get_ex(obj, texts[i].key, &value)) {
			if (texts[i].mandatory)
				return -EINVAL;
			continue;
		}
		if (!json_object_is_type(value, json_type_string))
			return -EINVAL;
		*text_of(rec, i) = strdup(json_object_get_string(value));
		if (!*text_of(rec, i))
			return -ENOMEM;
	}
	return 0;
}

static int64_t read_number(json_object *obj, const char *key)
{
	json_object *value;

	return json_object_object_get_ex(obj, key, &value) ? json_object_get_int64(value) : 0;
}

static int from_json(json_object *obj, struct sbx_record *rec)
{
	json_object *value;
	int r;

	if (!json_object_is_type(obj, json_type_object))
		return -EINVAL;
	r = read_state(obj, &rec->state);
	if (!r)
		r = read_texts(obj, rec);
	if (r)
		return r;
	if (json_object_object_get_ex(obj, "branch_created", &value))
		rec->branch_created = json_object_get_boolean(value);
	if (json_object_object_get_ex(obj, "keep", &value))
		rec->keep = json_object_get_boolean(value);
	rec->created_ms = read_number(obj, "created_ms");
	rec->removed_ms = read_number(obj, "removed_ms");
	rec->skipped = read_number(obj, "skipped");
	rec->disk_mb = read_number(obj, "disk_mb");
	rec->own_results = json_object_object_get_ex(obj, "own_results", &value)
	                           ? json_object_get_int64(value)
	                           : -1;
	rec->included = json_object_object_get_ex(obj, "included", &value)
	                        ? json_object_get_int64(value)
	                        : -1;
	return 0;
}

static bool names_file(const struct sbx_record *rec, const char *file)
{
	size_t n = strlen(rec->id);

	return n > 0 && !strchr(rec->id, '/') && strncmp(file, rec->id, n) == 0 &&
	       strcmp(file + n, ".json") == 0;
}

int sbx_record_load(int metafd, const char *file, struct sbx_record *ret)
{
	_cleanup_free_ char *text = NULL;
	_cleanup_(put_json) json_object *obj = NULL;
	_cleanup_(sbx_record_release) struct sbx_record rec = {0};
	int r = sbx_file_read(metafd, file, RECORD_MAX, &text);

	if (r)
		return r;
	obj = json_tokener_parse(text);
	r = from_json(obj, &rec);
	if (r)
		return r;
	if (!names_file(&rec, file) || (rec.worktree && strchr(rec.worktree, '/')) ||
	    (rec.layer && strchr(rec.layer, '/')))
		return -EINVAL;
	rec.lasting = true;
	*ret = rec;
	rec = (struct sbx_record){0};
	return 0;
}

int sbx_record_unlink(int metafd, const char *id)
{
	_cleanup_free_ char *name = sbx_format("%s.json", id);

	if (!name)
		return -ENOMEM;
	return unlinkat(metafd, name, 0) < 0 && errno != ENOENT ? -errno : 0;
}
