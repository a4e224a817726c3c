/*
 * Random batches on a tree in memory, and what the plan makes of them on another: one that does the
 * steps as apply.sh does them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "backends/remote/batch.h"
#include "sandboxfs/cleanup.h"

#define INODES    64
#define PATH_SIZE 128
#define NONE      (-1)
#define ROOT      0

struct inode {
	mode_t mode;       /* 0: it is free */
	unsigned contents; /* of a file or link */
};

struct entry {
	int dir, ino; /* dir NONE: it is free */
	char name[32];
};

struct world {
	struct inode inodes[INODES];
	struct entry entries[INODES];
};

static uint64_t seed;

static uint32_t dice(uint32_t n)
{
	seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
	return (uint32_t)(seed >> 33) % n;
}

static void world_init(struct world *w)
{
	memset(w, 0, sizeof(*w));
	for (size_t i = 0; i < INODES; i++)
		w->entries[i].dir = NONE;
	w->inodes[ROOT].mode = S_IFDIR | 0755;
}

static int find(const struct world *w, int dir, const char *name)
{
	for (int i = 0; i < INODES; i++)
		if (w->entries[i].dir == dir && strcmp(w->entries[i].name, name) == 0)
			return i;
	return NONE;
}

static bool is_dir(const struct world *w, int ino)
{
	return S_ISDIR(w->inodes[ino].mode);
}

/* The directory of PATH, and *NAME in it. NONE: there is none. */
static int walk(const struct world *w, const char *path, char name[PATH_SIZE])
{
	int dir = ROOT;

	for (;;) {
		const size_t n = strcspn(path, "/");
		int at;

		memcpy(name, path, n);
		name[n] = '\0';
		if (!path[n])
			return dir;
		at = find(w, dir, name);
		if (at == NONE || !is_dir(w, w->entries[at].ino))
			return NONE;
		dir = w->entries[at].ino;
		path += n + 1;
	}
}

/* The entry of PATH, or NONE. */
static int look(const struct world *w, const char *path)
{
	char name[PATH_SIZE];
	const int dir = walk(w, path, name);

	return dir == NONE ? NONE : find(w, dir, name);
}

/* The inode of PATH, "" the root, or NONE. */
static int ino_of(const struct world *w, const char *path)
{
	const int at = *path && strcmp(path, ".") != 0 ? look(w, path) : NONE;

	if (!*path || strcmp(path, ".") == 0)
		return ROOT;
	return at == NONE ? NONE : w->entries[at].ino;
}

static int links(const struct world *w, int ino)
{
	int n = 0;

	for (size_t i = 0; i < INODES; i++)
		n += w->entries[i].dir != NONE && w->entries[i].ino == ino;
	return n;
}

static bool is_empty(const struct world *w, int ino)
{
	for (size_t i = 0; i < INODES; i++)
		if (w->entries[i].dir == ino)
			return false;
	return true;
}

/* Whether the directory INO is UNDER, or below it. */
static bool is_within(const struct world *w, int ino, int under)
{
	while (ino != ROOT && ino != under) {
		int i = 0;

		while (w->entries[i].dir == NONE || w->entries[i].ino != ino)
			i++;
		ino = w->entries[i].dir;
	}
	return ino == under;
}

/* False: its directory is not there, or nothing is free. */
static bool enter(struct world *w, const char *path, int ino)
{
	char name[PATH_SIZE];
	const int dir = walk(w, path, name);
	size_t size;
	int i = 0;

	while (i < INODES && w->entries[i].dir != NONE)
		i++;
	if (dir == NONE || i == INODES)
		return false;
	size = strlen(name) + 1;
	if (size > sizeof(w->entries[i].name))
		return false;
	w->entries[i].dir = dir;
	w->entries[i].ino = ino;
	memcpy(w->entries[i].name, name, size);
	return true;
}

static void leave(struct world *w, int at)
{
	const int ino = w->entries[at].ino;

	w->entries[at].dir = NONE;
	if (!links(w, ino))
		w->inodes[ino].mode = 0;
}

/* A number that is free, mostly the one that was used last. NONE: there is none. */
static int make(struct world *w, const char *path, mode_t mode, unsigned contents)
{
	int ino = 1;

	while (ino < INODES && w->inodes[ino].mode)
		ino++;
	if (ino == INODES || !enter(w, path, ino))
		return NONE;
	w->inodes[ino] = (struct inode){.mode = mode, .contents = contents};
	return ino;
}

/* --- the machine ------------------------------------------------------------------------------
 */

/* What was planned, in words. */
static char story[65536];
static size_t told;

__attribute__((format(printf, 1, 2))) static void tell(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	told += (size_t)vsnprintf(story + told, sizeof(story) - told, format, args);
	va_end(args);
	assert_true(told < sizeof(story));
}

