/*
 * Stands in for the spawner: runs nothing and remembers what it was asked. Its functions are weak,
 * so that a program may be linked with the real one instead.
 */
#ifndef SANDBOXFS_TESTS_SPAWNER_STUB_H
#define SANDBOXFS_TESTS_SPAWNER_STUB_H

#include <stdatomic.h>

#include "sandboxfs/spawner.h"

struct sbx_spawner {
	int calls;
	atomic_int forgotten;
	char id[128], workdir[4096], view[4096];
	char ro[4][4096];   /* "" after the last */
	char rw[4][4096];   /* likewise */
	char env[32][4096]; /* "" after the last */
	bool has_room;      /* trees can be layered: a real room is started */
	int answer;         /* what exec returns; 0: a job that ends at once */
};

#endif
