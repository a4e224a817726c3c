/* The inode table over a directory of its own, with a sandbox that is nothing but a root. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "fs/sandbox/registry.h"
#include "fs/workspace/inode.h"
#include "tests/lib/plain_box.h"
#include "tests/lib/played_away.h"

static struct sbx_inodes *tab;
static struct plain_box *pb;
static struct sbx_node *top;

static int set_up(void **state)
{
	(void)state;
	pb = plain_box_create();
	if (!pb || sbx_inodes_create(16, &tab) < 0)
		return -1;
	return sbx_node_special(tab, SBX_NODE_BOX, plain_box_get(pb), 0, &top);
}

static int tear_down(void **state)
{
	uint64_t id = sbx_node_id(top);

	(void)state;
	sbx_node_put(tab, top);
	sbx_node_forget(tab, id, 1);
	sbx_inodes_destroy(tab);
	plain_box_destroy(pb);
	return 0;
}

static int root_fd(void)
{
	return plain_box_root(pb);
}

static void put_file(const char *name, const char *text)
{
	int fd = openat(root_fd(), name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), (int)strlen(text));
	close(fd);
}

static struct sbx_node *look_up(struct sbx_node *dir, const char *name)
{
	struct sbx_node *node;
	struct stat st;

	assert_int_equal(sbx_node_lookup(tab, dir, name, &st, &node), 0);
	return node;
}

static void drop(struct sbx_node *node)
{
	uint64_t id = sbx_node_id(node);

	sbx_node_put(tab, node);
	sbx_node_forget(tab, id, 1);
}

static uint64_t nodes(void)
{
	struct sbx_inode_stats s;

	sbx_inodes_stats(tab, &s);
	return s.nodes;
}

static void the_same_file_has_the_same_node(void **state)
{
	struct sbx_node *a, *b;

	(void)state;
	put_file("f", "x");
	assert_int_equal(linkat(root_fd(), "f", root_fd(), "g", 0), 0);
	a = look_up(top, "f");
	b = look_up(top, "g");
	assert_ptr_equal(a, b);
	drop(b);
	drop(a);
}

static ino_t number_of(const char *path)
{
	struct stat st;

	assert_int_equal(fstatat(root_fd(), path, &st, AT_SYMLINK_NOFOLLOW), 0);
	return st.st_ino;
}

/* Again and again: a machine may be slow, and then it is right to say no. */
static bool becomes_fresh(struct sbx_node *dir, const char *name, ino_t ino)
{
	bool fresh = false;

	for (int i = 0; i < 1000 && !fresh; i++) {
		struct sbx_node *node = look_up(dir, name);

		fresh = sbx_node_fresh(tab, dir, name, ino);
		drop(node);
	}
	return fresh;
}

static void what_was_just_looked_up_is_fresh(void **state)
{
	struct sbx_node *dir, *node;
	ino_t ino;

	(void)state;
	assert_int_equal(mkdirat(root_fd(), "d", 0755), 0);
	put_file("d/f", "x");
	ino = number_of("d/f");
	dir = look_up(top, "d");
	assert_false(sbx_node_fresh(tab, dir, "f", ino));
	assert_true(becomes_fresh(dir, "f", ino));
	assert_false(sbx_node_fresh(tab, dir, "f", ino)); /* forgotten */

	node = look_up(dir, "f");
	assert_false(sbx_node_fresh(tab, dir, "g", ino));
	assert_false(sbx_node_fresh(tab, dir, "f", ino + 1));
	sbx_inodes_renewed(tab);
	assert_false(sbx_node_fresh(tab, dir, "f", ino));
	drop(node);
	drop(dir);
}

static void forget_of_the_last_lookup_frees_the_node(void **state)
{
	uint64_t before = nodes(), id;
	struct sbx_node *a;

	(void)state;
	put_file("f", "x");
	a = look_up(top, "f");
	sbx_node_put(tab, look_up(top, "f"));
	id = sbx_node_id(a);
	sbx_node_put(tab, a);
	assert_int_equal(nodes(), before + 1);
	sbx_node_forget(tab, id, 1);
	assert_int_equal(nodes(), before + 1);
	sbx_node_forget(tab, id, 1);
	assert_int_equal(nodes(), before);
	assert_int_equal(sbx_node_get(tab, id, &a), -ESTALE);
}

static void a_guessed_or_old_id_is_stale(void **state)
{
	struct sbx_node *a, *b;
	uint64_t old;

	(void)state;
	assert_int_equal(sbx_node_get(tab, 0, &a), -ESTALE);
	assert_int_equal(sbx_node_get(tab, 4711, &a), -ESTALE);
	assert_int_equal(sbx_node_get(tab, UINT64_MAX, &a), -ESTALE);
	put_file("f", "x");
	a = look_up(top, "f");
	old = sbx_node_id(a);
	drop(a);
	b = look_up(top, "f");
	assert_int_not_equal(sbx_node_id(b), old);
	assert_int_equal(sbx_node_get(tab, old, &a), -ESTALE);
	drop(b);
}

