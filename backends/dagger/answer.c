/*
 * The answer of an engine: an object, or a list of errors whose texts are all there is to tell one
 * failure from another. Nothing of it is trusted.
 */
#include <errno.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#include "backends/dagger/dagger_impl.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/scrub.h"
#include "sandboxfs/secret.h"

#define DEPTH    4096 /* each step of a chain is an object in another */
#define SAID_MAX 600  /* bytes of what an engine says that are shown */

/* ---- failures ---- */

/* By what their texts have; others stand before and behind it. The first one counts. */
static const struct {
	const char *has, *has_too;
	int code;
	const char *text; /* NULL: what the engine says */
} failures[] = {
        {"missing shared result", NULL, ESTALE, "the engine of Dagger has forgotten the sandbox"},
        {"invalid ID string", NULL, ESTALE, "the engine of Dagger does not know the sandbox's id"},
        {"expected ", ", got ", ESTALE, "the sandbox's id means something else by now"},
        {"failed to resolve image", NULL, EREMOTEIO, NULL},
        {"failed to resolve source metadata", NULL, EREMOTEIO, NULL},
        {"repository does not contain ref", NULL, ENOENT, NULL},
        {"git authentication failed", NULL, EACCES, NULL},
        {"could not read Username", NULL, EACCES, NULL},
        {"is a directory, not a file", NULL, EISDIR, NULL},
        {"not a directory", NULL, ENOTDIR, NULL},
        {"file exists", NULL, EEXIST, NULL},
        {"file name too long", NULL, ENAMETOOLONG, NULL},
        {"exceeds limit 134217728", NULL, EFBIG, NULL},
        {"cannot retrieve path from", NULL, EOPNOTSUPP, NULL},
        {"no space left on device", NULL, ENOSPC, NULL},
        {"mount options is too long", NULL, EMLINK,
         "the container has more layers than the engine of Dagger can mount"},
        {"permission denied", NULL, EACCES, NULL},
        {"no such file or directory", NULL, ENOENT, NULL},
};

void dagger_scrub(const struct dagger_query *q, char *text)
{
	const char *token = sbx_secret_text(q->session ? q->session->token : NULL);
	_cleanup_free_ char *user = NULL, *basic = NULL;

	sbx_scrub(text, token);
	sbx_scrub(text, sbx_secret_text(q->hidden));
	sbx_scrub(text, sbx_secret_text(q->d->config.git_token));
	if (!token || asprintf(&user, "%s:", token) < 0) {
		user = NULL;
		return;
	}
	basic = malloc((strlen(user) + 2) / 3 * 4 + 1);
	if (basic) {
		EVP_EncodeBlock((unsigned char *)basic, (unsigned char *)user, (int)strlen(user));
		sbx_scrub(text, basic);
		explicit_bzero(basic, strlen(basic));
	}
	explicit_bzero(user, strlen(user));
}

/* The first line of MESSAGE, without what traces of the engine have added. */
static char *said(const struct dagger_query *q, const char *message)
{
	size_t len = strcspn(message, "\n");
	char *text = strndup(message, len), *end;

	if (!text)
		return NULL;
	dagger_scrub(q, text);
	end = strstr(text, " [traceparent:");
	if (end)
		*end = '\0';
	if (strlen(text) > SAID_MAX)
		memcpy(text + SAID_MAX - 3, "...", sizeof("..."));
	return text;
}

static int fail(const struct dagger_query *q, const char *message, struct sbx_error *err)
{
	_cleanup_free_ char *text = said(q, message);

	if (!text)
		return sbx_no_memory(err);
	for (size_t i = 0; i < SBX_ARRAY_SIZE(failures); i++) {
		if (!strstr(message, failures[i].has) ||
		    (failures[i].has_too && !strstr(message, failures[i].has_too)))
			continue;
		return sbx_fail(err, failures[i].code, "%s",
		                failures[i].text ? failures[i].text : text);
	}
	return sbx_fail(err, EREMOTEIO, "Dagger says: %s", *text ? text : "nothing");
}

/* EPROTO: none of the items of ERRORS says anything. */
static int fail_by(const struct dagger_query *q, struct json_object *errors, struct sbx_error *err)
{
	const size_t n = json_object_array_length(errors);

	for (size_t i = 0; i < n; i++) {
		struct json_object *item = json_object_array_get_idx(errors, i);
		struct json_object *message;

		if (json_object_is_type(item, json_type_object) &&
		    json_object_object_get_ex(item, "message", &message) &&
		    json_object_is_type(message, json_type_string))
			return fail(q, json_object_get_string(message), err);
	}
	return sbx_fail(err, EPROTO, "an answer of Dagger has an error that says nothing");
}

/* ---- objects ---- */

