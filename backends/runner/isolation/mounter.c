/*
 * The process in the room. It mounts by the new mount calls, so that the tree's root is a
 * descriptor before it has a place, and attaches it, so that views can be given copies of it on
 * kernels that copy only what is attached.
 */
#include "backends/runner/isolation/mounter.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "backends/runner/isolation/mounter_impl.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/descriptors.h"

#define PATH_SIZE 320
#define TRIES     50
#define PAUSE_NS  20000000

static_assert(PATH_SIZE >=
                      sizeof("/disks//git/repo") + sizeof(((struct mounter_request *)NULL)->id),
              "a place has any name");

/* Others of the user's may have all descriptors under way that there may be. Somebody waits for an
 * answer, be it that. */
static void tell(int sock, int r, const char *what, int fd)
{
	const struct timespec pause = {.tv_nsec = PAUSE_NS};
	struct mounter_answer answer = {.error = r < 0 ? -r : 0};
	int sent;

	snprintf(answer.what, sizeof(answer.what), "%s", r < 0 ? what : "");
	for (int i = 0; (sent = sbx_send_fds(sock, &answer, sizeof(answer), &fd, fd >= 0, 0)) ==
	                        -ETOOMANYREFS &&
	                i < TRIES;
	     i++)
		nanosleep(&pause, NULL);
	if (!sent || fd < 0)
		return;
	answer = (struct mounter_answer){.error = EAGAIN, .what = "descriptors under way"};
	if (sbx_send_fds(sock, &answer, sizeof(answer), NULL, 0, 0))
		_exit(1);
}

/* --- mounting ------------------------------------------------------------------------------------
 */

static int set(int fs, const char *key, const char *value)
{
	return fsconfig(fs, value ? FSCONFIG_SET_STRING : FSCONFIG_SET_FLAG, key, value, 0) < 0
	               ? -errno
	               : 0;
}

/*
 * Off, whatever the kernel was built with: an index and metadata-only copies tie an upper layer to
 * the very inodes of its base. A directory of the base can be renamed only where the overlay may
 * use trusted attributes.
 */
