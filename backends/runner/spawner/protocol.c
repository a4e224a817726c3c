/* Strings one after the other: nothing to escape, nothing to parse but NULs. */
#include "backends/runner/spawner/protocol.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "sandboxfs/cleanup.h"
#include "sandboxfs/descriptors.h"

const struct spawn_build spawn_build = {
        .version = SBX_VERSION ", protocol 1",
        .sizes = {sizeof(struct spawn_start), sizeof(struct spawn_hello),
                  sizeof(struct spawn_command), sizeof(struct spawn_report)},
};

static_assert(sizeof(SBX_VERSION ", protocol 1") <= sizeof(spawn_build.version), "with its NUL");
static_assert(sizeof(struct spawn_start) <= SPAWN_MESSAGE, "it is received as a message");
static_assert(SPAWN_FDS <= SBX_FDS_MAX, "they travel together");

bool spawn_is_our_build(const void *message, size_t len)
{
	return len >= sizeof(spawn_build) &&
	       memcmp(message, &spawn_build, sizeof(spawn_build)) == 0;
}

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
	cmd->n_over = put_list(w, place->over);
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
	assert(w.at == buf + cmd->payload);
	*ret = buf;
	return 0;
}

static uint32_t put_strings(struct writer *w, const struct sbx_strings *list)
{
	for (size_t i = 0; i < list->n; i++)
		put(w, list->items[i]);
	return (uint32_t)list->n;
}

static void put_settings(struct writer *w, const struct sbx_settings *s, struct spawn_start *start)
{
	const char *const words[] = {s->isolation, s->net,        s->mountpoint,
	                             s->state_dir, s->source_abs, s->cache_dir};

	for (size_t i = 0; i < SBX_ARRAY_SIZE(words); i++)
		put(w, words[i] ? words[i] : "");
	start->n_shown = put_strings(w, &s->shown);
	start->n_covered = put_strings(w, &s->covered);
	start->n_ro = put_strings(w, &s->ro_paths);
	start->n_rw = put_strings(w, &s->rw_paths);
	start->n_hide = put_strings(w, &s->hide_paths);
}

int spawn_memfd(const char *payload, size_t len, int *ret)
{
	_cleanup_fd_ int fd = memfd_create("payload", MFD_CLOEXEC);

	if (fd < 0)
		return -errno;
	for (size_t at = 0; at < len;) {
		ssize_t n = write(fd, payload + at, len - at);

		if (n < 0)
			return -errno;
		at += (size_t)n;
	}
	*ret = sbx_steal_fd(&fd);
	return 0;
}

