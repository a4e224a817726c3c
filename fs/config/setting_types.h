/*
 * Kinds of settings: how a word of -o is taken, how a JSON value is taken, how it is shown.
 * Private to settings.c. Start-up only, not thread-safe.
 */
#ifndef SANDBOXFS_FS_CONFIG_SETTING_TYPES_H
#define SANDBOXFS_FS_CONFIG_SETTING_TYPES_H

#include <stddef.h>

#include "sandboxfs/error.h"
#include "sandboxfs/settings.h"

struct json_object;
struct sbx_key;

struct sbx_kind {
	/* VALUE is NULL for a bare word. Both return 0, or -EINVAL, -EOPNOTSUPP, -ENOMEM naming KEY. */
	int (*set)(struct sbx_settings *s, const struct sbx_key *key, const char *value,
	           struct sbx_error *err);
	int (*load)(struct sbx_settings *s, const struct sbx_key *key, struct json_object *value,
	            struct sbx_error *err);
	/* A new object; NULL member: not shown. */
	struct json_object *(*show)(const struct sbx_settings *s, const struct sbx_key *key);
	const char *form; /* of VALUE in --help */
};

struct sbx_key {
	const char *name;
	const struct sbx_kind *kind;
	size_t offset; /* in struct sbx_settings */
	const char *
	        words; /* of a text or flag: what it may be, separated by |; of a number: that for 0 */
	/* Looks at VALUE, not empty, before it is taken; NULL: anything goes. */
	int (*check)(const struct sbx_key *key, const char *value, struct sbx_error *err);
	const char *help;
};

extern const struct sbx_kind sbx_kind_text;   /* char * */
extern const struct sbx_kind sbx_kind_flag;   /* bool; words: those for false and true */
extern const struct sbx_kind sbx_kind_number; /* uint64_t up to SBX_NUMBER_MAX */
extern const struct sbx_kind sbx_kind_list;   /* struct sbx_strings; what is set is added */
extern const struct sbx_kind sbx_kind_env;    /* the same, of KEY=VALUE, merged by KEY */
extern const struct sbx_kind sbx_kind_ctl;    /* char *, or "listed" */
extern const struct sbx_kind sbx_kind_file;   /* refused: options.c has read it */

int sbx_check_ctl(const struct sbx_key *key, const char *value, struct sbx_error *err);
int sbx_check_net(const struct sbx_key *key, const char *value, struct sbx_error *err);
int sbx_check_absolute(const struct sbx_key *key, const char *value, struct sbx_error *err);
int sbx_check_search_path(const struct sbx_key *key, const char *value, struct sbx_error *err);

/* Which of WORDS ("a|b|c") VALUE is, -1: none. Thread-safe. */
int sbx_find_word(const char *words, const char *value);

/* The place of KEY in S. */
static inline void *sbx_key_place(const struct sbx_settings *s, const struct sbx_key *key)
{
	return (char *)(uintptr_t)s + key->offset;
}

/* Whether the value of NAME had better not be shown. */
bool sbx_looks_secret(const char *name);

#endif
