/* Nodes and their names: looked up, created, moved and taken away. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/sandbox/gitdir.h"
#include "fs/sandbox/registry.h"
#include "fs/util/symlink.h"
#include "fs/workspace/inode_impl.h"
#include "fs/workspace/nested_git.h"
#include "fs/workspace/owner.h"
#include "sandboxfs/away.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"
#include "sandboxfs/mitigations.h"

/* How often ".." stands in front of TARGET. */
static unsigned count_climbs(const char *target)
{
	unsigned n = 0;

	while (!strncmp(target, "..", 2) && (target[2] == '/' || !target[2])) {
		n++;
		target += 2;
		target += strspn(target, "/");
		while (target[0] == '.' && target[1] == '/')
			target += 1 + strspn(target + 1, "/");
	}
	return n;
}

/* A link that nobody can read is followed by nobody. */
static void judge_link(int dirfd, const char *name, struct sbx_ident *id)
{
	char target[PATH_MAX];
	ssize_t n = readlinkat(dirfd, name, target, sizeof(target) - 1);

	if (n < 0)
		return;
	target[n] = '\0';
	id->steep = sbx_symlink_is_steep(target);
	id->climbs = *target == '/' ? UINT_MAX : count_climbs(target);
}

/* As sbx_ident_at for NAME in the directory DIR, where it may be kept apart from the tree. */
static int ident_child(const struct sbx_node *dir, int dirfd, const char *name, struct stat *st,
                       struct sbx_ident *id)
{
	struct sbx_nested n;
	int r = sbx_nested_find(dir->box, dirfd, name, &n);

	if (r < 0)
		return r;
	r = sbx_ident_at(dir->box, n.dirfd, n.name, st, id);
	if (r == 0 && S_ISLNK(id->type))
		judge_link(n.dirfd, n.name, id);
	sbx_nested_release(&n);
	return r;
}

/* Notes that the node's file was seen as ID. Lock held. */
static void node_seen(struct sbx_node *node, const struct sbx_ident *id)
{
	node->seen_changes = id->changes;
	sbx_node_note_copy(node, id);
}

#define FRESH_MS 1000 /* attributes are kept for longer */
#define AGAIN_MS 1000 /* longer than requests on the way take */
#define LOOKUPS  10   /* again, of a name that commands give to one file after the other */

/* As sbx_node_stored. Lock held. */
static bool is_stored(const struct sbx_node *node)
{
	for (; node && node->kind == SBX_NODE_FILE; node = node->parent)
		if (node->name && sbx_nested_is(node->box, node->name))
			return true;
	return false;
}

bool sbx_node_stored(struct sbx_inodes *tab, struct sbx_node *node)
{
	bool stored;

	sbx_inodes_lock(tab);
	stored = is_stored(node);
	sbx_inodes_unlock(tab);
	return stored;
}

/*
 * What is elsewhere has no blocks here, and is no hole for that: who copies holes as such would
 * copy nothing. How many directories are in one, nobody knows before its names are here: 1 says so
 * to who would save himself looking.
 */
static void show_absent(struct sbx_inodes *tab, struct sbx_node *node, struct stat *st)
{
	struct sbx_sandbox *sandbox = node->box->sandbox;
	const bool dir = S_ISDIR(st->st_mode);

	if (!sandbox || !sbx_is_away(sandbox) || (!dir && !S_ISREG(st->st_mode)) ||
	    sbx_away_here(sandbox, st->st_ino, dir ? SBX_NEED_NAMES : SBX_NEED_DATA, 0, 0) ||
	    sbx_node_stored(tab, node))
		return;
	if (dir)
		st->st_nlink = 1;
	else
		st->st_blocks = (st->st_size + 511) / 512;
}

/* Lock held. */
static void present(const struct sbx_node *node, const struct sbx_ident *id, struct stat *st)
{
	if (S_ISFIFO(st->st_mode) && !node->own_fifo && !sbx_mitigation_off("fifos"))
		st->st_mode = S_IFSOCK | (st->st_mode & 07777);
	if (id->planted && !is_stored(node) && !sbx_mitigation_off("planted"))
		sbx_gitdir_disown(st);
}

void sbx_node_own_fifo(struct sbx_inodes *tab, struct sbx_node *node, struct stat *st)
{
	if (!S_ISFIFO(node->type))
		return;
	sbx_inodes_lock(tab);
	node->own_fifo = true;
	sbx_inodes_unlock(tab);
	st->st_mode = S_IFIFO | (st->st_mode & 07777);
}

