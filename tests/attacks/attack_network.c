/* Sockets, and what else reaches across without a file. */
#include <errno.h>
#include <fcntl.h>
#include <linux/if_alg.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "attack.h"
#include "sandboxfs/cleanup.h"

#define ABSTRACT "sandboxfs-attack"

static long try_socket(char **args)
{
	static const struct {
		const char *name;
		int family, type, protocol;
	} rows[] = {
	        {"packet", AF_PACKET, SOCK_RAW, 0},
	        {"raw", AF_INET, SOCK_RAW, IPPROTO_ICMP},
	        {"raw6", AF_INET6, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_ICMPV6},
	        {"vsock", AF_VSOCK, SOCK_STREAM, 0},
	        {"alg", AF_ALG, SOCK_SEQPACKET, 0},
	        {"bluetooth", AF_BLUETOOTH, SOCK_RAW, 0},
	        {"audit", AF_NETLINK, SOCK_RAW, NETLINK_AUDIT},
	        {"route", AF_NETLINK, SOCK_RAW, NETLINK_ROUTE},
	        {"inet", AF_INET, SOCK_STREAM, 0},
	        {"unix", AF_UNIX, SOCK_STREAM, 0},
	};

	for (size_t i = 0; i < SBX_ARRAY_SIZE(rows); i++)
		if (strcmp(rows[i].name, args[0]) == 0)
			return socket(rows[i].family, rows[i].type, rows[i].protocol);
	errno = ENOSYS;
	return -1;
}

static long connect_inet(char **args, uint32_t address)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
	                        .sin_port = htons((uint16_t)attack_number(args)),
	                        .sin_addr.s_addr = htonl(address)};
	_cleanup_fd_ int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	return fd < 0 ? -1 : connect(fd, (struct sockaddr *)&a, sizeof(a));
}

static long try_loopback(char **args)
{
	return connect_inet(args, INADDR_LOOPBACK);
}

static long try_internet(char **args)
{
	return connect_inet(args, 0xc0000201); /* 192.0.2.1, of nobody */
}

static long connect_unix(const struct sockaddr_un *a, socklen_t len)
{
	_cleanup_fd_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	return fd < 0 ? -1 : connect(fd, (const struct sockaddr *)a, len);
}

/* The name holds the port of the server beside it, so that two of them are told apart. */
static socklen_t abstract_name(struct sockaddr_un *a, long port)
{
	int n;

	*a = (struct sockaddr_un){.sun_family = AF_UNIX};
	n = snprintf(a->sun_path + 1, sizeof(a->sun_path) - 1, "%s-%ld", ABSTRACT, port);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static long try_abstract(char **args)
{
	struct sockaddr_un a;
	socklen_t len = abstract_name(&a, attack_number(args));

	return connect_unix(&a, len);
}

static struct sockaddr_un named(const char *path)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};

	snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
	return a;
}

static long try_connect(char **args)
{
	const struct sockaddr_un a = named(args[0]);

	return connect_unix(&a, sizeof(a));
}

/* Leaves a socket at PATH. */
static long try_bind(char **args)
{
	const struct sockaddr_un a = named(args[0]);
	_cleanup_fd_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	return fd < 0 ? -1 : bind(fd, (const struct sockaddr *)&a, sizeof(a));
}

static long try_shm(char **args)
{
	return shmget((key_t)attack_number(args), 1, 0);
}

static int listen_unix(const struct sockaddr_un *a, socklen_t len)
{
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	if (bind(fd, (const struct sockaddr *)a, len) < 0 || listen(fd, 8) < 0)
		return -1;
	return fd;
}

/*
 * The victim: listens on loopback, on an abstract socket and on one at PATH, has a segment of
 * memory to share, and prints the port, which is the key of them all. Until its stdin ends.
 */
static long serve(char **args)
{
	struct sockaddr_un abstract, path = named(args[0]);
	socklen_t in_len = sizeof(struct sockaddr_in);
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int inet = socket(AF_INET, SOCK_STREAM, 0), shm;
	char byte;

	if (bind(inet, (struct sockaddr *)&in, in_len) < 0 || listen(inet, 8) < 0 ||
	    getsockname(inet, (struct sockaddr *)&in, &in_len) < 0)
		return -1;
	shm = shmget(ntohs(in.sin_port), 4096, IPC_CREAT | 0600);
	if (shm < 0 || listen_unix(&abstract, abstract_name(&abstract, ntohs(in.sin_port))) < 0 ||
	    listen_unix(&path, sizeof(path)) < 0)
		return -1;
	printf("%d\n", ntohs(in.sin_port));
	fflush(stdout);
	while (read(0, &byte, 1) > 0)
		;
	return shmctl(shm, IPC_RMID, NULL);
}

const struct attack attack_network[] = {
        {"socket", try_socket},     {"loopback", try_loopback}, {"internet", try_internet},
        {"abstract", try_abstract}, {"connect", try_connect},   {"bind", try_bind},
        {"shm", try_shm},           {"serve", serve},           {0},
};
