/*
 * Files of lines, and for each of them the plan of its batch. The next file is made beforehand, so
 * that neither a line nor a cut needs room that is not there.
 */
#include "backends/remote/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/remote/journal_impl.h"
#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/clock.h"

#define LINE_ROOM    ((uint64_t)64 * 1024) /* two long paths, each byte of which takes three */
#define RESERVE_STEP ((uint64_t)1024 * 1024)
#define FORGET_MS    ((uint64_t)10 * 60 * 1000) /* no answer of a machine is as old */
#define TOUCHED_MAX  500000

/* Makes the file of batch NUMBER with its head. Descriptor or -errno. */
static int make_file(struct remote_journal *j, uint64_t number)
{
	struct remote_text head = {0};
	char name[REMOTE_JOURNAL_NAME];
	int fd = -1, r = 0;

	remote_journal_name(name, number);
	remote_head_write(&head, j->id);
	if (head.failed)
		return -ENOMEM;
	fd = openat(j->dir, name, O_RDWR | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);
	r = fd < 0 ? -errno : sbx_write_all(fd, head.at, head.n);
	remote_text_release(&head);
	if (r && fd >= 0) {
		unlinkat(j->dir, name, 0);
		close(fd);
	}
	return r ? r : fd;
}

static uint64_t head_size(void)
{
	struct remote_text head = {0};
	uint64_t n;

	remote_head_write(&head, "0123456789abcdef");
	n = head.n;
	remote_text_release(&head);
	return n;
}

int remote_journal_make_files(struct remote_journal *j)
{
	const uint64_t number = j->open->pub.number;

	if (j->fd < 0) {
		int fd = make_file(j, number);

		if (fd < 0)
			return fd;
		j->fd = fd;
		j->size = head_size();
		j->room = 0;
	}
	if (j->spare < 0) {
		int fd = make_file(j, number + 1);

		if (fd < 0)
			return fd;
		j->spare = fd;
	}
	return 0;
}

/* Has at least ROOM bytes of the file FD on the disk; *HAVE is what there is. */
static int reserve(struct remote_journal *j, int fd, uint64_t room, uint64_t *have)
{
	const uint64_t more = (room + RESERVE_STEP - 1) / RESERVE_STEP * RESERVE_STEP;
	int r;

	if (j->unreserved || room <= *have)
		return 0;
	do
		r = fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)more) < 0 ? -errno : 0;
	while (r == -EINTR);
	j->unreserved = r == -EOPNOTSUPP || r == -ENOSYS;
	if (!r)
		*have = more;
	return j->unreserved ? 0 : r;
}

struct remote_batch_all *remote_journal_append(struct remote_journal *j, uint64_t number)
{
	struct remote_batch_all *b = calloc(1, sizeof(*b));

	if (!b)
		return NULL;
	b->pub.number = number;
	b->id = j->id;
	if (j->open)
		j->open->next = b;
	else
		j->first = b;
	j->open = b;
	return b;
}

void remote_journal_take(struct remote_journal *j, const struct sbx_change *c)
{
	struct remote_batch_all *b = j->open;

	if (!b->damaged)
		b->damaged = remote_plan_add(&b->plan, c) != 0;
	remote_touched_add(&j->touched, c, b->pub.number);
}

int remote_journal_open(int dir, struct remote_journal **ret, struct sbx_error *err)
{
	struct remote_journal *j = calloc(1, sizeof(*j));
	int r;

	if (!j)
		return sbx_no_memory(err);
	j->dir = dir;
	j->fd = j->spare = -1;
	pthread_mutex_init(&j->lock, NULL);
	r = remote_journal_load(j, err);
	if (r) {
		remote_journal_close(j);
		return r;
	}
	*ret = j;
	return 0;
}

void remote_journal_close(struct remote_journal *j)
{
	if (!j)
		return;
	while (j->first) {
		struct remote_batch_all *b = j->first;

		j->first = b->next;
		remote_batch_free(b);
	}
	/* What was reserved and not used. */
	if (j->fd >= 0 && !j->broken && ftruncate(j->fd, (off_t)j->size) < 0)
		j->broken = true;
	sbx_cleanup_fd(&j->fd);
	sbx_cleanup_fd(&j->spare);
	remote_text_release(&j->line);
	remote_touched_release(&j->touched);
	remote_meant_release(&j->meant);
	pthread_mutex_destroy(&j->lock);
	free(j);
}

/* Appends the line of C, whole or not at all. */
static int append_line(struct remote_journal *j, enum remote_tense tense,
                       const struct sbx_change *c)
{
	int r;

	j->line.n = 0;
	remote_line_write(&j->line, j->seq, tense, c);
	r = j->line.failed ? -ENOMEM : sbx_write_all(j->fd, j->line.at, j->line.n);
	if (!r) {
		j->size += j->line.n;
		j->seq++;
		return 0;
	}
	/* A part of it would damage the file for whoever reads it later. */
	if (ftruncate(j->fd, (off_t)j->size) < 0)
		j->broken = true;
	j->room = 0;
	return r;
}

