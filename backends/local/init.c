/*
 * A separate process for each job, because pid 1 decides over the life of its namespace: when
 * the spawner kills it the kernel kills everything else, whatever it forked or ignored, and
 * when it finds no child left nothing is left. Without a pid namespace the same program does
 * by walking /proc what the kernel would have done.
 *
 * No handler is ever installed and every signal stays blocked: signals are fetched with
 * sigwaitinfo(2), and the leader only has to unblock them.
 */
#include "backends/local/init.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backends/local/descend.h"
#include "backends/local/filter.h"
#include "backends/local/landlock.h"
#include "backends/local/limits.h"
#include "backends/local/privileges.h"

/* What the leader needs; the numbers are free, so that moving one there closes no other. */
enum { CWD_FD = INIT_FREE_FD, USER_FD, RULES_FD, END_FD };

struct init {
	const struct init_job *job;
	pid_t leader;
	bool leader_ended, alone;
	int status;
	/* Written by the leader before its execve, in the memory it shares with us: */
	int exec_error;
	enum spawn_stage stage;
};

static bool report(const struct init *in, enum spawn_event event, int code)
{
	struct spawn_report r = {.event = event,
	                         .stage = in->stage,
	                         .job = in->job->req->cmd.job,
	                         .code = code,
	                         .remain = !in->alone};
	struct rusage ru;

	if (event == SPAWN_ENDED && getrusage(RUSAGE_CHILDREN, &ru) == 0) {
		r.user_us = (uint64_t)ru.ru_utime.tv_sec * 1000000u + (uint64_t)ru.ru_utime.tv_usec;
		r.sys_us = (uint64_t)ru.ru_stime.tv_sec * 1000000u + (uint64_t)ru.ru_stime.tv_usec;
		r.max_rss_kb = (uint64_t)ru.ru_maxrss;
	}
	return send(INIT_REPORT_FD, &r, sizeof(r), MSG_NOSIGNAL) == (ssize_t)sizeof(r);
}

static _Noreturn void fail(struct init *in, enum spawn_stage stage, int err)
{
	in->stage = stage;
	in->alone = true;
	_exit(report(in, SPAWN_FAILED, err) ? 0 : 1);
}

/* Beneath the tree's root by the kernel's own walk, so no link and no ".." leads out. */
static int open_cwd(const struct init_job *job)
{
	const struct spawn_request *req = job->req;
	struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
	                       .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
	int root = open(view_is_own(job->view) ? req->view : req->workdir,
	                O_PATH | O_DIRECTORY | O_CLOEXEC);
	int fd;

	if (root < 0 || !*req->cwd)
		return root;
	do
		fd = (int)syscall(SYS_openat2, root, req->cwd, &how, sizeof(how));
	while (fd < 0 && errno == EAGAIN); /* a rename raced with ".." */
	return fd;
}

static const char *env_path(char *const *env)
{
	for (; *env; env++)
		if (strncmp(*env, "PATH=", 5) == 0)
			return *env + 5;
	return "/bin:/usr/bin";
}

/* Tries one file; returns the errno, having noted when it is its interpreter that is missing. */
static int try_exec(struct init *in, const char *file)
{
	const struct spawn_request *req = in->job->req;
	int err;

	execve(file, req->argv, req->env);
	err = errno;
	if (err == ENOENT && access(file, F_OK) == 0)
		in->stage = SPAWN_AT_INTERPRETER;
	return err;
}

static bool try_next(int err)
{
	return err == EACCES || err == ENOENT || err == ENOTDIR || err == ESTALE || err == ENODEV ||
	       err == ETIMEDOUT || err == ELOOP || err == ENAMETOOLONG;
}

