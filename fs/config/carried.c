/*
 * The user's settings of registries and certificates. Only what is known to be no secret is copied,
 * key by key: of what a tool may read tomorrow nobody knows today whether it is one. An address
 * loses the name and password in it, and a line that looks as if it held a token is left out.
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/config/credentials.h"
#include "fs/config/toolchains.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/strv.h"

#define CONFIG_MAX ((size_t)256 * 1024)
#define CERTS_MAX  ((size_t)8 * 1024 * 1024)
#define DIR_MAX    1024 /* files of a directory of certificates */

/* A file of settings, and what of it goes along. */
struct format {
	const char *env;         /* names the file, or NULL */
	const char *places[3];   /* below the home */
	const char *to;          /* below a sandbox's home */
	const char *keys[24];    /* "*:x" is any that ends so */
	const char *sections[6]; /* they begin so; none: all */
};

static const struct format formats[] = {
        {"NPM_CONFIG_USERCONFIG",
         {".npmrc"},
         ".npmrc",
         {"registry", "@*:registry", "cafile", "strict-ssl", "legacy-peer-deps", "engine-strict",
          "save-exact", "save-prefix", "package-lock", "fund", "audit", "ignore-scripts",
          "prefer-offline", "fetch-retries", "fetch-timeout"},
         {NULL}},
        {NULL,
         {".config/pnpm/rc"},
         ".config/pnpm/rc",
         {"registry", "@*:registry", "cafile", "strict-ssl", "node-linker", "shamefully-hoist"},
         {NULL}},
        {"PIP_CONFIG_FILE",
         {".config/pip/pip.conf", ".pip/pip.conf"},
         ".config/pip/pip.conf",
         {"index-url", "extra-index-url", "find-links", "trusted-host", "cert", "no-index",
          "timeout", "retries", "prefer-binary", "only-binary", "no-binary", "require-virtualenv",
          "disable-pip-version-check", "break-system-packages"},
         {NULL}},
        {NULL,
         {".cargo/config.toml", ".cargo/config"},
         ".cargo/config.toml",
         {"replace-with", "registry", "directory", "local-registry", "git", "branch", "index",
          "default", "protocol", "git-fetch-with-cli", "offline", "retry", "cainfo", "check-revoke",
          "multiplexing", "timeout"},
         {"source", "registries", "registry", "net", "http"}},
        {"GOENV",
         {".config/go/env"},
         ".config/go/env",
         {"GOPROXY", "GONOPROXY", "GOSUMDB", "GONOSUMDB", "GOPRIVATE", "GOINSECURE", "GOFLAGS",
          "GOTOOLCHAIN"},
         {NULL}},
        {NULL, {".tool-versions"}, ".tool-versions", {"*"}, {NULL}},
};

/* Whose settings may hold secrets among what is needed, in forms that are not taken apart here. */
static const char *const left_out[] = {".yarnrc.yml",
                                       ".bunfig.toml",
                                       ".m2/settings.xml",
                                       ".condarc",
                                       ".bundle/config",
                                       ".gradle/gradle.properties",
                                       ".config/uv/uv.toml",
                                       ".config/pypoetry/config.toml",
                                       ".config/mise/config.toml"};

/* Variables: addresses and names, */
static const char *const plain_vars[] = {"GOPROXY",
                                         "GONOPROXY",
                                         "GOSUMDB",
                                         "GONOSUMDB",
                                         "GOPRIVATE",
                                         "GOINSECURE",
                                         "GOFLAGS",
                                         "GOTOOLCHAIN",
                                         "NPM_CONFIG_REGISTRY",
                                         "npm_config_registry",
                                         "PIP_INDEX_URL",
                                         "PIP_EXTRA_INDEX_URL",
                                         "PIP_TRUSTED_HOST",
                                         "UV_INDEX",
                                         "UV_INDEX_URL",
                                         "UV_DEFAULT_INDEX",
                                         "UV_EXTRA_INDEX_URL",
                                         "YARN_NPM_REGISTRY_SERVER",
                                         "RUSTUP_DIST_SERVER",
                                         "RUSTUP_UPDATE_ROOT"};

