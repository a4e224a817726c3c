#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include "fs/log/denials.h"
#include "fs/net/proxy.h"
#include "sandboxfs/error.h"
#include "sandboxfs/loop.h"
#include "sandboxfs/pool.h"

/* In place of the C library's: so often there is no watch left for the user. */
static int refused_watches;

int epoll_ctl(int epfd, int op, int fd, struct epoll_event *event)
{
	if (op == EPOLL_CTL_ADD && refused_watches > 0) {
		refused_watches--;
		errno = ENOSPC;
		return -1;
	}
	return (int)syscall(SYS_epoll_ctl, epfd, op, fd, event);
}

struct fixture {
	struct sbx_loop *loop;
	struct sbx_pool *pool;
	struct sbx_egress *egress;
	struct sbx_denials *denials;
	struct sbx_proxy *proxy;
	struct sockaddr_in at;
	char answer[64];
};

static void tell(struct json_object *members, const char *text, void *data)
{
	(void)members;
	(void)text;
	(void)data;
}

static int set_up(void **state)
{
	static struct fixture f;

	f = (struct fixture){0};
	assert_int_equal(sbx_loop_create(&f.loop), 0);
	assert_int_equal(sbx_pool_create(1, &f.pool), 0);
	assert_int_equal(sbx_egress_create("example.org", f.loop, f.pool, &f.egress, NULL), 0);
	assert_int_equal(sbx_denials_create(f.loop, tell, NULL, &f.denials), 0);
	f.proxy = sbx_proxy_create(f.egress, f.denials);
	assert_non_null(f.proxy);
	*state = &f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	sbx_proxy_destroy(f->proxy);
	sbx_denials_destroy(f->denials);
	sbx_egress_close(f->egress);
	sbx_pool_destroy(f->pool);
	sbx_egress_destroy(f->egress);
	sbx_loop_destroy(f->loop);
	return 0;
}

static int listen_somewhere(struct sockaddr_in *ret)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	socklen_t len = sizeof(*ret);

	*ret = (struct sockaddr_in){.sin_family = AF_INET,
	                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	assert_int_equal(bind(fd, (struct sockaddr *)ret, sizeof(*ret)), 0);
	assert_int_equal(listen(fd, 8), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)ret, &len), 0);
	return fd;
}

/* An answer, or none within ten seconds. */
static void *play_client(void *data)
{
	static const char request[] = "GET http://other.example/ HTTP/1.1\r\n\r\n";
	const struct timeval patience = {.tv_sec = 10};
	struct fixture *f = data;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	if (connect(fd, (struct sockaddr *)&f->at, sizeof(f->at)) == 0 &&
	    send(fd, request, sizeof(request) - 1, MSG_NOSIGNAL) > 0)
		(void)!recv(fd, f->answer, sizeof(f->answer) - 1, 0);
	close(fd);
	sbx_loop_stop(f->loop);
	return NULL;
}

static void a_listener_that_cannot_be_watched_is_tried_again(void **state)
{
	struct fixture *f = *state;
	const int listener = listen_somewhere(&f->at);
	pthread_t client;

	refused_watches = 2;
	sbx_proxy_listen(f->proxy, listener);
	assert_int_equal(pthread_create(&client, NULL, play_client, f), 0);
	sbx_loop_run(f->loop);
	pthread_join(client, NULL);
	assert_int_equal(strncmp(f->answer, "HTTP/1.1 403 ", 13), 0);
	assert_int_equal(refused_watches, 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(a_listener_that_cannot_be_watched_is_tried_again,
	                                        set_up, tear_down),
	};

	return cmocka_run_group_tests_name("proxy", tests, NULL, NULL);
}
