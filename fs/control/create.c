/*
 * create and teardown of the mount, kill of a sandbox and of a job, and the files of features that
 * the backend does not have.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/control/control_impl.h"
#include "fs/control/creation.h"
#include "fs/control/request_file.h"
#include "fs/sandbox/report.h"
#include "fs/util/utf8.h"
#include "sandboxfs/cleanup.h"

#define LINE_MAX_BYTES 4096

/* create: a write is answered when the sandbox works, a read tells of it */

struct creating {
	struct sbx_request_parser parser; /* under the file's lock */
	struct control_creation creation;
};

/* [loop] */
static void works(struct sbx_control_handle *h, struct sbx_box *box)
{
	char *info = sbx_box_info_json(box);

	pthread_mutex_lock(&h->lock);
	sbx_control_set_text(h, info);
	pthread_mutex_unlock(&h->lock);
}

static int create_open(struct sbx_control_handle *h, struct sbx_error *err)
{
	struct creating *s = calloc(1, sizeof(*s));

	if (!s)
		return sbx_no_memory(err);
	sbx_request_parser_init(&s->parser);
	s->creation.h = h;
	s->creation.works = works;
	h->state = s;
	return 0;
}

static void create_release(struct sbx_control_handle *h)
{
	struct creating *s = h->state;

	sbx_request_parser_finish(&s->parser);
	free(s);
}

static int create_feed(struct sbx_control_handle *h, const void *buf, size_t len,
                       struct sbx_error *err)
{
	struct creating *s = h->state;

	return sbx_request_parser_feed(&s->parser, buf, len, err);
}

static bool create_unfinished(struct sbx_control_handle *h)
{
	struct creating *s = h->state;

	return sbx_request_parser_pending(&s->parser);
}

static void create_drop(struct sbx_control_handle *h)
{
	struct creating *s = h->state;

	sbx_request_parser_reset(&s->parser);
}

static int create_start(struct sbx_control_handle *h, bool final, struct sbx_error *err)
{
	struct creating *s = h->state;
	struct sbx_create_request req = {0};
	int r = sbx_create_parser_next(&s->parser, final, &req, err);

	if (r <= 0)
		return r;
	sbx_control_make(&s->creation, &req);
	sbx_create_request_release(&req);
	return 1;
}

static void create_cancel(struct sbx_control_handle *h)
{
	struct creating *s = h->state;

	sbx_control_creation_cancel(&s->creation);
}

/* Drops the last answer, because it is not of the request that has failed. */
static void create_failed(struct sbx_control_handle *h, const struct sbx_error *err)
{
	(void)err;
	pthread_mutex_lock(&h->lock);
	sbx_control_set_text(h, strdup(""));
	pthread_mutex_unlock(&h->lock);
}

static const struct request_file_impl create_requests = {
        .feed = create_feed,
        .start = create_start,
        .unfinished = create_unfinished,
        .drop = create_drop,
        .cancel = create_cancel,
        .failed = create_failed,
        .serve = sbx_control_serve_cursor,
};

const struct control_ops sbx_control_create_ops = {
        .open = create_open,
        .release = create_release,
        .requests = &create_requests,
};

/* teardown: a name on a line; the write is answered when everything is gone */

struct lines {
	char *buf;
	size_t len;
	struct tearing *tearing; /* what the present write waits for; under the file's lock */
};

/* A teardown goes on when the client who wanted it has died. Loop thread. */
struct tearing {
	struct sbx_control_handle *h; /* NULL: nobody waits any more */
};

static int teardown_open(struct sbx_control_handle *h, struct sbx_error *err)
{
	h->state = calloc(1, sizeof(struct lines));
	return h->state ? 0 : sbx_no_memory(err);
}

static void teardown_release(struct sbx_control_handle *h)
{
	struct lines *s = h->state;

	free(s->buf);
	free(s);
}

