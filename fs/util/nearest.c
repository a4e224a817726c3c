/*
 * Names are compared without their case and what is between their words, so timeoutMs is
 * timeout_ms. What other programs call a thing comes before what merely looks alike.
 */
#include "fs/util/nearest.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "fs/util/json.h"
#include "sandboxfs/cleanup.h"

#define WORD_MAX 64

/* The first row whose name is among those that may be meant. */
static const struct {
	const char *other, *name;
} aliases[] = {
        {"command", "argv"},
        {"cmd", "argv"},
        {"commandline", "argv"},
        {"args", "argv"},
        {"arguments", "argv"},
        {"program", "argv"},
        {"command", "allow"},
        {"commands", "allow"},
        {"environment", "env"},
        {"environ", "env"},
        {"variables", "env"},
        {"vars", "env"},
        {"dir", "cwd"},
        {"directory", "cwd"},
        {"chdir", "cwd"},
        {"workdir", "cwd"},
        {"workingdir", "cwd"},
        {"workingdirectory", "cwd"},
        {"path", "cwd"},
        {"pwd", "cwd"},
        {"timeout", "timeout_ms"},
        {"timeouts", "timeout_ms"},
        {"timeoutsec", "timeout_ms"},
        {"timeoutsecs", "timeout_ms"},
        {"timeoutseconds", "timeout_ms"},
        {"timeoutmillis", "timeout_ms"},
        {"maxtime", "timeout_ms"},
        {"deadline", "timeout_ms"},
        {"input", "stdin"},
        {"name", "id"},
        {"job", "id"},
        {"jobid", "id"},
        {"pty", "tty"},
        {"terminal", "tty"},
        {"limit", "limits"},
        {"ulimits", "limits"},
        {"resources", "limits"},
        {"cpus", "limits"},
        {"memorymb", "limits"},
        {"procs", "limits"},
        {"filemb", "limits"},
        {"diskmb", "limits"},
        {"outputbytes", "limits"},
        {"memory", "memory_mb"},
        {"mem", "memory_mb"},
        {"ram", "memory_mb"},
        {"memory", "limits"},
        {"processes", "procs"},
        {"pids", "procs"},
        {"nproc", "procs"},
        {"output", "output_bytes"},
        {"sandbox", "name"},
        {"id", "name"},
        {"sandbox", "from"},
        {"source", "from"},
        {"parent", "from"},
        {"fork", "from"},
        {"repository", "repo"},
        {"url", "repo"},
        {"url", "remote"},
        {"origin", "remote"},
        {"rev", "base"},
        {"revision", "base"},
        {"ref", "base"},
        {"commit", "base"},
        {"base", "rev"},
        {"snapshot", "rev"},
        {"ref", "rev"},
        {"commit", "rev"},
        {"pullrequest", "pr"},
        {"createpr", "pr"},
        {"openpr", "pr"},
        {"message", "title"},
        {"subject", "title"},
        {"body", "intent"},
        {"description", "intent"},
        {"msg", "message"},
        {"text", "message"},
        {"title", "message"},
        {"description", "message"},
        {"user", "author"},
        {"committer", "author"},
        {"includeignored", "ignored"},
        {"all", "ignored"},
        {"network", "net"},
        {"user", "run_as"},
        {"uid", "run_as"},
        {"sandboxing", "isolation"},
        {"log", "logs_dir"},
};

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* Optimal string alignment: three rows of its table are enough. */
size_t sbx_edits(const char *a, const char *b)
{
	size_t rows[3][WORD_MAX], n = strlen(b);

	if (n >= WORD_MAX || strlen(a) >= WORD_MAX)
		return SIZE_MAX;
	for (size_t j = 0; j <= n; j++)
		rows[0][j] = j;
	for (size_t i = 1; a[i - 1]; i++) {
		size_t *row = rows[i % 3], *above = rows[(i + 2) % 3];

		row[0] = i;
		for (size_t j = 1; j <= n; j++) {
			row[j] = least(least(above[j], row[j - 1]) + 1,
			               above[j - 1] + (a[i - 1] != b[j - 1]));
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				row[j] = least(row[j], rows[(i + 1) % 3][j - 2] + 1);
		}
	}
	return rows[strlen(a) % 3][n];
}

/* The letters and digits of NAME, in lower case; false when there are too many. */
static bool plain(const char *name, char ret[WORD_MAX])
{
	size_t n = 0;

	for (; *name && n < WORD_MAX - 1; name++)
		if (isalnum((unsigned char)*name))
			ret[n++] = (char)tolower((unsigned char)*name);
	ret[n] = '\0';
	return !*name;
}

static const char *name_at(const void *rows, size_t i, size_t stride)
{
	return *(const char *const *)(const void *)((const char *)rows + i * stride);
}

static const char *by_alias(const char *word, const void *rows, size_t n, size_t stride)
{
	for (size_t a = 0; a < SBX_ARRAY_SIZE(aliases); a++)
		for (size_t i = 0; strcmp(aliases[a].other, word) == 0 && i < n; i++)
			if (strcmp(name_at(rows, i, stride), aliases[a].name) == 0)
				return name_at(rows, i, stride);
	return NULL;
}

/* A beginning of a name counts as one edit. */
static size_t apart(const char *word, const char *name)
{
	char known[WORD_MAX];
	size_t d;

	if (!plain(name, known))
		return SIZE_MAX;
	d = sbx_edits(word, known);
	return d && strncmp(word, known, strlen(word)) == 0 ? 1 : d;
}

const char *sbx_nearest(const char *name, const void *rows, size_t n, size_t stride)
{
	char word[WORD_MAX];
	const char *best = NULL;
	size_t closest;

	if (!plain(name, word) || !*word)
		return NULL;
	closest = strlen(word) > 2 ? strlen(word) / 3 + 1 : 2;
	for (size_t i = 0; i < n; i++) {
		size_t d = apart(word, name_at(rows, i, stride));

		if (d == 0)
			return name_at(rows, i, stride);
		if (d < closest) {
			closest = d;
			best = name_at(rows, i, stride);
		}
	}
	name = by_alias(word, rows, n, stride);
	return name ? name : best;
}

const char *sbx_unit_note(const char *key)
{
	static const struct {
		const char *end, *note;
	} units[] = {{"_ms", ", in milliseconds"}, {"_s", ", in seconds"}, {"_mb", ", in MiB"}};
	size_t len = strlen(key);

	for (size_t i = 0; i < SBX_ARRAY_SIZE(units); i++) {
		size_t n = strlen(units[i].end);

		if (len > n && strcmp(key + len - n, units[i].end) == 0)
			return units[i].note;
	}
	return "";
}

int sbx_unknown_key(const char *key, const void *rows, size_t n, size_t stride,
                    struct sbx_error *err)
{
	const char *near = sbx_nearest(key, rows, n, stride);
	int shown = sbx_clip(key, strlen(key));
	char all[200] = "";
	size_t len = 0;

	if (near)
		return sbx_fail(err, EINVAL, "unknown key \"%.*s\"; the nearest is \"%s\"%s", shown,
		                key, near, sbx_unit_note(near));
	for (size_t i = 0; i < n && len < sizeof(all); i++)
		len += (size_t)snprintf(all + len, sizeof(all) - len, "%s%s", i ? ", " : "",
		                        name_at(rows, i, stride));
	return sbx_fail(err, EINVAL, "unknown key \"%.*s\"; there are %s", shown, key, all);
}
