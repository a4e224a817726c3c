/*
 * Translation between FUSE and control files: node ids, pending answers. What a file does is in
 * fs/control*.c.
 *
 * Node ids are indices with generations, as in fs/inode.c. A file whose write may wait gets a new
 * one at every lookup while somebody else has, or is about to have, the last one open: the kernel
 * holds an inode's lock during a write, so two clients share neither the inode nor the wait.
 */
#include "fs/ops_control.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/connection.h"
#include "fs/control.h"
#include "fs/listing.h"
#include "sandboxfs/cleanup.h"

#define BUCKETS 16384

struct cnode {
	struct sbx_control_node node;
	uint64_t ino; /* of sbx_control_ino */
	uint64_t nlookup;
	uint32_t index, generation;
	bool shared; /* in the hash: found again by the next lookup */
	bool gone;   /* its sandbox is: the node holds nothing, until the kernel forgets it */
	bool taken;  /* of a file whose write may wait: looked up, and not closed again since */
	unsigned opens;
	struct cnode *hash_next;
};

struct sbx_control_nodes {
	pthread_mutex_t lock; /* everything below */
	struct cnode **slot;
	uint32_t *generation;
	uint32_t slots, used;
	uint32_t *free_list, free_n;
	struct cnode *hash[BUCKETS];
};

static struct sbx_controls *controls_of(fuse_req_t req)
{
	return ((struct sbx_connection *)fuse_req_userdata(req))->controls;
}

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
	t->slot[c->index] = c;
	*ret = c;
	return 0;
}

static void hash_in(struct sbx_control_nodes *t, struct cnode *c)
{
	struct cnode **bucket;

	c->ino = sbx_control_ino(&c->node);
	bucket = &t->hash[c->ino % BUCKETS];
	c->shared = true;
	c->hash_next = *bucket;
	*bucket = c;
}

