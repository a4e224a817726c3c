#include "tests/lib/remote_stub.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

#include "sandboxfs/cleanup.h"

/* ---- texts ---- */

void remote_text_add_n(struct remote_text *t, const char *s, size_t n)
{
	char *at = realloc(t->at, t->n + n + 1);

	if (!at)
		abort();
	t->at = at;
	memcpy(at + t->n, s, n);
	t->n += n;
	at[t->n] = '\0';
}

void remote_text_add(struct remote_text *t, const char *s)
{
	remote_text_add_n(t, s, strlen(s));
}

void remote_text_printf(struct remote_text *t, const char *fmt, ...)
{
	char *text;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vasprintf(&text, fmt, ap);
	va_end(ap);
	if (n < 0)
		abort();
	remote_text_add_n(t, text, (size_t)n);
	free(text);
}

void remote_text_word(struct remote_text *t, const char *word)
{
	remote_text_add(t, " '");
	for (; *word; word++)
		if (*word == '\'')
			remote_text_add(t, "'\\''");
		else
			remote_text_add_n(t, word, 1);
	remote_text_add(t, "'");
}

void remote_text_release(struct remote_text *t)
{
	free(t->at);
	*t = (struct remote_text){0};
}

/* ---- answers ---- */

void remote_reply_release(struct remote_reply *reply)
{
	for (size_t i = 0; i < reply->n; i++)
		free((char *)reply->frames[i].bytes);
	free(reply->frames);
	*reply = (struct remote_reply){0};
}

const struct remote_frame *remote_reply_next(const struct remote_reply *reply, size_t *at,
                                             enum remote_frame_kind kind, const char *word)
{
	while (*at < reply->n) {
		const struct remote_frame *f = &reply->frames[(*at)++];

		if (f->kind == kind && (!word || strcmp(word, f->word) == 0))
			return f;
	}
	return NULL;
}

static size_t from_base64(const char *s, size_t n, char *out)
{
	static const char digits[] =
	        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	unsigned bits = 0, have = 0;
	char *const begin = out;

	for (size_t i = 0; i < n && s[i] != '='; i++) {
		bits = bits << 6 | (unsigned)(strchr(digits, s[i]) - digits);
		have += 6;
		if (have >= 8) {
			have -= 8;
			*out++ = (char)(bits >> have);
		}
	}
	return (size_t)(out - begin);
}

static char *unzip(char *bytes, size_t *len)
{
	const size_t cap = (size_t)96 << 20;
	z_stream z = {.next_in = (Bytef *)bytes, .avail_in = (uInt)*len};
	char *out = malloc(cap);

	if (!out || inflateInit2(&z, 31) != Z_OK)
		abort();
	z.next_out = (Bytef *)out;
	z.avail_out = (uInt)cap - 1;
	if (inflate(&z, Z_FINISH) != Z_STREAM_END)
		abort();
	*len = z.total_out;
	inflateEnd(&z);
	free(bytes);
	return realloc(out, *len + 1);
}

static void read_frame(struct remote_reply *reply, char *line)
{
	struct remote_frame *f;
	char *word, *bytes, *out;

	reply->frames = realloc(reply->frames, (reply->n + 1) * sizeof(*reply->frames));
	f = &reply->frames[reply->n++];
	*f = (struct remote_frame){.kind = (enum remote_frame_kind)line[0]};
	word = strchr(line, ' ') + 1;
	f->a = strtoull(strchr(word, ' '), &bytes, 10);
	f->b = strtoull(bytes, &bytes, 10);
	f->c = strtoull(bytes, &bytes, 10);
	bytes++;
	out = malloc(strlen(bytes) + 1);
	f->len = from_base64(bytes, strlen(bytes), out);
	if (line[1] == 'z')
		out = unzip(out, &f->len);
	out[f->len] = '\0';
	f->bytes = out;
	*strchr(word, ' ') = '\0';
	if (strcmp(word, "-") != 0 &&
	    snprintf(f->word, sizeof(f->word), "%s", word) >= (int)sizeof(f->word))
		abort();
}

