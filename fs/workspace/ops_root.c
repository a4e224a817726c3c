/*
 * The top of the mount, and lookup everywhere: the texts, the link to the mount's controls, the
 * sandboxes, and in each sandbox the link to its controls, the aliases and the .git of its root,
 * in front of the user's files.
 *
 * The .git of a sandbox's root is the daemon's, because host git goes by what it says; commands
 * may change the tree's own, and no lookup here reads it. Like the control directory it always
 * resolves and is not listed: rm -rf removes all that it finds listed, and must not fail at it.
 *
 * mkdir, rmdir and rename at the top make, tear down and rename sandboxes. Their answers are
 * deferred, because the registry answers on the event loop thread.
 */
#include "fs/workspace/ops_root.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "fs/control/control.h"
#include "fs/control/ops.h"
#include "fs/fuse/session.h"
#include "fs/sandbox/backend_work.h"
#include "fs/workspace/gate.h"
#include "fs/workspace/kernel_cache.h"
#include "fs/workspace/workspace.h"
#include "sandboxfs/away.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/loop.h"
#include "sandboxfs/mitigations.h"
#include "sandboxfs/pool.h"

const char *ws_gitfile(const struct sbx_node *node)
{
	return sbx_sandbox_gitfile(sbx_node_box(node)->sandbox);
}

bool ws_is_gitfile(const struct sbx_node *dir, const char *name)
{
	return sbx_node_kind(dir) == SBX_NODE_BOX && strcmp(name, ".git") == 0 && ws_gitfile(dir);
}

void ws_reply_text(fuse_req_t req, const char *text, size_t size, off_t off)
{
	size_t len = strlen(text);
	size_t at = (size_t)off < len ? (size_t)off : len;

	fuse_reply_buf(req, text + at, len - at < size ? len - at : size);
}

static int gitfile_refused(struct sbx_error *err)
{
	return sbx_fail(err, EPERM,
	                ".git leads host git to the sandbox's branch; it cannot be changed");
}

/* A parked lookup of .git. */
struct guarding {
	struct sbx_pending pending;
	struct sbx_workspace *ws;
	struct sbx_node *dir;
	struct sbx_error err;
	int result;
};

/* [loop] */
static void guarded(void *data)
{
	struct guarding *g = data;

	sbx_deferred_remove(g->ws->deferred, &g->pending);
	if (g->result)
		ws_refuse(g->pending.req, sbx_node_box(g->dir), &g->err);
	else
		ws_reply_lookup(g->pending.req, g->dir, ".git");
	sbx_node_put(g->ws->inodes, g->dir);
	free(g);
}

/* [lane] */
static void guard(void *data)
{
	struct guarding *g = data;

	g->result = sbx_sandbox_guard(sbx_node_box(g->dir)->sandbox, &g->err);
	sbx_loop_post(sbx_registry_loop(g->ws->registry), guarded, g);
}

/*
 * Answers a lookup of .git in DIR, which it puts, once what host git would run is seen to; refuses
 * it where that cannot be.
 */
static void guard_gitfile(fuse_req_t req, struct sbx_node *dir)
{
	struct sbx_workspace *ws = ws_of(req);
	struct guarding *g = calloc(1, sizeof(*g));

	if (!g) {
		sbx_node_put(ws->inodes, dir);
		ws_reply(req, -ENOMEM);
		return;
	}
	g->ws = ws;
	g->dir = dir;
	sbx_deferred_add(ws->deferred, req, &g->pending);
	sbx_pool_submit(sbx_registry_lane(ws->registry), guard, g);
}

void ws_reply(fuse_req_t req, int r)
{
	fuse_reply_err(req, -r);
}

void ws_refuse(fuse_req_t req, struct sbx_box *box, const struct sbx_error *err)
{
	const struct sbx_denial_report denied = {.kind = SBX_DENIED_PATH, .what = err->text};

	sbx_error_store(ws_of(req)->registry, box, err);
	if (box && (err->code == EACCES || err->code == EPERM))
		sbx_denials_add(box->denials, &denied);
	fuse_reply_err(req, err->code);
}

void ws_answer(fuse_req_t req, struct sbx_box *box, int r, const struct sbx_error *err)
{
	if (r < 0 && err->code)
		ws_refuse(req, box, err);
	else
		ws_reply(req, r);
}

