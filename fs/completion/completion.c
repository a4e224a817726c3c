/*
 * completion bash|zsh|fish: prints the completion of sandboxfs for that shell. A program of the
 * build, which is not installed; it knows the options from the table that --help is printed from.
 */
#include <stdio.h>
#include <string.h>

#include "fs/config/options.h"

/* Whether the value of KEY is a file or a directory. */
static bool is_path(const char *key)
{
	const char *dir = strstr(key, "_dir");

	return strcmp(key, "config") == 0 || (dir && !dir[4]);
}

/* TEXT with a backslash before each of SPECIAL. */
static void put_escaped(const char *text, const char *special)
{
	for (; *text; text++) {
		if (strchr(special, *text))
			putchar('\\');
		putchar(*text);
	}
}

/* The words of KEY with SEPARATOR between them. */
static void put_words(const struct sbx_option_text *key, const char *separator)
{
	for (const char *c = key->words; *c; c++)
		*c == '|' ? (void)fputs(separator, stdout) : (void)putchar(*c);
}

static void bash_option(const struct sbx_option_text *option, void *data)
{
	(void)data;
	printf(" --%s", option->name);
}

static void bash_key(const struct sbx_option_text *key, void *data)
{
	(void)data;
	printf("\n%s%s", key->name, key->form ? "=" : "");
}

static void bash_values(const struct sbx_option_text *key, void *data)
{
	(void)data;
	if (is_path(key->name)) {
		printf("\t%s) values=$(compgen -f -- \"${item#*=}\") ;;\n", key->name);
	} else if (key->words) {
		printf("\t%s) values=$'", key->name);
		put_words(key, "\\n");
		puts("' ;;");
	}
}

/*
 * readline replaces what follows the last of COMP_WORDBREAKS, which "=" and ":" mostly are; the
 * keys after -o are one word of the shell. So the whole word is completed, and its beginning taken
 * off.
 */
static void print_bash(void)
{
	puts("# bash completion for sandboxfs\n"
	     "_sandboxfs_keys()\n"
	     "{\n"
	     "\tlocal item=${1##*,} head= values= IFS=$'\\n'\n"
	     "\t[[ $1 != *,* ]] || head=${1%,*},");
	fputs("\tlocal keys='", stdout);
	sbx_settings_walk(bash_key, NULL);
	puts("'\n"
	     "\tif [[ $item != *=* ]]; then\n"
	     "\t\tCOMPREPLY=($(compgen -P \"$head\" -W \"$keys\" -- \"$item\"))\n"
	     "\t\treturn\n"
	     "\tfi\n"
	     "\tcase ${item%%=*} in");
	sbx_settings_walk(bash_values, NULL);
	puts("\tesac\n"
	     "\tCOMPREPLY=($(compgen -P \"$head${item%%=*}=\" -W \"$values\" -- \"${item#*=}\"))\n"
	     "}\n"
	     "\n"
	     "_sandboxfs()\n"
	     "{\n"
	     "\tlocal line=${COMP_LINE:0:COMP_POINT} i\n"
	     "\tlocal word=${line##*[[:space:]]}\n"
	     "\tlocal rest=${line%\"$word\"}\n"
	     "\tCOMPREPLY=()\n"
	     "\tif [[ $rest =~ [[:space:]]-o[[:space:]]*$ ]]; then\n"
	     "\t\t_sandboxfs_keys \"$word\"\n"
	     "\t\tcompopt -o nospace 2>/dev/null\n"
	     "\t\tlocal head=${word%\"${word##*[=:]}\"}\n"
	     "\t\t[[ $COMP_WORDBREAKS == *=* ]] || head=\n"
	     "\t\tfor i in \"${!COMPREPLY[@]}\"; do\n"
	     "\t\t\tCOMPREPLY[i]=${COMPREPLY[i]#\"$head\"}\n"
	     "\t\tdone\n"
	     "\telif [[ $word == -* ]]; then");
	fputs("\t\tCOMPREPLY=($(compgen -W '-o -f -d", stdout);
	sbx_options_walk(bash_option, NULL);
	puts("' -- \"$word\"))\n"
	     "\telse\n"
	     "\t\tCOMPREPLY=($(compgen -d -- \"$word\"))\n"
	     "\t\tcompopt -o filenames 2>/dev/null\n"
	     "\tfi\n"
	     "}\n"
	     "complete -F _sandboxfs sandboxfs");
}

