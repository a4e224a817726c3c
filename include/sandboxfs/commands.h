/*
 * Running commands in a sandbox: what to run, what is heard of it, and the table of a backend that
 * can. Calls are marked as in sandbox.h.
 */
#ifndef SANDBOXFS_COMMANDS_H
#define SANDBOXFS_COMMANDS_H

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sandboxfs/error.h"
#include "sandboxfs/sandbox.h"
#include "sandboxfs/settings.h"

/* A command to run. All pointers belong to the caller and are used during the call only. */
struct sbx_exec {
	char *const *argv;   /* at least one element, NULL-terminated; never a shell line */
	char *const *env;    /* the whole environment, KEY=VALUE, NULL-terminated; the backend
	                      * adds HOME, TMPDIR and PWD where they are absent */
	const char *program; /* absolute path to execute instead of searching argv[0] along
	                      * PATH of env (allowlist), or NULL */
	const char *cwd;     /* relative to the sandbox's root, "" for the root itself; resolved
	                      * beneath it by the kernel */
	int stdin_fd;        /* becomes fd 0 of the command; -1: /dev/null. Not closed. */
	uint64_t timeout_ms; /* after which the caller signals; for a backend whose commands go on
	                      * when the daemon is gone. 0: none */
	bool background;     /* nobody waits for its end, and the client waits for its start */
	bool live;           /* the client wants its output while it runs */
	struct sbx_limits limits; /* cpu_s, memory_mb, procs, file_mb are the backend's part */
};

enum sbx_end {
	SBX_END_FAILED,   /* could not be started: code is an errno, error has the text */
	SBX_END_EXITED,   /* code is the exit status */
	SBX_END_SIGNALED, /* code is the signal */
	SBX_END_OOM,      /* killed for memory; code is the signal */
	SBX_END_LOST,     /* the backend does not know (spawner or connection gone) */
};

struct sbx_exit {
	enum sbx_end end;
	int code;
	uint64_t user_us;
	uint64_t sys_us;
	uint64_t max_rss_kb; /* 0: not known */
	struct sbx_error error;
};

/* A refusal that a job has met: a system call, a number of them, or the network. */
struct sbx_denial {
	const char *call;    /* its name; NULL: only MORE is told */
	const char *class;   /* view, kernel, machine, namespaces, terminal, sockets, setuid, ... */
	const char *program; /* what the process calls itself, any bytes, or the job's command */
	uint64_t more;       /* that many were refused besides, and are not told singly */
	bool network;        /* CALL is the ADDRESS:PORT that the job first tried to reach */
	bool lookup;         /* and a server of names */
};

/*
 * Events of a job. All are called on the event loop thread, holding no lock of the backend; they
 * may call sbx_job_signal(). started comes before output; ended comes exactly once and last.
 */
struct sbx_job_events {
	/* The command has been executed (execve succeeded). May be skipped by a job that has
	 * already ended; ended tells then. May be NULL: nobody wants to know. */
	void (*started)(struct sbx_job *job);
	/* LEN bytes (> 0) of STREAM 1 or 2. */
	void (*output)(struct sbx_job *job, int stream, const void *buf, size_t len);
	/* Everything the job ever started is dead, all output was delivered. */
	void (*ended)(struct sbx_job *job, const struct sbx_exit *exit);
	/* Between started and ended, not too often. May be NULL: nobody wants to know. */
	void (*denied)(struct sbx_job *job, const struct sbx_denial *denial);
	/* N bytes (> 0) of STREAM came after those of output and were not kept, as they are beyond
	 * limits.output_bytes or what the backend has room for. May be NULL: nobody wants to know.
	 */
	void (*discarded)(struct sbx_job *job, int stream, uint64_t n);
};

/*
 * A command that runs: a member of the caller's object, which finds that again with
 * sbx_container_of(). The caller fills events and leaves the rest zero. The object stays until exec
 * has failed, or until exec has returned and ended has been called.
 */
struct sbx_job {
	const struct sbx_job_events *events;
	struct sbx_sandbox *sandbox; /* filled by sbx_sandbox_exec() */
	void *part;                  /* the backend's own; NULL once the job has ended */
};

