/*
 * The hooks see every message of the connection, but act on the first request and its answer only.
 * A worker of libfuse waits in read(2) on the device; a session that is told to end is noticed by
 * interrupting that read, which a signal without SA_RESTART does.
 */
#include "fs/fuse/session.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"

#define NOTIFY_INC_EPOCH 8 /* FUSE_NOTIFY_INC_EPOCH, protocol 7.44 */
#define AGREED           (FUSE_HANDLE_KILLPRIV_V2 | FUSE_PARALLEL_DIROPS)

extern char **environ;

/*
 * The one channel whose INIT is being watched. Set before its session starts; libfuse gives the
 * hooks nothing but the session's user data.
 */
static struct sbx_channel *_Atomic watched;
/* Of what we agree on; used by the thread that answers INIT only. */
static uint32_t offered;

static ssize_t hook_read(int fd, void *buf, size_t len, void *userdata)
{
	ssize_t n = read(fd, buf, len);
	const struct fuse_in_header *h = buf;

	(void)userdata;
	if (atomic_load(&watched) && n >= (ssize_t)(sizeof(*h) + 16) && h->opcode == FUSE_INIT) {
		struct fuse_init_in in = {0};
		size_t body = (size_t)n - sizeof(*h);

		memcpy(&in, h + 1, body < sizeof(in) ? body : sizeof(in));
		offered = in.flags & AGREED;
	}
	return n;
}

static ssize_t hook_writev(int fd, struct iovec *iov, int count, void *userdata)
{
	struct sbx_channel *ch = atomic_load(&watched);

	(void)userdata;
	if (ch && count == 2 && iov[1].iov_len >= offsetof(struct fuse_init_out, max_write)) {
		struct fuse_init_out *out = iov[1].iov_base;

		if (out->major == FUSE_KERNEL_VERSION)
			out->flags |= offered;
		atomic_store(&watched, NULL);
	}
	return writev(fd, iov, count);
}

static ssize_t hook_splice(int in, off_t *in_off, int out, off_t *out_off, size_t len,
                           unsigned flags, void *userdata)
{
	(void)userdata;
	return splice(in, in_off, out, out_off, len, flags);
}

static const struct fuse_custom_io hooks = {
        .read = hook_read, .writev = hook_writev, .splice_send = hook_splice};

static int add_option(struct fuse_args *args, const char *key, const char *value)
{
	_cleanup_free_ char *opt = NULL;
	_cleanup_free_ char *escaped = NULL;
	size_t n = 0;

	/* In an option a comma or backslash of a path is escaped. */
	escaped = malloc(2 * strlen(value) + 1);
	if (!escaped)
		return -ENOMEM;
	for (const char *c = value; *c; c++) {
		if (*c == ',' || *c == '\\')
			escaped[n++] = '\\';
		escaped[n++] = *c;
	}
	escaped[n] = '\0';
	if (asprintf(&opt, "-o%s%s", key, escaped) < 0) {
		opt = NULL;
		return -ENOMEM;
	}
	return fuse_opt_add_arg(args, opt) < 0 ? -ENOMEM : 0;
}

static int mount_options(struct fuse_args *args, const struct sbx_channel_config *config)
{
	int r = fuse_opt_add_arg(args, "sandboxfs") < 0 ? -ENOMEM : 0;

	if (r == 0)
		r = add_option(args, "fsname=", config->fsname);
	if (r == 0)
		r = add_option(args, "", "subtype=sandboxfs");
	/* The kernel's checks take a GETATTR before every open of what is never cached and every
	 * change of a directory. */
	if (r == 0 && (config->allow_other || !config->own_checks))
		r = add_option(args, "", "default_permissions");
	if (r == 0)
		r = add_option(args, "", "nosuid");
	if (r == 0)
		r = add_option(args, "", "nodev");
	if (r == 0 && config->allow_other)
		r = add_option(args, "", "allow_other");
	for (size_t i = 0; r == 0 && config->options && i < config->options->n; i++)
		r = add_option(args, "", config->options->items[i]);
	return r;
}

int sbx_channel_open(struct sbx_channel *ch, const struct sbx_channel_config *config,
                     struct sbx_error *err)
{
	struct fuse_args args = FUSE_ARGS_INIT(0, NULL);
	int r = mount_options(&args, config);

