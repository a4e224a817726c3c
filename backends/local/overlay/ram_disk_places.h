/* What is on a disk of limited size beside the upper layer. */
#ifndef SANDBOXFS_LOCAL_OVERLAY_RAM_DISK_PLACES_H
#define SANDBOXFS_LOCAL_OVERLAY_RAM_DISK_PLACES_H

#include <stdatomic.h>

#include "backends/local/overlay/overlay.h"

/* Part of sbx_layers_load and sbx_layers_save. [pool] */
int sbx_layers_load_places(const struct sbx_layers *layers, const struct sbx_state *state,
                           const char *id, int disk, struct sbx_error *err);
int sbx_layers_save_places(const struct sbx_state *state, const char *id, int disk,
                           atomic_bool *cancelled, struct sbx_error *err);

#endif
