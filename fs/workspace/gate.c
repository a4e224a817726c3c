/*
 * An operation is a row: what it needs, how it is carried out, and whether it has the turn alone.
 * Where files are never elsewhere, each gate is one comparison.
 *
 * The order: the turn, the question, the operation with what is told of it (changes.h), the answer,
 * the end of the turn. Nobody waits with a turn in his hands.
 */
#include "fs/workspace/gate.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "fs/sandbox/await.h"
#include "fs/workspace/nested_git.h"
#include "fs/workspace/place.h"
#include "fs/workspace/stall.h"
#include "fs/workspace/tree.h"
#include "sandboxfs/away.h"
#include "sandboxfs/cleanup.h"

/* A call at the gate. */
struct passage {
	struct ws_call *call;
	struct sbx_workspace *ws;
	struct sbx_node *node, *other;  /* of call->ino and call->other; references, or NULL */
	struct sbx_box *first, *second; /* whose turns are held, in the order of their numbers */
	bool stalls;
	int refused; /* what is absent has no place to come from: -errno */
	struct ws_absent absent;
};

struct ws_operation {
	bool alone; /* it has the turn to itself */
	/* Whether the call is not about the tree at all, and goes without the turn. Or NULL. */
	bool (*is_free)(const struct passage *p);
	/* Asks for what the call needs, until something is absent. The turn is held. */
	void (*needs)(struct passage *p);
	void (*run)(struct ws_call *c);
};

/* --- questions ---------------------------------------------------------------------------------
 */

/* Names of the host's own repositories are all here. */
static bool is_asked(struct passage *p, struct sbx_node *node)
{
	return !p->stalls && !p->refused && sbx_is_away(sbx_node_box(node)->sandbox) &&
	       !sbx_node_stored(p->ws->inodes, node);
}

/*
 * NEED of the file numbered INO is not here. R: whether its path is known. Who cannot ask for it is
 * refused: what is here in its place has the size of the file, and no contents.
 */
static void stall_for(struct passage *p, struct sbx_box *box, enum sbx_need need, ino_t ino, int r)
{
	p->stalls = r == 0;
	p->refused = r;
	p->absent.box = box;
	p->absent.need = need;
	p->absent.ino = ino;
}

static void ask(struct passage *p, struct sbx_node *node, enum sbx_need need, uint64_t off,
                uint64_t len)
{
	struct sbx_box *box = sbx_node_box(node);
	ino_t ino;
	int r;

	if (!is_asked(p, node))
		return;
	ino = sbx_node_ino(p->ws->inodes, node);
	if (sbx_away_here(box->sandbox, ino, need, off, len))
		return;
	p->absent.off = off;
	p->absent.len = len;
	/* What has changed is asked for of the whole tree, so any name does. A file that has none
	 * any more is told of as it is here. */
	r = need == SBX_NEED_ATTR
	            ? sbx_node_path(p->ws->inodes, node, p->absent.path, sizeof(p->absent.path))
	            : ws_place_of(p->ws, node, p->absent.path);
	if (r == 0 || need != SBX_NEED_ATTR)
		stall_for(p, box, need, ino, r);
}

static void ask_names(struct passage *p, struct sbx_node *dir)
{
	ask(p, dir, SBX_NEED_NAMES, 0, 0);
}

static void ask_data(struct passage *p, struct sbx_node *file)
{
	ask(p, file, SBX_NEED_DATA, 0, 0);
}

/*
 * NAME in DIR goes. A directory goes only when it is empty; of a file with other names, what was
 * changed may be told by this one only.
 */
