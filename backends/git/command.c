#include "backends/git/command.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "backends/support/fsutil.h"
#include "sandboxfs/cleanup.h"

#define DEPTH_MAX 8
/* Stands in a word for what is only known when the line runs. */
#define UNKNOWN '\1'

struct line {
	const struct sbx_git_trees *trees;
	const char *at;
	char *word; /* as long as the text */
	struct sbx_strings words;
	unsigned depth;
	bool leads_in;
};

static bool judge(const struct sbx_git_trees *trees, const char *text, unsigned depth);

/* ---- paths ---- */

static bool is_below(const char *path, const char *top)
{
	const size_t n = strlen(top);

	return strncmp(path, top, n) == 0 && (path[n] == '/' || !path[n]);
}

static bool climbs(const char *path)
{
	const char *at = strstr(path, "/..");

	return at && (at[3] == '/' || !at[3] || climbs(at + 3));
}

static bool absolute_leads_in(const struct sbx_git_trees *trees, const char *path)
{
	_cleanup_free_ char *plain = strdup(path);
	char *out = plain;

	if (!plain || climbs(path))
		return true;
	/* Without what changes nothing. */
	for (const char *c = path; *c; c++) {
		if (c[0] == '/' && (c[1] == '/' || (c[1] == '.' && (c[2] == '/' || !c[2])))) {
			c += c[1] == '.';
			continue;
		}
		*out++ = *c;
	}
	*out = '\0';
	for (size_t i = 0; trees->paths[i]; i++)
		if (is_below(plain, trees->paths[i]))
			return true;
	return false;
}

static bool home_leads_in(const struct sbx_git_trees *trees, const char *path)
{
	_cleanup_free_ char *full = NULL;

	/* Somebody else's, or unknown: no tree of ours is meant by that. */
	if (path[1] != '/' || !trees->home)
		return climbs(path);
	full = sbx_format("%s%s", trees->home, path + 1);
	return !full || absolute_leads_in(trees, full);
}

bool sbx_git_path_leads_in(const struct sbx_git_trees *trees, const char *path, bool named)
{
	if (*path == '/')
		return absolute_leads_in(trees, path);
	if (*path == '~')
		return home_leads_in(trees, path);
	/* Where git itself is installed. */
	if (strncmp(path, "%(prefix)/", 10) == 0)
		return climbs(path);
	return *path && (!named || strchr(path, '/'));
}

/* ---- programs ---- */

static const char *base_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/*
 * Whether NAME is one of LIST, whose items end with blanks; versions behind it (python3.11) do
 * not count.
 */
static bool is_one_of(const char *name, const char *list)
{
	size_t n = strlen(name);

	while (n > 1 && (isdigit((unsigned char)name[n - 1]) || name[n - 1] == '.'))
		n--;
	while (*list) {
		const size_t len = strcspn(list, " ");

		if (len == n && memcmp(list, name, n) == 0)
			return true;
		list += len + strspn(list + len, " ");
	}
	return false;
}

static bool is_shell(const char *name)
{
	return is_one_of(name, "sh bash dash zsh ksh mksh ash fish busybox");
}

static bool is_interpreter(const char *name)
{
	return is_one_of(name, "python pypy perl ruby node nodejs deno bun php lua luajit tclsh "
	                       "wish java Rscript guile groovy pwsh osascript . source");
}

/* They run the rest of the words. */
static bool is_wrapper(const char *name)
{
	return is_one_of(name, "env exec command builtin nice nohup time timeout sudo doas xargs "
	                       "setsid ionice stdbuf unbuffer chronic eval if then elif else "
	                       "while until do ! { winpty flock script");
}

/* Whether NAME is a program that runs others which files of the current directory name. */
static bool is_runner(const char *name)
{
	return is_one_of(name,
	                 "npx npm pnpm pnpx yarn bunx make gmake cargo go rake bundle bundler "
	                 "composer poetry pipenv pdm hatch uv uvx pre-commit husky lefthook "
	                 "lint-staged tox nox just task gradle mvn ant ninja meson cmake dotnet "
	                 "mix grunt gulp nx turbo eslint prettier direnv mise asdf rebar stack "
	                 "cabal sbt lein bazel scons overcommit trunk invoke fab vagrant docker "
	                 "docker-compose podman nix nix-shell devbox earthly dagger terraform");
}

