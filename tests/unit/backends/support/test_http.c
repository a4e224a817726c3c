#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <spawn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "backends/support/http_impl.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"
#include "sandboxfs/secret.h"
#include "tests/lib/tmp.h"

#define TOKEN       "ghp_verysecrettoken"
#define PER_HOST    8
#define MANY        200
#define LARGE       (UINT64_C(64) << 20)
#define DEADLINE    60000
#define MEMORY_MOST ((long)12 * 1024) /* KiB that a transfer of LARGE may take */

static struct sbx_loop *loop;
static pthread_t loop_thread;
static struct sbx_http *http;
static struct sbx_secret *token;

/* ---- the server ---- */

struct server {
	pid_t pid;
	int in;
	FILE *out;
	int port;
};

static struct server plain;

static void start_server(struct server *s, char *certificate)
{
	char program[] = SBX_TESTS "/lib/http_server.py", python[] = "python3";
	char *argv[] = {python, program, certificate, NULL};
	posix_spawn_file_actions_t actions;
	int in[2], out[2];

	assert_int_equal(pipe2(in, O_CLOEXEC), 0);
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, in[0], 0);
	posix_spawn_file_actions_adddup2(&actions, out[1], 1);
	assert_int_equal(posix_spawnp(&s->pid, python, &actions, NULL, argv, environ), 0);
	posix_spawn_file_actions_destroy(&actions);
	close(in[0]);
	close(out[1]);
	s->in = in[1];
	s->out = fdopen(out[0], "r");
	assert_int_equal(fscanf(s->out, "%d", &s->port), 1);
	assert_int_equal(fgetc(s->out), '\n');
}

static void stop_server(struct server *s)
{
	close(s->in);
	waitpid(s->pid, NULL, 0);
	fclose(s->out);
}

/* Waits until the request KEY stalls there. */
static void await_stalled(const char *key)
{
	char line[64];

	assert_non_null(fgets(line, sizeof(line), plain.out));
	line[strcspn(line, "\n")] = '\0';
	assert_string_equal(line, key);
}

static const char *url_of(const char *path)
{
	static char url[1024][128];
	static unsigned n;
	char *at = url[n++ % 1024];

	snprintf(at, 128, "http://127.0.0.1:%d%s", plain.port, path);
	return at;
}

/* ---- a client for each case ---- */

static void *run_loop(void *data)
{
	sbx_loop_run(data);
	return NULL;
}

static int set_up(void **state)
{
	struct sbx_http_config config = {.per_host = PER_HOST, .backoff_ms = 1};

	(void)state;
	assert_int_equal(sbx_loop_create(&loop), 0);
	config.loop = loop;
	assert_int_equal(sbx_http_create(&config, &http), 0);
	assert_int_equal(pthread_create(&loop_thread, NULL, run_loop, loop), 0);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	sbx_loop_stop(loop);
	pthread_join(loop_thread, NULL);
	sbx_http_destroy(http);
	sbx_loop_destroy(loop);
	return 0;
}

static struct sbx_http_request request(const char *path)
{
	return (struct sbx_http_request){
	        .op = "test", .method = "GET", .url = url_of(path), .deadline_ms = DEADLINE};
}

static struct sbx_http_request safe(const char *path)
{
	struct sbx_http_request req = request(path);

	req.repeat = SBX_HTTP_SAFE;
	return req;
}

/* Performs REQ, which ends with CODE (0 or negative) and, unless NULL, with this body. */
static void check(struct sbx_http_request *req, int code, const char *body)
{
	struct sbx_http_answer answer = {0};
	struct sbx_error err = SBX_ERROR_INIT;
	int r = sbx_http_perform(http, req, NULL, &answer, &err);

	if (r != code)
		fail_msg("%s: %d instead of %d: %s", req->url, r, code, err.text);
	assert_int_equal(err.code, -code);
	assert_int_equal(code < 0, *err.text != '\0');
	if (body) {
		assert_non_null(answer.body);
		assert_string_equal(answer.body, body);
	}
	sbx_http_answer_release(&answer);
}

static int number(const char *path)
{
	struct sbx_http_request req = request(path);
	struct sbx_http_answer answer = {0};
	int n;

	assert_int_equal(sbx_http_perform(http, &req, NULL, &answer, NULL), 0);
	n = atoi(answer.body);
	sbx_http_answer_release(&answer);
	return n;
}

/* How many requests the server had with the key KEY. */
static int seen(const char *key)
{
	char path[64];

	snprintf(path, sizeof(path), "/seen/%s", key);
	return number(path);
}

static int connections(void)
{
	return number("/connections");
}

/* ---- answers ---- */

static void an_answer_is_handed_over(void **state)
{
	struct sbx_http_request req = request("/bytes/3000");
	struct sbx_http_answer answer = {0};
	struct sbx_error err = SBX_ERROR_INIT;
	const char *value;
	size_t len;

	(void)state;
	assert_int_equal(sbx_http_perform(http, &req, NULL, &answer, &err), 0);
	assert_int_equal(answer.status, 200);
	assert_int_equal(answer.len, 3000);
	for (int i = 0; i < 3000; i++)
		assert_int_equal((unsigned char)answer.body[i], i % 251);
	value = sbx_http_header(&answer, "content-length", &len);
	assert_int_equal(len, 4);
	assert_memory_equal(value, "3000", 4);
	assert_null(sbx_http_header(&answer, "content", &len));
	sbx_http_answer_release(&answer);
}

