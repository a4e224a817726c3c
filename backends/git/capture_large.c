/*
 * From large files to objects: piece by piece, and once more for each thing that has to be known
 * before.
 */
#include <errno.h>
#include <string.h>

#include "backends/git/blob.h"
#include "backends/git/capture_impl.h"
#include "backends/git/git_impl.h"
#include "backends/git/import_objects.h"

#define SNIFF 8000

/* What is written into an object, of the length that was said before. */
struct writing {
	struct capture *c;
	git_odb_stream *stream;
	size_t left;
};

static int write_piece(const char *data, size_t len, void *to)
{
	struct writing *w = to;

	if (len > w->left)
		return -ESTALE;
	w->left -= len;
	return git_odb_stream_write(w->stream, data, len)
	               ? capture_failed(w->c, GIT_ERROR, "a file")
	               : 0;
}

/* A file as it is now. */
struct reading {
	struct capture *c;
	int fd;
	size_t size;
};

/* The first SIZE bytes, by and by. -ESTALE: there are fewer. */
static int give_pieces(sbx_convert_fn fn, void *to, void *source)
{
	const struct reading *in = source;
	struct capture_pieces pieces;
	const char *data;
	ssize_t n;
	int r = capture_pieces_open(&pieces, in->fd, in->size);

	while (!r && (n = capture_pieces_next(&pieces, &data)) != 0) {
		r = n < 0 ? (int)n : capture_is_over(in->c);
		if (!r)
			r = fn(data, (size_t)n, to);
	}
	capture_pieces_close(&pieces);
	return r;
}

/* What IN is converted to by HOW, of SIZE bytes; HOW may be NULL. -ESTALE: it is not now. */
static int stream_converted(struct capture *c, struct capture_item *item, struct reading *in,
                            const struct sbx_convert *how, size_t size)
{
	struct writing w = {.c = c, .left = size};
	struct sbx_git_owner owner = {0};
	git_oid oid;
	int r, gr;

	if (c->wish->common)
		owner = sbx_git_owner_begin(c->wish->common);
	gr = git_odb_open_wstream(&w.stream, c->odb, (git_object_size_t)size, GIT_OBJECT_BLOB);
	if (gr)
		r = capture_failed(c, gr, item->path);
	else
		r = how ? sbx_convert_run(how, give_pieces, in, write_piece, &w)
		        : give_pieces(write_piece, &w, in);
	if (!r && w.left)
		r = -ESTALE;
	if (!r) {
		gr = git_odb_stream_finalize_write(&oid, w.stream);
		r = gr ? capture_failed(c, gr, item->path) : 0;
	}
	git_odb_stream_free(w.stream);
	sbx_git_owner_end(&owner);
	if (!r)
		memcpy(item->entry.oid, oid.id, sizeof(item->entry.oid));
	return r;
}

int capture_stream(struct capture *c, struct capture_item *item, int fd)
{
	struct reading in = {.c = c, .fd = fd, .size = (size_t)item->st.st_size};

	return stream_converted(c, item, &in, NULL, in.size);
}

/* ---- converted ---- */

static int count_piece(const char *data, size_t len, void *to)
{
	sbx_convert_count(to, data, len);
	return 0;
}

/* Text that was recorded with line ends of two bytes keeps them, unless it is said to be text. */
static int is_kept(struct capture *c, const struct capture_item *item, bool *ret)
{
	const struct sbx_index_entry *known = item->known;
	struct sbx_convert_stats stats = {0};
	git_oid oid;
	int r;

	*ret = false;
	if (!known || known->flags & CAPTURE_STAGES || !S_ISREG(sbx_index_mode(known)))
		return 0;
	memcpy(oid.id, known->oid, sizeof(known->oid));
	r = sbx_git_blob_pieces(c->odb, &oid, count_piece, &stats);
	*ret = !r && sbx_convert_has_crlf(&stats);
	return r == -ENOENT ? 0 : r;
}

/* Large files that are plainly no text are not read as a whole only to learn that. */
static bool is_binary(int fd)
{
	char head[SNIFF];
	ssize_t n = capture_read_at(fd, head, sizeof(head), 0);

	return n > 0 && memchr(head, '\0', (size_t)n);
}

int capture_large(struct capture *c, struct capture_item *item, int fd, git_filter_list *filters)
{
	struct reading in = {.c = c, .fd = fd, .size = (size_t)item->st.st_size};
	struct sbx_convert how;
	bool kept = false;
	size_t size;
	int r = 0;

	if (!sbx_convert_probe(&how, filters, false, NULL))
		return capture_stream(c, item, fd);
	if (how.lines && how.guess)
		r = !how.encoding[0] && is_binary(fd) ? (kept = true, 0) : is_kept(c, item, &kept);
	how.lines = how.lines && !kept;
	if (!r)
		r = sbx_convert_look(&how, give_pieces, &in);
	if (!r && !how.lines && !how.ident && !how.encoding[0])
		return capture_stream(c, item, fd);
	if (!r)
		r = sbx_convert_length(&how, give_pieces, &in, &size);
	if (!r)
		r = stream_converted(c, item, &in, &how, size);
	if (!r && (size != in.size || how.encoding[0]))
		c->ret->inexact = true;
	return r;
}
