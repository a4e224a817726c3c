/* hello MNT: a sandbox from C, with nothing but files.   cc -o hello hello.c */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char box[3000];

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void spew(const char *name, const char *text)
{
	char path[4096];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", box, name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	if (fd < 0 || write(fd, text, strlen(text)) < 0 || close(fd) < 0)
		die(path);
}

static void show(const char *name)
{
	char path[4096], buf[4096];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", box, name);
	fd = open(path, O_RDONLY);
	if (fd < 0)
		die(path);
	while ((n = read(fd, buf, sizeof(buf))) > 0)
		fwrite(buf, 1, (size_t)n, stdout);
	close(fd);
}

int main(int argc, char **argv)
{
	if (argc != 2)
		return 2;
	snprintf(box, sizeof(box), "%s/hello-c-%d", argv[1], (int)getpid());
	if (mkdir(box, 0755) < 0)
		die(box);
	spew("greeting", "Hello from C\n");
	spew("ctl/exec", "[\"sh\", \"-c\", \"cat greeting; exit 3\"]");
	show("ctl/stdout");
	show("ctl/status");
	if (rmdir(box) < 0)
		die(box);
	return 0;
}