static void headers_are_those_of_the_answer(void **state)
{
	struct sbx_http_request req = request("/interim");
	struct sbx_http_answer answer = {0};
	size_t len;

	(void)state;
	assert_int_equal(sbx_http_perform(http, &req, NULL, &answer, NULL), 0);
	assert_null(sbx_http_header(&answer, "X-Interim", &len));
	assert_non_null(sbx_http_header(&answer, "Content-Length", &len));
	assert_string_equal(answer.body, "ok");
	sbx_http_answer_release(&answer);
}

static void statuses_are_errnos(void **state)
{
	static const struct {
		long status;
		int code;
	} rows[] = {{200, 0},
	            {204, 0},
	            {302, EPROTO},
	            {400, EINVAL},
	            {401, EKEYREJECTED},
	            {402, EDQUOT},
	            {403, EKEYREJECTED},
	            {404, ENOENT},
	            {405, EINVAL},
	            {408, ETIMEDOUT},
	            {409, EBUSY},
	            {410, ESTALE},
	            {413, EFBIG},
	            {422, ESTALE},
	            {429, EAGAIN},
	            {500, EREMOTEIO},
	            {502, EREMOTEIO},
	            {503, EREMOTEIO},
	            {100, EPROTO},
	            {0, EPROTO}};
	char path[64];

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(rows); i++) {
		struct sbx_http_request req;

		assert_int_equal(sbx_http_errno(rows[i].status), rows[i].code);
		if (rows[i].status < 204)
			continue;
		snprintf(path, sizeof(path), "/first/99/%ld/table", rows[i].status);
		req = request(path);
		check(&req, -rows[i].code, NULL);
	}
}

static void failures_of_connections_are_errnos(void **state)
{
	static const struct {
		CURLcode curl;
		long os_errno;
		int code;
	} rows[] = {{CURLE_COULDNT_RESOLVE_HOST, 0, ENETUNREACH},
	            {CURLE_COULDNT_CONNECT, EHOSTUNREACH, ENETUNREACH},
	            {CURLE_COULDNT_CONNECT, ENETUNREACH, ENETUNREACH},
	            {CURLE_COULDNT_CONNECT, ECONNREFUSED, ECONNREFUSED},
	            {CURLE_COULDNT_CONNECT, 0, ENETUNREACH},
	            {CURLE_OPERATION_TIMEDOUT, 0, ETIMEDOUT},
	            {CURLE_PEER_FAILED_VERIFICATION, 0, EKEYREJECTED},
	            {CURLE_SSL_CONNECT_ERROR, 0, EKEYREJECTED},
	            {CURLE_SSL_CACERT_BADFILE, 0, EKEYREJECTED},
	            {CURLE_PARTIAL_FILE, 0, EREMOTEIO},
	            {CURLE_GOT_NOTHING, 0, EREMOTEIO},
	            {CURLE_RECV_ERROR, ECONNRESET, EREMOTEIO},
	            {CURLE_HTTP2_STREAM, 0, EREMOTEIO},
	            {CURLE_WEIRD_SERVER_REPLY, 0, EPROTO},
	            {CURLE_OUT_OF_MEMORY, 0, ENOMEM}};
	struct sbx_error err;

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(rows); i++) {
		err = SBX_ERROR_INIT;
		assert_int_equal(sbx_http_no_answer(rows[i].curl, rows[i].os_errno, "x.org", &err),
		                 -rows[i].code);
		assert_true(*err.text);
	}
}

static void a_refusal_has_its_body(void **state)
{
	struct sbx_http_request req = request("/first/9/404/refused");

	(void)state;
	check(&req, -ENOENT, "number 1");
}

static void a_redirect_is_not_followed(void **state)
{
	struct sbx_http_request req = safe("/redirect");

	(void)state;
	check(&req, -EPROTO, NULL);
	assert_int_equal(seen("redirected"), 0);
}

static void json_is_json(void **state)
{
	struct sbx_http_request html = request("/html"), json = request("/json");

	(void)state;
	html.json = json.json = true;
	check(&html, -EPROTO, NULL);
	check(&json, 0, "{}");
}

static void what_is_no_http_is_told(void **state)
{
	struct sbx_http_request req = request("/garbage");

	(void)state;
	check(&req, -EPROTO, NULL);
}

static void an_answer_has_a_limit(void **state)
{
	struct sbx_http_request req = request("/bytes/5000"), endless = request("/endless/200");
	struct sbx_http_request refusal = request("/endless/404");
	struct sbx_http_answer answer = {0};

	(void)state;
	req.answer_max = 4999;
	check(&req, -EMSGSIZE, NULL);
	req.answer_max = 5000;
	check(&req, 0, NULL);
	check(&endless, -EMSGSIZE, NULL);
	assert_int_equal(sbx_http_perform(http, &refusal, NULL, &answer, NULL), -ENOENT);
	assert_int_equal(answer.status, 404);
	assert_int_equal(answer.len, 65536);
	sbx_http_answer_release(&answer);
}

/* ---- requests ---- */

