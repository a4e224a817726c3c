/*
 * Many clients at once, each in a sandbox of its own, or each with posix_spawn. Prints `NS OPS`.
 *
 *   bench-exec-many sandbox|spawn BOXES THREADS COMMANDS ARGV...
 *
 * The sandboxes are BOXES0, BOXES1...; each thread runs COMMANDS commands, after one that does not
 * count.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec_calls.h"

struct client {
	struct bench bench;
	size_t (*run)(struct bench *b);
	int commands;
	pthread_t thread;
	pthread_barrier_t *begin;
};

static void *work(void *data)
{
	struct client *c = data;

	c->run(&c->bench);
	pthread_barrier_wait(c->begin);
	for (int i = 0; i < c->commands; i++)
		c->run(&c->bench);
	return NULL;
}

int main(int argc, char **argv)
{
	int threads = argc > 5 ? atoi(argv[3]) : 0, commands = argc > 5 ? atoi(argv[4]) : 0;
	pthread_barrier_t begin;
	struct client *clients;
	int64_t start;

	if (threads <= 0 || commands <= 0) {
		fprintf(stderr, "bench-exec-many sandbox|spawn BOXES THREADS COMMANDS ARGV...\n");
		return 2;
	}
	clients = calloc((size_t)threads, sizeof(*clients));
	if (!clients)
		bench_die("memory");
	pthread_barrier_init(&begin, NULL, (unsigned)threads + 1);
	for (int i = 0; i < threads; i++) {
		struct client *c = &clients[i];
		char box[3072];

		snprintf(box, sizeof(box), "%s%d", argv[2], i);
		bench_prepare(&c->bench, box, argv + 5);
		c->run = strcmp(argv[1], "spawn") ? bench_run_sandbox : bench_run_spawn;
		c->commands = commands;
		c->begin = &begin;
		if (pthread_create(&c->thread, NULL, work, c))
			bench_die("thread");
	}
	pthread_barrier_wait(&begin);
	start = bench_now_ns();
	for (int i = 0; i < threads; i++)
		pthread_join(clients[i].thread, NULL);
	printf("%lld %d\n", (long long)(bench_now_ns() - start), threads * commands);
	free(clients);
	return 0;
}
