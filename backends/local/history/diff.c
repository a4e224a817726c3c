/*
 * Diffs, file by file: each is written out before the next is looked at.
 *
 * libgit2 holds both versions of a file whole, and some hundred bytes for each of their lines. So
 * a file of very many lines is shown as a binary is, which takes no more memory than the file's
 * size. Of a very large file only the fact that it differs is told.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "backends/git/git_impl.h"
#include "backends/local/history/history_impl.h"
#include "sandboxfs/cleanup.h"

#define LARGE ((git_object_size_t)16 << 20)
#define LINES 200000

enum shown { AS_TEXT, AS_BINARY, NOT_AT_ALL, WAYS };

SBX_GIT_CLEANUP(odb_object, git_odb_object, git_odb_object_free)
SBX_GIT_CLEANUP(patch, git_patch, git_patch_free)

struct output {
	FILE *f;
	atomic_bool *cancelled;
	int code; /* negative errno that ended it */
};

static int is_over(struct output *o)
{
	if (!o->code && o->cancelled && atomic_load(o->cancelled))
		o->code = -EINTR;
	if (!o->code && ferror(o->f))
		o->code = errno ? -errno : -EIO;
	return o->code ? GIT_EUSER : 0;
}

static int print_line(const git_diff_delta *delta, const git_diff_hunk *hunk,
                      const git_diff_line *line, void *data)
{
	struct output *o = data;

	(void)delta;
	(void)hunk;
	if (line->origin == GIT_DIFF_LINE_CONTEXT || line->origin == GIT_DIFF_LINE_ADDITION ||
	    line->origin == GIT_DIFF_LINE_DELETION)
		putc(line->origin, o->f);
	fwrite(line->content, 1, line->content_len, o->f);
	return is_over(o);
}

/* Names with what would end a line in them are quoted as git does. */
static void put_name(FILE *f, const char *name)
{
	bool plain = true;

	for (const unsigned char *c = (const unsigned char *)name; *c; c++)
		plain = plain && *c >= 0x20 && *c != 0x7f && *c != '"' && *c != '\\';
	if (plain) {
		fputs(name, f);
		return;
	}
	putc('"', f);
	for (const unsigned char *c = (const unsigned char *)name; *c; c++) {
		if (*c == '"' || *c == '\\')
			fprintf(f, "\\%c", *c);
		else if (*c == '\n')
			fputs("\\n", f);
		else if (*c == '\t')
			fputs("\\t", f);
		else if (*c < 0x20 || *c == 0x7f)
			fprintf(f, "\\%03o", *c);
		else
			putc(*c, f);
	}
	putc('"', f);
}

static int print_name(const git_diff_delta *delta, float progress, void *data)
{
	struct output *o = data;
	char status = git_diff_status_char(delta->status);

	(void)progress;
	if (status == 'R')
		fprintf(o->f, "R%03u\t", delta->similarity);
	else
		fprintf(o->f, "%c\t", status);
	put_name(o->f, status == 'A' ? delta->new_file.path : delta->old_file.path);
	if (status == 'R') {
		putc('\t', o->f);
		put_name(o->f, delta->new_file.path);
	}
	putc('\n', o->f);
	return is_over(o);
}

/* Repositories in the tree, which git does not record, with a slash behind as in `git status`. */
static void print_repos(FILE *f, const struct sbx_strings *repos)
{
	for (size_t i = 0; i < repos->n; i++) {
		_cleanup_free_ char *path = sbx_format("%s/", repos->items[i]);

		if (path) {
			fputs("A\t", f);
			put_name(f, path);
			putc('\n', f);
		}
	}
}

/* Of LEN bytes at P, at most LINES + 1. */
static size_t count_lines(const char *p, size_t len)
{
	const char *end = p + len;
	size_t n = 0;

	while (n <= LINES && (p = memchr(p, '\n', (size_t)(end - p)))) {
		p++;
		n++;
	}
	return n;
}

/* How one side of a file may be shown. What is not there, or is no blob, is nothing. */
static enum shown way_of_side(git_odb *odb, const git_diff_file *file)
{
	_cleanup_git_(odb_object) git_odb_object *object = NULL;
	git_object_t type;
	size_t len;

	if (git_oid_is_zero(&file->id) || file->mode == GIT_FILEMODE_COMMIT ||
	    git_odb_read_header(&len, &type, odb, &file->id))
		return AS_TEXT;
	if (len > LARGE)
		return NOT_AT_ALL;
	/* Fewer bytes than that are fewer lines. */
	if (len <= LINES || git_odb_read(&object, odb, &file->id))
		return AS_TEXT;
	return count_lines(git_odb_object_data(object), len) > LINES ? AS_BINARY : AS_TEXT;
}

static enum shown way_of(git_odb *odb, const git_diff_delta *delta)
{
	const enum shown old = way_of_side(odb, &delta->old_file),
	                 new = way_of_side(odb, &delta->new_file);

	return old > new ? old : new;
}

/* Whether one of the files is too large to be read only to see what it resembles. */
static bool has_large(git_odb *odb, git_diff *diff)
{
	for (size_t i = 0; i < git_diff_num_deltas(diff); i++) {
		const git_diff_delta *delta = git_diff_get_delta(diff, i);
		const git_diff_file *const sides[] = {&delta->old_file, &delta->new_file};

		for (size_t k = 0; k < SBX_ARRAY_SIZE(sides); k++) {
			git_object_t type;
			size_t len;

			if (!git_oid_is_zero(&sides[k]->id) &&
			    git_odb_read_header(&len, &type, odb, &sides[k]->id) == 0 &&
			    len > LARGE)
				return true;
		}
	}
	return false;
}