int spawn_encode_settings(const struct sbx_settings *settings, struct spawn_start *start, int *ret)
{
	_cleanup_free_ char *buf = NULL;
	struct writer w = {0};

	put_settings(&w, settings, start);
	if (w.len > SPAWN_MAX)
		return -E2BIG;
	buf = malloc(w.len);
	if (!buf)
		return -ENOMEM;
	start->memory_mb = settings->limits.memory_mb;
	start->cpu_percent = settings->cpu_percent;
	start->payload = w.len;
	w = (struct writer){.at = buf};
	put_settings(&w, settings, start);
	assert(w.at == buf + start->payload);
	return spawn_memfd(buf, start->payload, ret);
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

static const char *take_word(struct reader *r)
{
	const char *s = take(r);

	return *s ? s : NULL;
}

static struct sbx_strings take_strings(struct reader *r, uint32_t n)
{
	return (struct sbx_strings){.items = take_list(r, n), .n = n};
}

static int read_memfd(int fd, char *buf, size_t len)
{
	for (size_t at = 0; at < len;) {
		ssize_t n = pread(fd, buf + at, len - at, (off_t)at);

		if (n <= 0)
			return n < 0 ? -errno : -EPROTO;
		at += (size_t)n;
	}
	return 0;
}

/* The reader's words are room for N words and the ends of LISTS lists. */
static int make_reader(char *buf, size_t len, size_t n, size_t lists, struct reader *ret)
{
	/* Each word has at least its NUL. */
	if (n > len)
		return -EPROTO;
	*ret = (struct reader){.at = buf, .end = buf + len};
	ret->words = calloc(n + lists, sizeof(*ret->words));
	return ret->words ? 0 : -ENOMEM;
}

static void take_settings(struct reader *r, const struct spawn_start *s,
                          struct isolation_settings *ret)
{
	ret->isolation = take_word(r);
	ret->net = take_word(r);
	ret->mountpoint = take_word(r);
	ret->state_dir = take_word(r);
	ret->source_abs = take_word(r);
	ret->cache_dir = take_word(r);
	ret->shown = take_strings(r, s->n_shown);
	ret->covered = take_strings(r, s->n_covered);
	ret->ro_paths = take_strings(r, s->n_ro);
	ret->rw_paths = take_strings(r, s->n_rw);
	ret->hide_paths = take_strings(r, s->n_hide);
	ret->memory_mb = s->memory_mb;
	ret->cpu_percent = s->cpu_percent;
}

int spawn_decode_settings(const struct spawn_start *s, int fd, struct isolation_settings *ret)
{
	const size_t n = (size_t)s->n_shown + s->n_covered + s->n_ro + s->n_rw + s->n_hide;
	_cleanup_free_ char *buf = s->payload > SPAWN_MAX ? NULL : malloc(s->payload + 1);
	struct reader r = {0};
	int err;

	if (!buf)
		return s->payload > SPAWN_MAX ? -EPROTO : -ENOMEM;
	err = read_memfd(fd, buf, s->payload);
	if (!err)
		err = make_reader(buf, s->payload, n, 5, &r);
	if (err < 0)
		return err;
	*ret = (struct isolation_settings){.words = r.words};
	take_settings(&r, s, ret);
	if (r.bad || r.at != r.end) {
		free(ret->words);
		return -EPROTO;
	}
	ret->buf = sbx_steal_ptr(&buf);
	return 0;
}

void spawn_settings_release(struct isolation_settings *settings)
{
	free(settings->words);
	free(settings->buf);
}

int spawn_stream(const struct spawn_message *msg, int stream)
{
	const struct spawn_command *c = (const struct spawn_command *)msg->bytes;

	assert(stream >= 0 && stream <= 2);
	return c->flags & SPAWN_HAS_STDIN ? stream : stream - 1;
}

static int load_payload(const struct spawn_message *msg, struct spawn_request *req)
{
	const size_t need = req->cmd.payload, inlined = msg->len - sizeof(req->cmd);
	const bool in_memfd = req->cmd.flags & SPAWN_IN_MEMFD;
	const int last = spawn_stream(msg, 2) + in_memfd;

	if (msg->fds[last] < 0)
		return -EMFILE;
	if (need > SPAWN_MAX || (!in_memfd && need != inlined))
		return -EPROTO;
	req->buf = malloc(need + 1);
	if (!req->buf)
		return -ENOMEM;
	if (in_memfd)
		return read_memfd(msg->fds[last], req->buf, need);
	memcpy(req->buf, msg->bytes + sizeof(req->cmd), need);
	return 0;
}

static int take_apart(struct spawn_request *req)
{
	const struct spawn_command *c = &req->cmd;
	size_t n = (size_t)c->n_ro + c->n_rw + c->n_over + c->n_argv + c->n_env;
	struct reader r = {0};
	int err;

	if (c->n_argv == 0 || c->n_over % 2)
		return -EPROTO;
	err = make_reader(req->buf, c->payload, n, 5, &r);
	if (err < 0)
		return err;
	req->words = r.words;
	req->id = take(&r);
	req->workdir = take(&r);
	req->view = take(&r);
	req->ro = take_list(&r, c->n_ro);
	req->rw = take_list(&r, c->n_rw);
	req->over = take_list(&r, c->n_over);
	req->place_len = (size_t)(r.at - req->buf);
	req->cwd = take(&r);
	req->program = take(&r);
	req->argv = take_list(&r, c->n_argv);
	req->env = take_list(&r, c->n_env);
	return r.bad || r.at != r.end ? -EPROTO : 0;
}

int spawn_decode(const struct spawn_message *msg, struct spawn_request *ret)
{
	int r;

	memcpy(&ret->cmd, msg->bytes, sizeof(ret->cmd));
	r = load_payload(msg, ret);
	return r < 0 ? r : take_apart(ret);
}

void spawn_request_finish(struct spawn_request *req)
{
	free(req->words);
	free(req->buf);
	req->words = NULL;
	req->buf = NULL;
}

/* --- the sockets -------------------------------------------------------------------------------
 */

int spawn_receive(int sock, int flags, struct spawn_message *ret)
{
	const ssize_t n =
	        sbx_receive_fds(sock, ret->bytes, SPAWN_MESSAGE, ret->fds, SPAWN_FDS, flags);

	if (n <= 0)
		return n < 0 ? (int)n : -EPIPE;
	ret->len = (size_t)n;
	return ret->len < sizeof(struct spawn_command) ? -EPROTO : 0;
}