static void hash_out(struct sbx_control_nodes *t, struct cnode *c)
{
	struct cnode **b = &t->hash[c->ino % BUCKETS];

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

/* Takes NODE over. Counts a lookup. A sandbox that was retired meanwhile has been dropped: it gets no more. */
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
	if (!c->gone)
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

/* Also while the kernel keeps names of it: what can be forgotten only with a lock of the kernel's is not. */
void sbx_controls_drop_box(struct sbx_controls *controls, const struct sbx_box *box)
{
	struct sbx_control_nodes *t = controls->nodes;

	pthread_mutex_lock(&t->lock);
	for (uint32_t i = 0; i < t->used; i++) {
		struct cnode *c = t->slot[i];

		if (!c || c->gone || c->node.box != box)
			continue;
		if (c->shared)
			hash_out(t, c);
		sbx_control_node_release(&c->node);
		c->node = (struct sbx_control_node){0};
		c->gone = true;
	}
	pthread_mutex_unlock(&t->lock);
}

/* A copy of the node of INO with references of its own; or answers and returns false. */
static bool node_of(fuse_req_t req, fuse_ino_t ino, struct sbx_control_node *ret)
{
	struct sbx_controls *controls = controls_of(req);
	struct sbx_control_nodes *t = controls->nodes;
	struct cnode *c;

	pthread_mutex_lock(&t->lock);
	c = cnode_at(t, ino & ~controls->id_bit);
	if (c && c->gone)
		c = NULL;
	if (c)
		sbx_control_node_copy(&c->node, ret);
	pthread_mutex_unlock(&t->lock);
	if (!c)
		fuse_reply_err(req, ESTALE);
	return c;
}

int sbx_controls_init(struct sbx_controls *c)
{
	struct sbx_control_nodes *t = calloc(1, sizeof(*t));
	struct cnode *root;

	if (!t)
		return -ENOMEM;
	pthread_mutex_init(&t->lock, NULL);
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
	return 0;
}

void sbx_controls_finish(struct sbx_controls *c)
{
	struct sbx_control_nodes *t = c->nodes;

	if (!t)
		return;
	for (uint32_t i = 0; i < t->used; i++)
		if (t->slot[i]) {
			if (!t->slot[i]->gone)
				sbx_control_node_release(&t->slot[i]->node);
			free(t->slot[i]);
		}
	free(t->slot);
	free(t->generation);
	free(t->free_list);
	pthread_mutex_destroy(&t->lock);
	free(t);
	c->nodes = NULL;
}

static int node_stat(struct sbx_controls *c, const struct sbx_control_node *node, struct stat *st)
{
	int r = sbx_control_getattr(c->registry, node, st);

	if (r < 0)
		return r;
	st->st_ino = sbx_control_ino(node);
	st->st_uid = geteuid();
	st->st_gid = getegid();
	return 0;
}

/* Fills e for NODE, which is taken over. KEEP: its name never means anything else. */
static int node_entry(struct sbx_controls *c, struct sbx_control_node *node, bool keep,
                      struct fuse_entry_param *e)
{
	uint64_t id = 0;
	int r;

	*e = (struct fuse_entry_param){
	        .entry_timeout = keep ? 3600 : 0,
	        .attr_timeout = sbx_control_steady(node) ? 3600 : 0,
	};
	r = node_stat(c, node, &e->attr);
	if (r < 0)
		sbx_control_node_release(node);
	else
		r = cnode_get(c->nodes, node, &id);
	e->ino = id | c->id_bit;
	e->generation = id >> 32;
	return r;
}

static void reply_node(fuse_req_t req, struct sbx_control_node *node, bool keep)
{
	struct sbx_controls *c = controls_of(req);
	struct fuse_entry_param e;
	int r = node_entry(c, node, keep, &e);

	if (r < 0)
		fuse_reply_err(req, -r);
	else if (fuse_reply_entry(req, &e) != 0)
		sbx_controls_forget(c, e.ino, 1);
}

int sbx_controls_entry(struct sbx_controls *c, struct sbx_box *box, struct fuse_entry_param *e)
{
	struct sbx_control_node node;

	if (box)
		sbx_control_box_node(box, &node);
	else
		sbx_control_mount_node(&node);
	return node_entry(c, &node, false, e);
}

static void ctl_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct sbx_controls *c = controls_of(req);
	struct sbx_control_node dir, node;
	bool keep;
	int r;

	if (!node_of(req, parent, &dir))
		return;
	r = sbx_control_lookup(c->registry, &dir, name, &node);
	if (r < 0) {
		fuse_reply_err(req, -r);
	} else {
		/* ".7" is that sandbox for ever, and so are the fixed files below it. */
		keep = (parent & ~c->id_bit) == FUSE_ROOT_ID ? *name == '.'
		                                             : sbx_control_kept(&node);
		reply_node(req, &node, keep);
	}
	sbx_control_node_release(&dir);
}

static void ctl_forget(fuse_req_t req, fuse_ino_t ino, uint64_t n)
{
	sbx_controls_forget(controls_of(req), ino, n);
	fuse_reply_none(req);
}

static void ctl_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
	for (size_t i = 0; i < count; i++)
		sbx_controls_forget(controls_of(req), forgets[i].ino, forgets[i].nlookup);
	fuse_reply_none(req);
}

static void ctl_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct sbx_control_node node;
	struct stat st;
	bool steady;
	int r;

	(void)fi;
	if (!node_of(req, ino, &node))
		return;
	r = node_stat(controls_of(req), &node, &st);
	steady = sbx_control_steady(&node);
	sbx_control_node_release(&node);
	if (r < 0)
		fuse_reply_err(req, -r);
	else
		fuse_reply_attr(req, &st, steady ? 3600 : 0);
}

static void ctl_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int set,
                        struct fuse_file_info *fi)
{
	struct sbx_control_node node;
	struct stat st;
	int r = 0;

	(void)attr;
	(void)fi;
	if (!node_of(req, ino, &node))
		return;
	if (set & FUSE_SET_ATTR_SIZE)
		r = sbx_control_truncate(controls_of(req)->registry, &node);
	else if (set & (FUSE_SET_ATTR_MODE | FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID))
		r = -EPERM;
	if (r == 0)
		r = node_stat(controls_of(req), &node, &st);
	sbx_control_node_release(&node);
	if (r < 0)
		fuse_reply_err(req, -r);
	else
		fuse_reply_attr(req, &st, 0);
}

