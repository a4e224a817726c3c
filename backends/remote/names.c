/*
 * Names are found by their directory's node and their text, so that what is below a directory that
 * was moved needs no change.
 */
#include "backends/remote/names.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "sandboxfs/cleanup.h"

int remote_names_init(struct remote_names *names)
{
	*names = (struct remote_names){0};
	names->last = &names->nodes;
	names->root = remote_names_add(names, 0, S_IFDIR);
	return names->root ? 0 : -ENOMEM;
}

static void free_name(struct remote_index_item *item)
{
	free(sbx_container_of(item, struct remote_name, by_name));
}

void remote_names_release(struct remote_names *names)
{
	for (struct remote_node *node = names->nodes, *next; node; node = next) {
		next = node->next;
		free(node->target);
		free(node);
	}
	remote_index_drain(&names->by_name, free_name);
	free(names->by_ino.slots);
	*names = (struct remote_names){0};
}

struct remote_node *remote_names_add(struct remote_names *names, uint64_t ino, mode_t type)
{
	struct remote_node *node = calloc(1, sizeof(*node));

	/* Room for it in the index is made here, so that to name it cannot fail. */
	if (!node || remote_index_reserve(&names->by_ino)) {
		free(node);
		return NULL;
	}
	node->ino = ino;
	node->type = type & S_IFMT;
	*names->last = node;
	names->last = &node->next;
	names->n++;
	return node;
}

static void index_node(struct remote_names *names, struct remote_node *node)
{
	if (node->indexed || !node->ino || !node->names)
		return;
	remote_index_add(&names->by_ino, &node->by_ino, remote_index_mix(node->ino));
	node->indexed = true;
}

static void unindex_node(struct remote_names *names, struct remote_node *node)
{
	if (node->indexed)
		remote_index_remove(&names->by_ino, &node->by_ino);
	node->indexed = false;
}

/* The last that was given the number has it: a number is used again once its file is gone. */
struct remote_node *remote_names_of_ino(const struct remote_names *names, uint64_t ino)
{
	struct remote_index_item *item = remote_index_first(&names->by_ino, remote_index_mix(ino));

	return item ? sbx_container_of(item, struct remote_node, by_ino) : NULL;
}

struct remote_node *remote_names_next_of_ino(const struct remote_node *node)
{
	struct remote_index_item *item = remote_index_next(&node->by_ino);

	return item ? sbx_container_of(item, struct remote_node, by_ino) : NULL;
}

void remote_names_set_ino(struct remote_names *names, struct remote_node *node, uint64_t ino)
{
	unindex_node(names, node);
	node->ino = ino;
	index_node(names, node);
}

void remote_names_attach(struct remote_names *names, struct remote_name *name,
                         struct remote_node *node)
{
	name->now = node;
	name->empty = false;
	name->next = node->names;
	node->names = name;
	index_node(names, node);
}

void remote_names_detach(struct remote_names *names, struct remote_name *name)
{
	struct remote_node *node = name->now;
	struct remote_name **at = node ? &node->names : NULL;

	while (at && *at != name)
		at = &(*at)->next;
	if (at)
		*at = name->next;
	name->next = NULL;
	name->now = NULL;
	name->empty = true;
	if (node && !node->names)
		unindex_node(names, node);
}

static uint64_t hash_of(const struct remote_node *dir, const char *text, size_t n)
{
	return remote_index_hash((uint64_t)(uintptr_t)dir, text, n);
}

static struct remote_name *find(const struct remote_names *names, const struct remote_node *dir,
                                const char *text, size_t n)
{
	struct remote_index_item *item = remote_index_first(&names->by_name, hash_of(dir, text, n));

	for (; item; item = remote_index_next(item)) {
		struct remote_name *name = sbx_container_of(item, struct remote_name, by_name);

		if (name->dir == dir && strncmp(name->text, text, n) == 0 && !name->text[n])
			return name;
	}
	return NULL;
}

