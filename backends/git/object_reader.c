/* Loose objects, and the hash of whatever was found. */
#include "backends/git/object_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "backends/git/pack.h"
#include "backends/support/beneath.h"
#include "sandboxfs/cleanup.h"

#define LARGE  (4 << 20)
#define HEADER 32 /* "commit 134217728" and its NUL fit */

const struct sbx_git_bounds sbx_git_bounds = {
        .object = (size_t)128 * 1024 * 1024,
        .volume = (uint64_t)2 * 1024 * 1024 * 1024,
        .objects = 500000,
        .taken = (uint64_t)1024 * 1024 * 1024,
        .held = (size_t)32 * 1024 * 1024,
};

struct sbx_git_reader {
	int objects;
	struct sbx_git_budget budget;
	struct sbx_git_packs *packs; /* NULL: not looked for yet */
};

int sbx_git_reader_open(int objects, const struct sbx_git_bounds *bounds,
                        struct sbx_git_reader **ret)
{
	struct sbx_git_reader *r = calloc(1, sizeof(*r));

	if (!r)
		return -ENOMEM;
	r->objects = objects;
	r->budget = (struct sbx_git_budget){.object = bounds->object, .volume = bounds->volume};
	*ret = r;
	return 0;
}

void sbx_git_reader_close(struct sbx_git_reader *r)
{
	if (!r)
		return;
	sbx_git_packs_close(r->packs);
	free(r);
}

/* "TYPE LENGTH" and a NUL, which is all of a loose object's header. */
static int parse_header(const char *head, size_t n, git_object_t *type, size_t *len, size_t *used)
{
	static const char *const words[] = {"commit ", "tree ", "blob ", "tag "}; /* by type - 1 */
	const char *nul = memchr(head, '\0', n), *at = NULL;
	uint64_t value = 0;

	if (!nul)
		return -EINVAL;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(words) && !at; i++)
		if (strncmp(head, words[i], strlen(words[i])) == 0) {
			*type = (git_object_t)(i + 1);
			at = head + strlen(words[i]);
		}
	if (!at || at == nul || (*at == '0' && at + 1 != nul))
		return -EINVAL;
	for (; at < nul; at++) {
		if (*at < '0' || *at > '9' || value > UINT64_MAX / 16)
			return -EINVAL;
		value = value * 10 + (uint64_t)(*at - '0');
	}
	*len = value;
	*used = (size_t)(nul - head) + 1;
	return value > SIZE_MAX / 2 ? -EFBIG : 0;
}

static int inflate_loose(z_stream *zs, struct sbx_git_budget *budget, git_object_t *type,
                         char **data, size_t *len)
{
	_cleanup_free_ char *buf = NULL;
	char head[HEADER];
	size_t used, have;
	int r, z;

	zs->next_out = (unsigned char *)head;
	zs->avail_out = sizeof(head);
	z = inflate(zs, Z_SYNC_FLUSH);
	have = sizeof(head) - zs->avail_out;
	if (z != Z_OK && z != Z_STREAM_END)
		return -EINVAL;
	r = parse_header(head, have, type, len, &used);
	if (r)
		return r;
	have -= used;
	if (*len > budget->object || *len > budget->volume)
		return -EFBIG;
	budget->volume -= *len;
	if (have > *len)
		return -EINVAL;
	buf = malloc(*len + 2);
	if (!buf)
		return -ENOMEM;
	memcpy(buf, head + used, have);
	/* Room for one byte more, which must stay free. */
	zs->next_out = (unsigned char *)buf + have;
	zs->avail_out = (unsigned)(*len - have + 1);
	if (z != Z_STREAM_END)
		z = inflate(zs, Z_FINISH);
	if (z != Z_STREAM_END || zs->avail_out != 1 || zs->avail_in)
		return -EINVAL;
	buf[*len] = '\0';
	*data = sbx_steal_ptr(&buf);
	return 0;
}

static int get_loose(struct sbx_git_reader *r, const git_oid *oid, git_object_t *type, char **data,
                     size_t *len)
{
	_cleanup_free_ char *raw = NULL;
	char path[GIT_OID_HEXSZ + 2];
	size_t raw_len;
	z_stream zs = {0};
	int result;

	git_oid_pathfmt(path, oid);
	path[GIT_OID_HEXSZ + 1] = '\0';
	/* Compressed it can be longer than it is, by little. */
	result =
	        sbx_beneath_read(r->objects, path, r->budget.object + r->budget.object / 512 + 1024,
	                         &raw, &raw_len, NULL);
	if (result == -ELOOP || result == -EXDEV || result == -ENOTDIR || result == -ENXIO)
		return -EINVAL;
	if (result)
		return result;
	if (inflateInit(&zs) != Z_OK)
		return -ENOMEM;
	zs.next_in = (unsigned char *)raw;
	zs.avail_in = (unsigned)raw_len;
	result = inflate_loose(&zs, &r->budget, type, data, len);
	inflateEnd(&zs);
	return result;
}