/* Whether NODE is DIR or one of the directories it was seen in. Lock held. */
static bool is_above(const struct sbx_node *node, const struct sbx_node *dir)
{
	for (; dir; dir = dir->parent)
		if (dir == node)
			return true;
	return false;
}

/*
 * Remembers where the node was seen last. A place below itself, which commands that move things can
 * make it seem, is not taken: the parents would form a ring. Lock held.
 */
static int place_at(struct sbx_inodes *tab, struct sbx_node *node, struct sbx_node *dir,
                    const char *name)
{
	struct sbx_node *old = node->parent;
	char *copy;

	assert(dir->refs > 0);
	assert(!old || old->refs > 0);
	if (old == dir && node->name && !strcmp(node->name, name))
		return 0;
	if (S_ISDIR(node->type) && is_above(node, dir))
		return -ESTALE;
	copy = strdup(name);
	if (!copy)
		return -ENOMEM;
	free(node->name);
	node->name = copy;
	dir->refs++;
	node->parent = dir;
	if (old) {
		old->refs--;
		sbx_node_release(tab, old);
	}
	return 0;
}

/*
 * The meaning of ".." in a link depends on where the kernel's path walk stands. So neither links
 * nor the directories around them change places under one id unless the kernel moves them itself.
 */
static bool place_matters(mode_t type)
{
	return S_ISDIR(type) || S_ISLNK(type);
}

static bool was_at(const struct sbx_node *node, const struct sbx_node *dir, const char *name)
{
	return node->parent == dir && node->name && strcmp(node->name, name) == 0;
}

/* Stale from now on: nobody knows where the kernel has it. Lock held. */
static void displace(struct sbx_inodes *tab, struct sbx_node *node)
{
	struct sbx_node *old = node->parent;

	assert(!old || old->refs > 0);
	sbx_inodes_unhash(tab, node);
	free(node->name);
	node->name = NULL;
	node->parent = NULL;
	if (old) {
		old->refs--;
		sbx_node_release(tab, old);
	}
}

/*
 * As sbx_node_find_file for what was found in DIR. What a command moved there is another node, and
 * whoever is still at the old place is answered for that. Lock held.
 */
static struct sbx_node *find_at(struct sbx_inodes *tab, const struct sbx_node *dir,
                                const struct sbx_ident *id)
{
	struct sbx_node *node = sbx_node_find_file(tab, dir->box, id);

	if (!node || node->parent == dir || !place_matters(id->type))
		return node;
	sbx_inodes_unhash(tab, node);
	return NULL;
}

/* Whether a link that climbs N directories from DIR leads above the sandbox's root. Lock held. */
static bool leads_above(const struct sbx_node *dir, unsigned n)
{
	for (; n && dir && dir->kind == SBX_NODE_FILE; dir = dir->parent)
		n--;
	return n > 0;
}

/* The node for the file ID seen as NAME in DIR, with a reference. Lock held. */
static int file_node(struct sbx_inodes *tab, struct sbx_node *dir, const char *name,
                     const struct sbx_ident *id, struct sbx_node **ret)
{
	const bool steep = id->steep || leads_above(dir, id->climbs);
	struct sbx_node *node;
	int r;

	if (!sbx_box_alive(dir->box))
		return -ESTALE;
	node = find_at(tab, dir, id);
	if (node && steep) {
		sbx_inodes_unhash(tab, node);
		node = NULL;
	}
	if (node) {
		node->refs++;
		if (node->fd && node->fd->pinned) /* it has a name again: another hard link */
			sbx_fd_unpin(tab, node->fd);
	} else {
		r = sbx_node_new(tab, SBX_NODE_FILE, dir->box, &node);
		if (r < 0)
			return r;
		node->dev = id->dev;
		node->ino = id->ino;
		node->born = id->born;
		node->type = id->type;
		node->steep = steep;
		sbx_inodes_hash(tab, node);
	}
	r = place_at(tab, node, dir, name);
	if (r < 0) {
		node->refs--;
		sbx_node_release(tab, node);
		return r;
	}
	node_seen(node, id);
	node->nlookup++;
	node->seen_ms = sbx_inodes_now_ms();
	*ret = node;
	return 0;
}

static bool is_fresh(const struct sbx_inodes *tab, const struct sbx_node *node)
{
	return node->nlookup && !node->steep && sbx_inodes_now_ms() - node->seen_ms < FRESH_MS &&
	       (int32_t)(node->seen_ms - tab->renewed_ms) > 0;
}

