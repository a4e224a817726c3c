#include "sandboxfs/thread.h"

#include <signal.h>

int sbx_thread_start(pthread_t *ret, void *(*fn)(void *), void *data)
{
	sigset_t all, old;
	int r;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(ret, NULL, fn, data);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return -r;
}

void sbx_threads_run(size_t n, void *(*fn)(void *), void *data)
{
	pthread_t threads[SBX_THREADS_MAX];
	size_t started = 0;

	if (n > SBX_THREADS_MAX)
		n = SBX_THREADS_MAX;
	while (started + 1 < n && sbx_thread_start(&threads[started], fn, data) == 0)
		started++;
	fn(data);
	while (started)
		pthread_join(threads[--started], NULL);
}
