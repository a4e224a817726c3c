/*
 * The control files as a tree: names to nodes and nodes to attributes. Sandboxes and
 * jobs are looked up where they live; everything else is in the table.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/control/control.h"
#include "fs/control/control_impl.h"
#include "fs/control/snapshots.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/strv.h"

#define BLKSIZE (1024 * 1024)

/* Nodes */

void sbx_control_root(struct sbx_control_node *ret)
{
	*ret = (struct sbx_control_node){.row = &sbx_control_root_row};
}

void sbx_control_box_node(struct sbx_box *box, struct sbx_control_node *ret)
{
	*ret = (struct sbx_control_node){.row = &sbx_control_box_row, .box = sbx_box_ref(box)};
}

void sbx_control_mount_node(struct sbx_control_node *ret)
{
	*ret = (struct sbx_control_node){.row = &sbx_control_mount_row};
}

static bool named(const struct sbx_jobrec *job)
{
	const char *name = sbx_job_name(job);

	return name[0] < '0' || name[0] > '9';
}

static bool visible(const struct sbx_control_row *row, const struct sbx_control_node *dir)
{
	return !(row->flags & ROW_NAMED) || (dir->job && named(dir->job));
}

static bool listed(struct sbx_registry *reg, const struct sbx_control_row *row)
{
	if (row->flags & ROW_TRACKED)
		return sbx_registry_settings(reg)->track;
	return !(row->flags & ROW_UNLISTED);
}

/* Lookup */

static int lookup_root(struct sbx_registry *reg, const char *name, struct sbx_control_node *ret)
{
	struct sbx_box *box;
	char *end;

	if (strcmp(name, sbx_control_mount_row.name) == 0) {
		sbx_control_mount_node(ret);
		return 0;
	}
	if (name[0] == '.') {
		uint64_t number = strtoull(name + 1, &end, 10);

		box = name[1] >= '1' && name[1] <= '9' && !*end
		              ? sbx_registry_find_number(reg, number)
		              : NULL;
	} else {
		box = sbx_registry_find(reg, name);
	}
	if (!box)
		return -ENOENT;
	*ret = (struct sbx_control_node){.row = &sbx_control_box_row, .box = box};
	return 0;
}

static int lookup_job(const struct sbx_control_node *dir, const char *name,
                      struct sbx_control_node *ret)
{
	struct sbx_jobrec *job = sbx_job_find(dir->box->jobs, name);

	if (!job)
		return -ENOENT;
	if (strcmp(name, sbx_control_last_row.name) == 0) {
		sbx_job_unref(job);
		*ret = (struct sbx_control_node){.row = &sbx_control_last_row};
	} else {
		*ret = (struct sbx_control_node){.row = &sbx_control_job_row, .job = job};
	}
	ret->box = sbx_box_ref(dir->box);
	return 0;
}

int sbx_control_lookup(struct sbx_registry *reg, const struct sbx_control_node *dir,
                       const char *name, struct sbx_control_node *ret)
{
	if (!dir->row->rows)
		return -ENOTDIR;
	if (dir->row == &sbx_control_root_row)
		return lookup_root(reg, name, ret);
	if (dir->box && !sbx_box_alive(dir->box))
		return -ESTALE;
	if (dir->row->flags & ROW_JOBS)
		return lookup_job(dir, name, ret);
	if (dir->row->flags & (ROW_STATES | ROW_TREE))
		return sbx_snapshots_lookup(reg, dir, name, ret);
	if (dir->row->flags & ROW_RANGES)
		return sbx_diffs_lookup(dir, name, ret);
	for (const struct sbx_control_row *row = dir->row->rows; row->name; row++) {
		if (strcmp(row->name, name) != 0 || !visible(row, dir))
			continue;
		sbx_control_node_copy(dir, ret);
		ret->row = row;
		return 0;
	}
	return -ENOENT;
}

/* Attributes */

