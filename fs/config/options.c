/*
 * The command line is read to its end before anything takes effect: the file that config= names
 * comes first although it may stand last. Words that mount(8) and fstab bring along are told
 * from ours by name, so a misspelt key is never passed on to the kernel.
 */
#include "fs/config/options.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/support/fsutil.h"
#include "fs/config/paths.h"
#include "fs/config/settings.h"
#include "fs/util/json.h"
#include "fs/util/nearest.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/strv.h"

#define CONFIG_MAX (1024 * 1024)

struct line {
	struct sbx_strings words;  /* of every -o */
	const char *positional[3]; /* the third is one too many */
	int n;
};

static bool is_one_of(const char *word, const char *const *list, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		size_t len = strlen(list[i]);

		if (list[i][len - 1] == '*' ? strncmp(word, list[i], len - 1) == 0
		                            : strcmp(word, list[i]) == 0)
			return true;
	}
	return false;
}

/* Understood by libfuse, fusermount3 or the kernel. */
static bool is_fuse_word(const char *word)
{
	static const char *const words[] = {
	        "ro",         "rw",
	        "nodev",      "nosuid",
	        "exec",       "noexec",
	        "sync",       "async",
	        "atime",      "noatime",
	        "dirsync",    "nodiratime",
	        "norelatime", "default_permissions",
	};

	return is_one_of(word, words, SBX_ARRAY_SIZE(words));
}

/* For mount(8) alone; and dev and suid, which it passes by default (see check_granted). */
static bool is_fstab_word(const char *word)
{
	static const char *const words[] = {
	        "defaults",  "auto",     "noauto", "user", "user=*", "nouser",   "users", "owner",
	        "group",     "_netdev",  "nofail", "dev",  "suid",   "relatime", "x-*",   "X-*",
	        "comment=*", "diratime", "silent", "loud", "mand",   "nomand",
	};

	return is_one_of(word, words, SBX_ARRAY_SIZE(words));
}

/*
 * Options of other FUSE file systems that ask for nothing but what is so here anyway. max_read is
 * agreed on with the kernel by a session that asks for it, else it refuses every request.
 */
static bool is_habit_word(const char *word)
{
	static const char *const words[] = {
	        "max_read=*",  "nonempty",    "big_writes", "large_read", "use_ino",
	        "readdir_ino", "hard_remove", "intr",       "nointr",
	};

	return is_one_of(word, words, SBX_ARRAY_SIZE(words));
}

/* Options of other FUSE file systems and of mount(8) that cannot hold here; NULL: KEY is none of
 * them. */
static const char *why_not(const char *key)
{
	static const char own_cache[] =
	        "what the kernel may keep is decided for each file, so that what commands and the "
	        "host write is seen at once";
	static const char own_modes[] = "files show the owner and mode that they have";
	static const struct {
		const char *key, *why;
	} refused[] = {
	        {"allow_root", "root enters with allow_other, as every other user"},
	        {"attr_timeout", own_cache},
	        {"entry_timeout", own_cache},
	        {"negative_timeout", own_cache},
	        {"ac_attr_timeout", own_cache},
	        {"noforget", own_cache},
	        {"kernel_cache", own_cache},
	        {"auto_cache", own_cache},
	        {"direct_io", own_cache},
	        {"writeback_cache", own_cache},
	        {"uid", own_modes},
	        {"gid", own_modes},
	        {"umask", own_modes},
	        {"fsname", "it is SOURCE"},
	        {"subtype", "it is sandboxfs"},
	        {"blkdev", "SOURCE is no block device"},
	        {"remount", "unmount and mount anew; sandboxes with work are there again"},
	};

	for (size_t i = 0; i < SBX_ARRAY_SIZE(refused); i++)
		if (strcmp(refused[i].key, key) == 0)
			return refused[i].why;
	return NULL;
}

