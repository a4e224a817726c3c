/*
 * A watch on git state: a list of files and directories with what stat told of them, compared to
 * tell whether the state has moved. A change that stat might not show (made within the clock's
 * grain of when it was recorded) counts as one.
 */
#ifndef SANDBOXFS_GIT_WATCH_H
#define SANDBOXFS_GIT_WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>
#include <time.h>

struct sbx_watched;

/* Zero it to start. */
struct sbx_git_watch {
	struct sbx_watched *at;
	size_t n, cap;
	bool vague; /* no record will do: there is too much to look at */
};

/*
 * Adds PATH, relative to DIRFD, resolved beneath it; also what is not there. DEEP: and all
 * directories below it. WHERE is given to sbx_git_watch_moved. 0 or -ENOMEM.
 */
int sbx_git_watch_add(struct sbx_git_watch *w, int where, int dirfd, const char *path, bool deep);
/*
 * Any of it (WHERE -1), or of what was added with WHERE, is other than recorded, or was recorded
 * too soon after a change to tell. DIRFDS are by WHERE; O_PATH will do.
 */
bool sbx_git_watch_moved(const struct sbx_git_watch *w, const int dirfds[], int where);
/* Frees the list and empties it. */
void sbx_git_watch_release(struct sbx_git_watch *w);

#endif