static void ctl_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	struct sbx_control_node dir, node;
	int r;

	(void)mode;
	if (!node_of(req, parent, &dir))
		return;
	r = sbx_control_mkdir(controls_of(req)->registry, &dir, name, &node);
	sbx_control_node_release(&dir);
	if (r < 0)
		fuse_reply_err(req, -r);
	else
		reply_node(req, &node, false);
}

static void ctl_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct sbx_control_node dir;
	int r;

	if (!node_of(req, parent, &dir))
		return;
	r = sbx_control_rmdir(controls_of(req)->registry, &dir, name);
	sbx_control_node_release(&dir);
	fuse_reply_err(req, -r);
}

/* Accepted and nothing happens, so that rm -rf of a tree with listed controls goes through. */
static void ctl_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	(void)parent;
	(void)name;
	fuse_reply_err(req, 0);
}

/* Nothing can be made here by other means, whoever asks. */
static void ctl_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
	(void)parent;
	(void)name;
	(void)mode;
	(void)rdev;
	fuse_reply_err(req, EACCES);
}

static void ctl_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t newparent,
                       const char *newname, unsigned flags)
{
	(void)parent;
	(void)name;
	(void)newparent;
	(void)newname;
	(void)flags;
	fuse_reply_err(req, EPERM);
}

/* ---- directories ---- */

/* An open directory: what stood in it when it was last read from the beginning. */
struct open_dir {
	pthread_mutex_t lock;
	struct sbx_listing *listing;
};

static void add_listed(const char *name, mode_t mode, void *data)
{
	struct sbx_listing **l = data;

	if (*l && sbx_listing_add(*l, name, mode, 0) < 0) {
		sbx_listing_unref(*l);
		*l = NULL;
	}
}

static int take_listing(struct sbx_controls *c, const struct sbx_control_node *dir,
                        struct sbx_listing **ret)
{
	struct sbx_listing *l = sbx_listing_create();
	int r;

	add_listed(".", S_IFDIR, &l);
	add_listed("..", S_IFDIR, &l);
	r = sbx_control_list(c->registry, dir, add_listed, &l);
	if (r >= 0 && !l)
		r = -ENOMEM;
	if (r < 0) {
		sbx_listing_unref(l);
		return r;
	}
	*ret = l;
	return 0;
}

/* As much as fits; where it goes on is its place in the listing. */
static size_t fill(fuse_req_t req, const struct sbx_listing *l, size_t from, char *buf, size_t size,
                   bool plus)
{
	size_t used = 0;

	for (size_t i = from; i < l->n; i++) {
		const char *name = l->names + l->entries[i].name;
		struct stat st = {.st_mode = l->entries[i].type, .st_ino = (ino_t)-1};
		struct fuse_entry_param e = {.attr = st}; /* ino 0: to be looked up when needed */
		size_t len = plus ? fuse_add_direntry_plus(req, buf + used, size - used, name, &e,
		                                           (off_t)i + 1)
		                  : fuse_add_direntry(req, buf + used, size - used, name, &st,
		                                      (off_t)i + 1);

		if (len > size - used)
			break;
		used += len;
	}
	return used;
}

static void list_names(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, bool plus,
                       struct fuse_file_info *fi)
{
	struct open_dir *d = (struct open_dir *)(uintptr_t)fi->fh;
	_cleanup_free_ char *buf = malloc(size);
	struct sbx_listing *l = NULL;
	struct sbx_control_node dir;
	int r = 0;