static int configure(int fs, const struct mounter_request *req, bool trusted)
{
	char lower[PATH_SIZE], upper[PATH_SIZE], work[PATH_SIZE];
	const char *const options[][2] = {
	        {"lowerdir", lower}, {"upperdir", upper}, {"workdir", work},      {"index", "off"},
	        {"xino", "auto"},    {"metacopy", "off"}, {"redirect_dir", "on"},
	};
	int r = 0;

	snprintf(lower, sizeof(lower), "/bases/%s/tree", req->base);
	snprintf(upper, sizeof(upper), "/disks/%s/upper", req->id);
	snprintf(work, sizeof(work), "/disks/%s/work", req->id);
	if (access(upper, F_OK) < 0) {
		snprintf(upper, sizeof(upper), "/trees/%s/upper", req->id);
		snprintf(work, sizeof(work), "/trees/%s/work", req->id);
	}
	for (size_t i = 0; i < SBX_ARRAY_SIZE(options) - !trusted && !r; i++)
		r = set(fs, options[i][0], options[i][1]);
	if (!r && !trusted)
		r = set(fs, "userxattr", NULL);
	if (!r && fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		r = -errno;
	return r;
}

static int mount_overlay(const struct mounter_request *req, bool trusted)
{
	_cleanup_fd_ int fs = fsopen("overlay", FSOPEN_CLOEXEC);
	int r = fs < 0 ? -errno : configure(fs, req, trusted);
	int fd;

	if (r)
		return r;
	fd = fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
	return fd < 0 ? -errno : fd;
}

static void place_of(const char *where, const char *id, char place[PATH_SIZE])
{
	snprintf(place, PATH_SIZE, "/%s/%s", where, id);
}

static void detach(const char *where, const char *id)
{
	char place[PATH_SIZE];

	place_of(where, id, place);
	umount2(place, MNT_DETACH);
	rmdir(place);
}

static int attach(int tree, const char *where, const char *id)
{
	char place[PATH_SIZE];

	place_of(where, id, place);
	if (mkdir(place, 0700) < 0)
		return -errno;
	return move_mount(tree, "", AT_FDCWD, place, MOVE_MOUNT_F_EMPTY_PATH) < 0 ? -errno : 0;
}

/* Whether the kernel lets us use trusted attributes: root of the host may. Of what was mounted
 * first. */
static int mount_tree(const struct mounter_request *req)
{
	static bool userxattr;
	int tree, r;

	detach("mnt", req->id);
	tree = userxattr ? -EPERM : mount_overlay(req, true);
	if (tree == -EPERM) {
		tree = mount_overlay(req, false);
		userxattr = userxattr || tree >= 0;
	}
	if (tree < 0)
		return tree;
	r = attach(tree, "mnt", req->id);
	if (r < 0) {
		close(tree);
		return r;
	}
	return tree;
}

/* --- disks
 * ----------------------------------------------------------------------------------------- */

static int set_size(int fs, uint64_t mb)
{
	char text[32];
	int r;

	snprintf(text, sizeof(text), "%lluM", (unsigned long long)mb);
	r = set(fs, "size", text);
	/* Names take kernel memory that the size does not count. */
	snprintf(text, sizeof(text), "%llu", (unsigned long long)mb * 256 + 64);
	return r ? r : set(fs, "nr_inodes", text);
}

static int mount_disk(const struct mounter_request *req)
{
	_cleanup_fd_ int fs = fsopen("tmpfs", FSOPEN_CLOEXEC);
	int r = fs < 0 ? -errno : set_size(fs, req->mb), disk;

	if (!r)
		r = set(fs, "mode", "0700");
	if (!r && fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		r = -errno;
	if (r)
		return r;
	disk = fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
	if (disk < 0)
		return -errno;
	detach("disks", req->id);
	r = attach(disk, "disks", req->id);
	if (r < 0) {
		close(disk);
		return r;
	}
	return disk;
}

static int resize_disk(const struct mounter_request *req)
{
	char place[PATH_SIZE];
	_cleanup_fd_ int fs = -1;
	int r;

	place_of("disks", req->id, place);
	fs = fspick(AT_FDCWD, place, FSPICK_CLOEXEC);
	r = fs < 0 ? -errno : set_size(fs, req->mb);
	if (!r && fsconfig(fs, FSCONFIG_CMD_RECONFIGURE, NULL, NULL, 0) < 0)
		r = -errno;
	return r;
}

/* --- the room
 * -------------------------------------------------------------------------------------- */

static int bring(int src, const char *name)
{
	_cleanup_fd_ int tree =
	        open_tree(src, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);

	if (tree < 0 || mkdir(name, 0700) < 0)
		return -errno;
	return move_mount(tree, "", AT_FDCWD, name, MOVE_MOUNT_F_EMPTY_PATH) < 0 ? -errno : 0;
}

static int furnish(const char *bases, const char *trees)
{
	_cleanup_fd_ int base_fd = -1, trees_fd = -1;
	int r;

	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return -errno;
	base_fd = open(bases, O_PATH | O_DIRECTORY | O_CLOEXEC);
	trees_fd = open(trees, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (base_fd < 0 || trees_fd < 0 ||
	    mount("room", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=0700") < 0 ||
	    chdir("/tmp") < 0)
		return -errno;
	r = bring(base_fd, "bases");
	if (!r)
		r = bring(trees_fd, "trees");
	if (r)
		return r;
	if (mkdir("mnt", 0700) < 0 || mkdir("disks", 0700) < 0 || mkdir(".old", 0700) < 0 ||
	    syscall(SYS_pivot_root, ".", ".old") < 0 || chdir("/") < 0 ||
	    umount2("/.old", MNT_DETACH) < 0 || rmdir("/.old") < 0)
		return -errno;
	return 0;
}

static int carry_out(const struct mounter_request *req)
{
	switch (req->verb) {
	case MOUNTER_MOUNT:
		return mount_tree(req);
	case MOUNTER_DISK:
		return mount_disk(req);
	case MOUNTER_RESIZE:
		return resize_disk(req);
	default:
		detach("mnt", req->id);
		detach("disks", req->id);
		return 0;
	}
}

static _Noreturn void serve(int sock)
{
	struct mounter_request req;

	while (recv(sock, &req, sizeof(req), 0) == (ssize_t)sizeof(req)) {
		const bool opens = req.verb == MOUNTER_MOUNT || req.verb == MOUNTER_DISK;
		int r = carry_out(&req);

		tell(sock, r, "overlay", opens ? r : -1);
		if (opens && r >= 0)
			close(r);
	}
	_exit(0);
}

static _Noreturn void mounter_main(int sock, int parent, pid_t spawner, const char *bases,
                                   const char *trees)
{
	int ns, r;

	prctl(PR_SET_NAME, "sandboxfs-room", 0, 0, 0);
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	if (getppid() != spawner)
		_exit(1);
	/* 0 to 2 lead to /dev/null; what else is open is the spawner's. */
	if (dup3(sock, 3, O_CLOEXEC) < 0 || dup3(parent, 4, O_CLOEXEC) < 0)
		_exit(1);
	close_range(5, ~0U, 0);
	umask(0);
	ns = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
	r = ns < 0 ? -errno : furnish(bases, trees);
	tell(4, r, "room", r ? -1 : ns);
	tell(3, r, "a mount namespace for trees", -1);
	close(4);
	close(ns);
	if (r)
		_exit(1);
	serve(3);
}

static int receive_namespace(int sock)
{
	struct mounter_answer answer;
	int fd;
	const ssize_t n = sbx_receive_fds(sock, &answer, sizeof(answer), &fd, 1, 0);

	if (n != (ssize_t)sizeof(answer))
		return n < 0 ? (int)n : -ESRCH;
	if (answer.error || fd < 0)
		return answer.error ? -answer.error : -EMFILE;
	return fd;
}

int mounter_start(int sock, const char *bases, const char *trees)
{
	const pid_t spawner = getpid();
	int pair[2], r;
	pid_t pid;

	/* Away from the numbers that the child gives to its own. */
	_cleanup_fd_ int moved = fcntl(sock, F_DUPFD_CLOEXEC, 16);

	if (moved < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	pid = (pid_t)syscall(SYS_clone, (unsigned long)(CLONE_NEWNS | SIGCHLD), NULL, NULL, NULL,
	                     0UL);
	if (pid == 0)
		mounter_main(moved, pair[1], spawner, bases, trees);
	r = pid < 0 ? -errno : 0;
	close(pair[1]);
	if (r < 0)
		tell(sock, r, "a process for trees", -1);
	else
		r = receive_namespace(pair[0]);
	close(pair[0]);
	return r;
}

static int take(const char *place)
{
	int tree = open_tree(AT_FDCWD, place, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);

	return tree < 0 ? -errno : tree;
}

int mounter_take(int mounter, int own, const char *id)
{
	char place[PATH_SIZE];
	int tree;

	place_of("mnt", id, place);
	if (setns(mounter, CLONE_NEWNS) < 0)
		return -errno;
	tree = take(place);
	if (setns(own, CLONE_NEWNS) < 0) {
		int r = -errno;

		sbx_cleanup_fd(&tree);
		return r;
	}
	return tree;
}

static const char *const disk_places[DISK_PLACES] = {
        [DISK_HOME] = "home", [DISK_REPO] = "git/repo", [DISK_TMP] = "tmp", [DISK_SHM] = "shm"};

int mounter_take_disk(int mounter, int own, const char *id, int ret[DISK_PLACES])
{
	int r = 0;

	if (setns(mounter, CLONE_NEWNS) < 0)
		return -errno;
	for (int i = 0; i < DISK_PLACES && !r; i++) {
		char place[PATH_SIZE];

		snprintf(place, sizeof(place), "/disks/%s/%s", id, disk_places[i]);
		ret[i] = take(place);
		r = ret[i] < 0 && ret[i] != -ENOENT ? ret[i] : 0;
	}
	return setns(own, CLONE_NEWNS) < 0 ? -errno : r;
}
