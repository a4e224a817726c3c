/*
 * From a command to the words of r_exec. Its variables and arguments become the words of env(1):
 * so a variable may have any name, and the program is looked for along the PATH that it gets.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/remote/jobs_impl.h"
#include "backends/support/escape.h"
#include "sandboxfs/cleanup.h"

#define WORD_MAX   ((size_t)128 * 1024 - 1) /* of a word of execve, its NUL included */
#define WORDS_MAX  ((size_t)1792 * 1024)    /* of all; the machine has some of its own */
#define INLINE_MAX ((size_t)16 * 1024)      /* of standard input, in the line */
#define GRACE_MS   2000                     /* after the time at which the caller signals */
#define MIB_BLOCKS 2048                     /* of 512 bytes */

static int count(char *const *words, size_t *sum, struct sbx_error *err)
{
	for (; *words; words++) {
		const size_t n = strlen(*words) + 1;

		*sum += n + sizeof(char *);
		if (n > WORD_MAX || *sum > WORDS_MAX)
			return sbx_fail(err, E2BIG,
			                "arguments and environment are longer than a command "
			                "can be given");
	}
	return 0;
}

/* The PATH of a command whose environment is ENV; NULL: the machine's. */
static const char *path_of(char *const *env)
{
	const char *path = NULL;

	for (; env && *env; env++)
		if (strncmp(*env, "PATH=", 5) == 0)
			path = *env + 5;
	return path;
}

static void add_number(struct remote_text *t, uint64_t n)
{
	remote_text_printf(t, " %llu", (unsigned long long)n);
}

/* N, or 0 where that is more than a shell of 32 bits can count to, and no limit. */
static uint64_t countable(uint64_t n)
{
	return n < INT32_MAX ? n : 0;
}

static void add_limits(struct job_words *w, const struct sbx_exec *spec)
{
	w->keep = spec->limits.output_bytes;
	w->soon = spec->background || spec->live;
	w->timeout_ms = countable(spec->timeout_ms);
	w->time_ms = w->timeout_ms ? countable(w->timeout_ms + GRACE_MS) : 0;
	add_number(&w->line, w->time_ms);
	add_number(&w->line, countable(spec->limits.cpu_s));
	add_number(&w->line, spec->limits.memory_mb * 1024);
	add_number(&w->line, spec->limits.procs);
	add_number(&w->line, spec->limits.file_mb * MIB_BLOCKS);
}

static void add_all(struct remote_text *t, char *const *words)
{
	for (; words && *words; words++)
		remote_text_word(t, *words);
}

/* PROGRAM and PATH, for the runner to look whether there is such a program, and what env gets. */
static void add_command(struct remote_text *t, const struct sbx_exec *spec)
{
	const char *program = spec->program ? spec->program : spec->argv[0];
	const char *path = path_of(spec->env);
	_cleanup_free_ char *given = NULL;

	remote_text_word(t, program);
	if (path && asprintf(&given, "x%s", path) < 0)
		t->failed = true;
	remote_text_word(t, given ? given : "");
	add_all(t, spec->env);
	if (strchr(program, '=') || strcmp(program, spec->argv[0]) != 0) {
		remote_text_add(t, " /bin/sh -c \"$R_JOB_NAMED\" sh");
		remote_text_word(t, spec->argv[0]);
		remote_text_word(t, program);
	} else {
		remote_text_word(t, program);
	}
	add_all(t, spec->argv + 1);
}

/* ---- standard input ---- */

/* The N bytes of DATA as a format of printf(1), all but letters and digits by their number. */
static char *format_of(const unsigned char *data, size_t n)
{
	char *format = malloc(4 * n + sizeof("p:")), *at = format;

	if (!format)
		return NULL;
	at = stpcpy(at, "p:");
	for (size_t i = 0; i < n; i++) {
		const unsigned char c = data[i];

		if ((c >= ' ' && c <= '~' && !strchr("%\\'-", c)))
			*at++ = (char)c;
		else
			at = sbx_put_octal(at, c);
	}
	*at = '\0';
	return format;
}

static int add_input_inline(struct remote_text *t, int fd, uint64_t offset, size_t size)
{
	_cleanup_free_ unsigned char *data = malloc(size);
	_cleanup_free_ char *format = NULL;
	size_t done = 0;

	while (data && done < size) {
		const ssize_t n = pread(fd, data + done, size - done, (off_t)(offset + done));

		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		done += (size_t)n;
	}
	format = data ? format_of(data, done) : NULL;
	if (!format)
		return -ENOMEM;
	remote_text_word(t, format);
	return 0;
}

static int add_input_put(struct job_words *w, int fd, uint64_t offset, uint64_t size,
                         unsigned number)
{
	const int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);

	if (own < 0)
		return -errno;
	w->input = (struct sbx_machine_file){.number = number,
	                                     .bytes = {.fd = own, .offset = offset, .size = size}};
	remote_text_printf(&w->line, " f:%u", number);
	return 0;
}

/* What was written before the start is a memory file, which is read without waiting. */
static int add_input(struct job_words *w, const struct sbx_exec *spec, unsigned number,
                     struct sbx_error *err)
{
	const int fd = spec->stdin_fd;
	struct stat st;
	uint64_t size;
	off_t at;
	int r = 0;

	if (fd < 0) {
		remote_text_add(&w->line, " ''");
		return 0;
	}
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return sbx_fail(err, EOPNOTSUPP,
		                "a command elsewhere gets the input that was written before it is "
		                "started, and no other");
	at = lseek(fd, 0, SEEK_CUR);
	size = at >= 0 && st.st_size > at ? (uint64_t)(st.st_size - at) : 0;
	if (size > INLINE_MAX)
		r = add_input_put(w, fd, (uint64_t)at, size, number);
	else if (size)
		r = add_input_inline(&w->line, fd, (uint64_t)at, size);
	else
		remote_text_add(&w->line, " ''");
	return r < 0 ? sbx_fail(err, -r, "the standard input of the command: %s", strerror(-r)) : 0;
}

int job_words_take(struct job_words *w, const struct sbx_exec *spec, unsigned number,
                   struct sbx_error *err)
{
	size_t sum = 0;
	int r;

	*w = (struct job_words){.input = {.bytes = {.fd = -1}}};
	r = count(spec->argv, &sum, err);
	if (!r && spec->env)
		r = count(spec->env, &sum, err);
	if (r < 0)
		return r;
	remote_text_word(&w->line, spec->cwd ? spec->cwd : "");
	r = add_input(w, spec, number, err);
	if (r < 0)
		return r;
	add_limits(w, spec);
	add_command(&w->line, spec);
	return w->line.failed ? sbx_no_memory(err) : 0;
}

void job_words_release(struct job_words *w)
{
	remote_text_release(&w->line);
	if (w->input.bytes.size && w->input.bytes.fd >= 0)
		close(w->input.bytes.fd);
	w->input.bytes = (struct sbx_http_bytes){.fd = -1};
}
