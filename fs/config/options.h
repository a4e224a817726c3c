/*
 * The command line and the configuration file become one struct sbx_settings.
 *
 *   sandboxfs [SOURCE] MOUNTPOINT [-o key=value,...] [-f] [-d]
 *
 * Every key has one row in one table (fs/config/settings.c): name, type, where it is kept, one line
 * of help; -o, the JSON file, --help and ctl/config are all driven by it.
 */
#ifndef SANDBOXFS_FS_CONFIG_OPTIONS_H
#define SANDBOXFS_FS_CONFIG_OPTIONS_H

#include "sandboxfs/error.h"
#include "sandboxfs/settings.h"

struct json_object;

enum sbx_action {
	SBX_RUN,
	SBX_HELP,
	SBX_PRINT_VERSION,
	SBX_PRINT_SKILL,
	SBX_DOCTOR,
	SBX_LIST_STATE,
	SBX_PRUNE
};

struct sbx_options {
	enum sbx_action action;
	struct sbx_settings settings;
	struct sbx_strings
	        fuse;      /* -o words meant for the kernel or fusermount (ro, noatime, ...) */
	bool no_source;    /* the mountpoint was the only argument */
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
/* Frees what SETTINGS owns. */
void sbx_settings_release(struct sbx_settings *settings);
/* Sets one key as -o or the file would. */
int sbx_settings_set(struct sbx_settings *settings, const char *key, const char *value,
                     struct sbx_error *err);
/*
 * Sets the keys of the JSON object in JSON[0..LEN), the configuration file. -EINVAL with a
 * sentence.
 */
int sbx_settings_load(struct sbx_settings *settings, const char *json, size_t len,
                      struct sbx_error *err);
/* The text of ctl/config: every key with the value in force. The caller puts it. */
struct json_object *sbx_settings_json(const struct sbx_settings *settings);

/* An option or a key as texts have it: --help, completion, the manual. */
struct sbx_option_text {
	const char *name;
	const char *form;  /* of the value of a key, with the =: "=N"; NULL: it takes none */
	const char *words; /* what the value may be, separated by |; NULL: something else */
	const char *help;
};
/* Calls FN for each option that has a long name. */
void sbx_options_walk(void (*fn)(const struct sbx_option_text *option, void *data), void *data);
/* And for each key. */
void sbx_settings_walk(void (*fn)(const struct sbx_option_text *key, void *data), void *data);
/* --help on stdout. */
void sbx_print_help(void);

#endif
