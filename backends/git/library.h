/* libgit2, as the programs here use it. */
#ifndef SANDBOXFS_GIT_LIBRARY_H
#define SANDBOXFS_GIT_LIBRARY_H

/* Starts it, as often as git_libgit2_shutdown ends it. Not concurrently. 0 or -ENOMEM. */
int sbx_git_library_begin(void);

#endif
