/*
 * gitformat-pack(5), as far as reading single objects goes. The index (.idx) only tells where to
 * look: a wrong one makes objects missing or of the wrong name, which the caller finds out by their
 * hash. Files are read with pread: one that is cut short meanwhile gives an error and no signal,
 * and an index of hundreds of MiB, which may be nothing but a hole, takes no memory.
 */
#include "backends/git/pack.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "backends/support/beneath.h"
#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"

#define PACKS       64
#define INDEX_MAX   ((off_t)256 * 1024 * 1024)
#define NAME        GIT_OID_RAWSZ
#define AT_ONCE     200 /* names that are read at once */
#define CHAIN       128 /* deltas upon deltas; git makes 50 */
#define FANOUT      ((size_t)8)
#define NAMES       (FANOUT + (size_t)256 * 4)
#define OFS_DELTA   6
#define REF_DELTA   7
#define HEADER_MAX  64 /* of an object in a pack */
#define CHUNK       16384
#define PIECE       65536
#define PACK_HEADER 12

struct pack {
	int fd, index;
	size_t index_len, n;
	unsigned char fanout[256 * 4];
};

struct sbx_git_packs {
	struct pack at[PACKS];
	size_t n;
};

/* ---- opening ---- */

static uint32_t get32(const unsigned char *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* Whether all LEN bytes are there. */
static bool read_index(const struct pack *p, size_t at, void *buf, size_t len)
{
	return pread(p->index, buf, len, (off_t)at) == (ssize_t)len;
}

static bool index_ok(struct pack *p)
{
	static const unsigned char magic[FANOUT] = {0xff, 't', 'O', 'c', 0, 0, 0, 2};
	unsigned char head[FANOUT];
	uint32_t last = 0;

	if (p->index_len < NAMES + 40 || !read_index(p, 0, head, sizeof(head)) ||
	    memcmp(head, magic, sizeof(magic)) != 0 ||
	    !read_index(p, FANOUT, p->fanout, sizeof(p->fanout)))
		return false;
	for (size_t i = 0; i < 256; i++) {
		uint32_t count = get32(p->fanout + 4 * i);

		if (count < last)
			return false;
		last = count;
	}
	p->n = last;
	return p->n <= (p->index_len - NAMES - 40) / 28;
}

/* A descriptor of a regular file with its size, or negative. */
static int open_file(int dir, const char *name, off_t *size)
{
	_cleanup_fd_ int fd = sbx_beneath_open(dir, name, O_RDONLY);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return -ENOENT;
	*size = st.st_size;
	return sbx_steal_fd(&fd);
}

static void open_pack(struct sbx_git_packs *packs, int dir, const char *name)
{
	_cleanup_free_ char *data = sbx_format("%.*s.pack", (int)(strlen(name) - 4), name);
	struct pack *p = &packs->at[packs->n];
	_cleanup_fd_ int index = -1;
	off_t size;

	assert(packs->n < PACKS);
	index = data ? open_file(dir, name, &size) : -ENOMEM;
	if (index < 0 || size > INDEX_MAX)
		return;
	p->index = index;
	p->index_len = (size_t)size;
	if (!index_ok(p))
		return;
	p->fd = open_file(dir, data, &size);
	if (p->fd < 0)
		return;
	index = -1;
	packs->n++;
}

struct finding {
	struct sbx_git_packs *packs;
	int dir;
};

static int find_index(const char *name, unsigned char type, void *data)
{
	struct finding *f = data;
	size_t len = strlen(name);

	(void)type;
	if (f->packs->n == PACKS)
		return 1;
	if (len > 9 && strncmp(name, "pack-", 5) == 0 && strcmp(name + len - 4, ".idx") == 0)
		open_pack(f->packs, f->dir, name);
	return 0;
}

int sbx_git_packs_open(int objects, struct sbx_git_packs **ret)
{
	_cleanup_fd_ int dir = sbx_beneath_open(objects, "pack", O_RDONLY | O_DIRECTORY);
	struct finding f = {.packs = calloc(1, sizeof(*f.packs)), .dir = dir};

	if (!f.packs)
		return -ENOMEM;
	if (dir >= 0)
		sbx_dir_scan(dir, find_index, &f);
	*ret = f.packs;
	return 0;
}

void sbx_git_packs_close(struct sbx_git_packs *packs)
{
	for (size_t i = 0; packs && i < packs->n; i++) {
		close(packs->at[i].fd);
		close(packs->at[i].index);
	}
	free(packs);
}

/* ---- finding ---- */

static uint64_t offset_of(const struct pack *p, size_t i)
{
	unsigned char entry[8];
	uint32_t v;

	if (!read_index(p, NAMES + p->n * 24 + 4 * i, entry, 4))
		return 0;
	v = get32(entry);
	if (!(v & 0x80000000))
		return v;
	i = NAMES + p->n * 28 + 8 * (size_t)(v & 0x7fffffff);
	if (i + 8 + 40 > p->index_len || !read_index(p, i, entry, 8))
		return 0;
	return (uint64_t)get32(entry) << 32 | get32(entry + 4);
}

/* Where OID lies in the pack, 0: nowhere. */
static uint64_t find(const struct pack *p, const git_oid *oid)
{
	size_t lo = oid->id[0] ? get32(p->fanout + 4 * ((size_t)oid->id[0] - 1)) : 0;
	size_t hi = get32(p->fanout + 4 * (size_t)oid->id[0]);
	unsigned char names[AT_ONCE * NAME];

	while (hi - lo > AT_ONCE) {
		const size_t mid = lo + (hi - lo) / 2;

		if (!read_index(p, NAMES + NAME * mid, names, NAME))
			return 0;
		if (memcmp(oid->id, names, NAME) < 0)
			hi = mid;
		else
			lo = mid;
	}
	if (lo == hi || !read_index(p, NAMES + NAME * lo, names, NAME * (hi - lo)))
		return 0;
	for (size_t i = 0; i < hi - lo; i++)
		if (memcmp(oid->id, names + NAME * i, NAME) == 0)
			return offset_of(p, lo + i);
	return 0;
}

/* ---- unpacking ---- */

static bool spend(struct sbx_git_budget *b, size_t len)
{
	if (len > b->object || len > b->volume)
		return false;
	b->volume -= len;
	return true;
}

/* Feeds ZS from FD until it has filled what it was given, and checks that the stream ends there. */
static int inflate_all(z_stream *zs, int fd, uint64_t offset)
{
	unsigned char in[CHUNK], extra;
	int z = Z_OK;

	while (z == Z_OK) {
		if (!zs->avail_in) {
			ssize_t n = pread(fd, in, sizeof(in), (off_t)offset);

			if (n <= 0)
				return -EINVAL;
			offset += (uint64_t)n;
			zs->next_in = in;
			zs->avail_in = (unsigned)n;
		}
		/* One byte more than asked for: then it is too long. */
		if (!zs->avail_out) {
			zs->next_out = &extra;
			zs->avail_out = 1;
			z = inflate(zs, Z_NO_FLUSH);
			if (!zs->avail_out)
				return -EINVAL;
			zs->avail_out = 0;
			continue;
		}
		z = inflate(zs, Z_NO_FLUSH);
	}
	return z == Z_STREAM_END ? 0 : -EINVAL;
}

/* Inflates from FD at OFFSET exactly LEN bytes; *ret is malloc'd, with a NUL after it. -EINVAL,
 * -EFBIG, -ENOMEM. */
static int inflate_at(int fd, uint64_t offset, size_t len, struct sbx_git_budget *budget,
                      char **ret)
{
	_cleanup_free_ char *buf = NULL;
	z_stream zs = {0};
	int r;

	if (!spend(budget, len))
		return -EFBIG;
	buf = malloc(len + 1);
	if (!buf || inflateInit(&zs) != Z_OK)
		return -ENOMEM;
	zs.next_out = (unsigned char *)buf;
	zs.avail_out = (unsigned)len;
	r = inflate_all(&zs, fd, offset);
	if (!r && zs.total_out != len)
		r = -EINVAL;
	inflateEnd(&zs);
	if (r)
		return r;
	buf[len] = '\0';
	*ret = sbx_steal_ptr(&buf);
	return 0;
}

/* One piece of what ZS inflates. *n: how long it is. Z_OK, Z_STREAM_END or an error. */
static int inflate_piece(z_stream *zs, int fd, uint64_t *offset, unsigned char *in,
                         unsigned char *out, size_t *n)
{
	ssize_t got;
	int z = Z_OK;

	zs->next_out = out;
	zs->avail_out = PIECE;
	while (z == Z_OK && zs->avail_out) {
		if (!zs->avail_in) {
			got = pread(fd, in, CHUNK, (off_t)*offset);
			if (got <= 0)
				return Z_DATA_ERROR;
			*offset += (uint64_t)got;
			zs->next_in = in;
			zs->avail_in = (unsigned)got;
		}
		z = inflate(zs, Z_NO_FLUSH);
	}
	*n = PIECE - zs->avail_out;
	return z;
}

int sbx_git_inflate_pieces(int fd, uint64_t offset, size_t skip, size_t len, sbx_convert_fn fn,
                           void *to)
{
	_cleanup_free_ unsigned char *in = malloc(CHUNK), *out = malloc(PIECE);
	z_stream zs = {0};
	int r = 0, z = Z_OK;

	if (!in || !out || inflateInit(&zs) != Z_OK)
		return -ENOMEM;
	while (!r && z == Z_OK) {
		size_t n = 0, before;

		z = inflate_piece(&zs, fd, &offset, in, out, &n);
		before = skip < n ? skip : n;
		skip -= before;
		n -= before;
		if ((z != Z_OK && z != Z_STREAM_END) || n > len)
			r = -EINVAL;
		else if (n)
			r = fn((const char *)out + before, n, to);
		len -= r ? 0 : n;
	}
	inflateEnd(&zs);
	return r ? r : len || skip ? -EINVAL : 0;
}

/* ---- deltas ---- */

struct delta {
	const unsigned char *at, *end;
};

static bool delta_size(struct delta *d, size_t *ret)
{
	size_t v = 0;

	for (int shift = 0; d->at < d->end && shift < 63; shift += 7) {
		v |= (size_t)(*d->at & 0x7f) << shift;
		if (!(*d->at++ & 0x80)) {
			*ret = v;
			return true;
		}
	}
	return false;
}

/* The bytes of a number whose presence the bits of OP from BIT on tell. */
static bool delta_bytes(struct delta *d, unsigned op, int bit, int count, size_t *ret)
{
	*ret = 0;
	for (int i = 0; i < count; i++) {
		if (!(op & (1u << (bit + i))))
			continue;
		if (d->at >= d->end)
			return false;
		*ret |= (size_t)*d->at++ << (8 * i);
	}
	return true;
}

/* One instruction; appends to OUT at *AT. */
static bool delta_step(struct delta *d, const char *base, size_t base_len, char *out, size_t len,
                       size_t *at)
{
	unsigned op = *d->at++;
	const void *from = d->at;
	size_t offset, n = op;

	if (op & 0x80) {
		if (!delta_bytes(d, op, 0, 4, &offset) || !delta_bytes(d, op, 4, 3, &n))
			return false;
		n = n ? n : 0x10000;
		if (offset > base_len || n > base_len - offset)
			return false;
		from = base + offset;
	} else {
		if (!op || n > (size_t)(d->end - d->at))
			return false;
		d->at += n;
	}
	if (n > len - *at)
		return false;
	memcpy(out + *at, from, n);
	*at += n;
	return true;
}

int sbx_git_delta(const char *base, size_t base_len, const char *delta, size_t delta_len,
                  struct sbx_git_budget *budget, char **ret, size_t *len)
{
	struct delta d = {.at = (const unsigned char *)delta,
	                  .end = (const unsigned char *)delta + delta_len};
	_cleanup_free_ char *out = NULL;
	size_t from, to, at = 0;

	if (!delta_size(&d, &from) || !delta_size(&d, &to) || from != base_len)
		return -EINVAL;
	if (!spend(budget, to))
		return -EFBIG;
	out = malloc(to + 1);
	if (!out)
		return -ENOMEM;
	while (d.at < d.end)
		if (!delta_step(&d, base, base_len, out, to, &at))
			return -EINVAL;
	if (at != to)
		return -EINVAL;
	out[to] = '\0';
	*ret = sbx_steal_ptr(&out);
	*len = to;
	return 0;
}

/* ---- objects ---- */

/* An object as it stands in the pack. */
struct packed {
	unsigned type;
	size_t len;
	uint64_t data; /* where it is compressed */
	uint64_t base; /* of a delta */
};

static int read_base(const struct pack *p, uint64_t offset, const unsigned char *h, size_t n,
                     size_t *at, struct packed *ret)
{
	uint64_t back;
	git_oid oid;

	if (ret->type == REF_DELTA) {
		if (n - *at < 20)
			return -EINVAL;
		memcpy(oid.id, h + *at, 20);
		*at += 20;
		ret->base = find(p, &oid);
		return ret->base ? 0 : -EINVAL;
	}
	back = h[*at] & 0x7f;
	while (h[(*at)++] & 0x80) {
		if (*at >= n || back > UINT64_MAX >> 8)
			return -EINVAL;
		back = ((back + 1) << 7) | (h[*at] & 0x7f);
	}
	if (!back || back > offset)
		return -EINVAL;
	ret->base = offset - back;
	return 0;
}

static int read_header(const struct pack *p, uint64_t offset, struct packed *ret)
{
	unsigned char h[HEADER_MAX];
	ssize_t got = offset < PACK_HEADER ? -1 : pread(p->fd, h, sizeof(h), (off_t)offset);
	size_t n = got > 0 ? (size_t)got : 0, at = 1;
	int r;

	if (n < 2)
		return -EINVAL;
	*ret = (struct packed){.type = (h[0] >> 4) & 7, .len = h[0] & 15};
	for (int shift = 4; h[at - 1] & 0x80; shift += 7) {
		if (at >= n || shift > 53)
			return -EINVAL;
		ret->len |= (size_t)(h[at++] & 0x7f) << shift;
	}
	if (at >= n)
		return -EINVAL;
	if (ret->type == OFS_DELTA || ret->type == REF_DELTA) {
		r = read_base(p, offset, h, n, &at, ret);
		if (r)
			return r;
	} else if (ret->type < GIT_OBJECT_COMMIT || ret->type > GIT_OBJECT_TAG) {
		return -EINVAL;
	}
	ret->data = offset + at;
	return 0;
}

/* Builds the object up from CHAIN[n - 1], which is whole, by the deltas before it. */
static int unpack(const struct pack *p, const struct packed *chain, size_t n,
                  struct sbx_git_budget *budget, char **ret, size_t *len)
{
	_cleanup_free_ char *whole = NULL;
	size_t have = chain[n - 1].len;
	int r = inflate_at(p->fd, chain[n - 1].data, have, budget, &whole);

	assert(n >= 1 && n <= CHAIN);
	for (size_t i = n - 1; i-- > 0 && !r;) {
		_cleanup_free_ char *delta = NULL, *base = whole;
		size_t base_len = have;

		whole = NULL;
		r = inflate_at(p->fd, chain[i].data, chain[i].len, budget, &delta);
		if (!r)
			r = sbx_git_delta(base, base_len, delta, chain[i].len, budget, &whole,
			                  &have);
	}
	if (r)
		return r;
	*ret = sbx_steal_ptr(&whole);
	*len = have;
	return 0;
}

static int get(const struct pack *p, uint64_t offset, struct sbx_git_budget *budget,
               git_object_t *type, char **data, size_t *len)
{
	struct packed chain[CHAIN];
	size_t n = 0;
	int r;

	do {
		if (n == CHAIN)
			return -EINVAL;
		r = read_header(p, offset, &chain[n]);
		if (r)
			return r;
		offset = chain[n].base;
	} while (chain[n++].type >= OFS_DELTA);
	*type = (git_object_t)chain[n - 1].type;
	return unpack(p, chain, n, budget, data, len);
}

int sbx_git_packs_get(struct sbx_git_packs *packs, const git_oid *oid,
                      struct sbx_git_budget *budget, git_object_t *type, char **data, size_t *len)
{
	for (size_t i = 0; i < packs->n; i++) {
		uint64_t offset = find(&packs->at[i], oid);

		if (offset)
			return get(&packs->at[i], offset, budget, type, data, len);
	}
	return -ENOENT;
}

bool sbx_git_packs_whole(struct sbx_git_packs *packs, const git_oid *oid, git_object_t *type,
                         size_t *len, int *fd, uint64_t *offset)
{
	for (size_t i = 0; i < packs->n; i++) {
		const uint64_t at = find(&packs->at[i], oid);
		struct packed packed;

		if (!at)
			continue;
		if (read_header(&packs->at[i], at, &packed) || packed.type >= OFS_DELTA)
			return false;
		*type = (git_object_t)packed.type;
		*len = packed.len;
		*fd = packs->at[i].fd;
		*offset = packed.data;
		return true;
	}
	return false;
}
