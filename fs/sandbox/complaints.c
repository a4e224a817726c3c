/*
 * The stderr of a failed command, searched for files that the sandbox does not show. To the
 * command the kernel says only "no such file". So its stderr is read once it has ended, and every
 * complaint that proves true is told. A command that succeeds costs nothing.
 */
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

#include "fs/log/complaints.h"
#include "fs/sandbox/registry.h"
#include "fs/sandbox/registry_impl.h"
#include "fs/sandbox/track.h"
#include "fs/sandbox/unshown.h"
#include "sandboxfs/away.h"
#include "sandboxfs/cleanup.h"

#define HEARD_MAX (16 * 1024) /* bytes at the end of stderr */

struct hearing {
	struct box *box;
	struct sbx_jobrec *rec;
	void (*then)(void *arg);
	void *arg;
};

enum wall { WALL_NONE, WALL_VIEW, WALL_LANDLOCK };

static void hint(struct box *box, const char *job, const char *text)
{
	struct sbx_jobrec *rec = sbx_job_find(box->pub.jobs, job);

	if (rec)
		sbx_job_set_hint(rec, text);
	sbx_job_unref(rec);
}

/*
 * Also stores a denial as the sandbox's last error, because a command sees it only as an error of
 * its own.
 */
void sbx_box_denied(const struct sbx_denial_report *denied, void *data)
{
	struct box *box = data;
	struct sbx_error err = SBX_ERROR_INIT;

	if (denied->kind == SBX_DENIED_NETWORK) {
		sbx_fail(&err, ENETUNREACH, "%s tried to reach %s: %s", denied->program,
		         denied->what, denied->reason);
		sbx_error_store(box->pub.registry, &box->pub, &err);
		hint(box, denied->job, err.text);
	}
	sbx_denials_add(box->pub.denials, denied);
}

/* The mechanism that keeps the host out of sight, as ctl/policy has it. */
static enum wall wall_of(struct box *box)
{
	struct json_object *obj = json_object_new_object(), *iso, *mode;
	enum wall ret = WALL_NONE;

	sbx_sandbox_policy(box->pub.sandbox, obj);
	if (json_object_object_get_ex(obj, "isolation", &iso) &&
	    json_object_object_get_ex(iso, "mode", &mode)) {
		if (strcmp(json_object_get_string(mode), "namespaces") == 0)
			ret = WALL_VIEW;
		else if (strcmp(json_object_get_string(mode), "landlock") == 0)
			ret = WALL_LANDLOCK;
	}
	json_object_put(obj);
	return ret;
}

/* The end of REC's stderr from the beginning of a line; malloc'd, NULL: there is nothing in it. */
static char *read_end(struct sbx_jobrec *rec, size_t *len)
{
	const uint64_t size = sbx_job_output_size(rec, 2);
	const uint64_t from = size > HEARD_MAX ? size - HEARD_MAX : 0;
	char *text = malloc(HEARD_MAX + 1), *line = text;
	ssize_t n = text ? sbx_job_output_read(rec, 2, text, HEARD_MAX, from) : -1;

	if (n > 0 && from) {
		line = memchr(text, '\n', (size_t)n);
		n = line ? n - (line - text) : 0;
	}
	if (n <= 0) {
		free(text);
		return NULL;
	}
	memmove(text, line, (size_t)n);
	text[n] = '\0';
	*len = (size_t)n;
	return text;
}

static void tell(struct hearing *h, enum sbx_complaint_kind kind, const struct sbx_refusal *refusal)
{
	_cleanup_free_ char *program = sbx_job_program(h->rec);
	const struct sbx_denial_report denied = {
	        .kind = kind == SBX_COMPLAINT_PROGRAM ? SBX_DENIED_PROGRAM : SBX_DENIED_PATH,
	        .what = refusal->what,
	        .program = program,
	        .reason = refusal->reason,
	        .job = sbx_job_name(h->rec)};
	struct sbx_error err = SBX_ERROR_INIT;

	sbx_box_denied(&denied, h->box);
	sbx_fail(&err, refusal->code, "%.100s: %.400s: %s", program ? program : "", refusal->what,
	         refusal->reason);
	sbx_error_store(h->box->pub.registry, &h->box->pub, &err);
	sbx_job_set_hint(h->rec, err.text);
}

static void tell_all(struct hearing *h, const struct sbx_complaints *complaints)
{
	const struct sbx_settings *settings = h->box->pub.registry->config.settings;
	const enum wall wall = wall_of(h->box);
	struct sbx_unshown *u = NULL;
	_cleanup_free_ struct sbx_refusal *refusal = malloc(sizeof(*refusal));

	if (refusal && wall != WALL_NONE)
		u = sbx_unshown_open(settings, wall == WALL_LANDLOCK);
	/* As written: what made the command give up is then the last error. */
	for (size_t i = u ? complaints->n : 0; i-- > 0;)
		if (sbx_unshown_find(u, &complaints->all[i], refusal))
			tell(h, complaints->all[i].kind, refusal);
	sbx_unshown_close(u);
}

/* [loop] */
static void heard(void *data)
{
	struct hearing *h = data;

	if (!sbx_box_track_end(&h->box->pub, h->rec, false, h->then, h->arg))
		h->then(h->arg);
	sbx_job_unref(h->rec);
	free(h);
}

/* [pool] */
static void hear(void *data)
{
	struct hearing *h = data;
	struct sbx_complaints complaints = {0};
	size_t len;
	_cleanup_free_ char *text = read_end(h->rec, &len);

	if (text)
		sbx_complaints_read(text, len, &complaints);
	if (complaints.n)
		tell_all(h, &complaints);
	sbx_loop_post(h->box->pub.registry->config.loop, heard, h);
}

bool sbx_box_hear(struct box *box, struct sbx_jobrec *rec, const struct sbx_exit *exit,
                  void (*then)(void *arg), void *arg)
{
	struct hearing *h;

	/* It is about what this machine has, and does not show. */
	if (sbx_is_away(box->pub.sandbox))
		return false;
	if (exit->end != SBX_END_EXITED || exit->code == 0 || !sbx_job_output_size(rec, 2))
		return false;
	h = sbx_must_alloc(sizeof(*h));
	*h = (struct hearing){.box = box, .rec = sbx_job_ref(rec), .then = then, .arg = arg};
	sbx_pool_submit(box->pub.registry->config.lane, hear, h);
	return true;
}