	if (!node_of(req, ino, &dir))
		return;
	pthread_mutex_lock(&d->lock);
	if (off == 0 || !d->listing)
		r = take_listing(controls_of(req), &dir, &l);
	if (r == 0 && l) {
		sbx_listing_unref(d->listing);
		d->listing = l;
	}
	l = sbx_listing_ref(d->listing);
	pthread_mutex_unlock(&d->lock);
	sbx_control_node_release(&dir);
	if (r == 0 && !buf)
		r = -ENOMEM;
	if (r < 0)
		fuse_reply_err(req, -r);
	else
		fuse_reply_buf(req, buf, fill(req, l, (size_t)off, buf, size, plus));
	sbx_listing_unref(l);
}

static void ctl_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                        struct fuse_file_info *fi)
{
	list_names(req, ino, size, off, false, fi);
}

static void ctl_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                            struct fuse_file_info *fi)
{
	list_names(req, ino, size, off, true, fi);
}

static void open_dir_free(struct open_dir *d)
{
	sbx_listing_unref(d->listing);
	pthread_mutex_destroy(&d->lock);
	free(d);
}

static void ctl_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct open_dir *d = calloc(1, sizeof(*d));

	(void)ino;
	if (!d) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	pthread_mutex_init(&d->lock, NULL);
	fi->fh = (uintptr_t)d;
	if (fuse_reply_open(req, fi) != 0)
		open_dir_free(d);
}

static void ctl_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	open_dir_free((struct open_dir *)(uintptr_t)fi->fh);
	fuse_reply_err(req, 0);
}

/* ---- files ---- */

struct answer {
	struct sbx_pending pending;
	struct sbx_parked parked;
	struct sbx_park *park;
};

static struct answer *answer_of(struct sbx_pending *p)
{
	return sbx_container_of(p, struct answer, pending);
}

static fuse_req_t answer_done(struct sbx_pending *p)
{
	struct answer *a = answer_of(p);
	fuse_req_t req = a->parked.req;

	sbx_park_remove(a->park, &a->parked);
	free(a);
	return req;
}

static void answer_data(struct sbx_pending *p, const void *buf, size_t len)
{
	fuse_reply_buf(answer_done(p), buf, len);
}

static void answer_count(struct sbx_pending *p, size_t n)
{
	fuse_reply_write(answer_done(p), n);
}

static void answer_error(struct sbx_pending *p, int errnum)
{
	fuse_reply_err(answer_done(p), errnum);
}

/* Of a link: its target, which may have any bytes but NUL. */
static void answer_target(struct sbx_pending *p, const void *buf, size_t len)
{
	_cleanup_free_ char *target = strndup(buf, len);
	fuse_req_t req = answer_done(p);

	if (target)
		fuse_reply_readlink(req, target);
	else
		fuse_reply_err(req, ENOMEM);
}

static const struct sbx_pending_impl answer_impl = {
        .data = answer_data,
        .count = answer_count,
        .error = answer_error,
};

static const struct sbx_pending_impl link_impl = {
        .data = answer_target,
        .error = answer_error,
};

static void cancel_answer(struct sbx_parked *parked, bool fatal)
{
	struct answer *a = sbx_container_of(parked, struct answer, parked);

	sbx_pending_cancel(&a->pending, fatal);
}

static struct sbx_pending *owe(fuse_req_t req, size_t size)
{
	struct answer *a = calloc(1, sizeof(*a));

	if (!a) {
		fuse_reply_err(req, ENOMEM);
		return NULL;
	}
	a->pending.impl = &answer_impl;
	a->pending.size = size;
	a->pending.pid = fuse_req_ctx(req)->pid;
	a->park = controls_of(req)->park;
	a->parked.req = req;
	a->parked.cancel = cancel_answer;
	sbx_park_add(a->park, &a->parked);
	return &a->pending;
}

static void ctl_readlink(fuse_req_t req, fuse_ino_t ino)
{
	struct sbx_control_node node;
	struct sbx_pending *p;

	if (!node_of(req, ino, &node))
		return;
	p = owe(req, 0);
	if (p) {
		p->impl = &link_impl;
		sbx_control_readlink(controls_of(req)->registry, &node, p);
	}
	sbx_control_node_release(&node);
}

static struct sbx_control_handle *handle_of(struct fuse_file_info *fi)
{
	return (struct sbx_control_handle *)(uintptr_t)fi->fh;
}