/* and files or directories of certificates. */
static const char *const cert_vars[] = {
        "SSL_CERT_FILE",     "SSL_CERT_DIR",   "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE",
        "CURL_CA_BUNDLE",    "GIT_SSL_CAINFO", "GIT_SSL_CAPATH",      "PIP_CERT",
        "CARGO_HTTP_CAINFO", "AWS_CA_BUNDLE",  "NIX_SSL_CERT_FILE",   "NPM_CONFIG_CAFILE",
        "npm_config_cafile", "DENO_CERT",      "BUNDLE_SSL_CA_CERT"};

struct carrier {
	struct sbx_settings *settings;
	const char *home;
	int error; /* negative: the first */
};

static void note(struct carrier *c, const char *text)
{
	if (!c->error)
		c->error = sbx_strings_add(&c->settings->not_carried, text);
}

/* --- what is no secret --------------------------------------------------------------------------
 */

/* The regular file PATH, NUL-terminated; NULL: there is none, or it is too large. */
static char *read_file(const char *path, size_t max)
{
	_cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	_cleanup_free_ char *text = NULL;
	struct stat st;
	ssize_t n;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || (size_t)st.st_size > max)
		return NULL;
	text = malloc((size_t)st.st_size + 1);
	n = text ? read(fd, text, (size_t)st.st_size) : -1;
	if (n < 0)
		return NULL;
	text[n] = '\0';
	return strlen(text) == (size_t)n ? sbx_steal_ptr(&text) : NULL;
}

/* Takes the name and the password out of the addresses in TEXT. */
static void strip_users(char *text)
{
	char *at = text;

	while ((at = strstr(at, "://"))) {
		char *host = at + 3, *last = NULL;
		size_t n = strcspn(host, "/ \t\"',|");

		for (char *p = host; p < host + n; p++)
			if (*p == '@')
				last = p;
		if (last)
			memmove(host, last + 1, strlen(last + 1) + 1);
		at = host;
	}
}

static bool has_no_key(const char *path)
{
	_cleanup_free_ char *text = read_file(path, CERTS_MAX);

	return text && !strstr(text, "PRIVATE KEY");
}

static bool is_certificates(const char *path)
{
	_cleanup_dir_ DIR *dir = opendir(path);
	char full[PATH_MAX];
	struct dirent *e;
	int n = 0;

	if (!dir) {
		_cleanup_free_ char *text = read_file(path, CERTS_MAX);

		return text && strstr(text, "-----BEGIN ") && strstr(text, "CERTIFICATE-----") &&
		       !strstr(text, "PRIVATE KEY");
	}
	while ((e = readdir(dir))) {
		if (e->d_name[0] == '.')
			continue;
		snprintf(full, sizeof(full), "%.3800s/%.255s", path, e->d_name);
		if (++n > DIR_MAX || !has_no_key(full))
			return false;
	}
	return n > 0;
}

/* Whether commands see the certificates at PATH, or do now. */
static bool show_certificates(struct carrier *c, const char *path)
{
	bool shown = false;

	if (sbx_toolchains_sees(c->settings, path))
		return true;
	if (*path != '/' || !is_certificates(path))
		return false;
	if (!c->error)
		c->error = sbx_toolchains_show(c->settings, path, "certificates", &shown);
	return shown;
}

/* --- a file of settings ----------------------------------------------------------------------- */

static bool matches(const char *pattern, const char *key)
{
	const char *star = strchr(pattern, '*');
	size_t head, tail, n = strlen(key);

	if (!star)
		return strcasecmp(pattern, key) == 0;
	head = (size_t)(star - pattern);
	tail = strlen(star + 1);
	return n >= head + tail && strncmp(pattern, key, head) == 0 &&
	       strcmp(star + 1, key + n - tail) == 0;
}

static bool is_allowed(const struct format *f, const char *section, const char *key)
{
	const char *dot = strrchr(key, '.');
	bool in = !f->sections[0];

	/* TOML: registries.mine.index = ... */
	if (f->sections[0] && dot && !*section) {
		section = key;
		key = dot + 1;
	}
	for (size_t i = 0; !in && i < SBX_ARRAY_SIZE(f->sections) && f->sections[i]; i++) {
		size_t n = strlen(f->sections[i]);

		in = strncmp(section, f->sections[i], n) == 0 && strchr(".]", section[n]);
	}
	for (size_t i = 0; in && i < SBX_ARRAY_SIZE(f->keys) && f->keys[i]; i++)
		if (matches(f->keys[i], key))
			return true;
	return false;
}

