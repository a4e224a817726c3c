/*
 * The file .git in the root of a git sandbox. Host git goes by what it says, so it is the daemon's: commands can do
 * what they like to the tree's own without being heard of here. Like the control directory it resolves always and is
 * not listed: what removes all that it finds listed (rm -rf) must not fail at it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs/workspace/workspace.h"
#include "sandboxfs/loop.h"
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

int ws_gitfile_refused(struct sbx_error *err)
{
	return sbx_fail(err, EPERM,
	                ".git leads host git to the sandbox's branch; it cannot be changed");
}

/* A parked lookup of .git. */
struct guarding {
	struct sbx_parked parked;
	struct sbx_workspace *ws;
	struct sbx_node *dir;
	struct sbx_error err;
	int result;
};

static void keep_going(struct sbx_parked *p, bool fatal)
{
	(void)p;
	(void)fatal;
}

/* [loop] */
static void guarded(void *data)
{
	struct guarding *g = data;

	sbx_park_remove(g->ws->park, &g->parked);
	if (g->result)
		ws_refuse(g->parked.req, sbx_node_box(g->dir), &g->err);
	else
		ws_reply_lookup(g->parked.req, g->dir, ".git");
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

void ws_guard_gitfile(fuse_req_t req, struct sbx_node *dir)
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
	g->parked.req = req;
	g->parked.cancel = keep_going;
	sbx_park_add(ws->park, &g->parked);
	sbx_pool_submit(sbx_registry_lane(ws->registry), guard, g);
}