static void methods_send_bodies(void **state)
{
	static const struct {
		const char *method, *body, *want;
	} rows[] = {
	        {"POST", "abc",
	         "POST 3 ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
	        {"PUT", "abc",
	         "PUT 3 ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
	        {"POST", "",
	         "POST 0 e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
	        {"DELETE", "",
	         "DELETE 0 e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
	        {"GET", "",
	         "GET 0 e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
	};
	struct sbx_http_request req = request("/upload"), head = request("/ok/head");

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(rows); i++) {
		req.method = rows[i].method;
		req.body =
		        (struct sbx_http_bytes){.data = rows[i].body, .size = strlen(rows[i].body)};
		check(&req, 0, rows[i].want);
	}
	head.method = "HEAD";
	check(&head, 0, NULL);
}

static int file_with(const char *text)
{
	int fd = memfd_create("test", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	return fd;
}

static void parts_are_fields_and_files(void **state)
{
	_cleanup_fd_ int fd = file_with("--abcdef");
	const struct sbx_http_part parts[] = {
	        {.name = "files[0].path", .bytes = {.data = "/tmp/a", .size = 6}},
	        {.name = "files[0].file",
	         .filename = "a b.bin",
	         .type = "application/octet-stream",
	         .bytes = {.fd = fd, .offset = 2, .size = 6}},
	        {.name = "empty", .filename = "e", .bytes = {.data = "", .size = 0}},
	};
	struct sbx_http_request req = request("/parts");

	(void)state;
	req.method = "POST";
	req.parts = parts;
	req.parts_n = SBX_ARRAY_SIZE(parts);
	check(&req, 0,
	      "files[0].path None text/plain 6\n"
	      "files[0].file a b.bin application/octet-stream 6\n"
	      "empty e text/plain 0\n");
}

static void a_file_that_is_too_short_is_told(void **state)
{
	_cleanup_fd_ int fd = file_with("abc");
	struct sbx_http_request req = safe("/upload");

	(void)state;
	req.method = "PUT";
	req.body = (struct sbx_http_bytes){.fd = fd, .size = 4};
	check(&req, -EIO, NULL);
}

static void bad_requests_are_refused(void **state)
{
	static const char *const urls[] = {"",
	                                   "x",
	                                   "ftp://127.0.0.1/",
	                                   "file:///etc/passwd",
	                                   "http://example.org/",
	                                   "http://128.0.0.1/",
	                                   "http://localhost.example.org/",
	                                   "https://user:" TOKEN "@127.0.0.1/",
	                                   "http://127.0.0.1/a b"};
	static const char *const forged[] = {"X: y\r\nZ: z", NULL}, *const none[] = {"X", NULL};
	struct sbx_http_request req = request("/ok/bad");

	(void)state;
	req.headers = forged;
	check(&req, -EINVAL, NULL);
	req.headers = none;
	check(&req, -EINVAL, NULL);
	req.headers = NULL;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(urls); i++) {
		req.url = urls[i];
		check(&req, -EINVAL, NULL);
	}
	assert_int_equal(seen("bad"), 0);
}

/* ---- repeats ---- */

static void server_errors_are_repeated_when_that_is_safe(void **state)
{
	struct sbx_http_request twice = safe("/first/2/500/twice");
	struct sbx_http_request thrice = safe("/first/3/503/thrice");
	struct sbx_http_request never = request("/first/2/500/never");
	struct sbx_http_request unsent = request("/first/2/500/unsent");

	(void)state;
	unsent.repeat = SBX_HTTP_UNSENT;
	check(&twice, 0, "number 3");
	check(&thrice, -EREMOTEIO, "number 3");
	check(&never, -EREMOTEIO, "number 1");
	check(&unsent, -EREMOTEIO, "number 1");
	thrice.repeats = 3;
	check(&thrice, 0, "number 4");
}

/* The last answer alone may say that nothing was done. */
static void what_was_repeated_may_have_been_done(void **state)
{
	static const struct {
		const char *path;
		bool unsure;
	} rows[] = {
	        {"/first/1/500/unsure", true},
	        {"/first/1/429/sure", false},
	        {"/first/0/500/once", false},
	};
	struct sbx_http_answer answer = {0};
	struct sbx_http_request cut;

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(rows); i++) {
		struct sbx_http_request req = safe(rows[i].path);

		assert_int_equal(sbx_http_perform(http, &req, NULL, &answer, NULL), 0);
		assert_int_equal(answer.unsure, rows[i].unsure);
		sbx_http_answer_release(&answer);
	}
	cut = request("/cut/unsure");
	assert_int_equal(sbx_http_perform(http, &cut, NULL, &answer, NULL), -EREMOTEIO);
	assert_false(sbx_http_not_done(-ECONNREFUSED, &answer));
	sbx_http_answer_release(&answer);
	answer.status = 404;
	assert_true(sbx_http_not_done(-ENOENT, &answer));
	answer.unsure = true;
	assert_false(sbx_http_not_done(-ENOENT, &answer));
	answer = (struct sbx_http_answer){0};
	assert_true(sbx_http_not_done(-ECONNREFUSED, &answer));
	assert_false(sbx_http_not_done(-ETIMEDOUT, &answer));
	assert_false(sbx_http_not_done(-EINTR, &answer));
	answer.status = 500;
	assert_false(sbx_http_not_done(-EREMOTEIO, &answer));
}

static void what_will_not_pass_is_not_repeated(void **state)
{
	struct sbx_http_request gone = safe("/first/1/404/gone"), later = safe("/first/1/501/not");

	(void)state;
	check(&gone, -ENOENT, NULL);
	check(&later, -EREMOTEIO, NULL);
	assert_int_equal(seen("gone") + seen("not"), 2);
}

static void who_asks_too_often_is_told_when(void **state)
{
	struct sbx_http_request plainly = request("/later/Retry-After/0/plainly");
	struct sbx_http_request bucket = safe("/later/Retry-After-sandbox-create/1/bucket");
	struct sbx_http_request too_long = safe("/later/Retry-After/100/toolong");
	struct sbx_http_request never = request("/later/Retry-After/0/neverlater");
	struct sbx_http_answer answer = {0};
	struct sbx_error err = SBX_ERROR_INIT;
	uint64_t begun;

	(void)state;
	plainly.repeat = SBX_HTTP_UNSENT;
	check(&plainly, 0, "now");
	begun = sbx_now_ms();
	check(&bucket, 0, "now");
	assert_true(sbx_now_ms() - begun >= 1000);
	assert_int_equal(sbx_http_perform(http, &too_long, NULL, &answer, &err), -EAGAIN);
	assert_non_null(strstr(err.text, "100 s"));
	sbx_http_answer_release(&answer);
	check(&never, -EAGAIN, "later");
	assert_int_equal(seen("toolong") + seen("neverlater"), 2);
}

static void retry_after_is_seconds_or_a_date(void **state)
{
	static const struct {
		const char *headers;
		uint64_t least, most;
	} rows[] = {{"X: 1\n", 0, 0},
	            {"Retry-After: 7\n", 7000, 7000},
	            {"retry-after-x: 9\nRetry-After: 7\n", 9000, 9000},
	            {"Retry-Afterwards: 9\n", 0, 0},
	            {"Retry-After: soon\n", 0, 0},
	            {"Retry-After: -3\n", 0, 0},
	            {"Retry-After: 99999999999999999999\n", 86400000, 86400000},
	            {"Retry-After: Fri, 31 Dec 1999 23:59:59 GMT\n", 0, 0},
	            {"Retry-After: Fri, 31 Dec 2199 23:59:59 GMT\n", 86400000, 86400000}};
	char text[128], copy[128];
	time_t then = time(NULL) + 30;
	struct sbx_http_answer answer = {.headers = text};
	uint64_t ms;

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(rows); i++) {
		answer.headers = copy;
		snprintf(copy, sizeof(copy), "%s", rows[i].headers);
		ms = sbx_http_retry_after_ms(&answer);
		assert_in_range(ms, rows[i].least, rows[i].most);
	}
	strftime(text, sizeof(text), "Retry-After: %a, %d %b %Y %H:%M:%S GMT\n", gmtime(&then));
	answer.headers = text;
	assert_in_range(sbx_http_retry_after_ms(&answer), 1000, 30000);
}

static void pauses_grow_and_differ(void **state)
{
	uint64_t first = sbx_http_pause_ms(0, 400, 0);
	bool differs = false;

	(void)state;
	assert_in_range(first, 400, 800);
	assert_in_range(sbx_http_pause_ms(1, 400, 0), 800, 1600);
	assert_in_range(sbx_http_pause_ms(2, 400, 0), 1600, 3200);
	assert_in_range(sbx_http_pause_ms(60, 400, 0), 10000, 20000);
	assert_in_range(sbx_http_pause_ms(1, 400, 5000), 5000, 5400);
	for (int i = 0; i < 50 && !differs; i++)
		differs = sbx_http_pause_ms(0, 400, 0) != first;
	assert_true(differs);
}

static void cut_answers_are_repeated_when_that_is_safe(void **state)
{
	struct sbx_http_request req = safe("/cut/cutsafe"), never = request("/cut/cutnever");

	(void)state;
	check(&req, -EREMOTEIO, NULL);
	check(&never, -EREMOTEIO, NULL);
	assert_int_equal(seen("cutsafe"), 3);
	assert_int_equal(seen("cutnever"), 1);
}

/* libcurl would send it again on its own. */
static void a_dead_connection_repeats_nothing_by_itself(void **state)
{
	static const enum sbx_http_repeat repeats[] = {SBX_HTTP_NEVER, SBX_HTTP_UNSENT};
	static const char *const keys[] = {"dropnever", "dropunsent"};
	char path[64];

	(void)state;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(keys); i++) {
		struct sbx_http_request used = request("/ok/used"), req;

		snprintf(path, sizeof(path), "/drop/%s", keys[i]);
		req = request(path);
		req.method = "POST";
		req.repeat = repeats[i];
		check(&used, 0, NULL);
		check(&req, -EREMOTEIO, NULL);
		assert_int_equal(seen(keys[i]), 1);
		check(&used, 0, NULL);
		req.repeat = SBX_HTTP_SAFE;
		check(&req, 0, "ok");
	}
}

/* A port that nobody listens on, for as long as *FD is open. */
static int closed_port(int *fd)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(a);

	*fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(*fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(getsockname(*fd, (struct sockaddr *)&a, &len), 0);
	return ntohs(a.sin_port);
}

static uint64_t requests_of(const char *op)
{
	_cleanup_free_ struct sbx_http_count *counts = NULL;
	size_t n;

	assert_int_equal(sbx_http_counts(http, &counts, &n), 0);
	for (size_t i = 0; i < n; i++)
		if (strcmp(counts[i].op, op) == 0)
			return counts[i].requests;
	return 0;
}

static void nobody_there_is_repeated_unless_never(void **state)
{
	static const struct {
		const char *op;
		enum sbx_http_repeat repeat;
		uint64_t attempts;
	} rows[] = {{"r_never", SBX_HTTP_NEVER, 1},
	            {"r_unsent", SBX_HTTP_UNSENT, 3},
	            {"r_safe", SBX_HTTP_SAFE, 3}};
	_cleanup_fd_ int fd = -1;
	struct sbx_http_request req = request("/");
	char url[64];

	(void)state;
	snprintf(url, sizeof(url), "http://127.0.0.1:%d/", closed_port(&fd));
	req.url = url;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(rows); i++) {
		req.op = rows[i].op;
		req.repeat = rows[i].repeat;
		check(&req, -ECONNREFUSED, NULL);
		assert_int_equal(requests_of(rows[i].op), rows[i].attempts);
	}
}

