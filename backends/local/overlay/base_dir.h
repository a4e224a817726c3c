/* Bases from plain directories. */
#ifndef SANDBOXFS_LOCAL_OVERLAY_BASE_DIR_H
#define SANDBOXFS_LOCAL_OVERLAY_BASE_DIR_H

#include "backends/local/overlay/base.h"
#include "backends/support/tree.h"
#include "sandboxfs/identity.h"

#define SBX_BASE_SKIPS 4

struct sbx_base_dir {
	struct sbx_base_recipe recipe; /* data points to this */
	char key[SBX_BASE_KEY_MAX];
	int source; /* open: the caller's */
	struct sbx_skip skips[SBX_BASE_SKIPS];
	size_t nskips;
	struct sbx_identity owner;
	uint64_t left_out; /* sockets and devices that a copy does not have */
};

/*
 * Completes D, of which source, skips and owner are given, by looking at each file of the source:
 * whatever changes there makes another key. EMLINK: it has hard links, which a lower layer does not
 * keep; EINTR. The fill fails with EAGAIN when the source changes meanwhile.
 */
int sbx_base_dir_look(struct sbx_base_dir *d, atomic_bool *cancelled, struct sbx_error *err);

#endif
