/*
 * Private buffers: the files that clients make beside a control, to write them whole and rename
 * them onto it.
 *
 * A buffer belongs to the user who made it, is in no listing, and does nothing by itself. It has a
 * name until it is removed, renamed onto a control, or nobody has had it open for a while; without
 * a name it lasts as long as it is open. All functions may be called on any thread and wait for
 * nothing.
 */
#ifndef SANDBOXFS_FS_CONTROL_SAVE_BUFFER_H
#define SANDBOXFS_FS_CONTROL_SAVE_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "sandboxfs/error.h"

struct sbx_buffer;
struct sbx_buffers;
struct sbx_control_node;
struct sbx_loop;

enum {
	SBX_BUFFER_MAX = 2 * 1024 * 1024,   /* bytes of one: no control takes as many */
	SBX_BUFFERS_MAX = 64 * 1024 * 1024, /* bytes of all */
	SBX_BUFFERS_BOX = 64,               /* of one sandbox, or of MNT/ctl */
	SBX_BUFFERS_USER = 256,             /* of one user, wherever they are */
	SBX_BUFFER_KEPT_S = 600,            /* how long one is kept that nobody has open */
	SBX_BUFFER_SPARED_S = 60,           /* and when there are too many */
};

/* LOOP sees to it that what nobody uses goes; NULL: only sbx_buffers_sweep does. -ENOMEM. */
int sbx_buffers_create(struct sbx_loop *loop, struct sbx_buffers **ret);
/* Accepts NULL. Nodes of buffers are released, and LOOP does not run any more. */
void sbx_buffers_destroy(struct sbx_buffers *t);

/*
 * Makes NAME in DIR for the user UID. *ret is to be released. -EACCES: DIR takes no files, or NAME
 * is a mistyped control; -EEXIST; -ENOSPC: there are as many as may be, all used lately; -ENOMEM.
 * The name is no control's.
 */
int sbx_buffers_make(struct sbx_buffers *t, const struct sbx_control_node *dir, const char *name,
                     uid_t uid, gid_t gid, struct sbx_control_node *ret, struct sbx_error *err);
/* The thread that made B. */
void sbx_buffer_set_maker(struct sbx_buffer *b, pid_t maker);
/* Whether the thread MAKER has made a buffer that has a name in DIR still. */
bool sbx_buffers_made_by(struct sbx_buffers *t, const struct sbx_control_node *dir, pid_t maker);
/* The buffer NAME in DIR, if UID made it or is 0. -ENOENT. */
int sbx_buffers_find(struct sbx_buffers *t, const struct sbx_control_node *dir, const char *name,
                     uid_t uid, struct sbx_control_node *ret);
/* Takes the name away from B; nothing happens when it has none. */
void sbx_buffers_remove(struct sbx_buffers *t, struct sbx_buffer *b);
/* Gives B another name in its directory; what has that name loses it. -EACCES as for
 * sbx_buffers_make, -ENOMEM. */
int sbx_buffers_rename(struct sbx_buffers *t, struct sbx_buffer *b,
                       const struct sbx_control_node *dir, const char *newname,
                       struct sbx_error *err);
/* The sandbox with that number is gone. */
void sbx_buffers_drop_box(struct sbx_buffers *t, uint64_t box);
/* Drops those that nobody has had open for SBX_BUFFER_KEPT_S before NOW_NS. How many have a name
 * still. */
unsigned sbx_buffers_sweep(struct sbx_buffers *t, uint64_t now_ns);

struct sbx_buffer *sbx_buffer_ref(struct sbx_buffer *b); /* accepts NULL */
void sbx_buffer_unref(struct sbx_buffer *b);             /* accepts NULL */
/* A number that no other buffer has had. */
uint64_t sbx_buffer_number(const struct sbx_buffer *b);
/* Mode, size, owner, times. */
void sbx_buffer_stat(struct sbx_buffer *b, struct stat *st);
/* Sets the permissions of B to those in MODE. */
void sbx_buffer_chmod(struct sbx_buffer *b, mode_t mode);
/* Gives B to UID and GID; (uid_t)-1 and (gid_t)-1 stay. UID finds it by its name from then on. */
void sbx_buffer_chown(struct sbx_buffer *b, uid_t uid, gid_t gid);
/* Sets the time of B's last change, CLOCK_REALTIME. */
void sbx_buffer_set_mtime(struct sbx_buffer *b, struct timespec t);
/* -E2BIG, -ENOSPC, -ENOMEM. */
int sbx_buffer_resize(struct sbx_buffer *b, uint64_t size, struct sbx_error *err);
/* A copy of what is in it, malloc'd, with a NUL after its end; NULL: no memory. */
char *sbx_buffer_content(struct sbx_buffer *b, size_t *len);

#endif
