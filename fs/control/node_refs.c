/* References to control nodes, and what tells one from another. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/control/control_impl.h"
#include "fs/control/snapshots.h"

const struct sbx_control_row sbx_control_no_rows[] = {{.name = NULL}};

const struct sbx_control_row sbx_control_root_row = {
        .name = "", .mode = S_IFDIR | 0700, .rows = sbx_control_no_rows};

struct sbx_item *sbx_item_ref(struct sbx_item *item)
{
	if (item)
		atomic_fetch_add(&item->refs, 1);
	return item;
}

void sbx_item_unref(struct sbx_item *item)
{
	if (item && atomic_fetch_sub(&item->refs, 1) == 1)
		free(item);
}

struct sbx_item *sbx_item_create(const char *dir, const char *name, const struct sbx_object *object,
                                 int64_t time_ns)
{
	size_t len = strlen(dir) + strlen(name) + 2;
	struct sbx_item *item = malloc(sizeof(*item) + len);

	if (!item)
		return NULL;
	atomic_init(&item->refs, 1);
	item->kept = false;
	item->time_ns = time_ns;
	item->object = *object;
	snprintf(item->path, len, "%s%s%s", dir, *dir ? "/" : "", name);
	return item;
}

void sbx_control_node_copy(const struct sbx_control_node *from, struct sbx_control_node *ret)
{
	*ret = *from;
	if (ret->box)
		sbx_box_ref(ret->box);
	if (ret->job)
		sbx_job_ref(ret->job);
	sbx_item_ref(ret->item);
	sbx_buffer_ref(ret->buffer);
}

void sbx_control_node_release(struct sbx_control_node *node)
{
	sbx_buffer_unref(node->buffer);
	sbx_item_unref(node->item);
	/* The job before the box: it lives in a table of it. */
	sbx_job_unref(node->job);
	sbx_box_unref(node->box);
	*node = (struct sbx_control_node){0};
}

static bool same_item(const struct sbx_item *a, const struct sbx_item *b)
{
	if (a == b || !a || !b)
		return a == b;
	return strcmp(a->path, b->path) == 0 && strcmp(a->object.id, b->object.id) == 0;
}

bool sbx_control_node_same(const struct sbx_control_node *a, const struct sbx_control_node *b)
{
	return a->row == b->row && a->box == b->box && a->job == b->job && a->buffer == b->buffer &&
	       same_item(a->item, b->item);
}

static uint64_t hash(uint64_t h, const void *data, size_t len)
{
	const unsigned char *c = data;

	while (len--)
		h = (h ^ *c++) * UINT64_C(1099511628211);
	return h;
}

uint64_t sbx_control_ino(const struct sbx_control_node *node)
{
	/* Rows lie where the program was loaded: the distance from one of them does not change. */
	int64_t row = (int64_t)((intptr_t)node->row - (intptr_t)&sbx_control_root_row);
	uint64_t number = node->box ? node->box->number : 0;
	uint64_t h = hash(UINT64_C(14695981039346656037), &row, sizeof(row));

	h = hash(h, &number, sizeof(number));
	if (node->job)
		h = hash(h, sbx_job_name(node->job), strlen(sbx_job_name(node->job)));
	if (node->item)
		h = hash(h, node->item->path, strlen(node->item->path));
	if (node->buffer) {
		number = sbx_buffer_number(node->buffer);
		h = hash(h, &number, sizeof(number));
	}
	return h ? h : 1;
}
