/* Contents of one large file. What was written is removed again, untimed. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "micro.h"
#include "sandboxfs/cleanup.h"

#define MIB ((size_t)1 << 20)

static char buffer[128 * 1024];

static void fill(int fd, size_t bytes)
{
	for (size_t at = 0; at < bytes; at += sizeof(buffer))
		if (write(fd, buffer, sizeof(buffer)) != (ssize_t)sizeof(buffer))
			micro_die("write");
}

static int make(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	if (fd < 0)
		micro_die(path);
	for (size_t i = 0; i < sizeof(buffer); i++)
		buffer[i] = (char)(i * 31);
	return fd;
}

static void run_make(char **args)
{
	_cleanup_fd_ int fd = make(args[0]);

	fill(fd, micro_number(args[1]) * MIB);
	if (fsync(fd))
		micro_die("fsync");
	micro_report(0, 1);
}

static size_t read_through(const char *path)
{
	_cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t total = 0;
	ssize_t n;

	if (fd < 0)
		micro_die(path);
	while ((n = read(fd, buffer, sizeof(buffer))) > 0)
		total += (size_t)n;
	if (n < 0)
		micro_die(path);
	return total;
}

/* Of free memory, what lies in pieces of less than 2 MiB; half of it at most. */
static size_t scattered(void)
{
	_cleanup_file_ FILE *f = fopen("/proc/buddyinfo", "re");
	const size_t most = (size_t)sysconf(_SC_AVPHYS_PAGES) / 2;
	size_t pages = 0;
	char line[512];

	while (f && fgets(line, sizeof(line), f)) {
		char *at = strstr(line, "zone");

		at = at ? strpbrk(at + 4, "0123456789") : NULL;
		/* "Node 0, zone    DMA32  1  2": the digits of a name are no number of pieces. */
		if (at && at > line && at[-1] != ' ')
			at = strchr(at, ' ');
		for (int order = 0; at && order < 9; order++)
			pages += strtoul(at, &at, 10) << order;
	}
	return (pages < most ? pages : most) * 4096;
}

/*
 * Has the cache take the file in again, from memory in one piece: small pages that lie scattered
 * are read at half the speed, and who came first would have got those. Read twice, since the kernel
 * moves what is read a second time to its list of what is used.
 */
static void warm(const char *path)
{
	_cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	_cleanup_fd_ int compact = open("/proc/sys/vm/compact_memory", O_WRONLY | O_CLOEXEC);
	char *taken;
	size_t size;

	if (fd < 0 || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED))
		micro_die(path);
	/* Only root may; else as it lies. */
	if (compact >= 0 && write(compact, "1", 1) != 1)
		micro_die("compact_memory");
	size = scattered() + 4096;
	taken = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (taken == MAP_FAILED)
		micro_die("mmap");
	madvise(taken, size, MADV_NOHUGEPAGE);
	for (size_t at = 0; at < size; at += 4096)
		taken[at] = 1;
	read_through(path);
	read_through(path);
	munmap(taken, size);
}

/* In MiB; so a number of operations is one of MiB. */
static void run_read(char **args)
{
	int64_t start;
	size_t n;

	if (!strcmp(args[0], "warm"))
		warm(args[1]);
	start = micro_now_ns();
	n = read_through(args[1]);
	micro_report(micro_now_ns() - start, n / MIB);
}

static void run_write(char **args)
{
	size_t mib = micro_number(args[2]);
	_cleanup_fd_ int fd = make(args[1]);
	int64_t start = micro_now_ns();

	fill(fd, mib * MIB);
	if (!strcmp(args[0], "fsync") && fsync(fd))
		micro_die("fsync");
	micro_report(micro_now_ns() - start, mib);
	unlink(args[1]);
}

/* 4 KiB at offsets that a fixed sequence gives, into a file that is there already. */
static void run_random(char **args)
{
	size_t blocks = micro_number(args[1]) * MIB / 4096, n = micro_number(args[2]);
	_cleanup_fd_ int fd = make(args[0]);
	uint64_t x = 88172645463325252u;
	int64_t start;

	fill(fd, blocks * 4096);
	if (fsync(fd))
		micro_die("fsync");
	start = micro_now_ns();
	for (size_t i = 0; i < n; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		if (pwrite(fd, buffer, 4096, (off_t)(x % blocks * 4096)) != 4096)
			micro_die("pwrite");
	}
	micro_report(micro_now_ns() - start, n);
	unlink(args[0]);
}

const struct micro_op micro_data[] = {
        {"make", "FILE MIB", 2, run_make},
        {"read", "warm|cold FILE", 2, run_read},
        {"write", "cached|fsync FILE MIB", 3, run_write},
        {"random", "FILE MIB N", 3, run_random},
        {0},
};
