/* A tar of files of the tree. It is hostile: only what was listed is taken, and only that long. */
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backends/remote/fetch.h"
#include "sandboxfs/cleanup.h"

static void free_archive(struct archive **a)
{
	archive_read_free(*a);
}

static int read_entry(struct archive *a, struct remote_tree *t, const struct remote_listed *l,
                      uint64_t begun)
{
	const size_t size = (size_t)l->size;
	_cleanup_free_ char *bytes = malloc(size);
	size_t have = 0;
	int r;

	if (!bytes)
		return -ENOMEM;
	while (have < size) {
		ssize_t n = archive_read_data(a, bytes + have, size - have);

		if (n <= 0)
			return 0;
		have += (size_t)n;
	}
	r = remote_fill(t, l, begun, 0, bytes, size);
	return r < 0 ? r : 0;
}

static int64_t seconds_of(int64_t ns)
{
	return ns / 1000000000 - (ns % 1000000000 < 0);
}

/* What the entry is a file of, if it may be taken. */
static const struct remote_listed *listed(const struct remote_manifest *m, struct archive_entry *e)
{
	const char *path = archive_entry_pathname(e);
	const struct remote_listed *l;

	if (!path || archive_entry_filetype(e) != AE_IFREG || archive_entry_hardlink(e))
		return NULL;
	if (strncmp(path, "./", 2) == 0)
		path += 2;
	l = remote_manifest_find(m, path);
	if (!l || !S_ISREG(l->mode) || !l->size || l->size > REMOTE_FILL ||
	    archive_entry_size(e) != (int64_t)l->size ||
	    archive_entry_mtime(e) != seconds_of(l->mtime_ns))
		return NULL;
	return l;
}

int remote_fill_tar(struct remote_tree *t, const struct remote_manifest *m, uint64_t begun,
                    const char *bytes, size_t len, struct sbx_error *err)
{
	_cleanup_(free_archive) struct archive *a = archive_read_new();
	uint64_t left = REMOTE_FILL; /* a few bytes of a tar may stand for large holes */
	struct archive_entry *e;
	int r = 0;

	if (!a)
		return sbx_no_memory(err);
	archive_read_support_format_tar(a);
	/* Where the names do not fit in one command line there are several, one after another. */
	archive_read_set_options(a, "tar:read_concatenated_archives=1");
	if (!len || archive_read_open_memory(a, bytes, len) != ARCHIVE_OK)
		return 0;
	while (!r && archive_read_next_header(a, &e) == ARCHIVE_OK) {
		const struct remote_listed *l = listed(m, e);

		if (l && l->size > left)
			break;
		if (l) {
			left -= l->size;
			r = read_entry(a, t, l, begun);
		}
	}
	return r ? sbx_fail(err, -r, "contents cannot be written to the copy: %s", strerror(-r))
	         : 0;
}
