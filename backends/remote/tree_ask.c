/*
 * The question for what has changed, and its answer. The question names the directories that are
 * listed here, each as far as it differs from the one before; where that gets long it is asked for
 * the whole tree.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/remote/tree_impl.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"

#define ASKS_MOST  64
#define WORDS_MOST 200                /* of one line */
#define TEXT_MOST  ((size_t)40 << 10) /* of all that names directories */
#define AGAIN_MOST ((size_t)8 << 10)  /* and of those to be listed again */

/* A question that is being written. */
struct question {
	struct remote_text in, again; /* lines for directories; words of those to be listed again */
	const struct remote_ask *ask;
	const char *old;
	char *last; /* path of the last word, NULL: it was the first of a line */
	unsigned words;
};

/* How many parts PATH has in common with LAST; *REST is what differs. */
static unsigned common_parts(const char *last, const char *path, const char **rest)
{
	unsigned parts = 0;

	*rest = path;
	for (size_t i = 0; last; i++) {
		if ((last[i] == '/' || !last[i]) && path[i] == '/') {
			parts++;
			*rest = path + i + 1;
		}
		if (last[i] != path[i] || !last[i])
			break;
	}
	return parts;
}

static void add_dir(struct question *q, char *path)
{
	_cleanup_free_ char *word = NULL;
	const char *rest;
	unsigned parts;

	if (q->words == WORDS_MOST) {
		remote_text_add(&q->in, "\n");
		q->words = 0;
		free(q->last);
		q->last = NULL;
	}
	if (!q->words++) {
		remote_text_add(&q->in, "r_changes");
		remote_text_word(&q->in, q->old);
		remote_text_word(&q->in, q->ask->stamp);
	}
	if (!*path) {
		remote_text_word(&q->in, ".");
		free(path);
		return;
	}
	parts = common_parts(q->last, path, &rest);
	if (asprintf(&word, "%u/%s", parts, rest) < 0)
		word = NULL;
	if (word)
		remote_text_word(&q->in, word);
	q->in.failed |= !word;
	free(q->last);
	q->last = path;
}

/* Adds the directory N, which is listed. The lock is held. */
static void ask_for(struct remote_tree *t, struct question *q, struct remote_node *n)
{
	char *path;

	if (n->dir->lags && q->again.n > AGAIN_MOST) {
		n->dir->listed = false;
		return;
	}
	if (!n->dir->lags && q->in.n > TEXT_MOST)
		return;
	path = remote_dir_path(t, n);
	if (!path) {
		q->in.failed = true;
	} else if (n->dir->lags) {
		remote_text_word(&q->again, *path ? path : ".");
		n->dir->again = q->ask->number;
		free(path);
	} else {
		add_dir(q, path);
	}
}

static struct remote_ask *new_ask(struct remote_tree *t)
{
	struct remote_ask *ask = calloc(1, sizeof(*ask)), **at = &t->asks;

	if (!ask)
		return NULL;
	ask->number = ++t->stamps;
	snprintf(ask->stamp, sizeof(ask->stamp), "%s.%llu", t->run,
	         (unsigned long long)ask->number);
	ask->turn = t->turns;
	ask->floor_ns = t->known_ns;
	/* What was never answered is forgotten in time. */
	for (size_t n = 0; *at; n++) {
		if (n == ASKS_MOST) {
			free(*at);
			*at = NULL;
			break;
		}
		at = &(*at)->next;
	}
	ask->next = t->asks;
	t->asks = ask;
	return ask;
}

void remote_ask_all(struct remote_tree *t, struct remote_text *body)
{
	struct remote_ask *ask;

	pthread_mutex_lock(&t->lock);
	ask = new_ask(t);
	remote_text_printf(body, "r_all %d", REMOTE_ENTRIES_MAX);
	remote_text_word(body, ask ? ask->stamp : "");
	remote_text_add(body, "\n");
	pthread_mutex_unlock(&t->lock);
}