/* Has room for N lines more than were admitted, in a file that is there. 0 or -errno. */
static int make_room(struct remote_journal *j, size_t n)
{
	int r = j->broken ? -EIO : remote_journal_make_files(j);

	return r ? r : reserve(j, j->fd, j->size + (j->admitted + n) * LINE_ROOM, &j->room);
}

int remote_journal_admit(struct remote_journal *j, const struct sbx_change *meant,
                         struct sbx_error *err)
{
	int r;

	pthread_mutex_lock(&j->lock);
	r = make_room(j, meant ? 2 : 1);
	if (!r && meant)
		r = append_line(j, REMOTE_MEANT, meant);
	j->admitted += !r;
	pthread_mutex_unlock(&j->lock);
	return r ? sbx_fail(err, -r, "cannot note what is changed: %s", strerror(-r)) : 0;
}

/* Writes a line that has room. */
static void write_line(struct remote_journal *j, enum remote_tense tense,
                       const struct sbx_change *c)
{
	if (!j->broken && append_line(j, tense, c))
		j->broken = true;
}

/* What was written to a file that has no name any more is nothing. */
static bool is_change(const struct sbx_change *c)
{
	return *c->path || c->kind == SBX_CHANGE_STATUS;
}

void remote_journal_note(struct remote_journal *j, const struct sbx_change *c)
{
	pthread_mutex_lock(&j->lock);
	if (is_change(c) && (j->open->damaged || !remote_plan_has(&j->open->plan, c))) {
		write_line(j, REMOTE_DONE, c);
		j->open->lines++;
		remote_journal_take(j, c);
	}
	j->admitted -= j->admitted > 0;
	pthread_mutex_unlock(&j->lock);
}

void remote_journal_drop(struct remote_journal *j, const struct sbx_change *meant)
{
	pthread_mutex_lock(&j->lock);
	if (meant)
		write_line(j, REMOTE_DROPPED, meant);
	j->admitted -= j->admitted > 0;
	pthread_mutex_unlock(&j->lock);
}

/* A line that has no room is of no loss: the next daemon looks as well. */
void remote_journal_resolve(struct remote_journal *j, int root)
{
	pthread_mutex_lock(&j->lock);
	for (size_t i = 0; i < j->meant.n; i++) {
		const struct sbx_change *c = &j->meant.items[i];
		const bool done = remote_meant_was_done(root, c);

		if (!make_room(j, 1))
			append_line(j, done ? REMOTE_DONE : REMOTE_DROPPED, c);
		if (!done)
			continue;
		j->open->lines++;
		remote_journal_take(j, c);
	}
	remote_meant_release(&j->meant);
	pthread_mutex_unlock(&j->lock);
}

#define CLEAR_MOST  200   /* files */
#define CLEAR_BYTES 24000 /* of their paths, so that the line needs no put */
#define CLEAR_STEPS 20000 /* that are looked through for each, while others wait for the lock */

/* Whether OTHER, which may be NULL, is PATH or a directory above it. */
static bool leads_to(const char *other, const char *path)
{
	const size_t n = other ? strlen(other) : 0;

	return n && strncmp(path, other, n) == 0 && (!path[n] || path[n] == '/');
}

/*
 * Whether something unsent but the step RM is about its path, or about a directory above, other
 * than that it goes as well. Then the name may be another file's there, or one from which a link is
 * still to be made.
 */
static bool is_about(const struct remote_journal *j, const struct remote_step *rm)
{
	for (const struct remote_batch_all *b = j->first; b; b = b->next) {
		for (size_t i = 0; i < b->plan.n; i++) {
			const struct remote_step *step = &b->plan.steps[i];

			if (step != rm && step->kind != REMOTE_STEP_RMDIR &&
			    (leads_to(step->path, rm->path) || leads_to(step->to, rm->path)))
				return true;
		}
		for (size_t i = 0; i < b->n; i++)
			if (leads_to(b->items[i].path, rm->path) ||
			    leads_to(b->items[i].to, rm->path))
				return true;
	}
	return false;
}

/* How many steps and items are unsent; too many where one of their batches cannot be read. */
static size_t count_unsent(const struct remote_journal *j)
{
	size_t n = 0;

	for (const struct remote_batch_all *b = j->first; b; b = b->next)
		n += b->damaged ? CLEAR_STEPS + 1 : b->plan.n + b->n;
	return n;
}

static bool is_here(int root, const char *path)
{
	struct stat st;

	return fstatat(root, path, &st, AT_SYMLINK_NOFOLLOW) == 0 || errno != ENOENT;
}

