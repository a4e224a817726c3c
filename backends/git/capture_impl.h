/* Declarations that the files of a capture share. */
#ifndef SANDBOXFS_GIT_CAPTURE_IMPL_H
#define SANDBOXFS_GIT_CAPTURE_IMPL_H

#include <sys/stat.h>

#include "backends/git/capture.h"
#include "backends/git/gitignore.h"

#define CAPTURE_GITLINK     0160000
#define CAPTURE_PATH_MAX    4096
#define CAPTURE_SKIP_FLAG   0x4000 /* extended: skip-worktree */
#define CAPTURE_INTENT_FLAG 0x2000 /* extended: intent-to-add */
#define CAPTURE_STAGES      0x3000

/* The ignore rules that hold in one directory, and the way to another. */
struct capture_rules {
	struct sbx_ignore *ignore;
	int root;
	char **dirs; /* whose .gitignore was looked at, from the top */
	bool *pushed;
	size_t n, cap;
};

/*
 * Opens the rules that hold at the top of the tree ROOT, a descriptor that must live as long: the
 * user's and those of info/exclude. 0 or -errno; close RULES in either case.
 */
int capture_rules_open(struct capture_rules *rules, git_repository *repo, int root);
/* Frees what RULES owns and zeroes it. */
void capture_rules_close(struct capture_rules *rules);
/* Has the rules be those of DIR ("" the top). */
int capture_rules_enter(struct capture_rules *rules, const char *dir);
/* Whether PATH is ignored by itself or by a directory above it. */
int capture_rules_ignore(struct capture_rules *rules, const char *path, bool *ret);

/* How much may be tried for the ignore rules of one tree (sbx_ignore_work): about a minute. Lowered
 * by tests. */
extern uint64_t capture_ignore_work;

/* A file or link that belongs into the tree. */
struct capture_item {
	char *path;
	struct stat st;
	const struct sbx_index_entry *known; /* what the index says of it; or NULL */
	struct sbx_index_entry entry;        /* its name is path */
	bool hashed, gone;
	bool believed; /* hashed: by what the index says */
	bool large;    /* it, or what the index has of it, is not to be held in memory */
	bool exact;    /* belongs into struct sbx_captured.exact, with this content */
	unsigned char bytes[20];
};

struct capture_loose {
	char *path;
	mode_t mode;
};

struct capture {
	const struct sbx_capture_options *options;
	struct sbx_captured *ret;
	struct sbx_error *err;
	struct capture_rules rules;
	struct capture_item *items;
	size_t n, cap;
	bool *hidden;            /* of the entries of wish->lower: covered by what is above */
	struct sbx_strings dirs; /* that were looked into */
	git_odb *odb;
	struct sbx_object_writer *writer;
	git_index *attributes; /* where libgit2 looks for .gitattributes */
	bool filtered, filemode;
	uint64_t holes;              /* bytes that were read and take up no room */
	struct capture_loose *loose; /* directories that were made readable */
	size_t nloose;
};

#define CAPTURE_SMALL ((size_t)1 << 20) /* read as a whole */

/* Finds what belongs in the tree. */
int capture_walk(struct capture *c);
/* Hashes what was found and is not known. */
int capture_hash(struct capture *c);
/* 0, or -EINTR with a sentence in c->err once the capture is cancelled. */
int capture_is_over(const struct capture *c);
/* Gives the directories that nobody may read the modes back that they had. */
void capture_tighten(struct capture *c);

#endif