static void write_question(const struct question *q, struct remote_text *body)
{
	if (q->words && q->in.n <= TEXT_MOST && !q->in.failed) {
		remote_text_add_n(body, q->in.at, q->in.n);
	} else {
		remote_text_add(body, "r_changes");
		remote_text_word(body, q->old);
		remote_text_word(body, q->ask->stamp);
		/* Where nothing is listed, its root answers for when. */
		if (!q->words)
			remote_text_word(body, ".");
	}
	remote_text_add(body, "\n");
	if (q->again.n) {
		remote_text_printf(body, "r_list %d", REMOTE_ENTRIES_MAX);
		remote_text_add_n(body, q->again.at, q->again.n);
		remote_text_add(body, "\n");
	}
}

void remote_tree_ask(struct remote_tree *t, struct remote_text *body)
{
	struct question q = {.old = t->old};

	pthread_mutex_lock(&t->lock);
	q.ask = new_ask(t);
	if (q.ask) {
		for (struct remote_node *n = t->top; n; n = remote_dir_next(t, n))
			if (n->dir->listed)
				ask_for(t, &q, n);
		write_question(&q, body);
	} else {
		body->failed = true;
	}
	pthread_mutex_unlock(&t->lock);
	remote_text_release(&q.in);
	remote_text_release(&q.again);
	free(q.last);
}

bool remote_tree_lags(struct remote_tree *t)
{
	const struct remote_node *n;

	pthread_mutex_lock(&t->lock);
	n = t->top;
	/* What is not listed is asked for by whoever looks at it. */
	while (n && !(n->dir->listed && n->dir->lags))
		n = remote_dir_next(t, n);
	pthread_mutex_unlock(&t->lock);
	return n != NULL;
}

/* The question that is answered by WORD, taken out; or NULL. */
static struct remote_ask *take_ask(struct remote_tree *t, const char *word)
{
	struct remote_ask **at = &t->asks, *ask;

	pthread_mutex_lock(&t->lock);
	while (*at && strcmp((*at)->stamp, word) != 0)
		at = &(*at)->next;
	ask = *at;
	if (ask)
		*at = ask->next;
	pthread_mutex_unlock(&t->lock);
	return ask;
}

/* All that ASK was for is known as of BEGUN_NS. ALL: it was for the whole tree; MORE: not all that
 * has changed was told. */
static void answered(struct remote_tree *t, const struct remote_ask *ask, int64_t begun_ns,
                     bool all, bool more)
{
	pthread_mutex_lock(&t->lock);
	for (struct remote_node *n = t->top; n; n = remote_dir_next(t, n)) {
		if (!n->dir->listed || n->told_ns >= begun_ns)
			continue;
		if (n->dir->turn > ask->turn)
			n->dir->lags = true;
		/* It was not listed again as a whole: it may have too many names, or be closed. */
		else if (all || more || (n->dir->lags && n->dir->again == ask->number))
			n->dir->listed = false;
	}
	/* A stamp from before the doubt may be of a clock that was set back since. */
	if (begun_ns >= t->old_ns && !(t->doubted && ask->number <= t->doubted_at)) {
		t->old_ns = begun_ns;
		memcpy(t->old, ask->stamp, sizeof(t->old));
	}
	t->doubted &= ask->number <= t->doubted_at;
	t->told_failed = false;
	t->refreshed |= all;
	remote_failure_unref(t->changes);
	t->changes = NULL;
	pthread_mutex_unlock(&t->lock);
}

/* A reply that is being taken over. */
struct taking {
	struct remote_tree *tree;
	struct remote_ask *ask; /* that it answers; NULL: none */
	int64_t floor_ns;       /* what was known when it was asked */
	int64_t begun_ns;       /* of that answer */
	bool more;
	bool answers; /* a question, which may be forgotten by now */
};

/* What was told is not in the copy for R. */
static int cannot_take(struct remote_tree *t, int r, struct sbx_error *err)
{
	if (r == -ENOSPC && remote_nodes_full(t))
		return sbx_fail(
		        err, ENOSPC,
		        "the sandbox has more than %zu files and directories, which are the "
		        "most that can be shown",
		        t->nodes_most);
	return sbx_fail(err, -r, "the copy of the sandbox's tree cannot be changed: %s",
	                strerror(-r));
}

