/* One system call each; the outcome is printed as the errno's name. */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "sandboxfs/cleanup.h"
#include "tool.h"

#define MODE(text) ((mode_t)strtoul(text, NULL, 8))

static int cmd_open(int argc, char **argv)
{
	_cleanup_fd_ int fd =
	        open(argv[1], tool_open_flags(argv[2]), argc > 3 ? MODE(argv[3]) : 0644);

	return tool_outcome(fd);
}

static int cmd_mkdir(int argc, char **argv)
{
	return tool_outcome(mkdir(argv[1], argc > 2 ? MODE(argv[2]) : 0755));
}

static int cmd_rmdir(int argc, char **argv)
{
	(void)argc;
	return tool_outcome(rmdir(argv[1]));
}

static int cmd_unlink(int argc, char **argv)
{
	(void)argc;
	return tool_outcome(unlink(argv[1]));
}

static int cmd_rename(int argc, char **argv)
{
	unsigned flags = 0;

	for (int i = 3; i < argc; i++) {
		if (!strcmp(argv[i], "NOREPLACE"))
			flags |= RENAME_NOREPLACE;
		else if (!strcmp(argv[i], "EXCHANGE"))
			flags |= RENAME_EXCHANGE;
		else if (!strcmp(argv[i], "WHITEOUT"))
			flags |= RENAME_WHITEOUT;
		else
			tool_die("unknown flag %s", argv[i]);
	}
	return tool_outcome(renameat2(AT_FDCWD, argv[1], AT_FDCWD, argv[2], flags));
}

static int cmd_link(int argc, char **argv)
{
	(void)argc;
	return tool_outcome(link(argv[1], argv[2]));
}

static int cmd_symlink(int argc, char **argv)
{
	(void)argc;
	return tool_outcome(symlink(argv[1], argv[2]));
}

static int cmd_mknod(int argc, char **argv)
{
	static const char letters[] = "rfcbs";
	static const mode_t types[] = {S_IFREG, S_IFIFO, S_IFCHR, S_IFBLK, S_IFSOCK};
	const char *at = strchr(letters, argv[2][0]);

	if (!at || !*at)
		tool_die("unknown type %s", argv[2]);
	return tool_outcome(mknod(argv[1], types[at - letters] | (argc > 3 ? MODE(argv[3]) : 0644),
	                          makedev(1, 3)));
}

static int cmd_truncate(int argc, char **argv)
{
	(void)argc;
	return tool_outcome(truncate(argv[1], tool_number(argv[2])));
}

static int cmd_chmod(int argc, char **argv)
{
	(void)argc;
	return tool_outcome(chmod(argv[1], MODE(argv[2])));
}

static int cmd_chown(int argc, char **argv)
{
	(void)argc;
	return tool_outcome(
	        lchown(argv[1], (uid_t)tool_number(argv[2]), (gid_t)tool_number(argv[3])));
}

/* SECONDS.NANOSECONDS, "now" or "omit" */
static struct timespec time_of(const char *text)
{
	struct timespec ts = {0};

	if (!strcmp(text, "now"))
		ts.tv_nsec = UTIME_NOW;
	else if (!strcmp(text, "omit"))
		ts.tv_nsec = UTIME_OMIT;
	else if (sscanf(text, "%ld.%9ld", &ts.tv_sec, &ts.tv_nsec) != 2)
		tool_die("not a time: %s", text);
	return ts;
}

static int cmd_utimens(int argc, char **argv)
{
	struct timespec times[2] = {time_of(argv[2]), time_of(argv[3])};

	(void)argc;
	return tool_outcome(utimensat(AT_FDCWD, argv[1], times, AT_SYMLINK_NOFOLLOW));
}

static const char *type_name(mode_t mode)
{
	return S_ISREG(mode)    ? "regular"
	       : S_ISDIR(mode)  ? "directory"
	       : S_ISLNK(mode)  ? "symlink"
	       : S_ISFIFO(mode) ? "fifo"
	       : S_ISSOCK(mode) ? "socket"
	                        : "device";
}

static void print_field(const struct stat *st, const char *field)
{
	if (!strcmp(field, "type"))
		printf("%s", type_name(st->st_mode));
	else if (!strcmp(field, "mode"))
		printf("%04o", st->st_mode & 07777);
	else if (!strcmp(field, "size"))
		printf("%jd", (intmax_t)st->st_size);
	else if (!strcmp(field, "nlink"))
		printf("%ju", (uintmax_t)st->st_nlink);
	else if (!strcmp(field, "ino"))
		printf("%ju", (uintmax_t)st->st_ino);
	else if (!strcmp(field, "uid"))
		printf("%u", st->st_uid);
	else if (!strcmp(field, "blksize"))
		printf("%jd", (intmax_t)st->st_blksize);
	else if (!strcmp(field, "blocks"))
		printf("%jd", (intmax_t)st->st_blocks);
	else if (!strcmp(field, "atime"))
		printf("%jd.%09ld", (intmax_t)st->st_atim.tv_sec, st->st_atim.tv_nsec);
	else if (!strcmp(field, "mtime"))
		printf("%jd.%09ld", (intmax_t)st->st_mtim.tv_sec, st->st_mtim.tv_nsec);
	else if (!strcmp(field, "ctime"))
		printf("%jd.%09ld", (intmax_t)st->st_ctim.tv_sec, st->st_ctim.tv_nsec);
	else
		tool_die("unknown field %s", field);
}

