/*
 * The record of a sandbox: all that is known of it on disk, and the journal of its life. Its
 * state says what was going on when the daemon died. There is one JSON file per sandbox, and it
 * is always replaced whole.
 */
#ifndef SANDBOXFS_LOCAL_STATE_RECORD_H
#define SANDBOXFS_LOCAL_STATE_RECORD_H

#include <stdbool.h>
#include <stdint.h>

enum sbx_record_state {
	SBX_RECORD_CREATING, /* roll back */
	SBX_RECORD_READY,
	SBX_RECORD_DELETING, /* finish */
};

/* All strings are owned; NULL where they do not apply. */
struct sbx_record {
	enum sbx_record_state state;
	char *id;
	char *name;
	char *kind;     /* "git", "dir" or "none" */
	char *source;   /* path of the source when the sandbox was made */
	char *common;   /* git: the repository's common directory */
	char *worktree; /* git: name of the administrative entry below common/worktrees */
	char *branch;   /* git: short name */
	char *wanted; /* git: the branch that was to be had and was there already; NULL: was not */
	char *base;   /* git: hexadecimal commit the branch was at */
	char *layer;  /* key of the base that the tree stands on; NULL: a full copy */
	char *save;   /* of one that is being removed: what of it the trash is to have
	                 (backends/local/trash/save.h) */
	char *head;   /* git: hexadecimal commit that was checked out then; with save */
	bool branch_created; /* git: the branch is ours to remove */
	bool lasting; /* not in the file, which is on disk: what replaces it is written out first */
	bool keep;    /* of one that is being removed: its files go where removed ones are kept */
	int64_t created_ms;
	int64_t removed_ms; /* with save: when */
	int64_t disk_mb; /* size of the disk that the upper layer is on; 0: the state directory's */
	int64_t skipped; /* what of the source was left out: sockets and devices, links out of it */
	/* struct sbx_tree.own_results; -1: a record of before there was this */
	int64_t own_results;
	int64_t included; /* git: files brought by .worktreeinclude; -1: there was none */
};

/*
 * Writes REC to METAFD/ID.json; a reader or a crash sees the old or the new. Replaces. 0 or -errno.
 * Not for one id from several threads.
 */
int sbx_record_store(int metafd, const struct sbx_record *rec);
/* Reads FILE ("ID.json"). EINVAL: not a record, or one that belongs to another id. 0 or -errno. */
int sbx_record_load(int metafd, const char *file, struct sbx_record *ret);
/* Success when it is not there. */
int sbx_record_unlink(int metafd, const char *id);
/* Frees the strings; a zeroed record is fine. */
void sbx_record_release(struct sbx_record *rec);

#endif