/* ---- time ---- */

static double cpu_seconds(void)
{
	return (double)sbx_clock_ns(CLOCK_PROCESS_CPUTIME_ID) / 1e9;
}

static void silence_ends_a_request(void **state)
{
	struct sbx_http_request before = request("/stall/before/qbefore");
	struct sbx_http_request after = request("/stall/after/qafter");
	struct sbx_http_request repeated = safe("/stall/before/qagain");
	const double begun = cpu_seconds();
	uint64_t begun_ns = sbx_now_ns();

	(void)state;
	before.quiet_ms = after.quiet_ms = 600;
	repeated.quiet_ms = 100;
	check(&before, -ETIMEDOUT, NULL);
	check(&after, -ETIMEDOUT, NULL);
	/* Nobody turns round meanwhile. */
	assert_true((cpu_seconds() - begun) * 2 < (double)(sbx_now_ns() - begun_ns) / 1e9);
	check(&repeated, -ETIMEDOUT, NULL);
	assert_int_equal(seen("qagain"), 3);
	await_stalled("qbefore");
	await_stalled("qafter");
	for (int i = 0; i < 3; i++)
		await_stalled("qagain");
}

static void a_trickle_is_not_silence(void **state)
{
	struct sbx_http_request req = request("/trickle/15/200");

	(void)state;
	req.quiet_ms = 2000;
	check(&req, 0, "xxxxxxxxxxxxxxx");
}

