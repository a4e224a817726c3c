#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "backends/support/http_impl.h"
#include "sandboxfs/cleanup.h"

static bool is_this_host(const char *host)
{
	struct in_addr a;

	return strcasecmp(host, "localhost") == 0 || strcmp(host, "[::1]") == 0 ||
	       (inet_pton(AF_INET, host, &a) == 1 && ntohl(a.s_addr) >> 24 == 127);
}

static void cleanup_url(CURLU **url)
{
	curl_url_cleanup(*url);
}

static void cleanup_text(char **text)
{
	curl_free(*text);
}

static int check_headers(const struct sbx_http_request *req, struct sbx_error *err)
{
	for (size_t i = 0; req->headers && req->headers[i]; i++)
		if (strpbrk(req->headers[i], "\r\n") || !strchr(req->headers[i], ':'))
			return sbx_fail(err, EINVAL, "a header of the request is none");
	return 0;
}

/* A name and password in it would be sent. */
int sbx_http_look_at(const struct sbx_http_request *req, struct sbx_http_server *ret,
                     struct sbx_error *err)
{
	_cleanup_(cleanup_url) CURLU *url = curl_url();
	_cleanup_(cleanup_text) char *scheme = NULL, *host = NULL, *port = NULL, *user = NULL;
	bool plain;

	if (!url)
		return sbx_no_memory(err);
	if (curl_url_set(url, CURLUPART_URL, req->url, 0) != CURLUE_OK ||
	    curl_url_get(url, CURLUPART_SCHEME, &scheme, 0) != CURLUE_OK ||
	    curl_url_get(url, CURLUPART_HOST, &host, 0) != CURLUE_OK ||
	    curl_url_get(url, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) != CURLUE_OK)
		return sbx_fail(err, EINVAL, "the URL of the request is none");
	snprintf(ret->peer, sizeof(ret->peer), "%s", req->peer ? req->peer : host);
	snprintf(ret->key, sizeof(ret->key), "%s://%s:%s", scheme, host, port);
	plain = strcasecmp(scheme, "http") == 0;
	ret->local = is_this_host(host);
	if (!plain && strcasecmp(scheme, "https") != 0)
		return sbx_fail(err, EINVAL, "%s is to be asked by neither http nor https",
		                ret->peer);
	if (plain && !ret->local && !req->plain)
		return sbx_fail(err, EINVAL, "%s is to be asked without encryption", ret->peer);
	if (curl_url_get(url, CURLUPART_USER, &user, 0) == CURLUE_OK)
		return sbx_fail(err, EINVAL, "the URL of %s has a user", ret->peer);
	return check_headers(req, err);
}
