/* The first manifest, or the first of another daemon: all of the tree, and small contents. */
#include <errno.h>
#include <string.h>

#include "backends/remote/deadline.h"
#include "backends/remote/fetch.h"

/* Fills what has come with the manifest that is in the same reply. */
static int fill_all(struct remote_tree *t, const struct remote_reply *reply, struct sbx_error *err)
{
	const struct remote_frame *list, *tar;
	struct remote_manifest m;
	size_t at = 0;
	int r;

	list = remote_reply_next(reply, &at, REMOTE_MANIFEST, NULL);
	at = 0;
	tar = remote_reply_next(reply, &at, REMOTE_TAR, NULL);
	if (!list || !tar)
		return 0;
	r = remote_manifest_read(list->bytes, list->len, 0, &m, err);
	if (r)
		return r;
	pthread_mutex_lock(&t->taking);
	r = remote_fill_tar(t, &m, list->a, tar->bytes, tar->len, err);
	pthread_mutex_unlock(&t->taking);
	remote_manifest_release(&m);
	return r;
}

static int refresh(struct remote_tree *t, bool fill, const struct remote_also *also,
                   atomic_bool *cancelled, struct sbx_error *err)
{
	struct remote_call call = {.op = "tree",
	                           .safe = true,
	                           .deadline_ms =
	                                   60000 + (fill ? remote_bytes_ms(REMOTE_FILL) : 0)};
	const uint64_t seen = t->cfg.seen(t->cfg.data);
	struct remote_reply reply = {0};
	bool altered = false;
	int64_t floor_ns;
	int r;

	pthread_mutex_lock(&t->lock);
	floor_ns = t->known_ns;
	pthread_mutex_unlock(&t->lock);
	if (also)
		remote_text_add(&call.body, also->lines);
	remote_ask_all(t, &call.body);
	if (fill)
		remote_text_printf(&call.body, "r_gather %llu %llu\n",
		                   (unsigned long long)REMOTE_FILL,
		                   (unsigned long long)REMOTE_FILL);
	r = remote_call_perform(t->link, &call, cancelled, &reply, err);
	if (r)
		return r;
	if (also)
		also->heard(&reply, also->data);
	r = remote_take(t, &reply, seen, floor_ns, REMOTE_ASKED_ALL, &altered, err);
	if (!r && fill)
		r = fill_all(t, &reply, err);
	remote_reply_release(&reply);
	if (altered)
		sbx_sandbox_altered(t->cfg.sandbox);
	return r;
}

int remote_tree_refresh(struct remote_tree *t, bool fill, const struct remote_also *also,
                        atomic_bool *cancelled, struct sbx_error *err)
{
	int r = refresh(t, fill, also, cancelled, err);

	/* On a slow line contents come as they are asked for. */
	if (r == -ETIMEDOUT && fill)
		r = refresh(t, false, also, cancelled, err);
	pthread_mutex_lock(&t->lock);
	t->refreshing = false;
	pthread_mutex_unlock(&t->lock);
	remote_fetch_kick(t);
	return r;
}
