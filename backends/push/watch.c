#include "backends/push/watch.h"

#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"
#include "sandboxfs/thread.h"

#define LOOK_NS    100000000
#define CONNECT_MS 15000
#define SILENT_MS  60000

static atomic_ullong moved_ms;
static volatile sig_atomic_t given_up;

/* The connection that was seen last. */
struct seen {
	int fd; /* -1: none */
	uint64_t dialled_ms;
};

static uint64_t since(uint64_t ms)
{
	return sbx_now_ms() - ms;
}

/* A descriptor that is a TCP socket, with its INFO; -1: there is none. */
static int find_connection(struct tcp_info *info)
{
	_cleanup_dir_ DIR *dir = opendir("/proc/self/fd");

	for (struct dirent *e; dir && (e = readdir(dir));) {
		socklen_t len = sizeof(*info);
		const int fd = atoi(e->d_name);

		if (*e->d_name != '.' && getsockopt(fd, IPPROTO_TCP, TCP_INFO, info, &len) == 0)
			return fd;
	}
	return -1;
}

/* Why the server is to be waited for no longer; NULL: it is. */
static const char *judge(struct seen *seen)
{
	struct tcp_info info = {0};
	const int fd = find_connection(&info);
	uint64_t idle;

	if (fd != seen->fd) {
		*seen = (struct seen){.fd = fd, .dialled_ms = sbx_now_ms()};
		push_watch_moved();
	}
	if (fd < 0)
		return NULL;
	if (info.tcpi_state != TCP_ESTABLISHED && info.tcpi_state != TCP_CLOSE_WAIT)
		return since(seen->dialled_ms) > CONNECT_MS
		               ? "the server could not be reached within 15 s"
		               : NULL;
	seen->dialled_ms = sbx_now_ms(); /* the next one may get the same number */
	idle = since(atomic_load(&moved_ms));
	idle = idle < info.tcpi_last_data_recv ? idle : info.tcpi_last_data_recv;
	idle = idle < info.tcpi_last_data_sent ? idle : info.tcpi_last_data_sent;
	return idle > SILENT_MS ? "the server has been silent for 60 s" : NULL;
}

static void *watch(void *data)
{
	void (**give_up)(const char *) = data;
	struct seen seen = {.fd = -1};
	const char *why;

	while (!(why = judge(&seen)))
		nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
	(*give_up)(why);
	return NULL;
}

int push_watch_start(void (*give_up)(const char *why))
{
	static void (*call)(const char *);
	pthread_t thread;
	int r;

	call = give_up;
	push_watch_moved();
	r = sbx_thread_start(&thread, watch, &call);
	return r ? r : -pthread_detach(thread);
}

void push_watch_moved(void)
{
	atomic_store(&moved_ms, sbx_now_ms());
}

static void note(int sig)
{
	(void)sig;
	given_up = 1;
}

void push_heed_term(void)
{
	sigaction(SIGTERM, &(struct sigaction){.sa_handler = note, .sa_flags = SA_RESTART}, NULL);
}

bool push_is_given_up(void)
{
	return given_up;
}
