/*
 * Work that is done in rounds, one at a time. Who comes while a round is under way waits for the
 * next, because this one may have passed by what they want done; all of them share that one.
 *
 * There is no lock in here: the owner holds one for join and end, always the same.
 */
#ifndef SANDBOXFS_FS_UTIL_ROUNDS_H
#define SANDBOXFS_FS_UTIL_ROUNDS_H

#include <stdbool.h>

/* Embedded by who waits; in no list before join and when it is answered. */
struct sbx_waiting {
	struct sbx_waiting *next;
	/* CODE: what the round came to, 0 or a negative errno. W may be freed. */
	void (*answer)(struct sbx_waiting *w, int code);
};

/* Zeroed at first. */
struct sbx_rounds {
	struct sbx_waiting *now;  /* who waits for the round that is under way; NULL: none is */
	struct sbx_waiting *next; /* who waits for the one after it, in the order they came */
};

/*
 * Lock held. W, which stays the owner's and there until it is answered, waits for the next round.
 * True: no round was under way, and W's is now: the caller begins it.
 */
bool sbx_rounds_join(struct sbx_rounds *rounds, struct sbx_waiting *w);
/*
 * Lock held. The round is over: returns who waited for it, for sbx_rounds_answer. When rounds->now
 * is not NULL then, the next one is under way, and the caller begins it.
 */
struct sbx_waiting *sbx_rounds_end(struct sbx_rounds *rounds);
/* Lock not held. Answers the list LIST, in order; after(data) follows each answer. */
void sbx_rounds_answer(struct sbx_waiting *list, int code, void (*after)(void *data), void *data);

#endif