static void a_node_of_a_dead_sandbox_is_stale(void **state)
{
	struct sbx_node *a, *again;

	(void)state;
	put_file("f", "x");
	a = look_up(top, "f");
	plain_box_set_alive(pb, false);
	assert_int_equal(sbx_node_get(tab, sbx_node_id(a), &again), -ESTALE);
	plain_box_set_alive(pb, true);
	drop(a);
}

static void of_a_removed_sandbox_only_what_is_used_is_left(void **state)
{
	const uint64_t before = nodes();
	struct sbx_node *dir, *used, *again;
	uint64_t known;
	struct stat st;
	char name[16];

	(void)state;
	assert_int_equal(mkdirat(root_fd(), "d", 0755), 0);
	dir = look_up(top, "d");
	put_file("d/used", "x");
	used = look_up(dir, "used");
	for (int i = 0; i < 1000; i++) {
		snprintf(name, sizeof(name), "d/%d", i);
		put_file(name, "x");
		again = look_up(dir, name + 2);
		known = sbx_node_id(again);
		sbx_node_put(tab, again);
	}
	sbx_node_put(tab, dir);
	assert_int_equal(nodes(), before + 1002);
	plain_box_set_alive(pb, false);
	sbx_inodes_forget_box(tab, plain_box_get(pb));
	assert_int_equal(nodes(), before + 2);
	/* What came too late for that is not made any more. */
	assert_int_equal(sbx_node_lookup(tab, top, "d", &st, &again), -ESTALE);
	assert_int_equal(sbx_node_special(tab, SBX_NODE_BOX, plain_box_get(pb), 0, &again),
	                 -ESTALE);
	assert_int_equal(sbx_node_get(tab, known, &again), -ESTALE);
	sbx_node_forget(tab, known, 1);
	sbx_node_put(tab, used);
	assert_int_equal(nodes(), before);
	plain_box_set_alive(pb, true);
}

static void what_was_replaced_behind_our_back_is_stale(void **state)
{
	struct sbx_node *a;
	struct sbx_fd *f;
	struct stat st;

	(void)state;
	put_file("f", "x");
	a = look_up(top, "f");
	put_file("new", "y");
	assert_int_equal(renameat(root_fd(), "new", root_fd(), "f"), 0);
	assert_int_equal(sbx_node_stat(tab, a, &st), -ESTALE);
	assert_int_equal(sbx_node_fd(tab, a, SBX_FD_READ, &f), -ESTALE);
	assert_int_equal(unlinkat(root_fd(), "f", 0), 0);
	assert_int_equal(sbx_node_stat(tab, a, &st), -ESTALE);
	drop(a);
}

static void a_link_swapped_in_is_not_followed(void **state)
{
	struct sbx_node *dir, *a;
	struct sbx_fd *f;

	(void)state;
	assert_int_equal(mkdirat(root_fd(), "d", 0755), 0);
	put_file("d/f", "x");
	dir = look_up(top, "d");
	a = look_up(dir, "f");
	sbx_inodes_drop_box(tab, plain_box_get(pb));
	assert_int_equal(renameat(root_fd(), "d", root_fd(), "e"), 0);
	assert_int_equal(symlinkat("e", root_fd(), "d"), 0);
	assert_int_equal(sbx_node_fd(tab, a, SBX_FD_READ, &f), -ESTALE);
	drop(a);
	drop(dir);
	assert_int_equal(unlinkat(root_fd(), "d", 0), 0);
}

static void a_held_file_survives_its_unlink(void **state)
{
	struct sbx_node *a;
	struct sbx_hold hold;
	struct sbx_fd *f;
	char c;

	(void)state;
	put_file("f", "x");
	a = look_up(top, "f");
	sbx_hold_name(tab, top, "f", &hold);
	assert_int_equal(unlinkat(root_fd(), "f", 0), 0);
	sbx_hold_release(tab, &hold, true);
	assert_int_equal(sbx_node_fd(tab, a, SBX_FD_READ, &f), 0);
	assert_int_equal(pread(f->fd, &c, 1, 0), 1);
	assert_int_equal(c, 'x');
	sbx_fd_put(tab, f);
	assert_int_equal(sbx_node_fd(tab, a, SBX_FD_WRITE, &f), 0);
	sbx_fd_put(tab, f);
	drop(a);
}

/* NAME is removed, and the kernel has not told that it has forgotten the file. */
static struct sbx_node *removed(const char *name)
{
	struct sbx_node *node;
	struct sbx_hold hold;

	put_file(name, "x");
	node = look_up(top, name);
	sbx_hold_name(tab, top, name, &hold);
	assert_int_equal(unlinkat(root_fd(), name, 0), 0);
	sbx_hold_release(tab, &hold, true);
	return node;
}

struct waiter {
	pthread_t thread;
	sem_t begun;
	atomic_bool closed; /* what it waits for */
	bool found;         /* that it was, when it had waited */
};

static void *await_room(void *data)
{
	struct waiter *w = data;

	sem_post(&w->begun);
	sbx_inodes_await_room(tab, plain_box_get(pb));
	w->found = atomic_load(&w->closed);
	return NULL;
}