static void ask_victim(struct passage *p, struct sbx_node *dir, const char *name)
{
	struct sbx_box *box = sbx_node_box(dir);
	enum sbx_need need;
	struct sbx_fd *f;
	struct stat st;
	bool found;

	if (!is_asked(p, dir) || sbx_nested_is(box, name) ||
	    sbx_node_fd(p->ws->inodes, dir, SBX_FD_PATH, &f) < 0)
		return;
	found = fstatat(f->fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
	sbx_fd_put(p->ws->inodes, f);
	if (!found || (!S_ISDIR(st.st_mode) && st.st_nlink == 1))
		return;
	need = S_ISDIR(st.st_mode) ? SBX_NEED_NAMES : SBX_NEED_SENT;
	if (!sbx_away_here(box->sandbox, st.st_ino, need, 0, 0))
		stall_for(p, box, need, st.st_ino, ws_place_in(p->ws, dir, name, p->absent.path));
}

/* --- the passage -------------------------------------------------------------------------------
 */

/* The node of INO, a reference, where its sandbox may be elsewhere; else NULL. */
static struct sbx_node *away_node(struct sbx_workspace *ws, fuse_ino_t ino)
{
	struct sbx_node *node;

	if (ino == 0 || sbx_node_get(ws->inodes, ino, &node) < 0)
		return NULL;
	if ((sbx_node_kind(node) == SBX_NODE_BOX || sbx_node_kind(node) == SBX_NODE_FILE) &&
	    sbx_is_away(sbx_node_box(node)->sandbox))
		return node;
	sbx_node_put(ws->inodes, node);
	return NULL;
}

static void order_boxes(struct passage *p)
{
	struct sbx_box *a = p->node ? sbx_node_box(p->node) : NULL;
	struct sbx_box *b = p->other ? sbx_node_box(p->other) : NULL;

	if (a == b || !b) {
		p->first = a;
	} else if (!a) {
		p->first = b;
	} else {
		p->first = a->number < b->number ? a : b;
		p->second = p->first == a ? b : a;
	}
}

static void take_turn(struct sbx_box *box, bool alone)
{
	if (box && alone)
		pthread_rwlock_wrlock(box->sandbox->turn);
	else if (box)
		pthread_rwlock_rdlock(box->sandbox->turn);
}

static void give_turn(struct sbx_box *box)
{
	if (box)
		pthread_rwlock_unlock(box->sandbox->turn);
}

/* It has lost its last name before it came, or has one by which nobody can be asked. */
static void refuse(fuse_req_t req, const struct passage *p)
{
	struct sbx_error err;

	if (p->refused == -ENAMETOOLONG)
		sbx_fail(&err, ENAMETOOLONG,
		         "it is not here, and its path in the sandbox is longer than the %d bytes "
		         "by which it could be asked for",
		         PATH_MAX - 1);
	else
		sbx_fail(&err, ESTALE,
		         "the file was moved or removed before its contents had come");
	ws_refuse(req, p->absent.box, &err);
}

void ws_pass(struct ws_call *c)
{
	struct passage p = {.call = c, .ws = ws_of(c->req)};
	struct sbx_workspace *ws = p.ws;

	p.node = away_node(ws, c->ino);
	p.other = away_node(ws, c->other);
	if (!p.node || !c->op->is_free || !c->op->is_free(&p))
		order_boxes(&p);
	take_turn(p.first, c->op->alone);
	take_turn(p.second, c->op->alone);
	if (p.first)
		c->op->needs(&p);
	if (!p.stalls && !p.refused)
		c->op->run(c);
	give_turn(p.second);
	give_turn(p.first);
	if (p.stalls)
		ws_stall(c, &p.absent);
	else if (p.refused)
		refuse(c->req, &p);
	sbx_node_put(ws->inodes, p.node);
	sbx_node_put(ws->inodes, p.other);
}

/* --- names: looked up, listed, made ----------------------------------------------------------- */

static bool is_control_name(const struct passage *p)
{
	return ws_is_control(p->ws, p->node, p->call->name) ||
	       ws_is_gitfile(p->node, p->call->name);
}

static void need_dir(struct passage *p)
{
	if (p->node)
		ask_names(p, p->node);
}

/* The .git of a machine is never shown, so it need not be known. */
static void need_lookup(struct passage *p)
{
	if (!sbx_nested_is(sbx_node_box(p->node), p->call->name))
		need_dir(p);
}

static void run_lookup(struct ws_call *c)
{
	op_lookup(c->req, c->ino, c->name);
}

static const struct ws_operation row_lookup = {
        .is_free = is_control_name, .needs = need_lookup, .run = run_lookup};

void gate_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	if (!ws_of(req)->away)
		op_lookup(req, parent, name);
	else
		ws_pass(&(struct ws_call){
		        .op = &row_lookup, .req = req, .ino = parent, .name = name});
}

static void run_opendir(struct ws_call *c)
{
	op_opendir(c->req, c->ino, c->fi);
}

static const struct ws_operation row_opendir = {.needs = need_dir, .run = run_opendir};

void gate_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	/* Where it is not asked for it is answered once, for all. */
	if (!ws_of(req)->away || !ws_of(req)->opendirs)
		op_opendir(req, ino, fi);
	else
		ws_pass(&(struct ws_call){.op = &row_opendir, .req = req, .ino = ino, .fi = fi});
}

