#include "fs/fuse/open_dir.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>

void sbx_open_dirs_init(struct sbx_open_dirs *dirs)
{
	pthread_mutex_init(&dirs->lock, NULL);
	dirs->first = NULL;
}

static void open_dir_free(struct sbx_open_dir *d)
{
	pthread_mutex_destroy(&d->lock);
	sbx_listing_unref(d->listing);
	free(d);
}

void sbx_open_dirs_finish(struct sbx_open_dirs *dirs)
{
	for (struct sbx_open_dir *d = dirs->first, *next; d; d = next) {
		next = d->next;
		open_dir_free(d);
	}
	pthread_mutex_destroy(&dirs->lock);
}

struct sbx_open_dir *sbx_open_dir_add(struct sbx_open_dirs *dirs, struct sbx_listing *listing,
                                      struct fuse_file_info *fi)
{
	struct sbx_open_dir *d = calloc(1, sizeof(*d));

	if (!d) {
		sbx_listing_unref(listing);
		return NULL;
	}
	pthread_mutex_init(&d->lock, NULL);
	d->listing = listing;
	pthread_mutex_lock(&dirs->lock);
	d->next = dirs->first;
	if (d->next)
		d->next->prev = d;
	dirs->first = d;
	pthread_mutex_unlock(&dirs->lock);
	fi->fh = (uintptr_t)d;
	return d;
}

struct sbx_open_dir *sbx_open_dir_of(const struct fuse_file_info *fi)
{
	return (struct sbx_open_dir *)(uintptr_t)fi->fh;
}

void sbx_open_dir_close(struct sbx_open_dirs *dirs, struct sbx_open_dir *d)
{
	pthread_mutex_lock(&dirs->lock);
	assert(d->prev ? d->prev->next == d : dirs->first == d);
	if (d->prev)
		d->prev->next = d->next;
	else
		dirs->first = d->next;
	if (d->next)
		d->next->prev = d->prev;
	pthread_mutex_unlock(&dirs->lock);
	open_dir_free(d);
}