static void wait_begins(struct waiter *w)
{
	*w = (struct waiter){0};
	sem_init(&w->begun, 0, 0);
	assert_int_equal(pthread_create(&w->thread, NULL, await_room, w), 0);
	sem_wait(&w->begun);
	/* It may wait by then or not; without a wait it is through. */
	sched_yield();
}

static bool wait_ends(struct waiter *w)
{
	pthread_join(w->thread, NULL);
	sem_destroy(&w->begun);
	return w->found;
}

static void a_write_without_room_awaits_what_was_just_removed(void **state)
{
	struct sbx_node *node = removed("f");
	struct sbx_inode_stats s;
	uint64_t id = sbx_node_id(node);
	struct waiter w;

	(void)state;
	sbx_node_put(tab, node);
	wait_begins(&w);
	atomic_store(&w.closed, true);
	sbx_node_forget(tab, id, 1);
	assert_true(wait_ends(&w));
	sbx_inodes_stats(tab, &s);
	assert_int_equal(s.pinned, 0);
}

/* Forgotten it is, but another thread has not done with it. */
static void and_a_descriptor_that_is_in_use(void **state)
{
	struct sbx_node *node = removed("f");
	struct waiter w;
	struct sbx_fd *f;

	(void)state;
	assert_int_equal(sbx_node_fd(tab, node, SBX_FD_READ, &f), 0);
	drop(node);
	wait_begins(&w);
	atomic_store(&w.closed, true);
	sbx_fd_put(tab, f);
	assert_true(wait_ends(&w));
}

/* The host has the one open, and an operation is at the other. */
static void nothing_is_awaited_twice(void **state)
{
	struct sbx_node *open = removed("f"), *used = removed("g");
	uint64_t id = sbx_node_id(open);
	struct sbx_inode_stats s;

	(void)state;
	sbx_node_put(tab, open);
	sbx_inodes_await_room(tab, plain_box_get(pb));
	/* This would take minutes. */
	for (int i = 0; i < 1000; i++)
		sbx_inodes_await_room(tab, plain_box_get(pb));
	sbx_inodes_stats(tab, &s);
	assert_int_equal(s.pinned, 2);
	sbx_node_forget(tab, id, 1);
	drop(used);
}

static void a_moved_directory_takes_its_children_along(void **state)
{
	struct sbx_node *dir, *a;
	struct sbx_fd *f;
	char path[64];

	(void)state;
	assert_int_equal(mkdirat(root_fd(), "d", 0755), 0);
	put_file("d/f", "x");
	dir = look_up(top, "d");
	a = look_up(dir, "f");
	assert_int_equal(renameat(root_fd(), "d", root_fd(), "e"), 0);
	sbx_node_moved(tab, top, "d", top, "e");
	sbx_inodes_drop_box(tab, plain_box_get(pb));
	assert_int_equal(sbx_node_fd(tab, a, SBX_FD_READ, &f), 0);
	sbx_fd_put(tab, f);
	assert_int_equal(sbx_node_path(tab, a, path, sizeof(path)), 0);
	assert_string_equal(path, "e/f");
	assert_int_equal(sbx_node_path(tab, a, path, 3), -ENAMETOOLONG);
	drop(a);
	drop(dir);
}

/* Else a link with ".." that was let pass for one place would be followed from the other. */
static void what_a_command_moved_is_another_node(void **state)
{
	struct sbx_node *deep, *dir, *link, *dir2, *link2;
	char path[64];

	(void)state;
	assert_int_equal(mkdirat(root_fd(), "p", 0755), 0);
	assert_int_equal(mkdirat(root_fd(), "d", 0755), 0);
	assert_int_equal(symlinkat("../../x", root_fd(), "d/l"), 0);
	dir = look_up(top, "d");
	link = look_up(dir, "l");
	assert_int_equal(renameat(root_fd(), "d", root_fd(), "p/d"), 0);
	deep = look_up(top, "p");
	dir2 = look_up(deep, "d");
	link2 = look_up(dir2, "l");
	assert_ptr_not_equal(dir, dir2);
	assert_ptr_not_equal(link, link2);
	assert_int_equal(sbx_node_path(tab, link, path, sizeof(path)), 0);
	assert_string_equal(path, "d/l");
	assert_int_equal(sbx_node_path(tab, link2, path, sizeof(path)), 0);
	assert_string_equal(path, "p/d/l");
	drop(link2);
	drop(dir2);
	drop(deep);
	drop(link);
	drop(dir);
}