/* net=allow:a.org,b.org is one word: what follows and looks like a host belongs to it. */
static int add_word(struct sbx_strings *words, const char *word, size_t len)
{
	static const char list[] = "net=allow:";
	int r = sbx_strings_add_n(words, word, len);
	char **last, *added, *joined;

	if (r < 0 || words->n < 2)
		return r;
	last = &words->items[words->n - 2];
	added = last[1];
	if (strncmp(*last, list, sizeof(list) - 1) != 0 || !strpbrk(added, ".:[") ||
	    strchr(added, '=') || is_fstab_word(added))
		return 0;
	if (asprintf(&joined, "%s,%s", *last, added) < 0)
		return -ENOMEM;
	free(*last);
	free(added);
	*last = joined;
	words->items[--words->n] = NULL;
	return 0;
}

/* Splits at commas; "\," is a comma that does not split. */
static int split_words(struct sbx_strings *words, const char *arg)
{
	_cleanup_free_ char *word = malloc(strlen(arg) + 1);
	size_t len = 0;
	int r = word ? 0 : -ENOMEM;

	for (const char *c = arg; !r; c++) {
		if (*c == '\\' && c[1] == ',') {
			word[len++] = *++c;
		} else if (*c && *c != ',') {
			word[len++] = *c;
		} else {
			r = len ? add_word(words, word, len) : 0;
			len = 0;
			if (!*c)
				break;
		}
	}
	return r;
}

/* Asks for something else than a mount. */
static const struct command {
	const char *name; /* first, for sbx_nearest() */
	int letter;       /* 0: none */
	enum sbx_action action;
	const char *help;
} commands[] = {
        {"doctor", 0, SBX_DOCTOR, "what this machine allows, and how to mend what is missing"},
        {"list-state", 0, SBX_LIST_STATE,
         "where the sandboxes of your mounts are kept, mounted or not"},
        {"prune", 0, SBX_PRUNE,
         "removes those of these directories that hold no work, says what is kept"},
        {"skill", 0, SBX_PRINT_SKILL, "MOUNTPOINT/SKILL.md: how a language model uses the tree"},
        {"help", 'h', SBX_HELP, "this text"},
        {"version", 'V', SBX_PRINT_VERSION, "the version"},
};

/* What getopt_long answers for the first of them. */
#define COMMAND_0 0x100

static int unknown_option(const char *word, struct sbx_error *err)
{
	const char *near =
	        sbx_nearest(word, commands, SBX_ARRAY_SIZE(commands), sizeof(commands[0]));
	int shown = sbx_clip(word, strlen(word));

	if (near)
		return sbx_fail(err, EINVAL, "unknown option %.*s; is --%s meant?", shown, word,
		                near);
	return sbx_fail(err, EINVAL, "unknown option %.*s; see --help", shown, word);
}

/* The command of C, an answer of getopt_long, or NULL. */
static const struct command *find_command(int c)
{
	for (size_t i = 0; i < SBX_ARRAY_SIZE(commands); i++)
		if (c == COMMAND_0 + (int)i || (c && c == commands[i].letter))
			return &commands[i];
	return NULL;
}

/* WORD is the one of the command line that C was found in. */
static int take_option(struct sbx_options *opts, struct line *line, int c, const char *word,
                       struct sbx_error *err)
{
	const struct command *command = find_command(c);

	if (command) {
		opts->action = command->action;
		return 0;
	}
	switch (c) {
	case 'o':
		return split_words(&line->words, optarg) < 0 ? sbx_no_memory(err) : 0;
	case 'd':
		opts->settings.debug = true;
		opts->settings.foreground = true;
		return 0;
	case 'f':
		opts->settings.foreground = true;
		return 0;
	case ':':
		return sbx_fail(err, EINVAL, "-%c needs a value; see --help", optopt);
	default:
		if (optopt && optopt < 0x80)
			return sbx_fail(err, EINVAL, "unknown option -%c; see --help", optopt);
		return unknown_option(word, err);
	}
}

static int read_line(struct sbx_options *opts, struct line *line, int argc, char *const *argv,
                     struct sbx_error *err)
{
	struct option longs[SBX_ARRAY_SIZE(commands) + 1] = {0};
	int c, r = 0;

