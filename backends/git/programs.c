/* The table stands alone, so that it can be held against git's documentation. */
#include "backends/git/programs.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <git2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/git/config.h"
#include "backends/git/import_objects.h"
#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/mitigations.h"

#define FAILS "false"
#define PLAIN "not filtered; an error where the filter is required"

/* clang-format off */
static const struct sbx_git_program known[] = {
	{"alias.*", SBX_GIT_BANG, "!" FAILS, "the alias fails"},
	{"browser.*.cmd", SBX_GIT_SHELL, FAILS, "no browser is started"},
	{"browser.*.path", SBX_GIT_PROGRAM, "", "the browser of that name in PATH"},
	{"core.alternaterefscommand", SBX_GIT_SHELL, "true", "no refs of alternates are told"},
	{"core.askpass", SBX_GIT_SHELL, "", "git asks at the terminal"},
	{"core.editor", SBX_GIT_SHELL, FAILS, "messages are given with -m or -F"},
	{"core.fsmonitor", SBX_GIT_CHOICE, "false", "git looks at every file itself"},
	{"core.gitproxy", SBX_GIT_SHELL, NULL, NULL},
	{"core.hookspath", SBX_GIT_DIR, "/dev/null", "no hooks"},
	{"core.pager", SBX_GIT_SHELL, "cat", "no pager"},
	{"core.sshcommand", SBX_GIT_SHELL, FAILS, "no remote is reached by ssh"},
	{"credential.helper", SBX_GIT_HELPER, "", "the other helpers"},
	{"credential.*.helper", SBX_GIT_HELPER, "", "the other helpers"},
	{"diff.external", SBX_GIT_SHELL, FAILS, "git diff fails without --no-ext-diff"},
	{"diff.guitool", SBX_GIT_TOOL, "", "git's own choice"},
	{"diff.tool", SBX_GIT_TOOL, "", "git's own choice"},
	{"diff.*.command", SBX_GIT_SHELL, FAILS, "git diff fails without --no-ext-diff"},
	{"diff.*.textconv", SBX_GIT_SHELL, "cat", "the contents as they are"},
	{"difftool.*.cmd", SBX_GIT_SHELL, FAILS, "the tool fails"},
	{"difftool.*.path", SBX_GIT_PROGRAM, "", "the tool of that name in PATH"},
	{"filter.*.clean", SBX_GIT_SHELL, "", PLAIN},
	{"filter.*.process", SBX_GIT_SHELL, "", PLAIN},
	{"filter.*.smudge", SBX_GIT_SHELL, "", PLAIN},
	{"gc.recentobjectshook", SBX_GIT_SHELL, NULL, NULL},
	{"gpg.program", SBX_GIT_PROGRAM, FAILS, "nothing is signed or verified"},
	{"gpg.*.program", SBX_GIT_PROGRAM, FAILS, "nothing is signed or verified"},
	{"gpg.ssh.defaultkeycommand", SBX_GIT_SHELL, FAILS, "no default key"},
	{"guitool.*.cmd", SBX_GIT_SHELL, FAILS, "the tool fails"},
	{"help.browser", SBX_GIT_TOOL, "", "git's own choice"},
	{"hook.*.command", SBX_GIT_SHELL, "true", "no such hook"},
	{"imap.tunnel", SBX_GIT_SHELL, FAILS, "no server is reached"},
	{"init.templatedir", SBX_GIT_DIR, "", "an empty template"},
	{"instaweb.browser", SBX_GIT_TOOL, "", "git's own choice"},
	{"instaweb.httpd", SBX_GIT_SHELL, FAILS, "no server is started"},
	{"instaweb.modulepath", SBX_GIT_DIR, "/dev/null", "no modules"},
	{"interactive.difffilter", SBX_GIT_SHELL, "cat", "not filtered"},
	{"lfs.customtransfer.*.path", SBX_GIT_PROGRAM, FAILS, "the transfer fails"},
	{"lfs.extension.*.clean", SBX_GIT_SHELL, FAILS, "git lfs fails"},
	{"lfs.extension.*.smudge", SBX_GIT_SHELL, FAILS, "git lfs fails"},
	{"man.*.cmd", SBX_GIT_SHELL, FAILS, "the viewer fails"},
	{"man.*.path", SBX_GIT_PROGRAM, "man", "man"},
	{"merge.guitool", SBX_GIT_TOOL, "", "git's own choice"},
	{"merge.tool", SBX_GIT_TOOL, "", "git's own choice"},
	{"merge.*.driver", SBX_GIT_SHELL, "git merge-file %A %O %B", "merged as text"},
	{"mergetool.*.cmd", SBX_GIT_SHELL, FAILS, "the tool fails"},
	{"mergetool.*.path", SBX_GIT_PROGRAM, "", "the tool of that name in PATH"},
	{"pager.*", SBX_GIT_CHOICE, "cat", "no pager"},
	{"remote.*.receivepack", SBX_GIT_SHELL, NULL, NULL},
	{"remote.*.uploadpack", SBX_GIT_SHELL, NULL, NULL},
	{"remote.*.pushurl", SBX_GIT_TRANSPORT, NULL, NULL},
	{"remote.*.url", SBX_GIT_TRANSPORT, NULL, NULL},
	{"remote.*.vcs", SBX_GIT_TOOL, "none", "the remote is not reached"},
	{"sendemail.cccmd", SBX_GIT_SHELL, "true", "nobody is added"},
	{"sendemail.headercmd", SBX_GIT_SHELL, "true", "nothing is added"},
	{"sendemail.sendmailcmd", SBX_GIT_SHELL, FAILS, "nothing is sent"},
	{"sendemail.smtpserver", SBX_GIT_PROGRAM, "/dev/null", "nothing is sent"},
	{"sendemail.tocmd", SBX_GIT_SHELL, "true", "nobody is added"},
	{"sendemail.*.cccmd", SBX_GIT_SHELL, "true", "nobody is added"},
	{"sendemail.*.headercmd", SBX_GIT_SHELL, "true", "nothing is added"},
	{"sendemail.*.sendmailcmd", SBX_GIT_SHELL, FAILS, "nothing is sent"},
	{"sendemail.*.smtpserver", SBX_GIT_PROGRAM, "/dev/null", "nothing is sent"},
	{"sendemail.*.tocmd", SBX_GIT_SHELL, "true", "nobody is added"},
	{"sequence.editor", SBX_GIT_SHELL, FAILS, "git rebase -i fails"},
	{"submodule.*.update", SBX_GIT_BANG, "none", "the submodule stays as it is"},
	{"submodule.*.url", SBX_GIT_TRANSPORT, NULL, NULL},
	{"svn.authorsprog", SBX_GIT_SHELL, FAILS, "git svn fails"},
	{"tar.*.command", SBX_GIT_SHELL, FAILS, "git archive fails"},
	{"trailer.*.cmd", SBX_GIT_SHELL, "true", "an empty trailer"},
	{"trailer.*.command", SBX_GIT_SHELL, "true", "an empty trailer"},
	{"uploadpack.packobjectshook", SBX_GIT_SHELL, NULL, NULL},
	{"url.*.insteadof", SBX_GIT_TRANSPORT, NULL, NULL},
	{"url.*.pushinsteadof", SBX_GIT_TRANSPORT, NULL, NULL},
	{"web.browser", SBX_GIT_TOOL, "", "git's own choice"},
	{NULL, SBX_GIT_SHELL, NULL, NULL},
};
/* clang-format on */

