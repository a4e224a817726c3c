/*
 * Bodies are read piece by piece as the socket takes them, also those in memory: so nothing is
 * copied whole, and it is seen when bytes last went.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/support/http_impl.h"
#include "sandboxfs/clock.h"

struct sbx_http_source {
	const struct sbx_http_bytes *bytes;
	struct sbx_http_body *body;
	uint64_t at;
};

/* A file that has become shorter has not the bytes that were announced. */
static size_t read_source(char *buf, size_t size, size_t n, void *arg)
{
	struct sbx_http_source *s = arg;
	const struct sbx_http_bytes *b = s->bytes;
	ssize_t got;

	n *= size;
	if (n > b->size - s->at)
		n = (size_t)(b->size - s->at);
	if (b->data) {
		memcpy(buf, (const char *)b->data + s->at, n);
	} else if (n) {
		got = pread(b->fd, buf, n, (off_t)(b->offset + s->at));
		if (got <= 0) {
			s->body->fault = got < 0 ? -errno : -ESTALE;
			return CURL_READFUNC_ABORT;
		}
		n = (size_t)got;
	}
	s->at += n;
	s->body->read_ns = sbx_now_ns();
	return n;
}

static int seek_source(void *arg, curl_off_t offset, int origin)
{
	struct sbx_http_source *s = arg;

	if (origin != SEEK_SET || offset < 0 || (uint64_t)offset > s->bytes->size)
		return CURL_SEEKFUNC_FAIL;
	s->at = (uint64_t)offset;
	return CURL_SEEKFUNC_OK;
}

/* NULL: no memory. */
static struct sbx_http_source *sources_new(struct sbx_http_body *body, size_t n)
{
	struct sbx_http_source *sources = calloc(n, sizeof(*sources));

	for (size_t i = 0; sources && i < n; i++)
		sources[i].body = body;
	body->sources = sources;
	return sources;
}

static bool add_part(curl_mime *mime, const struct sbx_http_part *part, struct sbx_http_source *s)
{
	curl_mimepart *p = curl_mime_addpart(mime);

	s->bytes = &part->bytes;
	return p && curl_mime_name(p, part->name) == CURLE_OK &&
	       (!part->filename || curl_mime_filename(p, part->filename) == CURLE_OK) &&
	       (!part->type || curl_mime_type(p, part->type) == CURLE_OK) &&
	       curl_mime_data_cb(p, (curl_off_t)part->bytes.size, read_source, seek_source, NULL,
	                         s) == CURLE_OK;
}

static int set_parts(struct sbx_http_body *body, const struct sbx_http_request *req, CURL *easy)
{
	body->mime = curl_mime_init(easy);
	if (!body->mime || !sources_new(body, req->parts_n))
		return -ENOMEM;
	for (size_t i = 0; i < req->parts_n; i++)
		if (!add_part(body->mime, &req->parts[i], &body->sources[i]))
			return -ENOMEM;
	curl_easy_setopt(easy, CURLOPT_MIMEPOST, body->mime);
	return 0;
}

static int set_bytes(struct sbx_http_body *body, const struct sbx_http_request *req, CURL *easy)
{
	if (!sources_new(body, 1))
		return -ENOMEM;
	body->sources->bytes = &req->body;
	curl_easy_setopt(easy, CURLOPT_POST, 1L);
	curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)req->body.size);
	curl_easy_setopt(easy, CURLOPT_READFUNCTION, read_source);
	curl_easy_setopt(easy, CURLOPT_READDATA, body->sources);
	curl_easy_setopt(easy, CURLOPT_SEEKFUNCTION, seek_source);
	curl_easy_setopt(easy, CURLOPT_SEEKDATA, body->sources);
	return 0;
}

static bool announces_length(const char *method)
{
	return strcmp(method, "POST") == 0 || strcmp(method, "PUT") == 0 ||
	       strcmp(method, "PATCH") == 0;
}

int sbx_http_body_set(struct sbx_http_body *body, const struct sbx_http_request *req, CURL *easy)
{
	int r = 0;

	if (req->parts_n)
		r = set_parts(body, req, easy);
	else if (req->body.size)
		r = set_bytes(body, req, easy);
	else if (announces_length(req->method))
		curl_easy_setopt(easy, CURLOPT_COPYPOSTFIELDS, "");
	else if (strcmp(req->method, "HEAD") == 0)
		curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
	curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, req->method);
	return r;
}

void sbx_http_body_release(struct sbx_http_body *body)
{
	curl_mime_free(body->mime);
	free(body->sources);
	*body = (struct sbx_http_body){0};
}