static int lookups[2] = {-1, -1}; /* a pipe: a byte lets one go on */

/* Instead of the C library's: it is silent, as a name server can be. */
int getaddrinfo(const char *restrict node, const char *restrict service,
                const struct addrinfo *restrict hints, struct addrinfo **restrict ret)
{
	char c;

	(void)node;
	(void)service;
	(void)hints;
	(void)ret;
	if (read(lookups[0], &c, 1) != 1)
		return EAI_SYSTEM;
	return EAI_NONAME;
}

static void a_lookup_of_a_name_holds_nobody_up(void **state)
{
	struct sbx_http_request named = safe("/"), other = request("/ok/other");

	(void)state;
	assert_int_equal(pipe2(lookups, O_CLOEXEC), 0);
	named.url = "https://sandboxes.example.org/";
	named.deadline_ms = 100;
	check(&named, -ETIMEDOUT, NULL);
	check(&other, 0, "ok");
	assert_int_equal(write(lookups[1], "1234", 4), 4);
	named.deadline_ms = DEADLINE;
	check(&named, -ENETUNREACH, NULL);
}

static void a_deadline_is_for_everything(void **state)
{
	struct sbx_http_request trickle = safe("/trickle/1000/10");
	struct sbx_http_request stalled = safe("/stall/before/deadline");

	(void)state;
	trickle.deadline_ms = stalled.deadline_ms = 300;
	trickle.quiet_ms = 1000;
	check(&trickle, -ETIMEDOUT, NULL);
	check(&stalled, -ETIMEDOUT, NULL);
	await_stalled("deadline");
}

/* ---- at once ---- */

struct gathering {
	pthread_mutex_t lock;
	pthread_cond_t all;
	int left, failed, code;
	pthread_t thread;
};

static struct gathering gathering = {.lock = PTHREAD_MUTEX_INITIALIZER,
                                     .all = PTHREAD_COND_INITIALIZER};

static void gathered(struct sbx_http_request *req, int code, struct sbx_http_answer *answer,
                     const struct sbx_error *err)
{
	struct gathering *g = &gathering;

	(void)answer;
	(void)err;
	assert_ptr_equal(req->data, g);
	pthread_mutex_lock(&g->lock);
	g->failed += code < 0;
	g->code = code;
	g->thread = pthread_self();
	g->left--;
	pthread_cond_signal(&g->all);
	pthread_mutex_unlock(&g->lock);
}

static void begin(struct sbx_http_request *req)
{
	req->done = gathered;
	req->data = &gathering;
	sbx_http_begin(http, req);
}

static void gather(int n)
{
	gathering.left = n;
	gathering.failed = 0;
}

static void await_all(void)
{
	pthread_mutex_lock(&gathering.lock);
	while (gathering.left)
		pthread_cond_wait(&gathering.all, &gathering.lock);
	pthread_mutex_unlock(&gathering.lock);
}

static void many_share_few_connections(void **state)
{
	static struct sbx_http_request reqs[MANY];
	const int before = connections();

	(void)state;
	gather(MANY);
	for (int i = 0; i < MANY; i++) {
		reqs[i] = request("/ok/many");
		begin(&reqs[i]);
	}
	await_all();
	assert_int_equal(gathering.failed, 0);
	assert_true(pthread_equal(gathering.thread, loop_thread));
	assert_int_equal(seen("many"), MANY);
	assert_in_range(connections() - before, 0, PER_HOST - 1);
}

static void who_waits_for_a_turn_has_a_deadline(void **state)
{
	struct sbx_http_request stalled[PER_HOST], waiting = request("/ok/waits");

	(void)state;
	gather(PER_HOST + 1);
	for (int i = 0; i < PER_HOST; i++) {
		stalled[i] = request("/stall/before/turn");
		begin(&stalled[i]);
	}
	for (int i = 0; i < PER_HOST; i++)
		await_stalled("turn");
	waiting.deadline_ms = 50;
	begin(&waiting);
	pthread_mutex_lock(&gathering.lock);
	while (gathering.left > PER_HOST)
		pthread_cond_wait(&gathering.all, &gathering.lock);
	assert_int_equal(gathering.code, -ETIMEDOUT);
	pthread_mutex_unlock(&gathering.lock);
	for (int i = 0; i < PER_HOST; i++)
		sbx_http_cancel(&stalled[i]);
	await_all();
	assert_int_equal(gathering.failed, PER_HOST + 1);
	assert_int_equal(seen("waits"), 0);
}

