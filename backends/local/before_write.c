/*
 * What is written through the mount, as far as it matters to what a teardown saves. The row of removals is made by the first: a
 * sandbox in which nothing is removed has none.
 */
#include <fcntl.h>
#include <unistd.h>

#include "backends/local/overlay/paths.h"
#include "backends/local/trash/removal_log.h"
#include "backends/local/trash/save.h"
#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"

static struct sbx_kept_row *kept_row(struct sbx_local_sandbox *s)
{
	const bool limited = s->base.unsaved;
	struct sbx_kept_place place = {
	        .id = s->base.id, .edits = &s->edits, .shared = limited ? &s->base.busy : NULL};
	struct sbx_kept_row *row;

	pthread_mutex_lock(&s->lock);
	row = s->kept;
	if (!row) {
		place.root = s->root;
		place.room = limited ? sbx_dir_make(s->disk, "kept", 0700)
		                     : sbx_dir_open(s->backend->state.kept, ".");
		place.own = s->rec.layer ? sbx_local_upper(s->backend, &s->rec, s->disk)
		                         : sbx_dir_open(s->root, ".");
		if (place.room < 0 || place.own < 0 ||
		    sbx_kept_open(s->backend->kept, &place, &row)) {
			sbx_cleanup_fd(&place.room);
			sbx_cleanup_fd(&place.own);
			row = NULL;
		}
		__atomic_store_n(&s->kept, row, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&s->lock);
	return row;
}

bool sbx_local_make_room(struct sbx_sandbox *sb)
{
	struct sbx_local_sandbox *s = sbx_local_downcast(sb);
	struct sbx_kept_row *row = __atomic_load_n(&s->kept, __ATOMIC_ACQUIRE);

	return row && sbx_kept_make_room(row);
}

void sbx_local_changing(struct sbx_sandbox *sb, int dirfd, const char *name)
{
	struct sbx_local_sandbox *s = sbx_local_downcast(sb);
	struct sbx_kept_row *row;

	if (!name) {
		atomic_fetch_add_explicit(&s->edits, 1, memory_order_relaxed);
		return;
	}
	if (!s->backend->kept)
		return;
	row = __atomic_load_n(&s->kept, __ATOMIC_ACQUIRE);
	if (!row)
		row = kept_row(s);
	if (row)
		sbx_kept_removing(row, dirfd, name);
}