static void run_readdir(struct ws_call *c)
{
	op_readdir(c->req, c->ino, c->size, c->off, c->fi);
}

static const struct ws_operation row_readdir = {.needs = need_dir, .run = run_readdir};

void gate_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	if (!ws_of(req)->away)
		op_readdir(req, ino, size, off, fi);
	else
		ws_pass(&(struct ws_call){.op = &row_readdir,
		                          .req = req,
		                          .ino = ino,
		                          .size = size,
		                          .off = off,
		                          .fi = fi});
}

static void run_readdirplus(struct ws_call *c)
{
	op_readdirplus(c->req, c->ino, c->size, c->off, c->fi);
}

static const struct ws_operation row_readdirplus = {.needs = need_dir, .run = run_readdirplus};

void gate_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                      struct fuse_file_info *fi)
{
	if (!ws_of(req)->away)
		op_readdirplus(req, ino, size, off, fi);
	else
		ws_pass(&(struct ws_call){.op = &row_readdirplus,
		                          .req = req,
		                          .ino = ino,
		                          .size = size,
		                          .off = off,
		                          .fi = fi});
}

static void run_mkdir(struct ws_call *c)
{
	op_mkdir(c->req, c->ino, c->name, c->mode);
}

static const struct ws_operation row_mkdir = {.needs = need_dir, .run = run_mkdir};

void gate_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	if (!ws_of(req)->away)
		op_mkdir(req, parent, name, mode);
	else
		ws_pass(&(struct ws_call){
		        .op = &row_mkdir, .req = req, .ino = parent, .name = name, .mode = mode});
}

static void run_mknod(struct ws_call *c)
{
	op_mknod(c->req, c->ino, c->name, c->mode, 0);
}

static const struct ws_operation row_mknod = {.needs = need_dir, .run = run_mknod};

void gate_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
	if (!ws_of(req)->away)
		op_mknod(req, parent, name, mode, rdev);
	else
		ws_pass(&(struct ws_call){
		        .op = &row_mknod, .req = req, .ino = parent, .name = name, .mode = mode});
}

static void run_symlink(struct ws_call *c)
{
	op_symlink(c->req, c->newname, c->ino, c->name);
}

static const struct ws_operation row_symlink = {.needs = need_dir, .run = run_symlink};

void gate_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
	if (!ws_of(req)->away)
		op_symlink(req, target, parent, name);
	else
		ws_pass(&(struct ws_call){.op = &row_symlink,
		                          .req = req,
		                          .ino = parent,
		                          .name = name,
		                          .newname = target});
}

static void run_create(struct ws_call *c)
{
	op_create(c->req, c->ino, c->name, c->mode, c->fi);
}

static const struct ws_operation row_create = {.needs = need_dir, .run = run_create};

void gate_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
                 struct fuse_file_info *fi)
{
	if (!ws_of(req)->away)
		op_create(req, parent, name, mode, fi);
	else
		ws_pass(&(struct ws_call){.op = &row_create,
		                          .req = req,
		                          .ino = parent,
		                          .name = name,
		                          .mode = mode,
		                          .fi = fi});
}

static void need_other_dir(struct passage *p)
{
	if (p->other)
		ask_names(p, p->other);
}

static void run_link(struct ws_call *c)
{
	op_link(c->req, c->ino, c->other, c->name);
}

static const struct ws_operation row_link = {.needs = need_other_dir, .run = run_link};

void gate_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t newparent, const char *newname)
{
	if (!ws_of(req)->away)
		op_link(req, ino, newparent, newname);
	else
		ws_pass(&(struct ws_call){.op = &row_link,
		                          .req = req,
		                          .ino = ino,
		                          .other = newparent,
		                          .name = newname});
}

/* --- names: taken away, moved ------------------------------------------------------------------
 */

static void run_unlink(struct ws_call *c)
{
	op_unlink(c->req, c->ino, c->name);
}

static void need_unlink(struct passage *p)
{
	ask_names(p, p->node);
	ask_victim(p, p->node, p->call->name);
}

static const struct ws_operation row_unlink = {.needs = need_unlink, .run = run_unlink};

void gate_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	if (!ws_of(req)->away)
		op_unlink(req, parent, name);
	else
		ws_pass(&(struct ws_call){
		        .op = &row_unlink, .req = req, .ino = parent, .name = name});
}

static void need_rmdir(struct passage *p)
{
	ask_names(p, p->node);
	ask_victim(p, p->node, p->call->name);
}

static void run_rmdir(struct ws_call *c)
{
	op_rmdir(c->req, c->ino, c->name);
}

