#include "tests/lib/control_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "sandboxfs/cleanup.h"

struct registry_fixture registry_fixture;
struct sbx_box *box;

int set_up(void **state)
{
	(void)state;
	registry_fixture_open(&registry_fixture, "memory", NULL);
	registry_fixture_start(&registry_fixture);
	box = registry_fixture_make(&registry_fixture, "a");
	return 0;
}

int tear_down(void **state)
{
	(void)state;
	sbx_box_unref(box);
	registry_fixture_close(&registry_fixture);
	return 0;
}

int find(const char *path, struct sbx_control_node *ret)
{
	struct sbx_control_node dir, node;
	char copy[128], *save = NULL;
	int r = 0;

	snprintf(copy, sizeof(copy), "%s", path);
	if (path[0] == '/')
		sbx_control_mount_node(&dir);
	else
		sbx_control_box_node(box, &dir);
	for (char *word = strtok_r(copy, "/", &save); word; word = strtok_r(NULL, "/", &save)) {
		r = sbx_control_lookup(registry_fixture.registry, &dir, word, &node);
		sbx_control_node_release(&dir);
		if (r < 0)
			return r;
		dir = node;
	}
	*ret = dir;
	return r;
}

int try_open(const char *path, int flags, struct sbx_control_handle **ret)
{
	struct sbx_control_node node;
	int r = find(path, &node);

	if (r < 0)
		return r;
	r = sbx_control_open(registry_fixture.registry, &node, flags, ret);
	sbx_control_node_release(&node);
	return r;
}

struct sbx_control_handle *must_open(const char *path, int flags)
{
	struct sbx_control_handle *h = NULL;

	assert_int_equal(try_open(path, flags, &h), 0);
	return h;
}

int write_bytes(struct sbx_control_handle *h, const char *data, size_t len)
{
	struct answer a;
	int r;

	answer_init(&a, len);
	sbx_control_write(h, data, len, 0, &a.p);
	answer_wait(&a);
	r = a.errnum ? -a.errnum : (int)a.n;
	answer_finish(&a);
	return r;
}

int write_text(struct sbx_control_handle *h, const char *text)
{
	return write_bytes(h, text, strlen(text));
}

int flush(struct sbx_control_handle *h)
{
	struct answer a;
	int r;

	answer_init(&a, 0);
	sbx_control_flush(h, false, &a.p);
	answer_wait(&a);
	r = -a.errnum;
	answer_finish(&a);
	return r;
}

char *read_once(struct sbx_control_handle *h, size_t size, uint64_t off, int *errnum)
{
	struct answer a;
	char *data;

	answer_init(&a, size);
	sbx_control_read(h, off, &a.p);
	answer_wait(&a);
	data = a.data;
	if (errnum)
		*errnum = a.errnum;
	a.data = NULL;
	answer_finish(&a);
	return data;
}

void assert_read(struct sbx_control_handle *h, const char *expected)
{
	_cleanup_free_ char *data = read_once(h, 65536, 0, NULL);

	assert_non_null(data);
	assert_string_equal(data, expected);
}

char *cat(const char *path)
{
	struct sbx_control_handle *h = must_open(path, O_RDONLY);
	char *data = read_once(h, 1 << 20, 0, NULL);

	sbx_control_release(h);
	assert_non_null(data);
	return data;
}

void assert_cat(const char *path, const char *expected)
{
	_cleanup_free_ char *data = cat(path);
	struct sbx_control_node node;
	struct stat st;

	assert_string_equal(data, expected);
	assert_int_equal(find(path, &node), 0);
	assert_int_equal(sbx_control_getattr(registry_fixture.registry, &node, &st), 0);
	assert_int_equal(st.st_size, strlen(expected));
	sbx_control_node_release(&node);
}

void assert_cat_begins(const char *path, const char *expected)
{
	_cleanup_free_ char *data = cat(path);

	assert_int_equal(strncmp(data, expected, strlen(expected)), 0);
}

int put(const char *path, const char *text)
{
	struct sbx_control_handle *h;
	int r = try_open(path, O_WRONLY | O_TRUNC, &h), f;

	if (r < 0)
		return r;
	r = write_text(h, text);
	f = flush(h);
	sbx_control_release(h);
	return r < 0 ? r : f;
}

void assert_error(const char *path, const char *expected)
{
	_cleanup_free_ char *data = cat(path);

	if (!strstr(data, expected))
		fail_msg("%s says: %s", path, data);
}

/* The tree */

void list_name(const char *name, mode_t mode, void *data)
{
	struct listing *l = data;
	size_t len = strlen(l->names);

	assert_true(mode & S_IFMT);
	snprintf(l->names + len, sizeof(l->names) - len, "%s ", name);
}

void assert_list(const char *path, const char *expected)
{
	struct sbx_control_node node;
	struct listing l = {""};

	assert_int_equal(find(path, &node), 0);
	assert_int_equal(sbx_control_list(registry_fixture.registry, &node, list_name, &l), 0);
	assert_string_equal(l.names, expected);
	sbx_control_node_release(&node);
}

void write_begin(struct writing *w, struct sbx_control_handle *h, const char *text)
{
	w->h = h;
	answer_init(&w->a, strlen(text));
	sbx_control_write(h, text, strlen(text), 0, &w->a.p);
}

int write_end(struct writing *w)
{
	int r;

	answer_wait(&w->a);
	r = w->a.errnum ? -w->a.errnum : (int)w->a.n;
	answer_finish(&w->a);
	return r;
}
