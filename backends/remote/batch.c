/* The rest that is to be done when the steps of a plan are: files, links and modes, in their order.
 */
#include "backends/remote/batch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "sandboxfs/cleanup.h"
#include "sandboxfs/grow.h"

/* Adds an item; PATH and TO (may be NULL) are taken over, also on failure. */
static int add_item(struct remote_batch_all *b, enum remote_item_kind kind,
                    struct remote_node *node, char *path, char *to)
{
	if (SBX_GROW(b->items, b->n, b->cap, 16)) {
		free(path);
		free(to);
		return -ENOMEM;
	}
	b->items[b->n++] = (struct remote_item){.kind = kind, .node = node, .path = path, .to = to};
	return 0;
}

static enum remote_item_kind kind_of(const struct remote_node *node)
{
	switch (node->type) {
	case S_IFREG:
	case S_IFLNK:
		return REMOTE_ITEM_FILE;
	case S_IFIFO:
		return REMOTE_ITEM_FIFO;
	default:
		return REMOTE_ITEM_SOCKET;
	}
}

/* The names of a file that is born, but the first, at which it is put. */
static int add_links(struct remote_batch_all *b, struct remote_node *node, const char *path)
{
	int r = 0;

	for (const struct remote_name *name = node->names->next; name && !r; name = name->next) {
		char *from, *to;

		r = remote_name_path(&b->plan.names, name, &to);
		if (r || !to)
			continue;
		from = strdup(path);
		if (from)
			r = add_item(b, REMOTE_ITEM_LINK, node, from, to);
		else
			free(to);
		r = from ? r : -ENOMEM;
	}
	return r;
}

static int add_node(struct remote_batch_all *b, struct remote_node *node)
{
	const bool dir = node->type == S_IFDIR;
	enum remote_item_kind kind = REMOTE_ITEM_STATUS;
	char *path;
	int r;

	if (!node->born && !node->data && !node->status)
		return 0;
	if (node == b->plan.names.root) {
		path = strdup("");
		return path ? add_item(b, kind, node, path, NULL) : -ENOMEM;
	}
	if (!node->names)
		return 0;
	r = remote_name_path(&b->plan.names, node->names, &path);
	if (r || !path)
		return r;
	if (!dir && (node->born || node->data))
		kind = kind_of(node);
	r = add_item(b, kind, node, path, NULL);
	if (!r && node->born && !dir)
		r = add_links(b, node, b->items[b->n - 1].path);
	if (!r && kind == REMOTE_ITEM_FIFO) {
		path = strdup(b->items[b->n - 1].path);
		r = path ? add_item(b, REMOTE_ITEM_STATUS, node, path, NULL) : -ENOMEM;
	}
	return r;
}

static size_t depth_of(const char *path)
{
	size_t n = *path != '\0';

	for (; *path; path++)
		n += *path == '/';
	return n;
}

/* The length of the part of PATH that leads to its directory. */
static size_t dir_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? (size_t)(slash - path) : 0;
}

static int compare_dirs(const char *a, const char *b)
{
	const size_t n = dir_of(a), m = dir_of(b);
	const int r = memcmp(a, b, n < m ? n : m);

	return r || n == m ? r : (n < m ? -1 : 1);
}

/* What is below comes before what is above, because a mode may close a directory. */
static int compare(const void *one, const void *other)
{
	const struct remote_item *a = one, *b = other;
	int r = 0;

	if (a->kind != b->kind)
		return a->kind < b->kind ? -1 : 1;
	if (a->kind == REMOTE_ITEM_FILE)
		r = compare_dirs(a->path, b->path);
	if (a->kind == REMOTE_ITEM_STATUS && depth_of(a->path) != depth_of(b->path))
		return depth_of(a->path) > depth_of(b->path) ? -1 : 1;
	if (!r)
		r = strcmp(a->path, b->path);
	return r || !a->to ? r : strcmp(a->to, b->to);
}

/* Numbers the directories of files, and counts the files that have contents. */
static size_t number_files(struct remote_batch_all *b)
{
	size_t regular = 0;

	for (b->files = 0; b->files < b->n; b->files++) {
		struct remote_item *item = &b->items[b->files];

		if (item->kind != REMOTE_ITEM_FILE)
			break;
		regular += item->node->type == S_IFREG;
		if (b->files == 0)
			continue;
		item->directory = item[-1].directory;
		if (compare_dirs(item[-1].path, item->path) != 0)
			item->directory++;
	}
	return regular;
}

int remote_batch_end(struct remote_batch_all *b)
{
	size_t regular;
	int r = 0;

	remote_plan_end(&b->plan);
	for (struct remote_node *node = b->plan.names.nodes; node && !r; node = node->next)
		r = add_node(b, node);
	if (r)
		return r;
	if (b->n)
		qsort(b->items, b->n, sizeof(*b->items), compare);
	regular = number_files(b);
	b->pub.places = calloc(regular ? regular : 1, sizeof(*b->pub.places));
	if (!b->pub.places)
		return -ENOMEM;
	for (size_t i = 0; i < b->files; i++)
		if (b->items[i].node->type == S_IFREG) {
			b->items[i].place = b->pub.n;
			b->pub.places[b->pub.n++].ino = b->items[i].node->ino;
		}
	if (getrandom(&b->round, sizeof(b->round), GRND_NONBLOCK) != sizeof(b->round))
		b->round = 0;
	return 0;
}

bool remote_batch_moves(const struct remote_batch *pub, uint64_t number, const char **from,
                        const char **to)
{
	const struct remote_batch_all *b = (const struct remote_batch_all *)pub;
	const struct remote_step *step;

	if (!number || number > b->plan.n)
		return false;
	step = &b->plan.steps[number - 1];
	*from = step->path;
	*to = step->to;
	return step->to != NULL;
}

bool remote_batch_is_socket(const struct remote_batch *pub, uint64_t number)
{
	const struct remote_batch_all *b = (const struct remote_batch_all *)pub;

	return number > b->plan.n && number - b->plan.n <= b->n &&
	       b->items[number - b->plan.n - 1].kind == REMOTE_ITEM_SOCKET;
}

void remote_batch_begin_round(struct remote_batch_all *b)
{
	b->at = 0;
	b->round++;
	b->used = 0;
	b->written = false;
	b->steps_number = 0;
	remote_text_release(&b->steps);
	for (size_t i = 0; i < b->n; i++)
		b->items[i].state = REMOTE_ITEM_WAITS;
	for (size_t i = 0; i < b->pub.n; i++)
		b->pub.places[i].put = false;
}

void remote_batch_reset(struct remote_batch_all *b)
{
	for (size_t i = 0; i < b->n; i++) {
		free(b->items[i].path);
		free(b->items[i].to);
	}
	free(b->items);
	b->items = NULL;
	b->n = b->cap = b->files = 0;
	free(b->pub.places);
	b->pub.places = NULL;
	b->pub.n = 0;
	b->ended = false;
	remote_text_release(&b->steps);
	remote_plan_release(&b->plan);
}

void remote_batch_free(struct remote_batch_all *b)
{
	remote_batch_reset(b);
	free(b);
}