static uint64_t text_size(struct sbx_registry *reg, const struct sbx_control_node *node)
{
	struct text text = {0};
	uint64_t size = 0;

	if (node->row->text(reg, node, &text) >= 0)
		size = text.len;
	sbx_control_text_release(&text);
	return size;
}

static uint64_t link_size(const struct sbx_control_node *node)
{
	struct sbx_jobrec *job = sbx_job_find(node->box->jobs, "last");
	uint64_t size = job ? strlen(sbx_job_name(job)) : 0;

	sbx_job_unref(job);
	return size;
}

static uint64_t size_of(struct sbx_registry *reg, const struct sbx_control_node *node)
{
	const struct sbx_control_row *row = node->row;

	if (node->item)
		return node->item->object.size;
	if (S_ISLNK(row->mode))
		return link_size(node);
	if (row->text)
		return text_size(reg, node);
	return row->ops && row->ops->size ? row->ops->size(reg, node) : 0;
}

static struct timespec time_of(struct sbx_registry *reg, const struct sbx_control_node *node)
{
	const struct sbx_control_row *row = node->row;
	bool of_job = node->job || row->ops == &sbx_control_stream_ops ||
	              row->text == sbx_control_text_status;
	struct sbx_jobrec *job = of_job ? sbx_control_job(node) : NULL;
	int64_t ns;

	if (node->item)
		ns = node->item->time_ns;
	else if (job)
		ns = sbx_job_time_ns(job);
	else if (node->box)
		ns = node->box->sandbox->created_ms * 1000000;
	else
		ns = sbx_registry_time_ms(reg) * 1000000;
	sbx_job_unref(job);
	return (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
}

int sbx_control_getattr(struct sbx_registry *reg, const struct sbx_control_node *node,
                        struct stat *st)
{
	if (node->buffer) {
		sbx_buffer_stat(node->buffer, st);
		st->st_blksize = BLKSIZE;
		return 0;
	}
	memset(st, 0, sizeof(*st));
	st->st_mode = node->row->mode;
	st->st_nlink = S_ISDIR(st->st_mode) ? 2 : 1;
	st->st_size = S_ISDIR(st->st_mode) ? 0 : (off_t)size_of(reg, node);
	st->st_blocks = (st->st_size + 511) / 512;
	st->st_blksize = BLKSIZE;
	st->st_mtim = st->st_ctim = st->st_atim = time_of(reg, node);
	return 0;
}

bool sbx_control_is_dir(const struct sbx_control_node *node)
{
	return S_ISDIR(node->row->mode);
}

bool sbx_control_waits(const struct sbx_control_node *node)
{
	return node->row->flags & ROW_WAITS;
}

bool sbx_control_steady(const struct sbx_control_node *node)
{
	const struct sbx_control_row *row = node->row;

	if (node->item)
		return true;
	/* jobs/ changes with its jobs; what waits is of size 0. */
	if (S_ISDIR(row->mode))
		return !node->job && !(row->flags & ROW_JOBS);
	return row->flags & ROW_WAITS;
}

bool sbx_control_kept(const struct sbx_control_node *node)
{
	if (node->item)
		return node->item->kept;
	return !node->job && !node->buffer && !sbx_control_waits(node);
}

bool sbx_control_constant(const struct sbx_control_node *node)
{
	return node->row->ops == &sbx_control_content_ops;
}

/* Listing */

struct names {
	struct sbx_strings list;
	int code;
};

static void names_add(struct names *names, const char *name)
{
	const int r = sbx_strings_add(&names->list, name);

	names->code = r ? r : names->code;
}

static void add_box(struct sbx_box *box, void *data)
{
	names_add(data, box->name);
}

static void add_job(struct sbx_jobrec *job, void *data)
{
	names_add(data, sbx_job_name(job));
}

/* Names are gathered first, since the registry or the table is locked meanwhile. */
static int list_dynamic(struct sbx_registry *reg, const struct sbx_control_node *dir,
                        void (*fn)(const char *name, mode_t mode, void *data), void *data)
{
	struct names names = {0};
	struct sbx_jobrec *last = NULL;

	if (dir->row == &sbx_control_root_row) {
		fn(sbx_control_mount_row.name, sbx_control_mount_row.mode, data);
		sbx_registry_walk(reg, add_box, &names);
	} else {
		sbx_jobs_walk(dir->box->jobs, add_job, &names);
		last = sbx_job_find(dir->box->jobs, sbx_control_last_row.name);
		if (last)
			fn(sbx_control_last_row.name, sbx_control_last_row.mode, data);
		sbx_job_unref(last);
	}
	for (size_t i = 0; i < names.list.n; i++)
		fn(names.list.items[i], sbx_control_box_row.mode, data);
	sbx_strings_release(&names.list);
	return names.code;
}

int sbx_control_list(struct sbx_registry *reg, const struct sbx_control_node *dir,
                     void (*fn)(const char *name, mode_t mode, void *data), void *data)
{
	if (!dir->row->rows)
		return -ENOTDIR;
	if (dir->row == &sbx_control_root_row || dir->row->flags & ROW_JOBS)
		return list_dynamic(reg, dir, fn, data);
	if (dir->row->flags & (ROW_STATES | ROW_TREE))
		return sbx_snapshots_list(dir, fn, data);
	for (const struct sbx_control_row *row = dir->row->rows; row->name; row++)
		if (listed(reg, row) && visible(row, dir))
			fn(row->name, row->mode, data);
	return 0;
}

void sbx_control_readlink(struct sbx_registry *reg, const struct sbx_control_node *node,
                          struct sbx_pending *p)
{
	struct sbx_jobrec *job;