static int take_frame(struct taking *k, const struct remote_frame *f, struct remote_news *w,
                      struct sbx_error *err)
{
	struct remote_tree *t = k->tree;
	struct remote_manifest m;
	int r;

	k->answers |= f->word[0] != '\0';
	if (!k->ask && f->word[0])
		k->ask = take_ask(t, f->word);
	w->begun = f->c ? f->c : f->a;
	w->begun_ns = remote_machine_time(
	        t, f->a, k->ask && k->ask->floor_ns > k->floor_ns ? k->ask->floor_ns : k->floor_ns);
	if (f->b) {
		pthread_mutex_lock(&t->lock);
		t->renumbered_ns = w->begun_ns;
		t->renumbered = (int64_t)f->b;
		pthread_mutex_unlock(&t->lock);
	}
	r = remote_manifest_read(f->bytes, f->len, w->begun_ns, &m, err);
	if (r)
		return r;
	r = remote_apply(w, &m);
	if (k->ask && strcmp(f->word, k->ask->stamp) == 0) {
		k->begun_ns = w->begun_ns;
		k->more |= m.more;
	}
	remote_manifest_release(&m);
	return r ? cannot_take(t, r, err) : 0;
}

/*
 * What has changed was told, and is not in the copy for ERR. Each directory is listed anew when
 * somebody looks at it, so that who looks at what can be had is not told that something cannot.
 */
static void list_all_anew(struct remote_tree *t, const struct sbx_error *err)
{
	char text[sizeof(err->text)];
	bool tell;

	pthread_mutex_lock(&t->lock);
	remote_dir_void(t, t->top, t->known_ns);
	tell = !t->told_failed;
	t->told_failed = true;
	pthread_mutex_unlock(&t->lock);
	if (!tell)
		return;
	snprintf(text, sizeof(text), "%.900s; what is looked at is asked for again", err->text);
	sbx_sandbox_told(t->cfg.sandbox, "stale", text);
}

int remote_take(struct remote_tree *t, const struct remote_reply *reply, uint64_t seen,
                int64_t floor_ns, enum remote_asked asked, bool *altered, struct sbx_error *err)
{
	const bool all = asked == REMOTE_ASKED_ALL;
	struct remote_news w = {.tree = t, .seen = seen};
	struct taking k = {.tree = t, .floor_ns = floor_ns};
	struct sbx_error why = SBX_ERROR_INIT;
	const struct remote_frame *f;
	size_t at = 0;
	int r = 0;

	pthread_mutex_lock(&t->taking);
	while (!r && (f = remote_reply_next(reply, &at, REMOTE_MANIFEST, NULL)))
		r = take_frame(&k, f, &w, &why);
	if (!r && k.ask) {
		answered(t, k.ask, k.begun_ns, all, k.more);
		/* Where it took long who waits would ask for ever, were it as old as the answer. */
		pthread_mutex_lock(&t->lock);
		t->fresh_ns = sbx_now_ns();
		pthread_mutex_unlock(&t->lock);
	}
	free(k.ask);
	pthread_mutex_unlock(&t->taking);
	if (r && k.answers) {
		list_all_anew(t, &why);
		w.altered = true;
	} else if (!r && asked && !k.answers) {
		remote_tree_distrust(t);
		r = sbx_fail(&why, EPROTO, "the machine did not say what has changed in its tree");
	}
	*altered |= w.altered;
	return r ? sbx_fail(err, why.code, "%s", why.text) : 0;
}

int remote_tree_take(struct remote_tree *t, const struct remote_reply *reply, uint64_t seen,
                     bool asked, bool *altered, struct sbx_error *err)
{
	int r;

	*altered = false;
	r = remote_take(t, reply, seen, 0, asked ? REMOTE_ASKED_CHANGES : REMOTE_ASKED_NOTHING,
	                altered, err);
	remote_fetch_kick(t);
	return r;
}
