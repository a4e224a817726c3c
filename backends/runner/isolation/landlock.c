/*
 * The numbers are our own, as the C library's headers are often older than the kernel: each ABI
 * brought a right or two, and a kernel refuses rights it does not know.
 */
#include "backends/runner/isolation/landlock.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "backends/runner/isolation/request.h"
#include "backends/runner/isolation/settings.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/system_dirs.h"

#define FS_EXECUTE    (UINT64_C(1) << 0)
#define FS_WRITE_FILE (UINT64_C(1) << 1)
#define FS_READ_FILE  (UINT64_C(1) << 2)
#define FS_READ_DIR   (UINT64_C(1) << 3)
#define FS_TRUNCATE   (UINT64_C(1) << 14)
#define FS_IOCTL_DEV  (UINT64_C(1) << 15)
#define FS_CONNECT    (UINT64_C(1) << 16) /* to a socket that was made outside */
#define FS_OF_FILES                                                                                \
	(FS_EXECUTE | FS_WRITE_FILE | FS_READ_FILE | FS_TRUNCATE | FS_IOCTL_DEV | FS_CONNECT)
#define FS_ALL       UINT64_MAX
#define FS_RO        (FS_EXECUTE | FS_READ_FILE | FS_READ_DIR)
#define FS_DEV       (FS_OF_FILES & ~FS_EXECUTE)
#define NET_TCP      (UINT64_C(3))
#define SCOPE_SOCKET (UINT64_C(1) << 0)
#define SCOPE_SIGNAL (UINT64_C(1) << 1)
#define ABI_NET      4
#define ABI_SCOPE    6
#define ABI_CONNECT  9
#define RULE_PATH    1
#define VERSION      1U

struct ruleset {
	uint64_t fs, net, scoped;
};

struct path_rule {
	uint64_t allowed;
	int32_t fd;
} __attribute__((packed));

int landlock_abi(void)
{
	long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, VERSION);

	return abi < 0 ? 0 : (int)abi;
}

bool landlock_closes_sockets(int abi)
{
	return abi >= ABI_CONNECT;
}

/* All rights that files have in ABI. */
static uint64_t rights(int abi)
{
	static const int last_bit[] = {0, 12, 13, 14, 14, 15, 15, 15, 15, 16};
	int i = abi < (int)SBX_ARRAY_SIZE(last_bit) ? abi : (int)SBX_ARRAY_SIZE(last_bit) - 1;

	return (UINT64_C(2) << last_bit[i]) - 1;
}

struct maker {
	const struct landlock_options *options;
	int fd;
	int error; /* negative: the first */
};

/*
 * Allows ALLOWED below PATH. A path that does not exist, or cannot be reached anyhow, is left
 * out.
 */
static void allow(struct maker *m, const char *path, uint64_t allowed)
{
	struct path_rule rule = {.allowed = allowed & rights(m->options->abi)};
	_cleanup_fd_ int fd = open(path, O_PATH | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || m->error) {
		if (!m->error && errno != ENOENT && errno != EACCES && errno != ENOTDIR)
			m->error = -errno;
		return;
	}
	if (fstat(fd, &st) == 0 && !S_ISDIR(st.st_mode))
		rule.allowed &= FS_OF_FILES;
	rule.fd = fd;
	if (syscall(SYS_landlock_add_rule, m->fd, RULE_PATH, &rule, 0) < 0)
		m->error = -errno;
}

static void allow_list(struct maker *m, char *const *paths, size_t n, uint64_t allowed)
{
	for (size_t i = 0; i < n; i++)
		allow(m, paths[i], allowed);
}

/* All that a view of its own shows is there to be read. */
static void allow_view(struct maker *m)
{
	allow(m, "/", FS_RO);
	allow(m, "/dev", FS_DEV | FS_READ_DIR);
	allow(m, "/dev/shm", FS_ALL);
	allow(m, "/tmp", FS_ALL);
	allow(m, m->options->req->view, FS_ALL);
}

/* On the host's what a view would show; what is private to others there is no business of ours. */
static void allow_host(struct maker *m)
{
	static const char *const nodes[] = {"/dev/null",   "/dev/zero",    "/dev/full",
	                                    "/dev/random", "/dev/urandom", "/dev/tty"};
	const struct sbx_strings *ro = &m->options->settings->ro_paths;
	const struct sbx_strings *shown = &m->options->settings->shown;

	for (const char *const *dir = sbx_system_dirs; *dir; dir++)
		allow(m, *dir, FS_RO);
	allow(m, "/proc", FS_RO);
	for (size_t i = 0; i < SBX_ARRAY_SIZE(nodes); i++)
		allow(m, nodes[i], FS_DEV);
	allow_list(m, ro->items, ro->n, FS_RO);
	allow_list(m, shown->items, shown->n, FS_RO);
}

static int begin(const struct landlock_options *options)
{
	struct ruleset set = {.fs = rights(options->abi)};
	/* An older kernel takes a longer struct as long as the rest is zero, but not much longer.
	 */
	size_t size = options->abi >= ABI_SCOPE ? sizeof(set)
	              : options->abi >= ABI_NET ? offsetof(struct ruleset, scoped)
	                                        : offsetof(struct ruleset, net);
	int fd;

	if (options->no_tcp && options->abi >= ABI_NET)
		set.net = NET_TCP;
	if (options->abi >= ABI_SCOPE)
		set.scoped = SCOPE_SIGNAL | (options->no_abstract ? SCOPE_SOCKET : 0);
	fd = (int)syscall(SYS_landlock_create_ruleset, &set, size, 0);
	return fd < 0 ? -errno : fd;
}

int landlock_make(const struct landlock_options *options)
{
	_cleanup_fd_ int fd = begin(options);
	struct maker m = {.options = options, .fd = fd};
	const struct sbx_strings *rw = &options->settings->rw_paths;

	if (fd < 0)
		return fd;
	if (options->own_view)
		allow_view(&m);
	else
		allow_host(&m);
	allow(&m, options->req->workdir, FS_ALL);
	allow_list(&m, options->req->ro, options->req->cmd.n_ro, FS_RO);
	allow_list(&m, options->req->rw, options->req->cmd.n_rw, FS_ALL);
	allow_list(&m, rw->items, rw->n, FS_ALL);
	return m.error ? m.error : sbx_steal_fd(&fd);
}

int landlock_enforce(int ruleset)
{
	return (int)syscall(SYS_landlock_restrict_self, ruleset, 0);
}