static const struct ws_operation row_rmdir = {.needs = need_rmdir, .run = run_rmdir};

void gate_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	if (!ws_of(req)->away)
		op_rmdir(req, parent, name);
	else
		ws_pass(&(struct ws_call){
		        .op = &row_rmdir, .req = req, .ino = parent, .name = name});
}

/* Between two sandboxes nothing is moved. */
static void need_rename(struct passage *p)
{
	if (!p->node || !p->other || p->second)
		return;
	ask_names(p, p->node);
	ask_names(p, p->other);
	if (!(p->call->flags & (RENAME_EXCHANGE | RENAME_NOREPLACE)))
		ask_victim(p, p->other, p->call->newname);
}

static void run_rename(struct ws_call *c)
{
	op_rename(c->req, c->ino, c->name, c->other, c->newname, c->flags);
}

static const struct ws_operation row_rename = {
        .alone = true, .needs = need_rename, .run = run_rename};

void gate_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t newparent,
                 const char *newname, unsigned flags)
{
	if (!ws_of(req)->away)
		op_rename(req, parent, name, newparent, newname, flags);
	else
		ws_pass(&(struct ws_call){.op = &row_rename,
		                          .req = req,
		                          .ino = parent,
		                          .other = newparent,
		                          .name = name,
		                          .newname = newname,
		                          .flags = flags});
}

/* --- attributes --------------------------------------------------------------------------------
 */

struct refresh {
	struct sbx_await await;
	struct sbx_box *box; /* a reference */
};

/* [loop] Whoever needs it asks for it, and is told what is wrong. */
static void refreshed(struct sbx_await *a, int code, const struct sbx_error *err)
{
	struct refresh *r = sbx_container_of(a, struct refresh, await);

	(void)code;
	(void)err;
	__atomic_store_n(&r->box->refreshing, false, __ATOMIC_SEQ_CST);
	sbx_box_unref(r->box);
	free(r);
}

void ws_refresh(struct sbx_box *box)
{
	struct refresh *r;

	if (sbx_away_here(box->sandbox, box->root_ino, SBX_NEED_ATTR, 0, 0) ||
	    __atomic_exchange_n(&box->refreshing, true, __ATOMIC_SEQ_CST))
		return;
	r = calloc(1, sizeof(*r));
	if (!r) {
		__atomic_store_n(&box->refreshing, false, __ATOMIC_SEQ_CST);
		return;
	}
	r->box = sbx_box_ref(box);
	r->await.want = (struct sbx_want){.need = SBX_NEED_ATTR, .path = "", .ino = box->root_ino};
	r->await.done = refreshed;
	sbx_box_await(box, &r->await);
}

/* Every path to the controls goes through a sandbox's root, so nobody waits for that. */
static void need_attr(struct passage *p)
{
	if (sbx_node_kind(p->node) == SBX_NODE_BOX)
		ws_refresh(sbx_node_box(p->node));
	else
		ask(p, p->node, SBX_NEED_ATTR, 0, 0);
}

static void run_getattr(struct ws_call *c)
{
	op_getattr(c->req, c->ino, c->fi);
}

static const struct ws_operation row_getattr = {.needs = need_attr, .run = run_getattr};

void gate_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	if (!ws_of(req)->away)
		op_getattr(req, ino, fi);
	else
		ws_pass(&(struct ws_call){.op = &row_getattr, .req = req, .ino = ino, .fi = fi});
}

/* What is emptied need not come before. */
static void need_setattr(struct passage *p)
{
	if (p->call->flags & FUSE_SET_ATTR_SIZE && p->call->attr->st_size > 0)
		ask_data(p, p->node);
}

static void run_setattr(struct ws_call *c)
{
	op_setattr(c->req, c->ino, c->attr, (int)c->flags, c->fi);
}

static const struct ws_operation row_setattr = {.needs = need_setattr, .run = run_setattr};

void gate_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int set,
                  struct fuse_file_info *fi)
{
	if (!ws_of(req)->away)
		op_setattr(req, ino, attr, set, fi);
	else
		ws_pass(&(struct ws_call){.op = &row_setattr,
		                          .req = req,
		                          .ino = ino,
		                          .attr = attr,
		                          .flags = (unsigned)set,
		                          .fi = fi});
}

/* --- contents ----------------------------------------------------------------------------------
 */

static void need_part(struct passage *p)
{
	ask(p, p->node, SBX_NEED_DATA, (uint64_t)p->call->off, p->call->size);
}

