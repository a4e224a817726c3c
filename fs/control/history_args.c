/* The parser of requests to snapshot, restore, reset and fork. */
#include "fs/control/history_args.h"

#include <errno.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

#include "fs/util/json.h"
#include "fs/util/nearest.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/history.h"

void sbx_history_args_release(struct args *args)
{
	free(args->text);
	free(args->author);
	sbx_create_request_release(&args->create);
}

/* The members that a JSON object may have. */
struct member {
	const char *key; /* first, for sbx_unknown_key() */
	char **text;
	bool *flag;
};

static int take_value(const struct member *m, struct json_object *value, struct sbx_error *err)
{
	bool text = json_object_is_type(value, json_type_string);

	if (m->flag) {
		if (!json_object_is_type(value, json_type_boolean))
			return sbx_fail(err, EINVAL, "\"%s\" must be true or false", m->key);
		*m->flag = json_object_get_boolean(value);
		return 0;
	}
	if (!text)
		return sbx_fail(err, EINVAL, "\"%s\" must be a string", m->key);
	*m->text = strdup(json_object_get_string(value));
	return *m->text ? 0 : sbx_no_memory(err);
}

static int take_members(const struct member *members, struct json_object *obj,
                        struct sbx_error *err)
{
	json_object_object_foreach(obj, key, value)
	{
		const struct member *m = members;
		int r;

		while (m->key && strcmp(m->key, key) != 0)
			m++;
		if (!m->key)
			return sbx_unknown_key(key, members, (size_t)(m - members), sizeof(*m),
			                       err);
		r = take_value(m, value, err);
		if (r < 0)
			return r;
	}
	return 0;
}

static int read_json(const char *text, const struct member *members, struct sbx_error *err)
{
	struct json_object *obj = NULL;
	size_t used;
	int r = sbx_json_parse(text, strlen(text), true, &obj, &used, err);

	if (r > 0 && text[used])
		r = sbx_fail(err, EINVAL, "one JSON object is one request");
	if (r > 0)
		r = take_members(members, obj, err);
	json_object_put(obj);
	return r < 0 ? r : 0;
}

static int set_text(char **text, const char *value, struct sbx_error *err)
{
	*text = strdup(value);
	return *text ? 0 : sbx_no_memory(err);
}

/* "Name <mail>" */
static int check_author(const char *author, struct sbx_error *err)
{
	const char *mail = author ? strstr(author, " <") : NULL;
	size_t len = author ? strlen(author) : 0;

	if (!author || (mail && mail > author && len > 3 && author[len - 1] == '>' &&
	                strcspn(author, "<") == (size_t)(mail + 1 - author) &&
	                strcspn(author, ">\r\n") == len - 1))
		return 0;
	return sbx_fail(err, EINVAL, "an author is written as Name <mail>");
}

static int read_snapshot(const char *text, struct args *ret, struct sbx_error *err)
{
	const struct member members[] = {{"message", &ret->text, NULL},
	                                 {"author", &ret->author, NULL},
	                                 {"ignored", NULL, &ret->ignored},
	                                 {NULL}};
	int r;

	if (*text != '{')
		return set_text(&ret->text, text, err);
	r = read_json(text, members, err);
	return r < 0 ? r : check_author(ret->author, err);
}

static int check_id(const char *id, struct sbx_error *err)
{
	if (strchr(id, ':'))
		return sbx_fail(err, EINVAL, "%.80s is no id of a snapshot", id);
	return sbx_rev_check(id, err);
}

static int read_restore(const char *text, struct args *ret, struct sbx_error *err)
{
	int r;

	if (strcmp(text, "previous") == 0)
		return set_text(&ret->text, "mark:restore", err);
	r = check_id(text, err);
	return r < 0 ? r : set_text(&ret->text, text, err);
}

static int read_fork(const char *text, struct args *ret, struct sbx_error *err)
{
	const struct member members[] = {{"name", &ret->create.name, NULL},
	                                 {"branch", &ret->create.branch, NULL},
	                                 {"branch_exists", &ret->create.branch_exists, NULL},
	                                 {"rev", &ret->text, NULL},
	                                 {NULL}};
	int r;

	if (*text != '{')
		return set_text(&ret->create.name, text, err);
	r = read_json(text, members, err);
	return r < 0 || !ret->text ? r : check_id(ret->text, err);
}

/* The last job, or which; 1 means the last, as it means all in kill. */
static int read_undo(const char *text, struct args *ret, struct sbx_error *err)
{
	const char *id = strncmp(text, "jobs/", 5) == 0 ? text + 5 : text;

	if (strcmp(text, "1") == 0 || strcmp(id, "last") == 0)
		return 0;
	if (!*id || strlen(id) > 63 || strpbrk(id, " \t\r\n/"))
		return sbx_fail(err, EINVAL, "undo takes 1 for the last job, or a job's ID");
	return set_text(&ret->text, id, err);
}

int sbx_history_args_read(int op, const char *text, struct args *ret, struct sbx_error *err)
{
	switch (op) {
	case HISTORY_OP_SNAPSHOT:
		return read_snapshot(text, ret, err);
	case HISTORY_OP_RESTORE:
		return read_restore(text, ret, err);
	case HISTORY_OP_UNDO:
		return read_undo(text, ret, err);
	case HISTORY_OP_FORK:
		return read_fork(text, ret, err);
	default:
		return set_text(&ret->text, "base", err);
	}
}
