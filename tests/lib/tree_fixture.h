/*
 * A copy of the tree of a machine that is a directory of this host, with a loop and a pool, and a
 * host that asks as the file system would. One at a time; failures end the test.
 */
#ifndef SANDBOXFS_TESTS_TREE_FIXTURE_H
#define SANDBOXFS_TESTS_TREE_FIXTURE_H

#include "backends/remote/tree_impl.h"
#include "tests/lib/remote_stub.h"
#include "tests/lib/scratch.h"

struct tree_touch {
	char *path;
	uint64_t ino, batch;
	bool shaped; /* made, moved or removed */
};

struct tree_fixture {
	struct remote_link link;
	struct remote_tree *tree;
	struct sbx_sandbox sandbox;
	pthread_rwlock_t turn;
	struct sbx_loop *loop;
	pthread_t thread;
	struct sbx_pool *pool;
	int dir, root;
	bool renumbers;
	uint64_t cache_mb;
	/* What the host has changed, as a journal would have it. */
	pthread_mutex_t lock;
	struct tree_touch *touches;
	size_t n_touches;
	uint64_t batch, sent; /* the present one; the last that the machine has */
	atomic_uint replaced, altered, told, awaited;
};
extern struct tree_fixture tf;

/* The machine's tree is scratch "tree", the copy scratch "copy"; connected but empty. */
int tree_setup(void **state);
int tree_teardown(void **state);
/* The copy is closed, and opened by another daemon. It is not connected. */
void tree_close(void);
void tree_open(void);
void tree_connect(void);
/* remote_tree_fail, on the loop; waits for it. */
void tree_fail(int code, const char *text);
/* Runs a command in the machine's tree. */
void at_machine(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
uint64_t ino_of(const char *path);
/* Whether it is here, as it is asked under the turn. */
bool is_here(const char *path, enum sbx_need need);
/* Waits as a caller of the file system does: 0 when it is here, or an errno. */
int wait_for(const char *path, enum sbx_need need);
int wait_for_range(const char *path, uint64_t off, uint64_t len);
/* Names of all directories above PATH, and those in it, then its contents. */
void expect_file(const char *path, const char *text);
/* That it is as in the machine's tree. */
void expect_same(const char *path);
void expect_gone(const char *path);
/* Entries in the directory PATH. */
int count_names(const char *path);
void refresh(bool fill);
/* Asks what has changed; what is answered. */
void ask_changes(struct remote_reply *reply);
/* Takes over what has changed. Whether anything that was seen is another. */
bool take_changes(void);
/* Takes over RECORDS as a manifest that was begun then; '|' stands for NUL. 0 or an errno. */
int take_records(uint64_t begun, const char *records);
/* The same of PATH as it is at the machine, which was sent it. */
void take_sent(const char *path);
/* TEXT, malloc'd, with RECORDS as base64 in place of its '%'. */
char *reply_of(const char *text, const char *records);
/* What the host does, and tells. */
void host_writes(const char *path, const char *text);
void host_removes(const char *path);
void host_moves(const char *from, const char *to);
void host_links(const char *from, const char *to);
void host_makes_dir(const char *path);
void host_changes_mode(const char *path, mode_t mode);
/* The machine knows of all that the host has changed; and it has the contents of PATH. */
void host_is_sent(void);
void host_sent_file(const char *path);

#endif
