/*
 * The entry of the trash that a teardown makes. The teardown notes its part before anything is
 * taken away. The removal adds the rest: it reads the tree, which is out of sight by then, or the
 * copy that was kept of it.
 */
#include "backends/local/trash/save.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "backends/git/capture.h"
#include "backends/git/git_impl.h"
#include "backends/git/import_objects.h"
#include "backends/git/index_tree.h"
#include "backends/git/left.h"
#include "backends/git/store.h"
#include "backends/local/overlay/create_overlay.h"
#include "backends/local/overlay/overlay.h"
#include "backends/local/overlay/paths.h"
#include "backends/local/trash/removal_log.h"
#include "backends/local/trash/removal_restore.h"
#include "backends/local/trash/removed.h"
#include "backends/local/trash/trash.h"
#include "backends/support/beneath.h"
#include "backends/support/fsutil.h"
#include "sandboxfs/clock.h"
#include "sandboxfs/grow.h"

#define SUM 20 /* bytes at the end of an index */

static int look_for_more(const char *name, unsigned char type, void *data)
{
	(void)type;
	(void)data;
	return strcmp(name, ".git") != 0;
}

/* Whether DIR has nothing in it but a .git. */
static bool is_bare(int dir)
{
	_cleanup_fd_ int fd = dir < 0 ? -1 : sbx_dir_open(dir, ".");

	return fd >= 0 && sbx_dir_scan(fd, look_for_more, NULL) == 0;
}

static bool read_end(int dir, const char *name, off_t *size, unsigned char sum[SUM])
{
	_cleanup_fd_ int fd = sbx_beneath_open(dir, name, O_RDONLY);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0 || st.st_size < SUM)
		return false;
	*size = st.st_size;
	return pread(fd, sum, SUM, st.st_size - SUM) == SUM;
}

/* Whether the index in ENTRY is that of the base, as both end with the same checksum. */
static bool has_base_index(const struct sbx_local_sandbox *s, int entry)
{
	static const unsigned char none[SUM];
	_cleanup_fd_ int base = sbx_local_base_dir(s->backend, &s->rec);
	unsigned char a[SUM], b[SUM];
	off_t n, m;

	return base >= 0 && read_end(entry, "index", &n, a) && read_end(base, "index", &m, b) &&
	       n == m && memcmp(a, b, SUM) == 0 && memcmp(a, none, SUM) != 0;
}

/* Whether commands have made objects of their own, which may be commits that no ref of the source
 * has. */