/* Of those who are held as many are asked at once as there is room for. */
static void what_a_server_holds_is_in_nobody_s_way(void **state)
{
	struct sbx_http_request held[PER_HOST + 2], other = request("/ok/others");

	(void)state;
	gather(PER_HOST + 2);
	for (int i = 0; i < PER_HOST + 2; i++) {
		held[i] = request("/stall/before/held");
		held[i].held = true;
		begin(&held[i]);
	}
	for (int i = 0; i < PER_HOST + 2; i++)
		await_stalled("held");
	other.deadline_ms = 10000;
	check(&other, 0, "ok");
	for (int i = 0; i < PER_HOST + 2; i++)
		sbx_http_cancel(&held[i]);
	await_all();
	assert_int_equal(gathering.failed, PER_HOST + 2);
}

static void a_request_is_cancelled_in_flight(void **state)
{
	struct sbx_http_request req = safe("/stall/after/cancel"), early = request("/ok/early");

	(void)state;
	gather(1);
	begin(&req);
	await_stalled("cancel");
	sbx_http_cancel(&req);
	await_all();
	assert_int_equal(gathering.code, -EINTR);
	assert_int_equal(seen("cancel"), 1);
	gather(1);
	begin(&early);
	sbx_http_cancel(&early);
	await_all();
}

static atomic_bool cancelled;

static void *cancel_stalled(void *data)
{
	await_stalled(data);
	atomic_store(&cancelled, true);
	return NULL;
}

static void who_waits_gives_up_by_a_flag(void **state)
{
	struct sbx_http_request req = request("/stall/before/flag");
	struct sbx_http_answer answer = {0};
	struct sbx_error err = SBX_ERROR_INIT;
	char key[] = "flag";
	pthread_t thread;

	(void)state;
	atomic_store(&cancelled, false);
	assert_int_equal(pthread_create(&thread, NULL, cancel_stalled, key), 0);
	assert_int_equal(sbx_http_perform(http, &req, &cancelled, &answer, &err), -EINTR);
	assert_int_equal(sbx_http_perform(http, &req, &cancelled, &answer, &err), -EINTR);
	pthread_join(thread, NULL);
	assert_int_equal(seen("flag"), 1);
}

static void destroying_ends_what_is_under_way(void **state)
{
	struct sbx_http_request stalled[PER_HOST + 2];

	(void)state;
	gather(PER_HOST + 2);
	for (int i = 0; i < PER_HOST + 2; i++) {
		stalled[i] = request("/stall/before/end");
		begin(&stalled[i]);
	}
	for (int i = 0; i < PER_HOST; i++)
		await_stalled("end");
	tear_down(NULL);
	assert_int_equal(gathering.left, 0);
	assert_int_equal(gathering.failed, PER_HOST + 2);
	set_up(NULL);
	assert_int_equal(seen("end"), PER_HOST);
}

static void *perform_late(void *data)
{
	struct sbx_http_request req = request("/bytes/3");
	struct sbx_http_answer answer = {0};
	struct sbx_error err = SBX_ERROR_INIT;

	*(int *)data = sbx_http_perform(http, &req, NULL, &answer, &err);
	assert_int_equal(err.code, EINTR);
	sbx_http_answer_release(&answer);
	return NULL;
}

/* By threads that nobody could tell of the end, as those of a backend's pool. */
static void who_begins_while_it_stops_is_told(void **state)
{
	struct sbx_http_request early = request("/bytes/3"), late = request("/bytes/3");
	int before = 0, after = 0;
	pthread_t thread;

	(void)state;
	sbx_loop_stop(loop);
	pthread_join(loop_thread, NULL);
	gather(2);
	begin(&early);
	assert_int_equal(pthread_create(&thread, NULL, perform_late, &before), 0);
	sbx_http_stop(http);
	pthread_join(thread, NULL);
	assert_int_equal(before, -EINTR);
	assert_int_equal(gathering.left, 1);
	perform_late(&after);
	assert_int_equal(after, -EINTR);
	begin(&late);
	sbx_loop_destroy(loop);
	assert_int_equal(gathering.left, 0);
	assert_int_equal(gathering.failed, 2);
	sbx_http_destroy(http);
	set_up(NULL);
}

/* ---- secrets ---- */

static bool has(const char *data, size_t len, const char *word)
{
	return memmem(data, len, word, strlen(word));
}

static void check_hidden(struct sbx_http_request *req, const char *want, const char *never)
{
	struct sbx_http_answer answer = {0};
	struct sbx_error err = SBX_ERROR_INIT;

	assert_int_equal(sbx_http_perform(http, req, NULL, &answer, &err), -EINVAL);
	assert_true(has(answer.body, answer.len, want));
	assert_non_null(strstr(answer.headers, want));
	assert_false(has(answer.body, answer.len, never));
	assert_null(strstr(answer.headers, never));
	assert_null(strstr(err.text, never));
	assert_int_equal(strlen(answer.body) * 2 + 1, answer.len);
	sbx_http_answer_release(&answer);
}

static void a_secret_comes_back_in_no_refusal(void **state)
{
	static const char *const headers[] = {"X-Copy: " TOKEN, NULL};
	struct sbx_http_request req = request("/echo"), other = request("/echo");

	(void)state;
	req.secret = token;
	req.headers = headers;
	check_hidden(&req, "Authorization=Bearer ***", TOKEN);
	req.auth = SBX_HTTP_BASIC;
	check_hidden(&req, "Authorization=Basic ***", "Z2hwX3Zlcnlz");
	other.hidden = token;
	other.headers = headers;
	check_hidden(&other, "X-Copy=***", TOKEN);
}

static int refuse_piece(struct sbx_http_request *req, const void *data, size_t len)
{
	(void)req;
	(void)data;
	(void)len;
	return -EILSEQ;
}