void remote_journal_clear(struct remote_journal *j, int root, struct remote_text *out)
{
	struct remote_text word = {0};
	size_t tried = 0;
	bool any = false;

	pthread_mutex_lock(&j->lock);
	if (count_unsent(j) > CLEAR_STEPS)
		tried = CLEAR_MOST;
	for (const struct remote_batch_all *b = j->first; b; b = b->next)
		for (size_t i = 0; i < b->plan.n; i++) {
			const struct remote_step *step = &b->plan.steps[i];

			if (tried == CLEAR_MOST || out->n > CLEAR_BYTES)
				break;
			if (step->kind != REMOTE_STEP_RM || step->dropped ||
			    is_here(root, step->path))
				continue;
			tried++;
			if (is_about(j, step))
				continue;
			if (!any)
				remote_text_printf(out, "r_clear %s %" PRIu64, j->id,
				                   j->first->pub.number);
			any = true;
			word.n = 0;
			remote_text_add(&word, "./");
			remote_text_add(&word, step->path);
			if (!word.failed)
				remote_text_word(out, word.at);
		}
	pthread_mutex_unlock(&j->lock);
	if (any)
		remote_text_add(out, "\n");
	out->failed |= word.failed;
	remote_text_release(&word);
}

bool remote_journal_pending(struct remote_journal *j)
{
	bool pending;

	pthread_mutex_lock(&j->lock);
	pending = j->first != j->open || j->open->lines;
	pthread_mutex_unlock(&j->lock);
	return pending;
}

uint64_t remote_journal_noted(struct remote_journal *j)
{
	uint64_t noted;

	pthread_mutex_lock(&j->lock);
	noted = j->open->pub.number - !j->open->lines;
	pthread_mutex_unlock(&j->lock);
	return noted;
}

bool remote_journal_touched(struct remote_journal *j, const char *path, uint64_t seen)
{
	bool touched;

	pthread_mutex_lock(&j->lock);
	touched = remote_touched_since(&j->touched, path, seen);
	pthread_mutex_unlock(&j->lock);
	return touched;
}

bool remote_journal_touched_file(struct remote_journal *j, uint64_t ino, uint64_t seen)
{
	bool touched;

	pthread_mutex_lock(&j->lock);
	touched = remote_touched_file_since(&j->touched, ino, seen);
	pthread_mutex_unlock(&j->lock);
	return touched;
}

bool remote_journal_hangs(struct remote_journal *j, uint64_t ino)
{
	bool hangs = false;

	pthread_mutex_lock(&j->lock);
	for (const struct remote_batch_all *b = j->first; b; b = b->next) {
		if (b->damaged)
			hangs = true;
		else
			remote_plan_hangs(&b->plan, ino, &hangs);
	}
	pthread_mutex_unlock(&j->lock);
	return hangs;
}

/* The batch that a path is of, and where it goes in the end. */
struct forward {
	const struct remote_batch_all *b;
	struct sbx_strings *paths;
};

/* Adds where that is now which was at PATH when the batch began. */
static int forward(const char *path, void *data)
{
	const struct forward *at = data;
	const struct remote_batch_all *b = at->b;
	struct forward next = *at;

	while (b && !b->plan.ready)
		b = b->next;
	if (!b)
		return sbx_strings_add(at->paths, path);
	next.b = b->next;
	return b->damaged ? -ENOMEM : remote_names_where(&b->plan.names, path, forward, &next);
}

static int where(const struct remote_batch_all *b, const struct remote_node *node,
                 struct sbx_strings *paths)
{
	struct forward next = {.b = b->next, .paths = paths};
	int r = node == b->plan.names.root ? sbx_strings_add(paths, "") : 0;

	for (const struct remote_name *name = node->names; name && !r; name = name->next) {
		_cleanup_free_ char *path = NULL;

		r = remote_name_path(&b->plan.names, name, &path);
		if (!r && path)
			r = forward(path, &next);
	}
	return r;
}

int remote_journal_where(struct remote_journal *j, const struct remote_batch_all *b,
                         const struct remote_node *node, struct sbx_strings *paths)
{
	int r;

	pthread_mutex_lock(&j->lock);
	r = where(b, node, paths);
	pthread_mutex_unlock(&j->lock);
	return r;
}

/* Adds the files of B whose contents it puts, and their inodes. */
static int find_unsent(const struct remote_batch_all *b, struct remote_text *inos,
                       struct sbx_strings *paths)
{
	int r = 0;

	for (const struct remote_node *node = b->plan.names.nodes; node && !r; node = node->next) {
		const size_t before = paths->n;

		if (node->type == S_IFREG && (node->born || node->data))
			r = where(b, node, paths);
		for (size_t i = before; i < paths->n; i++)
			remote_text_add_n(inos, (const char *)&node->ino, sizeof(node->ino));
	}
	return r || !inos->failed ? r : -ENOMEM;
}

