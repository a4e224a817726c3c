/*
 * From files to objects. A file that has not changed since its content was last looked at is not
 * opened.
 *
 * What .gitattributes files ask for (line ends, $Id$) is applied as git does when it adds a file,
 * with those files as they are recorded themselves: libgit2 finds them in an index in memory and
 * never looks for them in the tree.
 *
 * Large files go piece by piece, and once more for each thing that has to be known before. A file
 * of holes is made in a moment and of any size: its zeros are not read but taken from memory.
 */
#include <errno.h>
#include <fcntl.h>
#include <git2/sys/repository.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/git/blob.h"
#include "backends/git/capture_impl.h"
#include "backends/git/git_impl.h"
#include "backends/git/import_objects.h"
#include "backends/git/index_tree.h"
#include "backends/support/beneath.h"
#include "sandboxfs/cleanup.h"

#define PIECE ((size_t)256 << 10)

/* The first SIZE bytes of a file, piece by piece. What is a hole is not read. */
struct capture_pieces {
	int fd;
	size_t size, at, until; /* from AT to UNTIL it is all data, or all a hole */
	bool hole;
	char *buf;
};

/* Not constant, so that the program is no larger by it. Nobody writes to it. */
static char zeros[PIECE];

/* Up to LEN bytes from OFFSET; fewer: the file ends there. */
static ssize_t read_at(int fd, char *buf, size_t len, off_t offset)
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

/* 0 or -ENOMEM. FD is borrowed. */
static int pieces_open(struct capture_pieces *p, int fd, size_t size)
{
	*p = (struct capture_pieces){.fd = fd, .size = size, .buf = malloc(PIECE)};
	return p->buf ? 0 : -ENOMEM;
}

static void pieces_close(struct capture_pieces *p)
{
	free(p->buf);
	p->buf = NULL;
}

/*
 * Finds out whether data or a hole is at AT, and how far. A file system that does not tell has
 * data only.
 */
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

/* The next one; its length, 0 at the end. -ESTALE: the file is shorter by now. */
static ssize_t pieces_next(struct capture_pieces *p, const char **ret)
{
	int r = p->at < p->size && p->at == p->until ? look(p) : 0;
	const size_t want = p->until - p->at < PIECE ? p->until - p->at : PIECE;
	ssize_t n = (ssize_t)want;

	if (r)
		return r;
	*ret = p->hole ? zeros : p->buf;
	if (!p->hole)
		n = read_at(p->fd, p->buf, want, (off_t)p->at);
	if (n >= 0 && (size_t)n < want)
		return -ESTALE;
	p->at += n > 0 ? (size_t)n : 0;
	return n;
}

static void entry_for_libgit2(git_index_entry *ret, const struct sbx_index_entry *e,
                              const char *path)
{
	*ret = (git_index_entry){.mode = sbx_index_mode(e), .path = path};
	memcpy(ret->id.id, e->oid, sizeof(e->oid));
}

static bool is_attributes(const char *path, size_t len)
{
	static const char name[] = ".gitattributes";
	size_t n = sizeof(name) - 1;

	return len >= n && memcmp(path + len - n, name, n) == 0 &&
	       (len == n || path[len - n - 1] == '/');
}

/* Has the .gitattributes E of the LEN bytes at PATH count. */
static int filters_show(struct capture *c, const struct sbx_index_entry *e, const char *path,
                        size_t len)
{
	_cleanup_free_ char *name = strndup(path, len);
	git_index_entry entry;

	if (!name)
		return -ENOMEM;
	entry_for_libgit2(&entry, e, name);
	if (S_ISREG(entry.mode))
		git_index_add(c->attributes, &entry);
	c->filtered = true;
	return 0;
}

/*
 * Loads the filters for ITEM's content; *ret may become NULL. Text that was recorded with CRs
 * keeps them: libgit2 looks into the index for that, but not for a large item.
 */
