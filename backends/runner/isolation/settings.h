/*
 * The settings of a mount that concern its commands, as the spawner knows them. The members are
 * those of struct sbx_settings.
 */
#ifndef SANDBOXFS_RUNNER_ISOLATION_SETTINGS_H
#define SANDBOXFS_RUNNER_ISOLATION_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "sandboxfs/settings.h"

struct isolation_settings {
	const char *isolation; /* NULL: "auto" */
	const char *net;       /* NULL: "none" */
	const char *mountpoint, *state_dir, *source_abs, *cache_dir;
	struct sbx_strings shown, covered, ro_paths, rw_paths, hide_paths;
	uint64_t memory_mb, cpu_percent; /* of a sandbox; 0: no limit */
	void *buf, *words;               /* what the others lie in */
};

/* Whether the isolation asked for is WORD. */
static inline bool isolation_is(const struct isolation_settings *settings, const char *word)
{
	return strcmp(settings->isolation ? settings->isolation : "auto", word) == 0;
}

/* Whether commands have the host's network. */
static inline bool isolation_net_is_host(const struct isolation_settings *settings)
{
	return settings->net && strcmp(settings->net, "host") == 0;
}

/* Whether commands reach some hosts, by a proxy: net=allow. */
static inline bool isolation_net_is_allow(const struct isolation_settings *settings)
{
	return settings->net && strncmp(settings->net, "allow:", 6) == 0;
}

#endif