static int find_or_add(struct remote_names *names, struct remote_node *dir, const char *text,
                       size_t n, struct remote_name **ret)
{
	*ret = find(names, dir, text, n);
	if (*ret)
		return 0;
	*ret = calloc(1, sizeof(**ret) + n + 1);
	if (!*ret || remote_index_reserve(&names->by_name)) {
		free(*ret);
		return -ENOMEM;
	}
	memcpy((*ret)->text, text, n);
	(*ret)->dir = dir;
	/* What is in a directory that is born was all mentioned. */
	(*ret)->empty = dir->born;
	remote_index_add(&names->by_name, &(*ret)->by_name, hash_of(dir, text, n));
	return 0;
}

/* The directory at NAME, which there is, because something below it was mentioned. */
static int enter(struct remote_names *names, struct remote_name *name, struct remote_node **ret)
{
	struct remote_node *dir = name->now;

	if (!dir) {
		dir = remote_names_add(names, 0, S_IFDIR);
		if (!dir)
			return -ENOMEM;
		if (!name->empty)
			name->first = dir;
		remote_names_attach(names, name, dir);
	}
	dir->type = S_IFDIR;
	*ret = dir;
	return 0;
}

int remote_names_entry(struct remote_names *names, const char *path, struct remote_name **ret)
{
	struct remote_node *dir = names->root;

	for (;;) {
		const size_t n = strcspn(path, "/");
		int r = find_or_add(names, dir, path, n, ret);

		if (r || !path[n])
			return r;
		r = enter(names, *ret, &dir);
		if (r)
			return r;
		path += n + 1;
	}
}

/* Whether no directory above NAME is gone. */
static bool is_reachable(const struct remote_names *names, const struct remote_name *name)
{
	while (name && name->dir != names->root)
		name = name->dir->names;
	return name != NULL;
}

/* The path of NAME, and REST behind it, which is NULL or not empty. NULL: no memory. */
static char *join(const struct remote_names *names, const struct remote_name *name,
                  const char *rest)
{
	const size_t rest_n = rest ? strlen(rest) + 1 : 0;
	size_t n = rest_n;
	char *path, *at;

	for (const struct remote_name *up = name; up; up = up->dir->names)
		n += strlen(up->text) + (up->dir != names->root);
	path = malloc(n + 1);
	if (!path)
		return NULL;
	at = path + n - rest_n;
	path[n] = '\0';
	if (rest) {
		*at = '/';
		memcpy(at + 1, rest, rest_n - 1);
	}
	for (const struct remote_name *up = name; up; up = up->dir->names) {
		at -= strlen(up->text);
		memcpy(at, up->text, strlen(up->text));
		if (up->dir != names->root)
			*--at = '/';
	}
	return path;
}

int remote_name_path(const struct remote_names *names, const struct remote_name *name, char **ret)
{
	*ret = NULL;
	if (!is_reachable(names, name))
		return 0;
	*ret = join(names, name, NULL);
	return *ret ? 0 : -ENOMEM;
}

static int tell(const struct remote_names *names, const struct remote_name *name, const char *rest,
                int (*fn)(const char *path, void *data), void *data)
{
	_cleanup_free_ char *path = NULL;

	if (!is_reachable(names, name))
		return 0;
	path = join(names, name, rest);
	return path ? fn(path, data) : -ENOMEM;
}

int remote_names_where(const struct remote_names *names, const char *path,
                       int (*fn)(const char *path, void *data), void *data)
{
	const struct remote_node *node = names->root;
	const char *rest = path;
	int r = 0;

	while (*rest) {
		const size_t n = strcspn(rest, "/");
		const struct remote_name *name = find(names, node, rest, n);

		if (!name)
			return node == names->root ? fn(rest, data)
			                           : tell(names, node->names, rest, fn, data);
		node = name->first;
		if (!node)
			return 0;
		rest += n + (rest[n] != '\0');
	}
	for (const struct remote_name *name = node->names; name && !r; name = name->next)
		r = tell(names, name, NULL, fn, data);
	return r;
}
