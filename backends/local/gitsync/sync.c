/*
 * Steps that all parts of a pass share: note what keeps the sides apart, open what is read, hold
 * what is written.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "backends/git/git_impl.h"
#include "backends/local/gitsync/sync_impl.h"
#include "backends/support/beneath.h"

void sbx_sync_note(struct sbx_sync *y, int code, const struct sbx_error *err)
{
	y->apart = true;
	if (y->code)
		return;
	y->code = code;
	if (err->code)
		*y->err = *err;
	else
		sbx_fail(y->err, -code, "git state could not be brought over: %s", strerror(-code));
}

void sbx_sync_leave(struct sbx_sync *y, const struct sbx_error *err)
{
	const bool apart = y->apart;

	sbx_sync_note(y, -err->code, err);
	y->apart = apart;
	y->left = true;
}

int sbx_sync_reader(struct sbx_sync *y)
{
	struct sbx_error err = SBX_ERROR_INIT;
	int r;

	if (y->reader)
		return 0;
	y->objects = sbx_beneath_open(y->repo, "objects", O_RDONLY | O_DIRECTORY);
	r = y->objects < 0 ? y->objects
	                   : sbx_git_reader_open(y->objects, &sbx_git_bounds, &y->reader);
	if (r)
		sbx_sync_note(y, r, &err);
	return r;
}

int sbx_sync_hold_index(struct sbx_sync *y)
{
	if (y->index_lock < 0)
		y->index_lock = sbx_locked_open(y->repo, "index");
	return y->index_lock < 0 ? y->index_lock : 0;
}