static int filters_load(struct capture *c, const struct capture_item *item, git_filter_list **ret)
{
	git_index_entry entry;
	bool shown = item->known && !item->large && !(item->known->flags & CAPTURE_STAGES) &&
	             S_ISREG(sbx_index_mode(item->known));
	int r;

	*ret = NULL;
	if (!c->filtered)
		return 0;
	r = git_filter_list_load(ret, c->options->repo, NULL, item->path, GIT_FILTER_TO_ODB,
	                         GIT_FILTER_DEFAULT);
	if (r || !*ret || !shown || is_attributes(item->path, strlen(item->path)))
		return r;
	entry_for_libgit2(&entry, item->known, item->path);
	git_index_add(c->attributes, &entry);
	return 0;
}

static bool has_attribute(const struct capture *c, const char *path, const char *name)
{
	const char *value = NULL;

	return git_attr_get(&value, c->options->repo, GIT_ATTR_CHECK_INDEX_ONLY, path, name) == 0 &&
	       git_attr_value(value) == GIT_ATTR_VALUE_STRING;
}

/* Whether a program may convert PATH, and not libgit2. */
static bool filters_foreign(const struct capture *c, const char *path)
{
	return has_attribute(c, path, "filter") || has_attribute(c, path, "working-tree-encoding");
}

static void filters_unload(struct capture *c, const struct capture_item *item,
                           git_filter_list *filters)
{
	if (filters && !is_attributes(item->path, strlen(item->path)))
		git_index_remove(c->attributes, item->path, 0);
	git_filter_list_free(filters);
}

/* ---- settings ---- */

static bool settings_convert(git_config *config)
{
	const char *value;
	git_buf path = {0};
	bool set = git_config_get_string(&value, config, "core.autocrlf") == 0 &&
	           strcmp(value, "false") != 0;

	if (git_config_get_path(&path, config, "core.attributesfile") == 0) {
		git_buf_dispose(&path);
		set = true;
	}
	return set;
}

static bool has_attribute_files(const char *common)
{
	_cleanup_free_ char *info = sbx_format("%sinfo/attributes", common);
	const char *xdg = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
	_cleanup_free_ char *user =
	        xdg && *xdg ? sbx_format("%s/git/attributes", xdg)
	                    : sbx_format("%s/.config/git/attributes", home ? home : "");

	return (info && access(info, F_OK) == 0) || (user && access(user, F_OK) == 0);
}

static void read_settings(struct capture *c)
{
	git_config *config = NULL, *snapshot = NULL;
	int filemode = 1;

	if (git_repository_config(&config, c->options->repo) == 0 &&
	    git_config_snapshot(&snapshot, config) == 0) {
		git_config_get_bool(&filemode, snapshot, "core.filemode");
		c->filtered = settings_convert(snapshot);
	}
	c->filemode = filemode;
	c->filtered |= has_attribute_files(git_repository_commondir(c->options->repo));
	git_config_free(snapshot);
	git_config_free(config);
}

/* Has libgit2 see attributes and settings as they are to hold. Its codes. */
static int filters_open(struct capture *c)
{
	int r = git_index_new(&c->attributes);

	read_settings(c);
	return r ? r : git_repository_set_index(c->options->repo, c->attributes);
}

static void filters_close(struct capture *c)
{
	git_repository_set_index(c->options->repo, NULL);
}

#define SNIFF 8000

/* Says that libgit2 failed with R at PATH. */
static int failed(struct capture *c, int r, const char *path)
{
	return sbx_git_fail(c->err, r, "cannot record %s", path);
}

/* An object that is being written, of the length that was said before. */
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
	return git_odb_stream_write(w->stream, data, len) ? failed(w->c, GIT_ERROR, "a file") : 0;
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
	const char *data = NULL;
	ssize_t n;
	int r = pieces_open(&pieces, in->fd, in->size);

	while (!r && (n = pieces_next(&pieces, &data)) != 0) {
		r = n < 0 ? (int)n : capture_is_over(in->c);
		if (!r)
			r = fn(data, (size_t)n, to);
	}
	pieces_close(&pieces);
	return r;
}

/*
 * Writes the object of IN as HOW (may be NULL) converts it, of SIZE bytes. -ESTALE: it is of
 * another size now.
 */
