/*
 * The copy of a machine's tree: directory DIR/tree, whose regular files are absent (a hole of the
 * right size), partly here, or here. What is known of a file is kept by the inode number of its
 * copy, in memory and in the attribute user.sandboxfs.of of the file, so that a restart has what
 * was fetched. The copy may be thrown away at any time, but for what the journal says is unsent.
 *
 * Its functions are thread-safe; the turn of the sandbox is taken as each says.
 */
#ifndef SANDBOXFS_BACKENDS_REMOTE_TREE_H
#define SANDBOXFS_BACKENDS_REMOTE_TREE_H

#include "backends/remote/call.h"
#include "backends/remote/manifest.h"
#include "sandboxfs/away.h"

struct remote_tree;

struct remote_tree_config {
	struct sbx_sandbox *sandbox; /* its turn and events */
	int dir;                     /* borrowed: tree/ and temp/ are made in it */
	struct sbx_loop *loop;
	struct sbx_pool *pool; /* wide */
	uint64_t cache_mb;     /* of contents that are here and clean; 0: no limit */
	bool renumbers;        /* as SBX_PROVIDER_RENUMBERS */
	/*
	 * [any] Whether the host has changed PATH, or a directory above it, since batch SEEN: then
	 * a manifest says nothing of it.
	 */
	bool (*touched)(const char *path, uint64_t seen, void *data);
	/* [any] The same of the file of the copy that is numbered INO, by whatever name. */
	bool (*touched_file)(uint64_t ino, uint64_t seen, void *data);
	/* [any] The batch up to which the machine has everything by now. */
	uint64_t (*seen)(void *data);
	/* [any] Somebody waits for what the machine does not tell before the host's own changes are
	 * sent. May be NULL. */
	void (*awaited)(void *data);
	/* [any] Where programs of this host see the root, MNT/NAME; malloc'd. NULL: nowhere. */
	char *(*view)(void *data);
	void *data;
};
/* EOPNOTSUPP: the file system keeps no attributes of users. */
int remote_tree_open(const struct remote_tree_config *config, struct remote_tree **ret,
                     struct sbx_error *err);
/* Nobody waits, and nothing is under way any more. Accepts NULL. */
void remote_tree_close(struct remote_tree *t);
/* [wait] Returns when nothing is under way any more, as after remote_tree_fail. Without the turn.
 */
void remote_tree_await(struct remote_tree *t);
int remote_tree_root(struct remote_tree *t); /* borrowed */
/*
 * [any] What a link with the text TARGET here says in the machine, where nothing stands at
 * MNT/NAME: what leads there leads to the tree. Malloc'd; NULL without memory.
 */
char *remote_tree_text_there(struct remote_tree *t, const char *target);
/*
 * [any] From here on what is missing is asked for at LINK, whose machine has the tree at WORKDIR.
 * Before that nothing that is missing comes: who wants it waits; with REFRESH until the end of
 * remote_tree_refresh, which follows. A link stays until the tree is closed; remote_tree_fail comes
 * first.
 */
void remote_tree_connect(struct remote_tree *t, struct remote_link *link, const char *workdir,
                         bool refresh);
/* [loop] All who wait, and who come, are told CODE (positive) and TEXT. What is here stays. */
void remote_tree_fail(struct remote_tree *t, int code, const char *text);

/* As the members of sbx_away_impl; of NAMES, ATTR and DATA. Deadlines: 30 s; of DATA 60 s without
 * progress, and 4 s more for each MiB of the file, as far as it comes at once. */
bool remote_tree_here(struct remote_tree *t, uint64_t ino, enum sbx_need need, uint64_t off,
                      uint64_t len);
void remote_tree_want(struct remote_tree *t, struct sbx_want *w);
void remote_tree_unwant(struct remote_tree *t, struct sbx_want *w);
/* [disk] The host has changed something; the turn is held. */
void remote_tree_changed(struct remote_tree *t, const struct sbx_change *c);

/* [any] Commands run, or do no more: meanwhile nothing is here that is older than a second. */
void remote_tree_busy(struct remote_tree *t, bool busy);
/*
 * [any] Adds to the body of a call what makes it answer with a manifest of all that has changed
 * since the last one that was applied (r_changes), and that one's REMOTE_MANIFEST frames are then
 * given to remote_tree_take. Several such calls may be under way.
 */
void remote_tree_ask(struct remote_tree *t, struct remote_text *body);
/*
 * [any] Whether a manifest spoke of something that the host had changed by then, so that nobody
 * knows what the machine has there until remote_tree_ask was answered once more.
 */
bool remote_tree_lags(struct remote_tree *t);
/*
 * [pool] Takes over what REPLY's manifests say, all of which saw the batches up to SEEN. ASKED: its
 * call had remote_tree_ask. The turn is taken, for a few milliseconds at a time. *ALTERED:
 * something is other than it was; the caller has sbx_sandbox_altered called. 0, or -errno where the
 * copy could not be changed; EPROTO: what was asked for is not told. What was asked for and is not
 * in the copy by then is asked for by whoever looks next.
 */
int remote_tree_take(struct remote_tree *t, const struct remote_reply *reply, uint64_t seen,
                     bool asked, bool *altered, struct sbx_error *err);
/*
 * [any] Something may have been changed there, and the answer that tells of it is lost: whoever
 * looks next has the machine asked.
 */
void remote_tree_distrust(struct remote_tree *t);
/*
 * [wait] After the machine was made, or another daemon had it: asks for a manifest of all (to a
 * limit) and takes it over; small contents come with it where there is nothing here yet (FILL).
 * ALSO is done before, or NULL.
 */
struct remote_also {
	const char *lines; /* for the runner */
	/* [wait] Its answer, which is borrowed; before the tree is changed. */
	void (*heard)(const struct remote_reply *reply, void *data);
	void *data;
};
int remote_tree_refresh(struct remote_tree *t, bool fill, const struct remote_also *also,
                        atomic_bool *cancelled, struct sbx_error *err);

/*
 * [disk] A descriptor for reading of the file INO of the copy, which was last seen at PATH (from
 * the root). -ESTALE: it is not there any more. -EAGAIN: it is not wholly here.
 */
int remote_tree_open_file(struct remote_tree *t, const char *path, uint64_t ino);
/* [any] The contents of INO that are here are at the machine too, unless they were changed since
 * the batch was cut. DIRTY again otherwise: as they were sent, not as they are. */
void remote_tree_sent(struct remote_tree *t, uint64_t ino);
/* [any] The machine has refused a change of PATH, which may be otherwise there than here: it is
 * told of once more. */
void remote_tree_refused(struct remote_tree *t, const char *path);
/* [disk] After a restart, before anyone asks: what the journal knows to be unsent. */
void remote_tree_dirty(struct remote_tree *t, const char *path, uint64_t ino);

struct remote_tree_stats {
	uint64_t files, here, bytes; /* regular files known; wholly here; bytes of these */
};
void remote_tree_stats(struct remote_tree *t, struct remote_tree_stats *ret);

#endif
