/* Behaviours of files that take more than one call; each checks itself and says what is wrong. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sandboxfs/cleanup.h"
#include "tool.h"

static int good(void)
{
	puts("0");
	return 0;
}

static int open_or_die(const char *path, int flags)
{
	int fd = open(path, flags | O_CLOEXEC, 0644);

	if (fd < 0)
		tool_die("open %s", path);
	return fd;
}

static void write_or_die(int fd, const void *buf, size_t len)
{
	if (write(fd, buf, len) != (ssize_t)len)
		tool_die("write");
}

static void append_records(const char *path, int who, int count)
{
	_cleanup_fd_ int fd = open_or_die(path, O_WRONLY | O_APPEND);
	char record[64];

	for (int i = 0; i < count; i++) {
		int n = snprintf(record, sizeof(record), "%d:%d\n", who, i);

		write_or_die(fd, record, (size_t)n);
	}
	exit(0);
}

static void wait_children(int n)
{
	while (n--) {
		int status;

		if (wait(&status) < 0 || status)
			tool_die("child ended with %d", status);
	}
}

/* Every record of every writer is there, and each writer's are in order. */
static int cmd_append_race(int argc, char **argv)
{
	int writers = (int)tool_number(argv[2]), count = (int)tool_number(argv[3]), total = 0;
	_cleanup_free_ int *next = calloc((size_t)writers, sizeof(int));
	_cleanup_free_ char *text = NULL;
	char *save = NULL;

	(void)argc;
	close(open_or_die(argv[1], O_CREAT | O_TRUNC | O_WRONLY));
	for (int w = 0; w < writers; w++)
		if (!fork())
			append_records(argv[1], w, count);
	wait_children(writers);
	text = tool_read_file(argv[1], NULL);
	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		int who, i;

		if (sscanf(line, "%d:%d", &who, &i) != 2 || who >= writers || next[who]++ != i)
			tool_die("damaged line '%s'", line);
		total++;
	}
	if (total != writers * count)
		tool_die("%d records of %d", total, writers * count);
	return good();
}

static int cmd_mmap(int argc, char **argv)
{
	_cleanup_fd_ int fd = open_or_die(argv[1], O_CREAT | O_RDWR | O_TRUNC);
	size_t size = 3 * 4096 + 100;
	_cleanup_free_ char *back = NULL;
	char *map;

	(void)argc;
	if (ftruncate(fd, (off_t)size))
		tool_die("ftruncate");
	map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		tool_die("mmap");
	for (size_t i = 0; i < size; i++)
		map[i] = (char)('a' + i % 26);
	if (msync(map, size, MS_SYNC) || munmap(map, size))
		tool_die("msync");
	back = tool_read_file(argv[1], &size);
	for (size_t i = 0; i < 3 * 4096 + 100; i++)
		if (back[i] != (char)('a' + i % 26))
			tool_die("byte %zu", i);
	map = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (map == MAP_FAILED || memcmp(map, back, size))
		tool_die("private map differs");
	return good();
}

static int cmd_unlinked(int argc, char **argv)
{
	_cleanup_fd_ int fd = open_or_die(argv[1], O_CREAT | O_RDWR | O_EXCL);
	char buf[16] = {0};
	struct stat st;

	(void)argc;
	write_or_die(fd, "before", 6);
	if (unlink(argv[1]))
		tool_die("unlink");
	write_or_die(fd, " after", 6);
	if (pread(fd, buf, sizeof(buf), 0) != 12 || strcmp(buf, "before after"))
		tool_die("read '%s'", buf);
	if (ftruncate(fd, 3) || fstat(fd, &st) || st.st_size != 3 || st.st_nlink)
		tool_die("size %jd links %ju", (intmax_t)st.st_size, (uintmax_t)st.st_nlink);
	if (fchmod(fd, 0600) || fstat(fd, &st) || (st.st_mode & 0777) != 0600)
		tool_die("fchmod");
	if (!access(argv[1], F_OK))
		tool_die("the name is still there");
	return good();
}

/* The file that was renamed over stays usable through its descriptor. */
static int cmd_replaced(int argc, char **argv)
{
	_cleanup_fd_ int fd = open_or_die(argv[1], O_CREAT | O_RDWR | O_TRUNC);
	_cleanup_fd_ int other = open_or_die(argv[2], O_CREAT | O_RDWR | O_TRUNC);
	char buf[8] = {0};

	(void)argc;
	write_or_die(fd, "old", 3);
	write_or_die(other, "new", 3);
	if (rename(argv[2], argv[1]))
		tool_die("rename");
	if (pread(fd, buf, 8, 0) != 3 || strcmp(buf, "old"))
		tool_die("the old file reads '%s'", buf);
	write_or_die(fd, "er", 2);
	if (pread(other, buf, 8, 0) != 3 || strncmp(buf, "new", 3))
		tool_die("the new file reads '%s'", buf);
	return good();
}