/* Of a backend whose sandboxes run commands. stale and sync: both or none. */
struct sbx_command_impl {
	/*
	 * [any] Starts a command. On 0 the events of JOB are called on the loop thread, possibly
	 * before this returns. A command that cannot be started is reported by ended with
	 * SBX_END_FAILED, or by a negative errno here. By then the backend has freed its part, and
	 * it touches JOB no more. ENOENT: no such program or cwd. EACCES: not executable, or
	 * the cwd leads out. EOPNOTSUPP: what the spec asks for cannot be had. EAGAIN, E2BIG.
	 * Mandatory.
	 */
	int (*exec)(struct sbx_sandbox *sb, const struct sbx_exec *spec, struct sbx_job *job,
	            struct sbx_error *err);
	/*
	 * [loop] Sends SIG to everything the job started; SIGKILL leaves nothing alive. A job that
	 * has ended ignores it. It is called from an event, or once exec has returned 0. Mandatory.
	 */
	void (*signal)(struct sbx_job *job, int sig);
	/*
	 * [any] Whether a command may be sent SIG, which a user asks for; SIGKILL always. It takes
	 * microseconds and no lock, because the caller may hold one. Optional: it may.
	 */
	bool (*takes)(struct sbx_sandbox *sb, int sig);
	/*
	 * [any] Whether a command is refused while another one of the sandbox runs, because the
	 * backend can run no two. As takes. Optional: it is not.
	 */
	bool (*alone)(struct sbx_sandbox *sb);
	/* [any] The most bytes of each stream that the backend brings, and tells that there were
	 * more; 0: any number. As takes. Optional: 0. */
	uint64_t (*output_max)(struct sbx_sandbox *sb);
	/*
	 * [any] Whether sync may have something to do, or a barrier under way has to end first. It
	 * is asked before each command and takes microseconds. Optional: no.
	 */
	bool (*stale)(struct sbx_sandbox *sb);
	/*
	 * [pool] Brings what commands see of state that is kept twice (git's) in step with what the
	 * host sees. It is called when stale, before a command starts and after one has ended, and
	 * others may be running. EEXIST: the two sides have moved apart, and both stay. Commands go
	 * on whatever it answers. Optional.
	 */
	int (*sync)(struct sbx_sandbox *sb, struct sbx_error *err);
	/*
	 * [any] Somebody waits for the end of the sandbox, or of the mount. A sync, also one that
	 * retire makes, gives up MS milliseconds from now: what it has not brought over stays, and
	 * retire answers EBUSY. With MS 0 it takes its time again. Optional.
	 */
	void (*hurry)(struct sbx_sandbox *sb, unsigned ms);
};

/* EOPNOTSUPP: the backend runs no commands. */
static inline int sbx_sandbox_exec(struct sbx_sandbox *sb, const struct sbx_exec *spec,
                                   struct sbx_job *job, struct sbx_error *err)
{
	if (!sb->impl->commands)
		return sbx_fail(err, EOPNOTSUPP, "this backend cannot run commands");
	assert(job->events && !job->part);
	assert(spec->argv && spec->argv[0]);
	job->sandbox = sb;
	return sb->impl->commands->exec(sb, spec, job, err);
}

/* [loop] As the member. JOB was started: sbx_sandbox_exec has filled its sandbox. */
static inline void sbx_job_signal(struct sbx_job *job, int sig)
{
	job->sandbox->impl->commands->signal(job, sig);
}

/* [any] As the member; true where the backend has none. */
static inline bool sbx_sandbox_takes(struct sbx_sandbox *sb, int sig)
{
	const struct sbx_command_impl *commands = sb->impl->commands;

	return !commands || !commands->takes || commands->takes(sb, sig);
}

/* [any] As the member; false where the backend has none. */
static inline bool sbx_sandbox_alone(struct sbx_sandbox *sb)
{
	const struct sbx_command_impl *commands = sb->impl->commands;

	return commands && commands->alone && commands->alone(sb);
}

/* [any] As the member; 0 where the backend has none. */
static inline uint64_t sbx_sandbox_output_max(struct sbx_sandbox *sb)
{
	const struct sbx_command_impl *commands = sb->impl->commands;

	return commands && commands->output_max ? commands->output_max(sb) : 0;
}

/* [any] As the member; false where the backend has none. */
static inline bool sbx_sandbox_stale(struct sbx_sandbox *sb)
{
	const struct sbx_command_impl *commands = sb->impl->commands;

	return commands && commands->stale && commands->stale(sb);
}

/* [pool] As the member; 0 where the backend has none. */
static inline int sbx_sandbox_sync(struct sbx_sandbox *sb, struct sbx_error *err)
{
	const struct sbx_command_impl *commands = sb->impl->commands;

	return commands && commands->sync ? commands->sync(sb, err) : 0;
}

/* [any] As the member; does nothing where the backend has none. */
static inline void sbx_sandbox_hurry(struct sbx_sandbox *sb, unsigned ms)
{
	const struct sbx_command_impl *commands = sb->impl->commands;

	if (commands && commands->hurry)
		commands->hurry(sb, ms);
}

#endif