static int teardown_feed(struct sbx_control_handle *h, const void *buf, size_t len,
                         struct sbx_error *err)
{
	struct lines *s = h->state;
	int r = sbx_text_append(&s->buf, &s->len, buf, len, SBX_REQUEST_MAX);

	if (r == -E2BIG)
		return sbx_fail(err, E2BIG, "at most 1 MiB of names can be written");
	return r ? sbx_no_memory(err) : 0;
}

static bool teardown_unfinished(struct sbx_control_handle *h)
{
	struct lines *s = h->state;

	return s->len > 0;
}

static void teardown_drop(struct sbx_control_handle *h)
{
	struct lines *s = h->state;

	s->len = 0;
}

/* Takes the next line that is not blank, or the rest; stripped, malloc'd. 1, 0 for none, -errno. */
static int take_line(struct lines *s, bool final, char **ret, struct sbx_error *err)
{
	while (s->len) {
		const char *end = memchr(s->buf, '\n', s->len);
		size_t len = end ? (size_t)(end - s->buf) : s->len, used = len + (end ? 1 : 0);
		size_t from = 0, to = len;

		if (!end && !final)
			return len > LINE_MAX_BYTES
			               ? sbx_fail(err, EINVAL, "a sandbox has no such long name")
			               : 0;
		while (from < to && strchr(" \t\r", s->buf[from]) && s->buf[from])
			from++;
		while (to > from && strchr(" \t\r", s->buf[to - 1]) && s->buf[to - 1])
			to--;
		if (memchr(s->buf + from, '\0', to - from))
			return sbx_fail(err, EINVAL, "a sandbox's name holds no NUL byte");
		*ret = to > from ? strndup(s->buf + from, to - from) : NULL;
		memmove(s->buf, s->buf + used, s->len - used);
		s->len -= used;
		if (to > from)
			return *ret ? 1 : sbx_no_memory(err);
	}
	return 0;
}

static void torn_down(int code, struct sbx_box *box, const struct sbx_error *err, void *data)
{
	struct tearing *t = data;
	struct sbx_control_handle *h = t->h;

	(void)box;
	free(t);
	if (!h)
		return;
	pthread_mutex_lock(&h->lock);
	((struct lines *)h->state)->tearing = NULL;
	pthread_mutex_unlock(&h->lock);
	sbx_request_file_done(h, code, err);
}

static int teardown_start(struct sbx_control_handle *h, bool final, struct sbx_error *err)
{
	struct lines *s = h->state;
	_cleanup_free_ char *name = NULL;
	struct tearing *t;
	int r = take_line(s, final, &name, err);

	if (r <= 0)
		return r;
	t = malloc(sizeof(*t));
	if (!t)
		return sbx_no_memory(err);
	t->h = h;
	s->tearing = t;
	sbx_registry_teardown(h->reg, name, true, torn_down, t);
	return 1;
}

static void teardown_cancel(struct sbx_control_handle *h)
{
	struct lines *s = h->state;
	struct sbx_error err = SBX_ERROR_INIT;

	pthread_mutex_lock(&h->lock);
	if (s->tearing)
		s->tearing->h = NULL;
	s->tearing = NULL;
	pthread_mutex_unlock(&h->lock);
	sbx_fail(&err, EINTR, "nobody waits for the end of the teardown any more");
	sbx_request_file_done(h, -EINTR, &err);
}

static const struct request_file_impl teardown_requests = {
        .feed = teardown_feed,
        .start = teardown_start,
        .unfinished = teardown_unfinished,
        .drop = teardown_drop,
        .cancel = teardown_cancel,
        .serve = sbx_control_serve_cursor,
};

const struct control_ops sbx_control_teardown_ops = {
        .open = teardown_open,
        .release = teardown_release,
        .requests = &teardown_requests,
};

/* kill */

