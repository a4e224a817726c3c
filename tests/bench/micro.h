/* Declarations that the parts of bench-micro share. */
#ifndef SANDBOXFS_TESTS_BENCH_MICRO_H
#define SANDBOXFS_TESTS_BENCH_MICRO_H

#include <stddef.h>
#include <stdint.h>

/* One operation; it prepares what it needs untimed and ends by micro_report. */
struct micro_op {
	const char *name, *usage;
	int args; /* at least */
	void (*run)(char **args);
};

/* Each table ends with a row without a name. */
extern const struct micro_op micro_trees[], micro_data[], micro_names[];

void micro_die(const char *what) __attribute__((noreturn));
int64_t micro_now_ns(void);
/* Prints the result: NS for OPS operations. */
void micro_report(int64_t ns, size_t ops);
size_t micro_number(const char *text);

#endif
