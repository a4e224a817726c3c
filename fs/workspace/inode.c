/*
 * The table is an array of node pointers with a free list, and a hash over what
 * a node stands for.
 *
 * A node lives while the kernel counts lookups of it (nlookup), while an
 * operation uses it, or while it is the parent of another (refs). The lookups count no longer once
 * its sandbox is removed. It leaves the hash when its identity is taken over by another file (an
 * inode number used again).
 */
#include "fs/workspace/inode_impl.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "fs/sandbox/registry.h"

#define FORGOTTEN_AT_ONCE 256 /* nodes: others wait for the lock */

void sbx_inodes_lock(struct sbx_inodes *tab)
{
	pthread_mutex_lock(&tab->lock);
}

/* The last descriptor of what was unlinked takes the file's blocks along, which may take long. */
void sbx_inodes_unlock(struct sbx_inodes *tab)
{
	struct sbx_fd *dead = tab->dead, *next;

	tab->dead = NULL;
	pthread_mutex_unlock(&tab->lock);
	if (!dead)
		return;
	for (struct sbx_fd *f = dead; f; f = f->dead_next)
		close(f->fd);
	pthread_mutex_lock(&tab->lock);
	for (struct sbx_fd *f = dead; f; f = next) {
		next = f->dead_next;
		sbx_fd_free(f);
	}
	pthread_cond_broadcast(&tab->closed);
	pthread_mutex_unlock(&tab->lock);
}

static uint64_t mix(uint64_t x)
{
	x ^= x >> 33;
	x *= 0xff51afd7ed558ccdull;
	x ^= x >> 33;
	x *= 0xc4ceb9fe1a85ec53ull;
	return x ^ (x >> 33);
}

uint64_t sbx_node_hash(unsigned kind, unsigned which, const struct sbx_box *box, dev_t dev,
                       ino_t ino)
{
	uint64_t h = mix((uint64_t)kind << 8 | which);

	h = mix(h ^ (box ? box->number : 0));
	h = mix(h ^ dev);
	return mix(h ^ ino);
}

int sbx_inodes_create(unsigned max_fds, struct sbx_inodes **ret)
{
	struct sbx_inodes *tab = calloc(1, sizeof(*tab));
	struct sbx_node *root = calloc(1, sizeof(*root));
	pthread_mutexattr_t attr;
	pthread_condattr_t monotonic;

	assert(max_fds > 0);
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
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&tab->closed, &monotonic);
	pthread_condattr_destroy(&monotonic);
	sbx_fds_init(tab);
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
	assert(!tab->gone && tab->nodes == 1);
	tab->gone = fn;
	tab->gone_data = data;
}

/* Grows the arrays so that one more node fits. */
static int slots_grow(struct sbx_inodes *tab)
{
	uint32_t n = tab->slots * 2;
	void *p;

	assert(tab->used <= tab->slots);
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
	return sbx_node_hash(node->kind, node->which, node->box, node->dev, node->ino);
}

