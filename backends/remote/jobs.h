/*
 * Commands in a machine: started exactly once each, polled together, by offset, so that an answer
 * that was lost is asked for again; killed by a marker in their environment; given up when nobody
 * asked for fifteen minutes.
 */
#ifndef SANDBOXFS_BACKENDS_REMOTE_JOBS_H
#define SANDBOXFS_BACKENDS_REMOTE_JOBS_H

#include <time.h>

#include "backends/remote/call.h"
#include "backends/remote/sync.h"
#include "backends/remote/tree.h"
#include "sandboxfs/commands.h"

struct remote_jobs;

struct remote_jobs_config {
	struct sbx_sandbox *sandbox;
	struct sbx_loop *loop;
	struct sbx_pool *pool; /* wide */
	struct remote_tree *tree;
	struct remote_sync *sync;
	const char *prefix; /* [a-z0-9]+, unique for this daemon and sandbox, because machines may
	                     * see one another's processes: the ids of its jobs begin with it.
	                     * Copied */
	unsigned lease_s;   /* after which a job of which nobody asks is killed. 0: 900 */
	/* [any] As remote_tree_config.seen: what an answer that is asked for now has seen. */
	uint64_t (*seen)(void *data);
	/* [loop] Once: remote_jobs_fail was called, all jobs have ended, and nothing of them is
	 * under way any more. May be NULL. */
	void (*idle)(void *data);
	void *data;
};
/* 0 or -ENOMEM. */
int remote_jobs_create(const struct remote_jobs_config *config, struct remote_jobs **ret);
/* No job is left, and it is idle, unless it was never connected. Accepts NULL. */
void remote_jobs_destroy(struct remote_jobs *j);
/*
 * [loop] The machine is there; jobs that wait for it are started. LINK stays until the jobs are
 * idle. CAN: sbx_provider_impl.can. Without SBX_PROVIDER_DETACHES a job is one call, which answers
 * when it has ended, with 8 MiB of each stream at most; without SBX_PROVIDER_PARALLEL as well it
 * cannot be signalled, but ended by having the call given up; its timeout is the machine's. With
 * SBX_PROVIDER_MERGES, which is for jobs of one call, stderr comes as a part of stdout; where the
 * exit code is not 0, all of that is told as stderr, too.
 */
void remote_jobs_connect(struct remote_jobs *j, struct remote_link *link, unsigned can);
/* [loop] All jobs end now, as SBX_END_LOST, or SBX_END_FAILED with CODE (positive) and TEXT where
 * they had not started; and those to come fail so. */
void remote_jobs_fail(struct remote_jobs *j, int code, const char *text);
/*
 * As sbx_command_impl.exec; before remote_jobs_connect the job waits. EOPNOTSUPP: its standard
 * input is no regular file. E2BIG: words of more than 128 KiB, or of 1.75 MiB together.
 *
 * A command that exits by 128 and a signal, after that signal was sent, counts as ended by it;
 * otherwise the two cannot be told. max_rss_kb is not known.
 */
int remote_jobs_exec(struct remote_jobs *j, const struct sbx_exec *spec, struct sbx_job *job,
                     struct sbx_error *err);
/* As sbx_command_impl.takes, of a provider that CAN. [any] */
bool remote_jobs_take(unsigned can, int sig);
/* As sbx_command_impl.alone, of a provider that CAN. [any] */
bool remote_jobs_alone(unsigned can);
/* As sbx_command_impl.output_max, of a provider that CAN. [any] */
uint64_t remote_jobs_output(unsigned can);
/* As sbx_command_impl.signal. [loop] */
void remote_jobs_signal(struct sbx_job *job, int sig);
/* [wait] Returns when all has been ended at the machine that was signalled by SIGKILL, or at UNTIL.
 */
void remote_jobs_await_kills(struct remote_jobs *j, const struct timespec *until);
/* After remote_jobs_connect: adds to LINES what ends the jobs of earlier daemons at the machine,
 * and says REMOTE_INFO "killed" of each. Until it was answered each start has them as well, so that
 * no command runs beside those. 0 or -ENOMEM. [any] */
int remote_jobs_sweep(struct remote_jobs *j, struct remote_text *lines);
/* REPLY is the answer to such lines: the sandbox is told how many were ended. [any] */
void remote_jobs_swept(struct remote_jobs *j, const struct remote_reply *reply);
/* [any] Somebody waits for the end: what was signalled by SIGKILL ends as lost at once, and the
 * lease, or the removal of the machine, does the rest. ABANDON false: nobody waits any more. */
void remote_jobs_abandon(struct remote_jobs *j, bool abandon);

#endif