	(void)reg;
	if (!S_ISLNK(node->row->mode)) {
		sbx_pending_error(p, EINVAL);
		return;
	}
	if (node->item) {
		sbx_snapshots_readlink(node, p);
		return;
	}
	job = sbx_job_find(node->box->jobs, sbx_control_last_row.name);
	if (job)
		sbx_pending_data(p, sbx_job_name(job), strlen(sbx_job_name(job)));
	else
		sbx_pending_error(p, ENOENT);
	sbx_job_unref(job);
}

/* Changes */

static int refuse(struct sbx_registry *reg, const struct sbx_control_node *dir,
                  const struct sbx_error *err)
{
	sbx_error_store(reg, dir->box, err);
	return -err->code;
}

int sbx_control_mkdir(struct sbx_registry *reg, const struct sbx_control_node *dir,
                      const char *name, struct sbx_control_node *ret)
{
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_jobrec *job;

	if (!(dir->row->flags & ROW_JOBS)) {
		sbx_fail(&err, EPERM,
		         "among the control files, directories are made in jobs/ only");
		return refuse(reg, dir, &err);
	}
	if (!sbx_box_alive(dir->box))
		return -ESTALE;
	if (sbx_job_prepare(dir->box->jobs, name, &job, &err) < 0)
		return refuse(reg, dir, &err);
	*ret = (struct sbx_control_node){
	        .row = &sbx_control_job_row, .box = sbx_box_ref(dir->box), .job = job};
	return 0;
}

int sbx_control_rmdir(struct sbx_registry *reg, const struct sbx_control_node *dir,
                      const char *name)
{
	struct sbx_error err = SBX_ERROR_INIT;

	/* Where controls are listed it does nothing, because rm -rf of a sandbox would stop
	 * half-way. */
	if (!(dir->row->flags & ROW_JOBS) && sbx_registry_settings(reg)->ctl_listed)
		return 0;
	if (!(dir->row->flags & ROW_JOBS)) {
		sbx_fail(&err, EPERM, "%s is one of the controls: it cannot be removed", name);
		return refuse(reg, dir, &err);
	}
	return sbx_job_remove(dir->box->jobs, name, &err) < 0 ? refuse(reg, dir, &err) : 0;
}
