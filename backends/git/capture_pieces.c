/*
 * A file's content, piece by piece. A file of holes is made in a moment and of any size: its zeros
 * are not read but taken from memory.
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "backends/git/capture_impl.h"

#define PIECE ((size_t)256 << 10)

/* Not constant, so that the program is no larger by it. Nobody writes to it. */
static char zeros[PIECE];

ssize_t capture_read_at(int fd, char *buf, size_t len, off_t offset)
{
	size_t have = 0;

	while (have < len) {
		ssize_t n = pread(fd, buf + have, len - have, offset + (off_t)have);

		if (n < 0 && errno != EINTR)
			return -errno;
		if (n == 0)
			break;
		have += n > 0 ? (size_t)n : 0;
	}
	return (ssize_t)have;
}

int capture_pieces_open(struct capture_pieces *p, int fd, size_t size)
{
	*p = (struct capture_pieces){.fd = fd, .size = size, .buf = malloc(PIECE)};
	return p->buf ? 0 : -ENOMEM;
}

void capture_pieces_close(struct capture_pieces *p)
{
	free(p->buf);
	p->buf = NULL;
}

/* What lies at AT, and how far. A file system that does not tell has nothing but data. */
static int look(struct capture_pieces *p)
{
	const off_t at = (off_t)p->at, data = lseek(p->fd, at, SEEK_DATA);
	off_t end = (off_t)p->size;
	struct stat st;

	p->hole = data > at || (data < 0 && errno == ENXIO);
	if (data < 0 && p->hole) {
		if (fstat(p->fd, &st) < 0)
			return -errno;
		if (st.st_size < end)
			return -ESTALE;
	} else if (p->hole) {
		end = data < end ? data : end;
	} else if (data == at) {
		const off_t hole = lseek(p->fd, at, SEEK_HOLE);

		end = hole > at && hole < end ? hole : end;
	}
	p->until = (size_t)end;
	return 0;
}

ssize_t capture_pieces_next(struct capture_pieces *p, const char **ret)
{
	int r = p->at < p->size && p->at == p->until ? look(p) : 0;
	const size_t want = p->until - p->at < PIECE ? p->until - p->at : PIECE;
	ssize_t n = (ssize_t)want;

	if (r)
		return r;
	*ret = p->hole ? zeros : p->buf;
	if (!p->hole)
		n = capture_read_at(p->fd, p->buf, want, (off_t)p->at);
	if (n >= 0 && (size_t)n < want)
		return -ESTALE;
	p->at += n > 0 ? (size_t)n : 0;
	return n;
}