bool sbx_node_fresh(struct sbx_inodes *tab, const struct sbx_node *dir, const char *name, ino_t ino)
{
	uint64_t h = sbx_node_hash(SBX_NODE_FILE, 0, dir->box, dir->dev, ino);
	struct sbx_node *node;
	bool fresh;

	sbx_inodes_lock(tab);
	for (node = tab->hash[h & (tab->buckets - 1)]; node; node = node->hash_next)
		if (node->ino == ino && was_at(node, dir, name))
			break;
	fresh = node && is_fresh(tab, node);
	sbx_inodes_unlock(tab);
	return fresh;
}

void sbx_inodes_renewed(struct sbx_inodes *tab)
{
	sbx_inodes_lock(tab);
	tab->renewed_ms = sbx_inodes_now_ms();
	sbx_inodes_unlock(tab);
}

/* WANTED: it is to have a descriptor. */
static int look_up(struct sbx_inodes *tab, struct sbx_node *dir, const char *name, struct stat *st,
                   struct sbx_node **ret, bool *wanted)
{
	struct sbx_fd *dfd;
	struct sbx_ident id;
	int r = sbx_node_fd(tab, dir, SBX_FD_PATH, &dfd);

	if (r < 0)
		return r;
	r = ident_child(dir, dfd->fd, name, st, &id);
	if (r == 0 && !sbx_nested_is(dir->box, name))
		id.planted = sbx_gitdir_planted(dir->box, dfd->fd, name, st);
	sbx_fd_put(tab, dfd);
	if (r < 0)
		return r;
	sbx_inodes_lock(tab);
	r = file_node(tab, dir, name, &id, ret);
	if (r == 0) {
		present(*ret, &id, st);
		*wanted = sbx_fd_wanted(tab, *ret);
	}
	sbx_inodes_unlock(tab);
	if (r == 0)
		show_absent(tab, *ret, st);
	return r;
}

int sbx_node_lookup(struct sbx_inodes *tab, struct sbx_node *dir, const char *name, struct stat *st,
                    struct sbx_node **ret)
{
	for (int tries = 0;; tries++) {
		bool wanted = false;
		struct sbx_fd *f;
		int r = look_up(tab, dir, name, st, ret, &wanted);

		if (r < 0 || !wanted)
			return r;
		r = sbx_node_fd(tab, *ret, SBX_FD_PATH, &f);
		if (r == 0)
			sbx_fd_put(tab, f);
		if (r != -ESTALE || tries == LOOKUPS)
			return 0;
		/* A command was quicker: another file has the name by now. */
		sbx_node_forget(tab, sbx_node_id(*ret), 1);
		sbx_node_put(tab, *ret);
	}
}

int sbx_node_adopt(struct sbx_inodes *tab, struct sbx_node *dir, const char *name, int fd, int mode,
                   struct stat *st, struct sbx_node **ret)
{
	struct sbx_ident id;
	struct sbx_fd *f = NULL;
	int r = sbx_ident_at(dir->box, fd, "", st, &id);

	assert(fd >= 0);
	if (r == 0 && !S_ISREG(id.type))
		r = -ESTALE;
	if (r < 0) {
		close(fd);
		return r;
	}
	sbx_inodes_lock(tab);
	r = file_node(tab, dir, name, &id, ret);
	if (r == 0) {
		f = sbx_fd_install(tab, *ret, fd, mode);
	} else {
		close(fd);
	}
	sbx_inodes_unlock(tab);
	sbx_fd_put(tab, f);
	if (r == 0)
		show_absent(tab, *ret, st);
	return r;
}

static bool has_gitfile(const struct sbx_node *node)
{
	return node->kind == SBX_NODE_BOX && node->box && sbx_sandbox_gitfile(node->box->sandbox);
}

/* ST is what was found of NODE, as ID. Lock held. */
static void show_node(struct sbx_node *node, const struct sbx_ident *id, struct stat *st)
{
	node_seen(node, id);
	present(node, id, st);
	if (node->apart) {
		st->st_dev = node->dev;
		st->st_ino = node->ino;
	}
	/* The backend may have one more link to it for a while. */
	if (node->nameless && st->st_nlink == 1)
		st->st_nlink = 0;
}

