/*
 * The table is an array of node pointers with a free list, and a hash over what
 * a node stands for. One mutex guards both, the names and the descriptor lists; it is
 * never held over a system call that can wait, so opening happens outside, and whoever finds that
 * another thread was quicker drops his own descriptor.
 *
 * A node lives while the kernel counts lookups of it (nlookup), while an
 * operation uses it, or while it is the parent of another (refs). It leaves the hash when its
 * identity is taken over by another file (an inode number used again).
 *
 * Descriptors: each node has at most one, of the least mode that has served so far; a
 * wider one replaces it. Files that were created keep the descriptor they were created with, which
 * can write even where the mode says otherwise.
 */
#include "fs/inode.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "fs/nested.h"
#include "fs/owner.h"
#include "fs/sandbox.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/walls.h"

struct sbx_node {
	uint32_t index, generation;
	uint8_t kind, which;
	bool hashed, own_fifo;
	bool nameless; /* its last name was taken away through the mount */
	mode_t type; /* S_IFMT of a file */
	uint32_t refs;
	uint64_t nlookup;
	struct sbx_box *box;     /* a reference */
	struct sbx_node *parent; /* a reference */
	char *name;
	dev_t dev;
	ino_t ino;
	int64_t born; /* birth time, ns */
	struct sbx_node *hash_next;
	struct sbx_fd *fd;
};

struct sbx_inodes {
	pthread_mutex_t lock; /* everything below */
	struct sbx_node **slot;
	uint32_t slots, used, free_head; /* 0: none */
	uint32_t *next_free;
	uint32_t *generation;
	struct sbx_node **hash;
	uint32_t buckets; /* a power of two */
	uint64_t nodes;
	struct sbx_fd lru;  /* ring of unpinned descriptors, most recent first */
	struct sbx_fd pins; /* ring of pinned ones */
	unsigned nfds, npinned, max_fds;
	struct sbx_fd *dead; /* by lru_next; closed when the lock is given up */
	void (*gone)(uint64_t id, void *data); /* or NULL */
	void *gone_data;
};

struct ident {
	dev_t dev;
	ino_t ino;
	int64_t born;
	mode_t type;
};

static void table_lock(struct sbx_inodes *tab)
{
	pthread_mutex_lock(&tab->lock);
}

/* The last descriptor of what was unlinked takes the file's blocks along, which may take long. */
static void table_unlock(struct sbx_inodes *tab)
{
	struct sbx_fd *f = tab->dead, *next;

	tab->dead = NULL;
	pthread_mutex_unlock(&tab->lock);
	for (; f; f = next) {
		next = f->lru_next;
		close(f->fd);
		free(f);
	}
}

static uint64_t mix(uint64_t x)
{
	x ^= x >> 33;
	x *= 0xff51afd7ed558ccdull;
	x ^= x >> 33;
	x *= 0xc4ceb9fe1a85ec53ull;
	return x ^ (x >> 33);
}

static uint64_t node_hash(unsigned kind, unsigned which, const struct sbx_box *box, dev_t dev,
                          ino_t ino)
{
	uint64_t h = mix((uint64_t)kind << 8 | which);

	h = mix(h ^ (box ? box->number : 0));
	h = mix(h ^ dev);
	return mix(h ^ ino);
}

static void ring_init(struct sbx_fd *ring)
{
	ring->lru_prev = ring->lru_next = ring;
}

static void ring_remove(struct sbx_fd *f)
{
	f->lru_prev->lru_next = f->lru_next;
	f->lru_next->lru_prev = f->lru_prev;
}

static void ring_push(struct sbx_fd *ring, struct sbx_fd *f)
{
	f->lru_prev = ring;
	f->lru_next = ring->lru_next;
	ring->lru_next->lru_prev = f;
	ring->lru_next = f;
}

int sbx_inodes_create(unsigned max_fds, struct sbx_inodes **ret)
{
	struct sbx_inodes *tab = calloc(1, sizeof(*tab));
	struct sbx_node *root = calloc(1, sizeof(*root));
	pthread_mutexattr_t attr;

	if (tab) {
		tab->slots = 1024;
		tab->buckets = 1024;
		tab->slot = calloc(tab->slots, sizeof(*tab->slot));
		tab->next_free = calloc(tab->slots, sizeof(*tab->next_free));
		tab->generation = calloc(tab->slots, sizeof(*tab->generation));
		tab->hash = calloc(tab->buckets, sizeof(struct sbx_node *));
	}
	if (!tab || !root || !tab->slot || !tab->next_free || !tab->generation || !tab->hash) {
		free(root);
		if (tab) {
			free(tab->slot);
			free(tab->next_free);
			free(tab->generation);
			free(tab->hash);
		}
		free(tab);
		return -ENOMEM;
	}
	pthread_mutexattr_init(&attr);
	/* It is held for less than sleeping takes. */
	pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ADAPTIVE_NP);
	pthread_mutex_init(&tab->lock, &attr);
	pthread_mutexattr_destroy(&attr);
	ring_init(&tab->lru);
	ring_init(&tab->pins);
	tab->max_fds = max_fds;
	root->index = SBX_NODE_ROOT_ID;
	root->kind = SBX_NODE_ROOT;
	root->nlookup = 1;
	tab->slot[SBX_NODE_ROOT_ID] = root;
	tab->used = SBX_NODE_ROOT_ID + 1;
	tab->nodes = 1;
	*ret = tab;
	return 0;
}