int remote_journal_walk(struct remote_journal *j,
                        void (*fn)(const char *path, uint64_t ino, void *data), void *data)
{
	struct sbx_strings paths = {0};
	struct remote_text inos = {0};
	int r = 0;

	pthread_mutex_lock(&j->lock);
	for (const struct remote_batch_all *b = j->first; b && !r; b = b->next)
		if (b->plan.ready)
			r = find_unsent(b, &inos, &paths);
	pthread_mutex_unlock(&j->lock);
	for (size_t i = 0; i < paths.n && !r; i++) {
		uint64_t ino;

		memcpy(&ino, inos.at + i * sizeof(ino), sizeof(ino));
		fn(paths.items[i], ino, data);
	}
	sbx_strings_release(&paths);
	remote_text_release(&inos);
	return r;
}

static int add_change(const struct remote_line *line, void *data)
{
	return line->tense == REMOTE_DONE ? remote_plan_add(data, &line->change) : 0;
}

/* Makes the plan of B anew from its lines. */
static int plan_again(struct remote_journal *j, struct remote_batch_all *b, struct sbx_error *err)
{
	struct remote_plan plan = {0};
	uint64_t seq = 0;
	size_t whole;
	int r;

	if (j->broken)
		return sbx_fail(err, EIO, "the journal could not be written");
	r = remote_journal_read(j, b->pub.number, &seq, add_change, &plan, &whole, err);
	if (r) {
		remote_plan_release(&plan);
		return r;
	}
	remote_batch_reset(b);
	b->plan = plan;
	b->damaged = false;
	return 0;
}

/* Lines go into a batch behind the open one from here on. */
static int begin_next(struct remote_journal *j)
{
	const struct remote_batch_all *b = j->open;
	uint64_t room = 0;
	int r = remote_journal_make_files(j);

	if (!r && j->admitted)
		r = reserve(j, j->spare, head_size() + j->admitted * LINE_ROOM, &room);
	if (r)
		return r;
	if (!remote_journal_append(j, b->pub.number + 1))
		return -ENOMEM;
	/* What was reserved and not used is given back. It is no loss if it is not. */
	if (!j->broken && ftruncate(j->fd, (off_t)j->size) < 0)
		j->room = 0;
	close(j->fd);
	j->fd = j->spare;
	j->spare = -1;
	j->size = head_size();
	j->room = room;
	return 0;
}

static int cut(struct remote_journal *j, struct remote_batch_all **ret, struct sbx_error *err)
{
	struct remote_batch_all *b = j->first;
	int r = 0;

	*ret = NULL;
	if (b == j->open) {
		if (!b->lines)
			return 0;
		r = begin_next(j);
		if (r)
			return sbx_fail(err, -r, "cannot begin a file of the journal: %s",
			                strerror(-r));
	}
	if (b->damaged)
		r = plan_again(j, b, err);
	if (r)
		return r;
	if (!b->ended && remote_batch_end(b)) {
		b->damaged = true;
		return sbx_no_memory(err);
	}
	b->ended = true;
	remote_batch_begin_round(b);
	*ret = b;
	return 0;
}

int remote_journal_cut(struct remote_journal *j, struct remote_batch **ret, struct sbx_error *err)
{
	struct remote_batch_all *b;
	int r;

	pthread_mutex_lock(&j->lock);
	r = cut(j, &b, err);
	pthread_mutex_unlock(&j->lock);
	*ret = b ? &b->pub : NULL;
	return r;
}

/* What was changed in batches that were sent long ago is of no interest any more. */
static void forget(struct remote_journal *j, uint64_t number)
{
	const uint64_t now = sbx_now_ms();

	if (j->touched.by_path.n > TOUCHED_MAX)
		remote_touched_forget(&j->touched, number);
	if (now - j->marked_ms < FORGET_MS)
		return;
	remote_touched_forget(&j->touched, j->marked);
	j->marked = number;
	j->marked_ms = now;
}

void remote_journal_sent(struct remote_journal *j, uint64_t number)
{
	char name[REMOTE_JOURNAL_NAME];
	struct remote_batch_all *b;

	pthread_mutex_lock(&j->lock);
	b = j->first;
	if (b != j->open && b->pub.number == number) {
		/* One that stays is sent again by the next daemon, and the machine says it has it.
		 */
		remote_journal_name(name, number);
		unlinkat(j->dir, name, 0);
		j->first = b->next;
		j->seen = number;
		forget(j, number);
		remote_batch_free(b);
	}
	pthread_mutex_unlock(&j->lock);
}

uint64_t remote_journal_seen(struct remote_journal *j)
{
	uint64_t seen;

	pthread_mutex_lock(&j->lock);
	seen = j->seen;
	pthread_mutex_unlock(&j->lock);
	return seen;
}
