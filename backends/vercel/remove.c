/* Removing sandboxes, and finding those that a daemon has made. Both may be done twice. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/support/escape.h"
#include "backends/support/pause.h"
#include "backends/vercel/vercel_impl.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"

#define BUSY_MS    60000 /* how long a change of state is waited for */
#define PAUSE_MOST 16    /* times the least */
#define PAGES_MAX  1000

/* ---- removing ---- */

/* Its snapshots go as well, which nobody could find. -EBUSY: its state is changing. */
static int remove_once(struct vercel *v, const char *name, atomic_bool *cancelled,
                       struct sbx_error *err)
{
	_cleanup_free_ char *query =
	        sbx_format("&projectId=%s&deleteOrphanSnapshots=true", v->project);
	const struct vercel_ask ask = {.op = "vercel_delete",
	                               .method = "DELETE",
	                               .query = query,
	                               .deadline_ms =
	                                       2 * v->config.ask_ms, /* its snapshots go as well */
	                               .repeat = SBX_HTTP_SAFE};
	struct vercel_said said;
	int r = vercel_ask(v, &ask, cancelled, &said, NULL, err, "/v2/sandboxes/%s", name);

	if (said.status == 404)
		return 0;
	return said.status == 409 || said.status == 410 || said.status == 422 ? -EBUSY : r;
}

int vercel_unmake(struct sbx_provider *p, const char *name, const char *handle,
                  atomic_bool *cancelled, struct sbx_error *err)
{
	const uint64_t until_ms = sbx_now_ms() + BUSY_MS;
	struct sbx_error own = SBX_ERROR_INIT;
	const uint64_t least_ms = vercel_of(p)->config.pause_ms;
	uint64_t pause_ms = least_ms;
	int r;

	(void)handle; /* the name is unique */
	if (!vercel_is_word(name, 128))
		return sbx_fail(err, EINVAL, "%s is no name of a sandbox of Vercel's", name);
	while ((r = remove_once(vercel_of(p), name, cancelled, &own)) == -EBUSY &&
	       sbx_now_ms() + pause_ms < until_ms) {
		r = sbx_pause(pause_ms, cancelled, &own);
		if (r)
			break;
		if (pause_ms < PAUSE_MOST * least_ms)
			pause_ms *= 2;
	}
	if (r && err)
		*err = own;
	return r;
}

/* ---- finding ---- */

struct search {
	struct vercel *v;
	const char *label;
	int (*fn)(const char *name, const char *handle, int64_t made_ms, void *data);
	void *data;
	struct sbx_error *err;
};

/* Who asks for one by its handle gets where it is from the next answer that shows its session. */
static int find_one(struct search *s, struct json_object *item)
{
	_cleanup_object_ struct json_object *handle = json_object_new_object();
	const char *cwd = sbx_member_text(item, "cwd");
	struct vercel_box box;
	int r = vercel_box_read(s->v, item, &box, s->err);

	/* A server may not know the filter. */
	if (r || strcmp(box.label, s->label) != 0)
		return r;
	sbx_member_add(handle, "name", box.name);
	sbx_member_add(handle, "workdir", *cwd == '/' ? cwd : NULL);
	return s->fn(box.name, sbx_object_text(handle, &(size_t){0}), box.made_ms, s->data);
}

static int find_page(struct search *s, struct json_object *page)
{
	struct json_object *items = sbx_member(page, "sandboxes", json_type_array);
	int r = 0;

	if (!items)
		return sbx_fail(s->err, EPROTO, "an answer of Vercel has no list");
	for (size_t i = 0; !r && i < json_object_array_length(items); i++)
		r = find_one(s, json_object_array_get_idx(items, i));
	return r;
}

/* *CURSOR is NULL at first, and when there is no more. */
static int ask_page(struct search *s, const char *label, char **cursor, struct json_object **ret)
{
	_cleanup_free_ char *query =
	        sbx_format("&project=%s&limit=50&sortOrder=asc&tags=" VERCEL_TAG "%%3A%s%s%s",
	                   s->v->project, label, *cursor ? "&cursor=" : "", *cursor ? *cursor : "");
	const struct vercel_ask ask = {
	        .op = "vercel_list", .method = "GET", .query = query, .repeat = SBX_HTTP_SAFE};
	const char *next;
	int r = vercel_ask(s->v, &ask, NULL, NULL, ret, s->err, "/v2/sandboxes");

	free(*cursor);
	*cursor = NULL;
	if (r)
		return r;
	next = sbx_member_text(sbx_member(*ret, "pagination", json_type_object), "next");
	if (*next && !(*cursor = sbx_escape_percent(next, "")))
		return sbx_no_memory(s->err);
	return 0;
}

int vercel_find(struct sbx_provider *p, const char *label,
                int (*fn)(const char *name, const char *handle, int64_t made_ms, void *data),
                void *data, struct sbx_error *err)
{
	struct search s = {vercel_of(p), label, fn, data, err};
	_cleanup_free_ char *escaped = sbx_escape_percent(label, ""), *cursor = NULL;
	int r = escaped ? 0 : sbx_no_memory(err);

	/* A list that never ends is none. */
	for (unsigned n = 0; !r && (!n || cursor); n++) {
		_cleanup_object_ struct json_object *page = NULL;

		r = n < PAGES_MAX ? ask_page(&s, escaped, &cursor, &page)
		                  : sbx_fail(err, EPROTO, "a list of Vercel does not end");
		if (!r)
			r = find_page(&s, page);
	}
	return r;
}
