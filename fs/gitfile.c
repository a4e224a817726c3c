/*
 * The file .git in the root of a git sandbox. Host git goes by what it says, so it is the daemon's: commands can do
 * what they like to the tree's own without being heard of here. Like the control directory it resolves always and is
 * not listed: what removes all that it finds listed (rm -rf) must not fail at it.
 */
#include <errno.h>
#include <string.h>

#include "fs/workspace.h"

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