const struct sbx_git_program *sbx_git_program_find(const char *key)
{
	for (const struct sbx_git_program *p = known; p->key; p++) {
		/* Without a subsection there are no two dots. */
		const bool deep = strchr(strchr(p->key, '.') + 1, '.') != NULL;
		const char *dot = strchr(key, '.');

		if ((deep || !dot || !strchr(dot + 1, '.') || !strncmp(p->key, "alias.", 6)) &&
		    fnmatch(p->key, key, 0) == 0)
			return p;
	}
	return NULL;
}

/* The program behind "ext::", or NULL. */
static const char *transport_of(const char *key, const char *value)
{
	/* There it is what stands between the dots that counts. */
	const char *url = strncmp(key, "url.", 4) == 0 ? key + 4 : value;

	return strncmp(url, "ext::", 5) == 0 ? url + 5 : NULL;
}

bool sbx_git_program_leads_in(const struct sbx_git_program *program, const char *key,
                              const char *value, const struct sbx_git_trees *trees)
{
	if (!value)
		return false;
	switch (program->value) {
	case SBX_GIT_CHOICE:
		return !sbx_git_config_is_bool(value) && sbx_git_command_leads_in(trees, value);
	case SBX_GIT_BANG:
		return *value == '!' && sbx_git_command_leads_in(trees, value + 1);
	case SBX_GIT_HELPER:
		return sbx_git_command_leads_in(trees, *value == '!' ? value + 1 : value);
	case SBX_GIT_PROGRAM:
		return sbx_git_path_leads_in(trees, value, true);
	case SBX_GIT_DIR:
		return sbx_git_path_leads_in(trees, value, false);
	case SBX_GIT_TOOL:
		return strchr(value, '/') && sbx_git_path_leads_in(trees, value, true);
	case SBX_GIT_TRANSPORT:
		value = transport_of(key, value);
		return value && sbx_git_command_leads_in(trees, value);
	case SBX_GIT_SHELL:
		break;
	}
	return sbx_git_command_leads_in(trees, value);
}

