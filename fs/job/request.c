/*
 * Bytes arrive in pieces of any size: bash writes a line at a time, other clients a buffer at a
 * time. They are kept in one buffer, and each encoding remembers how far it has looked, so that
 * a request fed byte by byte costs no more than one fed at once. Requests are taken off the
 * front by moving start; the buffer is moved only when half of it is behind start.
 *
 * What a JSON request means is one table per kind of object: key, and what takes its value. Strings
 * need no check for NUL bytes, as sbx_json_feed() lets none through.
 */
#include "fs/job/request.h"

#include <errno.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/util/json.h"
#include "fs/util/nearest.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/strv.h"

struct request_key {
	const char *name;
	int (*take)(struct sbx_request *req, struct json_object *value, struct sbx_error *err);
};

static int take_string(struct json_object *value, const char *key, char **ret,
                       struct sbx_error *err)
{
	if (!json_object_is_type(value, json_type_string))
		return sbx_fail(err, EINVAL, "\"%s\" must be a string", key);
	*ret = strdup(json_object_get_string(value));
	return *ret ? 0 : sbx_no_memory(err);
}

static int take_argv(struct sbx_request *req, struct json_object *value, struct sbx_error *err)
{
	struct sbx_strings argv = {0};
	int r = 0;

	if (!json_object_is_type(value, json_type_array))
		return sbx_fail(err, EINVAL, "\"argv\" must be an array of strings");
	for (size_t i = 0; !r && i < json_object_array_length(value); i++) {
		struct json_object *arg = json_object_array_get_idx(value, i);

		if (!json_object_is_type(arg, json_type_string))
			r = sbx_fail(err, EINVAL, "\"argv\" must be an array of strings");
		else if (sbx_strings_add_n(&argv, json_object_get_string(arg),
		                           (size_t)json_object_get_string_len(arg)) < 0)
			r = sbx_no_memory(err);
	}
	req->argv = argv.items;
	return r;
}

static int take_cwd(struct sbx_request *req, struct json_object *value, struct sbx_error *err)
{
	req->set |= SBX_REQ_CWD;
	return take_string(value, "cwd", &req->cwd, err);
}

static int add_env(struct sbx_strings *env, const char *key, struct json_object *value,
                   struct sbx_error *err)
{
	_cleanup_free_ char *pair = NULL;
	int r = sbx_env_key_check(key, strlen(key), err);

	if (r < 0)
		return r;
	if (!json_object_is_type(value, json_type_string))
		return sbx_fail(err, EINVAL, "\"env\" must be an object of strings: \"%.*s\"",
		                sbx_clip(key, strlen(key)), key);
	if (asprintf(&pair, "%s=%s", key, json_object_get_string(value)) < 0) {
		pair = NULL;
		return sbx_no_memory(err);
	}
	return sbx_strings_add(env, pair) < 0 ? sbx_no_memory(err) : 0;
}

static int take_env(struct sbx_request *req, struct json_object *value, struct sbx_error *err)
{
	struct sbx_strings env = {0};
	int r = 0;

	if (!json_object_is_type(value, json_type_object))
		return sbx_fail(err, EINVAL, "\"env\" must be an object of strings");
	json_object_object_foreach(value, key, one)
	{
		r = add_env(&env, key, one, err);
		if (r < 0)
			break;
	}
	req->env = env.items;
	return r;
}

static int take_timeout(struct sbx_request *req, struct json_object *value, struct sbx_error *err)
{
	req->set |= SBX_REQ_TIMEOUT;
	return sbx_json_number(value, "timeout_ms", &req->timeout_ms, err);
}

static int take_stdin(struct sbx_request *req, struct json_object *value, struct sbx_error *err)
{
	req->set |= SBX_REQ_STDIN;
	if (!value)
		return 0;
	if (!json_object_is_type(value, json_type_string))
		return sbx_fail(err, EINVAL, "\"stdin\" must be a string or null");
	req->stdin_len = (size_t)json_object_get_string_len(value);
	return take_string(value, "stdin", &req->stdin_data, err);
}

