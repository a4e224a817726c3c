/* Strings one after the other: nothing to escape, nothing to parse but NULs. */
#include "backends/local/spawn_proto.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sandboxfs/cleanup.h"

struct writer {
	char *at; /* NULL: only count */
	size_t len;
};

static void put(struct writer *w, const char *s)
{
	size_t n = strlen(s) + 1;

	if (w->at) {
		memcpy(w->at, s, n);
		w->at += n;
	}
	w->len += n;
}

static uint32_t put_list(struct writer *w, const char *const *list)
{
	uint32_t n = 0;

	for (; list && list[n]; n++)
		put(w, list[n]);
	return n;
}

static void put_all(struct writer *w, const struct sbx_place *place, const struct sbx_exec *spec,
                    struct spawn_command *cmd)
{
	put(w, place->id);
	put(w, place->workdir);
	put(w, place->view ? place->view : place->workdir);
	cmd->n_ro = put_list(w, place->ro);
	cmd->n_rw = put_list(w, place->rw);
	put(w, spec->cwd ? spec->cwd : "");
	put(w, spec->program ? spec->program : "");
	cmd->n_argv = put_list(w, (const char *const *)spec->argv);
	cmd->n_env = put_list(w, (const char *const *)spec->env);
}

int spawn_encode(const struct sbx_place *place, const struct sbx_exec *spec,
                 struct spawn_command *cmd, char **ret)
{
	struct writer w = {0};
	char *buf;

	put_all(&w, place, spec, cmd);
	if (w.len > SPAWN_MAX)
		return -E2BIG;
	buf = malloc(w.len);
	if (!buf)
		return -ENOMEM;
	cmd->payload = w.len;
	w = (struct writer){.at = buf};
	put_all(&w, place, spec, cmd);
	*ret = buf;
	return 0;
}

struct reader {
	char *at, *end;
	char **words;
	bool bad;
};

static char *take(struct reader *r)
{
	char *s = r->at;
	char *nul = r->at < r->end ? memchr(r->at, 0, (size_t)(r->end - r->at)) : NULL;

	if (!nul) {
		r->bad = true;
		return (char *)"";
	}
	r->at = nul + 1;
	return s;
}

static char **take_list(struct reader *r, uint32_t n)
{
	char **list = r->words;

	for (uint32_t i = 0; i < n && !r->bad; i++)
		*r->words++ = take(r);
	*r->words++ = NULL;
	return list;
}

int spawn_decode(struct spawn_request *req)
{
	const struct spawn_command *c = &req->cmd;
	size_t n = (size_t)c->n_ro + c->n_rw + c->n_argv + c->n_env;
	struct reader r = {.at = req->buf, .end = req->buf + c->payload};

	/* Each word has at least its NUL. */
	if (n > c->payload || c->n_argv == 0)
		return -EPROTO;
	req->words = calloc(n + 4, sizeof(*req->words));
	if (!req->words)
		return -ENOMEM;
	r.words = req->words;
	req->id = take(&r);
	req->workdir = take(&r);
	req->view = take(&r);
	req->ro = take_list(&r, c->n_ro);
	req->rw = take_list(&r, c->n_rw);
	req->place_len = (size_t)(r.at - req->buf);
	req->cwd = take(&r);
	req->program = take(&r);
	req->argv = take_list(&r, c->n_argv);
	req->env = take_list(&r, c->n_env);
	return r.bad || r.at != r.end ? -EPROTO : 0;
}

void spawn_request_finish(struct spawn_request *req)
{
	for (int i = 0; i < 3; i++)
		sbx_cleanup_fd(&req->fds[i]);
	free(req->words);
	free(req->buf);
	req->words = NULL;
	req->buf = NULL;
}