/* COUNT files are open without a name: the errno of a read of the first. */
static int cmd_unlinked_many(int argc, char **argv)
{
	int count = (int)tool_number(argv[2]), first = -1;
	char path[4096], byte;

	(void)argc;
	for (int i = 0; i < count; i++) {
		int fd;

		snprintf(path, sizeof(path), "%s/unlinked-%d", argv[1], i);
		fd = open_or_die(path, O_CREAT | O_EXCL | O_RDWR);
		write_or_die(fd, "x", 1);
		if (unlink(path))
			tool_die("unlink %s", path);
		first = first < 0 ? fd : first;
	}
	puts(pread(first, &byte, 1, 0) == 1 ? "0" : tool_errno_name(errno));
	return 0;
}

static int count_entries(DIR *d)
{
	int n = 0;

	for (struct dirent *e; (e = readdir(d));)
		n += e->d_name[0] != '.';
	return n;
}

/* Deletes while reading: each name must come exactly once although others vanish. */
static int cmd_readdir_delete(int argc, char **argv)
{
	int total = (int)tool_number(argv[2]), seen = 0;
	_cleanup_dir_ DIR *d = NULL;
	char path[4096];

	(void)argc;
	for (int i = 0; i < total; i++) {
		snprintf(path, sizeof(path), "%s/file-%d", argv[1], i);
		close(open_or_die(path, O_CREAT | O_EXCL | O_WRONLY));
	}
	d = opendir(argv[1]);
	for (struct dirent *e; d && (e = readdir(d));) {
		if (e->d_name[0] == '.')
			continue;
		seen++;
		if (unlinkat(dirfd(d), e->d_name, 0))
			tool_die("unlink %s", e->d_name);
	}
	if (seen != total)
		tool_die("saw %d of %d", seen, total);
	rewinddir(d);
	if (count_entries(d))
		tool_die("entries are left");
	return good();
}

static int cmd_seekdir(int argc, char **argv)
{
	_cleanup_dir_ DIR *d = opendir(argv[1]);
	long where[4096];
	char name[4096][256];
	int n = 0;

	(void)argc;
	if (!d)
		tool_die("opendir");
	for (;;) {
		long at = telldir(d);
		struct dirent *e = readdir(d);

		if (!e || n == 4096)
			break;
		where[n] = at;
		snprintf(name[n++], 256, "%s", e->d_name);
	}
	for (int i = n - 1; i >= 0; i--) {
		struct dirent *e;

		seekdir(d, where[i]);
		e = readdir(d);
		if (!e || strcmp(e->d_name, name[i]))
			tool_die("offset %ld gave %s, not %s", where[i], e ? e->d_name : "the end",
			         name[i]);
	}
	return good();
}

static int in_child(int (*fn)(const char *path), const char *path)
{
	int status;
	pid_t pid = fork();

	if (!pid)
		exit(fn(path));
	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int try_flock(const char *path)
{
	return flock(open_or_die(path, O_RDWR), LOCK_EX | LOCK_NB) ? errno : 0;
}

static int try_fcntl(const char *path)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 10, .l_len = 10};

	return fcntl(open_or_die(path, O_RDWR), F_SETLK, &lock) ? errno : 0;
}

static int cmd_locks(int argc, char **argv)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 15, .l_len = 1};
	_cleanup_fd_ int fd = open_or_die(argv[1], O_CREAT | O_RDWR);
	int r;

	(void)argc;
	if (flock(fd, LOCK_EX))
		tool_die("flock");
	if ((r = in_child(try_flock, argv[1])) != EWOULDBLOCK)
		tool_die("flock against flock gives %d", r);
	flock(fd, LOCK_UN);
	if ((r = in_child(try_flock, argv[1])))
		tool_die("flock after unlocking gives %d", r);
	if (fcntl(fd, F_SETLK, &lock))
		tool_die("fcntl");
	r = in_child(try_fcntl, argv[1]);
	if (r != EAGAIN && r != EACCES)
		tool_die("fcntl against fcntl gives %d", r);
	lock.l_type = F_UNLCK;
	fcntl(fd, F_SETLK, &lock);
	if ((r = in_child(try_fcntl, argv[1])))
		tool_die("fcntl after unlocking gives %d", r);
	return good();
}