/* Snapshots, that is, or a mark of what was before a reset. */
static bool has_history(const struct sbx_local_sandbox *s)
{
	_cleanup_free_ char *path = sbx_format("%s/history", s->rec.id);

	return !path || faccessat(s->backend->state.git, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static bool has_objects(const struct sbx_local_sandbox *s)
{
	_cleanup_fd_ int repo = sbx_local_repo(s->backend, &s->rec, s->disk);

	return repo >= 0 && sbx_git_left_any(repo);
}

/* A quick look whether anything was changed; in doubt it was. */
static bool is_untouched(const struct sbx_local_sandbox *s, int entry, const char *head)
{
	_cleanup_fd_ int upper = -1;

	if (!s->rec.layer)
		return !s->rec.common && strcmp(s->rec.kind, "none") == 0 && is_bare(s->root);
	upper = sbx_local_upper(s->backend, &s->rec, s->disk);
	if (!is_bare(upper))
		return false;
	if (!s->rec.common || entry < 0)
		return true;
	return strcmp(head, s->rec.base) == 0 && has_base_index(s, entry);
}

/* Another link to the index, or a copy: its own goes with the worktree's entry. */
static int put_aside(const struct sbx_local_sandbox *s, int entry)
{
	_cleanup_fd_ int dir = sbx_dir_make(s->backend->state.git, s->rec.id, 0700);
	_cleanup_fd_ int in = -1, out = -1;
	struct stat st;
	int r;

	if (dir < 0)
		return dir;
	unlinkat(dir, SBX_LOCAL_TRASH_INDEX, 0);
	if (linkat(entry, "index", dir, SBX_LOCAL_TRASH_INDEX, 0) == 0 || errno == ENOENT)
		return 0;
	in = sbx_beneath_open(entry, "index", O_RDONLY);
	if (in < 0 || fstat(in, &st) < 0)
		return in < 0 ? in : -errno;
	out = openat(dir, SBX_LOCAL_TRASH_INDEX, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (out < 0)
		return -errno;
	r = sbx_file_copy(in, out);
	if (!r && futimens(out, (struct timespec[2]){st.st_atim, st.st_mtim}) < 0)
		r = -errno;
	return r;
}

/* Once: who tears down again wants it gone. */
static int refuse(struct sbx_local_sandbox *s, int r, const char *what, struct sbx_error *err)
{
	sbx_local_trash_unplan(s);
	s->warned = true;
	return sbx_fail(err, -r,
	                "what was %s %s cannot be put aside: %s; tear it down again to lose it",
	                what, s->rec.name, strerror(-r));
}

/* As sbx_removal_hold, where nothing else is left: TREE, there is. */
static int hold_removed(struct sbx_local_sandbox *s, bool tree)
{
	int lost = 0;
	int r = !tree && s->kept ? sbx_removal_hold(s->kept, &lost) : 0;

	if (r < 0 && s->warned)
		lost = r;
	if (lost)
		sbx_fail(&s->lost, -lost,
		         "some of what was removed from %s file by file could not be kept: %s",
		         s->rec.name, strerror(-lost));
	return r;
}

int sbx_local_trash_plan(struct sbx_local_sandbox *s, struct sbx_error *err)
{
	const bool tree = !is_bare(s->root);
	char head[GIT_OID_HEXSZ + 1] = "";
	_cleanup_fd_ int entry = -1;
	int kept, r = 0;

	if (!s->backend->kept || s->rec.state != SBX_RECORD_READY)
		return 0;
	if (s->rec.common) {
		entry = sbx_local_entry_open(&s->rec, NULL);
		/* Somebody has taken the entry away: then of the commit nothing is known but where
		 * all began. */
		if (entry < 0 || sbx_local_head(&s->rec, entry, head, NULL) < 0)
			snprintf(head, sizeof(head), "%s", s->rec.base);
	}
	kept = hold_removed(s, tree);
	if (kept < 0 && !s->warned)
		return refuse(s, kept, "removed from", err);
	if (kept <= 0 && is_untouched(s, entry, head) &&
	    !(s->rec.common && (has_objects(s) || has_history(s))))
		return 0;
	if (entry >= 0)
		r = put_aside(s, entry);
	if (r && !s->warned)
		return refuse(s, r, "staged in", err);
	s->rec.head = *head ? strdup(head) : NULL;
	s->rec.save = strdup(kept > 0 ? "kept" : "tree");
	s->rec.removed_ms = sbx_real_ms();
	if (s->rec.save && (!s->rec.common || s->rec.head))
		return 0;
	sbx_local_trash_unplan(s);
	return sbx_no_memory(err);
}

void sbx_local_trash_unplan(struct sbx_local_sandbox *s)
{
	free(s->rec.save);
	free(s->rec.head);
	s->rec.save = s->rec.head = NULL;
}

#define DAY_MS ((int64_t)24 * 60 * 60 * 1000)
#define GONE   ".gone"

#define BORROWED_MAX ((size_t)1 << 20)

struct saving {
	struct sbx_local *b;
	struct sbx_record *rec;
	int root, disk;
	git_repository *repo;
	char *common; /* whose owner makes files */
	bool git;     /* repo is the source */
	/* The index as the worktree had it, and that of the base. */
	struct sbx_index known, lower;
	struct timespec known_at;
	git_oid lower_tree, head_tree;
	bool has_known, has_lower;
	bool lost;    /* some of it cannot be saved at all */
	bool inexact; /* the tree that git has does not say all (sbx_captured) */
	struct sbx_trash_entry entry;
};

int sbx_local_trash_repo(struct sbx_local *b, const char *common, bool make, git_repository **ret)
{
	_cleanup_free_ char *path =
	        common ? strdup(common) : sbx_format("%s/" SBX_TRASHED, b->state.path);
	git_repository_init_options opts = GIT_REPOSITORY_INIT_OPTIONS_INIT;

	if (!path)
		return -1;
	if (common || !make || faccessat(b->state.dir, SBX_TRASHED "/HEAD", F_OK, 0) == 0)
		return git_repository_open_bare(ret, path);
	opts.flags = GIT_REPOSITORY_INIT_BARE | GIT_REPOSITORY_INIT_NO_DOTGIT_DIR |
	             GIT_REPOSITORY_INIT_MKDIR;
	opts.mode = 0700;
	return git_repository_init_ext(ret, path, &opts);
}

/* The state directory's sees the objects of the repository COMMON, as long as that is there. 0 or
 * libgit2's code. */
static int borrow(struct sbx_local *b, const char *common)
{
	_cleanup_fd_ int dir = sbx_dir_open(b->state.dir, SBX_TRASHED);
	_cleanup_fd_ int info = dir < 0 ? dir : sbx_dir_make(dir, "objects/info", 0700);
	_cleanup_free_ char *line = sbx_format("%s/objects\n", common);
	_cleanup_free_ char *known = NULL, *text = NULL;
	int r = info < 0 ? info : sbx_file_read(info, "alternates", BORROWED_MAX, &known);

	if (r && r != -ENOENT)
		return GIT_ERROR;
	if (!line || (known && strstr(known, line)))
		return line ? 0 : GIT_ERROR;
	text = sbx_format("%s%s", known ? known : "", line);
	return text && sbx_file_replace(info, "alternates", "alternates.new", text) == 0
	               ? 0
	               : GIT_ERROR;
}

static bool has_commit(git_repository *repo, const char *hex)
{
	_cleanup_git_(object) git_object *c = NULL;
	git_oid oid;

	return git_oid_fromstr(&oid, hex) == 0 &&
	       git_object_lookup(&c, repo, &oid, GIT_OBJECT_COMMIT) == 0;
}

/* --- what is known
 * ---------------------------------------------------------------------------------- */

static int read_index(int dir, const char *name, struct sbx_index *ret, struct timespec *at)
{
	_cleanup_free_ char *data = NULL;
	size_t len;
	int r = dir < 0 ? dir : sbx_beneath_read(dir, name, SBX_INDEX_MAX, &data, &len, at);

	return r ? r : sbx_index_parse(data, len, ret, NULL);
}

static int tree_of(git_repository *repo, const char *commit, git_oid *ret)
{
	git_commit *c = NULL;
	git_oid oid;
	int r = git_oid_fromstr(&oid, commit);

	if (!r)
		r = git_commit_lookup(&c, repo, &oid);
	if (!r)
		*ret = *git_commit_tree_id(c);
	git_commit_free(c);
	return r;
}

/* An index that cannot be read was not understood, or is damaged: then all is looked at. */
static int read_git(struct saving *s, struct sbx_error *err)
{
	_cleanup_fd_ int git = sbx_dir_open(s->b->state.git, s->rec->id);
	_cleanup_fd_ int base = sbx_local_base_dir(s->b, s->rec);
	struct timespec at;
	int r = tree_of(s->repo, s->rec->head, &s->head_tree);

	if (r)
		return sbx_git_fail(err, r, "commit %s", s->rec->head);
	s->has_known = read_index(git, SBX_LOCAL_TRASH_INDEX, &s->known, &s->known_at) == 0;
	s->has_lower = base >= 0 && read_index(base, "index", &s->lower, &at) == 0 &&
	               tree_of(s->repo, s->rec->base, &s->lower_tree) == 0;
	s->entry.has_head = true;
	return git_oid_fromstr(&s->entry.head, s->rec->head);
}

static bool has_stages(const struct sbx_index *index)
{
	for (size_t i = 0; i < index->n; i++)
		if (index->at[i].flags & 0x3000)
			return true;
	return false;
}

/* Writes the tree of what was staged; of an unfinished merge there is none. */
static int write_staged(struct saving *s)
{
	struct sbx_trash_entry *e = &s->entry;
	git_odb *odb = NULL;
	int r;

	if (!s->has_known || has_stages(&s->known))
		return 0;
	r = git_repository_odb(&odb, s->repo);
	if (!r)
		r = sbx_index_write_tree(&s->known, odb, NULL, s->has_lower ? &s->lower : NULL,
		                         s->has_lower ? &s->lower_tree : NULL, &e->staged);
	git_odb_free(odb);
	e->has_staged = !r && !git_oid_equal(&e->staged, &s->head_tree);
	return r;
}

/* --- reading the tree
 * --------------------------------------------------------------------------------- */

static int capture(struct saving *s, struct sbx_capture_options *w, struct sbx_error *err)
{
	static const struct sbx_index none;
	struct sbx_captured captured = {0};
	int r;

	w->spare = true;
	w->repo = s->repo;
	w->common = s->common;
	w->known = s->has_known ? &s->known : &none;
	w->known_at = s->known_at;
	w->believe = w->upper < 0;
	w->owner = s->rec->layer && s->b->overlay
	                   ? *sbx_overlay_owner(s->b->overlay)
	                   : (struct sbx_identity){.uid = geteuid(), .gid = getegid()};
	r = sbx_capture(w, &captured, err);
	s->entry.tree = captured.tree;
	s->inexact = captured.inexact;
	sbx_captured_release(&captured);
	return r;
}

static int capture_tree(struct saving *s, struct sbx_error *err)
{
	_cleanup_fd_ int upper = s->has_lower ? sbx_local_upper(s->b, s->rec, s->disk) : -1;
	struct sbx_capture_options w = {.root = s->root, .upper = upper < 0 ? -1 : upper};

	if (upper >= 0) {
		w.lower = &s->lower;
		w.lower_tree = &s->lower_tree;
	}
	return capture(s, &w, err);
}

static int open_kept(const struct saving *s)
{
	_cleanup_fd_ int room =
	        s->disk >= 0 ? sbx_dir_open(s->disk, "kept") : sbx_dir_open(s->b->state.kept, ".");

	return room < 0 ? room : sbx_dir_open(room, s->rec->id);
}

static int capture_view(struct saving *s, const struct sbx_removal_view *view,
                        struct sbx_error *err)
{
	struct sbx_capture_options w = {.root = view->tree, .upper = -1};
	git_odb *odb = NULL;
	git_oid lower;
	int r;

	if (!s->has_lower)
		return capture(s, &w, err);
	r = git_repository_odb(&odb, s->repo);
	if (!r)
		r = sbx_index_write_tree(&view->lower, odb, NULL, &s->lower, &s->lower_tree,
		                         &lower);
	git_odb_free(odb);
	if (r)
		return sbx_git_fail(err, r, "a tree cannot be written");
	w.upper = view->tree;
	w.lower = &view->lower;
	w.lower_tree = &lower;
	return capture(s, &w, err);
}

static int capture_kept(struct saving *s, struct sbx_error *err)
{
	_cleanup_fd_ int dir = open_kept(s), base = sbx_local_base_dir(s->b, s->rec);
	struct sbx_removal_view view;
	int r;

	if (dir < 0)
		return sbx_fail(err, -dir, "what was removed cannot be read: %s", strerror(-dir));
	r = sbx_removal_view_make(dir, base, s->has_lower ? &s->lower : NULL, &view, err);
	if (r)
		return r;
	r = capture_view(s, &view, err);
	sbx_removal_view_release(&view);
	return r;
}

/* --- saving
 * ----------------------------------------------------------------------------------------- */

static bool is_empty(git_repository *repo, const git_oid *id)
{
	_cleanup_git_(tree) git_tree *tree = NULL;

	return git_tree_lookup(&tree, repo, id) == 0 && git_tree_entrycount(tree) == 0;
}

static bool is_worth_it(const struct saving *s)
{
	if (s->inexact)
		return true;
	if (!s->git)
		return !is_empty(s->repo, &s->entry.tree);
	return s->entry.has_left || s->entry.has_staged ||
	       !git_oid_equal(&s->entry.tree, &s->head_tree);
}

/*
 * Brings commits over that the source has not, or that no ref of it leads to once the snapshots'
 * are gone.
 */
static int bring_left(struct saving *s, struct sbx_error *err)
{
	_cleanup_git_(repository) git_repository *source = NULL;
	_cleanup_fd_ int repo = sbx_local_repo(s->b, s->rec, s->disk);
	const struct sbx_git_left of = {.branch = s->rec->branch,
	                                .repo = repo,
	                                .worktree = s->rec->worktree,
	                                .whose = s->rec->name};
	struct sbx_git_owner owner;
	int r = git_repository_open_bare(&source, s->rec->common);

	if (r)
		return sbx_git_fail(err, r, "cannot open the repository %s", s->rec->common);
	owner = sbx_git_owner_begin(s->common);
	r = sbx_git_left_bring(s->repo, source, &of, &s->entry.left, &s->lost, err);
	sbx_git_owner_end(&owner);
	s->entry.has_left = r > 0;
	return r < 0 ? r : 0;
}

static int find_own(const struct sbx_trash_entry *e, void *data)
{
	struct saving *s = data;

	if (strcmp(e->id, s->rec->id) != 0)
		return 0;
	s->entry.commit = e->commit;
	return 1;
}

/*
 * An entry in the state directory's repository must outlive a gc of the source that it borrows
 * from.
 */
static int own_entry(struct saving *s, struct sbx_error *err)
{
	_cleanup_git_(repository) git_repository *source = NULL;
	int r = sbx_trash_each(s->repo, find_own, s);

	/* Where there is no source any more there is nothing that could be taken away. */
	if (r <= 0 || git_repository_open_bare(&source, s->rec->common))
		return r < 0 ? sbx_git_fail(err, r, "the trash cannot be read") : 0;
	r = sbx_git_left_own(s->repo, source, s->rec->branch, &s->entry.commit);
	return r ? sbx_git_fail(err, r, "the entry of %s cannot be made to last", s->rec->name) : 0;
}

static int save(struct saving *s, struct sbx_error *err)
{
	struct sbx_git_owner owner;
	int r = s->git ? read_git(s, err) : 0;

	if (r)
		return r;
	r = strcmp(s->rec->save, "kept") == 0 ? capture_kept(s, err) : capture_tree(s, err);
	if (r)
		return r;
	owner = sbx_git_owner_begin(s->common);
	r = s->git ? write_staged(s) : 0;
	sbx_git_owner_end(&owner);
	if (r)
		return sbx_git_fail(err, r, "what was staged in %s cannot be saved", s->rec->name);
	r = s->git ? bring_left(s, err) : 0;
	s->rec->keep = !r && is_worth_it(s);
	if (s->rec->keep)
		r = sbx_trash_write(s->repo, s->common, &s->entry, err);
	if (!r && s->rec->keep && s->rec->common && s->common != s->rec->common)
		r = own_entry(s, err);
	/* Of what was removed file by file git has all there is. */
	if (r || strcmp(s->rec->save, "kept") == 0)
		s->rec->keep = false;
	if (!r && s->lost)
		sbx_fail(err, EINVAL,
		         "of what was committed in %s some is damaged or too large to be saved",
		         s->rec->name);
	return r;
}

static void done(struct sbx_local *b, struct sbx_record *rec)
{
	free(rec->save);
	free(rec->head);
	rec->save = rec->head = NULL;
	/* Where this cannot be written the same entry is found again. */
	sbx_record_store(b->state.meta, rec);
}

/* HOME: in the source, else in the state directory, which then borrows what it has of it. */
static int save_in(struct sbx_local *b, struct sbx_record *rec, int root, int disk, bool home,
                   struct sbx_error *err)
{
	struct saving s = {.b = b,
	                   .rec = rec,
	                   .root = root,
	                   .disk = disk,
	                   .common = home ? rec->common : b->state.path,
	                   .entry = {.sandbox = rec->name,
	                             .id = rec->id,
	                             .branch = rec->branch,
	                             .base = rec->base,
	                             .time_ms = rec->removed_ms}};
	int r = sbx_local_trash_repo(b, home ? rec->common : NULL, true, &s.repo);

	if (!r && home)
		r = sbx_git_store_use(s.repo);
	if (!r && !home && rec->common) {
		r = borrow(b, rec->common);
		git_repository_free(s.repo);
		s.repo = NULL;
		r = r ? r : sbx_local_trash_repo(b, NULL, false, &s.repo);
	}
	if (r) {
		r = sbx_git_fail(err, r, "the trash cannot be opened");
		git_repository_free(s.repo);
		return r;
	}
	s.git = rec->common && (home || has_commit(s.repo, rec->head));
	r = save(&s, err);
	git_repository_free(s.repo);
	sbx_index_release(&s.known);
	sbx_index_release(&s.lower);
	return r;
}

int sbx_local_trash_save(struct sbx_local *b, struct sbx_record *rec, int root, int disk,
                         struct sbx_error *err)
{
	struct sbx_error here = SBX_ERROR_INIT;
	int r = rec->common ? save_in(b, rec, root, disk, true, err) : -ENOENT;

	if (r) {
		const int again = save_in(b, rec, root, disk, false, &here);

		/* Of both reasons the source's tells more. */
		if (again && !rec->common)
			sbx_fail(err, here.code, "%s", here.text);
		r = again && rec->common ? r : again;
	}
	/* The disk is in memory, and what is kept of it is of the last time that it was saved. */
	if (!r && rec->keep && disk >= 0)
		r = sbx_overlay_save(b->overlay, &b->state, rec->id, disk, NULL, err);
	if (!r)
		done(b, rec);
	return r;
}

/* --- after a crash
 * ---------------------------------------------------------------------------------- */

/* Where it can be mounted. */
static int put_back(struct sbx_local *b, const char *id)
{
	return renameat(b->state.trash, id, b->state.trees, id) < 0 && errno != ENOENT ? -errno : 0;
}

static int open_flat(struct sbx_local *b, const struct sbx_record *rec)
{
	int fd = sbx_dir_open(b->state.trees, rec->id);

	return fd == -ENOENT ? sbx_dir_open(b->state.trash, rec->id) : fd;
}

static int save_overlaid(struct sbx_local *b, struct sbx_record *rec, struct sbx_error *err)
{
	_cleanup_fd_ int root = -1, disk = -1;
	int r = put_back(b, rec->id);

	if (r)
		return sbx_fail(err, -r, "its tree cannot be put back: %s", strerror(-r));
	r = sbx_local_overlay_adopt(b, rec, err);
	if (!r && rec->disk_mb)
		r = disk = sbx_overlay_load(b->overlay, &b->state, rec, err);
	if (r >= 0)
		r = root = sbx_overlay_mount(b->overlay, rec, err);
	/* It stays where it is, for a mount that can show it. */
	if (r < 0)
		return -EAGAIN;
	return sbx_local_trash_save(b, rec, root, disk, err);
}

/* With a disk that was in memory, or as the end of a removal that could not be noted. */
static bool has_lost_kept(const struct sbx_local *b, const struct sbx_record *rec)
{
	return strcmp(rec->save, "kept") == 0 &&
	       faccessat(b->state.kept, rec->id, F_OK, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT;
}

int sbx_local_trash_recover(struct sbx_local *b, struct sbx_record *rec, struct sbx_error *err)
{
	_cleanup_fd_ int root = -1;

	if (has_lost_kept(b, rec) && !rec->disk_mb) {
		done(b, rec);
		sbx_fail(err, ENOENT, "what was removed of it file by file was not kept");
		return 0;
	}
	/* The tree is then what it was when it was last saved. */
	if (has_lost_kept(b, rec))
		memcpy(rec->save, "tree", sizeof("tree"));
	if (rec->layer && strcmp(rec->save, "tree") == 0)
		return save_overlaid(b, rec, err);
	root = open_flat(b, rec);
	return sbx_local_trash_save(b, rec, root, -1, err);
}

/* --- listing and dropping
 * ---------------------------------------------------------------------------- */

struct listing {
	const struct sbx_local *b;
	struct sbx_trash *at;
	size_t n, cap;
};

static void listing_release(struct listing *l)
{
	for (size_t i = 0; i < l->n; i++) {
		free((char *)(uintptr_t)l->at[i].name);
		free((char *)(uintptr_t)l->at[i].sandbox);
		free((char *)(uintptr_t)l->at[i].branch);
	}
	free(l->at);
}

static int add(const struct sbx_trash_entry *e, void *data)
{
	struct listing *l = data;
	struct sbx_trash *t;

	if (SBX_GROW(l->at, l->n, l->cap, 16))
		return -ENOMEM;
	t = &l->at[l->n];
	*t = (struct sbx_trash){.name = strdup(e->name),
	                        .sandbox = strdup(e->sandbox),
	                        .branch = e->branch ? strdup(e->branch) : NULL,
	                        .time_ms = e->time_ms,
	                        .whole = sbx_local_removed_has(l->b, e->id)};
	l->n++;
	return t->name && t->sandbox && (!e->branch || t->branch) ? 0 : -ENOMEM;
}

static int by_time(const void *a, const void *b)
{
	const struct sbx_trash *x = a, *y = b;

	if (x->time_ms != y->time_ms)
		return x->time_ms < y->time_ms ? -1 : 1;
	return strcmp(x->name, y->name);
}

/* The source's, and those of the state directory: where the source is none, or was not there. */
static int list_in(struct sbx_local *b, const char *common, struct listing *l)
{
	_cleanup_git_(repository) git_repository *repo = NULL;
	int r = sbx_local_trash_repo(b, common, false, &repo);

	if (r == GIT_ENOTFOUND)
		return 0;
	return r ? r : sbx_trash_each(repo, add, l);
}

int sbx_local_trash_list(struct sbx_backend *base, int (*fn)(const struct sbx_trash *t, void *data),
                         void *data, struct sbx_error *err)
{
	struct sbx_local *b = (struct sbx_local *)base;
	_cleanup_(listing_release) struct listing l = {.b = b};
	int r = b->common ? list_in(b, b->common, &l) : 0;

	if (!r)
		r = list_in(b, NULL, &l);
	if (r)
		return sbx_git_fail(err, r, "the trash cannot be read");
	if (l.n)
		qsort(l.at, l.n, sizeof(*l.at), by_time);
	for (size_t i = 0; i < l.n && !r; i++)
		r = fn(&l.at[i], data);
	return r;
}

/* Whether there is nothing left. */
static bool expire_in(struct sbx_local *b, const char *common,
                      void (*told)(const char *name, void *data), void *data)
{
	_cleanup_git_(repository) git_repository *repo = NULL;
	const int64_t days = (int64_t)b->host->settings->trash_days;
	size_t left = 0;

	if (sbx_local_trash_repo(b, common, false, &repo))
		return false;
	return sbx_trash_expire(repo, common ? common : b->state.path,
	                        sbx_real_ms() - days * DAY_MS, &left, told, data) == 0 &&
	       !left;
}

/* Half of a repository would be in the way of the next: it goes by another name. */
static void remove_repo(struct sbx_local *b)
{
	if (renameat(b->state.dir, SBX_TRASHED, b->state.dir, SBX_TRASHED GONE) == 0)
		sbx_tree_remove(b->state.dir, SBX_TRASHED GONE, NULL);
}

void sbx_local_trash_expire(struct sbx_local *b, void (*told)(const char *name, void *data),
                            void *data)
{
	if (!b->host->settings->trash_days)
		return;
	sbx_tree_remove(b->state.dir, SBX_TRASHED GONE, NULL);
	if (b->common) {
		expire_in(b, b->common, told, data);
		sbx_git_store_prune(b->common, false);
	}
	if (expire_in(b, NULL, told, data))
		remove_repo(b);
}