	assert(!ch->session && !ch->mountpoint);
	ch->mountpoint = strdup(config->mountpoint);
	if (r == 0 && ch->mountpoint) {
		ch->session =
		        fuse_session_new(&args, config->ops, config->ops_size, config->userdata);
		if (!ch->session)
			r = -EINVAL;
	}
	fuse_opt_free_args(&args);
	if (r < 0 || !ch->mountpoint)
		return sbx_fail(err, r < 0 ? -r : ENOMEM, "the FUSE session cannot be made");
	if (fuse_session_mount(ch->session, config->mountpoint) < 0) {
		fuse_session_destroy(ch->session);
		ch->session = NULL;
		return sbx_fail(err, EPERM,
		                "%s cannot be mounted; sandboxfs --doctor tells what is missing",
		                config->mountpoint);
	}
	if (config->agree &&
	    fuse_session_custom_io(ch->session, &hooks, fuse_session_fd(ch->session)) == 0)
		atomic_store(&watched, ch);
	return 0;
}

static void *serve(void *data)
{
	struct sbx_channel *ch = data;
	struct fuse_loop_config *config = fuse_loop_cfg_create();

	if (config) {
		fuse_loop_cfg_set_clone_fd(config, 0);
		fuse_loop_cfg_set_max_threads(config, 10);
		fuse_loop_cfg_set_idle_threads(config, 10);
		fuse_session_loop_mt(ch->session, config);
		fuse_loop_cfg_destroy(config);
	}
	if (ch->ended)
		ch->ended(ch->data);
	return NULL;
}

int sbx_channel_start(struct sbx_channel *ch)
{
	int r = pthread_create(&ch->thread, NULL, serve, ch);

	assert(ch->session && !ch->started);
	ch->started = r == 0;
	return -r;
}

static void handle_nudge(int sig)
{
	(void)sig;
}

/* Interrupts every thread's read, again and again until the session's thread has ended. */
static void join_nudging(pthread_t thread)
{
	struct sigaction sa = {.sa_handler = handle_nudge};
	struct timespec until;

	sigaction(SIGUSR1, &sa, NULL);
	for (;;) {
		_cleanup_dir_ DIR *dir = NULL;
		struct dirent *d;

		until = sbx_clock_after(CLOCK_REALTIME, 20000000);
		if (pthread_timedjoin_np(thread, NULL, &until) == 0)
			return;
		dir = opendir("/proc/self/task");
		while (dir && (d = readdir(dir)))
			if (atoi(d->d_name) > 0 && atoi(d->d_name) != gettid())
				syscall(SYS_tgkill, getpid(), atoi(d->d_name), SIGUSR1);
	}
}

void sbx_channel_unmount(struct sbx_channel *ch)
{
	if (ch->session && !ch->unmounted && sbx_mounted(ch->mountpoint) == 1)
		sbx_unmount(ch->mountpoint);
	ch->unmounted = true;
}

void sbx_channel_stop(struct sbx_channel *ch)
{
	if (!ch->started)
		return;
	assert(ch->unmounted);
	fuse_session_exit(ch->session);
	join_nudging(ch->thread);
	ch->started = false;
}

/*
 * Frees what libfuse keeps of the mount. Its way is fuse_session_unmount, which would also take
 * away whatever is mounted at the place by now, unless poll(2) says that the connection is dead: so
 * it gets a descriptor that says so, which closes the device as well.
 */
static void release_mount(struct fuse_session *session)
{
	int p[2];

	if (pipe2(p, O_CLOEXEC) < 0)
		return;
	close(p[0]);
	dup3(p[1], fuse_session_fd(session), O_CLOEXEC);
	close(p[1]);
	fuse_session_unmount(session);
}

void sbx_channel_close(struct sbx_channel *ch)
{
	sbx_channel_unmount(ch);
	sbx_channel_stop(ch);
	if (ch->session) {
		release_mount(ch->session);
		fuse_session_destroy(ch->session);
	}
	ch->session = NULL;
	free(ch->mountpoint);
	ch->mountpoint = NULL;
}

#ifdef HAVE_PASSTHROUGH

/* Not by fuse_passthrough_open: it writes every refusal to stderr and keeps its errno. */
int sbx_channel_back(struct sbx_channel *ch, int fd)
{
	struct fuse_backing_map map = {.fd = fd};
	int id = ioctl(fuse_session_fd(ch->session), FUSE_DEV_IOC_BACKING_OPEN, &map);

	return id < 0 ? -errno : id;
}

void sbx_channel_unback(struct sbx_channel *ch, int id)
{
	uint32_t number = (uint32_t)id;

	if (ch->session)
		ioctl(fuse_session_fd(ch->session), FUSE_DEV_IOC_BACKING_CLOSE, &number);
}

#else