void ws_unreached(fuse_req_t req, struct sbx_node *node, int r, bool by_name)
{
	struct sbx_workspace *ws = ws_of(req);
	const bool nameless = sbx_node_nameless(ws->inodes, node);
	struct sbx_inode_stats stats;
	struct sbx_error err;

	if (r != -ESTALE || !sbx_node_box(node) || (by_name && !nameless)) {
		ws_reply(req, r);
		return;
	}
	sbx_inodes_stats(ws->inodes, &stats);
	if (nameless)
		sbx_fail(&err, ESTALE,
		         "more files that have been removed are open than descriptors are kept for "
		         "them: %u, a third of what ulimit -Hn allows the daemon; this one is lost",
		         stats.max_fds);
	else
		sbx_fail(&err, ESTALE,
		         "a command has moved, replaced or removed this file, and it was none of "
		         "the "
		         "last %u that were used (a third of what ulimit -Hn allows the daemon)",
		         stats.max_fds);
	ws_refuse(req, sbx_node_box(node), &err);
}

struct sbx_node *ws_node(fuse_req_t req, fuse_ino_t ino)
{
	struct sbx_workspace *ws = ws_of(req);
	struct sbx_node *node;
	int r = sbx_node_get(ws->inodes, ino, &node);

	if (r == 0)
		return node;
	ws_reply(req, r);
	return NULL;
}

struct sbx_node *ws_parent(fuse_req_t req, fuse_ino_t ino, const char *name, struct sbx_fd **ret)
{
	struct sbx_workspace *ws = ws_of(req);
	struct sbx_node *node = ws_node(req, ino);
	struct sbx_error err;
	int r;

	if (!node)
		return NULL;
	if (sbx_node_kind(node) != SBX_NODE_BOX && sbx_node_kind(node) != SBX_NODE_FILE) {
		sbx_fail(&err, EPERM, "only sandboxes stand at the top: mkdir %s makes one", name);
		sbx_node_put(ws->inodes, node);
		ws_refuse(req, NULL, &err);
		return NULL;
	}
	if (ws_is_gitfile(node, name)) {
		gitfile_refused(&err);
		ws_refuse(req, sbx_node_box(node), &err);
		sbx_node_put(ws->inodes, node);
		return NULL;
	}
	r = sbx_node_fd(ws->inodes, node, SBX_FD_PATH, ret);
	if (r == 0)
		return node;
	sbx_node_put(ws->inodes, node);
	ws_reply(req, r);
	return NULL;
}

struct sbx_node *ws_dir(fuse_req_t req, fuse_ino_t ino, const char *name, struct sbx_fd **ret)
{
	struct sbx_node *node = ws_parent(req, ino, name, ret);

	if (node)
		ws_edited(node);
	return node;
}

void ws_edited(const struct sbx_node *node)
{
	struct sbx_box *box = sbx_node_box(node);

	sbx_sandbox_before_write(box->sandbox, -1, NULL);
	sbx_box_edited(box);
}

bool ws_make_room(struct sbx_workspace *ws, struct sbx_box *box, int r, bool *last)
{
	if ((r != -ENOSPC && r != -EDQUOT) || *last)
		return false;
	/* Its turn is held, and nobody waits with that. */
	if (sbx_is_away(box->sandbox))
		return false;
	if (sbx_sandbox_make_room(box->sandbox))
		return true;
	sbx_inodes_await_room(ws->inodes, box);
	*last = true;
	return true;
}

void ws_put(struct sbx_workspace *ws, struct sbx_node *node, struct sbx_fd *fd)
{
	sbx_fd_put(ws->inodes, fd);
	sbx_node_put(ws->inodes, node);
}

void ws_entry(struct sbx_workspace *ws, struct sbx_node *node, const struct stat *st,
              struct fuse_entry_param *e)
{
	*e = (struct fuse_entry_param){
	        .ino = sbx_node_id(node),
	        .generation = sbx_node_generation(node),
	        .attr = *st,
	};
	ws_hand(ws, node, &e->attr, SBX_ANSWER_LOOKUP, &e->entry_timeout, &e->attr_timeout);
	/* Each use of .git has to be heard of, and opens are not. */
	if (sbx_node_kind(node) == SBX_NODE_GITFILE || sbx_node_steep(node))
		e->entry_timeout = 0;
}