#define CONFIG_MAX   (4 << 20)
#define INCLUDES_MAX 10 /* as git has it */
#define FILES_MAX    256
#define OURS         "sandboxfs.programs"

/* One setting of the table that was read. */
struct setting {
	const struct sbx_git_program *program;
	char *key, *value; /* VALUE may be NULL */
	bool leads_in;
	bool sure; /* no condition decides whether git reads it */
};

struct reading {
	const struct sbx_git_guard *guard;
	struct sbx_git_trees trees; /* with the home of whose settings are read */
	struct setting *items;
	size_t n;
	unsigned files;
	bool extended; /* extensions.worktreeConfig: the worktree has settings of its own */
	struct sbx_error *err;
};

/* One file, and how it was come to. */
struct file {
	struct reading *r;
	const char *path;
	unsigned depth;
	bool sure;
};

/* ---- reading ---- */

static void free_settings(struct reading *r)
{
	for (size_t i = 0; i < r->n; i++) {
		free(r->items[i].key);
		free(r->items[i].value);
	}
	free(r->items);
}

static int add_setting(const struct file *f, const struct sbx_git_program *program, const char *key,
                       const char *value)
{
	struct reading *r = f->r;
	struct setting *grown = reallocarray(r->items, r->n + 1, sizeof(*grown));
	struct setting s = {
	        .program = program,
	        .key = strdup(key),
	        .value = value ? strdup(value) : NULL,
	        .leads_in = sbx_git_program_leads_in(program, key, value, &r->trees),
	        .sure = f->sure,
	};

	if (grown)
		r->items = grown;
	if (!grown || !s.key || (value && !s.value)) {
		free(s.key);
		free(s.value);
		return -ENOMEM;
	}
	r->items[r->n++] = s;
	return 0;
}

static int read_file(struct reading *r, const char *path, unsigned depth, bool sure);

/* PATH as it stands in F: against the home, or the directory of that file. NULL without memory. */
static char *included_path(const struct file *f, const char *path)
{
	const char *slash = strrchr(f->path, '/');

	if (*path == '/')
		return strdup(path);
	if (path[0] == '~' && path[1] == '/' && f->r->trees.home)
		return sbx_format("%s%s", f->r->trees.home, path + 1);
	return sbx_format("%.*s/%s", (int)(slash - f->path), f->path, path);
}

