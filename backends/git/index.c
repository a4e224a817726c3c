/*
 * gitformat-index(5). Versions 2 to 4 are read, 2 and 3 written. A hostile file costs at most time
 * and memory in proportion to SBX_INDEX_MAX.
 */
#include "backends/git/index.h"

#include <errno.h>
#include <openssl/evp.h>
#include <openssl/sha.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "backends/git/path_rules.h"
#include "sandboxfs/cleanup.h"

#define HEADER         12
#define STAT_SIZE      40
#define FIXED          62 /* of an entry, up to its name */
#define NAME_LONGEST   4095
#define FLAG_EXTENDED  0x4000
#define FLAG_LENGTH    0x0fff
#define EXTENDED_KNOWN (SBX_INDEX_SKIP | SBX_INDEX_INTENT)
#define GITLINK        0160000

struct parser {
	const unsigned char *data;
	size_t at, end; /* END: where the trailer begins */
	uint32_t version;
	struct sbx_index index;
	size_t names_len, names_cap, names_most;
	char last[NAME_LONGEST + 1]; /* version 4: the name before */
	size_t last_len;
	struct sbx_error *err;
};

static uint32_t get32(const unsigned char *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static uint16_t get16(const unsigned char *p)
{
	return (uint16_t)(p[0] << 8 | p[1]);
}

static void put32(unsigned char *p, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		p[i] = (unsigned char)(v >> (24 - 8 * i));
}

uint32_t sbx_index_mode(const struct sbx_index_entry *entry)
{
	return get32(entry->stat + 24);
}

bool sbx_index_doubt(struct sbx_index_entry *e, time_t since)
{
	const bool sure = get32(e->stat + 36) && sbx_index_mode(e) != GITLINK;

	/* Times are cut to 32 bits. */
	if (!sure || (int32_t)(get32(e->stat) - (uint32_t)since) < 0)
		return false;
	put32(e->stat + 36, 0);
	return true;
}

void sbx_index_release(struct sbx_index *index)
{
	free(index->at);
	free(index->names);
	*index = (struct sbx_index){0};
}

int sbx_index_compare_names(const char *a, size_t a_len, const char *b, size_t b_len)
{
	size_t n = a_len < b_len ? a_len : b_len;
	int r = n ? memcmp(a, b, n) : 0;

	return r ? r : (a_len > b_len) - (a_len < b_len);
}

int sbx_index_compare(const struct sbx_index_entry *a, const struct sbx_index_entry *b)
{
	int r = sbx_index_compare_names(a->name, a->len, b->name, b->len);

	return r ? r : (a->flags & SBX_INDEX_STAGE) - (b->flags & SBX_INDEX_STAGE);
}

/* It guards against damage here, not against forgery. False: there is no memory. */
static bool hash(const void *data, size_t len, unsigned char ret[SHA_DIGEST_LENGTH])
{
	return EVP_Digest(data, len, ret, NULL, EVP_sha1(), NULL) == 1;
}

static int damaged(struct parser *p, const char *what)
{
	return sbx_fail(p->err, EINVAL, "the index cannot be used: %s", what);
}

/* ---- one entry ---- */

static bool mode_ok(uint32_t mode)
{
	return mode == (S_IFREG | 0644) || mode == (S_IFREG | 0755) || mode == S_IFLNK ||
	       mode == GITLINK;
}

static int check_entry(struct parser *p, const struct sbx_index_entry *e)
{
	static const unsigned char none[20];

	if (!mode_ok(sbx_index_mode(e)))
		return damaged(p, "an entry has a mode that is not allowed");
	if (memcmp(e->oid, none, sizeof(none)) == 0)
		return damaged(p, "an entry names no object");
	if (e->extended & ~EXTENDED_KNOWN)
		return damaged(p, "an entry has flags that are not known");
	return 0;
}

/* git's variable length numbers, here of a name's end to be cut off. */
static int take_number(struct parser *p, size_t *ret)
{
	size_t v;

	if (p->at >= p->end)
		return damaged(p, "it ends early");
	v = p->data[p->at] & 0x7f;
	while (p->data[p->at++] & 0x80) {
		if (p->at >= p->end || v > SBX_INDEX_MAX)
			return damaged(p, "it ends early");
		v = ((v + 1) << 7) | (p->data[p->at] & 0x7f);
	}
	*ret = v;
	return 0;
}

static int keep_name(struct parser *p, const char *name, size_t len)
{
	if (p->names_len + len > p->names_most)
		return sbx_fail(p->err, EFBIG, "the index is too large");
	if (!p->index.names || p->names_len + len > p->names_cap) {
		/* As much as can be in the file, so that they are moved only where names are cut
		 * short in it. */
		size_t cap = p->index.names ? 2 * p->names_cap + len : p->end;
		char *names;

		if (cap > p->names_most)
			cap = p->names_most;
		names = realloc(p->index.names, cap);
		if (!names)
			return sbx_no_memory(p->err);
		p->index.names = names;
		p->names_cap = cap;
	}
	if (len)
		memcpy(p->index.names + p->names_len, name, len);
	p->names_len += len;
	return 0;
}

/* As version 4 has it: what it shares with the name before is left out. Moves past it. */
static int take_cut_name(struct parser *p, size_t *len)
{
	const unsigned char *end;
	size_t cut = 0, n;
	int r = take_number(p, &cut);

	if (r)
		return r;
	if (cut > p->last_len)
		return damaged(p, "a name is cut short of nothing");
	end = memchr(p->data + p->at, '\0', p->end - p->at);
	n = end ? (size_t)(end - p->data) - p->at : 0;
	if (!end || p->last_len - cut + n > NAME_LONGEST)
		return damaged(p, "a name does not end");
	memcpy(p->last + p->last_len - cut, p->data + p->at, n);
	*len = p->last_len += n - cut;
	p->at += n + 1;
	return keep_name(p, p->last, p->last_len);
}

/* The name at p->at; moves past it and its padding. START: where the entry began. */
static int take_name(struct parser *p, size_t start, size_t *len)
{
	const char *name = (const char *)p->data + p->at;
	const char *end = memchr(name, '\0', p->end - p->at);
	size_t n = end ? (size_t)(end - name) : 0;

	if (!end || n > NAME_LONGEST)
		return damaged(p, "a name does not end");
	p->at = start + ((p->at + n - start + 8) & ~(size_t)7);
	*len = n;
	return p->at > p->end ? damaged(p, "it ends early") : keep_name(p, name, n);
}

static int take_entry(struct parser *p, struct sbx_index_entry *e)
{
	const unsigned char *raw = p->data + p->at;
	size_t start = p->at, len = 0;
	uint16_t flags;
	int r;

	if (p->end - p->at < FIXED + 2)
		return damaged(p, "it ends early");
	*e = (struct sbx_index_entry){0};
	memcpy(e->stat, raw, STAT_SIZE);
	memcpy(e->oid, raw + STAT_SIZE, sizeof(e->oid));
	flags = get16(raw + STAT_SIZE + 20);
	e->flags = flags & (SBX_INDEX_VALID | SBX_INDEX_STAGE);
	p->at += FIXED;
	if (flags & FLAG_EXTENDED) {
		if (p->version < 3)
			return damaged(p, "an entry has flags of a later version");
		e->extended = get16(raw + FIXED);
		p->at += 2;
	}
	r = p->version == 4 ? take_cut_name(p, &len) : take_name(p, start, &len);
	e->len = (uint32_t)len;
	return r;
}

/* Names move while they are collected: the entry before may still be compared by offset only. */
static void point_names(struct parser *p)
{
	const char *at = p->index.names;

	for (size_t i = 0; i < p->index.n; i++) {
		p->index.at[i].name = at;
		at += p->index.at[i].len;
	}
}

/* ---- what they are together ---- */

/* Of names that are in order, what comes before NAME. */
static bool has_entry(const struct sbx_index *index, const char *name, size_t len)
{
	size_t lo = 0, hi = index->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		const struct sbx_index_entry *e = &index->at[mid];
		int c = sbx_index_compare_names(name, len, e->name, e->len);

		if (!c)
			return !(e->flags & SBX_INDEX_STAGE);
		if (c > 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return false;
}

size_t sbx_index_shared(const struct sbx_index_entry *a, const struct sbx_index_entry *b)
{
	size_t max = a->len < b->len ? a->len : b->len, n = 0;
	uint64_t x, y;

	for (; max - n >= sizeof(x); n += sizeof(x)) {
		memcpy(&x, a->name + n, sizeof(x));
		memcpy(&y, b->name + n, sizeof(y));
		if (x != y)
			break;
	}
	while (n < max && a->name[n] == b->name[n])
		n++;
	return n;
}

/* Whether E comes after the entry before it, with which it shares FROM bytes. */
static bool in_order(const struct sbx_index_entry *e, size_t from)
{
	if (from < e->len && from < e[-1].len)
		return (unsigned char)e[-1].name[from] < (unsigned char)e->name[from];
	if (e->len != e[-1].len)
		return e[-1].len < e->len;
	return (e[-1].flags & SBX_INDEX_STAGE) < (e->flags & SBX_INDEX_STAGE);
}

/* Directories that an entry shares with the one before it have been looked at. */
static bool is_below_file(const struct sbx_index *index, const struct sbx_index_entry *e,
                          size_t from)
{
	const char *at = e->name + from, *end = e->name + e->len;

	for (; (at = memchr(at, '/', (size_t)(end - at))); at++)
		if (has_entry(index, e->name, (size_t)(at - e->name)))
			return true;
	return false;
}

static bool name_ok(const struct sbx_index_entry *e, size_t from)
{
	const char *slash = from ? memrchr(e->name, '/', from) : NULL;
	size_t begin = slash ? (size_t)(slash + 1 - e->name) : 0;

	return sbx_git_path_ok(e->name + begin, e->len - begin);
}

static int check_entries(struct parser *p)
{
	struct sbx_index before = {.at = p->index.at};
	int r = 0;

	for (; before.n < p->index.n && !r; before.n++) {
		const struct sbx_index_entry *e = &p->index.at[before.n];
		size_t from = before.n ? sbx_index_shared(e - 1, e) : 0;

		r = check_entry(p, e);
		if (r)
			return r;
		if (!name_ok(e, from))
			r = damaged(p, "an entry has a name that is not allowed");
		else if (before.n && !in_order(e, from))
			r = damaged(p, "its entries are out of order");
		else if (!(e->flags & SBX_INDEX_STAGE) && is_below_file(&before, e, from))
			r = damaged(p, "an entry is a file and a directory");
	}
	return r;
}

/* ---- the file ---- */

static int check_extensions(struct parser *p)
{
	while (p->at < p->end) {
		const unsigned char *ext = p->data + p->at;

		if (p->end - p->at < 8 || p->end - p->at - 8 < get32(ext + 4))
			return damaged(p, "an extension does not end");
		if (ext[0] < 'A' || ext[0] > 'Z')
			return memcmp(ext, "link", 4) == 0 ? damaged(p, "it is split")
			       : memcmp(ext, "sdir", 4) == 0
			               ? damaged(p, "it is sparse")
			               : damaged(p, "it has an extension that is not known");
		p->at += 8 + get32(ext + 4);
	}
	return 0;
}

static int check_frame(struct parser *p, size_t len)
{
	static const unsigned char none[SHA_DIGEST_LENGTH]; /* index.skipHash */
	unsigned char sum[SHA_DIGEST_LENGTH];

	if (len < HEADER + SHA_DIGEST_LENGTH || memcmp(p->data, "DIRC", 4) != 0)
		return damaged(p, "it is none");
	p->version = get32(p->data + 4);
	if (p->version < 2 || p->version > 4)
		return damaged(p, "its version is not known");
	p->end = len - SHA_DIGEST_LENGTH;
	if (memcmp(none, p->data + p->end, sizeof(none)) == 0)
		return 0;
	if (!hash(p->data, p->end, sum))
		return sbx_fail(p->err, ENOMEM, "out of memory");
	if (memcmp(sum, p->data + p->end, sizeof(sum)) != 0)
		return damaged(p, "its checksum is wrong");
	return 0;
}

static int parse(struct parser *p, size_t len)
{
	size_t n;
	int r = check_frame(p, len);

	if (r)
		return r;
	n = get32(p->data + 8);
	p->at = HEADER;
	/* Before anything is allocated for them. */
	if (n > (p->end - p->at) / (FIXED + 2))
		return damaged(p, "it ends early");
	p->index.at = calloc(n + 1, sizeof(*p->index.at));
	if (!p->index.at)
		return sbx_no_memory(p->err);
	for (; p->index.n < n && !r; p->index.n++)
		r = take_entry(p, &p->index.at[p->index.n]);
	if (!r) {
		point_names(p);
		r = check_entries(p);
	}
	return r ? r : check_extensions(p);
}

static int parse_new(const void *data, size_t len, size_t names_most, struct sbx_index *ret,
                     struct sbx_error *err)
{
	struct parser *p = calloc(1, sizeof(*p));
	int r;

	if (!p)
		return sbx_no_memory(err);
	p->data = data;
	p->names_most = names_most;
	p->err = err;
	r = parse(p, len);
	if (r)
		sbx_index_release(&p->index);
	else
		*ret = p->index;
	free(p);
	return r;
}

int sbx_index_parse_most(const void *data, size_t len, size_t most, struct sbx_index *ret,
                         struct sbx_error *err)
{
	return len > most ? sbx_fail(err, EFBIG, "the index is too large")
	                  : parse_new(data, len, most, ret, err);
}

int sbx_index_parse(const void *data, size_t len, struct sbx_index *ret, struct sbx_error *err)
{
	return len > SBX_INDEX_MAX ? sbx_fail(err, EFBIG, "the index is too large")
	                           : parse_new(data, len, 2 * SBX_INDEX_MAX, ret, err);
}

/* ---- writing ---- */

static size_t entry_size(const struct sbx_index_entry *e)
{
	return (FIXED + (e->extended ? 2u : 0u) + e->len + 8) & ~(size_t)7;
}

static void put_entry(unsigned char *p, const struct sbx_index_entry *e)
{
	uint32_t len = e->len < FLAG_LENGTH ? e->len : FLAG_LENGTH;
	uint32_t flags = e->flags | len | (e->extended ? FLAG_EXTENDED : 0u);

	memcpy(p, e->stat, STAT_SIZE);
	memcpy(p + STAT_SIZE, e->oid, sizeof(e->oid));
	p[STAT_SIZE + 20] = (unsigned char)(flags >> 8);
	p[STAT_SIZE + 21] = (unsigned char)flags;
	p += FIXED;
	if (e->extended) {
		*p++ = (unsigned char)(e->extended >> 8);
		*p++ = (unsigned char)e->extended;
	}
	memcpy(p, e->name, e->len);
}

int sbx_index_format(const struct sbx_index *index, bool sum, void **ret, size_t *len)
{
	size_t size = HEADER + SHA_DIGEST_LENGTH, at = HEADER;
	uint32_t version = 2;
	unsigned char *p;

	for (size_t i = 0; i < index->n; i++) {
		size += entry_size(&index->at[i]);
		if (index->at[i].extended)
			version = 3;
	}
	p = calloc(1, size);
	if (!p)
		return -ENOMEM;
	memcpy(p, "DIRC", 4);
	put32(p + 4, version);
	put32(p + 8, (uint32_t)index->n);
	for (size_t i = 0; i < index->n; i++) {
		put_entry(p + at, &index->at[i]);
		at += entry_size(&index->at[i]);
	}
	if (sum && !hash(p, at, p + at)) {
		free(p);
		return -ENOMEM;
	}
	*ret = p;
	*len = size;
	return 0;
}