static struct json_object *parse(const char *text, size_t len)
{
	struct json_tokener *tok = text ? json_tokener_new_ex(DEPTH) : NULL;
	struct json_object *obj = NULL;

	if (tok && len <= INT32_MAX)
		obj = json_tokener_parse_ex(tok, text, (int)len);
	if (tok)
		json_tokener_free(tok);
	if (obj && !json_object_is_type(obj, json_type_object)) {
		json_object_put(obj);
		obj = NULL;
	}
	return obj;
}

/* 400 and 422: it has not understood the query, so that there is no use in asking again. */
static int refuse(const struct dagger_query *q, struct json_object *errors, struct sbx_error *err)
{
	const long status = q->answer.status;
	int r = errors ? fail_by(q, errors, err) : q->code;

	if (!errors)
		*err = q->err;
	if (status == 400 || status == 404 || status == 422) {
		const struct sbx_error why = *err;

		return sbx_fail(err, EPROTO, "this version of Dagger is not understood: %s",
		                why.text);
	}
	return r;
}

int dagger_answer(const struct dagger_query *q, struct json_object **ret, struct sbx_error *err)
{
	struct json_object *obj = parse(q->answer.body, q->answer.len), *errors = NULL;
	struct json_object *data = NULL;
	int r = 0;

	if (obj && json_object_object_get_ex(obj, "errors", &errors) &&
	    (!json_object_is_type(errors, json_type_array) || !json_object_array_length(errors)))
		errors = NULL;
	if (q->code)
		r = refuse(q, errors, err);
	else if (errors)
		r = fail_by(q, errors, err);
	else if (!obj || !json_object_object_get_ex(obj, "data", &data) ||
	         !json_object_is_type(data, json_type_object))
		r = sbx_fail(err, EPROTO, "an answer of Dagger cannot be understood");
	if (!r)
		*ret = json_object_get(data);
	json_object_put(obj);
	return r;
}

/* As deep as DEPTH, which the parser sees to. */
struct json_object *dagger_find(struct json_object *obj, const char *key, enum json_type type)
{
	struct json_object *value;

	if (json_object_object_get_ex(obj, key, &value) && json_object_is_type(value, type))
		return value;
	json_object_object_foreach(obj, name, member)
	{
		(void)name;
		value = json_object_is_type(member, json_type_object)
		                ? dagger_find(member, key, type)
		                : NULL;
		if (value)
			return value;
	}
	return NULL;
}

const char *dagger_find_text(struct json_object *obj, const char *key)
{
	struct json_object *value = dagger_find(obj, key, json_type_string);

	return value ? json_object_get_string(value) : NULL;
}

int dagger_steal_text(struct json_object *data, const char *key, char **ret, struct sbx_error *err)
{
	const char *text = dagger_find_text(data, key);

	if (!text || !*text)
		return sbx_fail(err, EPROTO, "an answer of Dagger has no %s", key);
	*ret = strdup(text);
	return *ret ? 0 : sbx_no_memory(err);
}

/*
 * After an unclean stop of the engine its handles are numbered anew, so that one of ours may name
 * another's container; of what is no container nothing is told.
 */
int dagger_check_machine(const char *mark, struct json_object *data, struct sbx_error *err)
{
	const char *label = dagger_find_text(data, "label");
	const char *id = dagger_find_text(data, "envVariable");
	struct json_object *box;

	if (!json_object_object_get_ex(data, "node", &box) &&
	    !json_object_object_get_ex(data, "loadContainerFromID", &box))
		return sbx_fail(err, EPROTO, "an answer of Dagger has no container");
	if (label && strcmp(label, mark) == 0 && id && strcmp(id, mark) == 0)
		return 0;
	return sbx_fail(err, ESTALE,
	                "the engine of Dagger has forgotten the sandbox: its id means something "
	                "else by now");
}

bool dagger_is_utf8(const char *text, size_t len)
{
	const unsigned char *at = (const unsigned char *)text, *end = at + len;

	while (at < end) {
		const unsigned c = *at++;
		const unsigned more = c < 0x80 ? 0 : c >= 0xf0 ? 3 : c >= 0xe0 ? 2 : 1;
		unsigned value = more ? c & (0x3f >> more) : c;

		if (!c || (c >= 0x80 && c < 0xc2) || c > 0xf4 || (size_t)(end - at) < more)
			return false;
		for (unsigned i = 0; i < more; i++, at++) {
			if ((*at & 0xc0) != 0x80)
				return false;
			value = value << 6 | (*at & 0x3f);
		}
		if ((more == 2 && (value < 0x800 || (value >= 0xd800 && value < 0xe000))) ||
		    (more == 3 && (value < 0x10000 || value > 0x10ffff)))
			return false;
	}
	return true;
}
