/* A command by each of the ways that the benchmarks of exec compare. */
#ifndef SANDBOXFS_TESTS_BENCH_EXEC_CALLS_H
#define SANDBOXFS_TESTS_BENCH_EXEC_CALLS_H

#include <stddef.h>
#include <stdint.h>

struct bench {
	char exec[4096], out[4096], status[4096]; /* control files */
	char request[65536];                      /* ARGV, NUL-separated */
	size_t request_len;
	char **argv;
	char *bwrap[64]; /* bwrap's argv */
};

void bench_die(const char *what) __attribute__((noreturn));
int64_t bench_now_ns(void);
/* Fills B for ARGV (borrowed) in the sandbox BOX. */
void bench_prepare(struct bench *b, const char *box, char **argv);

/* Each runs the command once and gives the bytes of its output. */
size_t bench_run_sandbox(struct bench *b);
size_t bench_run_spawn(struct bench *b);
size_t bench_run_bwrap(struct bench *b);

#endif
