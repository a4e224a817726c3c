/*
 * Private buffers. One lock guards the table and what is in every buffer, because all of it is
 * short: the longest is a copy of SBX_BUFFER_MAX bytes.
 *
 * A buffer does not hold its sandbox: it knows its directory by number, so that a sandbox is not
 * kept by what somebody left in its ctl. The nodes that name a buffer do, as those of other control
 * files.
 */
#include "fs/control/save_buffer.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fs/control/control_impl.h"
#include "fs/util/nearest.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"
#include "sandboxfs/loop.h"

#define SWEEP_MS (60 * 1000)

struct sbx_buffer {
	atomic_uint refs;
	struct sbx_buffers *table;
	uint64_t number;
	uint64_t dir; /* sbx_control_ino */
	uint64_t box; /* number; 0: MNT/ctl */
	/* All below: the table's lock. */
	struct sbx_buffer *next;
	char *name; /* NULL: none any more */
	unsigned opens;
	uint64_t unused_ns; /* since when, while nobody has it open */
	uid_t uid;
	gid_t gid;
	pid_t maker; /* a thread; 0: not known */
	mode_t mode;
	struct timespec mtime;
	char *data;
	size_t len, cap;
};

struct sbx_buffers {
	pthread_mutex_t lock; /* all below, but the timer */
	struct sbx_buffer *list;
	uint64_t last_number;
	size_t bytes;
	bool waking; /* the timer is armed, or will be */
	struct sbx_loop *loop;
	struct sbx_timer timer; /* loop thread */
};

/* The table */

static void sweep_later(struct sbx_timer *timer);

