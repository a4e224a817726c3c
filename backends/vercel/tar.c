/* Files as a compressed tar, made from their descriptors piece by piece. */
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/support/fsutil.h"
#include "backends/vercel/vercel_impl.h"
#include "sandboxfs/cleanup.h"

#define PIECE ((size_t)128 * 1024)

static void cleanup_archive(struct archive **a)
{
	archive_write_free(*a);
}

static void cleanup_entry(struct archive_entry **e)
{
	archive_entry_free(*e);
}

/* A file without a name. */
static int open_spool(const char *spool)
{
	int fd = spool ? open(spool, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600) : -1;

	if (fd < 0)
		fd = memfd_create("upload", MFD_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

struct sink {
	int fd;
	int code; /* of the write that failed; nothing is written any more */
};

static la_ssize_t write_out(struct archive *a, void *data, const void *bytes, size_t len)
{
	struct sink *sink = data;

	if (!sink->code)
		sink->code = sbx_write_all(sink->fd, bytes, len);
	if (!sink->code)
		return (la_ssize_t)len;
	archive_set_error(a, -sink->code, "%s", strerror(-sink->code));
	return -1;
}

static int failed(struct archive *a, const struct sink *sink, struct sbx_error *err)
{
	if (sink->code)
		return sbx_fail(err, -sink->code, "what is uploaded cannot be kept meanwhile: %s",
		                strerror(-sink->code));
	return sbx_fail(err, EIO, "what is uploaded cannot be packed: %s", archive_error_string(a));
}

/* The next SIZE bytes at most of FILE, of which DONE were read. *PIECE_AT is ROOM, or in FILE. */
static ssize_t next_piece(const struct sbx_http_bytes *bytes, uint64_t done, char *room,
                          const char **at)
{
	const uint64_t left = bytes->size - done;
	const size_t size = left < PIECE ? (size_t)left : PIECE;
	ssize_t n;

	if (bytes->data) {
		*at = (const char *)bytes->data + done;
		return (ssize_t)size;
	}
	*at = room;
	do
		n = pread(bytes->fd, room, size, (off_t)(bytes->offset + done));
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

static int add_bytes(struct archive *a, const struct sink *sink, const struct sbx_http_bytes *bytes,
                     char *room, atomic_bool *given_up, struct sbx_error *err)
{
	uint64_t done = 0;
	const char *at;

	while (done < bytes->size) {
		const ssize_t n = next_piece(bytes, done, room, &at);

		if (atomic_load(given_up))
			return sbx_fail(err, EINTR, "it was given up");
		if (n <= 0)
			return sbx_fail(err, EIO, "what is uploaded cannot be read: %s",
			                n ? strerror((int)-n) : "it has become shorter");
		if (archive_write_data(a, at, (size_t)n) != n)
			return failed(a, sink, err);
		done += (uint64_t)n;
	}
	return 0;
}

static int add_file(struct archive *a, const struct sink *sink, const struct sbx_machine_file *file,
                    const char *dir, char *room, atomic_bool *given_up, struct sbx_error *err)
{
	_cleanup_(cleanup_entry) struct archive_entry *entry = archive_entry_new();
	char path[512];

	if (!entry)
		return sbx_no_memory(err);
	snprintf(path, sizeof(path), "%s/%llu", dir + 1, (unsigned long long)file->number);
	archive_entry_set_pathname(entry, path);
	archive_entry_set_filetype(entry, AE_IFREG);
	archive_entry_set_perm(entry, 0600);
	archive_entry_set_size(entry, (la_int64_t)file->bytes.size);
	if (archive_write_header(a, entry) != ARCHIVE_OK)
		return failed(a, sink, err);
	return add_bytes(a, sink, &file->bytes, room, given_up, err);
}

/* The least effort: what is uploaded is mostly small, or does not get smaller. */
static int begin(struct archive *a, struct sink *sink, struct sbx_error *err)
{
	if (!a)
		return sbx_no_memory(err);
	if (archive_write_set_format_pax_restricted(a) != ARCHIVE_OK ||
	    archive_write_add_filter_gzip(a) != ARCHIVE_OK ||
	    archive_write_set_filter_option(a, "gzip", "compression-level", "1") != ARCHIVE_OK ||
	    archive_write_set_bytes_per_block(a, (int)PIECE) != ARCHIVE_OK ||
	    archive_write_set_bytes_in_last_block(a, 1) != ARCHIVE_OK ||
	    archive_write_open(a, sink, NULL, write_out, NULL) != ARCHIVE_OK)
		return failed(a, sink, err);
	return 0;
}

static int pack(const struct sbx_machine_file *files, size_t n, const char *dir, struct sink *sink,
                atomic_bool *given_up, struct sbx_error *err)
{
	_cleanup_(cleanup_archive) struct archive *a = archive_write_new();
	_cleanup_free_ char *room = malloc(PIECE);
	int r = room ? begin(a, sink, err) : sbx_no_memory(err);

	for (size_t i = 0; !r && i < n; i++)
		r = add_file(a, sink, &files[i], dir, room, given_up, err);
	/* What is left of an entry would be filled up; and to say that it failed leaks. */
	if (r) {
		sink->code = r;
		return r;
	}
	return archive_write_close(a) == ARCHIVE_OK ? 0 : failed(a, sink, err);
}

int vercel_tar(const struct sbx_machine_file *files, size_t n, const char *dir, const char *spool,
               atomic_bool *given_up, int *fd, uint64_t *size, struct sbx_error *err)
{
	struct sink sink = {.fd = open_spool(spool)};
	struct stat st;
	int r;

	if (sink.fd < 0)
		return sbx_fail(err, -sink.fd, "what is uploaded cannot be kept meanwhile: %s",
		                strerror(-sink.fd));
	r = pack(files, n, dir, &sink, given_up, err);
	if (!r && fstat(sink.fd, &st) < 0)
		r = sbx_fail(err, errno, "what is uploaded cannot be kept meanwhile: %s",
		             strerror(errno));
	if (r) {
		close(sink.fd);
		return r;
	}
	*fd = sink.fd;
	*size = (uint64_t)st.st_size;
	return 0;
}