static int take_limit(struct sbx_request *req, const char *key, struct json_object *value,
                      struct sbx_error *err)
{
	static const struct {
		const char *name;
		unsigned bit;
		size_t offset;
	} keys[] = {
	        {"cpu_s", SBX_REQ_CPU, offsetof(struct sbx_limits, cpu_s)},
	        {"memory_mb", SBX_REQ_MEMORY, offsetof(struct sbx_limits, memory_mb)},
	        {"procs", SBX_REQ_PROCS, offsetof(struct sbx_limits, procs)},
	        {"file_mb", SBX_REQ_FILE, offsetof(struct sbx_limits, file_mb)},
	        {"disk_mb", SBX_REQ_DISK, offsetof(struct sbx_limits, disk_mb)},
	        {"output_bytes", SBX_REQ_OUTPUT, offsetof(struct sbx_limits, output_bytes)},
	};

	for (size_t i = 0; i < SBX_ARRAY_SIZE(keys); i++) {
		if (strcmp(keys[i].name, key) != 0)
			continue;
		req->set |= keys[i].bit;
		return sbx_json_number(value, key,
		                       (uint64_t *)(void *)((char *)&req->limits + keys[i].offset),
		                       err);
	}
	if (strcmp(key, "jobs") == 0)
		return sbx_fail(err, EINVAL,
		                "\"jobs\" is a limit of the sandbox, not of one request");
	return sbx_unknown_key(key, keys, SBX_ARRAY_SIZE(keys), sizeof(keys[0]), err);
}

static int take_limits(struct sbx_request *req, struct json_object *value, struct sbx_error *err)
{
	if (!json_object_is_type(value, json_type_object))
		return sbx_fail(err, EINVAL, "\"limits\" must be an object of integers");
	json_object_object_foreach(value, key, one)
	{
		int r = take_limit(req, key, one, err);

		if (r < 0)
			return r;
	}
	return 0;
}

static int take_id(struct sbx_request *req, struct json_object *value, struct sbx_error *err)
{
	int r = take_string(value, "id", &req->id, err);

	return r < 0 ? r : sbx_job_id_check(req->id, err);
}

static int take_tty(struct sbx_request *req, struct json_object *value, struct sbx_error *err)
{
	(void)req;
	if (value && !json_object_is_type(value, json_type_boolean))
		return sbx_fail(err, EINVAL, "\"tty\" must be true, false or null");
	if (value && json_object_get_boolean(value))
		return sbx_fail(err, EOPNOTSUPP, "a terminal cannot be given to a command yet");
	return 0;
}

static int take_member(struct sbx_request *req, const char *key, struct json_object *value,
                       struct sbx_error *err)
{
	static const struct request_key keys[] = {
	        {"argv", take_argv},
	        {"cwd", take_cwd},
	        {"env", take_env},
	        {"id", take_id},
	        {"limits", take_limits},
	        {"stdin", take_stdin},
	        {"timeout_ms", take_timeout},
	        {"tty", take_tty},
	};

	for (size_t i = 0; i < SBX_ARRAY_SIZE(keys); i++)
		if (strcmp(keys[i].name, key) == 0)
			return keys[i].take(req, value, err);
	return sbx_unknown_key(key, keys, SBX_ARRAY_SIZE(keys), sizeof(keys[0]), err);
}

/*
 * Fills RET (zeroed before; release it after a failure too) from OBJ. -EINVAL naming the key,
 * -EOPNOTSUPP, -ENOMEM. So do the next two.
 */
static int request_from_json(struct json_object *obj, struct sbx_request *ret,
                             struct sbx_error *err)
{
	if (json_object_is_type(obj, json_type_array))
		return take_argv(ret, obj, err);
	json_object_object_foreach(obj, key, value)
	{
		int r = take_member(ret, key, value, err);

		if (r < 0)
			return r;
	}
	if (!json_object_object_get_ex(obj, "argv", NULL))
		return sbx_fail(err, EINVAL, "\"argv\" is missing");
	return 0;
}

static int take_create_member(struct sbx_create_request *req, const char *key,
                              struct json_object *value, struct sbx_error *err)
{
	const struct {
		const char *name;
		char **place;
	} keys[] = {
	        {"name", &req->name},
	        {"backend", &req->backend},
	        {"repo", &req->repo},
	        {"base", &req->base},
	        {"branch", &req->branch},
	        {"from", &req->from},
	        {"branch_exists", &req->branch_exists},
	};

	for (size_t i = 0; i < SBX_ARRAY_SIZE(keys); i++)
		if (strcmp(keys[i].name, key) == 0)
			return take_string(value, key, keys[i].place, err);
	return sbx_unknown_key(key, keys, SBX_ARRAY_SIZE(keys), sizeof(keys[0]), err);
}