static int include(const struct file *f, const char *key, const char *value)
{
	_cleanup_free_ char *path = NULL;
	const char *base;

	if (!value || !*value)
		return 0;
	path = included_path(f, value);
	if (!path)
		return -ENOMEM;
	base = strrchr(path, '/') + 1;
	if (strncmp(base, OURS, strlen(OURS)) == 0)
		return 0;
	if (sbx_git_path_leads_in(&f->r->trees, path, false))
		return sbx_fail(f->r->err, EPERM,
		                "%s includes a file of a sandbox's tree, so git is not let there",
		                f->path);
	return read_file(f->r, path, f->depth + 1, f->sure && !strcmp(key, "include.path"));
}

static bool is_include(const char *key)
{
	const size_t n = strlen(key);

	return !strcmp(key, "include.path") ||
	       (!strncmp(key, "includeif.", 10) && n > 15 && !strcmp(key + n - 5, ".path"));
}

static int take(const char *key, const char *value, void *data)
{
	const struct file *f = data;
	const struct sbx_git_program *program;

	if (is_include(key))
		return include(f, key, value);
	if (!strcmp(key, "extensions.worktreeconfig"))
		f->r->extended = !value || (strcasecmp(value, "false") && strcmp(value, "0") &&
		                            strcasecmp(value, "no") && strcasecmp(value, "off"));
	program = sbx_git_program_find(key);
	return program ? add_setting(f, program, key, value) : 0;
}

/* The text of PATH, which may be a link. *RET is NULL where there is none. */
static int read_text(const char *path, char **ret)
{
	_cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat st;
	char *text;
	size_t n = 0;

	*ret = NULL;
	/* git passes over what it may not read as well. */
	if (fd < 0)
		return errno == ENOENT || errno == ENOTDIR || errno == EACCES ? 0 : -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return 0;
	if (st.st_size > CONFIG_MAX)
		return -EFBIG;
	text = malloc((size_t)st.st_size + 1);
	while (text && n < (size_t)st.st_size) {
		const ssize_t got = read(fd, text + n, (size_t)st.st_size - n);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			break;
		n += (size_t)got;
	}
	if (!text)
		return -ENOMEM;
	text[n] = '\0';
	*ret = text;
	return 0;
}

static int read_file(struct reading *r, const char *path, unsigned depth, bool sure)
{
	_cleanup_free_ char *text = NULL;
	struct file f = {.r = r, .path = path, .depth = depth, .sure = sure};
	int x;

	if (depth > INCLUDES_MAX || r->files++ > FILES_MAX)
		return sbx_fail(r->err, EPERM, "%s: git's settings include too many files", path);
	x = read_text(path, &text);
	if (!x && text)
		x = sbx_git_config_parse(text, take, &f);
	if (x && !r->err->code)
		sbx_fail(r->err, x == -EINVAL ? EPERM : -x, "%s: git's settings cannot be read: %s",
		         path, strerror(-x));
	return r->err->code ? -r->err->code : 0;
}

static int read_found(struct reading *r, int (*find)(git_buf *))
{
	git_buf path = GIT_BUF_INIT;
	int x = find(&path) < 0 ? 0 : read_file(r, path.ptr, 0, true);

	git_buf_dispose(&path);
	return x;
}

static int read_home(struct reading *r, const char *name, bool sure)
{
	_cleanup_free_ char *path = r->trees.home ? sbx_format("%s/%s", r->trees.home, name) : NULL;

	return path ? read_file(r, path, 0, sure) : 0;
}

static int read_other_home(struct reading *r)
{
	const char *home = r->trees.home;
	int x;

	if (!r->guard->other_home)
		return 0;
	r->trees.home = r->guard->other_home;
	x = read_home(r, ".config/git/config", false);
	if (!x)
		x = read_home(r, ".gitconfig", false);
	r->trees.home = home;
	return x;
}