void sbx_inodes_on_gone(struct sbx_inodes *tab, void (*fn)(uint64_t id, void *data), void *data)
{
	tab->gone = fn;
	tab->gone_data = data;
}

/* Grows the arrays so that one more node fits. */
static int slots_grow(struct sbx_inodes *tab)
{
	uint32_t n = tab->slots * 2;
	void *p;

	if (tab->free_head || tab->used < tab->slots)
		return 0;
	p = realloc(tab->slot, n * sizeof(*tab->slot));
	if (!p)
		return -ENOMEM;
	tab->slot = p;
	p = realloc(tab->next_free, n * sizeof(*tab->next_free));
	if (!p)
		return -ENOMEM;
	tab->next_free = p;
	p = realloc(tab->generation, n * sizeof(*tab->generation));
	if (!p)
		return -ENOMEM;
	tab->generation = p;
	memset(tab->slot + tab->slots, 0, tab->slots * sizeof(*tab->slot));
	memset(tab->generation + tab->slots, 0, tab->slots * sizeof(*tab->generation));
	tab->slots = n;
	return 0;
}

static uint64_t hash_of(const struct sbx_node *node)
{
	return node_hash(node->kind, node->which, node->box, node->dev, node->ino);
}

static void hash_grow(struct sbx_inodes *tab)
{
	uint32_t n = tab->buckets * 2;
	struct sbx_node **hash;

	if (tab->nodes < tab->buckets)
		return;
	hash = calloc(n, sizeof(struct sbx_node *));
	if (!hash)
		return; /* slower, not wrong */
	for (uint32_t i = 0; i < tab->buckets; i++) {
		struct sbx_node *node = tab->hash[i], *next;

		for (; node; node = next) {
			uint64_t h = hash_of(node) & (n - 1);

			next = node->hash_next;
			node->hash_next = hash[h];
			hash[h] = node;
		}
	}
	free(tab->hash);
	tab->hash = hash;
	tab->buckets = n;
}

static void hash_insert(struct sbx_inodes *tab, struct sbx_node *node)
{
	struct sbx_node **b;

	hash_grow(tab);
	b = &tab->hash[hash_of(node) & (tab->buckets - 1)];
	node->hash_next = *b;
	*b = node;
	node->hashed = true;
}

static void hash_remove(struct sbx_inodes *tab, struct sbx_node *node)
{
	struct sbx_node **b;

	if (!node->hashed)
		return;
	for (b = &tab->hash[hash_of(node) & (tab->buckets - 1)]; *b != node; b = &(*b)->hash_next)
		;
	*b = node->hash_next;
	node->hashed = false;
}

static bool writes(const struct sbx_fd *f)
{
	return f->mode == O_WRONLY || f->mode == O_RDWR;
}

/*
 * Nobody uses F, nor finds it, any more. What could keep a file from being executed is closed at once: whoever has made sure
 * that no such descriptor is left need not wait for another thread. Lock held.
 */
static void fd_close(struct sbx_inodes *tab, struct sbx_fd *f)
{
	if (writes(f) && !f->pinned) {
		close(f->fd);
		free(f);
		return;
	}
	f->lru_next = tab->dead;
	tab->dead = f;
}

/* Takes the descriptor out of its ring; it is closed now, or by the last put. Lock held. */
static void fd_drop(struct sbx_inodes *tab, struct sbx_fd *f)
{
	ring_remove(f);
	if (f->pinned)
		tab->npinned--;
	else
		tab->nfds--;
	if (f->node)
		f->node->fd = NULL;
	f->node = NULL;
	if (f->refs == 0)
		fd_close(tab, f);
}

