/*
 * A sandbox "a" and its control files, for tests that use them as clients do.
 *
 * Paths: "exec" is in the sandbox's controls, "/list" in the mount's.
 */
#ifndef SANDBOXFS_TESTS_CONTROL_FIXTURE_H
#define SANDBOXFS_TESTS_CONTROL_FIXTURE_H

#include "fs/control/control.h"
#include "tests/lib/registry_fixture.h"

extern struct registry_fixture registry_fixture;
extern struct sbx_box *box;

/* For cmocka. */
int set_up(void **state); /* in memory */
int tear_down(void **state);

int find(const char *path, struct sbx_control_node *ret);
int try_open(const char *path, int flags, struct sbx_control_handle **ret);
struct sbx_control_handle *must_open(const char *path, int flags);
/* The count, or a negative errno. */
int write_bytes(struct sbx_control_handle *h, const char *data, size_t len);
int write_text(struct sbx_control_handle *h, const char *text);
int flush(struct sbx_control_handle *h);
/* What one read gives; malloc'd. NULL: an error, in *errnum. */
char *read_once(struct sbx_control_handle *h, size_t size, uint64_t off, int *errnum);
void assert_read(struct sbx_control_handle *h, const char *expected);
/* As `cat PATH`; malloc'd. */
char *cat(const char *path);
/* Also that it is as long as its attributes say. */
void assert_cat(const char *path, const char *expected);
void assert_cat_begins(const char *path, const char *expected);
/* As `printf TEXT > PATH`: 0, or the first error of write and close. */
int put(const char *path, const char *text);
void assert_error(const char *path, const char *expected);

struct listing {
	char names[1024];
};

void list_name(const char *name, mode_t mode, void *data); /* DATA is a struct listing */
void assert_list(const char *path, const char *expected);

/* A write in the background. */
struct writing {
	struct answer a;
	struct sbx_control_handle *h;
};

void write_begin(struct writing *w, struct sbx_control_handle *h, const char *text);
int write_end(struct writing *w);

#endif
