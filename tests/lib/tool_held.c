/*
 * Files of the tree of `tool coherence` that the host keeps open: whatever becomes of their names,
 * they are what was opened. What is read by a descriptor may be some seconds old. SBX_FOLLOWED=0:
 * whoever has a file open may lose sight of it when a job moves or replaces it, and then nothing is
 * said of it any more.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sandboxfs/cleanup.h"
#include "tool.h"
#include "tool_tree.h"

#define HELD   8
#define OLD_NS (INT64_C(60) * 1000000000)

struct held {
	unsigned id; /* 0: none */
	int fd;
	bool named;
	bool moved;         /* by a job */
	int64_t changed_ns; /* by name */
	size_t size;
	unsigned char data[CONTENT_MAX];
};

static struct held held[HELD];
static unsigned next;

void held_open(const char *path, unsigned id, const unsigned char *data, size_t size)
{
	struct held *h = &held[next++ % HELD];

	if (h->id)
		close(h->fd);
	h->id = id;
	h->fd = open(path, O_RDWR | O_CLOEXEC);
	h->named = true;
	h->moved = false;
	h->changed_ns = tool_now_ns();
	h->size = size;
	memcpy(h->data, data, size);
	if (h->fd < 0)
		tool_die("%s", path);
}

void held_renew(void)
{
	for (int i = 0; i < HELD; i++)
		held[i].named = false;
}

void held_follow(unsigned id, const unsigned char *data, size_t size)
{
	for (int i = 0; i < HELD; i++) {
		struct held *h = &held[i];

		if (!h->id || h->id != id)
			continue;
		h->named = true;
		if (h->size == size && memcmp(h->data, data, size) == 0)
			continue;
		h->changed_ns = tool_now_ns();
		h->size = size;
		memcpy(h->data, data, size);
	}
}

/* Whether nothing is said of H any more. */
static bool is_left(const struct held *h)
{
	const char *followed = getenv("SBX_FOLLOWED");

	return !h->id || ((!h->named || h->moved) && followed && strcmp(followed, "0") == 0);
}

void held_moved(unsigned id)
{
	for (int i = 0; i < HELD; i++)
		held[i].moved |= held[i].id == id;
}

bool held_write(unsigned i, unsigned origin)
{
	struct held *h = &held[i % HELD];
	unsigned char text[HELD_TEXT];

	if (is_left(h) || h->named)
		return false;
	for (size_t k = 0; k < sizeof(text); k++)
		text[k] = tree_pattern(origin, k);
	if (pwrite(h->fd, text, sizeof(text), 0) != (ssize_t)sizeof(text))
		tool_die("a file without a name cannot be written");
	for (int j = 0; j < HELD; j++) { /* it may be open twice */
		if (held[j].id != h->id)
			continue;
		memcpy(held[j].data, text, sizeof(text));
		held[j].size = held[j].size < sizeof(text) ? sizeof(text) : held[j].size;
	}
	return true;
}

static bool is_right(const struct held *h)
{
	unsigned char buf[CONTENT_MAX + 1];
	const ssize_t n = pread(h->fd, buf, sizeof(buf), 0);

	if (n < 0)
		tree_differs("an open file cannot be read: %s", tool_errno_name(errno));
	return (size_t)n == h->size && memcmp(buf, h->data, h->size) == 0;
}

void held_check(bool await)
{
	for (int i = 0; i < HELD; i++) {
		while (!is_left(&held[i]) && !is_right(&held[i])) {
			if (tool_now_ns() - held[i].changed_ns > OLD_NS)
				tree_differs("an open file %s is not what was opened",
				             held[i].named ? "with a name" : "without a name");
			if (!await)
				break;
			usleep(50000);
		}
	}
}
