/*
 * The command line and the configuration file become one struct sbx_settings.
 *
 *   sandboxfs [SOURCE] MOUNTPOINT [-o key=value,...] [-f] [-d]
 *
 * Every key has one row in one table (fs/config/settings.c): name, type, where it is kept, one line of
 * help; -o, the JSON file, --help and ctl/config are all driven by it.
 */
#ifndef SANDBOXFS_FS_CONFIG_OPTIONS_H
#define SANDBOXFS_FS_CONFIG_OPTIONS_H

#include "sandboxfs/error.h"
#include "sandboxfs/settings.h"

struct json_object;

enum sbx_action { SBX_RUN, SBX_HELP, SBX_PRINT_VERSION, SBX_DOCTOR, SBX_LIST_STATE, SBX_PRUNE };

struct sbx_options {
	enum sbx_action action;
	struct sbx_settings settings;
	struct sbx_strings
	        fuse;      /* -o words meant for the kernel or fusermount (ro, noatime, ...) */
	bool auto_unmount; /* the mount goes with the daemon, however that ends */
};

/* Releases everything and zeroes it; a zeroed struct is fine. */
void sbx_options_release(struct sbx_options *opts);
/*
 * Parses argv; reads the file of -o config=, or $XDG_CONFIG_HOME/sandboxfs.json,
 * ~/.config/sandboxfs.json, /etc/sandboxfs.json, the first that exists. Resolves paths,
 * checks every value. -EINVAL unknown key or bad value (the text names the key), -ENOENT
 * source or mountpoint missing, -ENOTDIR, -EACCES.
 */
int sbx_options_parse(int argc, char *const *argv, struct sbx_options *ret, struct sbx_error *err);
/* Fills SETTINGS with the built-in defaults. */
int sbx_settings_defaults(struct sbx_settings *settings);
void sbx_settings_release(struct sbx_settings *settings);
/* Sets one key as -o or the file would. */
int sbx_settings_set(struct sbx_settings *settings, const char *key, const char *value,
                     struct sbx_error *err);
int sbx_settings_load(struct sbx_settings *settings, const char *json, size_t len,
                      struct sbx_error *err);
/* What ctl/config shows: every key with the value in force. The caller puts it. */
struct json_object *sbx_settings_json(const struct sbx_settings *settings);
/* --help on stdout. */
void sbx_print_help(void);

#endif
