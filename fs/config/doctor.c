/*
 * --doctor tries what a mount would need instead of guessing from versions. What changes a
 * process for good (namespaces, mounts) is tried in a child, which reports the first step
 * that failed and its errno through its exit status.
 */
#include "fs/config/doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fs/config/choice.h"
#include "fs/config/options.h"
#include "fs/config/paths.h"
#include "fs/config/settings.h"
#include "fs/config/toolchains.h"
#include "fs/fuse/passthrough.h"
#include "sandboxfs/cgroup.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/spawner.h"
#include "sandboxfs/state.h"

enum verdict { OK, NO, WARN };

static void say(enum verdict v, const char *what, const char *mend)
{
	static const char *const words[] = {"ok", "no", "warn"};

	printf("%-4s  %s%s%s\n", words[v], what, mend ? "  - " : "", mend ? mend : "");
}

/* Returns whether a mount would work. */
static bool check_fuse(void)
{
	_cleanup_fd_ int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);

	if (fd >= 0)
		say(OK, "/dev/fuse can be opened", NULL);
	else if (errno == ENOENT || errno == ENODEV || errno == ENXIO)
		say(NO, "/dev/fuse is missing",
		    "modprobe fuse; in a container: --device /dev/fuse");
	else
		say(NO, "/dev/fuse cannot be opened",
		    "chmod 666 /dev/fuse; in a container: --device /dev/fuse");
	return fd >= 0;
}

static bool find_program(const char *name, struct stat *st)
{
	const char *path = getenv("PATH");
	char full[4096];

	if (!path || !*path)
		path = "/usr/bin:/bin";
	while (*path) {
		int n = (int)strcspn(path, ":");

		snprintf(full, sizeof(full), "%.*s/%s", n, path, name);
		if (stat(full, st) == 0 && S_ISREG(st->st_mode) && access(full, X_OK) == 0)
			return true;
		path += n + (path[n] == ':');
	}
	return false;
}

static bool check_fusermount(void)
{
	struct stat st;

	if (geteuid() == 0) {
		say(OK, "mounting as root needs no fusermount3", NULL);
		return true;
	}
	if (!find_program("fusermount3", &st)) {
		say(NO, "fusermount3 is missing", "install the package fuse3");
		return false;
	}
	if (st.st_uid != 0 || !(st.st_mode & S_ISUID)) {
		say(WARN, "fusermount3 is not setuid root", "chown root, chmod u+s");
		return true;
	}
	say(OK, "fusermount3 is there", NULL);
	return true;
}

/*
 * Tells what a root made by hand (debootstrap, a plain chroot) is without. Returns whether a
 * mount would work.
 */
static bool check_root(void)
{
	bool proc = access("/proc/self/mountinfo", R_OK) == 0;

	if (!proc)
		say(NO, "/proc is not mounted", "mount -t proc proc /proc");
	/* fusermount3 reads it to learn whose mount it is to take away. */
	if (access("/etc/mtab", R_OK) < 0)
		say(geteuid() == 0 ? WARN : NO,
		    "/etc/mtab is missing, so fusermount3 -u refuses ordinary users",
		    "as root: ln -s ../proc/self/mounts /etc/mtab");
	return proc && (geteuid() == 0 || access("/etc/mtab", R_OK) == 0);
}

/* The probe child */

enum step { STEP_UNSHARE = 1, STEP_MAP, STEP_PRIVATE, STEP_OVERLAY };

static bool put_file(const char *path, const char *text)
{
	_cleanup_fd_ int fd = open(path, O_WRONLY | O_CLOEXEC);

	return fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
}

static bool map_self(uid_t uid, gid_t gid)
{
	char map[64];

	snprintf(map, sizeof(map), "%u %u 1\n", (unsigned)uid, (unsigned)uid);
	if (!put_file("/proc/self/setgroups", "deny") || !put_file("/proc/self/uid_map", map))
		return false;
	snprintf(map, sizeof(map), "%u %u 1\n", (unsigned)gid, (unsigned)gid);
	return put_file("/proc/self/gid_map", map);
}

/* DIR holds l, u, w and m. */
static bool mount_overlay(const char *dir)
{
	return chdir(dir) == 0 && mount("overlay", "m", "overlay", 0,
	                                "lowerdir=l,upperdir=u,workdir=w,userxattr") == 0;
}

static int probe_child(const char *dir)
{
	uid_t uid = geteuid();
	gid_t gid = getegid();

	if (unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID) < 0)
		return STEP_UNSHARE;
	if (!map_self(uid, gid))
		return STEP_MAP;
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return STEP_PRIVATE;
	return dir && mount_overlay(dir) ? 0 : STEP_OVERLAY;
}

static const char *const probe_dirs[] = {"l", "u", "w", "m"};