struct cleaner {
	struct carrier *c;
	const struct format *format;
	FILE *out;
	char section[256];
	bool kept;        /* the line before, which this one may go on */
	bool skips;       /* all of this section */
	unsigned dropped; /* lines */
};

static bool is_path_key(const char *key)
{
	return strcmp(key, "cafile") == 0 || strcmp(key, "cert") == 0 || strcmp(key, "cainfo") == 0;
}

/* VALUE without quotes, its "~/" and "${HOME}/" being the user's home. */
static void expand(const struct carrier *c, const char *value, char ret[PATH_MAX])
{
	size_t n;

	value += strspn(value, " \t\"'");
	n = strcspn(value, "\"'");
	while (n && isspace((unsigned char)value[n - 1]))
		n--;
	if (strncmp(value, "~/", 2) == 0 || strncmp(value, "${HOME}/", 8) == 0) {
		size_t skip = *value == '~' ? 1 : 7;

		snprintf(ret, PATH_MAX, "%s%.*s", c->home, (int)(n - skip), value + skip);
	} else {
		snprintf(ret, PATH_MAX, "%.*s", (int)n, value);
	}
}

static bool put_path(struct cleaner *cl, const char *key, const char *value)
{
	const bool quoted = cl->format->sections[0] != NULL;
	char path[PATH_MAX];

	expand(cl->c, value, path);
	if (!show_certificates(cl->c, path))
		return false;
	fprintf(cl->out, quoted ? "%s = \"%s\"\n" : "%s = %s\n", key, path);
	return true;
}

static bool put_value(struct cleaner *cl, const char *key, char *value)
{
	if (is_path_key(key))
		return put_path(cl, key, value);
	strip_users(value);
	/* What goes over several lines, or in which keys are nested, is not taken apart. */
	if (sbx_looks_secret(value) || strpbrk(value, "{}") || strstr(value, "\"\"\"") ||
	    strstr(value, "'''") || (*value == '[' && !strchr(value, ']')))
		return false;
	fprintf(cl->out, "%s = %s\n", key, value);
	return true;
}

static bool clean_pair(struct cleaner *cl, char *line)
{
	char *equal = line + strcspn(line, "="), *end = equal;

	if (!*equal)
		return false;
	while (end > line && isspace((unsigned char)end[-1]))
		end--;
	*end = '\0';
	equal++;
	equal += strspn(equal, " \t");
	return is_allowed(cl->format, cl->section, line) && put_value(cl, line, equal);
}

/* "python 3.12.1": words, and nothing that could be an address. */
static bool clean_words(struct cleaner *cl, const char *line)
{
	if (sbx_looks_secret(line) || strpbrk(line, ":@=\"'"))
		return false;
	fprintf(cl->out, "%s\n", line);
	return true;
}

static void clean_line(struct cleaner *cl, char *line)
{
	const bool goes_on = isspace((unsigned char)*line);
	size_t n;

	line += strspn(line, " \t\r");
	n = strlen(line);
	while (n && isspace((unsigned char)line[n - 1]))
		line[--n] = '\0';
	if (!n || strchr("#;", *line))
		return;
	if (*line == '[' && !goes_on) {
		snprintf(cl->section, sizeof(cl->section), "%s", line + strspn(line, "[ \t"));
		cl->kept = false;
		cl->skips = sbx_looks_secret(line) || strstr(line, "://");
		if (!cl->skips)
			fprintf(cl->out, "%s\n", line);
		return;
	}
	if (cl->skips) {
		cl->kept = false;
	} else if (*cl->format->keys[0] == '*') {
		cl->kept = clean_words(cl, line);
	} else if (goes_on && !strchr(line, '=')) {
		strip_users(line);
		cl->kept = cl->kept && !sbx_looks_secret(line);
		if (cl->kept)
			fprintf(cl->out, "    %s\n", line);
	} else {
		cl->kept = clean_pair(cl, line);
	}
	cl->dropped += !cl->kept;
}