/* Whose text the kernel may keep. */
static void links_that_are_moved_along_are_other_nodes(void **state)
{
	struct sbx_node *deep, *dir, *link, *link2, *plain;

	(void)state;
	assert_int_equal(mkdirat(root_fd(), "p", 0755), 0);
	assert_int_equal(mkdirat(root_fd(), "p/d", 0755), 0);
	assert_int_equal(symlinkat("../../x", root_fd(), "p/d/l"), 0);
	put_file("p/f", "x");
	deep = look_up(top, "p");
	dir = look_up(deep, "d");
	link = look_up(dir, "l");
	plain = look_up(deep, "f");
	assert_int_equal(renameat(root_fd(), "p/f", root_fd(), "f"), 0);
	assert_false(sbx_node_moved(tab, deep, "f", top, "f"));
	assert_int_equal(renameat(root_fd(), "p/d", root_fd(), "p/e"), 0);
	assert_false(sbx_node_moved(tab, deep, "d", deep, "e"));
	assert_int_equal(renameat(root_fd(), "p/e", root_fd(), "d"), 0);
	assert_true(sbx_node_moved(tab, deep, "e", top, "d"));
	link2 = look_up(dir, "l");
	assert_ptr_not_equal(link, link2);
	assert_true(sbx_inodes_renew_links(tab, plain_box_get(pb)));
	assert_false(sbx_inodes_renew_links(tab, plain_box_get(pb)));
	drop(link2);
	drop(plain);
	drop(link);
	drop(dir);
	drop(deep);
}

/* The kernel has moved what it took for "l"; a command had put another link there. */
static void a_link_swapped_in_while_it_was_moved_is_stale(void **state)
{
	struct sbx_node *deep, *other;
	char path[64];

	(void)state;
	assert_int_equal(mkdirat(root_fd(), "p", 0755), 0);
	assert_int_equal(symlinkat("../x", root_fd(), "other"), 0);
	deep = look_up(top, "p");
	other = look_up(top, "other");
	assert_int_equal(renameat(root_fd(), "other", root_fd(), "p/l"), 0);
	assert_true(sbx_node_moved(tab, top, "l", deep, "l"));
	assert_int_equal(sbx_node_path(tab, other, path, sizeof(path)), -ESTALE);
	drop(other);
	drop(deep);
}

static void descriptors_stay_within_their_bound(void **state)
{
	struct sbx_node *node[100];
	struct sbx_inode_stats s;
	struct sbx_fd *f;
	char name[16];

	(void)state;
	for (int i = 0; i < 100; i++) {
		snprintf(name, sizeof(name), "n%d", i);
		put_file(name, "x");
		node[i] = look_up(top, name);
		assert_int_equal(sbx_node_fd(tab, node[i], SBX_FD_READ, &f), 0);
		sbx_fd_put(tab, f);
	}
	sbx_inodes_stats(tab, &s);
	assert_in_range(s.fds, 1, 16);
	for (int i = 0; i < 100; i++) {
		assert_int_equal(sbx_node_fd(tab, node[i], SBX_FD_WRITE, &f), 0);
		sbx_fd_put(tab, f);
		drop(node[i]);
	}
}

