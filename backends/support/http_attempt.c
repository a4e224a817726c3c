/* One attempt: the options of libcurl's handle, and what comes back by its functions. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "backends/support/http_impl.h"
#include "sandboxfs/clock.h"
#include "sandboxfs/secret.h"

#define CONNECT_MS  10000L
#define IDLE_S      60L /* servers close what idles for longer, some without a word */
#define ANSWER_MAX  ((size_t)1024 * 1024)
#define REFUSAL_MAX ((size_t)64 * 1024) /* of the body of an answer that is not 2xx */
#define HEADERS_MAX ((size_t)32 * 1024)

/* ---- libcurl's functions ---- */

/* Not inherited by what is executed meanwhile. */
static curl_socket_t open_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *a)
{
	(void)arg;
	(void)purpose;
	return socket(a->family, a->socktype | SOCK_CLOEXEC, a->protocol);
}

/*
 * The request is about to be sent. libcurl sends it again on its own when a connection that was
 * used before ends without an answer, whatever the method.
 */
static int on_request(void *arg, char *ip, char *own_ip, int port, int own_port)
{
	struct sbx_http_attempt *a = arg;

	(void)ip;
	(void)own_ip;
	(void)port;
	(void)own_port;
	if (a->sent && a->req->repeat != SBX_HTTP_SAFE) {
		sbx_fail(&a->fault, EREMOTEIO, "%s has closed the connection without an answer",
		         a->server->peer);
		return CURL_PREREQFUNC_ABORT;
	}
	a->sent = true;
	a->got_ns = sbx_now_ns();
	return CURL_PREREQFUNC_OK;
}

/* Adds to a text that ends with a NUL. 0 or -ENOMEM. */
static int append(char **text, size_t *len, size_t *cap, const char *data, size_t n)
{
	size_t more = *cap ? *cap : 1024;
	char *longer = *text;

	while (more <= *len + n)
		more *= 2;
	if (more > *cap)
		longer = realloc(*text, more);
	if (!longer)
		return -ENOMEM;
	memcpy(longer + *len, data, n);
	*len += n;
	longer[*len] = '\0';
	*text = longer;
	*cap = more;
	return 0;
}

static size_t on_header(char *line, size_t size, size_t n, void *arg)
{
	struct sbx_http_attempt *a = arg;
	size_t len = n * size;

	a->got_ns = sbx_now_ns();
	while (len && strchr("\r\n", line[len - 1]))
		len--;
	if (len >= 5 && strncasecmp(line, "HTTP/", 5) == 0)
		a->headers_len = 0; /* those before were of an answer that says "continue" */
	if (len + a->headers_len > HEADERS_MAX)
		return n * size;
	if (append(&a->answer.headers, &a->headers_len, &a->headers_cap, line, len) < 0 ||
	    append(&a->answer.headers, &a->headers_len, &a->headers_cap, "\n", 1) < 0) {
		sbx_no_memory(&a->fault);
		return 0;
	}
	return n * size;
}

static int write_file(struct sbx_http_attempt *a, const char *data, size_t n)
{
	for (size_t done = 0; done < n;) {
		ssize_t w = pwrite(a->req->answer_fd, data + done, n - done,
		                   (off_t)(a->received + done));

		if (w < 0)
			return sbx_fail(&a->fault, errno, "what %s sends cannot be kept: %s",
			                a->server->peer, strerror(errno));
		done += (size_t)w;
	}
	return 0;
}

static int take_body(struct sbx_http_attempt *a, const char *data, size_t n)
{
	struct sbx_http_request *req = a->req;
	const bool streamed = req->take || req->answer_fd > 0;
	const uint64_t max = req->answer_max ? req->answer_max : streamed ? UINT64_MAX : ANSWER_MAX;
	int r = 0;

	if (n > max - a->received)
		return sbx_fail(&a->fault, EMSGSIZE, "the answer of %s is too long",
		                a->server->peer);
	if (req->take) {
		a->handed = true;
		r = req->take(req, data, n);
		if (r < 0)
			sbx_fail(&a->fault, -r, "the answer of %s cannot be used: %s",
			         a->server->peer, strerror(-r));
	} else if (req->answer_fd > 0) {
		r = write_file(a, data, n);
	} else if (append(&a->answer.body, &a->answer.len, &a->body_cap, data, n) < 0) {
		r = sbx_no_memory(&a->fault);
	}
	a->received += n;
	return r;
}

