/*
 * A sandbox that is elsewhere, as the test plays it: what is wanted is noted, and the test says
 * what becomes of it, when.
 */
#ifndef SANDBOXFS_TESTS_PLAYED_AWAY_H
#define SANDBOXFS_TESTS_PLAYED_AWAY_H

#include <pthread.h>

#include "sandboxfs/away.h"
#include "sandboxfs/loop.h"

struct played_away {
	struct sbx_loop *loop;
	pthread_rwlock_t turn;
	const char *state;    /* what info says; NULL: nothing */
	pthread_mutex_t lock; /* all below */
	pthread_cond_t came;
	bool here, full;
	struct sbx_want *wants;
	unsigned asked, flushed, given_up; /* how often */
	int admitted;                      /* and not told of */
	char log[1024];                    /* changes: a word and a path each */
};

extern const struct sbx_away_impl played_away_impl;

/* Answers come on LOOP. A sandbox with played_away_impl has the address of turn. */
void played_away_init(struct played_away *a, struct sbx_loop *loop);
void played_away_finish(struct played_away *a);
/* Returns when COUNT wants and flushes have come, all in all. */
void played_away_await(struct played_away *a, unsigned count);
/* Tells all who wait CODE, a positive errno or 0, with TEXT. */
void played_away_answer(struct played_away *a, int code, const char *text);

#endif