static int read_named(struct reading *r, const char *variable)
{
	const char *path = getenv(variable);

	return path && *path == '/' ? read_file(r, path, 0, true) : 0;
}

static int read_at(struct reading *r, const char *rest)
{
	_cleanup_free_ char *path = sbx_format("%s/%s", r->guard->common, rest);

	return path ? read_file(r, path, 0, true) : -ENOMEM;
}

static int read_worktree(struct reading *r)
{
	_cleanup_free_ char *rest = NULL;

	rest = sbx_format("worktrees/%s/config.worktree", r->guard->worktree);
	return rest ? read_at(r, rest) : -ENOMEM;
}

/* All that git reads everywhere, in its order: what comes later counts. */
static int read_all(struct reading *r)
{
	int x = read_found(r, git_config_find_system);

	if (!x)
		x = read_named(r, "GIT_CONFIG_SYSTEM");
	if (!x)
		x = read_found(r, git_config_find_xdg);
	if (!x)
		x = read_home(r, ".config/git/config", true);
	if (!x)
		x = read_found(r, git_config_find_global);
	if (!x)
		x = read_home(r, ".gitconfig", true);
	if (!x)
		x = read_named(r, "GIT_CONFIG_GLOBAL");
	if (!x)
		x = read_other_home(r);
	return x ? x : read_at(r, "config");
}

/* ---- what is to be set to nothing ---- */

/* Whether something of KEY that counts leads in. */
static bool is_wanted(const struct reading *r, const char *key)
{
	const struct setting *last = NULL;

	for (size_t i = 0; i < r->n; i++) {
		const struct setting *s = &r->items[i];

		if (strcmp(s->key, key) != 0)
			continue;
		/* Each of several helpers is run, and a first proxy counts. */
		if (s->leads_in &&
		    (!s->sure || !s->program->nothing || s->program->value == SBX_GIT_HELPER))
			return true;
		if (s->sure)
			last = s;
	}
	return last && last->leads_in;
}

static bool is_first(const struct reading *r, size_t i)
{
	for (size_t k = 0; k < i; k++)
		if (strcmp(r->items[k].key, r->items[i].key) == 0)
			return false;
	return true;
}

static void put_quoted(FILE *out, const char *text)
{
	fputc('"', out);
	for (; *text; text++) {
		if (*text == '\n') {
			fputs("\\n", out);
			continue;
		}
		if (*text == '"' || *text == '\\')
			fputc('\\', out);
		fputc(*text, out);
	}
	fputc('"', out);
}

/* KEY = VALUE, with a section of its own. */
static void put_setting(FILE *out, const char *key, const char *value)
{
	const char *first = strchr(key, '.'), *last = strrchr(key, '.');

	fprintf(out, "[%.*s", (int)(first - key), key);
	if (last > first) {
		_cleanup_free_ char *sub = strndup(first + 1, (size_t)(last - first - 1));

		fputc(' ', out);
		put_quoted(out, sub ? sub : "");
	}
	fprintf(out, "]\n\t%s", last + 1);
	if (value) {
		fputs(" = ", out);
		put_quoted(out, value);
	}
	fputc('\n', out);
}

/* An empty one makes git forget all: those that are harmless follow it. */
static void put_helpers(FILE *out, const struct reading *r)
{
	bool any = false;

	for (size_t i = 0; i < r->n; i++)
		any |= r->items[i].program->value == SBX_GIT_HELPER && r->items[i].leads_in;
	if (!any)
		return;
	put_setting(out, "credential.helper", "");
	for (size_t i = 0; i < r->n; i++) {
		const struct setting *s = &r->items[i];

		if (s->program->value == SBX_GIT_HELPER && s->sure && !s->leads_in)
			put_setting(out, s->key, s->value);
	}
}