int sbx_buffers_create(struct sbx_loop *loop, struct sbx_buffers **ret)
{
	struct sbx_buffers *t = calloc(1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	pthread_mutex_init(&t->lock, NULL);
	t->loop = loop;
	t->timer = (struct sbx_timer){.fn = sweep_later, .data = t};
	*ret = t;
	return 0;
}

static void buffer_free(struct sbx_buffer *b)
{
	free(b->name);
	free(b->data);
	free(b);
}

/* The lock is held. */
static void unref(struct sbx_buffer *b)
{
	if (atomic_fetch_sub(&b->refs, 1) != 1)
		return;
	assert(!b->name && !b->opens);
	assert(b->table->bytes >= b->cap);
	b->table->bytes -= b->cap;
	buffer_free(b);
}

/* The lock is held. */
static void unname(struct sbx_buffers *t, struct sbx_buffer *b)
{
	struct sbx_buffer **at = &t->list;

	if (!b->name)
		return;
	while (*at != b)
		at = &(*at)->next;
	*at = b->next;
	free(b->name);
	b->name = NULL;
	unref(b);
}

void sbx_buffers_destroy(struct sbx_buffers *t)
{
	if (!t)
		return;
	if (t->loop)
		sbx_loop_timer_cancel(t->loop, &t->timer);
	while (t->list)
		unname(t, t->list);
	pthread_mutex_destroy(&t->lock);
	free(t);
}

struct sbx_buffer *sbx_buffer_ref(struct sbx_buffer *b)
{
	assert(!b || atomic_load(&b->refs) > 0);
	if (b)
		atomic_fetch_add(&b->refs, 1);
	return b;
}

void sbx_buffer_unref(struct sbx_buffer *b)
{
	struct sbx_buffers *t = b ? b->table : NULL;

	if (!t)
		return;
	pthread_mutex_lock(&t->lock);
	unref(b);
	pthread_mutex_unlock(&t->lock);
}

/* Drops what nobody has had open for KEPT_S. The lock is held. */
static unsigned sweep(struct sbx_buffers *t, uint64_t now_ns, unsigned kept_s)
{
	const uint64_t kept_ns = kept_s * UINT64_C(1000000000);
	unsigned left = 0;

	for (struct sbx_buffer *b = t->list, *next; b; b = next) {
		next = b->next;
		if (!b->opens && now_ns >= b->unused_ns + kept_ns)
			unname(t, b);
		else
			left++;
	}
	return left;
}

unsigned sbx_buffers_sweep(struct sbx_buffers *t, uint64_t now_ns)
{
	unsigned left;

	pthread_mutex_lock(&t->lock);
	left = sweep(t, now_ns, SBX_BUFFER_KEPT_S);
	pthread_mutex_unlock(&t->lock);
	return left;
}

static void sweep_later(struct sbx_timer *timer)
{
	struct sbx_buffers *t = timer->data;

	pthread_mutex_lock(&t->lock);
	t->waking = sweep(t, sbx_now_ns(), SBX_BUFFER_KEPT_S) > 0;
	if (t->waking)
		sbx_loop_timer_set(t->loop, timer, SWEEP_MS);
	pthread_mutex_unlock(&t->lock);
}

/* [loop] */
static void arm(void *data)
{
	struct sbx_buffers *t = data;

	sbx_loop_timer_set(t->loop, &t->timer, SWEEP_MS);
}

void sbx_buffers_drop_box(struct sbx_buffers *t, uint64_t box)
{
	pthread_mutex_lock(&t->lock);
	for (struct sbx_buffer *b = t->list, *next; b; b = next) {
		next = b->next;
		if (b->box == box)
			unname(t, b);
	}
	pthread_mutex_unlock(&t->lock);
}

static const struct control_ops buffer_ops;

/* Names */

/*
 * Of a private buffer. Before they save, vim and its kin make a file beside it, and where that has
 * another mode than the file they write in place instead of renaming the control out of the way: so
 * no control has this mode.
 */
static const struct sbx_control_row buffer_row = {
        .name = "", .mode = S_IFREG | 0700, .ops = &buffer_ops};

static bool takes_buffers(const struct sbx_control_row *row)
{
	return row->rows && row != &sbx_control_root_row &&
	       !(row->flags & (ROW_JOBS | ROW_STATES | ROW_TREE | ROW_RANGES));
}

/*
 * The control that NAME is likely to be a slip of the pen for: what is written to a buffer does
 * nothing, and that must not be taken for success. Temporary files have other signs in their names
 * than letters, or more of them.
 */
static const struct sbx_control_row *meant(const struct sbx_control_row *rows, const char *name)
{
	if (name[strspn(name, "abcdefghijklmnopqrstuvwxyz_")])
		return NULL;
	for (const struct sbx_control_row *row = rows; row->name; row++)
		if (sbx_edits(name, row->name) <= 1)
			return row;
	return NULL;
}

static int check_name(const struct sbx_control_node *dir, const char *name, struct sbx_error *err)
{
	const struct sbx_control_row *row;

	if (!takes_buffers(dir->row))
		return sbx_fail(err, EACCES, "no files are made in this directory of controls");
	row = meant(dir->row->rows, name);
	if (row && strcmp(row->name, name) == 0)
		return sbx_fail(err, EACCES,
		                "there is no %s here; mkdir jobs/NAME makes a job that has one",
		                name);
	if (row)
		return sbx_fail(err, EACCES, "there is no control %s here; is %s meant?", name,
		                row->name);
	return 0;
}

/* The lock is held. */
static struct sbx_buffer *find(struct sbx_buffers *t, uint64_t dir, const char *name)
{
	struct sbx_buffer *b = t->list;

	while (b && !(b->dir == dir && strcmp(b->name, name) == 0))
		b = b->next;
	return b;
}

/* The lock is held. */
static bool mounter_for(struct sbx_buffers *t, uint64_t box, uid_t uid)
{
	unsigned of_box = 0, of_user = 0;

	for (const struct sbx_buffer *b = t->list; b; b = b->next) {
		of_box += b->box == box;
		of_user += b->uid == uid;
	}
	return of_box < SBX_BUFFERS_BOX && of_user < SBX_BUFFERS_USER;
}

static void node_of(const struct sbx_control_node *dir, struct sbx_buffer *b,
                    struct sbx_control_node *ret)
{
	sbx_control_node_copy(dir, ret);
	ret->row = &buffer_row;
	ret->buffer = sbx_buffer_ref(b);
}

static struct sbx_buffer *buffer_new(const struct sbx_control_node *dir, const char *name,
                                     uid_t uid, gid_t gid)
{
	struct sbx_buffer *b = calloc(1, sizeof(*b));

	if (!b)
		return NULL;
	*b = (struct sbx_buffer){
	        .dir = sbx_control_ino(dir),
	        .box = dir->box ? dir->box->number : 0,
	        .name = strdup(name),
	        .unused_ns = sbx_now_ns(),
	        .uid = uid,
	        .gid = gid,
	        .mode = buffer_row.mode,
	};
	clock_gettime(CLOCK_REALTIME, &b->mtime);
	if (!b->name) {
		free(b);
		return NULL;
	}
	atomic_init(&b->refs, 1);
	return b;
}

int sbx_buffers_make(struct sbx_buffers *t, const struct sbx_control_node *dir, const char *name,
                     uid_t uid, gid_t gid, struct sbx_control_node *ret, struct sbx_error *err)
{
	struct sbx_buffer *b;
	bool wake = false;
	int r = check_name(dir, name, err);

	if (r < 0)
		return r;
	b = buffer_new(dir, name, uid, gid);
	if (!b)
		return sbx_no_memory(err);
	pthread_mutex_lock(&t->lock);
	if (!mounter_for(t, b->box, uid))
		sweep(t, sbx_now_ns(), SBX_BUFFER_SPARED_S);
	if (find(t, b->dir, name)) {
		r = sbx_fail(err, EEXIST, "%s exists already", name);
	} else if (!mounter_for(t, b->box, uid)) {
		r = sbx_fail(err, ENOSPC,
		             "too many files beside the controls; remove some, or wait: those that "
		             "nobody uses give way after %d s",
		             SBX_BUFFER_SPARED_S);
	} else {
		b->table = t;
		b->number = ++t->last_number;
		b->next = t->list;
		t->list = b;
		node_of(dir, b, ret);
		wake = t->loop && !t->waking;
		t->waking |= wake;
	}
	pthread_mutex_unlock(&t->lock);
	if (r < 0)
		buffer_free(b);
	if (wake)
		sbx_loop_post(t->loop, arm, t);
	return r;
}

void sbx_buffer_set_maker(struct sbx_buffer *b, pid_t maker)
{
	pthread_mutex_lock(&b->table->lock);
	b->maker = maker;
	pthread_mutex_unlock(&b->table->lock);
}

bool sbx_buffers_made_by(struct sbx_buffers *t, const struct sbx_control_node *dir, pid_t maker)
{
	const uint64_t ino = sbx_control_ino(dir);
	struct sbx_buffer *b;

	pthread_mutex_lock(&t->lock);
	for (b = t->list; b; b = b->next)
		if (b->name && b->dir == ino && maker && b->maker == maker)
			break;
	pthread_mutex_unlock(&t->lock);
	return b;
}

int sbx_buffers_find(struct sbx_buffers *t, const struct sbx_control_node *dir, const char *name,
                     uid_t uid, struct sbx_control_node *ret)
{
	struct sbx_buffer *b;

	pthread_mutex_lock(&t->lock);
	b = t->list && takes_buffers(dir->row) ? find(t, sbx_control_ino(dir), name) : NULL;
	if (b && uid != 0 && uid != b->uid)
		b = NULL;
	if (b)
		node_of(dir, b, ret);
	pthread_mutex_unlock(&t->lock);
	return b ? 0 : -ENOENT;
}

void sbx_buffers_remove(struct sbx_buffers *t, struct sbx_buffer *b)
{
	pthread_mutex_lock(&t->lock);
	unname(t, b);
	pthread_mutex_unlock(&t->lock);
}

int sbx_buffers_rename(struct sbx_buffers *t, struct sbx_buffer *b,
                       const struct sbx_control_node *dir, const char *newname,
                       struct sbx_error *err)
{
	char *name;
	struct sbx_buffer *old;
	int r = check_name(dir, newname, err);

	if (r < 0)
		return r;
	name = strdup(newname);
	if (!name)
		return sbx_no_memory(err);
	pthread_mutex_lock(&t->lock);
	old = find(t, b->dir, newname);
	if (old && old != b)
		unname(t, old);
	if (b->name) {
		free(b->name);
		b->name = name;
	} else {
		r = sbx_fail(err, ENOENT, "it has been removed meanwhile");
		free(name);
	}
	pthread_mutex_unlock(&t->lock);
	return r;
}

/* One buffer */

uint64_t sbx_buffer_number(const struct sbx_buffer *b)
{
	return b->number;
}

void sbx_buffer_stat(struct sbx_buffer *b, struct stat *st)
{
	pthread_mutex_lock(&b->table->lock);
	*st = (struct stat){
	        .st_mode = b->mode,
	        .st_nlink = b->name ? 1 : 0,
	        .st_uid = b->uid,
	        .st_gid = b->gid,
	        .st_size = (off_t)b->len,
	        .st_blocks = (blkcnt_t)(b->len + 511) / 512,
	        .st_atim = b->mtime,
	        .st_mtim = b->mtime,
	        .st_ctim = b->mtime,
	};
	pthread_mutex_unlock(&b->table->lock);
}

void sbx_buffer_chmod(struct sbx_buffer *b, mode_t mode)
{
	pthread_mutex_lock(&b->table->lock);
	b->mode = S_IFREG | (mode & 0777);
	pthread_mutex_unlock(&b->table->lock);
}

void sbx_buffer_chown(struct sbx_buffer *b, uid_t uid, gid_t gid)
{
	pthread_mutex_lock(&b->table->lock);
	if (uid != (uid_t)-1)
		b->uid = uid;
	if (gid != (gid_t)-1)
		b->gid = gid;
	pthread_mutex_unlock(&b->table->lock);
}

void sbx_buffer_set_mtime(struct sbx_buffer *b, struct timespec t)
{
	pthread_mutex_lock(&b->table->lock);
	b->mtime = t;
	pthread_mutex_unlock(&b->table->lock);
}

/* Room for LEN bytes; the lock is held. */
static int grow(struct sbx_buffer *b, uint64_t len, struct sbx_error *err)
{
	struct sbx_buffers *t = b->table;
	size_t cap = b->cap ? b->cap : 4096;
	char *data;

	if (len > SBX_BUFFER_MAX)
		return sbx_fail(err, E2BIG, "a file beside the controls holds at most %d bytes",
		                SBX_BUFFER_MAX);
	while (cap < len)
		cap *= 2;
	if (cap <= b->cap)
		return 0;
	if (t->bytes + cap - b->cap > SBX_BUFFERS_MAX)
		return sbx_fail(err, ENOSPC,
		                "the files beside the controls hold too much together");
	data = realloc(b->data, cap);
	if (!data)
		return sbx_no_memory(err);
	t->bytes += cap - b->cap;
	b->data = data;
	b->cap = cap;
	return 0;
}

/* The lock is held. */
static int resize(struct sbx_buffer *b, uint64_t size, struct sbx_error *err)
{
	int r = grow(b, size, err);

	if (r < 0)
		return r;
	if (size > b->len)
		memset(b->data + b->len, 0, size - b->len);
	b->len = size;
	clock_gettime(CLOCK_REALTIME, &b->mtime);
	return 0;
}

int sbx_buffer_resize(struct sbx_buffer *b, uint64_t size, struct sbx_error *err)
{
	int r;

	pthread_mutex_lock(&b->table->lock);
	r = resize(b, size, err);
	pthread_mutex_unlock(&b->table->lock);
	return r;
}

char *sbx_buffer_content(struct sbx_buffer *b, size_t *len)
{
	char *copy;

	pthread_mutex_lock(&b->table->lock);
	copy = malloc(b->len + 1);
	if (copy && b->len)
		memcpy(copy, b->data, b->len);
	if (copy)
		copy[b->len] = '\0';
	*len = b->len;
	pthread_mutex_unlock(&b->table->lock);
	return copy;
}

/* An open one */

static int buffer_open(struct sbx_control_handle *h, struct sbx_error *err)
{
	struct sbx_buffer *b = h->node.buffer;

	(void)err;
	pthread_mutex_lock(&b->table->lock);
	b->opens++;
	pthread_mutex_unlock(&b->table->lock);
	return 0;
}

static void buffer_release(struct sbx_control_handle *h)
{
	struct sbx_buffer *b = h->node.buffer;

	pthread_mutex_lock(&b->table->lock);
	assert(b->opens > 0);
	b->opens--;
	b->unused_ns = sbx_now_ns();
	pthread_mutex_unlock(&b->table->lock);
}

static void buffer_read(struct sbx_control_handle *h, uint64_t off, struct sbx_pending *p)
{
	size_t len;
	_cleanup_free_ char *data = sbx_buffer_content(h->node.buffer, &len);

	if (!data) {
		sbx_pending_error(p, ENOMEM);
		return;
	}
	if (off > len)
		off = len;
	len -= off;
	sbx_pending_data(p, data + off, len < p->size ? len : p->size);
}

static int buffer_put(struct sbx_control_handle *h, const char *buf, size_t len, uint64_t off,
                      struct sbx_error *err)
{
	struct sbx_buffer *b = h->node.buffer;
	int r = 0;

	pthread_mutex_lock(&b->table->lock);
	if (h->flags & O_APPEND)
		off = b->len;
	if (off > SBX_BUFFER_MAX || off + len > b->len)
		r = resize(b, off > SBX_BUFFER_MAX ? off : off + len, err);
	if (r >= 0 && len) {
		memcpy(b->data + off, buf, len);
		clock_gettime(CLOCK_REALTIME, &b->mtime);
	}
	pthread_mutex_unlock(&b->table->lock);
	return r;
}

static int buffer_truncate(struct sbx_registry *reg, const struct sbx_control_node *node)
{
	struct sbx_error err;

	(void)reg;
	return sbx_buffer_resize(node->buffer, 0, &err);
}

static const struct control_ops buffer_ops = {
        .open = buffer_open,
        .release = buffer_release,
        .read = buffer_read,
        .put = buffer_put,
        .truncate = buffer_truncate,
};
