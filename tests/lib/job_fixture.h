/*
 * A job table over a sandbox in memory whose commands the test plays, with the event loop on a
 * thread of its own: the test's thread is what a FUSE worker is in the daemon. Nothing here sleeps;
 * what is to come is awaited, and the test fails when it has not come after half a minute.
 */
#ifndef SANDBOXFS_TESTS_JOB_FIXTURE_H
#define SANDBOXFS_TESTS_JOB_FIXTURE_H

#include <pthread.h>
#include <semaphore.h>

#include "fs/job/job.h"
#include "fs/job/job_table.h"
#include "fs/util/reply.h"
#include "sandboxfs/loop.h"
#include "tests/lib/played.h"

struct fixture {
	char dir[64]; /* temporary; holds jobs/id/ */
	struct sbx_settings settings;
	bool away;           /* the sandbox is elsewhere */
	bool alone;          /* it runs one command at a time */
	uint64_t output_max; /* as sbx_command_impl */
	pthread_rwlock_t turn;
	struct sbx_loop *loop;
	pthread_t thread;
	struct played runner;
	struct sbx_host host;
	struct sbx_backend *backend;
	struct sbx_sandbox *sandbox;
	struct sbx_sandbox outer; /* what the table has: the same, which may be alone */
	const char *root;         /* the sandbox's tree */
	struct sbx_jobs *jobs;
	pthread_mutex_t lock; /* trail */
	char trail[4096]; /* one letter for each callback: B busy, I idle, c changed, and what tests
	                     mark */
};

/* The view is /view/box; settings: net none, PATH /usr/bin:/bin, time-out 600 s, output 64 MiB. */
void fixture_set_up(struct fixture *fx);
/* The settings may be changed between these two; fixture_set_up is both. */
void fixture_prepare(struct fixture *fx);
void fixture_start(struct fixture *fx);
/* Shuts the table down; nothing may be left. */
void fixture_tear_down(struct fixture *fx);

void fixture_mark(struct fixture *fx, char c);
/* For waiters whose data is the fixture: they mark 'e' and 's'. */
void fixture_mark_end(struct sbx_jobrec *rec, void *data);
void fixture_mark_start(struct sbx_jobrec *rec, void *data);
/* Whether the trail reads so. */
void fixture_expect_trail(struct fixture *fx, const char *want);

void fixture_wait(sem_t *sem);
/* Returns when the loop has run all that was posted before, and what that posted. */
void fixture_sync(struct fixture *fx);
void fixture_await_end(struct sbx_jobrec *rec);
void fixture_await_start(struct sbx_jobrec *rec);

/* The job that was handed to the sandbox last. */
struct played_job *fixture_last(struct fixture *fx);

/* sbx_job_start of an exec, without a sentence. */
int fixture_start_request(struct fixture *fx, const struct sbx_request *req,
                          struct sbx_jobrec *named, struct sbx_jobrec **rec, bool *repeated);
/* Starts ARGV by exec with no further wishes; asserts success. A reference. */
struct sbx_jobrec *fixture_start_job(struct fixture *fx, const char *word);
/* The same, started and ended with exit status CODE. */
struct sbx_jobrec *fixture_run_job(struct fixture *fx, const char *word, int code);
/* Asserts that REQ is refused with -CODE and a sentence that contains TEXT. */
void fixture_expect_refused(struct fixture *fx, const struct sbx_request *req,
                            struct sbx_jobrec *named, int code, const char *text);
/* Asserts that the status line of REC (may be NULL) begins with TEXT. */
void fixture_expect_status(struct sbx_jobrec *rec, const char *text);

/* A pending answer that can be awaited. */
struct awaited {
	struct sbx_pending base;
	sem_t given;
	int error;    /* positive errno, 0 */
	size_t count; /* of a write */
};

void awaited_init(struct awaited *a, size_t size);

#endif