static void fds_trim(struct sbx_inodes *tab, unsigned max)
{
	struct sbx_fd *f = tab->lru.lru_prev, *prev;

	for (; tab->nfds > max && f != &tab->lru; f = prev) {
		prev = f->lru_prev;
		if (f->refs == 0)
			fd_drop(tab, f);
	}
	if (tab->npinned > tab->max_fds)
		fd_drop(tab, tab->pins.lru_prev);
}

/* Frees nodes that nobody needs, from NODE up through its parents. Lock held. */
static void node_release(struct sbx_inodes *tab, struct sbx_node *node)
{
	while (node && node->refs == 0 && node->nlookup == 0 && node->kind != SBX_NODE_ROOT) {
		struct sbx_node *parent = node->parent;

		if (tab->gone && node->kind == SBX_NODE_FILE)
			tab->gone(sbx_node_id(node), tab->gone_data);
		if (node->fd)
			fd_drop(tab, node->fd);
		hash_remove(tab, node);
		tab->slot[node->index] = NULL;
		tab->generation[node->index] = node->generation + 1;
		tab->next_free[node->index] = tab->free_head;
		tab->free_head = node->index;
		tab->nodes--;
		sbx_box_unref(node->box);
		free(node->name);
		free(node);
		if (parent)
			parent->refs--;
		node = parent;
	}
}

void sbx_inodes_destroy(struct sbx_inodes *tab)
{
	if (!tab)
		return;
	table_lock(tab);
	for (uint32_t i = 0; i < tab->used; i++) {
		struct sbx_node *node = tab->slot[i];

		if (!node)
			continue;
		if (node->fd)
			fd_drop(tab, node->fd);
		sbx_box_unref(node->box);
		free(node->name);
		free(node);
	}
	table_unlock(tab);
	free(tab->slot);
	free(tab->next_free);
	free(tab->generation);
	free(tab->hash);
	pthread_mutex_destroy(&tab->lock);
	free(tab);
}

static struct sbx_node *node_at(struct sbx_inodes *tab, uint64_t id)
{
	uint32_t index = (uint32_t)id;
	struct sbx_node *node = index < tab->used ? tab->slot[index] : NULL;

	return node && node->generation == id >> 32 ? node : NULL;
}

int sbx_node_get(struct sbx_inodes *tab, uint64_t id, struct sbx_node **ret)
{
	struct sbx_node *node;

	table_lock(tab);
	node = node_at(tab, id);
	if (node)
		node->refs++;
	table_unlock(tab);
	if (!node)
		return -ESTALE;
	if (node->box && !sbx_box_alive(node->box)) {
		sbx_node_put(tab, node);
		return -ESTALE;
	}
	*ret = node;
	return 0;
}

void sbx_node_put(struct sbx_inodes *tab, struct sbx_node *node)
{
	if (!node)
		return;
	table_lock(tab);
	node->refs--;
	node_release(tab, node);
	table_unlock(tab);
}

void sbx_node_forget(struct sbx_inodes *tab, uint64_t id, uint64_t n)
{
	struct sbx_node *node;

	table_lock(tab);
	node = node_at(tab, id);
	if (node && node->kind != SBX_NODE_ROOT) {
		node->nlookup -= n < node->nlookup ? n : node->nlookup;
		node_release(tab, node);
	}
	table_unlock(tab);
}

uint64_t sbx_node_id(const struct sbx_node *node)
{
	return (uint64_t)node->generation << 32 | node->index;
}

uint32_t sbx_node_generation(const struct sbx_node *node)
{
	return node->generation;
}

enum sbx_node_kind sbx_node_kind(const struct sbx_node *node)
{
	return node->kind;
}

struct sbx_box *sbx_node_box(const struct sbx_node *node)
{
	return node->box;
}

unsigned sbx_node_which(const struct sbx_node *node)
{
	return node->which;
}

/* A zeroed node in a slot of its own, with one reference. Lock held. */
static int node_new(struct sbx_inodes *tab, enum sbx_node_kind kind, struct sbx_box *box,
                    struct sbx_node **ret)
{
	struct sbx_node *node;
	int r = slots_grow(tab);

	if (r < 0)
		return r;
	node = calloc(1, sizeof(*node));
	if (!node)
		return -ENOMEM;
	if (tab->free_head) {
		node->index = tab->free_head;
		tab->free_head = tab->next_free[node->index];
		node->generation = tab->generation[node->index];
	} else {
		node->index = tab->used++;
	}
	tab->slot[node->index] = node;
	tab->nodes++;
	node->kind = (uint8_t)kind;
	node->box = box ? sbx_box_ref(box) : NULL;
	node->refs = 1;
	*ret = node;
	return 0;
}

