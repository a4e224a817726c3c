/*
 * Loads: what the machine is given before a batch is applied there. Files are read as they are now,
 * which may be newer than the cut: what was written since is in a later batch as well.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "backends/remote/batch.h"
#include "backends/remote/pack.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/openat2.h"

#define FILES_MAX    64 /* of one load, each of which is open */
#define STEPS_INLINE ((size_t)24 * 1024)
#define NUMBERS      (1u << 20) /* of one round */
#define LINKS_ALONE  20         /* symbolic links that are made by lines of the steps */
#define PERMISSIONS  07777

/* A load in the making. */
struct loading {
	struct remote_journal *j;
	struct remote_batch_all *b;
	const struct remote_source *from;
	struct remote_load *ret;
	struct remote_text pack;
	unsigned pack_number;
	bool packs_links;
	size_t bytes; /* of files alone */
	struct sbx_error *err;
};

/*
 * The bits below REMOTE_LOAD_NUMBER: 5 of the batch, 6 of the round, 20 of the file. A round has
 * numbers of its own, because one that was given up here may still be at work there.
 */
static int next_number(struct loading *l, unsigned *ret)
{
	struct remote_batch_all *b = l->b;

	if (b->used == NUMBERS)
		return sbx_fail(l->err, E2BIG, "too many large files were changed at once");
	*ret = REMOTE_LOAD_NUMBER | ((unsigned)(b->pub.number & 0x1f) << 26) |
	       ((b->round & 0x3f) << 20) | b->used++;
	return 0;
}

static int add_file(struct loading *l, unsigned number, struct sbx_http_bytes bytes)
{
	if (!l->ret->files)
		l->ret->files = calloc(FILES_MAX, sizeof(*l->ret->files));
	if (!l->ret->files)
		return sbx_no_memory(l->err);
	l->ret->files[l->ret->n++] = (struct sbx_machine_file){.number = number, .bytes = bytes};
	return 0;
}

/* Hands the bytes of T over as a file. */
static int add_text(struct loading *l, unsigned number, struct remote_text *t)
{
	const struct sbx_http_bytes bytes = {.data = t->at, .fd = -1, .size = t->n};
	int r;

	if (t->failed)
		return sbx_no_memory(l->err);
	r = add_file(l, number, bytes);
	if (!r)
		*t = (struct remote_text){0};
	return r;
}

