/* The kernel and a connection agree on parallel requests for one directory: on a mount. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <dirent.h>
#include <fuse_lowlevel.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/stat.h>

#include "fs/fuse/session.h"
#include "sandboxfs/clock.h"
#include "tests/lib/scratch.h"

#define LONG_NS UINT64_C(20000000000) /* longer than a loaded machine keeps an answer back */

static struct sbx_channel channel;
static sem_t kept, quick;
static fuse_req_t _Atomic slow; /* the request that is kept; whoever takes it answers it */

static void keep(fuse_req_t req)
{
	atomic_store(&slow, req);
	sem_post(&kept);
}

static void init(void *userdata, struct fuse_conn_info *conn)
{
	(void)userdata;
	/* What passes is seen by read(2) and writev(2) only. */
	conn->want &= ~(unsigned)FUSE_CAP_SPLICE_READ;
	conn->want |= conn->capable & FUSE_CAP_PARALLEL_DIROPS;
}

static void lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	const struct fuse_entry_param e = {
	        .ino = 2,
	        .attr = {.st_ino = 2, .st_mode = S_IFREG | 0644, .st_nlink = 1},
	        .attr_timeout = 3600,
	};

	(void)parent;
	if (!strcmp(name, "slow"))
		keep(req);
	else
		fuse_reply_entry(req, &e);
}

static void getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	const struct stat st = {.st_ino = ino, .st_mode = S_IFDIR | 0755, .st_nlink = 2};

	(void)fi;
	fuse_reply_attr(req, &st, 3600);
}

static void readdir_kept(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                         struct fuse_file_info *fi)
{
	(void)ino;
	(void)size;
	(void)off;
	(void)fi;
	keep(req);
}

static const struct fuse_lowlevel_ops ops = {
        .init = init, .lookup = lookup, .getattr = getattr, .readdir = readdir_kept};

static int setup(void **state)
{
	struct sbx_channel_config config = {.mountpoint = scratch_make(),
	                                    .fsname = "test",
	                                    .agree = true,
	                                    .ops = &ops,
	                                    .ops_size = sizeof(ops)};

	sem_init(&kept, 0, 0);
	sem_init(&quick, 0, 0);
	channel = (struct sbx_channel){0};
	*state = NULL;
	if (access("/dev/fuse", R_OK | W_OK) < 0)
		return 0;
	if (sbx_channel_open(&channel, &config, NULL) < 0)
		return 0;
	*state = &channel;
	return sbx_channel_start(&channel);
}

static int teardown(void **state)
{
	(void)state;
	sbx_channel_close(&channel);
	scratch_remove();
	return 0;
}

static void *stat_slow(void *data)
{
	struct stat st;

	(void)data;
	stat(scratch_path("slow"), &st);
	return NULL;
}

static void *list_slow(void *data)
{
	DIR *dir = opendir(data);

	if (dir) {
		readdir(dir);
		closedir(dir);
	}
	return NULL;
}

static void *stat_quick(void *data)
{
	struct stat st;

	if (stat(data, &st) == 0)
		sem_post(&quick);
	return NULL;
}

/* While what WAITER asks for is kept back, a name in the same directory is looked up. */
static void held_up_by_none(void *(*waiter)(void *data))
{
	const struct timespec until = sbx_clock_after(CLOCK_REALTIME, LONG_NS);
	pthread_t one, other;
	int r;

	assert_int_equal(pthread_create(&one, NULL, waiter, (void *)scratch_path(".")), 0);
	sem_wait(&kept);
	assert_int_equal(pthread_create(&other, NULL, stat_quick, (void *)scratch_path("quick")),
	                 0);
	r = sem_timedwait(&quick, &until);
	fuse_reply_err(atomic_load(&slow), ENOENT);
	pthread_join(one, NULL);
	pthread_join(other, NULL);
	assert_int_equal(r, 0);
}

static void a_lookup_that_waits_holds_up_no_other(void **state)
{
	if (!*state)
		skip_because("nothing can be mounted here");
	held_up_by_none(stat_slow);
}

static void a_listing_that_waits_holds_up_no_lookup(void **state)
{
	if (!*state)
		skip_because("nothing can be mounted here");
	held_up_by_none(list_slow);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(a_lookup_that_waits_holds_up_no_other, setup,
	                                        teardown),
	        cmocka_unit_test_setup_teardown(a_listing_that_waits_holds_up_no_lookup, setup,
	                                        teardown),
	};

	return cmocka_run_group_tests_name("session", tests, NULL, NULL);
}
