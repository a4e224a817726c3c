/* The dispatcher of the test tool, and what its parts share. */
#include "tool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "sandboxfs/cleanup.h"

static const struct tool_command *const tables[] = {
        tool_calls, tool_files, tool_controls, tool_loads,
        tool_hogs,  tool_waits, tool_procs,    tool_coherence,
};

const char *tool_errno_name(int errnum)
{
	static char unknown[16];
	const char *name = strerrorname_np(errnum);

	if (name)
		return name;
	snprintf(unknown, sizeof(unknown), "E?%d", errnum);
	return unknown;
}

int tool_outcome(int64_t rc)
{
	printf("%s\n", rc < 0 ? tool_errno_name(errno) : "0");
	return 0;
}

void tool_die(const char *fmt, ...)
{
	int saved = errno;
	va_list ap;

	fprintf(stderr, "tool: ");
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, " [%s]\n", saved ? tool_errno_name(saved) : "no errno");
	exit(1);
}

int tool_open_flags(const char *words)
{
	static const struct {
		const char *name;
		int value;
	} known[] = {
	        {"O_RDONLY", O_RDONLY},   {"O_WRONLY", O_WRONLY},       {"O_RDWR", O_RDWR},
	        {"O_CREAT", O_CREAT},     {"O_EXCL", O_EXCL},           {"O_TRUNC", O_TRUNC},
	        {"O_APPEND", O_APPEND},   {"O_DIRECTORY", O_DIRECTORY}, {"O_NOFOLLOW", O_NOFOLLOW},
	        {"O_TMPFILE", O_TMPFILE}, {"O_NONBLOCK", O_NONBLOCK},   {"O_PATH", O_PATH},
	        {"O_SYNC", O_SYNC},       {"O_DIRECT", O_DIRECT},
	};
	_cleanup_free_ char *copy = strdup(words);
	char *save = NULL;
	int flags = 0;

	for (char *w = strtok_r(copy, "|,", &save); w; w = strtok_r(NULL, "|,", &save)) {
		size_t i = 0;

		while (i < SBX_ARRAY_SIZE(known) && strcmp(known[i].name, w))
			i++;
		if (i == SBX_ARRAY_SIZE(known))
			tool_die("unknown flag %s", w);
		flags |= known[i].value;
	}
	return flags;
}

int64_t tool_number(const char *text)
{
	char *end;
	int64_t n = strtoll(text, &end, 0);

	if (*end || end == text)
		tool_die("not a number: %s", text);
	return n;
}

static int hex_digit(char c)
{
	const char *digits = "0123456789abcdef";
	const char *at = c ? strchr(digits, c) : NULL;

	return at ? (int)(at - digits) : -1;
}

size_t tool_unescape(char *text)
{
	static const char from[] = "ntr\\0", to[] = "\n\t\r\\\0";
	char *out = text;

	for (const char *in = text; *in; in++) {
		const char *at;

		if (*in != '\\') {
			*out++ = *in;
		} else if (in[1] == 'x' && hex_digit(in[2]) >= 0 && hex_digit(in[3]) >= 0) {
			*out++ = (char)(hex_digit(in[2]) << 4 | hex_digit(in[3]));
			in += 3;
		} else if (in[1] && (at = strchr(from, in[1]))) {
			*out++ = to[at - from];
			in++;
		} else {
			*out++ = *in;
		}
	}
	*out = 0;
	return (size_t)(out - text);
}

int64_t tool_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

void tool_deadline(unsigned seconds)
{
	alarm(seconds);
}

void tool_poll_pause(void)
{
	nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
}

char *tool_request(char *const *argv, size_t *len)
{
	size_t size = 1, at = 0;
	char *buf;

	for (size_t i = 0; argv[i]; i++)
		size += strlen(argv[i]) + 1;
	buf = calloc(1, size);
	if (!buf)
		tool_die("out of memory");
	for (size_t i = 0; argv[i]; i++) {
		size_t n = strlen(argv[i]) + 1;

		memcpy(buf + at, argv[i], n);
		at += n;
	}
	*len = size;
	return buf;
}

char *tool_read_all(int fd, size_t *len)
{
	size_t size = 0, cap = 65536;
	char *buf = malloc(cap);

	for (;;) {
		ssize_t n;

		if (cap - size < 65536)
			buf = realloc(buf, cap *= 2);
		if (!buf)
			tool_die("out of memory");
		n = read(fd, buf + size, cap - size - 1);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			free(buf);
			return NULL;
		}
		if (!n)
			break;
		size += (size_t)n;
	}
	buf[size] = 0;
	if (len)
		*len = size;
	return buf;
}

char *tool_read_file(const char *path, size_t *len)
{
	_cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);

	return fd < 0 ? NULL : tool_read_all(fd, len);
}

char *tool_call(const char *path, char *const *argv)
{
	_cleanup_fd_ int fd = open(path, O_RDWR | O_CLOEXEC);
	size_t len;
	_cleanup_free_ char *request = tool_request(argv, &len);

	if (fd < 0 || write(fd, request, len) != (ssize_t)len)
		return NULL;
	return tool_read_all(fd, NULL);
}

void tool_await_asleep(pid_t pid)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	for (;;) {
		_cleanup_free_ char *text = tool_read_file(path, NULL);
		const char *end = text ? strrchr(text, ')') : NULL;

		if (!end)
			tool_die("%d ended early", pid);
		if (end[2] == 'S' || end[2] == 'D')
			return;
		tool_poll_pause();
	}
}

static int usage(void)
{
	for (size_t t = 0; t < SBX_ARRAY_SIZE(tables); t++)
		for (const struct tool_command *c = tables[t]; c->name; c++)
			fprintf(stderr, "tool %s %s\n", c->name, c->usage);
	return 2;
}

int main(int argc, char **argv)
{
	if (argc < 2)
		return usage();
	for (size_t t = 0; t < SBX_ARRAY_SIZE(tables); t++)
		for (const struct tool_command *c = tables[t]; c->name; c++)
			if (!strcmp(c->name, argv[1])) {
				if (argc - 2 < c->min_args)
					return usage();
				tool_deadline(300);
				return c->run(argc - 1, argv + 1);
			}
	return usage();
}
