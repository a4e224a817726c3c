#include "fs/control/creation.h"

#include <errno.h>

#include "fs/control/request_file.h"

static void removed(int code, struct sbx_box *box, const struct sbx_error *err, void *data)
{
	(void)code;
	(void)box;
	(void)err;
	(void)data;
}

/*
 * [loop] As who removes it would: what goes on of its making is given up. Who was faster may have
 * made another of that name.
 */
static void give_up(struct sbx_control_handle *h, struct sbx_box *box)
{
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_box *now;
	char name[64];

	sbx_box_name(box, name);
	now = sbx_registry_find(h->reg, name);
	if (now == box)
		sbx_registry_teardown(h->reg, name, false, removed, NULL);
	sbx_box_unref(now);
	sbx_fail(&err, EINTR, "creating %s was given up", name);
	sbx_request_file_done(h, -EINTR, &err);
}

/* [loop] */
static void finish(struct control_creation *c, struct sbx_box *box, const struct sbx_error *err)
{
	if (c->works)
		c->works(c->h, box);
	sbx_request_file_done(c->h, 0, err);
}

/* [loop] One that could not be made stays, and says why, until it is removed. */
static void came_up(struct sbx_await *a, int code, const struct sbx_error *err)
{
	struct control_creation *c = a->data;

	c->coming = false;
	if (c->given_up)
		give_up(c->h, a->box);
	else if (code)
		sbx_request_file_done(c->h, -code, err);
	else
		finish(c, a->box, err);
}

/* [loop] What had ended when it was cancelled has succeeded. */
static void made(int code, struct sbx_box *box, const struct sbx_error *err, void *data)
{
	struct control_creation *c = data;

	pthread_mutex_lock(&c->h->lock);
	c->creation = NULL;
	pthread_mutex_unlock(&c->h->lock);
	if (code < 0) {
		sbx_request_file_done(c->h, code, err);
	} else if (c->given_up) {
		give_up(c->h, box);
	} else if (sbx_is_away(box->sandbox)) {
		c->coming = true;
		c->up = (struct sbx_await){
		        .want = {.need = SBX_NEED_UP, .path = ""}, .done = came_up, .data = c};
		sbx_box_await(box, &c->up);
	} else {
		finish(c, box, err);
	}
}

void sbx_control_make(struct control_creation *c, const struct sbx_create_request *req)
{
	c->given_up = false;
	c->creation = sbx_registry_make(c->h->reg, req, made, c);
}

void sbx_control_fork(struct control_creation *c, const struct sbx_create_request *req,
                      const char *rev)
{
	c->given_up = false;
	c->creation = sbx_registry_fork(c->h->node.box, req, rev, made, c);
}

void sbx_control_creation_cancel(struct control_creation *c)
{
	pthread_mutex_lock(&c->h->lock);
	if (c->creation)
		sbx_registry_cancel(c->creation);
	pthread_mutex_unlock(&c->h->lock);
	c->given_up = true;
	if (c->coming)
		sbx_await_cancel(&c->up);
}