char *ws_special_target(struct sbx_workspace *ws, struct sbx_node *node)
{
	struct sbx_box *box = sbx_node_box(node);
	char *target = NULL;
	int r;

	if (ws->inlined)
		r = asprintf(&target, "%s/%s", ws->settings->ctl_name,
		             sbx_result_names[sbx_node_which(node)]);
	else if (!box)
		r = asprintf(&target, "%s/.mount", ws->controls);
	else if (sbx_node_kind(node) == SBX_NODE_CTL)
		r = asprintf(&target, "%s/.%llu", ws->controls, (unsigned long long)box->number);
	else
		r = asprintf(&target, "%s/.%llu/%s", ws->controls, (unsigned long long)box->number,
		             sbx_result_names[sbx_node_which(node)]);
	return r < 0 ? NULL : target;
}

void ws_special_stat(struct sbx_workspace *ws, struct sbx_node *node, struct stat *st)
{
	const int64_t top_ns = sbx_node_kind(node) == SBX_NODE_ROOT ? atomic_load(&ws->top_ns) : 0;
	const int64_t at = top_ns ? top_ns : ws->mounted_ns;
	struct timespec t = {.tv_sec = at / 1000000000, .tv_nsec = at % 1000000000};

	*st = (struct stat){
	        .st_ino = (1ull << 62) | sbx_node_id(node),
	        .st_nlink = 1,
	        .st_uid = geteuid(),
	        .st_gid = getegid(),
	        .st_blksize = 4096,
	        .st_atim = t,
	        .st_mtim = t,
	        .st_ctim = t,
	};
	switch (sbx_node_kind(node)) {
	case SBX_NODE_ROOT:
		st->st_mode = S_IFDIR | 0755;
		st->st_nlink = 2;
		break;
	case SBX_NODE_TEXT:
		st->st_mode = S_IFREG | 0444;
		st->st_size = (off_t)strlen(sbx_top_files[sbx_node_which(node)].text);
		break;
	case SBX_NODE_GITFILE:
		st->st_mode = S_IFREG | 0444;
		st->st_size = (off_t)strlen(ws_gitfile(node));
		break;
	default: {
		_cleanup_free_ char *target = ws_special_target(ws, node);

		st->st_mode = S_IFLNK | 0777;
		st->st_size = target ? (off_t)strlen(target) : 0;
		break;
	}
	}
}

/* The index of the text NAME at the top of the mount, or -1. */
static int text_index(const char *name)
{
	for (int i = 0; i < SBX_TOP_FILES; i++)
		if (!strcmp(name, sbx_top_files[i].name))
			return i;
	return -1;
}

/* The index of the alias NAME, or -1. */
static int alias_index(const char *name)
{
	for (int i = 0; i < (int)SBX_RESULTS; i++)
		if (!strcmp(name, sbx_result_names[i]))
			return i;
	return -1;
}

/*
 * Whether NAME in DIR is one: it is, whatever the tree has of that name, unless the sandbox was
 * made with it.
 */
static bool has_alias(struct sbx_node *dir, const char *name)
{
	const int alias = sbx_node_kind(dir) == SBX_NODE_BOX ? alias_index(name) : -1;

	return alias >= 0 && !(sbx_node_box(dir)->own_results & 1u << alias);
}

bool ws_is_ctl(struct sbx_workspace *ws, struct sbx_node *dir, const char *name)
{
	switch (sbx_node_kind(dir)) {
	case SBX_NODE_ROOT:
		return !strcmp(name, "ctl");
	case SBX_NODE_BOX:
		return !strcmp(name, ws->settings->ctl_name);
	default:
		return false;
	}
}

bool ws_is_control(struct sbx_workspace *ws, struct sbx_node *dir, const char *name)
{
	return ws_is_ctl(ws, dir, name) || has_alias(dir, name) ||
	       (sbx_node_kind(dir) == SBX_NODE_ROOT && text_index(name) >= 0);
}

static int lookup_special(struct sbx_workspace *ws, enum sbx_node_kind kind, struct sbx_box *box,
                          unsigned which, struct stat *st, struct sbx_node **ret)
{
	int r = sbx_node_special(ws->inodes, kind, box, which, ret);

	if (r < 0)
		return r;
	if (kind != SBX_NODE_BOX) {
		ws_special_stat(ws, *ret, st);
		return 0;
	}
	r = sbx_node_stat(ws->inodes, *ret, st);
	if (r < 0) {
		uint64_t id = sbx_node_id(*ret);

		sbx_node_put(ws->inodes, *ret);
		sbx_node_forget(ws->inodes, id, 1);
	}
	return r;
}

