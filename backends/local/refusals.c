/*
 * A refused call waits in the kernel until init has answered, so a job that does nothing else keeps only
 * its own init busy: what goes to the daemon is ten reports in a second, then a number.
 */
#include "backends/local/refusals.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "backends/local/init.h"
#include "sandboxfs/cleanup.h"

#define TOLD_MAX  10
#define PERIOD_MS 1000

static uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

/* What does not fit into the socket now is one of those that are only counted. */
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

	if (!r->more || (!force && now_ms() - r->begun_ms < PERIOD_MS))
		return;
	report.refused.more = r->more;
	if (tell(r, &report))
		r->more = 0;
	else
		r->begun_ms = now_ms();
}

int refusals_due_ms(const struct refusals *r)
{
	uint64_t spent;

	if (!r->more)
		return -1;
	spent = now_ms() - r->begun_ms;
	return spent < PERIOD_MS ? (int)(PERIOD_MS - spent) : 0;
}

static bool is_to_be_told(struct refusals *r)
{
	uint64_t now = now_ms();

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

void refusals_serve(struct refusals *r, short events)
{
	struct seccomp_notif call = {0};
	struct seccomp_notif_resp answer = {.error = -EPERM};

	if (!(events & POLLIN))
		return;
	/* ENOENT: the caller was killed meanwhile. */
	if (ioctl(r->fd, SECCOMP_IOCTL_NOTIF_RECV, &call) < 0)
		return;
	note(r, &call);
	answer.id = call.id;
	ioctl(r->fd, SECCOMP_IOCTL_NOTIF_SEND, &answer);
}