/* Of a refusal that does not end the beginning is enough. */
static int take_refusal(struct sbx_http_attempt *a, const char *data, size_t n)
{
	const size_t room = REFUSAL_MAX - a->answer.len;

	a->enough = n > room;
	if (append(&a->answer.body, &a->answer.len, &a->body_cap, data, n > room ? room : n) < 0)
		return sbx_no_memory(&a->fault);
	return a->enough ? -EMSGSIZE : 0;
}

static size_t on_body(char *data, size_t size, size_t n, void *arg)
{
	struct sbx_http_attempt *a = arg;
	long status = 0;
	int r;

	n *= size;
	a->got_ns = sbx_now_ns();
	curl_easy_getinfo(a->easy, CURLINFO_RESPONSE_CODE, &status);
	r = sbx_http_errno(status) ? take_refusal(a, data, n) : take_body(a, data, n);
	return r < 0 ? CURL_WRITEFUNC_ERROR : n;
}

/* ---- options ---- */

static bool add_header(struct curl_slist **list, const char *line)
{
	struct curl_slist *longer = curl_slist_append(*list, line);

	if (longer)
		*list = longer;
	return longer;
}

static bool has_type(const struct sbx_http_request *req)
{
	for (size_t i = 0; req->headers && req->headers[i]; i++)
		if (strncasecmp(req->headers[i], "Content-Type:", 13) == 0)
			return true;
	return false;
}

/* No Expect: servers that do not know it are waited for. No type that nobody has said. */
static int set_headers(struct sbx_http_attempt *a)
{
	const struct sbx_http_request *req = a->req;
	bool good = add_header(&a->headers, "Expect:");

	if (!req->parts_n && !has_type(req))
		good = good && add_header(&a->headers, "Content-Type:");
	for (size_t i = 0; good && req->headers && req->headers[i]; i++)
		good = add_header(&a->headers, req->headers[i]);
	curl_easy_setopt(a->easy, CURLOPT_HTTPHEADER, a->headers);
	return good ? 0 : -ENOMEM;
}

static int set_secret(struct sbx_http_attempt *a)
{
	const char *secret = sbx_secret_text(a->req->secret);
	CURLcode code = CURLE_OK;

	if (!secret)
		return 0;
	if (a->req->auth == SBX_HTTP_BEARER) {
		curl_easy_setopt(a->easy, CURLOPT_HTTPAUTH, CURLAUTH_BEARER);
		code = curl_easy_setopt(a->easy, CURLOPT_XOAUTH2_BEARER, secret);
	} else {
		curl_easy_setopt(a->easy, CURLOPT_HTTPAUTH, CURLAUTH_BASIC);
		code = curl_easy_setopt(a->easy, CURLOPT_USERNAME, secret);
		curl_easy_setopt(a->easy, CURLOPT_PASSWORD, "");
	}
	return code == CURLE_OK ? 0 : -ENOMEM;
}

static void set_connection(struct sbx_http_attempt *a)
{
	CURL *easy = a->easy;

	curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_2TLS);
	curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 1L);
	curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 2L);
	curl_easy_setopt(easy, CURLOPT_SSLVERSION, CURL_SSLVERSION_TLSv1_2);
	curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
	curl_easy_setopt(easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
	curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS);
	curl_easy_setopt(easy, CURLOPT_MAXAGE_CONN, IDLE_S);
	curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, open_socket);
	curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
	/* Else its end would be waited for that of a name's lookup. */
	curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);
	if (a->server->local)
		curl_easy_setopt(easy, CURLOPT_NOPROXY, "*");
}

static void set_functions(struct sbx_http_attempt *a)
{
	CURL *easy = a->easy;

	curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
	curl_easy_setopt(easy, CURLOPT_HEADERDATA, a);
	curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
	curl_easy_setopt(easy, CURLOPT_WRITEDATA, a);
	curl_easy_setopt(easy, CURLOPT_PREREQFUNCTION, on_request);
	curl_easy_setopt(easy, CURLOPT_PREREQDATA, a);
}

