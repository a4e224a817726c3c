/* Readings of the clocks. None fails; all are thread-safe. clock_gettime(2). */
#ifndef SANDBOXFS_CLOCK_H
#define SANDBOXFS_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Seconds that fit in 64 bits as nanoseconds: a file may have any time. */
#define SBX_SECONDS_MAX INT64_C(9000000000)

/* *T in nanoseconds; what is farther from 1970 than SBX_SECONDS_MAX is just so far. */
static inline int64_t sbx_timespec_ns(const struct timespec *t)
{
	if (t->tv_sec >= SBX_SECONDS_MAX)
		return SBX_SECONDS_MAX * INT64_C(1000000000);
	if (t->tv_sec < -SBX_SECONDS_MAX)
		return -SBX_SECONDS_MAX * INT64_C(1000000000);
	return t->tv_sec * INT64_C(1000000000) + t->tv_nsec;
}

/* The reading of CLOCK in nanoseconds. */
static inline int64_t sbx_clock_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return sbx_timespec_ns(&t);
}

/* CLOCK_MONOTONIC in nanoseconds. */
static inline uint64_t sbx_now_ns(void)
{
	return (uint64_t)sbx_clock_ns(CLOCK_MONOTONIC);
}

/* CLOCK_MONOTONIC in milliseconds. */
static inline uint64_t sbx_now_ms(void)
{
	return sbx_now_ns() / 1000000;
}

/* CLOCK_REALTIME in nanoseconds since the epoch. */
static inline int64_t sbx_real_ns(void)
{
	return sbx_clock_ns(CLOCK_REALTIME);
}

/* CLOCK_REALTIME in milliseconds since the epoch. */
static inline int64_t sbx_real_ms(void)
{
	return sbx_real_ns() / 1000000;
}

/* The time of CLOCK that is NS nanoseconds from now, for what waits until a time. */
static inline struct timespec sbx_clock_after(clockid_t clock, int64_t ns)
{
	const int64_t at = sbx_clock_ns(clock) + ns;

	return (struct timespec){.tv_sec = at / 1000000000, .tv_nsec = at % 1000000000};
}

#endif