static void need_whole(struct passage *p)
{
	ask_data(p, p->node);
}

static void run_read(struct ws_call *c)
{
	op_read(c->req, c->ino, c->size, c->off, c->fi);
}

static const struct ws_operation row_read = {.needs = need_part, .run = run_read};

void gate_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	if (!ws_of(req)->away)
		op_read(req, ino, size, off, fi);
	else
		ws_pass(&(struct ws_call){.op = &row_read,
		                          .req = req,
		                          .ino = ino,
		                          .size = size,
		                          .off = off,
		                          .fi = fi});
}

static void run_write(struct ws_call *c)
{
	op_write(c->req, c->ino, c->data, c->size, c->off, c->fi);
}

static const struct ws_operation row_write = {.needs = need_whole, .run = run_write};

void gate_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off,
                struct fuse_file_info *fi)
{
	if (!ws_of(req)->away)
		op_write(req, ino, buf, size, off, fi);
	else
		ws_pass(&(struct ws_call){.op = &row_write,
		                          .req = req,
		                          .ino = ino,
		                          .data = buf,
		                          .size = size,
		                          .off = off,
		                          .fi = fi});
}

static void run_fallocate(struct ws_call *c)
{
	op_fallocate(c->req, c->ino, (int)c->flags, c->off, c->to, c->fi);
}

static const struct ws_operation row_fallocate = {.needs = need_whole, .run = run_fallocate};

void gate_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off, off_t len,
                    struct fuse_file_info *fi)
{
	if (!ws_of(req)->away)
		op_fallocate(req, ino, mode, off, len, fi);
	else
		ws_pass(&(struct ws_call){.op = &row_fallocate,
		                          .req = req,
		                          .ino = ino,
		                          .flags = (unsigned)mode,
		                          .off = off,
		                          .to = len,
		                          .fi = fi});
}

/* Both, of which one may be of a sandbox that is not elsewhere. */
static void need_both(struct passage *p)
{
	if (p->node)
		ask_data(p, p->node);
	if (p->other)
		ask_data(p, p->other);
}

static void run_copy_file_range(struct ws_call *c)
{
	op_copy_file_range(c->req, c->ino, c->off, NULL, c->other, c->to, NULL, c->size,
	                   (int)c->flags);
}

static const struct ws_operation row_copy_file_range = {.needs = need_both,
                                                        .run = run_copy_file_range};

void gate_copy_file_range(fuse_req_t req, fuse_ino_t in, off_t in_off, struct fuse_file_info *in_fi,
                          fuse_ino_t out, off_t out_off, struct fuse_file_info *out_fi, size_t len,
                          int flags)
{
	if (!ws_of(req)->away)
		op_copy_file_range(req, in, in_off, in_fi, out, out_off, out_fi, len, flags);
	else
		ws_pass(&(struct ws_call){.op = &row_copy_file_range,
		                          .req = req,
		                          .ino = in,
		                          .other = out,
		                          .off = in_off,
		                          .to = out_off,
		                          .size = len,
		                          .flags = (unsigned)flags});
}

static void run_lseek(struct ws_call *c)
{
	op_lseek(c->req, c->ino, c->off, (int)c->flags, c->fi);
}

static const struct ws_operation row_lseek = {.needs = need_whole, .run = run_lseek};

void gate_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi)
{
	if (!ws_of(req)->away)
		op_lseek(req, ino, off, whence, fi);
	else
		ws_pass(&(struct ws_call){.op = &row_lseek,
		                          .req = req,
		                          .ino = ino,
		                          .off = off,
		                          .flags = (unsigned)whence,
		                          .fi = fi});
}

/* --- to the disk -------------------------------------------------------------------------------
 */

/* Whether REQ, an fsync of INO, is one of what is elsewhere, and was parked. A local disk is no
 * safer place for that. */
static bool flush_away(fuse_req_t req, fuse_ino_t ino)
{
	struct sbx_workspace *ws = ws_of(req);
	struct sbx_node *node = ws->away ? away_node(ws, ino) : NULL;
	bool away = node && !sbx_node_stored(ws->inodes, node);

	if (away)
		ws_stall_flush(req, sbx_node_box(node));
	sbx_node_put(ws->inodes, node);
	return away;
}

void gate_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	if (!flush_away(req, ino))
		op_fsync(req, ino, datasync, fi);
}

void gate_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	if (!flush_away(req, ino))
		op_fsyncdir(req, ino, datasync, fi);
}