static int lookup_top(struct sbx_workspace *ws, const char *name, struct stat *st,
                      struct sbx_node **ret)
{
	const int text = text_index(name);
	struct sbx_box *box;
	int r;

	if (text >= 0)
		return lookup_special(ws, SBX_NODE_TEXT, NULL, (unsigned)text, st, ret);
	if (!strcmp(name, "ctl"))
		return lookup_special(ws, SBX_NODE_CTL, NULL, 0, st, ret);
	box = sbx_registry_find(ws->registry, name);
	if (!box)
		return -ENOENT;
	if (sbx_is_away(box->sandbox))
		ws_refresh(box);
	r = lookup_special(ws, SBX_NODE_BOX, box, 0, st, ret);
	sbx_box_unref(box);
	return r;
}

int ws_lookup(struct sbx_workspace *ws, struct sbx_node *dir, const char *name, struct stat *st,
              struct sbx_node **ret)
{
	struct sbx_box *box = sbx_node_box(dir);

	if (strlen(name) > NAME_MAX)
		return -ENAMETOOLONG;
	if (sbx_node_kind(dir) == SBX_NODE_ROOT)
		return lookup_top(ws, name, st, ret);
	if (ws_is_ctl(ws, dir, name))
		return lookup_special(ws, SBX_NODE_CTL, box, 0, st, ret);
	if (has_alias(dir, name))
		return sbx_mitigation_off("aliases") &&
		                       sbx_node_lookup(ws->inodes, dir, name, st, ret) == 0
		               ? 0
		               : lookup_special(ws, SBX_NODE_ALIAS, box,
		                                (unsigned)alias_index(name), st, ret);
	if (!box)
		return -ENOTDIR;
	if (ws_is_gitfile(dir, name))
		return lookup_special(ws, SBX_NODE_GITFILE, box, 0, st, ret);
	return sbx_node_lookup(ws->inodes, dir, name, st, ret);
}

/* Controls on this connection: their directory itself, where the other mode has a link to it. */
static void reply_inlined(fuse_req_t req, struct sbx_workspace *ws, struct sbx_node *dir)
{
	struct fuse_entry_param e;
	int r = sbx_controls_entry(ws->nodes, sbx_node_box(dir), &e);

	if (r < 0)
		ws_reply(req, r);
	else if (fuse_reply_entry(req, &e) != 0)
		sbx_controls_forget(ws->nodes, e.ino, 1);
}

void ws_reply_lookup(fuse_req_t req, struct sbx_node *dir, const char *name)
{
	struct sbx_workspace *ws = ws_of(req);
	struct fuse_entry_param e = {0};
	struct sbx_node *node;
	struct stat st;
	uint64_t id;
	int r;

	if (ws->inlined && ws_is_ctl(ws, dir, name)) {
		reply_inlined(req, ws, dir);
		return;
	}
	r = ws_lookup(ws, dir, name, &st, &node);

	if (r == -ENOENT) {
		e.entry_timeout = ws_absent_timeout(ws, dir);
		if (e.entry_timeout > 0 && sbx_node_kind(dir) != SBX_NODE_ROOT) {
			atomic_store(&ws->handed, true);
			fuse_reply_entry(req, &e); /* ino 0: there is none, and that may be kept */
			return;
		}
	}
	if (r < 0) {
		ws_reply(req, r);
		return;
	}
	ws_entry(ws, node, &st, &e);
	id = sbx_node_id(node);
	sbx_node_put(ws->inodes, node);
	if (fuse_reply_entry(req, &e) != 0)
		sbx_node_forget(ws->inodes, id, 1);
}

void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct sbx_workspace *ws = ws_of(req);
	struct sbx_node *dir = ws_node(req, parent);

	if (!dir)
		return;
	if (ws_is_gitfile(dir, name)) {
		guard_gitfile(req, dir);
		return;
	}
	ws_reply_lookup(req, dir, name);
	sbx_node_put(ws->inodes, dir);
}

void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t n)
{
	struct sbx_workspace *ws = ws_of(req);

	sbx_node_forget(ws->inodes, ino, n);
	fuse_reply_none(req);
}