static void hash_grow(struct sbx_inodes *tab)
{
	uint32_t n = tab->buckets * 2;
	struct sbx_node **hash;

	assert((tab->buckets & (tab->buckets - 1)) == 0);
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

void sbx_inodes_hash(struct sbx_inodes *tab, struct sbx_node *node)
{
	struct sbx_node **b;

	assert(!node->hashed);
	hash_grow(tab);
	b = &tab->hash[hash_of(node) & (tab->buckets - 1)];
	node->hash_next = *b;
	*b = node;
	node->hashed = true;
}

void sbx_inodes_unhash(struct sbx_inodes *tab, struct sbx_node *node)
{
	struct sbx_node **b;

	if (!node->hashed)
		return;
	for (b = &tab->hash[hash_of(node) & (tab->buckets - 1)]; *b != node; b = &(*b)->hash_next)
		;
	*b = node->hash_next;
	node->hashed = false;
}

/* Lock held. */
static void box_list_add(struct sbx_node *node)
{
	struct sbx_node **head = &node->box->nodes;

	node->box_next = *head;
	if (*head)
		(*head)->box_link = &node->box_next;
	*head = node;
	node->box_link = head;
}

/* Lock held. */
static void box_list_remove(struct sbx_node *node)
{
	if (!node->box_link)
		return;
	*node->box_link = node->box_next;
	if (node->box_next)
		node->box_next->box_link = node->box_link;
	node->box_link = NULL;
	node->box_next = NULL;
}

void sbx_node_release(struct sbx_inodes *tab, struct sbx_node *node)
{
	while (node && node->refs == 0 && node->nlookup == 0 && node->kind != SBX_NODE_ROOT) {
		struct sbx_node *parent = node->parent;

		if (tab->gone && node->kind == SBX_NODE_FILE)
			tab->gone(sbx_node_id(node), tab->gone_data);
		if (node->fd)
			sbx_fd_drop(tab, node->fd);
		assert(!node->fd);
		assert(tab->slot[node->index] == node);
		sbx_inodes_unhash(tab, node);
		box_list_remove(node);
		tab->slot[node->index] = NULL;
		tab->generation[node->index] = node->generation + 1;
		tab->next_free[node->index] = tab->free_head;
		tab->free_head = node->index;
		tab->nodes--;
		sbx_box_unref(node->box);
		free(node->name);
		free(node);
		if (parent) {
			assert(parent->refs > 0);
			parent->refs--;
		}
		node = parent;
	}
}

void sbx_inodes_destroy(struct sbx_inodes *tab)
{
	if (!tab)
		return;
	sbx_inodes_lock(tab);
	for (uint32_t i = 0; i < tab->used; i++) {
		struct sbx_node *node = tab->slot[i];

		if (!node)
			continue;
		if (node->fd)
			sbx_fd_drop(tab, node->fd);
		sbx_box_unref(node->box);
		free(node->name);
		free(node);
	}
	assert(tab->nfds == 0 && tab->npinned == 0);
	assert(!tab->waiting);
	sbx_inodes_unlock(tab);
	assert(tab->leaving.lru_next == &tab->leaving);
	free(tab->slot);
	free(tab->next_free);
	free(tab->generation);
	free(tab->hash);
	pthread_cond_destroy(&tab->closed);
	pthread_mutex_destroy(&tab->lock);
	free(tab);
}

struct sbx_node *sbx_node_at(struct sbx_inodes *tab, uint64_t id)
{
	uint32_t index = (uint32_t)id;
	struct sbx_node *node = index < tab->used ? tab->slot[index] : NULL;

	return node && node->generation == id >> 32 ? node : NULL;
}

int sbx_node_get(struct sbx_inodes *tab, uint64_t id, struct sbx_node **ret)
{
	struct sbx_node *node;

	sbx_inodes_lock(tab);
	node = sbx_node_at(tab, id);
	if (node)
		node->refs++;
	sbx_inodes_unlock(tab);
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
	sbx_inodes_lock(tab);
	assert(node->refs > 0);
	node->refs--;
	sbx_node_release(tab, node);
	sbx_inodes_unlock(tab);
}

/* An id has a generation, so that a node is not taken for one that the kernel forgets later. */
void sbx_inodes_forget_box(struct sbx_inodes *tab, struct sbx_box *box)
{
	struct sbx_node *node;
	int n;

	assert(!sbx_box_alive(box));
	do {
		sbx_inodes_lock(tab);
		for (n = 0; n < FORGOTTEN_AT_ONCE && (node = box->nodes); n++) {
			box_list_remove(node);
			node->nlookup = 0;
			sbx_node_release(tab, node);
		}
		sbx_inodes_unlock(tab);
	} while (n == FORGOTTEN_AT_ONCE);
}

void sbx_node_forget(struct sbx_inodes *tab, uint64_t id, uint64_t n)
{
	struct sbx_node *node;

	sbx_inodes_lock(tab);
	node = sbx_node_at(tab, id);
	if (node && node->kind != SBX_NODE_ROOT) {
		node->nlookup -= n < node->nlookup ? n : node->nlookup;
		sbx_node_release(tab, node);
	}
	sbx_inodes_unlock(tab);
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

bool sbx_node_steep(const struct sbx_node *node)
{
	return node->steep;
}

unsigned sbx_node_which(const struct sbx_node *node)
{
	return node->which;
}

int sbx_node_new(struct sbx_inodes *tab, enum sbx_node_kind kind, struct sbx_box *box,
                 struct sbx_node **ret)
{
	struct sbx_node *node;
	int r = slots_grow(tab);

	assert(kind != SBX_NODE_ROOT);
	assert(box || kind == SBX_NODE_TEXT || kind == SBX_NODE_CTL);
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
	assert(node->index < tab->slots);
	assert(!tab->slot[node->index]);
	tab->slot[node->index] = node;
	tab->nodes++;
	node->kind = (uint8_t)kind;
	node->box = box ? sbx_box_ref(box) : NULL;
	if (box)
		box_list_add(node);
	node->refs = 1;
	*ret = node;
	return 0;
}

struct sbx_node *sbx_node_find_file(struct sbx_inodes *tab, struct sbx_box *box,
                                    const struct sbx_ident *id)
{
	uint64_t h = sbx_node_hash(SBX_NODE_FILE, 0, box, id->dev, id->ino);
	struct sbx_node *node;

	for (node = tab->hash[h & (tab->buckets - 1)]; node; node = node->hash_next)
		if (node->kind == SBX_NODE_FILE && node->box == box && node->ino == id->ino &&
		    node->dev == id->dev)
			break;
	if (node && !sbx_node_is(node, id)) {
		sbx_inodes_unhash(tab, node);
		node = NULL;
	}
	return node;
}

void sbx_node_copied_up(struct sbx_inodes *tab, struct sbx_box *box, int fd)
{
	struct sbx_ident id;
	struct sbx_node *node;
	struct stat st;

	if (sbx_ident_at(box, fd, "", &st, &id) < 0)
		return;
	sbx_inodes_lock(tab);
	node = sbx_node_find_file(tab, box, &id);
	if (node)
		sbx_node_note_copy(node, &id);
	sbx_inodes_unlock(tab);
}

int sbx_node_special(struct sbx_inodes *tab, enum sbx_node_kind kind, struct sbx_box *box,
                     unsigned which, struct sbx_node **ret)
{
	uint64_t h = sbx_node_hash(kind, which, box, 0, 0);
	struct sbx_node *node;
	int r = 0;

	assert(kind != SBX_NODE_FILE);
	assert(which <= UINT8_MAX);
	sbx_inodes_lock(tab);
	if (box && !sbx_box_alive(box)) {
		sbx_inodes_unlock(tab);
		return -ESTALE;
	}
	for (node = tab->hash[h & (tab->buckets - 1)]; node; node = node->hash_next)
		if (node->kind == kind && node->which == which && node->box == box)
			break;
	if (node) {
		node->refs++;
	} else {
		r = sbx_node_new(tab, kind, box, &node);
		if (r == 0) {
			node->which = (uint8_t)which;
			sbx_inodes_hash(tab, node);
		}
	}
	if (r == 0) {
		node->nlookup++;
		*ret = node;
	}
	sbx_inodes_unlock(tab);
	return r;
}

ino_t sbx_node_ino(struct sbx_inodes *tab, struct sbx_node *node)
{
	ino_t ino;

	if (node->kind == SBX_NODE_BOX)
		return node->box->root_ino;
	sbx_inodes_lock(tab);
	ino = node->ino;
	sbx_inodes_unlock(tab);
	return ino;
}

bool sbx_node_nameless(struct sbx_inodes *tab, struct sbx_node *node)
{
	bool nameless;

	sbx_inodes_lock(tab);
	nameless = node->nameless;
	sbx_inodes_unlock(tab);
	return nameless;
}

struct sbx_node *sbx_node_parent(struct sbx_inodes *tab, struct sbx_node *node)
{
	struct sbx_node *dir;

	sbx_inodes_lock(tab);
	dir = node->parent;
	if (dir)
		dir->refs++;
	sbx_inodes_unlock(tab);
	return dir;
}

int sbx_node_path(struct sbx_inodes *tab, struct sbx_node *node, char *buf, size_t size)
{
	size_t at = size - 1;
	int r = 0;

	assert(size > 0);
	buf[at] = '\0';
	sbx_inodes_lock(tab);
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
	sbx_inodes_unlock(tab);
	if (r == 0)
		memmove(buf, buf + at, size - at);
	return r;
}

void sbx_inodes_stats(struct sbx_inodes *tab, struct sbx_inode_stats *ret)
{
	sbx_inodes_lock(tab);
	*ret = (struct sbx_inode_stats){.nodes = tab->nodes,
	                                .fds = tab->nfds,
	                                .pinned = tab->npinned,
	                                .max_fds = tab->max_fds};
	sbx_inodes_unlock(tab);
}
