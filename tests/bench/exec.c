/*
 * The cost of a command: through ctl/exec of a sandbox, by posix_spawn with a pipe, and by bwrap
 * where it is installed. The ways take turns within each round, so that other work of the machine
 * meets all of them.
 *
 *   bench-exec SANDBOX ROUNDS ARGV...
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "exec_calls.h"

struct way {
	const char *name;
	size_t (*run)(struct bench *b); /* bytes of output */
	int64_t *ns;
};

static int compare(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

static double percentile_us(const struct way *w, int rounds, int p)
{
	return (double)w->ns[(rounds - 1) * p / 100] / 1000;
}

static void report(struct way *ways, size_t n, int rounds)
{
	for (size_t i = 0; i < n; i++) {
		qsort(ways[i].ns, (size_t)rounds, sizeof(int64_t), compare);
		printf("%-12s p50 %8.1f us   p90 %8.1f us   x %.2f\n", ways[i].name,
		       percentile_us(&ways[i], rounds, 50), percentile_us(&ways[i], rounds, 90),
		       percentile_us(&ways[i], rounds, 50) / percentile_us(&ways[0], rounds, 50));
	}
	printf("{\"rounds\":%d", rounds);
	for (size_t i = 0; i < n; i++)
		printf(",\"%s\":{\"p50_us\":%.1f,\"p90_us\":%.1f,\"ratio\":%.3f}", ways[i].name,
		       percentile_us(&ways[i], rounds, 50), percentile_us(&ways[i], rounds, 90),
		       percentile_us(&ways[i], rounds, 50) / percentile_us(&ways[0], rounds, 50));
	puts("}");
}

int main(int argc, char **argv)
{
	static struct bench b;
	struct way ways[] = {{"posix_spawn", bench_run_spawn},
	                     {"sandboxfs", bench_run_sandbox},
	                     {"bwrap", bench_run_bwrap}};
	size_t n = access("/usr/bin/bwrap", X_OK) ? 2 : 3;
	int rounds = argc > 3 ? atoi(argv[2]) : 0;

	if (rounds <= 0) {
		fprintf(stderr, "bench-exec SANDBOX ROUNDS ARGV...\n");
		return 2;
	}
	bench_prepare(&b, argv[1], argv + 3);
	for (size_t i = 0; i < n; i++)
		ways[i].ns = calloc((size_t)rounds, sizeof(int64_t));
	for (int r = -10; r < rounds; r++) {
		size_t bytes = 0;

		for (size_t i = 0; i < n; i++) {
			int64_t start = bench_now_ns();
			size_t got = ways[i].run(&b);

			if (r >= 0)
				ways[i].ns[r] = bench_now_ns() - start;
			if (i && got != bytes)
				bench_die("the outputs differ");
			bytes = got;
		}
	}
	report(ways, n, rounds);
	return 0;
}
