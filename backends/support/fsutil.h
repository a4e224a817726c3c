/*
 * Small things done beneath a directory descriptor. None follows a symlink in the last component;
 * all return 0 or a negative errno and are thread-safe.
 */
#ifndef SANDBOXFS_SUPPORT_FSUTIL_H
#define SANDBOXFS_SUPPORT_FSUTIL_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "sandboxfs/error.h"
#include "sandboxfs/strv.h"

/*
 * Calls fn with the name and d_type of each entry of DIRFD but "." and ".."; a type the file
 * system does not tell is looked up. DIRFD is open for reading; its offset is moved. A non-zero
 * return of fn ends the scan and is returned. A directory that was removed has none.
 */
int sbx_dir_scan(int dirfd, int (*fn)(const char *name, unsigned char type, void *data),
                 void *data);

/* Adds all entries of DIRFD. */
int sbx_dir_names(int dirfd, struct sbx_strings *names);

/* Opens the directory NAME for reading, O_NOFOLLOW. Returns the descriptor or -errno. */
int sbx_dir_open(int dirfd, const char *name);
/* mkdir with MODE unless it is there, then sbx_dir_open. */
int sbx_dir_make(int dirfd, const char *name, unsigned mode);

/*
 * Locks the directory FD (not O_PATH) as long as it is open, shared with others who do the same, so
 * that what clears temporary directories by age (systemd-tmpfiles) leaves it and all below it
 * alone. Waits up to two seconds for one who is clearing it now. 0, also where the file system has
 * no such locks; -EBUSY.
 */
int sbx_dir_hold(int fd);

/* Reads a regular file of at most MAX bytes; *ret is NUL-terminated and the caller's. EFBIG beyond.
 */
int sbx_file_read(int dirfd, const char *name, size_t max, char **ret);
/* Reads to the end of FD, at most SIZE bytes. How many, or -errno. */
ssize_t sbx_read_all(int fd, void *buf, size_t size);
/* Writes all LEN bytes of DATA to FD. 0 or -errno. */
int sbx_write_all(int fd, const void *data, size_t len);
/* Creates NAME, which must not exist, with TEXT; what was begun is unlinked on failure. */
int sbx_file_create(int dirfd, const char *name, const char *text);
/* Whether NAME is a regular file that is empty or has a NUL in it, as a text may be after a power
 * cut. */
bool sbx_file_is_blank(int dirfd, const char *name);
/*
 * Waits until what was written to the file FD is on its way past the page cache, so that after a
 * power cut a name that it is given next is never found without it. The name itself, and the
 * file's being there, need a sync. 0 or -errno.
 */
int sbx_write_out(int fd);
/*
 * The same of all files in the directory DIRFD and below, of which there are few; what cannot be
 * opened is left out. 0 or -errno.
 */
int sbx_dir_write_out(int dirfd);
/*
 * Puts TEXT at NAME by way of TEMP and rename, so that a reader sees the old or the new, also
 * after a power cut.
 */
int sbx_file_replace(int dirfd, const char *name, const char *temp, const char *text);
/* The same without waiting for the disk: after a power cut NAME may be blank. */
int sbx_file_replace_soon(int dirfd, const char *name, const char *temp, const char *text);

/* Writes what IN holds from its offset on to OUT, shared where the file system can. */
int sbx_file_copy(int in, int out);

/* The formatted text, the caller's to free; NULL without memory. */
char *sbx_format(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Whether PATH is TOP or lies below it. Both absolute and free of symlinks, "." and "..". Compares
 * words, so it is for questions of configuration and not for confinement. */
bool sbx_path_within(const char *path, const char *top);

#endif
