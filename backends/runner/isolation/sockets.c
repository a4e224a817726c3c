/*
 * The kernel is asked for sockets that may be connected to: those that listen, and those that are
 * bound alone. That is done at each command, and so has to cost microseconds: of thousands that are
 * connected none is told.
 */
#include "backends/runner/isolation/sockets.h"

#include <errno.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "backends/runner/isolation/settings.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/grow.h"
#include "sandboxfs/system_dirs.h"

#define ANSWER ((size_t)32 * 1024)

struct sockets {
	const struct isolation_settings *settings;
	int fd;
	char **names; /* the last is NULL, once there are any */
	size_t n, cap;
	uint64_t mark;
	char answer[ANSWER];
};

static bool is_below(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	return strncmp(path, dir, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

static bool is_in(const struct sbx_strings *list, const char *path)
{
	for (size_t i = 0; i < list->n; i++)
		if (is_below(path, list->items[i]))
			return true;
	return false;
}

static bool is_shown(const struct isolation_settings *settings, const char *path)
{
	for (const char *const *dir = sbx_system_dirs; *dir; dir++)
		if (is_below(path, *dir))
			return true;
	return is_in(&settings->shown, path) || is_in(&settings->ro_paths, path);
}

/* FNV-1a, 64 bits, from the number of the socket on. */
static uint64_t hash(uint32_t number, const char *name)
{
	uint64_t h = UINT64_C(0xcbf29ce484222325) ^ number;

	do {
		h ^= (unsigned char)*name;
		h *= UINT64_C(0x100000001b3);
	} while (*name++);
	return h;
}

static int add(struct sockets *s, const struct unix_diag_msg *msg, const void *bytes, size_t len)
{
	char name[sizeof(((struct sockaddr_un *)NULL)->sun_path) + 1] = "";

	memcpy(name, bytes, len < sizeof(name) ? len : sizeof(name) - 1);
	if (*name != '/' || !is_shown(s->settings, name))
		return 0;
	if (SBX_GROW(s->names, s->n + 1, s->cap, 16) < 0 || !(s->names[s->n] = strdup(name)))
		return -ENOMEM;
	s->names[++s->n] = NULL;
	/* They come in no order. */
	s->mark += hash(msg->udiag_ino, name);
	return 0;
}

static int take(struct sockets *s, struct nlmsghdr *head)
{
	struct unix_diag_msg *msg = NLMSG_DATA(head);
	unsigned len = (unsigned)(head->nlmsg_len - NLMSG_LENGTH(sizeof(*msg)));
	int r = 0;

	if (head->nlmsg_len < NLMSG_LENGTH(sizeof(*msg)))
		return -EPROTO;
	for (struct rtattr *a = (struct rtattr *)(msg + 1); RTA_OK(a, len) && !r;
	     a = RTA_NEXT(a, len))
		if (a->rta_type == UNIX_DIAG_NAME)
			r = add(s, msg, RTA_DATA(a), RTA_PAYLOAD(a));
	return r;
}

static int ask(struct sockets *s)
{
	const struct {
		struct nlmsghdr head;
		struct unix_diag_req req;
	} question = {
	        .head = {.nlmsg_len = sizeof(question),
	                 .nlmsg_type = SOCK_DIAG_BY_FAMILY,
	                 .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
	        .req = {.sdiag_family = AF_UNIX,
	                .udiag_states = 1U << TCP_LISTEN | 1U << TCP_CLOSE,
	                .udiag_show = UDIAG_SHOW_NAME},
	};
	const struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};

	if (s->fd < 0)
		s->fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	return sendto(s->fd, &question, sizeof(question), 0, (const struct sockaddr *)&kernel,
	              sizeof(kernel)) < 0
	               ? -errno
	               : 0;
}

/* 1: there is more to come. */
static int receive(struct sockets *s)
{
	ssize_t n = recv(s->fd, s->answer, sizeof(s->answer), 0);
	unsigned len = (unsigned)n;
	int r = 0;

	if (n < 0)
		return errno == EINTR ? 1 : -errno;
	for (struct nlmsghdr *h = (struct nlmsghdr *)s->answer; NLMSG_OK(h, len) && !r;
	     h = NLMSG_NEXT(h, len)) {
		if (h->nlmsg_type == NLMSG_DONE)
			return 0;
		if (h->nlmsg_type == NLMSG_ERROR)
			return -EPROTO;
		r = take(s, h);
	}
	return r ? r : 1;
}

static void forget(struct sockets *s)
{
	while (s->n > 0)
		free(s->names[--s->n]);
	s->mark = 0;
}

int sockets_look(struct sockets *s, char *const **names, uint64_t *mark)
{
	static char *const none[] = {NULL};
	int r = ask(s);

	forget(s);
	for (bool more = !r; more; more = r > 0)
		r = receive(s);
	*names = s->names ? s->names : none;
	*mark = s->mark;
	if (s->names)
		s->names[s->n] = NULL;
	/* The rest of an answer that was not understood is not the next question's. */
	if (r < 0)
		sbx_cleanup_fd(&s->fd);
	return r;
}

void sockets_close(struct sockets *s)
{
	if (!s)
		return;
	forget(s);
	free(s->names);
	sbx_cleanup_fd(&s->fd);
	free(s);
}

struct sockets *sockets_open(const struct isolation_settings *settings)
{
	struct sockets *s = calloc(1, sizeof(*s));
	char *const *names;
	uint64_t mark;

	if (!s)
		return NULL;
	s->settings = settings;
	s->fd = -1;
	if (sockets_look(s, &names, &mark) == 0)
		return s;
	sockets_close(s);
	return NULL;
}
