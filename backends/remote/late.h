/*
 * Machines that may come late: a create whose request was given up, or whose answer was lost, may
 * be carried out by the provider when nobody waits for it any more. The name of such a machine is a
 * file STATE/late/NAME until it was found and removed, or its time is over. It is looked for in the
 * background, also by later mounts, with pauses that grow.
 */
#ifndef SANDBOXFS_BACKENDS_REMOTE_LATE_H
#define SANDBOXFS_BACKENDS_REMOTE_LATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct sbx_loop;
struct sbx_pool;
struct sbx_provider;
struct remote_late;

struct remote_late_config {
	struct sbx_provider *provider;
	const char *label; /* of the machines */
	int state;         /* the state directory */
	struct sbx_loop *loop;
	struct sbx_pool *pool; /* [wait] */
	uint64_t first_ms;     /* before the first look; 0: 2000 */
	atomic_bool *ending;   /* what works in the pool gives up */
	/* [any] A sandbox has the machine NAME, or removes it itself. */
	bool (*used)(const char *name, void *data);
	/* [wait] NAME came late, and was removed. */
	void (*removed)(const char *name, void *data);
	void *data;
};

/* 0 or -ENOMEM. CONFIG is copied; what it points to stays. Close *ret. */
int remote_late_open(const struct remote_late_config *config, struct remote_late **ret);
/* [any] Looks for what earlier mounts have noted. Once. */
void remote_late_begin(struct remote_late *l);
/*
 * [any] The machine NAME may come late. What cannot be written down, since the disk is full, is
 * looked for by this mount alone. The loop runs.
 */
void remote_late_note(struct remote_late *l, const char *name);
/* The loop has stopped, and nothing of it is in the pool any more. Accepts NULL. */
void remote_late_close(struct remote_late *l);

#endif
