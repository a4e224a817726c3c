/*
 * Node ids are indices with generations, as in fs/workspace/inode.c. A file whose write may wait
 * gets a new one at every lookup while somebody else has, or is about to have, the last one open:
 * the kernel holds an inode's lock during a write, so two clients share neither the inode nor the
 * wait.
 */
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/control/nodes.h"
#include "fs/control/ops_save.h"
#include "fs/sandbox/gitdir.h"
#include "sandboxfs/mitigations.h"

#define BUCKETS 16384

struct cnode {
	struct sbx_control_node node;
	uint64_t ino; /* of sbx_control_ino */
	uint64_t nlookup;
	uint32_t index, generation;
	bool shared; /* in the hash: found again by the next lookup */
	bool taken;  /* of a file whose write may wait: looked up, and not closed again since */
	unsigned opens;
	struct cnode *hash_next;
};

struct sbx_control_nodes {
	pthread_mutex_t lock; /* everything below */
	struct sbx_open_file *open;
	struct cnode **slot;
	uint32_t *generation;
	uint32_t slots, used;
	uint32_t *free_list, free_n;
	struct cnode *hash[BUCKETS];
	atomic_ullong changes; /* without the lock: writes and closes so far */
};

static int slots_grow(struct sbx_control_nodes *t)
{
	uint32_t n = t->slots ? 2 * t->slots : 256;
	struct cnode **slot = realloc(t->slot, n * sizeof(struct cnode *));
	uint32_t *p;

	if (!slot)
		return -ENOMEM;
	t->slot = slot;
	p = realloc(t->generation, n * sizeof(*p));
	if (!p)
		return -ENOMEM;
	t->generation = p;
	p = realloc(t->free_list, n * sizeof(*p));
	if (!p)
		return -ENOMEM;
	t->free_list = p;
	memset(t->slot + t->slots, 0, (n - t->slots) * sizeof(struct cnode *));
	memset(t->generation + t->slots, 0, (n - t->slots) * sizeof(uint32_t));
	t->slots = n;
	return 0;
}

static int cnode_new(struct sbx_control_nodes *t, struct cnode **ret)
{
	struct cnode *c;

	if (t->free_n == 0 && t->used == t->slots && slots_grow(t) < 0)
		return -ENOMEM;
	c = calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	c->index = t->free_n ? t->free_list[--t->free_n] : t->used++;
	c->generation = t->generation[c->index];
	assert(!t->slot[c->index]);
	t->slot[c->index] = c;
	*ret = c;
	return 0;
}

static void hash_in(struct sbx_control_nodes *t, struct cnode *c)
{
	struct cnode **bucket;

	assert(!c->shared);
	c->ino = sbx_control_ino(&c->node);
	bucket = &t->hash[c->ino % BUCKETS];
	c->shared = true;
	c->hash_next = *bucket;
	*bucket = c;
}

static void hash_out(struct sbx_control_nodes *t, struct cnode *c)
{
	struct cnode **b = &t->hash[c->ino % BUCKETS];

	assert(c->shared);
	while (*b != c)
		b = &(*b)->hash_next;
	*b = c->hash_next;
	c->shared = false;
}

/* The one that a lookup of NODE finds, if there is. */
static struct cnode *hash_find(struct sbx_control_nodes *t, const struct sbx_control_node *node)
{
	uint64_t ino = sbx_control_ino(node);
	struct cnode *c = t->hash[ino % BUCKETS];

	while (c && !(c->ino == ino && sbx_control_node_same(&c->node, node)))
		c = c->hash_next;
	if (c && c->taken) {
		hash_out(t, c);
		c = NULL;
	}
	return c;
}

/* Takes NODE over. Counts a lookup. A sandbox that was retired meanwhile has been dropped: it gets
 * no more. */
static int cnode_get(struct sbx_control_nodes *t, struct sbx_control_node *node, uint64_t *id)
{
	struct cnode *c = NULL;
	int r;

	pthread_mutex_lock(&t->lock);
	r = node->box && !sbx_box_alive(node->box) ? -ESTALE : 0;
	if (r == 0)
		c = hash_find(t, node);
	if (r == 0 && !c)
		r = cnode_new(t, &c);
	if (r == 0 && !c->shared) {
		c->node = *node;
		hash_in(t, c);
	} else {
		sbx_control_node_release(node);
	}
	if (r == 0) {
		c->taken = sbx_control_waits(&c->node);
		c->nlookup++;
		*id = (uint64_t)c->generation << 32 | c->index;
	}
	pthread_mutex_unlock(&t->lock);
	return r;
}