static int stream_converted(struct capture *c, struct capture_item *item, struct reading *in,
                            const struct sbx_convert *how, size_t size)
{
	struct writing w = {.c = c, .left = size};
	struct sbx_git_owner owner = {0};
	git_oid oid;
	int r, gr;

	if (c->options->common)
		owner = sbx_git_owner_begin(c->options->common);
	gr = git_odb_open_wstream(&w.stream, c->odb, (git_object_size_t)size, GIT_OBJECT_BLOB);
	if (gr)
		r = failed(c, gr, item->path);
	else
		r = how ? sbx_convert_run(how, give_pieces, in, write_piece, &w)
		        : give_pieces(write_piece, &w, in);
	if (!r && w.left)
		r = -ESTALE;
	if (!r) {
		gr = git_odb_stream_finalize_write(&oid, w.stream);
		r = gr ? failed(c, gr, item->path) : 0;
	}
	git_odb_stream_free(w.stream);
	sbx_git_owner_end(&owner);
	if (!r)
		memcpy(item->entry.oid, oid.id, sizeof(item->entry.oid));
	return r;
}

/* Records the file ITEM, open at FD, as it is. -ESTALE: it changed. */
static int record_as_is(struct capture *c, struct capture_item *item, int fd)
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
	ssize_t n = read_at(fd, head, sizeof(head), 0);

	return n > 0 && memchr(head, '\0', (size_t)n);
}

/* Records the file ITEM, open at FD, as FILTERS convert it. -ESTALE: it changed. */
static int record_large(struct capture *c, struct capture_item *item, int fd,
                        git_filter_list *filters)
{
	struct reading in = {.c = c, .fd = fd, .size = (size_t)item->st.st_size};
	struct sbx_convert how;
	bool kept = false;
	size_t size;
	int r = 0;

	if (!sbx_convert_probe(&how, filters, false, NULL))
		return record_as_is(c, item, fd);
	if (how.lines && how.guess)
		r = !how.encoding[0] && is_binary(fd) ? (kept = true, 0) : is_kept(c, item, &kept);
	how.lines = how.lines && !kept;
	if (!r)
		r = sbx_convert_look(&how, give_pieces, &in);
	if (!r && !how.lines && !how.ident && !how.encoding[0])
		return record_as_is(c, item, fd);
	if (!r)
		r = sbx_convert_length(&how, give_pieces, &in, &size);
	if (!r)
		r = stream_converted(c, item, &in, &how, size);
	if (!r && (size != in.size || how.encoding[0]))
		c->ret->inexact = true;
	return r;
}

#define TRIES 4
/* Made in a moment, a file of nothing but holes takes hours to read. This much is read in about a
 * minute. */
#define HOLES ((uint64_t)16 << 30)

/* ---- stat data ---- */

