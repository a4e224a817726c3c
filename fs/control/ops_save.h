/* Renames onto controls, as programs save files. */
#ifndef SANDBOXFS_FS_CONTROL_OPS_SAVE_H
#define SANDBOXFS_FS_CONTROL_OPS_SAVE_H

#include "fs/control/nodes.h"

/* Makes the set of renames onto controls that are under way; destroy *ret. 0 or -ENOMEM. */
int sbx_saves_create(struct sbx_saves **ret);
void sbx_saves_destroy(struct sbx_saves *t); /* accepts NULL */
/* Answers REQ, a rename of B, in the directory PARENT, onto TARGET, which is NEWNAME there. */
void sbx_save_rename(fuse_req_t req, fuse_ino_t parent, struct sbx_buffer *b,
                     const struct sbx_control_node *target, const char *newname);
/* The thread of REQ does not repeat its rename: nothing is carried out for it. */
void sbx_save_withdraw(fuse_req_t req);
/*
 * Whether the thread PID runs a program that removes the target before it makes it anew, where both
 * are on different file systems. Nothing in the request tells that, so programs are known by their
 * names.
 */
bool sbx_vacancy_needed(pid_t pid);
/* Thread PID has removed the control NAME of DIR: for it there is none, until it makes one. */
void sbx_vacancy_add(struct sbx_controls *c, pid_t pid, const struct sbx_control_node *dir,
                     const char *name);
/* Whether it has. TAKE: it makes one now. */
bool sbx_vacancy_find(struct sbx_controls *c, pid_t pid, const struct sbx_control_node *dir,
                      const char *name, bool take);

#endif