static void cnode_free(struct sbx_control_nodes *t, struct cnode *c)
{
	if (c->shared)
		hash_out(t, c);
	t->slot[c->index] = NULL;
	t->generation[c->index]++;
	t->free_list[t->free_n++] = c->index;
	sbx_control_node_release(&c->node);
	free(c);
}

static struct cnode *cnode_at(struct sbx_control_nodes *t, uint64_t id)
{
	uint32_t index = (uint32_t)id;
	struct cnode *c = index < t->used ? t->slot[index] : NULL;

	return c && c->generation == id >> 32 ? c : NULL;
}

void sbx_controls_forget(struct sbx_controls *controls, uint64_t id, uint64_t n)
{
	struct sbx_control_nodes *t = controls->nodes;
	struct cnode *c;

	id &= ~controls->id_bit;
	pthread_mutex_lock(&t->lock);
	c = id == FUSE_ROOT_ID ? NULL : cnode_at(t, id);
	if (c) {
		c->nlookup -= n < c->nlookup ? n : c->nlookup;
		if (c->nlookup == 0)
			cnode_free(t, c);
	}
	pthread_mutex_unlock(&t->lock);
}

/*
 * Also while the kernel keeps names of it, perhaps for long: an id has its generation, so what the
 * kernel still asks of the old one, or forgets, is of nothing.
 */
void sbx_controls_drop_box(struct sbx_controls *controls, const struct sbx_box *box)
{
	struct sbx_control_nodes *t = controls->nodes;

	sbx_buffers_drop_box(controls->buffers, box->number);
	pthread_mutex_lock(&t->lock);
	for (uint32_t i = 0; i < t->used; i++) {
		struct cnode *c = t->slot[i];

		if (c && c->node.box == box)
			cnode_free(t, c);
	}
	pthread_mutex_unlock(&t->lock);
}

bool sbx_controls_find(struct sbx_controls *controls, fuse_ino_t ino, struct sbx_control_node *ret)
{
	struct sbx_control_nodes *t = controls->nodes;
	struct cnode *c;

	pthread_mutex_lock(&t->lock);
	c = cnode_at(t, ino & ~controls->id_bit);
	if (c)
		sbx_control_node_copy(&c->node, ret);
	pthread_mutex_unlock(&t->lock);
	return c;
}

bool sbx_controls_node(fuse_req_t req, fuse_ino_t ino, struct sbx_control_node *ret)
{
	bool found = sbx_controls_find(controls_of(req), ino, ret);

	if (!found)
		fuse_reply_err(req, ESTALE);
	return found;
}

int sbx_controls_init(struct sbx_controls *c, struct sbx_loop *loop)
{
	struct sbx_control_nodes *t = calloc(1, sizeof(*t));
	struct cnode *root;

	if (!t)
		return -ENOMEM;
	pthread_mutex_init(&t->lock, NULL);
	sbx_open_dirs_init(&c->dirs);
	t->used = FUSE_ROOT_ID; /* the first node is the root */
	if (slots_grow(t) < 0 || cnode_new(t, &root) < 0) {
		free(t->slot);
		free(t->generation);
		free(t->free_list);
		free(t);
		return -ENOMEM;
	}
	sbx_control_root(&root->node);
	root->nlookup = 1;
	c->nodes = t;
	if (sbx_buffers_create(loop, &c->buffers) < 0 || sbx_saves_create(&c->saves) < 0)
		return -ENOMEM;
	return 0;
}

static void file_free(struct sbx_open_file *f)
{
	sbx_control_release(f->handle);
	free(f);
}