static int create_from_json(struct json_object *obj, struct sbx_create_request *ret,
                            struct sbx_error *err)
{
	if (!json_object_is_type(obj, json_type_object))
		return sbx_fail(err, EINVAL, "a create request is a JSON object or a bare name");
	json_object_object_foreach(obj, key, value)
	{
		int r = take_create_member(ret, key, value, err);

		if (r < 0)
			return r;
	}
	if (!ret->name || !*ret->name)
		return sbx_fail(err, EINVAL, "\"name\" is missing");
	return 0;
}

static int take_push_member(struct sbx_push_request *req, const char *key,
                            struct json_object *value, struct sbx_error *err)
{
	const struct {
		const char *name;
		char **place;
	} keys[] = {
	        {"pr", NULL},
	        {"remote", &req->remote},
	        {"title", &req->title},
	        {"intent", &req->intent},
	        {"blueprint", &req->blueprint},
	        {"run", &req->run},
	};

	if (strcmp(key, keys[0].name) == 0) {
		if (!json_object_is_type(value, json_type_boolean))
			return sbx_fail(err, EINVAL, "\"pr\" must be true or false");
		req->pr = json_object_get_boolean(value);
		return 0;
	}
	for (size_t i = 0; i < SBX_ARRAY_SIZE(keys); i++)
		if (strcmp(keys[i].name, key) == 0)
			return take_string(value, key, keys[i].place, err);
	return sbx_unknown_key(key, keys, SBX_ARRAY_SIZE(keys), sizeof(keys[0]), err);
}

static int push_from_json(struct json_object *obj, struct sbx_push_request *ret,
                          struct sbx_error *err)
{
	if (!json_object_is_type(obj, json_type_object))
		return sbx_fail(err, EINVAL, "a push request is a JSON object or an empty line");
	json_object_object_foreach(obj, key, value)
	{
		int r = take_push_member(ret, key, value, err);

		if (r < 0)
			return r;
	}
	return 0;
}

enum encoding { WAIT, JSON, NUL, TEXT };

void sbx_request_release(struct sbx_request *req)
{
	sbx_strv_free(req->argv);
	sbx_strv_free(req->env);
	free(req->cwd);
	free(req->stdin_data);
	free(req->id);
	*req = (struct sbx_request){0};
}

void sbx_create_request_release(struct sbx_create_request *req)
{
	free(req->name);
	free(req->backend);
	free(req->repo);
	free(req->base);
	free(req->branch);
	free(req->branch_exists);
	free(req->from);
	*req = (struct sbx_create_request){0};
}

void sbx_push_request_release(struct sbx_push_request *req)
{
	free(req->remote);
	free(req->title);
	free(req->intent);
	free(req->blueprint);
	free(req->run);
	*req = (struct sbx_push_request){0};
}

