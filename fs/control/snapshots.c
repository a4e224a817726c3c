/*
 * snapshots/: each snapshot as a directory, read only, straight from where the backend keeps its
 * objects. Nothing is read before somebody asks for it: a node is a name and the object that it
 * stands for.
 *
 * Files show as read only; directories do not, though they are, so that what cp -r makes of them
 * can be removed again.
 *
 * Links are held to the same rule as those of the sandbox: none leads out of its snapshot.
 */
#include "fs/control/snapshots.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/control/generated_file.h"
#include "fs/sandbox/backend_work.h"
#include "fs/util/symlink.h"
#include "sandboxfs/cleanup.h"

#define TARGET_MAX 4095 /* bytes of a link's target */

static const struct sbx_control_row tree_row = {
        .name = "", .mode = S_IFDIR | 0755, .flags = ROW_TREE, .rows = sbx_control_no_rows};
static const struct sbx_control_row file_row = {
        .name = "", .mode = S_IFREG | 0444, .ops = &sbx_control_content_ops};
static const struct sbx_control_row program_row = {
        .name = "", .mode = S_IFREG | 0555, .ops = &sbx_control_content_ops};
static const struct sbx_control_row link_row = {.name = "", .mode = S_IFLNK | 0777};

static const struct sbx_control_row *row_of(const struct sbx_object *object)
{
	if (S_ISDIR(object->mode))
		return &tree_row;
	if (S_ISLNK(object->mode))
		return &link_row;
	return object->mode & 0100 ? &program_row : &file_row;
}

static int node_new(const struct sbx_control_node *dir, const char *name,
                    const struct sbx_object *object, int64_t time_ns, struct sbx_control_node *ret)
{
	const char *path = dir->item ? dir->item->path : "";
	struct sbx_item *item = sbx_item_create(path, name, object, time_ns);

	if (!item)
		return -ENOMEM;
	*ret = (struct sbx_control_node){
	        .row = row_of(object), .box = sbx_box_ref(dir->box), .item = item};
	return 0;
}

/* snapshots/ itself */

/* The search for the snapshot of a name: the one whose id begins so. */
struct sought {
	const char *name;
	unsigned found;
	bool whole; /* it is all of its id */
	int64_t time_ns;
};

static int seek(const struct sbx_snapshot *snapshot, void *data)
{
	struct sought *s = data;

	if (strncmp(snapshot->id, s->name, strlen(s->name)) == 0) {
		s->found++;
		s->whole = strlen(snapshot->id) == strlen(s->name);
		s->time_ns = snapshot->time_ms * 1000000;
	}
	return 0;
}

bool sbx_snapshots_know(struct sbx_sandbox *sandbox, const char *rev)
{
	struct sought s = {.name = rev};

	return strcmp(rev, "base") == 0 ||
	       (sbx_history_list(sandbox, seek, &s, NULL) >= 0 && s.found == 1);
}

static int lookup_snapshot(struct sbx_registry *reg, const struct sbx_control_node *dir,
                           const char *name, struct sbx_control_node *ret)
{
	struct sbx_error err = SBX_ERROR_INIT, refused = SBX_ERROR_INIT;
	struct sbx_sandbox *sandbox = dir->box->sandbox;
	struct sought s = {.name = name, .time_ns = sandbox->created_ms * 1000000};
	struct sbx_object object;
	int r = strchr(name, ':') ? -ENOENT : sbx_rev_check(name, NULL);

	if (r < 0 || !sbx_has_history(sandbox))
		return -ENOENT;
	if (strcmp(name, "base") == 0)
		s.found = s.whole = 1;
	else
		r = sbx_history_list(sandbox, seek, &s, NULL);
	if (r >= 0 && s.found != 1)
		r = -ENOENT;
	if (r >= 0)
		r = sbx_history_tree(sandbox, name, &object, &err);
	if (r == -EOPNOTSUPP) {
		sbx_fail(&refused, EOPNOTSUPP, "snapshots/%.80s: %s", name, err.text);
		sbx_error_store(reg, dir->box, &refused);
	}
	r = r < 0 ? r : node_new(dir, name, &object, s.time_ns, ret);
	if (r >= 0)
		ret->item->kept = s.whole;
	return r;
}

struct lister {
	void (*fn)(const char *name, mode_t mode, void *data);
	void *data;
};

static int list_snapshot(const struct sbx_snapshot *snapshot, void *data)
{
	struct lister *l = data;

	l->fn(snapshot->id, S_IFDIR, l->data);
	return 0;
}

/* Below a snapshot */

int sbx_snapshots_lookup(struct sbx_registry *reg, const struct sbx_control_node *dir,
                         const char *name, struct sbx_control_node *ret)
{
	struct sbx_object object;
	int r;

	if (!dir->item)
		return lookup_snapshot(reg, dir, name, ret);
	/* A submodule is empty here. */
	if (!dir->item->object.id[0])
		return -ENOENT;
	r = sbx_history_entry(dir->box->sandbox, dir->item->object.id, name, &object);
	r = r < 0 ? r : node_new(dir, name, &object, dir->item->time_ns, ret);
	if (r >= 0)
		ret->item->kept = true;
	return r;
}