static bool make_probe_dirs(const char *dir)
{
	_cleanup_fd_ int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	bool made = fd >= 0;

	for (size_t i = 0; made && i < SBX_ARRAY_SIZE(probe_dirs); i++)
		made = mkdirat(fd, probe_dirs[i], 0700) == 0;
	return made;
}

static void remove_probe_dirs(const char *dir)
{
	_cleanup_fd_ int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd >= 0) {
		unlinkat(fd, "w/work", AT_REMOVEDIR); /* overlayfs made these */
		unlinkat(fd, "w/index", AT_REMOVEDIR);
		for (size_t i = 0; i < SBX_ARRAY_SIZE(probe_dirs); i++)
			unlinkat(fd, probe_dirs[i], AT_REMOVEDIR);
	}
	rmdir(dir);
}

/* The step that failed, 0 when all went well. */
static int probe(void)
{
	const char *tmp = getenv("TMPDIR");
	char dir[4096];
	int status = 0;
	bool made;
	pid_t pid;

	snprintf(dir, sizeof(dir), "%s/sandboxfs-doctor-XXXXXX",
	         tmp && tmp[0] == '/' ? tmp : "/tmp");
	made = mkdtemp(dir) && make_probe_dirs(dir);
	fflush(stdout);
	pid = fork();
	if (pid == 0)
		_exit(probe_child(made ? dir : NULL));
	if (pid < 0 || waitpid(pid, &status, 0) < 0 || !WIFEXITED(status))
		status = STEP_UNSHARE << 8;
	if (made)
		remove_probe_dirs(dir);
	return WEXITSTATUS(status);
}

static void check_namespaces(void)
{
	int failed = probe();

	if (failed && failed < STEP_OVERLAY) {
		say(WARN, "user namespaces cannot be used; weaker isolation", sbx_userns_mend());
		say(WARN, "overlayfs was not tried; sandboxes are full checkouts",
		    "needs user namespaces");
		return;
	}
	say(OK, "user, mount and pid namespaces", NULL);
	if (failed)
		say(WARN, "overlayfs in a user namespace; sandboxes are full checkouts",
		    "Linux 5.11 or newer, and state_dir on ext4, xfs, btrfs or tmpfs");
	else
		say(OK, "overlayfs in a user namespace", NULL);
}

static void check_landlock(void)
{
	long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
	char what[64];

	if (abi < 0) {
		say(WARN, "Landlock", "Linux 5.13 or newer with lsm=...,landlock at boot");
		return;
	}
	snprintf(what, sizeof(what), "Landlock, ABI %ld", abi);
	say(OK, what, NULL);
}

static void check_seccomp(void)
{
	unsigned action = SECCOMP_RET_ERRNO;

	if (syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0)
		say(OK, "seccomp filters", NULL);
	else
		say(WARN, "seccomp filters", "a kernel with CONFIG_SECCOMP_FILTER");
}

static const char *isolation_words(const char *mode)
{
	if (!strcmp(mode, "namespaces"))
		return "commands have namespaces, a view and a network of their own";
	if (!strcmp(mode, "landlock"))
		return "commands are held by Landlock and seccomp alone: they see the host's "
		       "system "
		       "and processes, and have no sockets and no /tmp";
	return "commands are not isolated from the host's files";
}

/* As a mount finds it: by the process that would run the commands, which tries. */
static bool check_isolation(void)
{
	const char *tmp = getenv("TMPDIR");
	struct sbx_settings settings = {.state_dir = (char *)(tmp && *tmp == '/' ? tmp : "/tmp")};
	struct json_object *policy, *iso, *mode, *reason = NULL, *uid;
	struct sbx_error err = SBX_ERROR_INIT;
	struct sbx_spawner *sp;
	char who[64];

	if (sbx_spawner_start(&settings, &sp, &err) < 0) {
		say(NO, "a mount that isolates commands", err.text);
		return false;
	}
	policy = json_object_new_object();
	sbx_spawner_policy(sp, policy);
	if (json_object_object_get_ex(policy, "isolation", &iso) &&
	    json_object_object_get_ex(iso, "mode", &mode) &&
	    json_object_object_get_ex(iso, "run_as", &uid)) {
		json_object_object_get_ex(iso, "reason", &reason);
		say(reason ? WARN : OK, isolation_words(json_object_get_string(mode)),
		    reason ? json_object_get_string(reason) : NULL);
		snprintf(who, sizeof(who), "commands run as uid %lld",
		         (long long)json_object_get_int64(uid));
		say(OK, who, NULL);
	}
	json_object_put(policy);
	sbx_spawner_stop(sp);
	return true;
}