static bool is_letter(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

int sbx_env_key_check(const char *key, size_t len, struct sbx_error *err)
{
	bool good = len > 0 && is_letter(key[0]);

	for (size_t i = 1; good && i < len; i++)
		good = is_letter(key[i]) || is_digit(key[i]);
	if (good)
		return 0;
	return sbx_fail(err, EINVAL, "Invalid env key \"%.*s\" — must match [A-Za-z_][A-Za-z0-9_]*",
	                sbx_clip(key, len), key);
}

int sbx_job_id_check(const char *id, struct sbx_error *err)
{
	size_t len = strlen(id);
	bool good = len > 0 && len <= 63 && is_letter(id[0]) && strcmp(id, "last") != 0;

	for (size_t i = 1; good && i < len; i++)
		good = is_letter(id[i]) || is_digit(id[i]) || id[i] == '.' || id[i] == '-';
	if (good)
		return 0;
	return sbx_fail(err, EINVAL,
	                "invalid job id \"%.*s\": must match [A-Za-z_][A-Za-z0-9._-]{0,62} and not "
	                "be \"last\"",
	                sbx_clip(id, len), id);
}

void sbx_request_parser_init(struct sbx_request_parser *p)
{
	*p = (struct sbx_request_parser){0};
}

void sbx_request_parser_finish(struct sbx_request_parser *p)
{
	sbx_json_feed_end(&p->tok);
	free(p->buf);
	*p = (struct sbx_request_parser){0};
}

/* Takes the first N bytes off; what follows begins a new request. */
static void consume(struct sbx_request_parser *p, size_t n)
{
	sbx_json_feed_end(&p->tok);
	p->start += n;
	p->seen = 0;
	p->line = (struct sbx_words_scan){0};
	if (p->start == p->len)
		p->start = p->len = 0;
	if (p->nul <= p->start)
		p->nul = 0;
}

void sbx_request_parser_reset(struct sbx_request_parser *p)
{
	consume(p, p->len - p->start);
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static size_t count_blanks(const struct sbx_request_parser *p)
{
	size_t n = 0;

	while (p->start + n < p->len && is_blank(p->buf[p->start + n]))
		n++;
	return n;
}

bool sbx_request_parser_pending(const struct sbx_request_parser *p)
{
	return p->start + count_blanks(p) < p->len;
}

static int make_room(struct sbx_request_parser *p, size_t len)
{
	size_t cap = p->cap;
	char *buf;

	if (p->start && p->start >= p->len / 2) {
		p->len -= p->start;
		memmove(p->buf, p->buf + p->start, p->len);
		p->nul -= p->nul ? p->start : 0;
		p->start = 0;
	}
	if (len <= cap - p->len)
		return 0;
	for (cap = cap ? cap : 4096; cap - p->len < len;)
		cap *= 2;
	buf = realloc(p->buf, cap);
	if (!buf)
		return -ENOMEM;
	p->buf = buf;
	p->cap = cap;
	return 0;
}

int sbx_request_parser_feed(struct sbx_request_parser *p, const void *data, size_t len,
                            struct sbx_error *err)
{
	const char *nul;

	if (p->overflow || len > SBX_REQUEST_MAX - (p->len - p->start)) {
		sbx_request_parser_finish(p);
		p->overflow = true;
		return sbx_fail(err, E2BIG, "a request may have at most %d bytes", SBX_REQUEST_MAX);
	}
	if (!len)
		return 0;
	if (make_room(p, len) < 0)
		return sbx_no_memory(err);
	memcpy(p->buf + p->len, data, len);
	nul = memrchr(p->buf + p->len, '\0', len);
	if (nul)
		p->nul = (size_t)(nul - p->buf) + 1;
	p->len += len;
	return 0;
}

/* How the request at start is written; a lone [ may still become either. */
static enum encoding find_encoding(const struct sbx_request_parser *p, bool final)
{
	const char *s = p->buf + p->start;
	size_t len = p->len - p->start;

	if (*s == '{')
		return JSON;
	if (*s == '[' && len == 1 && !final)
		return WAIT;
	if (*s == '[' && (len == 1 || s[1] != '\0'))
		return JSON;
	return p->nul ? NUL : TEXT;
}

static int next_json(struct sbx_request_parser *p, bool final, struct json_object **ret,
                     struct sbx_error *err)
{
	const char *text = p->buf + p->start;
	size_t len = p->len - p->start, used;
	struct json_object *obj;
	int r = sbx_json_feed(&p->tok, text, p->seen, len, &obj, &used, err);

	p->seen = len;
	if (r == 0 && final)
		return sbx_fail(err, EINVAL, "incomplete JSON");
	if (r <= 0)
		return r;
	while (used < len && text[used] != '\n' && is_blank(text[used]))
		used++;
	if (used < len && text[used] != '\n') {
		json_object_put(obj);
		return sbx_fail(err, EINVAL, "trailing data after the JSON request");
	}
	p->tail = used == len;
	consume(p, used < len ? used + 1 : used);
	*ret = obj;
	return 1;
}

/* A line that begins with the program [ as people write it: [ -f x ], or [[ of bash. */
static bool like_test(const struct sbx_request_parser *p)
{
	const char *s = p->buf + p->start;
	size_t len = p->len - p->start, n = len > 1 && s[1] == '[' ? 2 : 1;

	return s[0] == '[' && len > n && (s[n] == ' ' || s[n] == '\t');
}

static int take_json(struct sbx_request_parser *p, bool final, struct sbx_request *ret,
                     struct sbx_error *err)
{
	struct sbx_error why = SBX_ERROR_INIT;
	struct json_object *obj;
	bool test = like_test(p);
	int r = next_json(p, final, &obj, &why);

	if (r == -EINVAL && test)
		return sbx_fail(
		        err, EINVAL,
		        "a line that begins with [ is read as JSON (%.300s): use test -f x, or "
		        "[\"[\",\"-f\",\"x\",\"]\"], or [\"sh\",\"-c\",\"...\"]",
		        why.text);
	if (r < 0)
		return sbx_fail(err, -r, "%s", why.text);
	if (r == 0)
		return 0;
	r = request_from_json(obj, ret, err);
	json_object_put(obj);
	return r < 0 ? r : 1;
}

static int take_nul(struct sbx_request_parser *p, bool final, struct sbx_request *ret,
                    struct sbx_error *err)
{
	const char *s = p->buf + p->start, *end = p->buf + p->len;
	size_t len = p->len - p->start;
	struct sbx_strings argv = {0};
	bool ended = s[len - 1] == '\0' && (len == 1 || s[len - 2] == '\0');
	int r = 0;

	if (!ended && !final)
		return 0;
	if (ended)
		end--;
	while (!r && s < end) {
		const char *nul = memchr(s, '\0', (size_t)(end - s));
		size_t n = (size_t)((nul ? nul : end) - s);

		r = sbx_strings_add_n(&argv, s, n);
		s += nul ? n + 1 : n;
	}
	ret->argv = argv.items;
	if (r < 0)
		return sbx_no_memory(err);
	consume(p, len);
	return 1;
}

static int take_text(struct sbx_request_parser *p, bool final, struct sbx_request *ret,
                     struct sbx_error *err)
{
	const char *text = p->buf + p->start;
	size_t len = p->len - p->start;
	size_t n = sbx_words_line(&p->line, text, p->seen, len);
	struct sbx_strings argv = {0};
	int r;

	p->seen = len;
	if (!n && !final)
		return 0;
	n = n ? n : len;
	r = sbx_words_split(text, n, &argv, err);
	ret->argv = argv.items;
	if (r < 0)
		return r;
	consume(p, n);
	return 1;
}

/* As PowerShell writes a file: each second byte would be taken for the end of a word. */
static bool is_utf16(const struct sbx_request_parser *p)
{
	const char *s = p->buf + p->start;

	return !p->begun && p->len - p->start >= 2 &&
	       (memcmp(s, "\xff\xfe", 2) == 0 || memcmp(s, "\xfe\xff", 2) == 0);
}

/* Skips the byte order mark that some editors begin a file with. False: more must come to tell. */
static bool skip_mark(struct sbx_request_parser *p, bool final)
{
	static const char mark[] = "\xef\xbb\xbf";
	size_t len = p->len - p->start, n = len < 3 ? len : 3;

	if (p->begun || !len)
		return true;
	if (memcmp(p->buf + p->start, mark, n) == 0) {
		if (n < 3)
			return final;
		consume(p, n);
	}
	/* Half of a mark of UTF-16. */
	if (len == 1 && (unsigned char)p->buf[p->start] >= 0xfe && !final)
		return false;
	p->begun = true;
	return true;
}

/* Takes a line off that begins with # and is a comment. False: its end has not come. */
static bool skip_comment(struct sbx_request_parser *p, bool final)
{
	const char *s = p->buf + p->start;
	size_t len = p->len - p->start;
	const char *newline = memchr(s + p->seen, '\n', len - p->seen);

	p->seen = len;
	if (!newline && !final)
		return false;
	consume(p, newline ? (size_t)(newline - s) + 1 : len);
	return true;
}

/* A line of nothing but a continued newline has no words; it is skipped like an empty one. */
static int take(struct sbx_request_parser *p, bool final, struct sbx_request *ret,
                struct sbx_error *err)
{
	for (;;) {
		int r;

		if (is_utf16(p))
			return sbx_fail(err, EINVAL, "the request is in UTF-16: write it in UTF-8");
		if (!skip_mark(p, final))
			return 0;
		if (!p->seen)
			consume(p, count_blanks(p));
		if (p->start == p->len)
			return 0;
		switch (find_encoding(p, final)) {
		case WAIT:
			return 0;
		case JSON:
			return take_json(p, final, ret, err);
		case NUL:
			return take_nul(p, final, ret, err);
		case TEXT:
			if (p->buf[p->start] == '#') {
				if (!skip_comment(p, final))
					return 0;
				continue;
			}
			r = take_text(p, final, ret, err);
			if (r <= 0 || ret->argv)
				return r;
		}
	}
}

static int check_argv(const struct sbx_request *req, struct sbx_error *err)
{
	if (!req->argv)
		return sbx_fail(err, EINVAL, "empty argv");
	if (!*req->argv[0])
		return sbx_fail(err, EINVAL, "the program's name, argv[0], is empty");
	return 0;
}

int sbx_request_parser_next(struct sbx_request_parser *p, bool final, struct sbx_request *ret,
                            struct sbx_error *err)
{
	struct sbx_request req = {0};
	int r = take(p, final, &req, err);

	if (r == 1) {
		int bad = check_argv(&req, err);

		r = bad < 0 ? bad : 1;
	}
	if (r == 1) {
		*ret = req;
		return 1;
	}
	sbx_request_release(&req);
	if (r < 0)
		sbx_request_parser_reset(p);
	return r;
}

static int take_create_json(struct sbx_request_parser *p, bool final,
                            struct sbx_create_request *ret, struct sbx_error *err)
{
	struct json_object *obj;
	int r = next_json(p, final, &obj, err);

	if (r <= 0)
		return r;
	r = create_from_json(obj, ret, err);
	json_object_put(obj);
	return r < 0 ? r : 1;
}

static int take_create_name(struct sbx_request_parser *p, bool final,
                            struct sbx_create_request *ret, struct sbx_error *err)
{
	const char *s = p->buf + p->start;
	size_t len = p->len - p->start, n;
	const char *newline = memchr(s + p->seen, '\n', len - p->seen);

	p->seen = len;
	if (!newline && !final)
		return 0;
	len = newline ? (size_t)(newline - s) : len;
	for (n = len; is_blank(s[n - 1]);)
		n--;
	for (size_t i = 0; i < n; i++)
		if (is_blank(s[i]) || s[i] == '\0')
			return sbx_fail(err, EINVAL,
			                "a create request is a JSON object or a bare name");
	ret->name = strndup(s, n);
	if (!ret->name)
		return sbx_no_memory(err);
	consume(p, newline ? len + 1 : len);
	return 1;
}

int sbx_create_parser_next(struct sbx_request_parser *p, bool final, struct sbx_create_request *ret,
                           struct sbx_error *err)
{
	struct sbx_create_request req = {0};
	bool json;
	int r;

	if (!skip_mark(p, final))
		return 0;
	if (!p->seen)
		consume(p, count_blanks(p));
	if (p->start == p->len)
		return 0;
	json = p->buf[p->start] == '{' || p->buf[p->start] == '[';
	r = json ? take_create_json(p, final, &req, err) : take_create_name(p, final, &req, err);
	if (r == 1) {
		*ret = req;
		return 1;
	}
	sbx_create_request_release(&req);
	if (r < 0)
		sbx_request_parser_reset(p);
	return r;
}

static int take_push_json(struct sbx_request_parser *p, bool final, struct sbx_push_request *ret,
                          struct sbx_error *err)
{
	struct json_object *obj;
	int r = next_json(p, final, &obj, err);

	if (r <= 0)
		return r;
	r = push_from_json(obj, ret, err);
	json_object_put(obj);
	return r < 0 ? r : 1;
}

/* Takes blanks off up to the end of the line; whether the end has come. */
static bool take_empty_line(struct sbx_request_parser *p)
{
	const char *s = p->buf + p->start, *end = p->buf + p->len, *c = s;

	while (c < end && *c != '\n' && is_blank(*c))
		c++;
	if (c < end && *c == '\n') {
		consume(p, (size_t)(c - s) + 1);
		return true;
	}
	if (c > s)
		consume(p, (size_t)(c - s));
	return false;
}

int sbx_push_parser_next(struct sbx_request_parser *p, bool final, struct sbx_push_request *ret,
                         struct sbx_error *err)
{
	struct sbx_push_request req = {0};
	int r;

	if (!skip_mark(p, final))
		return 0;
	/* With something seen it is JSON that goes on. */
	if (!p->seen && take_empty_line(p)) {
		if (!p->tail)
			return 1;
		p->tail = false;
		if (take_empty_line(p))
			return 1;
	}
	if (p->start == p->len)
		return 0;
	p->tail = false;
	r = p->buf[p->start] == '{' || p->buf[p->start] == '['
	            ? take_push_json(p, final, &req, err)
	            : sbx_fail(err, EINVAL, "a push request is a JSON object or an empty line");
	if (r == 1) {
		*ret = req;
		return 1;
	}
	sbx_push_request_release(&req);
	if (r < 0)
		sbx_request_parser_reset(p);
	return r;
}