static void a_mode_that_keeps_its_owner_out_does_not_stop_what_was_open(void **state)
{
	struct sbx_node *a;
	struct sbx_fd *f;
	struct stat st;

	(void)state;
	put_file("f", "x");
	assert_int_equal(fchmodat(root_fd(), "f", 0444, 0), 0);
	a = look_up(top, "f");
	assert_int_equal(sbx_node_fd(tab, a, SBX_FD_WRITE, &f), 0);
	assert_int_equal(pwrite(f->fd, "y", 1, 0), 1);
	sbx_fd_put(tab, f);
	assert_int_equal(fstatat(root_fd(), "f", &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 0444);
	drop(a);
}

static void a_fifo_is_never_opened(void **state)
{
	struct sbx_node *a;
	struct sbx_fd *f;

	(void)state;
	assert_int_equal(mkfifoat(root_fd(), "pipe", 0644), 0);
	a = look_up(top, "pipe");
	assert_int_equal(sbx_node_fd(tab, a, SBX_FD_READ, &f), -ENXIO);
	assert_int_equal(sbx_node_fd(tab, a, SBX_FD_PATH, &f), 0);
	sbx_fd_put(tab, f);
	drop(a);
}

static void a_fifo_shows_as_a_socket_but_to_who_made_it(void **state)
{
	struct sbx_node *a;
	struct stat st;

	(void)state;
	assert_int_equal(mkfifoat(root_fd(), "pipe", 0640), 0);
	assert_int_equal(sbx_node_lookup(tab, top, "pipe", &st, &a), 0);
	assert_int_equal(st.st_mode, S_IFSOCK | 0640);
	assert_int_equal(sbx_node_stat(tab, a, &st), 0);
	assert_int_equal(st.st_mode, S_IFSOCK | 0640);
	sbx_node_own_fifo(tab, a, &st);
	assert_int_equal(st.st_mode, S_IFIFO | 0640);
	assert_int_equal(sbx_node_stat(tab, a, &st), 0);
	assert_int_equal(st.st_mode, S_IFIFO | 0640);
	drop(a);
	/* Not known any more, it is as a command's. */
	assert_int_equal(sbx_node_lookup(tab, top, "pipe", &st, &a), 0);
	assert_int_equal(st.st_mode, S_IFSOCK | 0640);
	drop(a);
}

static void only_a_regular_file_is_adopted(void **state)
{
	struct sbx_node *a;
	struct stat st;
	int fd;

	(void)state;
	assert_int_equal(mkfifoat(root_fd(), "pipe", 0644), 0);
	fd = openat(root_fd(), "pipe", O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(sbx_node_adopt(tab, top, "pipe", fd, O_RDWR, &st, &a), -ESTALE);
	assert_int_equal(fcntl(fd, F_GETFD), -1);
}

static void a_directory_cannot_be_written(void **state)
{
	struct sbx_fd *f;

	(void)state;
	assert_int_equal(sbx_node_fd(tab, top, SBX_FD_WRITE, &f), -EISDIR);
}

static void directories_swapped_into_each_other_make_no_ring(void **state)
{
	struct sbx_node *a, *b, *c, *d;
	char path[64];
	struct stat st;

	(void)state;
	assert_int_equal(mkdirat(root_fd(), "a", 0755), 0);
	assert_int_equal(mkdirat(root_fd(), "a/b", 0755), 0);
	a = look_up(top, "a");
	b = look_up(a, "b");
	assert_int_equal(renameat(root_fd(), "a/b", root_fd(), "b"), 0);
	assert_int_equal(renameat(root_fd(), "a", root_fd(), "b/a"), 0);
	/* The client still reaches b by a name that the kernel keeps. */
	{
		struct sbx_fd *f;

		assert_int_equal(sbx_node_fd(tab, b, SBX_FD_PATH, &f), -ESTALE);
	}
	c = look_up(top, "b");
	d = look_up(c, "a");
	assert_int_equal(sbx_node_path(tab, d, path, sizeof(path)), 0);
	assert_string_equal(path, "b/a");
	assert_int_equal(sbx_node_path(tab, b, path, sizeof(path)), 0);
	assert_string_equal(path, "a/b");
	assert_int_equal(sbx_node_stat(tab, d, &st), 0);
	drop(d);
	drop(c);
	drop(b);
	drop(a);
}

static void assert_reads(struct sbx_node *node, char want)
{
	struct sbx_fd *f;
	char c;

	assert_int_equal(sbx_node_fd(tab, node, SBX_FD_READ, &f), 0);
	assert_int_equal(pread(f->fd, &c, 1, 0), 1);
	assert_int_equal(c, want);
	sbx_fd_put(tab, f);
}

static void a_job_starts(void)
{
	plain_box_get(pb)->busy = true;
	sbx_inodes_job_starts(tab, plain_box_get(pb));
}

static void replace(const char *name)
{
	put_file("new", "n");
	assert_int_equal(renameat(root_fd(), "new", root_fd(), name), 0);
}

static void what_a_job_replaces_is_what_it_was(void **state)
{
	struct sbx_node *before, *during, *now;

	(void)state;
	put_file("f", "f");
	put_file("g", "g");
	before = look_up(top, "f");
	a_job_starts();
	during = look_up(top, "g");
	replace("f");
	replace("g");
	assert_reads(before, 'f');
	assert_reads(during, 'g');
	now = look_up(top, "f");
	assert_ptr_not_equal(now, before);
	assert_reads(now, 'n');
	drop(now);
	drop(during);
	drop(before);
}

static void nothing_stays_open_for_writing_while_a_job_runs(void **state)
{
	struct sbx_node *a, *b;
	struct sbx_fd *f;

	(void)state;
	put_file("f", "f");
	put_file("g", "g");
	a = look_up(top, "f");
	b = look_up(top, "g");
	assert_int_equal(sbx_node_fd(tab, a, SBX_FD_WRITE, &f), 0);
	sbx_fd_put(tab, f);
	a_job_starts();
	assert_int_equal(sbx_node_fd(tab, a, SBX_FD_PATH, &f), 0);
	assert_int_equal(f->mode, O_PATH);
	sbx_fd_put(tab, f);
	assert_int_equal(sbx_node_fd(tab, b, SBX_FD_WRITE, &f), 0);
	sbx_fd_put(tab, f);
	assert_int_equal(sbx_node_fd(tab, b, SBX_FD_PATH, &f), 0);
	assert_int_equal(f->mode, O_PATH);
	sbx_fd_put(tab, f);
	replace("f");
	assert_int_equal(sbx_node_fd(tab, a, SBX_FD_WRITE, &f), 0);
	assert_int_equal(pwrite(f->fd, "o", 1, 0), 1);
	sbx_fd_put(tab, f);
	assert_reads(a, 'o');
	drop(b);
	drop(a);
}

/*
 * What the kernel has of the contents of a node: those of the time of modification that it was
 * told.
 */
struct kernel {
	struct sbx_node *node;
	struct timespec mtime;
};

/*
 * Whether the kernel drops what it has when ANSWER tells it the file, as if it had changed at
 * CHANGED, with MTIME.
 */
static bool drops_at(struct kernel *k, int64_t changed, long mtime, enum sbx_answer answer)
{
	const struct timespec was = k->mtime;
	struct stat st;

	assert_int_equal(sbx_node_stat(tab, k->node, &st), 0);
	st.st_mtim = (struct timespec){1000, mtime};
	st.st_ctim = (struct timespec){changed, 0};
	sbx_node_told(tab, k->node, &st, changed * 1000000000, answer);
	k->mtime = st.st_mtim;
	return answer != SBX_ANSWER_SETATTR &&
	       (was.tv_sec != k->mtime.tv_sec || was.tv_nsec != k->mtime.tv_nsec);
}

static bool drops(struct kernel *k, int64_t changed, enum sbx_answer answer)
{
	return drops_at(k, changed, 0, answer);
}

/* The kernel reads it. */
static void page(struct sbx_node *node)
{
	struct sbx_fd *f;

	assert_int_equal(sbx_node_fd(tab, node, SBX_FD_READ, &f), 0);
	sbx_fd_put(tab, f);
}

/* Clients see the time as it is. */
static void a_file_that_nobody_has_read_has_its_time(void **state)
{
	struct kernel k = {.mtime = {1000, 0}};

	(void)state;
	put_file("f", "f");
	k.node = look_up(top, "f");
	plain_box_get(pb)->busy = true;
	assert_false(drops(&k, 1, SBX_ANSWER_LOOKUP));
	assert_false(drops(&k, 2, SBX_ANSWER_READ));
	page(k.node);
	assert_false(drops(&k, 2, SBX_ANSWER_READ));
	assert_true(drops(&k, 3, SBX_ANSWER_READ));
	drop(k.node);
}

static void a_change_that_shows_in_no_time_is_told(void **state)
{
	struct sbx_box *box = plain_box_get(pb);
	struct kernel k = {.mtime = {1000, 0}};

	(void)state;
	put_file("f", "f");
	k.node = look_up(top, "f");
	page(k.node);
	assert_false(drops(&k, 1, SBX_ANSWER_LOOKUP));
	assert_false(drops(&k, 2, SBX_ANSWER_LOOKUP)); /* the host's own */
	box->changes++;
	assert_false(drops(&k, 2, SBX_ANSWER_LOOKUP));
	box->changes++;
	assert_true(drops(&k, 3, SBX_ANSWER_READ));
	assert_true(drops(&k, 3, SBX_ANSWER_READ)); /* as it is again */
	assert_false(drops(&k, 3, SBX_ANSWER_READ));
	box->busy = true;
	assert_true(drops(&k, 4, SBX_ANSWER_LOOKUP));
	assert_true(drops(&k, 5, SBX_ANSWER_LOOKUP)); /* before anybody asked for the first */
	assert_true(drops(&k, 6, SBX_ANSWER_LOOKUP));
	assert_true(drops(&k, 6, SBX_ANSWER_LOOKUP));
	usleep(1100000);
	assert_false(drops(&k, 6, SBX_ANSWER_READ));
	assert_true(drops(&k, 6, SBX_ANSWER_LOOKUP)); /* once more, should it have been overtaken */
	assert_true(drops(&k, 6, SBX_ANSWER_LOOKUP));
	assert_false(drops(&k, 6, SBX_ANSWER_LOOKUP));
	drop(k.node);
}

/* What a program is told it takes for the file's: make, rsync and cp -p would go on with it. */
static void a_program_sees_the_time_as_it_is(void **state)
{
	struct sbx_box *box = plain_box_get(pb);
	struct kernel k = {.mtime = {1000, 0}};

	(void)state;
	put_file("f", "f");
	k.node = look_up(top, "f");
	page(k.node);
	assert_false(drops(&k, 1, SBX_ANSWER_LOOKUP));
	box->changes++;
	assert_false(drops(&k, 2, SBX_ANSWER_STAT));
	assert_false(drops(&k, 2, SBX_ANSWER_STAT));
	assert_true(drops(&k, 2, SBX_ANSWER_READ));
	assert_true(drops(&k, 2, SBX_ANSWER_STAT)); /* as it is again */
	assert_false(drops(&k, 2, SBX_ANSWER_READ));
	box->changes++;
	assert_false(drops(&k, 3, SBX_ANSWER_SETATTR));
	assert_false(drops(&k, 3, SBX_ANSWER_STAT));
	assert_true(drops(&k, 3, SBX_ANSWER_LOOKUP));
	assert_true(drops(&k, 3, SBX_ANSWER_STAT));
	assert_false(drops(&k, 3, SBX_ANSWER_STAT));
	drop(k.node);
}

/* Who copies a time that is one off gives it to the file by another name of it. */
static void a_change_with_the_time_that_was_told_is_told(void **state)
{
	struct kernel k = {.mtime = {1000, 0}};

	(void)state;
	put_file("f", "f");
	k.node = look_up(top, "f");
	page(k.node);
	plain_box_get(pb)->busy = true;
	drops(&k, 1, SBX_ANSWER_LOOKUP);
	assert_true(drops_at(&k, 2, 0, SBX_ANSWER_LOOKUP));
	assert_true(drops_at(&k, 3, 1, SBX_ANSWER_LOOKUP));
	drop(k.node);
}

static void a_change_before_attributes_are_set_is_told_after_it(void **state)
{
	struct kernel k = {.mtime = {1000, 0}};

	(void)state;
	put_file("f", "f");
	k.node = look_up(top, "f");
	page(k.node);
	plain_box_get(pb)->busy = true;
	drops(&k, 1, SBX_ANSWER_LOOKUP);
	assert_false(drops_at(&k, 3, 5, SBX_ANSWER_SETATTR)); /* changed at 2, set at 3 */
	assert_true(drops_at(&k, 3, 5, SBX_ANSWER_READ));
	drop(k.node);
}

/* ---- files that are elsewhere ---- */

static void put_file_of(const char *name, const char *text, const struct timespec *mtime)
{
	put_file(name, text);
	assert_int_equal(utimensat(root_fd(), name, (struct timespec[]){*mtime, *mtime}, 0), 0);
}

/* TEXT comes in a new file, which takes the NAME. Returns the node that is it from now on. */
static uint64_t come_anew(const char *name, const char *text)
{
	int old = openat(root_fd(), name, O_PATH | O_CLOEXEC), new;
	uint64_t id;

	put_file_of("new", text, &(struct timespec){1000, 0});
	new = openat(root_fd(), "new", O_PATH | O_CLOEXEC);
	assert_int_equal(renameat(root_fd(), "new", root_fd(), name), 0);
	id = sbx_node_replace(tab, plain_box_get(pb), old, new);
	close(old);
	close(new);
	return id;
}

static void what_comes_anew_takes_the_node(void **state)
{
	static const enum sbx_fd_want wants[] = {SBX_FD_PATH, SBX_FD_READ, SBX_FD_WRITE};
	struct sbx_node *node, *again;
	struct sbx_fd *f;
	struct stat st;
	char c;

	(void)state;
	put_file("f", "a");
	assert_int_equal(come_anew("f", "b"), 0);
	node = look_up(top, "f");
	assert_int_equal(come_anew("f", "a"), sbx_node_id(node));
	assert_reads(node, 'a');
	for (size_t i = 0; i < sizeof(wants) / sizeof(*wants); i++) {
		sbx_inodes_drop_box(tab, plain_box_get(pb));
		assert_int_equal(sbx_node_fd(tab, node, wants[i], &f), 0);
		assert_int_equal(come_anew("f", "n"), sbx_node_id(node));
		if (wants[i] != SBX_FD_PATH) {
			assert_int_equal(pread(f->fd, &c, 1, 0), 1);
			assert_int_equal(c, 'a');
		}
		sbx_fd_put(tab, f);
		assert_reads(node, 'n');
		again = look_up(top, "f");
		assert_ptr_equal(again, node);
		drop(again);
		assert_int_equal(sbx_node_stat(tab, node, &st), 0);
		assert_int_equal(st.st_ino, sbx_node_ino(tab, node));
		assert_int_equal(come_anew("f", "a"), sbx_node_id(node));
	}
	drop(node);
}

/* Whatever else it has in common with what was there. */
static void the_kernel_drops_what_came_before(void **state)
{
	struct kernel k = {.mtime = {1000, 0}};

	(void)state;
	put_file_of("f", "a", &k.mtime);
	k.node = look_up(top, "f");
	page(k.node);
	assert_false(drops(&k, 1, SBX_ANSWER_LOOKUP));
	come_anew("f", "b");
	assert_true(drops(&k, 1, SBX_ANSWER_READ));
	assert_true(drops(&k, 1, SBX_ANSWER_READ)); /* as it is again */
	assert_false(drops(&k, 1, SBX_ANSWER_READ));
	drop(k.node);
}

struct opening {
	struct sbx_node *node;
	atomic_bool stop;
};

static void *open_again_and_again(void *data)
{
	struct opening *o = data;
	struct sbx_fd *f;

	while (!atomic_load(&o->stop)) {
		if (sbx_node_fd(tab, o->node, SBX_FD_READ, &f) == 0)
			sbx_fd_put(tab, f);
		sbx_inodes_drop_box(tab, plain_box_get(pb));
	}
	return NULL;
}

/* What was opened when another file took the place is not kept. */
static void a_descriptor_of_before_is_not_kept(void **state)
{
	struct opening o = {0};
	pthread_t thread;

	(void)state;
	put_file("f", "a");
	o.node = look_up(top, "f");
	assert_int_equal(pthread_create(&thread, NULL, open_again_and_again, &o), 0);
	for (int i = 0; i < 10000; i++) {
		come_anew("f", i % 2 ? "a" : "b");
		assert_reads(o.node, i % 2 ? 'a' : 'b');
	}
	atomic_store(&o.stop, true);
	pthread_join(thread, NULL);
	drop(o.node);
}

static int truncate_at(int dirfd, const char *name, off_t size)
{
	int fd = openat(dirfd, name, O_WRONLY | O_CLOEXEC), r = fd < 0 ? -1 : ftruncate(fd, size);

	close(fd);
	return r;
}

static void what_is_not_here_is_no_hole(void **state)
{
	struct sbx_sandbox *sandbox = plain_box_get(pb)->sandbox;
	struct sbx_sandbox_impl impl = *sandbox->impl;
	const struct sbx_sandbox_impl *was = sandbox->impl;
	struct played_away away;
	struct sbx_node *node;
	struct stat st;

	(void)state;
	played_away_init(&away, NULL);
	impl.away = &played_away_impl;
	sandbox->impl = &impl;
	sandbox->turn = &away.turn;
	put_file("f", "");
	assert_int_equal(mkdirat(root_fd(), "d", 0755), 0);
	node = look_up(top, "f");
	assert_int_equal(truncate_at(root_fd(), "f", 1000000), 0);
	assert_int_equal(sbx_node_stat(tab, node, &st), 0);
	assert_int_equal(st.st_blocks, 1954);
	away.here = true;
	assert_int_equal(sbx_node_stat(tab, node, &st), 0);
	assert_int_equal(st.st_blocks, 0);
	drop(node);
	away.here = false;
	assert_int_equal(sbx_node_lookup(tab, top, "d", &st, &node), 0);
	assert_int_equal(st.st_nlink, 1);
	drop(node);
	assert_int_equal(sbx_node_lookup(tab, top, "f", &st, &node), 0);
	assert_int_equal(st.st_blocks, 1954);
	drop(node);
	sandbox->impl = was;
	sandbox->turn = NULL;
	played_away_finish(&away);
}

static void a_name_that_goes_leaves_the_other(void **state)
{
	struct sbx_hold hold;
	struct sbx_node *node, *other;
	char path[64];

	(void)state;
	put_file("f", "f");
	assert_int_equal(linkat(root_fd(), "f", root_fd(), "g", 0), 0);
	node = look_up(top, "f");
	other = look_up(top, "g");
	assert_ptr_equal(node, other);
	sbx_hold_name(tab, top, "f", &hold);
	assert_int_equal(unlinkat(root_fd(), "f", 0), 0);
	sbx_hold_release(tab, &hold, true);
	assert_int_equal(sbx_node_path(tab, node, path, sizeof(path)), 0);
	assert_string_equal(path, "g");
	sbx_hold_name(tab, top, "g", &hold);
	assert_int_equal(unlinkat(root_fd(), "g", 0), 0);
	sbx_hold_release(tab, &hold, true);
	assert_true(sbx_node_nameless(tab, node));
	assert_reads(node, 'f');
	drop(other);
	drop(node);
}

static void what_is_in_a_git_of_the_host_is_stored(void **state)
{
	struct sbx_node *dir, *file;

	(void)state;
	assert_int_equal(mkdirat(root_fd(), "sub", 0755), 0);
	put_file("sub/f", "f");
	dir = look_up(top, "sub");
	file = look_up(dir, "f");
	plain_box_get(pb)->hides_git = true;
	assert_false(sbx_node_stored(tab, file));
	assert_int_equal(renameat(root_fd(), "sub", root_fd(), ".git"), 0);
	plain_box_get(pb)->hides_git = false;
	sbx_node_moved(tab, top, "sub", top, ".git");
	assert_false(sbx_node_stored(tab, file));
	plain_box_get(pb)->hides_git = true;
	assert_true(sbx_node_stored(tab, file));
	assert_true(sbx_node_stored(tab, dir));
	assert_false(sbx_node_stored(tab, top));
	drop(file);
	drop(dir);
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        CASE(the_same_file_has_the_same_node),
	        CASE(what_was_just_looked_up_is_fresh),
	        CASE(forget_of_the_last_lookup_frees_the_node),
	        CASE(a_guessed_or_old_id_is_stale),
	        CASE(a_node_of_a_dead_sandbox_is_stale),
	        CASE(of_a_removed_sandbox_only_what_is_used_is_left),
	        CASE(what_was_replaced_behind_our_back_is_stale),
	        CASE(a_link_swapped_in_is_not_followed),
	        CASE(a_held_file_survives_its_unlink),
	        CASE(a_write_without_room_awaits_what_was_just_removed),
	        CASE(and_a_descriptor_that_is_in_use),
	        CASE(nothing_is_awaited_twice),
	        CASE(a_moved_directory_takes_its_children_along),
	        CASE(what_a_command_moved_is_another_node),
	        CASE(links_that_are_moved_along_are_other_nodes),
	        CASE(a_link_swapped_in_while_it_was_moved_is_stale),
	        CASE(descriptors_stay_within_their_bound),
	        CASE(a_mode_that_keeps_its_owner_out_does_not_stop_what_was_open),
	        CASE(a_fifo_is_never_opened),
	        CASE(a_fifo_shows_as_a_socket_but_to_who_made_it),
	        CASE(only_a_regular_file_is_adopted),
	        CASE(a_directory_cannot_be_written),
	        CASE(directories_swapped_into_each_other_make_no_ring),
	        CASE(what_a_job_replaces_is_what_it_was),
	        CASE(nothing_stays_open_for_writing_while_a_job_runs),
	        CASE(a_file_that_nobody_has_read_has_its_time),
	        CASE(a_change_that_shows_in_no_time_is_told),
	        CASE(a_program_sees_the_time_as_it_is),
	        CASE(a_change_with_the_time_that_was_told_is_told),
	        CASE(a_change_before_attributes_are_set_is_told_after_it),
	        CASE(what_comes_anew_takes_the_node),
	        CASE(the_kernel_drops_what_came_before),
	        CASE(a_descriptor_of_before_is_not_kept),
	        CASE(what_is_not_here_is_no_hole),
	        CASE(a_name_that_goes_leaves_the_other),
	        CASE(what_is_in_a_git_of_the_host_is_stored),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