static void check_passthrough(void)
{
	struct sbx_error err;

	if (sbx_passthrough_probe(&err) < 0)
		say(WARN, "FUSE passthrough; nothing else is missing without it", err.text);
	else
		say(OK, "FUSE passthrough (-o io=passthrough)", NULL);
}

static void check_cgroup(void)
{
	struct sbx_cgroup_features features;
	char what[256];

	sbx_cgroup_probe(&features);
	if (*features.reason) {
		snprintf(what, sizeof(what), "cgroups limit nothing: %s", features.reason);
		say(WARN, what, "systemd-run --user --scope -p Delegate=yes sandboxfs ...");
		return;
	}
	snprintf(what, sizeof(what), "cgroup v2 limits:%s%s%s", features.memory ? " memory" : "",
	         features.pids ? " pids" : "", features.cpu ? " cpu" : "");
	say(OK, what, NULL);
}

static void check_epoch(void)
{
	struct utsname u;
	int major = 0, minor = 0;

	uname(&u);
	if (sscanf(u.release, "%d.%d", &major, &minor) == 2 &&
	    (major > 6 || (major == 6 && minor >= 16)))
		say(OK, "caches of the mount are refreshed at once", NULL);
	else
		say(WARN, "names in the mount are asked for at each access, contents are kept",
		    "Linux 6.16 or newer");
}

static void check_descriptors(void)
{
	struct rlimit lim;
	char what[64];

	if (getrlimit(RLIMIT_NOFILE, &lim) < 0)
		return;
	if (lim.rlim_max == RLIM_INFINITY) {
		say(OK, "open files: no limit", NULL);
		return;
	}
	snprintf(what, sizeof(what), "open files: at most %llu", (unsigned long long)lim.rlim_max);
	say(lim.rlim_max < 4096 ? WARN : OK, what,
	    lim.rlim_max < 4096 ? "ulimit -Hn 65536 (limits.conf: nofile)" : NULL);
}

/* What a mount without -o backend= would take, and why; and what that lacks. */
static bool check_backend(void)
{
	struct sbx_error err = SBX_ERROR_INIT;
	_cleanup_free_ char *what = NULL, *note = NULL;
	struct sbx_settings settings;
	const char *why;
	int r = sbx_choice_find(&settings, &why, &err);

	if (r < 0) {
		say(NO, "the backend of a mount cannot be told", err.text);
	} else if (asprintf(&what, "the backend is %s, %s", settings.backend, why) >= 0) {
		r = sbx_choice_check(&settings, &note, &err);
		say(r < 0 ? NO : OK, what, r < 0 ? err.text : note);
	} else {
		what = NULL;
	}
	sbx_settings_release(&settings);
	return r == 0;
}

/* Where a mount without options would keep its sandboxes: the caller's, NULL when it would not. */
static char *state_place(struct sbx_error *err)
{
	struct sbx_settings settings;
	char *place = NULL;

	if (sbx_settings_defaults(&settings) < 0)
		return NULL;
	if (sbx_settings_found(&settings, err) == 0) {
		if (!settings.state_dir)
			sbx_paths_temporary(&place, err);
		else if (strcmp(settings.state_dir, SBX_STATE_PERSISTENT) == 0)
			sbx_paths_persistent(&place, err);
		else
			place = sbx_steal_ptr(&settings.state_dir);
	}
	sbx_settings_release(&settings);
	return place;
}

static bool check_state(void)
{
	struct sbx_error err = SBX_ERROR_INIT;
	_cleanup_free_ char *place = state_place(&err), *what = NULL;
	const char *why = place ? sbx_state_fleeting(place) : NULL;

	if (!place)
		say(NO, "sandboxes can be kept nowhere", err.text);
	else if (asprintf(&what, "sandboxes are kept in %s%s%s", place, why ? ": " : "",
	                  why ? why : "") >= 0)
		say(why ? WARN : OK, what, why ? "-o state_dir=persistent" : NULL);
	else
		what = NULL;
	return place != NULL;
}

/* With the PATH and the home that a mount from here would have. */
static void check_toolchains(void)
{
	struct sbx_settings settings;

	if (sbx_settings_defaults(&settings) < 0)
		return;
	if (sbx_toolchains_find(&settings) == 0)
		sbx_toolchains_tell(&settings);
	sbx_settings_release(&settings);
}

int sbx_doctor(void)
{
	bool device = check_fuse();
	bool mounter = check_fusermount();
	bool root = check_root();
	bool isolated, kept, taken;

	taken = check_backend();
	check_namespaces();
	check_landlock();
	check_seccomp();
	isolated = check_isolation();
	check_passthrough();
	check_cgroup();
	check_epoch();
	check_descriptors();
	kept = check_state();
	check_toolchains();
	return device && mounter && root && isolated && kept && taken ? 0 : 1;
}