/* execvpe(3), but a file that is no program is ENOEXEC and never handed to a shell. */
static int search_and_exec(struct init *in)
{
	const struct spawn_request *req = in->job->req;
	const char *name = req->argv[0];
	size_t name_len = strlen(name);
	const char *p = env_path(req->env);
	bool denied = false;
	char file[PATH_MAX];
	int err = ENOENT;

	if (*req->program)
		return try_exec(in, req->program);
	if (!*name)
		return ENOENT;
	if (strchr(name, '/'))
		return try_exec(in, name);
	for (;; p++) {
		size_t len = strcspn(p, ":");

		if (len + name_len + 2 <= sizeof(file)) {
			memcpy(file, p, len);
			if (len)
				file[len] = '/';
			memcpy(file + len + (len > 0), name, name_len + 1);
			err = try_exec(in, file);
			denied |= err == EACCES;
			if (!try_next(err))
				return err;
		}
		p += len;
		if (!*p)
			return denied ? EACCES : ENOENT;
	}
}

/* Not asking who we are: in a namespace that lacks our number the answer would be nobody's. */
static int change_rights(const struct spawn_powers *powers)
{
	return privileges_give_up(powers->become ? &powers->who : NULL);
}

/*
 * From the widest rights to none. In the user namespace of commands there is nothing to be privileged
 * over, and nobody but the one user.
 */
static int give_up_rights(const struct init_job *job)
{
	const struct view *view = job->view;

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return -1;
	if (!job->powers->isolated)
		return 0;
	if (view && view->landlock >= 0 && landlock_enforce(RULES_FD) < 0)
		return -1;
	if (view && view->user >= 0 && setns(USER_FD, CLONE_NEWUSER) < 0)
		return -1;
	return change_rights(job->powers);
}

/* Runs in init's memory, on a stack and with a descriptor table of its own. */
static int leader_main(void *data)
{
	struct init *in = data;
	const struct spawn_request *req = in->job->req;
	sigset_t none;

	in->stage = SPAWN_AT_CWD;
	if (fchdir(CWD_FD) < 0)
		goto failed;
	in->stage = SPAWN_AT_LIMITS;
	if (setsid() < 0 || limits_apply(&req->cmd.limits, &in->job->nofile) < 0)
		goto failed;
	in->stage = SPAWN_AT_RIGHTS;
	if (give_up_rights(in->job) < 0 || close_range(INIT_REPORT_FD, ~0U, 0) < 0)
		goto failed;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (in->job->filter && filter_load(in->job->filter) < 0)
		goto failed;
	in->stage = SPAWN_AT_EXEC;
	in->exec_error = search_and_exec(in);
	return 127;
failed:
	in->exec_error = errno;
	return 127;
}

static void start_leader(struct init *in)
{
	static _Alignas(16) char stack[64 * 1024];
	int status;

	in->leader =
	        clone(leader_main, stack + sizeof(stack), CLONE_VM | CLONE_VFORK | SIGCHLD, in);
	if (in->leader < 0)
		fail(in, SPAWN_AT_FORK, errno);
	if (in->exec_error) {
		waitpid(in->leader, &status, 0);
		fail(in, in->stage, in->exec_error);
	}
	close_range(0, 2, 0);
	close_range(CWD_FD, END_FD - 1, 0);
}

static void reap(struct init *in)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		if (pid == in->leader) {
			in->leader_ended = true;
			in->status = status;
		}
	}
	in->alone = pid < 0;
}

/* Without a pid namespace: until the kernel says that we have no child. */
static void kill_descendants(struct init *in)
{
	siginfo_t info;

	for (reap(in); !in->alone; reap(in))
		if (descend_signal(getpid(), NULL, NULL, SIGKILL) > 0)
			waitid(P_ALL, 0, &info, WEXITED | WNOWAIT);
}

static void forward(struct init *in, int sig)
{
	if (in->job->powers->pid_ns)
		kill(-1, sig);
	else if (sig == SIGKILL)
		kill_descendants(in);
	else
		descend_signal(getpid(), NULL, NULL, sig);
}

