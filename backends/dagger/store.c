/*
 * The records of machines: STATE/dagger/NAME says which container the machine NAME is by now, and
 * is written again after each run, before anyone hears of its end. STATE/dagger/NAME.d has what is
 * on its way to the engine, and what was saved of it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/dagger/dagger_impl.h"
#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/tree.h"

#define KEPT_MAX ((size_t)64 * 1024 * 1024) /* an id that is a recipe grows with each step */

bool dagger_name_ok(const char *name)
{
	const size_t n = strlen(name);

	return n && n <= DAGGER_NAME_MAX &&
	       strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == n;
}

void dagger_kept_release(struct dagger_kept *kept)
{
	free(kept->id);
	free(kept->label);
	free(kept->owner);
	free(kept->saved);
	free(kept->mark);
	free(kept->needs);
	*kept = (struct dagger_kept){0};
}

int dagger_name_check(const char *name, struct sbx_error *err)
{
	return dagger_name_ok(name)
	               ? 0
	               : sbx_fail(err, EINVAL, "the record names no sandbox of Dagger's");
}

static void add(struct json_object *obj, const char *key, const char *value)
{
	if (value)
		json_object_object_add(obj, key, json_object_new_string(value));
}

int dagger_store(struct dagger *d, const char *name, const struct dagger_kept *kept,
                 struct sbx_error *err)
{
	struct json_object *obj = json_object_new_object();
	char temp[DAGGER_NAME_MAX + 8];
	int r;

	json_object_object_add(obj, "id", json_object_new_string(kept->id));
	json_object_object_add(obj, "label", json_object_new_string(kept->label));
	json_object_object_add(obj, "owner", json_object_new_string(kept->owner));
	add(obj, "saved", kept->saved);
	add(obj, "mark", kept->mark);
	add(obj, "needs", kept->needs);
	json_object_object_add(obj, "layers", json_object_new_int64(kept->layers));
	json_object_object_add(obj, "made_ms", json_object_new_int64(kept->made_ms));
	snprintf(temp, sizeof(temp), "%s.new", name);
	r = sbx_file_replace(d->dir, name, temp,
	                     json_object_to_json_string_ext(obj, JSON_C_TO_STRING_PLAIN));
	json_object_put(obj);
	return r ? sbx_fail(err, -r, "%s/%s cannot be written: %s", d->path, name, strerror(-r))
	         : 0;
}

/* False: it has a string of that name, for which there is no memory. */
static bool get_any(struct json_object *obj, const char *key, char **ret)
{
	struct json_object *value;

	if (!json_object_object_get_ex(obj, key, &value) ||
	    !json_object_is_type(value, json_type_string))
		return true;
	*ret = strdup(json_object_get_string(value));
	return *ret != NULL;
}

/* False: it has no string of that name, or there is no memory. */
static bool get(struct json_object *obj, const char *key, char **ret)
{
	return get_any(obj, key, ret) && *ret;
}

int dagger_load(struct dagger *d, const char *name, struct dagger_kept *ret, struct sbx_error *err)
{
	_cleanup_free_ char *text = NULL;
	struct json_object *obj, *value;
	bool good;
	int r;

	*ret = (struct dagger_kept){0};
	r = dagger_name_check(name, err);
	if (r)
		return r;
	r = sbx_file_read(d->dir, name, KEPT_MAX, &text);
	if (r == -ENOENT)
		return sbx_fail(err, ENOENT, "nothing is known of the sandbox %s at Dagger", name);
	if (r)
		return sbx_fail(err, -r, "%s/%s cannot be read: %s", d->path, name, strerror(-r));
	obj = json_tokener_parse(text);
	good = json_object_is_type(obj, json_type_object) && get(obj, "id", &ret->id) &&
	       get(obj, "label", &ret->label) && get(obj, "owner", &ret->owner) &&
	       get_any(obj, "saved", &ret->saved) && get_any(obj, "mark", &ret->mark) &&
	       get_any(obj, "needs", &ret->needs);
	if (good && json_object_object_get_ex(obj, "made_ms", &value))
		ret->made_ms = json_object_get_int64(value);
	if (good && json_object_object_get_ex(obj, "layers", &value))
		ret->layers = (unsigned)json_object_get_int64(value);
	json_object_put(obj);
	if (good)
		return 0;
	dagger_kept_release(ret);
	return sbx_fail(err, EUCLEAN, "%s/%s is damaged", d->path, name);
}

/* ---- stages ---- */

int dagger_stage_make(struct dagger *d, const char *name, const char *word, char **ret,
                      struct sbx_error *err)
{
	_cleanup_fd_ int dir = -1, made = -1;
	char folder[DAGGER_NAME_MAX + 8];
	int r;

	*ret = NULL;
	snprintf(folder, sizeof(folder), "%s.d", name);
	dir = sbx_dir_make(d->dir, folder, 0700);
	if (dir >= 0)
		made = sbx_dir_make(dir, word, 0755);
	r = dir < 0 ? dir : made < 0 ? made : 0;
	if (r)
		return sbx_fail(err, -r, "%s/%s/%s cannot be made: %s", d->path, folder, word,
		                strerror(-r));
	if (asprintf(ret, "%s/%s/%s", d->path, folder, word) < 0) {
		*ret = NULL;
		return sbx_no_memory(err);
	}
	return 0;
}

void dagger_stage_remove(struct dagger *d, const char *stage)
{
	sbx_tree_remove(d->dir, stage + strlen(d->path) + 1, NULL);
}

/* ---- all of them ---- */

/* The engine has no list; what is not kept here is nobody's. */
int dagger_find_all(struct sbx_provider *p, const char *label,
                    int (*fn)(const char *name, const char *handle, int64_t made_ms, void *data),
                    void *data, struct sbx_error *err)
{
	struct dagger *d = dagger_of(p);
	_cleanup_(sbx_strings_release) struct sbx_strings names = {0};
	int r = sbx_dir_names(d->dir, &names);

	if (r)
		return sbx_fail(err, -r, "%s cannot be read: %s", d->path, strerror(-r));
	for (size_t i = 0; i < names.n && !r; i++) {
		struct dagger_kept kept = {0};

		if (dagger_name_ok(names.items[i]) &&
		    dagger_load(d, names.items[i], &kept, NULL) == 0 &&
		    strcmp(kept.label, label) == 0)
			r = fn(names.items[i], names.items[i], kept.made_ms, data);
		dagger_kept_release(&kept);
	}
	return r;
}