/* The last attempt's are gone. */
static void reset(struct sbx_http_attempt *a)
{
	sbx_http_answer_release(&a->answer);
	a->headers_len = a->headers_cap = a->body_cap = 0;
	a->received = 0;
	a->sent = a->enough = a->handed = false;
	a->fault = SBX_ERROR_INIT;
	a->got_ns = a->begun_ns = sbx_now_ns();
}

static int set_up(struct sbx_http_attempt *a, struct sbx_error *err)
{
	int r = set_secret(a);

	set_connection(a);
	set_functions(a);
	curl_easy_setopt(a->easy, CURLOPT_USERAGENT, "sandboxfs/" SBX_VERSION);
	if (!r && curl_easy_setopt(a->easy, CURLOPT_URL, a->req->url) != CURLE_OK)
		r = -ENOMEM;
	if (!r)
		r = set_headers(a);
	if (!r)
		r = sbx_http_body_set(&a->body, a->req, a->easy);
	if (r)
		return sbx_no_memory(err);
	if (a->req->answer_fd > 0 && ftruncate(a->req->answer_fd, 0) < 0)
		return sbx_fail(err, errno, "what %s sends cannot be kept: %s", a->server->peer,
		                strerror(errno));
	return 0;
}

/* ---- its life ---- */

int sbx_http_attempt_begin(struct sbx_http_attempt *a, CURLM *multi, void *data,
                           struct sbx_error *err)
{
	int r;

	reset(a);
	a->easy = curl_easy_init();
	if (!a->easy)
		return sbx_no_memory(err);
	curl_easy_setopt(a->easy, CURLOPT_PRIVATE, data);
	r = set_up(a, err);
	if (!r && curl_multi_add_handle(multi, a->easy) != CURLM_OK)
		r = sbx_no_memory(err);
	if (r)
		sbx_http_attempt_end(a, multi);
	return r;
}

void sbx_http_attempt_end(struct sbx_http_attempt *a, CURLM *multi)
{
	if (!a->easy)
		return;
	curl_multi_remove_handle(multi, a->easy);
	curl_easy_cleanup(a->easy);
	a->easy = NULL;
	curl_slist_free_all(a->headers);
	a->headers = NULL;
	sbx_http_body_release(&a->body);
}

uint64_t sbx_http_attempt_last_ns(const struct sbx_http_attempt *a)
{
	const uint64_t last = a->got_ns > a->body.read_ns ? a->got_ns : a->body.read_ns;

	return a->sent ? last : sbx_now_ns();
}

static bool is_json(const struct sbx_http_answer *answer)
{
	size_t len;
	const char *type = sbx_http_header(answer, "Content-Type", &len);
	char word[128];

	snprintf(word, sizeof(word), "%.*s", type ? (int)len : 0, type ? type : "");
	word[strcspn(word, ";")] = '\0';
	return strcasestr(word, "json");
}

static int judge_file(struct sbx_http_attempt *a, struct sbx_error *err)
{
	return sbx_fail(err, EIO, "a file cannot be sent to %s: %s", a->server->peer,
	                a->body.fault == -ESTALE ? "it has become shorter"
	                                         : strerror(-a->body.fault));
}

int sbx_http_attempt_judge(struct sbx_http_attempt *a, CURLcode code, struct sbx_error *err)
{
	const char *peer = a->server->peer;
	long os_errno = 0;

	if (a->body.fault)
		return judge_file(a, err);
	if (a->fault.code) {
		*err = a->fault;
		return -err->code;
	}
	if (code != CURLE_OK && !a->enough) {
		curl_easy_getinfo(a->easy, CURLINFO_OS_ERRNO, &os_errno);
		return sbx_http_no_answer(code, os_errno, peer, err);
	}
	curl_easy_getinfo(a->easy, CURLINFO_RESPONSE_CODE, &a->answer.status);
	if (a->req->json && !sbx_http_errno(a->answer.status) && a->answer.len &&
	    !is_json(&a->answer))
		return sbx_fail(err, EPROTO, "%s did not answer in JSON; is its URL right?", peer);
	return sbx_http_refusal(a->answer.status, peer, err);
}