int sbx_node_stat(struct sbx_inodes *tab, struct sbx_node *node, struct stat *st)
{
	struct sbx_node *dir = NULL;
	_cleanup_free_ char *name = NULL;
	struct sbx_fd *f;
	struct sbx_ident id;
	bool by_name;
	int r;

	sbx_inodes_lock(tab);
	by_name = !node->fd && node->kind == SBX_NODE_FILE && node->parent && !S_ISDIR(node->type);
	if (by_name) {
		dir = node->parent;
		dir->refs++;
		name = strdup(node->name);
	}
	sbx_inodes_unlock(tab);

	/* A leaf without a descriptor is asked for by name: one system call, and none is used up.
	 */
	r = sbx_node_fd(tab, by_name ? dir : node, SBX_FD_PATH, &f);
	if (r == 0) {
		r = !by_name ? sbx_ident_at(node->box, f->fd, "", st, &id)
		    : name   ? ident_child(dir, f->fd, name, st, &id)
		             : -ENOMEM;
		/* At the root of a repository git finds the .git there first. */
		if (r == 0 && !by_name && !has_gitfile(node))
			id.planted = sbx_gitdir_planted(node->box, f->fd, "", st);
		sbx_fd_put(tab, f);
	}
	sbx_node_put(tab, dir);
	if (r == -ENOENT || r == -ENOTDIR)
		return -ESTALE;
	if (r < 0)
		return r;
	sbx_inodes_lock(tab);
	/* A descriptor is the file, whatever overlayfs says its number is. */
	if (by_name && !sbx_node_is_still(node, &id))
		r = -ESTALE;
	else
		show_node(node, &id, st);
	sbx_inodes_unlock(tab);
	if (r == 0)
		show_absent(tab, node, st);
	return r;
}

bool sbx_node_told(struct sbx_inodes *tab, struct sbx_node *node, struct stat *st,
                   int64_t changed_ns, enum sbx_answer answer)
{
	struct sbx_told now = {.any = true,
	                       .ctime = changed_ns,
	                       .mtime = sbx_timespec_ns(&st->st_mtim),
	                       .size = st->st_size};
	struct sbx_told *was = &node->told;
	bool changed, due, recent, later, other = false;

	assert(S_ISREG(st->st_mode));
	sbx_inodes_lock(tab);
	now.changes = node->seen_changes;
	changed = was->any && node->paged && was->size == now.size &&
	          was->ctime != sbx_timespec_ns(&st->st_ctim) &&
	          (!now.changes || now.changes != was->changes);
	recent = was->again && sbx_inodes_now_ms() - was->again_ms < AGAIN_MS;
	due = was->again && !recent && answer == SBX_ANSWER_LOOKUP;
	now.again = was->again && !due;
	now.again_ms = was->again_ms;
	/* The next answer has to show the change. */
	later = changed && (answer == SBX_ANSWER_SETATTR ||
	                    (answer == SBX_ANSWER_STAT && now.mtime == was->mtime));
	if (later) {
		now.ctime = was->ctime;
		now.changes = was->changes;
	} else if ((changed || due) && now.mtime == was->mtime) {
		other = true;
		st->st_mtim.tv_nsec ^= 1;
		now.mtime = sbx_timespec_ns(&st->st_mtim);
	}
	if (other && changed) {
		now.again = true;
		now.again_ms = sbx_inodes_now_ms();
	}
	*was = now;
	sbx_inodes_unlock(tab);
	return other || later;
}

/* Of a file that has another name, by which it is reached when NAME in DIR is gone. Lock held. */
static void keep_place(struct sbx_node *node, const struct sbx_node *dir, const char *name,
                       struct sbx_hold *ret)
{
	if (place_matters(node->type) || !node->parent || !node->name || was_at(node, dir, name))
		return;
	ret->was = strdup(node->name);
	ret->was_in = ret->was ? node->parent : NULL;
	if (ret->was_in)
		ret->was_in->refs++;
}

static void hold_forget(struct sbx_inodes *tab, struct sbx_hold *hold)
{
	sbx_node_put(tab, hold->was_in);
	free(hold->was);
	hold->was_in = NULL;
	hold->was = NULL;
}

/* The name is gone, and others are left. Lock held. */
static void give_place_back(struct sbx_inodes *tab, const struct sbx_hold *hold)
{
	if (hold->was_in && !hold->last)
		place_at(tab, hold->node, hold->was_in, hold->was);
}

void sbx_hold_name(struct sbx_inodes *tab, struct sbx_node *dir, const char *name,
                   struct sbx_hold *ret)
{
	struct sbx_node *node;
	struct sbx_fd *dfd;
	struct sbx_ident id;
	struct stat st;
	int r;