static bool has(const struct sbx_control_node *dir, const char *name)
{
	struct sbx_object object;

	return sbx_history_entry(dir->box->sandbox, dir->item->object.id, name, &object) >= 0;
}

bool sbx_control_planted(const struct sbx_control_node *dir)
{
	return dir->item && dir->box && dir->item->object.id[0] && sbx_box_alive(dir->box) &&
	       has(dir, "HEAD") &&
	       (has(dir, "commondir") || (has(dir, "objects") && has(dir, "refs")));
}

static int list_entry(const char *name, const struct sbx_object *object, void *data)
{
	struct lister *l = data;

	/* What no file system can show, a hostile tree may still name. */
	if (*name && strcmp(name, ".") != 0 && strcmp(name, "..") != 0 && !strchr(name, '/'))
		l->fn(name, object->mode & S_IFMT, l->data);
	return 0;
}

int sbx_snapshots_list(const struct sbx_control_node *dir,
                       void (*fn)(const char *name, mode_t mode, void *data), void *data)
{
	struct lister l = {.fn = fn, .data = data};
	int r;

	if (!sbx_box_alive(dir->box))
		return -ESTALE;
	if (dir->item)
		return dir->item->object.id[0]
		               ? sbx_history_entries(dir->box->sandbox, dir->item->object.id,
		                                     list_entry, &l)
		               : 0;
	r = sbx_history_list(dir->box->sandbox, list_snapshot, &l, NULL);
	return r == -EOPNOTSUPP ? 0 : r;
}

/* Files */

static int make_content(const struct sbx_control_node *node, atomic_bool *cancelled, int fd,
                        struct sbx_error *err)
{
	int r = sbx_history_content(node->box->sandbox, node->item->object.id, fd);

	(void)cancelled;
	return r < 0 ? sbx_fail(err, -r, "the content of %.200s cannot be read: %s",
	                        node->item->path, strerror(-r))
	             : 0;
}

static int content_open(struct sbx_control_handle *h, struct sbx_error *err)
{
	return sbx_generated_open(h, make_content, err);
}

const struct control_ops sbx_control_content_ops = {
        .open = content_open,
        .release = sbx_generated_release,
        .read = sbx_generated_read,
};

/* Links */

struct reading_link {
	struct sbx_work work;
	struct sbx_pending *p; /* loop thread; NULL: nobody waits any more */
	struct sbx_control_node node;
	char target[TARGET_MAX + 1];
};

static unsigned depth_of(const char *path)
{
	unsigned n = 0;

	for (; *path; path++)
		n += *path == '/';
	return n - 1; /* the snapshot's own name */
}

static int check_target(const struct reading_link *link, struct sbx_error *err)
{
	if (link->target[0] == '/' ||
	    !sbx_symlink_climbs(link->target, depth_of(link->node.item->path)))
		return sbx_fail(err, EACCES, "a link to %.200s leads out of the snapshot",
		                link->target);
	return 0;
}

/* [pool] */
static int read_target(struct sbx_work *w, struct sbx_error *err)
{
	struct reading_link *link = sbx_container_of(w, struct reading_link, work);
	_cleanup_fd_ int fd = sbx_nameless_file(w->box->registry, TARGET_MAX);
	ssize_t n;
	int r;

	if (fd < 0)
		return sbx_fail(err, -fd, "a link cannot be read: %s", strerror(-fd));
	r = sbx_history_content(w->box->sandbox, link->node.item->object.id, fd);
	if (r < 0)
		return r;
	n = pread(fd, link->target, TARGET_MAX, 0);
	if (n < 0)
		return -errno;
	if (memchr(link->target, '\0', (size_t)n) || n == 0)
		return sbx_fail(err, EINVAL, "the target of the link is no path");
	return check_target(link, err);
}

static void link_read(struct sbx_work *w)
{
	struct reading_link *link = sbx_container_of(w, struct reading_link, work);

	if (w->code < 0)
		sbx_error_store(w->box->registry, w->box, &w->err);
	if (link->p && w->code < 0)
		sbx_pending_error(link->p, -w->code);
	else if (link->p)
		sbx_pending_data(link->p, link->target, strlen(link->target));
	sbx_control_node_release(&link->node);
	free(link);
}

/* Not for other signals: nobody expects EINTR of a path. */
static void link_cancel(struct sbx_pending *p, bool fatal)
{
	struct reading_link *link = p->owner;

	if (!fatal)
		return;
	link->p = NULL;
	atomic_store(&link->work.cancelled, true);
	sbx_pending_error(p, EINTR);
}

void sbx_snapshots_readlink(const struct sbx_control_node *node, struct sbx_pending *p)
{
	struct reading_link *link = calloc(1, sizeof(*link));

	if (!link) {
		sbx_pending_error(p, ENOMEM);
		return;
	}
	link->p = p;
	link->work.run = read_target;
	link->work.done = link_read;
	sbx_control_node_copy(node, &link->node);
	sbx_pending_defer(p, link_cancel, link);
	sbx_box_work(node->box, &link->work);
}
