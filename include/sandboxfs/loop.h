/*
 * The event loop: one thread that waits for descriptors and timers (epoll).
 * It owns jobs and, in remote backends, HTTP. Nothing it calls may block.
 *
 * Watches and timers are embedded in the owner's object, so arming one never
 * allocates. Unless a function says otherwise it may be called on the loop
 * thread only; sbx_loop_post() is the way in from everywhere else.
 */
#ifndef SANDBOXFS_LOOP_H
#define SANDBOXFS_LOOP_H

#include <stdbool.h>
#include <stdint.h>

struct sbx_loop;

struct sbx_watch {
	int fd; /* -1 while not watched; the owner closes it after sbx_loop_unwatch */
	void (*fn)(struct sbx_watch *w, uint32_t events); /* EPOLLIN, EPOLLOUT, EPOLLHUP... */
	void *data;                                       /* for fn */
};

struct sbx_timer {
	uint64_t due_ns; /* CLOCK_MONOTONIC; 0 while not armed */
	int slot;        /* private: place in the heap */
	void (*fn)(struct sbx_timer *t);
	void *data;
};

/* Returns 0 or a negative errno (EMFILE, ENOMEM). */
int sbx_loop_create(struct sbx_loop **ret);
/* Accepts NULL. Posted work that has not run is run first. The loop must not be running. */
void sbx_loop_destroy(struct sbx_loop *loop);
/* Runs what was posted. The loop must not be running. */
void sbx_loop_drain(struct sbx_loop *loop);
/* Runs until sbx_loop_stop; the calling thread becomes the loop thread. */
void sbx_loop_run(struct sbx_loop *loop);
/* Ends sbx_loop_run, which runs everything that was posted before and then returns. Any thread. */
void sbx_loop_stop(struct sbx_loop *loop);

/*
 * Starts watching w->fd for EVENTS (epoll bits, level-triggered). w->fd, w->fn
 * and w->data are set by the caller. Any thread. Returns 0 or -errno.
 */
int sbx_loop_watch(struct sbx_loop *loop, struct sbx_watch *w, uint32_t events);
/* Replaces the events of W, which is watched. Returns 0 or -errno. */
int sbx_loop_rewatch(struct sbx_loop *loop, struct sbx_watch *w, uint32_t events);
/* Sets w->fd to -1 and returns the descriptor it was, or -1. After it returns fn is not called
 * again. */
int sbx_loop_unwatch(struct sbx_loop *loop, struct sbx_watch *w);

/* Calls t->fn once, delay_ms from now. Arming an armed timer moves it. */
void sbx_loop_timer_set(struct sbx_loop *loop, struct sbx_timer *t, uint64_t delay_ms);
/* t->fn is not called any more. Accepts a timer that is not armed. */
void sbx_loop_timer_cancel(struct sbx_loop *loop, struct sbx_timer *t);

/*
 * Has fn(data) called on the loop thread, in the order of posting. Any thread;
 * never blocks. Aborts the process when memory is exhausted.
 */
void sbx_loop_post(struct sbx_loop *loop, void (*fn)(void *data), void *data);

#endif