int sbx_node_special(struct sbx_inodes *tab, enum sbx_node_kind kind, struct sbx_box *box,
                     unsigned which, struct sbx_node **ret)
{
	uint64_t h = node_hash(kind, which, box, 0, 0);
	struct sbx_node *node;
	int r = 0;

	table_lock(tab);
	for (node = tab->hash[h & (tab->buckets - 1)]; node; node = node->hash_next)
		if (node->kind == kind && node->which == which && node->box == box)
			break;
	if (node) {
		node->refs++;
	} else {
		r = node_new(tab, kind, box, &node);
		if (r == 0) {
			node->which = (uint8_t)which;
			hash_insert(tab, node);
		}
	}
	if (r == 0) {
		node->nlookup++;
		*ret = node;
	}
	table_unlock(tab);
	return r;
}

static int64_t stamp_ns(const struct statx_timestamp *t)
{
	return t->tv_sec * 1000000000 + t->tv_nsec;
}

static struct timespec stamp(const struct statx_timestamp *t)
{
	return (struct timespec){.tv_sec = t->tv_sec, .tv_nsec = t->tv_nsec};
}

static int stat_at(const struct sbx_box *box, int dirfd, const char *name, struct stat *st,
                   struct ident *id)
{
	const int nofollow = sbx_without("identity") ? 0 : AT_SYMLINK_NOFOLLOW;
	struct statx x;

	if (statx(dirfd, name, nofollow | AT_EMPTY_PATH | AT_NO_AUTOMOUNT,
	          STATX_BASIC_STATS | STATX_BTIME, &x) < 0)
		return -errno;
	*st = (struct stat){
	        .st_dev = makedev(x.stx_dev_major, x.stx_dev_minor),
	        .st_ino = x.stx_ino,
	        .st_mode = x.stx_mode,
	        .st_nlink = x.stx_nlink,
	        .st_uid = x.stx_uid,
	        .st_gid = x.stx_gid,
	        .st_rdev = makedev(x.stx_rdev_major, x.stx_rdev_minor),
	        .st_size = (off_t)x.stx_size,
	        .st_blksize = (blksize_t)x.stx_blksize,
	        .st_blocks = (blkcnt_t)x.stx_blocks,
	        .st_atim = stamp(&x.stx_atime),
	        .st_mtim = stamp(&x.stx_mtime),
	        .st_ctim = stamp(&x.stx_ctime),
	};
	sbx_owner_show(box, st);
	*id = (struct ident){
	        .dev = st->st_dev,
	        .ino = st->st_ino,
	        .born = x.stx_mask & STATX_BTIME ? stamp_ns(&x.stx_btime) : 0,
	        .type = st->st_mode & S_IFMT,
	};
	return 0;
}

/* As stat_at for NAME in the directory DIR, whose descriptor DIRFD is. */
static int stat_child(const struct sbx_node *dir, int dirfd, const char *name, struct stat *st,
                      struct ident *id)
{
	struct sbx_nested n;
	int r = sbx_nested_find(dir->box, dirfd, name, &n);

	if (r < 0)
		return r;
	r = stat_at(dir->box, n.dirfd, n.name, st, id);
	sbx_nested_release(&n);
	return r;
}

/*
 * Overlayfs tells the birth of what is copied up as that of the copy. The number of a file of the base is no other's as long as
 * the base is there.
 */
static bool is_copied_up(const struct sbx_node *node, const struct ident *id)
{
	const struct sbx_sandbox *sandbox = node->box ? node->box->sandbox : NULL;

	return sandbox && sandbox->layered && node->born <= sandbox->base_ns &&
	       id->born > node->born;
}

static bool is_node(const struct sbx_node *node, const struct ident *id)
{
	return node->ino == id->ino && node->dev == id->dev && node->type == id->type &&
	       (node->born == id->born || is_copied_up(node, id));
}

static void present(const struct sbx_node *node, struct stat *st)
{
	if (S_ISFIFO(st->st_mode) && !node->own_fifo && !sbx_without("fifos"))
		st->st_mode = S_IFSOCK | (st->st_mode & 07777);
}

void sbx_node_own_fifo(struct sbx_inodes *tab, struct sbx_node *node, struct stat *st)
{
	if (!S_ISFIFO(node->type))
		return;
	table_lock(tab);
	node->own_fifo = true;
	table_unlock(tab);
	st->st_mode = S_IFIFO | (st->st_mode & 07777);
}

/*
 * Whether what is found where the node was seen last is still its file. An ordinary user's overlay forgets, when the kernel is
 * short of memory, which number a copied-up file had in the base: it then has that of the copy.
 */