/* A descriptor of the file at PATH; -ESTALE: it is not there. */
static int open_at(const struct loading *l, const struct remote_item *item, const char *path)
{
	struct stat st;
	int fd;

	if (item->kind == REMOTE_ITEM_FILE && item->node->type == S_IFREG)
		return l->from->open(path, item->node->ino, l->from->data);
	fd = sbx_openat2(l->from->root, *path ? path : ".", O_PATH | O_NOFOLLOW,
	                 RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
	if (fd == -ENOENT || fd == -ENOTDIR || fd == -ELOOP)
		return -ESTALE;
	if (fd < 0)
		return fd;
	if (fstat(fd, &st) == 0 && (st.st_mode & S_IFMT) == item->node->type &&
	    (!item->node->ino || item->node->ino == st.st_ino))
		return fd;
	close(fd);
	return -ESTALE;
}

/* The same, by each name that it has now. The turn is held. */
static int find(struct loading *l, const struct remote_item *item)
{
	struct sbx_strings paths = {0};
	int r = remote_journal_where(l->j, l->b, item->node, &paths);
	int fd = r ? r : -ESTALE;

	for (size_t i = 0; i < paths.n && fd == -ESTALE; i++) {
		fd = open_at(l, item, paths.items[i]);
		if (fd == -EAGAIN) {
			l->ret->missing = strdup(paths.items[i]);
			l->ret->ino = item->node->ino;
		}
	}
	sbx_strings_release(&paths);
	return fd;
}

/* Finds what ITEM is about. A descriptor, -ESTALE when it is gone, or another -errno. */
static int look(struct loading *l, struct remote_item *item, struct stat *st)
{
	int fd;

	if (l->from->turn)
		pthread_rwlock_rdlock(l->from->turn);
	fd = find(l, item);
	if (l->from->turn)
		pthread_rwlock_unlock(l->from->turn);
	if (fd >= 0 && fstat(fd, st) < 0) {
		const int r = -errno;

		close(fd);
		fd = r;
	}
	if (fd == -EAGAIN)
		return sbx_fail(l->err, EAGAIN, "%s is not wholly here", item->path);
	if (fd < 0 && fd != -ESTALE)
		return sbx_fail(l->err, -fd, "cannot read %s: %s", item->path, strerror(-fd));
	return fd;
}

static const char *name_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* Puts ITEM into the pack, with what FD holds (-1: nothing). */
static int pack(struct loading *l, struct remote_item *item, const struct remote_member *m, int fd)
{
	int r = l->pack.n ? 0 : next_number(l, &l->pack_number);

	if (r)
		return r;
	r = remote_pack_add(&l->pack, m, fd);
	if (r)
		return sbx_fail(l->err, -r, "cannot read %s: %s", item->path, strerror(-r));
	item->state = REMOTE_ITEM_PACKED;
	item->number = l->pack_number;
	return 0;
}

/* Has ITEM put as a file of its own, which is FD (-1: an empty one), from here on the load's. */
static int put_alone(struct loading *l, struct remote_item *item, int fd, size_t size)
{
	struct sbx_http_bytes bytes = {.fd = fd, .size = size};
	int r = next_number(l, &item->number);

	if (fd < 0) {
		bytes.data = calloc(1, 1);
		bytes.size = 0;
	}
	if (!r && fd < 0 && !bytes.data)
		r = sbx_no_memory(l->err);
	if (!r)
		r = add_file(l, item->number, bytes);
	if (r && fd >= 0)
		close(fd);
	if (r)
		free((void *)bytes.data);
	l->bytes += bytes.size;
	item->state = REMOTE_ITEM_ALONE;
	return r;
}

/* A few links alone are no reason to put anything. */
static bool packs_links(const struct remote_batch_all *b)
{
	for (size_t i = 0; i < b->files; i++)
		if (b->items[i].node->type != S_IFLNK)
			return true;
	return b->files > LINKS_ALONE;
}

/* Has the link say what it is to say there. */
static int translate(const struct loading *l, struct remote_item *item)
{
	char *text;

	if (!l->from->text)
		return 0;
	text = l->from->text(item->node->target, l->from->data);
	if (!text)
		return sbx_no_memory(l->err);
	free(item->node->target);
	item->node->target = text;
	return 0;
}

/*
 * A file that is born and is gone by now is put empty, so that the batch is whole: a later one
 * removes it.
 */
static int load_file(struct loading *l, struct remote_item *item)
{
	const bool link = item->node->type == S_IFLNK;
	struct stat st = {.st_mode = S_IFREG | 0600};
	_cleanup_fd_ int fd = look(l, item, &st);
	struct remote_member m = {.directory = item->directory, .name = name_of(item->path)};
	int r = link ? translate(l, item) : 0;

	if (r < 0)
		return r;
	m.target = item->node->target;
	if (fd < 0 && fd != -ESTALE)
		return fd;
	if (!link)
		l->b->pub.places[item->place].put = fd >= 0;
	item->mode = m.mode = st.st_mode & PERMISSIONS;
	item->mtime = m.mtime = st.st_mtim;
	item->state = fd < 0 && !item->node->born ? REMOTE_ITEM_GONE : REMOTE_ITEM_ALONE;
	if (item->state == REMOTE_ITEM_GONE)
		return 0;
	if (remote_pack_fits(&m) &&
	    (link ? l->packs_links : (size_t)st.st_size <= REMOTE_PACK_FILE_MAX))
		return pack(l, item, &m, link ? -1 : fd);
	return link ? 0 : put_alone(l, item, sbx_steal_fd(&fd), (size_t)st.st_size);
}

static int load_status(struct loading *l, struct remote_item *item)
{
	struct stat st;
	_cleanup_fd_ int fd = look(l, item, &st);

	if (fd < 0 && fd != -ESTALE)
		return fd;
	item->state = fd < 0 ? REMOTE_ITEM_GONE : REMOTE_ITEM_ALONE;
	if (fd >= 0) {
		item->mode = st.st_mode & PERMISSIONS;
		item->mtime = st.st_mtim;
	}
	return 0;
}

static bool is_full(const struct loading *l)
{
	/* One is left for the pack, and one for the steps. */
	return l->ret->n >= FILES_MAX - 2 || l->bytes >= REMOTE_LOAD_BYTES ||
	       l->pack.n >= REMOTE_LOAD_BYTES;
}

static int write_steps(struct loading *l)
{
	struct remote_text copy = {0};
	int r = remote_batch_write(l->b);

	if (r)
		return sbx_no_memory(l->err);
	l->b->written = true;
	if (l->b->steps.n <= STEPS_INLINE)
		return 0;
	remote_text_add_n(&copy, l->b->steps.at, l->b->steps.n);
	r = next_number(l, &l->b->steps_number);
	if (!r)
		r = add_text(l, l->b->steps_number, &copy);
	remote_text_release(&copy);
	return r;
}

static int load(struct loading *l)
{
	struct remote_batch_all *b = l->b;
	int r = 0;

	for (; b->at < b->n && !is_full(l) && !r; b->at += !r) {
		struct remote_item *item = &b->items[b->at];

		if (item->kind == REMOTE_ITEM_FILE)
			r = load_file(l, item);
		else if (item->kind == REMOTE_ITEM_STATUS)
			r = load_status(l, item);
	}
	/* What was loaded before is put first. */
	if (r == -EAGAIN && (l->ret->n || l->pack.n))
		r = 0;
	if (!r && l->pack.n) {
		remote_pack_end(&l->pack);
		r = add_text(l, l->pack_number, &l->pack);
	}
	if (!r && b->at == b->n && !b->written)
		r = write_steps(l);
	return r;
}

int remote_batch_load(struct remote_journal *j, struct remote_batch *b,
                      const struct remote_source *from, struct remote_load *ret,
                      struct sbx_error *err)
{
	struct loading l = {
	        .j = j,
	        .b = sbx_container_of(b, struct remote_batch_all, pub),
	        .from = from,
	        .ret = ret,
	        .err = err,
	};
	int r;

	l.packs_links = packs_links(l.b);
	*ret = (struct remote_load){0};
	r = load(&l);
	remote_text_release(&l.pack);
	return r;
}

void remote_load_release(struct remote_load *load)
{
	for (size_t i = 0; i < load->n; i++) {
		free((void *)load->files[i].bytes.data);
		if (!load->files[i].bytes.data)
			close(load->files[i].bytes.fd);
	}
	free(load->files);
	free(load->missing);
	*load = (struct remote_load){0};
}
