/* Renames onto controls, with the test in the kernel's place: it repeats them, or does not. */
#include <errno.h>
#include <fcntl.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "fs/control/nodes.h"
#include "fs/control/ops_save.h"
#include "fs/control/save_buffer.h"
#include "fs/fuse/connection.h"
#include "fs/util/holders.h"
#include "tests/lib/control_fixture.h"

struct fuse_req {
	struct fuse_ctx ctx;
	sem_t come;
	int errnum; /* of the answer */
};

static struct sbx_controls controls;
static struct sbx_connection connection = {.controls = &controls};
static struct sbx_control_node ctl, limits, target, new;
static fuse_ino_t ctl_ino;

const struct fuse_ctx *fuse_req_ctx(fuse_req_t req)
{
	return &req->ctx;
}

void *fuse_req_userdata(fuse_req_t req)
{
	(void)req;
	return &connection;
}

void fuse_req_interrupt_func(fuse_req_t req, fuse_interrupt_func_t func, void *data)
{
	(void)req;
	(void)func;
	(void)data;
}

int fuse_reply_err(fuse_req_t req, int errnum)
{
	req->errnum = errnum;
	sem_post(&req->come);
	return 0;
}

static void looked_up(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	assert_int_equal(parent, 77);
	assert_string_equal(name, "ctl");
	fuse_reply_err(req, 0);
}

static void init(struct fuse_req *req, pid_t pid)
{
	*req = (struct fuse_req){.ctx = {.pid = pid}, .errnum = -1};
	sem_init(&req->come, 0, 0);
}

static int await(struct fuse_req *req)
{
	sem_wait(&req->come);
	sem_destroy(&req->come);
	return req->errnum;
}

static int save(pid_t pid)
{
	struct fuse_req req;

	init(&req, pid);
	sbx_save_rename(&req, ctl_ino, new.buffer, &target, "exec");
	return await(&req);
}

/* Whether a LOOKUP by PID, of DIR, carries something out. */
static bool look_up(pid_t pid, const struct sbx_control_node *dir)
{
	struct fuse_req req;
	bool waits;

	init(&req, pid);
	waits = sbx_save_announced(&controls, pid) &&
	        sbx_save_waits(&req, dir, 77, "ctl", looked_up);
	if (waits)
		await(&req);
	else
		sem_destroy(&req.come);
	return waits;
}

static void withdraw(pid_t pid)
{
	struct fuse_req req;

	init(&req, pid);
	sbx_save_withdraw(&req);
	sem_destroy(&req.come);
}

static int set_up_saves(void **state)
{
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_control_handle *h;
	struct fuse_entry_param e;

	set_up(state);
	controls = (struct sbx_controls){.registry = registry_fixture.registry};
	assert_int_equal(sbx_deferred_create(registry_fixture.loop, &controls.deferred), 0);
	assert_int_equal(sbx_controls_init(&controls, NULL), 0);
	assert_int_equal(sbx_controls_entry(&controls, box, &e), 0);
	ctl_ino = e.ino;
	sbx_control_box_node(box, &ctl);
	assert_int_equal(find("limits", &limits), 0);
	assert_int_equal(find("exec", &target), 0);
	assert_int_equal(sbx_buffers_make(controls.buffers, &ctl, "new", 0, 0, &new, &err), 0);
	assert_int_equal(sbx_control_open(registry_fixture.registry, &new, O_RDWR, &h), 0);
	assert_int_equal(write_text(h, "echo saved"), 10);
	sbx_control_release(h);
	return 0;
}

static int tear_down_saves(void **state)
{
	sbx_control_node_release(&new);
	sbx_control_node_release(&target);
	sbx_control_node_release(&limits);
	sbx_control_node_release(&ctl);
	sbx_controls_finish(&controls);
	registry_fixture_settle(&registry_fixture);
	sbx_deferred_destroy(controls.deferred);
	return tear_down(state);
}

static int ran(void)
{
	return atomic_load(&registry_fixture.runner.execs);
}

static void the_repeated_walk_carries_it_out_once(void **state)
{
	(void)state;
	assert_int_equal(save(getpid()), ESTALE);
	assert_int_equal(ran(), 0);
	assert_true(look_up(getpid(), &ctl));
	assert_int_equal(ran(), 1);
	assert_false(look_up(getpid(), &ctl));
	assert_int_equal(save(getpid()), 0);
	assert_int_equal(ran(), 1);
	assert_cat("stdout", "saved\n");
}

static void without_a_walk_the_second_rename_does(void **state)
{
	(void)state;
	assert_int_equal(save(getpid()), ESTALE);
	assert_int_equal(save(getpid()), 0);
	assert_int_equal(ran(), 1);
}

static void lookups_of_others_and_elsewhere_do_nothing(void **state)
{
	struct sbx_box *other = registry_fixture_make(&registry_fixture, "other");
	struct sbx_control_node node;

	(void)state;
	sbx_control_box_node(other, &node);
	assert_int_equal(save(getpid()), ESTALE);
	assert_false(look_up(getppid(), &ctl));
	assert_false(look_up(getpid(), &limits));
	assert_false(look_up(getpid(), &node));
	assert_int_equal(ran(), 0);
	sbx_control_node_release(&node);
	sbx_box_unref(other);
}

static void who_has_given_up_runs_nothing(void **state)
{
	(void)state;
	assert_int_equal(save(getpid()), ESTALE);
	withdraw(getpid());
	assert_false(look_up(getpid(), &ctl));
	assert_int_equal(ran(), 0);
	assert_int_equal(save(getpid()), ESTALE);
	assert_int_equal(ran(), 0);
}

/* A thread of the kernel would pass ESTALE on. */
static void the_kernel_itself_waits(void **state)
{
	const pid_t kthreadd = 2;

	(void)state;
	assert_false(sbx_holders_kernel(getpid()));
	if (!sbx_holders_kernel(kthreadd))
		skip(); /* not to be seen in here */
	assert_int_equal(save(kthreadd), 0);
	assert_int_equal(ran(), 1);
}

static int answered = -1;

static void note_answer(struct sbx_pending *p, int errnum)
{
	assert_null(p->cancel);
	answered = errnum;
}

/* Whoever cancels on the loop thread would find it gone otherwise. */
static void what_ends_at_once_was_never_cancellable(void **state)
{
	static const struct sbx_pending_impl impl = {.error = note_answer};
	struct sbx_pending p = {.impl = &impl};
	struct sbx_control_node timeout;

	(void)state;
	answered = -1;
	assert_int_equal(find("timeout_ms", &timeout), 0);
	sbx_control_save(registry_fixture.registry, &timeout, memcpy(malloc(5), "5000", 4), 4, &p);
	sbx_control_node_release(&timeout);
	assert_int_equal(answered, 0);
	assert_ptr_equal(p.impl, &impl);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(the_repeated_walk_carries_it_out_once, set_up_saves,
	                                        tear_down_saves),
	        cmocka_unit_test_setup_teardown(without_a_walk_the_second_rename_does, set_up_saves,
	                                        tear_down_saves),
	        cmocka_unit_test_setup_teardown(lookups_of_others_and_elsewhere_do_nothing,
	                                        set_up_saves, tear_down_saves),
	        cmocka_unit_test_setup_teardown(who_has_given_up_runs_nothing, set_up_saves,
	                                        tear_down_saves),
	        cmocka_unit_test_setup_teardown(what_ends_at_once_was_never_cancellable,
	                                        set_up_saves, tear_down_saves),
	        cmocka_unit_test_setup_teardown(the_kernel_itself_waits, set_up_saves,
	                                        tear_down_saves),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