/* TERM, SIGTERM or 15. */
static int signal_of(const char *word, struct sbx_error *err)
{
	const char *name = strncmp(word, "SIG", 3) == 0 ? word + 3 : word;
	char *end;
	long number;

	for (int sig = 1; sig < NSIG; sig++) {
		const char *known = sigabbrev_np(sig);

		if (known && strcmp(known, name) == 0)
			return sig;
	}
	number = strtol(word, &end, 10);
	if (word[0] < '0' || word[0] > '9' || *end || number < 1 || number >= NSIG)
		return sbx_fail(err, EINVAL, "there is no signal %.40s", word);
	return (int)number;
}

/* Splits TEXT at blanks into at most two words; returns how many there are. */
static int split(char *text, char *words[2])
{
	char *save = NULL;
	int n = 0;

	for (char *word = strtok_r(text, " \t\r\n", &save); word;
	     word = strtok_r(NULL, " \t\r\n", &save)) {
		if (n < 2)
			words[n] = word;
		n++;
	}
	return n;
}

static int kill_words(const char *buf, size_t len, char **copy, char *words[2],
                      struct sbx_error *err)
{
	if (len > LINE_MAX_BYTES || memchr(buf, '\0', len))
		return sbx_fail(err, EINVAL, "kill takes words on one line");
	*copy = strndup(buf, len);
	return *copy ? split(*copy, words) : sbx_no_memory(err);
}

static int kill_job(struct sbx_jobrec *job, const char *word, struct sbx_error *err)
{
	int sig = word ? signal_of(word, err) : SIGKILL;

	if (sig < 0)
		return sig;
	switch (sbx_job_kill(job, sig)) {
	case 0:
		return 0;
	case -EOPNOTSUPP:
		return sbx_fail(err, EOPNOTSUPP,
		                "a command of this backend takes no signal but those that end it");
	default:
		return sbx_fail(err, ESRCH, "job %s is not running", sbx_job_name(job));
	}
}

static int kill_set(struct sbx_control_handle *h, const char *buf, size_t len,
                    struct sbx_error *err)
{
	struct sbx_jobs *jobs = h->node.box->jobs;
	_cleanup_free_ char *copy = NULL;
	char *words[2];
	struct sbx_jobrec *job;
	int n = kill_words(buf, len, &copy, words, err), r;

	if (n < 0)
		return n;
	if (n < 1 || n > 2)
		return sbx_fail(err, EINVAL, "kill takes 1 for every job, or ID [SIGNAL]");
	/* The job numbered 1 alone: `1 KILL`, or jobs/1/kill. */
	if (n == 1 && strcmp(words[0], "1") == 0) {
		sbx_jobs_kill(jobs, SIGKILL);
		return 0;
	}
	job = sbx_job_find(jobs, words[0]);
	if (!job)
		return sbx_fail(err, ENOENT, "there is no job %.70s", words[0]);
	r = kill_job(job, n == 2 ? words[1] : NULL, err);
	sbx_job_unref(job);
	return r;
}

const struct control_ops sbx_control_kill_ops = {.set = kill_set};

static int job_kill_set(struct sbx_control_handle *h, const char *buf, size_t len,
                        struct sbx_error *err)
{
	_cleanup_free_ char *copy = NULL;
	char *words[2];
	int n = kill_words(buf, len, &copy, words, err);

	if (n < 0)
		return n;
	if (n > 1)
		return sbx_fail(err, EINVAL, "kill of a job takes [SIGNAL]");
	return kill_job(h->node.job, n == 1 ? words[0] : NULL, err);
}

const struct control_ops sbx_control_job_kill_ops = {.set = job_kill_set};

/* Features of other backends */

static int absent_open(struct sbx_control_handle *h, struct sbx_error *err)
{
	return sbx_fail(err, EOPNOTSUPP, "%s is not available with the %s backend in this version.",
	                h->node.row->name, sbx_registry_settings(h->reg)->backend);
}

const struct control_ops sbx_control_absent_ops = {.open = absent_open};