void sbx_controls_finish(struct sbx_controls *c)
{
	struct sbx_control_nodes *t = c->nodes;

	if (!t)
		return;
	for (struct sbx_open_file *f = t->open, *next; f; f = next) {
		next = f->next;
		file_free(f);
	}
	for (uint32_t i = 0; i < t->used; i++)
		if (t->slot[i]) {
			sbx_control_node_release(&t->slot[i]->node);
			free(t->slot[i]);
		}
	free(t->slot);
	free(t->generation);
	free(t->free_list);
	pthread_mutex_destroy(&t->lock);
	sbx_open_dirs_finish(&c->dirs);
	free(t);
	c->nodes = NULL;
	sbx_saves_destroy(c->saves);
	sbx_buffers_destroy(c->buffers);
}

int sbx_controls_stat(struct sbx_controls *c, const struct sbx_control_node *node, struct stat *st)
{
	int r = sbx_control_getattr(c->registry, node, st);

	if (r < 0)
		return r;
	st->st_ino = sbx_control_ino(node);
	if (node->buffer)
		return 0;
	st->st_uid = geteuid();
	st->st_gid = getegid();
	if (S_ISDIR(st->st_mode) && sbx_control_planted(node) && !sbx_mitigation_off("planted"))
		sbx_gitdir_disown(st);
	return 0;
}

int sbx_controls_fill(struct sbx_controls *c, struct sbx_control_node *node, bool keep,
                      struct fuse_entry_param *e)
{
	uint64_t id = 0;
	int r;

	*e = (struct fuse_entry_param){
	        .entry_timeout = keep ? 3600 : 0,
	        .attr_timeout = sbx_control_steady(node) ? 3600 : 0,
	};
	r = sbx_controls_stat(c, node, &e->attr);
	if (r < 0)
		sbx_control_node_release(node);
	else
		r = cnode_get(c->nodes, node, &id);
	e->ino = id | c->id_bit;
	e->generation = id >> 32;
	return r;
}

int sbx_controls_entry(struct sbx_controls *c, struct sbx_box *box, struct fuse_entry_param *e)
{
	struct sbx_control_node node;

	if (box)
		sbx_control_box_node(box, &node);
	else
		sbx_control_mount_node(&node);
	return sbx_controls_fill(c, &node, false, e);
}

/* The lock is held. */
static void count_open(struct sbx_controls *controls, fuse_ino_t ino, unsigned count)
{
	struct cnode *c = cnode_at(controls->nodes, ino & ~controls->id_bit);

	if (!c)
		return;
	c->opens += count;
	if (c->opens == 0)
		c->taken = false;
}

struct sbx_open_file *sbx_controls_opened(struct sbx_controls *controls, fuse_ino_t ino,
                                          struct sbx_control_handle *handle)
{
	struct sbx_control_nodes *t = controls->nodes;
	struct sbx_open_file *f = malloc(sizeof(*f));

	if (!f) {
		sbx_control_release(handle);
		return NULL;
	}
	pthread_mutex_lock(&t->lock);
	*f = (struct sbx_open_file){
	        .next = t->open,
	        .at = &t->open,
	        .handle = handle,
	        .ino = sbx_control_handle_ino(handle),
	};
	if (t->open)
		t->open->at = &f->next;
	t->open = f;
	count_open(controls, ino, 1);
	pthread_mutex_unlock(&t->lock);
	return f;
}

void sbx_controls_closed(struct sbx_controls *controls, fuse_ino_t ino, struct sbx_open_file *f)
{
	pthread_mutex_lock(&controls->nodes->lock);
	*f->at = f->next;
	if (f->next)
		f->next->at = f->at;
	count_open(controls, ino, -1u);
	pthread_mutex_unlock(&controls->nodes->lock);
	sbx_control_close(f->handle, f->broken);
	free(f);
}

unsigned sbx_controls_others(struct sbx_controls *controls, const struct sbx_open_file *f)
{
	unsigned n = 0;

	pthread_mutex_lock(&controls->nodes->lock);
	for (struct sbx_open_file *o = controls->nodes->open; o; o = o->next)
		n += o != f && o->ino == f->ino && !o->closed && o->pos == f->pos;
	pthread_mutex_unlock(&controls->nodes->lock);
	return n;
}

void sbx_controls_changed(struct sbx_controls *controls)
{
	atomic_fetch_add(&controls->nodes->changes, 1);
}

uint64_t sbx_controls_changes(struct sbx_controls *controls)
{
	return atomic_load(&controls->nodes->changes);
}
