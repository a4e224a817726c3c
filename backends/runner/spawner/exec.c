/*
 * The process that becomes the command. It shares its memory with init, though it is about to
 * become hostile: before its execve it is not, and execve gives it a memory of its own.
 */
#include "backends/runner/spawner/exec.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backends/runner/isolation/landlock.h"
#include "backends/runner/isolation/privileges.h"
#include "backends/runner/isolation/seccomp.h"
#include "backends/runner/spawner/rlimits.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

#ifndef CLOSE_RANGE_UNSHARE
#define CLOSE_RANGE_UNSHARE (1U << 1)
#endif

/* ThreadSanitizer's own clone has the child read what it keeps on a stack that we have left by
 * then. */
#if defined(__SANITIZE_THREAD__)
#define BARE_CLONE 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define BARE_CLONE 1
#endif
#endif
#ifdef BARE_CLONE
int __clone(int (*fn)(void *), void *stack, int flags, void *arg, ...);
#define clone __clone
#endif

/* Values of held. */
enum { GONE, PARKED, PREPARING };

static void await(uint32_t *word, uint32_t value)
{
	while (__atomic_load_n(word, __ATOMIC_ACQUIRE) == value)
		syscall(SYS_futex, word, FUTEX_WAIT, value, NULL, NULL, 0);
}

static void set(uint32_t *word, uint32_t value)
{
	__atomic_store_n(word, value, __ATOMIC_RELEASE);
	syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
}

/* --- executing ---------------------------------------------------------------------------------
 */

static const char *env_path(char *const *env)
{
	for (; *env; env++)
		if (strncmp(*env, "PATH=", 5) == 0)
			return *env + 5;
	return "/bin:/usr/bin";
}

/* Tries one file; returns the errno, having noted when it is its interpreter that is missing. */
static int try_exec(struct leader *l, const char *file)
{
	int err;

	/* Not by the library's name: built for coverage, that writes files first, and to the
	 * command's stderr that it may not. */
	syscall(SYS_execve, file, l->req->argv, l->req->env);
	err = errno;
	if (err == ENOENT && access(file, F_OK) == 0)
		l->stage = SPAWN_AT_INTERPRETER;
	return err;
}

static bool try_next(int err)
{
	return err == EACCES || err == ENOENT || err == ENOTDIR || err == ESTALE || err == ENODEV ||
	       err == ETIMEDOUT || err == ELOOP || err == ENAMETOOLONG;
}

/* execvpe(3), but a file that is no program is ENOEXEC and never handed to a shell. */
static int search_and_exec(struct leader *l)
{
	const struct spawn_request *req = l->req;
	const char *name = req->argv[0];
	size_t name_len = strlen(name);
	const char *p = env_path(req->env);
	bool denied = false;
	char file[PATH_MAX];
	int err = ENOENT;

	if (*req->program)
		return try_exec(l, req->program);
	if (!*name)
		return ENOENT;
	if (strchr(name, '/'))
		return try_exec(l, name);
	for (;; p++) {
		size_t len = strcspn(p, ":");

		if (len + name_len + 2 <= sizeof(file)) {
			memcpy(file, p, len);
			if (len)
				file[len] = '/';
			memcpy(file + len + (len > 0), name, name_len + 1);
			err = try_exec(l, file);
			denied |= err == EACCES;
			if (!try_next(err))
				return err;
		}
		p += len;
		if (!*p)
			return denied ? EACCES : ENOENT;
	}
}

/* --- the leader ---------------------------------------------------------------------------------
 */

/*
 * From the widest rights to none; the filter and no_new_privs are inherited from init. In the user
 * namespace of commands there is nothing to be privileged over, and nobody but the one user.
 */
static int give_up_rights(const struct init_config *config)
{
	const struct view *view = config->view;

	if (!config->features->isolated)
		return 0;
	if (view && view->landlock >= 0 && landlock_enforce(INIT_RULES_FD) < 0)
		return -1;
	if (view && view->user >= 0 &&
	    filter_call(config->filter, SYS_setns, INIT_USER_FD, CLONE_NEWUSER, 0, 0) < 0)
		return -1;
	if (privileges_bound() < 0)
		return -1;
	return privileges_give_up(config->features->become ? &config->features->who : NULL);
}

static int park(struct leader *l)
{
	l->stage = SPAWN_AT_RIGHTS;
	if (setsid() < 0 || give_up_rights(l->config) < 0)
		return -1;
	set(&l->held, PARKED);
	await(&l->gate, 0);
	return 0;
}

static int follow_request(struct leader *l)
{
	sigset_t none;

	l->stage = SPAWN_AT_CWD;
	if (fchdir(INIT_CWD_FD) < 0)
		return -1;
	l->stage = SPAWN_AT_LIMITS;
	if (limits_apply(&l->req->cmd.limits, l->config->features, &l->config->nofile) < 0)
		return -1;
	l->stage = SPAWN_AT_RIGHTS;
	if (close_range(INIT_REPORT_FD, ~0U, CLOSE_RANGE_UNSHARE) < 0)
		return -1;
	sigemptyset(&none);
	return sigprocmask(SIG_SETMASK, &none, NULL);
}

static int leader_main(void *data)
{
	struct leader *l = data;

	if (park(l) < 0 || follow_request(l) < 0) {
		l->error = errno;
		return 127;
	}
	l->stage = SPAWN_AT_EXEC;
	l->error = search_and_exec(l);
	return 127;
}

/* --- init's side
 * ---------------------------------------------------------------------------------- */

/* The last leader left its frames on the stack by execve, without returning from any:
 * AddressSanitizer holds them for alive. */
static void fresh(char *stack, size_t size)
{
#if defined(__SANITIZE_ADDRESS__)
	__asan_unpoison_memory_region(stack, size);
#else
	(void)stack;
	(void)size;
#endif
}

static int reap(struct leader *l)
{
	int status;

	waitpid(l->pid, &status, 0);
	l->pid = 0;
	return l->error;
}

int leader_prepare(struct leader *l, const struct init_config *config)
{
	static _Alignas(16) char stack[64 * 1024];

	*l = (struct leader){.config = config, .held = PREPARING};
	fresh(stack, sizeof(stack));
	l->pid = clone(leader_main, stack + sizeof(stack),
	               CLONE_VM | CLONE_FILES | CLONE_CHILD_CLEARTID | SIGCHLD, l, NULL, NULL,
	               &l->held);
	if (l->pid < 0) {
		l->stage = SPAWN_AT_FORK;
		return errno;
	}
	await(&l->held, PREPARING);
	return l->error ? reap(l) : 0;
}

int leader_release(struct leader *l, const struct spawn_request *req)
{
	l->req = req;
	set(&l->gate, 1);
	await(&l->held, PARKED);
	return l->error ? reap(l) : 0;
}