/* A waiter gets the lock when the holder lets go, and nothing else waits meanwhile. */
static int cmd_lock_wait(int argc, char **argv)
{
	_cleanup_fd_ int fd = open_or_die(argv[1], O_CREAT | O_RDWR);
	int ready[2], status;
	struct stat st;
	pid_t pid;

	(void)argc;
	if (flock(fd, LOCK_EX) || pipe(ready))
		tool_die("flock");
	pid = fork();
	if (!pid) {
		int mine = open_or_die(argv[1], O_RDWR);

		close(fd);
		write_or_die(ready[1], "x", 1);
		_exit(flock(mine, LOCK_EX) != 0);
	}
	if (read(ready[0], &(char){0}, 1) != 1 || stat(argv[1], &st))
		tool_die("stat while a lock is awaited");
	flock(fd, LOCK_UN);
	if (waitpid(pid, &status, 0) != pid || status)
		tool_die("the waiter ended with %d", status);
	return good();
}

static int cmd_copy_range(int argc, char **argv)
{
	_cleanup_fd_ int in = open_or_die(argv[1], O_RDONLY);
	_cleanup_fd_ int out = open_or_die(argv[2], O_CREAT | O_TRUNC | O_WRONLY);
	ssize_t n;

	(void)argc;
	while ((n = copy_file_range(in, NULL, out, NULL, 1 << 20, 0)) > 0)
		;
	return tool_outcome(n);
}

/* Each argument is one write(2) on one descriptor; prints the outcome of the whole. */
static int cmd_write(int argc, char **argv)
{
	_cleanup_fd_ int fd = open(argv[1], tool_open_flags(argv[2]) | O_CLOEXEC, 0644);

	if (fd < 0)
		return tool_outcome(-1);
	for (int i = 3; i < argc; i++) {
		size_t len = tool_unescape(argv[i]);

		if (write(fd, argv[i], len) < 0)
			return tool_outcome(-1);
	}
	return tool_outcome(close(sbx_steal_fd(&fd)));
}

static int cmd_pwrite(int argc, char **argv)
{
	_cleanup_fd_ int fd = open_or_die(argv[1], O_WRONLY);

	(void)argc;
	return tool_outcome(pwrite(fd, argv[3], strlen(argv[3]), tool_number(argv[2])));
}

static int cmd_bind(int argc, char **argv)
{
	_cleanup_fd_ int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	struct sockaddr_un addr = {.sun_family = AF_UNIX};

	(void)argc;
	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", argv[1]);
	return tool_outcome(bind(fd, (struct sockaddr *)&addr, sizeof(addr)));
}

/* A path longer than PATH_MAX, reached step by step, works at every level. */
static int cmd_deep(int argc, char **argv)
{
	int levels = (int)tool_number(argv[2]);
	int fd = open_or_die(argv[1], O_DIRECTORY | O_PATH);

	(void)argc;
	for (int i = 0; i < levels; i++) {
		int below;

		if (mkdirat(fd, "deeper", 0755))
			tool_die("mkdir at level %d", i);
		below = openat(fd, "deeper", O_DIRECTORY | O_PATH | O_CLOEXEC);
		if (below < 0)
			tool_die("open at level %d", i);
		close(fd);
		fd = below;
	}
	close(fd);
	return good();
}

/* Creates COUNT empty files in DIR and looks at each. */
static int cmd_many(int argc, char **argv)
{
	_cleanup_fd_ int dir = open_or_die(argv[1], O_DIRECTORY | O_RDONLY);
	int count = (int)tool_number(argv[2]);
	struct stat st;
	char name[32];

	(void)argc;
	for (int i = 0; i < count; i++) {
		snprintf(name, sizeof(name), "many-%d", i);
		close(openat(dir, name, O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
	}
	for (int i = 0; i < count; i++) {
		snprintf(name, sizeof(name), "many-%d", i);
		if (fstatat(dir, name, &st, 0))
			tool_die("stat %s", name);
	}
	return good();
}

const struct tool_command tool_files[] = {
        {"append-race", "FILE WRITERS COUNT", 3, cmd_append_race},
        {"mmap", "FILE", 1, cmd_mmap},
        {"unlinked", "FILE", 1, cmd_unlinked},
        {"replaced", "FILE OTHER", 2, cmd_replaced},
        {"readdir-delete", "DIR COUNT", 2, cmd_readdir_delete},
        {"seekdir", "DIR", 1, cmd_seekdir},
        {"locks", "FILE", 1, cmd_locks},
        {"lock-wait", "FILE", 1, cmd_lock_wait},
        {"copy-range", "FROM TO", 2, cmd_copy_range},
        {"write", "FILE FLAGS TEXT...", 3, cmd_write},
        {"pwrite", "FILE OFFSET TEXT", 3, cmd_pwrite},
        {"bind", "PATH", 1, cmd_bind},
        {"deep", "DIR LEVELS", 2, cmd_deep},
        {"many", "DIR COUNT", 2, cmd_many},
        {"unlinked-many", "DIR COUNT", 2, cmd_unlinked_many},
        {0},
};
