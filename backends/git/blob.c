/* Blobs, which may be of any size, out of stores that are our own or the source's. */
#include "backends/git/blob.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/git/git_impl.h"
#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"

#define LARGE ((size_t)4 << 20)
#define PIECE ((size_t)256 << 10)
#define HOLE  ((size_t)4 << 10)

int sbx_git_object_code(int r)
{
	struct sbx_error err = SBX_ERROR_INIT;

	return r == GIT_ENOTFOUND ? -ENOENT : sbx_git_fail(&err, r, "object");
}

static int give_stream(git_odb_stream *stream, sbx_convert_fn fn, void *to)
{
	_cleanup_free_ char *buf = malloc(PIECE);
	int n = buf ? 0 : -ENOMEM, r = 0;

	while (buf && !r && (n = git_odb_stream_read(stream, buf, PIECE)) > 0)
		r = fn(buf, (size_t)n, to);
	return r ? r : !buf ? n : n < 0 ? sbx_git_object_code(n) : 0;
}

int sbx_git_blob_pieces(git_odb *odb, const git_oid *oid, sbx_convert_fn fn, void *to)
{
	git_odb_stream *stream = NULL;
	git_odb_object *object = NULL;
	git_object_t type;
	size_t size;
	int r;

	/* Only loose objects can be read by and by; what is in a pack is taken whole. */
	if (git_odb_open_rstream(&stream, &size, &type, odb, oid) == 0) {
		r = give_stream(stream, fn, to);
		git_odb_stream_free(stream);
		return r;
	}
	r = git_odb_read(&object, odb, oid);
	if (r)
		return sbx_git_object_code(r);
	size = git_odb_object_size(object);
	r = size ? fn(git_odb_object_data(object), size, to) : 0;
	git_odb_object_free(object);
	return r;
}

struct writing {
	int fd;
	bool hole; /* what was written last is none */
};

/* Where there are nothing but zeros a hole is left: of them a few bytes may tell very many. */
static int write_piece(const char *data, size_t len, void *to)
{
	struct writing *w = to;

	w->hole = len >= HOLE && !data[0] && memcmp(data, data + 1, len - 1) == 0 &&
	          lseek(w->fd, (off_t)len, SEEK_CUR) >= 0;
	return w->hole ? 0 : sbx_write_all(w->fd, data, len);
}

/* Of what was written piece by piece the last may be a hole. */
static int finish(const struct writing *w)
{
	return w->hole && ftruncate(w->fd, lseek(w->fd, 0, SEEK_CUR)) < 0 ? -errno : 0;
}

int sbx_git_blob_write(git_odb *odb, const git_oid *oid, int fd)
{
	struct writing w = {.fd = fd};
	const int r = sbx_git_blob_pieces(odb, oid, write_piece, &w);

	return r ? r : finish(&w);
}

bool sbx_git_blob_is_large(git_odb *odb, const git_oid *oid)
{
	git_object_t type;
	size_t size;

	return git_odb_read_header(&size, &type, odb, oid) == 0 && size > LARGE;
}

struct blob {
	git_odb *odb;
	const git_oid *oid;
};

static int give_blob(sbx_convert_fn fn, void *to, void *source)
{
	const struct blob *blob = source;

	return sbx_git_blob_pieces(blob->odb, blob->oid, fn, to);
}

int sbx_git_blob_convert(git_odb *odb, const git_oid *oid, struct sbx_convert *how, int fd)
{
	struct blob blob = {.odb = odb, .oid = oid};
	struct writing w = {.fd = fd};
	int r = sbx_convert_look(how, give_blob, &blob);

	if (!r)
		r = sbx_convert_run(how, give_blob, &blob, write_piece, &w);
	return r ? r : finish(&w);
}
