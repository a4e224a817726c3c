/* One row per limit; a soft CPU limit one second below the hard one gives SIGXCPU first. */
#include "backends/runner/spawner/rlimits.h"

#include <stddef.h>

#include "sandboxfs/cleanup.h"
#include "sandboxfs/mitigations.h"

#define MIB     ((uint64_t)1024 * 1024)
#define SIGNALS 1024

static int lower(__rlimit_resource_t what, uint64_t soft, uint64_t hard)
{
	struct rlimit now;

	if (getrlimit(what, &now) < 0)
		return -1;
	if (now.rlim_max > hard)
		now.rlim_max = hard;
	now.rlim_cur = soft < now.rlim_max ? soft : now.rlim_max;
	return setrlimit(what, &now);
}

int limits_no_core(void)
{
	return sbx_mitigation_off("limits") ? 0 : lower(RLIMIT_CORE, 1, 1);
}

static uint64_t scaled(uint64_t value, uint64_t unit)
{
	return value > RLIM_INFINITY / unit ? RLIM_INFINITY : value * unit;
}

static uint64_t countable(uint64_t procs, const struct spawn_features *features)
{
	return features->user_ns || procs != SBX_PROCS_DEFAULT ? procs : 0;
}

/*
 * Descriptors in flight between sockets are counted for the user, who may be the daemon's too: who
 * has less than it cannot have so many there that it can send none. So are signals that wait.
 */
int limits_apply(const struct sbx_limits *limits, const struct spawn_features *features,
                 const struct rlimit *nofile)
{
	const struct {
		__rlimit_resource_t what;
		uint64_t value, unit, slack;
	} rows[] = {
	        {RLIMIT_CPU, limits->cpu_s, 1, 1},
	        {RLIMIT_AS, features->cgroup.memory ? 0 : limits->memory_mb, MIB, 0},
	        {RLIMIT_NPROC, countable(limits->procs, features), 1, 0},
	        {RLIMIT_FSIZE, limits->file_mb, MIB, 0},
	};

	if (sbx_mitigation_off("limits"))
		return 0;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(rows); i++) {
		uint64_t soft = scaled(rows[i].value, rows[i].unit);

		if (rows[i].value && lower(rows[i].what, soft, soft + rows[i].slack) < 0)
			return -1;
	}
	if (lower(RLIMIT_SIGPENDING, SIGNALS, SIGNALS) < 0)
		return -1;
	return lower(RLIMIT_NOFILE, nofile->rlim_cur, nofile->rlim_max - nofile->rlim_max / 4);
}
