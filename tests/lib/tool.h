/*
 * The test tool: one program with a subcommand per thing that a shell cannot do or cannot see
 * exactly. Most make one system call and print its outcome as the name of the errno ("0" when it
 * succeeded), so that a case reads: expect EACCES symlink /etc/passwd a/link
 */
#ifndef SANDBOXFS_TESTS_TOOL_H
#define SANDBOXFS_TESTS_TOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct tool_command {
	const char *name;
	const char *usage;
	int min_args;                      /* without the name itself */
	int (*run)(int argc, char **argv); /* argv[0] is the name; returns the exit code */
};

extern const struct tool_command tool_calls[];    /* single system calls */
extern const struct tool_command tool_files[];    /* whole behaviours of files, self-checking */
extern const struct tool_command tool_controls[]; /* conversations with control files */
extern const struct tool_command tool_loads[];    /* many things at once, and measuring */
extern const struct tool_command tool_hogs[];  /* who takes everything, and what it costs others */
extern const struct tool_command tool_waits[]; /* calls that wait for others */
extern const struct tool_command tool_procs[]; /* the daemon and other processes */
extern const struct tool_command tool_coherence[]; /* host and jobs on one tree, against a model */

/* Prints "0", or the errno's name when RC is negative; returns 0. */
int tool_outcome(int64_t rc);
/* "ENOENT", or "E?" and a number. */
const char *tool_errno_name(int errnum);
/* Prints the message on stderr with errno's name and exits 1. */
void tool_die(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));
/* "O_CREAT|O_EXCL" and octal modes to numbers; exits on an unknown word. */
int tool_open_flags(const char *words);
int64_t tool_number(const char *text);
/* Undoes \n \t \r \\ \0 and \xHH in place; returns the length. */
size_t tool_unescape(char *text);

int64_t tool_now_ns(void);
/* Ends the program by SIGALRM after so many seconds. */
void tool_deadline(unsigned seconds);
/* Returns when the process sleeps in the kernel; exits when it has ended. */
void tool_await_asleep(pid_t pid);
/* Lets a moment pass between two looks at something that sends no event. */
void tool_poll_pause(void);

/* An argv as NUL-separated request, ended by an empty element; malloc'd. */
char *tool_request(char *const *argv, size_t *len);
/* Reads what is there to EOF, NUL-terminated, malloc'd; NULL with errno set. */
char *tool_read_all(int fd, size_t *len);
char *tool_read_file(const char *path, size_t *len);
/* Writes ARGV to the control file PATH (exec, spawn) and returns what the same file reads, or NULL.
 */
char *tool_call(const char *path, char *const *argv);

#endif