/* COUNT: 1 an open file more, -1 one less. */
static void count_open(struct sbx_controls *controls, fuse_ino_t ino, int count)
{
	struct sbx_control_nodes *t = controls->nodes;
	struct cnode *c;

	pthread_mutex_lock(&t->lock);
	c = cnode_at(t, ino & ~controls->id_bit);
	if (c) {
		c->opens += (unsigned)count;
		if (c->opens == 0)
			c->taken = false;
	}
	pthread_mutex_unlock(&t->lock);
}

static void ctl_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct sbx_controls *controls = controls_of(req);
	struct sbx_control_handle *h;
	struct sbx_control_node node;
	bool constant;
	int r;

	if (!node_of(req, ino, &node))
		return;
	r = sbx_control_open(controls->registry, &node, fi->flags, &h);
	constant = sbx_control_constant(&node);
	sbx_control_node_release(&node);
	if (r < 0) {
		fuse_reply_err(req, -r);
		return;
	}
	fi->fh = (uintptr_t)h;
	fi->direct_io = !constant;
	fi->keep_cache = constant;
	fi->noflush =
	        (fi->flags & O_ACCMODE) == O_RDONLY; /* only what was written can be unfinished */
	count_open(controls, ino, 1);
	if (fuse_reply_open(req, fi) != 0) {
		count_open(controls, ino, -1);
		sbx_control_release(h);
	}
}

static void ctl_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                     struct fuse_file_info *fi)
{
	struct sbx_pending *p = owe(req, size);

	(void)ino;
	if (p)
		sbx_control_read(handle_of(fi), (uint64_t)off, p);
}

static void ctl_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off,
                      struct fuse_file_info *fi)
{
	struct sbx_pending *p = owe(req, size);

	(void)ino;
	if (p)
		sbx_control_write(handle_of(fi), buf, size, (uint64_t)off, p);
}

static void ctl_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct sbx_pending *p = owe(req, 0);

	(void)ino;
	if (p)
		sbx_control_flush(handle_of(fi), p);
}

static void ctl_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	(void)datasync;
	ctl_flush(req, ino, fi);
}

static void ctl_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	count_open(controls_of(req), ino, -1);
	sbx_control_release(handle_of(fi));
	fuse_reply_err(req, 0);
}

/* Of access(2): the kernel leaves it to us where nobody but the owner comes this far. */
static void ctl_access(fuse_req_t req, fuse_ino_t ino, int mask)
{
	struct sbx_control_node node;
	struct stat st;
	int r;

	if (!node_of(req, ino, &node))
		return;
	r = node_stat(controls_of(req), &node, &st);
	if (r == 0 && (mask & ~(int)(st.st_mode >> 6 & 7) || (mask & W_OK && node.item)))
		r = -EACCES;
	sbx_control_node_release(&node);
	fuse_reply_err(req, -r);
}

static void ctl_init(void *userdata, struct fuse_conn_info *conn)
{
	(void)userdata;
	conn->want &= ~(unsigned)(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE |
	                          FUSE_CAP_SPLICE_MOVE | FUSE_CAP_AUTO_INVAL_DATA);
}

const struct fuse_lowlevel_ops sbx_control_ops = {
        .init = ctl_init,
        .lookup = ctl_lookup,
        .forget = ctl_forget,
        .forget_multi = ctl_forget_multi,
        .getattr = ctl_getattr,
        .setattr = ctl_setattr,
        .readlink = ctl_readlink,
        .mknod = ctl_mknod,
        .mkdir = ctl_mkdir,
        .unlink = ctl_unlink,
        .rmdir = ctl_rmdir,
        .rename = ctl_rename,
        .access = ctl_access,
        .open = ctl_open,
        .read = ctl_read,
        .write = ctl_write,
        .flush = ctl_flush,
        .fsync = ctl_fsync,
        .release = ctl_release,
        .opendir = ctl_opendir,
        .releasedir = ctl_releasedir,
        .readdir = ctl_readdir,
        .readdirplus = ctl_readdirplus,
};
