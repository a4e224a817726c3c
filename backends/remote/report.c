/*
 * The answers of a box to `info` and `policy`: what its machine is and takes, and what a request
 * means there. Each row of the policy says who sees to it: the provider, the runner, or nobody.
 */
#include <inttypes.h>
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>

#include "backends/remote/remote_impl.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"

static void add_string(struct json_object *obj, const char *key, const char *value)
{
	json_object_object_add(obj, key, json_object_new_string(value));
}

static void add_number(struct json_object *obj, const char *key, uint64_t value)
{
	if (value)
		json_object_object_add(obj, key, json_object_new_int64((int64_t)value));
}

/* Lock held. */
static const char *state_word(const struct remote_box *box)
{
	static const char *const phases[] = {[REMOTE_PHASE_CREATING] = "creating",
	                                     [REMOTE_PHASE_UP] = "ready",
	                                     [REMOTE_PHASE_FAILED] = "failed",
	                                     [REMOTE_PHASE_LEAVING] = "leaving"};

	if (box->gone)
		return "gone";
	if (box->rec.phase == REMOTE_PHASE_UP && box->looked &&
	    box->look.state == SBX_MACHINE_ASLEEP)
		return "asleep";
	return phases[box->rec.phase];
}

/* Lock held. */
static struct json_object *provider_json(struct remote_box *box)
{
	struct sbx_provider *p = box->backend->provider;
	struct json_object *obj = json_object_new_object();
	const struct sbx_machine_look *look = &box->look;

	add_string(obj, "name", p->impl->name);
	add_string(obj, "machine", box->rec.machine);
	if (p->impl->info)
		p->impl->info(p, obj);
	if (box->looked) {
		if (look->cpus > 0)
			json_object_object_add(obj, "cpus", json_object_new_double(look->cpus));
		add_number(obj, "memory_mb", look->memory_mb);
		add_number(obj, "disk_mb", look->disk_mb);
		if (look->region[0])
			add_string(obj, "region", look->region);
		add_number(obj, "expires_at_ms", (uint64_t)look->expires_ms);
		add_number(obj, "cpu_used_ms", look->used_ms);
	}
	if (box->link) {
		struct remote_link_stats stats;

		remote_link_stats(box->link, &stats);
		add_number(obj, "requests", stats.requests);
		add_number(obj, "bytes_sent", stats.sent);
		add_number(obj, "bytes_received", stats.received);
	}
	return obj;
}

void remote_box_report(struct remote_box *box, struct json_object *obj)
{
	struct remote_tree_stats stats;

	pthread_mutex_lock(&box->lock);
	add_string(obj, "state", state_word(box));
	if (box->rec.phase == REMOTE_PHASE_CREATING) {
		add_string(obj, "progress", box->progress);
		if (box->begun_ns)
			add_number(obj, "creating_ms", (sbx_now_ns() - box->begun_ns) / 1000000);
	}
	if (box->rec.reason)
		add_string(obj, "reason", box->rec.reason);
	if (box->machine)
		add_string(obj, "workdir", box->machine->workdir);
	json_object_object_add(obj, "provider", provider_json(box));
	pthread_mutex_unlock(&box->lock);
	remote_tree_stats(box->tree, &stats);
	json_object_object_add(obj, "files", json_object_new_int64((int64_t)stats.files));
	json_object_object_add(obj, "files_here", json_object_new_int64((int64_t)stats.here));
	json_object_object_add(obj, "unsent",
	                       json_object_new_boolean(remote_journal_pending(box->journal)));
}

static const char *network_text(const struct sbx_settings *s)
{
	if (!s->net || strcmp(s->net, "host") == 0)
		return "open, as the provider has it (net=host)";
	return sbx_settings_hosts(s) ? "only the hosts of net=allow:, by the provider"
	                             : "none, by the provider";
}

void remote_sandbox_policy(struct sbx_sandbox *sb, struct json_object *obj)
{
	const struct remote_box *box = sbx_container_of(sb, const struct remote_box, base);
	const struct sbx_settings *s = box->backend->host->settings;
	const struct {
		const char *key, *text;
	} rows[] = {
	        {"isolation", "the machine, by the provider; nothing of this host is in it"},
	        {"net", network_text(s)},
	        {"limits",
	         "cpu_s, file_mb, procs, memory_mb by the runner (ulimit), for each process; "
	         "output_bytes, jobs and time-outs here; disk_mb is refused"},
	        {"env", "by the runner: the machine's own, and what was set; none of this host's"},
	        {"allow", s->allow.n ? "by name, here, before a command is sent"
	                             : "any program of the machine"},
	        {"run_as", "refused: the machine's own user"},
	        {"trash", "none: what was not pushed goes with the sandbox"},
	};
	struct json_object *policy = json_object_new_object();

	for (size_t i = 0; i < SBX_ARRAY_SIZE(rows); i++)
		add_string(policy, rows[i].key, rows[i].text);
	json_object_object_add(obj, "remote", policy);
}