/* The text of our file, with the keys in it; *RET is NULL when nothing leads in. */
static int make_text(const struct reading *r, char **ret, struct sbx_strings *keys)
{
	size_t size, had = keys->n;
	FILE *out = open_memstream(ret, &size);
	int x = 0;

	if (!out)
		return -ENOMEM;
	fputs("# What git does not take from the trees of sandboxes; written anew as needed.\n",
	      out);
	for (size_t i = 0; i < r->n && !x; i++) {
		const struct setting *s = &r->items[i];

		if (!is_first(r, i) || !is_wanted(r, s->key))
			continue;
		if (!s->program->nothing) {
			x = sbx_fail(
			        r->err, EPERM,
			        "%s leads into the tree, which git cannot be kept from otherwise: "
			        "change it, or mount with -o git_programs=tree",
			        s->key);
			break;
		}
		if (s->program->value != SBX_GIT_HELPER)
			put_setting(out, s->key, s->program->nothing);
		x = sbx_strings_add(keys, s->key);
	}
	put_helpers(out, r);
	if (fclose(out) != 0 && !x)
		x = -ENOMEM;
	if (x || keys->n == had) {
		free(*ret);
		*ret = NULL;
	}
	return x;
}

/* ---- writing ---- */

/*
 * The same as TEXT at the end of the file NAME in DIR, and nowhere else; without END it is taken
 * away.
 */
static char *with_end(const char *was, const char *block, bool end)
{
	const size_t n = strlen(block);
	const char *at = strstr(was, block);
	_cleanup_free_ char *without =
	        at ? sbx_format("%.*s%s", (int)(at - was), was, at + n) : strdup(was);
	const size_t len = without ? strlen(without) : 0;

	if (!without || !end)
		return sbx_steal_ptr(&without);
	return sbx_format("%s%s%s", without, len && without[len - 1] != '\n' ? "\n" : "", block);
}

