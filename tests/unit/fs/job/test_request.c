/* Requests in their three encodings, whole and in pieces. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fs/job/request.h"
#include "sandboxfs/clock.h"

#define HINT "use [\"sh\",\"-c\",\"...\"]"

static struct sbx_request_parser parser;
static struct sbx_request req;
static struct sbx_create_request creq;
static struct sbx_error err;

static int set_up(void **state)
{
	(void)state;
	sbx_request_parser_init(&parser);
	err = SBX_ERROR_INIT;
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	sbx_request_release(&req);
	sbx_create_request_release(&creq);
	sbx_request_parser_finish(&parser);
	return 0;
}

static void feed_bytes(const char *data, size_t len)
{
	assert_int_equal(sbx_request_parser_feed(&parser, data, len, &err), 0);
}

static void feed(const char *text)
{
	feed_bytes(text, strlen(text));
}

static int next(bool final)
{
	err = SBX_ERROR_INIT;
	sbx_request_release(&req);
	return sbx_request_parser_next(&parser, final, &req, &err);
}

/* "[ls][-l]" */
static const char *shown_argv(void)
{
	static char text[4096];
	size_t n = 0;

	text[0] = '\0';
	for (char **a = req.argv; a && *a; a++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "[%s]", *a);
	return text;
}

static void expect(const char *argv)
{
	assert_int_equal(next(false), 1);
	assert_string_equal(shown_argv(), argv);
}

static void expect_refusal(const char *text, int code, const char *sentence)
{
	feed(text);
	if (next(true) != -code || !strstr(err.text, sentence))
		fail_msg("%s: %d %s", text, err.code, err.text);
	assert_int_equal(err.code, code);
	assert_false(sbx_request_parser_pending(&parser));
	assert_int_equal(next(true), 0);
}

/* Text */

static void line_is_split_at_blanks(void **state)
{
	(void)state;
	feed("  ls\t -l  x \n");
	expect("[ls][-l][x]");
	assert_int_equal(next(true), 0);
	assert_int_equal(req.set, 0);
}

static void quotes_are_those_of_the_shell(void **state)
{
	(void)state;
	feed("a 'b c' \"d e\" f\\ g h'i'\"j\" '' \"\"\n");
	expect("[a][b c][d e][f g][hij][][]");
	feed("echo '\\n$x`' \"a\\$b\\`c\\\"d\\\\e\\n\" \\$ \\| \\'\n");
	expect("[echo][\\n$x`][a$b`c\"d\\e\\n][$][|][']");
}

static void a_quote_does_not_carry_a_line_on(void **state)
{
	(void)state;
	feed("sh -c 'a\n");
	assert_int_equal(next(false), -EINVAL);
	assert_non_null(strstr(err.text, "unclosed quote"));
	feed("echo \"a\\\nc\"\n");
	expect("[echo][ac]");
}

static void backslash_continues_a_line(void **state)
{
	(void)state;
	feed("ec\\\nho a \\\n");
	assert_int_equal(next(false), 0);
	feed(" b\n");
	expect("[echo][a][b]");
}

static void what_no_shell_would_act_upon_is_literal(void **state)
{
	(void)state;
	feed("echo '*' a\\? [x] '~' \"~/x\" '#c' a#b {a,b} ! X=1 % HEAD~1 HEAD^{tree} @{u}\n");
	expect("[echo][*][a?][[x]][~][~/x][#c][a#b][{a,b}][!][X=1][%][HEAD~1][HEAD^{tree}][@{u}]");
	feed("make V=1\n");
	expect("[make][V=1]");
}