static void carry(struct carrier *c, const struct format *format, const char *from, char *text)
{
	struct cleaner cl = {.c = c, .format = format};
	_cleanup_free_ char *out = NULL;
	char *save = NULL, sentence[PATH_MAX + 128];
	size_t size;

	cl.out = open_memstream(&out, &size);
	if (!cl.out) {
		c->error = -ENOMEM;
		return;
	}
	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		clean_line(&cl, line);
	if (fclose(cl.out) != 0)
		c->error = -ENOMEM;
	if (!c->error && size)
		c->error = sbx_strings_add(&c->settings->carried, format->to);
	if (!c->error && size)
		c->error = sbx_strings_add_n(&c->settings->carried, out, size);
	if (cl.dropped) {
		snprintf(sentence, sizeof(sentence),
		         "%s: %u line%s not carried into sandboxes: secrets, or not known to be "
		         "none",
		         from, cl.dropped, cl.dropped == 1 ? " is" : "s are");
		note(c, sentence);
	}
}

static void carry_format(struct carrier *c, const struct format *format)
{
	const char *named = format->env ? getenv(format->env) : NULL;
	char path[PATH_MAX];
	_cleanup_free_ char *text = NULL;

	if (named && *named == '/') {
		snprintf(path, sizeof(path), "%s", named);
		text = read_file(path, CONFIG_MAX);
	}
	for (size_t i = 0; !text && i < SBX_ARRAY_SIZE(format->places) && format->places[i]; i++) {
		snprintf(path, sizeof(path), "%s/%s", c->home, format->places[i]);
		text = read_file(path, CONFIG_MAX);
	}
	if (text)
		carry(c, format, path, text);
}

/* --- variables
 * ------------------------------------------------------------------------------------- */

static void carry_var(struct carrier *c, const char *key, const char *value)
{
	_cleanup_free_ char *text = NULL;

	if (c->error)
		return;
	if (asprintf(&text, "%s=%s", key, value) < 0) {
		text = NULL;
		c->error = -ENOMEM;
		return;
	}
	c->error = sbx_strings_add(&c->settings->tool_env, text);
}

static void leave_var(struct carrier *c, const char *key, const char *why)
{
	char sentence[128];

	snprintf(sentence, sizeof(sentence), "%s is not carried into sandboxes: %s", key, why);
	note(c, sentence);
}

static void carry_plain(struct carrier *c, const char *key)
{
	const char *value = getenv(key);
	_cleanup_free_ char *copy = value && *value ? strdup(value) : NULL;

	if (!copy)
		return;
	strip_users(copy);
	if (sbx_looks_secret(copy))
		leave_var(c, key, "it may hold a secret");
	else
		carry_var(c, key, copy);
}

static void carry_certificates(struct carrier *c, const char *key)
{
	const char *value = getenv(key);

	if (!value || !*value)
		return;
	if (show_certificates(c, value))
		carry_var(c, key, value);
	else
		leave_var(c, key, "what it names is no certificate, or holds a private key");
}

int sbx_carried_find(struct sbx_settings *settings, const char *home)
{
	struct carrier c = {.settings = settings, .home = home};
	char path[PATH_MAX], sentence[PATH_MAX + 64];

	for (size_t i = 0; i < SBX_ARRAY_SIZE(plain_vars); i++)
		carry_plain(&c, plain_vars[i]);
	for (size_t i = 0; i < SBX_ARRAY_SIZE(cert_vars); i++)
		carry_certificates(&c, cert_vars[i]);
	if (*home != '/')
		return c.error;
	for (size_t i = 0; i < SBX_ARRAY_SIZE(formats); i++)
		carry_format(&c, &formats[i]);
	for (size_t i = 0; i < SBX_ARRAY_SIZE(left_out); i++) {
		snprintf(path, sizeof(path), "%s/%s", home, left_out[i]);
		if (access(path, F_OK) == 0) {
			snprintf(sentence, sizeof(sentence), "%s is not carried into sandboxes",
			         path);
			note(&c, sentence);
		}
	}
	return c.error;
}