static int print_stat(int argc, char **argv, int flags)
{
	struct stat st;

	if (fstatat(AT_FDCWD, argv[1], &st, flags))
		return tool_outcome(-1);
	for (int i = 2; i < argc; i++) {
		print_field(&st, argv[i]);
		putchar(i == argc - 1 ? '\n' : ' ');
	}
	return argc > 2 ? 0 : tool_outcome(0);
}

static int cmd_stat(int argc, char **argv)
{
	return print_stat(argc, argv, 0);
}

static int cmd_lstat(int argc, char **argv)
{
	return print_stat(argc, argv, AT_SYMLINK_NOFOLLOW);
}

static int cmd_fallocate(int argc, char **argv)
{
	_cleanup_fd_ int fd = open(argv[1], O_RDWR | O_CLOEXEC);
	int mode = 0;

	if (fd < 0)
		return tool_outcome(-1);
	if (strstr(argv[2], "keep") || strstr(argv[2], "punch"))
		mode |= FALLOC_FL_KEEP_SIZE;
	if (strstr(argv[2], "punch"))
		mode |= FALLOC_FL_PUNCH_HOLE;
	if (strstr(argv[2], "zero"))
		mode |= FALLOC_FL_ZERO_RANGE;
	(void)argc;
	return tool_outcome(fallocate(fd, mode, tool_number(argv[3]), tool_number(argv[4])));
}

static int cmd_seek(int argc, char **argv)
{
	_cleanup_fd_ int fd = open(argv[1], O_RDONLY | O_CLOEXEC);
	int whence = strcmp(argv[2], "data") ? SEEK_HOLE : SEEK_DATA;
	off_t at;

	(void)argc;
	if (fd < 0)
		return tool_outcome(-1);
	at = lseek(fd, tool_number(argv[3]), whence);
	if (at < 0)
		return tool_outcome(-1);
	printf("%jd\n", (intmax_t)at);
	return 0;
}

static int cmd_setxattr(int argc, char **argv)
{
	(void)argc;
	return tool_outcome(lsetxattr(argv[1], argv[2], argv[3], strlen(argv[3]), 0));
}

static int cmd_getxattr(int argc, char **argv)
{
	char value[65536];
	ssize_t n = lgetxattr(argv[1], argv[2], value, sizeof(value));

	(void)argc;
	if (n < 0)
		return tool_outcome(-1);
	printf("%.*s\n", (int)n, value);
	return 0;
}

static int cmd_removexattr(int argc, char **argv)
{
	(void)argc;
	return tool_outcome(lremovexattr(argv[1], argv[2]));
}

static int cmd_statfs(int argc, char **argv)
{
	struct statvfs st;

	(void)argc;
	if (statvfs(argv[1], &st))
		return tool_outcome(-1);
	if (!st.f_blocks || !st.f_bsize || st.f_bfree > st.f_blocks || st.f_namemax != 255)
		printf("odd: blocks %ju bsize %ju free %ju namemax %ju\n", (uintmax_t)st.f_blocks,
		       (uintmax_t)st.f_bsize, (uintmax_t)st.f_bfree, (uintmax_t)st.f_namemax);
	else
		puts("0");
	return 0;
}

static int cmd_access(int argc, char **argv)
{
	int mode = F_OK;

	for (const char *c = argc > 2 ? argv[2] : ""; *c; c++)
		mode |= *c == 'r' ? R_OK : *c == 'w' ? W_OK : X_OK;
	return tool_outcome(access(argv[1], mode));
}

const struct tool_command tool_calls[] = {
        {"open", "PATH FLAGS [MODE]", 2, cmd_open},
        {"mkdir", "PATH [MODE]", 1, cmd_mkdir},
        {"rmdir", "PATH", 1, cmd_rmdir},
        {"unlink", "PATH", 1, cmd_unlink},
        {"rename", "FROM TO [NOREPLACE|EXCHANGE|WHITEOUT]", 2, cmd_rename},
        {"link", "FROM TO", 2, cmd_link},
        {"symlink", "TARGET PATH", 2, cmd_symlink},
        {"mknod", "PATH r|f|c|b|s [MODE]", 2, cmd_mknod},
        {"truncate", "PATH SIZE", 2, cmd_truncate},
        {"chmod", "PATH MODE", 2, cmd_chmod},
        {"chown", "PATH UID GID", 3, cmd_chown},
        {"utimens", "PATH ATIME MTIME", 3, cmd_utimens},
        {"stat", "PATH [FIELD...]", 1, cmd_stat},
        {"lstat", "PATH [FIELD...]", 1, cmd_lstat},
        {"fallocate", "PATH plain|keep|punch|zero OFFSET LENGTH", 4, cmd_fallocate},
        {"seek", "PATH data|hole OFFSET", 3, cmd_seek},
        {"setxattr", "PATH NAME VALUE", 3, cmd_setxattr},
        {"getxattr", "PATH NAME", 2, cmd_getxattr},
        {"removexattr", "PATH NAME", 2, cmd_removexattr},
        {"statfs", "PATH", 1, cmd_statfs},
        {"access", "PATH [rwx]", 1, cmd_access},
        {0},
};