	*ret = (struct sbx_hold){0};
	if (sbx_node_fd(tab, dir, SBX_FD_PATH, &dfd) < 0)
		return;
	r = ident_child(dir, dfd->fd, name, &st, &id);
	sbx_fd_put(tab, dfd);
	if (r < 0)
		return;
	sbx_inodes_lock(tab);
	node = find_at(tab, dir, &id);
	if (node) {
		node->refs++;
		keep_place(node, dir, name, ret);
		place_at(tab, node, dir, name);
	}
	sbx_inodes_unlock(tab);
	if (node && sbx_node_fd(tab, node, SBX_FD_PATH, &ret->fd) < 0) {
		sbx_node_put(tab, node);
		hold_forget(tab, ret);
		return;
	}
	ret->node = node;
	ret->last = st.st_nlink == 1;
}

void sbx_hold_release(struct sbx_inodes *tab, struct sbx_hold *hold, bool done)
{
	if (!hold->node)
		return;
	assert(hold->fd);
	if (done) {
		sbx_inodes_lock(tab);
		sbx_fd_pin(tab, hold->node, hold->fd);
		hold->node->nameless |= hold->last;
		give_place_back(tab, hold);
		sbx_inodes_unlock(tab);
	}
	sbx_fd_put(tab, hold->fd);
	sbx_node_put(tab, hold->node);
	hold_forget(tab, hold);
}

/* Those below TOP, or all of BOX when it is NULL. Lock held. */
static bool renew_links(struct sbx_inodes *tab, struct sbx_box *box, const struct sbx_node *top)
{
	bool any = false;

	for (uint32_t i = 0; i < tab->used; i++) {
		struct sbx_node *node = tab->slot[i];

		if (!node || !node->hashed || node->box != box || !S_ISLNK(node->type) ||
		    (top && !is_above(top, node)))
			continue;
		sbx_inodes_unhash(tab, node);
		any = true;
	}
	return any;
}

bool sbx_inodes_renew_links(struct sbx_inodes *tab, struct sbx_box *box)
{
	bool any;

	sbx_inodes_lock(tab);
	any = renew_links(tab, box, NULL);
	sbx_inodes_unlock(tab);
	return any;
}

/* Lock held. */
static bool node_moved(struct sbx_inodes *tab, struct sbx_node *node, struct sbx_node *dir,
                       const char *name, struct sbx_node *newdir, const char *newname)
{
	if (!place_matters(node->type)) {
		place_at(tab, node, newdir, newname);
		return false;
	}
	if (!was_at(node, dir, name)) {
		displace(tab, node); /* a command was quicker: what the kernel has moved? */
		return true;
	}
	place_at(tab, node, newdir, newname);
	return dir != newdir && renew_links(tab, node->box, node);
}

bool sbx_node_moved(struct sbx_inodes *tab, struct sbx_node *dir, const char *name,
                    struct sbx_node *newdir, const char *newname)
{
	struct sbx_node *node;
	struct sbx_fd *dfd;
	struct sbx_ident id;
	struct stat st;
	bool renewed;
	int r;

	if (sbx_node_fd(tab, newdir, SBX_FD_PATH, &dfd) < 0)
		return true;
	r = ident_child(newdir, dfd->fd, newname, &st, &id);
	sbx_fd_put(tab, dfd);
	if (r < 0)
		return true;
	sbx_inodes_lock(tab);
	node = sbx_node_find_file(tab, newdir->box, &id);
	if (node)
		sbx_node_note_copy(node, &id);
	renewed = node && node_moved(tab, node, dir, name, newdir, newname);
	sbx_inodes_unlock(tab);
	return renewed;
}

/* Lock held. */
static void take_identity(struct sbx_inodes *tab, struct sbx_node *node, const struct sbx_ident *is)
{
	sbx_inodes_unhash(tab, node);
	if (node->fd)
		sbx_fd_drop(tab, node->fd);
	node->dev = is->dev;
	node->ino = is->ino;
	node->born = is->born;
	node->copied = 0;
	/* Whatever the kernel was told is of other contents, even where nothing else differs. */
	node->told.ctime = 0;
	node->told.changes = 0;
	sbx_inodes_hash(tab, node);
}

uint64_t sbx_node_replace(struct sbx_inodes *tab, struct sbx_box *box, int old, int new)
{
	struct sbx_ident was, is;
	struct sbx_node *node;
	uint64_t id = 0;
	struct stat st;

	if (sbx_ident_at(box, old, "", &st, &was) < 0 || sbx_ident_at(box, new, "", &st, &is) < 0)
		return 0;
	sbx_inodes_lock(tab);
	node = was.type == is.type ? sbx_node_find_file(tab, box, &was) : NULL;
	if (node) {
		take_identity(tab, node, &is);
		id = sbx_node_id(node);
	}
	sbx_inodes_unlock(tab);
	return id;
}
