/*
 * A backend over another whose calls the test counts, lets fail, or holds back. What it does not
 * name goes through as it is. It has a table where the other has one, and storage always; git and
 * remote never. Snapshots are called abcd0001, abcd0002, ... as they are made.
 */
#ifndef SANDBOXFS_TESTS_FAULTS_H
#define SANDBOXFS_TESTS_FAULTS_H

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>

#include "sandboxfs/backend.h"
#include "tests/lib/played_away.h"

enum fault {
	CREATE,
	RENAME,
	RETIRE,
	REMOVE,
	HURRY,
	DISCARD,
	BARRIER,
	BARRIER_NOW,
	SNAPSHOT, /* marks too */
	RESTORE,
	DIFF,
	CONTENT,
	FAULTS,
};

struct faults {
	struct sbx_backend base;
	struct sbx_backend_impl impl; /* carries the name of inner */
	struct sbx_backend *inner;
	struct played_away *away; /* what is made from now on is elsewhere; NULL: it is not */
	atomic_int sandboxes;     /* made and not removed */
	atomic_int objects;       /* not closed */
	struct sbx_sandbox *made; /* the last one */
	struct sbx_sandbox *left[8];
	char ids[64][SBX_REV_MAX]; /* of snapshots, as inner calls them */
	size_t nids;
	pthread_mutex_t lock; /* points */
	pthread_cond_t changed;
	struct fault_point {
		int calls, spared, failing, code;
		enum { OPEN, CLOSED, OCCUPIED } gate;
		char asked[256];
	} points[FAULTS];
};

/* Destroyed by sbx_backend_destroy(), and INNER with it. */
void faults_wrap(struct faults *f, struct sbx_backend *inner);
/* From the Nth call of OP on, counted from now, MANY of them fail with CODE, a positive errno. */
void faults_fail(struct faults *f, enum fault op, int n, int many, int code);
#define faults_refuse(f, op, code) faults_fail(f, op, 1, INT_MAX, code)
#define faults_mend(f, op)         faults_fail(f, op, 1, 0, 0)
/* The next call of OP stays until it is let go. */
void faults_hold(struct faults *f, enum fault op);
void faults_await(struct faults *f, enum fault op); /* until it has come */
void faults_let_go(struct faults *f, enum fault op);
int faults_calls(struct faults *f, enum fault op);
/*
 * What the last CREATE was asked, from|rev|entry|branch, or the last SNAPSHOT that is no mark,
 * message|author|ignored; or whether the sandbox of the last BARRIER of either kind was busy or
 * idle.
 */
const char *faults_asked(struct faults *f, enum fault op);
/* Makes a sandbox for recover to find. */
struct sbx_sandbox *faults_leave(struct faults *f, const char *name);

#endif