/* Of no failure: each way to fail, with the token in the URL, in the name and in the header. */
static void a_secret_is_in_no_error(void **state)
{
	static const char *const paths[] = {
	        "/first/9/500/" TOKEN, "/redirect",           "/cut/" TOKEN, "/garbage", "/html",
	        "/endless/200",        "/stall/before/" TOKEN};
	_cleanup_fd_ int fd = -1;
	struct sbx_http_request req;
	struct sbx_http_answer answer = {0};
	struct sbx_error err;
	char dead[64];

	(void)state;
	snprintf(dead, sizeof(dead), "http://127.0.0.1:%d/" TOKEN, closed_port(&fd));
	for (size_t i = 0; i <= SBX_ARRAY_SIZE(paths); i++) {
		err = SBX_ERROR_INIT;
		req = request(i < SBX_ARRAY_SIZE(paths) ? paths[i] : "/");
		req.secret = token;
		req.peer = TOKEN ".example.org";
		req.json = true;
		req.quiet_ms = 100;
		req.take = i == 5 ? refuse_piece : NULL;
		if (i == SBX_ARRAY_SIZE(paths))
			req.url = dead;
		assert_true(sbx_http_perform(http, &req, NULL, &answer, &err) < 0);
		assert_true(*err.text);
		assert_null(strstr(err.text, TOKEN));
		sbx_http_answer_release(&answer);
	}
	await_stalled(TOKEN);
}

/* ---- streams ---- */

struct stream {
	uint64_t len;
	bool wrong;
};

static int compare_piece(struct sbx_http_request *req, const void *data, size_t len)
{
	struct stream *s = req->data;
	const unsigned char *c = data;

	for (size_t i = 0; i < len; i++)
		s->wrong |= c[i] != (s->len + i) % (251 * 261) % 251;
	s->len += len;
	return 0;
}

static long peak_kib(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_maxrss;
}

static FILE *temporary(void)
{
	char dir[256], path[300];
	FILE *f;

	assert_non_null(tmp_make(dir, sizeof(dir), "sbx-http"));
	snprintf(path, sizeof(path), "%s/file", dir);
	f = fopen(path, "w+e");
	assert_non_null(f);
	unlink(path);
	rmdir(dir);
	return f;
}

static void large_bodies_take_no_memory(void **state)
{
	_cleanup_file_ FILE *file = temporary();
	struct stream stream = {0};
	struct sbx_http_request pieces = request("/bytes/67108864"), down = pieces;
	struct sbx_http_request up = request("/upload"), warm = request("/bytes/100000");
	const struct sbx_http_part part = {
	        .name = "f", .filename = "f", .bytes = {.fd = fileno(file), .size = LARGE}};
	struct sbx_http_request form = request("/upload");
	long before;

	(void)state;
	check(&warm, 0, NULL);
	before = peak_kib();
	pieces.take = compare_piece;
	pieces.data = &stream;
	check(&pieces, 0, NULL);
	assert_false(stream.wrong);
	assert_true(stream.len == LARGE);
	assert_int_equal(fputs("what was there", file), 1);
	fflush(file);
	down.answer_fd = fileno(file);
	check(&down, 0, NULL);
	assert_true(lseek(fileno(file), 0, SEEK_END) == (off_t)LARGE);
	up.method = "PUT";
	up.body = (struct sbx_http_bytes){.fd = fileno(file), .size = LARGE};
	check(&up, 0,
	      "PUT 67108864 98dc891b284e4d84ac25b0c0a24fdbe39a7f0dbd643ad5e8aa06e02fc6258254");
	form.method = "POST";
	form.parts = &part;
	form.parts_n = 1;
	check(&form, 0, NULL);
	assert_in_range(peak_kib() - before, 0, MEMORY_MOST);
}

static void a_piece_that_was_taken_is_not_sent_again(void **state)
{
	struct stream stream = {0};
	struct sbx_http_request req = safe("/cut/piece"), whole = safe("/first/2/500/pieces");

	(void)state;
	req.take = whole.take = compare_piece;
	req.data = whole.data = &stream;
	check(&req, -EREMOTEIO, NULL);
	assert_int_equal(seen("piece"), 1);
	/* Refusals are not of the stream. */
	stream = (struct stream){0};
	check(&whole, 0, NULL);
	assert_int_equal(stream.len, strlen("number 3"));
}

static void a_file_gets_the_last_answer_alone(void **state)
{
	_cleanup_fd_ int fd = file_with("what was there before");
	struct sbx_http_request req = safe("/first/2/500/tofile");
	char text[64] = "";

	(void)state;
	req.answer_fd = fd;
	check(&req, 0, NULL);
	assert_int_equal(pread(fd, text, sizeof(text), 0), strlen("number 3"));
	assert_string_equal(text, "number 3");
}

/* ---- the rest ---- */

static void what_is_done_is_counted_by_name(void **state)
{
	_cleanup_free_ struct sbx_http_count *counts = NULL;
	struct sbx_http_request one = request("/bytes/1000"), two = safe("/first/2/500/counted");
	struct sbx_http_request up = request("/upload");
	char body[2000] = "";
	size_t n;

	(void)state;
	one.op = "one";
	two.op = "two";
	up.op = "up";
	up.method = "POST";
	up.body = (struct sbx_http_bytes){.data = body, .size = sizeof(body)};
	check(&one, 0, NULL);
	check(&one, 0, NULL);
	check(&two, 0, NULL);
	check(&up, 0, NULL);
	assert_int_equal(sbx_http_counts(http, &counts, &n), 0);
	assert_int_equal(n, 3);
	assert_string_equal(counts[0].op, "one");
	assert_int_equal(counts[0].requests, 2);
	assert_int_equal(counts[0].failed, 0);
	assert_in_range(counts[0].received, 2000, 3000);
	assert_true(counts[0].ns > 0);
	assert_int_equal(counts[1].requests, 3);
	assert_int_equal(counts[1].failed, 2);
	assert_in_range(counts[2].sent, 2000, 2500);
}

