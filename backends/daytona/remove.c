/* Removing sandboxes, and finding those that a daemon has made. Both may be done twice. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/daytona/daytona_impl.h"
#include "backends/support/escape.h"
#include "backends/support/pause.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"

#define BUSY_MS    60000 /* how long a change of state is waited for */
#define PAUSE_MOST 40    /* times the least */
#define PAGES_MAX  1000

/* One that is being removed already is refused by 409, as one in any other change is. */
static int remove_once(struct daytona *d, const char *id, atomic_bool *cancelled,
                       struct sbx_error *err)
{
	const struct daytona_ask ask = {.op = "daytona_delete",
	                                .method = "DELETE",
	                                .base = d->config.api_url,
	                                .deadline_ms = 2 * d->config.ask_ms,
	                                .repeat = SBX_HTTP_SAFE};
	struct daytona_box box;
	long status;
	int r = daytona_askf(d, ask, cancelled, &status, NULL, err, "/sandbox/%s", id);

	if (status == 404)
		return 0;
	if (r != -EBUSY || daytona_box_look(d, id, &box, cancelled, NULL) < 0)
		return r;
	return box.look.state == SBX_MACHINE_GONE ? 0 : r;
}

int daytona_remove(struct daytona *d, const char *id, atomic_bool *cancelled, struct sbx_error *err)
{
	const uint64_t until_ms = sbx_now_ms() + BUSY_MS;
	struct sbx_error own = SBX_ERROR_INIT;
	uint64_t pause_ms = 2 * d->config.pause_ms;
	int r;

	while ((r = remove_once(d, id, cancelled, &own)) == -EBUSY &&
	       sbx_now_ms() + pause_ms < until_ms) {
		r = sbx_pause(pause_ms, cancelled, &own);
		if (r)
			break;
		pause_ms *= 2;
		if (pause_ms > PAUSE_MOST * d->config.pause_ms)
			pause_ms = PAUSE_MOST * d->config.pause_ms;
	}
	if (r && err)
		*err = own;
	return r;
}

/* What has the name is ours, as nobody else gives such names. */
static int remove_by_name(struct daytona *d, const char *name, atomic_bool *cancelled,
                          struct sbx_error *err)
{
	struct daytona_box box;
	int r = daytona_box_look(d, name, &box, cancelled, err);

	if (r || box.look.state == SBX_MACHINE_GONE || strcmp(box.name, name) != 0)
		return r;
	return daytona_remove(d, box.id, cancelled, err);
}

int daytona_unmake(struct sbx_provider *p, const char *name, const char *handle,
                   atomic_bool *cancelled, struct sbx_error *err)
{
	struct json_object *obj = handle ? daytona_parse(handle, strlen(handle)) : NULL;
	struct daytona_box box;
	int r;

	if (obj && daytona_box_read(obj, &box, NULL) == 0)
		r = daytona_remove(daytona_of(p), box.id, cancelled, err);
	else
		r = remove_by_name(daytona_of(p), name, cancelled, err);
	json_object_put(obj);
	return r;
}

/* ---- finding ---- */

struct search {
	struct daytona *d;
	const char *label;
	int (*fn)(const char *name, const char *handle, int64_t made_ms, void *data);
	void *data;
	struct sbx_error *err;
};

/* The list is behind what is so, and a server may not know the filter. */
static int find_one(struct search *s, struct json_object *item)
{
	struct daytona_box listed, box;
	_cleanup_free_ char *handle = NULL;
	int r = daytona_box_read(item, &listed, s->err);

	if (r || strcmp(listed.label, s->label) != 0)
		return r;
	r = daytona_box_look(s->d, listed.id, &box, NULL, s->err);
	if (r || box.look.state == SBX_MACHINE_GONE || strcmp(box.label, s->label) != 0)
		return r;
	handle = daytona_handle(box.id, box.name, NULL, NULL, NULL);
	if (!handle)
		return sbx_no_memory(s->err);
	return s->fn(box.name, handle, box.made_ms, s->data);
}

static int find_page(struct search *s, struct json_object *page)
{
	struct json_object *items = daytona_member(page, "items", json_type_array);
	int r = 0;

	if (!items)
		return sbx_fail(s->err, EPROTO, "an answer of Daytona has no list");
	for (size_t i = 0; !r && i < json_object_array_length(items); i++)
		r = find_one(s, json_object_array_get_idx(items, i));
	return r;
}

/* The filter, as text of JSON in a query; NULL: no memory. */
static char *filter(const char *label)
{
	struct json_object *obj = json_object_new_object();
	char *text;

	daytona_add(obj, DAYTONA_LABEL, label);
	text = sbx_escape_percent(daytona_json(obj, &(size_t){0}), "/");
	json_object_put(obj);
	return text;
}

/* *CURSOR is NULL at first, and when there is no more. */
static int ask_page(struct search *s, const char *labels, char **cursor, struct json_object **ret)
{
	const struct daytona_ask ask = {.op = "daytona_list",
	                                .method = "GET",
	                                .base = s->d->config.api_url,
	                                .repeat = SBX_HTTP_SAFE};
	const char *next;
	int r = daytona_askf(s->d, ask, NULL, NULL, ret, s->err, "/sandbox?limit=100&labels=%s%s%s",
	                     labels, *cursor ? "&cursor=" : "", *cursor ? *cursor : "");

	free(*cursor);
	*cursor = NULL;
	if (r)
		return r;
	next = daytona_text(*ret, "nextCursor");
	if (*next && !(*cursor = sbx_escape_percent(next, "/")))
		return sbx_no_memory(s->err);
	return 0;
}

int daytona_find(struct sbx_provider *p, const char *label,
                 int (*fn)(const char *name, const char *handle, int64_t made_ms, void *data),
                 void *data, struct sbx_error *err)
{
	struct search s = {daytona_of(p), label, fn, data, err};
	_cleanup_free_ char *labels = filter(label), *cursor = NULL;
	int r = labels ? 0 : sbx_no_memory(err);

	/* A list that never ends is none. */
	for (unsigned n = 0; !r && (!n || cursor); n++) {
		struct json_object *page = NULL;

		r = n < PAGES_MAX ? ask_page(&s, labels, &cursor, &page)
		                  : sbx_fail(err, EPROTO, "a list of Daytona does not end");
		if (!r)
			r = find_page(&s, page);
		json_object_put(page);
	}
	return r;
}
