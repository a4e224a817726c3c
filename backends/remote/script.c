/*
 * The lines of a batch, each a function of apply.sh. What follows one another and is alike is one
 * line, because a process there costs more than all words of its command line.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "backends/remote/batch.h"
#include "sandboxfs/cleanup.h"

#define WORDS_MAX 100 /* of one line */
#define BYTES_MAX 8192
#define LINE_MS   20 /* that a line takes at most, on a slow machine: some processes; and */
#define WORD_MS   1  /* each of its words */

/* Lines "VERB NUMBER KEY WORD...", the last of which is not written yet. NUMBER is of the last. */
struct writer {
	struct remote_text *out;
	const char *verb; /* a literal; NULL: no line is begun */
	size_t number, n;
	uint64_t ms;
	struct remote_text key, words;
	struct remote_text want, path; /* for the next */
};

static void end_line(struct writer *w)
{
	if (w->verb) {
		remote_text_add(w->out, w->verb);
		if (w->number)
			remote_text_printf(w->out, " %zu", w->number);
		remote_text_add_n(w->out, w->key.at, w->key.n);
		remote_text_add_n(w->out, w->words.at, w->words.n);
		remote_text_add(w->out, "\n");
		w->ms += LINE_MS + w->n * WORD_MS;
	}
	w->verb = NULL;
	w->words.n = w->key.n = w->n = 0;
}

/* Begins a line VERB NUMBER WANT, unless the last one goes on. NUMBER may be 0: there is none. */
static void begin_line(struct writer *w, const char *verb, size_t number, bool dense)
{
	const bool goes_on = w->verb == verb && w->n < WORDS_MAX && w->words.n < BYTES_MAX &&
	                     w->key.n == w->want.n &&
	                     (!w->key.n || memcmp(w->key.at, w->want.at, w->key.n) == 0) &&
	                     (!dense || w->number + 1 == number);

	if (!goes_on) {
		end_line(w);
		remote_text_add_n(&w->key, w->want.at, w->want.n);
	}
	w->verb = verb;
	w->number = number;
	w->want.n = 0;
	w->n++;
}

/* Adds PATH as a word that no program takes for an option. */
static void add_path(struct writer *w, struct remote_text *t, const char *path)
{
	w->path.n = 0;
	remote_text_add(&w->path, *path ? "./" : ".");
	remote_text_add(&w->path, path);
	if (!w->path.failed)
		remote_text_word(t, w->path.at);
}

static const char verb_mkdir[] = "r_do_mkdir", verb_rm[] = "r_do_rm", verb_rmdir[] = "r_do_rmdir",
                  verb_open[] = "r_do_open", verb_mv[] = "r_do_mv", verb_link[] = "r_do_link",
                  verb_pack[] = "r_do_pack", verb_place[] = "r_do_place", verb_over[] = "r_do_over",
                  verb_put[] = "r_do_put", verb_symlink[] = "r_do_symlink",
                  verb_fifo[] = "r_do_fifo", verb_socket[] = "r_do_socket",
                  verb_time[] = "r_do_time", verb_link_time[] = "r_do_link_time",
                  verb_mode[] = "r_do_mode", verb_sent[] = "r_do_sent";

static void write_step(struct writer *w, const struct remote_step *step, size_t number)
{
	static const char *const verbs[] = {
	        [REMOTE_STEP_MKDIR] = verb_mkdir, [REMOTE_STEP_RM] = verb_rm,
	        [REMOTE_STEP_RMDIR] = verb_rmdir, [REMOTE_STEP_MV] = verb_mv,
	        [REMOTE_STEP_LN] = verb_link,     [REMOTE_STEP_MODE] = verb_open,
	};
	const bool two = step->kind == REMOTE_STEP_MV || step->kind == REMOTE_STEP_LN;

	if (step->kind == REMOTE_STEP_MODE)
		remote_text_printf(&w->want, " %04o", (unsigned)step->mode);
	if (two)
		end_line(w);
	begin_line(w, verbs[step->kind], number, false);
	add_path(w, &w->words, step->path);
	if (two)
		add_path(w, &w->words, step->to);
}

static size_t number_of(const struct remote_batch_all *b, const struct remote_item *item)
{
	return b->plan.n + 1 + (size_t)(item - b->items);
}

/* A line of its own, to which words may be added. */
static void begin_item(struct writer *w, const struct remote_batch_all *b, const char *verb,
                       const struct remote_item *item)
{
	end_line(w);
	begin_line(w, verb, number_of(b, item), false);
}

/* Before the first file of a pack it is opened, unless all of it was put. */
static void write_pack(struct writer *w, const struct remote_batch_all *b,
                       const struct remote_item *item)
{
	const struct remote_item *last = item;

	for (const struct remote_item *at = item; at < b->items + b->files; at++)
		if (at->state == REMOTE_ITEM_PACKED && at->number == item->number)
			last = at;
	begin_item(w, b, verb_pack, last);
	remote_text_printf(&w->words, " %u", item->number);
}

/* The directory and the name of a path. */
static void write_packed(struct writer *w, const struct remote_batch_all *b,
                         const struct remote_item *item)
{
	const char *slash = strrchr(item->path, '/');
	const size_t n = slash ? (size_t)(slash - item->path) : 0;

	remote_text_printf(&w->want, " %zu", item->directory);
	if (!item->node->born)
		remote_text_printf(&w->want, " %04o", (unsigned)item->mode);
	w->path.n = 0;
	remote_text_add(&w->path, n ? "./" : ".");
	remote_text_add_n(&w->path, item->path, n);
	if (!w->path.failed)
		remote_text_word(&w->want, w->path.at);
	begin_line(w, item->node->born ? verb_place : verb_over, number_of(b, item), true);
	remote_text_word(&w->words, slash ? slash + 1 : item->path);
}

