/*
 * Both trees on one connection (-o controls=inline): for a container that binds MNT alone. Files
 * are opened in the ordinary way there, since control files need OPEN and FLUSH and ENOSYS is for a
 * whole connection.
 */
#ifndef SANDBOXFS_FS_INLINE_H
#define SANDBOXFS_FS_INLINE_H

#include <fuse_lowlevel.h>

/* Set in the node ids of control files on such a connection. */
#define SBX_INLINE_CONTROL (UINT64_C(1) << 63)

extern const struct fuse_lowlevel_ops sbx_inline_ops;

#endif