static int get_packed(struct sbx_git_reader *r, const git_oid *oid, git_object_t *type, char **data,
                      size_t *len)
{
	int result = r->packs ? 0 : sbx_git_packs_open(r->objects, &r->packs);

	return result ? result : sbx_git_packs_get(r->packs, oid, &r->budget, type, data, len);
}

/* ---- what is large ---- */

/*
 * Where the compressed bytes of an object are: behind a header of SKIP bytes, which is compressed
 * too.
 */
struct place {
	int fd, own; /* OWN is to be closed; or negative */
	uint64_t offset;
	size_t skip, len;
	git_object_t type;
};

/* The first bytes of what is compressed at the begin of FD: how many. */
static size_t inflate_head(int fd, char head[HEADER])
{
	unsigned char raw[128];
	const ssize_t n = pread(fd, raw, sizeof(raw), 0);
	z_stream zs = {.next_in = raw,
	               .avail_in = n > 0 ? (unsigned)n : 0,
	               .next_out = (unsigned char *)head,
	               .avail_out = HEADER};
	int z;

	if (inflateInit(&zs) != Z_OK)
		return 0;
	z = inflate(&zs, Z_SYNC_FLUSH);
	inflateEnd(&zs);
	return z == Z_OK || z == Z_STREAM_END ? HEADER - zs.avail_out : 0;
}

/* 0, or -ENOENT: it is not loose; else it is not to be read so. */
static int find_loose(struct sbx_git_reader *r, const git_oid *oid, struct place *ret)
{
	char path[GIT_OID_HEXSZ + 2], head[HEADER];
	struct stat st;

	git_oid_pathfmt(path, oid);
	path[GIT_OID_HEXSZ + 1] = '\0';
	ret->fd = ret->own = sbx_beneath_open(r->objects, path, O_RDONLY);
	if (ret->fd < 0)
		return ret->fd;
	/* No more than a thousandfold comes out of it. */
	if (fstat(ret->fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size < LARGE / 1100)
		return -EINVAL;
	return parse_header(head, inflate_head(ret->fd, head), &ret->type, &ret->len, &ret->skip);
}

static bool find_large(struct sbx_git_reader *r, const git_oid *oid, struct place *ret)
{
	int result;

	*ret = (struct place){.own = -1};
	result = find_loose(r, oid, ret);
	if (result == -ENOENT) {
		result = r->packs ? 0 : sbx_git_packs_open(r->objects, &r->packs);
		if (!result && !sbx_git_packs_whole(r->packs, oid, &ret->type, &ret->len, &ret->fd,
		                                    &ret->offset))
			result = -ENOENT;
	}
	return !result && ret->type == GIT_OBJECT_BLOB && ret->len > LARGE &&
	       ret->len <= r->budget.object && ret->len <= r->budget.volume;
}

bool sbx_git_reader_is_large(struct sbx_git_reader *r, const git_oid *oid, size_t *len)
{
	struct place place;
	const bool large = find_large(r, oid, &place);

	sbx_cleanup_fd(&place.own);
	*len = place.len;
	return large;
}

int sbx_git_reader_pieces(struct sbx_git_reader *r, const git_oid *oid, sbx_convert_fn fn, void *to,
                          struct sbx_error *err)
{
	char hex[GIT_OID_HEXSZ + 1];
	struct place place;
	int result = find_large(r, oid, &place) ? 0 : -EINVAL;

	if (!result) {
		r->budget.volume -= place.len;
		result = sbx_git_inflate_pieces(place.fd, place.offset, place.skip, place.len, fn,
		                                to);
	}
	sbx_cleanup_fd(&place.own);
	git_oid_tostr(hex, sizeof(hex), oid);
	if (result == -EINVAL)
		return sbx_fail(err, EINVAL, "object %s is damaged", hex);
	return result ? sbx_fail(err, -result, "object %s: %s", hex, strerror(-result)) : 0;
}

/* ---- all ---- */

int sbx_git_reader_get(struct sbx_git_reader *r, const git_oid *oid, git_object_t *type,
                       char **data, size_t *len, struct sbx_error *err)
{
	_cleanup_free_ char *buf = NULL;
	char hex[GIT_OID_HEXSZ + 1];
	git_oid is;
	int result = get_loose(r, oid, type, &buf, len);

	if (result == -ENOENT)
		result = get_packed(r, oid, type, &buf, len);
	if (!result && (git_odb_hash(&is, buf, *len, *type) || !git_oid_equal(&is, oid)))
		result = -EINVAL;
	git_oid_tostr(hex, sizeof(hex), oid);
	if (result == -ENOENT)
		return sbx_fail(err, ENOENT, "object %s is missing", hex);
	if (result == -EFBIG)
		return sbx_fail(err, EFBIG, "object %s is too large", hex);
	if (result == -EINVAL)
		return sbx_fail(err, EINVAL, "object %s is damaged", hex);
	if (result)
		return sbx_fail(err, -result, "object %s: %s", hex, strerror(-result));
	*data = sbx_steal_ptr(&buf);
	return 0;
}