int remote_reply_read(const char *text, size_t len, struct remote_reply *ret, struct sbx_error *err)
{
	char *copy = strndup(text, len), *line, *save = NULL;
	bool whole = false;

	*ret = (struct remote_reply){0};
	for (line = strtok_r(copy, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		whole = strcmp(line, ".") == 0;
		if (!whole)
			read_frame(ret, line);
	}
	free(copy);
	if (whole)
		return 0;
	remote_reply_release(ret);
	return sbx_fail(err, EPROTO, "the answer was cut off");
}

/* ---- calls ---- */

void remote_stub_init(struct remote_link *link, struct sbx_loop *loop, struct sbx_pool *pool,
                      const char *tree, const char *room)
{
	memset(link, 0, sizeof(*link));
	link->loop = loop;
	link->pool = pool;
	snprintf(link->tree, sizeof(link->tree), "%s", tree);
	snprintf(link->room, sizeof(link->room), "%s", room);
	mkdir(tree, 0755);
	mkdir(room, 0755);
}

static char *read_to_end(int fd)
{
	size_t n = 0, cap = 65536;
	char *text = malloc(cap);
	ssize_t got;

	while ((got = read(fd, text + n, cap - n - 1)) > 0) {
		n += (size_t)got;
		if (cap - n < 2)
			text = realloc(text, cap *= 2);
	}
	text[n] = '\0';
	return text;
}

static void run_shell(const struct remote_link *link, const char *script, int out)
{
	const char *shell = link->shell ? link->shell : "sh";

	setenv("R_ROOM", link->room, 1);
	setenv("R_TREE", link->tree, 1);
	dup2(out, 1);
	if (chdir("/") < 0)
		_exit(126);
	if (link->option)
		execlp(shell, shell, link->option, "-c", script, NULL);
	else
		execlp(shell, shell, "-c", script, NULL);
	_exit(127);
}

char *remote_stub_run(struct remote_link *link, const char *body)
{
	char *script, *text;
	int out[2], status;
	pid_t pid;

	if (asprintf(&script, "%s%s%s%s%s\nr_end\n", link->path ? "PATH=" : "",
	             link->path ? link->path : "", link->path ? "\nexport PATH\n" : "",
	             remote_runner, body) < 0 ||
	    pipe2(out, O_CLOEXEC) < 0)
		abort();
	pid = fork();
	if (!pid)
		run_shell(link, script, out[1]);
	close(out[1]);
	text = read_to_end(out[0]);
	close(out[0]);
	waitpid(pid, &status, 0);
	free(script);
	return text;
}

struct stub_call {
	struct remote_link *link;
	struct remote_call *call;
	struct remote_reply reply;
	int code;
	struct sbx_error err;
};

static void tell(void *data)
{
	struct stub_call *s = data;

	s->call->done(s->call, -s->code, s->code ? NULL : &s->reply, &s->err);
	remote_reply_release(&s->reply);
	s->link->running--;
	free(s);
}

static void look(struct stub_call *s)
{
	size_t at = 0;
	const struct remote_frame *f = remote_reply_next(&s->reply, &at, REMOTE_FAILED, NULL);

	if (f)
		s->code = -sbx_fail(&s->err, (int)f->a, "%s", f->bytes);
}

static void work(void *data)
{
	struct stub_call *s = data;
	struct remote_link *link = s->link;
	char *text = NULL;

	usleep(link->delay_ms * 1000);
	while (link->held && !s->call->given_up)
		usleep(1000);
	s->code = s->call->given_up ? EINTR : link->fail;
	if (s->code) {
		sbx_fail(&s->err, s->code, "played: %s", strerror(s->code));
	} else {
		text = link->answer ? link->answer(link, s->call->body.at) : NULL;
		if (!text)
			text = remote_stub_run(link, s->call->body.at);
		s->code = -remote_reply_read(text, strlen(text), &s->reply, &s->err);
		if (!s->code)
			look(s);
	}
	free(text);
	remote_text_release(&s->call->body);
	sbx_loop_post(link->loop, tell, s);
}

void remote_call_begin(struct remote_link *link, struct remote_call *call)
{
	struct stub_call *s = calloc(1, sizeof(*s));

	if (!s)
		abort();
	s->link = link;
	s->call = call;
	link->calls++;
	link->deadline_ms = (unsigned)call->deadline_ms;
	link->running++;
	link->by_op[(unsigned char)call->op[0] % 128]++;
	sbx_pool_submit(link->pool, work, s);
}

void remote_call_cancel(struct remote_call *call)
{
	call->given_up = true;
}

struct waiting {
	pthread_mutex_t lock;
	pthread_cond_t over;
	bool ended;
	int code;
	struct remote_reply *reply;
	struct sbx_error *err;
};

static void wake(struct remote_call *call, int code, struct remote_reply *reply,
                 const struct sbx_error *err)
{
	struct waiting *w = call->data;

	pthread_mutex_lock(&w->lock);
	if (reply) {
		*w->reply = *reply;
		*reply = (struct remote_reply){0};
	} else if (w->err) {
		*w->err = *err;
	}
	w->code = code;
	w->ended = true;
	pthread_cond_signal(&w->over);
	pthread_mutex_unlock(&w->lock);
}

int remote_call_perform(struct remote_link *link, struct remote_call *call, atomic_bool *cancelled,
                        struct remote_reply *reply, struct sbx_error *err)
{
	struct waiting w = {.lock = PTHREAD_MUTEX_INITIALIZER,
	                    .over = PTHREAD_COND_INITIALIZER,
	                    .reply = reply,
	                    .err = err};

	(void)cancelled;
	call->done = wake;
	call->data = &w;
	remote_call_begin(link, call);
	pthread_mutex_lock(&w.lock);
	while (!w.ended)
		pthread_cond_wait(&w.over, &w.lock);
	pthread_mutex_unlock(&w.lock);
	return w.code;
}
