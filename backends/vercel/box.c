/* A sandbox as Vercel shows it: a record that has a name, and the session that it runs in. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/vercel/vercel_impl.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"

#define DAY_MS 86400000.0

static const struct {
	const char *word;
	enum sbx_machine_state state;
} states[] = {
        {"running", SBX_MACHINE_UP},        {"pending", SBX_MACHINE_CHANGING},
        {"stopping", SBX_MACHINE_CHANGING}, {"snapshotting", SBX_MACHINE_CHANGING},
        {"stopped", SBX_MACHINE_ASLEEP},    {"failed", SBX_MACHINE_FAILED},
        {"aborted", SBX_MACHINE_FAILED},
};

static enum sbx_machine_state state_of(const char *word)
{
	for (size_t i = 0; i < SBX_ARRAY_SIZE(states); i++)
		if (strcmp(states[i].word, word) == 0)
			return states[i].state;
	return SBX_MACHINE_CHANGING;
}

bool vercel_is_word(const char *word, size_t most)
{
	const size_t n = strlen(word);

	return n && n <= most &&
	       strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	                    "0123456789-_") == n;
}

static bool copy_word(char *to, size_t size, const char *from)
{
	if (!vercel_is_word(from, size - 1))
		return false;
	memcpy(to, from, strlen(from) + 1);
	return true;
}

/* A path that can stand in a line, and below which others are named. */
static bool copy_path(char *to, size_t size, const char *from)
{
	const size_t n = strlen(from);

	if (*from != '/' || n < 2 || n >= size || from[n - 1] == '/' || strpbrk(from, "\r\n"))
		return false;
	memcpy(to, from, n + 1);
	return true;
}

/* A time, or a number of milliseconds; 0: it is none. */
static int64_t ms_of(struct json_object *obj, const char *key)
{
	const double ms = sbx_member_number(obj, key);

	return ms > 0 && ms < 1e15 ? (int64_t)ms : 0;
}

static int64_t ends_ms(struct json_object *session)
{
	const int64_t started = ms_of(session, "startedAt");
	const double life = sbx_member_number(session, "timeout");

	return started && life > 0 && life <= 30 * DAY_MS ? started + (int64_t)life : 0;
}

/* Clocks may differ, but what is left is no more than a whole life. */
static uint64_t left_ms(struct json_object *session)
{
	const int64_t life = ms_of(session, "timeout");
	const int64_t left = ends_ms(session) - sbx_real_ms();

	return left <= 0 ? 0 : (uint64_t)(left < life ? left : life);
}

static int net_of(const struct vercel *v, struct json_object *obj)
{
	struct json_object *shown = sbx_member(obj, "networkPolicy", json_type_object);

	if (!shown && !v->net.open)
		return VERCEL_NET_UNSAID;
	return vercel_net_is(&v->net, shown) ? VERCEL_NET_RIGHT : VERCEL_NET_WRONG;
}

static void read_look(struct json_object *sandbox, struct json_object *session,
                      struct vercel_box *box)
{
	struct sbx_machine_look *look = &box->look;
	const char *status = sbx_member_text(session ? session : sandbox, "status");
	const bool kept = box->persistent || *sbx_member_text(sandbox, "currentSnapshotId");

	look->state = state_of(status);
	box->left = strcmp(status, "stopped") == 0;
	/* What stopped and left nothing behind is no more. */
	if (look->state == SBX_MACHINE_ASLEEP && !kept)
		look->state = SBX_MACHINE_GONE;
	if (look->state == SBX_MACHINE_FAILED)
		snprintf(look->reason, sizeof(look->reason), "Vercel says that it has %s",
		         strcmp(status, "aborted") == 0 ? "been aborted" : "failed");
	look->cpus = sbx_member_number(sandbox, "vcpus");
	look->memory_mb = (uint64_t)ms_of(sandbox, "memory");
	look->used_ms = (uint64_t)ms_of(sandbox, "totalActiveCpuDurationMs");
	snprintf(look->region, sizeof(look->region), "%.63s", sbx_member_text(sandbox, "region"));
	look->expires_ms = session ? ends_ms(session) : ms_of(sandbox, "expiresAt");
	if (look->state != SBX_MACHINE_UP)
		look->expires_ms = 0;
}

int vercel_box_read(const struct vercel *v, struct json_object *obj, struct vercel_box *ret,
                    struct sbx_error *err)
{
	struct json_object *sandbox = sbx_member(obj, "sandbox", json_type_object);
	struct json_object *session = sbx_member(obj, "session", json_type_object);
	struct json_object *tags;

	*ret = (struct vercel_box){0};
	if (!sandbox)
		sandbox = obj;
	tags = sbx_member(sandbox, "tags", json_type_object);
	if (!copy_word(ret->name, sizeof(ret->name), sbx_member_text(sandbox, "name")) ||
	    (session &&
	     (!copy_word(ret->session, sizeof(ret->session), sbx_member_text(session, "id")) ||
	      !copy_path(ret->cwd, sizeof(ret->cwd), sbx_member_text(session, "cwd")))))
		return sbx_fail(err, EPROTO, "an answer of Vercel shows no sandbox");
	snprintf(ret->label, sizeof(ret->label), "%s", sbx_member_text(tags, VERCEL_TAG));
	copy_word(ret->snapshot, sizeof(ret->snapshot),
	          sbx_member_text(sandbox, "currentSnapshotId"));
	ret->persistent = sbx_member_flag(sandbox, "persistent");
	ret->made_ms = ms_of(sandbox, "createdAt");
	ret->left_ms = left_ms(session);
	ret->net = net_of(v, session);
	ret->net_later = net_of(v, sandbox);
	read_look(sandbox, session, ret);
	return 0;
}

int vercel_box_look(struct vercel *v, const char *name, struct vercel_box *ret,
                    atomic_bool *cancelled, struct sbx_error *err)
{
	_cleanup_free_ char *query = sbx_format("&projectId=%s", v->project);
	const struct vercel_ask ask = {
	        .op = "vercel_look", .method = "GET", .query = query, .repeat = SBX_HTTP_SAFE};
	_cleanup_object_ struct json_object *obj = NULL;
	struct vercel_said said;
	int r = vercel_ask(v, &ask, cancelled, &said, &obj, err, "/v2/sandboxes/%s", name);

	if (said.status == 404) {
		*ret = (struct vercel_box){.look.state = SBX_MACHINE_GONE};
		return 0;
	}
	return r ? r : vercel_box_read(v, obj, ret, err);
}
