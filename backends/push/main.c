/*
 * sandboxfs-push: one push, for the daemon, which ends this process when it has lasted too long.
 * The token comes by the socket and stays in memory that nobody else may read.
 */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "backends/git/library.h"
#include "backends/push/remote.h"
#include "backends/push/upload.h"
#include "backends/push/watch.h"

static atomic_flag told = ATOMIC_FLAG_INIT;

static void tell(const void *message, size_t len)
{
	/* The daemon is gone: there is nobody to tell. */
	ssize_t n = send(SBX_PROGRAM_SOCKET, message, len, MSG_NOSIGNAL);

	(void)n;
}

/* One result, by the thread that has it first; the other is not heard any more. */
static void tell_result(const struct push_result *result)
{
	if (!atomic_flag_test_and_set(&told))
		tell(result, sizeof(*result));
	else
		for (;;)
			pause();
}

static void give_up(const char *why)
{
	struct push_result result = {0};

	sbx_fail(&result.err, ETIMEDOUT, "%s", why);
	tell_result(&result);
	_exit(0);
}

/* By hand there is nothing that it could be used for. */
static bool is_started_by_daemon(void)
{
	socklen_t len = sizeof(int);
	int type;

	return getsockopt(SBX_PROGRAM_SOCKET, SOL_SOCKET, SO_TYPE, &type, &len) == 0 &&
	       type == SOCK_SEQPACKET;
}

static void guard_secrets(void)
{
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	setrlimit(RLIMIT_CORE, &(struct rlimit){0});
	signal(SIGPIPE, SIG_IGN);
}

static void push(const struct push_order *order, struct push_result *result)
{
	int r;

	if (push_path_of(order->url))
		push_heed_term();
	r = sbx_git_library_begin();
	if (!r)
		r = push_watch_start(give_up);
	if (r)
		sbx_fail(&result->err, -r, "not enough memory or threads");
	else
		push_upload(order, result);
}

int main(void)
{
	static char buf[PUSH_ORDER_MAX];
	struct push_order order = {0};
	struct push_result result = {0};

	if (!is_started_by_daemon()) {
		fputs(PUSH_PROGRAM " is started by sandboxfs\n", stderr);
		return 2;
	}
	guard_secrets();
	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	tell(&push_hello, sizeof(push_hello));
	if (push_receive_order(SBX_PROGRAM_SOCKET, buf, &order) < 0 || getppid() != order.daemon)
		return 1;
	push(&order, &result);
	tell_result(&result);
	return 0;
}
