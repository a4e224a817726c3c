/*
 * diff and changes, against what the sandbox was at its creation, and diffs/RANGE between any two
 * of its states: ID is from that snapshot to now, ID1..ID2 from one to the other, and with .changes
 * behind it names alone. (diff/RANGE cannot be, as diff is a file.) jobs/ID/diff and changes are
 * what that job changed.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/control/control_impl.h"
#include "fs/control/generated_file.h"
#include "fs/control/snapshots.h"
#include "fs/sandbox/track.h"

#define NAMES ".changes"

static int diff(const struct sbx_control_node *node, const char *from, const char *to,
                atomic_bool *cancelled, int fd, struct sbx_error *err)
{
	const struct sbx_diff_options options = {
	        .from = from,
	        .to = to,
	        .format = (enum sbx_diff_format)node->row->arg,
	        .cancelled = cancelled,
	};

	return sbx_history_diff(node->box->sandbox, &options, fd, err);
}

static bool available(const struct sbx_control_node *node)
{
	return sbx_has_history(node->box->sandbox);
}

/* diff, changes */

static int make_diff(const struct sbx_control_node *node, atomic_bool *cancelled, int fd,
                     struct sbx_error *err)
{
	return diff(node, "base", NULL, cancelled, fd, err);
}

static int diff_open(struct sbx_control_handle *h, struct sbx_error *err)
{
	return available(&h->node) ? sbx_generated_open(h, make_diff, err)
	                           : sbx_control_absent_ops.open(h, err);
}

const struct control_ops sbx_control_diff_ops = {
        .open = diff_open,
        .release = sbx_generated_release,
        .read = sbx_generated_read,
};

/* jobs/ID/ */

static int make_job_diff(const struct sbx_control_node *node, atomic_bool *cancelled, int fd,
                         struct sbx_error *err)
{
	char from[SBX_REV_MAX], to[SBX_REV_MAX];
	int r = sbx_box_track_marks(node->box, node->job, from, to, err);

	return r < 0 ? r : diff(node, from, to[0] ? to : NULL, cancelled, fd, err);
}

static int job_diff_open(struct sbx_control_handle *h, struct sbx_error *err)
{
	if (!available(&h->node))
		return sbx_control_absent_ops.open(h, err);
	if (!sbx_registry_settings(h->reg)->track)
		return sbx_fail(err, EOPNOTSUPP,
		                "what a command changes is recorded with -o track only");
	return sbx_generated_open(h, make_job_diff, err);
}

const struct control_ops sbx_control_job_diff_ops = {
        .open = job_diff_open,
        .release = sbx_generated_release,
        .read = sbx_generated_read,
};

/* diffs/ */

struct range {
	char from[SBX_REV_MAX], to[SBX_REV_MAX]; /* to "": now */
	bool names;
};

static bool take_rev(char ret[SBX_REV_MAX], const char *name, size_t len)
{
	if (len >= SBX_REV_MAX || memchr(name, ':', len))
		return false;
	memcpy(ret, name, len);
	ret[len] = '\0';
	return sbx_rev_check(ret, NULL) == 0;
}

static bool parse(const char *name, struct range *ret)
{
	size_t len = strlen(name), tail = strlen(NAMES);
	const char *dots;

	ret->names = len > tail && strcmp(name + len - tail, NAMES) == 0;
	if (ret->names)
		len -= tail;
	dots = memmem(name, len, "..", 2);
	ret->to[0] = '\0';
	if (!dots)
		return take_rev(ret->from, name, len);
	return take_rev(ret->from, name, (size_t)(dots - name)) &&
	       take_rev(ret->to, dots + 2, len - (size_t)(dots + 2 - name));
}

/* Or will, once it is asked for. What cannot be browsed is in the list all the same. */
static bool exists(struct sbx_sandbox *sandbox, const char *rev)
{
	struct sbx_object object;
	int r = sbx_history_tree(sandbox, rev, &object, NULL);

	return r >= 0 || r == -EBUSY || (r == -EOPNOTSUPP && sbx_snapshots_know(sandbox, rev));
}

static const struct control_ops range_ops;
static const struct sbx_control_row patch_row = {
        .name = "", .mode = S_IFREG | 0400, .ops = &range_ops, .arg = SBX_DIFF_PATCH};
static const struct sbx_control_row names_row = {
        .name = "", .mode = S_IFREG | 0400, .ops = &range_ops, .arg = SBX_DIFF_NAMES};

int sbx_diffs_lookup(const struct sbx_control_node *dir, const char *name,
                     struct sbx_control_node *ret)
{
	struct sbx_sandbox *sandbox = dir->box->sandbox;
	struct sbx_item *item;
	struct range range;

	if (!available(dir) || !parse(name, &range) || !exists(sandbox, range.from) ||
	    (range.to[0] && !exists(sandbox, range.to)))
		return -ENOENT;
	item = sbx_item_create("", name, &(struct sbx_object){.mode = S_IFREG},
	                       sandbox->created_ms * 1000000);
	if (!item)
		return -ENOMEM;
	*ret = (struct sbx_control_node){
	        .row = range.names ? &names_row : &patch_row,
	        .box = sbx_box_ref(dir->box),
	        .item = item,
	};
	return 0;
}

static int make_range(const struct sbx_control_node *node, atomic_bool *cancelled, int fd,
                      struct sbx_error *err)
{
	struct range range;

	if (!parse(node->item->path, &range))
		return sbx_fail(err, EINVAL, "%.100s is no range of snapshots", node->item->path);
	return diff(node, range.from, range.to[0] ? range.to : NULL, cancelled, fd, err);
}

static int range_open(struct sbx_control_handle *h, struct sbx_error *err)
{
	return sbx_generated_open(h, make_range, err);
}

static const struct control_ops range_ops = {
        .open = range_open,
        .release = sbx_generated_release,
        .read = sbx_generated_read,
};