static int write_locked(int dir, const char *name, const char *lock, mode_t mode, const char *text)
{
	_cleanup_fd_ int fd =
	        openat(dir, lock, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	int r;

	if (fd < 0)
		return errno == EEXIST ? -EBUSY : -errno;
	r = fchmod(fd, mode & 0777) < 0 ? -errno : sbx_write_all(fd, text, strlen(text));
	if (!r && fsync(fd) < 0)
		r = -errno;
	if (!r && renameat(dir, lock, dir, name) < 0)
		r = -errno;
	if (r)
		unlinkat(dir, lock, 0);
	return r;
}

/*
 * As git changes NAME in DIR: under its lock, read again there. A link would be replaced, so it
 * is refused.
 */
static int set_end(int dir, const char *name, const char *block, bool end)
{
	_cleanup_free_ char *lock = sbx_format("%s.lock", name);
	_cleanup_free_ char *was = NULL;
	_cleanup_free_ char *text = NULL;
	struct stat st;
	int r;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT && !end ? 0 : -errno;
	r = S_ISREG(st.st_mode) ? sbx_file_read(dir, name, CONFIG_MAX, &was) : -ELOOP;
	if (r)
		return end ? r : 0;
	text = with_end(was, block, end);
	if (!lock || !text)
		return -ENOMEM;
	return strcmp(text, was) == 0 ? 0 : write_locked(dir, name, lock, st.st_mode, text);
}

/* Our file NAME in DIR says TEXT, or is not there. */
static int set_file(int dir, const char *name, const char *text)
{
	_cleanup_free_ char *temp = sbx_format("%s.new", name);
	_cleanup_free_ char *was = NULL;

	if (!temp)
		return -ENOMEM;
	if (!text)
		return unlinkat(dir, name, 0) < 0 && errno != ENOENT ? -errno : 0;
	if (sbx_file_read(dir, name, CONFIG_MAX, &was) == 0 && strcmp(was, text) == 0)
		return 0;
	return sbx_file_replace(dir, name, temp, text);
}

/*
 * FILE in DIR, of COMMON's owner, says TEXT before CONFIG leads there, and is there as long as it
 * does.
 */
static int put_in(const char *common, int dir, const char *config, const char *block,
                  const char *file, const char *text)
{
	struct sbx_git_owner owner = sbx_git_owner_begin(common);
	int r = text ? set_file(dir, file, text) : set_end(dir, config, block, false);

	if (!r)
		r = text ? set_end(dir, config, block, true) : set_file(dir, file, NULL);
	sbx_git_owner_end(&owner);
	return r;
}

static int put_common(const struct sbx_git_guard *guard, const char *text)
{
	_cleanup_fd_ int dir = open(guard->common, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_free_ char *file = sbx_format(OURS "-%s", guard->mark);
	_cleanup_free_ char *block = sbx_format(
	        "[includeIf \"gitdir:./worktrees/" SBX_GIT_ENTRIES "\"]\n\tpath = %s\n", file);

	if (dir < 0)
		return -errno;
	return file && block ? put_in(guard->common, dir, "config", block, file, text) : -ENOMEM;
}

/* Its own settings come after the source's. */
static int put_worktree(const struct reading *r, const char *text)
{
	static const char block[] = "[include]\n\tpath = " OURS "\n";
	_cleanup_free_ char *path =
	        sbx_format("%s/worktrees/%s", r->guard->common, r->guard->worktree);
	_cleanup_fd_ int dir =
	        path ? open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;

	if (dir < 0)
		return path ? -errno : -ENOMEM;
	if (faccessat(dir, "config.worktree", F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	return put_in(r->guard->common, dir, "config.worktree", block, OURS, text);
}

static int guard_common(struct reading *r, struct sbx_strings *keys)
{
	_cleanup_free_ char *text = NULL;
	int x = read_all(r);

	if (!x)
		x = make_text(r, &text, keys);
	if (!x)
		x = put_common(r->guard, text);
	/* Nothing leads in: what stands there does no harm. */
	return x && !r->err->code && !text ? 0 : x;
}

/* Behind guard_common. */
static int guard_worktree(struct reading *r, struct sbx_strings *keys)
{
	_cleanup_free_ char *text = NULL;
	int x = read_worktree(r);

	sbx_strings_release(keys);
	*keys = (struct sbx_strings){0};
	if (!x)
		x = make_text(r, &text, keys);
	if (!x)
		x = put_worktree(r, text);
	return x && !r->err->code && !text ? 0 : x;
}

int sbx_git_programs_guard(const struct sbx_git_guard *guard, struct sbx_strings *keys,
                           struct sbx_error *err)
{
	struct sbx_error why = SBX_ERROR_INIT;
	struct reading r = {.guard = guard, .trees = guard->trees, .err = &why};
	int x;

	if (sbx_mitigation_off("git_programs"))
		return 0;
	x = guard_common(&r, keys);
	if (!x && r.extended && guard->worktree)
		x = guard_worktree(&r, keys);
	if (x && !why.code)
		sbx_fail(&why, -x,
		         "settings of git's lead into the tree, and %s/config cannot be changed so "
		         "that git does not go by them: %s; -o git_programs=tree goes by them",
		         guard->common, strerror(-x));
	free_settings(&r);
	if (why.code && err)
		*err = why;
	return why.code ? -why.code : 0;
}

int sbx_git_programs_look(const struct sbx_git_guard *guard, struct sbx_strings *keys)
{
	struct sbx_error why = SBX_ERROR_INIT;
	struct reading r = {.guard = guard, .trees = guard->trees, .err = &why};
	_cleanup_free_ char *text = NULL;
	int x = read_all(&r);

	if (!x)
		x = make_text(&r, &text, keys);
	free_settings(&r);
	return x;
}

int sbx_git_programs_forget(const char *common, const char *mark)
{
	const struct sbx_git_guard guard = {.common = common, .mark = mark};

	return put_common(&guard, NULL);
}
