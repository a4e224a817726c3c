/*
 * Threads that get no signals: those are for the thread that asks for them. Thread-safe.
 * pthread_create(3), pthread_sigmask(3).
 */
#ifndef SANDBOXFS_THREAD_H
#define SANDBOXFS_THREAD_H

#include <pthread.h>
#include <stddef.h>

#define SBX_THREADS_MAX 8 /* at work on one thing */

/* Starts FN(DATA) in a thread that the caller joins. 0 or -errno (EAGAIN: no more can be had). */
int sbx_thread_start(pthread_t *ret, void *(*fn)(void *), void *data);
/*
 * Runs FN(DATA) in up to N threads at once, at most SBX_THREADS_MAX, of which this is one, and
 * waits for all. Fewer, when no more can be had, are enough: they share the work among themselves.
 */
void sbx_threads_run(size_t n, void *(*fn)(void *), void *data);

#endif