/* In '...', where a quote is '\''; what _arguments and _values take for their own has a backslash.
 */
static void zsh_text(const char *text, const char *special)
{
	for (; *text; text++) {
		if (*text == '\'') {
			fputs("'\\''", stdout);
			continue;
		}
		if (strchr(special, *text))
			putchar('\\');
		putchar(*text);
	}
}

static void zsh_option(const struct sbx_option_text *option, void *data)
{
	(void)data;
	printf("\t'(- *)--%s[", option->name);
	zsh_text(option->help, "[]\\");
	puts("]' \\");
}

static void zsh_key(const struct sbx_option_text *key, void *data)
{
	(void)data;
	printf("\t\t'%s[", key->name);
	zsh_text(key->help, "[]\\:");
	fputs("]", stdout);
	if (is_path(key->name)) {
		fputs(":path:_files", stdout);
	} else if (key->words) {
		fputs(":value:(", stdout);
		put_words(key, " ");
		fputs(")", stdout);
	} else if (key->form) {
		fputs(":value: ", stdout);
	}
	puts("' \\");
}

static void print_zsh(void)
{
	puts("#compdef sandboxfs\n"
	     "\n"
	     "_sandboxfs_keys() {\n"
	     "\t_values -s , key \\");
	sbx_settings_walk(zsh_key, NULL);
	puts("\t\t&& return 0\n"
	     "}\n"
	     "\n"
	     "_arguments \\");
	sbx_options_walk(zsh_option, NULL);
	puts("\t'-f[stay in the foreground]' \\\n"
	     "\t'-d[trace calls of the backend]' \\\n"
	     "\t'*-o[options of the mount]:key:_sandboxfs_keys' \\\n"
	     "\t'1:source or mountpoint:_directories' \\\n"
	     "\t'2:mountpoint:_directories'");
}

static void fish_option(const struct sbx_option_text *option, void *data)
{
	(void)data;
	printf("complete -c sandboxfs -l %s -f -d '", option->name);
	put_escaped(option->help, "'\\");
	puts("'");
}

static void fish_key(const struct sbx_option_text *key, void *data)
{
	const char *word = key->words;

	(void)data;
	if (!word) {
		printf("\tprintf '%%s\\t%%s\\n' '%s%s' '", key->name, key->form ? "=" : "");
		put_escaped(key->help, "'\\");
		puts("'");
		return;
	}
	for (size_t n; n = strcspn(word, "|"), n; word += n + (word[n] == '|')) {
		printf("\tprintf '%%s\\t%%s\\n' '%s=%.*s' '", key->name, (int)n, word);
		put_escaped(key->help, "'\\");
		puts("'");
	}
}

static void print_fish(void)
{
	puts("# fish completion for sandboxfs\n"
	     "function __sandboxfs_keys");
	sbx_settings_walk(fish_key, NULL);
	puts("end\n"
	     "\n"
	     "complete -c sandboxfs -x -a '(__fish_complete_directories)'");
	sbx_options_walk(fish_option, NULL);
	puts("complete -c sandboxfs -s f -f -d 'stay in the foreground'\n"
	     "complete -c sandboxfs -s d -f -d 'trace calls of the backend'\n"
	     "complete -c sandboxfs -s o -x -d 'options of the mount' \\\n"
	     "\t-a '(__fish_complete_list , __sandboxfs_keys)'");
}

int main(int argc, char *argv[])
{
	static const struct {
		const char *name;
		void (*print)(void);
	} shells[] = {{"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}};

	for (size_t i = 0; argc == 2 && i < sizeof(shells) / sizeof(*shells); i++) {
		if (strcmp(argv[1], shells[i].name) == 0) {
			shells[i].print();
			return 0;
		}
	}
	fputs("usage: completion bash|zsh|fish\n", stderr);
	return 1;
}
