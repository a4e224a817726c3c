/* The isolation that the spawner found in force, as ctl/policy shows it. */
#include "backends/runner/runner_impl.h"

#include <json-c/json.h>
#include <string.h>

static const char *mode(const struct sbx_spawner *sp)
{
	if (sp->settings->isolation && strcmp(sp->settings->isolation, "none") == 0)
		return "none";
	if (sp->features.mount_ns)
		return "namespaces";
	if (sp->features.landlock)
		return "landlock";
	return sp->features.pid_ns ? "pid_namespace" : "subreaper";
}

bool sbx_spawner_shows_tmp(const struct sbx_spawner *sp)
{
	return sp->features.mount_ns || !sp->features.landlock;
}

bool sbx_spawner_maps_memory(const struct sbx_spawner *sp)
{
	return sp->features.memory_owners;
}

bool sbx_spawner_views(const struct sbx_spawner *sp)
{
	return sp->features.mount_ns;
}

/* Without a namespace the filter refuses sockets. */
static const char *network(const struct sbx_spawner *sp)
{
	const char *net = sp->settings->net;
	const bool host = net && strcmp(net, "host") == 0;

	if (sbx_settings_hosts(sp->settings))
		return net;
	return sp->features.net_ns || (sp->features.seccomp && !host) ? "none" : "host";
}

static struct json_object *cgroup_json(const struct sbx_cgroup_features *features)
{
	struct json_object *obj = json_object_new_object();

	json_object_object_add(obj, "memory", json_object_new_boolean(features->memory));
	json_object_object_add(obj, "pids", json_object_new_boolean(features->pids));
	json_object_object_add(obj, "cpu", json_object_new_boolean(features->cpu));
	if (*features->reason)
		json_object_object_add(obj, "reason", json_object_new_string(features->reason));
	return obj;
}

/*
 * Those of others that stand below what is shown read only; where there are none at all nobody
 * reaches them.
 */
static const char *sockets(const struct sbx_spawner *sp)
{
	static const char *const words[] = {[SPAWN_SOCKETS_OPEN] = "open",
	                                    [SPAWN_SOCKETS_COVERED] = "covered",
	                                    [SPAWN_SOCKETS_CLOSED] = "closed"};

	return words[sp->features.sockets];
}

/* The meaning of memory_mb here. */
static const char *memory_wall(const struct spawn_features *features)
{
	if (features->cgroup.memory)
		return "cgroup";
	return spawn_watches(features) ? "watched" : "address space";
}

void sbx_spawner_policy(struct sbx_spawner *sp, struct json_object *obj)
{
	struct json_object *iso = json_object_new_object();

	json_object_object_add(iso, "mode", json_object_new_string(mode(sp)));
	json_object_object_add(iso, "user_ns", json_object_new_boolean(sp->features.user_ns));
	json_object_object_add(iso, "pid_ns", json_object_new_boolean(sp->features.pid_ns));
	json_object_object_add(iso, "mount_ns", json_object_new_boolean(sp->features.mount_ns));
	json_object_object_add(iso, "net_ns", json_object_new_boolean(sp->features.net_ns));
	json_object_object_add(iso, "landlock", json_object_new_int(sp->features.landlock));
	json_object_object_add(iso, "seccomp", json_object_new_boolean(sp->features.seccomp));
	json_object_object_add(iso, "no_capabilities",
	                       json_object_new_boolean(sp->features.isolated));
	json_object_object_add(iso, "no_new_privs", json_object_new_boolean(true));
	json_object_object_add(iso, "sockets", json_object_new_string(sockets(sp)));
	json_object_object_add(iso, "run_as", json_object_new_int64(sp->features.who.uid));
	if (*sp->features.reason)
		json_object_object_add(iso, "reason", json_object_new_string(sp->features.reason));
	json_object_object_add(obj, "isolation", iso);
	json_object_object_add(obj, "cgroup", cgroup_json(&sp->features.cgroup));
	json_object_object_add(obj, "memory", json_object_new_string(memory_wall(&sp->features)));
	json_object_object_add(obj, "network", json_object_new_string(network(sp)));
}