/* A path in their arguments is read at most, or is none: s/a/b/, origin/main. */
static bool only_reads(const char *name)
{
	return is_one_of(name, "sed awk gawk mawk tr grep egrep fgrep cut sort uniq head tail cat "
	                       "echo printf test [ [[ fold fmt expand unexpand col colrm iconv "
	                       "diff cmp wc cd git gitk tee read case for in true false export "
	                       "unset set shift return exit local");
}

static bool is_assignment(const char *word)
{
	const size_t n = strspn(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	                              "0123456789_");

	return n && !isdigit((unsigned char)*word) && word[n] == '=';
}

/* Whether WORD says a path that is relative by its looks. */
static bool is_dotted(const char *word)
{
	return !strncmp(word, "./", 2) || !strncmp(word, "../", 3) || strstr(word, "=./") ||
	       strstr(word, "=../");
}

static bool argument_leads_in(const struct sbx_git_trees *trees, const char *word, bool reads)
{
	if (is_dotted(word))
		return true;
	if (*word == '/' || *word == '~')
		return sbx_git_path_leads_in(trees, word, true);
	if (reads || *word == UNKNOWN || strstr(word, "://"))
		return false;
	if (*word == '-')
		return strstr(word, "=~") == NULL && strchr(word, '=') &&
		       sbx_git_path_leads_in(trees, strchr(word, '=') + 1, true);
	return strchr(word, '/') != NULL;
}

/* WORDS, which ends with NULL, are those behind a shell's name. */
static bool shell_leads_in(const struct line *l, char *const *words)
{
	for (; *words; words++) {
		const char *word = *words;

		if (*word != '-' && *word != '+')
			return *word != '/' || sbx_git_path_leads_in(l->trees, word, false);
		if (word[0] == '-' && word[1] != '-' && strchr(word, 'c'))
			return !words[1] || judge(l->trees, words[1], l->depth + 1);
	}
	return true;
}

static bool interpreter_leads_in(const struct line *l, const char *name, char *const *words)
{
	/* These look for modules where they are told to, not in the current directory. */
	const bool inline_code = is_one_of(name, "perl ruby");

	for (; *words; words++) {
		const char *word = *words;

		if (*word != '-')
			return *word != '/' || sbx_git_path_leads_in(l->trees, word, false);
		if (is_dotted(word) || strchr(word, '/') || word[1] == 'I')
			return true;
		if (inline_code && word[1] != '-' && !strpbrk(word, "IMmrS") &&
		    (strchr(word, 'e') || strchr(word, 'E')))
			return !words[1];
	}
	return true;
}

/* WORDS, which ends with NULL, are one command. */
static bool words_lead_in(const struct line *l, char *const *words)
{
	const char *name;
	bool reads;

	for (; *words && is_assignment(*words); words++)
		if (is_dotted(*words))
			return true;
	if (!*words)
		return false;
	if (strchr(*words, UNKNOWN) || sbx_git_path_leads_in(l->trees, *words, true))
		return true;
	name = base_of(*words++);
	if (is_wrapper(name)) {
		while (*words && (**words == '-' || isdigit((unsigned char)**words)))
			if (is_dotted(*words++))
				return true;
		return words_lead_in(l, words) ||
		       (!strcmp(name, "eval") && *words && judge(l->trees, *words, l->depth + 1));
	}
	if (is_shell(name))
		return shell_leads_in(l, words);
	if (is_interpreter(name))
		return interpreter_leads_in(l, name, words);
	if (is_runner(name))
		return true;
	for (reads = only_reads(name); *words; words++)
		if (argument_leads_in(l->trees, *words, reads))
			return true;
	return false;
}

/* ---- the shell's words ---- */

/* The command that was read ends here. */
static void end_command(struct line *l)
{
	if (!l->leads_in && l->words.n)
		l->leads_in = words_lead_in(l, l->words.items);
	sbx_strings_release(&l->words);
}

