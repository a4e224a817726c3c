/*
 * The local backend over a source of a given kind, driven as the daemon drives it but for the
 * mount: for tests of what becomes of trees. Failing fails the test. One at a time.
 */
#ifndef SANDBOXFS_TESTS_LOCAL_FIXTURE_H
#define SANDBOXFS_TESTS_LOCAL_FIXTURE_H

#include <stdbool.h>

#include "sandboxfs/backend.h"
#include "tests/lib/spawner_stub.h"

enum fixture_kind { FIXTURE_NONE, FIXTURE_DIR, FIXTURE_GIT };

struct fixture_row {
	const char *label;
	enum fixture_kind kind;
	bool overlaid; /* where this machine can */
};

#define FIXTURE_MAX 8

struct fixture {
	const struct fixture_row *row;
	struct sbx_settings settings;
	struct sbx_host host;
	struct sbx_spawner spawner;
	struct sbx_backend *backend;
	struct sbx_sandbox *found[FIXTURE_MAX]; /* by the last recovery */
	int nfound, fds;
};
extern struct fixture fixture;

struct fixture_test {
	const char *name;
	void (*fn)(void **state);
};

/*
 * Runs each of the N tests over a source of each kind, in a process per kind, without the
 * configuration of whoever runs them; for main.
 */
int fixture_main(const char *group, const struct fixture_test *tests, size_t n);
/* Makes source and backend of ROW, and recovers. */
void fixture_begin(const struct fixture_row *row);
/* Closes what was found and the backend, and removes everything. */
void fixture_end(void);
/* Another backend on the same state: what the last one had open is closed by the caller. */
void fixture_reopen(void);
/* Closes the backend, so that what it is told by can be changed before fixture_reopen. */
void fixture_close(void);
/* The same where the last one, or a child that shared it, did not end by itself. */
void fixture_reopen_killed(void);
struct sbx_sandbox *fixture_found(const char *name);

struct sbx_sandbox *fixture_create(const char *name);
/* Both halves of a teardown, and close. */
void fixture_take_down(struct sbx_sandbox *sb);
/* Fails unless the state directory and the source are as before the first create. */
void fixture_expect_empty(void);

/* Path by which this process and its children see the tree; in a rotating buffer. */
const char *fixture_path(const struct sbx_sandbox *sb);
/* Runs COMMAND (sh) in the tree; it must succeed. */
void fixture_in(struct sbx_sandbox *sb, const char *command);
/* All names in the tree but .git, with types, modes, times, link targets, link counts and contents;
 * malloc'd. */
char *fixture_manifest(struct sbx_sandbox *sb);
/* What the command (sh) prints; it must succeed; malloc'd. */
char *fixture_run(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* The tree, in hexadecimal and with a line end, that `git add -A` makes of what SB holds over the
 * first commit; malloc'd. */
char *fixture_tree(struct sbx_sandbox *sb);
/* Makes the entries of the trash in REPO older. */
void fixture_age_trash(const char *repo, int days);
/* What git ARGS says as host git in the tree, or in the source; it must succeed; malloc'd. */
char *fixture_git(struct sbx_sandbox *sb, const char *args);
char *fixture_git_source(const char *args);

#endif
