/*
 * The faults of the provider dirs: a few lines of text, which a test puts in place by rename(2)
 * while requests are under way. Counts begin anew with each file.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"
#include "sandboxfs/grow.h"
#include "tests/lib/dirs_impl.h"

#define FAULTS_MAX ((size_t)64 * 1024)

static const char *const words[] = {
        [DIRS_NO_FAULT] = "-",
        [DIRS_LATENCY] = "latency",
        [DIRS_LOST] = "lost",
        [DIRS_STALL] = "stall",
        [DIRS_CUT] = "cut",
        [DIRS_BUSY] = "429",
        [DIRS_BROKEN] = "5xx",
        [DIRS_VANISH] = "vanish",
        [DIRS_ASLEEP] = "asleep",
        [DIRS_HOSTILE] = "hostile",
        [DIRS_BLACKHOLE] = "blackhole",
        [DIRS_LATE] = "late",
        [DIRS_GIVEN_UP] = "given_up",
};

const char *dirs_fault_word(enum dirs_kind kind)
{
	return words[kind];
}

static bool read_kind(const char *word, enum dirs_kind *ret)
{
	for (size_t i = DIRS_LATENCY; i < SBX_ARRAY_SIZE(words); i++)
		if (strcmp(words[i], word) == 0) {
			*ret = (enum dirs_kind)i;
			return true;
		}
	return false;
}

static bool read_number(const char *word, unsigned long *ret)
{
	char *end = NULL;

	*ret = word ? strtoul(word, &end, 10) : 0;
	return word && *word >= '0' && *word <= '9' && *end == '\0';
}

/* The words behind the kind. */
static bool read_limits(char *at, struct dirs_rule *rule)
{
	char *save, *word = strtok_r(at, " \t", &save);

	if (word && strcmp(word, "every") == 0) {
		if (!read_number(strtok_r(NULL, " \t", &save), &rule->every) || !rule->every)
			return false;
		word = strtok_r(NULL, " \t", &save);
	} else if (word && strcmp(word, "all") == 0) {
		word = strtok_r(NULL, " \t", &save);
	} else if (word) {
		if (!read_number(word, &rule->count) || !rule->count)
			return false;
		word = strtok_r(NULL, " \t", &save);
	}
	if (word)
		snprintf(rule->arg, sizeof(rule->arg), "%s", word);
	return !strtok_r(NULL, " \t", &save);
}

static bool read_rule(char *line, struct dirs_rule *rule)
{
	char which[192] = "", kind[16] = "", *at, *colon;
	int n = 0;

	*rule = (struct dirs_rule){0};
	if (sscanf(line, "%191s %15s%n", which, kind, &n) != 2 || !read_kind(kind, &rule->kind))
		return false;
	at = strchr(which, '@');
	if (at)
		*at = '\0';
	colon = strchr(which, ':');
	if (colon)
		*colon = '\0';
	snprintf(rule->machine, sizeof(rule->machine), "%.127s", at ? at + 1 : "");
	snprintf(rule->op, sizeof(rule->op), "%.31s", colon ? colon + 1 : "");
	snprintf(rule->verb, sizeof(rule->verb), "%.15s", which);
	return read_limits(line + n, rule);
}

static int read_rules(struct dirs_faults *f, char *text)
{
	char *save, *line = strtok_r(text, "\n", &save);

	f->n = f->bad = 0;
	for (unsigned number = 1; line; line = strtok_r(NULL, "\n", &save), number++) {
		if (SBX_GROW(f->rules, f->n, f->cap, 8) < 0)
			return -ENOMEM;
		if (!read_rule(line, &f->rules[f->n])) {
			f->bad = number;
			return 0;
		}
		f->n++;
	}
	return 0;
}

/* Reads the file again where it is another than the last time. */
static int refresh(struct dirs_faults *f, int dir)
{
	_cleanup_free_ char *text = NULL;
	struct stat st;
	int r;

	if (fstatat(dir, "faults", &st, 0) < 0) {
		f->n = f->bad = 0;
		f->read = (struct stat){0};
		return errno == ENOENT ? 0 : -errno;
	}
	if (st.st_ino == f->read.st_ino && st.st_size == f->read.st_size &&
	    st.st_ctim.tv_sec == f->read.st_ctim.tv_sec &&
	    st.st_ctim.tv_nsec == f->read.st_ctim.tv_nsec)
		return 0;
	r = sbx_file_read(dir, "faults", FAULTS_MAX, &text);
	if (r < 0)
		return r;
	f->read = st;
	return read_rules(f, text);
}

static bool matches(const struct dirs_rule *rule, const char *machine, const char *verb,
                    const char *op)
{
	return (strcmp(rule->verb, "*") == 0 || strcmp(rule->verb, verb) == 0) &&
	       (!*rule->op || strcmp(rule->op, op) == 0) &&
	       (!*rule->machine || strcmp(rule->machine, machine) == 0);
}

/* A rule that matches comes to FAULT, if it is its turn. */
static void take(struct dirs_rule *rule, struct dirs_fault *fault)
{
	if (rule->kind != DIRS_LATENCY && fault->kind != DIRS_NO_FAULT)
		return;
	rule->matched++;
	if (rule->every ? rule->matched % rule->every != 0
	                : rule->count && rule->matched > rule->count)
		return;
	if (rule->kind == DIRS_LATENCY) {
		fault->latency_ms += strtoull(rule->arg, NULL, 10);
		return;
	}
	fault->kind = rule->kind;
	memcpy(fault->arg, rule->arg, sizeof(fault->arg));
}

int dirs_faults_next(struct dirs_faults *f, int dir, const char *machine, const char *verb,
                     const char *op, struct dirs_fault *ret, struct sbx_error *err)
{
	unsigned bad;
	int r;

	*ret = (struct dirs_fault){0};
	pthread_mutex_lock(&f->lock);
	r = refresh(f, dir);
	bad = f->bad;
	for (size_t i = 0; r == 0 && !bad && i < f->n; i++)
		if (matches(&f->rules[i], machine, verb, op))
			take(&f->rules[i], ret);
	pthread_mutex_unlock(&f->lock);
	if (r < 0)
		return sbx_fail(err, -r, "the file of faults cannot be read: %s", strerror(-r));
	return bad ? sbx_fail(err, EINVAL, "line %u of the file of faults is none", bad) : 0;
}

uint64_t dirs_fault_number(const struct dirs_fault *fault, uint64_t fallback)
{
	return *fault->arg ? strtoull(fault->arg, NULL, 10) : fallback;
}

void dirs_faults_release(struct dirs_faults *f)
{
	free(f->rules);
	pthread_mutex_destroy(&f->lock);
}