/* Judges the text from FROM to TO as a command line of its own. */
static void run_within(struct line *l, const char *from, const char *to)
{
	_cleanup_free_ char *text = strndup(from, (size_t)(to - from));

	if (!text || judge(l->trees, text, l->depth + 1))
		l->leads_in = true;
}

/* Where the parenthesis that is open at FROM is closed, or the text's end. */
static const char *find_close(const char *from, char open, char close)
{
	unsigned deep = 1;

	for (; *from; from++) {
		if (*from == '\\' && from[1])
			from++;
		else if (*from == open)
			deep++;
		else if (*from == close && --deep == 0)
			break;
	}
	return from;
}

/* From the '$'. *OUT grows by what it stands for. */
static void expand(struct line *l, char **out)
{
	const char *from = ++l->at;

	if (*from == '(') {
		l->at = find_close(from + 1, '(', ')');
		run_within(l, from + 1, l->at);
		l->at += *l->at != '\0';
	} else if (*from == '{') {
		l->at = find_close(from + 1, '{', '}');
		l->at += *l->at != '\0';
	} else if (isalpha((unsigned char)*from) || *from == '_') {
		while (isalnum((unsigned char)*l->at) || *l->at == '_')
			l->at++;
	} else if (*from) {
		l->at++;
	}
	if (!strncmp(from, "{HOME}/", 7) || !strncmp(from, "HOME/", 5))
		*(*out)++ = '~';
	else
		*(*out)++ = UNKNOWN;
}

static void backquoted(struct line *l, char **out)
{
	const char *from = ++l->at;

	while (*l->at && *l->at != '`')
		l->at += l->at[0] == '\\' && l->at[1] ? 2 : 1;
	run_within(l, from, l->at);
	l->at += *l->at != '\0';
	*(*out)++ = UNKNOWN;
}

static void double_quoted(struct line *l, char **out)
{
	for (l->at++; *l->at && *l->at != '"';) {
		if (*l->at == '$') {
			expand(l, out);
		} else if (*l->at == '`') {
			backquoted(l, out);
		} else {
			if (*l->at == '\\' && l->at[1] && strchr("$`\"\\\n", l->at[1]))
				l->at++;
			*(*out)++ = *l->at++;
		}
	}
	l->at += *l->at != '\0';
}

static void single_quoted(struct line *l, char **out)
{
	for (l->at++; *l->at && *l->at != '\'';)
		*(*out)++ = *l->at++;
	l->at += *l->at != '\0';
}

static void read_word(struct line *l)
{
	char *out = l->word;

	while (*l->at && !strchr(" \t\n;&|()<>", *l->at)) {
		if (*l->at == '$') {
			expand(l, &out);
		} else if (*l->at == '`') {
			backquoted(l, &out);
		} else if (*l->at == '"') {
			double_quoted(l, &out);
		} else if (*l->at == '\'') {
			single_quoted(l, &out);
		} else {
			if (*l->at == '\\' && l->at[1])
				l->at++;
			*out++ = *l->at++;
		}
	}
	*out = '\0';
}

static void read_line(struct line *l)
{
	bool target = false; /* of a redirection comes next */

	while (*l->at && !l->leads_in) {
		const char c = *l->at;

		if (c == ' ' || c == '\t') {
			l->at++;
		} else if (c == '#') {
			l->at += strcspn(l->at, "\n");
		} else if (c == '<' || c == '>') {
			l->at += 1 + strspn(l->at + 1, "<>&|");
			target = true;
		} else if (strchr("\n;&|()", c)) {
			l->at++;
			end_command(l);
		} else {
			read_word(l);
			if (!target && !strcmp(l->word, "}"))
				end_command(l);
			else if (!target && sbx_strings_add(&l->words, l->word))
				l->leads_in = true;
			target = false;
		}
	}
	end_command(l);
}

static bool judge(const struct sbx_git_trees *trees, const char *text, unsigned depth)
{
	struct line l = {.trees = trees, .at = text, .depth = depth};

	if (depth > DEPTH_MAX)
		return true;
	l.word = malloc(strlen(text) + 2);
	if (!l.word)
		return true;
	read_line(&l);
	free(l.word);
	return l.leads_in;
}

bool sbx_git_command_leads_in(const struct sbx_git_trees *trees, const char *line)
{
	return judge(trees, line, 0);
}