void op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
	struct sbx_workspace *ws = ws_of(req);

	for (size_t i = 0; i < count; i++)
		sbx_node_forget(ws->inodes, forgets[i].ino, forgets[i].nlookup);
	fuse_reply_none(req);
}

#define LOOKS 20 /* fs/fuse/interrupt.h: two seconds */

/* A parked mkdir, rmdir or rename at the top. */
struct change {
	struct sbx_pending pending;
	struct sbx_workspace *ws;
	/* mkdir: what cancels it; stored by the FUSE worker, perhaps after the answer. */
	_Atomic(struct sbx_creation *) creation;
	atomic_int refs;
	bool makes; /* mkdir */
	/* On the loop thread: */
	unsigned looks; /* how often its client was found to be about to end */
	bool answered;
};

static void change_unref(struct change *c)
{
	if (atomic_fetch_sub(&c->refs, 1) == 1)
		free(c);
}

static bool change_answered(struct change *c)
{
	if (c->answered)
		return true;
	c->answered = true;
	sbx_deferred_remove(c->ws->deferred, &c->pending);
	return false;
}

/*
 * Who is to end does so, whatever keeps the sandbox busy: a removal or a new name goes on to its
 * end without him. A creation is taken back, and waited for unless that takes long.
 */
static void cancel_change(struct sbx_pending *p, bool fatal)
{
	struct change *c = sbx_container_of(p, struct change, pending);
	struct sbx_creation *creation = atomic_load(&c->creation);

	if (!fatal)
		return;
	if (creation)
		sbx_registry_cancel(creation);
	if (c->makes && ++c->looks < LOOKS)
		return;
	if (!change_answered(c))
		ws_reply(c->pending.req, -EINTR);
}

static struct change *defer_change(fuse_req_t req, bool makes)
{
	struct sbx_workspace *ws = ws_of(req);
	struct change *c = calloc(1, sizeof(*c));

	if (!c) {
		ws_reply(req, -ENOMEM);
		return NULL;
	}
	c->ws = ws;
	c->makes = makes;
	c->pending.cancel = cancel_change;
	atomic_store(&c->refs, 2);
	sbx_deferred_add(c->ws->deferred, req, &c->pending);
	return c;
}

static void made(int code, struct sbx_box *box, const struct sbx_error *err, void *data)
{
	struct change *c = data;
	fuse_req_t req = c->pending.req;
	struct fuse_entry_param e;
	struct sbx_node *node = NULL;
	struct stat st;
	int r = code;

	(void)err;
	if (change_answered(c)) {
		change_unref(c);
		return;
	}
	if (r == 0)
		r = lookup_special(c->ws, SBX_NODE_BOX, box, 0, &st, &node);
	if (r < 0) {
		ws_reply(req, r);
	} else {
		ws_entry(c->ws, node, &st, &e);
		sbx_node_put(c->ws->inodes, node);
		if (fuse_reply_entry(req, &e) != 0)
			sbx_node_forget(c->ws->inodes, e.ino, 1);
	}
	change_unref(c);
}

void root_mkdir(fuse_req_t req, const char *name)
{
	struct sbx_create_request create = {.name = strdup(name)};
	struct change *c = defer_change(req, true);

	if (c) {
		atomic_store(&c->creation, sbx_registry_make(c->ws->registry, &create, made, c));
		change_unref(c);
	}
	sbx_create_request_release(&create);
}

static void changed(int code, struct sbx_box *box, const struct sbx_error *err, void *data)
{
	struct change *c = data;

	(void)err;
	/* The name of a sandbox is in the absolute links in it, and may soon be another's. */
	if (code == 0 && box && sbx_inodes_renew_links(c->ws->inodes, box))
		ws_look_again(c->ws);
	if (!change_answered(c))
		ws_reply(c->pending.req, code);
	change_unref(c);
}

void root_rmdir(fuse_req_t req, const char *name)
{
	struct change *c = defer_change(req, false);

	if (!c)
		return;
	sbx_registry_teardown(c->ws->registry, name, false, changed, c);
	change_unref(c);
}

void root_rename(fuse_req_t req, const char *name, const char *newname)
{
	struct change *c = defer_change(req, false);

	if (!c)
		return;
	sbx_registry_rename(c->ws->registry, name, newname, changed, c);
	change_unref(c);
}