/*
 * The trees FROM and TO, to be shown in a way; they are in the same order in each. libgit2's code.
 */
static int compare(git_repository *repo, const git_oid *from, const git_oid *to, enum shown way,
                   git_diff **ret)
{
	_cleanup_git_(tree) git_tree *a = NULL;
	_cleanup_git_(tree) git_tree *b = NULL;
	_cleanup_git_(odb) git_odb *odb = NULL;
	git_diff_options opts = GIT_DIFF_OPTIONS_INIT;
	git_diff_find_options find = GIT_DIFF_FIND_OPTIONS_INIT;
	int r = git_tree_lookup(&a, repo, from);

	opts.flags = GIT_DIFF_INCLUDE_TYPECHANGE;
	if (way != NOT_AT_ALL)
		opts.flags |= GIT_DIFF_SHOW_BINARY;
	if (way != AS_TEXT)
		opts.flags |= GIT_DIFF_FORCE_BINARY;
	opts.id_abbrev = GIT_OID_HEXSZ;
	opts.old_prefix = "a";
	opts.new_prefix = "b";
	find.flags = GIT_DIFF_FIND_RENAMES;
	if (!r)
		r = git_tree_lookup(&b, repo, to);
	if (!r)
		r = git_repository_odb(&odb, repo);
	if (!r)
		r = git_diff_tree_to_tree(ret, repo, a, b, &opts);
	if (!r && has_large(odb, *ret))
		find.flags |= GIT_DIFF_FIND_EXACT_MATCH_ONLY;
	return r ? r : git_diff_find_similar(*ret, &find);
}

/*
 * DIFFS[AS_TEXT] is there, the others are made when they are needed, and are the caller's.
 * libgit2's code.
 */
static int print_files(git_repository *repo, const git_oid *from, const git_oid *to,
                       git_diff *diffs[WAYS], struct output *o)
{
	_cleanup_git_(odb) git_odb *odb = NULL;
	int r = git_repository_odb(&odb, repo);

	for (size_t i = 0; !r && i < git_diff_num_deltas(diffs[AS_TEXT]); i++) {
		_cleanup_git_(patch) git_patch *patch = NULL;
		const enum shown way = way_of(odb, git_diff_get_delta(diffs[AS_TEXT], i));

		if (!diffs[way])
			r = compare(repo, from, to, way, &diffs[way]);
		if (!r)
			r = git_patch_from_diff(&patch, diffs[way], i);
		if (!r && patch)
			r = git_patch_print(patch, print_line, o);
	}
	return r;
}

static int print(git_repository *repo, const git_oid *from, const git_oid *to,
                 const struct sbx_strings *repos, const struct sbx_diff_options *options, int fd,
                 struct sbx_error *err)
{
	_cleanup_fd_ int own = dup(fd);
	_cleanup_file_ FILE *f = own < 0 ? NULL : fdopen(own, "w");
	struct output o = {.f = f, .cancelled = options->cancelled};
	git_diff *diffs[WAYS] = {NULL};
	int r;

	if (!f)
		return sbx_fail(err, errno, "cannot write a diff: %s", strerror(errno));
	own = -1;
	r = compare(repo, from, to, AS_TEXT, &diffs[AS_TEXT]);
	if (!r && options->format == SBX_DIFF_NAMES)
		r = git_diff_foreach(diffs[AS_TEXT], print_name, NULL, NULL, NULL, &o);
	else if (!r)
		r = print_files(repo, from, to, diffs, &o);
	for (int i = 0; i < WAYS; i++)
		git_diff_free(diffs[i]);
	if (!r && options->format == SBX_DIFF_NAMES)
		print_repos(f, repos);
	if (!o.code && fflush(f) != 0)
		o.code = -errno;
	if (o.code)
		return sbx_fail(err, -o.code, "%s",
		                o.code == -EINTR ? "cancelled" : strerror(-o.code));
	return r ? sbx_git_fail(err, r, "cannot compare") : 0;
}

/*
 * The tree of REV; as it is now: recorded where nobody sees it, and REPOS are the repositories in
 * it.
 */
static int tree_of(const struct sbx_snapshot_context *context, git_repository *all, const char *rev,
                   atomic_bool *cancelled, git_oid *ret, struct sbx_strings *repos,
                   struct sbx_error *err)
{
	struct sbx_local_history_rev found;
	struct sbx_captured now;
	int r;

	if (rev) {
		r = sbx_local_history_resolve(context, all, rev, &found, err);
		*ret = found.tree;
		return r;
	}
	r = sbx_local_history_capture(
	        context, &(struct sbx_local_history_options){.cancelled = cancelled}, &now, err);
	if (r)
		return r;
	*ret = now.tree;
	*repos = now.nested;
	now.nested = (struct sbx_strings){0};
	sbx_local_history_drop_left(context, repos);
	sbx_captured_release(&now);
	return 0;
}

int sbx_local_history_diff(const struct sbx_snapshot_context *context,
                           const struct sbx_diff_options *options, int fd, struct sbx_error *err)
{
	_cleanup_git_(repository) git_repository *all = NULL;
	_cleanup_(sbx_strings_release) struct sbx_strings before = {0}, repos = {0};
	git_oid from = {0}, to = {0};
	int r = sbx_local_history_open(context, true, &all, err);

	if (!r)
		r = tree_of(context, all, options->from, options->cancelled, &from, &before, err);
	if (!r)
		r = tree_of(context, all, options->to, options->cancelled, &to, &repos, err);
	if (!r)
		r = print(all, &from, &to, &repos, options, fd, err);
	if (!options->from || !options->to)
		sbx_local_history_prune(context, false);
	return r;
}
