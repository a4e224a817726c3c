/*
 * A tree whose files may be elsewhere. The directory of such a sandbox is a copy that is filled as
 * it is asked for: a regular file that is not here has its name, size, mode and times, and no
 * contents. The file system asks before an operation whether what it needs is here, and waits for
 * it without a thread where it is not; and it tells what an operation has changed.
 *
 * The sandbox's TURN (sandbox.h) is held around every operation, from the question to what is told
 * of it: shared, and alone by a rename. Where a sandbox has a turn, it has this table.
 *
 * A file of the copy goes from absent to present only. Contents that are another's by now come in
 * a new file, which takes the name, and of which sbx_sandbox_events.replaced is told.
 *
 * Calls are marked as in sandbox.h.
 */
#ifndef SANDBOXFS_AWAY_H
#define SANDBOXFS_AWAY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "sandboxfs/error.h"
#include "sandboxfs/sandbox.h"

enum sbx_need {
	SBX_NEED_UP,    /* the sandbox has been made, or making it has failed */
	SBX_NEED_NAMES, /* of a directory: its names, and the attributes of what they name */
	SBX_NEED_ATTR,  /* of anything: its attributes, as new as a caller may expect */
	SBX_NEED_DATA,  /* of a regular file: the bytes from off on, LEN of them; 0: all */
	SBX_NEED_SENT, /* asked of here only: of a file with several names, whether what was changed
	                * of it is where the sandbox really is, or gets there also when one of its
	                * names is removed; who needs it has all flushed */
};

/* An operation that waits. It is the caller's, and lives until done is called. */
struct sbx_want {
	enum sbx_need need;
	const char *path; /* that leads to the file or directory now, from the root (""); of a flush
	                   * and of SBX_NEED_UP "" */
	uint64_t ino;     /* st_ino of the copy; 0 for SBX_NEED_UP and a flush */
	uint64_t off, len;
	/*
	 * [loop] Once. CODE 0: ask again, it should be here now; else a positive errno, with the
	 * sentence. ETIMEDOUT: a deadline that the backend keeps. ESTALE: gone. EINTR: unwanted.
	 * What has failed is remembered for some seconds, so who asks again at once gets the same
	 * answer.
	 */
	void (*done)(struct sbx_want *w, int code, const struct sbx_error *err);
	void *data; /* for done */
	/* The backend's: */
	struct sbx_want *next;
	uint64_t due_ns;
	void *part;
};

enum sbx_change_kind {
	SBX_CHANGE_DATA, /* told before: contents of the file are about to be changed. Each time */
	SBX_CHANGE_EMPTIED, /* the file is empty now; so all of it is here */
	SBX_CHANGE_MADE,    /* a file, directory, link, FIFO or socket */
	SBX_CHANGE_GONE,
	SBX_CHANGE_MOVED,   /* from PATH to TO, perhaps over OVER */
	SBX_CHANGE_SWAPPED, /* RENAME_EXCHANGE */
	SBX_CHANGE_LINKED,  /* TO is another name of PATH */
	SBX_CHANGE_STATUS,  /* mode or times */
};

/* What an operation has changed. Strings are borrowed during the call. */
struct sbx_change {
	enum sbx_change_kind kind;
	/*
	 * From the root. PATH leads, or led before, to the file numbered INO, which may have other
	 * names.
	 */
	const char *path, *to;
	uint64_t ino;       /* st_ino of the copy */
	uint64_t over;      /* SBX_CHANGE_MOVED: st_ino of what TO named before; 0: nothing */
	mode_t mode;        /* st_mode of INO; of what is gone at least its type */
	const char *target; /* text of a link that was made */
};

/* All are mandatory. */
struct sbx_away_impl {
	/*
	 * [any] The caller has set the sandbox's events: what goes on by itself may begin, as
	 * making what was only asked for. Once, before all others.
	 */
	void (*begin)(struct sbx_sandbox *sb);
	/*
	 * [pool] The mount ends, and the sandbox stays: sends what is unsent, for MS milliseconds
	 * at most, and ends all that is under way. May wait for a network. The last call but leave
	 * and close.
	 */
	void (*rest)(struct sbx_sandbox *sb, unsigned ms);
	/*
	 * [any] The mount ends, and does not wait any longer for a sandbox that is being removed:
	 * remove answers EINTR soon, now and from then on, and recover finishes it. May overlap
	 * all others.
	 */
	void (*leave)(struct sbx_sandbox *sb);
	/*
	 * [any] Whether it is here. Some 100 ns: no system call. It may say no for what is not
	 * known yet, as after a restart.
	 */
	bool (*here)(struct sbx_sandbox *sb, uint64_t ino, enum sbx_need need, uint64_t off,
	             uint64_t len);
	/*
	 * [any] Has W told when it is here, or failed. Without the turn. It has a deadline also
	 * before the sandbox has been made: who waits holds locks of the kernel's.
	 */
	void (*want)(struct sbx_sandbox *sb, struct sbx_want *w);
	/* [loop] Nobody waits for W any more: done comes soon, unless it came before. */
	void (*unwant)(struct sbx_sandbox *sb, struct sbx_want *w);
	/*
	 * [disk] Before an operation that changes something: there is room to note it, so that
	 * changed cannot fail. ENOSPC, EDQUOT. One changed or dropped follows each that was
	 * admitted. MEANT: what it is to do, where that takes a name from something (GONE, MOVED,
	 * SWAPPED), else NULL. The backend notes it, because what was written to a file could not
	 * be found by its name if the daemon were killed between the operation and changed.
	 */
	int (*admit)(struct sbx_sandbox *sb, const struct sbx_change *meant, struct sbx_error *err);
	/* [disk] Notes the change, before the answer. */
	void (*changed)(struct sbx_sandbox *sb, const struct sbx_change *c);
	/* [disk] Nothing was changed after all. MEANT as it was admitted. */
	void (*dropped)(struct sbx_sandbox *sb, const struct sbx_change *meant);
	/*
	 * [any] Has W, which is of SBX_NEED_SENT, told when all that was changed until now is where
	 * the sandbox really is.
	 */
	void (*flush)(struct sbx_sandbox *sb, struct sbx_want *w);
};

/* [any] Whether files of SB may be elsewhere. */
static inline bool sbx_is_away(const struct sbx_sandbox *sb)
{
	return __builtin_expect(sb->turn != NULL, 0);
}

/* [any] As the member; nothing where all files are here. */
static inline void sbx_away_begin(struct sbx_sandbox *sb)
{
	if (sbx_is_away(sb))
		sb->impl->away->begin(sb);
}

/* [any] As the member; true where all files are here. */
static inline bool sbx_away_here(struct sbx_sandbox *sb, uint64_t ino, enum sbx_need need,
                                 uint64_t off, uint64_t len)
{
	return !sbx_is_away(sb) || sb->impl->away->here(sb, ino, need, off, len);
}

#endif