	for (size_t i = 0; i < SBX_ARRAY_SIZE(commands); i++)
		longs[i] = (struct option){.name = commands[i].name, .val = COMMAND_0 + (int)i};
	optind = 0; /* glibc: begin anew */
	opterr = 0;
	/* The leading - hands positional arguments over in order, as option 1. */
	while (!r && (c = getopt_long(argc, argv, "-:o:dfhV", longs, NULL)) != -1) {
		if (c != 1)
			r = take_option(opts, line, c, argv[optind - 1], err);
		else if (line->n < 3)
			line->positional[line->n++] = optarg;
	}
	for (; !r && optind < argc && line->n < 3; optind++)
		line->positional[line->n++] = argv[optind];
	return r;
}

/* Whether one of the words before I sets the same key. */
static bool is_repeated(const struct sbx_strings *words, size_t i)
{
	size_t len = strcspn(words->items[i], "=") + 1;

	for (size_t j = 0; j < i; j++)
		if (strncmp(words->items[j], words->items[i], len) == 0)
			return true;
	return false;
}

/*
 * mount(8) passes dev and suid unasked, and always rw or ro with them: then they are passed over.
 * Who writes them himself wants what is never granted.
 */
static int check_granted(const struct sbx_strings *words, const char *word, struct sbx_error *err)
{
	if (strcmp(word, "dev") != 0 && strcmp(word, "suid") != 0)
		return 0;
	for (size_t i = 0; i < words->n; i++)
		if (!strcmp(words->items[i], "rw") || !strcmp(words->items[i], "ro"))
			return 0;
	return sbx_fail(err, EINVAL, "the option %s is never granted: %s through this mount", word,
	                *word == 'd' ? "there are no devices" : "no program gains rights");
}

static int apply_word(struct sbx_options *opts, const struct sbx_strings *words, size_t i,
                      struct sbx_error *err)
{
	const char *word = words->items[i], *value = strchr(word, '='), *why;
	_cleanup_free_ char *key = strndup(word, strcspn(word, "="));

	if (!key)
		return sbx_no_memory(err);
	if (check_granted(words, word, err) < 0)
		return -EINVAL;
	why = why_not(key);
	if (why)
		return sbx_fail(err, EINVAL, "the option %s is not served: %s", key, why);
	if (is_fstab_word(word) || is_habit_word(word) || strcmp(key, "config") == 0)
		return 0;
	if (strcmp(word, "auto_unmount") == 0) {
		opts->auto_unmount = true;
		return 0;
	}
	if (is_fuse_word(word))
		return sbx_strings_add(&opts->fuse, word) < 0 ? sbx_no_memory(err) : 0;
	if (!is_repeated(words, i))
		sbx_settings_clear(&opts->settings, key);
	return sbx_settings_set(&opts->settings, key, value ? value + 1 : NULL, err);
}

static int load_file(struct sbx_settings *settings, const char *path, struct sbx_error *err)
{
	/* O_NONBLOCK: a FIFO in its place must not hold us up. */
	_cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	_cleanup_free_ char *buf = NULL;
	struct sbx_error inner = SBX_ERROR_INIT;
	ssize_t len;
	int r;

	if (fd < 0)
		return sbx_fail(err, errno, "configuration %s: %s", path, strerror(errno));
	buf = malloc(CONFIG_MAX);
	if (!buf)
		return sbx_no_memory(err);
	len = sbx_read_all(fd, buf, CONFIG_MAX);
	if (len == CONFIG_MAX)
		len = -EFBIG;
	if (len < 0)
		return sbx_fail(err, (int)-len, "configuration %s: %s", path, strerror((int)-len));
	r = sbx_settings_load(settings, buf, (size_t)len, &inner);
	return r < 0 ? sbx_fail(err, -r, "configuration %s: %s", path, inner.text) : 0;
}

/* The user's or the machine's own file, which need not be there. */
int sbx_settings_found(struct sbx_settings *settings, struct sbx_error *err)
{
	const char *xdg = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
	_cleanup_free_ char *user = NULL;
	const char *paths[] = {NULL, "/etc/sandboxfs.json"};
	int n = 0;

	if (xdg && xdg[0] == '/')
		n = asprintf(&user, "%s/sandboxfs.json", xdg);
	if (n >= 0 && user && access(user, F_OK) == 0)
		return load_file(settings, user, err);
	if (n >= 0 && home && home[0] == '/') {
		free(user);
		user = NULL;
		n = asprintf(&user, "%s/.config/sandboxfs.json", home);
	}
	if (n < 0) {
		user = NULL;
		return sbx_no_memory(err);
	}
	paths[0] = user;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(paths); i++)
		if (paths[i] && access(paths[i], F_OK) == 0)
			return load_file(settings, paths[i], err);
	return 0;
}