static void write_alone(struct writer *w, const struct remote_batch_all *b,
                        const struct remote_item *item)
{
	const bool link = item->node->type == S_IFLNK;

	begin_item(w, b, link ? verb_symlink : verb_put, item);
	if (!link)
		remote_text_printf(&w->words, " %u %s %04o", item->number,
		                   item->node->born ? "new" : "old", (unsigned)item->mode);
	remote_text_add(&w->words, " ");
	remote_text_time(&w->words, item->mtime);
	if (link)
		remote_text_word(&w->words, item->node->target);
	add_path(w, &w->words, item->path);
}

static void write_files(struct writer *w, const struct remote_batch_all *b)
{
	unsigned pack = 0;

	for (const struct remote_item *item = b->items; item < b->items + b->files; item++) {
		if (item->state == REMOTE_ITEM_ALONE)
			write_alone(w, b, item);
		if (item->state != REMOTE_ITEM_PACKED)
			continue;
		if (pack != item->number)
			write_pack(w, b, item);
		pack = item->number;
		write_packed(w, b, item);
	}
}

static void write_special(struct writer *w, const struct remote_batch_all *b,
                          const struct remote_item *item)
{
	const char *verb = item->kind == REMOTE_ITEM_FIFO ? verb_fifo : verb_socket;

	begin_item(w, b, item->to ? verb_link : verb, item);
	add_path(w, &w->words, item->path);
	if (item->to)
		add_path(w, &w->words, item->to);
}

static void write_time(struct writer *w, const struct remote_item *item)
{
	const bool link = item->node->type == S_IFLNK;

	if (!item->node->status)
		return;
	remote_text_add(&w->want, " ");
	remote_text_time(&w->want, item->mtime);
	begin_line(w, link ? verb_link_time : verb_time, 0, false);
	add_path(w, &w->words, item->path);
}

static void write_mode(struct writer *w, const struct remote_item *item)
{
	const struct remote_node *node = item->node;
	/* What a step has given it. */
	const mode_t now = node->born && node->type == S_IFDIR ? 0755 : node->mode;

	if (node->type == S_IFLNK || (now && now == item->mode))
		return;
	remote_text_printf(&w->want, " %04o", (unsigned)item->mode);
	begin_line(w, verb_mode, 0, false);
	add_path(w, &w->words, item->path);
}

static void write_sent(struct writer *w, const char *path)
{
	begin_line(w, verb_sent, 0, false);
	add_path(w, &w->words, path);
}

static void write_items(struct writer *w, const struct remote_batch_all *b)
{
	const struct remote_item *end = b->items + b->n, *status = b->items + b->files;

	write_files(w, b);
	for (; status < end && status->kind != REMOTE_ITEM_STATUS; status++)
		write_special(w, b, status);
	for (const struct remote_item *item = status; item < end; item++)
		if (item->state == REMOTE_ITEM_ALONE)
			write_time(w, item);
	for (const struct remote_item *item = status; item < end; item++)
		if (item->state == REMOTE_ITEM_ALONE)
			write_mode(w, item);
	for (const struct remote_item *item = b->items; item < b->items + b->files; item++)
		if (item->node->type == S_IFREG && b->pub.places[item->place].put)
			write_sent(w, item->path);
}

/*
 * The names by which a file has another ctime by now. Those of which no change was told are not
 * known.
 */
static void write_touched(struct writer *w, const struct remote_batch_all *b)
{
	for (const struct remote_node *node = b->plan.names.nodes; node; node = node->next) {
		const bool put = node->born || node->data;
		const struct remote_name *name = node->names;

		if ((node->type && node->type != S_IFREG) || !name ||
		    !(put || node->status || node->step || node->fixed))
			continue;
		for (name = put ? name->next : name; name; name = name->next) {
			_cleanup_free_ char *path = NULL;

			if (remote_name_path(&b->plan.names, name, &path))
				w->out->failed = true;
			else if (path)
				write_sent(w, path);
		}
	}
}

int remote_batch_write(struct remote_batch_all *b)
{
	struct writer w = {.out = &b->steps};

	for (size_t i = 0; i < b->plan.n; i++)
		if (!b->plan.steps[i].dropped)
			write_step(&w, &b->plan.steps[i], i + 1);
	write_items(&w, b);
	write_touched(&w, b);
	end_line(&w);
	b->pub.apply_ms = w.ms;
	b->steps.failed |= w.key.failed || w.words.failed || w.want.failed || w.path.failed;
	remote_text_release(&w.key);
	remote_text_release(&w.words);
	remote_text_release(&w.want);
	remote_text_release(&w.path);
	return b->steps.failed ? -ENOMEM : 0;
}

void remote_batch_script(const struct remote_batch *pub, struct remote_text *out)
{
	const struct remote_batch_all *b = (const struct remote_batch_all *)pub;

	if (!b->steps_number) {
		remote_text_add(out, "r_batch() {\n:\n");
		remote_text_add_n(out, b->steps.at, b->steps.n);
		remote_text_add(out, "}\n");
	}
	remote_text_add(out, "r_apply");
	remote_text_word(out, b->id);
	remote_text_printf(out, " %" PRIu64, b->pub.number);
	if (b->steps_number)
		remote_text_printf(out, " %u", b->steps_number);
	remote_text_add(out, "\n");
}
