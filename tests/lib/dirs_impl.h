/* The parts of the provider dirs, among themselves. */
#ifndef SANDBOXFS_TESTS_DIRS_IMPL_H
#define SANDBOXFS_TESTS_DIRS_IMPL_H

#include <pthread.h>
#include <sys/stat.h>

#include "backends/remote/provider.h"
#include "sandboxfs/loop.h"

enum dirs_kind {
	DIRS_NO_FAULT,
	DIRS_LATENCY,
	DIRS_LOST,
	DIRS_STALL,
	DIRS_CUT,
	DIRS_BUSY,
	DIRS_BROKEN,
	DIRS_VANISH,
	DIRS_ASLEEP,
	DIRS_HOSTILE,
	DIRS_BLACKHOLE,
	DIRS_LATE,
	DIRS_GIVEN_UP,
};

struct dirs_rule {
	char verb[16], op[32], machine[128]; /* "": any */
	enum dirs_kind kind;
	unsigned long count, every; /* 0: no such limit */
	char arg[64];
	unsigned long matched;
};

/* The file of faults as it was read. Thread-safe. */
struct dirs_faults {
	pthread_mutex_t lock;
	struct stat read; /* of the file; st_ino 0: none */
	struct dirs_rule *rules;
	size_t n, cap;
	unsigned bad; /* the line that cannot be read; 0: all can */
};

/* What becomes of a request. */
struct dirs_fault {
	enum dirs_kind kind;
	char arg[64];
	uint64_t latency_ms;
};

/* The fault of a request, by the file "faults" in DIR. -EINVAL: a line cannot be read. */
int dirs_faults_next(struct dirs_faults *f, int dir, const char *machine, const char *verb,
                     const char *op, struct dirs_fault *ret, struct sbx_error *err);
/* ARG as a number; FALLBACK where there is none. */
uint64_t dirs_fault_number(const struct dirs_fault *fault, uint64_t fallback);
/* The word of a kind, "-" of none. */
const char *dirs_fault_word(enum dirs_kind kind);
void dirs_faults_release(struct dirs_faults *f);

struct dirs {
	struct sbx_provider base;
	struct sbx_provider_impl impl; /* of its own, because `can` is the environment's */
	struct sbx_loop *loop;
	struct sbx_pool *pool; /* for what a run or put cannot do on the loop */
	char *path;            /* of the base */
	int dir, machines;     /* the base and BASE/machines, open */
	char *shell, *search;  /* words; PATH in a machine */
	uint64_t latency_ms;
	struct dirs_faults faults;
};

struct dirs_machine {
	struct sbx_machine base;
	struct dirs *dirs;
	char *name, *path, *home;
	atomic_uint runs; /* under way */
};

static inline struct dirs_machine *dirs_machine_of(struct sbx_machine *m)
{
	return (struct dirs_machine *)m;
}

/* Notes that a request has come and says in *FAULT what becomes of it. -EINVAL as above. */
int dirs_request(struct dirs *d, const char *machine, const char *verb, const char *op,
                 uint64_t bytes, struct dirs_fault *fault, struct sbx_error *err);

/* The state of the machine NAME. Of one that has FAILED, REASON (256 bytes) and *CODE (an errno;
 * may be NULL) tell why. */
enum sbx_machine_state dirs_state(struct dirs *d, const char *name, char *reason, int *code);
int dirs_set_state(struct dirs *d, const char *name, const char *text);
/* The machine, with all that runs there, is no more; success when it never was. Blocks. */
int dirs_machine_remove(struct dirs *d, const char *name, struct sbx_error *err);
/* Ends all processes of the machine, whatever session they are in. Blocks. */
void dirs_machine_kill(struct dirs *d, const char *name);
/* It falls asleep, with which all its processes end. Blocks. */
void dirs_machine_sleep(struct dirs *d, const char *name);
/* Starts the shell with SCRIPT in the machine; FILTER (NULL: none) is what its output goes through.
 * *OUT is the other end of its standard output. Its process or -errno. */
pid_t dirs_machine_spawn(struct dirs_machine *m, const char *script, size_t len, const char *filter,
                         int *out);

void dirs_run(struct sbx_machine *m, struct sbx_machine_run *run);
void dirs_cancel_run(struct sbx_machine *m, struct sbx_machine_run *run);
void dirs_put(struct sbx_machine *m, struct sbx_machine_put *put);
void dirs_cancel_put(struct sbx_machine *m, struct sbx_machine_put *put);

#endif