static void what_is_a_shells_own_is_refused_with_a_hint(void **state)
{
	static const char *const bad[][2] = {
	        {"ls *.c\n", "* is for a shell"},  {"ls --x=?\n", "? is for a shell"},
	        {"ls ~/x\n", "~ is for a shell"},  {"make # all\n", "# is for a shell"},
	        {"cd src\n", "ctl/cwd"},           {"FOO=1 make\n", "{\"env\":{\"FOO\""},
	        {"export A=1\n", "\"sh\",\"-c\""}, {". ./env\n", "\"sh\",\"-c\""},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		expect_refusal(bad[i][0], EINVAL, bad[i][1]);
}

static void a_return_before_the_newline_is_dropped(void **state)
{
	(void)state;
	feed("echo a\r\n\r\necho 'b\r' c\rd\r\n");
	expect("[echo][a]");
	expect("[echo][b\r][c\rd]");
	feed_bytes("echo\0a\r\n\0", 10);
	expect("[echo][a\r\n]");
}

static void comments_and_a_byte_order_mark_are_skipped(void **state)
{
	(void)state;
	feed("\xef");
	assert_int_equal(next(false), 0);
	feed("\xbb\xbf# first | * \n  # second\necho a\n# end");
	expect("[echo][a]");
	assert_int_equal(next(false), 0);
	assert_int_equal(next(true), 0);
	assert_false(sbx_request_parser_pending(&parser));
}

static void utf16_is_refused(void **state)
{
	static const char sentence[] = "the request is in UTF-16: write it in UTF-8";

	(void)state;
	feed_bytes("\xff\xfe\145\0c\0h\0o\0", 10);
	expect_refusal("x", EINVAL, sentence);
	feed("\xfe");
	assert_int_equal(next(false), 0);
	expect_refusal("\xff", EINVAL, sentence);
}

static void half_a_mark_is_a_word(void **state)
{
	(void)state;
	feed("\xff");
	assert_int_equal(next(false), 0);
	feed("x a\n");
	expect("[\xffx][a]");
}

static void bytes_that_are_not_utf8_pass_in_a_line(void **state)
{
	(void)state;
	feed("cat \xff\x01\n");
	expect("[cat][\xff\x01]");
}

static void shell_operators_are_refused_with_a_hint(void **state)
{
	static const char *const bad[] = {
	        "ls | wc\n",     "ls &\n",         "a; b\n",    "a < b\n",    "a > b\n",
	        "(a)\n",         "a )\n",          "echo $X\n", "echo `a`\n", "a&&b\n",
	        "echo \"$X\"\n", "echo \"`a`\"\n", "a 2>&1\n",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		expect_refusal(bad[i], EINVAL, HINT);
}

static void unclosed_quote_is_refused_at_the_end(void **state)
{
	(void)state;
	feed("echo it's");
	assert_int_equal(next(false), 0);
	assert_true(sbx_request_parser_pending(&parser));
	assert_int_equal(next(true), -EINVAL);
	assert_non_null(strstr(err.text, "unclosed quote"));
	expect_refusal("echo \"a\n", EINVAL, "unclosed quote");
	expect_refusal("echo a\\", EINVAL, "backslash");
}

static void several_lines_are_taken_in_order(void **state)
{
	(void)state;
	feed("one\n\n  \ntwo 2\n[\"three\"]\nfour");
	expect("[one]");
	expect("[two][2]");
	expect("[three]");
	assert_int_equal(next(false), 0);
	assert_true(sbx_request_parser_pending(&parser));
	assert_int_equal(next(true), 1);
	assert_string_equal(shown_argv(), "[four]");
	assert_int_equal(next(true), 0);
}

static void refused_line_takes_the_rest_along(void **state)
{
	(void)state;
	feed("a | b\nrm x\n");
	assert_int_equal(next(false), -EINVAL);
	assert_int_equal(next(true), 0);
	assert_false(sbx_request_parser_pending(&parser));
}

static void blank_input_is_no_request(void **state)
{
	(void)state;
	assert_int_equal(next(true), 0);
	feed(" \n\t\r\n");
	assert_false(sbx_request_parser_pending(&parser));
	assert_int_equal(next(true), 0);
	feed("\\\n\\\n\n");
	assert_int_equal(next(true), 0);
}

static void empty_program_name_is_refused(void **state)
{
	(void)state;
	expect_refusal("'' a\n", EINVAL, "empty");
	expect_refusal("[\"\"]", EINVAL, "empty");
	feed_bytes("\0a\0\0", 4);
	assert_int_equal(next(false), -EINVAL);
}

/* NUL-separated */

static void empty_last_element_ends_a_nul_request(void **state)
{
	(void)state;
	feed_bytes("ls\0a b\0", 7);
	assert_int_equal(next(false), 0);
	feed_bytes("\0", 1);
	expect("[ls][a b]");
	assert_int_equal(next(true), 0);
}

static void end_of_data_ends_a_nul_request(void **state)
{
	(void)state;
	feed_bytes("ls\0|\0", 5);
	assert_int_equal(next(true), 1);
	assert_string_equal(shown_argv(), "[ls][|]");
	feed_bytes("ls\0-l", 5);
	assert_int_equal(next(true), 1);
	assert_string_equal(shown_argv(), "[ls][-l]");
}

static void empty_argument_does_not_cut_a_nul_request(void **state)
{
	(void)state;
	feed_bytes("grep\0\0file\0", 11);
	assert_int_equal(next(false), 0);
	assert_int_equal(next(true), 1);
	assert_string_equal(shown_argv(), "[grep][][file]");
	feed_bytes("grep\0\0\0", 7);
	expect("[grep][]");
}

static void program_named_bracket_is_not_json(void **state)
{
	(void)state;
	feed("[");
	assert_int_equal(next(false), 0);
	feed_bytes("\0-f\0x\0]\0\0", 9);
	expect("[[][-f][x][]]");
	expect_refusal("[", EINVAL, "incomplete JSON");
	expect_refusal("[ -f x ]", EINVAL, "use test -f x, or [\"[\",\"-f\"");
	expect_refusal("[ \"$a\" = b ]\n", EINVAL, "use test -f x");
	expect_refusal("[[ -f x ]]\n", EINVAL, "use test -f x");
	expect_refusal("[ \"a\", ]", EINVAL, "invalid JSON");
}

static void newlines_are_data_in_a_nul_request(void **state)
{
	(void)state;
	feed_bytes("sh\0-c\0a\nb\n\0\0", 12);
	expect("[sh][-c][a\nb\n]");
}

static void nul_request_without_elements_is_refused(void **state)
{
	(void)state;
	feed_bytes("\0", 1);
	assert_int_equal(next(false), -EINVAL);
	assert_string_equal(err.text, "empty argv");
}

/* JSON */

static void array_is_an_argv(void **state)
{
	(void)state;
	feed("[\"grep\",\"-r\",\"a b\"]");
	expect("[grep][-r][a b]");
}

static void object_may_span_lines_and_writes(void **state)
{
	(void)state;
	feed(" {\n");
	assert_int_equal(next(false), 0);
	feed("\"argv\":[\"ls\"\n");
	assert_int_equal(next(false), 0);
	feed("]}\n");
	expect("[ls]");
	assert_false(sbx_request_parser_pending(&parser));
}

static void object_members_are_taken(void **state)
{
	(void)state;
	feed("{\"argv\":[\"a\"],\"cwd\":\"src\",\"env\":{\"K\":\"V=1\",\"_2\":\"\"},"
	     "\"timeout_ms\":5000,\"stdin\":\"t\\n\",\"id\":\"build\",\"tty\":false,"
	     "\"limits\":{\"cpu_s\":1,\"memory_mb\":2,\"procs\":3,\"file_mb\":4,\"disk_mb\":5,"
	     "\"output_bytes\":0}}");
	expect("[a]");
	assert_string_equal(req.cwd, "src");
	assert_string_equal(req.env[0], "K=V=1");
	assert_string_equal(req.env[1], "_2=");
	assert_null(req.env[2]);
	assert_int_equal(req.timeout_ms, 5000);
	assert_string_equal(req.stdin_data, "t\n");
	assert_int_equal(req.stdin_len, 2);
	assert_string_equal(req.id, "build");
	assert_int_equal(req.limits.cpu_s, 1);
	assert_int_equal(req.limits.memory_mb, 2);
	assert_int_equal(req.limits.procs, 3);
	assert_int_equal(req.limits.file_mb, 4);
	assert_int_equal(req.limits.disk_mb, 5);
	assert_int_equal(req.set, (1 << 9) - 1);
}

static void null_stdin_is_set_and_empty(void **state)
{
	(void)state;
	feed("{\"argv\":[\"a\"],\"stdin\":null,\"tty\":null}");
	expect("[a]");
	assert_int_equal(req.set, SBX_REQ_STDIN);
	assert_null(req.stdin_data);
}

static void bad_members_are_refused_by_name(void **state)
{
	static const char *const bad[][2] = {
	        {"{}", "\"argv\" is missing"},
	        {"[]", "empty argv"},
	        {"{\"argv\":[]}", "empty argv"},
	        {"{\"argv\":\"ls\"}", "\"argv\" must be an array of strings"},
	        {"[\"ls\",1]", "\"argv\" must be an array of strings"},
	        {"[null]", "\"argv\" must be an array of strings"},
	        {"{\"argv\":[\"a\"],\"cwd\":1}", "\"cwd\" must be a string"},
	        {"{\"argv\":[\"a\"],\"cwd\":null}", "\"cwd\" must be a string"},
	        {"{\"argv\":[\"a\"],\"env\":[]}", "\"env\" must be an object of strings"},
	        {"{\"argv\":[\"a\"],\"env\":{\"K\":1}}", "\"env\" must be an object of strings"},
	        {"{\"argv\":[\"a\"],\"timeout_ms\":-1}", "\"timeout_ms\" must be an integer"},
	        {"{\"argv\":[\"a\"],\"timeout_ms\":1.5}", "\"timeout_ms\" must be an integer"},
	        {"{\"argv\":[\"a\"],\"timeout_ms\":\"1\"}", "\"timeout_ms\" must be an integer"},
	        {"{\"argv\":[\"a\"],\"timeout_ms\":9999999999999999999}", "too large"},
	        /* more than 64 bits: json-c 0.18 refuses it by itself */
	        {"{\"argv\":[\"a\"],\"timeout_ms\":99999999999999999999}", ""},
	        {"{\"argv\":[\"a\"],\"stdin\":{}}", "\"stdin\" must be a string or null"},
	        {"{\"argv\":[\"a\"],\"limits\":3}", "\"limits\" must be an object"},
	        {"{\"argv\":[\"a\"],\"limits\":{\"cpu_s\":true}}", "\"cpu_s\" must be an integer"},
	        {"{\"argv\":[\"a\"],\"limits\":{\"jobs\":1}}",
	         "\"jobs\" is a limit of the sandbox"},
	        {"{\"argv\":[\"a\"],\"limits\":{\"mem\":1}}",
	         "unknown key \"mem\"; the nearest is \"memory_mb\", in MiB"},
	        {"{\"argv\":[\"a\"],\"limits\":{\"porcs\":1}}", "the nearest is \"procs\""},
	        {"{\"argv\":[\"a\"],\"memory_mb\":1}", "the nearest is \"limits\""},
	        {"{\"command\":\"a\"}", "the nearest is \"argv\""},
	        {"{\"cmd\":[\"a\"]}", "the nearest is \"argv\""},
	        {"{\"agrv\":[\"a\"]}", "the nearest is \"argv\""},
	        {"{\"argv\":[\"a\"],\"timeout\":5}",
	         "the nearest is \"timeout_ms\", in milliseconds"},
	        {"{\"argv\":[\"a\"],\"timeoutMs\":5}", "the nearest is \"timeout_ms\""},
	        {"{\"argv\":[\"a\"],\"workingDirectory\":\"\"}", "the nearest is \"cwd\""},
	        {"{\"argv\":[\"a\"],\"environment\":{}}", "the nearest is \"env\""},
	        {"{\"argv\":[\"a\"],\"input\":\"\"}", "the nearest is \"stdin\""},
	        {"{\"argv\":[\"a\"],\"id\":1}", "\"id\" must be a string"},
	        {"{\"argv\":[\"a\"],\"id\":\"7\"}", "invalid job id \"7\""},
	        {"{\"argv\":[\"a\"],\"tty\":1}", "\"tty\" must be"},
	        {"{\"argv\":[\"a\"],\"shell\":true}",
	         "unknown key \"shell\"; there are argv, cwd, env, id"},
	        {"{\"argv\":[\"a\"],\"argv\":[\"b\"]}", "duplicate key \"argv\""},
	        {"{\"argv\":[\"a\"],\"env\":{\"A B\":\"\"}}", "Invalid env key \"A B\""},
	        {"{\"argv\":[\"a\\u0000b\"]}", "u0000"},
	        {"{\"argv\":[\"\xff\"]}", "not UTF-8"},
	        {"{\"argv\":[\"a\"", "incomplete JSON"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		expect_refusal(bad[i][0], EINVAL, bad[i][1]);
	expect_refusal("{\"argv\":[\"a\"],\"tty\":true}", EOPNOTSUPP, "terminal");
}

static void wrong_json_is_refused_before_it_is_complete(void **state)
{
	(void)state;
	feed("{\"argv\":[\"a\"}");
	assert_int_equal(next(false), -EINVAL);
	feed("[a");
	assert_int_equal(next(false), -EINVAL);
}

static void a_thousand_levels_are_refused_at_the_33rd(void **state)
{
	char deep[1000];

	(void)state;
	memset(deep, '[', sizeof(deep));
	feed_bytes(deep, sizeof(deep));
	assert_int_equal(next(false), -EINVAL);
}

static void only_blanks_may_follow_a_json_request(void **state)
{
	(void)state;
	expect_refusal("[\"a\"] x\n", EINVAL, "trailing data");
	expect_refusal("[\"a\"][\"b\"]", EINVAL, "trailing data");
	feed("[\"a\"] \t\r\n[\"b\"]");
	expect("[a]");
	expect("[b]");
}

/* Size and pieces */

static void more_than_a_mebibyte_is_refused_for_good(void **state)
{
	char *big = malloc(SBX_REQUEST_MAX + 1);

	(void)state;
	memset(big, 'a', SBX_REQUEST_MAX + 1);
	feed_bytes(big, SBX_REQUEST_MAX);
	assert_int_equal(next(false), 0);
	assert_int_equal(sbx_request_parser_feed(&parser, "a", 1, &err), -E2BIG);
	assert_int_equal(err.code, E2BIG);
	assert_int_equal(next(true), 0);
	sbx_request_parser_reset(&parser);
	assert_int_equal(sbx_request_parser_feed(&parser, "\n", 1, &err), -E2BIG);
	sbx_request_parser_init(&parser);
	assert_int_equal(sbx_request_parser_feed(&parser, big, SBX_REQUEST_MAX + 1, &err), -E2BIG);
	free(big);
}

static void a_mebibyte_is_accepted(void **state)
{
	char *big = malloc(SBX_REQUEST_MAX);

	(void)state;
	memset(big, 'a', SBX_REQUEST_MAX);
	big[SBX_REQUEST_MAX - 1] = '\n';
	feed_bytes(big, SBX_REQUEST_MAX);
	assert_int_equal(next(false), 1);
	assert_int_equal(strlen(req.argv[0]), SBX_REQUEST_MAX - 1);
	feed_bytes(big, SBX_REQUEST_MAX);
	free(big);
}

/* Feeds TEXT in pieces of N bytes, asking each time; returns how many requests came. */
static int feed_in_pieces(const char *text, size_t len, size_t n)
{
	int count = 0;

	for (size_t at = 0; at < len; at += n) {
		feed_bytes(text + at, len - at < n ? len - at : n);
		while (next(false) == 1)
			count++;
		assert_int_equal(err.code, 0);
	}
	return count;
}

static void pieces_cost_no_more_than_the_whole(void **state)
{
	char *big = malloc(SBX_REQUEST_MAX);
	uint64_t begin = sbx_now_ns();

	(void)state;
	memset(big, 'a', SBX_REQUEST_MAX);
	memcpy(big, "[\"", 2);
	memcpy(big + SBX_REQUEST_MAX - 2, "\"]", 2);
	assert_int_equal(feed_in_pieces(big, SBX_REQUEST_MAX, 1), 1);
	memset(big, 'a', SBX_REQUEST_MAX);
	big[SBX_REQUEST_MAX - 1] = '\n';
	assert_int_equal(feed_in_pieces(big, SBX_REQUEST_MAX, 1), 1);
	for (size_t i = 1; i < SBX_REQUEST_MAX; i += 2)
		big[i] = '\n';
	assert_int_equal(feed_in_pieces(big, SBX_REQUEST_MAX, SBX_REQUEST_MAX), 512 * 1024);
	assert_int_equal(feed_in_pieces(big, SBX_REQUEST_MAX, 4096), 512 * 1024);
	/* Quadratic, this is minutes; with sanitizers on a busy machine, seconds. */
	assert_true(sbx_now_ns() - begin < UINT64_C(30000000000));
	free(big);
}

static void byte_by_byte_is_the_same_as_at_once(void **state)
{
	static const char text[] =
	        "a 'b c'\n{\"argv\":[\"\xf0\x9f\x98\x80\"]}\n\n\"x\\\ny\" z\\ \n";

	(void)state;
	for (size_t n = 1; n <= sizeof(text); n++) {
		assert_int_equal(feed_in_pieces(text, sizeof(text) - 1, n), 3);
		assert_false(sbx_request_parser_pending(&parser));
	}
}

static void reset_drops_what_waits(void **state)
{
	(void)state;
	feed("{\"argv\":");
	assert_int_equal(next(false), 0);
	sbx_request_parser_reset(&parser);
	assert_false(sbx_request_parser_pending(&parser));
	feed("echo 'a");
	assert_int_equal(next(false), 0);
	sbx_request_parser_reset(&parser);
	feed("ls\n");
	expect("[ls]");
}

/* Checks */

static void env_keys_are_checked_with_the_words_promised(void **state)
{
	static const char *const good[] = {"A", "_", "a1_", "_0Z"};
	static const char *const bad[] = {"", "1A", "A-B", "A=B", "$(x)", "A\n", "\xc3\xa9", " A"};

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++)
		assert_int_equal(sbx_env_key_check(good[i], strlen(good[i]), &err), 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_int_equal(sbx_env_key_check(bad[i], strlen(bad[i]), &err), -EINVAL);
	assert_int_equal(sbx_env_key_check("A B=C", 3, &err), -EINVAL);
	assert_string_equal(
	        err.text, "Invalid env key \"A B\" \xe2\x80\x94 must match [A-Za-z_][A-Za-z0-9_]*");
}

static void job_ids_are_checked(void **state)
{
	char longest[65] = {0};

	(void)state;
	memset(longest, 'a', 63);
	assert_int_equal(sbx_job_id_check(longest, NULL), 0);
	longest[63] = 'a';
	assert_int_equal(sbx_job_id_check(longest, NULL), -EINVAL);
	assert_int_equal(sbx_job_id_check("build-1.x_", NULL), 0);
	assert_int_equal(sbx_job_id_check("last", &err), -EINVAL);
	assert_int_equal(sbx_job_id_check("", &err), -EINVAL);
	assert_int_equal(sbx_job_id_check("1a", &err), -EINVAL);
	assert_int_equal(sbx_job_id_check("a/b", &err), -EINVAL);
	assert_int_equal(sbx_job_id_check("..", &err), -EINVAL);
}

/* Create requests */

static int next_create(bool final)
{
	err = SBX_ERROR_INIT;
	sbx_create_request_release(&creq);
	return sbx_create_parser_next(&parser, final, &creq, &err);
}

static void bare_name_on_a_line_creates(void **state)
{
	(void)state;
	feed(" fix-1 \nfix-2");
	assert_int_equal(next_create(false), 1);
	assert_string_equal(creq.name, "fix-1");
	assert_null(creq.base);
	assert_int_equal(next_create(false), 0);
	assert_int_equal(next_create(true), 1);
	assert_string_equal(creq.name, "fix-2");
	assert_int_equal(next_create(true), 0);
}

static void create_object_members_are_taken(void **state)
{
	(void)state;
	feed("{\"name\":\"n\",\"backend\":\"local\",\"repo\":\"o/r\",\"base\":\"main\",");
	assert_int_equal(next_create(false), 0);
	feed("\"branch\":\"b\",\"from\":\"f\"}\n");
	assert_int_equal(next_create(false), 1);
	assert_string_equal(creq.name, "n");
	assert_string_equal(creq.backend, "local");
	assert_string_equal(creq.repo, "o/r");
	assert_string_equal(creq.base, "main");
	assert_string_equal(creq.branch, "b");
	assert_string_equal(creq.from, "f");
}

static void bad_create_requests_are_refused(void **state)
{
	static const char *const bad[][2] = {
	        {"two words\n", "bare name"},
	        {"[\"a\"]", "bare name"},
	        {"{}", "\"name\" is missing"},
	        {"{\"name\":\"\"}", "\"name\" is missing"},
	        {"{\"name\":1}", "\"name\" must be a string"},
	        {"{\"name\":\"a\",\"bse\":\"\"}", "unknown key \"bse\"; the nearest is \"base\""},
	        {"{\"name\":\"a\",\"name\":\"b\"}", "duplicate key \"name\""},
	        {"{\"name\":\"a\"} x", "trailing data"},
	        {"{\"name\":", "incomplete JSON"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		feed(bad[i][0]);
		assert_int_equal(next_create(true), -EINVAL);
		if (!strstr(err.text, bad[i][1]))
			fail_msg("%s: %s", bad[i][0], err.text);
		assert_false(sbx_request_parser_pending(&parser));
	}
	feed_bytes("a\0b\n", 4);
	assert_int_equal(next_create(false), -EINVAL);
}

#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        T(line_is_split_at_blanks),
	        T(quotes_are_those_of_the_shell),
	        T(a_quote_does_not_carry_a_line_on),
	        T(backslash_continues_a_line),
	        T(what_no_shell_would_act_upon_is_literal),
	        T(what_is_a_shells_own_is_refused_with_a_hint),
	        T(a_return_before_the_newline_is_dropped),
	        T(comments_and_a_byte_order_mark_are_skipped),
	        T(utf16_is_refused),
	        T(half_a_mark_is_a_word),
	        T(bytes_that_are_not_utf8_pass_in_a_line),
	        T(shell_operators_are_refused_with_a_hint),
	        T(unclosed_quote_is_refused_at_the_end),
	        T(several_lines_are_taken_in_order),
	        T(refused_line_takes_the_rest_along),
	        T(blank_input_is_no_request),
	        T(empty_program_name_is_refused),
	        T(empty_last_element_ends_a_nul_request),
	        T(end_of_data_ends_a_nul_request),
	        T(empty_argument_does_not_cut_a_nul_request),
	        T(program_named_bracket_is_not_json),
	        T(newlines_are_data_in_a_nul_request),
	        T(nul_request_without_elements_is_refused),
	        T(array_is_an_argv),
	        T(object_may_span_lines_and_writes),
	        T(object_members_are_taken),
	        T(null_stdin_is_set_and_empty),
	        T(bad_members_are_refused_by_name),
	        T(wrong_json_is_refused_before_it_is_complete),
	        T(a_thousand_levels_are_refused_at_the_33rd),
	        T(only_blanks_may_follow_a_json_request),
	        T(more_than_a_mebibyte_is_refused_for_good),
	        T(a_mebibyte_is_accepted),
	        T(pieces_cost_no_more_than_the_whole),
	        T(byte_by_byte_is_the_same_as_at_once),
	        T(reset_drops_what_waits),
	        T(env_keys_are_checked_with_the_words_promised),
	        T(job_ids_are_checked),
	        T(bare_name_on_a_line_creates),
	        T(create_object_members_are_taken),
	        T(bad_create_requests_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