static bool is_still(const struct sbx_node *node, const struct ident *id)
{
	const struct sbx_sandbox *sandbox = node->box ? node->box->sandbox : NULL;

	if (is_node(node, id))
		return true;
	return sandbox && sandbox->layered && node->dev == id->dev && node->type == id->type &&
	       node->born <= sandbox->base_ns && id->born > sandbox->base_ns;
}

/* The known file node with that identity; one that merely had the number before is unhashed. */
static struct sbx_node *find_file(struct sbx_inodes *tab, struct sbx_box *box,
                                  const struct ident *id)
{
	uint64_t h = node_hash(SBX_NODE_FILE, 0, box, id->dev, id->ino);
	struct sbx_node *node;

	for (node = tab->hash[h & (tab->buckets - 1)]; node; node = node->hash_next)
		if (node->kind == SBX_NODE_FILE && node->box == box && node->ino == id->ino &&
		    node->dev == id->dev)
			break;
	if (node && !is_node(node, id)) {
		hash_remove(tab, node);
		node = NULL;
	}
	return node;
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
		node_release(tab, old);
	}
	return 0;
}

/*
 * What ".." in a link means depends on where the kernel's path walk stands. So neither links nor
 * the directories around them change places under one id unless the kernel moves them itself.
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

	hash_remove(tab, node);
	free(node->name);
	node->name = NULL;
	node->parent = NULL;
	if (old) {
		old->refs--;
		node_release(tab, old);
	}
}

/*
 * As find_file for what was found in DIR. What a command moved there is another node, and whoever is still
 * at the old place is answered for that. Lock held.
 */
static struct sbx_node *find_at(struct sbx_inodes *tab, const struct sbx_node *dir,
                                const struct ident *id)
{
	struct sbx_node *node = find_file(tab, dir->box, id);

	if (!node || node->parent == dir || !place_matters(id->type))
		return node;
	hash_remove(tab, node);
	return NULL;
}

/* The node for the file ID seen as NAME in DIR, with a reference. Lock held. */
static int file_node(struct sbx_inodes *tab, struct sbx_node *dir, const char *name,
                     const struct ident *id, struct sbx_node **ret)
{
	struct sbx_node *node = find_at(tab, dir, id);
	int r;

	if (node) {
		node->refs++;
		if (node->fd && node->fd->pinned) { /* it has a name again: another hard link */
			struct sbx_fd *f = node->fd;

			ring_remove(f);
			tab->npinned--;
			f->pinned = false;
			tab->nfds++;
			ring_push(&tab->lru, f);
		}
	} else {
		r = node_new(tab, SBX_NODE_FILE, dir->box, &node);
		if (r < 0)
			return r;
		node->dev = id->dev;
		node->ino = id->ino;
		node->born = id->born;
		node->type = id->type;
		hash_insert(tab, node);
	}
	r = place_at(tab, node, dir, name);
	if (r < 0) {
		node->refs--;
		node_release(tab, node);
		return r;
	}
	node->nlookup++;
	*ret = node;
	return 0;
}

int sbx_node_lookup(struct sbx_inodes *tab, struct sbx_node *dir, const char *name, struct stat *st,
                    struct sbx_node **ret)
{
	struct sbx_fd *dfd;
	struct ident id;
	int r = sbx_node_fd(tab, dir, SBX_FD_PATH, &dfd);

	if (r < 0)
		return r;
	r = stat_child(dir, dfd->fd, name, st, &id);
	sbx_fd_put(tab, dfd);
	if (r < 0)
		return r;
	table_lock(tab);
	r = file_node(tab, dir, name, &id, ret);
	if (r == 0)
		present(*ret, st);
	table_unlock(tab);
	return r;
}

/*
 * Makes FD the node's descriptor and returns it with a reference; a narrower one the node had
 * is dropped. Takes FD over, also on failure. Lock held.
 */
static struct sbx_fd *fd_install(struct sbx_inodes *tab, struct sbx_node *node, int fd, int mode)
{
	struct sbx_fd *f = malloc(sizeof(*f));
	bool pinned = node->fd && node->fd->pinned;

	if (!f) {
		close(fd);
		return NULL;
	}
	if (node->fd)
		fd_drop(tab, node->fd);
	*f = (struct sbx_fd){.fd = fd, .mode = mode, .refs = 1, .pinned = pinned, .node = node};
	node->fd = f;
	ring_push(pinned ? &tab->pins : &tab->lru, f);
	if (pinned)
		tab->npinned++;
	else
		tab->nfds++;
	fds_trim(tab, tab->max_fds);
	return f;
}

int sbx_node_adopt(struct sbx_inodes *tab, struct sbx_node *dir, const char *name, int fd, int mode,
                   struct stat *st, struct sbx_node **ret)
{
	struct ident id;
	struct sbx_fd *f;
	int r = stat_at(dir->box, fd, "", st, &id);