int sbx_channel_back(struct sbx_channel *ch, int fd)
{
	(void)ch;
	(void)fd;
	return -EOPNOTSUPP;
}

void sbx_channel_unback(struct sbx_channel *ch, int id)
{
	(void)ch;
	(void)id;
}

#endif

int sbx_channel_epoch(struct sbx_channel *ch)
{
	struct fuse_out_header h = {.len = sizeof(h), .error = NOTIFY_INC_EPOCH};

	return write(fuse_session_fd(ch->session), &h, sizeof(h)) < 0 ? -errno : 0;
}

void sbx_channel_forget_attr(struct sbx_channel *ch, uint64_t ino)
{
	fuse_lowlevel_notify_inval_inode(ch->session, ino, -1, 0);
}

void sbx_channel_forget(struct sbx_channel *ch, uint64_t ino)
{
	struct {
		struct fuse_out_header h;
		struct fuse_notify_inval_inode_out inode;
	} m = {
	        .h = {.len = sizeof(m), .error = FUSE_NOTIFY_INVAL_INODE},
	        .inode = {.ino = ino},
	};

	/* Refused when the kernel knows no such node (any more). */
	if (write(fuse_session_fd(ch->session), &m, sizeof(m)) < 0)
		return;
}

/* Undoes the \ooo of mountinfo in place. */
static void unescape(char *s)
{
	char *out = s;

	for (; *s; s++) {
		if (*s == '\\' && s[1] && s[2] && s[3]) {
			*out++ = (char)((s[1] - '0') * 64 + (s[2] - '0') * 8 + (s[3] - '0'));
			s += 3;
		} else {
			*out++ = *s;
		}
	}
	*out = '\0';
}

/* One line of mountinfo, as far as it matters here. */
struct mount_line {
	dev_t dev;
	const char *at; /* in the line */
	bool ours;
};

static bool parse_mount(char *line, struct mount_line *ret)
{
	char *save, *at = NULL, *tok = strtok_r(line, " ", &save);
	unsigned int numbers[2] = {0, 0};

	for (int i = 0; tok && i < 4; i++) {
		at = tok = strtok_r(NULL, " ", &save);
		if (i == 1 && tok && sscanf(tok, "%u:%u", &numbers[0], &numbers[1]) != 2)
			return false;
	}
	if (!at || !save)
		return false;
	unescape(at);
	*ret = (struct mount_line){.dev = makedev(numbers[0], numbers[1]),
	                           .at = at,
	                           .ours = strstr(save, " - fuse.sandboxfs ") != NULL};
	return true;
}

/* Calls FN for each mount of this namespace, those on top last. 0 or -errno. */
static int each_mount(void (*fn)(const struct mount_line *m, void *data), void *data)
{
	_cleanup_file_ FILE *f = fopen("/proc/self/mountinfo", "re");
	_cleanup_free_ char *line = NULL;
	struct mount_line m;
	size_t cap = 0;

	if (!f)
		return -errno;
	while (getline(&line, &cap, f) > 0)
		if (parse_mount(line, &m))
			fn(&m, data);
	return ferror(f) ? -errno : 0;
}

struct mount_search {
	const char *path;
	dev_t dev;
	int found;
};

static void find_at(const struct mount_line *m, void *data)
{
	struct mount_search *s = data;

	if (strcmp(m->at, s->path) != 0)
		return;
	s->found = m->ours ? 1 : 2;
	s->dev = m->dev;
}

static void find_device(const struct mount_line *m, void *data)
{
	struct mount_search *s = data;

	if (m->dev == s->dev)
		s->found = 1;
}

int sbx_mounted(const char *path)
{
	struct mount_search s = {.path = path};
	int r = each_mount(find_at, &s);

	return r < 0 ? r : s.found;
}

dev_t sbx_mount_device(const char *path)
{
	struct mount_search s = {.path = path};

	return each_mount(find_at, &s) == 0 && s.found == 1 ? s.dev : 0;
}

int sbx_device_mounted(dev_t dev)
{
	struct mount_search s = {.dev = dev};
	int r = each_mount(find_device, &s);

	return r < 0 ? r : s.found;
}

int sbx_unmount(const char *path)
{
	char *argv[] = {"fusermount3", "-u", "-z", "-q", "--", (char *)(uintptr_t)path, NULL};
	int status;
	pid_t pid;
	int r;

	if (geteuid() == 0)
		return umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW) < 0 ? -errno : 0;
	r = posix_spawnp(&pid, argv[0], NULL, NULL, argv, environ);
	if (r)
		return -r;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return status == 0 ? 0 : -EPERM;
}