static void look_after(struct init *in)
{
	bool told = false;
	siginfo_t info;
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGRTMIN);
	sigaddset(&set, SIGTERM);
	for (reap(in); !in->alone; reap(in)) {
		if (in->leader_ended && !told) {
			told = true;
			if (!report(in, SPAWN_ENDED, in->status))
				forward(in, SIGKILL);
			continue;
		}
		if (sigwaitinfo(&set, &info) < 0)
			continue;
		if (info.si_signo == SIGRTMIN)
			forward(in, info.si_value.sival_int);
		else if (info.si_signo == SIGTERM && !in->job->powers->pid_ns) {
			/* The spawner is dead: the daemon counts us among the lost. */
			kill_descendants(in);
			_exit(1);
		}
	}
}

/* As the daemon knows us: /proc is still the host's. */
static int outer_pid(const struct init_job *job)
{
	char text[16] = "";

	if (!job->powers->pid_ns)
		return getpid();
	return readlink("/proc/self", text, sizeof(text) - 1) > 0 ? atoi(text) : 0;
}

/* A dying process loses its locks before its children get the death signal. */
static bool spawner_lives(void)
{
	struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET};

	return fcntl(INIT_LIFE_FD, F_GETLK, &lock) == 0 && lock.l_type == F_WRLCK;
}

/* The spawner's end is ours. In a pid namespace getppid() would not tell that it has come. */
static void bind_life(const struct init *in)
{
	const bool pid_ns = in->job->powers->pid_ns;

	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	prctl(PR_SET_PDEATHSIG, pid_ns ? SIGKILL : SIGTERM, 0, 0, 0);
	if (!spawner_lives())
		_exit(1);
}

/* The rest of the job can do without an init that has any right but to signal it. */
static void become_plain(const struct init *in)
{
	const struct spawn_powers *powers = in->job->powers;

	if (!powers->isolated)
		return;
	if (change_rights(powers) < 0)
		_exit(1);
	bind_life(in); /* the kernel has undone it */
}

/* Pipes are the daemon's, who would be refused a second opening of /dev/stdout by the name. */
static int place_stream(const struct init_job *job, int i)
{
	const struct sbx_identity *who = &job->powers->who;
	int fd = job->req->fds[i];
	struct stat st;

	if (fd < 0)
		return 0;
	if (job->powers->become && fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode) &&
	    st.st_uid == geteuid() && fchown(fd, who->uid, who->gid) < 0)
		return -1;
	return dup2(fd, i);
}

static int place_descriptors(const struct init_job *job, int cwd)
{
	const struct view *view = job->view;

	for (int i = 0; i < 3; i++)
		if (place_stream(job, i) < 0)
			return -1;
	if (dup2(cwd, CWD_FD) < 0 || (view && view->user >= 0 && dup2(view->user, USER_FD) < 0) ||
	    (view && view->landlock >= 0 && dup2(view->landlock, RULES_FD) < 0))
		return -1;
	return close_range(END_FD, ~0U, 0);
}

void init_main(const struct init_job *job)
{
	struct init in = {.job = job};
	int pid = outer_pid(job);
	int cwd, r;

	prctl(PR_SET_NAME, "sandboxfs-init", 0, 0, 0);
	if (!job->powers->pid_ns)
		prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
	r = job->view ? view_enter(job->view) : 0;
	if (r < 0)
		fail(&in, SPAWN_AT_VIEW, -r);
	bind_life(&in);
	cwd = open_cwd(job);
	if (cwd < 0)
		fail(&in, SPAWN_AT_CWD, errno);
	if (place_descriptors(job, cwd) < 0)
		fail(&in, SPAWN_AT_FORK, errno);
	start_leader(&in);
	become_plain(&in);
	if (!report(&in, SPAWN_STARTED, pid))
		forward(&in, SIGKILL);
	look_after(&in);
	_exit(report(&in, SPAWN_ENDED, in.status) ? 0 : 1);
}
