/*
 * The stream of a command. A line is held until its end has come, and its text is added to the
 * output; a command in it says which it is at first, and by a code that it has ended.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backends/vercel/vercel_impl.h"
#include "sandboxfs/cleanup.h"

#define LINE_ROOM ((size_t)64 * 1024) /* of a line, beside its text */

/* Room for MORE bytes and a NUL behind the LEN of *AT. */
static int grow(char **at, size_t len, size_t *cap, size_t more)
{
	size_t size = *cap ? *cap : 4096;
	char *longer;

	while (size < len + more + 1)
		size *= 2;
	if (size == *cap)
		return 0;
	longer = realloc(*at, size);
	if (!longer)
		return -ENOMEM;
	*at = longer;
	*cap = size;
	return 0;
}

static int add_output(struct vercel_stream *st, struct json_object *data)
{
	const size_t len = (size_t)json_object_get_string_len(data);

	if (len > st->most - st->len)
		return -EMSGSIZE;
	if (grow(&st->out, st->len, &st->cap, len) < 0)
		return -ENOMEM;
	memcpy(st->out + st->len, json_object_get_string(data), len);
	st->len += len;
	st->out[st->len] = '\0';
	return 0;
}

static int take_command(struct vercel_stream *st, struct json_object *command)
{
	const char *id = sbx_member_text(command, "id");

	if (!vercel_is_word(id, sizeof(st->command) - 1))
		return -EPROTO;
	memcpy(st->command, id, strlen(id) + 1);
	st->ended = st->ended || sbx_member(command, "exitCode", json_type_int) ||
	            sbx_member(command, "exitCode", json_type_double);
	return 0;
}

/* Lines of kinds that nobody knows pass. */
static int take_line(struct vercel_stream *st)
{
	_cleanup_object_ struct json_object *obj = sbx_object_read(st->line, st->line_len);
	struct json_object *command = sbx_member(obj, "command", json_type_object);
	struct json_object *data = sbx_member(obj, "data", json_type_string);
	const char *stream = sbx_member_text(obj, "stream");

	if (!obj)
		return -EPROTO;
	if (command)
		return take_command(st, command);
	if (strcmp(stream, "error") == 0)
		st->closed = true;
	return data && strcmp(stream, "stdout") == 0 ? add_output(st, data) : 0;
}

/* A byte of output takes up to six of a line. */
static int hold(struct vercel_stream *st, const char *bytes, size_t len)
{
	if (st->line_len + len > 6 * st->most + LINE_ROOM)
		return -EMSGSIZE;
	if (grow(&st->line, st->line_len, &st->line_cap, len) < 0)
		return -ENOMEM;
	memcpy(st->line + st->line_len, bytes, len);
	st->line_len += len;
	st->line[st->line_len] = '\0';
	return 0;
}

int vercel_stream_take(struct vercel_stream *st, const void *data, size_t len)
{
	const char *at = data, *end = at + len;
	int r = 0;

	while (!r && at < end) {
		const char *newline = memchr(at, '\n', (size_t)(end - at));

		r = hold(st, at, (size_t)((newline ? newline : end) - at));
		at = newline ? newline + 1 : end;
		if (r || !newline)
			continue;
		if (st->line_len)
			r = take_line(st);
		st->line_len = 0;
	}
	return r;
}

bool vercel_stream_is_whole(const struct vercel_stream *st)
{
	return !st->line_len && !st->closed;
}

void vercel_stream_release(struct vercel_stream *st)
{
	free(st->out);
	free(st->line);
	*st = (struct vercel_stream){.most = st->most};
}