static void no_tls_is_no_answer(void **state)
{
	struct sbx_http_request req = safe("/ok/tls");
	char url[64];

	(void)state;
	snprintf(url, sizeof(url), "https://127.0.0.1:%d/ok/tls", plain.port);
	req.url = url;
	check(&req, -EKEYREJECTED, NULL);
	assert_int_equal(requests_of("test"), 1);
}

/* What is executed meanwhile gets none of them. */
static void connections_are_not_inherited(void **state)
{
	struct sbx_http_request req = request("/ok/cloexec");
	int kept = 0;

	(void)state;
	check(&req, 0, NULL);
	for (int fd = 3; fd < 64; fd++) {
		int family = 0;
		socklen_t len = sizeof(family);

		if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &len) < 0 || family != AF_INET)
			continue;
		kept++;
		assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	}
	assert_true(kept > 0);
}

static void this_host_is_asked_without_a_proxy(void **state)
{
	struct sbx_http_request req = request("/ok/proxy");

	(void)state;
	setenv("http_proxy", "http://127.0.0.1:1", 1);
	check(&req, 0, NULL);
	unsetenv("http_proxy");
}

static bool make_certificate(char *path, size_t size)
{
	char dir[256], command[2048];

	assert_non_null(tmp_make(dir, sizeof(dir), "sbx-tls"));
	snprintf(path, size, "%s/pem", dir);
	snprintf(command, sizeof(command),
	         "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 "
	         "-subj /CN=localhost -addext subjectAltName=IP:127.0.0.1 -keyout %s -out %s.c "
	         "2>/dev/null && cat %s.c >>%s && rm %s.c",
	         path, path, path, path, path);
	return system(command) == 0;
}

/* It is right but for those who have signed it. */
static void a_certificate_of_nobody_is_refused(void **state)
{
	struct sbx_http_request req = safe("/ok/tls");
	struct server secured;
	char pem[300], url[64];
	bool made = make_certificate(pem, sizeof(pem));

	(void)state;
	if (made) {
		start_server(&secured, pem);
		snprintf(url, sizeof(url), "https://127.0.0.1:%d/ok/tls", secured.port);
		req.url = url;
		req.secret = token;
		check(&req, -EKEYREJECTED, NULL);
		stop_server(&secured);
	}
	unlink(pem);
	*strrchr(pem, '/') = '\0';
	rmdir(pem);
	if (!made)
		skip();
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

static int start_all(void **state)
{
	(void)state;
	start_server(&plain, NULL);
	setenv("SBX_TEST_SECRET", TOKEN, 1);
	return sbx_secret_take("SBX_TEST_SECRET", &token);
}

static int stop_all(void **state)
{
	(void)state;
	sbx_secret_free(token);
	stop_server(&plain);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        CASE(an_answer_is_handed_over),
	        CASE(headers_are_those_of_the_answer),
	        cmocka_unit_test(failures_of_connections_are_errnos),
	        CASE(statuses_are_errnos),
	        CASE(a_refusal_has_its_body),
	        CASE(a_redirect_is_not_followed),
	        CASE(json_is_json),
	        CASE(what_is_no_http_is_told),
	        CASE(an_answer_has_a_limit),
	        CASE(methods_send_bodies),
	        CASE(parts_are_fields_and_files),
	        CASE(a_file_that_is_too_short_is_told),
	        CASE(bad_requests_are_refused),
	        CASE(server_errors_are_repeated_when_that_is_safe),
	        CASE(what_was_repeated_may_have_been_done),
	        CASE(what_will_not_pass_is_not_repeated),
	        CASE(who_asks_too_often_is_told_when),
	        cmocka_unit_test(retry_after_is_seconds_or_a_date),
	        cmocka_unit_test(pauses_grow_and_differ),
	        CASE(cut_answers_are_repeated_when_that_is_safe),
	        CASE(a_dead_connection_repeats_nothing_by_itself),
	        CASE(nobody_there_is_repeated_unless_never),
	        CASE(silence_ends_a_request),
	        CASE(a_trickle_is_not_silence),
	        CASE(a_lookup_of_a_name_holds_nobody_up),
	        CASE(a_deadline_is_for_everything),
	        CASE(many_share_few_connections),
	        CASE(who_waits_for_a_turn_has_a_deadline),
	        CASE(what_a_server_holds_is_in_nobody_s_way),
	        CASE(a_request_is_cancelled_in_flight),
	        CASE(who_waits_gives_up_by_a_flag),
	        CASE(destroying_ends_what_is_under_way),
	        CASE(who_begins_while_it_stops_is_told),
	        CASE(a_secret_comes_back_in_no_refusal),
	        CASE(a_secret_is_in_no_error),
	        CASE(large_bodies_take_no_memory),
	        CASE(a_piece_that_was_taken_is_not_sent_again),
	        CASE(a_file_gets_the_last_answer_alone),
	        CASE(what_is_done_is_counted_by_name),
	        CASE(connections_are_not_inherited),
	        CASE(this_host_is_asked_without_a_proxy),
	        CASE(no_tls_is_no_answer),
	        CASE(a_certificate_of_nobody_is_refused),
	};

	return cmocka_run_group_tests(tests, start_all, stop_all);
}
