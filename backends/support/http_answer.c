#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "backends/support/http_impl.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/scrub.h"
#include "sandboxfs/secret.h"

/* ---- statuses ---- */

static const struct {
	long least, most;
	int code;
	const char *what; /* behind the name of the server */
} statuses[] = {
        {200, 299, 0, NULL},
        {300, 399, EPROTO, "leads elsewhere"},
        {400, 400, EINVAL, "does not understand the request"},
        {401, 401, EKEYREJECTED, "does not accept the token"},
        {402, 402, EDQUOT, "says that a quota is used up"},
        {403, 403, EKEYREJECTED, "does not allow it to this token"},
        {404, 404, ENOENT, "has no such thing"},
        {408, 408, ETIMEDOUT, "says that it took too long"},
        {409, 409, EBUSY, "is busy with it"},
        {410, 410, ESTALE, "says that it is gone"},
        {413, 413, EFBIG, "does not take as much at once"},
        {422, 422, ESTALE, "cannot do that in the present state"},
        {429, 429, EAGAIN, "is asked too often"},
        {400, 499, EINVAL, "refused the request"},
        {500, 599, EREMOTEIO, "failed"},
};

static size_t row_of(long status)
{
	size_t i = 0;

	while (i < SBX_ARRAY_SIZE(statuses) &&
	       (status < statuses[i].least || status > statuses[i].most))
		i++;
	return i;
}

int sbx_http_errno(long status)
{
	const size_t i = row_of(status);

	return i < SBX_ARRAY_SIZE(statuses) ? statuses[i].code : EPROTO;
}

int sbx_http_refusal(long status, const char *peer, struct sbx_error *err)
{
	const size_t i = row_of(status);

	if (i == SBX_ARRAY_SIZE(statuses))
		return sbx_fail(err, EPROTO, "%s answered by HTTP %ld", peer, status);
	if (!statuses[i].code)
		return 0;
	return sbx_fail(err, statuses[i].code, "%s %s (HTTP %ld)", peer, statuses[i].what, status);
}

/* ---- no answer ---- */

static int no_connection(long os_errno, const char *peer, struct sbx_error *err)
{
	const int code =
	        os_errno == ECONNREFUSED || os_errno == ETIMEDOUT ? (int)os_errno : ENETUNREACH;

	return sbx_fail(err, code, "%s cannot be reached: %s", peer,
	                os_errno ? strerror((int)os_errno) : "no connection");
}

int sbx_http_no_answer(CURLcode code, long os_errno, const char *peer, struct sbx_error *err)
{
	switch (code) {
	case CURLE_COULDNT_RESOLVE_HOST:
	case CURLE_COULDNT_RESOLVE_PROXY:
		return sbx_fail(err, ENETUNREACH, "%s cannot be reached: no such host is known",
		                peer);
	case CURLE_COULDNT_CONNECT:
		return no_connection(os_errno, peer, err);
	case CURLE_OPERATION_TIMEDOUT:
		return sbx_fail(err, ETIMEDOUT, "%s does not answer", peer);
	case CURLE_PEER_FAILED_VERIFICATION:
	case CURLE_SSL_CONNECT_ERROR:
	case CURLE_SSL_CERTPROBLEM:
	case CURLE_SSL_CIPHER:
	case CURLE_SSL_CACERT_BADFILE:
	case CURLE_SSL_ISSUER_ERROR:
	case CURLE_SSL_INVALIDCERTSTATUS:
	case CURLE_SSL_SHUTDOWN_FAILED:
	case CURLE_SSL_ENGINE_INITFAILED:
		return sbx_fail(err, EKEYREJECTED, "%s cannot prove who it is: %s", peer,
		                curl_easy_strerror(code));
	case CURLE_UNSUPPORTED_PROTOCOL:
	case CURLE_WEIRD_SERVER_REPLY:
	case CURLE_BAD_CONTENT_ENCODING:
		return sbx_fail(err, EPROTO, "%s does not speak HTTP: %s", peer,
		                curl_easy_strerror(code));
	case CURLE_OUT_OF_MEMORY:
		return sbx_no_memory(err);
	default:
		return sbx_fail(err, EREMOTEIO, "the answer of %s was cut: %s", peer,
		                curl_easy_strerror(code));
	}
}

/* ---- headers ---- */

void sbx_http_each_header(const struct sbx_http_answer *answer,
                          void (*fn)(const char *name, size_t name_len, const char *value,
                                     size_t len, void *data),
                          void *data)
{
	const char *line = answer->headers;

	while (line && *line) {
		const size_t len = strcspn(line, "\n"), name = strcspn(line, ":\n");
		const char *value = line + name + 1;

		if (name < len) {
			value += strspn(value, " \t");
			fn(line, name, value, (size_t)(line + len - value), data);
		}
		line += len + (line[len] != '\0');
	}
}

struct wanted {
	const char *name, *value;
	size_t len;
};

static void compare(const char *name, size_t name_len, const char *value, size_t len, void *data)
{
	struct wanted *w = data;

	if (!w->value && strlen(w->name) == name_len && strncasecmp(w->name, name, name_len) == 0) {
		w->value = value;
		w->len = len;
	}
}

const char *sbx_http_header(const struct sbx_http_answer *answer, const char *name, size_t *len)
{
	struct wanted w = {.name = name};

	sbx_http_each_header(answer, compare, &w);
	*len = w.len;
	return w.value;
}

/* ---- secrets ---- */

/* As HTTP has it: the secret with a colon behind it, in base64. NULL: no memory. */
static char *basic_text(const char *secret)
{
	_cleanup_free_ char *user = NULL;
	char *text = malloc((strlen(secret) + 3) / 3 * 4 + 1);

	if (!text || asprintf(&user, "%s:", secret) < 0) {
		user = NULL;
		free(text);
		return NULL;
	}
	EVP_EncodeBlock((unsigned char *)text, (unsigned char *)user, (int)strlen(user));
	explicit_bzero(user, strlen(user));
	return text;
}

static void hide(const char *secret, struct sbx_http_answer *answer, struct sbx_error *err)
{
	sbx_scrub(err->text, secret);
	if (answer->headers)
		sbx_scrub(answer->headers, secret);
	if (!answer->body || !err->code)
		return;
	answer->len = sbx_scrub_bytes(answer->body, answer->len, secret);
	answer->body[answer->len] = '\0';
}

void sbx_http_hide(const struct sbx_http_request *req, struct sbx_http_answer *answer,
                   struct sbx_error *err)
{
	const char *secret = sbx_secret_text(req->secret);
	char *basic = secret && req->auth == SBX_HTTP_BASIC ? basic_text(secret) : NULL;

	hide(secret, answer, err);
	hide(basic, answer, err);
	hide(sbx_secret_text(req->hidden), answer, err);
	if (basic)
		explicit_bzero(basic, strlen(basic));
	free(basic);
}

bool sbx_http_not_done(int code, const struct sbx_http_answer *answer)
{
	const long status = answer->status;

	if (answer->unsure)
		return false;
	if (status)
		return status >= 400 && status < 500 && status != 408;
	return code == -ECONNREFUSED || code == -ENETUNREACH || code == -EKEYREJECTED ||
	       code == -EINVAL || code == -ENOMEM;
}

void sbx_http_answer_release(struct sbx_http_answer *answer)
{
	free(answer->headers);
	free(answer->body);
	*answer = (struct sbx_http_answer){0};
}
