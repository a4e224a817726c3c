#include "tests/lib/python_server.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <spawn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define WORDS 8

void python_server_start(struct python_server *s, const char *program, const char *const *args)
{
	char *argv[WORDS] = {(char *)"python3", (char *)program};
	posix_spawn_file_actions_t actions;
	int in[2], out[2];
	FILE *said;

	for (size_t i = 0; args[i]; i++) {
		assert_true(i + 3 < WORDS);
		argv[i + 2] = (char *)args[i];
	}
	assert_int_equal(pipe2(in, O_CLOEXEC), 0);
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, in[0], 0);
	posix_spawn_file_actions_adddup2(&actions, out[1], 1);
	assert_int_equal(posix_spawnp(&s->pid, argv[0], &actions, NULL, argv, environ), 0);
	posix_spawn_file_actions_destroy(&actions);
	close(in[0]);
	close(out[1]);
	s->in = in[1];
	said = fdopen(out[0], "r");
	assert_non_null(said);
	assert_int_equal(fscanf(said, "%d", &s->port), 1);
	fclose(said);
}

void python_server_stop(struct python_server *s)
{
	close(s->in);
	assert_int_equal(waitpid(s->pid, NULL, 0), s->pid);
}
