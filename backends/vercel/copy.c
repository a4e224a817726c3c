/*
 * A copy: Vercel takes a snapshot of the sandbox, which ends its session, and makes another sandbox
 * of that. Of one that sleeps there is a snapshot already. The next request to the sandbox wakes
 * it.
 *
 * A snapshot whose answer was lost is found by looking at the sandbox, which has stopped then.
 */
#include <errno.h>
#include <string.h>

#include "backends/support/pause.h"
#include "backends/vercel/vercel_impl.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"

#define SNAPSHOT_MS 120000
#define TRIES       4 /* at a session that stops meanwhile, or does not answer */

struct copying {
	struct vercel *v;
	struct vercel_machine *m;
	atomic_bool *cancelled;
	struct vercel_box box; /* M, as it was seen last */
	char snapshot[64];
};

/* ---- the snapshot ---- */

static int read_snapshot(struct json_object *obj, struct copying *c, struct sbx_error *err)
{
	struct json_object *snapshot = sbx_member(obj, "snapshot", json_type_object);
	const char *id = sbx_member_text(snapshot, "id");

	if (!vercel_is_word(id, sizeof(c->snapshot) - 1))
		return sbx_fail(err, EPROTO, "an answer of Vercel shows no snapshot");
	memcpy(c->snapshot, id, strlen(id) + 1);
	return 0;
}

static int take(struct copying *c, struct vercel_said *said, struct sbx_error *err)
{
	const struct vercel_ask ask = {.op = "vercel_snapshot",
	                               .method = "POST",
	                               .deadline_ms = SNAPSHOT_MS,
	                               .repeat = SBX_HTTP_UNSENT};
	_cleanup_object_ struct json_object *obj = NULL;
	int r = vercel_ask(c->v, &ask, c->cancelled, said, &obj, err,
	                   "/v2/sandboxes/sessions/%s/snapshot", c->box.session);

	if (!r)
		vercel_machine_stopped(c->m, c->box.session);
	return r ? r : read_snapshot(obj, c, err);
}

/* How it is when it is not on its way to another state. */
static int look(struct copying *c, struct sbx_error *err)
{
	const uint64_t until_ms = sbx_now_ms() + SNAPSHOT_MS;
	int r = vercel_box_look(c->v, c->m->name, &c->box, c->cancelled, err);

	while (!r && c->box.look.state == SBX_MACHINE_CHANGING) {
		if (sbx_now_ms() > until_ms)
			return sbx_fail(err, ETIMEDOUT,
			                "the sandbox has not stopped within two minutes");
		r = sbx_pause(c->v->config.pause_ms, c->cancelled, err);
		if (!r)
			r = vercel_box_look(c->v, c->m->name, &c->box, c->cancelled, err);
	}
	return r;
}

/* Whether it is worth looking what became of it: it has stopped, or may have. */
static bool may_have_stopped(int r, long status)
{
	return status == 410 || status == 422 || status >= 500 || r == -EPROTO ||
	       (!status && (r == -ETIMEDOUT || r == -EREMOTEIO || r == -EMSGSIZE));
}

/* One step to the snapshot. *AGAIN: look, and try once more. */
static int step(struct copying *c, bool *again, struct sbx_error *err)
{
	struct vercel_said said = {0};
	int r = look(c, err);

	*again = false;
	if (r)
		return r;
	switch (c->box.look.state) {
	case SBX_MACHINE_GONE:
		return sbx_fail(err, ESTALE, "the sandbox is gone at Vercel");
	case SBX_MACHINE_FAILED:
		return sbx_fail(err, EREMOTEIO, "%s", c->box.look.reason);
	default:
		break;
	}
	if (!c->box.persistent)
		return sbx_fail(err, EOPNOTSUPP,
		                "Vercel ends a sandbox to copy it, and this one is ephemeral: "
		                "it would be lost");
	if (c->box.look.state == SBX_MACHINE_UP) {
		r = take(c, &said, err);
		*again = r && may_have_stopped(r, said.status);
		return r;
	}
	if (!*c->box.snapshot)
		return sbx_fail(err, EREMOTEIO, "Vercel has no snapshot of the sandbox");
	memcpy(c->snapshot, c->box.snapshot, sizeof(c->snapshot));
	return 0;
}

static int find_snapshot(struct copying *c, struct sbx_error *err)
{
	bool again = true;
	int r = 0;

	for (unsigned i = 0; again && i < TRIES; i++) {
		r = i ? sbx_pause(c->v->config.pause_ms << i, c->cancelled, err) : 0;
		if (r)
			return r;
		r = step(c, &again, err);
	}
	return r;
}

/* ---- all of it ---- */

int vercel_copy(struct sbx_machine *machine, const char *name, struct sbx_machine **ret,
                atomic_bool *cancelled, struct sbx_error *err)
{
	struct copying c = {.v = vercel_of(machine->provider),
	                    .m = vercel_machine_of(machine),
	                    .cancelled = cancelled};
	struct sbx_machine_request req = {.name = name};
	struct sbx_error own = SBX_ERROR_INIT;
	int r = find_snapshot(&c, &own);

	*ret = NULL;
	req.label = c.box.label;
	if (!r)
		r = vercel_make_of(c.v, &req, c.snapshot, machine->workdir, ret, cancelled, &own);
	if (r == -EEXIST && *ret) {
		vercel_release(*ret);
		*ret = NULL;
	}
	if (r && err)
		*err = own;
	return r;
}