	if (r == 0 && !S_ISREG(id.type))
		r = -ESTALE;
	if (r < 0) {
		close(fd);
		return r;
	}
	table_lock(tab);
	r = file_node(tab, dir, name, &id, ret);
	if (r == 0) {
		f = fd_install(tab, *ret, fd, mode);
		if (f && --f->refs == 0 && __atomic_load_n(&dir->box->busy, __ATOMIC_SEQ_CST))
			fd_drop(tab, f);
	} else {
		close(fd);
	}
	table_unlock(tab);
	return r;
}

static bool fd_serves(const struct sbx_fd *f, enum sbx_fd_want want)
{
	switch (want) {
	case SBX_FD_PATH:
		return true;
	case SBX_FD_READ:
		return f->mode == O_RDONLY || f->mode == O_RDWR;
	case SBX_FD_WRITE:
		return f->mode == O_WRONLY || f->mode == O_RDWR;
	}
	return false;
}

/* Drops what can be dropped after EMFILE. */
static void make_room(struct sbx_inodes *tab)
{
	table_lock(tab);
	fds_trim(tab, 0);
	table_unlock(tab);
}

static int open_again(struct sbx_inodes *tab, int dirfd, const char *name, int flags)
{
	int fd;

	if (sbx_without("identity"))
		flags &= ~O_NOFOLLOW;
	fd = openat(dirfd, name, flags | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (fd < 0 && (errno == EMFILE || errno == ENFILE)) {
		make_room(tab);
		fd = openat(dirfd, name, flags | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	}
	return fd < 0 ? -errno : fd;
}

/*
 * A file whose mode keeps its owner out was open when the client got its descriptor; we open only
 * now. The owner may change the mode, so it is lifted for the moment of opening.
 */
static int open_lifted(struct sbx_inodes *tab, int path_fd, int flags)
{
	char proc[32];
	struct stat st;
	int fd;

	snprintf(proc, sizeof(proc), "/proc/self/fd/%d", path_fd);
	fd = open_again(tab, AT_FDCWD, proc, flags);
	if (fd != -EACCES || fstat(path_fd, &st) < 0 || st.st_uid != geteuid())
		return fd;
	if (chmod(proc, (st.st_mode & 07777) | S_IRUSR | S_IWUSR) < 0)
		return -EACCES;
	fd = open_again(tab, AT_FDCWD, proc, flags);
	chmod(proc, st.st_mode & 07777);
	return fd;
}

static int open_child(struct sbx_inodes *tab, const struct sbx_node *dir, int dirfd,
                      const char *name)
{
	struct sbx_nested n;
	int fd = sbx_nested_find(dir->box, dirfd, name, &n);

	if (fd < 0)
		return fd;
	fd = open_again(tab, n.dirfd, n.name, O_PATH | O_NOFOLLOW);
	sbx_nested_release(&n);
	return fd;
}

/* Opens the node's file by parent and name as O_PATH and compares the identity. */
static int open_path(struct sbx_inodes *tab, struct sbx_node *node)
{
	struct sbx_node *dir;
	struct sbx_fd *dfd;
	struct ident id;
	struct stat st;
	char *name;
	int fd, r;

	if (node->kind == SBX_NODE_BOX)
		return sbx_box_root(node->box);
	table_lock(tab);
	dir = node->parent;
	if (dir)
		dir->refs++;
	name = node->name ? strdup(node->name) : NULL;
	table_unlock(tab);
	if (!dir || !name) {
		free(name);
		sbx_node_put(tab, dir);
		return -ESTALE;
	}
	r = sbx_node_fd(tab, dir, SBX_FD_PATH, &dfd);
	fd = r < 0 ? r : open_child(tab, dir, dfd->fd, name);
	if (r == 0)
		sbx_fd_put(tab, dfd);
	sbx_node_put(tab, dir);
	free(name);
	if (fd == -ENOENT || fd == -ENOTDIR)
		return -ESTALE;
	if (fd >= 0 && !sbx_without("identity") &&
	    (stat_at(node->box, fd, "", &st, &id) < 0 || !is_still(node, &id))) {
		close(fd);
		return -ESTALE;
	}
	return fd;
}

static int open_wanted(struct sbx_inodes *tab, struct sbx_node *node, struct sbx_fd *have,
                       enum sbx_fd_want want, int *mode)
{
	_cleanup_fd_ int own = -1;
	int path_fd = have ? have->fd : (own = open_path(tab, node));

	*mode = O_PATH;
	if (path_fd < 0)
		return path_fd;
	if (want == SBX_FD_PATH)
		return sbx_steal_fd(&own);
	if (node->kind == SBX_NODE_BOX || S_ISDIR(node->type)) {
		if (want == SBX_FD_WRITE)
			return -EISDIR;
	} else if (!S_ISREG(node->type)) {
		return -ENXIO; /* never open a FIFO, socket or device on a client's behalf */
	}
	*mode = want == SBX_FD_READ ? O_RDONLY : O_RDWR;
	return open_lifted(tab, path_fd, *mode);
}

int sbx_node_fd(struct sbx_inodes *tab, struct sbx_node *node, enum sbx_fd_want want,
                struct sbx_fd **ret)
{
	struct sbx_fd *f;
	int fd, mode;

	table_lock(tab);
	f = node->fd;
	if (f) {
		f->refs++;
		if (!f->pinned && tab->lru.lru_next != f) {
			ring_remove(f);
			ring_push(&tab->lru, f);
		}
	}
	table_unlock(tab);
	if (f && fd_serves(f, want)) {
		*ret = f;
		return 0;
	}
	fd = open_wanted(tab, node, f, want, &mode);
	sbx_fd_put(tab, f);
	if (fd < 0)
		return fd;

	table_lock(tab);
	if (node->fd && fd_serves(node->fd, want)) { /* another thread was quicker */
		close(fd);
		f = node->fd;
		f->refs++;
	} else {
		f = fd_install(tab, node, fd, mode);
	}
	table_unlock(tab);
	if (!f)
		return -ENOMEM;
	*ret = f;
	return 0;
}

void sbx_fd_put(struct sbx_inodes *tab, struct sbx_fd *f)
{
	if (!f)
		return;
	table_lock(tab);
	if (--f->refs == 0 && !f->node) {
		fd_close(tab, f);
	} else if (f->refs == 0 && !f->pinned && f->mode != O_PATH && f->mode != O_RDONLY &&
	           __atomic_load_n(&f->node->box->busy, __ATOMIC_SEQ_CST)) {
		fd_drop(tab, f);
	}
	table_unlock(tab);
}

int sbx_node_stat(struct sbx_inodes *tab, struct sbx_node *node, struct stat *st)
{
	struct sbx_node *dir = NULL;
	_cleanup_free_ char *name = NULL;
	struct sbx_fd *f;
	struct ident id;
	bool by_name;
	int r;

	table_lock(tab);
	by_name = !node->fd && node->kind == SBX_NODE_FILE && node->parent && !S_ISDIR(node->type);
	if (by_name) {
		dir = node->parent;
		dir->refs++;
		name = strdup(node->name);
	}
	table_unlock(tab);

	/* A leaf without a descriptor is asked for by name: one system call, and none is used up. */
	r = sbx_node_fd(tab, by_name ? dir : node, SBX_FD_PATH, &f);
	if (r == 0) {
		r = !by_name ? stat_at(node->box, f->fd, "", st, &id)
		    : name   ? stat_child(dir, f->fd, name, st, &id)
		             : -ENOMEM;
		sbx_fd_put(tab, f);
	}
	sbx_node_put(tab, dir);
	if (r == -ENOENT || r == -ENOTDIR)
		return -ESTALE;
	if (r == 0 && node->kind == SBX_NODE_FILE && !is_still(node, &id))
		return -ESTALE;
	if (r == 0) {
		table_lock(tab);
		present(node, st);
		/* The backend may have one more link to it for a while. */
		if (node->nameless && st->st_nlink == 1)
			st->st_nlink = 0;
		table_unlock(tab);
	}
	return r;
}

void sbx_hold_name(struct sbx_inodes *tab, struct sbx_node *dir, const char *name,
                   struct sbx_hold *ret)
{
	struct sbx_node *node;
	struct sbx_fd *dfd;
	struct ident id;
	struct stat st;
	int r;

	*ret = (struct sbx_hold){0};
	if (sbx_node_fd(tab, dir, SBX_FD_PATH, &dfd) < 0)
		return;
	r = stat_child(dir, dfd->fd, name, &st, &id);
	sbx_fd_put(tab, dfd);
	if (r < 0)
		return;
	table_lock(tab);
	node = find_at(tab, dir, &id);
	if (node) {
		node->refs++;
		place_at(tab, node, dir, name);
	}
	table_unlock(tab);
	if (node && sbx_node_fd(tab, node, SBX_FD_PATH, &ret->fd) < 0) {
		sbx_node_put(tab, node);
		return;
	}
	ret->node = node;
	ret->last = st.st_nlink == 1;
}

/* Gives the node the descriptor for as long as it lives. Lock held; F has a reference. */
static void fd_pin(struct sbx_inodes *tab, struct sbx_node *node, struct sbx_fd *f)
{
	if (node->fd && node->fd != f)
		f = node->fd;
	if (f->pinned)
		return;
	if (f->node) {
		ring_remove(f);
		tab->nfds--;
	}
	f->node = node;
	node->fd = f;
	f->pinned = true;
	tab->npinned++;
	ring_push(&tab->pins, f);
	fds_trim(tab, tab->max_fds);
}

void sbx_hold_release(struct sbx_inodes *tab, struct sbx_hold *hold, bool done)
{
	if (!hold->node)
		return;
	if (done) {
		table_lock(tab);
		fd_pin(tab, hold->node, hold->fd);
		hold->node->nameless |= hold->last;
		table_unlock(tab);
	}
	sbx_fd_put(tab, hold->fd);
	sbx_node_put(tab, hold->node);
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
		hash_remove(tab, node);
		any = true;
	}
	return any;
}

bool sbx_inodes_renew_links(struct sbx_inodes *tab, struct sbx_box *box)
{
	bool any;

	table_lock(tab);
	any = renew_links(tab, box, NULL);
	table_unlock(tab);
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
	struct ident id;
	struct stat st;
	bool renewed;
	int r;

	if (sbx_node_fd(tab, newdir, SBX_FD_PATH, &dfd) < 0)
		return true;
	r = stat_child(newdir, dfd->fd, newname, &st, &id);
	sbx_fd_put(tab, dfd);
	if (r < 0)
		return true;
	table_lock(tab);
	node = find_file(tab, newdir->box, &id);
	renewed = node && node_moved(tab, node, dir, name, newdir, newname);
	table_unlock(tab);
	return renewed;
}

void sbx_node_replace(struct sbx_inodes *tab, struct sbx_box *box, int old, int new)
{
	struct ident was, is;
	struct sbx_node *node;
	struct stat st;

	if (stat_at(box, old, "", &st, &was) < 0 || stat_at(box, new, "", &st, &is) < 0)
		return;
	table_lock(tab);
	node = find_file(tab, box, &was);
	if (node) {
		hash_remove(tab, node);
		if (node->fd)
			fd_drop(tab, node->fd);
		node->dev = is.dev;
		node->ino = is.ino;
		node->born = is.born;
		hash_insert(tab, node);
	}
	table_unlock(tab);
}

static void ring_drop_box(struct sbx_inodes *tab, struct sbx_fd *ring, struct sbx_box *box,
                          bool only_writers)
{
	struct sbx_fd *f, *next;

	for (f = ring->lru_next; f != ring; f = next) {
		next = f->lru_next;
		if (f->node->box == box && (!only_writers || writes(f)))
			fd_drop(tab, f);
	}
}

void sbx_inodes_drop_writers(struct sbx_inodes *tab, struct sbx_box *box)
{
	table_lock(tab);
	ring_drop_box(tab, &tab->lru, box, true);
	table_unlock(tab);
}

void sbx_inodes_drop_box(struct sbx_inodes *tab, struct sbx_box *box)
{
	table_lock(tab);
	ring_drop_box(tab, &tab->lru, box, false);
	ring_drop_box(tab, &tab->pins, box, false);
	table_unlock(tab);
}

struct sbx_node *sbx_node_parent(struct sbx_inodes *tab, struct sbx_node *node)
{
	struct sbx_node *dir;

	table_lock(tab);
	dir = node->parent;
	if (dir)
		dir->refs++;
	table_unlock(tab);
	return dir;
}

int sbx_node_path(struct sbx_inodes *tab, struct sbx_node *node, char *buf, size_t size)
{
	size_t at = size - 1;
	int r = 0;

	buf[at] = '\0';
	table_lock(tab);
	for (; node && node->kind == SBX_NODE_FILE && node->name; node = node->parent) {
		size_t len = strlen(node->name);

		if (len + 1 > at) {
			r = -ENAMETOOLONG;
			break;
		}
		if (at != size - 1)
			buf[--at] = '/';
		at -= len;
		memcpy(buf + at, node->name, len);
	}
	if (r == 0 && (!node || node->kind != SBX_NODE_BOX))
		r = -ESTALE;
	table_unlock(tab);
	if (r == 0)
		memmove(buf, buf + at, size - at);
	return r;
}

void sbx_inodes_stats(struct sbx_inodes *tab, struct sbx_inode_stats *ret)
{
	table_lock(tab);
	*ret = (struct sbx_inode_stats){
	        .nodes = tab->nodes, .fds = tab->nfds, .pinned = tab->npinned};
	table_unlock(tab);
}