/* What a test of cmocka's says is cut off. */
__attribute__((format(printf, 1, 2), noreturn)) static void fail_after(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fputs(story, stderr);
	vfprintf(stderr, format, args);
	va_end(args);
	fail();
	abort();
}

#define MUST(what)                                                                                 \
	do {                                                                                       \
		if (!(what))                                                                       \
			fail_after("it is not so that %s\n", #what);                               \
	} while (0)

static void there_move(struct world *w, const char *from, const char *to)
{
	const int at = look(w, from), over = look(w, to);
	char name[PATH_SIZE];
	int dir, ino;

	MUST(at != NONE && at != over);
	ino = w->entries[at].ino;
	if (over != NONE && is_dir(w, w->entries[over].ino))
		MUST(is_dir(w, ino) && is_empty(w, w->entries[over].ino));
	if (over != NONE)
		leave(w, over);
	dir = walk(w, to, name);
	MUST(dir != NONE);
	w->entries[at].dir = dir;
	snprintf(w->entries[at].name, sizeof(w->entries[at].name), "%.31s", name);
}

static void there_link(struct world *w, const char *from, const char *to)
{
	const int at = look(w, from), over = look(w, to);

	MUST(at != NONE && at != over && !is_dir(w, w->entries[at].ino));
	if (over != NONE) {
		MUST(!is_dir(w, w->entries[over].ino));
		leave(w, over);
	}
	MUST(enter(w, to, w->entries[at].ino));
}

static void there_make(struct world *w, const char *path, mode_t mode, unsigned contents)
{
	const int over = look(w, path);

	if (over != NONE) {
		MUST(!is_dir(w, w->entries[over].ino));
		leave(w, over);
	}
	MUST(make(w, path, mode, contents) != NONE);
}

/* A file that has other names keeps them. */
static void there_put(struct world *w, const struct remote_node *node, const char *path,
                      const struct inode *as)
{
	const int at = look(w, path);
	const int ino = at == NONE ? NONE : w->entries[at].ino;

	if (node->born || ino == NONE || links(w, ino) == 1)
		there_make(w, path, as->mode, as->contents);
	else
		w->inodes[ino] = *as;
}

static void there_step(struct world *w, const struct remote_step *step)
{
	const int at = look(w, step->path);
	int ino;

	switch (step->kind) {
	case REMOTE_STEP_MKDIR:
		if (at == NONE)
			MUST(make(w, step->path, S_IFDIR | 0755, 0) != NONE);
		else
			MUST(is_dir(w, w->entries[at].ino));
		break;
	case REMOTE_STEP_RM:
		if (at == NONE)
			break;
		MUST(!is_dir(w, w->entries[at].ino));
		leave(w, at);
		break;
	case REMOTE_STEP_RMDIR:
		if (at == NONE)
			break;
		MUST(is_dir(w, w->entries[at].ino) && is_empty(w, w->entries[at].ino));
		leave(w, at);
		break;
	case REMOTE_STEP_MV:
		there_move(w, step->path, step->to);
		break;
	case REMOTE_STEP_LN:
		there_link(w, step->path, step->to);
		break;
	case REMOTE_STEP_MODE:
		ino = ino_of(w, step->path);
		MUST(ino != NONE && is_dir(w, ino));
		w->inodes[ino].mode = S_IFDIR | step->mode;
		break;
	}
}

static void there_item(struct world *w, const struct world *here, const struct remote_item *item)
{
	const int ino = ino_of(here, item->path);
	const int there = ino_of(w, item->path);

	MUST(ino != NONE);
	if (item->kind == REMOTE_ITEM_LINK) {
		there_link(w, item->path, item->to);
	} else if (item->kind == REMOTE_ITEM_STATUS) {
		MUST(there != NONE);
		w->inodes[there].mode = here->inodes[ino].mode;
	} else {
		there_put(w, item->node, item->path, &here->inodes[ino]);
	}
}

static void tell_steps(const struct remote_batch_all *b)
{
	static const char *const words[] = {"mkdir", "rm", "rmdir", "mv", "ln", "mode"};
	static const char *const items[] = {"file", "fifo", "socket", "link", "status"};

	for (size_t i = 0; i < b->plan.n; i++) {
		const struct remote_step *step = &b->plan.steps[i];

		tell("%s%zu %s %s %s\n", step->dropped ? "  not " : "  ", i + 1, words[step->kind],
		     step->path, step->to ? step->to : "");
	}
	for (size_t i = 0; i < b->n; i++)
		tell("  %s %s %s\n", items[b->items[i].kind], b->items[i].path,
		     b->items[i].to ? b->items[i].to : "");
}

/* Of each entry of A there is the same in B; what is one file in A is one in B. */
static void compare(const struct world *a, const struct world *b)
{
	int as[INODES];

	for (size_t i = 0; i < INODES; i++)
		as[i] = NONE;
	as[ROOT] = ROOT;
	MUST(a->inodes[ROOT].mode == b->inodes[ROOT].mode);
	/* A directory may stand behind what is in it. */
	for (int changed = 1; changed;) {
		changed = 0;
		for (int i = 0; i < INODES; i++) {
			const struct entry *e = &a->entries[i];
			int at;

			if (e->dir == NONE || as[e->dir] == NONE)
				continue;
			at = find(b, as[e->dir], e->name);
			if (at == NONE)
				fail_after("\"%s\" is on one side only\n", e->name);
			changed |= as[e->ino] == NONE;
			if (as[e->ino] == NONE)
				as[e->ino] = b->entries[at].ino;
			if (as[e->ino] != b->entries[at].ino)
				fail_after("\"%s\" is another file\n", e->name);
			at = as[e->ino];
			if (a->inodes[e->ino].mode != b->inodes[at].mode ||
			    a->inodes[e->ino].contents != b->inodes[at].contents)
				fail_after("\"%s\" is not the same\n", e->name);
		}
	}
}

/* --- the host ---------------------------------------------------------------------------------
 */

static struct world here;
static struct remote_batch_all batch;
static unsigned writes;

static void note(enum sbx_change_kind kind, const char *path, const char *to, int ino, mode_t mode)
{
	static const char *const words[] = {"data",  "emptied", "made",   "gone",
	                                    "moved", "swapped", "linked", "status"};
	const struct sbx_change c = {.kind = kind,
	                             .path = path,
	                             .to = to,
	                             .ino = (uint64_t)ino + 1,
	                             .mode = mode,
	                             .target =
	                                     kind == SBX_CHANGE_MADE && S_ISLNK(mode) ? "x" : NULL};

	tell("%s %s %s %d %o\n", words[kind], path, to ? to : "", ino, (unsigned)mode);
	assert_int_equal(remote_plan_add(&batch.plan, &c), 0);
}

/* As remote_journal_hangs: who would take a name of it waits until all is sent. */
static bool hangs(int ino)
{
	bool ret = false;

	if (ino != NONE && !is_dir(&here, ino) && links(&here, ino) > 1)
		remote_plan_hangs(&batch.plan, (uint64_t)ino + 1, &ret);
	return ret;
}

static void path_of(const struct entry *e, char path[PATH_SIZE])
{
	char below[PATH_SIZE];

	snprintf(path, PATH_SIZE, "%s", e->name);
	while (e->dir != ROOT) {
		int i = 0;

		while (here.entries[i].dir == NONE || here.entries[i].ino != e->dir)
			i++;
		e = &here.entries[i];
		snprintf(below, sizeof(below), "%s/%s", e->name, path);
		memcpy(path, below, PATH_SIZE);
	}
}

/* An entry that is there; of a directory where DIR says so. NONE: none was met. */
static int some(bool dir)
{
	for (int tries = 0; tries < 40; tries++) {
		const int i = (int)dice(INODES);

		if (here.entries[i].dir != NONE && (!dir || is_dir(&here, here.entries[i].ino)))
			return i;
	}
	return NONE;
}

/* A path that may be there. */
static void any(char path[PATH_SIZE])
{
	static const char *const names[] = {"a", "b", "c", "d", "e"};
	const int dir = dice(3) ? some(true) : NONE;
	char above[PATH_SIZE] = "";

	if (dir != NONE)
		path_of(&here.entries[dir], above);
	snprintf(path, PATH_SIZE, "%.100s%s%s", above, *above ? "/" : "", names[dice(5)]);
}

static int n_entries(void)
{
	int n = 0;

	for (size_t i = 0; i < INODES; i++)
		n += here.entries[i].dir != NONE;
	return n;
}

static void host_make(const char *path)
{
	static const mode_t types[] = {S_IFREG, S_IFREG, S_IFREG, S_IFDIR,
	                               S_IFDIR, S_IFDIR, S_IFLNK, S_IFIFO};
	const mode_t type = types[dice(SBX_ARRAY_SIZE(types))];
	const mode_t mode = type | (type == S_IFDIR ? 0755 : type == S_IFLNK ? 0777 : 0644);
	int ino;

	if (look(&here, path) != NONE || n_entries() > 2 * INODES / 3)
		return;
	ino = make(&here, path, mode, type == S_IFREG ? ++writes : 0);
	if (ino == NONE)
		return;
	note(SBX_CHANGE_MADE, path, NULL, ino, mode);
	if (type == S_IFREG)
		note(SBX_CHANGE_DATA, path, NULL, ino, mode);
}

static void host_move(int at, const char *path, const char *to)
{
	const int over = look(&here, to), ino = here.entries[at].ino;
	const mode_t mode = here.inodes[ino].mode;
	const int gone = over == NONE ? NONE : here.entries[over].ino;
	char name[PATH_SIZE];
	const int dir = walk(&here, to, name);

	if (gone == ino || dir == NONE || hangs(gone) ||
	    (is_dir(&here, ino) && is_within(&here, dir, ino)))
		return;
	if (gone != NONE && (is_dir(&here, gone) != is_dir(&here, ino) || !is_empty(&here, gone)))
		return;
	if (over != NONE)
		leave(&here, over);
	snprintf(here.entries[at].name, sizeof(here.entries[at].name), "%.31s", name);
	here.entries[at].dir = dir;
	note(SBX_CHANGE_MOVED, path, to, ino, mode);
}

static void host_swap(int at, const char *path, const char *to)
{
	const int other = look(&here, to), ino = here.entries[at].ino;
	int that;

	if (other == NONE || here.entries[other].ino == ino)
		return;
	that = here.entries[other].ino;
	if ((is_dir(&here, ino) && is_within(&here, here.entries[other].dir, ino)) ||
	    (is_dir(&here, that) && is_within(&here, here.entries[at].dir, that)))
		return;
	here.entries[at].ino = that;
	here.entries[other].ino = ino;
	note(SBX_CHANGE_SWAPPED, path, to, ino, here.inodes[ino].mode);
}

static void host_remove(int at, const char *path)
{
	const int ino = here.entries[at].ino;
	const mode_t mode = here.inodes[ino].mode;

	if (hangs(ino) || !is_empty(&here, ino))
		return;
	leave(&here, at);
	note(SBX_CHANGE_GONE, path, NULL, ino, mode);
}

static void host_step(void)
{
	static const mode_t modes[] = {0755, 0700, 0444, 0600};
	char path[PATH_SIZE], to[PATH_SIZE];
	const uint32_t kind = dice(20);
	const int at = some(false);
	int ino;

	any(to);
	if (kind < 6 || at == NONE) {
		host_make(to);
		return;
	}
	path_of(&here.entries[at], path);
	ino = here.entries[at].ino;
	if (kind < 8) {
		if (!S_ISREG(here.inodes[ino].mode))
			return;
		here.inodes[ino].contents = ++writes;
		note(dice(2) ? SBX_CHANGE_DATA : SBX_CHANGE_EMPTIED, path, NULL, ino,
		     here.inodes[ino].mode);
	} else if (kind < 13) {
		host_move(at, path, to);
	} else if (kind < 14) {
		host_swap(at, path, to);
	} else if (kind < 15) {
		if (!is_dir(&here, ino) && look(&here, to) == NONE &&
		    n_entries() <= 2 * INODES / 3 && enter(&here, to, ino))
			note(SBX_CHANGE_LINKED, path, to, ino, here.inodes[ino].mode);
	} else if (kind < 19) {
		host_remove(at, path);
	} else if (!S_ISLNK(here.inodes[ino].mode)) {
		here.inodes[ino].mode = (here.inodes[ino].mode & S_IFMT) | modes[dice(4)];
		note(SBX_CHANGE_STATUS, path, NULL, ino, here.inodes[ino].mode);
	}
}

static void send(struct world *there)
{
	if (!batch.plan.ready)
		return;
	assert_int_equal(remote_batch_end(&batch), 0);
	tell_steps(&batch);
	for (size_t i = 0; i < batch.plan.n; i++)
		if (!batch.plan.steps[i].dropped)
			there_step(there, &batch.plan.steps[i]);
	for (size_t i = 0; i < batch.n; i++)
		there_item(there, &here, &batch.items[i]);
	compare(&here, there);
	compare(there, &here);
	remote_batch_reset(&batch);
}

static void random_batches_come_to_what_was_done(void **state)
{
	const char *rounds = getenv("ROUNDS"), *first = getenv("SEED");
	const uint64_t from = first ? strtoull(first, NULL, 0) : 1;
	const uint64_t n = rounds ? strtoull(rounds, NULL, 0) : 4000;

	(void)state;
	for (uint64_t i = from; i < from + n; i++) {
		struct world there;

		seed = i * 0x9e3779b97f4a7c15ULL;
		told = 0;
		tell("SEED=%llu\n", (unsigned long long)i);
		world_init(&here);
		world_init(&there);
		for (uint32_t k = 0, cuts = 1 + dice(5); k < cuts; k++) {
			for (uint32_t s = 1 + dice(dice(3) ? 10 : 50); s; s--)
				host_step();
			send(&there);
			tell("---\n");
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(random_batches_come_to_what_was_done),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