static uint32_t get32(const unsigned char *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void put32(unsigned char *p, uint64_t v)
{
	for (int i = 0; i < 4; i++)
		p[i] = (unsigned char)(v >> (24 - 8 * i));
}

void sbx_capture_stat(struct sbx_index_entry *e, const struct stat *st, uint32_t mode,
                      const struct sbx_identity *owner)
{
	bool own = st->st_uid == owner->uid;

	put32(e->stat, (uint64_t)st->st_ctim.tv_sec);
	put32(e->stat + 4, (uint64_t)st->st_ctim.tv_nsec);
	put32(e->stat + 8, (uint64_t)st->st_mtim.tv_sec);
	put32(e->stat + 12, (uint64_t)st->st_mtim.tv_nsec);
	put32(e->stat + 16, st->st_dev);
	put32(e->stat + 20, st->st_ino);
	put32(e->stat + 24, mode);
	put32(e->stat + 28, own ? geteuid() : st->st_uid);
	put32(e->stat + 32, own ? getegid() : st->st_gid);
	put32(e->stat + 36, (uint64_t)st->st_size);
}

static uint32_t git_mode(const struct capture *c, const struct capture_item *item)
{
	uint32_t known = item->known ? sbx_index_mode(item->known) : 0;

	if (S_ISLNK(item->st.st_mode))
		return S_IFLNK;
	if (!c->filemode)
		return S_ISREG(known) ? known : S_IFREG | 0644;
	return S_IFREG | (item->st.st_mode & S_IXUSR ? 0755 : 0644);
}

static bool is_before(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec < b->tv_sec || (a->tv_sec == b->tv_sec && a->tv_nsec < b->tv_nsec);
}

/*
 * Whether ENTRY, of an index written AT, tells this file's content. A command sets the time of
 * modification as it likes: a file that was changed AT may be changed once more in the same tick of
 * the clock, and no other time tells.
 */
static bool is_current(const struct sbx_index_entry *entry, const struct timespec *at,
                       const struct stat *st)
{
	const unsigned char *s = entry->stat;

	if (entry->flags & CAPTURE_STAGES || entry->extended & CAPTURE_INTENT_FLAG ||
	    (sbx_index_mode(entry) & S_IFMT) != (st->st_mode & S_IFMT))
		return false;
	if (get32(s) != (uint32_t)st->st_ctim.tv_sec ||
	    get32(s + 4) != (uint32_t)st->st_ctim.tv_nsec ||
	    get32(s + 8) != (uint32_t)st->st_mtim.tv_sec ||
	    get32(s + 12) != (uint32_t)st->st_mtim.tv_nsec ||
	    get32(s + 20) != (uint32_t)st->st_ino || get32(s + 36) != (uint32_t)st->st_size)
		return false;
	return is_before(&st->st_mtim, at) && is_before(&st->st_ctim, at);
}

/* ---- objects ---- */

static int write_blob(struct capture *c, struct capture_item *item, const char *data, size_t len)
{
	git_oid oid;
	int r = sbx_object_writer_put(c->writer, GIT_OBJECT_BLOB, data, len, item->path, &oid);

	if (r)
		return r;
	memcpy(item->entry.oid, oid.id, sizeof(item->entry.oid));
	return 0;
}

/* ---- files ---- */

static int hash_whole(struct capture *c, struct capture_item *item, int fd,
                      git_filter_list *filters)
{
	size_t size = (size_t)item->st.st_size;
	_cleanup_free_ char *data = malloc(size + 1);
	ssize_t n = data ? read_at(fd, data, size, 0) : -ENOMEM;
	git_buf out = {0};
	int r;

	if (n < 0)
		return (int)n;
	if ((size_t)n < size)
		return -ESTALE;
	if (!filters)
		return write_blob(c, item, data, size);
	r = git_filter_list_apply_to_buffer(&out, filters, data, size);
	/* core.safecrlf and the like: as it is, rather than not at all. */
	if (!r && (out.size != size || memcmp(out.ptr, data, size) != 0))
		c->ret->inexact = true;
	r = r ? write_blob(c, item, data, size) : write_blob(c, item, out.ptr, out.size);
	git_buf_dispose(&out);
	return r;
}

/* -EFBIG, with a sentence unless such files are left out: there is too much to read that takes up
 * no room. */
static int count_holes(struct capture *c, const struct capture_item *item)
{
	const uint64_t size = (uint64_t)item->st.st_size, room = (uint64_t)item->st.st_blocks * 512;
	int r;

	if (size <= room || size - room <= HOLES - c->holes) {
		c->holes += size <= room ? 0 : size - room;
		return 0;
	}
	if (!c->options->spare)
		return sbx_fail(c->err, EFBIG,
		                "%s is too large to be recorded, though it is mostly empty: remove "
		                "it, or name it in .gitignore",
		                item->path);
	c->ret->inexact = true;
	r = sbx_strings_add(&c->ret->left_out, item->path);
	return r ? r : -EFBIG;
}

/* Whether git, whatever the umask, makes files of this mode. */
static bool is_plain_mode(mode_t mode)
{
	switch (mode & 07777) {
	case 0644:
	case 0664:
	case 0666:
	case 0755:
	case 0775:
	case 0777:
		return true;
	default:
		return false;
	}
}

/* Whether the file, or what the index has of it, is not to be held in memory. */
static bool is_large(const struct capture *c, const struct capture_item *item)
{
	git_object_t type;
	git_oid oid;
	size_t size;

	if (item->st.st_size > (off_t)CAPTURE_SMALL)
		return true;
	if (!c->filtered || !item->known)
		return false;
	memcpy(oid.id, item->known->oid, sizeof(item->known->oid));
	return git_odb_read_header(&size, &type, c->odb, &oid) == 0 && size > CAPTURE_SMALL;
}

static int hash_open(struct capture *c, struct capture_item *item, int fd)
{
	git_filter_list *filters;
	int r = count_holes(c, item);

	if (r)
		return r;
	item->large = is_large(c, item);
	r = filters_load(c, item, &filters);
	if (r)
		return failed(c, r, item->path);
	if (!item->large)
		r = hash_whole(c, item, fd, filters);
	else
		r = filters ? record_large(c, item, fd, filters) : record_as_is(c, item, fd);
	filters_unload(c, item, filters);
	return r;
}

/* ---- files and links ---- */

/* A file that its owner may not read is made readable for the moment. */
static int open_file(int root, const char *path)
{
	int fd = sbx_beneath_open(root, path, O_RDONLY);
	_cleanup_fd_ int opath = -1;
	_cleanup_free_ char *proc = NULL;
	struct stat st;

	if (fd != -EACCES)
		return fd;
	opath = sbx_beneath_open(root, path, O_PATH);
	proc = sbx_format("/proc/self/fd/%d", opath);
	if (opath < 0 || !proc || fstat(opath, &st) < 0 || !S_ISREG(st.st_mode) ||
	    chmod(proc, (st.st_mode & 07777) | 0400) < 0)
		return fd;
	fd = sbx_beneath_open(root, path, O_RDONLY);
	chmod(proc, st.st_mode & 07777);
	return fd;
}

static bool same_time(const struct stat *a, const struct stat *b)
{
	return a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
	       a->st_mtim.tv_nsec == b->st_mtim.tv_nsec && a->st_ctim.tv_sec == b->st_ctim.tv_sec &&
	       a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

/* -ESTALE: it changed while it was read; what was read is recorded all the same if there is
 * something. */
static int hash_file_once(struct capture *c, struct capture_item *item, bool *read)
{
	_cleanup_fd_ int fd = open_file(c->options->root, item->path);
	struct stat after;
	int r;

	if (fd < 0)
		return fd;
	if (fstat(fd, &item->st) < 0)
		return -errno;
	if (!S_ISREG(item->st.st_mode))
		return -ENOENT;
	c->ret->inexact |= !is_plain_mode(item->st.st_mode);
	r = hash_open(c, item, fd);
	if (r)
		return r;
	*read = true;
	return fstat(fd, &after) < 0 || !same_time(&item->st, &after) ? -ESTALE : 0;
}

static int hash_link(struct capture *c, struct capture_item *item)
{
	_cleanup_fd_ int fd = sbx_beneath_open(c->options->root, item->path, O_PATH);
	char target[PATH_MAX];
	ssize_t n;

	if (fd < 0)
		return fd;
	n = readlinkat(fd, "", target, sizeof(target));
	if (n < 0 || fstat(fd, &item->st) < 0)
		return -ENOENT;
	return write_blob(c, item, target, (size_t)n);
}

/* 0 also when it is gone or cannot be read; then the index's word is what there is. */
static int hash_item(struct capture *c, struct capture_item *item)
{
	bool read = false;
	int r = -ESTALE;

	if (S_ISLNK(item->st.st_mode))
		r = hash_link(c, item);
	for (int i = 0; i < TRIES && r == -ESTALE; i++)
		r = hash_file_once(c, item, &read);
	if (r == -ESTALE && read) {
		r = 0;
		item->st.st_mtim = (struct timespec){0};
	}
	if (!r) {
		item->hashed = true;
		return 0;
	}
	item->gone = true;
	c->ret->inexact = true;
	if (c->err->code || r == -ENOMEM || r == -EMFILE || r == -ENFILE || r == -EIO)
		return r;
	return 0;
}

/*
 * Whether the object of E is there. A file that was seen before may have been recorded in another
 * place, or its object may have been taken out since.
 */
static bool is_recorded(const struct capture *c, const struct sbx_index_entry *e)
{
	git_oid oid;

	memcpy(oid.id, e->oid, sizeof(e->oid));
	return git_odb_exists_ext(c->odb, &oid, GIT_ODB_LOOKUP_NO_REFRESH);
}

static void look_up(struct capture *c, struct capture_item *item)
{
	const struct sbx_capture_options *w = c->options;
	const struct sbx_index_entry *e = item->known;

	if (!w->believe || !e || !is_current(e, &w->known_at, &item->st)) {
		e = w->seen ? sbx_index_find(w->seen, item->path, strlen(item->path)) : NULL;
		if (!e || !is_current(e, &w->seen_at, &item->st) || !is_recorded(c, e))
			return;
	}
	memcpy(item->entry.oid, e->oid, sizeof(e->oid));
	item->hashed = item->believed = true;
}

/* ---- what git does not record ---- */

/*
 * A content becomes shorter by libgit2's conversion, or stays the same: it takes out CRs and the
 * expansion of $Id$. An index may have been written by a git with programs that convert.
 */
static bool is_as_recorded(struct capture *c, const struct capture_item *item)
{
	git_object_t type;
	git_oid oid;
	size_t size;

	if (!c->filtered)
		return true;
	memcpy(oid.id, item->entry.oid, sizeof(item->entry.oid));
	return git_odb_read_header(&size, &type, c->odb, &oid) == 0 &&
	       size == (size_t)item->st.st_size &&
	       !(item->believed && filters_foreign(c, item->path));
}

static int hash_bytes(struct capture *c, struct capture_item *item)
{
	_cleanup_fd_ int fd = open_file(c->options->root, item->path);
	struct capture_item plain = {.path = item->path};
	int r = fd < 0 ? fd : fstat(fd, &plain.st) < 0 ? -errno : 0;

	if (!r && !S_ISREG(plain.st.st_mode))
		r = -ENOENT;
	if (!r)
		r = plain.st.st_size > (off_t)CAPTURE_SMALL ? record_as_is(c, &plain, fd)
		                                            : hash_whole(c, &plain, fd, NULL);
	memcpy(item->bytes, plain.entry.oid, sizeof(item->bytes));
	return r;
}

/* Where its bytes cannot be read now, they are those that were recorded. */
static int note_exact(struct capture *c, struct capture_item *item)
{
	const mode_t mode = item->st.st_mode & 07777;
	int r = 0;

	if (!c->options->exact || !S_ISREG(item->st.st_mode))
		return 0;
	memcpy(item->bytes, item->entry.oid, sizeof(item->bytes));
	item->exact = mode != 0644 && mode != 0755;
	if (!is_as_recorded(c, item)) {
		item->exact = true;
		r = hash_bytes(c, item);
		if (r == -ESTALE || r == -ENOENT || r == -EACCES)
			memcpy(item->bytes, item->entry.oid, sizeof(item->bytes));
	}
	return c->err->code || r == -ENOMEM || r == -EIO || r == -ENOSPC ? r : 0;
}

static int do_item(struct capture *c, struct capture_item *item)
{
	int r = item->hashed || item->gone ? 0 : capture_is_over(c);

	if (!r && !item->hashed && !item->gone)
		r = hash_item(c, item);
	if (!r && !item->gone)
		r = note_exact(c, item);
	if (r || item->gone)
		return r;
	sbx_capture_stat(&item->entry, &item->st, git_mode(c, item), &c->options->owner);
	item->entry.name = item->path;
	item->entry.len = (uint32_t)strlen(item->path);
	return 0;
}

/* ---- all of it ---- */

/* Those of the index that are not to be hashed anew, and then those that are. */
static int show_all_attributes(struct capture *c)
{
	const struct sbx_index *known = c->options->known;
	int r = 0;

	for (size_t i = 0; i < known->n && !r; i++) {
		const struct sbx_index_entry *e = &known->at[i];

		if (is_attributes(e->name, e->len) && !(e->flags & CAPTURE_STAGES))
			r = filters_show(c, e, e->name, e->len);
	}
	for (size_t i = 0; i < c->n && !r; i++) {
		struct capture_item *item = &c->items[i];

		if (!is_attributes(item->path, strlen(item->path)))
			continue;
		r = do_item(c, item);
		/* It is read next. */
		if (!r && !item->gone)
			r = sbx_object_writer_wait(c->writer, c->err);
		if (!r && !item->gone)
			r = filters_show(c, &item->entry, item->path, strlen(item->path));
	}
	return r;
}

int capture_hash(struct capture *c)
{
	int r;

	if (filters_open(c))
		return failed(c, GIT_ERROR, "the tree");
	for (size_t i = 0; i < c->n; i++)
		look_up(c, &c->items[i]);
	r = show_all_attributes(c);
	for (size_t i = 0; i < c->n && !r; i++)
		r = do_item(c, &c->items[i]);
	filters_close(c);
	return r;
}