static int load_config(struct sbx_settings *settings, const struct sbx_strings *words,
                       struct sbx_error *err)
{
	const char *path = NULL;

	for (size_t i = 0; i < words->n; i++) {
		if (strcmp(words->items[i], "config") == 0)
			return sbx_fail(err, EINVAL, "\"config\" needs a value");
		if (strncmp(words->items[i], "config=", 7) == 0)
			path = words->items[i] + 7;
	}
	return path ? load_file(settings, path, err) : sbx_settings_found(settings, err);
}

static int take_positional(struct sbx_options *opts, const struct line *line, const char **ret,
                           struct sbx_error *err)
{
	if (line->n == 0)
		return sbx_fail(err, EINVAL, "the mountpoint is missing; see --help");
	if (line->n > 2)
		return sbx_fail(err, EINVAL, "too many arguments from %s on; see --help",
		                line->positional[2]);
	*ret = line->positional[line->n - 1];
	opts->no_source = line->n == 1;
	if (line->n == 1 || strcmp(line->positional[0], "none") == 0)
		return 0;
	opts->settings.source = strdup(line->positional[0]);
	return opts->settings.source ? 0 : sbx_no_memory(err);
}

static int interpret(struct sbx_options *opts, const struct line *line, struct sbx_error *err)
{
	const char *mountpoint = NULL;
	int r = load_config(&opts->settings, &line->words, err);

	if (!r)
		r = sbx_settings_environment(&opts->settings, err);
	for (size_t i = 0; !r && i < line->words.n; i++)
		r = apply_word(opts, &line->words, i, err);
	if (!r)
		r = take_positional(opts, line, &mountpoint, err);
	return r ? r : sbx_settings_resolve(&opts->settings, mountpoint, err);
}

void sbx_options_release(struct sbx_options *opts)
{
	sbx_settings_release(&opts->settings);
	sbx_strings_release(&opts->fuse);
	*opts = (struct sbx_options){0};
}

int sbx_options_parse(int argc, char *const *argv, struct sbx_options *ret, struct sbx_error *err)
{
	struct sbx_options opts = {.action = SBX_RUN};
	struct line line = {0};
	int r = sbx_settings_defaults(&opts.settings) < 0 ? sbx_no_memory(err) : 0;

	if (!r)
		r = read_line(&opts, &line, argc, argv, err);
	if (!r && opts.action == SBX_RUN)
		r = interpret(&opts, &line, err);
	sbx_strings_release(&line.words);
	if (r < 0)
		sbx_options_release(&opts);
	else
		*ret = opts;
	return r;
}

void sbx_options_walk(void (*fn)(const struct sbx_option_text *option, void *data), void *data)
{
	for (size_t i = 0; i < SBX_ARRAY_SIZE(commands); i++)
		fn(&(struct sbx_option_text){.name = commands[i].name, .help = commands[i].help},
		   data);
}

void sbx_print_help(void)
{
	printf("usage: sandboxfs [SOURCE] MOUNTPOINT [-o key=value,...] [-f] [-d]\n"
	       "       sandboxfs --doctor | --list-state | --prune | --skill | --help | "
	       "--version\n"
	       "\n"
	       "Mounts a file system whose directories are sandboxes. SOURCE is what a new one\n"
	       "holds: a git repository, a plain directory, or none. sandboxfs(1) and\n"
	       "MOUNTPOINT/README tell more.\n"
	       "\n"
	       "  -f            stay in the foreground\n"
	       "  -d            trace calls of the backend to stderr (and -f)\n");
	for (size_t i = 0; i < SBX_ARRAY_SIZE(commands); i++)
		printf("  --%-11s %s\n", commands[i].name, commands[i].help);
	printf("\n"
	       "Keys for -o and, as JSON members, for the configuration file ($XDG_CONFIG_HOME or\n"
	       "~/.config or /etc, sandboxfs.json). A comma in a value is written \\,\n\n");
	sbx_settings_help();
}
