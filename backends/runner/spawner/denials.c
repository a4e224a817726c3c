/*
 * A refused call waits in the kernel until init has answered, so a job that does nothing else keeps
 * only its own init busy: what goes to the daemon is ten reports in a second, then a number.
 */
#include "backends/runner/spawner/denials.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "backends/runner/spawner/init.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"

#define TOLD_MAX  10
#define PERIOD_MS 1000

#define NAME_SERVER 53
#define SOCKET_TYPE 0xf /* without its flags */

/* A denial that does not fit into the socket now is one of those that are only counted. */
static bool tell(const struct refusals *r, struct spawn_report *report)
{
	report->event = SPAWN_REFUSED;
	report->job = r->job;
	return send(INIT_REPORT_FD, report, sizeof(*report), MSG_NOSIGNAL | MSG_DONTWAIT) ==
	       (ssize_t)sizeof(*report);
}

/* As the process calls itself; "" when it hides. */
static void read_name(pid_t pid, char name[SPAWN_NAME])
{
	char path[32];
	_cleanup_fd_ int fd = -1;
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? 0 : read(fd, name, SPAWN_NAME - 1);
	name[n > 0 ? n - 1 : 0] = '\0'; /* without its newline */
}

void refusals_flush(struct refusals *r, bool force)
{
	struct spawn_report report = {.code = -1};

	if (!r->more || (!force && sbx_now_ms() - r->begun_ms < PERIOD_MS))
		return;
	report.refused.more = r->more;
	if (tell(r, &report))
		r->more = 0;
	else
		r->begun_ms = sbx_now_ms();
}

int refusals_due_ms(const struct refusals *r)
{
	uint64_t spent;

	if (!r->more)
		return -1;
	spent = sbx_now_ms() - r->begun_ms;
	return spent < PERIOD_MS ? (int)(PERIOD_MS - spent) : 0;
}

static bool is_to_be_told(struct refusals *r)
{
	uint64_t now = sbx_now_ms();

	if (now - r->begun_ms >= PERIOD_MS) {
		refusals_flush(r, true);
		r->begun_ms = now;
		r->told = 0;
	}
	return r->told < TOLD_MAX;
}

static void note(struct refusals *r, const struct seccomp_notif *call)
{
	struct spawn_report report = {.code = call->data.nr};

	if (is_to_be_told(r)) {
		read_name((pid_t)call->pid, report.refused.program);
		if (tell(r, &report)) {
			r->told++;
			return;
		}
	}
	r->more++;
}

/* --- attempts to get out ------------------------------------------------------------------------
 */

union address {
	sa_family_t family;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

/*
 * Reads the address that the caller gives. It may give the kernel another, and fools only who
 * reads of it.
 */
static bool read_address(pid_t pid, uint64_t from, uint64_t len, union address *ret)
{
	const size_t n = len < sizeof(*ret) ? (size_t)len : sizeof(*ret);
	const struct iovec here = {.iov_base = ret, .iov_len = n};
	const struct iovec there = {.iov_base = (void *)(uintptr_t)from, .iov_len = n};

	memset(ret, 0, sizeof(*ret));
	return process_vm_readv(pid, &here, 1, &there, 1, 0) == (ssize_t)n;
}

/*
 * Nobody inside can listen at the port of name servers: who asks there asks the host's, which a
 * file of the host's names and which is not here.
 */
static bool stays(bool loopback, uint16_t port)
{
	return loopback && port != NAME_SERVER;
}

static bool leads_out(const union address *a, struct spawn_report *ret)
{
	ret->refused.family = a->family;
	if (a->family == AF_INET) {
		const uint32_t host = ntohl(a->v4.sin_addr.s_addr);

		ret->refused.port = ntohs(a->v4.sin_port);
		memcpy(ret->refused.to, &a->v4.sin_addr, sizeof(a->v4.sin_addr));
		return !stays(host >> 24 == IN_LOOPBACKNET || host == INADDR_ANY,
		              ret->refused.port);
	}
	if (a->family == AF_INET6) {
		const struct in6_addr *to = &a->v6.sin6_addr;
		const bool mapped = IN6_IS_ADDR_V4MAPPED(to) &&
		                    (to->s6_addr[12] == IN_LOOPBACKNET || to->s6_addr[12] == 0);

		ret->refused.port = ntohs(a->v6.sin6_port);
		memcpy(ret->refused.to, to, sizeof(*to));
		return !stays(mapped || IN6_IS_ADDR_LOOPBACK(to) || IN6_IS_ADDR_UNSPECIFIED(to),
		              ret->refused.port);
	}
	return false;
}

static void tell_tried(struct refusals *r, const struct seccomp_notif *call,
                       struct spawn_report *report)
{
	report->event = SPAWN_TRIED;
	report->job = r->job;
	read_name((pid_t)call->pid, report->refused.program);
	r->tried = send(INIT_REPORT_FD, report, sizeof(*report), MSG_NOSIGNAL | MSG_DONTWAIT) ==
	           (ssize_t)sizeof(*report);
}

/* Where there is no network of their own, commands have no such sockets at all. */
static void hear_refused(struct refusals *r, const struct seccomp_notif *call)
{
	const int family = (int)call->data.args[0], type = (int)call->data.args[1] & SOCKET_TYPE;
	struct spawn_report report = {.code = 0};

	if (!r->tried && call->data.nr == SYS_socket && (family == AF_INET || family == AF_INET6) &&
	    (type == SOCK_STREAM || type == SOCK_DGRAM))
		tell_tried(r, call, &report);
}

/* Whether CALL is to go on. */
static bool hear(struct refusals *r, const struct seccomp_notif *call)
{
	const bool connects = call->data.nr == SYS_connect;
	struct spawn_report report = {.event = SPAWN_TRIED, .job = r->job};
	union address to;

	if (!connects && call->data.nr != SYS_sendto)
		return false;
	if (r->tried ||
	    !read_address((pid_t)call->pid, call->data.args[connects ? 1 : 4],
	                  call->data.args[connects ? 2 : 5], &to) ||
	    !leads_out(&to, &report))
		return true;
	read_name((pid_t)call->pid, report.refused.program);
	r->tried = send(INIT_REPORT_FD, &report, sizeof(report), MSG_NOSIGNAL | MSG_DONTWAIT) ==
	           (ssize_t)sizeof(report);
	return true;
}

void refusals_serve(struct refusals *r, short events)
{
	struct seccomp_notif call = {0};
	struct seccomp_notif_resp answer = {.error = -EPERM};

	if (!(events & POLLIN))
		return;
	/* ENOENT: the caller was killed meanwhile. */
	if (ioctl(r->fd, SECCOMP_IOCTL_NOTIF_RECV, &call) < 0)
		return;
	answer.id = call.id;
	if (hear(r, &call)) {
		answer.error = 0;
		answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
	} else {
		hear_refused(r, &call);
		note(r, &call);
	}
	ioctl(r->fd, SECCOMP_IOCTL_NOTIF_SEND, &answer);
}
